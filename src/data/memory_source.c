/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources in memory: a range of integers, tensors as they are, slices of tensors.
 */
#include "data/iterator_checkpoint.h"

/* --- range --- */

typedef struct range_dataset {
    co_dataset base;
    int64_t    start, step;
} range_dataset;

typedef struct range_iterator {
    co_iterator base;
    int64_t     done;   /* elements given */
    co_device  *device; /* of ranges; NULL until first needed */
} range_iterator;

/* In unsigned arithmetic: the distance between two int64 can be larger than an int64. False if the
 * count is. */
COI_RARE static bool
range_count(int64_t start, int64_t stop, int64_t step, int64_t *count)
{
    uint64_t distance, stride, n;

    if (step > 0 ? start >= stop : start <= stop) {
        *count = 0;
        return true;
    }
    distance = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    n = (distance - 1) / stride + 1;
    *count = (int64_t)n;
    return n <= INT64_MAX;
}

static int64_t
left(const co_iterator *iterator, int64_t done, int64_t max)
{
    int64_t rest = iterator->dataset->cardinality - done;

    return rest < max ? rest : max;
}

/* Unsigned, because the number past the last one may not fit. Four at a time, because each number
 * would otherwise wait for the one before it. */
static void
fill_range(uint64_t *out, int64_t n, uint64_t number, uint64_t step)
{
    int64_t i = 0;

    for (; i + 4 <= n; i += 4, number += 4 * step) {
        out[i] = number;
        out[i + 1] = number + step;
        out[i + 2] = number + 2 * step;
        out[i + 3] = number + 3 * step;
    }
    for (; i < n; ++i, number += step)
        out[i] = number;
}

/* n numbers; ndim 0 makes a scalar of the first. */
static int64_t
range_make(co_context *ctx, co_iterator *iterator, int64_t n, int ndim, co_value **leaves)
{
    const range_dataset *range = (const range_dataset *)iterator->dataset;
    range_iterator      *self = (range_iterator *)iterator;
    uint64_t             step = (uint64_t)range->step;
    co_value            *tensor;

    if (self->device == NULL)
        self->device = coi_data_device(ctx);
    if (self->device == NULL)
        return COI_ERROR;
    tensor = coi_tensor_new(&ctx->heap, self->device, CO_INT64, &n, ndim, n, coi_err(ctx));
    if (tensor == NULL) {
        coi_failed(ctx);
        return COI_ERROR;
    }
    fill_range(coi_data_on_host(tensor), n, (uint64_t)range->start + step * (uint64_t)self->done,
               step);
    self->done += n;
    leaves[0] = tensor;
    return n;
}

static int
range_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    if (left(iterator, ((range_iterator *)iterator)->done, 1) == 0)
        return COI_END;
    return (int)range_make(ctx, iterator, 1, 0, leaves);
}

static int64_t
range_rows(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves)
{
    int64_t n = left(iterator, ((range_iterator *)iterator)->done, max);

    return n == 0 ? COI_END : range_make(ctx, iterator, n, 1, leaves);
}

static int64_t
range_skip(co_context *ctx, co_iterator *iterator, int64_t n)
{
    range_iterator *self = (range_iterator *)iterator;
    int64_t         skipped = left(iterator, self->done, n);

    (void)ctx;
    self->done += skipped;
    return skipped;
}

/* Of all three sources, whose iterators begin alike. */
COI_RARE static bool
source_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    return coi_checkpoint_number(ctx, p, &((range_iterator *)iterator)->done, 0,
                                 iterator->dataset->cardinality);
}

static const coi_dataset_ops range_ops = {
    .name = "range",
    .dataset_size = sizeof(range_dataset),
    .iterator_size = sizeof(range_iterator),
    .next = range_next,
    .rows = range_rows,
    .skip = range_skip,
    .checkpoint = source_checkpoint,
    .shows = " from #0, step #1",
    .numbers = offsetof(range_dataset, start),
};

