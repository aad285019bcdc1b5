/* SPDX-License-Identifier: Apache-2.0 */
/* Training: losses over the examples there are, SGD, and the same bits wherever the replicas
 * live. */
#include "test.h"

static const char *const names[] = { "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3" };

static co_strategy *
mirrored(co_context *ctx, int replicas, size_t devices)
{
    co_mirrored_options options = CO_MIRRORED_OPTIONS_INIT;

    options.num_replicas = replicas;
    return co_mirrored_strategy(ctx, names, devices, &options);
}

/* --- average loss --- */

static co_value *
average(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *loss;

    (void)user;
    co_tape_begin(ctx);
    co_watch(ctx, x);
    loss = co_average_loss(ctx, co_square(ctx, x));
    return co_args(ctx, loss, co_gradient(ctx, loss, x));
}

CO_TEST_WITH(shares_of_the_average_loss_add_up_to_the_mean, "S-REDUCE-7", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2, 2);
    co_value    *parts[] = { co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4), (float[]){ 1, 2, 3, 4 }),
                             co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), (float[]){ 5, 6 }) };
    co_value    *empty[] = { parts[0], co_zeros(ctx, CO_FLOAT32, CO_SHAPE(0)) }, *r, *loss;

    r = co_run(ctx, m, average, co_args(ctx, co_per_replica_value(ctx, parts, 2)), NULL);
    loss = co_reduce(ctx, m, CO_REDUCE_SUM, co_at(ctx, r, 0), NULL, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, loss), (1 + 4 + 9 + 16 + 25 + 36) / 6.0, 1e-5);
    CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, co_at(ctx, co_at(ctx, r, 1), 1)))[1],
                    2 * 6 / 6.0, 1e-6);
    r = co_run(ctx, m, average, co_args(ctx, co_per_replica_value(ctx, empty, 2)), NULL);
    loss = co_reduce(ctx, m, CO_REDUCE_SUM, co_at(ctx, r, 0), NULL, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, loss), 7.5,
                    1e-6); /* an empty replica counts nothing, and nobody hangs */
}

/* Two losses per example; user: how many all replicas have together, 0: not said. */
static co_value *
average_of_pairs(co_context *ctx, co_value *args, void *user)
{
    int64_t   all = *(const int64_t *)user;
    co_value *x = co_at(ctx, args, 0);

    if (all > 0)
        co_set_step_examples(ctx, all);
    return co_average_loss(ctx, co_concat(ctx, co_args(ctx, x, x), 0));
}

CO_TEST_WITH(losses_that_are_not_one_per_example_are_no_silent_mean, "", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2, 2);
    co_value    *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(6), (float[]){ 1, 2, 3, 4, 5, 6 }), *batch;
    int64_t      none = 0, twelve = 12;
    co_dataset  *dataset = co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, x), 6, false);

    batch = co_next(ctx, co_iterate(ctx, co_distribute_dataset(ctx, m, dataset, NULL)));
    CO_EXPECT_NULL(co_run(ctx, m, average_of_pairs, co_args(ctx, batch), &none));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR,
                    "given 6 losses, but the input has 3 examples on this replica");
    x = co_run(ctx, m, average_of_pairs, co_args(ctx, batch), &twelve);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, x, NULL, 0)), 3.5, 1e-6);
}

/* user: an optimizer. There is no variable. */
static co_value *
descend_without(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_tape_begin(ctx);
    co_minimize(ctx, user, co_scalar_float(ctx, 1));
    return NULL;
}

CO_TEST_WITH(errors_name_the_call_of_the_user, "", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2, 2);

    CO_EXPECT_NULL(co_run(ctx, m, descend_without, co_no_args(ctx), co_sgd(ctx, NULL)));
    CO_EXPECT_STR(co_error(ctx)->call, "minimize");
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no trainable variable");
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, co_string(ctx, "a"), NULL, 0));
    CO_EXPECT_STR(co_error(ctx)->call, "reduce");
    co_clear(ctx);
}

/* --- SGD against its formula --- */

static co_value *
descend(co_context *ctx, co_value *args, void *user)
{
    co_value **pair = user;

    (void)args;
    co_tape_begin(ctx);
    co_minimize(ctx, (co_optimizer *)(void *)pair[1], co_square(ctx, pair[0])); /* gradient 2 v */
    return NULL;
}

