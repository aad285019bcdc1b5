/* SPDX-License-Identifier: Apache-2.0 */
/* See graph.h. */
#include "function/graph.h"
#include "function/function.h"

static void
destroy(coi_heap *heap, void *object)
{
    co_graph *graph = object;

    coi_capture_free(graph->memory, graph->capture);
    for (size_t i = 0; i < graph->num_variables; ++i) {
        coi_unref(heap, graph->variables[i].variable);
        coi_unref(heap, graph->variables[i].initializer);
    }
    coi_free(graph->memory, graph->variables, graph->cap_variables * sizeof(*graph->variables));
    coi_unref(heap, graph->program);
    coi_object_free(heap, graph, sizeof(*graph));
}

const coi_class coi_graph_class = { "graph", destroy, NULL };

co_graph *
coi_graph_new(co_context *ctx)
{
    co_graph *graph = coi_object_new(&ctx->heap, &coi_graph_class, sizeof(*graph));

    if (graph == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a graph");
        return NULL;
    }
    graph->memory = &ctx->runtime->memory;
    graph->device = ctx->device_id;
    coi_lock_init(&graph->lock);
    graph->program = coi_program_new(ctx);
    if (graph->program != NULL)
        graph->capture = coi_capture_of_graph(ctx, graph);
    if (graph->capture != NULL)
        return graph;
    coi_unref(&ctx->heap, graph);
    return NULL;
}

bool
coi_graph_may_grow(co_context *ctx, const co_graph *graph)
{
    if (graph == NULL || !graph->is_final)
        return true;
    coi_fail(ctx, CO_RUNTIME_ERROR,
             "the graph is final, and %s would add to it; build all of it before "
             "co_graph_finalize",
             ctx->call);
    return false;
}

co_value *
coi_operation_type(co_context *ctx)
{
    return coi_give(ctx, coi_tensor_spec(&ctx->heap, CO_DTYPE_NONE, NULL, -1, coi_err(ctx)));
}

static bool
is_default_mode(const coi_mode *mode)
{
    return mode->strategy == NULL && !mode->cross && mode->step == NULL;
}

bool
coi_graph_note_step(co_context *ctx, coi_program *program, const co_graph *graph, co_value *after)
{
    coi_program_step *step = &program->steps[program->num_steps - 1];

    if (after != NULL)
        coi_ref(after);
    step->after = after;
    if (graph == NULL || is_default_mode(&ctx->mode))
        return true;
    step->mode = coi_alloc(program->memory, sizeof(*step->mode));
    if (step->mode == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a graph");
        return false;
    }
    *step->mode = ctx->mode;
    if (step->mode->strategy != NULL)
        coi_ref(step->mode->strategy);
    return true;
}

/* --- entering one --- */

/* What is restored where a graph is left, or an init scope. */
typedef struct left_capture {
    coi_capture_pause pause;
    co_graph         *graph; /* a reference; NULL: none */
    co_value         *after; /* what its calls came after, which those who entered that hold */
} left_capture;

static void
leave(co_context *ctx, void *user)
{
    left_capture *left = user;

    coi_capture_resume(ctx, &left->pause);
    if (left->graph != NULL)
        left->graph->capture->after = left->after;
    coi_unref(&ctx->heap, left->graph);
    coi_free(&ctx->runtime->memory, left, sizeof(*left));
}

uint64_t
coi_capture_push(co_context *ctx, coi_entry_kind kind, co_graph *graph)
{
    left_capture *left = coi_calloc(&ctx->runtime->memory, sizeof(*left));
    coi_entry    *entry = left != NULL ? coi_push(ctx, kind, NULL) : NULL;

    if (entry == NULL) {
        coi_free(&ctx->runtime->memory, left, sizeof(*left));
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to enter a graph");
        return 0;
    }
    left->pause = coi_capture_suspend(ctx);
    entry->undo = leave;
    entry->user = left;
    if (graph != NULL) {
        left->graph = graph;
        left->after = graph->capture->after;
        coi_ref(graph);
        coi_capture_enter(ctx, graph->capture);
    }
    return entry->id;
}

/* --- variables --- */

const coi_graph_variable *
coi_graph_find_variable(const co_graph *graph, const co_value *variable)
{
    for (size_t i = 0; i < graph->num_variables; ++i)
        if (graph->variables[i].variable->u.variable == variable->u.variable)
            return &graph->variables[i];
    return NULL;
}

/* In default mode: a variable is initialised outside of steps, wherever it was made. */
static co_value *
record_initializer(co_context *ctx, co_graph *graph, co_value *variable, const coi_op *op,
                   co_value *initial)
{
    coi_mode   mode = ctx->mode;
    co_value **after = &graph->capture->after, *before = *after, *made;

    ctx->mode = (coi_mode){ .num_replicas = 1, .update_id = -1 };
    *after = NULL;
    made = coi_capture_record(ctx, graph->capture, op, NULL, (co_value *[]){ variable, initial }, 2,
                              coi_none(ctx));
    *after = before;
    ctx->mode = mode;
    return made;
}

bool
coi_graph_add_variable(co_context *ctx, co_value *variable, const coi_op *op, co_value *initial)
{
    co_graph          *graph = ctx->capture->graph;
    coi_graph_variable made = { variable, NULL };
    bool               ok;

    if (initial != NULL &&
        (made.initializer = record_initializer(ctx, graph, variable, op, initial)) == NULL)
        return false;
    coi_lock_take(&graph->lock);
    ok = coi_grow(graph->memory, (void **)&graph->variables, &graph->cap_variables,
                  graph->num_variables + 1, sizeof(*graph->variables));
    if (ok) {
        coi_ref(variable);
        if (made.initializer != NULL)
            coi_ref(made.initializer);
        graph->variables[graph->num_variables++] = made;
    }
    coi_lock_give(&graph->lock);
    if (!ok)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a variable of a graph");
    return ok;
}
