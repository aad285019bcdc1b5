/* SPDX-License-Identifier: Apache-2.0 */
/* See graph_run.h. */
#include "strategy/graph_run.h"

#include "base/text.h"
#include "function/function.h"
#include "function/value_tree.h"

#include <string.h>

static void
drop_exports(coi_heap *heap, coi_exports *exports)
{
    for (int i = 0; i < exports->n; ++i) {
        coi_unref(heap, exports->items[i].name);
        coi_unref(heap, exports->items[i].value);
    }
    exports->n = 0;
}

static void
destroy(coi_heap *heap, void *object)
{
    coi_graph_run *run = object;

    drop_exports(heap, &run->exports);
    for (int i = 0; i < run->num_programs; ++i) {
        coi_unref(heap, run->programs[i]);
        coi_unref(heap, run->outside[i]);
    }
    coi_unref(heap, run->strategy);
    coi_object_free(heap, run, sizeof(*run));
}

static const coi_class run_class = { "run in a graph", destroy, NULL };

coi_graph_run *
coi_graph_run_new(co_context *ctx, co_strategy *strategy, const co_run_options *options)
{
    coi_graph_run *run = coi_object_new(&ctx->heap, &run_class, sizeof(*run));

    if (run == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a run in a graph");
        return NULL;
    }
    coi_ref(strategy);
    run->strategy = strategy;
    run->in_turn = options->in_turn;
    run->has_kwargs = options->kwargs != NULL;
    return run;
}

/* --- capturing --- */

/* What the step returns is all that a session can ask for: an effect that it does not need never
 * happens. */
static void
say_lost(co_context *ctx, const coi_program *program)
{
    coi_needs needs;
    bool      ok = coi_needs_open(&needs, program);

    if (ok) {
        coi_want_all(&needs, program->result);
        ok = coi_needs_find(&needs);
    }
    for (size_t i = 0; ok && i < program->num_steps; ++i) {
        const coi_program_step *step = &program->steps[i];

        if (needs.is_needed[i] || (coi_step_writes(step) & CO_RESOURCE_VARIABLE) == 0)
            continue;
        coi_log_line(&ctx->runtime->log, CO_LOG_WARNING,
                     "%s:%d: %s in a step of a graph never runs, because nothing that the step "
                     "returns needs it; return its result or co_last_operation, or let the "
                     "result come after it (CO_CONTROL_DEPENDENCIES)",
                     step->site.file != NULL ? coi_path_end(step->site.file, 120) : "?",
                     step->site.line, step->call);
    }
    coi_needs_close(&needs);
}

bool
coi_graph_export(co_context *ctx, const coi_export *one)
{
    coi_exports *exports = ctx->capture->exports;

    if (exports->n == COI_MAX_EXPORTS) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "a step sets more than %d outputs", COI_MAX_EXPORTS);
        return false;
    }
    coi_ref(one->name);
    coi_ref(one->value);
    exports->items[exports->n++] = *one;
    return true;
}

/* The function of a step, and the run that takes what it exports. */
typedef struct exporting {
    co_fn          fn;
    void          *user;
    coi_graph_run *run;
} exporting;

/* Replicas export the same names, in the same order. Those of the first stay with the run. */
static bool
agree(co_context *ctx, coi_graph_run *run, const coi_exports *mine)
{
    bool same = mine->n == run->exports.n;

    if (run->num_programs == 0) {
        run->exports = *mine;
        for (int i = 0; i < mine->n; ++i) {
            coi_ref(mine->items[i].name);
            run->exports.items[i].value = NULL;
        }
        return true;
    }
    for (int i = 0; same && i < mine->n; ++i)
        same = mine->items[i].op == run->exports.items[i].op &&
               mine->items[i].kind == run->exports.items[i].kind &&
               coi_same_host_value(mine->items[i].name, run->exports.items[i].name);
    if (!same)
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "replicas disagree on the output they set; name and operation must be the same on all");
    return same;
}

/* The result, or a tuple of it and of what is exported. */
static co_value *
call_step(co_context *ctx, co_value *args, void *user)
{
    const exporting *e = user;
    coi_capture     *capture = ctx->capture;
    coi_exports      mine = { .n = 0 };
    co_value        *values[COI_MAX_EXPORTS], *result, *exported;

    capture->exports = &mine;
    result = e->fn(ctx, args, e->user);
    capture->exports = NULL;
    if (ctx->error.code == CO_OK && agree(ctx, e->run, &mine) && mine.n > 0) {
        for (int i = 0; i < mine.n; ++i)
            values[i] = mine.items[i].value;
        exported = co_tuple(ctx, values, (size_t)mine.n);
        if (result == NULL)
            result = co_none(ctx);
        result = co_tuple(ctx, (co_value *[]){ result, exported }, 2);
    }
    drop_exports(&ctx->heap, &mine);
    return result;
}

