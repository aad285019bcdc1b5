/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of elements: all 65536 half floats and bfloat16s, rounding between any two of them,
 * integers at their edges. */
#include "test.h"

#include "value/value.h"

#include <float.h>

typedef struct half_format {
    int exponent_bits, fraction_bits;
    float (*widen)(uint16_t bits);
    uint16_t (*narrow)(float value);
    co_dtype dtype;
} half_format;

static const half_format half = { 5, 10, coi_half_to_float, coi_float_to_half, CO_FLOAT16 };
static const half_format brain = { 8, 7, coi_bfloat_to_float, coi_float_to_bfloat, CO_BFLOAT16 };

/* What bits mean, by the definition of the format. */
static double
meaning(const half_format *f, uint16_t bits)
{
    int    exponent = bits >> f->fraction_bits & ((1 << f->exponent_bits) - 1);
    int    fraction = bits & ((1 << f->fraction_bits) - 1);
    int    bias = (1 << (f->exponent_bits - 1)) - 1;
    double sign = bits >> 15 ? -1 : 1;

    if (exponent == (1 << f->exponent_bits) - 1)
        return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - f->fraction_bits);
    return sign * ldexp((1 << f->fraction_bits) + fraction, exponent - bias - f->fraction_bits);
}

static void
check_all(const half_format *f)
{
    int wrong = 0;

    for (uint32_t i = 0; i < 65536; ++i) {
        uint16_t bits = (uint16_t)i, back;
        double   want = meaning(f, bits);
        float    got = f->widen(bits);

        back = f->narrow(got);
        if (isnan(want)) { /* stays a NaN, of the same sign */
            wrong += !isnan(got) || !isnan(meaning(f, back)) || back >> 15 != bits >> 15;
        } else {
            wrong += (double)got != want || !!signbit(got) != bits >> 15 || back != bits;
        }
    }
    CO_EXPECT_INT(wrong, 0);
}

CO_TEST_BARE(all_half_floats_widen_and_come_back, "")
{
    check_all(&half);
}

CO_TEST_BARE(all_bfloats_widen_and_come_back, "")
{
    check_all(&brain);
}

/* Between two neighbours: to the nearer one, and from the middle to the even one. The last step
 * leads to infinity. */
static void
check_rounding(const half_format *f)
{
    uint16_t infinity = (uint16_t)(((1 << f->exponent_bits) - 1) << f->fraction_bits);
    int      wrong = 0;

    for (uint32_t sign = 0; sign < 2; ++sign)
        for (uint16_t bits = 0; bits < infinity; ++bits) {
            uint16_t low = (uint16_t)(bits | sign << 15), high = (uint16_t)(low + 1);
            double   a = meaning(f, low);
            double   b = bits + 1 < infinity
                             ? meaning(f, high)
                             : (sign ? -1 : 1) * ldexp(1, 1 << (f->exponent_bits - 1));
            float    middle = (float)((a + b) / 2), above, below;

            if ((double)middle != (a + b) / 2)
                continue; /* bfloat16 has subnormal middles that float has not */
            above = nextafterf(middle, sign ? -INFINITY : INFINITY);
            below = nextafterf(middle, 0);
            wrong += f->narrow(middle) != (bits % 2 == 0 ? low : high);
            wrong += f->narrow(below) != low;
            wrong += f->narrow(above) != high;
        }
    CO_EXPECT_INT(wrong, 0);
    CO_EXPECT_INT(f->narrow(FLT_MAX), infinity);
    CO_EXPECT_INT(f->narrow(-FLT_MAX), infinity | 0x8000);
}

CO_TEST_BARE(half_floats_round_to_nearest_even, "")
{
    check_rounding(&half);
    CO_EXPECT_INT(coi_float_to_half(65519.996f), 0x7BFF);
    CO_EXPECT_INT(coi_float_to_half(65520.0f), 0x7C00);
    CO_EXPECT_INT(coi_float_to_half(0x1p-25f), 0);
    CO_EXPECT_INT(coi_float_to_half(0x1.000002p-25f), 1);
}

