/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of operators, first and second, against finite differences in float64. A case is a
 * function of one or two tensors; what is differentiated is the sum of its result weighed with
 * fixed numbers.
 */
#include "ops_support.h"

#include "ops/engine/op.h"

typedef co_value *(*case_fn)(co_context *ctx, co_value *const *x);

#define UNARY_CASE(name)                                                                           \
    static co_value *f_##name(co_context *ctx, co_value *const *x)                                 \
    {                                                                                              \
        return co_##name(ctx, x[0]);                                                               \
    }
#define BINARY_CASE(name)                                                                          \
    static co_value *f_##name(co_context *ctx, co_value *const *x)                                 \
    {                                                                                              \
        return co_##name(ctx, x[0], x[1]);                                                         \
    }
UNARY_CASE(neg)
UNARY_CASE(square)
UNARY_CASE(sqrt)
UNARY_CASE(exp)
UNARY_CASE(log)
UNARY_CASE(tanh)
UNARY_CASE(sigmoid)
UNARY_CASE(relu)
UNARY_CASE(identity)
UNARY_CASE(abs)
UNARY_CASE(rsqrt)
UNARY_CASE(reciprocal)
UNARY_CASE(log1p)
UNARY_CASE(expm1)
UNARY_CASE(sin)
UNARY_CASE(cos)
UNARY_CASE(tan)
UNARY_CASE(erf)
UNARY_CASE(relu6)
UNARY_CASE(elu)
UNARY_CASE(selu)
UNARY_CASE(softplus)
UNARY_CASE(softsign)
UNARY_CASE(silu)
UNARY_CASE(log_sigmoid)
BINARY_CASE(add)
BINARY_CASE(sub)
BINARY_CASE(mul)
BINARY_CASE(div)
BINARY_CASE(maximum)
BINARY_CASE(minimum)
BINARY_CASE(mod)
BINARY_CASE(pow)
BINARY_CASE(squared_difference)

static co_value *
f_gelu(co_context *ctx, co_value *const *x)
{
    return co_gelu(ctx, x[0], false);
}

static co_value *
f_gelu_tanh(co_context *ctx, co_value *const *x)
{
    return co_gelu(ctx, x[0], true);
}

static co_value *
f_leaky_relu(co_context *ctx, co_value *const *x)
{
    return co_leaky_relu(ctx, x[0], 0.3);
}

static co_value *
f_sum_all(co_context *ctx, co_value *const *x)
{
    return co_reduce_sum(ctx, x[0], CO_ALL_AXES, false);
}

static co_value *
f_sum_some(co_context *ctx, co_value *const *x)
{
    return co_reduce_sum(ctx, x[0], CO_AXES(0, -1), true);
}

static co_value *
f_mean(co_context *ctx, co_value *const *x)
{
    return co_reduce_mean(ctx, x[0], CO_AXES(1), false);
}

static co_value *
f_mean_squares(co_context *ctx, co_value *const *x)
{
    return co_reduce_mean(ctx, co_square(ctx, x[0]), CO_ALL_AXES, false);
}

static co_value *
f_max(co_context *ctx, co_value *const *x)
{
    return co_reduce_max(ctx, x[0], CO_AXES(1), false);
}

static co_value *
f_reshape(co_context *ctx, co_value *const *x)
{
    return co_square(ctx, co_reshape(ctx, x[0], CO_SHAPE(3, -1)));
}

static co_value *
f_expand_dims(co_context *ctx, co_value *const *x)
{
    return co_expand_dims(ctx, x[0], -2);
}

static co_value *
f_transpose(co_context *ctx, co_value *const *x)
{
    return co_exp(ctx, co_transpose(ctx, x[0], CO_AXES(1, 2, 0)));
}

static co_value *
f_broadcast_to(co_context *ctx, co_value *const *x)
{
    return co_square(ctx, co_broadcast_to(ctx, x[0], CO_SHAPE(2, 2, 3, 4)));
}

