/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d: fast kernels against plain ones, gradients of two orders, threads, groups, errors. */
#include "config.h"
#include "context/context.h"
#include "kernel_support.h"
#include "ops/kernels/kernel_selection.h"

#include <dlfcn.h>

static co_conv2d_options options = CO_CONV2D_OPTIONS_INIT;

static co_value *
conv(co_context *ctx, co_value *const *in)
{
    return co_conv2d(ctx, in[0], in[1], &options);
}

static co_value *
conv_gradient_x(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, conv, in, 0);
}

static co_value *
conv_gradient_w(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, conv, in, 1);
}

/* The map is linear in each operand; its square is not, so the gradients of this depend on both. */
static co_value *
square_gradient_x(co_context *ctx, co_value *const *in)
{
    co_tape_begin(ctx);
    co_watch(ctx, in[0]);
    return co_gradient(ctx, co_square(ctx, conv(ctx, in)), in[0]);
}

static co_value *
square_gradient_w(co_context *ctx, co_value *const *in)
{
    co_tape_begin(ctx);
    co_watch(ctx, in[1]);
    return co_gradient(ctx, co_square(ctx, conv(ctx, in)), in[1]);
}

typedef struct shape {
    int64_t    n, h, w, c, kh, kw, oc;
    int64_t    strides[2], dilations[2];
    co_padding padding;
    int64_t    pads[4];
} shape;

/* Small ones go through patches, others by the table of ops/kernels/drivers/kernel_selection.c, to
 * oneDNN where it is built in. */
static const shape shapes[] = {
    { 1, 1, 1, 1, 1, 1, 1, { 1, 1 }, { 1, 1 }, CO_PADDING_VALID, { 0 } },
    { 2, 5, 7, 3, 3, 3, 4, { 1, 1 }, { 1, 1 }, CO_PADDING_VALID, { 0 } },
    { 3, 6, 5, 2, 3, 2, 5, { 2, 1 }, { 1, 1 }, CO_PADDING_SAME, { 0 } },
    { 2, 9, 9, 1, 3, 3, 2, { 1, 1 }, { 2, 3 }, CO_PADDING_SAME, { 0 } },
    { 1, 7, 4, 2, 5, 5, 3, { 2, 2 }, { 1, 1 }, CO_PADDING_SAME, { 0 } },
    { 2, 5, 5, 2, 3, 2, 2, { 2, 3 }, { 1, 1 }, CO_PADDING_EXPLICIT, { 2, 0, 1, 4 } },
    { 2, 3, 3, 2, 2, 2, 2, { 1, 1 }, { 1, 1 }, CO_PADDING_EXPLICIT, { 5, 3, 0, 4 } },
    { 4, 6, 6, 8, 1, 1, 16, { 1, 1 }, { 1, 1 }, CO_PADDING_VALID, { 0 } },
    { 7, 28, 28, 1, 3, 3, 32, { 1, 1 }, { 1, 1 }, CO_PADDING_SAME, { 0 } },
    { 13, 14, 14, 32, 3, 3, 64, { 1, 1 }, { 1, 1 }, CO_PADDING_SAME, { 0 } },
    { 5, 15, 17, 13, 3, 5, 29, { 2, 1 }, { 1, 1 }, CO_PADDING_VALID, { 0 } },
    { 9, 11, 11, 16, 1, 1, 64, { 1, 1 }, { 1, 1 }, CO_PADDING_VALID, { 0 } },
    { 3, 20, 20, 8, 3, 3, 24, { 1, 1 }, { 2, 2 }, CO_PADDING_EXPLICIT, { 1, 2, 3, 0 } },
    { 2, 33, 31, 3, 7, 7, 16, { 2, 2 }, { 1, 1 }, CO_PADDING_SAME, { 0 } },
    { 3, 17, 19, 1, 5, 3, 24, { 2, 3 }, { 1, 1 }, CO_PADDING_SAME, { 0 } },
    { 2, 12, 9, 1, 2, 3, 7, { 1, 1 }, { 3, 2 }, CO_PADDING_EXPLICIT, { 4, 0, 2, 5 } },
    { 9, 40, 41, 1, 3, 3, 16, { 1, 1 }, { 1, 1 }, CO_PADDING_VALID, { 0 } },
    { 4, 7, 7, 8, 8, 8, 64, { 1, 1 }, { 1, 1 }, CO_PADDING_SAME, { 0 } }, /* larger than the image
                                                                           */
    { 2, 4, 7, 32, 2, 9, 64, { 1, 1 }, { 1, 1 }, CO_PADDING_SAME, { 0 } },
};

