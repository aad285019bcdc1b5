/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all optimizers have in common: learning rates that change, clipping, weight decay,
 * accumulation, averages, loss scaling, state by name; under one to four replicas, as a step and
 * as a captured one, whose bits are the same.
 */
#include <cohort/function.h>

#include "test.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST = 4, WIDTH = 3 };

static const char *const names[] = { "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3" };

/* Two variables under a strategy of n replicas, and a step that is captured or not. */
typedef struct world {
    co_strategy  *s;
    int           n;
    co_optimizer *optimizer;
    co_value     *w[2];
    co_function  *f; /* NULL: not captured */
    bool          is_minimize;
} world;

static co_value *
row_of(co_context *ctx, double a, double b, double c)
{
    return co_tensor(ctx, CO_FLOAT32, CO_SHAPE(WIDTH), (float[]){ (float)a, (float)b, (float)c });
}

/* The loss is x (w0 . (1, -2, 4)) + x^2 (w1 . w1), with one x for each replica. */
static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    const world *m = user;
    co_value    *x = co_at(ctx, args, 0), *loss, *variables = co_list(ctx, m->w, 2);

    co_tape_begin(ctx);
    loss = co_mul(ctx, x,
                  co_reduce_sum(ctx, co_mul(ctx, m->w[0], row_of(ctx, 1, -2, 4)), CO_ALL_AXES,
                                false));
    loss = co_add(ctx, loss,
                  co_mul(ctx, co_square(ctx, x),
                         co_reduce_sum(ctx, co_square(ctx, m->w[1]), CO_ALL_AXES, false)));
    if (m->is_minimize) {
        co_minimize(ctx, m->optimizer, loss);
    } else {
        co_value *scaled = co_scale_loss(ctx, m->optimizer, loss);

        co_apply_gradients(ctx, m->optimizer, co_gradient(ctx, scaled, variables), variables);
    }
    return loss;
}

static void
make_world(co_context *ctx, world *m, int n, bool is_captured, co_optimizer *optimizer)
{
    co_mirrored_options options = CO_MIRRORED_OPTIONS_INIT;
    co_variable_options named = CO_VARIABLE_OPTIONS_INIT;

    options.num_replicas = n;
    *m = (world){ .n = n, .optimizer = optimizer, .is_minimize = n % 2 == 0 };
    m->s = co_mirrored_strategy(ctx, names, (size_t)n, &options);
    CO_SCOPE(ctx, m->s) {
        named.name = "kernel";
        m->w[0] = co_variable(ctx, row_of(ctx, 1, -0.5, 0.25), &named);
        named.name = "bias";
        m->w[1] = co_variable(ctx, row_of(ctx, 0.75, 2, -1), &named);
    }
    if (is_captured)
        m->f = co_function_of(ctx, step, m, NULL);
}

/* A step in which replica i has x[i], or x[0] / n each where there is one alone. */
static void
run_step(co_context *ctx, world *m, const double *x)
{
    CO_BLOCK(ctx) {
        co_value *parts[MOST], *args;

        for (int i = 0; i < m->n; ++i)
            parts[i] = co_scalar_float(ctx, (float)x[i]);
        args = co_args(ctx, m->n > 1 ? co_per_replica_value(ctx, parts, (size_t)m->n) : parts[0]);
        if (m->f != NULL)
            co_run(ctx, m->s, co_captured, args, m->f);
        else
            co_run(ctx, m->s, step, args, m);
    }
}

/* The weights of every replica are equal; those of the first. */
static void
read_weights(co_context *ctx, const world *m, float out[2][WIDTH])
{
    for (int k = 0; k < 2; ++k) {
        co_value *local = co_local_results(ctx, m->s, m->w[k]);

        memcpy(out[k], co_value_data(ctx, co_variable_read(ctx, co_at(ctx, local, 0))),
               sizeof(out[k]));
        for (int i = 1; i < m->n; ++i)
            CO_EXPECT_BYTES(co_value_data(ctx, co_variable_read(ctx, co_at(ctx, local, (size_t)i))),
                            out[k], sizeof(out[k]));
    }
    CO_EXPECT_OK(ctx);
}

