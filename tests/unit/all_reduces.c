/* SPDX-License-Identifier: Apache-2.0 */
/* The corners of all_reduce and all_gather: replicas that differ, values that cannot be combined,
 * many replicas, tapes, no memory. */
#include "engine_support.h"
#include "workers_support.h"

#include "collective/collective.h"
#include "hooks.h"

/* --- replicas that differ --- */

static co_value *
other_op(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_all_reduce(ctx, co_replica_id(ctx) == 0 ? CO_REDUCE_SUM : CO_REDUCE_MEAN,
                         co_scalar_float(ctx, 1));
}

static co_value *
other_axis(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_all_gather(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 2)), co_replica_id(ctx));
}

CO_TEST_WITH(replicas_that_ask_for_different_things_are_named, "RC-AR-3 RC-AG-2", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);

    CO_EXPECT_NULL(co_run(ctx, s, other_op, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR,
                    "replica 0 asks for operation 0 and replica 1 for operation 1");
    CO_EXPECT_NULL(co_run(ctx, s, other_axis, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica 0 asks for axis 0 and replica 1 for axis 1");
}

/* --- values that cannot be combined --- */

typedef struct attempt {
    bool gather;
    int  axis;
    co_value *(*make)(co_context *ctx);
} attempt;

static co_value *
combine(co_context *ctx, co_value *args, void *user)
{
    const attempt *a = user;

    (void)args;
    return a->gather ? co_all_gather(ctx, a->make(ctx), a->axis)
                     : co_all_reduce(ctx, CO_REDUCE_MEAN, a->make(ctx));
}

static co_value *
make_spec(co_context *ctx)
{
    return co_spec(ctx, CO_FLOAT32, CO_SHAPE(2));
}

static co_value *
make_none_in_a_list(co_context *ctx)
{
    return co_list(ctx, (co_value *[]){ co_ones(ctx, CO_FLOAT32, CO_SHAPE(2)), co_none(ctx) }, 2);
}

/* Rows of replica i have i + 1 columns: they cannot be put under each other. */
static co_value *
make_crooked_slices(co_context *ctx)
{
    return co_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, co_replica_id(ctx) + 1)),
                     co_zeros(ctx, CO_INT32, CO_SHAPE(1)), NULL);
}

static co_value *
make_vector(co_context *ctx)
{
    return co_ones(ctx, CO_FLOAT32, CO_SHAPE(3));
}

CO_TEST_WITH(what_cannot_be_combined_is_refused_on_all_replicas, "RC-AR-7 RC-AG-1 RC-AG-2 RC-AR-11",
             "cpus=2")
{
    static const struct {
        attempt     a;
        co_code     code;
        const char *part;
    } cases[] = {
        { { false, 0, make_spec }, CO_TYPE_ERROR, "" },
        { { false, 0, make_none_in_a_list }, CO_VALUE_ERROR, "a leaf of the value is none" },
        { { false, 0, make_crooked_slices }, CO_INVALID_ARGUMENT, "" },
        { { true, 0, make_spec }, CO_TYPE_ERROR, "" },
        { { true, 0, make_none_in_a_list }, CO_VALUE_ERROR, "a leaf of the value is none" },
        { { true, 0, make_crooked_slices }, CO_UNIMPLEMENTED, "slices cannot be gathered" },
        { { true, 1, make_vector }, CO_VALUE_ERROR, "axis 1 of a value of rank 1" },
        { { true, -2, make_vector }, CO_VALUE_ERROR, "axis -2 of a value of rank 1" },
    };
    co_strategy *s = test_mirrored(ctx, 2, -1), *alone = test_mirrored(ctx, 1, -1);
    attempt      none = { false, 0, make_none_in_a_list };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        attempt a = cases[i].a;

        CO_EXPECT_NULL(co_run(ctx, s, combine, co_no_args(ctx), &a));
        CO_EXPECT_ERROR(ctx, cases[i].code, cases[i].part);
    }
    CO_EXPECT_NULL(co_run(ctx, alone, combine, co_no_args(ctx), &none));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "a leaf of the value is none");
}

CO_TEST(after_an_error_nothing_is_combined, "RC-AR-7")
{
    co_communication which = CO_COMMUNICATION_NCCL;

    co_fail(ctx, CO_DATA_LOSS, "first");
    CO_EXPECT_NULL(co_all_reduce(ctx, CO_REDUCE_SUM, NULL));
    CO_EXPECT_NULL(co_all_gather(ctx, NULL, 0));
    CO_EXPECT_CODE(co_communication_from_name(ctx, "RING", &which), CO_DATA_LOSS);
    CO_EXPECT_INT(which, CO_COMMUNICATION_NCCL);
    CO_EXPECT_INT(co_strategy_cross_device_ops(ctx, NULL), CO_CROSS_DEVICE_AUTO);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "first");
    CO_EXPECT_NULL(co_all_reduce(NULL, CO_REDUCE_SUM, NULL));
    CO_EXPECT_NULL(co_all_gather(NULL, NULL, 0));
}

