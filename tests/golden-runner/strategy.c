/* SPDX-License-Identifier: Apache-2.0 */
/* The strategies that cases name, values per replica, and what classes values have. */
#include "captured.h"

#include <stdio.h>
#include <string.h>

static co_strategy *
make_mirrored(co_context *ctx, int64_t replicas)
{
    const char *devices[4];

    for (int i = 0; i < 4; ++i)
        devices[i] = golden_device(i);

    return co_mirrored_strategy(ctx, devices, (size_t)replicas, NULL);
}

co_strategy *
golden_strategy_of(golden_case *c, co_context *ctx, const char *name, int64_t replicas)
{
    if (strcmp(name, "default") == 0)
        return co_default_strategy(ctx);
    if (strcmp(name, "OneDeviceStrategy") == 0)
        return co_one_device_strategy(ctx, golden_device(0));
    if (strcmp(name, "MirroredStrategy") == 0 && replicas >= 1 && replicas <= 4)
        return make_mirrored(ctx, replicas);
    golden_fail(c, "strategy '%s' with %lld replicas is not known to the runner", name,
                (long long)replicas);
    return NULL;
}

co_strategy *
golden_strategy(golden_case *c)
{
    const char *name = golden_string(c, c->attrs, "strategy");
    int64_t     replicas = golden_int(c, c->attrs, "replicas", 1);

    return c->is_failed ? NULL : golden_strategy_of(c, c->ctx, name, replicas);
}

co_strategy *
golden_strategy_named(golden_case *c, co_context *ctx, const char *name)
{
    static const struct {
        const char *name;
        const char *class_name;
        int64_t     replicas;
    } known[] = {
        { "D", "default", 1 },           { "O", "OneDeviceStrategy", 1 },
        { "M1", "MirroredStrategy", 1 }, { "M2", "MirroredStrategy", 2 },
        { "M3", "MirroredStrategy", 3 }, { "M4", "MirroredStrategy", 4 },
        { "N2", "MirroredStrategy", 2 },
    };

    if (strcmp(name, "P") == 0)
        return co_one_device_strategy(ctx, golden_device(1));
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i)
        if (strcmp(known[i].name, name) == 0)
            return golden_strategy_of(c, ctx, known[i].class_name, known[i].replicas);
    golden_fail(c, "strategy '%s' is not known to the runner", name);
    return NULL;
}

bool
golden_is_mirrored(co_context *ctx, co_strategy *strategy)
{
    const char *name = strategy != NULL ? co_strategy_name(ctx, strategy) : NULL;

    return name != NULL && strcmp(name, "MirroredStrategy") == 0;
}

co_value *
golden_read_replicas(golden_case *c, co_context *ctx, co_strategy *strategy, json_t *list)
{
    co_value *parts[8];
    size_t    n = json_array_size(list);

    if (!json_is_array(list) || n == 0 || n > sizeof(parts) / sizeof(parts[0])) {
        golden_fail(c, "the values per replica are not a list of 1 to 8 entries");
        return NULL;
    }
    for (size_t i = 0; i < n; ++i)
        if ((parts[i] = golden_read_value(c, ctx, json_array_get(list, i))) == NULL)
            return NULL;
    if (!golden_is_mirrored(ctx, strategy))
        return parts[0];
    return co_per_replica_value(ctx, parts, n);
}

json_t *
golden_write_local(co_context *ctx, co_strategy *strategy, co_value *value)
{
    co_value *local = co_local_results(ctx, strategy, value != NULL ? value : co_none(ctx));
    json_t   *list = json_array();
    size_t    n = local != NULL ? co_num_items(ctx, local) : 0;

    for (size_t i = 0; i < n; ++i)
        json_array_append_new(list, golden_write_value(ctx, co_at(ctx, local, i)));
    return list;
}

json_t *
golden_write_replicas(co_context *ctx, co_strategy *strategy, co_value *value)
{
    co_kind kind = co_value_kind(value);
    bool    is_keyed = kind == CO_KIND_DICT || kind == CO_KIND_NAMED_TUPLE;
    json_t *json = json_object();
    json_t *items = is_keyed ? json_object() : json_array();

    if (kind < CO_KIND_LIST) {
        json_decref(items);
        json_object_set_new(json, "per_replica", golden_write_local(ctx, strategy, value));
        return json;
    }
    json_object_set_new(json, golden_class(ctx, value), items);
    for (size_t i = 0; i < co_num_items(ctx, value); ++i) {
        json_t *item = golden_write_replicas(ctx, strategy, co_at(ctx, value, i));

        if (is_keyed)
            json_object_set_new(items, co_key(ctx, value, i), item);
        else
            json_array_append_new(items, item);
    }
    return json;
}

typedef struct each {
    co_fn   fn;
    void   *user;
    json_t *seen[8];
} each;

static co_value *
run_each(co_context *ctx, co_value *args, void *user)
{
    each     *e = user;
    int       id = co_replica_id(ctx);
    co_value *result = golden_function_in_step(ctx, e->fn, args, e->user);

    if (co_ok(ctx) && id >= 0 && id < 8)
        e->seen[id] = golden_write_value(ctx, result);
    return NULL;
}

json_t *
golden_run_each(golden_case *c, co_strategy *strategy, co_fn fn, co_value *args, void *user)
{
    each    e = { .fn = fn, .user = user };
    json_t *list = json_array();

    co_run(c->ctx, strategy, run_each, args, &e);
    for (size_t i = 0; i < sizeof(e.seen) / sizeof(e.seen[0]); ++i)
        if (e.seen[i] != NULL)
            json_array_append_new(list, e.seen[i]);
    return list;
}

/* A mirrored strategy makes two kinds of variables of its own; under the others they are
 * ordinary. */
static const char *
variable_class(co_context *ctx, co_value *variable)
{
    co_strategy *owner = co_variable_strategy(ctx, variable);

    if (!golden_is_mirrored(ctx, owner))
        return "ResourceVariable";
    if (co_variable_synchronization(ctx, variable) == CO_SYNC_ON_READ)
        return "SyncOnReadVariable";
    return "MirroredVariable";
}

const char *
golden_class(co_context *ctx, co_value *value)
{
    static const char *const names[CO_NUM_KINDS] = {
        [CO_KIND_NULL] = "None",
        [CO_KIND_TENSOR] = "EagerTensor",
        [CO_KIND_INT] = "int",
        [CO_KIND_FLOAT] = "float",
        [CO_KIND_BOOL] = "bool",
        [CO_KIND_STRING] = "str",
        [CO_KIND_NONE] = "None",
        [CO_KIND_PER_REPLICA] = "PerReplica",
        [CO_KIND_MIRRORED] = "Mirrored",
        [CO_KIND_SLICES] = "IndexedSlices",
        [CO_KIND_LIST] = "list",
        [CO_KIND_TUPLE] = "tuple",
        [CO_KIND_NAMED_TUPLE] = "named_tuple",
        [CO_KIND_DICT] = "dict",
    };
    co_kind kind = co_value_kind(value);

    if (kind == CO_KIND_VARIABLE)
        return variable_class(ctx, value);
    return kind < CO_NUM_KINDS && names[kind] != NULL ? names[kind] : "?";
}