static co_optimizer *
make_configured(co_context *ctx, const co_optimizer_options *options)
{
    co_adam_options o = CO_ADAM_OPTIONS_INIT;
    co_optimizer   *adam;

    o.learning_rate = 0.125;
    adam = co_adam(ctx, &o);
    co_optimizer_configure(ctx, adam, options);
    return adam;
}

static co_optimizer *
make_sgd(co_context *ctx, double rate, const co_optimizer_options *options)
{
    co_sgd_options o = CO_SGD_OPTIONS_INIT;
    co_optimizer  *sgd;

    o.learning_rate = rate;
    sgd = co_sgd(ctx, &o);
    co_optimizer_configure(ctx, sgd, options);
    return sgd;
}

static const double xs[6][MOST] = { { 1, 0.5, -0.25, 0.125 }, { 0.75, -1, 2, 0.5 },
                                    { -0.5, 1, 1, -1 },       { 2, 0.25, -1, 0.5 },
                                    { 0.5, 0.5, 0.25, 1 },    { -1, 2, 0.5, -0.25 } };

/* With all options at once: captured steps have the bits of others, replicas the bits of each
 * other. */
CO_TEST_WITH(captured_steps_have_the_same_bits_with_all_options, "", "cpus=4")
{
    for (int clipping = 0; clipping < 6; ++clipping)
        for (int n = 1; n <= MOST; ++n) {
            co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
            float                weights[2][2][WIDTH];

            o.schedule = co_exponential_decay(ctx, 0.25, 2, 0.5, false);
            o.weight_decay = 0.0625;
            o.exclude_names = (const char *[]){ "bias" };
            o.num_exclude_names = 1;
            o.clip_value = clipping % 3 == 0 ? 0.5 : 0;
            o.clip_norm = clipping % 3 == 1 ? 0.5 : 0;
            o.clip_global_norm = clipping % 3 == 2 ? 0.5 : 0;
            o.clip_before_sum = clipping >= 3;
            o.accumulation_steps = n % 2 == 1 ? 2 : 0;
            o.use_ema = true;
            o.ema_overwrite_frequency = 3;
            o.loss_scale = 1024;
            o.loss_scale_growth_steps = 2;
            for (int captured = 0; captured < 2; ++captured) {
                world m;

                make_world(ctx, &m, n, captured == 1, make_configured(ctx, &o));
                for (int t = 0; t < 6; ++t)
                    run_step(ctx, &m, xs[t]);
                read_weights(ctx, &m, weights[captured]);
                CO_EXPECT_INT(co_optimizer_iterations(ctx, m.optimizer),
                              o.accumulation_steps == 2 ? 3 : 6);
            }
            CO_EXPECT_BYTES(weights[0], weights[1], sizeof(weights[0]));
        }
}

/* --- learning rate and iterations --- */

CO_TEST_WITH(the_learning_rate_is_read_when_a_captured_step_runs, "", "cpus=2")
{
    for (int captured = 0; captured < 2; ++captured) {
        world m;
        float before[2][WIDTH], after[2][WIDTH];

        make_world(ctx, &m, 2, captured == 1, make_sgd(ctx, 0.5, NULL));
        run_step(ctx, &m, (double[]){ 1, 0 });
        for (int i = 0; i < 2; ++i) {
            const double rate = i == 0 ? 0.25 : -0.125; /* negative: as Keras */

            read_weights(ctx, &m, before);
            CO_EXPECT_CODE(co_optimizer_set_learning_rate(ctx, m.optimizer, rate), CO_OK);
            run_step(ctx, &m, (double[]){ 1, 1 });
            read_weights(ctx, &m, after);
            CO_EXPECT_CLOSE(after[0][1], before[0][1] + rate * 4, 0); /* gradient 2 * -2 */
            CO_EXPECT_CLOSE(co_optimizer_learning_rate(ctx, m.optimizer), rate, 0);
        }
        CO_EXPECT_INT(co_optimizer_iterations(ctx, m.optimizer), 3);
    }
}

