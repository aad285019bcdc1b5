/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .npz files: zip archives with an .npy in each member. Read from the directory at the end of the
 * archive, as the format wants; members that are stored, or deflated where zlib is there. Archives
 * that span disks or are encrypted are refused.
 */
#include <cohort/files.h>

#include "io/crc32.h"
#include "io/npz.h"
#include "io/options.h"

#include "config.h"

#include <string.h>

#define END_BYTES       22 /* of the record at the end of an archive, without its comment */
#define LOCATOR_BYTES   20 /* before it, where the archive is large */
#define END64_BYTES     56
#define DIRECTORY_BYTES 46 /* of an entry, without its name */
#define LOCAL_BYTES     30 /* of the head of a member, the same */

typedef coi_npz_member  member;
typedef coi_npz_archive archive;

static uint32_t
get16(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

static uint32_t
get32(const uint8_t *at)
{
    return get16(at) | get16(at + 2) << 16;
}

static uint64_t
get64(const uint8_t *at)
{
    return get32(at) | (uint64_t)get32(at + 4) << 32;
}

static co_code
refuse(co_error_info *err, const char *why)
{
    return coi_error(err, CO_VALUE_ERROR, "the archive cannot be read: %s", why);
}

/* n bytes at a place of the file, which is any number that the file gave. */
static co_code
read_at(archive *a, uint64_t offset, void *bytes, size_t n, co_error_info *err)
{
    int64_t got = -1, last = a->source.size - (int64_t)n;

    if (last >= 0 && offset <= (uint64_t)last) {
        coi_source_seek(&a->source, (int64_t)offset);
        got = coi_source_read(&a->source, bytes, n, err);
    }
    if (got == (int64_t)n)
        return CO_OK;
    if (err->code != CO_OK)
        return coi_npy_unreadable(err), err->code;
    return refuse(err, "it is cut off, or its directory points outside");
}

/* The record at the end, which a comment may follow. */
static co_code
find_end(archive *a, uint8_t end[END_BYTES], int64_t *at, co_error_info *err)
{
    for (*at = a->source.size - END_BYTES; *at >= 0 && *at >= a->source.size - END_BYTES - 65535;
         --*at) {
        if (read_at(a, (uint64_t)*at, end, END_BYTES, err) != CO_OK)
            return err->code;
        if (memcmp(end, "PK\5\6", 4) == 0)
            return CO_OK;
    }
    return refuse(err, "there is no directory at its end; is this an .npz file?");
}

/* What the end says of the directory, which must lie whole before it, at `at`. */
static co_code
take_directory(archive *a, uint64_t directory, uint64_t num_members, int64_t at, co_error_info *err)
{
    if (directory > (uint64_t)at)
        return coi_error(err, CO_VALUE_ERROR,
                         "the archive cannot be read: it claims a directory at byte %llu, and the "
                         "end of the directory is at %lld",
                         (unsigned long long)directory, (long long)at);
    if (num_members > ((uint64_t)at - directory) / DIRECTORY_BYTES)
        return coi_error(err, CO_VALUE_ERROR,
                         "the archive cannot be read: it claims %llu members, and its directory "
                         "has room for %llu",
                         (unsigned long long)num_members,
                         (unsigned long long)((uint64_t)at - directory) / DIRECTORY_BYTES);
    a->directory = (int64_t)directory;
    a->num_members = (int64_t)num_members;
    return CO_OK;
}

static co_code
find_directory(archive *a, co_error_info *err)
{
    uint8_t end[END_BYTES], locator[LOCATOR_BYTES], end64[END64_BYTES];
    int64_t at;
    co_code rc = find_end(a, end, &at, err);

    if (rc != CO_OK)
        return rc;
    if (get16(end + 10) != 0xffff && get32(end + 16) != UINT32_MAX)
        return take_directory(a, get32(end + 16), get16(end + 10), at, err);
    if (at < LOCATOR_BYTES)
        return refuse(err, "the locator of its large directory is missing");
    rc = read_at(a, (uint64_t)at - LOCATOR_BYTES, locator, LOCATOR_BYTES, err);
    if (rc == CO_OK && memcmp(locator, "PK\6\7", 4) != 0)
        rc = refuse(err, "the locator of its large directory is missing");
    if (rc == CO_OK)
        rc = read_at(a, get64(locator + 8), end64, END64_BYTES, err);
    if (rc != CO_OK)
        return rc;
    if (memcmp(end64, "PK\6\6", 4) != 0)
        return refuse(err, "its large directory is damaged");
    return take_directory(a, get64(end64 + 48), get64(end64 + 32), at, err);
}

/* Sizes of 4 GiB and more are in a field of their own. */
static void
take_large_sizes(member *m, const uint8_t *extra, size_t n)
{
    uint64_t *const large[] = { &m->size, &m->packed, &m->offset };

    while (n >= 4 && get16(extra) != 1 && get16(extra + 2) <= n - 4) {
        size_t whole = get16(extra + 2) + 4;

        extra += whole;
        n -= whole;
    }
    if (n < 4 || get16(extra + 2) > n - 4)
        return;
    n = get16(extra + 2);
    extra += 4;
    for (size_t i = 0; i < 3 && n >= 8; ++i)
        if (*large[i] == UINT32_MAX) {
            *large[i] = get64(extra);
            extra += 8;
            n -= 8;
        }
}

co_code
coi_npz_open(archive *a, coi_memory *memory, const char *path, co_error_info *err)
{
    co_code rc;

    a->memory = memory;
    rc = coi_source_open(&a->source, memory, path, CO_COMPRESSION_NONE, 4096, err);
    if (rc != CO_OK)
        return rc;
    rc = find_directory(a, err);
    if (rc != CO_OK)
        coi_source_close(&a->source);
    return rc;
}

co_code
coi_npz_next(archive *a, int64_t *at, member *m, co_error_info *err)
{
    uint8_t entry[DIRECTORY_BYTES], local[LOCAL_BYTES], extra[256];
    size_t  name, more;
    co_code rc = read_at(a, (uint64_t)*at, entry, sizeof(entry), err);

    if (rc != CO_OK)
        return rc;
    if (memcmp(entry, "PK\1\2", 4) != 0)
        return refuse(err, "its directory is damaged");
    m->flags = get16(entry + 8);
    m->method = get16(entry + 10);
    m->crc = get32(entry + 16);
    m->packed = get32(entry + 20);
    m->size = get32(entry + 24);
    m->offset = get32(entry + 42);
    name = get16(entry + 28);
    more = get16(entry + 30);
    if (name >= COI_NPZ_NAME)
        return refuse(err, "the name of a member is too long");
    rc = read_at(a, (uint64_t)*at + DIRECTORY_BYTES, m->name, name, err);
    m->name[name] = '\0';
    if (rc == CO_OK)
        rc = read_at(a, (uint64_t)*at + DIRECTORY_BYTES + name, extra,
                     more < sizeof(extra) ? more : sizeof(extra), err);
    if (rc != CO_OK)
        return rc;
    take_large_sizes(m, extra, more < sizeof(extra) ? more : sizeof(extra));
    *at += DIRECTORY_BYTES + (int64_t)(name + more + get16(entry + 32));
    rc = read_at(a, m->offset, local, sizeof(local), err);
    if (rc != CO_OK)
        return rc;
    if (memcmp(local, "PK\3\4", 4) != 0)
        return refuse(err, "the head of a member is damaged");
    /* the file holds the head, so that this cannot wrap */
    m->offset += LOCAL_BYTES + get16(local + 26) + get16(local + 28);
    if (m->offset > (uint64_t)a->source.size || m->packed > (uint64_t)a->source.size - m->offset)
        return refuse(err, "a member is larger than the file");
    /* deflate cannot do better than 1 in 1100, and to store does nothing */
    if (m->size > INT64_MAX || m->size / 1100 > m->packed)
        return refuse(err, "a member claims to be larger than it can be");
    return CO_OK;
}

/* --- the bytes of a member --- */

typedef struct stream {
    archive      *a;
    const member *m;
    int64_t       packed_left, left;
    uint32_t      crc;
    coi_inflater *inflater; /* NULL: stored */
    bool          at_end;
} stream;

static int64_t
read_packed(void *user, void *bytes, size_t n, co_error_info *err)
{
    stream *s = user;
    int64_t got;

    if ((int64_t)n > s->packed_left)
        n = (size_t)s->packed_left;
    got = n > 0 ? coi_source_read(&s->a->source, bytes, n, err) : 0;
    s->packed_left -= got > 0 ? got : 0;
    return got;
}

static int64_t
read_stream(void *user, void *bytes, size_t n, co_error_info *err)
{
    stream *s = user;
    int64_t got = -1;

    if ((int64_t)n > s->left)
        n = (size_t)s->left;
#if COI_HAVE_ZLIB
    if (s->inflater != NULL) {
        size_t count;

        if (coi_inflater_read(s->inflater, bytes, n, &count, &s->at_end, read_packed, s, err) ==
            CO_OK)
            got = (int64_t)count;
    } else
#endif
        got = read_packed(s, bytes, n, err);
    if (got < 0) {
        coi_npy_unreadable(err);
        return -1;
    }
    s->crc = coi_zip_crc32(s->crc, bytes, (size_t)got);
    s->left -= got;
    return got;
}

/* What follows the data belongs to the checksum too. */
static co_code
check_rest(stream *s, co_error_info *err)
{
    char rest[512];

    while (s->left > 0) {
        int64_t got = read_stream(s, rest, sizeof(rest), err);

        if (got < 0)
            return err->code;
        if (got == 0)
            return refuse(err, "a member is cut off");
    }
    if (s->crc != s->m->crc)
        return refuse(err, "the checksum of a member is wrong");
    return CO_OK;
}

static co_code
open_stream(stream *s, co_error_info *err)
{
    if ((s->m->flags & 1) != 0)
        return refuse(err, "a member is encrypted");
    if (s->m->method == 0)
        return s->m->size == s->m->packed ? CO_OK : refuse(err, "a stored member changes its size");
    if (s->m->method != 8)
        return refuse(err, "a member is compressed by a method other than deflate");
#if COI_HAVE_ZLIB
    return coi_inflater_open(s->a->memory, COI_STREAM_RAW, &s->inflater, err);
#else
    return coi_error(err, CO_UNIMPLEMENTED,
                     "an array is compressed, and this library was built without zlib; build it "
                     "with zlib or save with numpy.savez");
#endif
}

co_code
coi_npz_head(archive *a, const member *m, coi_npy_head *head, co_error_info *err)
{
    stream        s = { a, m, (int64_t)m->packed, (int64_t)m->size, 0, NULL, false };
    coi_npy_input input = { read_stream, &s, (int64_t)m->size };

    if (open_stream(&s, err) != CO_OK)
        return err->code;
    coi_source_seek(&a->source, (int64_t)m->offset);
    coi_npy_head_read(&input, head, err);
#if COI_HAVE_ZLIB
    coi_inflater_close(s.inflater);
#endif
    return err->code;
}

co_value *
coi_npz_read(co_context *ctx, archive *a, const member *m, co_error_info *err)
{
    stream        s = { a, m, (int64_t)m->packed, (int64_t)m->size, 0, NULL, false };
    coi_npy_input input = { read_stream, &s, (int64_t)m->size };
    coi_npy_head  head;
    co_value     *array = NULL;

    if (open_stream(&s, err) != CO_OK)
        return NULL;
    coi_source_seek(&a->source, (int64_t)m->offset);
    if (coi_npy_head_read(&input, &head, err) == CO_OK)
        array = coi_npy_data_read(ctx, &input, &head, err);
    if (array != NULL && check_rest(&s, err) != CO_OK) {
        coi_unref(&ctx->heap, array);
        array = NULL;
    }
#if COI_HAVE_ZLIB
    coi_inflater_close(s.inflater);
#endif
    return array;
}

/* --- the map --- */

void
coi_npz_cut_suffix(char *name)
{
    size_t n = strlen(name);

    if (n >= 4 && strcmp(name + n - 4, ".npy") == 0)
        name[n - 4] = '\0';
}

static co_value *
read_arrays(co_context *ctx, archive *a, co_error_info *err)
{
    coi_heap  *heap = &ctx->heap;
    int64_t    at = a->directory;
    size_t     n = (size_t)a->num_members, done = 0;
    size_t     each = sizeof(char *) + sizeof(co_value *) + COI_NPZ_NAME, nbytes = (n + 1) * each;
    char     **names = n < PTRDIFF_MAX / each ? coi_small_alloc(heap, nbytes) : NULL;
    co_value **items, *map = NULL;
    char      *text;
    member     m;

    if (names == NULL) {
        coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %zu arrays", n);
        return NULL;
    }
    items = (co_value **)(names + n + 1);
    text = (char *)(items + n + 1);
    for (; done < n && err->code == CO_OK; ++done, text += COI_NPZ_NAME) {
        if (coi_npz_next(a, &at, &m, err) != CO_OK ||
            (items[done] = coi_npz_read(ctx, a, &m, err)) == NULL)
            break;
        coi_npz_cut_suffix(m.name);
        names[done] = memcpy(text, m.name, COI_NPZ_NAME);
    }
    if (err->code == CO_OK)
        map = co_dict(ctx, (const char *const *)names, items, n);
    while (done > 0)
        coi_unref(heap, items[--done]);
    coi_small_free(heap, names, nbytes);
    return map;
}

co_value *
co_load_npz(co_context *ctx, const char *path)
{
    archive       a = { .directory = 0 };
    co_error_info err = { .code = CO_OK };
    co_value     *map = NULL;

    COI_ENTER(ctx, "load_npz", NULL);
    if (!coi_check_path(ctx, path, 2) || coi_current_device(ctx) == NULL)
        return NULL;
    if (coi_source_open(&a.source, &ctx->runtime->memory, path, CO_COMPRESSION_NONE, 4096,
                        coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    a.memory = &ctx->runtime->memory;
    if (find_directory(&a, &err) == CO_OK)
        map = read_arrays(ctx, &a, &err);
    coi_source_close(&a.source);
    if (err.code != CO_OK)
        coi_fail(ctx, err.code, "'%s': %s", path, err.message);
    return map;
}
