/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calling a loss: cast, match ranks, one value per example, mask, weights, reduction. Everything is
 * made of public operators, so that it is captured as it runs; only the mean over a step is an
 * entry of its own (average_loss.c), because what it divides by is known when it runs.
 */
#include "train/loss.h"

#include "ops/engine/composite.h"
#include "ops/engine/op.h"
#include "ops/engine/type_rules.h"

/* --- operands --- */

int64_t
coi_last_dim(const co_value *x)
{
    return x->u.tensor.dims[x->ndim - 1];
}

co_value *
coi_add_last_dim(co_context *ctx, co_value *x)
{
    return co_expand_dims(ctx, x, -1);
}

co_value *
coi_drop_last_dim(co_context *ctx, co_value *x)
{
    return co_squeeze(ctx, x, CO_AXES(-1));
}

co_value *
coi_loss_operand(co_context *ctx, co_value *value, co_dtype dtype, const char *name)
{
    const char *call = ctx->call;
    bool        is_tensor = value->kind == CO_KIND_TENSOR || value->kind == CO_KIND_SYMBOLIC;

    if (dtype == CO_DTYPE_NONE)
        dtype = is_tensor ? (co_dtype)value->dtype : co_value_dtype(ctx, value);
    if (!is_tensor || value->dtype != dtype)
        value = co_cast(ctx, value, dtype);
    ctx->call = call;
    if (value == NULL || value->ndim >= 0)
        return value;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "the rank of %s is not known while a function is captured; give its signature one, "
             "with dimensions of -1 where they are not known",
             name);
    return NULL;
}

/* A dimension that decides what happens is unknown. */
static bool
fail_unknown_dim(co_context *ctx, const char *name, const co_value *x, const co_value *other)
{
    char a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    coi_fail(
        ctx, CO_INVALID_ARGUMENT,
        "%s has shape %s and is matched with shape %s; whether its last dimension is 1 must be "
        "known, so give the signature of the function that dimension",
        name, coi_shape_text(x->u.tensor.dims, x->ndim, a),
        coi_shape_text(other->u.tensor.dims, other->ndim, b));
    return false;
}

/* The longer of two, whose last dimension of 1 is matched: the shorter gets one if it is a vector,
 * else the longer loses its own. */
static bool
match_longer(co_context *ctx, const char *name, co_value **longer, co_value **shorter)
{
    if (coi_last_dim(*longer) < 0)
        return fail_unknown_dim(ctx, name, *longer, *shorter);
    if (coi_last_dim(*longer) != 1)
        return true;
    if ((*shorter)->ndim == 1)
        *shorter = coi_add_last_dim(ctx, *shorter);
    else
        *longer = coi_drop_last_dim(ctx, *longer);
    return ctx->error.code == CO_OK;
}

/* Ranks that differ by a last dimension of 1; false with an error. */
static bool
match_ranks(co_context *ctx, const char *x_name, co_value **x, const char *y_name, co_value **y)
{
    if ((*x)->ndim == (*y)->ndim + 1)
        return match_longer(ctx, x_name, x, y);
    if ((*y)->ndim == (*x)->ndim + 1)
        return match_longer(ctx, y_name, y, x);
    return true;
}

/* --- shapes --- */

static bool
fail_shapes(co_context *ctx, const char *x_name, const co_value *x, const char *y_name,
            const co_value *y, const char *right)
{
    char a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    coi_fail(ctx, CO_INVALID_ARGUMENT, "%s has shape %s and %s %s; they must %s", x_name,
             coi_shape_text(x->u.tensor.dims, x->ndim, a), y_name,
             coi_shape_text(y->u.tensor.dims, y->ndim, b), right);
    return false;
}

static bool
check_broadcast(co_context *ctx, const char *x_name, const co_value *x, const char *y_name,
                const co_value *y)
{
    coi_out both;

    return coi_broadcast(x->u.tensor.dims, x->ndim, y->u.tensor.dims, y->ndim, &both) ||
           fail_shapes(ctx, x_name, x, y_name, y, "broadcast against each other");
}