/* Each replica sets the rate for the update that it is about to make. */
static co_value *
set_and_step(co_context *ctx, co_value *args, void *user)
{
    const world *m = user;
    co_value    *g = row_of(ctx, 1, 1, 1), *w = m->w[0];

    (void)args;
    for (int t = 1; t <= 3; ++t) {
        co_optimizer_set_learning_rate(ctx, m->optimizer, t);
        co_apply_gradients(ctx, m->optimizer, co_list(ctx, &g, 1), co_list(ctx, &w, 1));
    }
    return co_float(ctx, co_optimizer_learning_rate(ctx, m->optimizer));
}

CO_TEST_WITH(a_step_sets_the_rate_of_its_own_replica, "", "cpus=4")
{
    world m;
    float weights[2][WIDTH];

    make_world(ctx, &m, 4, false, make_sgd(ctx, 0.5, NULL));
    for (int i = 0; i < 20; ++i)
        co_run(ctx, m.s, set_and_step, co_no_args(ctx), &m);
    read_weights(ctx, &m, weights);
    CO_EXPECT_CLOSE(weights[0][0], 1 - 20 * 4 * (1 + 2 + 3), 0);
}

CO_TEST(iterations_can_be_set, "")
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    co_optimizer        *sgd;

    o.schedule = co_exponential_decay(ctx, 0.5, 1, 0.5, false);
    sgd = make_sgd(ctx, 1, &o);
    CO_EXPECT_CLOSE(co_optimizer_learning_rate(ctx, sgd), 0.5, 0);
    CO_EXPECT_CODE(co_optimizer_set_iterations(ctx, sgd, 3), CO_OK);
    CO_EXPECT_CLOSE(co_optimizer_learning_rate(ctx, sgd), 0.0625, 0);
    CO_EXPECT_INT(co_optimizer_iterations(ctx, sgd), 3);
    co_optimizer_set_iterations(ctx, sgd, -1);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "iterations is -1");
    co_optimizer_set_learning_rate(ctx, sgd, 1);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "that of a schedule");
    co_optimizer_set_learning_rate(ctx, co_sgd(ctx, NULL), NAN);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "learning_rate is nan");
}

static co_value *
set_rate(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_optimizer_set_learning_rate(ctx, user, 1);
    return NULL;
}

CO_TEST(setting_a_number_cannot_be_captured, "")
{
    co_call(ctx, co_function_of(ctx, set_rate, co_sgd(ctx, NULL), NULL), co_no_args(ctx));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "optimizer_set_learning_rate cannot be captured");
}

/* --- clipping --- */

static void
apply_two(co_context *ctx, co_optimizer *optimizer, co_value *const *gradients,
          co_value *const *variables)
{
    co_apply_gradients(ctx, optimizer, co_list(ctx, gradients, 2), co_list(ctx, variables, 2));
}

/* Gradients (3, 4) and (0, 12), with a rate of 1 from zeros: norms 5, 12, and 13 of all. */
static void
expect_clipped(co_context *ctx, const co_optimizer_options *o, const double expected[4])
{
    co_value *variables[2], *gradients[2];

    variables[0] = co_variable(ctx, co_zeros(ctx, CO_FLOAT64, CO_SHAPE(2)), NULL);
    variables[1] = co_variable(ctx, co_zeros(ctx, CO_FLOAT64, CO_SHAPE(2)), NULL);
    gradients[0] = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(2), (double[]){ 3, 4 });
    gradients[1] = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(2), (double[]){ 0, -12 });
    apply_two(ctx, make_sgd(ctx, -1, o), gradients, variables);
    CO_EXPECT_OK(ctx);
    for (int i = 0; i < 4; ++i)
        CO_EXPECT_CLOSE(
            ((const double *)co_value_data(ctx, co_variable_read(ctx, variables[i / 2])))[i % 2],
            expected[i], 1e-14);
}

