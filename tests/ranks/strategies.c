/* SPDX-License-Identifier: Apache-2.0 */
/* The engine over processes: ids, reductions, variables, training with the same bits, and ranks
 * that fail or disagree. */
#include <cohort/v1.h>
#include "test.h"

#include <string.h>
#include <time.h>

/* Four logical replicas, whoever hosts them; every group size that runs this divides four. */
#define REPLICAS 4

static co_strategy *
workers(co_context *ctx)
{
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    options.num_replicas = REPLICAS;
    return co_multi_worker_mirrored_strategy(ctx, &options);
}

static double
now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* This process's results, one per local replica, however they come back. */
static co_value *
local(co_context *ctx, co_strategy *s, co_value *value, int i)
{
    return co_at(ctx, co_local_results(ctx, s, value), (size_t)i);
}

static co_value *
ids(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    CO_EXPECT_INT(co_replicas(ctx), REPLICAS);
    return co_scalar_float(ctx, 1.0f + (float)co_replica_id(ctx));
}

CO_TEST(replica_ids_go_on_from_process_to_process, "MW-2 MW-8 S-LOCAL-5 S-VFF-6 MW-6")
{
    co_strategy *s = workers(ctx);
    int          here = co_num_local_replicas(ctx, s), first = co_worker_id(ctx, s) * here;
    co_value    *r = co_run(ctx, s, ids, co_no_args(ctx), NULL);
    char         text[300];

    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, s), REPLICAS);
    CO_EXPECT_INT(here * co_num_workers(ctx, s), REPLICAS);
    for (int i = 0; i < here; ++i)
        CO_EXPECT_CLOSE(co_item_float(ctx, local(ctx, s, r, i)), 1 + first + i, 0);
    co_format(ctx, co_worker_devices(ctx, s), text, sizeof(text));
    CO_EXPECT_CONTAINS(text, co_num_workers(ctx, s) > 1 ? "/job:worker/replica:0/task:"
                                                        : "/job:localhost");
}

CO_TEST(reductions_include_every_process, "MW-10 S-REDUCE-9")
{
    co_strategy *s = workers(ctx);
    co_value    *r = co_run(ctx, s, ids, co_no_args(ctx), NULL);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, NULL, 0)), 10, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, r, NULL, 0)), 2.5, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_MAX, r, NULL, 0)), 4, 0);
}

static co_value *
rows(co_context *ctx, co_value *args, void *user)
{
    int64_t n = co_replica_id(ctx) + 1;

    (void)args;
    (void)user;
    return co_cast(ctx, co_range(ctx, co_int(ctx, 0), co_int(ctx, n), co_int(ctx, 1), CO_INT32),
                   CO_FLOAT32);
}

static co_value *
gather_all(co_context *ctx, co_value *args, void *user)
{
    return co_all_gather(ctx, rows(ctx, args, user), 0);
}

CO_TEST(means_and_gathers_over_uneven_rows, "MW-10 S-REDUCE-7 RC-AG-1 S-GATHER-2")
{
    static const float expected[] = { 0, 0, 1, 0, 1, 2, 0, 1, 2, 3 };
    co_strategy       *s = workers(ctx);
    co_value          *r = co_run(ctx, s, rows, co_no_args(ctx), NULL), *all;

    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, CO_AXES(0))), 10, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, r, CO_AXES(0))), 1, 1e-6);
    all = co_gather_replicas(ctx, s, r, 0);
    CO_EXPECT_INT(co_value_num_elements(ctx, all), 10);
    CO_EXPECT_BYTES(co_value_data(ctx, all), expected, sizeof(expected));
    all = local(ctx, s, co_run(ctx, s, gather_all, co_no_args(ctx), NULL), 0);
    CO_EXPECT_BYTES(co_value_data(ctx, all), expected, sizeof(expected));
}

static co_value *
add_id(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_assign_add(ctx, user, co_scalar_float(ctx, 1.0f + (float)co_replica_id(ctx)));
}

