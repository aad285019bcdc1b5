/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions: datasets and iterators. A function of the case that is a stage of a dataset is
 * captured with the spec of the elements as its signature, so that the spec of what it gives is
 * known before there are elements.
 */
#include "functions.h"

#include <string.h>

#define MAX_ELEMENTS 1000

typedef struct stage {
    golden_closure *closure;
    co_function    *function; /* around the closure, with a signature */
    bool            is_probe; /* capture to see the spec of the result, then give up */
    co_value       *spec;     /* of the result; kept */
} stage;

static co_value *
enter_stage(co_context *ctx, co_value *args, void *user)
{
    stage    *s = user;
    co_value *values[GOLDEN_MAX_ARGS], *result;
    size_t    n = co_num_items(ctx, args);

    for (size_t i = 0; i < n && i < GOLDEN_MAX_ARGS; ++i)
        values[i] = co_at(ctx, args, i);
    result = golden_call_values(ctx, s->closure, values, (int)n);
    if (!s->is_probe || !co_ok(ctx))
        return result;
    s->spec = co_value_spec(ctx, result != NULL ? result : co_none(ctx));
    if (s->spec != NULL)
        co_keep(ctx, s->spec);
    co_fail(ctx, CO_ABORTED, "the spec is known");
    return NULL;
}

/* A tensor of a spec, for a call that is only captured. */
static co_value *
tensor_of_spec(co_context *ctx, co_value *spec, void *user)
{
    static const char *const empty[1] = { "" };
    static const size_t      sizes[1] = { 0 };
    static const double      zeros[64];
    int64_t                  dims[CO_MAX_DIMS];
    int64_t                  n = 1;
    int                      ndim = co_value_ndim(ctx, spec);

    (void)user;
    for (int i = 0; i < ndim; ++i) {
        dims[i] = co_value_dim(ctx, spec, i);
        if (dims[i] < 0)
            dims[i] = 1;
        n *= dims[i];
    }
    if (n > 64)
        return co_fail(ctx, CO_UNIMPLEMENTED, "elements of %lld numbers", (long long)n), NULL;
    if (co_value_dtype(ctx, spec) == CO_STRING)
        return co_tensor_bytes(ctx, dims, ndim < 0 ? 0 : ndim, (const void *const *)empty, sizes);
    return co_tensor(ctx, co_value_dtype(ctx, spec), dims, ndim < 0 ? 0 : ndim, zeros);
}

/* The specs of the arguments: an element that is a tuple becomes several. */
static co_value *
argument_specs(co_context *ctx, co_value *element_spec)
{
    if (co_value_kind(element_spec) == CO_KIND_TUPLE)
        return element_spec;
    return co_tuple(ctx, &element_spec, 1);
}

/* Capture the function of a stage once to learn the spec of its result. */
static bool
probe(golden_frame *f, stage *s, co_value *specs)
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_value           *args = co_map_structure(f->ctx, specs, tensor_of_spec, NULL);

    options.name = "stage";
    options.signature = specs;
    s->function = args != NULL ? co_function_of(f->ctx, enter_stage, s, &options) : NULL;
    if (s->function == NULL)
        return false;
    if (f->closure != NULL) /* a dataset may outlive the function that made it */
        co_keep(f->ctx, s->function);
    s->is_probe = true;
    co_call(f->ctx, s->function, args);
    s->is_probe = false;
    if (s->spec == NULL || co_error(f->ctx)->code != CO_ABORTED)
        return false;
    co_clear(f->ctx);
    return true;
}

static co_value *
call_stage(co_context *ctx, co_value *element, void *user)
{
    const stage *s = user;

    return co_call(ctx, s->function, argument_specs(ctx, element));
}

static bool
call_predicate(co_context *ctx, co_value *element, void *user)
{
    co_value *result = call_stage(ctx, element, user);

    return result != NULL && co_item_int(ctx, result) != 0;
}

static co_value *
call_fold(co_context *ctx, co_value *args, void *user)
{
    const stage *s = user;

    return co_call(ctx, s->function, args);
}

