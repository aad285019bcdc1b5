/* SPDX-License-Identifier: Apache-2.0 */
/* Losses: each against its formula, its gradient against differences, under any number of replicas
 * and captured; masks, weights, reductions, options and what is refused. */
#include <cohort/function.h>
#include <stdatomic.h>

#include "test.h"

enum { ROWS = 6, COLS = 4, MANY = ROWS * COLS };
static const double tiny = 1e-7;

/* --- the losses, as formulas --- */

/* What an example is like. */
typedef enum data_kind { REAL, POSITIVE, SIGNS, BITS, ONE_HOT, PROBABILITIES, IDS } data_kind;

typedef struct row {
    co_loss_kind kind;
    data_kind    truth, prediction;
    double (*formula)(const co_loss_options *o, const double *t, const double *p);
    bool   from_logits;
    double smoothing;
} row;

static double
clip(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

#define FORMULA(name) static double name(const co_loss_options *o, const double *t, const double *p)
#define MEAN(name, each)                                                                           \
    FORMULA(name)                                                                                  \
    {                                                                                              \
        double sum = 0;                                                                            \
                                                                                                   \
        (void)o;                                                                                   \
        for (int i = 0; i < COLS; ++i)                                                             \
            sum += (each);                                                                         \
        return sum / COLS;                                                                         \
    }

static double
huber_of(double x, double delta)
{
    return fabs(x) <= delta ? x * x / 2 : delta * fabs(x) - delta * delta / 2;
}

static double
hinge_of(double t, double p, bool is_binary)
{
    return fmax(1 - (is_binary ? 2 * t - 1 : t) * p, 0);
}

static double
binary_of(double t, double p)
{
    p = clip(p, tiny, 1 - tiny);
    return -t * log(p) - (1 - t) * log(1 - p);
}

static double
sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double
focal_of(const co_loss_options *o, double t, double p)
{
    double right = t * p + (1 - t) * (1 - p);

    return (t * o->alpha + (1 - t) * (1 - o->alpha)) * pow(1 - right, o->gamma) * binary_of(t, p);
}

static double
smooth(const co_loss_options *o, double t, int classes)
{
    return t * (1 - o->label_smoothing) + o->label_smoothing / classes;
}

static double
log_next(double x)
{
    return log(fmax(x, tiny) + 1);
}

MEAN(squared, (t[i] - p[i]) * (t[i] - p[i]))
MEAN(absolute, fabs(t[i] - p[i]))
MEAN(percentage, 100 * fabs(t[i] - p[i]) / fmax(fabs(t[i]), tiny))
MEAN(logarithmic, pow(log_next(p[i]) - log_next(t[i]), 2))
/* Keras rounds log(2) to float32. */
MEAN(cosh_log, log(2 * cosh(p[i] - t[i])) - (double)(float)log(2))
MEAN(huber, huber_of(p[i] - t[i], o->delta))
MEAN(hinge, hinge_of(t[i], p[i], true))
MEAN(hinge_of_signs, hinge_of(t[i], p[i], false))
MEAN(squared_hinge, pow(hinge_of(t[i], p[i], true), 2))
MEAN(poisson, p[i] - t[i] * log(p[i] + tiny))
MEAN(binary, binary_of(smooth(o, t[i], 2), o->from_logits ? sigmoid(p[i]) : p[i]))
MEAN(binary_focal, focal_of(o, smooth(o, t[i], 2), o->from_logits ? sigmoid(p[i]) : p[i]))

FORMULA(categorical_hinge)
{
    double right = 0, wrong = -INFINITY;

    (void)o;
    for (int i = 0; i < COLS; ++i) {
        right += t[i] * p[i];
        wrong = fmax(wrong, (1 - t[i]) * p[i]);
    }
    return fmax(wrong - right + 1, 0);
}

FORMULA(divergence)
{
    double sum = 0;

    (void)o;
    for (int i = 0; i < COLS; ++i)
        sum += clip(t[i], tiny, 1) * log(clip(t[i], tiny, 1) / clip(p[i], tiny, 1));
    return sum;
}

FORMULA(cosine)
{
    double both = 0, tt = 0, pp = 0;

    (void)o;
    for (int i = 0; i < COLS; ++i) {
        both += t[i] * p[i];
        tt += t[i] * t[i];
        pp += p[i] * p[i];
    }
    return -both / sqrt(tt * pp);
}

/* The probability of a class. */
static double
chance(const co_loss_options *o, const double *p, int i)
{
    double sum = 0;

    for (int k = 0; k < COLS; ++k)
        sum += o->from_logits ? exp(p[k]) : p[k];
    return clip((o->from_logits ? exp(p[i]) : p[i]) / sum, tiny, 1 - tiny);
}

FORMULA(categorical)
{
    double sum = 0;

    for (int i = 0; i < COLS; ++i)
        sum -= smooth(o, t[i], COLS) * log(chance(o, p, i));
    return sum;
}

FORMULA(categorical_focal)
{
    double sum = 0;

    for (int i = 0; i < COLS; ++i) {
        double c = chance(o, p, i);

        sum -= o->alpha * pow(1 - c, o->gamma) * smooth(o, t[i], COLS) * log(c);
    }
    return sum;
}

FORMULA(of_id)
{
    return -log(chance(o, p, (int)t[0]));
}

static const row rows[] = {
    { CO_LOSS_MEAN_SQUARED_ERROR, REAL, REAL, squared, false, 0 },
    { CO_LOSS_MEAN_ABSOLUTE_ERROR, REAL, REAL, absolute, false, 0 },
    { CO_LOSS_MEAN_ABSOLUTE_PERCENTAGE_ERROR, REAL, REAL, percentage, false, 0 },
    { CO_LOSS_MEAN_SQUARED_LOGARITHMIC_ERROR, POSITIVE, POSITIVE, logarithmic, false, 0 },
    { CO_LOSS_LOG_COSH, REAL, REAL, cosh_log, false, 0 },
    { CO_LOSS_HUBER, REAL, REAL, huber, false, 0 },
    { CO_LOSS_BINARY_CROSSENTROPY, BITS, PROBABILITIES, binary, false, 0 },
    { CO_LOSS_BINARY_CROSSENTROPY, BITS, REAL, binary, true, 0.25 },
    { CO_LOSS_CATEGORICAL_CROSSENTROPY, ONE_HOT, PROBABILITIES, categorical, false, 0.125 },
    { CO_LOSS_CATEGORICAL_CROSSENTROPY, ONE_HOT, REAL, categorical, true, 0 },
    { CO_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY, IDS, PROBABILITIES, of_id, false, 0 },
    { CO_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY, IDS, REAL, of_id, true, 0 },
    { CO_LOSS_HINGE, BITS, REAL, hinge, false, 0 },
    { CO_LOSS_HINGE, SIGNS, REAL, hinge_of_signs, false, 0 },
    { CO_LOSS_SQUARED_HINGE, BITS, REAL, squared_hinge, false, 0 },
    { CO_LOSS_CATEGORICAL_HINGE, ONE_HOT, REAL, categorical_hinge, false, 0 },
    { CO_LOSS_KL_DIVERGENCE, PROBABILITIES, PROBABILITIES, divergence, false, 0 },
    { CO_LOSS_POISSON, POSITIVE, POSITIVE, poisson, false, 0 },
    { CO_LOSS_COSINE_SIMILARITY, REAL, REAL, cosine, false, 0 },
    { CO_LOSS_BINARY_FOCAL_CROSSENTROPY, BITS, PROBABILITIES, binary_focal, false, 0 },
    { CO_LOSS_BINARY_FOCAL_CROSSENTROPY, BITS, REAL, binary_focal, true, 0.25 },
    { CO_LOSS_CATEGORICAL_FOCAL_CROSSENTROPY, ONE_HOT, PROBABILITIES, categorical_focal, false, 0 },
    { CO_LOSS_CATEGORICAL_FOCAL_CROSSENTROPY, ONE_HOT, REAL, categorical_focal, true, 0.5 },
};
enum { NUM_ROWS = sizeof(rows) / sizeof(rows[0]) };

static co_loss_options
options_of(const row *r, co_dtype dtype)
{
    co_loss_options o = CO_LOSS_OPTIONS_INIT;

    o.dtype = dtype;
    o.from_logits = r->from_logits;
    o.label_smoothing = r->smoothing;
    o.apply_class_balancing = r->kind == CO_LOSS_BINARY_FOCAL_CROSSENTROPY;
    return o;
}

/* Numbers that are far from corners and not alike. */
static double
drawn(int i, int salt)
{
    return fmod(0.61803398875 * (i + 1) + 0.7548776662 * salt, 1);
}

static void
fill(data_kind kind, int salt, double *out)
{
    for (int r = 0; r < ROWS; ++r) {
        int    chosen = (5 * r + salt) % COLS;
        double sum = 0;

        for (int i = 0; i < COLS; ++i) {
            double x = drawn(COLS * r + i, salt), *at = &out[COLS * r + i];

            switch (kind) {
            case REAL: *at = 4 * x - 2; break;
            case POSITIVE: *at = 2 * x + 0.1; break;
            case SIGNS: *at = x < 0.5 ? -1 : 1; break;
            case BITS: *at = x < 0.5; break;
            case PROBABILITIES: *at = 0.1 + 0.8 * x; break;
            default: *at = i == chosen; break;
            }
            sum += *at;
        }
        for (int i = 0; kind == PROBABILITIES && i < COLS; ++i)
            out[COLS * r + i] /= sum;
        if (kind == IDS)
            out[r] = chosen;
    }
}

typedef struct batch {
    double t[MANY], p[MANY];
    bool   has_ids;
} batch;

static batch
batch_of(const row *r)
{
    batch b = { .has_ids = r->truth == IDS };

    fill(r->truth, 3, b.t);
    fill(r->prediction, 7, b.p);
    return b;
}

/* Rows of a batch as a tensor of float32 or float64. */
static co_value *
tensor(co_context *ctx, co_dtype dtype, const double *data, int first, int n, int cols)
{
    co_value *wide = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(n, cols),
                               n > 0 ? data + (size_t)first * (size_t)cols : NULL);

    return co_cast(ctx, wide, dtype);
}

