/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics: against formulas, under any number of replicas and split of the examples, captured,
 * saved and restored; metrics of a program's own; names, options and what is refused. */
#include <cohort/function.h>
#include <float.h>

#include "test.h"

enum { ROWS = 12, COLS = 3, STEPS = 2 };

static const char *const devices[] = { "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3" };

/* --- data --- */

/* What an operand holds. */
typedef enum data_kind {
    NOTHING,
    REALS,   /* [n, 3] */
    BITS,    /* [n, 3] of 0 and 1 */
    ONE_HOT, /* [n, 3] */
    SCORES,  /* [n, 3] in (0, 1) */
    SHARES,  /* [n, 3], rows add up to 1 */
    IDS,     /* [n] integers below 3 */
    RANKS    /* [n, 3] ids, each row a permutation */
} data_kind;

static uint32_t
noise(uint32_t seed, int i)
{
    uint32_t x = seed * 2654435761u + (uint32_t)i * 2246822519u + 12345;

    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return x;
}

static double
uniform(uint32_t seed, int i)
{
    return (double)(noise(seed, i) >> 8) / 16777216.0;
}

static float
element(data_kind kind, uint32_t seed, int row, int col)
{
    int at = row * COLS + col, id = (int)(noise(seed, row) % COLS);

    switch (kind) {
    case REALS: return (float)(4 * uniform(seed, at) - 2);
    case BITS: return uniform(seed, at) > 0.5;
    case ONE_HOT: return col == id;
    case SCORES: return (float)(0.01 + 0.98 * uniform(seed, at));
    case SHARES:
        return (float)((0.1 + uniform(seed, at)) /
                       (0.3 + uniform(seed, row * COLS) + uniform(seed, row * COLS + 1) +
                        uniform(seed, row * COLS + 2)));
    case RANKS: return (float)((id + col) % COLS);
    default: return (float)id;
    }
}

static co_value *
operand(co_context *ctx, data_kind kind, uint32_t seed, int first, int n)
{
    float data[ROWS * COLS * 4] = { 0 };

    if (kind == NOTHING)
        return co_none(ctx);
    if (kind == IDS) {
        for (int i = 0; i < n; ++i)
            data[i] = element(kind, seed, first + i, 0);
        return co_cast(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(n), data), CO_INT64);
    }
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < COLS; ++j)
            data[i * COLS + j] = element(kind, seed, first + i, j);
    return co_tensor(ctx, CO_FLOAT32, CO_SHAPE(n, COLS), data);
}

static co_value *
weights(co_context *ctx, uint32_t seed, int first, int n)
{
    float data[4 * ROWS] = { 0 };

    for (int i = 0; i < n; ++i)
        data[i] = (float)(noise(seed + 77, first + i) % 8) / 4; /* exact in any sum */
    return co_tensor(ctx, CO_FLOAT32, CO_SHAPE(n), data);
}

/* --- every metric --- */

static co_value *
largest_error(co_context *ctx, co_value *y_true, co_value *y_pred, void *user)
{
    (void)user;
    return co_reduce_max(ctx, co_abs(ctx, co_sub(ctx, y_true, y_pred)), CO_AXES(-1), false);
}

static void
set_wrapper(co_metric_options *o)
{
    o->fn = largest_error;
}

static void
set_two(co_metric_options *o)
{
    o->k = 2;
}

static void
set_sorted(co_metric_options *o)
{
    o->k = 2;
    o->from_sorted_ids = true;
}

static const double two_thresholds[] = { 0.3, 0.6 };
static const double even_thresholds[] = { 0, 0.25, 0.5, 0.75, 1 };

static void
set_two_thresholds(co_metric_options *o)
{
    o->thresholds = two_thresholds;
    o->num_thresholds = 2;
}

static void
set_even_thresholds(co_metric_options *o)
{
    o->thresholds = even_thresholds;
    o->num_thresholds = 5;
}

static void
set_top_k(co_metric_options *o)
{
    o->top_k = 1;
}

static void
set_class(co_metric_options *o)
{
    o->class_id = -1;
}

static void
set_half(co_metric_options *o)
{
    o->constraint = 0.5;
    o->num_thresholds = 21;
}

static void
set_pr(co_metric_options *o)
{
    o->curve = CO_CURVE_PR;
    o->num_thresholds = 21;
}

static const double weights_of_labels[] = { 1, 2, 0.5 };

static void
set_labels(co_metric_options *o)
{
    o->curve = CO_CURVE_PRGAIN;
    o->summation_method = CO_SUMMATION_MAJORING;
    o->multi_label = true;
    o->num_thresholds = 9;
    o->label_weights = weights_of_labels;
    o->num_label_weights = 3;
}

static void
set_labels_at_thresholds(co_metric_options *o)
{
    o->multi_label = true;
    o->thresholds = two_thresholds;
    o->num_thresholds = 2;
    o->summation_method = CO_SUMMATION_MINORING;
}

static void
set_macro(co_metric_options *o)
{
    o->average = CO_AVERAGE_MACRO;
}

static void
set_micro(co_metric_options *o)
{
    o->average = CO_AVERAGE_MICRO;
    o->threshold = 0.4;
}

static void
set_beta(co_metric_options *o)
{
    o->beta = 2;
    o->average = CO_AVERAGE_WEIGHTED;
}

static void
set_three(co_metric_options *o)
{
    o->num_classes = 3;
}

static const int64_t two_classes[] = { 0, 2 };

static void
set_targets(co_metric_options *o)
{
    o->num_classes = 3;
    o->ignore_class = 1;
    o->target_class_ids = two_classes;
    o->num_target_class_ids = 2;
}

static void
set_targets_of_float(co_metric_options *o)
{
    o->num_classes = 3;
    o->dtype = CO_FLOAT32;
    o->target_class_ids = two_classes;
    o->num_target_class_ids = 2;
}

static void
set_regressors(co_metric_options *o)
{
    o->num_regressors = 2;
    o->class_aggregation = CO_R2_VARIANCE_WEIGHTED_AVERAGE;
}

static void
set_outputs(co_metric_options *o)
{
    o->class_aggregation = CO_R2_PER_OUTPUT;
}

static void
set_logits(co_metric_options *o)
{
    o->from_logits = true;
}

static void
set_ignored(co_metric_options *o)
{
    o->ignore_class = 1;
}

static void
set_double(co_metric_options *o)
{
    o->dtype = CO_FLOAT64;
}

typedef struct row {
    co_metric_kind kind;
    data_kind      truth, prediction;
    void (*set)(co_metric_options *o);
} row;

