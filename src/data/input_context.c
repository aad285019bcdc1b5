/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a dataset function learns of its pipeline, and what it asks of it (IC-*).
 */
#include "data/dataset.h"

#include <stdio.h>

int64_t
co_per_replica_batch_size(co_context *ctx, const co_input_context *input, int64_t global)
{
    COI_ENTER(ctx, "per_replica_batch_size", 0);
    if (input == NULL) {
        coi_fail(ctx, CO_VALUE,
                 "argument 2 (input) is NULL; give the input context of the pipeline");
        return 0;
    }
    if (input->num_replicas_in_sync < 1) {
        coi_fail(ctx, CO_VALUE,
                 "argument 2 (input) has num_replicas_in_sync %d; it must be 1 or more",
                 input->num_replicas_in_sync);
        return 0;
    }
    if (global % input->num_replicas_in_sync != 0) {
        coi_fail(ctx, CO_VALUE,
                 "the global batch size %lld is not divisible by the number of replicas %d; use a "
                 "multiple of %d",
                 (long long)global, input->num_replicas_in_sync, input->num_replicas_in_sync);
        return 0;
    }
    return global / input->num_replicas_in_sync;
}

size_t
co_input_context_format(co_context *ctx, const co_input_context *input, char *out, size_t capacity)
{
    int length;

    if (out != NULL && capacity > 0)
        out[0] = '\0';
    COI_ENTER(ctx, "input_context_format", 0);
    if (input == NULL || (out == NULL && capacity > 0)) {
        coi_fail(ctx, CO_VALUE, "argument %s is NULL", input == NULL ? "2 (input)" : "3 (out)");
        return 0;
    }
    length = snprintf(out, capacity, "tf.distribute.InputContext(input pipeline id %d, total: %d)",
                      input->input_pipeline_id, input->num_input_pipelines);
    return (size_t)length;
}
