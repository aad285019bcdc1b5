/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays: the same bytes as .npy, copied and mapped, and as .npz. */
#include "files.h"

static void
load(co_context *ctx, const char *path, bool map)
{
    co_array_options options = CO_ARRAY_OPTIONS_INIT;
    co_value        *array;
    char             text[200];

    options.map = map;
    array = co_load_npy(ctx, path, &options);
    if (array != NULL)
        co_format(ctx, array, text, sizeof(text));
    fuzz_clear(ctx, CO_VALUE_ERROR, CO_OK);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    co_context *ctx = fuzz_context();
    const char *path = fuzz_file(data, size);

    CO_BLOCK(ctx) {
        load(ctx, path, false);
        load(ctx, path, true);
        co_load_npz(ctx, path);
        fuzz_clear(ctx, CO_VALUE_ERROR, CO_UNIMPLEMENTED);
    }
    return 0;
}
