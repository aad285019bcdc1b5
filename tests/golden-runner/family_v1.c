/* SPDX-License-Identifier: Apache-2.0 */
/*
 * v1: lists of actions on a strategy of the v1 flavour and its input iterators. Each gives
 * {"result": ...} and, where it failed,
 * {"error": ...}; a failing action does not stop the list. In deferred-graph mode actions add to a
 * graph, which a session runs: the node of get_next and of experimental_run is made once for each
 * iterator, and runs again in every such action.
 */
#include <cohort/v1.h>
#include "families.h"

#include <stdio.h>
#include <string.h>

#define MAX_ITERATORS 4
#define MAX_REPLICAS  4
#define MAX_NODES     32

/* What a case has made so far. */
typedef struct bench {
    golden_case *c;
    co_context  *ctx;
    co_strategy *strategy;
    co_scope     scope;
    const char  *names[MAX_ITERATORS];
    co_iterator *iterators[MAX_ITERATORS];
    size_t       n;
    int64_t      calls;   /* of the last input function */
    int32_t      counter; /* of callable_counter */
    json_t      *step;    /* under way */
    json_t      *contexts;
    json_t      *seen[MAX_REPLICAS]; /* by experimental_run_query */
    co_session  *session;            /* of the graph; NULL: eager */
    struct {
        const void *iterator;
        const char *what;
        co_value   *value;
    } nodes[MAX_NODES];
    size_t num_nodes;
} bench;

/* What the graph computes for it; in eager mode it is computed already. */
static co_value *
computed(bench *b, co_value *value)
{
    if (b->session == NULL || value == NULL || co_value_kind(value) == CO_KIND_NONE)
        return value;
    return co_session_run(b->ctx, b->session, value, NULL, 0);
}

/* The node of an iterator that was made for the same action before. */
static co_value *
node_of(bench *b, const void *iterator, const char *what)
{
    for (size_t i = 0; b->session != NULL && i < b->num_nodes; ++i)
        if (b->nodes[i].iterator == iterator && strcmp(b->nodes[i].what, what) == 0)
            return b->nodes[i].value;
    return NULL;
}

static co_value *
keep_node(bench *b, const void *iterator, const char *what, co_value *value)
{
    if (b->session != NULL && value != NULL && b->num_nodes < MAX_NODES) {
        b->nodes[b->num_nodes].iterator = iterator;
        b->nodes[b->num_nodes].what = what;
        b->nodes[b->num_nodes++].value = value;
    }
    return value;
}

static const char *
text_of(bench *b, const char *key)
{
    const char *text = json_string_value(json_object_get(b->step, key));

    return text != NULL ? text : "";
}

static co_iterator **
place_of(bench *b)
{
    const char *name = text_of(b, "name");
    size_t      i = 0;

    if (*name == '\0')
        name = "a";
    while (i < b->n && strcmp(b->names[i], name) != 0)
        ++i;
    if (i == b->n && b->n < MAX_ITERATORS - 1)
        b->names[b->n++] = name;
    return &b->iterators[i];
}

static co_dataset *
pipeline_of(bench *b)
{
    return golden_pipeline(b->c, b->ctx, json_object_get(b->step, "pipeline"));
}

/* --- strategies by letter, of the v1 flavour --- */

static co_strategy *
make_strategy(golden_case *c, const char *letter)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3" };

    if (strcmp(letter, "D") == 0)
        return co_v1_default_strategy(c->ctx);
    if (strcmp(letter, "O") == 0 || strcmp(letter, "P") == 0)
        return co_v1_one_device_strategy(c->ctx, devices[*letter - 'O']);
    if (letter[0] == 'M' && letter[1] >= '1' && letter[1] <= '4')
        return co_v1_mirrored_strategy(c->ctx, devices, (size_t)(letter[1] - '0'), NULL);
    golden_fail(c, "strategy '%s' is not known to the runner", letter);
    return NULL;
}

/* --- iterators --- */

static json_t *
act_make_dataset_iterator(bench *b)
{
    co_dataset *dataset = pipeline_of(b);

    *place_of(b) = dataset != NULL ? co_make_dataset_iterator(b->ctx, b->strategy, dataset) : NULL;
    return NULL;
}

static co_value *
callable_constant(co_context *ctx, void *user)
{
    (void)user;
    return co_scalar_int32(ctx, 4);
}

