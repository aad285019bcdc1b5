/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: gradients are summed over replicas, slots are variables that follow their variable.
 */
#include "suite.h"

/* A variable of 10, its optimizer, and how gradients are applied. */
typedef struct trained {
    co_value                  *w;
    co_optimizer              *optimizer;
    co_apply_gradients_options options;
} trained;

static trained
make_trained(co_context *ctx, co_strategy *s, double momentum)
{
    co_sgd_options      sgd = CO_SGD_OPTIONS_INIT;
    co_variable_options named = CO_VARIABLE_OPTIONS_INIT;
    trained             t = { NULL, NULL, CO_APPLY_GRADIENTS_OPTIONS_INIT };

    sgd.learning_rate = 1;
    sgd.momentum = momentum;
    named.name = "w";
    t.optimizer = co_sgd(ctx, &sgd);
    CO_SCOPE(ctx, s)
        t.w = co_variable(ctx, co_scalar_float(ctx, 10), &named);
    return t;
}

/* The gradient of replica id is 1 + id. */
STEP(apply_own)
{
    trained  *t = user;
    co_value *g = co_scalar_float(ctx, (float)(1 + co_replica_id(ctx)));

    co_apply_gradients_with(ctx, t->optimizer, co_list(ctx, &g, 1), co_list(ctx, &t->w, 1),
                            &t->options);
    return NULL;
}

CONFORM(applied_gradients_are_summed_over_replicas, "")
{
    trained t = make_trained(ctx, s, 0);
    double  sum = row->n + SUM_OF_IDS(row->n);

    suite_step(ctx, s, apply_own, &t);
    EXPECT_LOCAL(ctx, s, t.w, 10 - sum, 0);
    t.options.skip_aggregation = true;
    suite_step(ctx, s, apply_own, &t);
    EXPECT_LOCAL(ctx, s, t.w, 10 - sum - 1, -1);
    CO_EXPECT_INT(co_optimizer_iterations(ctx, t.optimizer), 2);
}

/* A host number, and a variable that has no gradient. */
STEP(apply_some)
{
    trained  *t = user;
    co_value *gradients[2] = { co_none(ctx), co_float(ctx, 1) }, *variables[2] = { NULL, t->w };

    variables[0] = co_at(ctx, args, 0);
    co_apply_gradients(ctx, t->optimizer, co_list(ctx, gradients, 2), co_list(ctx, variables, 2));
    return NULL;
}

CONFORM(only_variables_with_a_gradient_are_updated, "")
{
    trained   t = make_trained(ctx, s, 0);
    co_value *other = suite_variable(ctx, s, 3, CO_SYNC_AUTO, CO_AGGREGATION_NONE);

    co_run(ctx, s, apply_some, co_args(ctx, other), &t);
    EXPECT_LOCAL(ctx, s, t.w, 10 - row->n, 0);
    EXPECT_LOCAL(ctx, s, other, 3, 0);
}

CONFORM(gradients_of_replicas_are_summed_outside_of_steps_too, "")
{
    trained   t = make_trained(ctx, s, 0);
    co_value *g = suite_floats(ctx, s, 1, 1), *plain = co_scalar_float(ctx, 2);

    co_apply_gradients(ctx, t.optimizer, co_list(ctx, &g, 1), co_list(ctx, &t.w, 1));
    EXPECT_LOCAL(ctx, s, t.w, 10 - row->n - SUM_OF_IDS(row->n), 0);
    CO_SCOPE(ctx, s)
        co_apply_gradients(ctx, t.optimizer, co_list(ctx, &plain, 1), co_list(ctx, &t.w, 1));
    EXPECT_LOCAL(ctx, s, t.w, 8 - row->n - SUM_OF_IDS(row->n), 0);
}

UPDATE(apply_to_component)
{
    trained  *t = user;
    co_value *g = co_at(ctx, args, 0);

    co_apply_gradients(ctx, t->optimizer, co_list(ctx, &g, 1), co_list(ctx, &variable, 1));
    return NULL;
}

