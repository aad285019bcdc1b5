/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tensor_files.h that read: bytes of a file as tensors, whole or in part. */
#include "io/tensor_file.h"

#include "io/crc32c.h"
#include "io/mapped_file.h"
#include "io/options.h"

#include "base/wire.h"

#include <string.h>

#define OBJECT_GRAPH "_CHECKPOINTABLE_OBJECT_GRAPH"

struct co_tensor_file {
    coi_object       object;
    coi_runtime     *runtime;
    coi_tensor_file *file; /* NULL: closed */
    bool             map;
    coi_mapped_file *mapped; /* made at first need */
};

/* A part of a tensor. */
typedef struct region {
    int64_t begin[CO_MAX_DIMS], size[CO_MAX_DIMS];
} region;

typedef struct reading {
    co_tensor_file         *handle;
    const coi_tensor_entry *entry;
    const region           *part; /* NULL: all */
    co_error_info          *err;
} reading;

/* --- opening and closing --- */

static void
close_file(co_tensor_file *handle)
{
    coi_tensor_file_close(handle->file);
    coi_mapped_file_unref(handle->mapped);
    handle->file = NULL;
    handle->mapped = NULL;
}

static void
destroy_file(coi_heap *heap, void *object)
{
    close_file(object);
    coi_object_free(heap, object, sizeof(co_tensor_file));
}

static const coi_class file_class = { "tensor file", destroy_file, NULL };

