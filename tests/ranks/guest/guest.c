/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that runs MPI itself, for its main thread alone, and lends a communicator of its own. The
 * library must not touch the messages, the error handler or the life of the host's MPI. Prints what
 * does not hold; 0 is good.
 */
#include "collective/handshake.h"
#include "hooks.h"

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS 20000

static int num_failures;

#define EXPECT(e)                                                                                  \
    do {                                                                                           \
        if (!(e)) {                                                                                \
            printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #e);                           \
            ++num_failures;                                                                        \
        }                                                                                          \
    } while (0)

static coi_memory  memory;
static coi_waiting waiting;

/* Closed after MPI has ended, when nobody can say what MPI has let go of: its memory is leaked, and
 * found from here. */
static coi_group *volatile left_open;

static coi_group *
open_on(MPI_Comm *comm, co_code expected, const char *part)
{
    coi_group_options options = {
        .communicator = comm, .memory = &memory, .waiting = &waiting, .deadline_ms = DEADLINE_MS
    };
    coi_group    *group = NULL;
    co_error_info err;

    coi_error_reset(&err);
    EXPECT(coi_group_open("mpi", &options, &group, &err) == expected);
    EXPECT(strstr(err.message, part) != NULL);
    return group;
}

static co_code
exchange(coi_group *group, uint64_t epoch, co_error_info *err)
{
    coi_handshake mine = {
        .kind = COI_HANDSHAKE_COLLECTIVE, .epoch = epoch, .number = group->rank, .replica = -1
    };
    coi_handshake all[16];
    co_code       rc;

    coi_error_reset(err);
    rc = group->transport->exchange(group, &mine, all, DEADLINE_MS, err);
    for (int r = 0; rc == CO_OK && r < group->size; ++r)
        EXPECT(all[r].kind == COI_HANDSHAKE_COLLECTIVE && all[r].number == r &&
               all[r].epoch == epoch);
    return rc;
}

static void *
speak_from_elsewhere(void *arg)
{
    co_error_info err;

    EXPECT(exchange(arg, 3, &err) == CO_FAILED_PRECONDITION);
    EXPECT(strstr(err.message, "main thread") != NULL);
    return NULL;
}

static void
speak_from_a_fork(coi_group *group)
{
    int   status = 1;
    pid_t child = fork();

    if (child == 0) {
        co_error_info err;

        num_failures = 0;
        EXPECT(exchange(group, 3, &err) == CO_FAILED_PRECONDITION);
        EXPECT(strstr(err.message, "forked") != NULL);
        coi_group_close(group);
        fflush(stdout);
        _exit(num_failures);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* Two groups at once over the lent communicator, while the host waits for a message on it. */
static void
work_beside_the_host(MPI_Comm *comm, int rank, int size)
{
    coi_group     *one, *two;
    MPI_Errhandler before, after;
    MPI_Request    request;
    pthread_t      thread;
    int            got = -1, mine = 40 + rank, done = 1;
    co_error_info  err;

    MPI_Comm_get_errhandler(*comm, &before);
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, *comm, &request);
    one = open_on(comm, CO_OK, "");
    two = open_on(comm, CO_OK, "");
    if (one == NULL || two == NULL)
        return;
    EXPECT(one->rank == rank && one->size == size);
    EXPECT(exchange(one, 1, &err) == CO_OK);
    EXPECT(exchange(two, 9, &err) == CO_OK);
    EXPECT(exchange(one, 2, &err) == CO_OK);
    EXPECT(pthread_create(&thread, NULL, speak_from_elsewhere, one) == 0 &&
           pthread_join(thread, NULL) == 0);
    speak_from_a_fork(one);
    EXPECT(exchange(one, 3, &err) == CO_OK);
    EXPECT(MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done);
    coi_group_close(one);
    EXPECT(exchange(two, 10, &err) == CO_OK);
    coi_group_close(two);

    MPI_Send(&mine, 1, MPI_INT, (rank + 1) % size, 7, *comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(got == 40 + (rank + size - 1) % size);
    MPI_Comm_get_errhandler(*comm, &after);
    EXPECT(before == after);
    MPI_Errhandler_free(&before);
    MPI_Errhandler_free(&after);
    EXPECT(memory.bytes_in_use == 0);
}

/* Every allocation of opening fails in turn. Alone only: others would wait for a rank that gives
 * up. */
static void
open_without_memory(MPI_Comm *comm)
{
    co_code rc = CO_RESOURCE_EXHAUSTED;

    for (long long n = 1; n < 100 && rc != CO_OK; ++n) {
        test_hooks        hooks;
        coi_memory        poor;
        coi_group_options options = { .communicator = comm,
                                      .memory = &poor,
                                      .deadline_ms = DEADLINE_MS };
        coi_group        *group = NULL;
        co_error_info     err;

        test_hooks_init(&hooks, n);
        coi_memory_init(&poor, &hooks.allocator);
        coi_error_reset(&err);
        rc = coi_group_open("mpi", &options, &group, &err);
        EXPECT(rc == CO_OK || rc == CO_RESOURCE_EXHAUSTED);
        EXPECT(rc == err.code && (rc == CO_OK) == (group != NULL));
        coi_group_close(group);
        EXPECT(hooks.blocks == 0);
    }
    EXPECT(rc == CO_OK);
}

int
main(void)
{
    MPI_Comm comm, none = MPI_COMM_NULL;
    int      rank, size, level, flag = 1;

    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (level >= MPI_THREAD_SERIALIZED) {
        /* This MPI gives more than was asked for, so nothing can be refused. */
        printf("MPI gives thread level %d\n", level);
        MPI_Finalize();
        return 77;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm); /* in reverse order */
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    coi_memory_init(&memory, NULL);
    coi_waiting_init(&waiting, 2, 20);

    EXPECT(coi_mpi_launched());
    open_on(&none, CO_VALUE_ERROR, "MPI_COMM_NULL");
    work_beside_the_host(&comm, rank, size);

    if (size == 1)
        open_without_memory(&comm);

    left_open = open_on(&comm, CO_OK, "");
    EXPECT(MPI_Finalized(&flag) == MPI_SUCCESS && !flag);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    coi_group_close(left_open); /* too late, but harmless */
    open_on(NULL, CO_FAILED_PRECONDITION, "MPI_Finalize");
    return num_failures;
}
