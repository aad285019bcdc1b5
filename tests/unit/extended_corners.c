/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The corners of reduce, update and reduce_to: sparse and mixed parts, devices that are not there,
 * functions that return nothing or the wrong thing, the calls of strategy.h and extended.h on no
 * context and on one with an error, and want of memory.
 */
#include <cohort/tpu.h>
#include <cohort/v1.h>
#include "test.h"

static co_strategy *
two(co_context *ctx)
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };

    return co_mirrored_strategy(ctx, devices, 2, NULL);
}

static co_value *
pair(co_context *ctx, co_value *a, co_value *b)
{
    co_value *parts[] = { a, b };

    return co_per_replica_value(ctx, parts, 2);
}

static co_value *
numbers(co_context *ctx, float a, float b)
{
    return pair(ctx, co_scalar_float(ctx, a), co_scalar_float(ctx, b));
}

static co_value *
text(co_context *ctx)
{
    static const char *const words[] = { "word" };

    return co_tensor(ctx, CO_STRING, CO_SHAPE(1), words);
}

static co_value *
slices(co_context *ctx, float value, int64_t index)
{
    return co_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1), &value),
                     co_tensor(ctx, CO_INT64, CO_SHAPE(1), &index), NULL);
}

static co_value *
variable_of(co_context *ctx, co_strategy *strategy, const char *name)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    options.name = name;
    CO_SCOPE(ctx, strategy)
        v = co_variable(ctx, co_float(ctx, 1), &options);
    return v;
}

/* --- reduce --- */

CO_TEST_WITH(slices_are_concatenated_by_reduce, "S-REDUCE-20 S-GATHER-3", "cpus=2")
{
    co_strategy *m = two(ctx);
    co_value    *both = pair(ctx, slices(ctx, 1, 0), slices(ctx, 2, 1)), *r;
    float        values[2];
    int64_t      indices[2];

    r = co_reduce(ctx, m, CO_REDUCE_SUM, both, NULL, 0);
    co_value_copy_data(ctx, co_slices_values(ctx, r), CO_FLOAT32, values, 2);
    co_value_copy_data(ctx, co_slices_indices(ctx, r), CO_INT64, indices, 2);
    CO_EXPECT_CLOSE(values[1], 2, 0);
    CO_EXPECT_INT(indices[1], 1);
    r = co_reduce(ctx, m, CO_REDUCE_MEAN, both, NULL, 0);
    co_value_copy_data(ctx, co_slices_values(ctx, r), CO_FLOAT32, values, 2);
    CO_EXPECT_CLOSE(values[0], 0.5, 0);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM,
                             pair(ctx, slices(ctx, 1, 0), co_scalar_float(ctx, 1)), NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "replica 1");
    CO_EXPECT_NULL(co_gather_replicas(ctx, m, both, 0));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "slices");
}

CO_TEST_WITH(slices_are_copied_with_their_gradients, "EXT-BC-3", "cpus=2")
{
    static const char there[] = "/job:localhost/replica:0/task:0/device:CPU:1";
    co_value *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), (float[]){ 1, 2 }), *y = NULL, *dx;
    float     rows[2];

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_copy_to(ctx,
                   co_slices(ctx, x, co_tensor(ctx, CO_INT64, CO_SHAPE(2), (int64_t[]){ 0, 2 }),
                             co_tensor(ctx, CO_INT64, CO_SHAPE(1), (int64_t[]){ 3 })),
                   "/cpu:1");
    CO_EXPECT_INT(co_value_kind(y), CO_KIND_SLICES);
    CO_EXPECT_STR(co_value_device(ctx, co_slices_values(ctx, y)), there);
    CO_EXPECT_STR(co_value_device(ctx, co_slices_indices(ctx, y)), there);
    CO_EXPECT_STR(co_value_device(ctx, co_slices_dense_shape(ctx, y)), there);
    dx = co_gradient(ctx, co_reduce_sum(ctx, co_square(ctx, y), NULL, 0, false), x);
    co_value_copy_data(ctx, dx, CO_FLOAT32, rows, 2);
    CO_EXPECT_CLOSE(rows[0], 2, 0);
    CO_EXPECT_CLOSE(rows[1], 4, 0);
}

