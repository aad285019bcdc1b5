/* SPDX-License-Identifier: Apache-2.0 */
/* Several steps on an iterator and what they put out: EXT-STEPS-1 in its corners. */
#include <cohort/v1.h>
#include "test.h"

/* What the steps below are told. */
typedef struct plan {
    co_strategy *strategy;
    co_fn        replica_fn;
    int          calls;
    int          bad_step; /* the step that fails; 0: none */
} plan;

static co_iterator *
sixteen(co_context *ctx, co_strategy *strategy)
{
    co_dataset *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 16, 1), 4, false);

    return co_iterate(ctx, co_distribute_dataset(ctx, strategy, data, NULL));
}

static co_value *
sum_of(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

/* In cross-replica context: reduced, as it is, and not a tensor. */
static co_value *
cross_step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    plan     *p = user;
    co_value *sums = co_run(ctx, p->strategy, sum_of, co_args(ctx, inputs), NULL);

    ++p->calls;
    if (co_num_replicas_in_sync(ctx, p->strategy) > 1)
        CO_EXPECT_TRUE(co_in_cross_replica_context(ctx));
    CO_EXPECT_PTR(co_get_strategy(ctx), p->strategy);
    if (p->calls == p->bad_step)
        return co_fail(ctx, CO_DATA_LOSS, "step %d is bad", p->calls), NULL;
    co_set_last_step_output(ctx, steps, "sum", CO_REDUCE_SUM, sums);
    co_set_last_step_output(ctx, steps, "parts", CO_REDUCE_NONE, sums);
    if (p->calls == 1)
        co_set_last_step_output(ctx, steps, "only at first", CO_REDUCE_NONE, sums);
    co_set_non_tensor_output(ctx, steps, "word", co_string(ctx, "done"));
    return NULL;
}

CO_TEST_WITH(steps_put_out_what_the_last_one_set, "EXT-STEPS-1", "cpus=2")
{
    co_strategy     *all[] = { co_mirrored_strategy(ctx, NULL, 0, NULL),
                               co_one_device_strategy(ctx, "/cpu:1") };
    static const int totals[] = { 38, 22 }, iterations[] = { 3, 2 };

    for (size_t i = 0; i < 2; ++i) {
        plan             p = { .strategy = all[i] };
        co_step_context *steps = co_experimental_run_steps_on_iterator(ctx, all[i], cross_step,
                                                                       sixteen(ctx, all[i]), &p,
                                                                       iterations[i], NULL);
        co_value        *last = co_last_step_outputs(ctx, steps);

        CO_EXPECT_OK(ctx);
        CO_EXPECT_INT(p.calls, iterations[i]);
        CO_EXPECT_INT(co_num_items(ctx, last), 2);
        CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, last, "sum")), totals[i]);
        CO_EXPECT_INT(co_value_kind(co_get(ctx, last, "parts")),
                      i == 0 ? CO_KIND_PER_REPLICA : CO_KIND_TENSOR);
        CO_EXPECT_STR(co_string_at(ctx, co_get(ctx, co_non_tensor_outputs(ctx, steps), "word"), 0,
                                   NULL),
                      "done");
        CO_EXPECT_FALSE(co_has_strategy(ctx)); /* the scope is left */
    }
}

/* Inside the replicas: the value is reduced, other outputs are the tuple of local values. */
static co_value *
set_in_replica(co_context *ctx, co_value *args, void *user)
{
    co_step_context *steps = user;
    co_value        *sum = co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);

    co_set_last_step_output(ctx, steps, "sum", CO_REDUCE_SUM, sum);
    co_set_last_step_output(ctx, steps, "mean", CO_REDUCE_MEAN, co_cast(ctx, sum, CO_FLOAT32));
    co_set_non_tensor_output(ctx, steps, "ids", co_int(ctx, co_replica_id(ctx)));
    return sum;
}

static co_value *
set_without_op(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_set_last_step_output(ctx, user, "sum", CO_REDUCE_NONE, co_scalar_float(ctx, 1));
    return NULL;
}

static co_value *
set_different_names(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_set_last_step_output(ctx, user, co_replica_id(ctx) == 0 ? "a" : "b", CO_REDUCE_SUM,
                            co_scalar_float(ctx, 1));
    return NULL;
}

static co_value *
set_different_ops(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_set_last_step_output(ctx, user, "a",
                            co_replica_id(ctx) == 0 ? CO_REDUCE_SUM : CO_REDUCE_MEAN,
                            co_scalar_float(ctx, 1));
    return NULL;
}

