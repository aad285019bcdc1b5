/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context: lists of actions on the stack of modes: scopes, set_strategy, run, merge_call, threads.
 * Each action gives
 * {"result": ...} and, where it failed, {"error": ...}; a failing action does not stop the list.
 */
#include "families.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MAX_STRATEGIES 8
#define MAX_OPEN       16
#define MAX_REPLICAS   4

/* What all threads and replicas of a case share; read only once the actions begin. */
typedef struct world {
    golden_case *c;
    size_t       n;
    const char  *names[MAX_STRATEGIES];
    co_strategy *strategies[MAX_STRATEGIES];
} world;

/* Who acts: a context with the scopes that were opened in it. */
typedef struct seat {
    world      *w;
    co_context *ctx;
    co_scope    open[MAX_OPEN];
    size_t      num_open;
} seat;

static json_t *act_all(seat *s, json_t *steps);

static co_strategy *
find_strategy(const world *w, const char *name)
{
    for (size_t i = 0; i < w->n; ++i)
        if (name != NULL && strcmp(w->names[i], name) == 0)
            return w->strategies[i];
    return NULL;
}

static const char *
strategy_letter(const world *w, co_strategy *strategy)
{
    for (size_t i = 0; i < w->n; ++i)
        if (w->strategies[i] == strategy)
            return w->names[i];
    return "?";
}

static co_strategy *
strategy_of(seat *s, json_t *step)
{
    return find_strategy(s->w, json_string_value(json_object_get(step, "s")));
}

/* Make every strategy that some action names, before anything else happens. */
static void
make_strategies(world *w, json_t *steps)
{
    size_t  i;
    json_t *step;

    json_array_foreach(steps, i, step)
    {
        const char *name = json_string_value(json_object_get(step, "s"));

        if (name != NULL && find_strategy(w, name) == NULL && w->n < MAX_STRATEGIES) {
            w->names[w->n] = name;
            w->strategies[w->n++] = golden_strategy_named(w->c, w->c->ctx, name);
        }
        make_strategies(w, json_object_get(step, "body"));
    }
}

static json_t *
replica_context(seat *s)
{
    co_context  *ctx = s->ctx;
    co_strategy *strategy = co_get_strategy(ctx);
    json_t      *json = json_object();
    json_t      *devices = json_array();
    json_t      *device = json_string(co_has_strategy(ctx) ? co_current_device(ctx) : "");

    /* Mirrored lists a list per replica (RC-4). */
    if (golden_is_mirrored(ctx, strategy)) {
        json_t *inner = json_array();

        json_array_append_new(inner, device);
        device = inner;
    }
    json_array_append_new(devices, device);
    json_object_set_new(json, "replica_id", json_integer(co_replica_id(ctx)));
    json_object_set_new(json, "num_replicas_in_sync", json_integer(co_replicas(ctx)));
    json_object_set_new(json, "strategy", json_string(strategy_letter(s->w, strategy)));
    json_object_set_new(json, "devices", devices);
    return json;
}

static json_t *
act_query(seat *s, json_t *step)
{
    co_context *ctx = s->ctx;
    json_t     *json = json_object();
    co_context *replica = co_get_replica_context(ctx);

    (void)step;
    json_object_set_new(json, "has_strategy", json_boolean(co_has_strategy(ctx)));
    json_object_set_new(json, "get_strategy",
                        json_string(strategy_letter(s->w, co_get_strategy(ctx))));
    json_object_set_new(json, "in_cross_replica_context",
                        json_boolean(co_in_cross_replica_context(ctx)));
    json_object_set_new(json, "replica_context",
                        replica != NULL ? replica_context(s) : json_null());
    return json;
}

static json_t *
act_enter(seat *s, json_t *step)
{
    co_strategy *strategy = strategy_of(s, step);
    co_scope     scope = co_scope_begin(s->ctx, strategy);

    if (scope.id == 0 || s->num_open == MAX_OPEN)
        return NULL;
    s->open[s->num_open++] = scope;
    return json_string(strategy_letter(s->w, strategy));
}

/* The handle leaves the list even if leaving fails. */
static json_t *
leave(seat *s, size_t index)
{
    co_scope scope = s->open[index];

    --s->num_open;
    memmove(&s->open[index], &s->open[index + 1], (s->num_open - index) * sizeof(s->open[0]));
    co_scope_end(s->ctx, &scope);
    return NULL;
}

