/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables: values that can be assigned. The strategy in whose scope a variable is made decides
 * where it lives and what an assignment inside a replica does. Reading gives a tensor that
 * later assignments do not change.
 * Rules: VAR-*.
 */
#ifndef COHORT_VARIABLE_H
#define COHORT_VARIABLE_H

#include <cohort/value.h>

CO_EXTERN_C_BEGIN

typedef enum co_synchronization {
    CO_SYNC_AUTO = 0,
    CO_SYNC_NONE = 1,
    CO_SYNC_ON_WRITE = 2,
    CO_SYNC_ON_READ = 3
} co_synchronization;

typedef enum co_aggregation {
    CO_AGGREGATION_NONE = 0,
    CO_AGGREGATION_SUM = 1,
    CO_AGGREGATION_MEAN = 2,
    CO_AGGREGATION_ONLY_FIRST_REPLICA = 3
} co_aggregation;

typedef enum co_trainable {
    CO_TRAINABLE_AUTO = 0,
    CO_TRAINABLE_NO = 1,
    CO_TRAINABLE_YES = 2
} co_trainable;

/** Makes an initial value where it is needed; fails by recording an error in ctx. */
typedef co_value *(*co_initializer_fn)(co_context *ctx, void *user);

typedef struct co_variable_options {
    size_t             struct_size;
    const char        *name;      /* NULL: "Variable" */
    co_trainable       trainable; /* AUTO: yes, except for ON_READ */
    co_dtype           dtype;     /* NONE: that of the initial value */
    co_synchronization synchronization;
    co_aggregation     aggregation;
    co_initializer_fn initializer; /* called once for all components; in a step, for all replicas */
    void             *initializer_user;
    bool partitioned; /* ignored, with one warning: variables are not partitioned */
} co_variable_options;
#define CO_VARIABLE_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(co_variable_options), NULL, CO_TRAINABLE_AUTO, CO_DTYPE_NONE, CO_SYNC_AUTO,         \
            CO_AGGREGATION_NONE, NULL, NULL, false                                                 \
    }

/**
 * Make a variable under the current strategy (an ordinary one where there is none), on the devices
 * that the strategy gives it. In a step of several replicas the first replica makes it for all,
 * with its initial value. If another replica asks for a name for the k-th time, it gets the k-th
 * variable of that name. A number at the end of a part of the name ("layer_1/w") is ignored here.
 *
 * `initial` is the first value: a tensor, a number, a list of numbers. A spec (co_spec) declares
 * dtype and shape alone: the variable has no value until it is assigned one, and reading it before
 * is CO_FAILED_PRECONDITION. With NULL, or a spec, options->initializer makes the value. `options`
 * may be NULL.
 *
 * Scope:    collective over the processes of a strategy of several processes; in a step, over its
 *           replicas only in that the first must make the variables that the others ask for.
 * Context:  any.
 * Blocks:   a replica until the first has made the variable; a process until the others make
 *           theirs.
 * Returns:  a value of ctx, or NULL with CO_VALUE_ERROR (options that exclude each other; a spec
 *           with an unknown dimension; an initializer whose result is not as declared),
 *           CO_RUNTIME_ERROR (a replica asks for a variable that the first does not make), or an
 *           error of the initializer or of a creator (creator.h).
 * Rules: VAR-RUN-*.
 */
CO_API co_value *co_variable(co_context *ctx, co_value *initial,
                             const co_variable_options *options);

/**
 * Set, add to, subtract from a variable. Outside a step this changes all components of a variable.
 * In a step it aggregates the values of the replicas and changes all components. Without an
 * aggregation, and for a variable that is synchronised on read, a step changes only the replica's
 * own component.
 *
 * Scope:    collective over the replicas of a step, including those of other processes, for a
 *           mirrored variable with an aggregation; outside steps over processes for a variable that
 *           is synchronised on read; otherwise this context only. strategy.h says what collective
 *           calls have in common.
 * Context:  any.
 * Blocks:   until the others assign too, if it is collective.
 * Returns:  the new value as the current context reads it, or NULL with CO_VALUE_ERROR (another
 *           dtype or shape; the same value from all replicas where the aggregation is SUM; adding,
 *           outside a step, to a SUM that is synchronised on read), CO_TYPE_ERROR (a per-replica
 *           value, outside a step, for a variable that is synchronised on read), CO_RUNTIME_ERROR
 *           (the scope or step of another strategy).
 * Rules: VAR-MIR-2 to VAR-MIR-7, VAR-SOR-1 to VAR-SOR-5.
 */
CO_API co_value *co_assign(co_context *ctx, co_value *variable, co_value *value);
CO_API co_value *co_assign_add(co_context *ctx, co_value *variable, co_value *value);
CO_API co_value *co_assign_sub(co_context *ctx, co_value *variable, co_value *value);

