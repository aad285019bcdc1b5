/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two convolutions of a small network on 28x28 pictures, batch 64, through the public
 * interface. The second is compared with the best GEMM rate, sampled in turns; the first has one
 * channel and too little arithmetic for that: its whole layer (bias, relu and pooling, forward and
 * backward) has a time of its own, scaled to this machine.
 */
#include "bench.h"

#include <math.h>

enum { ROUNDS = 60, BATCH = 64, CHANNELS = 32, FILTERS = 64 };

#define SECONDS             1.5
#define SHARE_OF_BEST       0.75   /* of the best rate, at least */
#define FIRST_LAYER_US      2600.0 /* where a core reaches the rate below */
#define FIRST_LAYER_GFLOP_S 88.0

static co_value *
noise(co_context *ctx, const int64_t *dims, int ndim)
{
    return co_random_uniform(ctx, CO_FLOAT32, dims, ndim, -1, 1);
}

/* Attributes of a convolution with padding SAME; `sizes` is the shape of the result of a backward
 * one. */
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
    return co_dict(ctx, keys, items, sizes != NULL ? 2 : 1);
}

static void
measure(co_context *ctx, const char *name, const char *op, co_value *a, co_value *b,
        co_value *attrs, double multiply_adds, const bench_pace *pace)
{
    co_value     *inputs = co_tuple(ctx, (co_value *[]){ a, b }, 2);
    bench_samples samples = { .n = 0 }, paces = { .n = 0 };
    double        ideal;

    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);) {
        double begin = bench_now();

        CO_BLOCK(ctx) {
            co_op_call(ctx, op, inputs, attrs);
        }
        bench_add(&samples, (bench_now() - begin) * 1e6);
        bench_pace_add(pace, &paces);
    }
    bench_check(ctx);
    ideal = multiply_adds / bench_pace_rate(&paces);
    bench_report_samples(name, "us", &samples, ideal, "at the best rate", ideal / SHARE_OF_BEST);
}

static void
second_layer(co_context *ctx, const bench_pace *pace)
{
    const int64_t x_dims[] = { BATCH, 14, 14, CHANNELS }, w_dims[] = { 3, 3, CHANNELS, FILTERS };
    const int64_t y_dims[] = { BATCH, 14, 14, FILTERS };
    double        work = (double)BATCH * 14 * 14 * 9 * CHANNELS * FILTERS;
    co_value     *x = noise(ctx, x_dims, 4), *w = noise(ctx, w_dims, 4), *y = noise(ctx, y_dims, 4);

    measure(ctx, "conv_2_us", "conv2d", x, w, conv_attrs(ctx, NULL), work, pace);
    measure(ctx, "conv_2_input_us", "conv2d_backprop_input", w, y, conv_attrs(ctx, x_dims), work,
            pace);
    measure(ctx, "conv_2_filter_us", "conv2d_backprop_filter", x, y, conv_attrs(ctx, w_dims), work,
            pace);
}

/* Forward and backward, as a step does it. */
static void
first_layer_once(co_context *ctx, co_value *x, co_value *weights, co_value *dy)
{
    co_conv2d_options   conv = CO_CONV2D_OPTIONS_INIT;
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;
    co_value           *y;

    conv.padding = CO_PADDING_SAME;
    options.output_gradients = dy;
    co_tape_begin(ctx);
    co_watch(ctx, weights);
    y = co_conv2d_bias(ctx, x, co_at(ctx, weights, 0), co_at(ctx, weights, 1), CO_ACTIVATION_RELU,
                       &conv);
    co_gradient_with(ctx, co_max_pool2d(ctx, y, NULL), weights, &options);
}

static void
first_layer(co_context *ctx, const bench_pace *pace)
{
    const int64_t x_dims[] = { BATCH, 28, 28, 1 }, w_dims[] = { 3, 3, 1, CHANNELS };
    const int64_t b_dims[] = { CHANNELS }, y_dims[] = { BATCH, 14, 14, CHANNELS };
    co_value     *x = noise(ctx, x_dims, 4), *dy = noise(ctx, y_dims, 4);
    co_value     *weights[] = { noise(ctx, w_dims, 4), noise(ctx, b_dims, 1) };
    co_value     *both = co_list(ctx, weights, 2);
    bench_samples samples = { .n = 0 }, paces = { .n = 0 };
    double        goal;

    for (bench_clock c = bench_begin(ROUNDS, SECONDS); bench_more(&c);) {
        double begin = bench_now();

        CO_BLOCK(ctx) {
            first_layer_once(ctx, x, both, dy);
        }
        bench_add(&samples, (bench_now() - begin) * 1e6);
        bench_pace_add(pace, &paces);
    }
    bench_check(ctx);
    goal = FIRST_LAYER_US * FIRST_LAYER_GFLOP_S / (2e-3 * bench_pace_rate(&paces));
    bench_report_samples("conv_1_layer_us", "us", &samples, goal, "2.6 ms at 88 GFLOP/s, scaled",
                         goal);
}

void
bench_conv(void)
{
    int         threads = bench_threads();
    co_context *ctx = bench_open(threads);
    bench_pace *pace = bench_pace_begin(ctx, threads);

    first_layer(ctx, pace);
    second_layer(ctx, pace);
    bench_pace_end(pace);
    co_close(ctx);
}
