/* SPDX-License-Identifier: Apache-2.0 */
/* Values of every kind: making them, looking at them, and what host numbers become. */
#include "test.h"

static const double reals[] = { 0, 1, -1, 2.5, -3.75, 100 };
#define NUM_REALS 6

static co_value *
nothing_to_do(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_none(ctx);
}

CO_TEST(every_kind_has_one_handle, "C-VAL-1 GEN-NEST-2 GEN-NEST-3 DV-1 DV-2")
{
    co_value                *x = co_scalar_float(ctx, 1), *pair[2] = { x, x };
    co_value                *index = co_tensor(ctx, CO_INT64, CO_SHAPE(1), (const int64_t[]){ 0 });
    co_value                *row = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1), (const float[]){ 7 });
    static const char *const names[] = { "a", "b" };
    const struct {
        co_value   *value;
        co_kind     kind;
        const char *name;
    } all[] = {
        { NULL, CO_KIND_NULL, "NULL" },
        { x, CO_KIND_TENSOR, "tensor" },
        { co_int(ctx, 1), CO_KIND_INT, "host integer" },
        { co_float(ctx, 1), CO_KIND_FLOAT, "host float" },
        { co_bool(ctx, true), CO_KIND_BOOL, "host bool" },
        { co_string(ctx, "s"), CO_KIND_STRING, "host string" },
        { co_none(ctx), CO_KIND_NONE, "none" },
        { co_variable(ctx, x, NULL), CO_KIND_VARIABLE, "variable" },
        { co_per_replica_value(ctx, pair, 2), CO_KIND_PER_REPLICA, "per-replica value" },
        { co_mirrored_value(ctx, pair, 2), CO_KIND_MIRRORED, "mirrored value" },
        { co_slices(ctx, row, index, NULL), CO_KIND_SLICES, "indexed slices" },
        { co_spec(ctx, CO_INT8, NULL, -1), CO_KIND_SPEC, "spec" },
        { co_list(ctx, pair, 2), CO_KIND_LIST, "list" },
        { co_tuple(ctx, pair, 2), CO_KIND_TUPLE, "tuple" },
        { co_named_tuple(ctx, "Pair", names, pair, 2), CO_KIND_NAMED_TUPLE, "named tuple" },
        { co_dict(ctx, names, pair, 2), CO_KIND_DICT, "dict" },
        { co_next(ctx,
                  co_iterate(ctx, co_dataset_window(ctx, co_dataset_range(ctx, 0, 2, 1), 1, NULL))),
          CO_KIND_DATASET, "dataset" },
        { co_iterator_value(ctx, co_iterate(ctx, co_dataset_range(ctx, 0, 2, 1))), CO_KIND_ITERATOR,
          "iterator" },
        { co_function_value(ctx, co_function_of(ctx, nothing_to_do, NULL, NULL)), CO_KIND_FUNCTION,
          "function" },
    };

    /* All but symbolic tensors, which there are while a function is captured alone. */
    CO_EXPECT_INT(sizeof(all) / sizeof(all[0]), CO_NUM_KINDS - 1);
    CO_EXPECT_STR(co_kind_name(CO_KIND_SYMBOLIC), "symbolic tensor");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
        CO_EXPECT_INT(co_value_kind(all[i].value), all[i].kind);
        CO_EXPECT_STR(co_kind_name(all[i].kind), all[i].name);
        /* Every kind but the four containers is one leaf. */
        if (all[i].kind != CO_KIND_NULL &&
            (all[i].kind < CO_KIND_LIST || all[i].kind > CO_KIND_DICT))
            CO_EXPECT_INT(co_num_items(ctx, co_flatten(ctx, all[i].value)), 1);
    }
    CO_EXPECT_STR(co_kind_name(CO_NUM_KINDS), "invalid kind");
    CO_EXPECT_STR(co_kind_name((co_kind)-1), "invalid kind");
}