CO_TEST_BARE(bfloats_round_to_nearest_even, "")
{
    check_rounding(&brain);
}

/* Whatever the operator's kernel is, it gives the bits of the plain conversion. */
CO_TEST(cast_rounds_like_the_plain_conversion, "")
{
    enum { N = 70000 };
    static float    wide[N];
    static uint16_t plain[N];
    uint32_t        state = 7;

    for (int i = 0; i < N; ++i) {
        uint32_t bits = state = state * 1664525u + 1013904223u;

        memcpy(&wide[i], &bits, sizeof(bits));
        if (isnan(wide[i]))
            wide[i] = 1;
    }
    for (int k = 0; k < 2; ++k) {
        co_dtype  dtype = k == 0 ? CO_FLOAT16 : CO_BFLOAT16;
        co_value *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(N), wide);

        coi_convert(CO_FLOAT32, wide, dtype, plain, N);
        CO_EXPECT_BYTES(co_value_data(ctx, co_cast(ctx, x, dtype)), plain, sizeof(plain));
    }
}

static int64_t
to_integer(double value, co_dtype dtype)
{
    int64_t  wide = 0;
    uint64_t bytes = 0;

    coi_convert(CO_FLOAT64, &value, dtype, &bytes, 1);
    coi_convert(dtype, &bytes, CO_INT64, &wide, 1);
    return wide;
}

CO_TEST_BARE(floats_to_integers_truncate, "")
{
    static const double values[] = { 0, 0.9, -0.9, 1, 1.5, -1.5, 99.999, -99.999 };
    static const int    whole[] = { 0, 0, 0, 1, 1, -1, 99, -99 };

    for (int d = CO_INT8; d <= CO_INT64; ++d)
        for (int i = 0; i < 8; ++i)
            CO_EXPECT_INT(to_integer(values[i], (co_dtype)d), whole[i]);
    for (int d = CO_UINT8; d <= CO_UINT64; ++d)
        for (int i = 0; i < 8; ++i)
            if (whole[i] >= 0)
                CO_EXPECT_INT(to_integer(values[i], (co_dtype)d), whole[i]);
    CO_EXPECT_INT(to_integer(2147483647.0, CO_INT32), INT32_MAX);
    CO_EXPECT_INT(to_integer(-2147483648.0, CO_INT32), INT32_MIN);
    CO_EXPECT_INT(to_integer(4294967295.0, CO_UINT32), UINT32_MAX);
    CO_EXPECT_INT(to_integer(0x1p62, CO_INT64), INT64_C(1) << 62);
    CO_EXPECT_TRUE((uint64_t)to_integer(0x1p63, CO_UINT64) == UINT64_C(1) << 63);
    /* What has no place: some value, but never a trap. */
    for (int d = CO_INT8; d <= CO_UINT64; ++d) {
        to_integer(NAN, (co_dtype)d);
        to_integer(INFINITY, (co_dtype)d);
        to_integer(-INFINITY, (co_dtype)d);
        to_integer(1e300, (co_dtype)d);
    }
    CO_EXPECT_INT(to_integer(NAN, CO_INT32), INT32_MIN);
    CO_EXPECT_INT(to_integer(1e300, CO_INT64), INT64_MIN);
}

