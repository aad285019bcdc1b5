/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention: one layer with two heads learns to predict, at every position of a sequence,
 * the previous token. Each position must attend to the position before it and must not attend to
 * later ones; only causal attention can do that here.
 */
#include <cohort/cohort.h>
#include <stdio.h>

enum { BATCH = 32, TIME = 12, TOKENS = 6, WIDTH = 16, HEADS = 2, STEPS = 150 };

typedef struct layer {
    co_value *tokens, *places;   /* what a token, and what a place, looks like */
    co_value *wq, *wk, *wv, *wo; /* to queries, keys and values; from what was found to logits */
    co_optimizer *adam;
} layer;

static co_value *
weights(co_context *ctx, int64_t rows, int64_t columns)
{
    return co_variable(ctx, co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(rows, columns), 0, 0.3),
                       NULL);
}

/* [batch, time] tokens to [batch, time, tokens] logits. */
static co_value *
predict(co_context *ctx, const layer *l, co_value *sequences)
{
    co_value *x = co_add(ctx, co_embedding_lookup(ctx, l->tokens, sequences), l->places), *found;
    co_attention_options options = CO_ATTENTION_OPTIONS_INIT;

    options.causal = true;
    found = co_attention(ctx, co_matmul(ctx, x, l->wq), co_matmul(ctx, x, l->wk),
                         co_matmul(ctx, x, l->wv), HEADS, &options);
    return co_matmul(ctx, found, l->wo);
}

/* Places 1 to TIME - 1 of x, which the first one is not asked for, or places 0 to TIME - 2. */
static co_value *
places(co_context *ctx, co_value *x, int64_t first)
{
    int64_t begin[3] = { 0, first, 0 }, size[3] = { -1, TIME - 1, -1 };

    return co_slice(ctx, x, begin, size, (size_t)co_value_ndim(ctx, x));
}

static double
train_step(co_context *ctx, const layer *l, co_value *sequences)
{
    co_value *logits, *loss;

    co_tape_begin(ctx);
    logits = places(ctx, predict(ctx, l, sequences), 1);
    loss = co_reduce_mean(ctx,
                          co_sparse_softmax_cross_entropy(ctx, places(ctx, sequences, 0), logits),
                          CO_ALL_AXES, false);
    co_minimize(ctx, l->adam, loss);
    return co_item_float(ctx, loss);
}

static co_value *
random_sequences(co_context *ctx)
{
    return co_cast(ctx, co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(BATCH, TIME), 0, TOKENS),
                   CO_INT32);
}

int
main(void)
{
    co_context     *ctx = co_open(NULL);
    co_adam_options options = CO_ADAM_OPTIONS_INIT;
    layer           l;
    double          loss = 0;
    co_value       *unseen, *right;

    co_set_seed(ctx, 7);
    options.learning_rate = 0.02;
    l = (layer){ weights(ctx, TOKENS, WIDTH), weights(ctx, TIME, WIDTH),
                 weights(ctx, WIDTH, WIDTH),  weights(ctx, WIDTH, WIDTH),
                 weights(ctx, WIDTH, WIDTH),  weights(ctx, WIDTH, TOKENS),
                 co_adam(ctx, &options) };
    for (int step = 0; step < STEPS && co_ok(ctx); ++step)
        CO_BLOCK(ctx) {
            loss = train_step(ctx, &l, random_sequences(ctx));
            if (step == 0)
                printf("at first %.1f, which is guessing\n", loss);
        }
    printf("after %d steps below 0.1: %s\n", STEPS, loss < 0.1 ? "yes" : "no");

    unseen = random_sequences(ctx);
    right = co_equal(ctx, co_argmax(ctx, places(ctx, predict(ctx, &l, unseen), 1), -1, CO_INT32),
                     places(ctx, unseen, 0));
    printf("%.0f of %d right\n",
           co_item_float(ctx,
                         co_reduce_sum(ctx, co_cast(ctx, right, CO_FLOAT32), CO_ALL_AXES, false)),
           BATCH * (TIME - 1));
    return co_close(ctx);
}
