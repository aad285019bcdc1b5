/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas meet inside a step: merge_call, all_reduce, all_gather. Section 12. */
#include "suite.h"

#include <stdatomic.h>

/* --- merge_call --- */

typedef struct tally {
    atomic_int merges;
    int        order[64];
    int        next;
} tally;

/* (v) to (the sum over replicas, v). */
MERGE(sum_and_self)
{
    tally *t = user;

    atomic_fetch_add(&t->merges, 1);
    return co_args(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0),
                   co_at(ctx, args, 0));
}

STEP(merge_sum)
{
    co_value *v = co_scalar_float(ctx, 3.0f + (float)co_replica_id(ctx));
    co_value *r = co_merge_call(ctx, sum_and_self, co_args(ctx, v), user);

    return co_add(ctx, co_at(ctx, r, 0), co_at(ctx, r, 1));
}

CONFORM(merge_call_runs_once_with_merged_arguments,
        "RC-MERGE-2 RC-MERGE-4 OD-MERGE-1 DEF-15 DV-SEL-1 S-RUN-5")
{
    tally  t = { .merges = 0 };
    double sum = 3 * row->n + SUM_OF_IDS(row->n);

    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, merge_sum, &t), sum + 3, 1);
    CO_EXPECT_INT(t.merges, 1);
}

MERGE(log_merge)
{
    tally *t = user;

    t->order[t->next++] = 100;
    return NULL;
}

STEP(before_and_after)
{
    tally *t = user;

    t->order[t->next++] = co_replica_id(ctx);
    co_merge_call(ctx, log_merge, co_no_args(ctx), user);
    t->order[t->next++] = 200 + co_replica_id(ctx);
    return NULL;
}

CONFORM(replicas_that_take_turns_stop_at_merge_points, "RC-MERGE-2 S-RUN-7")
{
    tally          t = { .merges = 0 };
    co_run_options options = CO_RUN_OPTIONS_INIT;

    options.in_turn = true;
    co_run_with(ctx, s, before_and_after, co_no_args(ctx), &t, &options);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(t.next, 2 * row->local + 1);
    CO_EXPECT_INT(t.order[row->local], 100);
    for (int i = 0; i < row->local; ++i) {
        CO_EXPECT_INT(t.order[i], first + i);
        CO_EXPECT_INT(t.order[row->local + 1 + i], 200 + first + i);
    }
}

MERGE(doubled)
{
    return co_mul(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0),
                  co_int(ctx, 2));
}

MERGE(halved)
{
    return co_div(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0),
                  co_float(ctx, 2));
}

/* Which merge point comes next depends on what the last one gave, the same on all replicas. */
STEP(merge_in_conditions)
{
    co_value *x = co_scalar_float(ctx, 1);

    for (int i = 0; i < 6; ++i) {
        co_value *sum = co_merge_call(ctx, i % 2 == 0 ? doubled : halved, co_args(ctx, x), NULL);

        if (co_item_float(ctx, sum) > 2)
            x = co_div(ctx, sum, co_float(ctx, co_replicas(ctx)));
        else
            x = co_add(ctx, x, co_float(ctx, 1));
    }
    return x;
}

CONFORM(any_number_of_merge_points_in_conditionals, "RC-MERGE-6 RC-AR-3")
{
    double x = 1;

    for (int i = 0; i < 6; ++i) {
        double sum = row->n * x * (i % 2 == 0 ? 2 : 0.5);

        x = sum > 2 ? sum / row->n : x + 1;
    }
    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, merge_in_conditions, NULL), x, 0);
}

MERGE(of_first)
{
    return co_int(ctx, 1);
}

MERGE(of_others)
{
    return co_int(ctx, 2);
}

STEP(merge_by_parity)
{
    int *first = user;

    return co_merge_call(ctx, co_replica_id(ctx) == *first ? of_first : of_others, co_no_args(ctx),
                         NULL);
}

CONFORM(the_merge_function_of_the_first_replica_counts, "RC-MERGE-3 RC-MERGE-4")
{
    CO_EXPECT_INT(co_item_int(ctx, suite_step(ctx, s, merge_by_parity, &first)), 1);
}

