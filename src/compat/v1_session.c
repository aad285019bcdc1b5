/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: runs of the part of a graph that fetches need. Which steps these are is found once for
 * each combination of fetches and feeds (v1_session_plan.c) and kept; a run makes their calls by
 * the executor, as the replay of a captured function does.
 */
#include "compat/v1_config.h"
#include "compat/v1_session.h"

#include "context/tape.h"
#include "function/function.h"
#include "function/value_tree.h"
#include "strategy/distributed_input.h"

#include <string.h>

/* Random numbers of one run; the next run has others. */
#define RANDOM_CALLS_PER_RUN ((uint64_t)1 << 32)

static void
destroy(coi_heap *heap, void *object)
{
    co_session *session = object;

    for (size_t i = 0; i < session->num_plans; ++i)
        coi_unref(heap, session->plans[i]);
    coi_unref(heap, session->config);
    coi_unref(heap, session->graph);
    coi_object_free(heap, session, sizeof(*session));
}

static const coi_class session_class = { "session", destroy, NULL };

/* --- opening and closing --- */

static co_graph *
graph_of(co_context *ctx, co_graph *graph)
{
    if (graph != NULL)
        return coi_check_object(ctx, graph, &coi_graph_class, 2, "graph") ? graph : NULL;
    if (coi_in_graph(ctx))
        return ctx->capture->graph;
    coi_fail(ctx, CO_RUNTIME_ERROR,
             "argument 2 (graph) of session_open is NULL and no graph is current; give the graph "
             "that the session runs");
    return NULL;
}

co_session *
co_session_open(co_context *ctx, co_graph *graph, const co_session_options *options)
{
    co_session_options all = CO_SESSION_OPTIONS_INIT;
    co_session        *session;
    co_value          *config;

    COI_ENTER(ctx, "session_open", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 3) ||
        (graph = graph_of(ctx, graph)) == NULL ||
        (config = coi_config_copy(ctx, all.config, 3)) == NULL)
        return NULL;
    session = coi_object_new(&ctx->heap, &session_class, sizeof(*session));
    if (session == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a session");
        return NULL;
    }
    coi_lock_init(&session->lock);
    coi_ref(graph);
    session->graph = graph;
    coi_ref(config);
    session->config = config;
    return coi_own(ctx, session);
}

static bool
check_session(co_context *ctx, const co_session *session)
{
    return coi_check_object(ctx, session, &session_class, 2, "session");
}

co_code
co_session_close(co_context *ctx, co_session *session)
{
    COI_ENTER_CODE(ctx, "session_close");
    if (check_session(ctx, session))
        atomic_store(&session->is_closed, true);
    return ctx->error.code;
}

co_graph *
co_session_graph(co_context *ctx, co_session *session)
{
    COI_ENTER(ctx, "session_graph", NULL);
    return check_session(ctx, session) ? coi_own_ref(ctx, session->graph) : NULL;
}

co_value *
co_session_config(co_context *ctx, co_session *session)
{
    COI_ENTER(ctx, "session_config", NULL);
    return check_session(ctx, session) ? coi_own_ref(ctx, session->config) : NULL;
}

co_dataset *
co_v1_make_numpy_dataset(co_context *ctx, co_strategy *strategy, co_value *arrays,
                         co_session *session)
{
    COI_ENTER(ctx, "v1_make_numpy_dataset", NULL);
    if (session != NULL && coi_in_graph(ctx) &&
        !coi_check_object(ctx, session, &session_class, 4, "session"))
        return NULL;
    return coi_make_numpy_dataset(ctx, strategy, arrays, session != NULL);
}

/* --- fetches and feeds --- */

typedef struct fetching {
    co_context     *ctx;
    const co_graph *graph;
    coi_slot_list  *slots;
} fetching;

