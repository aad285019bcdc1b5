/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong arguments of the calls on values: each error has the right code and says which argument is
 * wrong, what it is and what would be right. Then each allocation of each call is made to fail in
 * turn.
 */
#include "test.h"

#define WRONG(call, code, part)                                                                    \
    do {                                                                                           \
        CO_EXPECT_FALSE((call));                                                                   \
        CO_EXPECT_ERROR(ctx, code, part);                                                          \
    } while (0)

CO_TEST(making_tensors_wrongly, "GEN-ERR-4")
{
    static const int64_t negative[] = { 2, -3 }, huge[] = { INT64_C(1) << 40, INT64_C(1) << 40 };
    static const int64_t ones[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, large[] = { INT64_C(1) << 60 };
    static const char *const words[] = { "a", NULL };
    static const size_t      lengths[] = { 1, SIZE_MAX };
    float                    data[4] = { 0 };

    WRONG(co_tensor(ctx, CO_DTYPE_NONE, CO_SHAPE(1), data), CO_INVALID_ARGUMENT, "dtype 0");
    WRONG(co_tensor(ctx, CO_NUM_DTYPES, CO_SHAPE(1), data), CO_INVALID_ARGUMENT, "dtype 15");
    WRONG(co_tensor(ctx, (co_dtype)-1, CO_SHAPE(1), data), CO_INVALID_ARGUMENT, "dtype -1");
    WRONG(co_tensor(ctx, CO_FLOAT32, negative, 2, data), CO_INVALID_ARGUMENT, "dimension 1 is -3");
    WRONG(co_tensor(ctx, CO_FLOAT32, huge, 2, data), CO_INVALID_ARGUMENT,
          "[1099511627776,1099511627776]");
    WRONG(co_tensor(ctx, CO_FLOAT64, large, 1, data), CO_INVALID_ARGUMENT, "larger than memory");
    WRONG(co_tensor(ctx, CO_FLOAT32, ones, 9, data), CO_INVALID_ARGUMENT, "at most 8");
    WRONG(co_tensor(ctx, CO_FLOAT32, NULL, 2, data), CO_INVALID_ARGUMENT, "dims is NULL");
    WRONG(co_tensor(ctx, CO_FLOAT32, ones, -1, data), CO_INVALID_ARGUMENT,
          "(ndim) of tensor is -1; it must be 0 to 8");
    WRONG(co_reshape(ctx, co_int(ctx, 1), ones, -1), CO_INVALID_ARGUMENT, "has -1 entries");
    WRONG(co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4), NULL), CO_INVALID_ARGUMENT,
          "argument 5 (data) of tensor is NULL for 4 elements");
    WRONG(co_tensor(ctx, CO_STRING, CO_SHAPE(2), words), CO_INVALID_ARGUMENT, "string 1 of 2");
    WRONG(co_tensor(ctx, CO_STRING, CO_SHAPE(2), NULL), CO_INVALID_ARGUMENT, "argument 5 (data)");
    WRONG(co_tensor_bytes(ctx, CO_SHAPE(2), NULL, NULL), CO_INVALID_ARGUMENT, "argument 4 (bytes)");
    WRONG(co_tensor_bytes(ctx, CO_SHAPE(-1), NULL, NULL), CO_INVALID_ARGUMENT, "-1");
    WRONG(co_tensor_bytes(ctx, CO_SHAPE(1), (const void *const *)words, &lengths[1]),
          CO_RESOURCE_EXHAUSTED, "no memory");
    WRONG(co_zeros(ctx, CO_FLOAT32, huge, 2), CO_INVALID_ARGUMENT, "1099511627776");
    WRONG(co_bytes(ctx, NULL, 3), CO_INVALID_ARGUMENT, "argument 2 (bytes) of bytes is NULL");
    WRONG(co_bytes(ctx, data, SIZE_MAX), CO_RESOURCE_EXHAUSTED, "18446744073709551615 bytes");
    WRONG(co_bytes(ctx, data, PTRDIFF_MAX), CO_RESOURCE_EXHAUSTED, "9223372036854775807 bytes");
    WRONG(co_string(ctx, NULL), CO_INVALID_ARGUMENT, "argument 2 (text) of string is NULL");
    /* More than there is: refused, and the next call works. */
    WRONG(co_zeros(ctx, CO_INT8, CO_SHAPE(INT64_C(1) << 50)), CO_RESOURCE_EXHAUSTED, "CPU:0");
    CO_EXPECT_NOT_NULL(co_zeros(ctx, CO_INT8, CO_SHAPE(10)));
}

