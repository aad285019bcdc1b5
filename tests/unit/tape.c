/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape: what is recorded, what a gradient is of, when a tape ends, gradients of gradients. The
 * gradient of each operator is tested with the operators.
 */
#include "ops/engine/op.h"
#include "test.h"

static int64_t
live(co_context *ctx)
{
    co_memory_stats stats = CO_MEMORY_STATS_INIT;

    co_get_memory_stats(ctx, &stats);
    return stats.live_values;
}

static double
number(co_context *ctx, co_value *value)
{
    return co_item_float(ctx, value);
}

static co_value *
scalar(co_context *ctx, double value)
{
    return co_scalar_double(ctx, value);
}

static co_value *
vector(co_context *ctx, double a, double b)
{
    return co_tensor(ctx, CO_FLOAT64, CO_SHAPE(2), (const double[]){ a, b });
}

CO_TEST(a_gradient_follows_what_was_recorded, "")
{
    co_value *x = scalar(ctx, 3);

    co_tape_begin(ctx);
    co_watch(ctx, x);
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, co_square(ctx, x), x)), 6, 0);
    /* The tape is used up. */
    CO_EXPECT_NULL(co_gradient(ctx, x, x));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "co_tape_begin");
    co_tape_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open tape");
}

CO_TEST(only_what_depends_on_watched_values_is_recorded, "")
{
    co_value *x = scalar(ctx, 3), *y = scalar(ctx, 5), *before, *unwatched, *z;

    before = co_mul(ctx, x, x); /* before the tape */
    co_tape_begin_persistent(ctx);
    unwatched = co_mul(ctx, x, y); /* before the watch */
    co_watch(ctx, x);
    z = co_mul(ctx, co_mul(ctx, x, y), co_add(ctx, before, unwatched));
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, z, x)), 5 * (9 + 15), 1e-12);
    CO_EXPECT_INT(co_value_kind(co_gradient(ctx, z, y)), CO_KIND_NONE);
    CO_EXPECT_INT(co_value_kind(co_gradient(ctx, before, x)), CO_KIND_NONE);
    CO_EXPECT_INT(co_value_kind(co_gradient(ctx, unwatched, x)), CO_KIND_NONE);
    co_tape_end(ctx);
}

CO_TEST(several_targets_are_summed, "")
{
    co_value *x = scalar(ctx, 2), *y = scalar(ctx, 3), *targets[2], *sources[3], *grads;

    co_tape_begin(ctx);
    co_watch(ctx, co_args(ctx, x, y));
    targets[0] = co_mul(ctx, x, y);
    targets[1] = co_square(ctx, x);
    sources[0] = y;
    sources[1] = x;
    sources[2] = x; /* twice is fine */
    grads = co_gradient(ctx, co_list(ctx, targets, 2), co_tuple(ctx, sources, 3));
    CO_EXPECT_INT(co_value_kind(grads), CO_KIND_TUPLE);
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 0)), 2, 0);
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 1)), 3 + 4, 0);
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 2)), 3 + 4, 0);
}

CO_TEST(gradients_have_the_structure_of_sources, "GEN-NEST-1")
{
    static const char *const keys[] = { "w", "b" };
    co_value                *x = scalar(ctx, 2), *items[2] = { x, co_list(ctx, &x, 1) };
    co_value                *sources = co_dict(ctx, keys, items, 2), *grads;

    co_tape_begin(ctx);
    co_watch(ctx, sources);
    grads = co_gradient(ctx, co_exp(ctx, x), sources);
    CO_EXPECT_CODE(co_assert_same_structure(ctx, grads, sources), CO_OK);
    CO_EXPECT_CLOSE(number(ctx, co_get(ctx, grads, "w")), exp(2), 1e-12);
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, co_get(ctx, grads, "b"), 0)), exp(2), 1e-12);
    co_tape_begin(ctx); /* no target, no source */
    CO_EXPECT_INT(co_num_items(ctx, co_gradient(ctx, co_no_args(ctx), co_no_args(ctx))), 0);
}

