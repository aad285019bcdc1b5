/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops: every operator by name through the table of the library: inputs by the names that the table
 * gives, attributes as a map, gradients by the tape with the recorded upstream. Two rows are
 * programs instead of operators (ops_programs.c).
 */
#include "families.h"

#include <stdio.h>
#include <string.h>

#include "captured.h"
#include "ops.h"

bool
golden_find_operator(const char *name, co_op_info *info)
{
    size_t n = co_num_ops();

    for (size_t i = 0; i < n; ++i) {
        info->struct_size = sizeof(*info);
        if (co_op_describe(i, info) && strcmp(info->name, name) == 0)
            return true;
    }
    return false;
}

/* One value per input of the operator, in its order, with the name it has in the case. A host
 * number may stand among the attributes of the case (range: start, limit, delta). */
bool
golden_read_inputs(golden_case *c, const co_op_info *info, golden_operands *in)
{
    for (size_t i = 0; i < info->num_inputs || info->variadic; ++i) {
        char    name[32];
        json_t *json;

        if (info->variadic)
            snprintf(name, sizeof(name), "%s_%zu", info->inputs[0], i);
        else
            snprintf(name, sizeof(name), "%s", info->inputs[i]);
        json = json_object_get(c->inputs, name);
        if (json == NULL && !info->variadic)
            json = json_object_get(c->attrs, name);
        if (json == NULL && info->variadic)
            break;
        if (json == NULL || in->n == GOLDEN_MAX_OPERANDS) {
            golden_fail(c, "the operator wants an input '%s' that the case does not have", name);
            return false;
        }
        in->values[in->n] = golden_read_value(c, c->ctx, json);
        if (in->values[in->n] == NULL)
            return false;
        snprintf(in->names[in->n++], sizeof(in->names[0]), "%s", name);
    }
    return true;
}

static bool
is_operand(const golden_operands *in, const char *name)
{
    for (size_t i = 0; i < in->n; ++i)
        if (strcmp(in->names[i], name) == 0)
            return true;
    return false;
}

static bool
all_inputs_used(golden_case *c, const golden_operands *in)
{
    const char *key;
    json_t     *item;

    json_object_foreach(c->inputs, key, item)
    {
        if (!is_operand(in, key)) {
            golden_fail(c, "the operator has no input '%s'", key);
            return false;
        }
    }
    return true;
}

/* Nested lists of integers (paddings) are handed over flat. */
static void
flatten(json_t *out, json_t *list)
{
    size_t  i;
    json_t *item;

    json_array_foreach(list, i, item)
    {
        if (json_is_array(item))
            flatten(out, item);
        else
            json_array_append(out, item);
    }
}

static co_value *
read_attr(golden_case *c, json_t *item)
{
    json_t   *flat;
    co_value *value;

    if (!json_is_array(item))
        return golden_read_value(c, c->ctx, item);
    flat = json_array();
    flatten(flat, item);
    value = golden_read_value(c, c->ctx, flat);
    json_decref(flat);
    return value;
}

co_value *
golden_read_attrs(golden_case *c, const golden_operands *in)
{
    const char *keys[32];
    co_value   *items[32];
    size_t      n = 0;
    const char *key;
    json_t     *item;

    json_object_foreach(c->attrs, key, item)
    {
        if (is_operand(in, key))
            continue;
        if (n == sizeof(keys) / sizeof(keys[0])) {
            golden_fail(c, "the case has too many attributes");
            return NULL;
        }
        keys[n] = key;
        items[n] = read_attr(c, item);
        if (items[n++] == NULL)
            return NULL;
    }
    return co_dict(c->ctx, keys, items, n);
}

/* Results under the names of the recording. One is "out"; several have the names of the outputs in
 * their order where the numbers agree, otherwise out_0, out_1, ... */