CO_TEST(making_specs_and_slices_wrongly, "GEN-ERR-4")
{
    static const int64_t less[] = { 2, -2 }, huge[] = { INT64_MAX, -1, 4 };
    co_value *rows = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 3)), *scalar = co_scalar_float(ctx, 1);
    co_value *two = co_zeros(ctx, CO_INT64, CO_SHAPE(2)),
             *three = co_zeros(ctx, CO_INT64, CO_SHAPE(3));

    WRONG(co_spec(ctx, CO_DTYPE_NONE, NULL, 0), CO_INVALID_ARGUMENT, "dtype 0");
    WRONG(co_spec(ctx, CO_FLOAT32, NULL, -2), CO_INVALID_ARGUMENT,
          "argument 4 (ndim) of spec is -2");
    WRONG(co_spec(ctx, CO_FLOAT32, NULL, 9), CO_INVALID_ARGUMENT, "-1 to 8");
    WRONG(co_spec(ctx, CO_FLOAT32, NULL, 2), CO_INVALID_ARGUMENT,
          "argument 3 (dims) of spec is NULL");
    WRONG(co_spec(ctx, CO_FLOAT32, less, 2), CO_INVALID_ARGUMENT, "dimension 1 of spec is -2");
    WRONG(co_spec(ctx, CO_FLOAT32, huge, 3), CO_INVALID_ARGUMENT, "9223372036854775807");
    WRONG(co_slices(ctx, NULL, two, NULL), CO_INVALID_ARGUMENT, "argument 2 (values)");
    WRONG(co_slices(ctx, rows, NULL, NULL), CO_INVALID_ARGUMENT, "argument 3 (indices)");
    WRONG(co_slices(ctx, co_int(ctx, 1), two, NULL), CO_TYPE_ERROR,
          "is a host integer; it must be a tensor");
    WRONG(co_slices(ctx, rows, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)), NULL), CO_INVALID_ARGUMENT,
          "argument 3 (indices) of slices is float32 [2]");
    WRONG(co_slices(ctx, rows, co_zeros(ctx, CO_INT64, CO_SHAPE(2, 1)), NULL), CO_INVALID_ARGUMENT,
          "int64 [2,1]");
    WRONG(co_slices(ctx, rows, three, NULL), CO_INVALID_ARGUMENT, "one row for each of 3 indices");
    WRONG(co_slices(ctx, scalar, three, NULL), CO_INVALID_ARGUMENT, "has shape []");
    WRONG(co_slices(ctx, rows, two, three), CO_INVALID_ARGUMENT, "with 2 elements");
    WRONG(co_slices(ctx, rows, two, co_string(ctx, "x")), CO_TYPE_ERROR,
          "argument 4 (dense_shape)");
    WRONG(co_slices(ctx, rows, two, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2))), CO_INVALID_ARGUMENT,
          "argument 4 (dense_shape) of slices is float32 [2]");
    WRONG(co_slices_values(ctx, rows), CO_TYPE_ERROR, "is a tensor; it must be indexed slices");
    WRONG(co_slices_indices(ctx, NULL), CO_INVALID_ARGUMENT, "argument 2 (slices)");
    WRONG(co_slices_dense_shape(ctx, rows), CO_TYPE_ERROR, "indexed slices");
}

static co_value *
slices_of(co_context *ctx, int64_t index, const int64_t *shape)
{
    return co_slices(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1, 2)),
                     co_tensor(ctx, CO_INT64, CO_SHAPE(1), &index),
                     co_tensor(ctx, CO_INT64, CO_SHAPE(2), shape));
}

CO_TEST(slices_that_are_no_tensor, "GEN-ERR-4")
{
    static const int64_t good[] = { 3, 2 }, wide[] = { 3, 4 }, negative[] = { -3, 2 };
    static const int64_t huge[] = { INT64_MAX, 2 },
                         vast[] = { 0, (int64_t)1 << 31, (int64_t)1 << 31 };
    co_value *none = co_zeros(ctx, CO_INT64, CO_SHAPE(0)), *empty;

    WRONG(co_to_tensor(ctx, slices_of(ctx, 3, good), CO_DTYPE_NONE), CO_INVALID_ARGUMENT,
          "indices[0] of indexed slices is 3; it must be in [0, 3)");
    WRONG(co_to_tensor(ctx, slices_of(ctx, -1, good), CO_DTYPE_NONE), CO_INVALID_ARGUMENT, "-1");
    WRONG(co_to_tensor(ctx, slices_of(ctx, 0, wide), CO_DTYPE_NONE), CO_INVALID_ARGUMENT,
          "dense shape");
    WRONG(co_to_tensor(ctx, slices_of(ctx, 0, negative), CO_DTYPE_NONE), CO_INVALID_ARGUMENT, "-3");
    WRONG(co_to_tensor(ctx, slices_of(ctx, 0, huge), CO_DTYPE_NONE), CO_INVALID_ARGUMENT,
          "9223372036854775807");
    /* No row at all, of a size whose bytes overflow. */
    empty = co_slices(ctx, co_zeros(ctx, CO_FLOAT32, vast, 3), none,
                      co_tensor(ctx, CO_INT64, CO_SHAPE(3), vast));
    CO_EXPECT_INT(co_value_num_elements(ctx, co_to_tensor(ctx, empty, CO_DTYPE_NONE)), 0);
}