CO_TEST(sgd_follows_its_formulas, "")
{
    static const struct {
        double momentum;
        bool   nesterov;
    } cases[] = { { 0, false }, { 0.5, false }, { 0.5, true } };

    for (size_t c = 0; c < 3; ++c) {
        co_sgd_options options = CO_SGD_OPTIONS_INIT;
        co_value      *v = co_variable(ctx, co_scalar_double(ctx, 1), NULL), *pair[2];
        co_optimizer  *sgd;
        double         expected = 1, m = 0;

        options.learning_rate = 0.125;
        options.momentum = cases[c].momentum;
        options.nesterov = cases[c].nesterov;
        sgd = co_sgd(ctx, &options);
        pair[0] = v;
        pair[1] = (co_value *)(void *)sgd;
        for (int step = 0; step < 5; ++step) {
            double g = 2 * expected;

            m = options.momentum * m - options.learning_rate * g;
            expected += cases[c].momentum == 0 ? -options.learning_rate * g
                        : cases[c].nesterov    ? options.momentum * m - options.learning_rate * g
                                               : m;
            descend(ctx, NULL, pair);
            CO_EXPECT_CLOSE(co_item_float(ctx, v), expected, 1e-12);
        }
        CO_EXPECT_INT(co_optimizer_iterations(ctx, sgd), 5);
    }
}

/* Each finds its own momentum, however many there are. */
CO_TEST(many_variables_keep_their_slots_apart, "")
{
    enum { MANY = 300 };
    co_sgd_options options = CO_SGD_OPTIONS_INIT;
    co_value      *variables[MANY], *gradients[MANY];
    co_optimizer  *sgd;

    options.learning_rate = 1;
    options.momentum = 0.5;
    sgd = co_sgd(ctx, &options);
    for (int i = 0; i < MANY; ++i) {
        variables[i] = co_variable(ctx, co_scalar_double(ctx, 0), NULL);
        gradients[i] = co_scalar_double(ctx, i);
    }
    for (int step = 0; step < 2; ++step)
        co_apply_gradients(ctx, sgd, co_list(ctx, gradients, MANY), co_list(ctx, variables, MANY));
    for (int i = 0; i < MANY; ++i) /* -g, then -(g + g / 2) */
        CO_EXPECT_CLOSE(co_item_float(ctx, variables[i]), -2.5 * i, 0);
}

