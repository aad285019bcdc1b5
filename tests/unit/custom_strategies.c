/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies of the user's: placements, hooks, what goes wrong in them, and that every rule holds
 * for them too. */
#include <cohort/v1.h>
#include "engine_support.h"
#include "line_support.h"

#include <limits.h>
#include <stdatomic.h>

/* What the hooks of a case saw and do. */
typedef struct seen {
    int        runs, variables, reduces, destroyed;
    atomic_int replicas;
    int        misbehave; /* of whichever hook looks at it */
    co_value  *value;     /* what a hook returns instead */
    bool       cross;     /* whether it was called in cross-replica context */
} seen;

static const char *const three[] = { "/cpu:0", "/cpu:1", "/cpu:0" };

static void
destroy(void *data)
{
    ++((seen *)data)->destroyed;
}

/* A definition over three replicas; the placement is the caller's. */
static co_strategy_definition
definition_of(seen *data, co_placement *places)
{
    co_strategy_definition mine = CO_STRATEGY_DEFINITION_INIT;

    *places = (co_placement)CO_PLACEMENT_INIT;
    places->num_replicas = 3;
    places->devices = three;
    mine.name = "Mine";
    mine.placement = places;
    mine.data = data;
    mine.destroy = destroy;
    return mine;
}

static co_value *
id_step(co_context *ctx, co_value *args, void *user)
{
    (void)args, (void)user;
    return co_scalar_int64(ctx, 1 + co_replica_id(ctx));
}

static int64_t
sum_of(co_context *ctx, co_strategy *strategy, co_value *value)
{
    return co_item_int(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM, value, NULL, 0));
}

/* --- placement --- */

CO_TEST_WITH(a_table_of_devices_is_a_strategy, "S-PROP-2 MIR-PROP-1 CTX-5 SCOPE-2", "cpus=2")
{
    static seen            data;
    co_placement           places;
    co_strategy_definition mine = definition_of(&data, &places);
    co_strategy           *s;
    co_value              *devices;

    CO_BLOCK(ctx) {
        s = co_define_strategy(ctx, &mine);
        CO_EXPECT_OK(ctx);
        CO_EXPECT_STR(co_strategy_name(ctx, s), "Mine");
        CO_EXPECT_INT(co_num_replicas_in_sync(ctx, s), 3);
        CO_EXPECT_INT(co_num_local_replicas(ctx, s), 3);
        CO_EXPECT_INT(co_num_workers(ctx, s), 1);
        CO_EXPECT_PTR(co_strategy_data(ctx, s), &data);
        devices = co_worker_devices(ctx, s);
        CO_EXPECT_INT(co_num_items(ctx, devices), 2); /* each once, though two share one */
        CO_EXPECT_INT(sum_of(ctx, s, co_run(ctx, s, id_step, co_no_args(ctx), NULL)), 6);
        CO_SCOPE(ctx, s) {
            CO_EXPECT_PTR(co_get_strategy(ctx), s);
            CO_EXPECT_TRUE(co_in_cross_replica_context(ctx));
        }
        CO_EXPECT_INT(data.destroyed, 0);
    }
    CO_EXPECT_INT(data.destroyed, 1);
    CO_EXPECT_NULL(co_strategy_data(ctx, co_default_strategy(ctx)));
}

static co_value *
device_step(co_context *ctx, co_value *args, void *user)
{
    (void)args, (void)user;
    return co_string(ctx, co_current_device(ctx));
}

CO_TEST_WITH(replicas_run_where_the_table_says, "MIR-RUN-1", "cpus=2")
{
    static const char *const ends[] = { "CPU:0", "CPU:1", "CPU:0" };
    static seen              data;
    co_placement             places;
    co_strategy_definition   mine = definition_of(&data, &places);
    co_strategy             *s = co_define_strategy(ctx, &mine);
    co_value                *names = co_run(ctx, s, device_step, co_no_args(ctx), NULL);

    for (size_t i = 0; i < 3; ++i)
        CO_EXPECT_CONTAINS(co_string_at(ctx, co_at(ctx, names, i), 0, NULL), ends[i]);
}

