/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making variables. co_variable calls the creators of the context, the one entered last first, and
 * among them the strategy; the ordinary variable is made at the end: those entered in its scope
 * come before it, once per variable, the others after it, once per component (VAR-CREATOR-1). In a
 * step of replicas:
 *
 *     creators of the replica -> replica 0 alone -> creators of the caller -> strategy
 *         -> creators outside -> component
 *
 * The hook of a custom strategy wraps what the strategy does.
 *
 * The policies of variables are in distributed_variables.c.
 */
#include <cohort/creator.h>

#include "base/text.h"
#include "function/function.h"
#include "function/graph.h"
#include "strategy/distributed_variables.h"
#include "strategy/rendezvous.h"
#include "strategy/strategy_hooks.h"
#include "strategy/strategy_state.h"
#include "strategy/workers.h"
#include "variable/variable.h"

#include <cohort/ops.h>

#include <stdio.h>
#include <string.h>

/* Creators that make variables themselves are called for those too: a recursion this deep is an
 * error. */
#define MAX_DEPTH        32
#define SAID_PARTITIONER 1u /* coi_runtime.said_once */

/* The state of the creation of a variable. */
struct co_creation {
    co_context  *at;        /* whose creators are being called, */
    uint64_t     below;     /* those with a smaller id */
    co_strategy *strategy;  /* current when the variable was asked for */
    int          component; /* -1: not placed yet */
    bool         for_all;   /* replica 0 makes it for all replicas of the step */
    co_site_info site;      /* of co_variable */
};

co_scope
co_creator_begin(co_context *ctx, co_creator_fn fn, void *user)
{
    co_scope   scope = { 0 };
    coi_entry *entry;

    COI_ENTER(ctx, "creator_begin", scope);
    if (fn == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 2 (fn) of creator_begin is NULL; it must be a function");
        return scope;
    }
    entry = coi_push(ctx, COI_ENTRY_CREATOR, NULL);
    if (entry == NULL)
        return scope;
    entry->fn = (void (*)(void))fn;
    entry->user = user;
    scope.id = entry->id;
    return scope;
}

co_statement
co_statement_creator(co_context *ctx, co_creator_fn fn, void *user)
{
    return coi_entry_statement(ctx, co_creator_begin(ctx, fn, user).id);
}

static const char *
name_of(const co_variable_options *options)
{
    return options->name != NULL ? options->name : "Variable";
}

/* The step that ctx is a replica of, or NULL. A scope inside the step has its own mode; the first
 * entry saved the step's. */
static const coi_step *
step_of(const co_context *ctx)
{
    const coi_mode *mode = ctx->num_entries > 0 ? &ctx->entries[0].saved_mode : &ctx->mode;

    return mode->step != NULL && !mode->cross ? mode->step : NULL;
}

/* The context that runs the step which ctx belongs to. */
static co_context *
caller_of(const co_context *ctx)
{
    const coi_step *step = step_of(ctx);

    return step != NULL ? step->parent : NULL;
}

/* Whether ctx is inside a scope of the default strategy: entered, set, or that of its run. */
static bool
in_default_scope(const co_context *ctx)
{
    const coi_step *step = step_of(ctx);

    if (step != NULL && !step->strategy->policy->changes_mode)
        return true;
    for (size_t i = 0; i < ctx->num_entries; ++i) {
        const coi_entry *entry = &ctx->entries[i];

        if ((entry->kind == COI_ENTRY_SCOPE_NESTED || entry->kind == COI_ENTRY_SET ||
             entry->kind == COI_ENTRY_MERGE) &&
            entry->strategy != NULL && !entry->strategy->policy->changes_mode)
            return true;
    }
    return false;
}

/* The caller of a step of several replicas looked when the step began: since then replica 0 may be
 * at work in its context. */
bool
coi_in_default_scope(const co_context *ctx)
{
    while (!in_default_scope(ctx)) {
        const coi_step *step = step_of(ctx);

        if (step == NULL || step->n > 1)
            return step != NULL && step->in_default_scope;
        ctx = step->parent;
    }
    return true;
}

/* SCOPE-13: scopes of the default strategy have a creator too, and while another strategy is
 * current it makes no variables. */
