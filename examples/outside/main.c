/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Train under a strategy of our own. Nothing here is different from training under a built-in one:
 * the line is fitted to ten points in batches of four, and the strategy decides which replicas use
 * how many rows of each.
 */
#include "skipping.h"

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
    co_minimize(ctx, m->optimizer, loss);
    return loss;
}

/* How many rows this replica uses. */
static co_value *
count_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_scalar_int64(ctx, co_value_dim(ctx, co_at(ctx, args, 0), 0));
}

static co_dataset *
points(co_context *ctx)
{
    co_value *x = co_div(ctx,
                         co_range(ctx, co_int(ctx, 0), co_int(ctx, 10), co_int(ctx, 1), CO_FLOAT32),
                         co_float(ctx, 10));
    co_value *y = co_add(ctx, co_mul(ctx, x, co_float(ctx, 3)), co_float(ctx, 2));

    return co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, co_args(ctx, x, y)), 4, false);
}

int
main(void)
{
    co_context    *ctx = co_open("cpus=2");
    co_strategy   *strategy = skipping_strategy(ctx);
    co_dataset    *input = co_distribute_dataset(ctx, strategy, points(ctx), NULL);
    co_sgd_options sgd = CO_SGD_OPTIONS_INIT;
    model          m = { NULL, NULL, NULL };
    double         loss = 0;

    printf("%s with %d replicas\n", co_strategy_name(ctx, strategy),
           co_num_replicas_in_sync(ctx, strategy));
    CO_EACH(ctx, batch, co_iterate(ctx, input)) {
        char text[200];

        co_format(ctx, co_run(ctx, strategy, count_step, batch, NULL), text, sizeof(text));
        printf("step %ld: rows %s\n", skipping_steps(ctx, strategy), text);
    }
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

                loss = co_item_float(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM, losses, NULL, 0));
            }
        }
    printf("y = %.3f x + %.3f after %ld steps\n", co_item_float(ctx, m.slope),
           co_item_float(ctx, m.offset), skipping_steps(ctx, strategy));
    printf("the loss is %s\n", loss < 1e-9 ? "below 1e-9" : "too large");
    return (int)co_close(ctx);
}
