/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a strategy say to each other: agreement, failures by name, turns of threads,
 * the flight recorder of each. */
#include "collective/local/ranks.h"
#include "rank_support.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static co_value *
ids(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_scalar_float(ctx, (float)co_replica_id(ctx));
}

static void
expect_usable(co_context *ctx, co_strategy *s)
{
    int       n = co_num_replicas_in_sync(ctx, s);
    co_value *r = co_run(ctx, s, ids, co_no_args(ctx), NULL);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, r, NULL, 0)),
                    n * (n - 1) / 2, 0);
    CO_EXPECT_OK(ctx);
}

/* --- ranks that disagree --- */

typedef enum misstep { OTHER_CALL, OTHER_SHAPE, RETURNS, FAILS, MERGE_FAILS } misstep;

static co_value *
failing_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    if (co_worker_id(ctx, strategy) == 1)
        return co_fail(ctx, CO_DATA_LOSS, "rank 1 cannot merge"), NULL;
    return co_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);
}

static co_value *
stumble(co_context *ctx, co_value *args, void *user)
{
    misstep how = *(misstep *)user;
    bool    odd = co_replica_id(ctx) >= co_replicas(ctx) / 2; /* on rank 1 of 2 */

    (void)args;
    co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    if (how == MERGE_FAILS)
        return co_merge_call(ctx, failing_merge, co_args(ctx, co_scalar_float(ctx, 1)), NULL);
    if (odd && how == RETURNS)
        return NULL;
    if (odd && how == FAILS)
        return co_fail(ctx, CO_ABORTED, "rank 1 will not %0300d", 0), NULL;
    if (odd && how == OTHER_CALL)
        return co_all_gather(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(4)), 0);
    return co_all_reduce(ctx, CO_REDUCE_SUM,
                         co_zeros(ctx, CO_FLOAT32, CO_SHAPE(odd && how == OTHER_SHAPE ? 5 : 4)));
}

static void
disagree(co_context *ctx, co_strategy *s, int rank, void *user)
{
    static const struct {
        co_code     code;
        const char *parts[2][3]; /* as rank 0 and as rank 1 see it */
    } expected[] = {
        { CO_RUNTIME_ERROR,
          { { "rank 0 is in all_reduce of float32 [4], rendezvous 2 of run 2, at tests/unit/workers.c:",
              "rank 1 is in all_gather of float32 [4], rendezvous 2 of run 2, at ",
              "ranks disagree: " },
            { "rank 1 is in all_gather of float32 [4], rendezvous 2 of run 2, at ",
              "rank 0 is in all_reduce of float32 [4], rendezvous 2 of run 2, at ",
              "ranks disagree: " } } },
        { CO_INVALID_ARGUMENT,
          { { "rank 0 brings all_reduce of float32 [4], rendezvous 2 of run ",
              "rank 1 brings all_reduce of float32 [5]", "" },
            { "rank 1 brings all_reduce of float32 [5]",
              "rank 0 brings all_reduce of float32 [4], rendezvous 2 of run ", "" } } },
        { CO_RUNTIME_ERROR,
          { { "rank 1 has ended this run without it", "rank 0 is in all_reduce of float32 [4]",
              "" },
            { "", "", "" } } },
        { CO_ABORTED,
          { { "rank 1 failed", "rank 1 will not", "00..." }, { "rank 1 will not", "", "" } } },
        { CO_DATA_LOSS,
          { { "rank 1 failed", "rank 1 cannot merge", "" }, { "rank 1 cannot merge", "", "" } } },
    };

    (void)user;
    for (int how = OTHER_CALL; how <= MERGE_FAILS; ++how) {
        co_run(ctx, s, stumble, co_no_args(ctx), &how);
        if (how == RETURNS && rank == 1) {
            CO_EXPECT_OK(ctx); /* it has returned before the other could complain */
        } else {
            for (int i = 0; i < 3; ++i)
                CO_EXPECT_CONTAINS(co_error(ctx)->message, expected[how].parts[rank][i]);
            CO_EXPECT_INT(co_error(ctx)->rank, rank);
            CO_EXPECT_ERROR(ctx, expected[how].code, NULL);
        }
        expect_usable(ctx, s);
    }
}

