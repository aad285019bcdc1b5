/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a step: take replica threads, give each its replica context, run, wait for all, bring
 * results or the error to the caller.
 */
#include <cohort/extended.h>
#include <cohort/v1.h>

#include "base/text.h"
#include "function/function.h"
#include "strategy/graph_run.h"
#include "strategy/regroup.h"
#include "strategy/replica_threads.h"
#include "strategy/strategy_hooks.h"
#include "strategy/workers.h"

#include <stdio.h>
#include <string.h>

#define RANDOM_CALLS_PER_STEP ((uint64_t)1 << 20)
#define LAST_FEW              4   /* values of a block among which a result is looked for */
#define END_GRACE_MS          200 /* how long a broken step waits for replicas that do not answer */

co_context *
coi_replica_context(coi_step *step, int local_replica)
{
    return step->threads->replicas[local_replica].ctx;
}

/* The context of a replica for one step. On its own thread, because the lines of a context that two
 * threads write would travel between their cores in every step. */
static void
enter_replica(coi_replica_worker *m, coi_step *step)
{
    co_context            *ctx = m->ctx;
    co_strategy           *strategy = step->strategy;
    const coi_step_origin *from = &step->origin;

    coi_error_reset(&ctx->error);
    ctx->mode = (coi_mode){ .strategy = coi_current(strategy),
                            .replica = strategy->first_local + m->replica,
                            .local_replica = m->replica,
                            .num_replicas = strategy->num_replicas,
                            .num_local = strategy->num_local,
                            .update_id = -1,
                            .step = step,
                            .is_direct = !strategy->policy->wraps_values };
    coi_copy_site(&ctx->site, &from->site);
    ctx->call = "run";
    ctx->user = from->user;
    ctx->seed = from->seed;
    ctx->random_counter = from->random_counter;
    ctx->rank = from->rank;
    ctx->special = from->special;
    ctx->unobserved = from->unobserved;
    if (!strategy->policy->has_devices) { /* RC-4; such a strategy has one replica, the caller's */
        ctx->device = step->parent->device;
        ctx->device_id = step->parent->device_id;
    }
}

static void
take_origin(coi_step_origin *origin, const co_context *parent)
{
    coi_copy_site(&origin->site, &parent->site);
    origin->user = parent->user;
    origin->seed = parent->seed;
    origin->random_counter = parent->random_counter;
    origin->rank = parent->rank;
    origin->special = parent->special;
    origin->unobserved = coi_is_observed(parent) && coi_is_in_observer(parent);
}

/* Keyword arguments as one more item. */
static co_value *
add_kwargs(co_context *ctx, const coi_step *step, const co_value *args)
{
    size_t    n = args->u.items.n;
    co_value *kwargs = coi_select_all(ctx, step->strategy, step->kwargs, ctx->mode.local_replica),
             *all;

    if (kwargs == NULL || (kwargs = coi_own(ctx, kwargs)) == NULL)
        return NULL;
    all = coi_structure_new(&ctx->heap, CO_KIND_TUPLE, n + 1, NULL, NULL, NULL, coi_err(ctx));
    if (all == NULL)
        return coi_give(ctx, NULL);
    for (size_t i = 0; i <= n; ++i) {
        all->u.items.items[i] = i < n ? args->u.items.items[i] : kwargs;
        coi_ref(all->u.items.items[i]);
    }
    if (coi_structure_seal(all, coi_err(ctx)) == CO_OK)
        return coi_own(ctx, all);
    coi_unref(&ctx->heap, all);
    return coi_give(ctx, NULL);
}

/* The components of this replica (S-RUN-5). */
static co_value *
select_args(co_context *ctx, const coi_step *step)
{
    co_value *args = coi_select_all(ctx, step->strategy, step->args, ctx->mode.local_replica);

    coi_strategy_state_of(ctx)->examples = coi_find_examples(step->args, ctx->mode.local_replica);
    return args != NULL ? coi_own(ctx, args) : NULL;
}

