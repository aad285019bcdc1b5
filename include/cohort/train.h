/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training: optimizers, and what else a step of training needs. Losses are in losses.h.
 */
#ifndef COHORT_TRAIN_H
#define COHORT_TRAIN_H

#include <cohort/losses.h>
#include <cohort/ops.h>
#include <cohort/schedule.h>
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

/*
 * Optimizers. The rules and their defaults are those of Keras 3; g is the gradient, w the weight, t
 * counts the updates that were applied, from 1. NULL for options stands for the initialiser's.
 * Numbers that are not finite or outside their range are CO_VALUE_ERROR; a negative learning rate
 * is accepted, as it is by Keras. What all optimizers have in common (schedules, clipping, weight
 * decay, accumulation, averages, loss scaling) is in co_optimizer_options below.
 *
 * Indexed slices are updated as in Keras: where a row occurs several times, g is the sum of its
 * occurrences, but a square (of Adam, Nadam, RMSprop, Adagrad, Adadelta, Ftrl) is the sum of their
 * squares, and Adamax takes the sum of their magnitudes.
 */

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

/** w -= lr g; with momentum m = mu m - lr g, w += m; nesterov w += mu m - lr g. Slot: "momentum". */
CO_API co_optimizer *co_sgd(co_context *ctx, const co_sgd_options *options);

typedef struct co_adam_options {
    size_t struct_size;
    double learning_rate;
    double beta_1, beta_2; /* in [0, 1) */
    double epsilon;        /* added to the root, not under it */
    double
        weight_decay; /* AdamW: each step takes learning_rate * weight_decay of a weight; 0: none */
    bool amsgrad;     /* the root of the largest v so far */
} co_adam_options;
#define CO_ADAM_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(co_adam_options), 0.001, 0.9, 0.999, 1e-7, 0.0, false                               \
    }
#define CO_ADAMW_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(co_adam_options), 0.001, 0.9, 0.999, 1e-7, 0.004, false                             \
    }

/**
 * m += (1 - beta_1) (g - m); v += (1 - beta_2) (g^2 - v); w = w (1 - lr decay) - lr sqrt(1 -
 * beta_2^t) / (1 - beta_1^t) m / (sqrt(v) + epsilon). Slots: "m", "v", with amsgrad "v_hat".
 *
 *     co_adam_options adam = CO_ADAM_OPTIONS_INIT;
 *
 *     adam.learning_rate = 0.01;
 *     optimizer = co_adam(ctx, &adam);
 */
CO_API co_optimizer *co_adam(co_context *ctx, const co_adam_options *options);
/** Adam with CO_ADAMW_OPTIONS_INIT where options are NULL: a weight decay of 0.004. */
CO_API co_optimizer *co_adamw(co_context *ctx, const co_adam_options *options);

typedef struct co_rmsprop_options {
    size_t struct_size;
    double learning_rate;
    double rho;      /* in [0, 1] */
    double momentum; /* 0: none */
    double epsilon;
    bool   centered; /* less the square of the mean gradient: an estimate of the variance */
} co_rmsprop_options;
#define CO_RMSPROP_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(co_rmsprop_options), 0.001, 0.9, 0.0, 1e-7, false                                   \
    }
/** v = rho v + (1 - rho) g^2; step = lr g / sqrt(v + epsilon), centered under the root v - a^2 +
 * epsilon with a = rho a + (1 - rho) g; w -= step, with momentum m = mu m + step, w -= m. Slots:
 * "velocity", "momentum", "average_gradient". */
CO_API co_optimizer *co_rmsprop(co_context *ctx, const co_rmsprop_options *options);

typedef struct co_adagrad_options {
    size_t struct_size;
    double learning_rate;
    double initial_accumulator_value; /* not negative */
    double epsilon;
} co_adagrad_options;
#define CO_ADAGRAD_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(co_adagrad_options), 0.001, 0.1, 1e-7                                               \
    }
/** s += g^2; w -= lr g / sqrt(s + epsilon). Slot: "accumulator". */
CO_API co_optimizer *co_adagrad(co_context *ctx, const co_adagrad_options *options);

typedef struct co_adadelta_options {
    size_t struct_size;
    double learning_rate;
    double rho; /* in [0, 1] */
    double epsilon;
} co_adadelta_options;
#define CO_ADADELTA_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(co_adadelta_options), 0.001, 0.95, 1e-7                                             \
    }
