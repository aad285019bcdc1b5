/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data types: the table, half precision, and conversion between any two of them. Conversions of
 * floats to integers are those of the x86 instructions that TensorFlow's kernels compile to,
 * written in C so that every machine gives the same results.
 */
#include "value/value.h"

#include <math.h>
#include <string.h>

const coi_dtype_info coi_dtypes[CO_NUM_DTYPES] = {
    [CO_DTYPE_NONE] = { "none", 0, false, false, false },
    [CO_BOOL] = { "bool", 1, false, false, false },
    [CO_INT8] = { "int8", 1, false, true, true },
    [CO_INT16] = { "int16", 2, false, true, true },
    [CO_INT32] = { "int32", 4, false, true, true },
    [CO_INT64] = { "int64", 8, false, true, true },
    [CO_UINT8] = { "uint8", 1, false, true, false },
    [CO_UINT16] = { "uint16", 2, false, true, false },
    [CO_UINT32] = { "uint32", 4, false, true, false },
    [CO_UINT64] = { "uint64", 8, false, true, false },
    [CO_FLOAT16] = { "float16", 2, true, false, true },
    [CO_BFLOAT16] = { "bfloat16", 2, true, false, true },
    [CO_FLOAT32] = { "float32", 4, true, false, true },
    [CO_FLOAT64] = { "float64", 8, true, false, true },
    [CO_STRING] = { "string", 0, false, false, false },
};

static const coi_dtype_info *
info_of(co_dtype dtype)
{
    return (unsigned)dtype < CO_NUM_DTYPES ? &coi_dtypes[dtype] : NULL;
}

const char *
co_dtype_name(co_dtype dtype)
{
    const coi_dtype_info *info = info_of(dtype);

    return info != NULL ? info->name : "invalid";
}

co_dtype
co_dtype_from_name(const char *name)
{
    if (name == NULL)
        return CO_DTYPE_NONE;
    for (int d = CO_DTYPE_NONE + 1; d < CO_NUM_DTYPES; ++d)
        if (strcmp(coi_dtypes[d].name, name) == 0)
            return (co_dtype)d;
    return CO_DTYPE_NONE;
}

size_t
co_dtype_size(co_dtype dtype)
{
    const coi_dtype_info *info = info_of(dtype);

    return info != NULL ? info->size : 0;
}

bool
co_dtype_is_floating(co_dtype dtype)
{
    const coi_dtype_info *info = info_of(dtype);

    return info != NULL && info->floating;
}

bool
co_dtype_is_integer(co_dtype dtype)
{
    const coi_dtype_info *info = info_of(dtype);

    return info != NULL && info->integer;
}

void
coi_integer_limits(co_dtype dtype, int64_t *low, int64_t *high)
{
    int bits = dtype == CO_BOOL ? 1 : coi_dtypes[dtype].size * 8 - coi_dtypes[dtype].is_signed;

    *high = bits < 63 ? ((int64_t)1 << bits) - 1 : INT64_MAX;
    *low = coi_dtypes[dtype].is_signed ? -*high - 1 : 0;
}

static uint32_t
bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float
float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

float
coi_half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1Fu;
    uint32_t fraction = half & 0x3FFu;

    if (exponent == 0x1F)
        return float_of(sign | 0x7F800000u | fraction << 13);
    if (exponent == 0) /* zero and subnormals: fraction * 2^-24, exact in float */
        return float_of(sign | bits_of((float)fraction * 0x1p-24f));
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Round to nearest, ties to even. */
uint16_t
coi_float_to_half(float value)
{
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    uint32_t rounded;

    if (magnitude > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    if (magnitude >= 0x477FF000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: let the adder round to a multiple of 2^-24 */
        float scaled = float_of(magnitude) + 0.5f;

        return (uint16_t)(sign | (bits_of(scaled) - bits_of(0.5f)));
    }
    rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - (112u << 23)) >> 13);
}