static bool
check_default_scopes(co_context *ctx, const co_strategy *strategy, const char *name)
{
    char text[COI_STRATEGY_TEXT];

    if (strategy == NULL || !coi_in_default_scope(ctx))
        return true;
    coi_fail(ctx, CO_RUNTIME_ERROR,
             "mixing strategies: variable '%.*s%s' is made under %s, inside a scope or step of "
             "the default strategy; leave that first",
             COI_CUT(100, name), coi_strategy_text(strategy, text));
    return false;
}

static bool
distributes(const co_strategy *strategy)
{
    return strategy != NULL && strategy->policy->wraps_values;
}

/*
 * The creator to call now, after which `next` is behind it; NULL: none before the strategy, or none
 * at all. The creators of the caller of a step are asked by the step itself where it has one
 * replica, on the caller's thread, else after the rendezvous.
 */
static const coi_entry *
next_creator(co_creation *next)
{
    while (next->at != NULL) {
        for (size_t i = next->at->num_entries; i > 0; --i) {
            const coi_entry *entry = &next->at->entries[i - 1];

            if (entry->kind != COI_ENTRY_CREATOR || entry->id >= next->below)
                continue;
            if (next->component < 0 && entry->saved_mode.strategy != next->strategy)
                return NULL;
            next->below = entry->id;
            return entry;
        }
        if (distributes(next->strategy) && !next->for_all)
            return NULL;
        next->at = caller_of(next->at);
        next->below = UINT64_MAX;
    }
    return NULL;
}

/* The result of a creator is a variable; a component is an ordinary one that is not part of another
 * variable. */
static bool
check_made(co_context *ctx, const co_value *made, const co_creation *next,
           const co_variable_options *options)
{
    if (made != NULL && !coi_check_result(ctx, made, "variable", "variable creator"))
        return false;
    if (made == NULL || !coi_is_variable(made)) {
        coi_fail(
            ctx, CO_TYPE_ERROR,
            "a creator of variable '%.*s%s' returned %s; it must return a variable, as a rule that "
            "of co_creator_next",
            COI_CUT(100, name_of(options)), made != NULL ? coi_a_kind(made->kind) : "NULL");
        return false;
    }
    if (next->component >= 0 &&
        (made->u.variable->components != NULL || coi_is_component(made->u.variable))) {
        char who[COI_VARIABLE_TEXT];

        coi_fail(
            ctx, CO_TYPE_ERROR,
            "a creator gave variable %s as component %d of '%.*s%s'; it must be an ordinary variable "
            "that is part of no other, usually that of co_creator_next",
            coi_variable_text(ctx, made->u.variable, who), next->component,
            COI_CUT(100, name_of(options)));
        return false;
    }
    return true;
}

/* --- initial values --- */

/* A value that was given, as a tensor of the dtype asked for; specs stay. A value of the block. */
static co_value *
prepare(co_context *ctx, co_value *initial, const co_variable_options *options)
{
    co_value *tensor;

    if ((unsigned)options->dtype >= CO_NUM_DTYPES) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "dtype of variable '%.*s%s' is %d, which is not a dtype; give %d (%s) to %d (%s), or CO_DTYPE_NONE for "
            "that of the initial value",
            COI_CUT(100, name_of(options)), (int)options->dtype, CO_BOOL, co_dtype_name(CO_BOOL),
            CO_STRING, co_dtype_name(CO_STRING));
        return NULL;
    }
    if (initial->kind == CO_KIND_SPEC)
        return initial;
    tensor = coi_give(ctx, coi_as_tensor(ctx, initial,
                                         initial->kind == CO_KIND_TENSOR ? CO_DTYPE_NONE
                                                                         : options->dtype));
    if (tensor != NULL && options->dtype != CO_DTYPE_NONE &&
        options->dtype != (co_dtype)tensor->dtype)
        tensor = co_cast(ctx, tensor, options->dtype);
    return tensor;
}

