/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses: those of Keras with their options, reductions, masks and weights, your own, and means
 * over the examples that a step really has on all replicas.
 *
 *     co_loss *loss = co_loss_named(ctx, "sparse_categorical_crossentropy", NULL);
 *
 *     co_tape_begin(ctx);
 *     co_minimize(ctx, optimizer, co_loss_call(ctx, loss, labels, model(ctx, images), NULL));
 *
 * A loss takes what is true first, then the prediction. It does, in this order: cast both to its
 * dtype; match their ranks where they differ by a last dimension of 1; compute one value per
 * example; apply mask and weights; reduce. All of it is made of operators, so gradients, captured
 * functions and types with unknown dimensions work as for those. docs/decisions/losses.md says
 * where it differs from Keras.
 */
#ifndef COHORT_LOSSES_H
#define COHORT_LOSSES_H

#include <cohort/ops.h>

CO_EXTERN_C_BEGIN

/* e is 1e-7, t what is true, p the prediction. A mean is over the last axis where nothing else is
 * said; a value that is clipped has no gradient. */
typedef enum co_loss_kind {
    CO_LOSS_MEAN_SQUARED_ERROR = 0,         /* mean((t - p)^2); "mse" */
    CO_LOSS_MEAN_ABSOLUTE_ERROR,            /* mean(|t - p|); "mae" */
    CO_LOSS_MEAN_ABSOLUTE_PERCENTAGE_ERROR, /* 100 mean(|t - p| / max(|t|, e)); "mape" */
    CO_LOSS_MEAN_SQUARED_LOGARITHMIC_ERROR, /* mean((log(max(p, e) + 1) - log(max(t, e) + 1))^2);
                                             * "msle" */
    CO_LOSS_LOG_COSH,                       /* mean(log(cosh(p - t))) */
    CO_LOSS_HUBER,                          /* mean: squares / 2 up to delta, then linear */
    CO_LOSS_BINARY_CROSSENTROPY,            /* mean over axis; p is a probability, or a logit */
    CO_LOSS_CATEGORICAL_CROSSENTROPY,       /* t has the shape of p: probabilities over axis */
    /* t are ids of classes, without the axis of p or with a 1 there. One outside of the classes is
     * CO_INVALID_ARGUMENT with its value and index, unless it is ignore_class. */
    CO_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY,
    CO_LOSS_HINGE,                     /* mean(max(1 - t p, 0)); t of 0 and 1 alone become -1 and 1,
                                        * which the labels of this replica decide */
    CO_LOSS_SQUARED_HINGE,             /* mean(max(1 - t p, 0)^2) */
    CO_LOSS_CATEGORICAL_HINGE,         /* max(max((1 - t) p) - sum(t p) + 1, 0) */
    CO_LOSS_KL_DIVERGENCE,             /* sum(t log(t / p)), both clipped to [e, 1]; "kld" */
    CO_LOSS_POISSON,                   /* mean(p - t log(p + e)) */
    CO_LOSS_COSINE_SIMILARITY,         /* minus the cosine of the angle between them over axis */
    CO_LOSS_BINARY_FOCAL_CROSSENTROPY, /* (1 - pt)^gamma times the binary cross entropy */
    CO_LOSS_CATEGORICAL_FOCAL_CROSSENTROPY, /* alpha (1 - p)^gamma times that of each class */
    CO_LOSS_OWN                             /* of co_loss_of */
} co_loss_kind;

/* What becomes of the values of the examples. A scalar, and one that has the shape [0] outside of
 * a step of several replicas, stays as it is. */
typedef enum co_reduction {
    CO_REDUCTION_NONE = 0,
    CO_REDUCTION_SUM,
    CO_REDUCTION_SUM_OVER_BATCH_SIZE, /* the sum over the number of values */
    CO_REDUCTION_MEAN,                /* the same */
    /* The sum over the sum of weights, without weights the mean; 0 where the weights are. */
    CO_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT
} co_reduction;
/** "none", "sum", "sum_over_batch_size", "mean", "mean_with_sample_weight". CO_VALUE_ERROR for any
 * other name. */
CO_API co_code     co_reduction_from_name(co_context *ctx, const char *name, co_reduction *out);
CO_API const char *co_reduction_name(co_reduction reduction);

/* In a step of several replicas: what the sum is divided by. */
typedef enum co_mean_over {
    /* The values (weights) of all replicas: this replica's share, and the shares add up to the
     * loss of the whole batch, however unevenly it is spread. */
    CO_MEAN_OVER_STEP = 0,
    /* Those of this replica, and the mean by the number of replicas, as Keras does: an example of
     * a replica that has fewer counts more. No replica waits for another. */
    CO_MEAN_OVER_REPLICA
} co_mean_over;

/* Options of every loss. One that a loss does not have and that is not as in the initialiser is
 * CO_VALUE_ERROR. */
