/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a file in order, plain or decompressed, without a context. Small reads are served from a
 * window that is filled by large ones; large reads go straight to where they are wanted. Regular
 * files are read with pread and never mapped: a file that shrinks meanwhile is an error, not a
 * signal.
 */
#ifndef COI_IO_SOURCE_H
#define COI_IO_SOURCE_H

#include <cohort/files.h>

#include "base/error.h"
#include "base/memory.h"

#define COI_SOURCE_WINDOW ((size_t)256 << 10)

typedef struct coi_inflater coi_inflater;

typedef struct coi_source {
    coi_memory   *memory;
    const char   *path; /* borrowed */
    int           fd;
    bool          is_regular;
    bool          at_end;     /* of the file, or of the compressed stream */
    int64_t       size;       /* of the file when it was opened; -1: not known */
    int64_t       offset;     /* of the next byte of the file */
    coi_inflater *inflater;   /* NULL: plain */
    co_error_info failure;    /* found after bytes that are still to be read */
    char         *window;     /* made at first need */
    size_t        begin, end; /* what is unread of it */
    size_t        capacity;
} coi_source;

/* CO_NOT_FOUND, CO_PERMISSION_DENIED, CO_INVALID_ARGUMENT, CO_UNIMPLEMENTED, CO_RESOURCE_EXHAUSTED.
 * Nothing to close then. */
co_code coi_source_open(coi_source *source, coi_memory *memory, const char *path,
                        co_compression compression, size_t window_bytes, co_error_info *err);
void    coi_source_close(coi_source *source);
/* The next n bytes, fewer at the end and before damage; -1 with an error, when there is nothing
 * before it. */
int64_t coi_source_read(coi_source *source, void *bytes, size_t n, co_error_info *err);
/* Give back the last n bytes that were read. CO_RESOURCE_EXHAUSTED. */
co_code coi_source_unread(coi_source *source, const void *bytes, size_t n, co_error_info *err);

/* Go on reading at that place of a plain regular file. */
static inline void
coi_source_seek(coi_source *source, int64_t offset)
{
    source->offset = offset;
    source->begin = source->end = 0;
}

/* The error of a system call on a file: "cannot open 'a': No such file or directory (errno 2)". */
co_code coi_system_error(co_error_info *err, const char *what, const char *path, int number);
/* Write all of it. */
co_code coi_write_all(int fd, const char *path, const void *bytes, size_t nbytes,
                      co_error_info *err);

/*
 * zlib/zlib.c, with zlib alone. Raw is the stream without a head that zip archives hold.
 */
typedef enum coi_stream_format {
    COI_STREAM_GZIP,
    COI_STREAM_ZLIB,
    COI_STREAM_RAW
} coi_stream_format;

/* The checksum of zip archives, of bytes that follow those of `crc` (0 at first). */
uint32_t coi_crc32(uint32_t crc, const void *bytes, size_t nbytes);

co_code coi_inflater_open(coi_memory *memory, coi_stream_format format, coi_inflater **out,
                          co_error_info *err);
void    coi_inflater_close(coi_inflater *inflater);
/*
 * Decompress up to n bytes; *got says how many. `refill` reads more compressed bytes: how many, 0
 * at the end, -1 with an error. CO_DATA_LOSS, after what could be decompressed, for damage; *at_end
 * when the stream has come to its end.
 */
typedef int64_t (*coi_refill_fn)(void *user, void *bytes, size_t n, co_error_info *err);
co_code coi_inflater_read(coi_inflater *inflater, void *bytes, size_t n, size_t *got, bool *at_end,
                          coi_refill_fn refill, void *user, co_error_info *err);

typedef struct coi_deflater coi_deflater;
co_code coi_deflater_open(coi_memory *memory, coi_stream_format format, coi_deflater **out,
                          co_error_info *err);
void    coi_deflater_close(coi_deflater *deflater);
/* Compress and hand on what is ready; with `finish`, all. */
typedef co_code (*coi_sink_fn)(void *user, const void *bytes, size_t n, co_error_info *err);
co_code coi_deflater_write(coi_deflater *deflater, const void *bytes, size_t n, bool finish,
                           coi_sink_fn sink, void *user, co_error_info *err);

#endif