static json_t *
act_exit(seat *s, json_t *step)
{
    (void)step;
    if (s->num_open == 0)
        return json_string("no open scope");
    return leave(s, s->num_open - 1);
}

static json_t *
act_exit_at(seat *s, json_t *step)
{
    int64_t index = json_integer_value(json_object_get(step, "index"));

    if (index < 0 || (size_t)index >= s->num_open)
        return json_string("no open scope");
    return leave(s, (size_t)index);
}

static json_t *
act_set_strategy(seat *s, json_t *step)
{
    co_experimental_set_strategy(s->ctx, strategy_of(s, step));
    return NULL;
}

/* run: every replica acts on its own seat and writes to its own place. */
typedef struct running {
    seat   *outer;
    json_t *body;
    json_t *results[MAX_REPLICAS];
} running;

static co_value *
run_body(co_context *ctx, co_value *args, void *user)
{
    running *r = user;
    seat     own = { .w = r->outer->w, .ctx = ctx };
    int      id = co_replica_id(ctx);

    (void)args;
    if (id < 0 || id >= MAX_REPLICAS)
        return co_fail(ctx, CO_INTERNAL, "replica id %d", id), NULL;
    r->results[id] = act_all(&own, r->body);
    return NULL;
}

static json_t *
act_run(seat *s, json_t *step)
{
    running r = { .outer = s, .body = json_object_get(step, "body") };
    json_t *list = json_array();

    co_run(s->ctx, strategy_of(s, step), run_body, co_no_args(s->ctx), &r);
    for (size_t i = 0; i < MAX_REPLICAS; ++i)
        if (r.results[i] != NULL)
            json_array_append_new(list, r.results[i]);
    return list;
}

/* merge_call: the body runs once, in the function of replica 0. */
typedef struct merging {
    seat   *outer;
    json_t *body;
    json_t *seen;
} merging;

static co_value *
merge_body(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    merging *m = user;
    seat     own = { .w = m->outer->w, .ctx = ctx };

    (void)args;
    m->seen = json_object();
    json_object_set_new(m->seen, "strategy_arg", json_string(strategy_letter(own.w, strategy)));
    json_object_set_new(m->seen, "steps", act_all(&own, m->body));
    return co_int(ctx, 7);
}

static json_t *
act_merge_call(seat *s, json_t *step)
{
    merging   m = { s, json_object_get(step, "body"), NULL };
    co_value *result = co_merge_call(s->ctx, merge_body, co_no_args(s->ctx), &m);
    json_t   *json = json_object();

    json_object_set_new(json, "returned", golden_write_value(s->ctx, result));
    json_object_set_new(json, "body", m.seen != NULL ? m.seen : json_null());
    return json;
}

static co_value *
merge_sum(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    return co_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);
}

static json_t *
act_merge_call_nested_value(seat *s, json_t *step)
{
    co_value *two = co_scalar_float(s->ctx, 2.0F);

    (void)step;
    return golden_write_value(s->ctx, co_merge_call(s->ctx, merge_sum, co_args(s->ctx, two), NULL));
}

typedef struct thread_work {
    seat    own;
    json_t *body;
    json_t *results;
} thread_work;

static void *
thread_main(void *user)
{
    thread_work *work = user;

    work->results = act_all(&work->own, work->body);
    return NULL;
}

static json_t *
act_thread(seat *s, json_t *step)
{
    thread_work work = { .own = { .w = s->w }, .body = json_object_get(step, "body") };
    pthread_t   thread;

    work.own.ctx = co_open_beside(s->ctx);
    if (work.own.ctx == NULL || pthread_create(&thread, NULL, thread_main, &work) != 0) {
        golden_fail(s->w->c, "no thread for a body");
        co_close(work.own.ctx);
        return NULL;
    }
    pthread_join(thread, NULL);
    co_close(work.own.ctx);
    return work.results;
}

static json_t *
act_all_reduce(seat *s, json_t *step)
{
    co_value *mine = co_scalar_float(s->ctx, (float)(co_replica_id(s->ctx) + 1));

    (void)step;
    return golden_write_value(s->ctx, co_all_reduce(s->ctx, CO_REDUCE_SUM, mine));
}

