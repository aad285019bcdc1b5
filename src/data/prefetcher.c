/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers and the ring of iterators that prefetch. See prefetcher.h for the picture; which
 * stages do is in prefetch.c and parallel_map.c.
 *
 * Tickets: the worker that holds the lock `pulling` pulls the input and takes the number `tail`;
 * there are never more than the ring has slots beyond `head`, which the consumer alone advances. So
 * the slot of a number is free when its worker fills it.
 */
#include "data/prefetcher.h"
#include "ops/engine/execute.h"

#include <limits.h>
#include <string.h>

#define WORKER_STACK_BYTES                                                                         \
    ((size_t)8 << 20) /* functions of the user run here: what a main thread has */
#define NEVER       UINT64_MAX
#define MAX_LINEAGE 8

typedef struct slot {
    atomic_bool is_full;
    co_context *failed; /* whose error is here in place of an element */
    co_value  **leaves;
} slot;

typedef struct worker {
    coi_prefetcher    *prefetcher;
    coi_thread        *thread;
    co_context        *ctx;
    coi_cancel         cancel;
    coi_stage_iterator own;
    co_value         **leaves;
} worker;

struct coi_prefetcher {
    coi_event filled; /* something was put in the ring, or the end was found */
    coi_event room;   /* something was taken out, or all is over */

    coi_runtime        *runtime;
    co_iterator        *input;   /* a reference */
    co_dataset         *dataset; /* whose elements these are; a reference */
    coi_stats          *stats;   /* a reference, or NULL; the row of the dataset */
    coi_counts         *counts;
    coi_prefetcher_plan plan;
    coi_prefetcher     *next_paused;   /* while a checkpoint is saved */
    uint64_t lineage[MAX_LINEAGE + 1]; /* this one, and whose workers wait for it; 0 ends it */
    size_t   nbytes;

    coi_lock      pulling; /* one worker at a time */
    int64_t       pulled;
    atomic_ullong tail;   /* numbers given out; under `pulling` */
    atomic_ullong done;   /* places given out where order does not matter */
    atomic_ullong end_at; /* elements before the end; NEVER until it was found */
    atomic_ullong head;   /* taken; of the consumer */
    atomic_bool   quit;
    /* Elements of a checkpoint that are still to be given: they take room as if they were in the
     * ring. */
    atomic_ullong     restored;
    _Atomic(worker *) orphan; /* the worker that is left to free all this */

    slot  *slots;
    worker workers[];
};

static size_t
round_up(size_t nbytes)
{
    return (nbytes + 63) & ~(size_t)63;
}

/* --- the life of a worker --- */

/* Wait until `room` has changed since it was seen; a thread that has nothing to do does not
 * spin. */
static void
sleep_on_room(coi_prefetcher *a, unsigned seen)
{
    coi_event_wait_spinning(&a->room, seen, &a->runtime->waiting, 0, -1);
}

static bool
is_over(coi_prefetcher *a)
{
    return atomic_load(&a->quit) || atomic_load(&a->end_at) != NEVER;
}

/* What was made and not given. */
static uint64_t
waiting(coi_prefetcher *a)
{
    return atomic_load(&a->tail) - atomic_load(&a->head) + atomic_load(&a->restored);
}

/* The right to pull, with room for what comes; false when there is nothing more to do. */
static bool
take_pulling(coi_prefetcher *a)
{
    for (;;) {
        unsigned seen = coi_event_read(&a->room);

        coi_lock_take(&a->pulling);
        if (!is_over(a) && waiting(a) < (uint64_t)a->plan.num_slots)
            return true;
        coi_lock_give(&a->pulling);
        if (is_over(a))
            return false;
        sleep_on_room(a, seen);
    }
}

static int
pull(worker *w, uint64_t *at)
{
    coi_prefetcher *a = w->prefetcher;
    co_value      **to = a->plan.work != NULL ? w->own.element : w->leaves;
    int             got = coi_iterator_next(w->ctx, a->input, to);

    a->pulled += got > 0;
    w->own.index = a->pulled;
    *at = atomic_load(&a->tail);
    if (got == COI_END)
        atomic_store(&a->end_at, *at);
    else
        atomic_store(&a->tail, *at + 1);
    coi_lock_give(&a->pulling);
    return got;
}

