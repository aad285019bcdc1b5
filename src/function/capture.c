/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capturing a function: its context records calls instead of making them, and the function runs
 * once with symbolic arguments. What it leaves open (blocks, scopes, tapes) is closed.
 */
#include "function/function.h"
#include "function/graph.h"
#include "function/value_tree.h"

#include "base/text.h"
#include "context/tape.h"

#include <stdio.h>

/*
 * A variable, dataset or iterator that is an argument, and the symbolic tensor that stands for it
 * in the program: each call may bring another one. The function gets `handle` in its place, so that
 * the same resource, where the function knows it by other ways, stays what it is. References.
 */
typedef struct resource_argument {
    co_value *given, *handle, *symbol;
} resource_argument;

#define MAX_RESOURCE_ARGUMENTS 256

/* What a body uses of the functions around it: a symbolic tensor, or a resource that is an argument
 * there, and the symbolic tensor that stands for it in the body. References. */
typedef struct adopted_value {
    co_value *outer, *inner;
} adopted_value;

typedef struct function_capture {
    coi_capture       base;
    coi_type_recorder recorder;
    coi_program      *program;
    const char       *name;
    coi_device_name   device;      /* that the function is called on */
    size_t            num_entries; /* of the context when it began; of a graph: any number */
    resource_argument arguments[MAX_RESOURCE_ARGUMENTS];
    int               num_arguments;
    bool              adopts; /* the body of a condition or loop */
    adopted_value    *adopted;
    size_t            num_adopted, cap_adopted;
    uint32_t          num_tapes; /* begun so far */
} function_capture;

/* --- operands --- */

static co_value *
refuse_foreign(co_context *ctx, coi_capture *capture, co_value *symbol)
{
    const function_capture *c = (const function_capture *)(void *)capture;
    char                    text[200];

    coi_format(&ctx->heap, symbol, text, sizeof(text));
    if (capture->graph != NULL) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "%s belongs to another graph or captured function than the graph that is current; "
                 "a graph computes with its own values: feed it through a placeholder",
                 text);
        return NULL;
    }
    coi_fail(ctx, CO_TYPE_ERROR,
             "%s belongs to another captured function than '%s', which is being captured; pass it "
             "as an argument, and return what other functions need",
             text, c->name);
    return NULL;
}

/* What stands for a value in a program. A dataset, iterator or function has no type of its own. */
static co_value *
type_for(co_context *ctx, co_value *value)
{
    return coi_kind_of(value)->element_spec != NULL || value->kind == CO_KIND_FUNCTION
               ? coi_spec(ctx, CO_BOOL, NULL, 0)
               : coi_fresh_type(ctx, value);
}

/* Let a new symbolic tensor stand for a value of the functions around this body. */
static co_value *
adopt_new(co_context *ctx, function_capture *c, co_value *outer)
{
    co_value *inner = type_for(ctx, outer);

    if (inner == NULL)
        return NULL;
    if (!coi_grow(&ctx->runtime->memory, (void **)&c->adopted, &c->cap_adopted, c->num_adopted + 1,
                  sizeof(*c->adopted))) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a captured function");
        return NULL;
    }
    coi_program_name(c->program, inner);
    coi_ref(inner);
    coi_ref(outer);
    c->adopted[c->num_adopted++] = (adopted_value){ outer, inner };
    return inner;
}

/* The capture whose values this one may use besides its own: that around a body. */
static const function_capture *
enclosing(const function_capture *c)
{
    return c->adopts ? (const function_capture *)(const void *)c->base.outer : NULL;
}

static co_value *
adopt(co_context *ctx, coi_capture *capture, co_value *symbol)
{
    function_capture *c = (function_capture *)(void *)capture;

    for (size_t i = 0; i < c->num_adopted; ++i) {
        const co_value *outer = c->adopted[i].outer;

        if (outer->kind == CO_KIND_SYMBOLIC &&
            outer->u.symbol.program == symbol->u.symbol.program &&
            outer->u.symbol.slot == symbol->u.symbol.slot)
            return c->adopted[i].inner;
    }
    for (const function_capture *o = enclosing(c); o != NULL; o = enclosing(o))
        if (o->base.program == symbol->u.symbol.program)
            return adopt_new(ctx, c, symbol);
    return refuse_foreign(ctx, capture, symbol);
}

