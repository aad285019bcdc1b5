/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls with an effect inside captured functions: each does in every call what it does without
 * capturing, with the same bits.
 */
#include "function_worlds.h"

/* --- values of replicas --- */

static co_value *
scaled_step(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    (void)user;
    return co_mul(ctx, x,
                  co_cast(ctx, co_add(ctx, co_replica_id_tensor(ctx), co_int(ctx, 2)), CO_FLOAT32));
}

static co_value *
id_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_args(ctx, co_int(ctx, co_replica_id(ctx)), co_replica_id_tensor(ctx),
                   co_int(ctx, co_num_replicas_in_sync(ctx, co_get_strategy(ctx))),
                   co_int(ctx, co_in_cross_replica_context(ctx)));
}

static co_value *
reducing(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *y = co_run(ctx, w->strategy, scaled_step, args, NULL), *both;

    ++w->calls;
    both = co_args(ctx, y, co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2)));
    return co_args(ctx, co_reduce(ctx, w->strategy, CO_REDUCE_MEAN, both, NULL, 0),
                   co_reduce(ctx, w->strategy, CO_REDUCE_SUM, y, NULL, 0),
                   co_reduce(ctx, w->strategy, w->op, y, CO_AXES(0)),
                   co_reduce(ctx, w->strategy, CO_REDUCE_MEAN, co_at(ctx, args, 0), CO_AXES(-1)));
}

CO_TEST_WITH(reduce_in_a_function, "S-REDUCE-5 S-REDUCE-6 S-REDUCE-7 S-REDUCE-14 FN-7 FN-9",
             "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i)
        for (int op = CO_REDUCE_SUM; op <= CO_REDUCE_PROD; ++op) {
            world with = { .strategy = strategy_of_place(ctx, i), .op = (co_reduce_op)op };

            compare_calls(ctx, &with, NULL, reducing, false);
        }
}

static co_value *
sized_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_slice(ctx, co_at(ctx, args, 0), (const int64_t[]){ 0 },
                    (const int64_t[]){ 1 + co_replica_id(ctx) }, 1);
}

static co_value *
gathering(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *y = co_run(ctx, w->strategy, scaled_step, args, NULL);
    co_value *sized = co_run(ctx, w->strategy, sized_step, args, NULL);

    ++w->calls;
    return co_args(ctx, co_gather_replicas(ctx, w->strategy, y, 0),
                   co_gather_replicas(ctx, w->strategy, sized, -1),
                   co_gather_replicas(ctx, w->strategy, co_at(ctx, args, 0), 0),
                   co_local_results(ctx, w->strategy, y),
                   co_local_results(ctx, w->strategy, co_at(ctx, args, 0)), y,
                   co_run(ctx, w->strategy, id_step, args, NULL));
}

CO_TEST_WITH(gather_and_local_results_in_a_function,
             "S-GATHER-2 S-GATHER-3 S-GATHER-4 S-LOCAL-1 S-LOCAL-2 CTX-7 FN-9", "cpus=2")
{
    compare_places_but_graphs(ctx, NULL, gathering, false);
}

static co_value *
same_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, co_at(ctx, args, 0), co_int(ctx, 6));
}

static co_value *
passing(co_context *ctx, co_value *args, void *user)
{
    world *w = user;

    ++w->calls;
    return co_run(ctx, w->strategy, same_step, args, NULL);
}

CO_TEST_WITH(a_captured_run_returns_a_value_of_all_replicas_unwrapped, "S-RUN-14 DV-GROUP-4 FN-9",
             "cpus=2")
{
    compare_places_but_graphs(ctx, NULL, passing, false);
}

static co_value *
value_of_replica(co_context *ctx, const co_value_context *replica, void *x)
{
    return co_add(ctx, x, co_int(ctx, replica->replica_id_in_sync_group + 1));
}

static co_value *
distributing(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *v = co_distribute_values_from_function(ctx, w->strategy, value_of_replica,
                                                     co_at(ctx, args, 0));

    ++w->calls;
    return co_args(ctx, v, co_run(ctx, w->strategy, scaled_step, co_args(ctx, v), NULL));
}

