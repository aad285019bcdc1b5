/* SPDX-License-Identifier: Apache-2.0 */
/* How values travel: options of strategies and calls, packs, time limits, and that none of it
 * changes a bit. */
#include <cohort/extended.h>

#include "engine_support.h"
#include "workers_support.h"

#include "collective/collective.h"

/* --- what options may say --- */

CO_TEST(options_begin_as_documented, "CO-1")
{
    co_communication_options options = CO_COMMUNICATION_OPTIONS_INIT;

    CO_EXPECT_INT(options.bytes_per_pack, 0);
    CO_EXPECT_TRUE(options.timeout_seconds == CO_TIMEOUT_OF_STRATEGY);
    CO_EXPECT_INT(options.implementation, CO_COMMUNICATION_AUTO);
    CO_EXPECT_OK(ctx);
}

CO_TEST(an_implementation_has_a_name_in_any_case, "CO-1")
{
    static const char *const names[] = { "AUTO", "ring", "Nccl" };
    co_communication         found;

    for (int i = 0; i < 3; ++i) {
        found = (co_communication)99;
        CO_EXPECT_CODE(co_communication_from_name(ctx, names[i], &found), CO_OK);
        CO_EXPECT_INT(found, i);
    }
    CO_EXPECT_CODE(co_communication_from_name(ctx, "PIGEON", &found), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR,
                    "'PIGEON' is not an implementation; the names are AUTO, RING and NCCL");
    CO_EXPECT_CODE(co_communication_from_name(ctx, "", &found), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "''");
    CO_EXPECT_CODE(co_communication_from_name(ctx, NULL, &found), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 2");
    CO_EXPECT_CODE(co_communication_from_name(ctx, "AUTO", NULL), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "argument 3");
}

/* The same options to every call that takes them, and to a strategy. */
static void
expect_refused(co_context *ctx, const co_communication_options *options, co_code code,
               const char *why)
{
    co_strategy                     *s = test_mirrored(ctx, 2, -1);
    co_value                        *x = co_scalar_float(ctx, 1), *place = co_string(ctx, "/cpu:0");
    co_multi_worker_mirrored_options workers = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    CO_EXPECT_NULL(co_all_reduce_with(ctx, CO_REDUCE_SUM, x, options));
    CO_EXPECT_ERROR(ctx, code, why);
    CO_EXPECT_NULL(co_all_gather_with(ctx, x, 0, options));
    CO_EXPECT_ERROR(ctx, code, why);
    CO_EXPECT_NULL(co_reduce_to_with(ctx, s, CO_REDUCE_SUM, x, place, options));
    CO_EXPECT_ERROR(ctx, code, why);
    CO_EXPECT_NULL(co_batch_reduce_to_with(ctx, s, CO_REDUCE_SUM, co_list(ctx, NULL, 0), options));
    CO_EXPECT_ERROR(ctx, code, why);
    workers.communication = options;
    CO_EXPECT_NULL(co_multi_worker_mirrored_strategy(ctx, &workers));
    CO_EXPECT_ERROR(ctx, code, why);
}

CO_TEST_WITH(options_out_of_range_are_refused_everywhere, "CO-1 RC-AR-10", "cpus=2")
{
    co_communication_options options = CO_COMMUNICATION_OPTIONS_INIT;

    options.bytes_per_pack = -1;
    expect_refused(ctx, &options, CO_VALUE_ERROR, "bytes_per_pack is -1");
    options.bytes_per_pack = 0;
    options.timeout_seconds = -2;
    expect_refused(ctx, &options, CO_VALUE_ERROR, "timeout_seconds is -2");
    options.timeout_seconds = (double)NAN;
    expect_refused(ctx, &options, CO_VALUE_ERROR, "timeout_seconds is");
    options.timeout_seconds = 1;
    options.implementation = (co_communication)3;
    expect_refused(ctx, &options, CO_VALUE_ERROR, "implementation is 3");
    options.struct_size = 1;
    expect_refused(ctx, &options, CO_INVALID_ARGUMENT, "struct_size 1");
}

/* --- packs --- */

typedef struct pack_case {
    size_t bytes_per_pack;
    size_t ends[4]; /* of the packs of jobs of 40, 0, 24, 8 and 400 bytes; 0: no more */
} pack_case;

CO_TEST_BARE(a_pack_ends_when_it_exceeds_its_size, "CO-4")
{
    static const pack_case cases[] = {
        { 0, { 5 } },                            /* one */
        { 1, { 1, 3, 4, 5 } },                   /* the empty value joins the next */
        { 39, { 1, 5 } },                        /* 24 + 8 do not exceed it, so 400 come along */
        { 40, { 3, 5 } },                        /* 40 do not either */
        { 64, { 4, 5 } },      { 71, { 4, 5 } }, /* 64, 72 */
        { 72, { 5 } },         { 1 << 20, { 5 } },
    };
    static const int64_t elements[] = { 10, 0, 6, 2, 100 };
    coi_reduction        jobs[5];

    for (int i = 0; i < 5; ++i)
        jobs[i] = (coi_reduction){ .dtype = CO_FLOAT32, .num_elements = elements[i] };
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); ++k) {
        size_t from = 0;

        for (int i = 0; i < 4 && cases[k].ends[i] > 0; ++i, from = cases[k].ends[i - 1])
            CO_EXPECT_INT(coi_pack_end(jobs, 5, from, cases[k].bytes_per_pack), cases[k].ends[i]);
        CO_EXPECT_INT(from, 5);
    }
    CO_EXPECT_INT(coi_pack_end(jobs, 0, 0, 7), 0);
}

