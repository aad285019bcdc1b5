/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The v1 surface: tf.compat.v1.distribute.OneDeviceStrategy and its siblings, eager and in graph
 * mode, for programs that are carried over. New programs use strategy.h and dataset.h; every call here names
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
 * Without graph mode everything runs eagerly; graph mode is a part of its own below.
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

/*
 * Graph mode. A context in graph mode computes nothing: operators, variables, iterators, run and
 * reduce add operations to its graph, and give symbolic tensors that stand for their results. A
 * session runs them:
 *
 *     co_v1_disable_eager_execution(ctx);
 *     co_value   *x = co_placeholder(ctx, CO_FLOAT32, CO_SHAPE(-1));
 *     co_value   *w = co_variable(ctx, co_scalar_float(ctx, 3), NULL);
 *     co_value   *y = co_mul(ctx, x, w);
 *     co_session *session = co_session_open(ctx, NULL, NULL);
 *     co_feed     feed = { x, batch };
 *
 *     co_session_run(ctx, session, co_global_variables_initializer(ctx), NULL, 0);
 *     co_value *result = co_session_run(ctx, session, y, &feed, 1);
 *     co_session_close(ctx, session);
 *
 * docs/graphs.md is the guide. Tensors that you make of data are constants of the graph and have
 * their elements; symbolic tensors have dtype and shape alone, and reading them is CO_TYPE_ERROR.
 * What gives no tensor is an operation: a value without a dtype, to be fetched or depended on.
 * An effect (an assignment, an update) happens when a session runs its operation, and only then.
 * Rules: GR-*, CTX-7.
 */

/** A graph of operations. A handle of the block that it was made in. One thread at a time adds to
 * it; sessions may run it meanwhile. */
typedef struct co_graph co_graph;

/** Eager execution of this context, which a new context has. CO_VALUE_ERROR in graph mode once an
 * operation was added. Returns the code of ctx. */
CO_API co_code co_v1_enable_eager_execution(co_context *ctx);
/**
 * Graph mode of this context, with a graph of its own that lives as long as the context. Other
 * contexts stay as they are.
 *
 * Returns:  the code of ctx: CO_VALUE_ERROR if a value was made in the context before;
 *           CO_RUNTIME_ERROR in a step, scope or captured function.
 */
CO_API co_code co_v1_disable_eager_execution(co_context *ctx);
/** Whether calls on ctx compute: no graph is being built, and no function captured. */
CO_API bool co_executing_eagerly(co_context *ctx);

/** A graph without operations, to be made current by CO_GRAPH. */
CO_API co_graph *co_graph_new(co_context *ctx);
/** The current graph, that of CO_GRAPH or of the context in graph mode. NULL where there is none. */
CO_API co_graph *co_get_default_graph(co_context *ctx);
/** `with graph.as_default()`: in the body calls add to the graph, in default mode, wherever it is. In
 * an eager context too.
 * Rules: CTX-7. */
#define CO_GRAPH(ctx, graph) CO_STATEMENT_IF(co_statement_graph(ctx, graph))
/** For CO_GRAPH. */
CO_API co_statement co_statement_graph(co_context *ctx, co_graph *graph);
/** The same as two calls. CO_RUNTIME_ERROR where it is not what was begun last. */
CO_API co_code co_graph_begin(co_context *ctx, co_graph *graph);
CO_API co_code co_graph_end(co_context *ctx);
/** From now on nothing is added: CO_RUNTIME_ERROR for what would. */
CO_API co_code co_graph_finalize(co_context *ctx, co_graph *graph);
CO_API bool    co_graph_is_finalized(co_context *ctx, const co_graph *graph);
/** How many operations it has. */
CO_API int64_t co_graph_num_operations(co_context *ctx, co_graph *graph);
/** Its operations in text, one a line, as co_function_print. */
CO_API size_t co_graph_print(co_context *ctx, co_graph *graph, char *out, size_t capacity);