CO_TEST_WITH(values_from_a_function_in_a_function, "S-VFF-1 S-VFF-2 S-VFF-3 FN-9", "cpus=2")
{
    compare_places(ctx, NULL, distributing, false);
}

static co_value *
reducing_to(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *y = co_run(ctx, w->strategy, scaled_step, args, NULL), *pairs[2];

    ++w->calls;
    pairs[0] = co_args(ctx, y, co_string(ctx, "/cpu:0"));
    pairs[1] = co_args(ctx, y, y);
    return co_args(ctx, co_reduce_to(ctx, w->strategy, CO_REDUCE_SUM, y, co_string(ctx, "/cpu:0")),
                   co_reduce_to(ctx, w->strategy, CO_REDUCE_MEAN, y, y),
                   co_batch_reduce_to(ctx, w->strategy, CO_REDUCE_SUM, co_list(ctx, pairs, 2)));
}

CO_TEST_WITH(reduce_to_in_a_function, "EXT-RT-1 EXT-BRT-1 FN-9", "cpus=2")
{
    compare_places(ctx, NULL, reducing_to, false);
}

static void
make_variables(co_context *ctx, world *w)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.aggregation = w->aggregation;
    CO_SCOPE(ctx, w->strategy) {
        w->variables[0] = co_variable(ctx, floats(ctx, 1, 3), &options);
        options.synchronization = CO_SYNC_ON_READ;
        w->variables[1] = co_variable(ctx, floats(ctx, 2, 3), &options);
    }
}

static co_value *
add_twice(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)user;
    co_assign_add(ctx, variable, args);
    return co_assign_add(ctx, variable, co_mul(ctx, args, co_int(ctx, 3)));
}

static co_value *
updating(co_context *ctx, co_value *args, void *user)
{
    world            *w = user;
    co_value         *y = co_run(ctx, w->strategy, scaled_step, args, NULL), *one, *other;
    co_update_options apart = CO_UPDATE_OPTIONS_INIT;

    ++w->calls;
    apart.group = false;
    one = co_update(ctx, w->strategy, w->variables[0], add_twice, y, NULL, NULL);
    other = co_update(ctx, w->strategy, w->variables[0], add_twice, co_at(ctx, args, 0), NULL,
                      &apart);
    return co_args(ctx, one, other);
}

CO_TEST_WITH(update_in_a_function, "EXT-UPD-1 EXT-UPD-2 FN-9", "cpus=2")
{
    compare_places(ctx, make_variables, updating, false);
}

static co_value *
updating_step(co_context *ctx, co_value *args, void *user)
{
    world *w = user;

    ++w->calls;
    return co_update(ctx, w->strategy, w->variables[0], add_twice, scaled_step(ctx, args, NULL),
                     NULL, NULL);
}

CO_TEST_WITH(update_in_a_captured_step, "EXT-UPD-6 FN-9", "cpus=2")
{
    compare_places(ctx, make_variables, updating_step, true);
}

/* --- variables --- */

static co_value *
assigning_step(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = scaled_step(ctx, args, NULL), *seen[6];

    ++w->calls;
    seen[0] = co_assign_add(ctx, w->variables[0], x);
    seen[1] = co_variable_read(ctx, w->variables[0]);
    seen[2] = co_assign(ctx, w->variables[0], co_mul(ctx, x, x));
    seen[3] = co_assign_sub(ctx, w->variables[1], x);
    seen[4] = co_mul(ctx, w->variables[1], w->variables[0]);
    seen[5] = co_assign(ctx, w->variables[1], co_add(ctx, seen[4], seen[2]));
    return co_tuple(ctx, seen, 6);
}

