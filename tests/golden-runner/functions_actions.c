/* SPDX-License-Identifier: Apache-2.0 */
/* functions: the statements of a body, and the table of actions. */
#include "functions.h"

#include <string.h>

bool
golden_goes_on(const golden_frame *f)
{
    return !f->w->c->is_failed && co_ok(f->ctx);
}

golden_thing
golden_refuse(golden_frame *f, const char *what)
{
    golden_missing(f->w->c, what);
    if (co_ok(f->ctx))
        co_fail(f->ctx, CO_UNIMPLEMENTED, "the library does not offer %s yet", what);
    return golden_nothing();
}

/* What outlives the function that made it, because the host holds it. */
static void
keep_beyond(golden_frame *f, golden_thing thing)
{
    if (f->closure != NULL && thing.kind == GOLDEN_VALUE)
        co_keep(f->ctx, thing.u.value);
}

/* --- the host --- */

static golden_thing
act_let(golden_frame *f, json_t *step)
{
    return golden_operand(f, json_object_get(step, "value"));
}

static golden_thing
act_host_set(golden_frame *f, json_t *step)
{
    golden_thing value = golden_operand(f, json_object_get(step, "value"));

    if (!golden_goes_on(f))
        return golden_nothing();
    keep_beyond(f, value);
    golden_bind(f->w, f->w->top, golden_string(f->w->c, step, "name"), value);
    return golden_nothing();
}

/* An argument of a captured function is not to be changed in it (FN-14). */
static bool
is_argument(const golden_frame *f, const char *name)
{
    json_t *args = f->closure != NULL && f->closure->function != NULL
                       ? json_object_get(f->closure->def, "args")
                       : NULL;

    for (size_t i = 0; i < json_array_size(args); ++i)
        if (json_is_string(json_array_get(args, i)) &&
            strcmp(json_string_value(json_array_get(args, i)), name) == 0)
            return true;
    return false;
}

static golden_thing
act_host_append(golden_frame *f, json_t *step)
{
    const char  *name = golden_string(f->w->c, step, "list");
    co_value    *list = golden_field(f, step, "list"), *items[64];
    golden_thing value = golden_operand(f, json_object_get(step, "value"));
    size_t       n;

    if (!golden_goes_on(f))
        return golden_nothing();
    if (is_argument(f, name)) {
        co_fail(f->ctx, CO_VALUE_ERROR, "the function changes its argument '%s'", name);
        return golden_nothing();
    }
    n = co_num_items(f->ctx, list);
    if (n > 63 || value.kind != GOLDEN_VALUE) {
        golden_fail(f->w->c, "the runner appends values to lists of at most 63");
        return golden_nothing();
    }
    for (size_t i = 0; i < n; ++i)
        items[i] = co_at(f->ctx, list, i);
    items[n] = value.u.value;
    value = golden_value(co_list(f->ctx, items, n + 1));
    if (value.kind == GOLDEN_VALUE && !golden_is_local(f->w, f->names, name))
        keep_beyond(f, value);
    golden_rebind(f->w, f->names, name, value);
    return golden_nothing();
}

static golden_thing
act_host_if(golden_frame *f, json_t *step)
{
    co_value *test = golden_field(f, step, "test");
    bool      is_true = test != NULL && co_item_int(f->ctx, test) != 0;
    json_t   *branch = json_object_get(step, is_true ? "then" : "else");

    if (golden_goes_on(f) && branch != NULL)
        golden_run_body(f, branch);
    return golden_nothing();
}

static golden_thing
act_host_repeat(golden_frame *f, json_t *step)
{
    co_value   *times = golden_field(f, step, "times");
    const char *index = json_string_value(json_object_get(step, "index"));
    int64_t     n = times != NULL ? co_item_int(f->ctx, times) : 0;

    for (int64_t i = 0; i < n && golden_goes_on(f); ++i) {
        if (index != NULL)
            golden_bind(f->w, f->names, index, golden_value(co_int(f->ctx, i)));
        golden_run_body(f, json_object_get(step, "body"));
    }
    return golden_nothing();
}

