/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tool behind src/ops/kernels/drivers/kernel_selection.c and parallel.h: times all kernels for
 * a convolution, by shape (GEMM is in select_gemm.c), and prints the fastest one and the one that
 * the library selects. A row that misses its goal has a wrong limit in the table. Times are
 * processor time, which other programs disturb least. choose_team_*: work just above each limit of
 * parallel.h with two threads beside one, by the clock; on a machine that has two free cores, one
 * that is over its goal has a limit that is too low.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 24, NUM_WAYS = 3 };

#define SECONDS 0.5
#define MARGIN                                                                                     \
    1.1 /* times the faster kernel, at most: a table cannot be right to the last per cent */

typedef struct shape {
    int64_t n, h, w, c, k, oc, stride;
} shape;

/* Both sides of every limit: few and many channels, filters of 1, 3 and 5, small and large work. */
static const shape shapes[] = {
    { 1, 8, 8, 8, 3, 8, 1 },      { 8, 14, 14, 8, 3, 8, 1 },     { 64, 28, 28, 1, 3, 32, 1 },
    { 32, 32, 32, 3, 3, 16, 1 },  { 8, 64, 64, 3, 5, 32, 2 },    { 64, 28, 28, 4, 5, 16, 1 },
    { 16, 28, 28, 8, 3, 16, 1 },  { 64, 14, 14, 32, 3, 64, 1 },  { 16, 14, 14, 64, 3, 64, 1 },
    { 4, 28, 28, 64, 3, 128, 1 }, { 16, 14, 14, 64, 1, 256, 1 }, { 8, 28, 28, 32, 3, 64, 2 },
    { 2, 7, 7, 256, 3, 256, 1 },
};

static const char *const ops[NUM_WAYS] = { "conv2d", "conv2d_backprop_input",
                                           "conv2d_backprop_filter" };

static double
thread_us(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

static co_value *
ints(co_context *ctx, const int64_t *at, size_t n)
{
    co_value *items[4];

    for (size_t i = 0; i < n; ++i)
        items[i] = co_int(ctx, at[i]);
    return co_list(ctx, items, n);
}

static co_value *
noise(co_context *ctx, const int64_t *dims)
{
    return co_random_uniform(ctx, CO_FLOAT32, dims, 4, -1, 1);
}

/* A convolution in one context, ready to be called. */
typedef struct candidate {
    co_context   *ctx;
    co_value     *inputs, *attrs;
    bench_samples times;
} candidate;

static void
prepare(candidate *c, const shape *s, int way)
{
    const int64_t x[] = { s->n, s->h, s->w, s->c }, w[] = { s->k, s->k, s->c, s->oc };
    const int64_t y[] = { s->n, (s->h + s->stride - 1) / s->stride,
                          (s->w + s->stride - 1) / s->stride, s->oc };
    const int64_t strides[] = { s->stride, s->stride };
    const char   *keys[] = { "padding", "strides", "sizes" };
    co_value     *values[] = { co_string(c->ctx, "SAME"), ints(c->ctx, strides, 2),
                               ints(c->ctx, way == 1 ? x : w, 4) };
    co_value     *in[] = { noise(c->ctx, way == 1 ? w : x), noise(c->ctx, way == 0 ? w : y) };

    c->attrs = co_dict(c->ctx, keys, values, way == 0 ? 2 : 3);
    c->inputs = co_tuple(c->ctx, in, 2);
    c->times.n = 0;
}

static void
once(candidate *c, int way)
{
    double begin = thread_us();

    CO_BLOCK(c->ctx) {
        co_op_call(c->ctx, ops[way], c->inputs, c->attrs);
    }
    bench_add(&c->times, thread_us() - begin);
}

/* By the table first, then each kernel alone. */
static void
compare(candidate all[3], const shape *s, int way)
{
    char   name[64], limit_is[64];
    double own, other;

    for (int i = 0; i < 3; ++i) {
        co_block_begin(all[i].ctx);
        prepare(&all[i], s, way);
    }
    /* Several calls of one in a row, so that each finds its own operands where a step would. */
    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);)
        for (int i = 0; i < 12; ++i)
            once(&all[i / 4], way);
    for (int i = 0; i < 3; ++i) {
        bench_check(all[i].ctx);
        co_block_end(all[i].ctx);
    }
    own = bench_best(&all[1].times);
    other = bench_best(&all[2].times);
    snprintf(name, sizeof(name), "choose_%c_%lldx%lldx%lld_%lldx%lld", "fiw"[way],
             (long long)s -> n, (long long)s -> h, (long long)s -> c, (long long)s -> k,
             (long long)s -> oc);
    snprintf(limit_is, sizeof(limit_is), "the faster of own %.0f, oneDNN %.0f", own, other);
    own = own < other ? own : other;
    bench_report_samples(name, "us", &all[0].times, own, limit_is, MARGIN * own);
}