co_tensor_file *
co_tensor_file_open(co_context *ctx, const char *path, const co_tensor_file_options *options)
{
    co_tensor_file_options all = CO_TENSOR_FILE_OPTIONS_INIT;
    co_tensor_file        *handle;

    COI_ENTER(ctx, "tensor_file_open", NULL);
    if (!coi_check_path(ctx, path, 2) || !coi_take_options(ctx, &all, sizeof(all), options, 3))
        return NULL;
    handle = coi_object_new(&ctx->heap, &file_class, sizeof(*handle));
    if (handle == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to open '%s'", path);
        return NULL;
    }
    handle->runtime = ctx->runtime;
    handle->map = all.map;
    if (coi_tensor_file_open(&ctx->runtime->memory, path, &handle->file, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        coi_unref(&ctx->heap, handle);
        return NULL;
    }
    return coi_own(ctx, handle);
}

static bool
check_file(co_context *ctx, co_tensor_file *handle)
{
    if (!coi_check_object(ctx, handle, &file_class, 2, "file"))
        return false;
    if (handle->file != NULL)
        return true;
    coi_fail(ctx, CO_FAILED_PRECONDITION, "argument 2 (file) was closed; open the file again");
    return false;
}

co_code
co_tensor_file_close(co_context *ctx, co_tensor_file *file)
{
    COI_ENTER_CODE(ctx, "tensor_file_close");
    if (!coi_check_object(ctx, file, &file_class, 2, "file"))
        return ctx->error.code;
    close_file(file);
    return CO_OK;
}

/* --- what is in it --- */

const co_tensor_file_info *
co_tensor_file_about(co_context *ctx, co_tensor_file *file)
{
    COI_ENTER(ctx, "tensor_file_about", NULL);
    return check_file(ctx, file) ? &file->file->info : NULL;
}

static const coi_tensor_entry *
entry_at(co_context *ctx, co_tensor_file *file, size_t i)
{
    if (!check_file(ctx, file))
        return NULL;
    if (i < file->file->info.num_entries)
        return &file->file->entries[i];
    coi_fail(ctx, CO_OUT_OF_RANGE, "argument 3 (i) is %zu; '%s' has %zu tensor%s, from 0", i,
             file->file->path, file->file->info.num_entries, COI_S(file->file->info.num_entries));
    return NULL;
}

const co_tensor_entry *
co_tensor_file_entry(co_context *ctx, co_tensor_file *file, size_t i)
{
    const coi_tensor_entry *entry;

    COI_ENTER(ctx, "tensor_file_entry", NULL);
    entry = entry_at(ctx, file, i);
    return entry != NULL ? &entry->info : NULL;
}

static bool
check_name(co_context *ctx, const char *name)
{
    if (name != NULL)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 3 (name) is NULL; give the name of a tensor");
    return false;
}

const co_tensor_entry *
co_tensor_file_find(co_context *ctx, co_tensor_file *file, const char *name)
{
    const coi_tensor_entry *entry;

    COI_ENTER(ctx, "tensor_file_find", NULL);
    if (!check_file(ctx, file) || !check_name(ctx, name))
        return NULL;
    entry = coi_tensor_file_entry(file->file, name, strlen(name));
    return entry != NULL ? &entry->info : NULL;
}

/* The entry of a name, or NULL with CO_NOT_FOUND. */
static const coi_tensor_entry *
entry_of(co_context *ctx, co_tensor_file *file, const char *name)
{
    const coi_tensor_entry *entry;

    if (!check_file(ctx, file) || !check_name(ctx, name))
        return NULL;
    entry = coi_tensor_file_entry(file->file, name, strlen(name));
    if (entry == NULL)
        coi_fail(ctx, CO_NOT_FOUND, "there is no tensor '%.200s' in '%s', which has %zu tensor%s",
                 name, file->file->path, file->file->info.num_entries,
                 COI_S(file->file->info.num_entries));
    return entry;
}

co_value *
co_tensor_file_metadata(co_context *ctx, co_tensor_file *file)
{
    const coi_tensor_file *f;
    const char           **keys;
    co_value             **values, *dict = NULL;
    size_t                 n, room;

    COI_ENTER(ctx, "tensor_file_metadata", NULL);
    if (!check_file(ctx, file))
        return NULL;
    f = file->file;
    if (!f->has_metadata)
        return coi_none(ctx);
    n = f->num_metadata;
    room = (n + 1) * (sizeof(*keys) + sizeof(*values));
    keys = coi_small_alloc(&ctx->heap, room);
    if (keys == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu texts of metadata", n);
        return NULL;
    }
    values = (co_value **)(keys + n + 1);
    for (size_t i = 0; i < n; ++i) {
        keys[i] = f->metadata[i].key;
        values[i] = co_bytes(ctx, f->metadata[i].value, f->metadata[i].value_nbytes);
        if (memchr(keys[i], '\0', f->metadata[i].key_nbytes) != NULL)
            coi_fail(ctx, CO_UNIMPLEMENTED,
                     "'%s': a key of the metadata holds a zero byte, which keys of dicts cannot",
                     f->path);
    }
    if (ctx->error.code == CO_OK)
        dict = co_dict(ctx, keys, values, n);
    coi_small_free(&ctx->heap, keys, room);
    return dict;
}

/* --- errors --- */

/* An error about an entry, with the names of file and tensor. */
static co_code
fail_entry(const reading *r, co_code code, const char *what)
{
    return coi_error(r->err, code, "'%s', tensor '%.100s': %s", r->handle->file->path,
                     r->entry->info.name, what);
}

/* That a tensor can hold the entry; its elements. */
static bool
check_type(const reading *r, int64_t *num_elements)
{
    const coi_tensor_entry *e = r->entry;
    char                    text[200];

    if (e->info.dtype == CO_DTYPE_NONE) {
        coi_error(r->err, CO_UNIMPLEMENTED,
                  "'%s', tensor '%.100s': it is of %s (%s), which tensors here do not have",
                  r->handle->file->path, e->info.name, e->info.dtype_name, e->info.stored_name);
        return false;
    }
    if (e->info.ndim > CO_MAX_DIMS) {
        snprintf(text, sizeof(text), "it has %d dimensions; tensors have at most %d", e->info.ndim,
                 CO_MAX_DIMS);
        fail_entry(r, CO_UNIMPLEMENTED, text);
        return false;
    }
    if (coi_shape_check(e->info.dims, (size_t)e->info.ndim, coi_dtypes[e->info.dtype].size,
                        num_elements, NULL) == CO_OK)
        return true;
    fail_entry(r, CO_UNIMPLEMENTED, "its shape is larger than a tensor can be");
    return false;
}

/* --- bytes --- */

static co_value *
new_tensor(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim, co_error_info *err)
{
    co_device *device = coi_current_host(ctx);
    int64_t    n;

    if (device == NULL) {
        coi_error(err, ctx->error.code, "%s", ctx->error.message);
        return NULL;
    }
    if (coi_shape_check(dims, (size_t)ndim, coi_dtypes[dtype].size, &n, err) != CO_OK)
        return NULL;
    return coi_tensor_new(&ctx->heap, device, dtype, dims, ndim, n, err);
}

static co_code
check_crc(const reading *r, uint32_t crc)
{
    uint32_t masked = coi_crc32c_mask(crc);

    if (!r->entry->info.has_crc32c || masked == r->entry->info.crc32c)
        return CO_OK;
    return coi_error(r->err, CO_DATA_LOSS,
                     "'%s', tensor '%.100s': the checksum of its %llu bytes at offset %llu of file "
                     "%d is wrong: stored 0x%08x, found 0x%08x",
                     r->handle->file->path, r->entry->info.name,
                     (unsigned long long)r->entry->info.nbytes,
                     (unsigned long long)r->entry->info.offset, r->entry->info.shard,
                     (unsigned)r->entry->info.crc32c, (unsigned)masked);
}

/* Bytes of an entry from `first` on; of all of it the checksum is verified. */
static co_code
read_bytes(co_context *ctx, const reading *r, const coi_extent *extent, uint64_t first, void *out,
           uint64_t nbytes)
{
    bool          sums = r->entry->info.has_crc32c && nbytes == extent->nbytes;
    co_device    *device = coi_current_host(ctx);
    co_error_info err = { .code = CO_OK };
    uint32_t      crc = 0;

    if (coi_read_extent(extent, first, out, nbytes, device != NULL ? device->team : NULL,
                        sums ? &crc : NULL, &err) != CO_OK)
        return fail_entry(r, err.code, err.message);
    return sums ? check_crc(r, crc) : CO_OK;
}

/* nbytes from `first` on as elements of a new tensor. */
static co_value *
read_elements(co_context *ctx, const reading *r, const coi_extent *extent, uint64_t first,
              uint64_t nbytes, const int64_t *dims)
{
    const coi_tensor_entry *e = r->entry;
    co_value               *tensor = new_tensor(ctx, e->info.dtype, dims, e->info.ndim, r->err);
    bool                    same_size = e->type->bits == 8 * coi_dtypes[e->info.dtype].size;
    void                   *data, *room;
    co_code                 rc;

    if (tensor == NULL)
        return NULL;
    data = coi_data_on_host(tensor);
    room = same_size ? data : coi_alloc(&ctx->runtime->memory, (size_t)nbytes);
    if (room == NULL)
        rc = fail_entry(r, CO_RESOURCE_EXHAUSTED, "no memory to read it");
    else
        rc = read_bytes(ctx, r, extent, first, room, nbytes);
    if (rc == CO_OK)
        coi_decode_stored(e->type->stored, room, data, tensor->u.tensor.num_elements);
    if (!same_size)
        coi_free(&ctx->runtime->memory, room, (size_t)nbytes);
    if (rc == CO_OK)
        return tensor;
    coi_unref(&ctx->heap, tensor);
    return NULL;
}

/* --- strings --- */

/* The lengths, their checksum, and the texts: the checksums of both. Texts point into `bytes`. */
static co_code
split_strings(const reading *r, const unsigned char *bytes, uint64_t nbytes, coi_text *texts,
              int64_t n)
{
    coi_wire wire = { bytes, bytes + nbytes };
    uint32_t crc = 0, stored;
    uint64_t length, left;

    for (int64_t i = 0; i < n; ++i) {
        uint32_t short_length;

        if (!coi_wire_varint(&wire, &length) || length > nbytes)
            return fail_entry(r, CO_DATA_LOSS, "the length of a string is not inside its bytes");
        texts[i].nbytes = (size_t)length;
        short_length = (uint32_t)length;
        crc = length <= UINT32_MAX ? coi_crc32c_extend(crc, &short_length, 4)
                                   : coi_crc32c_extend(crc, &length, 8);
    }
    if (wire.end - wire.at < 4)
        return fail_entry(r, CO_DATA_LOSS, "the checksum of the lengths of its strings is missing");
    memcpy(&stored, wire.at, 4);
    if (stored != coi_crc32c_mask(crc))
        return fail_entry(r, CO_DATA_LOSS, "the checksum of the lengths of its strings is wrong");
    crc = coi_crc32c_extend(crc, wire.at, 4);
    wire.at += 4;
    left = (uint64_t)(wire.end - wire.at);
    crc = coi_crc32c_extend(crc, wire.at, (size_t)left);
    for (int64_t i = 0; i < n; ++i) {
        if (texts[i].nbytes > left)
            return fail_entry(r, CO_DATA_LOSS, "its strings are longer than its bytes");
        texts[i].data = (const char *)wire.at;
        wire.at += texts[i].nbytes;
        left -= texts[i].nbytes;
    }
    if (left > 0)
        return fail_entry(r, CO_DATA_LOSS, "bytes follow its last string");
    return check_crc(r, crc);
}

static co_value *
make_strings(co_context *ctx, const reading *r, const unsigned char *bytes, uint64_t nbytes,
             int64_t n)
{
    coi_memory *memory = &ctx->runtime->memory;
    size_t      room = (size_t)n * sizeof(coi_text);
    coi_text   *texts = coi_alloc(memory, room);
    co_device  *device = coi_current_host(ctx);
    co_value   *tensor = NULL;

    if (texts == NULL || device == NULL)
        fail_entry(r, CO_RESOURCE_EXHAUSTED, "no memory to read it");
    else if (split_strings(r, bytes, nbytes, texts, n) == CO_OK)
        tensor = coi_tensor_strings(&ctx->heap, device, r->entry->info.dims, r->entry->info.ndim, n,
                                    texts, r->err);
    coi_free(memory, texts, room);
    return tensor;
}

static co_value *
read_strings(co_context *ctx, const reading *r, const coi_extent *extent, int64_t n)
{
    coi_memory    *memory = &ctx->runtime->memory;
    co_error_info  err = { .code = CO_OK };
    unsigned char *bytes;
    co_value      *tensor = NULL;

    if ((uint64_t)n > extent->nbytes) { /* each has a length of a byte at least */
        fail_entry(r, CO_DATA_LOSS, "it has fewer bytes than strings");
        return NULL;
    }
    bytes = coi_alloc(memory, (size_t)extent->nbytes);
    if (bytes == NULL)
        fail_entry(r, CO_RESOURCE_EXHAUSTED, "no memory to read it");
    else if (coi_read_extent(extent, 0, bytes, extent->nbytes, NULL, NULL, &err) != CO_OK)
        fail_entry(r, err.code, err.message);
    else
        tensor = make_strings(ctx, r, bytes, extent->nbytes, n);
    coi_free(memory, bytes, (size_t)extent->nbytes);
    return tensor;
}

/* --- mapping --- */

static void
release_mapping(void *user)
{
    coi_mapped_file_unref(user);
}

/* A tensor over the file; NULL without an error where it is to be read. */
static co_value *
map_elements(co_context *ctx, const reading *r, const coi_extent *extent, int64_t n)
{
    co_tensor_file         *handle = r->handle;
    const coi_tensor_entry *e = r->entry;
    co_device              *device = coi_current_host(ctx);
    const char             *why;
    coi_buffer             *buffer;
    void                   *data;

    if (!handle->map || e->type->stored != COI_STORED_PLAIN || n == 0 || device == NULL ||
        extent->fd != handle->file->fd || extent->offset % coi_dtypes[e->info.dtype].size != 0)
        return NULL;
    if (handle->mapped == NULL)
        handle->mapped = coi_mapped_file_new(&ctx->runtime->memory, extent->fd, extent->file_nbytes,
                                             &why);
    if (handle->mapped == NULL) {
        handle->map = false;
        coi_log_line(&ctx->runtime->log, CO_LOG_INFO, "'%s' is read, not mapped: %s",
                     handle->file->path, why);
        return NULL;
    }
    data = (char *)(uintptr_t)coi_mapped_file_data(handle->mapped) + extent->offset;
    buffer = coi_buffer_foreign(device, data, (size_t)extent->nbytes, release_mapping,
                                handle->mapped);
    if (buffer == NULL) {
        fail_entry(r, CO_RESOURCE_EXHAUSTED, "no memory to map it");
        return NULL;
    }
    coi_mapped_file_ref(handle->mapped);
    return coi_tensor_over(&ctx->heap, device, e->info.dtype, e->info.dims, e->info.ndim, n, buffer,
                           data, r->err);
}

/* --- parts of tensors --- */

/* Copy a box of elements between two arrays in row-major order. */
static void
copy_box(const char *from, const int64_t *from_dims, const int64_t *from_begin, char *to,
         const int64_t *to_dims, const int64_t *to_begin, const int64_t *size, int ndim,
         size_t each)
{
    int64_t index[CO_MAX_DIMS] = { 0 };
    int     last = ndim - 1, d;

    for (d = 0; d < ndim; ++d)
        if (size[d] == 0)
            return;
    for (d = 0; d >= 0;) {
        int64_t from_at = 0, to_at = 0;

        for (int k = 0; k < ndim; ++k) {
            from_at = from_at * from_dims[k] + from_begin[k] + index[k];
            to_at = to_at * to_dims[k] + to_begin[k] + index[k];
        }
        memcpy(to + (size_t)to_at * each, from + (size_t)from_at * each,
               (ndim > 0 ? (size_t)size[last] : 1) * each);
        for (d = last - 1; d >= 0 && ++index[d] == size[d]; --d)
            index[d] = 0;
    }
}

static const int64_t origin[CO_MAX_DIMS];

/* A part of strings, whose texts are copied. */
static co_value *
cut_strings(co_context *ctx, const co_value *whole, const region *part, int64_t n,
            co_error_info *err)
{
    size_t    room = (size_t)n * sizeof(coi_text);
    coi_text *texts = coi_alloc(&ctx->runtime->memory, room);
    co_value *tensor = NULL;

    if (texts == NULL) {
        coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %lld strings", (long long)n);
        return NULL;
    }
    copy_box(coi_data_on_host(whole), whole->u.tensor.dims, part->begin, (char *)texts, part->size,
             origin, part->size, whole->ndim, sizeof(coi_text));
    tensor = coi_tensor_strings(&ctx->heap, whole->u.tensor.device, part->size, whole->ndim, n,
                                texts, err);
    coi_free(&ctx->runtime->memory, texts, room);
    return tensor;
}

/* A part of a tensor on the host, of which the reference is taken over. */
static co_value *
cut(co_context *ctx, co_value *whole, const region *part, co_error_info *err)
{
    co_value *tensor;
    int64_t   n = 1;

    if (whole == NULL ||
        memcmp(part->size, whole->u.tensor.dims, (size_t)whole->ndim * sizeof(int64_t)) == 0)
        return whole;
    for (int d = 0; d < whole->ndim; ++d)
        n *= part->size[d];
    if (whole->dtype == CO_STRING) {
        tensor = cut_strings(ctx, whole, part, n, err);
    } else {
        tensor = new_tensor(ctx, (co_dtype)whole->dtype, part->size, whole->ndim, err);
        if (tensor != NULL)
            copy_box(coi_data_on_host(whole), whole->u.tensor.dims, part->begin,
                     coi_data_on_host(tensor), part->size, origin, part->size, whole->ndim,
                     coi_dtypes[whole->dtype].size);
    }
    coi_unref(&ctx->heap, whole);
    return tensor;
}

/* The rows that hold the part, which is then cut out of them. */
static co_value *
read_rows(co_context *ctx, const reading *r, const coi_extent *extent)
{
    const coi_tensor_entry *e = r->entry;
    int64_t                 dims[CO_MAX_DIMS];
    region                  inside = *r->part;
    uint64_t                row = extent->nbytes / (uint64_t)e->info.dims[0];

    memcpy(dims, e->info.dims, (size_t)e->info.ndim * sizeof(int64_t));
    dims[0] = r->part->size[0];
    inside.begin[0] = 0;
    return cut(ctx,
               read_elements(ctx, r, extent, (uint64_t)r->part->begin[0] * row,
                             (uint64_t)dims[0] * row, dims),
               &inside, r->err);
}

/* An array of an archive, which has to be what it was when the file was opened. */
static co_value *
read_array(co_context *ctx, const reading *r)
{
    const coi_tensor_entry *e = r->entry;
    coi_tensor_file        *file = r->handle->file;
    co_value               *array = file->format->read_array(file, ctx, e, r->err);

    if (array == NULL ||
        (array->dtype == e->info.dtype && array->ndim == e->info.ndim &&
         memcmp(array->u.tensor.dims, e->info.dims, (size_t)array->ndim * sizeof(int64_t)) == 0))
        return array;
    fail_entry(r, CO_DATA_LOSS, "the file has changed since it was opened");
    coi_unref(&ctx->heap, array);
    return NULL;
}

/* An entry that was saved as a whole. */
static co_value *
read_stored(co_context *ctx, const reading *r)
{
    coi_tensor_file        *file = r->handle->file;
    const coi_tensor_entry *e = r->entry;
    coi_extent              extent;
    int64_t                 n;
    co_value               *tensor = NULL;

    if (e->type->stored == COI_STORED_ARRAY) {
        tensor = read_array(ctx, r);
    } else if (check_type(r, &n) && file->format->locate(file, e, &extent, r->err) == CO_OK) {
        if (e->type->stored == COI_STORED_STRINGS)
            tensor = read_strings(ctx, r, &extent, n);
        else if ((tensor = map_elements(ctx, r, &extent, n)) == NULL && r->err->code == CO_OK) {
            if (r->part != NULL && !e->info.has_crc32c && e->info.ndim > 0 && n > 0)
                return read_rows(ctx, r, &extent);
            tensor = read_elements(ctx, r, &extent, 0, extent.nbytes, e->info.dims);
        }
    }
    return r->part != NULL ? cut(ctx, tensor, r->part, r->err) : tensor;
}

/* --- tensors that were saved in slices --- */

/* Slice i of an entry, inside its shape. */
static bool
slice_of(const reading *r, size_t i, region *out)
{
    const coi_tensor_entry *e = r->entry;
    const int64_t          *slice = e->info.slices + i * 2 * (size_t)e->info.ndim;

    for (int d = 0; d < e->info.ndim; ++d) {
        out->begin[d] = slice[d];
        out->size[d] = slice[e->info.ndim + d];
        if (out->size[d] == -1)
            out->size[d] = e->info.dims[d];
        if (out->begin[d] < 0 || out->size[d] < 0 || out->begin[d] > e->info.dims[d] ||
            out->size[d] > e->info.dims[d] - out->begin[d]) {
            fail_entry(r, CO_DATA_LOSS, "a slice of it is not inside its shape");
            return false;
        }
    }
    return true;
}

/* What two parts have in common; the number of elements. */
static int64_t
intersect(const region *a, const region *b, int ndim, region *out)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; ++d) {
        int64_t a_end = a->begin[d] + a->size[d], b_end = b->begin[d] + b->size[d];
        int64_t end = a_end < b_end ? a_end : b_end;

        out->begin[d] = a->begin[d] > b->begin[d] ? a->begin[d] : b->begin[d];
        out->size[d] = end > out->begin[d] ? end - out->begin[d] : 0;
        n *= out->size[d];
    }
    return n;
}

