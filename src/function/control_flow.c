/* SPDX-License-Identifier: Apache-2.0 */
/* See control_flow.h. */
#include "function/control_flow.h"
#include "function/value_tree.h"

#include <cohort/ops.h>

#include "base/text.h"

/* --- bodies --- */

static co_value *
tensor_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    (void)arg;
    if (coi_is_variable(leaf))
        return co_identity(ctx, leaf);
    return coi_host_dtype(leaf) != CO_DTYPE_NONE ? co_to_tensor(ctx, leaf, CO_DTYPE_NONE) : leaf;
}

co_value *
coi_tensors_of(co_context *ctx, co_value *value)
{
    return coi_tree_map(ctx, value, tensor_leaf, NULL);
}

/* The function of a body as it is called and captured: results are tensors. */
static co_value *
call_for_tensors(co_context *ctx, co_value *args, void *user)
{
    const coi_flow_body *body = user;
    co_value            *result = body->fn(ctx, args, body->user);

    if (ctx->error.code != CO_OK)
        return NULL;
    if (result == NULL)
        return co_none(ctx);
    return coi_check_result(ctx, result, ctx->call, body->name) ? coi_tensors_of(ctx, result)
                                                                : NULL;
}

static co_value *
call_user(co_context *ctx, const coi_flow_body *body, co_value *args)
{
    size_t       entries = ctx->num_entries, blocks = ctx->num_blocks, floor;
    co_site_info site = ctx->site;
    const char  *call = ctx->call;
    co_value    *result;

    co_block_begin(ctx);
    floor = coi_function_begin(ctx);
    result = ctx->error.code == CO_OK ? call_for_tensors(ctx, args, (void *)(uintptr_t)body) : NULL;
    coi_function_end(ctx, floor);
    coi_pop_to(ctx, entries);
    if (result != NULL)
        coi_ref(result);
    coi_blocks_unwind(ctx, blocks);
    if (ctx->error.code == CO_OK) {
        coi_copy_site(&ctx->site, &site);
        ctx->call = call;
    }
    return result != NULL ? coi_own(ctx, result) : NULL;
}

co_value *
coi_body_run(co_context *ctx, const coi_flow_body *body, co_value *args)
{
    if (body->program == NULL)
        return call_user(ctx, body, args);
    args = co_tuple(ctx, (co_value *[]){ args, body->outside }, 2);
    return args != NULL ? coi_program_replay(ctx, body->program, args) : NULL;
}

coi_program *
coi_body_capture(co_context *ctx, const coi_flow_body *body, co_value *types, co_value **outside)
{
    coi_program *program = coi_program_new(ctx);
    co_value    *args = program != NULL ? coi_symbols_of_types(ctx, program, types) : NULL;

    if (args == NULL) {
        coi_unref(&ctx->heap, program);
        return NULL;
    }
    return coi_capture_body(ctx, program, body->name, call_for_tensors, (void *)(uintptr_t)body,
                            args, outside);
}

/* --- entries with programs --- */

static void
destroy_bodies(coi_heap *heap, void *object)
{
    coi_bodies *bodies = object;
    size_t      n = bodies->num_programs;

    for (size_t i = 0; i < n; ++i)
        coi_unref(heap, bodies->programs[i]);
    coi_object_free(heap, bodies, sizeof(*bodies) + n * sizeof(bodies->programs[0]));
}

static const coi_class bodies_class = { "bodies", destroy_bodies, NULL };

bool
coi_bodies_hold(coi_heap *heap, void *to, const void *from)
{
    (void)heap;
    (void)to;
    coi_ref(((const coi_bodies_attrs *)from)->bodies);
    return true;
}

void
coi_bodies_drop(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((coi_bodies_attrs *)attrs)->bodies);
}

const coi_bodies *
coi_bodies_of(const coi_op *op, const void *attrs)
{
    return op->attrs_rule.destroy == coi_bodies_drop ? ((const coi_bodies_attrs *)attrs)->bodies
                                                     : NULL;
}

coi_bodies *
coi_bodies_new(co_context *ctx, size_t num_programs)
{
    coi_bodies *bodies = coi_object_new(
        &ctx->heap, &bodies_class, sizeof(*bodies) + num_programs * sizeof(bodies->programs[0]));

    if (bodies == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a captured function");
        return NULL;
    }
    bodies->num_programs = num_programs;
    return coi_own(ctx, bodies);
}

bool
coi_bodies_add(co_context *ctx, coi_bodies *bodies, const coi_flow_body *body, co_value *types,
               co_value **outside)
{
    size_t i = 0;

    while (bodies->programs[i] != NULL)
        ++i;
    return (bodies->programs[i] = coi_body_capture(ctx, body, types, outside)) != NULL;
}

