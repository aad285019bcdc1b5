/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of losses, as Keras has them, of public operators. In what the gradient is at a
 * corner or where a value is clipped they follow Keras too: the order of the operators matters.
 */
#include "train/loss.h"

#include <math.h>

typedef co_loss_options options;

static co_value *
number(co_context *ctx, double x)
{
    return co_float(ctx, x);
}

static co_value *
mean_of_last(co_context *ctx, co_value *x)
{
    return co_reduce_mean(ctx, x, CO_AXES(-1), false);
}

static co_value *
sum_of_last(co_context *ctx, co_value *x)
{
    return co_reduce_sum(ctx, x, CO_AXES(-1), false);
}

static co_value *
one_minus(co_context *ctx, co_value *x)
{
    return co_sub(ctx, number(ctx, 1), x);
}

/* --- regression --- */

static co_value *
mean_squared_error(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    (void)o;
    return mean_of_last(ctx, co_squared_difference(ctx, t, p));
}

static co_value *
mean_absolute_error(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    (void)o;
    return mean_of_last(ctx, co_abs(ctx, co_sub(ctx, t, p)));
}

static co_value *
mean_absolute_percentage_error(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    co_value *size = co_maximum(ctx, co_abs(ctx, t), number(ctx, COI_EPSILON));

    (void)o;
    return co_mul(ctx, number(ctx, 100),
                  mean_of_last(ctx, co_abs(ctx, co_div(ctx, co_sub(ctx, t, p), size))));
}

static co_value *
log_of_next(co_context *ctx, co_value *x)
{
    return co_log(ctx, co_add(ctx, co_maximum(ctx, x, number(ctx, COI_EPSILON)), number(ctx, 1)));
}

static co_value *
mean_squared_logarithmic_error(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    (void)o;
    return mean_of_last(ctx, co_square(ctx, co_sub(ctx, log_of_next(ctx, p), log_of_next(ctx, t))));
}

/* log((e^x + e^-x) / 2) without an exponential that overflows. Keras rounds log(2) to float32, for
 * losses of float64 too. */
static co_value *
log_cosh(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    co_value *x = co_sub(ctx, p, t);
    co_value *rest = co_softplus(ctx, co_mul(ctx, x, number(ctx, -2)));

    (void)o;
    return mean_of_last(ctx, co_sub(ctx, co_add(ctx, x, rest), number(ctx, (double)(float)log(2))));
}

static co_value *
huber(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    co_value *error = co_sub(ctx, p, t), *size = co_abs(ctx, error);
    co_value *square = co_mul(ctx, number(ctx, 0.5), co_square(ctx, error));
    co_value *line = co_sub(ctx, co_mul(ctx, number(ctx, o->delta), size),
                            number(ctx, 0.5 * o->delta * o->delta));

    return mean_of_last(ctx, co_where(ctx, co_less_equal(ctx, size, number(ctx, o->delta)), square,
                                      line));
}

/* Norms below e count as e, so that a vector of zeros has a gradient. */
static co_value *
cosine_similarity(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    const double floor = COI_EPSILON * COI_EPSILON;
    co_value    *both = co_mul(ctx, co_l2_normalize(ctx, t, CO_AXES(o->axis), floor),
                               co_l2_normalize(ctx, p, CO_AXES(o->axis), floor));

    return co_neg(ctx, co_reduce_sum(ctx, both, CO_AXES(o->axis), false));
}

/* --- margins --- */

/* Labels of 0 and 1 alone as -1 and 1. */
static co_value *
signed_labels(co_context *ctx, co_value *t)
{
    co_value *each = co_logical_or(ctx, co_equal(ctx, t, number(ctx, 0)),
                                   co_equal(ctx, t, number(ctx, 1)));
    co_value *is_binary = co_reduce_all(ctx, each, CO_ALL_AXES, false);

    return co_where(ctx, is_binary, co_sub(ctx, co_mul(ctx, number(ctx, 2), t), number(ctx, 1)), t);
}

static co_value *
margin(co_context *ctx, co_value *t, co_value *p)
{
    return co_maximum(ctx, one_minus(ctx, co_mul(ctx, signed_labels(ctx, t), p)), number(ctx, 0));
}