/* That no two slices overlap: then they fill what their sizes add up to. */
static bool
check_apart(const reading *r)
{
    region a, b, both;

    for (size_t i = 0; i < r->entry->info.num_slices; ++i)
        for (size_t k = 0; k < i; ++k)
            if (!slice_of(r, i, &a) || !slice_of(r, k, &b))
                return false;
            else if (intersect(&a, &b, r->entry->info.ndim, &both) > 0) {
                fail_entry(r, CO_DATA_LOSS, "two slices of it overlap");
                return false;
            }
    return true;
}

/* Slice i into its place of `whole`, which is `wanted`. *filled counts elements. */
static bool
add_slice(co_context *ctx, const reading *r, size_t i, const region *wanted, co_value *whole,
          int64_t *filled)
{
    coi_tensor_file *file = r->handle->file;
    int              ndim = r->entry->info.ndim;
    reading          inner = { r->handle, NULL, NULL, r->err };
    region           slice, common, inside = { { 0 }, { 0 } }, place = { { 0 }, { 0 } };
    co_value        *tensor;
    int64_t          n;

    if (!slice_of(r, i, &slice))
        return false;
    n = intersect(&slice, wanted, ndim, &common);
    if (n == 0)
        return true;
    inner.entry = file->format->part(file, r->entry, i, r->err);
    if (inner.entry == NULL)
        return false;
    if (inner.entry->info.dtype != r->entry->info.dtype || inner.entry->info.num_slices > 0 ||
        inner.entry->info.ndim != ndim ||
        memcmp(inner.entry->info.dims, slice.size, (size_t)ndim * sizeof(int64_t)) != 0) {
        fail_entry(r, CO_DATA_LOSS, "a slice of it has another shape or dtype than its place");
        return false;
    }
    tensor = read_stored(ctx, &inner);
    if (tensor == NULL)
        return false;
    for (int d = 0; d < ndim; ++d) {
        inside.begin[d] = common.begin[d] - slice.begin[d];
        place.begin[d] = common.begin[d] - wanted->begin[d];
    }
    copy_box(coi_data_on_host(tensor), slice.size, inside.begin, coi_data_on_host(whole),
             wanted->size, place.begin, common.size, ndim, coi_dtypes[r->entry->info.dtype].size);
    coi_unref(&ctx->heap, tensor);
    *filled += n;
    return true;
}

