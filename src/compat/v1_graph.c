/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph mode: which graph is current, placeholders, operations and what they come after, the
 * initializers of variables. A graph itself is in function/graph.h; sessions are in v1_session.c.
 */
#include "compat/v1_graph.h"

#include "context/tape.h"
#include "function/function.h"
#include "function/value_tree.h"
#include "variable/variable.h"

#include <string.h>

/* --- the mode of a context --- */

/* A context owns its graph before anything else, and lets go of it last. */
static bool
own_first(co_context *ctx, co_graph *graph)
{
    if (coi_own(ctx, graph) == NULL)
        return false;
    memmove(&ctx->owned[1], &ctx->owned[0], (ctx->num_owned - 1) * sizeof(*ctx->owned));
    ctx->owned[0] = &graph->object;
    for (size_t i = 0; i < ctx->num_blocks; ++i)
        ++ctx->blocks[i].num_owned;
    return true;
}

co_code
co_v1_disable_eager_execution(co_context *ctx)
{
    co_graph *graph;

    COI_ENTER_CODE(ctx, "v1_disable_eager_execution");
    if (coi_is_capturing(ctx) && ctx->capture->is_graph)
        return CO_OK;
    if (coi_is_capturing(ctx) || ctx->num_entries > 0 || ctx->mode.step != NULL)
        return coi_fail(ctx, CO_RUNTIME_ERROR,
                        "v1_disable_eager_execution is called inside a scope, step or captured "
                        "function; call it right after co_open");
    if (coi_heap_was_used(&ctx->heap)) /* operations are what makes values */
        return coi_fail(
            ctx, CO_VALUE_ERROR,
            "v1_disable_eager_execution is called after values were made; call it right "
            "after co_open");
    graph = coi_graph_new(ctx);
    if (graph != NULL && own_first(ctx, graph)) {
        coi_tape_log_free(ctx);
        coi_capture_enter(ctx, graph->capture);
    }
    return ctx->error.code;
}

co_code
co_v1_enable_eager_execution(co_context *ctx)
{
    const coi_program *program;

    COI_ENTER_CODE(ctx, "v1_enable_eager_execution");
    if (!coi_is_capturing(ctx))
        return CO_OK;
    if (!ctx->capture->is_graph || ctx->num_entries > 0)
        return coi_fail(ctx, CO_RUNTIME_ERROR,
                        "v1_enable_eager_execution is called inside a scope, graph or captured "
                        "function; call it right after co_open");
    program = ctx->capture->graph->program;
    if (program->num_steps > 0 || program->num_slots > 0)
        return coi_fail(
            ctx, CO_VALUE_ERROR,
            "v1_enable_eager_execution is called after %zu operations were added to the "
            "graph; call it right after co_open",
            program->num_steps);
    coi_capture_suspend(ctx);
    return CO_OK;
}

bool
co_executing_eagerly(co_context *ctx)
{
    COI_ENTER(ctx, "executing_eagerly", false);
    return !coi_is_capturing(ctx);
}

/* --- graphs --- */

co_graph *
co_graph_new(co_context *ctx)
{
    co_graph *graph;

    COI_ENTER(ctx, "graph_new", NULL);
    graph = coi_graph_new(ctx);
    return graph != NULL ? coi_own(ctx, graph) : NULL;
}

co_graph *
co_get_default_graph(co_context *ctx)
{
    COI_ENTER(ctx, "get_default_graph", NULL);
    return ctx->capture != NULL ? ctx->capture->graph : NULL;
}

static bool
check_graph(co_context *ctx, const co_graph *graph)
{
    return coi_check_object(ctx, graph, &coi_graph_class, 2, "graph");
}

static uint64_t
enter_graph(co_context *ctx, co_graph *graph)
{
    uint64_t id = check_graph(ctx, graph) ? coi_capture_push(ctx, COI_ENTRY_GRAPH, graph) : 0;

    if (id != 0) /* CTX-7 */
        ctx->mode = (coi_mode){ .num_replicas = 1, .update_id = -1 };
    return id;
}

co_statement
co_statement_graph(co_context *ctx, co_graph *graph)
{
    COI_ENTER(ctx, "graph_begin", ((co_statement){ ctx, 0 }));
    return coi_entry_statement(ctx, enter_graph(ctx, graph));
}

co_code
co_graph_begin(co_context *ctx, co_graph *graph)
{
    COI_ENTER_CODE(ctx, "graph_begin");
    enter_graph(ctx, graph);
    return ctx->error.code;
}

