/* SPDX-License-Identifier: Apache-2.0 */
/* functions: the functions of a case, how Python binds their arguments, and the calls that take
 * them. */
#include "functions.h"

#include <string.h>

/* A name of a list; "" for what is none. */
static const char *
name_at(json_t *names, size_t i)
{
    const char *name = json_string_value(json_array_get(names, i));

    return name != NULL ? name : "";
}

/* --- making them --- */

static golden_closure *
new_closure(golden_frame *f, json_t *def)
{
    golden_closure *closure = golden_room(f->w, sizeof(*closure));

    if (closure == NULL)
        return NULL;
    closure->w = f->w;
    closure->def = def;
    closure->names = f->names;
    pthread_mutex_lock(&f->w->lock);
    closure->next = f->w->closures;
    f->w->closures = closure;
    pthread_mutex_unlock(&f->w->lock);
    return closure;
}

golden_closure *
golden_function_of(golden_frame *f, json_t *json)
{
    golden_thing thing;

    if (json_is_object(json) && json_is_array(json_object_get(json, "args")))
        return new_closure(f, json);
    thing = golden_operand(f, json);
    if (thing.kind == GOLDEN_CLOSURE)
        return thing.u.closure;
    if (co_ok(f->ctx) && !f->w->c->is_failed)
        co_fail(f->ctx, CO_TYPE_ERROR, "what the case calls is no function");
    return NULL;
}

/* Defaults are host values of the function's definition. */
static bool
bind_defaults(golden_frame *f, const golden_closure *closure, size_t n, golden_thing *out)
{
    json_t *names = json_object_get(closure->def, "args");
    json_t *defaults = json_object_get(closure->def, "defaults");

    for (size_t i = 0; i < n; ++i) {
        const char *name = name_at(names, i);
        json_t     *value = json_object_get(defaults, name);

        if (out[i].kind != GOLDEN_NOTHING)
            continue;
        if (value == NULL) {
            co_fail(f->ctx, CO_TYPE_ERROR, "no value for the parameter '%s'", name);
            return false;
        }
        out[i] = golden_operand(f, value);
        if (!golden_goes_on(f))
            return false;
    }
    return true;
}

/* The C function of every captured function. */
static co_value *
interpret_captured(co_context *ctx, co_value *args, void *user)
{
    golden_closure *closure = user;
    golden_frame    f = { .w = closure->w, .ctx = ctx, .names = closure->names };
    golden_thing    things[GOLDEN_MAX_ARGS], result;
    size_t          n = co_num_items(ctx, args);

    pthread_mutex_lock(&closure->w->lock);
    ++closure->traces;
    pthread_mutex_unlock(&closure->w->lock);
    memset(things, 0, sizeof(things));
    for (size_t i = 0; i < n && i < GOLDEN_MAX_ARGS; ++i)
        things[i] = golden_thing_of(closure->w, ctx, co_at(ctx, args, i));
    if (closure->num_fixed > 0 &&
        !bind_defaults(&f, closure, n += (size_t)closure->num_fixed, things))
        return NULL;
    result = golden_interpret(ctx, closure, things, (int)n);
    if (result.kind != GOLDEN_VALUE && result.kind != GOLDEN_NOTHING)
        golden_refuse(&f, "captured functions that return datasets or iterators");
    return result.kind == GOLDEN_VALUE ? result.u.value : NULL;
}

static co_value *
interpret_plain(co_context *ctx, co_value *args, void *user)
{
    co_value *values[GOLDEN_MAX_ARGS];
    size_t    n = co_num_items(ctx, args);

    for (size_t i = 0; i < n && i < GOLDEN_MAX_ARGS; ++i)
        values[i] = co_at(ctx, args, i);
    return co_ok(ctx) ? golden_call_values(ctx, user, values, (int)n) : NULL;
}

co_fn
golden_step_fn(golden_closure *closure, void **user)
{
    *user = closure->function != NULL ? (void *)closure->function : (void *)closure;
    return closure->function != NULL ? co_captured : interpret_plain;
}

