/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm: batches without rows, halves between replicas, and what it cannot be asked. */
#include "test.h"

static co_value *
vector(co_context *ctx, float a, float b)
{
    return co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), (float[]){ a, b });
}

/* As TensorFlow's kernel: no NaN gets into weights through a batch that has no rows. */
CO_TEST(gradients_of_an_empty_batch_are_zeros, "")
{
    for (int fused = 0; fused < 2; ++fused) {
        co_value *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0, 3, 2)), *outs, *loss, *gradients;
        co_value *gamma = co_variable(ctx, vector(ctx, 1, 2), NULL);
        co_value *beta = co_variable(ctx, vector(ctx, 3, 4), NULL);

        co_tape_begin(ctx);
        outs = fused == 1
                   ? co_fused_batch_norm_train(ctx, x, gamma, beta, 0.001)
                   : co_batch_norm_train(ctx, x, gamma, beta, vector(ctx, 5, 6), vector(ctx, 7, 8),
                                         &(co_batch_norm_options){ sizeof(co_batch_norm_options),
                                                                   CO_AXES(0, 1), 0.9, 0.001 });
        loss = co_reduce_sum(ctx, co_at(ctx, outs, 0), CO_ALL_AXES, false);
        gradients = co_gradient(ctx, loss, co_args(ctx, gamma, beta));
        for (size_t i = 0; i < 2; ++i)
            CO_EXPECT_BYTES(co_value_data(ctx, co_at(ctx, gradients, i)), ((float[]){ 0, 0 }),
                            2 * sizeof(float));
        CO_EXPECT_INT(co_value_dim(ctx, co_at(ctx, outs, 0), 0), 0);
        CO_EXPECT_TRUE(isnan(((const float *)co_value_data(ctx, co_at(ctx, outs, 1)))[0]));
        if (fused == 0) {
            CO_EXPECT_BYTES(co_value_data(ctx, co_at(ctx, outs, 3)), ((float[]){ 5, 6 }),
                            2 * sizeof(float));
            CO_EXPECT_BYTES(co_value_data(ctx, co_at(ctx, outs, 4)), ((float[]){ 7, 8 }),
                            2 * sizeof(float));
        }
    }
}

/* A moving statistic that broadcasts has the shape that op_infer tells, with rows and without. */
CO_TEST(moving_statistics_have_one_shape_whatever_the_batch, "")
{
    for (int rows = 0; rows < 3; ++rows) {
        co_value *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(rows, 2)), *outs;
        co_value *one = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2));

        outs = co_batch_norm_train(ctx, x, one, one, co_scalar_float(ctx, 5),
                                   co_fill(ctx, CO_SHAPE(1), co_float(ctx, 6)), NULL);
        for (size_t i = 3; i < 5; ++i) {
            CO_EXPECT_INT(co_value_ndim(ctx, co_at(ctx, outs, i)), 1);
            CO_EXPECT_INT(co_value_dim(ctx, co_at(ctx, outs, i), 0), 2);
        }
        if (rows == 0)
            CO_EXPECT_BYTES(co_value_data(ctx, co_at(ctx, outs, 3)), ((float[]){ 5, 5 }),
                            2 * sizeof(float));
    }
}

/* 3000 rows of 100 are more than float16 can hold in a sum. */
static co_value *
norm_halves(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_cast(ctx, co_fill(ctx, CO_SHAPE(3000, 2), co_float(ctx, 100)), CO_FLOAT16);
    co_value *one = co_ones(ctx, CO_FLOAT16, CO_SHAPE(2));

    (void)args;
    (void)user;
    x = co_add(ctx, x, co_cast(ctx, co_scalar_int32(ctx, co_replica_id(ctx)), CO_FLOAT16));
    return co_sync_batch_norm_train(ctx, x, one, one, one, one, NULL);
}

CO_TEST_WITH(statistics_of_halves_do_not_overflow, "", "cpus=2")
{
    co_strategy *s = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *outs = co_run(ctx, s, norm_halves, co_no_args(ctx), NULL);
    co_value    *mean = co_at(ctx, co_local_results(ctx, s, co_at(ctx, outs, 1)), 1);
    co_value    *variance = co_at(ctx, co_local_results(ctx, s, co_at(ctx, outs, 2)), 1);

    CO_EXPECT_INT(co_value_dtype(ctx, mean), CO_FLOAT16);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_max(ctx, mean, CO_ALL_AXES, false)), 100.5, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_max(ctx, variance, CO_ALL_AXES, false)), 0.25, 0);
}

/* Without other replicas there is nothing to synchronise. */
CO_TEST(alone_it_is_batch_norm, "")
{
    co_value *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 2), (float[]){ 1, 2, 3, 4, 5, 9 });
    co_value *one = vector(ctx, 1, 1), *zero = vector(ctx, 0, 0);
    co_value *a = co_sync_batch_norm_train(ctx, x, one, zero, zero, one, NULL);
    co_value *b = co_batch_norm_train(ctx, x, one, zero, zero, one,
                                      &(co_batch_norm_options){ sizeof(co_batch_norm_options),
                                                                CO_AXES(0), 0.99, 0.001 });

    for (size_t i = 0; i < 5; ++i)
        CO_EXPECT_BYTES(co_value_data(ctx, co_at(ctx, a, i)), co_value_data(ctx, co_at(ctx, b, i)),
                        (i == 0 ? 6 : 2) * sizeof(float));
    CO_EXPECT_OK(ctx);
}

