/* SPDX-License-Identifier: Apache-2.0 */
/* Combining the values of replicas: reduce, all_reduce, all_gather, gather, local results.
 * Sections 6.3 to 6.6, 12 and 14. */
#include "test.h"

static co_strategy *
mirrored(co_context *ctx, int n)
{
    static const char *const names[] = { "/cpu:0", "/cpu:1" };
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;

    options.num_replicas = n;
    return co_mirrored_strategy(ctx, names, n == 1 ? 1 : 2, &options);
}

static co_value *
vector(co_context *ctx, co_dtype dtype, const double *data, int64_t n)
{
    return co_cast(ctx, co_tensor(ctx, CO_FLOAT64, &n, 1, data), dtype);
}

/* A per-replica value of two vectors. */
static co_value *
pair(co_context *ctx, co_dtype dtype, const double *a, int64_t na, const double *b, int64_t nb)
{
    co_value *parts[] = { vector(ctx, dtype, a, na), vector(ctx, dtype, b, nb) };

    return co_per_replica_value(ctx, parts, 2);
}

static void
expect_vector(co_context *ctx, co_value *v, co_dtype dtype, const double *data, int64_t n)
{
    double got[16];

    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(co_value_dtype(ctx, v), dtype);
    CO_REQUIRE(co_value_num_elements(ctx, v) == n && n <= 16);
    CO_EXPECT_CODE(co_value_copy_data(ctx, v, CO_FLOAT64, got, 16), CO_OK);
    for (int64_t i = 0; i < n; ++i)
        CO_EXPECT_CLOSE(got[i], data[i], 1e-6);
}

static const double first[] = { 0, 1, 2, 3 }, second[] = { 4, 5, 6, 7 };

CO_TEST_WITH(reduce_without_axis_combines_replicas, "S-REDUCE-5 S-REDUCE-18 S-PROP-2", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *v = pair(ctx, CO_FLOAT32, first, 4, second, 4);

    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, v, NULL, 0), CO_FLOAT32,
                  (double[]){ 4, 6, 8, 10 }, 4);
    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, NULL, 0), CO_FLOAT32,
                  (double[]){ 2, 3, 4, 5 }, 4);
    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_MIN, v, NULL, 0), CO_FLOAT32, first, 4);
    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_MAX, v, NULL, 0), CO_FLOAT32, second, 4);
    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_PROD, v, NULL, 0), CO_FLOAT32,
                  (double[]){ 0, 5, 12, 21 }, 4);
    CO_EXPECT_STR(co_value_device(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, v, NULL, 0)),
                  "/job:localhost/replica:0/task:0/device:CPU:0");
}

/* A short last batch: six examples split four and two over two replicas; a mean of means would
 * give 3.0. */
CO_TEST_WITH(reduce_mean_divides_by_examples_not_replicas, "S-REDUCE-6 S-REDUCE-7 S-REDUCE-22",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *v = pair(ctx, CO_FLOAT32, first, 4, second, 2);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, v, CO_AXES(0))), 15, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, CO_AXES(0))), 2.5,
                    1e-6);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, CO_AXES(-1))), 2.5,
                    1e-6);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, v, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[4] on replica 0 and [2] on replica 1");
    v = pair(ctx, CO_INT32, first, 4, second, 2);
    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, CO_AXES(0)), CO_FLOAT64,
                  (double[]){ 2.5 }, 1);
}

CO_TEST_WITH(means_of_integers_are_floats_and_sums_wrap, "S-REDUCE-8", "cpus=2")
{
    static const struct {
        co_dtype in, mean;
    } cases[] = { { CO_INT8, CO_FLOAT32 },   { CO_UINT8, CO_FLOAT32 },  { CO_INT16, CO_FLOAT32 },
                  { CO_UINT16, CO_FLOAT32 }, { CO_INT32, CO_FLOAT64 },  { CO_INT64, CO_FLOAT64 },
                  { CO_UINT32, CO_FLOAT64 }, { CO_UINT64, CO_FLOAT64 }, { CO_FLOAT16, CO_FLOAT16 },
                  { CO_FLOAT32, CO_FLOAT32 } };
    co_strategy *m = mirrored(ctx, 2);
    co_value    *v;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        v = pair(ctx, cases[i].in, (double[]){ 1 }, 1, (double[]){ 4 }, 1);
        expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, NULL, 0), cases[i].mean,
                      (double[]){ 2.5 }, 1);
        expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, v, NULL, 0), cases[i].in,
                      (double[]){ 5 }, 1);
    }
    v = pair(ctx, CO_UINT8, (double[]){ 200 }, 1, (double[]){ 100 }, 1);
    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, v, NULL, 0), CO_UINT8, (double[]){ 44 }, 1);
    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, NULL, 0), CO_FLOAT32, (double[]){ 22 },
                  1);
}

