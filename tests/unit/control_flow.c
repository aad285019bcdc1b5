/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditions and loops: eager and captured they have the same bits and gradients, only what runs
 * has effects, and what does not fit is refused.
 */
#include "test.h"

static co_value *
vector(co_context *ctx, const double *data, int n)
{
    int64_t dim = n;

    return co_tensor(ctx, CO_FLOAT64, &dim, 1, data);
}

static co_value *
int_scalar(co_context *ctx, int32_t i)
{
    return co_tensor(ctx, CO_INT32, NULL, 0, &i);
}

static co_value *
float_scalar(co_context *ctx, float f)
{
    return co_tensor(ctx, CO_FLOAT32, NULL, 0, &f);
}

static double
element(co_context *ctx, co_value *x, int i)
{
    const double *data = x != NULL ? co_value_data(ctx, x) : NULL;

    return data != NULL ? data[i] : NAN;
}

static void
expect_same_tensor(co_context *ctx, co_value *a, co_value *b)
{
    CO_EXPECT_INT(co_value_dtype(ctx, a), co_value_dtype(ctx, b));
    CO_EXPECT_INT(co_value_ndim(ctx, a), co_value_ndim(ctx, b));
    CO_EXPECT_INT(co_value_num_elements(ctx, a), co_value_num_elements(ctx, b));
    CO_EXPECT_BYTES(co_value_data(ctx, a), co_value_data(ctx, b),
                    (size_t)co_value_num_elements(ctx, a) * co_dtype_size(co_value_dtype(ctx, a)));
}

static void
expect_same_bits(co_context *ctx, co_value *a, co_value *b)
{
    CO_EXPECT_OK(ctx);
    CO_REQUIRE(a != NULL && b != NULL);
    CO_EXPECT_INT(co_value_kind(a), co_value_kind(b));
    if (co_value_kind(a) == CO_KIND_TENSOR)
        expect_same_tensor(ctx, a, b);
    if (co_value_kind(a) != CO_KIND_TUPLE)
        return;
    CO_EXPECT_INT(co_num_items(ctx, a), co_num_items(ctx, b));
    for (size_t i = 0; i < co_num_items(ctx, a); ++i)
        expect_same_bits(ctx, co_at(ctx, a, i), co_at(ctx, b, i));
}

/* Call a function eagerly and captured, twice: the same bits. Returns the eager result. */
static co_value *
both(co_context *ctx, co_function *f, co_fn fn, co_value *args, void *user)
{
    co_value *eager = fn(ctx, args, user);

    CO_EXPECT_OK(ctx);
    expect_same_bits(ctx, co_call(ctx, f, args), eager);
    expect_same_bits(ctx, co_call(ctx, f, args), eager);
    CO_EXPECT_OK(ctx);
    return eager;
}

/* --- programs of one vector x --- */

/* What bodies see besides their arguments. */
typedef struct outside {
    co_value *x, *n, *variable;
    int       calls, other_calls;
} outside;

static co_value *
is_positive(co_context *ctx, co_value *x)
{
    return co_greater(ctx, co_reduce_sum(ctx, x, NULL, 0, false), co_float(ctx, 0));
}

static co_value *
cube(co_context *ctx, co_value *args, void *user)
{
    outside  *o = user;
    co_value *y = co_at(ctx, args, 0);

    ++o->calls;
    return co_mul(ctx, co_square(ctx, y), o->x);
}

static co_value *
sine(co_context *ctx, co_value *args, void *user)
{
    outside *o = user;

    ++o->other_calls;
    return co_sin(ctx, co_mul(ctx, co_at(ctx, args, 0), co_float(ctx, 2)));
}

static co_value *
by_cond(co_context *ctx, co_value *args, void *user)
{
    outside *o = user;

    o->x = co_at(ctx, args, 0);
    return co_cond(ctx, is_positive(ctx, o->x), cube, sine, co_args(ctx, o->x), o);
}

static co_value *
below_n(co_context *ctx, co_value *args, void *user)
{
    return co_less(ctx, co_at(ctx, args, 0), ((outside *)user)->n);
}

static co_value *
next_power(co_context *ctx, co_value *args, void *user)
{
    const outside *o = user;
    co_value      *a = co_at(ctx, args, 1);

    return co_args(ctx, co_add(ctx, co_at(ctx, args, 0), co_int(ctx, 1)),
                   co_mul(ctx, co_sin(ctx, a), o->x));
}

/* a = sin(a) * x, n times, where n is an argument too. */
static co_value *
by_while(co_context *ctx, co_value *args, void *user)
{
    outside  *o = user;
    co_value *vars;

    o->x = co_at(ctx, args, 0);
    o->n = co_num_items(ctx, args) > 1 ? co_at(ctx, args, 1) : int_scalar(ctx, 3);
    vars = co_while(ctx, below_n, next_power, co_args(ctx, co_int(ctx, 0), o->x), o, NULL);
    return co_at(ctx, vars, 1);
}

