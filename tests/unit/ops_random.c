/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers: Philox against published vectors, distributions, streams, threads, instruction
 * sets, errors. */
#include "context/context.h"
#include "kernel_support.h"

#include "ops/kernels/philox.h"

#include <float.h>

/* Known answers published with Random123. */
CO_TEST(philox_gives_the_published_numbers, "")
{
    static const uint32_t vectors[3][10] = {
        { 0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
        { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
          0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
        { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
          0x94fdcceb, 0x5001e420, 0x24126ea1 },
    };

    for (int i = 0; i < 3; ++i) {
        uint32_t out[4];

        coi_philox(vectors[i], vectors[i] + 4, out);
        CO_EXPECT_BYTES(out, vectors[i] + 6, sizeof(out));
    }
}

/* Element i of the first call with seed s on replica 0 is word i % 4 of block i / 4. */
CO_TEST(random_uniform_follows_from_seed_call_replica_and_position, "S-RUN-7")
{
    uint32_t     counter[4] = { 0 }, key[2] = { 7, 5 }, words[4];
    const float *got;

    co_set_seed(ctx, (uint64_t)5 << 32 | 7);
    ctx->mode.replica = 3;
    co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(4), 0, 1); /* call 0 */
    got = co_value_data(ctx, co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(3, 3), 0, 1));
    ctx->mode.replica = 0;
    for (uint32_t i = 0; i < 9; ++i) {
        counter[0] = i / 4;
        counter[1] = 3u << 8;
        counter[2] = 1;
        coi_philox(counter, key, words);
        CO_EXPECT_CLOSE(got[i], (double)(words[i % 4] >> 8) * 0x1p-24, 0);
    }
}

enum { MANY = 100003 };

/* Mean, variance and extremes of MANY numbers. */
static void
moments(co_context *ctx, co_value *x, double *mean, double *variance, double *low, double *high)
{
    int64_t n;
    double *data = kernel_read(ctx, x, &n), sum = 0, squares = 0;

    CO_EXPECT_INT(n, MANY);
    *low = INFINITY;
    *high = -INFINITY;
    for (int64_t i = 0; i < n; ++i) {
        sum += data[i];
        *low = fmin(*low, data[i]);
        *high = fmax(*high, data[i]);
    }
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; ++i)
        squares += (data[i] - *mean) * (data[i] - *mean);
    *variance = squares / (double)n;
    free(data);
}

static const co_dtype dtypes[] = { CO_FLOAT32, CO_FLOAT64, CO_FLOAT16, CO_BFLOAT16 };

CO_TEST(random_uniform_fills_its_interval_evenly, "")
{
    for (int d = 0; d < 4; ++d) {
        double mean, variance, low, high;

        moments(ctx, co_random_uniform(ctx, dtypes[d], CO_SHAPE(MANY), -2, 6), &mean, &variance,
                &low, &high);
        CO_EXPECT_CLOSE(mean, 2, 0.05); /* five standard errors: 8 / sqrt(12 n) * 5 */
        CO_EXPECT_CLOSE(variance, 64.0 / 12, 0.1);
        CO_EXPECT_TRUE(low >= -2);
        CO_EXPECT_LESS(high, 6);
        CO_EXPECT_LESS(low, -1.9);
        CO_EXPECT_MORE(high, 5.8);
    }
}

/* Rounding to a coarse dtype would reach the upper limit. */
CO_TEST(random_uniform_never_gives_the_upper_limit, "")
{
    static const double limits[][2] = { { 1, 1.01 }, { -1.01, -1 }, { 0, 1e-6 }, { 1000, 1001 } };

    for (int d = 0; d < 4; ++d)
        for (int i = 0; i < 4; ++i) {
            double mean, variance, low, high;

            moments(ctx,
                    co_random_uniform(ctx, dtypes[d], CO_SHAPE(MANY), limits[i][0], limits[i][1]),
                    &mean, &variance, &low, &high);
            CO_EXPECT_LESS(high, limits[i][1]);
        }
    CO_EXPECT_CLOSE(co_item_float(ctx, co_random_uniform(ctx, CO_FLOAT32, NULL, 0, 3, 3)), 3, 0);
}

CO_TEST(random_normal_has_its_mean_and_deviation, "")
{
    for (int d = 0; d < 4; ++d) {
        double mean, variance, low, high;

        moments(ctx, co_random_normal(ctx, dtypes[d], CO_SHAPE(MANY), 1, 2), &mean, &variance, &low,
                &high);
        CO_EXPECT_CLOSE(mean, 1, 0.035);
        CO_EXPECT_CLOSE(variance, 4, 0.1);
        CO_EXPECT_LESS(low, 1 - 2 * 3.7);
        CO_EXPECT_MORE(high, 1 + 2 * 3.7);
        CO_EXPECT_LESS(high, 1 + 2 * 9);
    }
}

