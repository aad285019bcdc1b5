/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the documents call strategy.extended: placing reduced values, updating variables component
 * by component, and properties that libraries built on strategies ask for. Section 13 of the
 * specification. Strategies of both flavours have all of it; the documents give some of it to the
 * v1 flavour alone (EXT-PROP-1).
 */
#ifndef COHORT_EXTENDED_H
#define COHORT_EXTENDED_H

#include <cohort/strategy.h>

CO_EXTERN_C_BEGIN

/* Properties. */

/** The devices that hold variables, as a tuple of names; CO_RUNTIME_ERROR for the default strategy. */
CO_API co_value *co_parameter_devices(co_context *ctx, co_strategy *strategy);
/**
 * Where variables that belong to no slot should live: all devices, as a tuple of names (EXT-NSD-1).
 * The default strategy answers with one of `variables` (a list or tuple), the one whose name is the
 * smallest; CO_VALUE_ERROR if there is none (DEF-11). Others ignore `variables`, which may be NULL.
 */
CO_API co_value *co_non_slot_devices(co_context *ctx, co_strategy *strategy, co_value *variables);
/** Whether this process should write checkpoints and summaries: the chief, worker 0, alone. */
CO_API bool co_should_checkpoint(co_context *ctx, co_strategy *strategy);
CO_API bool co_should_save_summary(co_context *ctx, co_strategy *strategy);
/** Always false here: shapes may change from step to step. */
CO_API bool co_require_static_shapes(co_context *ctx, co_strategy *strategy);
/** The algorithm that combines values: what was chosen, or what AUTO stands for with these devices
 * (MIR-CDO-1). */
CO_API co_cross_device_ops co_strategy_cross_device_ops(co_context *ctx, co_strategy *strategy);
/** Two flags of the older API; CO_UNIMPLEMENTED for the default strategy. */
CO_API bool co_should_init(co_context *ctx, co_strategy *strategy);
CO_API bool co_between_graph(co_context *ctx, co_strategy *strategy);

/* Reducing to places. A destination is a device name (a host string), or a tensor, indexed slices,
 * a variable or a per-replica value, which stand for the devices they live on. It is never
 * modified. */

/**
 * Combine the values of all replicas and put the result on the destination: one device gives a
 * tensor there, several a mirrored value with a copy on each. Leaf by leaf on structures. Rules:
 * EXT-RT-*.
 *
 * Context:  cross-replica, or default mode.
 * Returns:  a value of ctx, or NULL with CO_ASSERTION_ERROR (a list as destination, SUM of a mirrored
 *           value), CO_VALUE_ERROR (a destination that is none of the above), or an error of co_reduce.
 */
CO_API co_value *co_reduce_to(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
                              co_value *destination);
/** The same with advice on how to do it; CO_VALUE_ERROR for a field that is out of range. */
CO_API co_value *co_reduce_to_with(co_context *ctx, co_strategy *strategy, co_reduce_op op,
                                   co_value *value, co_value *destination,
                                   const co_communication_options *options);
/** co_reduce_to for every (value, destination) of a list of pairs; the results as a list. */
CO_API co_value *co_batch_reduce_to(co_context *ctx, co_strategy *strategy, co_reduce_op op,
                                    co_value *pairs);
CO_API co_value *co_batch_reduce_to_with(co_context *ctx, co_strategy *strategy, co_reduce_op op,
                                         co_value *pairs, const co_communication_options *options);
/** Copy a tensor, or indexed slices, to the destination; a host number comes back as it is
 * (EXT-BC-*). */
CO_API co_value *co_broadcast_to_devices(co_context *ctx, co_strategy *strategy, co_value *tensor,
                                         co_value *destination);

/* Updating. */

/** Given one component (an ordinary variable) and its part of args; returns a value or NULL for
 * none. */
typedef co_value *(*co_update_fn)(co_context *ctx, co_value *variable, co_value *args, void *user);

/**
 * Call fn for every component of a distributed variable, in order, on its device, in cross-replica
 * context: with the component and the component's part of args (a tuple). With `group` the results
 * are merged to a mirrored value; without, every leaf is the tuple of the components' results. In a
 * replica it acts as merge_call and update (EXT-UPD-6). Rules: EXT-UPD-*.
 */
