/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention, forward alone and with its gradients, beside its GEMMs at the best rate of this
 * run: two forward and four back, of the keys that queries see. Softmax and the GEMMs that the
 * gradient repeats are not in that limit.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>

enum { ROUNDS = 300, PRODUCTS_FORWARD = 2, PRODUCTS_IN_ALL = 6 };

#define SECONDS 0.6

typedef struct size {
    int64_t batch, time, heads, depth;
} size;

typedef struct operands {
    co_value *q, *k, *v, *g;
    int64_t   heads;
} operands;

static double
time_attention(co_context *ctx, const operands *o, bool with_gradients)
{
    co_attention_options causal = CO_ATTENTION_OPTIONS_INIT;
    co_gradient_options  options = CO_GRADIENT_OPTIONS_INIT;
    co_value            *in[] = { o->q, o->k, o->v };
    double               begin = bench_now();

    causal.causal = true;
    options.output_gradients = o->g;
    CO_BLOCK(ctx) {
        if (with_gradients) {
            co_tape_begin(ctx);
            co_watch(ctx, co_tuple(ctx, in, 3));
        }
        co_value *y = co_attention(ctx, o->q, o->k, o->v, o->heads, &causal);

        if (with_gradients)
            co_gradient_with(ctx, y, co_tuple(ctx, in, 3), &options);
    }
    return (bench_now() - begin) * 1e6;
}

static void
measure(co_context *ctx, const size *s, const bench_pace *pace)
{
    int64_t  dims[] = { s->batch, s->time, s->heads * s->depth };
    double   seen = (double)(s->time * (s->time + 1)) / 2;
    double   product = (double)(s->batch * s->heads * s->depth) * seen; /* multiply-adds */
    operands o = { co_random_uniform(ctx, CO_FLOAT32, dims, 3, -1, 1),
                   co_random_uniform(ctx, CO_FLOAT32, dims, 3, -1, 1),
                   co_random_uniform(ctx, CO_FLOAT32, dims, 3, -1, 1),
                   co_random_uniform(ctx, CO_FLOAT32, dims, 3, -1, 1), s->heads };

    for (int with_gradients = 0; with_gradients < 2; ++with_gradients) {
        bench_samples samples = { .n = 0 }, paces = { .n = 0 };
        int           products = with_gradients == 1 ? PRODUCTS_IN_ALL : PRODUCTS_FORWARD;
        char          name[64];

        for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);) {
            bench_add(&samples, time_attention(ctx, &o, with_gradients == 1));
            bench_pace_add(pace, &paces);
        }
        bench_check(ctx);
        snprintf(name, sizeof(name), "attention_%lldx%lldx%lldx%lld%s", (long long)s->batch,
                 (long long)s->time, (long long)s->heads, (long long)s->depth,
                 with_gradients == 1 ? "_gradients" : "");
        bench_report_samples(name, "us", &samples, product * products / bench_pace_rate(&paces),
                             "its products at the best rate", (double)NAN);
    }
}

/* That of a small model of language, and longer ones. */
void
bench_attention(void)
{
    static const size sizes[] = { { 8, 64, 4, 32 }, { 2, 256, 4, 64 }, { 1, 1024, 4, 64 } };
    int               threads = bench_threads();
    co_context       *ctx = bench_open(threads);
    bench_pace       *pace = bench_pace_begin(ctx, threads);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i)
        CO_BLOCK(ctx) {
            measure(ctx, &sizes[i], pace);
        }
    bench_pace_end(pace);
    co_close(ctx);
}