static bool
fetch_leaf(const co_value *leaf, void *arg)
{
    fetching *f = arg;
    char      text[200];

    if (leaf->kind == CO_KIND_TENSOR || coi_is_variable(leaf))
        return true;
    coi_format(&f->ctx->heap, leaf, text, sizeof(text));
    if (leaf->kind != CO_KIND_SYMBOLIC)
        coi_fail(f->ctx, CO_TYPE_ERROR,
                 "%s (%s) cannot be fetched; fetch tensors, operations and variables of the graph, "
                 "and structures of them",
                 coi_a_kind(leaf->kind), text);
    else if (leaf->u.symbol.program != f->graph->program->serial)
        coi_fail(f->ctx, CO_VALUE_ERROR,
                 "%s cannot be fetched: it belongs to another graph than the session's, or to a "
                 "step or captured function; a step returns what is to be fetched",
                 text);
    else
        coi_slot_list_add(f->ctx, f->slots, leaf->u.symbol.slot);
    return f->ctx->error.code == CO_OK;
}

/* A fed value as a tensor of the dtype and shape: of the block, or NULL with an error. */
static co_value *
feed_value(co_context *ctx, const co_value *symbol, co_value *value)
{
    char      text[200];
    co_value *tensor;

    if (coi_has_symbols(value)) {
        coi_format(&ctx->heap, value, text, sizeof(text));
        coi_fail(ctx, CO_TYPE_ERROR,
                 "%s is fed, which has no elements; feed a tensor, a number or a list of them",
                 text);
        return NULL;
    }
    tensor = coi_give(ctx, coi_as_tensor(ctx, value,
                                         value->kind == CO_KIND_TENSOR || coi_is_variable(value)
                                             ? CO_DTYPE_NONE
                                             : (co_dtype)symbol->dtype));
    if (tensor == NULL)
        return NULL;
    if (tensor->dtype != symbol->dtype) {
        coi_fail(ctx, CO_TYPE_ERROR, "a tensor of dtype %s is fed for one of dtype %s; use co_cast",
                 co_dtype_name((co_dtype)tensor->dtype), co_dtype_name((co_dtype)symbol->dtype));
        return NULL;
    }
    return coi_check_fits(ctx, symbol, tensor, "what is fed") ? tensor : NULL;
}

static bool
check_feed(co_context *ctx, const co_graph *graph, const co_feed *feed)
{
    const co_value *symbol = feed->tensor;
    char            text[200];

    if (!coi_check_value(ctx, symbol, 4, "feeds[i].tensor") ||
        !coi_check_value(ctx, feed->value, 4, "feeds[i].value"))
        return false;
    coi_format(&ctx->heap, symbol, text, sizeof(text));
    if (symbol->kind != CO_KIND_SYMBOLIC || coi_is_operation(symbol))
        coi_fail(ctx, CO_VALUE_ERROR,
                 "%s (%s) cannot be fed; only symbolic tensors of the graph can, such as "
                 "placeholders",
                 coi_is_operation(symbol) ? "an operation" : coi_a_kind(symbol->kind), text);
    else if (symbol->u.symbol.program != graph->program->serial)
        coi_fail(
            ctx, CO_TYPE_ERROR,
            "%s cannot be fed: it belongs to another graph than the session's, or to a step or "
            "captured function",
            text);
    return ctx->error.code == CO_OK;
}

/* Check feeds and convert them: tensors of the block go to `values`. */
static bool
take_feeds(co_context *ctx, const co_graph *graph, const co_feed *feeds, size_t n,
           co_value **values, coi_slot_list *slots)
{
    if (n > 0 && feeds == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 4 (feeds) of session_run is NULL and num_feeds is %zu", n);
        return false;
    }
    for (size_t i = 0; i < n; ++i) {
        if (!check_feed(ctx, graph, &feeds[i]))
            return false;
        if (coi_slot_list_has(slots, feeds[i].tensor->u.symbol.slot)) {
            coi_fail(ctx, CO_VALUE_ERROR, "feeds[%zu] is for a tensor that is fed already", i);
            return false;
        }
        values[i] = feed_value(ctx, feeds[i].tensor, feeds[i].value);
        if (values[i] == NULL || !coi_slot_list_add(ctx, slots, feeds[i].tensor->u.symbol.slot))
            return false;
    }
    return true;
}

/* --- running --- */