static json_t *
act_reduce(seat *s, json_t *step)
{
    co_strategy *strategy = strategy_of(s, step);
    co_reduce_op op = co_num_replicas_in_sync(s->ctx, strategy) > 1 ? CO_REDUCE_MEAN
                                                                    : CO_REDUCE_SUM;
    co_value    *one = co_scalar_float(s->ctx, 1.0F);

    return golden_write_value(s->ctx, co_reduce(s->ctx, strategy, op, one, NULL, 0));
}

static json_t *
act_variable(seat *s, json_t *step)
{
    co_context *ctx = s->ctx;
    co_value   *variable = co_variable(ctx, co_scalar_float(ctx, 1.0F), NULL);
    json_t     *json = json_object();
    co_value   *local;
    size_t      copies = 1;

    (void)step;
    if (variable == NULL)
        return json;
    if (co_variable_strategy(ctx, variable) != NULL) {
        local = co_local_results(ctx, co_variable_strategy(ctx, variable), variable);
        copies = co_num_items(ctx, local);
    }
    json_object_set_new(json, "class", json_string(golden_class(ctx, variable)));
    json_object_set_new(json, "device", json_string(co_value_device(ctx, variable)));
    json_object_set_new(json, "copies", json_integer((json_int_t)copies));
    return json;
}

static json_t *
act_distribute_dataset(seat *s, json_t *step)
{
    co_context  *ctx = s->ctx;
    co_dataset  *range = co_dataset_range(ctx, 0, 4, 1);
    co_dataset  *batched = co_dataset_batch(ctx, range, 2, false);
    co_iterator *it = co_iterate(ctx,
                                 co_distribute_dataset(ctx, strategy_of(s, step), batched, NULL));
    json_int_t   steps = 0;

    while (steps < 100 && co_next(ctx, it) != NULL)
        ++steps;
    return json_integer(steps);
}

/* run_returns: a replica function per word. */
static co_value *
return_constant(co_context *ctx)
{
    return co_scalar_float(ctx, 2.0F);
}

static co_value *
return_python(co_context *ctx)
{
    return co_int(ctx, 5);
}

static co_value *
return_none(co_context *ctx)
{
    (void)ctx;
    return NULL;
}

static co_value *
return_id(co_context *ctx)
{
    return co_replica_id_tensor(ctx);
}

static co_value *
return_tuple(co_context *ctx)
{
    return co_args(ctx, co_scalar_float(ctx, 1.0F), co_int(ctx, 2));
}

static co_value *
return_dict(co_context *ctx)
{
    return co_dict(ctx, (const char *const[]){ "a" },
                   (co_value *const[]){ co_scalar_float(ctx, 1.0F) }, 1);
}

static co_value *
return_list(co_context *ctx)
{
    return co_list(ctx,
                   (co_value *const[]){ co_scalar_float(ctx, 1.0F), co_scalar_float(ctx, 2.0F) },
                   2);
}

static co_value *
return_string(co_context *ctx)
{
    return co_string(ctx, "hello");
}

typedef struct returning {
    const char *what;
    co_value *(*make)(co_context *ctx);
} returning;
static const returning returns[] = {
    { "constant", return_constant }, { "python", return_python },
    { "none", return_none },         { "id", return_id },
    { "tuple", return_tuple },       { "dict", return_dict },
    { "list", return_list },         { "string", return_string },
};

static co_value *
run_returning(co_context *ctx, co_value *args, void *user)
{
    const returning *r = user;

    (void)args;
    return r->make(ctx);
}

/* {"class", "value"} for leaves, {"class", "values"} for bundles, structures around them. */
static json_t *
describe(co_context *ctx, co_value *value)
{
    co_kind kind = co_value_kind(value);
    json_t *json = json_object();
    json_t *list = json_array();
    json_t *keyed = json_object();
    size_t  n = kind >= CO_KIND_LIST || kind == CO_KIND_PER_REPLICA || kind == CO_KIND_MIRRORED
                    ? co_num_items(ctx, value)
                    : 0;

    for (size_t i = 0; i < n; ++i) {
        json_t *item = describe(ctx, co_at(ctx, value, i));

        json_array_append(list, item);
        if (kind == CO_KIND_DICT)
            json_object_set(keyed, co_key(ctx, value, i), item);
        json_decref(item);
    }
    if (kind == CO_KIND_LIST || kind == CO_KIND_TUPLE) {
        json_object_set(json, golden_class(ctx, value), list);
    } else if (kind == CO_KIND_DICT) {
        json_object_set(json, "dict", keyed);
    } else {
        json_object_set_new(json, "class", json_string(golden_class(ctx, value)));
        if (kind == CO_KIND_PER_REPLICA || kind == CO_KIND_MIRRORED)
            json_object_set(json, "values", list);
        else
            json_object_set_new(json, "value", golden_write_value(ctx, value));
    }
    json_decref(list);
    json_decref(keyed);
    return json;
}