static co_value *
truth_of(co_context *ctx, const batch *b, co_dtype dtype, int first, int n)
{
    co_value *ids = b->has_ids ? tensor(ctx, CO_INT32, b->t, first, n, 1) : NULL;

    return ids != NULL ? co_squeeze(ctx, ids, CO_AXES(-1))
                       : tensor(ctx, dtype, b->t, first, n, COLS);
}

static const double *
doubles(co_context *ctx, co_value *x)
{
    return co_value_data(ctx, co_cast(ctx, x, CO_FLOAT64));
}

CO_TEST(losses_follow_their_formulas, "")
{
    for (int k = 0; k < NUM_ROWS; ++k) {
        for (int is_double = 0; is_double < 2; ++is_double) {
            co_dtype        dtype = is_double ? CO_FLOAT64 : CO_FLOAT32;
            co_loss_options o = options_of(&rows[k], dtype);
            co_loss        *loss = co_loss_new(ctx, rows[k].kind, &o);
            batch           b = batch_of(&rows[k]);
            co_value       *t = truth_of(ctx, &b, dtype, 0, ROWS), *each, *mean;
            co_value       *p = tensor(ctx, dtype, b.p, 0, ROWS, COLS);
            double          limit = is_double ? 1e-13 : 2e-5, sum = 0;
            const double   *seen;

            each = co_loss_per_example(ctx, loss, t, p);
            CO_REQUIRE(CO_EXPECT_OK(ctx));
            CO_EXPECT_INT(co_value_dtype(ctx, each), dtype);
            seen = doubles(ctx, each);
            for (int r = 0; r < ROWS; ++r) {
                double expected = rows[k].formula(&o, b.has_ids ? &b.t[r] : &b.t[COLS * r],
                                                  &b.p[COLS * r]);

                /* the sparse cross entropy clips before it normalises */
                CO_EXPECT_CLOSE(seen[r], expected,
                                limit * fmax(fabs(expected), 1) + (b.has_ids ? 1e-6 : 0));
                sum += seen[r];
            }
            mean = co_loss_call(ctx, loss, t, p, NULL);
            CO_EXPECT_CLOSE(co_item_float(ctx, mean), sum / ROWS, limit * fmax(fabs(sum), 1));
        }
    }
}

/* --- gradients --- */

CO_TEST(gradients_are_those_of_differences, "")
{
    for (int k = 0; k < NUM_ROWS; ++k) {
        co_loss_options o = options_of(&rows[k], CO_FLOAT64);
        co_loss        *loss = co_loss_new(ctx, rows[k].kind, &o);
        batch           b = batch_of(&rows[k]);
        co_value       *t = truth_of(ctx, &b, CO_FLOAT64, 0, ROWS);
        co_value       *p = tensor(ctx, CO_FLOAT64, b.p, 0, ROWS, COLS), *gradient;
        const double   *seen, h = 1e-6;

        co_tape_begin(ctx);
        co_watch(ctx, p);
        gradient = co_gradient(ctx, co_loss_call(ctx, loss, t, p, NULL), p);
        CO_REQUIRE(CO_EXPECT_OK(ctx));
        seen = doubles(ctx, gradient);
        for (int i = 0; i < MANY; ++i) {
            double side[2];

            for (int s = 0; s < 2; ++s) {
                batch moved = b;

                moved.p[i] += s == 0 ? -h : h;
                side[s] = co_item_float(
                    ctx, co_loss_call(ctx, loss, t, tensor(ctx, CO_FLOAT64, moved.p, 0, ROWS, COLS),
                                      NULL));
            }
            if (!CO_EXPECT_CLOSE(seen[i], (side[1] - side[0]) / (2 * h),
                                 2e-7 * fmax(fabs(seen[i]), 1)))
                test_fail(TEST_AT, "row %d, element %d", k, i);
        }
    }
}

