/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are used as tensors: nested lists, per-replica values in every context, and what does
 * not convert. */
#include "engine_support.h"

static co_value *
scalar(co_context *ctx, double x)
{
    return co_scalar_float(ctx, (float)x);
}

static co_value *
pair(co_context *ctx, co_value *a, co_value *b)
{
    return co_list(ctx, (co_value *const[]){ a, b }, 2);
}

/* As an initial value: the conversion alone, without operators. */
static co_value *
convert(co_context *ctx, co_value *value)
{
    return co_variable_read(ctx, co_variable(ctx, value, NULL));
}

CO_TEST(a_nested_list_becomes_a_tensor, "C-VAL-4")
{
    co_value *numbers = pair(ctx, pair(ctx, co_int(ctx, 1), co_int(ctx, 2)),
                             pair(ctx, co_int(ctx, 3), co_float(ctx, 4.5)));
    co_value *tensor = convert(ctx, numbers);
    float     out[4];

    CO_EXPECT_INT(co_value_dtype(ctx, tensor), CO_FLOAT32);
    CO_EXPECT_INT(co_value_ndim(ctx, tensor), 2);
    co_value_copy_data(ctx, tensor, CO_FLOAT32, out, (int64_t)(sizeof(out) / sizeof(out[0])));
    CO_EXPECT_CLOSE(out[0], 1, 0);
    CO_EXPECT_CLOSE(out[3], 4.5, 0);
}

CO_TEST(a_list_without_numbers_is_an_empty_float_tensor, "")
{
    co_value *tensor = convert(ctx, co_list(ctx, NULL, 0));

    CO_EXPECT_INT(co_value_dtype(ctx, tensor), CO_FLOAT32);
    CO_EXPECT_INT(co_value_num_elements(ctx, tensor), 0);
}

CO_TEST(host_numbers_of_a_list_follow_its_tensors, "C-VAL-4")
{
    co_value *variable = convert(ctx, pair(ctx, scalar(ctx, 2), co_int(ctx, 3)));
    co_value *doubles = co_scalar_double(ctx, 7);

    CO_EXPECT_INT(co_value_dtype(ctx, variable), CO_FLOAT32);
    CO_EXPECT_INT(co_value_dtype(ctx, convert(ctx, pair(ctx, co_int(ctx, 1), doubles))),
                  CO_FLOAT64);
    CO_EXPECT_INT(co_value_dtype(ctx,
                                 convert(ctx, pair(ctx, co_variable(ctx, doubles, NULL), doubles))),
                  CO_FLOAT64);
}

CO_TEST(lists_of_tensors_gain_their_dimensions, "")
{
    int64_t   two[] = { 2 }, none[] = { 0 };
    co_value *row = co_ones(ctx, CO_FLOAT32, two, 1), *empty = co_ones(ctx, CO_FLOAT32, none, 1);
    co_value *tensor = convert(ctx, pair(ctx, row, row));

    CO_EXPECT_INT(co_value_ndim(ctx, tensor), 2);
    CO_EXPECT_INT(co_value_num_elements(ctx, tensor), 4);
    CO_EXPECT_INT(co_value_num_elements(ctx, convert(ctx, pair(ctx, empty, empty))), 0);
}

CO_TEST(lists_that_are_no_rectangle_are_refused_with_the_place, "")
{
    int64_t   two[] = { 2 }, three[] = { 3 };
    co_value *one = co_int(ctx, 1), *list = pair(ctx, one, one);
    co_value *row = co_ones(ctx, CO_FLOAT32, two, 1), *longer = co_ones(ctx, CO_FLOAT32, three, 1);
    co_value *doubles = co_ones(ctx, CO_FLOAT64, two, 1);
    struct {
        co_value   *list;
        const char *part;
    } bad[] = {
        { pair(ctx, list, one), "no list where others have one at [1]" },
        { pair(ctx, one, list), "a list where others have none at [1]" },
        { pair(ctx, list, co_list(ctx, &one, 1)), "another number of items than before at [1]" },
        { pair(ctx, row, longer), "another shape or dtype than before at [1]" },
        { pair(ctx, row, one), "another shape or dtype than before at [1]" },
        { pair(ctx, row, doubles), "another shape or dtype than before at [1]" },
        { pair(ctx, list, co_dict(ctx, (const char *const[]){ "a" }, &one, 1)), "dict at [1]" },
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        CO_EXPECT_NULL(co_variable(ctx, bad[i].list, NULL));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, bad[i].part);
    }
}

