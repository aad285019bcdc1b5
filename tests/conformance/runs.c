/* SPDX-License-Identifier: Apache-2.0 */
/* run: arguments, results, order, failures. Sections 6.2 and 7. */
#include <cohort/tpu.h>
#include <cohort/v1.h>
#include "suite.h"

#include <stdatomic.h>

/* What the steps of a body leave behind. */
typedef struct record {
    co_strategy     *s;
    const suite_row *row;
    atomic_int       calls;
    int              order[64];
    co_value        *value;
} record;

STEP(count_calls)
{
    record *r = user;

    atomic_fetch_add(&r->calls, 1);
    return co_scalar_float(ctx, (float)co_replica_id(ctx));
}

CONFORM(a_step_runs_once_per_local_replica,
        "S-RUN-1 S-RUN-6 OD-RUN-1 DEF-6 MIR-RUN-1 MW-8 DV-1 DV-GROUP-7")
{
    record    r = { .row = row };
    co_value *ids = suite_step(ctx, s, count_calls, &r);

    CO_EXPECT_INT(r.calls, row->local);
    CO_EXPECT_INT(co_value_kind(ids), row->result_kind);
    EXPECT_LOCAL(ctx, s, ids, 0, 1);
}

STEP(own_device)
{
    return co_string(ctx, co_current_device(ctx));
}

CONFORM(a_step_runs_on_its_replicas_device, "S-RUN-1 MIR-RUN-1 OD-RUN-1 DV-GROUP-4")
{
    co_value *where = suite_step(ctx, s, own_device, NULL);

    for (int i = 0; i < row->local; ++i) {
        /* Replicas are spread evenly and in order. */
        const char *name = row->num_devices > 0 ? row->devices[i * row->num_devices / row->local]
                                                : "/cpu:0";
        char        expected[CO_DEVICE_NAME_MAX];
        co_value   *one = co_value_kind(where) == CO_KIND_STRING ? where
                                                                 : suite_local(ctx, s, where, i);

        co_device_resolve(ctx, name, expected);
        CO_EXPECT_CONTAINS(co_string_at(ctx, one, 0, NULL), strrchr(expected, '/'));
    }
    CO_EXPECT_OK(ctx);
}

CONFORM(arguments_of_run_are_checked, "S-RUN-2 S-RUN-3 OD-RUN-2 C-FN-1")
{
    co_run_options options = CO_RUN_OPTIONS_INIT;
    co_value      *wrong[] = { NULL, co_string(ctx, "x"), co_scalar_float(ctx, 1), co_int(ctx, 5),
                               co_none(ctx) };

    for (size_t i = 0; i < LENGTH(wrong); ++i) {
        CO_EXPECT_NULL(co_run(ctx, s, own_device, wrong[i], NULL));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "args");
    }
    CO_EXPECT_NULL(co_run(ctx, s, NULL, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
    options.kwargs = co_int(ctx, 3);
    CO_EXPECT_NULL(co_run_with(ctx, s, own_device, co_no_args(ctx), NULL, &options));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "kwargs");
}

/* ((bundle, plain), map of the bundle, variable). */
STEP(look_at_arguments)
{
    record   *r = user;
    co_kind   seen = r->row->is->selects ? CO_KIND_TENSOR : CO_KIND_PER_REPLICA;
    co_value *pair = co_at(ctx, args, 0), *map = co_at(ctx, args, 1);

    CO_EXPECT_INT(co_value_kind(co_at(ctx, pair, 0)), seen);
    CO_EXPECT_INT(co_value_kind(co_get(ctx, map, "x")), seen);
    CO_EXPECT_PTR(co_at(ctx, pair, 1), r->value);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, args, 2)), CO_KIND_VARIABLE);
    return seen == CO_KIND_TENSOR ? co_at(ctx, pair, 0) : co_at(ctx, co_at(ctx, pair, 0), 0);
}

/* A bundle by hand, whatever the strategy makes of one: a component for each local replica. */
static co_value *
bundle(co_context *ctx, const suite_row *row, int first, bool mirrored)
{
    co_value *parts[8];

    for (int i = 0; i < row->local; ++i)
        parts[i] = co_scalar_float(ctx, mirrored ? 5.0f : (float)(first + i));
    return mirrored ? co_mirrored_value(ctx, parts, (size_t)row->local)
                    : co_per_replica_value(ctx, parts, (size_t)row->local);
}