static co_value *
f_concat(co_context *ctx, co_value *const *x)
{
    return co_square(ctx, co_concat(ctx, co_args(ctx, x[0], x[1], x[0]), -2));
}

static co_value *
f_slice(co_context *ctx, co_value *const *x)
{
    return co_square(ctx, co_slice(ctx, x[0], (const int64_t[]){ 1, 0, 2 },
                                   (const int64_t[]){ 1, 2, -1 }, 3));
}

static co_value *
gathered(co_context *ctx, co_value *params, int axis, int batch_dims, const int64_t *dims, int ndim)
{
    static const int32_t at[] = { 1, 0, 1, 1, 0, 1, 0, 0 };

    return co_square(ctx, co_gather(ctx, params, co_tensor(ctx, CO_INT32, dims, ndim, at), axis,
                                    batch_dims));
}

static co_value *
f_gather_rows(co_context *ctx, co_value *const *x)
{
    return gathered(ctx, x[0], 0, 0, (const int64_t[]){ 2, 2 }, 2);
}

static co_value *
f_gather_inner(co_context *ctx, co_value *const *x)
{
    return gathered(ctx, x[0], 2, 0, (const int64_t[]){ 3 }, 1);
}

static co_value *
f_gather_batch(co_context *ctx, co_value *const *x)
{
    return gathered(ctx, x[0], 1, 1, (const int64_t[]){ 2, 3 }, 2);
}

static co_value *
f_cast(co_context *ctx, co_value *const *x)
{
    return co_cast(ctx, co_cast(ctx, co_square(ctx, x[0]), CO_FLOAT64), CO_FLOAT64);
}

static co_value *
f_composite(co_context *ctx, co_value *const *x)
{
    return co_exp(
        ctx, co_neg(ctx, co_square(ctx, co_sub(ctx, co_tanh(ctx, x[0]), co_sigmoid(ctx, x[1])))));
}

/* Shapes are chosen so that broadcasting has something to undo. `positive` keeps roots and
 * logarithms in their range. */