CO_TEST_BARE(dtypes_have_names_sizes_and_families, "")
{
    static const struct {
        co_dtype    dtype;
        const char *name;
        size_t      size;
        bool        floating, integer;
    } all[] = {
        { CO_BOOL, "bool", 1, false, false },        { CO_INT8, "int8", 1, false, true },
        { CO_INT16, "int16", 2, false, true },       { CO_INT32, "int32", 4, false, true },
        { CO_INT64, "int64", 8, false, true },       { CO_UINT8, "uint8", 1, false, true },
        { CO_UINT16, "uint16", 2, false, true },     { CO_UINT32, "uint32", 4, false, true },
        { CO_UINT64, "uint64", 8, false, true },     { CO_FLOAT16, "float16", 2, true, false },
        { CO_BFLOAT16, "bfloat16", 2, true, false }, { CO_FLOAT32, "float32", 4, true, false },
        { CO_FLOAT64, "float64", 8, true, false },   { CO_STRING, "string", 0, false, false },
    };
    static const int none[] = { -1, CO_NUM_DTYPES, 1000, INT32_MIN };

    CO_EXPECT_INT(sizeof(all) / sizeof(all[0]), CO_NUM_DTYPES - 1);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
        CO_EXPECT_STR(co_dtype_name(all[i].dtype), all[i].name);
        CO_EXPECT_INT(co_dtype_from_name(all[i].name), all[i].dtype);
        CO_EXPECT_INT(co_dtype_size(all[i].dtype), all[i].size);
        CO_EXPECT_INT(co_dtype_is_floating(all[i].dtype), all[i].floating);
        CO_EXPECT_INT(co_dtype_is_integer(all[i].dtype), all[i].integer);
    }
    CO_EXPECT_STR(co_dtype_name(CO_DTYPE_NONE), "none");
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); ++i) {
        CO_EXPECT_STR(co_dtype_name((co_dtype)none[i]), "invalid");
        CO_EXPECT_INT(co_dtype_size((co_dtype)none[i]), 0);
        CO_EXPECT_FALSE(co_dtype_is_floating((co_dtype)none[i]));
        CO_EXPECT_FALSE(co_dtype_is_integer((co_dtype)none[i]));
    }
    CO_EXPECT_INT(co_dtype_from_name(NULL), CO_DTYPE_NONE);
    CO_EXPECT_INT(co_dtype_from_name(""), CO_DTYPE_NONE);
    CO_EXPECT_INT(co_dtype_from_name("Float32"), CO_DTYPE_NONE);
}

/* C-VAL-5: there is no complex dtype to ask for. */
CO_TEST(complex_numbers_are_refused, "C-VAL-5")
{
    co_value   *x = co_scalar_float(ctx, 1), *inputs = co_tuple(ctx, &x, 1);
    co_value   *dtype = co_string(ctx, "complex64");
    const char *key = "dtype";

    CO_EXPECT_INT(co_dtype_from_name("complex64"), CO_DTYPE_NONE);
    CO_EXPECT_NULL(co_op_call(ctx, "cast", inputs, co_dict(ctx, &key, &dtype, 1)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "complex64");
}

CO_TEST(a_tensor_is_a_copy_with_dtype_shape_and_data, "C-VAL-1")
{
    float     data[6] = { 1, 2, 3, 4, 5, 6 };
    co_value *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 3), data);

    data[0] = 99;
    CO_EXPECT_INT(co_value_dtype(ctx, x), CO_FLOAT32);
    CO_EXPECT_INT(co_value_ndim(ctx, x), 2);
    CO_EXPECT_INT(co_value_dim(ctx, x, 0), 2);
    CO_EXPECT_INT(co_value_dim(ctx, x, 1), 3);
    CO_EXPECT_INT(co_value_dim(ctx, x, -1), 3);
    CO_EXPECT_INT(co_value_dim(ctx, x, -2), 2);
    CO_EXPECT_INT(co_value_num_elements(ctx, x), 6);
    CO_EXPECT_BYTES(co_value_data(ctx, x), ((const float[]){ 1, 2, 3, 4, 5, 6 }), sizeof(data));
    CO_EXPECT_STR(co_value_device(ctx, x), "/job:localhost/replica:0/task:0/device:CPU:0");
}

/* In the cell, at its edge, one beyond it, and in a block of its own. */
CO_TEST(tensors_of_any_size_keep_their_elements, "")
{
    static const int64_t sizes[] = { 0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000, 100003 };

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); ++s)
        for (int ndim = 1; ndim <= CO_MAX_DIMS; ++ndim) {
            int64_t   n = sizes[s], dims[CO_MAX_DIMS];
            int64_t  *data = malloc((size_t)(n + 1) * sizeof(*data));
            co_value *x;

            for (int d = 0; d < ndim; ++d)
                dims[d] = d == ndim - 1 ? n : 1;
            for (int64_t i = 0; i < n; ++i)
                data[i] = i * 7 - 3;
            x = co_tensor(ctx, CO_INT64, dims, ndim, n > 0 ? data : NULL);
            CO_EXPECT_INT(co_value_num_elements(ctx, x), n);
            CO_EXPECT_INT(co_value_ndim(ctx, x), ndim);
            if (n > 0)
                CO_EXPECT_BYTES(co_value_data(ctx, x), data, (size_t)n * sizeof(*data));
            free(data);
        }
}

