/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether anything goes round the executor. An observer keeps account of what it is told, and that
 * is compared with what really happened, counted by somebody else:
 *
 *   - variables: a hash of what each held after the last write that was seen, with its contents at
 *     the end;
 *   - collectives: how often replicas started one, with the flight recorder of the strategy;
 *   - random numbers: how often each context drew one, with the counter of the context, at every
 *     start and at the end;
 *   - blocks of the pools: the linker leads coi_buffer_alloc here, and a block must be asked for
 *     inside an entry or be an output of the next that starts on the thread. How many blocks there
 *     were in all is compared with the statistics of the pools;
 *   - copies between devices: led here too, and made inside entries;
 *   - the table: what is told must be an entry of it, with the resources that it has there;
 *   - messages: the functions of the transport are led here, and data leaves inside an entry that
 *     says it acts on the other workers. Notices that a run ended or failed carry no data.
 *
 * One file of a program includes this. cohort_keeps_account of cmake/CohortPrograms.cmake links it.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include "collective/collective.h"
#include "context/context.h"
#include "ops/engine/op.h"
#include "strategy/rendezvous.h"
#include "strategy/strategy.h"

#include <cohort/cohort.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    ACCOUNT_MOST = 4096,
    ACCOUNT_LOOSE = 64,              /* blocks that wait for their entry, on one thread */
    ACCOUNT_CALLS_PER_STEP = 1 << 20 /* a run moves the counter of its caller on by these */
};

typedef struct account_entry {
    co_value *variable; /* kept */
    uint64_t  hash;
} account_entry;

/* The random counter of a context: where it began, and the draws that were seen since. */
typedef struct account_counter {
    uint64_t serial; /* of the context: another may get its memory */
    uint64_t base, draws;
    uint64_t step_base;   /* base of the step that it is in, which names the step */
    uint64_t merge_draws; /* in merge functions; the end of the run passes over them */
    uint64_t seeds;       /* of the account, when base was taken */
} account_counter;

typedef struct account {
    co_context     *beside, *observed; /* the first reads variables, one thread at a time */
    co_observer    *observer;
    pthread_mutex_t lock; /* of what the observer writes */
    pthread_mutex_t
           count; /* of what is counted by functions that run under any lock; the innermost */
    size_t num_variables, num_writes, num_lost; /* the last: more than there is room for */
    size_t strangers;                           /* names that the table does not have */
    account_entry        variables[ACCOUNT_MOST];
    int64_t              collectives; /* starts, by replicas */
    int64_t              draws;       /* of random numbers */
    size_t               num_counters, wrong_counters;
    account_counter      counters[ACCOUNT_MOST];
    uint64_t             seeds;
    int64_t              requests;                 /* of all pools, when it began */
    int64_t              blocks, own_blocks;       /* that entries explain; that the account took */
    int64_t              loose_blocks;             /* that nobody has explained yet */
    int64_t              copies, loose_copies;     /* between devices, in entries and outside */
    int64_t              messages, loose_messages; /* in entries that say so; in others */
    const coi_transport *transport; /* that of the strategy, whose calls are counted */
    co_strategy         *strategy;
} account;

/* What the thread is inside of, and what it has taken outside. */
typedef struct account_thread {
    account *of;
    int      depth, senders; /* entries; those that act on other workers */
    bool     is_own;         /* the account itself is at work */
    int      num_loose;
    struct {
        const char *device;
        size_t      nbytes;
    } loose[ACCOUNT_LOOSE];
} account_thread;

static _Atomic(account *)           account_current;
static _Thread_local account_thread account_threads;

static inline account_thread *
account_here(account *a)
{
    account_thread *t = &account_threads;

    if (t->of != a)
        *t = (account_thread){ .of = a };
    return t;
}

/* --- blocks --- */

coi_buffer *__real_coi_buffer_alloc(co_device *device, size_t nbytes, co_error_info *err);
coi_buffer *__wrap_coi_buffer_alloc(co_device *device, size_t nbytes, co_error_info *err);

coi_buffer *
__wrap_coi_buffer_alloc(co_device *device, size_t nbytes, co_error_info *err)
{
    account        *a = atomic_load(&account_current);
    account_thread *t = a != NULL ? account_here(a) : NULL;
    coi_buffer     *block;

    if (a == NULL || device->owner != a->observed->runtime->devices)
        return __real_coi_buffer_alloc(device, nbytes, err);
    pthread_mutex_lock(&a->count); /* also of the pool's, see account_end */
    if (atomic_load(&account_current) != a) {
        /* the account has ended meanwhile */
    } else if (t->is_own) {
        ++a->own_blocks;
    } else if (t->depth > 0) {
        ++a->blocks;
    } else {
        ++a->loose_blocks;
        if (t->num_loose < ACCOUNT_LOOSE) {
            t->loose[t->num_loose].device = device->name;
            t->loose[t->num_loose++].nbytes = nbytes;
        }
    }
    block = __real_coi_buffer_alloc(device, nbytes, err);
    pthread_mutex_unlock(&a->count);
    return block;
}

