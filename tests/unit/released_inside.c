/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of the program that release what they are called for, use what does not fit, or call
 * back into where they came from. Whatever they do, the call that called them ends with a result or
 * an error.
 */
#include <cohort/v1.h>
#include "engine_support.h"

/* What a function gives up when it is first called: kept before, so this is the last reference. */
typedef struct last {
    void        *handle;
    co_strategy *strategy;
    co_value    *value;
    int          calls;
} last;

static void
give_up(co_context *ctx, last *l)
{
    if (l->calls++ == 0 && l->handle != NULL)
        co_release(ctx, l->handle);
}

/* A strategy that nobody holds but the program. */
static co_strategy *
own_mirrored(co_context *ctx)
{
    co_strategy *s = NULL;

    CO_BLOCK(ctx) {
        s = test_mirrored(ctx, 2, -1);
        co_keep(ctx, s);
    }
    return s;
}

static co_value *
variable_of(co_context *ctx, co_strategy *s, double initial)
{
    co_value *v = NULL;

    CO_BLOCK(ctx) {
        CO_SCOPE(ctx, s)
            v = co_variable(ctx, co_scalar_float(ctx, (float)initial), NULL);
        co_keep(ctx, v);
    }
    return v;
}

static co_value *
update_and_release(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    give_up(ctx, user);
    return co_assign_add(ctx, variable, co_at(ctx, args, 0));
}

CO_TEST_WITH(an_update_may_release_its_variable, "EXT-UPD-1 THR-4", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    last         l = { .handle = variable_of(ctx, s, 1) };
    co_value    *r = co_update(ctx, s, l.handle, update_and_release,
                               co_args(ctx, co_scalar_float(ctx, 2)), &l, NULL);

    CO_EXPECT_INT(l.calls, 2);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, co_local_results(ctx, s, r), 1)), 3, 0);
}

static co_value *
value_and_release(co_context *ctx, const co_value_context *replica, void *user)
{
    give_up(ctx, user);
    return co_int(ctx, replica->replica_id_in_sync_group);
}

static co_dataset *
dataset_and_release(co_context *ctx, const co_input_context *input, void *user)
{
    (void)input;
    give_up(ctx, user);
    return co_dataset_batch(ctx, co_dataset_range(ctx, 0, 8, 1), 4, false);
}

static co_value *
non_slot_and_release(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    give_up(ctx, user);
    return co_int(ctx, 1);
}

CO_TEST_WITH(functions_may_release_the_strategy, "THR-4 S-VFF-1 DS-FN-1 EXT-UNS-1", "cpus=2")
{
    last l = { .handle = own_mirrored(ctx) };

    co_distribute_values_from_function(ctx, l.handle, value_and_release, &l);
    CO_EXPECT_OK(ctx);
    l = (last){ .handle = own_mirrored(ctx) };
    co_distribute_datasets_from_function(ctx, l.handle, dataset_and_release, &l, NULL);
    CO_EXPECT_OK(ctx);
    l = (last){ .handle = own_mirrored(ctx) };
    co_update_non_slot(ctx, l.handle, co_worker_devices(ctx, l.handle), non_slot_and_release,
                       co_no_args(ctx), &l, NULL);
    CO_EXPECT_INT(l.calls, 2);
    CO_EXPECT_OK(ctx);
}

static co_value *
step_and_release(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    last *l = user;

    if (l->calls == 0)
        co_release(ctx, l->strategy);
    give_up(ctx, l);
    co_set_last_step_output(ctx, steps, "x", CO_REDUCE_NONE, inputs);
    return NULL;
}

CO_TEST_WITH(steps_may_release_iterator_and_strategy, "EXT-STEPS-1 THR-4", "cpus=2")
{
    last             l = { .strategy = own_mirrored(ctx) };
    co_step_context *steps;

    CO_BLOCK(ctx) {
        co_dataset *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 8, 1), 2, false);

        l.handle = co_iterate(ctx, co_distribute_dataset(ctx, l.strategy, data, NULL));
        co_keep(ctx, l.handle);
    }
    steps = co_run_steps_on_iterator(ctx, l.strategy, step_and_release, l.handle, &l, 3, NULL);
    CO_EXPECT_INT(l.calls, 3);
    CO_EXPECT_INT(co_num_items(ctx, co_last_step_outputs(ctx, steps)), 1);
    CO_EXPECT_OK(ctx);
}

