/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains: element-wise kernels that follow each other and have results of one size are run tile by
 * tile (ops/kernels/fused_elementwise.h). Results that only the chain uses stay in tiles.
 */
#include "function/plan.h"

#define NONE UINT32_MAX

/* A chain that is being made, of the kernels `first` to `last`. */
typedef struct chain {
    coi_plan *plan;
    uint32_t  first, last;
    uint32_t  in_tile[COI_FUSED_TILES]; /* the value in each tile; NONE: free */
} chain;

static coi_plan_value *
root_of(coi_plan *plan, uint32_t value)
{
    return &plan->values[plan->values[value].root];
}

/* Whether kernel i can go on with a chain of results of n elements on a device; NONE: begin one. */
static bool
is_next(const coi_plan *plan, size_t i, const coi_call *before)
{
    const coi_call *call = &plan->calls[i];
    coi_fused_step  step;

    return !plan->kernels[i].is_dead &&
           (before == NULL ||
            (before->device == call->device &&
             before->out[0]->u.tensor.num_elements == call->out[0]->u.tensor.num_elements)) &&
           coi_fused_step_of(call, &step);
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

/* Make a chain of kernels; with too many results at a time, of the first half of them. */
static bool
make_chain(coi_plan *plan, uint32_t first, uint32_t *last)
{
    for (;; *last = first + (*last - first) / 2) {
        chain  c = { .plan = plan, .first = first, .last = *last };
        size_t first_step = plan->num_chain_steps;
        bool   ok = true;

        if (*last == first)
            return true;
        for (int k = 0; k < COI_FUSED_TILES; ++k)
            c.in_tile[k] = NONE;
        for (uint32_t i = first; ok && i <= *last; ++i)
            ok = add_step(&c, i);
        if (ok) {
            if (!coi_grow(plan->memory, (void **)&plan->chains, &plan->cap_chains,
                          plan->num_chains + 1, sizeof(*plan->chains)))
                return false;
            plan->chains[plan->num_chains++] = (coi_fused){
                plan->chain_steps + first_step, plan->num_chain_steps - first_step,
                plan->calls[first].out[0]->u.tensor.num_elements, plan->ctx->runtime->isa
            };
            for (uint32_t i = first; i <= *last; ++i) {
                plan->kernels[i].first = first;
                plan->kernels[i].last = *last;
            }
            return true;
        }
        give_up(&c, first_step);
    }
}

bool
coi_plan_fuse(coi_plan *plan)
{
    plan->chain_steps = coi_alloc(plan->memory,
                                  (plan->num_kernels + 1) * sizeof(*plan->chain_steps));
    if (plan->chain_steps == NULL)
        return false;
    for (uint32_t i = 0; i < plan->num_kernels; ++i) {
        uint32_t last = i;

        if (!is_next(plan, i, NULL))
            continue;
        while (last + 1 < plan->num_kernels && is_next(plan, last + 1, &plan->calls[i]))
            ++last;
        if (!make_chain(plan, i, &last))
            return false;
        i = last;
    }
    return true;
}