/* Whether the first n dimensions of both can be equal. */
static bool
are_equal_dims(const co_value *x, const co_value *y, int n)
{
    for (int i = 0; i < n; ++i)
        if (!coi_dims_fit(x->u.tensor.dims[i], y->u.tensor.dims[i]))
            return false;
    return true;
}

/* Ids have the shape of the prediction without its classes, or a 1 there, which is taken out. */
static bool
match_ids(co_context *ctx, const co_loss *loss, co_value **t, const co_value *p)
{
    const int axis = loss->options.axis;

    if (axis != -1 && axis != p->ndim - 1) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "the axis of %s is %d, but y_pred has rank %d; its classes must be along the last "
                 "axis, -1 (co_transpose)",
                 loss->name, axis, p->ndim);
        return false;
    }
    if ((*t)->ndim == p->ndim && p->ndim > 0 && coi_last_dim(*t) == 1 &&
        (*t = coi_drop_last_dim(ctx, *t)) == NULL)
        return false;
    return ((*t)->ndim == p->ndim - 1 && are_equal_dims(*t, p, (*t)->ndim)) ||
           fail_shapes(ctx, "y_true", *t, "y_pred", p,
                       "be equal but for the last dimension of y_pred, the classes");
}

static bool
check_shapes(co_context *ctx, const co_loss *loss, co_value **t, const co_value *p)
{
    switch (loss->rule->shapes) {
    case COI_LOSS_IDS: return match_ids(ctx, loss, t, p);
    case COI_LOSS_EQUAL:
        return ((*t)->ndim == p->ndim && are_equal_dims(*t, p, p->ndim)) ||
               fail_shapes(ctx, "y_true", *t, "y_pred", p, "be equal");
    default: return check_broadcast(ctx, "y_true", *t, "y_pred", p);
    }
}

/* --- values of examples --- */

static co_value *
cast_leaf(co_context *ctx, co_value *leaf, void *user)
{
    return coi_loss_operand(ctx, leaf, *(const co_dtype *)user, "an operand");
}

/* What is true: integers stay where they are ids, because float32 does not hold all of them. */
static co_value *
cast_true(co_context *ctx, const co_loss *loss, co_value *y_true)
{
    const char *call = ctx->call;
    co_dtype    dtype = loss->options.dtype;

    if (loss->rule->shapes == COI_LOSS_IDS) {
        if (co_dtype_is_integer(co_value_dtype(ctx, y_true)))
            dtype = CO_INT64;
        ctx->call = call;
        if (ctx->error.code != CO_OK)
            return NULL;
    }
    return coi_loss_operand(ctx, y_true, dtype, "y_true");
}

static bool
call_own(co_context *ctx, const co_loss *loss, co_value *t, co_value *p, coi_loss_values *out)
{
    const char *call = ctx->call;
    size_t      floor = coi_function_begin(ctx);
    co_value   *values = loss->fn(ctx, t, p, loss->user);

    coi_function_end(ctx, floor);
    ctx->call = call;
    if (ctx->error.code != CO_OK)
        return false;
    if (values == NULL) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "the function of loss '%s' returned NULL; it must return one value per example",
                 loss->name);
        return false;
    }
    if (!coi_check_result(ctx, values, call, "loss function"))
        return false;
    *out = (coi_loss_values){ .values = coi_loss_operand(ctx, values, loss->options.dtype,
                                                         "what the loss function returned") };
    return out->values != NULL;
}

/* Operands of a function of the user, which may be structures. */
static bool
values_of_own(co_context *ctx, const co_loss *loss, co_value *t, co_value *p, coi_loss_values *out)
{
    co_dtype dtype = loss->options.dtype;

    if (coi_is_structure(t) || coi_is_structure(p)) {
        t = coi_map_leaves(ctx, t, cast_leaf, &dtype);
        p = coi_map_leaves(ctx, p, cast_leaf, &dtype);
    } else {
        p = coi_loss_operand(ctx, p, dtype, "y_pred");
        t = p != NULL ? coi_loss_operand(ctx, t, dtype, "y_true") : NULL;
        if (t != NULL && !match_ranks(ctx, "y_true", &t, "y_pred", &p))
            return false;
    }
    return ctx->error.code == CO_OK && call_own(ctx, loss, t, p, out);
}

