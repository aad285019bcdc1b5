/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators and optimizers through the public interface. Over 64 MiB the memory is the
 * limit: the same bytes moved by a loop that does nothing else, in the same run. In cache the
 * arithmetic is: there the limit is a loop written by hand (by_hand.c), measured in turns with the
 * operator.
 */
#include "bench.h"
#include "by_hand.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(__SSE__)
#include <immintrin.h>
#endif

enum { ROUNDS = 100 };

#define LARGE           ((int64_t)16 << 20) /* elements of 64 MiB */
#define SECONDS         0.6
#define SHARE_OF_MEMORY 0.8 /* of the bandwidth, at least */
#define TIMES_BY_HAND   1.2 /* at most */

typedef struct operands {
    co_value     *x, *y, *labels, *variable, *gamma, *beta;
    co_optimizer *sgd, *adam;
} operands;

typedef void (*operator_fn)(co_context *ctx, const operands *o);

static void
do_add(co_context *ctx, const operands *o)
{
    co_add(ctx, o->x, o->y);
}
static void
do_mul(co_context *ctx, const operands *o)
{
    co_mul(ctx, o->x, o->y);
}
static void
do_relu(co_context *ctx, const operands *o)
{
    co_relu(ctx, o->x);
}
static void
do_neg(co_context *ctx, const operands *o)
{
    co_neg(ctx, o->x);
}
static void
do_exp(co_context *ctx, const operands *o)
{
    co_exp(ctx, o->x);
}
static void
do_tanh(co_context *ctx, const operands *o)
{
    co_tanh(ctx, o->x);
}
static void
do_gelu(co_context *ctx, const operands *o)
{
    co_gelu(ctx, o->x, true);
}
static void
do_gelu_back(co_context *ctx, const operands *o)
{
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;

    options.output_gradients = o->y;
    co_tape_begin(ctx);
    co_watch(ctx, o->x);
    co_gradient_with(ctx, co_gelu(ctx, o->x, true), o->x, &options);
}
static void
do_sum(co_context *ctx, const operands *o)
{
    co_reduce_sum(ctx, o->x, NULL, 0, false);
}

static void
update_by(co_context *ctx, const operands *o, co_optimizer *optimizer)
{
    co_value *gradients = co_list(ctx, (co_value *[]){ o->y }, 1);

    co_apply_gradients(ctx, optimizer, gradients, co_list(ctx, (co_value *[]){ o->variable }, 1));
}
static void
do_sgd(co_context *ctx, const operands *o)
{
    update_by(ctx, o, o->sgd);
}
static void
do_adam(co_context *ctx, const operands *o)
{
    update_by(ctx, o, o->adam);
}

static void
do_cross_entropy(co_context *ctx, const operands *o)
{
    co_tape_begin(ctx);
    co_watch(ctx, o->x);
    co_gradient(ctx, co_sparse_softmax_cross_entropy(ctx, o->labels, o->x), o->x);
}

static void
do_softmax(co_context *ctx, const operands *o)
{
    co_softmax(ctx, o->x, -1);
}
static co_value *
normalised(co_context *ctx, const operands *o)
{
    return co_layer_norm(ctx, o->x, o->gamma, o->beta, CO_AXES(-1), 1e-5);
}
static void
do_layer_norm(co_context *ctx, const operands *o)
{
    normalised(ctx, o);
}
static void
do_layer_norm_back(co_context *ctx, const operands *o)
{
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;
    co_value           *all = co_list(ctx, (co_value *[]){ o->x, o->gamma, o->beta }, 3);

    options.output_gradients = o->y;
    co_tape_begin(ctx);
    co_watch(ctx, all);
    co_gradient_with(ctx, normalised(ctx, o), all, &options);
}

/* --- what memory allows --- */

typedef struct arrays {
    float *a, *b, *c, *out;
} arrays;

/* Reads one or two arrays and writes another, past the cache. */
static void
move_arrays(const arrays *x, int reads)
{
#if defined(__SSE__)
    for (int64_t i = 0; i < LARGE; i += 4) {
        __m128 v = _mm_load_ps(x->a + i);

        if (reads == 2)
            v = _mm_add_ps(v, _mm_load_ps(x->b + i));
        _mm_stream_ps(x->out + i, v);
    }
    _mm_sfence();
#else
    for (int64_t i = 0; i < LARGE; ++i)
        x->out[i] = reads == 2 ? x->a[i] + x->b[i] : x->a[i];
#endif
}