static co_value *
read_signature(golden_frame *f, json_t *list)
{
    co_value *specs[GOLDEN_MAX_ARGS];
    size_t    n = json_array_size(list);

    if (n > GOLDEN_MAX_ARGS) {
        golden_fail(f->w->c, "a signature of the case has more than %d specs", GOLDEN_MAX_ARGS);
        return NULL;
    }
    for (size_t i = 0; i < n; ++i)
        if ((specs[i] = golden_read_spec(f, json_array_get(list, i))) == NULL)
            return NULL;
    return co_tuple(f->ctx, specs, n);
}

/* A signature has a spec for each parameter; only those with a default may have none. */
static bool
check_signature(golden_frame *f, golden_closure *closure, size_t num_specs)
{
    json_t *names = json_object_get(closure->def, "args");
    json_t *defaults = json_object_get(closure->def, "defaults");
    size_t  n = json_array_size(names);

    if (num_specs > n)
        co_fail(f->ctx, CO_TYPE_ERROR, "the signature has %zu specs for %zu parameters", num_specs,
                n);
    for (size_t i = num_specs; i < n; ++i)
        if (json_object_get(defaults, name_at(names, i)) == NULL)
            co_fail(f->ctx, CO_TYPE_ERROR, "the signature has no spec for parameter %zu", i);
    closure->num_fixed = num_specs < n ? (int)(n - num_specs) : 0;
    return co_ok(f->ctx);
}

golden_thing
golden_define(golden_frame *f, json_t *step)
{
    golden_closure     *closure = new_closure(f, step);
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    json_t             *signature = json_object_get(step, "signature");

    if (closure == NULL)
        return golden_nothing();
    if (json_is_false(json_object_get(step, "captured")))
        return (golden_thing){ GOLDEN_CLOSURE, { .closure = closure } };
    options.name = json_string_value(json_object_get(step, "to"));
    options.relax_shapes = json_is_true(json_object_get(step, "reduce_retracing"));
    if (json_is_array(signature) && ((options.signature = read_signature(f, signature)) == NULL ||
                                     !check_signature(f, closure, json_array_size(signature))))
        return golden_nothing();
    closure->function = co_function_of(f->ctx, interpret_captured, closure, &options);
    if (closure->function == NULL)
        return golden_nothing();
    if (f->closure == NULL)
        closure->top = options.name;
    return (golden_thing){ GOLDEN_CLOSURE, { .closure = closure } };
}

/* --- arguments --- */

static int
parameter_of(const golden_closure *closure, const char *name)
{
    json_t *names = json_object_get(closure->def, "args");

    for (size_t i = 0; i < json_array_size(names); ++i)
        if (strcmp(name_at(names, i), name) == 0)
            return (int)i;
    return -1;
}

/* What does not fit the parameters: a tuple under the name of varargs, or an error. */
static bool
bind_rest(golden_frame *f, const golden_closure *closure, json_t *args, size_t from,
          golden_thing *out)
{
    co_value *rest[GOLDEN_MAX_ARGS];
    size_t    n = 0;

    if (json_object_get(closure->def, "varargs") == NULL) {
        if (json_array_size(args) <= from)
            return true;
        co_fail(f->ctx, CO_TYPE_ERROR, "too many arguments: %zu for a function of %zu",
                json_array_size(args), from);
        return false;
    }
    for (size_t i = from; i < json_array_size(args) && n < GOLDEN_MAX_ARGS; ++i)
        if ((rest[n++] = golden_operand_value(f, json_array_get(args, i))) == NULL)
            return false;
    out[from] = golden_value(co_tuple(f->ctx, rest, n));
    return out[from].kind == GOLDEN_VALUE;
}