CO_TEST(variables_start_with_the_chiefs_value_and_stay_equal,
        "MW-9 MW-10 VAR-MIR-3 VAR-SOR-2 VAR-MIR-4")
{
    static const struct {
        co_synchronization sync;
        co_aggregation     aggregation;
        double             value;
    } cases[] = { { CO_SYNC_AUTO, CO_AGGREGATION_SUM, 20 },
                  { CO_SYNC_AUTO, CO_AGGREGATION_MEAN, 12.5 },
                  { CO_SYNC_AUTO, CO_AGGREGATION_ONLY_FIRST_REPLICA, 11 },
                  { CO_SYNC_ON_READ, CO_AGGREGATION_SUM, 50 },
                  { CO_SYNC_ON_READ, CO_AGGREGATION_MEAN, 12.5 },
                  { CO_SYNC_ON_READ, CO_AGGREGATION_ONLY_FIRST_REPLICA, 11 } };
    co_strategy *s = workers(ctx);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
        co_value           *v = NULL;

        options.synchronization = cases[i].sync;
        options.aggregation = cases[i].aggregation;
        CO_SCOPE(ctx, s)
            v = co_variable(ctx, co_float(ctx, 10 + co_worker_id(ctx, s)), &options);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, v, NULL, 0)), 10, 0);
        co_run(ctx, s, add_id, co_no_args(ctx), v);
        CO_EXPECT_CLOSE(co_item_float(ctx, v), cases[i].value, 0);
        CO_EXPECT_OK(ctx);
    }
}

/* Replica r changes row 0 by 1 and, from replica 1 on, row r by 10 r: not as many rows
 * everywhere. */
static co_value *
change_rows(co_context *ctx, co_value *args, void *user)
{
    int           id = co_replica_id(ctx);
    int64_t       n = id == 0 ? 1 : 2;
    const float   values[2] = { 1, 10.0f * (float)id };
    const int32_t indices[2] = { 0, id };

    (void)args;
    return co_scatter_add(ctx, user,
                          co_slices(ctx, co_tensor(ctx, CO_FLOAT32, &n, 1, values),
                                    co_tensor(ctx, CO_INT32, &n, 1, indices), NULL));
}

CO_TEST(rows_are_changed_by_every_process, "MW-10 VAR-MIR-8 VAR-MIR-4")
{
    static const struct {
        co_aggregation aggregation;
        float          rows[4];
    } cases[] = { { CO_AGGREGATION_SUM, { 4, 10, 20, 30 } },
                  { CO_AGGREGATION_MEAN, { 1, 2.5f, 5, 7.5f } },
                  { CO_AGGREGATION_ONLY_FIRST_REPLICA, { 1, 0, 0, 0 } } };
    co_strategy *s = workers(ctx);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
        co_value           *v = NULL;

        options.aggregation = cases[i].aggregation;
        CO_SCOPE(ctx, s)
            v = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(4)), &options);
        co_run(ctx, s, change_rows, co_no_args(ctx), v);
        CO_EXPECT_OK(ctx);
        for (int k = 0; k < co_num_local_replicas(ctx, s); ++k)
            CO_EXPECT_BYTES(co_value_data(ctx, co_variable_read(ctx, local(ctx, s, v, k))),
                            cases[i].rows, sizeof(cases[i].rows));
    }
}

static co_value *
number_of_worker(co_context *ctx, void *user)
{
    return co_scalar_float(ctx, 10.0f + (float)co_worker_id(ctx, user));
}

static co_value *
make_in_step(co_context *ctx, co_value *args, void *user)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    (void)args;
    options.initializer = number_of_worker;
    options.initializer_user = user;
    return co_variable(ctx, NULL, &options);
}

static co_value *
add_one(co_context *ctx, co_creation *next, co_value *initial, const co_variable_options *options,
        void *user)
{
    (void)user;
    return co_creator_next(ctx, next, co_add(ctx, initial, co_float(ctx, 1)), options);
}

