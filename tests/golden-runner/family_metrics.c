/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: updates and results of the metrics of Keras, alone and in replicas, confusion matrices,
 * and names.
 */
#include "captured.h"
#include "families.h"

#include <string.h>

enum { MAX_OPTIONS = 16 };

/* --- making a metric --- */

/* A JSON value of a config as a host value, or a list of them. */
static co_value *
host_value(golden_case *c, json_t *json)
{
    co_context *ctx = c->ctx;
    co_value   *items[64];
    size_t      n = json_array_size(json);

    switch (json_typeof(json)) {
    case JSON_TRUE:
    case JSON_FALSE: return co_bool(ctx, json_is_true(json));
    case JSON_INTEGER: return co_int(ctx, json_integer_value(json));
    case JSON_REAL: return co_float(ctx, json_real_value(json));
    case JSON_STRING: return co_string(ctx, json_string_value(json));
    case JSON_NULL: return co_none(ctx);
    case JSON_ARRAY:
        if (n > sizeof(items) / sizeof(items[0]))
            break;
        for (size_t i = 0; i < n; ++i)
            items[i] = host_value(c, json_array_get(json, i));
        return co_list(ctx, items, n);
    default: break;
    }
    golden_fail(c, "an option of the metric is neither a number nor a string nor a short list");
    return NULL;
}

/* "IoU", "BinaryIoU", ...: their dtype is that of the confusion matrix, and not the default float
 * type, which attrs has. */
static bool
is_iou(const char *name)
{
    size_t n = strlen(name);

    return n >= 3 && strcmp(name + n - 3, "IoU") == 0;
}

static co_value *
read_config(golden_case *c, const char *name)
{
    json_t     *value;
    const char *keys[MAX_OPTIONS], *key;
    co_value   *values[MAX_OPTIONS];
    size_t      n = 0;

    json_object_foreach(json_object_get(c->attrs, "config"), key, value)
    {
        if (n + 1 >= MAX_OPTIONS) {
            golden_fail(c, "the metric has more than %d options", MAX_OPTIONS - 1);
            return NULL;
        }
        keys[n] = key;
        values[n++] = host_value(c, value);
    }
    if (!is_iou(name)) {
        keys[n] = "dtype";
        values[n++] = co_string(c->ctx, golden_string(c, c->attrs, "dtype"));
    }
    return co_dict(c->ctx, keys, values, n);
}

static co_value *
fn_cubes(co_context *ctx, co_value *y_true, co_value *y_pred, void *user)
{
    co_value *error = co_abs(ctx, co_sub(ctx, y_true, y_pred));

    (void)user;
    return co_reduce_mean(ctx, co_mul(ctx, error, co_square(ctx, error)), CO_AXES(-1), false);
}

static co_value *
fn_largest(co_context *ctx, co_value *y_true, co_value *y_pred, void *user)
{
    (void)user;
    return co_reduce_max(ctx, co_abs(ctx, co_sub(ctx, y_true, y_pred)), CO_AXES(-1), false);
}

static co_value *
fn_product(co_context *ctx, co_value *y_true, co_value *y_pred, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_mul(ctx, y_true, y_pred), CO_ALL_AXES, false);
}

static co_metric *
make_wrapper(golden_case *c)
{
    static const struct {
        const char  *text;
        co_metric_fn fn;
    } known[] = {
        { "mean(|y_true-y_pred|^3, last axis)", fn_cubes },
        { "max(|y_true-y_pred|, last axis)", fn_largest },
        { "sum(y_true*y_pred) (a scalar)", fn_product },
    };
    const char       *text = golden_string(c, json_object_get(c->attrs, "config"), "fn");
    co_metric_options options = CO_METRIC_OPTIONS_INIT;

    options.dtype = co_dtype_from_name(golden_string(c, c->attrs, "dtype"));
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i)
        if (strcmp(known[i].text, text) == 0)
            options.fn = known[i].fn;
    if (options.fn != NULL)
        return co_metric_new(c->ctx, CO_METRIC_MEAN_METRIC_WRAPPER, &options);
    golden_fail(c, "fn '%s' is not known to the runner", text);
    return NULL;
}

