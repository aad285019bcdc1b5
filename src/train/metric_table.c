/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of Keras: names, options, and which family computes them.
 */
#include "train/metric.h"

#include <string.h>

#define CLASSES_OF_IOU (COI_TAKES_NUM_CLASSES | COI_TAKES_IGNORE_CLASS | COI_TAKES_AXIS)
#define SPARSE         (COI_TAKES_SPARSE_Y_TRUE | COI_TAKES_SPARSE_Y_PRED)
#define AT_CONSTRAINT  (COI_TAKES_CONSTRAINT | COI_TAKES_NUM_THRESHOLDS | COI_TAKES_CLASS_ID)
#define OF_AUC                                                                                     \
    (COI_TAKES_NUM_THRESHOLDS | COI_TAKES_CURVE | COI_TAKES_SUMMATION_METHOD |                     \
     COI_TAKES_THRESHOLDS | COI_TAKES_MULTI_LABEL | COI_TAKES_NUM_LABELS |                         \
     COI_TAKES_LABEL_WEIGHTS | COI_TAKES_FROM_LOGITS)
#define OF_PRECISION                                                                               \
    (COI_TAKES_THRESHOLD | COI_TAKES_THRESHOLDS | COI_TAKES_TOP_K | COI_TAKES_CLASS_ID)
#define ALL_COUNTS                                                                                 \
    (COI_TRUE_POSITIVES | COI_FALSE_POSITIVES | COI_TRUE_NEGATIVES | COI_FALSE_NEGATIVES)

#define MEAN_OF(class_, snake_, values_)                                                           \
    .class_name = class_, .snake_name = snake_, .family = &coi_mean_family,                        \
    .values = coi_values_##values_
#define LOSS(class_, snake_, kind_)                                                                \
    .class_name = class_, .snake_name = snake_, .family = &coi_mean_family, .loss = CO_LOSS_##kind_
#define COUNT(class_, snake_, counts_)                                                             \
    {                                                                                              \
        .class_name = class_, .snake_name = snake_, .family = &coi_count_family,                   \
        .takes = COI_TAKES_THRESHOLD | COI_TAKES_THRESHOLDS, .counts = (counts_)                   \
    }
#define CONSTRAINED(class_, snake_, constraint_)                                                   \
    {                                                                                              \
        .class_name = class_, .snake_name = snake_, .family = &coi_constraint_family,              \
        .takes = AT_CONSTRAINT, .needs = COI_TAKES_CONSTRAINT, .counts = ALL_COUNTS,               \
        .constraint = constraint_                                                                  \
    }
#define IOU(class_, snake_, takes_, needs_, one_hot_)                                              \
    {                                                                                              \
        .class_name = class_, .snake_name = snake_, .family = &coi_iou_family, .takes = (takes_),  \
        .needs = (needs_), .one_hot = (one_hot_)                                                   \
    }