static co_value *
hinge(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    (void)o;
    return mean_of_last(ctx, margin(ctx, t, p));
}

static co_value *
squared_hinge(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    (void)o;
    return mean_of_last(ctx, co_square(ctx, margin(ctx, t, p)));
}

static co_value *
categorical_hinge(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    co_value *right = sum_of_last(ctx, co_mul(ctx, t, p));
    co_value *wrong = co_reduce_max(ctx, co_mul(ctx, one_minus(ctx, t), p), CO_AXES(-1), false);

    (void)o;
    return co_maximum(ctx, co_add(ctx, co_sub(ctx, wrong, right), number(ctx, 1)), number(ctx, 0));
}

/* --- probabilities --- */

static co_value *
kl_divergence(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    (void)o;
    t = co_clip_by_value(ctx, t, COI_EPSILON, 1);
    p = co_clip_by_value(ctx, p, COI_EPSILON, 1);
    return sum_of_last(ctx, co_mul(ctx, t, co_log(ctx, co_div(ctx, t, p))));
}

static co_value *
poisson(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    co_value *log_p = co_log(ctx, co_add(ctx, p, number(ctx, COI_EPSILON)));

    (void)o;
    return mean_of_last(ctx, co_sub(ctx, p, co_mul(ctx, t, log_p)));
}

static co_value *
clipped_probability(co_context *ctx, co_value *p)
{
    return co_clip_by_value(ctx, p, COI_EPSILON, 1 - COI_EPSILON);
}

/* Binary cross entropy of each probability. */
static co_value *
entropy_of_each(co_context *ctx, co_value *t, co_value *p)
{
    co_value *ones, *zeros;

    p = clipped_probability(ctx, p);
    ones = co_mul(ctx, t, co_log(ctx, p));
    zeros = co_mul(ctx, one_minus(ctx, t), co_log(ctx, one_minus(ctx, p)));
    return co_neg(ctx, co_add(ctx, ones, zeros));
}

/* Labels of two classes that are less sure. */
static co_value *
smooth_binary(co_context *ctx, const options *o, co_value *t)
{
    const double s = o->label_smoothing;

    return s == 0 ? t : co_add(ctx, co_mul(ctx, t, number(ctx, 1 - s)), number(ctx, 0.5 * s));
}

static co_value *
binary_crossentropy(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    t = smooth_binary(ctx, o, t);
    return co_reduce_mean(ctx,
                          o->from_logits ? co_sigmoid_cross_entropy(ctx, t, p)
                                         : entropy_of_each(ctx, t, p),
                          CO_AXES(o->axis), false);
}

static co_value *
binary_focal_crossentropy(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    co_value *right, *values;

    t = smooth_binary(ctx, o, t);
    if (o->from_logits)
        p = co_sigmoid(ctx, p);
    right = co_add(ctx, co_mul(ctx, t, p), co_mul(ctx, one_minus(ctx, t), one_minus(ctx, p)));
    values = co_mul(ctx, co_pow(ctx, one_minus(ctx, right), number(ctx, o->gamma)),
                    entropy_of_each(ctx, t, p));
    if (o->apply_class_balancing)
        values = co_mul(ctx,
                        co_add(ctx, co_mul(ctx, t, number(ctx, o->alpha)),
                               co_mul(ctx, one_minus(ctx, t), number(ctx, 1 - o->alpha))),
                        values);
    return co_reduce_mean(ctx, values, CO_AXES(o->axis), false);
}

/* The classes of a row, along its last axis whatever o->axis is, as in Keras. */
static co_value *
smooth_classes(co_context *ctx, const options *o, co_value *t)
{
    const double s = o->label_smoothing;
    int64_t      n;
    co_value    *each;

    if (s == 0)
        return t;
    n = coi_last_dim(t);
    if (n >= 0)
        each = number(ctx, s / (double)n);
    else
        each = co_div(ctx, number(ctx, s),
                      co_cast(ctx,
                              co_slice(ctx, co_shape(ctx, t), (int64_t[]){ t->ndim - 1 },
                                       (int64_t[]){ 1 }, 1),
                              (co_dtype)t->dtype));
    return co_add(ctx, co_mul(ctx, t, number(ctx, 1 - s)), each);
}

