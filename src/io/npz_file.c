/* SPDX-License-Identifier: Apache-2.0 */
/* .npz archives as tensor files: what is in them without reading the arrays. */
#include "io/tensor_file.h"

#include "io/npz.h"

#include <string.h>

static const coi_stored_dtype dtypes[] = {
    { "b1", "bool", CO_BOOL, COI_STORED_ARRAY, 8 },
    { "i1", "int8", CO_INT8, COI_STORED_ARRAY, 8 },
    { "i2", "int16", CO_INT16, COI_STORED_ARRAY, 16 },
    { "i4", "int32", CO_INT32, COI_STORED_ARRAY, 32 },
    { "i8", "int64", CO_INT64, COI_STORED_ARRAY, 64 },
    { "u1", "uint8", CO_UINT8, COI_STORED_ARRAY, 8 },
    { "u2", "uint16", CO_UINT16, COI_STORED_ARRAY, 16 },
    { "u4", "uint32", CO_UINT32, COI_STORED_ARRAY, 32 },
    { "u8", "uint64", CO_UINT64, COI_STORED_ARRAY, 64 },
    { "f2", "float16", CO_FLOAT16, COI_STORED_ARRAY, 16 },
    { "f4", "float32", CO_FLOAT32, COI_STORED_ARRAY, 32 },
    { "f8", "float64", CO_FLOAT64, COI_STORED_ARRAY, 64 },
};
/* A head that cannot be read: damaged, or of a dtype that tensors do not have. */
static const coi_stored_dtype other_dtype = { "unknown", "unknown", CO_DTYPE_NONE, COI_STORED_ARRAY,
                                              0 };

typedef struct npz {
    coi_npz_archive archive;
    coi_npz_member *members;
    size_t          num_members, cap_members;
} npz;

static co_code
list_member(coi_tensor_file *file, const coi_npz_member *m, co_error_info *err)
{
    npz              *z = file->state;
    co_error_info     head_err = { .code = CO_OK };
    coi_npy_head      head;
    coi_tensor_entry *e = coi_tensor_file_add(file, err);

    if (e == NULL)
        return err->code;
    e->type = &other_dtype;
    e->info.offset = m->offset;
    e->info.nbytes = m->size;
    e->dims_at = file->num_numbers;
    if (coi_npz_head(&z->archive, m, &head, &head_err) == CO_RESOURCE_EXHAUSTED)
        return coi_error(err, head_err.code, "%s", head_err.message);
    if (head_err.code == CO_OK) {
        for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); ++i)
            if (dtypes[i].dtype == head.dtype)
                e->type = &dtypes[i];
        for (int d = 0; d < head.ndim; ++d)
            if (!coi_tensor_file_add_number(file, head.dims[d], err))
                return err->code;
        e->info.ndim = head.ndim;
        e->info.nbytes = (uint64_t)head.num_elements * e->type->bits / 8;
        e->info.offset += m->method == 0 ? (uint64_t)head.data_offset : 0;
    }
    e->info.dtype = e->type->dtype;
    e->info.dtype_name = e->type->name;
    e->info.stored_name = e->type->stored_name;
    return CO_OK;
}

static co_code
list_members(coi_tensor_file *file, co_error_info *err)
{
    npz    *z = file->state;
    int64_t at = z->archive.directory;
    size_t  n = (size_t)z->archive.num_members;

    while (z->num_members < n) {
        void *members = z->members;

        if (!coi_grow(file->memory, &members, &z->cap_members, z->num_members + 1,
                      sizeof(*z->members)))
            return coi_tensor_file_no_memory(file, err);
        z->members = members;
        if (coi_npz_next(&z->archive, &at, &z->members[z->num_members], err) != CO_OK ||
            list_member(file, &z->members[z->num_members], err) != CO_OK)
            return err->code;
        coi_npz_cut_suffix(z->members[z->num_members++].name);
    }
    for (size_t i = 0; i < n; ++i) { /* members do not move any more */
        file->entries[i].member = &z->members[i];
        file->entries[i].info.name = z->members[i].name;
        file->entries[i].info.name_nbytes = strlen(z->members[i].name);
    }
    return CO_OK;
}

static int
compare_order(const void *a, const void *b)
{
    const coi_tensor_entry *x = a, *y = b;

    return (x->order > y->order) - (x->order < y->order);
}

/* Of this format, too, damage is CO_DATA_LOSS. */
static co_code
as_damage(const coi_tensor_file *file, const co_error_info *found, co_error_info *err)
{
    if (found->code == CO_VALUE_ERROR)
        return coi_tensor_file_damaged(file, err, "%s", found->message);
    return coi_error(err, found->code, "%s", found->message);
}

static co_code
open_npz(coi_tensor_file *file, co_error_info *err)
{
    co_error_info found = { .code = CO_OK };
    npz          *z = coi_calloc(file->memory, sizeof(*z));

    if (z == NULL)
        return coi_tensor_file_no_memory(file, err);
    if (coi_npz_open(&z->archive, file->memory, file->path, &found) != CO_OK) {
        coi_free(file->memory, z, sizeof(*z));
        return as_damage(file, &found, err);
    }
    file->state = z;
    if (list_members(file, &found) != CO_OK)
        return as_damage(file, &found, err);
    return coi_tensor_file_finish(file, compare_order, err);
}

static void
close_npz(coi_tensor_file *file)
{
    npz *z = file->state;

    coi_source_close(&z->archive.source);
    coi_free(file->memory, z->members, z->cap_members * sizeof(*z->members));
    coi_free(file->memory, z, sizeof(*z));
    file->state = NULL;
}

static co_value *
read_array(coi_tensor_file *file, co_context *ctx, const coi_tensor_entry *e, co_error_info *err)
{
    npz          *z = file->state;
    co_error_info found = { .code = CO_OK };
    co_value     *array = coi_npz_read(ctx, &z->archive, e->member, &found);

    if (array == NULL)
        coi_error(err, found.code == CO_VALUE_ERROR ? CO_DATA_LOSS : found.code,
                  "'%s', tensor '%.100s': %s", file->path, e->info.name, found.message);
    return array;
}

const coi_tensor_format coi_npz_format = {
    .name = "npz",
    .open = open_npz,
    .close = close_npz,
    .read_array = read_array,
};
