/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends the process that it is linked into at a moment that the environment names:
 *
 *     KILL_AT=write:3            in the third write to a file of KILL_FOLDER, after half of the
 * bytes KILL_AT=fsync:1            before the first file or folder there is brought to the disk
 *     KILL_AT=fsynced:1          after that
 *     KILL_AT=rename:2           before a file there gets its name
 *     KILL_AT=renamed:2          after that
 *     KILL_AT=unlink:1           before a file there is deleted
 *     KILL_AT=time:20000         so many microseconds after the beginning
 *     KILL_RANK=1                only the process of this rank
 *
 * Calls of the shared library come here, because a program's own functions are found before those
 * of other libraries. SIGKILL cannot be caught, so nothing is cleaned up. "killed at MOMENT" is
 * printed before.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

static struct {
    const char *text; /* KILL_AT; NULL: never */
    char        call[16];
    long        at;
    const char *folder;
    atomic_long count;
} moment;

static void
die(void)
{
    char line[100];
    int  n = snprintf(line, sizeof(line), "killed at %s\n", moment.text);

    (void)!syscall(SYS_write, STDERR_FILENO, line, (size_t)n);
    kill(getpid(), SIGKILL);
    pause(); /* the other threads of this process run on until the signal arrives */
}

/* Whether this call is the one. */
static int
is_now(const char *call)
{
    return moment.text != NULL && strcmp(moment.call, call) == 0 &&
           atomic_fetch_add(&moment.count, 1) + 1 == moment.at;
}

static int
is_there(const char *path)
{
    return moment.folder != NULL && strncmp(path, moment.folder, strlen(moment.folder)) == 0;
}

static int
is_file_there(int fd)
{
    char    link[40], path[4096];
    ssize_t n;

    if (moment.text == NULL || moment.folder == NULL)
        return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    return is_there(path);
}

static void *
wait_and_die(void *arg)
{
    struct timespec t = { moment.at / 1000000, moment.at % 1000000 * 1000 };

    nanosleep(&t, NULL);
    die();
    return arg;
}

__attribute__((constructor)) static void
read_moment(void)
{
    const char *at = getenv("KILL_AT"), *wanted = getenv("KILL_RANK"), *colon;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    pthread_t   thread;

    if (rank == NULL)
        rank = getenv("PMI_RANK");
    colon = at != NULL ? strchr(at, ':') : NULL;
    if (colon == NULL || (wanted != NULL && rank != NULL && strcmp(wanted, rank) != 0))
        return;
    snprintf(moment.call, sizeof(moment.call), "%.*s", (int)(colon - at), at);
    moment.at = atol(colon + 1);
    moment.folder = getenv("KILL_FOLDER");
    moment.text = at;
    if (strcmp(moment.call, "time") == 0 && pthread_create(&thread, NULL, wait_and_die, NULL) == 0)
        pthread_detach(thread);
}

SEEN ssize_t
write(int fd, const void *bytes, size_t n)
{
    if (is_file_there(fd) && is_now("write")) {
        (void)!syscall(SYS_write, fd, bytes, n / 2);
        die();
    }
    return syscall(SYS_write, fd, bytes, n);
}

SEEN int
fsync(int fd)
{
    int is_counted = is_file_there(fd), rc;

    if (is_counted && is_now("fsync"))
        die();
    rc = (int)syscall(SYS_fsync, fd);
    if (is_counted && is_now("fsynced"))
        die();
    return rc;
}

SEEN int
rename(const char *from, const char *to)
{
    int rc;

    if (is_there(to) && is_now("rename"))
        die();
    rc = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (is_there(to) && is_now("renamed"))
        die();
    return rc;
}

SEEN int
unlink(const char *path)
{
    if (is_there(path) && is_now("unlink"))
        die();
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
