/* SPDX-License-Identifier: Apache-2.0 */
/* Making strategies, and what their calls say to wrong arguments. Sections 6 to 8, 10 and 12, and
 * want of memory. */
#include <cohort/v1.h>

#include "engine_support.h"

#include <limits.h>
#include <stdatomic.h>

static const char cpu0[] = "/job:localhost/replica:0/task:0/device:CPU:0";
static const char cpu1[] = "/job:localhost/replica:0/task:0/device:CPU:1";

static co_value *
first_of(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_at(ctx, args, 0);
}

static const char *
text_of(co_context *ctx, co_value *value)
{
    return co_string_at(ctx, value, 0, NULL);
}

static void
expect_devices(co_context *ctx, co_strategy *strategy, const char *const *names, size_t n)
{
    co_value *devices = co_worker_devices(ctx, strategy);

    CO_EXPECT_OK(ctx);
    CO_REQUIRE(co_num_items(ctx, devices) == n);
    for (size_t i = 0; i < n; ++i)
        CO_EXPECT_STR(text_of(ctx, co_at(ctx, devices, i)), names[i]);
}

CO_TEST_WITH(mirrored_takes_all_gpus_or_else_all_cpus, "MIR-INIT-1 MIR-PROP-1 S-PROP-2", "cpus=2")
{
    const char *order[] = { "/cpu:1", "cpu:0" };

    expect_devices(ctx, co_mirrored_strategy(ctx, NULL, 0, NULL), (const char *[]){ cpu0, cpu1 },
                   2);
    expect_devices(ctx, co_mirrored_strategy(ctx, order, 0, NULL), (const char *[]){ cpu0, cpu1 },
                   2);
    expect_devices(ctx, co_mirrored_strategy(ctx, order, 2, NULL), (const char *[]){ cpu1, cpu0 },
                   2);
    co_declare_devices(ctx, "GPU", 3);
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, co_mirrored_strategy(ctx, NULL, 0, NULL)), 3);
}

