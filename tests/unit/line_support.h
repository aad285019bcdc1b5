/* SPDX-License-Identifier: Apache-2.0 */
/* A small training that tests of shares have in common: a line through 23 points of a parabola. */
#ifndef COHORT_LINE_SUPPORT_H
#define COHORT_LINE_SUPPORT_H

#include "test.h"

typedef struct line_model {
    co_value     *slope, *offset;
    co_optimizer *optimizer;
} line_model;

static inline co_value *
line_step(co_context *ctx, co_value *args, void *user)
{
    line_model *m = user;
    co_value   *y = co_at(ctx, args, 1), *guess, *loss;

    co_tape_begin(ctx);
    guess = co_add(ctx, co_mul(ctx, co_at(ctx, args, 0), m->slope), m->offset);
    loss = co_average_loss(ctx, co_square(ctx, co_sub(ctx, guess, y)));
    co_minimize(ctx, m->optimizer, loss);
    return loss;
}

static inline co_dataset *
line_input(co_context *ctx, co_strategy *s, co_autoshard policy)
{
    co_value   *n = co_int(ctx, 23);
    co_value   *i = co_range(ctx, co_int(ctx, 0), n, co_int(ctx, 1), CO_FLOAT32);
    co_value   *x = co_div(ctx, i, n);
    co_value   *y = co_add(ctx, co_square(ctx, x), co_float(ctx, 2));
    co_dataset *points = co_dataset_from_tensor_slices(ctx, co_args(ctx, x, y));

    points = co_dataset_with_autoshard(ctx, co_dataset_batch(ctx, points, 7, false), policy);
    return co_distribute_dataset(ctx, s, points, NULL);
}

/* Twenty epochs in batches of 7, the last of 2: the last loss, slope and offset. */
static inline void
line_train(co_context *ctx, co_strategy *s, co_autoshard policy, float out[3])
{
    co_dataset *input = line_input(ctx, s, policy);
    line_model  m = { NULL, NULL, NULL };

    CO_SCOPE(ctx, s) {
        m.slope = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        m.offset = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        m.optimizer = co_sgd(ctx, NULL);
    }
    for (int epoch = 0; epoch < 20; ++epoch)
        CO_EACH(ctx, batch, co_iterate(ctx, input)) {
            co_value *losses = co_run(ctx, s, line_step, batch, &m);

            out[0] = (float)co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, losses, NULL, 0));
        }
    out[1] = (float)co_item_float(ctx, m.slope);
    out[2] = (float)co_item_float(ctx, m.offset);
}

#endif
