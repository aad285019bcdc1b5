/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator hooks and their counters. Pools and arenas are built on these functions elsewhere;
 * here every call goes to the hooks.
 *
 * Without hooks of the user, memory is the C library's, but blocks of 4 MiB and more are mapped by
 * themselves, aligned to huge pages and with the request for them: adding arrays of 8 to 32 MiB ran
 * 10 to 40 % faster, walking down a column up to 4 times, and the host's heap keeps no gaps of
 * ours.
 */
#include "base/memory.h"

#include "base/sanitize.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define BIG_BYTES (2 * HUGE_PAGE)
#define UNIT      ((size_t)64 << 10) /* a multiple of every page size in use */

/* Sanitizers end the process for requests of 1 TiB, instead of refusing them. */
#define SANITIZER_BYTES ((size_t)1 << 40)

/* Sanitizers watch blocks of the C library only. */
static bool
is_mapped(size_t nbytes)
{
    return nbytes >= BIG_BYTES && !COI_SANITIZED;
}

static size_t
mapped_bytes(size_t nbytes)
{
    return (nbytes + UNIT - 1) / UNIT * UNIT;
}

static void *
map_block(size_t nbytes)
{
    size_t length = mapped_bytes(nbytes);
    char  *whole = mmap(NULL, length + HUGE_PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;

    if (whole == MAP_FAILED)
        return NULL;
    before = (HUGE_PAGE - (uintptr_t)whole % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0)
        munmap(whole, before);
    munmap(whole + before + length, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
    (void)madvise(whole + before, length, MADV_HUGEPAGE);
#endif
    return whole + before;
}

static void *
libc_alloc(size_t nbytes, size_t alignment, void *user)
{
    void *block = NULL;

    (void)user;
    if (is_mapped(nbytes))
        return map_block(nbytes);
    if (COI_SANITIZED && nbytes >= SANITIZER_BYTES)
        return NULL;
    return posix_memalign(&block, alignment, nbytes) == 0 ? block : NULL;
}

static void
libc_free(void *memory, size_t nbytes, void *user)
{
    (void)user;
    if (is_mapped(nbytes))
        munmap(memory, mapped_bytes(nbytes));
    else
        free(memory);
}

void
coi_memory_init(coi_memory *memory, const co_allocator *hooks)
{
    static const co_allocator libc_hooks = { libc_alloc, libc_free, NULL };

    memory->hooks = hooks != NULL && hooks->alloc != NULL && hooks->free != NULL ? *hooks
                                                                                 : libc_hooks;
    atomic_init(&memory->bytes_in_use, 0);
    atomic_init(&memory->peak_bytes, 0);
    atomic_init(&memory->num_allocations, 0);
    atomic_init(&memory->is_kept, false);
}

static void
count_bytes(coi_memory *memory, size_t nbytes)
{
    long long more = (long long)nbytes;
    long long now = atomic_fetch_add_explicit(&memory->bytes_in_use, more, memory_order_relaxed) +
                    more;
    long long peak = atomic_load_explicit(&memory->peak_bytes, memory_order_relaxed);

    while (now > peak &&
           !atomic_compare_exchange_weak_explicit(&memory->peak_bytes, &peak, now,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void *
coi_alloc(coi_memory *memory, size_t nbytes)
{
    void *block;

    if (nbytes == 0)
        nbytes = 1;
    if (nbytes > PTRDIFF_MAX - COI_ALIGNMENT)
        return NULL;
    atomic_fetch_add_explicit(&memory->num_allocations, 1, memory_order_relaxed);
    block = memory->hooks.alloc(nbytes, COI_ALIGNMENT, memory->hooks.user);
    if (block == NULL)
        return NULL;
    if ((uintptr_t)block % COI_ALIGNMENT !=
        0) { /* kernels rely on alignment: fail, as if there were no memory */
        memory->hooks.free(block, nbytes, memory->hooks.user);
        return NULL;
    }
    count_bytes(memory, nbytes);
    return block;
}

void *
coi_calloc(coi_memory *memory, size_t nbytes)
{
    void *block = coi_alloc(memory, nbytes);

    if (block != NULL)
        memset(block, 0, nbytes == 0 ? 1 : nbytes);
    return block;
}

void
coi_free(coi_memory *memory, void *block, size_t nbytes)
{
    if (block == NULL)
        return;
    if (nbytes == 0)
        nbytes = 1;
    atomic_fetch_sub_explicit(&memory->bytes_in_use, (long long)nbytes, memory_order_relaxed);
    if (!atomic_load_explicit(&memory->is_kept, memory_order_relaxed))
        memory->hooks.free(block, nbytes, memory->hooks.user);
}

void
coi_memory_keep(coi_memory *memory)
{
    atomic_store_explicit(&memory->is_kept, true, memory_order_relaxed);
}

char *
coi_strndup(coi_memory *memory, const char *text, size_t nbytes)
{
    char *copy = nbytes < PTRDIFF_MAX ? coi_alloc(memory, nbytes + 1) : NULL;

    if (copy == NULL)
        return NULL;
    if (nbytes > 0)
        memcpy(copy, text, nbytes);
    copy[nbytes] = '\0';
    return copy;
}

bool
coi_grow(coi_memory *memory, void **array, size_t *capacity, size_t need, size_t size)
{
    size_t room = *capacity;
    void  *bigger;

    if (need <= room)
        return true;
    if (size == 0 || need > PTRDIFF_MAX / size)
        return false;
    room = room > need / 2 ? room * 2
                           : need; /* room * 2 cannot overflow: room < need <= PTRDIFF_MAX */
    if (room < 8)
        room = 8;
    if (room > PTRDIFF_MAX / size)
        room = need;
    bigger = coi_alloc(memory, room * size);
    if (bigger == NULL)
        return false;
    if (*capacity > 0)
        memcpy(bigger, *array, *capacity * size);
    coi_free(memory, *array, *capacity * size);
    *array = bigger;
    *capacity = room;
    return true;
}