/* The inner loop of a nested one: its bound is the variable of the outer loop. */
static co_value *
nested_body(co_context *ctx, co_value *args, void *user)
{
    outside  *o = user, inner = *o;
    co_value *vars;

    inner.n = co_at(ctx, args, 0);
    vars = co_while(ctx, below_n, next_power, co_args(ctx, co_int(ctx, 0), co_at(ctx, args, 1)),
                    &inner, NULL);
    return co_args(ctx, co_add(ctx, co_at(ctx, args, 0), co_int(ctx, 1)), co_at(ctx, vars, 1));
}

static co_value *
by_nested_while(co_context *ctx, co_value *args, void *user)
{
    outside  *o = user;
    co_value *vars;

    o->x = co_at(ctx, args, 0);
    o->n = int_scalar(ctx, 4);
    vars = co_while(ctx, below_n, nested_body, co_args(ctx, co_int(ctx, 0), o->x), o, NULL);
    return co_at(ctx, vars, 1);
}

static co_value *
cond_in_body(co_context *ctx, co_value *args, void *user)
{
    co_value *a = co_at(ctx, args, 1);

    a = co_cond(ctx, is_positive(ctx, a), sine, cube, co_args(ctx, a), user);
    return co_args(ctx, co_add(ctx, co_at(ctx, args, 0), co_int(ctx, 1)), a);
}

static co_value *
by_cond_in_while(co_context *ctx, co_value *args, void *user)
{
    outside  *o = user;
    co_value *vars;

    o->x = co_at(ctx, args, 0);
    o->n = int_scalar(ctx, 3);
    vars = co_while(ctx, below_n, cond_in_body, co_args(ctx, co_int(ctx, 0), o->x), o, NULL);
    return co_at(ctx, vars, 1);
}

static co_value *
half_and_add(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_mul(ctx, co_sin(ctx, co_at(ctx, args, 0)), co_float(ctx, 0.5)),
                  co_at(ctx, args, 1));
}

static co_value *
square_row(co_context *ctx, co_value *args, void *user)
{
    const outside *o = user;

    return co_mul(ctx, co_square(ctx, co_at(ctx, args, 0)),
                  co_reduce_sum(ctx, o->x, NULL, 0, false));
}

static co_value *
by_map(co_context *ctx, co_value *args, void *user)
{
    outside *o = user;

    o->x = co_at(ctx, args, 0);
    return co_map_fn(ctx, o->x, square_row, o);
}

static co_value *
by_scan(co_context *ctx, co_value *args, void *user)
{
    return co_scan(ctx, co_at(ctx, args, 0), NULL, half_and_add, user, false);
}

static co_value *
by_reverse_scan(co_context *ctx, co_value *args, void *user)
{
    return co_scan(ctx, co_at(ctx, args, 0), co_cast(ctx, co_float(ctx, 0.25), CO_FLOAT64),
                   half_and_add, user, true);
}

static co_value *
by_foldl(co_context *ctx, co_value *args, void *user)
{
    return co_foldl(ctx, co_at(ctx, args, 0), NULL, half_and_add, user);
}

static co_value *
by_foldr(co_context *ctx, co_value *args, void *user)
{
    return co_foldr(ctx, co_at(ctx, args, 0), NULL, half_and_add, user);
}

static co_value *
add_square(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, co_add(ctx, co_mul(ctx, co_at(ctx, args, 1), co_at(ctx, args, 0)),
                               co_square(ctx, co_at(ctx, args, 0))));
}

static co_value *
by_for_each(co_context *ctx, co_value *args, void *user)
{
    co_value *state = co_args(ctx, co_zeros(ctx, CO_FLOAT64, NULL, 0));

    return co_at(ctx, co_for_each(ctx, co_at(ctx, args, 0), state, add_square, user), 0);
}

static const struct program {
    const char *name;
    co_fn       fn;
} programs[] = {
    { "cond", by_cond },
    { "while", by_while },
    { "nested while", by_nested_while },
    { "cond in while", by_cond_in_while },
    { "map", by_map },
    { "scan", by_scan },
    { "reverse scan", by_reverse_scan },
    { "foldl", by_foldl },
    { "foldr", by_foldr },
    { "for each", by_for_each },
};
#define NUM_PROGRAMS (sizeof(programs) / sizeof(programs[0]))

static const double inputs[][3] = { { 0.5, 1.25, 0.75 }, { -0.5, -1.5, 0.25 } };

CO_TEST(control_flow_has_the_same_bits_captured, "FN-11")
{
    for (size_t p = 0; p < NUM_PROGRAMS; ++p) {
        outside      o = { 0 };
        co_function *f = co_function_of(ctx, programs[p].fn, &o, NULL);

        for (int i = 0; i < 2; ++i)
            both(ctx, f, programs[p].fn, co_args(ctx, vector(ctx, inputs[i], 3)), &o);
    }
    CO_EXPECT_OK(ctx);
}

