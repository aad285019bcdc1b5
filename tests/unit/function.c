/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured functions: what is captured, when it is captured again, and that a replay does what the
 * function does without capturing.
 */
#include "vector_support.h"

#include <stdatomic.h>

static int64_t
captures(co_context *ctx, const co_function *f)
{
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    co_function_get_stats(ctx, f, &stats);
    return stats.captures;
}

/* A function that counts how often it is called itself. */
typedef struct counted {
    int       calls;
    co_value *variable;
} counted;

static co_value *
square_plus(co_context *ctx, co_value *args, void *user)
{
    ++((counted *)user)->calls;
    return co_add(ctx, co_square(ctx, co_at(ctx, args, 0)), co_at(ctx, args, 1));
}

CO_TEST(a_function_is_called_once_for_equal_types, "FN-1 FN-2")
{
    counted      user = { 0, NULL };
    co_function *f = co_function_of(ctx, square_plus, &user, NULL);
    co_value    *y;

    CO_EXPECT_INT(user.calls, 0);
    y = co_call(ctx, f, co_args(ctx, vector(ctx, 1, 3), vector(ctx, 10, 3)));
    CO_EXPECT_INT(user.calls, 1);
    CO_EXPECT_CLOSE(element(ctx, y, 2), 9 + 12, 0);
    y = co_call(ctx, f, co_args(ctx, vector(ctx, 2, 3), vector(ctx, 20, 3)));
    CO_EXPECT_CLOSE(element(ctx, y, 2), 16 + 22, 0);
    CO_EXPECT_INT(user.calls, 1);
    y = co_call(ctx, f, co_args(ctx, vector(ctx, 2, 4), vector(ctx, 20, 4)));
    CO_EXPECT_CLOSE(element(ctx, y, 3), 25 + 23, 0);
    CO_EXPECT_INT(user.calls, 2);
    CO_EXPECT_INT(captures(ctx, f), 2);
    co_call(ctx, f, co_args(ctx, vector(ctx, 2, 3), co_int(ctx, 1)));
    co_call(ctx, f, co_args(ctx, vector(ctx, 2, 3), co_float(ctx, 1.0)));
    CO_EXPECT_INT(user.calls, 3);
    y = co_call(ctx, f, co_args(ctx, vector(ctx, 2, 3), co_int(ctx, 2)));
    CO_EXPECT_CLOSE(element(ctx, y, 0), 6, 0);
    CO_EXPECT_INT(user.calls, 4);
    CO_EXPECT_OK(ctx);
}

CO_TEST(a_signature_with_unknown_dimensions_is_captured_once, "FN-3")
{
    counted             user = { 0, NULL };
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_value           *spec = co_spec(ctx, CO_FLOAT32, CO_SHAPE(-1)), *y;
    co_function        *f;

    options.signature = co_args(ctx, spec, co_spec(ctx, CO_FLOAT32, NULL, 0));
    f = co_function_of(ctx, square_plus, &user, &options);
    for (int n = 0; n < 6; ++n) {
        y = co_call(ctx, f, co_args(ctx, vector(ctx, 2, n), co_float(ctx, 0.5)));
        CO_EXPECT_INT(co_value_dim(ctx, y, 0), n);
        if (n > 0)
            CO_EXPECT_CLOSE(element(ctx, y, n - 1), (n + 1) * (n + 1) + 0.5, 0);
    }
    CO_EXPECT_INT(user.calls, 1);
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, vector(ctx, 2, 3))));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "1 argument; the signature has 2");
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, co_scalar_double(ctx, 1), co_float(ctx, 1))));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 0 is or holds float64 []");
    CO_EXPECT_INT(user.calls, 1);
}

/* Reads x on the host. */
static co_value *
read_item(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_float(ctx, co_item_float(ctx, co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES,
                                                          false)));
}