CO_TEST(misuse_of_optimizers_is_reported, "")
{
    co_sgd_options options = CO_SGD_OPTIONS_INIT;
    co_optimizer  *sgd = co_sgd(ctx, NULL);
    co_value      *v = co_variable(ctx, co_int(ctx, 1), NULL), *g = co_float(ctx, 1);

    CO_EXPECT_CODE(co_minimize(ctx, sgd, co_float(ctx, 1)), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "co_tape_begin");
    co_tape_begin(ctx);
    CO_EXPECT_CODE(co_minimize(ctx, sgd, co_scalar_float(ctx, 1)), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no trainable variable"); /* and the tape has ended */
    CO_EXPECT_CODE(co_apply_gradients(ctx, sgd, co_list(ctx, &g, 1), co_list(ctx, &v, 1)),
                   CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "int32");
    CO_EXPECT_CODE(co_apply_gradients(ctx, sgd, co_list(ctx, &g, 1), co_list(ctx, &g, 1)),
                   CO_TYPE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "item 0");
    CO_EXPECT_CODE(co_apply_gradients(ctx, NULL, co_list(ctx, &g, 1), co_list(ctx, &v, 1)),
                   CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "optimizer");
    options.momentum = 2;
    CO_EXPECT_NULL(co_sgd(ctx, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "momentum is 2");
    options.momentum = 0;
    options.learning_rate = NAN;
    CO_EXPECT_NULL(co_sgd(ctx, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "learning_rate");
}

/* --- Adam --- */

enum { NUM_WEIGHTS = 3, NUM_STEPS = 3 };
static const double first_weights[NUM_WEIGHTS] = { 1, -2, 3 };
static const double some_gradients[NUM_STEPS][NUM_WEIGHTS] = { { 0.5, -1, 0 },
                                                               { 0.25, 2, 1e-3 },
                                                               { -1, 0.125, 4 } };

static co_value *
numbers(co_context *ctx, co_dtype dtype, const double *data, int64_t n)
{
    return co_cast(ctx, co_tensor(ctx, CO_FLOAT64, &n, 1, data), dtype);
}

static void
expect_weights(co_context *ctx, co_value *variable, const double *expected, double tolerance)
{
    co_value     *read = co_cast(ctx, co_variable_read(ctx, variable), CO_FLOAT64);
    const double *got = co_value_data(ctx, read);

    for (int i = 0; i < NUM_WEIGHTS; ++i)
        CO_EXPECT_CLOSE(got[i], expected[i], tolerance);
}

/* After three steps, computed apart from this library in float64. */
CO_TEST(adam_follows_its_formula, "")
{
    static const struct {
        co_adam_options options;
        double          weights[NUM_WEIGHTS];
    } cases[] = {
        { CO_ADAM_OPTIONS_INIT, { 0.998274188418, -1.999684339568, 2.998619252118 } },
        { { sizeof(co_adam_options), 0.1, 0.9, 0.99, 0.01, 0, false },
          { 0.856461266610, -1.974567877083, 2.937207992041 } },
        { { sizeof(co_adam_options), 0.1, 0.9, 0.99, 0.01, 0.1, false },
          { 0.829209922261, -1.916625025841, 2.848112343128 } },
    };

    for (size_t c = 0; c < 3; ++c)
        for (int is_double = 0; is_double < 2; ++is_double) {
            co_dtype  dtype = is_double == 1 ? CO_FLOAT64 : CO_FLOAT32;
            co_value *w = co_variable(ctx, numbers(ctx, dtype, first_weights, NUM_WEIGHTS), NULL);
            co_optimizer *adam = co_adam(ctx, c == 0 ? NULL : &cases[c].options);

            for (int step = 0; step < NUM_STEPS; ++step) {
                co_value *g = numbers(ctx, dtype, some_gradients[step], NUM_WEIGHTS);

                co_apply_gradients(ctx, adam, co_list(ctx, &g, 1), co_list(ctx, &w, 1));
            }
            expect_weights(ctx, w, cases[c].weights, is_double == 1 ? 1e-12 : 1e-6);
            CO_EXPECT_INT(co_optimizer_iterations(ctx, adam), NUM_STEPS);
        }
}

/* Against the formula in float64 for a while, over more elements than a vector has, with the power
 * of the C library. */
CO_TEST(adam_stays_with_its_formula, "")
{
    enum { N = 37 };
    co_adam_options o = CO_ADAM_OPTIONS_INIT;
    double          w[N], m[N] = { 0 }, v[N] = { 0 };
    co_value       *variable;
    co_optimizer   *adam;

    o.learning_rate = 0.01;
    for (int i = 0; i < N; ++i)
        w[i] = i - 20;
    variable = co_variable(ctx, numbers(ctx, CO_FLOAT64, w, N), NULL);
    adam = co_adam(ctx, &o);
    for (int t = 1; t <= 200; ++t)
        CO_BLOCK(ctx) {
            co_value     *pair[2] = { variable, (co_value *)(void *)adam };
            const double *got;

            descend(ctx, NULL, pair); /* of w^2 */
            for (int i = 0; i < N; ++i) {
                double g = 2 * w[i];

                m[i] = o.beta_1 * m[i] + (1 - o.beta_1) * g;
                v[i] = o.beta_2 * v[i] + (1 - o.beta_2) * g * g;
                w[i] -= o.learning_rate * sqrt(1 - pow(o.beta_2, t)) / (1 - pow(o.beta_1, t)) *
                        m[i] / (sqrt(v[i]) + o.epsilon);
            }
            got = co_value_data(ctx, co_variable_read(ctx, variable));
            for (int i = 0; i < N; ++i)
                CO_EXPECT_CLOSE(got[i], w[i], 1e-10);
        }
}

/* A variable of several chunks: a hash of it after three updates. */
static uint64_t
update_large(const char *settings, co_dtype dtype, int which)
{
    co_context    *ctx = co_open(settings);
    co_sgd_options o = CO_SGD_OPTIONS_INIT;
    int64_t        n = 3 * 65536 + 7;
    co_value      *v, *g;
    co_optimizer  *optimizer;
    const uint8_t *bytes;
    uint64_t       hash = 5;

    o.momentum = which == 0 ? 0 : 0.5;
    o.nesterov = which == 2;
    optimizer = which == 3 ? co_adam(ctx, NULL) : co_sgd(ctx, &o);
    co_set_seed(ctx, 3);
    v = co_variable(ctx, co_random_uniform(ctx, dtype, &n, 1, -1, 1), NULL);
    for (int step = 0; step < 3; ++step) {
        g = co_random_uniform(ctx, dtype, &n, 1, -1, 1);
        co_apply_gradients(ctx, optimizer, co_list(ctx, &g, 1), co_list(ctx, &v, 1));
    }
    bytes = co_value_data(ctx, co_variable_read(ctx, v));
    for (size_t i = 0; bytes != NULL && i < (size_t)n * co_dtype_size(dtype); ++i)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return hash;
}

CO_TEST_BARE(updates_have_the_same_bits_with_any_threads_and_instruction_set, "")
{
    for (int which = 0; which < 4; ++which)
        for (int d = 0; d < 2; ++d) {
            co_dtype dtype = d == 0 ? CO_FLOAT32 : CO_FLOAT64;
            uint64_t one = update_large("threads=1", dtype, which);

            CO_EXPECT_TRUE(update_large("threads=2", dtype, which) == one);
            CO_EXPECT_TRUE(update_large("threads=3", dtype, which) == one);
            CO_EXPECT_TRUE(update_large("threads=1, isa=base", dtype, which) == one);
        }
}

/* Beyond the first chunk, elements and slots are those of their own place. */
CO_TEST(chunks_of_an_update_do_not_mix, "")
{
    enum { N = 2 * 65536 + 5 };
    static float   gradient[N];
    int64_t        n = N;
    co_sgd_options o = CO_SGD_OPTIONS_INIT;
    co_value      *v = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, &n, 1), NULL), *g;
    co_optimizer  *sgd;
    const float   *got;

    o.learning_rate = 1;
    o.momentum = 0.5;
    sgd = co_sgd(ctx, &o);
    for (int i = 0; i < N; ++i)
        gradient[i] = (float)i;
    g = co_tensor(ctx, CO_FLOAT32, &n, 1, gradient);
    for (int step = 0; step < 2; ++step) /* -g, then -(g + g / 2) */
        co_apply_gradients(ctx, sgd, co_list(ctx, &g, 1), co_list(ctx, &v, 1));
    got = co_value_data(ctx, co_variable_read(ctx, v));
    for (int i = 0; i < N; ++i)
        if (got[i] != -2.5F * (float)i) {
            CO_FAIL("element %d is %g", i, (double)got[i]);
            break;
        }
    CO_EXPECT_TRUE(co_ok(ctx));
}

/* Rows that are not named decay as zeros do, and one that is named once is as in a dense gradient;
 * of one that is named twice the squares count each, as in Keras. */
CO_TEST(adam_takes_slices_with_and_without_a_dense_shape, "")
{
    static const double  rows[] = { 1, 2, 3, 4, 5, 6 }, dense[] = { 0, 0, 4, 6, 5, 6 };
    static const int64_t at[] = { 1, 1, 2 };
    co_optimizer        *adam[3] = { co_adam(ctx, NULL), co_adam(ctx, NULL), co_adam(ctx, NULL) };
    co_value            *w[3], *gradients[3];
    const double        *seen[3];

    gradients[0] = co_slices(ctx, co_tensor(ctx, CO_FLOAT64, CO_SHAPE(3, 2), rows),
                             co_tensor(ctx, CO_INT64, CO_SHAPE(3), at),
                             co_tensor(ctx, CO_INT64, CO_SHAPE(2), (int64_t[]){ 3, 2 }));
    gradients[1] = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(3, 2), dense);
    gradients[2] = co_slices(ctx, co_slices_values(ctx, gradients[0]),
                             co_slices_indices(ctx, gradients[0]), NULL);
    for (int i = 0; i < 3; ++i) {
        w[i] = co_variable(ctx, co_ones(ctx, CO_FLOAT64, CO_SHAPE(3, 2)), NULL);
        for (int step = 0; step < 3; ++step)
            co_apply_gradients(ctx, adam[i], co_list(ctx, &gradients[i], 1),
                               co_list(ctx, &w[i], 1));
    }
    CO_EXPECT_OK(ctx);
    for (int i = 0; i < 3; ++i)
        seen[i] = co_value_data(ctx, co_variable_read(ctx, w[i]));
    CO_EXPECT_BYTES(seen[2], seen[0], 6 * sizeof(double));
    CO_EXPECT_BYTES(seen[1], seen[0], 2 * sizeof(double));
    CO_EXPECT_BYTES(seen[1] + 4, seen[0] + 4, 2 * sizeof(double));
    CO_EXPECT_LESS(seen[0][2],
                   seen[1][2]); /* 1 + 9 is less than (1 + 3)^2, so the step is longer */
}

