/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a rank waits. MPI makes progress only inside its calls, so a waiting rank must go on testing;
 * how often depends on how long it has waited. Ranks that share cores yield at once: the rank they
 * wait for may need the core.
 */
#include "collective/mpi/mpi.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

/* A wait does not sleep at first: for the handshake of a peer, which may be at work for long, up to
 */
#define HANDSHAKE_BUSY_NS 500000u
/* and for data, which comes from peers that are here, as long as it takes at 100 MB a second. */
#define DATA_BUSY_NS 5000000u
#define BYTE_BUSY_NS 10u
#define MIN_SLEEP_NS 20000u
#define MAX_SLEEP_NS 1000000u
#define LOOK_NS      10000000u

void
coi_mpi_wait_begin(mpi_wait *wait, int timeout_ms, size_t nbytes)
{
    wait->busy_ns = nbytes > 0 ? DATA_BUSY_NS + BYTE_BUSY_NS * (uint64_t)nbytes : HANDSHAKE_BUSY_NS;
    wait->start_ns = coi_now_ns();
    wait->look_ns = wait->start_ns + LOOK_NS;
    wait->deadline = coi_deadline(timeout_ms);
    wait->timeout_ms = timeout_ms;
}

/* Spin only where there are cores for the threads of all ranks here, taking them to be as many as
 * ours. */
static uint64_t
spin_ns(const mpi_group *self)
{
    const coi_waiting *waiting = self->group.waiting;
    int64_t            running;

    if (waiting == NULL || waiting->spin_us <= 0)
        return 0;
    running = atomic_load_explicit(&waiting->running, memory_order_relaxed);
    if ((running > 1 ? running : 1) * self->ranks_here > waiting->num_cores)
        return 0;
    return (uint64_t)waiting->spin_us * 1000u;
}

void
coi_mpi_wait_pause(mpi_wait *wait, mpi_group *self)
{
    coi_waiting    *waiting = self->group.waiting;
    uint64_t        waited = coi_now_ns() - wait->start_ns, sleep_ns = waited / 16;
    int             saved_errno = errno;
    struct timespec time = { 0 };

    if (waited < spin_ns(self))
        return;
    if (waited < wait->busy_ns) {
        sched_yield();
        return;
    }
    if (sleep_ns < MIN_SLEEP_NS)
        sleep_ns = MIN_SLEEP_NS;
    if (sleep_ns > MAX_SLEEP_NS)
        sleep_ns = MAX_SLEEP_NS;
    time.tv_nsec = (long)sleep_ns;
    if (waiting != NULL)
        coi_waiting_end(waiting);
    nanosleep(&time, NULL);
    if (waiting != NULL)
        coi_waiting_begin(waiting);
    errno = saved_errno;
}

bool
coi_mpi_wait_poll(mpi_wait *wait)
{
    uint64_t now = coi_now_ns();

    if (now < wait->look_ns)
        return false;
    wait->look_ns = now + LOOK_NS;
    return true;
}
