/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading safetensors files: eight bytes with the length of a header, the header, and the data.
 * The header is an object of JSON:
 *
 *     {"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
 *
 * Tensors cover the data without holes and overlaps. What the Python package refuses is refused
 * here, as CO_DATA_LOSS; of two tensors of one name the last counts, as there.
 */
#include "io/tensor_file.h"

#include "io/json.h"

#include <stdlib.h>
#include <string.h>

static const coi_stored_dtype dtypes[] = {
    { "BOOL", "bool", CO_BOOL, COI_STORED_BOOL, 8 },
    { "U8", "uint8", CO_UINT8, COI_STORED_PLAIN, 8 },
    { "I8", "int8", CO_INT8, COI_STORED_PLAIN, 8 },
    { "I16", "int16", CO_INT16, COI_STORED_PLAIN, 16 },
    { "U16", "uint16", CO_UINT16, COI_STORED_PLAIN, 16 },
    { "F16", "float16", CO_FLOAT16, COI_STORED_PLAIN, 16 },
    { "BF16", "bfloat16", CO_BFLOAT16, COI_STORED_PLAIN, 16 },
    { "I32", "int32", CO_INT32, COI_STORED_PLAIN, 32 },
    { "U32", "uint32", CO_UINT32, COI_STORED_PLAIN, 32 },
    { "F32", "float32", CO_FLOAT32, COI_STORED_PLAIN, 32 },
    { "F64", "float64", CO_FLOAT64, COI_STORED_PLAIN, 64 },
    { "I64", "int64", CO_INT64, COI_STORED_PLAIN, 64 },
    { "U64", "uint64", CO_UINT64, COI_STORED_PLAIN, 64 },
    { "F8_E4M3", "float8_e4m3fn", CO_FLOAT16, COI_STORED_FLOAT8_E4M3, 8 },
    { "F8_E5M2", "float8_e5m2", CO_FLOAT16, COI_STORED_FLOAT8_E5M2, 8 },
    { "F8_E8M0", "float8_e8m0fnu", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 8 },
    { "F8_E4M3FNUZ", "float8_e4m3fnuz", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 8 },
    { "F8_E5M2FNUZ", "float8_e5m2fnuz", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 8 },
    { "F6_E2M3", "float6_e2m3fn", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 6 },
    { "F6_E3M2", "float6_e3m2fn", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 6 },
    { "F4", "float4_e2m1fn", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 4 },
    { "C64", "complex64", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 64 },
};

typedef struct header {
    char  *bytes; /* names and metadata stay in it */
    size_t nbytes;
} header;

/* --- one tensor --- */

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4 };

static bool
read_dtype(coi_json *json, coi_tensor_entry *e)
{
    coi_json_text text;

    if (!coi_json_string(json, &text))
        return false;
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); ++i)
        if (strlen(dtypes[i].stored_name) == text.nbytes &&
            memcmp(dtypes[i].stored_name, text.data, text.nbytes) == 0) {
            e->type = &dtypes[i];
            return true;
        }
    return coi_json_fail(json, "before this the name of a dtype, as F32");
}

static bool
read_shape(coi_tensor_file *file, coi_json *json, coi_tensor_entry *e)
{
    uint64_t size;
    size_t   n = 0;

    e->dims_at = file->num_numbers;
    if (!coi_json_begin_array(json))
        return false;
    while (coi_json_next_item(json, &n))
        if (!coi_json_uint(json, &size) ||
            !coi_tensor_file_add_number(file, (int64_t)size, json->err))
            return false;
    if (n > INT32_MAX)
        return coi_json_fail(json, "before this fewer dimensions");
    e->info.ndim = (int)n;
    return coi_json_ok(json);
}

/* [begin, end] */
static bool
read_offsets(coi_json *json, coi_tensor_entry *e)
{
    uint64_t offsets[2] = { 0, 0 };
    size_t   n = 0;

    if (!coi_json_begin_array(json))
        return false;
    while (coi_json_next_item(json, &n))
        if (n > 2 ? !coi_json_fail(json, "two offsets") : !coi_json_uint(json, &offsets[n - 1]))
            return false;
    if (!coi_json_ok(json))
        return false;
    if (n != 2)
        return coi_json_fail(json, "before this two offsets");
    if (offsets[1] < offsets[0])
        return coi_json_fail(json, "before this an end that is not less than the begin");
    e->info.offset = offsets[0];
    e->info.nbytes = offsets[1] - offsets[0];
    return true;
}

/* Whether a key has this name, which comes once. */
static bool
is_field(coi_json *json, const coi_json_text *key, const char *name, unsigned bit, unsigned *seen)
{
    if (key->nbytes != strlen(name) || memcmp(key->data, name, key->nbytes) != 0)
        return false;
    if ((*seen & bit) != 0)
        coi_json_fail(json, "each field of a tensor once before this");
    *seen |= bit;
    return true;
}

