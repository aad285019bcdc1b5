/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a value: its cell, and what it holds besides, which is given back when the last
 * reference goes.
 */
#include "value/value.h"
#include "value/variable_handle.h"

#include <string.h>

_Static_assert(sizeof(co_value) == 128, "a cell is two cache lines");

static void
drop_items(coi_heap *heap, co_value **items, size_t n, co_value **room)
{
    for (size_t i = 0; i < n; ++i)
        coi_unref(heap, items[i]);
    if (items != room)
        coi_small_free(heap, items, n * sizeof(*items));
}

static void
drop_structure(coi_heap *heap, co_value *value)
{
    size_t nbytes;

    drop_items(heap, value->u.items.items, value->u.items.n, value->u.items.room);
    if (value->u.items.keys == NULL)
        return;
    memcpy(&nbytes, value->u.items.keys, sizeof(nbytes));
    coi_small_free(heap, value->u.items.keys, nbytes);
}

/* What a value that is no tensor holds. */
static void
drop_contents(coi_heap *heap, co_value *value)
{
    switch (value->kind) {
    case CO_KIND_STRING:
        coi_small_free(heap, value->u.string.data, value->u.string.nbytes + 1);
        break;
    case CO_KIND_LIST:
    case CO_KIND_TUPLE:
    case CO_KIND_NAMED_TUPLE:
    case CO_KIND_DICT: drop_structure(heap, value); break;
    case CO_KIND_PER_REPLICA:
    case CO_KIND_MIRRORED:
        drop_items(heap, value->u.per_replica.items, value->u.per_replica.n,
                   value->u.per_replica.room);
        break;
    case CO_KIND_SLICES:
        coi_unref(heap, value->u.slices.values);
        coi_unref(heap, value->u.slices.indices);
        coi_unref(heap, value->u.slices.dense_shape);
        break;
    case CO_KIND_VARIABLE:
        if (value->u.variable != NULL)
            value->u.variable->ops->destroy(heap, value->u.variable);
        break;
    case CO_KIND_SPEC:
        if (coi_is_dataset_spec(value))
            coi_unref(heap, value->u.object);
        break;
    case CO_KIND_DATASET: coi_unref(heap, value->u.object); break;
    default: break; /* host numbers and none hold nothing */
    }
}

/* --- components and containers --- */

/* In a forked child nobody else is there, and the lock may be held for ever. */
static void
take_weak(coi_heap *heap)
{
    if (!coi_is_forked(heap))
        coi_lock_take(&heap->store->weak_lock);
}

static void
give_weak(coi_heap *heap)
{
    if (!coi_is_forked(heap))
        coi_lock_give(&heap->store->weak_lock);
}

co_value *
coi_container_of(coi_heap *heap, const co_value *component)
{
    co_value *container;
    unsigned  refs;

    if (!coi_is_component(component->u.variable))
        return NULL;
    take_weak(heap);
    container = atomic_load_explicit(&component->u.variable->container, memory_order_relaxed);
    if (container != NULL) {
        refs = atomic_load_explicit(&container->object.refs, memory_order_relaxed);
        while (refs > 0 && !atomic_compare_exchange_weak(&container->object.refs, &refs, refs + 1))
            ;
        if (refs == 0) /* who dropped the last reference waits for the lock */
            container = NULL;
    }
    give_weak(heap);
    return container;
}

bool
coi_container_join(coi_heap *heap, co_value *container, co_value *component)
{
    co_value *none = NULL;
    bool      joined;

    take_weak(heap);
    joined = atomic_compare_exchange_strong(&component->u.variable->container, &none, container);
    give_weak(heap);
    return joined;
}

/*
 * Nobody has a reference to a container: neither its components may lead to it any more. False
 * where one did just before, as coi_unref does not count down what it takes for the only reference.
 */
static bool
forget_container(coi_heap *heap, co_value *container)
{
    const coi_variable *variable = container->u.variable;
    bool                dies;

    take_weak(heap);
    dies = atomic_load(&container->object.refs) == 0 ||
           atomic_fetch_sub(&container->object.refs, 1) == 1;
    for (size_t i = 0; dies && i < variable->num_components; ++i) {
        co_value *self = container;

        atomic_compare_exchange_strong(&variable->components[i]->u.variable->container, &self,
                                       NULL);
    }
    give_weak(heap);
    return dies;
}

static void
destroy_value(coi_heap *heap, void *object)
{
    co_value *value = object;

    if (value->kind == CO_KIND_VARIABLE && value->u.variable != NULL &&
        value->u.variable->components != NULL && !forget_container(heap, value))
        return;
    if (value->kind != CO_KIND_TENSOR)
        drop_contents(heap, value);
    else if (value->u.tensor.buffer != NULL)
        coi_buffer_unref(value->u.tensor.buffer);
    coi_cell_free(heap, value);
}

const coi_class coi_value_class = { "value", destroy_value, NULL };
