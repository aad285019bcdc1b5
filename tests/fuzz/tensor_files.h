/* SPDX-License-Identifier: Apache-2.0 */
/* What the targets of tensor files share: everything that can be done with a file is done. */
#ifndef COHORT_FUZZ_TENSOR_FILES_H
#define COHORT_FUZZ_TENSOR_FILES_H

#include "files.h"

/* What a reader may say of bytes that may be anything. */
static inline void
fuzz_clear_damage(co_context *ctx)
{
    if (co_error(ctx)->code == CO_NOT_FOUND) /* the data of a bundle */
        co_clear(ctx);
    fuzz_clear(ctx, CO_DATA_LOSS, CO_UNIMPLEMENTED);
}

/* A part of the tensor is that part of the whole. */
static inline void
fuzz_read_part(co_context *ctx, co_tensor_file *file, const co_tensor_entry *e, co_value *whole)
{
    int64_t   begin[CO_MAX_DIMS] = { 0 }, size[CO_MAX_DIMS] = { 0 };
    co_value *part;

    for (int d = 0; d < e->ndim; ++d) {
        begin[d] = e->dims[d] / 3;
        size[d] = d % 2 == 0 ? (e->dims[d] + 1) / 2 : -1;
    }
    part = co_tensor_file_read_slice(ctx, file, e->name, begin, size, e->ndim);
    FUZZ_REQUIRE(part != NULL);
    FUZZ_REQUIRE(co_value_num_elements(ctx, part) <= co_value_num_elements(ctx, whole));
    if (e->ndim == 1 && e->dtype != CO_STRING && co_value_num_elements(ctx, part) > 0)
        FUZZ_REQUIRE(memcmp(co_value_data(ctx, part),
                            (const char *)co_value_data(ctx, whole) +
                                (size_t)begin[0] * co_dtype_size(e->dtype),
                            (size_t)co_value_num_elements(ctx, part) * co_dtype_size(e->dtype)) ==
                     0);
}

static inline void
fuzz_read_entry(co_context *ctx, co_tensor_file *file, size_t i)
{
    const co_tensor_entry *e = co_tensor_file_entry(ctx, file, i);
    co_value              *whole = co_tensor_file_read_entry(ctx, file, i);

    FUZZ_REQUIRE(e->name[e->name_nbytes] == '\0' && e->dtype_name != NULL);
    if (whole != NULL) {
        FUZZ_REQUIRE(co_value_dtype(ctx, whole) == e->dtype);
        FUZZ_REQUIRE(co_value_ndim(ctx, whole) == e->ndim);
        if (strlen(e->name) == e->name_nbytes)
            fuzz_read_part(ctx, file, e, whole);
    }
    fuzz_clear_damage(ctx);
}

static inline void
fuzz_read_tensor_file(co_context *ctx, const char *path, bool map)
{
    co_tensor_file_options options = CO_TENSOR_FILE_OPTIONS_INIT;
    co_tensor_file        *file;

    options.map = map;
    file = co_tensor_file_open(ctx, path, &options);
    if (file != NULL) {
        size_t n = co_tensor_file_about(ctx, file)->num_entries;

        for (size_t i = 0; i < n && i < 64; ++i)
            CO_BLOCK(ctx)
                fuzz_read_entry(ctx, file, i);
        co_tensor_file_metadata(ctx, file);
        fuzz_clear_damage(ctx);
        co_tensor_file_object_graph(ctx, file);
        fuzz_clear_damage(ctx);
        co_tensor_file_close(ctx, file);
    }
    fuzz_clear_damage(ctx);
}

#endif