CO_API co_value *co_update(co_context *ctx, co_strategy *strategy, co_value *variable, co_update_fn fn,
                           co_value *args, void *user, bool group);
/** The same once per device of a tuple of names, without a variable (EXT-UNS-1). */
CO_API co_value *co_update_non_slot(co_context *ctx, co_strategy *strategy, co_value *devices, co_fn fn,
                                    co_value *args, void *user, bool group);

/* Variables and their containers. */

/** The distributed variable that a component belongs to; anything else comes back as it is. */
CO_API co_value *co_value_container(co_context *ctx, co_strategy *strategy, co_value *value);
/** Whether the variable was made under this strategy (for the default strategy: under none). */
CO_API bool co_variable_created_in_scope(co_context *ctx, co_strategy *strategy, co_value *variable);
/** The value of a variable: the aggregated one of a sync-on-read variable. */
CO_API co_value *co_read_var(co_context *ctx, co_strategy *strategy, co_value *variable);
/** Make variables on the devices of `variable` until the end (EXT-COL-*). */
CO_API void co_colocate_begin(co_context *ctx, co_strategy *strategy, co_value *variable);
CO_API void co_colocate_end(co_context *ctx);

/** co_run under its older name, without the check that args is a tuple. */
CO_API co_value *co_call_for_each_replica(co_context *ctx, co_strategy *strategy, co_fn fn,
                                          co_value *args, void *user);

/* Several steps on an iterator. */

/** What a run of steps collects; a handle of the block that it was made in. */
typedef struct co_step_context co_step_context;
/** One step: called in cross-replica context of the strategy with the next element, usually to call
 * run. Its result is ignored. */
typedef co_value *(*co_step_fn)(co_context *ctx, co_step_context *steps, co_value *inputs,
                                void *user);

/**
 * Call fn `iterations` times, each time with the next element of the iterator, in the strategy's
 * scope and in a block of its own. What a step sets with co_set_last_step_output is there when the
 * step is over, until the next one is (EXT-STEPS-1).
 *
 *     static co_value *step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
 *     {
 *         co_value *sums = co_run(ctx, user, sum_of, co_args(ctx, inputs), NULL);
 *         co_set_last_step_output(ctx, steps, "sum", sums, CO_REDUCE_SUM);
 *         return NULL;
 *     }
 *     steps = co_run_steps_on_iterator(ctx, strategy, step, iterator, 3, NULL, strategy);
 *     sum = co_get(ctx, co_last_step_outputs(ctx, steps), "sum");
 *
 * `initial_loop_values`, a dict, is what the first step sees as the last outputs; NULL for none.
 *
 * Context:  default mode, or cross-replica context of this strategy.
 * Returns:  what was collected, or NULL with an error: CO_OUT_OF_RANGE where the input ends before
 *           the last step, CO_VALUE_ERROR for negative iterations, CO_TYPE_ERROR where fn is NULL,
 *           CO_UNIMPLEMENTED for the default strategy, or the error of a step.
 */
CO_API co_step_context *co_run_steps_on_iterator(co_context *ctx, co_strategy *strategy,
                                                 co_step_fn fn, co_iterator *iterator,
                                                 int64_t iterations, co_value *initial_loop_values,
                                                 void *user);
/** The outputs of the last step that was completed, as a dict. */
CO_API co_value *co_last_step_outputs(co_context *ctx, co_step_context *steps);
/** What steps gave to co_set_non_tensor_output, as a dict; a name keeps its last value. */
CO_API co_value *co_non_tensor_outputs(co_context *ctx, co_step_context *steps);
/**
 * Name an output of the step: reduced by op over replicas. In cross-replica context op may be
 * CO_REDUCE_NONE, which keeps the value as it is. In a replica that is CO_ASSERTION_ERROR, and all
 * replicas set the same name with the same op: they wait for each other here.
 */
CO_API co_code co_set_last_step_output(co_context *ctx, co_step_context *steps, const char *name,
                                       co_value *output, co_reduce_op op);
/** The same without reducing: in a replica the output is the tuple of what the local replicas
 * gave. */
CO_API co_code co_set_non_tensor_output(co_context *ctx, co_step_context *steps, const char *name,
                                        co_value *output);

CO_EXTERN_C_END

#endif
