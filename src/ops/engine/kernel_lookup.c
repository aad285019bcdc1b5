/* SPDX-License-Identifier: Apache-2.0 */
/* See kernel_lookup.h. */
#include "ops/engine/kernel_lookup.h"
#include "ops/engine/execute.h"

#include <string.h>

#define MAX_ATTRS 16

/* Integers of an attribute; n is -1 where it was not given. */
static void
show_ints(co_backend_attr *shown, const int64_t *ints, int64_t n)
{
    shown->ints = n >= 0 ? ints : NULL;
    shown->num_ints = n >= 0 ? (size_t)n : 0;
}

/* One attribute as backends see it. */
static co_backend_attr
show_attr(const coi_attr *attr, const void *attrs)
{
    const char     *field = (const char *)attrs + attr->offset;
    co_backend_attr shown = { .name = attr->name };

    switch (attr->type) {
    case COI_ATTR_INT: shown.i = *(const int64_t *)(const void *)field; break;
    case COI_ATTR_FLOAT: shown.f = *(const double *)(const void *)field; break;
    case COI_ATTR_BOOL: shown.i = *(const bool *)field; break;
    case COI_ATTR_DTYPE: shown.i = *(const uint8_t *)field; break;
    case COI_ATTR_STRING: shown.text = field; break;
    case COI_ATTR_CHOICE:
        shown.i = *(const int32_t *)(const void *)field;
        shown.text = attr->choices[shown.i];
        break;
    case COI_ATTR_INTS:
        show_ints(&shown, ((const coi_ints *)(const void *)field)->at,
                  ((const coi_ints *)(const void *)field)->n);
        break;
    case COI_ATTR_MANY:
        show_ints(&shown, ((const coi_many *)(const void *)field)->at,
                  ((const coi_many *)(const void *)field)->n);
        break;
    case COI_ATTR_SCALAR: {
        const coi_scalar *scalar = (const coi_scalar *)(const void *)field;

        shown.i = scalar->kind == CO_KIND_FLOAT ? (int64_t)scalar->f : scalar->i;
        shown.f = scalar->kind == CO_KIND_FLOAT ? scalar->f : (double)scalar->i;
        break;
    }
    }
    if (attr->type == COI_ATTR_INT)
        shown.f = (double)shown.i;
    return shown;
}

/* In host memory a tensor may have no buffer of the backend: small data is in its cell, other data
 * may belong to the user or to a CPU. Kernels get its address instead. */
static co_backend_tensor
show_tensor(const co_value *tensor, bool host_memory)
{
    const coi_buffer *buffer = tensor->u.tensor.buffer;
    co_backend_tensor shown = {
        .dtype = (co_dtype)tensor->dtype,
        .ndim = tensor->ndim,
        .num_elements = tensor->u.tensor.num_elements,
        .dims = tensor->u.tensor.dims,
    };

    if (host_memory) {
        shown.data = tensor->u.tensor.data;
    } else {
        shown.buffer = coi_backend_buffer(buffer);
        shown.offset = (size_t)((const char *)tensor->u.tensor.data - (const char *)buffer->data);
    }
    return shown;
}

/* The kernel of the backend; CO_UNIMPLEMENTED where it wants none of this. */
static co_code
run_backend_kernel(coi_call *call, co_backend_kernel kernel)
{
    const coi_op     *op = call->op;
    co_device        *device = call->device;
    size_t            room = (size_t)(call->num_in + call->num_out) * sizeof(co_backend_tensor);
    co_backend_tensor few[8], *tensors = few;
    co_backend_attr   attrs[MAX_ATTRS];
    co_backend_call   shown = { .op = coi_entry_name(op), .attrs = attrs };
    coi_observed      seen;
    co_code           rc;

    for (const coi_attr *attr = op->attrs; attr != NULL && attr->name != NULL; ++attr) {
        if (shown.num_attrs == MAX_ATTRS)
            return CO_UNIMPLEMENTED;
        attrs[shown.num_attrs++] = show_attr(attr, call->attrs);
    }
    if (room > sizeof(few) && (tensors = coi_small_alloc(&call->ctx->heap, room)) == NULL)
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED, "%s: no memory for %d inputs", op->name,
                        call->num_in);
    for (int i = 0; i < call->num_in; ++i)
        tensors[i] = show_tensor(call->in[i], device->host_memory);
    for (int i = 0; i < call->num_out; ++i)
        tensors[call->num_in + i] = show_tensor(call->out[i], device->host_memory);
    shown.in = tensors;
    shown.num_in = (size_t)call->num_in;
    shown.out = tensors + call->num_in;
    shown.num_out = (size_t)call->num_out;
    coi_observe_begin(call, device->backend->name, &seen);
    rc = kernel(device->queue, &shown, coi_err(call->ctx));
    coi_observe_end(call, device->backend->name, &seen, rc);
    if (tensors != few)
        coi_small_free(&call->ctx->heap, tensors, room);
    if (rc == CO_UNIMPLEMENTED)
        coi_error_reset(coi_err(call->ctx));
    else if (rc != CO_OK)
        coi_error(coi_err(call->ctx), rc, "%s: backend '%s' failed on %s", op->name,
                  device->backend->name, device->name);
    return rc;
}