CO_TEST_WITH(what_cannot_be_reduced_is_refused, "S-REDUCE-19 S-REDUCE-12 S-REDUCE-2 S-GATHER-1",
             "cpus=2")
{
    co_strategy *m = two(ctx);
    co_value *one = co_ones(ctx, CO_FLOAT32, CO_SHAPE(1)), *words = pair(ctx, text(ctx), text(ctx));
    co_value *broken = pair(ctx, one, co_none(ctx)), *both = pair(ctx, one, one);

    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, words, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "string");
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, words, CO_AXES(0)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "string");
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, broken, NULL, 0)); /* none on replica 1 */
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, broken, CO_AXES(0)));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_NULL(co_gather_replicas(ctx, m, broken, 0));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, co_none(ctx), CO_AXES(0)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "none");
    CO_DEVICE(ctx, "/gpu:3") {
        CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, both, NULL, 0));
        CO_EXPECT_FALSE(co_ok(ctx)); /* the caller's device is not there */
        co_clear(ctx);
    }
    CO_EXPECT_NULL(co_gather_replicas(ctx, m, both, -2));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "axis -2");
    CO_EXPECT_NULL(co_gather_replicas(ctx, m, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "value");
    CO_EXPECT_NULL(co_local_results(ctx, m, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "value");
    CO_SCOPE(ctx, co_one_device_strategy(ctx, NULL)) {
        CO_EXPECT_NULL(co_gather_replicas(ctx, m, pair(ctx, one, one), 0));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    }
}

/* What is the same everywhere is its own mean, smallest and largest; sums of it are not defined. */
CO_TEST_WITH(plain_values_are_reduced_where_that_has_a_meaning,
             "S-REDUCE-13 S-LOCAL-1 S-LOCAL-3 VAR-NEW-8", "cpus=2")
{
    co_strategy *m = two(ctx), *other = two(ctx);
    co_value    *v = co_variable(ctx, co_float(ctx, 3), NULL), *w = variable_of(ctx, other, "w");
    co_value    *x = co_scalar_float(ctx, 2), *same[] = { x, x }, *local;

    CO_EXPECT_PTR(co_reduce(ctx, m, CO_REDUCE_MIN, x, NULL, 0), x);
    CO_EXPECT_PTR(co_reduce(ctx, m, CO_REDUCE_MAX, x, NULL, 0), x);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, v, NULL, 0)), 3, 0);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_PROD, x, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "same on every replica");
    x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2));
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_MEAN, pair(ctx, x, x), CO_AXES(0, -1)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "axis -1 is given twice");
    local = co_local_results(ctx, m, co_mirrored_value(ctx, same, 2));
    CO_EXPECT_PTR(co_at(ctx, local, 1), same[1]);
    CO_EXPECT_NULL(co_local_results(ctx, m, w)); /* components of another strategy */
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "w");
}

CO_TEST_WITH(large_values_are_reduced_in_shares, "S-REDUCE-5", "cpus=2")
{
    co_strategy *m = two(ctx);
    int64_t      n = 70000;
    co_value    *ones = co_ones(ctx, CO_FLOAT32, &n, 1), *sum;

    sum = co_reduce(ctx, m, CO_REDUCE_SUM, pair(ctx, ones, co_add(ctx, ones, ones)), NULL, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce_mean(ctx, sum, CO_ALL_AXES, false)), 3, 0);
}

/* Rows of two replicas, {[[1, 2], [3, 4]], [[5, 6]]}, and none: an empty batch is no factor. */
CO_TEST_WITH(products_along_axes, "ROP-1", "cpus=2")
{
    static const double a[] = { 1, 2, 3, 4 }, b[] = { 5, 6 };
    co_strategy        *m = two(ctx), *one = co_one_device_strategy(ctx, NULL);
    co_value           *x = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(2, 2), a),
             *y = co_tensor(ctx, CO_FLOAT64, CO_SHAPE(1, 2), b),
             *none = co_zeros(ctx, CO_FLOAT64, CO_SHAPE(0, 2)), *r;
    double got[2];

    r = co_reduce(ctx, m, CO_REDUCE_PROD, pair(ctx, x, y), CO_AXES(0));
    CO_EXPECT_CODE(co_value_copy_data(ctx, r, CO_FLOAT64, got, 2), CO_OK);
    CO_EXPECT_CLOSE(got[0], 1 * 3 * 5, 0);
    CO_EXPECT_CLOSE(got[1], 2 * 4 * 6, 0);
    r = co_reduce(ctx, m, CO_REDUCE_PROD, pair(ctx, x, none), CO_AXES(0, 1));
    CO_EXPECT_CLOSE(co_item_float(ctx, r), 24, 0);
    r = co_reduce(ctx, one, CO_REDUCE_PROD, x, CO_AXES(-1));
    CO_EXPECT_CODE(co_value_copy_data(ctx, r, CO_FLOAT64, got, 2), CO_OK);
    CO_EXPECT_CLOSE(got[1], 12, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, one, CO_REDUCE_PROD, none, CO_AXES(0, 1))), 1,
                    0);
    r = co_reduce(ctx, m, CO_REDUCE_MIN, pair(ctx, x, none), CO_AXES(0, 1));
    CO_EXPECT_CLOSE(co_item_float(ctx, r), 1, 0);
    r = co_reduce(ctx, one, CO_REDUCE_PROD, none, CO_AXES(1)); /* rows of two for nobody */
    CO_EXPECT_INT(co_value_num_elements(ctx, r), 0);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_PROD, pair(ctx, x, y), CO_AXES(2)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "axis 2");
}