MERGE(fail_merging)
{
    return co_fail(ctx, CO_ALREADY_EXISTS, "merged before"), NULL;
}

STEP(merge_and_fail)
{
    return co_merge_call(ctx, fail_merging, co_no_args(ctx), NULL);
}

CONFORM(the_error_of_a_merge_function_ends_the_run, "RC-MERGE-7 S-RUN-8 GEN-ERR-2")
{
    CO_EXPECT_NULL(suite_step(ctx, s, merge_and_fail, NULL));
    CO_EXPECT_ERROR(ctx, CO_ALREADY_EXISTS, "merged before");
}

STEP(even_ones_merge)
{
    tally t = { .merges = 0 };

    return co_replica_id(ctx) % 2 == 0 ? co_merge_call(ctx, log_merge, co_no_args(ctx), &t) : NULL;
}

CONFORM(replicas_that_do_not_merge_are_found, "RC-MERGE-5")
{
    suite_step(ctx, s, even_ones_merge, NULL);
    EXPECT_OUTCOME(ctx, row->merge_missed);
}

MERGE(run_again)
{
    return co_run(ctx, s, merge_sum, co_no_args(ctx), user);
}

STEP(run_inside_merge)
{
    return co_merge_call(ctx, run_again, co_no_args(ctx), user);
}

CONFORM(a_merge_function_may_run_steps, "SCOPE-8 RC-MERGE-4 S-RUN-4")
{
    tally  t = { .merges = 0 };
    double sum = 3 * row->n + SUM_OF_IDS(row->n);

    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, run_inside_merge, &t), sum + 3, 1);
}

STEP(merge_nothing)
{
    CO_EXPECT_NULL(co_merge_call(ctx, NULL, co_no_args(ctx), NULL));
    CO_EXPECT_FALSE(co_ok(ctx));
    return NULL;
}

CONFORM(a_merge_without_a_function_is_an_error, "C-FN-1 RC-MERGE-1")
{
    suite_step(ctx, s, merge_nothing, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
}

/* --- all_reduce --- */

/* {a: 1 + id, b: [40, 1 + id]}, a float32 and b int64. */
static co_value *
mixed(co_context *ctx)
{
    static const char *const keys[] = { "a", "b" };
    int64_t                  data[] = { 40, 1 + co_replica_id(ctx) };
    co_value                *items[] = { co_scalar_float(ctx, 1.0f + (float)co_replica_id(ctx)),
                                         co_tensor(ctx, CO_INT64, CO_SHAPE(2), data) };

    return co_dict(ctx, keys, items, 2);
}

STEP(reduce_mixed)
{
    co_reduce_op op = *(co_reduce_op *)user;

    return co_all_reduce(ctx, op, mixed(ctx));
}

CONFORM(all_reduce_keeps_structure_and_dtypes,
        "RC-AR-1 RC-AR-5 RC-AR-6 OD-AR-1 DEF-15 S-REDUCE-8 MW-10")
{
    co_reduce_op op = CO_REDUCE_SUM;
    double       n = row->n, ids = SUM_OF_IDS(row->n + 1);
    co_value    *r = suite_step(ctx, s, reduce_mixed, &op), *b;

    EXPECT_LOCAL(ctx, s, co_get(ctx, r, "a"), ids, 0);
    b = suite_local(ctx, s, co_get(ctx, r, "b"), 0);
    CO_EXPECT_INT(co_value_dtype(ctx, b), CO_INT64);
    EXPECT_ELEMENTS(ctx, b, 2, 40 * n, ids);
    op = CO_REDUCE_MEAN;
    r = suite_step(ctx, s, reduce_mixed, &op);
    EXPECT_LOCAL(ctx, s, co_get(ctx, r, "a"), ids / n, 0);
    b = suite_local(ctx, s, co_get(ctx, r, "b"), row->local - 1);
    CO_EXPECT_INT(co_value_dtype(ctx, b), row->keeps_dtype ? CO_INT64 : CO_FLOAT64);
    EXPECT_ELEMENTS(ctx, b, 2, 40, ids / n);
}

STEP(extremes)
{
    co_value *x = co_scalar_float(ctx, 2.0f + (float)co_replica_id(ctx));

    return co_args(ctx, co_all_reduce(ctx, CO_REDUCE_MIN, x), co_all_reduce(ctx, CO_REDUCE_MAX, x),
                   co_all_reduce(ctx, CO_REDUCE_PROD, x));
}

CONFORM(all_reduce_knows_minimum_maximum_and_product, "ROP-1 RC-AR-1")
{
    co_value *r = suite_step(ctx, s, extremes, NULL);
    double    product = 1;

    for (int i = 0; i < row->n; ++i)
        product *= 2 + i;
    EXPECT_LOCAL(ctx, s, co_at(ctx, r, 0), 2, 0);
    EXPECT_LOCAL(ctx, s, co_at(ctx, r, 1), row->n + 1, 0);
    EXPECT_LOCAL(ctx, s, co_at(ctx, r, 2), product, 0);
}

STEP(odd_leaves)
{
    co_value *empty = co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, NULL, 0));

    CO_EXPECT_INT(co_value_kind(empty), CO_KIND_LIST);
    CO_EXPECT_INT(co_num_items(ctx, empty), 0);
    return co_args(ctx, co_all_reduce(ctx, CO_REDUCE_SUM, co_int(ctx, 2)),
                   co_all_reduce(ctx, CO_REDUCE_SUM, user)); /* one handle for all */
}

