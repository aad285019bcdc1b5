/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators and optimizers through the public interface. Over 64 MiB the memory is the
 * limit: the same bytes moved by a loop that does nothing else, past the cache where it only
 * writes, in huge pages as the library's large blocks are. In cache, and for exponentials anywhere,
 * the arithmetic is: there the limit is a loop written by hand (by_hand.c).
 *
 * All figures are sampled in turns, operator and limit one after the other, over several seconds: a
 * machine with other guests has phases, of up to seconds, in which what keeps a core busy loses
 * more than what waits for its own results, and a figure that took 10 ms came from one of them.
 */
#include "bench.h"
#include "by_hand.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(__SSE__)
#include <immintrin.h>
#endif

#define LARGE           ((int64_t)16 << 20) /* elements of 64 MiB */
#define SHARE_OF_MEMORY 0.8                 /* of the bandwidth, at least */
#define TIMES_BY_HAND   1.2                 /* at most */

enum { TURNS_IN_CACHE = 40, ROUNDS_IN_CACHE = 25, TURNS_BEYOND = 12, ROUNDS_BEYOND = 4 };
#define PAUSE 0.1 /* seconds after each turn */

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
    __m128 s = _mm_setzero_ps(), t = s, u = s, v = s; /* an array would lie in memory */

    for (int64_t i = 0; i < LARGE; i += 16) {
        s = _mm_add_ps(s, _mm_load_ps(x->a + i));
        t = _mm_add_ps(t, _mm_load_ps(x->a + i + 4));
        u = _mm_add_ps(u, _mm_load_ps(x->a + i + 8));
        v = _mm_add_ps(v, _mm_load_ps(x->a + i + 12));
    }
    sum_sink = _mm_cvtss_f32(_mm_add_ps(_mm_add_ps(s, t), _mm_add_ps(u, v)));
#else
    float sum = 0;

    for (int64_t i = 0; i < LARGE; ++i)
        sum += x->a[i];
    sum_sink = sum;
#endif
}

/* Exponentials take longer than their memory: a loop by hand over the same arrays, piece by piece.
 */
static void
exponentials(const arrays *x)
{
    for (int64_t i = 0; i < LARGE; i += HAND_ELEMENTS)
        hand_exp(&(hand_arrays){ .x = x->a + i, .y = x->out + i });
}

typedef enum traffic {
    READ_ONE,
    READ_WRITE,
    READ_TWO_WRITE,
    UPDATE,
    UPDATE_THREE,
    EXPONENTIALS
} traffic;

static void
move_bytes(const arrays *x, traffic kind)
{
    switch (kind) {
    case READ_ONE: read_array(x); break;
    case READ_WRITE: move_arrays(x, 1); break;
    case READ_TWO_WRITE: move_arrays(x, 2); break;
    case UPDATE: update_array(x); break;
    case UPDATE_THREE: update_arrays(x); break;
    case EXPONENTIALS: exponentials(x); break;
    }
}

/* --- figures --- */

typedef struct comparison {
    const char        *name;
    operator_fn        fn;
    hand_fn            hand; /* in cache */
    traffic            kind; /* beyond it, where hand is NULL */
    bool               is_matrix;
    const operands    *operands;
    const hand_arrays *by_hand;
    const arrays      *arrays;
    bench_samples      times, limits;
} comparison;

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

/* Whether the limit is a loop by hand, else the memory. */
static bool
is_by_hand(const comparison *c)
{
    return c->hand != NULL || c->kind == EXPONENTIALS;
}

static void
sample(co_context *ctx, comparison *c)
{
    double begin = bench_now(), between;
    bool   has_limit = !is_by_hand(c) || can_run_by_hand();

    if (has_limit && c->hand != NULL)
        c->hand(c->by_hand);
    else if (has_limit)
        move_bytes(c->arrays, c->kind);
    between = bench_now();
    if (has_limit)
        bench_add(&c->limits, (between - begin) * 1e6);
    CO_BLOCK(ctx) {
        c->fn(ctx, c->operands);
    }
    bench_add(&c->times, (bench_now() - between) * 1e6);
}