/* --- replicas --- */

static const char *const names[] = { "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3" };

typedef struct world {
    co_loss *loss;
    bool     has_weights, has_mask;
    bool     is_captured;
    double   weight; /* of all examples; 0: not given */
} world;

/* The loss and its gradient for the prediction; args: truth, prediction, weights, mask. */
static co_value *
loss_and_gradient(co_context *ctx, co_value *args, void *user)
{
    const world         *w = user;
    co_value            *p = co_at(ctx, args, 1), *value;
    co_loss_call_options options = CO_LOSS_CALL_OPTIONS_INIT;

    options.sample_weight = w->has_weights ? co_at(ctx, args, 2) : NULL;
    if (w->weight != 0)
        options.sample_weight = co_float(ctx, w->weight);
    options.mask = w->has_mask ? co_at(ctx, args, 3) : NULL;
    co_tape_begin(ctx);
    co_watch(ctx, p);
    value = co_loss_call_with(ctx, w->loss, co_at(ctx, args, 0), p, &options);
    return co_args(ctx, value, co_gradient(ctx, value, p));
}

static co_value *
loss_in_step(co_context *ctx, co_value *args, void *user)
{
    const world *w = user;
    co_function *f;

    if (!w->is_captured)
        return loss_and_gradient(ctx, args, user);
    f = co_function_of(ctx, loss_and_gradient, user, NULL);
    return co_call(ctx, f, args);
}

static const double weights_of_rows[ROWS] = { 0.5, 2, 0, 1.25, 3, 0.75 };
static const double mask_of_rows[ROWS] = { 1, 0, 1, 1, 0, 1 };

static co_value *
arguments(co_context *ctx, const batch *b, int first, int n)
{
    co_value *w = tensor(ctx, CO_FLOAT64, weights_of_rows, first, n, 1);
    co_value *mask = tensor(ctx, CO_BOOL, mask_of_rows, first, n, 1);

    return co_args(ctx, truth_of(ctx, b, CO_FLOAT64, first, n),
                   tensor(ctx, CO_FLOAT64, b->p, first, n, COLS), co_squeeze(ctx, w, CO_AXES(-1)),
                   co_squeeze(ctx, mask, CO_AXES(-1)));
}

/* How many rows each of 1 to 4 replicas has. */
static const int parts_of[][4] = { { 6 }, { 4, 2 }, { 6, 0 }, { 1, 3, 2 }, { 2, 0, 3, 1 } };
static const int num_parts[] = { 1, 2, 2, 3, 4 };

/* The same arguments, spread. */
static co_value *
spread(co_context *ctx, const batch *b, int division)
{
    co_value *each[4], *out[4], *parts[4];

    for (int r = 0, first = 0; r < num_parts[division]; first += parts_of[division][r++])
        each[r] = arguments(ctx, b, first, parts_of[division][r]);
    for (int a = 0; a < 4; ++a) {
        for (int r = 0; r < num_parts[division]; ++r)
            parts[r] = co_at(ctx, each[r], (size_t)a);
        out[a] = co_per_replica_value(ctx, parts, (size_t)num_parts[division]);
    }
    return co_tuple(ctx, out, 4);
}

/* A step under a division, whose shares and gradients are compared with those of one replica. */
static void
expect_shares(co_context *ctx, world *w, const batch *b, int division, const char *what)
{
    int           n = num_parts[division];
    co_strategy  *s = co_mirrored_strategy(ctx, names, (size_t)n, NULL);
    co_value     *whole = loss_and_gradient(ctx, arguments(ctx, b, 0, ROWS), w);
    co_value     *seen = co_run(ctx, s, loss_in_step, spread(ctx, b, division), w), *sum, *locals;
    double        expected = co_item_float(ctx, co_at(ctx, whole, 0));
    const double *gradient = doubles(ctx, co_at(ctx, whole, 1));

    CO_REQUIRE(CO_EXPECT_OK(ctx));
    sum = co_reduce(ctx, s, CO_REDUCE_SUM, co_at(ctx, seen, 0), NULL, 0);
    if (!CO_EXPECT_CLOSE(co_item_float(ctx, sum), expected, 1e-12 * fmax(fabs(expected), 1)))
        test_fail(TEST_AT, "%s, division %d", what, division);
    locals = co_local_results(ctx, s, co_at(ctx, seen, 1));
    for (int r = 0, first = 0; r < n; first += parts_of[division][r++]) {
        co_value *mine = co_at(ctx, locals, (size_t)r);

        CO_EXPECT_INT(co_value_dim(ctx, mine, 0), parts_of[division][r]);
        for (int i = 0; i < parts_of[division][r] * COLS; ++i)
            if (!CO_EXPECT_CLOSE(doubles(ctx, mine)[i], gradient[first * COLS + i], 1e-12))
                test_fail(TEST_AT, "%s, division %d, replica %d", what, division, r);
    }
}

CO_TEST_WITH(shares_of_replicas_add_up_to_the_loss_of_one, "S-REDUCE-7", "cpus=4")
{
    static const co_reduction reductions[] = { CO_REDUCTION_SUM, CO_REDUCTION_SUM_OVER_BATCH_SIZE,
                                               CO_REDUCTION_MEAN,
                                               CO_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT };

    for (int k = 0; k < NUM_ROWS; ++k) {
        batch b = batch_of(&rows[k]);

        for (int c = 0; c < 16; ++c) {
            co_loss_options o = options_of(&rows[k], CO_FLOAT64);
            world           w = { .has_weights = (c & 1) != 0, .has_mask = (c & 2) != 0 };
            int             division = 1 + (k + c) % 4;

            o.reduction = reductions[c / 4];
            CO_BLOCK(ctx) {
                w.loss = co_loss_new(ctx, rows[k].kind, &o);
                expect_shares(ctx, &w, &b, division, co_reduction_name(o.reduction));
                w.is_captured = true;
                expect_shares(ctx, &w, &b, division, "captured");
            }
        }
    }
}

/* Keras divides by the weight itself, however many examples it is of. */
CO_TEST_WITH(a_weight_of_all_examples_is_the_same_on_all_replicas, "", "cpus=4")
{
    co_loss_options o = options_of(&rows[0], CO_FLOAT64);
    batch           b = batch_of(&rows[0]);
    world           w = { .weight = 2 };

    o.reduction = CO_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT;
    w.loss = co_loss_new(ctx, rows[0].kind, &o);
    for (int division = 0; division < 5; ++division)
        expect_shares(ctx, &w, &b, division, "one weight");
}