CO_TEST(scalars_are_tensors_of_rank_0, "C-VAL-3")
{
    CO_EXPECT_INT(co_value_dtype(ctx, co_scalar_float(ctx, 1)), CO_FLOAT32);
    CO_EXPECT_INT(co_value_dtype(ctx, co_scalar_double(ctx, 1)), CO_FLOAT64);
    CO_EXPECT_INT(co_value_dtype(ctx, co_scalar_int32(ctx, 1)), CO_INT32);
    CO_EXPECT_INT(co_value_dtype(ctx, co_scalar_int64(ctx, 1)), CO_INT64);
    CO_EXPECT_INT(co_value_dtype(ctx, co_scalar_bool(ctx, true)), CO_BOOL);
    CO_EXPECT_INT(co_value_ndim(ctx, co_scalar_bool(ctx, true)), 0);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_scalar_double(ctx, 1)), 1);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_scalar_double(ctx, 0.1)), 0.1, 0);
    CO_EXPECT_INT(co_item_int(ctx, co_scalar_int64(ctx, INT64_MIN)), INT64_MIN);
    CO_EXPECT_INT(co_value_kind(co_scalar_int32(ctx, 1)), CO_KIND_TENSOR);
    CO_EXPECT_INT(co_value_kind(co_int(ctx, 1)), CO_KIND_INT);
}

/* Any byte that is not zero is true, and is stored as 1. */
CO_TEST(bools_are_0_or_1, "")
{
    static const uint8_t given[] = { 0, 1, 2, 255 }, kept[] = { 0, 1, 1, 1 };

    CO_EXPECT_BYTES(co_value_data(ctx, co_tensor(ctx, CO_BOOL, CO_SHAPE(4), given)), kept, 4);
}

CO_TEST(strings_hold_any_bytes, "")
{
    static const char *const texts[] = { "one", "", "three" };
    static const char        raw[] = { 'a', 0, 'b' };
    const void              *parts[2] = { raw, "xyz" };
    size_t                   lengths[2] = { 3, 2 }, n = 99;
    co_value                *plain = co_tensor(ctx, CO_STRING, CO_SHAPE(3), texts);
    co_value                *bytes = co_tensor_bytes(ctx, CO_SHAPE(2, 1), parts, lengths);
    co_value                *host = co_bytes(ctx, raw, 3);

    CO_EXPECT_STR(co_string_at(ctx, plain, 0, NULL), "one");
    CO_EXPECT_STR(co_string_at(ctx, plain, 1, &n), "");
    CO_EXPECT_INT(n, 0);
    CO_EXPECT_STR(co_string_at(ctx, plain, 2, &n), "three");
    CO_EXPECT_INT(n, 5);
    CO_EXPECT_BYTES(co_string_at(ctx, bytes, 0, &n), "a\0b", 4);
    CO_EXPECT_INT(n, 3);
    CO_EXPECT_STR(co_string_at(ctx, bytes, 1, &n), "xy");
    CO_EXPECT_INT(co_value_ndim(ctx, bytes), 2);
    CO_EXPECT_BYTES(co_string_at(ctx, host, 0, &n), "a\0b", 4);
    CO_EXPECT_INT(n, 3);
    CO_EXPECT_STR(co_string_at(ctx, co_bytes(ctx, NULL, 0), 0, &n), "");
    CO_EXPECT_INT(n, 0);
    /* A host string becomes a scalar tensor. */
    CO_EXPECT_STR(co_string_at(ctx, co_to_tensor(ctx, host, CO_STRING), 0, &n), "a");
    CO_EXPECT_INT(n, 3);
    /* No strings at all. */
    CO_EXPECT_INT(co_value_num_elements(ctx, co_tensor_bytes(ctx, CO_SHAPE(0), NULL, NULL)), 0);
}

static void
count_call(void *user)
{
    ++*(int *)user;
}

