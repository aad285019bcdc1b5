/* SPDX-License-Identifier: Apache-2.0 */
/* reduce, local results, gather, values from a function: outside a step. Sections 6.3 to 6.6
 * and 14. */
#include "suite.h"

static double
reduced(co_context *ctx, co_strategy *s, co_reduce_op op, co_value *value)
{
    return suite_number(ctx, co_reduce(ctx, s, op, value, NULL, 0));
}

static double
factorial(int n)
{
    return n < 2 ? 1 : n * factorial(n - 1);
}

CONFORM(values_are_combined_over_replicas, "S-REDUCE-5 S-REDUCE-24 DEF-7 OD-REDUCE-1 ROP-1 MW-10")
{
    co_value *x = suite_floats(ctx, s, 1, 1);

    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_SUM, x), SUM_OF_IDS(row->n + 1), 0);
    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_MEAN, x), (row->n + 1) / 2.0, 0);
    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_MIN, x), 1, 0);
    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_MAX, x), row->n, 0);
    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_PROD, x), factorial(row->n), 0);
    CO_SCOPE(ctx, s)
        CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_SUM, x), SUM_OF_IDS(row->n + 1), 0);
}

static co_dtype asked; /* by the value function */

VALUE_OF(two_of_dtype)
{
    return co_cast(ctx, co_scalar_int32(ctx, replica->replica_id_in_sync_group + 1), asked);
}

CONFORM(sums_keep_their_dtype_and_means_have_theirs, "S-REDUCE-8 S-REDUCE-24")
{
    static const struct {
        co_dtype dtype, mean;
    } cases[] = { { CO_INT8, CO_FLOAT32 },    { CO_INT16, CO_FLOAT32 },
                  { CO_UINT8, CO_FLOAT32 },   { CO_UINT16, CO_FLOAT32 },
                  { CO_INT32, CO_FLOAT64 },   { CO_INT64, CO_FLOAT64 },
                  { CO_UINT32, CO_FLOAT64 },  { CO_UINT64, CO_FLOAT64 },
                  { CO_FLOAT16, CO_FLOAT16 }, { CO_BFLOAT16, CO_BFLOAT16 },
                  { CO_FLOAT32, CO_FLOAT32 }, { CO_FLOAT64, CO_FLOAT64 } };

    for (size_t i = 0; i < LENGTH(cases); ++i) {
        co_value *x, *sum, *mean;

        asked = cases[i].dtype;
        x = suite_values(ctx, s, two_of_dtype);
        sum = co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0);
        mean = co_reduce(ctx, s, CO_REDUCE_MEAN, x, NULL, 0);
        CO_EXPECT_INT(co_value_dtype(ctx, sum), asked);
        CO_EXPECT_INT(co_value_dtype(ctx, mean), row->keeps_dtype ? asked : cases[i].mean);
        CO_EXPECT_CLOSE(suite_number(ctx, sum), SUM_OF_IDS(row->n + 1), 0);
        CO_EXPECT_CLOSE(suite_number(ctx, mean), (row->n + 1) / 2.0, 0);
    }
}

VALUE_OF(two_hundred)
{
    return co_cast(ctx, co_scalar_int32(ctx, 200), CO_UINT8);
}

CONFORM(sums_of_integers_wrap, "S-REDUCE-8")
{
    co_value *x = suite_values(ctx, s, two_hundred);

    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_SUM, x), 200 * row->n % 256, 0);
}

CONFORM(uneven_rows_weigh_by_their_number, "S-REDUCE-6 S-REDUCE-7 OD-REDUCE-2 MW-10")
{
    co_value *x = suite_ranges(ctx, s); /* 0 | 0 1 | 0 1 2 | ... */
    double    sum = 0, count = SUM_OF_IDS(row->n + 1);

    for (int i = 0; i < row->n; ++i)
        sum += SUM_OF_IDS(i + 1);
    CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, x, CO_AXES(0))), sum, 0);
    CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, x, CO_AXES(0))),
                    sum / count, 1e-6);
    CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, x, CO_AXES(-1))),
                    sum / count, 1e-6);
    CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_MAX, x, CO_AXES(0))), row->n - 1,
                    0);
}

/* [[id, id + 1], [id + 2, id + 3]] as int32. */
VALUE_OF(squares)
{
    int32_t id = replica->replica_id_in_sync_group, data[] = { id, id + 1, id + 2, id + 3 };

    return co_tensor(ctx, CO_INT32, CO_SHAPE(2, 2), data);
}