CONFORM(a_step_gets_its_components_of_bundles,
        "S-RUN-5 OD-RUN-3 DV-SEL-1 DV-2 GEN-NEST-1 GEN-NEST-2")
{
    static const char *const key[] = { "x" };
    record                   r = { .row = row, .value = co_scalar_float(ctx, 9) };
    co_value                *b = bundle(ctx, row, first, false);
    co_value *v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE), *result;

    result = co_run(ctx, s, look_at_arguments,
                    co_args(ctx, co_args(ctx, b, r.value), co_dict(ctx, key, &b, 1), v), &r);
    EXPECT_LOCAL(ctx, s, result, 0, 1);
}

STEP(one_more)
{
    return co_add(ctx, user != NULL ? user : co_at(ctx, args, 0), co_int(ctx, 1));
}

/* As an argument, in a structure, by keyword, and captured. */
CONFORM(parts_that_no_replica_would_get_are_refused, "S-RUN-5 DV-USE-2")
{
    static const char *const key[] = { "x" };
    co_run_options           options = CO_RUN_OPTIONS_INIT;
    co_value                *parts[9], *many;
    char                     counts[40];

    for (int i = 0; i < 9; ++i)
        parts[i] = co_scalar_float(ctx, 1);
    many = co_per_replica_value(ctx, parts, 9);
    snprintf(counts, sizeof(counts), "has %d replica%s here", row->local,
             row->local == 1 ? "" : "s");
    CO_EXPECT_NULL(co_run(ctx, s, one_more, co_args(ctx, many), NULL));
    CO_EXPECT_STR(co_error(ctx)->call, "run");
    CO_EXPECT_CONTAINS(co_error(ctx)->message, "9 components");
    CO_EXPECT_CONTAINS(co_error(ctx)->message, counts);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "co_distribute_dataset");
    CO_EXPECT_NULL(
        co_run(ctx, s, one_more, co_args(ctx, co_int(ctx, 1), co_dict(ctx, key, &many, 1)), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, counts);
    options.kwargs = co_dict(ctx, key, &many, 1);
    CO_EXPECT_NULL(co_run_with(ctx, s, one_more, co_args(ctx, co_int(ctx, 1)), NULL, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, counts);
    CO_EXPECT_NULL(co_run(ctx, s, one_more, co_no_args(ctx), many));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "9 components is used in a step of");
}

STEP(mirrored_component)
{
    const suite_row *row = user;
    co_value        *x = co_at(ctx, args, 0);

    CO_EXPECT_INT(co_value_kind(x), row->is->selects ? CO_KIND_TENSOR : CO_KIND_MIRRORED);
    return co_mul(ctx, x, co_int(ctx, 2));
}

CONFORM(mirrored_arguments_are_split_too, "S-RUN-5 DV-USE-3 DV-SEL-1")
{
    co_value *m = bundle(ctx, row, first, true);

    EXPECT_LOCAL(ctx, s,
                 co_run(ctx, s, mirrored_component, co_args(ctx, m), (void *)(uintptr_t)row), 10,
                 0);
    CO_EXPECT_CLOSE(suite_number(ctx, co_add(ctx, m, co_int(ctx, 1))), 6, 0);
    CO_SCOPE(ctx, s)
        CO_EXPECT_CLOSE(suite_number(ctx, co_add(ctx, m, co_int(ctx, 1))), 6, 0);
}

STEP(scaled_by_keyword)
{
    co_value *kwargs = co_at(ctx, args, 1);

    CO_EXPECT_INT(co_num_items(ctx, args), 2);
    return co_mul(ctx, co_at(ctx, args, 0), co_get(ctx, kwargs, "scale"));
}

CONFORM(keyword_arguments_come_last, "S-RUN-3 S-RUN-5 C-FN-1")
{
    static const char *const key[] = { "scale" };
    co_run_options           options = CO_RUN_OPTIONS_INIT;
    co_value                *scale = suite_floats(ctx, s, 1, 1);

    options.kwargs = co_dict(ctx, key, &scale, 1);
    EXPECT_LOCAL(ctx, s,
                 co_run_with(ctx, s, scaled_by_keyword, co_args(ctx, co_scalar_float(ctx, 3)), NULL,
                             &options),
                 3, 3);
}