static const struct {
    const char *name;
    case_fn     fn;
    int         num_in;
    bool        positive;
    int         ndim[2];
    int64_t     dims[2][4];
} cases[] = {
    { "neg", f_neg, 1, false, { 1 }, { { 5 } } },
    { "square", f_square, 1, false, { 2 }, { { 2, 3 } } },
    { "sqrt", f_sqrt, 1, true, { 1 }, { { 5 } } },
    { "exp", f_exp, 1, false, { 0 }, { { 0 } } },
    { "log", f_log, 1, true, { 1 }, { { 5 } } },
    { "tanh", f_tanh, 1, false, { 1 }, { { 7 } } },
    { "sigmoid", f_sigmoid, 1, false, { 1 }, { { 7 } } },
    { "relu", f_relu, 1, false, { 1 }, { { 7 } } },
    { "identity", f_identity, 1, false, { 1 }, { { 3 } } },
    { "add", f_add, 2, false, { 2, 1 }, { { 2, 3 }, { 3 } } },
    { "sub", f_sub, 2, false, { 2, 2 }, { { 2, 1 }, { 1, 3 } } },
    { "mul", f_mul, 2, false, { 3, 2 }, { { 2, 1, 3 }, { 2, 1 } } },
    { "mul by a scalar", f_mul, 2, false, { 2, 0 }, { { 2, 3 } } },
    { "div", f_div, 2, true, { 2, 1 }, { { 2, 3 }, { 1 } } },
    { "div of a scalar", f_div, 2, true, { 0, 1 }, { { 0 }, { 4 } } },
    { "maximum", f_maximum, 2, false, { 2, 1 }, { { 3, 4 }, { 4 } } },
    { "minimum", f_minimum, 2, false, { 1, 2 }, { { 4 }, { 3, 4 } } },
    { "abs", f_abs, 1, false, { 1 }, { { 7 } } },
    { "rsqrt", f_rsqrt, 1, true, { 1 }, { { 7 } } },
    { "reciprocal", f_reciprocal, 1, true, { 1 }, { { 7 } } },
    { "log1p", f_log1p, 1, true, { 1 }, { { 7 } } },
    { "expm1", f_expm1, 1, false, { 1 }, { { 7 } } },
    { "sin", f_sin, 1, false, { 1 }, { { 7 } } },
    { "cos", f_cos, 1, false, { 1 }, { { 7 } } },
    { "tan", f_tan, 1, false, { 1 }, { { 7 } } },
    { "erf", f_erf, 1, false, { 1 }, { { 7 } } },
    { "relu6", f_relu6, 1, false, { 1 }, { { 7 } } },
    { "elu", f_elu, 1, false, { 1 }, { { 7 } } },
    { "selu", f_selu, 1, false, { 1 }, { { 7 } } },
    { "softplus", f_softplus, 1, false, { 1 }, { { 7 } } },
    { "softsign", f_softsign, 1, false, { 1 }, { { 7 } } },
    { "silu", f_silu, 1, false, { 1 }, { { 7 } } },
    { "log_sigmoid", f_log_sigmoid, 1, false, { 1 }, { { 7 } } },
    { "gelu", f_gelu, 1, false, { 1 }, { { 7 } } },
    { "gelu by tanh", f_gelu_tanh, 1, false, { 1 }, { { 7 } } },
    { "leaky_relu", f_leaky_relu, 1, false, { 1 }, { { 7 } } },
    { "mod", f_mod, 2, true, { 2, 1 }, { { 2, 3 }, { 3 } } },
    { "pow", f_pow, 2, true, { 2, 1 }, { { 2, 3 }, { 3 } } },
    { "squared_difference", f_squared_difference, 2, false, { 2, 1 }, { { 2, 3 }, { 3 } } },
    { "reduce_sum of all", f_sum_all, 1, false, { 2 }, { { 2, 3 } } },
    { "reduce_sum of some", f_sum_some, 1, false, { 3 }, { { 2, 3, 4 } } },
    { "reduce_mean", f_mean, 1, false, { 3 }, { { 2, 3, 2 } } },
    { "reduce_mean of squares", f_mean_squares, 1, false, { 1 }, { { 5 } } },
    { "reduce_max", f_max, 1, false, { 2 }, { { 3, 4 } } },
    { "reshape", f_reshape, 1, false, { 2 }, { { 2, 6 } } },
    { "expand_dims", f_expand_dims, 1, false, { 2 }, { { 2, 3 } } },
    { "transpose", f_transpose, 1, false, { 3 }, { { 2, 3, 2 } } },
    { "broadcast_to", f_broadcast_to, 1, false, { 3 }, { { 2, 1, 4 } } },
    { "concat", f_concat, 2, false, { 2, 2 }, { { 2, 3 }, { 1, 3 } } },
    { "slice", f_slice, 1, false, { 3 }, { { 2, 2, 4 } } },
    { "gather of rows", f_gather_rows, 1, false, { 2 }, { { 3, 2 } } },
    { "gather of an inner axis", f_gather_inner, 1, false, { 3 }, { { 2, 2, 2 } } },
    { "gather with batch_dims", f_gather_batch, 1, false, { 3 }, { { 2, 2, 3 } } },
    { "cast", f_cast, 1, false, { 1 }, { { 4 } } },
    { "a composite", f_composite, 2, false, { 2, 1 }, { { 2, 3 }, { 3 } } },
};
#define NUM_CASES (sizeof(cases) / sizeof(cases[0]))
#define MOST      24 /* elements of an input */

static co_value *
weighed(co_context *ctx, co_value *y, uint64_t seed)
{
    ops_random random = { seed };
    co_value  *weights;

    if (y == NULL)
        return NULL;
    weights = ops_tensor(ctx, &random, CO_FLOAT64, y->u.tensor.dims, y->ndim, OPS_ORDINARY);
    return co_reduce_sum(ctx, co_mul(ctx, y, weights), CO_ALL_AXES, false);
}

