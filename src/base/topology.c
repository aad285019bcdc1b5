/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cores: the affinity mask by sched_getaffinity, their neighbourhood by sysfs.
 *
 * hwloc would tell the same, but opening it took 13 ms where its plug-ins are installed (it loads
 * graphics and OpenCL libraries into the host) and 3 ms afterwards; three small files per core take
 * 20 us. Processes with one or two cores, where order means nothing, read none.
 */
#include "base/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_MASK_BITS (1u << 20)

typedef struct core_place {
    long package;
    long cache;
    long core;
    int  number;
} core_place;

/* The number a small file of the kernel begins with, 0 if there is none. */
static long
read_number(const char *path)
{
    char    text[32];
    ssize_t got = -1;
    int     file = open(path, O_RDONLY | O_CLOEXEC);

    if (file >= 0) {
        got = read(file, text, sizeof(text) - 1);
        close(file);
    }
    text[got > 0 ? got : 0] = '\0';
    return strtol(text, NULL, 10);
}

static long
core_fact(const char *root, int core, const char *fact)
{
    char path[PATH_MAX];
    int  length = snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%d/%s", root, core,
                           fact);

    return length > 0 && (size_t)length < sizeof(path) ? read_number(path) : 0;
}

static int
order(long a, long b)
{
    return (a > b) - (a < b);
}

static int
compare_places(const void *left, const void *right)
{
    const core_place *a = left;
    const core_place *b = right;
    int               by = order(a->package, b->package);

    if (by == 0)
        by = order(a->cache, b->cache);
    if (by == 0)
        by = order(a->core, b->core);
    return by != 0 ? by : order(a->number, b->number);
}

co_code
coi_topology_sort(coi_memory *memory, const char *root, int *cores, int num_cores,
                  co_error_info *err)
{
    size_t      nbytes = (size_t)num_cores * sizeof(core_place);
    core_place *places = coi_alloc(memory, nbytes);

    if (places == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to sort %d cores", num_cores);
    for (int i = 0; i < num_cores; ++i) {
        places[i].package = core_fact(root, cores[i], "topology/physical_package_id");
        places[i].cache = core_fact(root, cores[i], "cache/index3/id");
        places[i].core = core_fact(root, cores[i], "topology/core_id");
        places[i].number = cores[i];
    }
    qsort(places, (size_t)num_cores, sizeof(places[0]), compare_places);
    for (int i = 0; i < num_cores; ++i)
        cores[i] = places[i].number;
    coi_free(memory, places, nbytes);
    return CO_OK;
}

/*
 * The calling thread's mask. The kernel refuses one that is shorter than its own, so try longer
 * ones.
 */
static cpu_set_t *
read_mask(coi_memory *memory, size_t *nbytes)
{
    for (size_t bits = 1024; bits <= MAX_MASK_BITS; bits *= 4) {
        cpu_set_t *mask;

        *nbytes = CPU_ALLOC_SIZE(bits);
        mask = coi_calloc(memory, *nbytes);
        if (mask == NULL)
            return NULL;
        if (sched_getaffinity(0, *nbytes, mask) == 0)
            return mask;
        coi_free(memory, mask, *nbytes);
        if (errno != EINVAL)
            return NULL;
    }
    return NULL;
}

/*
 * Take the numbers out of the mask; with no mask (a sandbox may forbid the call), count on core 0
 * alone.
 */
static co_code
list_cores(coi_topology *topology, coi_memory *memory, const cpu_set_t *mask, size_t nbytes,
           co_error_info *err)
{
    int count = mask != NULL ? CPU_COUNT_S(nbytes, mask) : 0;
    int at = 0;

    topology->num_cores = count > 0 ? count : 1;
    topology->cores = coi_calloc(memory, (size_t)topology->num_cores * sizeof(topology->cores[0]));
    if (topology->cores == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for a list of %d cores",
                         topology->num_cores);
    for (size_t core = 0; at < count && core < nbytes * 8; ++core)
        if (CPU_ISSET_S(core, nbytes, mask))
            topology->cores[at++] = (int)core;
    return CO_OK;
}

co_code
coi_topology_from_mask(coi_topology *topology, coi_memory *memory, const char *root,
                       const cpu_set_t *mask, size_t nbytes, co_error_info *err)
{
    co_code rc = list_cores(topology, memory, mask, nbytes, err);

    if (rc == CO_OK && topology->num_cores > 2) {
        rc = coi_topology_sort(memory, root, topology->cores, topology->num_cores, err);
        if (rc != CO_OK)
            coi_topology_destroy(topology, memory);
    }
    if (rc == CO_OK) {
        topology->quota = coi_topology_quota(root);
        if (topology->quota > topology->num_cores)
            topology->quota = topology->num_cores;
    }
    return rc;
}

co_code
coi_topology_init(coi_topology *topology, coi_memory *memory, co_error_info *err)
{
    int        saved_errno = errno;
    size_t     nbytes = 0;
    cpu_set_t *mask = read_mask(memory, &nbytes);
    co_code    rc = coi_topology_from_mask(topology, memory, "", mask, nbytes, err);

    coi_free(memory, mask, nbytes);
    errno = saved_errno;
    return rc;
}

void
coi_topology_destroy(coi_topology *topology, coi_memory *memory)
{
    if (topology->cores != NULL)
        coi_free(memory, topology->cores, (size_t)topology->num_cores * sizeof(topology->cores[0]));
    topology->cores = NULL;
}
