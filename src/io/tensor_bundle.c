/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorFlow's checkpoints (tensor bundles): PREFIX.index is a sorted table from names to entries,
 * PREFIX.data-00000-of-0000N hold the bytes. The key "" has the header. A variable that was saved
 * in slices has an entry with the list of its slices and no data; each slice has an entry of its
 * own, whose key begins with a zero byte and holds name and extents in an encoding that keeps the
 * order of numbers.
 *
 * Entries are protocol buffers: BundleHeaderProto and BundleEntryProto of TensorFlow.
 */
#include "io/tensor_file.h"

#include "base/wire.h"
#include "io/crc32c.h"
#include "io/sstable.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_INDEX   ((uint64_t)1 << 30) /* bytes */
#define MAX_SHARDS  100000              /* their names have five digits */
#define MAX_SLICES  4096
#define CHUNK_BYTES ((size_t)64 << 10)

/* By the numbers of TensorFlow's DataType. */
static const coi_stored_dtype dtypes[] = {
    [1] = { "DT_FLOAT", "float32", CO_FLOAT32, COI_STORED_PLAIN, 32 },
    [2] = { "DT_DOUBLE", "float64", CO_FLOAT64, COI_STORED_PLAIN, 64 },
    [3] = { "DT_INT32", "int32", CO_INT32, COI_STORED_PLAIN, 32 },
    [4] = { "DT_UINT8", "uint8", CO_UINT8, COI_STORED_PLAIN, 8 },
    [5] = { "DT_INT16", "int16", CO_INT16, COI_STORED_PLAIN, 16 },
    [6] = { "DT_INT8", "int8", CO_INT8, COI_STORED_PLAIN, 8 },
    [7] = { "DT_STRING", "string", CO_STRING, COI_STORED_STRINGS, 0 },
    [8] = { "DT_COMPLEX64", "complex64", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 64 },
    [9] = { "DT_INT64", "int64", CO_INT64, COI_STORED_PLAIN, 64 },
    [10] = { "DT_BOOL", "bool", CO_BOOL, COI_STORED_BOOL, 8 },
    [11] = { "DT_QINT8", "qint8", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 8 },
    [12] = { "DT_QUINT8", "quint8", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 8 },
    [13] = { "DT_QINT32", "qint32", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 32 },
    [14] = { "DT_BFLOAT16", "bfloat16", CO_BFLOAT16, COI_STORED_PLAIN, 16 },
    [15] = { "DT_QINT16", "qint16", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 16 },
    [16] = { "DT_QUINT16", "quint16", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 16 },
    [17] = { "DT_UINT16", "uint16", CO_UINT16, COI_STORED_PLAIN, 16 },
    [18] = { "DT_COMPLEX128", "complex128", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 128 },
    [19] = { "DT_HALF", "float16", CO_FLOAT16, COI_STORED_PLAIN, 16 },
    [20] = { "DT_RESOURCE", "resource", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 0 },
    [21] = { "DT_VARIANT", "variant", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 0 },
    [22] = { "DT_UINT32", "uint32", CO_UINT32, COI_STORED_PLAIN, 32 },
    [23] = { "DT_UINT64", "uint64", CO_UINT64, COI_STORED_PLAIN, 64 },
    [24] = { "DT_FLOAT8_E5M2", "float8_e5m2", CO_FLOAT16, COI_STORED_FLOAT8_E5M2, 8 },
    [25] = { "DT_FLOAT8_E4M3FN", "float8_e4m3fn", CO_FLOAT16, COI_STORED_FLOAT8_E4M3, 8 },
    [26] = { "DT_FLOAT8_E4M3FNUZ", "float8_e4m3fnuz", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 8 },
    [27] = { "DT_FLOAT8_E4M3B11FNUZ", "float8_e4m3b11fnuz", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 8 },
    [28] = { "DT_FLOAT8_E5M2FNUZ", "float8_e5m2fnuz", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 8 },
    [29] = { "DT_INT4", "int4", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 0 },
    [30] = { "DT_UINT4", "uint4", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 0 },
    [31] = { "DT_INT2", "int2", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 0 },
    [32] = { "DT_UINT2", "uint2", CO_DTYPE_NONE, COI_STORED_UNKNOWN, 0 },
};
static const coi_stored_dtype other_dtype = { "DT_INVALID", "invalid", CO_DTYPE_NONE,
                                              COI_STORED_UNKNOWN, 0 };

typedef struct name_chunk { /* names, one after another, each with a zero behind it */
    struct name_chunk *next;
    size_t             nbytes, used; /* of text */
    char               text[];
} name_chunk;