static co_value *
leaf_and_release(co_context *ctx, co_value *leaf, void *user)
{
    give_up(ctx, user);
    return co_add(ctx, leaf, co_int(ctx, 1));
}

CO_TEST(leaves_may_release_their_structure, "THR-4")
{
    last      l = { .calls = 0 };
    co_value *mapped;

    CO_BLOCK(ctx) {
        l.handle = co_args(ctx, co_int(ctx, 1), co_args(ctx, co_int(ctx, 2), co_int(ctx, 3)));
        co_keep(ctx, l.handle);
    }
    mapped = co_map_structure(ctx, l.handle, leaf_and_release, &l);
    CO_EXPECT_INT(l.calls, 3);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, co_at(ctx, mapped, 1), 1)), 4);
}

static co_value *
create_and_release(co_context *ctx, co_creation *next, co_value *initial,
                   const co_variable_options *options, void *user)
{
    give_up(ctx, user);
    return co_creator_next(ctx, next, initial, options);
}

CO_TEST_WITH(creators_may_release_the_initial_value, "VAR-CREATOR-1 THR-4", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    last         l = { .calls = 0 };
    co_value    *v = NULL;

    CO_BLOCK(ctx) {
        l.handle = co_ones(ctx, CO_FLOAT32, CO_SHAPE(300));
        co_keep(ctx, l.handle);
    }
    CO_CREATOR(ctx, create_and_release, &l)
        CO_SCOPE(ctx, s)
            v = co_variable(ctx, l.handle, NULL);
    CO_EXPECT_INT(l.calls, 2);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_sum(ctx, v, CO_ALL_AXES, false)), 300, 0);
}

static void
visit_and_release(const co_flight_record *record, void *user)
{
    last *l = user;

    (void)record;
    give_up((co_context *)(void *)l->value, l);
}

static co_value *
meet(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

CO_TEST_WITH(visitors_of_the_recorder_may_release_the_strategy, "THR-4", "cpus=2")
{
    co_strategy *s = own_mirrored(ctx);
    last         l = { .handle = s, .value = (co_value *)(void *)ctx };

    CO_BLOCK(ctx) {
        co_run(ctx, s, meet, co_no_args(ctx), NULL);
        co_run(ctx, s, meet, co_no_args(ctx), NULL);
    }
    CO_EXPECT_CODE(co_flight_visit(ctx, s, visit_and_release, &l), CO_OK);
    CO_EXPECT_INT(l.calls, 2);
}

static co_value *
release_in_hook(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
                const co_run_options *options, void *data)
{
    (void)strategy;
    (void)fn;
    (void)args;
    (void)user;
    (void)options;
    give_up(ctx, data);
    return co_int(ctx, 7);
}

CO_TEST_WITH(a_hook_may_release_its_strategy, "THR-4", "cpus=2")
{
    last                   l = { .calls = 0 };
    co_strategy_definition mine = CO_STRATEGY_DEFINITION_INIT;

    mine.name = "Gone";
    mine.run = release_in_hook;
    mine.data = &l;
    CO_BLOCK(ctx) {
        l.handle = co_define_strategy(ctx, &mine);
        co_keep(ctx, l.handle);
    }
    CO_EXPECT_INT(co_item_int(ctx, co_run(ctx, l.handle, meet, co_no_args(ctx), NULL)), 7);
    CO_EXPECT_OK(ctx);
}

/* --- what does not fit --- */

static co_value *
use_variable(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_assign_add(ctx, user, co_scalar_float(ctx, 1));
    co_variable_is_initialized(ctx, user);
    co_value_device(ctx, user);
    return co_variable_read(ctx, user);
}

/* More devices than the variable has components: the last updates belong to none of them. */
CO_TEST_WITH(updates_of_more_devices_than_components, "EXT-UNS-1 VAR-MIR-9", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *v = variable_of(ctx, s, 0), *name = co_string(ctx, "/cpu:0"), *r;

    r = co_update_non_slot(ctx, s, co_args(ctx, name, name, name, name), use_variable,
                           co_no_args(ctx), v,
                           &(co_update_options){ sizeof(co_update_options), false });
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(co_num_items(ctx, r), 4);
    /* One each, and then one for all, twice. */
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, co_local_results(ctx, s, v), 0)), 3, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, co_local_results(ctx, s, v), 1)), 3, 0);
    co_release(ctx, v);
}

