/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains: element-wise kernels that follow each other and have results of one size are run tile by
 * tile (ops/kernels/fused_elementwise.h). Results that only the chain uses stay in tiles. A chain
 * whose first kernel is a product of matrices or the like is its epilogue: it goes on with each
 * part of the product while that is in the cache.
 */
#include "function/plan.h"

#define NONE UINT32_MAX

/* A chain that is being made, of the kernels `first` to `last`. */
typedef struct chain {
    coi_plan *plan;
    uint32_t  first, last;
    bool      has_leader;               /* the first one is not element-wise */
    int64_t   row;                      /* of the steps that know rows; 0: none does so far */
    uint32_t  in_tile[COI_FUSED_TILES]; /* the value in each tile; NONE: free */
} chain;

static coi_plan_value *
root_of(coi_plan *plan, uint32_t value)
{
    return &plan->values[plan->values[value].root];
}

/* Whether kernels of the chain make a value. */
static bool
is_made_here(const chain *c, uint32_t value)
{
    const coi_plan_value *root = root_of(c->plan, value);

    return root->source == COI_PLAN_COMPUTED && root->first >= c->first;
}

/* Whether a step can read an operand: of what the chain makes it sees the tile alone, and of what
 * its leader makes the first result. */
static bool
can_read(const chain *c, uint32_t value, coi_fused_layout layout)
{
    const coi_plan_kernel *first = &c->plan->kernels[c->first];
    const coi_plan_value  *root = root_of(c->plan, value);

    return !is_made_here(c, value) ||
           (layout == COI_FUSED_DENSE &&
            (root->first > c->first ||
             root == root_of(c->plan, c->plan->operands[first->values + first->num_in])));
}

/* Whether the chain can go on with kernel i. An epilogue goes on with what its leader makes. */
static bool
is_next(chain *c, uint32_t i)
{
    const coi_plan        *plan = c->plan;
    const coi_plan_kernel *kernel = &plan->kernels[i];
    const coi_call        *call = &plan->calls[i], *before = &plan->calls[c->first];
    bool                   goes_on = !c->has_leader;
    coi_fused_step         step;

    if (kernel->is_dead || before->device != call->device ||
        before->out[0]->u.tensor.num_elements != call->out[0]->u.tensor.num_elements ||
        !coi_fused_step_of(call, &step) || (step.row > 0 && c->row > 0 && step.row != c->row))
        return false;
    for (int k = 0; k < kernel->num_in; ++k) {
        uint32_t value = plan->operands[kernel->values + step.order[k]];

        if (!can_read(c, value, (coi_fused_layout)step.in[k].layout))
            return false;
        goes_on = goes_on || is_made_here(c, value);
    }
    if (goes_on && step.row > 0)
        c->row = step.row;
    return goes_on;
}

/* A value that a kernel of the chain made, and that nothing after it uses. */
static bool
is_inner(const chain *c, const coi_plan_value *root)
{
    return root->source == COI_PLAN_COMPUTED && root->first >= c->first && !root->is_output &&
           root->last <= c->last;
}

static int
find_tile(const chain *c, uint32_t value)
{
    for (int i = 0; i < COI_FUSED_TILES; ++i)
        if (c->in_tile[i] == value)
            return i;
    return -1;
}

/* Where an operand is. */
static void
place_operand(const chain *c, uint32_t value, coi_fused_place *place)
{
    place->tile = (int8_t)find_tile(c, c->plan->values[value].root);
    place->tensor = place->tile < 0 ? &c->plan->values[value].cell : NULL;
}

/* Where the result goes; false if there is no tile left. */
static bool
place_result(chain *c, uint32_t value, coi_fused_place *place)
{
    coi_plan_value *root = &c->plan->values[value];
    bool            inner = is_inner(c, root);
    bool            streams = !inner && coi_fused_streams(coi_tensor_nbytes(&root->cell));

    place->tile = -1;
    place->tensor = inner ? NULL : &root->cell;
    if (!inner && !streams)
        return true;
    place->tile = (int8_t)find_tile(c, NONE);
    if (place->tile < 0)
        return false;
    c->in_tile[place->tile] = value;
    root->is_in_tile = inner;
    return true;
}