CO_TEST(making_structures_wrongly, "")
{
    static const char *const keys[] = { "a", NULL }, *const twice[] = { "k", "k" };
    co_value *x = co_int(ctx, 1), *items[2] = { x, NULL }, *good[2] = { x, x };

    WRONG(co_list(ctx, NULL, 2), CO_INVALID_ARGUMENT, "argument 2 (items) of list is NULL for 2");
    WRONG(co_tuple(ctx, NULL, 1), CO_INVALID_ARGUMENT, "argument 2 (items) of tuple is NULL");
    WRONG(co_list(ctx, items, 2), CO_INVALID_ARGUMENT, "item 1 of list is NULL; co_none");
    WRONG(co_args(ctx, x, NULL), CO_INVALID_ARGUMENT, "item 1 of tuple is NULL");
    WRONG(co_list(ctx, good, SIZE_MAX / 2), CO_RESOURCE_EXHAUSTED, "no memory");
    WRONG(co_dict(ctx, NULL, good, 2), CO_INVALID_ARGUMENT, "argument 2 (keys) of dict is NULL");
    WRONG(co_dict(ctx, twice, NULL, 2), CO_INVALID_ARGUMENT, "argument 3 (items) of dict is NULL");
    WRONG(co_dict(ctx, keys, good, 2), CO_INVALID_ARGUMENT, "key 1 of 2 is NULL");
    WRONG(co_dict(ctx, twice, good, 2), CO_VALUE_ERROR, "key 'k' is given twice");
    WRONG(co_dict(ctx, keys, &items[1], 1), CO_INVALID_ARGUMENT, "item 0 of dict is NULL");
    WRONG(co_dict(ctx, keys, good, SIZE_MAX / 2), CO_RESOURCE_EXHAUSTED, "no memory");
    WRONG(co_named_tuple(ctx, NULL, keys, good, 1), CO_INVALID_ARGUMENT, "argument 2 (type)");
    WRONG(co_named_tuple(ctx, "T", NULL, good, 1), CO_INVALID_ARGUMENT, "argument 3 (fields)");
    WRONG(co_named_tuple(ctx, "T", keys, NULL, 1), CO_INVALID_ARGUMENT, "argument 4 (items)");
    WRONG(co_named_tuple(ctx, "T", keys, good, 2), CO_INVALID_ARGUMENT, "key 1 of 2 is NULL");
    WRONG(co_named_tuple(ctx, "T", twice, good, 2), CO_VALUE_ERROR, "twice");
}

CO_TEST(looking_wrongly, "")
{
    co_value *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 3)), *none = co_none(ctx);
    co_value *words = co_tensor(ctx, CO_STRING, CO_SHAPE(2), ((const char *[]){ "a", "b" }));
    float     out[6];

    WRONG(co_value_dtype(ctx, NULL), CO_INVALID_ARGUMENT,
          "argument 2 (value) of value_dtype is NULL");
    WRONG(co_value_dtype(ctx, none), CO_TYPE_ERROR, "none");
    WRONG(co_value_ndim(ctx, none), CO_TYPE_ERROR, "none");
    WRONG(co_value_dim(ctx, x, 2), CO_INVALID_ARGUMENT, "argument 3 (axis) of value_dim is 2");
    WRONG(co_value_dim(ctx, x, -3), CO_INVALID_ARGUMENT, "[-2, 2)");
    WRONG(co_value_dim(ctx, x, INT32_MIN), CO_INVALID_ARGUMENT, "-2147483648");
    WRONG(co_value_dim(ctx, co_scalar_float(ctx, 1), 0), CO_INVALID_ARGUMENT, "no axes");
    WRONG(co_value_num_elements(ctx, NULL), CO_INVALID_ARGUMENT, "argument 2");
    WRONG(co_value_data(ctx, NULL), CO_INVALID_ARGUMENT,
          "argument 2 (tensor) of value_data is NULL");
    WRONG(co_value_data(ctx, co_int(ctx, 1)), CO_TYPE_ERROR,
          "is a host integer; it must be a tensor");
    WRONG(co_value_data(ctx, words), CO_TYPE_ERROR, "co_string_at");
    WRONG(co_string_at(ctx, NULL, 0, NULL), CO_INVALID_ARGUMENT, "argument 2");
    WRONG(co_string_at(ctx, x, 0, NULL), CO_TYPE_ERROR, "a tensor of numbers");
    WRONG(co_string_at(ctx, none, 0, NULL), CO_TYPE_ERROR, "none");
    WRONG(co_string_at(ctx, words, 2, NULL), CO_OUT_OF_RANGE, "there are 2 strings");
    WRONG(co_string_at(ctx, words, -1, NULL), CO_OUT_OF_RANGE, "-1");
    WRONG(co_string_at(ctx, co_string(ctx, "x"), 1, NULL), CO_OUT_OF_RANGE,
          "there is 1 string, from 0");
    WRONG(co_item_int(ctx, NULL), CO_INVALID_ARGUMENT, "argument 2 (value) of item_int is NULL");
    WRONG(co_item_int(ctx, x), CO_VALUE_ERROR, "has 6 elements");
    WRONG(!isnan(co_item_float(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0)))), CO_VALUE_ERROR,
          "has 0 elements");
    WRONG(!isnan(co_item_float(ctx, co_string(ctx, "1.5"))), CO_TYPE_ERROR, "string");
    WRONG(co_item_int(ctx, none), CO_TYPE_ERROR, "none");
    WRONG(co_value_copy_data(ctx, NULL, CO_FLOAT32, out, 6) == CO_OK, CO_INVALID_ARGUMENT,
          "argument 2");
    WRONG(co_value_copy_data(ctx, x, CO_STRING, out, 6) == CO_OK, CO_INVALID_ARGUMENT,
          "argument 3 (dtype)");
    WRONG(co_value_copy_data(ctx, x, CO_DTYPE_NONE, out, 6) == CO_OK, CO_INVALID_ARGUMENT,
          "0 (none)");
    WRONG(co_value_copy_data(ctx, x, (co_dtype)77, out, 6) == CO_OK, CO_INVALID_ARGUMENT,
          "77 (invalid)");
    WRONG(co_value_copy_data(ctx, x, CO_FLOAT32, out, 5) == CO_OK, CO_INVALID_ARGUMENT,
          "room for 5");
    WRONG(co_value_copy_data(ctx, x, CO_FLOAT32, out, -1) == CO_OK, CO_INVALID_ARGUMENT,
          "6 elements");
    WRONG(co_value_copy_data(ctx, x, CO_FLOAT32, NULL, 6) == CO_OK, CO_INVALID_ARGUMENT,
          "argument 4 (out)");
    WRONG(co_value_copy_data(ctx, words, CO_FLOAT32, out, 6) == CO_OK, CO_TYPE_ERROR, "strings");
    WRONG(co_value_copy_data(ctx, none, CO_FLOAT32, out, 6) == CO_OK, CO_TYPE_ERROR,
          "does not convert");
    CO_EXPECT_CODE(
        co_value_copy_data(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0)), CO_INT8, NULL, 0), CO_OK);
    WRONG(co_value_device(ctx, co_per_replica_value(ctx, &x, 1))[0], CO_VALUE_ERROR,
          "outside a replica");
    WRONG(co_value_device(ctx, NULL)[0], CO_INVALID_ARGUMENT, "argument 2");
    WRONG(co_value_device(ctx, co_int(ctx, 1))[0], CO_TYPE_ERROR, "lives on no device");
}