typedef struct co_loss_options {
    size_t       struct_size;
    const char  *name; /* copied; at most 127 bytes. NULL: that of the function in Keras */
    co_reduction reduction;
    co_mean_over mean_over;
    co_dtype     dtype;           /* of the computation and the result; a floating one */
    bool         from_logits;     /* cross entropies: p are logits, which is more exact */
    double       label_smoothing; /* cross entropies but the sparse one; in [0, 1] */
    int          axis;            /* cross entropies, cosine similarity; the sparse one: the last */
    double       delta;           /* Huber; not negative */
    double       alpha, gamma;    /* focal cross entropies */
    bool         apply_class_balancing; /* binary focal: alpha weighs ones, 1 - alpha zeros */
    bool         has_ignore_class;      /* sparse cross entropy: examples of ignore_class are 0 and */
    int64_t      ignore_class;          /* masked, so that a mean does not count them */
} co_loss_options;
#define CO_LOSS_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(co_loss_options), NULL, CO_REDUCTION_SUM_OVER_BATCH_SIZE, CO_MEAN_OVER_STEP,        \
            CO_FLOAT32, false, 0.0, -1, 1.0, 0.25, 2.0, false, false, 0                            \
    }

/** A loss; it does not change, and all replicas may use one. */
typedef struct co_loss co_loss;

/**
 * A loss of Keras. NULL options mean the initialiser.
 *
 * Returns:  a handle of ctx's block, or NULL with CO_VALUE_ERROR: a kind that there is not,
 *           CO_LOSS_OWN, an option that this loss does not have, a number out of range.
 */
CO_API co_loss *co_loss_new(co_context *ctx, co_loss_kind kind, const co_loss_options *options);
/** The same by the name that Keras has for the class ("MeanSquaredError"), for the function
 * ("mean_squared_error") or for short ("mse", "MSE"). CO_VALUE_ERROR for another name. */
CO_API co_loss *co_loss_named(co_context *ctx, const char *name, const co_loss_options *options);
/**
 * The same with options as configurations of Keras have them: a dict of host values, whose keys are
 * arguments of the constructor there. They are called as the fields of co_loss_options; "reduction"
 * and "dtype" are names; none is CO_REDUCTION_NONE for "reduction", else what the initialiser has.
 * CO_VALUE_ERROR for another key, also one that the loss does not have, and for a value of another
 * kind. NULL config: no option.
 */
CO_API co_loss *co_loss_from_config(co_context *ctx, const char *name, co_value *config);

/** One value per example: y_true and y_pred have the dtype of the loss and ranks that match. A
 * structure is given as it is, with its tensors cast. */
typedef co_value *(*co_loss_fn)(co_context *ctx, co_value *y_true, co_value *y_pred, void *user);
/** A loss of your own, whose casts, weights, masks and reductions are those of the others. Of the
 * options it has name, reduction, mean_over and dtype. `user` must live as long as the loss. */
CO_API co_loss *co_loss_of(co_context *ctx, co_loss_fn fn, void *user,
                           const co_loss_options *options);

/** What a loss is. Texts live as long as the loss. */
typedef struct co_loss_info {
    size_t       struct_size;
    co_loss_kind kind;
    const char  *class_name;    /* "MeanSquaredError"; of your own "Loss" */
    const char  *function_name; /* "mean_squared_error"; of your own "loss" */
    const char  *name;
    co_reduction reduction;
    co_mean_over mean_over;
    co_dtype     dtype;
    bool         from_logits;
} co_loss_info;
#define CO_LOSS_INFO_INIT                                                                          \
    {                                                                                              \
        sizeof(co_loss_info), CO_LOSS_OWN, NULL, NULL, NULL, CO_REDUCTION_NONE, CO_MEAN_OVER_STEP, \
            CO_FLOAT32, false                                                                      \
    }
CO_API co_code co_loss_describe(co_context *ctx, const co_loss *loss, co_loss_info *info);

/** The values of the examples: without mask, weights and reduction. Errors as co_loss_call. */
CO_API co_value *co_loss_per_example(co_context *ctx, co_loss *loss, co_value *y_true,
                                     co_value *y_pred);

/**
 * The loss of a prediction. sample_weight (NULL or none: 1 for each) has the shape of the values
 * or one that broadcasts to it from the last axis, as NumPy does: weights [b] of values [b, t] run
 * along t. A last dimension of 1 more or less is matched. Weights of a lower rank than the values do
 * not belong to examples, and replicas give the same.
 *
 * In cross-replica context there is no share: the operands are the whole batch.
 *
 * Scope:    collective over the replicas of a step if the loss has a mean over the step whose
 *           divisor is not known from the input; it is known for values of rank 1 without a mask.
 *           Otherwise this replica only.
 * Context:  any.
 * Blocks:   until all replicas have arrived, if it is collective.
 * Returns:  a value of ctx's block, a scalar unless nothing is reduced, or NULL with
 *           CO_INVALID_ARGUMENT (shapes that do not go together, a label that is no class, a rank
 *           that is not known while a function is captured) or CO_VALUE_ERROR: a mean over the step
 *           of a loss that is a scalar on each of several replicas, because its examples cannot be
 *           counted; a number of values that is not the number of examples (co_average_loss).
 */
