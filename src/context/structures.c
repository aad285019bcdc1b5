/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public calls on structures: making, looking, flattening, packing, mapping.
 */
#include "base/text.h"
#include "context/context.h"

#include <stdio.h>
#include <string.h>

static bool
is_item(co_context *ctx, const co_value *item, size_t i, const char *what)
{
    char name[120];

    if (item != NULL && coi_is_live(&ctx->heap, item))
        return true;
    snprintf(name, sizeof(name), "%s %zu of %s", what, i, ctx->call);
    if (item == NULL)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "%s is NULL; co_none makes a value that stands for nothing", name);
    else
        coi_refuse_handle(ctx, item, &coi_value_class, CO_INVALID_ARGUMENT, name);
    return false;
}

co_value *
coi_fill_items(co_context *ctx, co_value *made, co_value **places, co_value *const *items, size_t n,
               const size_t *order, const char *what)
{
    for (size_t i = 0; i < n; ++i) {
        size_t at = order != NULL ? order[i] : i;

        if (!is_item(ctx, items[at], at, what)) {
            coi_unref(&ctx->heap, made);
            return NULL;
        }
        coi_ref(items[at]);
        places[i] = items[at];
    }
    if (coi_structure_seal(made, coi_err(ctx)) == CO_OK)
        return coi_own(ctx, made);
    coi_unref(&ctx->heap, made);
    return coi_give(ctx, NULL);
}

static bool
check_array(co_context *ctx, const void *array, size_t n, int position, const char *name)
{
    if (array != NULL || n == 0)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "argument %d (%s) of %s is NULL for %zu item%s; it must point to %s", position, name,
             ctx->call, n, COI_S(n), n == 1 ? "it" : "them");
    return false;
}

/* A structure of any kind; dicts and named tuples have keys, and an order to put them in. */
static co_value *
make_structure(co_context *ctx, co_kind kind, co_value *const *items, size_t n,
               const char *const *keys, const char *type, const size_t *order)
{
    co_value *made = coi_structure_new(&ctx->heap, kind, n, keys, type, order, coi_err(ctx));

    if (made == NULL)
        return coi_give(ctx, NULL);
    return coi_fill_items(ctx, made, made->u.items.items, items, n, order, "item");
}

co_value *
co_list(co_context *ctx, co_value *const *items, size_t n)
{
    COI_ENTER(ctx, "list", NULL);
    return check_array(ctx, items, n, 2, "items")
               ? make_structure(ctx, CO_KIND_LIST, items, n, NULL, NULL, NULL)
               : NULL;
}

co_value *
co_tuple(co_context *ctx, co_value *const *items, size_t n)
{
    COI_ENTER(ctx, "tuple", NULL);
    return check_array(ctx, items, n, 2, "items")
               ? make_structure(ctx, CO_KIND_TUPLE, items, n, NULL, NULL, NULL)
               : NULL;
}

co_value *
co_no_args(co_context *ctx)
{
    COI_ENTER(ctx, "no_args", NULL);
    return make_structure(ctx, CO_KIND_TUPLE, NULL, 0, NULL, NULL, NULL);
}

/* Sorting finds keys that are missing or come twice; only dicts take the order over. */
static co_value *
make_keyed(co_context *ctx, co_kind kind, const char *const *keys, const char *type,
           co_value *const *items, size_t n)
{
    static const char *const no_keys[] = { "" };
    size_t                   few[32], *order = few;
    co_value                *made;

    if (n > 32 &&
        (order = n <= SIZE_MAX / sizeof(*order) ? coi_small_alloc(&ctx->heap, n * sizeof(*order))
                                                : NULL) == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %s of %zu items", coi_a_kind((int)kind),
                 n);
        return NULL;
    }
    if (coi_sort_keys(keys, n, order, coi_err(ctx)) == CO_OK)
        made = make_structure(ctx, kind, items, n, n > 0 ? keys : no_keys, type,
                              coi_kinds[kind]->has_sorted_keys ? order : NULL);
    else
        made = coi_give(ctx, NULL);
    if (order != few)
        coi_small_free(&ctx->heap, order, n * sizeof(*order));
    return made;
}