/*
 * Work on an element while other workers pull. place_user is gone if a function on this very thread
 * has dropped the iterator.
 */
static int
work(worker *w)
{
    const coi_prefetcher_plan *plan = &w->prefetcher->plan;

    if (plan->work != NULL)
        return plan->work(w->ctx, &w->own.base, w->leaves);
    if (plan->place == NULL || atomic_load(&w->prefetcher->quit) ||
        plan->place(w->ctx, plan->place_user, w->own.index - 1, w->leaves))
        return COI_ELEMENT;
    coi_leaves_release(&w->ctx->heap, w->leaves, w->prefetcher->dataset->num_leaves);
    return COI_ERROR;
}

typedef struct prefetching {
    worker  *w;
    uint64_t at; /* which element */
    int      got;
} prefetching;

static bool
make_element(co_context *ctx, void *arg)
{
    prefetching *p = arg;

    (void)ctx;
    p->got = pull(p->w, &p->at);
    if (p->got > 0)
        p->got = work(p->w);
    return p->got >= 0;
}

const coi_op coi_op_prefetch_next = { COI_EFFECT(
    "prefetch_next", "Reads the next element of a dataset on a prefetching thread, before co_next.",
    coi_body_effect, CO_RESOURCE_ITERATOR, CO_RESOURCE_ITERATOR) };

/* Put what was made in its place; an error stays with the worker until it was taken from there. */
static void
publish(worker *w, uint64_t at, int got)
{
    coi_prefetcher *a = w->prefetcher;
    slot           *s = &a->slots[at % (uint64_t)a->plan.num_slots];

    s->failed = got < 0 ? w->ctx : NULL;
    if (got > 0)
        memcpy(s->leaves, w->leaves, a->dataset->num_leaves * sizeof(*s->leaves));
    atomic_store_explicit(&s->is_full, true, memory_order_release);
    coi_event_signal(&a->filled);
    if (got > 0)
        return;
    for (;;) {
        unsigned seen = coi_event_read(&a->room);

        if (atomic_load(&a->head) > at || atomic_load(&a->quit))
            break;
        sleep_on_room(a, seen);
    }
    if (!atomic_load(&a->quit))
        co_clear(w->ctx);
}

static bool
work_once(worker *w)
{
    coi_prefetcher *a = w->prefetcher;
    prefetching     p = { .w = w };
    const void     *input = a->input;

    if (!take_pulling(a))
        return false;
    w->ctx->call = "next";
    coi_execute_body(w->ctx, &coi_op_prefetch_next,
                     (coi_effect){ .resources = &input, .num_resources = 1 }, make_element, &p);
    if (p.got == COI_END) {
        coi_event_signal(&a->filled);
        coi_event_signal(&a->room);
        return false;
    }
    if (!a->plan.in_order)
        p.at = atomic_fetch_add(&a->done, 1);
    publish(w, p.at, p.got);
    return true;
}

static void prefetcher_free(coi_prefetcher *a);

static void
worker_main(void *arg)
{
    worker         *w = arg;
    coi_prefetcher *a = w->prefetcher;
    coi_runtime    *runtime = a->runtime;

    coi_waiting_begin(&runtime->waiting);
    while (work_once(w))
        continue;
    coi_waiting_end(&runtime->waiting);
    if (atomic_load(&a->orphan) == w) {
        coi_thread_leave(&runtime->memory, w->thread);
        w->thread = NULL;
        prefetcher_free(a);
    }
}

/* --- making and ending --- */

/* The context of a worker is like that of the thread that asks, with random numbers of its own. */
static void
lend_context(co_context *to, const co_context *from, uint64_t serial, int index)
{
    to->site = from->site;
    to->user = from->user;
    to->rank = from->rank;
    to->seed = from->seed;
    to->random_counter = (serial << 40) + ((uint64_t)index << 32);
    to->special = from->special;
    to->unobserved = coi_is_observed(from) && coi_is_in_observer(from);
}