/* The caller's arguments as they are (OD-RUN-3), unless parts would be unused. */
static inline co_value *
direct_args(co_context *ctx, const coi_step *step)
{
    coi_strategy_state_of(ctx)->examples = (coi_examples){ -1, -1 };
    return coi_holds_tensors_alone(step->args) || coi_check_parts(ctx, step->strategy, step->args)
               ? step->args
               : NULL;
}

static inline co_value *
replica_args(co_context *ctx, const coi_step *step)
{
    co_value *args = step->strategy->policy->wraps_values ? select_args(ctx, step)
                                                          : direct_args(ctx, step);

    return args != NULL && step->kwargs != NULL ? add_kwargs(ctx, step, args) : args;
}

/*
 * A reference to a value that outlives the block of the step. Most results were made last: the
 * block then gives its own away, which saves taking one and dropping the other.
 */
static co_value *
take_from_block(co_context *ctx, co_value *result)
{
    size_t n = ctx->num_owned, last_few = n > LAST_FEW ? n - LAST_FEW : 0;

    if (ctx->num_blocks == ctx->block_floor && ctx->unmarked_blocks == 0) {
        size_t begin = ctx->blocks[ctx->num_blocks - 1].num_owned;

        for (size_t i = n; i > begin && i > last_few; --i)
            if (ctx->owned[i - 1] == &result->object) {
                memmove(&ctx->owned[i - 1], &ctx->owned[i], (n - i) * sizeof(*ctx->owned));
                --ctx->num_owned;
                return result;
            }
    }
    coi_ref(result);
    return result;
}

/* A reference to what the function returned; none for NULL. */
static co_value *
keep_result(co_context *ctx, co_value *result)
{
    if (ctx->error.code != CO_OK)
        return NULL;
    if (result == NULL)
        result = co_none(ctx);
    else if (!coi_check_result(ctx, result, "run", "step"))
        return NULL;
    return result != NULL ? take_from_block(ctx, result) : NULL;
}

/* The step itself, or the hook around it. */
static co_value *
call_step(co_context *ctx, coi_step *step, co_value *args)
{
    const co_strategy_definition *hooks = step->strategy->policy->hooks;

    if (hooks == NULL || hooks->replica == NULL)
        return step->fn(ctx, args, step->user);
    return hooks->replica(ctx, step->strategy, step->fn, args, step->user, hooks->data);
}

/* A replica context is one during its run alone (RC-1): later calls on it find this error. Written
 * without formatting, because every run of every replica ends here. */
static void
expire(co_context *ctx)
{
    static const char message[] =
        "this context was given to a step that has ended; use the context that called run";

    if (ctx->error.code != CO_OK)
        co_clear(ctx);
    ctx->mode.strategy = NULL;
    ctx->mode.num_replicas = 1;
    ctx->mode.step = NULL;
    ctx->run_args = NULL;
    ctx->unbegun_tapes = ctx->unpushed_devices = ctx->unpushed_colocations = 0;
    ctx->error.code = CO_RUNTIME_ERROR;
    ctx->error.call = "run";
    memcpy(ctx->error.message, message, sizeof(message));
}

/* One replica from beginning to end, on its thread. What the step leaves open
 * (blocks, scopes, tapes) is left here, and the block of the step itself is not the step's to end.
 */
void
coi_run_replica(coi_replica_worker *m, coi_step *step)
{
    co_context *ctx = m->ctx;
    co_value   *args, *result = NULL;

    coi_bind(ctx, true);
    enter_replica(m, step);
    co_block_begin(ctx);
    ctx->block_floor = ctx->num_blocks;
    if (step->in_turn)
        coi_wait_token(ctx);
    /* Where another has failed already, nothing begins (S-RUN-8). */
    args = coi_is_broken(step) ? NULL : replica_args(ctx, step);
    ctx->run_args = step->args;
    if (args != NULL && ctx->error.code == CO_OK)
        result = keep_result(ctx, call_step(ctx, step, args));
    step->slots[m->replica].result = result;
    if (ctx->num_entries > 0)
        coi_pop_to(ctx, 0); /* the scope of another strategy, left open, has no step */
    if (step->n > 1 || ctx->error.code != CO_OK) /* nobody waits for one that is alone */
        coi_replica_finished(ctx);
    ctx->block_floor = 0;
    coi_blocks_unwind(ctx, 0);
    step->slots[m->replica].random_counter = ctx->random_counter;
    /* The payload of an error is deleted by a function of the user, on the caller's thread. */
    step->slots[m->replica].is_left = ctx->error.code != CO_OK || ctx->misuse.site.file != NULL;
    if (!step->slots[m->replica].is_left)
        expire(ctx);
    coi_bind(ctx, false);
}

