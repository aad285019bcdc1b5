/* SPDX-License-Identifier: Apache-2.0 */
/* What all optimizers have in common: names, slots, and what is wrong to ask of them. */
#include "test.h"

#include <string.h>

static co_optimizer *
make_plain_sgd(co_context *ctx)
{
    return co_sgd(ctx, NULL);
}

static co_optimizer *
make_momentum(co_context *ctx)
{
    co_sgd_options options = CO_SGD_OPTIONS_INIT;

    options.momentum = 0.5;
    return co_sgd(ctx, &options);
}

static co_optimizer *
make_adam(co_context *ctx)
{
    return co_adam(ctx, NULL);
}

static co_optimizer *
make_adamw(co_context *ctx)
{
    return co_adamw(ctx, NULL);
}

static co_optimizer *
make_rmsprop(co_context *ctx)
{
    return co_rmsprop(ctx, NULL);
}

static co_optimizer *
make_adagrad(co_context *ctx)
{
    return co_adagrad(ctx, NULL);
}

static co_optimizer *
make_adadelta(co_context *ctx)
{
    return co_adadelta(ctx, NULL);
}

static co_optimizer *
make_adamax(co_context *ctx)
{
    return co_adamax(ctx, NULL);
}

static co_optimizer *
make_nadam(co_context *ctx)
{
    return co_nadam(ctx, NULL);
}

static co_optimizer *
make_lion(co_context *ctx)
{
    return co_lion(ctx, NULL);
}

static co_optimizer *
make_ftrl(co_context *ctx)
{
    return co_ftrl(ctx, NULL);
}

/* With everything that keeps slots. */
static co_optimizer *
make_configured(co_context *ctx)
{
    co_optimizer_options options = CO_OPTIMIZER_OPTIONS_INIT;
    co_optimizer        *lion = co_lion(ctx, NULL);

    options.use_ema = true;
    options.loss_scale = 2;
    co_optimizer_configure(ctx, lion, &options);
    return lion;
}

static const struct {
    const char *name;
    co_optimizer *(*make)(co_context *ctx);
    const char *slots[4];
} all[] = {
    { "sgd", make_plain_sgd, { NULL } },
    { "momentum", make_momentum, { "momentum" } },
    { "adam", make_adam, { "m", "v" } },
    { "adamw", make_adamw, { "m", "v" } },
    { "rmsprop", make_rmsprop, { "velocity" } },
    { "adagrad", make_adagrad, { "accumulator" } },
    { "adadelta", make_adadelta, { "accumulated_grad", "accumulated_delta_var" } },
    { "adamax", make_adamax, { "m", "u" } },
    { "nadam", make_nadam, { "m", "v" } },
    { "lion", make_lion, { "momentum" } },
    { "ftrl", make_ftrl, { "accumulator", "linear" } },
    { "lion with an average", make_configured, { "momentum", "average" } },
};
enum { NUM_OPTIMIZERS = sizeof(all) / sizeof(all[0]) };

static void
apply(co_context *ctx, co_optimizer *optimizer, co_value *gradient, co_value *variable)
{
    co_apply_gradients(ctx, optimizer, co_list(ctx, &gradient, 1), co_list(ctx, &variable, 1));
}

static co_value *
make_variable(co_context *ctx)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.name = "w";
    return co_variable(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(3)), &options);
}

/* What slots begin with: an average is the variable, which is 1. */
static double
first_value(const char *slot)
{
    return strcmp(slot, "accumulator") == 0 ? 0.1 : strcmp(slot, "average") == 0 ? 1 : 0;
}

