/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of metrics. A metric is a list of variables and two functions: what a batch adds to
 * each of them, and the value of what they hold. The metrics of Keras have a row (metric_table.c)
 * that names them, their options and their family; a family is a file: metric_mean.c,
 * metric_confusion.c, metric_auc.c, metric_scores.c, metric_iou.c. A rule of a program's own is a
 * family too (metric_own.c).
 */
#ifndef COI_TRAIN_METRIC_H
#define COI_TRAIN_METRIC_H

#include <cohort/losses.h>
#include <cohort/metrics.h>
#include <cohort/ops.h>

#include "context/context.h"

enum { COI_METRIC_MAX_VARIABLES = 16 };

/* A dimension of a variable that is the number of classes, which the first update tells. */
#define COI_CLASSES (-1)

typedef struct coi_metric_state {
    const char *name;
    co_dtype    dtype;
    int         ndim;
    int64_t     dims[CO_MAX_DIMS];
    double      initial;
} coi_metric_state;

/* What an update is given, as tensors; NULL: not given. */
typedef struct coi_metric_batch {
    co_value *y_true, *y_pred, *weight, *mask;
} coi_metric_batch;

typedef struct coi_metric_family {
    /* Whether the options are in range; they may be completed. NULL: they always are. */
    bool (*check)(co_context *ctx, co_metric *metric);
    /* Fill metric->state and metric->num_variables. False with an error. */
    bool (*describe)(co_context *ctx, co_metric *metric);
    /* The number of classes of a batch; 0 with an error. NULL: no variable depends on it. */
    int64_t (*classes)(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch);
    /* What a batch adds to each variable, of its dtype and shape. False with an error. */
    bool (*update)(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch,
                   co_value **added);
    /* The value of the variables; NULL with an error. */
    co_value *(*result)(co_context *ctx, const co_metric *metric, co_value *const *state);
    bool takes_values; /* y_pred must be NULL */
} coi_metric_family;

extern const coi_metric_family coi_values_family, coi_sum_family, coi_mean_family,
    coi_root_mean_family, coi_count_family, coi_precision_family, coi_constraint_family,
    coi_auc_family, coi_score_family, coi_r2_family, coi_iou_family, coi_own_family;

/* The options that have a name in configs (metric_options.c), as bits of a row. */
#define COI_METRIC_OPTIONS(X)                                                                      \
    X(THRESHOLD, threshold, DOUBLE)                                                                \
    X(THRESHOLDS, thresholds, DOUBLES)                                                             \
    X(NUM_THRESHOLDS, num_thresholds, SIZE)                                                        \
    X(CONSTRAINT, constraint, DOUBLE)                                                              \
    X(K, k, INT)                                                                                   \
    X(TOP_K, top_k, INT)                                                                           \
    X(CLASS_ID, class_id, INT)                                                                     \
    X(NUM_CLASSES, num_classes, INT)                                                               \
    X(IGNORE_CLASS, ignore_class, INT)                                                             \
    X(TARGET_CLASS_IDS, target_class_ids, INTS)                                                    \
    X(SPARSE_Y_TRUE, sparse_y_true, FLAG)                                                          \
    X(SPARSE_Y_PRED, sparse_y_pred, FLAG)                                                          \
    X(AXIS, axis, AXIS)                                                                            \
    X(AVERAGE, average, AVERAGE)                                                                   \
    X(BETA, beta, DOUBLE)                                                                          \
    X(CURVE, curve, CURVE)                                                                         \
    X(SUMMATION_METHOD, summation_method, SUMMATION)                                               \
    X(MULTI_LABEL, multi_label, BOOL)                                                              \
    X(NUM_LABELS, num_labels, INT)                                                                 \
    X(LABEL_WEIGHTS, label_weights, DOUBLES)                                                       \
    X(CLASS_AGGREGATION, class_aggregation, AGGREGATION)                                           \
    X(NUM_REGRESSORS, num_regressors, INT)                                                         \
    X(FROM_LOGITS, from_logits, BOOL)                                                              \
    X(LABEL_SMOOTHING, label_smoothing, DOUBLE)                                                    \
    X(FROM_SORTED_IDS, from_sorted_ids, BOOL)                                                      \
    X(FN, fn, FUNCTION)