CO_TEST(integers_read_out_must_fit, "")
{
    static const double wide[] = { 1, -2.9, NAN, 300 };
    co_value           *x = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(4), wide);
    co_value           *large = co_scalar_int64(ctx, INT64_C(1) << 40);
    co_value *all = co_cast(ctx, co_sub(ctx, co_int(ctx, 0), co_scalar_int64(ctx, 1)), CO_UINT64);
    int64_t   out[4] = { 7, 7, 7, 7 };
    uint8_t   bytes[4];

    WRONG(
        co_item_int(ctx, co_float(ctx, 1e300)), CO_VALUE_ERROR,
        "argument 2 (value) of item_int is 1e+300, which is out of range of int64; the limits are "
        "-9223372036854775808 and 9223372036854775807");
    WRONG(co_item_int(ctx, co_float(ctx, 0x1p63)), CO_VALUE_ERROR, "is 9.223372036854776e+18");
    WRONG(co_item_int(ctx, co_float(ctx, -INFINITY)), CO_VALUE_ERROR,
          "is -inf, which is out of range of int64");
    WRONG(co_item_int(ctx, co_scalar_float(ctx, NAN)), CO_VALUE_ERROR,
          "is nan, which is out of range of int64");
    WRONG(co_item_int(ctx, all), CO_VALUE_ERROR,
          "is 18446744073709551615, which is out of range of int64");
    WRONG(
        co_value_copy_data(ctx, x, CO_INT64, out, 4) == CO_OK, CO_VALUE_ERROR,
        "element 2 of argument 2 (value) of value_copy_data is nan, which is out of range of int64");
    CO_EXPECT_INT(out[0], 7); /* nothing was copied */
    WRONG(
        co_value_copy_data(ctx, x, CO_UINT64, out, 4) == CO_OK, CO_VALUE_ERROR,
        "element 1 of argument 2 (value) of value_copy_data is -2.9, which is out of range of uint64; the limits are "
        "0 and 18446744073709551615");
    WRONG(
        co_value_copy_data(ctx, large, CO_INT32, out, 4) == CO_OK, CO_VALUE_ERROR,
        "is 1099511627776, which is out of range of int32; the limits are -2147483648 and 2147483647");
    WRONG(co_value_copy_data(ctx, co_scalar_int64(ctx, -1), CO_UINT8, bytes, 4) == CO_OK,
          CO_VALUE_ERROR, "is -1, which is out of range of uint8");

    /* The edges, and fractions, which are cut towards 0. */
    CO_EXPECT_INT(co_item_int(ctx, co_float(ctx, -0x1p63)), INT64_MIN);
    CO_EXPECT_INT(co_item_int(ctx, co_float(ctx, -2.9)), -2);
    CO_EXPECT_CODE(co_value_copy_data(ctx, co_float(ctx, 255.5), CO_UINT8, bytes, 4), CO_OK);
    CO_EXPECT_INT(bytes[0], 255);
    CO_EXPECT_CODE(co_value_copy_data(ctx, co_float(ctx, -0.5), CO_UINT8, bytes, 4), CO_OK);
    CO_EXPECT_INT(bytes[0], 0);
    CO_EXPECT_CODE(co_value_copy_data(ctx, all, CO_UINT64, out, 4), CO_OK);
    CO_EXPECT_TRUE((uint64_t)out[0] == UINT64_MAX);
    CO_EXPECT_CODE(co_value_copy_data(ctx, x, CO_BOOL, bytes, 4), CO_OK); /* x != 0 */
    CO_EXPECT_INT(bytes[2], 1);
}

/* user: a value of another runtime. */
static co_value *
give_user(co_context *ctx, co_value *leaf, void *user)
{
    (void)ctx;
    (void)leaf;
    return user;
}