/* Strings are not partitioned: TensorFlow partitions variables of numbers alone. */
static co_value *
read_slices(co_context *ctx, const reading *r)
{
    const coi_tensor_entry *e = r->entry;
    region                  wanted = { { 0 }, { 0 } };
    co_value               *tensor;
    int64_t                 n, filled = 0;
    bool                    good;

    if (!check_type(r, &n) || !check_apart(r))
        return NULL;
    if (e->info.dtype == CO_STRING) {
        fail_entry(r, CO_UNIMPLEMENTED, "it has strings that were saved in slices");
        return NULL;
    }
    memcpy(wanted.size, e->info.dims, (size_t)e->info.ndim * sizeof(int64_t));
    if (r->part != NULL)
        wanted = *r->part;
    for (size_t i = 0; i < e->info.num_slices; ++i) { /* before memory is asked for */
        region slice, common;

        if (!slice_of(r, i, &slice))
            return NULL;
        filled += intersect(&slice, &wanted, e->info.ndim, &common);
    }
    n = 1;
    for (int d = 0; d < e->info.ndim; ++d)
        n *= wanted.size[d];
    if (filled != n) {
        fail_entry(r, CO_DATA_LOSS, "its slices do not fill it");
        return NULL;
    }
    tensor = new_tensor(ctx, e->info.dtype, wanted.size, e->info.ndim, r->err);
    good = tensor != NULL;
    for (size_t i = 0; good && i < e->info.num_slices; ++i)
        good = add_slice(ctx, r, i, &wanted, tensor, &filled);
    if (good)
        return tensor;
    coi_unref(&ctx->heap, tensor);
    return NULL;
}

