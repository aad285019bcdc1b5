/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cores we may use: the inherited affinity mask, ordered by locality, and the cgroup's share of
 * time.
 */
#ifndef COI_BASE_TOPOLOGY_H
#define COI_BASE_TOPOLOGY_H

#include "base/error.h"
#include "base/memory.h"
#include <sched.h>

typedef struct coi_topology {
    int  num_cores; /* at least 1 */
    int *cores;     /* their numbers, in order of locality: siblings, then cache, then package */
    int  quota; /* cores worth of time by cgroup, rounded up; num_cores when there is no limit */
} coi_topology;

co_code coi_topology_init(coi_topology *topology, coi_memory *memory, co_error_info *err);
void    coi_topology_destroy(coi_topology *topology, coi_memory *memory);
/* How many threads can really run at once. */
static inline int
coi_topology_usable(const coi_topology *topology)
{
    return topology->quota < topology->num_cores ? topology->quota : topology->num_cores;
}

/*
 * The parts, with the root of the file system as argument so that tests can make one up; in earnest
 * it is "".
 */
/* The cores of a mask; those of core 0 alone when mask is NULL or empty. */
co_code coi_topology_from_mask(coi_topology *topology, coi_memory *memory, const char *root,
                               const cpu_set_t *mask, size_t nbytes, co_error_info *err);
/*
 * Cores worth of time by cgroup v1 and v2, the smallest limit from our group up to the root;
 * INT_MAX without.
 */
int coi_topology_quota(const char *root);
/* Sort by package, last-level cache, core and number. What sysfs does not tell counts as 0. */
co_code coi_topology_sort(coi_memory *memory, const char *root, int *cores, int num_cores,
                          co_error_info *err);

#endif