static golden_thing
act_is_none(golden_frame *f, json_t *step)
{
    co_value *value = golden_field(f, step, "value");

    if (value == NULL)
        return golden_nothing();
    return golden_value(co_bool(f->ctx, co_value_kind(value) == CO_KIND_NONE));
}

/* Takes over the reference. */
static void
add_note(golden_frame *f, json_t *note)
{
    pthread_mutex_lock(&f->w->lock);
    json_array_append_new(f->w->notes, note);
    pthread_mutex_unlock(&f->w->lock);
}

static golden_thing
act_note(golden_frame *f, json_t *step)
{
    co_value *value = golden_field(f, step, "value");

    if (value != NULL)
        add_note(f, golden_write_operand(f->ctx, value));
    return golden_nothing();
}

static golden_thing
act_note_spec(golden_frame *f, json_t *step)
{
    co_value *value = golden_field(f, step, "value");

    if (value != NULL)
        add_note(f, golden_write_spec_of(f->ctx, value));
    return golden_nothing();
}

static golden_thing
act_query(golden_frame *f, json_t *step)
{
    static const char *const keys[] = { "has_strategy", "in_cross_replica_context",
                                        "num_replicas" };
    co_context              *ctx = f->ctx;
    co_value *const          items[] = { co_bool(ctx, co_has_strategy(ctx)),
                                         co_bool(ctx, co_in_cross_replica_context(ctx)),
                                         co_int(ctx, co_num_replicas_in_sync(ctx, co_get_strategy(ctx))) };

    (void)step;
    return golden_value(co_dict(ctx, keys, items, 3));
}

static golden_thing
act_note_query(golden_frame *f, json_t *step)
{
    add_note(f, golden_write_operand(f->ctx, act_query(f, step).u.value));
    return golden_nothing();
}

static golden_thing
act_host_read(golden_frame *f, json_t *step)
{
    co_value   *x = golden_field(f, step, "x");
    const char *how = golden_string(f->w->c, step, "how");

    if (x == NULL)
        return golden_nothing();
    if (strcmp(how, "float") == 0)
        return golden_value(co_float(f->ctx, co_item_float(f->ctx, x)));
    if (strcmp(how, "iterate") == 0 || strcmp(how, "numpy") == 0)
        return co_value_data(f->ctx, x) != NULL ? golden_value(x) : golden_nothing();
    return golden_value(co_int(f->ctx, co_item_int(f->ctx, x)));
}

static golden_thing
act_fail(golden_frame *f, json_t *step)
{
    const char *kind = golden_string(f->w->c, step, "kind");

    for (int code = CO_OK + 1; code <= CO_STOP_ITERATION; ++code) {
        const char *name = co_code_kind((co_code)code);

        if (name != NULL && strcmp(name, kind) == 0) {
            co_fail(f->ctx, (co_code)code, "user code of the case fails");
            return golden_nothing();
        }
    }
    golden_fail(f->w->c, "the kind '%s' is not one of the library's", kind);
    return golden_nothing();
}

/* --- variables --- */

/* The place of a word of the case in a list that ends with NULL; 0 where the field is absent. */
static int
word_of(golden_frame *f, json_t *step, const char *key, const char *const *words)
{
    const char *text = json_string_value(json_object_get(step, key));

    for (int i = 0; text != NULL && words[i] != NULL; ++i)
        if (strcmp(words[i], text) == 0)
            return i;
    if (text != NULL)
        golden_fail(f->w->c, "%s '%s' is not known to the runner", key, text);
    return 0;
}

static golden_thing
act_variable(golden_frame *f, json_t *step)
{
    static const char *const synchronizations[] = { "AUTO", "NONE", "ON_WRITE", "ON_READ", NULL };
    static const char *const aggregations[] = { "NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA", NULL };
    co_variable_options      options = CO_VARIABLE_OPTIONS_INIT;
    json_t                  *trainable = json_object_get(step, "trainable");
    co_value                *initial = golden_field(f, step, "initial");

    options.synchronization = (co_synchronization)word_of(f, step, "synchronization",
                                                          synchronizations);
    options.aggregation = (co_aggregation)word_of(f, step, "aggregation", aggregations);
    if (json_is_boolean(trainable))
        options.trainable = json_is_true(trainable) ? CO_TRAINABLE_YES : CO_TRAINABLE_NO;
    if (initial == NULL || !golden_goes_on(f))
        return golden_nothing();
    return golden_value(co_variable(f->ctx, initial, &options));
}

