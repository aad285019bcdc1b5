/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics with a rule of the program's own. A state is a named tuple for the rule, and a list of
 * tensors here.
 */
#include "train/metric.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

static bool
describe(co_context *ctx, co_metric *metric)
{
    (void)ctx;
    (void)metric; /* the constructor has filled it */
    return true;
}

static co_value *
state_of(co_context *ctx, const co_metric *metric, co_value *const *items)
{
    const char *names[COI_METRIC_MAX_VARIABLES];

    for (size_t i = 0; i < metric->num_variables; ++i)
        names[i] = metric->state[i].name;
    return co_named_tuple(ctx, "state", names, items, metric->num_variables);
}

static bool
refuse(co_context *ctx, const co_metric *metric, const char *what, const char *why)
{
    coi_fail(ctx, CO_TYPE_ERROR, "%s of metric '%.*s%s' %s", what,
             COI_CUT(100, metric->options.name), why);
    return false;
}

/* What a function of the rule returned, as a tensor for each variable. */
static bool
take_state(co_context *ctx, const co_metric *metric, const char *what, co_value *given,
           co_value **out)
{
    bool is_structure;

    if (given == NULL)
        return ctx->error.code == CO_OK ? refuse(ctx, metric, what,
                                                 "returned NULL without an error; it must return a "
                                                 "tensor for each variable")
                                        : false;
    if (!coi_check_result(ctx, given, ctx->call, what))
        return false;
    is_structure = given->kind == CO_KIND_TUPLE || given->kind == CO_KIND_LIST ||
                   given->kind == CO_KIND_NAMED_TUPLE;
    if (!is_structure && metric->num_variables > 1)
        return refuse(ctx, metric, what,
                      "returned one value; it must return a tuple with a tensor "
                      "for each variable");
    if (is_structure && co_num_items(ctx, given) != metric->num_variables)
        return refuse(ctx, metric, what,
                      "returned a tuple of another length than the rule has variables");
    for (size_t i = 0; i < metric->num_variables; ++i) {
        co_value *item = is_structure ? co_at(ctx, given, i) : given;

        if (item != NULL && item->kind != CO_KIND_TENSOR && item->kind != CO_KIND_SYMBOLIC)
            item = co_to_tensor(ctx, item, metric->state[i].dtype);
        out[i] = coi_metric_cast(ctx, item, metric->state[i].dtype);
        if (out[i] == NULL)
            return false;
    }
    return true;
}

static bool
update(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch, co_value **added)
{
    co_value *weight = coi_batch_weight(
        ctx, batch,
        batch->weight != NULL && coi_dtypes[co_value_dtype(ctx, batch->weight)].floating
            ? co_value_dtype(ctx, batch->weight)
            : CO_FLOAT32);
    co_value *args[3] = { batch->y_true, batch->y_pred, weight };

    if (ctx->error.code != CO_OK)
        return false;
    for (int i = 0; i < 3; ++i)
        if (args[i] == NULL)
            args[i] = co_none(ctx);
    return take_state(ctx, metric, "update",
                      metric->rule.update(ctx, co_tuple(ctx, args, 3), metric->user), added);
}

bool
coi_own_merge(co_context *ctx, const co_metric *metric, co_value *const *a, co_value *const *b,
              co_value **out)
{
    co_value *merged = metric->rule.merge(ctx, state_of(ctx, metric, a), state_of(ctx, metric, b),
                                          metric->user);

    return take_state(ctx, metric, "merge", merged, out);
}

static co_value *
result(co_context *ctx, const co_metric *metric, co_value *const *state)
{
    co_value *value = metric->rule.result(ctx, state_of(ctx, metric, state), metric->user);

    if (value == NULL) {
        if (ctx->error.code == CO_OK)
            refuse(ctx, metric, "result", "returned NULL without an error; it must return a value");
        return NULL;
    }
    return coi_check_result(ctx, value, ctx->call, "result") ? value : NULL;
}

const coi_metric_family coi_own_family = { .describe = describe,
                                           .update = update,
                                           .result = result };

/* --- making --- */