/* A variable that is declared only has all dimensions and one dtype. */
static bool
check_declared(co_context *ctx, const co_value *spec, const co_variable_options *options)
{
    bool known = spec->ndim >= 0;
    char text[COI_SHAPE_TEXT];

    for (int i = 0; known && i < spec->ndim; ++i)
        known = spec->u.tensor.dims[i] >= 0;
    if (!known)
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "variable '%.*s%s' is declared with shape %s; all dimensions of a variable must be known",
            COI_CUT(100, name_of(options)),
            spec->ndim < 0 ? "unknown" : coi_shape_text(spec->u.tensor.dims, spec->ndim, text));
    else if (options->dtype != CO_DTYPE_NONE && options->dtype != (co_dtype)spec->dtype)
        coi_fail(ctx, CO_VALUE_ERROR,
                 "variable '%.*s%s' is declared %s and its options say %s; leave one out",
                 COI_CUT(100, name_of(options)), co_dtype_name((co_dtype)spec->dtype),
                 co_dtype_name(options->dtype));
    return ctx->error.code == CO_OK;
}

/* What the initializer makes, which must be what was declared (NULL: nothing was). */
static co_value *
initialize(co_context *ctx, const co_value *declared, const co_variable_options *options)
{
    co_value *made;
    char      want[COI_SHAPE_TEXT], got[COI_SHAPE_TEXT];
    size_t    floor = coi_function_begin(ctx);

    made = options->initializer(ctx, options->initializer_user);
    coi_function_end(ctx, floor);
    if (ctx->error.code != CO_OK)
        return NULL;
    if (made == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "the initializer of variable '%.*s%s' returned NULL; it must return a value",
                 COI_CUT(100, name_of(options)));
        return NULL;
    }
    if (!coi_check_result(ctx, made, "variable", "initializer") ||
        (made = prepare(ctx, made, options)) == NULL)
        return NULL;
    if (declared == NULL || (made->dtype == declared->dtype && coi_same_shape(made, declared)))
        return made;
    coi_fail(ctx, CO_VALUE_ERROR,
             "the initializer of variable '%.*s%s' returned %s %s; it is declared %s %s",
             COI_CUT(100, name_of(options)), co_dtype_name((co_dtype)made->dtype),
             coi_shape_text(made->u.tensor.dims, made->ndim, got),
             co_dtype_name((co_dtype)declared->dtype),
             coi_shape_text(declared->u.tensor.dims, declared->ndim, want));
    return NULL;
}

/* The tensor or, for a variable without a value, the spec that it begins with: a value of the
 * block. */
static co_value *
resolve(co_context *ctx, co_value *initial, const co_variable_options *options)
{
    if (initial != NULL && initial->kind != CO_KIND_SPEC)
        return initial;
    if (initial != NULL && !check_declared(ctx, initial, options))
        return NULL;
    return options->initializer != NULL ? initialize(ctx, initial, options) : initial;
}

/* --- placing --- */

/* VAR-NEW-1, VAR-NEW-2. */
static bool
check_options(co_context *ctx, const co_strategy *strategy, const co_variable_options *options)
{
    char text[COI_STRATEGY_TEXT];

    if ((unsigned)options->synchronization > CO_SYNC_ON_READ ||
        (unsigned)options->aggregation > CO_AGGREGATION_ONLY_FIRST_REPLICA ||
        (unsigned)options->trainable > CO_TRAINABLE_YES) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "variable '%.*s%s': synchronization is %d (0 to 3), aggregation is %d (0 to 3), "
            "trainable is %d (0 to 2); begin with CO_VARIABLE_OPTIONS_INIT and use the constants of their types",
            COI_CUT(100, name_of(options)), (int)options->synchronization,
            (int)options->aggregation, (int)options->trainable);
        return false;
    }
    if (distributes(strategy) && options->synchronization == CO_SYNC_NONE) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "variable '%.*s%s': synchronization NONE has no meaning under %s; use AUTO",
                 COI_CUT(100, name_of(options)), coi_strategy_text(strategy, text));
        return false;
    }
    return true; /* without components they are recorded, without effect (OD-VAR-1) */
}

static coi_variable_spec
spec_of(const co_creation *next, const co_variable_options *options)
{
    coi_variable_spec spec = { .name = name_of(options),
                               .trainable = options->trainable == CO_TRAINABLE_AUTO
                                                ? options->synchronization != CO_SYNC_ON_READ
                                                : options->trainable == CO_TRAINABLE_YES,
                               .synchronization = options->synchronization,
                               .aggregation = options->aggregation,
                               .strategy = next->strategy,
                               .made_at = next->site };

    if (spec.synchronization == CO_SYNC_AUTO && distributes(next->strategy))
        spec.synchronization = CO_SYNC_ON_WRITE;
    return spec;
}

