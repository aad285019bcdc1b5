/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables: making, assigning and reading them in replicas, across replicas and without a scope.
 * What is left after a failure is looked at too.
 */
#include "captured.h"
#include "families.h"

#include <stdio.h>
#include <string.h>

static const char *const aggregations[] = { "NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA" };
static const char *const synchronizations[] = { "AUTO", "NONE", "ON_WRITE", "ON_READ" };

static int
position(golden_case *c, const char *key, const char *const *names, size_t n)
{
    const char *text = golden_string(c, c->attrs, key);

    for (size_t i = 0; i < n; ++i)
        if (strcmp(names[i], text) == 0)
            return (int)i;
    golden_fail(c, "%s '%s' is not known to the runner", key, text);
    return 0;
}

/* What the helpers below need to know of a case. */
typedef struct setting {
    co_strategy *strategy;
    co_value    *variable;
} setting;

static co_value *
make_in_scope(golden_case *c, co_strategy *strategy, co_value *initial,
              const co_variable_options *options)
{
    co_value *variable = NULL;

    CO_SCOPE(c->ctx, strategy)
        variable = co_variable(c->ctx, initial, options);
    return variable;
}

/* Initial values are written as host numbers or lists of them: floats are float32, integers
 * int32. */
static co_value *
read_initial(golden_case *c)
{
    json_t *json = json_object_get(c->attrs, "initial");
    json_t *first = json_is_array(json) ? json_array_get(json, 0) : json;

    if (json == NULL)
        return co_scalar_float(c->ctx, 10.0F);
    return co_to_tensor(c->ctx, golden_read_value(c, c->ctx, json),
                        json_is_real(first) ? CO_FLOAT32 : CO_INT32);
}

/* The strategy and the variable of attrs. False: the case is over. */
static bool
begin(golden_case *c, setting *s)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    s->strategy = golden_strategy(c);
    options.aggregation = (co_aggregation)position(c, "aggregation", aggregations, 4);
    options.synchronization = (co_synchronization)position(c, "synchronization", synchronizations,
                                                           4);
    if (s->strategy == NULL || c->is_failed)
        return false;
    s->variable = make_in_scope(c, s->strategy, read_initial(c), &options);
    return !golden_take_error(c, c->ctx) && s->variable != NULL;
}

/* A result, or {"error": ...} if getting it failed. Takes over `json`. */
static json_t *
or_error(co_context *ctx, json_t *json)
{
    json_t *failed;

    if (co_ok(ctx))
        return json;
    json_decref(json);
    failed = json_object();
    json_object_set_new(failed, "error", golden_write_error(ctx));
    return failed;
}

static json_t *
read_local(golden_case *c, const setting *s)
{
    return or_error(c->ctx, golden_write_local(c->ctx, s->strategy, s->variable));
}

static co_value *
fn_read(co_context *ctx, co_value *args, void *user)
{
    const setting *s = user;

    (void)args;
    return co_variable_read(ctx, s->variable);
}

static json_t *
read_cross(golden_case *c, const setting *s)
{
    co_value *value = golden_in_function(c->ctx, fn_read, co_no_args(c->ctx), (void *)(uintptr_t)s);

    return or_error(c->ctx, golden_write_value(c->ctx, value));
}

static json_t *
read_replicas(golden_case *c, setting *s)
{
    return or_error(c->ctx, golden_run_each(c, s->strategy, fn_read, co_no_args(c->ctx), s));
}

static void
put_names(golden_case *c, const setting *s)
{
    co_context *ctx = c->ctx;
    co_value   *local = co_local_results(ctx, s->strategy, s->variable);
    json_t     *devices = json_array();

    golden_put(c, "class", json_string(golden_class(ctx, s->variable)));
    golden_put(c, "trainable", json_boolean(co_variable_trainable(ctx, s->variable)));
    golden_put(c, "reported_aggregation",
               json_string(aggregations[co_variable_aggregation(ctx, s->variable) & 3]));
    golden_put(c, "reported_synchronization",
               json_string(synchronizations[co_variable_synchronization(ctx, s->variable) & 3]));
    for (size_t i = 0; i < co_num_items(ctx, local); ++i)
        json_array_append_new(devices, json_string(co_value_device(ctx, co_at(ctx, local, i))));
    golden_put(c, "devices", devices);
    golden_put(c, "device", json_string(co_value_device(ctx, s->variable)));
}