CO_TEST_WITH(without_a_table_every_device_has_a_replica, "MIR-INIT-1", "cpus=2")
{
    co_strategy_definition mine = CO_STRATEGY_DEFINITION_INIT;
    co_placement           places = CO_PLACEMENT_INIT;

    mine.name = "All_2";
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, co_define_strategy(ctx, &mine)), 2);
    mine.placement = &places;
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, co_define_strategy(ctx, &mine)), 2);
    places.num_replicas = 5;
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, co_define_strategy(ctx, &mine)), 5);
    mine.processes = true;
    mine.transport = "self";
    CO_EXPECT_INT(co_num_local_replicas(ctx, co_define_strategy(ctx, &mine)), 5);
    places.workers = (const int[]){ 0, 0, 0, 0, 0 };
    CO_EXPECT_INT(co_num_local_replicas(ctx, co_define_strategy(ctx, &mine)), 5);
    CO_EXPECT_OK(ctx);
}

CO_TEST_WITH(placements_that_cannot_be_are_refused, "C-ARG-1 DEV-4", "cpus=2")
{
    static const char *const bad[] = { "/cpu:0", "/foo:0", "/cpu:0" };
    static const char *const gap[] = { "/cpu:0", NULL, "/cpu:0" };
    static const int         late[] = { 0, 1, 0 }, negative[] = { -1, 0, 0 };
    static const int64_t     zero[] = { 1, 0, 1 }, minus[] = { 1, 1, -4 },
                         large[] = { 1, INT32_MAX, 1 };
    static const struct {
        int                num_replicas;
        const char *const *devices;
        const int         *workers;
        const int64_t     *weights;
        const char        *part;
    } cases[] = {
        { -1, NULL, NULL, NULL, "num_replicas -1; with 1 process it must be from 1 to 256" },
        { 0, three, NULL, NULL, "num_replicas 0" },
        { 0, NULL, late, NULL, "num_replicas 0" },
        { 0, NULL, NULL, zero, "num_replicas 0" },
        { 257, NULL, NULL, NULL, "num_replicas 257" },
        { INT_MAX, three, NULL, NULL, "from 1 to 256" },
        { 3, bad, NULL, NULL, "foo" },
        { 3, gap, NULL, NULL, "device 1 of 3 in the placement is NULL" },
        { 3, three, late, NULL, "replica 1 is placed on worker 1 of 1" },
        { 3, NULL, negative, NULL, "replica 0 is placed on worker -1 of 1" },
        { 3, three, NULL, zero, "the weight of replica 1 is 0" },
        { 3, three, NULL, minus, "the weight of replica 2 is -4" },
        { 3, three, NULL, large, "add up to at most 2147483647 (so far 1)" },
    };
    static seen            data;
    co_placement           places;
    co_strategy_definition mine = definition_of(&data, &places);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        places.num_replicas = cases[i].num_replicas;
        places.devices = cases[i].devices;
        places.workers = cases[i].workers;
        places.weights = cases[i].weights;
        CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, cases[i].part);
        CO_EXPECT_INT(data.destroyed, i + 1);
    }
}

