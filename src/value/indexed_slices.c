/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexed slices as the tensor that they stand for. What must be differentiable goes through the
 * operator scatter_add instead.
 */
#include "value/value.h"

int64_t
coi_index_at(const co_value *indices, int64_t i)
{
    const void *data = coi_data_on_host(indices);

    switch (indices->dtype) {
    case CO_INT16: return ((const int16_t *)data)[i];
    case CO_INT32: return ((const int32_t *)data)[i];
    case CO_INT64: return ((const int64_t *)data)[i];
    case CO_UINT8: return ((const uint8_t *)data)[i];
    default: return ((const int8_t *)data)[i];
    }
}

#define ADD(name, type)                                                                            \
    static void name(void *acc, const void *data, int64_t n)                                       \
    {                                                                                              \
        type *restrict z = acc;                                                                    \
        const type *restrict x = data;                                                             \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i)                                                            \
            z[i] = (type)(z[i] + x[i]);                                                            \
    }
ADD(add_f32, float)
ADD(add_f64, double)
/* Unsigned, so that integers wrap. */
ADD(add_8, uint8_t)
ADD(add_16, uint16_t)
ADD(add_32, uint32_t)
ADD(add_64, uint64_t)

#define ADD_HALF(name, widen, narrow)                                                              \
    static void name(void *acc, const void *data, int64_t n)                                       \
    {                                                                                              \
        uint16_t *restrict z = acc;                                                                \
        const uint16_t *restrict x = data;                                                         \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i)                                                            \
            z[i] = narrow(widen(z[i]) + widen(x[i]));                                              \
    }
ADD_HALF(add_half, coi_half_to_float, coi_float_to_half)
ADD_HALF(add_bfloat, coi_bfloat_to_float, coi_float_to_bfloat)

void
coi_add_elements(co_dtype dtype, void *acc, const void *x, int64_t n)
{
    static void (*const adders[CO_NUM_DTYPES])(void *, const void *, int64_t) = {
        [CO_INT8] = add_8,          [CO_INT16] = add_16,    [CO_INT32] = add_32,
        [CO_INT64] = add_64,        [CO_UINT8] = add_8,     [CO_UINT16] = add_16,
        [CO_UINT32] = add_32,       [CO_UINT64] = add_64,   [CO_FLOAT16] = add_half,
        [CO_BFLOAT16] = add_bfloat, [CO_FLOAT32] = add_f32, [CO_FLOAT64] = add_f64,
    };

    adders[dtype](acc, x, n);
}

/* The dense shape, which must be that of values beyond the first dimension. */
static co_code
dense_shape(const co_value *slices, coi_shape *shape, co_error_info *err)
{
    const co_value *given = slices->u.slices.dense_shape, *values = slices->u.slices.values;
    bool            fits;
    int64_t         numbers[CO_MAX_DIMS]; /* of any integer dtype: none is larger */
    co_code         rc;

    if (given == NULL)
        return coi_error(
            err, CO_INVALID_ARGUMENT,
            "indexed slices without a dense shape do not convert to a tensor; give co_slices one");
    fits = coi_dtypes[given->dtype].integer && given->ndim == 1 &&
           given->u.tensor.num_elements == values->ndim;
    if (fits) {
        rc = coi_tensor_download(given, numbers, err);
        if (rc != CO_OK)
            return rc;
        coi_convert((co_dtype)given->dtype, numbers, CO_INT64, shape->dims, values->ndim);
    }
    shape->ndim = values->ndim;
    for (int d = 1; fits && d < values->ndim; ++d)
        fits = shape->dims[d] == values->u.tensor.dims[d];
    if (!fits)
        return coi_error(
            err, CO_INVALID_ARGUMENT,
            "the dense shape of indexed slices does not fit their values of rank %d: beyond the "
            "first dimension they must be equal",
            values->ndim);
    return CO_OK;
}

/* Rows of host tensors, added at their index. */
static co_code
add_rows(co_value *dense, const coi_shape *shape, const co_value *values, const co_value *indices,
         co_error_info *err)
{
    co_dtype dtype = (co_dtype)values->dtype;
    size_t   size = coi_dtypes[dtype].size;
    int64_t  n = indices->u.tensor.num_elements, row = 1;

    for (int d = 1; n > 0 && d < shape->ndim; ++d) /* without rows the product may be anything */
        row *= shape->dims[d];
    for (int64_t i = 0; i < n; ++i) {
        int64_t at = coi_index_at(indices, i);

        if (at < 0 || at >= shape->dims[0])
            return coi_error(err, CO_INVALID_ARGUMENT,
                             "indices[%lld] of indexed slices is %lld; it must be in [0, %lld)",
                             (long long)i, (long long)at, (long long)shape->dims[0]);
        coi_add_elements(dtype, (char *)coi_data_on_host(dense) + (size_t)(at * row) * size,
                         (const char *)coi_data_on_host(values) + (size_t)(i * row) * size, row);
    }
    return CO_OK;
}

co_value *
coi_slices_dense(coi_heap *heap, const co_value *slices, co_error_info *err)
{
    co_dtype   dtype = (co_dtype)slices->u.slices.values->dtype;
    co_device *device = slices->u.slices.values->u.tensor.device;
    int64_t    total;
    coi_shape  shape;
    co_value  *dense, *values, *indices;

    if (!coi_dtypes[dtype].integer && !coi_dtypes[dtype].floating) {
        coi_error(err, CO_INVALID_ARGUMENT, "indexed slices of %s do not add up to a tensor",
                  co_dtype_name(dtype));
        return NULL;
    }
    if (dense_shape(slices, &shape, err) != CO_OK ||
        coi_shape_check(shape.dims, (size_t)shape.ndim, coi_dtypes[dtype].size, &total, err) !=
            CO_OK)
        return NULL;
    dense = coi_tensor_new(heap, device->host, dtype, shape.dims, shape.ndim, total, err);
    values = dense != NULL ? coi_tensor_on_host(heap, slices->u.slices.values, err) : NULL;
    indices = values != NULL ? coi_tensor_on_host(heap, slices->u.slices.indices, err) : NULL;
    if (indices == NULL || coi_tensor_clear(dense, err) != CO_OK ||
        add_rows(dense, &shape, values, indices, err) != CO_OK) {
        coi_unref(heap, dense);
        dense = NULL;
    }
    coi_unref(heap, values);
    coi_unref(heap, indices);
    return coi_tensor_place(heap, dense, device, err);
}
