/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that are driven by the table of operators: rows with inputs and attributes for each
 * operator, as text, and the check that no operator is without one.
 *
 *     ROW("gather", "r[9,4] i9[5]", "axis=0"),
 *
 * An input is a letter and a shape: r real numbers of the dtype of the test, p the same but above
 * 1/2, d float64, f float32, h float16, g bfloat16, b bool, i9 int32 and j9 int64 from 0 to 8,
 * which do not repeat before all have come. s is like p, with a sum of 1 along the last axis.
 */
#ifndef OPS_ROWS_H
#define OPS_ROWS_H

#include "ops_support.h"

#include "../../tools/cohort/literal.h"

enum { ROW_MOST_INPUTS = 8 };

typedef struct ops_row {
    const char *name;
    const char *inputs;
    const char *attrs;
    size_t      num_real; /* results that gradients flow into; 0: all that are real */
    bool        is_whole; /* not cut over threads: no work, or work in one piece */
} ops_row;
#define ROW(name, inputs, attrs)                                                                   \
    {                                                                                              \
        name, inputs, attrs, 0, false                                                              \
    }
#define ROW_WHOLE(name, inputs, attrs)                                                             \
    {                                                                                              \
        name, inputs, attrs, 0, true                                                               \
    }
#define ROW_FIRST(n, name, inputs, attrs)                                                          \
    {                                                                                              \
        name, inputs, attrs, n, false                                                              \
    }

typedef struct ops_row_call {
    co_value *in[ROW_MOST_INPUTS];
    size_t    num_in;
} ops_row_call;

/* Element i of n numbers that are not noise: those of p, s and indices. */
static inline double
ops_row_number(ops_random *random, char letter, int64_t below, int64_t i, int64_t per_row)
{
    double value = 1.5 + ops_real(random) / 2;

    if (letter == 'p')
        return value;
    return letter == 's' ? 2 * (double)(i % per_row + 1) / (double)(per_row * (per_row + 1))
                         : (double)(i * 7919 % below);
}

/* One input from its text, which is moved behind it. */
static inline co_value *
ops_row_input(co_context *ctx, const char **text, co_dtype real, uint64_t seed)
{
    static const char     letters[] = "rpsdfhgbij";
    static const co_dtype given[] = { CO_FLOAT64, CO_FLOAT32, CO_FLOAT16, CO_BFLOAT16,
                                      CO_BOOL,    CO_INT32,   CO_INT64 };
    ops_random            random = { seed };
    char                  letter = *(*text)++, *data, *end;
    int                   which = (int)(strchr(letters, letter) - letters), ndim = 0;
    co_dtype              dtype = which < 3 ? real : given[which - 3];
    int64_t               below = strtoll(*text, &end, 10), dims[CO_MAX_DIMS], n;
    co_value             *tensor;

    while (*++end != ']' && ndim < CO_MAX_DIMS) {
        dims[ndim++] = strtoll(end, &end, 10);
        end -= *end != ',';
    }
    *text = literal_skip(end + 1);
    if (below == 0 && letter != 'p' && letter != 's')
        return ops_tensor(ctx, &random, dtype, dims, ndim, OPS_ORDINARY);
    n = ops_count(dims, ndim);
    data = malloc((size_t)n * co_dtype_size(dtype) + 1);
    for (int64_t i = 0; i < n; ++i) {
        double value = ops_row_number(&random, letter, below, i, dims[ndim - 1]);

        coi_convert(CO_FLOAT64, &value, dtype, data + (size_t)i * co_dtype_size(dtype), 1);
    }
    tensor = co_tensor(ctx, dtype, dims, (size_t)ndim, data);
    free(data);
    return tensor;
}

/* The inputs of a row, the same ones each time. Nothing here runs an operator. */
static inline void
ops_row_inputs(co_context *ctx, const ops_row *row, co_dtype real, ops_row_call *call)
{
    const char *text = row->inputs;

    call->num_in = 0;
    while (*text != '\0' && call->num_in < ROW_MOST_INPUTS) {
        call->in[call->num_in] = ops_row_input(ctx, &text, real, 50 + call->num_in);
        ++call->num_in;
    }
}

static inline bool
ops_is_real(const co_value *value)
{
    return value != NULL && value->kind == CO_KIND_TENSOR &&
           co_dtype_is_floating((co_dtype)value->dtype);
}

/* The operator by its name: its results as a list, or NULL. */
static inline co_value *
ops_row_results(co_context *ctx, const ops_row *row, const ops_row_call *call)
{
    co_value *result = co_op_call(ctx, row->name, co_tuple(ctx, call->in, call->num_in),
                                  literal_attrs(ctx, row->attrs));

    return co_value_kind(result) == CO_KIND_TUPLE ? result : co_args(ctx, result);
}

/* The results that gradients flow into. */
static inline size_t
ops_row_real(co_context *ctx, const ops_row *row, co_value *results, co_value **real, size_t most)
{
    size_t n = 0;

    most = row->num_real > 0 ? row->num_real : most;
    for (size_t i = 0; i < co_num_items(ctx, results) && n < most; ++i)
        if (ops_is_real(co_at(ctx, results, i)))
            real[n++] = co_at(ctx, results, i);
    return n;
}

/* Whether every operator that `wanted` asks for has a row, and every row an operator. Names those
 * without. */
static inline void
ops_expect_rows(const ops_row *rows, size_t num_rows, bool (*wanted)(const co_op_info *info))
{
    co_op_info info = CO_OP_INFO_INIT;

    for (size_t i = 0; co_op_describe(i, &info); ++i) {
        size_t r = 0;

        if (!info.by_name)
            continue;
        while (r < num_rows && strcmp(rows[r].name, info.name) != 0)
            ++r;
        if (wanted(&info) && r == num_rows)
            test_fail(TEST_AT, "operator '%s' has no row in the table of this test", info.name);
    }
    for (size_t r = 0; r < num_rows; ++r)
        if (coi_op_find(rows[r].name) == NULL)
            test_fail(TEST_AT, "row '%s' is of no operator", rows[r].name);
    CO_EXPECT_MORE(num_rows, 0);
}

#endif