/* Leave the innermost entry, which a begin of that kind pushed. */
static co_code
end_entry(co_context *ctx, coi_entry_kind kind)
{
    const coi_entry *top = ctx->num_entries > 0 ? &ctx->entries[ctx->num_entries - 1] : NULL;

    if (top == NULL || top->kind != kind || top->is_statement)
        return coi_fail_not_innermost(ctx);
    coi_pop(ctx);
    return ctx->error.code;
}

co_code
co_graph_end(co_context *ctx)
{
    COI_ENTER_ALWAYS(ctx, "graph_end", coi_refusal_code(ctx));
    return end_entry(ctx, COI_ENTRY_GRAPH);
}

co_statement
co_statement_init_scope(co_context *ctx)
{
    COI_ENTER(ctx, "init_scope_begin", ((co_statement){ ctx, 0 }));
    return coi_entry_statement(ctx, coi_init_scope_push(ctx));
}

co_code
co_init_scope_begin(co_context *ctx)
{
    COI_ENTER_CODE(ctx, "init_scope_begin");
    coi_init_scope_push(ctx);
    return ctx->error.code;
}

co_code
co_init_scope_end(co_context *ctx)
{
    COI_ENTER_ALWAYS(ctx, "init_scope_end", coi_refusal_code(ctx));
    return end_entry(ctx, COI_ENTRY_INIT_SCOPE);
}

co_code
co_graph_finalize(co_context *ctx, co_graph *graph)
{
    COI_ENTER_CODE(ctx, "graph_finalize");
    if (check_graph(ctx, graph))
        graph->is_final = true;
    return ctx->error.code;
}

bool
co_graph_is_finalized(co_context *ctx, const co_graph *graph)
{
    COI_ENTER(ctx, "graph_is_finalized", false);
    return check_graph(ctx, graph) && graph->is_final;
}

int64_t
co_graph_num_operations(co_context *ctx, co_graph *graph)
{
    int64_t n;

    COI_ENTER(ctx, "graph_num_operations", 0);
    if (!check_graph(ctx, graph))
        return 0;
    coi_lock_take(&graph->lock);
    n = (int64_t)graph->program->num_steps;
    coi_lock_give(&graph->lock);
    return n;
}

size_t
co_graph_print(co_context *ctx, co_graph *graph, char *out, size_t capacity)
{
    size_t length;

    if (out == NULL)
        capacity = 0;
    if (capacity > 0)
        out[0] = '\0';
    COI_ENTER(ctx, "graph_print", 0);
    if (!check_graph(ctx, graph))
        return 0;
    coi_lock_take(&graph->lock);
    length = coi_program_print(ctx, graph->program, out, capacity);
    coi_lock_give(&graph->lock);
    return length;
}

/* --- placeholders --- */

static co_value *
replay_placeholder(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)attrs;
    (void)in;
    (void)num_in;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "this placeholder is needed by what the session runs and was not fed; give the run a "
             "co_feed for it");
    return NULL;
}

const coi_op coi_op_placeholder = {
    COI_RECORDED("placeholder", "A tensor that each run of a session is fed; co_placeholder.",
                 replay_placeholder, 0, 0),
};

static co_value *
replay_default(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)attrs;
    (void)num_in;
    return co_identity(ctx, in[0]);
}

const coi_op coi_op_placeholder_with_default = {
    COI_RECORDED("placeholder_with_default",
                 "A tensor that a run may be fed; co_placeholder_with_default.", replay_default, 0,
                 0),
};

bool
coi_check_in_graph(co_context *ctx)
{
    if (coi_in_graph(ctx))
        return true;
    coi_fail(ctx, CO_RUNTIME_ERROR,
             "%s belongs to graph mode, and this context runs eagerly; call it inside CO_GRAPH, or "
             "after co_v1_disable_eager_execution",
             ctx->call);
    return false;
}

co_value *
co_placeholder(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim)
{
    COI_ENTER(ctx, "placeholder", NULL);
    if (!coi_check_in_graph(ctx))
        return NULL;
    if (dtype == CO_DTYPE_NONE) {
        coi_fail(ctx, CO_VALUE_ERROR, "a placeholder needs a dtype; CO_DTYPE_NONE is none");
        return NULL;
    }
    return coi_record_call(ctx, &coi_op_placeholder, NULL, NULL, 0,
                           coi_spec(ctx, dtype, dims, ndim));
}