static co_value *
steps_within_steps(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    last *l = user;

    (void)inputs;
    if (++l->calls < 4)
        co_run_steps_on_iterator(ctx, l->strategy, steps_within_steps, l->handle, l, 1, NULL);
    co_set_last_step_output(ctx, steps, "depth", CO_REDUCE_NONE, co_int(ctx, l->calls));
    return NULL;
}

CO_TEST_WITH(steps_may_run_steps, "EXT-STEPS-1", "cpus=2")
{
    last             l = { .strategy = test_mirrored(ctx, 2, -1) };
    co_dataset      *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 8, 1), 2, false);
    co_step_context *steps;

    l.handle = co_iterate(ctx, co_distribute_dataset(ctx, l.strategy, data, NULL));
    steps = co_run_steps_on_iterator(ctx, l.strategy, steps_within_steps, l.handle, &l, 1, NULL);
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, co_last_step_outputs(ctx, steps), "depth")), 4);
    CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, l.strategy, steps_within_steps, l.handle, &l,
                                            INT64_MAX, NULL));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
}

/* Scatters into what has no rows, or none of that number. */
CO_TEST_WITH(rows_that_are_not_there, "VAR-MIR-8", "cpus=2")
{
    co_strategy  *s = test_mirrored(ctx, 2, -1);
    const int64_t bad[] = { -1, 2, INT64_MAX, INT64_MIN };
    co_value     *v = NULL, *scalar = variable_of(ctx, s, 0), *declared = NULL;

    CO_SCOPE(ctx, s) {
        v = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)), NULL);
        declared = co_variable(ctx, co_spec(ctx, CO_FLOAT32, CO_SHAPE(2)), NULL);
    }
    for (size_t i = 0; i < 4; ++i) {
        co_value *row = co_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1)),
                                  co_tensor(ctx, CO_INT64, CO_SHAPE(1), &bad[i]), NULL);

        CO_EXPECT_NULL(co_scatter_add(ctx, v, row));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, NULL);
        CO_EXPECT_NULL(co_scatter_update(ctx, scalar, row));
        CO_EXPECT_TRUE(!co_ok(ctx));
        co_clear(ctx);
    }
    CO_EXPECT_NULL(
        co_scatter_min(ctx, declared,
                       co_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1)),
                                 co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ 0 }), NULL)));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
    CO_EXPECT_NULL(co_variable_save(ctx, declared));
    CO_EXPECT_ERROR(ctx, CO_FAILED_PRECONDITION, "no value yet");
    CO_EXPECT_CODE(co_variable_restore(ctx, declared, co_none(ctx)), CO_TYPE_ERROR);
    CO_EXPECT_TRUE(!co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_FALSE(co_variable_is_initialized(ctx, declared));
    co_release(ctx, scalar);
}

/* Arrays that are none. */
CO_TEST_WITH(arrays_that_cannot_be_sliced, "NP-3", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 2));
    co_value    *wrong[] = {
           co_none(ctx),
           co_int(ctx, 1),
           co_args(ctx, x, co_ones(ctx, CO_FLOAT32, CO_SHAPE(3))),
           co_scalar_float(ctx, 1),
           co_spec(ctx, CO_FLOAT32, CO_SHAPE(2)),
           co_slices(ctx, x, co_tensor(ctx, CO_INT32, CO_SHAPE(2), (int32_t[]){ 0, 1 }), NULL),
           co_no_args(ctx)
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        co_dataset *made = co_make_numpy_dataset(ctx, s, wrong[i]);

        if (made == NULL)
            CO_EXPECT_TRUE(!co_ok(ctx));
        else /* slices are made dense */
            CO_EXPECT_OK(ctx);
        co_clear(ctx);
    }
    CO_EXPECT_NOT_NULL(co_make_numpy_dataset(ctx, s, co_ones(ctx, CO_FLOAT32, CO_SHAPE(0, 3))));
}
