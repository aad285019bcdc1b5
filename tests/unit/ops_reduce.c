/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions and argmax: the optimised kernels against the reference over shapes, axes and dtypes,
 * and the order of sums.
 */
#include "ops_support.h"

#include "ops/kernels/reduction.h"

static const struct {
    int     ndim;
    int64_t dims[CO_MAX_DIMS];
} shapes[] = {
    { 0, { 0 } },
    { 1, { 1 } },
    { 1, { 31 } },
    { 1, { 33 } },
    { 1, { 4099 } },
    { 2, { 5, 7 } },
    { 2, { 257, 3 } },
    { 2, { 3, 257 } },
    { 2, { 130, 64 } },
    { 2, { 1, 9 } },
    { 2, { 0, 3 } },
    { 2, { 3, 0 } },
    { 3, { 4, 3, 5 } },
    { 3, { 2, 1, 35 } },
    { 4, { 3, 2, 4, 5 } },
    { 5, { 2, 3, 2, 3, 2 } },
    { 8, { 2, 1, 3, 2, 1, 2, 1, 2 } },
};

/* Ordinary numbers of half the dtypes would overflow or cancel; sums of small whole numbers are
 * exact everywhere. */
static void
check_shape(co_context *ctx, ops_random *random, const coi_op *op, co_dtype dtype, size_t shape,
            ops_filling filling, double limit)
{
    int       ndim = shapes[shape].ndim;
    co_value *x = ops_tensor(ctx, random, dtype, shapes[shape].dims, ndim, filling);

    for (int mask = 0; mask < 1 << ndim; ++mask) {
        coi_reduce_attrs attrs = { .keepdims = mask % 2 == 1 };
        char             text[300];

        for (int d = ndim - 1; d >= 0;
             --d) /* axes in falling order, every other one counted from the end */
            if ((mask & 1 << d) != 0)
                attrs.axis.at[attrs.axis.n++] = d % 2 == 0 ? d : d - ndim;
        if (mask == (1 << ndim) - 1 && ndim > 0)
            attrs.axis.n = -1;
        ops_describe(text, dtype, &x, 1);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), " axes %x", (unsigned)mask);
        if (!ops_same_as_reference(ctx, op, &x, 1, &attrs, limit, text))
            return;
    }
}

static void
check_all(co_context *ctx)
{
    static const char *const names[] = { "reduce_sum", "reduce_mean", "reduce_max" };
    ops_random               random = { 1 };

    for (int k = 0; k < 3; ++k)
        for (int d = CO_INT8; d < CO_STRING; ++d)
            for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); ++s)
                CO_BLOCK(ctx) {
                    const coi_op *op = coi_op_find(names[k]);

                    check_shape(ctx, &random, op, (co_dtype)d, s, OPS_SMALL, 0);
                    if (k == 2)
                        check_shape(ctx, &random, op, (co_dtype)d, s, OPS_SPECIAL, 0);
                    else if (!co_dtype_is_floating((co_dtype)d) && k == 0)
                        check_shape(ctx, &random, op, (co_dtype)d, s, OPS_ORDINARY, 0);
                }
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(fast_reductions_agree_with_the_reference, "")
{
    check_all(ctx);
}

CO_TEST_WITH(baseline_reductions_agree_with_the_reference, "", "isa=base")
{
    check_all(ctx);
}

/* Long enough to be cut into segments and chunks; the reference adds in double. */
CO_TEST(long_sums_are_accurate, "")
{
    static const struct {
        int64_t dims[3];
        int     axis, num_axes;
    } cases[] = { { { 1, 1, 1000003 }, 0, 0 }, { { 1, 200003, 5 }, 1, 1 },
                  { { 1, 1009, 523 }, 1, 1 },  { { 7, 40009, 3 }, 1, 1 },
                  { { 3, 300, 700 }, 2, 1 },   { { 300, 3, 700 }, 0, 1 } };
    ops_random random = { 2 };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        int       axis = cases[i].axis;
        co_value *x = ops_tensor(ctx, &random, CO_FLOAT32, cases[i].dims, 3, OPS_ORDINARY);
        co_value *wide = co_cast(ctx, x, CO_FLOAT64);
        co_value *sum, *exact;

        sum = co_reduce_sum(ctx, x, cases[i].num_axes > 0 ? &axis : NULL, (size_t)cases[i].num_axes,
                            false);
        exact = co_reduce_sum(ctx, wide, cases[i].num_axes > 0 ? &axis : NULL,
                              (size_t)cases[i].num_axes, false);
        CO_REQUIRE(sum != NULL && exact != NULL);
        for (int64_t k = 0; k < co_value_num_elements(ctx, sum); k += 97) {
            double n = (double)co_value_num_elements(ctx, x) /
                       (double)co_value_num_elements(ctx, sum);

            /* 2 is the largest element; the error grows with the square root of the length at
             * worst */
            CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, sum))[k],
                            ((const double *)co_value_data(ctx, exact))[k],
                            2 * sqrt(n) * 6e-8 * 12);
        }
    }
}

