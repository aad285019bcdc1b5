/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a dataset function learns of its pipeline, and what it asks of it (IC-*); the text of what a
 * value function learns of its replica (VCX-1).
 */
#include "data/dataset.h"

#include <stdio.h>

int64_t
co_per_replica_batch_size(co_context *ctx, const co_input_context *input, int64_t global)
{
    COI_ENTER(ctx, "per_replica_batch_size", 0);
    if (input == NULL) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 2 (input) is NULL; give the input context of the pipeline");
        return 0;
    }
    if (input->num_replicas_in_sync < 1) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 2 (input) has num_replicas_in_sync %d; it must be 1 or more",
                 input->num_replicas_in_sync);
        return 0;
    }
    if (global % input->num_replicas_in_sync != 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "the global batch size %lld is not divisible by the number of replicas %d; use a "
                 "multiple of %d",
                 (long long)global, input->num_replicas_in_sync, input->num_replicas_in_sync);
        return 0;
    }
    return global / input->num_replicas_in_sync;
}

/* Checks of a text form: what it is of, and where it goes. Nothing is written when they fail. */
static bool
check_text(co_context *ctx, const void *of, const char *name, const char *out, size_t capacity)
{
    if (of != NULL && (out != NULL || capacity == 0))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR, "argument %s of %s is NULL", of == NULL ? name : "3 (out)",
             ctx->call);
    return false;
}

size_t
co_input_context_format(co_context *ctx, const co_input_context *input, char *out, size_t capacity)
{
    if (out != NULL && capacity > 0)
        out[0] = '\0';
    COI_ENTER(ctx, "input_context_format", 0);
    if (!check_text(ctx, input, "2 (input)", out, capacity))
        return 0;
    return (size_t)snprintf(out, capacity,
                            "tf.distribute.InputContext(input pipeline id %d, total: %d)",
                            input->input_pipeline_id, input->num_input_pipelines);
}

size_t
co_value_context_format(co_context *ctx, const co_value_context *replica, char *out,
                        size_t capacity)
{
    if (out != NULL && capacity > 0)
        out[0] = '\0';
    COI_ENTER(ctx, "value_context_format", 0);
    if (!check_text(ctx, replica, "2 (replica)", out, capacity))
        return 0;
    return (size_t)snprintf(out, capacity,
                            "tf.distribute.ValueContext(replica id %d, total replicas in sync: %d)",
                            replica->replica_id_in_sync_group, replica->num_replicas_in_sync);
}
