/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epilogues of plans: element-wise operators that go on with a product of matrices, or with a layer
 * norm or its gradient, part by part. Each case compares with the function as it is without
 * capturing, bit by bit, for shapes at the borders of tiles, numbers that are none, and dtypes that
 * have epilogues or not.
 */
#include "failing_requests.h"
#include "function_worlds.h"

#include <math.h>

/* A product of [m, k] and [k, n]. */
typedef struct extents {
    int64_t m, k, n;
} extents;

/* One element, rows shorter than a tile knows, tiles of rows, several blocks of k, products that
 * are computed transposed, nothing to sum, and nothing at all. */
static const extents all_extents[] = {
    { 1, 1, 1 },    { 3, 5, 7 },     { 32, 64, 64 }, { 33, 70, 130 }, { 150, 600, 129 },
    { 200, 96, 6 }, { 74, 40, 300 }, { 5, 0, 64 },   { 0, 4, 64 },    { 4, 3, 0 },
};
enum { NUM_EXTENTS = sizeof(all_extents) / sizeof(*all_extents) };

/* Numbers of either sign; some rows have infinities, zeros below zero, and what is no number. */
static co_value *
matrix(co_context *ctx, co_dtype dtype, int64_t rows, int64_t columns, int seed, bool strange)
{
    static const float others[] = { INFINITY, -INFINITY, -0.0f, NAN, 1e-42f };
    const int64_t      dims[2] = { rows, columns };
    int64_t            n = rows * columns;
    float             *data = malloc((size_t)(n + 1) * sizeof(*data));
    co_value          *made;

    CO_REQUIRE(data != NULL);
    for (int64_t i = 0; i < n; ++i)
        data[i] = 0.07f * (float)((i * 37 + seed * 11) % 29) - 1.0f;
    for (int64_t i = seed % 7; strange && i < n; i += columns + 3)
        data[i] = others[i % 5];
    made = co_tensor(ctx, CO_FLOAT32, dims, 2, data);
    free(data);
    return co_cast(ctx, made, dtype);
}

static co_value *
row_of(co_context *ctx, co_dtype dtype, int64_t n, int seed)
{
    return co_reshape(ctx, matrix(ctx, dtype, 1, n, seed, n > 20), &n, 1);
}

/* x [m, k], w [k, n], b [n], h [m, n] */
static co_value *
operands(co_context *ctx, co_dtype dtype, const extents *e, int seed)
{
    return co_args(ctx, matrix(ctx, dtype, e->m, e->k, seed, seed == 2),
                   matrix(ctx, dtype, e->k, e->n, seed + 1, false),
                   row_of(ctx, dtype, e->n, seed + 2),
                   matrix(ctx, dtype, e->m, e->n, seed + 3, true));
}

/* --- what follows a product --- */

static co_value *
biased(co_context *ctx, co_value *args, void *user)
{
    co_value *z = co_matmul(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));

    (void)user;
    return co_relu(ctx, co_add(ctx, z, co_at(ctx, args, 2)));
}

static co_value *
residual(co_context *ctx, co_value *args, void *user)
{
    co_value *h = co_at(ctx, args, 3);
    co_value *z = co_dense(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1), co_at(ctx, args, 2),
                           CO_ACTIVATION_TANH);

    (void)user;
    return co_sub(ctx, h, co_mul(ctx, z, co_float(ctx, 0.5)));
}

/* The product and what is between are results too, and operands of others. */
static co_value *
used_elsewhere(co_context *ctx, co_value *args, void *user)
{
    co_value *z = co_matmul(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));
    co_value *y = co_mul(ctx, co_sigmoid(ctx, z), z);

    (void)user;
    return co_args(ctx, co_add(ctx, y, co_at(ctx, args, 3)), z, y,
                   co_reduce_sum(ctx, z, CO_ALL_AXES, false),
                   co_reduce_sum(ctx, y, CO_AXES(0), false));
}

/* A row, and an element of each row, of what the epilogue makes: they are not there in time. */
static co_value *
reads_other_rows(co_context *ctx, co_value *args, void *user)
{
    co_value *z = co_matmul(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1)), *y;
    int64_t   begin[2] = { 0, 0 }, row[2] = { 1, -1 }, column[2] = { -1, 1 };

    (void)user;
    if (co_value_dim(ctx, z, 0) == 0 || co_value_dim(ctx, z, 1) == 0)
        return z;
    y = co_sub(ctx, z, co_slice(ctx, z, begin, row, 2));
    return co_mul(ctx, y, co_slice(ctx, y, begin, column, 2));
}