static void
use(const shape *s)
{
    memcpy(options.strides, s->strides, sizeof(s->strides));
    memcpy(options.dilations, s->dilations, sizeof(s->dilations));
    memcpy(options.explicit_paddings, s->pads, sizeof(s->pads));
    options.padding = s->padding;
}

static void
compare_shapes(co_context *ctx, co_dtype dtype, double tolerance)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i)
        CO_BLOCK(ctx) {
            const shape *s = &shapes[i];
            co_value    *in[2];
            bool         ok;

            use(s);
            in[0] = kernel_tensor(ctx, dtype, (int64_t[]){ s->n, s->h, s->w, s->c }, 4, 1);
            in[1] = kernel_tensor(ctx, dtype, (int64_t[]){ s->kh, s->kw, s->c, s->oc }, 4, 2);
            ok = CO_EXPECT_LESS(
                kernel_difference(ctx, conv(ctx, in), kernel_reference(ctx, conv, in)), tolerance);
            ok &= CO_EXPECT_LESS(kernel_difference(ctx, conv_gradient_x(ctx, in),
                                                   kernel_reference(ctx, conv_gradient_x, in)),
                                 tolerance);
            ok &= CO_EXPECT_LESS(kernel_difference(ctx, conv_gradient_w(ctx, in),
                                                   kernel_reference(ctx, conv_gradient_w, in)),
                                 tolerance);
            if (!ok)
                printf("  shape %zu\n", i);
        }
}

CO_TEST(conv2d_float32_agrees_with_the_plain_kernel, "")
{
    compare_shapes(ctx, CO_FLOAT32, 5e-6);
}

CO_TEST(conv2d_float64_agrees_with_the_plain_kernel, "")
{
    compare_shapes(ctx, CO_FLOAT64, 1e-14);
}

/* oneDNN is never used with the baseline: this is the path without it. */
CO_TEST_WITH(conv2d_by_patches_agrees_with_the_plain_kernel, "", "isa=base")
{
    compare_shapes(ctx, CO_FLOAT32, 5e-6);
}

CO_TEST_WITH(conv2d_of_our_own_agrees_with_the_plain_kernel, "", "convolution=own")
{
    compare_shapes(ctx, CO_FLOAT32, 5e-6);
}

CO_TEST_WITH(conv2d_of_onednn_agrees_with_the_plain_kernel, "", "convolution=onednn")
{
    compare_shapes(ctx, CO_FLOAT32, 5e-6);
}

