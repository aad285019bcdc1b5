/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Composite values: one leaf that is made of several tensors, which lie in its cell in the order of
 * its kind's row. What they have in common is here; a kind adds its row and its conversion.
 */
#include "value/kind.h"

#include <string.h>

static size_t
num_components(const co_value *value)
{
    return coi_kind_of(value)->composite->n;
}

co_value *
coi_composite_new(coi_heap *heap, int kind, co_value *const *components, co_error_info *err)
{
    co_value *value = coi_value_new(heap, (co_kind)kind);

    if (value == NULL) {
        coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %s", coi_a_kind(kind));
        return NULL;
    }
    value->dtype = components[0]->dtype;
    memset(value->u.components, 0, sizeof(value->u.components));
    for (size_t i = 0; i < num_components(value); ++i)
        if (components[i] != NULL) {
            coi_ref(components[i]);
            value->u.components[i] = components[i];
        }
    return value;
}

co_value *
coi_composite_like(coi_heap *heap, const co_value *like, co_value *const *components,
                   co_error_info *err)
{
    return coi_composite_new(heap, like->kind, components, err);
}

bool
coi_composite_is_whole(const co_value *value)
{
    for (size_t i = 0; i < num_components(value); ++i)
        if (value->u.components[i] != NULL && value->u.components[i]->kind != CO_KIND_TENSOR)
            return false;
    return true;
}

void
coi_composite_destroy(coi_heap *heap, co_value *value)
{
    for (size_t i = 0; i < num_components(value); ++i)
        coi_unref(heap, value->u.components[i]);
}

void
coi_composite_print(coi_printer *out, const co_value *value)
{
    const coi_composite *composite = coi_kind_of(value)->composite;
    const char          *before = "";

    coi_print(out, "%s(", composite->type_name);
    for (size_t i = 0; i < composite->n; ++i)
        if (value->u.components[i] != NULL) {
            coi_print(out, "%s%s=", before, composite->components[i].name);
            coi_print_value(out, value->u.components[i]);
            before = ", ";
        }
    coi_print(out, ")");
}

static void
drop_components(coi_heap *heap, co_value **components)
{
    for (size_t i = 0; i < COI_MAX_COMPONENTS; ++i)
        coi_unref(heap, components[i]);
}

co_value *
coi_composite_type(coi_heap *heap, co_value *value, co_error_info *err)
{
    co_value *made[COI_MAX_COMPONENTS] = { NULL }, *type = NULL;
    bool      ok = true;

    for (size_t i = 0; ok && i < num_components(value); ++i)
        if (value->u.components[i] != NULL)
            ok = (made[i] = coi_type_of(heap, value->u.components[i], err)) != NULL;
    if (ok)
        type = coi_composite_like(heap, value, made, err);
    drop_components(heap, made);
    return type;
}

bool
coi_is_on(const co_value *value, const co_device *device)
{
    if (value->kind == CO_KIND_TENSOR)
        return value->u.tensor.device == device;
    for (size_t i = 0; coi_is_composite(value) && i < num_components(value); ++i)
        if (value->u.components[i] != NULL && !coi_is_on(value->u.components[i], device))
            return false;
    return true;
}
