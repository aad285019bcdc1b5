/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The v1 surface: tf.compat.v1.distribute.OneDeviceStrategy and its siblings, in eager form, for
 * programs that are carried over. New programs use strategy.h and dataset.h; every call here names
 * the one that takes its place.
 *
 *     co_strategy *strategy = co_v1_one_device_strategy(ctx, "/cpu:0");
 *     co_iterator *iterator = co_make_dataset_iterator(ctx, strategy, dataset);
 *
 *     co_iterator_initialize(ctx, iterator);
 *     while ((results = co_experimental_run(ctx, strategy, replica_fn, iterator, NULL)) != NULL)
 *         ...
 *     co_clear(ctx); // the end of input is CO_OUT_OF_RANGE
 *
 * A strategy of the v1 flavour is a co_strategy: scope, run, reduce, local results, the dataset
 * methods and all of extended.h are the calls of the other headers. It has the members below
 * besides, and lacks three things that v1 never had, which answer CO_UNIMPLEMENTED:
 * co_distribute_values_from_function, co_gather_replicas and the logical devices. The calls below
 * also work with strategies of the other flavour, which the documents do not promise. No call logs
 * that it is deprecated.
 *
 * There is no graph mode and there are no sessions yet: they follow with captured functions. Asking
 * for them, co_v1_disable_eager_execution, is CO_UNIMPLEMENTED.
 * Rules: S-V1-1.
 */
#ifndef COHORT_V1_H
#define COHORT_V1_H

#include <cohort/dataset.h>
#include <cohort/extended.h>
#include <cohort/strategy.h>

CO_EXTERN_C_BEGIN

/* Making strategies of the v1 flavour. Arguments, errors and lifetime are those of the constructor
 * without v1 in its name. */

/** tf.compat.v1.distribute.OneDeviceStrategy; NULL is the current device. */
CO_API co_strategy *co_v1_one_device_strategy(co_context *ctx, const char *device);
/** tf.compat.v1.distribute.MirroredStrategy. */
CO_API co_strategy *co_v1_mirrored_strategy(co_context *ctx, const char *const *devices,
                                            size_t num_devices, const co_mirrored_options *options);
/**
 * tf.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy.
 *
 * Scope:    collective over all processes.
 * Context:  outside steps.
 * Blocks:   until all processes have arrived.
 * Returns:  what co_multi_worker_mirrored_strategy returns.
 */
CO_API co_strategy *co_v1_multi_worker_mirrored_strategy(co_context                    *ctx,
                                                const co_multi_worker_mirrored_options *options);
/** The default strategy with the members of v1: no gather. (co_default_strategy has those of both.)
 * Lives as long as the runtime. */
CO_API co_strategy *co_v1_default_strategy(co_context *ctx);
/** tf.compat.v1.distribute.get_strategy: the current strategy, or co_v1_default_strategy. */
CO_API co_strategy *co_v1_get_strategy(co_context *ctx);

/**
 * Whether the documents give strategies of this flavour a member of that name
 * ("make_dataset_iterator", "gather", ...), as hasattr would say: for bindings. Names of extended's
 * members are not looked up. False for NULL and for names of nothing.
 */
CO_API bool co_strategy_has_member(co_context *ctx, const co_strategy *strategy, const char *name);

/* Modes of execution. */

/** tf.enable_eager_execution: what is always so. Returns the code of ctx. */
CO_API co_code co_v1_enable_eager_execution(co_context *ctx);
/** Graph mode and sessions: CO_UNIMPLEMENTED. */
CO_API co_code co_v1_disable_eager_execution(co_context *ctx);

/* Input iterators. They are iterators: co_get_next, co_next, co_iterator_element_spec and
 * co_run_steps_on_iterator take them. Like all iterators they are handles of the block that they
 * were made in, used by one thread at a time. */

