/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of optimizers against their formulas, in double; gradients that are indexed slices;
 * rules of users; and that neither chunks nor groups of variables change a bit.
 */
#include "test.h"

#include <math.h>
#include <string.h>

enum { STEPS = 6 };

/* --- formulas, as the comments of train.h have them, one element at a time --- */

typedef struct element {
    double w, a, b, c; /* the weight, and what the rule keeps */
} element;

static const double gradients[STEPS] = { 1.5, -0.25, 0.75, -2, 0.125, 0.5 };

static void
rmsprop(element *e, double g, int t)
{
    (void)t;
    e->a = 0.75 * e->a + 0.25 * g * g;
    e->w -= 0.125 * g / sqrt(e->a + 1e-7);
}

static void
rmsprop_all(element *e, double g, int t)
{
    (void)t;
    e->a = 0.75 * e->a + 0.25 * g * g;
    e->c = 0.75 * e->c + 0.25 * g;
    e->b = 0.5 * e->b + 0.125 * g / sqrt(e->a - e->c * e->c + 1e-7);
    e->w -= e->b;
}

static void
adagrad(element *e, double g, int t)
{
    e->a = (t == 1 ? 0.125 : e->a) + g * g;
    e->w -= 0.125 * g / sqrt(e->a + 1e-7);
}

static void
adadelta(element *e, double g, int t)
{
    double step;

    (void)t;
    e->a = 0.75 * e->a + 0.25 * g * g;
    step = sqrt(e->b + 1e-7) / sqrt(e->a + 1e-7) * g;
    e->b = 0.75 * e->b + 0.25 * step * step;
    e->w -= 0.125 * step;
}

static void
adamax(element *e, double g, int t)
{
    e->a += 0.25 * (g - e->a);
    e->b = fmax(0.5 * e->b, fabs(g));
    e->w -= 0.125 / (1 - pow(0.75, t)) * e->a / (e->b + 1e-7);
}

static void
nadam(element *e, double g, int t)
{
    const double decay = (double)0.96f;
    const double now = 0.75 * (1 - 0.5 * pow(decay, t)),
                 next = 0.75 * (1 - 0.5 * pow(decay, t + 1));
    double m;

    e->c = (t == 1 ? 1 : e->c) * 0.75 * (1 - 0.5 * pow(0.96, t));
    e->a += 0.25 * (g - e->a);
    e->b += 0.5 * (g * g - e->b);
    m = next * e->a / (1 - e->c * next) + (1 - now) * g / (1 - e->c);
    e->w -= 0.125 * m / (sqrt(e->b / (1 - pow(0.5, t))) + 1e-7);
}

static void
lion(element *e, double g, int t)
{
    const double towards = 0.75 * e->a + 0.25 * g;

    (void)t;
    e->w -= 0.125 * (towards > 0 ? 1 : towards < 0 ? -1 : 0);
    e->a = 0.5 * e->a + 0.5 * g;
}

static void
amsgrad(element *e, double g, int t)
{
    e->a += 0.25 * (g - e->a);
    e->b += 0.5 * (g * g - e->b);
    e->c = fmax(e->c, e->b);
    e->w -= 0.125 * sqrt(1 - pow(0.5, t)) / (1 - pow(0.75, t)) * e->a / (sqrt(e->c) + 1e-7);
}

static void
leader(element *e, double g, double power, double shrinkage, double l1, double l2, int t)
{
    const double before = t == 1 ? 0.125 : e->a, sum = before + g * g;
    const double clipped_at = l1;

    e->b += g + 2 * shrinkage * e->w - (pow(sum, power) - pow(before, power)) / 0.125 * e->w;
    e->a = sum;
    e->w = (fmin(fmax(e->b, -clipped_at), clipped_at) - e->b) / (pow(sum, power) / 0.125 + 2 * l2);
}

static void
ftrl(element *e, double g, int t)
{
    leader(e, g, 0.5, 0, 0, 0, t);
}