/* {a: (id, [1]), b: 'z'} */
STEP(nested_result)
{
    static const char *const keys[] = { "a", "b" };
    co_value                *one = co_int(ctx, 1);
    co_value *items[] = { co_args(ctx, co_replica_id_tensor(ctx), co_list(ctx, &one, 1)),
                          co_string(ctx, "z") };

    return co_dict(ctx, keys, items, 2);
}

CONFORM(results_keep_their_structure,
        "S-RUN-6 DV-GROUP-1 DV-GROUP-2 DV-GROUP-3 DV-GROUP-4 DV-GROUP-7")
{
    co_value *r = suite_step(ctx, s, nested_result, NULL), *a;

    CO_EXPECT_INT(co_value_kind(r), CO_KIND_DICT);
    a = co_get(ctx, r, "a");
    CO_EXPECT_INT(co_value_kind(a), CO_KIND_TUPLE);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, a, 0)), row->result_kind);
    EXPECT_LOCAL(ctx, s, co_at(ctx, a, 0), 0, 1);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, a, 1)), CO_KIND_LIST);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, co_at(ctx, a, 1), 0)), 1);
    CO_EXPECT_STR(co_string_at(ctx, co_get(ctx, r, "b"), 0, NULL), "z");
}

STEP(same_everywhere)
{
    co_value *given = co_at(ctx, args, 0);

    return co_args(ctx, given, co_int(ctx, 6), co_bool(ctx, true), co_none(ctx), user);
}

CONFORM(what_is_the_same_everywhere_is_not_wrapped,
        "S-RUN-14 DV-GROUP-4 DV-GROUP-6 DV-GROUP-8 DV-GROUP-9 AMB-13 C-VAL-2")
{
    co_value *x = co_scalar_float(ctx, 3), *half = co_float(ctx, 0.5);
    co_value *r = co_run(ctx, s, same_everywhere, co_args(ctx, x), half);

    CO_EXPECT_PTR(co_at(ctx, r, 0), x);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, r, 1)), CO_KIND_INT);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, r, 2)), CO_KIND_BOOL);
    CO_EXPECT_INT(co_value_kind(co_at(ctx, r, 3)), CO_KIND_NONE);
    CO_EXPECT_PTR(co_at(ctx, r, 4), half);
}

STEP(twice)
{
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2));
}

CONFORM(tensors_of_equal_value_are_still_wrapped, "DV-GROUP-4 S-RUN-6 S-RUN-10")
{
    co_value *r = co_run(ctx, s, twice, co_args(ctx, co_scalar_float(ctx, 3)), NULL);

    CO_EXPECT_INT(co_value_kind(r), row->result_kind);
    EXPECT_LOCAL(ctx, s, r, 6, 0);
}

STEP(none_on_odd_replicas)
{
    return co_replica_id(ctx) % 2 == 1 ? NULL : co_scalar_float(ctx, 1);
}

CONFORM(none_may_stand_beside_tensors, "S-RUN-10 DV-GROUP-7 C-FN-1")
{
    co_value *r = suite_step(ctx, s, none_on_odd_replicas, NULL);

    for (int i = 0; i < row->local; ++i)
        CO_EXPECT_INT(co_value_kind(suite_local(ctx, s, r, i)),
                      (first + i) % 2 == 1 ? CO_KIND_NONE : CO_KIND_TENSOR);
}

/* Structures that depend on the replica: lists of 1, 2, ... items; a list or a tuple; maps of other
 * keys. */
STEP(differing)
{
    static const char *const keys[] = { "a", "b" };
    int                      what = *(int *)user, odd = co_replica_id(ctx) % 2;
    co_value                *items[] = { co_int(ctx, 1), co_int(ctx, 1) };

    if (what == 0)
        return co_list(ctx, items, (size_t)(1 + odd));
    if (what == 1)
        return odd ? co_tuple(ctx, items, 1) : co_list(ctx, items, 1);
    return co_dict(ctx, &keys[odd], items, 1);
}

CONFORM(results_of_differing_structure_are_refused, "DV-GROUP-1 DV-GROUP-2 DV-GROUP-3 GEN-ERR-1")
{
    for (int what = 0; what < 3; ++what) {
        suite_step(ctx, s, differing, &what);
        EXPECT_OUTCOME(ctx, row->structures_differ);
    }
}