CO_TEST_BARE(ranks_that_disagree_are_named_with_their_places, "S-RUN-8 RC-MERGE-5 RC-MERGE-7 MW-14")
{
    test_on_ranks(2, 2, 20000, NULL, disagree, NULL);
    test_on_ranks(2, 4, 20000, "cpus=2", disagree, NULL);
}

/* Outside a run: other calls, other shapes, and one that fails instead. */
static void
disagree_outside(co_context *ctx, co_strategy *s, int rank, void *user)
{
    int64_t   length = rank + 2;
    co_value *x = co_zeros(ctx, CO_FLOAT32, &length, 1);

    (void)user;
    co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0);
    CO_EXPECT_CONTAINS(co_error(ctx)->message, rank == 0 ? "rank 0 brings reduce of float32 [2]"
                                                         : "rank 1 brings reduce of float32 [3]");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "ranks disagree");
    if (rank == 0)
        co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0);
    else
        co_gather_replicas(ctx, s, x, 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "ranks disagree");
    expect_usable(ctx, s);
}

CO_TEST_BARE(ranks_may_disagree_outside_a_run_too, "MW-14 GEN-ERR-1")
{
    test_on_ranks(2, 2, 20000, NULL, disagree_outside, NULL);
}

/* --- ranks that do not come --- */

static void
come_late(co_context *ctx, co_strategy *s, int rank, void *user)
{
    static const char *const names[] = { "rank 1", "rank 1", "rank 1" };

    (void)user;
    if (rank == 1) {
        test_rest_ms(600);
        return;
    }
    co_reduce(ctx, s, CO_REDUCE_SUM, co_scalar_float(ctx, 1), NULL, 0);
    CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED, names[rank]);
}

CO_TEST_BARE(a_rank_that_does_not_come_is_named, "MW-14")
{
    test_on_ranks(2, 2, 100, NULL, come_late, NULL);
}

/* --- the flight recorder of a rank --- */

typedef struct watched {
    char        folder[40];
    atomic_int  ranks_first, waiting;
    co_context *unused;
} watched;

static void
count_records(const co_flight_record *record, void *user)
{
    watched *w = user;

    if (record->between_ranks && record->expected == 2)
        atomic_fetch_add(&w->ranks_first, 1);
    if (record->is_waiting)
        atomic_fetch_add(&w->waiting, 1);
}

static void
read_file(const char *path, char *out, size_t capacity)
{
    FILE  *f = fopen(path, "r");
    size_t n = f != NULL ? fread(out, 1, capacity - 1, f) : 0;

    out[n] = '\0';
    if (f != NULL)
        fclose(f);
}

static void
save_each(co_context *ctx, co_strategy *s, int rank, void *user)
{
    watched *w = user;
    misstep  how = OTHER_CALL;
    char     path[80], text[4000];

    expect_usable(ctx, s);
    CO_EXPECT_CODE(co_flight_visit(ctx, s, count_records, w), CO_OK);
    co_run(ctx, s, stumble, co_no_args(ctx), &how);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "disagree");
    snprintf(path, sizeof(path), "%s/flight.rank%d", w->folder, rank);
    read_file(path, text, sizeof(text));
    CO_EXPECT_CONTAINS(text, rank == 0 ? "rank 0 of 2" : "rank 1 of 2");
    CO_EXPECT_CONTAINS(text, "reduce of float32 [] at tests/unit/workers.c:");
    CO_EXPECT_CONTAINS(text, rank == 0 ? "rendezvous 2: all_reduce of float32 [4]"
                                       : "rendezvous 2: all_gather of float32");
    CO_EXPECT_CONTAINS(text, "; CO_RUNTIME_ERROR; at ");
    unlink(path);
    co_reduce(ctx, s, CO_REDUCE_SUM, rank == 0 ? co_scalar_float(ctx, 1) : co_scalar_int32(ctx, 1),
              NULL, 0);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "disagree");
    read_file(path, text, sizeof(text)); /* outside a run too */
    CO_EXPECT_CONTAINS(text, "CO_INVALID_ARGUMENT");
    unlink(path);
}

CO_TEST_BARE(every_rank_saves_its_own_recorder, "")
{
    watched w = { .folder = "/tmp/cohort-workers-XXXXXX" };
    char    settings[80];

    CO_REQUIRE(mkdtemp(w.folder) != NULL);
    snprintf(settings, sizeof(settings), "flight_file=%s/flight", w.folder);
    test_on_ranks(2, 2, 20000, settings, save_each, &w);
    CO_EXPECT_INT(w.ranks_first, 4); /* on each: the making of the strategy, the reduction */
    CO_EXPECT_INT(w.waiting, 0);
    CO_EXPECT_INT(rmdir(w.folder), 0);
}

