/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dataset objects: making, checking, inspecting, destroying. What each kind does is in the file of
 * its name.
 */
#include "data/dataset.h"

#include <string.h>

static void
destroy_dataset(coi_heap *heap, void *object)
{
    co_dataset *dataset = object;

    if (dataset->ops->destroy != NULL)
        dataset->ops->destroy(heap, dataset);
    for (size_t i = 0; i < dataset->num_inputs; ++i)
        coi_unref(heap, dataset->inputs[i]);
    if (dataset->inputs != dataset->input_room)
        coi_small_free(heap, dataset->inputs, dataset->num_inputs * sizeof(*dataset->inputs));
    coi_small_free(heap, dataset->specs, dataset->num_leaves * sizeof(*dataset->specs));
    coi_unref(heap, dataset->spec);
    coi_object_free(heap, dataset, dataset->ops->dataset_size);
}

const coi_class coi_dataset_class = { "dataset", destroy_dataset, NULL };

/* The leaves of the spec, so that kinds need not iterate over it. */
static bool
set_spec(coi_heap *heap, co_dataset *dataset, co_value *spec)
{
    size_t n = coi_count_leaves(spec);

    dataset->spec = spec;
    dataset->specs = coi_small_alloc(heap, (n > 0 ? n : 1) * sizeof(*dataset->specs));
    if (dataset->specs == NULL)
        return false;
    dataset->num_leaves = n;
    coi_collect_leaves(spec, dataset->specs);
    return true;
}

static bool
set_inputs(coi_heap *heap, co_dataset *dataset, co_dataset *const *inputs, size_t n)
{
    dataset->inputs = dataset->input_room;
    if (n > 1) {
        dataset->inputs = coi_small_alloc(heap, n * sizeof(*dataset->inputs));
        if (dataset->inputs == NULL) {
            dataset->inputs = dataset->input_room;
            return false;
        }
    }
    for (size_t i = 0; i < n; ++i) {
        coi_ref(inputs[i]);
        dataset->inputs[i] = inputs[i];
        if (inputs[i]->depth >= dataset->depth)
            dataset->depth = inputs[i]->depth + 1;
        dataset->steps += inputs[i]->steps;
    }
    dataset->num_inputs = n;
    return true;
}

co_dataset *
coi_dataset_new(co_context *ctx, const coi_dataset_ops *ops, co_dataset *const *inputs,
                size_t num_inputs, co_value *spec, int64_t cardinality)
{
    coi_heap   *heap = &ctx->heap;
    co_dataset *dataset;

    if (spec == NULL)
        return NULL;
    dataset = coi_object_new(heap, &coi_dataset_class, ops->dataset_size);
    if (dataset == NULL) {
        coi_unref(heap, spec);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a dataset (%s)", ops->name);
        return NULL;
    }
    dataset->ops = ops;
    dataset->serial = atomic_fetch_add(&ctx->runtime->next_serial, 1) + 1;
    dataset->steps = 1;
    dataset->cardinality = cardinality;
    dataset->batch_size = CO_UNKNOWN_BATCH_SIZE;
    dataset->autoshard = num_inputs > 0 ? inputs[0]->autoshard : CO_AUTOSHARD_AUTO;
    if (!set_spec(heap, dataset, spec) || !set_inputs(heap, dataset, inputs, num_inputs)) {
        coi_unref(heap, dataset);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a dataset (%s)", ops->name);
        return NULL;
    }
    if (dataset->depth > COI_MAX_PIPELINE || dataset->steps > COI_MAX_STEPS) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "a pipeline of more than %d steps%s; repeat a step by its count instead",
                 dataset->depth > COI_MAX_PIPELINE ? COI_MAX_PIPELINE : COI_MAX_STEPS,
                 dataset->depth > COI_MAX_PIPELINE ? "" : " in all branches");
        coi_unref(heap, dataset);
        return NULL;
    }
    return dataset;
}

