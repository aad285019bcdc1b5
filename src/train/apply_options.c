/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the options of an optimizer do to gradients on the way to the update: accumulation,
 * clipping, the check for numbers that are not finite. A gradient that is one tensor is only
 * measured here: the update itself multiplies and clips it, in the pass that it makes anyhow.
 * Indexed slices are clipped here, each occurrence of a row by itself, as Keras does.
 */
#include "train/apply.h"

#include "strategy/regroup.h"
#include "variable/variable.h"

#include <cohort/ops.h>

#include <math.h>

/* --- accumulation --- */

/* Each replica accumulates its own gradients, so outside of steps there would be nobody to have
 * those of a variable with several components. */
static bool
may_accumulate(co_context *ctx, const coi_pairs *p)
{
    for (size_t i = 0; i < p->n && !coi_in_replica(ctx) && ctx->mode.update_id < 0; ++i) {
        const co_strategy *strategy = p->variables[i]->u.variable->strategy;

        if (strategy == NULL || strategy->num_replicas == 1)
            continue;
        coi_fail(ctx, CO_UNIMPLEMENTED,
                 "%s accumulates gradients over %d calls, each replica its own; call %s in a step "
                 "(co_run)",
                 p->optimizer->name, p->optimizer->common.accumulation_steps, ctx->call);
        return false;
    }
    return true;
}

/* All gradients dense and fitting, those of this replica, before an accumulator changes. */
static bool
fit_own(co_context *ctx, const coi_pairs *p)
{
    for (size_t i = 0; i < p->n; ++i) {
        co_value *gradient = coi_select(p->gradients[i], ctx->mode.local_replica);

        if (gradient->kind != CO_KIND_NONE)
            gradient = coi_fitting_gradient(ctx, p->variables[i]->u.variable, gradient);
        if (gradient == NULL)
            return false;
        p->gradients[i] = gradient;
    }
    return true;
}

/* The accumulator for pair i; NULL with an error, and for a pair without a gradient. */
static co_value *
accumulator_of(co_context *ctx, const coi_pairs *p, size_t i)
{
    coi_update_item item;

    return p->gradients[i]->kind != CO_KIND_NONE &&
                   coi_item_of(ctx, p, i, 0, &item) == COI_ITEM_MADE
               ? item.slots[p->optimizer->accumulator]
               : NULL;
}

static bool
put(co_context *ctx, co_value *accumulator, int verb, co_value *tensor)
{
    co_value *fresh = NULL;
    bool      ok = tensor != NULL && coi_plain_update(ctx, &accumulator, 1, verb, &tensor, &fresh);

    coi_unref(&ctx->heap, fresh);
    return ok;
}

bool
coi_accumulate(co_context *ctx, const coi_pairs *p)
{
    bool ok = may_accumulate(ctx, p) && fit_own(ctx, p);

    for (size_t i = 0; ok && i < p->n; ++i) {
        co_value *accumulator = accumulator_of(ctx, p, i);

        if (accumulator != NULL)
            ok = put(ctx, accumulator,
                     coi_plain_has_value(accumulator) ? COI_ASSIGN_ADD : COI_ASSIGN,
                     p->gradients[i]);
        ok = ok && ctx->error.code == CO_OK;
    }
    return ok;
}

bool
coi_add_accumulated(co_context *ctx, const coi_pairs *p)
{
    bool ok = may_accumulate(ctx, p) && fit_own(ctx, p);

    for (size_t i = 0; ok && i < p->n; ++i) {
        co_value *accumulator = accumulator_of(ctx, p, i);

        if (accumulator != NULL && coi_plain_has_value(accumulator)) {
            p->gradients[i] = co_add(
                ctx, coi_own(ctx, accumulator->u.variable->ops->read(ctx, accumulator)),
                p->gradients[i]);
            ok = p->gradients[i] != NULL;
        }
        ok = ok && ctx->error.code == CO_OK;
    }
    return ok;
}