COI_RARE co_dataset *
coi_range_new(co_context *ctx, int64_t start, int64_t step, int64_t count)
{
    co_dataset *dataset = coi_dataset_new(ctx, &range_ops, NULL, 0,
                                          coi_spec_new(ctx, CO_INT64, NULL, 0), count);

    if (dataset == NULL)
        return NULL;
    ((range_dataset *)dataset)->start = start;
    ((range_dataset *)dataset)->step = step;
    coi_dataset_mark(dataset, start);
    coi_dataset_mark(dataset, step);
    return dataset;
}

COI_RARE co_dataset *
co_dataset_range(co_context *ctx, int64_t start, int64_t stop, int64_t step)
{
    int64_t count;

    COI_ENTER(ctx, "dataset_range", NULL);
    if (step == 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 4 (step) is 0; it must be positive or negative");
        return NULL;
    }
    if (!range_count(start, stop, step, &count)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "range(%lld, %lld, %lld) has more than 2^63 - 1 elements; use a larger step",
                 (long long)start, (long long)stop, (long long)step);
        return NULL;
    }
    return coi_dataset_give(ctx, coi_range_new(ctx, start, step, count));
}

/* --- tensors, whole and in slices --- */

typedef struct tensor_dataset {
    co_dataset base;
    co_value  *structure; /* of tensors on the host */
    co_value **tensors;   /* its leaves, borrowed; as many as base.num_leaves */
} tensor_dataset;

typedef range_iterator tensor_iterator;

COI_RARE static void
tensor_destroy(coi_heap *heap, co_dataset *dataset)
{
    tensor_dataset *self = (tensor_dataset *)dataset;

    coi_small_free(heap, self->tensors, dataset->num_leaves * sizeof(*self->tensors));
    coi_unref(heap, self->structure);
}

/* Whether a list holds nothing but host numbers, which convert together (an int beside a float
 * becomes a float). */
COI_RARE static bool
is_numbers(const co_value *value)
{
    if (value->kind != CO_KIND_LIST)
        return coi_kind_of(value)->stored != CO_DTYPE_NONE;
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (!is_numbers(value->u.items.items[i]))
            return false;
    return true;
}

/* A list of anything else: its items as tensors, stacked (NP-2). */
COI_RARE static co_value *
stack_items(co_context *ctx, const co_value *list)
{
    coi_batch_assembly pieces = { .num_leaves = 1 };
    co_value          *stacked = NULL;

    for (size_t i = 0; i < list->u.items.n; ++i) {
        co_value **room = coi_assembly_room(ctx, &pieces);

        if (room != NULL)
            *room = coi_data_tensor(ctx, list->u.items.items[i], CO_DTYPE_NONE);
        if (room == NULL || *room == NULL)
            break;
        ++pieces.count;
    }
    if (ctx->error.code == CO_OK)
        coi_assembly_join(ctx, &pieces, false, &stacked);
    coi_assembly_free(&ctx->heap, &pieces);
    return stacked;
}

/* Whether a host value is of a kind that becomes the dtype. Operators call it a wrong argument;
 * where a spec says what elements are, it is one of another dtype. */
static bool
check_host(co_context *ctx, const co_value *leaf, co_dtype dtype)
{
    bool becomes = !coi_is_host(leaf) || coi_kind_of(leaf)->becomes(dtype);

    if (!becomes)
        coi_fail(ctx, CO_TYPE_ERROR, "%s does not convert to %s; give a value of that dtype",
                 coi_a_kind(leaf->kind), co_dtype_name(dtype));
    return becomes;
}

co_value *
coi_data_tensor(co_context *ctx, co_value *leaf, co_dtype dtype)
{
    co_device *device = coi_data_device(ctx);
    co_value  *tensor, *here;

    if (device == NULL || (dtype != CO_DTYPE_NONE && !check_host(ctx, leaf, dtype)))
        return NULL;
    if (leaf->kind == CO_KIND_LIST && !is_numbers(leaf))
        return stack_items(ctx, leaf);
    tensor = coi_as_tensor(ctx, leaf,
                           coi_host_dtype(leaf) != CO_DTYPE_NONE ? dtype : CO_DTYPE_NONE);

    if (tensor == NULL || tensor->u.tensor.device == device)
        return tensor;
    here = coi_copy_tensor(ctx, tensor, device);
    if (here == NULL)
        coi_failed(ctx);
    coi_unref(&ctx->heap, tensor);
    return here;
}