void
golden_name_outputs(golden_case *c, co_value *result, golden_operands *out)
{
    bool   is_many = co_value_kind(result) == CO_KIND_TUPLE;
    size_t n = is_many ? co_num_items(c->ctx, result) : 1;
    bool   by_case = is_many && json_object_size(c->outputs) == n;
    void  *at = json_object_iter(c->outputs);

    for (size_t i = 0; i < n && i < GOLDEN_MAX_OPERANDS; ++i) {
        out->values[i] = is_many ? co_at(c->ctx, result, i) : result;
        if (by_case)
            snprintf(out->names[i], sizeof(out->names[0]), "%s", json_object_iter_key(at));
        else if (is_many)
            snprintf(out->names[i], sizeof(out->names[0]), "out_%zu", i);
        else
            snprintf(out->names[i], sizeof(out->names[0]), "out");
        at = at != NULL ? json_object_iter_next(c->outputs, at) : NULL;
        ++out->n;
    }
}

/* Indexed slices are written in both forms, as the recording has them. */
static json_t *
write_gradient(golden_case *c, co_value *gradient)
{
    json_t *json = golden_write_value(c->ctx, gradient);

    if (co_value_kind(gradient) == CO_KIND_SLICES)
        json_object_set_new(json, "dense",
                            golden_write_value(c->ctx,
                                               co_to_tensor(c->ctx, gradient, CO_DTYPE_NONE)));
    return json;
}

static bool
is_gradient_wanted(golden_case *c)
{
    return json_object_size(json_object_get(c->json, "upstream")) > 0 && c->error == NULL;
}

static void
watch_inputs(golden_case *c, const golden_operands *in)
{
    json_t *grads = json_object_get(c->json, "grads");

    co_tape_begin(c->ctx);
    for (size_t i = 0; i < in->n; ++i)
        if (json_object_get(grads, in->names[i]) != NULL)
            co_watch(c->ctx, in->values[i]);
}

/* Pick the values whose names are keys of `wanted`, in the order of `from`. */
static size_t
select_values(const golden_operands *from, json_t *wanted, co_value **values, const char **names)
{
    size_t n = 0;

    for (size_t i = 0; i < from->n; ++i) {
        if (json_object_get(wanted, from->names[i]) != NULL) {
            values[n] = from->values[i];
            names[n++] = from->names[i];
        }
    }
    return n;
}

/* The gradients of the inputs that have some in the case: a tuple of ctx's block, or NULL with an
 * error or a reason. */
static co_value *
compute_gradients(golden_case *c, const golden_operands *in, const golden_operands *out)
{
    json_t             *upstream = json_object_get(c->json, "upstream");
    co_value           *targets[GOLDEN_MAX_OPERANDS], *flow[GOLDEN_MAX_OPERANDS];
    co_value           *sources[GOLDEN_MAX_OPERANDS];
    const char         *names[GOLDEN_MAX_OPERANDS];
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;
    size_t              num_targets = select_values(out, upstream, targets, names), num_sources;

    if (num_targets != json_object_size(upstream)) {
        golden_fail(c, "an output that gradients flow into was not produced");
        return NULL;
    }
    for (size_t i = 0; i < num_targets; ++i)
        if ((flow[i] = golden_read_value(c, c->ctx, json_object_get(upstream, names[i]))) == NULL)
            return NULL;
    num_sources = select_values(in, json_object_get(c->json, "grads"), sources, names);
    options.output_gradients = co_tuple(c->ctx, flow, num_targets);
    return co_gradient_with(c->ctx, co_tuple(c->ctx, targets, num_targets),
                            co_tuple(c->ctx, sources, num_sources), &options);
}

static void
check_gradients(golden_case *c, const golden_operands *in, co_value *gradients)
{
    const golden_compare how = { c, false, false }; /* the sign of a zero gradient is no promise */
    json_t              *grads = json_object_get(c->json, "grads");
    co_value            *sources[GOLDEN_MAX_OPERANDS];
    const char          *names[GOLDEN_MAX_OPERANDS];
    size_t               n = select_values(in, grads, sources, names);

    for (size_t i = 0; i < n && co_ok(c->ctx); ++i) {
        char    path[64];
        json_t *seen = write_gradient(c, co_at(c->ctx, gradients, i));

        snprintf(path, sizeof(path), "grads.%s", names[i]);
        if (co_ok(c->ctx))
            golden_same(&how, path, seen, json_object_get(grads, names[i]));
        json_decref(seen);
    }
}