/* The result of the run; what is exported goes where it is asked for. */
static co_value *
deliver(co_context *ctx, coi_graph_run *run, co_value *result)
{
    co_value *const *both;

    if (result == NULL || run->exports.n == 0)
        return result;
    both = result->u.items.items;
    for (int i = 0; i < run->exports.n && ctx->error.code == CO_OK; ++i) {
        const coi_export *one = &run->exports.items[i];

        one->fn(ctx, one->name->u.string.data, one->kind, one->op, both[1]->u.items.items[i],
                one->user);
    }
    drop_exports(&ctx->heap, &run->exports);
    return ctx->error.code == CO_OK ? both[0] : NULL;
}

coi_program *
coi_graph_run_capture(co_context *ctx, coi_graph_run *run, coi_capture *capture, co_fn fn,
                      void *user, co_value **args)
{
    coi_program *program = coi_program_new(ctx);
    co_value    *types = program != NULL ? coi_types_of_args(ctx, *args) : NULL;
    co_value    *symbols = types != NULL ? coi_symbols_of_types(ctx, program, types) : NULL;
    co_value    *outside = NULL;
    exporting    e = { fn, user, run };

    if (symbols == NULL) {
        coi_unref(&ctx->heap, program);
        return NULL;
    }
    ctx->capture = capture; /* around the step, whose values it may use */
    program = coi_capture_part(ctx, program, "step", call_step, &e, symbols, &outside);
    ctx->capture = NULL;
    if (program == NULL)
        return NULL;
    run->programs[run->num_programs] = program;
    coi_ref(outside);
    run->outside[run->num_programs++] = outside;
    if (run->num_programs == 1)
        say_lost(ctx, program);
    *args = co_tuple(ctx, (co_value *[]){ *args, outside }, 2);
    return *args != NULL ? program : NULL;
}

co_value *
coi_graph_run_record(co_context *ctx, coi_graph_run *run, co_value *args, co_value *kwargs,
                     co_value *type)
{
    coi_graph_run_attrs attrs = { run, NULL };
    co_value           *in[3] = { args, kwargs, NULL }, *result;

    if (type == NULL || (kwargs == NULL && (in[1] = co_none(ctx)) == NULL) ||
        (in[2] = co_tuple(ctx, run->outside, (size_t)run->num_programs)) == NULL)
        return NULL;
    result = coi_record_call(ctx, &coi_op_run_in_graph, &attrs, in, 3, type);
    for (int i = 0; i < run->num_programs; ++i) { /* it is an operand now */
        coi_unref(&ctx->heap, run->outside[i]);
        run->outside[i] = NULL;
    }
    return deliver(ctx, run, result);
}

/* --- running --- */

static bool
hold_run(coi_heap *heap, void *to, const void *from)
{
    (void)heap;
    (void)to;
    coi_ref(((const coi_graph_run_attrs *)from)->run);
    return true;
}

static void
drop_run(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((coi_graph_run_attrs *)attrs)->run);
}

/* What all replicas of one run have. */
typedef struct replaying {
    const coi_graph_run_attrs *attrs;
    co_value                  *outside;
} replaying;

static co_value *
replay_replica(co_context *ctx, co_value *args, void *user)
{
    const replaying *r = user;
    int              i = ctx->mode.local_replica;
    co_value        *all;

    if (args->kind != CO_KIND_TUPLE)
        args = co_tuple(ctx, args->u.items.items, args->u.items.n);
    all = args != NULL ? co_tuple(ctx, (co_value *[]){ args, r->outside->u.items.items[i] }, 2)
                       : NULL;
    return all != NULL
               ? coi_program_replay_part(ctx, r->attrs->run->programs[i], all, r->attrs->is_needed)
               : NULL;
}

static co_value *
replay_run(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    replaying            r = { attrs, in[2] };
    const coi_graph_run *run = r.attrs->run;
    co_run_options       options = CO_RUN_OPTIONS_INIT;

    (void)num_in;
    options.kwargs = run->has_kwargs ? in[1] : NULL;
    options.in_turn = run->in_turn;
    return co_run_with(ctx, run->strategy, replay_replica, in[0], &r, &options);
}

/* --- as much as is needed --- */

/* Whether replicas make the same calls: then a call that one needs is made by all, and those that
 * wait for each other meet. */
static bool
are_alike(const coi_graph_run *run)
{
    const coi_program *first = run->programs[0];

    for (int i = 1; i < run->num_programs; ++i) {
        if (run->programs[i]->num_steps != first->num_steps)
            return false;
        for (size_t k = 0; k < first->num_steps; ++k)
            if (run->programs[i]->steps[k].op != first->steps[k].op)
                return false;
    }
    return true;
}

/* The results of a replica's program that stand for results of the run which are wanted. */
static void
want_results(coi_needs *graph, const co_value *merged, coi_needs *own, const co_value *result,
             int replica)
{
    coi_values items = coi_tree_items(result);

    if (coi_is_distributed(merged) && !coi_is_distributed(result) &&
        (size_t)replica < merged->u.per_replica.n)
        merged = merged->u.per_replica.items[replica];
    if (!coi_is_tree(result) || !coi_is_same_node(merged, result)) {
        if (coi_is_wanted(graph, merged))
            coi_want_all(own, result);
        return;
    }
    for (size_t i = 0; i < items.n; ++i)
        if (items.items[i] != NULL)
            want_results(graph, coi_tree_items(merged).items[i], own, items.items[i], replica);
}

