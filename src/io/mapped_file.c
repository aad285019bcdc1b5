/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped files, see mapped_file.h. Reading a page behind the end of a file that has shrunk is
 * SIGBUS, which no library can catch without taking the handler of its host. So a file is mapped
 * where the kernel tells before it shrinks:
 *
 * - A memfd that is sealed against shrinking and writing never does.
 * - A file that we hold a read lease of: the kernel lets nobody open it for writing or truncate it
 *   until we have given the lease back, or lease-break-time (45 s) is over. A thread looks several
 *   times a second whether somebody waits for it. Then it reads the file into anonymous memory,
 *   moves that over the mapping in one call, and gives the lease back.
 *
 * The kernel announces a broken lease with SIGIO, which would end the host. It goes to the owner
 * of the descriptor; that is made the thread itself, which has all signals blocked, before there
 * is a lease.
 */
#include "io/mapped_file.h"

#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LOOK_EVERY_MS 200
#define LEAST_BREAK_S 5 /* a shorter lease-break-time leaves no time for the copy */

struct coi_mapped_file {
    coi_memory *memory;
    atomic_uint refs;
    char       *data;
    size_t      nbytes;
    int         fd;       /* our own, which has the lease; -1: none is needed */
    coi_thread *thread;   /* that watches the lease */
    coi_event   answered; /* by the thread: it has a lease, or not */
    coi_event   leave;    /* the thread is to end */
    const char *refusal;  /* why it has none */
};

/* Where a lease keeps away all who could shrink the file: not where a server could, or where the
 * file is made of another one by a program. */
static bool
is_local(int fd)
{
    static const unsigned long local[] = {
        0xEF53,     /* ext2, ext3, ext4 */
        0x58465342, /* XFS */
        0x9123683E, /* btrfs */
        0x01021994, /* tmpfs */
        0xF2F52010, /* F2FS */
        0xca451a4e, /* bcachefs */
        0x2fc12fc1, /* ZFS */
    };
    struct statfs about;

    if (fstatfs(fd, &about) != 0)
        return false;
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); ++i)
        if ((unsigned long)about.f_type == local[i])
            return true;
    return false;
}

/* How long who waits for a lease waits at most. 0: not known. */
static int
lease_break_seconds(void)
{
    char    text[16] = "";
    int     fd = open("/proc/sys/fs/lease-break-time", O_RDONLY | O_CLOEXEC), seconds = 0;
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;

    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < n && text[i] >= '0' && text[i] <= '9'; ++i)
        seconds = seconds < 100000 ? seconds * 10 + (text[i] - '0') : seconds;
    return seconds;
}

static bool
is_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && (seals & F_SEAL_WRITE) != 0;
}

/* Read the file into memory of our own and put that where the mapping is: one call, which the
 * kernel does not let readers look into. */