typedef struct shard {
    int      fd; /* -1: not open */
    char    *path;
    uint64_t nbytes;
} shard;

typedef struct bundle {
    name_chunk *names;
    bool        has_header;
    uint64_t    num_shards;
    int64_t     min_consumer;
    bool        is_big_endian;
    shard      *shards;
} bundle;

/* --- the index --- */

static const char *
keep_name(coi_tensor_file *file, const char *name, size_t n)
{
    bundle     *b = file->state;
    name_chunk *chunk = b->names;
    size_t      nbytes = n + 1 > CHUNK_BYTES ? n + 1 : CHUNK_BYTES;
    char       *to;

    if (chunk == NULL || chunk->nbytes - chunk->used < n + 1) {
        chunk = coi_alloc(file->memory, sizeof(*chunk) + nbytes);
        if (chunk == NULL)
            return NULL;
        *chunk = (name_chunk){ b->names, nbytes, 0 };
        b->names = chunk;
    }
    to = chunk->text + chunk->used;
    if (n > 0)
        memcpy(to, name, n);
    to[n] = '\0';
    chunk->used += n + 1;
    return to;
}

/* The next field; false at the end. *good becomes false for what is no message. */
static bool
next_field(coi_wire *wire, coi_wire_field *field, bool *good)
{
    if (!*good || wire->at == wire->end)
        return false;
    *good = coi_wire_next(wire, field);
    return *good;
}

/* VersionDef. */
static bool
read_version(coi_tensor_file *file, coi_wire wire)
{
    coi_wire_field f;
    bool           good = true;

    while (next_field(&wire, &f, &good)) {
        if (f.number == 1 && f.type == COI_WIRE_VARINT)
            file->info.producer = (int)f.value;
        else if (f.number == 2 && f.type == COI_WIRE_VARINT)
            ((bundle *)file->state)->min_consumer = (int64_t)f.value;
    }
    return good;
}

/* BundleHeaderProto. */
static bool
read_header(coi_tensor_file *file, coi_wire wire, co_error_info *err)
{
    bundle        *b = file->state;
    coi_wire_field f;
    bool           good = true;

    b->has_header = true;
    while (next_field(&wire, &f, &good)) {
        if (f.number == 1 && f.type == COI_WIRE_VARINT)
            b->num_shards = f.value;
        else if (f.number == 2 && f.type == COI_WIRE_VARINT)
            b->is_big_endian = f.value != 0;
        else if (f.number == 3 && f.type == COI_WIRE_BYTES)
            good = read_version(file, f.content);
    }
    if (!good || b->num_shards > MAX_SHARDS) {
        coi_tensor_file_damaged(file, err, "the header of the index cannot be understood");
        return false;
    }
    if (b->is_big_endian || b->min_consumer > 1) {
        coi_error(err, CO_UNIMPLEMENTED, "'%s': %s", file->path,
                  b->is_big_endian ? "the bundle has big-endian numbers, which are not read"
                                   : "the bundle is for newer readers than version 1");
        return false;
    }
    return true;
}

/* TensorShapeProto.Dim: its size. */
static bool
read_dim(coi_wire wire, int64_t *size)
{
    coi_wire_field f;
    bool           good = true;

    *size = 0;
    while (next_field(&wire, &f, &good))
        if (f.number == 1 && f.type == COI_WIRE_VARINT)
            *size = (int64_t)f.value;
    return good && *size >= 0;
}

static bool
read_shape(coi_tensor_file *file, coi_wire wire, int *ndim, co_error_info *err)
{
    coi_wire_field f;
    bool           good = true;
    int64_t        size;

    while (next_field(&wire, &f, &good)) {
        if (f.number == 3 && f.type == COI_WIRE_VARINT && f.value != 0) /* of unknown rank */
            return false;
        if (f.number != 2 || f.type != COI_WIRE_BYTES)
            continue;
        if (*ndim == 254 || !read_dim(f.content, &size))
            return false;
        if (!coi_tensor_file_add_number(file, size, err))
            return false;
        ++*ndim;
    }
    return good;
}