static void
step_open(coi_replica_threads *threads, co_context *parent, co_fn fn, co_value *args, void *user,
          const co_run_options *options)
{
    coi_step *step = &threads->step;

    step->strategy = threads->strategy;
    step->threads = threads;
    step->parent = parent;
    take_origin(&step->origin, parent);
    step->n = threads->n;
    step->fn = fn;
    step->user = user;
    step->args = args;
    step->kwargs = options->kwargs;
    step->in_turn = options->in_turn && threads->n > 1;
    step->in_default_scope = threads->n > 1 && coi_in_default_scope(parent);
    atomic_store_explicit(&step->barrier,
                          atomic_load_explicit(&step->barrier, memory_order_relaxed) &
                              ~(COI_BROKEN | COI_ARRIVED),
                          memory_order_relaxed);
    atomic_store_explicit(&step->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&step->opened, coi_round(step), memory_order_relaxed);
    atomic_store_explicit(&step->is_open, false, memory_order_relaxed);
    atomic_store_explicit(&step->token_holder, 0, memory_order_relaxed);
    if (step->error.code != CO_OK)
        coi_error_reset(&step->error);
    step->payload_deleter = NULL;
    coi_forget_posted(step);
    for (int i = 0; i < threads->n; ++i) {
        coi_rendezvous_slot *slot = &step->slots[i];

        slot->kind = COI_RENDEZVOUS_NONE;
        slot->sequence = 0;
        slot->result = NULL;
        atomic_store_explicit(&slot->arrived, false, memory_order_relaxed);
        atomic_store_explicit(&slot->finished, false, memory_order_relaxed);
        slot->is_left = false;
        slot->random_counter = 0;
    }
    /* A replica that is left behind needs them longer than the caller does. Alone on the caller's
     * thread there is none of that kind. */
    if (threads->n > 1) {
        coi_ref(args);
        if (step->kwargs != NULL)
            coi_ref(step->kwargs);
    }
}

static co_code
step_code(coi_step *step)
{
    co_code code;

    coi_lock_take(&step->error_lock);
    code = step->error.code;
    coi_lock_give(&step->error_lock);
    return code;
}

/*
 * Wait until all replicas are done. Where they execute nothing for the deadline, whether the step
 * broke already or not, they get a little more time and are then given up: false.
 */
static bool
wait_all(coi_replica_threads *threads)
{
    coi_step *step = &threads->step;
    int       deadline_ms = coi_timeout(threads->strategy);
    uint64_t  before = 0;
    bool      stuck = false, is_watching = false;

    while (atomic_load_explicit(&threads->busy, memory_order_acquire) > 0) {
        unsigned seen = coi_event_read(&threads->done);
        uint64_t now;

        if (atomic_load_explicit(&threads->busy, memory_order_acquire) == 0)
            break;
        stuck = stuck || (coi_is_broken(step) && step_code(step) == CO_DEADLINE_EXCEEDED);
        if (!is_watching) {
            if (deadline_ms > COI_SHORT_WAIT_MS &&
                coi_wait_replicas(&threads->done, seen, &threads->runtime->waiting,
                                  COI_SHORT_WAIT_MS))
                continue;
            before = coi_step_progress(step);
            is_watching = true;
        }
        if (coi_wait_replicas(&threads->done, seen, &threads->runtime->waiting,
                              stuck ? END_GRACE_MS : deadline_ms))
            continue;
        if (stuck)
            return atomic_load_explicit(&threads->busy, memory_order_acquire) == 0;
        now = coi_step_progress(step);
        stuck = now == before;
        before = now;
        if (stuck)
            coi_report_unfinished(step);
    }
    return true;
}