CO_TEST_WITH(bad_devices_of_mirrored_are_refused, "MIR-INIT-2 MIR-INIT-3 DEV-4", "cpus=2")
{
    static const struct {
        const char *devices[2];
        size_t      n;
        co_code     code;
        const char *part;
    } cases[] = {
        { { "/cpu:0", "/device:CPU:0" }, 2, CO_ASSERTION_ERROR, "given twice" },
        { { "/foo:0", NULL }, 1, CO_VALUE_ERROR, "foo" },
        { { "/cpu:0", NULL }, 2, CO_VALUE_ERROR, "device 1 of 2 is NULL" },
        { { "/job:worker/task:0/cpu:0", "/job:worker/task:1/cpu:0" },
          2,
          CO_RUNTIME_ERROR,
          "different workers" },
        { { "/replica:0/cpu:0", "/replica:1/cpu:0" }, 2, CO_RUNTIME_ERROR, "different workers" },
        { { "/cpu:0", "/job:worker/task:0/cpu:0" }, 2, CO_VALUE_ERROR, "different workers" },
        { { "/job:worker/cpu:0", NULL }, 1, CO_VALUE_ERROR, "no task" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        CO_EXPECT_NULL(co_mirrored_strategy(ctx, cases[i].devices, cases[i].n, NULL));
        CO_EXPECT_ERROR(ctx, cases[i].code, cases[i].part);
    }
    CO_EXPECT_NULL(co_mirrored_strategy(ctx, NULL, 3, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "devices is NULL and num_devices is 3; name the devices");
    CO_EXPECT_NULL(co_mirrored_strategy(ctx, cases[0].devices, 257, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "num_devices is 257; it must be at most 256");
}

CO_TEST_WITH(options_of_strategies_are_checked, "S-INIT-1", "cpus=2;deadline_ms=1234")
{
    static const int                 counts[] = { -1, 1, 257, INT_MAX, INT_MIN };
    co_mirrored_options              options = CO_MIRRORED_OPTIONS_INIT;
    co_multi_worker_mirrored_options workers = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    const char                      *two[] = { "/cpu:0", "/cpu:1" };

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        options.num_replicas = counts[i];
        CO_EXPECT_NULL(co_mirrored_strategy(ctx, two, 2, &options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "num_replicas");
    }
    options.num_replicas = 0;
    options.deadline_ms = -2;
    CO_EXPECT_NULL(co_mirrored_strategy(ctx, two, 2, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deadline_ms is -2");
    options.struct_size = 0;
    CO_EXPECT_NULL(co_mirrored_strategy(ctx, two, 2, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size 0");
    options.struct_size = 4000; /* from a later version: what is known is read */
    options.deadline_ms = 0;
    CO_EXPECT_NOT_NULL(co_mirrored_strategy(ctx, two, 2, &options));
    workers.transport = "pigeons";
    CO_EXPECT_NULL(co_multi_worker_mirrored_strategy(ctx, &workers));
    CO_EXPECT_CONTAINS(co_error(ctx)->message, "pigeons");
    co_clear(ctx);
    workers.transport = "self";
    workers.deadline_ms = -5;
    CO_EXPECT_NULL(co_multi_worker_mirrored_strategy(ctx, &workers));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deadline_ms is -5");
}

/* Replica 1 comes to the rendezvous when replica 0 has given it up; where nobody does (rest_ms),
 * after a while. */
typedef struct dawdling {
    atomic_bool told;
    int         rest_ms;
} dawdling;

static co_value *
dawdle(co_context *ctx, co_value *args, void *user)
{
    dawdling *d = user;
    co_value *sum;

    (void)args;
    if (co_replica_id(ctx) == 1) {
        while (d->rest_ms == 0 && !atomic_load(&d->told))
            test_rest_ms(1);
        test_rest_ms(d->rest_ms);
    }
    sum = co_all_reduce(ctx, CO_REDUCE_SUM, co_float(ctx, 1));
    atomic_store(&d->told, true);
    return sum;
}

CO_TEST_WITH(the_setting_is_the_deadline_of_the_initialiser, "", "cpus=2;deadline_ms=40")
{
    co_mirrored_options        options = CO_MIRRORED_OPTIONS_INIT;
    const co_mirrored_options *given[] = { &options, NULL };
    const char                *two[] = { "/cpu:0", "/cpu:1" };
    dawdling                   d = { .rest_ms = 0 };
    co_value                  *sums;

    for (int i = 0; i < 2; ++i) {
        co_strategy *m = co_mirrored_strategy(ctx, two, 2, given[i]);

        atomic_store(&d.told, false);
        CO_EXPECT_NULL(co_run(ctx, m, dawdle, co_no_args(ctx), &d));
        CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED, "40 ms");
    }
    d.rest_ms = 120;
    options.deadline_ms = 0;
    sums = co_run(ctx, co_mirrored_strategy(ctx, two, 2, &options), dawdle, co_no_args(ctx), &d);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, sums, 0)), 2, 0);
}

/* --- one device --- */

static co_value *
twice(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_mul(ctx, co_at(ctx, args, 0), co_int(ctx, 2));
}

CO_TEST_WITH(the_sample_of_one_device_gives_90, "OD-EX-1 OD-RUN-1 OD-PROP-1", "cpus=2")
{
    co_strategy *one = co_one_device_strategy(ctx, "/cpu:0");
    co_value    *result = co_int(ctx, 0);

    for (int i = 0; i < 10; ++i)
        result = co_add(ctx, result, co_run(ctx, one, twice, co_args(ctx, co_int(ctx, i)), NULL));
    CO_EXPECT_INT(co_item_int(ctx, result), 90);
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, one), 1);
    CO_EXPECT_INT(co_num_local_replicas(ctx, one), 1);
    CO_EXPECT_INT(co_num_workers(ctx, one), 1);
    CO_EXPECT_INT(co_worker_id(ctx, one), 0);
    expect_devices(ctx, one, (const char *[]){ cpu0 }, 1);
}

static co_value *
see_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    CO_EXPECT_PTR(strategy, user);
    CO_EXPECT_TRUE(co_in_cross_replica_context(ctx));
    CO_EXPECT_INT(co_value_kind(co_at(ctx, args, 0)), CO_KIND_TENSOR); /* not wrapped */
    return co_add(ctx, co_at(ctx, args, 0), co_float(ctx, 1));
}