CO_TEST(a_target_may_be_a_source_or_on_the_way, "")
{
    co_value *x = scalar(ctx, 2), *h, *y, *sources[3], *grads;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    h = co_square(ctx, x);
    y = co_square(ctx, h);
    sources[0] = x;
    sources[1] = h;
    sources[2] = y;
    grads = co_gradient(ctx, y, co_list(ctx, sources, 3));
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 0)), 32, 0);
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 1)), 8, 0);
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 2)), 1, 0);
}

CO_TEST(a_persistent_tape_serves_any_number_of_gradients, "")
{
    co_value *x = scalar(ctx, 3), *y, *z;

    co_tape_begin_persistent(ctx);
    co_watch(ctx, x);
    y = co_square(ctx, x);
    z = co_mul(ctx, y, x);
    for (int i = 0; i < 3; ++i) {
        CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, y, x)), 6, 0);
        CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, z, x)), 27, 0);
        CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, z, y)), 3, 0);
    }
    y = co_mul(ctx, z, x); /* it goes on recording */
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, y, x)), 4 * 27, 0);
    co_tape_end(ctx);
    CO_EXPECT_NULL(co_gradient(ctx, y, x));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open tape");
}

CO_TEST(gradients_do_not_pass_stop_gradient, "")
{
    co_value *x = scalar(ctx, 3), *y;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, x, co_stop_gradient(ctx, co_square(ctx, x)));
    CO_EXPECT_CLOSE(number(ctx, y), 27, 0);
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, y, x)), 9, 0);
}

CO_TEST(unconnected_sources_give_none_or_zeros, "")
{
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;
    co_value *x = vector(ctx, 1, 2), *other = vector(ctx, 3, 4), *never = vector(ctx, 5, 6);
    co_value *sources[3] = { x, other, never }, *grads;

    co_tape_begin_persistent(ctx);
    co_watch(ctx, x);
    co_watch(ctx, other);
    grads = co_gradient(ctx, co_square(ctx, x), co_list(ctx, sources, 3));
    CO_EXPECT_INT(co_value_kind(co_at(ctx, grads, 0)), CO_KIND_TENSOR);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, grads, 1)), CO_KIND_NONE);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, grads, 2)), CO_KIND_NONE);
    options.unconnected_zero = true;
    grads = co_gradient_with(ctx, co_square(ctx, x), co_list(ctx, sources, 3), &options);
    for (size_t i = 1; i < 3; ++i) {
        CO_EXPECT_INT(co_value_dtype(ctx, co_at(ctx, grads, i)), CO_FLOAT64);
        CO_EXPECT_BYTES(co_value_data(ctx, co_at(ctx, grads, i)), ((const double[]){ 0, 0 }), 16);
    }
    co_tape_end(ctx);
}

