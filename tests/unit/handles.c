/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of strategies checks the handles it is given before it looks at what they stand
 * for. */
#include <cohort/v1.h>
#include "engine_support.h"

static co_value *
pass(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_at(ctx, args, 0);
}

static co_value *
update(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)variable;
    (void)user;
    return co_at(ctx, args, 0);
}

static co_value *
merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    (void)user;
    return co_at(ctx, args, 0);
}

static co_value *
one_step(co_context *ctx, co_step_context *steps, co_value *inputs, void *user)
{
    co_value *bad = user;

    (void)inputs;
    co_set_last_step_output(ctx, steps, "x", CO_REDUCE_SUM, bad);
    return NULL;
}

/* A strategy, a variable of it and whatever else a call needs that is well. */
typedef struct well {
    co_strategy *s;
    co_value    *v, *x, *here;
    co_iterator *it;
} well;

#define CALL(name, expression)                                                                     \
    static void name(co_context *ctx, const well *w, co_value *bad)                                \
    {                                                                                              \
        (void)w;                                                                                   \
        (void)(expression);                                                                        \
    }
CALL(run_args, co_run(ctx, w->s, pass, bad, NULL))
CALL(for_each, co_call_for_each_replica(ctx, w->s, pass, bad, NULL))
CALL(reduced, co_reduce(ctx, w->s, CO_REDUCE_SUM, bad, NULL, 0))
CALL(reduced_to, co_reduce_to(ctx, w->s, CO_REDUCE_SUM, bad, w->here))
CALL(to_bad, co_reduce_to(ctx, w->s, CO_REDUCE_SUM, w->x, bad))
CALL(batch, co_batch_reduce_to(ctx, w->s, CO_REDUCE_SUM, bad))
CALL(spread, co_broadcast_to_devices(ctx, w->s, bad, w->here))
CALL(spread_to, co_broadcast_to_devices(ctx, w->s, w->x, bad))
CALL(update_bad, co_update(ctx, w->s, bad, update, co_args(ctx, w->x), NULL, NULL))
CALL(update_args, co_update(ctx, w->s, w->v, update, bad, NULL, NULL))
CALL(non_slot, co_update_non_slot(ctx, w->s, bad, pass, co_args(ctx, w->x), NULL, NULL))
CALL(non_slot_args,
     co_update_non_slot(ctx, w->s, co_worker_devices(ctx, w->s), pass, bad, NULL, NULL))
CALL(container, co_value_container(ctx, w->s, bad))
CALL(in_scope, co_variable_created_in_scope(ctx, w->s, bad))
CALL(read_var, co_read_var(ctx, w->s, bad))
CALL(locals, co_local_results(ctx, w->s, bad))
CALL(gathered, co_gather_replicas(ctx, w->s, bad, 0))
CALL(merged, co_merge_call(ctx, merge, bad, NULL))
CALL(all_reduced, co_all_reduce(ctx, CO_REDUCE_SUM, bad))
CALL(all_gathered, co_all_gather(ctx, bad, 0))
CALL(made, co_variable(ctx, bad, NULL))
CALL(saved, co_variable_save(ctx, bad))
CALL(restored, co_variable_restore(ctx, bad, w->x))
CALL(restored_from, co_variable_restore(ctx, w->v, bad))
CALL(initialized, co_variable_is_initialized(ctx, bad))
CALL(handled, co_variable_handle(ctx, bad))
CALL(scattered, co_scatter_add(ctx, bad, w->x))
CALL(scattered_from, co_scatter_add(ctx, w->v, bad))
CALL(assigned, co_assign(ctx, bad, w->x))
CALL(assigned_from, co_assign(ctx, w->v, bad))
CALL(configured, co_update_config_proto(ctx, w->s, bad))
CALL(arrays, co_make_numpy_dataset(ctx, w->s, bad))
CALL(initial,
     co_run_steps_on_iterator(ctx, w->s, one_step, w->it, NULL, 1,
                              &(co_run_steps_options){ sizeof(co_run_steps_options), bad }))
CALL(output, co_run_steps_on_iterator(ctx, w->s, one_step, w->it, bad, 1, NULL))
CALL(iterator,
     co_run_steps_on_iterator(ctx, w->s, one_step, (co_iterator *)(void *)bad, w->x, 1, NULL))
CALL(experimental, co_experimental_run(ctx, w->s, pass, (co_iterator *)(void *)bad, NULL))
CALL(strategy, co_num_replicas_in_sync(ctx, (co_strategy *)(void *)bad))
CALL(recorder, co_flight_format(ctx, (co_strategy *)(void *)bad, NULL, 0))
CALL(scope, co_scope_begin(ctx, (co_strategy *)(void *)bad).id)
CALL(set, co_experimental_set_strategy(ctx, (co_strategy *)(void *)bad))
CALL(outputs, co_last_step_outputs(ctx, (co_step_context *)(void *)bad))

static void
kwargs(co_context *ctx, const well *w, co_value *bad)
{
    co_run_options options = CO_RUN_OPTIONS_INIT;

    options.kwargs = bad;
    co_run_with(ctx, w->s, pass, co_args(ctx, w->x), NULL, &options);
}

static void
colocate(co_context *ctx, const well *w, co_value *bad)
{
    CO_SCOPE(ctx, w->s) {
        co_colocate_begin(ctx, w->s, bad);
        co_colocate_end(ctx);
    }
}