CO_TEST(items_of_another_runtime_are_refused, "C-ARG-1")
{
    co_context *other = co_open(NULL);
    co_value   *theirs = co_int(other, 1), *x = co_int(ctx, 1), *pair[2] = { x, x };

    WRONG(co_list(ctx, &theirs, 1), CO_VALUE_ERROR, "item 0 of list is a value of another runtime");
    WRONG(co_mirrored_value(ctx, &theirs, 1), CO_VALUE_ERROR,
          "component 0 of mirrored_value is a value of another");
    WRONG(co_map_structure(ctx, co_list(ctx, pair, 2), give_user, theirs), CO_VALUE_ERROR,
          "what the function of map_structure returned is a value of another runtime");
    CO_EXPECT_CODE(co_close(other), CO_OK);
}

CO_TEST(a_key_that_is_not_there_is_told_of_those_that_are, "")
{
    static char names[40][40];
    const char *keys[40];
    co_value   *items[40];

    for (int i = 0; i < 40; ++i) {
        snprintf(names[i], sizeof(names[i]), "a_key_of_some_length_%02d", i);
        keys[i] = names[i];
        items[i] = co_int(ctx, i);
    }
    WRONG(
        co_get(ctx, co_dict(ctx, keys, items, 3), "x"), CO_NOT_FOUND,
        "there are 'a_key_of_some_length_00', 'a_key_of_some_length_01', 'a_key_of_some_length_02'");
    WRONG(co_get(ctx, co_dict(ctx, keys, items, 40), "x"), CO_NOT_FOUND,
          "'a_key_of_some_length_13', 'a_key_of_some_len..."); /* there is no more room */
}

CO_TEST(where_there_is_no_device_there_are_no_tensors, "DEV-5")
{
    static char *const words[] = { "one" };
    static float       memory[1];
    co_value          *x = co_int(ctx, 1);

    CO_DEVICE(ctx, "/gpu:7") {
        WRONG(co_to_tensor(ctx, x, CO_FLOAT32), CO_INVALID_ARGUMENT, "GPU:7");
        WRONG(co_to_tensor(ctx, co_list(ctx, &x, 1), CO_FLOAT32), CO_INVALID_ARGUMENT, "GPU:7");
        WRONG(co_tensor(ctx, CO_STRING, CO_SHAPE(1), words), CO_INVALID_ARGUMENT, "GPU:7");
        WRONG(co_tensor_borrow(ctx, CO_FLOAT32, CO_SHAPE(1), memory, NULL, NULL),
              CO_INVALID_ARGUMENT, "GPU:7");
        WRONG(co_scalar_float(ctx, 1), CO_INVALID_ARGUMENT, "GPU:7");
    }
    CO_EXPECT_NOT_NULL(co_to_tensor(ctx, x, CO_FLOAT32));
}