/* The ordinary variable: a value of the block. */
static co_value *
make_plain(co_context *ctx, const co_creation *next, co_value *initial,
           const co_variable_options *options)
{
    coi_variable_spec spec = spec_of(next, options);
    coi_device_name   device = ctx->device_id;
    co_value         *variable;

    if (!check_options(ctx, next->strategy, options) ||
        (initial = resolve(ctx, initial, options)) == NULL)
        return NULL;
    if (next->strategy != NULL &&
        !coi_variable_device(ctx, next->strategy, next->component, spec.name, &device))
        return NULL;
    variable = coi_plain_variable(ctx, &spec, &device, initial);
    return variable != NULL ? coi_own(ctx, variable) : NULL;
}

static co_value *create(co_context *ctx, const co_creation *next, co_value *initial,
                        const co_variable_options *options);

/* Component i > 0 has the name with a suffix (VAR-NEW-5). A value of the block. */
static co_value *
create_component(co_context *ctx, const co_creation *next, int i, co_value *initial,
                 const co_variable_options *options)
{
    co_creation         component = *next;
    co_variable_options mine = *options;
    size_t              nbytes = strlen(name_of(options)) + 24;
    char               *name = NULL;
    co_value           *variable;

    component.component = i;
    mine.initializer = NULL; /* it was called */
    if (i > 0) {
        name = coi_small_alloc(&ctx->heap, nbytes);
        if (name == NULL) {
            coi_fail(ctx, CO_RESOURCE_EXHAUSTED,
                     "no memory for the name of component %d of '%.*s%s'", i,
                     COI_CUT(100, name_of(options)));
            return NULL;
        }
        snprintf(name, nbytes, "%s/replica_%d", name_of(options), i);
        mine.name = name;
    }
    variable = create(ctx, &component, initial, &mine);
    if (name != NULL)
        coi_small_free(&ctx->heap, name, nbytes);
    return variable;
}

/* What the other components begin with: the value of the first (VAR-NEW-4). A value of the
 * block. */
static co_value *
value_of_first(co_context *ctx, co_value *first, co_value *initial)
{
    co_value *value = *coi_plain_lock(first);

    if (value != NULL)
        coi_ref(value);
    coi_plain_unlock(ctx, first, NULL);
    if (value != NULL)
        return coi_own(ctx, value);
    return initial->kind == CO_KIND_SPEC
               ? initial
               : coi_spec(ctx, (co_dtype)initial->dtype, initial->u.tensor.dims, initial->ndim);
}

/* Creators may have changed what they made: components are of one dtype and shape, and each is
 * another variable. */
static bool
check_component(co_context *ctx, co_value *const *parts, int i)
{
    const coi_variable *first = parts[0]->u.variable, *mine = parts[i]->u.variable;
    char                who[COI_VARIABLE_TEXT];
    bool                same = mine->dtype == first->dtype && mine->shape.ndim == first->shape.ndim;

    for (int d = 0; same && d < mine->shape.ndim; ++d)
        same = mine->shape.dims[d] == first->shape.dims[d];
    for (int k = 0; same && k < i; ++k)
        same = parts[k] != parts[i];
    if (!same)
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "a creator gave component %d of variable %s another dtype or shape than the first, or the "
            "same variable twice; components differ in name and device alone",
            i, coi_variable_text(ctx, first, who));
    return same;
}

/* One component per local replica, in device order (VAR-NEW-3), behind a container: a value of the
 * block. */
