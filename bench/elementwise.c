/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators and optimizers through the public interface. Over 64 MiB the memory is the
 * limit: the same bytes moved by a loop that does nothing else, past the cache where it only
 * writes, in huge pages as the library's large blocks are. In cache the arithmetic is: there the
 * limit is a loop written by hand (hand_written.c).
 *
 * All figures are sampled in turns, operator and limit one after the other, over several seconds. A
 * shared machine has slow phases of up to seconds, in which loops that keep a core busy lose more
 * than loops that wait for their own results. A figure measured in 10 ms would come from one phase.
 */
#include "bench.h"
#include "hand_written.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LARGE           ((int64_t)16 << 20) /* elements of 64 MiB */
#define SHARE_OF_MEMORY 0.8                 /* of the bandwidth, at least */
#define TIMES_BY_HAND   1.2                 /* at most */

#define LEAST_COLD (64L << 20) /* bytes, where the size of the cache is not known */

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
    co_layer_norm_options options = CO_LAYER_NORM_OPTIONS_INIT;

    options.epsilon = 1e-5;
    return co_layer_norm(ctx, o->x, o->gamma, o->beta, &options);
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

typedef enum traffic { READ_ONE, READ_WRITE, READ_TWO_WRITE, UPDATE, UPDATE_THREE } traffic;

/* Larger than the last-level cache. */
typedef struct cold {
    float *array;
    size_t n;
} cold;

static volatile float sum_sink;

/*
 * The loops for one width of vectors: read an array; read one or two and write another, past the
 * cache; read two and write one of them; read one and update three others.
 */
#define DEFINE_MOVES(width, attribute, vec, lanes, zero, load, add, store, stream, first)          \
    attribute static void move_##width(const arrays *x, traffic kind)                              \
    {                                                                                              \
        vec s = zero(), t = s, u = s, v = s; /* an array would lie in memory */                    \
                                                                                                   \
        if (kind == READ_ONE)                                                                      \
            for (int64_t i = 0; i < LARGE; i += 4 * (lanes)) {                                     \
                s = add(s, load(x->a + i));                                                        \
                t = add(t, load(x->a + i + (lanes)));                                              \
                u = add(u, load(x->a + i + 2 * (lanes)));                                          \
                v = add(v, load(x->a + i + 3 * (lanes)));                                          \
            }                                                                                      \
        else if (kind == READ_WRITE)                                                               \
            for (int64_t i = 0; i < LARGE; i += (lanes))                                           \
                stream(x->out + i, load(x->a + i));                                                \
        else if (kind == READ_TWO_WRITE)                                                           \
            for (int64_t i = 0; i < LARGE; i += (lanes))                                           \
                stream(x->out + i, add(load(x->a + i), load(x->b + i)));                           \
        else if (kind == UPDATE)                                                                   \
            for (int64_t i = 0; i < LARGE; i += (lanes))                                           \
                store(x->a + i, add(load(x->a + i), load(x->b + i)));                              \
        else                                                                                       \
            for (int64_t i = 0; i < LARGE; i += (lanes)) {                                         \
                v = load(x->b + i);                                                                \
                store(x->a + i, add(load(x->a + i), v));                                           \
                store(x->c + i, add(load(x->c + i), v));                                           \
                store(x->out + i, add(load(x->out + i), v));                                       \
            }                                                                                      \
        _mm_sfence();                                                                              \
        sum_sink = first(add(add(s, t), add(u, v)));                                               \
    }

#if defined(__x86_64__)
DEFINE_MOVES(16, , __m128, 4, _mm_setzero_ps, _mm_load_ps, _mm_add_ps, _mm_store_ps, _mm_stream_ps,
             _mm_cvtss_f32)
DEFINE_MOVES(32, __attribute__((target("avx"))), __m256, 8, _mm256_setzero_ps, _mm256_load_ps,
             _mm256_add_ps, _mm256_store_ps, _mm256_stream_ps, _mm256_cvtss_f32)
DEFINE_MOVES(64, __attribute__((target("avx512f"))), __m512, 16, _mm512_setzero_ps, _mm512_load_ps,
             _mm512_add_ps, _mm512_store_ps, _mm512_stream_ps, _mm512_cvtss_f32)

