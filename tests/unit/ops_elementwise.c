/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operators: every optimised kernel against its reference kernel, over all dtypes that
 * the operator accepts, shapes that hurt and values that hurt, for every instruction set this
 * machine has.
 */
#include "ops_support.h"

#include "base/isa.h"
#include "ops/kernels/elementwise.h"
#include "ops/kernels/cast.h"
#include "ops/kernels/loops.h"

/* Units in the last place that a fast kernel may be away from the correctly rounded result, by
 * dtype. */
typedef struct tolerance {
    const char *name;
    double      half, single, dbl;
} tolerance;

static const tolerance tolerances[] = {
    /* What is rounded once is exact. A half may differ by the second rounding, from float. */
    { "neg", 0, 0, 0 },
    { "square", 0, 0, 0 },
    { "sqrt", 0, 0, 0 },
    { "relu", 0, 0, 0 },
    { "add", 0, 0, 0 },
    { "sub", 0, 0, 0 },
    { "mul", 0, 0, 0 },
    { "div", 0, 0, 0 },
    { "maximum", 0, 0, 0 },
    { "minimum", 0, 0, 0 },
    { "equal", 0, 0, 0 },
    { "greater_equal", 0, 0, 0 },
    { "less_equal", 0, 0, 0 },
    { "relu_grad", 0, 0, 0 },
    { "abs", 0, 0, 0 },
    { "sign", 0, 0, 0 },
    { "reciprocal", 0, 0, 0 },
    { "floor", 0, 0, 0 },
    { "ceil", 0, 0, 0 },
    { "round", 0, 0, 0 },
    { "relu6", 0, 0, 0 },
    { "relu6_grad", 0, 0, 0 },
    { "where_flowing", 0, 0, 0 },
    { "isnan", 0, 0, 0 },
    { "isinf", 0, 0, 0 },
    { "isfinite", 0, 0, 0 },
    { "logical_not", 0, 0, 0 },
    { "not_equal", 0, 0, 0 },
    { "less", 0, 0, 0 },
    { "greater", 0, 0, 0 },
    { "logical_and", 0, 0, 0 },
    { "logical_or", 0, 0, 0 },
    { "logical_xor", 0, 0, 0 },
    { "mod", 0, 0, 0 },
    { "pow", 1, 1, 0 },
    { "squared_difference", 1, 2, 0 }, /* the difference is rounded first */
    { "rsqrt", 1, 1, 0 },
    { "softsign", 1, 1, 0 },
    { "log1p", 1, 1, 0 },
    { "expm1", 1, 1, 0 },
    { "sin", 1, 1, 0 },
    { "cos", 1, 1, 0 },
    { "tan", 1, 1, 0 },
    { "erf", 1, 1, 0 },
    { "elu", 1, 2, 0 },
    { "selu", 1, 3, 1 },
    { "softplus", 1, 3, 2 },
    { "silu", 1, 4, 4 },
    { "log_sigmoid", 1, 1, 4 },
    { "elu_grad", 1, 1, 0 },
    /* Polynomials: see ops/kernels/simd/simd_math.h. Doubles come from the C library on both sides.
     */
    { "exp", 1, 2, 0 },
    { "log", 1, 2, 0 },
    { "tanh", 1, 2, 0 },
    { "sigmoid", 1, 3, 4 }, /* e is rounded on both sides */
};

static double
limit_of(const tolerance *t, co_dtype dtype)
{
    return dtype == CO_FLOAT16 || dtype == CO_BFLOAT16 ? t->half
           : dtype == CO_FLOAT32                       ? t->single
                                                       : t->dbl;
}

/* Pairs of shapes: equal, scalars, rows, columns, inner and outer broadcasting, no elements, ranks
 * 0 to 8. */
