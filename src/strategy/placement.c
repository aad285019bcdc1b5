/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making strategies: each constructor fills the same table of placement, which replica lives where
 * and how much of a batch it takes, and names its policy. The built-in ones are here, those of
 * users in own.c.
 */
#include <cohort/extended.h>

#include "strategy/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const coi_policy default_policy = { .name = "DefaultStrategy", .is_default = true };
static const coi_policy one_device_policy = { .name = "OneDeviceStrategy" };
static const coi_policy mirrored_policy = { .name = "MirroredStrategy", .wraps_values = true };
static const coi_policy multi_worker_policy = { .name = "MultiWorkerMirroredStrategy",
                                                .wraps_values = true,
                                                .workers = true };

bool
coi_is_builtin(const char *name)
{
    const coi_policy *const all[] = { &default_policy, &one_device_policy, &mirrored_policy,
                                      &multi_worker_policy };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i)
        if (strcmp(name, all[i]->name) == 0)
            return true;
    return false;
}

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
    if (strategy->own != NULL)
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
    coi_event_init(&strategy->turn_given);
    if (fill_tables(ctx, strategy, where))
        return strategy;
    coi_unref(&ctx->heap, strategy);
    return NULL;
}

/* One replica on one device. */
static co_strategy *
make_alone(co_context *ctx, const coi_policy *policy, const coi_device_name *device)
{
    coi_placement where = { .num_replicas = 1,
                            .num_workers = 1,
                            .devices = device,
                            .num_devices = 1,
                            .deadline_ms = ctx->runtime->settings.deadline_ms };

    return coi_strategy_make(ctx, policy, &where);
}

co_strategy *
coi_default_strategy(co_context *ctx, bool is_v1)
{
    coi_runtime  *runtime;
    co_strategy **place, *strategy;

    if (ctx == NULL)
        return NULL;
    runtime = ctx->runtime;
    place = is_v1 ? &runtime->v1_default_strategy : &runtime->default_strategy;
    if (coi_is_forked(&ctx->heap)) /* the lock may be held for ever */
        return *place;
    pthread_mutex_lock(&runtime->lock);
    if (*place == NULL) {
        coi_device_name nowhere = { .replica = -1, .task = -1, .index = -1 };

        coi_device_complete(&nowhere, NULL);
        *place = make_alone(ctx, &default_policy, &nowhere);
        if (*place != NULL)
            (*place)->is_v1 = is_v1;
    }
    strategy = *place;
    pthread_mutex_unlock(&runtime->lock);
    return strategy;
}

co_strategy *
co_default_strategy(co_context *ctx)
{
    return coi_default_strategy(ctx, false);
}

co_strategy *
co_one_device_strategy(co_context *ctx, const char *device)
{
    coi_device_name id;
    co_strategy    *strategy;

    COI_ENTER(ctx, "one_device_strategy", NULL);
    if (coi_resolve_name(ctx, device, &id) != CO_OK)
        return NULL;
    strategy = make_alone(ctx, &one_device_policy, &id);
    return strategy != NULL ? coi_own(ctx, strategy) : NULL;
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
                coi_device_format(&out[i], text);
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

/* MIR-CDO-1. */
static bool
check_cross_device_ops(co_context *ctx, const co_mirrored_options *options)
{
    if ((unsigned)options->cross_device_ops > CO_CROSS_DEVICE_RING)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "cross_device_ops is %d; it must be CO_CROSS_DEVICE_AUTO or another of its kind",
                 (int)options->cross_device_ops);
    else if (options->num_packs < 0)
        coi_fail(ctx, CO_VALUE_ERROR, "num_packs is %d; it must be at least 0", options->num_packs);
    return ctx->error.code == CO_OK;
}