/* --- the calls that read --- */

static co_value *
make_tensor(co_context *ctx, void *arg)
{
    const reading *r = arg;

    return r->entry->info.num_slices > 0 ? read_slices(ctx, r) : read_stored(ctx, r);
}

/* On the current device, of the block; NULL with an error. */
static co_value *
read_entry(co_context *ctx, co_tensor_file *handle, const coi_tensor_entry *entry,
           const region *part)
{
    co_error_info err = { .code = CO_OK };
    reading       r = { handle, entry, part, &err };
    co_value     *tensor;

    if (entry == NULL || coi_current_device(ctx) == NULL)
        return NULL;
    tensor = coi_make_tensor(ctx, make_tensor, &r);
    if (tensor != NULL)
        return coi_place_here(ctx, coi_own(ctx, tensor));
    coi_fail(ctx, err.code != CO_OK ? err.code : CO_RESOURCE_EXHAUSTED, "%s",
             err.code != CO_OK ? err.message : "no memory to read a tensor");
    return NULL;
}

co_value *
co_tensor_file_read(co_context *ctx, co_tensor_file *file, const char *name)
{
    COI_ENTER(ctx, "tensor_file_read", NULL);
    return read_entry(ctx, file, entry_of(ctx, file, name), NULL);
}

co_value *
co_tensor_file_read_entry(co_context *ctx, co_tensor_file *file, size_t i)
{
    COI_ENTER(ctx, "tensor_file_read_entry", NULL);
    return read_entry(ctx, file, entry_at(ctx, file, i), NULL);
}

