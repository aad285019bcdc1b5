/* SPDX-License-Identifier: Apache-2.0 */
/* losses: the losses of Keras with their gradients, their names, and the two averages of tf.nn. */
#include "captured.h"
#include "families.h"

#include <math.h>
#include <string.h>

/* --- one loss --- */

/* A JSON value as a host value. */
static co_value *
host_value(golden_case *c, const json_t *json)
{
    co_context *ctx = c->ctx;

    switch (json_typeof(json)) {
    case JSON_TRUE:
    case JSON_FALSE: return co_bool(ctx, json_is_true(json));
    case JSON_INTEGER: return co_int(ctx, json_integer_value(json));
    case JSON_REAL: return co_float(ctx, json_real_value(json));
    case JSON_STRING: return co_string(ctx, json_string_value(json));
    case JSON_NULL: return co_none(ctx);
    default: golden_fail(c, "an option of the loss is neither a number nor a string"); return NULL;
    }
}

enum { MAX_OPTIONS = 12 };

/* The constructor's arguments of the case, with its reduction and dtype. */
static co_value *
read_config(golden_case *c)
{
    static const char *const common[] = { "reduction", "dtype" };

    const char *keys[MAX_OPTIONS], *key;
    co_value   *values[MAX_OPTIONS];
    json_t     *value;
    size_t      n = 0;

    json_object_foreach(json_object_get(c->attrs, "config"), key, value)
    {
        if (n + 2 >= MAX_OPTIONS) {
            golden_fail(c, "the loss has more than %d options", MAX_OPTIONS - 2);
            return NULL;
        }
        keys[n] = key;
        values[n++] = host_value(c, value);
    }
    for (size_t i = 0; i < 2; ++i)
        if ((value = json_object_get(c->attrs, common[i])) != NULL) {
            keys[n] = common[i];
            values[n++] = host_value(c, value);
        }
    return co_dict(c->ctx, keys, values, n);
}

static co_value *
read_input(golden_case *c, const char *name)
{
    json_t *json = json_object_get(c->inputs, name);

    return json != NULL ? golden_read_value(c, c->ctx, json) : co_none(c->ctx);
}

static co_value *
do_loss(co_context *ctx, co_value *args, void *user)
{
    co_value            *t = co_at(ctx, args, 0), *p = co_at(ctx, args, 1), *value, *each;
    co_loss_call_options options = CO_LOSS_CALL_OPTIONS_INIT;

    options.sample_weight = co_at(ctx, args, 2);
    options.mask = co_at(ctx, args, 3);
    each = co_loss_per_example(ctx, user, t, p);
    co_tape_begin(ctx);
    co_watch(ctx, p);
    value = co_loss_call_with(ctx, user, t, p, &options);
    return co_args(ctx, value, each, co_gradient(ctx, value, p));
}

static void
run_loss(golden_case *c)
{
    co_loss *loss = co_loss_from_config(c->ctx, golden_string(c, c->attrs, "loss"), read_config(c));
    co_value *args = co_args(c->ctx, read_input(c, "y_true"), read_input(c, "y_pred"),
                             read_input(c, "sample_weight"), read_input(c, "mask"));
    co_value *out;
    json_t   *seen, *expected = json_object_get(json_object_get(c->json, "grads"), "y_pred");

    const golden_compare how = { c, false, false };

    if (c->is_failed || !co_ok(c->ctx))
        return;
    out = golden_in_function(c->ctx, do_loss, args, loss);
    if (!co_ok(c->ctx))
        return;
    golden_put_value(c, "value", co_at(c->ctx, out, 0));
    golden_put_value(c, "per_example", co_at(c->ctx, out, 1));
    seen = golden_write_value(c->ctx, co_at(c->ctx, out, 2));
    if (expected != NULL && co_ok(c->ctx))
        golden_same(&how, "grads.y_pred", seen, expected);
    json_decref(seen);
}

