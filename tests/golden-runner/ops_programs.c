/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of the ops family: expressions of several operators, written out once each. */
#include <string.h>

#include "captured.h"
#include "ops.h"

/* Operators without a C function of their own yet are called by name; while the library has none of
 * that name the case fails with the library's own message. */
static co_value *
call1(co_context *ctx, const char *op, co_value *x)
{
    return co_op_call(ctx, op, co_args(ctx, x), NULL);
}

static co_value *
call2(co_context *ctx, const char *op, co_value *x, co_value *y)
{
    return co_op_call(ctx, op, co_args(ctx, x, y), NULL);
}

static co_value *
cube_plus_sin(co_context *ctx, co_value *x, co_value *y)
{
    return co_add(ctx, co_mul(ctx, co_mul(ctx, x, x), x), co_mul(ctx, call1(ctx, "sin", x), y));
}

static co_value *
sum_of_bells(co_context *ctx, co_value *x, co_value *y)
{
    return co_reduce_sum(ctx, co_exp(ctx, co_neg(ctx, co_square(ctx, co_sub(ctx, x, y)))),
                         CO_ALL_AXES, false);
}

static co_value *
stopped_times_x(co_context *ctx, co_value *x, co_value *y)
{
    (void)y;
    return co_mul(ctx, co_stop_gradient(ctx, x), x);
}

static co_value *
used_twice(co_context *ctx, co_value *x, co_value *y)
{
    (void)y;
    return co_add(ctx, co_relu(ctx, x), co_mul(ctx, co_sigmoid(ctx, x), x));
}

static co_value *
y_unused(co_context *ctx, co_value *x, co_value *y)
{
    return co_add(ctx, x, co_mul(ctx, co_int(ctx, 0), co_stop_gradient(ctx, y)));
}

typedef struct program {
    const char *text;
    size_t      num_inputs;
    co_value *(*run)(co_context *ctx, co_value *x, co_value *y);
} program;
static const program programs[] = {
    { "x*x*x + sin(x)*y", 2, cube_plus_sin },
    { "reduce_sum(exp(-square(x-y)))", 2, sum_of_bells },
    { "stop_gradient(x)*x", 1, stopped_times_x },
    { "x used twice: relu(x)+sigmoid(x)*x", 1, used_twice },
    { "y unused: x+0*stop_gradient(y)", 2, y_unused },
};

static co_value *
call_program(golden_case *c, const golden_operands *in, void *user)
{
    const program *p = user;

    return p->run(c->ctx, in->values[0], in->n > 1 ? in->values[1] : NULL);
}

static bool
read_operand(golden_case *c, golden_operands *in, const char *name)
{
    co_value *value = golden_read_value(c, c->ctx, json_object_get(c->inputs, name));

    strcpy(in->names[in->n], name);
    in->values[in->n++] = value;
    return value != NULL;
}

static void
run_composite(golden_case *c)
{
    const char     *text = golden_string(c, c->attrs, "program");
    golden_operands in = { .n = 0 };

    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); ++i) {
        if (strcmp(programs[i].text, text) != 0)
            continue;
        if (read_operand(c, &in, "x") && (programs[i].num_inputs == 1 || read_operand(c, &in, "y")))
            golden_run_differentiated(c, &in, call_program, (void *)&programs[i]);
        return;
    }
    golden_fail(c, "program '%s' is not known to the runner", text);
}

/* y = reduce_sum(sin(x)*exp(x) + x**3); g = dy/dx; h = d(sum g)/dx */
static co_value *
second_order(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y, *g, *h;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_reduce_sum(ctx,
                      co_add(ctx, co_mul(ctx, call1(ctx, "sin", x), co_exp(ctx, x)),
                             call2(ctx, "pow", x, co_int(ctx, 3))),
                      CO_ALL_AXES, false);
    g = co_gradient(ctx, y, x);
    h = co_gradient(ctx, co_reduce_sum(ctx, g, CO_ALL_AXES, false), x);
    return co_ok(ctx) ? co_args(ctx, y, g, h) : NULL;
}

static void
run_second_order(golden_case *c)
{
    static const char known[] = "y=reduce_sum(sin(x)*exp(x)+x**3); g=dy/dx; h=d(sum g)/dx";
    co_context       *ctx = c->ctx;
    const char       *text = golden_string(c, c->attrs, "program");
    co_value         *x, *all;

    if (strcmp(text, known) != 0) {
        golden_fail(c, "program '%s' is not known to the runner", text);
        return;
    }
    x = golden_read_value(c, ctx, json_object_get(c->inputs, "x"));
    all = x != NULL ? golden_in_function(ctx, second_order, co_args(ctx, x), NULL) : NULL;
    if (all != NULL) {
        golden_put_value(c, "y", co_at(ctx, all, 0));
        golden_put_value(c, "g", co_at(ctx, all, 1));
        golden_put_value(c, "h", co_at(ctx, all, 2));
    }
}

bool
golden_run_program(golden_case *c, const char *op)
{
    static const golden_action table[] = {
        { "composite", run_composite },
        { "second_order", run_second_order },
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        if (strcmp(table[i].name, op) == 0) {
            table[i].run(c);
            return true;
        }
    }
    return false;
}
