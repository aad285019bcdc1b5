/* SPDX-License-Identifier: Apache-2.0 */
/* softmax and cross entropy: against the plain kernels, gradients of two orders, extremes, threads,
 * errors. */
#include "context/context.h"
#include "kernel_support.h"

static int axis;

static co_value *
softmax(co_context *ctx, co_value *const *in)
{
    return co_softmax(ctx, in[0], axis);
}

static co_value *
softmax_gradient(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, softmax, in, 0);
}

static co_value *
cross_entropy(co_context *ctx, co_value *const *in)
{
    return co_sparse_softmax_cross_entropy(ctx, in[0], in[1]);
}

static co_value *
cross_entropy_gradient(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, cross_entropy, in, 1);
}

/* Labels 0, 3, 6, ... modulo the classes. */
static co_value *
labels(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim, int64_t num_classes)
{
    int64_t   n = 1, *data;
    co_value *result;

    for (int i = 0; i < ndim; ++i)
        n *= dims[i];
    data = malloc((size_t)(n + 1) * sizeof(*data));
    for (int64_t i = 0; i < n; ++i)
        data[i] = i * 3 % num_classes;
    result = co_cast(ctx, co_tensor(ctx, CO_INT64, dims, ndim, data), dtype);
    free(data);
    return result;
}

CO_TEST(softmax_agrees_with_the_plain_kernel, "")
{
    static const int64_t dims[] = { 1, 2, 3, 10, 15, 16, 17, 100, 2049, 5000 };

    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); ++i)
        for (int64_t other = 1; other < 200; other = other * 5 + 2)
            for (axis = 0; axis < 2; ++axis)
                CO_BLOCK(ctx) {
                    int64_t shape[2] = { axis == 0 ? dims[i] : other, axis == 0 ? other : dims[i] };
                    co_value *x = co_mul(ctx, kernel_tensor(ctx, CO_FLOAT32, shape, 2, 3),
                                         co_float(ctx, 20));
                    co_value *y = co_softmax(ctx, x, axis);

                    CO_EXPECT_LESS(kernel_difference(ctx, y, kernel_reference(ctx, softmax, &x)),
                                   4e-7);
                    CO_EXPECT_LESS(kernel_difference(ctx, softmax_gradient(ctx, &x),
                                                     kernel_reference(ctx, softmax_gradient, &x)),
                                   4e-7);
                }
}

CO_TEST(softmax_of_half_floats_rounds_once, "")
{
    co_value *x = kernel_tensor(ctx, CO_FLOAT16, (int64_t[]){ 3, 7 }, 2, 1);
    co_value *z = kernel_tensor(ctx, CO_BFLOAT16, (int64_t[]){ 3, 7 }, 2, 1);

    axis = -1;
    CO_EXPECT_LESS(
        kernel_difference(ctx, co_softmax(ctx, x, -1), kernel_reference(ctx, softmax, &x)), 1e-3);
    CO_EXPECT_LESS(
        kernel_difference(ctx, co_softmax(ctx, z, -1), kernel_reference(ctx, softmax, &z)), 8e-3);
}

CO_TEST(softmax_keeps_infinities_and_nan, "")
{
    float   in[] = { 0, -INFINITY, 0, NAN, 1, 2, INFINITY, 1, 2, -1e30f, 1e30f, 0 };
    float   want[] = { 0.5f, 0, 0.5f, NAN, NAN, NAN, NAN, NAN, NAN, 0, 1, 0 };
    int64_t n;
    double *got = kernel_read(ctx,
                              co_softmax(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4, 3), in), -1),
                              &n);

    /* exp(-inf) / nan: where the maximum is infinite, the whole row is NaN, as exp(inf - inf)
     * is. */
    for (int i = 0; i < 12; ++i)
        CO_EXPECT_CLOSE(got[i], want[i], 0);
    free(got);
}

/* exp(x - max) from 1 down to what no float holds: 4 units of the last place, and 0 where it would
 * be subnormal. */
CO_TEST(softmax_is_accurate_down_to_zero, "")
{
    enum { LONG = 1200 };
    float row[LONG];

    for (int64_t dim = 12; dim <= LONG; dim *= 10)
        CO_BLOCK(ctx) {
            long double  sum = 0;
            const float *y;

            for (int i = 0; i < dim; ++i) {
                row[i] = i == 0 ? 0.0F : -110.0F * (float)i / (float)dim;
                row[i] = i == dim - 1 ? -INFINITY : i == dim - 2 ? -3e38F : row[i];
                sum += expl(row[i]);
            }
            y = co_value_data(ctx, co_softmax(ctx, co_tensor(ctx, CO_FLOAT32, &dim, 1, row), -1));
            for (int i = 0; i < dim; ++i) {
                double truth = (double)(expl(row[i]) / sum);

                CO_EXPECT_CLOSE((double)y[i], truth, 4 * truth * 0x1p-23 + 0x1p-126);
            }
            CO_EXPECT_TRUE(y[dim - 1] == 0 && y[dim - 2] == 0);
        }
}