/* --- names --- */

/* A name of a class makes a loss of it; any other name is one of the function. */
static void
run_names(golden_case *c)
{
    const char  *name = golden_string(c, c->attrs, "name");
    co_loss     *loss = co_loss_named(c->ctx, name, NULL);
    co_loss_info info = CO_LOSS_INFO_INIT;
    bool         is_class;

    golden_no_meaning("names");
    if (co_loss_describe(c->ctx, loss, &info) != CO_OK)
        return;
    is_class = strcmp(name, info.class_name) == 0;
    golden_put(c, "class", is_class ? json_string(info.class_name) : json_null());
    golden_put(c, "function", is_class ? json_null() : json_string(info.function_name));
}

/* --- averages of tf.nn --- */

typedef co_value *(*fn_of_step)(co_context *ctx, co_value *args, void *user);

/* Run fn where the case says, with arguments that replicas have parts of, and put its results. */
static void
run_in_context(golden_case *c, fn_of_step fn, const char *const *names, size_t num_names,
               co_value *last)
{
    co_strategy *strategy = golden_strategy(c);
    const char  *context = golden_string(c, c->attrs, "context");
    bool         is_cross = strcmp(context, "cross") == 0;
    co_value    *args[4];
    json_t      *values;
    size_t       n = 0;

    for (size_t i = 0; i < num_names; ++i) {
        json_t *list = json_object_get(c->inputs, names[i]);

        args[n++] = list == NULL ? co_none(c->ctx)
                    : is_cross   ? golden_read_value(c, c->ctx, json_array_get(list, 0))
                                 : golden_read_replicas(c, c->ctx, strategy, list);
    }
    if (last != NULL)
        args[n++] = last;
    if (c->is_failed || !co_ok(c->ctx))
        return;
    if (c->error != NULL && !is_cross) { /* replicas stop when one fails, so that they make fewer
                                            calls of functions; the run is inside of one */
        golden_run_in_function(c->ctx, strategy, fn, co_tuple(c->ctx, args, n), NULL);
        return;
    }
    if (!is_cross) {
        values = golden_run_each(c, strategy, fn, co_tuple(c->ctx, args, n), NULL);
        golden_put(c, "values", values);
        return;
    }
    values = json_array();
    CO_SCOPE(c->ctx, strategy) {
        co_value *value = golden_in_function(c->ctx, fn, co_tuple(c->ctx, args, n), NULL);

        if (co_ok(c->ctx))
            json_array_append_new(values, golden_write_value(c->ctx, value));
    }
    golden_put(c, "values", values);
}

static co_value *
do_average(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_compute_average_loss(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1),
                                   co_at(ctx, args, 2));
}

static void
run_compute_average_loss(golden_case *c)
{
    static const char *const names[] = { "per_example_loss", "sample_weight" };

    json_t   *size = json_object_get(c->attrs, "global_batch_size");
    co_value *given = golden_is_tensor(size) ? golden_read_value(c, c->ctx, size)
                                             : host_value(c, size);

    run_in_context(c, do_average, names, 2, given);
}

static co_value *
do_scale(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_scale_regularization_loss(ctx, co_at(ctx, args, 0));
}

static void
run_scale_regularization_loss(golden_case *c)
{
    static const char *const names[] = { "loss" };

    run_in_context(c, do_scale, names, 1, NULL);
}

/* --- losses in replicas --- */

static co_value *
do_loss_of_replica(co_context *ctx, co_value *args, void *user)
{
    return co_loss_call(ctx, user, co_at(ctx, args, 0), co_at(ctx, args, 1), co_at(ctx, args, 2));
}

static co_value *
whole_batch(golden_case *c, const char *name)
{
    json_t   *list = json_object_get(c->inputs, name);
    co_value *parts[4];
    size_t    n = json_array_size(list);

    if (list == NULL || n > 4)
        return co_none(c->ctx);
    for (size_t i = 0; i < n; ++i)
        parts[i] = golden_read_value(c, c->ctx, json_array_get(list, i));
    return co_concat(c->ctx, co_list(c->ctx, parts, n), 0);
}