CO_TEST_WITH(definitions_that_cannot_be_are_refused, "C-ARG-1", "cpus=2")
{
    static const char *const names[] = { NULL, "",       "two words",        "a-b",
                                         "é",  "%s%n%s", "MirroredStrategy", "DefaultStrategy" };
    char                     name[65] = { 0 };
    static seen              data;
    co_placement             places;
    co_strategy_definition   mine = definition_of(&data, &places), other;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        mine.name = names[i];
        CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "name");
    }
    memset(name, 'x', 64);
    mine.name = name;
    CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "1 to 63");
    name[63] = '\0';
    CO_EXPECT_STR(co_strategy_name(ctx, co_define_strategy(ctx, &mine)), name);

    other = mine;
    other.deadline_ms = -7;
    CO_EXPECT_NULL(co_define_strategy(ctx, &other));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deadline_ms is -7");
    other = mine;
    other.plain = true;
    CO_EXPECT_NULL(co_define_strategy(ctx, &other));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "plain and has 3 replicas");
    other.processes = true;
    CO_EXPECT_NULL(co_define_strategy(ctx, &other));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "plain and has processes");
    other.plain = false;
    other.transport = "pigeon";
    CO_EXPECT_NULL(co_define_strategy(ctx, &other));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "pigeon");
    other.transport = "self";
    places.devices = NULL;
    places.num_replicas = -3;
    CO_EXPECT_NULL(co_define_strategy(ctx, &other));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "num_replicas -3");
    places.struct_size = 0;
    CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size 0");
    other.struct_size = 0;
    CO_EXPECT_NULL(co_define_strategy(ctx, &other));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size 0");
    CO_EXPECT_NULL(co_define_strategy(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (definition)");
    CO_EXPECT_NULL(co_define_strategy(NULL, &mine));
}

/* A table of an older program ends before the hooks: what it does not know is not read. */
CO_TEST_WITH(a_shorter_definition_is_enough, "", "cpus=2")
{
    co_strategy_definition mine = CO_STRATEGY_DEFINITION_INIT;

    mine.name = "Old";
    mine.struct_size = offsetof(co_strategy_definition, data);
    mine.data = &mine;
    CO_EXPECT_NULL(co_strategy_data(ctx, co_define_strategy(ctx, &mine)));
    CO_EXPECT_OK(ctx);
}

enum { FILLS, FAILS, CODE_ALONE, NO_SIZE, TOO_MANY };

static co_code
place(co_context *ctx, int num_workers, co_placement *out, void *data)
{
    const seen *self = data;

    CO_EXPECT_INT(num_workers, 1);
    out->num_replicas = self->misbehave == TOO_MANY ? 100000 : 2;
    out->devices = three;
    if (self->misbehave == NO_SIZE)
        out->struct_size = 3;
    if (self->misbehave == FAILS)
        return co_fail(ctx, CO_NOT_FOUND, "no place for %d", 2);
    return self->misbehave == CODE_ALONE ? CO_UNAVAILABLE : CO_OK;
}

CO_TEST_WITH(a_place_hook_fills_the_table, "GEN-ERR-2", "cpus=2")
{
    static seen            data;
    co_placement           places;
    co_strategy_definition mine = definition_of(&data, &places);

    mine.place = place;
    CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "both a placement and a place hook");
    mine.placement = NULL;
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, co_define_strategy(ctx, &mine)), 2);
    data.misbehave = FAILS;
    CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "no place for 2");
    data.misbehave = CODE_ALONE;
    CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
    CO_EXPECT_ERROR(ctx, CO_UNAVAILABLE, "place hook of Mine");
    data.misbehave = NO_SIZE;
    CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "struct_size at 3");
    data.misbehave = TOO_MANY;
    CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "num_replicas 100000");
}

CO_TEST_WITH(a_plain_strategy_wraps_nothing, "OD-RUN-1 OD-VAR-1", "cpus=2")
{
    static seen            data;
    co_placement           places;
    co_strategy_definition mine = definition_of(&data, &places);
    co_strategy           *s;
    co_value              *v = NULL;

    places.num_replicas = 1;
    places.devices = three + 1;
    mine.plain = true;
    s = co_define_strategy(ctx, &mine);
    CO_SCOPE(ctx, s) {
        v = co_variable(ctx, co_scalar_float(ctx, 3), NULL);
        CO_EXPECT_CONTAINS(co_value_device(ctx, v), "CPU:1");
    }
    CO_EXPECT_INT(co_value_kind(co_run(ctx, s, id_step, co_no_args(ctx), NULL)), CO_KIND_TENSOR);
    CO_EXPECT_PTR(co_reduce(ctx, s, CO_REDUCE_SUM, v, NULL, 0), v);
}

/* --- hooks --- */

enum { GO_ON, TWICE, NOT_AT_ALL, NOTHING, DEAD, LEAVES_OPEN, ENDS_MINE, WRONG_KIND };

static co_value *
misbehave(co_context *ctx, seen *self)
{
    co_value *dead = NULL;

    if (self->misbehave == NOT_AT_ALL || self->misbehave == WRONG_KIND)
        return self->value;
    if (self->misbehave == ENDS_MINE)
        co_block_end(ctx);
    if (self->misbehave == DEAD)
        CO_BLOCK(ctx) {
            dead = co_scalar_float(ctx, 1);
        }
    if (self->misbehave == FAILS + 100)
        co_fail_with(ctx, CO_DATA_LOSS, self, destroy, "the hook says %d", 42);
    return dead;
}

static void
leave_open(co_context *ctx, co_strategy *strategy, const seen *self)
{
    if (self->misbehave != LEAVES_OPEN)
        return;
    co_block_begin(ctx);
    co_device_begin(ctx, "/cpu:1");
    co_scope_begin(ctx, strategy);
}

