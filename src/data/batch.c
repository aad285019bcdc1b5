/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch: consecutive elements as one. An input that stacks (a range, slices of tensors) gives whole
 * batches, which are views or one loop; other inputs give single elements, which are copied
 * together.
 */
#include "data/iterator_checkpoint.h"

typedef struct batch_dataset {
    co_dataset base;
    int64_t    size, drop_remainder;
} batch_dataset;

typedef struct batch_iterator {
    co_iterator        base;
    coi_batch_assembly pieces;
} batch_iterator;

static co_code
batch_open(co_context *ctx, co_iterator *iterator)
{
    (void)ctx;
    ((batch_iterator *)iterator)->pieces.num_leaves = iterator->dataset->num_leaves;
    return CO_OK;
}

static void
batch_close(coi_heap *heap, co_iterator *iterator)
{
    coi_assembly_free(heap, &((batch_iterator *)iterator)->pieces);
}

static int
batch_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const batch_dataset *batch = (const batch_dataset *)iterator->dataset;
    coi_batch_assembly  *pieces = &((batch_iterator *)iterator)->pieces;
    int64_t total = coi_assembly_complete(ctx, pieces, iterator, iterator->input->stacks,
                                          batch->size);

    if (total < 0)
        return COI_ERROR;
    if (total == 0 || (batch->drop_remainder && total < batch->size)) {
        coi_assembly_clear(&ctx->heap, pieces);
        return COI_END;
    }
    if (coi_assembly_join(ctx, pieces, iterator->input->stacks, leaves) != CO_OK)
        return COI_ERROR;
    return COI_ELEMENT;
}

/* Between two elements there are pieces only after a cancellation. */
COI_RARE static bool
batch_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    int64_t most = iterator->input->stacks ? 0
                                           : ((const batch_dataset *)iterator->dataset)->size - 1;

    return coi_checkpoint_assembly(ctx, p, iterator->dataset->inputs[0], most,
                                   &((batch_iterator *)iterator)->pieces);
}

co_value *
coi_spec_batch(co_context *ctx, const co_value *spec, const void *arg)
{
    int64_t dims[CO_MAX_DIMS];

    if (spec->ndim < 0)
        return coi_spec_new(ctx, (co_dtype)spec->dtype, NULL, -1);
    if (spec->ndim >= CO_MAX_DIMS) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "elements of rank %d cannot be batched; a tensor has at most %d "
                 "dimensions",
                 spec->ndim, CO_MAX_DIMS);
        return NULL;
    }
    dims[0] = *(const int64_t *)arg;
    for (int i = 0; i < spec->ndim; ++i)
        dims[i + 1] = spec->u.tensor.dims[i];
    return coi_spec_new(ctx, (co_dtype)spec->dtype, dims, spec->ndim + 1);
}

COI_RARE int64_t
coi_batch_cardinality(int64_t n, int64_t size, bool drop_remainder)
{
    if (n < 0)
        return n;
    return n / size + (!drop_remainder && n % size != 0);
}

static const coi_dataset_ops batch_ops;

COI_RARE co_dataset *
coi_batch_new(co_context *ctx, co_dataset *input, int64_t size, bool drop_remainder)
{
    int64_t     dim = drop_remainder ? size : -1;
    co_value   *spec = coi_spec_map(ctx, input->spec, coi_spec_batch, &dim);
    co_dataset *dataset = coi_dataset_new(ctx, &batch_ops, &input, 1, spec,
                                          coi_batch_cardinality(input->cardinality, size,
                                                                drop_remainder));

    if (dataset == NULL)
        return NULL;
    dataset->batch_size = size;
    ((batch_dataset *)dataset)->size = size;
    coi_dataset_mark(dataset, drop_remainder ? -size : size);
    ((batch_dataset *)dataset)->drop_remainder = drop_remainder;
    return dataset;
}

COI_RARE static co_dataset *
batch_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    const batch_dataset *self = (const batch_dataset *)dataset;

    return coi_batch_new(ctx, inputs[0], self->size, self->drop_remainder);
}

static const coi_dataset_ops batch_ops = {
    .name = "batch",
    .dataset_size = sizeof(batch_dataset),
    .iterator_size = sizeof(batch_iterator),
    .next = batch_next,
    .open = batch_open,
    .close = batch_close,
    .with_inputs = batch_with_inputs,
    .tracks = COI_REMADE,
    .keeps = true,
    .checkpoint = batch_checkpoint,
    .shows = " of #0?1, remainder dropped;",
    .numbers = offsetof(batch_dataset, size),
};

COI_RARE co_dataset *
co_dataset_batch(co_context *ctx, co_dataset *input, int64_t size, bool drop_remainder)
{
    COI_ENTER(ctx, "dataset_batch", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    if (size < 1) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (size) is %lld; a batch has 1 element or more", (long long)size);
        return NULL;
    }
    return coi_dataset_give(ctx, coi_batch_new(ctx, input, size, drop_remainder));
}