/* Means over the step, which the recording does not have: what the replicas have adds up to the
 * loss of the whole batch on one. */
static void
check_shares(golden_case *c, co_loss *loss, co_value *of_replicas, co_strategy *strategy)
{
    json_t *shares = golden_run_each(c, strategy, do_loss_of_replica, of_replicas, loss), *share;
    double  sum = 0, expected;
    size_t  i;

    expected = co_item_float(c->ctx, co_loss_call(c->ctx, loss, whole_batch(c, "y_true"),
                                                  whole_batch(c, "y_pred"),
                                                  whole_batch(c, "sample_weight")));
    json_array_foreach(shares, i, share)
        sum += json_number_value(json_array_get(json_object_get(share, "data"), 0));
    json_decref(shares);
    if (co_ok(c->ctx) && !(fabs(sum - expected) <= 1e-5 * fabs(expected)))
        golden_fail(c,
                    "the shares of a mean over the step add up to %.9g; the whole batch has %.9g",
                    sum, expected);
}

static void
run_loss_in_replicas(golden_case *c)
{
    static const char *const names[] = { "y_true", "y_pred", "sample_weight" };

    co_loss_options options = CO_LOSS_OPTIONS_INIT;
    co_strategy    *strategy = golden_strategy(c);
    const char     *name = golden_string(c, c->attrs, "loss");
    co_value       *args[3];

    for (size_t i = 0; i < 3; ++i) {
        json_t *list = json_object_get(c->inputs, names[i]);

        args[i] = list != NULL ? golden_read_replicas(c, c->ctx, strategy, list) : co_none(c->ctx);
    }
    if (c->is_failed || co_reduction_from_name(c->ctx, golden_string(c, c->attrs, "reduction"),
                                               &options.reduction) != CO_OK)
        return;
    options.mean_over = CO_MEAN_OVER_REPLICA; /* as Keras has it */
    golden_put(c, "values",
               golden_run_each(c, strategy, do_loss_of_replica, co_tuple(c->ctx, args, 3),
                               co_loss_named(c->ctx, name, &options)));
    options.mean_over = CO_MEAN_OVER_STEP;
    if (options.reduction != CO_REDUCTION_NONE && co_ok(c->ctx))
        check_shares(c, co_loss_named(c->ctx, name, &options), co_tuple(c->ctx, args, 3), strategy);
}

static const golden_action groups[] = {
    { "mean_squared_error", run_loss },
    { "mean_absolute_error", run_loss },
    { "mean_absolute_percentage_error", run_loss },
    { "mean_squared_logarithmic_error", run_loss },
    { "log_cosh", run_loss },
    { "huber", run_loss },
    { "binary_crossentropy", run_loss },
    { "categorical_crossentropy", run_loss },
    { "sparse_categorical_crossentropy", run_loss },
    { "hinge", run_loss },
    { "squared_hinge", run_loss },
    { "categorical_hinge", run_loss },
    { "kl_divergence", run_loss },
    { "poisson", run_loss },
    { "cosine_similarity", run_loss },
    { "binary_focal_crossentropy", run_loss },
    { "categorical_focal_crossentropy", run_loss },
    { "masked", run_loss },
    { "rank_mismatch", run_loss },
    { "broadcast", run_loss },
    { "special", run_loss },
    { "empty", run_loss },
    { "invalid", run_loss },
    { "names", run_names },
    { "compute_average_loss", run_compute_average_loss },
    { "scale_regularization_loss", run_scale_regularization_loss },
    { "loss_in_replicas", run_loss_in_replicas },
};

void
golden_run_losses(golden_case *c)
{
    golden_run_group(c, groups, sizeof(groups) / sizeof(groups[0]));
}