/* --- bits --- */

enum { NUM_LEAVES = 5, LONGEST = 40000 };
static const int64_t lengths[NUM_LEAVES] = { 3, 1000, 0, LONGEST, 17 };

/* Leaf k of a replica: thirds and sevenths, so that the order of a sum shows. */
static co_value *
leaf_of(co_context *ctx, int replica, int k)
{
    float    *data = calloc(LONGEST, sizeof(*data));
    co_value *leaf;

    CO_REQUIRE(data != NULL);
    for (int64_t i = 0; i < lengths[k]; ++i)
        data[i] = (float)(i % 97 + 1) / (float)(3 + 4 * replica) *
                  (replica % 2 == 0 ? 1e3f : 1e-3f);
    leaf = co_tensor(ctx, CO_FLOAT32, &lengths[k], 1, data);
    free(data);
    return leaf;
}

typedef struct reduction {
    co_reduce_op                    op;
    const co_communication_options *options;
} reduction;

static co_value *
reduce_leaves(co_context *ctx, co_value *args, void *user)
{
    const reduction *how = user;
    co_value        *leaves[NUM_LEAVES];

    (void)args;
    for (int k = 0; k < NUM_LEAVES; ++k)
        leaves[k] = leaf_of(ctx, co_replica_id(ctx), k);
    return co_all_reduce_with(ctx, how->op, co_list(ctx, leaves, NUM_LEAVES), how->options);
}

/* FNV-1a over what this process's first replica got. */
static uint64_t
hash_of(co_context *ctx, co_strategy *s, co_value *result)
{
    uint64_t hash = UINT64_C(1469598103934665603);

    for (int k = 0; k < NUM_LEAVES; ++k) {
        co_value *leaf = co_at(ctx, co_local_results(ctx, s, co_at(ctx, result, (size_t)k)), 0);
        const unsigned char *bytes = co_value_data(ctx, leaf);

        CO_EXPECT_INT(co_value_num_elements(ctx, leaf), lengths[k]);
        for (int64_t i = 0; i < 4 * lengths[k]; ++i)
            hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

static uint64_t
run_and_hash(co_context *ctx, co_strategy *s, co_reduce_op op,
             const co_communication_options *options)
{
    reduction how = { op, options };
    uint64_t  hash = 0;

    CO_BLOCK(ctx) {
        co_value *result = co_run(ctx, s, reduce_leaves, co_no_args(ctx), &how);

        CO_EXPECT_OK(ctx);
        hash = hash_of(ctx, s, result);
    }
    return hash;
}

/* The hashes that one process with four replicas gets. */
static void
expected_hashes(uint64_t out[2])
{
    co_context  *ctx = co_open("cpus=2");
    co_strategy *s = test_mirrored(ctx, 4, -1);

    out[0] = run_and_hash(ctx, s, CO_REDUCE_SUM, NULL);
    out[1] = run_and_hash(ctx, s, CO_REDUCE_MEAN, NULL);
    CO_EXPECT_TRUE(out[0] != out[1]);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
}

static void
reduce_every_way(co_context *ctx, int rank, const co_multi_worker_mirrored_options *options,
                 void *user)
{
    static const int64_t packs[] = { 0, 1, 4000, 1 << 30 };
    const uint64_t      *expected = user;
    co_strategy         *s = co_multi_worker_mirrored_strategy(ctx, options);

    (void)rank;
    CO_EXPECT_INT(run_and_hash(ctx, s, CO_REDUCE_SUM, NULL), expected[0]);
    for (int p = 0; p < 4; ++p)
        for (int i = CO_COMMUNICATION_AUTO; i <= CO_COMMUNICATION_NCCL; ++i) {
            co_communication_options how = { sizeof(how), packs[p], p == 2 ? 0 : 30,
                                             (co_communication)i };

            CO_EXPECT_INT(run_and_hash(ctx, s, CO_REDUCE_SUM, &how), expected[0]);
            CO_EXPECT_INT(run_and_hash(ctx, s, CO_REDUCE_MEAN, &how), expected[1]);
        }
}

CO_TEST_BARE(advice_changes_no_bit_between_workers, "CO-2 CO-4 RC-AR-10")
{
    uint64_t expected[2];

    expected_hashes(expected);
    for (int size = 1; size <= 4; ++size)
        test_workers(size, reduce_every_way, expected);
}

CO_TEST_WITH(advice_changes_no_bit_in_one_process, "CO-2 CO-3 MIR-CDO-1 RC-AR-10", "cpus=2")
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };
    uint64_t                 expected[2];

    expected_hashes(expected);
    for (int i = CO_CROSS_DEVICE_AUTO; i <= CO_CROSS_DEVICE_RING; ++i) {
        co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;
        co_communication_options how = { sizeof(how), 1000 * i, 1e-9, CO_COMMUNICATION_RING };
        co_strategy             *s;

        options.num_replicas = 4;
        options.cross_device_ops = (co_cross_device_ops)i;
        options.num_packs = i;
        s = co_mirrored_strategy(ctx, devices, 2, &options);
        CO_EXPECT_INT(co_strategy_cross_device_ops(ctx, s), i == 0 ? CO_CROSS_DEVICE_RING : i);
        CO_EXPECT_INT(run_and_hash(ctx, s, CO_REDUCE_SUM, &how), expected[0]);
        CO_EXPECT_INT(run_and_hash(ctx, s, CO_REDUCE_MEAN, NULL), expected[1]);
    }
}