/* The operands of a run for which wanted arguments of a replica's program stand. */
static void
want_given(coi_needs *graph, const co_value *given, coi_needs *own, const co_value *pattern,
           int replica)
{
    coi_values items = coi_tree_items(pattern);

    if (coi_is_distributed(given) && !coi_is_distributed(pattern) &&
        (size_t)replica < given->u.per_replica.n)
        given = given->u.per_replica.items[replica];
    if (!coi_is_tree(pattern) || !coi_is_same_node(given, pattern)) {
        if (coi_is_wanted(own, pattern))
            coi_want_all(graph, given);
        return;
    }
    for (size_t i = 0; i < items.n; ++i)
        if (items.items[i] != NULL)
            want_given(graph, coi_tree_items(given).items[i], own, items.items[i], replica);
}

/* Keyword arguments are one more argument of the step, and what it uses of the graph follows as
 * another tuple. */
static void
want_arguments(coi_needs *graph, const coi_program_step *step, coi_needs *own, int replica)
{
    const co_value *all = own->program->args->u.items.items[0];
    size_t          n = step->in[0]->u.items.n;

    for (size_t i = 0; i < all->u.items.n; ++i)
        want_given(graph, i < n ? step->in[0]->u.items.items[i] : step->in[1], own,
                   all->u.items.items[i], replica);
    want_given(graph, step->in[2]->u.items.items[replica], own,
               own->program->args->u.items.items[1], replica);
}

static size_t
count(const bool *is_needed, size_t n)
{
    size_t num = 0;

    for (size_t i = 0; i < n; ++i)
        num += is_needed[i];
    return num;
}

/* What one replica needs, besides what is needed already, and with `takes` what it takes for that
 * of the graph; false without memory. */
static bool
need(coi_needs *graph, const coi_program_step *step, int replica, bool *is_needed, bool takes)
{
    const coi_graph_run *run = ((const coi_graph_run_attrs *)step->attrs)->run;
    const coi_program   *program = run->programs[replica];
    coi_needs            own;
    bool                 ok = coi_needs_open(&own, program);

    if (ok) {
        memcpy(own.is_needed, is_needed, program->num_steps);
        want_results(graph, step->result, &own, program->result, replica);
        ok = coi_needs_find(&own);
    }
    if (ok) {
        memcpy(is_needed, own.is_needed, program->num_steps);
        if (takes)
            want_arguments(graph, step, &own, replica);
    }
    coi_needs_close(&own);
    return ok;
}

/* The calls that all replicas make; false without memory. */
static bool
need_all(coi_needs *graph, const coi_program_step *step, bool *is_needed)
{
    const coi_graph_run *run = ((const coi_graph_run_attrs *)step->attrs)->run;
    size_t               n = run->programs[0]->num_steps, before;

    do {
        before = count(is_needed, n);
        for (int i = 0; i < run->num_programs; ++i)
            if (!need(graph, step, i, is_needed, false))
                return false;
    } while (count(is_needed, n) != before);
    return true;
}

bool
coi_graph_run_needed(coi_needs *graph, const coi_program_step *step, bool **is_needed,
                     size_t *num_calls)
{
    const coi_graph_run *run = ((const coi_graph_run_attrs *)step->attrs)->run;
    coi_memory          *memory = graph->program->memory;

    *num_calls = run->programs[0]->num_steps + 1;
    *is_needed = NULL;
    if (coi_is_operation(step->result) || !are_alike(run))
        return true;
    *is_needed = coi_calloc(memory, *num_calls);
    if (*is_needed == NULL)
        return false;
    if (need_all(graph, step, *is_needed))
        return true;
    coi_free(memory, *is_needed, *num_calls);
    *is_needed = NULL;
    return false;
}

static bool
want_operands(coi_needs *graph, const coi_program_step *step)
{
    const coi_graph_run *run = ((const coi_graph_run_attrs *)step->attrs)->run;
    size_t               num_calls;
    bool                *is_needed, ok = coi_graph_run_needed(graph, step, &is_needed, &num_calls);

    if (is_needed == NULL) {
        for (int k = 0; k < step->num_in; ++k)
            coi_want_all(graph, step->in[k]);
        return ok;
    }
    for (int i = 0; ok && i < run->num_programs; ++i)
        ok = need(graph, step, i, is_needed, true);
    coi_free(graph->program->memory, is_needed, num_calls);
    return ok;
}

#define RESOURCES (CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS)
const coi_op coi_op_run_in_graph = {
    COI_RECORDED("run_in_graph", "Runs the step of a graph on all replicas; co_run.", replay_run,
                 RESOURCES, RESOURCES),
    .want_operands = want_operands,
    .attrs_rule = { COI_ATTRS_SIZE(coi_graph_run_attrs), hold_run, drop_run },
};
