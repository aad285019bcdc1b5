/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions and lines of the log: at once, and in every call of a captured function. */
#include "test.h"

static co_value *
vector(co_context *ctx, float a, float b)
{
    return co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), (float[]){ a, b });
}

/* What a program does to a variable around a check. */
typedef struct checked {
    co_value *before, *after;
    co_code (*check)(co_context *ctx, co_value *x);
} checked;

static co_code
positive(co_context *ctx, co_value *x)
{
    return co_assert(ctx, co_greater(ctx, x, co_float(ctx, 0)), "x is positive");
}

static co_code
equal(co_context *ctx, co_value *x)
{
    return co_assert_equal(ctx, x, co_float(ctx, 1), NULL);
}

static co_code
less(co_context *ctx, co_value *x)
{
    return co_assert_less(ctx, x, co_float(ctx, 3), "small");
}

static co_code
greater(co_context *ctx, co_value *x)
{
    return co_assert_greater(ctx, x, co_float(ctx, -3), NULL);
}

static co_code
numbers(co_context *ctx, co_value *x)
{
    co_check_numerics(ctx, x, "x");
    return CO_OK;
}

static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    const checked *c = user;

    co_assign_add(ctx, c->before, co_float(ctx, 1));
    c->check(ctx, co_at(ctx, args, 0));
    co_assign_add(ctx, c->after, co_float(ctx, 1));
    return NULL;
}

static const struct {
    co_code (*check)(co_context *ctx, co_value *x);
    float       right[2], wrong[2];
    const char *part;
} rows[] = {
    { positive, { 1, 2 }, { 1, -2 }, "x is positive: the condition is false at element 1" },
    { equal, { 1, 1 }, { 2, 1 }, "x == y does not hold at element 0" },
    { less, { 1, 2 }, { 1, 5 }, "small: x < y does not hold at element 1" },
    { greater, { 1, 2 }, { -4, 5 }, "x > y does not hold at element 0" },
    { numbers, { 1, 2 }, { INFINITY, 2 }, "x: the tensor holds an infinity" },
    { numbers, { 1, 2 }, { INFINITY, NAN }, "x: the tensor holds NaN" },
};

CO_TEST(checks_run_in_every_call_at_their_place, "FN-7 FN-10")
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        checked      c = { co_variable(ctx, co_float(ctx, 0), NULL),
                           co_variable(ctx, co_float(ctx, 0), NULL), rows[i].check };
        co_function *f = co_function_of(ctx, step, &c, NULL);
        co_value    *right = vector(ctx, rows[i].right[0], rows[i].right[1]);
        co_value    *wrong = vector(ctx, rows[i].wrong[0], rows[i].wrong[1]);

        step(ctx, co_args(ctx, right), &c);
        CO_EXPECT_OK(ctx);
        rows[i].check(ctx, wrong);
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, rows[i].part);
        co_call(ctx, f, co_args(ctx, right));
        CO_EXPECT_OK(ctx);
        co_call(ctx, f, co_args(ctx, wrong));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, rows[i].part);
        co_call(ctx, f, co_args(ctx, right));
        CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, c.before)), 4, 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, c.after)), 3, 0);
    }
}

static co_value *
call_inside(co_context *ctx, co_value *args, void *user)
{
    return co_call(ctx, user, args);
}

CO_TEST(checks_of_a_function_inside_another_stay, "FN-9 FN-10")
{
    checked      c = { co_variable(ctx, co_float(ctx, 0), NULL),
                       co_variable(ctx, co_float(ctx, 0), NULL), positive };
    co_function *f = co_function_of(ctx, call_inside, co_function_of(ctx, step, &c, NULL), NULL);

    co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2)));
    CO_EXPECT_OK(ctx);
    co_call(ctx, f, co_args(ctx, vector(ctx, 1, -2)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "element 1");
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, c.after)), 1, 0);
}

CO_TEST(a_condition_is_of_bools, "FN-10")
{
    co_assert(ctx, vector(ctx, 1, 1), NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "must be bool");
    co_assert(ctx, co_bool(ctx, false), "never");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "never: the condition is false");
}

CO_TEST(numerics_return_their_operand, "FN-10")
{
    co_value *x = vector(ctx, 1, 2);

    CO_EXPECT_PTR(co_check_numerics(ctx, x, NULL), x);
}

/* --- lines --- */

typedef struct heard {
    int  lines;
    char last[300];
} heard;

static void
listen(co_log_level level, const char *line, void *user)
{
    heard *h = user;

    (void)level;
    if (strstr(line, "sum") == NULL)
        return;
    ++h->lines;
    snprintf(h->last, sizeof(h->last), "%s", line);
}

static co_value *
say_sum(co_context *ctx, co_value *args, void *user)
{
    co_value *sum = co_reduce_sum(ctx, co_at(ctx, args, 0), NULL, 0, false);

    (void)user;
    co_print(ctx, "sum", sum);
    return sum;
}

CO_TEST_BARE(a_print_is_a_line_of_every_call, "FN-7")
{
    heard        h = { 0 };
    co_options   options = CO_OPTIONS_INIT;
    co_function *f;

    options.log = listen;
    options.log_user = &h;
    options.settings = "log=info";
    ctx = co_open_with(&options);
    f = co_function_of(ctx, say_sum, NULL, NULL);
    for (int i = 0; i < 3; ++i)
        co_call(ctx, f, co_args(ctx, vector(ctx, 1, (float)i)));
    CO_EXPECT_INT(h.lines, 3);
    CO_EXPECT_CONTAINS(h.last, "sum: ");
    CO_EXPECT_CONTAINS(h.last, "3");
    say_sum(ctx, co_args(ctx, vector(ctx, 1, 9)), NULL);
    CO_EXPECT_INT(h.lines, 4);
    CO_EXPECT_OK(ctx);
    co_close(ctx);
}