static co_value *
first(co_context *ctx, size_t c, co_value *const *x)
{
    return weighed(ctx, cases[c].fn(ctx, x), 11);
}

/* The gradient for input k, weighed: a function whose gradient is a second derivative. NULL where
 * there is none. */
static co_value *
second(co_context *ctx, size_t c, co_value *const *x, int k)
{
    co_value *y, *g;

    co_tape_begin(ctx);
    co_watch(ctx, x[k]);
    y = first(ctx, c, x);
    g = co_gradient(ctx, y, x[k]);
    if (co_value_kind(g) == CO_KIND_NONE)
        return NULL;
    return weighed(ctx, co_to_tensor(ctx, co_mul(ctx, g, co_float(ctx, 1)), CO_DTYPE_NONE), 13);
}

typedef co_value *(*scalar_fn)(co_context *ctx, size_t c, co_value *const *x, int k);

static co_value *
first_of(co_context *ctx, size_t c, co_value *const *x, int k)
{
    (void)k;
    return first(ctx, c, x);
}

static double
value_at(co_context *ctx, size_t c, scalar_fn fn, int k, double data[2][MOST])
{
    double result = 0;

    CO_BLOCK(ctx) {
        co_value *x[2] = { NULL, NULL };

        for (int i = 0; i < cases[c].num_in; ++i)
            x[i] = co_tensor(ctx, CO_FLOAT64, cases[c].dims[i], cases[c].ndim[i], data[i]);
        result = co_item_float(ctx, fn(ctx, c, x, k));
    }
    return result;
}

/* Compare the gradient of fn for input i with differences. */
static void
check(co_context *ctx, size_t c, scalar_fn fn, int k, int i, double data[2][MOST],
      const char *order)
{
    double  grad[MOST] = { 0 };
    int64_t n = ops_count(cases[c].dims[i], cases[c].ndim[i]);
    bool    connected = false;

    CO_BLOCK(ctx) {
        co_value *x[2] = { NULL, NULL }, *y, *g;

        for (int j = 0; j < cases[c].num_in; ++j)
            x[j] = co_tensor(ctx, CO_FLOAT64, cases[c].dims[j], cases[c].ndim[j], data[j]);
        co_tape_begin(ctx);
        co_watch(ctx, x[i]);
        y = fn(ctx, c, x, k);
        if (y == NULL) { /* nothing to differentiate a second time */
            co_tape_end(ctx);
            break;
        }
        g = co_gradient(ctx, y, x[i]);
        connected = true;
        if (co_value_kind(g) != CO_KIND_NONE)
            co_value_copy_data(ctx, co_to_tensor(ctx, g, CO_DTYPE_NONE), CO_FLOAT64, grad, MOST);
    }
    for (int64_t e = 0; connected && e < n; ++e) {
        double saved = data[i][e], step = 1e-5, up, down;

        data[i][e] = saved + step;
        up = value_at(ctx, c, fn, k, data);
        data[i][e] = saved - step;
        down = value_at(ctx, c, fn, k, data);
        data[i][e] = saved;
        if (fabs(grad[e] - (up - down) / (2 * step)) > 1e-6 * (1 + fabs(grad[e])))
            test_fail(TEST_AT, "%s: %s gradient of input %d, element %lld: %g, differences give %g",
                      cases[c].name, order, i, (long long)e, grad[e], (up - down) / (2 * step));
    }
    CO_EXPECT_OK(ctx);
}

static void
make_data(size_t c, double data[2][MOST])
{
    ops_random random = { 100 + c };

    for (int i = 0; i < cases[c].num_in; ++i)
        for (int e = 0; e < MOST; ++e)
            data[i][e] = cases[c].positive ? 1.5 + ops_real(&random) / 2 : ops_real(&random);
}