/* Shape, dtype and instruction set, and nothing else. */
CO_TEST_BARE(kernels_of_conv2d_are_chosen_by_the_table, "")
{
    static coi_runtime runtime = { .isa = COI_ISA_V3, .settings = { .convolution = "auto" } };
    coi_conv2d         g = { 64, 28, 28, 1, 3, 3, 1, 32, 28, 28, 1, 1, 1, 1, 1, 1, 1, 1 };

    CO_EXPECT_TRUE(coi_select_onednn(&runtime, COI_CONV2D, CO_FLOAT32, &g));
    CO_EXPECT_FALSE(coi_select_onednn(&runtime, COI_CONV2D_FILTER, CO_FLOAT32, &g));
    CO_EXPECT_FALSE(coi_select_onednn(&runtime, COI_CONV2D_INPUT, CO_FLOAT32, &g));
    CO_EXPECT_FALSE(coi_select_onednn(&runtime, COI_CONV2D, CO_FLOAT64, &g));
    CO_EXPECT_TRUE(coi_select_transposed(COI_CONV2D_FILTER, CO_FLOAT32, &g));
    CO_EXPECT_TRUE(coi_select_transposed(COI_CONV2D, CO_FLOAT32, &g));
    CO_EXPECT_FALSE(coi_select_transposed(COI_CONV2D_INPUT, CO_FLOAT32, &g));
    CO_EXPECT_FALSE(coi_select_transposed(COI_CONV2D_FILTER, CO_FLOAT64, &g));
    g.c = g.ic = 8;
    CO_EXPECT_TRUE(coi_select_onednn(&runtime, COI_CONV2D_INPUT, CO_FLOAT32, &g));
    CO_EXPECT_TRUE(coi_select_onednn(&runtime, COI_CONV2D_FILTER, CO_FLOAT32, &g));
    CO_EXPECT_FALSE(coi_select_transposed(COI_CONV2D_FILTER, CO_FLOAT32, &g));
    g.c = g.ic = 32;
    CO_EXPECT_FALSE(coi_select_onednn(&runtime, COI_CONV2D_FILTER, CO_FLOAT32, &g));
    strcpy(runtime.settings.convolution, "onednn");
    CO_EXPECT_TRUE(coi_select_onednn(&runtime, COI_CONV2D_FILTER, CO_FLOAT32, &g));
    strcpy(runtime.settings.convolution, "own");
    CO_EXPECT_FALSE(coi_select_onednn(&runtime, COI_CONV2D, CO_FLOAT32, &g));
    strcpy(runtime.settings.convolution, "auto");
    runtime.isa = COI_ISA_V4;
    CO_EXPECT_TRUE(coi_select_onednn(&runtime, COI_CONV2D_FILTER, CO_FLOAT32, &g));
    g.c = g.ic = 3;
    CO_EXPECT_TRUE(coi_select_onednn(&runtime, COI_CONV2D_FILTER, CO_FLOAT32, &g));
    CO_EXPECT_FALSE(coi_select_onednn(&runtime, COI_CONV2D_INPUT, CO_FLOAT32, &g));
    CO_EXPECT_TRUE(coi_select_onednn(&runtime, COI_CONV2D, CO_FLOAT32, &g));
    g.c = g.ic = 1;
    CO_EXPECT_FALSE(coi_select_onednn(&runtime, COI_CONV2D, CO_FLOAT32, &g));
    g.sw = 2;
    CO_EXPECT_TRUE(coi_select_onednn(&runtime, COI_CONV2D, CO_FLOAT32, &g));
    CO_EXPECT_FALSE(coi_select_transposed(COI_CONV2D, CO_FLOAT32, &g));
    g.sw = 1;
    g.kh = g.kw = 7;
    CO_EXPECT_TRUE(coi_select_onednn(&runtime, COI_CONV2D, CO_FLOAT32, &g));
    g.w = 6;
    CO_EXPECT_FALSE(coi_select_onednn(&runtime, COI_CONV2D, CO_FLOAT32, &g));
    runtime.isa = COI_ISA_BASE;
    CO_EXPECT_FALSE(coi_select_onednn(&runtime, COI_CONV2D, CO_FLOAT32, &g));
    runtime.isa = COI_ISA_V4;
    g.n = g.oh = 1;
    CO_EXPECT_FALSE(coi_select_onednn(&runtime, COI_CONV2D, CO_FLOAT32, &g));
}

CO_TEST(conv2d_of_half_floats_rounds_once, "")
{
    co_value *in[2];

    use(&shapes[1]);
    in[0] = kernel_tensor(ctx, CO_FLOAT16, (int64_t[]){ 2, 5, 7, 3 }, 4, 1);
    in[1] = kernel_tensor(ctx, CO_FLOAT16, (int64_t[]){ 3, 3, 3, 4 }, 4, 2);
    CO_EXPECT_LESS(kernel_difference(ctx, conv(ctx, in), kernel_reference(ctx, conv, in)), 1e-3);
}

CO_TEST(conv2d_has_gradients_of_gradients, "")
{
    static const int both[] = { 0, 1 };

    for (size_t i = 1; i < 7; ++i)
        CO_BLOCK(ctx) {
            const shape *s = &shapes[i];
            co_value    *in[2];

            use(s);
            in[0] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 1, s->h, s->w, s->c }, 4, 1);
            in[1] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ s->kh, s->kw, s->c, 2 }, 4, 2);
            kernel_check_gradients(ctx, conv, in, 2, both, 2);
            kernel_check_gradients(ctx, square_gradient_x, in, 2, both, 2);
            kernel_check_gradients(ctx, square_gradient_w, in, 2, both, 2);
        }
}

