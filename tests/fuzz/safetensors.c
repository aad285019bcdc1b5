/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors: a file that is read, whole and in parts, copied and mapped. What was read is written
 * again and has the same tensors.
 */
#include "tensor_files.h"

static void
write_again(co_context *ctx, const char *path)
{
    static char copy[64];
    co_value   *tensors = co_load_safetensors(ctx, path), *again;

    if (tensors == NULL) {
        fuzz_clear_damage(ctx);
        return;
    }
    if (copy[0] == '\0')
        snprintf(copy, sizeof(copy), "/dev/shm/fuzz-safetensors-%d", (int)getpid());
    FUZZ_REQUIRE(co_save_safetensors(ctx, copy, tensors, NULL, NULL) == CO_OK);
    again = co_load_safetensors(ctx, copy);
    FUZZ_REQUIRE(again != NULL && co_num_items(ctx, again) == co_num_items(ctx, tensors));
    for (size_t i = 0; i < co_num_items(ctx, again); ++i) {
        co_value *a = co_at(ctx, tensors, i), *b = co_at(ctx, again, i);
        size_t    nbytes = (size_t)co_value_num_elements(ctx, a) *
                        co_dtype_size(co_value_dtype(ctx, a));

        FUZZ_REQUIRE(co_value_dtype(ctx, a) == co_value_dtype(ctx, b));
        FUZZ_REQUIRE(nbytes == 0 ||
                     memcmp(co_value_data(ctx, a), co_value_data(ctx, b), nbytes) == 0);
    }
    unlink(copy);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    co_context *ctx = fuzz_context();
    const char *path = fuzz_file(data, size);

    CO_BLOCK(ctx) {
        fuzz_read_tensor_file(ctx, path, false);
        write_again(ctx, path);
    }
    return 0;
}