CO_TEST(first_gradients_agree_with_differences, "")
{
    for (size_t c = 0; c < NUM_CASES; ++c) {
        double data[2][MOST];

        make_data(c, data);
        for (int i = 0; i < cases[c].num_in; ++i)
            check(ctx, c, first_of, 0, i, data, "first");
    }
}

CO_TEST(second_gradients_agree_with_differences, "")
{
    for (size_t c = 0; c < NUM_CASES; ++c) {
        double data[2][MOST];

        make_data(c, data);
        for (int k = 0; k < cases[c].num_in; ++k)
            for (int i = 0; i < cases[c].num_in; ++i)
                check(ctx, c, second, k, i, data, "second");
    }
}

/* The same with the reference kernels. */
CO_TEST_WITH(reference_kernels_have_the_same_gradients, "", "reference_kernels=yes")
{
    for (size_t c = 0; c < NUM_CASES; ++c) {
        double data[2][MOST];

        make_data(c, data);
        for (int i = 0; i < cases[c].num_in; ++i)
            check(ctx, c, first_of, 0, i, data, "first");
    }
}

static co_value *
gradient_of(co_context *ctx, case_fn fn, co_value *x)
{
    co_value *in[1] = { x };

    co_tape_begin(ctx);
    co_watch(ctx, x);
    return co_gradient(ctx, fn(ctx, in), x);
}

static co_value *
f_stopped(co_context *ctx, co_value *const *x)
{
    return co_mul(ctx, co_stop_gradient(ctx, x[0]), x[0]);
}

static co_value *
f_only_stopped(co_context *ctx, co_value *const *x)
{
    return co_stop_gradient(ctx, x[0]);
}

CO_TEST(stop_gradient_passes_nothing, "")
{
    co_value *x = co_scalar_float(ctx, 3);

    CO_EXPECT_CLOSE(co_item_float(ctx, gradient_of(ctx, f_stopped, x)), 3, 0);
    CO_EXPECT_INT(co_value_kind(gradient_of(ctx, f_only_stopped, x)), CO_KIND_NONE);
}

static co_value *
f_through_integers(co_context *ctx, co_value *const *x)
{
    return co_cast(ctx, co_cast(ctx, x[0], CO_INT32), CO_FLOAT32);
}

static co_value *
f_third(co_context *ctx, co_value *const *x)
{
    return co_div(ctx, x[0], co_int(ctx, 3));
}

CO_TEST(no_gradient_passes_integers, "")
{
    CO_EXPECT_INT(co_value_kind(gradient_of(ctx, f_third, co_scalar_int32(ctx, 3))), CO_KIND_NONE);
    CO_EXPECT_INT(co_value_kind(gradient_of(ctx, f_through_integers, co_scalar_float(ctx, 3))),
                  CO_KIND_NONE);
}

/* Ties: maximum gives all to x, reduce_max shares evenly. */
CO_TEST(ties_are_shared_as_documented, "")
{
    static const float row[] = { 3, 1, 3, 3 };
    co_value          *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1, 4), row), *grad;

    grad = gradient_of(ctx, f_max, x);
    CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, grad))[0], 1.0f / 3, 1e-7);
    CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, grad))[1], 0, 0);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    grad = co_gradient(ctx, co_maximum(ctx, x, co_float(ctx, 3)), x);
    CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, grad))[0], 1, 0);
    CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, grad))[1], 0, 0);
}

static co_value *
f_rows(co_context *ctx, co_value *const *x)
{
    static const int16_t at[] = { 2, 0, 2 };

    return co_gather(ctx, x[0], co_tensor(ctx, CO_INT16, CO_SHAPE(3), at), 0, 0);
}

