/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing two captures of one function. What a function reads from memory of its own is not part
 * of its arguments: a branch on it, or a number that it takes from there, is captured once and then
 * wrong. Captured again, the first call that differs shows it.
 */
#include "function/control_flow.h"
#include "function/value_tree.h"

#include "base/text.h"

#include <string.h>

static bool
same_ints(const int64_t *a, const int64_t *b, int n)
{
    return n <= 0 || memcmp(a, b, (size_t)n * sizeof(*a)) == 0;
}

/* Bit by bit: NaN is the same as itself, and 0 is not -0. */
static bool
same_double(double a, double b)
{
    uint64_t first, second;

    memcpy(&first, &a, sizeof(first));
    memcpy(&second, &b, sizeof(second));
    return first == second;
}

static bool
same_scalar(const coi_scalar *a, const coi_scalar *b)
{
    return a->kind == b->kind &&
           (a->kind == CO_KIND_FLOAT ? same_double(a->f, b->f) : a->i == b->i);
}

/* Field by field, because bytes between fields mean nothing. */
static bool
same_attr(const coi_attr *attr, const char *first, const char *second)
{
    const void *a = first + attr->offset, *b = second + attr->offset;

    switch (attr->type) {
    case COI_ATTR_INT:
    case COI_ATTR_FLOAT: return memcmp(a, b, sizeof(int64_t)) == 0;
    case COI_ATTR_BOOL: return *(const bool *)a == *(const bool *)b;
    case COI_ATTR_DTYPE: return *(const uint8_t *)a == *(const uint8_t *)b;
    case COI_ATTR_CHOICE: return memcmp(a, b, sizeof(int32_t)) == 0;
    case COI_ATTR_INTS:
        return ((const coi_ints *)a)->n == ((const coi_ints *)b)->n &&
               same_ints(((const coi_ints *)a)->at, ((const coi_ints *)b)->at,
                         ((const coi_ints *)a)->n);
    case COI_ATTR_MANY:
        return ((const coi_many *)a)->n == ((const coi_many *)b)->n &&
               same_ints(((const coi_many *)a)->at, ((const coi_many *)b)->at,
                         ((const coi_many *)a)->n);
    case COI_ATTR_SCALAR: return same_scalar(a, b);
    case COI_ATTR_STRING: return strcmp(a, b) == 0;
    }
    return true;
}

static bool
same_table(const coi_op *op, const void *a, const void *b)
{
    for (const coi_attr *attr = op->attrs; attr != NULL && attr->name != NULL; ++attr)
        if (!same_attr(attr, a, b))
            return false;
    return true;
}

/* The bodies of a condition or loop; NULL: another call. */
static const coi_bodies *
bodies_of(const coi_program_step *step)
{
    return coi_bodies_of(step->op, step->attrs);
}

static bool
same_bodies(const coi_bodies *a, const coi_bodies *b)
{
    return a->num_programs == b->num_programs && a->kind == b->kind && a->flag == b->flag &&
           a->limit == b->limit;
}

/* Calls that are no operators have no table of their attributes. */
static bool
same_attrs(co_context *ctx, const coi_program_step *a, const coi_program_step *b)
{
    const coi_op *op = a->op;

    if (op->replay == NULL)
        return same_table(op, a->attrs, b->attrs);
    if (bodies_of(a) != NULL)
        return same_bodies(bodies_of(a), bodies_of(b));
    if (op->same_attrs != NULL)
        return op->same_attrs(ctx, a->attrs, b->attrs);
    return op->attrs_rule.size == 0 || memcmp(a->attrs, b->attrs, op->attrs_rule.size) == 0;
}

static bool
same_texts(const co_value *a, const co_value *b)
{
    coi_text        room[2];
    int64_t         n = 0, other = 0;
    const coi_text *first = coi_texts_of(a, &room[0], &n);
    const coi_text *second = coi_texts_of(b, &room[1], &other);
    bool            same = n == other;

    for (int64_t i = 0; i < n && same; ++i)
        same = first[i].nbytes == second[i].nbytes &&
               memcmp(first[i].data, second[i].data, first[i].nbytes) == 0;
    return same;
}

/* Constants are compared by their elements: a function may make them anew. */
static bool
same_constant(co_context *ctx, co_value *a, co_value *b)
{
    const void *first, *second;

    if (a->dtype != b->dtype || !coi_same_shape(a, b))
        return false;
    if (a->dtype == CO_STRING)
        return same_texts(a, b);
    first = coi_host_data(ctx, a);
    second = coi_host_data(ctx, b);
    return first != NULL && second != NULL && memcmp(first, second, coi_tensor_nbytes(a)) == 0;
}

