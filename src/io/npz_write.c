/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing .npz archives: members that are stored, each an .npy of version 1.0 whose data begin at a
 * multiple of 64 bytes from its begin, as NumPy writes them. Sizes and places of 4 GiB and more
 * are in fields of their own.
 */
#include "io/tensor_file.h"

#include "io/crc32.h"
#include "io/crc32c.h"
#include "io/file_writer.h"

#include <stdio.h>
#include <string.h>

#define HEAD_BYTES  512 /* room for the head of an array of 8 dimensions */
#define PIECE_BYTES ((size_t)64 << 10)
#define DATE        0x21 /* 1 January 1980, the first there is: the same tensors, the same file */
#define UTF8_FLAG   0x800
#define MAX_NAME    500 /* readers take longer ones for damage */

static const char *const descrs[CO_NUM_DTYPES] = {
    [CO_BOOL] = "|b1",    [CO_INT8] = "|i1",    [CO_INT16] = "<i2",    [CO_INT32] = "<i4",
    [CO_INT64] = "<i8",   [CO_UINT8] = "|u1",   [CO_UINT16] = "<u2",   [CO_UINT32] = "<u4",
    [CO_UINT64] = "<u8",  [CO_FLOAT16] = "<f2", [CO_BFLOAT16] = "<f4", [CO_FLOAT32] = "<f4",
    [CO_FLOAT64] = "<f8",
};

typedef struct member {
    char     head[HEAD_BYTES]; /* of the array */
    size_t   head_nbytes;
    uint64_t nbytes; /* of head and data */
    uint32_t crc;
} member;

typedef struct bytes_out { /* of heads of the archive */
    uint8_t data[128];
    size_t  n;
} bytes_out;

static void
put(bytes_out *out, uint64_t number, int nbytes)
{
    for (int i = 0; i < nbytes; ++i)
        out->data[out->n++] = (uint8_t)(number >> 8 * i);
}

/* --- an array --- */

static void
make_head(const coi_tensor_source *s, member *m)
{
    char  *text = m->head + 10;
    size_t room = HEAD_BYTES - 10, n;

    memcpy(m->head, "\x93NUMPY\x01\0", 8);
    n = (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                         descrs[s->dtype]);
    for (int d = 0; d < s->ndim; ++d)
        n += (size_t)snprintf(text + n, room - n, "%s%lld%s", d > 0 ? " " : "",
                              (long long)s->dims[d], d + 1 < s->ndim || s->ndim == 1 ? "," : "");
    n += (size_t)snprintf(text + n, room - n, "), }");
    while ((10 + n + 1) % 64 != 0)
        text[n++] = ' ';
    text[n++] = '\n';
    m->head[8] = (char)n;
    m->head[9] = (char)(n >> 8);
    m->head_nbytes = 10 + n;
}

/* The data as the archive has them, piece by piece. */
static co_code
each_piece(const coi_tensor_source *s,
           co_code (*fn)(void *user, const void *bytes, size_t n, co_error_info *err), void *user,
           co_error_info *err)
{
    float       floats[PIECE_BYTES / sizeof(float) / 16];
    const char *bytes = s->data;
    uint64_t    piece = s->dtype == CO_BFLOAT16 ? sizeof(floats) / 2 : PIECE_BYTES;

    for (uint64_t done = 0; done < s->nbytes; done += piece) {
        size_t  n = (size_t)(s->nbytes - done < piece ? s->nbytes - done : piece);
        co_code rc;

        if (s->dtype == CO_BFLOAT16) {
            coi_convert(CO_BFLOAT16, bytes + done, CO_FLOAT32, floats, (int64_t)(n / 2));
            rc = fn(user, floats, 2 * n, err);
        } else {
            rc = fn(user, bytes + done, n, err);
        }
        if (rc != CO_OK)
            return rc;
    }
    return CO_OK;
}

static co_code
sum_piece(void *user, const void *bytes, size_t n, co_error_info *err)
{
    uint32_t *crc = user;

    (void)err;
    *crc = coi_zip_crc32(*crc, bytes, n);
    return CO_OK;
}

static co_code
write_piece(void *user, const void *bytes, size_t n, co_error_info *err)
{
    return coi_file_writer_put(user, bytes, n, err);
}

/* --- the archive --- */

static bool
is_large(uint64_t number)
{
    return number >= UINT32_MAX;
}

/* What the heads before a member and in the directory have in common. */
static void
put_common(bytes_out *out, const coi_tensor_source *s, const member *m, bool is_central)
{
    bool     large = is_large(m->nbytes);
    unsigned flags = 0;

    for (size_t i = 0; i < s->name_nbytes; ++i)
        if ((unsigned char)s->name[i] >= 0x80)
            flags = UTF8_FLAG;
    put(out, large || (is_central && is_large(s->offset)) ? 45 : 20, 2);
    put(out, flags, 2);
    put(out, 0, 2); /* stored */
    put(out, 0, 2); /* midnight */
    put(out, DATE, 2);
    put(out, m->crc, 4);
    put(out, large ? UINT32_MAX : m->nbytes, 4);
    put(out, large ? UINT32_MAX : m->nbytes, 4);
    put(out, s->name_nbytes + 4, 2);
}

static co_code
put_named(coi_file_writer *writer, const bytes_out *head, const coi_tensor_source *s,
          const bytes_out *extra, co_error_info *err)
{
    if (coi_file_writer_put(writer, head->data, head->n, err) == CO_OK &&
        coi_file_writer_put(writer, s->name, s->name_nbytes, err) == CO_OK &&
        coi_file_writer_put(writer, ".npy", 4, err) == CO_OK)
        coi_file_writer_put(writer, extra->data, extra->n, err);
    return err->code;
}

