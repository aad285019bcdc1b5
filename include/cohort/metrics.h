/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics: numbers about the examples seen so far, added up in variables.
 *
 *     CO_SCOPE(ctx, strategy)
 *         accuracy = co_metric_new(ctx, CO_METRIC_SPARSE_CATEGORICAL_ACCURACY, NULL);
 *     ...                                           in the step, in every replica:
 *     co_metric_update(ctx, accuracy, labels, logits, NULL);
 *     ...                                           outside, after an epoch:
 *     value = co_item_float(ctx, co_metric_result(ctx, accuracy));
 *     co_metric_reset(ctx, accuracy);
 *
 * The state of a metric are variables that are synchronised on read, with the aggregation SUM: in a
 * step every replica adds to its own component and nobody waits; a result outside a step is computed
 * from the sums over all replicas and processes. So it does not depend on how many replicas there
 * are or how the examples are spread over them, short and empty parts included. Exceptions are
 * losses, and values of co_metric_mean_of, that give one number for a whole batch: each update
 * counts as one example then (the mean squared error of labels of rank 1 is such a number, as in
 * Keras; give labels and predictions the shape [batch, 1]).
 *
 * Sums and counts are kept in float64, whatever dtype the result has: counts are exact up to 2^53.
 *
 * Make a metric in the scope of the strategy whose steps update it. Metrics are those of Keras 3, by
 * the same names, with the same values.
 * Rules: TR-4, VAR-SOR-1, VAR-SOR-2.
 */
#ifndef COHORT_METRICS_H
#define COHORT_METRICS_H

#include <cohort/variable.h>

#include <math.h>

CO_EXTERN_C_BEGIN

/** A metric with its state. */
typedef struct co_metric co_metric;

typedef enum co_metric_kind {
    CO_METRIC_MEAN = 0,
    CO_METRIC_SUM,
    CO_METRIC_MEAN_METRIC_WRAPPER, /* the mean of options->fn */
    CO_METRIC_ACCURACY,
    CO_METRIC_BINARY_ACCURACY,
    CO_METRIC_CATEGORICAL_ACCURACY,
    CO_METRIC_SPARSE_CATEGORICAL_ACCURACY,
    CO_METRIC_TOP_K_CATEGORICAL_ACCURACY,
    CO_METRIC_SPARSE_TOP_K_CATEGORICAL_ACCURACY,
    CO_METRIC_TRUE_POSITIVES,
    CO_METRIC_FALSE_POSITIVES,
    CO_METRIC_TRUE_NEGATIVES,
    CO_METRIC_FALSE_NEGATIVES,
    CO_METRIC_PRECISION,
    CO_METRIC_RECALL,
    CO_METRIC_SENSITIVITY_AT_SPECIFICITY,
    CO_METRIC_SPECIFICITY_AT_SENSITIVITY,
    CO_METRIC_PRECISION_AT_RECALL,
    CO_METRIC_RECALL_AT_PRECISION,
    CO_METRIC_AUC,
    CO_METRIC_FBETA_SCORE,
    CO_METRIC_F1_SCORE,
    CO_METRIC_MEAN_SQUARED_ERROR,
    CO_METRIC_ROOT_MEAN_SQUARED_ERROR,
    CO_METRIC_MEAN_ABSOLUTE_ERROR,
    CO_METRIC_MEAN_ABSOLUTE_PERCENTAGE_ERROR,
    CO_METRIC_MEAN_SQUARED_LOGARITHMIC_ERROR,
    CO_METRIC_COSINE_SIMILARITY,
    CO_METRIC_LOG_COSH_ERROR,
    CO_METRIC_R2_SCORE,
    CO_METRIC_PEARSON_CORRELATION,
    CO_METRIC_CONCORDANCE_CORRELATION,
    CO_METRIC_HINGE,
    CO_METRIC_SQUARED_HINGE,
    CO_METRIC_CATEGORICAL_HINGE,
    CO_METRIC_KL_DIVERGENCE,
    CO_METRIC_POISSON,
    CO_METRIC_BINARY_CROSSENTROPY,
    CO_METRIC_CATEGORICAL_CROSSENTROPY,
    CO_METRIC_SPARSE_CATEGORICAL_CROSSENTROPY,
    CO_METRIC_IOU,
    CO_METRIC_BINARY_IOU,
    CO_METRIC_MEAN_IOU,
    CO_METRIC_ONE_HOT_IOU,
    CO_METRIC_ONE_HOT_MEAN_IOU,
    CO_NUM_METRIC_KINDS,
    CO_METRIC_OWN /* of co_metric_of; only co_metric_kind_of gives it */
} co_metric_kind;