static co_value *
merge_and_reduce(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_scalar_float(ctx, 3), *y;

    (void)args;
    CO_EXPECT_CLOSE(co_item_float(ctx, co_merge_call(ctx, see_merge, co_args(ctx, x), user)), 4, 0);
    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_all_reduce(ctx, CO_REDUCE_MEAN, co_mul(ctx, x, x));
    CO_EXPECT_CLOSE(co_item_float(ctx, co_gradient(ctx, y, x)), 6, 0);
    CO_EXPECT_INT(co_value_kind(co_all_reduce(ctx, CO_REDUCE_SUM, co_int(ctx, 4))), CO_KIND_TENSOR);
    CO_EXPECT_STR(co_current_device(ctx), cpu1);
    co_run(ctx, user, first_of, co_args(ctx, x), NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    co_reduce(ctx, user, CO_REDUCE_SUM, x, NULL, 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    return co_all_reduce(ctx, CO_REDUCE_SUM, x);
}

CO_TEST_WITH(one_device_merges_and_reduces_alone, "OD-MERGE-1 OD-AR-1 OD-RUN-2 RC-4", "cpus=2")
{
    co_strategy *one = co_one_device_strategy(ctx, "/cpu:1"),
                *other = co_one_device_strategy(ctx, NULL);
    co_reduce_op op;

    CO_EXPECT_CLOSE(co_item_float(ctx, co_run(ctx, one, merge_and_reduce, co_no_args(ctx), one)), 3,
                    0);
    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, "product", &op), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "product");
    CO_EXPECT_NULL(co_run(ctx, one, first_of, co_int(ctx, 5), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "co_args");
    CO_SCOPE(ctx, one) {
        CO_EXPECT_NULL(co_run(ctx, other, first_of, co_no_args(ctx), NULL));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    }
}

static co_value *
see_device(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_string(ctx, co_current_device(ctx));
}

CO_TEST_WITH(replicas_see_their_device, "RC-4 MIR-RUN-1 DEF-6", "cpus=2")
{
    co_value *names = co_run(ctx, test_mirrored(ctx, 2, -1), see_device, co_no_args(ctx), NULL);

    CO_EXPECT_STR(text_of(ctx, co_at(ctx, names, 0)), cpu0);
    CO_EXPECT_STR(text_of(ctx, co_at(ctx, names, 1)), cpu1);
    CO_DEVICE(ctx, "/cpu:1") {
        CO_EXPECT_STR(text_of(ctx, co_run(ctx, co_default_strategy(ctx), see_device,
                                          co_no_args(ctx), NULL)),
                      cpu1);
        CO_EXPECT_NULL(co_worker_devices(ctx, co_default_strategy(ctx)));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "co_current_device");
    }
}

CO_TEST_WITH(a_worker_makes_its_own_device_current, "MW-7", "cpus=2")
{
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    const char                      *devices[] = { "/cpu:1" };
    co_strategy                     *w;

    options.transport = "self";
    options.devices = devices;
    options.num_devices = 1;
    w = co_multi_worker_mirrored_strategy(ctx, &options);
    CO_DEVICE(ctx, "/cpu:1") {
        CO_SCOPE(ctx, w)
            CO_EXPECT_STR(co_current_device(ctx), cpu0);
        CO_EXPECT_STR(co_current_device(ctx), cpu1);
    }
}

/* --- distributed values --- */

static co_value *
use_captured(co_context *ctx, co_value *args, void *user)
{
    co_value **bundles = user;

    (void)args;
    CO_EXPECT_NULL(co_at(ctx, bundles[0], 0));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "taken apart inside a step");
    return co_args(ctx, co_add(ctx, bundles[0], co_float(ctx, 0)),
                   co_add(ctx, bundles[1], co_float(ctx, 0)));
}