static co_value *
symbol_of_argument(const function_capture *c, const co_value *resource)
{
    for (int i = 0; i < c->num_arguments; ++i)
        if (coi_resource_of(c->arguments[i].handle) == coi_resource_of(resource))
            return c->arguments[i].symbol;
    return NULL;
}

/* Whether a dataset was made of an argument in this function or one around it: a call with another
 * argument would need another dataset. */
static bool
is_made_of_argument(const function_capture *c, const co_value *dataset)
{
    for (int i = 0; i < c->num_arguments; ++i)
        if (c->arguments[i].handle->kind == dataset->kind &&
            coi_kind_of(dataset)->is_made_of(dataset, c->arguments[i].handle))
            return true;
    return false;
}

static bool
may_have_argument(co_context *ctx, const function_capture *c)
{
    if (c->num_arguments < MAX_RESOURCE_ARGUMENTS)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "more than %d variables, datasets and iterators are arguments of '%s'; let it use "
             "them without being given them",
             MAX_RESOURCE_ARGUMENTS, c->name);
    return false;
}

static void
add_argument(function_capture *c, co_value *given, co_value *handle, co_value *symbol)
{
    coi_ref(given);
    coi_ref(handle);
    coi_ref(symbol);
    c->arguments[c->num_arguments++] = (resource_argument){ given, handle, symbol };
}

/* An argument of a function around this body: each call may bring another one. */
static co_value *
adopt_resource(co_context *ctx, function_capture *c, co_value *resource)
{
    const function_capture *o = enclosing(c);
    co_value               *inner;

    while (o != NULL && symbol_of_argument(o, resource) == NULL)
        o = enclosing(o);
    if (o == NULL)
        return coi_is_variable(resource) ? coi_variable_itself(resource) : resource;
    if (!may_have_argument(ctx, c) || (inner = adopt_new(ctx, c, resource)) == NULL)
        return NULL;
    add_argument(c, resource, resource, inner);
    return inner;
}

/* What a program holds for an operand. */
static co_value *
operand_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    function_capture *c = arg;
    co_value         *symbol;

    if (leaf->kind == CO_KIND_SYMBOLIC)
        return coi_own_symbol(ctx, leaf);
    if (coi_resource_of(leaf) == NULL)
        return leaf;
    if (coi_kind_of(leaf)->symbol != NULL && (symbol = coi_kind_of(leaf)->symbol(leaf)) != NULL)
        return coi_own_symbol(ctx, symbol);
    if ((symbol = symbol_of_argument(c, leaf)) != NULL)
        return symbol;
    if (coi_kind_of(leaf)->is_made_of != NULL)
        for (function_capture *o = c; o != NULL; o = (function_capture *)(uintptr_t)enclosing(o))
            o->program->is_tied = o->program->is_tied || is_made_of_argument(o, leaf);
    return adopt_resource(ctx, c, leaf);
}

static bool
take_operands(co_context *ctx, function_capture *c, co_value *const *given, int n, co_value **in)
{
    for (int i = 0; i < n; ++i)
        if ((in[i] = coi_tree_map(ctx, given[i], operand_leaf, c)) == NULL)
            return false;
    return true;
}

/* Also one that is the device of the call: a concrete function may be called on another one. */
static bool
has_chosen_device(const co_context *ctx, const function_capture *c)
{
    for (size_t i = ctx->num_entries; i > c->num_entries; --i)
        if (ctx->entries[i - 1].kind == COI_ENTRY_DEVICE)
            return true;
    return !coi_device_name_equal(&ctx->device_id, &c->device);
}

/* The device of the step that was just added, if the function chose one. */
static bool
note_device(co_context *ctx, const function_capture *c)
{
    coi_program_step *step = &c->program->steps[c->program->num_steps - 1];
    coi_device_name  *copy;

    if (!has_chosen_device(ctx, c))
        return true;
    copy = coi_alloc(c->program->memory, sizeof(*copy));
    if (copy == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a captured function");
        return false;
    }
    *copy = ctx->device_id;
    step->device = copy;
    return true;
}

/* Which tape a call is about. Tapes have numbers, because steps may still be dropped, or run in
 * another order. */
