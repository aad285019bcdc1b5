/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebatch: the rows of all elements as one stream, cut anew by a cycle of sizes. It is also the
 * SCHEDULE splitter (DS-SPLIT-2, DS-SPLIT-9). A piece that lies in one element is a view; one that
 * spans several is copied.
 */
#include "data/iterator_checkpoint.h"

typedef struct rebatch_dataset {
    co_dataset base;
    int64_t   *sizes;
    size_t     num_sizes;
    bool       drop_remainder;
    int64_t    parts; /* see coi_rebatch_new */
} rebatch_dataset;

typedef struct rebatch_iterator {
    co_iterator base;
    size_t      at;      /* in sizes */
    co_value  **element; /* the element being cut; references while there are rows left in it */
    int64_t     rows, begin;
    coi_batch_assembly pieces;
} rebatch_iterator;

static size_t
element_size(const co_iterator *iterator)
{
    return iterator->dataset->num_leaves * sizeof(co_value *);
}

static co_code
rebatch_open(co_context *ctx, co_iterator *iterator)
{
    rebatch_iterator *self = (rebatch_iterator *)iterator;

    self->pieces.num_leaves = iterator->dataset->num_leaves;
    self->element = coi_small_alloc(&ctx->heap, element_size(iterator));
    if (self->element == NULL)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an iterator (rebatch)");
    return CO_OK;
}

static void
let_go(coi_heap *heap, co_iterator *iterator)
{
    rebatch_iterator *self = (rebatch_iterator *)iterator;

    if (self->rows > 0)
        coi_leaves_release(heap, self->element, iterator->dataset->num_leaves);
    self->rows = self->begin = 0;
}

static void
rebatch_close(coi_heap *heap, co_iterator *iterator)
{
    rebatch_iterator *self = (rebatch_iterator *)iterator;

    let_go(heap, iterator);
    coi_assembly_free(heap, &self->pieces);
    coi_small_free(heap, self->element, element_size(iterator));
}

int64_t
coi_agreed_rows(co_context *ctx, co_value *const *leaves, size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        if (leaves[i]->ndim == 0) {
            coi_fail(
                ctx, CO_VALUE_ERROR,
                "component %zu of an element is a scalar and has no rows; batch the dataset first",
                i);
            return -1;
        }
        if (leaves[i]->u.tensor.dims[0] != leaves[0]->u.tensor.dims[0]) {
            coi_fail(
                ctx, CO_INVALID_ARGUMENT,
                "component %zu of an element has %lld row%s, component 0 has %lld; they must agree",
                i, (long long)leaves[i]->u.tensor.dims[0], COI_S(leaves[i]->u.tensor.dims[0]),
                (long long)leaves[0]->u.tensor.dims[0]);
            return -1;
        }
    }
    return leaves[0]->u.tensor.dims[0];
}

/* Have an element with a row left in it; elements without rows are passed over. */
static int
ready(co_context *ctx, co_iterator *iterator)
{
    rebatch_iterator *self = (rebatch_iterator *)iterator;
    size_t            n = iterator->dataset->num_leaves;

    while (self->begin == self->rows) {
        int     got;
        int64_t rows;

        let_go(&ctx->heap, iterator);
        got = coi_iterator_next(ctx, iterator->input, self->element);
        if (got != COI_ELEMENT)
            return got;
        rows = coi_agreed_rows(ctx, self->element, n);
        if (rows <= 0)
            coi_leaves_release(&ctx->heap, self->element, n);
        if (rows < 0)
            return COI_ERROR;
        self->rows = rows;
    }
    return COI_ELEMENT;
}

/* A piece of size 0 is of no element: what the spec does not know of its shape is 0, as in the
 * empty element of a replica without data (DS-PART-2). */
static co_value *
no_rows(co_context *ctx, co_value *tensor, const co_value *spec)
{
    int64_t   dims[CO_MAX_DIMS] = { 0 };
    co_value *view;

    for (int i = 1; i < tensor->ndim && spec->ndim > 0; ++i)
        dims[i] = spec->u.tensor.dims[i] < 0 ? 0 : spec->u.tensor.dims[i];
    view = coi_tensor_view(&ctx->heap, tensor, dims, tensor->ndim, 0, 0, coi_err(ctx));
    if (view == NULL)
        coi_failed(ctx);
    return view;
}