CONFORM(all_reduce_takes_host_numbers_and_shared_tensors, "RC-AR-7 RC-AR-8 AMB-3")
{
    co_value *r = suite_step(ctx, s, odd_leaves, co_scalar_float(ctx, 5));

    EXPECT_LOCAL(ctx, s, co_at(ctx, r, 0), 2 * row->n, 0);
    EXPECT_LOCAL(ctx, s, co_at(ctx, r, 1), 5 * row->n, 0);
}

STEP(reduce_none)
{
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_none(ctx));
}

STEP(reduce_by_nine)
{
    return co_all_reduce(ctx, (co_reduce_op)9, co_scalar_float(ctx, 1));
}

STEP(reduce_truth)
{
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_bool(ctx, true));
}

STEP(reduce_shapes)
{
    return co_all_reduce(ctx, CO_REDUCE_SUM,
                         co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1 + co_replica_id(ctx) % 2)));
}

STEP(reduce_structures)
{
    co_value *items[] = { co_scalar_float(ctx, 1), co_scalar_float(ctx, 1) };

    return co_all_reduce(ctx, CO_REDUCE_SUM,
                         co_list(ctx, items, (size_t)(1 + co_replica_id(ctx) % 2)));
}

CONFORM(all_reduce_refuses_what_cannot_be_added,
        "RC-AR-2 RC-AR-4 RC-AR-7 RC-AR-12 S-REDUCE-19 S-REDUCE-24")
{
    for (int i = 0; i < 2; ++i) { /* a failed collective does not break later ones */
        suite_step(ctx, s, reduce_none, NULL);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
        suite_step(ctx, s, reduce_by_nine, NULL);
        CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "9");
        suite_step(ctx, s, reduce_truth, NULL);
        EXPECT_OUTCOME(ctx, row->shapes_differ);
        suite_step(ctx, s, reduce_shapes, NULL);
        EXPECT_OUTCOME(ctx, row->shapes_differ);
        suite_step(ctx, s, reduce_structures, NULL);
        EXPECT_OUTCOME(ctx, row->structures_reduced);
    }
}

/* d/dx of (1 + id) * all_reduce(x). */
STEP(gradient_through)
{
    co_value *x = co_scalar_float(ctx, 1), *y;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_all_reduce(ctx, *(co_reduce_op *)user, x),
               co_float(ctx, 1 + co_replica_id(ctx)));
    return co_gradient(ctx, y, x);
}

CONFORM(gradients_pass_through_all_reduce, "RC-AR-9 OD-AR-1")
{
    co_reduce_op op = CO_REDUCE_SUM;

    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, gradient_through, &op), SUM_OF_IDS(row->n + 1), 0);
    op = CO_REDUCE_MEAN;
    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, gradient_through, &op), (row->n + 1) / 2.0, 0);
}