CO_TEST_WITH(bundles_are_tensors_where_that_has_a_meaning, "DV-USE-1 DV-USE-2 DV-USE-3 DV-USE-4",
             "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *parts[2], *bundles[2], *r;

    CO_DEVICE(ctx, "/cpu:0")
        parts[0] = co_scalar_float(ctx, 1);
    CO_DEVICE(ctx, "/cpu:1")
        parts[1] = co_scalar_float(ctx, 2);
    bundles[0] = co_per_replica_value(ctx, parts, 2);
    bundles[1] = co_mirrored_value(ctx, parts, 2);
    CO_EXPECT_NULL(co_to_tensor(ctx, bundles[0], CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "co_run");
    r = co_run(ctx, m, use_captured, co_no_args(ctx), bundles);
    for (size_t k = 0; k < 2; ++k)
        for (size_t i = 0; i < 2; ++i)
            CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, co_at(ctx, r, k), i)), i + 1, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_mul(ctx, bundles[1], co_int(ctx, 10))), 10, 0);
    CO_SCOPE(ctx, m)
        CO_DEVICE(ctx, "/cpu:1")
            CO_EXPECT_CLOSE(co_item_float(ctx, co_mul(ctx, bundles[1], co_int(ctx, 10))), 20, 0);
}

CO_TEST_WITH(bundles_of_another_size_are_refused, "S-RUN-5", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *x = co_scalar_float(ctx, 1), *three[] = { x, x, x }, *v = NULL;

    CO_SCOPE(ctx, m)
        v = co_variable(ctx, co_float(ctx, 1), NULL);
    for (size_t n = 1; n <= 3; n += 2) {
        co_value *bundle = co_per_replica_value(ctx, three, n), *inside = co_list(ctx, &bundle, 1);
        const char *given = n == 1 ? "value of 1 component is given"
                                   : "value of 3 components is given";

        CO_EXPECT_NULL(co_run(ctx, m, first_of, co_args(ctx, inside), NULL));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, given);
        CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, bundle, NULL, 0));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, given);
        CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, bundle, CO_AXES(0)));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, given);
        CO_EXPECT_NULL(co_gather_replicas(ctx, m, bundle, 0));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, given);
        CO_EXPECT_NULL(co_local_results(ctx, m, inside));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, given);
        CO_EXPECT_NULL(co_assign(ctx, v, bundle));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, given);
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 1, 0);
}

static co_value *
my_component(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_at(ctx, user, (size_t)co_replica_id(ctx));
}

static co_value *
named(co_context *ctx, co_value *args, void *user)
{
    co_value *one = co_int(ctx, 1);

    (void)args;
    (void)user;
    return co_named_tuple(ctx, co_replica_id(ctx) == 0 ? "A" : "B", (const char *[]){ "x" }, &one,
                          1);
}