/* The fourth and sixth moments of a normal distribution are 3 and 15. */
CO_TEST(random_normal_has_normal_tails, "")
{
    int64_t n;
    double *data = kernel_read(ctx, co_random_normal(ctx, CO_FLOAT64, CO_SHAPE(MANY), 0, 1), &n);
    double  fourth = 0, sixth = 0, neighbours = 0;

    for (int64_t i = 0; i < n; ++i) {
        fourth += pow(data[i], 4) / (double)n;
        sixth += pow(data[i], 6) / (double)n;
        neighbours += i > 0 ? data[i] * data[i - 1] / (double)n : 0;
    }
    CO_EXPECT_CLOSE(fourth, 3, 0.2);
    CO_EXPECT_CLOSE(sixth, 15, 2);
    CO_EXPECT_CLOSE(neighbours, 0, 0.02);
    free(data);
}

/* What the C library gives for the same Box-Muller, to rounding. */
CO_TEST(random_normal_is_box_muller, "")
{
    uint32_t counter[4] = { 0 }, key[2] = { 11, 0 }, w[4];
    double   data[4];

    co_set_seed(ctx, 11);
    co_value_copy_data(ctx, co_random_normal(ctx, CO_FLOAT64, CO_SHAPE(4), 0, 1), CO_FLOAT64, data,
                       4);
    for (uint32_t block = 0; block < 2; ++block) {
        double u1, u2, r;

        counter[0] = block;
        coi_philox(counter, key, w);
        u1 = (double)(((uint64_t)w[0] << 32 | w[1]) >> 11) * 0x1p-53 + 0x1p-53;
        u2 = (double)(((uint64_t)w[2] << 32 | w[3]) >> 11) * 0x1p-53;
        r = sqrt(-2 * log(u1));
        CO_EXPECT_CLOSE(data[2 * block], r * cos(6.283185307179586477 * u2), 2e-15);
        CO_EXPECT_CLOSE(data[2 * block + 1], r * sin(6.283185307179586477 * u2), 2e-15);
    }
}

CO_TEST(random_streams_repeat_from_the_seed_and_differ_by_call_and_replica, "S-RUN-7")
{
    co_value *first, *second, *again, *other, *replica;

    co_set_seed(ctx, 42);
    first = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(50), 0, 1);
    second = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(50), 0, 1);
    co_set_seed(ctx, 42);
    again = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(50), 0, 1);
    co_set_seed(ctx, 43);
    other = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(50), 0, 1);
    co_set_seed(ctx, 42);
    ctx->mode.replica = 1;
    replica = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(50), 0, 1);
    ctx->mode.replica = 0;
    CO_EXPECT_CLOSE(kernel_difference(ctx, first, again), 0, 0);
    CO_EXPECT_MORE(kernel_difference(ctx, first, second), 0.1);
    CO_EXPECT_MORE(kernel_difference(ctx, first, other), 0.1);
    CO_EXPECT_MORE(kernel_difference(ctx, first, replica), 0.1);
}

/* A function of their two seeds: the state of the context and the replica do not matter and do not
 * change. */
CO_TEST(stateless_random_numbers_follow_from_their_seeds, "S-RUN-7")
{
    static const int64_t seeds[][2] = { { 1, 2 }, { 2, 1 }, { 1, 3 }, { -1, 2 }, { 0, 0 } };
    co_value            *of[5], *again, *before, *after;

    for (int i = 0; i < 5; ++i)
        of[i] = co_stateless_random_normal(ctx, CO_FLOAT32, CO_SHAPE(50), seeds[i], NULL);
    for (int i = 0; i < 5; ++i)
        for (int k = 0; k < i; ++k)
            CO_EXPECT_MORE(kernel_difference(ctx, of[i], of[k]), 0.1);
    co_set_seed(ctx, 42);
    before = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(50), 0, 1);
    co_set_seed(ctx, 42);
    ctx->mode.replica = 3;
    again = co_stateless_random_normal(ctx, CO_FLOAT32, CO_SHAPE(50), seeds[0], NULL);
    ctx->mode.replica = 0;
    CO_EXPECT_CLOSE(kernel_difference(ctx, of[0], again), 0, 0);
    after = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(50), 0, 1);
    CO_EXPECT_CLOSE(kernel_difference(ctx, before, after), 0, 0);
    /* not the stream of a context with these numbers */
    again = co_stateless_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(50), (int64_t[]){ 42, 0 }, NULL);
    CO_EXPECT_MORE(kernel_difference(ctx, before, again), 0.1);
    /* a longer tensor begins with the numbers of a shorter one */
    again = co_stateless_random_normal(ctx, CO_FLOAT32, CO_SHAPE(9, 7), seeds[0], NULL);
    again = co_slice(ctx, co_reshape(ctx, again, CO_SHAPE(63)), (int64_t[]){ 0 }, (int64_t[]){ 50 },
                     1);
    CO_EXPECT_CLOSE(kernel_difference(ctx, of[0], again), 0, 0);
}