CO_TEST(output_gradients_take_the_place_of_ones, "")
{
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;
    co_value           *x = vector(ctx, 1, 2), *y, *pair[2], *given[2];

    co_tape_begin_persistent(ctx);
    co_watch(ctx, x);
    y = co_square(ctx, x);
    options.output_gradients = vector(ctx, 10, 100);
    CO_EXPECT_BYTES(co_value_data(ctx, co_gradient_with(ctx, y, x, &options)),
                    ((const double[]){ 20, 400 }), 16);
    /* Host numbers and lists convert; none means ones. */
    given[0] = co_int(ctx, 1);
    given[1] = co_float(ctx, 2);
    options.output_gradients = co_list(ctx, given, 2);
    CO_EXPECT_NULL(co_gradient_with(ctx, y, x, &options)); /* a list is a structure of two */
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "structures differ");
    pair[0] = y;
    pair[1] = co_reduce_sum(ctx, y, CO_ALL_AXES, false);
    given[0] = co_none(ctx);
    given[1] = co_int(ctx, 3);
    options.output_gradients = co_list(ctx, given, 2);
    CO_EXPECT_BYTES(co_value_data(ctx, co_gradient_with(ctx, co_list(ctx, pair, 2), x, &options)),
                    ((const double[]){ 2 + 6, 4 + 12 }), 16);
    options.output_gradients = scalar(ctx, 1);
    CO_EXPECT_NULL(co_gradient_with(ctx, y, x, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                    "output gradient 0 is float64 []; its target is float64 [2]");
    options.output_gradients = co_cast(ctx, vector(ctx, 1, 1), CO_FLOAT32);
    CO_EXPECT_NULL(co_gradient_with(ctx, y, x, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "float32 [2]");
    options.struct_size = 0;
    CO_EXPECT_NULL(co_gradient_with(ctx, y, x, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size");
    co_tape_end(ctx);
}

/* --- gradients of gradients --- */

/* sin and cosine are not operators here; this has derivatives of all orders that are easy to know:
 * exp(2x). */
static co_value *
exp2x(co_context *ctx, co_value *x)
{
    return co_exp(ctx, co_mul(ctx, x, co_int(ctx, 2)));
}

/* The n-th derivative by n nested tapes. */
static co_value *
derivative(co_context *ctx, co_value *x, int order)
{
    co_value *y;

    if (order == 0)
        return exp2x(ctx, x);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = derivative(ctx, x, order - 1);
    return co_gradient(ctx, y, x);
}

CO_TEST(nested_tapes_give_derivatives_of_any_order, "")
{
    co_value *x = scalar(ctx, 0.5);

    for (int order = 0; order <= 6; ++order)
        CO_EXPECT_CLOSE(number(ctx, derivative(ctx, x, order)), pow(2, order) * exp(1), 1e-9);
    CO_EXPECT_OK(ctx);
}

/* tanh(x w) softly summed: everything that a small network has. */
static co_value *
network(co_context *ctx, co_value *x, co_value *w)
{
    co_value *h = co_tanh(ctx, co_matmul(ctx, x, w));
    co_value *p = co_softmax(ctx, co_mul(ctx, h, co_sigmoid(ctx, h)), -1);

    return co_reduce_mean(ctx, co_mul(ctx, p, co_log(ctx, p)), CO_ALL_AXES, false);
}

static co_value *
network_gradient(co_context *ctx, co_value *x, co_value *w)
{
    co_tape_begin(ctx);
    co_watch(ctx, w);
    return co_gradient(ctx, network(ctx, x, w), w);
}

/* sum(g * d) for the gradient g at w moved by `by` in element `at`. */
static double
gradient_at(co_context *ctx, co_value *x, const double *w, int at, double by, co_value *d)
{
    double moved[6], result = NAN;

    memcpy(moved, w, sizeof(moved));
    moved[at] += by;
    CO_BLOCK(ctx) {
        co_value *g = network_gradient(ctx, x, co_tensor(ctx, CO_FLOAT64, CO_SHAPE(2, 3), moved));

        result = number(ctx, co_reduce_sum(ctx, co_mul(ctx, g, d), CO_ALL_AXES, false));
    }
    return result;
}

CO_TEST(gradients_of_gradients_agree_with_differences, "")
{
    const double w0[6] = { 0.3, -0.7, 0.2, 0.9, -0.4, 0.5 }, step = 1e-5;
    co_value    *x = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(2, 2), (const double[]){ 1, -2, 0.5, 3 });
    co_value    *w = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(2, 3), w0);
    co_value    *d = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(2, 3),
                               (const double[]){ 1, 2, -1, 3, 0.5, -2 });
    co_value    *second;

    co_tape_begin(ctx);
    co_watch(ctx, w);
    second = co_gradient(
        ctx, co_reduce_sum(ctx, co_mul(ctx, network_gradient(ctx, x, w), d), CO_ALL_AXES, false),
        w);
    for (int i = 0; i < 6; ++i) {
        double want = (gradient_at(ctx, x, w0, i, step, d) - gradient_at(ctx, x, w0, i, -step, d)) /
                      (2 * step);

        CO_EXPECT_CLOSE(((const double *)co_value_data(ctx, second))[i], want, 1e-8);
    }
}

/* What a backward step finds in a record leads back to the variable, or to the tensor on the other
 * device. */