/* beta is 0.25, a part of l2 */
static void
ftrl_all(element *e, double g, int t)
{
    leader(e, g, 0.75, 0.0625, 0.25, 0.5 + 0.25 / (2 * 0.125), t);
}

/* --- the optimizers with the same numbers --- */

static co_optimizer *
make_rmsprop(co_context *ctx)
{
    co_rmsprop_options o = { sizeof(o), 0.125, 0.75, 0, 1e-7, false };

    return co_rmsprop(ctx, &o);
}

static co_optimizer *
make_rmsprop_all(co_context *ctx)
{
    co_rmsprop_options o = { sizeof(o), 0.125, 0.75, 0.5, 1e-7, true };

    return co_rmsprop(ctx, &o);
}

static co_optimizer *
make_rmsprop_centered(co_context *ctx)
{
    co_rmsprop_options o = { sizeof(o), 0.125, 0.75, 0, 1e-7, true };

    return co_rmsprop(ctx, &o);
}

static co_optimizer *
make_rmsprop_momentum(co_context *ctx)
{
    co_rmsprop_options o = { sizeof(o), 0.125, 0.75, 0.5, 1e-7, false };

    return co_rmsprop(ctx, &o);
}

static co_optimizer *
make_adagrad(co_context *ctx)
{
    co_adagrad_options o = { sizeof(o), 0.125, 0.125, 1e-7 };

    return co_adagrad(ctx, &o);
}

static co_optimizer *
make_adadelta(co_context *ctx)
{
    co_adadelta_options o = { sizeof(o), 0.125, 0.75, 1e-7 };

    return co_adadelta(ctx, &o);
}

static co_optimizer *
make_adamax(co_context *ctx)
{
    co_adamax_options o = { sizeof(o), 0.125, 0.75, 0.5, 1e-7 };

    return co_adamax(ctx, &o);
}

static co_optimizer *
make_nadam(co_context *ctx)
{
    co_nadam_options o = { sizeof(o), 0.125, 0.75, 0.5, 1e-7 };

    return co_nadam(ctx, &o);
}

static co_optimizer *
make_lion(co_context *ctx)
{
    co_lion_options o = { sizeof(o), 0.125, 0.75, 0.5 };

    return co_lion(ctx, &o);
}

static co_optimizer *
make_amsgrad(co_context *ctx)
{
    co_adam_options o = { sizeof(o), 0.125, 0.75, 0.5, 1e-7, 0, true };

    return co_adam(ctx, &o);
}

static co_optimizer *
make_adam(co_context *ctx)
{
    co_adam_options o = { sizeof(o), 0.125, 0.75, 0.5, 1e-7, 0, false };

    return co_adam(ctx, &o);
}

static co_optimizer *
make_ftrl(co_context *ctx)
{
    co_ftrl_options o = { sizeof(o), 0.125, -0.5, 0.125, 0, 0, 0, 0 };

    return co_ftrl(ctx, &o);
}

static co_optimizer *
make_ftrl_all(co_context *ctx)
{
    co_ftrl_options o = { sizeof(o), 0.125, -0.75, 0.125, 0.25, 0.5, 0.0625, 0.25 };

    return co_ftrl(ctx, &o);
}

static co_optimizer *
make_nesterov(co_context *ctx)
{
    co_sgd_options o = { sizeof(o), 0.125, 0.5, true };

    return co_sgd(ctx, &o);
}

static co_optimizer *
make_momentum(co_context *ctx)
{
    co_sgd_options o = { sizeof(o), 0.125, 0.5, false };

    return co_sgd(ctx, &o);
}