CO_TEST(stateless_random_numbers_need_two_seeds, "GEN-ERR-4")
{
    const char *keys[] = { "shape", "seed" };
    co_value   *one = co_list(ctx, (co_value *[]){ co_int(ctx, 3) }, 1);

    CO_EXPECT_NULL(co_stateless_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "seed");
    CO_EXPECT_NULL(co_op_call(ctx, "stateless_random_normal", co_tuple(ctx, NULL, 0),
                              co_dict(ctx, keys, (co_value *[]){ one, one }, 2)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "seed has 1 number;");
    CO_EXPECT_NULL(
        co_stateless_random_normal(ctx, CO_INT32, CO_SHAPE(2), (int64_t[]){ 1, 2 }, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "int32");
}

CO_TEST_WITH(random_numbers_begin_with_the_seed_of_the_settings, "", "seed=42")
{
    co_value *first = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(5), 0, 1);

    co_set_seed(ctx, 42);
    CO_EXPECT_CLOSE(
        kernel_difference(ctx, first, co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(5), 0, 1)), 0, 0);
}

static co_value *
many_numbers(co_context *ctx, co_value *const *in)
{
    co_value *parts[2];

    (void)in;
    parts[0] = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(MANY), 0, 1);
    parts[1] = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(MANY), -1, 3);
    return co_concat(ctx, co_tuple(ctx, parts, 2), 0);
}

static co_value *
dropped(co_context *ctx, co_value *const *in)
{
    (void)in;
    return co_dropout(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(MANY)), 0.25);
}

CO_TEST_BARE(random_numbers_are_the_same_with_any_number_of_threads, "S-RUN-7")
{
    kernel_check_threads(many_numbers);
    kernel_check_threads(dropped);
}

/* What stays is scaled so that the mean stays; gradients pass at the same places; a seed gives the
 * same ones again. */
CO_TEST(dropout_drops_about_its_rate, "")
{
    co_value    *x = co_ones(ctx, CO_FLOAT64, CO_SHAPE(20000)), *y, *grad, *again;
    const double kept = 1 / 0.75;
    double       sum = 0;

    co_set_seed(ctx, 5);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_dropout(ctx, x, 0.25);
    grad = co_gradient(ctx, y, x);
    for (int64_t i = 0; i < 20000; ++i) {
        double value = ((const double *)co_value_data(ctx, y))[i];

        sum += value;
        if (value != 0 && fabs(value - kept) > 1e-12)
            CO_EXPECT_CLOSE(value, kept, 1e-12);
    }
    CO_EXPECT_CLOSE(sum / 20000, 1, 0.02);
    CO_EXPECT_BYTES(co_value_data(ctx, grad), co_value_data(ctx, y), 20000 * sizeof(double));
    again = co_dropout(ctx, x, 0.25);
    CO_EXPECT_TRUE(
        memcmp(co_value_data(ctx, again), co_value_data(ctx, y), 20000 * sizeof(double)) != 0);
    co_set_seed(ctx, 5);
    again = co_dropout(ctx, x, 0.25);
    CO_EXPECT_BYTES(co_value_data(ctx, again), co_value_data(ctx, y), 20000 * sizeof(double));
    CO_EXPECT_BYTES(co_value_data(ctx, co_dropout(ctx, x, 0)), co_value_data(ctx, x),
                    20000 * sizeof(double));
    CO_EXPECT_OK(ctx);
}

CO_TEST_BARE(random_numbers_are_the_same_with_any_instruction_set, "")
{
    co_context *base = co_open("isa=base"), *best = co_open(NULL);

    CO_EXPECT_BYTES(co_value_data(base, many_numbers(base, NULL)),
                    co_value_data(best, many_numbers(best, NULL)), 2 * MANY * sizeof(float));
    co_close(base);
    co_close(best);
}