/* A gradient that is found wrong only when it is made dense comes too late for none of the others.
 */
CO_TEST(a_gradient_that_does_not_fit_changes_no_variable, "")
{
    co_optimizer *sgd = co_sgd(ctx, NULL);
    co_value     *one = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2)), *w[2], *bad[3];

    for (int i = 0; i < 2; ++i)
        w[i] = co_variable(ctx, one, NULL);
    bad[0] = co_slices(ctx, one, co_tensor(ctx, CO_INT32, CO_SHAPE(2), (int32_t[]){ 0, 7 }),
                       co_tensor(ctx, CO_INT32, CO_SHAPE(1), (int32_t[]){ 2 }));
    bad[1] = co_slices(ctx, co_slices_values(ctx, bad[0]), co_slices_indices(ctx, bad[0]), NULL);
    bad[2] = co_int(ctx, 1);
    for (int i = 0; i < 3; ++i) {
        CO_EXPECT_CODE(co_apply_gradients(ctx, sgd, co_args(ctx, one, bad[i]),
                                          co_args(ctx, w[0], w[1])),
                       CO_INVALID_ARGUMENT);
        co_clear(ctx);
        CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, co_variable_read(ctx, w[0])))[0], 1, 0);
        CO_EXPECT_INT(co_optimizer_iterations(ctx, sgd), 0);
    }
}