typedef enum co_metric_curve { CO_CURVE_ROC = 0, CO_CURVE_PR, CO_CURVE_PRGAIN } co_metric_curve;
/** Where the height of a rectangle below the curve is: between both ends, at the lower or the higher
 * one. With CO_CURVE_PR interpolation is the formula of Davis and Goadrich. */
typedef enum co_metric_summation {
    CO_SUMMATION_INTERPOLATION = 0,
    CO_SUMMATION_MINORING,
    CO_SUMMATION_MAJORING
} co_metric_summation;
/** How the scores of the classes become one: not at all, counted together, their mean, their mean
 * weighted by the number of examples. */
typedef enum co_metric_average {
    CO_AVERAGE_NONE = 0,
    CO_AVERAGE_MICRO,
    CO_AVERAGE_MACRO,
    CO_AVERAGE_WEIGHTED
} co_metric_average;
typedef enum co_metric_aggregation {
    CO_R2_UNIFORM_AVERAGE = 0,
    CO_R2_VARIANCE_WEIGHTED_AVERAGE,
    CO_R2_PER_OUTPUT
} co_metric_aggregation;

/** One value per example (or per batch, see above) for CO_METRIC_MEAN_METRIC_WRAPPER; any shape.
 * NULL with an error in ctx. */
typedef co_value *(*co_metric_fn)(co_context *ctx, co_value *y_true, co_value *y_pred, void *user);

/** An option that may be any integer and is not given. */
#define CO_METRIC_NOT_GIVEN INT64_MIN

/**
 * Options of metrics. A metric that does not know an option refuses it (CO_VALUE_ERROR), unless it
 * is as the initialiser made it. Everything is copied.
 */
typedef struct co_metric_options {
    size_t      struct_size;
    const char *name;  /* also begins the names of the variables; NULL: that of Keras, "mean" */
    co_dtype    dtype; /* of the result, a floating one; NONE: float32. Of the IoU family: that of the
                        * confusion matrix and the weights; NONE: int64 */

    /* A prediction above it is positive. NaN: 0.5; of the F scores: the largest of a row. */
    double threshold;
    /* Several, in [0, 1]: the result has one number for each. AUC: the thresholds between 0 and 1.
     * NULL: the one above; of AUC and the metrics at a constraint num_thresholds evenly spaced. */
    const double *thresholds;
    size_t        num_thresholds;
    double constraint; /* of the metrics at a constraint: the specificity, sensitivity, recall or
                        * precision that must be reached, in [0, 1]; must be given */

    int64_t k;            /* of the top-k accuracies */
    int64_t top_k;        /* of precision and recall: only the k largest predictions of a row may be
                           * positive; then the threshold is -1e10 */
    int64_t class_id;     /* of precision and recall: this position of the last dimension alone;
                           * negative counts from the end */
    int64_t num_classes;  /* of the IoU family, which must be told. Of F and R2 scores: allows them to
                           * make their state at once; 0: it is made by the first update */
    int64_t ignore_class; /* examples with this label do not count */
    const int64_t *target_class_ids; /* of IoU: the mean over these classes; must be given */
    size_t         num_target_class_ids;
    int            sparse_y_true, sparse_y_pred; /* of the IoU family: 1: class ids, 0: a score for each
                                                  * class along `axis`; -1: as the metric has it */
    int axis; /* of crossentropies, correlations, cosine similarity and the IoU family */

    co_metric_average     average; /* of the F scores */
    double                beta;    /* of CO_METRIC_FBETA_SCORE: recall counts beta times as much */
    co_metric_curve       curve;   /* of AUC, as all up to label_weights */
    co_metric_summation   summation_method;
    bool                  multi_label; /* one curve for each label, the last dimension; their mean */
    int64_t               num_labels;  /* with multi_label; 0: told by the first update */
    const double         *label_weights;
    size_t                num_label_weights;
    co_metric_aggregation class_aggregation; /* of R2 */
    int64_t               num_regressors;    /* of R2: above 0, the adjusted score */

    bool         from_logits; /* of crossentropies and AUC */
    double       label_smoothing;
    bool         from_sorted_ids; /* of the sparse top-k accuracy: y_pred are class ids, best first */
    co_metric_fn fn;              /* of CO_METRIC_MEAN_METRIC_WRAPPER; must be given */
    void        *fn_user;
} co_metric_options;
#define CO_METRIC_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(co_metric_options), NULL, CO_DTYPE_NONE, NAN, NULL, 200, NAN, 5,                    \
            CO_METRIC_NOT_GIVEN, CO_METRIC_NOT_GIVEN, 0, CO_METRIC_NOT_GIVEN, NULL, 0, -1, -1, -1, \
            CO_AVERAGE_NONE, 1.0, CO_CURVE_ROC, CO_SUMMATION_INTERPOLATION, false, 0, NULL, 0,     \
            CO_R2_UNIFORM_AVERAGE, 0, false, 0.0, false, NULL, NULL                                \
    }