void
golden_put_outputs(golden_case *c, const golden_operands *out)
{
    for (size_t i = 0; i < out->n && co_ok(c->ctx); ++i)
        golden_put_value(c, out->names[i], out->values[i]);
}

/* What is computed of a case. */
typedef struct computing {
    golden_case           *c;
    const golden_operands *in;
    golden_operator_fn     call;
    void                  *user;
    bool                   is_called; /* the operator gave a result: an error is the gradient's */
} computing;

/* The result of the operator, and a tuple of gradients, which is empty where the case wants none.
 */
static co_value *
compute(co_context *ctx, co_value *args, void *user)
{
    computing      *w = user;
    golden_operands in = *w->in, out = { .n = 0 };
    co_value       *pair[2] = { NULL, co_no_args(ctx) };

    for (size_t i = 0; i < in.n; ++i)
        in.values[i] = co_at(ctx, args, i);
    if (is_gradient_wanted(w->c))
        watch_inputs(w->c, &in);
    pair[0] = w->call(w->c, &in, w->user);
    if (pair[0] == NULL && co_ok(ctx))
        golden_fail(w->c, "the operator gave no result and no error");
    if (pair[0] == NULL)
        return NULL;
    w->is_called = true;
    if (is_gradient_wanted(w->c)) {
        golden_name_outputs(w->c, pair[0], &out);
        if ((pair[1] = compute_gradients(w->c, &in, &out)) == NULL)
            return NULL;
    }
    return co_tuple(ctx, pair, 2);
}

/* Inputs, call, outputs, gradients: the frame that operators and programs share. */
void
golden_run_differentiated(golden_case *c, const golden_operands *in, golden_operator_fn call,
                          void *user)
{
    computing       w = { c, in, call, user, false };
    golden_operands out = { .n = 0 };
    co_value       *args = co_tuple(c->ctx, in->values, in->n);
    co_value       *pair = golden_in_function(c->ctx, compute, args, &w), *result;

    if (!co_ok(c->ctx) && w.is_called && is_gradient_wanted(c))
        golden_fail(c, "the gradient failed with %s (%.400s)", co_code_name(co_error(c->ctx)->code),
                    co_error(c->ctx)->message);
    if (pair == NULL || c->is_failed)
        return;
    result = co_at(c->ctx, pair, 0);
    golden_name_outputs(c, result, &out);
    golden_put_outputs(c, &out);
    if (is_gradient_wanted(c) && co_ok(c->ctx))
        check_gradients(c, in, co_at(c->ctx, pair, 1));
}

typedef struct call_by_name {
    const char *name;
    co_value   *attrs;
} call_by_name;

static co_value *
call_operator(golden_case *c, const golden_operands *in, void *user)
{
    const call_by_name *call = user;

    return co_op_call(c->ctx, call->name, co_tuple(c->ctx, in->values, in->n), call->attrs);
}

void
golden_run_ops(golden_case *c)
{
    const char     *name = golden_string(c, c->json, "op");
    golden_operands in = { .n = 0 };
    co_op_info      info = CO_OP_INFO_INIT;
    call_by_name    call = { name, NULL };

    if (c->is_failed || golden_run_program(c, name))
        return;
    if (!golden_find_operator(name, &info)) {
        golden_fail(c, "the library has no operator '%s' yet", name);
        return;
    }
    if (!golden_read_inputs(c, &info, &in) || !all_inputs_used(c, &in))
        return;
    call.attrs = golden_read_attrs(c, &in);
    if (call.attrs != NULL)
        golden_run_differentiated(c, &in, call_operator, &call);
}