static co_value *
normalized_rows(co_context *ctx, const options *o, co_value *p)
{
    p = co_div(ctx, p, co_reduce_sum(ctx, p, CO_AXES(o->axis), true));
    return clipped_probability(ctx, p);
}

static co_value *
categorical_crossentropy(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    t = smooth_classes(ctx, o, t);
    if (o->from_logits)
        return co_softmax_cross_entropy(ctx, t, p, o->axis);
    p = normalized_rows(ctx, o, p);
    return co_neg(ctx, co_reduce_sum(ctx, co_mul(ctx, t, co_log(ctx, p)), CO_AXES(o->axis), false));
}

static co_value *
categorical_focal_crossentropy(co_context *ctx, const options *o, co_value *t, co_value *p)
{
    co_value *entropy, *factor;

    t = smooth_classes(ctx, o, t);
    if (o->from_logits)
        p = co_softmax(ctx, p, o->axis);
    p = normalized_rows(ctx, o, p);
    entropy = co_mul(ctx, co_neg(ctx, t), co_log(ctx, p));
    factor = co_mul(ctx, co_pow(ctx, one_minus(ctx, p), number(ctx, o->gamma)),
                    number(ctx, o->alpha));
    return co_reduce_sum(ctx, co_mul(ctx, factor, entropy), CO_AXES(o->axis), false);
}

/* --- ids of classes --- */

/* Ignored examples become class 0 with a prediction of zeros, which has no gradient. */
static void
ignore(co_context *ctx, const options *o, co_value **t, co_value **p, co_value **valid)
{
    *valid = co_not_equal(ctx, *t, co_int(ctx, o->ignore_class));
    *t = co_where(ctx, *valid, *t, co_zeros(ctx, (co_dtype)(*t)->dtype, NULL, 0));
    *p = co_where(ctx, co_expand_dims(ctx, *valid, -1), *p, number(ctx, 0));
}

void
coi_loss_of_ids(co_context *ctx, const options *o, co_value *t, co_value *p, coi_loss_values *out)
{
    co_value *valid = NULL, *values;

    if (o->has_ignore_class)
        ignore(ctx, o, &t, &p, &valid);
    if (t != NULL && t->dtype != CO_INT64)
        t = co_cast(ctx, t, CO_INT64);
    if (!o->from_logits)
        p = co_log(ctx, clipped_probability(ctx, p));
    values = co_sparse_softmax_cross_entropy(ctx, t, p);
    if (valid != NULL)
        values = co_where(ctx, valid, values, number(ctx, 0));
    *out = (coi_loss_values){ values, valid };
}

/* --- the table --- */

#define LOGITS    COI_LOSS_FROM_LOGITS
#define SMOOTHING COI_LOSS_LABEL_SMOOTHING
#define AXIS      COI_LOSS_AXIS
#define FOCAL     (COI_LOSS_ALPHA | COI_LOSS_GAMMA)