CO_TEST_WITH(axes_may_be_several_negative_or_none, "S-REDUCE-10 S-REDUCE-11 GEN-ERR-3", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *parts[] = { co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 2), (float[]){ 1, 2, 3, 4 }),
                             co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 2), (float[]){ 5, 6, 7, 8 }) };
    co_value    *v = co_per_replica_value(ctx, parts, 2),
             *s = co_reduce(ctx, m, CO_REDUCE_SUM, v, NULL, 0);

    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, CO_AXES(1)), CO_FLOAT32,
                  (double[]){ 3.5, 5.5 }, 2);
    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, CO_AXES(-1)), CO_FLOAT32,
                  (double[]){ 3.5, 5.5 }, 2);
    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, CO_AXES(0, 1)), CO_FLOAT32,
                  (double[]){ 4.5 }, 1);
    expect_vector(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, v, (const int[]){ 0 }, 0), CO_FLOAT32,
                  (double[]){ 6, 8, 10, 12 }, 4);
    CO_EXPECT_INT(co_value_ndim(ctx, s), 2);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, v, CO_AXES(2)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "axis 2 is outside the rank of the value, which is 2");
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, v, CO_AXES(-3)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "axis -3");
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, co_scalar_float(ctx, 1), CO_AXES(0)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "which is 0");
}

CO_TEST_WITH(plain_values_are_not_summed, "S-REDUCE-13 S-REDUCE-14 S-REDUCE-24 AMB-12", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2), *m1 = mirrored(ctx, 1);
    co_value *five = co_scalar_float(ctx, 5), *v = vector(ctx, CO_FLOAT32, (double[]){ 5, 1 }, 2);

    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, five, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not defined");
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, five, NULL, 0)), 5, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, co_int(ctx, 0), NULL, 0)),
                    0, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, v, CO_AXES(0))), 12, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, CO_AXES(0))), 3, 0);
    CO_EXPECT_PTR(co_reduce(ctx, m1, CO_REDUCE_SUM, five, NULL, 0), five);
    CO_EXPECT_INT(co_value_kind(co_reduce(ctx, m, CO_REDUCE_MEAN, co_none(ctx), NULL, 0)),
                  CO_KIND_NONE);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, co_none(ctx), NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
}

CO_TEST_WITH(mirrored_values_are_averaged_but_not_summed,
             "S-REDUCE-15 S-REDUCE-17 S-REDUCE-19 S-REDUCE-23", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *x = co_scalar_float(ctx, 2), *same[] = { x, x },
             *mirror = co_mirrored_value(ctx, same, 2);
    co_value *flags[] = { co_scalar_bool(ctx, true), co_scalar_bool(ctx, false) };
    co_value *numbers[] = { co_float(ctx, 1), co_float(ctx, 2.5) }, *structure;

    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, mirror, NULL, 0)), 2, 0);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, mirror, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, NULL);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, co_per_replica_value(ctx, flags, 2), NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "bool");
    CO_EXPECT_NULL(
        co_reduce(ctx, m, CO_REDUCE_SUM, co_per_replica_value(ctx, flags, 2), CO_AXES(0)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "bool");
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_SUM,
                                                 co_per_replica_value(ctx, numbers, 2), NULL, 0)),
                    3.5, 0);
    structure = co_args(ctx, co_per_replica_value(ctx, numbers, 2),
                        co_per_replica_value(ctx, numbers, 2));
    CO_EXPECT_CLOSE(
        co_item_float(ctx, co_at(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, structure, NULL, 0), 1)),
        1.75, 0);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, structure, CO_AXES(0)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "tuple");
}