/* Few results of many elements are cut into segments, whose accumulators are combined. */
CO_TEST(segments_combine_to_what_the_reference_gives, "")
{
    static const int64_t  dims[3] = { 2, 70001, 3 };
    static const co_dtype dtypes[] = { CO_FLOAT32, CO_FLOAT16, CO_INT32, CO_INT8, CO_UINT64 };
    static const char    *names[] = { "reduce_sum", "reduce_mean", "reduce_max" };
    ops_random            random = { 5 };

    for (int d = 0; d < 5; ++d)
        for (int k = 0; k < 3; ++k)
            for (int axis = 0; axis < 2; ++axis) {
                coi_reduce_attrs attrs = { { axis == 0 ? -1 : 1, { 1 } }, false };
                bool             is_float = co_dtype_is_floating(dtypes[d]);
                co_value        *x = ops_tensor(ctx, &random, dtypes[d], dims, 3,
                                         is_float && k < 2 ? OPS_SMALL : OPS_SPECIAL);

                ops_same_as_reference(ctx, coi_op_find(names[k]), &x, 1, &attrs, 0,
                                      co_dtype_name(dtypes[d]));
            }
    CO_EXPECT_TRUE(co_ok(ctx));
}

/* Around the sizes from which a result is cut into segments, none of which may be less than one.
 * Sums of ones are exact. */
CO_TEST(any_number_of_results_of_any_length_adds_up, "")
{
    for (int64_t results = 1; results < 20; ++results)
        for (int64_t length = 65536 / results - 1; length * results < 600000; length += length / 3)
            for (int axis = 0; axis < 2; ++axis)
                CO_BLOCK(ctx) {
                    int64_t      dims[3] = { results, length, 1 + 2 * axis };
                    co_value    *x = co_ones(ctx, CO_FLOAT32, dims, 3);
                    co_value    *sum = co_reduce_sum(ctx, x, CO_AXES(1), false);
                    const float *of = co_value_data(ctx, sum);

                    for (int64_t i = 0; i < co_value_num_elements(ctx, sum); ++i)
                        CO_EXPECT_CLOSE(of[i], (double)length, 0);
                }
}

/* What decides is in the last segment, or in the first. */
CO_TEST(a_maximum_is_found_in_any_segment, "")
{
    enum { N = 200000 };
    static float   real[N];
    static int32_t whole[N];
    int64_t        n = N;

    for (int end = 0; end < 2; ++end) {
        int at = end == 0 ? 5 : N - 5;

        for (int i = 0; i < N; ++i) {
            real[i] = (float)(i % 100);
            whole[i] = -1 - i % 100;
        }
        whole[at] = 7;
        CO_EXPECT_INT(co_item_int(ctx, co_reduce_max(ctx, co_tensor(ctx, CO_INT32, &n, 1, whole),
                                                     CO_ALL_AXES, false)),
                      7);
        real[at] = 1000;
        CO_EXPECT_CLOSE(co_item_float(ctx,
                                      co_reduce_max(ctx, co_tensor(ctx, CO_FLOAT32, &n, 1, real),
                                                    CO_ALL_AXES, false)),
                        1000, 0);
        real[at] = NAN;
        CO_EXPECT_TRUE(isnan(co_item_float(
            ctx, co_reduce_max(ctx, co_tensor(ctx, CO_FLOAT32, &n, 1, real), CO_ALL_AXES, false))));
    }
}

static void
sums_with(const char *settings, float *out)
{
    static const int64_t dims[3] = { 37, 101, 211 };
    co_context          *own = co_open(settings);
    ops_random           random = { 3 };
    co_value            *x = ops_tensor(own, &random, CO_FLOAT32, dims, 3, OPS_ORDINARY);
    int                  axes[2] = { 0, 1 };

    co_value_copy_data(own, co_reduce_sum(own, x, NULL, 0, false), CO_FLOAT32, out, 1);
    co_value_copy_data(own, co_reduce_sum(own, x, axes, 2, false), CO_FLOAT32, out + 1, 211);
    co_value_copy_data(own, co_reduce_mean(own, x, axes + 1, 1, false), CO_FLOAT32, out + 212,
                       37 * 211);
    CO_EXPECT_INT(co_close(own), 0);
}