CONFORM(several_axes_and_negative_ones, "S-REDUCE-8 S-REDUCE-10")
{
    co_value  *x = suite_values(ctx, s, squares), *r;
    double     n = row->n, ids = SUM_OF_IDS(row->n);
    static int none[1];

    r = co_reduce(ctx, s, CO_REDUCE_SUM, x, CO_AXES(0, 1));
    CO_EXPECT_CLOSE(suite_number(ctx, r), 4 * ids + 6 * n, 0);
    CO_EXPECT_INT(co_value_dtype(ctx, r), CO_INT32);
    r = co_reduce(ctx, s, CO_REDUCE_MEAN, x, CO_AXES(-1, -2));
    CO_EXPECT_CLOSE(suite_number(ctx, r), ids / n + 1.5, 1e-12);
    CO_EXPECT_INT(co_value_dtype(ctx, r), CO_FLOAT64);
    EXPECT_ELEMENTS(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, x, CO_AXES(1)), 2, 2 * ids + n,
                    2 * ids + 5 * n);
    EXPECT_ELEMENTS(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, x, none, 0), 4, ids, ids + n, ids + 2 * n,
                    ids + 3 * n);
}

CONFORM(axes_outside_the_rank_are_refused, "S-REDUCE-11 OD-REDUCE-3 GEN-ERR-3")
{
    co_reduce(ctx, s, CO_REDUCE_SUM, suite_values(ctx, s, squares), CO_AXES(2));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "axis 2");
    co_reduce(ctx, s, CO_REDUCE_MEAN, suite_values(ctx, s, squares), CO_AXES(0, -3));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "axis -3");
    co_reduce(ctx, s, CO_REDUCE_MEAN, suite_floats(ctx, s, 0, 1), CO_AXES(0));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "rank");
}

CONFORM(shapes_that_differ_are_refused, "S-REDUCE-12 S-REDUCE-24")
{
    co_reduce(ctx, s, CO_REDUCE_SUM, suite_ranges(ctx, s), NULL, 0);
    EXPECT_OUTCOME(ctx, row->shapes_differ);
}

VALUE_OF(dtype_of_parity)
{
    return replica->replica_id_in_sync_group % 2 ? co_scalar_float(ctx, 1)
                                                 : co_scalar_int32(ctx, 1);
}

CONFORM(dtypes_that_differ_are_refused, "S-REDUCE-12")
{
    co_reduce(ctx, s, CO_REDUCE_SUM, suite_values(ctx, s, dtype_of_parity), NULL, 0);
    EXPECT_OUTCOME(ctx, row->shapes_differ);
}

CONFORM(a_plain_value_has_a_mean_and_perhaps_no_sum, "S-REDUCE-13 S-REDUCE-24 AMB-12")
{
    co_value *x = co_scalar_float(ctx, 5), *sum = co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0);
    double    total = suite_number(ctx, sum);

    if (EXPECT_OUTCOME(ctx, row->plain_sum) && row->plain_sum == CO_OK)
        CO_EXPECT_CLOSE(total, 5 * row->n, 0);
    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_MEAN, x), 5, 0);
    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_SUM, co_int(ctx, 0)), 0, 0);
    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_MEAN, co_float(ctx, 0)), 0, 0);
}

CONFORM(a_plain_value_with_an_axis_is_held_by_every_replica, "S-REDUCE-14")
{
    co_value *x = suite_vector(ctx, 2, (float[]){ 5, 1 });

    CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, x, CO_AXES(0))), 6 * row->n,
                    0);
    CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, x, CO_AXES(0))), 3, 0);
}

CONFORM(a_mirrored_variable_has_a_mean_and_no_sum, "S-REDUCE-15")
{
    co_value *v = suite_variable(ctx, s, 7, CO_SYNC_AUTO, CO_AGGREGATION_NONE);

    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_MEAN, v), 7, 0);
    co_reduce(ctx, s, CO_REDUCE_SUM, v, NULL, 0);
    EXPECT_OUTCOME(ctx, row->mirrored_sum);
}

STEP(assign_id)
{
    co_assign(ctx, user, co_scalar_float(ctx, (float)co_replica_id(ctx)));
    return NULL;
}