CO_TEST(what_is_made_by_a_function_is_the_chiefs, "MW-9 VAR-RUN-1 VAR-CREATOR-1 VAR-SOR-6")
{
    co_strategy        *s = workers(ctx);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    v = co_run(ctx, s, make_in_step, co_no_args(ctx), s);
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 10, 0);
    CO_SCOPE(ctx, s)
        CO_CREATOR(ctx, add_one, NULL)
            v = co_variable(ctx, number_of_worker(ctx, s), NULL);
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 11, 0);
    CO_SCOPE(ctx, s) /* declared: nothing is sent */
        v = co_variable(ctx, co_spec(ctx, CO_FLOAT32, NULL, 0), NULL);
    CO_EXPECT_FALSE(co_variable_is_initialized(ctx, v));
    options.synchronization = CO_SYNC_ON_READ;
    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_float(ctx, 0), &options);
    co_run(ctx, s, add_id, co_no_args(ctx), v);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_save(ctx, v)), 10, 0);
    CO_EXPECT_CODE(co_variable_restore(ctx, v, co_float(ctx, 6)), CO_OK);
    CO_EXPECT_CLOSE(co_item_float(ctx, local(ctx, s, v, 0)), 6.0 / REPLICAS, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_variable_read(ctx, v)), 6, 0);
}

/* --- failures: every other rank learns of them at once --- */

static co_value *
sum_of(co_context *ctx, co_value *args, void *user)
{
    co_step_context *steps = user;
    co_value        *sum = co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);

    if (steps != NULL)
        co_set_last_step_output(ctx, steps, "from replicas", CO_REDUCE_SUM, sum);
    return sum;
}

static co_value *
both_ways(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    co_value *sums = co_run(ctx, user, sum_of, co_args(ctx, inputs), steps);

    co_set_last_step_output(ctx, steps, "from outside", CO_REDUCE_SUM, sums);
    co_set_non_tensor_output(ctx, steps, "here", co_local_results(ctx, user, sums));
    return NULL;
}

/* Three steps of range(24) in batches of eight: the last has 16 .. 23. */
CO_TEST(steps_put_out_sums_of_every_process, "EXT-STEPS-1 MW-10")
{
    co_strategy     *s = workers(ctx);
    co_dataset      *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 24, 1), 8, false);
    co_iterator     *it = co_iterate(ctx, co_distribute_dataset(ctx, s, data, NULL));
    co_step_context *steps = co_run_steps_on_iterator(ctx, s, both_ways, it, s, 3, NULL);
    co_value        *last = co_last_step_outputs(ctx, steps);

    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, last, "from replicas")), 156);
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, last, "from outside")), 156);
    CO_EXPECT_INT(co_num_items(ctx, co_get(ctx, co_non_tensor_outputs(ctx, steps), "here")),
                  co_num_local_replicas(ctx, s));
}

static co_value *
own_slices(co_context *ctx, co_value *args, void *user)
{
    int64_t row = co_replica_id(ctx);
    float   value = 1 + (float)row;

    (void)args;
    (void)user;
    return co_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1), &value),
                     co_tensor(ctx, CO_INT64, CO_SHAPE(1), &row), NULL);
}

CO_TEST(slices_of_every_process_are_concatenated, "S-REDUCE-20 MW-10")
{
    co_strategy *s = workers(ctx);
    co_value    *parts = co_run(ctx, s, own_slices, co_no_args(ctx), NULL), *r;
    int64_t      indices[REPLICAS];
    float        values[REPLICAS];

    r = co_reduce(ctx, s, CO_REDUCE_MEAN, parts, NULL, 0);
    co_value_copy_data(ctx, co_slices_indices(ctx, r), CO_INT64, indices, REPLICAS);
    co_value_copy_data(ctx, co_slices_values(ctx, r), CO_FLOAT32, values, REPLICAS);
    for (int i = 0; i < REPLICAS && co_ok(ctx); ++i) {
        CO_EXPECT_INT(indices[i], i);
        CO_EXPECT_CLOSE(values[i], (1 + i) / (double)REPLICAS, 0);
    }
}

static co_value *
trouble(co_context *ctx, co_value *args, void *user)
{
    int       what = *(int *)user;
    bool      last = co_replica_id(ctx) == REPLICAS - 1;
    co_value *x = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(what == 2 && last ? 3 : 2));

    (void)args;
    if (what == 0 && last)
        return co_fail(ctx, CO_DATA_LOSS, "the last replica has lost its data"), NULL;
    if (what == 1 && last)
        return NULL;
    return co_all_reduce(ctx, CO_REDUCE_SUM, x);
}

