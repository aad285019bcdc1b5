/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategies: you write a step once, and a strategy decides on which devices it runs, where its
 * variables live, how its input is split and how its results are combined. Nothing in a step or a
 * loop changes between strategies.
 *
 *     co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
 *     CO_SCOPE(ctx, strategy) {
 *         w = co_variable(ctx, initial, NULL);
 *     }
 *     co_value *losses = co_run(ctx, strategy, step, co_args(ctx, batch), model);
 *     co_value *loss = co_reduce(ctx, strategy, CO_REDUCE_SUM, losses, NULL, 0);
 *
 * Inside the step, the context that it is given is the replica context of the tf.distribute
 * documents.
 *
 * Collective calls. The comment of a call that waits for others says so under "Scope". All
 * replicas of a step, or all processes of a strategy, must make the same collective calls in the
 * same order. "Context" says where a call is allowed, "Blocks" what it waits for. Besides the
 * errors under "Returns", a collective call may fail with
 *
 *   CO_RUNTIME_ERROR      replicas or processes make different calls, or one has ended without it
 *   CO_DEADLINE_EXCEEDED  one does not arrive: it has executed nothing for the deadline_ms of the
 *                         strategy, or the timeout_seconds of the call have passed
 *   CO_UNAVAILABLE        a process has died, or the strategy was abandoned after such an error
 *
 * and with the error of another replica or process that failed while this one waited.
 */
#ifndef COHORT_STRATEGY_H
#define COHORT_STRATEGY_H

#include <cohort/communication.h>
#include <cohort/context.h>
#include <cohort/variable.h>

CO_EXTERN_C_BEGIN

/* Making strategies. They belong to the runtime of ctx and live until their block ends, longer with
 * co_keep; variables, datasets and open scopes keep theirs alive. */

/** deadline_ms of options: what the setting deadline_ms says (60000 where nobody set it). */
#define CO_DEADLINE_OF_SETTINGS (-1)

/** The strategy that is current when none was chosen: one replica, no effect. There is exactly
 * one. */
CO_API co_strategy *co_default_strategy(co_context *ctx);
/** Everything on one device. NULL is the current device. The device need not exist yet.
 * Rules: DEV-5. */
CO_API co_strategy *co_one_device_strategy(co_context *ctx, const char *device);

typedef struct co_mirrored_options {
    size_t struct_size;
    int    num_replicas; /* logical replicas, spread evenly in order; 0 means one per device */
    int    deadline_ms;  /* how long a replica may execute nothing; 0 turns the check off */
    /*
     * The share of each replica in a batch: 3, 1 gives the first three rows of every four. Whole
     * numbers from 1, with a sum of at most INT32_MAX; what counts is their ratio (1 : 2.5 is 2,
     * 5). NULL: equal shares. See "Unequal shares" in dataset.h.
     */
    const int64_t      *weights;
    size_t              num_weights;      /* one for each replica; 0 without weights */
    co_cross_device_ops cross_device_ops; /* the algorithm; never changes a result */
    /* checked to be at least 0, and of no effect: devices share memory, so nothing is packed */
    int                 num_packs;
} co_mirrored_options;
#define CO_MIRRORED_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(co_mirrored_options), 0, CO_DEADLINE_OF_SETTINGS, NULL, 0, CO_CROSS_DEVICE_AUTO, 1  \
    }

/**
 * Replicas on several devices of this machine. NULL devices and 0: all GPUs, or else all CPUs.
 * `options` may be NULL. A replica that executes nothing for the deadline while others wait for it
 * ends the step with CO_DEADLINE_EXCEEDED. If it does not return soon after, its thread and
 * memory are abandoned, and all later calls of the strategy are CO_UNAVAILABLE. CO_VALUE_ERROR for
 * NULL devices with a nonzero number, and for options out of range; CO_ASSERTION_ERROR for a
 * device that is given twice.
 * Rules: MIR-INIT-1.
 */
CO_API co_strategy *co_mirrored_strategy(co_context *ctx, const char *const *devices,
                                         size_t num_devices, const co_mirrored_options *options);

typedef struct co_multi_worker_mirrored_options {
    size_t             struct_size;
    const char *const *devices; /* of this process; NULL: all GPUs, or else all CPUs */
    size_t             num_devices; /* 0 where devices is NULL */
    int                num_replicas; /* logical replicas of all processes; 0 means one per device */
    int                deadline_ms;  /* how long to wait for a peer or replica; 0 waits forever */
    const void        *communicator; /* an MPI_Comm to borrow, by address; NULL: MPI_COMM_WORLD */
    const char        *transport; /* "mpi", "self"; NULL: mpi if this process was started by an MPI
                                      * launcher or has MPI running, else self */
    const int64_t     *weights;   /* of the replicas of all processes, the same in each; as above */
    size_t             num_weights; /* one for each replica; 0 without weights */
    const co_communication_options
        *communication; /* of its collectives, the same on all processes; NULL: the defaults */
} co_multi_worker_mirrored_options;
#define CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT                                                      \
    {                                                                                              \
        sizeof(co_multi_worker_mirrored_options), NULL, 0, 0, CO_DEADLINE_OF_SETTINGS, NULL, NULL, \
            NULL, 0, NULL                                                                          \
    }