static const row rows[] = {
    { CO_METRIC_MEAN, REALS, NOTHING, NULL },
    { CO_METRIC_MEAN, IDS, NOTHING, set_double },
    { CO_METRIC_SUM, REALS, NOTHING, NULL },
    { CO_METRIC_MEAN_METRIC_WRAPPER, REALS, REALS, set_wrapper },
    { CO_METRIC_ACCURACY, BITS, BITS, NULL },
    { CO_METRIC_ACCURACY, IDS, IDS, NULL },
    { CO_METRIC_BINARY_ACCURACY, BITS, SCORES, NULL },
    { CO_METRIC_CATEGORICAL_ACCURACY, ONE_HOT, SCORES, NULL },
    { CO_METRIC_SPARSE_CATEGORICAL_ACCURACY, IDS, SCORES, NULL },
    { CO_METRIC_TOP_K_CATEGORICAL_ACCURACY, ONE_HOT, SCORES, set_two },
    { CO_METRIC_SPARSE_TOP_K_CATEGORICAL_ACCURACY, IDS, SCORES, set_two },
    { CO_METRIC_SPARSE_TOP_K_CATEGORICAL_ACCURACY, IDS, RANKS, set_sorted },
    { CO_METRIC_TRUE_POSITIVES, BITS, SCORES, NULL },
    { CO_METRIC_FALSE_POSITIVES, BITS, SCORES, set_two_thresholds },
    { CO_METRIC_TRUE_NEGATIVES, BITS, SCORES, NULL },
    { CO_METRIC_FALSE_NEGATIVES, BITS, SCORES, set_even_thresholds },
    { CO_METRIC_PRECISION, BITS, SCORES, NULL },
    { CO_METRIC_PRECISION, BITS, SCORES, set_top_k },
    { CO_METRIC_RECALL, BITS, SCORES, set_class },
    { CO_METRIC_RECALL, BITS, SCORES, set_even_thresholds },
    { CO_METRIC_SENSITIVITY_AT_SPECIFICITY, BITS, SCORES, set_half },
    { CO_METRIC_SPECIFICITY_AT_SENSITIVITY, BITS, SCORES, set_half },
    { CO_METRIC_PRECISION_AT_RECALL, BITS, SCORES, set_half },
    { CO_METRIC_RECALL_AT_PRECISION, BITS, SCORES, set_half },
    { CO_METRIC_AUC, BITS, SCORES, NULL },
    { CO_METRIC_AUC, BITS, SCORES, set_pr },
    { CO_METRIC_AUC, BITS, SCORES, set_labels },
    { CO_METRIC_AUC, BITS, SCORES, set_labels_at_thresholds },
    { CO_METRIC_AUC, BITS, REALS, set_logits },
    { CO_METRIC_FBETA_SCORE, BITS, SCORES, set_beta },
    { CO_METRIC_F1_SCORE, ONE_HOT, SCORES, NULL },
    { CO_METRIC_F1_SCORE, BITS, SCORES, set_macro },
    { CO_METRIC_F1_SCORE, BITS, SCORES, set_micro },
    { CO_METRIC_F1_SCORE, BITS, SCORES, set_three },
    { CO_METRIC_MEAN_SQUARED_ERROR, REALS, REALS, NULL },
    { CO_METRIC_ROOT_MEAN_SQUARED_ERROR, REALS, REALS, NULL },
    { CO_METRIC_MEAN_ABSOLUTE_ERROR, REALS, REALS, NULL },
    { CO_METRIC_MEAN_ABSOLUTE_PERCENTAGE_ERROR, SCORES, REALS, NULL },
    { CO_METRIC_MEAN_SQUARED_LOGARITHMIC_ERROR, SCORES, SCORES, NULL },
    { CO_METRIC_COSINE_SIMILARITY, REALS, REALS, NULL },
    { CO_METRIC_LOG_COSH_ERROR, REALS, REALS, NULL },
    { CO_METRIC_R2_SCORE, REALS, REALS, NULL },
    { CO_METRIC_R2_SCORE, REALS, REALS, set_regressors },
    { CO_METRIC_R2_SCORE, REALS, REALS, set_outputs },
    { CO_METRIC_PEARSON_CORRELATION, REALS, REALS, NULL },
    { CO_METRIC_CONCORDANCE_CORRELATION, REALS, REALS, NULL },
    { CO_METRIC_HINGE, REALS, REALS, NULL },
    { CO_METRIC_SQUARED_HINGE, REALS, REALS, NULL },
    { CO_METRIC_CATEGORICAL_HINGE, ONE_HOT, SCORES, NULL },
    { CO_METRIC_KL_DIVERGENCE, SHARES, SHARES, NULL },
    { CO_METRIC_POISSON, SCORES, SCORES, NULL },
    { CO_METRIC_BINARY_CROSSENTROPY, BITS, SCORES, NULL },
    { CO_METRIC_CATEGORICAL_CROSSENTROPY, ONE_HOT, SHARES, NULL },
    { CO_METRIC_CATEGORICAL_CROSSENTROPY, ONE_HOT, REALS, set_logits },
    { CO_METRIC_SPARSE_CATEGORICAL_CROSSENTROPY, IDS, SHARES, NULL },
    { CO_METRIC_SPARSE_CATEGORICAL_CROSSENTROPY, IDS, SHARES, set_ignored },
    { CO_METRIC_IOU, IDS, IDS, set_targets },
    { CO_METRIC_IOU, IDS, IDS, set_targets_of_float },
    { CO_METRIC_BINARY_IOU, IDS, IDS, NULL },
    { CO_METRIC_MEAN_IOU, IDS, IDS, set_three },
    { CO_METRIC_ONE_HOT_IOU, ONE_HOT, SCORES, set_targets },
    { CO_METRIC_ONE_HOT_MEAN_IOU, ONE_HOT, SCORES, set_three },
};
enum { NUM_ROWS = sizeof(rows) / sizeof(rows[0]) };

static co_metric *
make(co_context *ctx, const row *r)
{
    co_metric_options options = CO_METRIC_OPTIONS_INIT;

    if (r->set != NULL)
        r->set(&options);
    return co_metric_new(ctx, r->kind, &options);
}

/* A number that says which row failed. */
static void
note_row(size_t i, const char *what, int n)
{
    fprintf(stderr, "# row %zu, %s %d\n", i, what, n);
}

CO_TEST(every_kind_has_a_row_here, "")
{
    for (int kind = 0; kind < CO_NUM_METRIC_KINDS; ++kind) {
        int n = 0;

        for (size_t i = 0; i < NUM_ROWS; ++i)
            n += (int)rows[i].kind == kind;
        CO_EXPECT_MORE(n, 0);
    }
    CO_EXPECT_OK(ctx);
}

/* --- replicas --- */

static co_value *
arguments(co_context *ctx, const row *r, int step, int first, int n, bool weighted)
{
    uint32_t seed = 10 * (uint32_t)r->kind + (uint32_t)step;

    return co_args(ctx, operand(ctx, r->truth, seed + 1, first, n),
                   operand(ctx, r->prediction, seed + 5, first, n),
                   weighted ? weights(ctx, seed, first, n) : co_none(ctx));
}

static co_value *
do_update(co_context *ctx, co_value *args, void *metric)
{
    co_metric_update(ctx, metric, co_at(ctx, args, 0), co_at(ctx, args, 1), co_at(ctx, args, 2));
    return NULL;
}

static co_value *
do_captured(co_context *ctx, co_value *args, void *metric)
{
    co_function *f = co_function_of(ctx, do_update, metric, NULL);

    return co_call(ctx, f, args);
}

/* The result without a strategy. */
static co_value *
alone(co_context *ctx, const row *r, bool weighted)
{
    co_metric *metric = make(ctx, r);

    for (int step = 0; step < STEPS; ++step)
        do_update(ctx, arguments(ctx, r, step, 0, ROWS, weighted), metric);
    return co_metric_result(ctx, metric);
}