/* What a replica brings, and the gradient that it must have where 1 flows into the results of all
 * of them together. */
typedef struct derivative {
    co_reduce_op op;
    double (*brings)(int r, int n);
    double (*gradient)(int r, int n);
} derivative;

static double
factorial(int n)
{
    return n < 2 ? 1 : n * factorial(n - 1);
}

static double
id(int r, int n)
{
    (void)n;
    return r;
}
static double
next_id(int r, int n)
{
    (void)n;
    return r + 1;
}
static double
after_two_zeros(int r, int n)
{
    (void)n;
    return r < 2 ? 0 : r;
}
static double
nothing_but(int r, int n)
{
    (void)r, (void)n;
    return 7;
}
static double
is_last(int r, int n)
{
    return r == n - 1;
}
static double
is_first(int r, int n)
{
    (void)n;
    return r == 0;
}
static double
equal_part(int r, int n)
{
    (void)r;
    return 1.0 / n;
}
static double
others(int r, int n)
{
    return factorial(n) / (r + 1);
}
static double
others_of_zero(int r, int n)
{
    return r == 0 ? factorial(n - 1) : 0;
}
static double
if_alone(int r, int n)
{
    (void)r;
    return n == 1;
}

/* The difference from what is expected; r + 1 flows into the result of replica r. */
STEP(gradient_of_operation)
{
    const derivative *d = user;
    int               r = co_replica_id(ctx), n = co_replicas(ctx);
    co_value         *x = co_scalar_float(ctx, (float)d->brings(r, n)), *y;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_all_reduce(ctx, d->op, x), co_float(ctx, 1 + r));
    return co_sub(ctx, co_gradient(ctx, y, x),
                  co_float(ctx, d->gradient(r, n) * SUM_OF_IDS(n + 1)));
}

CONFORM(every_operation_of_all_reduce_has_its_gradient, "RC-AR-9")
{
    derivative all[] = {
        { CO_REDUCE_MAX, id, is_last },
        { CO_REDUCE_MIN, id, is_first },
        { CO_REDUCE_MAX, nothing_but, equal_part },
        { CO_REDUCE_PROD, next_id, others },
        { CO_REDUCE_PROD, id, others_of_zero },
        { CO_REDUCE_PROD, after_two_zeros, if_alone },
    };

    for (size_t i = 0; i < LENGTH(all); ++i)
        EXPECT_LOCAL(ctx, s, suite_step(ctx, s, gradient_of_operation, &all[i]), 0, 0);
}

static co_value *
numbers_from(co_context *ctx, int64_t first, int64_t n)
{
    return co_range(ctx, co_int(ctx, first), co_int(ctx, first + n), co_int(ctx, 1), CO_FLOAT32);
}

/* Replica r has r % 2 + 1 columns; column c of what is gathered counts c + 1 times. */
STEP(gradient_of_gather)
{
    int64_t   r = co_replica_id(ctx), before = r + r / 2, mine = r % 2 + 1;
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, mine)), *y, *columns, *expected;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_all_gather(ctx, x, -1);
    columns = numbers_from(ctx, 1, co_value_dim(ctx, y, 1));
    expected = numbers_from(ctx, before + 1, mine);
    expected = co_mul(ctx, expected, co_float(ctx, co_replicas(ctx)));
    return co_reduce_sum(
        ctx, co_abs(ctx, co_sub(ctx, co_gradient(ctx, co_mul(ctx, y, columns), x), expected)),
        CO_ALL_AXES, false);
}

CONFORM(gradients_pass_through_all_gather, "")
{
    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, gradient_of_gather, NULL), 0, 0);
}

/* Replica r has r % 2 + 1 rows of one number each, and a dense leaf beside them. */
STEP(reduce_slices)
{
    float     data[] = { (float)co_replica_id(ctx), 50 };
    int64_t   at[] = { co_replica_id(ctx), 1 }, rows = co_replica_id(ctx) % 2 + 1;
    co_value *x = co_slices(ctx, co_tensor(ctx, CO_FLOAT32, &rows, 1, data),
                            co_tensor(ctx, CO_INT64, &rows, 1, at),
                            co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ 9 }));

    return co_all_reduce(ctx, CO_REDUCE_SUM, co_args(ctx, x, co_scalar_float(ctx, 1)));
}

