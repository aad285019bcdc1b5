/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes: checks of untrusted dimensions, and text.
 */
#include "value/value.h"

#include <stdio.h>

co_code
coi_shape_check(const int64_t *dims, size_t ndim, size_t element_size, int64_t *num_elements,
                co_error_info *err)
{
    int64_t total = 1, bytes;
    bool    zero = false;
    char    text[COI_SHAPE_TEXT];

    if (ndim > CO_MAX_DIMS)
        return coi_error(err, CO_INVALID_ARGUMENT, "%zu dimensions; a tensor has at most %d", ndim,
                         CO_MAX_DIMS);
    if (dims == NULL && ndim > 0)
        return coi_error(err, CO_INVALID_ARGUMENT, "dims is NULL with %zu dimensions", ndim);
    for (size_t i = 0; i < ndim; ++i) {
        if (dims[i] < 0)
            return coi_error(err, CO_INVALID_ARGUMENT, "dimension %zu is %lld; it must be >= 0", i,
                             (long long)dims[i]);
        zero = zero || dims[i] == 0;
    }
    /* Zeros aside: kernels multiply some of the dimensions of what is empty too. */
    for (size_t i = 0; i < ndim; ++i)
        if (dims[i] > 0 && __builtin_mul_overflow(total, dims[i], &total))
            return coi_error(err, CO_INVALID_ARGUMENT, "shape %s has %s than 2^63 elements",
                             coi_shape_text(dims, (int)ndim, text),
                             zero ? "none, but without the zeros it would have more" : "more");
    if (zero)
        total = 0;
    /* Half the address space is the most that pointer arithmetic can handle. */
    if (__builtin_mul_overflow(total, (int64_t)element_size, &bytes) || bytes > PTRDIFF_MAX / 2)
        return coi_error(err, CO_INVALID_ARGUMENT,
                         "shape %s of %zu-byte elements is larger than memory can be",
                         coi_shape_text(dims, (int)ndim, text), element_size);
    *num_elements = total;
    return CO_OK;
}

const char *
coi_shape_text(const int64_t *dims, int ndim, char out[COI_SHAPE_TEXT])
{
    int at = 0;

    if (ndim < 0) {
        snprintf(out, COI_SHAPE_TEXT, "<unknown rank>");
        return out;
    }
    at += snprintf(out, COI_SHAPE_TEXT, "[");
    for (int i = 0; i < ndim && at < COI_SHAPE_TEXT - 24; ++i)
        at += dims[i] < 0 ? snprintf(out + at, COI_SHAPE_TEXT - (size_t)at, "%s?", i > 0 ? "," : "")
                          : snprintf(out + at, COI_SHAPE_TEXT - (size_t)at, "%s%lld",
                                     i > 0 ? "," : "", (long long)dims[i]);
    snprintf(out + at, COI_SHAPE_TEXT - (size_t)at, "]");
    return out;
}
