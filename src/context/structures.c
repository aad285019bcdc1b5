/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public calls on structures: making, looking, flattening, packing, mapping.
 */
#include "context/context.h"

#include <stdio.h>
#include <string.h>

/* Put references to the items in, in the order of `order`, and give the structure to the block. */
static co_value *
fill(co_context *ctx, co_value *structure, co_value *const *items, size_t n, const size_t *order)
{
    if (structure == NULL)
        return coi_give(ctx, NULL);
    for (size_t i = 0; i < n; ++i) {
        co_value *item = items[order != NULL ? order[i] : i];

        if (!coi_check_value(ctx, item, (int)(order != NULL ? order[i] : i), "item")) {
            coi_unref(&ctx->heap, structure);
            return NULL;
        }
        coi_ref(item);
        structure->u.items.items[i] = item;
    }
    if (coi_structure_seal(structure, coi_err(ctx)) != CO_OK) {
        coi_unref(&ctx->heap, structure);
        return coi_give(ctx, NULL);
    }
    return coi_own(ctx, structure);
}

static bool
check_items(co_context *ctx, const void *items, size_t n, int position, const char *name)
{
    if (items != NULL || n == 0)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT, "argument %d (%s) of %s is NULL for %zu items", position,
             name, ctx->call, n);
    return false;
}

co_value *
co_list(co_context *ctx, co_value *const *items, size_t n)
{
    COI_ENTER(ctx, "list", NULL);
    if (!check_items(ctx, items, n, 2, "items"))
        return NULL;
    return fill(ctx, coi_structure_new(&ctx->heap, CO_KIND_LIST, n, NULL, NULL, NULL, coi_err(ctx)),
                items, n, NULL);
}

co_value *
co_tuple(co_context *ctx, co_value *const *items, size_t n)
{
    COI_ENTER(ctx, "tuple", NULL);
    if (!check_items(ctx, items, n, 2, "items"))
        return NULL;
    return fill(ctx,
                coi_structure_new(&ctx->heap, CO_KIND_TUPLE, n, NULL, NULL, NULL, coi_err(ctx)),
                items, n, NULL);
}

co_value *
co_no_args(co_context *ctx)
{
    return co_tuple(ctx, NULL, 0);
}

co_value *
co_named_tuple(co_context *ctx, const char *type, const char *const *fields, co_value *const *items,
               size_t n)
{
    COI_ENTER(ctx, "named_tuple", NULL);
    if (!check_items(ctx, fields, n, 3, "fields") || !check_items(ctx, items, n, 4, "items"))
        return NULL;
    for (size_t i = 0; i < n; ++i)
        if (!check_items(ctx, fields[i], 1, (int)i, "field"))
            return NULL;
    return fill(ctx,
                coi_structure_new(&ctx->heap, CO_KIND_NAMED_TUPLE, n,
                                  n > 0 ? fields : (const char *const[]){ "" },
                                  type != NULL ? type : "", NULL, coi_err(ctx)),
                items, n, NULL);
}

co_value *
co_map(co_context *ctx, const char *const *keys, co_value *const *items, size_t n)
{
    size_t    few[32], *order = few;
    co_value *map;

    COI_ENTER(ctx, "map", NULL);
    if (!check_items(ctx, keys, n, 2, "keys") || !check_items(ctx, items, n, 3, "items"))
        return NULL;
    if (n > 32 && (order = coi_small_alloc(&ctx->heap, n * sizeof(*order))) == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a map of %zu items", n);
        return NULL;
    }
    map = coi_structure_new(&ctx->heap, CO_KIND_MAP, n, n > 0 ? keys : (const char *const[]){ "" },
                            NULL, order, coi_err(ctx));
    map = fill(ctx, map, items, n, order);
    if (order != few)
        coi_small_free(&ctx->heap, order, n * sizeof(*order));
    return map;
}

/* The items of anything that has some. */
static co_value **
items_of(co_context *ctx, co_value *value, size_t *n)
{
    if (!coi_check_value(ctx, value, 2, "structure"))
        return NULL;
    if (coi_is_structure(value)) {
        *n = value->u.items.n;
        return value->u.items.items;
    }
    if (value->kind == CO_KIND_PER_REPLICA || value->kind == CO_KIND_MIRRORED) {
        *n = value->u.bundle.n;
        return value->u.bundle.items;
    }
    coi_fail(ctx, CO_TYPE, "argument 2 (structure) of %s is a %s, which has no items", ctx->call,
             co_kind_name((co_kind)value->kind));
    return NULL;
}

size_t
co_size(co_context *ctx, co_value *structure)
{
    size_t n = 0;

    COI_ENTER(ctx, "size", 0);
    items_of(ctx, structure, &n);
    return n;
}

static co_value *
borrow_item(co_context *ctx, co_value *item)
{
    coi_ref(item);
    return coi_own(ctx, item);
}

co_value *
co_at(co_context *ctx, co_value *structure, size_t i)
{
    size_t     n;
    co_value **items;

    COI_ENTER(ctx, "at", NULL);
    items = items_of(ctx, structure, &n);
    if (items == NULL)
        return NULL;
    if (i >= n) {
        coi_fail(ctx, CO_OUT_OF_RANGE, "item %zu of a %s of %zu", i,
                 co_kind_name((co_kind)structure->kind), n);
        return NULL;
    }
    return borrow_item(ctx, items[i]);
}