CO_TEST(lists_deeper_than_a_tensor_are_refused, "")
{
    int64_t   ones[CO_MAX_DIMS] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    co_value *deep = co_int(ctx, 1), *leaf = co_ones(ctx, CO_FLOAT32, ones, CO_MAX_DIMS);

    for (int i = 0; i <= CO_MAX_DIMS; ++i)
        deep = co_list(ctx, &deep, 1);
    CO_EXPECT_NULL(co_variable(ctx, deep, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "levels");
    CO_EXPECT_NULL(co_variable(ctx, co_list(ctx, &leaf, 1), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "at most 8 dimensions");
}

CO_TEST(what_no_tensor_can_hold_is_refused, "")
{
    co_value *text = co_string(ctx, "x"), *nothing = co_none(ctx);

    CO_EXPECT_NULL(co_variable(ctx, co_list(ctx, &text, 1), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_tensor_bytes");
    CO_EXPECT_NULL(co_variable(ctx, co_list(ctx, &nothing, 1), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "none");
    CO_EXPECT_NULL(co_variable(ctx, pair(ctx, scalar(ctx, 1), nothing), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "none");
}

CO_TEST_WITH(lists_hold_bundles_and_variables, "DV-USE-3 DV-USE-1", "cpus=2")
{
    co_value *parts[] = { scalar(ctx, 1), scalar(ctx, 2) };
    co_value *mirrored = co_mirrored_value(ctx, parts, 2),
             *per_replica = co_per_replica_value(ctx, parts, 2);
    co_value *tensor = convert(ctx, pair(ctx, mirrored, co_variable(ctx, parts[1], NULL)));
    float     out[2];

    co_value_copy_data(ctx, tensor, CO_FLOAT32, out, (int64_t)(sizeof(out) / sizeof(out[0])));
    CO_EXPECT_CLOSE(out[0], 1, 0);
    CO_EXPECT_CLOSE(out[1], 2, 0);
    CO_EXPECT_NULL(co_variable(ctx, pair(ctx, mirrored, per_replica), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "co_run");
    CO_EXPECT_NULL(co_variable(ctx, pair(ctx, per_replica, mirrored), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "co_local_results");
}

/* A mirrored value of which component i lives on cpu:i and holds i + 1. */
static co_value *
mirrored_on_devices(co_context *ctx)
{
    co_value *parts[2];

    for (int i = 0; i < 2; ++i) {
        co_device_begin(ctx, i == 0 ? "/cpu:0" : "/cpu:1");
        parts[i] = scalar(ctx, i + 1);
        co_device_end(ctx);
    }
    return co_mirrored_value(ctx, parts, 2);
}

static co_value *
read_captured(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_identity(ctx, user);
}

CO_TEST_WITH(a_mirrored_value_is_read_where_the_context_is, "DV-USE-2 DV-USE-3", "cpus=2")
{
    co_strategy *strategy = test_mirrored(ctx, 2, -1);
    co_value    *mirrored = mirrored_on_devices(ctx);
    co_value    *results;

    CO_EXPECT_CLOSE(co_item_float(ctx, mirrored), 1, 0);
    co_device_begin(ctx, "/cpu:1");
    CO_EXPECT_CLOSE(co_item_float(ctx, mirrored), 1, 0); /* default mode: the first */
    CO_SCOPE(ctx, strategy) {
        CO_EXPECT_CLOSE(co_item_float(ctx, mirrored), 2, 0); /* cross: the one that is here */
        CO_EXPECT_CLOSE(
            co_item_float(ctx, co_mirrored_value(ctx, (co_value *const[]){ co_int(ctx, 7) }, 1)), 7,
            0);
    }
    co_device_end(ctx);
    results = co_local_results(ctx, strategy,
                               co_run(ctx, strategy, read_captured, co_no_args(ctx), mirrored));
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, results, 0)), 1, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, results, 1)), 2, 0);
}

CO_TEST_WITH(a_bundle_too_short_for_its_replica_is_refused, "DV-USE-2", "cpus=2")
{
    co_strategy *strategy = test_mirrored(ctx, 2, -1);
    co_value    *one = scalar(ctx, 1), *bundle = co_per_replica_value(ctx, &one, 1);

    CO_EXPECT_NULL(co_run(ctx, strategy, read_captured, co_no_args(ctx), bundle));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "1 component is used in a step of 2 replicas here");
}

static co_value *
assign_captured(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)args;
    return co_assign(ctx, variable, co_add(ctx, user, co_int(ctx, 0)));
}

CO_TEST_WITH(an_update_sees_the_component_that_it_updates, "DV-USE-3 EXT-UPD-1", "cpus=2")
{
    co_strategy *strategy = test_mirrored(ctx, 2, -1);
    co_value    *mirrored = mirrored_on_devices(ctx), *variable = NULL, *results;

    CO_SCOPE(ctx, strategy) {
        variable = co_variable(ctx, co_float(ctx, 0), NULL);
        co_update(ctx, strategy, variable, assign_captured, co_no_args(ctx), mirrored, NULL);
    }
    results = co_local_results(ctx, strategy, variable);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, results, 0)), 1, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, results, 1)), 2, 0);
}