CO_TEST_WITH(misuse_of_synchronised_batch_norm_is_reported, "", "cpus=2")
{
    co_batch_norm_options options = CO_BATCH_NORM_OPTIONS_INIT;
    co_strategy          *s = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value             *v = vector(ctx, 1, 1), *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 2));

    CO_EXPECT_NULL(co_sync_batch_norm_train(ctx, v, v, v, v, v, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "x has rank 1 and 0 of its axes are normalised");
    options.axes = (const int[]){ 5 };
    options.num_axes = 1;
    CO_EXPECT_NULL(co_sync_batch_norm_train(ctx, x, v, v, v, v, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "5");
    CO_EXPECT_NULL(co_sync_batch_norm_train(ctx, x, v, v, v, co_int(ctx, 1), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "moving_variance is int32");
    CO_EXPECT_NULL(co_sync_batch_norm_train(ctx, x, v, NULL, v, v, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "beta");
    options.axes = NULL;
    CO_EXPECT_NULL(co_sync_batch_norm_train(ctx, x, v, v, v, v, &options));
    CO_EXPECT_STR(co_error(ctx)->call, "sync_batch_norm_train");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "axes is NULL with 1 entry");
    CO_SCOPE(ctx, s) {
        CO_EXPECT_NULL(co_sync_batch_norm_train(ctx, x, v, v, v, v, NULL));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "in cross-replica context");
    }
}

/* One wrong number: an epsilon or a momentum. */
typedef struct wrong_number {
    bool        is_momentum;
    double      number;
    const char *message;
} wrong_number;

static co_value *
norm_with(co_context *ctx, co_value *args, void *user)
{
    const wrong_number   *wrong = user;
    co_batch_norm_options options = CO_BATCH_NORM_OPTIONS_INIT;
    co_value             *v = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2));

    (void)args;
    *(wrong->is_momentum ? &options.momentum : &options.epsilon) = wrong->number;
    return co_sync_batch_norm_train(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 2)), v, v, v, v,
                                    &options);
}

/* Every norm that takes an epsilon, by name. */
static void
expect_epsilon_refused(co_context *ctx, co_value *x, co_value *v, const wrong_number *wrong)
{
    double                e = wrong->number;
    co_batch_norm_options batch = CO_BATCH_NORM_OPTIONS_INIT;
    co_layer_norm_options layer = CO_LAYER_NORM_OPTIONS_INIT;

    batch.epsilon = layer.epsilon = e;
    CO_EXPECT_NULL(co_batch_norm_inference(ctx, x, v, v, v, v, &batch));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, wrong->message);
    CO_EXPECT_NULL(co_fused_batch_norm_train(ctx, x, v, v, e));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, wrong->message);
    CO_EXPECT_NULL(co_layer_norm(ctx, x, v, v, &layer));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, wrong->message);
    CO_EXPECT_NULL(co_l2_normalize(ctx, x, CO_AXES(-1), e));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, wrong->message);
}

/* A NaN that gets into moving averages stays there for good. */
CO_TEST_WITH(numbers_that_no_norm_works_with_are_refused, "", "cpus=2")
{
    const wrong_number wrong[] = {
        { false, (double)NAN, "epsilon is nan; it must be finite and not negative" },
        { false, (double)INFINITY, "epsilon is inf; it must be finite and not negative" },
        { false, -1e-3, "epsilon is -0.001; it must be finite and not negative" },
        { true, (double)NAN, "momentum is nan; it must be in [0, 1]" },
        { true, (double)-INFINITY, "momentum is -inf; it must be in [0, 1]" },
        { true, 1.5, "momentum is 1.5; it must be in [0, 1]" },
        { true, -0.1, "momentum is -0.1; it must be in [0, 1]" },
    };
    co_batch_norm_options options = CO_BATCH_NORM_OPTIONS_INIT;
    co_layer_norm_options layer = CO_LAYER_NORM_OPTIONS_INIT;
    co_strategy          *s = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value             *v = vector(ctx, 1, 1), *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 2));

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        const wrong_number *w = &wrong[i];

        options = (co_batch_norm_options)CO_BATCH_NORM_OPTIONS_INIT;
        *(w->is_momentum ? &options.momentum : &options.epsilon) = w->number;
        CO_EXPECT_NULL(co_batch_norm_train(ctx, x, v, v, v, v, &options));
        CO_EXPECT_STR(co_error(ctx)->call, "batch_norm_train");
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, w->message);
        CO_EXPECT_NULL(norm_with(ctx, NULL, (void *)(uintptr_t)w));
        CO_EXPECT_STR(co_error(ctx)->call, "sync_batch_norm_train");
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, w->message);
        CO_EXPECT_NULL(co_run(ctx, s, norm_with, co_no_args(ctx), (void *)(uintptr_t)w));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, w->message);
        if (!w->is_momentum)
            expect_epsilon_refused(ctx, x, v, w);
    }
    /* The limits themselves are good. */
    options.momentum = 0;
    options.epsilon = 0.001;
    co_batch_norm_train(ctx, x, v, v, v, v, &options);
    options.momentum = 1;
    options.epsilon = layer.epsilon = 0;
    co_batch_norm_train(ctx, x, v, v, v, v, &options);
    co_layer_norm(ctx, x, v, v, &layer);
    CO_EXPECT_OK(ctx);
}