CO_TEST_WITH(variables_of_every_aggregation_in_captured_steps,
             "VAR-MIR-3 VAR-MIR-4 VAR-MIR-5 VAR-SOR-1 FN-7", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i)
        for (int a = CO_AGGREGATION_NONE; a <= CO_AGGREGATION_ONLY_FIRST_REPLICA; ++a) {
            world with = { .strategy = strategy_of_place(ctx, i),
                           .aggregation = (co_aggregation)a };

            compare_calls(ctx, &with, make_variables, assigning_step, true);
        }
}

static co_value *
assigning_in_cross(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_at(ctx, args, 0), *y, *seen[6];

    ++w->calls;
    y = co_run(ctx, w->strategy, scaled_step, args, NULL);
    seen[0] = co_assign_add(ctx, w->variables[0], x);
    seen[1] = co_assign(ctx, w->variables[0], y);
    seen[2] = co_add(ctx, co_assign_sub(ctx, w->variables[0], floats(ctx, 0.5f, 3)), x);
    seen[3] = co_assign(ctx, w->variables[1], co_mul(ctx, x, w->variables[0]));
    seen[4] = co_variable_read(ctx, w->variables[1]);
    seen[5] = co_mul(ctx, w->variables[1], co_int(ctx, 2));
    return co_tuple(ctx, seen, 6);
}

static co_value *
assigning_in_scope(co_context *ctx, co_value *args, void *user)
{
    co_value *seen = NULL;

    CO_SCOPE(ctx, ((world *)user)->strategy) {
        seen = co_escape(ctx, assigning_in_cross(ctx, args, user));
    }
    return seen;
}

CO_TEST_WITH(variables_in_captured_cross_replica_code,
             "VAR-MIR-1 VAR-MIR-2 VAR-SOR-2 VAR-SOR-3 DV-USE-3 FN-7", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i)
        for (int a = CO_AGGREGATION_SUM; a <= CO_AGGREGATION_ONLY_FIRST_REPLICA; ++a) {
            world with = { .strategy = strategy_of_place(ctx, i),
                           .aggregation = (co_aggregation)a };

            compare_calls(ctx, &with, make_variables, assigning_in_cross, false);
            compare_calls(ctx, &with, make_variables, assigning_in_scope, false);
        }
}

/* --- iterators --- */

static void
make_iterator(co_context *ctx, world *w)
{
    co_dataset *rows = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 14, 1), 4, NULL);

    w->iterator = co_iterate(ctx, co_distribute_dataset(ctx, w->strategy, rows, NULL));
    make_variables(ctx, w);
}

static co_value *
loss_step(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_cast(ctx, co_at(ctx, args, 0), CO_FLOAT32), *loss;

    loss = co_average_loss(ctx, co_mul(ctx, x, co_float(ctx, 0.37)));
    co_assign_add(ctx, w->variables[0], co_mul(ctx, loss, floats(ctx, 1, 3)));
    return co_args(ctx, loss, x);
}

static co_value *
iterating(co_context *ctx, co_value *args, void *user)
{
    world *w = user;

    (void)args;
    ++w->calls;
    return co_run(ctx, w->strategy, loss_step, co_args(ctx, co_next(ctx, w->iterator)), w);
}

CO_TEST_WITH(a_function_takes_the_next_element_in_every_call, "DS-ITER-6 FN-5 FN-7 TR-1", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i) {
        world with = { .strategy = strategy_of_place(ctx, i),
                       .aggregation = CO_AGGREGATION_SUM,
                       .not_in_graph = true };

        compare_calls(ctx, &with, make_iterator, iterating, false);
    }
}

static co_value *
run_losses(co_context *ctx, co_value *args, void *user)
{
    world *w = user;

    ++w->calls;
    return co_run(ctx, w->strategy, loss_step, args, w);
}

