/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of contexts. It belongs to the process, not to a runtime: the macros of call sites
 * write to a context before the library sees it, so a context that was closed must stay memory of
 * its kind, in which the next call finds that it is closed. Contexts are 2 KiB; the pool has as
 * many as were open at the same time, and QUARANTINE more, because what was closed is not used
 * again before that many others were closed.
 *
 * There is no lock: a process that forks while another thread opens a context must be able to open
 * one in the child.
 */
#include "context/context.h"

#include <stdlib.h>
#include <string.h>

#define SLAB       8 /* small: the first one is part of the start of every program */
#define QUARANTINE 64

/* The state of a place. Beyond IN_USE it is when its context was closed, in contexts. */
enum { NEVER_USED, IN_USE, FIRST_CLOSED };

/* Contexts of different threads share no cache line, nor the pair of lines that is fetched at
 * once. */
typedef struct place {
    _Alignas(128) co_context context;
} place;

typedef struct slab {
    _Atomic(struct slab *) next;
    atomic_ullong          states[SLAB];
    place                  places[SLAB];
} slab;

static _Atomic(slab *) first_slab;
static atomic_ullong   num_closed;

static bool
is_free(unsigned long long state)
{
    return state == NEVER_USED ||
           (state >= FIRST_CLOSED && atomic_load(&num_closed) >= state - FIRST_CLOSED + QUARANTINE);
}

static co_context *
take_from(slab *s)
{
    for (size_t i = 0; i < SLAB; ++i) {
        unsigned long long state = atomic_load(&s->states[i]);

        if (is_free(state) && atomic_compare_exchange_strong(&s->states[i], &state, IN_USE))
            return &s->places[i].context;
    }
    return NULL;
}

/* The slab that `link` leads to, made if there is none; NULL without memory. */
static slab *
next_slab(_Atomic(slab *) *link)
{
    slab *next = atomic_load(link), *made;

    if (next != NULL)
        return next;
    made = aligned_alloc(_Alignof(slab), sizeof(*made));
    if (made == NULL)
        return NULL;
    /* Places are cleared when they are taken: a program with one context touches one of them. */
    memset(made, 0, offsetof(slab, places));
    if (atomic_compare_exchange_strong(link, &next, made))
        return made;
    free(made); /* another thread was faster */
    return next;
}

co_context *
coi_context_take(void)
{
    _Atomic(slab *) *link = &first_slab;

    for (slab *s = next_slab(link); s != NULL; link = &s->next, s = next_slab(link)) {
        co_context *ctx = take_from(s);

        if (ctx != NULL) {
            memset(ctx, 0, sizeof(*ctx));
            return ctx;
        }
    }
    return NULL;
}

void
coi_context_give(co_context *ctx)
{
    unsigned long long now = atomic_fetch_add(&num_closed, 1);

    for (slab *s = atomic_load(&first_slab); s != NULL; s = atomic_load(&s->next))
        if ((place *)ctx >= s->places && (place *)ctx < s->places + SLAB)
            atomic_store(&s->states[(place *)ctx - s->places], FIRST_CLOSED + now);
}

/* When the library is unloaded, or the process ends. Contexts that are open keep their memory. */
__attribute__((destructor)) static void
free_pool(void)
{
    for (slab *s = atomic_load(&first_slab); s != NULL; s = atomic_load(&s->next))
        for (size_t i = 0; i < SLAB; ++i)
            if (atomic_load(&s->states[i]) == IN_USE)
                return;
    for (slab *s = atomic_exchange(&first_slab, NULL), *next; s != NULL; s = next) {
        next = atomic_load(&s->next);
        free(s);
    }
}