CO_TEST_WITH(gradients_of_gradients_reach_variables_and_other_devices, "", "cpus=2")
{
    co_value *v = co_variable(ctx, scalar(ctx, 3), NULL), *x = scalar(ctx, 5), *first, *pair[2];
    co_value *grads;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_tape_begin(ctx);
    first = co_gradient(ctx, co_mul(ctx, co_square(ctx, v), x), x); /* v^2 */
    pair[0] = v;
    pair[1] = x;
    grads = co_gradient(ctx, co_mul(ctx, first, x), co_list(ctx, pair, 2)); /* of v^2 x */
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 0)), 30, 0);
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 1)), 9, 0);
    co_tape_begin_persistent(ctx);
    first = co_gradient(ctx, co_mul(ctx, co_square(ctx, v), v), v);
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, first, v)), 18, 0);
    co_tape_end(ctx);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_tape_begin(ctx);
    CO_DEVICE(ctx, "cpu:1") {
        first = co_mul(ctx, co_square(ctx, x), x);
    }
    first = co_gradient(ctx, first, x); /* 3 x^2 */
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, first, x)), 30, 0);
}

CO_TEST(a_persistent_tape_differentiates_its_own_gradients, "")
{
    co_value *x = scalar(ctx, 2), *first, *second;

    co_tape_begin_persistent(ctx);
    co_watch(ctx, x);
    first = co_gradient(ctx, co_mul(ctx, co_square(ctx, x), x), x);
    second = co_gradient(ctx, first, x);
    CO_EXPECT_CLOSE(number(ctx, first), 12, 0);
    CO_EXPECT_CLOSE(number(ctx, second), 12, 0);
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, second, x)), 6, 0);
    co_tape_end(ctx);
}

CO_TEST(an_inner_tape_that_is_used_up_leaves_the_outer_one, "")
{
    co_value *x = scalar(ctx, 3), *inner, *y;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_tape_begin(ctx);
    inner = co_gradient(ctx, co_mul(ctx, co_square(ctx, x), x), x); /* 3 x^2 */
    y = co_mul(ctx, inner, x);                                      /* 3 x^3 */
    co_tape_begin(ctx);
    co_tape_end(ctx);
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, y, x)), 81, 1e-12);
}

/* --- variables --- */

CO_TEST(trainable_variables_are_watched_by_being_used, "")
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = co_variable(ctx, scalar(ctx, 3), NULL), *fixed, *sources[2], *grads;

    options.trainable = CO_TRAINABLE_NO;
    fixed = co_variable(ctx, scalar(ctx, 5), &options);
    sources[0] = v;
    sources[1] = fixed;
    co_tape_begin(ctx);
    grads = co_gradient(ctx, co_mul(ctx, co_square(ctx, v), fixed), co_list(ctx, sources, 2));
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 0)), 30, 0);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, grads, 1)), CO_KIND_NONE);
    co_tape_begin(ctx);
    co_watch(ctx, fixed);
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, co_square(ctx, fixed), fixed)), 10, 0);
}

/* A gradient belongs to the value that was read, whatever is assigned later. */
CO_TEST(assigning_does_not_change_what_was_recorded, "")
{
    co_value *v = co_variable(ctx, scalar(ctx, 3), NULL), *y;

    co_tape_begin(ctx);
    y = co_square(ctx, v);
    co_assign(ctx, v, scalar(ctx, 100));
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, y, v)), 6, 0);
    /* Assigning something recorded makes the variable no part of what made that. */
    co_tape_begin_persistent(ctx);
    co_assign(ctx, v, co_square(ctx, v));
    y = co_mul(ctx, v, co_int(ctx, 7));
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, y, v)), 7, 0);
    co_tape_end(ctx);
}

CO_TEST_WITH(every_way_to_read_passes_gradients, "", "cpus=2")
{
    co_value *v = co_variable(ctx, scalar(ctx, 3), NULL),
             *w = co_variable(ctx, scalar(ctx, 4), NULL);
    co_value *pair[2] = { v, w }, *mixed[3] = { v, co_float(ctx, 1), w }, *grads, *nested[2];

    co_tape_begin(ctx);
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, co_square(ctx, co_variable_read(ctx, v)), v)), 6,
                    0);
    co_tape_begin(ctx);
    CO_EXPECT_CLOSE(
        number(ctx, co_gradient(ctx, co_square(ctx, co_to_tensor(ctx, v, CO_FLOAT64)), v)), 6, 0);
    co_tape_begin(ctx);
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, co_square(ctx, co_copy_to(ctx, v, "cpu:1")), v)),
                    6, 0);
    /* Lists of variables and numbers, given to an operator or converted first. */
    co_tape_begin(ctx);
    grads = co_gradient(ctx, co_square(ctx, co_list(ctx, mixed, 3)), co_list(ctx, pair, 2));
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 0)), 6, 0);
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 1)), 8, 0);
    co_tape_begin(ctx);
    nested[0] = co_list(ctx, pair, 2);
    nested[1] = co_tuple(ctx, pair, 2);
    grads = co_gradient(ctx, co_to_tensor(ctx, co_list(ctx, nested, 2), CO_DTYPE_NONE),
                        co_list(ctx, pair, 2));
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 1)), 2, 0);
}

