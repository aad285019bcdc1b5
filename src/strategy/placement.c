/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a strategy from a placement, which says where each replica lives and its share of a batch.
 * Constructors share the checks below; the built-in ones are in builtin_strategies.c, those of
 * users in custom_strategy.c.
 */
#include "strategy/placement.h"

#include "strategy/replica_threads.h"
#include "strategy/strategy_hooks.h"

#include <string.h>

static void
destroy_strategy(coi_heap *heap, void *object)
{
    co_strategy *strategy = object;
    coi_memory  *memory = &strategy->runtime->memory;

    coi_replica_threads_free(strategy);
    coi_recorder_free(memory, strategy->recorder);
    if (strategy->group != NULL)
        coi_group_close(strategy->group);
    coi_free(memory, strategy->devices, (size_t)strategy->num_local * sizeof(*strategy->devices));
    coi_free(memory, strategy->first,
             ((size_t)strategy->num_workers + 1) * sizeof(*strategy->first));
    coi_free(memory, strategy->weights,
             (size_t)strategy->num_replicas * sizeof(*strategy->weights));
    if (strategy->custom != NULL)
        coi_custom_free(strategy);
    coi_object_free(heap, strategy, sizeof(*strategy));
}

static const char *
describe(const void *object, char out[COI_OBJECT_TEXT])
{
    return coi_strategy_text(object, out);
}

const coi_class coi_strategy_class = { "strategy", destroy_strategy, describe };

/* --- weights --- */

/* What may be set: count and range. The sum is an int, so that shares are computed without
 * overflow. */
static bool
check_weights(co_context *ctx, const coi_placement *where)
{
    int64_t sum = 0;

    if ((where->weights == NULL ? 0 : (size_t)where->num_replicas) != where->num_weights) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "num_weights is %zu with weights that are %s; there must be one for each of %d "
                 "replicas, or NULL and 0 for equal shares",
                 where->num_weights, where->weights == NULL ? "NULL" : "given",
                 where->num_replicas);
        return false;
    }
    for (size_t i = 0; i < where->num_weights; ++i) {
        int64_t weight = where->weights[i];

        if (weight < 1 || weight > INT32_MAX - sum) {
            coi_fail(
                ctx, CO_VALUE_ERROR,
                "the weight of replica %zu is %lld; weights are at least 1 and add up to at most "
                "%d (so far %lld): divide them all by the same number",
                i, (long long)weight, INT32_MAX, (long long)sum);
            return false;
        }
        sum += weight;
    }
    return true;
}

static int64_t
common_factor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Without their common factor, so that 2, 4 and 1, 2 are one; equal ones are none at all. False
 * without memory. */
static bool
keep_weights(co_strategy *strategy, const coi_placement *where)
{
    int64_t factor = 0;
    bool    equal = true;

    for (size_t i = 0; i < where->num_weights; ++i) {
        factor = common_factor(factor, where->weights[i]);
        equal = equal && where->weights[i] == where->weights[0];
    }
    if (equal)
        return true;
    strategy->weights = coi_alloc(&strategy->runtime->memory,
                                  where->num_weights * sizeof(*strategy->weights));
    for (size_t i = 0; strategy->weights != NULL && i < where->num_weights; ++i)
        strategy->weights[i] = where->weights[i] / factor;
    return strategy->weights != NULL;
}

/* --- making --- */

/* first[r]: how many replicas the ranks before r host. False with an error: a table of workers that
 * is out of order, or leaves one out or with too many. */
static bool
fill_first(co_context *ctx, co_strategy *strategy, const coi_placement *where)
{
    int *first = strategy->first, n = where->num_replicas, at = 0;

    for (int r = 0; r <= where->num_workers; ++r) {
        first[r] = where->workers == NULL ? (int)((int64_t)n * r / where->num_workers) : at;
        while (where->workers != NULL && at < n && where->workers[at] == r)
            ++at;
    }
    if (where->workers != NULL && first[where->num_workers] != n) {
        at = first[where->num_workers];
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "replica %d is placed on worker %d of %d; workers are counted from 0, and replicas "
            "are placed in the order of their workers",
            at, where->workers[at], where->num_workers);
        return false;
    }
    for (int r = 0; r < where->num_workers; ++r)
        if (first[r + 1] - first[r] < 1 || first[r + 1] - first[r] > COI_MAX_LOCAL_REPLICAS) {
            coi_fail(ctx, CO_VALUE_ERROR, "worker %d has %d replica%s; each of %d has 1 to %d", r,
                     first[r + 1] - first[r], COI_S(first[r + 1] - first[r]), where->num_workers,
                     COI_MAX_LOCAL_REPLICAS);
            return false;
        }
    return true;
}

/* Replica i of n on device i * d / n: even and in order. A table of workers comes with a name for
 * each of their replicas. */
static bool
fill_tables(co_context *ctx, co_strategy *strategy, const coi_placement *where)
{
    coi_memory *memory = &strategy->runtime->memory;

    strategy->first = coi_alloc(memory,
                                ((size_t)where->num_workers + 1) * sizeof(*strategy->first));
    if (strategy->first != NULL) {
        if (!fill_first(ctx, strategy, where))
            return false;
        strategy->first_local = strategy->first[where->worker];
        strategy->num_local = strategy->first[where->worker + 1] - strategy->first_local;
        strategy->devices = coi_calloc(memory,
                                       (size_t)strategy->num_local * sizeof(*strategy->devices));
    }
    if (where->num_replicas > 1)
        strategy->recorder = coi_recorder_new(memory);
    if (strategy->devices == NULL || (where->num_replicas > 1 && strategy->recorder == NULL) ||
        !keep_weights(strategy, where)) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the placement of %d replicas",
                 where->num_replicas);
        return false;
    }
    for (int i = 0; i < strategy->num_local; ++i)
        strategy->devices[i] =
            where->devices[(size_t)i * where->num_devices / (size_t)strategy->num_local];
    return true;
}

