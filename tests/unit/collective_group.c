/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups with ranks as threads, 1 to 4 of them, and groups of one rank; what the registry says
 * about transports that are not there; memory that runs out.
 */
#include "collective/local/ranks.h"
#include "collective_bodies.h"
#include "hooks.h"
#include "test.h"

typedef struct rank_thread {
    coi_thread_rank rank_slot;
    coi_memory     *memory;
    coi_waiting    *waiting;
    group_body      body;
    int             deadline_ms;
} rank_thread;

static void *
be_rank(void *arg)
{
    rank_thread      *self = arg;
    coi_group_options options = { .communicator = &self->rank_slot,
                                  .memory = self->memory,
                                  .waiting = self->waiting,
                                  .deadline_ms = self->deadline_ms };
    coi_group        *group;
    co_error_info     err;

    coi_error_reset(&err);
    coi_waiting_begin(self->waiting);
    if (CO_EXPECT_CODE(coi_group_open("threads", &options, &group, &err), CO_OK)) {
        CO_EXPECT_INT(group->rank, self->rank_slot.rank);
        self->body(group);
        coi_group_close(group);
    }
    coi_waiting_end(self->waiting);
    return NULL;
}

static void
run_with(int size, group_body body)
{
    coi_memory        memory;
    coi_waiting       waiting;
    coi_thread_world *world;
    pthread_t         threads[MAX_RANKS];
    rank_thread       ranks[MAX_RANKS];

    coi_memory_init(&memory, NULL);
    coi_waiting_init(&waiting, 2, 20);
    CO_REQUIRE(coi_thread_world_create(&memory, size, &world, NULL) == CO_OK);
    for (int r = 0; r < size; ++r) {
        ranks[r] = (rank_thread){ { world, r }, &memory, &waiting, body, LONG_MS };
        CO_REQUIRE(pthread_create(&threads[r], NULL, be_rank, &ranks[r]) == 0);
    }
    for (int r = 0; r < size; ++r)
        pthread_join(threads[r], NULL);
    coi_thread_world_destroy(world);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

#define CASE(name)                                                                                 \
    CO_TEST_BARE(name, "")                                                                         \
    {                                                                                              \
        for (int size = 1; size <= 4; ++size)                                                      \
            run_with(size, body_##name);                                                           \
    }
COLLECTIVE_CASES(CASE)
#undef CASE

typedef struct opened {
    coi_memory        memory;
    coi_group_options options;
    coi_group        *group;
    co_error_info     err;
} opened;

static co_code
open_named(opened *o, const char *name)
{
    coi_memory_init(&o->memory, NULL);
    coi_error_reset(&o->err);
    o->options = (coi_group_options){ .memory = &o->memory, .deadline_ms = LONG_MS };
    o->group = NULL;
    return coi_group_open(name, &o->options, &o->group, &o->err);
}

CO_TEST_BARE(a_group_of_one_rank_answers_itself, "")
{
    float         part[] = { 1, 2, 3 }, more[] = { 4, 5, 6 }, out[3];
    const void   *parts[] = { part, more };
    coi_reduction job = { CO_REDUCE_MEAN, CO_FLOAT32, 3, 2, parts, out };
    size_t        nbytes = sizeof(part);
    coi_transfer  there = { 0, part, sizeof(part) }, back = { 0, out, sizeof(out) };
    opened        o;

    CO_REQUIRE(open_named(&o, "self") == CO_OK);
    CO_EXPECT_INT(o.group->size, 1);
    expect_in_step(o.group, 1);
    CO_EXPECT_CODE(coi_group_all_reduce(o.group, &job, 1, (const int[]){ 0, 2 },
                                        &(coi_comm_options){ .timeout_ms = 0 }, &o.err),
                   CO_OK);
    CO_EXPECT_BYTES(out, ((const float[]){ 2.5f, 3.5f, 4.5f }), sizeof(out));
    CO_EXPECT_CODE(coi_group_all_gather(o.group, part, &nbytes, out, 0, &o.err), CO_OK);
    CO_EXPECT_BYTES(out, part, sizeof(out));
    CO_EXPECT_CODE(coi_group_broadcast(o.group, part, sizeof(part), 0, 0, &o.err), CO_OK);
    memset(out, 0, sizeof(out));
    CO_EXPECT_CODE(o.group->transport->transfer(o.group, &there, 1, &back, 1, 0, &o.err), CO_OK);
    CO_EXPECT_BYTES(out, part, sizeof(out));
    CO_EXPECT_CODE(o.group->transport->transfer(o.group, &there, 1, NULL, 0, 0, &o.err),
                   CO_INTERNAL);
    CO_EXPECT_TRUE(o.group->broken);
    coi_group_close(o.group);
    CO_EXPECT_INT(o.memory.bytes_in_use, 0);
    coi_group_close(NULL);
}

CO_TEST_BARE(an_unknown_transport_is_named, "")
{
    opened o;

    CO_EXPECT_CODE(open_named(&o, "pigeon"), CO_VALUE_ERROR);
    CO_EXPECT_CONTAINS(o.err.message, "'pigeon'");
    CO_EXPECT_CONTAINS(o.err.message, "'mpi'");
    CO_EXPECT_NULL(o.group);
    CO_EXPECT_CODE(open_named(&o, "threads"), CO_VALUE_ERROR); /* without a seat */
    CO_EXPECT_INT(o.memory.bytes_in_use, 0);
}

CO_TEST_BARE(a_plug_in_that_is_missing_or_none_is_an_error_with_a_repair, "")
{
    opened o;

    setenv("COHORT_MPI_LIBRARY", "/nowhere/libcohort_mpi.so", 1);
    CO_EXPECT_CODE(open_named(&o, "mpi"), CO_UNIMPLEMENTED);
    CO_EXPECT_CONTAINS(o.err.message, "/nowhere/libcohort_mpi.so was not found");
    CO_EXPECT_CONTAINS(
        o.err.message,
        "which COHORT_MPI_LIBRARY names; let it name the libcohort_mpi.so of this library");
    setenv("COHORT_MPI_LIBRARY", "libm.so.6", 1);
    CO_EXPECT_CODE(open_named(&o, "mpi"), CO_UNIMPLEMENTED);
    CO_EXPECT_CONTAINS(o.err.message, "libm.so.6 is not a plug-in");
    setenv("COHORT_MPI_LIBRARY", __FILE__, 1); /* there, but no library */
    CO_EXPECT_CODE(open_named(&o, "mpi"), CO_UNIMPLEMENTED);
    CO_EXPECT_INT(o.memory.bytes_in_use, 0);
}

CO_TEST_BARE(a_launcher_is_known_by_its_variables, "")
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK",
                                             "PMIX_RANK" };

    for (int i = 0; i < 4; ++i)
        unsetenv(variables[i]);
    CO_EXPECT_FALSE(coi_mpi_launched());
    for (int i = 0; i < 4; ++i) {
        setenv(variables[i], "2", 1);
        CO_EXPECT_TRUE(coi_mpi_launched());
        unsetenv(variables[i]);
    }
    setenv("SLURM_NTASKS", "2", 1); /* alone, it may be a job of one process */
    CO_EXPECT_FALSE(coi_mpi_launched());
}