/* TensorSliceProto: begin and length of every dimension; a length that is not there is all. */
static bool
read_slice(coi_tensor_file *file, coi_wire wire, int ndim, co_error_info *err)
{
    coi_wire_field f, g;
    bool           good = true;
    int64_t        extents[2][254];
    int            n = 0;

    while (next_field(&wire, &f, &good)) {
        coi_wire extent = f.content;

        if (f.number != 1 || f.type != COI_WIRE_BYTES)
            continue;
        if (n == ndim)
            return false;
        extents[0][n] = 0;
        extents[1][n] = -1;
        while (next_field(&extent, &g, &good))
            if ((g.number == 1 || g.number == 2) && g.type == COI_WIRE_VARINT)
                extents[g.number - 1][n] = (int64_t)g.value;
        ++n;
    }
    for (int which = 0; good && n == ndim && which < 2; ++which)
        for (int d = 0; d < n; ++d)
            if (!coi_tensor_file_add_number(file, extents[which][d], err))
                return false;
    return good && n == ndim;
}

/* The slices of an entry, whose shape is known. */
static bool
read_slices(coi_tensor_file *file, coi_wire wire, coi_tensor_entry *e, co_error_info *err)
{
    coi_wire_field f;
    bool           good = true;

    e->slices_at = file->num_numbers;
    while (next_field(&wire, &f, &good)) {
        if (f.number != 7 || f.type != COI_WIRE_BYTES)
            continue;
        if (e->info.num_slices == MAX_SLICES) {
            coi_error(err, CO_UNIMPLEMENTED, "'%s', tensor '%.100s': it has more than %d slices",
                      file->path, e->info.name, MAX_SLICES);
            return false;
        }
        if (!read_slice(file, f.content, e->info.ndim, err))
            return false;
        ++e->info.num_slices;
    }
    return good;
}

static void
take_dtype(coi_tensor_entry *e, uint64_t number)
{
    bool is_known = number < sizeof(dtypes) / sizeof(dtypes[0]) && dtypes[number].name != NULL;

    e->type = is_known ? &dtypes[number] : &other_dtype;
}

/* BundleEntryProto. */
static bool
read_entry(coi_tensor_file *file, coi_wire wire, coi_tensor_entry *e, co_error_info *err)
{
    coi_wire       all = wire;
    coi_wire_field f;
    bool           good = true;

    e->type = &other_dtype;
    e->dims_at = file->num_numbers;
    while (next_field(&wire, &f, &good)) {
        if (f.number == 1 && f.type == COI_WIRE_VARINT)
            take_dtype(e, f.value);
        else if (f.number == 2 && f.type == COI_WIRE_BYTES)
            good = read_shape(file, f.content, &e->info.ndim, err);
        else if (f.number == 3 && f.type == COI_WIRE_VARINT)
            e->info.shard = f.value <= MAX_SHARDS ? (int)f.value : -1;
        else if (f.number == 4 && f.type == COI_WIRE_VARINT)
            e->info.offset = f.value;
        else if (f.number == 5 && f.type == COI_WIRE_VARINT)
            e->info.nbytes = f.value;
        else if (f.number == 6 && f.type == COI_WIRE_FIXED32 && wire.at - all.at >= 4) {
            memcpy(&e->info.crc32c, wire.at - 4, 4); /* little-endian, as the machine is */
            e->info.has_crc32c = true;
        }
    }
    return good && read_slices(file, all, e, err);
}

static bool
take_entry(void *user, const char *key, size_t key_nbytes, const unsigned char *value,
           size_t value_nbytes, co_error_info *err)
{
    coi_tensor_file  *file = user;
    coi_wire          wire = { value, value + value_nbytes };
    coi_tensor_entry *e;

    if (key_nbytes == 0)
        return read_header(file, wire, err);
    e = coi_tensor_file_add(file, err);
    if (e == NULL)
        return false;
    e->info.name = keep_name(file, key, key_nbytes);
    e->info.name_nbytes = key_nbytes;
    e->is_part = key[0] == '\0';
    if (e->info.name == NULL) {
        coi_tensor_file_no_memory(file, err);
        return false;
    }
    if (!read_entry(file, wire, e, err)) {
        coi_tensor_file_damaged(file, err, "the entry of '%.100s' cannot be understood",
                                e->is_part ? "a slice" : e->info.name);
        return false;
    }
    e->info.dtype = e->type->dtype;
    e->info.dtype_name = e->type->name;
    e->info.stored_name = e->type->stored_name;
    return true;
}

static co_code
make_shards(coi_tensor_file *file, co_error_info *err)
{
    bundle *b = file->state;

    if (!b->has_header)
        return coi_tensor_file_damaged(file, err, "the index has no header");
    b->shards = coi_calloc(file->memory, b->num_shards * sizeof(*b->shards));
    if (b->shards == NULL)
        return coi_tensor_file_no_memory(file, err);
    for (uint64_t i = 0; i < b->num_shards; ++i)
        b->shards[i].fd = -1;
    file->info.num_shards = (int)b->num_shards;
    return CO_OK;
}