CO_TEST(random_integers_are_all_those_of_their_range, "")
{
    enum { N = 5000 };
    static const co_dtype integers[] = { CO_INT8, CO_INT32, CO_INT64, CO_UINT8, CO_UINT16 };
    int64_t               numbers[N];
    int                   seen[7];

    for (size_t k = 0; k < sizeof(integers) / sizeof(integers[0]); ++k) {
        co_value *x = co_random_uniform(ctx, integers[k], CO_SHAPE(N), 3, 10);

        CO_EXPECT_INT(co_value_dtype(ctx, x), integers[k]);
        CO_REQUIRE(co_value_copy_data(ctx, x, CO_INT64, numbers, N) == CO_OK);
        memset(seen, 0, sizeof(seen));
        for (int i = 0; i < N; ++i) {
            CO_REQUIRE(numbers[i] >= 3 && numbers[i] < 10);
            ++seen[numbers[i] - 3];
        }
        for (int i = 0; i < 7; ++i) /* 714 each, with a standard deviation of 25 */
            CO_EXPECT_CLOSE(seen[i], N / 7.0, 150);
    }
    co_random_uniform(ctx, CO_UINT8, CO_SHAPE(2), 0, 256);
    co_random_uniform(ctx, CO_INT8, CO_SHAPE(2), -128, 128);
    CO_EXPECT_OK(ctx);
}

static co_value *
draw_seeded(co_context *ctx, int64_t op_seed)
{
    static const char *const keys[] = { "op_seed", "shape" };
    co_value                *n = co_int(ctx, 8);
    co_value *const          items[] = { co_int(ctx, op_seed), co_list(ctx, &n, 1) };

    return co_op_call(ctx, "random_normal", co_no_args(ctx), co_dict(ctx, keys, items, 2));
}

CO_TEST(a_seed_of_an_operator_is_another_stream, "")
{
    const size_t nbytes = 8 * sizeof(float);
    co_value    *seen[4];

    co_set_seed(ctx, 1);
    seen[0] = draw_seeded(ctx, 5);
    seen[1] = draw_seeded(ctx, 5);
    co_set_seed(ctx, 1);
    seen[2] = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(8), 0, 1);
    co_set_seed(ctx, 1);
    seen[3] = draw_seeded(ctx, 6);
    for (int i = 1; i < 4; ++i)
        CO_EXPECT_TRUE(memcmp(co_value_data(ctx, seen[0]), co_value_data(ctx, seen[i]), nbytes) !=
                       0);
    co_set_seed(ctx, 1);
    CO_EXPECT_BYTES(co_value_data(ctx, draw_seeded(ctx, 5)), co_value_data(ctx, seen[0]), nbytes);
}

CO_TEST(a_shuffle_has_all_rows_in_another_order, "")
{
    co_value *x = co_reshape(
        ctx, co_range(ctx, co_int(ctx, 0), co_int(ctx, 40), co_int(ctx, 1), CO_INT32),
        CO_SHAPE(20, 2));
    co_value      *y = co_random_shuffle(ctx, x), *z = co_random_shuffle(ctx, x);
    const int32_t *first = co_value_data(ctx, y), *second = co_value_data(ctx, z);
    bool           seen[20] = { false }, differs = false;

    CO_REQUIRE(first != NULL && second != NULL);
    for (int i = 0; i < 20; ++i) {
        CO_EXPECT_INT(first[2 * i + 1], first[2 * i] + 1);
        CO_EXPECT_FALSE(seen[first[2 * i] / 2]);
        seen[first[2 * i] / 2] = true;
        differs = differs || first[2 * i] != second[2 * i];
    }
    CO_EXPECT_TRUE(differs);
    CO_EXPECT_NULL(co_random_shuffle(ctx, co_scalar_int32(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "scalar");
    CO_EXPECT_INT(co_value_num_elements(ctx, co_random_shuffle(ctx, co_zeros(ctx, CO_FLOAT32,
                                                                             CO_SHAPE(0, 3)))),
                  0);
}

CO_TEST(random_numbers_reject_bad_arguments, "GEN-ERR-4")
{
    int64_t negative[1] = { -1 };

    CO_EXPECT_NULL(co_random_normal(ctx, CO_INT32, CO_SHAPE(2), 0, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "int32");
    CO_EXPECT_NULL(co_random_uniform(ctx, CO_BOOL, CO_SHAPE(2), 0, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "bool");
    CO_EXPECT_NULL(co_random_uniform(ctx, CO_INT32, CO_SHAPE(2), 0.5, 3));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "low is 0.5");
    CO_EXPECT_NULL(co_random_uniform(ctx, CO_INT32, CO_SHAPE(2), 3, 3));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "low below high");
    CO_EXPECT_NULL(co_random_uniform(ctx, CO_UINT8, CO_SHAPE(2), 0, 257));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "uint8 cannot hold");
    CO_EXPECT_NULL(co_random_uniform(ctx, (co_dtype)(256 + CO_FLOAT32), CO_SHAPE(2), 0, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "dtype");
    CO_EXPECT_NULL(co_random_uniform(ctx, CO_FLOAT32, negative, 1, 0, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "-1");
    CO_EXPECT_NULL(co_random_uniform(ctx, CO_FLOAT32, NULL, 2, 0, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "dims");
    CO_EXPECT_NULL(co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), 1, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "low is 1");
    CO_EXPECT_NULL(co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), 0, (double)NAN));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "finite");
    CO_EXPECT_NULL(co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(2), 0, -1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "stddev");
    CO_EXPECT_NULL(co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(INT64_MAX / 2, 8), 0, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "");
    /* A refused call does not advance the stream. */
    CO_EXPECT_INT(ctx->random_counter, 0);
}

