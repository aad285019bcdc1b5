/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making strategies: each constructor fills the same table of placement, which replica lives where, and names its policy.
 */
#include <cohort/extended.h>

#include "strategy/strategy.h"

#include <stdio.h>
#include <string.h>

static const coi_policy default_policy = { .name = "DefaultStrategy", .is_default = true };
static const coi_policy one_device_policy = { .name = "OneDeviceStrategy" };
static const coi_policy mirrored_policy = { .name = "MirroredStrategy", .bundles = true };
static const coi_policy multi_worker_policy = { .name = "MultiWorkerMirroredStrategy",
                                                .bundles = true,
                                                .workers = true };

static void
destroy_strategy(coi_heap *heap, void *object)
{
    co_strategy *strategy = object;
    coi_memory  *memory = &strategy->runtime->memory;

    coi_crews_free(strategy);
    if (strategy->group != NULL)
        coi_group_close(strategy->group);
    coi_free(memory, strategy->devices, (size_t)strategy->num_local * sizeof(*strategy->devices));
    coi_free(memory, strategy->first,
             ((size_t)strategy->num_workers + 1) * sizeof(*strategy->first));
    coi_object_free(heap, strategy, sizeof(*strategy));
}

static const char *
describe(const void *object, char out[COI_OBJECT_TEXT])
{
    return coi_strategy_text(object, out);
}

const coi_class coi_strategy_class = { "strategy", destroy_strategy, describe };

/* A strategy with room for its tables; replicas are spread evenly and in order over workers. */
static co_strategy *
new_strategy(co_context *ctx, const coi_policy *policy, int num_replicas, int worker,
             int num_workers)
{
    coi_memory  *memory = &ctx->runtime->memory;
    co_strategy *strategy = coi_object_new(&ctx->heap, &coi_strategy_class, sizeof(*strategy));

    if (strategy == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a strategy");
        return NULL;
    }
    strategy->policy = policy;
    strategy->runtime = ctx->runtime;
    strategy->serial = atomic_fetch_add(&ctx->runtime->next_serial, 1);
    strategy->num_replicas = num_replicas;
    strategy->worker = worker;
    strategy->num_workers = num_workers;
    strategy->deadline_ms = ctx->runtime->settings.deadline_ms;
    coi_lock_init(&strategy->lock);
    coi_lock_init(&strategy->worker_lock);
    strategy->first = coi_alloc(memory, ((size_t)num_workers + 1) * sizeof(*strategy->first));
    for (int r = 0; strategy->first != NULL && r <= num_workers; ++r)
        strategy->first[r] = (int)((int64_t)num_replicas * r / num_workers);
    if (strategy->first != NULL) {
        strategy->first_local = strategy->first[worker];
        strategy->num_local = strategy->first[worker + 1] - strategy->first[worker];
        strategy->devices = coi_calloc(memory,
                                       (size_t)strategy->num_local * sizeof(*strategy->devices));
    }
    if (strategy->devices == NULL) {
        coi_unref(&ctx->heap, strategy);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the placement of %d replicas",
                 num_replicas);
        return NULL;
    }
    return strategy;
}

co_strategy *
co_default_strategy(co_context *ctx)
{
    coi_runtime *runtime;
    co_strategy *strategy;

    if (ctx == NULL)
        return NULL;
    runtime = ctx->runtime;
    pthread_mutex_lock(&runtime->lock);
    strategy = runtime->default_strategy;
    if (strategy == NULL) {
        strategy = new_strategy(ctx, &default_policy, 1, 0, 1);
        if (strategy != NULL)
            coi_device_complete(&strategy->devices[0], NULL);
        runtime->default_strategy = strategy;
    }
    pthread_mutex_unlock(&runtime->lock);
    return strategy;
}

co_strategy *
co_one_device_strategy(co_context *ctx, const char *device)
{
    coi_device_name id;
    co_strategy    *strategy;

    COI_ENTER(ctx, "one_device_strategy", NULL);
    if (coi_resolve_name(ctx, device, &id) != CO_OK)
        return NULL;
    strategy = new_strategy(ctx, &one_device_policy, 1, 0, 1);
    if (strategy == NULL)
        return NULL;
    strategy->devices[0] = id;
    return coi_own(ctx, strategy);
}

