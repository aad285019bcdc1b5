/* SPDX-License-Identifier: Apache-2.0 */
/* Structures: order of leaves, packing, mapping, paths in errors, and structures made to hurt. */
#include "test.h"

/* {'b': [1, (2,)], 'a': none, 'c': Point(y=3, x=4)} */
static co_value *
sample(co_context *ctx)
{
    static const char *const keys[] = { "b", "a", "c" }, *const fields[] = { "y", "x" };
    co_value *two = co_int(ctx, 2), *list[2] = { co_int(ctx, 1), co_tuple(ctx, &two, 1) };
    co_value *point[2] = { co_int(ctx, 3), co_int(ctx, 4) };
    co_value *items[3] = { co_list(ctx, list, 2), co_none(ctx),
                           co_named_tuple(ctx, "Point", fields, point, 2) };

    return co_dict(ctx, keys, items, 3);
}

CO_TEST(leaves_are_in_order_of_position_and_key, "GEN-NEST-1")
{
    co_value *leaves = co_flatten(ctx, sample(ctx));

    CO_EXPECT_INT(co_num_items(ctx, leaves), 5);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, leaves, 0)), CO_KIND_NONE); /* a null is a leaf */
    for (int i = 1; i <= 4; ++i)
        CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, leaves, (size_t)i)), i);
    CO_EXPECT_INT(co_num_items(ctx, co_flatten(ctx, co_no_args(ctx))), 0);
    CO_EXPECT_INT(co_num_items(ctx, co_flatten(ctx, co_list(ctx, NULL, 0))), 0);
    CO_EXPECT_INT(co_num_items(ctx, co_flatten(ctx, co_dict(ctx, NULL, NULL, 0))), 0);
    CO_EXPECT_INT(co_num_items(ctx, co_flatten(ctx, co_named_tuple(ctx, "E", NULL, NULL, 0))), 0);
    CO_EXPECT_INT(co_num_items(ctx, co_flatten(ctx, co_int(ctx, 1))), 1); /* a leaf alone */
}

CO_TEST(items_are_found_by_position_and_name, "")
{
    co_value *map = sample(ctx), *point = co_get(ctx, map, "c");

    CO_EXPECT_INT(co_num_items(ctx, map), 3);
    CO_EXPECT_STR(co_key(ctx, map, 0), "a");
    CO_EXPECT_STR(co_key(ctx, map, 2), "c");
    CO_EXPECT_STR(co_key(ctx, point, 0), "y"); /* fields keep their order */
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, point, "x")), 4);
    CO_EXPECT_STR(co_named_tuple_name(ctx, point), "Point");
    CO_EXPECT_PTR(co_get(ctx, map, "b"), co_at(ctx, map, 1));
    CO_EXPECT_NULL(co_key(ctx, co_get(ctx, map, "b"), 0)); /* a list has none, which is no error */
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_get(ctx, map, "d"));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "there are 'a', 'b', 'c'");
    CO_EXPECT_NULL(co_get(ctx, co_dict(ctx, NULL, NULL, 0), "d"));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "no items");
    CO_EXPECT_NULL(co_at(ctx, map, 3));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "3 items");
    CO_EXPECT_NULL(co_key(ctx, map, 3));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "3 keys");
    CO_EXPECT_NULL(co_get(ctx, co_get(ctx, map, "b"), "x"));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "list");
    CO_EXPECT_NULL(co_named_tuple_name(ctx, map));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dict");
}

