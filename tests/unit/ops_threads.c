/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operator gives the same bits with 1, 2 and 3 threads, results and gradients. The rows are
 * large enough that work is cut, which the test looks at: a team starts its threads when it has
 * work for them.
 */
#include "ops_rows.h"

#include "ops/engine/op.h"

#include <dirent.h>

static bool
is_any(const co_op_info *info)
{
    (void)info;
    return true;
}

static int
num_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    int  n = 0;

    while (dir != NULL && readdir(dir) != NULL)
        ++n;
    if (dir != NULL)
        closedir(dir);
    return n;
}

/* FNV-1a over the bytes of tensors, and of the parts of indexed slices. */
static uint64_t
hash_value(co_context *ctx, co_value *value, uint64_t hash)
{
    const unsigned char *bytes;
    size_t               n;

    if (co_value_kind(value) == CO_KIND_SLICES) {
        hash = hash_value(ctx, co_slices_values(ctx, value), hash);
        return hash_value(ctx, co_slices_indices(ctx, value), hash);
    }
    if (co_value_kind(value) != CO_KIND_TENSOR)
        return hash;
    bytes = co_value_data(ctx, value);
    n = (size_t)co_value_num_elements(ctx, value) * co_dtype_size(co_value_dtype(ctx, value));
    for (size_t i = 0; i < n; ++i)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t
hash_values(co_context *ctx, co_value *values, uint64_t hash)
{
    for (size_t i = 0; i < co_num_items(ctx, values); ++i)
        hash = hash_value(ctx, co_at(ctx, values, i), hash);
    return hash;
}

typedef struct outcome {
    uint64_t results, gradients;
    int      started; /* threads, by the results alone */
} outcome;

/* A row in a runtime of its own, so that it is the row that starts threads. */
static outcome
run_row(const ops_row *row, int threads)
{
    char         settings[32];
    co_context  *ctx;
    ops_row_call call;
    co_value    *results, *real[LITERAL_MOST];
    size_t       num_real;
    outcome      out = { 0, 0, 0 };

    snprintf(settings, sizeof(settings), "cpus=1, threads=%d", threads);
    ctx = co_open(settings);
    co_set_seed(ctx, 5);
    ops_row_inputs(ctx, row, CO_FLOAT32, &call);
    co_tape_begin(ctx);
    for (size_t i = 0; i < call.num_in; ++i)
        if (ops_is_real(call.in[i]))
            co_watch(ctx, call.in[i]);
    out.started = -num_threads();
    results = ops_row_results(ctx, row, &call);
    out.started += num_threads();
    out.results = hash_values(ctx, results, 1);
    num_real = ops_row_real(ctx, row, results, real, LITERAL_MOST);
    if (num_real > 0 && call.num_in > 0)
        out.gradients = hash_values(ctx,
                                    co_gradient(ctx, co_tuple(ctx, real, num_real),
                                                co_tuple(ctx, call.in, call.num_in)),
                                    1);
    if (!CO_EXPECT_OK(ctx))
        test_fail(TEST_AT, "see %s of %s, %s", row->name, row->inputs, row->attrs);
    co_close(ctx);
    return out;
}

CO_TEST_BARE(every_operator_has_the_same_bits_with_any_number_of_threads, "")
{
    static ops_rows rows;

    ops_rows_fill(&rows, ops_large, is_any);
    for (const ops_row *row = rows.at; row < rows.at + rows.num; ++row) {
        outcome one = run_row(row, 1);

        for (int threads = 2; threads <= 3; ++threads) {
            outcome more = run_row(row, threads);

            if (more.results != one.results || more.gradients != one.gradients)
                test_fail(TEST_AT, "%s of %s, %s: other %s with %d threads than with one",
                          row->name, row->inputs, row->attrs,
                          more.results != one.results ? "results" : "gradients", threads);
            if (!row->is_whole && more.started == 0)
                test_fail(TEST_AT, "%s of %s, %s: work for %d threads was not divided", row->name,
                          row->inputs, row->attrs, threads);
        }
    }
}

CO_TEST(no_operator_is_left_out, "")
{
    ops_expect_rows(ops_large, is_any);
}
