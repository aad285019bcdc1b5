/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of collectives: a straightforward version of the fixed tree to compare with, data that
 * hurts, and bodies that every rank of a group runs. tests/unit runs them with ranks as threads,
 * tests/ranks with processes under a launcher.
 */
#ifndef COHORT_TEST_COLLECTIVE_SUPPORT_H
#define COHORT_TEST_COLLECTIVE_SUPPORT_H

#include "collective/reduction_tree.h"
#include "test.h"

#include <time.h>

#define MAX_PARTS 40

static const co_dtype numeric[] = { CO_INT8,    CO_INT16,    CO_INT32,   CO_INT64,
                                    CO_UINT8,   CO_UINT16,   CO_UINT32,  CO_UINT64,
                                    CO_FLOAT16, CO_BFLOAT16, CO_FLOAT32, CO_FLOAT64 };
enum { NUM_NUMERIC = sizeof(numeric) / sizeof(numeric[0]), NUM_OPS = CO_REDUCE_PROD + 1 };

static inline void
rest_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&t, NULL);
}

static inline double
ms_since(uint64_t start_ns)
{
    return (double)(coi_now_ns() - start_ns) * 1e-6;
}

/* An element is kept as its bits. */
static inline uint64_t
load_bits(const void *data, size_t size, int64_t i)
{
    uint64_t bits = 0;

    memcpy(&bits, (const unsigned char *)data + (size_t)i * size, size);
    return bits;
}

static inline double
to_number(co_dtype dtype, uint64_t bits)
{
    float  f;
    double d;

    if (dtype == CO_FLOAT16)
        return (double)coi_half_to_float((uint16_t)bits);
    if (dtype == CO_BFLOAT16)
        return (double)coi_bfloat_to_float((uint16_t)bits);
    if (dtype == CO_FLOAT32) {
        memcpy(&f, &bits, sizeof(f));
        return (double)f;
    }
    memcpy(&d, &bits, sizeof(d));
    return d;
}

static inline uint64_t
from_float(co_dtype dtype, float value)
{
    uint64_t bits = 0;

    if (dtype == CO_FLOAT16)
        return coi_float_to_half(value);
    if (dtype == CO_BFLOAT16)
        return coi_float_to_bfloat(value);
    memcpy(&bits, &value, sizeof(value));
    return bits;
}

static inline uint64_t
from_double(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline double
combine_double(co_reduce_op op, double a, double b)
{
    switch (op) {
    case CO_REDUCE_MIN: return isnan(a) || a < b ? a : b;
    case CO_REDUCE_MAX: return isnan(a) || a > b ? a : b;
    case CO_REDUCE_PROD: return a * b;
    default: return a + b;
    }
}

static inline float
combine_float(co_reduce_op op, float a, float b)
{
    switch (op) {
    case CO_REDUCE_MIN: return isnan(a) || a < b ? a : b;
    case CO_REDUCE_MAX: return isnan(a) || a > b ? a : b;
    case CO_REDUCE_PROD: return a * b;
    default: return a + b;
    }
}

static inline int64_t
sign_extended(uint64_t bits, size_t size)
{
    int shift = 64 - 8 * (int)size;

    return (int64_t)(bits << shift) >> shift;
}

static inline uint64_t
combine_integer(co_reduce_op op, co_dtype dtype, uint64_t a, uint64_t b)
{
    size_t   size = co_dtype_size(dtype);
    bool     a_first, is_signed = dtype <= CO_INT64;
    uint64_t mask = size == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * size) - 1;

    if (op == CO_REDUCE_PROD)
        return a * b & mask;
    if (op != CO_REDUCE_MIN && op != CO_REDUCE_MAX)
        return (a + b) & mask;
    a_first = is_signed ? sign_extended(a, size) < sign_extended(b, size) : a < b;
    return a_first == (op == CO_REDUCE_MIN) ? a : b;
}

static inline uint64_t
combine(co_reduce_op op, co_dtype dtype, uint64_t a, uint64_t b)
{
    if (co_dtype_is_integer(dtype))
        return combine_integer(op, dtype, a, b);
    if (dtype == CO_FLOAT64)
        return from_double(combine_double(op, to_number(dtype, a), to_number(dtype, b)));
    return from_float(dtype,
                      combine_float(op, (float)to_number(dtype, a), (float)to_number(dtype, b)));
}