CO_TEST(gradients_are_clipped, "")
{
    for (int before = 0; before < 2; ++before) {
        co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;

        o.clip_before_sum = before == 1;
        o.clip_value = 3.5;
        expect_clipped(ctx, &o, (double[]){ 3, 3.5, 0, -3.5 });
        o.clip_value = 0;
        o.clip_norm = 6;
        expect_clipped(ctx, &o, (double[]){ 3, 4, 0, -6 });
        o.clip_norm = 0;
        o.clip_global_norm = 6.5;
        expect_clipped(ctx, &o, (double[]){ 1.5, 2, 0, -6 });
        o.clip_global_norm = 14;
        expect_clipped(ctx, &o, (double[]){ 3, 4, 0, -12 });
    }
}

/* Occurrences of a row are clipped before they are summed, as in Keras. */
CO_TEST(slices_are_clipped_by_occurrence, "")
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    co_value            *w = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 1)), NULL), *g;
    const float         *data;

    o.clip_value = 1;
    g = co_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 1), (float[]){ 3, -0.5f, 2 }),
                  co_tensor(ctx, CO_INT32, CO_SHAPE(3), (int32_t[]){ 1, 1, 1 }), NULL);
    co_apply_gradients(ctx, make_sgd(ctx, -1, &o), co_list(ctx, &g, 1), co_list(ctx, &w, 1));
    data = co_value_data(ctx, co_variable_read(ctx, w));
    CO_EXPECT_CLOSE(data[0], 0, 0);
    CO_EXPECT_CLOSE(data[1], 1.5, 0);
}

/* The sum of 1 and 3 is clipped to 2; or 3 is, and then summed. */
CO_TEST_WITH(clipping_is_after_the_sum_unless_asked_for, "", "cpus=2")
{
    for (int before = 0; before < 2; ++before) {
        co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
        world                m;
        float                weights[2][WIDTH];

        o.clip_value = 2;
        o.clip_before_sum = before == 1;
        make_world(ctx, &m, 2, false, make_sgd(ctx, 1, &o));
        run_step(ctx, &m, (double[]){ 1, 3 });
        read_weights(ctx, &m, weights);
        CO_EXPECT_CLOSE(weights[0][0], before ? 1 - 3 : 1 - 2, 0);
    }
}

/* --- weight decay --- */

CO_TEST(weights_decay_but_those_excluded, "")
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    co_variable_options  named = CO_VARIABLE_OPTIONS_INIT;
    const char          *text[] = { "bias", "norm" };
    co_value            *w[4], *g[4];

    for (int i = 0; i < 4; ++i) {
        static const char *const called[] = { "layer/kernel", "layer/bias", "batch_norm", "other" };

        named.name = called[i];
        w[i] = co_variable(ctx, co_scalar_double(ctx, 2), &named);
        g[i] = co_scalar_double(ctx, 0.5);
    }
    o.weight_decay = 0.25;
    o.exclude_names = text;
    o.num_exclude_names = 2;
    o.exclude_variables = co_list(ctx, &w[3], 1);
    co_apply_gradients(ctx, make_sgd(ctx, 0.5, &o), co_list(ctx, g, 4), co_list(ctx, w, 4));
    CO_EXPECT_CLOSE(co_item_float(ctx, w[0]), 2 - 2 * 0.25 * 0.5 - 0.25, 0);
    for (int i = 1; i < 4; ++i)
        CO_EXPECT_CLOSE(co_item_float(ctx, w[i]), 2 - 0.25, 0);
}

CO_TEST(adamw_decays_by_default, "")
{
    co_value *w[2], *g = co_scalar_double(ctx, 0);

    for (int i = 0; i < 2; ++i) {
        w[i] = co_variable(ctx, co_scalar_double(ctx, 2), NULL);
        co_apply_gradients(ctx, i == 0 ? co_adamw(ctx, NULL) : co_adam(ctx, NULL),
                           co_list(ctx, &g, 1), co_list(ctx, &w[i], 1));
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, w[0]), 2 * (1 - 0.004 * 0.001), 1e-15);
    CO_EXPECT_CLOSE(co_item_float(ctx, w[1]), 2, 0);
}

/* --- accumulation --- */

static void
count_sums(const co_observation *seen, void *user)
{
    if (seen->phase == CO_OBSERVE_BEGIN && strcmp(seen->op, "all_reduce") == 0)
        atomic_fetch_add((atomic_int *)user, 1);
}

