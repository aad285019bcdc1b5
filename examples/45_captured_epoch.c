/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole epoch as one captured function: a loop over a distributed dataset that runs a step for
 * each batch. The dataset is an argument, so the same program trains on the second dataset, whose
 * elements have the same types.
 */
#include <cohort/cohort.h>
#include <stdio.h>

typedef struct model {
    co_strategy  *strategy;
    co_value     *w;
    co_optimizer *optimizer;
} model;

/* Fits y = w x to y = 3 x. */
static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *x = co_at(ctx, args, 0), *loss;

    co_tape_begin(ctx);
    loss = co_average_loss(ctx, co_square(ctx, co_sub(ctx, co_mul(ctx, x, m->w),
                                                      co_mul(ctx, x, co_int(ctx, 3)))));
    co_minimize(ctx, m->optimizer, loss);
    return loss;
}

/* The element and the state so far; the next state. */
static co_value *
add_step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *losses = co_run(ctx, m->strategy, step, co_args(ctx, co_at(ctx, args, 0)), m);
    co_value *loss = co_reduce(ctx, m->strategy, CO_REDUCE_SUM, losses, NULL, 0);

    return co_args(ctx, co_add(ctx, co_at(ctx, args, 1), loss),
                   co_add(ctx, co_at(ctx, args, 2), co_int(ctx, 1)));
}

static co_value *
epoch(co_context *ctx, co_value *args, void *user)
{
    return co_for_each(ctx, co_at(ctx, args, 0),
                       co_args(ctx, co_scalar_float(ctx, 0), co_scalar_int32(ctx, 0)), add_step,
                       user);
}

static co_value *
batches(co_context *ctx, co_strategy *strategy, const float *data, int64_t n)
{
    co_dataset *dataset = co_dataset_from_tensor_slices(ctx,
                                                        co_tensor(ctx, CO_FLOAT32, &n, 1, data));

    dataset = co_dataset_batch(ctx, dataset, 4, false);
    return co_dataset_value(ctx, co_distribute_dataset(ctx, strategy, dataset, NULL));
}

int
main(void)
{
    static const float data[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    co_context        *ctx = co_open("cpus=2");
    model              m = { co_mirrored_strategy(ctx, NULL, 0, NULL), NULL, NULL };
    co_sgd_options     sgd = CO_SGD_OPTIONS_INIT;
    co_function       *f = co_function_of(ctx, epoch, &m, NULL);
    co_value *inputs[2] = { batches(ctx, m.strategy, data, 10), batches(ctx, m.strategy, data, 6) };
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    sgd.learning_rate = 0.003;
    CO_SCOPE(ctx, m.strategy) {
        m.w = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        m.optimizer = co_sgd(ctx, &sgd);
    }
    for (int i = 0; i < 4; ++i) {
        co_value *sum = co_call(ctx, f, co_args(ctx, inputs[i % 2]));

        printf("%lld steps, loss %.3f, w = %.4f\n", (long long)co_item_int(ctx, co_at(ctx, sum, 1)),
               co_item_float(ctx, co_at(ctx, sum, 0)), co_item_float(ctx, m.w));
    }
    co_function_get_stats(ctx, f, &stats);
    printf("epoch itself was called %lld time\n", (long long)stats.captures);
    return co_close(ctx);
}