CO_TEST_WITH(components_of_a_variable_come_back_as_the_variable, "DV-GROUP-5 DV-GROUP-2", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *v = NULL;

    CO_SCOPE(ctx, m)
        v = co_variable(ctx, co_float(ctx, 1), NULL);
    CO_EXPECT_PTR(co_run(ctx, m, my_component, co_no_args(ctx), co_local_results(ctx, m, v)), v);
    CO_EXPECT_NULL(co_run(ctx, m, named, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "'A' against 'B'");
}

CO_TEST_WITH(what_is_reduced_must_fit, "S-REDUCE-12 S-REDUCE-25 S-REDUCE-13", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *shapes[] = { co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 1)),
                              co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, 3)) };
    co_value    *dtypes[] = { co_scalar_float(ctx, 1), co_scalar_double(ctx, 1) };
    co_value    *small[] = { co_tensor(ctx, CO_UINT8, CO_SHAPE(2), (uint8_t[]){ 0, 5 }),
                             co_tensor(ctx, CO_UINT8, CO_SHAPE(2), (uint8_t[]){ 7, 9 }) };
    co_value    *low[] = { co_tensor(ctx, CO_INT32, CO_SHAPE(2), (int32_t[]){ INT32_MIN, 5 }),
                           co_tensor(ctx, CO_INT32, CO_SHAPE(2), (int32_t[]){ 7, INT32_MAX }) };
    co_value    *v = co_per_replica_value(ctx, shapes, 2);

    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, v, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[2,1] on replica 0 and [2,3] on replica 1");
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, v, CO_AXES(0)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[1] on replica 0 and [3] on replica 1");
    CO_EXPECT_INT(co_value_num_elements(ctx, co_reduce(ctx, m, CO_REDUCE_SUM, v, CO_AXES(1))), 2);
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, co_per_replica_value(ctx, dtypes, 2), NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "float32 on replica 0 and float64 on replica 1");
    CO_EXPECT_INT(co_item_int(ctx, co_reduce(ctx, m, CO_REDUCE_MEAN, co_int(ctx, 7), NULL, 0)), 7);
    CO_EXPECT_INT(co_item_int(ctx, co_reduce(ctx, m, CO_REDUCE_MIN,
                                             co_per_replica_value(ctx, small, 2), CO_AXES(0))),
                  0);
    CO_EXPECT_INT(co_item_int(ctx, co_reduce(ctx, m, CO_REDUCE_MIN,
                                             co_per_replica_value(ctx, low, 2), CO_AXES(0))),
                  INT32_MIN);
    CO_EXPECT_INT(co_item_int(ctx, co_reduce(ctx, m, CO_REDUCE_MAX,
                                             co_per_replica_value(ctx, low, 2), CO_AXES(0))),
                  INT32_MAX);
}

/* --- variables --- */

CO_TEST_WITH(variables_do_not_mix_with_other_strategies, "VAR-NEW-8 GEN-ERR-3", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1), *other = test_mirrored(ctx, 3, -1);
    co_value    *v = NULL;

    CO_SCOPE(ctx, m)
        v = co_variable(ctx, co_float(ctx, 1), NULL);
    CO_SCOPE(ctx, other) {
        CO_EXPECT_NULL(co_variable_read(ctx, v));
        CO_EXPECT_CONTAINS(co_error(ctx)->message, "2 replicas");
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "3 replicas");
        CO_EXPECT_NULL(co_assign(ctx, v, co_float(ctx, 2)));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    }
    CO_EXPECT_NULL(co_reduce(ctx, other, CO_REDUCE_MEAN, v, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing");
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 1, 0);
}

typedef struct two_variables {
    co_value *a, *b;
    int       what;
} two_variables;

static co_value *
disagree(co_context *ctx, co_value *args, void *user)
{
    two_variables      *t = user;
    bool                odd = co_replica_id(ctx) == 1;
    co_value           *x = co_scalar_float(ctx, 1);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    (void)args;
    options.name = odd ? "right" : "left";
    if (t->what == 0)
        return co_assign(ctx, odd ? t->b : t->a, x);
    if (t->what == 1)
        return odd ? co_assign_add(ctx, t->a, x) : co_assign(ctx, t->a, x);
    return co_variable(ctx, x, &options);
}

CO_TEST_WITH(replicas_assign_to_and_make_the_same_variables, "VAR-RUN-1 RC-MERGE-5", "cpus=2")
{
    static const char *const parts[] = {
        "replica 1 assigns to variable 'b'", "replica 1 adds to variable 'a'",
        "replica 1 makes variable 'right', and replica 0 has returned without one of that name"
    };
    co_strategy        *m = test_mirrored(ctx, 2, -1);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    two_variables       t = { NULL, NULL, 0 };

    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, m) {
        options.name = "a";
        t.a = co_variable(ctx, co_float(ctx, 5), &options);
        options.name = "b";
        t.b = co_variable(ctx, co_float(ctx, 5), &options);
    }
    for (; t.what < 3; ++t.what) {
        CO_EXPECT_NULL(co_run(ctx, m, disagree, co_no_args(ctx), &t));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, parts[t.what]);
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, t.a), 5, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, t.b), 5, 0);
}