/* Blocks that the thread took for the outputs of an entry before it started. */
static inline void
account_explain(account *a, account_thread *t, const co_observation *seen)
{
    pthread_mutex_lock(&a->count);
    for (size_t o = 0; o < seen->num_outputs; ++o)
        for (int i = 0; i < t->num_loose; ++i)
            if (t->loose[i].nbytes == seen->outputs[o].nbytes &&
                (strcmp(t->loose[i].device, seen->outputs[o].device) == 0 ||
                 seen->outputs[o].dtype == CO_STRING)) {
                t->loose[i] = t->loose[--t->num_loose];
                --a->loose_blocks;
                ++a->blocks;
                break;
            }
    pthread_mutex_unlock(&a->count);
}

static inline int64_t
account_requests(co_context *ctx)
{
    int64_t total = 0;

    for (size_t i = 0; i < co_num_devices(ctx); ++i) {
        co_device_info info = CO_DEVICE_INFO_INIT;

        co_get_device_info(ctx, i, &info);
        total += info.allocations;
    }
    return total;
}

/* --- copies between devices --- */

static inline void
account_copy(const co_device *device)
{
    account        *a = atomic_load(&account_current);
    account_thread *t = a != NULL ? account_here(a) : NULL;

    if (a == NULL || device->owner != a->observed->runtime->devices || t->is_own)
        return;
    pthread_mutex_lock(&a->count);
    ++*(t->depth > 0 ? &a->copies : &a->loose_copies);
    pthread_mutex_unlock(&a->count);
}

co_code __real_coi_device_upload(co_device *device, coi_buffer *dst, size_t offset, const void *src,
                                 size_t nbytes, co_error_info *err);
co_code __wrap_coi_device_upload(co_device *device, coi_buffer *dst, size_t offset, const void *src,
                                 size_t nbytes, co_error_info *err);
co_code __real_coi_device_download(co_device *device, void *dst, const coi_buffer *src,
                                   size_t offset, size_t nbytes, co_error_info *err);
co_code __wrap_coi_device_download(co_device *device, void *dst, const coi_buffer *src,
                                   size_t offset, size_t nbytes, co_error_info *err);
co_code __real_coi_device_copy(co_device *to, coi_buffer *dst, size_t dst_offset, co_device *from,
                               const coi_buffer *src, size_t src_offset, size_t nbytes,
                               co_error_info *err);
co_code __wrap_coi_device_copy(co_device *to, coi_buffer *dst, size_t dst_offset, co_device *from,
                               const coi_buffer *src, size_t src_offset, size_t nbytes,
                               co_error_info *err);

co_code
__wrap_coi_device_upload(co_device *device, coi_buffer *dst, size_t offset, const void *src,
                         size_t nbytes, co_error_info *err)
{
    account_copy(device);
    return __real_coi_device_upload(device, dst, offset, src, nbytes, err);
}

co_code
__wrap_coi_device_download(co_device *device, void *dst, const coi_buffer *src, size_t offset,
                           size_t nbytes, co_error_info *err)
{
    account_copy(device);
    return __real_coi_device_download(device, dst, src, offset, nbytes, err);
}

co_code
__wrap_coi_device_copy(co_device *to, coi_buffer *dst, size_t dst_offset, co_device *from,
                       const coi_buffer *src, size_t src_offset, size_t nbytes, co_error_info *err)
{
    account_copy(to);
    return __real_coi_device_copy(to, dst, dst_offset, from, src, src_offset, nbytes, err);
}

/* --- messages --- */

static inline void
account_message(void)
{
    account        *a = atomic_load(&account_current);
    account_thread *t;

    if (a == NULL)
        return;
    t = account_here(a);
    pthread_mutex_lock(&a->count);
    ++*(t->senders > 0 ? &a->messages : &a->loose_messages);
    pthread_mutex_unlock(&a->count);
}

static const coi_transport *account_transport; /* the real one */

static inline co_code
account_exchange(coi_group *group, const coi_handshake *mine, coi_handshake *all, int timeout_ms,
                 co_error_info *err)
{
    account_message();
    return account_transport->exchange(group, mine, all, timeout_ms, err);
}