static co_value *
callable_counter(co_context *ctx, void *user)
{
    return co_scalar_int32(ctx, ++((bench *)user)->counter);
}

static co_dataset *
per_replica_batch(bench *b, const co_input_context *input)
{
    co_dataset *rows = co_dataset_range(b->ctx, 0, 12, 1);
    int64_t     size = co_per_replica_batch_size(b->ctx, input,
                                                 golden_int(b->c, b->step, "global_batch", 0));

    json_object_set_new(json_array_get(b->contexts, json_array_size(b->contexts) - 1), "batch_size",
                        json_integer(size));
    return size > 0 ? co_dataset_batch(b->ctx, rows, size, false) : rows;
}

/* What the case lets the function return; handles of another kind are what C can do wrong in the
 * place of Python's types. */
static co_dataset *
input_fn(co_context *ctx, const co_input_context *input, void *user)
{
    bench      *b = user;
    const char *what = text_of(b, "input_fn");
    co_value   *wrong = NULL;

    ++b->calls;
    json_array_append_new(b->contexts,
                          json_pack("{s:i,s:i,s:i,s:b,s:b}", "num_input_pipelines",
                                    input->num_input_pipelines, "input_pipeline_id",
                                    input->input_pipeline_id, "num_replicas_in_sync",
                                    input->num_replicas_in_sync, "in_cross_replica_context",
                                    co_in_cross_replica_context(ctx), "strategy_is_current",
                                    co_v1_get_strategy(ctx) == b->strategy));
    if (strcmp(what, "dataset") == 0)
        return pipeline_of(b);
    if (strcmp(what, "per_replica_batch") == 0)
        return per_replica_batch(b, input);
    if (strcmp(what, "callable_constant") == 0)
        return co_input_callable(ctx, callable_constant, NULL);
    if (strcmp(what, "callable_counter") == 0)
        return co_input_callable(ctx, callable_counter, b);
    if (strcmp(what, "raise") == 0)
        return co_fail(ctx, CO_VALUE_ERROR, "boom in input_fn"), NULL;
    if (strcmp(what, "null") == 0)
        return NULL;
    if (strcmp(what, "int") == 0)
        wrong = co_int(ctx, 7);
    else if (strcmp(what, "list") == 0)
        wrong = co_list(ctx, NULL, 0);
    else if (strcmp(what, "tensor") == 0)
        wrong = co_scalar_float(ctx, 1);
    else
        golden_fail(b->c, "input_fn '%s' is not known to the runner", what);
    return (co_dataset *)(void *)wrong;
}

static json_t *
act_make_input_fn_iterator(bench *b)
{
    const char               *name = text_of(b, "replication_mode");
    co_input_replication_mode mode = (co_input_replication_mode)-1; /* a string, null: no mode */

    if (*name == '\0' || strcmp(name, "PER_WORKER") == 0)
        mode = CO_INPUT_PER_WORKER;
    else if (strcmp(name, "PER_REPLICA") == 0)
        mode = CO_INPUT_PER_REPLICA;
    b->calls = 0;
    b->contexts = json_array();
    *place_of(b) = co_make_input_fn_iterator(b->ctx, b->strategy, input_fn, b, mode);
    return json_pack("{s:o}", "input_contexts", b->contexts);
}

static json_t *
act_input_fn_calls(bench *b)
{
    return json_integer(b->calls);
}

static json_t *
act_initialize(bench *b)
{
    computed(b, co_iterator_initialize(b->ctx, *place_of(b)));
    return NULL;
}

static json_t *
act_initializer(bench *b)
{
    computed(b, co_iterator_initializer(b->ctx, *place_of(b)));
    return NULL;
}

static co_value *
next_of(bench *b, co_iterator *iterator)
{
    co_value *node = node_of(b, iterator, "");

    if (node == NULL)
        node = keep_node(b, iterator, "", co_get_next(b->ctx, iterator));
    return computed(b, node);
}

static json_t *
act_get_next(bench *b)
{
    return golden_write_value(b->ctx, next_of(b, *place_of(b)));
}

static json_t *
act_element_spec(bench *b)
{
    return golden_write_value(b->ctx, co_iterator_element_spec(b->ctx, *place_of(b)));
}

static json_t *
act_output_types(bench *b)
{
    return golden_write_value(b->ctx, co_iterator_output_types(b->ctx, *place_of(b)));
}

