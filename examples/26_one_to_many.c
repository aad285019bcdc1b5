/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go from one device to many. One program fits a line to ten points under four strategies; a row of
 * a table is all that differs. docs/from-one-device-to-many.md walks through it. Started with
 * scripts/mpirun-here -n 2 the last strategy joins both processes; started alone it has one.
 */
#include <cohort/cohort.h>
#include <stdio.h>
#include <string.h>

typedef struct model {
    co_value     *slope, *offset;
    co_optimizer *optimizer;
} model;

/* One step on one replica: it knows nothing of the others. */
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

/* Ten points (x, 3 x + 2) in batches of four: the last batch has two. */
static co_dataset *
points(co_context *ctx)
{
    float       x[10], y[10];
    co_value   *both;
    co_dataset *data;

    for (int i = 0; i < 10; ++i) {
        x[i] = (float)i / 10;
        y[i] = 3 * x[i] + 2;
    }
    both = co_args(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(10), x),
                   co_tensor(ctx, CO_FLOAT32, CO_SHAPE(10), y));
    data = co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, both), 4, false);
    return co_dataset_with_autoshard(ctx, data, CO_AUTOSHARD_REPLICA);
}

/* The whole of training, the same for every strategy. */
static void
train(co_context *ctx, co_strategy *strategy, float weights[2])
{
    co_sgd_options sgd = CO_SGD_OPTIONS_INIT;
    co_dataset    *input = co_distribute_dataset(ctx, strategy, points(ctx), NULL);
    model          m = { NULL, NULL, NULL };

    sgd.learning_rate = 0.1;
    sgd.momentum = 0.9;
    CO_SCOPE(ctx, strategy) {
        m.slope = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        m.offset = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        m.optimizer = co_sgd(ctx, &sgd);
    }
    for (int epoch = 0; epoch < 150; ++epoch) {
        CO_EACH(ctx, batch, co_iterate(ctx, input)) {
            co_run(ctx, strategy, train_step, batch, &m);
        }
    }
    weights[0] = (float)co_item_float(ctx, m.slope);
    weights[1] = (float)co_item_float(ctx, m.offset);
}

/* The lines that change. */

static co_strategy *
one_device(co_context *ctx)
{
    return co_one_device_strategy(ctx, "/cpu:0");
}

static co_strategy *
two_devices(co_context *ctx)
{
    return co_mirrored_strategy(ctx, NULL, 0, NULL); /* all CPUs: two of them here */
}

static co_strategy *
four_replicas(co_context *ctx)
{
    co_mirrored_options options = CO_MIRRORED_OPTIONS_INIT;

    options.num_replicas = 4; /* two on each device */
    return co_mirrored_strategy(ctx, NULL, 0, &options);
}

static co_strategy *
processes(co_context *ctx)
{
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    options.num_replicas = 4; /* of all processes */
    return co_multi_worker_mirrored_strategy(ctx, &options);
}

int
main(void)
{
    static const struct {
        const char *name;
        co_strategy *(*make)(co_context *ctx);
    } rows[] = {
        { "one device", one_device },
        { "two devices", two_devices },
        { "four replicas on two devices", four_replicas },
        { "four replicas in processes", processes },
    };

    co_context *ctx = co_open("cpus=2");
    float       weights[4][2];
    bool        speaks = true; /* one process alone */

    for (size_t i = 0; i < 4; ++i)
        CO_BLOCK(ctx) {
            co_strategy *strategy = rows[i].make(ctx);

            train(ctx, strategy, weights[i]);
            speaks = co_worker_id(ctx, strategy) == 0;
        }
    for (size_t i = 0; i < 4 && speaks; ++i)
        printf("%-28s  y = %.3f x + %.3f\n", rows[i].name, weights[i][0], weights[i][1]);
    if (speaks)
        printf("four replicas, wherever they are: %s bits\n",
               memcmp(weights[2], weights[3], sizeof(weights[2])) == 0 ? "the same" : "other");
    return co_close(ctx);
}