/* The number of examples is known from the input, so that nobody waits. */
static co_value *
step_of_pair(co_context *ctx, co_value *args, void *user)
{
    return co_loss_call(ctx, user, co_at(ctx, args, 0), co_at(ctx, args, 1), NULL);
}

CO_TEST_WITH(a_short_last_batch_counts_its_examples, "S-REDUCE-7 DS-PART-2", "cpus=4")
{
    const row      *r = &rows[0];
    batch           b = batch_of(r);
    co_loss_options o = options_of(r, CO_FLOAT64);
    co_loss        *loss = co_loss_new(ctx, r->kind, &o);

    for (int n = 2; n <= 4; ++n) {
        co_strategy *s = co_mirrored_strategy(ctx, names, (size_t)n, NULL);
        co_value    *all = co_args(ctx, truth_of(ctx, &b, CO_FLOAT64, 0, ROWS),
                                   tensor(ctx, CO_FLOAT64, b.p, 0, ROWS, COLS));
        co_dataset *data = co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, all), 5, false);
        co_iterator *it = co_iterate(ctx, co_distribute_dataset(ctx, s, data, NULL));
        int          first = 0;

        for (int rows_of_step = 5; rows_of_step > 0; rows_of_step -= 4, first += 5) {
            co_value *shares = co_run(ctx, s, step_of_pair, co_next(ctx, it), loss);
            co_value *sum = co_reduce(ctx, s, CO_REDUCE_SUM, shares, NULL, 0);
            co_value *whole = co_loss_call(ctx, loss,
                                           truth_of(ctx, &b, CO_FLOAT64, first, rows_of_step),
                                           tensor(ctx, CO_FLOAT64, b.p, first, rows_of_step, COLS),
                                           NULL);

            CO_EXPECT_CLOSE(co_item_float(ctx, sum), co_item_float(ctx, whole), 1e-13);
        }
    }
}

CO_TEST_WITH(means_over_replicas_are_those_of_keras, "", "cpus=4")
{
    const row      *r = &rows[0];
    batch           b = batch_of(r);
    co_loss_options o = options_of(r, CO_FLOAT64);
    co_strategy    *s = co_mirrored_strategy(ctx, names, 2, NULL);
    world           w = { .loss = NULL };
    co_value       *seen, *first;

    o.mean_over = CO_MEAN_OVER_REPLICA;
    w.loss = co_loss_new(ctx, r->kind, &o);
    seen = co_run(ctx, s, loss_in_step, spread(ctx, &b, 1), &w);
    o.mean_over = CO_MEAN_OVER_STEP;
    first = co_loss_call(ctx, co_loss_new(ctx, r->kind, &o),
                         truth_of(ctx, &b, CO_FLOAT64, 0, parts_of[1][0]),
                         tensor(ctx, CO_FLOAT64, b.p, 0, parts_of[1][0], COLS), NULL);
    seen = co_at(ctx, co_local_results(ctx, s, co_at(ctx, seen, 0)), 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, seen), co_item_float(ctx, first) / 2, 1e-14);
}

/* --- captured --- */

CO_TEST(captured_losses_have_the_bits_of_others, "")
{
    for (int k = 0; k < NUM_ROWS; ++k) {
        for (int c = 0; c < 4; ++c) {
            co_loss_options     o = options_of(&rows[k], CO_FLOAT32);
            co_function_options unknown = CO_FUNCTION_OPTIONS_INIT;
            world               w = { .has_weights = (c & 1) != 0, .has_mask = (c & 2) != 0 };
            batch               b = batch_of(&rows[k]);
            co_value           *truth = co_spec(ctx, b.has_ids ? CO_INT32 : CO_FLOAT64,
                                                (int64_t[]){ -1, COLS }, b.has_ids ? 1 : 2);
            co_function        *f;

            w.loss = co_loss_new(ctx, rows[k].kind, &o);
            unknown.signature = co_args(ctx, truth, co_spec(ctx, CO_FLOAT64, CO_SHAPE(-1, COLS)),
                                        co_spec(ctx, CO_FLOAT64, CO_SHAPE(-1)),
                                        co_spec(ctx, CO_BOOL, CO_SHAPE(-1)));
            f = co_function_of(ctx, loss_and_gradient, &w, &unknown);
            for (int n = ROWS; n >= 1; n -= 5) {
                co_value *args = arguments(ctx, &b, 0, n);
                co_value *eager = loss_and_gradient(ctx, args, &w), *seen = co_call(ctx, f, args);

                CO_REQUIRE(CO_EXPECT_OK(ctx));
                CO_EXPECT_BYTES(co_value_data(ctx, co_at(ctx, seen, 0)),
                                co_value_data(ctx, co_at(ctx, eager, 0)), sizeof(float));
                CO_EXPECT_BYTES(co_value_data(ctx, co_at(ctx, seen, 1)),
                                co_value_data(ctx, co_at(ctx, eager, 1)),
                                (size_t)n * COLS * sizeof(double));
            }
        }
    }
}

/* What decides between two computations must be known. */
static co_value *
plain_loss(co_context *ctx, co_value *args, void *user)
{
    return co_loss_call(ctx, user, co_at(ctx, args, 0), co_at(ctx, args, 1), NULL);
}