/* The recording has the lengths alone where a tensor would have dtype and shape. */
static json_t *
bare_data(json_t *json)
{
    json_t     *data = json_object_get(json, "data"), *item;
    const char *key;
    size_t      i;

    if (data != NULL)
        return json_incref(data);
    json_object_foreach(json, key, item) json_object_set_new(json, key, bare_data(item));
    json_array_foreach(json, i, item) json_array_set_new(json, i, bare_data(item));
    return json_incref(json);
}

static json_t *
act_output_shapes(bench *b)
{
    json_t *json = golden_write_value(b->ctx, co_iterator_output_shapes(b->ctx, *place_of(b)));
    json_t *bare = bare_data(json);

    json_decref(json);
    return bare;
}

/* --- steps: what every replica does with its input --- */

static co_value *
sum_of(co_context *ctx, co_value *x)
{
    return co_reduce_sum(ctx, x, CO_ALL_AXES, false);
}

static co_value *
size_of(co_context *ctx, co_value *x)
{
    return co_size(ctx, x);
}

static co_value *
fn_double(co_context *ctx, co_value *x)
{
    return co_mul(ctx, x, co_int(ctx, 2));
}

static co_value *
fn_identity(co_context *ctx, co_value *x)
{
    return co_identity(ctx, x);
}

static co_value *
fn_add_pair(co_context *ctx, co_value *x)
{
    return co_add(ctx, co_at(ctx, x, 0), co_at(ctx, x, 1));
}

static co_value *
fn_add_map(co_context *ctx, co_value *x)
{
    return co_add(ctx, co_get(ctx, x, "a"), co_get(ctx, x, "b"));
}

static co_value *
fn_pair(co_context *ctx, co_value *x)
{
    return co_args(ctx, sum_of(ctx, x), size_of(ctx, x));
}

static co_value *
fn_replica_id(co_context *ctx, co_value *x)
{
    (void)x;
    return co_replica_id_in_sync_group(ctx);
}

static co_value *
fn_add_replica_id(co_context *ctx, co_value *x)
{
    return co_add(ctx, x, co_int(ctx, co_replica_id(ctx)));
}

static co_value *
fn_all_reduce(co_context *ctx, co_value *x)
{
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_cast(ctx, sum_of(ctx, x), CO_FLOAT32));
}

static co_value *
fn_constant3(co_context *ctx, co_value *x)
{
    (void)x;
    return co_scalar_int32(ctx, 3);
}

static co_value *
fn_none(co_context *ctx, co_value *x)
{
    (void)ctx, (void)x;
    return NULL;
}

static co_value *
fn_raise(co_context *ctx, co_value *x)
{
    (void)x;
    co_fail(ctx, CO_VALUE_ERROR, "boom in fn");
    return NULL;
}

typedef struct function {
    const char *name;
    co_value *(*fn)(co_context *ctx, co_value *x);
    bool as_float;
} function;

static const function functions[] = {
    { "x*2", fn_double, false },
    { "sum", sum_of, false },
    { "size", size_of, false },
    { "identity", fn_identity, false },
    { "x[0]+x[1]", fn_add_pair, false },
    { "a+b", fn_add_map, false },
    { "pair", fn_pair, false },
    { "replica_id", fn_replica_id, false },
    { "x+replica_id", fn_add_replica_id, false },
    { "all_reduce_sum", fn_all_reduce, false },
    { "constant3", fn_constant3, false },
    { "none", fn_none, false },
    { "raise", fn_raise, false },
};

/* By the name in the step; a copy that the caller may change. */
static function
find_function(bench *b)
{
    const char *name = text_of(b, "fn");

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); ++i)
        if (strcmp(functions[i].name, name) == 0)
            return functions[i];
    golden_fail(b->c, "function '%s' is not known to the runner", name);
    return functions[0];
}

static co_value *
replica_fn(co_context *ctx, co_value *args, void *user)
{
    const function *f = user;
    co_value *result = f->fn(ctx, co_num_items(ctx, args) > 0 ? co_at(ctx, args, 0) : co_none(ctx));

    return f->as_float && co_ok(ctx) ? co_cast(ctx, result, CO_FLOAT32) : result;
}