CONFORM(a_sync_on_read_variable_is_reduced_over_its_components, "S-REDUCE-16")
{
    co_value *v = suite_variable(ctx, s, 0, CO_SYNC_ON_READ, CO_AGGREGATION_ONLY_FIRST_REPLICA);

    suite_step(ctx, s, assign_id, v);
    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_SUM, v), SUM_OF_IDS(row->n), 0);
    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_MEAN, v), (row->n - 1) / 2.0, 0);
}

CONFORM(structures_are_reduced_leaf_by_leaf, "S-REDUCE-17")
{
    static const char *const keys[] = { "a", "b" };
    co_value *items[] = { suite_floats(ctx, s, 0, 1), co_args(ctx, suite_floats(ctx, s, 1, 0)) };
    co_value *x = co_dict(ctx, keys, items, 2), *r = co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0);

    CO_EXPECT_CLOSE(suite_number(ctx, co_get(ctx, r, "a")), SUM_OF_IDS(row->n), 0);
    CO_EXPECT_INT(co_value_kind(co_get(ctx, r, "b")), CO_KIND_TUPLE);
    CO_EXPECT_CLOSE(suite_number(ctx, co_at(ctx, co_get(ctx, r, "b"), 0)), row->n, 0);
    CO_EXPECT_NULL(co_reduce(ctx, s, CO_REDUCE_SUM, x, CO_AXES(0)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
}

VALUE_OF(truth)
{
    return co_tensor(ctx, CO_BOOL, CO_SHAPE(2), (bool[]){ true, false });
}

CONFORM(truth_values_have_no_sum, "S-REDUCE-19 S-REDUCE-24")
{
    co_value *x = suite_values(ctx, s, truth);

    co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0);
    EXPECT_OUTCOME(ctx, row->shapes_differ);
    co_reduce(ctx, s, CO_REDUCE_SUM, x, CO_AXES(0));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
}

VALUE_OF(one_slice)
{
    int id = replica->replica_id_in_sync_group;

    return co_slices(ctx, suite_vector(ctx, 1, (float[]){ (float)id + 1 }),
                     co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ id }), NULL);
}

CONFORM(slices_are_concatenated_in_replica_order, "S-REDUCE-20 RC-AR-11")
{
    co_value *x = suite_values(ctx, s, one_slice), *sum, *mean;

    sum = co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0);
    mean = co_reduce(ctx, s, CO_REDUCE_MEAN, x, NULL, 0);
    EXPECT_ELEMENTS(ctx, co_slices_values(ctx, sum), row->n, 1, 2, 3, 4, 5, 6, 7, 8);
    EXPECT_ELEMENTS(ctx, co_slices_indices(ctx, sum), row->n, 0, 1, 2, 3, 4, 5, 6, 7);
    CO_EXPECT_NULL(co_slices_dense_shape(ctx, sum));
    EXPECT_ELEMENTS(ctx, co_mul(ctx, co_slices_values(ctx, mean), co_int(ctx, row->n)), row->n, 1,
                    2, 3, 4, 5, 6, 7, 8);
}

VALUE_OF(no_rows)
{
    return co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0));
}

CONFORM(no_elements_have_a_sum_of_zero_and_no_mean, "S-REDUCE-21 S-REDUCE-22")
{
    co_value *x = suite_values(ctx, s, no_rows);

    CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, x, CO_AXES(0))), 0, 0);
    CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, x, CO_AXES(0))), NAN, 0);
}

VALUE_OF(host_number)
{
    return co_float(ctx, replica->replica_id_in_sync_group + 0.5);
}

CONFORM(host_numbers_are_reduced_as_tensors, "S-REDUCE-23 S-REDUCE-25 S-VFF-4")
{
    co_value *x = suite_values(ctx, s, host_number);

    CO_EXPECT_CLOSE(reduced(ctx, s, CO_REDUCE_SUM, x), SUM_OF_IDS(row->n) + 0.5 * row->n, 0);
}

CONFORM(reduce_operations_are_checked, "S-REDUCE-3 S-REDUCE-4 OD-REDUCE-3 ROP-1")
{
    co_value    *x = suite_ranges(ctx, s);
    co_reduce_op op;

    co_reduce(ctx, s, (co_reduce_op)9, x, NULL, 0);
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "9");
    co_reduce(ctx, s, (co_reduce_op)9, x, CO_AXES(0));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "9");
    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, "Mean", &op), CO_OK);
    CO_EXPECT_CLOSE(reduced(ctx, s, op, suite_floats(ctx, s, 1, 1)), (row->n + 1) / 2.0, 0);
    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, "max", &op), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "max");
}

