/* SPDX-License-Identifier: Apache-2.0 */
/* Writing whole files, see file_writer.h. */
#include "io/file_writer.h"

#include "io/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GATHER        ((size_t)256 << 10)
#define MAX_NAME      180  /* of the file's own name, in a temporary one */
#define MAX_TEMPORARY 1000 /* names that are tried */

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

static void
free_text(coi_memory *memory, char *text)
{
    if (text != NULL)
        coi_free(memory, text, strlen(text) + 1);
}

static co_code
no_memory(const char *path, co_error_info *err)
{
    return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to write to '%s'", path);
}

static int
open_retrying(const char *path, int flags)
{
    int fd;

    do
        fd = open(path, flags | O_CLOEXEC | O_NOCTTY, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static void
drop_file(coi_file_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    free_text(writer->memory, writer->path);
    coi_free(writer->memory, writer->gathered, GATHER);
    writer->fd = -1;
    writer->path = writer->gathered = NULL;
}

/* After an error the writer has no file. */
static co_code
take_file(coi_file_writer *writer, const char *path, int flags, co_error_info *err)
{
    writer->path = coi_strndup(writer->memory, path, strlen(path));
    writer->gathered = coi_alloc(writer->memory, GATHER);
    if (writer->path == NULL || writer->gathered == NULL) {
        drop_file(writer);
        return no_memory(path, err);
    }
    writer->fd = open_retrying(path, flags);
    if (writer->fd < 0) {
        int number = errno;

        drop_file(writer);
        return coi_system_error(err, "make", path, number);
    }
    return CO_OK;
}

co_code
coi_file_writer_create(coi_file_writer *writer, coi_memory *memory, const char *path,
                       co_error_info *err)
{
    *writer = (coi_file_writer){ .memory = memory, .fd = -1 };
    return take_file(writer, path, O_WRONLY | O_CREAT | O_EXCL, err);
}

/* The temporary file beside the target; another name where one is taken, as by a process that
 * died. */
static co_code
make_temporary(coi_file_writer *writer, co_error_info *err)
{
    const char *slash = strrchr(writer->target, '/');
    const char *name = slash != NULL ? slash + 1 : writer->target;
    int         folder = (int)(name - writer->target);
    size_t      capacity = (size_t)folder + MAX_NAME + 64;
    char       *path = coi_alloc(writer->memory, capacity);
    co_code     rc = CO_ALREADY_EXISTS;

    if (path == NULL)
        return no_memory(writer->target, err);
    for (int i = 0; i < MAX_TEMPORARY && rc == CO_ALREADY_EXISTS; ++i) {
        coi_error_reset(err);
        snprintf(path, capacity, "%.*s.%.*s.%ld-%d.tmp", folder, writer->target, MAX_NAME, name,
                 (long)getpid(), i);
        rc = take_file(writer, path, O_WRONLY | O_CREAT | O_EXCL, err);
    }
    coi_free(writer->memory, path, capacity);
    return rc;
}

co_code
coi_file_writer_begin(coi_file_writer *writer, coi_memory *memory, const char *path, bool replace,
                      co_error_info *err)
{
    struct stat about;
    bool        is_there = stat(path, &about) == 0;
    co_code     rc;

    *writer = (coi_file_writer){ .memory = memory, .fd = -1, .replace = replace };
    if (is_there && S_ISDIR(about.st_mode))
        return coi_system_error(err, "write to", path, EISDIR);
    if (is_there && !S_ISREG(about.st_mode)) {
        writer->is_device = true;
        return take_file(writer, path, O_WRONLY, err);
    }
    if (is_there && !replace)
        return coi_system_error(err, "make", path, EEXIST);
    writer->target = coi_strndup(memory, path, strlen(path));
    if (writer->target == NULL)
        return no_memory(path, err);
    rc = make_temporary(writer, err);
    if (rc != CO_OK) {
        free_text(memory, writer->target);
        writer->target = NULL;
    }
    return rc;
}

static co_code
flush(coi_file_writer *writer, co_error_info *err)
{
    size_t n = writer->used;

    writer->used = 0;
    return n > 0 ? coi_write_all(writer->fd, writer->path, writer->gathered, n, err) : CO_OK;
}

co_code
coi_file_writer_put(coi_file_writer *writer, const void *bytes, size_t n, co_error_info *err)
{
    writer->nbytes += n;
    if (n > GATHER - writer->used && flush(writer, err) != CO_OK)
        return err->code;
    if (n > GATHER)
        return coi_write_all(writer->fd, writer->path, bytes, n, err);
    if (n > 0)
        memcpy(writer->gathered + writer->used, bytes, n);
    writer->used += n;
    return CO_OK;
}

co_code
coi_file_writer_finish(coi_file_writer *writer, bool sync, co_error_info *err)
{
    int fd = writer->fd;

    if (flush(writer, err) != CO_OK)
        return err->code;
    /* pipes and devices have nothing to synchronise */
    if (sync && !writer->is_device && fsync(fd) != 0)
        return coi_system_error(err, "synchronise", writer->path, errno);
    writer->fd = -1;
    if (close(fd) != 0 && errno != EINTR) /* network file systems report lost writes here */
        return coi_system_error(err, "close", writer->path, errno);
    return CO_OK;
}

co_code
coi_file_writer_commit(coi_file_writer *writer, bool sync, co_error_info *err)
{
    co_code rc = coi_file_writer_finish(writer, sync, err);

    if (rc != CO_OK || writer->target == NULL)
        return rc;
    rc = coi_rename_file(writer->path, writer->target, writer->replace, err);
    if (rc != CO_OK)
        return rc;
    free_text(writer->memory, writer->path);
    writer->path = NULL;
    return sync ? coi_sync_folder_of(writer->memory, writer->target, err) : CO_OK;
}

void
coi_file_writer_end(coi_file_writer *writer, bool remove)
{
    if (remove && writer->path != NULL && !writer->is_device)
        unlink(writer->path);
    drop_file(writer);
    free_text(writer->memory, writer->target);
    writer->target = NULL;
}

co_code
coi_rename_file(const char *from, const char *to, bool replace, co_error_info *err)
{
    if (replace)
        return rename(from, to) == 0 ? CO_OK : coi_system_error(err, "rename a file to", to, errno);
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return CO_OK;
    if (errno != EINVAL && errno != ENOSYS)
        return coi_system_error(err, "rename a file to", to, errno);
    /* a file system without that call: a second name, which is never taken from another file */
    if (link(from, to) != 0)
        return coi_system_error(err, "rename a file to", to, errno);
    unlink(from);
    return CO_OK;
}

co_code
coi_sync_folder_of(coi_memory *memory, const char *path, co_error_info *err)
{
    const char *slash = strrchr(path, '/');
    size_t      n = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);
    char       *folder = coi_strndup(memory, slash == NULL ? "." : path, n);
    co_code     rc = CO_OK;
    int         fd;

    if (folder == NULL)
        return no_memory(path, err);
    fd = open_retrying(folder, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        rc = coi_system_error(err, "open", folder, errno);
    /* some file systems cannot synchronise folders, and say so with EINVAL */
    else if (fsync(fd) != 0 && errno != EINVAL)
        rc = coi_system_error(err, "synchronise", folder, errno);
    if (fd >= 0)
        close(fd);
    coi_free(memory, folder, n + 1);
    return rc;
}
