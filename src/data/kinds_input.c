/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of datasets and iterators as values: elements of other datasets, arguments of captured
 * functions, and what co_for_each loops over.
 */
#include "data/captured_input.h"
#include "value/kind.h"

static void
destroy_object(coi_heap *heap, co_value *value)
{
    coi_unref(heap, value->u.object);
}

/* --- datasets --- */

static void
print_dataset(coi_printer *out, const co_value *value)
{
    (void)value;
    coi_print(out, "Dataset");
}

static co_value *
dataset_spec(const co_value *value)
{
    return ((const co_dataset *)value->u.object)->spec;
}

static co_value *
dataset_iterate(co_context *ctx, co_value *value)
{
    co_iterator *iterator = co_iterate(ctx, value->u.object);

    return iterator != NULL ? coi_iterator_value(ctx, iterator) : NULL;
}

static bool
is_made_of(const co_dataset *dataset, const void *other)
{
    for (size_t i = 0; i < dataset->num_inputs; ++i)
        if (dataset->inputs[i] == other || is_made_of(dataset->inputs[i], other))
            return true;
    return false;
}

static bool
dataset_is_made_of(const co_value *value, const co_value *other)
{
    return is_made_of(value->u.object, other->u.object);
}

static bool
is_made_alike(const co_dataset *a, uint64_t capture, const co_dataset *b, uint64_t other_capture)
{
    bool alike = a->ops == b->ops && a->mark == b->mark && a->num_inputs == b->num_inputs;

    if (a == b || a->serial < capture || b->serial < other_capture)
        return a == b;
    for (size_t i = 0; alike && i < a->num_inputs; ++i)
        alike = is_made_alike(a->inputs[i], capture, b->inputs[i], other_capture);
    return alike;
}

static bool
dataset_is_made_alike(const co_value *a, uint64_t capture, const co_value *b,
                      uint64_t other_capture)
{
    return is_made_alike(a->u.object, capture, b->u.object, other_capture);
}

const coi_kind_ops coi_dataset_kind = {
    .name = "dataset",
    .a_name = "a dataset",
    .destroy = destroy_object,
    .print = print_dataset,
    .element_spec = dataset_spec,
    .iterate = dataset_iterate,
    .as_argument = coi_dataset_argument,
    .is_made_of = dataset_is_made_of,
    .is_made_alike = dataset_is_made_alike,
};

/* --- iterators --- */

static void
print_iterator(coi_printer *out, const co_value *value)
{
    (void)value;
    coi_print(out, "Iterator");
}

static co_value *
iterator_spec(const co_value *value)
{
    return ((const co_iterator *)value->u.object)->dataset->spec;
}

static co_value *
iterator_itself(co_context *ctx, co_value *value)
{
    return coi_own_ref(ctx, value);
}

static co_value *
iterator_symbol(const co_value *value)
{
    return coi_iterator_symbol(value->u.object);
}

static co_value *
iterator_next(co_context *ctx, co_value *value)
{
    return co_next(ctx, value->u.object);
}

const coi_kind_ops coi_iterator_kind = {
    .name = "iterator",
    .a_name = "an iterator",
    .destroy = destroy_object,
    .print = print_iterator,
    .element_spec = iterator_spec,
    .iterate = iterator_itself,
    .next = iterator_next,
    .symbol = iterator_symbol,
    .as_argument = coi_iterator_argument,
};

/* --- making them --- */

static co_value *
value_of(co_context *ctx, co_kind kind, void *object)
{
    co_value *value = coi_value_new(&ctx->heap, kind);

    if (value == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %s as a value", coi_a_kind((int)kind));
        return NULL;
    }
    coi_ref(object);
    value->u.object = object;
    return coi_own(ctx, value);
}

co_value *
coi_dataset_value(co_context *ctx, co_dataset *dataset)
{
    return value_of(ctx, CO_KIND_DATASET, dataset);
}

co_value *
coi_iterator_value(co_context *ctx, co_iterator *iterator)
{
    return value_of(ctx, CO_KIND_ITERATOR, iterator);
}

co_value *
co_dataset_value(co_context *ctx, co_dataset *dataset)
{
    COI_ENTER(ctx, "dataset_value", NULL);
    return coi_check_dataset(ctx, dataset, 2, "dataset") ? coi_dataset_value(ctx, dataset) : NULL;
}

co_value *
co_iterator_value(co_context *ctx, co_iterator *iterator)
{
    COI_ENTER(ctx, "iterator_value", NULL);
    return coi_check_object(ctx, iterator, &coi_iterator_class, 2, "iterator")
               ? coi_iterator_value(ctx, iterator)
               : NULL;
}

co_iterator *
co_value_iterator(co_context *ctx, co_value *value)
{
    COI_ENTER(ctx, "value_iterator", NULL);
    if (!coi_check_kind(ctx, value, CO_KIND_ITERATOR, 2, "value"))
        return NULL;
    return coi_own_ref(ctx, value->u.object);
}