static bool
bind_keywords(golden_frame *f, const golden_closure *closure, json_t *kwargs, golden_thing *out)
{
    const char *key;
    json_t     *item;

    json_object_foreach(kwargs, key, item)
    {
        int i = parameter_of(closure, key);

        if (i < 0 || out[i].kind != GOLDEN_NOTHING) {
            co_fail(f->ctx, CO_TYPE_ERROR,
                    i < 0 ? "there is no parameter '%s'" : "two values for the parameter '%s'",
                    key);
            return false;
        }
        out[i] = golden_operand(f, item);
        if (!golden_goes_on(f))
            return false;
    }
    return true;
}

int
golden_bind_arguments(golden_frame *f, const golden_closure *closure, json_t *args, json_t *kwargs,
                      golden_thing *out)
{
    size_t n = json_array_size(json_object_get(closure->def, "args"));
    bool   has_rest = json_object_get(closure->def, "varargs") != NULL;

    if (has_rest && !json_is_string(json_object_get(closure->def, "varargs"))) {
        golden_fail(f->w->c, "the varargs of a function of the case have no name");
        return -1;
    }
    if (n + has_rest > GOLDEN_MAX_ARGS) {
        golden_fail(f->w->c, "a function of the case has more than %d parameters", GOLDEN_MAX_ARGS);
        return -1;
    }
    memset(out, 0, GOLDEN_MAX_ARGS * sizeof(*out));
    for (size_t i = 0; i < n && i < json_array_size(args); ++i) {
        out[i] = golden_operand(f, json_array_get(args, i));
        if (!golden_goes_on(f))
            return -1;
        if (out[i].kind == GOLDEN_NOTHING) /* the result of a function without one */
            out[i] = golden_value(co_none(f->ctx));
    }
    if (!bind_rest(f, closure, args, n, out) || !bind_keywords(f, closure, kwargs, out) ||
        !bind_defaults(f, closure, n, out))
        return -1;
    return (int)(n + has_rest);
}

/* --- calling --- */

golden_thing
golden_interpret(co_context *ctx, golden_closure *closure, const golden_thing *args, int n)
{
    golden_world *w = closure->w;
    golden_frame  f = { .w = w, .ctx = ctx, .closure = closure };
    json_t       *names = json_object_get(closure->def, "args");
    const char   *rest = json_string_value(json_object_get(closure->def, "varargs"));
    json_t       *result = json_object_get(closure->def, "return");
    golden_thing  thing = golden_nothing();

    f.names = golden_names_new(w, closure->names);
    if (f.names == NULL)
        return thing;
    if ((size_t)n != json_array_size(names) + (rest != NULL)) {
        co_fail(ctx, CO_TYPE_ERROR, "%d arguments for a function of %zu", n,
                json_array_size(names));
        return thing;
    }
    for (int i = 0; i < n; ++i) {
        bool is_rest = (size_t)i == json_array_size(names);

        golden_bind(w, f.names, is_rest ? rest : name_at(names, (size_t)i), args[i]);
    }
    if (golden_run_body(&f, json_object_get(closure->def, "body")) && result != NULL &&
        !json_is_null(result))
        thing = golden_operand(&f, result);
    golden_end_tapes(&f);
    return thing;
}

/* Arguments as values; NULL for what is none. */
static co_value *
values_of(golden_frame *f, const golden_thing *args, int n)
{
    co_value *values[GOLDEN_MAX_ARGS];

    for (int i = 0; i < n; ++i) {
        values[i] = golden_value_of(f->ctx, args[i]);
        if (values[i] == NULL && co_ok(f->ctx))
            golden_refuse(f, "tapes as arguments of a captured function or step");
        if (values[i] == NULL)
            return NULL;
    }
    return co_tuple(f->ctx, values, (size_t)n);
}

/* Parameters beyond the signature keep their defaults: the number of the others, or -1 with
 * CO_TYPE_ERROR for another value. */
static int
without_fixed(golden_frame *f, const golden_closure *closure, const golden_thing *args, int n)
{
    json_t *names = json_object_get(closure->def, "args");
    json_t *defaults = json_object_get(closure->def, "defaults");

    for (int i = n - closure->num_fixed; i < n; ++i) {
        const char *name = name_at(names, (size_t)i);
        json_t     *given = golden_write_operand(f->ctx,
                                             args[i].kind == GOLDEN_VALUE ? args[i].u.value : NULL);

        if (!json_equal(given, json_object_get(defaults, name)))
            co_fail(f->ctx, CO_TYPE_ERROR, "parameter '%s' has no spec and must keep its default",
                    name);
        json_decref(given);
    }
    return co_ok(f->ctx) ? n - closure->num_fixed : -1;
}

