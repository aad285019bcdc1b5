/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experimental and older names of the tf.distribute documents, for programs that are carried
 * over by their text. Each is another spelling of the call beside it, with its arguments, result
 * and call site, and adds nothing to the library. New programs use the names on the right.
 *
 * A method of the documents is a call with the strategy as the argument after ctx:
 * strategy.experimental_run_v2(fn, args) is co_experimental_run_v2(ctx, strategy, fn, args, user).
 * Where the plain C name belongs to an operator (gather, broadcast_to), the alias has the class
 * before the method.
 */
#ifndef COHORT_ALIASES_H
#define COHORT_ALIASES_H

#include <cohort/dataset.h>
#include <cohort/extended.h>
#include <cohort/strategy.h>

/* tf.distribute.Strategy. */

/** Strategy.run in 1.15; _with takes the keyword arguments and the options of 2.2. */
#define co_experimental_run_v2                            co_run
#define co_experimental_run_v2_with                       co_run_with
#define co_experimental_local_results                     co_local_results
#define co_experimental_distribute_dataset                co_distribute_dataset
#define co_experimental_distribute_datasets_from_function co_distribute_datasets_from_function
#define co_experimental_distribute_values_from_function   co_distribute_values_from_function
#define co_experimental_make_numpy_dataset                co_make_numpy_dataset
/** Strategy.gather; co_gather is the operator. */
#define co_strategy_gather co_gather_replicas

/* Constructors: tf.distribute.MultiWorkerMirroredStrategy, and its name until 2.3. */

#define co_experimental_multi_worker_mirrored_strategy co_multi_worker_mirrored_strategy

/* strategy.extended. */

#define co_experimental_require_static_shapes co_require_static_shapes
/** StrategyExtended.broadcast_to; co_broadcast_to is the operator. */
#define co_extended_broadcast_to co_broadcast_to_devices

/* Contexts of replicas and of input. */

/** ReplicaContext.replica_id_in_sync_group: an int32 scalar. */
#define co_replica_id_in_sync_group   co_replica_id_tensor
#define co_get_per_replica_batch_size co_per_replica_batch_size

CO_EXTERN_C_BEGIN

/* What the macro below calls with the site of its caller. */
static inline co_dataset *
co_numpy_dataset_of_current(co_context *ctx, co_value *arrays)
{
    return co_make_numpy_dataset(ctx, co_get_strategy(ctx), arrays);
}
/**
 * tf.distribute.experimental_make_numpy_dataset, which the 1.15 text names without a strategy: acts
 * on the current one, and so is CO_RUNTIME_ERROR in a replica of it.
 * Rules: AMB-8.
 */
#define co_distribute_experimental_make_numpy_dataset(ctx, arrays)                                 \
    co_numpy_dataset_of_current(CO_HERE(ctx), arrays)

CO_EXTERN_C_END

#endif