static const struct {
    const char *name;
    void (*call)(co_context *ctx, const well *w, co_value *bad);
    bool may_be_null, is_object; /* takes NULL; takes no value but another object */
} calls[] = {
    { "run", run_args, false, false },
    { "call_for_each_replica", for_each, true, false },
    { "run, kwargs", kwargs, true, false },
    { "reduce", reduced, false, false },
    { "reduce_to", reduced_to, false, false },
    { "reduce_to, destination", to_bad, false, false },
    { "batch_reduce_to", batch, false, false },
    { "broadcast", spread, false, false },
    { "broadcast, destination", spread_to, false, false },
    { "update", update_bad, false, false },
    { "update, args", update_args, false, false },
    { "update_non_slot", non_slot, false, false },
    { "update_non_slot, args", non_slot_args, false, false },
    { "value_container", container, false, false },
    { "variable_created_in_scope", in_scope, false, false },
    { "read_var", read_var, false, false },
    { "local_results", locals, false, false },
    { "gather_replicas", gathered, false, false },
    { "merge_call", merged, false, false },
    { "all_reduce", all_reduced, false, false },
    { "all_gather", all_gathered, false, false },
    { "variable", made, false, false },
    { "variable_save", saved, false, false },
    { "variable_restore", restored, false, false },
    { "variable_restore, value", restored_from, false, false },
    { "variable_is_initialized", initialized, false, false },
    { "variable_handle", handled, false, false },
    { "scatter_add", scattered, false, false },
    { "scatter_add, slices", scattered_from, false, false },
    { "assign", assigned, false, false },
    { "assign, value", assigned_from, false, false },
    { "update_config_proto", configured, true, false },
    { "make_numpy_dataset", arrays, false, false },
    { "run_steps_on_iterator, initial", initial, true, false },
    { "set_last_step_output", output, false, false },
    { "colocate_begin", colocate, false, false },
    { "run_steps_on_iterator", iterator, false, true },
    { "experimental_run", experimental, true, true },
    { "num_replicas_in_sync", strategy, false, true },
    { "flight_format", recorder, false, true },
    { "scope_begin", scope, false, true },
    { "set_strategy", set, true, true },
    { "last_step_outputs", outputs, false, true },
};

static void
expect_refused(co_context *ctx, const char *name, co_code code, const char *part)
{
    if (co_error(ctx) == NULL || co_error(ctx)->code != code ||
        strstr(co_error(ctx)->message, part) == NULL) {
        fprintf(stderr, "%s\n", name);
        CO_EXPECT_ERROR(ctx, code, part);
    }
    co_clear(ctx);
    CO_EXPECT_TRUE(!co_has_strategy(ctx) && !co_in_cross_replica_context(ctx));
}

static well
well_of(co_context *ctx)
{
    well        w = { .s = co_mirrored_strategy(ctx, NULL, 0, NULL) };
    co_dataset *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 64, 1), 2, false);

    CO_SCOPE(ctx, w.s)
        w.v = co_variable(ctx, co_float(ctx, 1), NULL);
    w.x = co_scalar_float(ctx, 1);
    w.here = co_string(ctx, "/cpu:0");
    w.it = co_iterate(ctx, co_distribute_dataset(ctx, w.s, data, NULL));
    CO_EXPECT_OK(ctx);
    return w;
}

CO_TEST_WITH(every_call_refuses_handles_of_another_runtime, "C-ARG-1 GEN-ERR-1", "cpus=2")
{
    co_context *other = co_open("cpus=2");
    well        w = well_of(ctx), theirs = well_of(other);

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i)
        CO_BLOCK(ctx) {
            calls[i].call(ctx, &w, calls[i].is_object ? (void *)theirs.s : (void *)theirs.x);
            if (!calls[i].is_object || calls[i].call == strategy || calls[i].call == recorder ||
                calls[i].call == scope || calls[i].call == set)
                expect_refused(ctx, calls[i].name, CO_VALUE_ERROR, "of another runtime");
            else
                expect_refused(ctx, calls[i].name, CO_TYPE_ERROR, "not a live");
        }
    CO_EXPECT_CODE(co_close(other), CO_OK);
}

CO_TEST_WITH(every_call_refuses_handles_of_another_kind, "C-ARG-1 GEN-ERR-1", "cpus=2")
{
    well w = well_of(ctx);

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i)
        CO_BLOCK(ctx) {
            calls[i].call(ctx, &w, calls[i].is_object ? w.x : (co_value *)(void *)w.s);
            expect_refused(ctx, calls[i].name, CO_TYPE_ERROR,
                           calls[i].is_object ? "is a value; it must be a"
                                              : "is a strategy; it must be a value");
        }
}

CO_TEST_WITH(every_call_refuses_null_and_says_what_to_give, "C-ARG-1 GEN-ERR-1", "cpus=2")
{
    well w = well_of(ctx);

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i)
        CO_BLOCK(ctx) {
            const co_error_info *error;

            calls[i].call(ctx, &w, NULL);
            error = co_error(ctx);
            if (calls[i].may_be_null) {
                co_clear(ctx);
                continue;
            }
            if (error == NULL || strchr(error->message, ';') == NULL) {
                fprintf(stderr, "%s: %s\n", calls[i].name,
                        error != NULL ? error->message : "no error");
                CO_EXPECT_TRUE(false);
            }
            co_clear(ctx);
        }
    co_experimental_set_strategy(ctx, NULL);
}