CO_TEST_WITH(empty_replicas_count_nothing, "S-REDUCE-21", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *v = pair(ctx, CO_FLOAT32, (double[]){ 1, 2 }, 2, first, 0),
             *none = pair(ctx, CO_FLOAT32, first, 0, first, 0);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, CO_AXES(0))), 1.5, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, none, CO_AXES(0))), 0, 0);
    CO_EXPECT_TRUE(isnan(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, none, CO_AXES(0)))));
}

CO_TEST_WITH(operations_are_named_sum_and_mean, "S-REDUCE-3 S-REDUCE-4 ROP-1", "cpus=2")
{
    co_reduce_op op = CO_REDUCE_MAX;
    co_strategy *m = mirrored(ctx, 2);
    co_value    *v = pair(ctx, CO_FLOAT32, first, 4, second, 4);

    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, "mEaN", &op), CO_OK);
    CO_EXPECT_INT(op, CO_REDUCE_MEAN);
    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, "sum", &op), CO_OK);
    CO_EXPECT_INT(op, CO_REDUCE_SUM);
    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, "MAX", &op), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "'MAX'");
    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, "SUMS", &op), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    CO_EXPECT_NULL(co_reduce(ctx, m, (co_reduce_op)17, v, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "17");
    CO_EXPECT_NULL(co_reduce(ctx, m, (co_reduce_op)17, v, CO_AXES(0)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "17");
}

CO_TEST_WITH(one_device_reduces_only_along_axes,
             "OD-REDUCE-1 OD-REDUCE-2 OD-REDUCE-3 OD-EX-3 OD-LOCAL-1 S-LOCAL-4", "cpus=2")
{
    co_strategy *one = co_one_device_strategy(ctx, "/cpu:1");
    co_value    *t = co_range(ctx, co_int(ctx, 0), co_int(ctx, 10), co_int(ctx, 1), CO_DTYPE_NONE),
             *sum;
    co_value *tuple = co_args(ctx, t, co_none(ctx));

    CO_EXPECT_PTR(co_reduce(ctx, one, CO_REDUCE_SUM, t, NULL, 0), t);
    CO_EXPECT_PTR(co_reduce(ctx, one, CO_REDUCE_MEAN, tuple, NULL, 0), tuple);
    sum = co_reduce(ctx, one, CO_REDUCE_SUM, t, CO_AXES(0));
    CO_EXPECT_INT(co_item_int(ctx, sum), 45);
    CO_EXPECT_STR(co_value_device(ctx, sum), "/job:localhost/replica:0/task:0/device:CPU:1");
    CO_EXPECT_INT(co_value_dtype(ctx, co_reduce(ctx, one, CO_REDUCE_MEAN, t, CO_AXES(0))),
                  CO_FLOAT64);
    CO_EXPECT_NULL(co_reduce(ctx, one, CO_REDUCE_SUM, t, CO_AXES(1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "axis 1");
    CO_EXPECT_PTR(co_at(ctx, co_local_results(ctx, one, tuple), 0), tuple);
}

CO_TEST_WITH(local_results_are_one_per_replica, "S-LOCAL-1 S-LOCAL-2 S-LOCAL-3 S-LOCAL-6", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *numbers[] = { co_int(ctx, 1), co_int(ctx, 3) },
             *bundle = co_per_replica_value(ctx, numbers, 2), *local;

    local = co_local_results(ctx, m, bundle);
    CO_EXPECT_INT(co_num_items(ctx, local), 2);
    CO_EXPECT_PTR(co_at(ctx, local, 1), numbers[1]);
    CO_EXPECT_INT(co_num_items(ctx, co_local_results(ctx, m, numbers[0])), 1);
    local = co_local_results(ctx, m,
                             co_dict(ctx, (const char *[]){ "a", "b" },
                                     (co_value *[]){ bundle, co_int(ctx, 7) }, 2));
    CO_EXPECT_INT(co_num_items(ctx, local), 2);
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, co_at(ctx, local, 1), "a")), 3);
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, co_at(ctx, local, 1), "b")), 7);
    CO_EXPECT_INT(co_num_items(ctx, co_local_results(ctx, m, co_list(ctx, NULL, 0))), 2);
}

