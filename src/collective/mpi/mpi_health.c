/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Are the peers alive? MPI does not tell: under Open MPI 4.1 an operation with a dead process just
 * never ends. For peers on the same machine the system tells: a file descriptor of the process
 * becomes readable when it ends. The loss of peers elsewhere is noticed at the deadline.
 */
#include "collective/mpi/mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t
hash_bytes(uint64_t hash, const void *bytes, size_t nbytes)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < nbytes; ++i)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001B3);
    return hash;
}

/*
 * A number of this running system and its space of process ids, or 0 when it has none. Process ids
 * mean something to those with the same number.
 */
static uint64_t
machine_number(void)
{
    int         fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    char        boot[64];
    ssize_t     got = -1;
    struct stat space;
    uint64_t    hash = UINT64_C(0xCBF29CE484222325);

    if (fd >= 0) {
        got = read(fd, boot, sizeof(boot));
        close(fd);
    }
    if (got <= 0 || stat("/proc/self/ns/pid", &space) != 0)
        return 0;
    hash = hash_bytes(hash, boot, (size_t)got);
    hash = hash_bytes(hash, &space.st_ino, sizeof(space.st_ino));
    return hash != 0 ? hash : 1;
}

void
coi_mpi_introduce(mpi_group *self, coi_handshake *mine)
{
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int  length;

    if (MPI_Get_processor_name(name, &length) != MPI_SUCCESS)
        name[0] = '\0';
    mine->number = self->pid;
    mine->signature = machine_number();
    snprintf(mine->text, sizeof(mine->text), "%.63s", name);
}

void
coi_mpi_handshake(mpi_group *self, int rank, const coi_handshake *theirs, const coi_handshake *mine)
{
    mpi_peer *peer = &self->peers[rank];

    peer->pid = theirs->number;
    snprintf(peer->host, sizeof(peer->host), "%.63s", theirs->text);
    if (theirs->signature == 0 || theirs->signature != mine->signature)
        return;
    ++self->ranks_here;
#ifdef SYS_pidfd_open
    if (rank != self->group.rank && peer->pid > 0 && peer->pid == (pid_t)peer->pid) {
        int saved_errno = errno;

        peer->fd = (int)syscall(SYS_pidfd_open, (pid_t)peer->pid, 0); /* closed by exec */
        errno = saved_errno;
    }
#endif
}

bool
coi_mpi_find_gone(mpi_group *self, const bool *is_named)
{
    bool any = false;
    int  saved_errno = errno;

    for (int r = 0; r < self->group.size; ++r) {
        mpi_peer     *peer = &self->peers[r];
        struct pollfd question = { .fd = peer->fd, .events = POLLIN };

        if (!is_named[r])
            continue;
        if (!peer->is_gone && peer->fd >= 0 && poll(&question, 1, 0) == 1 &&
            (question.revents & POLLIN) != 0)
            peer->is_gone = true;
        any = any || peer->is_gone;
    }
    errno = saved_errno;
    return any;
}

co_code
coi_mpi_gone_error(mpi_group *self, const bool *is_named, co_error_info *err)
{
    for (int r = 0; r < self->group.size; ++r)
        if (is_named[r] && self->peers[r].is_gone)
            return coi_error(err, CO_UNAVAILABLE,
                             "rank %d is gone: its process %lld on %s has ended", r,
                             (long long)self->peers[r].pid, self->peers[r].host);
    return coi_error(err, CO_UNAVAILABLE, "a rank is gone");
}