/**
 * A tensor that each run is fed; dimensions of -1 and an ndim of -1 are any. A run that needs it
 * and does not feed it is CO_INVALID_ARGUMENT.
 *
 * Returns:  a symbolic tensor of ctx's block, or NULL with CO_RUNTIME_ERROR in eager mode.
 */
CO_API co_value *co_placeholder(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim);
/** The same with a value for runs that do not feed it, which must fit the shape. */
CO_API co_value *co_placeholder_with_default(co_context *ctx, co_value *value, const int64_t *dims,
                                             int ndim);

/** One operation that runs all that a structure holds; what else is in it is passed over. None in
 * eager mode. */
CO_API co_value *co_group(co_context *ctx, co_value *values);
/** An operation that does nothing. */
CO_API co_value *co_no_op(co_context *ctx);
/**
 * The operation that the last call added to the graph: of a call that returns no value, such as
 * co_minimize, co_apply_gradients or co_assert. None in eager mode; CO_RUNTIME_ERROR where nothing
 * was added.
 */
CO_API co_value *co_last_operation(co_context *ctx);
/** `with control_dependencies(values)`: what the body adds runs after these values and operations.
 * none: dependencies around it do not hold in the body. Nothing in eager mode. */
#define CO_CONTROL_DEPENDENCIES(ctx, values) CO_STATEMENT_IF(co_statement_control(ctx, values))
/** For CO_CONTROL_DEPENDENCIES. */
CO_API co_statement co_statement_control(co_context *ctx, co_value *values);
/** The same as two calls. */
CO_API co_code co_control_dependencies_begin(co_context *ctx, co_value *values);
CO_API co_code co_control_dependencies_end(co_context *ctx);
/** Let an operation or tensor of the current graph run after another, which may have been made
 * later. Of structures, each of the first runs after all of the second. CO_VALUE_ERROR if one of
 * these depends on one of the first: each would wait for the other. */
CO_API co_code co_add_control_input(co_context *ctx, co_value *operation, co_value *before);

/** `with init_scope()`: in the body calls are outside the functions that are being captured, in the
 * graph around them or eager; tapes do not record, and control dependencies do not hold. */
#define CO_INIT_SCOPE(ctx) CO_STATEMENT_IF(co_statement_init_scope(ctx))
/** For CO_INIT_SCOPE. */
CO_API co_statement co_statement_init_scope(co_context *ctx);
/** The same as two calls. */
CO_API co_code co_init_scope_begin(co_context *ctx);
CO_API co_code co_init_scope_end(co_context *ctx);

/**
 * The operation that gives a variable of the current graph its first value, all of some, and all of
 * all. Reading a variable before is CO_FAILED_PRECONDITION when a session runs it. Slots of
 * optimizers need none. CO_VALUE_ERROR for a variable of another graph or made eagerly, and for one
 * that was declared without a value.
 */
CO_API co_value *co_variable_initializer(co_context *ctx, co_value *variable);
CO_API co_value *co_variables_initializer(co_context *ctx, co_value *variables);
CO_API co_value *co_global_variables_initializer(co_context *ctx);
/** The variables of the current graph, as a list in the order in which they were made. */
CO_API co_value *co_global_variables(co_context *ctx);
/** Whether a variable has a value when it runs: a bool tensor. */
CO_API co_value *co_is_variable_initialized(co_context *ctx, co_value *variable);

/** Runs operations of a graph. A handle of the block that it was made in; contexts of several
 * threads may run it at the same time. */
typedef struct co_session co_session;

typedef struct co_session_options {
    size_t    struct_size;
    co_value *config; /* of co_update_config_proto: a serialized tf.ConfigProto; NULL: none */
} co_session_options;
#define CO_SESSION_OPTIONS_INIT { sizeof(co_session_options), NULL }

/**
 * A session of a graph; NULL: the current one. Its config must be a message and is kept; no field of
 * it changes how operations run. The values of variables and the positions of iterators are those
 * of the graph, so that all of its sessions see them.
 *
 * Returns:  a session of ctx's block, or NULL with CO_RUNTIME_ERROR (no graph is current),
 *           CO_INVALID_ARGUMENT (the config is no message) or CO_TYPE_ERROR (it is no string).
 */