static co_value *
set_shared_sum(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_set_last_step_output(ctx, user, "a", CO_REDUCE_SUM, co_int(ctx, 5));
    return NULL;
}

static co_value *
replica_step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    plan *p = user;

    ++p->calls;
    return co_run(ctx, p->strategy, p->replica_fn, co_args(ctx, inputs), steps);
}

CO_TEST_WITH(replicas_put_out_together, "EXT-STEPS-1", "cpus=2")
{
    co_strategy     *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    plan             p = { .strategy = m, .replica_fn = set_in_replica };
    co_step_context *steps = co_run_steps_on_iterator(ctx, m, replica_step, sixteen(ctx, m), &p, 3,
                                                      NULL);
    co_value        *last = co_last_step_outputs(ctx, steps), *ids;

    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, last, "sum")), 38);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_get(ctx, last, "mean")), 19, 0);
    ids = co_get(ctx, co_non_tensor_outputs(ctx, steps), "ids");
    CO_EXPECT_INT(co_value_kind(ids), CO_KIND_TUPLE);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, ids, 1)), 1);
}

CO_TEST_WITH(replicas_that_put_out_wrongly_are_told, "EXT-STEPS-1", "cpus=2")
{
    static const struct {
        co_fn       fn;
        co_code     code;
        const char *part;
    } wrong[] = {
        { set_without_op, CO_ASSERTION_ERROR, "CO_REDUCE_SUM" },
        { set_different_names, CO_RUNTIME_ERROR, "disagree" },
        { set_different_ops, CO_RUNTIME_ERROR, "disagree" },
        { set_shared_sum, CO_VALUE_ERROR, "sum" },
    };
    co_strategy *m = co_mirrored_strategy(ctx, NULL, 0, NULL);

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        plan p = { .strategy = m, .replica_fn = wrong[i].fn };

        CO_EXPECT_NULL(
            co_run_steps_on_iterator(ctx, m, replica_step, sixteen(ctx, m), &p, 3, NULL));
        CO_EXPECT_ERROR(ctx, wrong[i].code, wrong[i].part);
        CO_EXPECT_INT(p.calls, 1);
        CO_EXPECT_FALSE(co_has_strategy(ctx));
    }
}

/* What the last step put out is there for the next: a running total. */
static co_value *
total_step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    plan     *p = user;
    co_value *sums = co_run(ctx, p->strategy, sum_of, co_args(ctx, inputs), NULL);
    co_value *sum = co_reduce(ctx, p->strategy, CO_REDUCE_SUM, sums, NULL, 0);
    co_value *before = co_get(ctx, co_last_step_outputs(ctx, steps), "total");

    co_set_last_step_output(ctx, steps, "total", CO_REDUCE_NONE, sum); /* the last setting counts */
    co_set_last_step_output(ctx, steps, "total", CO_REDUCE_NONE, co_add(ctx, before, sum));
    return NULL;
}

CO_TEST_WITH(loop_values_go_from_step_to_step, "EXT-STEPS-1", "cpus=2")
{
    static const char *const keys[] = { "total" };

    co_strategy     *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    plan             p = { .strategy = m };
    co_value        *hundred = co_scalar_int64(ctx, 100);
    co_value        *initial = co_dict(ctx, keys, &hundred, 1);
    co_step_context *steps = co_run_steps_on_iterator(ctx, m, total_step, sixteen(ctx, m), &p, 4,
                                                      &(co_run_steps_options){
                                                          sizeof(co_run_steps_options), initial });

    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, co_last_step_outputs(ctx, steps), "total")), 220);
    steps = co_run_steps_on_iterator(ctx, m, total_step, sixteen(ctx, m), &p, 0,
                                     &(co_run_steps_options){ sizeof(co_run_steps_options),
                                                              initial });
    CO_EXPECT_PTR(co_last_step_outputs(ctx, steps), initial);
    CO_EXPECT_INT(co_num_items(ctx, co_non_tensor_outputs(ctx, steps)), 0);
}

static co_value *
open_things(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    plan *p = user;

    (void)steps;
    (void)inputs;
    ++p->calls;
    co_block_begin(ctx);
    co_scope_begin(ctx, p->strategy);
    return NULL;
}

