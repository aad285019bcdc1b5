/* SPDX-License-Identifier: Apache-2.0 */
/* reduce: combining the values of replicas, from outside (reduce, gather) and from inside
 * (all_reduce, all_gather). */
#include "captured.h"
#include "families.h"

#include <stdio.h>
#include <string.h>

/* SUM and MEAN by name, in any letter case. null stands for something that is no operation at
 * all. */
static bool
read_op(golden_case *c, co_reduce_op *op)
{
    json_t *json = json_object_get(c->attrs, "op");

    if (json_is_null(json)) {
        *op = (co_reduce_op)-1;
        return true;
    }
    return co_reduce_op_from_name(c->ctx, golden_string(c, c->attrs, "op"), op) == CO_OK &&
           !c->is_failed;
}

typedef struct axes {
    int        at[CO_MAX_DIMS];
    size_t     n;
    const int *list; /* NULL: no axis was given */
} axes;

static bool
read_axes(golden_case *c, axes *out)
{
    json_t *json = json_object_get(c->attrs, "axis");
    json_t *item;
    size_t  i;

    out->n = 0;
    out->list = json_is_null(json) ? NULL : out->at;
    if (json_is_null(json))
        return true;
    if (json_is_integer(json)) {
        out->at[out->n++] = (int)json_integer_value(json);
        return true;
    }
    if (!json_is_array(json) || json_array_size(json) > CO_MAX_DIMS) {
        golden_fail(c, "field 'axis' of the case is neither null nor integers");
        return false;
    }
    json_array_foreach(json, i, item) out->at[out->n++] = (int)json_integer_value(item);
    return true;
}

static co_value *
named_replicas(golden_case *c, co_strategy *strategy, const char *name)
{
    return golden_read_replicas(c, c->ctx, strategy, json_object_get(c->inputs, name));
}

/* The three structures of the vocabulary, over the lists A, B and C. */
static co_value *
make_pair(golden_case *c, co_strategy *strategy)
{
    return co_args(c->ctx, named_replicas(c, strategy, "A"), named_replicas(c, strategy, "C"));
}

static co_value *
make_map(golden_case *c, co_value *a, co_value *b)
{
    return co_dict(c->ctx, (const char *const[]){ "a", "b" }, (co_value *const[]){ a, b }, 2);
}

static co_value *
make_map_of_list(golden_case *c, co_strategy *strategy)
{
    co_value *b = named_replicas(c, strategy, "B");

    return make_map(c, named_replicas(c, strategy, "A"), co_list(c->ctx, &b, 1));
}

static co_value *
make_map_of_tuple(golden_case *c, co_strategy *strategy)
{
    co_value *last = named_replicas(c, strategy, "C");
    co_value *b = co_args(c->ctx, named_replicas(c, strategy, "B"), co_list(c->ctx, &last, 1));

    return make_map(c, named_replicas(c, strategy, "A"), b);
}

static co_value *
read_structure(golden_case *c, co_strategy *strategy)
{
    static const struct {
        const char *text;
        co_value *(*make)(golden_case *c, co_strategy *strategy);
    } known[] = {
        { "(A, C)", make_pair },
        { "{a: A, b: [B]}", make_map_of_list },
        { "{a: A, b: (B, [C])}", make_map_of_tuple },
    };
    const char *text = golden_string(c, c->attrs, "structure");

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i)
        if (strcmp(known[i].text, text) == 0)
            return known[i].make(c, strategy);
    golden_fail(c, "structure '%s' is not known to the runner", text);
    return NULL;
}

/* What is reduced: a structure, values per replica, or one value for all. */
static co_value *
read_subject(golden_case *c, co_strategy *strategy)
{
    json_t *plain = json_object_get(c->inputs, "value");

    if (json_object_get(c->attrs, "structure") != NULL)
        return read_structure(c, strategy);
    if (plain != NULL)
        return golden_read_value(c, c->ctx, plain);
    return named_replicas(c, strategy, "per_replica");
}