/**
 * A metric with its variables, which are zero. NULL options are the initialiser's.
 *
 *     co_metric_options top = CO_METRIC_OPTIONS_INIT;
 *
 *     top.k = 3;
 *     metric = co_metric_new(ctx, CO_METRIC_TOP_K_CATEGORICAL_ACCURACY, &top);
 *
 * Scope:    as co_variable.
 * Context:  any; in the scope of the strategy, where there is one.
 * Blocks:   as co_variable.
 * Returns:  a metric of ctx's block (co_keep keeps it), or NULL with CO_VALUE_ERROR (an option that
 *           is out of range, that the metric does not know), CO_TYPE_ERROR (an option that must be
 *           given is not), CO_INVALID_ARGUMENT (a kind or dtype that is none), or an error of
 *           co_variable.
 * Rules: TR-4.
 */
CO_API co_metric *co_metric_new(co_context *ctx, co_metric_kind kind,
                                const co_metric_options *options);
/** The same by name: "MeanSquaredError", "mean_squared_error", "mse" or "MSE". CO_VALUE_ERROR for
 * another. */
CO_API co_metric *co_metric_named(co_context *ctx, const char *name,
                                  const co_metric_options *options);
/**
 * The same with options by name, as Keras writes them into a config: a dict of host values, lists of
 * them, or none; {"k": 3}, {"curve": "PR"}, {"specificity": 0.5}. NULL: no options. CO_TYPE_ERROR
 * for an option that the metric does not know, or of another kind of value; CO_VALUE_ERROR as
 * co_metric_new, and for an integer as beta or as threshold of an F score, which Keras refuses.
 */
CO_API co_metric *co_metric_from_config(co_context *ctx, const char *name, co_value *config);

/** A sum or count of a rule of your own. */
typedef struct co_metric_variable {
    const char    *name;
    co_dtype       dtype; /* NONE: float64 */
    const int64_t *dims;
    int            ndim;
    double         initial; /* where the rule has a `merge`: the state of no examples; otherwise 0 */
} co_metric_variable;
/**
 * A metric of your own. A state is a named tuple of tensors by the names of the variables:
 * co_get(ctx, state, "sum").
 *
 * update   the state of one batch alone. args is a tuple of y_true, y_pred and sample_weight; none
 *          stands for what was not given. Returns a tensor for each variable, in a tuple, list or
 *          named tuple in their order, or one tensor if there is one variable.
 * merge    the state of the examples of both. NULL: sums, which is the cheap way: replicas add
 *          without looking. Another one must not depend on the order, as that of maxima or of
 *          variances does not.
 * result   the value of a state: a tensor, or a structure of them.
 *
 * The functions are captured where a function is captured, so they call operators and keep no state
 * of their own.
 */
typedef struct co_metric_rule {
    size_t                    struct_size;
    const char               *name;
    const co_metric_variable *variables;
    size_t                    num_variables; /* 1 to 16 */
    co_value *(*update)(co_context *ctx, co_value *args, void *user);
    co_value *(*merge)(co_context *ctx, co_value *a, co_value *b, void *user);
    co_value *(*result)(co_context *ctx, co_value *state, void *user);
} co_metric_rule;
#define CO_METRIC_RULE_INIT { sizeof(co_metric_rule), NULL, NULL, 0, NULL, NULL, NULL }
/**
 * A metric with a rule of your own. `name` NULL: that of the rule. The rule is copied; `user` must
 * live as long as the metric.
 *
 * Scope, Context, Blocks and Returns: as co_metric_new.
 */
CO_API co_metric *co_metric_of(co_context *ctx, const co_metric_rule *rule, const char *name,
                               void *user);

/**
 * Add a batch: labels and predictions; for CO_METRIC_MEAN and CO_METRIC_SUM values and NULL. In a
 * step each replica adds its part to its own component. sample_weight, NULL or none for 1, is a
 * number for each example or each value. An empty batch adds nothing.
 *
 * Labels that are no class match nothing (accuracies) or are left out (IoU). Sparse crossentropies
 * refuse them.
 *
 * Scope:    this replica only.
 * Context:  in a replica, or in default mode. In cross-replica context CO_VALUE_ERROR: to which
 *           replica the examples belong is not known.
 * Blocks:   never.
 * Returns:  CO_OK, or CO_INVALID_ARGUMENT (shapes that do not fit each other, a rank that is not
 *           known), CO_VALUE_ERROR (a shape that the metric does not take, another number of classes
 *           than before), CO_TYPE_ERROR (not a tensor). Nothing is added then.
 * Rules: TR-4, VAR-SOR-1.
 */