static co_value *
place_on_all(co_context *ctx, const co_creation *next, co_value *initial,
             const co_variable_options *options)
{
    coi_variable_spec spec = spec_of(next, options);
    co_value         *parts[COI_MAX_LOCAL_REPLICAS], *variable;
    int               n = next->strategy->num_local;

    if (options->aggregation == CO_AGGREGATION_MEAN && !coi_dtypes[initial->dtype].floating) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "variable '%.*s%s' is %s and cannot be averaged; use a floating dtype or another "
                 "aggregation",
                 COI_CUT(100, name_of(options)), co_dtype_name((co_dtype)initial->dtype));
        return NULL;
    }
    if (initial->kind != CO_KIND_SPEC) /* all workers start with worker 0's value (MW-9) */
        initial = coi_workers_broadcast(ctx, next->strategy, initial);
    for (int i = 0; i < n; ++i) {
        if (i == 1 && initial != NULL)
            initial = value_of_first(ctx, parts[0], initial);
        parts[i] = initial != NULL ? create_component(ctx, next, i, initial, options) : NULL;
        if (parts[i] == NULL || !check_component(ctx, parts, i))
            return NULL;
    }
    variable = coi_distributed_variable(ctx, &spec, parts, (size_t)n);
    return variable != NULL ? coi_own(ctx, variable) : NULL;
}

/* What the strategy does: a value of the block. */
static co_value *
place(co_context *ctx, const co_creation *next, co_value *initial,
      const co_variable_options *options)
{
    if (next->strategy == NULL)
        return make_plain(ctx, next, initial, options);
    if (!check_options(ctx, next->strategy, options) ||
        (initial = resolve(ctx, initial, options)) == NULL)
        return NULL;
    if (!distributes(next->strategy))
        return create_component(ctx, next, 0, initial, options);
    return place_on_all(ctx, next, initial, options);
}

/* A custom strategy decides; inside its hook co_variable goes on with what the engine
 * does. */
static co_value *
place_or_hook(co_context *ctx, const co_creation *next, co_value *initial,
              const co_variable_options *options)
{
    co_strategy                  *strategy = next->strategy;
    const co_strategy_definition *hooks;
    coi_hook_call                 call;
    co_value                     *variable;

    if (!coi_is_hooked(ctx, strategy, COI_HOOK_VARIABLE))
        return place(ctx, next, initial, options);
    hooks = strategy->policy->hooks;
    coi_hook_begin(ctx, strategy, COI_HOOK_VARIABLE, &call);
    call.creation = next;
    variable = coi_hook_end(ctx, &call,
                            hooks->variable(ctx, strategy, initial, options, hooks->data));
    if (variable == NULL || coi_is_variable(variable))
        return variable;
    coi_fail(ctx, CO_TYPE_ERROR, "the variable hook of %s returned %s; it must return a variable",
             strategy->policy->name, coi_a_kind(variable->kind));
    return NULL;
}

/* --- in a step replica 0 makes the variable for all (VAR-RUN-1) --- */

typedef struct making {
    const co_creation         *next;
    const co_variable_options *options;
} making;

/* In the caller's context: its creators are called now. */
static co_value *
make_merged(co_context *ctx, co_strategy *strategy, co_value *args, void *arg)
{
    const making     *m = arg;
    co_creation       next = *m->next;
    co_value         *initial = coi_select(args, 0), *variable;
    coi_capture_pause pause;

    (void)strategy;
    next.at = ctx;
    next.below = UINT64_MAX;
    next.for_all = true;
    pause = coi_capture_suspend(ctx); /* of a function around the run */

    variable = create(ctx, &next, initial->kind == CO_KIND_NONE ? NULL : initial, m->options);
    coi_capture_resume(ctx, &pause);
    return variable;
}

static co_value *
create_once(co_context *ctx, const co_creation *next, co_value *initial,
            const co_variable_options *options)
{
    making    m = { next, options };
    co_value *variable;

    if (initial == NULL && (initial = co_none(ctx)) == NULL)
        return NULL;
    variable = coi_step_variable(ctx, name_of(options), initial, make_merged, &m);
    return variable != NULL ? coi_own(ctx, variable) : NULL;
}

/* --- the way --- */

/* From here to the end: a value of the block. */
static co_value *
create(co_context *ctx, const co_creation *from, co_value *initial,
       const co_variable_options *options)
{
    co_creation      next = *from;
    const coi_entry *entry = next_creator(&next);
    co_value        *made;

    if (entry != NULL) {
        size_t floor = coi_function_begin(ctx);

        made = ((co_creator_fn)entry->fn)(ctx, &next, initial, options, entry->user);
        coi_function_end(ctx, floor);
        return ctx->error.code == CO_OK && check_made(ctx, made, &next, options) ? made : NULL;
    }
    if (next.component >= 0)
        return make_plain(ctx, &next, initial, options);
    if (distributes(next.strategy) && coi_in_replica(ctx) && !next.for_all)
        return create_once(ctx, &next, initial, options);
    return place_or_hook(ctx, &next, initial, options);
}