/* The step's error becomes the caller's, payload and all. */
static void
take_error(co_context *parent, coi_step *step)
{
    void *payload = NULL;
    void (*deleter)(void *) = NULL;

    if (!coi_is_broken(step))
        return;
    coi_lock_take(&step->error_lock);
    if (step->error.code != CO_OK && parent->error.code == CO_OK) {
        parent->error = step->error;
        parent->payload_deleter = step->payload_deleter;
    } else {
        payload = step->error.payload;
        deleter = step->payload_deleter;
    }
    step->error.payload = NULL;
    step->payload_deleter = NULL;
    coi_lock_give(&step->error_lock);
    if (payload != NULL && deleter != NULL) /* the user's function runs without our lock */
        deleter(payload);
}

/*
 * A thread cannot be ended safely in C. Everything a stuck replica may still use stays allocated:
 * its threads are not given back and keep their references to the strategy and the arguments, and
 * every later call on the strategy fails.
 */
static void
abandon(coi_replica_threads *threads, co_context *parent)
{
    co_strategy *strategy = threads->strategy;

    take_error(parent, &threads->step);
    coi_lock_take(&strategy->lock);
    if (!atomic_load(&strategy->unusable)) {
        coi_text_line(strategy->why, sizeof(strategy->why), "%s", parent->error.message);
        atomic_store(&strategy->unusable, true);
    }
    coi_lock_give(&strategy->lock);
    coi_runtime_hold(threads->runtime);
    coi_log_line(
        &threads->runtime->log, CO_LOG_ERROR,
        "a replica is stuck; its thread and memory are left behind and the strategy is unusable");
}

/*
 * The random calls of the next step have numbers that do not depend on how many this one made: a
 * replica may have made fewer than others (one without examples, say), and no process knows of the
 * replicas of another.
 */
static void
advance_random(co_context *parent, const coi_step *step, uint64_t used)
{
    uint64_t next = step->origin.random_counter + RANDOM_CALLS_PER_STEP;

    while (next < used)
        next += RANDOM_CALLS_PER_STEP;
    if (next > parent->random_counter)
        parent->random_counter = next;
}

/* The results of all replicas, merged; a reference. */
static co_value *
merge_results(coi_replica_threads *threads, co_context *parent)
{
    co_value *results[COI_MAX_LOCAL_REPLICAS];

    for (int i = 0; i < threads->n; ++i)
        results[i] = threads->step.slots[i].result;
    return coi_regroup(parent, threads->strategy, results, threads->n, CO_KIND_PER_REPLICA, false);
}

/* Results to the caller: merged, or the error of the step. */
static co_value *
step_close(coi_replica_threads *threads, co_context *parent)
{
    coi_step *step = &threads->step;
    uint64_t  random_counter = 0;
    co_value *merged = NULL;
    int       n = threads->n;

    take_error(parent, step);
    for (int i = 0; i < n; ++i) {
        const coi_rendezvous_slot *slot = &step->slots[i];
        co_context                *ctx = threads->replicas[i].ctx;

        random_counter = slot->random_counter > random_counter ? slot->random_counter
                                                               : random_counter;
        if (!slot->is_left)
            continue;
        if (ctx->misuse.site.file != NULL)
            coi_pass_misuse(ctx, parent);
        expire(ctx);
    }
    advance_random(parent, step, random_counter);
    if (step->made != NULL)
        coi_step_variables_free(step, &parent->heap);
    if (n == 1 && parent->error.code == CO_OK) {
        merged = step->slots[0].result;
        if (merged != NULL && (coi_holds_tensors_alone(merged) || !coi_has_component(merged))) {
            /* Nothing to merge it with: its reference becomes the caller's. */
            step->slots[0].result = NULL;
            return merged;
        }
        merged = NULL;
    }
    if (parent->error.code == CO_OK)
        merged = merge_results(threads, parent);
    for (int i = 0; i < n; ++i) {
        coi_unref(&parent->heap, step->slots[i].result);
        step->slots[i].result = NULL;
    }
    if (n > 1) {
        coi_unref(&parent->heap, step->args);
        coi_unref(&parent->heap, step->kwargs);
    }
    return merged;
}