CO_TEST_WITH(the_algorithm_follows_the_devices, "MIR-CDO-1", "cpus=2,devices=GPU:2")
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1", "/gpu:0", "/gpu:1" };
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;

    CO_EXPECT_INT(co_strategy_cross_device_ops(ctx, co_mirrored_strategy(ctx, devices, 2, NULL)),
                  CO_CROSS_DEVICE_RING);
    CO_EXPECT_INT(co_strategy_cross_device_ops(ctx,
                                               co_mirrored_strategy(ctx, devices + 1, 2, NULL)),
                  CO_CROSS_DEVICE_REDUCE_TO_ONE);
    CO_EXPECT_INT(co_strategy_cross_device_ops(ctx,
                                               co_mirrored_strategy(ctx, devices + 2, 2, NULL)),
                  CO_CROSS_DEVICE_NCCL);
    CO_EXPECT_INT(co_strategy_cross_device_ops(ctx, co_one_device_strategy(ctx, "/cpu:0")),
                  CO_CROSS_DEVICE_RING);
    CO_EXPECT_INT(co_strategy_cross_device_ops(ctx, NULL), CO_CROSS_DEVICE_AUTO);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    options.num_packs = -1;
    CO_EXPECT_NULL(co_mirrored_strategy(ctx, devices, 2, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "num_packs is -1; it must be at least 0");
    options.num_packs = 0;
    options.cross_device_ops = (co_cross_device_ops)5;
    CO_EXPECT_NULL(co_mirrored_strategy(ctx, devices, 2, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "cross_device_ops is 5");
}

/* --- the strategy's and the call's --- */

static co_value *
one(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_all_reduce_with(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1), user);
}

static co_value *
brought(co_context *ctx, co_strategy *s)
{
    co_value *parts[4];
    size_t    n = (size_t)co_num_local_replicas(ctx, s);

    for (size_t i = 0; i < n; ++i)
        parts[i] = co_scalar_float(ctx, (float)i + 1);
    return co_per_replica_value(ctx, parts, n);
}

/* Rank 0's strategy packs and rank 1's does not: they disagree until a call says the same on
 * both. */
static void
disagree_then_override(co_context *ctx, int rank, const co_multi_worker_mirrored_options *options,
                       void *user)
{
    co_multi_worker_mirrored_options mine = *options;
    co_communication_options packed = CO_COMMUNICATION_OPTIONS_INIT, same = packed, ring = packed;
    co_strategy             *s;
    co_value                *ones;

    (void)user;
    packed.bytes_per_pack = 64;
    mine.communication = rank == 0 ? &packed : NULL;
    s = co_multi_worker_mirrored_strategy(ctx, &mine);
    CO_EXPECT_NULL(co_run(ctx, s, one, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "in packs of 64 bytes");
    same.bytes_per_pack = 128;
    ones = co_run(ctx, s, one, co_no_args(ctx), &same);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, co_local_results(ctx, s, ones), 0)), 4, 0);
    ring.implementation = CO_COMMUNICATION_RING;
    ring.bytes_per_pack = 128;
    CO_EXPECT_NULL(co_run(ctx, s, one, co_no_args(ctx), rank == 0 ? &ring : &same));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "in packs of 128 bytes in a ring");
    /* The advice of a call ends with it. */
    CO_EXPECT_NULL(co_run(ctx, s, one, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "in packs of 64 bytes");
    /* Across replicas too. */
    ones = co_reduce_to_with(ctx, s, CO_REDUCE_SUM, brought(ctx, s), co_string(ctx, "/cpu:0"),
                             &same);
    CO_EXPECT_CLOSE(co_item_float(ctx, ones), 6, 0);
}

