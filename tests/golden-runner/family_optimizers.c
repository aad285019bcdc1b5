/* SPDX-License-Identifier: Apache-2.0 */
/* optimizers: trajectories of two variables under given gradients, and values of schedules. */
#include "captured.h"
#include "families.h"
#include "optimizers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VARIABLES = 4, MAX_STEPS = 128 };

/* --- hyper-parameters --- */

/* A number of an object, or the fallback where it is absent or null. */
static double
number(json_t *object, const char *key, double fallback)
{
    json_t *field = json_object_get(object, key);

    return json_is_number(field) ? json_number_value(field) : fallback;
}

static bool
flag(json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static co_schedule *
piecewise(golden_case *c, json_t *json)
{
    json_t *boundaries = json_object_get(json, "boundaries");
    json_t *values = json_object_get(json, "values");
    int64_t at[MAX_STEPS];
    double  rates[MAX_STEPS];
    size_t  n = json_array_size(boundaries), m = json_array_size(values);

    if (n > MAX_STEPS || m > MAX_STEPS) {
        golden_fail(c, "more than %d boundaries", MAX_STEPS);
        return NULL;
    }
    for (size_t i = 0; i < n; ++i)
        at[i] = (int64_t)json_number_value(json_array_get(boundaries, i));
    for (size_t i = 0; i < m; ++i)
        rates[i] = json_number_value(json_array_get(values, i));
    return co_piecewise_constant_decay(c->ctx, at, n, rates, m);
}

static co_schedule *
polynomial(golden_case *c, json_t *json, double initial, int64_t steps)
{
    co_polynomial_decay_options o = CO_POLYNOMIAL_DECAY_OPTIONS_INIT;

    o.end_learning_rate = number(json, "end_learning_rate", o.end_learning_rate);
    o.power = number(json, "power", o.power);
    o.cycle = flag(json, "cycle");
    return co_polynomial_decay(c->ctx, initial, steps, &o);
}

static co_schedule *
cosine(golden_case *c, json_t *json, double initial, int64_t steps)
{
    co_cosine_decay_options o = CO_COSINE_DECAY_OPTIONS_INIT;

    o.alpha = number(json, "alpha", o.alpha);
    o.warmup_steps = (int64_t)number(json, "warmup_steps", 0);
    o.warmup_target = number(json, "warmup_target", 0);
    /* a target without steps is where the decay begins */
    if (o.warmup_steps == 0 && json_is_number(json_object_get(json, "warmup_target")))
        initial = o.warmup_target;
    return co_cosine_decay(c->ctx, initial, steps, &o);
}

static co_schedule *
restarts(golden_case *c, json_t *json, double initial)
{
    co_cosine_decay_restarts_options o = CO_COSINE_DECAY_RESTARTS_OPTIONS_INIT;

    o.t_mul = number(json, "t_mul", o.t_mul);
    o.m_mul = number(json, "m_mul", o.m_mul);
    o.alpha = number(json, "alpha", o.alpha);
    return co_cosine_decay_restarts(c->ctx, initial, (int64_t)number(json, "first_decay_steps", 0),
                                    &o);
}

static co_schedule *
read_schedule(golden_case *c, json_t *json)
{
    const char *name = golden_string(c, json, "schedule");
    double      initial = number(json, "initial_learning_rate", 0);
    int64_t     steps = (int64_t)number(json, "decay_steps", 0);

    if (strcmp(name, "ExponentialDecay") == 0)
        return co_exponential_decay(c->ctx, initial, steps, number(json, "decay_rate", 0),
                                    flag(json, "staircase"));
    if (strcmp(name, "InverseTimeDecay") == 0)
        return co_inverse_time_decay(c->ctx, initial, steps, number(json, "decay_rate", 0),
                                     flag(json, "staircase"));
    if (strcmp(name, "PolynomialDecay") == 0)
        return polynomial(c, json, initial, steps);
    if (strcmp(name, "CosineDecay") == 0)
        return cosine(c, json, initial, steps);
    if (strcmp(name, "CosineDecayRestarts") == 0)
        return restarts(c, json, initial);
    if (strcmp(name, "PiecewiseConstantDecay") == 0)
        return piecewise(c, json);
    golden_fail(c, "schedule '%s' is not known to the runner", name);
    return NULL;
}

/* --- optimizers by name --- */

#define RATE(o)        o.learning_rate = number(h, "learning_rate", o.learning_rate)
#define TAKE(o, field) o.field = number(h, #field, o.field)

static co_optimizer *
make_sgd(co_context *ctx, json_t *h)
{
    co_sgd_options o = CO_SGD_OPTIONS_INIT;

    RATE(o);
    TAKE(o, momentum);
    o.nesterov = flag(h, "nesterov");
    return co_sgd(ctx, &o);
}

static co_optimizer *
make_adam(co_context *ctx, json_t *h)
{
    co_adam_options o = CO_ADAM_OPTIONS_INIT;

    RATE(o);
    TAKE(o, beta_1);
    TAKE(o, beta_2);
    TAKE(o, epsilon);
    o.amsgrad = flag(h, "amsgrad");
    return co_adam(ctx, &o);
}

static co_optimizer *
make_adamw(co_context *ctx, json_t *h)
{
    co_adam_options o = CO_ADAMW_OPTIONS_INIT;

    RATE(o);
    TAKE(o, beta_1);
    TAKE(o, beta_2);
    TAKE(o, epsilon);
    TAKE(o, weight_decay);
    o.amsgrad = flag(h, "amsgrad");
    return co_adamw(ctx, &o);
}

static co_optimizer *
make_rmsprop(co_context *ctx, json_t *h)
{
    co_rmsprop_options o = CO_RMSPROP_OPTIONS_INIT;

    RATE(o);
    TAKE(o, rho);
    TAKE(o, momentum);
    TAKE(o, epsilon);
    o.centered = flag(h, "centered");
    return co_rmsprop(ctx, &o);
}

static co_optimizer *
make_adagrad(co_context *ctx, json_t *h)
{
    co_adagrad_options o = CO_ADAGRAD_OPTIONS_INIT;

    RATE(o);
    TAKE(o, initial_accumulator_value);
    TAKE(o, epsilon);
    return co_adagrad(ctx, &o);
}

static co_optimizer *
make_adadelta(co_context *ctx, json_t *h)
{
    co_adadelta_options o = CO_ADADELTA_OPTIONS_INIT;

    RATE(o);
    TAKE(o, rho);
    TAKE(o, epsilon);
    return co_adadelta(ctx, &o);
}

static co_optimizer *
make_adamax(co_context *ctx, json_t *h)
{
    co_adamax_options o = CO_ADAMAX_OPTIONS_INIT;

    RATE(o);
    TAKE(o, beta_1);
    TAKE(o, beta_2);
    TAKE(o, epsilon);
    return co_adamax(ctx, &o);
}

static co_optimizer *
make_nadam(co_context *ctx, json_t *h)
{
    co_nadam_options o = CO_NADAM_OPTIONS_INIT;

    RATE(o);
    TAKE(o, beta_1);
    TAKE(o, beta_2);
    TAKE(o, epsilon);
    return co_nadam(ctx, &o);
}

static co_optimizer *
make_lion(co_context *ctx, json_t *h)
{
    co_lion_options o = CO_LION_OPTIONS_INIT;

    RATE(o);
    TAKE(o, beta_1);
    TAKE(o, beta_2);
    return co_lion(ctx, &o);
}

static co_optimizer *
make_ftrl(co_context *ctx, json_t *h)
{
    co_ftrl_options o = CO_FTRL_OPTIONS_INIT;

    RATE(o);
    TAKE(o, learning_rate_power);
    TAKE(o, initial_accumulator_value);
    TAKE(o, l1_regularization_strength);
    TAKE(o, l2_regularization_strength);
    TAKE(o, l2_shrinkage_regularization_strength);
    TAKE(o, beta);
    return co_ftrl(ctx, &o);
}

/* Keras' names of slots where ours are others. */
typedef struct slot_name {
    const char *keras, *ours;
} slot_name;

static const struct maker {
    const char *name;
    co_optimizer *(*make)(co_context *ctx, json_t *hyper);
    slot_name slots[4];
} makers[] = {
    { "SGD", make_sgd, { { NULL, NULL } } },
    { "Adam",
      make_adam,
      { { "momentum", "m" }, { "velocity", "v" }, { "velocity_hat", "v_hat" } } },
    { "AdamW",
      make_adamw,
      { { "momentum", "m" }, { "velocity", "v" }, { "velocity_hat", "v_hat" } } },
    { "RMSprop", make_rmsprop, { { NULL, NULL } } },
    { "Adagrad", make_adagrad, { { NULL, NULL } } },
    { "Adadelta", make_adadelta, { { NULL, NULL } } },
    { "Adamax", make_adamax, { { "momentum", "m" }, { "norm", "u" } } },
    { "Nadam", make_nadam, { { "momentum", "m" }, { "velocity", "v" } } },
    { "Lion", make_lion, { { NULL, NULL } } },
    { "Ftrl", make_ftrl, { { NULL, NULL } } },
};

static const struct maker *
find_maker(golden_case *c, const char *name)
{
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); ++i)
        if (strcmp(makers[i].name, name) == 0)
            return &makers[i];
    golden_fail(c, "optimizer '%s' is not known to the runner", name);
    return NULL;
}