/* Examples i to i + 1 of a batch are those of a replica. */
static const int splits[][5] = {
    { 0, 12, 12, 12, 12 }, { 0, 5, 12, 12, 12 }, { 0, 4, 4, 12, 12 }, { 0, 1, 7, 9, 12 }
};

static co_value *
spread(co_context *ctx, const row *r, int step, int n, bool weighted)
{
    co_value *parts[4], *of[4], *args[3];

    for (int i = 0; i < n; ++i) {
        int from = splits[n - 1][i], to = i == n - 1 ? ROWS : splits[n - 1][i + 1];

        parts[i] = arguments(ctx, r, step, from, to - from, weighted);
    }
    for (size_t a = 0; a < 3; ++a) {
        for (int i = 0; i < n; ++i)
            of[i] = co_at(ctx, parts[i], a);
        args[a] = co_value_kind(of[0]) == CO_KIND_NONE ? of[0]
                                                       : co_per_replica_value(ctx, of, (size_t)n);
    }
    return co_tuple(ctx, args, 3);
}

/* The same number of every element. */
static void
expect_close(co_context *ctx, co_value *seen, co_value *expected, double tolerance)
{
    double  a[ROWS], b[ROWS];
    int64_t n = co_value_num_elements(ctx, expected);

    CO_REQUIRE(co_ok(ctx));
    CO_REQUIRE(n >= 1 && n <= ROWS && co_value_num_elements(ctx, seen) == n);
    co_value_copy_data(ctx, seen, CO_FLOAT64, a, ROWS);
    co_value_copy_data(ctx, expected, CO_FLOAT64, b, ROWS);
    for (int64_t i = 0; i < n; ++i)
        CO_EXPECT_CLOSE(a[i], b[i], tolerance);
}

static void
check_splits(co_context *ctx, size_t i, bool weighted, co_fn fn)
{
    const row *r = &rows[i];
    co_value  *whole = alone(ctx, r, weighted);

    CO_REQUIRE(co_ok(ctx));
    for (int n = 1; n <= 4; ++n) {
        co_strategy *s = co_mirrored_strategy(ctx, devices, (size_t)n, NULL);
        co_metric   *metric = NULL;

        CO_SCOPE(ctx, s)
            metric = make(ctx, r);
        for (int step = 0; step < STEPS; ++step)
            co_run(ctx, s, fn, spread(ctx, r, step, n, weighted), metric);
        if (!co_ok(ctx))
            note_row(i, "replicas", n);
        CO_EXPECT_OK(ctx);
        expect_close(ctx, co_metric_result(ctx, metric), whole, 2e-7);
        CO_SCOPE(ctx, s)
            expect_close(ctx, co_metric_result(ctx, metric), whole, 2e-7);
    }
}

CO_TEST_WITH(the_split_over_replicas_does_not_matter, "TR-4", "cpus=4")
{
    for (size_t i = 0; i < NUM_ROWS; ++i)
        CO_BLOCK(ctx)
            check_splits(ctx, i, false, do_update);
}

CO_TEST_WITH(the_split_of_weighted_examples_does_not_matter, "TR-4", "cpus=4")
{
    for (size_t i = 0; i < NUM_ROWS; ++i)
        CO_BLOCK(ctx)
            check_splits(ctx, i, true, do_update);
}

CO_TEST_WITH(captured_steps_count_the_same, "TR-4", "cpus=4")
{
    for (size_t i = 0; i < NUM_ROWS; ++i)
        CO_BLOCK(ctx)
            check_splits(ctx, i, i % 2 == 0, do_captured);
}

/* --- captured --- */

static co_value *
spec_of(co_context *ctx, data_kind kind)
{
    return kind == NOTHING ? co_none(ctx)
           : kind == IDS   ? co_spec(ctx, CO_INT64, CO_SHAPE(-1))
                           : co_spec(ctx, CO_FLOAT32, CO_SHAPE(-1, COLS));
}

static co_value *
values_alone(co_context *ctx, co_value *args, void *metric)
{
    co_metric_update(ctx, metric, co_at(ctx, args, 0), NULL, co_at(ctx, args, 1));
    return NULL;
}

static co_value *
do_result(co_context *ctx, co_value *args, void *metric)
{
    (void)args;
    return co_metric_result(ctx, metric);
}

static void
expect_same_bits(co_context *ctx, size_t i, co_value *seen, co_value *expected)
{
    size_t nbytes = (size_t)co_value_num_elements(ctx, expected) *
                    co_dtype_size(co_value_dtype(ctx, expected));

    if (!co_ok(ctx))
        note_row(i, "captured", 0);
    CO_REQUIRE(co_ok(ctx));
    CO_EXPECT_INT(co_value_dtype(ctx, seen), co_value_dtype(ctx, expected));
    CO_EXPECT_INT(co_value_num_elements(ctx, seen), co_value_num_elements(ctx, expected));
    CO_EXPECT_BYTES(co_value_data(ctx, seen), co_value_data(ctx, expected), nbytes);
}

/* One program for batches of any size; replays have the bits of the calls. */
static void
check_captured(co_context *ctx, size_t i)
{
    static const int    sizes[] = { 12, 5, 1, 7 };
    const row          *r = &rows[i];
    bool                has_prediction = r->prediction != NOTHING;
    co_metric          *eager = make(ctx, r), *captured = make(ctx, r);
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;
    co_function_stats   stats = CO_FUNCTION_STATS_INIT;
    co_function        *f;
    co_value           *weight = co_spec(ctx, CO_FLOAT32, CO_SHAPE(-1));

    options.signature = has_prediction ? co_args(ctx, spec_of(ctx, r->truth),
                                                 spec_of(ctx, r->prediction), weight)
                                       : co_args(ctx, spec_of(ctx, r->truth), weight);
    f = co_function_of(ctx, has_prediction ? do_update : values_alone, captured, &options);
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); ++k) {
        co_value *args = arguments(ctx, r, (int)k, 0, sizes[k], true);

        do_update(ctx, args, eager);
        co_call(ctx, f,
                has_prediction ? args : co_args(ctx, co_at(ctx, args, 0), co_at(ctx, args, 2)));
        expect_same_bits(ctx, i, co_metric_result(ctx, captured), co_metric_result(ctx, eager));
    }
    co_function_get_stats(ctx, f, &stats);
    CO_EXPECT_INT(stats.programs, 1);
    expect_same_bits(ctx, i,
                     co_call(ctx, co_function_of(ctx, do_result, captured, NULL), co_no_args(ctx)),
                     co_metric_result(ctx, eager));
}

CO_TEST(captured_updates_of_unknown_batches_have_the_bits_of_eager_ones, "")
{
    for (size_t i = 0; i < NUM_ROWS; ++i)
        CO_BLOCK(ctx)
            check_captured(ctx, i);
}

/* --- formulas --- */

static co_value *
floats(co_context *ctx, int n, const float *data)
{
    return co_tensor(ctx, CO_FLOAT32, CO_SHAPE(n), data);
}

static double
result(co_context *ctx, co_metric *metric)
{
    return co_item_float(ctx, co_metric_result(ctx, metric));
}