CO_TEST(branches_are_captured_once_and_one_of_them_runs, "FN-11")
{
    outside      o = { 0 };
    co_function *f = co_function_of(ctx, by_cond, &o, NULL);

    CO_EXPECT_CLOSE(element(ctx, co_call(ctx, f, co_args(ctx, vector(ctx, inputs[0], 3))), 0),
                    0.125, 0);
    CO_EXPECT_CLOSE(element(ctx, co_call(ctx, f, co_args(ctx, vector(ctx, inputs[1], 3))), 0),
                    sin(-1), 1e-15);
    CO_EXPECT_INT(o.calls, 1);
    CO_EXPECT_INT(o.other_calls, 1);
    by_cond(ctx, co_args(ctx, vector(ctx, inputs[1], 3)), &o);
    CO_EXPECT_INT(o.calls, 1);
    CO_EXPECT_INT(o.other_calls, 2);
    CO_EXPECT_OK(ctx);
}

CO_TEST(a_loop_runs_as_many_rounds_as_its_condition_says, "FN-11")
{
    outside      o = { 0 };
    co_function *f = co_function_of(ctx, by_while, &o, NULL);

    for (int32_t n = -1; n < 5; ++n) {
        co_value *y = both(ctx, f, by_while,
                           co_args(ctx, vector(ctx, inputs[0], 3), int_scalar(ctx, n)), &o);
        double    expected = 0.5;

        for (int i = 0; i < n; ++i)
            expected = sin(expected) * 0.5;
        CO_EXPECT_CLOSE(element(ctx, y, 0), expected, 1e-15);
    }
    CO_EXPECT_OK(ctx);
}

/* --- gradients --- */

/* The gradient of a program, and the gradient of its sum: functions of x. */
typedef struct differentiated {
    co_fn   fn;
    outside o;
} differentiated;

static co_value *
first_gradient(co_context *ctx, co_value *args, void *user)
{
    differentiated *d = user;
    co_value       *x = co_at(ctx, args, 0);

    co_tape_begin(ctx);
    co_watch(ctx, x);
    return co_gradient(ctx, d->fn(ctx, args, &d->o), x);
}

static co_value *
second_gradient(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *g;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    g = first_gradient(ctx, args, user);
    return co_gradient(ctx, co_mul(ctx, g, g), x);
}

/* The sum of what a function gives, where element k of x is moved. */
static double
sum_at(co_context *ctx, co_fn fn, void *user, const double *x, int k, double step, bool squares)
{
    double    moved[3] = { x[0], x[1], x[2] }, sum = 0;
    co_value *y;

    moved[k] += step;
    y = fn(ctx, co_args(ctx, vector(ctx, moved, 3)), user);
    for (int64_t i = 0; y != NULL && i < co_value_num_elements(ctx, y); ++i)
        sum += squares ? element(ctx, y, (int)i) * element(ctx, y, (int)i)
                       : element(ctx, y, (int)i);
    return sum;
}

static void
expect_differences(co_context *ctx, co_value *gradient, co_fn fn, void *user, const double *x,
                   bool squares)
{
    const double step = 1e-5;

    CO_REQUIRE(gradient != NULL);
    for (int k = 0; k < 3; ++k) {
        double sum = sum_at(ctx, fn, user, x, k, step, squares);
        double difference = (sum - sum_at(ctx, fn, user, x, k, -step, squares)) / (2 * step);

        /* The last bits of a large sum, divided by the step, are the second part. */
        CO_EXPECT_CLOSE(element(ctx, gradient, k), difference,
                        1e-6 * (1 + fabs(difference)) + 1e-10 * fabs(sum));
    }
}

CO_TEST(gradients_of_control_flow_agree_with_differences, "FN-8 FN-11")
{
    for (size_t p = 0; p < NUM_PROGRAMS; ++p) {
        differentiated d = { programs[p].fn, { 0 } };
        co_function   *f = co_function_of(ctx, first_gradient, &d, NULL);

        for (int i = 0; i < 2; ++i) {
            co_value *args = co_args(ctx, vector(ctx, inputs[i], 3));

            expect_differences(ctx, both(ctx, f, first_gradient, args, &d), d.fn, &d.o, inputs[i],
                               false);
        }
    }
    CO_EXPECT_OK(ctx);
}

CO_TEST(second_gradients_of_control_flow_agree_with_differences, "FN-8 FN-11")
{
    for (size_t p = 0; p < NUM_PROGRAMS; ++p) {
        differentiated d = { programs[p].fn, { 0 } };
        co_function   *f = co_function_of(ctx, second_gradient, &d, NULL);

        for (int i = 0; i < 2; ++i) {
            co_value *args = co_args(ctx, vector(ctx, inputs[i], 3));

            expect_differences(ctx, both(ctx, f, second_gradient, args, &d), first_gradient, &d,
                               inputs[i], true);
        }
    }
    CO_EXPECT_OK(ctx);
}

