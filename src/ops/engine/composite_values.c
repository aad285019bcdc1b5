/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators do with composite values of any kind: several as one, and one as a tensor.
 */
#include "ops/engine/composite_values.h"

#include "ops/engine/gradient.h"

#include <cohort/ops.h>

/* Component c of all values, concatenated. */
static co_value *
concat_component(co_context *ctx, co_value *const *values, size_t n, const char *which, size_t c)
{
    size_t     nbytes = n * sizeof(co_value *);
    co_value **parts = coi_small_alloc(&ctx->heap, nbytes), *whole = NULL;
    size_t     i;

    if (parts == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu parts", n);
        return NULL;
    }
    for (i = 0; i < n && values[i]->u.components[c] != NULL; ++i)
        parts[i] = values[i]->u.components[c];
    if (i < n)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "%s 0 has %s with %s and %s %zu without; all must have them", which,
                 coi_a_kind(values[0]->kind), coi_kind_of(values[0])->composite->components[c].name,
                 which, i);
    else
        whole = co_concat(ctx, co_list(ctx, parts, n), 0);
    coi_small_free(&ctx->heap, parts, nbytes);
    return whole;
}

bool
coi_concat_components(co_context *ctx, co_value *const *values, size_t n, const char *which,
                      co_value *components[COI_MAX_COMPONENTS])
{
    const coi_composite *composite = coi_kind_of(values[0])->composite;

    for (size_t c = 0; c < composite->n; ++c) {
        components[c] = values[0]->u.components[c];
        if (components[c] == NULL || composite->components[c].combining == COI_TAKE_FIRST)
            continue;
        components[c] = concat_component(ctx, values, n, which, c);
        if (components[c] == NULL)
            return false;
    }
    return true;
}

co_value *
coi_composite_give(co_context *ctx, const co_value *like, co_value *const *components)
{
    return coi_give(ctx, coi_composite_like(&ctx->heap, like, components, coi_err(ctx)));
}

co_value *
coi_concat_composites(co_context *ctx, co_value *const *values, size_t n, const char *which)
{
    co_value *components[COI_MAX_COMPONENTS];

    return coi_concat_components(ctx, values, n, which, components)
               ? coi_composite_give(ctx, values[0], components)
               : NULL;
}

co_value *
coi_densify(co_context *ctx, co_value *value)
{
    const coi_composite *composite = value != NULL ? coi_kind_of(value)->composite : NULL;

    if (composite == NULL)
        return value;
    return composite->by_operators != NULL && (coi_composite_is_whole(value) || ctx->infers_types)
               ? composite->by_operators(ctx, value)
               : coi_give(ctx, coi_as_tensor(ctx, value, CO_DTYPE_NONE));
}