static co_value *
descend_twice(co_context *ctx, co_value *args, void *user)
{
    descend(ctx, args, user);
    if (co_replica_id(ctx) == 1)
        co_matmul(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(200, 200)),
                  co_ones(ctx, CO_FLOAT32, CO_SHAPE(200, 200))); /* late for the second */
    return descend(ctx, args, user);
}

/* Replicas count their steps alike though none waits for another, several in one run, also where a
 * strategy takes an optimizer over. */
CO_TEST_WITH(adam_counts_the_same_steps_on_every_replica, "", "cpus=2")
{
    enum { BEFORE = 5, RUNS = 40 };
    co_adam_options o = CO_ADAM_OPTIONS_INIT;
    co_optimizer   *adam = co_adam(ctx, &o);
    co_strategy    *one = mirrored(ctx, 1, 1), *four = mirrored(ctx, 4, 2);
    co_value       *first[2] = { NULL, (co_value *)(void *)adam }, *parts;
    co_value       *second[2] = { NULL, first[1] };
    double          w = 3, m = 0, v = 0;

    CO_SCOPE(ctx, one) {
        first[0] = co_variable(ctx, co_scalar_double(ctx, 3), NULL);
    }
    CO_SCOPE(ctx, four) {
        second[0] = co_variable(ctx, co_scalar_double(ctx, 3), NULL);
    }
    for (int run = 0; run < BEFORE; ++run)
        co_run(ctx, one, descend, co_no_args(ctx), first);
    for (int run = 0; run < RUNS; ++run)
        co_run(ctx, four, descend_twice, co_no_args(ctx), second);
    for (int t = BEFORE + 1; t <= BEFORE + 2 * RUNS; ++t) {
        double g = 8 * w; /* four replicas */

        m += (g - m) * (1 - o.beta_1);
        v += (g * g - v) * (1 - o.beta_2);
        w -= o.learning_rate * sqrt(1 - pow(o.beta_2, t)) / (1 - pow(o.beta_1, t)) * m /
             (sqrt(v) + o.epsilon);
    }
    parts = co_local_results(ctx, four, second[0]);
    for (size_t r = 0; r < 4; ++r)
        CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, parts, r)), w, 1e-12);
    CO_EXPECT_INT(co_optimizer_iterations(ctx, adam), BEFORE + 2 * RUNS);
    CO_EXPECT_OK(ctx);
}