static co_value *
run_once(bench *b, function *f)
{
    bool         with = !json_is_false(json_object_get(b->step, "iterator"));
    co_iterator *iterator = with ? *place_of(b) : NULL;
    co_value    *node = f->as_float ? NULL : node_of(b, iterator, f->name);

    if (node == NULL)
        node = co_experimental_run(b->ctx, b->strategy, replica_fn, iterator, f);
    return f->as_float ? node : keep_node(b, iterator, f->name, node);
}

static json_t *
act_experimental_run(bench *b)
{
    function f = find_function(b);

    return golden_write_value(b->ctx, computed(b, run_once(b, &f)));
}

static co_reduce_op
read_op(bench *b, const char *key)
{
    const char  *name = text_of(b, key);
    co_reduce_op op = CO_REDUCE_NONE;

    if (*name != '\0')
        co_reduce_op_from_name(b->ctx, strncmp(name, "MEAN", 4) == 0 ? "MEAN" : name, &op);
    return op;
}

/* With an axis, several, or as v1 does without. */
static json_t *
reduce(bench *b, co_value *value)
{
    json_t      *axis = json_object_get(b->step, "axis"), *item;
    co_reduce_op op = read_op(b, "op");
    int          axes[CO_MAX_DIMS];
    size_t       n = 0, i;

    if (json_is_integer(axis))
        axes[n++] = (int)json_integer_value(axis);
    json_array_foreach(axis, i, item) if (n < CO_MAX_DIMS)
        axes[n++] = (int)json_integer_value(item);
    if (n > 0)
        value = co_reduce(b->ctx, b->strategy, op, value, axes, n);
    else
        value = co_v1_reduce(b->ctx, b->strategy, op, value);
    return golden_write_value(b->ctx, computed(b, value));
}

static json_t *
act_experimental_run_reduce(bench *b)
{
    function  f = find_function(b);
    co_value *result;

    f.as_float = strcmp(text_of(b, "op"), "MEAN_float") == 0;
    result = run_once(b, &f);
    return result != NULL ? reduce(b, result) : NULL;
}

static co_value *
times_id(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, co_replica_id(ctx) + 1));
}

static json_t *
act_reduce(bench *b)
{
    co_value *tensor = golden_read_value(b->c, b->ctx, json_object_get(b->step, "tensor"));

    if (strcmp(text_of(b, "value"), "plain") != 0)
        tensor = co_run(b->ctx, b->strategy, times_id, co_args(b->ctx, tensor), NULL);
    return tensor != NULL ? reduce(b, tensor) : NULL;
}

static co_value *
query_fn(co_context *ctx, co_value *args, void *user)
{
    bench *b = user;
    int    id = co_replica_id(ctx);

    (void)args;
    if (id >= 0 && id < MAX_REPLICAS)
        b->seen[id] = json_pack("{s:b,s:b,s:i,s:b}", "has_strategy", co_has_strategy(ctx),
                                "in_cross_replica_context", co_in_cross_replica_context(ctx),
                                "num_replicas_in_sync", co_replicas(ctx), "strategy_is_current",
                                co_v1_get_strategy(ctx) == b->strategy);
    return NULL;
}

static json_t *
act_experimental_run_query(bench *b)
{
    json_t *calls = json_array();

    co_experimental_run(b->ctx, b->strategy, query_fn, *place_of(b), b);
    for (int i = 0; i < MAX_REPLICAS; ++i)
        if (b->seen[i] != NULL)
            json_array_append_new(calls, b->seen[i]);
    return json_pack("{s:o,s:b}", "calls", calls, "after_has_strategy", co_has_strategy(b->ctx));
}

/* --- several steps --- */

typedef struct several {
    bench       *b;
    function     f;
    co_reduce_op op;
} several;

static co_value *
one_step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    several  *s = user;
    co_value *outputs = co_run(ctx, s->b->strategy, replica_fn, co_args(ctx, inputs), &s->f);

    co_set_last_step_output(ctx, steps, "o", s->op, outputs);
    return NULL;
}

static co_value *
one_non_tensor_step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    (void)inputs, (void)user;
    co_set_non_tensor_output(ctx, steps, "k", co_string(ctx, "hello"));
    return NULL;
}

static co_step_context *
run_several(bench *b, co_step_fn fn, several *s)
{
    int64_t n = golden_int(b->c, b->step, "iterations", 1);

    return co_run_steps_on_iterator(b->ctx, b->strategy, fn, *place_of(b), s, n, NULL);
}