CO_TEST_BARE(fields_of_a_call_override_those_of_the_strategy, "CO-2")
{
    test_workers(2, disagree_then_override, NULL);
}

static void
reduce_to_places(co_context *ctx, int rank, const co_multi_worker_mirrored_options *options,
                 void *user)
{
    co_strategy             *s = co_multi_worker_mirrored_strategy(ctx, options);
    co_communication_options how = { sizeof(how), 1, 30, CO_COMMUNICATION_RING };
    co_value                *place = co_string(ctx, "/cpu:0"), *results, *pairs[2];

    (void)rank;
    (void)user;
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_to_with(ctx, s, CO_REDUCE_SUM, brought(ctx, s),
                                                         place, &how)),
                    6, 0);
    for (int i = 0; i < 2; ++i)
        pairs[i] = co_tuple(ctx, (co_value *[]){ brought(ctx, s), place }, 2);
    results = co_batch_reduce_to_with(ctx, s, CO_REDUCE_MEAN, co_list(ctx, pairs, 2), &how);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, results, 1)), 1.5, 0);
}

CO_TEST_BARE(values_are_reduced_to_places_with_advice, "CO-2 RC-AR-10")
{
    test_workers(2, reduce_to_places, NULL);
}

/* --- time --- */

static void
wait_for_nobody(co_context *ctx, int rank, const co_multi_worker_mirrored_options *options,
                void *user)
{
    co_strategy             *s = co_multi_worker_mirrored_strategy(ctx, options);
    co_communication_options soon = CO_COMMUNICATION_OPTIONS_INIT;
    double                   begin = test_now_ms();

    (void)user;
    soon.timeout_seconds = 0.05;
    if (rank == 0) { /* the deadline of the strategy is a minute */
        CO_EXPECT_NULL(co_run(ctx, s, one, co_no_args(ctx), &soon));
        CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED, "waited 50 ms");
        CO_EXPECT_LESS(test_now_ms() - begin, 20000);
    } else {
        test_rest_ms(500);
    }
}

CO_TEST_BARE(a_collective_that_takes_longer_than_its_timeout_ends, "CO-3 MW-14")
{
    test_workers(2, wait_for_nobody, NULL);
}

static void
wait_longer_than_the_deadline(co_context *ctx, int rank,
                              const co_multi_worker_mirrored_options *options, void *user)
{
    co_multi_worker_mirrored_options mine = *options;
    co_communication_options         patient = CO_COMMUNICATION_OPTIONS_INIT, hasty = patient;
    co_strategy                     *s;

    patient.timeout_seconds = *(const double *)user;
    hasty.timeout_seconds = 0.001;
    mine.deadline_ms = 20000;
    mine.communication = &hasty;
    s = co_multi_worker_mirrored_strategy(ctx, &mine);
    if (rank == 1)
        test_rest_ms(200);
    CO_EXPECT_CLOSE(
        co_item_float(ctx, co_at(ctx,
                                 co_local_results(ctx, s,
                                                  co_run(ctx, s, one, co_no_args(ctx), &patient)),
                                 0)),
        4, 0);
}

CO_TEST_BARE(a_timeout_of_a_call_replaces_that_of_the_strategy_and_0_disables_it, "CO-2 CO-3")
{
    double never = 0, late = 1e9;

    test_workers(2, wait_longer_than_the_deadline, &never);
    test_workers(2, wait_longer_than_the_deadline, &late);
}

static co_value *
late_replica(co_context *ctx, co_value *args, void *user)
{
    if (co_replica_id(ctx) == 1)
        test_rest_ms(50);
    return one(ctx, args, user);
}

CO_TEST_WITH(without_workers_a_timeout_has_no_effect, "CO-3", "cpus=2")
{
    co_strategy             *s = test_mirrored(ctx, 2, -1);
    co_communication_options soon = CO_COMMUNICATION_OPTIONS_INIT;
    co_value                *sums;

    soon.timeout_seconds = 0.001;
    sums = co_run(ctx, s, late_replica, co_no_args(ctx), &soon);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, co_local_results(ctx, s, sums), 1)), 2, 0);
}
