/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as threads of one process: the transport "threads". It behaves as `mpi` does in everything
 * that callers can see, so what is built on groups can be tested with any number of ranks and
 * without a launcher.
 *
 *     coi_thread_world *world;
 *     coi_thread_world_create(memory, 3, &world, err);
 *     // in thread r:
 *     coi_thread_rank rank = { world, r };
 *     options.communicator = &rank;
 *     coi_group_open("threads", &options, &group, err);
 */
#ifndef COI_COLLECTIVE_LOCAL_RANKS_H
#define COI_COLLECTIVE_LOCAL_RANKS_H

#include "collective/collective.h"

typedef struct coi_thread_world coi_thread_world;

typedef struct coi_thread_rank {
    coi_thread_world *world;
    int               rank;
} coi_thread_rank;

extern const coi_transport coi_threads_transport;

/* Each rank of a world is taken once. */
co_code coi_thread_world_create(coi_memory *memory, int size, coi_thread_world **out,
                                co_error_info *err);
/* After all groups of it were closed. */
void coi_thread_world_destroy(coi_thread_world *world);

#endif