static json_t *
act_run_steps(bench *b)
{
    several          s = { b, find_function(b), read_op(b, "reduce_op") };
    co_step_context *steps;
    co_value        *outputs;

    s.f.as_float = s.op == CO_REDUCE_MEAN;
    steps = run_several(b, one_step, &s);
    outputs = steps != NULL ? computed(b, co_last_step_outputs(b->ctx, steps)) : NULL;
    return json_pack("{s:o}", "last_step_outputs", golden_write_value(b->ctx, outputs));
}

static json_t *
act_run_steps_non_tensor(bench *b)
{
    co_step_context *steps = run_several(b, one_non_tensor_step, NULL);

    if (steps == NULL)
        return NULL;
    computed(b, co_run_steps_operation(b->ctx, steps));
    return json_pack("{s:o}", "non_tensor_outputs",
                     golden_write_value(b->ctx, co_non_tensor_outputs(b->ctx, steps)));
}

/* --- looking --- */

static json_t *
names(bench *b, co_value *tuple)
{
    json_t *json = golden_write_value(b->ctx, tuple);
    json_t *list = json_incref(json_object_get(json, "tuple"));

    json_decref(json);
    return list;
}

/* What was found, or the error that came instead. */
static void
put_found(bench *b, json_t *json, const char *name, json_t *found)
{
    if (!co_ok(b->ctx)) {
        json_decref(found);
        found = json_pack("{s:o}", "error", golden_write_error(b->ctx));
    }
    json_object_set_new(json, name, found);
}

static json_t *
act_properties(bench *b)
{
    co_context  *ctx = b->ctx;
    co_strategy *s = b->strategy, *e = co_extended(ctx, s);
    json_t      *extended = json_object();

    put_found(b, extended, "worker_devices", names(b, co_worker_devices(ctx, e)));
    put_found(b, extended, "parameter_devices", names(b, co_parameter_devices(ctx, e)));
    put_found(b, extended, "experimental_require_static_shapes",
              json_boolean(co_experimental_require_static_shapes(ctx, e)));
    put_found(b, extended, "experimental_should_init",
              json_boolean(co_experimental_should_init(ctx, e)));
    put_found(b, extended, "experimental_between_graph",
              json_boolean(co_experimental_between_graph(ctx, e)));
    put_found(b, extended, "should_checkpoint", json_boolean(co_should_checkpoint(ctx, e)));
    put_found(b, extended, "should_save_summary", json_boolean(co_should_save_summary(ctx, e)));
    put_found(b, extended, "non_slot_devices([])",
              names(b, co_non_slot_devices(ctx, e, co_list(ctx, NULL, 0))));
    return json_pack("{s:i,s:o}", "num_replicas_in_sync", co_num_replicas_in_sync(ctx, s),
                     "extended", extended);
}

/* The names that the recording asked for. */
static json_t *
act_has_members(bench *b)
{
    json_t     *results = json_object_get(b->c->outputs, "results"), *result, *unused;
    json_t     *json = json_object();
    const char *name;
    size_t      i;

    json_array_foreach(results, i, result)
    {
        json_object_foreach(json_object_get(result, "result"), name, unused)
        {
            json_object_set_new(json, name,
                                json_boolean(co_strategy_has_member(b->ctx, b->strategy, name)));
        }
    }
    return json;
}

/* --- distributed datasets --- */

static json_t *
act_distribute_dataset_kind(bench *b)
{
    co_dataset *made = co_experimental_distribute_dataset(b->ctx, b->strategy, pipeline_of(b),
                                                          NULL);

    return json_pack("{s:o}", "element_spec",
                     golden_write_value(b->ctx, co_element_spec(b->ctx, made)));
}

static json_t *
two_elements(bench *b, co_iterator *it)
{
    json_t *list = json_array();

    for (int i = 0; it != NULL && i < 2; ++i)
        json_array_append_new(list, golden_write_value(b->ctx, next_of(b, it)));
    return list;
}

static json_t *
act_one_shot_iterator(bench *b)
{
    co_dataset *made = co_experimental_distribute_dataset(b->ctx, b->strategy, pipeline_of(b),
                                                          NULL);

    return two_elements(b, co_make_one_shot_iterator(b->ctx, made));
}

