/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of every differentiable operator of the table, first and second, against finite
 * differences in float64, with the optimised and the reference kernels. ops_gradient.c,
 * ops_composite.c and the tests of families look at more shapes and attributes. With the same rows,
 * and some of the other operators: what happens where memory ends.
 */
#include "kernel_support.h"
#include "ops_rows.h"

#include "ops/engine/op.h"

static bool
is_differentiable(const co_op_info *info)
{
    return info->differentiable;
}

static bool
is_any(const co_op_info *info)
{
    (void)info;
    return true;
}

static ops_rows       rows;
static const ops_row *now; /* the row under test */
static ops_row_call   inputs;

static co_value *
flat(co_context *ctx, co_value *x)
{
    return co_reshape(ctx, x, CO_SHAPE(-1));
}

/*
 * All real results as one vector, and the inputs behind them: so every input has a gradient, and
 * one that does not come through the operator although it should is a wrong number and not a
 * missing one.
 */
static co_value *
results(co_context *ctx, co_value *const *in)
{
    ops_row_call call = inputs;
    co_value    *parts[2 * ROW_MOST_INPUTS];
    size_t       n;

    memcpy(call.in, in, call.num_in * sizeof(in[0]));
    co_set_seed(ctx, 5); /* for dropout */
    n = ops_row_real(ctx, now, ops_row_results(ctx, now, &call), parts, ROW_MOST_INPUTS);
    for (size_t i = 0; i < n; ++i)
        parts[i] = flat(ctx, parts[i]);
    for (size_t i = 0; i < call.num_in; ++i)
        if (ops_is_real(in[i]))
            parts[n++] = flat(ctx, in[i]);
    return co_concat(ctx, co_list(ctx, parts, n), 0);
}

/* The gradients for all real inputs as one vector; weighed with the inputs, so that each has a
 * gradient again. */
static co_value *
gradients(co_context *ctx, co_value *const *in)
{
    co_value *real[ROW_MOST_INPUTS], *parts[ROW_MOST_INPUTS], *grads;
    size_t    n = 0;

    co_tape_begin(ctx);
    for (size_t i = 0; i < inputs.num_in; ++i)
        if (ops_is_real(in[i])) {
            co_watch(ctx, in[i]);
            real[n++] = in[i];
        }
    grads = co_gradient(ctx, kernel_loss(ctx, results, in), co_tuple(ctx, real, n));
    for (size_t i = 0; i < n; ++i)
        parts[i] = flat(ctx, co_mul(ctx, co_to_tensor(ctx, co_at(ctx, grads, i), CO_DTYPE_NONE),
                                    co_add(ctx, real[i], co_int(ctx, 3))));
    return co_concat(ctx, co_list(ctx, parts, n), 0);
}

static void
check_rows(co_context *ctx, kernel_fn fn)
{
    ops_rows_fill(&rows, ops_small, is_differentiable);
    for (now = rows.at; now < rows.at + rows.num; ++now)
        CO_BLOCK(ctx) {
            int checked[ROW_MOST_INPUTS], n = 0;

            ops_row_inputs(ctx, now, CO_FLOAT64, &inputs);
            for (size_t i = 0; i < inputs.num_in; ++i)
                if (ops_is_real(inputs.in[i]))
                    checked[n++] = (int)i;
            if (!CO_EXPECT_MORE(n, 0) ||
                !kernel_check_gradients(ctx, fn, inputs.in, (int)inputs.num_in, checked, n))
                test_fail(TEST_AT, "see %s of %s, %s", now->name, now->inputs, now->attrs);
        }
}

CO_TEST(first_gradients_of_every_operator_agree_with_differences, "")
{
    check_rows(ctx, results);
}

CO_TEST(second_gradients_of_every_operator_agree_with_differences, "")
{
    check_rows(ctx, gradients);
}

CO_TEST_WITH(reference_kernels_of_every_operator_agree_with_differences, "",
             "reference_kernels=yes")
{
    check_rows(ctx, results);
}

CO_TEST(no_operator_is_left_out, "")
{
    ops_expect_rows(ops_small, is_any);
}

/* --- without memory --- */

static co_dtype dtype_now;

/* The results of a row, and where they are real their gradients. */
static bool
work_once(co_context *ctx)
{
    co_value *real[ROW_MOST_INPUTS], *outs[2 * ROW_MOST_INPUTS], *made;
    size_t    n = 0, num_outs;

    if (ctx == NULL)
        return false;
    ops_row_inputs(ctx, now, dtype_now, &inputs);
    for (size_t i = 0; i < inputs.num_in; ++i)
        if (ops_is_real(inputs.in[i]))
            real[n++] = inputs.in[i];
    co_tape_begin(ctx);
    co_watch(ctx, co_tuple(ctx, real, n));
    made = ops_row_results(ctx, now, &inputs);
    num_outs = ops_row_real(ctx, now, made, outs, ROW_MOST_INPUTS);
    if (n > 0 && num_outs > 0)
        made = co_gradient(ctx, co_tuple(ctx, outs, num_outs), co_tuple(ctx, real, n));
    else
        co_tape_end(ctx);
    return co_ok(ctx) && made != NULL;
}

static void
work_without_memory(const char *settings)
{
    static const co_dtype dtypes[] = { CO_FLOAT64, CO_FLOAT32, CO_FLOAT16 };

    ops_rows_fill(&rows, ops_small, is_any);
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); ++i) {
        dtype_now = dtypes[i];
        for (now = rows.at; now < rows.at + rows.num; ++now)
            CO_EXPECT_SURVIVES_NO_MEMORY(settings, work_once);
    }
}

CO_TEST_BARE(every_operator_survives_no_memory, "")
{
    work_without_memory("threads=1");
}

CO_TEST_BARE(every_reference_kernel_survives_no_memory, "")
{
    work_without_memory("threads=1, reference_kernels=yes");
}

static bool
second_gradients_once(co_context *ctx)
{
    if (ctx == NULL)
        return false;
    ops_row_inputs(ctx, now, CO_FLOAT64, &inputs);
    co_tape_begin(ctx);
    for (size_t i = 0; i < inputs.num_in; ++i)
        if (ops_is_real(inputs.in[i]))
            co_watch(ctx, inputs.in[i]);
    co_gradient(ctx, kernel_loss(ctx, gradients, inputs.in),
                co_tuple(ctx, inputs.in, inputs.num_in));
    return co_ok(ctx);
}

CO_TEST_BARE(second_gradients_survive_no_memory, "")
{
    ops_rows_fill(&rows, ops_small, is_differentiable);
    for (now = rows.at; now < rows.at + rows.num; ++now)
        CO_EXPECT_SURVIVES_NO_MEMORY("threads=1", second_gradients_once);
}