static co_value *
run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
    const co_run_options *options, void *data)
{
    seen *self = data;

    ++self->runs;
    self->cross = co_in_cross_replica_context(ctx);
    leave_open(ctx, strategy, self);
    if (self->misbehave == TWICE)
        co_run_with(ctx, strategy, fn, args, user, options);
    if (self->misbehave <= TWICE || self->misbehave == LEAVES_OPEN)
        return co_run_with(ctx, strategy, fn, args, user, options);
    return misbehave(ctx, self);
}

static co_value *
replica(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user, void *data)
{
    seen *self = data;

    CO_EXPECT_PTR(co_get_replica_context(ctx), ctx);
    CO_EXPECT_PTR(co_get_strategy(ctx), strategy);
    atomic_fetch_add(&self->replicas, 1);
    if (self->misbehave == NOTHING && co_replica_id(ctx) == 1)
        return NULL;
    return fn(ctx, args, user);
}

static co_value *
variable(co_context *ctx, co_strategy *strategy, co_value *initial,
         const co_variable_options *options, void *data)
{
    seen               *self = data;
    co_variable_options mine = *options;

    mine.struct_size = sizeof(mine);
    ++self->variables;
    self->cross = co_in_cross_replica_context(ctx);
    leave_open(ctx, strategy, self);
    mine.aggregation = CO_AGGREGATION_SUM;
    if (self->misbehave == GO_ON || self->misbehave == LEAVES_OPEN)
        return co_variable(ctx, co_mul(ctx, initial, co_float(ctx, 2)), &mine);
    return misbehave(ctx, self);
}

static co_value *
reduce(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value, const int *axes,
       size_t num_axes, void *data)
{
    seen *self = data;

    ++self->reduces;
    leave_open(ctx, strategy, self);
    if (self->misbehave == GO_ON || self->misbehave == LEAVES_OPEN)
        return co_reduce(ctx, strategy, op == CO_REDUCE_MIN ? CO_REDUCE_MAX : op, value, axes,
                         num_axes);
    return misbehave(ctx, self);
}

/* All four hooks over three replicas. */
static co_strategy *
hooked(co_context *ctx, seen *data)
{
    co_placement           places;
    co_strategy_definition mine = definition_of(data, &places);

    mine.destroy = NULL;
    mine.run = run;
    mine.replica = replica;
    mine.variable = variable;
    mine.reduce = reduce;
    return co_define_strategy(ctx, &mine);
}

CO_TEST_WITH(a_run_hook_goes_on_twice_or_not_at_all, "CTX-5 S-RUN-4 C-FN-1", "cpus=2")
{
    static seen  data;
    co_strategy *s = hooked(ctx, &data);

    CO_EXPECT_INT(sum_of(ctx, s, co_run(ctx, s, id_step, co_no_args(ctx), NULL)), 6);
    CO_EXPECT_FALSE(data.cross);
    CO_EXPECT_INT(data.runs, 1);
    CO_EXPECT_INT(atomic_load(&data.replicas), 3);
    CO_SCOPE(ctx, s) {
        co_call_for_each_replica(ctx, s, id_step, NULL, NULL);
    }
    CO_EXPECT_TRUE(data.cross);
    CO_EXPECT_INT(data.runs, 2);
    data.misbehave = TWICE;
    co_run(ctx, s, id_step, co_no_args(ctx), NULL);
    CO_EXPECT_INT(data.runs, 3);
    CO_EXPECT_INT(atomic_load(&data.replicas), 12);
    data.misbehave = NOT_AT_ALL;
    data.value = co_int(ctx, 7);
    CO_EXPECT_PTR(co_run(ctx, s, id_step, co_no_args(ctx), NULL), data.value);
    CO_EXPECT_INT(atomic_load(&data.replicas), 12);
    data.value = NULL;
    CO_EXPECT_INT(co_value_kind(co_run(ctx, s, id_step, co_no_args(ctx), NULL)), CO_KIND_NONE);
    CO_EXPECT_OK(ctx);
}

/* A run hook that uses other hooks, and another strategy, on its way. */
static co_value *
busy_run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
         const co_run_options *options, void *data)
{
    seen     *self = data;
    co_value *ids = co_run_with(ctx, strategy, fn, args, user, options);

    ++self->runs;
    return self->value == NULL ? co_reduce(ctx, strategy, CO_REDUCE_SUM, ids, NULL, 0)
                               : co_run(ctx, (co_strategy *)(void *)self->value, fn, args, user);
}