co_value *
co_named_tuple(co_context *ctx, const char *type, const char *const *fields, co_value *const *items,
               size_t n)
{
    COI_ENTER(ctx, "named_tuple", NULL);
    if (type == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (type) of named_tuple is NULL; give a name");
        return NULL;
    }
    if (!check_array(ctx, fields, n, 3, "fields") || !check_array(ctx, items, n, 4, "items"))
        return NULL;
    return make_keyed(ctx, CO_KIND_NAMED_TUPLE, fields, type, items, n);
}

co_value *
co_dict(co_context *ctx, const char *const *keys, co_value *const *items, size_t n)
{
    COI_ENTER(ctx, "dict", NULL);
    if (!check_array(ctx, keys, n, 2, "keys") || !check_array(ctx, items, n, 3, "items"))
        return NULL;
    return make_keyed(ctx, CO_KIND_DICT, keys, NULL, items, n);
}

/* The items of a value that has some, argument 2 of the calls that use this. */
static co_value *const *
items_of(co_context *ctx, const co_value *value, size_t *n)
{
    coi_values all;

    if (!coi_check_value(ctx, value, 2, "structure"))
        return NULL;
    if (coi_kind_of(value)->items != NULL) {
        all = coi_kind_of(value)->items(value);
        *n = all.n;
        return all.items;
    }
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument 2 (structure) of %s is %s, which has no items; give a list, tuple or dict%s",
             ctx->call, coi_a_kind(value->kind),
             value->kind == CO_KIND_TENSOR ? " (co_slice takes a part of a tensor)" : "");
    return NULL;
}

size_t
co_num_items(co_context *ctx, const co_value *structure)
{
    size_t n = 0;

    COI_ENTER(ctx, "num_items", 0);
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
    size_t           n;
    co_value *const *items;

    COI_ENTER(ctx, "at", NULL);
    items = items_of(ctx, structure, &n);
    if (items == NULL)
        return NULL;
    if (coi_is_per_replica(structure) && coi_in_replica(ctx) &&
        ctx->mode.num_replicas > 1) { /* DV-USE-4 */
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "a per-replica value is taken apart inside a step; use it as it is, which gives the "
            "part of this replica, or take it apart outside");
        return NULL;
    }
    if (i >= n) {
        coi_fail(ctx, CO_OUT_OF_RANGE, "argument 3 (i) of at is %zu; the %s has %zu item%s, from 0",
                 i, co_kind_name((co_kind)structure->kind), n, COI_S(n));
        return NULL;
    }
    return borrow_item(ctx, items[i]);
}

/* "'a', 'b', 'c'", cut when long. */
static void
list_keys(const co_value *structure, char *out, size_t capacity)
{
    coi_prose list = { out, capacity, 0 };

    out[0] = '\0';
    for (size_t i = 0; i < structure->u.items.n && list.at < capacity; ++i)
        coi_put(&list, "%s'%s'", i > 0 ? ", " : "", structure->u.items.keys[i + 1]);
    coi_put_end(&list);
}

co_value *
co_get(co_context *ctx, co_value *structure, const char *key)
{
    char   names[400];
    size_t at;

    COI_ENTER(ctx, "get", NULL);
    if (!coi_check_value(ctx, structure, 2, "structure"))
        return NULL;
    if (!coi_is_structure(structure) || structure->u.items.keys == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 2 (structure) of get is %s; it must be a dict or a named tuple",
                 coi_a_kind(structure->kind));
        return NULL;
    }
    if (key == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 3 (key) of get is NULL");
        return NULL;
    }
    at = coi_find_key(structure, key);
    if (at != SIZE_MAX)
        return borrow_item(ctx, structure->u.items.items[at]);
    list_keys(structure, names, sizeof(names));
    coi_fail(ctx, CO_NOT_FOUND, "there is no '%s'; there are %s", key,
             *names != '\0' ? names : "no items");
    return NULL;
}