CO_TEST(host_values_become_tensors_of_a_signature, "FN-3")
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    counted             user = { 0, NULL };
    co_value           *scalar = co_spec(ctx, CO_FLOAT32, NULL, 0);
    co_function        *f;

    options.signature = co_args(ctx, scalar, scalar);
    f = co_function_of(ctx, square_plus, &user, &options);
    CO_EXPECT_CLOSE(
        element(ctx, co_call(ctx, f, co_args(ctx, co_int(ctx, 3), co_bool(ctx, true))), 0), 10, 0);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, co_int(ctx, 3), co_string(ctx, "a"))));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "string");
    CO_EXPECT_INT(user.calls, 1);
}

CO_TEST(elements_cannot_be_read_while_capturing, "FN-13")
{
    co_function *f = co_function_of(ctx, read_item, NULL, NULL);

    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, vector(ctx, 1, 3))));
    CO_EXPECT_CONTAINS(co_error(ctx)->file, "function.c");
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "item_float reads <symbolic float32 []>");
}

static co_value *
add_to_variable(co_context *ctx, co_value *args, void *user)
{
    counted *c = user;

    ++c->calls;
    co_assign_add(ctx, c->variable, co_at(ctx, args, 0));
    return co_mul(ctx, c->variable, co_int(ctx, 2));
}

CO_TEST(variables_are_read_and_assigned_in_every_call, "FN-7")
{
    counted      user = { 0, co_variable(ctx, vector(ctx, 0, 2), NULL) };
    co_function *f = co_function_of(ctx, add_to_variable, &user, NULL);
    co_value    *y = co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2)));

    CO_EXPECT_CLOSE(element(ctx, y, 1), 6, 0);
    co_assign(ctx, user.variable, vector(ctx, 100, 2));
    y = co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2)));
    CO_EXPECT_CLOSE(element(ctx, y, 0), 202, 0);
    CO_EXPECT_CLOSE(element(ctx, co_variable_read(ctx, user.variable), 1), 103, 0);
    CO_EXPECT_INT(user.calls, 1);
    CO_EXPECT_OK(ctx);
}

/* --- gradients --- */

static co_value *
with_gradient(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y, *dx;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_reduce_sum(ctx, co_mul(ctx, co_sin(ctx, x), co_exp(ctx, x)), CO_ALL_AXES, false);
    dx = co_gradient(ctx, y, x);
    return co_args(ctx, y, dx);
}

static co_value *
second_gradient(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y, *dx;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_reduce_sum(ctx, co_mul(ctx, co_sin(ctx, x), co_exp(ctx, x)), CO_ALL_AXES, false);
    dx = co_gradient(ctx, y, x);
    return co_gradient(ctx, co_reduce_sum(ctx, dx, CO_ALL_AXES, false), x);
}

static void
expect_same_bits(co_context *ctx, co_value *a, co_value *b)
{
    CO_REQUIRE(a != NULL && b != NULL);
    CO_EXPECT_INT(co_value_num_elements(ctx, a), co_value_num_elements(ctx, b));
    CO_EXPECT_BYTES(co_value_data(ctx, a), co_value_data(ctx, b),
                    (size_t)co_value_num_elements(ctx, a) * sizeof(float));
}

CO_TEST(gradients_inside_a_function_have_the_bits_of_eager_ones, "FN-8")
{
    co_function *first = co_function_of(ctx, with_gradient, NULL, NULL);
    co_function *second = co_function_of(ctx, second_gradient, NULL, NULL);

    for (int n = 1; n < 4; ++n) {
        co_value *args = co_args(ctx, vector(ctx, 0.25f, 3 * n));
        co_value *eager = with_gradient(ctx, args, NULL), *y = co_call(ctx, first, args);

        CO_EXPECT_OK(ctx);
        CO_REQUIRE(y != NULL);
        expect_same_bits(ctx, co_at(ctx, y, 0), co_at(ctx, eager, 0));
        expect_same_bits(ctx, co_at(ctx, y, 1), co_at(ctx, eager, 1));
        expect_same_bits(ctx, co_call(ctx, second, args), second_gradient(ctx, args, NULL));
    }
    CO_EXPECT_OK(ctx);
}