CO_TEST(softmax_has_gradients_of_gradients, "")
{
    static const int first[] = { 0 };
    co_value        *x = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 2, 3, 4 }, 3, 1);

    for (axis = -1; axis < 3; ++axis) {
        kernel_check_gradients(ctx, softmax, &x, 1, first, 1);
        kernel_check_gradients(ctx, softmax_gradient, &x, 1, first, 1);
    }
}

CO_TEST(cross_entropy_agrees_with_the_plain_kernel, "")
{
    static const int64_t classes[] = { 1, 2, 10, 17, 1000, 2048, 2049, 9000 };

    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); ++i)
        for (int64_t rows = 1; rows < 400; rows = rows * 7 + 1)
            CO_BLOCK(ctx) {
                co_value *in[2];

                in[0] = labels(ctx, i % 2 ? CO_INT32 : CO_INT64, &rows, 1, classes[i]);
                in[1] = co_mul(
                    ctx, kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ rows, classes[i] }, 2, 3),
                    co_float(ctx, 30));
                CO_EXPECT_LESS(kernel_difference(ctx, cross_entropy(ctx, in),
                                                 kernel_reference(ctx, cross_entropy, in)),
                               4e-7);
                CO_EXPECT_LESS(kernel_difference(ctx, cross_entropy_gradient(ctx, in),
                                                 kernel_reference(ctx, cross_entropy_gradient, in)),
                               4e-7);
            }
}

/* While a tape is open another kernel runs, which keeps its exponentials; nobody should see that in
 * the losses. */
CO_TEST(cross_entropy_has_the_same_bits_on_a_tape, "")
{
    for (int64_t classes = 3; classes < 3000; classes = classes * 5 + 1) {
        int64_t   rows = 131;
        co_value *in[2] = { labels(ctx, CO_INT64, &rows, 1, classes),
                            kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ rows, classes }, 2, 3) };
        co_value *off = cross_entropy(ctx, in), *on;

        co_tape_begin(ctx);
        on = cross_entropy(ctx, in);
        CO_EXPECT_BYTES(co_value_data(ctx, on), co_value_data(ctx, off),
                        (size_t)rows * sizeof(float));
        co_watch(ctx, in[1]);
        CO_EXPECT_NULL(co_sparse_softmax_cross_entropy(ctx, co_int(ctx, 7), in[1]));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "sparse_softmax_cross_entropy_with_logits");
    }
}

/* Halves keep nothing: their gradient computes the exponentials again, in float32. */
CO_TEST(cross_entropy_of_halves_has_gradients, "")
{
    static const co_dtype dtypes[] = { CO_FLOAT16, CO_BFLOAT16 };
    static const double   units[] = { 1e-3, 8e-3 };

    for (int i = 0; i < 2; ++i)
        for (int64_t classes = 7; classes < 100; classes += 90) {
            int64_t   rows = 5;
            co_value *in[2] = { labels(ctx, CO_INT32, &rows, 1, classes),
                                kernel_tensor(ctx, dtypes[i], (int64_t[]){ rows, classes }, 2, 1) };

            CO_EXPECT_LESS(kernel_difference(ctx, cross_entropy(ctx, in),
                                             kernel_reference(ctx, cross_entropy, in)),
                           units[i]);
            CO_EXPECT_LESS(kernel_difference(ctx, cross_entropy_gradient(ctx, in),
                                             kernel_reference(ctx, cross_entropy_gradient, in)),
                           units[i]);
        }
}

/* Labels that are probabilities. */

static co_value *
soft_entropy(co_context *ctx, co_value *const *in)
{
    return co_softmax_cross_entropy(ctx, in[0], in[1], axis);
}

static co_value *
soft_gradient(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, soft_entropy, in, 1);
}

static co_value *
soft_label_gradient(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, soft_entropy, in, 0);
}

static void
make_soft(co_context *ctx, co_dtype dtype, int64_t rows, int64_t classes, co_value **in)
{
    const int64_t dims[2] = { rows, classes };

    in[0] = co_softmax(ctx, kernel_tensor(ctx, dtype, dims, 2, 4), -1);
    in[1] = co_mul(ctx, kernel_tensor(ctx, dtype, dims, 2, 3), co_float(ctx, 8));
}