CO_TEST(shapes_that_must_be_known_are_asked_for, "")
{
    co_loss            *loss = co_loss_named(ctx, "mse", NULL);
    co_function_options o = CO_FUNCTION_OPTIONS_INIT;
    co_value           *y = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3));
    co_value           *p = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 1));

    o.signature = co_args(ctx, co_spec(ctx, CO_FLOAT32, NULL, -1),
                          co_spec(ctx, CO_FLOAT32, CO_SHAPE(-1, 1)));
    CO_EXPECT_NULL(co_call(ctx, co_function_of(ctx, plain_loss, loss, &o), co_args(ctx, y, p)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the rank of y_true is not known");
    o.signature = co_args(ctx, co_spec(ctx, CO_FLOAT32, CO_SHAPE(-1)),
                          co_spec(ctx, CO_FLOAT32, CO_SHAPE(-1, -1)));
    CO_EXPECT_NULL(co_call(ctx, co_function_of(ctx, plain_loss, loss, &o), co_args(ctx, y, p)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "whether its last dimension is 1 must be known");
}

/* --- labels, NaN --- */

CO_TEST(labels_out_of_range_are_named_with_their_index, "")
{
    co_loss     *loss = co_loss_named(ctx, "sparse_categorical_crossentropy", NULL);
    co_function *f = co_function_of(ctx, plain_loss, loss, NULL);
    co_value    *p = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 4));
    co_value    *big = co_tensor(ctx, CO_INT64, CO_SHAPE(3), (int64_t[]){ 0, 1, 4 });
    co_value    *small = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), (float[]){ 0, -1, 2 });

    CO_EXPECT_NULL(co_loss_call(ctx, loss, big, p, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "label 4 at position 2 is not in [0, 4)");
    CO_EXPECT_NULL(co_loss_call(ctx, loss, small, p, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "label -1 at position 1");
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, big, p)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "label 4 at position 2");
    small = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), (float[]){ 0, NAN, 2 });
    CO_EXPECT_NULL(co_loss_call(ctx, loss, small, p, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
}

/* An id that float32 does not hold is not rounded to another one. */
CO_TEST(ids_are_not_rounded, "")
{
    co_loss_options o = CO_LOSS_OPTIONS_INIT;
    co_value       *p = co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 4));
    co_value       *t = co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ 16777217 });

    CO_EXPECT_NULL(
        co_loss_call(ctx, co_loss_named(ctx, "sparse_categorical_crossentropy", NULL), t, p, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "16777217");
    o.has_ignore_class = true;
    o.ignore_class = 16777216;
    CO_EXPECT_NULL(
        co_loss_call(ctx, co_loss_named(ctx, "sparse_categorical_crossentropy", &o), t, p, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "16777217");
}

CO_TEST(ignored_classes_do_not_count, "")
{
    co_loss_options o = CO_LOSS_OPTIONS_INIT;
    co_value       *p = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 2),
                                  (float[]){ 0.25f, 0.75f, 0.5f, 0.5f, 0.125f, 0.875f });
    co_value       *t = co_tensor(ctx, CO_INT32, CO_SHAPE(3, 1), (int[]){ 0, 255, 1 });
    co_loss        *loss;

    o.has_ignore_class = true;
    o.ignore_class = 255;
    loss = co_loss_new(ctx, CO_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY, &o);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_loss_call(ctx, loss, t, p, NULL)),
                    -(log(0.25) + log(0.875)) / 2, 1e-6);
    CO_EXPECT_CLOSE(doubles(ctx, co_loss_per_example(ctx, loss, t, p))[1], 0, 0);
}

CO_TEST(nan_passes_through, "")
{
    for (int k = 0; k < NUM_ROWS; ++k) {
        co_loss_options o = options_of(&rows[k], CO_FLOAT64);
        co_loss        *loss = co_loss_new(ctx, rows[k].kind, &o);
        batch           b = batch_of(&rows[k]);
        const double   *seen;

        b.p[COLS * 2 + 1] = NAN;
        seen = doubles(ctx, co_loss_per_example(ctx, loss, truth_of(ctx, &b, CO_FLOAT64, 0, ROWS),
                                                tensor(ctx, CO_FLOAT64, b.p, 0, ROWS, COLS)));
        CO_REQUIRE(CO_EXPECT_OK(ctx));
        if (!CO_EXPECT_TRUE(isnan(seen[2])) || !CO_EXPECT_FALSE(isnan(seen[1])))
            test_fail(TEST_AT, "row %d", k);
    }
}

/* --- ranks, weights, masks --- */

CO_TEST(half_precision_is_computed_in_float32, "")
{
    co_value *y = co_cast(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 2)), CO_FLOAT16);
    co_value *loss = co_loss_call(ctx, co_loss_named(ctx, "mse", NULL), y, y, NULL);

    CO_EXPECT_INT(co_value_dtype(ctx, loss), CO_FLOAT32);
    CO_EXPECT_CLOSE(co_item_float(ctx, loss), 0, 0);
}

CO_TEST(weights_and_masks_must_fit, "")
{
    co_loss             *loss = co_loss_named(ctx, "mse", NULL);
    co_value            *y = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 2));
    co_loss_call_options o = CO_LOSS_CALL_OPTIONS_INIT;

    CO_EXPECT_NULL(co_loss_call(ctx, loss, y, y, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the loss has shape [3] and sample_weight [2]");
    o.mask = co_ones(ctx, CO_BOOL, CO_SHAPE(2));
    CO_EXPECT_NULL(co_loss_call_with(ctx, loss, y, y, &o));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[2]");
    CO_EXPECT_NULL(co_loss_call(ctx, loss, y, co_ones(ctx, CO_FLOAT32, CO_SHAPE(4, 2)), NULL));
    CO_EXPECT_STR(co_error(ctx)->call, "loss_call");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "y_true has shape [3,2] and y_pred [4,2]");
    o.mask = co_zeros(ctx, CO_BOOL, CO_SHAPE(3));
    CO_EXPECT_CLOSE(co_item_float(ctx, co_loss_call_with(ctx, loss, y, co_neg(ctx, y), &o)), 0, 0);
}

CO_TEST(cross_replica_context_has_the_whole_batch, "")
{
    co_strategy *s = co_mirrored_strategy(ctx, names, 1, NULL);
    co_value    *y = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 2)), *seen = NULL;

    CO_SCOPE(ctx, s) {
        seen = co_loss_call(ctx, co_loss_named(ctx, "mse", NULL), y, co_neg(ctx, y), NULL);
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, seen), 4, 0);
}

static co_value *
scalar_loss(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_loss_call(ctx, user, co_ones(ctx, CO_FLOAT32, CO_SHAPE(3)),
                        co_ones(ctx, CO_FLOAT32, CO_SHAPE(3)), NULL);
}

CO_TEST_WITH(scalars_of_several_replicas_have_no_mean, "", "cpus=2")
{
    co_strategy    *s = co_mirrored_strategy(ctx, names, 2, NULL);
    co_loss_options o = CO_LOSS_OPTIONS_INIT;

    CO_EXPECT_NULL(co_run(ctx, s, scalar_loss, co_no_args(ctx), co_loss_named(ctx, "mse", NULL)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "whose examples cannot be counted");
    o.mean_over = CO_MEAN_OVER_REPLICA;
    co_run(ctx, s, scalar_loss, co_no_args(ctx), co_loss_named(ctx, "mse", &o));
    CO_EXPECT_OK(ctx);
}

/* --- options and names --- */

CO_TEST(options_that_a_loss_does_not_have_are_named, "C-ARG-1")
{
    co_loss_options o = CO_LOSS_OPTIONS_INIT;

    o.delta = 2;
    CO_EXPECT_NULL(co_loss_named(ctx, "mse", &o));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "MeanSquaredError has no option 'delta'");
    CO_EXPECT_NOT_NULL(co_loss_named(ctx, "huber", &o));
    o.delta = -1;
    CO_EXPECT_NULL(co_loss_named(ctx, "huber", &o));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "'delta' of a loss is -1");
    o = (co_loss_options)CO_LOSS_OPTIONS_INIT;
    o.label_smoothing = NAN;
    CO_EXPECT_NULL(co_loss_named(ctx, "bce", &o));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "'label_smoothing' of a loss is");
    o = (co_loss_options)CO_LOSS_OPTIONS_INIT;
    o.ignore_class = 3;
    CO_EXPECT_NULL(co_loss_named(ctx, "sparse_categorical_crossentropy", &o));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "has_ignore_class is not set");
    o.ignore_class = 0;
    o.has_ignore_class = true;
    CO_EXPECT_NULL(co_loss_named(ctx, "bce", &o));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no option 'has_ignore_class'");
    o.has_ignore_class = false;
    o.dtype = CO_INT32;
    CO_EXPECT_NULL(co_loss_named(ctx, "bce", &o));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "computed in int32");
    o.dtype = CO_FLOAT32;
    o.reduction = (co_reduction)9;
    CO_EXPECT_NULL(co_loss_named(ctx, "bce", &o));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "reduction 9");
    o.reduction = CO_REDUCTION_SUM;
    o.mean_over = (co_mean_over)2;
    CO_EXPECT_NULL(co_loss_named(ctx, "bce", &o));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "mean_over 2");
}