CO_TEST(copies_and_lists_of_tensors_pass_gradients, "")
{
    co_value *x = scalar(ctx, 3), *y = scalar(ctx, 5), *pair[2] = { x, y }, *grads;

    co_tape_begin(ctx);
    co_watch(ctx, co_list(ctx, pair, 2));
    grads = co_gradient(ctx,
                        co_mul(ctx, co_to_tensor(ctx, co_list(ctx, pair, 2), CO_DTYPE_NONE),
                               vector(ctx, 10, 100)),
                        co_list(ctx, pair, 2));
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 0)), 10, 0);
    CO_EXPECT_CLOSE(number(ctx, co_at(ctx, grads, 1)), 100, 0);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, co_copy_to(ctx, co_square(ctx, x), ""), x)), 6, 0);
}

/* --- slices --- */

CO_TEST(gradients_of_rows_are_slices_that_add_up, "")
{
    co_value *table = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(3, 2),
                                (const double[]){ 1, 2, 3, 4, 5, 6 });
    co_value *first = co_tensor(ctx, CO_INT32, CO_SHAPE(2), (const int32_t[]){ 2, 0 });
    co_value *second = co_tensor(ctx, CO_INT32, CO_SHAPE(1), (const int32_t[]){ 2 });
    co_value *a, *b, *g, *pair[2];

    co_tape_begin_persistent(ctx);
    co_watch(ctx, table);
    a = co_gather(ctx, table, first, 0, 0);
    b = co_gather(ctx, table, second, 0, 0);
    g = co_gradient(ctx, a, table);
    CO_EXPECT_INT(co_value_kind(g), CO_KIND_SLICES);
    pair[0] = a;
    pair[1] = b;
    g = co_gradient(ctx, co_list(ctx, pair, 2),
                    table); /* rows of both, in some order, not merged */
    CO_EXPECT_INT(co_value_kind(g), CO_KIND_SLICES);
    CO_EXPECT_INT(co_value_dim(ctx, co_slices_indices(ctx, g), 0), 3);
    CO_EXPECT_BYTES(co_value_data(ctx, co_to_tensor(ctx, g, CO_DTYPE_NONE)),
                    ((const double[]){ 1, 1, 0, 0, 2, 2 }), 48);
    pair[1] = co_mul(ctx, table, co_int(ctx, 10)); /* with a dense one: dense */
    g = co_gradient(ctx, co_list(ctx, pair, 2), table);
    CO_EXPECT_INT(co_value_kind(g), CO_KIND_TENSOR);
    CO_EXPECT_BYTES(co_value_data(ctx, g), ((const double[]){ 11, 11, 10, 10, 11, 11 }), 48);
    co_tape_end(ctx);
}

/* --- when tapes end --- */

CO_TEST(a_tape_ends_with_the_block_it_was_begun_in, "")
{
    co_value *x = scalar(ctx, 3), *y = NULL;

    CO_BLOCK(ctx) {
        co_tape_begin(ctx);
        co_watch(ctx, x);
        co_tape_begin_persistent(ctx);
    }
    CO_EXPECT_NULL(co_gradient(ctx, x, x));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open tape");
    /* One of an outer block lives on. */
    co_tape_begin(ctx);
    co_watch(ctx, x);
    CO_BLOCK(ctx) {
        co_tape_begin(ctx);
        y = co_escape(ctx, co_square(ctx, x));
    }
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, y, x)), 6, 0);
    /* The tape of the outer block is used up inside the inner one, where another begins: that one
     * ends with it. */
    co_tape_begin(ctx);
    CO_BLOCK(ctx) {
        co_watch(ctx, x);
        co_gradient(ctx, co_square(ctx, x), x);
        co_tape_begin(ctx);
    }
    CO_EXPECT_NULL(co_gradient(ctx, x, x));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open tape");
}