CO_TEST(a_tape_outside_sees_through_a_call, "FN-8")
{
    counted      user = { 0, NULL };
    co_function *f = co_function_of(ctx, square_plus, &user, NULL);
    co_value    *x = vector(ctx, 1, 3), *dx;

    for (int i = 0; i < 2; ++i) {
        co_tape_begin(ctx);
        co_watch(ctx, x);
        dx = co_gradient(ctx, co_call(ctx, f, co_args(ctx, x, x)), x);
        CO_EXPECT_CLOSE(element(ctx, dx, 2), 7, 0);
    }
    CO_EXPECT_INT(user.calls, 1);
    CO_EXPECT_OK(ctx);
}

/* --- training --- */

typedef struct model {
    co_value     *w, *b;
    co_optimizer *optimizer;
    atomic_int    calls; /* by replicas at the same time */
} model;

static co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *x = co_at(ctx, args, 0), *loss;

    ++m->calls;
    co_tape_begin(ctx);
    loss = co_average_loss(
        ctx, co_reduce_sum(ctx, co_square(ctx, co_add(ctx, co_matmul(ctx, x, m->w), m->b)),
                           CO_AXES(1), false));
    co_minimize(ctx, m->optimizer, loss);
    return loss;
}

static void
make_model(co_context *ctx, co_strategy *strategy, model *m)
{
    co_adam_options adam = CO_ADAM_OPTIONS_INIT;

    CO_SCOPE(ctx, strategy) {
        m->w = co_variable(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3)), NULL);
        m->b = co_variable(ctx, vector(ctx, 0.5f, 3), NULL);
        m->optimizer = co_adam(ctx, &adam);
    }
    m->calls = 0;
}

static co_value *
batch(co_context *ctx, int rows)
{
    float   data[32];
    int64_t dims[2] = { rows, 2 };

    for (int i = 0; i < 2 * rows; ++i)
        data[i] = 0.125f * (float)(i % 7) - 0.25f;
    return co_tensor(ctx, CO_FLOAT32, dims, 2, data);
}

/* Steps with batches of different sizes, captured or not: the variables end with the same bits. */
static void
compare_training(co_context *ctx, co_strategy *strategy, int n)
{
    model               eager, captured;
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_dataset         *input = co_dataset_from_tensor_slices(ctx, batch(ctx, 8));
    co_function        *f;

    make_model(ctx, strategy, &eager);
    make_model(ctx, strategy, &captured);
    input = co_distribute_dataset(ctx, strategy, co_dataset_batch(ctx, input, 4, false), NULL);
    options.signature = co_args(ctx, co_element_spec(ctx, input));
    f = co_function_of(ctx, train_step, &captured, &options);
    for (int step = 0; step < 6; ++step) {
        co_value *parts[8], *x, *one, *other;

        for (int i = 0; i < n; ++i)
            parts[i] = batch(ctx, 1 + (step + i) % 4);
        x = n > 1 ? co_per_replica_value(ctx, parts, (size_t)n) : parts[0];
        one = co_run(ctx, strategy, train_step, co_args(ctx, x), &eager);
        other = co_run(ctx, strategy, co_captured, co_args(ctx, x), f);
        CO_EXPECT_OK(ctx);
        CO_REQUIRE(one != NULL && other != NULL);
        for (int i = 0; i < n; ++i)
            expect_same_bits(ctx, n > 1 ? co_at(ctx, one, (size_t)i) : one,
                             n > 1 ? co_at(ctx, other, (size_t)i) : other);
    }
    CO_SCOPE(ctx, strategy) {
        expect_same_bits(ctx, co_variable_read(ctx, eager.w), co_variable_read(ctx, captured.w));
        expect_same_bits(ctx, co_variable_read(ctx, eager.b), co_variable_read(ctx, captured.b));
    }
    CO_EXPECT_INT(captured.calls, n);
    CO_EXPECT_OK(ctx);
}

