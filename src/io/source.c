/* SPDX-License-Identifier: Apache-2.0 */
/* Reading files in order, see source.h; and what all that touches files shares. Decompression is in
 * zlib/. */
#include "io/source.h"

#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_MAX ((size_t)1 << 30) /* one call of the system hands out no more than about 2 GiB */

co_code
coi_system_error(co_error_info *err, const char *what, const char *path, int number)
{
    static const struct {
        int     number;
        co_code code;
    } codes[] = {
        { ENOENT, CO_NOT_FOUND },          { ENOTDIR, CO_NOT_FOUND },
        { EACCES, CO_PERMISSION_DENIED },  { EPERM, CO_PERMISSION_DENIED },
        { EROFS, CO_PERMISSION_DENIED },   { EISDIR, CO_INVALID_ARGUMENT },
        { ENOSPC, CO_RESOURCE_EXHAUSTED }, { EDQUOT, CO_RESOURCE_EXHAUSTED },
        { EMFILE, CO_RESOURCE_EXHAUSTED }, { ENFILE, CO_RESOURCE_EXHAUSTED },
        { ENOMEM, CO_RESOURCE_EXHAUSTED }, { ENAMETOOLONG, CO_INVALID_ARGUMENT },
        { EEXIST, CO_ALREADY_EXISTS },     { EFBIG, CO_RESOURCE_EXHAUSTED },
    };
    co_code code = CO_UNKNOWN;
    char    text[80];

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); ++i)
        if (codes[i].number == number)
            code = codes[i].code;
    return coi_error(err, code, "cannot %s '%s': %s (errno %d)", what, path,
                     strerror_r(number, text, sizeof(text)), number);
}

co_code
coi_write_all(int fd, const char *path, const void *bytes, size_t nbytes, co_error_info *err)
{
    const char *at = bytes;

    while (nbytes > 0) {
        ssize_t n = write(fd, at, nbytes < READ_MAX ? nbytes : READ_MAX);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) /* nothing was written, and no reason given: no disk does that for long */
            return coi_system_error(err, "write to", path, n < 0 ? errno : ENOSPC);
        at += n;
        nbytes -= (size_t)n;
    }
    return CO_OK;
}

/* Up to n bytes of the file itself. */
static int64_t
read_file(void *user, void *bytes, size_t n, co_error_info *err)
{
    coi_source *source = user;
    ssize_t     got;

    n = n < READ_MAX ? n : READ_MAX;
    do
        got = source->is_regular ? pread(source->fd, bytes, n, source->offset)
                                 : read(source->fd, bytes, n);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        coi_system_error(err, "read", source->path, errno);
        return -1;
    }
    if (got == 0 && n > 0 && source->offset < source->size) {
        coi_error(err, CO_DATA_LOSS,
                  "'%s' has shrunk from %lld to at most %lld bytes while it was read", source->path,
                  (long long)source->size, (long long)source->offset);
        return -1;
    }
    source->offset += got;
    return got;
}

/* Up to n bytes of what the file stands for. 0 at the end. */
static int64_t
read_some(coi_source *source, void *bytes, size_t n, co_error_info *err)
{
#if COI_HAVE_ZLIB
    size_t got;

    if (source->inflater != NULL) {
        if (source->at_end)
            return 0;
        if (source->failure.code == CO_OK)
            coi_inflater_read(source->inflater, bytes, n, &got, &source->at_end, read_file, source,
                              &source->failure);
        else
            got = 0;
        if (got > 0 || source->failure.code == CO_OK)
            return (int64_t)got;
        coi_error(err, source->failure.code, "%s", source->failure.message);
        return -1;
    }
#endif
    return read_file(source, bytes, n, err);
}

static co_code
open_inflater(coi_source *source, co_compression compression, co_error_info *err)
{
    if (compression == CO_COMPRESSION_NONE)
        return CO_OK;
#if COI_HAVE_ZLIB
    return coi_inflater_open(source->memory,
                             compression == CO_COMPRESSION_GZIP ? COI_STREAM_GZIP : COI_STREAM_ZLIB,
                             &source->inflater, err);
#else
    return coi_error(err, CO_UNIMPLEMENTED,
                     "'%s' is to be decompressed, and this library was built without zlib; build "
                     "it with zlib or decompress the file first",
                     source->path);
#endif
}