/* A part inside the entry; sizes of -1 become what is left. */
static bool
check_region(co_context *ctx, const co_tensor_file *file, const coi_tensor_entry *e, region *part,
             int ndim)
{
    if (ndim != e->info.ndim || ndim > CO_MAX_DIMS) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "'%s', tensor '%.100s': the slice has %d dimension%s; the tensor has %d",
                 file->file->path, e->info.name, ndim, COI_S(ndim), e->info.ndim);
        return false;
    }
    for (int d = 0; d < ndim; ++d) {
        int64_t dim = e->info.dims[d], begin = part->begin[d];

        if (part->size[d] == -1 && begin >= 0 && begin <= dim)
            part->size[d] = dim - begin;
        if (begin >= 0 && part->size[d] >= 0 && begin <= dim && part->size[d] <= dim - begin)
            continue;
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "'%s', tensor '%.100s': %lld elements from %lld on along dimension %d are not "
                 "inside its %lld",
                 file->file->path, e->info.name, (long long)part->size[d], (long long)begin, d,
                 (long long)dim);
        return false;
    }
    return true;
}

co_value *
co_tensor_file_read_slice(co_context *ctx, co_tensor_file *file, const char *name,
                          const int64_t *begin, const int64_t *size, int ndim)
{
    const coi_tensor_entry *entry;
    region                  part = { { 0 }, { 0 } };

    COI_ENTER(ctx, "tensor_file_read_slice", NULL);
    entry = entry_of(ctx, file, name);
    if (entry == NULL)
        return NULL;
    if (ndim < 0 || (ndim > 0 && (begin == NULL || size == NULL))) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 ndim < 0 ? "argument 6 (ndim) is negative"
                          : "argument 4 (begin) or 5 (size) is NULL; give a number for each of the "
                            "tensor's dimensions");
        return NULL;
    }
    for (int d = 0; d < ndim && d < CO_MAX_DIMS; ++d) {
        part.begin[d] = begin[d];
        part.size[d] = size[d];
    }
    return check_region(ctx, file, entry, &part, ndim) ? read_entry(ctx, file, entry, &part) : NULL;
}

