/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and convolutions through the public interface, on one thread. The limit is the time in which the processor
 * could do as many multiply-adds if it did nothing else, measured in the same run.
 */
#include "bench.h"

#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ROUNDS = 400, PEAK_ROUNDS = 200, PEAK_STEPS = 20000 };

static volatile float sink;

#if defined(__x86_64__)
/* Twelve independent chains of vector multiply-adds: enough to hide their latency. Returns multiply-adds done. */
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define BEGIN(i)  __m256 v##i = _mm256_set1_ps((float)i);
#define STEP(i)   v##i = _mm256_fmadd_ps(v##i, x, y);
#define FOLD(i)   x = _mm256_add_ps(x, v##i);
__attribute__((target("avx2,fma"))) static double
multiply_add_fused(void)
{
    __m256 x = _mm256_set1_ps(0.999F), y = _mm256_set1_ps(0.001F);
    CHAINS(BEGIN)

    for (int i = 0; i < PEAK_STEPS; ++i) {
        CHAINS(STEP)
    }
    CHAINS(FOLD)
    sink = _mm256_cvtss_f32(x);
    return 12.0 * 8 * PEAK_STEPS;
}
#endif

/* The same without a fused instruction, for processors that lack it. */
static double
multiply_add_plain(void)
{
    typedef float vec __attribute__((vector_size(16)));
    vec           v[8], x = { 0.999F, 0.999F, 0.999F, 0.999F }, sum = { 0 };

    for (int i = 0; i < 8; ++i)
        v[i] = x + (float)i;
    for (int k = 0; k < PEAK_STEPS; ++k) {
        v[0] = v[0] * x + x;
        v[1] = v[1] * x + x;
        v[2] = v[2] * x + x;
        v[3] = v[3] * x + x;
        v[4] = v[4] * x + x;
        v[5] = v[5] * x + x;
        v[6] = v[6] * x + x;
        v[7] = v[7] * x + x;
    }
    for (int i = 0; i < 8; ++i)
        sum += v[i];
    sink = sum[0];
    return 8.0 * 4 * PEAK_STEPS;
}

/* Multiply-adds per microsecond at best. */
static double
measure_peak(void)
{
    double best = 0;

    for (bench_clock c = bench_begin(PEAK_ROUNDS, 0.2); bench_more(&c);) {
        double begin = bench_now(), done;

#if defined(__x86_64__)
        done = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")
                   ? multiply_add_fused()
                   : multiply_add_plain();
#else
        done = multiply_add_plain();
#endif
        best = fmax(best, done / (bench_now() - begin) * 1e-6);
    }
    return best;
}

static co_value *
noise(co_context *ctx, const int64_t *dims, size_t ndim)
{
    return co_random_uniform(ctx, CO_FLOAT32, dims, ndim, -1, 1);
}

/* One thing to measure: a product, or one of the three convolutions by name. */
typedef struct work {
    const char *op; /* NULL: matmul */
    co_value   *a, *b, *attrs;
    bool        transpose_a, transpose_b;
} work;

static void
do_once(co_context *ctx, const work *w, co_value *inputs)
{
    if (w->op == NULL)
        co_matmul_transposed(ctx, w->a, w->b, w->transpose_a, w->transpose_b);
    else
        co_op_call(ctx, w->op, inputs, w->attrs);
}

static void
measure(co_context *ctx, const char *name, const work *w, double multiply_adds, double peak)
{
    co_value     *inputs = co_tuple(ctx, (co_value *[]){ w->a, w->b }, 2);
    bench_samples samples = { .n = 0 };
    int           repeat = 1 + (int)(100 * peak / multiply_adds); /* at least 100 us a sample */

    for (bench_clock c = bench_begin(ROUNDS, 0.3); bench_more(&c);) {
        double begin = bench_now();

        for (int i = 0; i < repeat; ++i)
            CO_BLOCK(ctx) {
                do_once(ctx, w, inputs);
            }
        bench_add(&samples, (bench_now() - begin) / repeat * 1e6);
    }
    bench_check(ctx);
    bench_report_samples(name, "us", &samples, multiply_adds / peak, "multiply-adds alone", NAN);
}

static void
measure_product(co_context *ctx, const char *name, int64_t m, int64_t n, int64_t k, bool turn_a,
                bool turn_b, double peak)
{
    work w = { .transpose_a = turn_a, .transpose_b = turn_b };

    w.a = noise(ctx, turn_a ? (int64_t[]){ k, m } : (int64_t[]){ m, k }, 2);
    w.b = noise(ctx, turn_b ? (int64_t[]){ n, k } : (int64_t[]){ k, n }, 2);
    measure(ctx, name, &w, (double)(m * n * k), peak);
}

/* Attributes of a convolution with padding SAME; `sizes` is the shape of the result of a backward one. */
static co_value *
conv_attrs(co_context *ctx, const int64_t *sizes)
{
    const char *keys[] = { "padding", "sizes" };
    co_value   *items[2], *dims[4];

    items[0] = co_string(ctx, "SAME");
    for (int i = 0; sizes != NULL && i < 4; ++i)
        dims[i] = co_int(ctx, sizes[i]);
    if (sizes != NULL)
        items[1] = co_list(ctx, dims, 4);
    return co_map(ctx, keys, items, sizes != NULL ? 2 : 1);
}

static void
measure_convolutions(co_context *ctx, double peak)
{
    const int64_t x_dims[] = { 8, 14, 14, 32 }, w_dims[] = { 3, 3, 32, 64 };
    const int64_t y_dims[] = { 8, 14, 14, 64 };
    double        multiply_adds = 8.0 * 14 * 14 * 9 * 32 * 64;
    co_value     *x = noise(ctx, x_dims, 4), *w = noise(ctx, w_dims, 4), *y = noise(ctx, y_dims, 4);

    measure(ctx, "conv2d_us",
            &(work){ .op = "conv2d", .a = x, .b = w, .attrs = conv_attrs(ctx, NULL) },
            multiply_adds, peak);
    measure(ctx, "conv2d_input_us",
            &(work){
                .op = "conv2d_backprop_input", .a = w, .b = y, .attrs = conv_attrs(ctx, x_dims) },
            multiply_adds, peak);
    measure(ctx, "conv2d_filter_us",
            &(work){
                .op = "conv2d_backprop_filter", .a = x, .b = y, .attrs = conv_attrs(ctx, w_dims) },
            multiply_adds, peak);
}

void
bench_kernels(void)
{
    co_context *ctx = co_open("threads=1");
    double      peak = measure_peak();

    measure_product(ctx, "matmul_us", 128, 512, 512, false, false, peak);
    measure_product(ctx, "matmul_nt_us", 128, 512, 512, false, true, peak);
    measure_product(ctx, "matmul_tn_us", 512, 512, 128, true, false, peak);
    measure_product(ctx, "matmul_small_us", 32, 64, 64, false, false, peak);
    measure_convolutions(ctx, peak);
    co_close(ctx);
}