/* flat_map: the function makes a dataset of each element. */
static co_dataset *
call_inner(co_context *ctx, co_value *element, void *user)
{
    const stage *s = user;
    golden_thing arg = golden_value(element), result;

    result = golden_interpret(ctx, s->closure, &arg, 1);
    return result.kind == GOLDEN_DATASET ? result.u.dataset : NULL;
}

static co_dataset *
make_map(golden_frame *f, co_dataset *input, stage *s, json_t *args)
{
    (void)args;
    if (!probe(f, s, argument_specs(f->ctx, co_element_spec(f->ctx, input))))
        return NULL;
    return co_dataset_map(f->ctx, input, call_stage, s, s->spec);
}

/* A predicate gives one bool. In C its type says so; here it is the runner that can see it. */
static bool
probe_predicate(golden_frame *f, co_dataset *input, stage *s)
{
    if (!probe(f, s, argument_specs(f->ctx, co_element_spec(f->ctx, input))))
        return false;
    if (co_value_kind(s->spec) == CO_KIND_SPEC && co_value_dtype(f->ctx, s->spec) == CO_BOOL &&
        co_value_ndim(f->ctx, s->spec) == 0)
        return true;
    co_fail(f->ctx, CO_VALUE_ERROR, "the predicate does not give a bool");
    return false;
}

static co_dataset *
make_filter(golden_frame *f, co_dataset *input, stage *s, json_t *args)
{
    (void)args;
    if (!probe_predicate(f, input, s))
        return NULL;
    return co_dataset_filter(f->ctx, input, call_predicate, s);
}

static co_dataset *
make_take_while(golden_frame *f, co_dataset *input, stage *s, json_t *args)
{
    (void)args;
    if (!probe_predicate(f, input, s))
        return NULL;
    return co_dataset_take_while(f->ctx, input, call_predicate, s);
}

static co_dataset *
make_scan(golden_frame *f, co_dataset *input, stage *s, json_t *args)
{
    co_value *initial = golden_operand_value(f, json_array_get(args, 1));
    co_value *specs[2];

    if (initial == NULL)
        return NULL;
    specs[0] = co_value_spec(f->ctx, initial);
    specs[1] = co_element_spec(f->ctx, input);
    if (!co_ok(f->ctx) || !probe(f, s, co_tuple(f->ctx, specs, 2)))
        return NULL;
    return co_dataset_scan(f->ctx, input, initial, call_fold, s, co_at(f->ctx, s->spec, 1));
}

static co_dataset *
make_flat_map(golden_frame *f, co_dataset *input, stage *s, json_t *args)
{
    co_value   *spec = co_element_spec(f->ctx, input);
    co_dataset *inner;

    (void)args;
    if (s->closure->function != NULL) {
        golden_refuse(f, "captured functions that return datasets");
        return NULL;
    }
    inner = call_inner(f->ctx, co_map_structure(f->ctx, spec, tensor_of_spec, NULL), s);
    if (inner == NULL)
        return NULL;
    return co_dataset_flat_map(f->ctx, input, call_inner, s, co_element_spec(f->ctx, inner));
}

static const struct {
    const char *op;
    co_dataset *(*make)(golden_frame *f, co_dataset *input, stage *s, json_t *args);
} stages[] = {
    { "map", make_map },   { "filter", make_filter },     { "take_while", make_take_while },
    { "scan", make_scan }, { "flat_map", make_flat_map },
};

/* A stage whose first argument is a function of the case. */
static co_dataset *
apply_function(golden_frame *f, co_dataset *input, json_t *item, json_t *fn)
{
    const char *op = json_string_value(json_object_get(item, "op"));
    stage      *s = golden_room(f->w, sizeof(*s));

    if (s == NULL || (s->closure = golden_function_of(f, fn)) == NULL)
        return NULL;
    if (f->closure != NULL)
        golden_keep_locals(f);
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); ++i)
        if (strcmp(stages[i].op, op) == 0)
            return stages[i].make(f, input, s, json_object_get(item, "args"));
    golden_fail(f->w->c, "the dataset step '%s' with a function is not known to the runner", op);
    return NULL;
}