co_value *
co_placeholder_with_default(co_context *ctx, co_value *value, const int64_t *dims, int ndim)
{
    co_value *type;

    COI_ENTER(ctx, "placeholder_with_default", NULL);
    if (!coi_check_in_graph(ctx) || !coi_check_value(ctx, value, 2, "value") ||
        (value = co_identity(ctx, value)) == NULL)
        return NULL;
    ctx->call = "placeholder_with_default";
    type = coi_spec(ctx, (co_dtype)value->dtype, dims, ndim);
    if (type == NULL || !coi_check_fits(ctx, type, value, "the default of a placeholder"))
        return NULL;
    return coi_record_call(ctx, &coi_op_placeholder_with_default, NULL, &value, 1, type);
}

bool
coi_check_fits(co_context *ctx, const co_value *type, const co_value *value, const char *what)
{
    const int64_t *want = type->u.tensor.dims, *have = value->u.tensor.dims;
    bool           fits = type->ndim < 0 || value->ndim < 0 || type->ndim == value->ndim;
    char           wanted[COI_SHAPE_TEXT], given[COI_SHAPE_TEXT];

    for (int i = 0; fits && type->ndim >= 0 && i < value->ndim; ++i)
        fits = want[i] < 0 || have[i] < 0 || want[i] == have[i];
    if (!fits)
        coi_fail(ctx, CO_VALUE_ERROR, "%s has shape %s, which does not fit %s", what,
                 coi_shape_text(have, value->ndim, given),
                 coi_shape_text(want, type->ndim, wanted));
    return fits;
}

/* --- operations --- */

static co_value *
replay_group(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)attrs;
    (void)in;
    (void)num_in;
    return co_none(ctx);
}

const coi_op coi_op_group = {
    COI_RECORDED("group", "Runs the operations of a structure; co_group.", replay_group, 0, 0),
};

static co_value *
add_group(co_context *ctx, co_value *values)
{
    return coi_record_call(ctx, &coi_op_group, NULL, &values, 1, coi_none(ctx));
}

co_value *
co_group(co_context *ctx, co_value *values)
{
    COI_ENTER(ctx, "group", NULL);
    if (!coi_check_value(ctx, values, 2, "values"))
        return NULL;
    return coi_in_graph(ctx) ? add_group(ctx, values) : co_none(ctx);
}

co_value *
co_no_op(co_context *ctx)
{
    COI_ENTER(ctx, "no_op", NULL);
    return coi_in_graph(ctx) ? add_group(ctx, co_tuple(ctx, NULL, 0)) : co_none(ctx);
}

co_value *
co_last_operation(co_context *ctx)
{
    co_value *result;

    COI_ENTER(ctx, "last_operation", NULL);
    if (!coi_in_graph(ctx))
        return co_none(ctx);
    result = coi_capture_last_result(ctx);
    if (result == NULL) {
        coi_fail(ctx, CO_RUNTIME_ERROR, "nothing was added to the graph here yet");
        return NULL;
    }
    return coi_is_operation(result) ? coi_own_ref(ctx, result) : add_group(ctx, result);
}

/* --- what they come after --- */

typedef struct left_control {
    coi_capture *capture;
    co_value    *before, *now; /* references; NULL: none */
} left_control;

static void
leave_control(co_context *ctx, void *user)
{
    left_control *left = user;

    left->capture->after = left->before;
    coi_unref(&ctx->heap, left->before);
    coi_unref(&ctx->heap, left->now);
    coi_free(&ctx->runtime->memory, left, sizeof(*left));
}

static co_value *
own_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    (void)arg;
    return leaf->kind == CO_KIND_SYMBOLIC ? coi_own_symbol(ctx, leaf) : leaf;
}

/* Values of the graph, with those that hold already: a value of the block. */
static co_value *
all_control(co_context *ctx, co_value *values)
{
    co_value *before = ctx->capture->after;

    values = coi_tree_map(ctx, values, own_leaf, NULL);
    if (values == NULL)
        return NULL;
    return before != NULL ? co_tuple(ctx, (co_value *[]){ before, values }, 2) : values;
}

static uint64_t
enter_control(co_context *ctx, co_value *values)
{
    left_control *left;
    coi_entry    *entry;
    co_value     *now = NULL;

    if (!coi_check_value(ctx, values, 2, "values"))
        return 0;
    if (!coi_in_graph(ctx)) { /* calls run in order as it is */
        entry = coi_push(ctx, COI_ENTRY_CONTROL, NULL);
        return entry != NULL ? entry->id : 0;
    }
    if (values->kind != CO_KIND_NONE && (now = all_control(ctx, values)) == NULL)
        return 0;
    left = coi_calloc(&ctx->runtime->memory, sizeof(*left));
    entry = left != NULL ? coi_push(ctx, COI_ENTRY_CONTROL, NULL) : NULL;
    if (entry == NULL) {
        coi_free(&ctx->runtime->memory, left, sizeof(*left));
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for control dependencies");
        return 0;
    }
    *left = (left_control){ ctx->capture, ctx->capture->after, now };
    if (left->before != NULL)
        coi_ref(left->before);
    if (now != NULL)
        coi_ref(now);
    ctx->capture->after = now;
    entry->undo = leave_control;
    entry->user = left;
    return entry->id;
}