/* What is combined from outside. */
typedef struct combining {
    co_strategy *strategy;
    co_reduce_op op;
    axes         along;
} combining;

static co_value *
do_reduce(co_context *ctx, co_value *args, void *user)
{
    const combining *r = user;

    return co_reduce(ctx, r->strategy, r->op, co_at(ctx, args, 0), r->along.list, r->along.n);
}

static void
reduce_and_put(golden_case *c, co_strategy *strategy, co_value *subject)
{
    combining r = { .strategy = strategy };
    co_value *result;

    if (c->is_failed || !co_ok(c->ctx) || !read_op(c, &r.op) || !read_axes(c, &r.along))
        return;
    result = golden_in_function(c->ctx, do_reduce, co_args(c->ctx, subject), &r);
    if (co_ok(c->ctx))
        golden_put_value(c, "result", result);
}

static void
run_reduce(golden_case *c)
{
    co_strategy *strategy = golden_strategy(c);

    if (strategy != NULL)
        reduce_and_put(c, strategy, read_subject(c, strategy));
}

/* Replica functions. `shared` is the host value that all replicas hand back. */
static co_value *
fn_none(co_context *ctx, co_value *args, void *shared)
{
    (void)ctx;
    (void)args;
    (void)shared;
    return NULL;
}

static co_value *
fn_id_plus_1(co_context *ctx, co_value *args, void *shared)
{
    (void)args;
    (void)shared;
    return co_scalar_float(ctx, (float)(co_replica_id(ctx) + 1));
}

static co_value *
fn_shared(co_context *ctx, co_value *args, void *shared)
{
    (void)ctx;
    (void)args;
    return shared;
}

static co_value *
fn_reduce_sum(co_context *ctx, co_value *args, void *shared)
{
    (void)shared;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

static co_value *
fn_square(co_context *ctx, co_value *args, void *shared)
{
    (void)shared;
    return co_square(ctx, co_at(ctx, args, 0));
}

static void
run_reduce_of_run(golden_case *c)
{
    static const struct {
        const char *text;
        co_fn       fn;
    } known[] = {
        { "None", fn_none },
        { "float32(replica_id + 1)", fn_id_plus_1 },
        { "python constant 3.0", fn_shared },
        { "reduce_sum(x)", fn_reduce_sum },
        { "square(x)", fn_square },
    };
    const char  *text = golden_string(c, c->attrs, "replica_fn");
    co_strategy *strategy = golden_strategy(c);
    json_t      *list = json_object_get(c->inputs, "per_replica");
    co_value    *args = co_no_args(c->ctx), *result;

    if (strategy == NULL)
        return;
    if (list != NULL)
        args = co_args(c->ctx, golden_read_replicas(c, c->ctx, strategy, list));
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
        if (strcmp(known[i].text, text) != 0)
            continue;
        result = golden_run_in_function(c->ctx, strategy, known[i].fn, args, co_float(c->ctx, 3.0));
        reduce_and_put(c, strategy, result != NULL ? result : co_none(c->ctx));
        return;
    }
    golden_fail(c, "replica_fn '%s' is not known to the runner", text);
}

/* Inside replicas: what a replica function needs to know. */
typedef struct inside {
    co_strategy *strategy;
    co_reduce_op op;
    int          axis;
    json_t      *dense_shape;
} inside;

/* Run with the values per replica as the argument; every leaf of the result is written per
 * replica. */
static void
run_inside(golden_case *c, inside *in, co_fn fn, co_value *args, const char *output)
{
    co_value *result;

    if (c->is_failed || !co_ok(c->ctx))
        return;
    result = golden_run_in_function(c->ctx, in->strategy, fn, args, in);
    if (co_ok(c->ctx))
        golden_put(c, output, golden_write_replicas(c->ctx, in->strategy, result));
}

static co_value *
fn_all_reduce(co_context *ctx, co_value *args, void *user)
{
    const inside *in = user;

    return co_all_reduce(ctx, in->op, co_at(ctx, args, 0));
}