static bool
start_worker(co_context *ctx, coi_prefetcher *a, int index)
{
    worker       *w = &a->workers[index];
    size_t        room = a->input->dataset->num_leaves * sizeof(co_value *);
    co_error_info err;

    coi_error_reset(&err);
    w->prefetcher = a;
    w->own.base.dataset = a->dataset;
    w->own.base.counts = a->counts;
    coi_cancel_init(&w->cancel);
    w->ctx = coi_context_new(a->runtime);
    if (w->ctx == NULL)
        return false;
    lend_context(w->ctx, ctx, a->lineage[0], index);
    *coi_data_state_of(w->ctx) = (coi_data_state){ &w->cancel, a->lineage };
    w->own.element = coi_small_alloc(&w->ctx->heap, room);
    if (w->own.element != NULL &&
        coi_thread_start(&a->runtime->memory, "co-input", NULL, 0, WORKER_STACK_BYTES, worker_main,
                         w, &w->thread, &err) == CO_OK)
        return true;
    if (w->own.element != NULL)
        coi_small_free(&w->ctx->heap, w->own.element, room);
    coi_context_free(w->ctx);
    w->ctx = NULL;
    return false;
}

/* One block: the workers, the slots, and the leaves of both. */
static coi_prefetcher *
prefetcher_new(co_context *ctx, co_iterator *iterator, const coi_prefetcher_plan *plan)
{
    const uint64_t *outer = coi_data_state_of(ctx)->works_for;
    size_t          n = (size_t)plan->num_slots, workers = (size_t)plan->num_workers;
    size_t          leaves = iterator->dataset->num_leaves;
    size_t          slots_at = round_up(sizeof(coi_prefetcher) + workers * sizeof(worker));
    size_t          leaves_at = round_up(slots_at + n * sizeof(slot));
    size_t          nbytes = leaves_at + (n + workers) * leaves * sizeof(co_value *);
    coi_prefetcher *a = coi_calloc(&ctx->runtime->memory, nbytes);
    co_value      **room;

    if (a == NULL)
        return NULL;
    room = (co_value **)(void *)((char *)a + leaves_at);
    a->nbytes = nbytes;
    a->runtime = ctx->runtime;
    a->plan = *plan;
    a->slots = (slot *)(void *)((char *)a + slots_at);
    coi_event_init(&a->filled);
    coi_event_init(&a->room);
    coi_lock_init(&a->pulling);
    atomic_init(&a->end_at, NEVER);
    for (size_t i = 0; i < n; ++i, room += leaves)
        a->slots[i].leaves = room;
    for (size_t i = 0; i < workers; ++i, room += leaves)
        a->workers[i].leaves = room;
    a->lineage[0] = atomic_fetch_add(&ctx->runtime->next_serial, 1);
    for (int i = 0; outer != NULL && outer[i] != 0 && i + 1 < MAX_LINEAGE; ++i)
        a->lineage[i + 1] = outer[i];
    return a;
}

/* NULL without an error where there is no thread. */
static coi_prefetcher *
start(co_context *ctx, coi_prefetcher_iterator *self, const coi_prefetcher_plan *plan)
{
    co_iterator    *iterator = &self->base;
    coi_prefetcher *a = prefetcher_new(ctx, iterator, plan);
    int             started = 0;

    if (a != NULL) {
        a->pulled = self->index;
        atomic_init(&a->restored, self->waiting.count - self->given);
        a->input = iterator->input;
        a->dataset = iterator->dataset;
        /* A worker may be at work before the next is started: all that it sees is ready. */
        coi_ref(a->dataset);
        a->counts = iterator->counts;
        a->stats = iterator->stats;
        if (a->stats != NULL)
            coi_ref(a->stats);
        coi_runtime_hold(a->runtime);
        while (started < plan->num_workers && start_worker(ctx, a, started))
            ++started;
    }
    if (started > 0) {
        iterator->input = NULL;
        return a;
    }
    coi_log_line(&ctx->runtime->log, CO_LOG_WARNING,
                 "no memory or no thread for a %s to prefetch: its elements are made when they "
                 "are asked for",
                 iterator->dataset->ops->name);
    if (a != NULL) {
        a->input = NULL;
        prefetcher_free(a);
    }
    return NULL;
}

void
coi_prefetcher_begin(co_context *ctx, coi_prefetcher_iterator *self,
                     const coi_prefetcher_plan *plan)
{
    if (!self->begun)
        self->prefetcher = start(ctx, self, plan);
    self->begun = true;
}