static co_code
open_bundle(coi_tensor_file *file, co_error_info *err)
{
    size_t  capacity = file->path_nbytes + sizeof(".index"), nbytes;
    char   *path = coi_alloc(file->memory, capacity), *bytes = NULL;
    co_code rc;

    file->state = coi_calloc(file->memory, sizeof(bundle));
    if (path == NULL || file->state == NULL) {
        coi_free(file->memory, path, capacity);
        return coi_tensor_file_no_memory(file, err);
    }
    snprintf(path, capacity, "%s.index", file->path);
    rc = coi_read_file(file->memory, path, MAX_INDEX, &bytes, &nbytes, err);
    if (rc == CO_OK) {
        rc = coi_sstable_read(file->memory, path, (const unsigned char *)bytes, nbytes, take_entry,
                              file, err);
        coi_free(file->memory, bytes, nbytes);
    }
    coi_free(file->memory, path, capacity);
    if (rc == CO_OK)
        rc = make_shards(file, err);
    return rc == CO_OK ? coi_tensor_file_finish(file, NULL, err) : rc;
}

static void
close_bundle(coi_tensor_file *file)
{
    bundle *b = file->state;

    while (b->names != NULL) {
        name_chunk *next = b->names->next;

        coi_free(file->memory, b->names, sizeof(*b->names) + b->names->nbytes);
        b->names = next;
    }
    for (uint64_t i = 0; b->shards != NULL && i < b->num_shards; ++i)
        if (b->shards[i].fd >= 0) {
            close(b->shards[i].fd);
            coi_free(file->memory, b->shards[i].path, strlen(b->shards[i].path) + 1);
        }
    coi_free(file->memory, b->shards, b->num_shards * sizeof(*b->shards));
    coi_free(file->memory, b, sizeof(*b));
    file->state = NULL;
}

/* --- the data --- */

static co_code
open_shard(coi_tensor_file *file, int number, co_error_info *err)
{
    bundle *b = file->state;
    shard  *s = &b->shards[number];
    size_t  capacity = file->path_nbytes + 32, n;
    char   *path;
    co_code rc;

    if (s->fd >= 0)
        return CO_OK;
    path = coi_alloc(file->memory, capacity);
    if (path == NULL)
        return coi_tensor_file_no_memory(file, err);
    n = (size_t)snprintf(path, capacity, "%s.data-%05d-of-%05d", file->path, number,
                         (int)b->num_shards);
    s->path = coi_strndup(file->memory, path, n);
    coi_free(file->memory, path, capacity);
    if (s->path == NULL)
        return coi_tensor_file_no_memory(file, err);
    rc = coi_open_regular(s->path, &s->fd, &s->nbytes, err);
    if (rc != CO_OK)
        coi_free(file->memory, s->path, n + 1);
    return rc;
}

/* The size has to be that of the shape. */
static co_code
check_size(const coi_tensor_file *file, const coi_tensor_entry *e, co_error_info *err)
{
    uint64_t n = e->type->bits / 8;

    for (int d = 0; d < e->info.ndim; ++d)
        if (__builtin_mul_overflow(n, (uint64_t)e->info.dims[d], &n))
            return coi_tensor_file_damaged(file, err, "tensor '%.100s': its shape overflows",
                                           e->info.name);
    if (e->type->bits > 0 && n != e->info.nbytes)
        return coi_tensor_file_damaged(
            file, err, "tensor '%.100s': it has %llu bytes, and its shape needs %llu", e->info.name,
            (unsigned long long)e->info.nbytes, (unsigned long long)n);
    return CO_OK;
}

static co_code
locate(coi_tensor_file *file, const coi_tensor_entry *e, coi_extent *out, co_error_info *err)
{
    const bundle *b = file->state;
    const shard  *s;
    co_code       rc = check_size(file, e, err);

    if (rc != CO_OK)
        return rc;
    if (e->info.shard < 0 || (uint64_t)e->info.shard >= b->num_shards)
        return coi_tensor_file_damaged(file, err,
                                       "tensor '%.100s': it is in file %d of %llu, counted from 0",
                                       e->info.name, e->info.shard,
                                       (unsigned long long)b->num_shards);
    rc = open_shard(file, e->info.shard, err);
    if (rc != CO_OK)
        return rc;
    s = &b->shards[e->info.shard];
    if (e->info.offset > s->nbytes || e->info.nbytes > s->nbytes - e->info.offset)
        return coi_error(err, CO_DATA_LOSS,
                         "'%s', tensor '%.100s': its %llu bytes at offset %llu are not there; the "
                         "file has %llu",
                         s->path, e->info.name, (unsigned long long)e->info.nbytes,
                         (unsigned long long)e->info.offset, (unsigned long long)s->nbytes);
    *out = (coi_extent){ s->fd, s->path, e->info.offset, e->info.nbytes, s->nbytes };
    return CO_OK;
}