static void
report(comparison *c)
{
    double limit = c->limits.n > 0 ? bench_best(&c->limits) : (double)NAN;

    bench_report_samples(c->name, "us", &c->times, limit,
                         is_by_hand(c) ? "by hand" : "the same bytes moved",
                         is_by_hand(c) ? TIMES_BY_HAND * limit : limit / SHARE_OF_MEMORY);
}

/* Some rounds of each comparison, and that over and over, with a pause between. */
static void
in_turns(co_context *ctx, comparison *all, size_t n, int turns, int rounds)
{
    for (int turn = 0; turn < turns; ++turn) {
        for (size_t i = 0; i < n; ++i)
            for (int round = 0; round < rounds; ++round)
                sample(ctx, &all[i]);
        bench_rest(PAUSE);
    }
    bench_check(ctx);
    for (size_t i = 0; i < n; ++i)
        report(&all[i]);
}

static float *
new_array(int64_t n)
{
    float *array = bench_array((size_t)n * sizeof(float));

    for (int64_t i = 0; i < n; ++i)
        array[i] = 0.5F;
    return array;
}

static void
large(co_context *ctx)
{
    comparison all[] = {
        { .name = "elementwise_add_64mib", .fn = do_add, .kind = READ_TWO_WRITE },
        { .name = "elementwise_mul_64mib", .fn = do_mul, .kind = READ_TWO_WRITE },
        { .name = "elementwise_neg_64mib", .fn = do_neg, .kind = READ_WRITE },
        { .name = "elementwise_relu_64mib", .fn = do_relu, .kind = READ_WRITE },
        { .name = "elementwise_exp_64mib", .fn = do_exp, .kind = EXPONENTIALS },
        { .name = "elementwise_sum_64mib", .fn = do_sum, .kind = READ_ONE },
        { .name = "elementwise_sgd_64mib", .fn = do_sgd, .kind = UPDATE },
        { .name = "elementwise_adam_64mib", .fn = do_adam, .kind = UPDATE_THREE },
    };
    size_t   n = sizeof(all) / sizeof(all[0]);
    int64_t  dims[] = { LARGE };
    operands o = { .x = co_random_uniform(ctx, CO_FLOAT32, dims, 1, -1, 1),
                   .y = co_random_uniform(ctx, CO_FLOAT32, dims, 1, -1, 1),
                   .sgd = co_sgd(ctx, NULL),
                   .adam = co_adam(ctx, NULL) };
    arrays   x = { new_array(LARGE), new_array(LARGE), new_array(LARGE), new_array(LARGE) };

    o.variable = co_variable(ctx, o.x, NULL);
    for (size_t i = 0; i < n; ++i) {
        all[i].operands = &o;
        all[i].arrays = &x;
    }
    in_turns(ctx, all, n, TURNS_BEYOND, ROUNDS_BEYOND);
    free(x.a);
    free(x.b);
    free(x.c);
    free(x.out);
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
    comparison all[] = {
        { .name = "elementwise_relu", .fn = do_relu, .hand = hand_relu },
        { .name = "elementwise_exp", .fn = do_exp, .hand = hand_exp },
        { .name = "elementwise_tanh", .fn = do_tanh, .hand = hand_tanh },
        { .name = "elementwise_gelu", .fn = do_gelu, .hand = hand_gelu },
        { .name = "elementwise_gelu_back", .fn = do_gelu_back, .hand = hand_gelu_back },
        { .name = "elementwise_softmax",
          .fn = do_softmax,
          .hand = hand_softmax,
          .is_matrix = true },
        { .name = "elementwise_cross_entropy",
          .fn = do_cross_entropy,
          .hand = hand_cross_entropy,
          .is_matrix = true },
        { .name = "elementwise_layer_norm",
          .fn = do_layer_norm,
          .hand = hand_layer_norm,
          .is_matrix = true },
        { .name = "elementwise_layer_norm_back",
          .fn = do_layer_norm_back,
          .hand = hand_layer_norm_back,
          .is_matrix = true },
    };
    size_t   num_figures = sizeof(all) / sizeof(all[0]);
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

    for (size_t i = 0; i < num_figures; ++i) {
        all[i].operands = all[i].is_matrix ? &matrix : &flat;
        all[i].by_hand = all[i].is_matrix ? &of_matrix : &of_flat;
    }
    in_turns(ctx, all, num_figures, TURNS_IN_CACHE, ROUNDS_IN_CACHE);
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
