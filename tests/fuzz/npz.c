/* SPDX-License-Identifier: Apache-2.0 */
/* .npz archives as tensor files; as a dict, npy.c reads them. */
#include "tensor_files.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    co_context *ctx = fuzz_context();

    CO_BLOCK(ctx)
        fuzz_read_tensor_file(ctx, fuzz_file(data, size), false);
    return 0;
}