static void
note_tape(const co_context *ctx, function_capture *c)
{
    coi_program_step *step = &c->program->steps[c->program->num_steps - 1];
    coi_tape_log     *log = ctx->tapes;
    coi_tape *innermost = log != NULL && log->num_tapes > 0 ? &log->tapes[log->num_tapes - 1]
                                                            : NULL;

    if (step->op == &coi_op_tape_begin && innermost != NULL) {
        step->tape = innermost->captured = ++c->num_tapes;
    } else if (step->op == &coi_op_watch && innermost != NULL) {
        step->tape = innermost->captured;
    } else if (step->op == &coi_op_tape_end || step->op->takes_tape) {
        step->tape = c->base.tape;
        step->ends_tape = step->op == &coi_op_tape_end || c->base.ends_tape;
    }
}

/* The graph whose program this capture is of; NULL: it is of a function, or of a part of a graph.
 */
static co_graph *
own_graph(const function_capture *c)
{
    return c->base.is_graph ? c->base.graph : NULL;
}

static bool
add_step(co_context *ctx, function_capture *c, const coi_op *op, const void *attrs,
         co_value *const *in, int num_in, co_value **result)
{
    co_graph *graph = own_graph(c);
    bool      ok;

    if (graph != NULL)
        coi_lock_take(&graph->lock);
    ok = (*result = coi_program_name_all(ctx, c->program, *result)) != NULL &&
         coi_program_add(ctx, c->program, op, attrs, in, num_in, *result) && note_device(ctx, c) &&
         (c->base.graph == NULL || coi_graph_note_step(ctx, c->program, graph, c->base.after));
    if (ok)
        note_tape(ctx, c);
    if (graph != NULL)
        coi_lock_give(&graph->lock);
    return ok;
}

static co_value *
record(co_context *ctx, void *data, const coi_op *op, const void *attrs, co_value *const *given,
       int num_given, co_value *result)
{
    function_capture *c = data;
    co_value         *few[COI_INLINE_ITEMS], **in = few;
    size_t            nbytes = (size_t)num_given * sizeof(*in);
    bool              ok;

    if (num_given > COI_INLINE_ITEMS && (in = coi_small_alloc(&ctx->heap, nbytes)) == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %d operands", num_given);
        return NULL;
    }
    if (c->base.graph != NULL && result->kind == CO_KIND_NONE)
        result = coi_operation_type(ctx); /* so that it can be fetched, and depended on */
    ok = result != NULL && coi_graph_may_grow(ctx, c->base.graph) &&
         take_operands(ctx, c, given, num_given, in) &&
         add_step(ctx, c, op, attrs, in, num_given, &result);
    if (in != few)
        coi_small_free(&ctx->heap, in, nbytes);
    return ok ? result : NULL;
}

/* --- resources that are arguments --- */

/* Another handle of a variable: a value of the block, or NULL with an error. */
static co_value *
variable_handle(co_context *ctx, co_value *variable)
{
    co_value *handle = coi_value_new(&ctx->heap, CO_KIND_VARIABLE);

    if (handle == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an argument of a captured function");
        return NULL;
    }
    variable = coi_variable_itself(variable);
    coi_ref(variable);
    handle->flags = COI_FLAG_ARGUMENT;
    handle->u.variable = variable->u.variable;
    handle->u.argument = variable;
    return coi_own(ctx, handle);
}

static const resource_argument *
find_argument(const function_capture *c, const co_value *given)
{
    for (int i = 0; i < c->num_arguments; ++i)
        if (coi_resource_of(c->arguments[i].given) == coi_resource_of(given))
            return &c->arguments[i];
    return NULL;
}

/* Each call fills what it is in. Another function is known, and is itself; the function that is
 * being captured is not, so that its program does not keep it alive. */
static bool
is_exchanged(const co_value *leaf)
{
    return leaf->kind == CO_KIND_FUNCTION ? (leaf->flags & COI_FLAG_BORROWED) != 0
                                          : coi_resource_of(leaf) != NULL;
}

/* What a function gets for an argument, of the block; NULL with an error. */
static co_value *
handle_for(co_context *ctx, co_value *leaf, co_value *symbol)
{
    if (leaf->kind == CO_KIND_FUNCTION)
        return coi_function_as_value(ctx, leaf->u.object, false);
    return coi_is_variable(leaf) ? variable_handle(ctx, leaf)
                                 : coi_kind_of(leaf)->as_argument(ctx, leaf, symbol);
}