CO_TEST(every_optimizer_names_its_slots, "")
{
    for (size_t o = 0; o < NUM_OPTIMIZERS; ++o) {
        co_optimizer *optimizer = all[o].make(ctx);
        co_value     *names = co_optimizer_slot_names(ctx, optimizer), *w = make_variable(ctx);
        size_t        n = 0;

        for (; all[o].slots[n] != NULL; ++n) {
            co_value *slot = co_optimizer_slot(ctx, optimizer, all[o].slots[n], w);
            char      name[40];

            snprintf(name, sizeof(name), "w/%s", all[o].slots[n]);
            CO_EXPECT_STR(co_string_at(ctx, co_at(ctx, names, n), 0, NULL), all[o].slots[n]);
            CO_EXPECT_STR(co_variable_name(ctx, slot), name);
            CO_EXPECT_INT(co_value_dtype(ctx, slot), CO_FLOAT32);
            CO_EXPECT_INT(co_value_dim(ctx, slot, 0), 3);
            CO_EXPECT_FALSE(co_variable_trainable(ctx, slot));
            CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_max(ctx, slot, CO_ALL_AXES, false)),
                            first_value(all[o].slots[n]), 1e-8);
        }
        CO_EXPECT_INT(co_num_items(ctx, names), n);
        CO_EXPECT_INT(co_optimizer_iterations(ctx, optimizer), 0);
    }
}

/* Whether a slot was asked for before, read meanwhile, or never looked at. */
CO_TEST(looking_at_slots_changes_no_bit, "")
{
    for (size_t o = 0; o < NUM_OPTIMIZERS; ++o) {
        co_optimizer *seen = all[o].make(ctx), *alone = all[o].make(ctx);
        co_value     *w[2] = { make_variable(ctx), make_variable(ctx) };
        co_value *g = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), (float[]){ 1, -2, 0.5f }), *reads[3];

        for (int step = 0; step < 3; ++step) {
            const char *slot = all[o].slots[0];

            reads[step] = slot != NULL
                              ? co_variable_read(ctx, co_optimizer_slot(ctx, seen, slot, w[0]))
                              : NULL;
            apply(ctx, seen, g, w[0]);
            apply(ctx, alone, g, w[1]);
        }
        CO_EXPECT_OK(ctx);
        CO_EXPECT_BYTES(co_value_data(ctx, co_variable_read(ctx, w[0])),
                        co_value_data(ctx, co_variable_read(ctx, w[1])), 3 * sizeof(float));
        for (size_t k = 0; all[o].slots[k] != NULL; ++k)
            CO_EXPECT_BYTES(
                co_value_data(ctx, co_variable_read(ctx, co_optimizer_slot(ctx, seen,
                                                                           all[o].slots[k], w[0]))),
                co_value_data(ctx, co_variable_read(ctx, co_optimizer_slot(ctx, alone,
                                                                           all[o].slots[k], w[1]))),
                3 * sizeof(float));
        if (all[o].slots[0] != NULL) /* what was read before the first update is as it was */
            CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, reads[0]))[0],
                            first_value(all[o].slots[0]), 1e-8);
    }
}

/* A run that is interrupted and continued with what was saved ends with the same bits. */
CO_TEST(slots_can_be_saved_and_restored, "")
{
    co_value     *g = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(3), (float[]){ 1, -2, 0.5f });
    co_value     *whole = make_variable(ctx), *first = make_variable(ctx), *then;
    co_optimizer *one = make_momentum(ctx), *two = make_momentum(ctx), *three = make_momentum(ctx);

    for (int step = 0; step < 4; ++step)
        apply(ctx, one, g, whole);
    for (int step = 0; step < 2; ++step)
        apply(ctx, two, g, first);
    then = co_variable(ctx, co_variable_save(ctx, first), NULL);
    co_variable_restore(ctx, co_optimizer_slot(ctx, three, "momentum", then),
                        co_variable_save(ctx, co_optimizer_slot(ctx, two, "momentum", first)));
    for (int step = 0; step < 2; ++step)
        apply(ctx, three, g, then);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_BYTES(co_value_data(ctx, co_variable_read(ctx, then)),
                    co_value_data(ctx, co_variable_read(ctx, whole)), 3 * sizeof(float));
}