CO_TEST(soft_cross_entropy_agrees_with_the_plain_kernel, "")
{
    static const int64_t classes[] = { 1, 2, 10, 31, 32, 33, 1000, 2049, 9000 };

    axis = -1;
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); ++i)
        for (int64_t rows = 1; rows < 400; rows = rows * 7 + 1)
            CO_BLOCK(ctx) {
                co_value *in[2];

                for (int wide = 0; wide < 2; ++wide) {
                    double limit = wide ? 1e-14 : 1e-6;

                    make_soft(ctx, wide ? CO_FLOAT64 : CO_FLOAT32, rows, classes[i], in);
                    CO_EXPECT_LESS(kernel_difference(ctx, soft_entropy(ctx, in),
                                                     kernel_reference(ctx, soft_entropy, in)),
                                   limit);
                    CO_EXPECT_LESS(kernel_difference(ctx, soft_gradient(ctx, in),
                                                     kernel_reference(ctx, soft_gradient, in)),
                                   limit);
                    CO_EXPECT_LESS(kernel_difference(ctx, soft_label_gradient(ctx, in),
                                                     kernel_reference(ctx, soft_label_gradient,
                                                                      in)),
                                   limit);
                }
            }
}

/* Along another axis it is a composition, and with one label a row it is the sparse one. */
CO_TEST(soft_cross_entropy_agrees_with_its_other_forms, "")
{
    int64_t   rows = 37, classes = 21;
    co_value *in[2], *transposed[2], *y, *g;

    make_soft(ctx, CO_FLOAT32, rows, classes, in);
    for (int i = 0; i < 2; ++i)
        transposed[i] = co_transpose(ctx, in[i], NULL, 0);
    axis = 1;
    y = soft_entropy(ctx, in);
    g = soft_gradient(ctx, in);
    axis = 0;
    CO_EXPECT_LESS(kernel_difference(ctx, y, soft_entropy(ctx, transposed)), 1e-6);
    CO_EXPECT_LESS(kernel_difference(ctx, g,
                                     co_transpose(ctx, soft_gradient(ctx, transposed), NULL, 0)),
                   1e-6);
    in[0] = labels(ctx, CO_INT64, &rows, 1, classes);
    transposed[0] = co_one_hot(ctx, in[0], classes, NULL);
    transposed[1] = in[1];
    axis = -1;
    CO_EXPECT_LESS(kernel_difference(ctx, cross_entropy(ctx, in), soft_entropy(ctx, transposed)),
                   1e-6);
    CO_EXPECT_LESS(kernel_difference(ctx, cross_entropy_gradient(ctx, in),
                                     soft_gradient(ctx, transposed)),
                   1e-6);
}

/* On a tape it keeps its exponentials, on a persistent one its gradient is a composition: no
 * difference that anybody sees. */
CO_TEST(soft_cross_entropy_is_the_same_on_tapes, "")
{
    axis = -1;
    for (int64_t classes = 3; classes < 3000; classes = classes * 5 + 1) {
        co_value *in[2], *off, *on, *g;

        make_soft(ctx, CO_FLOAT32, 131, classes, in);
        off = soft_entropy(ctx, in);
        co_tape_begin_persistent(ctx);
        co_watch(ctx, in[1]);
        on = soft_entropy(ctx, in);
        CO_EXPECT_BYTES(co_value_data(ctx, on), co_value_data(ctx, off), 131 * sizeof(float));
        g = co_gradient(ctx, kernel_loss(ctx, soft_entropy, in), in[1]);
        co_tape_end(ctx);
        CO_EXPECT_LESS(kernel_difference(ctx, g, soft_gradient(ctx, in)), 1e-6);
    }
}

CO_TEST(soft_cross_entropy_of_halves_rounds_once, "")
{
    static const double units[] = { 1e-3, 8e-3 };

    axis = -1;
    for (int i = 0; i < 2; ++i) {
        co_value *in[2];

        make_soft(ctx, i == 0 ? CO_FLOAT16 : CO_BFLOAT16, 29, 40, in);
        CO_EXPECT_LESS(kernel_difference(ctx, soft_entropy(ctx, in),
                                         kernel_reference(ctx, soft_entropy, in)),
                       units[i]);
        CO_EXPECT_LESS(kernel_difference(ctx, soft_gradient(ctx, in),
                                         kernel_reference(ctx, soft_gradient, in)),
                       units[i]);
    }
}

CO_TEST(soft_cross_entropy_of_nothing, "")
{
    axis = -1;
    for (int64_t rows = 0; rows < 4; rows += 3) {
        co_value *in[2], *y;

        make_soft(ctx, CO_FLOAT32, rows, 3 - rows, in);
        y = soft_entropy(ctx, in);
        CO_EXPECT_INT(co_value_num_elements(ctx, y), rows);
        for (int64_t i = 0; i < rows; ++i) /* a sum of no classes */
            CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, y))[i], 0, 0);
        CO_EXPECT_INT(co_value_num_elements(ctx, soft_gradient(ctx, in)), 0);
        CO_EXPECT_OK(ctx);
    }
}