static co_value *
run_on_threads(co_context *ctx, coi_replica_threads *threads, bool *is_back)
{
    coi_strategy_state   *state = coi_strategy_state_of(ctx);
    struct coi_hook_call *hooks = state->hooks;

    state->hooks = NULL; /* merge functions are the step's, not the hook's that ran it */
    atomic_store_explicit(&threads->busy, threads->n - 1, memory_order_relaxed);
    coi_lend(ctx, &coi_lent_to_step);
    if (threads->n > 1)
        coi_replica_threads_wake(threads);
    coi_run_replica(&threads->replicas[0], &threads->step);
    *is_back = threads->n == 1 || wait_all(threads);
    coi_take_back(ctx);
    state->hooks = hooks;
    if (*is_back && threads->n > 1)
        coi_replica_threads_rest(threads);
    if (*is_back)
        return step_close(threads, ctx);
    abandon(threads, ctx);
    return NULL;
}

static bool
check_run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args,
          const co_run_options *options)
{
    if (!coi_check_strategy(ctx, strategy, 2))
        return false;
    if (fn == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR, "argument 3 (fn) of run is NULL; it must be a function");
        return false;
    }
    if (args != NULL && !coi_check_value(ctx, args, 4, "args"))
        return false;
    if (args == NULL || !coi_is_sequence(args)) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "argument 4 (args) of run is %s%s; it must be a tuple or list: co_args(ctx, x), or "
            "co_no_args(ctx)",
            args != NULL ? "a " : "", co_kind_name(co_value_kind(args)));
        return false;
    }
    if (options->kwargs != NULL && !coi_check_value(ctx, options->kwargs, 6, "options.kwargs"))
        return false;
    if (options->kwargs != NULL && options->kwargs->kind != CO_KIND_DICT) {
        coi_fail(ctx, CO_TYPE_ERROR, "kwargs of run is %s; it must be a dict",
                 coi_a_kind(options->kwargs->kind));
        return false;
    }
    return coi_check_enter(ctx, strategy);
}

/* A run inside a merge function: the run around it sees that this one moves. */
static void
set_inner(coi_step *outer, coi_step *inner)
{
    if (outer == NULL)
        return;
    coi_lock_take(&outer->inner_lock);
    atomic_store(&outer->inner, inner);
    coi_lock_give(&outer->inner_lock);
}

/* Runs of a strategy with several workers hold its token, because the collectives of two could
 * cross. */
static co_value *
run_step(co_context *ctx, co_strategy *strategy, coi_replica_threads *threads)
{
    coi_step *step = &threads->step, *outer = ctx->mode.step;
    bool takes_token = strategy->group != NULL && (outer == NULL || outer->strategy != strategy);
    co_value *merged;
    bool      is_back;

    if (takes_token && !coi_workers_begin(ctx, strategy, step)) {
        merged = step_close(threads, ctx);
        coi_replica_threads_give(&ctx->heap, threads);
        return merged;
    }
    if (strategy->recorder != NULL)
        step->epoch = strategy->group != NULL ? atomic_load(&strategy->epoch)
                                              : atomic_fetch_add(&strategy->epoch, 1) + 1;
    set_inner(outer, step);
    merged = run_on_threads(ctx, threads, &is_back);
    set_inner(outer, NULL);
    if (takes_token)
        coi_workers_end(ctx, strategy);
    if (merged == NULL && coi_flight_take_trouble(strategy->recorder))
        coi_flight_report(strategy);
    if (is_back) /* now that nothing reads the progress of its step */
        coi_replica_threads_give(&ctx->heap, threads);
    return merged;
}