/* The operands of a call on the host, as references, and room for its results. */
static bool
bring_to_host(coi_call *host, const coi_call *call, size_t *nbytes)
{
    coi_heap      *heap = &call->ctx->heap;
    co_error_info *err = coi_err(call->ctx);
    bool           ok = true;

    for (int i = 0; i < call->num_in; ++i) {
        host->in[i] = ok ? coi_bring_tensor_to_host(call->ctx, call->in[i]) : NULL;
        ok = host->in[i] != NULL;
        *nbytes += coi_is_on_host(call->in[i]) ? 0 : coi_tensor_nbytes(call->in[i]);
    }
    for (int i = 0; i < call->num_out; ++i) {
        const co_value *out = call->out[i];

        host->out[i] = ok ? coi_tensor_new(heap, host->device, (co_dtype)out->dtype,
                                           out->u.tensor.dims, out->ndim,
                                           out->u.tensor.num_elements, err)
                          : NULL;
        ok = host->out[i] != NULL;
        *nbytes += coi_is_on_host(out) ? 0 : coi_tensor_nbytes(out);
    }
    return ok;
}

/* The results where they belong. Strings stay on the host, so theirs take the place of what was
 * made for them. */
static bool
take_back(coi_call *call, coi_call *host)
{
    coi_heap *heap = &call->ctx->heap;

    for (int i = 0; i < call->num_out; ++i) {
        co_value *made = host->out[i];

        if (made->dtype == CO_STRING) {
            coi_unref(heap, call->out[i]);
            made->u.tensor.device = call->device;
            call->out[i] = made;
            host->out[i] = NULL;
        } else if (coi_upload(call->ctx, call->out[i], made->u.tensor.data) != CO_OK) {
            return false;
        }
    }
    return true;
}

/* Copy to the host, run there, copy back. */
static co_code
fall_back(coi_call *call, coi_device_kernel *kernel, co_code (*run_on_host)(coi_call *call))
{
    coi_heap *heap = &call->ctx->heap;
    size_t    room = (size_t)call->num_in * sizeof(co_value *), nbytes = 0;
    co_value *few[8];
    coi_call  host = *call;
    bool      ok;

    host.device = call->device->host;
    host.in = room <= sizeof(few) ? few : coi_small_alloc(heap, room);
    if (host.in == NULL)
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED, "%s: no memory for %d inputs",
                        call->op->name, call->num_in);
    ok = bring_to_host(&host, call, &nbytes) && run_on_host(&host) == CO_OK &&
         take_back(call, &host);
    for (int i = 0; i < call->num_in; ++i)
        coi_unref(heap, host.in[i]);
    for (int i = 0; i < call->num_out; ++i)
        coi_unref(heap, host.out[i]);
    if (host.in != few)
        coi_small_free(heap, host.in, room);
    if (ok)
        coi_count_fallback(call->device, kernel, nbytes);
    return ok ? CO_OK : coi_failed(call->ctx);
}

/* The kernel of the CPU where the tensors are. */
static co_code
fall_back_in_place(coi_call *call, coi_device_kernel *kernel,
                   co_code (*run_on_host)(coi_call *call))
{
    co_code rc = run_on_host(call);

    if (rc == CO_OK)
        coi_count_fallback(call->device, kernel, 0);
    return rc;
}

/* Strings are on the host, and no business of a backend. */
static bool
has_strings(const coi_call *call)
{
    for (int i = 0; i < call->num_in; ++i)
        if (call->in[i]->dtype == CO_STRING)
            return true;
    for (int i = 0; i < call->num_out; ++i)
        if (call->out[i]->dtype == CO_STRING)
            return true;
    return false;
}

co_code
coi_run_on_device(coi_call *call, co_code (*run_on_host)(coi_call *call))
{
    const coi_op      *op = call->op;
    const char        *name = coi_entry_name(op);
    coi_device_kernel *kernel = coi_device_find_kernel(call->device, op, name, true);
    co_code            rc = CO_UNIMPLEMENTED;

    if (kernel != NULL && kernel->kernel != NULL && !has_strings(call))
        rc = run_backend_kernel(call, kernel->kernel);
    if (rc == CO_UNIMPLEMENTED)
        return call->device->host_memory ? fall_back_in_place(call, kernel, run_on_host)
                                         : fall_back(call, kernel, run_on_host);
    if ((call->ctx->special & COI_SPECIAL_LOG) != 0 && rc == CO_OK)
        coi_log_line(&call->ctx->runtime->log, CO_LOG_DEBUG, "%s: kernel of backend %s on %s", name,
                     call->device->backend->name, call->device->name);
    return rc == CO_OK ? CO_OK : coi_failed(call->ctx);
}