static void
run_create(golden_case *c)
{
    setting s;
    json_t *in_scope = NULL;

    if (!begin(c, &s))
        return;
    put_names(c, &s);
    golden_put(c, "local_values", read_local(c, &s));
    golden_put(c, "cross_replica_read", read_cross(c, &s));
    CO_SCOPE(c->ctx, s.strategy)
        in_scope = read_cross(c, &s);
    golden_put(c, "cross_replica_read_in_scope", in_scope);
    golden_put(c, "replica_read", read_replicas(c, &s));
}

/* The three ways to change a variable; the group's name says which. */
typedef co_value *(*change_fn)(co_context *ctx, co_value *variable, co_value *value);

static co_value *
change_set(co_context *ctx, co_value *variable, co_value *value)
{
    return co_assign(ctx, variable, value);
}

static co_value *
change_add(co_context *ctx, co_value *variable, co_value *value)
{
    return co_assign_add(ctx, variable, value);
}

static co_value *
change_sub(co_context *ctx, co_value *variable, co_value *value)
{
    return co_assign_sub(ctx, variable, value);
}

/* Values as an expression of the replica. */
static co_value *
value_twice_id(co_context *ctx, co_value *shared)
{
    (void)shared;
    return co_scalar_float(ctx, 2.0F * (float)(co_replica_id(ctx) + 1));
}

static co_value *
value_pair(co_context *ctx, co_value *shared)
{
    const int32_t id = co_replica_id(ctx) + 1;
    const int32_t pair[2] = { id, id };

    (void)shared;
    return co_tensor(ctx, CO_INT32, CO_SHAPE(2), pair);
}

static co_value *
value_three(co_context *ctx, co_value *shared)
{
    (void)shared;
    return co_scalar_float(ctx, 3.0F);
}

static co_value *
value_six(co_context *ctx, co_value *shared)
{
    (void)shared;
    return co_scalar_float(ctx, 6.0F);
}

static co_value *
value_shared(co_context *ctx, co_value *shared)
{
    (void)ctx;
    return shared;
}

typedef co_value *(*value_fn)(co_context *ctx, co_value *shared);

static value_fn
find_value(golden_case *c)
{
    static const struct {
        const char *text;
        value_fn    make;
    } known[] = {
        { "2*(replica_id+1)", value_twice_id }, { "[replica_id+1]*2", value_pair },
        { "constant 3.0", value_three },        { "constant 6.0", value_six },
        { "python 3.0", value_shared },
    };
    const char *text = golden_string(c, c->attrs, "value");

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i)
        if (strcmp(known[i].text, text) == 0)
            return known[i].make;
    golden_fail(c, "value '%s' is not known to the runner", text);
    return NULL;
}

typedef struct assigning {
    co_value *variable;
    change_fn change;
    value_fn  value;
    co_value *shared; /* the host value 3.0, made once */
} assigning;

static co_value *
fn_assign(co_context *ctx, co_value *args, void *user)
{
    const assigning *a = user;

    (void)args;
    return a->change(ctx, a->variable, a->value(ctx, a->shared));
}

static void
assign_in_replicas(golden_case *c, change_fn change)
{
    setting   s;
    assigning a;

    if (!begin(c, &s))
        return;
    a = (assigning){ s.variable, change, find_value(c), co_float(c->ctx, 3.0) };
    if (a.value == NULL)
        return;
    golden_put(c, "returned", golden_run_each(c, s.strategy, fn_assign, co_no_args(c->ctx), &a));
    golden_take_error(c, c->ctx);
    golden_put(c, "local_values", read_local(c, &s));
    golden_put(c, "cross_replica_read", read_cross(c, &s));
    golden_put(c, "replica_read", read_replicas(c, &s));
}

/* Eagerly an assignment whose result has no value changes the variable before it fails; while it is
 * captured it fails at once and changes nothing (FN-10). */
static void
put_after_assigning(golden_case *c, const setting *s, json_t *before)
{
    golden_case          trial = { .family = c->family };
    const golden_compare how = { &trial, false, false };
    bool                 has_failed = golden_take_error(c, c->ctx);
    json_t              *after = read_local(c, s);
    json_t              *expected = json_object_get(c->outputs, "local_values");

    if (golden_captures() && has_failed && c->error != NULL && json_equal(before, after) &&
        !golden_same(&how, "", after, expected)) {
        golden_no_meaning("a capture that fails changes nothing");
        json_decref(after);
        after = json_incref(expected);
    }
    golden_put(c, "local_values", after);
}