/* Run one step under what it was made under. */
static bool
run_step(co_context *ctx, const coi_program *program, const coi_program_step *step,
         coi_run_values *values)
{
    size_t entries = ctx->num_entries;
    bool   ok;

    if (step->mode == NULL)
        return coi_program_run_step(ctx, program, step, values);
    if (coi_push(ctx, COI_ENTRY_DEVICE, NULL) == NULL) /* the graph keeps the strategy alive */
        return false;
    ctx->mode = *step->mode;
    ok = coi_program_run_step(ctx, program, step, values);
    coi_pop_to(ctx, entries);
    return ok;
}

/* The values of one run. */
typedef struct running {
    const co_session       *session;
    const coi_session_plan *plan;
    const coi_slot_list    *fed;
    co_value *const        *values; /* what is fed */
    co_value               *fetches;
    const co_site_info     *site; /* of the call that runs them */
} running;

/* What is fed stays, also where a step that gives it runs for another of its results. */
static void
put_fed(co_context *ctx, const running *r, co_value **slots)
{
    for (size_t i = 0; i < r->fed->n; ++i) {
        co_value **slot = &slots[r->fed->slots[i]];

        if (*slot == r->values[i])
            continue;
        coi_unref(&ctx->heap, *slot);
        coi_ref(r->values[i]);
        *slot = r->values[i];
    }
}

static bool
run_steps(co_context *ctx, const running *r, coi_run_values *values)
{
    const coi_program      *program = r->session->graph->program;
    const coi_session_plan *plan = r->plan;

    put_fed(ctx, r, values->slots);
    for (size_t i = 0; i < plan->num_steps; ++i) {
        const coi_program_step *step = &plan->steps[i];
        size_t                  num_owned = ctx->num_owned;

        if (!run_step(ctx, program, step, values))
            return false;
        /* What the step made and no slot holds. */
        while (ctx->num_owned > num_owned)
            coi_unref(&ctx->heap, ctx->owned[--ctx->num_owned]);
        for (uint32_t k = 0; k < step->num_dropped; ++k) {
            co_value **slot = &values->slots[plan->dropped[step->first_dropped + k]];

            coi_unref(&ctx->heap, *slot);
            *slot = NULL;
        }
        put_fed(ctx, r, values->slots);
    }
    return true;
}

/* A fetched variable is read after the run, outside of all strategies. */
static co_value *
read_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    (void)arg;
    return coi_is_variable(leaf) ? co_variable_read(ctx, leaf) : leaf;
}

/* A reference to the result, or NULL with an error. */
static co_value *
run_with_values(co_context *ctx, const running *r, coi_run_values *values)
{
    const coi_program *program = r->session->graph->program;
    co_value          *result = NULL;

    for (size_t i = 0; values->examples != NULL && i < r->plan->num_slots; ++i)
        values->examples[i] = -1;
    co_block_begin(ctx);
    if (ctx->error.code == CO_OK && run_steps(ctx, r, values)) {
        coi_copy_site(&ctx->site, r->site); /* the last step left its own */
        result = coi_program_value(ctx, program, values, r->fetches);
        if (result != NULL)
            result = coi_tree_map(ctx, result, read_leaf, NULL);
        if (result != NULL)
            coi_ref(result);
    }
    for (size_t i = r->plan->num_slots; i > 0; --i)
        coi_unref(&ctx->heap, values->slots[i - 1]);
    co_block_end(ctx);
    return result;
}

static co_value *
run_plan(co_context *ctx, const running *r)
{
    size_t         n = r->plan->num_slots + 1, slot_bytes = n * (sizeof(co_value *) + sizeof(bool));
    size_t         example_bytes = n * sizeof(int64_t);
    coi_run_values values = { .slots = coi_small_alloc(&ctx->heap, slot_bytes) };
    co_value      *result = NULL;

    if (r->plan->has_examples)
        values.examples = coi_small_alloc(&ctx->heap, example_bytes);
    if (values.slots == NULL || (r->plan->has_examples && values.examples == NULL)) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the values of a run");
    } else {
        memset(values.slots, 0, slot_bytes);
        values.is_one = (bool *)(values.slots + n);
        result = run_with_values(ctx, r, &values);
    }
    if (values.examples != NULL)
        coi_small_free(&ctx->heap, values.examples, example_bytes);
    if (values.slots != NULL)
        coi_small_free(&ctx->heap, values.slots, slot_bytes);
    return result;
}

