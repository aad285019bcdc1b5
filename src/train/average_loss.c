/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses averaged over the examples that a step really has, on all replicas, and the two averages
 * of tf.nn.
 */
#include <cohort/losses.h>
#include <cohort/runtime_checks.h>

#include "ops/engine/call_recording.h"
#include "ops/engine/composite.h"
#include "strategy/strategy_state.h"
#include "train/loss.h"

/* --- the number of examples of a step --- */

/* Numbers of all replicas, added up. */
static int64_t
count_together(co_context *ctx, int64_t mine)
{
    co_value *all = co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_int64(ctx, mine));

    return all != NULL ? co_item_int(ctx, all) : 0;
}

/*
 * Examples of the whole step: known from the input, or counted together now. Where the input has
 * another number of examples than there are losses, dividing by its number would be silently wrong,
 * and one replica cannot know what the others see.
 */
static int64_t
step_examples(co_context *ctx, const co_value *losses)
{
    coi_examples input = coi_examples_of(ctx);
    int64_t      mine = losses->u.tensor.dims[0];

    if (ctx->mode.num_replicas == 1)
        return mine;
    if (input.of_step >= 0 && input.of_replica >= 0 && input.of_replica != mine) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "average_loss is given %lld loss%s, but the input has %lld example%s on this "
                 "replica; give one loss per example (co_reduce_mean over the other axes), or say "
                 "before how many losses all replicas have together: co_set_step_examples",
                 (long long)mine, COI_ES(mine), (long long)input.of_replica,
                 COI_S(input.of_replica));
        return 0;
    }
    if (input.of_step >= 0)
        return input.of_step;
    return count_together(ctx, mine);
}

/* Values of the whole step. Examples may have different numbers of values on different replicas,
 * such as padded rows. */
static int64_t
step_values(co_context *ctx, const co_value *values)
{
    if (ctx->mode.num_replicas == 1)
        return values->u.tensor.num_elements;
    return values->ndim == 1 ? step_examples(ctx, values)
                             : count_together(ctx, values->u.tensor.num_elements);
}

static co_value *
average_tensor(co_context *ctx, co_value *values, bool by_value)
{
    int64_t n = by_value ? step_values(ctx, values) : step_examples(ctx, values);

    if (ctx->error.code != CO_OK)
        return NULL;
    return co_div(ctx, co_reduce_sum(ctx, values, CO_ALL_AXES, false),
                  co_float(ctx, n > 0 ? (double)n : 1.0));
}

/* --- while a function is captured --- */

typedef struct average_attrs {
    bool by_value;
} average_attrs;

/* While a function is captured the examples are not known: each call of it counts its own. The tape
 * of types sees the steps that it has with one replica. */
static co_value *
replay_average(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)num_in;
    return ((const average_attrs *)attrs)->by_value ? coi_average(ctx, in[0], true)
                                                    : co_average_loss(ctx, in[0]);
}

/* Its divisor is a number of the host, and so is what it checks. */
static void
examples_key(co_context *ctx, coi_plan_key *key)
{
    coi_examples examples = coi_examples_of(ctx);

    if (ctx->mode.num_replicas > 1)
        *key = (coi_plan_key){ { examples.of_step, examples.of_replica } };
}

const coi_op coi_op_average_loss = {
    COI_RECORDED("average_loss", "The mean of losses over the examples of a step; co_average_loss.",
                 replay_average, CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS,
                 CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS),
    .attrs_rule.size = COI_ATTRS_SIZE(average_attrs),
    .is_planned = true,
    .plan_key = examples_key,
};

static co_value *
capture_average(co_context *ctx, co_value *losses, bool by_value)
{
    const struct coi_type_recorder *recorder = ctx->type_recorder;
    co_value                       *type;

    ctx->type_recorder = NULL;
    type = co_div(ctx, co_reduce_sum(ctx, losses, CO_ALL_AXES, false), co_float(ctx, 1));
    ctx->type_recorder = recorder;
    return coi_record_call(ctx, &coi_op_average_loss, &(average_attrs){ by_value }, &losses, 1,
                           type);
}

co_value *
coi_average(co_context *ctx, co_value *values, bool by_value)
{
    return coi_is_capturing(ctx) ? capture_average(ctx, values, by_value)
                                 : average_tensor(ctx, values, by_value);
}

/* --- co_average_loss --- */

/* Whether losses, a tensor or a symbolic one, can be averaged. */
static bool
check_losses(co_context *ctx, const co_value *losses)
{
    if (!coi_dtypes[losses->dtype].floating)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "losses are %s; they must be of a floating dtype",
                 co_dtype_name((co_dtype)losses->dtype));
    else if (losses->ndim == 0) /* with one replica a mean would be accepted, with several it would
                                   be a mean of means */
        coi_fail(ctx, CO_VALUE_ERROR,
                 "average_loss is given a scalar, whose examples cannot be counted; give one loss "
                 "per example, which it averages itself");
    else if (ctx->mode.cross)
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "average_loss is called in cross-replica context; call it in the step");
    return ctx->error.code == CO_OK;
}