/* Rows gathered from axis 0 have indexed slices as gradient, also with int16 indices. */
CO_TEST(the_gradient_of_rows_stays_rows, "")
{
    static const float expected[] = { 1, 1, 0, 0, 2, 2, 0, 0 };
    co_value          *grad = gradient_of(ctx, f_rows, co_ones(ctx, CO_FLOAT32, CO_SHAPE(4, 2)));

    CO_EXPECT_INT(co_value_kind(grad), CO_KIND_SLICES);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_slices_values(ctx, grad)), 6);
    CO_EXPECT_BYTES(co_value_data(ctx, co_to_tensor(ctx, grad, CO_DTYPE_NONE)), expected,
                    sizeof(expected));
}

/* Slices among the targets are their values: gradients of gathers can be differentiated again as
 * they are, repeated rows too. */
CO_TEST(the_gradient_of_rows_has_a_gradient, "")
{
    static const float data[] = { 1, 2, 3, 4, 5, 6 }, expected[] = { 6, 12, 0, 0, 60, 72 };
    co_value          *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 2), data), *rows, *grad;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    rows = f_rows(ctx, &x);
    grad = co_gradient(ctx, co_mul(ctx, co_square(ctx, rows), rows), x);
    CO_EXPECT_INT(co_value_kind(grad), CO_KIND_SLICES);
    grad = co_to_tensor(ctx, co_gradient(ctx, grad, x), CO_DTYPE_NONE);
    CO_EXPECT_BYTES(co_value_data(ctx, grad), expected, sizeof(expected));
}

/* No row was taken, or several gathers took some. */
CO_TEST(gradients_of_several_gathers_and_of_none_are_rows, "")
{
    static const int32_t at[] = { 1, 0, 1 };
    static const float   expected[] = { 1, 1, 3, 3, 1, 1 };
    co_value            *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 2)), *none, *sum, *grad;

    none = co_zeros(ctx, CO_INT64, CO_SHAPE(0));
    co_tape_begin(ctx);
    co_watch(ctx, x);
    grad = co_gradient(ctx, co_gather(ctx, x, none, 0, 0), x);
    CO_EXPECT_INT(co_value_kind(grad), CO_KIND_SLICES);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_slices_values(ctx, grad)), 0);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    sum = co_reduce_sum(ctx, co_gather(ctx, x, co_tensor(ctx, CO_INT32, CO_SHAPE(3), at), 0, 0),
                        CO_ALL_AXES, false);
    sum = co_add(ctx, sum,
                 co_reduce_sum(ctx,
                               co_embedding_lookup(ctx, x,
                                                   co_range(ctx, co_int(ctx, 1), co_int(ctx, 3),
                                                            co_int(ctx, 1), CO_INT32)),
                               CO_ALL_AXES, false));
    grad = co_gradient(ctx, sum, x);
    CO_EXPECT_INT(co_value_kind(grad), CO_KIND_SLICES);
    CO_EXPECT_BYTES(co_value_data(ctx, co_to_tensor(ctx, grad, CO_DTYPE_NONE)), expected,
                    sizeof(expected));
}

CO_TEST(the_gradient_of_a_table_that_is_a_variable_is_slices, "FN-8")
{
    const int32_t at[] = { 2, 0, 2 };
    co_value     *table = co_variable(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 2)), NULL), *grad;

    co_tape_begin(ctx);
    grad = co_gradient(
        ctx,
        co_square(ctx, co_embedding_lookup(ctx, table, co_tensor(ctx, CO_INT32, CO_SHAPE(3), at))),
        table);
    CO_EXPECT_INT(co_value_kind(grad), CO_KIND_SLICES);
    CO_EXPECT_BYTES(co_value_data(ctx, co_slices_indices(ctx, grad)), at, sizeof(at));
}

static co_value *
f_rows_and_all(co_context *ctx, co_value *const *x)
{
    return co_add(ctx, co_reduce_sum(ctx, f_rows(ctx, x), CO_ALL_AXES, false),
                  co_reduce_sum(ctx, x[0], CO_ALL_AXES, false));
}