CO_TEST_WITH(examples_of_an_element_reach_the_replayed_step, "FN-5 TR-1", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i) {
        world        eager = { .strategy = strategy_of_place(ctx, i) };
        world        captured;
        co_function *f;

        eager.aggregation = CO_AGGREGATION_SUM;
        captured = eager;
        make_iterator(ctx, &eager);
        make_iterator(ctx, &captured);
        f = co_function_of(
            ctx, run_losses, &captured,
            &(co_function_options){
                .struct_size = sizeof(co_function_options),
                .signature = co_args(ctx, co_iterator_element_spec(ctx, captured.iterator)) });
        for (int k = 0; k < 4; ++k) {
            co_value *a = run_losses(ctx, co_args(ctx, co_next(ctx, eager.iterator)), &eager);

            expect_same(ctx, a, co_call(ctx, f, co_args(ctx, co_next(ctx, captured.iterator))));
        }
        CO_EXPECT_INT(captured.calls, 1);
        expect_same_variables(ctx, &eager, &captured);
    }
}

static co_value *
get_next(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_get_next(ctx, ((world *)user)->iterator);
}

static co_value *
next(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_next(ctx, ((world *)user)->iterator);
}

CO_TEST(the_end_of_input_in_a_function_is_out_of_range, "DS-ITER-3 FN-7 FN-10")
{
    const co_fn bodies[] = { next, get_next };

    for (int k = 0; k < 2; ++k) {
        world        w = { .iterator = co_iterate(ctx, co_dataset_range(ctx, 3, 6, 1)) };
        co_function *f = co_function_of(ctx, bodies[k], &w, NULL);

        for (int i = 3; i < 6; ++i)
            CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, f, co_no_args(ctx))), i);
        for (int i = 0; i < 2; ++i) {
            CO_EXPECT_NULL(co_call(ctx, f, co_no_args(ctx)));
            CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "end of input");
        }
    }
}

static co_value *
next_optional(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_get_next_as_optional(ctx, ((world *)user)->iterator);
}

static co_value *
value_of_next(co_context *ctx, co_value *args, void *user)
{
    return co_neg(ctx, co_optional_get_value(ctx, next_optional(ctx, args, user)));
}

static co_value *
has_next(co_context *ctx, co_value *args, void *user)
{
    return co_optional_has_value_tensor(ctx, next_optional(ctx, args, user));
}

static co_value *
asks_next(co_context *ctx, co_value *args, void *user)
{
    return co_bool(ctx, co_optional_has_value(ctx, next_optional(ctx, args, user)));
}

static co_value *
takes_all(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    CO_EACH(ctx, x, ((world *)user)->iterator)
        co_square(ctx, x);
    return NULL;
}

CO_TEST(optionals_of_a_function_are_those_of_each_call, "DS-ITER-3 FN-7 FN-13")
{
    world        w[3] = { { .iterator = NULL } };
    co_function *whole = co_function_of(ctx, next_optional, &w[0], NULL);
    co_function *value = co_function_of(ctx, value_of_next, &w[1], NULL);
    co_function *has = co_function_of(ctx, has_next, &w[2], NULL);
    co_value    *optional;

    for (int i = 0; i < 3; ++i)
        w[i].iterator = co_iterate(ctx, co_dataset_range(ctx, 3, 6, 1));
    for (int i = 3; i < 6; ++i) {
        optional = co_call(ctx, whole, co_no_args(ctx));
        CO_EXPECT_TRUE(co_optional_has_value(ctx, optional));
        CO_EXPECT_INT(co_item_int(ctx, co_optional_get_value(ctx, optional)), i);
        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, value, co_no_args(ctx))), -i);
        CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, has, co_no_args(ctx))), 1);
    }
    optional = co_call(ctx, whole, co_no_args(ctx));
    CO_EXPECT_FALSE(co_optional_has_value(ctx, optional));
    CO_EXPECT_INT(co_item_int(ctx, co_optional_has_value_tensor(ctx, optional)), 0);
    CO_EXPECT_INT(co_item_int(ctx, co_call(ctx, has, co_no_args(ctx))), 0);
    CO_EXPECT_NULL(co_call(ctx, value, co_no_args(ctx)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "the optional is empty");
    CO_EXPECT_NULL(co_call(ctx, co_function_of(ctx, asks_next, &w[0], NULL), co_no_args(ctx)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "co_optional_has_value_tensor");
}

/* Elements and an optional in one program. */
static co_value *
next_and_optional(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_next(ctx, w->iterator);

    ++w->calls;
    return co_args(ctx, x, next_optional(ctx, args, user),
                   co_run(ctx, w->strategy, loss_step, co_args(ctx, x), w));
}

CO_TEST_WITH(elements_and_optionals_are_taken_in_order, "DS-ITER-6 FN-7", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i) {
        world        eager = { .strategy = strategy_of_place(ctx, i) }, captured;
        co_function *f;

        eager.aggregation = CO_AGGREGATION_SUM;
        captured = eager;
        f = co_function_of(ctx, next_and_optional, &captured, NULL);
        make_iterator(ctx, &eager);
        make_iterator(ctx, &captured);
        for (int k = 0; k < 2; ++k)
            expect_same(ctx, next_and_optional(ctx, co_no_args(ctx), &eager),
                        co_call(ctx, f, co_no_args(ctx)));
        CO_EXPECT_INT(captured.calls, 1);
    }
}