co_value *
co_average_loss(co_context *ctx, co_value *per_example_loss)
{
    co_value *losses;

    COI_ENTER(ctx, "average_loss", NULL);
    if (!coi_check_value(ctx, per_example_loss, 2, "per_example_loss"))
        return NULL;
    if (coi_is_capturing(ctx))
        return capture_average(ctx, per_example_loss, false);
    losses = coi_as_tensor(ctx, per_example_loss, CO_DTYPE_NONE);
    if (losses == NULL || (losses = coi_own(ctx, losses)) == NULL || !check_losses(ctx, losses))
        return NULL;
    return average_tensor(ctx, losses, false);
}

static bool
fail_weights(co_context *ctx, const co_value *losses, const co_value *weights)
{
    char a[COI_SHAPE_TEXT], b[COI_SHAPE_TEXT];

    coi_fail(
        ctx, CO_INVALID_ARGUMENT,
        "sample_weight has shape %s and per_example_loss %s; give one weight per example, or a "
        "scalar where they are not the divisor",
        coi_shape_text(weights->u.tensor.dims, weights->ndim, a),
        coi_shape_text(losses->u.tensor.dims, losses->ndim, b));
    return false;
}

/* Weights [b], or [b, 1], in the rank of losses; scalars stay. */
static bool
fit_weights(co_context *ctx, const co_value *losses, co_value **weights, bool by_weight)
{
    co_value *w = *weights;

    if (w->ndim == 2 && coi_last_dim(w) == 1)
        w = coi_drop_last_dim(ctx, w);
    if (w == NULL)
        return false;
    if (w->ndim == 0 && !by_weight)
        return true;
    if (w->ndim != 1 || (w->u.tensor.dims[0] >= 0 && losses->u.tensor.dims[0] >= 0 &&
                         w->u.tensor.dims[0] != losses->u.tensor.dims[0]))
        return fail_weights(ctx, losses, w);
    while (w != NULL && w->ndim < losses->ndim)
        w = coi_add_last_dim(ctx, w);
    *weights = w;
    return w != NULL;
}

co_value *
co_average_loss_with(co_context *ctx, co_value *per_example_loss,
                     const co_average_loss_options *options)
{
    co_average_loss_options all = CO_AVERAGE_LOSS_OPTIONS_INIT;
    co_value               *losses, *weights;

    COI_ENTER(ctx, "average_loss", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 3) ||
        !coi_check_value(ctx, per_example_loss, 2, "per_example_loss") ||
        (all.sample_weight != NULL &&
         !coi_check_value(ctx, all.sample_weight, 3, "options->sample_weight")))
        return NULL;
    if (!coi_is_given(all.sample_weight))
        return co_average_loss(ctx, per_example_loss);
    losses = coi_loss_operand(ctx, per_example_loss, CO_DTYPE_NONE, "per_example_loss");
    if (losses == NULL || !check_losses(ctx, losses))
        return NULL;
    weights = coi_loss_operand(ctx, all.sample_weight, (co_dtype)losses->dtype, "sample_weight");
    if (weights == NULL || !fit_weights(ctx, losses, &weights, all.by_weight))
        return NULL;
    losses = co_mul(ctx, losses, weights);
    if (!all.by_weight)
        return co_average_loss(ctx, losses);
    weights = co_reduce_sum(ctx, weights, CO_ALL_AXES, false);
    if (ctx->mode.num_replicas > 1)
        weights = co_all_reduce(ctx, CO_REDUCE_SUM, weights);
    losses = co_reduce_sum(ctx, losses, CO_ALL_AXES, false);
    return ctx->error.code == CO_OK ? coi_div_no_nan(ctx, losses, weights) : NULL;
}

/* --- tf.nn --- */

/* The dtype of a quotient: integers up to 16 bits give float32, larger ones float64. */
static co_dtype
quotient_dtype(co_dtype dtype)
{
    if (coi_dtypes[dtype].floating)
        return dtype;
    return coi_dtypes[dtype].size <= 2 ? CO_FLOAT32 : CO_FLOAT64;
}

static co_value *
sum_as_quotient(co_context *ctx, co_value *x)
{
    co_dtype dtype = quotient_dtype((co_dtype)x->dtype);

    x = co_reduce_sum(ctx, x, CO_ALL_AXES, false);
    return x != NULL && x->dtype != dtype ? co_cast(ctx, x, dtype) : x;
}