static co_value *
value_of(co_context *ctx, const co_value_context *replica, void *user)
{
    (void)user;
    return co_args(ctx, co_int(ctx, replica->replica_id_in_sync_group * 10),
                   co_int(ctx, replica->num_replicas_in_sync));
}

CO_TEST_WITH(values_from_a_function_are_always_wrapped,
             "S-VFF-1 S-VFF-2 S-VFF-3 S-VFF-4 S-VFF-5 OD-VFF-1 DEF-5 VCX-1", "cpus=2")
{
    co_value *v = co_distribute_values_from_function(ctx, mirrored(ctx, 2), value_of, NULL);

    CO_EXPECT_INT(co_value_kind(co_at(ctx, v, 0)), CO_KIND_PER_REPLICA);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, v, 1)),
                  CO_KIND_PER_REPLICA); /* equal, and wrapped all the same */
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, co_at(ctx, v, 0), 1)), 10);
    v = co_distribute_values_from_function(ctx, mirrored(ctx, 1), value_of, NULL);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, v, 0)), CO_KIND_PER_REPLICA);
    v = co_distribute_values_from_function(ctx, co_one_device_strategy(ctx, NULL), value_of, NULL);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, v, 1)), CO_KIND_INT);
    v = co_distribute_values_from_function(ctx, co_default_strategy(ctx), value_of, NULL);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, v, 1)), 1);
}

/* --- inside a step --- */

static co_value *
reduce_structure(co_context *ctx, co_value *args, void *user)
{
    float     b[2][2] = { { 40, 1 }, { 2, 98 } };
    int       id = co_replica_id(ctx);
    co_value *items[] = { co_float(ctx, id == 0 ? 1 : 3),
                          co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), b[id]),
                          co_replica_id_tensor(ctx) };

    (void)args;
    return co_all_reduce(ctx, *(co_reduce_op *)user,
                         co_dict(ctx, (const char *[]){ "a", "b", "c" }, items, 3));
}

CO_TEST_WITH(all_reduce_takes_structures_of_mixed_dtypes, "RC-AR-1 RC-AR-2 RC-AR-5 RC-AR-6 RC-AR-7",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_reduce_op op = CO_REDUCE_SUM;
    co_value    *r = co_run(ctx, m, reduce_structure, co_no_args(ctx), &op);

    for (size_t i = 0; i < 2; ++i) {
        expect_vector(ctx, co_at(ctx, co_get(ctx, r, "a"), i), CO_FLOAT32, (double[]){ 4 }, 1);
        expect_vector(ctx, co_at(ctx, co_get(ctx, r, "b"), i), CO_FLOAT32, (double[]){ 42, 99 }, 2);
        expect_vector(ctx, co_at(ctx, co_get(ctx, r, "c"), i), CO_INT32, (double[]){ 1 }, 1);
    }
    CO_EXPECT_STR(co_value_device(ctx, co_at(ctx, co_get(ctx, r, "b"), 1)),
                  "/job:localhost/replica:0/task:0/device:CPU:1");
    op = CO_REDUCE_MEAN;
    r = co_run(ctx, m, reduce_structure, co_no_args(ctx), &op);
    expect_vector(ctx, co_at(ctx, co_get(ctx, r, "b"), 0), CO_FLOAT32, (double[]){ 21, 49.5 }, 2);
    expect_vector(ctx, co_at(ctx, co_get(ctx, r, "c"), 1), CO_FLOAT64, (double[]){ 0.5 }, 1);
}

static co_value *
reduce_what(co_context *ctx, co_value *args, void *user)
{
    switch (*(int *)user) {
    case 0: return co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, args, 0));
    case 1: return co_all_reduce(ctx, CO_REDUCE_SUM, co_none(ctx));
    case 2: return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_bool(ctx, true));
    case 3: return co_all_reduce(ctx, (co_reduce_op)9, co_float(ctx, 1));
    default: return co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, NULL, 0));
    }
}