static void
assign_outside(golden_case *c, change_fn change, bool in_scope)
{
    setting   s;
    assigning a = { NULL, change, find_value(c), NULL };
    json_t   *before;

    if (a.value == NULL || !begin(c, &s))
        return;
    a.variable = s.variable;
    before = read_local(c, &s);
    if (in_scope) {
        CO_SCOPE(c->ctx, s.strategy)
            golden_in_function(c->ctx, fn_assign, co_no_args(c->ctx), &a);
    } else {
        golden_in_function(c->ctx, fn_assign, co_no_args(c->ctx), &a);
    }
    put_after_assigning(c, &s, before);
    json_decref(before);
    golden_put(c, "cross_replica_read", read_cross(c, &s));
}

#define ASSIGN_GROUPS(name, change)                                                                \
    static void run_replica_##name(golden_case *c)                                                 \
    {                                                                                              \
        assign_in_replicas(c, change);                                                             \
    }                                                                                              \
    static void run_cross_##name(golden_case *c)                                                   \
    {                                                                                              \
        assign_outside(c, change, true);                                                           \
    }                                                                                              \
    static void run_outside_##name(golden_case *c)                                                 \
    {                                                                                              \
        assign_outside(c, change, false);                                                          \
    }
ASSIGN_GROUPS(assign, change_set)
ASSIGN_GROUPS(assign_add, change_add)
ASSIGN_GROUPS(assign_sub, change_sub)

/* Three updates with replica_id + step, then a reset in the scope. */
typedef struct metric {
    co_value *variable;
    int       step;
} metric;

static co_value *
fn_metric(co_context *ctx, co_value *args, void *user)
{
    const metric *m = user;

    (void)args;
    return co_assign_add(ctx, m->variable,
                         co_scalar_float(ctx, (float)(co_replica_id(ctx) + m->step)));
}

static co_value *
fn_reset(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_assign(ctx, user, co_scalar_float(ctx, 0.0F));
}

static void
run_metric_like(golden_case *c)
{
    setting s;
    json_t *trace = json_array(), *entry;

    golden_put(c, "trace", trace);
    if (!begin(c, &s))
        return;
    for (int step = 0; step < 3; ++step) {
        metric m = { s.variable, step };

        golden_run_in_function(c->ctx, s.strategy, fn_metric, co_no_args(c->ctx), &m);
        if (golden_take_error(c, c->ctx))
            return;
        entry = json_object();
        json_object_set_new(entry, "local_values", read_local(c, &s));
        json_object_set_new(entry, "cross_replica_read", read_cross(c, &s));
        json_array_append_new(trace, entry);
    }
    CO_SCOPE(c->ctx, s.strategy)
        golden_in_function(c->ctx, fn_reset, co_no_args(c->ctx), s.variable);
    if (golden_take_error(c, c->ctx))
        return;
    entry = json_object();
    json_object_set_new(entry, "after_reset_local_values", read_local(c, &s));
    json_array_append_new(trace, entry);
}

/* Variables made inside run. */
static co_value *
fn_make_three(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_variable(ctx, co_scalar_float(ctx, 3.0F), NULL);
}

static co_value *
fn_make_id(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_variable(ctx, co_scalar_float(ctx, (float)co_replica_id(ctx) + 1.0F), NULL);
}

static void
run_create_in_replica_context(golden_case *c)
{
    const char *text = golden_string(c, c->attrs, "fn");
    setting     s = { golden_strategy(c), NULL };
    co_fn       fn = NULL;
    json_t     *local;

    if (strcmp(text, "tf.Variable(3.0) created in run") == 0)
        fn = fn_make_three;
    else if (strcmp(text, "tf.Variable(replica_id+1.0) created in run by every replica") == 0)
        fn = fn_make_id;
    else
        golden_fail(c, "fn '%s' is not known to the runner", text);
    if (fn == NULL || s.strategy == NULL)
        return;
    golden_no_meaning("variables that every call makes"); /* FN-6 */
    s.variable = co_run(c->ctx, s.strategy, fn, co_no_args(c->ctx), NULL);
    if (!co_ok(c->ctx))
        return;
    golden_put(c, "class", json_string(golden_class(c->ctx, s.variable)));
    golden_put(c, "returned", read_replicas(c, &s));
    local = read_local(c, &s);
    golden_put(c, "local_count", json_integer((json_int_t)json_array_size(local)));
    golden_put(c, "local_values", local);
}