co_dataset *
coi_dataset_rename(co_dataset *made, const co_dataset *like)
{
    if (made != NULL)
        memcpy(made->own_name, like->own_name, sizeof(made->own_name));
    return made;
}

co_dataset *
co_dataset_set_name(co_context *ctx, co_dataset *dataset, const char *name)
{
    size_t n = name != NULL ? strnlen(name, CO_STAGE_NAME_MAX) : CO_STAGE_NAME_MAX;

    COI_ENTER(ctx, "dataset_set_name", NULL);
    if (!coi_check_dataset(ctx, dataset, 2, "dataset"))
        return NULL;
    if (n == CO_STAGE_NAME_MAX) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 3 (name) %s; give 0 to %d bytes",
                 name == NULL ? "is NULL" : "is too long", CO_STAGE_NAME_MAX - 1);
        return NULL;
    }
    dataset->own_name[0] = '\0';
    if (n > 0)
        coi_text_line(dataset->own_name, sizeof(dataset->own_name), "%s '%s'", dataset->ops->name,
                      name);
    return dataset;
}

co_dataset *
coi_dataset_give(co_context *ctx, co_dataset *dataset)
{
    return dataset != NULL ? coi_own(ctx, dataset) : NULL;
}

bool
coi_check_dataset(co_context *ctx, const co_dataset *dataset, int position, const char *name)
{
    if (dataset != NULL)
        return coi_check_object(ctx, dataset, &coi_dataset_class, position, name);
    coi_fail(ctx, CO_VALUE_ERROR, "argument %d (%s) of %s is NULL; give a dataset", position, name,
             ctx->call);
    return false;
}

bool
coi_check_input(co_context *ctx, const co_dataset *input, int position, const char *name)
{
    if (!coi_check_dataset(ctx, input, position, name))
        return false;
    if (!input->ops->distributed)
        return true;
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument %d (%s) is a distributed dataset, which can only be iterated; transform the "
             "dataset "
             "before distributing it",
             position, name);
    return false;
}

co_device *
coi_data_device(co_context *ctx)
{
    co_device *device = coi_devices_of_type(ctx->runtime->devices, "CPU", 0);

    if (device == NULL)
        coi_fail(ctx, CO_INTERNAL, "there is no CPU device for input data");
    return device;
}

int64_t
coi_dataset_rows(const co_dataset *dataset)
{
    int64_t rows = CO_UNKNOWN_BATCH_SIZE;

    for (size_t i = 0; i < dataset->num_leaves; ++i) {
        const co_value *spec = dataset->specs[i];
        int64_t         dim = spec->ndim > 0 ? spec->u.tensor.dims[0] : CO_UNKNOWN_BATCH_SIZE;

        if (dim < 0 || (i > 0 && dim != rows))
            return dataset->batch_size;
        rows = dim;
    }
    return rows >= 0 ? rows : dataset->batch_size;
}

int64_t
co_cardinality(co_context *ctx, const co_dataset *dataset)
{
    COI_ENTER(ctx, "cardinality", CO_UNKNOWN_CARDINALITY);
    if (!coi_check_dataset(ctx, dataset, 2, "dataset"))
        return CO_UNKNOWN_CARDINALITY;
    return dataset->cardinality;
}

co_value *
co_element_spec(co_context *ctx, co_dataset *dataset)
{
    COI_ENTER(ctx, "element_spec", NULL);
    if (!coi_check_dataset(ctx, dataset, 2, "dataset"))
        return NULL;
    coi_ref(dataset->spec);
    return coi_give(ctx, dataset->spec);
}

int64_t
co_dataset_batch_size(co_context *ctx, const co_dataset *dataset)
{
    COI_ENTER(ctx, "dataset_batch_size", CO_UNKNOWN_BATCH_SIZE);
    if (!coi_check_input(ctx, dataset, 2, "dataset"))
        return CO_UNKNOWN_BATCH_SIZE;
    return coi_dataset_rows(dataset);
}