co_strategy *
co_mirrored_strategy(co_context *ctx, const char *const *devices, size_t num_devices,
                     const co_mirrored_options *options)
{
    co_mirrored_options all = CO_MIRRORED_OPTIONS_INIT;
    coi_device_name     ids[COI_MAX_LOCAL_REPLICAS];
    coi_placement       where = { .num_workers = 1, .devices = ids };
    co_strategy        *strategy;

    COI_ENTER(ctx, "mirrored_strategy", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4) ||
        !coi_check_deadline(ctx, &all.deadline_ms) || !check_cross_device_ops(ctx, &all))
        return NULL;
    where.num_devices = coi_choose_devices(ctx, devices, num_devices, ids);
    if (where.num_devices == 0 ||
        !coi_check_replicas(ctx, all.num_replicas, where.num_devices, "device", 1))
        return NULL;
    if (all.num_replicas > COI_MAX_LOCAL_REPLICAS) {
        coi_fail(ctx, CO_VALUE_ERROR, "num_replicas is %d; one process has at most %d",
                 all.num_replicas, COI_MAX_LOCAL_REPLICAS);
        return NULL;
    }
    where.num_replicas = all.num_replicas > 0 ? all.num_replicas : (int)where.num_devices;
    where.weights = all.weights;
    where.num_weights = all.num_weights;
    where.deadline_ms = all.deadline_ms;
    strategy = coi_strategy_make(ctx, &mirrored_policy, &where);
    if (strategy == NULL)
        return NULL;
    strategy->cross_device_ops = all.cross_device_ops;
    return coi_own(ctx, strategy);
}

/* --- several processes --- */

/* Who comes with TF_CONFIG expects the cluster in it (MW-1); alone, the process would train by
 * itself and not say so. */
static void
explain_cluster(coi_log *log, int num_processes)
{
    const char *config = secure_getenv("TF_CONFIG");

    if (config != NULL && config[0] != '\0')
        coi_log_line(
            log, num_processes == 1 ? CO_LOG_WARNING : CO_LOG_INFO,
            "TF_CONFIG is set but not read: the cluster comes from MPI, which has %d process%s here; "
            "start the program with 'mpirun -n PROCESSES PROGRAM'",
            num_processes, num_processes == 1 ? "" : "es");
}

coi_group *
coi_open_group(co_context *ctx, const char *transport, const void *communicator, int deadline_ms)
{
    coi_group_options how = { .communicator = communicator,
                              .memory = &ctx->runtime->memory,
                              .log = &ctx->runtime->log,
                              .waiting = &ctx->runtime->waiting,
                              .deadline_ms = deadline_ms };
    coi_group        *group;

    if (transport == NULL)
        transport = communicator != NULL || coi_mpi_launched() ? "mpi" : "self";
    if (coi_group_open(transport, &how, &group, coi_err(ctx)) == CO_OK) {
        if (group->size <= COI_MAX_WORKERS) {
            explain_cluster(&ctx->runtime->log, group->size);
            return group;
        }
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "the group has %d processes; a strategy has at most %d, start fewer or split the communicator",
            group->size, COI_MAX_WORKERS);
        coi_group_close(group);
        return NULL;
    }
    coi_failed(ctx);
    return NULL;
}

/* Every rank splits batches and sums by the whole table, so all must have the same. */
static bool
agree(co_context *ctx, co_strategy *strategy)
{
    char     text[64];
    uint64_t hash = coi_sign(COI_SIGNATURE, (uint64_t)strategy->num_replicas);

    for (int r = 0; r <= strategy->num_workers; ++r)
        hash = coi_sign(hash, (uint64_t)strategy->first[r]);
    for (int i = 0; strategy->weights != NULL && i < strategy->num_replicas; ++i)
        hash = coi_sign(hash, (uint64_t)strategy->weights[i]);
    snprintf(text, sizeof(text), "%d replica%s (%d here), %s %llx", strategy->num_replicas,
             COI_S(strategy->num_replicas), strategy->num_local,
             strategy->weights != NULL ? "weights" : "equal weights",
             (unsigned long long)hash & 0xffffff);
    return coi_workers_agree(ctx, strategy, COI_RENDEZVOUS_STRATEGY, hash, text, 0, NULL);
}

co_strategy *
coi_strategy_join(co_context *ctx, const coi_policy *policy, const coi_placement *where,
                  coi_group *group)
{
    co_strategy *strategy = coi_strategy_make(ctx, policy, where);

    if (strategy == NULL || group->size == 1) {
        coi_group_close(group);
        return strategy;
    }
    strategy->group = group;
    ctx->rank = group->rank;
    if (agree(ctx, strategy))
        return strategy;
    coi_unref(&ctx->heap, strategy);
    return NULL;
}