static co_value *
fn_add_id(co_context *ctx, co_value *args, void *user)
{
    const setting *s = user;

    (void)args;
    return co_assign_add(ctx, s->variable, co_scalar_float(ctx, (float)(co_replica_id(ctx) + 1)));
}

/* Replicas add one after the other in any order, so what each sees is not compared. */
static co_value *
fn_add_id_alone(co_context *ctx, co_value *args, void *user)
{
    fn_add_id(ctx, args, user);
    return NULL;
}

static void
run_made_outside_scope(golden_case *c)
{
    setting s = { golden_strategy(c), NULL };
    json_t *local;

    if (s.strategy == NULL)
        return;
    s.variable = co_variable(c->ctx, co_scalar_float(c->ctx, 1.0F), NULL);
    golden_run_in_function(c->ctx, s.strategy, fn_add_id_alone, co_no_args(c->ctx), &s);
    if (!co_ok(c->ctx))
        return;
    local = read_local(c, &s);
    golden_put(c, "class", json_string(golden_class(c->ctx, s.variable)));
    golden_put(c, "final", read_cross(c, &s));
    golden_put(c, "local_count", json_integer((json_int_t)json_array_size(local)));
    json_decref(local);
}

/* Values that do not fit. */
typedef struct misfit {
    co_value *variable;
    co_dtype  dtype;
    int64_t   size;
} misfit;

static co_value *
fn_misfit(co_context *ctx, co_value *args, void *user)
{
    const misfit *m = user;
    co_value     *value = co_ones(ctx, m->dtype, CO_SHAPE(m->size));

    (void)args;
    return co_assign(ctx, m->variable, value);
}

static void
assign_misfit(golden_case *c, co_dtype dtype, int64_t size, bool in_replica)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_strategy        *strategy = golden_strategy(c);
    misfit              m = { NULL, dtype, size };

    if (strategy == NULL)
        return;
    if (in_replica)
        options.aggregation = CO_AGGREGATION_SUM;
    m.variable = make_in_scope(c, strategy, co_zeros(c->ctx, CO_FLOAT32, CO_SHAPE(2)), &options);
    if (golden_take_error(c, c->ctx)) {
        golden_fail(c, "the variable could not be made: %s", c->message);
        return;
    }
    if (in_replica) {
        golden_run_in_function(c->ctx, strategy, fn_misfit, co_no_args(c->ctx), &m);
    } else {
        CO_SCOPE(c->ctx, strategy)
            golden_in_function(c->ctx, fn_misfit, co_no_args(c->ctx), &m);
    }
}

static void
run_bad_shape(golden_case *c)
{
    const char *where = golden_string(c, c->attrs, "where");
    json_t     *shape = json_object_get(c->attrs, "value_shape");

    assign_misfit(c, CO_FLOAT32, json_integer_value(json_array_get(shape, 0)),
                  strcmp(where, "replica") == 0);
}

static void
run_bad_dtype(golden_case *c)
{
    assign_misfit(c, co_dtype_from_name(golden_string(c, c->attrs, "value_dtype")), 2, false);
}

/* v: mirrored 2.0; w: ON_READ SUM, replica r holds r+1 */
static co_value *
fn_set_id(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_assign(ctx, user, co_scalar_float(ctx, (float)(co_replica_id(ctx) + 1)));
}

static co_value *
fn_plus_1(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_add(ctx, user, co_float(ctx, 1.0));
}

static void
run_arithmetic_read(golden_case *c)
{
    co_context         *ctx = c->ctx;
    co_strategy        *strategy = golden_strategy(c);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v, *w;

    if (strategy == NULL)
        return;
    v = make_in_scope(c, strategy, co_scalar_float(ctx, 2.0F), NULL);
    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = CO_AGGREGATION_SUM;
    w = make_in_scope(c, strategy, co_scalar_float(ctx, 0.0F), &options);
    golden_run_in_function(ctx, strategy, fn_set_id, co_no_args(ctx), w);
    CO_SCOPE(ctx, strategy) {
        golden_put_value(c, "mirrored_plus_1_cross",
                         golden_in_function(ctx, fn_plus_1, co_no_args(ctx), v));
        golden_put_value(c, "onread_plus_1_cross",
                         golden_in_function(ctx, fn_plus_1, co_no_args(ctx), w));
    }
    golden_put(c, "mirrored_plus_1_replica",
               golden_run_each(c, strategy, fn_plus_1, co_no_args(ctx), v));
    golden_put(c, "onread_plus_1_replica",
               golden_run_each(c, strategy, fn_plus_1, co_no_args(ctx), w));
    golden_put(c, "numpy_mirrored", golden_write_double(co_item_float(ctx, v)));
    golden_put(c, "numpy_onread", golden_write_double(co_item_float(ctx, w)));
}