/* The heap is one that lives to the end: of a context that goes last. */
static void
prefetcher_free(coi_prefetcher *a)
{
    coi_runtime *runtime = a->runtime;
    coi_heap     heap;

    coi_heap_init(&heap, &runtime->store);
    for (int i = 0; i < a->plan.num_slots; ++i)
        if (atomic_load_explicit(&a->slots[i].is_full, memory_order_acquire) &&
            a->slots[i].failed == NULL)
            coi_leaves_release(&heap, a->slots[i].leaves, a->dataset->num_leaves);
    for (int i = 0; i < a->plan.num_workers; ++i) {
        worker *w = &a->workers[i];

        if (w->ctx == NULL)
            continue;
        coi_small_free(&w->ctx->heap, w->own.element,
                       a->input->dataset->num_leaves * sizeof(co_value *));
        coi_context_free(w->ctx);
    }
    coi_unref(&heap, a->input);
    coi_unref(&heap, a->dataset);
    coi_unref(&heap, a->stats);
    coi_heap_destroy(&heap);
    coi_free(&runtime->memory, a, a->nbytes);
    coi_runtime_release(runtime);
}

static void
stop(coi_heap *heap, coi_prefetcher *a)
{
    if (a == NULL || coi_is_forked(heap))
        return;
    atomic_store(&a->quit, true);
    coi_event_signal(&a->room);
    for (int i = 0; i < a->plan.num_workers; ++i)
        if (a->workers[i].ctx != NULL)
            coi_cancel_set(&a->workers[i].cancel);
    for (int i = 0; i < a->plan.num_workers; ++i) {
        worker *w = &a->workers[i];

        /* Not told by the heap: an iterator around this one goes with a heap of its own. */
        if (coi_thread_is_own(w->thread))
            atomic_store(&a->orphan, w);
        else
            coi_thread_join(&a->runtime->memory, w->thread);
    }
    if (atomic_load(&a->orphan) == NULL)
        prefetcher_free(a);
}

/* --- taking --- */

static bool
is_ready(coi_prefetcher *a)
{
    uint64_t head = atomic_load(&a->head);

    return atomic_load_explicit(&a->slots[head % (uint64_t)a->plan.num_slots].is_full,
                                memory_order_acquire) ||
           atomic_load(&a->end_at) == head;
}

/* Wait until there is something to take; false with an error. */
static bool
await(co_context *ctx, coi_prefetcher *a)
{
    coi_cancel *cancel = coi_data_state_of(ctx)->cancel;
    uint64_t    began_ns = coi_now_ns();
    bool        ok = true;

    coi_cancel_watch(cancel, &a->filled);
    for (;;) {
        unsigned seen = coi_event_read(&a->filled);

        if (is_ready(a))
            break;
        if (coi_is_cancelled(cancel)) {
            coi_cancelled(ctx);
            ok = false;
            break;
        }
        coi_event_wait(&a->filled, seen, &a->runtime->waiting, -1);
    }
    coi_cancel_watch(cancel, NULL);
    coi_count_time(a->counts, true, began_ns);
    return ok;
}

/* Whether this thread makes the elements that it asks for: it would wait for itself. */
static bool
waits_for_itself(co_context *ctx, const coi_prefetcher *a)
{
    for (const uint64_t *id = coi_data_state_of(ctx)->works_for; id != NULL && *id != 0; ++id)
        if (*id == a->lineage[0]) {
            coi_refuse_own(ctx);
            return true;
        }
    return false;
}

/* A worker that waits is woken when half of the ring is free: once for many elements, not for
 * each. */
static void
tell_room(coi_prefetcher *a, bool always)
{
    if (always || waiting(a) <= (uint64_t)a->plan.num_slots / 2)
        coi_event_signal(&a->room);
}

static int
take(co_context *ctx, coi_prefetcher *a, co_value **leaves)
{
    uint64_t head = atomic_load_explicit(&a->head, memory_order_relaxed);
    slot    *s = &a->slots[head % (uint64_t)a->plan.num_slots];
    bool     failed;

    if (waits_for_itself(ctx, a) || (!is_ready(a) && !await(ctx, a)))
        return COI_ERROR;
    if (atomic_load(&a->end_at) == head)
        return COI_END;
    failed = s->failed != NULL;
    if (failed)
        coi_take_error(ctx, s->failed);
    else
        memcpy(leaves, s->leaves, a->dataset->num_leaves * sizeof(*leaves));
    atomic_store_explicit(&s->is_full, false, memory_order_release);
    atomic_store(&a->head, head + 1);
    tell_room(a, failed);
    return failed ? COI_ERROR : COI_ELEMENT;
}