VALUE_OF(large)
{
    co_value *x = co_range(ctx, co_int(ctx, 0), co_int(ctx, 100003), co_int(ctx, 1), CO_INT32);

    return co_mul(ctx, co_cast(ctx, x, CO_FLOAT32),
                  co_float(ctx, 0.1 + 0.7 * replica->replica_id_in_sync_group));
}

/* A fixed tree over replica ids: the bits do not depend on who hosts the replicas. */
CONFORM(sums_have_the_bits_of_one_device, "S-REDUCE-9 MIR-CDO-1")
{
    static const char *const one[] = { "/cpu:0" };
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;
    co_strategy             *plain;
    co_value                *here, *there;

    options.num_replicas = row->n;
    plain = co_mirrored_strategy(ctx, one, 1, &options);
    here = co_reduce(ctx, s, CO_REDUCE_SUM, suite_values(ctx, s, large), NULL, 0);
    there = co_reduce(ctx, plain, CO_REDUCE_SUM, suite_values(ctx, plain, large), NULL, 0);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_BYTES(co_value_data(ctx, here), co_value_data(ctx, there), 100003 * sizeof(float));
}

STEP(local_in_step)
{
    /* No context requirement (S-LOCAL-6). */
    return co_at(ctx, co_local_results(ctx, user, co_scalar_float(ctx, 4)), 0);
}

CONFORM(local_results_are_the_components_of_this_process,
        "S-LOCAL-1 S-LOCAL-2 S-LOCAL-5 S-LOCAL-6 OD-LOCAL-1 DEF-8")
{
    co_value *five = co_int(ctx, 5), *x = suite_floats(ctx, s, 1, 1), *r;

    r = co_local_results(ctx, s, five);
    CO_EXPECT_INT(co_value_kind(r), CO_KIND_TUPLE);
    CO_EXPECT_INT(co_num_items(ctx, r), 1);
    CO_EXPECT_PTR(co_at(ctx, r, 0), five);
    EXPECT_LOCAL(ctx, s, x, 1, 1);
    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, local_in_step, s), 4, 0);
    CO_EXPECT_INT(co_num_items(ctx, co_local_results(ctx, s,
                                                     suite_variable(ctx, s, 1, CO_SYNC_AUTO,
                                                                    CO_AGGREGATION_NONE))),
                  row->local);
}

CONFORM(local_results_of_structures, "S-LOCAL-3 S-LOCAL-4")
{
    static const char *const keys[] = { "a", "b" };
    co_value                *items[] = { suite_floats(ctx, s, 1, 2), co_int(ctx, 7) };
    co_value                *map = co_dict(ctx, keys, items, 2), *r = co_local_results(ctx, s, map);
    int                      count = row->is->spreads ? row->local : 1;

    CO_EXPECT_INT(co_num_items(ctx, r), count);
    CO_EXPECT_INT(co_at(ctx, r, 0) == map, !row->is->spreads);
    for (int i = 0; i < count; ++i) {
        co_value *one = co_at(ctx, r, (size_t)i);

        CO_EXPECT_CLOSE(suite_number(ctx, co_get(ctx, one, "a")), 1 + 2 * (first + i), 0);
        CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, one, "b")), 7);
    }
    CO_EXPECT_INT(co_num_items(ctx, co_local_results(ctx, s, co_list(ctx, NULL, 0))), count);
}

typedef struct calls {
    int ids[8], n, replicas;
} calls;

VALUE_OF(noted)
{
    calls *c = user;

    c->ids[c->n++] = replica->replica_id_in_sync_group;
    c->replicas = replica->num_replicas_in_sync;
    return co_scalar_float(ctx, 1);
}

