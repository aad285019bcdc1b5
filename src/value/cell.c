/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a value: when the last reference is dropped, it releases everything it holds besides
 * its cell, as the row of its kind says. Also the row of variables, whose containers need care when
 * they die.
 */
#include <cohort/variable.h>

#include "value/kind.h"
#include "value/variable_handle.h"

_Static_assert(sizeof(co_value) == 128, "a cell is two cache lines");

/* --- components and containers --- */

/* A forked child has no other threads, and the lock may be held forever. */
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
        if (refs == 0) /* the thread that dropped the last reference waits for the lock */
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

static bool
variable_may_die(coi_heap *heap, co_value *value)
{
    return (value->flags & COI_FLAG_ARGUMENT) != 0 || value->u.variable == NULL ||
           value->u.variable->components == NULL || forget_container(heap, value);
}

static void
destroy_variable(coi_heap *heap, co_value *value)
{
    if ((value->flags & COI_FLAG_ARGUMENT) != 0)
        coi_unref(heap, value->u.argument);
    else if (value->u.variable != NULL)
        value->u.variable->ops->destroy(heap, value->u.variable);
}

static void
describe_variable(const co_value *value, coi_shape *shape, co_dtype *dtype)
{
    *shape = value->u.variable->shape;
    *dtype = (co_dtype)value->u.variable->dtype;
}

static co_value *
read_variable(co_context *ctx, co_value *value, co_dtype dtype)
{
    (void)dtype;
    return value->u.variable->ops->read(ctx, value);
}

static const char *
variable_device(co_context *ctx, co_value *value)
{
    return value->u.variable->ops->device(ctx, value);
}

static coi_values
variable_replicas(const co_value *value, bool *equal)
{
    const coi_variable *variable = value->u.variable;

    if (variable->components == NULL)
        return (coi_values){ NULL, 0 };
    *equal = variable->synchronization != CO_SYNC_ON_READ;
    return (coi_values){ variable->components, variable->num_components };
}

/* The container whose components these are, in order. */
static co_value *
container_of_all(coi_heap *heap, co_value *const *parts, size_t n)
{
    co_value *container = coi_container_of(heap, parts[0]);
    bool      same;

    if (container == NULL)
        return NULL;
    same = container->u.variable->num_components == n;
    for (size_t i = 0; same && i < n; ++i)
        same = container->u.variable->components[i]->u.variable == parts[i]->u.variable;
    if (same)
        return container;
    coi_unref(heap, container);
    return NULL;
}

const coi_kind_ops coi_variable_kind = {
    .name = "variable",
    .a_name = "a variable",
    .is_variable = true,
    .destroy = destroy_variable,
    .may_die = variable_may_die,
    .print = coi_print_variable,
    .describe = describe_variable,
    .as_tensor = read_variable,
    .device = variable_device,
    .replicas = variable_replicas,
    .whole = container_of_all,
};

/* --- the end of a value --- */

static void
destroy_value(coi_heap *heap, void *object)
{
    co_value *value = object;

    if (value->kind == CO_KIND_TENSOR) { /* most are */
        if (value->u.tensor.buffer != NULL)
            coi_buffer_unref(value->u.tensor.buffer);
    } else {
        const coi_kind_ops *row = coi_kind_of(value);

        if (row->may_die != NULL && !row->may_die(heap, value))
            return;
        if (row->destroy != NULL)
            row->destroy(heap, value);
    }
    coi_cell_free(heap, value);
}

const coi_class coi_value_class = { "value", destroy_value, NULL };