CO_TEST_WITH(all_reduce_of_a_shared_tensor_multiplies, "RC-AR-7 RC-AR-8 RC-AR-12 AMB-3", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *args = co_args(ctx, co_scalar_float(ctx, 5));
    int          what = 0;

    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, co_run(ctx, m, reduce_what, args, &what), 0)), 10,
                    0);
    what = 1;
    CO_EXPECT_NULL(co_run(ctx, m, reduce_what, args, &what));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "none");
    what = 2;
    CO_EXPECT_NULL(co_run(ctx, m, reduce_what, args, &what));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "bool");
    what = 3;
    CO_EXPECT_NULL(co_run(ctx, m, reduce_what, args, &what));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "9");
    what = 4;
    CO_EXPECT_INT(co_num_items(ctx, co_run(ctx, m, reduce_what, args, &what)), 0);
}

static co_value *
gradient_through(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_scalar_float(ctx, 3), *z;

    (void)args;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    z = co_mul(ctx, co_all_reduce(ctx, *(co_reduce_op *)user, x),
               co_float(ctx, 1 + co_replica_id(ctx)));
    return co_gradient(ctx, z, x);
}

CO_TEST_WITH(gradients_pass_through_all_reduce, "RC-AR-9", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_reduce_op op = CO_REDUCE_SUM;
    co_value    *g = co_run(ctx, m, gradient_through, co_no_args(ctx), &op);

    for (size_t i = 0; i < 2; ++i)
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, g, i)), 3, 0);
    op = CO_REDUCE_MEAN;
    g = co_run(ctx, m, gradient_through, co_no_args(ctx), &op);
    for (size_t i = 0; i < 2; ++i)
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, g, i)), 1.5, 0);
}

static co_value *
reduce_slices(co_context *ctx, co_value *args, void *user)
{
    int       id = co_replica_id(ctx);
    co_value *values = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1), (float[]){ 1.0f + (float)id });
    co_value *indices = co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ id });

    (void)args;
    return co_all_reduce(ctx, *(co_reduce_op *)user, co_slices(ctx, values, indices, NULL));
}

CO_TEST_WITH(slices_are_concatenated, "RC-AR-11 S-REDUCE-20", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_reduce_op op = CO_REDUCE_MEAN;
    co_value    *r = co_run(ctx, m, reduce_slices, co_no_args(ctx), &op), *s = co_at(ctx, r, 1);

    expect_vector(ctx, co_slices_values(ctx, s), CO_FLOAT32, (double[]){ 0.5, 1 }, 2);
    expect_vector(ctx, co_slices_indices(ctx, s), CO_INT64, (double[]){ 0, 1 }, 2);
    CO_EXPECT_NULL(co_slices_dense_shape(ctx, s));
}

static co_value *
gather_rows(co_context *ctx, co_value *args, void *user)
{
    int       id = co_replica_id(ctx);
    co_value *rows = co_mul(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(id + 1, 2)),
                            co_int(ctx, id + 1));

    (void)args;
    return co_all_gather(ctx, rows, *(int *)user);
}

CO_TEST_WITH(all_gather_concatenates_in_replica_order, "RC-AG-1 RC-AG-2", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    int          axis = 0;
    co_value    *r = co_run(ctx, m, gather_rows, co_no_args(ctx), &axis);

    expect_vector(ctx, co_at(ctx, r, 0), CO_FLOAT32, (double[]){ 1, 1, 2, 2, 2, 2 }, 6);
    expect_vector(ctx, co_at(ctx, r, 1), CO_FLOAT32, (double[]){ 1, 1, 2, 2, 2, 2 }, 6);
    axis = -2;
    CO_EXPECT_INT(
        co_value_dim(ctx, co_at(ctx, co_run(ctx, m, gather_rows, co_no_args(ctx), &axis), 0), 0),
        3);
    axis = 2;
    CO_EXPECT_NULL(co_run(ctx, m, gather_rows, co_no_args(ctx), &axis));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "axis 2");
    axis = 1;
    CO_EXPECT_NULL(co_run(ctx, m, gather_rows, co_no_args(ctx), &axis));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
}