golden_thing
golden_call(golden_frame *f, golden_closure *closure, const golden_thing *args, int n)
{
    co_value *values;

    if (closure->function == NULL)
        return golden_interpret(f->ctx, closure, args, n);
    n = without_fixed(f, closure, args, n);
    values = n >= 0 ? values_of(f, args, n) : NULL;
    return golden_value(values != NULL ? co_call(f->ctx, closure->function, values) : NULL);
}

co_value *
golden_call_values(co_context *ctx, golden_closure *closure, co_value *const *args, int n)
{
    golden_thing things[GOLDEN_MAX_ARGS], result;

    if (closure->function != NULL)
        return co_call(ctx, closure->function, co_tuple(ctx, args, (size_t)n));
    for (int i = 0; i < n; ++i)
        things[i] = golden_thing_of(closure->w, ctx, args[i]);
    result = golden_interpret(ctx, closure, things, n);
    return result.kind == GOLDEN_VALUE ? result.u.value : NULL;
}

/* The function and the arguments of a statement. -1: there is an error. */
static int
read_call(golden_frame *f, json_t *step, golden_closure **closure, golden_thing *args)
{
    *closure = golden_function_of(f, json_object_get(step, "fn"));
    if (*closure == NULL)
        return -1;
    return golden_bind_arguments(f, *closure, json_object_get(step, "args"),
                                 json_object_get(step, "kwargs"), args);
}

golden_thing
golden_act_call(golden_frame *f, json_t *step)
{
    golden_closure *closure;
    golden_thing    args[GOLDEN_MAX_ARGS];
    int             n = read_call(f, step, &closure, args);

    return n < 0 ? golden_nothing() : golden_call(f, closure, args, n);
}

/* A function of its own with the parameters of the other: its C function is the concrete one. */
golden_thing
golden_act_concrete(golden_frame *f, json_t *step)
{
    golden_closure *of = golden_function_of(f, json_object_get(step, "fn")), *closure;
    golden_thing    args[GOLDEN_MAX_ARGS];
    co_value       *values = NULL;
    int             n = 0;

    if (of == NULL || of->function == NULL)
        return golden_nothing();
    if (json_object_get(of->def, "signature") == NULL ||
        json_array_size(json_object_get(step, "args")) > 0) {
        n = golden_bind_arguments(f, of, json_object_get(step, "args"),
                                  json_object_get(step, "kwargs"), args);
        if (n >= 0)
            n = without_fixed(f, of, args, n);
        values = n >= 0 ? values_of(f, args, n) : NULL;
        if (values == NULL)
            return golden_nothing();
    }
    closure = new_closure(f, of->def);
    if (closure == NULL)
        return golden_nothing();
    closure->names = of->names;
    closure->num_fixed = of->num_fixed;
    closure->function = co_function_concrete(f->ctx, of->function, values);
    return closure->function != NULL ? (golden_thing){ GOLDEN_CLOSURE, { .closure = closure } }
                                     : golden_nothing();
}

/* A pair: the specs of the arguments, and that of the result. */
golden_thing
golden_act_structured(golden_frame *f, json_t *step)
{
    const golden_closure *of = golden_function_of(f, json_object_get(step, "of"));
    co_value             *pair[2];

    if (of == NULL || of->function == NULL)
        return golden_nothing();
    pair[0] = co_function_arg_specs(f->ctx, of->function);
    pair[1] = co_function_result_spec(f->ctx, of->function);
    return golden_value(co_ok(f->ctx) ? co_tuple(f->ctx, pair, 2) : NULL);
}