/* Options that all have. Keras takes 0 for a number of steps as given, so 1 is what it refuses. */
static void
configure(golden_case *c, co_optimizer *optimizer, json_t *h)
{
    co_optimizer_options o = CO_OPTIMIZER_OPTIONS_INIT;
    json_t              *rate = json_object_get(h, "learning_rate");
    json_t              *exclude = json_object_get(h, "exclude_from_weight_decay");
    const char          *names[16];

    if (json_is_object(rate))
        o.schedule = read_schedule(c, rate);
    o.weight_decay = number(h, "weight_decay", 0);
    for (size_t i = 0; i < json_array_size(exclude) && i < 16; ++i)
        names[o.num_exclude_names++] = json_string_value(json_array_get(exclude, i));
    o.exclude_names = names;
    o.clip_value = number(h, "clipvalue", 0);
    o.clip_norm = number(h, "clipnorm", 0);
    o.clip_global_norm = number(h, "global_clipnorm", 0);
    o.accumulation_steps = (int)number(h, "gradient_accumulation_steps", 0);
    o.use_ema = flag(h, "use_ema");
    TAKE(o, ema_momentum);
    o.ema_overwrite_frequency = (int)number(h, "ema_overwrite_frequency", 0);
    if (co_ok(c->ctx))
        co_optimizer_configure(c->ctx, optimizer, &o);
}