static const struct {
    int     nx, ny;
    int64_t x[CO_MAX_DIMS], y[CO_MAX_DIMS];
} shapes[] = {
    { 0, 0, { 0 }, { 0 } },
    { 1, 1, { 1 }, { 1 } },
    { 1, 1, { 17 }, { 17 } },
    { 1, 0, { 33 }, { 0 } },
    { 0, 1, { 0 }, { 31 } },
    { 2, 1, { 5, 7 }, { 7 } },
    { 1, 2, { 7 }, { 5, 7 } },
    { 2, 2, { 5, 7 }, { 5, 1 } },
    { 2, 2, { 5, 1 }, { 1, 7 } },
    { 2, 2, { 1, 1 }, { 3, 2 } },
    { 2, 1, { 129, 10 }, { 10 } },
    { 1, 2, { 3 }, { 257, 3 } },
    { 2, 1, { 9, 65 }, { 65 } },
    { 3, 2, { 2, 1, 3 }, { 2, 1 } },
    { 4, 3, { 2, 3, 2, 2 }, { 3, 1, 2 } },
    { 2, 1, { 2, 1 }, { 0 } },
    { 2, 2, { 0, 3 }, { 1, 3 } },
    { 3, 3, { 1, 0, 1 }, { 4, 1, 5 } },
    { 8, 8, { 2, 1, 2, 1, 3, 1, 2, 1 }, { 1, 2, 1, 2, 1, 2, 1, 3 } },
    { 8, 1, { 1, 1, 1, 1, 1, 1, 1, 1 }, { 1 } },
    { 8, 8, { 1, 2, 1, 3, 1, 1, 2, 5 }, { 1, 2, 1, 3, 1, 1, 2, 5 } },
};

static void
check_unary(co_context *ctx, ops_random *random, const coi_op *op, const tolerance *t,
            co_dtype dtype)
{
    static const int64_t lengths[] = { 0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 257, 1021 };

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i)
        for (int filling = OPS_ORDINARY; filling <= OPS_SMALL; ++filling) {
            co_value *x = ops_tensor(ctx, random, dtype, &lengths[i], 1, (ops_filling)filling);
            char      text[300];

            ops_same_as_reference(ctx, op, &x, 1, NULL, limit_of(t, dtype),
                                  ops_describe(text, dtype, &x, 1));
        }
}

/* Integers that the operator takes: no zeros to divide by, no negative powers. */
static co_value *
second_operand(co_context *ctx, const coi_op *op, co_dtype dtype, co_value *y)
{
    if (!coi_dtypes[dtype].integer)
        return y;
    if (strcmp(op->name, "mod") == 0 || strcmp(op->name, "floordiv") == 0)
        return co_add(ctx, y, co_cast(ctx, co_equal(ctx, y, co_int(ctx, 0)), dtype));
    return strcmp(op->name, "pow") == 0 ? co_mod(ctx, y, co_int(ctx, 9)) : y;
}

static void
check_binary(co_context *ctx, ops_random *random, const coi_op *op, const tolerance *t,
             co_dtype dtype)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i)
        for (int filling = OPS_ORDINARY; filling <= OPS_SMALL; ++filling) {
            co_value *in[2] = {
                ops_tensor(ctx, random, dtype, shapes[i].x, shapes[i].nx, (ops_filling)filling),
                ops_tensor(ctx, random, dtype, shapes[i].y, shapes[i].ny, (ops_filling)filling)
            };
            char text[300];

            in[1] = second_operand(ctx, op, dtype, in[1]);
            ops_same_as_reference(ctx, op, in, 2, NULL, limit_of(t, dtype),
                                  ops_describe(text, dtype, in, 2));
        }
}

