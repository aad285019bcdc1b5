/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's wait and wake on a word, and the pause of a spinning processor. Only for locks and
 * events.
 */
#ifndef COI_BASE_FUTEX_H
#define COI_BASE_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(atomic_uint) == sizeof(uint32_t), "a futex is a 32-bit word");

/*
 * Sleep while *word == seen, at most until the monotonic clock reads deadline_ns (0: forever).
 * False on timeout.
 */
static inline bool
coi_futex_wait(atomic_uint *word, unsigned seen, uint64_t deadline_ns)
{
    struct timespec  until = { (time_t)(deadline_ns / 1000000000u),
                               (long)(deadline_ns % 1000000000u) };
    struct timespec *limit = deadline_ns == 0 ? NULL : &until;

    return syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen, limit, NULL,
                   FUTEX_BITSET_MATCH_ANY) == 0 ||
           errno != ETIMEDOUT;
}

static inline void
coi_futex_wake(atomic_uint *word, int count)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, NULL, NULL, 0);
}

static inline void
coi_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
