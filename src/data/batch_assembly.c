/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining elements or stacks of elements into one, for batch and rebatch, if the rows are not
 * already adjacent in one buffer.
 */
#include "data/dataset.h"

#include <string.h>

/* From the heap's cache: a pipeline is opened again every epoch, which should not allocate from the
 * system. */
static bool
make_room(coi_heap *heap, coi_batch_assembly *pieces, size_t need)
{
    size_t     capacity = need > 2 * pieces->capacity ? need : 2 * pieces->capacity;
    co_value **leaves = coi_small_alloc(heap, capacity * sizeof(*leaves));

    if (leaves == NULL)
        return false;
    if (pieces->capacity > 0)
        memcpy(leaves, pieces->leaves, pieces->capacity * sizeof(*leaves));
    coi_small_free(heap, pieces->leaves, pieces->capacity * sizeof(*leaves));
    pieces->leaves = leaves;
    pieces->capacity = capacity;
    return true;
}

co_value **
coi_assembly_room(co_context *ctx, coi_batch_assembly *pieces)
{
    size_t used = pieces->count * pieces->num_leaves, need = used + pieces->num_leaves;

    if (need <= pieces->capacity || make_room(&ctx->heap, pieces, need))
        return pieces->leaves + used;
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu elements of a batch",
             pieces->count + 1);
    return NULL;
}

void
coi_assembly_clear(coi_heap *heap, coi_batch_assembly *pieces)
{
    if (pieces->count > 0)
        coi_leaves_release(heap, pieces->leaves, pieces->count * pieces->num_leaves);
    pieces->count = 0;
}

void
coi_assembly_free(coi_heap *heap, coi_batch_assembly *pieces)
{
    coi_assembly_clear(heap, pieces);
    coi_small_free(heap, pieces->leaves, pieces->capacity * sizeof(*pieces->leaves));
}

int64_t
coi_assembly_collect(co_context *ctx, coi_batch_assembly *pieces, co_iterator *input, bool stacks,
                     int64_t size)
{
    int64_t total = 0;

    while (total < size) {
        co_value **room = coi_assembly_room(ctx, pieces);
        int64_t    got;

        if (room == NULL)
            return COI_ERROR;
        got = stacks ? coi_iterator_rows(ctx, input, size - total, room)
                     : coi_iterator_next(ctx, input, room);
        if (got < 0)
            return got;
        if (got == 0)
            break;
        ++pieces->count;
        total += got;
    }
    return total;
}

/* Stacks are not kept: their rows are not elements of the input. They are broken off where there is
 * something to skip in the middle of them, and nowhere else. */
int64_t
coi_assembly_complete(co_context *ctx, coi_batch_assembly *pieces, const co_iterator *iterator,
                      bool stacks, int64_t size)
{
    int64_t held = (int64_t)pieces->count;
    int64_t got = coi_assembly_collect(ctx, pieces, iterator->input, stacks, size - held);

    if (got >= 0)
        return held + got;
    if (!stacks && coi_was_cancelled(ctx))
        return got;
    if (pieces->count > 0 && coi_was_cancelled(ctx))
        coi_mark_not_checkpointable(ctx, iterator);
    coi_assembly_clear(&ctx->heap, pieces);
    return got;
}

co_value *
coi_row_at(co_context *ctx, co_value *tensor, int64_t k)
{
    int64_t   row = tensor->u.tensor.num_elements / tensor->u.tensor.dims[0];
    co_value *view = coi_tensor_view(&ctx->heap, tensor, tensor->u.tensor.dims + 1,
                                     tensor->ndim - 1, row, k * row, coi_err(ctx));

    if (view == NULL)
        coi_failed(ctx);
    return view;
}

co_value *
coi_row_view(co_context *ctx, co_value *tensor, int64_t begin, int64_t count)
{
    int64_t   dims[CO_MAX_DIMS];
    int64_t   rows = tensor->u.tensor.dims[0];
    int64_t   row = rows > 0 ? tensor->u.tensor.num_elements / rows : 0;
    co_value *view;

    dims[0] = count;
    for (int i = 1; i < tensor->ndim; ++i)
        dims[i] = tensor->u.tensor.dims[i];
    view = coi_tensor_view(&ctx->heap, tensor, dims, tensor->ndim, count * row, begin * row,
                           coi_err(ctx));
    if (view == NULL)
        coi_failed(ctx);
    return view;
}

/* Leaf `leaf` of all pieces: the piece at `i`. */
static co_value *
piece_at(const coi_batch_assembly *pieces, size_t i, size_t leaf)
{
    return pieces->leaves[i * pieces->num_leaves + leaf];
}

static co_code
differing(co_context *ctx, const coi_batch_assembly *pieces, size_t i, size_t leaf)
{
    const co_value *first = piece_at(pieces, 0, leaf), *other = piece_at(pieces, i, leaf);
    char            left[COI_SHAPE_TEXT], right[COI_SHAPE_TEXT];

    return coi_fail(
        ctx, CO_INVALID_ARGUMENT,
        "cannot batch different elements in component %zu: the first is %s %s, element %zu is %s "
        "%s; co_dataset_padded_batch fills up shapes",
        leaf, co_dtype_name((co_dtype)first->dtype),
        coi_shape_text(first->u.tensor.dims, first->ndim, left), i,
        co_dtype_name((co_dtype)other->dtype),
        coi_shape_text(other->u.tensor.dims, other->ndim, right));
}