/* --- threads of one rank --- */

typedef struct speaker {
    co_context  *ctx;
    co_strategy *strategy;
    int          good;
} speaker;

static void *
reduce_often(void *arg)
{
    speaker    *t = arg;
    co_context *ctx = co_open_beside(t->ctx);

    for (int i = 0; i < 40; ++i)
        CO_BLOCK(ctx) {
            co_value *sum = co_reduce(ctx, t->strategy, CO_REDUCE_SUM, co_scalar_float(ctx, 3),
                                      NULL, 0);

            t->good += co_item_float(ctx, sum) == 6;
        }
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return NULL;
}

/* All threads make the same calls, so it does not matter which of them meet. */
static void
reduce_from_threads(co_context *ctx, co_strategy *s, int rank, void *user)
{
    speaker   speakers[3];
    pthread_t threads[3];

    (void)rank;
    (void)user;
    for (int i = 0; i < 3; ++i) {
        speakers[i] = (speaker){ ctx, s, 0 };
        CO_REQUIRE(pthread_create(&threads[i], NULL, reduce_often, &speakers[i]) == 0);
    }
    for (int i = 0; i < 3; ++i) {
        pthread_join(threads[i], NULL);
        CO_EXPECT_INT(speakers[i].good, 40);
    }
}

CO_TEST_BARE(threads_take_turns_to_speak_to_other_workers, "THR-1 THR-2")
{
    test_on_ranks(2, 2, 20000, NULL, reduce_from_threads, NULL);
}

/* A step that speaks to the workers in a context of its own would wait for itself; user: the
 * strategy. */
static co_value *
speak_aside(co_context *ctx, co_value *args, void *user)
{
    co_context *aside = co_open_beside(ctx);

    (void)args;
    co_reduce(aside, user, CO_REDUCE_MEAN, co_scalar_float(aside, 1), NULL, 0);
    CO_EXPECT_ERROR(aside, CO_DEADLINE_EXCEEDED, "waits for another run or collective of");
    co_run(aside, user, ids, co_no_args(aside), NULL);
    CO_EXPECT_ERROR(aside, CO_DEADLINE_EXCEEDED, "waits for another run or collective of");
    CO_EXPECT_CODE(co_close(aside), CO_OK);
    return NULL;
}

static void
wait_for_oneself(co_context *ctx, co_strategy *s, int rank, void *user)
{
    (void)rank;
    (void)user;
    co_run(ctx, s, speak_aside, co_no_args(ctx), s);
    CO_EXPECT_OK(ctx);
    expect_usable(ctx, s);
}

CO_TEST_BARE(who_waits_for_a_turn_that_never_comes_is_told, "THR-2")
{
    test_on_ranks(2, 2, 300, NULL, wait_for_oneself, NULL);
}

/* A long run moves: who waits for its turn is patient. */
static co_value *
work_long(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    for (int i = 0; i < 40; ++i) { /* 800 ms, and never nothing for the 500 of the deadline */
        co_add(ctx, co_int(ctx, 1), co_int(ctx, 2));
        test_rest_ms(20);
    }
    atomic_store((atomic_bool *)user, true);
    return NULL;
}

typedef struct runner {
    co_context  *ctx;
    co_strategy *strategy;
    atomic_bool *done;
} runner;

static void *
run_long(void *arg)
{
    runner     *r = arg;
    co_context *ctx = co_open_beside(r->ctx);

    co_run(ctx, r->strategy, work_long, co_no_args(ctx), r->done);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return NULL;
}

static void
wait_for_long(co_context *ctx, co_strategy *s, int rank, void *user)
{
    atomic_bool done = false;
    runner      r = { ctx, s, &done };
    pthread_t   thread;

    (void)rank;
    (void)user;
    CO_REQUIRE(pthread_create(&thread, NULL, run_long, &r) == 0);
    test_rest_ms(60);
    co_run(ctx, s, ids, co_no_args(ctx), NULL); /* waits longer than the deadline */
    CO_EXPECT_OK(ctx);
    CO_EXPECT_TRUE(atomic_load(&done));
    pthread_join(thread, NULL);
}