coi_flow_body
coi_bodies_at(const coi_bodies *bodies, size_t i, co_value *const *in, int num_in)
{
    return (coi_flow_body){ .program = bodies->programs[i],
                            .outside = in[num_in - 1]->u.items.items[i] };
}

bool
coi_program_acts_on(const coi_program *program, unsigned resources)
{
    for (size_t i = 0; i < program->num_steps; ++i) {
        const coi_op     *op = program->steps[i].op;
        const coi_bodies *inner = coi_bodies_of(op, program->steps[i].attrs);

        if (((unsigned)(op->reads | op->writes) & resources) != 0)
            return true;
        for (size_t k = 0; inner != NULL && k < inner->num_programs; ++k)
            if (coi_program_acts_on(inner->programs[k], resources))
                return true;
    }
    return false;
}

unsigned
coi_step_writes(const coi_program_step *step)
{
    const coi_bodies *inner = coi_bodies_of(step->op, step->attrs);
    unsigned          writes = step->op->writes;

    for (size_t k = 0; inner != NULL && k < inner->num_programs; ++k)
        for (size_t i = 0; i < inner->programs[k]->num_steps; ++i)
            writes |= coi_step_writes(&inner->programs[k]->steps[i]);
    return writes;
}

/* --- the tape of types --- */

/* What a call may compute its results from. */
typedef struct sources {
    co_context *ctx;
    co_value  **found;
    size_t      n, cap;
} sources;

/* A leaf of the call's operands, or one that a program holds as it is. */
static bool
add_source(const co_value *given, void *arg)
{
    sources  *s = arg;
    co_value *leaf = (co_value *)(uintptr_t)given;

    if (leaf->kind != CO_KIND_SYMBOLIC && leaf->kind != CO_KIND_TENSOR && !coi_is_variable(leaf))
        return true;
    if (leaf->kind == CO_KIND_SYMBOLIC && (leaf = coi_own_symbol(s->ctx, leaf)) == NULL)
        return false;
    for (size_t i = 0; i < s->n; ++i)
        if (s->found[i] == leaf)
            return true;
    if (!coi_grow(&s->ctx->runtime->memory, (void **)&s->found, &s->cap, s->n + 1,
                  sizeof(*s->found))) {
        coi_fail(s->ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradient tape");
        return false;
    }
    s->found[s->n++] = leaf;
    return true;
}

/* Symbolic tensors of a program are its own affair; what it adopted is an operand of the call. */
static bool
add_constant(const co_value *leaf, void *arg)
{
    return leaf->kind == CO_KIND_SYMBOLIC || add_source(leaf, arg);
}

static bool
add_program(sources *s, const coi_program *program)
{
    bool ok = coi_tree_all(program->result, add_constant, s);

    for (size_t i = 0; ok && i < program->num_steps; ++i) {
        const coi_program_step *step = &program->steps[i];
        const coi_bodies       *inner = coi_bodies_of(step->op, step->attrs);

        for (int k = 0; ok && k < step->num_in; ++k)
            ok = coi_tree_all(step->in[k], add_constant, s);
        for (size_t k = 0; ok && inner != NULL && k < inner->num_programs; ++k)
            ok = add_program(s, inner->programs[k]);
    }
    return ok;
}

static bool
put_on_tape(co_context *ctx, const coi_op *op, const coi_bodies_attrs *attrs, co_value *const *in,
            int num_in, co_value *result)
{
    sources s = { ctx, NULL, 0, 0 };
    bool    ok = true;

    if (!ctx->recording)
        return true;
    for (int i = 0; ok && i < num_in; ++i)
        ok = coi_tree_all(in[i], add_source, &s);
    for (size_t i = 0; ok && i < attrs->bodies->num_programs; ++i)
        ok = add_program(&s, attrs->bodies->programs[i]);
    ok = ok && coi_tape_call(ctx, op, attrs, s.found, s.n, result);
    coi_free(&ctx->runtime->memory, s.found, s.cap * sizeof(*s.found));
    return ok;
}

co_value *
coi_bodies_record(co_context *ctx, const coi_op *op, coi_bodies *bodies, co_value *const *in,
                  int num_in, co_value *result)
{
    coi_bodies_attrs attrs = { bodies };

    return result != NULL && put_on_tape(ctx, op, &attrs, in, num_in, result)
               ? coi_record_call(ctx, op, &attrs, in, num_in, result)
               : NULL;
}

/* --- checks --- */

bool
coi_check_body(co_context *ctx, co_fn fn, int position, const char *name)
{
    if (fn != NULL)
        return true;
    coi_fail(ctx, CO_TYPE_ERROR, "argument %d (%s) of %s is NULL; it must be a function", position,
             name, ctx->call);
    return false;
}

co_value *
coi_check_args(co_context *ctx, co_value *args, int position, const char *name, bool optional)
{
    if (args == NULL && optional)
        return co_tuple(ctx, NULL, 0);
    if (!coi_check_value(ctx, args, position, name))
        return NULL;
    if (args->kind == CO_KIND_TUPLE)
        return args;
    if (coi_is_sequence(args))
        return co_tuple(ctx, args->u.items.items, args->u.items.n);
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument %d (%s) of %s is %s; it must be a tuple or list (co_args makes one)",
             position, name, ctx->call, coi_a_kind(args->kind));
    return NULL;
}