/* A custom strategy decides; inside its hook co_run goes on in the engine. */
static co_value *
run_hook(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
         const co_run_options *options)
{
    const co_strategy_definition *hooks = strategy->policy->hooks;
    coi_hook_call                 call;

    coi_hook_begin(ctx, strategy, COI_HOOK_RUN, &call);
    return coi_hook_end(ctx, &call,
                        hooks->run(ctx, strategy, fn, args, user, options, hooks->data));
}

/* --- while a function is captured --- */

typedef struct run_attrs {
    co_strategy *strategy; /* both are references in a program */
    co_function *step;
    bool         in_turn, has_kwargs;
} run_attrs;

static bool
hold_run(coi_heap *heap, void *to, const void *from)
{
    const run_attrs *attrs = from;

    (void)heap;
    (void)to;
    coi_ref(attrs->strategy);
    coi_ref(attrs->step);
    return true;
}

static void
drop_run(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((run_attrs *)attrs)->step);
    coi_unref(heap, ((run_attrs *)attrs)->strategy);
}

static co_value *
replay_run(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const run_attrs *given = attrs;
    co_run_options   options = CO_RUN_OPTIONS_INIT;

    (void)num_in;
    options.kwargs = given->has_kwargs ? in[1] : NULL;
    options.in_turn = given->in_turn;
    return co_run_with(ctx, given->strategy, co_captured, in[0], given->step, &options);
}

static bool
same_run(co_context *ctx, const void *a, const void *b)
{
    const run_attrs *first = a, *second = b;

    return first->strategy == second->strategy && first->in_turn == second->in_turn &&
           first->has_kwargs == second->has_kwargs &&
           coi_check_same_function(ctx, first->step, second->step);
}

#define RUN_RESOURCES (CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS)
const coi_op coi_op_run = {
    COI_RECORDED("run", "Runs a captured step on all replicas; co_run.", replay_run, RUN_RESOURCES,
                 RUN_RESOURCES),
    .attrs_rule = { COI_ATTRS_SIZE(run_attrs), hold_run, drop_run },
    .same_attrs = same_run,
};

/* The step of one replica, captured on the caller's thread: nothing is sent while capturing. The
 * type of its result is of the caller's block. */
static co_value *
capture_replica(co_context *parent, coi_replica_worker *m, coi_step *step, co_function *function,
                coi_graph_run *run)
{
    co_context       *ctx = m->ctx;
    coi_outer_capture outer = coi_outermost_capture(parent);
    coi_program      *program = NULL;
    co_value         *args, *type = NULL;

    coi_bind(ctx, true);
    enter_replica(m, step);
    co_block_begin(ctx);
    args = replica_args(ctx, step);
    ctx->run_args = step->args;
    if (args != NULL && args->kind != CO_KIND_TUPLE)
        args = co_tuple(ctx, args->u.items.items, args->u.items.n);
    if (args != NULL) {
        coi_lend(parent, &coi_lent_to_step);
        ctx->outer_capture = outer.first_frame != NULL ? &outer : NULL;
        if (run == NULL)
            program = coi_function_program(ctx, function, args);
        else if ((program = coi_graph_run_capture(ctx, run, parent->capture, step->fn, step->user,
                                                  &args)) != NULL)
            coi_ref(program);
        ctx->outer_capture = NULL;
        coi_take_back(parent);
    }
    if (program != NULL)
        type = coi_program_result_type(parent, program, args);
    coi_replica_finished(ctx);
    if (ctx->error.code != CO_OK)
        coi_take_error(parent, ctx);
    coi_unref(&ctx->heap, program);
    coi_pop_to(ctx, 0);
    coi_blocks_unwind(ctx, 0);
    coi_bind(ctx, false);
    return type;
}

