/* SPDX-License-Identifier: Apache-2.0 */
/* max_pool2d: against the plain kernel, ties, NaN, gradients of two orders, threads, errors. */
#include "context/context.h"
#include "kernel_support.h"

static co_pool2d_options options = CO_POOL2D_OPTIONS_INIT;

static co_value *
pool(co_context *ctx, co_value *const *in)
{
    return co_max_pool2d(ctx, in[0], &options);
}

static co_value *
pool_gradient(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, pool, in, 0);
}

/* The gradient depends on x through the square alone: that of pooling picks the same places near
 * x. */
static co_value *
pool_square_gradient(co_context *ctx, co_value *const *in)
{
    co_tape_begin(ctx);
    co_watch(ctx, in[0]);
    return co_gradient(ctx, co_square(ctx, pool(ctx, in)), in[0]);
}

typedef struct shape {
    int64_t    dims[4], ksize[2], strides[2];
    co_padding padding;
} shape;

static const shape shapes[] = {
    { { 1, 1, 1, 1 }, { 1, 1 }, { 1, 1 }, CO_PADDING_VALID },
    { { 2, 5, 5, 3 }, { 2, 2 }, { 2, 2 }, CO_PADDING_VALID },
    { { 2, 6, 5, 17 }, { 3, 2 }, { 2, 1 }, CO_PADDING_SAME },
    { { 1, 5, 7, 65 }, { 3, 3 }, { 1, 1 }, CO_PADDING_SAME },
    { { 3, 4, 4, 2 }, { 2, 3 }, { 3, 3 }, CO_PADDING_VALID },
    { { 4, 28, 28, 32 }, { 2, 2 }, { 2, 2 }, CO_PADDING_VALID },
    { { 3, 6, 10, 19 }, { 2, 2 }, { 2, 2 }, CO_PADDING_SAME },
    { { 2, 2, 2, 1 }, { 2, 2 }, { 2, 2 }, CO_PADDING_VALID },
    { { 1, 4, 5, 8 }, { 2, 2 }, { 2, 2 }, CO_PADDING_SAME },
    { { 0, 4, 4, 8 }, { 2, 2 }, { 2, 2 }, CO_PADDING_VALID },
};

static void
use(const shape *s)
{
    memcpy(options.ksize, s->ksize, sizeof(s->ksize));
    memcpy(options.strides, s->strides, sizeof(s->strides));
    options.padding = s->padding;
}

CO_TEST(max_pool2d_agrees_with_the_plain_kernel, "")
{
    static const co_dtype dtypes[] = { CO_FLOAT32, CO_FLOAT64, CO_FLOAT16, CO_BFLOAT16 };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i)
        for (int d = 0; d < 4; ++d)
            CO_BLOCK(ctx) {
                co_value *x = kernel_tensor(ctx, dtypes[d], shapes[i].dims, 4, i);

                use(&shapes[i]);
                CO_EXPECT_LESS(
                    kernel_difference(ctx, pool(ctx, &x), kernel_reference(ctx, pool, &x)), 1e-30);
                CO_EXPECT_LESS(kernel_difference(ctx, pool_gradient(ctx, &x),
                                                 kernel_reference(ctx, pool_gradient, &x)),
                               1e-30);
                CO_EXPECT_LESS(kernel_difference(ctx, pool_square_gradient(ctx, &x),
                                                 kernel_reference(ctx, pool_square_gradient, &x)),
                               1e-30);
            }
}

CO_TEST(max_pool2d_has_gradients_of_gradients, "")
{
    static const int first[] = { 0 };

    for (size_t i = 1; i < 5; ++i)
        CO_BLOCK(ctx) {
            int64_t   dims[4] = { shapes[i].dims[0], shapes[i].dims[1], shapes[i].dims[2], 2 };
            co_value *x = kernel_tensor(ctx, CO_FLOAT64, dims, 4, 7);

            use(&shapes[i]);
            kernel_check_gradients(ctx, pool, &x, 1, first, 1);
            kernel_check_gradients(ctx, pool_square_gradient, &x, 1, first, 1);
        }
}