static bool
refuse_predicate(co_context *ctx, const co_value *value, const char *what)
{
    char text[200];

    coi_format(&ctx->heap, value, text, sizeof(text));
    coi_fail(ctx, CO_INVALID_ARGUMENT, "%s is %s; it must be a bool without dimensions%s", what,
             text,
             coi_is_type(value) || value->kind == CO_KIND_TENSOR
                 ? " (a comparison gives bools, co_reduce_all one of many)"
                 : "");
    return false;
}

static bool
is_scalar_bool(co_dtype dtype, int ndim)
{
    return dtype == CO_BOOL && ndim <= 0; /* a rank that is not known is seen when it runs */
}

bool
coi_check_predicate(co_context *ctx, const co_value *value, const char *what)
{
    if (value->kind == CO_KIND_BOOL)
        return true;
    if (coi_is_variable(value)
            ? is_scalar_bool(value->u.variable->dtype, value->u.variable->shape.ndim)
            : (value->kind == CO_KIND_TENSOR || coi_is_type(value)) &&
                  is_scalar_bool((co_dtype)value->dtype, value->ndim))
        return true;
    if (coi_is_distributed(value))
        return true; /* the component of this replica is read when it runs */
    return refuse_predicate(ctx, value, what);
}

bool
coi_read_predicate(co_context *ctx, co_value *value, const char *what, bool *out)
{
    co_value   *tensor = coi_give(ctx, coi_as_tensor(ctx, value, CO_DTYPE_NONE));
    const bool *data;

    if (tensor == NULL)
        return false;
    if (tensor->dtype != CO_BOOL || tensor->ndim != 0)
        return refuse_predicate(ctx, value, what);
    data = coi_host_data(ctx, tensor);
    if (data != NULL)
        *out = *data;
    return data != NULL;
}

/* --- loop variables --- */

typedef struct round_check {
    co_context *ctx;
    const char *body;
    size_t      position;
} round_check;

co_value *
coi_round_tuple(co_context *ctx, co_value *next)
{
    return next != NULL && next->kind == CO_KIND_LIST
               ? co_tuple(ctx, next->u.items.items, next->u.items.n)
               : next;
}

static bool
shape_may_follow(const co_value *type, const co_value *next)
{
    if (type->ndim < 0 || next->ndim < 0)
        return true;
    if (type->ndim != next->ndim)
        return false;
    for (int i = 0; i < type->ndim; ++i) {
        int64_t a = type->u.tensor.dims[i], b = next->u.tensor.dims[i];

        if (a >= 0 && b >= 0 && a != b)
            return false;
    }
    return true;
}

static void
refuse_round(const round_check *c, const co_value *type, const co_value *next)
{
    char before[COI_SHAPE_TEXT + 20], after[COI_SHAPE_TEXT + 20];

    coi_fail(c->ctx, type->dtype != next->dtype ? CO_TYPE_ERROR : CO_VALUE_ERROR,
             "tensor %zu of the loop variables is %s, and the %s returned %s for it; %s",
             c->position, coi_type_text(type, before, sizeof(before)), c->body,
             coi_type_text(next, after, sizeof(after)),
             type->dtype != next->dtype ? "the dtype must stay (co_cast converts)"
                                        : "the shape must stay, or fit an invariant of co_while");
}

static bool
check_leaf(co_value *type, co_value *next, void *arg)
{
    round_check *c = arg;

    if (!coi_is_type(type))
        return type->kind == next->kind;
    if (next->kind != CO_KIND_TENSOR && !coi_is_type(next))
        return false;
    if (type->dtype != next->dtype || !shape_may_follow(type, next)) {
        refuse_round(c, type, next);
        return false;
    }
    ++c->position;
    return true;
}

bool
coi_check_round(co_context *ctx, const char *body, co_value *types, co_value *next)
{
    round_check c = { ctx, body, 0 };
    char        before[300], after[300];

    if (coi_tree_pair(types, next, check_leaf, &c))
        return true;
    if (ctx->error.code != CO_OK)
        return false;
    coi_format(&ctx->heap, types, before, sizeof(before));
    coi_format(&ctx->heap, next, after, sizeof(after));
    coi_fail(ctx, CO_TYPE_ERROR,
             "the %s returned %s; it must return loop variables in the structure of %s", body,
             after, before);
    return false;
}