CO_TEST_WITH(optionals_of_distributed_datasets_in_a_function, "DS-ITER-5 DS-ITER-6 FN-7", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i) {
        world        eager = { .strategy = strategy_of_place(ctx, i) }, captured = eager;
        co_function *f = co_function_of(ctx, next_optional, &captured, NULL);

        make_iterator(ctx, &eager);
        make_iterator(ctx, &captured);
        for (int k = 0; k < 6; ++k)
            expect_same(ctx, next_optional(ctx, co_no_args(ctx), &eager),
                        co_call(ctx, f, co_no_args(ctx)));
    }
}

CO_TEST(what_a_program_cannot_do_with_iterators_is_said, "FN-7")
{
    world w = { .iterator = co_iterate(ctx, co_dataset_range(ctx, 3, 6, 1)) };

    CO_EXPECT_NULL(co_call(ctx, co_function_of(ctx, takes_all, &w, NULL), co_no_args(ctx)));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "has no end while it is captured");
    CO_EXPECT_INT(co_item_int(ctx, co_next(ctx, w.iterator)), 3);
}

/* --- random numbers --- */

static co_value *
drawing(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *x = co_at(ctx, args, 0), *seen[5];

    ++w->calls;
    seen[0] = co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(3), -1, 1);
    seen[1] = co_random_normal(ctx, CO_FLOAT64, CO_SHAPE(2), 0, 2);
    seen[2] = co_dropout(ctx, x, 0.5);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    seen[3] = co_gradient(ctx, co_dropout(ctx, co_square(ctx, x), 0.3), x);
    seen[4] = co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(2), 1, 1);
    return co_tuple(ctx, seen, 5);
}

CO_TEST_WITH(random_numbers_of_a_function_are_those_of_its_code, "FN-7 S-RUN-7", "cpus=2")
{
    compare_places(ctx, NULL, drawing, false);
    compare_places(ctx, NULL, drawing, true);
}

static co_value *
draw_twice(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(8), 0, 1);
}

CO_TEST(numbers_are_fresh_in_every_call, "FN-7")
{
    co_function *f = co_function_of(ctx, draw_twice, NULL, NULL);
    co_value    *a = co_call(ctx, f, co_no_args(ctx)), *b = co_call(ctx, f, co_no_args(ctx));

    CO_EXPECT_OK(ctx);
    CO_EXPECT_TRUE(memcmp(co_value_data(ctx, a), co_value_data(ctx, b), 32) != 0);
}

static co_value *
seeding(co_context *ctx, co_value *args, void *user)
{
    co_value *before = draw_twice(ctx, args, NULL);

    ++((world *)user)->calls;
    co_set_seed(ctx, 99);
    return co_args(ctx, before, draw_twice(ctx, args, NULL), draw_twice(ctx, args, NULL));
}