CO_TEST_WITH(gather_concatenates_components,
             "S-GATHER-1 S-GATHER-2 S-GATHER-3 S-GATHER-4 S-GATHER-5", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2), *one = co_one_device_strategy(ctx, NULL);
    co_value    *v = pair(ctx, CO_FLOAT32, first, 1, first + 1, 3), *x = co_scalar_float(ctx, 1),
             *two[] = { x, x };

    expect_vector(ctx, co_gather_replicas(ctx, m, v, 0), CO_FLOAT32, (double[]){ 0, 1, 2, 3 }, 4);
    expect_vector(ctx, co_gather_replicas(ctx, m, v, -1), CO_FLOAT32, (double[]){ 0, 1, 2, 3 }, 4);
    CO_EXPECT_NULL(co_gather_replicas(ctx, m, v, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "axis 1");
    CO_EXPECT_NULL(co_gather_replicas(ctx, m, co_per_replica_value(ctx, two, 2), 0));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    CO_EXPECT_PTR(co_gather_replicas(ctx, m, x, 0), x);
    CO_EXPECT_PTR(co_gather_replicas(ctx, one, x, 5), x);
    CO_EXPECT_PTR(co_gather_replicas(ctx, mirrored(ctx, 1), co_per_replica_value(ctx, two, 1), 5),
                  x);
}

/* The sum of 1e8, 1, -1e8, ... depends on the order: one order for every placement. */
static co_value *
awkward_sum(co_context *ctx, co_value *args, void *user)
{
    static const float awkward[] = { 1e8f, 1.0f, -1e8f, 0.5f, 3e-3f };
    int64_t            n = *(int64_t *)user;
    co_value          *x = co_mul(ctx, co_ones(ctx, CO_FLOAT32, &n, 1),
                                  co_float(ctx, awkward[co_replica_id(ctx)]));

    (void)args;
    return co_all_reduce(ctx, CO_REDUCE_SUM, x);
}

CO_TEST_WITH(sums_are_made_in_one_order_everywhere, "S-REDUCE-9", "cpus=5")
{
    static const char *const names[] = { "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3", "/cpu:4" };

    for (int64_t n = 1; n <= 100000; n *= 100000) { /* done by one replica, and shared out */
        float expected = (1e8f + 1.0f) + (-1e8f + 0.5f) + 3e-3f;

        for (size_t devices = 1; devices <= 5; ++devices) {
            co_mirrored_options options = CO_MIRRORED_OPTIONS_INIT;
            co_value           *r;

            options.num_replicas = 5;
            r = co_run(ctx, co_mirrored_strategy(ctx, names, devices, &options), awkward_sum,
                       co_no_args(ctx), &n);
            CO_REQUIRE(co_ok(ctx));
            for (size_t i = 0; i < 5; ++i) {
                const float *data = co_value_data(ctx, co_at(ctx, r, i));

                CO_EXPECT_BYTES(&data[0], &expected, sizeof(float));
                CO_EXPECT_BYTES(&data[n - 1], &expected, sizeof(float));
            }
        }
    }
}

CO_TEST_WITH(the_smallest_of_equals_is_one_of_them, "S-REDUCE-13", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *parts[] = { co_scalar_float(ctx, 3), co_scalar_float(ctx, 3) };
    co_value    *value = co_mirrored_value(ctx, parts, 2);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MIN, value, NULL, 0)), 3, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MAX, value, NULL, 0)), 3, 0);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_PROD, value, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR,
                    "the product of a mirrored value counts one value 2 times");
}

static co_value *
largest_rows(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_MAX, co_at(ctx, args, 0));
}

/* They are concatenated, which is a sum; of the largest one row would be left. */
CO_TEST_WITH(slices_have_sums_and_means_only, "S-REDUCE-20 RC-AR-11", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *rows = co_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 2)),
                                  co_zeros(ctx, CO_INT32, CO_SHAPE(1)), NULL);
    co_value    *each = co_per_replica_value(ctx, (co_value *const[]){ rows, rows }, 2);

    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_MIN, each, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "by SUM and MEAN only");
    CO_EXPECT_NULL(co_run(ctx, m, largest_rows, co_args(ctx, each), NULL));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "by SUM and MEAN only");
}