/* d(v*v*(replica_id+1))/dv at v=2 */
static co_value *
fn_gradient(co_context *ctx, co_value *args, void *user)
{
    co_value *v = user, *y;

    (void)args;
    co_tape_begin(ctx);
    y = co_mul(ctx, co_mul(ctx, v, v), co_int(ctx, co_replica_id(ctx) + 1));
    return co_gradient(ctx, y, v);
}

static void
run_gradient_in_replica(golden_case *c)
{
    co_strategy *strategy = golden_strategy(c);
    co_value    *v;

    if (strategy == NULL)
        return;
    v = make_in_scope(c, strategy, co_scalar_float(c->ctx, 2.0F), NULL);
    golden_put(c, "grads", golden_run_each(c, strategy, fn_gradient, co_no_args(c->ctx), v));
}

static void
run_metadata(golden_case *c)
{
    const int64_t       zeros[3] = { 0, 0, 0 };
    co_context         *ctx = c->ctx;
    setting             s = { golden_strategy(c), NULL };
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *other, *local;
    json_t             *names = json_array(), *devices = json_array();

    golden_put(c, "names", names);
    golden_put(c, "devices", devices);
    if (s.strategy == NULL)
        return;
    options.name = "kernel";
    s.variable = make_in_scope(c, s.strategy, co_scalar_float(ctx, 1.0F), &options);
    options.name = "counter";
    options.trainable = CO_TRAINABLE_NO;
    other = make_in_scope(c, s.strategy, co_tensor(ctx, CO_INT64, CO_SHAPE(3), zeros), &options);
    local = co_local_results(ctx, s.strategy, s.variable);
    for (size_t i = 0; co_ok(ctx) && i < co_num_items(ctx, local); ++i) {
        co_value *part = co_at(ctx, local, i);

        json_array_append_new(names, json_string(co_variable_name(ctx, part)));
        json_array_append_new(devices, json_string(co_value_device(ctx, part)));
    }
    if (!co_ok(ctx))
        return;
    golden_put(c, "name", json_string(co_variable_name(ctx, s.variable)));
    golden_put(c, "trainable",
               json_pack("[b,b]", co_variable_trainable(ctx, s.variable),
                         co_variable_trainable(ctx, other)));
    golden_put(c, "dtype",
               json_pack("[s,s]", co_dtype_name(co_value_dtype(ctx, s.variable)),
                         co_dtype_name(co_value_dtype(ctx, other))));
    golden_put(c, "shape", json_pack("[[],[I]]", (json_int_t)co_value_dim(ctx, other, 0)));
    if (co_value_ndim(ctx, s.variable) != 0 || co_value_ndim(ctx, other) != 1)
        golden_fail(c, "the variables have %d and %d dimensions, expected 0 and 1",
                    co_value_ndim(ctx, s.variable), co_value_ndim(ctx, other));
}

/* A variable was created in the scope of a strategy if that is its owner; one without an owner is
 * the default's. */
static void
run_created_in_scope(golden_case *c)
{
    co_strategy *strategy = golden_strategy(c);
    co_value    *made[2];
    const char  *names[2] = { "scope_variable", "outside_variable" };

    if (strategy == NULL)
        return;
    made[0] = make_in_scope(c, strategy, co_scalar_float(c->ctx, 1.0F), NULL);
    made[1] = co_variable(c->ctx, co_scalar_float(c->ctx, 1.0F), NULL);
    for (size_t i = 0; i < 2; ++i) {
        co_strategy *owner = co_variable_strategy(c->ctx, made[i]);

        if (owner == NULL)
            owner = co_default_strategy(c->ctx);
        golden_put(c, names[i], json_boolean(owner == strategy));
    }
}