static json_t *
act_run_returns(seat *s, json_t *step)
{
    const char *what = json_string_value(json_object_get(step, "what"));
    size_t      i;
    co_value   *result;

    for (i = 0; i < sizeof(returns) / sizeof(returns[0]); ++i)
        if (what != NULL && strcmp(returns[i].what, what) == 0)
            break;
    if (i == sizeof(returns) / sizeof(returns[0])) {
        golden_fail(s->w->c, "run_returns '%s' is not known to the runner", what ? what : "?");
        return NULL;
    }
    result = co_run(s->ctx, strategy_of(s, step), run_returning, co_no_args(s->ctx),
                    (void *)&returns[i]);
    return co_ok(s->ctx) ? describe(s->ctx, result) : NULL;
}

/* The error of a user function that came back: "ValueError: boom ...". Another code keeps its
 * kind. */
static json_t *
take_user_error(co_context *ctx)
{
    const co_error_info *error = co_error(ctx);
    char                 text[200];

    if (error->code == CO_OK)
        return json_string("no error");
    snprintf(text, sizeof(text), "%s: %.150s",
             error->code == CO_VALUE_ERROR ? "ValueError" : co_code_kind(error->code),
             error->message);
    co_clear(ctx);
    return json_string(text);
}

static co_value *
run_failing(co_context *ctx, co_value *args, void *user)
{
    const int *only = user;

    (void)args;
    if (only == NULL)
        co_fail(ctx, CO_VALUE_ERROR, "boom in replica");
    else if (co_replica_id(ctx) == *only)
        co_fail(ctx, CO_VALUE_ERROR, "boom in replica %d", *only);
    return NULL;
}

static json_t *
act_run_raises(seat *s, json_t *step)
{
    co_run(s->ctx, strategy_of(s, step), run_failing, co_no_args(s->ctx), NULL);
    return take_user_error(s->ctx);
}

static json_t *
act_run_raises_in_one(seat *s, json_t *step)
{
    int only = (int)json_integer_value(json_object_get(step, "replica"));

    co_run(s->ctx, strategy_of(s, step), run_failing, co_no_args(s->ctx), &only);
    return take_user_error(s->ctx);
}

static json_t *
act_run_non_callable(seat *s, json_t *step)
{
    return golden_write_value(s->ctx,
                              co_run(s->ctx, strategy_of(s, step), NULL, co_no_args(s->ctx), NULL));
}

static co_value *
merge_nothing(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)ctx;
    (void)strategy;
    (void)args;
    (void)user;
    return NULL;
}

static co_value *
run_mismatched(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    if (co_replica_id(ctx) == 0)
        co_merge_call(ctx, merge_nothing, co_no_args(ctx), NULL);
    return NULL;
}

static json_t *
act_merge_call_mismatch(seat *s, json_t *step)
{
    co_run(s->ctx, strategy_of(s, step), run_mismatched, co_no_args(s->ctx), NULL);
    return NULL;
}

static json_t *
act_raise_in_scope(seat *s, json_t *step)
{
    CO_SCOPE(s->ctx, strategy_of(s, step))
        co_fail(s->ctx, CO_VALUE_ERROR, "boom in scope");
    co_clear(s->ctx);
    return act_query(s, step);
}

static co_value *
run_device(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_string(ctx, co_current_device(ctx));
}

static json_t *
act_device_in_replica(seat *s, json_t *step)
{
    co_strategy *strategy = strategy_of(s, step);
    co_value    *names = co_run(s->ctx, strategy, run_device, co_no_args(s->ctx), NULL);

    return golden_write_local(s->ctx, strategy, names);
}

