/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types with unknowns: co_op_infer. That the rules are right for each operator is proved by
 * `golden --types`.
 */
#include "test.h"

#define U (-1)
#define S(...)                                                                                     \
    co_spec(ctx, CO_FLOAT32, (const int64_t[]){ __VA_ARGS__ },                                     \
            (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))
#define ANY_RANK co_spec(ctx, CO_FLOAT32, NULL, -1)

/* "float32[2,?]", or "" with an error. */
static const char *
text_of(co_context *ctx, co_value *value, char *out, size_t capacity)
{
    out[0] = '\0';
    if (value != NULL)
        co_format(ctx, value, out, capacity);
    return out;
}

static bool
is_spec(co_context *ctx, co_value *value, co_dtype dtype, int ndim, const int64_t *dims)
{
    bool same = value != NULL && co_value_kind(value) == CO_KIND_SPEC &&
                co_value_dtype(ctx, value) == dtype && co_value_ndim(ctx, value) == ndim;

    for (int d = 0; same && d < ndim; ++d)
        same = co_value_dim(ctx, value, d) == dims[d];
    return same;
}
#define EXPECT_SPEC(value, dtype, ...)                                                             \
    CO_EXPECT_TRUE(is_spec(ctx, value, dtype,                                                      \
                           (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)),      \
                           (const int64_t[]){ __VA_ARGS__ }))

CO_TEST(unknown_dimensions_broadcast, "")
{
    EXPECT_SPEC(co_op_infer(ctx, "add", co_args(ctx, S(U, 3), S(U, 1)), NULL), CO_FLOAT32, U, 3);
    EXPECT_SPEC(co_op_infer(ctx, "add", co_args(ctx, S(U, U), S(4, 1)), NULL), CO_FLOAT32, 4, U);
    EXPECT_SPEC(co_op_infer(ctx, "add", co_args(ctx, S(2, U), S(7)), NULL), CO_FLOAT32, 2, 7);
    CO_EXPECT_TRUE(is_spec(ctx, co_op_infer(ctx, "add", co_args(ctx, S(2, U), ANY_RANK), NULL),
                           CO_FLOAT32, -1, NULL));
    EXPECT_SPEC(co_op_infer(ctx, "less", co_args(ctx, S(U), co_float(ctx, 1)), NULL), CO_BOOL, U);
}

CO_TEST(what_does_not_depend_on_unknowns_is_known, "")
{
    co_value *w = S(3, 3, 8, 16), *axes, *shape;

    EXPECT_SPEC(co_op_infer(ctx, "conv2d", co_args(ctx, ANY_RANK, w), NULL), CO_FLOAT32, U, U, U,
                16);
    EXPECT_SPEC(co_op_infer(ctx, "matmul", co_args(ctx, S(U, 4), S(U, 5)), NULL), CO_FLOAT32, U, 5);
    CO_EXPECT_TRUE(is_spec(ctx, co_op_infer(ctx, "reduce_sum", co_args(ctx, ANY_RANK), NULL),
                           CO_FLOAT32, 0, NULL));
    axes = co_dict(ctx, (const char *[]){ "axis" }, (co_value *[]){ co_int(ctx, 0) }, 1);
    EXPECT_SPEC(co_op_infer(ctx, "reduce_max", co_args(ctx, S(U, 3)), axes), CO_FLOAT32, 3);
    shape = co_dict(ctx, (const char *[]){ "shape" },
                    (co_value *[]){ co_args(ctx, co_int(ctx, -1), co_int(ctx, 4)) }, 1);
    EXPECT_SPEC(co_op_infer(ctx, "reshape", co_args(ctx, S(U, 2)), shape), CO_FLOAT32, U, 4);
    EXPECT_SPEC(co_op_infer(ctx, "reshape", co_args(ctx, S(6, 2)), shape), CO_FLOAT32, 3, 4);
}

CO_TEST(results_that_depend_on_elements_are_unknown, "")
{
    EXPECT_SPEC(co_op_infer(ctx, "where_index", co_args(ctx, S(3, 4)), NULL), CO_INT64, U, 2);
    /* What has elements is looked at. */
    CO_EXPECT_TRUE(co_op_infer(ctx, "mod",
                               co_args(ctx, co_spec(ctx, CO_INT32, (const int64_t[]){ 3 }, 1),
                                       co_zeros(ctx, CO_INT32, CO_SHAPE(3))),
                               NULL) == NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "element 0 of y is 0");
}