/* Work that is cut into two chunks or three. */
static const struct {
    const char *name, *op, *attr;
    int64_t     x[4], y[4];
    int         num_x, num_y; /* dimensions; 0: there is no y */
    int64_t     value[2];     /* of the attribute */
} works[] = {
    { "add_131072", "add", NULL, { 131072 }, { 131072 }, 1, 1, { 0 } },
    { "reduce_sum_262144", "reduce_sum", NULL, { 262144 }, { 0 }, 1, 0, { 0 } },
    { "softmax_256x128", "softmax", NULL, { 256, 128 }, { 0 }, 2, 0, { 0 } },
    { "max_pool_4x32x32x16", "max_pool2d", "ksize", { 4, 32, 32, 16 }, { 0 }, 4, 0, { 2, 2 } },
    { "matmul_128x64x64", "matmul", NULL, { 128, 64 }, { 64, 64 }, 2, 2, { 0 } },
    { "matmul_8x64x64x64", "matmul", NULL, { 8, 64, 64 }, { 8, 64, 64 }, 3, 3, { 0 } },
    { "conv_8x14x14x16_3x16",
      "conv2d",
      "strides",
      { 8, 14, 14, 16 },
      { 3, 3, 16, 16 },
      4,
      4,
      { 1, 1 } },
};

static void
prepare_work(candidate *c, size_t w)
{
    const char *keys[] = { works[w].attr, "strides" };
    co_value   *in[2], *pair = ints(c->ctx, works[w].value, 2), *values[] = { pair, pair };
    size_t      num_attrs = works[w].attr == NULL ? 0 : strcmp(works[w].attr, "ksize") == 0 ? 2 : 1;

    in[0] = co_random_uniform(c->ctx, CO_FLOAT32, works[w].x, works[w].num_x, -1, 1);
    if (works[w].num_y > 0)
        in[1] = co_random_uniform(c->ctx, CO_FLOAT32, works[w].y, works[w].num_y, -1, 1);
    c->inputs = co_tuple(c->ctx, in, works[w].num_y > 0 ? 2 : 1);
    c->attrs = co_dict(c->ctx, keys, values, num_attrs);
    c->times.n = 0;
}

static void
compare_threads(candidate both[2], size_t w)
{
    char   name[64];
    double alone;

    for (int i = 0; i < 2; ++i) {
        co_block_begin(both[i].ctx);
        prepare_work(&both[i], w);
    }
    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);)
        for (int i = 0; i < 16; ++i) {
            candidate *of = &both[i / 8];
            double     begin = bench_now();

            CO_BLOCK(of->ctx) {
                co_op_call(of->ctx, works[w].op, of->inputs, of->attrs);
            }
            bench_add(&of->times, 1e6 * (bench_now() - begin));
        }
    for (int i = 0; i < 2; ++i) {
        bench_check(both[i].ctx);
        co_block_end(both[i].ctx);
    }
    alone = bench_best(&both[1].times);
    snprintf(name, sizeof(name), "choose_team_%s", works[w].name);
    bench_report_samples(name, "us", &both[0].times, alone, "one thread", MARGIN * alone);
}

static void
choose_team(void)
{
    static candidate both[2];

    both[0].ctx = co_open("cpus=1, threads=2");
    both[1].ctx = co_open("cpus=1, threads=1");
    for (size_t w = 0; w < sizeof(works) / sizeof(works[0]); ++w)
        compare_threads(both, w);
    for (int i = 0; i < 2; ++i)
        co_close(both[i].ctx);
}

void
bench_choose(void)
{
    static const char *const settings[3] = { "threads=1", "threads=1, convolution=own",
                                             "threads=1, convolution=onednn" };
    static candidate         all[3];

    for (int i = 0; i < 3; ++i)
        all[i].ctx = co_open(settings[i]);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i)
        for (int way = 0; way < NUM_WAYS; ++way)
            compare(all, &shapes[i], way);
    for (int i = 0; i < 3; ++i)
        co_close(all[i].ctx);
    bench_choose_products();
    choose_team();
}