CO_TEST(names_of_operations_are_checked, "ROP-1 S-REDUCE-3")
{
    co_reduce_op op = CO_REDUCE_NONE;

    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, "Sum", NULL), CO_INVALID_ARGUMENT);
    co_clear(ctx);
    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, NULL, &op), CO_INVALID_ARGUMENT);
    co_clear(ctx);
    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, "sums", &op), CO_VALUE_ERROR);
    co_clear(ctx);
    CO_EXPECT_INT(op, CO_REDUCE_NONE); /* untouched */
    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, "mEan", &op), CO_OK);
    CO_EXPECT_INT(op, CO_REDUCE_MEAN);
}

static co_value *
value_or_not(co_context *ctx, const co_value_context *replica, void *user)
{
    const int *how = user;

    if (*how == 0)
        return NULL; /* none */
    if (*how == 1)
        return (co_value *)(void *)co_get_strategy(ctx); /* a handle, but no value */
    return co_fail(ctx, CO_DATA_LOSS, "replica %d has none", replica->replica_id), NULL;
}

CO_TEST_WITH(value_functions_may_return_nothing, "S-VFF-4 GEN-ERR-2", "cpus=2")
{
    co_strategy *m = two(ctx);
    int          how = 0;
    co_value    *r = co_distribute_values_from_function(ctx, m, value_or_not, &how);

    CO_EXPECT_INT(co_value_kind(co_at(ctx, r, 1)), CO_KIND_NONE);
    how = 1;
    CO_EXPECT_NULL(co_distribute_values_from_function(ctx, m, value_or_not, &how));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    how = 2;
    CO_EXPECT_NULL(co_distribute_values_from_function(ctx, m, value_or_not, &how));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "replica 0 has none");
    CO_EXPECT_NULL(co_distribute_values_from_function(ctx, m, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
}

/* --- update --- */

/* What the update function below returns, by component. */
typedef struct answers {
    co_value *(*make)(co_context *ctx, int component);
    int calls;
} answers;

static co_value *
answer(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    answers *a = user;

    (void)variable;
    (void)args;
    return a->make(ctx, a->calls++);
}

static co_value *
nothing(co_context *ctx, int component)
{
    (void)ctx;
    (void)component;
    return NULL;
}

static co_value *
same_integer(co_context *ctx, int component)
{
    (void)component;
    return co_int(ctx, 5);
}

static co_value *
different_integers(co_context *ctx, int component)
{
    return co_int(ctx, component);
}

static co_value *
tensor_or_none(co_context *ctx, int component)
{
    return component == 0 ? co_scalar_float(ctx, 1) : co_none(ctx);
}

static co_value *
structure(co_context *ctx, int component)
{
    return co_args(ctx, co_scalar_float(ctx, (float)component), co_int(ctx, component));
}

static co_value *
other_structures(co_context *ctx, int component)
{
    return component == 0 ? co_args(ctx, co_int(ctx, 1))
                          : co_args(ctx, co_int(ctx, 1), co_int(ctx, 2));
}

static co_value *
new_variable(co_context *ctx, int component)
{
    return co_variable(ctx, co_float(ctx, component), NULL);
}

static co_value *
failure(co_context *ctx, int component)
{
    return co_fail(ctx, CO_DATA_LOSS, "component %d", component), NULL;
}

CO_TEST_WITH(update_groups_what_has_meaning_together, "EXT-UPD-3 GEN-ERR-2", "cpus=2")
{
    static const struct {
        co_value *(*make)(co_context *ctx, int component);
        co_kind kind; /* of the grouped result */
    } cases[] = {
        { nothing, CO_KIND_NONE },
        { same_integer, CO_KIND_INT },
        { different_integers, CO_KIND_NONE },
        { tensor_or_none, CO_KIND_NONE },
        { new_variable, CO_KIND_MIRRORED },
        { structure, CO_KIND_TUPLE },
    };
    co_strategy *m = two(ctx);
    co_value    *v = variable_of(ctx, m, "v"), *r;

    for (size_t i = 0; i < 6; ++i) {
        answers a = { cases[i].make, 0 };

        r = co_update(ctx, m, v, answer, co_no_args(ctx), &a, NULL);
        CO_EXPECT_INT(co_value_kind(r), cases[i].kind);
        CO_EXPECT_INT(a.calls, 2);
        a.calls = 0;
        r = co_update(ctx, m, v, answer, co_no_args(ctx), &a,
                      &(co_update_options){ sizeof(co_update_options), false });
        CO_EXPECT_INT(co_value_kind(r), CO_KIND_TUPLE);
        CO_EXPECT_INT(co_num_items(ctx, r), 2);
    }
    r = co_at(ctx, r, 1); /* of the structure: leaf 1 of both components */
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, r, 1)), 1);
    for (int group = 0; group < 2; ++group) {
        answers a = { other_structures, 0 };

        CO_EXPECT_NULL(co_update(ctx, m, v, answer, co_no_args(ctx), &a,
                                 &(co_update_options){ sizeof(co_update_options), group == 1 }));
        CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "tuple of 1");
        a.make = failure;
        a.calls = 0;
        CO_EXPECT_NULL(co_update(ctx, m, v, answer, co_no_args(ctx), &a,
                                 &(co_update_options){ sizeof(co_update_options), group == 1 }));
        CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "component 0");
        CO_EXPECT_INT(a.calls, 1);
    }
}