co_strategy *
co_multi_worker_mirrored_strategy(co_context *ctx, const co_multi_worker_mirrored_options *options)
{
    co_multi_worker_mirrored_options all = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    co_communication_options         communication;
    coi_device_name                  ids[COI_MAX_LOCAL_REPLICAS];
    coi_placement                    where = { .devices = ids };
    coi_group                       *group;
    co_strategy                     *strategy;

    COI_ENTER(ctx, "multi_worker_strategy", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 2) ||
        !coi_check_deadline(ctx, &all.deadline_ms) ||
        !coi_take_communication(ctx, &communication, all.communication, 2) ||
        (group = coi_open_group(ctx, all.transport, all.communicator, all.deadline_ms)) == NULL)
        return NULL;
    where.num_devices = coi_choose_devices(ctx, all.devices, all.num_devices, ids);
    if (where.num_devices == 0 || !coi_check_replicas(ctx, all.num_replicas, (size_t)group->size,
                                                      "process", (size_t)group->size)) {
        coi_group_close(group);
        return NULL;
    }
    where.num_replicas = all.num_replicas > 0 ? all.num_replicas
                                              : (int)where.num_devices * group->size;
    where.worker = group->rank;
    where.num_workers = group->size;
    where.weights = all.weights;
    where.num_weights = all.num_weights;
    where.deadline_ms = all.deadline_ms;
    strategy = coi_strategy_join(ctx, &multi_worker_policy, &where, group);
    if (strategy == NULL)
        return NULL;
    coi_comm_options_set(&strategy->comm, &communication);
    return coi_own(ctx, strategy);
}

/* --- properties --- */

const char *
co_strategy_name(co_context *ctx, co_strategy *strategy)
{
    COI_ENTER(ctx, "strategy_name", "");
    return coi_check_object(ctx, strategy, &coi_strategy_class, 2, "strategy")
               ? strategy->policy->name
               : "";
}

static int
property(co_context *ctx, co_strategy *strategy, const char *call, size_t offset)
{
    COI_ENTER(ctx, call, 0);
    if (!coi_check_object(ctx, strategy, &coi_strategy_class, 2, "strategy"))
        return 0;
    return *(const int *)(const void *)((const char *)strategy + offset);
}

int
co_num_replicas_in_sync(co_context *ctx, co_strategy *strategy)
{
    return property(ctx, strategy, "num_replicas_in_sync", offsetof(co_strategy, num_replicas));
}

int
co_num_local_replicas(co_context *ctx, co_strategy *strategy)
{
    return property(ctx, strategy, "num_local_replicas", offsetof(co_strategy, num_local));
}

int
co_worker_id(co_context *ctx, co_strategy *strategy)
{
    return property(ctx, strategy, "worker_id", offsetof(co_strategy, worker));
}

int
co_num_workers(co_context *ctx, co_strategy *strategy)
{
    return property(ctx, strategy, "num_workers", offsetof(co_strategy, num_workers));
}

/* The name of a local device as the cluster sees it (MW-6). */
static void
cluster_name(const co_strategy *strategy, int replica, char out[CO_DEVICE_NAME_MAX])
{
    coi_device_name id = strategy->devices[replica];

    if (strategy->num_workers > 1) {
        snprintf(id.job, sizeof(id.job), "worker");
        id.task = strategy->worker;
    }
    coi_device_format(&id, out);
}

/* Whether a replica before this one is on the same device. */
static bool
is_earlier(const co_strategy *strategy, int replica)
{
    for (int i = 0; i < replica; ++i)
        if (coi_device_name_equal(&strategy->devices[i], &strategy->devices[replica]))
            return true;
    return false;
}

/* Each device once, in order: several replicas may share one. */
static co_value *
device_names(co_context *ctx, co_strategy *strategy, const char *call)
{
    co_value *names[COI_MAX_LOCAL_REPLICAS];
    size_t    n = 0;

    COI_ENTER(ctx, call, NULL);
    if (!coi_check_strategy(ctx, strategy, 2))
        return NULL;
    if (strategy->policy->is_default) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "the default strategy has no devices of its own; co_current_device tells");
        return NULL;
    }
    for (int i = 0; i < strategy->num_local; ++i) {
        char text[CO_DEVICE_NAME_MAX];

        if (is_earlier(strategy, i))
            continue;
        cluster_name(strategy, i, text);
        names[n] = co_string(ctx, text);
        if (names[n++] == NULL)
            return NULL;
    }
    return co_tuple(ctx, names, n);
}