/* What host code keeps under a key, and makes if it is not there. */
static golden_thing
make_once(golden_frame *f, json_t *step, golden_thing (*make)(golden_frame *f, json_t *step))
{
    const char  *key = golden_string(f->w->c, step, "key");
    golden_thing found;

    if (golden_find(f->w, f->w->once, key, &found))
        return found;
    found = make(f, step);
    if (found.kind == GOLDEN_VALUE) {
        keep_beyond(f, found);
        golden_bind(f->w, f->w->once, key, found);
    }
    return found;
}

static golden_thing
act_variable_once(golden_frame *f, json_t *step)
{
    return make_once(f, step, act_variable);
}

static golden_thing
act_read(golden_frame *f, json_t *step)
{
    co_value *v = golden_field(f, step, "v");

    return golden_value(v != NULL ? co_variable_read(f->ctx, v) : NULL);
}

static golden_thing
change_variable(golden_frame *f, json_t *step,
                co_value *(*change)(co_context *ctx, co_value *v, co_value *value))
{
    co_value *v = golden_field(f, step, "v");
    co_value *value = v != NULL ? golden_field(f, step, "value") : NULL;

    return golden_value(value != NULL ? change(f->ctx, v, value) : NULL);
}

/* The functions behind the macros of sites.h. */
#define CHANGE(name, call)                                                                         \
    static co_value *change_##name(co_context *ctx, co_value *v, co_value *value)                  \
    {                                                                                              \
        return call(ctx, v, value);                                                                \
    }                                                                                              \
    static golden_thing act_##name(golden_frame *f, json_t *step)                                  \
    {                                                                                              \
        return change_variable(f, step, change_##name);                                            \
    }
CHANGE(assign, co_assign)
CHANGE(assign_add, co_assign_add)
CHANGE(assign_sub, co_assign_sub)
CHANGE(scatter_add, co_scatter_add)

static golden_thing
act_components(golden_frame *f, json_t *step)
{
    co_value    *v = golden_field(f, step, "v"), *items[8], *parts;
    co_strategy *strategy = v != NULL ? co_variable_strategy(f->ctx, v) : NULL;
    size_t       n;

    if (v == NULL)
        return golden_nothing();
    if (co_value_kind(v) != CO_KIND_VARIABLE) {
        golden_fail(f->w->c, "the case asks for the components of no variable");
        return golden_nothing();
    }
    parts = strategy != NULL ? co_local_results(f->ctx, strategy, v) : co_tuple(f->ctx, &v, 1);
    n = parts != NULL ? co_num_items(f->ctx, parts) : 0;
    for (size_t i = 0; i < n && i < 8; ++i)
        items[i] = co_variable_read(f->ctx, co_at(f->ctx, parts, i));
    return golden_value(co_ok(f->ctx) ? co_list(f->ctx, items, n) : NULL);
}

/* --- gradients --- */

static void
end_tape(golden_frame *f)
{
    golden_open_tape *tape = f->tapes;

    if (!tape->is_over)
        co_tape_end(f->ctx);
    tape->is_over = true;
    f->tapes = tape->below;
}

void
golden_end_tapes(golden_frame *f)
{
    while (f->tapes != NULL)
        end_tape(f);
}

static golden_thing
act_tape(golden_frame *f, json_t *step)
{
    golden_open_tape *tape = golden_room(f->w, sizeof(*tape));
    size_t            i;
    json_t           *item;

    if (tape == NULL)
        return golden_nothing();
    tape->is_persistent = json_is_true(json_object_get(step, "persistent"));
    tape->below = f->tapes;
    f->tapes = tape;
    if (tape->is_persistent)
        co_tape_begin_persistent(f->ctx);
    else
        co_tape_begin(f->ctx);
    json_array_foreach(json_object_get(step, "watch"), i, item)
    {
        co_value *value = golden_operand_value(f, item);

        if (value != NULL)
            co_watch(f->ctx, value);
    }
    if (golden_goes_on(f))
        golden_run_body(f, json_object_get(step, "body"));
    if (golden_goes_on(f))
        return (golden_thing){ GOLDEN_TAPE, { .tape = tape } };
    while (f->tapes != tape->below)
        end_tape(f);
    return golden_nothing();
}

static golden_thing
act_gradient(golden_frame *f, json_t *step)
{
    golden_thing        thing = golden_operand(f, json_object_get(step, "tape"));
    co_value           *target = golden_field(f, step, "target");
    co_value           *sources = golden_field(f, step, "sources");
    json_t             *flow = json_object_get(step, "output_gradients");
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;
    co_value           *result;

    if (!golden_goes_on(f) || thing.kind != GOLDEN_TAPE)
        return golden_nothing();
    if (thing.u.tape->is_over) {
        co_fail(f->ctx, CO_RUNTIME_ERROR, "the tape was used already and is not persistent");
        return golden_nothing();
    }
    while (f->tapes != NULL && f->tapes != thing.u.tape) /* the library takes the innermost one */
        end_tape(f);
    if (flow != NULL)
        options.output_gradients = golden_operand_value(f, flow);
    options.unconnected_zero = json_object_get(step, "unconnected") != NULL;
    if (!golden_goes_on(f))
        return golden_nothing();
    result = co_gradient_with(f->ctx, target, sources, &options);
    if (!thing.u.tape->is_persistent) {
        thing.u.tape->is_over = true;
        if (f->tapes != NULL)
            end_tape(f);
    }
    if (result == NULL && co_ok(f->ctx))
        result = co_none(f->ctx);
    return golden_value(result);
}

/* --- replicas --- */

static golden_thing
act_replica_id(golden_frame *f, json_t *step)
{
    const char *dtype = json_string_value(json_object_get(step, "dtype"));
    co_value   *id = co_replica_id_tensor(f->ctx);

    if (id != NULL && dtype != NULL)
        id = co_cast(f->ctx, id, co_dtype_from_name(dtype));
    return golden_value(id);
}

static bool
read_reduce_op(golden_frame *f, json_t *step, co_reduce_op *op)
{
    const char *name = golden_string(f->w->c, step, "reduce_op");

    return !f->w->c->is_failed && co_reduce_op_from_name(f->ctx, name, op) == CO_OK;
}

static golden_thing
act_all_reduce(golden_frame *f, json_t *step)
{
    co_reduce_op op;
    co_value    *value = golden_field(f, step, "value");

    if (value == NULL || !read_reduce_op(f, step, &op))
        return golden_nothing();
    return golden_value(co_all_reduce(f->ctx, op, value));
}

static golden_thing
act_reduce(golden_frame *f, json_t *step)
{
    co_reduce_op op;
    co_value    *value = golden_field(f, step, "value");
    json_t      *axis = json_object_get(step, "axis");
    const int    axes[] = { (int)json_integer_value(axis) };

    if (value == NULL || !read_reduce_op(f, step, &op))
        return golden_nothing();
    return golden_value(
        co_reduce(f->ctx, f->w->strategy, op, value, axes, json_is_integer(axis) ? 1 : 0));
}

static golden_thing
act_all_gather(golden_frame *f, json_t *step)
{
    co_value *value = golden_field(f, step, "value");
    int       axis = (int)json_integer_value(json_object_get(step, "axis"));

    return golden_value(value != NULL ? co_all_gather(f->ctx, value, axis) : NULL);
}

static golden_thing
act_gather(golden_frame *f, json_t *step)
{
    co_value *value = golden_field(f, step, "value");
    int       axis = (int)json_integer_value(json_object_get(step, "axis"));

    return golden_value(value != NULL ? co_gather_replicas(f->ctx, f->w->strategy, value, axis)
                                      : NULL);
}

static golden_thing
act_local_results(golden_frame *f, json_t *step)
{
    co_value *value = golden_field(f, step, "value");

    return golden_value(value != NULL ? co_local_results(f->ctx, f->w->strategy, value) : NULL);
}

static golden_thing
act_scope(golden_frame *f, json_t *step)
{
    co_scope scope = co_scope_begin(f->ctx, f->w->strategy);

    if (scope.id == 0)
        return golden_nothing();
    golden_run_body(f, json_object_get(step, "body"));
    co_scope_end(f->ctx, &scope);
    return golden_nothing();
}

static golden_thing
act_set_strategy(golden_frame *f, json_t *step)
{
    bool is_none = json_is_null(json_object_get(step, "s"));

    co_experimental_set_strategy(f->ctx, is_none ? NULL : f->w->strategy);
    return golden_nothing();
}

/* --- random numbers --- */

static golden_thing
act_set_seed(golden_frame *f, json_t *step)
{
    co_set_seed(f->ctx, (uint64_t)json_integer_value(json_object_get(step, "seed")));
    return golden_nothing();
}

static int64_t
integer_of(json_t *step, const char *key)
{
    return json_integer_value(json_object_get(step, key));
}

/* The shape of a statement; false if it has too many dimensions. */
static bool
read_shape(golden_frame *f, json_t *step, int64_t *dims, int *ndim)
{
    json_t *shape = json_object_get(step, "shape");

    *ndim = (int)json_array_size(shape);
    if (*ndim > CO_MAX_DIMS) {
        golden_fail(f->w->c, "a shape of the case has more than %d dimensions", CO_MAX_DIMS);
        return false;
    }
    for (int i = 0; i < *ndim; ++i)
        dims[i] = json_integer_value(json_array_get(shape, (size_t)i));
    return true;
}

/* By name, because the seed may be a tensor of a captured function. */
static co_value *
draw_stateless(golden_frame *f, json_t *step, co_value *shape, bool is_normal, co_dtype dtype)
{
    static const char *const normal[] = { "seed", "shape", "dtype", "mean", "stddev" };
    static const char *const uniform[] = { "seed", "shape", "dtype", "low", "high" };
    co_value                *items[5];
    bool                     is_float = co_dtype_is_floating(dtype);

    items[0] = golden_field(f, step, "seed");
    items[1] = shape;
    items[2] = co_string(f->ctx, co_dtype_name(dtype));
    items[3] = co_float(f->ctx, is_float ? 0.0 : (double)integer_of(step, "minval"));
    items[4] = co_float(f->ctx, is_float ? 1.0 : (double)integer_of(step, "maxval"));
    if (!golden_goes_on(f))
        return NULL;
    return co_op_call(f->ctx, is_normal ? "stateless_random_normal" : "stateless_random_uniform",
                      co_no_args(f->ctx), co_dict(f->ctx, is_normal ? normal : uniform, items, 5));
}

/* An operator with a seed of its own. */
static co_value *
draw_seeded(golden_frame *f, json_t *step, co_value *shape, bool is_normal)
{
    static const char *const keys[] = { "op_seed", "shape" };
    co_value                *items[2] = { co_int(f->ctx, integer_of(step, "seed")), shape };

    return co_op_call(f->ctx, is_normal ? "random_normal" : "random_uniform", co_no_args(f->ctx),
                      co_dict(f->ctx, keys, items, 2));
}

static golden_thing
act_random(golden_frame *f, json_t *step)
{
    const char *kind = golden_string(f->w->c, step, "kind");
    const char *name = json_string_value(json_object_get(step, "dtype"));
    co_dtype    dtype = name != NULL ? co_dtype_from_name(name) : CO_FLOAT32;
    co_value   *numbers[CO_MAX_DIMS];
    int64_t     dims[CO_MAX_DIMS];
    int         ndim;
    bool        is_normal = strstr(kind, "normal") != NULL;
    double      low = 0.0, high = 1.0;

    if (strcmp(kind, "shuffle") == 0) {
        co_value *x = golden_field(f, step, "x");

        return golden_value(x != NULL ? co_random_shuffle(f->ctx, x) : NULL);
    }
    if (!read_shape(f, step, dims, &ndim))
        return golden_nothing();
    for (int i = 0; i < ndim; ++i)
        numbers[i] = co_int(f->ctx, dims[i]);
    if (strncmp(kind, "stateless", 9) == 0)
        return golden_value(
            draw_stateless(f, step, co_list(f->ctx, numbers, (size_t)ndim), is_normal, dtype));
    if (json_object_get(step, "seed") != NULL)
        return golden_value(
            draw_seeded(f, step, co_list(f->ctx, numbers, (size_t)ndim), is_normal));
    if (!co_dtype_is_floating(dtype)) {
        low = (double)integer_of(step, "minval");
        high = (double)integer_of(step, "maxval");
    }
    return golden_value(is_normal ? co_random_normal(f->ctx, dtype, dims, ndim, low, high)
                                  : co_random_uniform(f->ctx, dtype, dims, ndim, low, high));
}

static golden_thing
act_generator(golden_frame *f, json_t *step)
{
    return golden_value(co_generator(f->ctx, integer_of(step, "seed")));
}

static golden_thing
act_generator_once(golden_frame *f, json_t *step)
{
    return make_once(f, step, act_generator);
}

static golden_thing
act_generator_draw(golden_frame *f, json_t *step)
{
    co_value *g = golden_field(f, step, "g");
    bool      is_normal = strcmp(golden_string(f->w->c, step, "kind"), "normal") == 0;
    int64_t   dims[CO_MAX_DIMS];
    int       ndim;

    if (g == NULL || !read_shape(f, step, dims, &ndim))
        return golden_nothing();
    return golden_value(is_normal ? co_generator_normal(f->ctx, g, CO_FLOAT32, dims, ndim, NULL)
                                  : co_generator_uniform(f->ctx, g, CO_FLOAT32, dims, ndim, NULL));
}

static golden_thing
act_generator_state(golden_frame *f, json_t *step)
{
    co_value *g = golden_field(f, step, "g");

    return golden_value(g != NULL ? co_variable_read(f->ctx, g) : NULL);
}

static golden_thing
act_generator_reset(golden_frame *f, json_t *step)
{
    co_value *g = golden_field(f, step, "g");

    if (g != NULL)
        co_generator_reset(f->ctx, g, integer_of(step, "seed"));
    return golden_nothing();
}

/* --- outside of what is captured --- */

typedef struct lifted {
    golden_frame *f;
    json_t       *body;
} lifted;

static co_value *
run_lifted(co_context *ctx, co_value *args, void *user)
{
    lifted *l = user;

    (void)ctx;
    (void)args;
    golden_run_body(l->f, l->body);
    return NULL;
}

static golden_thing
act_init_scope(golden_frame *f, json_t *step)
{
    lifted l = { f, json_object_get(step, "body") };

    co_init_scope(f->ctx, run_lifted, NULL, &l);
    return golden_nothing();
}

static golden_thing
act_set_shape(golden_frame *f, json_t *step)
{
    co_value *x = golden_field(f, step, "x");
    int64_t   dims[CO_MAX_DIMS];
    int       ndim;

    if (x == NULL || json_is_null(json_object_get(step, "shape"))) /* any shape */
        return golden_value(x);
    if (!read_shape(f, step, dims, &ndim))
        return golden_nothing();
    return golden_value(co_ensure_shape(f->ctx, x, dims, ndim));
}

static golden_thing
act_same(golden_frame *f, json_t *step)
{
    co_value *x = golden_field(f, step, "x"), *y = golden_field(f, step, "y");
    json_t   *a = golden_write_operand(f->ctx, x), *b = golden_write_operand(f->ctx, y);
    bool      is_same = json_equal(a, b) == 1;

    json_decref(a);
    json_decref(b);
    return golden_value(x != NULL && y != NULL && co_ok(f->ctx) ? co_bool(f->ctx, is_same) : NULL);
}

/* --- the table --- */

typedef struct action {
    const char *name;
    golden_thing (*act)(golden_frame *f, json_t *step); /* NULL: the library does not offer it */
    bool is_object;                                     /* its result is not recorded */
} action;
static const action actions[] = {
    { "function", golden_define, true },
    { "call", golden_act_call, false },
    { "run", golden_act_run, false },
    { "call_each", golden_act_call_each, false },
    { "concrete", golden_act_concrete, true },
    { "structured", golden_act_structured, false },
    { "let", act_let, false },
    { "host_set", act_host_set, true },
    { "host_append", act_host_append, true },
    { "host_if", act_host_if, true },
    { "host_repeat", act_host_repeat, true },
    { "is_none", act_is_none, false },
    { "note", act_note, true },
    { "note_spec", act_note_spec, true },
    { "note_query", act_note_query, true },
    { "host_read", act_host_read, false },
    { "fail", act_fail, true },
    { "variable", act_variable, true },
    { "variable_once", act_variable_once, true },
    { "generator", act_generator, true },
    { "generator_once", act_generator_once, true },
    { "read", act_read, false },
    { "assign", act_assign, false },
    { "assign_add", act_assign_add, false },
    { "assign_sub", act_assign_sub, false },
    { "scatter_add", act_scatter_add, false },
    { "components", act_components, false },
    { "tape", act_tape, true },
    { "gradient", act_gradient, false },
    { "cond", golden_act_cond, false },
    { "switch_case", golden_act_switch_case, false },
    { "case", golden_act_case, false },
    { "while", golden_act_while, false },
    { "map_fn", golden_act_map_fn, false },
    { "scan", golden_act_scan, false },
    { "foldl", golden_act_foldl, false },
    { "foldr", golden_act_foldr, false },
    { "for_each", golden_act_for_each, false },
    { "replica_id", act_replica_id, false },
    { "all_reduce", act_all_reduce, false },
    { "all_gather", act_all_gather, false },
    { "merge_call", golden_act_merge_call, false },
    { "reduce", act_reduce, false },
    { "gather", act_gather, false },
    { "local_results", act_local_results, false },
    { "values_from_function", golden_act_values_from_function, false },
    { "update", golden_act_update, false },
    { "scope", act_scope, true },
    { "set_strategy", act_set_strategy, true },
    { "query", act_query, false },
    { "dataset", golden_act_dataset, true },
    { "distribute_dataset", golden_act_distribute_dataset, true },
    { "iterator", golden_act_iterator, true },
    { "element_spec", golden_act_element_spec, false },
    { "elements", golden_act_elements, false },
    { "next", golden_act_next, false },
    { "get_next", golden_act_get_next, false },
    { "get_next_as_optional", golden_act_get_next_as_optional, false },
    { "has_value", golden_act_has_value, false },
    { "get_value", golden_act_get_value, false },
    { "ds_reduce", golden_act_ds_reduce, false },
    { "v1_iterator", golden_act_v1_iterator, true },
    { "experimental_run", golden_act_experimental_run, false },
    { "assert", golden_act_assert, true },
    { "assert_equal", golden_act_assert_equal, true },
    { "assert_less", golden_act_assert_less, true },
    { "assert_greater", golden_act_assert_greater, true },
    { "check_numerics", golden_act_check_numerics, false },
    { "set_shape", act_set_shape, false },
    { "set_seed", act_set_seed, true },
    { "random", act_random, false },
    { "generator_draw", act_generator_draw, false },
    { "generator_state", act_generator_state, false },
    { "generator_reset", act_generator_reset, true },
    { "same", act_same, false },
    { "init_scope", act_init_scope, true },
};

static const action *
find_action(const char *name)
{
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); ++i)
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    return NULL;
}

static golden_thing
run_action(golden_frame *f, json_t *step, bool *is_object)
{
    const char   *name = golden_string(f->w->c, step, "do");
    const action *a = find_action(name);

    if (a == NULL) {
        golden_fail(f->w->c, "action '%s' is not known to the runner", name);
        return golden_nothing();
    }
    *is_object = a->is_object;
    return a->act != NULL ? a->act(f, step) : golden_refuse(f, name);
}

golden_thing
golden_run_statement(golden_frame *f, json_t *step, bool *is_object)
{
    const char  *to = json_string_value(json_object_get(step, "to"));
    golden_thing thing;

    *is_object = false;
    thing = json_object_get(step, "op") != NULL ? golden_value(golden_apply_operator(f, step))
                                                : run_action(f, step, is_object);
    if (to != NULL && golden_goes_on(f))
        golden_bind(f->w, f->names, to, thing);
    return thing;
}

bool
golden_run_body(golden_frame *f, json_t *body)
{
    size_t  i;
    json_t *step;
    bool    is_object;

    json_array_foreach(body, i, step)
    {
        golden_run_statement(f, step, &is_object);
        if (!golden_goes_on(f))
            return false;
    }
    return true;
}