CO_TEST_WITH(a_seed_is_set_in_every_call, "FN-7", "cpus=2")
{
    compare_places_but_graphs(ctx, NULL, seeding, false);
    compare_places(ctx, NULL, seeding, true);
}

static co_value *
random_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_args(ctx, draw_twice(ctx, args, NULL), co_dropout(ctx, co_at(ctx, args, 0), 0.5));
}

static co_value *
run_and_draw(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *seen[4];

    ++w->calls;
    seen[0] = draw_twice(ctx, args, NULL);
    seen[1] = co_run(ctx, w->strategy, random_step, args, NULL);
    seen[2] = draw_twice(ctx, args, NULL);
    seen[3] = co_run(ctx, w->strategy, random_step, args, NULL);
    return co_tuple(ctx, seen, 4);
}

CO_TEST_WITH(steps_in_a_function_draw_the_numbers_of_their_replicas, "FN-7 S-RUN-7", "cpus=2")
{
    compare_places(ctx, NULL, run_and_draw, false);
}

/* --- making variables --- */

static co_value *
making(co_context *ctx, co_value *args, void *user)
{
    world *w = user;

    ++w->calls;
    if (w->variables[0] == NULL) {
        co_value *start = co_mul(ctx, co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1),
                                 co_float(ctx, 0.5));

        w->variables[0] = co_variable(ctx, start, NULL);
        co_keep(ctx, w->variables[0]);
        w->variables[1] = co_variable(ctx, co_add(ctx, start, w->variables[0]), NULL);
        co_keep(ctx, w->variables[1]);
    }
    co_assign_add(ctx, w->variables[0], co_at(ctx, args, 0));
    return co_mul(ctx, w->variables[0], w->variables[1]);
}

static void
release_variables(co_context *ctx, world *w)
{
    for (int i = 0; i < 4 && w->variables[i] != NULL; ++i)
        co_release(ctx, w->variables[i]);
}

/* Eager code that makes its variables in the first call. */
static void
compare_making(co_context *ctx, co_strategy *strategy, co_fn body, bool runs_steps)
{
    world        eager = { .strategy = strategy }, captured = eager;
    co_function *f = co_function_of(ctx, body, &captured, NULL);

    for (int i = 0; i < 3; ++i) {
        co_value *args = co_args(ctx, floats(ctx, (float)i, 3)), *a, *b;

        co_set_seed(ctx, 5);
        a = runs_steps ? co_run(ctx, strategy, body, args, &eager) : body(ctx, args, &eager);
        co_set_seed(ctx, 5);
        b = runs_steps ? co_run(ctx, strategy, co_captured, args, f) : co_call(ctx, f, args);
        expect_same(ctx, a, b);
    }
    expect_same_variables(ctx, &eager, &captured);
    release_variables(ctx, &eager);
    release_variables(ctx, &captured);
    CO_EXPECT_OK(ctx);
}

static co_value *
making_in_scope(co_context *ctx, co_value *args, void *user)
{
    co_value *seen = NULL;

    CO_SCOPE(ctx, ((world *)user)->strategy) {
        seen = co_escape(ctx, making(ctx, args, user));
    }
    return seen;
}

CO_TEST_WITH(the_first_capture_makes_variables, "FN-6 VAR-NEW-4", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i)
        compare_making(ctx, strategy_of_place(ctx, i), making_in_scope, false);
}

/* Each replica keeps its own handle. */
static co_value *
making_step(co_context *ctx, co_value *args, void *user)
{
    world *w = user;
    int    me = co_replica_id(ctx);

    if (w->variables[me] == NULL) {
        w->variables[me] = co_variable(ctx, co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1),
                                       NULL);
        co_keep(ctx, w->variables[me]);
    }
    return co_add(ctx, co_assign_add(ctx, w->variables[me], co_at(ctx, args, 0)), w->variables[me]);
}

static co_value *
making_in_run(co_context *ctx, co_value *args, void *user)
{
    return co_run(ctx, ((world *)user)->strategy, making_step, args, user);
}