CO_TEST(a_mean_divides_by_rows_or_weights, "")
{
    co_metric *mean = co_metric_new(ctx, CO_METRIC_MEAN, NULL);
    co_value  *values = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 2), (float[]){ 1, 3, 5, 9 });

    CO_EXPECT_CLOSE(result(ctx, mean), 0, 0); /* 0 / 0 */
    co_metric_update(ctx, mean, values, NULL, NULL);
    CO_EXPECT_CLOSE(result(ctx, mean), 4.5, 0);
    co_metric_update(ctx, mean, co_float(ctx, 10.5), NULL, NULL); /* counts 1 */
    CO_EXPECT_CLOSE(result(ctx, mean), 6.5, 0);
    co_metric_reset(ctx, mean);
    co_metric_update(ctx, mean, values, NULL, floats(ctx, 2, (float[]){ 1, 3 }));
    CO_EXPECT_CLOSE(result(ctx, mean), (2 * 1 + 7 * 3) / 4.0, 1e-6);
    co_metric_update(ctx, mean, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0, 2)), NULL, NULL);
    CO_EXPECT_CLOSE(result(ctx, mean), 23 / 4.0, 1e-6);
    CO_EXPECT_OK(ctx);
}

CO_TEST(a_mask_is_a_weight_of_0_or_1, "")
{
    co_metric               *mse = co_metric_named(ctx, "mse", NULL);
    co_metric_update_options options = CO_METRIC_UPDATE_OPTIONS_INIT;
    co_value                *t = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3, 1)),
             *p = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 1), (float[]){ 1, 2, 3 });

    options.mask = co_tensor(ctx, CO_BOOL, CO_SHAPE(3), (bool[]){ true, false, true });
    co_metric_update_with(ctx, mse, t, p, &options);
    CO_EXPECT_CLOSE(result(ctx, mse), 5, 0);
    co_metric_reset(ctx, mse);
    options.sample_weight = floats(ctx, 3, (float[]){ 3, 100, 1 });
    co_metric_update_with(ctx, mse, t, p, &options);
    CO_EXPECT_CLOSE(result(ctx, mse), 3, 0);
    CO_EXPECT_OK(ctx);
}

/* Thresholds at a regular distance are counted in buckets: the same as one by one. */
CO_TEST(buckets_count_what_comparisons_count, "")
{
    enum { N = 400, T = 11 };
    static const co_metric_kind kinds[] = { CO_METRIC_TRUE_POSITIVES, CO_METRIC_FALSE_POSITIVES,
                                            CO_METRIC_TRUE_NEGATIVES, CO_METRIC_FALSE_NEGATIVES };

    float  labels[N], scores[N];
    double thresholds[T];

    for (int i = 0; i < T; ++i)
        thresholds[i] = i / 10.0;
    for (int i = 0; i < N; ++i) {
        labels[i] = uniform(3, i) > 0.4;
        scores[i] = (float)uniform(4, i); /* none is on a threshold */
    }
    for (size_t k = 0; k < 4; ++k) {
        co_metric_options o = CO_METRIC_OPTIONS_INIT;
        co_metric        *metric;
        float             seen[T];

        o.thresholds = thresholds;
        o.num_thresholds = T;
        metric = co_metric_new(ctx, kinds[k], &o);
        co_metric_update(ctx, metric, floats(ctx, N, labels), floats(ctx, N, scores), NULL);
        CO_REQUIRE(co_value_copy_data(ctx, co_metric_result(ctx, metric), CO_FLOAT32, seen, T) ==
                   CO_OK);
        for (int t = 0; t < T; ++t) {
            int n = 0;

            for (int i = 0; i < N; ++i) {
                bool is_true = labels[i] != 0, is_above = scores[i] > (float)thresholds[t];

                n += k == 0   ? is_true && is_above
                     : k == 1 ? !is_true && is_above
                     : k == 2 ? !is_true && !is_above
                              : is_true && !is_above;
            }
            CO_EXPECT_CLOSE(seen[t], n, 0);
        }
    }
}

/* With a threshold between any two predictions it is the share of pairs in the right order. */
CO_TEST(the_area_under_roc_is_the_share_of_ordered_pairs, "")
{
    enum { N = 30 };
    co_metric_options o = CO_METRIC_OPTIONS_INIT;
    float             labels[N], scores[N];
    co_metric        *auc;
    int               pairs = 0, right = 0;

    for (int i = 0; i < N; ++i) {
        labels[i] = uniform(8, i) > 0.5;
        scores[i] = ((float)((i * 7) % N) + 0.5f) / N;
    }
    for (int i = 0; i < N; ++i)
        for (int j = 0; j < N; ++j)
            if (labels[i] > labels[j]) {
                ++pairs;
                right += scores[i] > scores[j];
            }
    o.num_thresholds = N + 1;
    auc = co_metric_new(ctx, CO_METRIC_AUC, &o);
    co_metric_update(ctx, auc, floats(ctx, N, labels), floats(ctx, N, scores), NULL);
    CO_EXPECT_CLOSE(result(ctx, auc), (double)right / pairs, 1e-6);
    CO_EXPECT_OK(ctx);
}

CO_TEST(predictions_out_of_range_and_nan_do_not_break_counts, "")
{
    const float       scores[] = { -3, 0, 1, 7, NAN, INFINITY }, labels[] = { 1, 1, 1, 1, 1, 1 };
    co_metric_options o = CO_METRIC_OPTIONS_INIT;
    float             seen[5];
    co_metric        *metric;

    o.thresholds = even_thresholds;
    o.num_thresholds = 5;
    metric = co_metric_new(ctx, CO_METRIC_TRUE_POSITIVES, &o);
    co_metric_update(ctx, metric, floats(ctx, 6, labels), floats(ctx, 6, scores), NULL);
    CO_REQUIRE(co_value_copy_data(ctx, co_metric_result(ctx, metric), CO_FLOAT32, seen, 5) ==
               CO_OK);
    CO_EXPECT_CLOSE(seen[0], 3, 0); /* 1, 7 and inf are above 0 */
    CO_EXPECT_CLOSE(seen[3], 3, 0);
    CO_EXPECT_CLOSE(seen[4], 0, 0);
    CO_EXPECT_OK(ctx);
}

CO_TEST(labels_that_are_no_class_match_nothing, "")
{
    co_metric *accuracy = co_metric_named(ctx, "sparse_categorical_accuracy", NULL);
    co_value  *labels = co_tensor(ctx, CO_INT64, CO_SHAPE(3), (int64_t[]){ 0, -1, 3 });
    co_value  *scores = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 3),
                                  (float[]){ 1, 0, 0, 0, 0, 1, 0, 0, 1 });

    co_metric_update(ctx, accuracy, labels, scores, NULL);
    CO_EXPECT_CLOSE(result(ctx, accuracy), 1.0 / 3, 1e-7);
    CO_EXPECT_OK(ctx);
}

/* float32 would stay at 2^24. */
CO_TEST(counts_are_exact_where_float32_is_not, "")
{
    co_metric_options o = CO_METRIC_OPTIONS_INIT;
    co_metric        *count;
    co_value         *one = floats(ctx, 1, (float[]){ 1 });

    o.dtype = CO_FLOAT64;
    count = co_metric_new(ctx, CO_METRIC_TRUE_POSITIVES, &o);
    co_metric_update(ctx, count, one, one, floats(ctx, 1, (float[]){ 16777216 }));
    for (int i = 0; i < 3; ++i)
        co_metric_update(ctx, count, one, one, NULL);
    CO_EXPECT_CLOSE(result(ctx, count), 16777219, 0);
    CO_EXPECT_OK(ctx);
}