enum {
#define COI_OPTION_NUMBER(name, field, type) COI_OPTION_NUMBER_##name,
    COI_METRIC_OPTIONS(COI_OPTION_NUMBER) COI_NUM_METRIC_OPTIONS
#undef COI_OPTION_NUMBER
};
enum {
#define COI_OPTION_BIT(name, field, type) COI_TAKES_##name = 1 << COI_OPTION_NUMBER_##name,
    COI_METRIC_OPTIONS(COI_OPTION_BIT)
#undef COI_OPTION_BIT
};

/* The values of the examples, of any dtype: a family's mean is over them. */
typedef co_value *(*coi_metric_values)(co_context *ctx, const co_metric *metric, co_value *y_true,
                                       co_value *y_pred);

/* Counts of a confusion matrix at a threshold, in the order of their variables. */
enum {
    COI_TRUE_POSITIVES = 1,
    COI_FALSE_POSITIVES = 2,
    COI_TRUE_NEGATIVES = 4,
    COI_FALSE_NEGATIVES = 8
};

typedef struct coi_metric_row {
    const char              *class_name; /* "MeanSquaredError" */
    const char              *snake_name; /* "mean_squared_error" */
    const char              *name;       /* of a metric without one; NULL: the snake name */
    const char              *aliases[2]; /* "mse", "MSE" */
    const coi_metric_family *family;
    unsigned                 takes, needs; /* bits of options */
    coi_metric_values        values;       /* of the mean family; NULL there: those of `loss` */
    co_loss_kind             loss;
    unsigned                 counts;     /* of the families of counts */
    const char              *constraint; /* "specificity": the name of the option `constraint` */
    bool                     one_hot;    /* the IoU family: scores are the default */
} coi_metric_row;

extern const coi_metric_row coi_metric_rows[CO_NUM_METRIC_KINDS];

/* Memory that goes with a metric. */
typedef struct coi_metric_memory {
    struct coi_metric_memory *next;
    size_t                    nbytes;
    _Alignas(16) unsigned char bytes[];
} coi_metric_memory;

struct co_metric {
    coi_object               object;
    co_metric_kind           kind;
    const coi_metric_row    *row; /* NULL: a rule of the program's own */
    const coi_metric_family *family;
    co_metric_options        options; /* its pointers are to `memory` */
    co_dtype                 dtype;   /* of the result */
    co_dtype                 compute; /* float32, or float64 where the result is that */
    co_loss                 *loss;    /* a reference, or NULL */
    co_metric_rule           rule;    /* of the program's own */
    void                    *user;
    bool                     is_even; /* thresholds at a regular distance from 0 to 1 */
    coi_metric_memory       *memory;
    coi_metric_state         state[COI_METRIC_MAX_VARIABLES];
    size_t                   num_variables;
    co_value                *anchor; /* beside which variables are made later; or NULL */
    coi_lock                 lock;   /* of what follows until it is built */
    atomic_bool              is_built;
    int64_t                  classes; /* 0: no variable depends on them */
    co_value                *variables[COI_METRIC_MAX_VARIABLES]; /* references */
};

extern const coi_class coi_metric_class;

/* --- metric.c --- */

/* A metric without options; the caller fills it and calls coi_metric_finish. A reference. */
co_metric *coi_metric_begin(co_context *ctx, co_metric_kind kind, const coi_metric_family *family);
/* Make the variables whose shape is known: the metric as a handle of the block. NULL with an error;
 * the reference is used up. */
co_metric *coi_metric_finish(co_context *ctx, co_metric *metric);
/* A copy of `nbytes` bytes (0 for data NULL) that lives as long as the metric; NULL with an error.
 */
void *coi_metric_copy(co_context *ctx, co_metric *metric, const void *data, size_t nbytes);
bool  coi_check_metric(co_context *ctx, const co_metric *metric);

/* --- metric_variables.c --- */

/* Make the variables of known shape, and what the others will be made beside. */
bool coi_metric_make_known(co_context *ctx, co_metric *metric);
/* Make the others for a number of classes, unless there are variables for as many. False with an
 * error, also where there are some for another number. */
bool coi_metric_build(co_context *ctx, co_metric *metric, int64_t classes);
/* What they hold where ctx runs, over all replicas outside of steps: values of the block. */
bool coi_metric_read_state(co_context *ctx, const co_metric *metric, co_value **state);
/* Whether it has all its variables. */
static inline bool
coi_metric_is_built(const co_metric *metric)
{
    return atomic_load_explicit(&metric->is_built, memory_order_acquire);
}

