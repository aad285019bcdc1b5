/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics: making them, and the public calls that any family answers.
 */
#include "train/metric.h"

#include "base/text.h"
#include "strategy/strategy.h"
#include "variable/variable.h"

#include <string.h>

static void
destroy(coi_heap *heap, void *object)
{
    co_metric         *metric = object;
    coi_metric_memory *memory, *next;

    for (size_t i = 0; i < COI_METRIC_MAX_VARIABLES; ++i)
        coi_unref(heap, metric->variables[i]);
    coi_unref(heap, metric->anchor);
    coi_unref(heap, metric->loss);
    for (memory = metric->memory; memory != NULL; memory = next) {
        next = memory->next;
        coi_free(heap->store->memory, memory, sizeof(*memory) + memory->nbytes);
    }
    coi_object_free(heap, metric, sizeof(*metric));
}

const coi_class coi_metric_class = { "metric", destroy, NULL };

static void
no_memory(co_context *ctx)
{
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a metric");
}

co_metric *
coi_metric_begin(co_context *ctx, co_metric_kind kind, const coi_metric_family *family)
{
    co_metric *metric = coi_object_new(&ctx->heap, &coi_metric_class, sizeof(*metric));

    if (metric == NULL) {
        no_memory(ctx);
        return NULL;
    }
    metric->kind = kind;
    metric->family = family;
    metric->row = kind < CO_NUM_METRIC_KINDS ? &coi_metric_rows[kind] : NULL;
    coi_lock_init(&metric->lock);
    return metric;
}

void *
coi_metric_copy(co_context *ctx, co_metric *metric, const void *data, size_t nbytes)
{
    coi_metric_memory *memory;

    memory = coi_calloc(&ctx->runtime->memory, sizeof(*memory) + nbytes);
    if (memory == NULL) {
        no_memory(ctx);
        return NULL;
    }
    memory->nbytes = nbytes;
    memory->next = metric->memory;
    metric->memory = memory;
    if (data != NULL)
        memcpy(memory->bytes, data, nbytes);
    return memory->bytes;
}

co_metric *
coi_metric_finish(co_context *ctx, co_metric *metric)
{
    if (metric->family->describe(ctx, metric) && coi_metric_make_known(ctx, metric))
        return coi_own(ctx, metric);
    coi_unref(&ctx->heap, metric);
    return NULL;
}

bool
coi_check_metric(co_context *ctx, const co_metric *metric)
{
    return coi_check_object(ctx, metric, &coi_metric_class, 2, "metric");
}

/* --- making --- */

/* The loss whose values the metric averages, where it is one. */
static bool
make_loss(co_context *ctx, co_metric *metric)
{
    const coi_metric_row *row = metric->row;
    co_loss_options       options = CO_LOSS_OPTIONS_INIT;

    if (row->family != &coi_mean_family ||
        (row->values != NULL && row->values != coi_values_cosine))
        return true;
    options.dtype = metric->compute;
    options.from_logits = metric->options.from_logits;
    options.label_smoothing = metric->options.label_smoothing;
    options.axis = metric->options.axis;
    options.has_ignore_class = metric->options.ignore_class != CO_METRIC_NOT_GIVEN;
    if (options.has_ignore_class)
        options.ignore_class = metric->options.ignore_class;
    metric->loss = co_loss_new(ctx, row->loss, &options);
    if (metric->loss == NULL)
        return false;
    coi_ref(metric->loss);
    return true;
}

/* The dtypes of the result and of what is computed for it. */
static bool
take_dtype(co_context *ctx, co_metric *metric)
{
    co_dtype dtype = metric->options.dtype;
    bool     counts = metric->family == &coi_iou_family;

    if (dtype == CO_DTYPE_NONE)
        dtype = counts ? CO_INT64 : CO_FLOAT32;
    if ((unsigned)dtype >= CO_NUM_DTYPES || dtype == CO_STRING || dtype == CO_BOOL ||
        (!counts && !coi_dtypes[dtype].floating)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "dtype of %s is %s; it must be %s",
                 metric->row->class_name, co_dtype_name(dtype),
                 counts ? "one of numbers" : "a floating one");
        return false;
    }
    metric->dtype = dtype;
    metric->compute = dtype == CO_FLOAT64 ? CO_FLOAT64 : CO_FLOAT32;
    return true;
}

static co_metric *
make(co_context *ctx, co_metric_kind kind, const co_metric_options *options, co_value *config)
{
    co_metric        *metric = coi_metric_begin(ctx, kind, coi_metric_rows[kind].family);
    co_metric_options from_config;
    const char       *call = ctx->call;
    bool              ok;

    if (metric == NULL)
        return NULL;
    if (config != NULL) {
        ok = coi_metric_read_config(ctx, metric, config, &from_config);
        options = &from_config;
    } else {
        ok = true;
    }
    ok = ok && coi_metric_take_options(ctx, metric, options) && take_dtype(ctx, metric) &&
         (metric->family->check == NULL || metric->family->check(ctx, metric)) &&
         make_loss(ctx, metric);
    if (!ok) {
        coi_unref(&ctx->heap, metric);
        return NULL;
    }
    ctx->call = call;
    return coi_metric_finish(ctx, metric);
}