/* --- many replicas, large and small, dense and sparse --- */

enum { MANY = 20, LARGE = 6000 };

static co_value *
slices_of(co_context *ctx, int id)
{
    int64_t at = id;

    return co_slices(ctx, co_fill(ctx, CO_SHAPE(1, 2), co_float(ctx, id)),
                     co_tensor(ctx, CO_INT64, CO_SHAPE(1), &at), NULL);
}

static co_value *
combine_all(co_context *ctx, co_value *args, void *user)
{
    int       id = co_replica_id(ctx);
    co_value *leaves[] = { co_fill(ctx, CO_SHAPE(LARGE), co_float(ctx, id)),
                           co_scalar_float(ctx, (float)id), slices_of(ctx, id),
                           co_fill(ctx, CO_SHAPE(LARGE), co_float(ctx, 1)) };
    co_value *sums = co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, leaves, 4));
    co_value *all = co_all_gather(ctx, co_fill(ctx, CO_SHAPE(1), co_float(ctx, id)), 0);

    (void)args;
    (void)user;
    return co_list(ctx, (co_value *[]){ sums, all }, 2);
}

static co_value *
first_of(co_context *ctx, co_strategy *s, co_value *value)
{
    return co_at(ctx, co_local_results(ctx, s, value), 0);
}

static void
expect_combined(co_context *ctx, co_strategy *s, co_value *result, int n)
{
    co_value    *sums = co_at(ctx, result, 0);
    float        total = (float)(n * (n - 1) / 2);
    co_value    *slices = first_of(ctx, s, co_at(ctx, sums, 2));
    const float *all = co_value_data(ctx, first_of(ctx, s, co_at(ctx, result, 1)));
    const float *large = co_value_data(ctx, first_of(ctx, s, co_at(ctx, sums, 0)));

    CO_REQUIRE(all != NULL && large != NULL);
    CO_EXPECT_CLOSE(large[LARGE - 1], total, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, first_of(ctx, s, co_at(ctx, sums, 1))), total, 0);
    CO_EXPECT_INT(co_value_kind(slices), CO_KIND_SLICES);
    for (int i = 0; i < n; ++i)
        CO_EXPECT_CLOSE(all[i], i, 0);
}

CO_TEST_WITH(twenty_replicas_combine_dense_and_sparse_leaves_of_all_sizes,
             "RC-AR-6 RC-AR-11 RC-AG-1", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, MANY, -1);

    expect_combined(ctx, s, co_run(ctx, s, combine_all, co_no_args(ctx), NULL), MANY);
}

static bool
combine_everywhere(co_context *ctx)
{
    co_strategy *s = test_mirrored(ctx, MANY, -1);

    return co_run(ctx, s, combine_all, co_no_args(ctx), NULL) != NULL;
}

static bool
combine_alone(co_context *ctx)
{
    co_strategy *s = test_mirrored(ctx, 1, -1);

    return co_run(ctx, s, combine_all, co_no_args(ctx), NULL) != NULL;
}

CO_TEST_BARE(no_memory_in_a_collective_is_an_error_of_the_step, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", combine_alone);
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", combine_everywhere);
}

/* --- between workers --- */

static void
combine_between(co_context *ctx, int rank, const co_multi_worker_mirrored_options *options,
                void *user)
{
    co_strategy *s = co_multi_worker_mirrored_strategy(ctx, options);

    (void)rank;
    (void)user;
    expect_combined(ctx, s, co_run(ctx, s, combine_all, co_no_args(ctx), NULL), 4);
}

CO_TEST_BARE(workers_combine_dense_and_sparse_leaves_of_all_sizes, "MW-10 RC-AR-11 RC-AG-1")
{
    for (int size = 1; size <= 3; ++size)
        test_workers(size, combine_between, NULL);
}

/* So many leaves that their description does not fit into a word between workers. */
static co_value *
combine_fifty(co_context *ctx, co_value *args, void *user)
{
    co_value *leaves[50];

    (void)args;
    (void)user;
    for (int i = 0; i < 50; ++i)
        leaves[i] = co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, i + 1));
    return co_at(ctx, co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, leaves, 50)), 0);
}