/* The function of co_update gets a component, whose slot is that component of the slot. */
CONFORM(an_update_function_applies_what_it_was_given, "EXT-UPD-1")
{
    trained t = make_trained(ctx, s, 0.5);

    co_update(ctx, s, t.w, apply_to_component, co_args(ctx, suite_floats(ctx, s, 1, 1)), &t, NULL);
    EXPECT_LOCAL(ctx, s, t.w, 9, -1);
    EXPECT_LOCAL(ctx, s, co_optimizer_slot(ctx, t.optimizer, "momentum", t.w), -1, -1);
}

CONFORM(slots_follow_their_variable, "")
{
    trained   t = make_trained(ctx, s, 0.5);
    co_value *slot = co_optimizer_slot(ctx, t.optimizer, "momentum", t.w), *names;
    double    sum = row->n + SUM_OF_IDS(row->n);

    EXPECT_LOCAL(ctx, s, slot, 0, 0); /* made when it is asked for */
    names = co_optimizer_slot_names(ctx, t.optimizer);
    CO_EXPECT_INT(co_num_items(ctx, names), 1);
    CO_EXPECT_STR(co_string_at(ctx, co_at(ctx, names, 0), 0, NULL), "momentum");
    CO_EXPECT_STR(co_variable_name(ctx, slot), "w/momentum");
    CO_EXPECT_FALSE(co_variable_trainable(ctx, slot));
    CO_EXPECT_PTR(co_variable_strategy(ctx, slot), co_variable_strategy(ctx, t.w));
    for (int i = 0; i < row->local; ++i) {
        co_value *component = suite_local(ctx, s, t.w, i);

        CO_EXPECT_STR(co_value_device(ctx, suite_local(ctx, s, slot, i)),
                      co_value_device(ctx, component));
        CO_EXPECT_PTR(co_optimizer_slot(ctx, t.optimizer, "momentum", component),
                      suite_local(ctx, s, slot, i));
    }
    suite_step(ctx, s, apply_own, &t); /* m = -sum */
    EXPECT_LOCAL(ctx, s, slot, -sum, 0);
    EXPECT_LOCAL(ctx, s, t.w, 10 - sum, 0);
    co_assign(ctx, slot, co_scalar_float(ctx, 4));
    suite_step(ctx, s, apply_own, &t); /* m = 4 / 2 - sum */
    EXPECT_LOCAL(ctx, s, slot, 2 - sum, 0);
    EXPECT_LOCAL(ctx, s, t.w, 12 - 2 * sum, 0);
    CO_EXPECT_PTR(co_optimizer_slot(ctx, t.optimizer, "momentum", t.w), slot);
}

STEP(read_slot)
{
    trained  *t = user;
    co_value *slot, *before;

    apply_own(ctx, args, user);
    slot = co_optimizer_slot(ctx, t->optimizer, "momentum", t->w);
    before = co_variable_read(ctx, slot);
    apply_own(ctx, args, user);
    return co_args(ctx, before, co_variable_read(ctx, slot));
}

/* A slot that was read keeps what was read. */
CONFORM(slots_can_be_read_in_a_step, "")
{
    trained   t = make_trained(ctx, s, 0.5);
    co_value *both = suite_step(ctx, s, read_slot, &t);
    double    sum = row->n + SUM_OF_IDS(row->n);

    EXPECT_LOCAL(ctx, s, co_at(ctx, both, 0), -sum, 0);
    EXPECT_LOCAL(ctx, s, co_at(ctx, both, 1), -1.5 * sum, 0);
}

/* The first step of Adam is the learning rate, whatever the gradient. */
CONFORM(adam_takes_its_first_step, "")
{
    trained         t = make_trained(ctx, s, 0);
    co_adam_options adam = CO_ADAM_OPTIONS_INIT;

    adam.learning_rate = 0.5;
    adam.beta_1 = 0.5; /* float32 holds 1 - beta exactly */
    adam.beta_2 = 0.75;
    adam.epsilon = 0;
    t.optimizer = co_adam(ctx, &adam);
    suite_step(ctx, s, apply_own, &t);
    EXPECT_LOCAL(ctx, s, t.w, 9.5, 0);
    CO_EXPECT_NULL(co_optimizer_slot(ctx, t.optimizer, "momentum", t.w));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "no slot 'momentum'; it has 'm', 'v'");
}