CO_TEST(borrowed_memory_is_used_in_place_and_given_back_once, "")
{
    static float memory[4] = { 1, 2, 3, 4 };
    static int   calls; /* what escapes lives until the context closes */

    CO_BLOCK(ctx) {
        co_value *x = co_tensor_borrow(ctx, CO_FLOAT32, CO_SHAPE(4), memory, count_call, &calls);
        co_value *view = co_reshape(ctx, x, CO_SHAPE(2, 2));

        CO_EXPECT_PTR(co_value_data(ctx, x), memory);
        CO_EXPECT_PTR(co_value_data(ctx, view), memory);
        co_keep(ctx, view);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_sum(ctx, view, CO_ALL_AXES, false)), 10, 0);
        CO_EXPECT_INT(calls, 0);
        co_escape(ctx, view);
        co_release(ctx, view);
    }
    CO_EXPECT_INT(calls, 0); /* the view still uses it */
    CO_BLOCK(ctx) {
        co_tensor_borrow(ctx, CO_FLOAT32, CO_SHAPE(0), NULL, count_call, &calls);
    }
    CO_EXPECT_INT(calls, 1);
    co_tensor_borrow(ctx, CO_FLOAT32, CO_SHAPE(4), memory, NULL, NULL); /* no deleter is fine */
}

CO_TEST_BARE(what_is_borrowed_is_given_back_when_the_context_closes, "")
{
    static int32_t memory[1] = { 5 };
    int            calls = 0;
    co_context    *own = co_open(NULL);

    co_tensor_borrow(own, CO_INT32, NULL, 0, memory, count_call, &calls);
    CO_EXPECT_INT(calls, 0);
    CO_EXPECT_CODE(co_close(own), CO_OK);
    CO_EXPECT_INT(calls, 1);
}

CO_TEST(failing_to_borrow_gives_back_at_once, "")
{
    static char memory[16];
    int         calls = 0;

    CO_EXPECT_NULL(co_tensor_borrow(ctx, CO_FLOAT32, CO_SHAPE(-1), memory, count_call, &calls));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "-1");
    CO_EXPECT_NULL(co_tensor_borrow(ctx, CO_STRING, CO_SHAPE(1), memory, count_call, &calls));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "co_tensor_bytes");
    CO_EXPECT_NULL(co_tensor_borrow(ctx, CO_FLOAT32, CO_SHAPE(1), NULL, count_call, &calls));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "data");
    CO_EXPECT_NULL(co_tensor_borrow(ctx, CO_FLOAT32, CO_SHAPE(1), memory + 1, count_call, &calls));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "aligned");
    memory[2] = 7;
    CO_EXPECT_NULL(co_tensor_borrow(ctx, CO_BOOL, CO_SHAPE(4), memory, count_call, &calls));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "element 2 of a borrowed bool tensor is 7");
    co_fail(ctx, CO_VALUE_ERROR, "something else");
    CO_EXPECT_NULL(co_tensor_borrow(ctx, CO_INT8, CO_SHAPE(4), memory, count_call, &calls));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "something else");
    CO_EXPECT_NULL(co_tensor_borrow(NULL, CO_INT8, CO_SHAPE(4), memory, count_call, &calls));
    CO_EXPECT_INT(calls, 7);
}

CO_TEST(indexed_slices_have_their_parts, "GEN-NEST-2")
{
    co_value *values = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 2), (const float[]){ 1, 2, 3, 4 });
    co_value *indices = co_tensor(ctx, CO_INT32, CO_SHAPE(2), (const int32_t[]){ 2, 0 });
    co_value *shape = co_tensor(ctx, CO_INT64, CO_SHAPE(2), (const int64_t[]){ 3, 2 });
    co_value *slices = co_slices(ctx, values, indices, shape);

    CO_EXPECT_PTR(co_slices_values(ctx, slices), values);
    CO_EXPECT_PTR(co_slices_indices(ctx, slices), indices);
    CO_EXPECT_PTR(co_slices_dense_shape(ctx, slices), shape);
    CO_EXPECT_NULL(co_slices_dense_shape(ctx, co_slices(ctx, values, indices, NULL)));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_BYTES(co_value_data(ctx, co_to_tensor(ctx, slices, CO_DTYPE_NONE)),
                    ((const float[]){ 3, 4, 0, 0, 1, 2 }), 6 * sizeof(float));
    CO_EXPECT_INT(co_value_ndim(ctx, slices), 2);
    CO_EXPECT_INT(co_value_dim(ctx, slices, 0), 3);
}

