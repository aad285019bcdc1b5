/* SPDX-License-Identifier: Apache-2.0 */
/*
 * padded_batch: consecutive elements as one, each filled up to a common shape. The spec says which
 * dimensions are fixed; the others are those of the largest element of the batch.
 */
#include "data/iterator_checkpoint.h"

#include <string.h>

typedef struct padded_dataset {
    coi_stage stage; /* numbers: size; flag: drop_remainder */
    co_value *
        *values; /* one scalar per leaf, references; a whole NULL array: zeros, empty strings */
} padded_dataset;

typedef struct padded_iterator {
    coi_stage_iterator base;
    coi_batch_assembly pieces;
} padded_iterator;

static co_code
padded_open(co_context *ctx, co_iterator *iterator)
{
    (void)ctx;
    ((padded_iterator *)iterator)->pieces.num_leaves = iterator->dataset->num_leaves;
    return CO_OK;
}

static void
padded_close(coi_heap *heap, co_iterator *iterator)
{
    coi_assembly_free(heap, &((padded_iterator *)iterator)->pieces);
}

static void
padded_destroy(coi_heap *heap, co_dataset *dataset)
{
    padded_dataset *self = (padded_dataset *)dataset;

    if (self->values == NULL)
        return;
    coi_leaves_release(heap, self->values, dataset->num_leaves);
    coi_small_free(heap, self->values, dataset->num_leaves * sizeof(*self->values));
}

/* --- one leaf of a batch --- */

typedef struct padding {
    const coi_batch_assembly *pieces;
    size_t                    leaf;
    const co_value           *spec; /* of the batch */
    const co_value           *value;
    coi_shape                 shape; /* of the batch */
    size_t                    size;  /* bytes of an element of the tensor; strings are texts */
} padding;

static const co_value *
piece_of(const padding *p, size_t i)
{
    return p->pieces->leaves[i * p->pieces->num_leaves + p->leaf];
}

static co_code
padded_shape(co_context *ctx, padding *p)
{
    p->shape.ndim = p->spec->ndim;
    p->shape.dims[0] = (int64_t)p->pieces->count;
    for (int d = 1; d < p->spec->ndim; ++d)
        p->shape.dims[d] = p->spec->u.tensor.dims[d] < 0 ? 0 : p->spec->u.tensor.dims[d];
    for (size_t i = 0; i < p->pieces->count; ++i) {
        const co_value *piece = piece_of(p, i);

        if (piece->ndim + 1 != p->spec->ndim)
            return coi_fail(ctx, CO_INVALID_ARGUMENT,
                            "component %zu of element %zu of a batch has rank %d; the padded shape "
                            "has %d",
                            p->leaf, i, piece->ndim, p->spec->ndim - 1);
        for (int d = 1; d < p->spec->ndim; ++d) {
            int64_t dim = piece->u.tensor.dims[d - 1];

            if (dim <= p->shape.dims[d])
                continue;
            if (p->spec->u.tensor.dims[d] >= 0)
                return coi_fail(ctx, CO_DATA_LOSS,
                                "component %zu of element %zu of a batch has %lld in dimension %d, "
                                "more than the padded shape, %lld; pad to more, or to -1",
                                p->leaf, i, (long long)dim, d - 1,
                                (long long)p->spec->u.tensor.dims[d]);
            p->shape.dims[d] = dim;
        }
    }
    return CO_OK;
}

/* Copy one element to its place, run by run of the last dimension; `to` counts tensor elements. */
static void
put_piece(const padding *p, const co_value *piece, int d, const char **from, int64_t to, char *out)
{
    int64_t stride = 1;

    for (int k = d + 1; k < p->shape.ndim; ++k)
        stride *= p->shape.dims[k];
    if (d >= p->shape.ndim - 1) {
        size_t nbytes = (piece->ndim > 0 ? (size_t)piece->u.tensor.dims[d - 1] : 1) * p->size;

        if (nbytes > 0)
            memcpy(out + (size_t)to * p->size, *from, nbytes);
        *from += nbytes;
        return;
    }
    for (int64_t i = 0; i < piece->u.tensor.dims[d - 1]; ++i)
        put_piece(p, piece, d + 1, from, to + i * stride, out);
}

static void
put_all(const padding *p, int64_t num_elements, char *out)
{
    int64_t  each = p->pieces->count > 0 ? num_elements / (int64_t)p->pieces->count : 0;
    coi_text empty = { "", 0 };

    for (int64_t i = 0; i < num_elements; ++i)
        if (p->value != NULL)
            memcpy(out + (size_t)i * p->size, coi_data_on_host(p->value), p->size);
        else if (p->spec->dtype == CO_STRING)
            memcpy(out + (size_t)i * p->size, &empty, p->size);
        else
            memset(out + (size_t)i * p->size, 0, p->size);
    for (size_t i = 0; i < p->pieces->count; ++i) {
        const co_value *piece = piece_of(p, i);
        const char     *from = coi_data_on_host(piece);

        if (piece->u.tensor.num_elements > 0)
            put_piece(p, piece, 1, &from, (int64_t)i * each, out);
    }
}

