/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of one node of the tree, for every operation and dtype. The implementation cannot
 * change the bits: there is one rounding per element and no sum runs across elements.
 * reduction_tree.c decides the order of the nodes.
 *
 * Sums and means, which training consists of, are written with vectors, the rest as plain loops:
 * that keeps this file a quarter of what it is when every loop is made for speed. The 16-bit floats
 * are upcast, combined as float32 and rounded to nearest even at every node. Their conversions are
 * those of value/dtype.c, written here without branches.
 */
#include "collective/reduction_tree.h"

#include <string.h>

/* --- 16-bit floats --- */

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

/* Always as many elements: a loop whose length is known becomes vector code without a tail. */
#define DEFINE_CONVERSIONS(name)                                                                   \
    static void upcast_##name(float *restrict out, const uint16_t *restrict in)                    \
    {                                                                                              \
        for (int i = 0; i < COI_WIDE_ELEMENTS; ++i)                                                \
            out[i] = from_##name(in[i]);                                                           \
    }                                                                                              \
    static void narrow_##name(uint16_t *restrict out, const float *restrict in)                    \
    {                                                                                              \
        for (int i = 0; i < COI_WIDE_ELEMENTS; ++i)                                                \
            out[i] = to_##name(in[i]);                                                             \
    }
DEFINE_CONVERSIONS(half)
DEFINE_CONVERSIONS(bfloat)

/* --- nodes --- */

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

#define VECTOR_BYTES 16

/* A vector register that may lie anywhere and alias anything. */
#define DEFINE_VECTOR(name, type)                                                                  \
    typedef type name __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));
DEFINE_VECTOR(vector_8, uint8_t)
DEFINE_VECTOR(vector_16, uint16_t)
DEFINE_VECTOR(vector_32, uint32_t)
DEFINE_VECTOR(vector_64, uint64_t)
DEFINE_VECTOR(vector_float32, float)
DEFINE_VECTOR(vector_float64, double)

/* out[i] = op(a[i], b[i]); out may be a. */
#define DEFINE_NODE(name, type, wide, op)                                                          \
    static void name(void *out, const void *a, const void *b, int64_t n)                           \
    {                                                                                              \
        type       *o = out;                                                                       \
        const type *x = a, *y = b;                                                                 \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            wide u = x[i], v = y[i];                                                               \
            o[i] = (type)op(u, v);                                                                 \
        }                                                                                          \
    }