/* Two groups: each half of the channels has its own half of the filters. */
CO_TEST(conv2d_in_groups_is_two_convolutions, "")
{
    static const int both[] = { 0, 1 };
    co_value        *in[2], *x[2], *w[2], *parts[2];

    use(&shapes[1]);
    in[0] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 2, 4, 4, 6 }, 4, 1);
    in[1] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 2, 2, 3, 4 }, 4, 2);
    for (int64_t g = 0; g < 2; ++g) {
        x[g] = co_slice(ctx, in[0], (int64_t[]){ 0, 0, 0, 3 * g }, (int64_t[]){ -1, -1, -1, 3 }, 4);
        w[g] = co_slice(ctx, in[1], (int64_t[]){ 0, 0, 0, 2 * g }, (int64_t[]){ -1, -1, -1, 2 }, 4);
        parts[g] = co_conv2d(ctx, x[g], w[g], &options);
    }
    CO_EXPECT_LESS(
        kernel_difference(ctx, conv(ctx, in), co_concat(ctx, co_tuple(ctx, parts, 2), 3)), 1e-14);
    kernel_check_gradients(ctx, conv, in, 2, both, 2);
}

CO_TEST(conv2d_with_a_window_larger_than_the_input_is_empty, "")
{
    co_value *in[2], *y;

    use(&shapes[1]);
    in[0] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 2, 2, 2, 1 }, 4, 1);
    in[1] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 3, 3, 1, 1 }, 4, 2);
    y = conv(ctx, in);
    CO_EXPECT_INT(co_value_num_elements(ctx, y), 0);
    CO_EXPECT_INT(co_value_dim(ctx, y, 1), 0);
    CO_EXPECT_CLOSE(
        co_item_float(ctx, co_reduce_sum(ctx, conv_gradient_w(ctx, in), CO_ALL_AXES, false)), 0, 0);
}

static co_value *
large(co_context *ctx, co_value *const *in)
{
    co_value *own[2], *parts[3];

    (void)in;
    use(&shapes[9]);
    own[0] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 37, 14, 14, 32 }, 4, 1);
    own[1] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 3, 3, 32, 64 }, 4, 2);
    parts[0] = co_reshape(ctx, conv(ctx, own), CO_SHAPE(-1));
    parts[1] = co_reshape(ctx, conv_gradient_x(ctx, own), CO_SHAPE(-1));
    parts[2] = co_reshape(ctx, conv_gradient_w(ctx, own), CO_SHAPE(-1));
    return co_concat(ctx, co_tuple(ctx, parts, 3), 0);
}

static co_value *
large_double(co_context *ctx, co_value *const *in)
{
    co_value *own[2], *parts[3];

    (void)in;
    use(&shapes[10]);
    own[0] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 19, 15, 17, 13 }, 4, 1);
    own[1] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 3, 5, 13, 29 }, 4, 2);
    parts[0] = co_reshape(ctx, conv(ctx, own), CO_SHAPE(-1));
    parts[1] = co_reshape(ctx, conv_gradient_x(ctx, own), CO_SHAPE(-1));
    parts[2] = co_reshape(ctx, conv_gradient_w(ctx, own), CO_SHAPE(-1));
    return co_concat(ctx, co_tuple(ctx, parts, 3), 0);
}

CO_TEST_BARE(conv2d_has_the_same_bits_with_any_number_of_threads, "")
{
    kernel_check_threads(large);
    kernel_check_threads(large_double);
}

CO_TEST(conv2d_allocates_nothing_in_steady_state, "")
{
    co_value       *in[2];
    co_memory_stats before = { sizeof(before), 0, 0, 0, 0 }, after = before;

    if (TEST_SANITIZED)
        CO_SKIP("in sanitized builds every value is an allocation");
    use(&shapes[9]);
    in[0] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 8, 14, 14, 32 }, 4, 1);
    in[1] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 3, 3, 32, 64 }, 4, 2);
    for (int i = 0; i < 20; ++i) {
        CO_BLOCK(ctx) {
            co_value *y;

            co_tape_begin_persistent(ctx);
            co_watch(ctx, in[0]);
            co_watch(ctx, in[1]);
            y = conv(ctx, in);
            co_gradient(ctx, y, co_tuple(ctx, in, 2));
            co_tape_end(ctx);
        }
        if (i == 9)
            co_get_memory_stats(ctx, &before);
    }
    co_get_memory_stats(ctx, &after);
    /* A worker may meet the scratch of another for the first time: a handful, not one per step. */
    CO_EXPECT_LESS(after.system_allocations - before.system_allocations, 5);
}