/* Ids that have the rank of the prediction without its classes, whose number may be unknown. */
static bool
are_ids_of_rank(const co_loss *loss, const co_value *t, const co_value *p)
{
    return loss->rule->shapes == COI_LOSS_IDS && t->ndim + 1 == p->ndim && coi_last_dim(p) < 0;
}

static bool
take_values(co_context *ctx, const co_loss *loss, co_value *y_true, co_value *y_pred,
            coi_loss_values *out)
{
    const char *call = ctx->call;
    co_value   *t, *p;

    *out = (coi_loss_values){ NULL, NULL };
    if (loss->rule->shapes == COI_LOSS_ANY)
        return values_of_own(ctx, loss, y_true, y_pred, out);
    p = coi_loss_operand(ctx, y_pred, loss->options.dtype, "y_pred");
    t = p != NULL ? cast_true(ctx, loss, y_true) : NULL;
    if (t == NULL ||
        (!are_ids_of_rank(loss, t, p) && !match_ranks(ctx, "y_true", &t, "y_pred", &p)))
        return false;
    ctx->call = call;
    if (!check_shapes(ctx, loss, &t, p))
        return false;
    if (loss->rule->shapes == COI_LOSS_IDS)
        coi_loss_of_ids(ctx, &loss->options, t, p, out);
    else
        out->values = loss->rule->values(ctx, &loss->options, t, p);
    ctx->call = call;
    return ctx->error.code == CO_OK;
}

/* --- mask and weights --- */

/* Whether what is divided by is added up over the replicas of a step. */
static bool
is_shared(const co_context *ctx, const co_loss *loss)
{
    return ctx->mode.num_replicas > 1 && !ctx->mode.cross &&
           loss->options.mean_over == CO_MEAN_OVER_STEP;
}

/* Ranks of what is weighted and of weights. A scalar goes with any shape; in Keras it makes a
 * scalar of a vector of one element too, which would be another shape than that of other replicas,
 * and which is not known of a vector of unknown length. */
static bool
match_weights(co_context *ctx, const co_loss *loss, const char *name, co_value **x,
              co_value **weights)
{
    bool is_shape_known = !is_shared(ctx, loss) && coi_known_elements(*x) >= 0;

    if ((*weights)->ndim == 0 && !is_shape_known)
        return true;
    return match_ranks(ctx, name, x, "sample_weight", weights);
}

static bool
is_mean_of_values(const co_loss *loss)
{
    return loss->options.reduction == CO_REDUCTION_SUM_OVER_BATCH_SIZE ||
           loss->options.reduction == CO_REDUCTION_MEAN;
}

/* How many elements a tensor has, as a scalar of a floating dtype. */
static co_value *
count(co_context *ctx, const co_loss *loss, co_value *x)
{
    int64_t n = coi_known_elements(x);

    if (n >= 0)
        return co_cast(ctx, co_scalar_double(ctx, (double)n), loss->options.dtype);
    return co_cast(ctx, co_size(ctx, x), loss->options.dtype);
}

/* Valid values weigh as much more as there are fewer of them, so that the mean is that of the valid
 * ones: total / valid of the step, or of this replica. */
static co_value *
weight_of_valid(co_context *ctx, const co_loss *loss, co_value *mask)
{
    co_value *total = count(ctx, loss, mask), *both;
    co_value *valid = co_reduce_sum(ctx, co_cast(ctx, mask, loss->options.dtype), CO_ALL_AXES,
                                    false);

    if (is_shared(ctx, loss)) {
        both = co_all_reduce(ctx, CO_REDUCE_SUM, co_args(ctx, total, valid));
        total = co_at(ctx, both, 0);
        valid = co_at(ctx, both, 1);
    }
    return ctx->error.code == CO_OK ? coi_div_no_nan(ctx, total, valid) : NULL;
}