enum {
    CODE,
    MESSAGE,
    ELEMENT
}; /* of a piece: an error has the first two, an element what follows */

/* What a checkpoint had waiting; COI_END: there is none. */
static int
take_restored(co_context *ctx, coi_prefetcher_iterator *self, co_value **leaves)
{
    size_t     n = self->base.dataset->num_leaves;
    co_value **piece;

    if (self->given == self->waiting.count)
        return COI_END;
    piece = self->waiting.leaves + self->given++ * (n + ELEMENT);
    if (self->prefetcher != NULL) {
        atomic_store(&self->prefetcher->restored, self->waiting.count - self->given);
        tell_room(self->prefetcher, false);
    }
    if (piece[CODE] != NULL) {
        coi_fail(ctx, (co_code)piece[CODE]->u.i, "%s",
                 ((const coi_text *)coi_data_on_host(piece[MESSAGE]))->data);
        return COI_ERROR;
    }
    memcpy(leaves, piece + ELEMENT, n * sizeof(*leaves));
    memset(piece + ELEMENT, 0, n * sizeof(*leaves));
    return COI_ELEMENT;
}

int
coi_prefetcher_next(co_context *ctx, co_iterator *iterator, co_value **leaves,
                    int (*alone)(co_context *ctx, co_iterator *iterator, co_value **leaves))
{
    coi_prefetcher_iterator *self = (coi_prefetcher_iterator *)iterator;
    int                      got = take_restored(ctx, self, leaves);

    if (got != COI_END)
        return got;
    return self->prefetcher != NULL ? take(ctx, self->prefetcher, leaves)
                                    : alone(ctx, iterator, leaves);
}

bool
coi_prefetcher_is_ready(const coi_prefetcher_iterator *self)
{
    return self->prefetcher == NULL || self->given < self->waiting.count ||
           is_ready(self->prefetcher);
}

void
coi_prefetcher_close(coi_heap *heap, co_iterator *iterator)
{
    coi_prefetcher_iterator *self = (coi_prefetcher_iterator *)iterator;

    stop(heap, self->prefetcher);
    coi_assembly_free(heap, &self->waiting);
}

/* --- checkpoints --- */

/* An error as values; false without memory. */
static bool
keep_error(co_context *ctx, const co_error_info *error, co_value **piece)
{
    coi_text   text = { error->message, strlen(error->message) };
    co_device *device = coi_data_device(ctx);

    piece[CODE] = coi_value_new(&ctx->heap, CO_KIND_INT);
    piece[MESSAGE] = device != NULL
                         ? coi_tensor_strings(&ctx->heap, device, NULL, 0, 1, &text, coi_err(ctx))
                         : NULL;
    if (piece[CODE] == NULL || piece[MESSAGE] == NULL) {
        coi_failed(ctx);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an error of a checkpoint");
        return false;
    }
    piece[CODE]->u.i = error->code;
    return true;
}

/* Copies of references to what waits: what was restored and not given, then the ring. False with an
 * error. */
static bool
collect(co_context *ctx, const coi_prefetcher_iterator *self, coi_batch_assembly *all)
{
    const coi_prefetcher *a = self->prefetcher;
    size_t                n = self->base.dataset->num_leaves;
    uint64_t              head = a != NULL ? atomic_load(&a->head) : 0;
    uint64_t              in_ring = (a != NULL ? atomic_load(&a->tail) : 0) - head;
    uint64_t              restored = self->waiting.count - self->given;

    for (uint64_t i = 0; i < restored + in_ring; ++i) {
        co_value  **room = coi_assembly_room(ctx, all);
        const slot *s = i < restored
                            ? NULL
                            : &a->slots[(head + i - restored) % (uint64_t)a->plan.num_slots];

        if (room == NULL)
            return false;
        memset(room, 0, (n + ELEMENT) * sizeof(*room));
        if (s == NULL)
            memcpy(room, self->waiting.leaves + (self->given + i) * (n + ELEMENT),
                   (n + ELEMENT) * sizeof(*room));
        else if (s->failed == NULL)
            memcpy(room + ELEMENT, s->leaves, n * sizeof(*room));
        for (size_t k = 0; k < n + ELEMENT; ++k)
            if (room[k] != NULL)
                coi_ref(room[k]);
        ++all->count;
        if (s != NULL && s->failed != NULL && !keep_error(ctx, &s->failed->error, room))
            return false;
    }
    return true;
}