STEP(use_captured)
{
    return co_add(ctx, user, co_int(ctx, 1));
}

CONFORM(a_captured_bundle_is_the_replicas_own_component, "DV-USE-1 DV-USE-2")
{
    co_value *x = suite_floats(ctx, s, 2, 3);

    EXPECT_LOCAL(ctx, s, suite_step(ctx, s, use_captured, x), 3, 3);
    co_to_tensor(ctx, x, CO_DTYPE_NONE);
    EXPECT_OUTCOME(ctx, row->is->bundle_as_operand);
}

CONFORM(bundles_do_not_convert_and_have_no_arithmetic_outside_a_step, "DV-USE-1 DV-USE-5")
{
    co_value *x = suite_floats(ctx, s, 2, 3), *one = co_scalar_float(ctx, 1), *both[] = { one, x };

    co_cast(ctx, x, CO_INT32);
    EXPECT_OUTCOME(ctx, row->is->bundle_as_operand);
    co_neg(ctx, x);
    EXPECT_OUTCOME(ctx, row->is->bundle_as_operand);
    co_softplus(ctx, x);
    EXPECT_OUTCOME(ctx, row->is->bundle_as_operand);
    co_reduce_sum(ctx, x, NULL, 0, false);
    EXPECT_OUTCOME(ctx, row->is->bundle_as_operand);
    co_stack(ctx, co_list(ctx, both, 2), 0);
    EXPECT_OUTCOME(ctx, row->is->bundle_as_operand);
    co_add(ctx, x, one);
    EXPECT_OUTCOME(ctx, row->is->bundle_arithmetic);
    co_mul(ctx, one, x);
    EXPECT_OUTCOME(ctx, row->is->bundle_arithmetic);
    co_less(ctx, x, co_int(ctx, 1));
    EXPECT_OUTCOME(ctx, row->is->bundle_arithmetic);
}

STEP(log_order)
{
    record *r = user;

    r->order[atomic_fetch_add(&r->calls, 1)] = co_replica_id(ctx);
    return NULL;
}

CONFORM(replicas_may_take_turns, "S-RUN-7")
{
    record         r = { .row = row };
    co_run_options options = CO_RUN_OPTIONS_INIT;

    options.in_turn = true;
    for (int round = 0; round < 3; ++round) {
        r.calls = 0;
        co_run_with(ctx, s, log_order, co_no_args(ctx), &r, &options);
        CO_EXPECT_INT(r.calls, row->local);
        for (int i = 0; i < row->local; ++i)
            CO_EXPECT_INT(r.order[i], first + i);
    }
}

STEP(fail_with_payload)
{
    return co_fail_with(ctx, CO_DATA_LOSS, user, NULL, "lost by all replicas"), NULL;
}

CONFORM(an_error_of_user_code_arrives_unchanged, "S-RUN-8 S-RUN-13 GEN-ERR-1 GEN-ERR-2 C-FN-2")
{
    int payload = 7;

    CO_EXPECT_NULL(suite_step(ctx, s, fail_with_payload, &payload));
    CO_EXPECT_PTR(co_error(ctx)->payload, &payload);
    CO_EXPECT_TRUE(co_error(ctx)->replica >= first && co_error(ctx)->replica < first + row->local);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "lost by all replicas");
    CO_EXPECT_FALSE(co_has_strategy(ctx));
}

STEP(last_fails)
{
    if (co_replica_id(ctx) == co_replicas(ctx) - 1)
        return co_fail(ctx, CO_ABORTED, "the last one gives up"), NULL;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

CONFORM(the_error_of_one_replica_ends_the_step_for_all, "S-RUN-8 RC-AR-4 GEN-ERR-2")
{
    for (int i = 0; i < 3; ++i) {
        CO_EXPECT_NULL(suite_step(ctx, s, last_fails, NULL));
        CO_EXPECT_ERROR(ctx, CO_ABORTED, "gives up");
    }
}

STEP(last_leaves)
{
    if (co_replicas(ctx) > 1 && co_replica_id(ctx) == co_replicas(ctx) - 1)
        return NULL;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

CONFORM(a_replica_that_returns_without_the_collective_is_found, "RC-AR-3 RC-MERGE-5")
{
    bool is_last = first + row->local == row->n;

    suite_step(ctx, s, last_leaves, NULL);
    EXPECT_OUTCOME(ctx, is_last ? row->left_others : row->left_alone);
}

STEP(numbers)
{
    co_value *a = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(5), 0, 1);

    return co_args(ctx, a, co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1));
}