CO_TEST(several_results_are_a_tuple, "")
{
    co_value *two = co_dict(ctx, (const char *[]){ "num_or_sizes", "axis" },
                            (co_value *[]){ co_int(ctx, 2), co_int(ctx, 1) }, 2);
    co_value *parts = co_op_infer(ctx, "split", co_args(ctx, S(U, 6)), two);
    co_value *best = co_op_infer(ctx, "top_k", co_args(ctx, S(U, 6)), NULL);

    CO_EXPECT_INT(co_num_items(ctx, parts), 2);
    EXPECT_SPEC(co_at(ctx, parts, 1), CO_FLOAT32, U, 3);
    CO_EXPECT_INT(co_num_items(ctx, best), 2);
    EXPECT_SPEC(co_at(ctx, best, 1), CO_INT32, U, 1);
    CO_EXPECT_INT(co_num_items(ctx, co_op_infer(ctx, "unstack", co_args(ctx, S(4, U)), NULL)), 4);
    CO_EXPECT_TRUE(co_value_kind(co_op_infer(ctx, "unstack", co_args(ctx, S(U, 4)), NULL)) ==
                   CO_KIND_NONE);
    CO_EXPECT_INT(co_num_items(ctx, co_op_infer(ctx, "batch_norm_train",
                                                co_args(ctx, S(U, 3), S(3), S(3), S(3), S(3)),
                                                co_dict(ctx, (const char *[]){ "axes" },
                                                        (co_value *[]){ co_int(ctx, 0) }, 1))),
                  5);
}

CO_TEST(variables_and_slices_are_inputs_by_their_types, "")
{
    co_value *v = co_variable(ctx, S(3, 4), NULL); /* without a value */
    co_value *rows = co_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 4)),
                               co_zeros(ctx, CO_INT32, CO_SHAPE(2)), NULL);

    EXPECT_SPEC(co_op_infer(ctx, "relu", co_args(ctx, v), NULL), CO_FLOAT32, 3, 4);
    EXPECT_SPEC(co_op_infer(ctx, "relu", co_args(ctx, rows), NULL), CO_FLOAT32, U, 4);
}

CO_TEST(messages_show_unknowns, "")
{
    CO_EXPECT_TRUE(co_op_infer(ctx, "add", co_args(ctx, S(U, 3), S(4)), NULL) == NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[?,3]");
    CO_EXPECT_TRUE(co_op_infer(ctx, "matmul", co_args(ctx, S(2), ANY_RANK), NULL) == NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "<unknown rank>");
}

CO_TEST(infer_is_called_as_call_is, "")
{
    char        text[100];
    co_dataset *windows;

    CO_EXPECT_TRUE(co_op_infer(ctx, NULL, co_args(ctx, S(2)), NULL) == NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "op_infer is NULL");
    CO_EXPECT_TRUE(co_op_infer(ctx, "no_such", co_args(ctx, S(2)), NULL) == NULL);
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "no_such");
    CO_EXPECT_TRUE(co_op_infer(ctx, "relu", S(2), NULL) == NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "op_infer is a spec");
    CO_EXPECT_TRUE(co_op_infer(ctx, "relu", co_args(ctx, S(2), S(2)), NULL) == NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "2 inputs");
    CO_EXPECT_TRUE(co_op_infer(ctx, "logical_not", co_args(ctx, S(2)), NULL) == NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "must be one of bool");
    windows = co_dataset_window(ctx, co_dataset_range(ctx, 0, 4, 1), 2,
                                &(co_window_options){ sizeof(co_window_options), 1, 1, true });
    CO_EXPECT_NULL(co_op_infer(ctx, "relu", co_args(ctx, co_element_spec(ctx, windows)), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "without a dtype");
    text_of(ctx, co_op_infer(ctx, "relu", co_args(ctx, S(U, 2)), NULL), text, sizeof(text));
    CO_EXPECT_TRUE(strstr(text, "?") != NULL);
}

CO_TEST(many_inputs_are_inferred, "")
{
    co_value *xs[40];

    for (int i = 0; i < 40; ++i)
        xs[i] = i == 30 ? S(5, 2) : S(U, U);
    EXPECT_SPEC(co_op_infer(ctx, "add_n", co_tuple(ctx, xs, 40), NULL), CO_FLOAT32, 5, 2);
    EXPECT_SPEC(co_op_infer(ctx, "concat", co_tuple(ctx, xs, 40),
                            co_dict(ctx, (const char *[]){ "axis" },
                                    (co_value *[]){ co_int(ctx, 1) }, 1)),
                CO_FLOAT32, 5, U);
}