CO_TEST(losses_are_found_by_name, "")
{
    co_loss_info    info = CO_LOSS_INFO_INIT;
    co_loss_options o = CO_LOSS_OPTIONS_INIT;
    char            long_name[200];

    CO_EXPECT_NULL(co_loss_named(ctx, "nope", NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "'nope' is no loss; the losses are mean_squared_error");
    CO_EXPECT_NULL(co_loss_named(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "is NULL");
    CO_EXPECT_NULL(co_loss_new(ctx, CO_LOSS_OWN, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "co_loss_of makes your own");
    CO_EXPECT_NULL(co_loss_new(ctx, (co_loss_kind)99, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "kind 99");
    CO_EXPECT_CODE(co_loss_describe(ctx, co_loss_named(ctx, "Huber", NULL), &info), CO_OK);
    CO_EXPECT_INT(info.kind, CO_LOSS_HUBER);
    CO_EXPECT_STR(info.name, "huber_loss");
    CO_EXPECT_STR(info.function_name, "huber");
    o.name = "mine";
    CO_EXPECT_CODE(co_loss_describe(ctx, co_loss_named(ctx, "MSE", &o), &info), CO_OK);
    CO_EXPECT_STR(info.name, "mine");
    CO_EXPECT_STR(info.class_name, "MeanSquaredError");
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    o.name = long_name;
    CO_EXPECT_NULL(co_loss_named(ctx, "MSE", &o));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "has 199 bytes");
}

static co_loss *
configured(co_context *ctx, const char *name, const char *key, co_value *value)
{
    return co_loss_from_config(ctx, name, co_dict(ctx, &key, &value, 1));
}

CO_TEST(configurations_are_checked_by_kind, "C-ARG-1")
{
    co_loss_info info = CO_LOSS_INFO_INIT;

    CO_EXPECT_NULL(configured(ctx, "bce", "axis", co_bool(ctx, true)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "option 'axis' of a loss is a host bool");
    CO_EXPECT_NULL(configured(ctx, "bce", "axis", co_int(ctx, (int64_t)1 << 40)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "must fit an int");
    CO_EXPECT_NULL(configured(ctx, "bce", "delta", co_float(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "BinaryCrossentropy has no option 'delta'");
    CO_EXPECT_NULL(configured(ctx, "bce", "nope", co_float(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no option 'nope'");
    CO_EXPECT_NULL(configured(ctx, "bce", "reduction", co_string(ctx, "average")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "'average' is no reduction");
    CO_EXPECT_NULL(configured(ctx, "bce", "dtype", co_string(ctx, "float31")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "'float31' is no dtype");
    CO_EXPECT_NULL(configured(ctx, "bce", "from_logits", co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "must be a bool");
    CO_EXPECT_NULL(configured(ctx, "bce", "label_smoothing", co_string(ctx, "a")));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "must be a number");
    CO_EXPECT_NULL(co_loss_from_config(ctx, "bce", co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "config");
    CO_EXPECT_CODE(co_loss_describe(ctx, configured(ctx, "bce", "reduction", co_none(ctx)), &info),
                   CO_OK);
    CO_EXPECT_INT(info.reduction, CO_REDUCTION_NONE);
    CO_EXPECT_NOT_NULL(
        configured(ctx, "sparse_categorical_crossentropy", "ignore_class", co_int(ctx, -1)));
    CO_EXPECT_NOT_NULL(co_loss_from_config(ctx, "bce", NULL));
}

/* --- your own --- */

static co_value *
largest_error(co_context *ctx, co_value *t, co_value *p, void *user)
{
    (void)user;
    return co_reduce_max(ctx, co_abs(ctx, co_sub(ctx, t, p)), CO_AXES(-1), false);
}

static co_value *
nothing(co_context *ctx, co_value *t, co_value *p, void *user)
{
    (void)ctx;
    (void)t;
    (void)p;
    (void)user;
    return NULL;
}

static co_value *
sum_of_pair(co_context *ctx, co_value *t, co_value *p, void *user)
{
    (void)user;
    return co_add(ctx, largest_error(ctx, co_get(ctx, t, "a"), co_get(ctx, p, "a"), NULL),
                  largest_error(ctx, co_get(ctx, t, "b"), co_get(ctx, p, "b"), NULL));
}

CO_TEST(your_own_loss_has_weights_and_reductions, "")
{
    co_loss  *loss = co_loss_of(ctx, largest_error, NULL, NULL), *pair;
    co_value *t = co_tensor(ctx, CO_INT32, CO_SHAPE(2, 2), (int[]){ 1, 2, 3, 4 });
    co_value *p = co_zeros(ctx, CO_FLOAT64, CO_SHAPE(2, 2)), *both[2];
    co_value *w = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), (float[]){ 1, 3 });

    CO_EXPECT_CLOSE(co_item_float(ctx, co_loss_call(ctx, loss, t, p, w)), (2 + 12) / 2.0, 0);
    CO_EXPECT_NULL(co_loss_call(ctx, co_loss_of(ctx, nothing, NULL, NULL), t, p, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "the function of loss 'loss' returned NULL");
    CO_EXPECT_NULL(co_loss_of(ctx, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "(fn)");
    pair = co_loss_of(ctx, sum_of_pair, NULL, NULL);
    both[0] = co_dict(ctx, (const char *[]){ "a", "b" }, (co_value *[]){ t, t }, 2);
    both[1] = co_dict(ctx, (const char *[]){ "a", "b" }, (co_value *[]){ p, p }, 2);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_loss_call(ctx, pair, both[0], both[1], NULL)), 6, 0);
}

/* --- averages --- */

static co_value *
average_weighted(co_context *ctx, co_value *args, void *user)
{
    co_average_loss_options o = CO_AVERAGE_LOSS_OPTIONS_INIT;

    o.sample_weight = co_at(ctx, args, 1);
    o.by_weight = *(bool *)user;
    return co_average_loss_with(ctx, co_at(ctx, args, 0), &o);
}

static co_value *
captured_average(co_context *ctx, co_value *args, void *user)
{
    return co_call(ctx, co_function_of(ctx, average_weighted, user, NULL), args);
}

CO_TEST_WITH(weights_count_in_the_average_of_a_step, "S-REDUCE-7", "cpus=2")
{
    co_strategy *s = co_mirrored_strategy(ctx, names, 2, NULL);
    co_value    *losses[] = { co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4), (float[]){ 1, 2, 3, 4 }),
                              co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), (float[]){ 5, 6 }) };
    co_value    *weights[] = { co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4), (float[]){ 1, 0, 2, 1 }),
                               co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), (float[]){ 4, 0 }) };
    co_value    *args = co_args(ctx, co_per_replica_value(ctx, losses, 2),
                                co_per_replica_value(ctx, weights, 2));

    for (int c = 0; c < 4; ++c) {
        bool      by_weight = (c & 1) != 0;
        co_value *shares = co_run(ctx, s, (c & 2) != 0 ? captured_average : average_weighted, args,
                                  &by_weight);

        CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, shares, NULL, 0)),
                        (1 + 6 + 4 + 20) / (by_weight ? 8.0 : 6.0), 1e-6);
    }
}

