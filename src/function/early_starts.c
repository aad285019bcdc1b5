/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a plan starts the calls that follow its region, which collectives can: as soon as their
 * operands are ready, while kernels are left to run. They start after the calls that the plan makes
 * and in the order of the program, so that this order is one on all replicas, those without a plan
 * too.
 */
#include "function/plan.h"

/* The end of the kernels that write to the data of a result; 0: it is there from the beginning. */
static uint32_t
end_of_makers(const coi_plan *plan, const coi_plan_output *output)
{
    uint32_t root = plan->values[output->value].root;

    for (uint32_t i = (uint32_t)plan->num_kernels; i > 0; --i) {
        const coi_plan_kernel *kernel = &plan->kernels[i - 1];
        const uint32_t        *out = plan->operands + kernel->values + kernel->num_in;

        for (int k = 0; !kernel->is_dead && k < kernel->num_out; ++k)
            if (plan->values[out[k]].root == root)
                return i;
    }
    return 0;
}

/* Whether kernels are left to run from this one on. */
static bool
is_followed(const coi_plan *plan, uint32_t kernel)
{
    return plan->num_starts > 0 && plan->starts[plan->num_starts - 1].kernel >= kernel;
}

void
coi_plan_find_ready(coi_plan *plan)
{
    uint32_t ready = 0, output = 0;

    for (size_t i = 0; i < plan->num_stops; ++i) {
        coi_plan_call *stop = &plan->stops[i];

        if (!stop->is_start)
            ready = stop->end_kernel;
        for (; stop->is_start && output < stop->end_output; ++output) {
            uint32_t end = end_of_makers(plan, &plan->outputs[output]);

            ready = ready > end ? ready : end;
        }
        output = stop->end_output;
        stop->end_kernel = ready;
    }
    /* At the end of the plan there is nothing to do meanwhile: the call itself comes next. */
    while (plan->num_stops > 0 && plan->stops[plan->num_stops - 1].is_start &&
           !is_followed(plan, plan->stops[plan->num_stops - 1].end_kernel))
        --plan->num_stops;
}