CO_TEST_BARE(a_turn_that_moves_is_waited_for, "THR-2")
{
    test_on_ranks(2, 2, 500, NULL, wait_for_long, NULL);
}

/* A run of the default strategy is no run of theirs: inside it they take their turn like
 * outside. */
static co_value *
run_inside(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    CO_SCOPE(ctx, user)
        expect_usable(ctx, user);
    return NULL;
}

/* Rank 1 fails where there is no place in the sources. */
static co_value *
fail_nowhere(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    if (co_replica_id(ctx) == 1) {
        co_site(ctx, NULL, 0);
        return (co_fail)(ctx, CO_DATA_LOSS, "nowhere"), NULL;
    }
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

static co_value *
merge_thrice(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_scalar_float(ctx, 1);

    (void)args;
    (void)user;
    for (int i = 0; i < 3; ++i)
        x = co_merge_call(ctx, failing_merge, co_args(ctx, co_mul(ctx, x, x)), NULL);
    return x;
}

static void
do_other_things(co_context *ctx, co_strategy *s, int rank, void *user)
{
    (void)rank;
    (void)user;
    co_run(ctx, co_default_strategy(ctx), run_inside, co_no_args(ctx), s);
    CO_EXPECT_OK(ctx);
    co_run(ctx, s, merge_thrice, co_no_args(ctx), NULL); /* which fails on rank 1 */
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "rank 1 cannot merge");
    if (co_num_replicas_in_sync(ctx, s) == 2) {
        co_run(ctx, s, fail_nowhere, co_no_args(ctx), NULL);
        CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "nowhere"); /* it is said to be at its run */
    }
    expect_usable(ctx, s);
}

/* Without a deadline, too. */
CO_TEST_BARE(workers_may_wait_for_ever, "DEF-18 RC-MERGE-7 MW-14")
{
    test_on_ranks(2, 2, 0, NULL, do_other_things, NULL);
    test_on_ranks(2, 4, 0, "cpus=2", do_other_things, NULL);
}

/* --- where the cluster comes from --- */

typedef struct heard {
    co_log_level level;
    int          lines;
    char         text[300];
} heard;

static void
hear(co_log_level level, const char *line, void *user)
{
    heard *h = user;

    if (strstr(line, "TF_CONFIG") == NULL)
        return;
    h->level = level;
    ++h->lines;
    snprintf(h->text, sizeof(h->text), "%s", line);
}

static void *
be_listening(void *arg)
{
    test_rank                       *r = arg;
    co_options                       how = CO_OPTIONS_INIT;
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    co_context                      *ctx;

    how.settings = "log=info";
    how.log = hear;
    how.log_user = r->user;
    ctx = co_open_with(&how);
    options.transport = r->rank_slot.world != NULL ? "threads" : "self";
    options.communicator = r->rank_slot.world != NULL ? &r->rank_slot : NULL;
    CO_EXPECT_NOT_NULL(co_multi_worker_mirrored_strategy(ctx, &options));
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return NULL;
}

CO_TEST_BARE(who_comes_with_tf_config_is_told_how_to_start, "MW-1")
{
    static const char config[] =
        "{\"cluster\": {\"worker\": [\"a:1\", \"b:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 0}}";
    heard             h[2] = { { .lines = 0 }, { .lines = 0 } };
    test_rank         alone = { .user = &h[0] }, pair[2];
    coi_memory        memory;
    coi_thread_world *world;
    pthread_t         other;

    unsetenv("TF_CONFIG");
    be_listening(&alone);
    setenv("TF_CONFIG", "", 1);
    be_listening(&alone);
    CO_EXPECT_INT(h[0].lines, 0);
    setenv("TF_CONFIG", config, 1);
    be_listening(&alone);
    CO_EXPECT_INT(h[0].lines, 1);
    CO_EXPECT_INT(h[0].level, CO_LOG_WARNING);
    CO_EXPECT_CONTAINS(h[0].text, "TF_CONFIG is set but not read: the cluster comes from MPI");
    CO_EXPECT_CONTAINS(h[0].text, "1 process here");
    CO_EXPECT_CONTAINS(h[0].text, "mpirun -n");
    /* Started as it should be, it is no more than a remark. */
    coi_memory_init(&memory, NULL);
    CO_REQUIRE(coi_thread_world_create(&memory, 2, &world, NULL) == CO_OK);
    for (int i = 0; i < 2; ++i)
        pair[i] = (test_rank){ .rank_slot = { world, i }, .user = &h[i] };
    CO_REQUIRE(pthread_create(&other, NULL, be_listening, &pair[1]) == 0);
    be_listening(&pair[0]);
    pthread_join(other, NULL);
    coi_thread_world_destroy(world);
    unsetenv("TF_CONFIG");
    CO_EXPECT_INT(h[0].lines, 2);
    CO_EXPECT_INT(h[1].lines, 1);
    CO_EXPECT_INT(h[0].level, CO_LOG_INFO);
    CO_EXPECT_CONTAINS(h[1].text, "2 processes here");
}