/* --- state --- */

CO_TEST(variables_have_names_in_an_order, "")
{
    co_metric_options o = CO_METRIC_OPTIONS_INIT;
    co_metric        *auc, *f1 = co_metric_named(ctx, "F1Score", NULL);
    co_value         *variables;

    o.name = "area";
    auc = co_metric_new(ctx, CO_METRIC_AUC, &o);
    variables = co_metric_variables(ctx, auc);
    CO_EXPECT_INT(co_num_items(ctx, variables), 4);
    CO_EXPECT_STR(co_variable_name(ctx, co_at(ctx, variables, 0)), "area/true_positives");
    CO_EXPECT_STR(co_variable_name(ctx, co_at(ctx, variables, 1)), "area/false_positives");
    CO_EXPECT_STR(co_variable_name(ctx, co_at(ctx, variables, 2)), "area/true_negatives");
    CO_EXPECT_STR(co_variable_name(ctx, co_get(ctx, variables, "false_negatives")),
                  "area/false_negatives");
    CO_EXPECT_INT(co_value_dim(ctx, co_at(ctx, variables, 0), 0), 200);
    CO_EXPECT_INT(co_value_dtype(ctx, co_at(ctx, variables, 0)), CO_FLOAT64);
    CO_EXPECT_FALSE(co_variable_trainable(ctx, co_at(ctx, variables, 0)));
    CO_EXPECT_STR(co_metric_name(ctx, auc), "area");
    CO_EXPECT_STR(co_metric_name(ctx, f1), "f1_score");
    CO_EXPECT_INT(co_num_items(ctx, co_metric_variables(ctx, f1)), 0);
    CO_EXPECT_NULL(co_metric_result(ctx, f1));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "num_classes");
    co_metric_update(ctx, f1, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3)),
                     co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3)), NULL);
    CO_EXPECT_INT(co_num_items(ctx, co_metric_variables(ctx, f1)), 4);
    CO_EXPECT_STR(co_variable_name(ctx, co_at(ctx, co_metric_variables(ctx, f1), 3)),
                  "f1_score/intermediate_weights");
    CO_EXPECT_OK(ctx);
}

/* Saved under n replicas in the middle, restored under m, gives the result of the whole run. */
static void
check_restored(co_context *ctx, size_t i, int n, int m)
{
    const row   *r = &rows[i];
    co_strategy *from = co_mirrored_strategy(ctx, devices, (size_t)n, NULL);
    co_strategy *to = co_mirrored_strategy(ctx, devices, (size_t)m, NULL);
    co_metric   *first = NULL, *second = NULL;
    co_value    *state;

    CO_SCOPE(ctx, from)
        first = make(ctx, r);
    CO_SCOPE(ctx, to)
        second = make(ctx, r);
    co_metric_restore(ctx, second, co_metric_save(ctx, first)); /* of nothing */
    co_run(ctx, from, do_update, spread(ctx, r, 0, n, false), first);
    state = co_metric_save(ctx, first);
    CO_EXPECT_CODE(co_metric_restore(ctx, second, state), CO_OK);
    for (size_t k = 0; k < co_num_items(ctx, state); ++k) {
        co_value *saved = co_at(ctx, state, k), *again = co_at(ctx, co_metric_save(ctx, second), k);

        CO_EXPECT_BYTES(co_value_data(ctx, again), co_value_data(ctx, saved),
                        (size_t)co_value_num_elements(ctx, saved) *
                            co_dtype_size(co_value_dtype(ctx, saved)));
    }
    co_run(ctx, to, do_update, spread(ctx, r, 1, m, false), second);
    if (!co_ok(ctx))
        note_row(i, "restored under", m);
    expect_close(ctx, co_metric_result(ctx, second), alone(ctx, r, false), 2e-7);
}

CO_TEST_WITH(a_saved_metric_goes_on_under_another_number_of_replicas, "TR-4", "cpus=4")
{
    for (size_t i = 0; i < NUM_ROWS; ++i)
        CO_BLOCK(ctx) {
            check_restored(ctx, i, 3, 2);
            check_restored(ctx, i, 1, 3);
        }
}

CO_TEST(a_state_that_does_not_fit_changes_nothing, "")
{
    co_metric  *mean = co_metric_named(ctx, "mean", NULL);
    const char *names[] = { "count", "total" };
    co_value   *one = co_scalar_double(ctx, 1), *pair[2] = { one, NULL };

    co_metric_update(ctx, mean, co_float(ctx, 3), NULL, NULL);
    CO_EXPECT_CODE(co_metric_restore(ctx, mean, co_dict(ctx, names, pair, 1)), CO_NOT_FOUND);
    co_clear(ctx);
    pair[1] = co_zeros(ctx, CO_FLOAT64, CO_SHAPE(2));
    CO_EXPECT_CODE(co_metric_restore(ctx, mean, co_dict(ctx, names, pair, 2)), CO_VALUE_ERROR);
    co_clear(ctx);
    CO_EXPECT_CODE(co_metric_restore(ctx, mean, one), CO_TYPE_ERROR);
    co_clear(ctx);
    CO_EXPECT_CLOSE(result(ctx, mean), 3, 0);
}

static co_value *
update_and_read(co_context *ctx, co_value *args, void *metric)
{
    co_metric_update(ctx, metric, co_at(ctx, args, 0), NULL, NULL);
    return co_metric_result(ctx, metric);
}

static co_value *
reset_on_first(co_context *ctx, co_value *args, void *metric)
{
    (void)args;
    if (co_replica_id(ctx) == 0)
        co_metric_reset(ctx, metric);
    return NULL;
}

CO_TEST_WITH(a_replica_reads_its_own_examples_and_others_all, "TR-4 VAR-SOR-1 VAR-SOR-2", "cpus=2")
{
    co_strategy *s = co_mirrored_strategy(ctx, devices, 2, NULL);
    co_value  *parts[2] = { floats(ctx, 1, (float[]){ 2 }), floats(ctx, 3, (float[]){ 4, 6, 8 }) };
    co_value  *seen;
    co_metric *mean = NULL;

    CO_SCOPE(ctx, s)
        mean = co_metric_named(ctx, "mean", NULL);
    seen = co_run(ctx, s, update_and_read, co_args(ctx, co_per_replica_value(ctx, parts, 2)), mean);
    seen = co_local_results(ctx, s, seen);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, seen, 0)), 2, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, seen, 1)), 6, 0);
    CO_EXPECT_CLOSE(result(ctx, mean), 5, 0);
    co_run(ctx, s, reset_on_first, co_no_args(ctx), mean);
    CO_EXPECT_CLOSE(result(ctx, mean), 6, 0);
    co_metric_reset(ctx, mean);
    CO_EXPECT_CLOSE(result(ctx, mean), 0, 0);
    CO_SCOPE(ctx, s) {
        co_metric_update(ctx, mean, co_float(ctx, 1), NULL, NULL);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "cross-replica context");
    }
    CO_EXPECT_OK(ctx);
}