CO_TEST(using_structures_wrongly, "")
{
    co_value *x = co_int(ctx, 1), *list = co_list(ctx, &x, 1);

    WRONG(co_num_items(ctx, NULL), CO_INVALID_ARGUMENT,
          "argument 2 (structure) of num_items is NULL");
    WRONG(co_num_items(ctx, x), CO_TYPE_ERROR, "is a host integer, which has no items");
    WRONG(co_at(ctx, x, 0), CO_TYPE_ERROR, "host integer");
    WRONG(co_at(ctx, NULL, 0), CO_INVALID_ARGUMENT, "argument 2");
    WRONG(co_at(ctx, list, 1), CO_OUT_OF_RANGE,
          "argument 3 (i) of at is 1; the list has 1 item, from 0");
    WRONG(co_at(ctx, list, SIZE_MAX), CO_OUT_OF_RANGE, "18446744073709551615");
    WRONG(co_get(ctx, list, "k"), CO_TYPE_ERROR, "is a list; it must be a dict or a named tuple");
    WRONG(co_get(ctx, NULL, "k"), CO_INVALID_ARGUMENT, "argument 2");
    WRONG(co_get(ctx, co_dict(ctx, NULL, NULL, 0), NULL), CO_INVALID_ARGUMENT, "argument 3 (key)");
    WRONG(co_key(ctx, NULL, 0), CO_INVALID_ARGUMENT, "argument 2");
    WRONG(co_key(ctx, x, 0), CO_TYPE_ERROR, "host integer");
    WRONG(co_named_tuple_name(ctx, NULL), CO_INVALID_ARGUMENT, "argument 2");
    WRONG(co_named_tuple_name(ctx, list), CO_TYPE_ERROR, "is a list; it must be a named tuple");
    WRONG(co_flatten(ctx, NULL), CO_INVALID_ARGUMENT, "argument 2 (structure) of flatten is NULL");
    WRONG(co_pack(ctx, NULL, list), CO_INVALID_ARGUMENT, "argument 2 (like) of pack is NULL");
    WRONG(co_pack(ctx, list, NULL), CO_INVALID_ARGUMENT, "argument 3 (leaves) of pack is NULL");
    WRONG(co_map_structure(ctx, NULL, NULL, NULL), CO_INVALID_ARGUMENT, "argument 2");
    WRONG(co_map_structure(ctx, x, NULL, NULL), CO_INVALID_ARGUMENT, "argument 3 (fn)");
    WRONG(co_assert_same_structure(ctx, NULL, x) == CO_OK, CO_INVALID_ARGUMENT, "argument 2 (a)");
    WRONG(co_assert_same_structure(ctx, x, NULL) == CO_OK, CO_INVALID_ARGUMENT, "argument 3 (b)");
    WRONG(co_to_tensor(ctx, NULL, CO_FLOAT32), CO_INVALID_ARGUMENT, "argument 2");
    WRONG(co_to_tensor(ctx, x, (co_dtype)99), CO_INVALID_ARGUMENT,
          "argument 3 (dtype) of to_tensor is 99");
    WRONG(co_copy_to(ctx, NULL, ""), CO_INVALID_ARGUMENT, "argument 2");
    WRONG(co_copy_to(ctx, x, "/nowhere:1"), CO_VALUE_ERROR, "nowhere");
    co_keep(ctx, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (handle) of keep is NULL");
    co_release(ctx, NULL); /* as free(NULL) */
    CO_EXPECT_OK(ctx);
    WRONG(co_escape(ctx, NULL), CO_INVALID_ARGUMENT, "argument 2 (value) of escape is NULL");
}

/* What all operators share: operands of every kind through the one place where they run. */
CO_TEST(operands_of_every_kind, "GEN-ERR-4 C-VAL-4")
{
    static const char *const key = "k";
    co_value                *x = co_scalar_float(ctx, 1),
             *wrong[] = { co_none(ctx), co_spec(ctx, CO_FLOAT32, NULL, 0),
                          co_dict(ctx, &key, &x, 1), co_named_tuple(ctx, "T", &key, &x, 1) };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        WRONG(co_add(ctx, x, wrong[i]), CO_TYPE_ERROR, co_kind_name(co_value_kind(wrong[i])));
        WRONG(co_add(ctx, wrong[i], x), CO_TYPE_ERROR, co_kind_name(co_value_kind(wrong[i])));
        WRONG(co_neg(ctx, wrong[i]), CO_TYPE_ERROR, co_kind_name(co_value_kind(wrong[i])));
    }
    WRONG(co_add(ctx, NULL, x), CO_INVALID_ARGUMENT, "argument 2 (x) of add is NULL");
    WRONG(co_add(ctx, x, NULL), CO_INVALID_ARGUMENT, "argument 3 (y) of add is NULL");
    WRONG(co_neg(ctx, NULL), CO_INVALID_ARGUMENT, "argument 2 (x) of neg is NULL");
    WRONG(co_add(ctx, x, co_scalar_double(ctx, 1)), CO_INVALID_ARGUMENT,
          "x has dtype float32 and y has dtype float64; they must be the same (co_cast converts)");
    WRONG(co_add(ctx, x, co_string(ctx, "s")), CO_INVALID_ARGUMENT, "host string");
    WRONG(co_add(ctx, co_bool(ctx, true), co_bool(ctx, true)), CO_INVALID_ARGUMENT, "bool");
    WRONG(co_add(ctx, co_bool(ctx, true), co_int(ctx, 1)), CO_INVALID_ARGUMENT,
          "does not convert to bool");
    WRONG(co_add(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)),
                 co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3))),
          CO_INVALID_ARGUMENT, "shapes [2] of x and [3] of y");
    WRONG(co_sqrt(ctx, co_scalar_int32(ctx, 4)), CO_INVALID_ARGUMENT,
          "x has dtype int32; it must be one of");
    CO_EXPECT_INT(
        co_item_int(ctx, co_add(ctx, co_variable(ctx, co_int(ctx, 2), NULL), co_int(ctx, 3))), 5);
    /* Broadcasting that would make more than there can be. */
    WRONG(co_broadcast_to(ctx, x, CO_SHAPE(INT64_C(1) << 24, INT64_C(1) << 24)),
          CO_RESOURCE_EXHAUSTED, "1125899906842624 bytes");
    WRONG(co_broadcast_to(ctx, x, CO_SHAPE(INT64_C(1) << 40, INT64_C(1) << 40)),
          CO_INVALID_ARGUMENT, "1099511627776");
}

static co_value *
attrs_of(co_context *ctx, const char *name, co_value *value)
{
    return co_dict(ctx, &name, &value, 1);
}