CO_TEST_WITH(what_a_step_leaves_open_is_left, "EXT-STEPS-1 GEN-ERR-1", "cpus=2")
{
    co_strategy     *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    plan             p = { .strategy = m };
    co_step_context *steps = co_run_steps_on_iterator(ctx, m, open_things, sixteen(ctx, m), &p, 2,
                                                      NULL);

    CO_EXPECT_INT(p.calls, 2);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_INT(co_num_items(ctx, co_last_step_outputs(ctx, steps)), 0);
}

CO_TEST_WITH(the_end_of_input_and_errors_end_the_steps, "EXT-STEPS-1 GEN-ERR-2", "cpus=2")
{
    co_strategy *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    plan         p = { .strategy = m };

    CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, m, cross_step, sixteen(ctx, m), &p, 5, NULL));
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, NULL);
    CO_EXPECT_INT(p.calls, 4);
    p.calls = 0;
    p.bad_step = 2;
    CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, m, cross_step, sixteen(ctx, m), &p, 4, NULL));
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "step 2 is bad");
    CO_EXPECT_INT(p.calls, 2);
}

CO_TEST(the_default_strategy_has_no_steps, "EXT-STEPS-1")
{
    co_strategy *d = co_default_strategy(ctx);
    plan         p = { .strategy = d };
    co_iterator *it = sixteen(ctx, d);

    CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, d, cross_step, it, &p, 2, NULL));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "default strategy");
    CO_EXPECT_INT(p.calls, 0);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_get_next(ctx, it)), 4); /* and nothing was taken */
}

static co_value *
steps_in_a_replica(co_context *ctx, co_value *args, void *user)
{
    plan *p = user;

    (void)args;
    CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, p->strategy, cross_step, sixteen(ctx, p->strategy),
                                            p, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    return NULL;
}

CO_TEST_WITH(arguments_of_steps_are_checked, "EXT-STEPS-1", "cpus=2")
{
    co_strategy     *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    plan             p = { .strategy = m };
    co_iterator     *it = sixteen(ctx, m);
    co_step_context *steps = co_run_steps_on_iterator(ctx, m, cross_step, it, &p, 1, NULL);
    co_value        *one = co_int(ctx, 1);

    CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, NULL, cross_step, it, &p, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, m, NULL, it, &p, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
    CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, m, cross_step, NULL, &p, 1, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "iterator");
    CO_EXPECT_NULL(co_run_steps_on_iterator(ctx, m, cross_step, it, &p, -1, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "-1");
    CO_EXPECT_NULL(
        co_run_steps_on_iterator(ctx, m, cross_step, it, &p, 1,
                                 &(co_run_steps_options){ sizeof(co_run_steps_options), one }));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "dict");
    co_run(ctx, m, steps_in_a_replica, co_no_args(ctx), &p);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_last_step_outputs(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "steps");
    CO_EXPECT_NULL(co_non_tensor_outputs(ctx, (co_step_context *)(void *)one));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_SCOPE(ctx, m) {
        CO_EXPECT_CODE(co_set_last_step_output(ctx, NULL, "a", CO_REDUCE_SUM, one),
                       CO_INVALID_ARGUMENT);
        co_clear(ctx);
        CO_EXPECT_CODE(co_set_last_step_output(ctx, steps, NULL, CO_REDUCE_SUM, one),
                       CO_VALUE_ERROR);
        co_clear(ctx);
        CO_EXPECT_CODE(co_set_non_tensor_output(ctx, steps, "a", NULL), CO_INVALID_ARGUMENT);
        co_clear(ctx);
        CO_EXPECT_CODE(co_set_last_step_output(ctx, steps, "a", (co_reduce_op)9, one),
                       CO_ASSERTION_ERROR);
        co_clear(ctx);
        CO_EXPECT_CODE(co_set_last_step_output(ctx, steps, "a", CO_REDUCE_SUM, one),
                       CO_VALUE_ERROR);
        co_clear(ctx);
    }
}

static bool
steps_in_little_memory(co_context *ctx)
{
    co_strategy *m = co_mirrored_strategy(ctx, NULL, 0, NULL);
    plan         p = { .strategy = m, .replica_fn = set_in_replica };

    return co_last_step_outputs(ctx, co_run_steps_on_iterator(ctx, m, replica_step, sixteen(ctx, m),
                                                              &p, 2, NULL)) != NULL;
}

CO_TEST_BARE(steps_survive_want_of_memory, "EXT-STEPS-1")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", steps_in_little_memory);
}