CO_TEST(a_tape_outside_sees_the_branch_that_ran, "FN-8 FN-11")
{
    outside      o = { 0 };
    co_function *f = co_function_of(ctx, by_cond, &o, NULL);

    for (int i = 0; i < 2; ++i) {
        co_value *x = vector(ctx, inputs[i], 3), *g;

        co_tape_begin(ctx);
        co_watch(ctx, x);
        g = co_gradient(ctx, co_call(ctx, f, co_args(ctx, x)), x);
        expect_differences(ctx, g, by_cond, &o, inputs[i], false);
    }
    CO_EXPECT_OK(ctx);
}

/* Of z, which one branch uses, and of a variable, which the other uses. */
static co_value *
times_z(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));
}

static co_value *
times_variable(co_context *ctx, co_value *args, void *user)
{
    return co_mul(ctx, co_at(ctx, args, 0), ((outside *)user)->variable);
}

static co_value *
unequal_gradients(co_context *ctx, co_value *args, void *user)
{
    outside  *o = user;
    co_value *x = co_at(ctx, args, 0), *z = co_at(ctx, args, 1), *y, *g;

    co_tape_begin(ctx);
    co_watch(ctx, args);
    y = co_cond(ctx, is_positive(ctx, x), times_z, times_variable, args, o);
    g = co_gradient(ctx, y, co_args(ctx, x, z, o->variable));
    /* They are used, whichever branch ran. */
    return co_args(ctx, co_at(ctx, g, 0), co_mul(ctx, co_at(ctx, g, 1), co_float(ctx, 2)),
                   co_mul(ctx, co_at(ctx, g, 2), co_float(ctx, 2)));
}

CO_TEST(gradients_of_what_the_other_branch_uses_are_zeros, "FN-8 FN-11 FN-14")
{
    outside      o = { .variable = co_variable(ctx, vector(ctx, inputs[0], 3), NULL) };
    co_function *f = co_function_of(ctx, unequal_gradients, &o, NULL);
    co_value    *z = vector(ctx, inputs[1], 3), *g;

    g = co_call(ctx, f, co_args(ctx, vector(ctx, inputs[0], 3), z));
    CO_EXPECT_OK(ctx);
    CO_REQUIRE(g != NULL);
    CO_EXPECT_CLOSE(element(ctx, co_at(ctx, g, 0), 1), -1.5, 0);
    CO_EXPECT_CLOSE(element(ctx, co_at(ctx, g, 1), 1), 2.5, 0);
    CO_EXPECT_CLOSE(element(ctx, co_at(ctx, g, 2), 1), 0, 0);
    g = co_call(ctx, f, co_args(ctx, vector(ctx, inputs[1], 3), z));
    CO_REQUIRE(g != NULL);
    CO_EXPECT_CLOSE(element(ctx, co_at(ctx, g, 0), 1), 1.25, 0);
    CO_EXPECT_CLOSE(element(ctx, co_at(ctx, g, 1), 1), 0, 0);
    CO_EXPECT_CLOSE(element(ctx, co_at(ctx, g, 2), 1), -3, 0);
    CO_EXPECT_OK(ctx);
}

/* A tape in the body, which watches what is outside. */
static co_value *
gradient_in_body(co_context *ctx, co_value *args, void *user)
{
    const outside *o = user;

    (void)args;
    co_tape_begin(ctx);
    co_watch(ctx, o->x);
    return co_gradient(ctx, co_square(ctx, o->x), o->x);
}

static co_value *
by_gradient_in_body(co_context *ctx, co_value *args, void *user)
{
    outside *o = user;

    o->x = co_at(ctx, args, 0);
    return co_cond(ctx, is_positive(ctx, o->x), gradient_in_body, sine, args, o);
}

CO_TEST(a_body_takes_gradients_of_what_is_outside, "FN-8 FN-11")
{
    outside      o = { 0 };
    co_function *f = co_function_of(ctx, by_gradient_in_body, &o, NULL);
    co_value    *args = co_args(ctx, vector(ctx, inputs[0], 3));

    CO_EXPECT_CLOSE(element(ctx, both(ctx, f, by_gradient_in_body, args, &o), 1), 2.5, 0);
    CO_EXPECT_OK(ctx);
}

/* --- functions inside functions --- */

static co_value *
call_twice(co_context *ctx, co_value *args, void *user)
{
    co_function *f = user;
    co_value    *y = co_call(ctx, f, args);

    return co_call(ctx, f, co_args(ctx, co_mul(ctx, y, co_float(ctx, -1))));
}