CO_TEST(calling_operators_by_name_wrongly, "")
{
    co_value *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 2)), *one = co_tuple(ctx, &x, 1);
    co_value *many[9];

    for (int i = 0; i < 9; ++i)
        many[i] = co_int(ctx, i);
    WRONG(co_op_call(ctx, NULL, one, NULL), CO_INVALID_ARGUMENT, "argument 2 (name)");
    WRONG(co_op_call(ctx, "", one, NULL), CO_NOT_FOUND, "co_op_describe");
    WRONG(co_op_call(ctx, "Neg", one, NULL), CO_NOT_FOUND, "'Neg'");
    WRONG(co_op_call(ctx, "neg", NULL, NULL), CO_INVALID_ARGUMENT, "argument 3 (inputs)");
    WRONG(co_op_call(ctx, "neg", x, NULL), CO_TYPE_ERROR,
          "is a tensor; it must be a tuple or list");
    WRONG(co_op_call(ctx, "neg", co_no_args(ctx), NULL), CO_INVALID_ARGUMENT,
          "0 inputs; it takes 1");
    WRONG(co_op_call(ctx, "add", one, NULL), CO_INVALID_ARGUMENT, "1 input; it takes 2");
    WRONG(co_op_call(ctx, "concat", co_no_args(ctx), attrs_of(ctx, "axis", co_int(ctx, 0))),
          CO_INVALID_ARGUMENT, "at least 1");
    WRONG(co_op_call(ctx, "neg", one, x), CO_TYPE_ERROR, "argument 4 (attrs)");
    WRONG(co_op_call(ctx, "neg", one, attrs_of(ctx, "axis", many[0])), CO_TYPE_ERROR,
          "no attribute 'axis'");
    WRONG(co_op_call(ctx, "cast", one, NULL), CO_TYPE_ERROR, "needs the attribute 'dtype'");
    WRONG(co_op_call(ctx, "cast", one, attrs_of(ctx, "dtype", many[0])), CO_TYPE_ERROR,
          "expected a string");
    WRONG(co_op_call(ctx, "cast", one, attrs_of(ctx, "dtype", co_string(ctx, "float99"))),
          CO_INVALID_ARGUMENT, "float99");
    WRONG(co_op_call(ctx, "softmax", one, attrs_of(ctx, "axis", co_string(ctx, "x"))),
          CO_TYPE_ERROR, "expected a whole number");
    WRONG(co_op_call(ctx, "softmax", one, attrs_of(ctx, "axis", co_int(ctx, INT64_MIN))),
          CO_INVALID_ARGUMENT, "axis -9223372036854775808");
    WRONG(co_op_call(ctx, "reduce_sum", one, attrs_of(ctx, "axis", co_list(ctx, many, 9))),
          CO_INVALID_ARGUMENT, "9 numbers; at most 8");
    WRONG(co_op_call(ctx, "reduce_sum", one, attrs_of(ctx, "axis", co_float(ctx, 1))),
          CO_TYPE_ERROR, "list of whole numbers");
    WRONG(co_op_call(ctx, "reduce_sum", one, attrs_of(ctx, "keepdims", many[1])), CO_TYPE_ERROR,
          "a bool");
    WRONG(co_op_call(ctx, "matmul", one, attrs_of(ctx, "transpose_a", co_none(ctx))),
          CO_INVALID_ARGUMENT, "1 input;");
    CO_EXPECT_NOT_NULL(co_op_call(ctx, "neg", one, co_none(ctx))); /* none is no attributes */
    CO_EXPECT_NOT_NULL(co_op_call(ctx, "reduce_sum", one, attrs_of(ctx, "axis", co_none(ctx))));
    CO_EXPECT_OK(ctx);
}

/* --- want of memory: every allocation of every maker fails in turn --- */

static bool
make_host_values(co_context *ctx)
{
    return co_int(ctx, 1) && co_float(ctx, 1) && co_bool(ctx, true) && co_none(ctx) &&
           co_string(ctx,
                     "a string that is longer than a small block of sixty-four bytes is long") &&
           co_bytes(ctx, NULL, 0);
}

static bool
make_tensors(co_context *ctx)
{
    static const char *const words[] = { "one", "two" };
    static float             data[100];

    return co_tensor(ctx, CO_FLOAT32, CO_SHAPE(100), data) &&
           co_tensor(ctx, CO_STRING, CO_SHAPE(2), words) && co_scalar_double(ctx, 1) &&
           co_tensor_borrow(ctx, CO_FLOAT32, CO_SHAPE(100), data, NULL, NULL) &&
           co_spec(ctx, CO_INT8, NULL, -1) && co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3, 3)) &&
           co_copy_to(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2)), "/cpu:0");
}

static co_value *
repeat(co_context *ctx, co_value *leaf, void *user)
{
    (void)user;
    return co_args(ctx, leaf, leaf);
}

static bool
make_structures(co_context *ctx)
{
    static const char *names[40];
    static char        texts[40][8];
    co_value          *items[40], *map, *list, *tuple, *bundle, *packed, *mapped;

    for (int i = 0; i < 40; ++i) {
        snprintf(texts[i], sizeof(texts[i]), "k%d", i);
        names[i] = texts[i];
        items[i] = co_int(ctx, i);
    }
    list = co_list(ctx, items, 40);
    map = co_dict(ctx, names, items, 40);
    tuple = co_named_tuple(ctx, "Type", names, items, 40);
    bundle = co_per_replica_value(ctx, items, 40);
    packed = co_pack(ctx, map, co_flatten(ctx, tuple));
    mapped = co_map_structure(ctx, packed, repeat, NULL);
    return list && map && tuple && bundle && mapped && co_mirrored_value(ctx, &list, 1) &&
           co_at(ctx, list, 3) && co_get(ctx, map, "k7") && co_no_args(ctx);
}

static bool
make_slices(co_context *ctx)
{
    static const int64_t index[] = { 1 }, shape[] = { 4, 20 };
    co_value            *slices = co_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 20)),
                                            co_tensor(ctx, CO_INT64, CO_SHAPE(1), index),
                                            co_tensor(ctx, CO_INT64, CO_SHAPE(2), shape));

    return slices && co_slices_values(ctx, slices) && co_slices_indices(ctx, slices) &&
           co_slices_dense_shape(ctx, slices) && co_to_tensor(ctx, slices, CO_DTYPE_NONE);
}