CO_TEST(a_rank_that_fails_or_disagrees_ends_the_step_on_the_others,
        "S-RUN-8 RC-MERGE-5 RC-AR-4 MW-14")
{
    static const co_code code[] = { CO_DATA_LOSS, CO_RUNTIME_ERROR, CO_INVALID_ARGUMENT };
    co_strategy         *s = workers(ctx);
    bool                 is_last = co_worker_id(ctx, s) == co_num_workers(ctx, s) - 1;

    for (int what = 0; what < 3; ++what) {
        double begin = now_ms();

        co_run(ctx, s, trouble, co_no_args(ctx), &what);
        CO_EXPECT_LESS(now_ms() - begin,
                       1000); /* machines that run tests are slow; alone it takes a millisecond */
        if (what == 1 && is_last && co_num_local_replicas(ctx, s) == 1)
            CO_EXPECT_OK(ctx); /* it has returned before the others could complain */
        else
            CO_EXPECT_ERROR(ctx, code[what], NULL);
        CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_SUM,
                                                     co_run(ctx, s, ids, co_no_args(ctx), NULL),
                                                     NULL, 0)),
                        10, 0);
        CO_EXPECT_OK(ctx);
    }
}

/* --- training --- */

typedef struct model {
    co_value     *w, *b;
    co_optimizer *sgd;
} model;

static co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *loss;

    co_tape_begin(ctx);
    loss = co_average_loss(ctx, co_sparse_softmax_cross_entropy(
                                    ctx, co_at(ctx, args, 1),
                                    co_add(ctx, co_matmul(ctx, co_at(ctx, args, 0), m->w), m->b)));
    co_minimize(ctx, m->sgd, loss);
    return loss;
}

static uint64_t
train(co_context *ctx, co_strategy *s)
{
    model                m = { NULL, NULL, co_sgd(ctx, NULL) };
    uint64_t             hash = UINT64_C(1469598103934665603);
    co_value            *x, *y, *w;
    co_dataset          *data;
    const unsigned char *bytes;

    co_set_seed(ctx, 3);
    CO_SCOPE(ctx, s) {
        m.w = co_variable(ctx, co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(8, 5), 0, 1), NULL);
        m.b = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(5)), NULL);
    }
    x = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(37, 8), -1, 1);
    y = co_argmax(ctx, co_slice(ctx, x, (int64_t[]){ 0, 0 }, (int64_t[]){ 37, 5 }, 2), 1, CO_INT64);
    data = co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, co_args(ctx, x, y)), 10, false);
    data = co_dataset_with_autoshard(ctx, data, CO_AUTOSHARD_REPLICA);
    data = co_distribute_dataset(ctx, s, data, NULL);
    for (int epoch = 0; epoch < 10; ++epoch)
        CO_BLOCK(ctx) {
            co_iterator *it = co_iterate(ctx, data);
            co_value    *batch;

            while ((batch = co_next(ctx, it)) != NULL)
                co_run(ctx, s, train_step, batch, &m);
        }
    w = co_variable_read(ctx, m.w);
    bytes = co_value_data(ctx, w);
    for (size_t i = 0; i < 8 * 5 * sizeof(float); ++i)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

/* The same four replicas as processes and as threads of this one: the same bits, uneven last batch
 * included. */
CO_TEST(processes_end_with_the_bits_of_threads, "MW-10 MW-13 DS-PART-3 S-REDUCE-9")
{
    static const char *const one[] = { "/cpu:0" };
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;
    uint64_t                 apart = train(ctx, workers(ctx)), together;

    options.num_replicas = REPLICAS;
    together = train(ctx, co_mirrored_strategy(ctx, one, 1, &options));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_TRUE(apart == together);
}

/* As many elements, and another shape or dtype: nobody takes another's bytes for its own. */
CO_TEST(initial_values_agree_in_dtype_and_shape, "MW-9")
{
    co_strategy *s = workers(ctx);
    bool         chief = co_worker_id(ctx, s) == 0;
    co_value    *values[] = {
           co_zeros(ctx, CO_FLOAT32, chief ? (const int64_t[]){ 2, 3 } : (const int64_t[]){ 3, 2 }, 2),
           co_zeros(ctx, chief ? CO_FLOAT32 : CO_FLOAT64, (const int64_t[]){ chief ? 5 : 4 }, 1)
    };

    for (int i = 0; i < 2; ++i)
        CO_SCOPE(ctx, s) {
            co_value *v = co_variable(ctx, values[i], NULL);

            if (co_num_workers(ctx, s) == 1)
                CO_EXPECT_NOT_NULL(v);
            else
                CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, i == 0 ? "float32 [2,3]" : "float32 [5]");
        }
}