static bool
read_tensor(coi_tensor_file *file, coi_json *json, coi_tensor_entry *e)
{
    coi_json_text key;
    size_t        n = 0;
    unsigned      seen = 0;

    if (!coi_json_begin_object(json))
        return false;
    while (coi_json_next_key(json, &n, &key)) {
        bool good;

        if (is_field(json, &key, "dtype", HAS_DTYPE, &seen))
            good = read_dtype(json, e);
        else if (is_field(json, &key, "shape", HAS_SHAPE, &seen))
            good = read_shape(file, json, e);
        else if (is_field(json, &key, "data_offsets", HAS_OFFSETS, &seen))
            good = read_offsets(json, e);
        else
            good = coi_json_skip(json);
        if (!good)
            return false;
    }
    if (coi_json_ok(json) && seen != (HAS_DTYPE | HAS_SHAPE | HAS_OFFSETS))
        return coi_json_fail(json, "before this dtype, shape and data_offsets");
    return coi_json_ok(json);
}

/* --- the header --- */

static bool
read_metadata(coi_tensor_file *file, coi_json *json)
{
    coi_json_text key, value;
    size_t        n = 0;

    if (file->has_metadata)
        return coi_json_fail(json, "__metadata__ once before this");
    if (coi_json_null(json))
        return true;
    file->has_metadata = true;
    if (!coi_json_begin_object(json))
        return false;
    while (coi_json_next_key(json, &n, &key)) {
        void *metadata = file->metadata;

        if (!coi_json_string(json, &value))
            return false;
        if (!coi_grow(file->memory, &metadata, &file->cap_metadata, file->num_metadata + 1,
                      sizeof(*file->metadata))) {
            coi_tensor_file_no_memory(file, json->err);
            return false;
        }
        file->metadata = metadata;
        file->metadata[file->num_metadata++] = (coi_metadata){ key.data, value.data, key.nbytes,
                                                               value.nbytes };
    }
    return coi_json_ok(json);
}

/* By key, then in the order of the file, which is that of the memory. */
static int
compare_metadata(const void *a, const void *b)
{
    const coi_metadata *x = a, *y = b;
    size_t              least = x->key_nbytes < y->key_nbytes ? x->key_nbytes : y->key_nbytes;
    int                 order = memcmp(x->key, y->key, least);

    if (order == 0)
        order = (x->key_nbytes > y->key_nbytes) - (x->key_nbytes < y->key_nbytes);
    return order != 0 ? order : (x->key > y->key) - (x->key < y->key);
}

/* Of keys that come twice, the last counts. */
static void
sort_metadata(coi_tensor_file *file)
{
    size_t kept = 0;

    if (file->num_metadata > 1)
        qsort(file->metadata, file->num_metadata, sizeof(*file->metadata), compare_metadata);
    for (size_t i = 0; i < file->num_metadata; ++i) {
        const coi_metadata *m = &file->metadata[i];

        if (i + 1 < file->num_metadata && m->key_nbytes == m[1].key_nbytes &&
            memcmp(m->key, m[1].key, m->key_nbytes) == 0)
            continue;
        file->metadata[kept++] = *m;
    }
    file->num_metadata = kept;
}

static bool
read_tensors(coi_tensor_file *file, coi_json *json)
{
    coi_json_text     key;
    coi_tensor_entry *e;
    size_t            n = 0;

    if (!coi_json_begin_object(json))
        return false;
    while (coi_json_next_key(json, &n, &key)) {
        if (key.nbytes == strlen("__metadata__") &&
            memcmp(key.data, "__metadata__", key.nbytes) == 0) {
            if (!read_metadata(file, json))
                return false;
            continue;
        }
        e = coi_tensor_file_add(file, json->err);
        if (e == NULL)
            return false;
        e->info.name = key.data;
        e->info.name_nbytes = key.nbytes;
        if (!read_tensor(file, json, e))
            return false;
        e->info.dtype = e->type->dtype;
        e->info.dtype_name = e->type->name;
        e->info.stored_name = e->type->stored_name;
    }
    return coi_json_end(json);
}

/* By offset, then by end; two at one place are empty. */
static int
compare_places(const void *a, const void *b)
{
    const coi_tensor_entry *x = a, *y = b;

    if (x->info.offset != y->info.offset)
        return x->info.offset < y->info.offset ? -1 : 1;
    if (x->info.nbytes != y->info.nbytes)
        return x->info.nbytes < y->info.nbytes ? -1 : 1;
    return x < y ? -1 : x > y; /* they were sorted by name */
}

/* Bytes of a shape; false if they cannot be counted, or end within a byte. */
static bool
count_bytes(const coi_tensor_entry *e, uint64_t *nbytes)
{
    uint64_t n = 1;

    for (int d = 0; d < e->info.ndim; ++d)
        if (__builtin_mul_overflow(n, (uint64_t)e->info.dims[d], &n))
            return false;
    if (__builtin_mul_overflow(n, (uint64_t)e->type->bits, &n) || n % 8 != 0)
        return false;
    *nbytes = n / 8;
    return true;
}