/* Numbers between bounds that the dtype can hold are numbers of the dtype, to the ends of it. */
static void
expect_between(co_context *ctx, co_dtype dtype, double low, double high)
{
    double mean, variance, least, most;

    moments(ctx, co_random_uniform(ctx, dtype, CO_SHAPE(MANY), low, high), &mean, &variance, &least,
            &most);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_TRUE(isfinite(least) && isfinite(most));
    CO_EXPECT_TRUE(least >= low && most < high);
    CO_EXPECT_LESS(least / 2, low / 2 + (high / 2 - low / 2) * 0.01);
    CO_EXPECT_MORE(most / 2, high / 2 - (high / 2 - low / 2) * 0.01);
}

CO_TEST(bounds_are_numbers_of_the_dtype, "GEN-ERR-4")
{
    static const struct {
        co_dtype    dtype;
        double      largest, beyond; /* a number that rounds to infinity */
        const char *text;
    } ends[] = {
        { CO_FLOAT16, 65504, 65520, "float16 cannot hold both, its largest number is 65504" },
        { CO_BFLOAT16, 0x1.fep127, 0x1.ffp127, "its largest number is 3.38953e+38" },
        { CO_FLOAT32, 0x1.fffffep127, 0x1.ffffffp127, "its largest number is 3.40282e+38" },
        { CO_FLOAT64, DBL_MAX, (double)INFINITY, "they must be finite" },
    };

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); ++i) {
        co_dtype dtype = ends[i].dtype;

        expect_between(ctx, dtype, -ends[i].largest, ends[i].largest);
        expect_between(ctx, dtype, 0, ends[i].largest);
        CO_EXPECT_NULL(co_random_uniform(ctx, dtype, CO_SHAPE(2), 0, ends[i].beyond));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, ends[i].text);
        CO_EXPECT_NULL(co_random_uniform(ctx, dtype, CO_SHAPE(2), -ends[i].beyond, 0));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, ends[i].text);
        CO_EXPECT_NULL(co_random_normal(ctx, dtype, CO_SHAPE(2), 0, ends[i].beyond));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, ends[i].text);
        CO_EXPECT_NULL(co_random_normal(ctx, dtype, CO_SHAPE(2), -ends[i].beyond, 1));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, ends[i].text);
    }
    expect_between(ctx, CO_FLOAT64, -1.7e308, 1.7e308);
    expect_between(ctx, CO_FLOAT64, 0, 1e300);
    expect_between(ctx, CO_FLOAT16, -65519.9, 65519.9);
    CO_EXPECT_NULL(co_random_uniform(ctx, CO_FLOAT16, CO_SHAPE(2), -1e6, 1e6));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "low is -1e+06 and high 1e+06; float16 cannot hold both, its largest");
    CO_EXPECT_NULL(co_random_normal(ctx, CO_FLOAT16, CO_SHAPE(2), 0, 1e6));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "mean is 0 and stddev 1e+06; float16 cannot hold");
}

/* What a normal distribution gives beyond the largest number is infinite, as in a sum of such
 * numbers; nothing is NaN. */
CO_TEST(random_normal_numbers_beyond_the_dtype_are_infinite, "")
{
    co_value *x = co_random_normal(ctx, CO_FLOAT16, CO_SHAPE(MANY), 0, 40000);
    int64_t   n, beyond = 0;
    double   *data = kernel_read(ctx, x, &n);

    for (int64_t i = 0; i < n; ++i) {
        CO_EXPECT_TRUE(!isnan(data[i]));
        beyond += isinf(data[i]) != 0;
    }
    CO_EXPECT_CLOSE((double)beyond / (double)n, erfc(65520 / 40000.0 / sqrt(2)), 0.005);
    free(data);
}