static co_code
write_member(coi_file_writer *writer, coi_tensor_source *s, member *m, co_error_info *err)
{
    bytes_out head = { .n = 0 }, extra = { .n = 0 };

    make_head(s, m);
    m->nbytes = m->head_nbytes + (s->dtype == CO_BFLOAT16 ? 2 : 1) * s->nbytes;
    m->crc = coi_zip_crc32(0, m->head, m->head_nbytes);
    each_piece(s, sum_piece, &m->crc, err);
    s->crc = coi_crc32c(s->data, (size_t)s->nbytes);
    s->offset = writer->nbytes;
    if (is_large(m->nbytes)) {
        put(&extra, 1, 2);
        put(&extra, 16, 2);
        put(&extra, m->nbytes, 8);
        put(&extra, m->nbytes, 8);
    }
    put(&head, 0x04034b50, 4);
    put_common(&head, s, m, false);
    put(&head, extra.n, 2);
    if (put_named(writer, &head, s, &extra, err) != CO_OK ||
        coi_file_writer_put(writer, m->head, m->head_nbytes, err) != CO_OK)
        return err->code;
    return each_piece(s, write_piece, writer, err);
}

static co_code
write_entry(coi_file_writer *writer, const coi_tensor_source *s, const member *m,
            co_error_info *err)
{
    bytes_out head = { .n = 0 }, extra = { .n = 0 };

    if (is_large(m->nbytes) || is_large(s->offset)) {
        put(&extra, 1, 2);
        put(&extra, (is_large(m->nbytes) ? 16u : 0u) + (is_large(s->offset) ? 8u : 0u), 2);
        if (is_large(m->nbytes)) {
            put(&extra, m->nbytes, 8);
            put(&extra, m->nbytes, 8);
        }
        if (is_large(s->offset))
            put(&extra, s->offset, 8);
    }
    put(&head, 0x02014b50, 4);
    put(&head, 45 | 3 << 8, 2); /* written on Unix */
    put_common(&head, s, m, true);
    put(&head, extra.n, 2);
    put(&head, 0, 2); /* comment */
    put(&head, 0, 2); /* disk */
    put(&head, 0, 2);
    put(&head, (uint64_t)0100644 << 16, 4); /* a file that all may read */
    put(&head, is_large(s->offset) ? UINT32_MAX : s->offset, 4);
    return put_named(writer, &head, s, &extra, err);
}

static co_code
write_end(coi_file_writer *writer, size_t n, uint64_t directory, co_error_info *err)
{
    bytes_out end = { .n = 0 };
    uint64_t  at = writer->nbytes, nbytes = at - directory;

    if (n >= 0xffff || is_large(directory) || is_large(nbytes)) {
        put(&end, 0x06064b50, 4);
        put(&end, 44, 8); /* what follows of this record */
        put(&end, 45 | 3 << 8, 2);
        put(&end, 45, 2);
        put(&end, 0, 4);
        put(&end, 0, 4);
        put(&end, n, 8);
        put(&end, n, 8);
        put(&end, nbytes, 8);
        put(&end, directory, 8);
        put(&end, 0x07064b50, 4);
        put(&end, 0, 4);
        put(&end, at, 8);
        put(&end, 1, 4);
    }
    put(&end, 0x06054b50, 4);
    put(&end, 0, 4);
    put(&end, n >= 0xffff ? 0xffff : n, 2);
    put(&end, n >= 0xffff ? 0xffff : n, 2);
    put(&end, is_large(nbytes) ? UINT32_MAX : nbytes, 4);
    put(&end, is_large(directory) ? UINT32_MAX : directory, 4);
    put(&end, 0, 2);
    return coi_file_writer_put(writer, end.data, end.n, err);
}

static co_code
check_sources(const coi_tensor_source *sources, size_t n, co_error_info *err)
{
    for (size_t i = 0; i < n; ++i) {
        if (descrs[sources[i].dtype] == NULL)
            return coi_error(err, CO_TYPE_ERROR,
                             "tensor '%.100s' is of %s, which is not written to .npz archives",
                             sources[i].name, co_dtype_name(sources[i].dtype));
        if (sources[i].name_nbytes > MAX_NAME)
            return coi_error(err, CO_INVALID_ARGUMENT,
                             "the name '%.100s...' has %zu bytes; names in .npz archives have at "
                             "most %d here",
                             sources[i].name, sources[i].name_nbytes, MAX_NAME);
    }
    return CO_OK;
}

co_code
coi_npz_write(coi_file_writer *writer, coi_tensor_source *sources, size_t n, co_error_info *err)
{
    member  *members;
    uint64_t directory;

    if (check_sources(sources, n, err) != CO_OK)
        return err->code;
    members = coi_alloc(writer->memory, n * sizeof(*members));
    if (members == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to write %zu arrays", n);
    for (size_t i = 0; i < n && err->code == CO_OK; ++i)
        write_member(writer, &sources[i], &members[i], err);
    directory = writer->nbytes;
    for (size_t i = 0; i < n && err->code == CO_OK; ++i)
        write_entry(writer, &sources[i], &members[i], err);
    if (err->code == CO_OK)
        write_end(writer, n, directory, err);
    coi_free(writer->memory, members, n * sizeof(*members));
    return err->code;
}