co_strategy *
coi_strategy_make(co_context *ctx, const coi_policy *policy, const coi_placement *where)
{
    co_strategy *strategy;

    if (!check_weights(ctx, where))
        return NULL;
    strategy = coi_object_new(&ctx->heap, &coi_strategy_class, sizeof(*strategy));
    if (strategy == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a strategy");
        return NULL;
    }
    strategy->policy = policy;
    strategy->runtime = ctx->runtime;
    strategy->serial = atomic_fetch_add(&ctx->runtime->next_serial, 1);
    strategy->num_replicas = where->num_replicas;
    strategy->worker = where->worker;
    strategy->num_workers = where->num_workers;
    strategy->deadline_ms = where->deadline_ms;
    strategy->comm.timeout_ms = coi_timeout(strategy);
    coi_lock_init(&strategy->lock);
    coi_event_init(&strategy->token_released);
    if (fill_tables(ctx, strategy, where))
        return strategy;
    coi_unref(&ctx->heap, strategy);
    return NULL;
}

/* A device of another job needs its task (MIR-INIT-3). */
static bool
names_task(co_context *ctx, const char *text)
{
    coi_device_name raw;

    if (coi_device_parse(text, &raw, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return false;
    }
    if (raw.job[0] == '\0' || strcmp(raw.job, "localhost") == 0 || raw.task >= 0)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR, "device '%s' names job '%s' and no task; add /task:N", text,
             raw.job);
    return false;
}

/* Names given by the user, resolved; MIR-INIT-2, MIR-INIT-3. */
static bool
resolve_devices(co_context *ctx, const char *const *devices, size_t n, coi_device_name *out)
{
    for (size_t i = 0; i < n; ++i) {
        char text[CO_DEVICE_NAME_MAX];

        if (devices[i] == NULL) {
            coi_fail(ctx, CO_VALUE_ERROR,
                     "device %zu of %zu is NULL; name each, or give none for all devices there are",
                     i, n);
            return false;
        }
        if (!names_task(ctx, devices[i]) || coi_resolve_name(ctx, devices[i], &out[i]) != CO_OK)
            return false;
        for (size_t j = 0; j < i; ++j)
            if (coi_device_name_equal(&out[i], &out[j])) {
                coi_devices_format(ctx->runtime->devices, &out[i], text);
                coi_fail(ctx, CO_ASSERTION_ERROR,
                         "%s is given twice; use num_replicas for several replicas on a device",
                         text);
                return false;
            }
        if (strcmp(out[i].job, out[0].job) != 0 || out[i].task != out[0].task ||
            out[i].replica != out[0].replica) {
            bool local = strcmp(out[i].job, "localhost") == 0 ||
                         strcmp(out[0].job, "localhost") == 0;

            coi_fail(
                ctx,
                local && strcmp(out[i].job, out[0].job) != 0 ? CO_VALUE_ERROR : CO_RUNTIME_ERROR,
                "devices '%s' and '%s' belong to different workers; MirroredStrategy runs in one process, "
                "co_multi_worker_mirrored_strategy in several",
                devices[0], devices[i]);
            return false;
        }
    }
    return true;
}

/* All GPUs, or else all CPUs (MIR-INIT-1). */
static size_t
all_devices(co_context *ctx, coi_device_name *out, size_t capacity)
{
    coi_devices *devices = ctx->runtime->devices;
    const char  *type = coi_devices_of_type(devices, "GPU", 0) != NULL ? "GPU" : "CPU";
    co_device   *device;
    size_t       n = 0;

    while (n < capacity && (device = coi_devices_of_type(devices, type, n)) != NULL)
        out[n++] = device->id;
    return n;
}

size_t
coi_choose_devices(co_context *ctx, const char *const *devices, size_t n,
                   coi_device_name out[COI_MAX_LOCAL_REPLICAS])
{
    if (n == 0)
        return all_devices(ctx, out, COI_MAX_LOCAL_REPLICAS);
    if (devices == NULL) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "devices is NULL and num_devices is %zu; name the devices, or give NULL and 0 for "
                 "all there are (num_replicas of the options says how many replicas they share)",
                 n);
        return 0;
    }
    if (n > COI_MAX_LOCAL_REPLICAS) {
        coi_fail(ctx, CO_VALUE_ERROR, "num_devices is %zu; it must be at most %d in one process", n,
                 COI_MAX_LOCAL_REPLICAS);
        return 0;
    }
    return resolve_devices(ctx, devices, n, out) ? n : 0;
}

bool
coi_check_replicas(co_context *ctx, int num_replicas, size_t num_places, const char *place,
                   size_t num_processes)
{
    size_t most = num_processes * COI_MAX_LOCAL_REPLICAS;

    if (num_replicas == 0)
        return true;
    if (num_replicas < 0 || (size_t)num_replicas > most || (size_t)num_replicas < num_places) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "num_replicas is %d; with %zu %s%s it must be 0 (one each) or from %zu to %zu",
                 num_replicas, num_places, place,
                 place[strlen(place) - 1] == 's' ? COI_ES(num_places) : COI_S(num_places),
                 num_places, most);
        return false;
    }
    return true;
}

bool
coi_check_deadline(co_context *ctx, int *deadline_ms)
{
    if (*deadline_ms == CO_DEADLINE_OF_SETTINGS)
        *deadline_ms = ctx->runtime->settings.deadline_ms;
    if (*deadline_ms >= 0)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "deadline_ms is %d; it must be a time, 0 (none) or CO_DEADLINE_OF_SETTINGS",
             *deadline_ms);
    return false;
}