CO_TEST(rows_with_one_index_are_added, "")
{
    co_value *indices = co_tensor(ctx, CO_INT64, CO_SHAPE(3), (const int64_t[]){ 1, 1, 0 });
    co_value *shape = co_tensor(ctx, CO_INT32, CO_SHAPE(1), (const int32_t[]){ 2 });

    for (int d = CO_INT8; d <= CO_FLOAT64; ++d) {
        co_value *values = co_cast(
            ctx, co_tensor(ctx, CO_INT32, CO_SHAPE(3), (const int32_t[]){ 5, 6, 7 }), (co_dtype)d);
        double sums[2];

        co_value_copy_data(ctx, co_slices(ctx, values, indices, shape), CO_FLOAT64, sums, 2);
        CO_EXPECT_CLOSE(sums[0], 7, 0);
        CO_EXPECT_CLOSE(sums[1], 11, 0);
    }
    CO_EXPECT_NULL(co_to_tensor(
        ctx, co_slices(ctx, co_tensor(ctx, CO_BOOL, CO_SHAPE(3), "\0\1\1"), indices, shape),
        CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "bool");
    CO_EXPECT_NULL(co_to_tensor(
        ctx, co_slices(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3)), indices, NULL), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "dense shape");
}

CO_TEST(specs_tell_dtype_and_shape, "")
{
    co_value *known = co_spec(ctx, CO_INT8, CO_SHAPE(2, -1, 4));
    co_value *unknown = co_spec(ctx, CO_STRING, NULL, -1);

    CO_EXPECT_INT(co_value_dtype(ctx, known), CO_INT8);
    CO_EXPECT_INT(co_value_ndim(ctx, known), 3);
    CO_EXPECT_INT(co_value_dim(ctx, known, 1), -1);
    CO_EXPECT_INT(co_value_dim(ctx, known, -1), 4);
    CO_EXPECT_INT(co_value_num_elements(ctx, known), -1);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_spec(ctx, CO_INT8, CO_SHAPE(2, 4))), 8);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_spec(ctx, CO_INT8, NULL, 0)), 1);
    CO_EXPECT_INT(co_value_ndim(ctx, unknown), -1);
    CO_EXPECT_INT(co_value_num_elements(ctx, unknown), -1);
    CO_EXPECT_INT(co_value_dtype(ctx, unknown), CO_STRING);
    CO_EXPECT_INT(co_value_dim(ctx, unknown, 0), 0);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "unknown rank");
    CO_EXPECT_NULL(co_add(ctx, known, known));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "spec");
}

/* Alone: int32 if it fits, else int64; float32; with a tensor: the tensor's dtype. */
CO_TEST(host_numbers_become_tensors_of_the_other_dtype, "C-VAL-4 C-VAL-3")
{
    static const struct {
        int64_t  number;
        co_dtype dtype;
    } alone[] = { { 0, CO_INT32 },
                  { INT32_MAX, CO_INT32 },
                  { INT32_MIN, CO_INT32 },
                  { (int64_t)INT32_MAX + 1, CO_INT64 },
                  { (int64_t)INT32_MIN - 1, CO_INT64 },
                  { INT64_MAX, CO_INT64 },
                  { INT64_MIN, CO_INT64 } };

    for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); ++i) {
        co_value *x = co_to_tensor(ctx, co_int(ctx, alone[i].number), CO_DTYPE_NONE);

        CO_EXPECT_INT(co_value_dtype(ctx, x), alone[i].dtype);
        CO_EXPECT_INT(co_item_int(ctx, x), alone[i].number);
        CO_EXPECT_INT(co_value_kind(x), CO_KIND_TENSOR);
    }
    CO_EXPECT_INT(co_value_dtype(ctx, co_to_tensor(ctx, co_float(ctx, 0.1), CO_DTYPE_NONE)),
                  CO_FLOAT32);
    CO_EXPECT_INT(co_value_dtype(ctx, co_to_tensor(ctx, co_bool(ctx, true), CO_DTYPE_NONE)),
                  CO_BOOL);
    for (int d = CO_INT8; d <= CO_FLOAT64; ++d) {
        co_value *x = co_cast(ctx, co_scalar_int32(ctx, 3), (co_dtype)d);
        co_value *left = co_mul(ctx, co_int(ctx, 2), x), *right = co_mul(ctx, x, co_int(ctx, 2));

        CO_EXPECT_INT(co_value_dtype(ctx, left), d);
        CO_EXPECT_INT(co_value_dtype(ctx, right), d);
        CO_EXPECT_INT(co_item_int(ctx, left), 6);
        CO_EXPECT_INT(co_item_int(ctx, right), 6);
        if (co_dtype_is_floating((co_dtype)d)) {
            CO_EXPECT_INT(co_value_dtype(ctx, co_mul(ctx, x, co_float(ctx, 2))), d);
        } else {
            CO_EXPECT_NULL(co_mul(ctx, x, co_float(ctx, 2)));
            CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "host float does not convert");
        }
    }
    /* Two host numbers meet in the wider of theirs. */
    CO_EXPECT_INT(co_value_dtype(ctx, co_add(ctx, co_int(ctx, 1), co_int(ctx, 2))), CO_INT32);
    CO_EXPECT_INT(co_value_dtype(ctx, co_add(ctx, co_int(ctx, 1), co_int(ctx, INT64_MAX / 2))),
                  CO_INT64);
    CO_EXPECT_INT(co_value_dtype(ctx, co_add(ctx, co_int(ctx, 1), co_float(ctx, 2))), CO_FLOAT32);
}

