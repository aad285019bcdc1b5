/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a value: its cell, and what it holds besides, which is given back when the last reference goes.
 */
#include "value/value.h"
#include "value/variable.h"

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
    case CO_KIND_MAP: drop_structure(heap, value); break;
    case CO_KIND_PER_REPLICA:
    case CO_KIND_MIRRORED:
        drop_items(heap, value->u.bundle.items, value->u.bundle.n, value->u.bundle.room);
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
    default: break; /* host numbers, none and specs hold nothing */
    }
}

static void
destroy_value(coi_heap *heap, void *object)
{
    co_value *value = object;

    if (value->kind != CO_KIND_TENSOR)
        drop_contents(heap, value);
    else if (value->u.tensor.buffer != NULL)
        coi_buffer_unref(value->u.tensor.buffer);
    coi_cell_free(heap, value);
}

const coi_class coi_value_class = { "value", destroy_value, NULL };