/**
 * The same program on several processes. The cluster comes from MPI (mpirun -n 4 program), not from
 * TF_CONFIG: if that is set, a line of the log says so. `options` may be NULL.
 *
 * Scope:    collective over all processes.
 * Context:  outside steps.
 * Blocks:   until all processes have arrived and compared their placements.
 * Returns:  a strategy of ctx's block, or NULL with CO_VALUE_ERROR (invalid devices, options or
 *           transport), CO_INVALID_ARGUMENT (processes with different ones) or CO_UNIMPLEMENTED
 *           (the plug-in of the transport is not installed).
 */
CO_API co_strategy *co_multi_worker_mirrored_strategy(co_context                    *ctx,
                                             const co_multi_worker_mirrored_options *options);

/** "OneDeviceStrategy", "MirroredStrategy", ... Lives as long as the strategy. */
CO_API const char *co_strategy_name(co_context *ctx, const co_strategy *strategy);
CO_API int         co_num_replicas_in_sync(co_context *ctx, const co_strategy *strategy);
/** Replicas of this process. */
CO_API int co_num_local_replicas(co_context *ctx, const co_strategy *strategy);
/** This process and how many there are; 0 and 1 without processes. */
CO_API int co_worker_id(co_context *ctx, const co_strategy *strategy);
CO_API int co_num_workers(co_context *ctx, const co_strategy *strategy);
/** The devices of this process's replicas, each once, as a tuple of strings; CO_RUNTIME_ERROR for
 * the default strategy. */
CO_API co_value *co_worker_devices(co_context *ctx, co_strategy *strategy);

/**
 * The object whose methods extended.h holds: the strategy itself, the same every time, not a new
 * reference.
 * Rules: S-PROP-1.
 */
CO_API co_strategy *co_extended(co_context *ctx, co_strategy *strategy);
/**
 * Who takes part, for strategies of several processes: a named tuple ClusterResolver(task_type,
 * task_id, num_workers). None for every other strategy.
 * Rules: S-PROP-4.
 */
CO_API co_value *co_cluster_resolver(co_context *ctx, co_strategy *strategy);

/* Which strategy is current. These never fail. */

CO_API co_strategy *co_get_strategy(co_context *ctx);
CO_API bool         co_has_strategy(co_context *ctx);
CO_API bool         co_in_cross_replica_context(co_context *ctx);
/** ctx itself where it is a replica context (the default one included), NULL in cross-replica
 * context. */
CO_API co_context *co_get_replica_context(co_context *ctx);

/** A token for an open scope; it is left in the context that entered it. */
typedef struct co_scope {
    uint64_t id; /* 0: not open */
} co_scope;

/** Make `strategy` current, in cross-replica context. An id of 0 in the result means it failed. */
CO_API co_scope co_scope_begin(co_context *ctx, co_strategy *strategy);
/** Leave; scopes are left in the reverse order of entering, otherwise CO_RUNTIME_ERROR and nothing
 * changes. A token of co_creator_begin is CO_RUNTIME_ERROR too: co_creator_end ends it. */
CO_API co_code co_scope_end(co_context *ctx, co_scope *scope);
/** A scope as a statement; the body is skipped when entering fails, and may be left in any way, as
 * that of CO_BLOCK. */
#define CO_SCOPE(ctx, strategy) CO_STATEMENT_IF(co_statement_scope(ctx, strategy))
/** For CO_SCOPE. */
CO_API co_statement co_statement_scope(co_context *ctx, co_strategy *strategy);

/** Make a strategy current without a block, until changed; NULL returns to default mode.
 * Rules: SET-*. */
CO_API co_code co_experimental_set_strategy(co_context *ctx, co_strategy *strategy);

/* Running. */

/**
 * A step. `args` is a tuple or list. Returns a live value, or NULL for none. It fails by recording
 * an error in ctx (co_fail, or any call that fails). ctx is a replica context until the step
 * returns, and what was made in it dies then, the result aside; the context that called run may not
 * be used in the step.
 */
typedef co_value *(*co_fn)(co_context *ctx, co_value *args, void *user);