/* Statistics of rows: one element for each. */
static co_value *
normalised(co_context *ctx, co_value *args, void *user)
{
    co_value *z = co_matmul(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));
    co_value *y = co_sub(ctx, z, co_reduce_mean(ctx, z, CO_AXES(1), true));

    (void)user;
    return co_add(ctx, co_mul(ctx, y, co_reduce_max(ctx, y, CO_AXES(1), true)),
                  co_at(ctx, args, 2));
}

/* More results at a time than there are tiles. */
static co_value *
many_at_once(co_context *ctx, co_value *args, void *user)
{
    co_value *z = co_matmul(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1)), *made[12], *sum;

    (void)user;
    for (int i = 0; i < 12; ++i)
        made[i] = co_add(ctx, i % 3 == 1 ? co_tanh(ctx, z) : z, co_float(ctx, i));
    sum = made[0];
    for (int i = 11; i > 0; --i)
        sum = co_sub(ctx, made[i], sum);
    return sum;
}

/* Results of another dtype. */
static co_value *
compared(co_context *ctx, co_value *args, void *user)
{
    co_value *z = co_matmul(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));

    (void)user;
    return co_logical_and(ctx, co_less(ctx, z, co_at(ctx, args, 3)), co_isfinite(ctx, z));
}

/* --- backward passes --- */

static co_value *
gradients(co_context *ctx, co_value *args, void *user)
{
    co_activation which = *(const co_activation *)user;
    co_value     *x = co_at(ctx, args, 0), *w = co_at(ctx, args, 1), *b = co_at(ctx, args, 2), *y;

    co_tape_begin(ctx);
    co_watch(ctx, co_args(ctx, x, w, b));
    y = co_dense(ctx, x, w, b, which);
    y = co_matmul_transposed(ctx, co_mul(ctx, y, co_at(ctx, args, 3)), w, false, true);
    y = co_add(ctx, co_tanh(ctx, y), x);
    return co_gradient(ctx, y, co_args(ctx, x, w, b));
}

static co_value *
norm_gradients(co_context *ctx, co_value *args, void *user)
{
    co_value *h = co_at(ctx, args, 3), *b = co_at(ctx, args, 2), *y;

    (void)user;
    if (co_value_num_elements(ctx, h) == 0)
        return co_tanh(ctx, h);
    co_tape_begin(ctx);
    co_watch(ctx, co_args(ctx, h, b));
    y = co_add(ctx, h, co_layer_norm(ctx, h, b, b, NULL));
    y = co_mul(ctx, y, co_tanh(ctx, co_layer_norm(ctx, y, b, b, NULL)));
    return co_gradient(ctx, y, co_args(ctx, h, b));
}

/* --- all of them --- */

static co_activation some_activations[] = { CO_ACTIVATION_NONE, CO_ACTIVATION_RELU,
                                            CO_ACTIVATION_GELU_TANH };

static const struct body {
    co_fn fn;
    void *user;
} bodies[] = {
    { biased, NULL },
    { residual, NULL },
    { used_elsewhere, NULL },
    { reads_other_rows, NULL },
    { normalised, NULL },
    { many_at_once, NULL },
    { compared, NULL },
    { gradients, &some_activations[0] },
    { gradients, &some_activations[1] },
    { gradients, &some_activations[2] },
    { norm_gradients, NULL },
};

static void
compare(co_context *ctx, const struct body *body, co_dtype dtype, const extents *e)
{
    co_function      *f = co_function_of(ctx, body->fn, body->user, NULL);
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    for (int i = 0; i < 3; ++i)
        CO_BLOCK(ctx) {
            co_value *args = operands(ctx, dtype, e, i);

            expect_same(ctx, body->fn(ctx, args, body->user), co_call(ctx, f, args));
        }
    co_function_get_stats(ctx, f, &stats);
    CO_EXPECT_INT(stats.captures, 1);
    CO_EXPECT_INT(stats.plan_runs, 3);
}

static void
compare_all(co_context *ctx, co_dtype dtype)
{
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); ++i)
        for (int k = 0; k < NUM_EXTENTS; ++k)
            compare(ctx, &bodies[i], dtype, &all_extents[k]);
}

CO_TEST(epilogues_have_the_bits_of_separate_kernels, "FN-2 FN-8")
{
    compare_all(ctx, CO_FLOAT32);
}