const char *
co_key(co_context *ctx, const co_value *structure, size_t i)
{
    size_t n;

    COI_ENTER(ctx, "key", NULL);
    if (items_of(ctx, structure, &n) == NULL || !coi_is_structure(structure) ||
        structure->u.items.keys == NULL)
        return NULL;
    if (i >= n) {
        coi_fail(ctx, CO_OUT_OF_RANGE, "argument 3 (i) of key is %zu; there %s %zu key%s, from 0",
                 i, n == 1 ? "is" : "are", n, COI_S(n));
        return NULL;
    }
    return structure->u.items.keys[i + 1];
}

const char *
co_named_tuple_name(co_context *ctx, const co_value *structure)
{
    COI_ENTER(ctx, "named_tuple_name", NULL);
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
    size_t want;

    COI_ENTER(ctx, "pack", NULL);
    if (!coi_check_value(ctx, like, 2, "like") || !coi_check_value(ctx, leaves, 3, "leaves"))
        return NULL;
    if (!coi_is_sequence(leaves)) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 3 (leaves) of pack is %s; it must be a list or tuple",
                 coi_a_kind(leaves->kind));
        return NULL;
    }
    want = coi_count_leaves(like);
    if (want != leaves->u.items.n) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 3 (leaves) of pack has %zu item%s; the structure has %zu lea%s",
                 leaves->u.items.n, COI_S(leaves->u.items.n), want, want == 1 ? "f" : "ves");
        return NULL;
    }
    return coi_give(ctx, coi_pack(&ctx->heap, like, leaves->u.items.items, coi_err(ctx)));
}

co_value *
coi_map_leaves(co_context *ctx, co_value *structure, co_leaf_fn fn, void *user)
{
    co_value  **leaves, *none = NULL, *packed = NULL;
    const char *call = ctx->call; /* not that of what a leaf before this one needed */
    size_t      n, i;

    if ((leaves = leaves_of(ctx, structure, &n)) == NULL)
        return NULL;
    coi_ref(structure); /* the function may release it */
    for (i = 0; i < n && ctx->error.code == CO_OK; ++i) {
        size_t floor = coi_function_begin(ctx);

        ctx->call = call;
        leaves[i] = fn(ctx, leaves[i], user);
        coi_function_end(ctx, floor);
        if (ctx->error.code != CO_OK)
            break;
        if (leaves[i] == NULL)
            leaves[i] = none != NULL ? none : (none = co_none(ctx));
        else
            coi_check_result(ctx, leaves[i], call, "function of map_structure");
    }
    ctx->call = call;
    if (ctx->error.code == CO_OK)
        packed = coi_give(ctx, coi_pack(&ctx->heap, structure, leaves, coi_err(ctx)));
    free_leaves(ctx, leaves, n);
    coi_unref(&ctx->heap, structure);
    return packed;
}

co_value *
co_map_structure(co_context *ctx, co_value *structure, co_leaf_fn fn, void *user)
{
    COI_ENTER(ctx, "map_structure", NULL);
    if (!coi_check_value(ctx, structure, 2, "structure"))
        return NULL;
    if (fn == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (fn) of map_structure is NULL; it must be a function");
        return NULL;
    }
    return coi_map_leaves(ctx, structure, fn, user);
}

co_code
co_assert_same_structure(co_context *ctx, const co_value *a, const co_value *b)
{
    COI_ENTER_CODE(ctx, "assert_same_structure");
    if (!coi_check_value(ctx, a, 2, "a") || !coi_check_value(ctx, b, 3, "b"))
        return ctx->error.code;
    if (coi_same_structure(a, b, CO_VALUE_ERROR, coi_err(ctx)) != CO_OK)
        return coi_failed(ctx);
    return CO_OK;
}
