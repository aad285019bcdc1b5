/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a plan: what kernels make is placed in one arena, and what lives at different times
 * shares a place. Steps are taken in order, and each block goes into the smallest gap that has room
 * for it, so that memory which was used a moment ago, and is in a cache, is used again.
 */
#include "function/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct gap {
    size_t offset, nbytes;
} gap;

typedef struct arena {
    gap   *gaps; /* by offset; none touches another */
    size_t num_gaps, top;
} arena;

static size_t
aligned(size_t nbytes)
{
    return (nbytes + COI_ALIGNMENT) / COI_ALIGNMENT *
           COI_ALIGNMENT; /* empty ones have a place too */
}

static size_t
take(arena *a, size_t nbytes)
{
    size_t best = SIZE_MAX, offset;

    for (size_t i = 0; i < a->num_gaps; ++i)
        if (a->gaps[i].nbytes >= nbytes &&
            (best == SIZE_MAX || a->gaps[i].nbytes < a->gaps[best].nbytes))
            best = i;
    if (best == SIZE_MAX) {
        offset = a->top;
        /* A gap at the end grows. */
        if (a->num_gaps > 0 &&
            a->gaps[a->num_gaps - 1].offset + a->gaps[a->num_gaps - 1].nbytes == a->top)
            offset = a->gaps[--a->num_gaps].offset;
        a->top = offset + nbytes;
        return offset;
    }
    offset = a->gaps[best].offset;
    a->gaps[best].offset += nbytes;
    a->gaps[best].nbytes -= nbytes;
    if (a->gaps[best].nbytes == 0) {
        --a->num_gaps;
        memmove(&a->gaps[best], &a->gaps[best + 1], (a->num_gaps - best) * sizeof(gap));
    }
    return offset;
}

/* Blocks never touch each other's gaps, so there is always room for one more gap than blocks. */
static void
give(arena *a, size_t offset, size_t nbytes)
{
    size_t i = 0;

    while (i < a->num_gaps && a->gaps[i].offset < offset)
        ++i;
    if (i > 0 && a->gaps[i - 1].offset + a->gaps[i - 1].nbytes == offset) {
        a->gaps[--i].nbytes += nbytes;
    } else {
        memmove(&a->gaps[i + 1], &a->gaps[i], (a->num_gaps - i) * sizeof(gap));
        a->gaps[i] = (gap){ offset, nbytes };
        ++a->num_gaps;
    }
    if (i + 1 < a->num_gaps && a->gaps[i].offset + a->gaps[i].nbytes == a->gaps[i + 1].offset) {
        a->gaps[i].nbytes += a->gaps[i + 1].nbytes;
        --a->num_gaps;
        memmove(&a->gaps[i + 1], &a->gaps[i + 2], (a->num_gaps - i - 1) * sizeof(gap));
    }
}

/* Lists of blocks by their last step: head of each list, and next block of its list, from 1. */
static void
sort_by_last(const coi_plan_block *blocks, size_t n, uint32_t *heads, uint32_t *next)
{
    for (size_t i = n; i > 0; --i) {
        next[i - 1] = heads[blocks[i - 1].last];
        heads[blocks[i - 1].last] = (uint32_t)i;
    }
}

static int
compare_first(const void *a, const void *b)
{
    const coi_plan_block *x = a, *y = b;

    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

size_t
coi_plan_place(coi_memory *memory, coi_plan_block *blocks, size_t n, size_t num_steps)
{
    size_t gap_bytes = (n + 2) * sizeof(gap), list_bytes = (num_steps + n + 1) * sizeof(uint32_t);
    arena  a = { coi_alloc(memory, gap_bytes), 0, 0 };
    uint32_t *heads = coi_calloc(memory, list_bytes), *next = heads + num_steps;
    size_t    at = 0;

    if (a.gaps != NULL && heads != NULL) {
        qsort(blocks, n, sizeof(*blocks), compare_first);
        sort_by_last(blocks, n, heads, next);
        for (uint32_t step = 0; step < num_steps; ++step) {
            for (; at < n && blocks[at].first == step; ++at)
                blocks[at].offset = take(&a, aligned(blocks[at].nbytes));
            for (uint32_t i = heads[step]; i != 0; i = next[i - 1])
                give(&a, blocks[i - 1].offset, aligned(blocks[i - 1].nbytes));
        }
    } else {
        a.top = SIZE_MAX;
    }
    coi_free(memory, a.gaps, gap_bytes);
    coi_free(memory, heads, list_bytes);
    return a.top;
}