static inline co_code
account_transfer(coi_group *group, const coi_transfer *sends, size_t num_sends,
                 const coi_transfer *receives, size_t num_receives, int timeout_ms,
                 co_error_info *err)
{
    account_message();
    return account_transport->transfer(group, sends, num_sends, receives, num_receives, timeout_ms,
                                       err);
}

/* Count the messages of a strategy from now on. */
static inline void
account_watch(account *a, co_strategy *strategy)
{
    static coi_transport counting;

    a->strategy = strategy;
    if (strategy->group == NULL)
        return;
    a->transport = account_transport = strategy->group->transport;
    counting = *account_transport;
    counting.exchange = account_exchange;
    counting.transfer = account_transfer;
    strategy->group->transport = &counting;
}

/* --- random counters --- */

static inline account_counter *
account_counter_of(account *a, const co_context *ctx)
{
    uint64_t serial = ctx->next_entry >> 32;
    size_t   i = 0;

    while (i < a->num_counters && a->counters[i].serial != serial)
        ++i;
    if (i == ACCOUNT_MOST)
        return NULL;
    if (i == a->num_counters)
        a->counters[a->num_counters++] = (account_counter){ .serial = serial,
                                                            .base = ctx->random_counter,
                                                            .step_base = UINT64_MAX,
                                                            .seeds = a->seeds };
    return &a->counters[i];
}

/* The counter must be where the draws that were seen have moved it. A step begins where its caller
 * is, and moves that one on. */
static inline void
account_check_counter(account *a, const co_context *ctx, uint64_t drawn)
{
    account_counter *c = account_counter_of(a, ctx);
    uint64_t         is = ctx->random_counter, passed;

    if (c == NULL) {
        ++a->num_lost;
        return;
    }
    if (coi_in_replica(ctx) &&
        (c->step_base != ctx->mode.step->origin.random_counter || c->seeds != a->seeds)) {
        c->base = c->step_base = ctx->mode.step->origin.random_counter;
        c->draws = 0;
        c->seeds = a->seeds;
    }
    *(ctx->mode.step != NULL && ctx->mode.cross ? &c->merge_draws : &c->draws) += drawn;
    if (is == c->base + c->draws + c->merge_draws)
        return;
    passed = is - c->base - c->draws;
    if (coi_in_replica(ctx) || passed == 0 || passed % ACCOUNT_CALLS_PER_STEP != 0) {
        fprintf(stderr, "a random counter is %llu; the draws that were observed lead to %llu\n",
                (unsigned long long)is, (unsigned long long)(c->base + c->draws + c->merge_draws));
        ++a->wrong_counters;
    }
    c->base = is;
    c->draws = c->merge_draws = 0;
}

static inline void
account_random(account *a, const co_observation *seen)
{
    const co_context *ctx = seen->context;
    bool              is_composite = seen->kernel != NULL && strcmp(seen->kernel, "composite") == 0;
    /* Of a composite operator the parts draw. */
    bool ended = (seen->writes & CO_RESOURCE_RANDOM) != 0 && seen->phase == CO_OBSERVE_END &&
                 !is_composite;

    if (ended && strcmp(seen->op, "set_seed") == 0) {
        account_counter *c = account_counter_of(a, ctx);

        ++a->seeds;
        if (c != NULL)
            *c = (account_counter){ .serial = c->serial, .seeds = a->seeds };
        ended = false;
    }
    a->draws += ended;
    account_check_counter(a, ctx, ended);
}

/* --- variables --- */

static inline uint64_t
account_hash(co_context *ctx, co_value *variable)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    CO_BLOCK(ctx) {
        co_value            *tensor = co_variable_read(ctx, variable);
        const unsigned char *bytes = NULL;
        size_t               n = 0;

        if (tensor != NULL && co_value_dtype(ctx, tensor) != CO_STRING) {
            bytes = co_value_data(ctx, tensor);
            n = (size_t)co_value_num_elements(ctx, tensor) *
                co_dtype_size(co_value_dtype(ctx, tensor));
        }
        for (size_t i = 0; bytes != NULL && i < n; ++i)
            hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    co_clear(ctx);
    return hash;
}

static inline void
account_write(account *a, co_value *variable)
{
    size_t i = 0;

    while (i < a->num_variables && a->variables[i].variable != variable)
        ++i;
    if (i == ACCOUNT_MOST) {
        ++a->num_lost;
        return;
    }
    if (i == a->num_variables) {
        co_keep(a->beside, variable);
        a->variables[a->num_variables++].variable = variable;
    }
    a->variables[i].hash = account_hash(a->beside, variable);
    ++a->num_writes;
}

/* --- the observer --- */

static inline bool
account_is_collective(const co_observation *seen)
{
    return strcmp(seen->op, "all_reduce") == 0 || strcmp(seen->op, "all_gather") == 0 ||
           strcmp(seen->op, "merge_call") == 0;
}