CO_TEST_WITH(hooks_meet_other_hooks, "", "cpus=2")
{
    static seen            data, other;
    co_placement           places;
    co_strategy_definition mine = definition_of(&data, &places);
    co_strategy           *s, *t = hooked(ctx, &other);

    mine.destroy = NULL;
    mine.run = busy_run;
    mine.reduce = reduce;
    s = co_define_strategy(ctx, &mine);
    CO_EXPECT_INT(co_item_int(ctx, co_run(ctx, s, id_step, co_no_args(ctx), NULL)), 6);
    CO_EXPECT_INT(data.reduces, 1);
    data.value = (co_value *)(void *)t;
    CO_EXPECT_INT(sum_of(ctx, t, co_run(ctx, s, id_step, co_no_args(ctx), NULL)), 6);
    CO_EXPECT_INT(other.runs, 1);
    CO_EXPECT_INT(data.runs, 2);
}

static co_value *
run_inside(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)args;
    return co_run(ctx, strategy, id_step, co_no_args(ctx), user);
}

static co_value *
merging_step(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, run_inside, args, user);
}

CO_TEST_WITH(runs_inside_a_step_meet_the_hook_again, "SCOPE-8 RC-MERGE-1", "cpus=2")
{
    static seen  data;
    co_strategy *s = hooked(ctx, &data);
    co_value    *result = co_run(ctx, s, merging_step, co_no_args(ctx), NULL);

    CO_EXPECT_INT(sum_of(ctx, s, result), 6);
    CO_EXPECT_INT(data.runs, 2); /* the run, and the one in the merge function */
    CO_EXPECT_INT(atomic_load(&data.replicas), 6);
}

CO_TEST_WITH(a_replica_hook_stands_around_the_step, "S-RUN-3 C-FN-1", "cpus=2")
{
    static seen            data = { .misbehave = NOTHING };
    co_strategy_definition mine = CO_STRATEGY_DEFINITION_INIT;
    co_value              *result;

    mine.name = "Resting";
    mine.replica = replica;
    mine.data = &data;
    result = co_run(ctx, co_define_strategy(ctx, &mine), id_step, co_no_args(ctx), NULL);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, result, 0)), 1);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, result, 1)), CO_KIND_NONE);
    CO_EXPECT_INT(atomic_load(&data.replicas), 2);
}

static co_value *
variable_step(co_context *ctx, co_value *args, void *user)
{
    co_value *v = co_variable(ctx, co_scalar_float(ctx, 4), NULL);

    (void)args, (void)user;
    return co_variable_read(ctx, v);
}

CO_TEST_WITH(a_variable_hook_changes_what_is_made, "SCOPE-2 VAR-RUN-1 VAR-NEW-7", "cpus=2")
{
    static seen  data;
    co_strategy *s = hooked(ctx, &data);
    co_value    *v = NULL;

    co_variable(ctx, co_scalar_float(ctx, 1), NULL); /* outside the scope: an ordinary one */
    CO_EXPECT_INT(data.variables, 0);
    CO_SCOPE(ctx, s) {
        v = co_variable(ctx, co_scalar_float(ctx, 4), NULL);
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 8, 0);
    CO_EXPECT_INT(co_variable_aggregation(ctx, v), CO_AGGREGATION_SUM);
    CO_EXPECT_INT(data.variables, 1);
    CO_EXPECT_TRUE(data.cross);
}

CO_TEST_WITH(a_variable_hook_is_called_in_steps_too, "VAR-RUN-1", "cpus=1")
{
    static seen            data;
    co_strategy_definition mine = CO_STRATEGY_DEFINITION_INIT;
    co_strategy           *s;

    mine.name = "Doubling";
    mine.variable = variable;
    mine.data = &data;
    s = co_define_strategy(ctx, &mine);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_run(ctx, s, variable_step, co_no_args(ctx), NULL)), 8, 0);
    CO_EXPECT_INT(data.variables, 1);
    CO_EXPECT_TRUE(data.cross); /* where the replicas have met */
}

static co_value *
add_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_assign_add(ctx, user, co_scalar_float(ctx, 1));
}

