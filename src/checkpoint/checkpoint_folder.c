/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of checkpoints. Only who has locked its file `lock` changes anything in it. The kernel
 * gives the lock back when the process ends, however it does.
 */
#include "checkpoint/checkpoint.h"

#include "base/text.h"
#include "io/file_writer.h"
#include "io/source.h"
#include "io/tensor_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX      "index"
#define LOCK       "lock"
#define MOST_INDEX ((uint64_t)64 << 20) /* bytes: half a million checkpoints */

char *
coi_folder_path(const coi_checkpoint_folder *folder, const char *name, size_t *nbytes)
{
    char *path;

    *nbytes = folder->path_bytes + 1 + strlen(name);
    path = coi_alloc(folder->memory, *nbytes);
    if (path != NULL)
        snprintf(path, *nbytes, "%s/%s", folder->path, name);
    return path;
}

static co_code
no_memory(co_error_info *err)
{
    return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for a folder of checkpoints");
}

/* --- the lock --- */

/* Who has it, as that program wrote there. */
static void
read_owner(int fd, char *out, size_t capacity)
{
    ssize_t n = pread(fd, out, capacity - 1, 0);

    out[n > 0 ? n : 0] = '\0';
    out[strspn(out, "0123456789")] = '\0';
}

static co_code
fail_locked(const coi_checkpoint_folder *folder, co_error_info *err)
{
    char owner[24];

    read_owner(folder->lock, owner, sizeof(owner));
    return coi_error(err, CO_FAILED_PRECONDITION,
                     "process %s writes checkpoints to '%s' already; give this program another "
                     "folder, or set is_reader if it only reads",
                     owner[0] != '\0' ? owner : "of another host", folder->path);
}

static co_code
take_lock(coi_checkpoint_folder *folder, co_error_info *err)
{
    size_t  nbytes;
    char   *path = coi_folder_path(folder, LOCK, &nbytes), owner[24];
    co_code rc = CO_OK;
    int     n;

    if (path == NULL)
        return no_memory(err);
    do
        folder->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0666);
    while (folder->lock < 0 && errno == EINTR);
    if (folder->lock < 0) {
        rc = coi_system_error(err, "lock", path, errno);
    } else if (flock(folder->lock, LOCK_EX | LOCK_NB) != 0) {
        rc = errno == EWOULDBLOCK ? fail_locked(folder, err)
                                  : coi_system_error(err, "lock", path, errno);
        close(folder->lock);
        folder->lock = -1;
    } else {
        n = snprintf(owner, sizeof(owner), "%lld\n", (long long)getpid());
        /* For people alone. */
        if (ftruncate(folder->lock, 0) == 0 && pwrite(folder->lock, owner, (size_t)n, 0) != n)
            coi_log_line(folder->log, CO_LOG_INFO, "the owner of '%s' is not written", path);
    }
    coi_free(folder->memory, path, nbytes);
    return rc;
}

/* --- what is there --- */

/* Whether a file is one that a killed program was writing, a checkpoint or the index. */
static bool
is_leftover(const char *name)
{
    size_t n = strlen(name);

    return (strncmp(name, ".step-", 6) == 0 || strncmp(name, "." INDEX ".", 7) == 0) &&
           strcmp(name + n - 4, ".tmp") == 0;
}

/* Of a name: a checkpoint goes into `found`; the owner removes what a killed program left behind.
 */
static co_code
look_at(coi_checkpoint_folder *folder, const char *name, coi_checkpoint_index *found,
        co_error_info *err)
{
    coi_saved   saved = { coi_step_of_name(name), 0, (double)NAN };
    struct stat about;
    size_t      nbytes;
    char       *path;

    if (saved.step < 0 && !is_leftover(name))
        return CO_OK;
    path = coi_folder_path(folder, name, &nbytes);
    if (path == NULL)
        return no_memory(err);
    if (saved.step < 0 && folder->lock >= 0)
        unlink(path);
    else if (saved.step >= 0 && stat(path, &about) == 0 && S_ISREG(about.st_mode)) {
        saved.nbytes = (uint64_t)about.st_size;
        if (!coi_index_put(found, &saved))
            no_memory(err);
    }
    coi_free(folder->memory, path, nbytes);
    return err->code;
}

static co_code
scan(coi_checkpoint_folder *folder, coi_checkpoint_index *found, co_error_info *err)
{
    DIR           *names = opendir(folder->path);
    struct dirent *name;

    if (names == NULL && errno == ENOENT && folder->is_other)
        return CO_OK; /* the first process is about to make it */
    if (names == NULL)
        return coi_system_error(err, "read the folder", folder->path, errno);
    while (err->code == CO_OK && (name = readdir(names)) != NULL)
        look_at(folder, name->d_name, found, err);
    closedir(names);
    return err->code;
}

/* The index as it is written; empty, with a line of the log, where it cannot be read. Without
 * memory it is an error: it would be written again without the values. */
static co_code
read_index(coi_checkpoint_folder *folder, coi_checkpoint_index *index, co_error_info *out)
{
    size_t        path_bytes, nbytes = 0;
    char         *path = coi_folder_path(folder, INDEX, &path_bytes), *text = NULL;
    co_error_info err;

    coi_error_reset(&err);
    if (path == NULL)
        return no_memory(out);
    if (coi_read_file(folder->memory, path, MOST_INDEX, &text, &nbytes, &err) == CO_OK)
        coi_index_parse(index, text, nbytes, &err);
    if (err.code == CO_RESOURCE_EXHAUSTED)
        no_memory(out);
    else if (err.code != CO_OK && err.code != CO_NOT_FOUND)
        coi_log_line(folder->log, CO_LOG_WARNING,
                     "the index of '%s' is made again from the files there, and values for "
                     "keep_best are lost: %s",
                     folder->path, err.message);
    coi_free(folder->memory, text, nbytes);
    coi_free(folder->memory, path, path_bytes);
    return out->code;
}