/* Two calls are one with the mean of their gradients, which are summed over replicas once. */
CO_TEST_WITH(accumulated_gradients_are_summed_once, "", "cpus=4")
{
    for (int n = 1; n <= MOST; ++n)
        for (int captured = 0; captured < 2; ++captured) {
            co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
            world                m, plain;
            float                weights[2][WIDTH], expected[2][WIDTH], start[2][WIDTH];
            double               mean[MOST];
            atomic_int           sums = 0;
            co_observer         *observer;

            o.accumulation_steps = 4;
            make_world(ctx, &m, n, captured == 1, make_sgd(ctx, 0.5, &o));
            make_world(ctx, &plain, n, false, make_sgd(ctx, 0.5, NULL));
            read_weights(ctx, &m, start);
            observer = co_observe(ctx, count_sums, &sums);
            for (int t = 0; t < 4; ++t) {
                run_step(ctx, &m, xs[t]);
                CO_EXPECT_INT(atomic_load(&sums), t == 3 && n > 1 ? n : 0);
                CO_EXPECT_INT(co_optimizer_iterations(ctx, m.optimizer), t == 3);
                read_weights(ctx, &m, weights);
                if (t < 3)
                    CO_EXPECT_BYTES(weights, start, sizeof(start));
            }
            co_unobserve(ctx, observer);
            for (int i = 0; i < n; ++i)
                mean[i] = (xs[0][i] + xs[1][i] + xs[2][i] + xs[3][i]) / 4;
            run_step(ctx, &plain, mean);
            read_weights(ctx, &plain, expected);
            CO_EXPECT_BYTES(weights[0], expected[0], sizeof(weights[0])); /* linear, all exact */
        }
}

CO_TEST_WITH(accumulators_are_zero_after_a_cycle, "", "cpus=2")
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    world                m;
    const float         *data;

    o.accumulation_steps = 2;
    make_world(ctx, &m, 2, false, make_sgd(ctx, 0.5, &o));
    run_step(ctx, &m, (double[]){ 1, 2 });
    data = co_value_data(ctx,
                         co_variable_save(ctx, co_optimizer_slot(ctx, m.optimizer,
                                                                 "gradient_accumulator", m.w[0])));
    CO_EXPECT_CLOSE(data[2], 4 * (1 + 2), 0); /* of both replicas */
    run_step(ctx, &m, (double[]){ 1, 2 });
    data = co_value_data(ctx,
                         co_variable_save(ctx, co_optimizer_slot(ctx, m.optimizer,
                                                                 "gradient_accumulator", m.w[0])));
    CO_EXPECT_CLOSE(data[2], 0, 0);
    CO_EXPECT_OK(ctx);
}

CO_TEST_WITH(accumulation_outside_of_steps_is_refused, "", "cpus=2")
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    world                m;
    co_value            *g = row_of(ctx, 1, 1, 1);

    o.accumulation_steps = 2;
    make_world(ctx, &m, 2, false, make_sgd(ctx, 0.5, &o));
    co_apply_gradients(ctx, m.optimizer, co_list(ctx, &g, 1), co_list(ctx, m.w, 1));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "in a step");
}

/* --- averages --- */

CO_TEST_WITH(averages_can_stand_in_place_of_weights, "", "cpus=2")
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    world                m;
    float                weights[2][WIDTH], seen[2][WIDTH];
    float                average = 0;

    o.use_ema = true;
    o.ema_momentum = 0.75;
    make_world(ctx, &m, 2, false, make_sgd(ctx, 0.5, &o));
    for (int t = 0; t < 4; ++t) {
        run_step(ctx, &m, xs[t]);
        read_weights(ctx, &m, weights);
        average = t == 0 ? weights[0][1] : 0.75f * average + 0.25f * weights[0][1];
    }
    CO_EXPECT_CODE(co_optimizer_swap_averages(ctx, m.optimizer), CO_OK);
    read_weights(ctx, &m, seen);
    CO_EXPECT_CLOSE(seen[0][1], average, 0);
    run_step(ctx, &m, xs[0]);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "swap_averages puts the weights back");
    CO_EXPECT_CODE(co_optimizer_swap_averages(ctx, m.optimizer), CO_OK);
    read_weights(ctx, &m, seen);
    CO_EXPECT_BYTES(seen, weights, sizeof(seen));
    CO_EXPECT_CODE(co_optimizer_swap_averages(ctx, co_sgd(ctx, NULL)), CO_FAILED_PRECONDITION);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "keeps no averages");
}

