/* SPDX-License-Identifier: Apache-2.0 */
/* tf.Example: decoded whole, encoded and decoded again, and parsed by a description, alone and in a
 * batch. */
#include "files.h"

/* A feature without a list is none, which cannot be encoded again. */
static bool
has_none(co_context *ctx, co_value *map)
{
    for (size_t i = 0; i < co_num_items(ctx, map); ++i)
        if (co_value_kind(co_at(ctx, map, i)) == CO_KIND_NONE)
            return true;
    return false;
}

/* By features of every kind, alone and together, with and without what stands for missing ones. The
 * example in the middle of the batch has none of them. */
static void
parse(co_context *ctx, co_value *bytes, const uint8_t *data, size_t size, bool has_missing)
{
    static const int64_t     two[] = { 2 }, ids[] = { -1, -2 };
    static const float       half[] = { 0.5F };
    static const char *const words[] = { "pad", "" };
    co_value                *id = co_tensor(ctx, CO_INT64, NULL, 0, ids);
    co_value                *both = co_tensor(ctx, CO_INT64, two, 1, ids);
    co_value                *word = co_tensor(ctx, CO_STRING, NULL, 0, words);
    co_value                *name = co_tensor(ctx, CO_STRING, two, 1, words);
    co_value                *number = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1), half);
    co_value                *missing[] = { id, word, number, id, name, both };
    co_feature               features[] = {
                      { "a", CO_FEATURE_SEQUENCE, CO_INT64, NULL, 0, NULL },
                      { "b", CO_FEATURE_SEQUENCE, CO_STRING, two, 1, NULL },
                      { "", CO_FEATURE_SEQUENCE, CO_FLOAT32, two, 1, NULL },
                      { "id", CO_FEATURE_FIXED, CO_INT64, NULL, 0, NULL },
                      { "name", CO_FEATURE_FIXED, CO_STRING, two, 1, NULL },
                      { "pair", CO_FEATURE_FIXED, CO_INT64, two, 1, NULL },
    };
    const void *const texts[] = { data, "", data };
    const size_t      lengths[] = { size, 0, size };
    co_value         *batch = co_tensor_bytes(ctx, CO_SHAPE(3), texts, lengths), *map;

    for (size_t k = 0; k < 6; ++k) {
        if (has_missing)
            features[k].missing = missing[k];
        co_parse_example(ctx, bytes, &features[k], 1);
        fuzz_clear(ctx, CO_INVALID_ARGUMENT, CO_OK);
        map = co_parse_example(ctx, batch, &features[k], 1);
        if (map != NULL && k == 0) {
            co_value      *all = co_at(ctx, map, 0);
            const int64_t *row = co_value_data(ctx, all);
            int64_t        n = co_value_num_elements(ctx, all) / 3;

            for (int64_t i = n; i < 2 * n; ++i)
                FUZZ_REQUIRE(row[i] == (has_missing ? -1 : 0));
        }
        fuzz_clear(ctx, CO_INVALID_ARGUMENT, CO_OK);
    }
    co_parse_example(ctx, bytes, features, 6);
    fuzz_clear(ctx, CO_INVALID_ARGUMENT, CO_OK);
    co_parse_example(ctx, batch, features, 6);
    fuzz_clear(ctx, CO_INVALID_ARGUMENT, CO_OK);
}

static void
try_bytes(co_context *ctx, const uint8_t *data, size_t size)
{
    co_value *bytes = co_bytes(ctx, data, size), *map = co_example_decode(ctx, bytes);

    if (map != NULL && !has_none(ctx, map)) {
        co_value *again = co_example_decode(ctx, co_example_encode(ctx, map));

        FUZZ_REQUIRE(co_num_items(ctx, again) == co_num_items(ctx, map));
        FUZZ_REQUIRE(co_ok(ctx));
    }
    fuzz_clear(ctx, CO_INVALID_ARGUMENT, CO_OK);
    parse(ctx, bytes, data, size, false);
    parse(ctx, bytes, data, size, true);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    co_context *ctx = fuzz_context();

    if (size > 0)
        CO_BLOCK(ctx)
            try_bytes(ctx, data, size);
    return 0;
}