/**
 * An iterator over a dataset that is batched by the global batch size: every batch is divided over
 * the replicas, as co_distribute_dataset does. co_distribute_dataset and co_iterate replace it.
 *
 * Context:  any.
 * Returns:  an iterator of ctx's block, or NULL with CO_VALUE_ERROR where batches cannot be divided
 *           because elements are not batched: batch them, or use co_make_input_fn_iterator.
 * Rules: ITER1-DS-*.
 */
CO_API co_iterator *co_make_dataset_iterator(co_context *ctx, co_strategy *strategy,
                                             co_dataset *dataset);

/**
 * An iterator over what input_fn makes, which is called once for each worker, now, in the
 * strategy's scope and with the worker's host as the current device. No splitting: at every step
 * each replica takes the next element of its worker's dataset, so batches have the per-replica size
 * (co_per_replica_batch_size). A last step that cannot serve every replica is the end, and its rows
 * are dropped. Several processes end at the same step instead, as with
 * co_distribute_datasets_from_function, which replaces this call.
 *
 * input_fn returns a dataset, or a function of its own wrapped by co_input_callable.
 *
 * Context:  default mode, or cross-replica context of this strategy; CO_RUNTIME_ERROR otherwise.
 * Returns:  an iterator of ctx's block, or NULL with CO_VALUE_ERROR: any mode but
 *           CO_INPUT_PER_WORKER (detected before input_fn is called), or a result that is not a
 *           dataset; CO_TYPE_ERROR if input_fn is NULL; or the error of input_fn, unchanged.
 * Rules: ITER1-FN-*.
 */
CO_API co_iterator *co_make_input_fn_iterator(co_context *ctx, co_strategy *strategy,
                                              co_dataset_fn input_fn, void *user,
                                              co_input_replication_mode replication_mode);

/** Makes an element: a value of any kind, in whose structure every leaf is for one replica. NULL
 * without an error is none. */
typedef co_value *(*co_input_callable_fn)(co_context *ctx, void *user);
/**
 * What an input_fn returns instead of a dataset: fn is called once for each local replica at every
 * step, in the context that asks for the element, and the input never ends. Its spec is unknown:
 * it has no dtype and no shape. It cannot be transformed or distributed. CO_TYPE_ERROR where fn is
 * NULL.
 */
CO_API co_dataset *co_input_callable(co_context *ctx, co_input_callable_fn fn, void *user);

/**
 * Return to the first element, whether the iterator has ended or not. An iterator can be used
 * without this call.
 *
 * Scope:    this process. If there are several, all must call it; otherwise their steps differ.
 * Context:  that of co_next.
 * Blocks:   until threads that prefetch have finished their current element.
 * Returns:  the code of ctx: CO_TYPE_ERROR for an iterator of co_iterate (make another iterator
 *           instead); CO_VALUE_ERROR in a replica and CO_RUNTIME_ERROR under another strategy, as
 *           co_get_next.
 * Rules: ITER1-INIT-*.
 */
CO_API co_code co_iterator_initialize(co_context *ctx, co_iterator *iterator);
/** The same as a property. */
#define co_iterator_initializer co_iterator_initialize

/**
 * One element, described leaf by leaf in its structure: the names of dtypes as host strings
 * ("int64"); shapes as int64 vectors, -1 for an unknown dimension, none for an unknown
 * number of dimensions; classes, "Tensor". With several replicas, the part of one replica.
 * Rules: ITER1-NEXT-2.
 */
CO_API co_value *co_iterator_output_types(co_context *ctx, co_iterator *iterator);
CO_API co_value *co_iterator_output_shapes(co_context *ctx, co_iterator *iterator);
CO_API co_value *co_iterator_output_classes(co_context *ctx, co_iterator *iterator);

/** make_one_shot_iterator of a distributed dataset: co_iterate.
 * Rules: ITER1-DD-1. */
#define co_make_one_shot_iterator co_iterate
/** make_initializable_iterator of a distributed dataset: CO_VALUE_ERROR, because it belongs to
 * graph mode; use co_iterate. */
CO_API co_iterator *co_make_initializable_iterator(co_context *ctx, co_dataset *dataset);

/* Running. */