/* What a run changes in its context, and restores. */
typedef struct surroundings {
    coi_capture_pause pause;
    size_t            entries;
    co_site_info      site;
    uint64_t          seed, random_counter;
} surroundings;

/* Calls are made, in default mode, on the device of the graph. */
static bool
enter(co_context *ctx, co_session *session, surroundings *s)
{
    const coi_capture *capture = session->graph->capture;
    uint64_t           number = atomic_fetch_add(&session->num_runs, 1);

    s->entries = ctx->num_entries;
    if (coi_push(ctx, COI_ENTRY_DEVICE, NULL) == NULL)
        return false;
    coi_enter_device(ctx, &session->graph->device);
    ctx->mode = (coi_mode){ .num_replicas = 1, .update_id = -1 };
    s->pause = coi_capture_suspend(ctx);
    s->site = ctx->site;
    s->seed = ctx->seed;
    s->random_counter = ctx->random_counter;
    if (capture->has_seed) {
        ctx->seed = capture->seed;
        ctx->random_counter = number * RANDOM_CALLS_PER_RUN;
    }
    return true;
}

static void
leave(co_context *ctx, const co_session *session, const surroundings *s)
{
    if (session->graph->capture->has_seed) {
        ctx->seed = s->seed;
        ctx->random_counter = s->random_counter;
    }
    coi_copy_site(&ctx->site, &s->site);
    coi_capture_resume(ctx, &s->pause);
    coi_pop_to(ctx, s->entries);
}

/* A reference. */
static co_value *
run(co_context *ctx, co_session *session, co_value *fetches, const co_feed *feeds, size_t num_feeds,
    const co_site_info *site)
{
    coi_slot_list     fetched = { 0 }, fed = { 0 };
    fetching          f = { ctx, session->graph, &fetched };
    size_t            nbytes = (num_feeds + 1) * sizeof(co_value *);
    co_value        **values = coi_small_alloc(&ctx->heap, nbytes), *result = NULL;
    coi_session_plan *plan = NULL;

    if (values == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu feeds", num_feeds);
    else if (take_feeds(ctx, session->graph, feeds, num_feeds, values, &fed) &&
             coi_tree_all(fetches, fetch_leaf, &f))
        plan = coi_session_plan_for(ctx, session, &fetched, &fed);
    if (plan != NULL)
        result = run_plan(ctx, &(running){ session, plan, &fed, values, fetches, site });
    coi_unref(&ctx->heap, plan);
    coi_slot_list_free(ctx, &fetched);
    coi_slot_list_free(ctx, &fed);
    if (values != NULL)
        coi_small_free(&ctx->heap, values, nbytes);
    return result;
}

static bool
may_run(co_context *ctx, const co_session *session)
{
    if (!check_session(ctx, session))
        return false;
    if (atomic_load(&session->is_closed))
        coi_fail(ctx, CO_RUNTIME_ERROR, "the session is closed; open another one");
    else if (ctx->mode.step != NULL || (coi_is_capturing(ctx) && !ctx->capture->is_graph))
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "session_run is called in a step or captured function; call it outside");
    return ctx->error.code == CO_OK;
}

co_value *
co_session_run(co_context *ctx, co_session *session, co_value *fetches, const co_feed *feeds,
               size_t num_feeds)
{
    surroundings s;
    co_value    *result = NULL;

    COI_ENTER(ctx, "session_run", NULL);
    if (!may_run(ctx, session) || !coi_check_value(ctx, fetches, 3, "fetches"))
        return NULL;
    coi_ref(session); /* which a function of a dataset may release */
    if (enter(ctx, session, &s)) {
        co_block_begin(ctx); /* what is fed */
        result = run(ctx, session, fetches, feeds, num_feeds, &s.site);
        co_block_end(ctx);
        leave(ctx, session, &s);
    }
    coi_unref(&ctx->heap, session);
    return result != NULL ? coi_own(ctx, result) : NULL;
}