static void
check_all(co_context *ctx)
{
    ops_random random = { 1 };

    for (size_t i = 0; i < sizeof(tolerances) / sizeof(tolerances[0]); ++i) {
        const coi_op *op = coi_op_find(tolerances[i].name);

        CO_REQUIRE(op != NULL);
        for (int d = CO_BOOL; d < CO_STRING; ++d) {
            if (op->dtypes != 0 && (op->dtypes & COI_DTYPE_BIT(d)) == 0)
                continue;
            CO_BLOCK(ctx) {
                if (op->num_inputs == 1)
                    check_unary(ctx, &random, op, &tolerances[i], (co_dtype)d);
                else
                    check_binary(ctx, &random, op, &tolerances[i], (co_dtype)d);
            }
        }
    }
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(fast_kernels_agree_with_the_reference, "")
{
    check_all(ctx);
}

CO_TEST_WITH(baseline_kernels_agree_with_the_reference, "", "isa=base")
{
    check_all(ctx);
}

static bool
machine_has(const char *isa)
{
    co_error_info err;
    coi_isa       out;

    coi_error_reset(&err);
    return coi_isa_choose(isa, &out, &err) == CO_OK;
}

CO_TEST_BARE(avx512_kernels_agree_with_the_reference, "")
{
    co_context *own;

    if (!machine_has("v4"))
        CO_SKIP("the processor has no AVX-512");
    own = co_open("isa=v4");
    check_all(own);
    CO_EXPECT_INT(co_close(own), 0);
}

/* Of floats too, whose quotient both round before it is cut. */
CO_TEST(floor_division_agrees_with_the_reference, "")
{
    static const tolerance exact = { "floordiv", 0, 0, 0 };
    ops_random             random = { 4 };

    for (int d = CO_INT8; d <= CO_FLOAT64; ++d)
        CO_BLOCK(ctx) {
            check_binary(ctx, &random, coi_op_find("floordiv"), &exact, (co_dtype)d);
        }
    CO_EXPECT_TRUE(co_ok(ctx));
}

/* 3 / y is 50.9999998 and rounds to 51; a negative quotient may round to -0. Both kernels round
 * before they go down. */
CO_TEST(floor_division_of_floats_rounds_the_quotient_first, "")
{
    static const float x[] = { 3, -1e-45f, -1e-3f }, y[] = { 0.05882353f, 4, 1e-3f };
    static const float expected[] = { 51, -0.0f, -1 };
    co_value          *p = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), x);
    co_value          *q = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), y);

    CO_EXPECT_BYTES(co_value_data(ctx, co_floordiv(ctx, p, q)), expected, sizeof(expected));
    coi_use_reference(ctx, true);
    CO_EXPECT_BYTES(co_value_data(ctx, co_floordiv(ctx, p, q)), expected, sizeof(expected));
    coi_use_reference(ctx, false);
}

CO_TEST(quotients_and_rests_of_extremes_wrap, "")
{
    static const int32_t x[] = { INT32_MIN, INT32_MIN, 7, -7, 7, -7 };
    static const int32_t y[] = { -1, 1, 2, 2, -2, -2 };
    static const int32_t quotients[] = { INT32_MIN, INT32_MIN, 3, -4, -4, 3 };
    static const int32_t rests[] = { 0, 0, 1, 1, -1, -1 };
    co_value            *p = co_tensor(ctx, CO_INT32, CO_SHAPE(6), x);
    co_value            *q = co_tensor(ctx, CO_INT32, CO_SHAPE(6), y);

    CO_EXPECT_BYTES(co_value_data(ctx, co_floordiv(ctx, p, q)), quotients, sizeof(quotients));
    CO_EXPECT_BYTES(co_value_data(ctx, co_mod(ctx, p, q)), rests, sizeof(rests));
}

CO_TEST(integers_have_no_quotient_by_zero_and_no_negative_power, "GEN-ERR-4")
{
    static const int8_t y[] = { 1, 2, 0, -3 };
    co_value           *x = co_ones(ctx, CO_INT8, CO_SHAPE(4));
    co_value           *q = co_tensor(ctx, CO_INT8, CO_SHAPE(4), y);

    CO_EXPECT_NULL(co_floordiv(ctx, x, q));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "element 2 of y is 0");
    CO_EXPECT_NULL(co_mod(ctx, x, q));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "element 2 of y is 0");
    CO_EXPECT_NULL(co_pow(ctx, x, q));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "element 3 of y is negative");
}