static void
run_all_reduce(golden_case *c)
{
    inside in = { .strategy = golden_strategy(c) };

    if (in.strategy != NULL && read_op(c, &in.op))
        run_inside(c, &in, fn_all_reduce, co_args(c->ctx, read_subject(c, in.strategy)), "result");
}

static co_value *
fn_all_reduce_one(co_context *ctx, co_value *args, void *user)
{
    const inside *in = user;

    (void)args;
    return co_all_reduce(ctx, in->op, co_scalar_float(ctx, 1.0F));
}

static void
run_all_reduce_op_name(golden_case *c)
{
    inside in = { .strategy = golden_strategy(c) };

    if (in.strategy != NULL && read_op(c, &in.op))
        run_inside(c, &in, fn_all_reduce_one, co_no_args(c->ctx), "result");
}

/* y=all_reduce(x*x); z=reduce_sum(y*(replica_id+1)); dz/dx */
static co_value *
fn_all_reduce_gradient(co_context *ctx, co_value *args, void *user)
{
    const inside *in = user;
    co_value     *x = co_at(ctx, args, 0), *y, *z;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_all_reduce(ctx, in->op, co_mul(ctx, x, x));
    z = co_reduce_sum(ctx, co_mul(ctx, y, co_int(ctx, co_replica_id(ctx) + 1)), CO_ALL_AXES, false);
    return co_gradient(ctx, z, x);
}

static void
run_all_reduce_gradient(golden_case *c)
{
    static const char known[] = "y=all_reduce(x*x); z=reduce_sum(y*(replica_id+1)); dz/dx";
    const char       *text = golden_string(c, c->attrs, "replica_fn");
    inside            in = { .strategy = golden_strategy(c) };

    if (strcmp(text, known) != 0)
        golden_fail(c, "replica_fn '%s' is not known to the runner", text);
    if (in.strategy != NULL && read_op(c, &in.op))
        run_inside(c, &in, fn_all_reduce_gradient, co_args(c->ctx, read_subject(c, in.strategy)),
                   "result");
}

static co_value *
fn_all_reduce_slices(co_context *ctx, co_value *args, void *user)
{
    const inside *in = user;
    const int64_t at[2] = { 0, co_replica_id(ctx) };
    int64_t       dims[CO_MAX_DIMS] = { 0 };
    size_t        ndim = json_array_size(in->dense_shape);
    co_value     *slices;

    for (size_t i = 0; i < ndim && i < CO_MAX_DIMS; ++i)
        dims[i] = json_integer_value(json_array_get(in->dense_shape, i));
    slices = co_slices(ctx, co_at(ctx, args, 0), co_tensor(ctx, CO_INT64, CO_SHAPE(2), at),
                       co_tensor(ctx, CO_INT64, CO_SHAPE((int64_t)ndim), dims));
    return co_to_tensor(ctx, co_all_reduce(ctx, in->op, slices), CO_DTYPE_NONE);
}

static void
run_all_reduce_slices(golden_case *c)
{
    const char *text = golden_string(c, c->attrs, "indices");
    inside      in = { .strategy = golden_strategy(c),
                       .dense_shape = json_object_get(c->attrs, "dense_shape") };

    if (strcmp(text, "[0, replica_id]") != 0)
        golden_fail(c, "indices '%s' are not known to the runner", text);
    if (in.strategy != NULL && read_op(c, &in.op))
        run_inside(c, &in, fn_all_reduce_slices,
                   co_args(c->ctx, named_replicas(c, in.strategy, "values")), "result_dense");
}

static co_value *
fn_all_gather(co_context *ctx, co_value *args, void *user)
{
    const inside *in = user;

    return co_all_gather(ctx, co_at(ctx, args, 0), in->axis);
}

static void
run_all_gather(golden_case *c)
{
    inside in = { .strategy = golden_strategy(c), .axis = (int)golden_int(c, c->attrs, "axis", 0) };

    if (in.strategy != NULL)
        run_inside(c, &in, fn_all_gather, co_args(c->ctx, read_subject(c, in.strategy)), "result");
}

