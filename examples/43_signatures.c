/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signatures of the 1.15 Strategy document as calls. __init__(extended) (seed002/2),
 * experimental_distribute_dataset(dataset) (seed002/3),
 * experimental_distribute_datasets_from_function(dataset_fn) (seed002/5),
 * experimental_local_results(value) (seed002/7), experimental_make_numpy_dataset(numpy_input)
 * (seed002/8), experimental_run_v2(fn, args=(), kwargs=None) (seed002/10), reduce(reduce_op, value,
 * axis) (seed002/11), scope() (seed002/12). In C the compiler counts arguments; one that is NULL is
 * missing, and the call says which.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static co_value *
fn(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_num_items(ctx, args) > 0 ? co_at(ctx, args, 0) : co_none(ctx);
}

static co_dataset *
dataset_fn(co_context *ctx, const co_input_context *input_context, void *user)
{
    (void)input_context;
    (void)user;
    return co_dataset_range(ctx, 0, 3, 1);
}

/* What a call gave: `result` is whatever it returned, NULL if it failed. */
static void
say(co_context *ctx, const char *call, const void *result)
{
    printf("%s: %s\n", call, result != NULL ? "ok" : co_code_name(co_error(ctx)->code));
    if (result == NULL)
        printf("    %s\n", co_error(ctx)->message);
    co_clear(ctx);
}

/* With every argument that the document has. */
static void
complete(co_context *ctx, co_strategy *strategy)
{
    co_strategy_definition extended = CO_STRATEGY_DEFINITION_INIT;
    co_dataset            *dataset = co_dataset_range(ctx, 0, 3, 1);
    co_value              *value = co_scalar_float(ctx, 1);
    co_run_options         kwargs = CO_RUN_OPTIONS_INIT;
    const char            *key = "scale";

    extended.name = "MyStrategy";
    kwargs.kwargs = co_dict(ctx, &key, &value, 1);
    say(ctx, "Strategy(extended)", co_define_strategy(ctx, &extended));
    say(ctx, "experimental_distribute_dataset(dataset)",
        co_experimental_distribute_dataset(ctx, strategy, dataset, NULL));
    say(ctx, "experimental_distribute_datasets_from_function(dataset_fn)",
        co_experimental_distribute_datasets_from_function(ctx, strategy, dataset_fn, NULL, NULL));
    say(ctx, "experimental_local_results(value)",
        co_experimental_local_results(ctx, strategy, value));
    say(ctx, "experimental_make_numpy_dataset(numpy_input)",
        co_experimental_make_numpy_dataset(ctx, strategy, co_ones(ctx, CO_FLOAT32, CO_SHAPE(10))));
    say(ctx, "experimental_run_v2(fn)",
        co_experimental_run_v2(ctx, strategy, fn, co_no_args(ctx), NULL));
    say(ctx, "experimental_run_v2(fn, args, kwargs)",
        co_experimental_run_v2_with(ctx, strategy, fn, co_args(ctx, value), NULL, &kwargs));
    say(ctx, "reduce(SUM, value, axis=None)",
        co_reduce(ctx, strategy, CO_REDUCE_SUM, value, NULL, 0));
    CO_SCOPE(ctx, strategy) {
        say(ctx, "scope()", co_get_strategy(ctx));
    }
}

/* Each without its first argument. */
static void
missing(co_context *ctx, co_strategy *strategy)
{
    say(ctx, "Strategy()", co_define_strategy(ctx, NULL));
    say(ctx, "experimental_distribute_dataset()",
        co_experimental_distribute_dataset(ctx, strategy, NULL, NULL));
    say(ctx, "experimental_distribute_datasets_from_function()",
        co_experimental_distribute_datasets_from_function(ctx, strategy, NULL, NULL, NULL));
    say(ctx, "experimental_local_results()", co_experimental_local_results(ctx, strategy, NULL));
    say(ctx, "experimental_make_numpy_dataset()",
        co_experimental_make_numpy_dataset(ctx, strategy, NULL));
    say(ctx, "experimental_run_v2()",
        co_experimental_run_v2(ctx, strategy, NULL, co_no_args(ctx), NULL));
    say(ctx, "reduce(SUM)", co_reduce(ctx, strategy, CO_REDUCE_SUM, NULL, NULL, 0));
}

int
main(void)
{
    co_context  *ctx = co_open(NULL);
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:0");

    complete(ctx, strategy);
    missing(ctx, strategy);
    return co_close(ctx);
}