/* --- metric_options.c --- */

/* The options over the initialiser's, checked against the row, copied into the metric. */
bool coi_metric_take_options(co_context *ctx, co_metric *metric, const co_metric_options *options);
/* The options of a config, NULL or none for none, whose arrays go with the metric. */
bool coi_metric_read_config(co_context *ctx, co_metric *metric, co_value *config,
                            co_metric_options *out);

/* --- metric_own.c --- */

/* The merge of a rule of the program's own: a and b are states; `out` may be one of them. */
bool coi_own_merge(co_context *ctx, const co_metric *metric, co_value *const *a, co_value *const *b,
                   co_value **out);

/* --- metric_operators.c: values of the block; NULL with an error --- */

co_value *coi_metric_cast(co_context *ctx, co_value *x, co_dtype dtype);
/* Keras' squeeze_or_expand_to_same_rank: if the ranks differ by one and the longer one ends in a 1,
 * a vector gets that axis, anything else loses it. `expands` false: nothing gets one. */
bool coi_match_ranks(co_context *ctx, co_value **a, co_value **b, bool expands);
/* All elements in one dimension. */
co_value *coi_flat(co_context *ctx, co_value *x);
/* Axes from `first` on reduced to their mean or sum. */
co_value *coi_reduce_from(co_context *ctx, co_value *x, int first, bool mean);
/* x / y, 0 where y is 0. */
co_value *coi_divide_no_nan(co_context *ctx, co_value *x, co_value *y);
/* `x` repeated to the shape of `like`; CO_INVALID_ARGUMENT where it does not go into that. */
co_value *coi_metric_broadcast(co_context *ctx, const char *what, co_value *x, co_value *like);
/* Numbers as a tensor. */
co_value *coi_metric_numbers(co_context *ctx, co_dtype dtype, const double *numbers, size_t n);
/* The weight of a batch with its mask multiplied in, in `dtype`; NULL without an error: there is
 * none. */
co_value *coi_batch_weight(co_context *ctx, const coi_metric_batch *batch, co_dtype dtype);
/* Whether labels and predictions have a rank; CO_INVALID_ARGUMENT if not. */
bool coi_check_known_rank(co_context *ctx, const char *name, co_value *x);

/* --- metric_values.c: values of examples --- */

co_value *coi_values_own(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred);
co_value *coi_values_accuracy(co_context *ctx, const co_metric *m, co_value *y_true,
                              co_value *y_pred);
co_value *coi_values_binary_accuracy(co_context *ctx, const co_metric *m, co_value *y_true,
                                     co_value *y_pred);
co_value *coi_values_categorical_accuracy(co_context *ctx, const co_metric *m, co_value *y_true,
                                          co_value *y_pred);
co_value *coi_values_sparse_categorical_accuracy(co_context *ctx, const co_metric *m,
                                                 co_value *y_true, co_value *y_pred);
co_value *coi_values_top_k(co_context *ctx, const co_metric *m, co_value *y_true, co_value *y_pred);
co_value *coi_values_sparse_top_k(co_context *ctx, const co_metric *m, co_value *y_true,
                                  co_value *y_pred);
co_value *coi_values_cosine(co_context *ctx, const co_metric *m, co_value *y_true,
                            co_value *y_pred);
co_value *coi_values_pearson(co_context *ctx, const co_metric *m, co_value *y_true,
                             co_value *y_pred);
co_value *coi_values_concordance(co_context *ctx, const co_metric *m, co_value *y_true,
                                 co_value *y_pred);
co_value *coi_values_squared_error(co_context *ctx, const co_metric *m, co_value *y_true,
                                   co_value *y_pred);

/* --- metric_confusion.c --- */

/* The counts of a row at all thresholds; `options->multi_label` for each label. */
bool coi_count_confusion(co_context *ctx, const co_metric *metric, const coi_metric_batch *batch,
                         co_value **added);
/* Variables for the counts of the row, in the order of their bits. */
bool coi_describe_counts(co_context *ctx, co_metric *metric);
/* Whether thresholds are i / (n - 1), as nearly as Keras asks; of less than three, never. */
bool coi_is_even(const double *thresholds, size_t n);
/* n of those, from 0 to 1, in memory of the metric; of one, 0.5. NULL with an error. */
double *coi_even_thresholds(co_context *ctx, co_metric *metric, size_t n);

#endif