co_statement
co_statement_control(co_context *ctx, co_value *values)
{
    COI_ENTER(ctx, "control_dependencies_begin", ((co_statement){ ctx, 0 }));
    return coi_entry_statement(ctx, enter_control(ctx, values));
}

co_code
co_control_dependencies_begin(co_context *ctx, co_value *values)
{
    COI_ENTER_CODE(ctx, "control_dependencies_begin");
    enter_control(ctx, values);
    return ctx->error.code;
}

co_code
co_control_dependencies_end(co_context *ctx)
{
    COI_ENTER_ALWAYS(ctx, "control_dependencies_end", coi_refusal_code(ctx));
    return end_entry(ctx, COI_ENTRY_CONTROL);
}

static bool
is_of_program(const co_value *leaf, void *arg)
{
    return leaf->kind == CO_KIND_SYMBOLIC && leaf->u.symbol.program == *(const uint64_t *)arg;
}

static bool
check_operations(co_context *ctx, const co_graph *graph, const co_value *value, int position)
{
    uint64_t serial = graph->program->serial;

    if (coi_has_symbols(value) && coi_tree_all(value, is_of_program, &serial))
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "argument %d of add_control_input is %s; it must be an operation or tensor of the "
             "current graph, or a structure of these",
             position, coi_a_kind(value->kind));
    return false;
}

/* Let a step come after values. */
static bool
come_after(co_context *ctx, coi_program_step *step, co_value *before)
{
    if (step->after != NULL)
        before = co_tuple(ctx, (co_value *[]){ step->after, before }, 2);
    if (before == NULL)
        return false;
    coi_ref(before);
    coi_unref(&ctx->heap, step->after);
    step->after = before;
    return true;
}

/* Whether a step that must come after `before` is needed for that, so that neither could be first:
 * true with an error. */
static bool
are_in_circle(co_context *ctx, coi_needs *after, const coi_needs *before)
{
    for (size_t i = 0; i < after->num_steps; ++i) {
        const coi_program_step *step = &after->program->steps[i];

        if (!before->is_needed[i] || !coi_is_wanted(after, step->result))
            continue;
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 3 (before) of add_control_input depends on argument 2 (operation), %s "
                 "at line %d: they would wait for each other",
                 step->call, step->site.line);
        return true;
    }
    return false;
}

/* Under the lock. `after` and `before` are needs that are open and empty. */
static void
link_steps(co_context *ctx, co_graph *graph, coi_needs *after, co_value *operation,
           coi_needs *before, co_value *value)
{
    size_t last = before->num_steps; /* of those that give the value */

    coi_want_all(after, operation);
    coi_want_all(before, value);
    while (last > 0 && !coi_is_wanted(before, graph->program->steps[last - 1].result))
        --last;
    before->has_later = graph->has_later;
    before->is_whole = true; /* a step runs at one time, whatever is fetched of it */
    if (!coi_needs_find(before)) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for control dependencies");
        return;
    }
    if (are_in_circle(ctx, after, before))
        return;
    atomic_fetch_add(&graph->version, 1);
    for (size_t i = 0; i < after->num_steps && ctx->error.code == CO_OK; ++i)
        if (coi_is_wanted(after, graph->program->steps[i].result) &&
            come_after(ctx, &graph->program->steps[i], value))
            graph->has_later = graph->has_later || last > i + 1;
}

/* Under the lock. */
static void
add_control(co_context *ctx, co_graph *graph, co_value *operation, co_value *value)
{
    coi_needs after, before;
    bool      has_memory = coi_needs_open(&after, graph->program);

    has_memory = coi_needs_open(&before, graph->program) && has_memory;
    if (has_memory)
        link_steps(ctx, graph, &after, operation, &before, value);
    else
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for control dependencies");
    coi_needs_close(&after);
    coi_needs_close(&before);
}

co_code
co_add_control_input(co_context *ctx, co_value *operation, co_value *before)
{
    co_graph *graph;

    COI_ENTER_CODE(ctx, "add_control_input");
    if (!coi_check_in_graph(ctx) || !coi_check_value(ctx, operation, 2, "operation") ||
        !coi_check_value(ctx, before, 3, "before") || !coi_graph_may_grow(ctx, ctx->capture->graph))
        return ctx->error.code;
    graph = ctx->capture->graph;
    if (!check_operations(ctx, graph, operation, 2) || !check_operations(ctx, graph, before, 3))
        return ctx->error.code;
    coi_lock_take(&graph->lock);
    add_control(ctx, graph, operation, before);
    coi_lock_give(&graph->lock);
    return ctx->error.code;
}

