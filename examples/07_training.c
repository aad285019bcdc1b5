/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Train. Two replicas fit a line to ten points in batches of four, so the last batch is short and
 * one replica has more of it than the other. co_average_loss divides by the examples that a step
 * really has on all replicas, so every point counts the same.
 */
#include <cohort/cohort.h>
#include <stdio.h>

typedef struct model {
    co_value     *slope, *offset;
    co_optimizer *optimizer;
} model;

static co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *x = co_at(ctx, args, 0), *y = co_at(ctx, args, 1);
    co_value *guess, *loss;

    co_tape_begin(ctx);
    guess = co_add(ctx, co_mul(ctx, x, m->slope), m->offset);
    loss = co_average_loss(ctx, co_square(ctx, co_sub(ctx, guess, y)));
    co_minimize(ctx, m->optimizer, loss); /* gradients, their sum over replicas, the update */
    return loss;
}

/* The points (x, 3 x + 2) for x = 0, 0.1, ... 0.9. */
static co_dataset *
points(co_context *ctx)
{
    co_value *x = co_div(ctx,
                         co_range(ctx, co_int(ctx, 0), co_int(ctx, 10), co_int(ctx, 1), CO_FLOAT32),
                         co_float(ctx, 10));
    co_value *y = co_add(ctx, co_mul(ctx, x, co_float(ctx, 3)), co_float(ctx, 2));

    return co_dataset_from_tensor_slices(ctx, co_args(ctx, x, y));
}

int
main(void)
{
    co_context    *ctx = co_open("cpus=2");
    co_strategy   *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL); /* all CPUs */
    co_sgd_options sgd = CO_SGD_OPTIONS_INIT;
    co_dataset    *data = co_dataset_batch(ctx, points(ctx), 4, false);
    co_dataset    *input = co_distribute_dataset(ctx, strategy, data, NULL);
    model          m = { NULL, NULL, NULL };
    double         loss = 0;

    sgd.learning_rate = 0.1;
    sgd.momentum = 0.9;
    CO_SCOPE(ctx, strategy) {
        m.slope = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        m.offset = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        m.optimizer = co_sgd(ctx, &sgd);
    }
    for (int epoch = 0; epoch < 200 && co_ok(ctx); ++epoch)
        CO_BLOCK(ctx) {
            CO_EACH(ctx, batch, co_iterate(ctx, input)) {
                co_value *losses = co_run(ctx, strategy, train_step, batch, &m);
                co_value *sum = co_reduce(ctx, strategy, CO_REDUCE_SUM, losses, NULL, 0);

                loss = co_item_float(ctx, sum);
            }
        }
    printf("y = %.3f x + %.3f\n", co_item_float(ctx, m.slope), co_item_float(ctx, m.offset));
    printf("the loss is %s\n", loss < 1e-9 ? "below 1e-9" : "too large");
    return co_close(ctx);
}