static co_value *
give_variable(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)ctx;
    (void)args;
    (void)user;
    return variable;
}

static co_value *
give_strategy(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)ctx;
    (void)variable;
    (void)args;
    return user;
}

CO_TEST_WITH(components_come_back_as_their_container, "EXT-UPD-3 DV-GROUP-5 OD-EXT-4", "cpus=2")
{
    co_strategy *m = two(ctx), *one = co_one_device_strategy(ctx, NULL);
    co_value    *v = variable_of(ctx, m, "v"), *w = variable_of(ctx, one, "w"), *r;

    CO_EXPECT_PTR(co_update(ctx, m, v, give_variable, co_no_args(ctx), NULL, NULL), v);
    r = co_update(ctx, m, v, give_variable, co_no_args(ctx), NULL,
                  &(co_update_options){ sizeof(co_update_options), false });
    CO_EXPECT_INT(co_num_items(ctx, r), 2);
    CO_EXPECT_PTR(co_at(ctx, r, 1), co_at(ctx, co_local_results(ctx, m, v), 1));
    CO_EXPECT_PTR(co_update(ctx, one, w, give_variable, co_no_args(ctx), NULL, NULL), w);
    r = co_update(ctx, one, w, give_variable, co_no_args(ctx), NULL,
                  &(co_update_options){ sizeof(co_update_options), false });
    CO_EXPECT_INT(co_num_items(ctx, r), 1);
    CO_EXPECT_NULL(co_update(ctx, m, v, give_strategy, co_no_args(ctx), m, NULL)); /* no value */
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
}

static co_value *
device_of(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    ++*(int *)user;
    return co_scalar_float(ctx, 1);
}