/* What stands for an argument in the program. */
static co_value *
note_argument(co_context *ctx, co_value *leaf, void *arg)
{
    function_capture        *c = arg;
    const resource_argument *known;
    co_value                *symbol, *handle;

    if (!is_exchanged(leaf))
        return leaf;
    if ((known = find_argument(c, leaf)) != NULL)
        return known->symbol;
    if (!may_have_argument(ctx, c) || (symbol = type_for(ctx, leaf)) == NULL)
        return NULL;
    coi_program_name(c->program, symbol);
    if ((handle = handle_for(ctx, leaf, symbol)) == NULL)
        return NULL;
    add_argument(c, leaf, handle, symbol);
    return symbol;
}

/* What the function gets for an argument. */
static co_value *
handle_of(co_context *ctx, co_value *leaf, void *arg)
{
    (void)ctx;
    return is_exchanged(leaf) ? find_argument(arg, leaf)->handle : leaf;
}

/* --- the capture --- */

coi_capture_pause
coi_capture_suspend(co_context *ctx)
{
    coi_capture_pause pause = {
        ctx->capture,   ctx->type_recorder, ctx->tapes,   ctx->infers_types,
        ctx->recording, ctx->in_graph,      ctx->special, ctx->unbegun_tapes
    };

    ctx->capture = NULL;
    ctx->type_recorder = NULL;
    ctx->tapes = NULL;
    ctx->unbegun_tapes = 0;
    ctx->infers_types = ctx->recording = ctx->in_graph = false;
    ctx->special = (uint8_t)(ctx->special & ~COI_SPECIAL_CAPTURE);
    return pause;
}

void
coi_capture_resume(co_context *ctx, const coi_capture_pause *pause)
{
    coi_tape_log_free(ctx);
    ctx->capture = pause->capture;
    ctx->type_recorder = pause->recorder;
    ctx->tapes = pause->tapes;
    ctx->unbegun_tapes = pause->unbegun_tapes;
    ctx->infers_types = pause->infers_types;
    ctx->in_graph = pause->in_graph;
    ctx->recording = pause->recording;
    ctx->special = pause->special;
}

/* The result of the function as the program has it: none for NULL. */
static co_value *
take_result(co_context *ctx, function_capture *c, co_value *result)
{
    if (ctx->error.code != CO_OK)
        return NULL;
    if (result == NULL)
        return co_none(ctx);
    if (!coi_check_result(ctx, result, "call", "captured function"))
        return NULL;
    return coi_tree_map(ctx, result, operand_leaf, c);
}

/* A tuple of the values that the body adopted: inside, or as they are outside. */
static co_value *
adopted_tuple(co_context *ctx, const function_capture *c, bool inside)
{
    size_t     n = c->num_adopted, nbytes = (n + 1) * sizeof(co_value *);
    co_value **items = coi_small_alloc(&ctx->heap, nbytes), *tuple;

    if (items == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu values", n);
        return NULL;
    }
    for (size_t i = 0; i < n; ++i)
        items[i] = inside ? c->adopted[i].inner : c->adopted[i].outer;
    tuple = co_tuple(ctx, items, n);
    coi_small_free(&ctx->heap, items, nbytes);
    return tuple;
}

/* The arguments of a body are what it is given and what it adopted. */
static bool
extend_arguments(co_context *ctx, const function_capture *c)
{
    co_value *adopted = adopted_tuple(ctx, c, true), *both;

    if (adopted == NULL ||
        (both = co_tuple(ctx, (co_value *[]){ c->program->args, adopted }, 2)) == NULL)
        return false;
    coi_ref(both);
    coi_unref(&ctx->heap, c->program->args);
    c->program->args = both;
    return true;
}

/* A strategy that is set stays so after the function that set it: the program, which has no such
 * call, could not do that. */
static void
check_left_open(co_context *ctx, const function_capture *c, size_t entries)
{
    for (size_t i = entries; ctx->error.code == CO_OK && i < ctx->num_entries; ++i)
        if (ctx->entries[i].kind == COI_ENTRY_SET)
            coi_fail(ctx, CO_RUNTIME_ERROR,
                     "captured function '%s' sets a strategy and leaves it set; unset it before "
                     "the end, or use a scope",
                     c->name);
}