/* Whether the table has what was started, and says the same of it. */
static inline bool
account_is_entry(const co_observation *seen)
{
    const coi_op *op = coi_op_find(seen->op);

    if (op != NULL && op->reads == seen->reads && op->writes == seen->writes)
        return true;
    fprintf(stderr, "%s was observed, and is no such entry of the table\n", seen->op);
    return false;
}

static inline void
account_note(const co_observation *seen, void *user)
{
    account        *a = user;
    account_thread *t = account_here(a);
    int             step = seen->phase == CO_OBSERVE_BEGIN ? 1 : -1;
    bool            wrote = step < 0 && (seen->writes & CO_RESOURCE_VARIABLE) != 0;

    pthread_mutex_lock(&a->lock);
    t->is_own = true;
    t->depth += step;
    t->senders += (seen->writes & CO_RESOURCE_WORKERS) != 0 ? step : 0;
    a->strangers += !account_is_entry(seen);
    account_explain(a, t, seen);
    account_random(a, seen);
    a->collectives += account_is_collective(seen) && step > 0 && seen->replica >= 0;
    for (size_t i = 0; wrote && i < seen->num_resources; ++i)
        account_write(a, (co_value *)(uintptr_t)seen->resources[i]);
    t->is_own = false;
    pthread_mutex_unlock(&a->lock);
}

static inline bool
account_begin(account *a, co_context *ctx)
{
    memset(a, 0, sizeof(*a));
    pthread_mutex_init(&a->lock, NULL);
    pthread_mutex_init(&a->count, NULL);
    a->observed = ctx;
    a->beside = co_open_beside(ctx);
    a->observer = co_observe(ctx, account_note, a);
    a->requests = account_requests(a->beside);
    atomic_store(&account_current, a);
    account_check_counter(a, ctx, 0);
    return a->beside != NULL && a->observer != NULL;
}

static inline void
account_count_arrivals(const co_flight_record *record, void *user)
{
    if (!record->between_ranks)
        *(int64_t *)user += record->arrived;
}

/* Print a comparison that fails; how many things that is. */
static inline size_t
account_expect(bool ok, const char *what, int64_t happened, int64_t seen)
{
    if (!ok)
        fprintf(stderr, "%s: %lld, and %lld were observed\n", what, (long long)happened,
                (long long)seen);
    return !ok;
}

static inline size_t
account_end_variables(account *a)
{
    size_t wrong = 0;

    for (size_t i = 0; i < a->num_variables; ++i) {
        if (account_hash(a->beside, a->variables[i].variable) != a->variables[i].hash) {
            fprintf(stderr, "variable '%s' has changed since the last write that was observed\n",
                    co_variable_name(a->beside, a->variables[i].variable));
            ++wrong;
        }
        co_release(a->beside, a->variables[i].variable);
    }
    return wrong;
}

/* How many things happened that the observer was not told of; each is printed. NULL: no strategy.
 */
static inline size_t
account_end(account *a, co_context *ctx, co_strategy *strategy)
{
    int64_t arrivals = 0, requests;
    size_t  wrong;

    pthread_mutex_lock(&a->count); /* threads that prefetch go on */
    requests = account_requests(a->beside) - a->requests;
    atomic_store(&account_current, NULL);
    pthread_mutex_unlock(&a->count);
    co_unobserve(ctx, a->observer);
    wrong = a->num_lost + a->strangers;
    if (a->transport != NULL)
        a->strategy->group->transport = a->transport;
    account_check_counter(a, ctx, 0);
    wrong += a->wrong_counters + account_end_variables(a);
    if (strategy != NULL)
        co_flight_visit(a->beside, strategy, account_count_arrivals, &arrivals);
    wrong += account_expect(arrivals <= a->collectives, "arrivals of replicas at a rendezvous",
                            arrivals, a->collectives);
    wrong += account_expect(a->loose_blocks == 0, "blocks of pools that no entry took",
                            a->loose_blocks, 0);
    wrong += account_expect(requests == a->blocks + a->own_blocks + a->loose_blocks,
                            "blocks by the statistics of pools", requests,
                            a->blocks + a->own_blocks + a->loose_blocks);
    wrong += account_expect(a->loose_copies == 0, "copies between devices outside entries",
                            a->loose_copies, 0);
    wrong += account_expect(a->loose_messages == 0, "messages outside entries of workers",
                            a->loose_messages, 0);
    co_clear(a->beside);
    co_close(a->beside);
    pthread_mutex_destroy(&a->lock); /* `count` stays: a thread that prefetches may be at it */
    return wrong;
}

#endif
