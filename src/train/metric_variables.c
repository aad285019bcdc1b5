/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables of metrics. They are made in the scope where the metric is made. Those whose shape
 * has the number of classes in it are made by the first update, wherever that is: in a step, or
 * while a function is captured. No replicas meet then; the first one makes them for all, beside a
 * variable that was made in the scope.
 */
#include "train/metric.h"

#include "base/text.h"
#include "strategy/distributed_variables.h"
#include "strategy/strategy.h"
#include "variable/variable.h"

#include <cohort/function.h>

#include <stdio.h>
#include <string.h>

static bool
is_known(const coi_metric_state *state)
{
    for (int d = 0; d < state->ndim; ++d)
        if (state->dims[d] == COI_CLASSES)
            return false;
    return true;
}

/* "<metric>/<variable>", in memory of the metric. */
static const char *
full_name(co_context *ctx, co_metric *metric, const char *name)
{
    size_t nbytes = strlen(metric->options.name) + strlen(name) + 2;
    char  *full = coi_metric_copy(ctx, metric, NULL, nbytes);

    if (full != NULL)
        snprintf(full, nbytes, "%s/%s", metric->options.name, name);
    return full;
}

/* What a variable begins with, as a tensor. */
static co_value *
initial_value(co_context *ctx, const coi_metric_state *state, int64_t classes)
{
    int64_t dims[CO_MAX_DIMS];

    for (int d = 0; d < state->ndim; ++d)
        dims[d] = state->dims[d] == COI_CLASSES ? classes : state->dims[d];
    if (state->initial == 0)
        return co_zeros(ctx, state->dtype, dims, state->ndim);
    return co_fill(ctx, dims, state->ndim,
                   co_cast(ctx, co_scalar_double(ctx, state->initial), state->dtype));
}

/* In the current scope: a reference. */
static co_value *
make_in_scope(co_context *ctx, co_metric *metric, const coi_metric_state *state)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *variable = NULL;

    options.name = full_name(ctx, metric, state->name);
    if (options.name == NULL)
        return NULL;
    options.trainable = CO_TRAINABLE_NO;
    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = metric->rule.merge != NULL ? CO_AGGREGATION_NONE : CO_AGGREGATION_SUM;
    variable = co_variable(ctx, initial_value(ctx, state, 0), &options);
    if (variable != NULL)
        coi_ref(variable);
    return variable;
}

bool
coi_metric_make_known(co_context *ctx, co_metric *metric)
{
    static const coi_metric_state anchor = { "anchor", CO_FLOAT64, 0, { 0 }, 0 };
    bool                          all_known = true;

    for (size_t i = 0; i < metric->num_variables; ++i) {
        if (!is_known(&metric->state[i])) {
            all_known = false;
            continue;
        }
        metric->variables[i] = make_in_scope(ctx, metric, &metric->state[i]);
        if (metric->variables[i] == NULL)
            return false;
    }
    if (all_known) {
        atomic_store(&metric->is_built, true);
        return true;
    }
    for (size_t i = 0; metric->anchor == NULL && i < metric->num_variables; ++i)
        metric->anchor = metric->variables[i];
    if (metric->anchor != NULL)
        coi_ref(metric->anchor);
    else
        metric->anchor = make_in_scope(ctx, metric, &anchor);
    return metric->anchor != NULL;
}

/* Variables that are being made for a number of classes. */
typedef struct making {
    co_metric  *metric;
    int64_t     classes;
    const char *names[COI_METRIC_MAX_VARIABLES];
    co_value   *made[COI_METRIC_MAX_VARIABLES]; /* references */
} making;

static co_value *
make_one(co_context *ctx, const making *m, size_t i)
{
    co_value *initial = initial_value(ctx, &m->metric->state[i], m->classes);

    return initial != NULL ? coi_variable_beside(ctx, m->metric->anchor, m->names[i], initial)
                           : NULL;
}

static co_value *
make_all(co_context *ctx, co_value *args, void *user)
{
    making *m = user;

    (void)args;
    for (size_t i = 0; i < m->metric->num_variables && ctx->error.code == CO_OK; ++i)
        if (!is_known(&m->metric->state[i]))
            m->made[i] = make_one(ctx, m, i);
    return NULL;
}

/* The lock is held: the variables of whoever came first. */
static void
adopt(co_metric *metric, making *m)
{
    if (coi_metric_is_built(metric))
        return;
    for (size_t i = 0; i < metric->num_variables; ++i)
        if (m->made[i] != NULL) {
            metric->variables[i] = m->made[i];
            m->made[i] = NULL;
        }
    metric->classes = m->classes;
    atomic_store_explicit(&metric->is_built, true, memory_order_release);
}