/* SCOPE-12. */
static void
ignore_partitioner(co_context *ctx, const co_variable_options *options)
{
    coi_runtime *runtime = ctx->runtime;

    if (!options->partitioned ||
        (atomic_fetch_or(&runtime->said_once, SAID_PARTITIONER) & SAID_PARTITIONER) != 0)
        return;
    coi_log_line(
        &runtime->log, CO_LOG_WARNING,
        "partitioned variables are not supported: variable '%.*s%s' has its full shape in one "
        "piece, and so will the next ones",
        COI_CUT(100, name_of(options)));
}

/* The arguments of co_variable and co_creator_next: the whole options, and an initial value that is
 * prepared. */
static bool
take_arguments(co_context *ctx, co_variable_options *all, const co_variable_options *options,
               int position, co_value **initial)
{
    if (!coi_take_options(ctx, all, sizeof(*all), options, position))
        return false;
    if (*initial == NULL && all->initializer != NULL)
        return true;
    if (*initial == NULL) {
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument %d (initial) of %s is NULL; give a value, a spec to declare variable '%.*s%s' "
            "without one, or an initializer in its options",
            position - 1, ctx->call, COI_CUT(100, name_of(all)));
        return false;
    }
    if (!coi_check_value(ctx, *initial, position - 1, "initial"))
        return false;
    *initial = prepare(ctx, *initial, all);
    return *initial != NULL;
}

static co_value *
create_whole(co_context *ctx, co_value *initial, const co_variable_options *options)
{
    co_variable_options all = CO_VARIABLE_OPTIONS_INIT;
    coi_strategy_state *state;
    co_value           *variable = NULL;
    bool                recording;

    state = coi_strategy_state_of(ctx);
    if (state->making_variables == MAX_DEPTH) {
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "creators make variables within each other %d deep; call co_creator_next in a creator, "
            "not co_variable",
            MAX_DEPTH);
        return NULL;
    }
    recording = ctx->recording;
    ctx->recording = false;
    ++state->making_variables;
    if (take_arguments(ctx, &all, options, 3, &initial) &&
        check_default_scopes(ctx, ctx->mode.strategy, name_of(&all))) {
        co_creation next = { ctx, UINT64_MAX, ctx->mode.strategy, -1, false, ctx->site };

        const coi_hook_call *hook = coi_hook_of(ctx, next.strategy, COI_HOOK_VARIABLE);

        if (initial != NULL)
            coi_ref(initial); /* creators may release it */
        ignore_partitioner(ctx, &all);
        variable = hook != NULL ? place(ctx, hook->creation, initial, &all)
                                : create(ctx, &next, initial, &all);
        coi_unref(&ctx->heap, initial);
    }
    --state->making_variables;
    ctx->recording = recording;
    return variable;
}

/* While a function is captured the variable is made at once, of what its initial value is now. */
static co_value *
create_captured(co_context *ctx, co_value *initial, const co_variable_options *options)
{
    co_variable_options all = CO_VARIABLE_OPTIONS_INIT;
    coi_capture_pause   pause;
    co_value           *variable;

    if (!coi_take_options(ctx, &all, sizeof(all), options, 3) ||
        (initial != NULL && !coi_check_value(ctx, initial, 2, "initial")))
        return NULL;
    if (initial == NULL && (all.initializer == NULL || (initial = co_none(ctx)) == NULL))
        return create_whole(ctx, NULL, options); /* which refuses it */
    initial = coi_capture_initial(ctx, initial, name_of(&all));
    if (initial == NULL)
        return NULL;
    pause = coi_capture_suspend(ctx);
    variable = create_whole(ctx, initial->kind == CO_KIND_NONE ? NULL : initial, options);
    coi_capture_resume(ctx, &pause);
    return variable;
}

/* --- in a graph: made without a value, which an operation gives it when a session runs it --- */

