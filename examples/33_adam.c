/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adam, with decay as in AdamW, on a table of embeddings. Each replica looks two rows up; the
 * gradient of a table is made of the rows that were read, on all replicas, and rows that nobody
 * reads only decay.
 */
#include <cohort/cohort.h>
#include <stdio.h>

enum { WORDS = 4, WIDTH = 2, STEPS = 400 };

typedef struct words {
    co_value     *table;
    co_optimizer *adam;
} words;

/* Pulls rows 0 and 1, on the second replica 1 and 2, towards (3, -1). */
static co_value *
pull(co_context *ctx, co_value *args, void *user)
{
    words    *w = user;
    int64_t   first = co_replica_id(ctx);
    co_value *which = co_tensor(ctx, CO_INT64, CO_SHAPE(2), (int64_t[]){ first, first + 1 });
    co_value *target = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(WIDTH), (float[]){ 3, -1 });
    co_value *rows;

    (void)args;
    co_tape_begin(ctx);
    rows = co_gather(ctx, w->table, which, 0, 0);
    co_minimize(ctx, w->adam,
                co_reduce_sum(ctx, co_square(ctx, co_sub(ctx, rows, target)), CO_ALL_AXES, false));
    return NULL;
}

int
main(void)
{
    co_context     *ctx = co_open("cpus=2");
    co_strategy    *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL); /* all CPUs */
    co_adam_options options = CO_ADAM_OPTIONS_INIT;
    words           w = { NULL, NULL };
    const float    *at;

    options.learning_rate = 0.05;
    options.weight_decay = 0.01;
    w.adam = co_adam(ctx, &options);
    CO_SCOPE(ctx, strategy) {
        w.table = co_variable(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(WORDS, WIDTH)), NULL);
    }
    for (int step = 0; step < STEPS && co_ok(ctx); ++step)
        CO_BLOCK(ctx) {
            co_run(ctx, strategy, pull, co_no_args(ctx), &w);
        }
    at = co_value_data(ctx, co_variable_read(ctx, w.table));
    for (int i = 0; at != NULL && i < WORDS; ++i)
        printf("row %d: %.1f %.1f\n", i, (double)at[WIDTH * i], (double)at[WIDTH * i + 1]);
    printf("%lld updates\n", (long long)co_optimizer_iterations(ctx, w.adam));
    return co_close(ctx);
}