co_metric *
co_metric_new(co_context *ctx, co_metric_kind kind, const co_metric_options *options)
{
    COI_ENTER(ctx, "metric_new", NULL);
    if ((unsigned)kind < CO_NUM_METRIC_KINDS)
        return make(ctx, kind, options, NULL);
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "argument 2 (kind) of metric_new is %d; it must be 0 to %d%s", (int)kind,
             CO_NUM_METRIC_KINDS - 1,
             kind == CO_METRIC_OWN ? " (co_metric_of makes one of your own)" : "");
    return NULL;
}

static bool
is_called(const coi_metric_row *row, const char *name)
{
    return strcmp(row->class_name, name) == 0 || strcmp(row->snake_name, name) == 0 ||
           (row->aliases[0] != NULL &&
            (strcmp(row->aliases[0], name) == 0 || strcmp(row->aliases[1], name) == 0));
}

/* The kind of a name; -1 with an error. */
static int
kind_named(co_context *ctx, const char *name)
{
    if (name == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (name) of %s is NULL; it must be the name of a metric", ctx->call);
        return -1;
    }
    for (int kind = 0; kind < CO_NUM_METRIC_KINDS; ++kind)
        if (is_called(&coi_metric_rows[kind], name))
            return kind;
    coi_fail(ctx, CO_VALUE_ERROR,
             "there is no metric '%.*s%s'; a name is that of a class of Keras, as "
             "\"MeanSquaredError\", the same as \"mean_squared_error\", or \"mse\"",
             COI_CUT(60, name));
    return -1;
}

co_metric *
co_metric_named(co_context *ctx, const char *name, const co_metric_options *options)
{
    int kind;

    COI_ENTER(ctx, "metric_named", NULL);
    kind = kind_named(ctx, name);
    return kind >= 0 ? make(ctx, (co_metric_kind)kind, options, NULL) : NULL;
}

co_metric *
co_metric_from_config(co_context *ctx, const char *name, co_value *config)
{
    int kind;

    COI_ENTER(ctx, "metric_from_config", NULL);
    kind = kind_named(ctx, name);
    if (kind < 0 || (config != NULL && !coi_check_value(ctx, config, 3, "config")))
        return NULL;
    return make(ctx, (co_metric_kind)kind, NULL, config);
}

/* --- updates --- */

/* A given value as a tensor; NULL, or none, stays NULL. False with an error. */
static bool
take_operand(co_context *ctx, co_value *given, int position, const char *name, co_value **out)
{
    *out = NULL;
    if (given == NULL)
        return true;
    if (!coi_check_value(ctx, given, position, name))
        return false;
    if (given->kind == CO_KIND_NONE)
        return true;
    *out = given->kind == CO_KIND_TENSOR || given->kind == CO_KIND_SYMBOLIC
               ? given
               : co_to_tensor(ctx, given, CO_DTYPE_NONE);
    if (*out == NULL)
        return false;
    if (co_value_dtype(ctx, *out) == CO_STRING) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s of a metric is of strings; it must be of numbers",
                 name);
        return false;
    }
    return coi_check_known_rank(ctx, name, *out);
}

static bool
take_batch(co_context *ctx, const co_metric *metric, co_value *y_true, co_value *y_pred,
           const co_metric_update_options *options, coi_metric_batch *batch)
{
    if (!take_operand(ctx, y_true, 3, "y_true", &batch->y_true) ||
        !take_operand(ctx, y_pred, 4, "y_pred", &batch->y_pred) ||
        !take_operand(ctx, options->sample_weight, 5, "sample_weight", &batch->weight) ||
        !take_operand(ctx, options->mask, 5, "mask", &batch->mask))
        return false;
    if (metric->row == NULL)
        return true;
    if (batch->y_true == NULL || (batch->y_pred == NULL) != metric->family->takes_values) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s is updated with %s; it takes %s",
                 metric->row->class_name,
                 batch->y_true == NULL   ? "no values"
                 : batch->y_pred == NULL ? "no y_pred"
                                         : "y_pred",
                 metric->family->takes_values ? "values alone, as y_true" : "y_true and y_pred");
        return false;
    }
    return true;
}