static bool
convolve_once(co_context *ctx)
{
    co_value *in[2];

    use(&shapes[9]);
    in[0] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 2, 14, 14, 32 }, 4, 1);
    in[1] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 3, 3, 32, 8 }, 4, 2);
    return conv_gradient_w(ctx, in) != NULL && conv(ctx, in) != NULL;
}

CO_TEST_BARE(conv2d_survives_no_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, convolve_once);
}

static co_context *
open_logged(const char *settings, co_log_fn log, void *user)
{
    co_options o = CO_OPTIONS_INIT;

    o.settings = settings;
    o.log = log;
    o.log_user = user;
    return co_open_with(&o);
}

static void
count_warnings(co_log_level level, const char *line, void *user)
{
    int *count = user;

    if (level == CO_LOG_WARNING && strstr(line, "oneDNN has no optimised kernel") != NULL)
        ++*count;
}

/* oneDNN would take its reference kernel for the gradients of a 31 x 31 filter on one channel. */
CO_TEST_BARE(conv2d_notices_a_reference_kernel_of_onednn, "")
{
    int         warnings = 0;
    co_context *ctx_of_log = open_logged("log=warning, isa=auto, convolution=onednn",
                                         count_warnings, &warnings);
    co_value   *in[2];

    if (!COI_HAVE_ONEDNN || ctx_of_log->runtime->isa == COI_ISA_BASE) {
        co_close(ctx_of_log);
        CO_SKIP("built without oneDNN, or the processor lacks v3");
    }
    use(&shapes[1]);
    in[0] = kernel_tensor(ctx_of_log, CO_FLOAT32, (int64_t[]){ 1, 80, 80, 1 }, 4, 1);
    in[1] = kernel_tensor(ctx_of_log, CO_FLOAT32, (int64_t[]){ 31, 31, 1, 1 }, 4, 2);
    for (int i = 0; i < 2; ++i) {
        CO_EXPECT_LESS(kernel_difference(ctx_of_log, conv_gradient_x(ctx_of_log, in),
                                         kernel_reference(ctx_of_log, conv_gradient_x, in)),
                       5e-6);
        CO_EXPECT_LESS(kernel_difference(ctx_of_log, conv_gradient_w(ctx_of_log, in),
                                         kernel_reference(ctx_of_log, conv_gradient_w, in)),
                       5e-6);
    }
    CO_EXPECT_INT(warnings, 1);
    CO_EXPECT_CODE(co_close(ctx_of_log), CO_OK);
}

/* The lines of a debug log that say who convolved, and what of float32 computed halves. */
typedef struct said {
    int patches, onednn, places, widened;
} said;

static void
count_kernels(co_log_level level, const char *line, void *user)
{
    said *count = user;

    if (level != CO_LOG_DEBUG)
        return;
    count->patches += strstr(line, "conv2d: by own im2col and GEMM") != NULL;
    count->places += strstr(line, "conv2d: by own sums over the places of the filter") != NULL;
    count->onednn += strstr(line, "conv2d: by oneDNN, kernel ") != NULL;
    count->widened += strstr(line, " of float32 on ") != NULL;
}