/** s = rho s + (1 - rho) g^2; step = sqrt(d + epsilon) / sqrt(s + epsilon) g; d = rho d + (1 - rho)
 * step^2; w -= lr step. Slots: "accumulated_grad", "accumulated_delta_var". */
CO_API co_optimizer *co_adadelta(co_context *ctx, const co_adadelta_options *options);

typedef struct co_adamax_options {
    size_t struct_size;
    double learning_rate;
    double beta_1, beta_2; /* in [0, 1) */
    double epsilon;
} co_adamax_options;
#define CO_ADAMAX_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(co_adamax_options), 0.001, 0.9, 0.999, 1e-7                                         \
    }
/** m as Adam's; u = max(beta_2 u, |g|); w -= lr / (1 - beta_1^t) m / (u + epsilon). Slots: "m",
 * "u". */
CO_API co_optimizer *co_adamax(co_context *ctx, const co_adamax_options *options);

typedef struct co_nadam_options {
    size_t struct_size;
    double learning_rate;
    double beta_1, beta_2; /* in [0, 1) */
    double epsilon;
} co_nadam_options;
#define CO_NADAM_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(co_nadam_options), 0.001, 0.9, 0.999, 1e-7                                          \
    }
/** Adam with Nesterov momentum, beta_1 rising as beta_1 (1 - 0.96^t / 2). Slots: "m", "v". */
CO_API co_optimizer *co_nadam(co_context *ctx, const co_nadam_options *options);

typedef struct co_lion_options {
    size_t struct_size;
    double learning_rate;
    double beta_1; /* in (0, 1] */
    double beta_2; /* in [0, 1] */
} co_lion_options;
#define CO_LION_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(co_lion_options), 0.001, 0.9, 0.99                                                  \
    }
/** w -= lr sign(beta_1 m + (1 - beta_1) g); m = beta_2 m + (1 - beta_2) g. Slot: "momentum". */
CO_API co_optimizer *co_lion(co_context *ctx, const co_lion_options *options);

typedef struct co_ftrl_options {
    size_t struct_size;
    double learning_rate;
    double learning_rate_power;       /* not positive */
    double initial_accumulator_value; /* not negative, as the following */
    double l1_regularization_strength, l2_regularization_strength;
    double l2_shrinkage_regularization_strength;
    double beta;
} co_ftrl_options;
#define CO_FTRL_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(co_ftrl_options), 0.001, -0.5, 0.1, 0.0, 0.0, 0.0, 0.0                              \
    }
/** With p(x) = x^-learning_rate_power: l += g + 2 shrinkage w - (p(a + g^2) - p(a)) / lr w; a +=
 * g^2; w = (clip(l, -l1, l1) - l) / (p(a) / lr + 2 l2 + beta / lr). Slots: "accumulator",
 * "linear". */
CO_API co_optimizer *co_ftrl(co_context *ctx, const co_ftrl_options *options);

/*
 * An optimizer of your own: a name, the slots that it keeps for each variable, and two functions.
 *
 *     static void
 *     prepare(int64_t step, double learning_rate, double *numbers, void *user)
 *     {
 *         numbers[0] = learning_rate / (double)step;
 *     }
 *
 * prepare computes the numbers of a step, which all variables have in common; update applies them
 * to a part of a variable. Parts are cut anywhere and updated by several threads at the same time,
 * so update works element by element and calls nothing of this library. Everything else, from
 * schedules to averages, comes with it.
 */
#define CO_MAX_OPTIMIZER_SLOTS   4
#define CO_MAX_OPTIMIZER_SCALARS 16

typedef struct co_optimizer_part {
    size_t      struct_size;
    co_dtype    dtype; /* of all arrays: CO_FLOAT32 or CO_FLOAT64 */
    int64_t     n;
    const void *gradient;
    void       *value;                         /* holds the weights, and gets the new ones */
    void       *slots[CO_MAX_OPTIMIZER_SLOTS]; /* in the order of the rule */
} co_optimizer_part;