/* An empty tensor of all dimensions has no element behind its extents that could be read. */
CO_TEST(gradients_of_empty_tensors_read_nothing, "")
{
    int64_t   dims[8] = { 0, 1, 1, 1, 1, 1, 1, 1 };
    co_value *x = co_zeros(ctx, CO_FLOAT32, dims, 8), *y, *g;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_gelu(ctx, x, true), co_scalar_float(ctx, 2));
    g = co_gradient(ctx, y, x);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(co_value_num_elements(ctx, g), 0);
}

/* As in TensorFlow, whose attribute it is. */
CO_TEST(the_slope_of_leaky_relu_is_a_float32_for_every_dtype, "")
{
    double    minus = -1;
    co_value *x = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(1), &minus), *y;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_leaky_relu(ctx, x, 0.1);
    CO_EXPECT_CLOSE(co_item_float(ctx, y), -(double)0.1f, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_gradient(ctx, y, x)), (double)0.1f, 0);
}

CO_TEST(leaky_relu_and_gelu_agree_with_the_reference, "")
{
    static const double slopes[] = { 0.2, 0, 1.5, -0.3 };
    ops_random          random = { 5 };

    for (int d = CO_FLOAT16; d <= CO_FLOAT64; ++d)
        for (int64_t n = 0; n < 600; n += 149) {
            co_value *x = ops_tensor(ctx, &random, (co_dtype)d, &n, 1, OPS_ORDINARY);
            bool      approximate = false;

            for (int k = 0; k < 4; ++k) {
                coi_leaky_attrs attrs = { slopes[k] };

                ops_same_as_reference(ctx, coi_op_find("leaky_relu"), &x, 1, &attrs, 0,
                                      "leaky_relu");
            }
            ops_same_as_reference(ctx, coi_op_find("gelu"), &x, 1, &approximate, 1, "gelu");
        }
    CO_EXPECT_TRUE(co_ok(ctx));
}

/* Backward steps compute in float what the reference computes in double: a few roundings of values
 * up to 1. */
CO_TEST(backward_kernels_agree_with_the_reference, "")
{
    static const char *const names[] = { "tanh_grad", "sigmoid_grad", "selu_grad",
                                         "gelu_tanh_grad" };
    co_value *(*const forward[])(co_context *, co_value *) = { co_tanh, co_sigmoid, co_selu,
                                                               co_identity };
    ops_random random = { 2 };

    for (int k = 0; k < 4; ++k) {
        const coi_op *op = coi_op_find(names[k]);

        for (int d = CO_FLOAT16; d <= CO_FLOAT64; ++d)
            for (int64_t n = 0; n < 70; n += 13) {
                int64_t   one = 1;
                co_value *x = ops_tensor(ctx, &random, (co_dtype)d, &n, 1, OPS_ORDINARY);
                co_value *in[2] = { forward[k](ctx, x),
                                    ops_tensor(ctx, &random, (co_dtype)d, &one, 1, OPS_ORDINARY) };
                co_value *fast = coi_apply(ctx, op, in, 2, NULL), *plain;

                coi_use_reference(ctx, true);
                plain = coi_apply(ctx, op, in, 2, NULL);
                coi_use_reference(ctx, false);
                for (int64_t i = 0; i < n; ++i) {
                    double a, b, unit = d == CO_FLOAT64 ? 1e-15 : d == CO_FLOAT32 ? 1e-6 : 1e-2;

                    coi_convert((co_dtype)d,
                                (const char *)co_value_data(ctx, fast) +
                                    (size_t)i * co_dtype_size((co_dtype)d),
                                CO_FLOAT64, &a, 1);
                    coi_convert((co_dtype)d,
                                (const char *)co_value_data(ctx, plain) +
                                    (size_t)i * co_dtype_size((co_dtype)d),
                                CO_FLOAT64, &b, 1);
                    CO_EXPECT_CLOSE(a, b, unit);
                }
            }
    }
}