CO_TEST(control_flow_of_a_function_inside_another_is_inlined, "FN-8 FN-9 FN-11")
{
    for (size_t p = 0; p < 6; ++p) {
        outside        o = { 0 };
        co_function   *inner = co_function_of(ctx, programs[p].fn, &o, NULL);
        co_function   *f = co_function_of(ctx, call_twice, inner, NULL);
        differentiated d = { programs[p].fn, { 0 } };
        co_function   *first = co_function_of(ctx, first_gradient, &d, NULL);
        co_value      *args = co_args(ctx, vector(ctx, inputs[0], 3)), *y, *again;

        y = programs[p].fn(ctx, args, &o);
        again = programs[p].fn(ctx, co_args(ctx, co_mul(ctx, y, co_float(ctx, -1))), &o);
        CO_EXPECT_OK(ctx);
        expect_same_bits(ctx, co_call(ctx, f, args), again);
        CO_EXPECT_OK(ctx);
        expect_same_bits(ctx, co_call(ctx, co_function_of(ctx, co_captured, first, NULL), args),
                         first_gradient(ctx, args, &d));
        CO_EXPECT_OK(ctx);
    }
}

/* --- effects --- */

static co_value *
add_one(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_assign_add(ctx, ((outside *)user)->variable, co_float(ctx, 1));
    return NULL;
}

static co_value *
nothing(co_context *ctx, co_value *args, void *user)
{
    (void)ctx;
    (void)args;
    (void)user;
    return NULL;
}

static co_value *
assign_if_positive(co_context *ctx, co_value *args, void *user)
{
    return co_cond(ctx, is_positive(ctx, co_at(ctx, args, 0)), add_one, nothing, NULL, user);
}

CO_TEST(assignments_of_a_branch_that_does_not_run_do_not_happen, "FN-7 FN-11")
{
    outside      o = { .variable = co_variable(ctx, float_scalar(ctx, 0), NULL) };
    co_function *f = co_function_of(ctx, assign_if_positive, &o, NULL);

    for (int i = 0; i < 4; ++i)
        CO_EXPECT_INT(co_value_kind(co_call(ctx, f, co_args(ctx, vector(ctx, inputs[i % 2], 3)))),
                      CO_KIND_NONE);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, o.variable)), 2, 0);
    assign_if_positive(ctx, co_args(ctx, vector(ctx, inputs[0], 3)), &o);
    assign_if_positive(ctx, co_args(ctx, vector(ctx, inputs[1], 3)), &o);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, o.variable)), 3, 0);
    CO_EXPECT_OK(ctx);
}

/* A variable that is an argument of the function: each call brings another. */
static co_value *
assign_argument(co_context *ctx, co_value *args, void *user)
{
    ((outside *)user)->variable = co_at(ctx, args, 1);
    return assign_if_positive(ctx, args, user);
}

CO_TEST(a_body_acts_on_the_variable_of_each_call, "FN-2 FN-7 FN-11")
{
    outside      o = { 0 };
    co_function *f = co_function_of(ctx, assign_argument, &o, NULL);
    co_value    *x = vector(ctx, inputs[0], 3);
    co_value    *a = co_variable(ctx, float_scalar(ctx, 0), NULL);
    co_value    *b = co_variable(ctx, float_scalar(ctx, 10), NULL);

    co_call(ctx, f, co_args(ctx, x, a));
    co_call(ctx, f, co_args(ctx, x, b));
    co_call(ctx, f, co_args(ctx, x, b));
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, a)), 1, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, b)), 12, 0);
    CO_EXPECT_OK(ctx);
}

/* --- branches --- */

static co_value *
negative(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_neg(ctx, co_at(ctx, args, 0));
}

static co_value *
by_index(co_context *ctx, co_value *args, void *user)
{
    const co_fn branches[] = { sine, negative, cube };
    outside    *o = user;

    o->x = co_at(ctx, args, 1);
    return co_switch_case(ctx, co_at(ctx, args, 0), branches, 3, co_args(ctx, o->x), o);
}