CO_TEST(a_captured_step_trains_with_the_bits_of_an_eager_one, "FN-5 FN-9")
{
    compare_training(ctx, co_one_device_strategy(ctx, "/cpu:0"), 1);
}

CO_TEST_WITH(a_captured_step_trains_on_replicas, "FN-5 FN-9 S-RUN-12", "cpus=2")
{
    const char *const devices[] = { "/cpu:0", "/cpu:1" };

    compare_training(ctx, co_mirrored_strategy(ctx, devices, 2, NULL), 2);
}

/* --- corners --- */

static co_value *
wrapped(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    return co_add(ctx, co_call(ctx, user, co_args(ctx, x, x)), co_int(ctx, 1));
}

CO_TEST(a_function_inside_another_is_part_of_its_program, "FN-1")
{
    counted      user = { 0, NULL };
    co_function *inner = co_function_of(ctx, square_plus, &user, NULL);
    co_function *outer = co_function_of(ctx, wrapped, inner, NULL);
    char         text[600];
    size_t       length;

    for (int i = 0; i < 3; ++i)
        CO_EXPECT_CLOSE(element(ctx, co_call(ctx, outer, co_args(ctx, vector(ctx, 2, 3))), 1), 13,
                        0);
    CO_EXPECT_INT(user.calls, 1);
    co_call(ctx, inner, co_args(ctx, vector(ctx, 2, 3), vector(ctx, 2, 3)));
    CO_EXPECT_INT(user.calls, 1);
    length = co_function_print(ctx, outer, text, sizeof(text));
    CO_EXPECT_INT(length, strlen(text));
    CO_EXPECT_CONTAINS(text, "args (%0)\n%1 = square(%0)  float32 [3]");
    CO_EXPECT_CONTAINS(text, "%2 = add(%1, %0)");
    CO_EXPECT_CONTAINS(text, "return %3\n");
    CO_EXPECT_OK(ctx);
}

static co_value *
scaled(co_context *ctx, co_value *args, void *variable)
{
    const int64_t n = 3;

    return co_mul(ctx, co_add(ctx, co_at(ctx, args, 0), co_fill(ctx, &n, 1, co_float(ctx, 2))),
                  variable);
}

CO_TEST(a_program_is_a_picture_for_graphviz, "")
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_function        *f;
    char                text[2000], few[10];
    size_t              length;

    options.name = "a \"name\" \\";
    f = co_function_of(ctx, scaled, co_variable(ctx, vector(ctx, 2, 3), &options), NULL);
    CO_EXPECT_INT(co_function_dot(ctx, f, text, sizeof(text)), 0);
    co_call(ctx, f, co_args(ctx, vector(ctx, 2, 3)));
    length = co_function_dot(ctx, f, text, sizeof(text));
    CO_EXPECT_INT(length, strlen(text));
    CO_EXPECT_CONTAINS(text, "digraph function {\n");
    CO_EXPECT_CONTAINS(text, "  a0 [shape=ellipse, label=\"argument 0\\nfloat32 [3]\"];\n");
    CO_EXPECT_CONTAINS(text, "[shape=cylinder, label=\"a \\\"name\\\" \\\\\"];\n");
    CO_EXPECT_CONTAINS(text, "  a0 -> c1;\n");
    CO_EXPECT_CONTAINS(text, "  c1 -> c2;\n");
    CO_EXPECT_CONTAINS(text, "  c2 -> result;\n}\n");
    CO_EXPECT_INT(co_function_dot(ctx, f, few, sizeof(few)), length);
    CO_EXPECT_STR(few, "digraph f");
    CO_EXPECT_INT(co_function_dot(ctx, f, NULL, 100), length);
    CO_EXPECT_OK(ctx);
    co_function_dot(ctx, NULL, text, sizeof(text));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "function");
}

/* Keeps its argument for later. */
static co_value *
leak_argument(co_context *ctx, co_value *args, void *user)
{
    co_value **kept = user;

    *kept = co_at(ctx, args, 0);
    co_keep(ctx, *kept);
    return co_neg(ctx, *kept);
}