CO_TEST(max_pool2d_sends_a_tied_gradient_to_the_first, "")
{
    float     in[] = { 1, 3, 3, 3 };
    co_value *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1, 2, 2, 1), in);
    float     want[] = { 0, 1, 0, 0 };

    use(&shapes[1]);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    CO_EXPECT_BYTES(co_value_data(ctx, co_gradient(ctx, pool(ctx, &x), x)), want, sizeof(want));
}

/* Ties, NaN, infinities and zeros of both signs in every place of a window, and gradients of -0, in
 * vectors and beside them. */
CO_TEST(max_pool2d_of_special_values_has_the_bits_of_the_plain_kernel, "")
{
    static const float values[] = { 0, -0.0F, 1, -1, NAN, INFINITY, -INFINITY, 1 };
    enum { N = 2 * 4 * 6 * 13 };
    float     in[N], up[N / 4];
    co_value *x, *both[2], *all[2];

    for (int i = 0; i < N; ++i)
        in[i] = values[(unsigned)i * 2654435761U >> 29];
    for (int i = 0; i < N / 4; ++i)
        up[i] = i % 3 == 0 ? -0.0F : (float)i;
    x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 4, 6, 13), in);
    use(&shapes[1]);
    for (int i = 0; i < 2; ++i) {
        co_gradient_options o = CO_GRADIENT_OPTIONS_INIT;

        coi_use_reference(ctx, i == 1);
        o.output_gradients = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 2, 3, 13), up);
        co_tape_begin(ctx);
        co_watch(ctx, x);
        both[i] = pool(ctx, &x);
        all[i] = co_gradient_with(ctx, both[i], x, &o);
    }
    coi_use_reference(ctx, false);
    CO_EXPECT_BYTES(co_value_data(ctx, both[0]), co_value_data(ctx, both[1]), sizeof(up));
    CO_EXPECT_BYTES(co_value_data(ctx, all[0]), co_value_data(ctx, all[1]), sizeof(in));
}

/* Called by name, the gradient goes to the first element that is y, and nowhere where none is. */
CO_TEST(max_pool2d_gradients_look_for_y, "")
{
    static const float x[] = { 1, 3, 3, 2 }, y[] = { 3 }, other[] = { 4 }, g[] = { 5 };
    const char        *keys[] = { "ksize", "strides" };
    co_value *two = co_list(ctx, (co_value *[]){ co_int(ctx, 2), co_int(ctx, 2) }, 2), *in[3],
             *grad;

    for (int round = 0; round < 4; ++round) {
        float want[4] = { 0, round < 2 ? 5 : 0, 0, 0 };

        in[0] = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1, 2, 2, 1), x);
        in[1] = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1, 1, 1, 1), round < 2 ? y : other);
        in[2] = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1, 1, 1, 1), g);
        coi_use_reference(ctx, round % 2 == 1);
        grad = co_op_call(ctx, "max_pool2d_grad", co_tuple(ctx, in, 3),
                          co_dict(ctx, keys, (co_value *[]){ two, two }, 2));
        CO_EXPECT_BYTES(co_value_data(ctx, grad), want, sizeof(want));
    }
    coi_use_reference(ctx, false);
    CO_EXPECT_OK(ctx);
}

CO_TEST(max_pool2d_takes_nan_for_the_largest, "")
{
    float     in[] = { 1, NAN, 3, 2 };
    co_value *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1, 2, 2, 1), in);
    float     want[] = { 0, 1, 0, 0 };

    use(&shapes[1]);
    CO_EXPECT_TRUE(isnan(co_item_float(ctx, pool(ctx, &x))));
    co_tape_begin(ctx);
    co_watch(ctx, x);
    CO_EXPECT_BYTES(co_value_data(ctx, co_gradient(ctx, pool(ctx, &x), x)), want, sizeof(want));
}

