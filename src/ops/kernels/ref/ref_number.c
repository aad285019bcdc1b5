/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements as numbers, for the reference kernels.
 */
#include "ops/kernels/ref/ref.h"

static coi_number_class
class_of(co_dtype dtype)
{
    if (coi_dtypes[dtype].floating)
        return COI_NUMBER_FLOAT;
    return coi_dtypes[dtype].is_signed ? COI_NUMBER_SIGNED : COI_NUMBER_UNSIGNED;
}

coi_number
coi_number_load(co_dtype dtype, const void *data, int64_t i)
{
    const char *at = (const char *)data + (size_t)i * coi_dtypes[dtype].size;
    coi_number  number = { class_of(dtype), 0, 0 };

    if (number.cls == COI_NUMBER_FLOAT)
        coi_convert(dtype, at, CO_FLOAT64, &number.f, 1);
    else
        coi_convert(dtype, at, number.cls == COI_NUMBER_SIGNED ? CO_INT64 : CO_UINT64, &number.u,
                    1);
    return number;
}

void
coi_number_store(co_dtype dtype, void *data, int64_t i, coi_number number)
{
    char    *at = (char *)data + (size_t)i * coi_dtypes[dtype].size;
    co_dtype from = number.cls == COI_NUMBER_FLOAT    ? CO_FLOAT64
                    : number.cls == COI_NUMBER_SIGNED ? CO_INT64
                                                      : CO_UINT64;

    coi_convert(from, number.cls == COI_NUMBER_FLOAT ? (const void *)&number.f : &number.u, dtype,
                at, 1);
}

coi_number
coi_number_of(co_dtype dtype, double f, int64_t i)
{
    return (coi_number){ class_of(dtype), f, (uint64_t)i };
}

bool
coi_number_less(coi_number a, coi_number b)
{
    switch (a.cls) {
    case COI_NUMBER_FLOAT: return a.f < b.f;
    case COI_NUMBER_SIGNED: return (int64_t)a.u < (int64_t)b.u;
    default: return a.u < b.u;
    }
}

int64_t
coi_ref_broadcast_index(const co_value *out, int64_t i, const co_value *operand)
{
    int64_t at = 0, stride = 1;

    for (int d = 1; d <= operand->ndim; ++d) { /* from the last dimension on */
        int64_t index = i % out->u.tensor.dims[out->ndim - d];
        int64_t dim = operand->u.tensor.dims[operand->ndim - d];

        at += dim == 1 ? 0 : index * stride;
        stride *= dim;
        i /= out->u.tensor.dims[out->ndim - d];
    }
    return at;
}