/* Reads two arrays and writes one of them, in place. */
static void
update_array(const arrays *x)
{
#if defined(__SSE__)
    for (int64_t i = 0; i < LARGE; i += 4)
        _mm_store_ps(x->a + i, _mm_add_ps(_mm_load_ps(x->a + i), _mm_load_ps(x->b + i)));
#else
    for (int64_t i = 0; i < LARGE; ++i)
        x->a[i] += x->b[i];
#endif
}

/* Reads one array and updates three others. */
static void
update_arrays(const arrays *x)
{
#if defined(__SSE__)
    for (int64_t i = 0; i < LARGE; i += 4) {
        __m128 v = _mm_load_ps(x->b + i);

        _mm_store_ps(x->a + i, _mm_add_ps(_mm_load_ps(x->a + i), v));
        _mm_store_ps(x->c + i, _mm_add_ps(_mm_load_ps(x->c + i), v));
        _mm_store_ps(x->out + i, _mm_add_ps(_mm_load_ps(x->out + i), v));
    }
#else
    for (int64_t i = 0; i < LARGE; ++i) {
        x->a[i] += x->b[i];
        x->c[i] += x->b[i];
        x->out[i] += x->b[i];
    }
#endif
}

static volatile float sum_sink;

static void
read_array(const arrays *x)
{
#if defined(__SSE__)
    __m128 sums[4] = { _mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps() };

    for (int64_t i = 0; i < LARGE; i += 16)
        for (int k = 0; k < 4; ++k)
            sums[k] = _mm_add_ps(sums[k], _mm_load_ps(x->a + i + 4 * k));
    sum_sink = _mm_cvtss_f32(
        _mm_add_ps(_mm_add_ps(sums[0], sums[1]), _mm_add_ps(sums[2], sums[3])));
#else
    float sum = 0;

    for (int64_t i = 0; i < LARGE; ++i)
        sum += x->a[i];
    sum_sink = sum;
#endif
}

typedef enum traffic { READ_ONE, READ_WRITE, READ_TWO_WRITE, UPDATE, UPDATE_THREE } traffic;

static void
move_bytes(const arrays *x, traffic kind)
{
    switch (kind) {
    case READ_ONE: read_array(x); break;
    case READ_WRITE: move_arrays(x, 1); break;
    case READ_TWO_WRITE: move_arrays(x, 2); break;
    case UPDATE: update_array(x); break;
    case UPDATE_THREE: update_arrays(x); break;
    }
}

/* --- figures --- */

static double
time_operator(co_context *ctx, operator_fn fn, const operands *o)
{
    double begin = bench_now();

    CO_BLOCK(ctx) {
        fn(ctx, o);
    }
    return (bench_now() - begin) * 1e6;
}

static void
beside_memory(co_context *ctx, const char *name, operator_fn fn, traffic kind, const operands *o,
              const arrays *x)
{
    bench_samples samples = { .n = 0 }, limit = { .n = 0 };

    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);) {
        double begin = bench_now();

        move_bytes(x, kind);
        bench_add(&limit, (bench_now() - begin) * 1e6);
        bench_add(&samples, time_operator(ctx, fn, o));
    }
    bench_check(ctx);
    bench_report_samples(name, "us", &samples, bench_best(&limit), "the same bytes moved",
                         bench_best(&limit) / SHARE_OF_MEMORY);
}

static float *
new_array(int64_t n)
{
    float *array = aligned_alloc(64, (size_t)n * sizeof(float));

    if (array == NULL) {
        fprintf(stderr, "cohort-bench: no memory for an array of %lld numbers\n", (long long)n);
        exit(1);
    }
    for (int64_t i = 0; i < n; ++i)
        array[i] = 0.5F;
    return array;
}

static void
large(co_context *ctx)
{
    static const struct {
        const char *name;
        operator_fn fn;
        traffic     kind;
    } all[] = {
        { "elementwise_add_64mib", do_add, READ_TWO_WRITE },
        { "elementwise_mul_64mib", do_mul, READ_TWO_WRITE },
        { "elementwise_neg_64mib", do_neg, READ_WRITE },
        { "elementwise_relu_64mib", do_relu, READ_WRITE },
        { "elementwise_exp_64mib", do_exp, READ_WRITE },
        { "elementwise_sum_64mib", do_sum, READ_ONE },
        { "elementwise_sgd_64mib", do_sgd, UPDATE },
        { "elementwise_adam_64mib", do_adam, UPDATE_THREE },
    };
    int64_t  dims[] = { LARGE };
    operands o = { .x = co_random_uniform(ctx, CO_FLOAT32, dims, 1, -1, 1),
                   .y = co_random_uniform(ctx, CO_FLOAT32, dims, 1, -1, 1),
                   .sgd = co_sgd(ctx, NULL),
                   .adam = co_adam(ctx, NULL) };
    arrays   x = { new_array(LARGE), new_array(LARGE), new_array(LARGE), new_array(LARGE) };

    o.variable = co_variable(ctx, o.x, NULL);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i)
        beside_memory(ctx, all[i].name, all[i].fn, all[i].kind, &o, &x);
    free(x.a);
    free(x.b);
    free(x.c);
    free(x.out);
}