static co_value *
do_gather(co_context *ctx, co_value *args, void *user)
{
    const inside *in = user;

    return co_gather_replicas(ctx, in->strategy, co_at(ctx, args, 0), in->axis);
}

static void
run_gather(golden_case *c)
{
    inside in = { .strategy = golden_strategy(c), .axis = (int)golden_int(c, c->attrs, "axis", 0) };
    co_value *subject = in.strategy != NULL ? read_subject(c, in.strategy) : NULL;
    co_value *result;

    if (subject == NULL)
        return;
    result = golden_in_function(c->ctx, do_gather, co_args(c->ctx, subject), &in);
    if (co_ok(c->ctx))
        golden_put_value(c, "result", result);
}

static co_value *
fn_reduce_inside(co_context *ctx, co_value *args, void *user)
{
    const inside *in = user;

    (void)args;
    return co_reduce(ctx, in->strategy, in->op, co_scalar_float(ctx, 1.0F), NULL, 0);
}

static void
run_reduce_in_replica_context(golden_case *c)
{
    inside in = { .strategy = golden_strategy(c) };

    if (in.strategy != NULL && read_op(c, &in.op))
        run_inside(c, &in, fn_reduce_inside, co_no_args(c->ctx), "result");
}

static co_value *
read_local_subject(golden_case *c, co_strategy *strategy)
{
    const char *text = golden_string(c, c->attrs, "value");
    co_value   *variable = NULL;

    if (strcmp(text, "mirrored variable 0.0") != 0)
        return read_subject(c, strategy);
    CO_SCOPE(c->ctx, strategy)
        variable = co_variable(c->ctx, co_scalar_float(c->ctx, 0.0F), NULL);
    return variable;
}

static void
run_local_results(golden_case *c)
{
    co_strategy *strategy = golden_strategy(c);
    co_value    *subject = strategy != NULL ? read_local_subject(c, strategy) : NULL;
    json_t      *list;

    if (subject == NULL)
        return;
    list = golden_write_local(c->ctx, strategy, subject);
    golden_put(c, "count", json_integer((json_int_t)json_array_size(list)));
    golden_put(c, "values", list);
}

/* "variable": one made in the scope; "last_device": the name of the strategy's last; otherwise a
 * device name. */
static co_value *
read_destination(golden_case *c, co_strategy *strategy, const char *text)
{
    co_value *variable = NULL, *devices;

    if (strcmp(text, "variable") == 0) {
        CO_SCOPE(c->ctx, strategy)
            variable = co_variable(c->ctx, co_scalar_float(c->ctx, 0.0F), NULL);
        return variable;
    }
    if (strcmp(text, "last_device") != 0)
        return co_string(c->ctx, text);
    if (strategy == co_default_strategy(c->ctx))
        return co_string(c->ctx, golden_device(0));
    devices = co_worker_devices(c->ctx, strategy);
    return co_at(c->ctx, devices, co_num_items(c->ctx, devices) - 1);
}

static co_value *
read_reduced(golden_case *c, co_strategy *strategy)
{
    json_t     *json = json_object_get(c->attrs, "value");
    const char *text = json_is_string(json) ? json_string_value(json) : "per replica";
    co_value   *variable = NULL;

    if (strcmp(text, "mirrored variable 0.0") != 0)
        return read_subject(c, strategy);
    CO_SCOPE(c->ctx, strategy)
        variable = co_variable(c->ctx, co_scalar_float(c->ctx, 0.0F), NULL);
    return variable;
}

static void
put_devices(golden_case *c, co_value *local)
{
    json_t *devices = json_array();

    for (size_t i = 0; co_ok(c->ctx) && i < co_num_items(c->ctx, local); ++i)
        json_array_append_new(devices,
                              json_string(co_value_device(c->ctx, co_at(c->ctx, local, i))));
    golden_put(c, "devices", devices);
}

