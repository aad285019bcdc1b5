/* SPDX-License-Identifier: Apache-2.0 */
/* Short vectors of float32 and their elements, for tests of functions and graphs. */
#ifndef COHORT_TESTS_VECTOR_SUPPORT_H
#define COHORT_TESTS_VECTOR_SUPPORT_H

#include "test.h"

static inline co_value *
vector(co_context *ctx, float first, int n)
{
    float   data[16];
    int64_t dim = n;

    for (int i = 0; i < n; ++i)
        data[i] = first + (float)i;
    return co_tensor(ctx, CO_FLOAT32, &dim, 1, data);
}

static inline float
element(co_context *ctx, co_value *x, int i)
{
    const float *data = co_value_data(ctx, x);

    return data != NULL ? data[i] : NAN;
}

#endif
