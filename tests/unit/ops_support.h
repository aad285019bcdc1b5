/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of operators share: random tensors with values that hurt, and comparing the optimised
 * kernel of a call with its reference kernel, and tables of calls that must be refused.
 */
#ifndef OPS_SUPPORT_H
#define OPS_SUPPORT_H

#include "test.h"

#include "context/context.h"
#include "ops/engine/op.h"

typedef struct ops_random {
    uint64_t state;
} ops_random;

static inline uint64_t
ops_next(ops_random *random)
{
    random->state += 0x9E3779B97F4A7C15u;
    uint64_t z = random->state;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static inline int64_t
ops_below(ops_random *random, int64_t n)
{
    return (int64_t)(ops_next(random) % (uint64_t)n);
}

/* In [-2, 2). */
static inline double
ops_real(ops_random *random)
{
    return (double)(ops_next(random) >> 11) * 0x1p-51 - 2;
}

static inline int64_t
ops_count(const int64_t *dims, int ndim)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; ++d)
        n *= dims[d];
    return n;
}

/* What fills a tensor. */
typedef enum ops_filling {
    OPS_ORDINARY, /* reals in [-2, 2), any integers */
    OPS_SPECIAL,  /* with NaN, infinities, zeros of both signs, subnormal and huge numbers */
    OPS_SMALL     /* whole numbers in [-3, 3], so that there are ties */
} ops_filling;

static inline double
ops_special(ops_random *random)
{
    static const double special[] = { NAN,  INFINITY, -INFINITY, 0.0,    -0.0,   1e-40, -1e-40,
                                      1e38, -1e38,    1e-30,     -88.5,  88.5,   104,   -104,
                                      1,    -1,       0.625,     -0.625, 65504., 6e-8,  2.5 };

    return special[ops_below(random, (int64_t)(sizeof(special) / sizeof(special[0])))];
}

static inline co_value *
ops_tensor(co_context *ctx, ops_random *random, co_dtype dtype, const int64_t *dims, int ndim,
           ops_filling filling)
{
    int64_t   n = ops_count(dims, ndim);
    size_t    size = co_dtype_size(dtype);
    char     *data = malloc((size_t)n * size + 1);
    co_value *tensor;

    for (int64_t i = 0; i < n; ++i) {
        double  real = filling == OPS_SMALL ? (double)(ops_below(random, 7) - 3) : ops_real(random);
        int64_t whole = filling == OPS_SMALL ? (int64_t)real : (int64_t)ops_next(random);

        if (filling == OPS_SPECIAL && ops_below(random, 3) == 0)
            real = ops_special(random);
        if (dtype == CO_BOOL)
            data[i] = (char)ops_below(random, 2);
        else if (co_dtype_is_floating(dtype))
            coi_convert(CO_FLOAT64, &real, dtype, data + (size_t)i * size, 1);
        else
            coi_convert(CO_INT64, &whole, dtype, data + (size_t)i * size, 1);
    }
    tensor = co_tensor(ctx, dtype, dims, ndim, data);
    free(data);
    return tensor;
}

/* Distance of two elements in units of the last place of their dtype; 0 for two NaNs, huge for
 * unequal others. */
static inline double
ops_distance(co_dtype dtype, const void *a, const void *b)
{
    double x, y, unit;
    int    exponent;

    if (!co_dtype_is_floating(dtype))
        return memcmp(a, b, co_dtype_size(dtype)) == 0 ? 0 : 1e300;
    coi_convert(dtype, a, CO_FLOAT64, &x, 1);
    coi_convert(dtype, b, CO_FLOAT64, &y, 1);
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y) ? 0 : 1e300;
    if (x == y)
        return signbit(x) == signbit(y) ? 0 : 1e300;
    if (isinf(x) || isinf(y))
        return 1e300;
    frexp(fmax(fabs(x), fabs(y)), &exponent);
    switch (dtype) {
    case CO_FLOAT16: unit = ldexp(1, exponent < -13 ? -24 : exponent - 11); break;
    case CO_BFLOAT16: unit = ldexp(1, exponent < -125 ? -133 : exponent - 8); break;
    case CO_FLOAT32: unit = ldexp(1, exponent < -125 ? -149 : exponent - 24); break;
    default: unit = ldexp(1, exponent - 53); break;
    }
    return fabs(x - y) / unit;
}

/* Largest distance of the elements of two tensors, after checking that shape and dtype are the
 * same. */
static inline double
ops_compare(co_context *ctx, co_value *a, co_value *b)
{
    double worst = 0;
    size_t size;

    if (a == NULL || b == NULL || a->dtype != b->dtype || !coi_same_shape(a, b))
        return 1e301;
    (void)ctx;
    size = co_dtype_size((co_dtype)a->dtype);
    for (int64_t i = 0; i < a->u.tensor.num_elements; ++i)
        worst = fmax(worst, ops_distance((co_dtype)a->dtype,
                                         (const char *)a->u.tensor.data + (size_t)i * size,
                                         (const char *)b->u.tensor.data + (size_t)i * size));
    return worst;
}

/* A call by table entry, once with each kernel; prints and fails where they are further apart than
 * `limit`. */
static inline bool
ops_same_as_reference(co_context *ctx, const coi_op *op, co_value *const *in, int num_in,
                      const void *attrs, double limit, const char *what)
{
    co_value *fast, *plain;
    double    distance;

    fast = coi_apply(ctx, op, in, num_in, attrs);
    coi_use_reference(ctx, true);
    plain = coi_apply(ctx, op, in, num_in, attrs);
    coi_use_reference(ctx, false);
    if (!CO_EXPECT_OK(ctx))
        return false;
    distance = ops_compare(ctx, fast, plain);
    if (distance <= limit)
        return true;
    test_fail(TEST_AT, "%s (%s): the kernels are %g units apart, at most %g", op->name, what,
              distance, limit);
    return false;
}

/* Text that identifies a case: dtype and shapes. */
static inline const char *
ops_describe(char out[300], co_dtype dtype, co_value *const *in, int num_in)
{
    size_t at = (size_t)snprintf(out, 300, "%s", co_dtype_name(dtype));

    for (int i = 0; i < num_in && at < 280; ++i) {
        char text[COI_SHAPE_TEXT];

        at += (size_t)snprintf(out + at, 300 - at, " %s",
                               coi_shape_text(in[i]->u.tensor.dims, in[i]->ndim, text));
    }
    return out;
}

/* A call that must fail with CO_INVALID_ARGUMENT and say why. OPS_REJECTED makes the function,
 * OPS_REJECTION its row in a table. */
typedef struct ops_rejection {
    const char *name;
    co_value *(*call)(co_context *ctx);
    const char *part; /* of the message */
} ops_rejection;

#define OPS_REJECTED(name, expression)                                                             \
    static co_value *name(co_context *ctx)                                                         \
    {                                                                                              \
        return expression;                                                                         \
    }
#define OPS_REJECTION(name, part)                                                                  \
    {                                                                                              \
#name, name, part                                                                          \
    }

static inline void
ops_expect_rejections(co_context *ctx, const ops_rejection *all, size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        if (all[i].call(ctx) != NULL)
            test_fail(TEST_AT, "%s succeeds", all[i].name);
        if (!CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, all[i].part))
            test_fail(TEST_AT, "see %s", all[i].name);
    }
}

#endif