CO_TEST(slices_and_tensors_add_up, "")
{
    static const float expected[] = { 2, 2, 1, 1, 3, 3, 1, 1 };
    co_value *grad = gradient_of(ctx, f_rows_and_all, co_ones(ctx, CO_FLOAT32, CO_SHAPE(4, 2)));

    CO_EXPECT_BYTES(co_value_data(ctx, grad), expected, sizeof(expected));
}

/* Slices as output gradient of slices: row by row, and only for the same rows of a tensor of the
 * same shape, whatever integers say so. */
CO_TEST(slices_are_output_gradients_of_slices_with_the_same_rows, "")
{
    static const float   numbers[] = { 1, 2, 3, 4, 5, 6 };
    static const float   expected[] = { 18, 144, 0, 0, 2 * 30 * 75, 2 * 36 * 108 };
    static const int64_t same[] = { 2, 0, 2 }, other[] = { 2, 1, 2 }, shape[] = { 3, 2 };
    static const int64_t large[] = { 7, 2 };
    static const struct {
        const int64_t *at, *shape; /* NULL: as the target, without one */
        int64_t        n;
        co_dtype       dtype;
        const char    *error;
    } given[] = {
        { NULL, NULL, 3, CO_INT32, NULL },
        { same, shape, 3, CO_INT32, NULL },
        { same, shape, 3, CO_INT64, NULL },
        { same, NULL, 3, CO_INT64, NULL },
        { other, shape, 3, CO_INT64, "3 indices and the target's 3 differ from indices[1] on" },
        { same, shape, 2, CO_INT32, "slices of other rows than its target: its 2 indices" },
        { same, large, 3, CO_INT32, "shape [7,2], its target of [3,2]" },
        { same, large, 3, CO_INT64, "with the dense shape of the target, or without one" },
    };
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;

    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); ++i) {
        co_value *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 2), numbers), *y, *g, *h, *at, *dense;

        co_tape_begin(ctx);
        co_watch(ctx, x);
        co_tape_begin(ctx);
        co_watch(ctx, x);
        y = f_rows(ctx, &x);
        g = co_gradient(ctx, co_mul(ctx, co_mul(ctx, y, y), y), x); /* 3 y^2, so 6 y comes next */
        options.output_gradients = g;
        if (given[i].at != NULL) {
            h = co_slice(ctx, co_slices_values(ctx, g), (int64_t[]){ 0, 0 },
                         (int64_t[]){ given[i].n, 2 }, 2);
            at = co_tensor(ctx, CO_INT64, CO_SHAPE(given[i].n), given[i].at);
            dense = given[i].shape != NULL ? co_tensor(ctx, CO_INT64, CO_SHAPE(2), given[i].shape)
                                           : NULL;
            options.output_gradients = co_slices(ctx, h, co_cast(ctx, at, given[i].dtype), dense);
        }
        h = co_gradient_with(ctx, g, x, &options);
        if (given[i].error != NULL)
            CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, given[i].error);
        else
            CO_EXPECT_BYTES(co_value_data(ctx, co_to_tensor(ctx, h, CO_DTYPE_NONE)), expected,
                            sizeof(expected));
    }
}

/* Every floating dtype has gradients of its own dtype. */
CO_TEST(gradients_keep_the_dtype, "")
{
    ops_random random = { 9 };

    for (int d = CO_FLOAT16; d <= CO_FLOAT64; ++d)
        for (size_t c = 0; c < NUM_CASES; ++c) {
            co_value *x[2] = { NULL, NULL }, *g;

            for (int i = 0; i < cases[c].num_in; ++i)
                x[i] = co_square(ctx, ops_tensor(ctx, &random, (co_dtype)d, cases[c].dims[i],
                                                 cases[c].ndim[i], OPS_ORDINARY));
            if (cases[c].fn == f_cast)
                continue;
            co_tape_begin(ctx);
            co_watch(ctx, x[0]);
            g = co_gradient(ctx, cases[c].fn(ctx, x), x[0]);
            CO_EXPECT_OK(ctx);
            g = co_to_tensor(ctx, g, CO_DTYPE_NONE);
            if (co_value_dtype(ctx, g) != (co_dtype)d || !coi_same_shape(g, x[0]))
                test_fail(TEST_AT, "%s in %s", cases[c].name, co_dtype_name((co_dtype)d));
        }
    CO_EXPECT_TRUE(co_ok(ctx));
}