static co_metric *
make_metric(golden_case *c)
{
    const char *name = golden_string(c, c->attrs, "metric");

    return strcmp(name, "MeanMetricWrapper") == 0
               ? make_wrapper(c)
               : co_metric_from_config(c->ctx, name, read_config(c, name));
}

/* --- updates and results --- */

static co_value *
do_update(co_context *ctx, co_value *args, void *user)
{
    co_metric_update_options options = CO_METRIC_UPDATE_OPTIONS_INIT;

    options.sample_weight = co_at(ctx, args, 2);
    options.mask = co_at(ctx, args, 3);
    co_metric_update_with(ctx, user, co_at(ctx, args, 0), co_at(ctx, args, 1), &options);
    return co_none(ctx);
}

static co_value *
do_result(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_metric_result(ctx, user);
}

static co_value *
do_reset(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_metric_reset(ctx, user);
    return co_none(ctx);
}

/* The four arguments of an update; Mean and Sum have `values` in the place of y_true. */
static co_value *
read_update(golden_case *c, json_t *update)
{
    static const char *const names[] = { "y_true", "y_pred", "sample_weight", "mask" };

    co_value *args[4];

    for (size_t i = 0; i < 4; ++i) {
        json_t *json = json_object_get(update, names[i]);

        if (i == 0 && json == NULL)
            json = json_object_get(update, "values");
        args[i] = json != NULL ? golden_read_value(c, c->ctx, json) : co_none(c->ctx);
    }
    return co_tuple(c->ctx, args, 4);
}

/* Before the first update. Keras stumbles where it does not know a shape; that is not compared. */
static void
put_before(golden_case *c, co_metric *metric)
{
    json_t *expected = json_object_get(c->outputs, "before");
    json_t *quirk = json_object_get(json_object_get(expected, "error"), "quirk");

    if (expected == NULL)
        return;
    if (json_is_true(quirk)) {
        golden_put(c, "before", json_incref(expected));
        return;
    }
    golden_put_value(c, "before",
                     golden_in_function(c->ctx, do_result, co_no_args(c->ctx), metric));
}

/* What we keep in float64 Keras keeps in the default float type. */
static void
put_state(golden_case *c, co_metric *metric)
{
    co_context *ctx = c->ctx;
    json_t     *config = json_object_get(c->attrs, "config"), *state = json_object();
    json_t     *own = json_object_get(config, "dtype");
    co_dtype    dtype = co_dtype_from_name(own != NULL ? json_string_value(own)
                                                       : golden_string(c, c->attrs, "dtype"));
    co_value   *variables = co_metric_variables(ctx, metric);

    for (size_t i = 0; i < co_num_items(ctx, variables); ++i) {
        co_value   *variable = co_at(ctx, variables, i);
        const char *name = strrchr(co_variable_name(ctx, variable), '/');
        co_value   *value = co_variable_read(ctx, variable);

        if (co_dtype_is_floating(co_value_dtype(ctx, value)))
            value = co_cast(ctx, value, dtype);
        json_object_set_new(state, name != NULL ? name + 1 : "?", golden_write_value(ctx, value));
    }
    golden_put(c, "state", state);
}

static void
run_metric(golden_case *c)
{
    co_metric *metric = make_metric(c);
    json_t    *results = json_array(), *update;
    size_t     i;

    golden_put(c, "results", results);
    if (c->is_failed || !co_ok(c->ctx))
        return;
    put_before(c, metric);
    json_array_foreach(json_object_get(c->inputs, "updates"), i, update)
    {
        bool      is_reset = json_object_get(update, "reset") != NULL;
        co_value *args = is_reset ? co_no_args(c->ctx) : read_update(c, update), *result;

        golden_in_function(c->ctx, is_reset ? do_reset : do_update, args, metric);
        if (!co_ok(c->ctx))
            return;
        result = golden_in_function(c->ctx, do_result, co_no_args(c->ctx), metric);
        json_array_append_new(results, golden_write_value(c->ctx, result));
    }
    put_state(c, metric);
}

/* --- in replicas --- */