CO_TEST(cross_entropy_of_no_rows_has_an_empty_gradient, "")
{
    co_value *logits = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0, 3)), *gradient;

    co_tape_begin(ctx);
    co_watch(ctx, logits);
    gradient = co_gradient(
        ctx, co_sparse_softmax_cross_entropy(ctx, co_zeros(ctx, CO_INT32, CO_SHAPE(0)), logits),
        logits);
    CO_EXPECT_TRUE(co_ok(ctx) && co_value_kind(gradient) == CO_KIND_TENSOR);
    CO_EXPECT_INT(co_value_num_elements(ctx, gradient), 0);
}

CO_TEST(cross_entropy_has_gradients_of_gradients, "")
{
    static const int second[] = { 1 };
    co_value        *in[2];

    in[0] = labels(ctx, CO_INT32, (int64_t[]){ 2, 3 }, 2, 4);
    in[1] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 2, 3, 4 }, 3, 1);
    kernel_check_gradients(ctx, cross_entropy, in, 2, second, 1);
    kernel_check_gradients(ctx, cross_entropy_gradient, in, 2, second, 1);
}

/* Third order: through the softmax inside the second. */
static co_value *
cross_entropy_curvature(co_context *ctx, co_value *const *in)
{
    return kernel_gradient(ctx, cross_entropy_gradient, in, 1);
}

CO_TEST(cross_entropy_has_third_derivatives, "")
{
    static const int second[] = { 1 };
    co_value        *in[2];

    in[0] = labels(ctx, CO_INT64, (int64_t[]){ 2 }, 1, 3);
    in[1] = kernel_tensor(ctx, CO_FLOAT64, (int64_t[]){ 2, 3 }, 2, 1);
    kernel_check_gradients(ctx, cross_entropy_curvature, in, 2, second, 1);
}

static co_value *
large(co_context *ctx, co_value *const *in)
{
    int64_t   rows = 3001;
    co_value *logits = kernel_tensor(ctx, CO_FLOAT32, (int64_t[]){ rows, 37 }, 2, 3);
    co_value *both[2];

    (void)in;
    both[0] = labels(ctx, CO_INT32, &rows, 1, 37);
    both[1] = logits;
    return co_concat(
        ctx,
        co_tuple(ctx,
                 (co_value *[]){ co_reshape(ctx, cross_entropy(ctx, both), CO_SHAPE(-1)),
                                 co_reshape(ctx, cross_entropy_gradient(ctx, both), CO_SHAPE(-1)),
                                 co_reshape(ctx, co_softmax(ctx, logits, 0), CO_SHAPE(-1)) },
                 3),
        0);
}

CO_TEST_BARE(softmax_has_the_same_bits_with_any_number_of_threads, "")
{
    kernel_check_threads(large);
}

CO_TEST(softmax_and_cross_entropy_reject_bad_arguments, "GEN-ERR-4")
{
    co_value *logits = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 3));
    int32_t   bad[2] = { 0, 3 }, negative[2] = { -1, 0 };

    CO_EXPECT_NULL(co_softmax(ctx, logits, 2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "axis 2");
    CO_EXPECT_NULL(co_softmax(ctx, co_scalar_float(ctx, 1), 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "rank 0");
    CO_EXPECT_NULL(co_softmax(ctx, co_zeros(ctx, CO_INT32, CO_SHAPE(2)), 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "int32");
    CO_EXPECT_NULL(
        co_sparse_softmax_cross_entropy(ctx, co_tensor(ctx, CO_INT32, CO_SHAPE(2), bad), logits));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "label 3 at position 1");
    CO_EXPECT_NULL(co_sparse_softmax_cross_entropy(
        ctx, co_tensor(ctx, CO_INT32, CO_SHAPE(2), negative), logits));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "label -1");
    CO_EXPECT_NULL(co_sparse_softmax_cross_entropy(ctx, logits, logits));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "float32");
    CO_EXPECT_NULL(
        co_sparse_softmax_cross_entropy(ctx, co_zeros(ctx, CO_INT32, CO_SHAPE(2, 1)), logits));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[2,1]");
    CO_EXPECT_NULL(co_sparse_softmax_cross_entropy(ctx, co_zeros(ctx, CO_INT32, CO_SHAPE(2)),
                                                   co_zeros(ctx, CO_INT32, CO_SHAPE(2, 3))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "logits are int32");
}