static co_value *
use_kept(co_context *ctx, co_value *args, void *user)
{
    co_value **kept = user;

    return co_add(ctx, co_at(ctx, args, 0), *kept);
}

CO_TEST(a_symbolic_tensor_belongs_to_its_function, "FN-13")
{
    co_value    *kept = NULL;
    co_function *f = co_function_of(ctx, leak_argument, &kept, NULL);
    co_function *g = co_function_of(ctx, use_kept, &kept, NULL);

    CO_EXPECT_CLOSE(element(ctx, co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2))), 1), -2, 0);
    CO_EXPECT_NULL(co_neg(ctx, kept));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "captured function that made it");
    CO_EXPECT_NULL(co_call(ctx, g, co_args(ctx, vector(ctx, 1, 2))));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "belongs to another captured function");
    co_release(ctx, kept);
}

static co_value *
call_itself(co_context *ctx, co_value *args, void *user)
{
    return co_call(ctx, *(co_function **)user, args);
}

CO_TEST(a_function_that_calls_itself_without_end_is_refused, "")
{
    co_function *f = NULL;

    f = co_function_of(ctx, call_itself, &f, NULL);
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2))));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "a captured function that calls itself");
}

static co_value *
divide_index(co_context *ctx, co_value *args, void *user)
{
    counted  *c = user;
    co_value *x = co_at(ctx, args, 0);

    co_assign_add(ctx, c->variable, co_int(ctx, 1));
    x = co_gather(ctx, x, co_at(ctx, args, 1), 0, 0);
    co_assign_add(ctx, c->variable, co_int(ctx, 10));
    return x;
}

CO_TEST(an_error_leaves_what_came_before_it, "FN-10")
{
    counted      user = { 0, co_variable(ctx, co_scalar_float(ctx, 0), NULL) };
    co_function *f = co_function_of(ctx, divide_index, &user, NULL);

    co_call(ctx, f, co_args(ctx, vector(ctx, 1, 3), co_scalar_int32(ctx, 1)));
    CO_EXPECT_CLOSE(co_item_float(ctx, user.variable), 11, 0);
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, vector(ctx, 1, 3), co_scalar_int32(ctx, 5))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
    CO_EXPECT_CLOSE(co_item_float(ctx, user.variable), 12, 0);
    co_call(ctx, f, co_args(ctx, vector(ctx, 1, 3), co_scalar_int32(ctx, 2)));
    CO_EXPECT_CLOSE(co_item_float(ctx, user.variable), 23, 0);
    CO_EXPECT_OK(ctx);
}

CO_TEST(shapes_that_differ_become_unknown_when_they_may, "FN-4")
{
    counted             user = { 0, NULL };
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function        *f;

    options.relax_shapes = true;
    f = co_function_of(ctx, square_plus, &user, &options);
    for (int n = 1; n < 8; ++n)
        co_call(ctx, f, co_args(ctx, vector(ctx, 1, n), vector(ctx, 1, n)));
    CO_EXPECT_INT(user.calls, 2);
    CO_EXPECT_OK(ctx);
}

CO_TEST(programs_are_limited, "")
{
    counted             user = { 0, NULL };
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function_stats   stats = CO_FUNCTION_STATS_INIT;
    co_function        *f;

    options.max_programs = 3;
    f = co_function_of(ctx, square_plus, &user, &options);
    for (int n = 0; n < 10; ++n)
        co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2), co_int(ctx, n)));
    co_function_get_stats(ctx, f, &stats);
    CO_EXPECT_INT(stats.captures, 10);
    CO_EXPECT_INT(stats.programs, 3);
    CO_EXPECT_INT(stats.replays, 10);
    CO_EXPECT_OK(ctx);
}

static bool
capture_and_call(co_context *ctx)
{
    co_function *f = co_function_of(ctx, with_gradient, NULL, NULL);

    return co_call(ctx, f, co_args(ctx, vector(ctx, 0.5f, 3))) != NULL &&
           co_call(ctx, f, co_args(ctx, vector(ctx, 0.5f, 3))) != NULL;
}