CO_TEST_BARE(opening_names_the_ranks_that_do_not_come, "")
{
    coi_memory        memory;
    coi_thread_world *world;
    coi_thread_rank   rank_slot;
    coi_group        *group = NULL;
    co_error_info     err;

    coi_memory_init(&memory, NULL);
    coi_error_reset(&err);
    CO_REQUIRE(coi_thread_world_create(&memory, 3, &world, &err) == CO_OK);
    rank_slot = (coi_thread_rank){ world, 1 };
    CO_EXPECT_CODE(coi_group_open("threads",
                                  &(coi_group_options){ .communicator = &rank_slot,
                                                        .memory = &memory,
                                                        .deadline_ms = 50 },
                                  &group, &err),
                   CO_DEADLINE_EXCEEDED);
    CO_EXPECT_CONTAINS(err.message, "ranks 0 and 2 did not open");
    CO_EXPECT_NULL(group);
    coi_thread_world_destroy(world);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

/* Rank 0 runs out of memory at some allocation; rank 1 must hear of it, and neither may leak. */
typedef struct poor_rank {
    coi_thread_rank rank_slot;
    coi_memory      memory;
    co_code         rc;
} poor_rank;

static void *
be_poor_rank(void *arg)
{
    poor_rank        *self = arg;
    float             part[5000] = { 1 }, more[5000] = { 2 }, *out = calloc(5000, sizeof(float));
    const void       *parts[] = { part, more };
    coi_group_options options = { .communicator = &self->rank_slot,
                                  .memory = &self->memory,
                                  .deadline_ms = 100 };
    coi_reduction     job = { CO_REDUCE_SUM, CO_FLOAT32, 5000, 4, parts, out };
    coi_handshake     failed = handshake_of(COI_HANDSHAKE_FAILED, 1), all[2];
    coi_group        *group;
    co_error_info     err;

    coi_error_reset(&err);
    self->rc = coi_group_open("threads", &options, &group, &err);
    if (self->rc == CO_OK) {
        self->rc = exchange_at(group, 1, all, LONG_MS, &err);
        if (self->rc == CO_OK)
            self->rc = coi_group_all_reduce(group, &job, 1, (const int[]){ 0, 2, 4 },
                                            &(coi_comm_options){ .timeout_ms = LONG_MS }, &err);
        if (self->rc != CO_OK) {
            failed.code = (int32_t)self->rc;
            CO_EXPECT_TRUE(group->broken);
            group->transport->notify(group, &failed);
        } else {
            CO_EXPECT_INT(out[0], 6);
        }
        coi_group_close(group);
    }
    free(out);
    return NULL;
}

CO_TEST_BARE(memory_that_runs_out_in_a_collective_is_heard_of_by_the_peers, "")
{
    coi_memory memory;
    bool       is_done = false;

    coi_memory_init(&memory, NULL);
    for (long long n = 1; n < 50 && !is_done; ++n) {
        poor_rank         ranks[2];
        test_hooks        hooks[2];
        pthread_t         threads[2];
        coi_thread_world *world;

        CO_REQUIRE(coi_thread_world_create(&memory, 2, &world, NULL) == CO_OK);
        for (int r = 0; r < 2; ++r) {
            test_hooks_init(&hooks[r], r == 0 ? n : 0);
            ranks[r].rank_slot = (coi_thread_rank){ world, r };
            coi_memory_init(&ranks[r].memory, &hooks[r].allocator);
            CO_REQUIRE(pthread_create(&threads[r], NULL, be_poor_rank, &ranks[r]) == 0);
        }
        for (int r = 0; r < 2; ++r) {
            pthread_join(threads[r], NULL);
            CO_EXPECT_INT(hooks[r].blocks, 0);
        }
        coi_thread_world_destroy(world);
        is_done = ranks[0].rc == CO_OK;
        CO_EXPECT_CODE(ranks[0].rc, is_done ? CO_OK : CO_RESOURCE_EXHAUSTED);
        CO_EXPECT_TRUE(is_done ? ranks[1].rc == CO_OK
                               : ranks[1].rc == CO_RESOURCE_EXHAUSTED ||
                                     ranks[1].rc == CO_DEADLINE_EXCEEDED);
    }
    CO_EXPECT_TRUE(is_done);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

CO_TEST_BARE(an_all_reduce_asks_for_no_memory_the_second_time, "")
{
    coi_memory    memory;
    coi_group    *group;
    float         part[100] = { 0 }, out[100];
    const void   *parts[] = { part };
    coi_reduction job = { CO_REDUCE_SUM, CO_FLOAT32, 100, 1, parts, out };
    long long     before;

    coi_memory_init(&memory, NULL);
    CO_REQUIRE(coi_group_open("self", &(coi_group_options){ .memory = &memory }, &group, NULL) ==
               CO_OK);
    CO_EXPECT_CODE(coi_group_broadcast(group, part, sizeof(part), 0, -1, NULL), CO_OK);
    before = memory.num_allocations;
    for (int i = 0; i < 10; ++i) {
        CO_EXPECT_CODE(coi_group_all_reduce(group, &job, 1, (const int[]){ 0, 1 },
                                            &(coi_comm_options){ .timeout_ms = -1 }, NULL),
                       CO_OK);
        CO_EXPECT_CODE(coi_group_broadcast(group, part, sizeof(part), 0, -1, NULL), CO_OK);
    }
    CO_EXPECT_INT(memory.num_allocations, before);
    coi_group_close(group);
}