CO_TEST_WITH(captured_steps_make_variables_once_for_all_replicas, "FN-6 VAR-RUN-1", "cpus=2")
{
    for (int i = 0; i < NUM_PLACES; ++i) {
        compare_making(ctx, strategy_of_place(ctx, i), making_step, true);
        compare_making(ctx, strategy_of_place(ctx, i), making_in_run, false);
    }
}

static co_value *
always_making(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_add(ctx, co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1)), NULL),
                  co_at(ctx, args, 0));
}

CO_TEST(a_later_capture_makes_no_variables, "FN-6")
{
    co_function *f = co_function_of(ctx, always_making, NULL, NULL);

    /* After a capture that makes variables it is captured again: so even the first call fails. */
    for (int i = 0; i < 2; ++i) {
        CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, floats(ctx, 1, 3))));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR,
                        "made by a later capture of 'function' than the first");
    }
}

static co_value *
making_if_asked(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0);

    return *(const bool *)user ? always_making(ctx, args, NULL) : co_neg(ctx, x);
}

CO_TEST(a_function_that_begins_to_make_variables_is_captured_anew, "FN-6")
{
    bool         makes = false;
    co_function *f = co_function_of(ctx, making_if_asked, &makes, NULL);

    CO_EXPECT_NOT_NULL(co_call(ctx, f, co_args(ctx, floats(ctx, 1, 3))));
    makes = true;
    CO_EXPECT_NOT_NULL(co_call(ctx, f, co_args(ctx, floats(ctx, 1, 3)))); /* replayed */
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, floats(ctx, 1, 4))));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "later capture");
    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, floats(ctx, 1, 3))));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "later capture");
    makes = false; /* it stays usable (FN-10) */
    CO_EXPECT_NOT_NULL(co_call(ctx, f, co_args(ctx, floats(ctx, 1, 3))));
}

static co_value *
making_of_argument(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_variable(ctx, co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2)), NULL);
}

CO_TEST(an_initial_value_may_not_depend_on_arguments, "FN-6")
{
    co_function *f = co_function_of(ctx, making_of_argument, NULL, NULL);

    CO_EXPECT_NULL(co_call(ctx, f, co_args(ctx, floats(ctx, 1, 3))));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "depends on an argument of the captured function");
}

/* --- slices and lists --- */

static void
make_table(co_context *ctx, world *w)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, w->strategy) {
        w->variables[0] = co_variable(ctx, co_reshape(ctx, floats(ctx, -1, 12), CO_SHAPE(6, 2)),
                                      &options);
    }
}

static co_value *
embedding(co_context *ctx, co_value *args, void *user)
{
    world        *w = user;
    const int32_t ids[] = { 1, 4, 1 };
    co_value     *at = co_tensor(ctx, CO_INT32, CO_SHAPE(3), ids), *x = co_at(ctx, args, 0);
    co_value     *rows, *slices, *seen[6];

    ++w->calls;
    co_tape_begin(ctx);
    rows = co_embedding_lookup(ctx, w->variables[0], at);
    slices = co_gradient(ctx, co_mul(ctx, co_square(ctx, rows), co_expand_dims(ctx, x, 1)),
                         w->variables[0]);
    seen[0] = slices;
    seen[1] = co_slices_values(ctx, slices);
    seen[2] = co_slices_indices(ctx, slices);
    seen[3] = co_to_tensor(ctx, slices, CO_DTYPE_NONE);
    seen[4] = co_add(ctx, slices, w->variables[0]);
    seen[5] = co_scatter_sub(ctx, w->variables[0], slices);
    return co_tuple(ctx, seen, 6);
}

CO_TEST_WITH(gradients_of_a_table_are_slices_in_a_function, "FN-8 VAR-MIR-8", "cpus=2")
{
    compare_places(ctx, make_table, embedding, true);
}

static co_value *
reduced_slices(co_context *ctx, co_value *args, void *user)
{
    world    *w = user;
    co_value *y = co_run(ctx, w->strategy, embedding, args, w);

    return co_args(ctx, co_reduce(ctx, w->strategy, CO_REDUCE_SUM, co_at(ctx, y, 0), NULL, 0), y);
}