CO_TEST(host_numbers_that_do_not_fit_are_errors, "C-VAL-4")
{
    static const struct {
        int64_t  number;
        co_dtype dtype;
        bool     fits;
    } cases[] = {
        { 127, CO_INT8, true },
        { 128, CO_INT8, false },
        { -128, CO_INT8, true },
        { -129, CO_INT8, false },
        { 255, CO_UINT8, true },
        { 256, CO_UINT8, false },
        { -1, CO_UINT8, false },
        { 32767, CO_INT16, true },
        { 32768, CO_INT16, false },
        { 65535, CO_UINT16, true },
        { 65536, CO_UINT16, false },
        { INT32_MAX, CO_INT32, true },
        { 2147483648, CO_INT32, false },
        { 4294967295, CO_UINT32, true },
        { 4294967296, CO_UINT32, false },
        { -1, CO_UINT64, false },
        { INT64_MAX, CO_UINT64, true },
        { INT64_MIN, CO_INT64, true },
        { 1, CO_BOOL, false },
        { 1, CO_STRING, false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_value *x = co_to_tensor(ctx, co_int(ctx, cases[i].number), cases[i].dtype);

        if (cases[i].fits) {
            CO_EXPECT_INT(co_item_int(ctx, x), cases[i].number);
            continue;
        }
        CO_EXPECT_NULL(x);
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, co_dtype_name(cases[i].dtype));
    }
    CO_EXPECT_NULL(co_to_tensor(ctx, co_bool(ctx, true), CO_INT32));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "host bool");
    CO_EXPECT_NULL(co_to_tensor(ctx, co_string(ctx, "1"), CO_INT32));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "host string");
}

CO_TEST(lists_of_numbers_become_tensors, "C-VAL-4")
{
    co_value *row[3] = { co_int(ctx, 1), co_int(ctx, 2), co_int(ctx, 3) };
    co_value *rows[2] = { co_list(ctx, row, 3), co_tuple(ctx, row, 3) };
    co_value *mixed[3] = { row[0], co_float(ctx, 2.5), row[2] };
    co_value *typed[2] = { co_float(ctx, 0.5), co_scalar_double(ctx, 1) };
    co_value *vectors[2] = { co_tensor(ctx, CO_INT64, CO_SHAPE(2), (const int64_t[]){ 1, 2 }),
                             co_tensor(ctx, CO_INT64, CO_SHAPE(2), (const int64_t[]){ 3, 4 }) };
    co_value *matrix = co_to_tensor(ctx, co_list(ctx, rows, 2), CO_DTYPE_NONE);
    double    read[6];

    CO_EXPECT_INT(co_value_dtype(ctx, matrix), CO_INT32);
    CO_EXPECT_INT(co_value_ndim(ctx, matrix), 2);
    CO_EXPECT_INT(co_value_dim(ctx, matrix, 0), 2);
    CO_EXPECT_INT(co_value_dim(ctx, matrix, 1), 3);
    CO_EXPECT_BYTES(co_value_data(ctx, matrix), ((const int32_t[]){ 1, 2, 3, 1, 2, 3 }), 24);
    CO_EXPECT_CODE(co_value_copy_data(ctx, co_list(ctx, mixed, 3), CO_FLOAT64, read, 3), CO_OK);
    CO_EXPECT_CLOSE(read[1], 2.5, 0);
    CO_EXPECT_INT(co_value_dtype(ctx, co_list(ctx, mixed, 3)), CO_FLOAT32);
    CO_EXPECT_INT(co_value_dtype(ctx, co_list(ctx, typed, 2)), CO_FLOAT64);
    CO_EXPECT_INT(co_value_dtype(ctx, co_to_tensor(ctx, co_list(ctx, row, 3), CO_UINT8)), CO_UINT8);
    CO_EXPECT_BYTES(co_value_data(ctx, co_to_tensor(ctx, co_list(ctx, vectors, 2), CO_DTYPE_NONE)),
                    ((const int64_t[]){ 1, 2, 3, 4 }), 32);
    /* An operand that is a list of numbers takes the other's dtype. */
    CO_EXPECT_INT(co_value_dtype(ctx, co_add(ctx, vectors[0], co_list(ctx, row, 2))), CO_INT64);
    CO_EXPECT_INT(co_value_dtype(ctx, co_list(ctx, NULL, 0)), CO_FLOAT32);
    CO_EXPECT_INT(co_value_dim(ctx, co_list(ctx, NULL, 0), 0), 0);
}