static json_t *
act_initializable_iterator(bench *b)
{
    co_dataset *made = co_experimental_distribute_dataset(b->ctx, b->strategy, pipeline_of(b),
                                                          NULL);

    co_iterator *it = co_make_initializable_iterator(b->ctx, made);

    if (it != NULL)
        computed(b, co_iterator_initialize(b->ctx, it));
    return two_elements(b, it);
}

static json_t *
act_plain_iteration(bench *b)
{
    return golden_write_elements(b->ctx, co_experimental_distribute_dataset(b->ctx, b->strategy,
                                                                            pipeline_of(b), NULL));
}

static co_dataset *
plain_fn(co_context *ctx, const co_input_context *input, void *user)
{
    (void)ctx, (void)input;
    return pipeline_of(user);
}

static json_t *
act_plain_iteration_from_function(bench *b)
{
    return golden_write_elements(b->ctx, co_experimental_distribute_datasets_from_function(
                                             b->ctx, b->strategy, plain_fn, b, NULL));
}

static json_t *
act_enter_scope(bench *b)
{
    b->scope = co_scope_begin(b->ctx, b->strategy);
    return NULL;
}

static json_t *
act_exit_scope(bench *b)
{
    co_scope_end(b->ctx, &b->scope);
    return NULL;
}

static const struct {
    const char *name;
    json_t *(*act)(bench *b);
} actions[] = {
    { "make_dataset_iterator", act_make_dataset_iterator },
    { "make_input_fn_iterator", act_make_input_fn_iterator },
    { "input_fn_calls", act_input_fn_calls },
    { "initialize", act_initialize },
    { "initializer", act_initializer },
    { "get_next", act_get_next },
    { "element_spec", act_element_spec },
    { "output_types", act_output_types },
    { "output_shapes", act_output_shapes },
    { "experimental_run", act_experimental_run },
    { "experimental_run_reduce", act_experimental_run_reduce },
    { "experimental_run_query", act_experimental_run_query },
    { "reduce", act_reduce },
    { "run_steps", act_run_steps },
    { "run_steps_non_tensor", act_run_steps_non_tensor },
    { "properties", act_properties },
    { "has_members", act_has_members },
    { "distribute_dataset_kind", act_distribute_dataset_kind },
    { "one_shot_iterator", act_one_shot_iterator },
    { "initializable_iterator", act_initializable_iterator },
    { "plain_iteration", act_plain_iteration },
    { "plain_iteration_from_function", act_plain_iteration_from_function },
    { "enter_scope", act_enter_scope },
    { "exit_scope", act_exit_scope },
};

/* One action; the first failure is also the error of a case that has one. */
static json_t *
act_one(bench *b)
{
    const char *name = text_of(b, "do");
    json_t     *json = json_object(), *result = NULL;
    size_t      i = 0, n = sizeof(actions) / sizeof(actions[0]);

    while (i < n && strcmp(actions[i].name, name) != 0)
        ++i;
    if (i < n)
        result = actions[i].act(b);
    else
        golden_fail(b->c, "action '%s' is not known to the runner", name);
    if (!co_ok(b->ctx)) {
        json_decref(result);
        result = NULL;
        if (b->c->error != NULL && b->c->code == CO_OK) {
            b->c->code = co_error(b->ctx)->code;
            snprintf(b->c->message, sizeof(b->c->message), "%.500s", co_error(b->ctx)->message);
        }
        json_object_set_new(json, "error", golden_write_error(b->ctx));
    }
    json_object_set_new(json, "result", result != NULL ? result : json_null());
    return json;
}

void
golden_run_v1(golden_case *c)
{
    bench   b = { .c = c, .ctx = c->ctx };
    bool    is_graph = golden_is_graph(c);
    json_t *steps = json_object_get(c->attrs, "steps"), *list = json_array();
    size_t  i;

    golden_put(c, "results", list);
    if (!json_is_array(steps))
        golden_fail(c, "field 'steps' of the case is not a list");
    b.strategy = make_strategy(c, golden_string(c, c->attrs, "strategy"));
    if (c->is_failed || b.strategy == NULL)
        return;
    if (is_graph)
        b.session = golden_begin_graph(c);
    json_array_foreach(steps, i, b.step) json_array_append_new(list, act_one(&b));
    if (is_graph)
        co_graph_end(c->ctx);
}