CO_TEST(an_index_chooses_a_branch_and_the_last_is_the_default, "FN-11")
{
    outside      o = { 0 };
    co_function *f = co_function_of(ctx, by_index, &o, NULL);
    const double expected[] = { 0.125, sin(1), -0.5, 0.125, 0.125 };

    for (int32_t i = -1; i < 4; ++i) {
        co_value *args = co_args(ctx, int_scalar(ctx, i), vector(ctx, inputs[0], 3));

        CO_EXPECT_CLOSE(element(ctx, both(ctx, f, by_index, args, &o), 0), expected[i + 1], 1e-15);
    }
    by_index(ctx, co_args(ctx, co_int(ctx, 1), vector(ctx, inputs[0], 3)), &o);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "index");
    co_call(ctx, f, co_args(ctx, float_scalar(ctx, 1), vector(ctx, inputs[0], 3)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "index");
    co_call(ctx, f, co_args(ctx, co_zeros(ctx, CO_INT32, CO_SHAPE(2)), vector(ctx, inputs[0], 3)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "index");
    co_switch_case(ctx, int_scalar(ctx, 0), NULL, 0, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no branches");
}

typedef struct cases {
    outside o;
    size_t  num_branches;
    bool    exclusive;
} cases;

static co_value *
by_case(co_context *ctx, co_value *args, void *user)
{
    const co_fn branches[] = { sine, negative, cube };
    cases      *c = user;
    co_value   *x = co_at(ctx, args, 0), *first = co_reduce_sum(ctx, x, NULL, 0, false);
    co_value   *predicates = co_args(ctx, co_less(ctx, first, co_float(ctx, 2)),
                                     co_less(ctx, first, co_float(ctx, 0)));

    c->o.x = x;
    return co_case(ctx, predicates, branches, c->num_branches, args, &c->o, c->exclusive);
}

CO_TEST(case_runs_the_branch_of_the_first_true_predicate, "FN-11")
{
    cases     with = { { 0 }, 3, false }, without = { { 0 }, 2, false }, only = { { 0 }, 3, true };
    co_value *large = co_args(ctx, vector(ctx, inputs[0], 3));
    co_value *small = co_args(ctx, vector(ctx, inputs[1], 3));
    co_function *f = co_function_of(ctx, by_case, &with, NULL);

    CO_EXPECT_CLOSE(element(ctx, both(ctx, f, by_case, large, &with), 0), 0.125, 0);
    CO_EXPECT_CLOSE(element(ctx, both(ctx, f, by_case, small, &with), 0), sin(-1), 1e-15);
    f = co_function_of(ctx, by_case, &without, NULL);
    co_call(ctx, f, large);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "none of the 2 predicates");
    by_case(ctx, large, &without);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "none of the 2 predicates");
    f = co_function_of(ctx, by_case, &only, NULL);
    CO_EXPECT_CLOSE(element(ctx, both(ctx, f, by_case, large, &only), 0), 0.125, 0);
    co_call(ctx, f, small);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "exclusive");
    without.num_branches = 1;
    by_case(ctx, small, &without);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "1 branch for 2 predicates");
}

/* --- what is refused --- */

static co_value *
as_int(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_cast(ctx, co_at(ctx, args, 0), CO_INT32);
}

static co_value *
in_tuple(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, co_at(ctx, args, 0));
}

static co_value *
its_sum(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), NULL, 0, false);
}

static co_value *
first_row(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_slice(ctx, co_at(ctx, args, 0), (int64_t[]){ 0 }, (int64_t[]){ 1 }, 1);
}

/* co_cond between the identity and another branch. */
static co_value *
by_two(co_context *ctx, co_value *args, void *user)
{
    const co_fn *other = user;

    return co_cond(ctx, is_positive(ctx, co_at(ctx, args, 0)), negative, *other, args, NULL);
}

CO_TEST(branches_agree_in_structure_and_dtype, "FN-11")
{
    co_fn     others[] = { as_int, in_tuple, nothing };
    co_value *args = co_args(ctx, vector(ctx, inputs[0], 3));

    for (size_t i = 0; i < 3; ++i) {
        co_call(ctx, co_function_of(ctx, by_two, &others[i], NULL), args);
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "branch 0 returns");
    }
}

CO_TEST(dimensions_in_which_branches_differ_are_unknown, "FN-11")
{
    co_fn others[] = { first_row, its_sum };

    for (size_t i = 0; i < 2; ++i) {
        co_function *f = co_function_of(ctx, by_two, &others[i], NULL);
        co_value    *y;

        both(ctx, f, by_two, co_args(ctx, vector(ctx, inputs[0], 3)), &others[i]);
        y = both(ctx, f, by_two, co_args(ctx, vector(ctx, inputs[1], 3)), &others[i]);
        CO_EXPECT_INT(co_value_num_elements(ctx, y), 1);
    }
    CO_EXPECT_OK(ctx);
}

static co_value *
by_predicate(co_context *ctx, co_value *args, void *user)
{
    return co_cond(ctx, co_at(ctx, args, 0), negative, sine, co_args(ctx, co_at(ctx, args, 1)),
                   user);
}

CO_TEST(a_predicate_is_a_scalar_bool, "FN-11")
{
    outside      o = { 0 };
    co_value    *x = vector(ctx, inputs[0], 3);
    co_function *f = co_function_of(ctx, by_predicate, &o, NULL);
    co_value    *wrong[] = { float_scalar(ctx, 1), int_scalar(ctx, 1),
                             co_zeros(ctx, CO_BOOL, CO_SHAPE(2)), co_none(ctx), co_int(ctx, 1) };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        by_predicate(ctx, co_args(ctx, wrong[i], x), &o);
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "predicate");
        co_call(ctx, f, co_args(ctx, wrong[i], x));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "predicate");
    }
    CO_EXPECT_CLOSE(element(ctx,
                            both(ctx, f, by_predicate, co_args(ctx, co_bool(ctx, true), x), &o), 0),
                    -0.5, 0);
    co_cond(ctx, co_bool(ctx, true), NULL, sine, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "true_fn");
    co_cond(ctx, co_bool(ctx, true), sine, NULL, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "false_fn");
    co_cond(ctx, co_bool(ctx, true), sine, sine, x, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "args");
}

/* A loop of two rounds whose body returns something else. */
typedef struct odd_loop {
    co_fn     body;
    co_value *invariants;
    int64_t   max_iterations;
} odd_loop;