/* Whether this processor has the instructions that by_hand.c was compiled for. */
static bool
can_run_by_hand(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

static void
beside_hand(co_context *ctx, const char *name, operator_fn fn, hand_fn hand, const operands *o,
            const hand_arrays *a)
{
    bench_samples samples = { .n = 0 }, by_hand = { .n = 0 };
    double        limit = (double)NAN;

    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);) {
        double begin = bench_now();

        if (can_run_by_hand()) {
            hand(a);
            bench_add(&by_hand, (bench_now() - begin) * 1e6);
        }
        bench_add(&samples, time_operator(ctx, fn, o));
    }
    bench_check(ctx);
    if (by_hand.n > 0)
        limit = bench_best(&by_hand);
    bench_report_samples(name, "us", &samples, limit, "by hand", TIMES_BY_HAND * limit);
}

/* What the loops by hand work on: the operands of the operators, and room of their own for
 * results. */
static hand_arrays
arrays_for(co_context *ctx, const operands *o, float *room[6])
{
    for (int i = 0; i < 6; ++i)
        room[i] = new_array(HAND_ELEMENTS);
    return (hand_arrays){ .x = co_data(ctx, o->x),
                          .g = co_data(ctx, o->y),
                          .gamma = o->gamma != NULL ? co_data(ctx, o->gamma) : NULL,
                          .beta = o->beta != NULL ? co_data(ctx, o->beta) : NULL,
                          .labels = o->labels != NULL ? co_data(ctx, o->labels) : NULL,
                          .y = room[0],
                          .z = room[1],
                          .dx = room[2],
                          .dgamma = room[3],
                          .dbeta = room[4],
                          .losses = room[5] };
}

/* 256 K elements, or 512 rows of 128. Gradients have the forward step in them. */
static void
small(co_context *ctx)
{
    static const struct {
        const char *name;
        operator_fn fn;
        hand_fn     hand;
        bool        is_matrix;
    } all[] = {
        { "elementwise_relu", do_relu, hand_relu, false },
        { "elementwise_exp", do_exp, hand_exp, false },
        { "elementwise_tanh", do_tanh, hand_tanh, false },
        { "elementwise_gelu", do_gelu, hand_gelu, false },
        { "elementwise_gelu_back", do_gelu_back, hand_gelu_back, false },
        { "elementwise_softmax", do_softmax, hand_softmax, true },
        { "elementwise_cross_entropy", do_cross_entropy, hand_cross_entropy, true },
        { "elementwise_layer_norm", do_layer_norm, hand_layer_norm, true },
        { "elementwise_layer_norm_back", do_layer_norm_back, hand_layer_norm_back, true },
    };
    int64_t  n[] = { HAND_ELEMENTS }, rows[] = { HAND_ROWS }, row[] = { HAND_COLUMNS };
    int64_t  dims[] = { HAND_ROWS, HAND_COLUMNS };
    operands flat = { .x = co_random_uniform(ctx, CO_FLOAT32, n, 1, -4, 4),
                      .y = co_random_uniform(ctx, CO_FLOAT32, n, 1, -1, 1) };
    operands matrix = { .x = co_random_uniform(ctx, CO_FLOAT32, dims, 2, -4, 4),
                        .y = co_random_uniform(ctx, CO_FLOAT32, dims, 2, -1, 1),
                        .gamma = co_ones(ctx, CO_FLOAT32, row, 1),
                        .beta = co_zeros(ctx, CO_FLOAT32, row, 1) };
    float   *room[2][6];

    matrix.labels = co_cast(ctx, co_random_uniform(ctx, CO_FLOAT32, rows, 1, 0, HAND_COLUMNS),
                            CO_INT32);
    bench_check(ctx);
    hand_arrays of_flat = arrays_for(ctx, &flat, room[0]);
    hand_arrays of_matrix = arrays_for(ctx, &matrix, room[1]);

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i)
        beside_hand(ctx, all[i].name, all[i].fn, all[i].hand, all[i].is_matrix ? &matrix : &flat,
                    all[i].is_matrix ? &of_matrix : &of_flat);
    for (int i = 0; i < 12; ++i)
        free(room[i / 6][i % 6]);
}

void
bench_elementwise(void)
{
    co_context *ctx = bench_open(1);

    small(ctx);
    large(ctx);
    co_close(ctx);
}