CO_TEST(lists_that_are_no_tensor_say_where, "")
{
    co_value   *one = co_int(ctx, 1), *two[2] = { one, one }, *three[3] = { one, one, one };
    co_value   *ragged[2] = { co_list(ctx, two, 2), co_list(ctx, three, 3) };
    co_value   *deeper[2] = { one, co_list(ctx, two, 2) };
    co_value   *shallow[2] = { co_list(ctx, two, 2), one };
    co_value   *none[2] = { one, co_none(ctx) };
    co_value   *words[1] = { co_string(ctx, "word") };
    co_value   *wrong[2] = { co_scalar_float(ctx, 1), co_scalar_double(ctx, 1) };
    co_value   *shapes[2] = { co_zeros(ctx, CO_INT8, CO_SHAPE(2)),
                              co_zeros(ctx, CO_INT8, CO_SHAPE(3)) };
    const char *key = "k";
    co_value   *map = co_dict(ctx, &key, &one, 1), *deep = one;

    CO_EXPECT_NULL(co_to_tensor(ctx, co_list(ctx, ragged, 2), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[1]");
    CO_EXPECT_NULL(co_to_tensor(ctx, co_list(ctx, deeper, 2), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[1]");
    CO_EXPECT_NULL(co_to_tensor(ctx, co_list(ctx, shallow, 2), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[1]");
    CO_EXPECT_NULL(co_to_tensor(ctx, co_list(ctx, none, 2), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "none");
    CO_EXPECT_NULL(co_to_tensor(ctx, co_list(ctx, words, 1), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_tensor_bytes");
    CO_EXPECT_NULL(co_to_tensor(ctx, co_list(ctx, wrong, 2), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[1]");
    CO_EXPECT_NULL(co_to_tensor(ctx, co_list(ctx, shapes, 2), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[1]");
    CO_EXPECT_NULL(co_to_tensor(ctx, map, CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dict");
    CO_EXPECT_NULL(co_to_tensor(ctx, co_list(ctx, &map, 1), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "dict");
    for (int i = 0; i < CO_MAX_DIMS + 1; ++i)
        deep = co_list(ctx, &deep, 1);
    CO_EXPECT_NULL(co_to_tensor(ctx, deep, CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "8 levels");
    CO_EXPECT_NULL(co_to_tensor(ctx, co_scalar_float(ctx, 1), CO_FLOAT64));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "co_cast");
}

/* In default mode; replicas and merge functions are tested with the engine. */
CO_TEST(bundles_outside_a_replica, "DV-USE-1 DV-USE-3")
{
    co_value *parts[2] = { co_scalar_float(ctx, 3), co_scalar_float(ctx, 4) };
    co_value *own = co_per_replica_value(ctx, parts, 2), *same = co_mirrored_value(ctx, parts, 2);

    CO_EXPECT_NULL(co_to_tensor(ctx, own, CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "co_run");
    CO_EXPECT_NULL(co_add(ctx, own, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_run");
    CO_EXPECT_INT(co_value_ndim(ctx, own), 0);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "co_local_results");
    CO_EXPECT_PTR(co_to_tensor(ctx, same, CO_DTYPE_NONE), parts[0]);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_add(ctx, same, co_int(ctx, 1))), 4, 0);
    CO_EXPECT_STR(co_value_device(ctx, same), co_value_device(ctx, parts[0]));
    CO_EXPECT_INT(co_num_items(ctx, own), 2);
    CO_EXPECT_PTR(co_at(ctx, own, 1), parts[1]);
    CO_EXPECT_PTR(co_at(ctx, same, 0), parts[0]);
}

/* Whether an integer of dtype `to` holds every number; a cast wraps those that it does not hold. */
static bool
all_fit(co_context *ctx, co_value *x, co_dtype to)
{
    double numbers[NUM_REALS], cast[NUM_REALS];
    bool   fit = true;

    co_value_copy_data(ctx, x, CO_FLOAT64, numbers, NUM_REALS);
    co_value_copy_data(ctx, co_cast(ctx, x, to), CO_FLOAT64, cast, NUM_REALS);
    for (size_t i = 0; i < NUM_REALS; ++i)
        fit = fit && trunc(numbers[i]) == cast[i];
    return fit || !co_dtype_is_integer(to);
}

CO_TEST(read_data_converts_all_that_fits, "")
{
    for (int from = CO_BOOL; from <= CO_FLOAT64; ++from) {
        co_value *x = co_cast(ctx, co_tensor(ctx, CO_FLOAT64, CO_SHAPE(NUM_REALS), reals),
                              (co_dtype)from);

        for (int to = CO_BOOL; to <= CO_FLOAT64; ++to) {
            double    got[NUM_REALS], want[NUM_REALS];
            char      raw[NUM_REALS * 8];
            co_value *back;

            if (!all_fit(ctx, x, (co_dtype)to)) {
                CO_EXPECT_CODE(co_value_copy_data(ctx, x, (co_dtype)to, raw, NUM_REALS),
                               CO_VALUE_ERROR);
                CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "which is out of range of ");
                continue;
            }
            CO_EXPECT_CODE(co_value_copy_data(ctx, x, (co_dtype)to, raw, NUM_REALS), CO_OK);
            back = co_tensor(ctx, (co_dtype)to, CO_SHAPE(NUM_REALS), raw);
            co_value_copy_data(ctx, back, CO_FLOAT64, got, NUM_REALS);
            co_value_copy_data(ctx, co_cast(ctx, x, (co_dtype)to), CO_FLOAT64, want, NUM_REALS);
            CO_EXPECT_BYTES(got, want, sizeof(got));
        }
    }
    CO_EXPECT_OK(ctx);
}

CO_TEST(items_are_converted, "")
{
    CO_EXPECT_INT(co_item_int(ctx, co_scalar_double(ctx, -2.9)), -2);
    CO_EXPECT_INT(co_item_int(ctx, co_float(ctx, 2.9)), 2);
    CO_EXPECT_INT(co_item_int(ctx, co_bool(ctx, true)), 1);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_int(ctx, 7)), 7, 0);
    /* After an error it is no number that could be taken for a result. */
    CO_EXPECT_TRUE(isnan(co_item_float(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)))));
    CO_EXPECT_TRUE(isnan(co_item_float(ctx, co_int(ctx, 7)))); /* the error is still there */
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "has 2 elements");
    CO_EXPECT_TRUE(isnan(co_item_float(NULL, NULL)));
    CO_EXPECT_CLOSE(co_item_float(ctx, co_float(ctx, 0.1)), 0.1, 0); /* not through float32 */
    CO_EXPECT_CLOSE(co_item_float(ctx, co_tensor(ctx, CO_INT8, CO_SHAPE(1, 1), "\5")), 5, 0);
    CO_EXPECT_INT(co_item_int(ctx, co_int(ctx, INT64_MIN)), INT64_MIN);
    CO_EXPECT_INT(co_item_int(ctx, co_variable(ctx, co_int(ctx, 8), NULL)), 8);
}

CO_TEST(values_are_immutable_and_shared, "C-VAL-1 C-VAL-2")
{
    co_value *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(64), (const float[64]){ 1, 2, 3 });
    co_value *view = co_reshape(ctx, x, CO_SHAPE(8, 8)), *list = co_list(ctx, &x, 1);

    CO_EXPECT_TRUE(view != x);
    CO_EXPECT_PTR(co_value_data(ctx, view),
                  co_value_data(ctx, x));  /* the data is shared, not copied */
    CO_EXPECT_PTR(co_at(ctx, list, 0), x); /* the very same handle comes back */
    CO_EXPECT_PTR(co_to_tensor(ctx, x, CO_FLOAT32), x);
    CO_EXPECT_TRUE(co_identity(ctx, x) != x); /* a view is a new handle */
}