/* The sum, four vectors at a time; the rest by the plain loop. */
#define DEFINE_SUM(name, type, wide)                                                               \
    DEFINE_NODE(sum_rest_##name, type, wide, ADD)                                                  \
    static void sum_##name(void *out, const void *a, const void *b, int64_t n)                     \
    {                                                                                              \
        vector_##name       *o = out;                                                              \
        const vector_##name *x = a, *y = b;                                                        \
        int64_t              per_step = 4 * VECTOR_BYTES / (int64_t)sizeof(type);                  \
                                                                                                   \
        for (; n >= per_step; n -= per_step, o += 4, x += 4, y += 4) {                             \
            vector_##name s = x[0] + y[0], t = x[1] + y[1];                                        \
            vector_##name u = x[2] + y[2], v = x[3] + y[3];                                        \
            o[0] = s;                                                                              \
            o[1] = t;                                                                              \
            o[2] = u;                                                                              \
            o[3] = v;                                                                              \
        }                                                                                          \
        sum_rest_##name(o, x, y, n);                                                               \
    }

/* The division of MEAN. The inverse of a power of two is exact, and a product is faster than a
 * quotient. */
#define DEFINE_EACH(name, type, vector, op)                                                        \
    static void name(void *data, int64_t n, type operand)                                          \
    {                                                                                              \
        vector *v = data;                                                                          \
        type   *x;                                                                                 \
                                                                                                   \
        for (; n >= VECTOR_BYTES / (int64_t)sizeof(type);                                          \
             n -= VECTOR_BYTES / (int64_t)sizeof(type), ++v)                                       \
            *v = op(*v, operand);                                                                  \
        x = (type *)(void *)v;                                                                     \
        for (int64_t i = 0; i < n; ++i)                                                            \
            x[i] = op(x[i], operand);                                                              \
    }
#define DEFINE_MEAN(name, type)                                                                    \
    DEFINE_EACH(divide_##name, type, vector_##name, DIV)                                           \
    DEFINE_EACH(scale_##name, type, vector_##name, MUL)                                            \
    static void mean_##name(void *data, int64_t n, int divisor)                                    \
    {                                                                                              \
        if ((divisor & (divisor - 1)) == 0)                                                        \
            scale_##name(data, n, (type)1 / (type)divisor);                                        \
        else                                                                                       \
            divide_##name(data, n, (type)divisor);                                                 \
    }

#define DEFINE_WRAPPING(bits, wide)                                                                \
    DEFINE_SUM(bits, uint##bits##_t, wide)                                                         \
    DEFINE_NODE(prod_##bits, uint##bits##_t, wide, MUL)
#define DEFINE_ORDERED(name, type)                                                                 \
    DEFINE_NODE(min_##name, type, type, MIN_INT)                                                   \
    DEFINE_NODE(max_##name, type, type, MAX_INT)
#define DEFINE_FLOATING(name, type)                                                                \
    DEFINE_SUM(name, type, type)                                                                   \
    DEFINE_NODE(prod_##name, type, type, MUL)                                                      \
    DEFINE_NODE(min_##name, type, type, MIN_NUM)                                                   \
    DEFINE_NODE(max_##name, type, type, MAX_NUM)                                                   \
    DEFINE_MEAN(name, type)

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
DEFINE_FLOATING(float32, float)
DEFINE_FLOATING(float64, double)

#define NODES(sum, ordered, prod)                                                                  \
    .node = { [CO_REDUCE_SUM] = sum_##sum,                                                         \
              [CO_REDUCE_MEAN] = sum_##sum,                                                        \
              [CO_REDUCE_MIN] = min_##ordered,                                                     \
              [CO_REDUCE_MAX] = max_##ordered,                                                     \
              [CO_REDUCE_PROD] = prod_##prod }
#define INTEGER_ROW(name, bits)                                                                    \
    {                                                                                              \
        .size = (bits) / 8, NODES(bits, name, bits)                                                \
    }
#define FLOATING_ROW(name, type)                                                                   \
    {                                                                                              \
        .size = sizeof(type), NODES(name, name, name), .mean = mean_##name                         \
    }
#define NARROW_ROW(name)                                                                           \
    {                                                                                              \
        .size = sizeof(uint16_t), NODES(float32, float32, float32), .mean = mean_float32,          \
        .upcast = upcast_##name, .narrow = narrow_##name                                           \
    }

const coi_reduce_kernels coi_reduce_table[CO_NUM_DTYPES] = {
    [CO_INT8] = INTEGER_ROW(int8, 8),
    [CO_INT16] = INTEGER_ROW(int16, 16),
    [CO_INT32] = INTEGER_ROW(int32, 32),
    [CO_INT64] = INTEGER_ROW(int64, 64),
    [CO_UINT8] = INTEGER_ROW(uint8, 8),
    [CO_UINT16] = INTEGER_ROW(uint16, 16),
    [CO_UINT32] = INTEGER_ROW(uint32, 32),
    [CO_UINT64] = INTEGER_ROW(uint64, 64),
    [CO_FLOAT16] = NARROW_ROW(half),
    [CO_BFLOAT16] = NARROW_ROW(bfloat),
    [CO_FLOAT32] = FLOATING_ROW(float32, float),
    [CO_FLOAT64] = FLOATING_ROW(float64, double),
};

/* --- with upcasting --- */

/* n <= COI_WIDE_ELEMENTS elements as float32; what lies behind them is made up. */
static void
upcast(const coi_reduce_kernels *kernels, float *out, const uint16_t *in, int64_t n)
{
    uint16_t whole[COI_WIDE_ELEMENTS];

    if (n == COI_WIDE_ELEMENTS) {
        kernels->upcast(out, in);
        return;
    }
    memset(whole, 0, sizeof(whole));
    memcpy(whole, in, (size_t)n * sizeof(*in));
    kernels->upcast(out, whole);
}

static void
narrow(const coi_reduce_kernels *kernels, uint16_t *out, const float *in, int64_t n)
{
    uint16_t whole[COI_WIDE_ELEMENTS];

    if (n == COI_WIDE_ELEMENTS) {
        kernels->narrow(out, in);
        return;
    }
    kernels->narrow(whole, in);
    memcpy(out, whole, (size_t)n * sizeof(*out));
}

static int64_t
at_most_wide(int64_t n)
{
    return n < COI_WIDE_ELEMENTS ? n : COI_WIDE_ELEMENTS;
}

void
coi_reduce_node(const coi_reduce_kernels *kernels, co_reduce_op op, void *out, const void *a,
                const void *b, int64_t n)
{
    float           left[COI_WIDE_ELEMENTS], right[COI_WIDE_ELEMENTS];
    uint16_t       *o = out;
    const uint16_t *x = a, *y = b;

    if (kernels->upcast == NULL) {
        kernels->node[op](out, a, b, n);
        return;
    }
    for (int64_t at = 0; at < n; at += COI_WIDE_ELEMENTS) {
        int64_t count = at_most_wide(n - at);

        upcast(kernels, left, x + at, count);
        upcast(kernels, right, y + at, count);
        kernels->node[op](left, left, right, COI_WIDE_ELEMENTS);
        narrow(kernels, o + at, left, count);
    }
}

void
coi_reduce_mean(const coi_reduce_kernels *kernels, void *data, int64_t n, int divisor)
{
    float     wide[COI_WIDE_ELEMENTS];
    uint16_t *x = data;

    if (kernels->upcast == NULL) {
        kernels->mean(data, n, divisor);
        return;
    }
    for (int64_t at = 0; at < n; at += COI_WIDE_ELEMENTS) {
        int64_t count = at_most_wide(n - at);

        upcast(kernels, wide, x + at, count);
        kernels->mean(wide, COI_WIDE_ELEMENTS, divisor);
        narrow(kernels, x + at, wide, count);
    }
}