/* A variable without a gradient has an average, which it is. */
CO_TEST(averages_move_without_a_gradient_too, "")
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    co_optimizer        *sgd;
    co_value            *w[2], *g[2] = { co_scalar_float(ctx, 1), co_none(ctx) };

    o.use_ema = true;
    o.ema_momentum = 0.5;
    o.ema_overwrite_frequency = 2;
    sgd = make_sgd(ctx, 1, &o);
    w[0] = co_variable(ctx, co_scalar_float(ctx, 8), NULL);
    w[1] = co_variable(ctx, co_scalar_float(ctx, 5), NULL);
    apply_two(ctx, sgd, g, w);
    CO_EXPECT_CLOSE(co_item_float(ctx, w[0]), 7, 0);
    apply_two(ctx, sgd, g, w);
    CO_EXPECT_CLOSE(co_item_float(ctx, w[0]), 6.5, 0); /* the mean of 7 and 6 */
    CO_EXPECT_CLOSE(co_item_float(ctx, w[1]), 5, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_optimizer_slot(ctx, sgd, "average", w[1])), 5, 0);
}

/* --- loss scaling --- */

CO_TEST_WITH(the_loss_scale_follows_the_gradients, "", "cpus=4")
{
    for (int n = 1; n <= MOST; ++n)
        for (int captured = 0; captured < 2; ++captured) {
            co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
            world                m;
            float                before[2][WIDTH], after[2][WIDTH];
            double               bad[MOST] = { 1, 1, 1, 1 };

            bad[n - 1] = INFINITY; /* one replica alone */
            o.loss_scale = 8;
            o.loss_scale_growth_steps = 2;
            make_world(ctx, &m, n, captured == 1, make_sgd(ctx, 0.25, &o));
            run_step(ctx, &m, xs[0]);
            CO_EXPECT_CLOSE(co_optimizer_loss_scale(ctx, m.optimizer), 8, 0);
            run_step(ctx, &m, xs[1]);
            CO_EXPECT_CLOSE(co_optimizer_loss_scale(ctx, m.optimizer), 16, 0);
            read_weights(ctx, &m, before);
            run_step(ctx, &m, bad);
            read_weights(ctx, &m, after);
            CO_EXPECT_BYTES(after, before, sizeof(after)); /* skipped on all */
            CO_EXPECT_CLOSE(co_optimizer_loss_scale(ctx, m.optimizer), 8, 0);
            CO_EXPECT_INT(co_optimizer_iterations(ctx, m.optimizer), 2);
            run_step(ctx, &m, xs[2]);
            CO_EXPECT_INT(co_optimizer_iterations(ctx, m.optimizer), 3);
            CO_EXPECT_CLOSE(co_optimizer_loss_scale(ctx, m.optimizer), 8, 0);
        }
}

/* Powers of two change no bit. */
CO_TEST_WITH(a_scaled_loss_trains_as_a_plain_one, "", "cpus=2")
{
    float weights[2][2][WIDTH];

    for (int scaled = 0; scaled < 2; ++scaled) {
        co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
        world                m;

        o.loss_scale = scaled ? 4096 : 0;
        o.loss_scale_growth_steps = 3;
        make_world(ctx, &m, 2, false, make_configured(ctx, &o));
        for (int t = 0; t < 6; ++t)
            run_step(ctx, &m, xs[t]);
        read_weights(ctx, &m, weights[scaled]);
    }
    CO_EXPECT_BYTES(weights[0], weights[1], sizeof(weights[0]));
}