CO_TEST(weights_of_an_average_must_fit, "")
{
    co_average_loss_options o = CO_AVERAGE_LOSS_OPTIONS_INIT;
    co_value               *losses = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 2));

    o.sample_weight = co_float(ctx, 0.5);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_average_loss_with(ctx, losses, &o)), 1, 1e-7);
    o.by_weight = true;
    CO_EXPECT_NULL(co_average_loss_with(ctx, losses, &o));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "give one weight per example");
    o.sample_weight = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3, 1));
    CO_EXPECT_CLOSE(co_item_float(ctx, co_average_loss_with(ctx, losses, &o)), 0, 0);
    o.sample_weight = co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1));
    CO_EXPECT_NULL(co_average_loss_with(ctx, losses, &o));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "sample_weight has shape [1]");
    o.sample_weight = NULL;
    CO_EXPECT_CLOSE(co_item_float(ctx, co_average_loss_with(ctx, losses, &o)), 2, 1e-7);
}

static co_value *
average_of_size(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_compute_average_loss(ctx, co_at(ctx, args, 0), NULL, co_at(ctx, args, 1));
}

/* A size that is not known while the function is captured. */
CO_TEST(batch_sizes_are_checked_when_they_are_known, "")
{
    co_function_options o = CO_FUNCTION_OPTIONS_INIT;
    co_value           *losses = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3));
    co_function        *f;

    o.signature = co_args(ctx, co_spec(ctx, CO_FLOAT32, CO_SHAPE(-1)),
                          co_spec(ctx, CO_INT32, NULL, 0));
    f = co_function_of(ctx, average_of_size, NULL, &o);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, f, co_args(ctx, losses, co_int(ctx, 6)))), 0.5,
                    0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_call(ctx, f, co_args(ctx, losses, co_int(ctx, 0)))), 0,
                    0);
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, losses, co_int(ctx, -2))));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "global_batch_size must not be negative");
}

/* --- class weights --- */

CO_TEST(classes_that_are_not_listed_weigh_one, "")
{
    static const int64_t classes[] = { 2, 0, -1 };
    static const double  weights[] = { 0.5, 3, 7 };

    co_value     *ids = co_tensor(ctx, CO_INT64, CO_SHAPE(5, 1),
                                  (int64_t[]){ 0, 1, 2, INT64_MIN, INT64_MAX });
    co_value     *reals = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), (float[]){ -0.6f, 1.6f, NAN });
    co_value     *hot = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 3), (float[]){ 0, 0, 1, 1, 0, 0 });
    const double *seen = doubles(ctx, co_class_sample_weight(ctx, ids, classes, weights, 3));

    CO_EXPECT_CLOSE(seen[0], 3, 0);
    CO_EXPECT_CLOSE(seen[1], 1, 0);
    CO_EXPECT_CLOSE(seen[2], 0.5, 0);
    CO_EXPECT_CLOSE(seen[3], 1, 0);
    CO_EXPECT_CLOSE(seen[4], 1, 0);
    seen = doubles(ctx, co_class_sample_weight(ctx, reals, classes, weights, 3));
    CO_EXPECT_CLOSE(seen[0], 7, 0);
    CO_EXPECT_CLOSE(seen[1], 0.5, 0);
    CO_EXPECT_CLOSE(seen[2], 1, 0);
    seen = doubles(ctx, co_class_sample_weight(ctx, hot, classes, weights, 3));
    CO_EXPECT_CLOSE(seen[0], 0.5, 0);
    CO_EXPECT_CLOSE(seen[1], 3, 0);
    CO_EXPECT_CLOSE(doubles(ctx, co_class_sample_weight(ctx, hot, NULL, NULL, 0))[1], 1, 0);
}