static co_value *
mask_as_weights(co_context *ctx, const co_loss *loss, co_value *mask)
{
    if (!is_mean_of_values(loss))
        return co_cast(ctx, mask, loss->options.dtype);
    return co_where(ctx, co_cast(ctx, mask, CO_BOOL), weight_of_valid(ctx, loss, mask),
                    co_float(ctx, 0));
}

/* The mask of the prediction and that of the loss, of which either may be missing. */
static bool
join_masks(co_context *ctx, co_value *given, co_value *own, co_value **mask)
{
    *mask = own;
    if (!coi_is_given(given))
        return true;
    given = coi_loss_operand(ctx, given, CO_DTYPE_NONE, "mask");
    if (given != NULL && own != NULL)
        given = co_logical_and(ctx, co_cast(ctx, given, CO_BOOL), own);
    *mask = given;
    return given != NULL;
}

/* Weights and mask as one, NULL where there is neither. */
static bool
take_weights(co_context *ctx, const co_loss *loss, const co_loss_call_options *given,
             co_value *own_mask, co_value **out)
{
    const char *call = ctx->call;
    co_value   *mask, *weights;

    *out = NULL;
    if (!join_masks(ctx, given->mask, own_mask, &mask))
        return false;
    if (mask != NULL)
        mask = *out = mask_as_weights(ctx, loss, mask);
    ctx->call = call;
    if (ctx->error.code != CO_OK || !coi_is_given(given->sample_weight))
        return ctx->error.code == CO_OK;
    weights = coi_loss_operand(ctx, given->sample_weight, loss->options.dtype, "sample_weight");
    if (weights != NULL && mask != NULL) {
        if (!match_weights(ctx, loss, "mask", &mask, &weights) ||
            !check_broadcast(ctx, "mask", mask, "sample_weight", weights))
            return false;
        weights = co_mul(ctx, weights, mask);
    }
    *out = weights;
    ctx->call = call;
    return weights != NULL;
}

/* --- reduction --- */

static bool
fail_scalar(co_context *ctx, const co_loss *loss)
{
    coi_fail(ctx, CO_VALUE_ERROR,
             "loss '%s' is a scalar on each of %d replicas, whose examples cannot be counted; let "
             "it have one value per example (y_true and y_pred of shape [batch, 1]), or say "
             "CO_REDUCTION_SUM or CO_MEAN_OVER_REPLICA",
             loss->name, ctx->mode.num_replicas);
    return false;
}

/* Whether values are returned as they are. In a step of several replicas a batch may be empty on
 * one of them, and its share is 0 in the shape that the others have. */
static bool
is_not_reduced(co_context *ctx, const co_loss *loss, const co_value *values)
{
    co_reduction reduction = loss->options.reduction;

    if (reduction == CO_REDUCTION_NONE)
        return true;
    if (values->ndim == 0) {
        if (is_shared(ctx, loss) && reduction != CO_REDUCTION_SUM)
            fail_scalar(ctx, loss);
        return true;
    }
    return values->ndim == 1 && values->u.tensor.dims[0] == 0 &&
           (ctx->mode.num_replicas == 1 || !is_shared(ctx, loss));
}

/* The mean of this replica, in Keras' way divided by the number of replicas. */
static co_value *
mean_of_replica(co_context *ctx, const co_loss *loss, co_value *sum, co_value *weights,
                co_value *values)
{
    int64_t n = coi_known_elements(values);

    if (weights != NULL)
        sum = ctx->error.code == CO_OK ? coi_div_no_nan(ctx, sum, weights) : NULL;
    else if (n >= 0)
        sum = co_div(ctx, sum, co_float(ctx, n > 0 ? (double)n : 1));
    else
        sum = co_div(ctx, sum, co_maximum(ctx, count(ctx, loss, values), co_float(ctx, 1)));
    if (loss->options.mean_over == CO_MEAN_OVER_REPLICA && ctx->mode.num_replicas > 1)
        sum = co_mul(ctx, sum, co_float(ctx, 1.0 / ctx->mode.num_replicas));
    return sum;
}