CO_TEST_WITH(a_reduce_hook_stands_around_co_reduce_alone, "S-REDUCE-9 VAR-MIR-3", "cpus=2")
{
    static seen  data;
    co_strategy *s = hooked(ctx, &data);
    co_value    *ids = co_run(ctx, s, id_step, co_no_args(ctx), NULL), *v = NULL;

    CO_EXPECT_INT(co_item_int(ctx, co_reduce(ctx, s, CO_REDUCE_MIN, ids, NULL, 0)), 3);
    CO_EXPECT_INT(data.reduces, 1);
    data.misbehave = NOT_AT_ALL;
    data.value = ids;
    CO_EXPECT_PTR(co_reduce(ctx, s, CO_REDUCE_SUM, ids, NULL, 0), ids);
    data.misbehave = GO_ON;
    CO_SCOPE(ctx, s) {
        v = co_variable(ctx, co_scalar_float(ctx, 0), NULL); /* the hook gives it SUM */
    }
    co_run(ctx, s, add_step, co_no_args(ctx), v);
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 3, 0);
    CO_EXPECT_INT(data.reduces, 2);
}

/* --- where variables live --- */

static const char *
central(co_context *ctx, co_strategy *strategy, const char *name, int replica, void *data)
{
    const seen *self = data;

    (void)strategy;
    if (self->misbehave == FAILS)
        co_fail(ctx, CO_UNAVAILABLE, "no room for %s of replica %d", name, replica);
    return self->misbehave == WRONG_KIND ? "/foo:7" : replica == 2 ? NULL : "/cpu:0";
}

static co_value *
where_step(co_context *ctx, co_value *component, co_value *args, void *user)
{
    (void)component, (void)args, (void)user;
    return co_string(ctx, co_current_device(ctx));
}

CO_TEST_WITH(variables_live_where_a_hook_says, "EXT-UPD-1 VAR-MIR-1 EXT-RT-1", "cpus=3")
{
    static const char *const devices[] = { "/cpu:1", "/cpu:1", "/cpu:2" };
    static const char *const ends[] = { "CPU:0", "CPU:0", "CPU:2" };
    static seen              data;
    co_placement             places;
    co_strategy_definition   mine = definition_of(&data, &places);
    co_strategy             *s, *mirrored;
    co_value                *v = NULL, *where;
    float                    one[3], other[3];

    places.devices = devices;
    mine.variable_device = central;
    s = co_define_strategy(ctx, &mine);
    CO_SCOPE(ctx, s) {
        v = co_variable(ctx, co_scalar_float(ctx, 1), NULL);
    }
    where = co_update(ctx, s, v, where_step, co_no_args(ctx), NULL,
                      &(co_update_options){ sizeof(co_update_options), false });
    for (size_t i = 0; i < 3; ++i) {
        CO_EXPECT_CONTAINS(co_value_device(ctx, co_at(ctx, co_local_results(ctx, s, v), i)),
                           ends[i]);
        CO_EXPECT_CONTAINS(co_string_at(ctx, co_at(ctx, where, i), 0, NULL), ends[i]);
    }
    line_train(ctx, s, CO_AUTOSHARD_AUTO, one);
    mirrored = co_mirrored_strategy(ctx, NULL, 0, NULL);
    line_train(ctx, mirrored, CO_AUTOSHARD_AUTO, other);
    CO_EXPECT_BYTES(one, other, sizeof(one));
    for (int wrong = 0; wrong < 2; ++wrong) {
        data.misbehave = wrong == 0 ? FAILS : WRONG_KIND;
        CO_SCOPE(ctx, s) {
            CO_EXPECT_NULL(co_variable(ctx, co_scalar_float(ctx, 1), NULL));
        }
        CO_EXPECT_ERROR(ctx, wrong == 0 ? CO_UNAVAILABLE : CO_VALUE_ERROR,
                        wrong == 0 ? "no room for Variable of replica 0" : "foo");
    }
}

/* --- what goes wrong --- */

/* Call what has the hook number `which`. */
static co_value *
call(co_context *ctx, co_strategy *s, int which, co_value *value)
{
    co_value *result = NULL;

    if (which == 0)
        return co_run(ctx, s, id_step, co_no_args(ctx), NULL);
    if (which == 1)
        return co_reduce(ctx, s, CO_REDUCE_MEAN, value, NULL, 0);
    CO_SCOPE(ctx, s) {
        result = co_variable(ctx, value, NULL);
    }
    return result;
}

