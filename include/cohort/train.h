/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training: optimizers, and what else a step of training needs. Losses are in losses.h.
 */
#ifndef COHORT_TRAIN_H
#define COHORT_TRAIN_H

#include <cohort/losses.h>
#include <cohort/ops.h>
#include <cohort/strategy.h>

CO_EXTERN_C_BEGIN

/**
 * co_batch_norm_train with the statistics of the rows of all replicas in this step. Every row
 * has the same weight: a replica with a short batch counts less, one without rows not at all. All
 * replicas get the same mean, variance and moving averages, which can be assigned to a mirrored
 * variable. If no replica has a row, the moving averages do not change. Gradients flow
 * through the statistics to the rows of all replicas.
 *
 *     out = co_sync_batch_norm_train(ctx, x, m->gamma, m->beta, m->mean, m->variance, NULL);
 *     co_assign(ctx, m->mean, co_at(ctx, out, 3));
 *     co_assign(ctx, m->variance, co_at(ctx, out, 4));
 *     x = co_at(ctx, out, 0);
 *
 * Scope:    collective over the replicas of a step.
 * Context:  in a replica, or in default mode; CO_RUNTIME_ERROR in cross-replica context.
 * Blocks:   until all replicas have arrived, twice: for the mean and for the variance.
 * Returns:  the tuple of co_batch_norm_train, or NULL with CO_INVALID_ARGUMENT (operands, axes) or
 *           an error of co_all_reduce.
 */
CO_API co_value *co_sync_batch_norm_train(co_context *ctx, co_value *x, co_value *gamma,
                                          co_value *beta, co_value *moving_mean,
                                          co_value                    *moving_variance,
                                          const co_batch_norm_options *options);

typedef struct co_sgd_options {
    size_t struct_size;
    double learning_rate;
    double momentum; /* 0: none */
    bool   nesterov;
} co_sgd_options;
#define CO_SGD_OPTIONS_INIT                                                                        \
    {                                                                                              \
        sizeof(co_sgd_options), 0.01, 0.0, false                                                   \
    }

/** v -= lr g; with momentum m = mu m - lr g, v += m; nesterov v += mu m - lr g. NULL: the
 * initialiser's. */
CO_API co_optimizer *co_sgd(co_context *ctx, const co_sgd_options *options);

typedef struct co_adam_options {
    size_t struct_size;
    double learning_rate;
    double beta_1, beta_2; /* in [0, 1) */
    double epsilon;        /* added to the root, not under it */
    double
        weight_decay; /* AdamW: each step takes learning_rate * weight_decay of a weight; 0: none */
} co_adam_options;
#define CO_ADAM_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(co_adam_options), 0.001, 0.9, 0.999, 1e-7, 0.0                                      \
    }

/**
 * Adam as in Keras. In step t, counted over all updates: m = beta_1 m + (1 - beta_1) g; v = beta_2
 * v + (1 - beta_2) g^2; w = w (1 - lr decay) - lr sqrt(1 - beta_2^t) / (1 - beta_1^t) m / (sqrt(v)
 * + epsilon). Indexed slices count as the dense gradient that they stand for. NULL: the
 * initialiser's.
 *
 *     co_adam_options adam = CO_ADAM_OPTIONS_INIT;
 *
 *     adam.learning_rate = 0.01;
 *     optimizer = co_adam(ctx, &adam);
 *
 * CO_VALUE_ERROR for numbers that are not finite, betas outside [0, 1) and a negative epsilon.
 */
CO_API co_optimizer *co_adam(co_context *ctx, const co_adam_options *options);

/**
 * Gradients of `loss` for every trainable variable that the innermost tape has seen, summed over
 * replicas, then one update of each. The tape is used up.
 *
 * Gradients are summed, so a loss is this replica's share: that of co_loss_call or co_average_loss.
 * A mean over what this replica has is none: where the last operator of the loss is a mean over the
 * first axis and the input has unequal numbers of examples for the replicas of the step, a line of
 * the log says so (CO_LOG_WARNING), once for each optimizer.
 *
 * Scope:    collective over the replicas of a step.
 * Context:  in a replica, or in default mode; CO_RUNTIME_ERROR in cross-replica context.
 * Blocks:   until all replicas have their gradients.
 * Returns:  CO_OK, or CO_RUNTIME_ERROR (no open tape), CO_VALUE_ERROR (the tape has seen no
 *           trainable variable, the loss depends on none, or one was made outside the strategy's
 *           scope), or an error of co_all_reduce.
 */
CO_API co_code co_minimize(co_context *ctx, co_optimizer *optimizer, co_value *loss);
typedef struct co_apply_gradients_options {
    size_t struct_size;
    /* the caller has summed the gradients, or wants no sum: every component is updated with the
     * gradient of its own replica */
    bool   skip_aggregation;
} co_apply_gradients_options;
#define CO_APPLY_GRADIENTS_OPTIONS_INIT { sizeof(co_apply_gradients_options), false }

/**
 * The update alone: gradients and variables, two lists of one length. A gradient is a tensor,
 * indexed slices (without a dense shape they take that of the variable), or none for a variable
 * that stays as it is. Gradients are summed over replicas, as TensorFlow does, so that the
 * components of a variable stay equal. CO_VALUE_ERROR if the lists are empty or every gradient is
 * none: nothing changes, and no iteration is counted.
 *
 *     co_tape_begin(ctx);
 *     loss = co_average_loss(ctx, losses);
 *     gradients = co_gradient(ctx, loss, variables);
 *     co_apply_gradients(ctx, optimizer, clipped(ctx, gradients), variables);
 *
 * Outside of steps a per-replica gradient is summed, and any other gradient updates all components
 * alike. Inside the function of co_update, the given gradient updates the component.
 *
 * Scope:    collective over the replicas of a step, unless skip_aggregation is set; outside steps,
 *           over the processes of a strategy of several processes.
 * Context:  any.
 * Blocks:   until all replicas, or processes, have their gradients.
 * Returns:  CO_OK, or CO_VALUE_ERROR (lists of different lengths, no gradient at all, a variable
 *           that was made outside the strategy's scope), CO_TYPE_ERROR (an item that is not a
 *           variable), CO_INVALID_ARGUMENT (a gradient of another dtype or shape, or slices with an
 *           index outside the variable; no variable of this replica changes), or an error of
 *           co_all_reduce.
 */
CO_API co_code co_apply_gradients(co_context *ctx, co_optimizer *optimizer, co_value *gradients,
                                  co_value *variables);
CO_API co_code co_apply_gradients_with(co_context *ctx, co_optimizer *optimizer,
                                       co_value *gradients, co_value *variables,
                                       const co_apply_gradients_options *options);
/** How many updates were applied. */
CO_API int64_t co_optimizer_iterations(co_context *ctx, const co_optimizer *optimizer);

/**
 * What an optimizer keeps for each variable that it updates is a variable too, its slot: "momentum"
 * of SGD with momentum, "m" and "v" of Adam. The names, a tuple of strings; () where it keeps none.
 */
CO_API co_value *co_optimizer_slot_names(co_context *ctx, co_optimizer *optimizer);
/**
 * A slot of a variable, for example "momentum": a variable of the same dtype, shape and strategy,
 * whose components lie beside those of the variable. It is not trainable and is called
 * "<variable>/momentum". A slot that no update has made yet is made now, with zeros, so that a
 * value from before can be assigned. CO_NOT_FOUND for another name, with the names there are.
 */
CO_API co_value *co_optimizer_slot(co_context *ctx, co_optimizer *optimizer, const char *name,
                                   co_value *variable);

CO_EXTERN_C_END

#endif