co_optimizer *
golden_optimizer(golden_case *c, const char *name, json_t *hyper)
{
    const struct maker *maker = find_maker(c, name);
    co_optimizer       *optimizer = maker != NULL ? maker->make(c->ctx, hyper) : NULL;

    if (optimizer != NULL)
        configure(c, optimizer, hyper);
    return co_ok(c->ctx) && !c->is_failed ? optimizer : NULL;
}

/* --- trajectories --- */

typedef struct trajectory {
    golden_case  *c;
    const char   *name; /* of the optimizer */
    co_optimizer *optimizer;
    co_value     *variables[MAX_VARIABLES];
    size_t        n;
} trajectory;

static bool
make_variables(trajectory *t, json_t *initial)
{
    co_context *ctx = t->c->ctx;

    t->n = json_array_size(initial);
    if (t->n == 0 || t->n > MAX_VARIABLES) {
        golden_fail(t->c, "%zu variables", t->n);
        return false;
    }
    for (size_t i = 0; i < t->n; ++i) {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
        char                name[20];

        snprintf(name, sizeof(name), "var%zu", i);
        options.name = name;
        t->variables[i] = co_variable(ctx, golden_read_value(t->c, ctx, json_array_get(initial, i)),
                                      &options);
    }
    return co_ok(ctx) && !t->c->is_failed;
}

/* The gradients of a step, none for null. */
static co_value *
read_gradients(const trajectory *t, json_t *list)
{
    co_value *gradients[MAX_VARIABLES];

    for (size_t i = 0; i < t->n; ++i) {
        json_t *json = json_array_get(list, i);

        gradients[i] = json == NULL || json_is_null(json)
                           ? co_none(t->c->ctx)
                           : golden_read_value(t->c, t->c->ctx, json);
    }
    return co_ok(t->c->ctx) && !t->c->is_failed ? co_list(t->c->ctx, gradients, t->n) : NULL;
}