static bool
become_private(coi_mapped_file *m)
{
    char  *copy = mmap(NULL, m->nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t done = 0;

    if (copy == MAP_FAILED)
        return false;
    while (done < m->nbytes) {
        ssize_t n = pread(m->fd, copy + done, m->nbytes - done, (off_t)done);

        if (n <= 0 && !(n < 0 && errno == EINTR))
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    if (done == m->nbytes && mprotect(copy, m->nbytes, PROT_READ) == 0 &&
        mremap(copy, m->nbytes, m->nbytes, MREMAP_MAYMOVE | MREMAP_FIXED, m->data) == m->data)
        return true;
    munmap(copy, m->nbytes);
    return false;
}

/* From here on it cannot shrink; it may have, since it was opened. A reason why not. */
static const char *
map_whole(coi_mapped_file *m, int fd)
{
    struct stat about;

    if (fstat(fd, &about) != 0 || (uint64_t)about.st_size < m->nbytes)
        return "it has shrunk";
    m->data = mmap(NULL, m->nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
    return m->data != MAP_FAILED ? NULL : "it cannot be mapped";
}

/* The lease, and the mapping under it; a reason why not. */
static const char *
take_lease(coi_mapped_file *m)
{
    struct f_owner_ex owner = { F_OWNER_TID, (pid_t)syscall(SYS_gettid) };
    const char       *refusal;

    if (fcntl(m->fd, F_SETOWN_EX, &owner) != 0)
        return "its descriptor cannot be given an owner";
    if (fcntl(m->fd, F_SETLEASE, F_RDLCK) != 0)
        return errno == EAGAIN   ? "somebody has it open for writing"
               : errno == EACCES ? "it belongs to another user"
                                 : "its file system has no leases";
    refusal = map_whole(m, m->fd);
    if (refusal != NULL)
        fcntl(m->fd, F_SETLEASE, F_UNLCK);
    return refusal;
}

/* The thread: until it is to leave, or the file is a copy. Without memory for one it tries again
 * as long as the kernel lets it. */
static void
watch_lease(void *arg)
{
    coi_mapped_file *m = arg;
    unsigned         seen = coi_event_read(&m->leave);
    bool             is_over;

    m->refusal = take_lease(m);
    is_over = m->refusal != NULL;
    coi_event_signal(&m->answered);
    while (!is_over && !coi_event_wait(&m->leave, seen, NULL, LOOK_EVERY_MS))
        is_over = fcntl(m->fd, F_GETLEASE) != F_RDLCK && become_private(m);
    if (m->refusal == NULL)
        fcntl(m->fd, F_SETLEASE, F_UNLCK);
}

/* Start the thread and wait for its answer. */
static const char *
watch(coi_mapped_file *m)
{
    co_error_info err = { .code = CO_OK };
    unsigned      seen = coi_event_read(&m->answered);

    if (coi_thread_start(m->memory, "co-lease", NULL, 0, 0, watch_lease, m, &m->thread, &err) !=
        CO_OK)
        return "there is no thread to watch its lease";
    coi_event_wait(&m->answered, seen, NULL, -1);
    return m->refusal;
}

static void
free_mapped(coi_mapped_file *m)
{
    if (m->thread != NULL) {
        coi_event_signal(&m->leave);
        coi_thread_join(m->memory, m->thread);
    }
    if (m->data != NULL && m->data != MAP_FAILED)
        munmap(m->data, m->nbytes);
    if (m->fd >= 0)
        close(m->fd);
    coi_free(m->memory, m, sizeof(*m));
}

/* A descriptor of our own: a lease belongs to what was opened, and its owner would be everybody's
 * who shares that. */
static int
open_again(int fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

static const char *
map_file(coi_mapped_file *m, int fd)
{
    struct stat about;

    if (is_sealed(fd))
        return map_whole(m, fd);
    if (fstat(fd, &about) != 0 || about.st_nlink == 0)
        return "it has no name"; /* a memfd, of whose writers the kernel keeps no count */
    if (!is_local(fd))
        return "it is not on a local file system that is known";
    if (lease_break_seconds() < LEAST_BREAK_S)
        return "the system's lease-break-time is not known, or less than 5 seconds";
    m->fd = open_again(fd);
    return m->fd >= 0 ? watch(m) : "it cannot be opened again";
}

coi_mapped_file *
coi_mapped_file_new(coi_memory *memory, int fd, uint64_t nbytes, const char **why)
{
    coi_mapped_file *m = nbytes > 0 && nbytes <= SIZE_MAX ? coi_calloc(memory, sizeof(*m)) : NULL;

    *why = "it is empty, or there is no memory";
    if (m == NULL)
        return NULL;
    m->memory = memory;
    m->nbytes = (size_t)nbytes;
    m->fd = -1;
    atomic_init(&m->refs, 1);
    coi_event_init(&m->answered);
    coi_event_init(&m->leave);
    *why = map_file(m, fd);
    if (*why == NULL)
        return m;
    free_mapped(m);
    return NULL;
}

const char *
coi_mapped_file_data(const coi_mapped_file *mapped)
{
    return mapped->data;
}

void
coi_mapped_file_ref(coi_mapped_file *mapped)
{
    atomic_fetch_add_explicit(&mapped->refs, 1, memory_order_relaxed);
}

void
coi_mapped_file_unref(coi_mapped_file *mapped)
{
    if (mapped != NULL && atomic_fetch_sub_explicit(&mapped->refs, 1, memory_order_acq_rel) == 1)
        free_mapped(mapped);
}