CO_TEST_BARE(sums_do_not_depend_on_the_number_of_workers, "")
{
    static float one[212 + 37 * 211], two[212 + 37 * 211];

    sums_with("threads=1", one);
    sums_with("threads=2", two);
    CO_EXPECT_BYTES(one, two, sizeof(one));
}

CO_TEST(argmax_agrees_with_the_reference, "")
{
    ops_random    random = { 4 };
    const coi_op *op = coi_op_find("argmax");

    for (int d = CO_BOOL; d < CO_STRING; ++d)
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); ++s)
            for (int axis = -shapes[s].ndim; axis < shapes[s].ndim; ++axis) {
                coi_argmax_attrs attrs = { axis, axis % 2 == 0 ? CO_INT32 : CO_INT64 };
                co_value        *x;
                char             text[300];

                if (shapes[s].dims[axis < 0 ? axis + shapes[s].ndim : axis] == 0)
                    continue;
                x = ops_tensor(ctx, &random, (co_dtype)d, shapes[s].dims, shapes[s].ndim,
                               axis % 2 == 0 ? OPS_SPECIAL : OPS_SMALL);
                ops_same_as_reference(ctx, op, &x, 1, &attrs, 0,
                                      ops_describe(text, (co_dtype)d, &x, 1));
            }
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(argmax_takes_the_first_of_equals_and_passes_over_nan, "")
{
    static const float x[3][4] = { { 1, 3, 3, 2 },
                                   { NAN, -INFINITY, 2, NAN },
                                   { NAN, NAN, NAN, NAN } };
    co_value *at = co_argmax(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 4), x), 1, CO_DTYPE_NONE);
    const int64_t expected[] = { 1, 2, 0 };

    CO_EXPECT_INT(co_value_dtype(ctx, at), CO_INT64);
    CO_EXPECT_BYTES(co_value_data(ctx, at), expected, sizeof(expected));
}

/* Nothing to add gives 0, nothing to average NaN (0 for integers), no maximum the smallest
 * number. */
CO_TEST(reductions_of_nothing, "")
{
    co_value *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0, 2)),
             *i = co_zeros(ctx, CO_INT8, CO_SHAPE(0, 2));

    CO_EXPECT_CLOSE(
        ((const float *)co_value_data(ctx, co_reduce_sum(ctx, x, CO_AXES(0), false)))[1], 0, 0);
    CO_EXPECT_TRUE(
        isnan(((const float *)co_value_data(ctx, co_reduce_mean(ctx, x, CO_AXES(0), false)))[1]));
    CO_EXPECT_CLOSE(((const float *)co_value_data(ctx,
                                                  co_reduce_max(ctx, x, CO_AXES(0), false)))[1],
                    -INFINITY, 0);
    CO_EXPECT_INT(
        ((const int8_t *)co_value_data(ctx, co_reduce_mean(ctx, i, CO_AXES(0), false)))[1], 0);
    CO_EXPECT_INT(((const int8_t *)co_value_data(ctx, co_reduce_max(ctx, i, CO_AXES(0), false)))[1],
                  -128);
}

/* Results of nothing are written by copying one of them: the last as well as the first. */
CO_TEST(many_reductions_of_nothing, "")
{
    enum { MANY = 1000003 };
    co_value    *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(MANY, 0)), *y;
    const float *data = co_value_data(ctx, co_reduce_min(ctx, x, CO_AXES(1), false));

    for (int64_t i = 0; i < MANY; i += MANY / 2)
        CO_EXPECT_CLOSE(data[i], INFINITY, 0);
    y = co_reduce_prod(ctx, co_cast(ctx, x, CO_INT16), CO_AXES(-1), true);
    CO_EXPECT_INT(co_value_num_elements(ctx, y), MANY);
    CO_EXPECT_INT(((const int16_t *)co_value_data(ctx, y))[MANY - 1], 1);
    x = co_reduce_mean(ctx, co_zeros(ctx, CO_FLOAT16, CO_SHAPE(3, 0, 5, 0)), CO_AXES(3), false);
    CO_EXPECT_INT(co_value_num_elements(ctx, x), 0);
    CO_EXPECT_OK(ctx);
}

CO_TEST(axes_can_be_all_some_or_none, "")
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3, 4));

    CO_EXPECT_INT(co_value_ndim(ctx, co_reduce_sum(ctx, x, CO_ALL_AXES, false)), 0);
    CO_EXPECT_INT(co_value_ndim(ctx, co_reduce_sum(ctx, x, CO_ALL_AXES, true)), 3);
    CO_EXPECT_INT(co_value_dim(ctx, co_reduce_sum(ctx, x, CO_AXES(-1, 0), false), 0), 3);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_reduce_sum(ctx, x, (const int[]){ 0 }, 0, false)),
                  24);
}