CO_API co_value *co_loss_call(co_context *ctx, co_loss *loss, co_value *y_true, co_value *y_pred,
                              co_value *sample_weight);
typedef struct co_loss_call_options {
    size_t    struct_size;
    co_value *sample_weight; /* NULL or none: none */
    /* Which values are valid, as the prediction's layers say; NULL or none: all. A mean is over the
     * valid values. */
    co_value *mask;
} co_loss_call_options;
#define CO_LOSS_CALL_OPTIONS_INIT { sizeof(co_loss_call_options), NULL, NULL }
/** co_loss_call with a mask too. */
CO_API co_value *co_loss_call_with(co_context *ctx, co_loss *loss, co_value *y_true,
                                   co_value *y_pred, const co_loss_call_options *options);

/**
 * Sample weights from weights of classes: y_true [b] or [b, 1] are ids (rounded), [b, classes] are
 * probabilities, of which the largest is the class. A class that is not listed weighs 1. The result
 * is float32, in the shape of y_true without its last axis.
 *
 * Returns:  a value of ctx's block, or NULL with CO_VALUE_ERROR: a class that is listed twice, a
 *           weight that is not finite, classes more than 2^20 apart, a scalar y_true.
 */
CO_API co_value *co_class_sample_weight(co_context *ctx, co_value *y_true, const int64_t *classes,
                                        const double *weights, size_t num_classes);

/**
 * This replica's share of the mean loss: the sum of its per-example losses over the number of
 * examples of the whole step on all replicas. The shares add up to the mean, however unevenly the
 * examples are spread, and so do their gradients. An empty batch gives 0. The first dimension
 * counts: one loss per example of the input.
 *
 * Scope:    collective over the replicas of a step if the number of examples is not known from the
 *           input: replicas add up their numbers. Otherwise this replica only.
 * Context:  in a replica, or in default mode; CO_RUNTIME_ERROR in cross-replica context.
 * Blocks:   until all replicas have arrived, if it is collective.
 * Returns:  a scalar, or NULL with CO_INVALID_ARGUMENT (not a floating dtype) or CO_VALUE_ERROR: a
 *           scalar loss, even with one replica (a mean does not say how many examples it is of);
 *           with several replicas, a number of losses that is not the number of examples (see
 *           co_set_step_examples).
 */
CO_API co_value *co_average_loss(co_context *ctx, co_value *per_example_loss);
typedef struct co_average_loss_options {
    size_t struct_size;
    /* Of the examples, in the dtype of the losses or cast to it: a scalar, [b] for losses [b] or
     * [b, ...]. NULL or none: 1 for each. */
    co_value *sample_weight;
    /* Divide by the sum of the weights of the step, which is always collective, instead of by the
     * number of its examples; 0 where that is 0. */
    bool by_weight;
} co_average_loss_options;
#define CO_AVERAGE_LOSS_OPTIONS_INIT { sizeof(co_average_loss_options), NULL, false }
/** co_average_loss of weighted examples. CO_INVALID_ARGUMENT also for weights that do not fit. NULL
 * options mean the initialiser. */
CO_API co_value *co_average_loss_with(co_context *ctx, co_value *per_example_loss,
                                      const co_average_loss_options *options);

/**
 * tf.nn.compute_average_loss: the sum of weighted per-example losses over the batch size of all
 * replicas, which a caller of TensorFlow says. Not given (NULL or none), it is the length of the
 * first axis here times the number of replicas, which is wrong for uneven batches: co_average_loss
 * knows better. Losses of any dtype; with weights their product is taken in float32 and cast back,
 * and of integers the result is float64, both as in TensorFlow. A size of 0 gives 0.
 *
 * Scope:    this replica only.
 * Context:  in a replica, or in default mode; with a global_batch_size any.
 * Blocks:   never.
 * Returns:  a scalar, or NULL with CO_VALUE_ERROR (a scalar loss; a size that is not a scalar),
 *           CO_TYPE_ERROR (a size that is not an integer), CO_INVALID_ARGUMENT (a negative size;
 *           weights of another shape) or CO_RUNTIME_ERROR (in cross-replica context without a
 *           size).
 */
CO_API co_value *co_compute_average_loss(co_context *ctx, co_value *per_example_loss,
                                         co_value *sample_weight, co_value *global_batch_size);
/** tf.nn.scale_regularization_loss: the sum of a loss that all replicas have alike, such as one of
 * the weights, over the number of replicas. CO_RUNTIME_ERROR in cross-replica context. */
CO_API co_value *co_scale_regularization_loss(co_context *ctx, co_value *regularization_loss);

CO_EXTERN_C_END

#endif
