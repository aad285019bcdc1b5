/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contended side of coi_lock. The word is 0 (open), 1 (taken) or 2 (taken, somebody may sleep).
 * A thread that has slept takes the lock with 2, because others may still sleep; at worst that
 * costs one needless wake.
 */
#include "base/futex.h"
#include "base/threads.h"

#define SPINS 100 /* a holder keeps a lock of ours for some tens of nanoseconds */

void
coi_lock_wait(coi_lock *lock)
{
    int saved_errno = errno;

    for (int i = 0; i < SPINS; ++i) {
        unsigned open = 0;

        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->word, &open, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        coi_pause();
    }
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        coi_futex_wait(&lock->word, 2, 0);
    errno = saved_errno;
}

void
coi_lock_wake(coi_lock *lock)
{
    int saved_errno = errno;

    coi_futex_wake(&lock->word, 1);
    errno = saved_errno;
}