/* Each tensor begins where the one before ends, and the last ends with the file. */
static co_code
check_cover(const coi_tensor_file *file, co_error_info *err)
{
    uint64_t next = 0, nbytes, rest = file->nbytes - 8 - file->info.header_nbytes;

    for (size_t i = 0; i < file->info.num_entries; ++i) {
        const coi_tensor_entry *e = &file->entries[i];

        if (e->info.offset != next)
            return coi_tensor_file_damaged(
                file, err,
                "tensor '%.100s': its data begin at offset %llu; expected %llu, where "
                "the tensor before ends",
                e->info.name, (unsigned long long)e->info.offset, (unsigned long long)next);
        if (!count_bytes(e, &nbytes))
            return coi_tensor_file_damaged(
                file, err, "tensor '%.100s': its shape has no whole number of bytes below 2^61",
                e->info.name);
        if (nbytes != e->info.nbytes)
            return coi_tensor_file_damaged(
                file, err, "tensor '%.100s': it has %llu bytes, and its shape needs %llu",
                e->info.name, (unsigned long long)e->info.nbytes, (unsigned long long)nbytes);
        next += nbytes;
    }
    if (next != rest)
        return coi_tensor_file_damaged(file, err,
                                       "the tensors have %llu bytes, and %llu follow the header",
                                       (unsigned long long)next, (unsigned long long)rest);
    return CO_OK;
}

/* The header into memory of the file. */
static co_code
load_header(coi_tensor_file *file, co_error_info *err)
{
    header  *h = file->state;
    uint8_t  length[8];
    uint64_t n = 0;

    if (file->nbytes < 8)
        return coi_tensor_file_damaged(file, err,
                                       "the file has %llu bytes; expected 8 at least, the length "
                                       "of the header",
                                       (unsigned long long)file->nbytes);
    if (coi_pread_exactly(file->fd, file->path, 0, length, 8, err) != CO_OK)
        return err->code;
    for (int i = 7; i >= 0; --i)
        n = n << 8 | length[i];
    if (n > COI_SAFETENSORS_MAX_HEADER)
        return coi_tensor_file_damaged(file, err,
                                       "the header has %llu bytes; at most %u are allowed. Is it a "
                                       "safetensors file, .npz archive or tensor bundle?",
                                       (unsigned long long)n, COI_SAFETENSORS_MAX_HEADER);
    if (n > file->nbytes - 8)
        return coi_tensor_file_damaged(file, err,
                                       "the header has %llu bytes, and %llu follow its length",
                                       (unsigned long long)n,
                                       (unsigned long long)(file->nbytes - 8));
    file->info.header_nbytes = n;
    h->nbytes = (size_t)n;
    h->bytes = coi_alloc(file->memory, h->nbytes);
    if (h->bytes == NULL)
        return coi_tensor_file_no_memory(file, err);
    return coi_pread_exactly(file->fd, file->path, 8, h->bytes, h->nbytes, err);
}

static co_code
open_safetensors(coi_tensor_file *file, co_error_info *err)
{
    co_error_info json_err = { .code = CO_OK };
    header       *h;
    coi_json      json;
    co_code       rc = coi_open_regular(file->path, &file->fd, &file->nbytes, err);

    if (rc != CO_OK)
        return rc;
    file->state = h = coi_calloc(file->memory, sizeof(header));
    if (h == NULL)
        return coi_tensor_file_no_memory(file, err);
    rc = load_header(file, err);
    if (rc != CO_OK)
        return rc;
    if (!coi_json_init(&json, h->bytes, h->nbytes, &json_err) || !read_tensors(file, &json))
        return json_err.code == CO_DATA_LOSS
                   ? coi_tensor_file_damaged(file, err, "%s", json_err.message)
                   : coi_error(err, json_err.code, "%s", json_err.message);
    sort_metadata(file);
    rc = coi_tensor_file_finish(file, compare_places, err);
    return rc == CO_OK ? check_cover(file, err) : rc;
}

static void
close_safetensors(coi_tensor_file *file)
{
    header *h = file->state;

    coi_free(file->memory, h->bytes, h->nbytes);
    coi_free(file->memory, h, sizeof(*h));
    file->state = NULL;
}

static co_code
locate(coi_tensor_file *file, const coi_tensor_entry *e, coi_extent *out, co_error_info *err)
{
    (void)err;
    *out = (coi_extent){ file->fd, file->path, 8 + file->info.header_nbytes + e->info.offset,
                         e->info.nbytes, file->nbytes };
    return CO_OK;
}

const coi_tensor_format coi_safetensors_format = {
    .name = "safetensors",
    .open = open_safetensors,
    .close = close_safetensors,
    .locate = locate,
};