static const struct {
    const char *name;
    co_optimizer *(*make)(co_context *ctx);
    void (*formula)(element *e, double g, int t); /* NULL: another test has it */
} rules[] = {
    { "momentum", make_momentum, NULL },
    { "nesterov", make_nesterov, NULL },
    { "adam", make_adam, NULL },
    { "amsgrad", make_amsgrad, amsgrad },
    { "rmsprop", make_rmsprop, rmsprop },
    { "rmsprop momentum", make_rmsprop_momentum, NULL },
    { "rmsprop centered", make_rmsprop_centered, NULL },
    { "rmsprop all", make_rmsprop_all, rmsprop_all },
    { "adagrad", make_adagrad, adagrad },
    { "adadelta", make_adadelta, adadelta },
    { "adamax", make_adamax, adamax },
    { "nadam", make_nadam, nadam },
    { "lion", make_lion, lion },
    { "ftrl", make_ftrl, ftrl },
    { "ftrl all", make_ftrl_all, ftrl_all },
};
enum { NUM_RULES = sizeof(rules) / sizeof(rules[0]) };

static void
apply(co_context *ctx, co_optimizer *optimizer, co_value *gradient, co_value *variable)
{
    co_apply_gradients(ctx, optimizer, co_list(ctx, &gradient, 1), co_list(ctx, &variable, 1));
}

CO_TEST(rules_follow_their_formulas, "")
{
    for (size_t r = 0; r < NUM_RULES; ++r) {
        co_optimizer *optimizer = rules[r].make(ctx);
        co_value     *w = co_variable(ctx, co_scalar_double(ctx, 2), NULL);
        co_value     *single = co_variable(ctx, co_scalar_float(ctx, 2), NULL);
        element       e = { 2, 0, 0, 0 };

        for (int t = 1; t <= STEPS && rules[r].formula != NULL; ++t) {
            const double g = gradients[t - 1];
            co_value    *both[2] = { co_scalar_double(ctx, g), co_scalar_float(ctx, (float)g) };
            co_value    *weights[2] = { w, single };

            co_apply_gradients(ctx, optimizer, co_list(ctx, both, 2), co_list(ctx, weights, 2));
            rules[r].formula(&e, g, t);
            CO_EXPECT_CLOSE(co_item_float(ctx, w), e.w, 1e-13);
            CO_EXPECT_CLOSE(co_item_float(ctx, single), e.w, 2e-5);
        }
        CO_EXPECT_OK(ctx);
    }
}

/* --- slices --- */

static co_value *
table(co_context *ctx)
{
    static const float data[8] = { 1.5f, -0.5f, 0.25f, 0.5f, -0.75f, 0.125f, -0.0625f, -1.75f };

    return co_variable(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4, 2), data), NULL);
}

static void
expect_equal(co_context *ctx, co_value *a, co_value *b, size_t nbytes)
{
    CO_EXPECT_OK(ctx);
    CO_EXPECT_BYTES(co_value_data(ctx, co_variable_read(ctx, a)),
                    co_value_data(ctx, co_variable_read(ctx, b)), nbytes);
}

CO_TEST(slices_that_name_a_row_once_are_the_dense_gradient, "")
{
    static const float rows[6] = { 1, -2, 0.5f, 3, -0.25f, 0.75f };
    static const float dense[8] = { 0.5f, 3, 1, -2, 0, 0, -0.25f, 0.75f };
    co_value          *slices = co_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 2), rows),
                                          co_tensor(ctx, CO_INT32, CO_SHAPE(3), (int32_t[]){ 1, 0, 3 }),
                                          NULL);
    co_value          *whole = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4, 2), dense);

    for (size_t r = 0; r < NUM_RULES; ++r) {
        co_optimizer *one = rules[r].make(ctx), *other = rules[r].make(ctx);
        co_value     *a = table(ctx), *b = table(ctx);

        for (int t = 0; t < 3; ++t) {
            apply(ctx, one, slices, a);
            apply(ctx, other, whole, b);
        }
        expect_equal(ctx, a, b, 8 * sizeof(float));
    }
}

/* What Keras 3.15 gives after three steps with the rate 0.1 and gradients (1.018, 0.6), (-0.625,
 * -0.172), (0.505, -0.261) of rows 1, 3 and 1: row 1. */