static co_value *
reduce(co_context *ctx, const co_loss *loss, co_value *values, co_value *weights)
{
    co_value *sum;

    if (is_not_reduced(ctx, loss, values))
        return ctx->error.code == CO_OK ? values : NULL;
    if (loss->options.reduction != CO_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT)
        weights = NULL;
    if (loss->options.reduction != CO_REDUCTION_SUM && weights == NULL && is_shared(ctx, loss))
        return coi_average(ctx, values, true);
    sum = co_reduce_sum(ctx, values, CO_ALL_AXES, false);
    if (loss->options.reduction == CO_REDUCTION_SUM)
        return sum;
    if (weights != NULL) {
        bool are_of_examples = weights->ndim == values->ndim; /* else the same on all replicas */

        weights = co_reduce_sum(ctx, weights, CO_ALL_AXES, false);
        if (are_of_examples && is_shared(ctx, loss))
            weights = co_all_reduce(ctx, CO_REDUCE_SUM, weights);
    }
    return mean_of_replica(ctx, loss, sum, weights, values);
}

static co_value *
call_loss(co_context *ctx, const co_loss *loss, co_value *y_true, co_value *y_pred,
          const co_loss_call_options *options)
{
    const char     *call = ctx->call;
    coi_loss_values made;
    co_value       *weights;

    if (!take_values(ctx, loss, y_true, y_pred, &made) ||
        !take_weights(ctx, loss, options, made.mask, &weights))
        return NULL;
    if (weights != NULL) {
        if (!match_weights(ctx, loss, "the loss", &made.values, &weights) ||
            !check_broadcast(ctx, "the loss", made.values, "sample_weight", weights))
            return NULL;
        made.values = co_mul(ctx, made.values, weights);
        ctx->call = call;
    }
    return made.values != NULL ? reduce(ctx, loss, made.values, weights) : NULL;
}

/* --- public --- */

static bool
check_call(co_context *ctx, const co_loss *loss, const co_value *y_true, const co_value *y_pred)
{
    return coi_check_object(ctx, loss, &coi_loss_class, 2, "loss") &&
           coi_check_value(ctx, y_true, 3, "y_true") && coi_check_value(ctx, y_pred, 4, "y_pred");
}

co_value *
co_loss_per_example(co_context *ctx, co_loss *loss, co_value *y_true, co_value *y_pred)
{
    coi_loss_values made;

    COI_ENTER(ctx, "loss_per_example", NULL);
    if (!check_call(ctx, loss, y_true, y_pred) || !take_values(ctx, loss, y_true, y_pred, &made))
        return NULL;
    return made.values;
}

co_value *
co_loss_call_with(co_context *ctx, co_loss *loss, co_value *y_true, co_value *y_pred,
                  const co_loss_call_options *options)
{
    co_loss_call_options all = CO_LOSS_CALL_OPTIONS_INIT;

    COI_ENTER(ctx, "loss_call", NULL);
    if (!check_call(ctx, loss, y_true, y_pred) ||
        !coi_take_options(ctx, &all, sizeof(all), options, 5) ||
        (all.sample_weight != NULL &&
         !coi_check_value(ctx, all.sample_weight, 5, "sample_weight")) ||
        (all.mask != NULL && !coi_check_value(ctx, all.mask, 5, "options->mask")))
        return NULL;
    return call_loss(ctx, loss, y_true, y_pred, &all);
}

co_value *
co_loss_call(co_context *ctx, co_loss *loss, co_value *y_true, co_value *y_pred,
             co_value *sample_weight)
{
    co_loss_call_options options = CO_LOSS_CALL_OPTIONS_INIT;

    options.sample_weight = sample_weight;
    return co_loss_call_with(ctx, loss, y_true, y_pred, &options);
}