golden_thing
golden_act_run(golden_frame *f, json_t *step)
{
    const char     *name = json_string_value(json_object_get(step, "s"));
    co_strategy    *strategy = name != NULL && strcmp(name, "D") == 0 ? co_default_strategy(f->ctx)
                                                                      : f->w->strategy;
    golden_closure *closure;
    golden_thing    args[GOLDEN_MAX_ARGS];
    int             n = read_call(f, step, &closure, args);
    co_value       *values = n >= 0 ? values_of(f, args, n) : NULL;
    void           *user;
    co_fn           fn;

    if (values == NULL)
        return golden_nothing();
    fn = golden_step_fn(closure, &user);
    return golden_value(co_run(f->ctx, strategy, fn, values, user));
}

static co_value *
interpret_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    return interpret_plain(ctx, args, user);
}

golden_thing
golden_act_merge_call(golden_frame *f, json_t *step)
{
    golden_closure *closure;
    golden_thing    args[GOLDEN_MAX_ARGS];
    int             n = read_call(f, step, &closure, args);
    co_value       *values = n >= 0 ? values_of(f, args, n) : NULL;

    if (values == NULL)
        return golden_nothing();
    return golden_value(co_merge_call(f->ctx, interpret_merge, values, closure));
}

static co_value *
interpret_update(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    co_value *values[GOLDEN_MAX_ARGS] = { variable };
    size_t    n = co_num_items(ctx, args);

    for (size_t i = 0; i < n && i + 1 < GOLDEN_MAX_ARGS; ++i)
        values[i + 1] = co_at(ctx, args, i);
    return co_ok(ctx) ? golden_call_values(ctx, user, values, (int)n + 1) : NULL;
}

golden_thing
golden_act_update(golden_frame *f, json_t *step)
{
    golden_closure *closure = golden_function_of(f, json_object_get(step, "fn"));
    co_value       *variable = golden_field(f, step, "v");
    json_t         *list = json_object_get(step, "args");
    co_value       *args[GOLDEN_MAX_ARGS];
    size_t          n = json_array_size(list);

    if (n > GOLDEN_MAX_ARGS)
        golden_fail(f->w->c, "an update of the case has more than %d arguments", GOLDEN_MAX_ARGS);
    for (size_t i = 0; i < n && golden_goes_on(f); ++i)
        args[i] = golden_operand_value(f, json_array_get(list, i));
    if (closure == NULL || !golden_goes_on(f))
        return golden_nothing();
    return golden_value(co_update(f->ctx, f->w->strategy, variable, interpret_update,
                                  co_tuple(f->ctx, args, n), closure, NULL));
}

static co_value *
interpret_value_fn(co_context *ctx, const co_value_context *replica, void *user)
{
    co_value *const args[] = { co_int(ctx, replica->replica_id_in_sync_group),
                               co_int(ctx, replica->num_replicas_in_sync) };

    return golden_call_values(ctx, user, args, 2);
}

golden_thing
golden_act_values_from_function(golden_frame *f, json_t *step)
{
    golden_closure *closure = golden_function_of(f, json_object_get(step, "fn"));

    if (closure == NULL)
        return golden_nothing();
    return golden_value(
        co_distribute_values_from_function(f->ctx, f->w->strategy, interpret_value_fn, closure));
}

golden_thing
golden_act_experimental_run(golden_frame *f, json_t *step)
{
    golden_closure *closure = golden_function_of(f, json_object_get(step, "fn"));
    json_t         *of = json_object_get(step, "of");
    golden_thing    iterator = golden_nothing();
    void           *user;
    co_fn           fn;

    if (of != NULL)
        iterator = golden_operand(f, of);
    if (of != NULL && iterator.kind != GOLDEN_ITERATOR && golden_goes_on(f))
        golden_fail(f->w->c, "the input of experimental_run is no iterator");
    if (closure == NULL || !golden_goes_on(f))
        return golden_nothing();
    fn = golden_step_fn(closure, &user);
    return golden_value(co_experimental_run(f->ctx, f->w->strategy, fn, iterator.u.iterator, user));
}