CO_TEST(squares_of_a_repeated_row_are_summed, "")
{
    static const float  initial[8] = { 1.691f,  -0.466f, 0.033f,  0.408f,
                                       -0.789f, 0.002f,  -0.001f, -1.755f };
    static const float  rows[6] = { 1.018f, 0.6f, -0.625f, -0.172f, 0.505f, -0.261f };
    co_adamax_options   adamax_options = CO_ADAMAX_OPTIONS_INIT;
    co_adadelta_options adadelta_options = CO_ADADELTA_OPTIONS_INIT;
    co_nadam_options    nadam_options = CO_NADAM_OPTIONS_INIT;
    co_ftrl_options     ftrl_options = CO_FTRL_OPTIONS_INIT;
    co_rmsprop_options  rmsprop_options = { sizeof(rmsprop_options), 0.1, 0.9, 0.5, 1e-7, true };
    co_adam_options     adam_options = CO_ADAM_OPTIONS_INIT;

    adamax_options.learning_rate = adadelta_options.learning_rate = 0.1;
    nadam_options.learning_rate = ftrl_options.learning_rate = adam_options.learning_rate = 0.1;
    adam_options.amsgrad = true;

    struct {
        co_optimizer *optimizer;
        double        row[2];
    } cases[] = { { co_adamax(ctx, &adamax_options), { -0.2669999, 0.2898816 } },
                  { co_adadelta(ctx, &adadelta_options), { 0.03242493, 0.4077777 } },
                  { co_nadam(ctx, &nadam_options), { -0.3084512, 0.2760021 } },
                  { co_ftrl(ctx, &ftrl_options), { -0.27434704, 0.1203341 } },
                  { co_rmsprop(ctx, &rmsprop_options), { -1.7134777, -0.16901968 } },
                  { co_adam(ctx, &adam_options), { -0.3690642, 0.25257057 } } };

    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); ++c) {
        co_value *w = co_variable(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4, 2), initial), NULL);
        co_value *slices = co_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3, 2), rows),
                                     co_tensor(ctx, CO_INT32, CO_SHAPE(3), (int32_t[]){ 1, 3, 1 }),
                                     NULL);
        const float *data;

        for (int t = 0; t < 3; ++t)
            apply(ctx, cases[c].optimizer, slices, w);
        CO_EXPECT_OK(ctx);
        data = co_value_data(ctx, co_variable_read(ctx, w));
        CO_EXPECT_CLOSE(data[2], cases[c].row[0], 2e-6);
        CO_EXPECT_CLOSE(data[3], cases[c].row[1], 2e-6);
        CO_EXPECT_CLOSE(data[4], c == 3 ? 0 : -0.789f, 0); /* Ftrl recomputes every row */
    }
}

/* --- bits --- */

enum { LARGE = 200001, SOME = 5 };

static void
fill(float *data, int64_t n, double by)
{
    for (int64_t i = 0; i < n; ++i)
        data[i] = (float)(by * (double)((i * 7919) % 101 - 50));
}

/* Options that put work before and after the rule. */
static void
configure(co_context *ctx, co_optimizer *optimizer)
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;

    o.weight_decay = 0.01;
    o.clip_value = 0.3;
    o.use_ema = true;
    co_optimizer_configure(ctx, optimizer, &o);
}

/* A large variable, on all threads, and its last elements alone. */
CO_TEST_WITH(chunks_and_parts_change_no_bit, "", "threads=3")
{
    float    *data = malloc(LARGE * sizeof(float)), *slopes = malloc(LARGE * sizeof(float));
    co_value *w, *g, *few, *end;

    fill(data, LARGE, 0.02);
    fill(slopes, LARGE, -0.013);
    w = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(LARGE), data);
    g = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(LARGE), slopes);
    few = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(SOME), data + LARGE - SOME);
    end = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(SOME), slopes + LARGE - SOME);
    for (size_t r = 0; r < NUM_RULES; ++r)
        for (int with = 0; with < 2; ++with)
            CO_BLOCK(ctx) {
                co_optimizer *one = rules[r].make(ctx), *other = rules[r].make(ctx);
                co_value     *a = co_variable(ctx, w, NULL), *b = co_variable(ctx, few, NULL);

                if (with == 1) {
                    configure(ctx, one);
                    configure(ctx, other);
                }
                for (int t = 0; t < 2; ++t) {
                    apply(ctx, one, g, a);
                    apply(ctx, other, end, b);
                }
                CO_EXPECT_OK(ctx);
                CO_EXPECT_BYTES((const float *)co_value_data(ctx, co_variable_read(ctx, a)) +
                                    LARGE - SOME,
                                co_value_data(ctx, co_variable_read(ctx, b)), SOME * sizeof(float));
            }
    free(data);
    free(slopes);
}