/* The components of a result: of its bundle, or itself. */
static co_value *
parts_of(golden_case *c, co_value *value)
{
    co_value *items[16];
    size_t    n;

    if (co_value_kind(value) != CO_KIND_MIRRORED && co_value_kind(value) != CO_KIND_PER_REPLICA)
        return co_tuple(c->ctx, &value, 1);
    n = co_num_items(c->ctx, value);
    for (size_t i = 0; i < n && i < 16; ++i)
        items[i] = co_at(c->ctx, value, i);
    return co_tuple(c->ctx, items, n < 16 ? n : 16);
}

static json_t *
write_parts(golden_case *c, co_value *value)
{
    json_t *tuple = golden_write_value(c->ctx, parts_of(c, value));
    json_t *list = json_incref(json_object_get(tuple, "tuple"));

    json_decref(tuple);
    return list;
}

static co_value *
do_reduce_to(co_context *ctx, co_value *args, void *user)
{
    const combining *r = user;

    return co_reduce_to(ctx, r->strategy, r->op, co_at(ctx, args, 0), co_at(ctx, args, 1));
}

static co_value *
do_batch_reduce_to(co_context *ctx, co_value *args, void *user)
{
    const combining *r = user;

    return co_batch_reduce_to(ctx, r->strategy, r->op, co_at(ctx, args, 0));
}

static void
run_reduce_to(golden_case *c)
{
    co_strategy *strategy = golden_strategy(c);
    combining    r = { .strategy = strategy };
    co_value    *subject, *where, *result;

    if (strategy == NULL || !read_op(c, &r.op))
        return;
    subject = read_reduced(c, strategy);
    where = read_destination(c, strategy, golden_string(c, c->attrs, "destinations"));
    if (c->is_failed)
        return;
    result = golden_in_function(c->ctx, do_reduce_to, co_args(c->ctx, subject, where), &r);
    if (!co_ok(c->ctx))
        return;
    golden_put(c, "class", json_string(golden_class(c->ctx, result)));
    golden_put(c, "local_results", write_parts(c, result));
    put_devices(c, parts_of(c, result));
}

static void
run_batch_reduce_to(golden_case *c)
{
    static const char *const names[] = { "A", "B", "C" };
    co_strategy             *strategy = golden_strategy(c);
    json_t   *places = json_object_get(c->attrs, "destinations"), *results = json_array();
    co_value *pairs[3], *list;
    combining r = { .strategy = strategy };
    size_t    n = json_array_size(places);

    golden_put(c, "results", results);
    if (strategy == NULL || !read_op(c, &r.op) || n > 3)
        return;
    for (size_t i = 0; i < n; ++i) {
        const char *text = json_string_value(json_array_get(places, i));

        pairs[i] = co_args(c->ctx, named_replicas(c, strategy, names[i]),
                           read_destination(c, strategy, text != NULL ? text : ""));
    }
    list = golden_in_function(c->ctx, do_batch_reduce_to,
                              co_args(c->ctx, co_list(c->ctx, pairs, n)), &r);
    for (size_t i = 0; co_ok(c->ctx) && i < n; ++i)
        json_array_append_new(results, write_parts(c, co_at(c->ctx, list, i)));
}

void
golden_run_reduce(golden_case *c)
{
    static const golden_action table[] = {
        { "reduce", run_reduce },
        { "reduce_python_number", run_reduce },
        { "reduce_plain_tensor", run_reduce },
        { "reduce_op_name", run_reduce },
        { "reduce_nested", run_reduce },
        { "reduce_of_run", run_reduce_of_run },
        { "all_reduce", run_all_reduce },
        { "all_reduce_nested", run_all_reduce },
        { "all_reduce_gradient", run_all_reduce_gradient },
        { "all_reduce_indexed_slices", run_all_reduce_slices },
        { "all_reduce_op_name", run_all_reduce_op_name },
        { "all_gather", run_all_gather },
        { "gather", run_gather },
        { "reduce_in_replica_context", run_reduce_in_replica_context },
        { "local_results", run_local_results },
        { "reduce_to", run_reduce_to },
        { "batch_reduce_to", run_batch_reduce_to },
    };

    golden_run_group(c, table, sizeof(table) / sizeof(table[0]));
}