/* "'a', 'b', 'c'", cut when long. */
static void
list_keys(const co_value *structure, char *out, size_t capacity)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < structure->u.items.n && at + 1 < capacity; ++i) {
        int n = snprintf(out + at, capacity - at, "%s'%s'", i > 0 ? ", " : "",
                         structure->u.items.keys[i + 1]);

        at += n > 0 ? (size_t)n : 0;
    }
}

co_value *
co_get(co_context *ctx, co_value *structure, const char *key)
{
    char names[400];

    COI_ENTER(ctx, "get", NULL);
    if (!coi_check_value(ctx, structure, 2, "structure"))
        return NULL;
    if (key == NULL || (structure->kind != CO_KIND_MAP && structure->kind != CO_KIND_NAMED_TUPLE)) {
        coi_fail(ctx, CO_TYPE, "get wants a map or named tuple and a key, not a %s and %s",
                 co_kind_name((co_kind)structure->kind), key != NULL ? key : "NULL");
        return NULL;
    }
    for (size_t i = 0; i < structure->u.items.n; ++i)
        if (strcmp(structure->u.items.keys[i + 1], key) == 0)
            return borrow_item(ctx, structure->u.items.items[i]);
    list_keys(structure, names, sizeof(names));
    coi_fail(ctx, CO_NOT_FOUND, "there is no '%s'; there are %s", key,
             *names != '\0' ? names : "no items");
    return NULL;
}

const char *
co_key(co_context *ctx, co_value *structure, size_t i)
{
    size_t n;

    COI_ENTER(ctx, "key", NULL);
    if (items_of(ctx, structure, &n) == NULL || !coi_is_structure(structure) ||
        structure->u.items.keys == NULL)
        return NULL;
    if (i >= n) {
        coi_fail(ctx, CO_OUT_OF_RANGE, "key %zu of %zu", i, n);
        return NULL;
    }
    return structure->u.items.keys[i + 1];
}

const char *
co_type_name(co_context *ctx, co_value *structure)
{
    COI_ENTER(ctx, "type_name", NULL);
    if (!coi_check_kind(ctx, structure, CO_KIND_NAMED_TUPLE, 2, "structure"))
        return NULL;
    return structure->u.items.type_name;
}

/* An array of the leaves (not references); free with n. */
static co_value **
leaves_of(co_context *ctx, co_value *structure, size_t *n)
{
    co_value **leaves;

    *n = coi_count_leaves(structure);
    leaves = coi_small_alloc(&ctx->heap, (*n + 1) * sizeof(*leaves));
    if (leaves == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu leaves", *n);
    else
        coi_collect_leaves(structure, leaves);
    return leaves;
}

static void
free_leaves(co_context *ctx, co_value **leaves, size_t n)
{
    coi_small_free(&ctx->heap, leaves, (n + 1) * sizeof(*leaves));
}

co_value *
co_flatten(co_context *ctx, co_value *structure)
{
    co_value **leaves, *list;
    size_t     n;

    COI_ENTER(ctx, "flatten", NULL);
    if (!coi_check_value(ctx, structure, 2, "structure") ||
        (leaves = leaves_of(ctx, structure, &n)) == NULL)
        return NULL;
    list = co_list(ctx, leaves, n);
    free_leaves(ctx, leaves, n);
    return list;
}

co_value *
co_pack(co_context *ctx, co_value *like, co_value *leaves)
{
    co_value **items;
    size_t     n, want;

    COI_ENTER(ctx, "pack", NULL);
    if (!coi_check_value(ctx, like, 2, "like") || (items = items_of(ctx, leaves, &n)) == NULL)
        return NULL;
    want = coi_count_leaves(like);
    if (want != n) {
        coi_fail(ctx, CO_VALUE, "argument 3 (leaves) of pack has %zu leaves; the structure has %zu",
                 n, want);
        return NULL;
    }
    return coi_give(ctx, coi_pack(&ctx->heap, like, items, coi_err(ctx)));
}

co_value *
co_map_leaves(co_context *ctx, co_value *structure, co_leaf_fn fn, void *user)
{
    co_value **leaves, *none = NULL, *packed = NULL;
    size_t     n, i;

    COI_ENTER(ctx, "map_leaves", NULL);
    if (!coi_check_value(ctx, structure, 2, "structure"))
        return NULL;
    if (fn == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 3 (fn) of map_leaves is NULL");
        return NULL;
    }
    if ((leaves = leaves_of(ctx, structure, &n)) == NULL)
        return NULL;
    for (i = 0; i < n && ctx->error.code == CO_OK; ++i) {
        leaves[i] = fn(ctx, leaves[i], user);
        if (leaves[i] == NULL && ctx->error.code == CO_OK)
            leaves[i] = none != NULL ? none : (none = co_none(ctx));
    }
    if (ctx->error.code == CO_OK)
        packed = coi_give(ctx, coi_pack(&ctx->heap, structure, leaves, coi_err(ctx)));
    free_leaves(ctx, leaves, n);
    return packed;
}

co_code
co_assert_same_structure(co_context *ctx, co_value *a, co_value *b)
{
    COI_ENTER_CODE(ctx, "assert_same_structure");
    if (!coi_check_value(ctx, a, 2, "a") || !coi_check_value(ctx, b, 3, "b"))
        return ctx->error.code;
    if (coi_same_structure(a, b, CO_VALUE, coi_err(ctx)) != CO_OK)
        return coi_failed(ctx);
    return CO_OK;
}