/**
 * Call `fn` once per local replica, in replica context, at the same time, each with its own context
 * on the replica's device. Per-replica leaves of args are replaced by the replica's component.
 * Results are merged leaf by leaf: what is the same everywhere comes back as it is, the rest as a
 * per-replica value.
 *
 * Scope:    collective over processes if fn makes collective calls.
 * Context:  default mode, or cross-replica context of this strategy; CO_RUNTIME_ERROR otherwise.
 * Blocks:   until fn has returned on all local replicas.
 * Returns:  the merged results (a value of kind none if all replicas return NULL or none), or
 *           NULL with the error of the replica that failed first; CO_RUNTIME_ERROR if a replica
 *           returns without a collective call that others wait in; CO_TYPE_ERROR if fn is NULL,
 *           CO_VALUE_ERROR if args is not a tuple or list.
 * Rules: S-RUN-*.
 */
CO_API co_value *co_run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args,
                        void *user);

typedef struct co_run_options {
    size_t    struct_size;
    co_value *kwargs; /* a dict, given to fn as one more item after args; NULL for none */
    bool      in_turn; /* one replica runs at a time, in order of ids, as in the reference */
} co_run_options;
#define CO_RUN_OPTIONS_INIT { sizeof(co_run_options), NULL, false }
/** co_run with options; NULL means the initialiser. CO_TYPE_ERROR if kwargs is not a dict. Scope,
 * context, blocking and result are those of co_run. */
CO_API co_value *co_run_with(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args,
                             void *user, const co_run_options *options);

typedef enum co_reduce_op {
    CO_REDUCE_NONE = -1, /* only for co_set_last_step_output (v1.h): keep the value as it is */
    CO_REDUCE_SUM = 0,
    CO_REDUCE_MEAN = 1,
    CO_REDUCE_MIN = 2, /* ours; never by name */
    CO_REDUCE_MAX = 3,
    CO_REDUCE_PROD = 4
} co_reduce_op;
/** SUM or MEAN by name, in any letter case; CO_VALUE_ERROR for every other name. */
CO_API co_code co_reduce_op_from_name(co_context *ctx, const char *name, co_reduce_op *out);
/** The operation by which a variable of that aggregation is combined: SUM or MEAN; CO_VALUE_ERROR
 * for the others. */
CO_API co_code co_reduce_op_from_aggregation(co_context *ctx, co_aggregation aggregation,
                                             co_reduce_op *out);

/**
 * Combine the values of all replicas into one.
 *
 * Without axes only replicas are combined and the shape stays. With axes (negative counts from the
 * end) those are reduced too, and MEAN divides by the elements seen along them on all replicas, so
 * a short last batch is weighed right. Sums are made in an order that depends on the number of
 * replicas alone. With several processes a plain value is what each replica of the calling process
 * holds: it takes part like a per-replica value, in every process. In one process it is the same
 * everywhere, and its SUM is an error.
 *
 * Scope:    collective over processes.
 * Context:  cross-replica, or default mode; CO_RUNTIME_ERROR in a step.
 * Blocks:   until all processes have arrived.
 * Returns:  a value of ctx, or NULL with CO_VALUE_ERROR (an axis outside the dimensions; in one
 *           process the SUM of a value that is not per replica), CO_INVALID_ARGUMENT (shapes or
 *           dtypes differ; bools, strings), CO_ASSERTION_ERROR (the sum of a mirrored value; an
 *           invalid operation, without axes), CO_TYPE_ERROR (an axis for a value without axes; an
 *           invalid operation, with axes).
 * Rules: S-REDUCE-*.
 */
CO_API co_value *co_reduce(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
                           const int *axes, size_t num_axes);
/** The components of this process's replicas, as a tuple.
 * Rules: S-LOCAL-*. */
CO_API co_value *co_local_results(co_context *ctx, co_strategy *strategy, co_value *value);
/**
 * The components of all replicas, concatenated along axis. With one process a plain value is
 * returned unchanged; with several it counts once for each replica of its process.
 *
 * Scope:    collective over processes.
 * Context:  cross-replica, or default mode; CO_RUNTIME_ERROR in a step.
 * Blocks:   until all processes have arrived.
 * Returns:  a value of ctx, or NULL with CO_VALUE_ERROR (a scalar, an axis outside the dimensions),
 *           CO_INVALID_ARGUMENT (dtypes, or dimensions other than axis, differ), CO_UNIMPLEMENTED
 *           (indexed slices, under every strategy; strings between processes; a strategy of the v1
 *           flavour).
 * Rules: S-GATHER-*.
 */
CO_API co_value *co_gather_replicas(co_context *ctx, co_strategy *strategy, co_value *value,
                                    int axis);

