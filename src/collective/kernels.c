/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of one node of the tree, for every operation and dtype, as loops that compilers
 * turn into vector code (this file is compiled with -O3). Which instructions they choose does not
 * change a bit: there is one rounding per element and no sum runs across elements. The order of the
 * nodes is the business of tree.c.
 *
 * The 16-bit floats are widened, combined in float32 and rounded to nearest even at every node.
 * Their conversions are those of value/dtype.c, written here without branches.
 */
#include "collective/tree.h"

#include <string.h>

static inline uint32_t
bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float
float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/*
 * yes where the condition (0 or 1) holds, else no; with masks, because compilers make branches of
 * the obvious form.
 */
static inline uint32_t
choose(uint32_t condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = 0u - condition;

    return (yes & mask) | (no & ~mask);
}

static inline float
from_half(uint16_t half)
{
    uint32_t magnitude = half & 0x7FFFu;
    uint32_t small = bits_of((float)(int32_t)magnitude * 0x1p-24f); /* zero and subnormals, exact */
    uint32_t large = (magnitude << 13) + (112u << 23);

    large += choose(magnitude >= 0x7C00u, 112u << 23, 0); /* infinity and NaN */
    return float_of(choose(magnitude < 0x400u, small, large) | (uint32_t)(half & 0x8000u) << 16);
}

static inline uint16_t
to_half(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    uint32_t rounded = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    /* Below 2^-14 the adder rounds to a multiple of 2^-24. */
    uint32_t small = bits_of(float_of(magnitude) + 0.5f) - 0x3F000000u;
    uint32_t nan = 0x7E00u | (magnitude >> 13 & 0x3FFu);
    uint32_t out = choose(magnitude < 0x38800000u, small, rounded);

    out = choose(magnitude >= 0x477FF000u, 0x7C00u, out); /* 65520 and more */
    out = choose(magnitude > 0x7F800000u, nan, out);
    return (uint16_t)(out | (bits >> 16 & 0x8000u));
}

static inline float
from_bfloat(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

static inline uint16_t
to_bfloat(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    uint32_t nan = bits >> 16 | 0x40u;

    return (uint16_t)choose((bits & 0x7FFFFFFFu) > 0x7F800000u, nan, rounded);
}

#define SAME(x) (x)

/*
 * The operations. Integers are added and multiplied as unsigned numbers of at least 32 bits, so
 * that they wrap. In the order of floats, a NaN on either side wins, and of equal numbers (the
 * zeros) the right one.
 */
#define ADD(a, b)     ((a) + (b))
#define MUL(a, b)     ((a) * (b))
#define DIV(a, b)     ((a) / (b))
#define MIN_INT(a, b) ((a) < (b) ? (a) : (b))
#define MAX_INT(a, b) ((a) > (b) ? (a) : (b))
#define MIN_NUM(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define MAX_NUM(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

/*
 * A node out of place and in place. They are two loops, not one that allows out == a, because only
 * loops whose pointers are known to differ are vectorised without a test at run time.
 */
#define DEFINE_NODE(name, type, wide, load, store, op)                                             \
    static void name##_into(void *restrict out, const void *restrict a, const void *restrict b,    \
                            int64_t n)                                                             \
    {                                                                                              \
        type *restrict o = out;                                                                    \
        const type *restrict x = a;                                                                \
        const type *restrict y = b;                                                                \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            wide u = load(x[i]), v = load(y[i]);                                                   \
            o[i] = (type)store(op(u, v));                                                          \
        }                                                                                          \
    }                                                                                              \
    static void name##_onto(void *restrict out, const void *restrict b, int64_t n)                 \
    {                                                                                              \
        type *restrict o = out;                                                                    \
        const type *restrict y = b;                                                                \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            wide u = load(o[i]), v = load(y[i]);                                                   \
            o[i] = (type)store(op(u, v));                                                          \
        }                                                                                          \
    }

#define DEFINE_EACH(name, type, wide, load, store, op)                                             \
    static void name(void *data, int64_t n, wide operand)                                          \
    {                                                                                              \
        type *x = data;                                                                            \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            wide u = load(x[i]);                                                                   \
            x[i] = (type)store(op(u, operand));                                                    \
        }                                                                                          \
    }

