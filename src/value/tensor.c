/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors: making them, views, and moving between devices. A tensor's data is row-major without
 * gaps; a view shares the buffer of its base, so it costs a cell. Small tensors keep their data in
 * the cell.
 */
#include "value/value.h"

#include <string.h>

static co_value *
no_memory(coi_heap *heap, co_value *cell, size_t nbytes, co_device *device, co_error_info *err)
{
    if (cell != NULL) {
        cell->kind = CO_KIND_NONE; /* nothing to give back */
        coi_unref(heap, cell);
    }
    /* Keeps the reason of the backend where it gave another one. */
    coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %zu bytes on %s", nbytes,
              device != NULL ? device->name : "the host");
    return NULL;
}

static size_t
element_size(co_dtype dtype)
{
    return dtype == CO_STRING ? sizeof(coi_text) : coi_dtypes[dtype].size;
}

/* A tensor cell with its shape; data is not set. */
static inline co_value *
new_cell(coi_heap *heap, co_device *device, co_dtype dtype, const int64_t *dims, int ndim,
         int64_t num_elements)
{
    co_value *cell = coi_value_new(heap, CO_KIND_TENSOR);

    if (cell == NULL)
        return NULL;
    cell->dtype = (uint8_t)dtype;
    cell->ndim = (int8_t)ndim;
    cell->u.tensor.device = device;
    cell->u.tensor.buffer = NULL;
    cell->u.tensor.num_elements = num_elements;
    for (int i = 0; i < ndim; ++i)
        cell->u.tensor.dims[i] = dims[i];
    return cell;
}

static void
put_inline(co_value *cell)
{
    cell->flags |= COI_FLAG_INLINE;
    cell->u.tensor.data = &cell->u.tensor.dims[(int)cell->ndim];
}

static bool
fits_inline(size_t nbytes, int ndim, co_dtype dtype, const co_device *device)
{
    return nbytes <= (size_t)(CO_MAX_DIMS - ndim) * sizeof(int64_t) && dtype != CO_STRING &&
           device->host_memory;
}

/* Where the data of a tensor lies: strings point into host memory, so theirs is there. */
static inline co_device *
memory_of(co_device *device, co_dtype dtype)
{
    return dtype == CO_STRING ? device->host : device;
}

co_value *
coi_tensor_new(coi_heap *heap, co_device *device, co_dtype dtype, const int64_t *dims, int ndim,
               int64_t num_elements, co_error_info *err)
{
    size_t    nbytes = (size_t)num_elements * element_size(dtype);
    co_value *cell = new_cell(heap, device, dtype, dims, ndim, num_elements);

    if (cell == NULL)
        return no_memory(heap, NULL, nbytes, device, err);
    if (fits_inline(nbytes, ndim, dtype, device)) {
        put_inline(cell);
        return cell;
    }
    /* In a forked child the pool may be locked forever, by a thread that does not exist there. */
    cell->u.tensor.buffer = coi_is_forked(heap)
                                ? NULL
                                : coi_buffer_alloc(memory_of(device, dtype), nbytes, err);
    if (cell->u.tensor.buffer == NULL)
        return no_memory(heap, cell, nbytes, device, err);
    cell->u.tensor.data = cell->u.tensor.buffer->data;
    if (dtype == CO_STRING)
        for (int64_t i = 0; i < num_elements; ++i)
            ((coi_text *)cell->u.tensor.data)[i] = (coi_text){ "", 0 };
    return cell;
}

co_value *
coi_tensor_over(coi_heap *heap, co_device *device, co_dtype dtype, const int64_t *dims, int ndim,
                int64_t num_elements, coi_buffer *buffer, void *data, co_error_info *err)
{
    co_value *cell = new_cell(heap, device, dtype, dims, ndim, num_elements);

    if (cell == NULL) {
        coi_buffer_unref(buffer);
        return no_memory(heap, NULL, sizeof(*cell), device, err);
    }
    cell->u.tensor.buffer = buffer;
    cell->u.tensor.data = data;
    return cell;
}

co_value *
coi_meta_tensor(coi_heap *heap, co_device *device, co_dtype dtype, const int64_t *dims, int ndim,
                int64_t num_elements, co_error_info *err)
{
    co_value *cell = new_cell(heap, device, dtype, dims, ndim, num_elements);

    if (cell == NULL)
        return no_memory(heap, NULL, sizeof(*cell), device, err);
    cell->flags |= COI_FLAG_META;
    cell->u.tensor.data = NULL;
    return cell;
}

co_value *
coi_tensor_view(coi_heap *heap, co_value *base, const int64_t *dims, int ndim, int64_t num_elements,
                int64_t offset, co_error_info *err)
{
    co_dtype   dtype = (co_dtype)base->dtype;
    co_device *device = base->u.tensor.device;
    size_t     nbytes = (size_t)num_elements * element_size(dtype);
    co_value  *cell;

    if (coi_is_meta(base))
        return coi_meta_tensor(heap, device, dtype, dims, ndim, num_elements, err);
    if (base->u.tensor.buffer == NULL) { /* the data is in base's cell, which may die first */
        cell = coi_tensor_new(heap, device, dtype, dims, ndim, num_elements, err);
        if (cell != NULL && nbytes > 0)
            memcpy(cell->u.tensor.data,
                   (const char *)base->u.tensor.data + (size_t)offset * element_size(dtype),
                   nbytes);
        return cell;
    }
    cell = new_cell(heap, device, dtype, dims, ndim, num_elements);
    if (cell == NULL)
        return no_memory(heap, NULL, nbytes, device, err);
    coi_buffer_ref(base->u.tensor.buffer);
    cell->u.tensor.buffer = base->u.tensor.buffer;
    cell->u.tensor.data = (char *)base->u.tensor.data + (size_t)offset * element_size(dtype);
    return cell;
}