CO_TEST(adam_refuses_numbers_that_cannot_be, "")
{
    static const struct {
        co_adam_options options;
        const char     *part;
    } bad[] = {
        { { sizeof(co_adam_options), NAN, 0.9, 0.9, 1e-7, 0, false }, "learning_rate is nan" },
        { { sizeof(co_adam_options), 1, 1, 0.9, 1e-7, 0, false }, "beta_1 is 1" },
        { { sizeof(co_adam_options), 1, 0.9, -1, 1e-7, 0, false }, "beta_2 -1" },
        { { sizeof(co_adam_options), 1, 0.9, 0.9, -2, 0, false }, "epsilon is -2" },
        { { sizeof(co_adam_options), 1, 0.9, 0.9, INFINITY, 0, false }, "epsilon is inf" },
        { { sizeof(co_adam_options), 1, 0.9, 0.9, 1e-7, INFINITY, false }, "weight_decay inf" },
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        CO_EXPECT_NULL(co_adam(ctx, &bad[i].options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, bad[i].part);
    }
}

/* --- a network on uneven data --- */

typedef struct model {
    co_value     *w1, *b1, *w2, *b2;
    co_optimizer *optimizer;
} model;

static co_value *
weights(co_context *ctx, int64_t rows, int64_t columns)
{
    return co_variable(ctx, co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(rows, columns), 0, 0.2),
                       NULL);
}

static model
make_model(co_context *ctx, co_strategy *strategy, bool with_adam)
{
    co_sgd_options  options = CO_SGD_OPTIONS_INIT;
    co_adam_options adam = CO_ADAM_OPTIONS_INIT;
    model           m = { NULL, NULL, NULL, NULL, NULL };

    options.learning_rate = 0.1;
    options.momentum = 0.9;
    adam.learning_rate = 0.02;
    adam.weight_decay = 0.01;
    CO_SCOPE(ctx, strategy) {
        m.w1 = weights(ctx, 16, 24);
        m.b1 = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(24)), NULL);
        m.w2 = weights(ctx, 24, 5);
        m.b2 = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(5)), NULL);
        m.optimizer = with_adam ? co_adam(ctx, &adam) : co_sgd(ctx, &options);
    }
    return m;
}

static co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *x = co_at(ctx, args, 0), *y = co_at(ctx, args, 1), *h, *logits, *loss;

    co_tape_begin(ctx);
    h = co_relu(ctx, co_add(ctx, co_matmul(ctx, x, m->w1), m->b1));
    logits = co_add(ctx, co_matmul(ctx, h, m->w2), m->b2);
    loss = co_average_loss(ctx, co_sparse_softmax_cross_entropy(ctx, y, logits));
    co_minimize(ctx, m->optimizer, loss);
    return loss;
}

/* 37 examples of noise with a pattern, in batches of 10: the last one has 7, which no number of
 * replicas divides. */
static co_dataset *
make_data(co_context *ctx)
{
    co_value *x = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(37, 16), -1, 1);
    co_value *y = co_argmax(ctx, co_slice(ctx, x, (int64_t[]){ 0, 0 }, (int64_t[]){ 37, 5 }, 2), 1,
                            CO_INT64);

    return co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, co_args(ctx, x, y)), 10, false);
}

static uint64_t
hash_of(co_context *ctx, co_value *variable, uint64_t hash)
{
    co_value            *tensor = co_variable_read(ctx, variable);
    const unsigned char *bytes = co_value_data(ctx, tensor);
    size_t               n = (size_t)co_value_num_elements(ctx, tensor) * sizeof(float);

    for (size_t i = 0; i < n; ++i)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Train and hash the weights; *loss is the mean loss of the last step. */
static uint64_t
train(const char *settings, int replicas, size_t devices, int epochs, bool with_adam, double *loss)
{
    co_context  *ctx = co_open(settings);
    co_strategy *strategy = mirrored(ctx, replicas, devices);
    uint64_t     hash = UINT64_C(1469598103934665603);
    co_dataset  *data;
    model        m;

    co_set_seed(ctx, 5);
    m = make_model(ctx, strategy, with_adam);
    data = co_distribute_dataset(ctx, strategy, make_data(ctx), NULL);
    for (int epoch = 0; epoch < epochs; ++epoch)
        CO_BLOCK(ctx) {
            co_iterator *it = co_iterate(ctx, data);
            co_value    *batch;

            while ((batch = co_next(ctx, it)) != NULL)
                *loss = co_item_float(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM,
                                                     co_run(ctx, strategy, train_step, batch, &m),
                                                     NULL, 0));
        }
    hash = hash_of(ctx, m.w1, hash);
    hash = hash_of(ctx, m.b1, hash);
    hash = hash_of(ctx, m.w2, hash);
    hash = hash_of(ctx, m.b2, hash);
    CO_EXPECT_INT(co_optimizer_iterations(ctx, m.optimizer), epochs * 4);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return hash;
}