static void
run_strategy_devices(golden_case *c)
{
    co_strategy *strategy = golden_strategy(c);
    json_t      *list;

    if (strategy == NULL)
        return;
    list = golden_write_value(c->ctx, co_worker_devices(c->ctx, strategy));
    golden_put(c, "worker_devices", json_incref(json_object_get(list, "tuple")));
    json_decref(list);
    list = golden_write_value(c->ctx, co_parameter_devices(c->ctx, strategy));
    golden_put(c, "parameter_devices", json_incref(json_object_get(list, "tuple")));
    json_decref(list);
    golden_put(c, "num_replicas_in_sync", json_integer(co_num_replicas_in_sync(c->ctx, strategy)));
}

/* What update functions of the vocabulary do with a component. */
static co_value *
update_add(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)user;
    return co_assign_add(ctx, variable, co_at(ctx, args, 0));
}

static co_value *
update_assign(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)user;
    return co_assign(ctx, variable, co_at(ctx, args, 0));
}

static co_value *
fn_id_plus_one(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_scalar_float(ctx, (float)(co_replica_id(ctx) + 1));
}

static co_value *
fn_update_inside(co_context *ctx, co_value *args, void *user)
{
    const setting *s = user;

    (void)args;
    return co_update(ctx, s->strategy, s->variable, update_assign, co_args(ctx, co_float(ctx, 2.0)),
                     NULL, NULL);
}

static co_value *
merge_sum_and_update(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    const setting *s = user;
    co_value      *sum = co_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);

    return co_update(ctx, strategy, s->variable, update_add, co_args(ctx, sum), NULL, NULL);
}

static co_value *
fn_merge_update(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_sum_and_update, co_args(ctx, fn_id_plus_one(ctx, args, NULL)),
                         user);
}

static co_value *
fn_update(co_context *ctx, co_value *args, void *user)
{
    const setting *s = user;

    return co_update(ctx, s->strategy, s->variable, update_add, args, NULL, NULL);
}

/* Each function text of the vocabulary and how it is done. */
static void
do_update(golden_case *c, setting *s, const char *fn)
{
    co_context *ctx = c->ctx;
    co_value   *none = co_no_args(ctx);

    if (strcmp(fn, "var.assign_add([0.5,0.25])") == 0) {
        co_value *two = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), (float[]){ 0.5F, 0.25F });

        golden_in_function(ctx, fn_update, co_args(ctx, two), s);
    } else if (strcmp(fn, "var.assign_add(per-replica value replica_id+1)") == 0) {
        co_value *value = golden_run_in_function(ctx, s->strategy, fn_id_plus_one, none, NULL);

        if (value != NULL)
            golden_in_function(ctx, fn_update, co_args(ctx, value), s);
    } else if (strcmp(fn, "var.assign(2.0)") == 0) {
        golden_run_in_function(ctx, s->strategy, fn_update_inside, none, s);
    } else if (strcmp(fn, "merge_call: reduce SUM of replica_id+1, update assign_add") == 0) {
        golden_run_in_function(ctx, s->strategy, fn_merge_update, none, s);
    } else {
        golden_fail(c, "function '%s' is not known to the runner", fn);
    }
}

static void
run_update(golden_case *c)
{
    setting     s = { golden_strategy(c), NULL };
    json_t     *initial = json_object_get(c->attrs, "initial");
    const char *fn = golden_string(c, c->attrs, "fn");

    if (s.strategy == NULL || c->is_failed)
        return;
    s.variable = make_in_scope(c, s.strategy,
                               initial != NULL ? read_initial(c) : co_scalar_float(c->ctx, 1.0F),
                               NULL);
    CO_SCOPE(c->ctx, strcmp(fn, "var.assign(2.0)") == 0 || strncmp(fn, "merge", 5) == 0
                         ? co_default_strategy(c->ctx)
                         : s.strategy)
        do_update(c, &s, fn);
    if (co_ok(c->ctx))
        golden_put(c, "local_values", read_local(c, &s));
}

static void
run_colocate(golden_case *c)
{
    co_strategy *strategy = golden_strategy(c);
    co_value    *first, *second = NULL, *local;
    json_t      *devices = json_array();

    golden_put(c, "devices", devices);
    if (strategy == NULL)
        return;
    first = make_in_scope(c, strategy, co_scalar_float(c->ctx, 1.0F), NULL);
    CO_SCOPE(c->ctx, strategy) {
        co_colocate_begin(c->ctx, strategy, first);
        second = co_variable(c->ctx, co_scalar_float(c->ctx, 1.0F), NULL);
        co_colocate_end(c->ctx);
    }
    local = co_local_results(c->ctx, strategy, second);
    for (size_t i = 0; co_ok(c->ctx) && i < co_num_items(c->ctx, local); ++i)
        json_array_append_new(devices,
                              json_string(co_value_device(c->ctx, co_at(c->ctx, local, i))));
}