static co_value *
update_in_a_replica(co_context *ctx, co_value *args, void *user)
{
    co_strategy *mine = user;
    int          calls = 0;

    CO_EXPECT_NULL(co_update_non_slot(ctx, mine, co_worker_devices(ctx, mine), device_of,
                                      co_no_args(ctx), &calls, NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    CO_EXPECT_NULL(
        co_reduce_to(ctx, mine, CO_REDUCE_SUM, co_at(ctx, args, 0), co_at(ctx, args, 0)));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    CO_EXPECT_NULL(co_batch_reduce_to(ctx, mine, CO_REDUCE_SUM, co_list(ctx, NULL, 0)));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    CO_EXPECT_NULL(co_broadcast_to_devices(ctx, mine, co_at(ctx, args, 0), co_at(ctx, args, 0)));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    return NULL;
}

CO_TEST_WITH(arguments_of_updates_are_checked,
             "EXT-UPD-2 EXT-UPD-5 EXT-UNS-1 EXT-BRT-4 EXT-BC-1 VAR-NEW-8", "cpus=2")
{
    co_strategy *m = two(ctx), *other = two(ctx);
    co_value    *v = variable_of(ctx, m, "v"), *w = variable_of(ctx, other, "w");
    co_value    *args = co_no_args(ctx), *three[3], *many[300], *devices;
    co_value    *bad_name = co_string(ctx, "/foo:0"), *number = co_int(ctx, 1);
    int          calls = 0;

    for (size_t i = 0; i < 300; ++i)
        many[i] = co_string(ctx, "/cpu:0");
    for (size_t i = 0; i < 3; ++i)
        three[i] = co_scalar_float(ctx, 1);
    CO_EXPECT_NULL(co_update(ctx, NULL, v, give_variable, args, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(co_update(ctx, m, v, NULL, args, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
    CO_EXPECT_NULL(co_update(ctx, m, v, give_variable, NULL, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "args");
    CO_EXPECT_NULL(co_update(ctx, m, NULL, give_variable, args, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "variable");
    CO_EXPECT_NULL(co_update(ctx, m, number, give_variable, args, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "distributed variable");
    CO_EXPECT_NULL(co_update(ctx, m, w, give_variable, args, NULL, NULL)); /* of the other one */
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "w");
    CO_EXPECT_NULL(co_update(ctx, m, v, give_variable,
                             co_args(ctx, co_per_replica_value(ctx, three, 3)), NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "3 components");
    CO_SCOPE(ctx, other) {
        CO_EXPECT_NULL(co_update(ctx, m, v, give_variable, args, NULL, NULL));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    }
    CO_EXPECT_NULL(co_update_non_slot(ctx, m, number, device_of, args, &calls, NULL));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "tuple");
    CO_EXPECT_NULL(co_update_non_slot(ctx, m, NULL, device_of, args, &calls, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "devices");
    CO_EXPECT_NULL(co_update_non_slot(ctx, m, args, NULL, args, &calls, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
    CO_EXPECT_NULL(co_update_non_slot(ctx, m, co_no_args(ctx), device_of, args, &calls, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "0 devices");
    devices = co_tuple(ctx, many, 300);
    CO_EXPECT_NULL(co_update_non_slot(ctx, m, devices, device_of, args, &calls, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "300 devices");
    CO_EXPECT_NULL(
        co_update_non_slot(ctx, m, co_tuple(ctx, &number, 1), device_of, args, &calls, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "device 0");
    CO_EXPECT_NULL(
        co_update_non_slot(ctx, m, co_tuple(ctx, &bad_name, 1), device_of, args, &calls, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "foo");
    CO_EXPECT_INT(calls, 0);
    co_run(ctx, m, update_in_a_replica, co_args(ctx, three[0]), m);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NOT_NULL(
        co_update_non_slot(ctx, co_default_strategy(ctx), number, device_of, args, &calls, NULL));
    CO_EXPECT_INT(calls, 1);
}

/* A step of one strategy updates a variable of another. */
static co_value *
update_of_another(co_context *ctx, co_value *args, void *user)
{
    co_strategy *other = user;

    CO_EXPECT_NULL(
        co_update(ctx, other, co_at(ctx, args, 0), give_variable, co_no_args(ctx), NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    return NULL;
}

static co_value *
update_different(co_context *ctx, co_value *args, void *user)
{
    co_value *mine = co_at(ctx, args, (size_t)co_replica_id(ctx));

    return co_update(ctx, user, mine, give_variable, co_no_args(ctx), NULL, NULL);
}

CO_TEST_WITH(replicas_update_the_same_variable, "EXT-UPD-6", "cpus=2")
{
    co_strategy *m = two(ctx);
    co_value    *args = co_args(ctx, variable_of(ctx, m, "a"), variable_of(ctx, m, "b"));

    CO_EXPECT_NULL(co_run(ctx, m, update_different, args, m));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica 1 'b'");
}

CO_TEST_WITH(a_step_updates_variables_of_its_own_strategy, "EXT-UPD-6 VAR-NEW-8", "cpus=2")
{
    co_strategy *m = two(ctx), *other = two(ctx);

    co_run(ctx, m, update_of_another, co_args(ctx, variable_of(ctx, other, "w")), other);
    CO_EXPECT_OK(ctx);
}

/* --- containers and colocation --- */

CO_TEST_WITH(containers_and_colocation_are_checked,
             "EXT-COL-1 EXT-COL-2 EXT-VC-1 EXT-VCS-1 EXT-RV-1", "cpus=2")
{
    co_strategy *m = two(ctx), *one = co_one_device_strategy(ctx, NULL);
    co_value    *v = variable_of(ctx, m, "v"), *number = co_int(ctx, 1);

    CO_EXPECT_PTR(co_value_container(ctx, m, number), number);
    CO_EXPECT_PTR(co_value_container(ctx, one, v), v);
    CO_EXPECT_NULL(co_value_container(ctx, m, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "value");
    CO_EXPECT_NULL(co_value_container(ctx, NULL, v));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_FALSE(co_variable_created_in_scope(ctx, m, number));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_FALSE(co_variable_created_in_scope(ctx, NULL, v));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(co_read_var(ctx, m, number));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_NULL(co_read_var(ctx, NULL, v));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    co_colocate_begin(ctx, NULL, v);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    co_colocate_end(ctx);
    CO_SCOPE(ctx, m) {
        co_colocate_begin(ctx, m, NULL);
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "variable");
        co_colocate_end(ctx);
        co_colocate_begin(ctx, m, number);
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not a variable");
        co_colocate_end(ctx);
        co_colocate_end(ctx); /* the scope is innermost */
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "innermost");
    }
    co_colocate_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "innermost");
}

/* --- destinations --- */

CO_TEST_WITH(places_are_found, "EXT-RT-2 EXT-RT-3 EXT-RT-5 EXT-BC-2", "cpus=2")
{
    co_strategy        *m = two(ctx), *crowded;
    co_mirrored_options options = CO_MIRRORED_OPTIONS_INIT;
    co_value           *x = numbers(ctx, 1, 3), *here = NULL, *v = variable_of(ctx, m, "v"), *r;
    co_value           *five = co_int(ctx, 5), *four[4];

    options.num_replicas = 4;
    crowded = co_mirrored_strategy(ctx, NULL, 0, &options);
    for (int i = 0; i < 4; ++i)
        four[i] = co_scalar_float(ctx, 1);
    r = co_reduce_to(ctx, crowded, CO_REDUCE_SUM, co_per_replica_value(ctx, four, 4),
                     variable_of(ctx, crowded, "w"));
    CO_EXPECT_INT(co_num_items(ctx, r), 2); /* one copy for each device, not for each replica */
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, r, 1)), 4, 0);
    CO_DEVICE(ctx, "/cpu:1")
        here = co_scalar_float(ctx, 0);
    r = co_reduce_to(ctx, m, CO_REDUCE_SUM, x, here); /* where the tensor is */
    CO_EXPECT_CONTAINS(co_value_device(ctx, r), "CPU:1");
    r = co_reduce_to(ctx, m, CO_REDUCE_SUM, x, pair(ctx, co_scalar_float(ctx, 0), here));
    CO_EXPECT_INT(co_value_kind(r), CO_KIND_MIRRORED);
    r = co_reduce_to(ctx, m, CO_REDUCE_SUM, x, r); /* where a mirrored value is */
    CO_EXPECT_INT(co_num_items(ctx, r), 2);
    r = co_reduce_to(ctx, m, CO_REDUCE_SUM, x, co_variable(ctx, co_float(ctx, 1), NULL));
    CO_EXPECT_CONTAINS(co_value_device(ctx, r), "CPU:0"); /* where an ordinary variable is */
    CO_EXPECT_PTR(co_reduce_to(ctx, m, CO_REDUCE_MEAN, five, v), five); /* stays a host number */
    r = co_reduce_to(ctx, m, CO_REDUCE_MEAN, v, co_string(ctx, "/cpu:1"));
    CO_EXPECT_CLOSE(co_item_float(ctx, r), 1, 0); /* the value of a mirrored variable */
    CO_EXPECT_CLOSE(co_item_float(ctx, co_broadcast_to_devices(ctx, m, co_float(ctx, 2), v)), 2, 0);
    r = co_broadcast_to_devices(ctx, m, v, co_string(ctx, "/cpu:1"));
    CO_EXPECT_CLOSE(co_item_float(ctx, r), 1, 0);
}

CO_TEST_WITH(places_that_are_none_are_refused, "EXT-RT-2 EXT-BRT-2 EXT-BC-1", "cpus=2")
{
    co_strategy *m = two(ctx);
    co_value    *x = numbers(ctx, 1, 3), *gone = co_string(ctx, "/gpu:7"), *triple, *pairs[2];

    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, x, gone));
    CO_EXPECT_FALSE(co_ok(ctx)); /* the device is not there */
    co_clear(ctx);
    CO_EXPECT_NULL(
        co_reduce_to(ctx, m, CO_REDUCE_SUM, x, pair(ctx, co_int(ctx, 1), co_int(ctx, 2))));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not a destination");
    gone = variable_of(ctx, m, "v");
    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, x, pair(ctx, gone, gone)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not a destination");
    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, x, co_args(ctx, gone)));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "tuple");
    gone = co_string(ctx, "/gpu:7");
    CO_EXPECT_NULL(co_reduce_to(ctx, NULL, CO_REDUCE_SUM, x, gone));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(co_batch_reduce_to(ctx, NULL, CO_REDUCE_SUM, x));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(co_broadcast_to_devices(ctx, NULL, x, gone));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, x, co_none(ctx)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "none");
    CO_EXPECT_NULL(co_reduce_to(ctx, m, CO_REDUCE_SUM, NULL, gone));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "value");
    triple = co_args(ctx, x, gone, gone);
    CO_EXPECT_NULL(co_batch_reduce_to(ctx, m, CO_REDUCE_SUM, co_list(ctx, &triple, 1)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "item 0");
    pairs[0] = co_args(ctx, x, gone); /* the first fails, the second is not looked at */
    pairs[1] = triple;
    CO_EXPECT_NULL(co_batch_reduce_to(ctx, m, CO_REDUCE_SUM, co_tuple(ctx, pairs, 2)));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_NULL(co_batch_reduce_to(ctx, m, CO_REDUCE_SUM, x));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not a list");
    CO_EXPECT_NULL(co_batch_reduce_to(ctx, m, CO_REDUCE_SUM, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "pairs");
    CO_EXPECT_NULL(co_batch_reduce_to(ctx, m, (co_reduce_op)7, co_list(ctx, pairs, 2)));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "7");
    CO_EXPECT_NULL(co_broadcast_to_devices(ctx, m, co_scalar_float(ctx, 1), co_none(ctx)));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "none");
    CO_EXPECT_NULL(co_broadcast_to_devices(ctx, m, co_scalar_float(ctx, 1), gone));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_NULL(
        co_broadcast_to_devices(ctx, m, co_dict(ctx, NULL, NULL, 0), co_string(ctx, "/cpu:0")));
    CO_EXPECT_FALSE(co_ok(ctx)); /* no tensor */
    co_clear(ctx);
    CO_EXPECT_NULL(co_broadcast_to_devices(ctx, m, NULL, gone));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "tensor");
}

/* --- no context, an error, no strategy --- */

static int empty_handed, calls;

/* One call that must give nothing. */
#define NOTHING(call) (++calls, empty_handed += (call) ? 0 : 1)

static co_value *
never_step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    (void)ctx;
    (void)steps;
    (void)inputs;
    (void)user;
    test_fail(TEST_AT, "a step was called");
    return NULL;
}

static void
call_everything(co_context *ctx, co_strategy *s, co_value *x)
{
    co_reduce_op     op;
    co_value_context replica = { .replica_id = 0, .num_replicas_in_sync = 1 };
    char             room[100];

    NOTHING(co_reduce_op_from_name(ctx, "SUM", &op) == CO_OK);
    NOTHING(co_reduce(ctx, s, CO_REDUCE_SUM, x, NULL, 0));
    NOTHING(co_local_results(ctx, s, x));
    NOTHING(co_gather_replicas(ctx, s, x, 0));
    NOTHING(co_distribute_values_from_function(ctx, s, value_or_not, NULL));
    NOTHING(co_value_context_format(ctx, &replica, room, sizeof(room)));
    NOTHING(co_reduce_to(ctx, s, CO_REDUCE_SUM, x, x));
    NOTHING(co_batch_reduce_to(ctx, s, CO_REDUCE_SUM, x));
    NOTHING(co_broadcast_to_devices(ctx, s, x, x));
    NOTHING(co_update(ctx, s, x, give_variable, x, NULL, NULL));
    NOTHING(co_update_non_slot(ctx, s, x, device_of, x, NULL, NULL));
    NOTHING(co_value_container(ctx, s, x));
    NOTHING(co_variable_created_in_scope(ctx, s, x));
    NOTHING(co_read_var(ctx, s, x));
    NOTHING(co_extended(ctx, s));
    NOTHING(co_cluster_resolver(ctx, s));
    NOTHING(co_update_config_proto(ctx, s, x));
    NOTHING(co_worker_devices(ctx, s));
    NOTHING(co_parameter_devices(ctx, s));
    NOTHING(co_non_slot_devices(ctx, s, x));
    NOTHING(co_should_checkpoint(ctx, s));
    NOTHING(co_should_save_summary(ctx, s));
    NOTHING(co_require_static_shapes(ctx, s));
    NOTHING(co_should_init(ctx, s));
    NOTHING(co_between_graph(ctx, s));
    NOTHING(co_assign_to_logical_device(ctx, s, x, 0));
    NOTHING(co_split_to_logical_devices(ctx, s, x, NULL, 0));
    NOTHING(co_replicate_to_logical_devices(ctx, s, x));
    NOTHING(co_tpu_run(ctx, s, device_of, x, NULL, NULL));
    NOTHING(co_make_numpy_dataset(ctx, s, x));
    NOTHING(co_distribute_experimental_make_numpy_dataset(ctx, x));
    NOTHING(co_call_for_each_replica(ctx, s, device_of, x, NULL));
    NOTHING(co_experimental_run(ctx, s, device_of, NULL, NULL));
    NOTHING(co_run_steps_on_iterator(ctx, s, never_step, NULL, NULL, 1, NULL));
    NOTHING(co_last_step_outputs(ctx, NULL));
    NOTHING(co_non_tensor_outputs(ctx, NULL));
    NOTHING(co_set_last_step_output(ctx, NULL, "a", CO_REDUCE_SUM, x) == CO_OK);
    NOTHING(co_set_non_tensor_output(ctx, NULL, "a", x) == CO_OK);
    co_colocate_begin(ctx, s, x);
    co_colocate_end(ctx);
}

CO_TEST_WITH(no_call_does_anything_on_no_context_or_one_with_an_error, "", "cpus=2")
{
    co_strategy *m = two(ctx);
    co_value    *x = numbers(ctx, 1, 2);

    call_everything(NULL, m, x);
    CO_EXPECT_INT(empty_handed, calls);
    co_fail(ctx, CO_DATA_LOSS, "the first error");
    call_everything(ctx, m, x);
    CO_EXPECT_INT(empty_handed, calls);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "the first error");
    CO_EXPECT_FALSE(co_has_strategy(ctx));
}

/* --- want of memory --- */

static co_value *
add_one(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)user;
    return co_assign_add(ctx, variable, co_at(ctx, args, 0));
}

/* Every size of the block's list of handles in turn, so that each place that adds to it meets a
 * full one. */
static void
own_some(co_context *ctx, int n)
{
    for (int i = 0; i < n; ++i)
        co_int(ctx, i);
}

static int owned_before;

static bool
reduce_in_little_memory(co_context *ctx)
{
    co_strategy *m = two(ctx), *one = co_one_device_strategy(ctx, "/cpu:1");
    co_value    *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3, 40)), *both = pair(ctx, x, x), *list, *r;

    own_some(ctx, owned_before);
    r = co_reduce(ctx, m, CO_REDUCE_MEAN, both, NULL, 0);
    co_reduce(ctx, m, CO_REDUCE_MEAN, co_cast(ctx, x, CO_INT32), CO_AXES(0));
    co_reduce(ctx, m, CO_REDUCE_MEAN, pair(ctx, co_int(ctx, 1), co_int(ctx, 2)), NULL, 0);
    co_reduce(ctx, m, CO_REDUCE_PROD, both, CO_AXES(1));
    co_reduce(ctx, m, CO_REDUCE_MIN, both, CO_AXES(1));
    co_reduce(ctx, m, CO_REDUCE_MEAN, both, CO_AXES(1));
    co_reduce(ctx, m, CO_REDUCE_SUM, pair(ctx, slices(ctx, 1, 0), slices(ctx, 2, 1)), NULL, 0);
    co_reduce(ctx, one, CO_REDUCE_SUM, x, CO_AXES(0));
    co_gather_replicas(ctx, m, both, 0);
    list = co_list(ctx, &both, 1);
    return co_local_results(ctx, m, list) != NULL && r != NULL;
}