typedef struct co_optimizer_rule {
    size_t      struct_size;
    const char *name;                            /* in messages: "MySGD" */
    size_t      num_slots;                       /* up to CO_MAX_OPTIMIZER_SLOTS */
    const char *slots[CO_MAX_OPTIMIZER_SLOTS];   /* names, "momentum" */
    double      initial[CO_MAX_OPTIMIZER_SLOTS]; /* what a slot begins with */
    size_t      num_scalars;                     /* up to CO_MAX_OPTIMIZER_SCALARS */
    double      learning_rate;
    /* The scalars of a step, counted from 1. NULL: scalar 0 is the learning rate. */
    void (*prepare)(int64_t step, double learning_rate, double *scalars, void *user);
    void (*update)(const double *scalars, const co_optimizer_part *part, void *user);
    void *user; /* must live as long as the optimizer does */
} co_optimizer_rule;
#define CO_OPTIMIZER_RULE_INIT                                                                     \
    {                                                                                              \
        sizeof(co_optimizer_rule), NULL, 0, { NULL }, { 0 }, 1, 0.001, NULL, NULL, NULL            \
    }
/** Names are copied. CO_INVALID_ARGUMENT: no name, no update function, too many slots or scalars, a
 * slot without a name or with that of another or of a common one. */
CO_API co_optimizer *co_custom_optimizer(co_context *ctx, const co_optimizer_rule *rule);

/*
 * What every optimizer can do, whatever its rule. The order in an update is: the sum over replicas,
 * division by the loss scale and the number of calls that were accumulated, clipping, weight decay,
 * the rule, averages.
 */
typedef struct co_optimizer_options {
    size_t struct_size;
    /* Of the learning rate, by the number of updates applied so far; NULL: that of the rule, which
     * co_optimizer_set_learning_rate changes. */
    co_schedule *schedule;

    /* Each update first takes learning_rate * weight_decay of a weight. 0: none, or that of AdamW. */
    double weight_decay;
    /* Variables without decay: those whose name contains one of these texts, and those of a list. */
    const char *const *exclude_names;
    size_t             num_exclude_names;
    co_value          *exclude_variables; /* NULL: none */

    /* At most one of these is above 0. */
    double clip_value;       /* of an element */
    double clip_norm;        /* the norm of a gradient */
    double clip_global_norm; /* the norm of all gradients together */
    bool   clip_before_sum;  /* clip what each replica has, before it is summed */

    /* Of so many calls (2 or more) the last one applies the mean of their gradients, which are
     * summed over replicas only then. The others change no variable. 0: every call applies. */
    int accumulation_steps;

    bool   use_ema;      /* keep a moving average of each weight, slot "average" */
    double ema_momentum; /* average = momentum average + (1 - momentum) weight; in [0, 1] */
    int    ema_overwrite_frequency; /* put averages in place of weights every so many updates; 0:
                                       never */

    /*
     * What co_scale_loss and co_minimize multiply the loss by, so that gradients of float16 do not
     * vanish, and updates divide gradients by; 0: nothing. If it grows, it is dynamic: it doubles
     * after so many updates in a row with finite gradients; where a gradient is not finite, the
     * update is skipped on all replicas and not counted, and the scale is halved.
     */
    double loss_scale;              /* 32768 is usual */
    int    loss_scale_growth_steps; /* 0: it is not dynamic */
} co_optimizer_options;
#define CO_OPTIMIZER_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(co_optimizer_options), NULL, 0.0, NULL, 0, NULL, 0.0, 0.0, 0.0, false, 0, false,    \
            0.99, 0, 0.0, 2000                                                                     \
    }

/**
 * Give an optimizer these options, before its first update and before a slot is asked for; every
 * process and replica gives the same. Texts are copied.
 *
 *     co_optimizer_options common = CO_OPTIMIZER_OPTIONS_INIT;
 *
 *     common.clip_global_norm = 1;
 *     co_optimizer_configure(ctx, optimizer, &common);
 *
 * Returns:  CO_OK, or CO_VALUE_ERROR (more than one kind of clipping, a number outside its range),
 *           CO_TYPE_ERROR (an item of exclude_variables is no variable), CO_FAILED_PRECONDITION
 *           (the optimizer has been used).
 */
CO_API co_code co_optimizer_configure(co_context *ctx, co_optimizer *optimizer,
                                      const co_optimizer_options *options);

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
/**
 * The loss times the optimizer's loss scale, for gradients that are applied by co_apply_gradients;
 * co_minimize does this itself. A loss of float16 or bfloat16 becomes float32 first. In a captured
 * function the scale is read when the function runs. Without a loss scale the loss as it is.
 *
 * Context:  any.
 * Returns:  a value of the block, or NULL with an error of co_mul.
 */