static co_value *
device_here(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_string(ctx, co_value_device(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2))));
}

/* Operations outside run go to the own worker, whatever was current before, and again when the
 * scope is left (SCOPE-10). */
CO_TEST_WITH(a_scope_makes_the_own_worker_current, "MW-7 SCOPE-10 MW-6", "cpus=2")
{
    co_strategy *s = workers(ctx);
    co_value    *devices = co_worker_devices(ctx, s), *names = NULL;
    char         before[CO_DEVICE_NAME_MAX], text[200];

    co_device_begin(ctx, "/cpu:1");
    snprintf(before, sizeof(before), "%s", co_current_device(ctx));
    CO_EXPECT_CONTAINS(before, "CPU:1");
    CO_SCOPE(ctx, s) {
        CO_EXPECT_CONTAINS(co_current_device(ctx), "device:CPU:0");
        CO_EXPECT_STR(co_string_at(ctx, device_here(ctx, NULL, NULL), 0, NULL),
                      co_current_device(ctx));
        CO_SCOPE(ctx, s) /* within itself nothing changes */
            CO_EXPECT_CONTAINS(co_current_device(ctx), "device:CPU:0");
    }
    CO_EXPECT_STR(co_current_device(ctx), before);
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, s), CO_OK);
    CO_EXPECT_CONTAINS(co_current_device(ctx), "device:CPU:0");
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, NULL), CO_OK);
    CO_EXPECT_STR(co_current_device(ctx), before);
    co_device_end(ctx);

    /* The names that the cluster has for the devices here are names here. */
    snprintf(text, sizeof(text), "/task:%d/", co_worker_id(ctx, s));
    if (co_num_workers(ctx, s) > 1)
        CO_EXPECT_CONTAINS(co_string_at(ctx, co_at(ctx, devices, 0), 0, NULL), text);
    CO_SCOPE(ctx, s)
        names = co_update_non_slot(ctx, s, devices, device_here, co_no_args(ctx), NULL,
                                   &(co_update_options){ sizeof(co_update_options), false });
    CO_EXPECT_CONTAINS(co_string_at(ctx, co_at(ctx, names, 0), 0, NULL), "device:CPU:0");
    CO_EXPECT_OK(ctx);
    CO_SCOPE(ctx, s) {
        co_value *sum = co_reduce_to(ctx, s, CO_REDUCE_SUM,
                                     co_run(ctx, s, ids, co_no_args(ctx), NULL),
                                     co_at(ctx, devices, 0));

        CO_EXPECT_CLOSE(co_item_float(ctx, sum), 10, 0);
        CO_EXPECT_CONTAINS(co_value_device(ctx, sum), "device:CPU:0");
    }
    CO_EXPECT_OK(ctx);
}

/* What MW-12 sets is the worker's own: field 10 (device filters) and the group leader name the task
 * of this process. */
CO_TEST(a_config_is_that_of_the_own_worker, "MW-12 S-CFG-1 S-CFG-2")
{
    co_strategy *s = workers(ctx);
    co_value    *config = co_update_config_proto(ctx, s, co_bytes(ctx, "", 0));
    char         own[64], other[64];
    const char  *text;
    size_t       nbytes = 0;
    bool         found = false, wrong = false;

    CO_REQUIRE(config != NULL);
    text = co_string_at(ctx, config, 0, &nbytes);
    snprintf(own, sizeof(own), "/job:worker/task:%d", co_worker_id(ctx, s));
    snprintf(other, sizeof(other), "/job:worker/task:%d", co_worker_id(ctx, s) + 1);
    for (size_t i = 0; i < nbytes; ++i) {
        found = found || (i + strlen(own) <= nbytes && memcmp(text + i, own, strlen(own)) == 0);
        wrong = wrong ||
                (i + strlen(other) <= nbytes && memcmp(text + i, other, strlen(other)) == 0);
    }
    CO_EXPECT_TRUE(found == (co_num_workers(ctx, s) > 1));
    CO_EXPECT_FALSE(wrong);
}