co_code
coi_source_open(coi_source *source, coi_memory *memory, const char *path,
                co_compression compression, size_t window_bytes, co_error_info *err)
{
    struct stat about;
    co_code     rc;

    *source = (coi_source){ .memory = memory, .path = path, .size = -1 };
    source->capacity = window_bytes > 0 ? window_bytes : COI_SOURCE_WINDOW;
    do
        source->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    while (source->fd < 0 && errno == EINTR);
    if (source->fd < 0)
        return coi_system_error(err, "open", path, errno);
    if (fstat(source->fd, &about) != 0)
        rc = coi_system_error(err, "look at", path, errno);
    else if (S_ISDIR(about.st_mode))
        rc = coi_system_error(err, "read", path, EISDIR);
    else
        rc = open_inflater(source, compression, err);
    if (rc != CO_OK) {
        close(source->fd);
        source->fd = -1;
        return rc;
    }
    source->is_regular = S_ISREG(about.st_mode);
    if (source->is_regular)
        source->size = about.st_size;
    return CO_OK;
}

void
coi_source_close(coi_source *source)
{
    if (source->memory == NULL || source->fd < 0)
        return;
    close(source->fd);
    source->fd = -1;
#if COI_HAVE_ZLIB
    coi_inflater_close(source->inflater);
#endif
    coi_free(source->memory, source->window, source->capacity);
    source->window = NULL;
}

static bool
make_window(coi_source *source, co_error_info *err)
{
    if (source->window == NULL)
        source->window = coi_alloc(source->memory, source->capacity);
    if (source->window == NULL)
        coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %zu bytes read ahead of '%s'",
                  source->capacity, source->path);
    return source->window != NULL;
}

/* Bytes of the window, which is filled when it is empty. 0 at the end. */
static int64_t
read_window(coi_source *source, char *bytes, size_t n, co_error_info *err)
{
    if (source->begin == source->end) {
        int64_t got = make_window(source, err)
                          ? read_some(source, source->window, source->capacity, err)
                          : -1;

        source->begin = 0;
        source->end = got > 0 ? (size_t)got : 0;
        if (got <= 0)
            return got;
    }
    n = n < source->end - source->begin ? n : source->end - source->begin;
    memcpy(bytes, source->window + source->begin, n);
    source->begin += n;
    return (int64_t)n;
}

int64_t
coi_source_read(coi_source *source, void *bytes, size_t n, co_error_info *err)
{
    co_error_info late = { .code = CO_OK }; /* what the next call will find again */
    char         *at = bytes;
    size_t        done = 0;

    while (done < n) {
        bool           direct = source->begin == source->end && n - done >= source->capacity / 8;
        co_error_info *now = done > 0 ? &late : err;
        int64_t        got;

        if (direct) /* nothing of the window is before what comes now */
            source->begin = source->end = 0;
        got = direct ? read_some(source, at + done, n - done, now)
                     : read_window(source, at + done, n - done, now);

        if (got < 0 && done == 0)
            return -1;
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

co_code
coi_source_unread(coi_source *source, const void *bytes, size_t n, co_error_info *err)
{
    size_t left = source->end - source->begin;
    char  *larger;

    if (n <= source->begin) { /* they are still there */
        source->begin -= n;
        return CO_OK;
    }
    if (left == 0 && source->inflater == NULL && source->is_regular) {
        source->offset -= (int64_t)n;
        source->begin = source->end = 0;
        return CO_OK;
    }
    if (!make_window(source, err))
        return err->code;
    if (n + left > source->capacity) {
        larger = coi_alloc(source->memory, n + left);
        if (larger == NULL)
            return coi_error(err, CO_RESOURCE_EXHAUSTED,
                             "no memory for %zu bytes read ahead of '%s'", n + left, source->path);
        memcpy(larger + n, source->window + source->begin, left);
        coi_free(source->memory, source->window, source->capacity);
        source->window = larger;
        source->capacity = n + left;
    } else {
        memmove(source->window + n, source->window + source->begin, left);
    }
    memcpy(source->window, bytes, n);
    source->begin = 0;
    source->end = n + left;
    return CO_OK;
}