static bool
same_device(const coi_device_name *a, const coi_device_name *b)
{
    return strcmp(a->job, b->job) == 0 && a->replica == b->replica && a->task == b->task &&
           strcmp(a->type, b->type) == 0 && a->index == b->index;
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
    coi_fail(ctx, CO_VALUE, "device '%s' names job '%s' and no task; add /task:N", text, raw.job);
    return false;
}

/* Names given by the user, resolved; MIR-INIT-2, MIR-INIT-3. */
static bool
resolve_devices(co_context *ctx, const char *const *devices, size_t n, coi_device_name *out)
{
    for (size_t i = 0; i < n; ++i) {
        char text[CO_DEVICE_NAME_MAX];

        if (devices[i] == NULL) {
            coi_fail(ctx, CO_VALUE, "device %zu of %zu is NULL", i, n);
            return false;
        }
        if (!names_task(ctx, devices[i]) || coi_resolve_name(ctx, devices[i], &out[i]) != CO_OK)
            return false;
        for (size_t j = 0; j < i; ++j)
            if (same_device(&out[i], &out[j])) {
                coi_device_format(&out[i], text);
                coi_fail(ctx, CO_ASSERTION,
                         "%s is given twice; use num_replicas for several replicas on a device",
                         text);
                return false;
            }
        if (strcmp(out[i].job, out[0].job) != 0 || out[i].task != out[0].task ||
            out[i].replica != out[0].replica) {
            bool local = strcmp(out[i].job, "localhost") == 0 ||
                         strcmp(out[0].job, "localhost") == 0;

            coi_fail(
                ctx, local && strcmp(out[i].job, out[0].job) != 0 ? CO_VALUE : CO_RUNTIME,
                "devices '%s' and '%s' belong to different workers; MirroredStrategy runs in one process, "
                "co_multi_worker_strategy in several",
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

/* The devices of this process: given or found. 0 with an error. */
static size_t
choose_devices(co_context *ctx, const char *const *devices, size_t n, coi_device_name *out)
{
    if (devices == NULL || n == 0)
        return all_devices(ctx, out, COI_MAX_LOCAL_REPLICAS);
    if (n > COI_MAX_LOCAL_REPLICAS) {
        coi_fail(ctx, CO_VALUE, "num_devices is %zu; it must be at most %d", n,
                 COI_MAX_LOCAL_REPLICAS);
        return 0;
    }
    return resolve_devices(ctx, devices, n, out) ? n : 0;
}

/* Replica i of n on device i * d / n: even and in order. */
static void
place(co_strategy *strategy, const coi_device_name *devices, size_t n)
{
    for (int i = 0; i < strategy->num_local; ++i)
        strategy->devices[i] = devices[(size_t)i * n / (size_t)strategy->num_local];
}

static bool
check_replicas(co_context *ctx, int num_replicas, size_t num_places, const char *places)
{
    if (num_replicas == 0)
        return true;
    if (num_replicas < 0 || (size_t)num_replicas > num_places * COI_MAX_LOCAL_REPLICAS ||
        (size_t)num_replicas < num_places) {
        coi_fail(ctx, CO_VALUE,
                 "num_replicas is %d; with %zu %s it must be 0 (one each) or from %zu to %zu",
                 num_replicas, num_places, places, num_places, num_places * COI_MAX_LOCAL_REPLICAS);
        return false;
    }
    return true;
}

/* Puts the setting where the options leave it to that. */
static bool
check_deadline(co_context *ctx, int *deadline_ms)
{
    if (*deadline_ms == CO_DEADLINE_OF_SETTINGS)
        *deadline_ms = ctx->runtime->settings.deadline_ms;
    if (*deadline_ms >= 0)
        return true;
    coi_fail(ctx, CO_VALUE,
             "deadline_ms is %d; it must be a time, 0 (none) or CO_DEADLINE_OF_SETTINGS",
             *deadline_ms);
    return false;
}

co_strategy *
co_mirrored_strategy(co_context *ctx, const char *const *devices, size_t num_devices,
                     const co_mirrored_options *options)
{
    co_mirrored_options all = CO_MIRRORED_OPTIONS_INIT;
    coi_device_name     ids[COI_MAX_LOCAL_REPLICAS];
    co_strategy        *strategy;
    size_t              n;

    COI_ENTER(ctx, "mirrored_strategy", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4) ||
        !check_deadline(ctx, &all.deadline_ms))
        return NULL;
    n = choose_devices(ctx, devices, num_devices, ids);
    if (n == 0 || !check_replicas(ctx, all.num_replicas, n, "devices"))
        return NULL;
    if (all.num_replicas > COI_MAX_LOCAL_REPLICAS) {
        coi_fail(ctx, CO_VALUE, "num_replicas is %d; one process has at most %d", all.num_replicas,
                 COI_MAX_LOCAL_REPLICAS);
        return NULL;
    }
    strategy = new_strategy(ctx, &mirrored_policy, all.num_replicas > 0 ? all.num_replicas : (int)n,
                            0, 1);
    if (strategy == NULL)
        return NULL;
    strategy->deadline_ms = all.deadline_ms;
    place(strategy, ids, n);
    return coi_own(ctx, strategy);
}

static co_strategy *
make_multi_worker(co_context *ctx, const co_multi_worker_options *options, coi_group *group)
{
    coi_device_name ids[COI_MAX_LOCAL_REPLICAS];
    size_t          n = choose_devices(ctx, options->devices, options->num_devices, ids);
    int             size = group->size, replicas = options->num_replicas;
    co_strategy    *strategy;

    if (n == 0 || !check_replicas(ctx, replicas, (size_t)size, "processes"))
        return NULL;
    if (size > COI_MAX_WORKERS) {
        coi_fail(ctx, CO_VALUE, "%d processes; at most %d", size, COI_MAX_WORKERS);
        return NULL;
    }
    strategy = new_strategy(ctx, &multi_worker_policy, replicas > 0 ? replicas : (int)n * size,
                            group->rank, size);
    if (strategy == NULL)
        return NULL;
    if (strategy->num_local > COI_MAX_LOCAL_REPLICAS) {
        coi_fail(ctx, CO_VALUE, "%d replicas in one process; at most %d", strategy->num_local,
                 COI_MAX_LOCAL_REPLICAS);
        coi_unref(&ctx->heap, strategy);
        return NULL;
    }
    strategy->deadline_ms = options->deadline_ms;
    place(strategy, ids, n);
    if (size > 1) {
        strategy->group = group;
        ctx->rank = group->rank;
    } else {
        coi_group_close(group);
    }
    return strategy;
}

co_strategy *
co_multi_worker_strategy(co_context *ctx, const co_multi_worker_options *options)
{
    co_multi_worker_options all = CO_MULTI_WORKER_OPTIONS_INIT;
    coi_group_options       how;
    coi_group              *group;
    co_strategy            *strategy;
    const char             *transport;

    COI_ENTER(ctx, "multi_worker_strategy", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 2) ||
        !check_deadline(ctx, &all.deadline_ms))
        return NULL;
    transport = all.transport != NULL                            ? all.transport
                : all.communicator != NULL || coi_mpi_launched() ? "mpi"
                                                                 : "self";
    how = (coi_group_options){ .communicator = all.communicator,
                               .memory = &ctx->runtime->memory,
                               .log = &ctx->runtime->log,
                               .waiting = &ctx->runtime->waiting,
                               .deadline_ms = all.deadline_ms };
    if (coi_group_open(transport, &how, &group, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    strategy = make_multi_worker(ctx, &all, group);
    if (strategy == NULL) {
        coi_group_close(group);
        return NULL;
    }
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
        coi_fail(ctx, CO_RUNTIME,
                 "the default strategy has no devices of its own; co_current_device tells");
        return NULL;
    }
    for (int i = 0; i < strategy->num_local; ++i) {
        char text[CO_DEVICE_NAME_MAX];

        if (i > 0 && same_device(&strategy->devices[i], &strategy->devices[i - 1]))
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

        if (variable->kind == CO_KIND_VARIABLE &&
            (first == NULL || strcmp(variable->u.variable->name, first->u.variable->name) < 0))
            first = variable;
    }
    if (first == NULL) {
        coi_fail(
            ctx, CO_VALUE,
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
        coi_fail(ctx, CO_NOT_IMPLEMENTED, "the default strategy has no %s", call);
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