/* All components get the value, also of a variable that is synchronised on read. */
static co_value *
replay_initialize(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    co_value           *self = in[0], *tensor;
    const coi_variable *variable = self->u.variable;
    co_value           *values[COI_MAX_LOCAL_REPLICAS], *fresh[COI_MAX_LOCAL_REPLICAS];
    co_value *const    *parts = variable->components != NULL ? variable->components : &self;
    size_t              n = variable->components != NULL ? variable->num_components : 1;

    (void)attrs;
    (void)num_in;
    tensor = coi_assignable(ctx, variable, in[1]);
    tensor = tensor != NULL ? coi_own(ctx, tensor) : NULL;
    if (tensor != NULL && variable->components != NULL) /* that of worker 0 (MW-9) */
        tensor = coi_workers_broadcast(ctx, variable->strategy, tensor);
    if (tensor == NULL)
        return NULL;
    for (size_t i = 0; i < n; ++i)
        values[i] = tensor;
    if (!coi_plain_update(ctx, parts, n, COI_ASSIGN, values, fresh))
        return NULL;
    for (size_t i = 0; i < n; ++i)
        coi_unref(&ctx->heap, fresh[i]);
    return co_none(ctx);
}

const coi_op coi_op_initialize_captured = {
    COI_RECORDED("initialize_captured", "Gives a variable of a graph its first value.",
                 replay_initialize, CO_RESOURCE_VARIABLE, CO_RESOURCE_VARIABLE),
};

/* Whether a replica makes a variable that another has made for all. */
static bool
is_made_for_it(const co_context *ctx)
{
    return coi_in_replica(ctx) && distributes(ctx->mode.strategy) && ctx->mode.local_replica > 0;
}

static co_value *initial_in_graph(co_context *ctx, co_value *initial,
                                  const co_variable_options *options);

/* What the initializer adds to the graph; a spec where there is none. */
static co_value *
initial_by_function(co_context *ctx, co_value *declared, const co_variable_options *options)
{
    co_value *made;
    size_t    floor;

    if (options->initializer == NULL)
        return declared;
    floor = coi_function_begin(ctx);
    made = options->initializer(ctx, options->initializer_user);
    coi_function_end(ctx, floor);
    if (ctx->error.code == CO_OK && made == NULL)
        coi_fail(ctx, CO_TYPE_ERROR,
                 "the initializer of variable '%.*s%s' returned NULL; it must return a value",
                 COI_CUT(100, name_of(options)));
    if (ctx->error.code != CO_OK || !coi_check_result(ctx, made, "variable", "initializer") ||
        (made = initial_in_graph(ctx, made, options)) == NULL)
        return NULL;
    if (declared == NULL || (made->dtype == declared->dtype && coi_same_shape(made, declared)))
        return made;
    coi_fail(ctx, CO_VALUE_ERROR,
             "the initializer of variable '%.*s%s' returned another dtype or shape than the "
             "declared one",
             COI_CUT(100, name_of(options)));
    return NULL;
}

/* A first value that the graph computes when the initializer runs: in the graph itself, also where
 * a part of it is captured. */
static co_value *
initial_of_graph(co_context *ctx, co_value *initial, const co_variable_options *options)
{
    coi_capture      *graph = ctx->capture->graph->capture;
    coi_mode          mode = ctx->mode;
    coi_capture_pause pause;
    bool              in_part = ctx->capture != graph;

    if (in_part) {
        pause = coi_capture_suspend(ctx);
        coi_capture_enter(ctx, graph);
        ctx->mode = (coi_mode){ .num_replicas = 1, .update_id = -1 };
    }
    initial = coi_is_structure(initial) ? co_stack(ctx, initial, 0) : co_identity(ctx, initial);
    if (initial != NULL && options->dtype != CO_DTYPE_NONE &&
        options->dtype != (co_dtype)initial->dtype)
        initial = co_cast(ctx, initial, options->dtype);
    if (in_part) {
        ctx->mode = mode;
        coi_capture_resume(ctx, &pause);
    }
    return initial;
}

/* The first value: a value of the graph, or a tensor; of the block. What a part of the graph makes
 * (a step, the body of a condition or loop) is computed now, because nothing outside has the values
 * of the part. */
