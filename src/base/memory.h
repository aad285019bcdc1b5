/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's memory: the caller's allocator or the C library's, counted. Everything that the
 * library holds goes through here, so that "nothing leaks" and "nothing is allocated per step" can
 * be tested, and so that a test can make the n-th allocation fail.
 */
#ifndef COI_BASE_MEMORY_H
#define COI_BASE_MEMORY_H

#include <cohort/context.h>
#include <stdatomic.h>

#define COI_ALIGNMENT 64 /* a cache line, and the widest vector register */

typedef struct coi_memory {
    co_allocator hooks;
    atomic_llong bytes_in_use;
    atomic_llong peak_bytes;
    atomic_llong num_allocations;
    atomic_bool  is_kept; /* no memory is returned any more */
} coi_memory;

/* hooks NULL: the C library's. */
void coi_memory_init(coi_memory *memory, const co_allocator *hooks);
/* Aligned to COI_ALIGNMENT; NULL when there is none; 0 bytes are served as 1. */
void *coi_alloc(coi_memory *memory, size_t nbytes);
void *coi_calloc(coi_memory *memory, size_t nbytes);
/* nbytes as requested; NULL memory is allowed. */
void coi_free(coi_memory *memory, void *block, size_t nbytes);
/*
 * From now on return nothing to the allocator: foreign code may still read or write our blocks, and
 * a leak is better than a crash. Blocks are still counted as freed.
 */
void coi_memory_keep(coi_memory *memory);
/* A copy of nbytes bytes and a zero; free with nbytes + 1. */
char *coi_strndup(coi_memory *memory, const char *text, size_t nbytes);
/*
 * Make room for `need` elements of `size` bytes in a growing array; false (unchanged) without
 * memory.
 */
bool coi_grow(coi_memory *memory, void **array, size_t *capacity, size_t need, size_t size);

#endif