/**
 * One step on an iterator: in the strategy's scope, takes the next element and calls run with it as
 * the one argument, also where it is a tuple; without an iterator (NULL) fn gets no argument. The
 * end of the input is CO_OUT_OF_RANGE, and fn is not called. co_next and co_run replace it.
 *
 * Scope:    collective over processes, as co_next and co_run are.
 * Context:  default mode, or cross-replica context of this strategy; CO_RUNTIME_ERROR otherwise,
 *           and if the iterator belongs to another strategy.
 * Blocks:   until the element is available and fn has returned on all local replicas.
 * Returns:  what co_run returns, or NULL with an error of co_get_next or co_run.
 * Rules: S-EXPRUN-*.
 */
CO_API co_value *co_experimental_run(co_context *ctx, co_strategy *strategy, co_fn fn,
                                     co_iterator *input_iterator, void *user);

/** reduce with its v1 default: no axis, so that only replicas are combined. With axes it is
 * co_reduce. */
#define co_v1_reduce(ctx, strategy, op, value) co_reduce(ctx, strategy, op, value, NULL, 0)

/** experimental_make_numpy_dataset(input, session): a session is for graph mode, and is ignored
 * here.
 * Rules: NP-6. */
#define co_v1_make_numpy_dataset(ctx, strategy, arrays, session)                                   \
    ((void)(session), co_make_numpy_dataset(ctx, strategy, arrays))

/* Members of strategy.extended that only the v1 flavour has in the documents.
 * Rules: EXT-PROP-1. */

/** Two flags of the older API; CO_UNIMPLEMENTED for the default strategy. */
CO_API bool co_should_init(co_context *ctx, const co_strategy *strategy);
CO_API bool co_between_graph(co_context *ctx, const co_strategy *strategy);
#define co_experimental_should_init   co_should_init
#define co_experimental_between_graph co_between_graph
/** The same as co_variable_read, which replaces it: the aggregated value for a variable that is
 * synchronised on read. */
CO_API co_value *co_read_var(co_context *ctx, co_strategy *strategy, co_value *variable);
/** co_run under its older name, without the check that args is a tuple. Scope, context,
 * blocking and result are those of co_run. */
CO_API co_value *co_call_for_each_replica(co_context *ctx, co_strategy *strategy, co_fn fn,
                                          co_value *args, void *user);

/* Several steps on an iterator. */

/** The outputs that a run of steps collects; a handle of the block that it was made in. */
typedef struct co_step_context co_step_context;
/** One step: called in cross-replica context of the strategy with the next element, usually to call
 * run. Its result is ignored. */
typedef co_value *(*co_step_fn)(co_context *ctx, co_step_context *steps, co_value *inputs,
                                void *user);

typedef struct co_run_steps_options {
    size_t    struct_size;
    co_value *initial_loop_values; /* a dict: the last outputs that the first step sees; NULL:
                                      none */
} co_run_steps_options;
#define CO_RUN_STEPS_OPTIONS_INIT { sizeof(co_run_steps_options), NULL }
/**
 * Call fn `iterations` times, each time with the next element of the iterator, in the strategy's
 * scope and in its own block. The outputs that a step sets with co_set_last_step_output are
 * available from the end of this step to the end of the next one.
 *
 *     static co_value *step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
 *     {
 *         co_value *sums = co_run(ctx, user, sum_of, co_args(ctx, inputs), NULL);
 *         co_set_last_step_output(ctx, steps, "sum", CO_REDUCE_SUM, sums);
 *         return NULL;
 *     }
 *     steps = co_run_steps_on_iterator(ctx, strategy, step, iterator, strategy, 3, NULL);
 *     sum = co_get(ctx, co_last_step_outputs(ctx, steps), "sum");
 *
 * Scope:    collective over processes, as co_next and the calls of fn are.
 * Context:  default mode, or cross-replica context of this strategy.
 * Blocks:   until the last step has ended.
 * Returns:  the collected outputs, or NULL with an error: CO_OUT_OF_RANGE if the input ends before
 *           the last step, CO_VALUE_ERROR for negative iterations, CO_TYPE_ERROR if fn is NULL,
 *           CO_UNIMPLEMENTED for the default strategy, or the error of a step.
 * Rules: EXT-STEPS-1.
 */