#define DEFINE_WRAPPING(bits, wide)                                                                \
    DEFINE_NODE(sum_##bits, uint##bits##_t, wide, SAME, SAME, ADD)                                 \
    DEFINE_NODE(prod_##bits, uint##bits##_t, wide, SAME, SAME, MUL)
#define DEFINE_ORDERED(name, type)                                                                 \
    DEFINE_NODE(min_##name, type, type, SAME, SAME, MIN_INT)                                       \
    DEFINE_NODE(max_##name, type, type, SAME, SAME, MAX_INT)
#define DEFINE_FLOATING(name, type, wide, load, store)                                             \
    DEFINE_NODE(sum_##name, type, wide, load, store, ADD)                                          \
    DEFINE_NODE(prod_##name, type, wide, load, store, MUL)                                         \
    DEFINE_NODE(min_##name, type, wide, load, store, MIN_NUM)                                      \
    DEFINE_NODE(max_##name, type, wide, load, store, MAX_NUM)                                      \
    DEFINE_EACH(divide_##name, type, wide, load, store, DIV)                                       \
    DEFINE_EACH(scale_##name, type, wide, load, store, MUL)                                        \
    static void mean_##name(void *data, int64_t n, int divisor)                                    \
    {                                                                                              \
        /* The inverse of a power of two is exact, and a product is faster than a quotient. */     \
        if ((divisor & (divisor - 1)) == 0)                                                        \
            scale_##name(data, n, (wide)1 / (wide)divisor);                                        \
        else                                                                                       \
            divide_##name(data, n, (wide)divisor);                                                 \
    }

DEFINE_WRAPPING(8, uint32_t)
DEFINE_WRAPPING(16, uint32_t)
DEFINE_WRAPPING(32, uint32_t)
DEFINE_WRAPPING(64, uint64_t)
DEFINE_ORDERED(int8, int8_t)
DEFINE_ORDERED(int16, int16_t)
DEFINE_ORDERED(int32, int32_t)
DEFINE_ORDERED(int64, int64_t)
DEFINE_ORDERED(uint8, uint8_t)
DEFINE_ORDERED(uint16, uint16_t)
DEFINE_ORDERED(uint32, uint32_t)
DEFINE_ORDERED(uint64, uint64_t)
DEFINE_FLOATING(float16, uint16_t, float, from_half, to_half)
DEFINE_FLOATING(bfloat16, uint16_t, float, from_bfloat, to_bfloat)
DEFINE_FLOATING(float32, float, float, SAME, SAME)
DEFINE_FLOATING(float64, double, double, SAME, SAME)

#define NODE(name)                                                                                 \
    {                                                                                              \
        name##_into, name##_onto                                                                   \
    }
#define INTEGER_ROW(name, bits)                                                                    \
    {                                                                                              \
        .size = (bits) / 8, .mean = NULL,                                                          \
        .node = {                                                                                  \
            [CO_REDUCE_SUM] = NODE(sum_##bits),   [CO_REDUCE_MEAN] = NODE(sum_##bits),             \
            [CO_REDUCE_MIN] = NODE(min_##name),   [CO_REDUCE_MAX] = NODE(max_##name),              \
            [CO_REDUCE_PROD] = NODE(prod_##bits),                                                  \
        },                                                                                         \
    }
#define FLOATING_ROW(name, bits)                                                                   \
    {                                                                                              \
        .size = (bits) / 8, .mean = mean_##name,                                                   \
        .node = {                                                                                  \
            [CO_REDUCE_SUM] = NODE(sum_##name),   [CO_REDUCE_MEAN] = NODE(sum_##name),             \
            [CO_REDUCE_MIN] = NODE(min_##name),   [CO_REDUCE_MAX] = NODE(max_##name),              \
            [CO_REDUCE_PROD] = NODE(prod_##name),                                                  \
        },                                                                                         \
    }

const coi_reduce_kernels coi_reduce_table[CO_NUM_DTYPES] = {
    [CO_INT8] = INTEGER_ROW(int8, 8),         [CO_INT16] = INTEGER_ROW(int16, 16),
    [CO_INT32] = INTEGER_ROW(int32, 32),      [CO_INT64] = INTEGER_ROW(int64, 64),
    [CO_UINT8] = INTEGER_ROW(uint8, 8),       [CO_UINT16] = INTEGER_ROW(uint16, 16),
    [CO_UINT32] = INTEGER_ROW(uint32, 32),    [CO_UINT64] = INTEGER_ROW(uint64, 64),
    [CO_FLOAT16] = FLOATING_ROW(float16, 16), [CO_BFLOAT16] = FLOATING_ROW(bfloat16, 16),
    [CO_FLOAT32] = FLOATING_ROW(float32, 32), [CO_FLOAT64] = FLOATING_ROW(float64, 64),
};