static bool
is_error(const co_value *code, const co_value *message)
{
    return code->kind == CO_KIND_INT && code->u.i > 0 && code->u.i <= INT_MAX &&
           message->kind == CO_KIND_TENSOR && message->dtype == CO_STRING && message->ndim == 0;
}

static bool
checkpoint_piece(co_context *ctx, coi_iterator_checkpoint *p, const co_dataset *like,
                 co_value **piece)
{
    bool failed = p->saves && piece[CODE] != NULL;

    if (!coi_checkpoint_flag(ctx, p, &failed))
        return false;
    if (!failed)
        return coi_checkpoint_leaves(ctx, p, like, piece + ELEMENT);
    return coi_checkpoint_value(ctx, p, &piece[CODE]) &&
           coi_checkpoint_value(ctx, p, &piece[MESSAGE]) &&
           (is_error(piece[CODE], piece[MESSAGE]) ||
            coi_checkpoint_wrong(ctx, p, "an error is none"));
}

static bool
checkpoint_pieces(co_context *ctx, coi_iterator_checkpoint *p, const co_dataset *like,
                  coi_batch_assembly *all)
{
    size_t  n = like->num_leaves + ELEMENT;
    int64_t count = (int64_t)all->count;

    if (!coi_checkpoint_number(ctx, p, &count, 0, 2 * COI_MAX_PREFETCH))
        return false;
    for (size_t i = 0; i < (size_t)count; ++i) {
        co_value **piece = p->saves ? all->leaves + i * n : coi_assembly_room(ctx, all);

        if (piece == NULL)
            return false;
        if (!p->saves) {
            memset(piece, 0, n * sizeof(*piece));
            ++all->count; /* whatever of it is read is given back with the rest */
        }
        if (!checkpoint_piece(ctx, p, like, piece)) {
            if (!p->saves)
                memset(piece + ELEMENT, 0, like->num_leaves * sizeof(*piece));
            return false;
        }
    }
    return true;
}

/* No worker pulls until the lock is given back, and what was pulled is in the ring. */
static void
pause(coi_prefetcher *a)
{
    coi_lock_take(&a->pulling);
    for (uint64_t at = atomic_load(&a->head); at < atomic_load(&a->tail);) {
        unsigned seen = coi_event_read(&a->filled);

        if (atomic_load_explicit(&a->slots[at % (uint64_t)a->plan.num_slots].is_full,
                                 memory_order_acquire))
            ++at;
        else
            coi_event_wait(&a->filled, seen, &a->runtime->waiting, -1);
    }
}

bool
coi_prefetcher_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    coi_prefetcher_iterator *self = (coi_prefetcher_iterator *)iterator;
    coi_prefetcher          *a = self->prefetcher;
    coi_batch_assembly       all = { .num_leaves = iterator->dataset->num_leaves + ELEMENT };
    bool                     ok;

    if (a != NULL && waits_for_itself(ctx, a))
        return false;
    if (a != NULL) {
        pause(a);
        a->next_paused = p->paused;
        p->paused = a;
        self->index = a->pulled;
    }
    self->waiting.num_leaves = all.num_leaves;
    ok = (!p->saves || collect(ctx, self, &all)) &&
         coi_checkpoint_number(ctx, p, &self->index, 0, COI_MOST_COUNTED) &&
         checkpoint_pieces(ctx, p, iterator->dataset, p->saves ? &all : &self->waiting) &&
         (a == NULL || coi_checkpoint_iterator(ctx, p, a->input));
    coi_assembly_free(&ctx->heap, &all);
    return ok;
}

void
coi_prefetcher_resume(coi_prefetcher *paused)
{
    while (paused != NULL) {
        coi_prefetcher *next = paused->next_paused;

        coi_lock_give(&paused->pulling);
        paused = next;
    }
}