/* The structure with tensors as leaves. Lists are leaves here, as they are for tf.data: they become
 * one tensor. */
static co_value *
to_tensors(co_context *ctx, co_value *value)
{
    co_value *made;

    if (!coi_is_structure(value) || value->kind == CO_KIND_LIST)
        return coi_data_tensor(ctx, value, CO_DTYPE_NONE);
    made = coi_structure_like(&ctx->heap, value, coi_err(ctx));
    if (made == NULL) {
        coi_failed(ctx);
        return NULL;
    }
    for (size_t i = 0; i < value->u.items.n; ++i) {
        made->u.items.items[i] = to_tensors(ctx, value->u.items.items[i]);
        if (made->u.items.items[i] == NULL) {
            coi_unref(&ctx->heap, made);
            return NULL;
        }
    }
    if (coi_structure_seal(made, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        coi_unref(&ctx->heap, made);
        return NULL;
    }
    return made;
}

/* The spec of a tensor without its first *arg (int) dimensions. */
COI_RARE static co_value *
tensor_spec(co_context *ctx, const co_value *tensor, const void *arg)
{
    int cut = *(const int *)arg;

    return coi_spec_new(ctx, (co_dtype)tensor->dtype, tensor->u.tensor.dims + cut,
                        tensor->ndim - cut);
}

/* A dataset over a structure of tensors, whose reference it takes over, also when it fails. */
COI_RARE static co_dataset *
tensor_dataset_new(co_context *ctx, const coi_dataset_ops *ops, co_value *structure, int cut,
                   int64_t cardinality)
{
    co_dataset     *dataset = coi_dataset_new(ctx, ops, NULL, 0,
                                              coi_spec_map(ctx, structure, tensor_spec, &cut),
                                              cardinality);
    tensor_dataset *self = (tensor_dataset *)dataset;

    if (dataset == NULL) {
        coi_unref(&ctx->heap, structure);
        return NULL;
    }
    self->structure = structure;
    self->tensors = coi_small_alloc(&ctx->heap, dataset->num_leaves * sizeof(*self->tensors));
    if (self->tensors == NULL) {
        coi_unref(&ctx->heap, dataset);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a dataset (%s)", ops->name);
        return NULL;
    }
    coi_collect_leaves(structure, self->tensors);
    return dataset;
}

static int
whole_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    tensor_dataset  *tensors = (tensor_dataset *)iterator->dataset;
    tensor_iterator *self = (tensor_iterator *)iterator;

    (void)ctx;
    if (self->done == 1)
        return COI_END;
    self->done = 1;
    for (size_t i = 0; i < tensors->base.num_leaves; ++i) {
        coi_ref(tensors->tensors[i]);
        leaves[i] = tensors->tensors[i];
    }
    return COI_ELEMENT;
}

static const coi_dataset_ops whole_ops = {
    .name = "from_tensors",
    .dataset_size = sizeof(tensor_dataset),
    .iterator_size = sizeof(tensor_iterator),
    .next = whole_next,
    .destroy = tensor_destroy,
    .checkpoint = source_checkpoint,
};

/* Views of rows [done, done + n): without dimension 0 when n is 0, which means one. */
static int64_t
slices_make(co_context *ctx, co_iterator *iterator, int64_t n, co_value **leaves)
{
    tensor_dataset  *tensors = (tensor_dataset *)iterator->dataset;
    tensor_iterator *self = (tensor_iterator *)iterator;

    for (size_t i = 0; i < tensors->base.num_leaves; ++i) {
        co_value *tensor = tensors->tensors[i];

        leaves[i] = n > 0 ? coi_row_view(ctx, tensor, self->done, n)
                          : coi_row_at(ctx, tensor, self->done);
        if (leaves[i] == NULL) {
            coi_leaves_release(&ctx->heap, leaves, i);
            return COI_ERROR;
        }
    }
    n = n > 0 ? n : 1;
    self->done += n;
    return n;
}