CO_API co_session *co_session_open(co_context *ctx, co_graph *graph,
                                   const co_session_options *options);
/** What a run has in the place of a tensor of the graph: a placeholder, or any other. */
typedef struct co_feed {
    co_value *tensor, *value; /* value: a tensor, host number, or list of them */
} co_feed;
/**
 * Run what fetches need, each operation once, in the order in which they were made as far as they
 * do not depend on each other. `fetches` is a tensor or operation of the graph, a variable, a
 * constant, or a structure or per-replica value of these. A variable has one value, whoever uses
 * it, so it may be one of another graph, or made eagerly.
 *
 * Scope:    as the operations.
 * Context:  outside steps and captured functions. The strategy and device of the caller do not
 *           matter: operations run under those that they were made under.
 * Blocks:   as the operations.
 * Returns:  the values in the structure of fetches, none for operations: of ctx's block. NULL with
 *           CO_VALUE_ERROR    a fetch of a tensor or operation of another graph; a feed of a shape
 *                             that does not fit, or for something that cannot be fed; one fed twice
 *           CO_TYPE_ERROR     a fetch that is no tensor, operation or variable; a feed of another
 *                             dtype, of a symbolic tensor, or for a tensor of another graph
 *           CO_RUNTIME_ERROR  a closed session, or a call in a step or captured function
 *           and the errors of operations, with their lines: those before have run.
 * Rules: GR-2, GR-3, GR-4.
 */
CO_API co_value *co_session_run(co_context *ctx, co_session *session, co_value *fetches,
                                const co_feed *feeds, size_t num_feeds);
/** Later runs are CO_RUNTIME_ERROR; those under way end as they would. Closing again is nothing. */
CO_API co_code co_session_close(co_context *ctx, co_session *session);
/** The graph that it runs, and its config: a host string, or none. */
CO_API co_graph *co_session_graph(co_context *ctx, co_session *session);
CO_API co_value *co_session_config(co_context *ctx, co_session *session);

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
 * Return to the first element, whether the iterator has ended or not. An eager iterator can be used
 * without this call. In graph mode this is an operation, and an iterator whose operation has not run
 * is CO_FAILED_PRECONDITION when a session takes an element.
 *
 * Scope:    this process. If there are several, all must call it; otherwise their steps differ.
 * Context:  that of co_next.
 * Blocks:   until threads that prefetch have finished their current element.
 * Returns:  none, or the operation: a value of ctx's block. NULL with CO_TYPE_ERROR for an iterator
 *           of co_iterate (make another iterator instead); CO_VALUE_ERROR in a replica and
 *           CO_RUNTIME_ERROR under another strategy, as co_get_next.
 * Rules: ITER1-INIT-*.
 */
CO_API co_value *co_iterator_initialize(co_context *ctx, co_iterator *iterator);
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

/** make_one_shot_iterator: co_iterate in eager mode. In graph mode an iterator that needs no
 * initializing; CO_VALUE_ERROR there for a distributed dataset.
 * Rules: ITER1-DD-1. */
CO_API co_iterator *co_make_one_shot_iterator(co_context *ctx, co_dataset *dataset);
/** make_initializable_iterator, for graph mode: CO_VALUE_ERROR in eager mode; use co_iterate. */
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

/** experimental_make_numpy_dataset(input, session): co_make_numpy_dataset, which in graph mode is
 * CO_ASSERTION_ERROR without a session. In eager mode the session is ignored.
 * Rules: NP-6. */
CO_API co_dataset *co_v1_make_numpy_dataset(co_context *ctx, co_strategy *strategy,
                                            co_value *arrays, co_session *session);

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
 * In graph mode fn is called once, to add its operations. A session that needs one of the outputs,
 * or co_run_steps_operation, runs them `iterations` times.
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
/** run_op: in graph mode the operation that runs the steps; none in eager mode. */
CO_API co_value *co_run_steps_operation(co_context *ctx, co_step_context *steps);
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