/*
 * Rows. `slices` (co_slices) names rows of the first dimension and what is to be done with each:
 * replaced, or combined with a value. They are applied in order, so a row that is named twice is
 * changed twice. In a step the slices of all replicas are put together first, as the aggregation
 * says: SUM and MEAN for add, sub, mul and div; for the others the aggregation must be NONE or
 * ONLY_FIRST_REPLICA (CO_UNIMPLEMENTED otherwise, and always for variables synchronised on read).
 * An index outside the variable, values that do not fit it, or an integer division by 0 is
 * CO_INVALID_ARGUMENT, and no row of any component changes. co_scatter_div divides integers as C
 * does, toward zero.
 *
 *     rows = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 3), data);
 *     at = co_tensor(ctx, CO_INT32, CO_SHAPE(2), which);
 *     co_scatter_add(ctx, table, co_slices(ctx, rows, at, NULL));
 *
 * Scope:    collective if co_assign is.
 * Context:  any.
 * Blocks:   as co_assign.
 * Returns:  the new value as the current context reads it, or NULL with the errors above.
 * Rules: VAR-MIR-8, VAR-SOR-5.
 */
CO_API co_value *co_scatter_update(co_context *ctx, co_value *variable, co_value *slices);
CO_API co_value *co_scatter_add(co_context *ctx, co_value *variable, co_value *slices);
CO_API co_value *co_scatter_sub(co_context *ctx, co_value *variable, co_value *slices);
CO_API co_value *co_scatter_mul(co_context *ctx, co_value *variable, co_value *slices);
CO_API co_value *co_scatter_div(co_context *ctx, co_value *variable, co_value *slices);
CO_API co_value *co_scatter_min(co_context *ctx, co_value *variable, co_value *slices);
CO_API co_value *co_scatter_max(co_context *ctx, co_value *variable, co_value *slices);

/**
 * The value as the current context reads it.
 *
 * Scope:    collective over processes for a variable that is synchronised on read, outside steps,
 *           under a strategy of several processes; otherwise this context only.
 * Context:  any.
 * Blocks:   until the other processes read it too, if it is collective.
 * Returns:  a tensor, or NULL with CO_FAILED_PRECONDITION (it has no value yet) or an error of
 *           co_reduce.
 * Rules: VAR-MIR-1, VAR-SOR-2.
 */
CO_API co_value *co_variable_read(co_context *ctx, co_value *variable);

/** Whether it has a value here: in a step the replica's component, elsewhere all of them. */
CO_API bool co_variable_is_initialized(co_context *ctx, const co_value *variable);
/**
 * The ordinary variable that this context works on: in a step the replica's component, in an update
 * function the component that is updated, in default mode the first. In cross-replica context
 * CO_VALUE_ERROR: there is one for each replica, see co_local_results. An ordinary variable gives
 * itself.
 * Rules: VAR-MIR-10.
 */
CO_API co_value *co_variable_handle(co_context *ctx, co_value *variable);

/**
 * What a checkpoint keeps of a variable, whatever strategy it lives under: the value of the first
 * component or, if it is synchronised on read, that of all replicas together. co_variable_restore
 * puts such a value back: into every component, or a share of it for each replica where the
 * aggregation is SUM.
 *
 * Scope:    collective over processes for variables synchronised on read.
 * Context:  cross-replica, or default mode; CO_RUNTIME_ERROR in a step.
 * Blocks:   until the other processes save or restore it too, if it is collective.
 * Returns:  co_variable_save the value, or NULL with an error of co_variable_read;
 *           co_variable_restore CO_OK, or the code of an error of co_assign.
 * Rules: VAR-SOR-6.
 */
CO_API co_value *co_variable_save(co_context *ctx, co_value *variable);
CO_API co_code   co_variable_restore(co_context *ctx, co_value *variable, co_value *value);

/** The trainable variables among the leaves of a structure (your model), as a list in the order of
 * its leaves. */
CO_API co_value *co_trainable_variables(co_context *ctx, co_value *structure);

/** The name of a variable, "w"; its replicas' names end in /replica_1, ... Lives as long as the
 * variable. */
CO_API const char        *co_variable_name(co_context *ctx, const co_value *variable);
CO_API bool               co_variable_trainable(co_context *ctx, const co_value *variable);
CO_API co_synchronization co_variable_synchronization(co_context *ctx, const co_value *variable);
CO_API co_aggregation     co_variable_aggregation(co_context *ctx, const co_value *variable);
/** The strategy it was made under; NULL for an ordinary variable. */
CO_API co_strategy *co_variable_strategy(co_context *ctx, const co_value *variable);

CO_EXTERN_C_END

#endif