/* range(x) with a tensor: its element. */
static co_dataset *
apply_range(golden_frame *f, json_t *args)
{
    int64_t numbers[3] = { 0, 0, 1 };
    size_t  n = json_array_size(args);

    for (size_t i = 0; i < n && i < 3; ++i) {
        json_t   *json = json_array_get(args, i);
        co_value *value = json_is_integer(json) ? co_int(f->ctx, json_integer_value(json))
                                                : golden_operand_value(f, json);

        numbers[n == 1 ? 1 : i] = value != NULL ? co_item_int(f->ctx, value) : 0;
    }
    return golden_goes_on(f) ? co_dataset_range(f->ctx, numbers[0], numbers[1], numbers[2]) : NULL;
}

golden_thing
golden_act_dataset(golden_frame *f, json_t *step)
{
    json_t      *pipeline = json_object_get(step, "pipeline"), *from, *item;
    golden_thing start = golden_nothing();
    co_dataset  *dataset = NULL;
    size_t       i;

    if ((from = json_object_get(step, "from")) != NULL) {
        start = golden_operand(f, from);
        dataset = start.kind == GOLDEN_DATASET ? start.u.dataset : NULL;
    }
    json_array_foreach(pipeline, i, item)
    {
        json_t *args = json_object_get(item, "args");
        json_t *fn = json_object_get(json_array_get(args, 0), "fn");

        if (!golden_is_pipeline_step(item, dataset == NULL))
            golden_fail(f->w->c, "a step of a pipeline of the case is unknown or out of place");
        if (!golden_goes_on(f) || (dataset == NULL && i > 0))
            return golden_nothing();
        if (fn != NULL)
            dataset = apply_function(f, dataset, item, fn);
        else if (strcmp(golden_string(f->w->c, item, "op"), "range") == 0)
            dataset = apply_range(f, args);
        else
            dataset = golden_pipeline_step(f->w->c, f->ctx, dataset, item);
    }
    return (golden_thing){ dataset != NULL ? GOLDEN_DATASET : GOLDEN_NOTHING,
                           { .dataset = dataset } };
}

static golden_thing
find_of(golden_frame *f, json_t *step, golden_thing_kind kind)
{
    golden_thing thing = golden_operand(f, json_object_get(step, "of"));

    if (golden_goes_on(f) && thing.kind != kind)
        golden_refuse(f, "datasets and iterators as values of a captured function");
    return golden_goes_on(f) ? thing : golden_nothing();
}

golden_thing
golden_act_distribute_dataset(golden_frame *f, json_t *step)
{
    golden_thing of = find_of(f, step, GOLDEN_DATASET);
    co_dataset  *made;

    if (of.kind == GOLDEN_NOTHING)
        return of;
    made = co_distribute_dataset(f->ctx, f->w->strategy, of.u.dataset, NULL);
    return (golden_thing){ made != NULL ? GOLDEN_DATASET : GOLDEN_NOTHING, { .dataset = made } };
}

golden_thing
golden_act_iterator(golden_frame *f, json_t *step)
{
    golden_thing of = find_of(f, step, GOLDEN_DATASET);
    co_iterator *made = of.kind != GOLDEN_NOTHING ? co_iterate(f->ctx, of.u.dataset) : NULL;

    return (golden_thing){ made != NULL ? GOLDEN_ITERATOR : GOLDEN_NOTHING, { .iterator = made } };
}

golden_thing
golden_act_v1_iterator(golden_frame *f, json_t *step)
{
    golden_thing dataset = golden_act_dataset(f, step);
    co_iterator *made;

    if (dataset.kind == GOLDEN_NOTHING)
        return dataset;
    made = co_make_dataset_iterator(f->ctx, f->w->strategy, dataset.u.dataset);
    if (made != NULL)
        co_iterator_initialize(f->ctx, made);
    return (golden_thing){ made != NULL ? GOLDEN_ITERATOR : GOLDEN_NOTHING, { .iterator = made } };
}

golden_thing
golden_act_element_spec(golden_frame *f, json_t *step)
{
    golden_thing of = golden_operand(f, json_object_get(step, "of"));

    return golden_goes_on(f) ? golden_value(golden_element_spec(f, of)) : golden_nothing();
}