CO_TEST(a_metric_keeps_its_own_variables, "")
{
    co_metric *mean = NULL;

    CO_BLOCK(ctx) {
        mean = co_metric_named(ctx, "mean", NULL);
        co_keep(ctx, mean);
        co_metric_update(ctx, mean, co_float(ctx, 7), NULL, NULL);
    }
    CO_EXPECT_CLOSE(result(ctx, mean), 7, 0);
    co_release(ctx, mean);
}

/* Gradients are not the business of metrics. */
CO_TEST(tapes_do_not_see_metrics, "")
{
    co_metric *mean = co_metric_named(ctx, "mean", NULL);
    co_value  *x = floats(ctx, 2, (float[]){ 1, 2 }), *y;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    co_metric_update(ctx, mean, x, NULL, NULL);
    y = co_reduce_sum(ctx, co_square(ctx, x), CO_ALL_AXES, false);
    y = co_gradient(ctx, y, x);
    CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, y))[1], 4, 0);
    CO_EXPECT_OK(ctx);
}

/* --- own metrics --- */

/* The sum of squares and their number. */
static co_value *
squares_update(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    return co_args(ctx, co_reduce_sum(ctx, co_square(ctx, x), CO_ALL_AXES, false),
                   co_cast(ctx, co_size(ctx, x), CO_INT64));
}

static co_value *
squares_result(co_context *ctx, co_value *state, void *user)
{
    co_value *count = co_cast(ctx, co_get(ctx, state, "count"), CO_FLOAT64);

    (void)user;
    return co_sqrt(ctx, co_div(ctx, co_get(ctx, state, "sum"), count));
}

static const co_metric_variable sum_and_count[] = { { "sum", CO_DTYPE_NONE, NULL, 0, 0 },
                                                    { "count", CO_INT64, NULL, 0, 0 } };

/* The mean, its sum of squared differences, and the number of values, merged as Chan et al. do. */
static co_value *
moments_update(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_cast(ctx, co_at(ctx, args, 0), CO_FLOAT64);
    co_value *n = co_cast(ctx, co_size(ctx, x), CO_FLOAT64);
    co_value *mean = co_div(ctx, co_reduce_sum(ctx, x, CO_ALL_AXES, false),
                            co_maximum(ctx, n, co_int(ctx, 1)));
    co_value *all;

    (void)user;
    x = co_reshape(ctx, x, CO_SHAPE(-1));
    all = co_args(ctx, x, co_fill(ctx, CO_SHAPE(1), co_scalar_double(ctx, -DBL_MAX)));
    return co_args(ctx, mean,
                   co_reduce_sum(ctx, co_squared_difference(ctx, x, mean), CO_ALL_AXES, false), n,
                   co_reduce_max(ctx, co_concat(ctx, all, 0), CO_ALL_AXES, false));
}

static co_value *
moments_merge(co_context *ctx, co_value *a, co_value *b, void *user)
{
    co_value *na = co_get(ctx, a, "n"), *nb = co_get(ctx, b, "n");
    co_value *n = co_add(ctx, na, nb), *some = co_maximum(ctx, n, co_int(ctx, 1));
    co_value *delta = co_sub(ctx, co_get(ctx, b, "mean"), co_get(ctx, a, "mean"));
    co_value *mean = co_add(ctx, co_get(ctx, a, "mean"), co_mul(ctx, delta, co_div(ctx, nb, some)));
    co_value *squares = co_add(ctx, co_get(ctx, a, "squares"), co_get(ctx, b, "squares"));

    (void)user;
    squares = co_add(ctx, squares,
                     co_mul(ctx, co_square(ctx, delta), co_div(ctx, co_mul(ctx, na, nb), some)));
    return co_args(ctx, mean, squares, n,
                   co_maximum(ctx, co_get(ctx, a, "largest"), co_get(ctx, b, "largest")));
}

static co_value *
moments_result(co_context *ctx, co_value *state, void *user)
{
    (void)user;
    return co_args(ctx, co_div(ctx, co_get(ctx, state, "squares"), co_get(ctx, state, "n")),
                   co_get(ctx, state, "largest"));
}

static const co_metric_variable moments[] = { { "mean", CO_DTYPE_NONE, NULL, 0, 0 },
                                              { "squares", CO_DTYPE_NONE, NULL, 0, 0 },
                                              { "n", CO_DTYPE_NONE, NULL, 0, 0 },
                                              { "largest", CO_DTYPE_NONE, NULL, 0, -DBL_MAX } };

static co_metric *
make_own(co_context *ctx, bool merges)
{
    co_metric_rule rule = CO_METRIC_RULE_INIT;

    rule.name = merges ? "moments" : "root_mean_square";
    rule.variables = merges ? moments : sum_and_count;
    rule.num_variables = merges ? 4 : 2;
    rule.update = merges ? moments_update : squares_update;
    rule.merge = merges ? moments_merge : NULL;
    rule.result = merges ? moments_result : squares_result;
    return co_metric_of(ctx, &rule, NULL, NULL);
}

static void
check_own(co_context *ctx, bool merges, int n, co_fn fn)
{
    static const row r = { CO_METRIC_MEAN, REALS, NOTHING, NULL };
    double           sum = 0, squares = 0, largest = -DBL_MAX, count = STEPS * ROWS * COLS;
    co_strategy     *s = co_mirrored_strategy(ctx, devices, (size_t)n, NULL);
    co_metric       *metric = NULL, *again = NULL;
    co_value        *seen;

    for (int step = 0; step < STEPS; ++step)
        for (int i = 0; i < ROWS * COLS; ++i) {
            double x = (double)element(REALS, (uint32_t)step + 1, i / COLS, i % COLS);

            sum += x;
            squares += x * x;
            largest = x > largest ? x : largest;
        }
    CO_SCOPE(ctx, s) {
        metric = make_own(ctx, merges);
        again = make_own(ctx, merges);
    }
    for (int step = 0; step < STEPS; ++step)
        co_run(ctx, s, fn, spread(ctx, &r, step, n, false), metric);
    co_metric_restore(ctx, again, co_metric_save(ctx, metric));
    for (int k = 0; k < 2; ++k) {
        seen = co_metric_result(ctx, k == 0 ? metric : again);
        CO_REQUIRE(CO_EXPECT_OK(ctx));
        if (merges) {
            CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, seen, 0)),
                            squares / count - sum * sum / count / count, 1e-9);
            CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, seen, 1)), largest, 0);
        } else {
            CO_EXPECT_CLOSE(co_item_float(ctx, seen), sqrt(squares / count), 1e-6);
        }
    }
    co_metric_reset(ctx, metric);
    seen = co_get(ctx, co_metric_save(ctx, metric), merges ? "largest" : "count");
    CO_EXPECT_CLOSE(co_item_float(ctx, seen), merges ? -DBL_MAX : 0, 0);
    CO_EXPECT_OK(ctx);
}

CO_TEST_WITH(own_metrics_are_the_same_under_any_number_of_replicas, "TR-4", "cpus=4")
{
    for (int n = 1; n <= 4; ++n) {
        check_own(ctx, false, n, do_update);
        check_own(ctx, true, n, do_update);
        check_own(ctx, false, n, do_captured);
        check_own(ctx, true, n, do_captured);
    }
}

static co_value *
returns_nothing(co_context *ctx, co_value *args, void *user)
{
    (void)ctx;
    (void)args;
    (void)user;
    return NULL;
}