CO_TEST(a_slot_outlives_its_optimizer, "")
{
    co_value *slot = NULL, *w = make_variable(ctx);

    CO_BLOCK(ctx) {
        co_optimizer *optimizer = make_momentum(ctx);

        apply(ctx, optimizer, co_ones(ctx, CO_FLOAT32, CO_SHAPE(3)), w);
        slot = co_optimizer_slot(ctx, optimizer, "momentum", w);
        co_keep(ctx, slot);
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_max(ctx, slot, CO_ALL_AXES, false)), -0.01, 1e-9);
    co_release(ctx, slot);
}

CO_TEST(slots_that_are_not_there_are_reported, "")
{
    co_value     *w = make_variable(ctx), *integer = co_variable(ctx, co_int(ctx, 1), NULL);
    co_optimizer *sgd = co_sgd(ctx, NULL), *adam = co_adam(ctx, NULL);

    CO_EXPECT_NULL(co_optimizer_slot(ctx, sgd, "momentum", w));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "no slot 'momentum'; it has none");
    CO_EXPECT_NULL(co_optimizer_slot(ctx, adam, "", w));
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, "Adam with these options has no slot ''; it has 'm', 'v'");
    CO_EXPECT_NULL(co_optimizer_slot(ctx, adam, "m", integer));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "int32");
    CO_EXPECT_NULL(co_optimizer_slot(ctx, adam, "m", co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
    CO_EXPECT_NULL(co_optimizer_slot(ctx, adam, NULL, w));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (name)");
    CO_EXPECT_NULL(co_optimizer_slot(ctx, NULL, "m", w));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "optimizer");
    CO_EXPECT_NULL(co_optimizer_slot_names(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "optimizer");
}

CO_TEST(what_is_no_list_of_variables_is_refused, "")
{
    co_optimizer *sgd = co_sgd(ctx, NULL);
    co_value     *w = make_variable(ctx), *g = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3));

    co_apply_gradients(ctx, sgd, g, w);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR,
                    "gradients is a tensor and variables is a variable; both must be lists");
    apply(ctx, sgd, g, g);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR,
                    "item 0 of variables is a tensor; it must be one that co_variable made");
    co_apply_gradients(ctx, sgd, co_list(ctx, &g, 1), co_no_args(ctx));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "gradients is a list of 1 and variables a tuple of 0");
}

CO_TEST(options_of_apply_gradients_are_checked, "")
{
    co_apply_gradients_options options = { 3, false };
    co_value                  *w = make_variable(ctx), *g = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3));

    CO_EXPECT_CODE(co_apply_gradients_with(ctx, co_sgd(ctx, NULL), co_list(ctx, &g, 1),
                                           co_list(ctx, &w, 1), &options),
                   CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size");
}

static co_value *
apply_nothing(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_apply_gradients(ctx, user, co_list(ctx, NULL, 0), co_list(ctx, NULL, 0));
    return NULL;
}

/* TensorFlow raises ValueError for both: nothing was trained, so nothing is counted. */
CO_TEST_WITH(nothing_to_apply_is_an_error_and_no_iteration, "", "cpus=2")
{
    co_strategy *s = co_mirrored_strategy(ctx, NULL, 0, NULL);

    for (size_t o = 0; o < NUM_OPTIMIZERS; ++o) {
        co_optimizer *optimizer = all[o].make(ctx);

        apply_nothing(ctx, NULL, optimizer);
        CO_EXPECT_STR(co_error(ctx)->call, "apply_gradients");
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "gradients and variables are empty lists");
        co_run(ctx, s, apply_nothing, co_no_args(ctx), optimizer);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "gradients and variables are empty lists");
        apply(ctx, optimizer, co_none(ctx), make_variable(ctx));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "does not depend on any of 1 variable, 'w");
        CO_EXPECT_INT(co_optimizer_iterations(ctx, optimizer), 0);
    }
}