/* Every element of the range of floats, in steps, through the operators. */
CO_TEST(functions_of_floats_are_within_their_units, "")
{
    static const struct {
        const char *name;
        double      limit; /* units in the last place */
    } functions[] = { { "exp", 1.5 }, { "log", 1.0 }, { "tanh", 2.5 }, { "sigmoid", 2.5 } };
    enum { N = 40000 };
    static float x[N];
    int64_t      n = N;

    for (uint32_t start = 0; start < 4; ++start) {
        for (uint32_t i = 0; i < N; ++i) {
            uint32_t bits = start * 0x40000000u + i * 26843u + start;

            memcpy(&x[i], &bits, sizeof(bits));
        }
        for (int f = 0; f < 4; ++f) {
            co_value *in = co_tensor(ctx, CO_FLOAT32, &n, 1, x);

            ops_same_as_reference(ctx, coi_op_find(functions[f].name), &in, 1, NULL,
                                  functions[f].limit + 0.5, "all floats");
        }
    }
    CO_EXPECT_TRUE(co_ok(ctx));
}

static long double
gelu_by_definition(float x)
{
    long double t = 1.595769121605730711759784239737527474L *
                    (x + (long double)0.044715f * x * x * x);

    return x / (1 + expl(-t)); /* x / 2 (1 + tanh(t / 2)) without its cancelling */
}

/* How far a float is from the true value, in units of the last place of that. */
static double
units_off(float got, long double truth)
{
    float near = (float)truth;
    int   exponent = fabsf(near) < 0x1p-126f ? -126 : ilogbf(near);

    return (double)(fabsl((long double)got - truth) / ldexpl(1, exponent - 23));
}

static void
expect_gelu_within(co_context *ctx, const float *x, int64_t n, double limit)
{
    co_value    *y = co_gelu(ctx, co_tensor(ctx, CO_FLOAT32, &n, 1, x), true);
    const float *got = co_value_data(ctx, y);

    for (int64_t i = 0; got != NULL && i < n; ++i)
        if (isfinite(x[i]) && !(units_off(got[i], gelu_by_definition(x[i])) <= limit)) {
            CO_FAIL("gelu(%.9g) is %.9g, which is %g units off", (double)x[i], (double)got[i],
                    units_off(got[i], gelu_by_definition(x[i])));
            return;
        }
}

