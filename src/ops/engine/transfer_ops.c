/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How tensors come into the library and move between the memories of devices, as entries of the
 * operator table. Folders above call these through context/context.h; what they are made of is in
 * value/tensor.c. Where the host can read the memory nothing is copied, and nothing starts.
 */
#include "ops/engine/execute.h"
#include "ops/engine/kernel_recording.h"

typedef struct transfer {
    co_value   *from, *to;
    co_device  *device;
    void       *out;  /* memory of the host to read to, */
    const void *data; /* and to write from */
} transfer;

static bool
copy(co_context *ctx, void *arg)
{
    transfer *t = arg;

    t->to = coi_tensor_to(&ctx->heap, t->from, t->device, coi_err(ctx));
    return t->to != NULL;
}

static bool
download(co_context *ctx, void *arg)
{
    const transfer *t = arg;

    return coi_tensor_download(t->from, t->out, coi_err(ctx)) == CO_OK;
}

static bool
upload(co_context *ctx, void *arg)
{
    transfer *t = arg;

    return coi_tensor_upload(t->to, t->data, coi_err(ctx)) == CO_OK;
}

const coi_op coi_op_copy_to_device = {
    COI_EFFECT("copy_to_device", "Copies a tensor to another device; co_copy_to, operands, inputs.",
               coi_body_effect, 0, 0)
};
const coi_op coi_op_download = {
    COI_EFFECT("download", "Copies the data of a tensor from its device to the host.",
               coi_body_effect, 0, 0)
};
const coi_op coi_op_upload = { COI_EFFECT(
    "upload", "Copies the data of a tensor from the host to its device.", coi_body_effect, 0, 0) };

co_value *
coi_copy_tensor(co_context *ctx, co_value *tensor, co_device *device)
{
    transfer   t = { .from = tensor, .device = device };
    coi_effect shown = { .in = &t.from, .num_in = 1, .out = &t.to, .num_out = 1, .device = device };

    if ((tensor->u.tensor.device->host_memory && device->host_memory) ||
        tensor->dtype == CO_STRING) {
        t.to = coi_tensor_to(&ctx->heap, tensor, device, coi_err(ctx));
        coi_note_operand(ctx, tensor, t.to);
        return t.to;
    }
    if (coi_end_recording(ctx, coi_op_copy_to_device.name) == CO_OK)
        coi_execute_body(ctx, &coi_op_copy_to_device, shown, copy, &t);
    return t.to;
}

co_value *
coi_bring_tensor_to_host(co_context *ctx, co_value *tensor)
{
    if (!coi_may_read(ctx, tensor))
        return NULL;
    if (!coi_is_on_host(tensor))
        return coi_copy_tensor(ctx, tensor, tensor->u.tensor.device->host);
    coi_ref(tensor);
    return tensor;
}

co_value *
coi_place_tensor(co_context *ctx, co_value *made, co_device *device)
{
    co_value *placed;

    if (made == NULL || made->u.tensor.device == device)
        return made;
    placed = coi_copy_tensor(ctx, made, device);
    coi_unref(&ctx->heap, made);
    return placed;
}

co_code
coi_download(co_context *ctx, const co_value *tensor, void *out)
{
    transfer   t = { .from = (co_value *)(uintptr_t)tensor, .out = out };
    coi_effect shown = { .in = &t.from, .num_in = 1, .device = tensor->u.tensor.device };

    if (!coi_may_read(ctx, tensor))
        return ctx->error.code;
    if (coi_is_on_host(tensor))
        return coi_tensor_download(tensor, out, coi_err(ctx));
    return coi_execute_body(ctx, &coi_op_download, shown, download, &t) ? CO_OK : ctx->error.code;
}

co_code
coi_upload(co_context *ctx, co_value *tensor, const void *data)
{
    transfer   t = { .to = tensor, .data = data };
    coi_effect shown = { .out = &t.to, .num_out = 1, .device = tensor->u.tensor.device };

    if (coi_is_on_host(tensor))
        return coi_tensor_upload(tensor, data, coi_err(ctx));
    return coi_execute_body(ctx, &coi_op_upload, shown, upload, &t) ? CO_OK : ctx->error.code;
}

static co_value *
copy_composite(co_context *ctx, co_value *value, co_device *device)
{
    co_value *made[COI_MAX_COMPONENTS] = { NULL }, *copied = NULL;
    size_t    n = coi_kind_of(value)->composite->n, i = 0;

    while (i < n && (value->u.components[i] == NULL ||
                     (made[i] = coi_copy_value(ctx, value->u.components[i], device)) != NULL))
        ++i;
    if (i == n)
        copied = coi_composite_like(&ctx->heap, value, made, coi_err(ctx));
    for (i = 0; i < n; ++i)
        coi_unref(&ctx->heap, made[i]);
    return copied;
}

co_value *
coi_copy_value(co_context *ctx, co_value *value, co_device *device)
{
    if (value->kind == CO_KIND_TENSOR)
        return coi_copy_tensor(ctx, value, device);
    if (coi_is_composite(value))
        return copy_composite(ctx, value, device);
    coi_ref(value);
    return value;
}

/* --- tensors made of what is none --- */

typedef struct making {
    coi_make_fn fn;
    void       *arg;
    co_value   *made;
} making;

static bool
make(co_context *ctx, void *arg)
{
    making *m = arg;

    m->made = m->fn(ctx, m->arg);
    return m->made != NULL;
}

const coi_op coi_op_make_tensor = {
    COI_EFFECT("make_tensor", "Makes a tensor from data of the user or of a file; co_tensor.",
               coi_body_effect, 0, 0),
    .is_recordable = true,
};
const coi_op coi_op_stack_values = {
    COI_EFFECT("stack_values",
               "Converts a list of numbers and tensors to a tensor; co_to_tensor, operands.",
               coi_body_effect, 0, 0),
    .is_recordable = true, /* of numbers: coi_stack_values sees to that */
};

co_value *
coi_make_tensor(co_context *ctx, coi_make_fn fn, void *arg)
{
    making m = { fn, arg, NULL };

    coi_execute_body(ctx, &coi_op_make_tensor, (coi_effect){ .out = &m.made, .num_out = 1 }, make,
                     &m);
    coi_note_host_made(ctx, m.made);
    return m.made;
}

co_value *
coi_stack_values(co_context *ctx, coi_values items, coi_make_fn fn, void *arg)
{
    making     m = { fn, arg, NULL };
    coi_effect shown = { .in = items.items, .num_in = items.n, .out = &m.made, .num_out = 1 };

    for (size_t i = 0; i < items.n; ++i)
        if (coi_host_dtype(items.items[i]) == CO_DTYPE_NONE &&
            coi_end_recording(ctx, coi_op_stack_values.name) != CO_OK)
            return NULL;
    coi_execute_body(ctx, &coi_op_stack_values, shown, make, &m);
    coi_note_host_made(ctx, m.made);
    return m.made;
}