CO_TEST_WITH(errors_of_hooks_travel_unchanged, "GEN-ERR-1 GEN-ERR-2 C-FN-2", "cpus=2")
{
    static seen  data;
    co_strategy *s = hooked(ctx, &data);
    co_value    *value = co_scalar_float(ctx, 1);

    for (int which = 0; which < 3; ++which) {
        data.misbehave = FAILS + 100;
        CO_EXPECT_NULL(call(ctx, s, which, value));
        CO_EXPECT_PTR(co_error(ctx)->payload, &data);
        CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "the hook says 42");
        CO_EXPECT_INT(data.destroyed, which + 1);
        CO_EXPECT_FALSE(co_has_strategy(ctx));
        data.misbehave = GO_ON;
        CO_EXPECT_NOT_NULL(call(ctx, s, which, value)); /* and goes on working */
    }
}

CO_TEST_WITH(results_of_hooks_are_checked, "C-FN-1", "cpus=2")
{
    static seen  data;
    co_strategy *s = hooked(ctx, &data);
    co_value    *value = co_scalar_float(ctx, 1);

    data.misbehave = NOTHING;
    CO_EXPECT_NULL(call(ctx, s, 1, value));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the reduce hook of Mine returned NULL");
    CO_EXPECT_NULL(call(ctx, s, 2, value));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the variable hook of Mine returned NULL");
    data.misbehave = WRONG_KIND;
    data.value = value;
    CO_EXPECT_NULL(call(ctx, s, 2, value));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "the variable hook of Mine returned a tensor");
    data.misbehave = DEAD;
    for (int which = 0; which < 3; ++which) {
        CO_EXPECT_NULL(call(ctx, s, which, value));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "not a live value");
    }
}

CO_TEST_WITH(what_hooks_leave_open_is_left_for_them, "GEN-ERR-1 SCOPE-3", "cpus=2")
{
    static seen  data;
    co_strategy *s = hooked(ctx, &data);
    co_value    *value = co_scalar_float(ctx, 1), *result;
    char         device[CO_DEVICE_NAME_MAX];

    snprintf(device, sizeof(device), "%s", co_current_device(ctx));
    data.misbehave = LEAVES_OPEN;
    for (int which = 0; which < 3; ++which) {
        result = call(ctx, s, which, value);
        CO_EXPECT_OK(ctx);
        CO_EXPECT_NOT_NULL(result);
        CO_EXPECT_FALSE(co_has_strategy(ctx));
        CO_EXPECT_STR(co_current_device(ctx), device);
        CO_EXPECT_TRUE(co_value_kind(result) != CO_KIND_NONE);
    }
    data.misbehave = ENDS_MINE;
    CO_BLOCK(ctx) {
        CO_EXPECT_NULL(call(ctx, s, 0, value));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    }
}

CO_TEST_WITH(rules_hold_for_own_strategies, "SCOPE-5 SCOPE-6 S-RUN-4 VAR-NEW-8 GEN-ERR-3", "cpus=2")
{
    static seen            data;
    co_placement           places;
    co_strategy_definition mine = definition_of(&data, &places);
    co_strategy           *s = co_define_strategy(ctx, &mine);
    co_strategy           *mirrored = test_mirrored(ctx, 2, -1);
    co_value              *v = NULL;

    CO_SCOPE(ctx, s) {
        v = co_variable(ctx, co_scalar_float(ctx, 1), NULL);
        CO_EXPECT_NULL(co_run(ctx, mirrored, id_step, co_no_args(ctx), NULL));
        CO_EXPECT_CONTAINS(co_error(ctx)->message, "Mine #");
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "MirroredStrategy #");
    }
    CO_SCOPE(ctx, mirrored) {
        CO_EXPECT_NULL(co_variable_read(ctx, v));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "Mine #");
    }
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, s), CO_OK);
    CO_EXPECT_PTR(co_get_strategy(ctx), s);
    co_experimental_set_strategy(ctx, NULL);
}

/* --- looking --- */

static co_value *
examples_step(co_context *ctx, co_value *args, void *user)
{
    (void)args, (void)user;
    CO_EXPECT_INT(co_step_examples(ctx), -1);
    CO_EXPECT_CODE(co_set_step_examples(ctx, 10), CO_OK);
    CO_EXPECT_INT(co_step_examples(ctx), 10);
    return co_average_loss(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2)));
}

