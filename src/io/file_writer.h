/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing whole files, without a context. Each step that can fail does so with an error of its own:
 * open, write, synchronise, close, rename, synchronise the folder. Small pieces are gathered.
 *
 *     coi_file_writer_begin(&w, memory, "a/b", replace, &err)   makes a/.b.PID-N.tmp
 *     coi_file_writer_put(&w, bytes, n, &err)                   ...
 *     coi_file_writer_commit(&w, sync, &err)                    it is a/b now
 *
 * A checkpoint of several files renames them itself: coi_file_writer_create, put, finish.
 */
#ifndef COI_IO_FILE_WRITER_H
#define COI_IO_FILE_WRITER_H

#include "base/error.h"
#include "base/memory.h"

typedef struct coi_file_writer {
    coi_memory *memory;
    char       *path;      /* of the file that is written to */
    char       *target;    /* what commit renames it to; NULL: nothing */
    int         fd;        /* -1: closed */
    bool        replace;   /* commit may replace a file */
    bool        is_device; /* a pipe or a device, written in place */
    char       *gathered;
    size_t      used;
    uint64_t    nbytes; /* so far */
} coi_file_writer;

/* Make a new file; CO_ALREADY_EXISTS if there is one. After an error there is nothing to abandon.
 */
co_code coi_file_writer_create(coi_file_writer *writer, coi_memory *memory, const char *path,
                               co_error_info *err);
/*
 * Make a file with a temporary name in the folder of `path`. A path that is a pipe or a device is
 * opened itself. CO_ALREADY_EXISTS at once if not `replace`.
 */
co_code coi_file_writer_begin(coi_file_writer *writer, coi_memory *memory, const char *path,
                              bool replace, co_error_info *err);
/* After an error of this and the following functions call abandon. */
co_code coi_file_writer_put(coi_file_writer *writer, const void *bytes, size_t n,
                            co_error_info *err);
/* Write what is gathered, synchronise if so asked, close. The file keeps its name. */
co_code coi_file_writer_finish(coi_file_writer *writer, bool sync, co_error_info *err);
/* Finish, rename to the path that begin was given, and synchronise the folder if so asked. */
co_code coi_file_writer_commit(coi_file_writer *writer, bool sync, co_error_info *err);
/* Close and remove what has not been committed, and free everything; after success, too. */
void coi_file_writer_end(coi_file_writer *writer, bool remove);

/* Rename; not `replace`: CO_ALREADY_EXISTS if the target is there. */
co_code coi_rename_file(const char *from, const char *to, bool replace, co_error_info *err);
/* Make the names in a folder last: that of the folder that holds `path`. */
co_code coi_sync_folder_of(coi_memory *memory, const char *path, co_error_info *err);

#endif