/* The next `count` rows of the element as one more piece. */
static co_code
add_piece(co_context *ctx, co_iterator *iterator, int64_t count)
{
    rebatch_iterator *self = (rebatch_iterator *)iterator;
    co_value        **room = coi_assembly_room(ctx, &self->pieces);

    if (room == NULL)
        return ctx->error.code;
    for (size_t i = 0; i < iterator->dataset->num_leaves; ++i) {
        room[i] = count > 0 ? coi_row_view(ctx, self->element[i], self->begin, count)
                            : no_rows(ctx, self->element[i], iterator->dataset->specs[i]);
        if (room[i] == NULL) {
            coi_leaves_release(&ctx->heap, room, i);
            return ctx->error.code;
        }
    }
    ++self->pieces.count;
    self->begin += count;
    return CO_OK;
}

/* Collect `size` rows, or as many as there are; returns how many. A piece of none needs a row left
 * behind it. */
static int64_t
collect(co_context *ctx, co_iterator *iterator, int64_t size)
{
    rebatch_iterator *self = (rebatch_iterator *)iterator;
    int64_t           total = 0;

    do {
        int     got = ready(ctx, iterator);
        int64_t count = self->rows - self->begin;

        if (got != COI_ELEMENT)
            return got < 0 ? got : total;
        count = count < size - total ? count : size - total;
        if (add_piece(ctx, iterator, count) != CO_OK)
            return COI_ERROR;
        total += count;
    } while (total < size);
    return total;
}

static int
rebatch_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const rebatch_dataset *rebatch = (const rebatch_dataset *)iterator->dataset;
    rebatch_iterator      *self = (rebatch_iterator *)iterator;
    int64_t                size = rebatch->sizes[self->at];
    int64_t                total = collect(ctx, iterator, size);

    if (total < 0 || self->pieces.count == 0 || (rebatch->drop_remainder && total < size)) {
        coi_assembly_clear(&ctx->heap, &self->pieces);
        return total < 0 ? COI_ERROR : COI_END;
    }
    self->at = (self->at + 1) % rebatch->num_sizes;
    if (coi_assembly_join(ctx, &self->pieces, true, leaves) != CO_OK)
        return COI_ERROR;
    return COI_ELEMENT;
}

COI_RARE static bool
rebatch_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    rebatch_iterator *self = (rebatch_iterator *)iterator;
    int64_t           at = (int64_t)self->at;

    if (!coi_checkpoint_number(ctx, p, &at, 0,
                               (int64_t)((rebatch_dataset *)iterator->dataset)->num_sizes - 1))
        return false;
    self->at = (size_t)at;
    return coi_checkpoint_cut(ctx, p, iterator, self->element, &self->rows, &self->begin);
}

COI_RARE static void
rebatch_destroy(coi_heap *heap, co_dataset *dataset)
{
    rebatch_dataset *self = (rebatch_dataset *)dataset;

    coi_small_free(heap, self->sizes, self->num_sizes * sizeof(*self->sizes));
}

COI_RARE static co_value *
resized_leaf(co_context *ctx, const co_value *spec, const void *arg)
{
    int64_t dims[CO_MAX_DIMS];

    if (spec->ndim == 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "elements are scalars and have no rows to batch anew; batch the dataset first");
        return NULL;
    }
    for (int i = 0; i < spec->ndim; ++i)
        dims[i] = spec->u.tensor.dims[i];
    if (spec->ndim > 0)
        dims[0] = *(const int64_t *)arg;
    return coi_spec_new(ctx, (co_dtype)spec->dtype, dims, spec->ndim);
}

COI_RARE int64_t
coi_spec_rows(co_context *ctx, const co_dataset *input)
{
    int64_t rows = -1;

    for (size_t i = 0; i < input->num_leaves; ++i) {
        const co_value *spec = input->specs[i];
        int64_t         n = spec->ndim > 0 ? spec->u.tensor.dims[0] : -1;

        if (rows >= 0 && n >= 0 && n != rows) {
            if (ctx != NULL)
                coi_fail(ctx, CO_VALUE_ERROR,
                         "component %zu of the elements has %lld row%s, one before it %lld; all "
                         "must have the same number",
                         i, (long long)n, COI_S(n), (long long)rows);
            return -2;
        }
        rows = n >= 0 ? n : rows;
    }
    return rows;
}

/*
 * The spec of what is cut by sizes of the user. Where elements are whole multiples of the one size,
 * nothing remains. Components that differ are refused where their rows are asked for and nowhere
 * else, because that is when TensorFlow refuses them: otherwise elements that are never read, as
 * those of an empty dataset, are no error there.
 */
