/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites, made by scripts/make-sites: each macro notes the caller's file and line in the context and
 * calls the function of the same name. Define COHORT_NO_SITES before including to do without.
 */
#ifndef COHORT_TPU_SITES_H
#define COHORT_TPU_SITES_H

#include <cohort/api.h>

#if !defined(COHORT_NO_SITES) && !defined(COI_BUILDING_LIBRARY)
#define co_assign_to_logical_device(ctx, ...) co_assign_to_logical_device(CO_HERE(ctx), __VA_ARGS__)
#define co_replicate_to_logical_devices(ctx, ...) co_replicate_to_logical_devices(CO_HERE(ctx), __VA_ARGS__)
#define co_split_to_logical_devices(ctx, ...) co_split_to_logical_devices(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_device_coordinates(ctx, ...) co_topology_device_coordinates(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_find(ctx, ...) co_topology_find(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_host_device(ctx, ...) co_topology_host_device(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_make(ctx, ...) co_topology_make(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_mesh_rank(ctx, ...) co_topology_mesh_rank(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_mesh_shape(ctx, ...) co_topology_mesh_shape(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_missing_devices(ctx, ...) co_topology_missing_devices(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_num_tasks(ctx, ...) co_topology_num_tasks(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_num_tpus_per_task(ctx, ...) co_topology_num_tpus_per_task(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_parse(ctx, ...) co_topology_parse(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_serialized(ctx, ...) co_topology_serialized(CO_HERE(ctx), __VA_ARGS__)
#define co_topology_tpu_device(ctx, ...) co_topology_tpu_device(CO_HERE(ctx), __VA_ARGS__)
#define co_tpu_run(ctx, ...) co_tpu_run(CO_HERE(ctx), __VA_ARGS__)
#endif

#endif