CO_TEST_WITH(slices_of_replicas_are_reduced_in_a_function, "FN-8 S-REDUCE-20", "cpus=2")
{
    for (int i = 1; i < NUM_PLACES; ++i) {
        world        eager = { .strategy = strategy_of_place(ctx, i) }, captured = eager;
        co_function *f = co_function_of(ctx, reduced_slices, &captured, NULL);

        make_table(ctx, &eager);
        make_table(ctx, &captured);
        for (int k = 0; k < 3; ++k) {
            co_value *args = co_args(ctx, floats(ctx, (float)k, 3));

            expect_same(ctx, reduced_slices(ctx, args, &eager), co_call(ctx, f, args));
        }
        expect_same_variables(ctx, &eager, &captured);
    }
}

static co_value *
listing(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 0), *y = co_square(ctx, x), *pair[2] = { x, y }, *rows[2];
    co_value *list = co_list(ctx, pair, 2), *seen[4];

    ++((world *)user)->calls;
    rows[0] = list;
    rows[1] = co_args(ctx, y, co_neg(ctx, x));
    co_tape_begin(ctx);
    co_watch(ctx, x);
    seen[0] = co_to_tensor(ctx, list, CO_DTYPE_NONE);
    seen[1] = co_mul(ctx, list, co_float(ctx, 2));
    seen[2] = co_to_tensor(ctx, co_list(ctx, rows, 2), CO_FLOAT32);
    pair[1] = co_exp(ctx, x);
    seen[3] = co_gradient(ctx, co_square(ctx, co_list(ctx, pair, 2)), x);
    return co_tuple(ctx, seen, 4);
}

CO_TEST_WITH(lists_of_tensors_are_operands_in_a_function, "FN-8", "cpus=2")
{
    compare_places(ctx, NULL, listing, false);
}

/* --- want of memory --- */

static co_value *
many_sums(co_context *ctx, co_value *args, void *user)
{
    co_value *all[300];

    (void)user;
    for (int i = 0; i < 300; ++i)
        all[i] = co_at(ctx, args, 0);
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, all, 300));
}

static bool
reduces_many(co_context *ctx)
{
    co_function *f;
    co_value    *sums;

    if (ctx == NULL || (f = co_function_of(ctx, many_sums, NULL, NULL)) == NULL)
        return false;
    sums = co_call(ctx, f, co_args(ctx, floats(ctx, 1, 2)));
    return sums != NULL && co_value_kind(sums) == CO_KIND_LIST && co_num_items(ctx, sums) == 300;
}

CO_TEST_BARE(want_of_memory_while_a_collective_is_captured_is_an_error, "FN-10")
{
    (void)ctx;
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, reduces_many);
}

static co_value *
doubles(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    (void)user;
    return co_add(ctx, args, args);
}

static co_value *
adds(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)user;
    return co_assign_add(ctx, variable, args);
}

static co_value *
merge_and_update(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_merge_call(ctx, doubles, co_at(ctx, args, 0), NULL);

    return x != NULL ? co_update(ctx, co_get_strategy(ctx), user, adds, x, NULL, NULL) : NULL;
}

static bool
merges_and_updates(co_context *ctx)
{
    co_value    *v = ctx != NULL ? co_variable(ctx, floats(ctx, 0, 2), NULL) : NULL;
    co_function *f = v != NULL ? co_function_of(ctx, merge_and_update, v, NULL) : NULL;

    return f != NULL && co_call(ctx, f, co_args(ctx, floats(ctx, 1, 2))) != NULL &&
           co_call(ctx, f, co_args(ctx, floats(ctx, 1, 2))) != NULL && co_error(ctx)->code == CO_OK;
}

CO_TEST_BARE(want_of_memory_for_captured_merges_and_updates_is_an_error, "FN-10")
{
    (void)ctx;
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, merges_and_updates);
}