bool
coi_clear_accumulators(co_context *ctx, const coi_pairs *p)
{
    bool ok = true;

    for (size_t i = 0; ok && i < p->n; ++i) {
        const coi_variable *variable = p->variables[i]->u.variable;
        co_value           *accumulator = accumulator_of(ctx, p, i);

        if (accumulator != NULL)
            ok = put(ctx, accumulator, COI_ASSIGN,
                     co_zeros(ctx, (co_dtype)variable->dtype, variable->shape.dims,
                              variable->shape.ndim));
        ok = ok && ctx->error.code == CO_OK;
    }
    return ok;
}

/* --- clipping --- */

/* The elements that a gradient has: those of slices as they are, repeated rows apart. */
static co_value *
elements_of(co_context *ctx, co_value *gradient)
{
    return gradient->kind == CO_KIND_SLICES ? co_slices_values(ctx, gradient) : gradient;
}

static double
norm_of(co_context *ctx, co_value *gradient)
{
    co_value *elements = elements_of(ctx, gradient);
    co_value *norm = elements != NULL ? co_global_norm(ctx, co_list(ctx, &elements, 1)) : NULL;

    return norm != NULL ? co_item_float(ctx, norm) : 0;
}

/* What brings a norm down to the limit. Norms that are no numbers make all of the gradients so, as
 * in TensorFlow, when they are those of all. */
static double
share_for(double norm, double limit)
{
    return norm > limit ? limit / norm : 1;
}

static double
share_for_all(double norm, double limit)
{
    return isfinite(norm) ? share_for(norm, limit) : NAN;
}

bool
coi_clip_items(co_context *ctx, const co_optimizer *optimizer, coi_update_item *items, size_t n,
               double factor)
{
    const coi_common *common = &optimizer->common;
    const bool        is_global = common->clipping == COI_CLIP_GLOBAL_NORM;
    const bool        is_clipped = !common->clip_before_sum;
    double            squares = 0, share;

    for (size_t i = 0; i < n; ++i) {
        items[i].factor = factor;
        items[i].limit = is_clipped && common->clipping == COI_CLIP_VALUE ? common->clip : HUGE_VAL;
        if (items[i].gradient == NULL || !is_clipped ||
            (!is_global && common->clipping != COI_CLIP_NORM))
            continue;
        share = norm_of(ctx, items[i].gradient) * factor;
        squares += share * share;
        if (!is_global)
            items[i].factor *= share_for(share, common->clip);
    }
    share = share_for_all(sqrt(squares), common->clip);
    for (size_t i = 0; is_clipped && is_global && i < n; ++i)
        items[i].factor *= share;
    return ctx->error.code == CO_OK;
}

/* A gradient with each of its elements multiplied and clipped; of slices, those of each occurrence.
 */
static co_value *
clipped(co_context *ctx, co_value *gradient, double factor, double limit)
{
    co_value *elements = elements_of(ctx, gradient);

    if (factor != 1 && elements != NULL)
        elements = co_mul(ctx, elements,
                          co_cast(ctx, co_scalar_double(ctx, factor), (co_dtype)elements->dtype));
    if (!isinf(limit) && elements != NULL)
        elements = co_clip_by_value(ctx, elements, -limit, limit);
    return elements == NULL || gradient->kind != CO_KIND_SLICES
               ? elements
               : co_slices(ctx, elements, co_slices_indices(ctx, gradient),
                           co_slices_dense_shape(ctx, gradient));
}

/* This replica's gradients, those of host numbers and parts of replicas as tensors. */
static bool
make_own(co_context *ctx, const coi_pairs *p)
{
    for (size_t i = 0; i < p->n; ++i) {
        const coi_variable *variable = p->variables[i]->u.variable;
        co_value           *gradient = coi_select(p->gradients[i], ctx->mode.local_replica);

        if (gradient->kind == CO_KIND_SLICES)
            gradient = coi_with_dense_shape(ctx, variable, gradient);
        else if (gradient->kind != CO_KIND_NONE)
            gradient = coi_fitting_gradient(ctx, variable, gradient);
        if (gradient == NULL)
            return false;
        p->gradients[i] = gradient;
    }
    return true;
}