/* Strings own their bytes in the buffer of their tensor, so they are gathered and then copied. */
static co_value *
padded_leaf(co_context *ctx, padding *p)
{
    co_device *device = coi_data_device(ctx);
    co_dtype   dtype = (co_dtype)p->spec->dtype;
    int64_t    n;
    co_value  *made;
    coi_text  *texts;

    p->size = dtype == CO_STRING ? sizeof(coi_text) : coi_dtypes[dtype].size;
    if (device == NULL || padded_shape(ctx, p) != CO_OK)
        return NULL;
    if (coi_shape_check(p->shape.dims, (size_t)p->shape.ndim, p->size, &n, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    if (dtype != CO_STRING) {
        made = coi_tensor_new(&ctx->heap, device, dtype, p->shape.dims, p->shape.ndim, n,
                              coi_err(ctx));
        if (made != NULL)
            put_all(p, n, coi_data_on_host(made));
    } else {
        texts = coi_small_alloc(&ctx->heap, (size_t)(n > 0 ? n : 1) * sizeof(*texts));
        if (texts == NULL) {
            coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a batch of %lld strings",
                     (long long)n);
            return NULL;
        }
        put_all(p, n, (char *)texts);
        made = coi_tensor_strings(&ctx->heap, device, p->shape.dims, p->shape.ndim, n, texts,
                                  coi_err(ctx));
        coi_small_free(&ctx->heap, texts, (size_t)(n > 0 ? n : 1) * sizeof(*texts));
    }
    if (made == NULL)
        coi_failed(ctx);
    return made;
}

static int
padded_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const coi_stage_args *args = coi_args_of(iterator);
    const padded_dataset *padded = (const padded_dataset *)iterator->dataset;
    coi_batch_assembly   *pieces = &((padded_iterator *)iterator)->pieces;
    int64_t total = coi_assembly_complete(ctx, pieces, iterator, false, args->numbers[0]);
    int     got = total == 0 || (args->flag && total < args->numbers[0]) ? COI_END : COI_ELEMENT;

    if (total < 0)
        return COI_ERROR;
    for (size_t i = 0; got == COI_ELEMENT && i < pieces->num_leaves; ++i) {
        padding p = { .pieces = pieces,
                      .leaf = i,
                      .spec = iterator->dataset->specs[i],
                      .value = padded->values != NULL ? padded->values[i] : NULL };

        leaves[i] = padded_leaf(ctx, &p);
        if (leaves[i] == NULL) {
            coi_leaves_release(&ctx->heap, leaves, i);
            got = COI_ERROR;
        }
    }
    coi_assembly_clear(&ctx->heap, pieces);
    return got;
}

/* As of batch: pieces are what was collected before a cancellation. */
static bool
padded_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    return coi_checkpoint_assembly(ctx, p, iterator->dataset->inputs[0],
                                   coi_args_of(iterator)->numbers[0] - 1,
                                   &((padded_iterator *)iterator)->pieces);
}

static int64_t
padded_count(const co_dataset *dataset)
{
    const coi_stage_args *args = &((const coi_stage *)dataset)->args;

    return coi_batch_cardinality(dataset->inputs[0]->cardinality, args->numbers[0], args->flag);
}

/* --- making --- */

static co_dataset *padded_with_inputs(co_context *ctx, co_dataset *dataset,
                                      co_dataset *const *inputs);

static const coi_dataset_ops padded_ops = {
    .name = "padded_batch",
    .dataset_size = sizeof(padded_dataset),
    .iterator_size = sizeof(padded_iterator),
    .next = padded_next,
    .open = padded_open,
    .close = padded_close,
    .destroy = padded_destroy,
    .with_inputs = padded_with_inputs,
    .keeps = true,
    .checkpoint = padded_checkpoint,
    .count = padded_count,
    .shows = " of #0?5, remainder dropped;",
    .numbers = COI_STAGE_NUMBERS,
    .tracks = COI_BATCHED,
};

/* Room for one scalar per leaf. */
static bool
make_values(co_context *ctx, padded_dataset *self)
{
    size_t nbytes = self->stage.base.num_leaves * sizeof(*self->values);

    self->values = coi_small_alloc(&ctx->heap, nbytes);
    if (self->values == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a dataset (padded_batch)");
        return false;
    }
    memset(self->values, 0, nbytes);
    return true;
}