/* A loop that fails now and then and clears the error keeps nothing. */
CO_TEST(a_failed_step_leaves_no_tape_behind, "GEN-ERR-1")
{
    co_value *x = scalar(ctx, 3);
    int64_t   before = 0;

    for (int i = 0; i < 50; ++i) {
        if (i == 10)
            before = live(ctx);
        CO_BLOCK(ctx) {
            co_value *y;

            co_tape_begin(ctx);
            co_watch(ctx, x);
            y = i % 3 == 0 ? co_matmul(ctx, x, x) : co_square(ctx, x); /* a matrix is missing */
            co_gradient(ctx, y, i % 3 == 1 ? NULL : x);
            co_clear(ctx);
            CO_EXPECT_NULL(co_gradient(ctx, x, x));
            CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open tape");
        }
    }
    CO_EXPECT_INT(live(ctx), before);
    /* Begun while there is an error, its end finds it and not the one around. */
    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_fail(ctx, CO_VALUE_ERROR, "before");
    co_tape_begin(ctx);
    co_tape_end(ctx);
    co_tape_begin(ctx);
    CO_EXPECT_NULL(co_gradient(ctx, x, x));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "before");
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, co_square(ctx, x), x)), 6, 0);
}

CO_TEST(watching_wrongly_is_reported, "")
{
    co_value *x = scalar(ctx, 1), *items[2] = { x, co_int(ctx, 1) };

    co_watch(ctx, x);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "co_tape_begin");
    co_tape_begin(ctx);
    co_watch(ctx, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (value) of watch is NULL");
    co_watch(ctx, co_int(ctx, 1));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "host integer");
    co_watch(ctx, co_list(ctx, items, 2));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "host integer");
    co_watch(ctx,
             co_scalar_int32(ctx, 1)); /* whole numbers have no gradient: a warning in the log */
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_gradient(ctx, NULL, x));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (targets) of gradient is NULL");
    co_tape_begin(ctx);
    CO_EXPECT_NULL(co_gradient(ctx, x, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (sources) of gradient is NULL");
    co_tape_begin(NULL);
    co_tape_begin_persistent(NULL);
    co_tape_end(NULL);
    co_watch(NULL, x);
    CO_EXPECT_NULL(co_gradient(NULL, x, x));
}

CO_TEST(targets_that_are_no_tensors_have_no_gradient, "")
{
    co_value *x = scalar(ctx, 3), *targets[3] = { co_int(ctx, 1), co_none(ctx), NULL };

    co_tape_begin(ctx);
    co_watch(ctx, x);
    targets[2] = co_square(ctx, x);
    CO_EXPECT_CLOSE(number(ctx, co_gradient(ctx, co_list(ctx, targets, 3), x)), 6, 0);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    CO_EXPECT_INT(co_value_kind(co_gradient(ctx, co_cast(ctx, x, CO_INT32), x)), CO_KIND_NONE);
}

/* Backward frees as it goes: a chain of n holds a few values besides those of the tape, not n
 * more. */
CO_TEST(a_long_chain_needs_no_more_than_its_records, "")
{
    co_value *x = scalar(ctx, 1), *y = x, *g;
    int64_t   before = live(ctx), during, after;

    CO_BLOCK(ctx) {
        co_tape_begin(ctx);
        co_watch(ctx, x);
        for (int i = 0; i < 20000; ++i)
            y = co_mul(ctx, y, x);
        during = live(ctx);
        g = co_gradient(ctx, y, x);
        after = live(ctx);
        CO_EXPECT_CLOSE(number(ctx, g), 20001, 0);
        CO_EXPECT_INT(during, before + 20000);
        CO_EXPECT_LESS(after, during + 10);
    }
    CO_EXPECT_INT(live(ctx), before);
}

/* Many operands, more than any fixed room. */
CO_TEST(operators_of_many_operands_are_differentiated, "")
{
    enum { N = 300 };
    co_value *parts[N], *grads;

    for (int i = 0; i < N; ++i)
        parts[i] = vector(ctx, i, 2);
    co_tape_begin(ctx);
    co_watch(ctx, co_list(ctx, parts, N));
    grads = co_gradient(ctx, co_square(ctx, co_concat(ctx, co_list(ctx, parts, N), 0)),
                        co_list(ctx, parts, N));
    for (int i = 0; i < N; ++i)
        CO_EXPECT_CLOSE(((const double *)co_value_data(ctx, co_at(ctx, grads, (size_t)i)))[0],
                        2 * i, 0);
}

static bool
differentiate(co_context *ctx)
{
    bool ok = false;

    CO_BLOCK(ctx) {
        co_value *x = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(20), (const double[20]){ 1, 2 });
        co_value *v = co_variable(ctx, co_scalar_double(ctx, 2), NULL), *y, *z, *pair[2] = { x, v };
        co_value *g;

        co_tape_begin(ctx);
        co_watch(ctx, x);
        co_tape_begin(ctx);
        y = co_mul(ctx, co_square(ctx, x), v);
        z = co_gradient(ctx, y, x);
        g = co_gradient(ctx, co_reduce_sum(ctx, z, CO_ALL_AXES, false), co_list(ctx, pair, 2));
        ok = g != NULL && co_item_float(ctx, co_at(ctx, g, 1)) == 6;
    }
    return ok;
}