/* Merge what was added with what is there, and put that in its place. */
static bool
merge_state(co_context *ctx, const co_metric *metric, co_value *const *added)
{
    co_value *old[COI_METRIC_MAX_VARIABLES], *fresh[COI_METRIC_MAX_VARIABLES];

    for (size_t i = 0; i < metric->num_variables; ++i)
        old[i] = co_variable_read(ctx, metric->variables[i]);
    if (ctx->error.code != CO_OK || !coi_own_merge(ctx, metric, old, added, fresh))
        return false;
    for (size_t i = 0; i < metric->num_variables; ++i)
        co_assign(ctx, metric->variables[i], fresh[i]);
    return ctx->error.code == CO_OK;
}

static bool
add_batch(co_context *ctx, co_metric *metric, const coi_metric_batch *batch)
{
    co_value *added[COI_METRIC_MAX_VARIABLES];
    int64_t   classes = 0;

    if (metric->family->classes != NULL) {
        classes = metric->family->classes(ctx, metric, batch);
        if (ctx->error.code != CO_OK || !coi_metric_build(ctx, metric, classes))
            return false;
    }
    if (!metric->family->update(ctx, metric, batch, added) || ctx->error.code != CO_OK)
        return false;
    if (metric->rule.merge != NULL)
        return merge_state(ctx, metric, added);
    for (size_t i = 0; i < metric->num_variables; ++i)
        co_assign_add(ctx, metric->variables[i], added[i]);
    return ctx->error.code == CO_OK;
}

/* Tapes do not see what metrics compute: nobody wants gradients of it. */
static co_code
update(co_context *ctx, co_metric *metric, co_value *y_true, co_value *y_pred,
       const co_metric_update_options *options)
{
    bool             recording = ctx->recording;
    coi_metric_batch batch;

    if (!coi_check_metric(ctx, metric))
        return ctx->error.code;
    if (ctx->mode.cross && ctx->mode.strategy != NULL && ctx->mode.strategy->num_replicas > 1) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "metric '%.*s%s' is updated in cross-replica context, where it has no component of "
            "its own; update it in the step",
            COI_CUT(100, metric->options.name));
        return ctx->error.code;
    }
    co_block_begin(ctx);
    ctx->recording = false;
    if (take_batch(ctx, metric, y_true, y_pred, options, &batch))
        add_batch(ctx, metric, &batch);
    ctx->recording = recording;
    co_block_end(ctx);
    return ctx->error.code;
}

co_code
co_metric_update(co_context *ctx, co_metric *metric, co_value *y_true, co_value *y_pred,
                 co_value *sample_weight)
{
    co_metric_update_options options = CO_METRIC_UPDATE_OPTIONS_INIT;

    COI_ENTER_CODE(ctx, "metric_update");
    options.sample_weight = sample_weight;
    return update(ctx, metric, y_true, y_pred, &options);
}

co_code
co_metric_update_with(co_context *ctx, co_metric *metric, co_value *y_true, co_value *y_pred,
                      const co_metric_update_options *options)
{
    co_metric_update_options all = CO_METRIC_UPDATE_OPTIONS_INIT;

    COI_ENTER_CODE(ctx, "metric_update_with");
    if (!coi_take_options(ctx, &all, sizeof(all), options, 5))
        return ctx->error.code;
    return update(ctx, metric, y_true, y_pred, &all);
}

/* --- results --- */

static bool
check_built(co_context *ctx, const co_metric *metric)
{
    if (coi_metric_is_built(metric))
        return true;
    coi_fail(
        ctx, CO_FAILED_PRECONDITION,
        "metric '%.*s%s' has seen no batch and does not know the number of classes; update it, "
        "or give %s when it is made",
        COI_CUT(100, metric->options.name),
        metric->kind == CO_METRIC_AUC ? "num_labels" : "num_classes");
    return false;
}

co_value *
co_metric_result(co_context *ctx, co_metric *metric)
{
    co_value *state[COI_METRIC_MAX_VARIABLES], *result = NULL;
    bool      recording;

    COI_ENTER(ctx, "metric_result", NULL);
    if (!coi_check_metric(ctx, metric) || !check_built(ctx, metric))
        return NULL;
    recording = ctx->recording;
    co_block_begin(ctx);
    ctx->recording = false;
    if (coi_metric_read_state(ctx, metric, state))
        result = metric->family->result(ctx, metric, state);
    if (result != NULL)
        coi_ref(result);
    ctx->recording = recording;
    co_block_end(ctx);
    return result != NULL ? coi_own(ctx, result) : NULL;
}

const char *
co_metric_name(co_context *ctx, const co_metric *metric)
{
    COI_ENTER(ctx, "metric_name", "");
    return coi_check_metric(ctx, metric) ? metric->options.name : "";
}

co_metric_kind
co_metric_kind_of(co_context *ctx, const co_metric *metric)
{
    COI_ENTER(ctx, "metric_kind_of", CO_METRIC_OWN);
    return coi_check_metric(ctx, metric) ? metric->kind : CO_METRIC_OWN;
}