/* The names are memory of the metric, and so the lock guards them too. */
static bool
make_names(co_context *ctx, co_metric *metric, making *m)
{
    bool ok = true;

    coi_lock_take(&metric->lock);
    for (size_t i = 0; ok && i < metric->num_variables; ++i) {
        m->names[i] = full_name(ctx, metric, metric->state[i].name);
        ok = m->names[i] != NULL;
    }
    coi_lock_give(&metric->lock);
    return ok;
}

static bool
make_unknown(co_context *ctx, co_metric *metric, int64_t classes)
{
    making      m = { .metric = metric, .classes = classes };
    const char *call = ctx->call;

    if (!make_names(ctx, metric, &m))
        return false;
    co_init_scope(ctx, make_all, NULL, &m); /* also where a function is captured */
    coi_lock_take(&metric->lock);
    if (ctx->error.code == CO_OK)
        adopt(metric, &m);
    coi_lock_give(&metric->lock);
    for (size_t i = 0; i < metric->num_variables; ++i)
        coi_unref(&ctx->heap, m.made[i]);
    ctx->call = call;
    return ctx->error.code == CO_OK;
}

bool
coi_metric_build(co_context *ctx, co_metric *metric, int64_t classes)
{
    if (!coi_metric_is_built(metric) && !make_unknown(ctx, metric, classes))
        return false;
    if (metric->classes == 0 || metric->classes == classes)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "metric '%.*s%s' is given %lld classes and has counted %lld before; reset does not "
             "change their number, make another metric",
             COI_CUT(100, metric->options.name), (long long)classes, (long long)metric->classes);
    return false;
}

/* --- reading --- */

/* The states of all replicas along a new first dimension. */
static co_value *
states_of_replicas(co_context *ctx, co_value *variable)
{
    const coi_variable *v = variable->u.variable;
    co_value           *parts[COI_MAX_LOCAL_REPLICAS];

    for (size_t i = 0; i < v->num_components; ++i)
        parts[i] = co_expand_dims(ctx, v->components[i], 0);
    if (ctx->error.code != CO_OK)
        return NULL;
    return co_unstack(ctx,
                      co_gather_replicas(ctx, v->strategy,
                                         co_per_replica_value(ctx, parts, v->num_components), 0),
                      0);
}

/* Whether a merge of the program's own joins the components of replicas here. */
static bool
is_joined(const co_context *ctx, const co_metric *metric)
{
    return metric->rule.merge != NULL && !coi_in_replica(ctx) &&
           metric->variables[0]->u.variable->components != NULL;
}

static bool
join_replicas(co_context *ctx, const co_metric *metric, co_value **state)
{
    co_value *of[COI_METRIC_MAX_VARIABLES], *next[COI_METRIC_MAX_VARIABLES];
    int       replicas = metric->variables[0]->u.variable->strategy->num_replicas;

    for (size_t i = 0; i < metric->num_variables; ++i) {
        of[i] = states_of_replicas(ctx, metric->variables[i]);
        state[i] = of[i] != NULL ? co_at(ctx, of[i], 0) : NULL;
    }
    for (int r = 1; r < replicas && ctx->error.code == CO_OK; ++r) {
        for (size_t i = 0; i < metric->num_variables; ++i)
            next[i] = co_at(ctx, of[i], (size_t)r);
        if (!coi_own_merge(ctx, metric, state, next, state))
            return false;
    }
    return ctx->error.code == CO_OK;
}

bool
coi_metric_read_state(co_context *ctx, const co_metric *metric, co_value **state)
{
    if (is_joined(ctx, metric))
        return join_replicas(ctx, metric, state);
    for (size_t i = 0; i < metric->num_variables; ++i)
        state[i] = co_variable_read(ctx, metric->variables[i]);
    return ctx->error.code == CO_OK;
}

static const char **
names_of(const co_metric *metric, const char *names[COI_METRIC_MAX_VARIABLES])
{
    for (size_t i = 0; i < metric->num_variables; ++i)
        names[i] = metric->state[i].name;
    return names;
}

co_value *
co_metric_variables(co_context *ctx, co_metric *metric)
{
    const char *names[COI_METRIC_MAX_VARIABLES];

    COI_ENTER(ctx, "metric_variables", NULL);
    if (!coi_check_metric(ctx, metric))
        return NULL;
    if (!coi_metric_is_built(metric))
        return co_no_args(ctx);
    return co_named_tuple(ctx, "state", names_of(metric, names), metric->variables,
                          metric->num_variables);
}

/* --- writing: outside of steps every component is set, the whole value in the first of all --- */

/* Put a value into component i of a variable, alone. */
static bool
set_component(co_context *ctx, co_value *variable, size_t i, co_value *value)
{
    const coi_variable *v = variable->u.variable;

    co_assign(ctx, v->components != NULL ? v->components[i] : variable, value);
    return ctx->error.code == CO_OK;
}

