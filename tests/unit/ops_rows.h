/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that are driven by the table of operators: the calls of tools/cohort/op_rows.h, which
 * explains their text, and the check that no operator is without one.
 */
#ifndef OPS_ROWS_H
#define OPS_ROWS_H

#include "ops_support.h"

#define OP_ROWS_WITH_TESTS
#include "../../tools/cohort/literal.h"
#include "../../tools/cohort/op_rows.h"

enum { ROW_MOST_INPUTS = 8, MOST_ROWS = 512 };

/* One call of an operator, as op_call has it. */
typedef struct ops_row {
    const char *name;
    const char *inputs;
    const char *attrs;
    size_t      num_real;
    bool        is_whole;
} ops_row;

typedef struct ops_rows {
    ops_row at[MOST_ROWS];
    size_t  num;
} ops_rows;

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
    tensor = co_tensor(ctx, dtype, dims, ndim, data);
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

/* --- the calls of all operators --- */

static inline bool
ops_find_info(const char *name, co_op_info *info)
{
    for (size_t i = 0; co_op_describe(i, info); ++i)
        if (strcmp(info->name, name) == 0)
            return true;
    return false;
}

static inline const op_call *
ops_small(const op_row *row)
{
    return row->small;
}

static inline const op_call *
ops_large(const op_row *row)
{
    return row->large;
}

static inline const op_call *
ops_sizes(const op_row *row)
{
    return row->sizes;
}

typedef const op_call *(*ops_calls_fn)(const op_row *row);

static inline size_t
ops_num_calls(ops_calls_fn calls_of)
{
    const op_row *row = &op_rows[0];

    return calls_of == ops_small   ? sizeof(row->small) / sizeof(row->small[0])
           : calls_of == ops_large ? sizeof(row->large) / sizeof(row->large[0])
                                   : sizeof(row->sizes) / sizeof(row->sizes[0]);
}

/* The calls of one kind of all operators that `wanted` asks for. */
static inline void
ops_rows_fill(ops_rows *rows, ops_calls_fn calls_of, bool (*wanted)(const co_op_info *info))
{
    size_t     most = ops_num_calls(calls_of);
    co_op_info info = CO_OP_INFO_INIT;

    rows->num = 0;
    for (size_t r = 0; r < NUM_OP_ROWS; ++r) {
        const op_call *calls = calls_of(&op_rows[r]);

        if (!ops_find_info(op_rows[r].name, &info) || !wanted(&info))
            continue;
        for (size_t i = 0; i < most && calls[i].inputs != NULL && rows->num < MOST_ROWS; ++i)
            rows->at[rows->num++] = (ops_row){ op_rows[r].name, calls[i].inputs, calls[i].attrs,
                                               calls[i].num_real, calls[i].is_whole };
    }
    CO_EXPECT_MORE(rows->num, 0);
    CO_EXPECT_MORE(MOST_ROWS, rows->num);
}

/* Whether every operator that `wanted` asks for has such a call, and every row an operator. Names
 * those without. */
static inline void
ops_expect_rows(ops_calls_fn calls_of, bool (*wanted)(const co_op_info *info))
{
    co_op_info info = CO_OP_INFO_INIT;

    for (size_t i = 0; co_op_describe(i, &info); ++i) {
        size_t r = 0;

        if (!info.by_name)
            continue;
        while (r < NUM_OP_ROWS && strcmp(op_rows[r].name, info.name) != 0)
            ++r;
        if (wanted(&info) && (r == NUM_OP_ROWS || calls_of(&op_rows[r])[0].inputs == NULL))
            test_fail(TEST_AT, "operator '%s' has no such call in tools/cohort/op_rows.h",
                      info.name);
    }
    for (size_t r = 0; r < NUM_OP_ROWS; ++r)
        if (!ops_find_info(op_rows[r].name, &info))
            test_fail(TEST_AT, "row '%s' of tools/cohort/op_rows.h is of no operator",
                      op_rows[r].name);
        else if (r > 0 && strcmp(op_rows[r - 1].name, op_rows[r].name) >= 0)
            test_fail(TEST_AT, "row '%s' of tools/cohort/op_rows.h is out of order",
                      op_rows[r].name);
        else if (!info.internal && op_rows[r].shapes == NULL)
            test_fail(TEST_AT, "row '%s' of tools/cohort/op_rows.h has no shapes and example",
                      op_rows[r].name);
    CO_EXPECT_MORE(NUM_OP_ROWS, 0);
}

#endif