/* The shape that the pieces make together; CO_INVALID_ARGUMENT if a row of one differs from a row
 * of the first. */
static co_code
joined_shape(co_context *ctx, const coi_batch_assembly *pieces, size_t leaf, bool stacked,
             coi_shape *out)
{
    const co_value *first = piece_at(pieces, 0, leaf);
    int             lead = stacked ? 1 : 0;

    out->ndim = first->ndim + 1 - lead;
    if (out->ndim > CO_MAX_DIMS)
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "component %zu has rank %d; a batch of it would have more "
                        "than %d dimensions",
                        leaf, first->ndim, CO_MAX_DIMS);
    out->dims[0] = stacked ? 0 : (int64_t)pieces->count;
    for (int d = lead; d < first->ndim; ++d)
        out->dims[d + 1 - lead] = first->u.tensor.dims[d];
    for (size_t i = 0; i < pieces->count; ++i) {
        const co_value *piece = piece_at(pieces, i, leaf);

        if (piece->ndim != first->ndim || piece->dtype != first->dtype)
            return differing(ctx, pieces, i, leaf);
        for (int d = lead; d < first->ndim; ++d)
            if (piece->u.tensor.dims[d] != first->u.tensor.dims[d])
                return differing(ctx, pieces, i, leaf);
        if (stacked)
            out->dims[0] += piece->u.tensor.dims[0];
    }
    return CO_OK;
}

static void
copy_bytes(const coi_batch_assembly *pieces, size_t leaf, void *out)
{
    char *at = out;

    for (size_t i = 0; i < pieces->count; ++i) {
        const co_value *piece = piece_at(pieces, i, leaf);
        size_t          nbytes = coi_tensor_nbytes(piece);

        if (nbytes > 0)
            memcpy(at, coi_data_on_host(piece), nbytes);
        at += nbytes;
    }
}

/* Strings own their bytes in the buffer of their tensor, so they are gathered and then copied. */
static co_value *
join_strings(co_context *ctx, const coi_batch_assembly *pieces, size_t leaf, co_device *device,
             const coi_shape *shape, int64_t num_elements)
{
    size_t    nbytes = (size_t)(num_elements > 0 ? num_elements : 1) * sizeof(coi_text);
    coi_text *texts = coi_small_alloc(&ctx->heap, nbytes);
    co_value *joined;

    if (texts == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a batch of %lld strings",
                 (long long)num_elements);
        return NULL;
    }
    copy_bytes(pieces, leaf, texts);
    joined = coi_tensor_strings(&ctx->heap, device, shape->dims, shape->ndim, num_elements, texts,
                                coi_err(ctx));
    coi_small_free(&ctx->heap, texts, nbytes);
    return joined;
}

static co_value *
join_leaf(co_context *ctx, const coi_batch_assembly *pieces, size_t leaf, bool stacked)
{
    co_dtype   dtype = (co_dtype)piece_at(pieces, 0, leaf)->dtype;
    co_device *device = coi_data_device(ctx);
    size_t     size = dtype == CO_STRING ? sizeof(coi_text) : coi_dtypes[dtype].size;
    coi_shape  shape;
    int64_t    num_elements;
    co_value  *joined;

    if (device == NULL || joined_shape(ctx, pieces, leaf, stacked, &shape) != CO_OK)
        return NULL;
    if (coi_shape_check(shape.dims, (size_t)shape.ndim, size, &num_elements, coi_err(ctx)) !=
        CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    if (dtype == CO_STRING) {
        joined = join_strings(ctx, pieces, leaf, device, &shape, num_elements);
    } else {
        joined = coi_tensor_new(&ctx->heap, device, dtype, shape.dims, shape.ndim, num_elements,
                                coi_err(ctx));
        if (joined != NULL)
            copy_bytes(pieces, leaf, coi_data_on_host(joined));
    }
    if (joined == NULL)
        coi_failed(ctx);
    return joined;
}

co_code
coi_assembly_join(co_context *ctx, coi_batch_assembly *pieces, bool stacked, co_value **leaves)
{
    if (stacked && pieces->count == 1) { /* the usual case: the rows already lie side by side */
        memcpy(leaves, pieces->leaves, pieces->num_leaves * sizeof(*leaves));
        pieces->count = 0;
        return CO_OK;
    }
    for (size_t leaf = 0; leaf < pieces->num_leaves; ++leaf) {
        leaves[leaf] = join_leaf(ctx, pieces, leaf, stacked);
        if (leaves[leaf] == NULL) {
            coi_leaves_release(&ctx->heap, leaves, leaf);
            coi_assembly_clear(&ctx->heap, pieces);
            return ctx->error.code;
        }
    }
    coi_assembly_clear(&ctx->heap, pieces);
    return CO_OK;
}
