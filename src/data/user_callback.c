/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User functions that pipelines call for their elements: where they run, what they may return, and
 * how their errors are reported.
 */
#include "data/dataset.h"

#include <stdio.h>
#include <string.h>

bool
coi_user_callback_begin(co_context *ctx, coi_user_callback *callback)
{
    co_device *host = coi_data_device(ctx);

    *callback = (coi_user_callback){ ctx->num_entries, ctx->num_blocks, coi_function_begin(ctx),
                                     ctx->call, coi_now_ns() };
    if (host == NULL || coi_push(ctx, COI_ENTRY_DEVICE, NULL) == NULL)
        return false;
    ctx->mode = (coi_mode){ .num_replicas = 1, .update_id = -1 };
    if (ctx->device != host)
        coi_enter_device(ctx, &host->id);
    co_block_begin(ctx);
    ctx->block_floor = ctx->num_blocks;
    return ctx->error.code == CO_OK;
}

void
coi_user_callback_end(co_context *ctx, const coi_user_callback *callback,
                      const co_iterator *iterator)
{
    coi_count_time(iterator->counts, false, callback->began_ns);
    coi_function_end(ctx, callback->floor);
    coi_blocks_unwind(ctx, callback->blocks);
    coi_pop_to(ctx, callback->entries);
    ctx->call = callback->call;
}

co_value *
coi_user_callback_element(co_context *ctx, co_iterator *iterator)
{
    const co_dataset *input = iterator->dataset->inputs[0];
    co_value        **leaves = ((coi_stage_iterator *)iterator)->element;
    co_value         *element = NULL;

    if (ctx->error.code == CO_OK)
        element = coi_give(ctx, coi_pack(&ctx->heap, input->spec, leaves, coi_err(ctx)));
    coi_leaves_release(&ctx->heap, leaves, input->num_leaves);
    return element;
}

/* One leaf of a result as a tensor of the spec on the host. */
static co_value *
conform(co_context *ctx, const co_dataset *dataset, size_t i, co_value *leaf)
{
    const co_value *spec = dataset->specs[i];
    co_value       *tensor = coi_data_tensor(ctx, leaf, (co_dtype)spec->dtype);
    char            name[32], seen[COI_SHAPE_TEXT], said[COI_SHAPE_TEXT];

    if (tensor == NULL || coi_spec_within(tensor, spec))
        return tensor;
    coi_fail(ctx, tensor->dtype != spec->dtype ? CO_TYPE_ERROR : CO_INVALID_ARGUMENT,
             "the function returned %s %s for %s, which the spec says to be %s %s; return that, or "
             "give the stage the spec of what the function returns",
             co_dtype_name((co_dtype)tensor->dtype),
             coi_shape_text(tensor->u.tensor.dims, tensor->ndim, seen),
             coi_component_name(dataset, i, name), co_dtype_name((co_dtype)spec->dtype),
             spec->ndim < 0 ? "of any shape"
                            : coi_shape_text(spec->u.tensor.dims, spec->ndim, said));
    coi_unref(&ctx->heap, tensor);
    return NULL;
}

bool
coi_user_callback_result(co_context *ctx, const co_dataset *dataset, co_value *result,
                         co_value **leaves)
{
    if (ctx->error.code != CO_OK)
        return false;
    if (result == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR, "the function returned NULL; it must return an element");
        return false;
    }
    if (!coi_check_result(ctx, result, ctx->call, "function"))
        return false;
    if (coi_same_structure(dataset->spec, result, CO_TYPE_ERROR, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return false;
    }
    coi_collect_leaves(result, leaves);
    for (size_t i = 0; i < dataset->num_leaves; ++i) {
        leaves[i] = conform(ctx, dataset, i, leaves[i]);
        if (leaves[i] == NULL) {
            coi_leaves_release(&ctx->heap, leaves, i);
            return false;
        }
    }
    return true;
}

int
coi_user_callback_error(co_context *ctx, const co_iterator *iterator)
{
    const coi_stage_iterator *self = (const coi_stage_iterator *)iterator;
    char                      message[sizeof(ctx->error.message)];

    memcpy(message, ctx->error.message, sizeof(message));
    coi_text_line(ctx->error.message, sizeof(ctx->error.message), "%s of element %lld: %s",
                  coi_stage_name(iterator->dataset), (long long)self->index - 1, message);
    return COI_ERROR;
}

bool
coi_check_fn(co_context *ctx, bool is_there, int position, const char *what)
{
    if (!is_there)
        coi_fail(ctx, CO_TYPE_ERROR, "argument %d (fn) of %s is NULL; give a function that %s",
                 position, ctx->call, what);
    return is_there;
}

/* Whether a value is a spec, or a structure of nothing else with at least one. */
static bool
is_spec(const co_value *value)
{
    if (!coi_is_structure(value))
        return value->kind == CO_KIND_SPEC;
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (!is_spec(value->u.items.items[i]))
            return false;
    return value->u.items.n > 0;
}

bool
coi_check_spec(co_context *ctx, co_value *spec, int position)
{
    if (spec == NULL && ctx->error.code == CO_OK)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument %d (spec) of %s is NULL; say what elements look like (see co_spec and "
                 "co_value_spec)",
                 position, ctx->call);
    if (!coi_check_value(ctx, spec, position, "spec"))
        return false;
    if (is_spec(spec))
        return true;
    coi_fail(
        ctx, CO_TYPE_ERROR,
        "argument %d (spec) is %s; it must be a spec, or a structure with specs as leaves (see "
        "co_spec and co_value_spec)",
        position, coi_a_kind(spec->kind));
    return false;
}

bool
coi_check_inner(co_context *ctx, const co_dataset *dataset)
{
    if (ctx->error.code != CO_OK) /* its own error is passed on unchanged */
        return false;
    if (dataset != NULL && coi_is_live_object(&ctx->heap, dataset, &coi_dataset_class) &&
        !dataset->ops->distributed)
        return true;
    coi_fail(ctx, CO_TYPE_ERROR, "the dataset function returned %s; it must return a dataset",
             dataset == NULL ? "NULL" : "a handle that is not a plain dataset");
    return false;
}