/* The product is taken in float32, as in TensorFlow. */
static co_value *
weighted(co_context *ctx, co_value *losses, co_value *weights)
{
    co_dtype  dtype = (co_dtype)losses->dtype;
    co_value *w = coi_loss_operand(ctx, weights, CO_FLOAT32, "sample_weight");

    if (w == NULL)
        return NULL;
    if (w->ndim == losses->ndim + 1)
        w = coi_drop_last_dim(ctx, w);
    else if (w->ndim > 0 && w->ndim + 1 == losses->ndim)
        w = coi_add_last_dim(ctx, w);
    losses = co_mul(ctx, coi_loss_operand(ctx, losses, CO_FLOAT32, "per_example_loss"), w);
    return losses != NULL && dtype != CO_FLOAT32 ? co_cast(ctx, losses, dtype) : losses;
}

/* The length of the first axis on all replicas, if each has as many as this one. */
static co_value *
batch_of_all(co_context *ctx, co_value *losses)
{
    int64_t rows = losses->u.tensor.dims[0];

    if (ctx->mode.cross) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "compute_average_loss is called in cross-replica context without a "
                 "global_batch_size; give it one, or call it in the step");
        return NULL;
    }
    if (rows >= 0)
        return co_int(ctx, rows * ctx->mode.num_replicas);
    rows = ctx->mode.num_replicas;
    losses = co_reshape(ctx,
                        co_slice(ctx, co_shape(ctx, losses), (int64_t[]){ 0 }, (int64_t[]){ 1 }, 1),
                        NULL, 0);
    return co_mul(ctx, losses, co_int(ctx, rows));
}

/* A batch size of the user: a host number, or a tensor. */
static bool
check_batch_size(co_context *ctx, co_value *size)
{
    const char *call = ctx->call;
    co_dtype    dtype = co_value_dtype(ctx, size);
    int         ndim = co_value_ndim(ctx, size);

    ctx->call = call;
    if (ctx->error.code != CO_OK)
        return false;
    if (ndim != 0)
        coi_fail(ctx, CO_VALUE_ERROR, "global_batch_size has rank %d; it must be a scalar", ndim);
    else if (!co_dtype_is_integer(dtype))
        coi_fail(ctx, CO_TYPE_ERROR, "global_batch_size is %s; it must be an integer",
                 co_dtype_name(dtype));
    else if (size->kind == CO_KIND_SYMBOLIC) {
        co_assert_greater(ctx, co_cast(ctx, size, CO_INT64), co_int(ctx, -1),
                          "global_batch_size must not be negative");
        ctx->call = call;
    } else if (co_item_int(ctx, size) < 0)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "global_batch_size is %lld; it must not be negative (0 gives 0)",
                 (long long)co_item_int(ctx, size));
    return ctx->error.code == CO_OK;
}

/* sum / size, 0 where the size is. */
static co_value *
divided(co_context *ctx, co_value *sum, co_value *size)
{
    if (sum == NULL || size == NULL)
        return NULL;
    size = co_cast(ctx, size, (co_dtype)sum->dtype);
    return size != NULL ? coi_div_no_nan(ctx, sum, size) : NULL;
}

co_value *
co_compute_average_loss(co_context *ctx, co_value *per_example_loss, co_value *sample_weight,
                        co_value *global_batch_size)
{
    co_value *losses;

    COI_ENTER(ctx, "compute_average_loss", NULL);
    if (!coi_check_value(ctx, per_example_loss, 2, "per_example_loss") ||
        (sample_weight != NULL && !coi_check_value(ctx, sample_weight, 3, "sample_weight")) ||
        (global_batch_size != NULL &&
         !coi_check_value(ctx, global_batch_size, 4, "global_batch_size")))
        return NULL;
    losses = coi_loss_operand(ctx, per_example_loss, CO_DTYPE_NONE, "per_example_loss");
    if (losses == NULL)
        return NULL;
    if (losses->ndim == 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "compute_average_loss is given a scalar; give at least one loss per example");
        return NULL;
    }
    if (coi_is_given(sample_weight) && (losses = weighted(ctx, losses, sample_weight)) == NULL)
        return NULL;
    ctx->call = "compute_average_loss";
    if (!coi_is_given(global_batch_size))
        global_batch_size = batch_of_all(ctx, losses);
    else if (!check_batch_size(ctx, global_batch_size))
        return NULL;
    return divided(ctx, sum_as_quotient(ctx, losses), global_batch_size);
}

co_value *
co_scale_regularization_loss(co_context *ctx, co_value *regularization_loss)
{
    co_value *loss, *sum;

    COI_ENTER(ctx, "scale_regularization_loss", NULL);
    if (!coi_check_value(ctx, regularization_loss, 2, "regularization_loss"))
        return NULL;
    if (ctx->mode.cross) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "scale_regularization_loss is called in cross-replica context; call it in the "
                 "step");
        return NULL;
    }
    loss = coi_loss_operand(ctx, regularization_loss, CO_DTYPE_NONE, "regularization_loss");
    sum = loss != NULL ? sum_as_quotient(ctx, loss) : NULL;
    return sum != NULL ? co_div(ctx, sum, co_float(ctx, ctx->mode.num_replicas)) : NULL;
}