CONFORM(slices_of_uneven_length_are_concatenated, "RC-AR-11")
{
    co_value *r = suite_step(ctx, s, reduce_slices, NULL), *x;
    int       rows = row->n + row->n / 2;

    EXPECT_LOCAL(ctx, s, co_at(ctx, r, 1), row->n, 0);
    x = suite_local(ctx, s, co_at(ctx, r, 0), 0);
    CO_EXPECT_INT(co_value_kind(x), CO_KIND_SLICES);
    EXPECT_ELEMENTS(ctx, co_slices_values(ctx, x), rows, 0, 1, 50, 2, 3, 50, 4, 5, 50, 6, 7, 50);
    EXPECT_ELEMENTS(ctx, co_slices_indices(ctx, x), rows, 0, 1, 1, 2, 3, 1, 4, 5, 1, 6, 7, 1);
    CO_EXPECT_INT(co_item_int(ctx, co_slices_dense_shape(ctx, x)), 9);
}

STEP(slices_beside_dense)
{
    co_value *v = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1));

    return co_all_reduce(ctx, CO_REDUCE_SUM,
                         co_replica_id(ctx) % 2 == 1
                             ? co_slices(ctx, v, co_zeros(ctx, CO_INT64, CO_SHAPE(1)), NULL)
                             : v);
}

CONFORM(slices_do_not_meet_dense_leaves, "RC-AR-11")
{
    suite_step(ctx, s, slices_beside_dense, NULL);
    EXPECT_OUTCOME(ctx, row->structures_reduced);
}

STEP(inputs_stay)
{
    co_value *x = co_add(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(5000)),
                         co_float(ctx, co_replica_id(ctx)));
    co_value *sum = co_all_reduce(ctx, CO_REDUCE_SUM, x);

    CO_EXPECT_CLOSE(suite_number(ctx, co_reduce_max(ctx, x, CO_ALL_AXES, false)),
                    co_replica_id(ctx), 0);
    return co_reduce_max(ctx, sum, CO_ALL_AXES, false);
}

CONFORM(all_reduce_leaves_its_input_alone, "RC-AR-1")
{
    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, inputs_stay, NULL), SUM_OF_IDS(row->n), 0);
}

STEP(many_collectives)
{
    co_value *x = co_scalar_float(ctx, 1);

    for (int i = 0; i < 50; ++i)
        x = co_div(ctx, co_all_reduce(ctx, CO_REDUCE_SUM, x), co_float(ctx, co_replicas(ctx)));
    return x;
}

CONFORM(collectives_follow_each_other, "RC-AR-3 THR-2")
{
    for (int i = 0; i < 5; ++i)
        EXPECT_LOCAL(ctx, s, suite_step(ctx, s, many_collectives, NULL), 1, 0);
}

STEP(reduce_and_fail)
{
    co_all_reduce(ctx, CO_REDUCE_SUM, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(20000)));
    return co_fail(ctx, CO_ABORTED, "had enough"), NULL;
}

/* Who fails right after a collective has done its part of it: others may still be at theirs. */
CONFORM(failing_after_a_collective_breaks_nothing, "RC-AR-4 S-RUN-8 GEN-ERR-1")
{
    for (int i = 0; i < 10; ++i) {
        suite_step(ctx, s, reduce_and_fail, NULL);
        CO_EXPECT_ERROR(ctx, CO_ABORTED, "had enough");
        EXPECT_LOCAL(ctx, s, suite_step(ctx, s, inputs_stay, NULL), SUM_OF_IDS(row->n), 0);
    }
}

/* --- all_gather --- */

STEP(gather_ranges)
{
    int64_t   id = co_replica_id(ctx);
    co_value *x = co_cast(
        ctx, co_range(ctx, co_int(ctx, 0), co_int(ctx, id + 1), co_int(ctx, 1), CO_INT32),
        CO_FLOAT32);

    return co_all_gather(ctx, co_args(ctx, x, co_reshape(ctx, x, CO_SHAPE(1, -1))), *(int *)user);
}