/* --- shape_and_slice --- */

typedef struct spec {
    const char *at;
} spec;

static bool
eat_number(spec *s, int64_t *out)
{
    const char *first = s->at;

    for (*out = 0; *s->at >= '0' && *s->at <= '9'; ++s->at) {
        if (*out > (INT64_MAX - 9) / 10)
            return false;
        *out = *out * 10 + (*s->at - '0');
    }
    return s->at > first;
}

/* "4 3 ": the dimensions, each with a blank behind it. */
static bool
eat_shape(spec *s, int64_t *dims, int *ndim)
{
    for (*ndim = 0; strchr(s->at, ' ') != NULL; ++*ndim)
        if (*ndim == CO_MAX_DIMS || !eat_number(s, &dims[*ndim]) || *s->at++ != ' ')
            return false;
    return *ndim > 0;
}

/* "1,2:-" */
static bool
eat_extents(spec *s, region *part, int *ndim)
{
    for (*ndim = 0; *ndim < CO_MAX_DIMS; ++*ndim) {
        if (*s->at == '-') {
            ++s->at;
            part->size[*ndim] = -1;
        } else if (!eat_number(s, &part->begin[*ndim]) || *s->at++ != ',' ||
                   !eat_number(s, &part->size[*ndim]) || part->size[*ndim] == 0) {
            return false;
        }
        if (*s->at == '\0') {
            ++*ndim;
            return true;
        }
        if (*s->at++ != ':')
            return false;
    }
    return false;
}

/* The shape is right, and the slice inside of it. */
static bool
take_spec(co_context *ctx, const co_tensor_file *file, const coi_tensor_entry *e, const char *text,
          region *part)
{
    int64_t dims[CO_MAX_DIMS];
    char    has[COI_SHAPE_TEXT], wanted[COI_SHAPE_TEXT];
    int     ndim, num_extents;
    spec    s = { text };

    if (!eat_shape(&s, dims, &ndim) || !eat_extents(&s, part, &num_extents)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 5 (shape_and_slice) is '%.100s'; it must be the dimensions and the "
                 "slice of a tensor, as '4 3 1,2:-'",
                 text);
        return false;
    }
    if (ndim != e->info.ndim || memcmp(dims, e->info.dims, (size_t)ndim * sizeof(*dims)) != 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "'%s', tensor '%.100s': shape_and_slice wants the shape %s; it has %s",
                 file->file->path, e->info.name, coi_shape_text(dims, ndim, wanted),
                 e->info.ndim <= CO_MAX_DIMS ? coi_shape_text(e->info.dims, e->info.ndim, has)
                                             : "more dimensions");
        return false;
    }
    return check_region(ctx, file, e, part, num_extents);
}

co_value *
co_tensor_file_restore(co_context *ctx, co_tensor_file *file, const char *name, co_dtype dtype,
                       const char *shape_and_slice)
{
    const coi_tensor_entry *entry;
    region                  part = { { 0 }, { 0 } };
    bool                    is_slice = shape_and_slice != NULL && shape_and_slice[0] != '\0';

    COI_ENTER(ctx, "tensor_file_restore", NULL);
    entry = entry_of(ctx, file, name);
    if (entry == NULL)
        return NULL;
    if (dtype != CO_DTYPE_NONE && dtype != entry->info.dtype) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "'%s', tensor '%.100s': expected %s, it is of %s",
                 file->file->path, entry->info.name, co_dtype_name(dtype), entry->info.dtype_name);
        return NULL;
    }
    if (is_slice && !take_spec(ctx, file, entry, shape_and_slice, &part))
        return NULL;
    return read_entry(ctx, file, entry, is_slice ? &part : NULL);
}