/* What kernel i is the last of the chain to use leaves its tile. */
static void
free_tiles(chain *c, uint32_t i)
{
    for (int k = 0; k < COI_FUSED_TILES; ++k)
        if (c->in_tile[k] != NONE && root_of(c->plan, c->in_tile[k])->last <= i)
            c->in_tile[k] = NONE;
}

static bool
add_step(chain *c, uint32_t i)
{
    coi_plan              *plan = c->plan;
    const coi_plan_kernel *kernel = &plan->kernels[i];
    const uint32_t        *values = plan->operands + kernel->values;
    coi_fused_step        *step = &plan->chain_steps[plan->num_chain_steps];

    coi_fused_step_of(&plan->calls[i], step);
    for (int k = 0; k < kernel->num_in; ++k)
        place_operand(c, values[step->order[k]], &step->in[k]);
    if (!place_result(c, values[kernel->num_in], &step->out))
        return false;
    ++plan->num_chain_steps;
    free_tiles(c, i);
    return true;
}

/* Results of a chain that could not be made need memory after all. */
static void
give_up(const chain *c, size_t first_step)
{
    coi_plan *plan = c->plan;

    for (uint32_t i = c->first; i <= c->last; ++i)
        plan->values[plan->operands[plan->kernels[i].values + plan->kernels[i].num_in]].is_in_tile =
            false;
    plan->num_chain_steps = first_step;
}

static bool
add_steps(chain *c)
{
    for (int k = 0; k < COI_FUSED_TILES; ++k)
        c->in_tile[k] = NONE;
    for (uint32_t i = c->first + c->has_leader; i <= c->last; ++i)
        if (!add_step(c, i))
            return false;
    return true;
}

/* Make a chain of kernels; with too many results at a time, of the first half of them. */
static bool
make_chain(chain *c)
{
    coi_plan *plan = c->plan;
    size_t    first_step = plan->num_chain_steps;

    for (; c->last > c->first && !add_steps(c); c->last = c->first + (c->last - c->first) / 2)
        give_up(c, first_step);
    if (c->last == c->first)
        return true;
    if (!coi_grow(plan->memory, (void **)&plan->chains, &plan->cap_chains, plan->num_chains + 1,
                  sizeof(*plan->chains)))
        return false;
    plan->chains[plan->num_chains++] = (coi_fused){
        .steps = plan->chain_steps + first_step,
        .num_steps = plan->num_chain_steps - first_step,
        .num_elements = plan->calls[c->first].out[0]->u.tensor.num_elements,
        .row = c->row,
        .isa = plan->ctx->runtime->isa,
    };
    for (uint32_t i = c->first; i <= c->last; ++i) {
        plan->kernels[i].first = c->first;
        plan->kernels[i].last = c->last;
    }
    return true;
}

bool
coi_plan_fuse(coi_plan *plan)
{
    size_t   stop = 0;
    uint32_t end; /* no chain goes over a call */

    plan->chain_steps = coi_alloc(plan->memory,
                                  (plan->num_kernels + 1) * sizeof(*plan->chain_steps));
    if (plan->chain_steps == NULL)
        return false;
    for (uint32_t i = 0; i < plan->num_kernels; ++i) {
        chain c = { .plan = plan, .first = i, .last = i };

        while (stop < plan->num_stops && plan->stops[stop].end_kernel <= i)
            ++stop;
        end = stop < plan->num_stops ? plan->stops[stop].end_kernel : (uint32_t)plan->num_kernels;
        c.has_leader = !plan->kernels[i].is_dead && coi_takes_epilogue(&plan->calls[i]);
        if (!c.has_leader && !is_next(&c, i))
            continue;
        while (c.last + 1 < end && is_next(&c, c.last + 1))
            ++c.last;
        if (!make_chain(&c))
            return false;
        i = c.last;
    }
    return true;
}