CO_TEST(many_variables_have_the_bits_of_one, "")
{
    enum { MANY = 100, EACH = 7 };
    float data[MANY * EACH], slopes[MANY * EACH];

    fill(data, MANY * EACH, 0.02);
    fill(slopes, MANY * EACH, -0.013);
    for (size_t r = 0; r < NUM_RULES; ++r) {
        co_optimizer *one = rules[r].make(ctx), *other = rules[r].make(ctx);
        co_value     *a = co_variable(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(MANY * EACH), data),
                                      NULL);
        co_value     *g = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(MANY * EACH), slopes);
        co_value     *weights[MANY], *parts[MANY];

        for (int i = 0; i < MANY; ++i) {
            weights[i] = co_variable(ctx,
                                     co_tensor(ctx, CO_FLOAT32, CO_SHAPE(EACH), data + i * EACH),
                                     NULL);
            parts[i] = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(EACH), slopes + i * EACH);
        }
        for (int t = 0; t < 3; ++t) {
            apply(ctx, one, g, a);
            co_apply_gradients(ctx, other, co_list(ctx, parts, MANY), co_list(ctx, weights, MANY));
        }
        CO_EXPECT_OK(ctx);
        for (int i = 0; i < MANY; ++i)
            CO_EXPECT_BYTES(co_value_data(ctx, co_variable_read(ctx, weights[i])),
                            (const float *)co_value_data(ctx, co_variable_read(ctx, a)) + i * EACH,
                            EACH * sizeof(float));
    }
}

/* --- rules of users --- */

static void
prepare_own(int64_t step, double learning_rate, double *scalars, void *user)
{
    scalars[0] = learning_rate;
    scalars[1] = 0.5;
    *(int64_t *)user = step;
}

static void
update_own(const double *scalars, const co_optimizer_part *part, void *user)
{
    const float  rate = (float)scalars[0], mu = (float)scalars[1];
    const float *g = part->gradient;
    float       *w = part->value, *m = part->slots[0];

    (void)user;
    for (int64_t i = 0; i < part->n; ++i) {
        m[i] = mu * m[i] - rate * g[i];
        w[i] += m[i];
    }
}

static co_optimizer *
make_own(co_context *ctx, int64_t *step)
{
    char              name[] = "own", slot[] = "speed"; /* are gone afterwards */
    co_optimizer_rule rule = CO_OPTIMIZER_RULE_INIT;

    rule.name = name;
    rule.num_slots = 1;
    rule.slots[0] = slot;
    rule.num_scalars = 2;
    rule.learning_rate = 0.125;
    rule.prepare = prepare_own;
    rule.update = update_own;
    rule.user = step;
    return co_custom_optimizer(ctx, &rule);
}

CO_TEST(a_rule_of_a_user_is_an_optimizer_like_any, "")
{
    int64_t       step = 0;
    co_optimizer *own = make_own(ctx, &step), *ours = make_momentum(ctx);
    co_value     *a = table(ctx), *b = table(ctx), *g = co_ones(ctx, CO_FLOAT32, CO_SHAPE(4, 2));

    configure(ctx, own);
    configure(ctx, ours);
    for (int t = 0; t < 3; ++t) {
        co_value *held = co_variable_read(ctx, a); /* so that the update is not in place */

        apply(ctx, own, g, a);
        apply(ctx, ours, g, b);
        CO_EXPECT_NOT_NULL(held);
    }
    CO_EXPECT_INT(step, 3);
    expect_equal(ctx, a, b, 8 * sizeof(float));
    expect_equal(ctx, co_optimizer_slot(ctx, own, "speed", a),
                 co_optimizer_slot(ctx, ours, "momentum", b), 8 * sizeof(float));
    CO_EXPECT_NULL(co_optimizer_slot(ctx, own, "momentum", a));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "own with these options has no slot 'momentum'");
}