bool
coi_is_private(const co_value *tensor)
{
    const coi_buffer *buffer = tensor->u.tensor.buffer;

    return coi_sole_owner(tensor) &&
           (buffer == NULL || (buffer->size_class != COI_BUFFER_FOREIGN &&
                               atomic_load_explicit(&buffer->refs, memory_order_acquire) == 1));
}

/* Where in its buffer the data begins. */
static size_t
offset_of(const co_value *tensor)
{
    return (size_t)((const char *)tensor->u.tensor.data -
                    (const char *)tensor->u.tensor.buffer->data);
}

co_code
coi_tensor_download(const co_value *tensor, void *dst, co_error_info *err)
{
    size_t nbytes = coi_tensor_nbytes(tensor);

    if (!coi_is_on_host(tensor))
        return coi_device_download(tensor->u.tensor.device, dst, tensor->u.tensor.buffer,
                                   offset_of(tensor), nbytes, err);
    if (nbytes > 0)
        memcpy(dst, tensor->u.tensor.data, nbytes);
    return CO_OK;
}

co_code
coi_tensor_upload(co_value *tensor, const void *src, co_error_info *err)
{
    size_t nbytes = coi_tensor_nbytes(tensor);

    if (!coi_is_on_host(tensor))
        return coi_device_upload(tensor->u.tensor.device, tensor->u.tensor.buffer,
                                 offset_of(tensor), src, nbytes, err);
    if (nbytes > 0)
        memcpy(tensor->u.tensor.data, src, nbytes);
    return CO_OK;
}

co_code
coi_tensor_clear(co_value *tensor, co_error_info *err)
{
    size_t nbytes = coi_tensor_nbytes(tensor);

    if (!coi_is_on_host(tensor))
        return coi_device_fill(tensor->u.tensor.device, tensor->u.tensor.buffer, offset_of(tensor),
                               0, nbytes, err);
    if (nbytes > 0)
        memset(tensor->u.tensor.data, 0, nbytes);
    return CO_OK;
}

static co_code
copy_data(co_value *to, const co_value *from, co_error_info *err)
{
    if (coi_is_on_host(from))
        return coi_tensor_upload(to, from->u.tensor.data, err);
    if (coi_is_on_host(to))
        return coi_tensor_download(from, to->u.tensor.data, err);
    return coi_device_copy(to->u.tensor.device, to->u.tensor.buffer, offset_of(to),
                           from->u.tensor.device, from->u.tensor.buffer, offset_of(from),
                           coi_tensor_nbytes(from), err);
}

co_value *
coi_tensor_to(coi_heap *heap, co_value *tensor, co_device *device, co_error_info *err)
{
    co_device *from = tensor->u.tensor.device;
    co_value  *copy;

    if ((from->host_memory && device->host_memory) || tensor->dtype == CO_STRING) {
        copy = coi_tensor_view(heap, tensor, tensor->u.tensor.dims, tensor->ndim,
                               tensor->u.tensor.num_elements, 0, err);
        if (copy != NULL)
            copy->u.tensor.device = device;
        return copy;
    }
    copy = coi_tensor_new(heap, device, (co_dtype)tensor->dtype, tensor->u.tensor.dims,
                          tensor->ndim, tensor->u.tensor.num_elements, err);
    if (copy == NULL || copy_data(copy, tensor, err) == CO_OK)
        return copy;
    coi_unref(heap, copy);
    return NULL;
}

co_value *
coi_tensor_on_host(coi_heap *heap, co_value *tensor, co_error_info *err)
{
    if (!coi_is_on_host(tensor))
        return coi_tensor_to(heap, tensor, tensor->u.tensor.device->host, err);
    coi_ref(tensor);
    return tensor;
}

co_value *
coi_tensor_place(coi_heap *heap, co_value *made, co_device *device, co_error_info *err)
{
    co_value *placed;

    if (made == NULL || made->u.tensor.device == device)
        return made;
    placed = coi_tensor_to(heap, made, device, err);
    coi_unref(heap, made);
    return placed;
}

co_value *
coi_tensor_strings(coi_heap *heap, co_device *device, const int64_t *dims, int ndim,
                   int64_t num_elements, const coi_text *texts, co_error_info *err)
{
    size_t    nbytes = (size_t)num_elements * sizeof(coi_text);
    co_value *cell;
    coi_text *table;
    char     *at;

    for (int64_t i = 0; i < num_elements; ++i)
        if (texts[i].nbytes >= PTRDIFF_MAX - nbytes) /* with its zero byte beyond what can be */
            return no_memory(heap, NULL, texts[i].nbytes, device, err);
        else
            nbytes += texts[i].nbytes + 1;
    cell = new_cell(heap, device, CO_STRING, dims, ndim, num_elements);
    if (cell == NULL)
        return no_memory(heap, NULL, nbytes, device, err);
    cell->u.tensor.buffer = coi_buffer_alloc(memory_of(device, CO_STRING), nbytes, err);
    if (cell->u.tensor.buffer == NULL)
        return no_memory(heap, cell, nbytes, device, err);
    table = cell->u.tensor.buffer->data;
    at = (char *)(table + num_elements);
    for (int64_t i = 0; i < num_elements; ++i) {
        if (texts[i].nbytes > 0)
            memcpy(at, texts[i].data, texts[i].nbytes);
        at[texts[i].nbytes] = '\0';
        table[i] = (coi_text){ at, texts[i].nbytes };
        at += texts[i].nbytes + 1;
    }
    cell->u.tensor.data = table;
    return cell;
}