const coi_loss_rule coi_loss_rules[CO_LOSS_OWN + 1] = {
    [CO_LOSS_MEAN_SQUARED_ERROR] = { .class_name = "MeanSquaredError",
                                     .function_name = "mean_squared_error",
                                     .aliases = { "mse", "MSE" },
                                     .shapes = COI_LOSS_BROADCAST,
                                     .values = mean_squared_error },
    [CO_LOSS_MEAN_ABSOLUTE_ERROR] = { .class_name = "MeanAbsoluteError",
                                      .function_name = "mean_absolute_error",
                                      .aliases = { "mae", "MAE" },
                                      .shapes = COI_LOSS_BROADCAST,
                                      .values = mean_absolute_error },
    [CO_LOSS_MEAN_ABSOLUTE_PERCENTAGE_ERROR] = { .class_name = "MeanAbsolutePercentageError",
                                                 .function_name = "mean_absolute_percentage_error",
                                                 .aliases = { "mape", "MAPE" },
                                                 .shapes = COI_LOSS_BROADCAST,
                                                 .values = mean_absolute_percentage_error },
    [CO_LOSS_MEAN_SQUARED_LOGARITHMIC_ERROR] = { .class_name = "MeanSquaredLogarithmicError",
                                                 .function_name = "mean_squared_logarithmic_error",
                                                 .aliases = { "msle", "MSLE" },
                                                 .shapes = COI_LOSS_BROADCAST,
                                                 .values = mean_squared_logarithmic_error },
    [CO_LOSS_LOG_COSH] = { .class_name = "LogCosh",
                           .function_name = "log_cosh",
                           .shapes = COI_LOSS_BROADCAST,
                           .values = log_cosh },
    [CO_LOSS_HUBER] = { .class_name = "Huber",
                        .function_name = "huber",
                        .name = "huber_loss",
                        .options = COI_LOSS_DELTA,
                        .shapes = COI_LOSS_BROADCAST,
                        .values = huber },
    [CO_LOSS_BINARY_CROSSENTROPY] = { .class_name = "BinaryCrossentropy",
                                      .function_name = "binary_crossentropy",
                                      .aliases = { "bce", "BCE" },
                                      .options = LOGITS | SMOOTHING | AXIS,
                                      .shapes = COI_LOSS_EQUAL,
                                      .values = binary_crossentropy },
    [CO_LOSS_CATEGORICAL_CROSSENTROPY] = { .class_name = "CategoricalCrossentropy",
                                           .function_name = "categorical_crossentropy",
                                           .options = LOGITS | SMOOTHING | AXIS,
                                           .shapes = COI_LOSS_EQUAL,
                                           .values = categorical_crossentropy },
    [CO_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY] = { .class_name = "SparseCategoricalCrossentropy",
                                                  .function_name =
                                                      "sparse_categorical_crossentropy",
                                                  .options = LOGITS | AXIS | COI_LOSS_IGNORE_CLASS,
                                                  .shapes = COI_LOSS_IDS },
    [CO_LOSS_HINGE] = { .class_name = "Hinge",
                        .function_name = "hinge",
                        .shapes = COI_LOSS_BROADCAST,
                        .values = hinge },
    [CO_LOSS_SQUARED_HINGE] = { .class_name = "SquaredHinge",
                                .function_name = "squared_hinge",
                                .shapes = COI_LOSS_BROADCAST,
                                .values = squared_hinge },
    [CO_LOSS_CATEGORICAL_HINGE] = { .class_name = "CategoricalHinge",
                                    .function_name = "categorical_hinge",
                                    .shapes = COI_LOSS_BROADCAST,
                                    .values = categorical_hinge },
    [CO_LOSS_KL_DIVERGENCE] = { .class_name = "KLDivergence",
                                .function_name = "kl_divergence",
                                .aliases = { "kld", "KLD" },
                                .shapes = COI_LOSS_BROADCAST,
                                .values = kl_divergence },
    [CO_LOSS_POISSON] = { .class_name = "Poisson",
                          .function_name = "poisson",
                          .shapes = COI_LOSS_BROADCAST,
                          .values = poisson },
    [CO_LOSS_COSINE_SIMILARITY] = { .class_name = "CosineSimilarity",
                                    .function_name = "cosine_similarity",
                                    .options = AXIS,
                                    .shapes = COI_LOSS_BROADCAST,
                                    .values = cosine_similarity },
    [CO_LOSS_BINARY_FOCAL_CROSSENTROPY] = { .class_name = "BinaryFocalCrossentropy",
                                            .function_name = "binary_focal_crossentropy",
                                            .options = LOGITS | SMOOTHING | AXIS | FOCAL |
                                                       COI_LOSS_CLASS_BALANCING,
                                            .shapes = COI_LOSS_EQUAL,
                                            .values = binary_focal_crossentropy },
    [CO_LOSS_CATEGORICAL_FOCAL_CROSSENTROPY] = { .class_name = "CategoricalFocalCrossentropy",
                                                 .function_name = "categorical_focal_crossentropy",
                                                 .options = LOGITS | SMOOTHING | AXIS | FOCAL,
                                                 .shapes = COI_LOSS_BROADCAST,
                                                 .values = categorical_focal_crossentropy },
    [CO_LOSS_OWN] = { .class_name = "Loss", .function_name = "loss", .shapes = COI_LOSS_ANY },
};