CO_TEST(rules_that_cannot_be_are_refused, "")
{
    co_optimizer_rule rule = CO_OPTIMIZER_RULE_INIT;

    CO_EXPECT_NULL(co_custom_optimizer(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (rule)");
    CO_EXPECT_NULL(co_custom_optimizer(ctx, &rule));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no function `update`");
    rule.update = update_own;
    CO_EXPECT_NULL(co_custom_optimizer(ctx, &rule));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "no name");
    rule.name = "r";
    rule.num_slots = 5;
    CO_EXPECT_NULL(co_custom_optimizer(ctx, &rule));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "5 slots (4 are possible)");
    rule.num_slots = 2;
    rule.slots[0] = "s";
    CO_EXPECT_NULL(co_custom_optimizer(ctx, &rule));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "slot 1 of r has no name");
    rule.slots[1] = "s";
    CO_EXPECT_NULL(co_custom_optimizer(ctx, &rule));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "slot 1 of r is called 's'");
    rule.slots[1] = "average";
    CO_EXPECT_NULL(co_custom_optimizer(ctx, &rule));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "'average' as another one");
    rule.slots[1] = "t";
    rule.initial[1] = NAN;
    CO_EXPECT_NULL(co_custom_optimizer(ctx, &rule));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "'t' of r begins with nan");
    rule.initial[1] = 0;
    rule.learning_rate = INFINITY;
    CO_EXPECT_NULL(co_custom_optimizer(ctx, &rule));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "learning_rate is inf");
}

CO_TEST(hyperparameters_that_cannot_be_are_refused, "")
{
    co_rmsprop_options  rmsprop_options = CO_RMSPROP_OPTIONS_INIT;
    co_adagrad_options  adagrad_options = CO_ADAGRAD_OPTIONS_INIT;
    co_adadelta_options adadelta_options = CO_ADADELTA_OPTIONS_INIT;
    co_adamax_options   adamax_options = CO_ADAMAX_OPTIONS_INIT;
    co_nadam_options    nadam_options = CO_NADAM_OPTIONS_INIT;
    co_lion_options     lion_options = CO_LION_OPTIONS_INIT;
    co_ftrl_options     ftrl_options = CO_FTRL_OPTIONS_INIT;

    rmsprop_options.rho = 1.5;
    CO_EXPECT_NULL(co_rmsprop(ctx, &rmsprop_options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "rho is 1.5");
    adagrad_options.initial_accumulator_value = -1;
    CO_EXPECT_NULL(co_adagrad(ctx, &adagrad_options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "initial_accumulator_value is -1");
    adadelta_options.epsilon = NAN;
    CO_EXPECT_NULL(co_adadelta(ctx, &adadelta_options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "epsilon is nan");
    adamax_options.beta_1 = 1;
    CO_EXPECT_NULL(co_adamax(ctx, &adamax_options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "beta_1 is 1");
    nadam_options.learning_rate = INFINITY;
    CO_EXPECT_NULL(co_nadam(ctx, &nadam_options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "learning_rate is inf");
    lion_options.beta_1 = 0;
    CO_EXPECT_NULL(co_lion(ctx, &lion_options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "beta_1 is 0");
    ftrl_options.learning_rate_power = 0.5;
    CO_EXPECT_NULL(co_ftrl(ctx, &ftrl_options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "learning_rate_power 0.5");
    ftrl_options.learning_rate_power = 0;
    ftrl_options.l2_regularization_strength = -1;
    CO_EXPECT_NULL(co_ftrl(ctx, &ftrl_options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "l2_regularization_strength -1");
}