CO_TEST_BARE(the_same_bits_on_any_number_of_devices, "S-LOOP-1 S-REDUCE-9")
{
    static const char *const settings[] = { "cpus=4", "cpus=4, threads=1", "cpus=4, threads=8" };
    double                   loss = 9, other = 0;

    for (int adam = 0; adam < 2; ++adam) {
        uint64_t hash = train("cpus=1", 4, 1, 50, adam == 1, &loss);

        CO_EXPECT_LESS(loss, 0.5);
        for (size_t s = 0; s < 3; ++s)
            for (size_t devices = 1; devices <= 4; ++devices) {
                CO_EXPECT_TRUE(train(settings[s], 4, devices, 50, adam == 1, &other) == hash);
                CO_EXPECT_CLOSE(other, loss, 0);
            }
    }
}

/* Uneven batches must not change what is computed: any number of replicas gives the mean of the
 * whole batch, up to rounding. */
CO_TEST_BARE(any_number_of_replicas_trains_alike, "DS-SPLIT-1 DS-PART-2")
{
    double one = 0, many = 0;

    for (int adam = 0; adam < 2; ++adam) {
        train("cpus=4", 1, 1, 3, adam == 1, &one);
        for (int replicas = 2; replicas <= 5; ++replicas) {
            train("cpus=4", replicas, 2, 3, adam == 1, &many);
            CO_EXPECT_CLOSE(many, one, 1e-4);
        }
    }
}

/* How often the system is asked for memory in 1000 steps, after 1000 others. */
static int64_t
count_allocations(co_context *ctx, int replicas, bool with_adam)
{
    co_strategy    *strategy = mirrored(ctx, replicas, replicas > 1 ? 2 : 1);
    model           m = make_model(ctx, strategy, with_adam);
    co_dataset     *endless = co_dataset_repeat(ctx, make_data(ctx), -1);
    co_memory_stats before = { sizeof(before), 0, 0, 0, 0 }, after = before;
    co_iterator    *it = co_iterate(ctx, co_distribute_dataset(ctx, strategy, endless, NULL));

    for (int step = 0; step < 2000; ++step) {
        if (step == 1000)
            co_get_memory_stats(ctx, &before);
        CO_BLOCK(ctx) {
            co_value *batch = co_next(ctx, it);

            co_run(ctx, strategy, train_step, replicas > 1 ? batch : co_flatten(ctx, batch), &m);
        }
    }
    co_get_memory_stats(ctx, &after);
    CO_EXPECT_OK(ctx);
    return after.system_allocations - before.system_allocations;
}

CO_TEST_WITH(steps_take_nothing_from_the_system_in_steady_state, "", "cpus=2")
{
#ifdef COI_DEBUG
    CO_SKIP("debug builds keep dead values for a while");
#endif
    if (TEST_SANITIZED)
        CO_SKIP("in sanitized builds every value is an allocation");
    for (int adam = 0; adam < 2; ++adam) {
        CO_EXPECT_INT(count_allocations(ctx, 1, adam == 1), 0);
        /* Threads can, now and then, hold more at one moment than ever before. */
        CO_EXPECT_LESS(count_allocations(ctx, 4, adam == 1), 10);
    }
}

/* The workers of an update are those of the variable's device, whatever device is current. */
CO_TEST(large_variables_are_updated_where_they_are, "")
{
    co_value     *v = co_variable(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(300, 300)), NULL);
    co_optimizer *sgd = co_sgd(ctx, NULL);
    co_value     *gradient = co_ones(ctx, CO_FLOAT32, CO_SHAPE(300, 300));

    CO_DEVICE(ctx, "/cpu:7") {
        co_apply_gradients(ctx, sgd, co_list(ctx, &gradient, 1), co_list(ctx, &v, 1));
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_mean(ctx, v, CO_ALL_AXES, false)), 0.99, 1e-6);
}