/** What a value function learns of its replica. The library makes it: fields may be appended. Lives
 * during the call. */
typedef struct co_value_context {
    union {
        int replica_id_in_sync_group;
        int replica_id; /* the same under the name that the documents' example uses */
    };
    int num_replicas_in_sync;
} co_value_context;
/** Text for people: both numbers. Returns the length, as co_format does. */
CO_API size_t co_value_context_format(co_context *ctx, const co_value_context *replica, char *out,
                                      size_t capacity);
typedef co_value *(*co_value_fn)(co_context *ctx, const co_value_context *replica, void *user);
/** Call fn once per local replica, one after the other; the results become a per-replica value.
 * Rules: S-VFF-*, VCX-1. */
CO_API co_value *co_distribute_values_from_function(co_context *ctx, co_strategy *strategy,
                                                    co_value_fn fn, void *user);

/* Inside a replica. */

/** This replica in 0 .. n-1; 0 in the default replica context, -1 in cross-replica context. */
CO_API int co_replica_id(co_context *ctx);
/** The same as an int32 scalar tensor. */
CO_API co_value *co_replica_id_tensor(co_context *ctx);
/** How many replicas run this step; 1 in default mode. */
CO_API int co_replicas(co_context *ctx);

/** Called once for all replicas, in cross-replica context, with the merged arguments. */
typedef co_value *(*co_merge_fn)(co_context *ctx, co_strategy *strategy, co_value *args,
                                 void *user);
/**
 * Wait for all replicas, call replica 0's `fn` once, and return the result to each replica.
 *
 * In a captured function fn is captured, once for each replica, and again where the replicas bring
 * values of other types than that one had. So `user` must be valid as long as the captured function
 * is; a pointer to a local variable of it is CO_RUNTIME_ERROR when it is captured again. Host values
 * that fn gives are part of the captured function: CO_RUNTIME_ERROR if replica 0's gives others.
 *
 * Scope:    collective over the replicas of a step in this process.
 * Context:  in a replica, or in default mode; CO_RUNTIME_ERROR in cross-replica context.
 * Blocks:   until all local replicas have arrived and fn has returned.
 * Returns:  the replica's part of the result of fn (a value of kind none for NULL), or NULL with
 *           the error of fn; CO_TYPE_ERROR if fn is NULL.
 * Rules: RC-MERGE-*.
 */
CO_API co_value *co_merge_call(co_context *ctx, co_merge_fn fn, co_value *args, void *user);
/**
 * Each leaf of value combined over replicas, on every replica. It is differentiable for every
 * operation, but not for indexed slices. The gradient is collective too: all replicas compute it,
 * or none.
 *
 * Scope:    collective over the replicas of a step, including those of other processes.
 * Context:  in a replica, or in default mode; CO_RUNTIME_ERROR in cross-replica context.
 * Blocks:   until all replicas have arrived.
 * Returns:  a value of the structure of `value`, or NULL with CO_ASSERTION_ERROR (structures
 *           or kinds differ between replicas), CO_INVALID_ARGUMENT (dtypes or shapes differ),
 *           CO_VALUE_ERROR (a leaf is none), CO_TYPE_ERROR (not a reduce operation),
 *           CO_RUNTIME_ERROR (operations differ between replicas).
 * Rules: RC-AR-*.
 */
CO_API co_value *co_all_reduce(co_context *ctx, co_reduce_op op, co_value *value);
/** co_all_reduce with communication options. Within a process the options of replica 0 are used;
 * processes must give the same options. CO_VALUE_ERROR for a field that is out of range.
 * Rules: RC-AR-10. */
CO_API co_value *co_all_reduce_with(co_context *ctx, co_reduce_op op, co_value *value,
                                    const co_communication_options *options);
/**
 * Each leaf concatenated along axis over replicas, on every replica. Differentiable as
 * co_all_reduce is.
 *
 * Scope:    collective over the replicas of a step, including those of other processes.
 * Context:  in a replica, or in default mode; CO_RUNTIME_ERROR in cross-replica context.
 * Blocks:   until all replicas have arrived.
 * Returns:  a value of the structure of `value`, or NULL with the errors of co_all_reduce, with
 *           CO_VALUE_ERROR for a scalar or an axis outside the dimensions, and with
 *           CO_UNIMPLEMENTED for indexed slices.
 * Rules: RC-AG-*.
 */
CO_API co_value *co_all_gather(co_context *ctx, co_value *value, int axis);
/** co_all_gather with communication options, as co_all_reduce_with. */
CO_API co_value *co_all_gather_with(co_context *ctx, co_value *value, int axis,
                                    const co_communication_options *options);

CO_EXTERN_C_END

#endif