CO_API co_code co_metric_update(co_context *ctx, co_metric *metric, co_value *y_true,
                                co_value *y_pred, co_value *sample_weight);
typedef struct co_metric_update_options {
    size_t    struct_size;
    co_value *sample_weight;
    co_value *mask; /* of bool: what is false has the weight 0; of the shape of the values, or of
                     * their first dimensions. Multiplied with the sample weight */
} co_metric_update_options;
#define CO_METRIC_UPDATE_OPTIONS_INIT { sizeof(co_metric_update_options), NULL, NULL }
CO_API co_code co_metric_update_with(co_context *ctx, co_metric *metric, co_value *y_true,
                                     co_value *y_pred, const co_metric_update_options *options);

/**
 * The value of all examples since the metric was made or reset, on all replicas. In a step it is the
 * value of this replica's examples alone, as in TensorFlow: its own component is all that a replica
 * can read without waiting for the others.
 *
 * Scope:    collective over the processes of a strategy, outside steps; in a step this replica only.
 * Context:  any.
 * Blocks:   until the other processes read it too, if it is collective.
 * Returns:  a tensor, or NULL with CO_FAILED_PRECONDITION (F and R2 scores, and AUC of several
 *           labels, that have seen no batch and do not know the number of classes).
 * Rules: TR-4, VAR-SOR-2.
 */
CO_API co_value *co_metric_result(co_context *ctx, co_metric *metric);
/** Forget all examples; in a step those of this replica. */
CO_API co_code co_metric_reset(co_context *ctx, co_metric *metric);

/** The state: a named tuple of variables in an order that does not change, whose names are
 * "<metric>/<variable>". Empty while the number of classes is not known. */
CO_API co_value *co_metric_variables(co_context *ctx, co_metric *metric);
/**
 * What a checkpoint keeps of a metric: a dict of the names of the variables ("total", "count") and
 * their values over all replicas. co_metric_restore puts such a state back, exactly, also under a
 * strategy with another number of replicas. It makes the variables where their shape was not known.
 *
 * Scope:    collective over the processes of a strategy.
 * Context:  cross-replica, or default mode; CO_RUNTIME_ERROR in a step.
 * Blocks:   until the other processes save or restore it too.
 * Returns:  co_metric_save the dict, or NULL with an error of co_variable_read; co_metric_restore
 *           CO_OK, or CO_NOT_FOUND (a variable is missing in the dict), CO_VALUE_ERROR (another dtype
 *           or shape); nothing changes then.
 */
CO_API co_value *co_metric_save(co_context *ctx, co_metric *metric);
CO_API co_code   co_metric_restore(co_context *ctx, co_metric *metric, co_value *state);

/** Its name, "accuracy". Lives as long as the metric. */
CO_API const char *co_metric_name(co_context *ctx, const co_metric *metric);
/** What it is; CO_METRIC_OWN for one of co_metric_of. */
CO_API co_metric_kind co_metric_kind_of(co_context *ctx, const co_metric *metric);
/** "MeanSquaredError"; NULL for a number that is no kind. */
CO_API const char *co_metric_kind_name(co_metric_kind kind);

typedef struct co_confusion_matrix_options {
    size_t    struct_size;
    int64_t   num_classes;   /* 0: one more than the largest id; must be given in captured functions */
    co_value *weights;       /* of the shape of the predictions; NULL: 1 */
    co_dtype  dtype;         /* of the result */
} co_confusion_matrix_options;
#define CO_CONFUSION_MATRIX_OPTIONS_INIT                                                           \
    { sizeof(co_confusion_matrix_options), 0, NULL, CO_INT32 }
/**
 * A matrix [label, prediction] of counts, or of sums of weights: tf.math.confusion_matrix. Both
 * operands are integers of shape [n]; one of shape [n, 1] loses its last dimension if the other has
 * none. NULL options are the initialiser's. CO_INVALID_ARGUMENT for an id outside the classes (with
 * its index) and for operands of different shapes; CO_VALUE_ERROR for weights of another shape.
 */
CO_API co_value *co_confusion_matrix(co_context *ctx, co_value *labels, co_value *predictions,
                                     const co_confusion_matrix_options *options);

CO_EXTERN_C_END

#endif