/* By the widest vectors that the processor has: it moves no bytes faster. */
static void
move_bytes(const arrays *x, traffic kind)
{
    if (__builtin_cpu_supports("avx512f"))
        move_64(x, kind);
    else if (__builtin_cpu_supports("avx"))
        move_32(x, kind);
    else
        move_16(x, kind);
}
#else
static void
move_bytes(const arrays *x, traffic kind)
{
    float sum = 0;

    for (int64_t i = 0; i < LARGE; ++i)
        switch (kind) {
        case READ_ONE: sum += x->a[i]; break;
        case READ_WRITE: x->out[i] = x->a[i]; break;
        case READ_TWO_WRITE: x->out[i] = x->a[i] + x->b[i]; break;
        case UPDATE: x->a[i] += x->b[i]; break;
        case UPDATE_THREE:
            x->a[i] += x->b[i];
            x->c[i] += x->b[i];
            x->out[i] += x->b[i];
            break;
        }
    sum_sink = sum;
}
#endif

/* Nothing of what is measured is left in a cache that holds several such arrays: both sides find
 * their operands in memory. */
static void
sweep(const cold *c)
{
    float sum = 0;

    for (size_t i = 0; i < c->n; i += 16) /* a line each */
        sum += c->array[i];
    sum_sink = sum;
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
    const cold        *cold;
    bench_samples      times, limits;
} comparison;

/* Whether this processor has the instructions that hand_written.c was compiled for. */
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
sample(co_context *ctx, comparison *c)
{
    double begin;

    if (c->hand == NULL || can_run_by_hand()) {
        if (c->cold != NULL)
            sweep(c->cold);
        begin = bench_now();
        if (c->hand != NULL)
            c->hand(c->by_hand);
        else
            move_bytes(c->arrays, c->kind);
        bench_add(&c->limits, (bench_now() - begin) * 1e6);
    }
    if (c->cold != NULL)
        sweep(c->cold);
    begin = bench_now();
    CO_BLOCK(ctx) {
        c->fn(ctx, c->operands);
    }
    bench_add(&c->times, (bench_now() - begin) * 1e6);
}

static void
report(comparison *c)
{
    double limit = c->limits.n > 0 ? bench_best(&c->limits) : (double)NAN;

    bench_report_samples(c->name, "us", &c->times, limit,
                         c->hand != NULL ? "by hand" : "the same bytes moved",
                         c->hand != NULL ? TIMES_BY_HAND * limit : limit / SHARE_OF_MEMORY);
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

/* Of the last level, 0 where the system does not tell. */
static long
cache_size(void)
{
#ifdef _SC_LEVEL3_CACHE_SIZE
    return sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
    return 0;
#endif
}

static void
large(co_context *ctx)
{
    comparison all[] = {
        { .name = "elementwise_add_64mib", .fn = do_add, .kind = READ_TWO_WRITE },
        { .name = "elementwise_mul_64mib", .fn = do_mul, .kind = READ_TWO_WRITE },
        { .name = "elementwise_neg_64mib", .fn = do_neg, .kind = READ_WRITE },
        { .name = "elementwise_relu_64mib", .fn = do_relu, .kind = READ_WRITE },
        { .name = "elementwise_exp_64mib", .fn = do_exp, .kind = READ_WRITE },
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

    long cache = cache_size();
    cold around = { .n = (cache > LEAST_COLD ? (size_t)cache : LEAST_COLD) / sizeof(float) * 3 /
                         2 };

    around.array = new_array((int64_t)around.n);
    o.variable = co_variable(ctx, o.x, NULL);
    for (size_t i = 0; i < n; ++i) {
        all[i].operands = &o;
        all[i].arrays = &x;
        all[i].cold = &around;
    }
    in_turns(ctx, all, n, TURNS_BEYOND, ROUNDS_BEYOND);
    free(around.array);
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
    return (hand_arrays){ .x = co_value_data(ctx, o->x),
                          .g = co_value_data(ctx, o->y),
                          .gamma = o->gamma != NULL ? co_value_data(ctx, o->gamma) : NULL,
                          .beta = o->beta != NULL ? co_value_data(ctx, o->beta) : NULL,
                          .labels = o->labels != NULL ? co_value_data(ctx, o->labels) : NULL,
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