CO_TEST_BARE(the_debug_log_says_who_convolved_each_time, "")
{
    said        count = { 0, 0, 0, 0 };
    co_context *ctx_of_log = open_logged("log=debug", count_kernels, &count);
    co_value   *in[2];

    use(&shapes[1]);
    in[0] = kernel_tensor(ctx_of_log, CO_FLOAT64, (int64_t[]){ 1, 8, 8, 4 }, 4, 1);
    in[1] = kernel_tensor(ctx_of_log, CO_FLOAT64, (int64_t[]){ 3, 3, 4, 2 }, 4, 2);
    for (int i = 0; i < 3; ++i)
        conv(ctx_of_log, in);
    CO_EXPECT_INT(count.patches, 3);
    in[1] = kernel_tensor(ctx_of_log, CO_FLOAT64, (int64_t[]){ 3, 3, 2, 2 }, 4, 2);
    conv(ctx_of_log, in);
    CO_EXPECT_INT(count.places, 1);
    in[0] = kernel_tensor(ctx_of_log, CO_FLOAT16, (int64_t[]){ 16, 28, 28, 8 }, 4, 1);
    in[1] = kernel_tensor(ctx_of_log, CO_FLOAT16, (int64_t[]){ 3, 3, 8, 16 }, 4, 2);
    for (int i = 0; i < 2; ++i)
        conv(ctx_of_log, in);
    CO_EXPECT_INT(count.widened, 2);
    CO_EXPECT_INT(count.onednn + count.patches, 3 + 2);
    CO_EXPECT_CODE(co_close(ctx_of_log), CO_OK);
}

/* A host program's number of OpenMP threads is its own. */
CO_TEST(conv2d_leaves_openmp_as_it_was, "")
{
    int (*get)(void);
    void (*set)(int);
    co_value *in[2];

    *(void **)&get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (get == NULL || set == NULL)
        CO_SKIP("there is no OpenMP in this process");
    use(&shapes[9]);
    in[0] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 8, 14, 14, 32 }, 4, 1);
    in[1] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 3, 3, 32, 64 }, 4, 2);
    set(3);
    conv(ctx, in);
    conv_gradient_w(ctx, in);
    CO_EXPECT_INT(get(), 3);
}

/* More shapes than primitives are kept: the oldest go, and come back when they are needed again. */
CO_TEST(conv2d_of_very_many_shapes, "")
{
    co_value *x = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 1, 300, 40, 8 }, 4, 1), *in[2];
    double    first = 0;

    use(&shapes[1]);
    in[1] = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ 3, 3, 8, 16 }, 4, 2);
    for (int64_t h = 299; h >= 28; --h)
        CO_BLOCK(ctx) {
            double sum;

            in[0] = co_slice(ctx, x, (int64_t[]){ 0, 0, 0, 0 },
                             (int64_t[]){ 1, h == 28 ? 299 : h, 40, 8 }, 4);
            sum = co_item_float(ctx, co_reduce_sum(ctx, conv(ctx, in), CO_ALL_AXES, false));
            if (h == 299)
                first = sum;
            else if (h == 28)
                CO_EXPECT_CLOSE(sum, first, 0);
        }
}

/* What each wrong argument is answered with. */
static void
expect_refusal(co_context *ctx, co_value *x, co_value *w, const co_conv2d_options *o,
               const char *part)
{
    CO_EXPECT_NULL(co_conv2d(ctx, x, w, o));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, part);
}

CO_TEST(conv2d_rejects_bad_arguments, "GEN-ERR-4")
{
    co_value         *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1, 4, 4, 2));
    co_value         *w = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3, 3, 2, 1));
    co_conv2d_options o = CO_CONV2D_OPTIONS_INIT;

    expect_refusal(ctx, x, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3, 3, 3, 1)), NULL, "channels");
    expect_refusal(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(4, 4, 2)), w, NULL, "4 dimensions");
    expect_refusal(ctx, x, co_zeros(ctx, CO_FLOAT64, CO_SHAPE(3, 3, 2, 1)), NULL, "float64");
    expect_refusal(ctx, x, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0, 3, 2, 1)), NULL, "at least 1");
    o.strides[1] = 0;
    expect_refusal(ctx, x, w, &o, "strides");
    o = (co_conv2d_options)CO_CONV2D_OPTIONS_INIT;
    o.dilations[0] = -1;
    expect_refusal(ctx, x, w, &o, "dilations");
    o = (co_conv2d_options)CO_CONV2D_OPTIONS_INIT;
    o.padding = CO_PADDING_EXPLICIT;
    o.explicit_paddings[2] = -3;
    expect_refusal(ctx, x, w, &o, "-3");
    o.padding = (co_padding)7;
    expect_refusal(ctx, x, w, &o, "padding is 7");
}