/* Every element of a dataset, or what a function gives for it. */
static golden_thing
collect(golden_frame *f, json_t *step, golden_closure *closure)
{
    golden_thing of = golden_operand(f, json_object_get(step, "of"));
    co_value    *items[MAX_ELEMENTS], *element;
    co_iterator *it = of.kind == GOLDEN_ITERATOR  ? of.u.iterator
                      : of.kind == GOLDEN_DATASET ? co_iterate(f->ctx, of.u.dataset)
                                                  : NULL;
    size_t       n = 0;

    while (it != NULL && n < MAX_ELEMENTS && (element = co_next(f->ctx, it)) != NULL) {
        golden_thing arg = golden_value(element), result = arg;

        if (closure != NULL)
            result = golden_call(f, closure, &arg, 1);
        if (!golden_goes_on(f))
            return golden_nothing();
        items[n++] = result.kind == GOLDEN_VALUE ? result.u.value : co_none(f->ctx);
    }
    return golden_goes_on(f) ? golden_value(co_list(f->ctx, items, n)) : golden_nothing();
}

golden_thing
golden_act_elements(golden_frame *f, json_t *step)
{
    return collect(f, step, NULL);
}

golden_thing
golden_act_call_each(golden_frame *f, json_t *step)
{
    golden_closure *closure = golden_function_of(f, json_object_get(step, "fn"));

    return closure != NULL ? collect(f, step, closure) : golden_nothing();
}

/* The end is an error of the host language. */
golden_thing
golden_act_next(golden_frame *f, json_t *step)
{
    golden_thing of = find_of(f, step, GOLDEN_ITERATOR);
    co_value    *element = of.kind != GOLDEN_NOTHING ? co_next(f->ctx, of.u.iterator) : NULL;

    if (of.kind != GOLDEN_NOTHING && element == NULL && co_ok(f->ctx))
        co_fail(f->ctx, CO_STOP_ITERATION, "the end of the input");
    return golden_value(element);
}

golden_thing
golden_act_get_next(golden_frame *f, json_t *step)
{
    golden_thing of = find_of(f, step, GOLDEN_ITERATOR);

    return golden_value(of.kind != GOLDEN_NOTHING ? co_get_next(f->ctx, of.u.iterator) : NULL);
}

golden_thing
golden_act_get_next_as_optional(golden_frame *f, json_t *step)
{
    golden_thing of = find_of(f, step, GOLDEN_ITERATOR);

    return golden_value(of.kind != GOLDEN_NOTHING ? co_get_next_as_optional(f->ctx, of.u.iterator)
                                                  : NULL);
}

golden_thing
golden_act_has_value(golden_frame *f, json_t *step)
{
    co_value *optional = golden_field(f, step, "of");
    bool      has;

    if (optional != NULL && co_value_kind(optional) == CO_KIND_SYMBOLIC)
        return golden_value(co_optional_has_value_tensor(f->ctx, optional));
    has = optional != NULL && co_optional_has_value(f->ctx, optional);
    return golden_value(optional != NULL && co_ok(f->ctx) ? co_bool(f->ctx, has) : NULL);
}

golden_thing
golden_act_get_value(golden_frame *f, json_t *step)
{
    co_value *optional = golden_field(f, step, "of");

    return golden_value(optional != NULL ? co_optional_get_value(f->ctx, optional) : NULL);
}

golden_thing
golden_act_ds_reduce(golden_frame *f, json_t *step)
{
    golden_thing of = find_of(f, step, GOLDEN_DATASET);
    stage       *s = golden_room(f->w, sizeof(*s));
    co_value    *initial = golden_field(f, step, "initial"), *specs[2];

    if (s == NULL || !golden_goes_on(f) ||
        (s->closure = golden_function_of(f, json_object_get(step, "fn"))) == NULL)
        return golden_nothing();
    specs[0] = co_value_spec(f->ctx, initial);
    specs[1] = co_element_spec(f->ctx, of.u.dataset);
    if (!co_ok(f->ctx) || !probe(f, s, co_tuple(f->ctx, specs, 2)))
        return golden_nothing();
    return golden_value(co_dataset_reduce(f->ctx, of.u.dataset, initial, call_fold, s));
}
