/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structures: lists, tuples, named tuples and dicts of values, and per-replica values. The leaves
 * of a structure are in order of position, those of a dict in order of key (GEN-NEST-1). Nesting is
 * limited, so that functions over structures can recurse.
 */
#include "value/kind.h"
#include "base/text.h"
#include "value/value.h"

#include <stdio.h>
#include <string.h>

#define MAX_DEPTH  64
#define MAX_WEIGHT ((uint64_t)1 << 26)
#define PATH_SIZE  256

static co_value *
out_of_memory(coi_heap *heap, co_value *half_made, size_t n, co_error_info *err)
{
    if (half_made != NULL)
        coi_unref(heap, half_made);
    coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for a structure of %zu items", n);
    return NULL;
}

/* Room for n items, in the cell where they fit. */
static co_value **
item_room(coi_heap *heap, co_value **room, size_t n)
{
    co_value **items = room;

    if (n > SIZE_MAX / sizeof(*items) / 2)
        return NULL;
    if (n > COI_INLINE_ITEMS)
        items = coi_small_alloc(heap, n * sizeof(*items));
    if (items != NULL && n > 0)
        memset(items, 0, n * sizeof(*items));
    return items;
}

/* Let position `at` sink to its place in the heap of the first n. */
static void
sink(const char *const *keys, size_t *order, size_t at, size_t n)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        size_t moved = order[at];

        if (child + 1 < n && strcmp(keys[order[child]], keys[order[child + 1]]) < 0)
            ++child;
        if (strcmp(keys[moved], keys[order[child]]) >= 0)
            return;
        order[at] = order[child];
        order[child] = moved;
    }
}

/* A heap sort, because it needs no memory and has no bad cases. */
co_code
coi_sort_keys(const char *const *keys, size_t n, size_t *order, co_error_info *err)
{
    for (size_t i = 0; i < n; ++i) {
        if (keys[i] == NULL)
            return coi_error(err, CO_INVALID_ARGUMENT, "key %zu of %zu is NULL", i, n);
        order[i] = i;
    }
    for (size_t i = n / 2; i > 0; --i)
        sink(keys, order, i - 1, n);
    for (size_t end = n; end > 1; --end) {
        size_t largest = order[0];

        order[0] = order[end - 1];
        order[end - 1] = largest;
        sink(keys, order, 0, end - 1);
    }
    for (size_t i = 1; i < n; ++i)
        if (strcmp(keys[order[i - 1]], keys[order[i]]) == 0)
            return coi_error(err, CO_VALUE_ERROR, "key '%s' is given twice; name every key once",
                             keys[order[i]]);
    return CO_OK;
}

