/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cores we may use: the inherited affinity mask, cut by a cgroup quota. hwloc orders them by locality
 * where it is built in; sched_getaffinity alone does otherwise.
 */
#ifndef COI_BASE_TOPOLOGY_H
#define COI_BASE_TOPOLOGY_H

#include "base/memory.h"

typedef struct coi_topology {
    int  num_cores; /* at least 1 */
    int *cores;     /* their numbers, in order of locality */
    int  quota;     /* cores worth of time by cgroup; num_cores when there is no limit */
} coi_topology;

co_code coi_topology_init(coi_topology *topology, coi_memory *memory, co_error_info *err);
void coi_topology_destroy(coi_topology *topology, coi_memory *memory);

#endif