CO_TEST_BARE(gradients_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, differentiate);
}

/* --- attributes that own something --- */

typedef struct owning_attrs {
    int *counted; /* a block that the record has of its own */
} owning_attrs;

static int num_copies, num_destroyed;

static bool
copy_owning(coi_heap *heap, void *to, const void *from)
{
    owning_attrs *copy = to;

    copy->counted = coi_small_alloc(heap, 64);
    if (copy->counted == NULL)
        return false;
    *copy->counted = *((const owning_attrs *)from)->counted;
    ++num_copies;
    return true;
}

static void
destroy_owning(coi_heap *heap, void *attrs)
{
    coi_small_free(heap, ((owning_attrs *)attrs)->counted, 64);
    ++num_destroyed;
}

static co_code
owning_grad(coi_grad *grad)
{
    const owning_attrs *attrs = grad->attrs;

    grad->grads[0] = co_mul(grad->ctx, grad->upstream[0], co_int(grad->ctx, *attrs->counted));
    return grad->ctx->error.code;
}

static const coi_op owning_op = { .name = "owning",
                                  .doc = "x, with attributes that own a block",
                                  .inputs = { "x" },
                                  .num_inputs = 1,
                                  .num_outputs = 1,
                                  .view = true,
                                  .infer = coi_rule_same,
                                  .grad = owning_grad,
                                  .attrs_rule = { sizeof(owning_attrs), copy_owning,
                                                  destroy_owning } };

CO_TEST(records_own_copies_of_their_attributes, "")
{
    co_value    *x = co_scalar_float(ctx, 2), *y, *g;
    int          factor = 5;
    owning_attrs attrs = { &factor };

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = coi_apply1(ctx, &owning_op, x, &attrs);
    factor = 7; /* the record has its own */
    g = co_gradient(ctx, y, x);
    CO_EXPECT_CLOSE(co_item_float(ctx, g), 5, 0);
    CO_EXPECT_INT(num_copies, 1);
    CO_EXPECT_INT(num_destroyed, 1);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    coi_apply1(ctx, &owning_op, x, &attrs);
    co_tape_end(ctx); /* without a gradient */
    CO_EXPECT_INT(num_copies, 2);
    CO_EXPECT_INT(num_destroyed, 2);
}

CO_TEST(gradients_of_an_assignment_lead_to_the_variable, "FN-8")
{
    co_value *x = co_scalar_float(ctx, 2), *v = co_variable(ctx, co_float(ctx, 1), NULL), *both;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    both = co_gradient(ctx, co_square(ctx, co_assign(ctx, v, co_mul(ctx, x, x))),
                       co_args(ctx, x, v));
    CO_EXPECT_INT(co_value_kind(co_at(ctx, both, 0)), CO_KIND_NONE);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, both, 1)), 8, 0);
    both = co_assign(ctx, v, x); /* watched later, it is still another value */
    co_tape_begin(ctx);
    co_watch(ctx, x);
    CO_EXPECT_INT(co_value_kind(co_gradient(ctx, both, x)), CO_KIND_NONE);
}