/* --- variables --- */

co_value *
co_variable_initializer(co_context *ctx, co_value *variable)
{
    const coi_graph_variable *found;
    co_graph                 *graph;
    co_value                 *initializer;

    COI_ENTER(ctx, "variable_initializer", NULL);
    if (!coi_check_in_graph(ctx) || !coi_check_variable(ctx, variable, 2))
        return NULL;
    graph = ctx->capture->graph;
    coi_lock_take(&graph->lock);
    found = coi_graph_find_variable(graph, variable);
    initializer = found != NULL ? found->initializer : NULL;
    coi_lock_give(&graph->lock);
    if (initializer != NULL)
        return coi_own_ref(ctx, initializer);
    coi_fail(ctx, CO_VALUE_ERROR, "variable '%.100s' %s", variable->u.variable->name,
             found != NULL ? "was declared without a value, so nothing initializes it; let the "
                             "session run an assignment"
                           : "is not of the current graph; make it while that is current");
    return NULL;
}

static co_value *
initializer_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    (void)arg;
    return co_variable_initializer(ctx, leaf);
}

co_value *
co_variables_initializer(co_context *ctx, co_value *variables)
{
    COI_ENTER(ctx, "variables_initializer", NULL);
    if (!coi_check_in_graph(ctx) || !coi_check_value(ctx, variables, 2, "variables") ||
        (variables = coi_map_leaves(ctx, variables, initializer_leaf, NULL)) == NULL)
        return NULL;
    ctx->call = "variables_initializer";
    return add_group(ctx, variables);
}

/* A list of the variables, or of their initializers: a value of the block. */
static co_value *
list_variables(co_context *ctx, co_graph *graph, bool initializers)
{
    size_t     n = 0, nbytes;
    co_value **items, *list;

    coi_lock_take(&graph->lock);
    nbytes = (graph->num_variables + 1) * sizeof(*items);
    items = coi_small_alloc(&ctx->heap, nbytes);
    for (size_t i = 0; items != NULL && i < graph->num_variables; ++i) {
        items[n] = initializers ? graph->variables[i].initializer : graph->variables[i].variable;
        n += items[n] != NULL;
    }
    coi_lock_give(&graph->lock); /* what it has, it keeps */
    if (items == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a list of variables");
        return NULL;
    }
    list = co_list(ctx, items, n);
    coi_small_free(&ctx->heap, items, nbytes);
    return list;
}

co_value *
co_global_variables_initializer(co_context *ctx)
{
    co_value *list;

    COI_ENTER(ctx, "global_variables_initializer", NULL);
    if (!coi_check_in_graph(ctx))
        return NULL;
    list = list_variables(ctx, ctx->capture->graph, true);
    ctx->call = "global_variables_initializer";
    return list != NULL ? add_group(ctx, list) : NULL;
}

co_value *
co_global_variables(co_context *ctx)
{
    COI_ENTER(ctx, "global_variables", NULL);
    return coi_check_in_graph(ctx) ? list_variables(ctx, ctx->capture->graph, false) : NULL;
}

static co_value *is_initialized(co_context *ctx, co_value *variable);

static co_value *
replay_is_initialized(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)attrs;
    (void)num_in;
    return is_initialized(ctx, in[0]);
}

const coi_op coi_op_is_initialized = {
    COI_RECORDED("is_initialized", "Whether a variable has a value; co_is_variable_initialized.",
                 replay_is_initialized, CO_RESOURCE_VARIABLE, 0),
};

static co_value *
is_initialized(co_context *ctx, co_value *variable)
{
    const coi_variable *v = variable->u.variable;
    co_value           *first, *value;

    if (coi_is_capturing(ctx))
        return coi_record_call(ctx, &coi_op_is_initialized, NULL, &variable, 1,
                               coi_spec(ctx, CO_BOOL, NULL, 0));
    first = v->components != NULL ? v->components[0] : variable;
    value = first->u.variable->ops->peek(first);
    coi_unref(&ctx->heap, value);
    return co_scalar_bool(ctx, value != NULL);
}

co_value *
co_is_variable_initialized(co_context *ctx, co_value *variable)
{
    COI_ENTER(ctx, "is_variable_initialized", NULL);
    return coi_check_variable(ctx, variable, 2) ? is_initialized(ctx, variable) : NULL;
}
