/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CEIL splitter (DS-SPLIT-1): every element of m rows becomes n slices of ceil(m / n) rows, the
 * last ones shorter or empty; or n slices by weights, which end at coi_share_end. Components are
 * cut independently along dimension 0 (DS-DIST-9). Slices share the memory of the element; a slice
 * that is skipped costs nothing.
 */
#include "data/iterator_checkpoint.h"

#include <string.h>

typedef struct split_dataset {
    co_dataset base;
    int        n;
    int64_t   *parts; /* sums of the weights of slices 0 to k; NULL: equal slices */
} split_dataset;

typedef struct split_iterator {
    co_iterator base;
    co_value  **element; /* the element being cut; references while `cutting` */
    bool        cutting;
    int         slice; /* the next one */
} split_iterator;

static size_t
element_size(const co_iterator *iterator)
{
    return iterator->dataset->num_leaves * sizeof(co_value *);
}

static co_code
split_open(co_context *ctx, co_iterator *iterator)
{
    split_iterator *self = (split_iterator *)iterator;

    self->element = coi_small_alloc(&ctx->heap, element_size(iterator));
    if (self->element == NULL)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an iterator (split)");
    return CO_OK;
}

static void
let_go(coi_heap *heap, co_iterator *iterator)
{
    split_iterator *self = (split_iterator *)iterator;

    if (self->cutting)
        coi_leaves_release(heap, self->element, iterator->dataset->num_leaves);
    self->cutting = false;
}

static void
split_close(coi_heap *heap, co_iterator *iterator)
{
    let_go(heap, iterator);
    coi_small_free(heap, ((split_iterator *)iterator)->element, element_size(iterator));
}

/* Every component has rows; without, the element is dropped. */
static bool
check_cut(co_context *ctx, co_iterator *iterator)
{
    split_iterator *self = (split_iterator *)iterator;

    for (size_t i = 0; i < iterator->dataset->num_leaves; ++i)
        if (self->element[i]->ndim == 0) {
            coi_fail(ctx, CO_VALUE_ERROR,
                     "component %zu of an element is a scalar and cannot be split over %d "
                     "replicas; batch the dataset first",
                     i, ((const split_dataset *)iterator->dataset)->n);
            let_go(&ctx->heap, iterator);
            return false;
        }
    return true;
}

/* Have an element with a slice left to give. */
static int
ready(co_context *ctx, co_iterator *iterator)
{
    split_iterator *self = (split_iterator *)iterator;
    int             got;

    if (self->cutting && self->slice < ((const split_dataset *)iterator->dataset)->n)
        return COI_ELEMENT;
    let_go(&ctx->heap, iterator);
    got = coi_iterator_next(ctx, iterator->input, self->element);
    if (got != COI_ELEMENT)
        return got;
    self->cutting = true;
    self->slice = 0;
    return check_cut(ctx, iterator) ? COI_ELEMENT : COI_ERROR;
}

static co_value *
cut(co_context *ctx, const split_dataset *split, co_value *tensor, int slice)
{
    int64_t rows = tensor->u.tensor.dims[0], n = split->n;
    int64_t each = rows / n + (rows % n != 0);
    int64_t begin = each == 0 || slice > rows / each ? rows : slice * each;
    int64_t end = rows - begin < each ? rows : begin + each;

    if (split->parts != NULL) {
        begin = slice == 0 ? 0 : coi_share_end(rows, split->parts[slice - 1], split->parts[n - 1]);
        end = coi_share_end(rows, split->parts[slice], split->parts[n - 1]);
    }
    return coi_row_view(ctx, tensor, begin, end - begin);
}

static int
split_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const split_dataset *split = (const split_dataset *)iterator->dataset;
    split_iterator      *self = (split_iterator *)iterator;
    int                  got = ready(ctx, iterator);

    if (got != COI_ELEMENT)
        return got;
    for (size_t i = 0; i < iterator->dataset->num_leaves; ++i) {
        leaves[i] = cut(ctx, split, self->element[i], self->slice);
        if (leaves[i] == NULL) {
            coi_leaves_release(&ctx->heap, leaves, i);
            return COI_ERROR;
        }
    }
    if (++self->slice == split->n)
        let_go(&ctx->heap, iterator);
    return COI_ELEMENT;
}

static int64_t
split_skip(co_context *ctx, co_iterator *iterator, int64_t n)
{
    split_iterator *self = (split_iterator *)iterator;
    int64_t         skipped = 0;

    while (skipped < n) {
        int     got = ready(ctx, iterator);
        int64_t here;

        if (got != COI_ELEMENT)
            return got < 0 ? got : skipped;
        here = ((const split_dataset *)iterator->dataset)->n - self->slice;
        here = here < n - skipped ? here : n - skipped;
        self->slice += (int)here;
        skipped += here;
    }
    return skipped;
}

COI_RARE static bool
split_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    split_iterator *self = (split_iterator *)iterator;
    int64_t         slice = self->slice;
    bool            cutting = self->cutting;

    if (!coi_checkpoint_flag(ctx, p, &cutting) ||
        !coi_checkpoint_number(ctx, p, &slice, 0, ((const split_dataset *)iterator->dataset)->n))
        return false;
    self->slice = (int)slice;
    if (!cutting)
        return true;
    if (!coi_checkpoint_leaves(ctx, p, iterator->dataset->inputs[0], self->element))
        return false;
    self->cutting = true;
    return check_cut(ctx, iterator);
}

COI_RARE static void
split_destroy(coi_heap *heap, co_dataset *dataset)
{
    split_dataset *self = (split_dataset *)dataset;

    coi_small_free(heap, self->parts, (size_t)self->n * sizeof(*self->parts));
}

static const coi_dataset_ops split_ops = {
    .name = "split",
    .dataset_size = sizeof(split_dataset),
    .iterator_size = sizeof(split_iterator),
    .next = split_next,
    .open = split_open,
    .close = split_close,
    .destroy = split_destroy,
    .skip = split_skip,
    .keeps = true,
    .checkpoint = split_checkpoint,
};

COI_RARE co_dataset *
coi_split_new(co_context *ctx, co_dataset *input, int n, const int64_t *parts)
{
    int64_t        slices = input->cardinality;
    size_t         nbytes = (size_t)n * sizeof(*parts);
    co_dataset    *dataset;
    split_dataset *self;

    if (slices > 0 && __builtin_mul_overflow(slices, (int64_t)n, &slices))
        slices = CO_UNKNOWN_CARDINALITY;
    dataset = coi_dataset_new(ctx, &split_ops, &input, 1,
                              coi_spec_split(ctx, input->spec, parts == NULL ? n : 0), slices);
    self = (split_dataset *)dataset;
    if (dataset == NULL)
        return NULL;
    self->n = n;
    coi_dataset_mark(dataset, n);
    for (int i = 0; parts != NULL && i < n; ++i)
        coi_dataset_mark(dataset, parts[i]);
    if (parts == NULL)
        return dataset;
    self->parts = coi_small_alloc(&ctx->heap, nbytes);
    if (self->parts != NULL) {
        memcpy(self->parts, parts, nbytes);
        return dataset;
    }
    coi_unref(&ctx->heap, dataset);
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a dataset (split)");
    return NULL;
}