static bool
set_whole(co_context *ctx, co_value *variable, co_value *whole, co_value *empty)
{
    const coi_variable *v = variable->u.variable;
    size_t              n = v->components != NULL ? v->num_components : 1;

    for (size_t i = 0; i < n; ++i) {
        bool is_first = i == 0 && (v->strategy == NULL || v->strategy->first_local == 0);

        if (!set_component(ctx, variable, i, is_first ? whole : empty))
            return false;
    }
    return true;
}

static co_value *
initial_of(co_context *ctx, const co_metric *metric, size_t i)
{
    return initial_value(ctx, &metric->state[i], metric->classes);
}

co_code
co_metric_reset(co_context *ctx, co_metric *metric)
{
    COI_ENTER_CODE(ctx, "metric_reset");
    if (!coi_check_metric(ctx, metric) || !coi_metric_is_built(metric))
        return ctx->error.code;
    co_block_begin(ctx);
    for (size_t i = 0; i < metric->num_variables && ctx->error.code == CO_OK; ++i) {
        co_value *initial = initial_of(ctx, metric, i), *variable = metric->variables[i];

        if (initial == NULL)
            break;
        if (coi_in_replica(ctx))
            co_assign(ctx, variable, initial);
        else
            set_whole(ctx, variable, initial, initial);
    }
    co_block_end(ctx);
    return ctx->error.code;
}

static bool
check_outside(co_context *ctx, const co_metric *metric)
{
    if (!coi_in_replica(ctx))
        return true;
    coi_fail(ctx, CO_RUNTIME_ERROR,
             "%s of '%.*s%s' is called by replica %d; call it outside the step", ctx->call,
             COI_CUT(100, metric->options.name), ctx->mode.replica);
    return false;
}

co_value *
co_metric_save(co_context *ctx, co_metric *metric)
{
    co_value   *state[COI_METRIC_MAX_VARIABLES];
    const char *names[COI_METRIC_MAX_VARIABLES];

    COI_ENTER(ctx, "metric_save", NULL);
    if (!coi_check_metric(ctx, metric) || !check_outside(ctx, metric))
        return NULL;
    if (!coi_metric_is_built(metric))
        return co_dict(ctx, NULL, NULL, 0);
    if (!coi_metric_read_state(ctx, metric, state))
        return NULL;
    return co_dict(ctx, names_of(metric, names), state, metric->num_variables);
}

/* The number of classes that a saved value says; 0: none. */
static int64_t
classes_saved(co_context *ctx, const coi_metric_state *state, const co_value *saved)
{
    for (int d = 0; d < state->ndim; ++d)
        if (state->dims[d] == COI_CLASSES && co_value_ndim(ctx, saved) == state->ndim)
            return co_value_dim(ctx, saved, d);
    return 0;
}

static bool
check_saved(co_context *ctx, const co_metric *metric, size_t i, co_value *saved)
{
    const coi_variable *v = metric->variables[i]->u.variable;
    co_value           *tensor = coi_give(ctx, coi_assignable(ctx, v, saved));

    return tensor != NULL;
}

static bool
find_saved(co_context *ctx, co_metric *metric, co_value *state, co_value **saved)
{
    int64_t classes = 0;

    for (size_t i = 0; i < metric->num_variables; ++i) {
        saved[i] = co_get(ctx, state, metric->state[i].name);
        if (saved[i] == NULL)
            return false;
        if (classes == 0)
            classes = classes_saved(ctx, &metric->state[i], saved[i]);
    }
    if (metric->anchor != NULL && !coi_metric_build(ctx, metric, classes))
        return false;
    for (size_t i = 0; i < metric->num_variables; ++i)
        if (!check_saved(ctx, metric, i, saved[i]))
            return false;
    return true;
}

co_code
co_metric_restore(co_context *ctx, co_metric *metric, co_value *state)
{
    co_value *saved[COI_METRIC_MAX_VARIABLES];

    COI_ENTER_CODE(ctx, "metric_restore");
    if (!coi_check_metric(ctx, metric) || !coi_check_kind(ctx, state, CO_KIND_DICT, 3, "state") ||
        !check_outside(ctx, metric))
        return ctx->error.code;
    if (!coi_metric_is_built(metric) && co_num_items(ctx, state) == 0)
        return ctx->error.code; /* saved before its first update */
    co_block_begin(ctx);
    if (find_saved(ctx, metric, state, saved))
        for (size_t i = 0; i < metric->num_variables; ++i)
            if (!set_whole(ctx, metric->variables[i], saved[i], initial_of(ctx, metric, i)))
                break;
    co_block_end(ctx);
    return ctx->error.code;
}