CO_TEST_BARE(integers_wrap_and_stay_exact, "")
{
    const int64_t  minus = -1, large = INT64_MAX - 1;
    const uint64_t all = UINT64_MAX;
    uint64_t       out = 0;
    uint8_t        byte = 0;
    double         real = 0;
    float          single = 0;

    coi_convert(CO_INT64, &minus, CO_UINT8, &byte, 1);
    CO_EXPECT_INT(byte, 255);
    coi_convert(CO_INT64, &minus, CO_UINT64, &out, 1);
    CO_EXPECT_TRUE(out == UINT64_MAX);
    coi_convert(CO_INT64, &large, CO_UINT64, &out, 1);
    CO_EXPECT_TRUE(out == (uint64_t)large);
    coi_convert(CO_UINT64, &all, CO_FLOAT64, &real, 1);
    CO_EXPECT_CLOSE(real, 0x1p64, 0);
    coi_convert(CO_UINT64, &all, CO_FLOAT32, &single, 1);
    CO_EXPECT_CLOSE(single, 0x1p64, 0);
    /* One rounding, not two: through double this would round down. */
    coi_convert(CO_INT64, &(int64_t){ (INT64_C(1) << 54) + (INT64_C(1) << 30) + 1 }, CO_FLOAT32,
                &single, 1);
    CO_EXPECT_CLOSE(single, 0x1p54 + 0x1p31, 0);
    for (int d = CO_INT8; d <= CO_FLOAT64; ++d) { /* numbers to bool are x != 0 */
        uint64_t bytes = 0;

        coi_convert(CO_INT64, &minus, (co_dtype)d, &bytes, 1);
        coi_convert((co_dtype)d, &bytes, CO_BOOL, &byte, 1);
        CO_EXPECT_INT(byte, 1);
        coi_convert(CO_BOOL, &byte, (co_dtype)d, &bytes, 1);
        coi_convert((co_dtype)d, &bytes, CO_FLOAT64, &real, 1);
        CO_EXPECT_CLOSE(real, 1, 0);
    }
}

CO_TEST_BARE(shapes_are_checked_before_anything_is_made, "")
{
    static const struct {
        int64_t dims[9];
        size_t  ndim, size;
        co_code code;
        int64_t count;
    } cases[] = {
        { { 0 }, 0, 4, CO_OK, 1 },
        { { 2, 3 }, 2, 4, CO_OK, 6 },
        { { 0, INT64_MAX }, 2, 8, CO_OK, 0 },                  /* no element, so no memory */
        { { 0, INT64_MAX, 2 }, 3, 8, CO_INVALID_ARGUMENT, 0 }, /* but products are taken */
        { { INT64_MAX, INT64_MAX, 0 }, 3, 8, CO_INVALID_ARGUMENT, 0 },
        { { -1 }, 1, 4, CO_INVALID_ARGUMENT, 0 },
        { { INT64_MIN, 0 }, 2, 4, CO_INVALID_ARGUMENT, 0 },
        { { INT64_C(1) << 32, INT64_C(1) << 32 }, 2, 1, CO_INVALID_ARGUMENT, 0 },
        { { INT64_C(1) << 62 }, 1, 2, CO_INVALID_ARGUMENT, 0 },
        { { INT64_C(1) << 61 }, 1, 8, CO_INVALID_ARGUMENT, 0 },
        { { INT64_MAX }, 1, 1, CO_INVALID_ARGUMENT, 0 },
        { { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, 9, 1, CO_INVALID_ARGUMENT, 0 },
        { { 1, 1, 1, 1, 1, 1, 1, 1 }, 8, 1, CO_OK, 1 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_error_info err = { .code = CO_OK };
        int64_t       count = -7;

        CO_EXPECT_CODE(coi_shape_check(cases[i].dims, cases[i].ndim, cases[i].size, &count, &err),
                       cases[i].code);
        CO_EXPECT_INT(count, cases[i].code == CO_OK ? cases[i].count : -7);
    }
}

CO_TEST_BARE(shapes_have_a_text_whatever_their_size, "")
{
    const int64_t most[8] = { INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
                              INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX };
    char          text[COI_SHAPE_TEXT];

    CO_EXPECT_STR(coi_shape_text(NULL, 0, text), "[]");
    CO_EXPECT_STR(coi_shape_text((const int64_t[]){ 2, -1, 3 }, 3, text), "[2,?,3]");
    CO_EXPECT_INT(strlen(coi_shape_text(most, 8, text)), 2 + 8 * 19 + 7);
    CO_EXPECT_STR(coi_shape_text(NULL, -1, text), "<unknown rank>");
}