CO_API co_step_context *co_run_steps_on_iterator(co_context *ctx, co_strategy *strategy,
                                                 co_step_fn fn, co_iterator *iterator,
                                                 void *user, int64_t iterations,
                                                 const co_run_steps_options *options);
/** The outputs of the last completed step, as a dict. */
CO_API co_value *co_last_step_outputs(co_context *ctx, co_step_context *steps);
/** The outputs that steps set with co_set_non_tensor_output, as a dict; each name has its last
 * value. */
CO_API co_value *co_non_tensor_outputs(co_context *ctx, co_step_context *steps);
/**
 * Set a named output of the step, reduced by op over replicas. In cross-replica context op may be
 * CO_REDUCE_NONE, which keeps the value as it is. If replicas call it, all must use the same name
 * and op.
 *
 * Scope:    collective over the replicas if they call it, and over processes.
 * Context:  in a step function, or in a replica that it runs.
 * Blocks:   until all replicas, and processes, have arrived.
 * Returns:  CO_OK, or CO_ASSERTION_ERROR (in a replica without an operation), CO_VALUE_ERROR (no
 *           name), or an error of co_reduce or co_all_reduce.
 */
CO_API co_code co_set_last_step_output(co_context *ctx, co_step_context *steps, const char *name,
                                       co_reduce_op op, co_value *output);
/**
 * The same without reducing: if replicas call it, the output is the tuple of their outputs in this
 * process.
 *
 * Scope:    collective over the local replicas if they call it.
 * Context:  in a step function, or in a replica that it runs.
 * Blocks:   until all local replicas have arrived.
 * Returns:  CO_OK, or CO_VALUE_ERROR (no name).
 */
CO_API co_code co_set_non_tensor_output(co_context *ctx, co_step_context *steps, const char *name,
                                        co_value *output);
/** The name of the documents. */
#define co_experimental_run_steps_on_iterator co_run_steps_on_iterator

/* Configuration of TensorFlow's sessions, for programs that pass it on. A config is a serialized
 * tf.ConfigProto: a host string of bytes. Unknown fields are kept. */

/**
 * A copy of `config` with the changes of the strategy; config itself never changes, and NULL or
 * none gives none. OneDevice and default change nothing. Mirrored sets isolate_session_state.
 * MultiWorker sets its task of the cluster: worker r of the processes; a single process has no
 * cluster.
 *
 * Returns:  a host string of ctx's block, or NULL with CO_INVALID_ARGUMENT where config is no
 *           message (it says where), CO_TYPE_ERROR where it is no string.
 * Rules: S-CFG-*, MW-12.
 */
CO_API co_value *co_update_config_proto(co_context *ctx, co_strategy *strategy, co_value *config);

/** Who takes part in a cluster, as far as its config says so. Start from the initialiser. */
typedef struct co_config_cluster {
    size_t      struct_size;
    const char *task_type;  /* "chief", "worker", "ps", "evaluator"; NULL: no cluster */
    int         task_index; /* from 0 */
    /* the cluster has a job "chief", which then leads; else worker 0 does */
    bool        has_chief;
    bool        collective_nccl; /* collectives by NCCL, as graph mode sets */
} co_config_cluster;
#define CO_CONFIG_CLUSTER_INIT { sizeof(co_config_cluster), NULL, 0, false, false }

/**
 * What MultiWorkerMirroredStrategy makes of a config in a cluster that need not be there: scoped
 * allocators for CollectiveReduce alone; with a task, device filters for that task alone and the
 * group leader, which an evaluator does not have. CO_VALUE_ERROR for a task type other than the
 * four or a negative index.
 */
CO_API co_value *co_config_for_cluster(co_context *ctx, co_value *config,
                                       const co_config_cluster *cluster);

CO_EXTERN_C_END

#include <cohort/v1_sites.h>

#endif
