/* SPDX-License-Identifier: Apache-2.0 */
/* tf.Example: decoded whole, encoded and decoded again, and parsed by a description, alone and in a
 * batch. */
#include "files.h"

/* A feature without a list is none, which cannot be encoded again. */
static bool
has_none(co_context *ctx, co_value *map)
{
    for (size_t i = 0; i < co_size(ctx, map); ++i)
        if (co_value_kind(co_at(ctx, map, i)) == CO_KIND_NONE)
            return true;
    return false;
}

static void
try_bytes(co_context *ctx, const uint8_t *data, size_t size)
{
    static const int64_t    two[] = { 2 };
    static const co_feature features[] = {
        { "a", CO_FEATURE_SEQUENCE, CO_INT64, NULL, 0, NULL },
        { "b", CO_FEATURE_SEQUENCE, CO_STRING, two, 1, NULL },
        { "", CO_FEATURE_SEQUENCE, CO_FLOAT32, two, 1, NULL },
        { "id", CO_FEATURE_FIXED, CO_INT64, NULL, 0, NULL },
    };
    const void *const both[] = { data, data };
    const size_t      lengths[] = { size, size / 2 };
    co_value         *bytes = co_bytes(ctx, data, size), *map = co_example_decode(ctx, bytes);

    if (map != NULL && !has_none(ctx, map)) {
        co_value *again = co_example_decode(ctx, co_example_encode(ctx, map));

        FUZZ_REQUIRE(co_size(ctx, again) == co_size(ctx, map));
        FUZZ_REQUIRE(co_ok(ctx));
    }
    fuzz_clear(ctx, CO_INVALID_ARGUMENT, CO_OK);
    for (size_t n = 0; n <= 4; ++n) {
        co_parse_example(ctx, bytes, features, n);
        fuzz_clear(ctx, CO_INVALID_ARGUMENT, CO_OK);
    }
    co_parse_example(ctx, co_tensor_bytes(ctx, CO_SHAPE(2), both, lengths), features, 3);
    fuzz_clear(ctx, CO_INVALID_ARGUMENT, CO_OK);
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