static co_value *
bad_examples_step(co_context *ctx, co_value *args, void *user)
{
    (void)args, (void)user;
    co_set_step_examples(ctx, -2);
    return NULL;
}

static co_value *
told_in_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy, (void)args, (void)user;
    CO_EXPECT_INT(co_step_examples(ctx), -1);
    co_set_step_examples(ctx, 3);
    return NULL;
}

static co_value *
merge_examples_step(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, told_in_merge, args, user);
}

CO_TEST_WITH(step_examples_can_be_told, "", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *shares = co_run(ctx, s, examples_step, co_no_args(ctx), NULL);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, shares, NULL, 0)), 0.4,
                    1e-7);
    co_run(ctx, s, bad_examples_step, co_no_args(ctx), NULL);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "examples) is -2");
    CO_EXPECT_CODE(co_set_step_examples(ctx, 1), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "outside a step");
    CO_SCOPE(ctx, s) {
        CO_EXPECT_CODE(co_set_step_examples(ctx, 1), CO_RUNTIME_ERROR);
        co_clear(ctx);
    }
    co_run(ctx, s, merge_examples_step, co_no_args(ctx), NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "outside a step");
    CO_EXPECT_INT(co_step_examples(ctx), -1);
    CO_EXPECT_INT(co_step_examples(NULL), -1);
    CO_EXPECT_CODE(co_set_step_examples(NULL, 1), CO_INVALID_ARGUMENT);
}

CO_TEST_WITH(properties_of_what_is_no_strategy_are_refused, "C-ARG-1", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);

    CO_EXPECT_NULL(co_strategy_data(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (strategy)");
    CO_EXPECT_INT(co_replica_weight(ctx, NULL, 0), 0);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (strategy)");
    CO_EXPECT_INT(co_replica_weight(ctx, s, 1), 1);
    CO_EXPECT_INT(co_replica_weight(NULL, s, 1), 0);
    CO_EXPECT_NULL(co_strategy_data(NULL, s));
    co_fail(ctx, CO_ABORTED, "an error from before");
    CO_EXPECT_INT(co_replica_weight(ctx, s, 1), 0);
    CO_EXPECT_NULL(co_strategy_data(ctx, s));
    CO_EXPECT_CODE(co_set_step_examples(ctx, 1), CO_ABORTED);
    CO_EXPECT_ERROR(ctx, CO_ABORTED, "from before");
    for (int replica = -1; replica <= 2; replica += 3) {
        CO_EXPECT_INT(co_replica_weight(ctx, s, replica), 0);
        CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "it must be from 0 to 1");
    }
}

/* --- want of memory --- */

static bool
define_and_run(co_context *ctx)
{
    static const int64_t   weights[] = { 1, 2, 3 };
    seen                   data = { 0 };
    co_placement           places;
    co_strategy_definition mine = definition_of(&data, &places);
    bool                   done = false;

    mine.run = run;
    mine.variable = variable;
    places.weights = weights;
    co_block_begin(ctx);
    for (int processes = 0; processes < 2; ++processes) {
        co_strategy *s;

        mine.processes = processes == 1;
        mine.transport = "self";
        s = co_define_strategy(ctx, &mine);
        co_run(ctx, s, id_step, co_no_args(ctx), NULL);
        CO_SCOPE(ctx, s) {
            done = co_variable(ctx, co_scalar_float(ctx, 1), NULL) != NULL && co_ok(ctx);
        }
    }
    co_block_end(ctx);
    if (ctx != NULL && co_ok(ctx))
        CO_EXPECT_INT(data.destroyed, 2);
    return done && co_ok(ctx);
}

CO_TEST(data_is_given_back_whatever_was_wrong, "")
{
    seen                   data = { 0 };
    co_placement           places;
    co_strategy_definition mine = definition_of(&data, &places);

    co_fail(ctx, CO_DATA_LOSS, "before");
    CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
    CO_EXPECT_INT(data.destroyed, 1);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "before");
    CO_EXPECT_NULL(co_define_strategy(NULL, &mine));
    CO_EXPECT_INT(data.destroyed, 2);
    mine.struct_size = 0; /* then nobody knows where destroy is */
    CO_EXPECT_NULL(co_define_strategy(ctx, &mine));
    CO_EXPECT_INT(data.destroyed, 2);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size");
}

CO_TEST_BARE(own_strategies_survive_want_of_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", define_and_run);
}
