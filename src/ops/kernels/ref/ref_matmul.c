/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain matmul: three loops per matrix, for every dtype. Floats are summed in double and
 * rounded once; integers wrap around.
 */
#include "ops/kernels/matmul.h"

#define DOT(NAME, TYPE, SUM)                                                                       \
    static void NAME(const coi_matmul_view *v, const void *a_data, const void *b_data,             \
                     void *c_data)                                                                 \
    {                                                                                              \
        const TYPE *a = a_data, *b = b_data;                                                       \
        TYPE       *c = c_data;                                                                    \
                                                                                                   \
        for (int64_t i = 0; i < v->m; ++i)                                                         \
            for (int64_t j = 0; j < v->n; ++j) {                                                   \
                SUM sum = 0;                                                                       \
                                                                                                   \
                for (int64_t k = 0; k < v->k; ++k)                                                 \
                    sum += (SUM)a[i * v->a_row + k * v->a_col] *                                   \
                           (SUM)b[k * v->b_row + j * v->b_col];                                    \
                c[i * v->n + j] = (TYPE)sum;                                                       \
            }                                                                                      \
    }
DOT(dot_float32, float, double)
DOT(dot_float64, double, double)
/* Unsigned sums: overflow of signed ones is undefined in C. */
DOT(dot_int32, int32_t, uint32_t)
DOT(dot_int64, int64_t, uint64_t)

typedef void (*dot_fn)(const coi_matmul_view *, const void *, const void *, void *);
static const dot_fn dots[CO_NUM_DTYPES] = {
    [CO_FLOAT32] = dot_float32,
    [CO_FLOAT64] = dot_float64,
    [CO_INT32] = dot_int32,
    [CO_INT64] = dot_int64,
};

co_code
coi_ref_matmul(coi_call *call)
{
    size_t          size = coi_dtypes[call->out[0]->dtype].size;
    dot_fn          dot = dots[call->out[0]->dtype];
    coi_matmul_view view;

    coi_matmul_view_of(call, &view);
    for (int64_t item = 0; item < view.num_items; ++item) {
        int64_t a, b;

        coi_matmul_item(&view, item, &a, &b);
        dot(&view, COI_IN(call, 0, char) + (size_t)a * size,
            COI_IN(call, 1, char) + (size_t)b * size,
            COI_OUT(call, 0, char) + (size_t)(item * view.m * view.n) * size);
    }
    return CO_OK;
}