/* A float16 loss is scaled in float32. */
CO_TEST(losses_of_float16_are_scaled_in_float32, "")
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    co_value            *loss = co_cast(ctx, co_scalar_float(ctx, 4), CO_FLOAT16), *scaled;

    o.loss_scale = 65536;
    scaled = co_scale_loss(ctx, make_sgd(ctx, 1, &o), loss);
    CO_EXPECT_INT(co_value_dtype(ctx, scaled), CO_FLOAT32);
    CO_EXPECT_CLOSE(co_item_float(ctx, scaled), 4 * 65536, 0);
    scaled = co_scale_loss(ctx, co_sgd(ctx, NULL), loss);
    CO_EXPECT_INT(co_value_dtype(ctx, scaled), CO_FLOAT16);
    CO_EXPECT_CLOSE(co_optimizer_loss_scale(ctx, co_sgd(ctx, NULL)), 1, 0);
}

/* --- state --- */

static void
copy_weights(co_context *ctx, const world *from, const world *to)
{
    for (int k = 0; k < 2; ++k)
        co_variable_restore(ctx, to->w[k], co_variable_save(ctx, from->w[k]));
}

/* What is saved in the middle and restored into another optimizer goes on with the same bits. */
CO_TEST_WITH(state_by_name_is_all_there_is, "", "cpus=2")
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    world                whole, first, then;
    float                expected[2][WIDTH], seen[2][WIDTH];
    co_value            *state;

    o.use_ema = true;
    o.loss_scale = 64;
    o.loss_scale_growth_steps = 4;
    make_world(ctx, &whole, 2, false, make_configured(ctx, &o));
    make_world(ctx, &first, 2, false, make_configured(ctx, &o));
    make_world(ctx, &then, 2, true, make_configured(ctx, &o));
    for (int t = 0; t < 6; ++t)
        run_step(ctx, &whole, xs[t]);
    for (int t = 0; t < 3; ++t)
        run_step(ctx, &first, xs[t]);
    state = co_optimizer_state(ctx, first.optimizer);
    CO_EXPECT_INT(co_num_items(ctx, state), 4 + 2 * 3);
    CO_EXPECT_STR(co_key(ctx, state, 0), "bias/average");
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, state, "iterations")), 3);
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, state, "good_steps")), 3);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_get(ctx, state, "loss_scale")), 64, 0);
    copy_weights(ctx, &first, &then);
    CO_EXPECT_CODE(co_optimizer_build(ctx, then.optimizer, co_list(ctx, then.w, 2)), CO_OK);
    CO_EXPECT_CODE(co_optimizer_set_state(ctx, then.optimizer, state), CO_OK);
    for (int t = 3; t < 6; ++t)
        run_step(ctx, &then, xs[t]);
    read_weights(ctx, &whole, expected);
    read_weights(ctx, &then, seen);
    CO_EXPECT_BYTES(seen, expected, sizeof(seen));
    for (int k = 0; k < 2; ++k)
        CO_EXPECT_BYTES(
            co_value_data(ctx, co_variable_save(ctx, co_optimizer_slot(ctx, then.optimizer,
                                                                       "average", then.w[k]))),
            co_value_data(ctx, co_variable_save(ctx, co_optimizer_slot(ctx, whole.optimizer,
                                                                       "average", whole.w[k]))),
            sizeof(seen[k]));
    CO_EXPECT_CLOSE(co_optimizer_loss_scale(ctx, then.optimizer), 128, 0);
}

static co_value *
one_item(co_context *ctx, const char *key, co_value *value)
{
    return co_dict(ctx, &key, &value, 1);
}