static void
check_gelu(co_context *ctx)
{
    enum { N = 100000 };
    static float x[N];
    int64_t      five = 5;
    float        special[] = { INFINITY, -INFINITY, NAN, -0.0F, -100 };
    const float *got = co_value_data(
        ctx, co_gelu(ctx, co_tensor(ctx, CO_FLOAT32, &five, 1, special), true));

    CO_EXPECT_TRUE(got[0] == INFINITY && isnan(got[1]) && isnan(got[2]));
    CO_EXPECT_TRUE(got[3] == 0 && signbit(got[3]) && got[4] == 0);
    for (uint32_t i = 0; i < N; ++i) { /* of all floats */
        uint32_t bits = i * 42949u;

        memcpy(&x[i], &bits, sizeof(bits));
    }
    expect_gelu_within(ctx, x, N, 3.5);
    for (int i = 0; i < N; ++i) /* from where results are subnormal to where they are x */
        x[i] = -11.5F + 23e-5F * (float)i;
    expect_gelu_within(ctx, x, N, 3.5);
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(gelu_by_tanh_is_within_its_units, "")
{
    check_gelu(ctx);
}

CO_TEST_WITH(gelu_by_tanh_is_within_its_units_on_the_baseline, "", "isa=base")
{
    check_gelu(ctx);
}

/* exp and gelu take blocks with an extreme element another way. */
CO_TEST(an_extreme_neighbour_changes_no_bit, "")
{
    enum { N = 3000, EVERY = 100 };
    static const float extremes[] = { 200, -200, INFINITY, -INFINITY, NAN, 87.5F, -9.5F };
    static float       x[N], beside[N];
    int64_t            n = N;

    for (int i = 0; i < N; ++i)
        x[i] = -8.9F + 17.8F * (float)i / N;
    for (size_t e = 0; e < sizeof(extremes) / sizeof(extremes[0]); ++e) {
        memcpy(beside, x, sizeof(x));
        for (int i = 0; i < N; i += EVERY)
            beside[i] = extremes[e];
        for (int is_gelu = 0; is_gelu < 2; ++is_gelu) {
            co_value    *a = co_tensor(ctx, CO_FLOAT32, &n, 1, x);
            co_value    *b = co_tensor(ctx, CO_FLOAT32, &n, 1, beside);
            const float *alone = co_value_data(ctx,
                                               is_gelu ? co_gelu(ctx, a, true) : co_exp(ctx, a));
            const float *with = co_value_data(ctx,
                                              is_gelu ? co_gelu(ctx, b, true) : co_exp(ctx, b));

            for (int i = 0; i < N; ++i)
                if (i % EVERY != 0 && memcmp(&alone[i], &with[i], sizeof(float)) != 0) {
                    CO_FAIL("%s(%.9g) is %.9g alone and %.9g beside %g", is_gelu ? "gelu" : "exp",
                            (double)x[i], (double)alone[i], (double)with[i], (double)extremes[e]);
                    return;
                }
        }
    }
    CO_EXPECT_TRUE(co_ok(ctx));
}

/* Where they change from one way of computing to another, and where results are small. */
CO_TEST(functions_are_as_good_near_zero, "")
{
    static const char *const names[] = { "exp", "tanh", "sigmoid", "elu" };
    enum { N = 40001 };
    static float x[N];
    int64_t      n = N;

    for (float step = 0x1p-8f; step > 0x1p-40f; step *= 0x1p-7f) {
        co_value *in;

        for (int i = 0; i < N; ++i)
            x[i] = step * (float)(i - N / 2);
        in = co_tensor(ctx, CO_FLOAT32, &n, 1, x);
        for (size_t f = 0; f < sizeof(names) / sizeof(names[0]); ++f)
            ops_same_as_reference(ctx, coi_op_find(names[f]), &in, 1, NULL, 3, "near zero");
    }
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(casts_agree_with_the_reference, "")
{
    ops_random    random = { 3 };
    const coi_op *op = coi_op_find("cast");

    for (int from = CO_BOOL; from < CO_STRING; ++from)
        for (int to = CO_BOOL; to < CO_STRING; ++to)
            for (int filling = OPS_ORDINARY; filling <= OPS_SMALL; ++filling) {
                int64_t        n = 67;
                coi_cast_attrs attrs = { (uint8_t)to };
                co_value *x = ops_tensor(ctx, &random, (co_dtype)from, &n, 1, (ops_filling)filling);

                ops_same_as_reference(ctx, op, &x, 1, &attrs, 0, co_dtype_name((co_dtype)from));
            }
    CO_EXPECT_TRUE(co_ok(ctx));
}

/* As the processor instructions that TensorFlow's kernels are made of. */
CO_TEST(casts_of_floats_to_integers_cut_and_wrap, "")
{
    static const float   x[] = { 3.9f, -3.9f, 300, -1, 3e9f, -3e9f, NAN, INFINITY };
    static const int32_t i32[] = { 3, -3, 300, -1, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN };
    static const uint8_t u8[] = { 3, 253, 44, 255, 0, 0, 0, 0 };
    co_value            *t = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(8), x);

    CO_EXPECT_BYTES(co_value_data(ctx, co_cast(ctx, t, CO_INT32)), i32, sizeof(i32));
    CO_EXPECT_BYTES(co_value_data(ctx, co_cast(ctx, t, CO_UINT8)), u8, sizeof(u8));
}

CO_TEST(a_cast_to_the_same_dtype_shares_the_data, "")
{
    co_value *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(100));

    CO_EXPECT_PTR(co_value_data(ctx, co_cast(ctx, x, CO_FLOAT32)), co_value_data(ctx, x));
}