/* The type of what a run of the step gives: captured for each local replica. */
static co_value *
capture_step(co_context *ctx, coi_replica_threads *threads, co_function *function,
             coi_graph_run *run)
{
    co_value *types[COI_MAX_LOCAL_REPLICAS], *merged = NULL;
    int       i = 0;

    for (; i < threads->n && ctx->error.code == CO_OK; ++i)
        types[i] = capture_replica(ctx, &threads->replicas[i], &threads->step, function, run);
    if (ctx->error.code == CO_OK)
        merged = coi_give(ctx, coi_regroup(ctx, threads->strategy, types, threads->n,
                                           CO_KIND_PER_REPLICA, false));
    for (i = 0; i < threads->n; ++i)
        expire(threads->replicas[i].ctx);
    coi_step_variables_free(&threads->step, &ctx->heap);
    if (threads->n > 1) {
        coi_unref(&ctx->heap, threads->step.args);
        coi_unref(&ctx->heap, threads->step.kwargs);
    }
    return merged;
}

static co_value *
capture_run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
            const co_run_options *options)
{
    co_function_options  named = CO_FUNCTION_OPTIONS_INIT;
    run_attrs            attrs = { strategy, NULL, options->in_turn, options->kwargs != NULL };
    co_value            *in[2] = { args, options->kwargs }, *type;
    coi_replica_threads *threads;

    named.name = "step";
    attrs.step = co_function_of(ctx, fn, user, &named);
    threads = attrs.step != NULL ? coi_replica_threads_take(ctx, strategy) : NULL;
    if (threads == NULL)
        return NULL;
    coi_function_inherit(ctx, attrs.step);
    step_open(threads, ctx, fn, args, user, options);
    type = capture_step(ctx, threads, attrs.step, NULL);
    coi_function_outlives(ctx, attrs.step, user);
    coi_replica_threads_give(&ctx->heap, threads);
    ctx->call = "run";
    return coi_record_call(ctx, &coi_op_run, &attrs, in, attrs.has_kwargs ? 2 : 1, type);
}

/* --- while a graph is built --- */

static co_value *
add_run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
        const co_run_options *options)
{
    coi_graph_run       *run = coi_graph_run_new(ctx, strategy, options);
    coi_replica_threads *threads = run != NULL ? coi_replica_threads_take(ctx, strategy) : NULL;
    co_value            *result = NULL;

    if (threads != NULL) {
        step_open(threads, ctx, fn, args, user, options);
        result = capture_step(ctx, threads, NULL, run);
        coi_replica_threads_give(&ctx->heap, threads);
        ctx->call = "run";
        result = coi_graph_run_record(ctx, run, args, options->kwargs, result);
    }
    coi_unref(&ctx->heap, run);
    return result;
}

co_value *
co_run_with(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
            const co_run_options *options)
{
    co_run_options       all = CO_RUN_OPTIONS_INIT;
    coi_replica_threads *threads;
    co_value            *merged;

    COI_ENTER(ctx, "run", NULL);
    if (options != NULL && !coi_take_options(ctx, &all, sizeof(all), options, 6))
        return NULL;
    if (!check_run(ctx, strategy, fn, args, &all))
        return NULL;
    if (coi_in_graph(ctx))
        return add_run(ctx, strategy, fn, args, user, &all);
    if (coi_is_capturing(ctx))
        return capture_run(ctx, strategy, fn, args, user, &all);
    if (coi_is_hooked(ctx, strategy, COI_HOOK_RUN))
        return run_hook(ctx, strategy, fn, args, user, &all);
    threads = coi_replica_threads_take(ctx, strategy);
    if (threads == NULL)
        return NULL;
    step_open(threads, ctx, fn, args, user, &all);
    merged = run_step(ctx, strategy, threads);
    return merged != NULL ? coi_own(ctx, merged) : NULL;
}

co_value *
co_run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user)
{
    return co_run_with(ctx, strategy, fn, args, user, NULL);
}

co_value *
co_call_for_each_replica(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args,
                         void *user)
{
    COI_ENTER(ctx, "call_for_each_replica", NULL);
    if (!coi_check_strategy(ctx, strategy, 2) ||
        (args != NULL && !coi_check_value(ctx, args, 4, "args")))
        return NULL;
    if (args != NULL && !coi_is_sequence(args))
        args = co_tuple(ctx, &args, 1);
    return co_run_with(ctx, strategy, fn, args != NULL ? args : co_no_args(ctx), user, NULL);
}