static void
combine_fifty_between(co_context *ctx, int rank, const co_multi_worker_mirrored_options *options,
                      void *user)
{
    co_strategy *s = co_multi_worker_mirrored_strategy(ctx, options);
    co_value    *sum = first_of(ctx, s, co_run(ctx, s, combine_fifty, co_no_args(ctx), NULL));

    (void)rank;
    (void)user;
    CO_EXPECT_CLOSE(co_item_float(ctx, sum), 4, 0);
}

CO_TEST_BARE(many_leaves_travel_between_workers, "MW-10")
{
    test_workers(2, combine_fifty_between, NULL);
}

/* Rank 1 has no memory from its n-th allocation in the step on; both must end, and say why. */
typedef struct poor_worker {
    coi_thread_rank rank_slot;
    test_hooks      hooks;
    long long       n;
    co_code         rc;
} poor_worker;

static void *
be_poor_worker(void *arg)
{
    poor_worker                     *self = arg;
    co_options                       how = CO_OPTIONS_INIT;
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    co_context                      *ctx;
    co_strategy                     *s;

    test_hooks_init(&self->hooks, 0);
    how.allocator = &self->hooks.allocator;
    how.settings = "cpus=2";
    ctx = co_open_with(&how);
    CO_REQUIRE(ctx != NULL);
    options.transport = "threads";
    options.communicator = &self->rank_slot;
    options.num_replicas = 4;
    options.deadline_ms = 20000;
    s = co_multi_worker_mirrored_strategy(ctx, &options);
    CO_EXPECT_OK(ctx);
    if (self->n > 0)
        self->hooks.fail_at = self->hooks.requests + self->n;
    co_run(ctx, s, combine_all, co_no_args(ctx), NULL);
    self->rc = co_error(ctx)->code;
    co_clear(ctx);
    co_close(ctx);
    CO_EXPECT_INT(self->hooks.blocks, 0);
    return NULL;
}

CO_TEST_BARE(a_worker_without_memory_ends_the_step_on_all, "MW-14")
{
    bool is_done = false;
    int  failed = 0;

    for (long long n = 1; n < 200 && !is_done; ++n) {
        poor_worker       workers[2];
        pthread_t         threads[2];
        coi_memory        memory;
        coi_thread_world *world;

        coi_memory_init(&memory, NULL);
        CO_REQUIRE(coi_thread_world_create(&memory, 2, &world, NULL) == CO_OK);
        for (int r = 0; r < 2; ++r) {
            workers[r].rank_slot = (coi_thread_rank){ world, r };
            workers[r].n = r == 1 ? n : 0;
            CO_REQUIRE(pthread_create(&threads[r], NULL, be_poor_worker, &workers[r]) == 0);
        }
        for (int r = 0; r < 2; ++r)
            pthread_join(threads[r], NULL);
        coi_thread_world_destroy(world);
        is_done = workers[1].rc == CO_OK;
        failed += !is_done;
        CO_EXPECT_CODE(workers[1].rc, is_done ? CO_OK : CO_RESOURCE_EXHAUSTED);
        /* Who finds no memory before its step begins says nothing; it is missed when it leaves. */
        if (workers[0].rc != CO_UNAVAILABLE || is_done)
            CO_EXPECT_CODE(workers[0].rc, workers[1].rc);
    }
    CO_EXPECT_TRUE(is_done);
    CO_EXPECT_MORE(failed, 3);
}

/* --- tapes --- */

/* What is combined on a tape and leads nowhere costs no collective. */
static co_value *
record_all(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_scalar_float(ctx, 2), *y = co_scalar_float(ctx, 3), *list, *sum, *dx;

    (void)args;
    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    list = co_list(ctx, (co_value *[]){ x, y, slices_of(ctx, 0), co_scalar_int32(ctx, 1) }, 4);
    sum = co_at(ctx, co_all_reduce(ctx, CO_REDUCE_SUM, list), 0);
    co_all_reduce(ctx, CO_REDUCE_MAX, x);
    co_all_reduce(ctx, CO_REDUCE_PROD, x);
    co_all_gather(ctx, co_fill(ctx, CO_SHAPE(1), x), 0);
    dx = co_gradient(ctx, co_mul(ctx, sum, y), x);
    return dx;
}

CO_TEST_WITH(only_what_a_target_depends_on_is_differentiated, "RC-AR-9 RC-AR-11", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *dx = co_run(ctx, s, record_all, co_no_args(ctx), NULL);

    CO_EXPECT_CLOSE(co_item_float(ctx, first_of(ctx, s, dx)), 6, 0); /* 3 from each replica */
}

static bool
record_everything(co_context *ctx)
{
    co_strategy *s = test_mirrored(ctx, 2, -1);

    return co_run(ctx, s, record_all, co_no_args(ctx), NULL) != NULL;
}

CO_TEST_BARE(no_memory_for_a_tape_of_collectives_is_an_error, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", record_everything);
}