static co_value *
returns_one(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_scalar_double(ctx, 1);
}

CO_TEST(rules_that_are_wrong_are_refused, "")
{
    co_metric_rule     rule = CO_METRIC_RULE_INIT;
    co_metric_variable twice[2] = { sum_and_count[0], sum_and_count[0] };
    co_metric         *metric;

    CO_EXPECT_NULL(co_metric_of(ctx, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "rule");
    CO_EXPECT_NULL(co_metric_of(ctx, &rule, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "update");
    rule.name = "own";
    rule.update = returns_nothing;
    rule.result = returns_nothing;
    rule.variables = sum_and_count;
    rule.num_variables = 17;
    CO_EXPECT_NULL(co_metric_of(ctx, &rule, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "17 variables; it must have 1 to 16");
    rule.num_variables = 2;
    rule.variables = twice;
    CO_EXPECT_NULL(co_metric_of(ctx, &rule, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "'sum'");
    twice[1] = (co_metric_variable){ "start", CO_DTYPE_NONE, NULL, 0, 3 };
    CO_EXPECT_NULL(co_metric_of(ctx, &rule, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "begins with 3");
    rule.variables = sum_and_count;
    metric = co_metric_of(ctx, &rule, "mine", NULL);
    CO_EXPECT_STR(co_metric_name(ctx, metric), "mine");
    CO_EXPECT_INT(co_metric_kind_of(ctx, metric), CO_METRIC_OWN);
    co_metric_update(ctx, metric, co_float(ctx, 1), NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "update of metric 'mine' returned NULL");
    CO_EXPECT_NULL(co_metric_result(ctx, metric));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "result of metric 'mine'");
    rule.update = returns_one;
    metric = co_metric_of(ctx, &rule, NULL, NULL);
    co_metric_update(ctx, metric, co_float(ctx, 1), NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "returned one value");
}

/* --- names and options --- */

CO_TEST(every_kind_is_found_by_its_names, "")
{
    CO_EXPECT_NULL(co_metric_kind_name(CO_NUM_METRIC_KINDS));
    for (size_t i = 0; i < NUM_ROWS; ++i) {
        co_metric_options o = CO_METRIC_OPTIONS_INIT;
        const char       *name = co_metric_kind_name(rows[i].kind);
        co_metric        *metric;

        if (rows[i].set != NULL)
            rows[i].set(&o);
        metric = co_metric_named(ctx, name, &o);
        CO_EXPECT_INT(co_metric_kind_of(ctx, metric), rows[i].kind);
    }
    CO_EXPECT_INT(co_metric_kind_of(ctx, co_metric_named(ctx, "MAE", NULL)),
                  CO_METRIC_MEAN_ABSOLUTE_ERROR);
    CO_EXPECT_STR(co_metric_name(ctx, co_metric_named(ctx, "log_cosh_error", NULL)), "logcosh");
    CO_EXPECT_STR(co_metric_name(ctx, co_metric_named(ctx, "f_beta_score", NULL)), "fbeta_score");
    CO_EXPECT_NULL(co_metric_named(ctx, "acc", NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "'acc'");
    CO_EXPECT_NULL(co_metric_named(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "NULL");
    CO_EXPECT_NULL(co_metric_new(ctx, CO_METRIC_OWN, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "co_metric_of");
}

static void
refuse(co_context *ctx, co_metric_kind kind, const co_metric_options *o, co_code code,
       const char *part)
{
    CO_EXPECT_NULL(co_metric_new(ctx, kind, o));
    CO_EXPECT_ERROR(ctx, code, part);
}

CO_TEST(options_out_of_range_are_refused, "")
{
    static const double     bad[] = { 0.5, 1.5 };
    static const int64_t    classes[] = { 0, 3 };
    co_metric_options       o = CO_METRIC_OPTIONS_INIT;
    const co_metric_options initial = CO_METRIC_OPTIONS_INIT;

#define REFUSE(field, value, kind, code, part)                                                     \
    o = initial;                                                                                   \
    o.field = value;                                                                               \
    refuse(ctx, CO_METRIC_##kind, &o, code, part)
    REFUSE(threshold, 1.5, PRECISION, CO_VALUE_ERROR, "1.5");
    REFUSE(threshold, 0.0, F1_SCORE, CO_VALUE_ERROR, "(0, 1]");
    REFUSE(beta, 0.0, FBETA_SCORE, CO_VALUE_ERROR, "above 0");
    REFUSE(beta, 2.0, F1_SCORE, CO_VALUE_ERROR, "has no option beta");
    REFUSE(k, 0, TOP_K_CATEGORICAL_ACCURACY, CO_VALUE_ERROR, "k of TopK");
    REFUSE(k, 2, ACCURACY, CO_VALUE_ERROR, "name and dtype alone");
    REFUSE(num_thresholds, 1, AUC, CO_VALUE_ERROR, "at least 2");
    REFUSE(num_labels, 2, AUC, CO_VALUE_ERROR, "multi_label");
    REFUSE(curve, (co_metric_curve)7, AUC, CO_VALUE_ERROR, "curve of AUC is 7");
    REFUSE(average, (co_metric_average)-1, F1_SCORE, CO_VALUE_ERROR, "average");
    REFUSE(num_regressors, -1, R2_SCORE, CO_VALUE_ERROR, "num_regressors");
    REFUSE(constraint, 1.25, PRECISION_AT_RECALL, CO_VALUE_ERROR, "recall of PrecisionAtRecall");
    REFUSE(name, "x", PRECISION_AT_RECALL, CO_TYPE_ERROR, "needs the option recall");
    REFUSE(name, "x", MEAN_IOU, CO_TYPE_ERROR, "num_classes");
    REFUSE(name, "x", MEAN_METRIC_WRAPPER, CO_TYPE_ERROR, "fn");
    REFUSE(dtype, CO_INT32, MEAN, CO_INVALID_ARGUMENT, "int32");
    REFUSE(dtype, CO_STRING, MEAN, CO_INVALID_ARGUMENT, "string");
    REFUSE(label_smoothing, 2.0, BINARY_CROSSENTROPY, CO_VALUE_ERROR, "label_smoothing");
    REFUSE(num_classes, 1 << 20, MEAN_IOU, CO_VALUE_ERROR, "32768");
#undef REFUSE
    o = initial;
    o.thresholds = bad;
    o.num_thresholds = 2;
    refuse(ctx, CO_METRIC_RECALL, &o, CO_VALUE_ERROR, "1.5");
    o.num_thresholds = 0;
    refuse(ctx, CO_METRIC_RECALL, &o, CO_VALUE_ERROR, "empty list");
    o = initial;
    o.num_classes = 3;
    o.target_class_ids = classes;
    o.num_target_class_ids = 2;
    refuse(ctx, CO_METRIC_IOU, &o, CO_VALUE_ERROR, "target_class_ids[1] of IoU is 3");
    o.struct_size = 3;
    refuse(ctx, CO_METRIC_IOU, &o, CO_INVALID_ARGUMENT, NULL);
}

static co_metric *
from_config(co_context *ctx, const char *name, const char *key, co_value *value)
{
    return co_metric_from_config(ctx, name, co_dict(ctx, &key, &value, 1));
}

CO_TEST(configs_have_the_names_of_keras, "")
{
    co_value *numbers[2] = { co_float(ctx, 0.25), co_int(ctx, 1) };
    co_value *ids[1] = { co_float(ctx, 0.5) };

    CO_EXPECT_STR(co_metric_name(ctx, from_config(ctx, "AUC", "name", co_string(ctx, "area"))),
                  "area");
    CO_EXPECT_NOT_NULL(from_config(ctx, "AUC", "curve", co_string(ctx, "pr")));
    CO_EXPECT_NOT_NULL(from_config(ctx, "Precision", "thresholds", co_list(ctx, numbers, 2)));
    CO_EXPECT_NOT_NULL(from_config(ctx, "Precision", "thresholds", co_none(ctx)));
    CO_EXPECT_NOT_NULL(from_config(ctx, "F1Score", "average", co_none(ctx)));
    CO_EXPECT_NOT_NULL(from_config(ctx, "R2Score", "class_aggregation", co_none(ctx)));
    CO_EXPECT_NOT_NULL(
        from_config(ctx, "SensitivityAtSpecificity", "specificity", co_float(ctx, 0.5)));
    CO_EXPECT_NOT_NULL(co_metric_from_config(ctx, "mse", NULL));
    CO_EXPECT_NOT_NULL(co_metric_from_config(ctx, "mse", co_none(ctx)));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(from_config(ctx, "AUC", "curve", co_string(ctx, "XY")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "ROC, PR, PRGAIN");
    CO_EXPECT_NULL(from_config(ctx, "AUC", "k", co_int(ctx, 3)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no option 'k'");
    CO_EXPECT_NULL(from_config(ctx, "F1Score", "threshold", co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "a float");
    CO_EXPECT_NULL(from_config(ctx, "IoU", "target_class_ids", co_list(ctx, ids, 1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "a list of integers");
    CO_EXPECT_NULL(from_config(ctx, "Mean", "dtype", co_string(ctx, "float31")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "a dtype");
    CO_EXPECT_NULL(co_metric_from_config(ctx, "mse", co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
}

/* --- updates that are refused, and change nothing --- */

CO_TEST(operands_that_do_not_fit_are_refused, "")
{
    co_metric *mean = co_metric_named(ctx, "mean", NULL), *mse = co_metric_named(ctx, "mse", NULL);
    co_metric *precision = co_metric_named(ctx, "precision", NULL);
    co_metric *f1 = co_metric_named(ctx, "f1_score", NULL);
    co_value  *three = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3)),
             *four = co_ones(ctx, CO_FLOAT32, CO_SHAPE(4));

    co_metric_update(ctx, mean, three, NULL, NULL);
    co_metric_update(ctx, mean, three, NULL, four);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[4]");
    co_metric_update(ctx, mean, three, three, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "values alone");
    co_metric_update(ctx, mean, NULL, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no values");
    co_metric_update(ctx, mse, three, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no y_pred");
    co_metric_update(ctx, NULL, three, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
    co_metric_update(ctx, precision, three, four, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "equal shapes");
    co_metric_update(ctx, f1, three, three, NULL);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[examples, classes]");
    co_metric_update(ctx, f1, co_ones(ctx, CO_FLOAT32, CO_SHAPE(0, 3)),
                     co_ones(ctx, CO_FLOAT32, CO_SHAPE(0, 3)), NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "0 examples");
    co_metric_update(ctx, f1, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 4)),
                     co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 4)), NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "4 classes");
    co_metric_update(ctx, mean, co_string(ctx, "x"), NULL, NULL);
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_CLOSE(result(ctx, mean), 1, 0);
    CO_EXPECT_CLOSE(result(ctx, mse), 0, 0);
}

CO_TEST(ranks_that_are_not_known_are_refused_while_capturing, "")
{
    co_function_options o = CO_FUNCTION_OPTIONS_INIT;
    co_metric          *mse = co_metric_named(ctx, "mse", NULL);
    co_value           *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 1));

    o.signature = co_args(ctx, co_spec(ctx, CO_FLOAT32, NULL, -1),
                          co_spec(ctx, CO_FLOAT32, CO_SHAPE(-1, 1)),
                          co_spec(ctx, CO_FLOAT32, CO_SHAPE(-1)));
    CO_EXPECT_NULL(co_call(ctx, co_function_of(ctx, do_update, mse, &o),
                           co_args(ctx, x, x, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2)))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the rank of y_true is not known");
}

/* --- confusion matrices --- */

static co_value *
matrix(co_context *ctx, co_value *args, void *options)
{
    return co_confusion_matrix(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1), options);
}

CO_TEST(a_confusion_matrix_counts_pairs, "")
{
    co_confusion_matrix_options o = CO_CONFUSION_MATRIX_OPTIONS_INIT;
    co_value     *t = co_tensor(ctx, CO_INT32, CO_SHAPE(4), (int32_t[]){ 0, 1, 1, 2 });
    co_value     *p = co_tensor(ctx, CO_INT64, CO_SHAPE(4), (int64_t[]){ 0, 2, 2, 1 });
    const int32_t expected[] = { 1, 0, 0, 0, 0, 2, 0, 1, 0 };
    co_function  *f = co_function_of(ctx, matrix, &o, NULL);

    CO_EXPECT_BYTES(co_value_data(ctx, co_confusion_matrix(ctx, t, p, NULL)), expected,
                    sizeof(expected));
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, t, p)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "num_classes");
    o.num_classes = 3;
    f = co_function_of(ctx, matrix, &o, NULL);
    CO_EXPECT_BYTES(co_value_data(ctx, co_call(ctx, f, co_args(ctx, t, p))), expected,
                    sizeof(expected));
    o.num_classes = 2;
    CO_EXPECT_NULL(co_confusion_matrix(ctx, t, p, &o));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "labels[3] is 2; with 2 classes");
    f = co_function_of(ctx, matrix, &o, NULL);
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, t, p)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "less than num_classes");
    o.num_classes = 3;
    o.weights = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2));
    CO_EXPECT_NULL(co_confusion_matrix(ctx, t, p, &o));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "[2]");
    o.weights = NULL;
    o.dtype = CO_BOOL;
    CO_EXPECT_NULL(co_confusion_matrix(ctx, t, p, &o));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "bool");
    p = co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ INT64_MAX - 1 });
    CO_EXPECT_NULL(co_confusion_matrix(ctx, p, p, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "at most 32768");
    p = co_tensor(ctx, CO_INT64, CO_SHAPE(2), (int64_t[]){ 0, -7 });
    CO_EXPECT_NULL(co_confusion_matrix(ctx, p, p, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "labels[1] is -7");
}

/* --- without memory --- */

static bool
count_some(co_context *ctx)
{
    static const row some[] = { { CO_METRIC_AUC, BITS, SCORES, set_labels },
                                { CO_METRIC_MEAN_SQUARED_ERROR, REALS, REALS, NULL } };
    bool             ok = true;

    for (size_t i = 0; i < 2 && ok; ++i) {
        co_metric *metric = make(ctx, &some[i]);

        do_update(ctx, arguments(ctx, &some[i], 0, 0, 3, true), metric);
        ok = co_metric_result(ctx, metric) != NULL && co_ok(ctx);
    }
    return ok;
}

CO_TEST_BARE(metrics_survive_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=1", count_some);
}