co_code
coi_folder_look(coi_checkpoint_folder *folder, co_error_info *err)
{
    coi_checkpoint_index found = { folder->memory, NULL, 0, 0 };
    coi_checkpoint_index written = { folder->memory, NULL, 0, 0 };

    coi_error_reset(err);
    if (scan(folder, &found, err) == CO_OK && read_index(folder, &written, err) == CO_OK) {
        for (size_t i = 0; i < found.n; ++i) {
            const coi_saved *known = coi_index_find(&written, found.at[i].step);

            if (known != NULL)
                found.at[i].value = known->value;
        }
        coi_index_free(&folder->index);
        folder->index = found;
    } else {
        coi_index_free(&found);
    }
    coi_index_free(&written);
    return err->code;
}

/* --- opening and closing --- */

static co_code
make_folder(const char *path, co_error_info *err)
{
    struct stat about;

    if (mkdir(path, 0777) == 0)
        return CO_OK;
    if (errno != EEXIST)
        return coi_system_error(err, "make the folder", path, errno);
    if (stat(path, &about) != 0)
        return coi_system_error(err, "look at", path, errno);
    return S_ISDIR(about.st_mode) ? CO_OK
                                  : coi_error(err, CO_INVALID_ARGUMENT, "'%s' is no folder", path);
}

/* Every folder of the path that is not there yet. */
static co_code
make_folders(coi_checkpoint_folder *folder, co_error_info *err)
{
    for (char *at = folder->path + 1; *at != '\0'; ++at) {
        bool is_made;

        if (*at != '/')
            continue;
        *at = '\0';
        is_made = mkdir(folder->path, 0777) == 0 || errno == EEXIST;
        if (!is_made)
            coi_system_error(err, "make the folder", folder->path, errno);
        *at = '/';
        if (!is_made)
            return err->code;
    }
    return make_folder(folder->path, err);
}

co_code
coi_folder_open(coi_checkpoint_folder *folder, const char *path, co_error_info *err)
{
    coi_error_reset(err);
    folder->lock = -1;
    folder->index.memory = folder->memory;
    folder->path_bytes = strlen(path) + 1;
    folder->path = coi_strndup(folder->memory, path, folder->path_bytes - 1);
    if (folder->path == NULL)
        return no_memory(err);
    if (!folder->options.is_reader && !folder->is_other &&
        (make_folders(folder, err) != CO_OK || take_lock(folder, err) != CO_OK))
        return err->code;
    return coi_folder_look(folder, err);
}

void
coi_folder_close(coi_checkpoint_folder *folder)
{
    if (folder->lock >= 0)
        close(folder->lock);
    folder->lock = -1;
    coi_index_free(&folder->index);
    coi_free(folder->memory, folder->path, folder->path_bytes);
    folder->path = NULL;
}

/* --- changing it --- */

co_code
coi_folder_begin(coi_checkpoint_folder *folder, const char *path, coi_file_writer *writer,
                 co_error_info *err)
{
    struct stat about;

    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        return coi_error(err, CO_ALREADY_EXISTS,
                         "'%s' is there and is no regular file; move it away", path);
    return coi_file_writer_begin(writer, folder->memory, path, true, err);
}

static co_code
write_index(coi_checkpoint_folder *folder, co_error_info *err)
{
    coi_file_writer writer;
    size_t          path_bytes, nbytes = 0;
    char           *path = coi_folder_path(folder, INDEX, &path_bytes);
    char           *text = coi_index_text(&folder->index, &nbytes);

    if (path == NULL || text == NULL) {
        no_memory(err);
    } else if (coi_folder_begin(folder, path, &writer, err) == CO_OK) {
        if (coi_file_writer_put(&writer, text, nbytes, err) == CO_OK)
            coi_file_writer_commit(&writer, true, err);
        coi_file_writer_end(&writer, err->code != CO_OK);
    }
    if (text != NULL)
        coi_free(folder->memory, text, coi_index_room(&folder->index));
    coi_free(folder->memory, path, path_bytes);
    return err->code;
}

static void
remove_file(coi_checkpoint_folder *folder, int64_t step)
{
    char   name[COI_CHECKPOINT_NAME], *path;
    size_t nbytes;

    coi_name_of_step(step, name);
    path = coi_folder_path(folder, name, &nbytes);
    if (path != NULL && unlink(path) != 0 && errno != ENOENT)
        coi_log_line(folder->log, CO_LOG_WARNING, "cannot delete '%s': error %d of the system",
                     path, errno);
    coi_free(folder->memory, path, nbytes);
}

/* A file without a line in the index is a checkpoint, too, so that files go before their lines. */
co_code
coi_folder_add(coi_checkpoint_folder *folder, const coi_saved *saved, co_error_info *err)
{
    const coi_saved *surplus;
    int64_t          later;

    coi_error_reset(err);
    if (!coi_index_put(&folder->index, saved))
        return no_memory(err);
    later = folder->index.at[folder->index.n - 1].step;
    if (later > saved->step)
        coi_log_line(folder->log, CO_LOG_WARNING,
                     "checkpoint %lld is saved, and '%s' has checkpoint %lld, which restoring the "
                     "last one takes; delete those of another run, or give this one a folder of "
                     "its own",
                     (long long)saved->step, folder->path, (long long)later);
    while ((surplus = coi_index_surplus(&folder->index, &folder->options, saved->step)) != NULL) {
        int64_t step = surplus->step;

        remove_file(folder, step);
        coi_index_remove(&folder->index, step);
    }
    return write_index(folder, err);
}