static co_value *
use_captured(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)args;
    (void)variable;
    return co_add(ctx, user, co_int(ctx, 0));
}

/* A bundle of one component says nothing of the second. */
CO_TEST_WITH(an_update_has_no_part_in_a_bundle_that_is_too_short, "DV-USE-1", "cpus=2")
{
    co_strategy *strategy = test_mirrored(ctx, 2, -1);
    co_value *one = scalar(ctx, 1), *bundle = co_per_replica_value(ctx, &one, 1), *variable = NULL;

    CO_SCOPE(ctx, strategy) {
        variable = co_variable(ctx, co_float(ctx, 0), NULL);
        CO_EXPECT_NULL(
            co_update(ctx, strategy, variable, use_captured, co_no_args(ctx), bundle, NULL));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR,
                        "per-replica value is used as a tensor outside a replica");
    }
}

CO_TEST(lists_of_slices_and_large_numbers_become_tensors, "C-VAL-4")
{
    static const int64_t index[] = { 1 }, shape[] = { 2, 1 };
    co_value            *slices = co_slices(ctx, co_ones(ctx, CO_FLOAT64, CO_SHAPE(1, 1)),
                                            co_tensor(ctx, CO_INT64, CO_SHAPE(1), index),
                                            co_tensor(ctx, CO_INT64, CO_SHAPE(2), shape));
    co_value            *pair[2] = { slices, slices }, *dense;

    dense = co_to_tensor(ctx, co_list(ctx, pair, 2), CO_DTYPE_NONE);
    CO_EXPECT_INT(co_value_dtype(ctx, dense), CO_FLOAT64);
    CO_EXPECT_INT(co_value_ndim(ctx, dense), 3);
    CO_EXPECT_CLOSE(((const double *)co_value_data(ctx, dense))[3], 1, 0);
    CO_EXPECT_INT(co_value_dtype(ctx, co_to_tensor(ctx, co_int(ctx, INT64_MIN), CO_DTYPE_NONE)),
                  CO_INT64);
    CO_EXPECT_INT(co_value_dtype(ctx, co_to_tensor(ctx, co_int(ctx, INT32_MIN), CO_DTYPE_NONE)),
                  CO_INT32);
}