size_t
coi_find_key(const co_value *structure, const char *key)
{
    const char *const *keys = structure->u.items.keys + 1;
    size_t             low = 0, high = structure->u.items.n;
    bool               sorted = coi_kind_of(structure)->has_sorted_keys;

    for (size_t i = 0; !sorted && i < high; ++i)
        if (strcmp(keys[i], key) == 0)
            return i;
    while (sorted && low < high) {
        size_t middle = low + (high - low) / 2;
        int    sign = strcmp(key, keys[middle]);

        if (sign == 0)
            return middle;
        if (sign < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return SIZE_MAX;
}

/* The block of keys: its size, the pointers, the texts, the type name. */
static bool
copy_keys(coi_heap *heap, co_value *value, size_t n, const char *const *keys, const char *type_name,
          const size_t *order)
{
    size_t nbytes = (n + 1) * sizeof(char *) + (type_name != NULL ? strlen(type_name) + 1 : 0);
    char  *at;

    for (size_t i = 0; i < n; ++i)
        nbytes += strlen(keys[i]) + 1;
    value->u.items.keys = coi_small_alloc(heap, nbytes);
    if (value->u.items.keys == NULL)
        return false;
    memcpy(value->u.items.keys, &nbytes, sizeof(nbytes));
    at = (char *)(value->u.items.keys + n + 1);
    for (size_t i = 0; i < n; ++i) {
        const char *key = keys[order != NULL ? order[i] : i];
        size_t      length = strlen(key) + 1;

        value->u.items.keys[i + 1] = memcpy(at, key, length);
        at += length;
    }
    if (type_name != NULL)
        value->u.items.type_name = memcpy(at, type_name, strlen(type_name) + 1);
    return true;
}

co_value *
coi_structure_new(coi_heap *heap, co_kind kind, size_t n, const char *const *keys,
                  const char *type_name, const size_t *order, co_error_info *err)
{
    co_value *value = coi_value_new(heap, kind);

    if (value == NULL)
        return out_of_memory(heap, NULL, n, err);
    value->holds_tensors_alone = false;
    value->u.items.n = 0; /* until the room is there */
    value->u.items.keys = NULL;
    value->u.items.type_name = NULL;
    value->u.items.items = item_room(heap, value->u.items.room, n);
    if (value->u.items.items == NULL) {
        value->u.items.items = value->u.items.room;
        return out_of_memory(heap, value, n, err);
    }
    value->u.items.n = n;
    if (keys != NULL && !copy_keys(heap, value, n, keys, type_name, order))
        return out_of_memory(heap, value, n, err);
    return value;
}

co_value *
coi_structure_like(coi_heap *heap, const co_value *like, co_error_info *err)
{
    const char *const *keys = like->u.items.keys != NULL ? like->u.items.keys + 1 : NULL;

    return coi_structure_new(heap, (co_kind)like->kind, like->u.items.n, keys,
                             like->u.items.type_name, NULL, err);
}

co_value *
coi_per_replica_new(coi_heap *heap, co_kind kind, size_t n, co_error_info *err)
{
    co_value *value = coi_value_new(heap, kind);

    if (value == NULL)
        return out_of_memory(heap, NULL, n, err);
    value->u.per_replica.n = 0;
    value->u.per_replica.step_examples = -1;
    value->u.per_replica.items = item_room(heap, value->u.per_replica.room, n);
    if (value->u.per_replica.items == NULL) {
        value->u.per_replica.items = value->u.per_replica.room;
        return out_of_memory(heap, value, n, err);
    }
    value->u.per_replica.n = n;
    return value;
}

void
coi_items_free(coi_heap *heap, co_value **items, size_t n, co_value **room)
{
    for (size_t i = 0; i < n; ++i)
        coi_unref(heap, items[i]);
    if (items != room)
        coi_small_free(heap, items, n * sizeof(*items));
}

static bool
has_items(const co_value *value)
{
    return coi_kind_of(value)->items != NULL;
}

co_code
coi_structure_seal(co_value *structure, co_error_info *err)
{
    coi_values all = coi_items_of(structure);
    uint8_t    depth = 0;
    uint64_t   weight = 1;
    bool       tensors_alone = coi_is_structure(structure);

    for (size_t i = 0; i < all.n && weight <= MAX_WEIGHT; ++i) {
        tensors_alone = tensors_alone && coi_holds_tensors_alone(all.items[i]);
        weight += has_items(all.items[i]) ? all.items[i]->weight : 1;
        if (has_items(all.items[i]) && all.items[i]->flags > depth)
            depth = all.items[i]->flags;
    }
    if (depth >= MAX_DEPTH)
        return coi_error(err, CO_VALUE_ERROR, "a structure nests deeper than %d levels", MAX_DEPTH);
    if (weight > MAX_WEIGHT)
        return coi_error(err, CO_VALUE_ERROR,
                         "a structure holds more than %llu values, those that are in it several "
                         "times counted as often",
                         (unsigned long long)MAX_WEIGHT);
    structure->flags = (uint8_t)(depth + 1);
    structure->weight = (uint32_t)weight;
    structure->holds_tensors_alone = tensors_alone;
    return CO_OK;
}

size_t
coi_count_leaves(const co_value *structure)
{
    size_t count = 0;

    if (!coi_is_structure(structure))
        return 1;
    for (size_t i = 0; i < structure->u.items.n; ++i)
        count += coi_count_leaves(structure->u.items.items[i]);
    return count;
}

static co_value **
collect(co_value *structure, co_value **out)
{
    if (!coi_is_structure(structure)) {
        *out = structure;
        return out + 1;
    }
    for (size_t i = 0; i < structure->u.items.n; ++i)
        out = collect(structure->u.items.items[i], out);
    return out;
}

void
coi_collect_leaves(co_value *structure, co_value **out)
{
    collect(structure, out);
}

static co_value *
pack_from(coi_heap *heap, const co_value *like, co_value *const **leaves, co_error_info *err)
{
    co_value *packed;

    if (!coi_is_structure(like)) {
        co_value *leaf = *(*leaves)++;

        coi_ref(leaf);
        return leaf;
    }
    packed = coi_structure_like(heap, like, err);
    if (packed == NULL)
        return NULL;
    for (size_t i = 0; i < like->u.items.n; ++i) {
        packed->u.items.items[i] = pack_from(heap, like->u.items.items[i], leaves, err);
        if (packed->u.items.items[i] == NULL) {
            coi_unref(heap, packed);
            return NULL;
        }
    }
    if (coi_structure_seal(packed, err) != CO_OK) {
        coi_unref(heap, packed);
        return NULL;
    }
    return packed;
}

co_value *
coi_pack(coi_heap *heap, const co_value *like, co_value *const *leaves, co_error_info *err)
{
    return pack_from(heap, like, &leaves, err);
}

void
coi_step_into(char *path, size_t capacity, const co_value *structure, size_t i)
{
    size_t at = strlen(path);

    if (capacity - at < 4) /* full */
        return;
    if (structure->u.items.keys != NULL)
        coi_text_line(path + at, capacity - at, "['%s']", structure->u.items.keys[i + 1]);
    else
        coi_text_line(path + at, capacity - at, "[%zu]", i);
}

static co_code
differ(const char *path, co_code code, co_error_info *err, const char *a, const char *b)
{
    return coi_error(err, code, "structures differ at %s: %s against %s",
                     *path != '\0' ? path : "the top", a, b);
}

static co_code
compare(const co_value *a, const co_value *b, char *path, co_code code, co_error_info *err)
{
    size_t length = strlen(path);
    char   left[64], right[64];

    if (!coi_is_structure(a) && !coi_is_structure(b))
        return CO_OK;
    if (a->kind != b->kind)
        return differ(path, code, err, co_kind_name((co_kind)a->kind),
                      co_kind_name((co_kind)b->kind));
    if (a->u.items.n != b->u.items.n) {
        snprintf(left, sizeof(left), "%s of %zu item%s", co_kind_name((co_kind)a->kind),
                 a->u.items.n, COI_S(a->u.items.n));
        snprintf(right, sizeof(right), "%s of %zu item%s", co_kind_name((co_kind)b->kind),
                 b->u.items.n, COI_S(b->u.items.n));
        return differ(path, code, err, left, right);
    }
    for (size_t i = 0; i < a->u.items.n; ++i) {
        co_code rc;

        if (a->u.items.keys != NULL &&
            strcmp(a->u.items.keys[i + 1], b->u.items.keys[i + 1]) != 0) {
            coi_text_line(left, sizeof(left), "key '%s'", a->u.items.keys[i + 1]);
            coi_text_line(right, sizeof(right), "key '%s'", b->u.items.keys[i + 1]);
            return differ(path, code, err, left, right);
        }
        coi_step_into(path, PATH_SIZE, a, i);
        rc = compare(a->u.items.items[i], b->u.items.items[i], path, code, err);
        path[length] = '\0';
        if (rc != CO_OK)
            return rc;
    }
    return CO_OK;
}

co_code
coi_same_structure(const co_value *a, const co_value *b, co_code code, co_error_info *err)
{
    char path[PATH_SIZE] = "";

    return compare(a, b, path, code, err);
}