CO_TEST_BARE(want_of_memory_while_capturing_is_an_error, "")
{
    (void)ctx;
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, capture_and_call);
}

/* Multiplies by a number in memory of its own. */
static co_value *
scale(co_context *ctx, co_value *args, void *user)
{
    const double *factor = user;
    co_value     *x = co_at(ctx, args, 0);

    return *factor > 10 ? co_neg(ctx, x) : co_mul(ctx, x, co_float(ctx, *factor));
}

CO_TEST(a_function_that_depends_on_its_own_memory_is_found, "FN-7")
{
    double              factor = 2;
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function        *f;

    options.name = "scale";
    options.check = true;
    f = co_function_of(ctx, scale, &factor, &options);
    for (int i = 0; i < 3; ++i)
        CO_EXPECT_CLOSE(element(ctx, co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2))), 1), 4, 0);
    factor = 3;
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2))));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR,
                    "call 0 of the captured function 'scale' has other operands");
    factor = 11;
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2))));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "is another call: mul at");
    factor = 2;
    CO_EXPECT_CLOSE(element(ctx, co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2))), 1), 4, 0);
}

/* --- what a check finds --- */

/* A function that does one thing when it is captured and another when it is checked. */
typedef struct changing {
    const char  *error;
    co_fn        fn;
    co_strategy *strategy;
    co_value    *v;
    bool         is_other;
} changing;

static co_value *
other_result(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y = co_neg(ctx, x);

    return ((changing *)user)->is_other ? x : y;
}

static co_value *
other_texts(co_context *ctx, co_value *args, void *user)
{
    co_value *text = co_string(ctx, ((changing *)user)->is_other ? "a" : "b");

    return co_args(ctx, co_neg(ctx, co_at(ctx, args, 0)), co_to_tensor(ctx, text, CO_STRING));
}

static co_value *
other_verb(co_context *ctx, co_value *args, void *user)
{
    const changing *c = user;
    co_value       *x = co_at(ctx, args, 0);

    return c->is_other ? co_assign_sub(ctx, c->v, x) : co_assign_add(ctx, c->v, x);
}

static co_value *
other_seed(co_context *ctx, co_value *args, void *user)
{
    co_set_seed(ctx, ((changing *)user)->is_other ? 1 : 2);
    return co_neg(ctx, co_at(ctx, args, 0));
}

static co_value *
other_tape(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *dx;

    if (((changing *)user)->is_other)
        co_tape_begin_persistent(ctx);
    else
        co_tape_begin(ctx);
    co_watch(ctx, x);
    dx = co_gradient(ctx, co_square(ctx, x), x);
    if (((changing *)user)->is_other)
        co_tape_end(ctx);
    return dx;
}

static co_value *
other_message(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    co_assert(ctx, co_less(ctx, x, co_float(ctx, 100)),
              ((changing *)user)->is_other ? "small" : "large");
    return x;
}

static co_value *
other_device(co_context *ctx, co_value *args, void *user)
{
    co_value *y = NULL;

    CO_DEVICE(ctx, ((changing *)user)->is_other ? "/cpu:0" : "/cpu:1")
        y = co_neg(ctx, co_at(ctx, args, 0));
    return y;
}

static co_value *
summing_step(co_context *ctx, co_value *args, void *user)
{
    return co_all_reduce(ctx, ((changing *)user)->is_other ? CO_REDUCE_MEAN : CO_REDUCE_SUM,
                         co_at(ctx, args, 0));
}

static co_value *
other_collective(co_context *ctx, co_value *args, void *user)
{
    return co_run(ctx, ((changing *)user)->strategy, summing_step, args, user);
}

static co_value *
plain_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 1 + co_replica_id(ctx)));
}

