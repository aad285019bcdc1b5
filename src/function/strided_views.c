/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strided views: where all users of the parts of a tensor can read rows that are a distance apart,
 * the parts are not copied out of it, and where the producers of parts can write such rows, the
 * parts are not copied together. The kernels that would copy them, splits and concats along the
 * last axis, are left out.
 */
#include "function/plan.h"

#include "ops/engine/upcast.h"
#include "ops/kernels/strided_copy.h"

/* How often each value is an operand, and how often of kernels that take it as a strided one. */
typedef struct uses {
    uint32_t *all, *strided;
    uint32_t *views; /* other values that show its data */
} uses;

static void
count_uses(const coi_plan *plan, uses *u)
{
    for (size_t i = 0; i < plan->num_kernels; ++i) {
        const coi_plan_kernel *kernel = &plan->kernels[i];

        for (int k = 0; k < kernel->num_in; ++k) {
            uint32_t value = plan->operands[kernel->values + (uint32_t)k];

            ++u->all[value];
            u->strided[value] += k < 8 && (kernel->op->strided_in >> k & 1) != 0;
        }
    }
    for (uint32_t i = 0; i < plan->num_values; ++i)
        u->views[plan->values[i].root] += plan->values[i].root != i;
}

/* Whether a value can become a view: it has memory of its own, which nothing else shows. */
static bool
is_alone(const coi_plan *plan, const uses *u, uint32_t number)
{
    const coi_plan_value *value = &plan->values[number];

    return value->source == COI_PLAN_COMPUTED && !value->is_output && u->views[number] == 0 &&
           !coi_is_half(&value->cell);
}

static bool
is_last_axis(const co_value *cell, int64_t axis)
{
    return axis == -1 || axis == cell->ndim - 1;
}

/* Whether the kernel that makes a value can write it as rows at a distance. */
static bool
is_made_strided(const coi_plan *plan, uint32_t number)
{
    const coi_plan_kernel *maker = &plan->kernels[plan->values[number].first];

    for (int k = 0; k < maker->num_out; ++k)
        if (plan->operands[maker->values + maker->num_in + (uint32_t)k] == number)
            return (maker->op->strided_out >> k & 1) != 0;
    return false;
}

/* Let parts be columns of a whole, one behind the other. */
static void
view_columns(coi_plan *plan, uint32_t whole, const uint32_t *parts, int n)
{
    const co_value *cell = &plan->values[whole].cell;
    int64_t         row = cell->u.tensor.dims[cell->ndim - 1];
    size_t          offset = 0, size = coi_dtypes[cell->dtype].size;

    for (int i = 0; i < n; ++i) {
        coi_plan_value *part = &plan->values[parts[i]];

        part->source = COI_PLAN_VIEW;
        part->root = plan->values[whole].root;
        part->view_offset = offset;
        part->row_stride = row;
        offset += (size_t)part->cell.u.tensor.dims[part->cell.ndim - 1] * size;
    }
}

static void
view_split(coi_plan *plan, const uses *u, coi_plan_kernel *kernel)
{
    uint32_t        whole = plan->operands[kernel->values];
    const uint32_t *parts = plan->operands + kernel->values + kernel->num_in;

    if (!is_last_axis(&plan->values[whole].cell, ((const coi_split_attrs *)kernel->attrs)->axis))
        return;
    for (int i = 0; i < kernel->num_out; ++i)
        if (!is_alone(plan, u, parts[i]) || u->strided[parts[i]] != u->all[parts[i]])
            return;
    view_columns(plan, whole, parts, kernel->num_out);
    kernel->is_left_out = true;
}

static void
view_concat(coi_plan *plan, const uses *u, coi_plan_kernel *kernel)
{
    uint32_t        whole = plan->operands[kernel->values + kernel->num_in];
    const uint32_t *parts = plan->operands + kernel->values;

    if (!is_last_axis(&plan->values[whole].cell, ((const coi_axis_attrs *)kernel->attrs)->axis))
        return;
    for (int i = 0; i < kernel->num_in; ++i)
        if (!is_alone(plan, u, parts[i]) || u->all[parts[i]] != 1 ||
            !is_made_strided(plan, parts[i]))
            return;
    for (int i = 0; i < kernel->num_in; ++i)
        if (plan->values[parts[i]].first < plan->values[whole].first)
            plan->values[whole].first = plan->values[parts[i]].first;
    view_columns(plan, whole, parts, kernel->num_in);
    kernel->is_left_out = true;
}

bool
coi_plan_view_parts(coi_plan *plan)
{
    size_t nbytes = 3 * (plan->num_values + 1) * sizeof(uint32_t);
    uses   u = { .all = coi_calloc(plan->memory, nbytes) };

    if (u.all == NULL)
        return false;
    u.strided = u.all + plan->num_values + 1;
    u.views = u.strided + plan->num_values + 1;
    count_uses(plan, &u);
    for (size_t i = 0; i < plan->num_kernels; ++i) {
        coi_plan_kernel *kernel = &plan->kernels[i];

        if (kernel->op->run == coi_split_run)
            view_split(plan, &u, kernel);
        else if (kernel->op->run == coi_concat_run)
            view_concat(plan, &u, kernel);
    }
    coi_free(plan->memory, u.all, nbytes);
    return true;
}