static co_value *
large(co_context *ctx, co_value *const *in)
{
    co_value *x = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 33, 28, 28, 9 }, 4, 1), *parts[2];

    (void)in;
    use(&shapes[3]);
    parts[0] = co_reshape(ctx, pool(ctx, &x), CO_SHAPE(-1));
    parts[1] = co_reshape(ctx, pool_gradient(ctx, &x), CO_SHAPE(-1));
    return co_concat(ctx, co_tuple(ctx, parts, 2), 0);
}

CO_TEST_BARE(max_pool2d_has_the_same_bits_with_any_number_of_threads, "")
{
    kernel_check_threads(large);
}

CO_TEST(max_pool2d_rejects_bad_arguments, "GEN-ERR-4")
{
    co_value         *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1, 4, 4, 2));
    co_pool2d_options o = CO_POOL2D_OPTIONS_INIT;

    CO_EXPECT_NULL(co_max_pool2d(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(4, 4, 1)), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "4 dimensions");
    o.ksize[0] = 0;
    CO_EXPECT_NULL(co_max_pool2d(ctx, x, &o));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "ksize");
    o = (co_pool2d_options)CO_POOL2D_OPTIONS_INIT;
    o.strides[1] = -2;
    CO_EXPECT_NULL(co_max_pool2d(ctx, x, &o));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "-2");
    o = (co_pool2d_options)CO_POOL2D_OPTIONS_INIT;
    o.padding = CO_PADDING_EXPLICIT;
    CO_EXPECT_NULL(co_max_pool2d(ctx, x, &o));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "VALID or SAME");
}

static void
take_line(co_log_level level, const char *line, void *user)
{
    (void)level;
    snprintf(user, 200, "%s", line);
}

/* As TensorFlow 2.21 does it; its own gradient of max_pool2d is not even initialised there. */
CO_TEST_BARE(a_window_that_fits_nowhere_gives_an_empty_result_and_a_warning, "")
{
    static char line[200];
    co_options  settings = CO_OPTIONS_INIT;

    settings.settings = "log=warning";
    settings.log = take_line;
    settings.log_user = line;
    ctx = co_open_with(&settings);
    for (int average = 0; average < 2; ++average)
        for (int64_t k = 2; k <= 3; ++k)
            for (int64_t stride = 1; stride <= 2; ++stride) {
                co_pool2d_options o = { sizeof(o), { k, k }, { stride, stride }, CO_PADDING_VALID };
                co_value         *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 1, 1, 1)), *y, *g;

                line[0] = '\0';
                co_tape_begin(ctx);
                co_watch(ctx, x);
                y = average ? co_avg_pool2d(ctx, x, &o) : co_max_pool2d(ctx, x, &o);
                if (k >= 1 + 2 * stride) {
                    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                                    "a window of 3 x 3 is too large for 1 x 1");
                    co_tape_end(ctx);
                    continue;
                }
                CO_EXPECT_INT(co_value_dim(ctx, y, 0) + co_value_dim(ctx, y, 3), 2);
                CO_EXPECT_INT(co_value_dim(ctx, y, 1) + co_value_dim(ctx, y, 2), 0);
                CO_EXPECT_CONTAINS(line, average ? "avg_pool2d: no window of"
                                                 : "max_pool2d: no window of");
                CO_EXPECT_CONTAINS(line,
                                   " fits in 1 x 1, so the result is empty; use a smaller window");
                line[0] = '\0';
                g = co_gradient(ctx, y, x);
                CO_EXPECT_CLOSE(co_item_float(ctx, g), 0, 0);
                CO_EXPECT_STR(line, ""); /* once */
                o.padding = CO_PADDING_SAME;
                y = average ? co_avg_pool2d(ctx, x, &o) : co_max_pool2d(ctx, x, &o);
                CO_EXPECT_CLOSE(co_item_float(ctx, y), 1, 0);
                x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(0, 1, 1, 1)); /* a replica without rows */
                o.padding = CO_PADDING_VALID;
                y = average ? co_avg_pool2d(ctx, x, &o) : co_max_pool2d(ctx, x, &o);
                CO_EXPECT_INT(co_value_dim(ctx, y, 0), 0);
                CO_EXPECT_STR(line, "");
            }
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
}