/* An update, and the variables after it. */
static co_value *
fn_apply(co_context *ctx, co_value *args, void *user)
{
    const trajectory *t = user;
    co_value         *reads[MAX_VARIABLES];

    co_apply_gradients(ctx, t->optimizer, co_at(ctx, args, 0), co_list(ctx, t->variables, t->n));
    for (size_t i = 0; i < t->n; ++i)
        reads[i] = co_variable_read(ctx, t->variables[i]);
    return co_list(ctx, reads, t->n);
}

/* The list of the variables after the step; NULL with an error, which is taken. */
static json_t *
apply(trajectory *t, co_value *gradients)
{
    co_context *ctx = t->c->ctx;
    co_value   *after;

    if (gradients == NULL)
        return NULL;
    after = golden_in_function(ctx, fn_apply, co_args(ctx, gradients), t);
    if (golden_take_error(t->c, ctx))
        return NULL;
    return json_incref(json_object_get(golden_write_value(ctx, after), "list"));
}

/* "var0_velocity" as recorded: the slot of ours that it is. */
static void
put_slot(const trajectory *t, json_t *slots, const char *key)
{
    const struct maker *maker = find_maker(t->c, t->name);
    const char         *name = strchr(key, '_');
    size_t              i = (size_t)strtoul(key + 3, NULL, 10);

    if (maker == NULL || name == NULL || strncmp(key, "var", 3) != 0 || i >= t->n) {
        golden_fail(t->c, "slot '%s' is not known to the runner", key);
        return;
    }
    ++name;
    for (int k = 0; k < 4 && maker->slots[k].keras != NULL; ++k)
        if (strcmp(maker->slots[k].keras, name) == 0) {
            name = maker->slots[k].ours;
            break;
        }
    json_object_set_new(
        slots, key,
        golden_write_value(t->c->ctx,
                           co_variable_read(t->c->ctx, co_optimizer_slot(t->c->ctx, t->optimizer,
                                                                         name, t->variables[i]))));
    golden_take_error(t->c, t->c->ctx);
}

/* Every slot that was recorded, and the number of ours beside it. Nadam's product of momenta is a
 * variable of Keras without a name of its own; ours follows from the step. */
static void
put_slots(trajectory *t)
{
    json_t     *expected = json_object_get(t->c->outputs, "final_slots"), *slots = json_object();
    const char *key;
    json_t     *value;
    void       *next;
    size_t n = 0, ours = co_num_items(t->c->ctx, co_optimizer_slot_names(t->c->ctx, t->optimizer));

    json_object_foreach_safe(expected, next, key, value)
    {
        if (strncmp(key, "variable", 8) == 0 && strcmp(t->name, "Nadam") == 0) {
            json_object_del(expected, key);
            continue;
        }
        put_slot(t, slots, key);
        ++n;
    }
    if (n != ours * t->n)
        golden_fail(t->c, "there are %zu slots of each of %zu variables, and %zu were recorded",
                    ours, t->n, n);
    golden_put(t->c, "final_slots", slots);
}

static void
put_rates(golden_case *c, const double *rates, size_t n)
{
    json_t     *expected = json_object_get(c->outputs, "learning_rates");
    const char *dtype = golden_string(c, expected, "dtype");
    int64_t     dim = (int64_t)n;
    co_value   *list = co_tensor(c->ctx, CO_FLOAT64, &dim, 1, rates);

    if (strcmp(dtype, "float32") == 0)
        list = co_cast(c->ctx, list, CO_FLOAT32);
    golden_put_value(c, "learning_rates", list);
}

static void
run_trajectory(golden_case *c)
{
    trajectory t = { .c = c, .name = golden_string(c, c->attrs, "optimizer") };
    json_t    *steps = json_object_get(c->inputs, "grads"), *seen = json_array();
    double     rates[MAX_STEPS];
    size_t     n = json_array_size(steps);

    t.optimizer = golden_optimizer(c, t.name, json_object_get(c->attrs, "hyper"));
    if (golden_take_error(c, c->ctx) || n > MAX_STEPS ||
        !make_variables(&t, json_object_get(c->inputs, "initial")))
        return;
    for (size_t s = 0; s < n && !c->is_failed; ++s) {
        json_t *values;

        rates[s] = co_optimizer_learning_rate(c->ctx, t.optimizer);
        values = apply(&t, read_gradients(&t, json_array_get(steps, s)));
        if (values == NULL)
            return;
        json_array_append_new(seen,
                              json_pack("{s:o,s:I}", "values", values, "iterations",
                                        (json_int_t)co_optimizer_iterations(c->ctx, t.optimizer)));
    }
    golden_put(c, "trajectory", seen);
    put_rates(c, rates, n);
    put_slots(&t);
}