static co_value *
initial_in_graph(co_context *ctx, co_value *initial, const co_variable_options *options)
{
    bool              in_part = !ctx->capture->is_graph;
    coi_capture_pause pause;

    if (initial == NULL || initial->kind == CO_KIND_SPEC) {
        if (in_part)
            pause = coi_capture_suspend(ctx);
        initial = in_part ? resolve(ctx, initial, options)
                          : initial_by_function(ctx, initial, options);
        if (in_part)
            coi_capture_resume(ctx, &pause);
        return initial;
    }
    if (in_part && (initial = coi_capture_initial(ctx, initial, name_of(options))) == NULL)
        return NULL;
    if (coi_has_symbols(initial) || coi_is_variable(initial))
        return initial_of_graph(ctx, initial, options);
    pause = coi_capture_suspend(ctx);
    initial = prepare(ctx, initial, options);
    coi_capture_resume(ctx, &pause);
    return initial;
}

static co_value *
create_in_graph(co_context *ctx, co_value *initial, const co_variable_options *options)
{
    co_variable_options all = CO_VARIABLE_OPTIONS_INIT;
    co_value           *type = NULL, *variable;
    coi_capture_pause   pause;
    bool                is_known;

    if (!coi_take_options(ctx, &all, sizeof(all), options, 3) ||
        (initial != NULL && !coi_check_value(ctx, initial, 2, "initial")) ||
        !coi_graph_may_grow(ctx, ctx->capture->graph))
        return NULL;
    if (initial == NULL && all.initializer == NULL)
        return create_whole(ctx, NULL, options); /* which refuses it */
    if (is_made_for_it(ctx)) {
        type = initial != NULL && initial->kind != CO_KIND_SPEC ? coi_fresh_type(ctx, initial)
                                                                : initial;
        all.initializer = type != NULL ? NULL : all.initializer;
    } else {
        initial = initial_in_graph(ctx, initial, &all);
        if (initial == NULL)
            return NULL;
        type = coi_fresh_type(ctx, initial);
        all.initializer = NULL;
        all.dtype = CO_DTYPE_NONE;
        if (type == NULL || !check_declared(ctx, type, &all))
            return NULL;
    }
    pause = coi_capture_suspend(ctx);
    variable = create_whole(ctx, type, &all);
    coi_capture_resume(ctx, &pause);
    if (variable == NULL)
        return NULL;
    coi_lock_take(&ctx->capture->graph->lock);
    is_known = coi_graph_find_variable(ctx->capture->graph, variable) != NULL;
    coi_lock_give(&ctx->capture->graph->lock);
    if (is_known)
        return variable;
    if (initial != NULL && initial->kind == CO_KIND_SPEC)
        initial = NULL;
    return coi_graph_add_variable(ctx, variable, &coi_op_initialize_captured, initial) ? variable
                                                                                       : NULL;
}

co_value *
co_variable(co_context *ctx, co_value *initial, const co_variable_options *options)
{
    COI_ENTER(ctx, "variable", NULL);
    if (coi_in_graph(ctx))
        return create_in_graph(ctx, initial, options);
    return coi_is_capturing(ctx) ? create_captured(ctx, initial, options)
                                 : create_whole(ctx, initial, options);
}

co_value *
co_creator_next(co_context *ctx, co_creation *next, co_value *initial,
                const co_variable_options *options)
{
    co_variable_options all = CO_VARIABLE_OPTIONS_INIT;
    char                asked[COI_STRATEGY_TEXT], current[COI_STRATEGY_TEXT];

    COI_ENTER(ctx, "creator_next", NULL);
    if (next == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (next) of creator_next is NULL; it is what the creator was given");
        return NULL;
    }
    if (!take_arguments(ctx, &all, options, 4, &initial))
        return NULL;
    if (ctx->mode.strategy != next->strategy) { /* SCOPE-13 */
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "mixing strategies: variable '%.*s%s' was asked for under %s, and now %s is current; call "
            "co_creator_next where the creator was called",
            COI_CUT(100, name_of(&all)), coi_strategy_text(next->strategy, asked),
            coi_strategy_text(ctx->mode.strategy, current));
        return NULL;
    }
    return create(ctx, next, initial, &all);
}

co_strategy *
co_creator_owner(co_context *ctx, const co_creation *next)
{
    COI_ENTER(ctx, "creator_owner", NULL);
    return next != NULL && next->component >= 0 ? next->strategy : NULL;
}