static bool
make_lists_of_numbers(co_context *ctx)
{
    co_value *row[30], *rows[3];

    for (int i = 0; i < 30; ++i)
        row[i] = i % 2 == 0 ? co_int(ctx, i) : co_scalar_float(ctx, 1);
    for (int i = 0; i < 3; ++i)
        rows[i] = co_list(ctx, row, 30);
    return co_to_tensor(ctx, co_list(ctx, rows, 3), CO_DTYPE_NONE) &&
           co_add(ctx, co_list(ctx, row, 30), co_scalar_float(ctx, 1));
}

/* Blocks, devices and tapes in one another, more than fit in their first room. */
static bool
nest_everything(co_context *ctx)
{
    co_value *x = co_scalar_float(ctx, 1), *y = x;

    for (int i = 0; i < 12; ++i) {
        co_block_begin(ctx);
        co_device_begin(ctx, "/cpu:0");
        co_tape_begin(ctx);
        co_watch(ctx, x);
        y = co_mul(ctx, y, x);
        for (int k = 0; k < 20; ++k)
            co_escape(ctx, co_int(ctx, k));
    }
    for (int i = 0; i < 12; ++i) {
        co_tape_end(ctx);
        co_device_end(ctx);
        co_block_end(ctx);
    }
    if (ctx != NULL) /* whatever failed: everything is closed again */
        CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:0");
    return co_ok(ctx);
}

static bool
open_another(co_context *ctx)
{
    co_context *other = co_open_beside(ctx);
    bool        ok;

    if (other == NULL) { /* the only sign that there is */
        co_fail(ctx, CO_RESOURCE_EXHAUSTED, "no context");
        return false;
    }
    ok = co_add(other, co_int(other, 1), co_int(other, 2)) != NULL;
    if (!ok)
        co_fail(ctx, co_error(other)->code, "%s", co_error(other)->message);
    co_clear(other);
    co_close(other);
    return ok;
}

static bool
call_by_name(co_context *ctx)
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 3)), *parts[20];

    for (int i = 0; i < 20; ++i)
        parts[i] = x;
    return co_op_call(ctx, "softmax", co_args(ctx, x), attrs_of(ctx, "axis", co_int(ctx, 0))) &&
           co_op_call(ctx, "concat", co_list(ctx, parts, 20),
                      attrs_of(ctx, "axis", co_int(ctx, 1)));
}

static bool
declare(co_context *ctx)
{
    char      name[CO_DEVICE_NAME_MAX];
    co_value *x;

    if (co_declare_devices(ctx, "GPU", 3) != CO_OK ||
        co_device_resolve(ctx, "gpu:2", name) != CO_OK)
        return false;
    x = co_copy_to(ctx, co_scalar_float(ctx, 1), name);
    return x != NULL && strstr(co_value_device(ctx, x), "GPU:2") != NULL;
}

CO_TEST_BARE(host_values_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, make_host_values);
}

CO_TEST_BARE(tensors_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, make_tensors);
}

CO_TEST_BARE(structures_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, make_structures);
}

CO_TEST_BARE(slices_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, make_slices);
}

CO_TEST_BARE(lists_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, make_lists_of_numbers);
}

CO_TEST_BARE(nesting_survives_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, nest_everything);
}

CO_TEST_BARE(contexts_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2, devices=GPU:1", open_another);
}

CO_TEST_BARE(calls_by_name_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, call_by_name);
}

CO_TEST_BARE(declaring_survives_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, declare);
}

/* What a newcomer does in the first hour: the message says what to do instead. */
CO_TEST_WITH(messages_have_the_repair, "", "cpus=2")
{
    static const char *const twice[] = { "a", "a" };
    co_value                *one = co_int(ctx, 1), *items[] = { one, one }, *parts[2];
    co_value                *x = co_ones(ctx, CO_INT32, CO_SHAPE(2)), *both;
    co_strategy             *gone = NULL;

    WRONG(co_mul(ctx, x, co_float(ctx, 0.5)), CO_INVALID_ARGUMENT,
          "a host float does not convert to int32; it is 0.5; give a value of that dtype, as "
          "co_cast makes");
    WRONG(co_mul(ctx, x, co_string(ctx, "two")), CO_INVALID_ARGUMENT,
          "it is \"two\"; give a value of that dtype");
    WRONG(co_at(ctx, x, 0), CO_TYPE_ERROR,
          "which has no items; give a list, tuple or dict (co_slice takes a part of a tensor)");
    WRONG(co_dict(ctx, twice, items, 2), CO_VALUE_ERROR, "'a' is given twice; name every key once");
    WRONG(co_list(ctx, NULL, 2), CO_INVALID_ARGUMENT, "NULL for 2 items; it must point to them");
    WRONG(co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1), NULL), CO_INVALID_ARGUMENT,
          "NULL for 1 element; it must point to it");
    parts[0] = parts[1] = x;
    both = co_per_replica_value(ctx, parts, 2);
    WRONG(co_value_data(ctx, both), CO_TYPE_ERROR, "co_local_results gives its parts");
    CO_BLOCK(ctx) {
        gone = co_one_device_strategy(ctx, "/cpu:0");
    }
    WRONG(co_worker_devices(ctx, gone), CO_TYPE_ERROR, "released; co_keep it to use it longer");
    co_keep(ctx, gone);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "call co_keep before that");
}