/* A host number takes the dtype of the other operand. */
CO_TEST(host_numbers_take_the_dtype_of_the_other_operand, "C-VAL-4")
{
    co_value *x = co_scalar_double(ctx, 2.5);

    CO_EXPECT_INT(co_value_dtype(ctx, co_mul(ctx, x, co_int(ctx, 2))), CO_FLOAT64);
    CO_EXPECT_INT(co_value_dtype(ctx, co_sub(ctx, co_int(ctx, 2), x)), CO_FLOAT64);
    CO_EXPECT_INT(co_value_dtype(ctx, co_add(ctx, co_int(ctx, 1), co_int(ctx, 2))), CO_INT32);
    CO_EXPECT_INT(co_value_dtype(ctx, co_add(ctx, co_float(ctx, 1), co_float(ctx, 2))), CO_FLOAT32);
    CO_EXPECT_INT(co_value_dtype(ctx, co_neg(ctx, co_int(ctx, INT64_C(1) << 40))), CO_INT64);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_div(ctx, co_int(ctx, 1), x)), 0.4, 1e-15);
}

/* How work is cut depends on the shape alone, so the number of workers cannot be seen. */
static void
large_results(const char *settings, float *out)
{
    static const int64_t n = 300007;
    co_context          *own = co_open(settings);
    ops_random           random = { 4 };
    co_value            *x;

    x = ops_tensor(own, &random, CO_FLOAT32, &n, 1, OPS_SPECIAL);
    co_value_copy_data(own, co_add(own, co_tanh(own, x), co_mul(own, x, co_float(own, 3))),
                       CO_FLOAT32, out, n);
    CO_EXPECT_INT(co_close(own), 0);
}

CO_TEST_BARE(results_do_not_depend_on_the_number_of_workers, "")
{
    static float one[300007], two[300007];

    large_results("threads=1", one);
    large_results("threads=2", two);
    CO_EXPECT_BYTES(one, two, sizeof(one));
}

enum { NUM_STREAMED_WHOLE = 6, NUM_STREAMED = 11 };

/* Operators of one and two operands, loops of every kind; the last ones are of floats. */
static void
streamed(co_context *ctx, co_value *x, co_value *row, co_value *one, co_value **out, int n)
{
    int k = 0;

    out[k++] = co_add(ctx, x, x);
    out[k++] = co_sub(ctx, x, row);
    out[k++] = co_mul(ctx, one, x);
    out[k++] = co_add(ctx, x, one);
    out[k++] = co_neg(ctx, x);
    out[k++] = co_square(ctx, x);
    if (k == n)
        return;
    out[k++] = co_exp(ctx, x);
    out[k++] = co_tanh(ctx, x);
    out[k++] = co_erf(ctx, x); /* compiled once */
    out[k++] = co_gelu(ctx, x, true);
    out[k++] = co_op_call(ctx, "gelu_tanh_grad", co_tuple(ctx, (co_value *[]){ x, x }, 2), NULL);
}

/* Rows of a result that is written past the cache, beside the same rows by themselves. */
static void
check_streamed(co_context *ctx, co_dtype dtype, int64_t rows, int64_t width)
{
    co_value *row = ops_tensor(ctx, &(ops_random){ 5 }, dtype, (int64_t[]){ width }, 1,
                               OPS_ORDINARY);
    co_value *one = co_cast(ctx, co_float(ctx, 3), dtype);
    co_value *x = co_broadcast_to(ctx, row, (int64_t[]){ rows, width }, 2);
    co_value *large[NUM_STREAMED], *small[NUM_STREAMED];
    size_t    nbytes = (size_t)width * co_dtype_size(dtype);
    int       n = co_dtype_is_floating(dtype) ? NUM_STREAMED : NUM_STREAMED_WHOLE;

    streamed(ctx, x, row, one, large, n);
    streamed(ctx, row, row, one, small, n);
    CO_EXPECT_TRUE(co_ok(ctx));
    for (int k = 0; k < n && co_ok(ctx); ++k) {
        int64_t wrong = 0;

        for (int64_t i = 0; i < rows; ++i)
            wrong += memcmp((const char *)large[k]->u.tensor.data + (size_t)i * nbytes,
                            small[k]->u.tensor.data, nbytes) != 0;
        CO_EXPECT_INT(wrong, 0);
    }
}

