/* SPDX-License-Identifier: Apache-2.0 */
/* The format of NumPy's arrays, as npy.c reads it from a file and npz.c from a member of an
 * archive. */
#ifndef COI_IO_NPY_H
#define COI_IO_NPY_H

#include "context/context.h"
#include "io/source.h"

typedef struct coi_npy_head {
    co_dtype dtype;
    bool     is_swapped, is_fortran;
    int      ndim;
    int64_t  dims[CO_MAX_DIMS];
    int64_t  num_elements;
    int64_t  data_offset; /* bytes before the data */
} coi_npy_head;

/* Where an array is read from. `read` gives n bytes, fewer at the end, -1 with an error. `size`:
 * the most there can be. */
typedef struct coi_npy_input {
    int64_t (*read)(void *user, void *bytes, size_t n, co_error_info *err);
    void   *user;
    int64_t size;
} coi_npy_input;

/* Whatever makes an array file unreadable is CO_VALUE_ERROR (GEN-ERR-5), want of memory aside. */
static inline void
coi_npy_unreadable(co_error_info *err)
{
    if (err->code != CO_RESOURCE_EXHAUSTED)
        err->code = CO_VALUE_ERROR;
}

/* CO_VALUE_ERROR for what is no array or has a dtype that tensors do not have. */
co_code coi_npy_head_read(const coi_npy_input *input, coi_npy_head *head, co_error_info *err);
/* The array behind a head, as a new reference in C order; NULL with the error in err. */
co_value *coi_npy_data_read(co_context *ctx, const coi_npy_input *input, const coi_npy_head *head,
                            co_error_info *err);

#endif