CO_TEST(maps_are_sorted_whatever_their_size, "GEN-NEST-1")
{
    enum { N = 3000 };
    static char        names[N][16];
    static const char *keys[N];
    static co_value   *items[N];
    co_value          *map;
    uint32_t           state = 1;

    for (int i = 0; i < N; ++i) {
        snprintf(names[i], sizeof(names[i]), "k%05d", i);
        keys[i] = names[i];
    }
    for (int i = N - 1; i > 0; --i) { /* shuffle */
        int         other = (int)((state = state * 1664525u + 1013904223u) >> 8) % (i + 1);
        const char *key = keys[i];

        keys[i] = keys[other];
        keys[other] = key;
    }
    for (int i = 0; i < N; ++i)
        items[i] = co_int(ctx, atoi(keys[i] + 1));
    map = co_dict(ctx, keys, items, N);
    for (int i = 0; i < N; ++i) {
        CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, map, (size_t)i)), i);
        CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, map, names[i])), i);
    }
    keys[1000] = keys[2000];
    CO_EXPECT_NULL(co_dict(ctx, keys, items, N));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "twice");
    CO_EXPECT_NULL(co_named_tuple(ctx, "T", keys, items, N));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "twice");
}

CO_TEST(keys_are_copied, "")
{
    char        key[] = "first", type[] = "Type";
    const char *keys[1] = { key };
    co_value   *one = co_int(ctx, 1), *map = co_dict(ctx, keys, &one, 1);
    co_value   *tuple = co_named_tuple(ctx, type, keys, &one, 1);

    memset(key, 'x', 5);
    memset(type, 'x', 4);
    CO_EXPECT_STR(co_key(ctx, map, 0), "first");
    CO_EXPECT_STR(co_key(ctx, tuple, 0), "first");
    CO_EXPECT_STR(co_named_tuple_name(ctx, tuple), "Type");
}

CO_TEST(packing_puts_leaves_in_place, "GEN-NEST-1")
{
    co_value *like = sample(ctx), *numbers[5], *packed, *few;
    char      text[200];

    for (int i = 0; i < 5; ++i)
        numbers[i] = co_int(ctx, 10 + i);
    packed = co_pack(ctx, like, co_list(ctx, numbers, 5));
    co_format(ctx, packed, text, sizeof(text));
    CO_EXPECT_STR(text, "{'a': 10, 'b': [11, (12,)], 'c': Point(y=13, x=14)}");
    CO_EXPECT_CODE(co_assert_same_structure(ctx, like, packed), CO_OK);
    CO_EXPECT_PTR(co_at(ctx, packed, 0), numbers[0]);
    CO_EXPECT_PTR(co_pack(ctx, numbers[0], co_tuple(ctx, &numbers[3], 1)), numbers[3]);
    few = co_list(ctx, numbers, 4);
    CO_EXPECT_NULL(co_pack(ctx, like, few));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "4 items; the structure has 5 leaves");
    CO_EXPECT_NULL(co_pack(ctx, like, numbers[0]));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "list or tuple");
}

static co_value *
add_ten(co_context *ctx, co_value *leaf, void *user)
{
    int *calls = user;

    if (++*calls == 100)
        return co_fail(ctx, CO_ABORTED, "enough"), NULL;
    return co_value_kind(leaf) == CO_KIND_INT ? co_int(ctx, co_item_int(ctx, leaf) + 10) : NULL;
}

CO_TEST(mapping_replaces_leaves_in_order, "GEN-NEST-1 C-FN-1")
{
    int       calls = 0;
    char      text[200];
    co_value *mapped = co_map_structure(ctx, sample(ctx), add_ten, &calls);

    co_format(ctx, mapped, text, sizeof(text));
    CO_EXPECT_STR(text, "{'a': none, 'b': [11, (12,)], 'c': Point(y=13, x=14)}");
    CO_EXPECT_INT(calls, 5);
    CO_EXPECT_INT(co_item_int(ctx, co_map_structure(ctx, co_int(ctx, 1), add_ten, &calls)), 11);
    calls = 97;
    CO_EXPECT_NULL(co_map_structure(ctx, sample(ctx), add_ten, &calls));
    CO_EXPECT_INT(calls, 100); /* the rest is not called */
    CO_EXPECT_ERROR(ctx, CO_ABORTED, "enough");
}