static void
run_none_skipped(golden_case *c)
{
    trajectory t = { .c = c, .name = golden_string(c, c->attrs, "optimizer") };

    t.optimizer = golden_optimizer(c, t.name, json_object_get(c->attrs, "hyper"));
    if (t.optimizer == NULL || !make_variables(&t, json_object_get(c->inputs, "initial")))
        return;
    golden_put(c, "values", apply(&t, read_gradients(&t, json_object_get(c->inputs, "grads"))));
}

/* Every gradient is null. */
static void
run_none(golden_case *c)
{
    trajectory t = { .c = c, .name = golden_string(c, c->attrs, "optimizer") };
    json_t    *grads = json_object_get(c->attrs, "grads");
    co_value  *one = co_scalar_float(c->ctx, 1);

    t.optimizer = golden_optimizer(c, t.name, NULL);
    for (t.n = 0; t.n < json_array_size(grads) && t.n < MAX_VARIABLES; ++t.n)
        t.variables[t.n] = co_variable(c->ctx, one, NULL);
    if (t.optimizer != NULL)
        apply(&t, read_gradients(&t, grads));
}

/* The values of one variable after each of some steps with the same gradient. */
static json_t *
sparse_steps(golden_case *c, bool is_dense)
{
    trajectory t = { .c = c, .name = golden_string(c, c->attrs, "optimizer"), .n = 1 };
    co_value  *initial = golden_read_value(c, c->ctx, json_object_get(c->inputs, "initial"));
    co_value  *slices = co_slices(
         c->ctx, golden_read_value(c, c->ctx, json_object_get(c->inputs, "slices_values")),
         golden_read_value(c, c->ctx, json_object_get(c->inputs, "slices_indices")), NULL);
    json_t *seen = json_array();
    int64_t steps = golden_int(c, c->attrs, "steps", 0), shape[2];

    shape[0] = co_value_dim(c->ctx, initial, 0);
    shape[1] = co_value_dim(c->ctx, initial, 1);
    if (is_dense)
        slices = co_unsorted_segment_sum(c->ctx, co_slices_values(c->ctx, slices),
                                         co_slices_indices(c->ctx, slices), shape[0]);
    t.optimizer = golden_optimizer(c, t.name, json_object_get(c->attrs, "hyper"));
    t.variables[0] = co_variable(c->ctx, initial, NULL);
    for (int64_t s = 0; s < steps && t.optimizer != NULL; ++s) {
        json_t *values = apply(&t, co_list(c->ctx, &slices, 1));

        if (values != NULL)
            json_array_append(seen, json_array_get(values, 0));
        json_decref(values);
    }
    return seen;
}

static void
run_sparse(golden_case *c)
{
    golden_put(c, "values_with_indexed_slices", sparse_steps(c, false));
    golden_put(c, "values_with_dense_gradient", sparse_steps(c, true));
}

/* --- schedules --- */

static void
run_schedule(golden_case *c)
{
    co_schedule *schedule = read_schedule(c, json_object_get(c->attrs, "schedule"));
    json_t      *steps = json_object_get(c->attrs, "steps");
    float        values[MAX_STEPS];
    int64_t      n = (int64_t)json_array_size(steps);

    if (golden_take_error(c, c->ctx) || schedule == NULL || n > MAX_STEPS)
        return;
    for (int64_t i = 0; i < n; ++i)
        values[i] = (float)co_schedule_value(c->ctx, schedule,
                                             json_integer_value(json_array_get(steps, (size_t)i)));
    golden_put_value(c, "values", co_tensor(c->ctx, CO_FLOAT32, &n, 1, values));
    golden_no_meaning("schedules, which are numbers of the host");
}

void
golden_run_optimizers(golden_case *c)
{
    static const golden_action special[] = {
        { "schedule_values", run_schedule }, { "schedule", run_schedule },
        { "none_gradients", run_none },      { "none_gradient_skipped", run_none_skipped },
        { "sparse_gradient", run_sparse },
    };
    char group[80];

    golden_group(c->id, group, sizeof(group));
    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); ++i)
        if (strcmp(special[i].name, group) == 0) {
            special[i].run(c);
            return;
        }
    run_trajectory(c);
}
