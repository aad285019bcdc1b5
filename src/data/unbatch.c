/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unbatch: the rows of every element, one by one, as views of it.
 */
#include "data/iterator_checkpoint.h"

typedef struct unbatch_iterator {
    coi_stage_iterator base; /* element: references while there are rows left in it */
    int64_t            rows, at;
} unbatch_iterator;

static void
let_go(coi_heap *heap, co_iterator *iterator)
{
    unbatch_iterator *self = (unbatch_iterator *)iterator;

    if (self->rows > 0)
        coi_leaves_release(heap, self->base.element, iterator->dataset->num_leaves);
    self->rows = self->at = 0;
}

static void
unbatch_close(coi_heap *heap, co_iterator *iterator)
{
    let_go(heap, iterator);
    coi_stage_close(heap, iterator);
}

static int
unbatch_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    unbatch_iterator *self = (unbatch_iterator *)iterator;
    size_t            n = iterator->dataset->num_leaves;

    while (self->at == self->rows) { /* elements without rows are passed over */
        int     got;
        int64_t rows;

        let_go(&ctx->heap, iterator);
        got = coi_stage_pull(ctx, iterator);
        if (got != COI_ELEMENT)
            return got;
        rows = coi_agreed_rows(ctx, self->base.element, n);
        if (rows <= 0)
            coi_leaves_release(&ctx->heap, self->base.element, n);
        if (rows < 0)
            return coi_user_callback_error(ctx, iterator);
        self->rows = rows;
    }
    for (size_t i = 0; i < n; ++i) {
        leaves[i] = coi_row_at(ctx, self->base.element[i], self->at);
        if (leaves[i] == NULL) {
            coi_leaves_release(&ctx->heap, leaves, i);
            return COI_ERROR;
        }
    }
    ++self->at;
    return COI_ELEMENT;
}

static bool
unbatch_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    unbatch_iterator *self = (unbatch_iterator *)iterator;

    return coi_checkpoint_stage(ctx, iterator, p) &&
           coi_checkpoint_cut(ctx, p, iterator, self->base.element, &self->rows, &self->at);
}

/* Elements of a known number of rows; with 0 rows it is not known whether there are elements at
 * all. */
static int64_t
unbatch_count(const co_dataset *dataset)
{
    const co_dataset *input = dataset->inputs[0];
    int64_t           rows = coi_spec_rows(NULL, input), n;

    if (input->cardinality < 0)
        return input->cardinality;
    return rows > 0 && !__builtin_mul_overflow(input->cardinality, rows, &n)
               ? n
               : CO_UNKNOWN_CARDINALITY;
}

static co_value *
row_leaf(co_context *ctx, const co_value *spec, const void *arg)
{
    (void)arg;
    if (spec->ndim != 0)
        return coi_spec_new(ctx, (co_dtype)spec->dtype, spec->u.tensor.dims + 1,
                            spec->ndim < 0 ? -1 : spec->ndim - 1);
    coi_fail(ctx, CO_VALUE_ERROR, "elements with a scalar have no rows; batch the dataset first");
    return NULL;
}

static co_dataset *
unbatch_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    return coi_stage_remake(ctx, dataset, inputs,
                            coi_spec_map(ctx, inputs[0]->spec, row_leaf, NULL));
}

static const coi_dataset_ops unbatch_ops = {
    .name = "unbatch",
    .dataset_size = sizeof(coi_stage),
    .iterator_size = sizeof(unbatch_iterator),
    .next = unbatch_next,
    .keeps = true,
    .checkpoint = unbatch_checkpoint,
    .open = coi_stage_open,
    .close = unbatch_close,
    .with_inputs = unbatch_with_inputs,
    .count = unbatch_count,
    .tracks = COI_REMADE_ROWS,
};

co_dataset *
co_dataset_unbatch(co_context *ctx, co_dataset *input)
{
    coi_stage_args args = { .flag = false };
    co_dataset    *dataset;

    COI_ENTER(ctx, "dataset_unbatch", NULL);
    if (!coi_check_input(ctx, input, 2, "input") || coi_spec_rows(ctx, input) < -1)
        return NULL;
    dataset = coi_stage_new(ctx, &unbatch_ops, &input, 1,
                            coi_spec_map(ctx, input->spec, row_leaf, NULL), &args);
    if (dataset != NULL)
        dataset->batch_size = CO_UNKNOWN_BATCH_SIZE;
    return coi_dataset_give(ctx, dataset);
}