CO_TEST(epilogues_of_doubles_have_the_bits_of_separate_kernels, "FN-2 FN-8")
{
    compare_all(ctx, CO_FLOAT64);
}

CO_TEST(halves_have_the_bits_of_separate_kernels, "FN-2 FN-8")
{
    compare_all(ctx, CO_FLOAT16);
    compare_all(ctx, CO_BFLOAT16);
}

CO_TEST_WITH(epilogues_of_baseline_kernels_have_the_same_bits, "FN-2 FN-8", "isa=base")
{
    compare_all(ctx, CO_FLOAT32);
}

CO_TEST_WITH(epilogues_on_one_thread_have_the_same_bits, "FN-2 FN-8", "threads=1")
{
    compare_all(ctx, CO_FLOAT32);
}

CO_TEST_WITH(epilogues_on_four_threads_have_the_same_bits, "FN-2 FN-8", "threads=4")
{
    compare_all(ctx, CO_FLOAT32);
}

/* A batch of products is one result. */
static co_value *
batch(co_context *ctx, co_value *args, void *user)
{
    int64_t   dims[3] = { 6, 9, 70 }, transposed[3] = { 6, 70, 9 };
    co_value *x = co_at(ctx, args, 0), *z;

    (void)user;
    z = co_matmul(ctx, co_reshape(ctx, x, transposed, 3), co_reshape(ctx, x, dims, 3));
    return co_mul(ctx, co_relu(ctx, z), co_reduce_max(ctx, x, CO_AXES(1), false));
}

CO_TEST(epilogues_of_batches_have_the_bits_of_separate_kernels, "FN-2")
{
    co_function *f = co_function_of(ctx, batch, NULL, NULL);

    for (int i = 0; i < 3; ++i) {
        co_value *args = co_args(ctx, matrix(ctx, CO_FLOAT32, 70, 54, i, i == 1));

        expect_same(ctx, batch(ctx, args, NULL), co_call(ctx, f, args));
    }
}

/* --- memory --- */

/* What is between the product and the result has no memory of its own. */
CO_TEST(a_bias_and_an_activation_are_an_epilogue, "FN-2")
{
    const extents     e = { 40, 20, 128 };
    co_function      *f = co_function_of(ctx, biased, NULL, NULL);
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    CO_EXPECT_NOT_NULL(co_call(ctx, f, operands(ctx, CO_FLOAT32, &e, 0)));
    co_function_get_stats(ctx, f, &stats);
    CO_EXPECT_INT(stats.temporary_bytes, 2 * e.m * e.n * 4);
    CO_EXPECT_LESS(stats.planned_bytes, e.m * e.n * 4 + 4096);
}

/* The gradient of the weights is computed between the gradient of the operand and what goes on with
 * that: the order is another one. */
CO_TEST(kernels_move_to_what_they_go_on_with, "FN-2 FN-8")
{
    const extents     e = { 64, 64, 64 };
    co_function      *f = co_function_of(ctx, gradients, &some_activations[1], NULL);
    co_function_stats stats = CO_FUNCTION_STATS_INIT;

    for (int i = 0; i < 2; ++i) {
        co_value *args = operands(ctx, CO_FLOAT32, &e, i);

        expect_same(ctx, gradients(ctx, args, &some_activations[1]), co_call(ctx, f, args));
    }
    co_function_get_stats(ctx, f, &stats);
    CO_EXPECT_INT(stats.plan_runs, 2);
    CO_EXPECT_LESS(stats.planned_bytes, stats.temporary_bytes / 2);
}

/* One tensor, which is compared without memory. */
static co_value *
one_gradient(co_context *ctx, co_value *args, void *user)
{
    return co_at(ctx, gradients(ctx, args, user), 0);
}

static bool
call_twice(co_context *ctx)
{
    const extents e = { 6, 5, 70 };
    co_function  *f = co_function_of(ctx, one_gradient, &some_activations[2], NULL);
    bool          ok = true;

    for (int i = 0; i < 2 && ok; ++i) {
        co_value *args = operands(ctx, CO_FLOAT32, &e, i), *planned = co_call(ctx, f, args);
        co_value *eager = one_gradient(ctx, args, &some_activations[2]);

        ok = co_ok(ctx);
        if (ok)
            expect_same_tensors(ctx, eager, planned);
    }
    return ok && co_ok(ctx);
}

CO_TEST_BARE(without_memory_for_an_epilogue_the_calls_are_made, "FN-10")
{
    expect_survival(call_twice);
}
