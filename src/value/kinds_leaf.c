/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of tensors, of their specs, and of symbolic tensors.
 */
#include "value/kind.h"

#include <string.h>

/* --- tensors --- */

static void
describe_tensor(const co_value *tensor, coi_shape *shape, co_dtype *dtype)
{
    *dtype = (co_dtype)tensor->dtype;
    shape->ndim = tensor->ndim;
    if (tensor->ndim > 0)
        memcpy(shape->dims, tensor->u.tensor.dims, (size_t)tensor->ndim * sizeof(*shape->dims));
}

static co_value *
tensor_itself(co_context *ctx, co_value *tensor, co_dtype dtype)
{
    (void)ctx;
    (void)dtype;
    coi_ref(tensor);
    return tensor;
}

static const char *
tensor_device(co_context *ctx, co_value *tensor)
{
    (void)ctx;
    return tensor->u.tensor.device->name;
}

static const coi_text *
tensor_texts(const co_value *tensor, coi_text *room, int64_t *n)
{
    (void)room;
    *n = tensor->u.tensor.num_elements;
    return tensor->dtype == CO_STRING ? coi_data_on_host(tensor) : NULL;
}

static int64_t
tensor_rows(const co_value *tensor)
{
    return tensor->ndim > 0 ? tensor->u.tensor.dims[0] : -1;
}

/* Without destroy: cell.c knows that a tensor has a buffer, since most values that die are one. */
const coi_kind_ops coi_tensor_kind = {
    .name = "tensor",
    .a_name = "a tensor",
    .print = coi_print_tensor,
    .describe = describe_tensor,
    .as_tensor = tensor_itself,
    .device = tensor_device,
    .texts = tensor_texts,
    .rows = tensor_rows,
};

/* --- specs --- */

co_value *
coi_tensor_spec(coi_heap *heap, co_dtype dtype, const int64_t *dims, int ndim, co_error_info *err)
{
    co_value *spec = coi_value_new(heap, CO_KIND_SPEC);

    if (spec == NULL) {
        coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for a spec");
        return NULL;
    }
    spec->dtype = (uint8_t)dtype;
    spec->ndim = (int8_t)ndim;
    spec->u.tensor.num_elements = -1;
    for (int i = 0; i < ndim; ++i)
        spec->u.tensor.dims[i] = dims[i];
    return spec;
}

static void
destroy_spec(coi_heap *heap, co_value *spec)
{
    if (coi_is_dataset_spec(spec))
        coi_unref(heap, spec->u.object);
}

static co_value *
spec_itself(coi_heap *heap, co_value *spec, co_error_info *err)
{
    (void)heap;
    (void)err;
    coi_ref(spec);
    return spec;
}

const coi_kind_ops coi_spec_kind = {
    .name = "spec",
    .a_name = "a spec",
    .destroy = destroy_spec,
    .print = coi_print_spec,
    .describe = describe_tensor,
    .type = spec_itself,
};

/* --- symbolic tensors --- */

static void
print_symbolic(coi_printer *out, const co_value *symbol)
{
    char text[COI_SHAPE_TEXT];

    if (symbol->dtype == CO_DTYPE_NONE) {
        coi_print(out, "<operation>");
        return;
    }
    coi_print(out, "<symbolic %s %s>", co_dtype_name((co_dtype)symbol->dtype),
              coi_shape_text(symbol->u.symbol.dims, symbol->ndim, text));
}

static co_value *
symbolic_type(coi_heap *heap, co_value *symbol, co_error_info *err)
{
    return coi_tensor_spec(heap, (co_dtype)symbol->dtype, symbol->u.symbol.dims, symbol->ndim, err);
}

const coi_kind_ops coi_symbolic_kind = {
    .name = "symbolic tensor",
    .a_name = "a symbolic tensor",
    .print = print_symbolic,
    .describe = describe_tensor,
    .type = symbolic_type,
};