CO_TEST(differences_are_named_by_path, "GEN-NEST-1")
{
    static const char *const ab[] = { "a", "b" }, *const ac[] = { "a", "c" };
    co_value *one = co_int(ctx, 1), *ones[3] = { one, one, one };
    co_value *list2 = co_list(ctx, ones, 2), *list3 = co_list(ctx, ones, 3);
    co_value *in_list2[2] = { one, list2 }, *in_list3[2] = { one, list3 };
    const struct {
        co_value   *a, *b;
        const char *part;
    } cases[] = {
        { list2, list3, "at the top" },
        { list2, one, "list against host integer" },
        { list2, co_tuple(ctx, ones, 2), "list against tuple" },
        { co_list(ctx, in_list2, 2), co_list(ctx, in_list3, 2), "at [1]: list of 2 items" },
        { co_dict(ctx, ab, in_list2, 2), co_dict(ctx, ab, in_list3, 2), "at ['b']" },
        { co_dict(ctx, ab, ones, 2), co_dict(ctx, ac, ones, 2), "key 'b' against key 'c'" },
    };

    CO_EXPECT_CODE(co_assert_same_structure(ctx, one, co_none(ctx)),
                   CO_OK); /* leaves of any kind */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        CO_EXPECT_CODE(co_assert_same_structure(ctx, cases[i].a, cases[i].b), CO_VALUE_ERROR);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, cases[i].part);
    }
}

/* More items than fit in a cell. */
CO_TEST(long_structures_hold_their_items, "")
{
    co_value *items[200];

    for (int i = 0; i < 200; ++i)
        items[i] = co_int(ctx, i);
    for (size_t n = 0; n < 200; n = n < 20 ? n + 1 : n + 37) {
        co_value *list = co_list(ctx, items, n), *bundle;

        CO_EXPECT_INT(co_num_items(ctx, list), n);
        for (size_t i = 0; i < n; ++i)
            CO_EXPECT_PTR(co_at(ctx, list, i), items[i]);
        if (n == 0)
            continue;
        bundle = co_per_replica_value(ctx, items, n);
        CO_EXPECT_INT(co_num_items(ctx, bundle), n);
        CO_EXPECT_PTR(co_at(ctx, bundle, n - 1), items[n - 1]);
        CO_EXPECT_INT(co_num_items(ctx, co_flatten(ctx, bundle)), 1);
    }
}

/* Deep enough to end the stack of who walks it, were it allowed. */
CO_TEST(nesting_has_a_limit, "")
{
    co_value *deep = co_int(ctx, 1), *bundle = deep;
    int       levels = 0, bundles = 0;

    while (co_ok(ctx) && levels < 100000) {
        deep = co_list(ctx, &deep, 1);
        levels += deep != NULL;
    }
    CO_EXPECT_INT(levels, 64);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deeper than 64");
    /* Bundles count too, alone and between lists. */
    while (co_ok(ctx) && bundles < 100000) {
        bundle = bundles % 2 == 0 ? co_per_replica_value(ctx, &bundle, 1)
                                  : co_tuple(ctx, &bundle, 1);
        bundles += bundle != NULL;
    }
    CO_EXPECT_INT(bundles, 64);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deeper than 64");
}

/* Each level holds the one below twice: 2^60 leaves in 60 cells would keep a walk busy for
 * years. */
CO_TEST(structures_that_repeat_themselves_have_a_limit, "")
{
    co_value *twice = co_int(ctx, 1), *empty = co_no_args(ctx);
    int       levels = 0;

    while (co_ok(ctx) && levels < 60) {
        co_value *pair[2] = { twice, twice };

        twice = co_list(ctx, pair, 2);
        levels += twice != NULL;
    }
    CO_EXPECT_LESS(levels, 27);
    CO_EXPECT_MORE(levels, 20);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "several times");
    for (levels = 0; co_ok(ctx) && levels < 60;) { /* without a single leaf */
        co_value *pair[2] = { empty, empty };

        empty = co_list(ctx, pair, 2);
        levels += empty != NULL;
    }
    CO_EXPECT_LESS(levels, 27);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "several times");
}