static json_t *
act_strategy_info(seat *s, json_t *step)
{
    co_context  *ctx = s->ctx;
    co_strategy *strategy = strategy_of(s, step);
    co_value    *devices = co_worker_devices(ctx, strategy);
    json_t      *json = json_object();
    json_t      *list = golden_write_value(ctx, devices);

    json_object_set_new(json, "num_replicas_in_sync",
                        json_integer(co_num_replicas_in_sync(ctx, strategy)));
    json_object_set(json, "worker_devices", json_object_get(list, "tuple"));
    json_decref(list);
    list = golden_write_value(ctx, co_parameter_devices(ctx, strategy));
    json_object_set(json, "parameter_devices", json_object_get(list, "tuple"));
    json_decref(list);
    json_object_set_new(json, "should_checkpoint",
                        json_boolean(co_should_checkpoint(ctx, strategy)));
    json_object_set_new(json, "class", json_string(co_strategy_name(ctx, strategy)));
    return json;
}

static json_t *
act_local_results(seat *s, json_t *step)
{
    co_value *local = co_local_results(s->ctx, strategy_of(s, step), co_scalar_float(s->ctx, 1.0F));

    return json_integer((json_int_t)co_num_items(s->ctx, local));
}

static json_t *
act_num_replicas(seat *s, json_t *step)
{
    (void)step;
    return json_integer(co_num_replicas_in_sync(s->ctx, co_get_strategy(s->ctx)));
}

typedef struct action {
    const char *name;
    json_t *(*act)(seat *s, json_t *step);
} action;
static const action actions[] = {
    { "query", act_query },
    { "enter", act_enter },
    { "exit", act_exit },
    { "exit_at", act_exit_at },
    { "set_strategy", act_set_strategy },
    { "run", act_run },
    { "merge_call", act_merge_call },
    { "merge_call_nested_value", act_merge_call_nested_value },
    { "thread", act_thread },
    { "all_reduce", act_all_reduce },
    { "reduce", act_reduce },
    { "variable", act_variable },
    { "distribute_dataset", act_distribute_dataset },
    { "run_returns", act_run_returns },
    { "run_raises", act_run_raises },
    { "run_raises_in_one", act_run_raises_in_one },
    { "run_non_callable", act_run_non_callable },
    { "merge_call_mismatch", act_merge_call_mismatch },
    { "raise_in_scope", act_raise_in_scope },
    { "device_in_replica", act_device_in_replica },
    { "strategy_info", act_strategy_info },
    { "local_results", act_local_results },
    { "num_replicas", act_num_replicas },
};

/* One action: {"result": ...}; a failure gives null and the error, and is cleared. */
static json_t *
act_one(seat *s, json_t *step)
{
    const char *name = json_string_value(json_object_get(step, "do"));
    json_t     *json = json_object();
    json_t     *result = NULL;
    size_t      i;

    for (i = 0; i < sizeof(actions) / sizeof(actions[0]); ++i)
        if (name != NULL && strcmp(actions[i].name, name) == 0)
            break;
    if (i < sizeof(actions) / sizeof(actions[0]))
        result = actions[i].act(s, step);
    else
        golden_fail(s->w->c, "action '%s' is not known to the runner", name ? name : "?");
    if (!co_ok(s->ctx)) {
        json_decref(result);
        result = NULL;
        json_object_set_new(json, "error", golden_write_error(s->ctx));
    }
    json_object_set_new(json, "result", result != NULL ? result : json_null());
    return json;
}

static json_t *
act_all(seat *s, json_t *steps)
{
    json_t *list = json_array();
    size_t  i;
    json_t *step;

    json_array_foreach(steps, i, step) json_array_append_new(list, act_one(s, step));
    return list;
}

void
golden_run_context(golden_case *c)
{
    world   w = { .c = c, .n = 1, .names = { "D" } };
    seat    s = { .w = &w, .ctx = c->ctx };
    json_t *steps = json_object_get(c->attrs, "steps");

    if (!json_is_array(steps)) {
        golden_fail(c, "field 'steps' of the case is not a list");
        return;
    }
    w.strategies[0] = co_default_strategy(c->ctx);
    make_strategies(&w, steps);
    if (c->is_failed || !co_ok(c->ctx))
        return;
    golden_put(c, "results", act_all(&s, steps));
    golden_put(c, "scopes_left_open", json_integer((json_int_t)s.num_open));
}