/* The captures that are compared. */
typedef struct captures {
    co_context *ctx;
    uint64_t    before, now; /* the programs of the outermost functions */
} captures;

static bool
same_operand(co_value *leaf, co_value *other, void *arg)
{
    const captures *c = arg;

    if (leaf->kind != other->kind)
        return false;
    if (leaf->kind == CO_KIND_SYMBOLIC)
        return leaf->u.symbol.slot == other->u.symbol.slot;
    if (leaf->kind == CO_KIND_TENSOR)
        return leaf == other || same_constant(c->ctx, leaf, other);
    if (coi_kind_of(leaf)->is_made_alike != NULL) /* a function may make its datasets each time */
        return coi_is_like_input(leaf, other) &&
               coi_kind_of(leaf)->is_made_alike(leaf, c->before, other, c->now);
    return coi_is_variable(leaf) ? leaf->u.variable == other->u.variable
                                 : coi_same_host_value(leaf, other);
}

/* What of two calls differs: a part of a sentence, or NULL. */
static const char *
difference(captures *c, const coi_program_step *a, const coi_program_step *b)
{
    if (a->op != b->op || a->num_in != b->num_in)
        return "is another call";
    if (!same_attrs(c->ctx, a, b))
        return "has other attributes";
    if (a->tape != b->tape || a->ends_tape != b->ends_tape)
        return "is about another tape";
    if ((a->device == NULL) != (b->device == NULL) ||
        (a->device != NULL && !coi_device_name_equal(a->device, b->device)))
        return "is made on another device";
    for (int i = 0; i < a->num_in; ++i)
        if (!coi_tree_pair(a->in[i], b->in[i], same_operand, c))
            return "has other operands";
    return NULL;
}

static const char *
call_text(const coi_program_step *step, char *out, size_t capacity)
{
    if (step == NULL)
        coi_text_line(out, capacity, "no call");
    else if (step->site.file == NULL)
        coi_text_line(out, capacity, "%s", step->op->name);
    else
        coi_text_line(out, capacity, "%s at %s:%d", step->op->name,
                      coi_path_end(step->site.file, 80), step->site.line);
    return out;
}

/* Of two calls that are the same otherwise. */
static bool
check_bodies(co_context *ctx, const char *name, const coi_bodies *before, const coi_bodies *now)
{
    for (size_t i = 0; before != NULL && i < before->num_programs; ++i)
        if (!coi_check_same_program(ctx, name, before->programs[i], now->programs[i]))
            return false;
    return true;
}

#define MAY_DEPEND "may depend on its arguments and on variables, not on other memory"

static bool
check_result(captures *c, const char *name, co_value *before, co_value *now)
{
    co_context *ctx = c->ctx;
    char        then[200], today[200];

    if (ctx->error.code == CO_OK && !coi_tree_pair(before, now, same_operand, c)) {
        coi_format(&ctx->heap, before, then, sizeof(then));
        coi_format(&ctx->heap, now, today, sizeof(today));
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "the captured function '%s' gives another result: %s when it was captured, %s "
                 "now; what it returns " MAY_DEPEND,
                 name, then, today);
    }
    return ctx->error.code == CO_OK;
}

bool
coi_check_same_program(co_context *ctx, const char *name, const coi_program *before,
                       const coi_program *now)
{
    captures c = { ctx, before->outermost, now->outermost };
    size_t   most = before->num_steps > now->num_steps ? before->num_steps : now->num_steps;
    char     then[200], today[200];

    /* The first capture made variables, which took values that the second one has no need of. */
    if (before->num_constants != now->num_constants)
        return true;
    for (size_t i = 0; i < most; ++i) {
        const coi_program_step *a = i < before->num_steps ? &before->steps[i] : NULL;
        const coi_program_step *b = i < now->num_steps ? &now->steps[i] : NULL;
        const char *what = a != NULL && b != NULL ? difference(&c, a, b) : "is there once only";

        if (ctx->error.code != CO_OK) /* a call inside this one */
            return false;
        if (what == NULL && !check_bodies(ctx, name, bodies_of(a), bodies_of(b)))
            return false;
        if (what == NULL)
            continue;
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "call %zu of the captured function '%s' %s: %s when it was captured, %s now; "
                 "what the function does " MAY_DEPEND,
                 i, name, what, call_text(a, then, sizeof(then)),
                 call_text(b, today, sizeof(today)));
        return false;
    }
    return check_result(&c, name, before->result, now->result);
}