/* --- names of devices --- */

/* What was made before the process was a worker is on the same device, under its new name. */
static void *
become_worker(void *arg)
{
    test_rank                       *r = arg;
    co_context                      *ctx = co_open("cpus=2"), *beside = co_open_beside(ctx);
    co_value                        *x = co_scalar_float(ctx, 1), *v = co_variable(ctx, x, NULL);
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    char                             name[CO_DEVICE_NAME_MAX], other[CO_DEVICE_NAME_MAX];
    static const char                alone[] = "/job:localhost/replica:0/task:0/device:CPU:0";

    CO_EXPECT_STR(co_value_device(ctx, x), alone);
    CO_EXPECT_STR(co_value_device(ctx, v), alone);
    options.transport = "threads";
    options.communicator = &r->rank_slot;
    CO_EXPECT_NOT_NULL(co_multi_worker_mirrored_strategy(ctx, &options));
    snprintf(name, sizeof(name), "/job:worker/replica:0/task:%d/device:CPU:0", r->rank);
    CO_EXPECT_STR(co_value_device(ctx, x), name);
    CO_EXPECT_STR(co_value_device(ctx, v), name);
    CO_EXPECT_STR(co_current_device(ctx), name);
    CO_EXPECT_STR(co_current_device(beside), name);
    CO_DEVICE(beside, name)
        CO_EXPECT_STR(co_value_device(beside, co_scalar_float(beside, 1)), name);
    CO_DEVICE(ctx, alone) /* is still understood */
        CO_EXPECT_STR(co_value_device(ctx, co_scalar_float(ctx, 1)), name);
    /* A replica of the job that is not this process keeps its name. */
    snprintf(other, sizeof(other), "/job:worker/replica:1/task:%d/device:CPU:0", r->rank);
    CO_EXPECT_CODE(co_device_resolve(ctx, other, name), CO_OK);
    CO_EXPECT_STR(name, other);
    CO_EXPECT_CODE(co_declare_devices(ctx, "GPU", 1), CO_OK);
    CO_DEVICE(ctx, "/gpu:0")
        CO_EXPECT_CONTAINS(co_value_device(ctx, co_scalar_float(ctx, 1)), "/job:worker/replica:0");
    CO_DEVICE(ctx, r->rank == 0 ? "/task:1/cpu:0" : "/task:0/cpu:0") { /* of the other worker */
        CO_EXPECT_NULL(co_scalar_float(ctx, 1));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT,
                        r->rank == 0 ? "no device /job:worker/replica:0/task:1/device:CPU:0; there "
                                       "are CPU:0 to CPU:1, GPU:0 of /job:worker/replica:0/task:0"
                                     : "no device /job:worker/replica:0/task:0/device:CPU:0");
    }
    CO_EXPECT_CODE(co_close(beside), CO_OK);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return NULL;
}

CO_TEST_BARE(a_process_that_becomes_a_worker_names_its_devices_so, "MW-16 DEV-2")
{
    coi_memory        memory;
    coi_thread_world *world;
    test_rank         ranks[2];
    pthread_t         other;

    coi_memory_init(&memory, NULL);
    CO_REQUIRE(coi_thread_world_create(&memory, 2, &world, NULL) == CO_OK);
    for (int i = 0; i < 2; ++i)
        ranks[i] = (test_rank){ .rank_slot = { world, i }, .rank = i };
    CO_REQUIRE(pthread_create(&other, NULL, become_worker, &ranks[1]) == 0);
    become_worker(&ranks[0]);
    pthread_join(other, NULL);
    coi_thread_world_destroy(world);
}