/* Limits are those of the real gradients, so they are compared with `factor` times these, which
 * stay as large as they are. */
bool
coi_clip_before_sum(co_context *ctx, const coi_pairs *p, double factor)
{
    const coi_common *common = &p->optimizer->common;
    double            squares = 0, share = 1;

    if (!make_own(ctx, p))
        return false;
    for (size_t i = 0; common->clipping == COI_CLIP_GLOBAL_NORM && i < p->n; ++i)
        if (p->gradients[i]->kind != CO_KIND_NONE) {
            const double norm = norm_of(ctx, p->gradients[i]) * factor;

            squares += norm * norm;
        }
    if (common->clipping == COI_CLIP_GLOBAL_NORM)
        share = share_for_all(sqrt(squares), common->clip);
    for (size_t i = 0; i < p->n && ctx->error.code == CO_OK; ++i) {
        if (p->gradients[i]->kind == CO_KIND_NONE)
            continue;
        if (common->clipping == COI_CLIP_NORM)
            share = share_for(norm_of(ctx, p->gradients[i]) * factor, common->clip);
        p->gradients[i] = clipped(ctx, p->gradients[i], share,
                                  common->clipping == COI_CLIP_VALUE ? common->clip / factor
                                                                     : HUGE_VAL);
    }
    return ctx->error.code == CO_OK;
}

/* --- indexed slices --- */

static bool
densify(co_context *ctx, coi_powers powers, coi_update_item *item)
{
    const coi_variable *variable = item->variable->u.variable;
    co_value           *slices = clipped(ctx, item->gradient, item->factor, item->limit), *values;

    item->factor = 1;
    item->limit = HUGE_VAL;
    if (slices == NULL)
        return false;
    item->gradient = coi_fitting_gradient(ctx, variable, slices);
    if (item->gradient == NULL || powers == COI_POWERS_NONE)
        return item->gradient != NULL;
    values = co_slices_values(ctx, slices);
    values = powers == COI_POWERS_SQUARES ? co_square(ctx, values) : co_abs(ctx, values);
    if (values == NULL)
        return false;
    item->powers = coi_fitting_gradient(ctx, variable,
                                        co_slices(ctx, values, co_slices_indices(ctx, slices),
                                                  co_slices_dense_shape(ctx, slices)));
    return item->powers != NULL;
}

bool
coi_densify_items(co_context *ctx, const co_optimizer *optimizer, coi_update_item *items, size_t n)
{
    bool ok = true;

    for (size_t i = 0; ok && i < n; ++i)
        if (items[i].gradient != NULL && items[i].gradient->kind == CO_KIND_SLICES)
            ok = densify(ctx, optimizer->rule->powers, &items[i]);
    return ok;
}

/* --- loss scaling --- */

static bool
is_finite(co_context *ctx, const coi_variable *variable, co_value *gradient)
{
    gradient = elements_of(ctx, gradient);
    if (gradient != NULL && gradient->kind != CO_KIND_TENSOR)
        gradient = coi_fitting_gradient(ctx, variable, gradient);
    if (gradient == NULL || (gradient->dtype != CO_FLOAT32 && gradient->dtype != CO_FLOAT64))
        return true;
    return coi_is_all_finite(ctx, gradient);
}

bool
coi_are_finite(co_context *ctx, const coi_pairs *p)
{
    bool finite = true;

    for (size_t i = 0; finite && i < p->n; ++i) {
        const coi_variable *variable = p->variables[i]->u.variable;
        co_value           *gradient = p->gradients[i];

        if (gradient->kind == CO_KIND_NONE)
            continue;
        if (coi_is_distributed(gradient) && !coi_in_replica(ctx))
            for (size_t k = 0; finite && k < gradient->u.per_replica.n; ++k)
                finite = is_finite(ctx, variable, gradient->u.per_replica.items[k]);
        else
            finite = is_finite(ctx, variable, coi_select(gradient, ctx->mode.local_replica));
    }
    return finite;
}