CO_TEST(class_weights_that_cannot_be_are_refused, "C-ARG-1")
{
    co_value *ids = co_zeros(ctx, CO_INT64, CO_SHAPE(2));

    CO_EXPECT_NULL(co_class_sample_weight(ctx, ids, (int64_t[]){ 3, 3 }, (double[]){ 1, 2 }, 2));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "class 3 is listed twice");
    CO_EXPECT_NULL(co_class_sample_weight(ctx, ids, (int64_t[]){ 3 }, (double[]){ NAN }, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "the weight of class 3");
    CO_EXPECT_NULL(co_class_sample_weight(ctx, ids, (int64_t[]){ INT64_MIN, INT64_MAX },
                                          (double[]){ 1, 2 }, 2));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "apart");
    CO_EXPECT_NULL(
        co_class_sample_weight(ctx, co_int(ctx, 1), (int64_t[]){ 3 }, (double[]){ 1 }, 1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "y_true is a scalar");
    CO_EXPECT_NULL(co_class_sample_weight(ctx, ids, NULL, NULL, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "classes");
}

/* --- training --- */

typedef struct linear {
    co_value     *w;
    co_optimizer *sgd;
    co_loss      *loss;
    co_function  *captured;
} linear;

static co_value *
train_line(co_context *ctx, co_value *args, void *user)
{
    const linear *l = user;
    co_value     *loss;

    co_tape_begin(ctx);
    loss = co_loss_call(ctx, l->loss, co_at(ctx, args, 0),
                        co_matmul(ctx, co_at(ctx, args, 1), l->w), NULL);
    co_minimize(ctx, l->sgd, loss);
    return loss;
}

static co_value *
train_line_captured(co_context *ctx, co_value *args, void *user)
{
    return co_call(ctx, ((const linear *)user)->captured, args);
}

/* The weights after two passes over five examples, in batches of five split over the replicas. */
static void
trained(co_context *ctx, co_loss *loss, int replicas, bool is_captured, double *out)
{
    batch        b = batch_of(&rows[0]);
    co_strategy *s = co_mirrored_strategy(ctx, names, (size_t)replicas, NULL);
    co_value    *all = co_args(ctx, tensor(ctx, CO_FLOAT64, b.t, 0, 5, 2),
                               tensor(ctx, CO_FLOAT64, b.p, 0, 5, COLS));
    co_dataset  *data = co_dataset_repeat(ctx, co_dataset_from_tensor_slices(ctx, all), 2);
    co_iterator *it = co_iterate(
        ctx, co_distribute_dataset(ctx, s, co_dataset_batch(ctx, data, 5, false), NULL));
    linear l = { .sgd = co_sgd(ctx, NULL), .loss = loss };

    CO_SCOPE(ctx, s) {
        l.w = co_variable(ctx, co_ones(ctx, CO_FLOAT64, CO_SHAPE(COLS, 2)), NULL);
    }
    l.captured = co_function_of(ctx, train_line, &l, NULL);
    for (int step = 0; step < 2; ++step)
        co_run(ctx, s, is_captured ? train_line_captured : train_line, co_next(ctx, it), &l);
    CO_EXPECT_OK(ctx);
    memcpy(out, doubles(ctx, co_variable_read(ctx, l.w)), COLS * 2 * sizeof(*out));
}

CO_TEST_WITH(replicas_train_as_one_captured_or_not, "S-REDUCE-7 DS-PART-2", "cpus=4")
{
    co_loss_options o = options_of(&rows[0], CO_FLOAT64);
    co_loss        *loss = co_loss_new(ctx, rows[0].kind, &o);
    double          one[COLS * 2], eager[COLS * 2], captured[COLS * 2];

    trained(ctx, loss, 1, false, one);
    for (int n = 2; n <= 4; ++n) {
        trained(ctx, loss, n, false, eager);
        trained(ctx, loss, n, true, captured);
        CO_EXPECT_BYTES(captured, eager, sizeof(eager));
        for (int i = 0; i < COLS * 2; ++i)
            CO_EXPECT_CLOSE(eager[i], one[i], 1e-13);
    }
}

/* --- a mean of each replica --- */

typedef struct mean_step {
    co_value     *w;
    co_optimizer *sgd;
    int           how; /* 0: mean; 1: over the axes 0 and 1; 2: co_average_loss; 3: sum */
    co_function  *captured;
} mean_step;

static co_value *
descend(co_context *ctx, co_value *args, void *user)
{
    const mean_step *m = user;
    co_value        *x = co_at(ctx, args, 0), *losses, *loss;

    co_tape_begin(ctx);
    losses = co_square(ctx, co_mul(ctx, x, m->w));
    if (m->how == 0)
        loss = co_reduce_mean(ctx, losses, CO_ALL_AXES, false);
    else if (m->how == 1)
        loss = co_reduce_mean(ctx, co_expand_dims(ctx, losses, -1), CO_AXES(0, 1), false);
    else if (m->how == 2)
        loss = co_average_loss(ctx, losses);
    else
        loss = co_reduce_sum(ctx, losses, CO_ALL_AXES, false);
    co_minimize(ctx, m->sgd, loss);
    return NULL;
}

static co_value *
descend_captured(co_context *ctx, co_value *args, void *user)
{
    return co_call(ctx, ((const mean_step *)user)->captured, args);
}

typedef struct heard {
    atomic_int n;
    char       text[600];
} heard;

static void
hear(co_log_level level, const char *line, void *user)
{
    heard *h = user;

    if (level == CO_LOG_WARNING && strstr(line, "minimize: the loss is the mean") != NULL) {
        atomic_fetch_add(&h->n, 1);
        snprintf(h->text, sizeof(h->text), "%s", line);
    }
}

/* Lines of the log after three steps of `batch` examples each. */
static int
warnings(int how, int batch_size, bool is_captured, char *text)
{
    co_options  opening = CO_OPTIONS_INIT;
    heard       h = { .text = "" };
    mean_step   m = { .how = how };
    co_context *ctx;

    opening.settings = "cpus=2, log=warning";
    opening.log = hear;
    opening.log_user = &h;
    ctx = co_open_with(&opening);
    {
        co_strategy *s = co_mirrored_strategy(ctx, names, 2, NULL);
        co_dataset  *data = co_dataset_batch(
             ctx,
             co_dataset_from_tensor_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(3 * batch_size))),
             batch_size, false);
        co_iterator *it = co_iterate(ctx, co_distribute_dataset(ctx, s, data, NULL));

        CO_SCOPE(ctx, s) {
            m.w = co_variable(ctx, co_scalar_float(ctx, 1), NULL);
        }
        m.sgd = co_sgd(ctx, NULL);
        m.captured = co_function_of(ctx, descend, &m, NULL);
        for (int step = 0; step < 3; ++step)
            co_run(ctx, s, is_captured ? descend_captured : descend, co_args(ctx, co_next(ctx, it)),
                   &m);
    }
    CO_EXPECT_OK(ctx);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    if (text != NULL)
        snprintf(text, sizeof(h.text), "%s", h.text);
    return atomic_load(&h.n);
}

CO_TEST_BARE(a_mean_over_unequal_counts_is_said_once, "")
{
    char text[600];

    for (int captured = 0; captured < 2; ++captured) {
        CO_EXPECT_INT(warnings(0, 5, captured != 0, text), 1);
        CO_EXPECT_CONTAINS(text, "the step has 5 on 2 replicas");
        CO_EXPECT_CONTAINS(text, "co_average_loss");
        CO_EXPECT_INT(warnings(1, 5, captured != 0, NULL), 1);
        CO_EXPECT_INT(warnings(0, 4, captured != 0, NULL), 0);
        CO_EXPECT_INT(warnings(2, 5, captured != 0, NULL), 0);
        CO_EXPECT_INT(warnings(3, 5, captured != 0, NULL), 0);
    }
}

/* --- want of memory --- */

static bool
use_losses(co_context *ctx)
{
    static const int64_t classes[] = { 1 };
    static const double  class_weights[] = { 2 };

    for (int k = 0; k < NUM_ROWS; k += 5) {
        batch           b = batch_of(&rows[k]);
        co_loss_options o = options_of(&rows[k], CO_FLOAT64);
        world           w = { .has_weights = true, .has_mask = true };

        w.loss = co_loss_new(ctx, rows[k].kind, &o);
        loss_and_gradient(ctx, arguments(ctx, &b, 0, ROWS), &w);
    }
    co_class_sample_weight(ctx, co_zeros(ctx, CO_INT64, CO_SHAPE(3)), classes, class_weights, 1);
    configured(ctx, "bce", "axis", co_int(ctx, -1));
    return co_ok(ctx);
}

CO_TEST_BARE(losses_survive_want_of_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", use_losses);
}