static bool
call_function(co_context *ctx, function_capture *c, co_fn fn, void *user, co_value *args)
{
    size_t    entries = ctx->num_entries, blocks = ctx->num_blocks, floor;
    co_value *pattern, *result;
    bool      ok = false;

    co_block_begin(ctx);
    pattern = ctx->error.code == CO_OK ? coi_tree_map(ctx, args, note_argument, c) : NULL;
    args = pattern != NULL ? coi_tree_map(ctx, args, handle_of, c) : NULL;
    if (args != NULL) {
        coi_ref(pattern);
        c->program->args = pattern;
        floor = coi_function_begin(ctx);
        result = fn(ctx, args, user);
        coi_function_end(ctx, floor);
        check_left_open(ctx, c, entries);
        coi_pop_to(ctx, entries);
        result = take_result(ctx, c, result);
        ok = result != NULL && (!c->adopts || extend_arguments(ctx, c)) &&
             coi_program_finish(ctx, c->program, result);
    }
    coi_blocks_unwind(ctx, blocks);
    return ok;
}

/* FN-6. */
static bool
may_create(co_context *ctx, const char *variable)
{
    const function_capture *c = (const function_capture *)(const void *)ctx->capture;

    ctx->capture->has_created = true;
    if (c->base.may_create)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "variable '%.100s' is made by a later capture of '%s' than the first, and after a "
             "capture that makes variables it is captured once more; a captured function makes its "
             "variables once: keep them, and make them only if they are not there",
             variable, c->name);
    return false;
}

co_value *
coi_capture_initial(co_context *ctx, co_value *initial, const char *name)
{
    const function_capture *c = (const function_capture *)(const void *)ctx->capture;
    char                    what[160];

    if (!coi_in_graph(ctx) && !may_create(ctx, name)) /* a part of a graph is captured once */
        return NULL;
    if (!coi_has_symbols(initial))
        return initial;
    snprintf(what, sizeof(what), "the initial value of variable '%.100s'", name);
    return coi_program_compute(ctx, c->program, initial, what);
}

const coi_program_step *
coi_capture_step_of(const co_context *ctx, const co_value *symbol)
{
    const function_capture *c = (const function_capture *)(const void *)ctx->capture;

    for (size_t i = c->program->num_steps; i > 0; --i)
        if (c->program->steps[i - 1].result == symbol)
            return &c->program->steps[i - 1];
    return NULL;
}

static bool
is_common(const co_value *pattern, const co_value *given, const co_value *symbol)
{
    coi_values patterns = coi_tree_items(pattern), items = coi_tree_items(given);

    if (pattern->kind == CO_KIND_SYMBOLIC)
        return !coi_is_distributed(given) && pattern->u.symbol.slot == symbol->u.symbol.slot;
    if (!coi_is_same_node(pattern, given))
        return false;
    for (size_t i = 0; i < items.n; ++i)
        if (patterns.items[i] != NULL && items.items[i] != NULL &&
            is_common(patterns.items[i], items.items[i], symbol))
            return true;
    return false;
}

bool
coi_is_common_argument(const co_context *ctx, const co_value *symbol)
{
    const function_capture *c = (const function_capture *)(const void *)ctx->capture;
    size_t                  n;

    if (c == NULL || ctx->mode.cross || ctx->run_args == NULL || symbol->kind != CO_KIND_SYMBOLIC ||
        symbol->u.symbol.program != c->base.program)
        return false;
    n = ctx->run_args->u.items.n; /* keyword arguments follow in those of the step */
    for (size_t i = 0; i < n && i < c->program->args->u.items.n; ++i)
        if (is_common(c->program->args->u.items.items[i], ctx->run_args->u.items.items[i], symbol))
            return true;
    return false;
}

static void
drop_capture(co_context *ctx, function_capture *c)
{
    coi_memory *memory = &ctx->runtime->memory;

    for (int i = 0; i < c->num_arguments; ++i) {
        coi_unref(&ctx->heap, c->arguments[i].symbol);
        coi_unref(&ctx->heap, c->arguments[i].handle);
        coi_unref(&ctx->heap, c->arguments[i].given);
    }
    for (size_t i = 0; i < c->num_adopted; ++i) {
        coi_unref(&ctx->heap, c->adopted[i].outer);
        coi_unref(&ctx->heap, c->adopted[i].inner);
    }
    coi_free(memory, c->adopted, c->cap_adopted * sizeof(*c->adopted));
    coi_free(memory, c, sizeof(*c));
}

/* --- of a graph --- */