co_value *
co_worker_devices(co_context *ctx, co_strategy *strategy)
{
    return device_names(ctx, strategy, "worker_devices");
}

co_value *
co_parameter_devices(co_context *ctx, co_strategy *strategy)
{
    return device_names(ctx, strategy, "parameter_devices");
}

/* DEF-11: the variable with the smallest name. */
static co_value *
smallest_variable(co_context *ctx, co_value *variables)
{
    co_value *first = NULL;

    if (!coi_check_value(ctx, variables, 3, "variables"))
        return NULL;
    for (size_t i = 0; coi_is_structure(variables) && i < variables->u.items.n; ++i) {
        co_value *variable = variables->u.items.items[i];

        if (coi_is_variable(variable) &&
            (first == NULL || strcmp(variable->u.variable->name, first->u.variable->name) < 0))
            first = variable;
    }
    if (first == NULL) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "argument 3 (variables) of non_slot_devices holds no variable; under the default strategy it "
            "chooses one of them");
        return NULL;
    }
    return coi_own_ref(ctx, first);
}

co_value *
co_non_slot_devices(co_context *ctx, co_strategy *strategy, co_value *variables)
{
    COI_ENTER(ctx, "non_slot_devices", NULL);
    if (coi_check_strategy(ctx, strategy, 2) && strategy->policy->is_default)
        return smallest_variable(ctx, variables);
    return device_names(ctx, strategy, "non_slot_devices");
}

co_strategy *
co_extended(co_context *ctx, co_strategy *strategy)
{
    COI_ENTER(ctx, "extended", NULL);
    return coi_check_strategy(ctx, strategy, 2) ? strategy : NULL;
}

co_value *
co_cluster_resolver(co_context *ctx, co_strategy *strategy)
{
    static const char *const fields[] = { "task_type", "task_id", "num_workers" };

    co_value *items[3];

    COI_ENTER(ctx, "cluster_resolver", NULL);
    if (!coi_check_strategy(ctx, strategy, 2))
        return NULL;
    if (!strategy->policy->workers)
        return co_none(ctx);
    items[0] = co_string(ctx, "worker");
    items[1] = co_int(ctx, strategy->worker);
    items[2] = co_int(ctx, strategy->num_workers);
    return co_named_tuple(ctx, "ClusterResolver", fields, items, 3);
}

/* The flags of section 13.1. */
static bool
is_chief(co_context *ctx, co_strategy *strategy, const char *call)
{
    COI_ENTER(ctx, call, false);
    return coi_check_strategy(ctx, strategy, 2) && strategy->worker == 0;
}

bool
co_should_checkpoint(co_context *ctx, co_strategy *strategy)
{
    return is_chief(ctx, strategy, "should_checkpoint");
}

bool
co_should_save_summary(co_context *ctx, co_strategy *strategy)
{
    return is_chief(ctx, strategy, "should_save_summary");
}

bool
co_require_static_shapes(co_context *ctx, co_strategy *strategy)
{
    COI_ENTER(ctx, "require_static_shapes", false);
    coi_check_strategy(ctx, strategy, 2);
    return false;
}

/* Two flags of the older API; the default strategy never had them (DEF-14). */
static bool
older_flag(co_context *ctx, co_strategy *strategy, const char *call, bool with_workers)
{
    COI_ENTER(ctx, call, false);
    if (!coi_check_strategy(ctx, strategy, 2))
        return false;
    if (strategy->policy->is_default) {
        coi_fail(ctx, CO_UNIMPLEMENTED,
                 "the default strategy has no %s; ask a strategy that you made", call);
        return false;
    }
    return !with_workers || strategy->policy->workers;
}

bool
co_should_init(co_context *ctx, co_strategy *strategy)
{
    return older_flag(ctx, strategy, "should_init", false);
}

bool
co_between_graph(co_context *ctx, co_strategy *strategy)
{
    return older_flag(ctx, strategy, "between_graph", true);
}