/* Element i of the node [lo, hi): the definition, word for word. */
static inline uint64_t
reference_node(const coi_reduction *job, int lo, int hi, int64_t i)
{
    int half = 1;

    if (hi - lo == 1)
        return load_bits(job->parts[lo], co_dtype_size(job->dtype), i);
    while (half * 2 < hi - lo)
        half *= 2;
    return combine(job->op, job->dtype, reference_node(job, lo, lo + half, i),
                   reference_node(job, lo + half, hi, i));
}

static inline uint64_t
reference_element(const coi_reduction *job, int64_t i)
{
    uint64_t bits = reference_node(job, 0, job->num_replicas, i);

    if (job->op != CO_REDUCE_MEAN || co_dtype_is_integer(job->dtype))
        return bits;
    if (job->dtype == CO_FLOAT64)
        return from_double(to_number(job->dtype, bits) / job->num_replicas);
    return from_float(job->dtype, (float)to_number(job->dtype, bits) / (float)job->num_replicas);
}

/* The bits are equal; of two NaNs, only that they are. */
static inline bool
same_element(co_dtype dtype, uint64_t a, uint64_t b)
{
    if (a == b)
        return true;
    return co_dtype_is_floating(dtype) && isnan(to_number(dtype, a)) && isnan(to_number(dtype, b));
}

/* Compare elements [begin, end), given as out[0 ..], with the reference. */
static inline bool
expect_elements(const coi_reduction *job, const void *out, int64_t begin, int64_t end,
                const char *what)
{
    size_t size = co_dtype_size(job->dtype);

    for (int64_t i = begin; i < end; ++i) {
        uint64_t is = load_bits(out, size, i - begin), should = reference_element(job, i);

        if (same_element(job->dtype, is, should))
            continue;
        CO_FAIL("%s, op %d, %s, %d replicas: element %lld of %lld has bits %llx, expected %llx",
                what, (int)job->op, co_dtype_name(job->dtype), job->num_replicas, (long long)i,
                (long long)job->num_elements, (unsigned long long)is, (unsigned long long)should);
    }
    return true;
}

/*
 * Element i of replica's part: numbers of very different sizes, so that the order of a sum shows,
 * and here and there an infinity, a NaN, a zero of either sign, a number too small to be normal.
 */
static inline void
fill_part(co_dtype dtype, int replica, void *data, int64_t n)
{
    static const float special[] = {
        INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 1e-40f, 6e-8f, 65504.0f
    };
    size_t size = co_dtype_size(dtype);

    for (int64_t i = 0; i < n; ++i) {
        uint64_t x = ((uint64_t)i * 40503u + (uint64_t)replica + 1) * UINT64_C(0x9E3779B97F4A7C15),
                 bits;

        x ^= x >> 29;
        if (co_dtype_is_integer(dtype)) {
            bits = x * UINT64_C(0xBF58476D1CE4E5B9);
        } else if (x % 61 < 8) {
            bits = dtype == CO_FLOAT64 ? from_double((double)special[x % 61])
                                       : from_float(dtype, special[x % 61]);
        } else {
            double value = ldexp((double)(x >> 40) / 0x1p24 - 0.4, (int)(x % 23) - 11);

            bits = dtype == CO_FLOAT64 ? from_double(value) : from_float(dtype, (float)value);
        }
        memcpy((unsigned char *)data + (size_t)i * size, &bits, size);
    }
}

/* Parts of all replicas; aligned as the library's tensors are. */
static inline void
make_parts(co_dtype dtype, int num_replicas, int64_t n, void **parts)
{
    for (int r = 0; r < num_replicas; ++r) {
        parts[r] = aligned_alloc(64, ((size_t)n * 8 + 127) / 64 * 64);
        CO_REQUIRE(parts[r] != NULL);
        fill_part(dtype, r, parts[r], n);
    }
}

static inline void
free_parts(int num_replicas, void **parts)
{
    for (int r = 0; r < num_replicas; ++r)
        free(parts[r]);
}

#endif
