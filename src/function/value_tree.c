/* SPDX-License-Identifier: Apache-2.0 */
/* See value_tree.h. */
#include "function/value_tree.h"

#include <string.h>

bool
coi_is_rare_tree(const co_value *value)
{
    return coi_is_distributed(value) || coi_is_composite(value);
}

coi_values
coi_tree_items(const co_value *value)
{
    if (coi_is_structure(value))
        return (coi_values){ value->u.items.items, value->u.items.n };
    if (coi_is_composite(value))
        return (coi_values){ (co_value *const *)value->u.components,
                             coi_kind_of(value)->composite->n };
    return coi_is_tree(value) ? coi_items_of(value) : (coi_values){ NULL, 0 };
}

const void *
coi_resource_of(const co_value *value)
{
    if (coi_is_variable(value))
        return (value->flags & COI_FLAG_ARGUMENT) != 0 ? (const void *)value : value->u.variable;
    return coi_kind_of(value)->element_spec != NULL || value->kind == CO_KIND_FUNCTION
               ? value->u.object
               : NULL;
}

/* An empty node like this one: a reference, or NULL with an error. */
static co_value *
node_like(co_context *ctx, const co_value *value)
{
    co_value *made;

    if (coi_is_structure(value))
        return coi_structure_like(&ctx->heap, value, coi_err(ctx));
    made = coi_per_replica_new(&ctx->heap, (co_kind)value->kind, value->u.per_replica.n,
                               coi_err(ctx));
    if (made != NULL)
        made->u.per_replica.step_examples = value->u.per_replica.step_examples;
    return made;
}

co_value *
coi_tree_with_items(co_context *ctx, const co_value *like, co_value *const *items, size_t n)
{
    co_value *made, **to;

    if (coi_is_composite(like))
        return coi_give(ctx, coi_composite_like(&ctx->heap, like, items, coi_err(ctx)));
    made = coi_give(ctx, node_like(ctx, like));
    if (made == NULL)
        return NULL;
    to = coi_is_structure(made) ? made->u.items.items : made->u.per_replica.items;
    for (size_t i = 0; i < n; ++i) {
        coi_ref(items[i]);
        to[i] = items[i];
    }
    return coi_structure_seal(made, coi_err(ctx)) == CO_OK ? made : coi_give(ctx, NULL);
}

static co_value *
map_items(co_context *ctx, co_value *value, coi_values from, co_value **items, coi_tree_fn fn,
          void *arg)
{
    bool same = true;

    for (size_t i = 0; i < from.n; ++i) {
        items[i] = from.items[i] != NULL ? coi_tree_map(ctx, from.items[i], fn, arg) : NULL;
        if (items[i] == NULL && from.items[i] != NULL)
            return NULL;
        same = same && items[i] == from.items[i];
    }
    return same ? value : coi_tree_with_items(ctx, value, items, from.n);
}

co_value *
coi_tree_map(co_context *ctx, co_value *value, coi_tree_fn fn, void *arg)
{
    co_value  *few[COI_INLINE_ITEMS], **items = few, *mapped;
    coi_values from;

    if (!coi_is_tree(value))
        return fn(ctx, value, arg);
    from = coi_tree_items(value);
    if (from.n > COI_INLINE_ITEMS &&
        (items = coi_small_alloc(&ctx->heap, from.n * sizeof(*items))) == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu items", from.n);
        return NULL;
    }
    mapped = map_items(ctx, value, from, items, fn, arg);
    if (items != few)
        coi_small_free(&ctx->heap, items, from.n * sizeof(*items));
    return mapped;
}

bool
coi_tree_all(const co_value *value, coi_leaf_test fn, void *arg)
{
    coi_values items;

    if (!coi_is_tree(value))
        return fn(value, arg);
    items = coi_tree_items(value);
    for (size_t i = 0; i < items.n; ++i)
        if (items.items[i] != NULL && !coi_tree_all(items.items[i], fn, arg))
            return false;
    return true;
}

static bool
same_keys(const co_value *a, const co_value *b)
{
    for (size_t i = 1; a->u.items.keys != NULL && i <= a->u.items.n; ++i)
        if (strcmp(a->u.items.keys[i], b->u.items.keys[i]) != 0)
            return false;
    return a->u.items.type_name == NULL || strcmp(a->u.items.type_name, b->u.items.type_name) == 0;
}

bool
coi_is_same_node(const co_value *a, const co_value *b)
{
    return a->kind == b->kind && coi_is_tree(a) && coi_tree_items(a).n == coi_tree_items(b).n &&
           (!coi_is_structure(a) || same_keys(a, b));
}

/* Arguments are tuples, which have neither names nor missing items. */
static bool
pair_tuples(co_value *pattern, co_value *value, coi_pair_test fn, void *arg)
{
    size_t n = pattern->u.items.n;

    if (value->u.items.n != n)
        return false;
    for (size_t i = 0; i < n; ++i) {
        co_value *a = pattern->u.items.items[i], *b = value->u.items.items[i];

        if (!(coi_is_tree(a) ? coi_tree_pair(a, b, fn, arg) : fn(a, b, arg)))
            return false;
    }
    return true;
}

bool
coi_tree_pair(co_value *pattern, co_value *value, coi_pair_test fn, void *arg)
{
    coi_values a, b;

    if (!coi_is_tree(pattern))
        return fn(pattern, value, arg);
    if (pattern->kind == CO_KIND_TUPLE && value->kind == CO_KIND_TUPLE)
        return pair_tuples(pattern, value, fn, arg);
    a = coi_tree_items(pattern);
    b = coi_tree_items(value);
    if (pattern->kind != value->kind || a.n != b.n ||
        (coi_is_structure(pattern) && !same_keys(pattern, value)))
        return false;
    for (size_t i = 0; i < a.n; ++i) {
        if ((a.items[i] == NULL) != (b.items[i] == NULL))
            return false;
        if (a.items[i] != NULL && !coi_tree_pair(a.items[i], b.items[i], fn, arg))
            return false;
    }
    return true;
}