CONFORM(all_gather_concatenates_on_every_replica, "RC-AG-1 RC-AG-2 DEF-15")
{
    int       axis = -1;
    co_value *r = suite_step(ctx, s, gather_ranges, &axis);

    for (int i = 0; i < row->local; ++i) {
        EXPECT_ELEMENTS(ctx, suite_local(ctx, s, co_at(ctx, r, 0), i), SUM_OF_IDS(row->n + 1), 0, 0,
                        1, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5,
                        6, 0, 1, 2, 3, 4, 5, 6, 7);
        CO_EXPECT_INT(co_value_dim(ctx, suite_local(ctx, s, co_at(ctx, r, 1), i), 1),
                      SUM_OF_IDS(row->n + 1));
    }
    axis = 0; /* the second leaf has rows of differing lengths */
    suite_step(ctx, s, gather_ranges, &axis);
    EXPECT_OUTCOME(ctx, row->shapes_differ);
    axis = 5;
    suite_step(ctx, s, gather_ranges, &axis);
    EXPECT_OUTCOME(ctx, row->gather_axis);
}

STEP(gather_crooked)
{
    int64_t id = co_replica_id(ctx);

    return co_all_gather(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1 + id, 2 + id)), 0);
}

CONFORM(all_gather_wants_the_other_dimensions_to_agree, "RC-AG-1 RC-AG-2")
{
    suite_step(ctx, s, gather_crooked, NULL);
    EXPECT_OUTCOME(ctx, row->shapes_differ);
}

STEP(gather_scalars)
{
    return co_all_gather(ctx, co_scalar_float(ctx, 1), 0);
}

CONFORM(scalars_are_not_gathered, "RC-AG-1 RC-AG-2 S-GATHER-5")
{
    suite_step(ctx, s, gather_scalars, NULL);
    EXPECT_OUTCOME(ctx, row->gather_axis);
}

/* The replicas go different ways: one reduces, the others gather. */
STEP(disagree)
{
    co_value *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1));

    return co_replica_id(ctx) % 2 == 0 ? co_all_reduce(ctx, CO_REDUCE_SUM, x)
                                       : co_all_gather(ctx, x, 0);
}

CONFORM(replicas_that_disagree_are_told, "RC-AR-3 RC-MERGE-5")
{
    suite_step(ctx, s, disagree, NULL);
    EXPECT_OUTCOME(ctx, row->left_alone);
}

VALUE_OF(crooked_row)
{
    co_value *x = co_range(ctx, co_int(ctx, 0), co_int(ctx, 5003), co_int(ctx, 1), CO_INT32);

    return co_mul(ctx, co_cast(ctx, x, CO_FLOAT32),
                  co_float(ctx, 0.1 + 0.7 * replica->replica_id_in_sync_group));
}

STEP(all_reduce_argument)
{
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, args, 0));
}

CONFORM(all_reduce_gives_the_bits_of_reduce, "RC-AR-1 RC-AR-5 S-REDUCE-9")
{
    co_value *x = suite_values(ctx, s, crooked_row);
    co_value *outside = co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0);
    co_value *inside = co_run(ctx, s, all_reduce_argument, co_args(ctx, x), NULL);

    CO_EXPECT_BYTES(co_value_data(ctx, suite_local(ctx, s, inside, 0)), co_value_data(ctx, outside),
                    5003 * sizeof(float));
}

STEP(all_reduce_with_advice)
{
    return co_all_reduce_with(ctx, CO_REDUCE_SUM, co_at(ctx, args, 0), user);
}

CONFORM(advice_never_changes_a_result, "RC-AR-10 CO-2")
{
    co_communication_options options = CO_COMMUNICATION_OPTIONS_INIT;
    co_value                *x = suite_values(ctx, s, crooked_row), *plain, *advised;

    options.bytes_per_pack = 100;
    plain = co_run(ctx, s, all_reduce_argument, co_args(ctx, x), NULL);
    advised = co_run(ctx, s, all_reduce_with_advice, co_args(ctx, x), &options);
    CO_EXPECT_BYTES(co_value_data(ctx, suite_local(ctx, s, advised, 0)),
                    co_value_data(ctx, suite_local(ctx, s, plain, 0)), 5003 * sizeof(float));
}