static bool
check_rule(co_context *ctx, const co_metric_rule *rule)
{
    const char *missing = rule->update == NULL      ? "update"
                          : rule->result == NULL    ? "result"
                          : rule->variables == NULL ? "variables"
                          : rule->name == NULL      ? "name"
                                                    : NULL;

    if (missing != NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%s of the rule of a metric is NULL; it must be given",
                 missing);
        return false;
    }
    if (rule->num_variables >= 1 && rule->num_variables <= COI_METRIC_MAX_VARIABLES)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR, "metric '%.*s%s' has %zu variables; it must have 1 to %d",
             COI_CUT(100, rule->name), rule->num_variables, COI_METRIC_MAX_VARIABLES);
    return false;
}

static bool
check_name(co_context *ctx, const co_metric *metric, size_t i, const char *name)
{
    if (name == NULL || name[0] == '\0') {
        coi_fail(ctx, CO_VALUE_ERROR, "variable %zu of metric '%.*s%s' has no name", i,
                 COI_CUT(100, metric->options.name));
        return false;
    }
    for (size_t before = 0; before < i; ++before)
        if (strcmp(metric->state[before].name, name) == 0) {
            coi_fail(ctx, CO_VALUE_ERROR, "two variables of metric '%.*s%s' are called '%.*s%s'",
                     COI_CUT(100, metric->options.name), COI_CUT(100, name));
            return false;
        }
    return true;
}

static bool
take_variable(co_context *ctx, co_metric *metric, size_t i)
{
    const co_metric_variable *given = &metric->rule.variables[i];
    coi_metric_state         *state = &metric->state[i];
    int64_t                   count;

    if (!check_name(ctx, metric, i, given->name))
        return false;
    state->dtype = given->dtype == CO_DTYPE_NONE ? CO_FLOAT64 : given->dtype;
    if (!coi_check_shape(ctx, state->dtype, given->dims, given->ndim, &count))
        return false;
    if (state->dtype == CO_STRING || state->dtype == CO_BOOL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "variable '%.*s%s' of a metric is %s; it must be of "
                 "numbers",
                 COI_CUT(100, given->name), co_dtype_name(state->dtype));
        return false;
    }
    if (given->initial != 0 && metric->rule.merge == NULL) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "variable '%.*s%s' of a metric begins with %g and is a sum over replicas; it must "
                 "begin with 0, or the rule have a merge",
                 COI_CUT(100, given->name), given->initial);
        return false;
    }
    state->ndim = given->ndim;
    for (int d = 0; d < given->ndim; ++d)
        state->dims[d] = given->dims[d];
    state->initial = given->initial;
    state->name = coi_metric_copy(ctx, metric, given->name, strlen(given->name) + 1);
    return state->name != NULL;
}

static bool
take_rule(co_context *ctx, co_metric *metric, const co_metric_rule *rule, const char *name)
{
    metric->rule = (co_metric_rule)CO_METRIC_RULE_INIT;
    if (rule == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (rule) of metric_of is NULL");
        return false;
    }
    if (!coi_take_options(ctx, &metric->rule, sizeof(metric->rule), rule, 2) ||
        !check_rule(ctx, &metric->rule))
        return false;
    if (name == NULL)
        name = metric->rule.name;
    metric->options.name = coi_metric_copy(ctx, metric, name, strlen(name) + 1);
    if (metric->options.name == NULL)
        return false;
    metric->num_variables = 0;
    for (size_t i = 0; i < metric->rule.num_variables; ++i, ++metric->num_variables)
        if (!take_variable(ctx, metric, i))
            return false;
    metric->rule.variables = NULL; /* they are copied, and the caller's */
    return true;
}

co_metric *
co_metric_of(co_context *ctx, const co_metric_rule *rule, const char *name, void *user)
{
    co_metric *metric;

    COI_ENTER(ctx, "metric_of", NULL);
    metric = coi_metric_begin(ctx, CO_METRIC_OWN, &coi_own_family);
    if (metric == NULL)
        return NULL;
    metric->user = user;
    metric->dtype = metric->compute = CO_FLOAT32;
    if (take_rule(ctx, metric, rule, name))
        return coi_metric_finish(ctx, metric);
    coi_unref(&ctx->heap, metric);
    return NULL;
}
