/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Your own strategy. A strategy is a placement, which says for each logical replica where it lives
 * and how much of a batch it takes, and a few hooks around what the engine does. Default,
 * OneDevice, Mirrored and MultiWorkerMirrored are such tables; with these headers you can write
 * another, under a name of its own.
 *
 *     static co_value *
 *     timed_run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
 *               const co_run_options *options, void *data)
 *     {
 *         ++((struct counts *)data)->steps;
 *         return co_run_with(ctx, strategy, fn, args, user, options);
 *     }
 *
 *     static const char *const devices[] = { "/cpu:0", "/cpu:1", "/cpu:1" };
 *     co_placement             places = CO_PLACEMENT_INIT;
 *     co_strategy_definition   mine = CO_STRATEGY_DEFINITION_INIT;
 *
 *     places.num_replicas = 3;
 *     places.devices = devices;
 *     mine.name = "CountingStrategy";
 *     mine.placement = &places;
 *     mine.run = timed_run;
 *     mine.data = &counts;
 *     co_strategy *strategy = co_define_strategy(ctx, &mine);
 *
 * All rules hold for it as for the others: contexts, scopes, mixing, variables, input, collectives,
 * errors. docs/custom-strategy.md tells more, and examples/outside has one that trains.
 */
#ifndef COHORT_CUSTOM_STRATEGY_H
#define COHORT_CUSTOM_STRATEGY_H

#include <cohort/strategy.h>
#include <cohort/variable.h>

CO_EXTERN_C_BEGIN

/** Where the replicas live: columns of num_replicas entries each, read during co_define_strategy
 * alone. */
typedef struct co_placement {
    size_t             struct_size;
    int                num_replicas; /* of all processes; 0, without columns: one for each device */
    /* of each replica, as its own process names it; several may share one. NULL: all GPUs, or else
     * all CPUs, spread evenly and in order */
    const char *const *devices;
    /* the process of each replica: 0, 0, 1, ..., in order, and at least one replica for each
     * process. NULL: spread evenly */
    const int         *workers;
    /* the share of each in a batch, as in co_mirrored_options; NULL: equal */
    const int64_t     *weights;
} co_placement;
#define CO_PLACEMENT_INIT                                                                          \
    {                                                                                              \
        sizeof(co_placement), 0, NULL, NULL, NULL                                                  \
    }

/**
 * A strategy in a table. A hook that is NULL leaves the engine to itself.
 *
 * A hook stands around a call and has its arguments. It goes on by making the very same call:
 * inside a hook that call goes to the engine. It may make it with other arguments, several times,
 * or not at all, and it returns what its caller gets. It fails as a step does, by recording an
 * error, which its caller gets unchanged; NULL without an error is none from run and replica, and
 * CO_INVALID_ARGUMENT from variable and reduce. What it leaves open (blocks, scopes, devices) is
 * closed for it. Hooks may be called from several threads at once, as far as the program calls from
 * several; replica is, by all replicas of a step.
 */
typedef struct co_strategy_definition {
    size_t              struct_size;
    /* "SkippingStrategy": 1 to 63 letters, digits and _, none of Cohort's own names */
    const char         *name;
    const co_placement *placement; /* NULL: one replica per device, as CO_PLACEMENT_INIT */
    int  deadline_ms; /* how long a replica may execute nothing; 0 turns the check off */
    bool plain;       /* one replica whose values are not wrapped, as under OneDevice */

    /* Several processes, as in co_multi_worker_mirrored_options. All give the same table. */
    bool        processes;
    const void *communicator;
    const char *transport;

    void *data; /* given to every hook */
    /** Called once when the last use of the strategy is over, or when co_define_strategy fails. */
    void (*destroy)(void *data);

    /**
     * The placement, when it depends on how many processes there are; instead of `placement`. Fills
     * `out`, which is CO_PLACEMENT_INIT; its arrays must live until co_define_strategy returns.
     */
    co_code (*place)(co_context *ctx, int num_workers, co_placement *out, void *data);
    /** Around co_run: once for all replicas of this process, in the context and mode that
     * called. */
    co_value *(*run)(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
                     const co_run_options *options, void *data);
    /** Around the step itself: in each replica, in its context. It goes on with `fn(ctx, args,
     * user)`. */
    co_value *(*replica)(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args,
                         void *user, void *data);
    /**
     * Around what the strategy does in co_variable, once for all replicas: after the creators that
     * were entered in its scope or in the step (creator.h), whose arguments it gets, and before
     * those outside, which are called for each component. In it co_variable goes on from there: no
     * creator is asked again. For what is made in a step it runs when all replicas have come, in the
     * context that called co_run. `initial` may be NULL or a spec, as creators get it. Returns a
     * variable.
     */
    co_value *(*variable)(co_context *ctx, co_strategy *strategy, co_value *initial,
                          const co_variable_options *options, void *data);
    /** Around co_reduce. Collectives inside steps, and reductions that variables make for
     * themselves, are not hooked. */
    co_value *(*reduce)(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
                        const int *axes, size_t num_axes, void *data);
    /**
     * Where the variable of a replica lives: a device name, or NULL for the replica's own device.
     * Called once for each component of a variable that is made; `name` is the component's. Reading
     * copies to where the reader runs.
     */
    const char *(*variable_device)(co_context *ctx, co_strategy *strategy, const char *name,
                                   int replica, void *data);
} co_strategy_definition;
#define CO_STRATEGY_DEFINITION_INIT                                                                \
    {                                                                                              \
        sizeof(co_strategy_definition), NULL, NULL, CO_DEADLINE_OF_SETTINGS, false, false, NULL,   \
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL                                   \
    }

/**
 * Make a strategy from a table, which is copied.
 *
 * Scope:    collective over processes if `processes` is set.
 * Context:  outside steps.
 * Blocks:   until all processes have arrived and compared their tables, if `processes` is set.
 * Returns:  a strategy as the other constructors give, or NULL with CO_VALUE_ERROR (a name, a
 *           placement or a combination that is invalid; the message names it and says how to
 *           correct it), the error of a device name or of `place`, or CO_INVALID_ARGUMENT (no
 *           table, or processes whose tables differ).
 */
CO_API co_strategy *co_define_strategy(co_context                   *ctx,
                                       const co_strategy_definition *definition);
/** The `data` of a custom strategy; NULL for others. */
CO_API void *co_strategy_data(co_context *ctx, co_strategy *strategy);

/** The share of a replica against those of the others, without a common factor; 1 where all are
 * equal. */
CO_API int64_t co_replica_weight(co_context *ctx, const co_strategy *strategy, int replica);

/**
 * How many examples all replicas of this step hold together: what co_average_loss divides by. Known
 * from the input; -1 where that does not tell, and outside a step. A hook that changes what
 * replicas get says so with the second: on every replica, the same; so does a step whose losses are
 * not one per example. It fails with CO_RUNTIME_ERROR outside a step, CO_VALUE_ERROR below -1.
 */
CO_API int64_t co_step_examples(co_context *ctx);
CO_API co_code co_set_step_examples(co_context *ctx, int64_t examples);

CO_EXTERN_C_END

#endif