CONFORM(values_come_from_a_function_of_the_replica,
        "S-VFF-1 S-VFF-2 S-VFF-3 S-VFF-5 S-VFF-6 DEF-5 OD-VFF-1 VCX-1 AMB-6")
{
    calls     c = { .n = 0 };
    co_value *x = co_distribute_values_from_function(ctx, s, noted, &c);

    CO_EXPECT_INT(c.n, row->local);
    CO_EXPECT_INT(c.replicas, row->n);
    for (int i = 0; i < row->local; ++i)
        CO_EXPECT_INT(c.ids[i], first + i);
    CO_EXPECT_INT(co_value_kind(x), row->is->function_kind); /* wrapped even where all are equal */
    EXPECT_LOCAL(ctx, s, x, 1, 0);
    CO_EXPECT_NULL(co_distribute_values_from_function(ctx, s, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
}

VALUE_OF(failing_value)
{
    return co_fail(ctx, CO_DATA_LOSS, "no value"), NULL;
}

VALUE_OF(pair_value)
{
    return co_args(ctx, co_scalar_float(ctx, 1), co_int(ctx, 2));
}

/* A host value of two is one wherever it comes from, and wrapped all the same. */
static co_kind
kind_of_equal(const suite_row *row)
{
    return row->is->function_kind == CO_KIND_TENSOR ? CO_KIND_INT : row->is->function_kind;
}

CONFORM(a_value_function_may_fail_or_give_a_structure, "S-VFF-2 GEN-ERR-2")
{
    co_value *pair = suite_values(ctx, s, pair_value);

    CO_EXPECT_INT(co_value_kind(pair), CO_KIND_TUPLE);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, pair, 0)), row->is->function_kind);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, pair, 1)), kind_of_equal(row));
    CO_EXPECT_NULL(suite_values(ctx, s, failing_value));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "no value");
}

CONFORM(gather_concatenates_in_replica_order, "S-GATHER-2 S-GATHER-4 S-GATHER-5 MW-10")
{
    co_value *all = co_gather_replicas(ctx, s, suite_ranges(ctx, s), 0);

    EXPECT_ELEMENTS(ctx, all, SUM_OF_IDS(row->n + 1), 0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4,
                    0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 7);
    all = co_gather_replicas(ctx, s, suite_values(ctx, s, squares), -1);
    CO_EXPECT_INT(co_value_dim(ctx, all, 0), 2);
    CO_EXPECT_INT(co_value_dim(ctx, all, 1), 2 * row->n);
}

CONFORM(gather_checks_axis_and_kind, "S-GATHER-3 S-GATHER-4 S-GATHER-5")
{
    co_gather_replicas(ctx, s, suite_ranges(ctx, s), 1);
    EXPECT_OUTCOME(ctx, row->gather_axis);
    co_gather_replicas(ctx, s, suite_floats(ctx, s, 1, 1), 0);
    EXPECT_OUTCOME(ctx, row->gather_axis);
}

CONFORM(slices_are_never_gathered, "S-GATHER-3 S-GATHER-6")
{
    co_value *plain = co_slices(ctx, suite_vector(ctx, 1, (float[]){ 1 }),
                                co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ 0 }), NULL);

    CO_EXPECT_NULL(co_gather_replicas(ctx, s, suite_values(ctx, s, one_slice), 0));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "slices");
    CO_EXPECT_NULL(co_gather_replicas(ctx, s, plain, 0));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "slices");
}

CONFORM(results_are_where_the_caller_works, "S-REDUCE-18")
{
    co_value *r = co_reduce(ctx, s, CO_REDUCE_SUM, suite_floats(ctx, s, 1, 1), NULL, 0);

    CO_EXPECT_STR(co_value_device(ctx, r), co_current_device(ctx));
}

CONFORM(bundles_of_another_size_are_refused, "DV-1")
{
    co_value *parts[9];

    for (int i = 0; i < 9; ++i)
        parts[i] = co_scalar_float(ctx, 1);
    co_reduce(ctx, s, CO_REDUCE_SUM, co_per_replica_value(ctx, parts, 9), NULL, 0);
    EXPECT_OUTCOME(ctx, row->is->foreign_bundle);
}

/* The example of the documents: t = range(10). */
CONFORM(a_range_on_every_replica, "OD-EX-3 S-REDUCE-14 ROP-2")
{
    co_value    *t = co_range(ctx, co_int(ctx, 0), co_int(ctx, 10), co_int(ctx, 1), CO_INT32), *r;
    co_reduce_op op;

    CO_EXPECT_CODE(co_reduce_op_from_aggregation(ctx, CO_AGGREGATION_MEAN, &op), CO_OK);
    r = co_reduce(ctx, s, op, t, NULL, 0);
    EXPECT_ELEMENTS(ctx, r, 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
    CO_EXPECT_CODE(co_reduce_op_from_aggregation(ctx, CO_AGGREGATION_SUM, &op), CO_OK);
    CO_EXPECT_CLOSE(suite_number(ctx, co_reduce(ctx, s, op, t, CO_AXES(0))), 45 * row->n, 0);
    co_reduce_op_from_aggregation(ctx, CO_AGGREGATION_ONLY_FIRST_REPLICA, &op);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
}