static bool
update_in_little_memory(co_context *ctx)
{
    co_strategy *m = two(ctx);
    co_value    *v = variable_of(ctx, m, "v"), *x = numbers(ctx, 1, 2), *pairs[2], *r;

    own_some(ctx, owned_before);
    pairs[0] = co_args(ctx, x, v);
    pairs[1] = co_args(ctx, x, co_string(ctx, "/cpu:1"));
    co_batch_reduce_to(ctx, m, CO_REDUCE_SUM, co_list(ctx, pairs, 2));
    co_broadcast_to_devices(ctx, m, co_at(ctx, x, 0), v);
    co_update(ctx, m, v, add_one, co_args(ctx, x), NULL,
              &(co_update_options){ sizeof(co_update_options), false });
    co_update_non_slot(ctx, m, co_worker_devices(ctx, m), device_of, co_no_args(ctx), &calls, NULL);
    co_colocate_begin(ctx, co_default_strategy(ctx), co_variable(ctx, co_float(ctx, 1), NULL));
    co_colocate_end(ctx);
    r = co_update(ctx, m, v, add_one, co_args(ctx, x), NULL, NULL);
    return r != NULL;
}

/* What is too large for the caches of small blocks and pools, so that every one of these is asked
 * of the system. */
static bool
large_in_little_memory(co_context *ctx)
{
    co_strategy *m = two(ctx), *one = co_one_device_strategy(ctx, NULL);
    co_value    *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(9000, 1)),
             *wide = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 600000)), *pairs[9000],
             *one_pair = co_args(ctx, x, x), *r;

    for (size_t i = 0; i < 9000; ++i)
        pairs[i] = one_pair;
    co_reduce(ctx, one, CO_REDUCE_PROD, x, CO_AXES(0));
    co_reduce(ctx, one, CO_REDUCE_PROD, wide, CO_AXES(0));
    co_reduce(ctx, m, CO_REDUCE_SUM, pair(ctx, wide, wide), NULL, 0);
    r = co_batch_reduce_to(ctx, one, CO_REDUCE_SUM, co_list(ctx, pairs, 9000));
    return r != NULL;
}

CO_TEST_BARE(large_values_survive_want_of_memory, "GEN-ERR-1")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", large_in_little_memory);
}

CO_TEST_BARE(reduce_survives_want_of_memory, "GEN-ERR-1")
{
    for (owned_before = 0; owned_before < 40; owned_before += 13)
        CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", reduce_in_little_memory);
}

CO_TEST_BARE(updates_survive_want_of_memory, "GEN-ERR-1")
{
    for (owned_before = 0; owned_before < 40; owned_before += 13)
        CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", update_in_little_memory);
}
