/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that copy or create elements: optimised kernels against the reference, and what the
 * shapes and values must be.
 */
#include "ops_support.h"

#include "ops/kernels/gather.h"
#include "ops/kernels/creation.h"
#include "ops/kernels/strided_copy.h"

static const co_dtype sizes[] = { CO_BOOL, CO_FLOAT16, CO_FLOAT32,
                                  CO_INT64 }; /* 1, 2, 4 and 8 bytes */
#define NUM_SIZES 4

static void
random_shape(ops_random *random, int max_ndim, int64_t max_dim, int *ndim, int64_t *dims)
{
    *ndim = (int)ops_below(random, max_ndim + 1);
    for (int d = 0; d < *ndim; ++d)
        dims[d] = ops_below(random, 12) == 0 ? 0 : 1 + ops_below(random, max_dim);
}

static void
shuffle(ops_random *random, int n, int64_t *order)
{
    for (int i = 0; i < n; ++i)
        order[i] = i;
    for (int i = n - 1; i > 0; --i) {
        int64_t j = ops_below(random, i + 1), t = order[i];

        order[i] = order[j];
        order[j] = t;
    }
}

CO_TEST(transpose_agrees_with_the_reference, "")
{
    ops_random random = { 1 };

    for (int k = 0; k < 400; ++k)
        CO_BLOCK(ctx) {
            coi_perm_attrs attrs = { { 0 } };
            int64_t        dims[CO_MAX_DIMS];
            int            ndim;
            co_dtype       dtype = sizes[k % NUM_SIZES];
            co_value      *x;
            char           text[300];

            random_shape(&random, k < 300 ? 4 : 8, k < 300 ? 19 : 3, &ndim, dims);
            x = ops_tensor(ctx, &random, dtype, dims, ndim, OPS_ORDINARY);
            attrs.perm.n = k % 7 == 0 ? -1 : ndim;
            shuffle(&random, ndim, attrs.perm.at);
            ops_same_as_reference(ctx, coi_op_find("transpose"), &x, 1, &attrs, 0,
                                  ops_describe(text, dtype, &x, 1));
        }
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(broadcast_to_agrees_with_the_reference, "")
{
    ops_random random = { 2 };

    for (int k = 0; k < 200; ++k)
        CO_BLOCK(ctx) {
            coi_shape_attrs attrs = { { 0 } };
            int64_t         dims[CO_MAX_DIMS];
            int             ndim, less;
            co_dtype        dtype = sizes[k % NUM_SIZES];
            co_value       *x;
            char            text[300];

            random_shape(&random, 6, 5, &ndim, attrs.shape.at);
            attrs.shape.n = ndim;
            less = (int)ops_below(&random, ndim + 1); /* leading dimensions that x lacks */
            for (int d = less; d < ndim; ++d)
                dims[d - less] = ops_below(&random, 2) == 0 ? 1 : attrs.shape.at[d];
            x = ops_tensor(ctx, &random, dtype, dims, ndim - less, OPS_ORDINARY);
            ops_same_as_reference(ctx, coi_op_find("broadcast_to"), &x, 1, &attrs, 0,
                                  ops_describe(text, dtype, &x, 1));
        }
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(slice_and_its_gradient_agree_with_the_reference, "")
{
    ops_random random = { 3 };

    for (int k = 0; k < 200; ++k)
        CO_BLOCK(ctx) {
            coi_slice_attrs      attrs = { { 0 }, { 0 } };
            coi_slice_grad_attrs back = { { 0 }, { 0 } };
            int64_t              dims[CO_MAX_DIMS];
            int                  ndim;
            co_dtype             dtype = sizes[k % NUM_SIZES];
            co_value            *x, *part;
            char                 text[300];

            random_shape(&random, 5, 9, &ndim, dims);
            x = ops_tensor(ctx, &random, dtype, dims, ndim, OPS_ORDINARY);
            attrs.begin.n = attrs.size.n = back.begin.n = back.shape.n = ndim;
            for (int d = 0; d < ndim; ++d) {
                attrs.begin.at[d] = ops_below(&random, dims[d] + 1);
                attrs.size.at[d] = ops_below(&random, dims[d] - attrs.begin.at[d] + 2) - 1;
                back.begin.at[d] = attrs.begin.at[d];
                back.shape.at[d] = dims[d];
            }
            ops_describe(text, dtype, &x, 1);
            ops_same_as_reference(ctx, coi_op_find("slice"), &x, 1, &attrs, 0, text);
            part = coi_apply1(ctx, coi_op_find("slice"), x, &attrs);
            ops_same_as_reference(ctx, coi_op_find("slice_grad"), &part, 1, &back, 0, text);
        }
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(concat_agrees_with_the_reference, "")
{
    ops_random random = { 4 };

    for (int k = 0; k < 100; ++k)
        CO_BLOCK(ctx) {
            enum { MOST = 11 };
            int64_t        dims[CO_MAX_DIMS];
            int            ndim, n = 1 + (int)ops_below(&random, MOST);
            co_dtype       dtype = sizes[k % NUM_SIZES];
            co_value      *xs[MOST];
            coi_axis_attrs attrs;
            char           text[300];

            do
                random_shape(&random, 4, 6, &ndim, dims);
            while (ndim == 0);
            attrs.axis = ops_below(&random, 2 * ndim) - ndim;
            for (int i = 0; i < n; ++i) {
                dims[attrs.axis < 0 ? attrs.axis + ndim : attrs.axis] = ops_below(&random, 5);
                xs[i] = ops_tensor(ctx, &random, dtype, dims, ndim, OPS_ORDINARY);
            }
            ops_same_as_reference(ctx, coi_op_find("concat"), xs, n, &attrs, 0,
                                  ops_describe(text, dtype, xs, n));
        }
    CO_EXPECT_TRUE(co_ok(ctx));
}

/* Indices in [0, n). */
static co_value *
indices_below(co_context *ctx, ops_random *random, co_dtype dtype, const int64_t *dims, int ndim,
              int64_t n)
{
    int64_t   count = ops_count(dims, ndim), *data = malloc((size_t)count * sizeof(*data) + 1);
    co_value *wide;

    for (int64_t i = 0; i < count; ++i)
        data[i] = ops_below(random, n);
    wide = co_tensor(ctx, CO_INT64, dims, ndim, data);
    free(data);
    return co_cast(ctx, wide, dtype);
}

CO_TEST(gather_and_scatter_add_agree_with_the_reference, "")
{
    static const co_dtype kinds[] = { CO_INT16, CO_INT32, CO_INT64 };
    ops_random            random = { 5 };

    for (int k = 0; k < 400; ++k)
        CO_BLOCK(ctx) {
            int64_t           dims[CO_MAX_DIMS], at_dims[CO_MAX_DIMS];
            int               ndim = 1 + (int)ops_below(&random, 4), at_ndim, axis, batch;
            co_dtype          dtype = (co_dtype)(CO_INT8 + ops_below(&random, CO_STRING - CO_INT8));
            coi_gather_attrs  attrs;
            coi_scatter_attrs back = { { 0 }, 0, 0 };
            co_value         *in[2], *rows[2];
            char              text[300];

            for (int d = 0; d < ndim; ++d)
                dims[d] = 1 + ops_below(&random, 6);
            axis = (int)ops_below(&random, ndim);
            batch = (int)ops_below(&random, axis + 1);
            at_ndim = batch + (int)ops_below(&random, 3);
            for (int d = 0; d < at_ndim; ++d)
                at_dims[d] = d < batch ? dims[d] : ops_below(&random, 5);
            attrs = (coi_gather_attrs){ k % 2 == 0 ? axis : axis - ndim, batch };
            in[0] = ops_tensor(ctx, &random, dtype, dims, ndim, OPS_SMALL);
            in[1] = indices_below(ctx, &random, kinds[k % 3], at_dims, at_ndim, dims[axis]);
            ops_describe(text, dtype, in, 2);
            ops_same_as_reference(ctx, coi_op_find("gather"), in, 2, &attrs, 0, text);
            rows[0] = coi_apply(ctx, coi_op_find("gather"), in, 2, &attrs);
            rows[1] = in[1];
            back.shape.n = ndim;
            memcpy(back.shape.at, dims, sizeof(dims));
            back.axis = attrs.axis;
            back.batch_dims = batch;
            ops_same_as_reference(ctx, coi_op_find("scatter_add"), rows, 2, &back, 0, text);
        }
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(one_hot_agrees_with_the_reference, "")
{
    static const co_dtype kinds[] = { CO_UINT8, CO_INT8, CO_INT32, CO_INT64 };
    ops_random            random = { 6 };

    for (int k = 0; k < 100; ++k) {
        int64_t           dims[CO_MAX_DIMS];
        int               ndim;
        coi_one_hot_attrs attrs = { ops_below(&random, 6),
                                    { CO_KIND_INT, 3, 0 },
                                    { CO_KIND_INT, -1, 0 },
                                    0,
                                    (uint8_t)(CO_BOOL + ops_below(&random, CO_STRING - CO_BOOL)) };
        co_value         *x;

        if (!coi_dtypes[attrs.dtype].is_signed)
            attrs.off_value.i = 5;
        if (attrs.dtype == CO_BOOL)
            attrs.on_value = attrs.off_value = (coi_scalar){ CO_KIND_BOOL, k % 2, 0 };
        else if (co_dtype_is_floating((co_dtype)attrs.dtype))
            attrs.on_value = (coi_scalar){ CO_KIND_FLOAT, 0, 3 };
        else if (k % 3 == 0)
            attrs.on_value.kind = CO_KIND_NONE;
        random_shape(&random, 4, 4, &ndim, dims);
        attrs.axis = ops_below(&random, 2 * ndim + 2) - ndim - 1;
        x = ops_tensor(ctx, &random, kinds[k % 4], dims, ndim, OPS_SMALL);
        ops_same_as_reference(ctx, coi_op_find("one_hot"), &x, 1, &attrs, 0, "indices");
    }
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(makers_agree_with_the_reference, "")
{
    static const int64_t dims[] = { 5, 0, 7, 13 };
    coi_scalar           numbers[] = { { CO_KIND_INT, -7, 0 },
                                       { CO_KIND_FLOAT, 0, 2.75 },
                                       { CO_KIND_BOOL, 1, 0 } };

    for (int k = 0; k < 3; ++k) {
        coi_fill_attrs fill = { { 2, { dims[2 - k], dims[3] } }, numbers[k] };

        ops_same_as_reference(ctx, coi_op_find("fill"), NULL, 0, &fill, 0, "fill");
        for (int d = CO_BOOL; d < CO_STRING; ++d) {
            coi_make_attrs make = { { 2, { dims[k], dims[3] } }, (uint8_t)d };

            ops_same_as_reference(ctx, coi_op_find("zeros"), NULL, 0, &make, 0, "zeros");
            ops_same_as_reference(ctx, coi_op_find("ones"), NULL, 0, &make, 0, "ones");
        }
    }
    for (int d = CO_INT8; d < CO_STRING; ++d) {
        coi_range_attrs range = {
            { CO_KIND_INT, 3, 0 }, { CO_KIND_INT, 100, 0 }, { CO_KIND_INT, 7, 0 }, (uint8_t)d
        };

        if (d != CO_UINT8 && d != CO_UINT64)
            ops_same_as_reference(ctx, coi_op_find("range"), NULL, 0, &range, 0, "range");
    }
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(ranges_have_the_right_length, "")
{
    CO_EXPECT_INT(co_value_num_elements(ctx, co_range(ctx, co_float(ctx, 0), co_float(ctx, 1),
                                                      co_float(ctx, 0.1), CO_DTYPE_NONE)),
                  10);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_range(ctx, co_int(ctx, 5), co_int(ctx, -4),
                                                      co_int(ctx, -3), CO_DTYPE_NONE)),
                  3);
    CO_EXPECT_INT(co_value_dtype(ctx, co_range(ctx, co_int(ctx, 0), co_scalar_int64(ctx, 4),
                                               co_int(ctx, 1), CO_DTYPE_NONE)),
                  CO_INT64);
    CO_EXPECT_INT(co_value_dtype(ctx, co_range(ctx, co_int(ctx, INT64_C(1) << 40),
                                               co_int(ctx, (INT64_C(1) << 40) + 2), co_int(ctx, 1),
                                               CO_DTYPE_NONE)),
                  CO_INT64);
}

/* A tensor keeps its dtype, and a gradient flows into it. */
CO_TEST(fill_repeats_a_tensor, "")
{
    co_value *x = co_scalar_double(ctx, 1.5), *filled, *grad;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    filled = co_fill(ctx, CO_SHAPE(2, 3), x);
    CO_EXPECT_INT(co_value_dtype(ctx, filled), CO_FLOAT64);
    grad = co_gradient(ctx, filled, x);
    CO_EXPECT_CLOSE(co_item_float(ctx, grad), 6, 0);
}

CO_TEST(views_share_the_data, "")
{
    co_value *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(4, 25));

    CO_EXPECT_PTR(co_value_data(ctx, co_reshape(ctx, x, CO_SHAPE(-1))), co_value_data(ctx, x));
    CO_EXPECT_PTR(co_value_data(ctx, co_expand_dims(ctx, x, 1)), co_value_data(ctx, x));
    CO_EXPECT_PTR(co_value_data(ctx, co_identity(ctx, x)), co_value_data(ctx, x));
    CO_EXPECT_PTR(co_value_data(ctx, co_stop_gradient(ctx, x)), co_value_data(ctx, x));
}

static void
expect_texts(co_context *ctx, co_value *value, const char *const *expected, int64_t n)
{
    CO_EXPECT_INT(co_value_num_elements(ctx, value), n);
    for (int64_t i = 0; i < n; ++i)
        CO_EXPECT_STR(co_string_at(ctx, value, i, NULL), expected[i]);
}

/* Moved strings outlive the tensor they came from. */
CO_TEST(strings_can_be_moved, "")
{
    static const char *const texts[] = { "a", "bb", "", "a longer text than fits", "e", "f" };
    static const char *const transposed[] = { "a", "a longer text than fits", "bb", "e", "", "f" };
    static const char *const joined[] = { "a", "bb", "",   "a longer text than fits",
                                          "e", "f",  "bb", "e" };
    co_value                *x, *t, *g, *s, *c, *b;

    co_block_begin(ctx);
    x = co_tensor(ctx, CO_STRING, CO_SHAPE(2, 3), texts);
    t = co_transpose(ctx, x, NULL, 0);
    s = co_slice(ctx, x, (const int64_t[]){ 0, 1 }, (const int64_t[]){ -1, 1 }, 2);
    g = co_gather(ctx, x, co_scalar_int32(ctx, 1), 1, 0);
    c = co_concat(ctx,
                  co_args(ctx, co_reshape(ctx, x, CO_SHAPE(6)), co_reshape(ctx, s, CO_SHAPE(2))),
                  0);
    b = co_broadcast_to(ctx, s, CO_SHAPE(2, 2));
    co_keep(ctx, t);
    co_keep(ctx, g);
    co_keep(ctx, c);
    co_keep(ctx, b);
    co_block_end(ctx);
    CO_EXPECT_OK(ctx);
    expect_texts(ctx, t, transposed, 6);
    expect_texts(ctx, g, joined + 6, 2);
    expect_texts(ctx, c, joined, 8);
    CO_EXPECT_STR(co_string_at(ctx, b, 3, NULL), "e");
    co_release(ctx, t);
    co_release(ctx, g);
    co_release(ctx, c);
    co_release(ctx, b);
}

CO_TEST(slices_convert_to_the_tensor_they_stand_for, "")
{
    static const float   rows[] = { 1, 2, 10, 20, 100, 200 };
    static const int32_t at[] = { 2, 0, 2 }, shape[] = { 4, 2 };
    static const float   expected[] = { 10, 20, 0, 0, 101, 202, 0, 0 };
    co_value            *slices = co_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 2), rows),
                                            co_tensor(ctx, CO_INT32, CO_SHAPE(3), at),
                                            co_tensor(ctx, CO_INT32, CO_SHAPE(2), shape));

    CO_EXPECT_BYTES(co_value_data(ctx, co_to_tensor(ctx, slices, CO_DTYPE_NONE)), expected,
                    sizeof(expected));
}