static co_value *
always_true(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_less(ctx, co_reduce_sum(ctx, co_at(ctx, args, 0), NULL, 0, false),
                   co_float(ctx, 1e9));
}

static co_value *
by_odd_loop(co_context *ctx, co_value *args, void *user)
{
    const odd_loop  *l = user;
    co_while_options options = CO_WHILE_OPTIONS_INIT;

    options.invariants = l->invariants;
    options.max_iterations = l->max_iterations;
    return co_while(ctx, always_true, l->body, args, NULL, &options);
}

static co_value *
doubled(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    return co_args(ctx, co_concat(ctx, co_args(ctx, x, x), 0));
}

static co_value *
as_float(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, co_cast(ctx, co_at(ctx, args, 0), CO_FLOAT32));
}

static co_value *
two_of_it(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, co_at(ctx, args, 0), co_at(ctx, args, 0));
}

static co_value *
expanded(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, co_expand_dims(ctx, co_at(ctx, args, 0), 0));
}

CO_TEST(loop_variables_keep_structure_dtype_and_shape, "FN-11")
{
    const struct {
        odd_loop    loop;
        co_code     code;
        const char *part;
    } rows[] = {
        { { doubled, NULL, 2 }, CO_VALUE_ERROR, "the shape must stay" },
        { { as_float, NULL, 2 }, CO_TYPE_ERROR, "the dtype must stay" },
        { { two_of_it, NULL, 2 }, CO_TYPE_ERROR, "structure" },
        { { negative, NULL, 2 }, CO_TYPE_ERROR, "structure" },
        { { nothing, NULL, 2 }, CO_TYPE_ERROR, "structure" },
        { { doubled, co_args(ctx, co_spec(ctx, CO_FLOAT64, CO_SHAPE(4))), 2 },
          CO_VALUE_ERROR,
          "invariant" },
        { { doubled, co_args(ctx, co_none(ctx), co_none(ctx)), 2 }, CO_TYPE_ERROR, "invariants" },
        { { doubled, co_args(ctx, co_int(ctx, 1)), 2 }, CO_TYPE_ERROR, "invariants" },
    };
    co_value *args = co_args(ctx, vector(ctx, inputs[0], 3));

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        odd_loop loop = rows[i].loop;

        by_odd_loop(ctx, args, &loop);
        CO_EXPECT_ERROR(ctx, rows[i].code, rows[i].part);
        co_call(ctx, co_function_of(ctx, by_odd_loop, &loop, NULL), args);
        CO_EXPECT_ERROR(ctx, rows[i].code, rows[i].part);
    }
    co_while(ctx, its_sum, two_of_it, args, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "condition of while");
    co_while(ctx, NULL, two_of_it, args, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "cond");
    co_while(ctx, its_sum, NULL, args, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "body");
}

CO_TEST(an_invariant_lets_a_shape_change, "FN-11")
{
    odd_loop  grows = { doubled, co_args(ctx, co_spec(ctx, CO_FLOAT64, CO_SHAPE(-1))), 2 };
    odd_loop  expands = { expanded, co_list(ctx, NULL, 0), 3 };
    co_value *args = co_args(ctx, vector(ctx, inputs[0], 3)), *y, *spec;

    y = both(ctx, co_function_of(ctx, by_odd_loop, &grows, NULL), by_odd_loop, args, &grows);
    CO_EXPECT_INT(co_value_dim(ctx, co_at(ctx, y, 0), 0), 12);
    spec = co_spec(ctx, CO_FLOAT64, NULL, -1);
    expands.invariants = co_list(ctx, &spec, 1);
    y = both(ctx, co_function_of(ctx, by_odd_loop, &expands, NULL), by_odd_loop, args, &expands);
    CO_EXPECT_INT(co_value_ndim(ctx, co_at(ctx, y, 0)), 4);
    CO_EXPECT_OK(ctx);
}

/* --- rows --- */

static co_value *
row_sum(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), NULL, 0, false);
}

static co_value *
by_row_sums(co_context *ctx, co_value *args, void *user)
{
    return co_map_fn(ctx, co_at(ctx, args, 0), row_sum, user);
}

static co_value *
product_and_first(co_context *ctx, co_value *args, void *user)
{
    co_value *pair = co_at(ctx, args, 0);

    (void)user;
    return co_args(ctx, co_mul(ctx, co_at(ctx, pair, 0), co_at(ctx, pair, 1)), co_at(ctx, pair, 0));
}

static co_value *
by_pairs(co_context *ctx, co_value *args, void *user)
{
    return co_map_fn(ctx, args, product_and_first, user);
}

static co_value *
by_fold_from_zero(co_context *ctx, co_value *args, void *user)
{
    return co_foldl(ctx, co_at(ctx, args, 0), co_zeros(ctx, CO_FLOAT64, NULL, 0), half_and_add,
                    user);
}

