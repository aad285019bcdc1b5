/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TPU calls of the documents. There are no TPUs here and no strategy for them yet. A topology
 * (the map from chips of a mesh to tasks, tf.tpu.experimental.Topology) can be read, written and
 * queried; RunOptions are accepted and ignored; logical devices are CO_UNIMPLEMENTED.
 *
 *     static const int64_t mesh[] = { 2, 2, 1, 2 };
 *     co_topology *topology = co_topology_make(ctx, mesh, 4, coordinates);
 *     co_value    *bytes = co_topology_serialized(ctx, topology);
 *
 * A topology is an immutable handle of the block that it was made in.
 */
#ifndef COHORT_TPU_H
#define COHORT_TPU_H

#include <cohort/strategy.h>

CO_EXTERN_C_BEGIN

typedef struct co_topology co_topology;

/**
 * A mesh of 3 dimensions (x, y, core) or 4 (x, y, z, core), and where its devices are:
 * device_coordinates is a tensor of int32 [tasks, devices of a task, mesh_rank]. Places of the mesh
 * without a device are missing devices.
 *
 * Returns:  a topology, or NULL with CO_VALUE_ERROR: another number of dimensions, a dimension
 *           below 1, a mesh of more than 2^24 places, coordinates of another shape or dtype, or
 *           outside the mesh.
 * Rules: TOPO-1, TOPO-2.
 */
CO_API co_topology *co_topology_make(co_context *ctx, const int64_t *mesh_shape, int mesh_rank,
                                     co_value *device_coordinates);
/** The same from the bytes of a TopologyProto, a host string. CO_VALUE_ERROR if they are not
 * one, or do not describe a topology. */
CO_API co_topology *co_topology_parse(co_context *ctx, co_value *serialized);
/** The bytes of the TopologyProto, as a host string. */
CO_API co_value *co_topology_serialized(co_context *ctx, co_topology *topology);

CO_API int co_topology_mesh_rank(co_context *ctx, const co_topology *topology);
CO_API int co_topology_num_tasks(co_context *ctx, const co_topology *topology);
CO_API int co_topology_num_tpus_per_task(co_context *ctx, const co_topology *topology);
/** An int32 vector. */
CO_API co_value *co_topology_mesh_shape(co_context *ctx, co_topology *topology);
/** As it was given: int32 [tasks, devices of a task, mesh_rank]. */
CO_API co_value *co_topology_device_coordinates(co_context *ctx, co_topology *topology);
/** The places of the mesh without a device, in row-major order: int64 [missing, mesh_rank]. */
CO_API co_value *co_topology_missing_devices(co_context *ctx, co_topology *topology);
/**
 * The device at `coordinates` (mesh_rank numbers): its task, and its number among the task's
 * devices. CO_VALUE_ERROR outside the mesh, and where there is no device. If two devices have the
 * same coordinates, the last one counts.
 */
CO_API co_code co_topology_find(co_context *ctx, const co_topology *topology,
                                const int64_t *coordinates, int *task, int *tpu_ordinal);
/**
 * Names of a task's devices and of its host, as host strings: "/job:worker/task:1/device:TPU:0",
 * "/task:1/device:CPU:0". `job` may be NULL, and is then left out. CO_VALUE_ERROR for a task or
 * device that does not exist.
 * Rules: TOPO-3.
 */
CO_API co_value *co_topology_tpu_device(co_context *ctx, co_topology *topology, const char *job,
                                        int task, int tpu_ordinal);
CO_API co_value *co_topology_host_device(co_context *ctx, co_topology *topology, const char *job,
                                         int task);

/*
 * Logical devices: parts of the device of a replica. They exist only in TPU strategies, and there
 * is none yet: with every strategy these calls are CO_UNIMPLEMENTED, whatever the other arguments.
 * Rules: S-LOGICAL-1.
 */

/** Annotate a tensor: operations on it run on one logical device. */
CO_API co_value *co_assign_to_logical_device(co_context *ctx, co_strategy *strategy,
                                             co_value *tensor, int logical_device_id);
/** Annotate a tensor: dimension i is divided into partition_dimensions[i] parts. */
CO_API co_value *co_split_to_logical_devices(co_context *ctx, co_strategy *strategy,
                                             co_value *tensor, const int64_t *partition_dimensions,
                                             size_t num_dimensions);
/** Annotate a tensor: every logical device holds all of it. */
CO_API co_value *co_replicate_to_logical_devices(co_context *ctx, co_strategy *strategy,
                                                 co_value *tensor);
/** The names of the documents. */
#define co_experimental_assign_to_logical_device     co_assign_to_logical_device
#define co_experimental_split_to_logical_devices     co_split_to_logical_devices
#define co_experimental_replicate_to_logical_devices co_replicate_to_logical_devices

/* Running. */

/** tf.distribute.RunOptions. Only strategies for TPUs use them; the existing strategies accept any
 * value and ignore it.
 * Rules: RO-1, S-RUN-9. */
typedef struct co_tpu_run_options {
    size_t                struct_size;
    const co_run_options *run; /* options of every strategy; NULL: the defaults */
    bool                  experimental_enable_dynamic_batch_size;
    bool                  experimental_bucketizing_dynamic_shape;
    const void           *experimental_xla_options;
} co_tpu_run_options;
#define CO_TPU_RUN_OPTIONS_INIT { sizeof(co_tpu_run_options), NULL, true, false, NULL }
/**
 * co_run_with, with RunOptions. NULL options mean the initialiser.
 *
 * Scope:    collective over the processes of the strategy, if the step is.
 * Context:  default mode, or cross-replica context of this strategy.
 * Blocks:   until all local replicas have returned from fn.
 * Returns:  what co_run_with returns.
 */
CO_API co_value *co_tpu_run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args,
                            void *user, const co_tpu_run_options *options);

CO_EXTERN_C_END

#include <cohort/tpu_sites.h>

#endif
