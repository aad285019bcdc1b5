/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that the documents have in strategy.extended: placing reduced values, updating
 * variables component by component, and properties for libraries that are built on strategies
 * (section 13 of the specification). Strategies of both flavours have all of them. Calls that only
 * programs of the v1 interface use are in v1.h.
 */
#ifndef COHORT_EXTENDED_H
#define COHORT_EXTENDED_H

#include <cohort/strategy.h>

CO_EXTERN_C_BEGIN

/* Properties. */

/** The devices that hold variables, as a tuple of names. CO_RUNTIME_ERROR for the default
 * strategy. */
CO_API co_value *co_parameter_devices(co_context *ctx, co_strategy *strategy);
/**
 * The devices for variables that are not slots: all devices, as a tuple of names. The default
 * strategy returns the one of `variables` (a list or tuple) with the smallest name; CO_VALUE_ERROR
 * if the list is empty. Other strategies ignore `variables`, which may be NULL.
 * Rules: EXT-NSD-1, DEF-11.
 */
CO_API co_value *co_non_slot_devices(co_context *ctx, co_strategy *strategy, co_value *variables);
/** Whether this process should write checkpoints and summaries: only the chief, worker 0. */
CO_API bool co_should_checkpoint(co_context *ctx, const co_strategy *strategy);
CO_API bool co_should_save_summary(co_context *ctx, const co_strategy *strategy);
/** Always false here: shapes may change from step to step. */
CO_API bool co_require_static_shapes(co_context *ctx, const co_strategy *strategy);
/** The algorithm that combines values: the chosen one, or the one that AUTO selects here.
 * Rules: MIR-CDO-1. */
CO_API co_cross_device_ops co_strategy_cross_device_ops(co_context        *ctx,
                                                        const co_strategy *strategy);

/* Reducing to destinations. A destination is a device name (a host string), or a tensor, indexed
 * slices, a variable or a per-replica value, which stand for the devices they live on. A
 * destination is never modified. */

/**
 * Combine the values of all replicas and put the result on the destination: for one device a
 * tensor, for several a mirrored value with a copy on each. Structures are reduced leaf by leaf.
 *
 * Scope:    collective over processes.
 * Context:  cross-replica, or default mode; CO_RUNTIME_ERROR in a step.
 * Blocks:   until all processes have arrived.
 * Returns:  a value of ctx, or NULL with CO_ASSERTION_ERROR (a list as destination, SUM of a
 *           mirrored value), CO_VALUE_ERROR (a destination that is none of the above), or an error
 *           of co_reduce.
 * Rules: EXT-RT-*.
 */
CO_API co_value *co_reduce_to(co_context *ctx, co_strategy *strategy, co_reduce_op op,
                              co_value *value, co_value *destination);
/** co_reduce_to with communication options; CO_VALUE_ERROR for a field that is out of range. */
CO_API co_value *co_reduce_to_with(co_context *ctx, co_strategy *strategy, co_reduce_op op,
                                   co_value *value, co_value *destination,
                                   const co_communication_options *options);
/**
 * co_reduce_to for every (value, destination) of a list of pairs.
 *
 * Scope:    collective over processes.
 * Context:  cross-replica, or default mode; CO_RUNTIME_ERROR in a step.
 * Blocks:   until all processes have arrived.
 * Returns:  the results as a list, or NULL with an error of co_reduce_to, or with CO_VALUE_ERROR
 *           if `pairs` is not a list of pairs.
 */
CO_API co_value *co_batch_reduce_to(co_context *ctx, co_strategy *strategy, co_reduce_op op,
                                    co_value *pairs);
/** co_batch_reduce_to with communication options. */
CO_API co_value *co_batch_reduce_to_with(co_context *ctx, co_strategy *strategy, co_reduce_op op,
                                         co_value *pairs, const co_communication_options *options);
/** Copy a tensor, or indexed slices, to the destination, in this process. A host number is returned
 * unchanged.
 * Rules: EXT-BC-*. */
CO_API co_value *co_broadcast_to_devices(co_context *ctx, co_strategy *strategy, co_value *tensor,
                                         co_value *destination);

/* Updating. */

/** Given one component (an ordinary variable) and its part of args; returns a value or NULL for
 * none. */
typedef co_value *(*co_update_fn)(co_context *ctx, co_value *variable, co_value *args, void *user);

typedef struct co_update_options {
    size_t struct_size;
    /* true: the results of the components become a mirrored value; false: every leaf of the result
     * is a tuple of the leaves of the components */
    bool   group;
} co_update_options;
#define CO_UPDATE_OPTIONS_INIT { sizeof(co_update_options), true }
/**
 * Call fn for every component of a distributed variable, in order, on its device, in cross-replica
 * context: with the component and the component's part of args (a tuple). In a replica it acts as
 * co_merge_call with an update inside. NULL options mean the initialiser.
 *
 * Scope:    collective over the local replicas in a step; otherwise this process only.
 * Context:  cross-replica context of this strategy, default mode, or in a replica.
 * Blocks:   in a step, until all local replicas have arrived; while fn runs.
 * Returns:  the results of fn, or NULL with the error of fn, CO_ASSERTION_ERROR (not a distributed
 *           variable), CO_VALUE_ERROR (a variable of another strategy), CO_TYPE_ERROR (fn is NULL),
 *           CO_RUNTIME_ERROR (the scope of another strategy).
 * Rules: EXT-UPD-*.
 */
CO_API co_value *co_update(co_context *ctx, co_strategy *strategy, co_value *variable,
                           co_update_fn fn, co_value *args, void *user,
                           const co_update_options *options);
/**
 * The same once per device of a tuple of names, without a variable.
 *
 * Scope:    this process.
 * Context:  cross-replica context of this strategy, or default mode; CO_RUNTIME_ERROR in a step.
 * Blocks:   while fn runs.
 * Returns:  the results of fn, or NULL with the error of fn, CO_ASSERTION_ERROR (devices are not
 *           a tuple), CO_VALUE_ERROR (not a device name), CO_TYPE_ERROR (fn is NULL).
 * Rules: EXT-UNS-1.
 */
CO_API co_value *co_update_non_slot(co_context *ctx, co_strategy *strategy, co_value *devices,
                                    co_fn fn, co_value *args, void *user,
                                    const co_update_options *options);

/* Variables and their containers. */

/** The distributed variable that a component belongs to; anything else comes back as it is. */
CO_API co_value *co_value_container(co_context *ctx, co_strategy *strategy, co_value *value);
/** Whether the variable was made under this strategy (for the default strategy: under none). */
CO_API bool co_variable_created_in_scope(co_context *ctx, const co_strategy *strategy,
                                         const co_value *variable);
/** Make variables on the devices of `variable` until the end.
 * Rules: EXT-COL-*. */
CO_API void co_colocate_begin(co_context *ctx, co_strategy *strategy, co_value *variable);
CO_API void co_colocate_end(co_context *ctx);

CO_EXTERN_C_END

#endif