CO_TEST(state_that_cannot_be_is_refused, "")
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    co_variable_options  named = CO_VARIABLE_OPTIONS_INIT;
    co_optimizer        *adam;
    co_value            *w[2];

    o.accumulation_steps = 3;
    adam = make_configured(ctx, &o);
    named.name = "w";
    w[0] = co_variable(ctx, co_scalar_float(ctx, 1), &named);
    w[1] = co_variable(ctx, co_scalar_float(ctx, 1), &named);
    CO_EXPECT_CODE(co_optimizer_build(ctx, adam, co_list(ctx, w, 1)), CO_OK);
    co_optimizer_set_state(ctx, adam, one_item(ctx, "w/z", w[0]));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "no state 'w/z'");
    co_optimizer_set_state(ctx, adam, one_item(ctx, "loss_scale", w[0]));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "no state 'loss_scale'");
    co_optimizer_set_state(ctx, adam, one_item(ctx, "accumulated", co_int(ctx, 3)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "accumulated of the state of Adam is 3");
    co_optimizer_set_state(ctx, adam, one_item(ctx, "iterations", co_int(ctx, -1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not negative");
    co_optimizer_set_state(ctx, adam, co_int(ctx, 1));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dict");
    CO_EXPECT_CODE(co_optimizer_set_state(ctx, adam, one_item(ctx, "w/m", co_scalar_float(ctx, 2))),
                   CO_OK);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_optimizer_slot(ctx, adam, "m", w[0])), 2, 0);
    co_optimizer_build(ctx, adam, co_list(ctx, (co_value *[]){ co_int(ctx, 1) }, 1));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "item 0 of variables");
    if (strcmp(co_variable_name(ctx, w[0]), co_variable_name(ctx, w[1])) == 0) {
        co_optimizer_build(ctx, adam, co_list(ctx, w, 2));
        CO_EXPECT_NULL(co_optimizer_state(ctx, adam));
        CO_EXPECT_ERROR(ctx, CO_ALREADY_EXISTS, "two states with the name 'w/");
    }
}

/* --- options --- */

CO_TEST(options_that_cannot_be_are_refused, "")
{
    static const struct {
        co_optimizer_options options;
        const char          *part;
    } bad[] = {
        { { .clip_norm = 1, .clip_global_norm = 1 }, "at most one may be set" },
        { { .clip_value = -1 }, "clip_value is -1" },
        { { .accumulation_steps = 1 }, "accumulation_steps is 1" },
        { { .accumulation_steps = -2 }, "accumulation_steps is -2" },
        { { .use_ema = true, .ema_momentum = 1.5 }, "ema_momentum is 1.5" },
        { { .use_ema = true, .ema_overwrite_frequency = -1 }, "ema_overwrite_frequency -1" },
        { { .loss_scale = INFINITY }, "loss_scale is inf" },
        { { .loss_scale = -2 }, "loss_scale is -2" },
        { { .weight_decay = NAN }, "weight_decay is nan" },
    };
    co_optimizer        *sgd = co_sgd(ctx, NULL);
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        o = bad[i].options;
        o.struct_size = sizeof(o);
        co_optimizer_configure(ctx, sgd, &o);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, bad[i].part);
    }
    o = (co_optimizer_options)CO_OPTIMIZER_OPTIONS_INIT;
    o.num_exclude_names = 1;
    co_optimizer_configure(ctx, sgd, &o);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "exclude_names has 1 texts");
    o.num_exclude_names = 0;
    o.exclude_variables = co_int(ctx, 1);
    co_optimizer_configure(ctx, sgd, &o);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "exclude_variables is");
    o.exclude_variables = co_args(ctx, co_int(ctx, 1));
    co_optimizer_configure(ctx, sgd, &o);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "item 0 of exclude_variables");
    co_optimizer_configure(ctx, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "optimizer");
}

CO_TEST(options_come_before_the_first_update, "")
{
    co_optimizer *sgd = co_sgd(ctx, NULL);
    co_value     *w = co_variable(ctx, co_scalar_float(ctx, 1), NULL), *g = co_scalar_float(ctx, 1);

    CO_EXPECT_CODE(co_optimizer_configure(ctx, sgd, NULL), CO_OK);
    co_apply_gradients(ctx, sgd, co_list(ctx, &g, 1), co_list(ctx, &w, 1));
    co_optimizer_configure(ctx, sgd, NULL);
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "SGD has been used");
}

CO_TEST(half_precision_weights_are_refused, "")
{
    co_value *w = co_variable(ctx, co_cast(ctx, co_scalar_float(ctx, 1), CO_FLOAT16), NULL);
    co_value *g = co_cast(ctx, co_scalar_float(ctx, 1), CO_FLOAT16);

    co_apply_gradients(ctx, co_sgd(ctx, NULL), co_list(ctx, &g, 1), co_list(ctx, &w, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "keep the weights in float32");
}