CO_API co_value *co_scale_loss(co_context *ctx, co_optimizer *optimizer, co_value *loss);

/*
 * Numbers of an optimizer. In a replica they are those of the replica: a step that sets one sets it
 * on all of its replicas. Elsewhere they are those of the first replica, and setting one sets it
 * for all; not from another thread while a step runs. Setters are not captured:
 * CO_UNIMPLEMENTED in a captured function. Updates read the numbers when they run, so a captured
 * step has what was set before it is called.
 */

/** How many updates were applied. */
CO_API int64_t co_optimizer_iterations(co_context *ctx, const co_optimizer *optimizer);
/** CO_VALUE_ERROR for a negative number. */
CO_API co_code co_optimizer_set_iterations(co_context *ctx, co_optimizer *optimizer,
                                           int64_t iterations);
/** The rate of the next update, of the schedule if there is one. */
CO_API double co_optimizer_learning_rate(co_context *ctx, const co_optimizer *optimizer);
/** CO_VALUE_ERROR for a rate that is not finite; CO_FAILED_PRECONDITION if a schedule has it. */
CO_API co_code co_optimizer_set_learning_rate(co_context *ctx, co_optimizer *optimizer,
                                              double learning_rate);
/** What losses are multiplied by now; 1 without loss scaling. */
CO_API double co_optimizer_loss_scale(co_context *ctx, const co_optimizer *optimizer);

/**
 * What an optimizer keeps for each variable that it updates is a variable too, its slot: "momentum"
 * of SGD with momentum, "m" and "v" of Adam; with the options "gradient_accumulator" and "average".
 * The names, a tuple of strings; () where it keeps none.
 */
CO_API co_value *co_optimizer_slot_names(co_context *ctx, co_optimizer *optimizer);
/**
 * A slot of a variable, for example "momentum": a variable of the same dtype, shape and strategy,
 * whose components lie beside those of the variable. It is not trainable and is called
 * "<variable>/momentum". A slot that no update has made yet is made now, with what it begins with,
 * so that a value from before can be assigned. A gradient accumulator is read as the sum over
 * replicas, each of which has its own. CO_NOT_FOUND for another name, with the names there are.
 */
CO_API co_value *co_optimizer_slot(co_context *ctx, co_optimizer *optimizer, const char *name,
                                   co_value *variable);
/** Make all slots of a list of variables now; a checkpoint then finds them. */
CO_API co_code co_optimizer_build(co_context *ctx, co_optimizer *optimizer, co_value *variables);

/**
 * All state of an optimizer by name, a dict: "iterations"; "learning_rate" without a schedule; with
 * the options "accumulated" (calls of the present cycle), "loss_scale" and "good_steps": scalars of
 * int64 or float64. And every slot that was made, by the name of its variable, "w/momentum": these
 * are variables. CO_ALREADY_EXISTS if two variables with slots have the same name.
 */
CO_API co_value *co_optimizer_state(co_context *ctx, co_optimizer *optimizer);
/**
 * Set what a dict has of the state. Scalars are numbers or tensors; for a slot there is what
 * co_variable_save gives, or a variable or tensor with the value. Slots are made by
 * co_optimizer_build first. What the dict does not have stays.
 *
 * Context:  outside of steps, and not in a captured function.
 * Returns:  CO_OK, or CO_NOT_FOUND (a key that is no state; nothing was set), CO_VALUE_ERROR (a
 *           scalar outside its range), or an error of co_variable_restore or co_assign.
 */
CO_API co_code co_optimizer_set_state(co_context *ctx, co_optimizer *optimizer, co_value *state);

/**
 * Exchange all weights with their averages, and with the next call back again: to evaluate or save
 * the averages. Nothing is copied. While averages are in place no update is accepted.
 *
 * Context:  outside of steps, and not in a captured function: CO_RUNTIME_ERROR, CO_UNIMPLEMENTED.
 * Returns:  CO_OK, or CO_FAILED_PRECONDITION: the optimizer keeps no averages, or no update has
 *           made one.
 */
CO_API co_code co_optimizer_swap_averages(co_context *ctx, co_optimizer *optimizer);

CO_EXTERN_C_END

#endif