CO_TEST(rows_of_structures_and_no_rows_at_all, "FN-11")
{
    co_value    *x = vector(ctx, inputs[0], 3), *y, *none = vector(ctx, inputs[0], 0);
    co_value    *short_one = vector(ctx, inputs[1], 2);
    co_function *f;

    y = both(ctx, co_function_of(ctx, by_pairs, NULL, NULL), by_pairs,
             co_args(ctx, x, vector(ctx, inputs[1], 3)), NULL);
    CO_EXPECT_CLOSE(element(ctx, co_at(ctx, y, 0), 1), 1.25 * -1.5, 0);
    CO_EXPECT_CLOSE(element(ctx, co_at(ctx, y, 1), 2), 0.75, 0);
    f = co_function_of(ctx, by_row_sums, NULL, NULL);
    y = both(ctx, f, by_row_sums, co_args(ctx, co_zeros(ctx, CO_FLOAT64, CO_SHAPE(0, 2))), NULL);
    CO_EXPECT_INT(co_value_ndim(ctx, y), 1);
    CO_EXPECT_INT(co_value_dim(ctx, y, 0), 0);
    f = co_function_of(ctx, by_fold_from_zero, NULL, NULL);
    y = both(ctx, f, by_fold_from_zero, co_args(ctx, none), NULL);
    CO_EXPECT_CLOSE(element(ctx, y, 0), 0, 0);
    by_foldl(ctx, co_args(ctx, none), NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no rows");
    by_pairs(ctx, co_args(ctx, x, short_one), NULL);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "rows");
    co_call(ctx, co_function_of(ctx, by_pairs, NULL, NULL), co_args(ctx, x, short_one));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "rows");
    by_row_sums(ctx, co_args(ctx, float_scalar(ctx, 1)), NULL);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no dimension");
    co_map_fn(ctx, x, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
}

CO_TEST(rows_whose_number_is_not_known_have_one_program, "FN-3 FN-11")
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    outside             o = { 0 };
    co_function        *f;

    options.signature = co_args(ctx, co_spec(ctx, CO_FLOAT64, CO_SHAPE(-1)));
    for (size_t p = 4; p < NUM_PROGRAMS; ++p) {
        co_function_stats stats = CO_FUNCTION_STATS_INIT;

        f = co_function_of(ctx, programs[p].fn, &o, &options);
        for (int n = 1; n < 4; ++n)
            both(ctx, f, programs[p].fn, co_args(ctx, vector(ctx, inputs[0], n)), &o);
        co_function_get_stats(ctx, f, &stats);
        CO_EXPECT_INT(stats.captures, 1);
    }
    CO_EXPECT_OK(ctx);
}

/* --- captured again --- */

/* A body that takes a number from memory of the caller. */
static co_value *
times_count(co_context *ctx, co_value *args, void *user)
{
    return co_mul(ctx, co_at(ctx, args, 0), co_float(ctx, *(const int *)user));
}

static co_value *
by_counted(co_context *ctx, co_value *args, void *user)
{
    return co_cond(ctx, is_positive(ctx, co_at(ctx, args, 0)), times_count, negative, args, user);
}

CO_TEST(a_check_finds_what_a_body_depends_on, "FN-7")
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    int                 count = 3;
    co_value           *args = co_args(ctx, vector(ctx, inputs[0], 3));
    co_function        *f;

    options.check = true;
    f = co_function_of(ctx, by_counted, &count, &options);
    both(ctx, f, by_counted, args, &count);
    count = 4;
    co_call(ctx, f, args);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "has other operands");
}

/* --- replicas --- */

static co_value *
merge_in_body(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)ctx;
    (void)strategy;
    (void)user;
    return args;
}

static co_value *
body_with_merge(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_merge_call(ctx, merge_in_body, co_at(ctx, args, 0), NULL);
}

static co_value *
step_with_merge(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    return co_cond(ctx, is_positive(ctx, x), body_with_merge, negative, args, NULL);
}

static co_value *
body_with_reduce(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, args, 0));
}

static co_value *
step_with_reduce(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    return co_cond(ctx, is_positive(ctx, x), body_with_reduce, negative, args, NULL);
}

CO_TEST_WITH(bodies_reduce_over_replicas_and_do_not_merge, "FN-9 RC-MERGE-8", "cpus=2")
{
    const char *const devices[] = { "/cpu:0", "/cpu:1" };
    co_strategy      *strategy = co_mirrored_strategy(ctx, devices, 2, NULL);
    co_value         *args = co_args(ctx, vector(ctx, inputs[0], 3)), *y;
    co_function      *f = co_function_of(ctx, step_with_reduce, NULL, NULL);

    for (int i = 0; i < 2; ++i) {
        y = co_run(ctx, strategy, co_captured, args, f);
        CO_EXPECT_OK(ctx);
        CO_REQUIRE(y != NULL);
        CO_EXPECT_CLOSE(element(ctx, co_at(ctx, co_local_results(ctx, strategy, y), 0), 1), 2.5, 0);
    }
    f = co_function_of(ctx, step_with_merge, NULL, NULL);
    co_run(ctx, strategy, co_captured, args, f);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "condition or loop");
}