CO_TEST_WITH(options_of_variables_are_checked, "VAR-NEW-1", "cpus=2")
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.trainable = (co_trainable)7;
    CO_EXPECT_NULL(co_variable(ctx, co_float(ctx, 1), &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "trainable is 7");
    options.trainable = CO_TRAINABLE_AUTO;
    options.dtype = (co_dtype)99;
    CO_EXPECT_NULL(co_variable(ctx, co_float(ctx, 1), &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "is 99, which is not a dtype");
    CO_EXPECT_NULL(co_variable(ctx, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "initial");
    CO_EXPECT_NULL(co_variable(ctx, co_none(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "none");
    CO_EXPECT_NULL(co_assign(ctx, co_float(ctx, 1), co_float(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "variable");
    CO_EXPECT_NULL(co_assign(ctx, co_variable(ctx, co_float(ctx, 1), NULL), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "value");
    CO_EXPECT_NULL(co_variable_read(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "variable");
}

/* --- training --- */

typedef struct model {
    co_optimizer *sgd;
    co_value     *w;
    bool          unrelated;
} model;

static co_value *
train(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *loss;

    (void)args;
    co_tape_begin(ctx);
    loss = co_square(ctx, m->w);
    co_minimize(ctx, m->sgd, m->unrelated ? co_scalar_float(ctx, 1) : loss);
    return NULL;
}

CO_TEST_WITH(optimizers_refuse_what_would_go_wrong, "", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    model        m = { co_sgd(ctx, NULL), co_variable(ctx, co_float(ctx, 1), NULL), false };
    co_value    *w = NULL, *pair[2],
             *grads[2] = { co_scalar_float(ctx, 1), co_zeros(ctx, CO_FLOAT32, CO_SHAPE(3)) };
    co_context *foreign = co_open(NULL);

    CO_EXPECT_NULL(co_run(ctx, s, train, co_no_args(ctx), &m));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "outside the scope");
    CO_SCOPE(ctx, s)
        w = co_variable(ctx, co_float(ctx, 1), NULL);
    m.w = w;
    m.unrelated = true;
    CO_EXPECT_NULL(co_run(ctx, s, train, co_no_args(ctx), &m));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no gradient");
    pair[0] = pair[1] = w;
    CO_EXPECT_CODE(co_apply_gradients(ctx, m.sgd, co_list(ctx, grads, 2), co_list(ctx, pair, 2)),
                   CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[3]");
    CO_EXPECT_CLOSE(co_item_float(ctx, w), 1, 0); /* the good pair was not applied either */
    CO_EXPECT_INT(co_optimizer_iterations(ctx, m.sgd), 0);
    CO_EXPECT_CODE(co_apply_gradients(ctx, m.sgd, co_list(ctx, grads, 2), co_list(ctx, pair, 1)),
                   CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "list of 2");
    CO_EXPECT_CODE(co_apply_gradients(foreign, m.sgd, co_list(foreign, NULL, 0),
                                      co_list(foreign, NULL, 0)),
                   CO_VALUE_ERROR);
    CO_EXPECT_ERROR(foreign, CO_VALUE_ERROR, "another runtime");
    CO_EXPECT_NULL(co_run(foreign, s, first_of, co_no_args(foreign), NULL));
    CO_EXPECT_ERROR(foreign, CO_VALUE_ERROR, "another runtime");
    CO_EXPECT_CODE(co_close(foreign), CO_OK);
}

/* --- NULL everywhere --- */

CO_TEST_WITH(null_and_wrong_handles_are_reported, "C-ARG-1", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1), *none = NULL,
                *wrong = (co_strategy *)(void *)co_int(ctx, 1);
    co_value    *x = co_float(ctx, 1);
    co_reduce_op op;

    for (int i = 0; i < 2; ++i) {
        co_strategy *bad = i == 0 ? none : wrong;
        co_code      code = i == 0 ? CO_INVALID_ARGUMENT : CO_TYPE_ERROR;

        CO_EXPECT_STR(co_strategy_name(ctx, bad), "");
        CO_EXPECT_ERROR(ctx, code, "strategy");
        CO_EXPECT_INT(co_num_replicas_in_sync(ctx, bad), 0);
        CO_EXPECT_ERROR(ctx, code, "strategy");
        CO_EXPECT_INT(co_num_workers(ctx, bad), 0);
        CO_EXPECT_ERROR(ctx, code, "strategy");
        CO_EXPECT_NULL(co_worker_devices(ctx, bad));
        CO_EXPECT_ERROR(ctx, code, "strategy");
        CO_EXPECT_TRUE(co_scope_begin(ctx, bad).id == 0);
        CO_EXPECT_ERROR(ctx, code, "strategy");
        CO_EXPECT_NULL(co_run(ctx, bad, first_of, co_no_args(ctx), NULL));
        CO_EXPECT_ERROR(ctx, code, "strategy");
        CO_EXPECT_NULL(co_reduce(ctx, bad, CO_REDUCE_SUM, x, NULL, 0));
        CO_EXPECT_ERROR(ctx, code, "strategy");
        CO_EXPECT_NULL(co_local_results(ctx, bad, x));
        CO_EXPECT_ERROR(ctx, code, "strategy");
        CO_EXPECT_NULL(co_gather_replicas(ctx, bad, x, 0));
        CO_EXPECT_ERROR(ctx, code, "strategy");
        CO_EXPECT_NULL(co_distribute_values_from_function(ctx, bad, NULL, NULL));
        CO_EXPECT_ERROR(ctx, code, "strategy");
    }
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, wrong), CO_TYPE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "strategy");
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, NULL, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "value");
    CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, x, NULL, 3));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "axes");
    CO_EXPECT_NULL(co_distribute_values_from_function(ctx, m, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
    CO_EXPECT_NULL(co_merge_call(ctx, NULL, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
    CO_EXPECT_NULL(co_all_reduce(ctx, CO_REDUCE_SUM, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "value");
    CO_EXPECT_NULL(co_all_gather(ctx, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "value");
    CO_EXPECT_CODE(co_reduce_op_from_name(ctx, NULL, &op), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2");
    CO_EXPECT_NULL(co_average_loss(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "per_example_loss");
    CO_EXPECT_CODE(co_scope_end(ctx, NULL), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "not open");
    CO_EXPECT_NULL(co_default_strategy(NULL));
    CO_EXPECT_NULL(co_one_device_strategy(NULL, NULL));
    CO_EXPECT_NULL(co_run(NULL, m, first_of, NULL, NULL));
    CO_EXPECT_NULL(co_get_strategy(NULL));
    CO_EXPECT_FALSE(co_has_strategy(NULL));
    CO_EXPECT_INT(co_replica_id(NULL), -1);
}

/* --- want of memory --- */

static co_value *
add_up(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    return co_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);
}

static co_value *
everything(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    int64_t   n = 6000; /* shared out between replicas */
    co_value *big = co_ones(ctx, CO_FLOAT32, &n, 1);

    co_all_reduce(ctx, CO_REDUCE_MEAN, co_args(ctx, big, co_int(ctx, 1)));
    co_all_gather(ctx, big, 0);
    co_merge_call(ctx, add_up, co_args(ctx, co_scalar_float(ctx, 1)), NULL);
    co_assign_add(ctx, m->w, co_scalar_float(ctx, 1));
    co_variable(ctx, co_float(ctx, 1), NULL);
    return train(ctx, args, m);
}

static bool
survive_with(co_context *ctx, co_strategy *strategy, co_optimizer *optimizer)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    model               m = { optimizer, NULL, false };

    options.aggregation = CO_AGGREGATION_SUM;
    if (strategy != NULL && m.sgd != NULL) {
        CO_SCOPE(ctx, strategy)
            m.w = co_variable(ctx, co_float(ctx, 1), &options);
        if (m.w != NULL)
            co_run(ctx, strategy, everything, co_no_args(ctx), &m);
    }
    return co_ok(ctx);
}

static bool
survive_one(co_context *ctx)
{
    co_sgd_options sgd = CO_SGD_OPTIONS_INIT;

    sgd.momentum = 0.5;
    return survive_with(ctx, co_one_device_strategy(ctx, NULL), co_sgd(ctx, &sgd));
}

static bool
survive_three(co_context *ctx)
{
    return survive_with(ctx, test_mirrored(ctx, 3, -1), co_adam(ctx, NULL)); /* two slots */
}

static co_value *
meet_often(co_context *ctx, co_value *args, void *user)
{
    int64_t   n = 6000;
    co_value *big = co_ones(ctx, CO_FLOAT32, &n, 1);

    (void)args;
    (void)user;
    return co_args(ctx, co_all_reduce(ctx, CO_REDUCE_SUM, big), co_replica_id_tensor(ctx));
}

/* More than the 16 replicas that arrays on the stack hold. */
static bool
survive_many(co_context *ctx)
{
    co_strategy *m = test_mirrored(ctx, 17, -1);

    co_run(ctx, m, meet_often, co_no_args(ctx), NULL);
    return co_ok(ctx);
}

CO_TEST_BARE(want_of_memory_in_a_step_is_survived, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", survive_one);
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", survive_three);
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", survive_many);
}

CO_TEST_WITH(corners_of_making_strategies, "MIR-INIT-1 MIR-INIT-3 C-ARG-1", "cpus=2")
{
    static const char *const local[] = { "/job:localhost/cpu:0", "/job:localhost/task:0/cpu:1" };
    static const char *const bad[] = { "/foo:0" };
    co_multi_worker_mirrored_options workers = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, co_mirrored_strategy(ctx, local, 2, NULL)), 2);
    CO_EXPECT_NULL(co_multi_worker_mirrored_strategy(NULL, NULL));
    workers.transport = "self";
    workers.num_replicas = -1;
    CO_EXPECT_NULL(co_multi_worker_mirrored_strategy(ctx, &workers));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "num_replicas is -1; with 1 process it");
    workers.devices = bad;
    workers.num_devices = 1;
    CO_EXPECT_NULL(co_multi_worker_mirrored_strategy(ctx, &workers));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "foo");
    workers.struct_size = 1;
    CO_EXPECT_NULL(co_multi_worker_mirrored_strategy(ctx, &workers));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size 1");
    co_fail(ctx, CO_ABORTED, "an error from before");
    CO_EXPECT_NULL(co_multi_worker_mirrored_strategy(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_ABORTED, "from before");
    CO_EXPECT_STR(co_strategy_name(NULL, NULL), "");
    CO_EXPECT_INT(co_num_workers(NULL, NULL), 0);
    CO_EXPECT_FALSE(co_should_checkpoint(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_FALSE(co_should_init(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    co_declare_devices(ctx, "GPU", 256); /* as many as one process can have replicas */
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, co_mirrored_strategy(ctx, NULL, 0, NULL)), 256);
}

/* The line of the call itself, not that of an earlier one. */
CO_TEST(errors_of_constructors_carry_their_line, "")
{
    co_multi_worker_mirrored_options wrong = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    int                              line;

    wrong.struct_size = 1;
    line = __LINE__, co_multi_worker_mirrored_strategy(ctx, &wrong);
    CO_EXPECT_INT(co_error(ctx)->line, line);
    CO_EXPECT_CONTAINS(co_error(ctx)->file, "strategy_arguments.c");
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size 1");
    line = __LINE__, co_define_strategy(ctx, NULL);
    CO_EXPECT_INT(co_error(ctx)->line, line);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (definition)");
    line = __LINE__, co_v1_multi_worker_mirrored_strategy(ctx, &wrong);
    CO_EXPECT_INT(co_error(ctx)->line, line);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size 1");
}