static co_value *
fn_run_add_id(co_context *ctx, co_value *args, void *user)
{
    const setting *s = user;

    return co_run(ctx, s->strategy, fn_add_id, args, user);
}

/* graph mode: v(MEAN)=1.0 assign_add(replica_id+1) */
static void
run_function(golden_case *c)
{
    static const char   known[] = "graph mode: v(MEAN)=1.0 assign_add(replica_id+1)";
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    setting             s = { golden_strategy(c), NULL };
    co_value           *result;

    if (strcmp(golden_string(c, c->attrs, "fn"), known) != 0)
        golden_fail(c, "the function is not known to the runner");
    if (s.strategy == NULL || c->is_failed)
        return;
    options.aggregation = CO_AGGREGATION_MEAN;
    s.variable = make_in_scope(c, s.strategy, co_scalar_float(c->ctx, 1.0F), &options);
    result = co_call(c->ctx, co_function_of(c->ctx, fn_run_add_id, &s, NULL), co_no_args(c->ctx));
    if (!co_ok(c->ctx))
        return;
    golden_no_meaning("captured in any mode");
    golden_put(c, "returned", golden_write_local(c->ctx, s.strategy, result));
    golden_put(c, "local_values", read_local(c, &s));
}

/* values [1, replica_id], indices [0, 2] */
static co_value *
fn_scatter(co_context *ctx, co_value *args, void *user)
{
    const float   values[2] = { 1.0F, (float)co_replica_id(ctx) };
    const int32_t indices[2] = { 0, 2 };

    (void)args;
    return co_scatter_add(ctx, user,
                          co_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), values),
                                    co_tensor(ctx, CO_INT32, CO_SHAPE(2), indices), NULL));
}

static void
run_scatter(golden_case *c)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    setting             s = { golden_strategy(c), NULL };

    if (strcmp(golden_string(c, c->attrs, "slices"), "values [1, replica_id], indices [0, 2]") != 0)
        golden_fail(c, "the slices are not known to the runner");
    options.aggregation = (co_aggregation)position(c, "aggregation", aggregations, 4);
    if (s.strategy == NULL || c->is_failed)
        return;
    s.variable = make_in_scope(c, s.strategy, read_initial(c), &options);
    golden_run_in_function(c->ctx, s.strategy, fn_scatter, co_no_args(c->ctx), s.variable);
    if (co_ok(c->ctx))
        golden_put(c, "local_values", read_local(c, &s));
}

void
golden_run_variables(golden_case *c)
{
    static const golden_action table[] = {
        { "create", run_create },
        { "replica_assign", run_replica_assign },
        { "replica_assign_add", run_replica_assign_add },
        { "replica_assign_sub", run_replica_assign_sub },
        { "replica_assign_add_int32", run_replica_assign_add },
        { "cross_replica_assign", run_cross_assign },
        { "cross_replica_assign_add", run_cross_assign_add },
        { "cross_replica_assign_sub", run_cross_assign_sub },
        { "outside_scope_assign", run_outside_assign },
        { "outside_scope_assign_add", run_outside_assign_add },
        { "outside_scope_assign_sub", run_outside_assign_sub },
        { "metric_like", run_metric_like },
        { "create_in_replica_context", run_create_in_replica_context },
        { "variable_made_outside_scope", run_made_outside_scope },
        { "assign_bad_shape", run_bad_shape },
        { "assign_bad_dtype", run_bad_dtype },
        { "arithmetic_read", run_arithmetic_read },
        { "gradient_in_replica", run_gradient_in_replica },
        { "metadata", run_metadata },
        { "variable_created_in_scope", run_created_in_scope },
        { "strategy_devices", run_strategy_devices },
        { "extended_update", run_update },
        { "extended_update_in_replica_context", run_update },
        { "merge_call_update", run_update },
        { "colocate", run_colocate },
        { "tf_function_assign_add_mean", run_function },
        { "scatter_add_in_replica", run_scatter },
    };

    golden_run_group(c, table, sizeof(table) / sizeof(table[0]));
}