/* The k-th argument of all replicas. */
static co_value *
read_of_replicas(golden_case *c, co_strategy *strategy, json_t *step, const char *name)
{
    json_t   *list = json_array(), *update;
    size_t    i;
    co_value *value;

    json_array_foreach(step, i, update)
    {
        json_t *json = json_object_get(update, name);

        if (json == NULL && strcmp(name, "y_true") == 0)
            json = json_object_get(update, "values");
        if (json != NULL)
            json_array_append(list, json);
    }
    value = json_array_size(list) > 0 ? golden_read_replicas(c, c->ctx, strategy, list)
                                      : co_none(c->ctx);
    json_decref(list);
    return value;
}

static co_value *
do_step(co_context *ctx, co_value *args, void *user)
{
    do_update(ctx, args, user);
    return co_metric_result(ctx, user);
}

static void
run_in_replicas(golden_case *c)
{
    static const char *const names[] = { "y_true", "y_pred", "sample_weight", "mask" };

    co_context  *ctx = c->ctx;
    co_strategy *strategy = golden_strategy(c);
    co_metric   *metric = NULL;
    json_t      *steps = json_array(), *step, *seen;
    co_value    *args[4], *result = NULL;
    size_t       i;

    golden_put(c, "steps", steps);
    CO_SCOPE(ctx, strategy)
        metric = make_metric(c);
    json_array_foreach(json_object_get(c->inputs, "updates"), i, step)
    {
        for (size_t k = 0; k < 4; ++k)
            args[k] = read_of_replicas(c, strategy, step, names[k]);
        seen = json_object();
        json_array_append_new(steps, seen);
        json_object_set_new(seen, "replica_results",
                            golden_run_each(c, strategy, do_step, co_tuple(ctx, args, 4), metric));
        CO_SCOPE(ctx, strategy)
            result = golden_in_function(ctx, do_result, co_no_args(ctx), metric);
        json_object_set_new(seen, "cross_replica_result", golden_write_value(ctx, result));
    }
}

/* --- confusion matrices --- */

static co_value *
do_confusion_matrix(co_context *ctx, co_value *args, void *user)
{
    co_confusion_matrix_options options = *(const co_confusion_matrix_options *)user;

    options.weights = co_at(ctx, args, 2);
    return co_confusion_matrix(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1), &options);
}

static co_value *
read_input(golden_case *c, const char *name)
{
    json_t *json = json_object_get(c->inputs, name);

    return json != NULL ? golden_read_value(c, c->ctx, json) : co_none(c->ctx);
}

static void
run_confusion_matrix(golden_case *c)
{
    co_confusion_matrix_options options = CO_CONFUSION_MATRIX_OPTIONS_INIT;
    json_t                     *num_classes = json_object_get(c->attrs, "num_classes");
    co_value *args = co_args(c->ctx, read_input(c, "labels"), read_input(c, "predictions"),
                             read_input(c, "weights"));

    options.dtype = co_dtype_from_name(golden_string(c, c->attrs, "dtype"));
    options.num_classes = json_integer_value(num_classes);
    if (golden_captures() && json_is_null(num_classes)) {
        golden_no_meaning("a shape that depends on values");
        golden_put_value(c, "matrix", do_confusion_matrix(c->ctx, args, &options));
        return;
    }
    golden_put_value(c, "matrix", golden_in_function(c->ctx, do_confusion_matrix, args, &options));
}

/* --- names --- */

static void
run_names(golden_case *c)
{
    co_metric *metric = co_metric_named(c->ctx, golden_string(c, c->attrs, "name"), NULL);

    golden_no_meaning("names");
    if (metric == NULL)
        return;
    golden_put(c, "class", json_string(co_metric_kind_name(co_metric_kind_of(c->ctx, metric))));
    golden_put(c, "function", json_null());
}

static const golden_action special[] = {
    { "in_replicas", run_in_replicas },
    { "confusion_matrix", run_confusion_matrix },
    { "names", run_names },
};

/* The other groups are all alike: updates and results of the metric that attrs names. */
void
golden_run_metrics(golden_case *c)
{
    char group[80];

    golden_group(c->id, group, sizeof(group));
    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); ++i)
        if (strcmp(special[i].name, group) == 0) {
            special[i].run(c);
            return;
        }
    run_metric(c);
}