float
coi_bfloat_to_float(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t
coi_float_to_bfloat(float value)
{
    uint32_t bits = bits_of(value);

    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/* cvttsd2si, 32 and 64 bit: out of range and NaN give the most negative number. */
static int32_t
truncate32(double x)
{
    return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN;
}

static int64_t
truncate64(double x)
{
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

static uint64_t
truncate_u64(double x)
{
    return x < 0x1p63 ? (uint64_t)truncate64(x)
                      : (uint64_t)truncate64(x - 0x1p63) ^ UINT64_C(1) << 63;
}

/* An element in flight: whole numbers are carried as 64 bits so that int64 and uint64 stay exact.
 */
typedef struct number {
    bool    is_float;
    bool    is_unsigned;
    double  f;
    int64_t i;
} number;

#define LOAD_INT(type, uns)                                                                        \
    do {                                                                                           \
        type x_;                                                                                   \
        memcpy(&x_, src, sizeof(x_));                                                              \
        return (number){ false, uns, 0, (int64_t)x_ };                                             \
    } while (0)

static number
load_float(co_dtype dtype, const void *src)
{
    uint16_t half;
    float    single;
    double   value;

    switch (dtype) {
    case CO_FLOAT32:
        memcpy(&single, src, sizeof(single));
        value = (double)single;
        break;
    case CO_FLOAT64: memcpy(&value, src, sizeof(value)); break;
    default:
        memcpy(&half, src, sizeof(half));
        value = (double)(dtype == CO_FLOAT16 ? coi_half_to_float(half) : coi_bfloat_to_float(half));
        break;
    }
    return (number){ true, false, value, 0 };
}

static number
load(co_dtype dtype, const void *src)
{
    switch (dtype) {
    case CO_BOOL: return (number){ false, false, 0, *(const uint8_t *)src != 0 };
    case CO_INT8: LOAD_INT(int8_t, false);
    case CO_INT16: LOAD_INT(int16_t, false);
    case CO_INT32: LOAD_INT(int32_t, false);
    case CO_INT64: LOAD_INT(int64_t, false);
    case CO_UINT8: LOAD_INT(uint8_t, false);
    case CO_UINT16: LOAD_INT(uint16_t, false);
    case CO_UINT32: LOAD_INT(uint32_t, false);
    case CO_UINT64: LOAD_INT(uint64_t, true);
    default: return load_float(dtype, src);
    }
}

static double
as_double(number n)
{
    if (n.is_float)
        return n.f;
    return n.is_unsigned ? (double)(uint64_t)n.i : (double)n.i;
}

/* Whole numbers go to float in one rounding, not through double. */
static float
as_float(number n)
{
    if (n.is_float)
        return (float)n.f;
    return n.is_unsigned ? (float)(uint64_t)n.i : (float)n.i;
}

#define STORE(type, value)                                                                         \
    do {                                                                                           \
        type y_ = (type)(value);                                                                   \
        memcpy(dst, &y_, sizeof(y_));                                                              \
    } while (0)

static void
store(co_dtype dtype, number n, void *dst)
{
    switch (dtype) {
    case CO_BOOL: STORE(uint8_t, n.is_float ? n.f != 0 : n.i != 0); break;
    case CO_INT8: STORE(int8_t, n.is_float ? truncate32(n.f) : n.i); break;
    case CO_INT16: STORE(int16_t, n.is_float ? truncate32(n.f) : n.i); break;
    case CO_INT32: STORE(int32_t, n.is_float ? truncate32(n.f) : n.i); break;
    case CO_INT64: STORE(int64_t, n.is_float ? truncate64(n.f) : n.i); break;
    case CO_UINT8: STORE(uint8_t, n.is_float ? truncate32(n.f) : n.i); break;
    case CO_UINT16: STORE(uint16_t, n.is_float ? truncate32(n.f) : n.i); break;
    case CO_UINT32: STORE(uint32_t, n.is_float ? truncate64(n.f) : n.i); break;
    case CO_UINT64: STORE(uint64_t, n.is_float ? truncate_u64(n.f) : (uint64_t)n.i); break;
    case CO_FLOAT16: STORE(uint16_t, coi_float_to_half(as_float(n))); break;
    case CO_BFLOAT16: STORE(uint16_t, coi_float_to_bfloat(as_float(n))); break;
    case CO_FLOAT32: STORE(float, as_float(n)); break;
    default: STORE(double, as_double(n)); break;
    }
}

/* The fraction is truncated first, as a conversion does; NaN never fits. */
static bool
integer_holds(co_dtype dtype, number n)
{
    bool is_signed = coi_dtypes[dtype].is_signed;
    int  bits = coi_dtypes[dtype].size * 8 - is_signed;

    if (n.is_float) {
        double whole = trunc(n.f), end = ldexp(1, bits);

        return whole >= (is_signed ? -end : 0) && whole < end;
    }
    if (n.i < 0 && !n.is_unsigned)
        return is_signed && n.i >= -(INT64_MAX >> (63 - bits)) - 1;
    return (uint64_t)n.i <= UINT64_MAX >> (64 - bits);
}

int64_t
coi_first_misfit(co_dtype from, const void *src, co_dtype to, int64_t n)
{
    const char *in = src;
    int64_t     i = 0;

    if (from == to || from == CO_BOOL || !coi_dtypes[to].integer)
        return n;
    while (i < n && integer_holds(to, load(from, in + (size_t)i * coi_dtypes[from].size)))
        ++i;
    return i;
}

void
coi_convert(co_dtype from, const void *src, co_dtype to, void *dst, int64_t n)
{
    size_t      step_in = coi_dtypes[from].size, step_out = coi_dtypes[to].size;
    const char *in = src;
    char       *out = dst;

    if (from == to) {
        if (n > 0)
            memcpy(dst, src, (size_t)n * step_in);
        return;
    }
    for (int64_t i = 0; i < n; ++i)
        store(to, load(from, in + (size_t)i * step_in), out + (size_t)i * step_out);
}
