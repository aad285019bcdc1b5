/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the other ranks see when the last one is killed, ends, or never comes: survive SCENARIO,
 * under a launcher that lets the others live. Every survivor prints one line that
 * tests/ranks/survive/run reads:
 *
 *     rank 0 of 2: CO_UNAVAILABLE after 34 ms, closed after 1 ms: rank 1 is gone: ...
 */
#include "collective/handshake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_MS 8000
#define BIG         (4 << 20)

typedef struct job {
    coi_memory    memory;
    coi_waiting   waiting;
    coi_group    *group;
    float        *part, *out; /* of the all-reduce; not freed where MPI still has them */
    co_error_info err;
} job;

static co_code
exchange(job *j, uint64_t epoch)
{
    coi_handshake  mine = { .kind = COI_HANDSHAKE_COLLECTIVE, .epoch = epoch, .replica = -1 };
    coi_handshake *all = calloc((size_t)j->group->size, sizeof(*all));
    co_code        rc = CO_RESOURCE_EXHAUSTED;

    if (all != NULL)
        rc = j->group->transport->exchange(j->group, &mine, all, DEADLINE_MS, &j->err);
    for (int r = 0; r < j->group->size && rc == CO_OK; ++r)
        if (all[r].kind == COI_HANDSHAKE_FAILED)
            rc = coi_handshake_error(&all[r], r, &j->err);
    free(all);
    return rc;
}

/* An all-reduce of 16 MiB that the last rank does not live to finish. */
static co_code
reduce(job *j)
{
    int          *first = calloc((size_t)j->group->size + 1, sizeof(*first));
    const void   *parts[1];
    coi_reduction reduction = { CO_REDUCE_SUM, CO_FLOAT32, BIG, j->group->size, parts, NULL };
    co_code       rc = CO_RESOURCE_EXHAUSTED;

    parts[0] = j->part = calloc(BIG, sizeof(*j->part));
    reduction.out = j->out = calloc(BIG, sizeof(*j->out));
    for (int r = 0; first != NULL && r <= j->group->size; ++r)
        first[r] = r;
    for (int i = 0; j->part != NULL && j->out != NULL && first != NULL && (i == 0 || rc == CO_OK);
         ++i)
        rc = coi_group_all_reduce(j->group, &reduction, 1, first,
                                  &(coi_comm_options){ .timeout_ms = DEADLINE_MS }, &j->err);
    if (!j->group->holding) {
        free(j->part);
        free(j->out);
    }
    free(first);
    return rc;
}

/* A child that ends this process in the middle of what it does then. */
static void
die_soon(void)
{
    pid_t parent = getpid();

    if (fork() == 0) {
        usleep(30000);
        kill(parent, SIGKILL);
        _exit(0);
    }
}

int
main(int argc, char **argv)
{
    static job        j;
    const char       *scenario = argc > 1 ? argv[1] : "";
    const char       *rank = getenv("OMPI_COMM_WORLD_RANK"), *size = getenv("OMPI_COMM_WORLD_SIZE");
    coi_group_options options = { .memory = &j.memory,
                                  .waiting = &j.waiting,
                                  .deadline_ms = DEADLINE_MS };
    uint64_t          start, closing;
    bool              is_last;
    co_code           rc;

    coi_memory_init(&j.memory, NULL);
    coi_waiting_init(&j.waiting, 2, 20);
    coi_waiting_begin(&j.waiting);
    coi_error_reset(&j.err);
    rank = rank != NULL ? rank : getenv("PMI_RANK");
    size = size != NULL ? size : getenv("PMI_SIZE");
    is_last = rank != NULL && size != NULL && atoi(rank) == atoi(size) - 1;

    rc = coi_group_open("mpi", &options, &j.group, &j.err);
    if (rc == CO_OK)
        rc = exchange(&j, 1);
    if (rc != CO_OK) {
        printf("rank %s could not begin: %s\n", rank, j.err.message);
        return 1;
    }
    start = coi_now_ns();
    if (is_last && strcmp(scenario, "killed") == 0)
        raise(SIGKILL);
    if (is_last && strcmp(scenario, "ends") == 0)
        return 0; /* with the group open */
    if (is_last && strcmp(scenario, "killed-in-transfer") == 0)
        die_soon();
    rc = strcmp(scenario, "killed-in-transfer") == 0 ? reduce(&j) : exchange(&j, 2);
    closing = coi_now_ns();
    coi_group_close(j.group);
    printf("rank %s of %s: %s after %d ms, closed after %d ms: %s\n", rank, size, co_code_name(rc),
           (int)((closing - start) / 1000000), (int)((coi_now_ns() - closing) / 1000000),
           j.err.message);
    return 0;
}