static co_value *
other_reduction(co_context *ctx, co_value *args, void *user)
{
    const changing *c = user;
    co_value       *y = co_run(ctx, c->strategy, plain_step, args, NULL);

    return co_reduce(ctx, c->strategy, c->is_other ? CO_REDUCE_MEAN : CO_REDUCE_SUM, y,
                     CO_ALL_AXES);
}

static co_value *
merged_mean(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    return co_reduce(ctx, strategy, ((changing *)user)->is_other ? CO_REDUCE_MEAN : CO_REDUCE_SUM,
                     args, CO_ALL_AXES);
}

static co_value *
merging_step(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merged_mean, plain_step(ctx, args, NULL), user);
}

static co_value *
other_merge(co_context *ctx, co_value *args, void *user)
{
    return co_run(ctx, ((changing *)user)->strategy, merging_step, args, user);
}

static co_value *
changed_update(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    return ((changing *)user)->is_other ? co_assign(ctx, variable, args)
                                        : co_assign_add(ctx, variable, args);
}

static co_value *
other_update(co_context *ctx, co_value *args, void *user)
{
    const changing *c = user;
    co_value       *y = NULL;

    CO_SCOPE(ctx, c->strategy)
        y = co_update(ctx, c->strategy, c->v, changed_update, co_at(ctx, args, 0), user, NULL);
    return y;
}

CO_TEST_WITH(a_check_finds_every_change_of_a_function, "FN-7", "cpus=2")
{
    static const changing all[] = {
        { "another result", other_result, NULL, NULL, false },
        { "another result", other_texts, NULL, NULL, false },
        { "other attributes", other_verb, NULL, NULL, false },
        { "other attributes", other_seed, NULL, NULL, false },
        { "other attributes", other_tape, NULL, NULL, false },
        { "other attributes", other_message, NULL, NULL, false },
        { "another device", other_device, NULL, NULL, false },
        { "'step' has other attributes", other_collective, NULL, NULL, false },
        { "other attributes", other_reduction, NULL, NULL, false },
        { "'merge function' has other attributes", other_merge, NULL, NULL, false },
        { "'update function' has other attributes", other_update, NULL, NULL, false }
    };
    const char *const   devices[] = { "/cpu:0", "/cpu:1" };
    co_strategy        *strategy = co_mirrored_strategy(ctx, devices, 2, NULL);
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;

    options.check = true;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
        changing     c = all[i];
        co_function *f = co_function_of(ctx, c.fn, &c, &options);
        co_value    *args = co_args(ctx, vector(ctx, 1, 2));

        c.strategy = strategy;
        CO_SCOPE(ctx, strategy)
            c.v = co_variable(ctx, vector(ctx, 0, 2), NULL);
        for (int k = 0; k < 3; ++k)
            CO_EXPECT_NOT_NULL(co_call(ctx, f, args));
        CO_EXPECT_OK(ctx);
        c.is_other = true;
        CO_EXPECT_NULL(co_call(ctx, f, args));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, c.error);
    }
}

CO_TEST_WITH(a_setting_checks_all_functions, "FN-7", "check_functions=yes")
{
    double       factor = 2;
    co_function *f = co_function_of(ctx, scale, &factor, NULL);

    co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2)));
    CO_EXPECT_OK(ctx);
    factor = 3;
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, vector(ctx, 1, 2))));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "not on other memory");
}

static co_value *
set_and_leave(co_context *ctx, co_value *args, void *user)
{
    co_experimental_set_strategy(ctx, user);
    return co_at(ctx, args, 0);
}

CO_TEST_WITH(a_captured_function_may_not_leave_a_strategy_set, "FN-10", "cpus=2")
{
    const char *const devices[] = { "/cpu:0", "/cpu:1" };
    co_strategy      *strategy = co_mirrored_strategy(ctx, devices, 2, NULL);
    co_function      *f = co_function_of(ctx, set_and_leave, strategy, NULL);

    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, vector(ctx, 5, 2))));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "leaves it set");
    CO_EXPECT_FALSE(co_has_strategy(ctx));
}
