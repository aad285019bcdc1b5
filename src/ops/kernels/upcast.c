/* SPDX-License-Identifier: Apache-2.0 */
/* See ops/engine/upcast.h, which dispatch includes. */
#include "ops/engine/upcast.h"

/* A header on the stack: like `tensor`, but float32 with its data at `data`. Nobody takes
 * references to it. */
static void
make_image(co_value *image, const co_value *tensor, float *data)
{
    image->kind = tensor->kind;
    image->dtype = CO_FLOAT32;
    image->ndim = tensor->ndim;
    image->u.tensor.device = tensor->u.tensor.device;
    image->u.tensor.data = data;
    image->u.tensor.num_elements = tensor->u.tensor.num_elements;
    for (int i = 0; i < tensor->ndim; ++i)
        image->u.tensor.dims[i] = tensor->u.tensor.dims[i];
}

/* Point `values` at images where they are half precision; returns where the next data may begin. */
static float *
make_images(co_value **values, int n, co_value *images, co_value **out, float *data)
{
    for (int i = 0; i < n; ++i) {
        out[i] = values[i];
        if (!coi_is_half(values[i]))
            continue;
        make_image(&images[i], values[i], data);
        out[i] = &images[i];
        data += values[i]->u.tensor.num_elements;
    }
    return data;
}

static int64_t
count_halves(co_value *const *values, int n)
{
    int64_t total = 0;

    for (int i = 0; i < n; ++i)
        if (coi_is_half(values[i]))
            total += values[i]->u.tensor.num_elements;
    return total;
}

co_code
coi_run_upcast(coi_call *call, co_code (*kernel)(coi_call *call))
{
    co_value    in_images[COI_MAX_INPUT_NAMES] = { 0 }, out_images[COI_MAX_OUTPUTS] = { 0 };
    co_value   *in[COI_MAX_INPUT_NAMES];
    coi_call    wide = *call;
    coi_buffer *buffer;
    int64_t     total;
    float      *data;
    co_code     rc;

    if (!coi_is_half(call->out[0]))
        return kernel(call);
    total = count_halves(call->in, call->num_in) + count_halves(call->out, call->num_out);
    buffer = coi_buffer_alloc(call->device, (size_t)total * sizeof(float), coi_err(call->ctx));
    if (buffer == NULL)
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                        "%s: no memory to upcast %lld elements to float32", call->op->name,
                        (long long)total);
    data = make_images(call->in, call->num_in, in_images, in, buffer->data);
    make_images(call->out, call->num_out, out_images, wide.out, data);
    wide.in = in;
    for (int i = 0; i < call->num_in; ++i)
        if (coi_is_half(call->in[i]))
            coi_convert((co_dtype)call->in[i]->dtype, call->in[i]->u.tensor.data, CO_FLOAT32,
                        in[i]->u.tensor.data, in[i]->u.tensor.num_elements);
    rc = kernel(&wide);
    for (int i = 0; rc == CO_OK && i < call->num_out; ++i)
        if (coi_is_half(call->out[i]))
            coi_convert(CO_FLOAT32, wide.out[i]->u.tensor.data, (co_dtype)call->out[i]->dtype,
                        call->out[i]->u.tensor.data, wide.out[i]->u.tensor.num_elements);
    coi_buffer_unref(buffer);
    return rc;
}