CO_TEST(large_results_are_those_of_small_ones, "")
{
    CO_BLOCK(ctx)
        check_streamed(ctx, CO_FLOAT32, 8209, 1031); /* rows that begin anywhere */
    CO_BLOCK(ctx)
        check_streamed(ctx, CO_FLOAT32, 131072, 64);
    CO_BLOCK(ctx)
        check_streamed(ctx, CO_FLOAT64, 4099, 1027);
    CO_BLOCK(ctx)
        check_streamed(ctx, CO_INT32, 8209, 1025);
}

CO_TEST(strings_compare_by_their_bytes, "")
{
    static const char *const a[] = { "x", "", "long text" }, *const b[] = { "x", "y", "long texT" };
    static const uint8_t expected[] = { 1, 0, 0 };
    co_value            *x = co_tensor(ctx, CO_STRING, CO_SHAPE(3), a);
    co_value            *y = co_tensor(ctx, CO_STRING, CO_SHAPE(3), b);

    CO_EXPECT_BYTES(co_value_data(ctx, co_equal(ctx, x, y)), expected, 3);
}

CO_TEST(where_agrees_with_the_reference, "")
{
    static const int64_t shape[4][3] = { { 1, 5, 7 }, { 3, 1, 7 }, { 3, 5, 1 }, { 3, 5, 7 } };
    ops_random           random = { 5 };

    for (int d = CO_BOOL; d < CO_STRING; ++d)
        for (int k = 0; k < 4; ++k) {
            co_value *in[3] = {
                ops_tensor(ctx, &random, CO_BOOL, shape[k], 3, OPS_SMALL),
                ops_tensor(ctx, &random, (co_dtype)d, shape[(k + 1) % 4], 3, OPS_SMALL),
                ops_tensor(ctx, &random, (co_dtype)d, shape[(k + 2) % 4], 3, OPS_SMALL)
            };

            ops_same_as_reference(ctx, coi_op_find("where"), in, 3, NULL, 0,
                                  co_dtype_name((co_dtype)d));
        }
    CO_EXPECT_TRUE(co_ok(ctx));
}

/* --- what ran --- */

typedef struct last_line {
    char text[600];
    int  count;
} last_line;

static void
keep_line(co_log_level level, const char *line, void *user)
{
    last_line *last = user;

    if (level != CO_LOG_DEBUG)
        return;
    snprintf(last->text, sizeof(last->text), "%s", line);
    ++last->count;
}

static void
expect_said(const char *settings, const char *kernel)
{
    co_options  o = CO_OPTIONS_INIT;
    last_line   last = { "", 0 };
    co_context *ctx;
    char        expected[100];

    o.settings = settings;
    o.log = keep_line;
    o.log_user = &last;
    ctx = co_open_with(&o);
    co_add(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 3)), co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3)));
    snprintf(expected, sizeof(expected), "add float32[2,3] float32[3]: kernel %s on ", kernel);
    CO_EXPECT_CONTAINS(last.text, expected);
    CO_EXPECT_CONTAINS(last.text, "CPU:0, for ");
    CO_EXPECT_CONTAINS(last.text, "ops_elementwise.c:");
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
}

CO_TEST_BARE(the_debug_log_says_which_kernel_ran, "")
{
    expect_said("log=debug, isa=base", "base");
    expect_said("log=debug, reference_kernels=yes", "reference");
}