/* --- all of a file --- */

static co_value *
read_all(co_context *ctx, co_tensor_file *file)
{
    size_t       n = file->file->info.num_entries;
    size_t       room = (n + 1) * (sizeof(char *) + sizeof(co_value *));
    const char **keys = coi_small_alloc(&ctx->heap, room);
    co_value   **items, *dict = NULL;

    if (keys == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu tensors", n);
        return NULL;
    }
    items = (co_value **)(keys + n + 1);
    for (size_t i = 0; i < n && ctx->error.code == CO_OK; ++i) {
        const coi_tensor_entry *e = &file->file->entries[i];

        keys[i] = e->info.name;
        if (strlen(keys[i]) != e->info.name_nbytes)
            coi_fail(ctx, CO_UNIMPLEMENTED,
                     "'%s', tensor '%.100s': its name holds a zero byte, which keys of dicts "
                     "cannot; read it by its number",
                     file->file->path, keys[i]);
        else
            items[i] = read_entry(ctx, file, e, NULL);
    }
    if (ctx->error.code == CO_OK)
        dict = co_dict(ctx, keys, items, n);
    coi_small_free(&ctx->heap, keys, room);
    return dict;
}

co_value *
co_tensor_file_read_all(co_context *ctx, co_tensor_file *file)
{
    COI_ENTER(ctx, "tensor_file_read_all", NULL);
    return check_file(ctx, file) ? read_all(ctx, file) : NULL;
}

co_value *
co_load_safetensors(co_context *ctx, const char *path)
{
    co_tensor_file *handle;
    co_value       *dict = NULL;

    COI_ENTER(ctx, "load_safetensors", NULL);
    if (!coi_check_path(ctx, path, 2))
        return NULL;
    handle = coi_object_new(&ctx->heap, &file_class, sizeof(*handle));
    if (handle == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to open '%s'", path);
        return NULL;
    }
    if (coi_tensor_file_open_as(&ctx->runtime->memory, path, &coi_safetensors_format, &handle->file,
                                coi_err(ctx)) == CO_OK)
        dict = read_all(ctx, handle);
    else
        coi_failed(ctx);
    coi_unref(&ctx->heap, handle);
    return dict;
}

/* --- TensorFlow's objects --- */

co_value *
co_tensor_file_object_graph(co_context *ctx, co_tensor_file *file)
{
    const coi_tensor_entry *entry;
    co_value               *graph;
    const char             *bytes;
    size_t                  nbytes;

    COI_ENTER(ctx, "tensor_file_object_graph", NULL);
    if (!check_file(ctx, file))
        return NULL;
    entry = coi_tensor_file_entry(file->file, OBJECT_GRAPH, strlen(OBJECT_GRAPH));
    if (entry == NULL || entry->info.dtype != CO_STRING || entry->info.ndim != 0) {
        coi_fail(ctx, CO_NOT_FOUND,
                 "there is no object graph in '%s': it was not saved by tf.train.Checkpoint",
                 file->file->path);
        return NULL;
    }
    graph = read_entry(ctx, file, entry, NULL);
    bytes = co_string_at(ctx, graph, 0, &nbytes);
    return bytes != NULL ? coi_object_graph(ctx, bytes, nbytes) : NULL;
}

co_value *
co_tf_checkpoint_state(co_context *ctx, const char *folder)
{
    static const char *const keys[] = { "model_checkpoint_path", "all_model_checkpoint_paths" };
    coi_checkpoint_state     state;
    co_value               **paths, *values[2], *dict = NULL;
    size_t                   room;

    COI_ENTER(ctx, "tf_checkpoint_state", NULL);
    if (!coi_check_path(ctx, folder, 2))
        return NULL;
    if (coi_checkpoint_state_read(&state, &ctx->runtime->memory, folder, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    room = (state.num_paths + 1) * sizeof(*paths);
    paths = coi_small_alloc(&ctx->heap, room);
    if (paths == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu checkpoints", state.num_paths);
    for (size_t i = 0; paths != NULL && i < state.num_paths; ++i)
        paths[i] = co_string(ctx, state.paths[i]);
    if (paths != NULL && ctx->error.code == CO_OK) {
        values[0] = co_string(ctx, state.latest);
        values[1] = co_list(ctx, paths, state.num_paths);
        dict = ctx->error.code == CO_OK ? co_dict(ctx, keys, values, 2) : NULL;
    }
    if (paths != NULL)
        coi_small_free(&ctx->heap, paths, room);
    coi_checkpoint_state_free(&state);
    return dict;
}