static co_dataset *
padded_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    const padded_dataset *self = (const padded_dataset *)dataset;
    co_dataset           *made = coi_stage_with_inputs(ctx, dataset, inputs);

    if (made == NULL || self->values == NULL)
        return made;
    if (!make_values(ctx, (padded_dataset *)made)) {
        coi_unref(&ctx->heap, made);
        return NULL;
    }
    for (size_t i = 0; i < dataset->num_leaves; ++i) {
        coi_ref(self->values[i]);
        ((padded_dataset *)made)->values[i] = self->values[i];
    }
    return made;
}

/* One scalar for all leaves, or a structure of them. */
static bool
take_values(co_context *ctx, co_dataset *dataset, co_value *values)
{
    padded_dataset *self = (padded_dataset *)dataset;
    bool            many = coi_is_structure(values);

    if (many && coi_same_structure(dataset->spec, values, CO_TYPE_ERROR, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return false;
    }
    if (!make_values(ctx, self))
        return false;
    if (many)
        coi_collect_leaves(values, self->values); /* borrowed until each is converted */
    for (size_t i = 0; i < dataset->num_leaves; ++i) {
        co_dtype  dtype = (co_dtype)dataset->specs[i]->dtype;
        co_value *value = coi_data_tensor(ctx, many ? self->values[i] : values, dtype);

        if (value != NULL && (value->ndim != 0 || value->dtype != (uint8_t)dtype)) {
            coi_fail(ctx, CO_TYPE_ERROR,
                     "argument 5 (values): the padding of component %zu is %s of rank %d; it must "
                     "be a scalar of %s",
                     i, co_dtype_name((co_dtype)value->dtype), value->ndim, co_dtype_name(dtype));
            coi_unref(&ctx->heap, value);
            value = NULL;
        }
        self->values[i] = value;
        if (value == NULL) {
            for (size_t k = i; k < dataset->num_leaves; ++k)
                self->values[k] = NULL;
            return false;
        }
    }
    return true;
}

/* A shape to pad to goes with the spec of the element. */
static bool
check_shapes(co_context *ctx, const co_dataset *input, co_value *shapes)
{
    if (shapes == NULL)
        return true;
    if (!coi_check_spec(ctx, shapes, 4))
        return false;
    if (coi_same_structure(input->spec, shapes, CO_TYPE_ERROR, coi_err(ctx)) == CO_OK)
        return true;
    coi_failed(ctx);
    return false;
}

/* A component can be padded to a batch of its dtype and rank, as TensorFlow sees it. */
static void
check_component(co_context *ctx, size_t i, const co_value *element, bool has_shape,
                const co_value *batch)
{
    if (batch->dtype != element->dtype)
        coi_fail(ctx, CO_TYPE_ERROR,
                 "component %zu cannot be padded: it is %s, and its shape is one of %s", i,
                 co_dtype_name((co_dtype)element->dtype), co_dtype_name((co_dtype)batch->dtype));
    else if (batch->ndim < 0)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "component %zu cannot be padded: the rank of its %s is unknown; give shapes "
                 "(options), the shapes to pad to",
                 i, has_shape ? "shape" : "elements");
    else if (element->ndim >= 0 && batch->ndim != element->ndim + 1)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "component %zu cannot be padded: its elements have rank %d, and its shape %d", i,
                 element->ndim, batch->ndim - 1);
}

co_dataset *
co_dataset_padded_batch(co_context *ctx, co_dataset *input, int64_t size,
                        const co_padded_batch_options *options)
{
    co_padded_batch_options all = CO_PADDED_BATCH_OPTIONS_INIT;
    coi_stage_args          args = { .numbers = { size } };
    int64_t                 dim;
    co_value               *shapes, *values;
    co_dataset             *dataset;

    COI_ENTER(ctx, "dataset_padded_batch", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4))
        return NULL;
    shapes = all.shapes;
    values = all.values;
    dim = all.drop_remainder ? size : -1;
    args.flag = all.drop_remainder;
    if (!coi_check_input(ctx, input, 2, "input") || !check_shapes(ctx, input, shapes) ||
        (values != NULL && !coi_check_value(ctx, values, 4, "values")))
        return NULL;
    if (size < 1) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (size) is %lld; a batch has 1 element or more", (long long)size);
        return NULL;
    }
    /* Without shapes, dimensions that are known are their own longest. */
    dataset = coi_stage_new(
        ctx, &padded_ops, &input, 1,
        coi_spec_map(ctx, shapes != NULL ? shapes : input->spec, coi_spec_batch, &dim), &args);
    if (dataset == NULL)
        return NULL;
    dataset->batch_size = size;
    for (size_t i = 0; i < dataset->num_leaves; ++i)
        check_component(ctx, i, input->specs[i], shapes != NULL, dataset->specs[i]);
    if (ctx->error.code != CO_OK || (values != NULL && !take_values(ctx, dataset, values))) {
        coi_unref(&ctx->heap, dataset);
        return NULL;
    }
    return coi_dataset_give(ctx, dataset);
}