coi_capture *
coi_capture_of_graph(co_context *ctx, co_graph *graph)
{
    function_capture *c = coi_calloc(&ctx->runtime->memory, sizeof(*c));

    if (c == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a graph");
        return NULL;
    }
    c->base = (coi_capture){ .program = graph->program->serial,
                             .adopt = refuse_foreign,
                             .may_create = true,
                             .graph = graph,
                             .is_graph = true };
    c->recorder = (coi_type_recorder){ c, record };
    c->program = graph->program;
    c->name = "graph";
    c->device = graph->device;
    c->num_entries = SIZE_MAX;
    return &c->base;
}

void
coi_capture_free(coi_memory *memory, coi_capture *capture)
{
    coi_free(memory, capture, sizeof(function_capture));
}

void
coi_capture_enter(co_context *ctx, coi_capture *capture)
{
    ctx->capture = capture;
    ctx->type_recorder = &((function_capture *)(void *)capture)->recorder;
    ctx->infers_types = true;
    ctx->in_graph = capture->graph != NULL;
    ctx->special |= COI_SPECIAL_CAPTURE;
}

co_value *
coi_capture_last_result(const co_context *ctx)
{
    const coi_program *program = ((const function_capture *)(const void *)ctx->capture)->program;

    return program->num_steps > 0 ? program->steps[program->num_steps - 1].result : NULL;
}

co_value *
coi_capture_record(co_context *ctx, coi_capture *capture, const coi_op *op, const void *attrs,
                   co_value *const *in, int num_in, co_value *result)
{
    coi_capture *own = ctx->capture;

    if (result == NULL)
        return NULL;
    ctx->capture = capture; /* operands are values of that one */
    result = record(ctx, capture, op, attrs, in, num_in, result);
    ctx->capture = own;
    return result;
}

/* `outside`: where the tuple of adopted values goes; NULL: it adopts none. */
static coi_program *
capture_program(co_context *ctx, coi_program *program, const char *name, co_fn fn, void *user,
                co_value *args, co_value **outside, bool is_first, bool *makes_variables)
{
    function_capture *c = coi_calloc(&ctx->runtime->memory, sizeof(*c));
    coi_capture_pause outer;
    co_site_info      site = ctx->site;
    bool              ok;

    *makes_variables = false;
    if (c == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to capture '%s'", name);
        coi_unref(&ctx->heap, program);
        return NULL;
    }
    c->adopts = outside != NULL;
    c->base = (coi_capture){
        .program = program->serial,
        .adopt = c->adopts ? adopt : refuse_foreign,
        .outer = ctx->capture,
        .may_create = is_first && (ctx->capture == NULL || ctx->capture->may_create),
        .graph = c->adopts && ctx->capture != NULL ? ctx->capture->graph : NULL,
        .is_part = c->adopts && is_first,
        .stack = __builtin_frame_address(0),
    };
    c->recorder = (coi_type_recorder){ c, record };
    c->program = program;
    c->name = name;
    c->device = ctx->device_id;
    c->num_entries = ctx->num_entries;
    outer = coi_capture_suspend(ctx);
    coi_capture_enter(ctx, &c->base);
    ok = call_function(ctx, c, fn, user, args);
    coi_capture_resume(ctx, &outer);
    coi_copy_site(&ctx->site, &site);
    if (ok && c->adopts)
        ok = (*outside = adopted_tuple(ctx, c, false)) != NULL;
    *makes_variables = c->base.has_created;
    program->asks_place = c->base.asks_place;
    drop_capture(ctx, c);
    if (ok)
        return program;
    coi_unref(&ctx->heap, program);
    return NULL;
}

coi_program *
coi_capture_program(co_context *ctx, coi_program *program, const char *name, co_fn fn, void *user,
                    co_value *args, bool is_first, bool *makes_variables)
{
    return capture_program(ctx, program, name, fn, user, args, NULL, is_first, makes_variables);
}

coi_program *
coi_capture_body(co_context *ctx, coi_program *program, const char *name, co_fn fn, void *user,
                 co_value *args, co_value **outside)
{
    bool makes_variables;

    return capture_program(ctx, program, name, fn, user, args, outside, false, &makes_variables);
}

coi_program *
coi_capture_part(co_context *ctx, coi_program *program, const char *name, co_fn fn, void *user,
                 co_value *args, co_value **outside)
{
    bool makes_variables;

    return capture_program(ctx, program, name, fn, user, args, outside, true, &makes_variables);
}