CONFORM(random_numbers_depend_on_seed_and_replica_alone, "S-RUN-7")
{
    static const char *const one[] = { "/cpu:0" };
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;
    co_strategy             *plain;
    co_value                *r, *again;

    options.num_replicas = row->n;
    plain = co_mirrored_strategy(ctx, one, 1, &options);
    co_set_seed(ctx, 12);
    suite_step(ctx, s, numbers, NULL);
    r = co_at(ctx, suite_step(ctx, s, numbers, NULL), 1); /* of the second step */
    co_set_seed(ctx, 12);
    suite_step(ctx, plain, numbers, NULL);
    again = co_at(ctx, suite_step(ctx, plain, numbers, NULL), 1);
    for (int i = 0; i < row->local; ++i) {
        co_value *b = row->n > 1 ? co_at(ctx, again, (size_t)(first + i)) : again;

        CO_EXPECT_BYTES(co_value_data(ctx, suite_local(ctx, s, r, i)), co_value_data(ctx, b), 12);
        if (i > 0)
            CO_EXPECT_TRUE(memcmp(co_value_data(ctx, b),
                                  co_value_data(ctx, suite_local(ctx, s, r, 0)), 12) != 0);
    }
}

STEP(add_one)
{
    co_assign_add(ctx, user, co_float(ctx, 1));
    return NULL;
}

CONFORM(ordinary_variables_are_changed_whole, "S-RUN-7 OD-SCOPE-3")
{
    co_value *v = co_variable(ctx, co_float(ctx, 0), NULL);

    for (int i = 0; i < 20; ++i)
        suite_step(ctx, s, add_one, v);
    CO_EXPECT_CLOSE(suite_number(ctx, v), 20 * row->local, 0);
}

CONFORM(call_for_each_replica_takes_any_argument, "EXT-CFER-1")
{
    co_value *x = suite_floats(ctx, s, 1, 1);

    EXPECT_LOCAL(ctx, s, co_call_for_each_replica(ctx, s, twice, co_args(ctx, x), NULL), 2, 2);
    EXPECT_LOCAL(ctx, s, co_call_for_each_replica(ctx, s, twice, x, NULL), 2, 2);
    CO_EXPECT_INT(co_value_kind(co_call_for_each_replica(ctx, s, none_on_odd_replicas, NULL,
                                                         NULL)) != CO_KIND_NULL,
                  1);
}

CONFORM(options_for_other_strategies_are_accepted, "S-RUN-9 RO-1")
{
    co_tpu_run_options options = CO_TPU_RUN_OPTIONS_INIT;

    options.experimental_enable_dynamic_batch_size = false;
    options.experimental_bucketizing_dynamic_shape = true;
    options.experimental_xla_options = &options;
    EXPECT_LOCAL(ctx, s,
                 co_tpu_run(ctx, s, twice, co_args(ctx, co_scalar_float(ctx, 2)), NULL, &options),
                 4, 0);
}

/* The loop of the documents: 2 * (0 + 1 + ... + 9), on every replica. */
CONFORM(a_loop_over_host_numbers, "OD-EX-1 S-RUN-6 C-VAL-3")
{
    double sum = 0;

    for (int i = 0; i < 10; ++i)
        CO_BLOCK(ctx) {
            co_value *r = co_run(ctx, s, twice, co_args(ctx, co_int(ctx, i)), NULL);

            sum += suite_number(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, r, NULL, 0));
        }
    CO_EXPECT_CLOSE(sum, 90, 0);
}

CONFORM(bundles_are_printed_component_by_component, "DV-FMT-1")
{
    co_value *parts[] = { co_int(ctx, 4), co_int(ctx, 5) };
    char      text[200];

    co_format(ctx, co_per_replica_value(ctx, parts, 2), text, sizeof(text));
    CO_EXPECT_CONTAINS(text, "0: 4");
    CO_EXPECT_CONTAINS(text, "1: 5");
}