static int
slices_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    if (left(iterator, ((tensor_iterator *)iterator)->done, 1) == 0)
        return COI_END;
    return (int)slices_make(ctx, iterator, 0, leaves);
}

static int64_t
slices_rows(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves)
{
    int64_t n = left(iterator, ((tensor_iterator *)iterator)->done, max);

    return n == 0 ? COI_END : slices_make(ctx, iterator, n, leaves);
}

static int64_t
slices_skip(co_context *ctx, co_iterator *iterator, int64_t n)
{
    tensor_iterator *self = (tensor_iterator *)iterator;
    int64_t          skipped = left(iterator, self->done, n);

    (void)ctx;
    self->done += skipped;
    return skipped;
}

static const coi_dataset_ops slices_ops = {
    .name = "from_tensor_slices",
    .dataset_size = sizeof(tensor_dataset),
    .iterator_size = sizeof(tensor_iterator),
    .next = slices_next,
    .rows = slices_rows,
    .skip = slices_skip,
    .destroy = tensor_destroy,
    .checkpoint = source_checkpoint,
};

/* Check and convert the argument of both sources. NULL with an error. */
static co_value *
take_structure(co_context *ctx, co_value *structure)
{
    co_value *tensors;

    if (!coi_check_value(ctx, structure, 2, "structure"))
        return NULL;
    tensors = to_tensors(ctx, structure);
    if (tensors != NULL && coi_count_leaves(tensors) == 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 2 (structure) has no leaves; an element needs at least one tensor");
        coi_unref(&ctx->heap, tensors);
        return NULL;
    }
    return tensors;
}

/* The common dimension 0, -1 with an error. `at` counts the leaves seen. */
static int64_t
common_rows(co_context *ctx, const co_value *tensors, int64_t rows, size_t *at)
{
    if (coi_is_structure(tensors)) {
        for (size_t i = 0; i < tensors->u.items.n; ++i) {
            rows = common_rows(ctx, tensors->u.items.items[i], rows, at);
            if (ctx->error.code != CO_OK)
                return -1;
        }
        return rows;
    }
    if (tensors->ndim == 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "component %zu is a scalar, which has no slices; every component needs rank "
                 "1 or more, or use from_tensors",
                 *at);
        return -1;
    }
    if (*at > 0 && tensors->u.tensor.dims[0] != rows) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "component %zu has %lld slice%s, component 0 has %lld; dimension 0 must agree",
                 *at, (long long)tensors->u.tensor.dims[0], COI_S(tensors->u.tensor.dims[0]),
                 (long long)rows);
        return -1;
    }
    ++*at;
    return tensors->u.tensor.dims[0];
}

COI_RARE co_dataset *
co_dataset_from_tensors(co_context *ctx, co_value *structure)
{
    co_value *tensors;

    COI_ENTER(ctx, "dataset_from_tensors", NULL);
    tensors = take_structure(ctx, structure);
    if (tensors == NULL)
        return NULL;
    return coi_dataset_give(ctx, tensor_dataset_new(ctx, &whole_ops, tensors, 0, 1));
}

COI_RARE co_dataset *
co_dataset_from_tensor_slices(co_context *ctx, co_value *structure)
{
    co_value *tensors;
    int64_t   rows;
    size_t    at = 0;

    COI_ENTER(ctx, "dataset_from_tensor_slices", NULL);
    tensors = take_structure(ctx, structure);
    if (tensors == NULL)
        return NULL;
    rows = common_rows(ctx, tensors, 0, &at);
    if (rows < 0) {
        coi_unref(&ctx->heap, tensors);
        return NULL;
    }
    return coi_dataset_give(ctx, tensor_dataset_new(ctx, &slices_ops, tensors, 1, rows));
}
