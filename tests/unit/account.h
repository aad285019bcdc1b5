/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether anything goes round the executor. An observer keeps account of what it is told: for every
 * variable a hash of what it held after the last write that was seen, how often replicas started a
 * collective, how often a random counter moved. Afterwards that is compared with what really is
 * there, counted by somebody else: the contents of the variables, the flight recorder of the
 * strategy, the counter itself. With public calls alone.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <cohort/cohort.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { ACCOUNT_MOST = 4096 };

typedef struct account_entry {
    co_value *variable; /* kept */
    uint64_t  hash;
} account_entry;

typedef struct account {
    co_context     *beside; /* reads variables; one thread at a time, under the lock */
    co_observer    *observer;
    pthread_mutex_t lock;
    size_t          num_variables, num_writes, num_lost; /* the last: more than there is room for */
    account_entry   variables[ACCOUNT_MOST];
    int64_t         collectives; /* starts, by replicas */
    int64_t         draws;       /* of random numbers */
} account;

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

static inline void
account_note(const co_observation *seen, void *user)
{
    account *a = user;
    bool     is_collective = strcmp(seen->op, "all_reduce") == 0 ||
                         strcmp(seen->op, "all_gather") == 0 || strcmp(seen->op, "merge_call") == 0;
    bool wrote = seen->phase == CO_OBSERVE_END && (seen->writes & CO_RESOURCE_VARIABLE) != 0;

    if (wrote || is_collective || (seen->writes & CO_RESOURCE_RANDOM) != 0) {
        pthread_mutex_lock(&a->lock);
        a->collectives += is_collective && seen->phase == CO_OBSERVE_BEGIN && seen->replica >= 0;
        a->draws += (seen->writes & CO_RESOURCE_RANDOM) != 0 && seen->phase == CO_OBSERVE_END;
        for (size_t i = 0; wrote && i < seen->num_resources; ++i)
            account_write(a, (co_value *)(uintptr_t)seen->resources[i]);
        pthread_mutex_unlock(&a->lock);
    }
}

static inline bool
account_begin(account *a, co_context *ctx)
{
    memset(a, 0, sizeof(*a));
    pthread_mutex_init(&a->lock, NULL);
    a->beside = co_open_beside(ctx);
    a->observer = co_observe(ctx, account_note, a);
    return a->beside != NULL && a->observer != NULL;
}

static inline void
account_count_arrivals(const co_flight_record *record, void *user)
{
    if (!record->between_ranks)
        *(int64_t *)user += record->arrived;
}

/* How many things happened that the observer was not told of; each is printed. NULL: no strategy.
 */
static inline size_t
account_end(account *a, co_context *ctx, co_strategy *strategy)
{
    size_t  wrong = a->num_lost;
    int64_t arrivals = 0;

    co_unobserve(ctx, a->observer);
    for (size_t i = 0; i < a->num_variables; ++i) {
        if (account_hash(a->beside, a->variables[i].variable) != a->variables[i].hash) {
            fprintf(stderr, "variable '%s' has changed since the last write that was observed\n",
                    co_variable_name(a->beside, a->variables[i].variable));
            ++wrong;
        }
        co_release(a->beside, a->variables[i].variable);
    }
    if (strategy != NULL)
        co_flight_visit(a->beside, strategy, account_count_arrivals, &arrivals);
    if (arrivals > a->collectives) {
        fprintf(stderr, "replicas came %lld times to a rendezvous, and %lld starts were observed\n",
                (long long)arrivals, (long long)a->collectives);
        ++wrong;
    }
    co_clear(a->beside);
    co_close(a->beside);
    pthread_mutex_destroy(&a->lock);
    return wrong;
}

#endif