/* --- the keys of slices --- */

/* OrderedCode: bytes of a name, with 0 and 255 escaped, and an end that sorts before all of them.
 */
static size_t
put_ordered_name(char *to, const char *name, size_t n)
{
    char *at = to;

    for (size_t i = 0; i < n; ++i) {
        unsigned char c = (unsigned char)name[i];

        *at++ = (char)c;
        if (c == 0)
            *at++ = (char)0xff;
        else if (c == 0xff)
            *at++ = 0;
    }
    *at++ = 0;
    *at++ = 1;
    return (size_t)(at - to);
}

/* OrderedCode: the number of bytes, then the number, big-endian. */
static size_t
put_ordered_count(char *to, unsigned number)
{
    if (number == 0) {
        to[0] = 0;
        return 1;
    }
    to[0] = 1; /* less than 256 dimensions */
    to[1] = (char)number;
    return 2;
}

/*
 * OrderedCode: a signed number of n bytes has 7n - 1 bits of itself behind a head of n ones and a
 * zero, all inverted where it is negative.
 */
static size_t
put_ordered_signed(char *to, int64_t number)
{
    uint64_t      x = number < 0 ? ~(uint64_t)number : (uint64_t)number;
    unsigned      bits = 0, n;
    unsigned char bytes[10];

    for (uint64_t rest = x; rest > 0; rest >>= 1)
        ++bits;
    n = bits / 7 + 1;
    for (unsigned i = 0; i < n; ++i) { /* sign extended */
        unsigned shift = 8 * (n - 1 - i);

        bytes[i] = shift < 64 ? (unsigned char)((uint64_t)number >> shift)
                              : (unsigned char)(number < 0 ? 0xff : 0);
    }
    for (unsigned i = 0; i < n; ++i) /* the head */
        bytes[i / 8] ^= (unsigned char)(0x80 >> i % 8);
    memcpy(to, bytes, n);
    return n;
}

static const coi_tensor_entry *
part(coi_tensor_file *file, const coi_tensor_entry *e, size_t i, co_error_info *err)
{
    const int64_t          *slice = e->info.slices + i * 2 * (size_t)e->info.ndim;
    size_t                  capacity = 2 * e->info.name_nbytes + 16 + 20 * (size_t)e->info.ndim, n;
    char                   *key = coi_alloc(file->memory, capacity);
    const coi_tensor_entry *found = NULL;
    size_t                  low = file->info.num_entries, high = file->num_entries;

    if (key == NULL) {
        coi_tensor_file_no_memory(file, err);
        return NULL;
    }
    n = put_ordered_count(key, 0);
    n += put_ordered_name(key + n, e->info.name, e->info.name_nbytes);
    n += put_ordered_count(key + n, (unsigned)e->info.ndim);
    for (int d = 0; d < e->info.ndim; ++d) {
        n += put_ordered_signed(key + n, slice[d]);
        n += put_ordered_signed(key + n, slice[e->info.ndim + d]);
    }
    while (low < high && found == NULL) { /* parts are sorted by name */
        size_t                  middle = low + (high - low) / 2, least;
        const coi_tensor_entry *p = &file->entries[middle];
        int                     order;

        least = p->info.name_nbytes < n ? p->info.name_nbytes : n;
        order = memcmp(p->info.name, key, least);
        if (order == 0 && p->info.name_nbytes == n)
            found = p;
        else if (order < 0 || (order == 0 && p->info.name_nbytes < n))
            low = middle + 1;
        else
            high = middle;
    }
    coi_free(file->memory, key, capacity);
    if (found == NULL)
        coi_tensor_file_damaged(file, err, "tensor '%.100s': slice %zu of it is not in the index",
                                e->info.name, i);
    return found;
}

const coi_tensor_format coi_tensor_bundle_format = {
    .name = "tensor bundle",
    .open = open_bundle,
    .close = close_bundle,
    .locate = locate,
    .part = part,
};