const coi_metric_row coi_metric_rows[CO_NUM_METRIC_KINDS] = {
    [CO_METRIC_MEAN] = { .class_name = "Mean", .snake_name = "mean", .family = &coi_values_family },
    [CO_METRIC_SUM] = { .class_name = "Sum", .snake_name = "sum", .family = &coi_sum_family },
    [CO_METRIC_MEAN_METRIC_WRAPPER] = { MEAN_OF("MeanMetricWrapper", "mean_metric_wrapper", own),
                                        .takes = COI_TAKES_FN, .needs = COI_TAKES_FN },
    [CO_METRIC_ACCURACY] = { MEAN_OF("Accuracy", "accuracy", accuracy) },
    [CO_METRIC_BINARY_ACCURACY] = { MEAN_OF("BinaryAccuracy", "binary_accuracy", binary_accuracy),
                                    .takes = COI_TAKES_THRESHOLD },
    [CO_METRIC_CATEGORICAL_ACCURACY] = { MEAN_OF("CategoricalAccuracy", "categorical_accuracy",
                                                 categorical_accuracy) },
    [CO_METRIC_SPARSE_CATEGORICAL_ACCURACY] = { MEAN_OF(
        "SparseCategoricalAccuracy", "sparse_categorical_accuracy", sparse_categorical_accuracy) },
    [CO_METRIC_TOP_K_CATEGORICAL_ACCURACY] = { MEAN_OF("TopKCategoricalAccuracy",
                                                       "top_k_categorical_accuracy", top_k),
                                               .takes = COI_TAKES_K },
    [CO_METRIC_SPARSE_TOP_K_CATEGORICAL_ACCURACY] = { MEAN_OF("SparseTopKCategoricalAccuracy",
                                                              "sparse_top_k_categorical_accuracy",
                                                              sparse_top_k),
                                                      .takes = COI_TAKES_K |
                                                               COI_TAKES_FROM_SORTED_IDS },
    [CO_METRIC_TRUE_POSITIVES] = COUNT("TruePositives", "true_positives", COI_TRUE_POSITIVES),
    [CO_METRIC_FALSE_POSITIVES] = COUNT("FalsePositives", "false_positives", COI_FALSE_POSITIVES),
    [CO_METRIC_TRUE_NEGATIVES] = COUNT("TrueNegatives", "true_negatives", COI_TRUE_NEGATIVES),
    [CO_METRIC_FALSE_NEGATIVES] = COUNT("FalseNegatives", "false_negatives", COI_FALSE_NEGATIVES),
    [CO_METRIC_PRECISION] = { .class_name = "Precision",
                              .snake_name = "precision",
                              .family = &coi_precision_family,
                              .takes = OF_PRECISION,
                              .counts = COI_TRUE_POSITIVES | COI_FALSE_POSITIVES },
    [CO_METRIC_RECALL] = { .class_name = "Recall",
                           .snake_name = "recall",
                           .family = &coi_precision_family,
                           .takes = OF_PRECISION,
                           .counts = COI_TRUE_POSITIVES | COI_FALSE_NEGATIVES },
    [CO_METRIC_SENSITIVITY_AT_SPECIFICITY] = CONSTRAINED(
        "SensitivityAtSpecificity", "sensitivity_at_specificity", "specificity"),
    [CO_METRIC_SPECIFICITY_AT_SENSITIVITY] = CONSTRAINED(
        "SpecificityAtSensitivity", "specificity_at_sensitivity", "sensitivity"),
    [CO_METRIC_PRECISION_AT_RECALL] = CONSTRAINED("PrecisionAtRecall", "precision_at_recall",
                                                  "recall"),
    [CO_METRIC_RECALL_AT_PRECISION] = CONSTRAINED("RecallAtPrecision", "recall_at_precision",
                                                  "precision"),
    [CO_METRIC_AUC] = { .class_name = "AUC",
                        .snake_name = "auc",
                        .family = &coi_auc_family,
                        .takes = OF_AUC,
                        .counts = ALL_COUNTS },
    [CO_METRIC_FBETA_SCORE] = { .class_name = "FBetaScore",
                                .snake_name = "f_beta_score",
                                .name = "fbeta_score",
                                .family = &coi_score_family,
                                .takes = COI_TAKES_AVERAGE | COI_TAKES_BETA | COI_TAKES_THRESHOLD |
                                         COI_TAKES_NUM_CLASSES },
    [CO_METRIC_F1_SCORE] = { .class_name = "F1Score",
                             .snake_name = "f1_score",
                             .family = &coi_score_family,
                             .takes = COI_TAKES_AVERAGE | COI_TAKES_THRESHOLD |
                                      COI_TAKES_NUM_CLASSES },
    [CO_METRIC_MEAN_SQUARED_ERROR] = { LOSS("MeanSquaredError", "mean_squared_error",
                                            MEAN_SQUARED_ERROR),
                                       .aliases = { "mse", "MSE" } },
    [CO_METRIC_ROOT_MEAN_SQUARED_ERROR] = { .class_name = "RootMeanSquaredError",
                                            .snake_name = "root_mean_squared_error",
                                            .family = &coi_root_mean_family,
                                            .values = coi_values_squared_error },
    [CO_METRIC_MEAN_ABSOLUTE_ERROR] = { LOSS("MeanAbsoluteError", "mean_absolute_error",
                                             MEAN_ABSOLUTE_ERROR),
                                        .aliases = { "mae", "MAE" } },
    [CO_METRIC_MEAN_ABSOLUTE_PERCENTAGE_ERROR] = { LOSS("MeanAbsolutePercentageError",
                                                        "mean_absolute_percentage_error",
                                                        MEAN_ABSOLUTE_PERCENTAGE_ERROR),
                                                   .aliases = { "mape", "MAPE" } },
    [CO_METRIC_MEAN_SQUARED_LOGARITHMIC_ERROR] = { LOSS("MeanSquaredLogarithmicError",
                                                        "mean_squared_logarithmic_error",
                                                        MEAN_SQUARED_LOGARITHMIC_ERROR),
                                                   .aliases = { "msle", "MSLE" } },
    [CO_METRIC_COSINE_SIMILARITY] = { MEAN_OF("CosineSimilarity", "cosine_similarity", cosine),
                                      .takes = COI_TAKES_AXIS, .loss = CO_LOSS_COSINE_SIMILARITY },
    [CO_METRIC_LOG_COSH_ERROR] = { LOSS("LogCoshError", "log_cosh_error", LOG_COSH),
                                   .name = "logcosh" },
    [CO_METRIC_R2_SCORE] = { .class_name = "R2Score",
                             .snake_name = "r2_score",
                             .family = &coi_r2_family,
                             .takes = COI_TAKES_CLASS_AGGREGATION | COI_TAKES_NUM_REGRESSORS |
                                      COI_TAKES_NUM_CLASSES },
    [CO_METRIC_PEARSON_CORRELATION] = { MEAN_OF("PearsonCorrelation", "pearson_correlation",
                                                pearson),
                                        .takes = COI_TAKES_AXIS },
    [CO_METRIC_CONCORDANCE_CORRELATION] = { MEAN_OF("ConcordanceCorrelation",
                                                    "concordance_correlation", concordance),
                                            .takes = COI_TAKES_AXIS },
    [CO_METRIC_HINGE] = { LOSS("Hinge", "hinge", HINGE) },
    [CO_METRIC_SQUARED_HINGE] = { LOSS("SquaredHinge", "squared_hinge", SQUARED_HINGE) },
    [CO_METRIC_CATEGORICAL_HINGE] = { LOSS("CategoricalHinge", "categorical_hinge",
                                           CATEGORICAL_HINGE) },
    [CO_METRIC_KL_DIVERGENCE] = { LOSS("KLDivergence", "kl_divergence", KL_DIVERGENCE) },
    [CO_METRIC_POISSON] = { LOSS("Poisson", "poisson", POISSON) },
    [CO_METRIC_BINARY_CROSSENTROPY] = { LOSS("BinaryCrossentropy", "binary_crossentropy",
                                             BINARY_CROSSENTROPY),
                                        .aliases = { "bce", "BCE" },
                                        .takes = COI_TAKES_FROM_LOGITS |
                                                 COI_TAKES_LABEL_SMOOTHING },
    [CO_METRIC_CATEGORICAL_CROSSENTROPY] = { LOSS("CategoricalCrossentropy",
                                                  "categorical_crossentropy",
                                                  CATEGORICAL_CROSSENTROPY),
                                             .takes = COI_TAKES_FROM_LOGITS |
                                                      COI_TAKES_LABEL_SMOOTHING | COI_TAKES_AXIS },
    [CO_METRIC_SPARSE_CATEGORICAL_CROSSENTROPY] = { LOSS("SparseCategoricalCrossentropy",
                                                         "sparse_categorical_crossentropy",
                                                         SPARSE_CATEGORICAL_CROSSENTROPY),
                                                    .takes = COI_TAKES_FROM_LOGITS |
                                                             COI_TAKES_IGNORE_CLASS |
                                                             COI_TAKES_AXIS },
    [CO_METRIC_IOU] = IOU("IoU", "io_u", CLASSES_OF_IOU | SPARSE | COI_TAKES_TARGET_CLASS_IDS,
                          COI_TAKES_NUM_CLASSES | COI_TAKES_TARGET_CLASS_IDS, false),
    [CO_METRIC_BINARY_IOU] = IOU("BinaryIoU", "binary_io_u",
                                 COI_TAKES_TARGET_CLASS_IDS | COI_TAKES_THRESHOLD, 0, false),
    [CO_METRIC_MEAN_IOU] = IOU("MeanIoU", "mean_io_u", CLASSES_OF_IOU | SPARSE,
                               COI_TAKES_NUM_CLASSES, false),
    [CO_METRIC_ONE_HOT_IOU] = IOU("OneHotIoU", "one_hot_io_u",
                                  CLASSES_OF_IOU | COI_TAKES_SPARSE_Y_PRED |
                                      COI_TAKES_TARGET_CLASS_IDS,
                                  COI_TAKES_NUM_CLASSES | COI_TAKES_TARGET_CLASS_IDS, true),
    [CO_METRIC_ONE_HOT_MEAN_IOU] = IOU("OneHotMeanIoU", "one_hot_mean_io_u",
                                       CLASSES_OF_IOU | COI_TAKES_SPARSE_Y_PRED,
                                       COI_TAKES_NUM_CLASSES, true),
};

const char *
co_metric_kind_name(co_metric_kind kind)
{
    return (unsigned)kind < CO_NUM_METRIC_KINDS ? coi_metric_rows[kind].class_name : NULL;
}