CO_TEST(bundles_need_components, "")
{
    co_value *parts[2] = { co_int(ctx, 1), NULL };

    CO_EXPECT_NULL(co_per_replica_value(ctx, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "at least one");
    CO_EXPECT_NULL(co_mirrored_value(ctx, NULL, 2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "components");
    CO_EXPECT_NULL(co_mirrored_value(ctx, parts, 2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "component 1 of mirrored_value is NULL");
}

static void
expect_spec(co_context *ctx, co_value *spec, co_dtype dtype, int ndim)
{
    CO_EXPECT_INT(co_value_kind(spec), CO_KIND_SPEC);
    CO_EXPECT_INT(co_value_dtype(ctx, spec), dtype);
    CO_EXPECT_INT(co_value_ndim(ctx, spec), ndim);
}

CO_TEST(values_have_types, "DV-SPEC-1")
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3)), *y = co_scalar_int64(ctx, 1);
    co_value *v = co_variable(ctx, x, NULL), *none = co_none(ctx);
    co_value *parts[] = { x, y }, *pairs[] = { co_args(ctx, x, y), co_args(ctx, y, x) };
    co_value *spec = co_value_spec(ctx, co_per_replica_value(ctx, parts, 2)), *slices, *bad[2];

    CO_EXPECT_INT(co_value_kind(spec), CO_KIND_PER_REPLICA); /* one tensor spec per component */
    CO_EXPECT_INT(co_num_items(ctx, spec), 2);
    expect_spec(ctx, co_at(ctx, spec, 0), CO_FLOAT32, 2);
    CO_EXPECT_INT(co_value_dim(ctx, co_at(ctx, spec, 0), 1), 3);
    expect_spec(ctx, co_at(ctx, spec, 1), CO_INT64, 0);
    spec = co_value_spec(ctx, co_mirrored_value(ctx, pairs, 2));
    expect_spec(ctx, co_at(ctx, co_at(ctx, spec, 1), 1), CO_FLOAT32, 2);
    spec = co_value_spec(ctx, co_args(ctx, v, co_int(ctx, 1), co_float(ctx, 1), none, spec));
    expect_spec(ctx, co_at(ctx, spec, 0), CO_FLOAT32, 2);
    expect_spec(ctx, co_at(ctx, spec, 1), CO_INT32, 0);
    expect_spec(ctx, co_at(ctx, spec, 2), CO_FLOAT32, 0);
    CO_EXPECT_PTR(co_at(ctx, spec, 3), none);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, spec, 4)), CO_KIND_MIRRORED); /* a spec of specs */
    slices = co_slices(ctx, x, co_ones(ctx, CO_INT64, CO_SHAPE(2)), NULL);
    bad[0] = x;
    bad[1] = slices;
    CO_EXPECT_NULL(co_value_spec(ctx, co_per_replica_value(ctx, bad, 2)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "slices");
    CO_EXPECT_NULL(co_value_spec(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "value");
}

static bool
types_in_little_memory(co_context *ctx)
{
    co_value *parts[] = { co_int(ctx, 1), co_float(ctx, 1) };

    return co_value_spec(ctx, co_args(ctx, co_per_replica_value(ctx, parts, 2), parts[0])) != NULL;
}

CO_TEST_BARE(types_survive_want_of_memory, "DV-SPEC-1")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, types_in_little_memory);
}

static co_value *
take_apart(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_at(ctx, user, 0);
}

CO_TEST(a_bundle_has_items_but_no_keys, "DV-USE-4")
{
    co_value *x = co_int(ctx, 7), *bundle = co_per_replica_value(ctx, &x, 1);
    co_value *r = co_run(ctx, co_one_device_strategy(ctx, NULL), take_apart, co_no_args(ctx),
                         bundle);

    CO_EXPECT_PTR(co_at(ctx, bundle, 0), x);
    CO_EXPECT_NULL(co_key(ctx, bundle, 0));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_PTR(r, x); /* alone, a replica may take it apart too */
}
