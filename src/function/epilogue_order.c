/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of kernels, for epilogues: a backward pass computes the gradient of a layer's operand,
 * then that of its weights, and only then goes on with the former. An element-wise kernel that
 * needs what a product of matrices or the like made, and else what was there before, comes directly
 * after it, unless a call with an effect is in between. Every value is made once, and kernels have
 * no effect, so results are the same.
 */
#include "function/plan.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* A kernel and the one that it follows, which mostly is itself. */
typedef struct place {
    uint32_t after, kernel;
} place;

typedef struct order {
    coi_plan *plan;
    place    *places; /* by kernel, then in their new order */
    uint32_t *maker;  /* by root: the last kernel that makes a part of it; NONE: none */
    uint32_t *new_number;
} order;

static void
find_makers(order *o)
{
    const coi_plan *plan = o->plan;

    for (size_t i = 0; i < plan->num_values; ++i)
        o->maker[i] = NONE;
    for (uint32_t i = 0; i < plan->num_kernels; ++i) {
        const coi_plan_kernel *kernel = &plan->kernels[i];
        const uint32_t        *out = plan->operands + kernel->values + kernel->num_in;

        for (int k = 0; !kernel->is_dead && k < kernel->num_out; ++k)
            o->maker[plan->values[out[k]].root] = i;
    }
}

/* The kernel that kernel i could follow: the last that makes an operand, or what that follows. */
static uint32_t
find_leader(const order *o, uint32_t i)
{
    const coi_plan        *plan = o->plan;
    const coi_plan_kernel *kernel = &plan->kernels[i];
    uint32_t               last = NONE;

    for (int k = 0; k < kernel->num_in; ++k) {
        uint32_t maker = o->maker[plan->values[plan->operands[kernel->values + (uint32_t)k]].root];

        if (maker != NONE && (last == NONE || o->places[maker].after > last))
            last = o->places[maker].after;
    }
    return last;
}

/* Whether a call with an effect is between two kernels: it may change a variable that the second
 * reads, and what it left behind after an error must not depend on the order. */
static bool
has_call_between(const coi_plan *plan, uint32_t first, uint32_t second)
{
    for (size_t i = 0; i < plan->num_stops; ++i)
        if (first < plan->stops[i].end_kernel && plan->stops[i].end_kernel <= second)
            return true;
    return false;
}

/* Whether kernel i can be part of an epilogue of another one. */
static bool
can_follow(const coi_plan *plan, uint32_t i, uint32_t leader)
{
    const coi_call *call = &plan->calls[i], *made = &plan->calls[leader];
    coi_fused_step  step;

    return coi_takes_epilogue(made) && made->device == call->device &&
           made->out[0]->u.tensor.num_elements == call->out[0]->u.tensor.num_elements &&
           coi_fused_step_of(call, &step) && !has_call_between(plan, leader, i);
}

static int
compare_places(const void *a, const void *b)
{
    const place *x = a, *y = b;

    if (x->after != y->after)
        return x->after < y->after ? -1 : 1;
    return x->kernel < y->kernel ? -1 : x->kernel > y->kernel;
}

/* Operands of a kernel are made by kernels that stay where they are or move up, so that those which
 * follow the same kernel keep their order. Whether any kernel moves. */
static bool
find_places(order *o)
{
    bool moves = false;

    for (uint32_t i = 0; i < o->plan->num_kernels; ++i) {
        uint32_t leader = o->plan->kernels[i].is_dead ? NONE : find_leader(o, i);

        o->places[i] = (place){ i, i };
        if (leader != NONE && can_follow(o->plan, i, leader)) {
            o->places[i].after = leader;
            moves = true;
        }
    }
    return moves;
}

/* Kernels and calls in their new order. */
static bool
move_kernels(order *o)
{
    coi_plan        *plan = o->plan;
    size_t           n = plan->num_kernels;
    coi_plan_kernel *kernels = coi_alloc(plan->memory, n * sizeof(*kernels));
    coi_call        *calls = coi_alloc(plan->memory, n * sizeof(*calls));
    bool             ok = kernels != NULL && calls != NULL;

    if (ok) {
        memcpy(kernels, plan->kernels, n * sizeof(*kernels));
        memcpy(calls, plan->calls, n * sizeof(*calls));
        qsort(o->places, n, sizeof(*o->places), compare_places);
        for (uint32_t i = 0; i < n; ++i) {
            plan->kernels[i] = kernels[o->places[i].kernel];
            plan->kernels[i].first = plan->kernels[i].last = i;
            plan->calls[i] = calls[o->places[i].kernel];
            o->new_number[o->places[i].kernel] = i;
        }
        for (size_t i = 0; i < plan->num_values; ++i)
            if (plan->values[i].source == COI_PLAN_COMPUTED)
                plan->values[i].first = o->new_number[plan->values[i].first];
    }
    coi_free(plan->memory, kernels, n * sizeof(*kernels));
    coi_free(plan->memory, calls, n * sizeof(*calls));
    return ok;
}

bool
coi_plan_order(coi_plan *plan)
{
    size_t n = plan->num_kernels + 1;
    size_t place_bytes = n * sizeof(place), maker_bytes = (plan->num_values + 1) * sizeof(uint32_t);
    order  o = { .plan = plan,
                 .places = coi_alloc(plan->memory, place_bytes),
                 .maker = coi_alloc(plan->memory, maker_bytes),
                 .new_number = coi_alloc(plan->memory, n * sizeof(uint32_t)) };
    bool   ok = o.places != NULL && o.maker != NULL && o.new_number != NULL;

    if (ok) {
        find_makers(&o);
        ok = !find_places(&o) || move_kernels(&o);
    }
    coi_free(plan->memory, o.places, place_bytes);
    coi_free(plan->memory, o.maker, maker_bytes);
    coi_free(plan->memory, o.new_number, n * sizeof(uint32_t));
    return ok;
}