COI_RARE static co_value *
rebatch_spec(co_context *ctx, co_dataset *input, const int64_t *sizes, size_t num_sizes,
             bool drop_remainder)
{
    int64_t dim = sizes[0], rows;

    for (size_t i = 1; i < num_sizes; ++i)
        dim = sizes[i] == dim ? dim : -1;
    if (!drop_remainder && dim > 0) {
        rows = coi_spec_rows(ctx, input);
        if (rows < -1)
            return NULL;
        dim = rows >= 0 && rows % dim == 0 ? dim : -1;
    }
    return coi_spec_map(ctx, input->spec, resized_leaf, &dim);
}

COI_RARE static co_dataset *
rebatch_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    const rebatch_dataset *self = (const rebatch_dataset *)dataset;

    return coi_rebatch_new(ctx, inputs[0], self->sizes, self->num_sizes, self->drop_remainder,
                           self->parts);
}

#define MOST_SHOWN 16

COI_RARE static void
rebatch_show(const co_dataset *dataset, coi_prose *out)
{
    const rebatch_dataset *rebatch = (const rebatch_dataset *)dataset;

    for (size_t i = 0; i < rebatch->num_sizes && i < MOST_SHOWN; ++i)
        coi_put(out, "%s%lld", i > 0 ? ", " : " to ", (long long)rebatch->sizes[i]);
    coi_put(out, "%s%s", rebatch->num_sizes > MOST_SHOWN ? ", ..." : "",
            rebatch->drop_remainder ? ", remainder dropped" : "");
}

static const coi_dataset_ops rebatch_ops = {
    .name = "rebatch",
    .dataset_size = sizeof(rebatch_dataset),
    .iterator_size = sizeof(rebatch_iterator),
    .next = rebatch_next,
    .open = rebatch_open,
    .close = rebatch_close,
    .destroy = rebatch_destroy,
    .with_inputs = rebatch_with_inputs,
    .checkpoint = rebatch_checkpoint,
    .show = rebatch_show,
    .tracks = COI_REMADE_ROWS,
};

COI_RARE co_dataset *
coi_rebatch_new(co_context *ctx, co_dataset *input, const int64_t *sizes, size_t num_sizes,
                bool drop_remainder, int64_t parts)
{
    bool      of_user = parts == COI_SIZES_OF_USER;
    co_value *spec = of_user ? rebatch_spec(ctx, input, sizes, num_sizes, drop_remainder)
                             : coi_spec_split(ctx, input->spec, parts);
    /* As in TensorFlow: with sizes of the user the number of elements is not known. */
    bool             endless = !of_user && input->cardinality == CO_INFINITE;
    co_dataset      *dataset = coi_dataset_new(ctx, &rebatch_ops, &input, 1, spec,
                                          endless ? CO_INFINITE : CO_UNKNOWN_CARDINALITY);
    rebatch_dataset *self = (rebatch_dataset *)dataset;

    if (dataset == NULL)
        return NULL;
    self->sizes = coi_small_alloc(&ctx->heap, num_sizes * sizeof(*self->sizes));
    if (self->sizes == NULL) {
        coi_unref(&ctx->heap, dataset);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a dataset (rebatch)");
        return NULL;
    }
    self->num_sizes = num_sizes;
    for (size_t i = 0; i < num_sizes; ++i) {
        self->sizes[i] = sizes[i];
        coi_dataset_mark(dataset, sizes[i]);
    }
    self->drop_remainder = drop_remainder;
    self->parts = parts;
    return dataset;
}

/* --- the public call --- */

COI_RARE static bool
check_sizes(co_context *ctx, const int64_t *sizes, size_t num_sizes)
{
    bool any = false;

    for (size_t i = 0; sizes != NULL && i < num_sizes; ++i) {
        if (sizes[i] < 0) {
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "argument 3 (sizes) has %lld at %zu; sizes are 0 or more", (long long)sizes[i],
                     i);
            return false;
        }
        any = any || sizes[i] > 0;
    }
    if (!any)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 3 (sizes) holds no size above 0");
    return any;
}

COI_RARE co_dataset *
co_dataset_rebatch(co_context *ctx, co_dataset *input, const int64_t *sizes, size_t num_sizes,
                   bool drop_remainder)
{
    COI_ENTER(ctx, "dataset_rebatch", NULL);
    if (!coi_check_input(ctx, input, 2, "input") || !check_sizes(ctx, sizes, num_sizes))
        return NULL;
    return coi_dataset_give(ctx, coi_rebatch_new(ctx, input, sizes, num_sizes, drop_remainder,
                                                 COI_SIZES_OF_USER));
}
