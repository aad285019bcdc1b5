/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stages have in common: making, remaking with other inputs, opening, pulling. What each does
 * is in the file of its name.
 */
#include "data/dataset.h"
#include "function/function.h"

/* A captured function makes its datasets while it is captured, and reads them when it is called. */
static bool
check_user(co_context *ctx, const coi_dataset_ops *ops, const void *user)
{
    if (user == NULL || !coi_is_in_captured_frames(ctx, user))
        return true;
    coi_fail(ctx, CO_RUNTIME_ERROR,
             "the user pointer of %s is to a local variable of the captured function, which has "
             "returned when the dataset is read; let it point to memory that lives as long as the "
             "captured function",
             ops->name);
    return false;
}

co_dataset *
coi_stage_new(co_context *ctx, const coi_dataset_ops *ops, co_dataset *const *inputs,
              size_t num_inputs, co_value *spec, const coi_stage_args *args)
{
    co_dataset *dataset;

    if (!check_user(ctx, ops, args->user)) {
        coi_unref(&ctx->heap, spec);
        return NULL;
    }
    dataset = coi_dataset_new(ctx, ops, inputs, num_inputs, spec,
                              num_inputs > 0 ? inputs[0]->cardinality : CO_UNKNOWN_CARDINALITY);
    if (dataset == NULL)
        return NULL;
    ((coi_stage *)dataset)->args = *args;
    /* How many threads there are, and how far they go, may be other on another machine. */
    for (size_t i = 0; !ops->prefetches && i < sizeof(args->numbers) / sizeof(args->numbers[0]);
         ++i)
        coi_dataset_mark(dataset, args->numbers[i]);
    coi_dataset_mark(dataset, args->flag);
    if (num_inputs > 0)
        dataset->batch_size = inputs[0]->batch_size;
    if (ops->count != NULL)
        dataset->cardinality = ops->count(dataset);
    return dataset;
}

co_dataset *
coi_stage_like(co_context *ctx, const coi_dataset_ops *ops, co_dataset *input,
               const coi_stage_args *args)
{
    return coi_dataset_give(ctx, coi_stage_new(ctx, ops, &input, 1, coi_spec_of(input), args));
}

co_dataset *
coi_stage_mapped(co_context *ctx, const coi_dataset_ops *ops, co_dataset *input, co_value *spec,
                 const coi_stage_args *args)
{
    co_dataset *dataset;

    if (spec == NULL)
        spec = input->spec;
    coi_ref(spec);
    dataset = coi_stage_new(ctx, ops, &input, 1, spec, args);
    if (dataset != NULL)
        dataset->batch_size = CO_UNKNOWN_BATCH_SIZE;
    return dataset;
}

co_dataset *
coi_stage_remake(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs, co_value *spec)
{
    co_dataset *made = coi_stage_new(ctx, dataset->ops, inputs, dataset->num_inputs, spec,
                                     &((const coi_stage *)dataset)->args);

    if (made != NULL)
        made->batch_size = dataset->batch_size;
    return coi_dataset_rename(made, dataset);
}

co_dataset *
coi_stage_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    return coi_stage_remake(ctx, dataset, inputs, coi_spec_of(dataset));
}

static size_t
element_size(const co_iterator *iterator)
{
    return iterator->dataset->inputs[0]->num_leaves * sizeof(co_value *);
}

co_code
coi_stage_open(co_context *ctx, co_iterator *iterator)
{
    coi_stage_iterator *self = (coi_stage_iterator *)iterator;

    self->element = coi_small_alloc(&ctx->heap, element_size(iterator));
    if (self->element == NULL)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an iterator (%s)",
                        iterator->dataset->ops->name);
    return CO_OK;
}

void
coi_stage_close(coi_heap *heap, co_iterator *iterator)
{
    coi_stage_iterator *self = (coi_stage_iterator *)iterator;

    if (self->element != NULL)
        coi_small_free(heap, self->element, element_size(iterator));
}

int64_t
coi_count_unknown(const co_dataset *dataset)
{
    (void)dataset;
    return CO_UNKNOWN_CARDINALITY;
}

int
coi_stage_pull(co_context *ctx, co_iterator *iterator)
{
    coi_stage_iterator *self = (coi_stage_iterator *)iterator;
    int                 got = coi_iterator_next(ctx, iterator->input, self->element);

    self->index += got > 0;
    return got;
}

bool
coi_dataset_check(co_context *ctx, const co_dataset *dataset)
{
    if (dataset->ops->check != NULL && !dataset->ops->check(ctx, dataset))
        return false;
    for (size_t i = 0; i < dataset->num_inputs; ++i)
        if (!coi_dataset_check(ctx, dataset->inputs[i]))
            return false;
    return true;
}
