/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of `cohort-bench choose` for GEMM: shapes on both sides of every limit of
 * src/ops/kernels/drivers/kernel_selection.c, with the packing that the library selects and with
 * each one that the setting `gemm` forces. A row that misses its goal has a wrong limit.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 200, MAX_REPEAT = 64 };

#define SECONDS   0.3
#define SAMPLE_US 40.0
/* Times the fastest way, at most: limits cannot be right to the last per cent. */
#define MARGIN 1.1

static const char *const ways[] = { "auto", "plain", "a", "b", "both", "transposed" };
enum { NUM_WAYS = sizeof(ways) / sizeof(ways[0]) };

typedef struct shape {
    int         m, n, k;
    const char *transposes; /* tn: A is given transposed */
} shape;

static const shape shapes[] = {
    /* few columns: transposed or not, by the number of empty lanes and by whether A must be
       transposed */
    { 256, 1, 256, "nn" },
    { 256, 4, 64, "nn" },
    { 256, 8, 64, "nn" },
    { 128, 10, 512, "nn" },
    { 256, 12, 256, "nn" },
    { 256, 20, 256, "nn" },
    { 256, 10, 64, "tn" },
    { 256, 14, 256, "tn" },
    { 256, 24, 64, "tn" },
    { 512, 40, 64, "tn" },
    { 20, 10, 256, "nn" },
    { 256, 10, 4, "nn" },
    { 256, 10, 16, "nn" },
    /* few rows: B in place or packed */
    { 16, 512, 256, "nn" },
    { 24, 512, 256, "nn" },
    { 36, 512, 256, "nn" },
    { 128, 512, 256, "nn" },
    { 128, 1024, 512, "nn" },
    /* few depths, few elements */
    { 128, 512, 12, "nn" },
    { 128, 512, 24, "nn" },
    { 64, 48, 64, "nn" },
    { 128, 128, 128, "nn" },
    /* A by columns: in place or packed */
    { 24, 512, 256, "tn" },
    { 64, 64, 256, "tn" },
    { 64, 96, 256, "tn" },
    { 128, 512, 512, "tn" },
};

typedef struct contestant {
    co_context   *ctx;
    co_value     *a, *b;
    bench_samples times;
} contestant;

static void
prepare(contestant *c, const shape *s)
{
    bool    transpose_a = s->transposes[0] == 't';
    int64_t a[] = { transpose_a ? s->k : s->m, transpose_a ? s->m : s->k }, b[] = { s->k, s->n };

    co_block_begin(c->ctx);
    c->a = co_random_uniform(c->ctx, CO_FLOAT32, a, 2, -1, 1);
    c->b = co_random_uniform(c->ctx, CO_FLOAT32, b, 2, -1, 1);
    c->times.n = 0;
    bench_check(c->ctx);
}

static double
time_of(const contestant *c, const shape *s, int repeat)
{
    double begin = bench_now();

    for (int i = 0; i < repeat; ++i)
        CO_BLOCK(c->ctx) {
            co_matmul_transposed(c->ctx, c->a, c->b, s->transposes[0] == 't',
                                 s->transposes[1] == 't');
        }
    return (bench_now() - begin) / repeat * 1e6;
}

static void
compare(contestant all[NUM_WAYS], const shape *s)
{
    char   name[64], limit_is[64];
    double fastest = INFINITY;
    int    repeat, best = 1;

    for (int i = 0; i < NUM_WAYS; ++i)
        prepare(&all[i], s);
    repeat = (int)fmin(MAX_REPEAT, 1 + SAMPLE_US / time_of(&all[0], s, 1));
    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);)
        for (int i = 0; i < NUM_WAYS; ++i)
            bench_add(&all[i].times, time_of(&all[i], s, repeat));
    for (int i = 1; i < NUM_WAYS; ++i)
        if (bench_best(&all[i].times) < fastest) {
            best = i;
            fastest = bench_best(&all[i].times);
        }
    snprintf(name, sizeof(name), "choose_matmul_%dx%dx%d_%s", s->m, s->n, s->k, s->transposes);
    snprintf(limit_is, sizeof(limit_is), "gemm=%s", ways[best]);
    bench_report_samples(name, "us", &all[0].times, fastest, limit_is, MARGIN * fastest);
    for (int i = 0; i < NUM_WAYS; ++i) {
        bench_check(all[i].ctx);
        co_block_end(all[i].ctx);
    }
}

void
bench_choose_products(void)
{
    static contestant all[NUM_WAYS];
    char              settings[64];

    for (int i = 0; i < NUM_WAYS; ++i) {
        snprintf(settings, sizeof(settings), "threads=1, gemm=%s", ways[i]);
        all[i].ctx = co_open(settings);
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i)
        compare(all, &shapes[i]);
    for (int i = 0; i < NUM_WAYS; ++i)
        co_close(all[i].ctx);
}
