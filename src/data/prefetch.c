/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch: says how far the input may be read ahead, which is never visible in the data. Nothing
 * works ahead yet: iterating it is iterating its input.
 */
#include "data/dataset.h"

static const coi_dataset_ops prefetch_ops = {
    .name = "prefetch",
    .dataset_size = sizeof(coi_stage),
    .transparent = true,
    .with_inputs = coi_stage_with_inputs,
};

co_dataset *
co_dataset_prefetch(co_context *ctx, co_dataset *input, int64_t buffer_size)
{
    coi_stage_args args = { .numbers = { buffer_size } };

    COI_ENTER(ctx, "dataset_prefetch", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    if (buffer_size < -1) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (buffer_size) is %lld; it is 0 or more, or -1 for what is useful",
                 (long long)buffer_size);
        return NULL;
    }
    return coi_stage_like(ctx, &prefetch_ops, input, &args);
}