/* Element by element: h and r in between, with what flows into them shared, reshaped, passed on and
 * asked for. */
static co_value *
f_activations(co_context *ctx, co_value *x, co_value **r)
{
    int64_t   n = co_value_num_elements(ctx, x);
    co_value *h = co_mul(ctx, x, co_float(ctx, 2)), *s;

    *r = co_relu(ctx, h);
    s = co_tanh(ctx, co_mul(ctx, *r, co_float(ctx, 0.5)));
    s = co_add(ctx, co_sigmoid(ctx, s), s);
    s = co_elu(ctx, co_reshape(ctx, co_selu(ctx, s), CO_SHAPE(2, n / 2)));
    s = co_relu6(ctx, co_gelu(ctx, co_mul(ctx, s, co_float(ctx, 3)), true));
    return co_add(ctx, co_reshape(ctx, s, CO_SHAPE(n)), co_relu(ctx, co_neg(ctx, h)));
}

/* The gradients for x and r, with y as output gradient, as a list. */
static co_value *
gradients_of_activations(co_context *ctx, co_value *x, co_value *y, bool twice)
{
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;
    co_value           *r, *target, *sources, *grads;

    options.output_gradients = y;
    if (twice)
        co_tape_begin_persistent(ctx);
    else
        co_tape_begin(ctx);
    co_watch(ctx, x);
    target = f_activations(ctx, x, &r);
    sources = co_list(ctx, (co_value *[]){ x, r }, 2);
    grads = co_gradient_with(ctx, target, sources, &options);
    if (twice) {
        grads = co_gradient_with(ctx, target, sources, &options);
        co_tape_end(ctx);
    }
    return grads;
}

/* Gradients of large tensors take the memory of what flows in, if it is theirs; small ones never
 * do. */
CO_TEST(taking_the_memory_of_what_flows_in_changes_nothing, "")
{
    enum { N = 140000, PIECE = 1400 };
    const int64_t         piece_size = PIECE;
    static const co_dtype dtypes[] = { CO_FLOAT16, CO_FLOAT32, CO_FLOAT64 };

    for (int i = 0; i < 6; ++i) {
        co_dtype    dtype = dtypes[i / 2];
        co_value   *x = co_cast(ctx, co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(N), 0, 1), dtype);
        co_value   *y = co_cast(ctx, co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(N), 0, 1), dtype);
        co_value   *kept = co_add(ctx, y, co_zeros(ctx, dtype, CO_SHAPE(1))), *whole;
        size_t      size = co_dtype_size(dtype);
        const char *got[2];

        whole = gradients_of_activations(ctx, x, y, i % 2 == 1);
        CO_EXPECT_BYTES(co_value_data(ctx, y), co_value_data(ctx, kept), N * size);
        for (size_t k = 0; k < 2; ++k)
            got[k] = co_value_data(ctx, co_at(ctx, whole, k));
        for (int64_t at = 0; at < N; at += PIECE)
            CO_BLOCK(ctx) {
                co_value *piece = gradients_of_activations(ctx,
                                                           co_slice(ctx, x, &at, &piece_size, 1),
                                                           co_slice(ctx, y, &at, &piece_size, 1),
                                                           false);

                for (size_t k = 0; k < 2; ++k)
                    CO_EXPECT_BYTES(got[k] + (size_t)at * size,
                                    co_value_data(ctx, co_at(ctx, piece, k)), PIECE * size);
            }
    }
    CO_EXPECT_OK(ctx);
}
