/* SPDX-License-Identifier: Apache-2.0 */
/* Which strategy is current: scopes, set_strategy, and what steps and merge functions see. Sections
 * 2 to 5 and 20. */
#include "suite.h"

#include <pthread.h>
#include <stdatomic.h>

/* What the four questions answer. */
static void
expect_mode(co_context *ctx, co_strategy *strategy, bool has, bool cross)
{
    CO_EXPECT_PTR(co_get_strategy(ctx), strategy);
    CO_EXPECT_INT(co_has_strategy(ctx), has);
    CO_EXPECT_INT(co_in_cross_replica_context(ctx), cross);
    CO_EXPECT_PTR(co_get_replica_context(ctx), cross ? NULL : ctx);
}

static void
expect_default_mode(co_context *ctx)
{
    expect_mode(ctx, co_default_strategy(ctx), false, false);
}

CONFORM(default_mode_is_a_replica_context_of_one, "CTX-1 CTX-2 CTX-3 CTX-8 DEF-17")
{
    expect_default_mode(ctx);
    CO_EXPECT_INT(co_replica_id(ctx), 0);
    CO_EXPECT_INT(co_replicas(ctx), 1);
    CO_EXPECT_CLOSE(suite_number(ctx, co_replica_id_tensor(ctx)), 0, 0);
}

CONFORM(a_scope_makes_the_strategy_current, "SCOPE-1 SCOPE-2 SCOPE-3 CTX-4 CTX-5 DEF-2")
{
    CO_SCOPE(ctx, s)
        expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    expect_default_mode(ctx);
}

CONFORM(scopes_of_one_strategy_nest, "SCOPE-4 SCOPE-11")
{
    CO_SCOPE(ctx, s) {
        CO_SCOPE(ctx, s) {
            CO_SCOPE(ctx, s)
                expect_mode(ctx, s, row->is->is_current, row->is->is_current);
            expect_mode(ctx, s, row->is->is_current, row->is->is_current);
        }
        expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    }
    expect_default_mode(ctx);
}

CONFORM(scopes_are_left_innermost_first, "SCOPE-9 SCOPE-14 AMB-14 GEN-ERR-1")
{
    co_scope outer = co_scope_begin(ctx, s), inner = co_scope_begin(ctx, s);

    CO_EXPECT_CODE(co_scope_end(ctx, &outer), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "reverse order");
    expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    CO_EXPECT_CODE(co_scope_end(ctx, &inner), CO_OK);
    co_device_begin(ctx, "/cpu:0");
    CO_EXPECT_CODE(co_scope_end(ctx, &outer), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    co_device_end(ctx);
    CO_EXPECT_CODE(co_scope_end(ctx, &outer), CO_OK);
    CO_EXPECT_CODE(co_scope_end(ctx, &outer), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "not open");
    expect_default_mode(ctx);
}

CONFORM(strategies_do_not_mix_in_a_scope, "SCOPE-5 S-REDUCE-2 DEF-18 GEN-ERR-3")
{
    co_strategy *other = suite_other(ctx);

    CO_SCOPE(ctx, s) {
        co_scope scope = co_scope_begin(ctx, other);

        EXPECT_OUTCOME(ctx, row->is->mixing);
        if (scope.id != 0)
            co_scope_end(ctx, &scope);
        co_reduce(ctx, other, CO_REDUCE_SUM, co_scalar_float(ctx, 1), NULL, 0);
        EXPECT_OUTCOME(ctx, row->is->mixing);
        co_gather_replicas(ctx, other, co_scalar_float(ctx, 1), 0);
        EXPECT_OUTCOME(ctx, row->is->mixing);
        expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    }
}

CONFORM(the_default_strategy_does_not_mix_either, "DEF-2 DEF-16")
{
    CO_SCOPE(ctx, s) {
        co_scope scope = co_scope_begin(ctx, co_default_strategy(ctx));

        EXPECT_OUTCOME(ctx, row->is->mixing);
        if (scope.id != 0)
            co_scope_end(ctx, &scope);
        co_reduce(ctx, co_default_strategy(ctx), CO_REDUCE_SUM, co_scalar_float(ctx, 1), NULL, 0);
        EXPECT_OUTCOME(ctx, row->is->mixing);
    }
}

STEP(what_a_step_sees)
{
    const suite_row *row = user;

    CO_EXPECT_INT(co_has_strategy(ctx), row->is->is_current);
    CO_EXPECT_FALSE(co_in_cross_replica_context(ctx));
    CO_EXPECT_PTR(co_get_replica_context(ctx), ctx);
    CO_EXPECT_INT(co_replicas(ctx), row->n);
    CO_EXPECT_STR(co_strategy_name(ctx, co_get_strategy(ctx)), row->is->name);
    return co_replica_id_tensor(ctx);
}

CONFORM(a_step_is_a_replica_context, "CTX-2 CTX-4 CTX-5 RC-1 RC-2 RC-3 S-RUN-1")
{
    co_value *ids = suite_step(ctx, s, what_a_step_sees, (void *)(uintptr_t)row);

    EXPECT_LOCAL(ctx, s, ids, 0, 1);
    CO_EXPECT_INT(co_value_dtype(ctx, suite_local(ctx, s, ids, 0)), CO_INT32);
    CO_SCOPE(ctx, s)
        EXPECT_LOCAL(ctx, s, suite_step(ctx, s, what_a_step_sees, (void *)(uintptr_t)row), 0, 1);
}

STEP(count_steps)
{
    atomic_fetch_add((atomic_int *)user, 1);
    return NULL;
}

/* In default mode it enters the scope and leaves it; in the scope it stays; while another strategy
 * is current nothing is run. */
CONFORM(a_run_needs_default_mode_or_its_own_scope, "S-RUN-4 DEF-18 GEN-ERR-3")
{
    co_strategy *other = suite_other(ctx);
    int          others = co_num_local_replicas(ctx, other);
    atomic_int   steps = 0;

    suite_step(ctx, s, count_steps, &steps);
    CO_EXPECT_INT(steps, row->local);
    expect_default_mode(ctx);
    CO_SCOPE(ctx, s) {
        suite_step(ctx, s, count_steps, &steps);
        CO_EXPECT_INT(steps, 2 * row->local);
        expect_mode(ctx, s, row->is->is_current, row->is->is_current);
        steps = 0;
        suite_step(ctx, other, count_steps, &steps);
        EXPECT_OUTCOME(ctx, row->is->mixing);
        CO_EXPECT_INT(steps, row->is->mixing == CO_OK ? others : 0);
        expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    }
    steps = 0;
    CO_SCOPE(ctx, other) {
        suite_step(ctx, s, count_steps, &steps);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing strategies");
        expect_mode(ctx, other, true, true);
    }
    CO_EXPECT_INT(steps, 0);
    expect_default_mode(ctx);
}

/* What a body hands to its steps. */
typedef struct givens {
    co_strategy     *s, *other;
    const suite_row *row;
} givens;

STEP(wrong_in_a_step)
{
    const givens *g = user;
    co_scope      scope = co_scope_begin(ctx, g->s);

    EXPECT_OUTCOME(ctx, g->row->is->scope_in_step);
    if (scope.id != 0)
        co_scope_end(ctx, &scope);
    scope = co_scope_begin(ctx, g->other);
    EXPECT_OUTCOME(ctx, g->row->is->mixing);
    if (scope.id != 0)
        co_scope_end(ctx, &scope);
    co_run(ctx, g->s, what_a_step_sees, co_no_args(ctx), NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    co_reduce(ctx, g->s, CO_REDUCE_SUM, co_scalar_float(ctx, 1), NULL, 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    co_gather_replicas(ctx, g->s, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1)), 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    co_experimental_set_strategy(ctx, g->other);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    co_experimental_set_strategy(ctx, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    CO_EXPECT_INT(co_has_strategy(ctx), g->row->is->is_current);
    CO_EXPECT_FALSE(co_in_cross_replica_context(ctx));
    return NULL;
}

CONFORM(what_needs_cross_replica_context_fails_in_a_step,
        "SCOPE-6 SCOPE-7 S-RUN-4 S-REDUCE-2 S-GATHER-1 SET-6 DEF-6 DEF-18 GEN-ERR-1 AMB-2")
{
    givens g = { s, suite_other(ctx), row };

    CO_EXPECT_INT(co_value_kind(suite_step(ctx, s, wrong_in_a_step, &g)), CO_KIND_NONE);
}

MERGE(what_a_merge_sees)
{
    const givens *g = user;

    CO_EXPECT_PTR(s, g->s);
    expect_mode(ctx, s, g->row->is->is_current, true);
    CO_EXPECT_INT(co_replica_id(ctx), -1);
    CO_SCOPE(ctx, s)
        CO_EXPECT_INT(co_has_strategy(ctx), g->row->is->is_current);
    CO_EXPECT_OK(ctx);
    co_experimental_set_strategy(ctx, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    co_merge_call(ctx, what_a_merge_sees, co_no_args(ctx), user);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    co_all_gather(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1)), 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
    expect_mode(ctx, s, g->row->is->is_current, true);
    return NULL;
}

STEP(merge_and_look)
{
    const givens *g = user;

    co_merge_call(ctx, what_a_merge_sees, co_no_args(ctx), user);
    CO_EXPECT_FALSE(co_in_cross_replica_context(ctx));
    CO_EXPECT_INT(co_has_strategy(ctx), g->row->is->is_current);
    return NULL;
}

CONFORM(a_merge_function_is_in_cross_replica_context,
        "CTX-4 CTX-5 SCOPE-8 SET-6 RC-6 RC-MERGE-1 RC-MERGE-6 DEF-15")
{
    givens g = { s, NULL, row };

    suite_step(ctx, s, merge_and_look, &g);
    CO_EXPECT_OK(ctx);
}

CONFORM(replicas_meet_in_steps_alone, "RC-6 RC-MERGE-1 DEF-15")
{
    givens g = { co_default_strategy(ctx), NULL, &suite_rows[0] };

    CO_SCOPE(ctx, s) {
        /* In default mode there is a replica context; under this strategy there may be none. */
        co_code code = row->is->is_current ? CO_RUNTIME_ERROR : CO_OK;

        co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
        EXPECT_OUTCOME(ctx, code);
        co_all_gather(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1)), 0);
        EXPECT_OUTCOME(ctx, code);
        co_merge_call(ctx, what_a_merge_sees, co_no_args(ctx), &g);
        EXPECT_OUTCOME(ctx, code);
    }
    CO_EXPECT_CLOSE(suite_number(ctx, co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 3))),
                    3, 0);
}

CONFORM(set_strategy_lasts_until_changed, "SET-1 SET-3 SET-4 SET-9")
{
    for (int i = 0; i < 2; ++i) {
        CO_EXPECT_CODE(co_experimental_set_strategy(ctx, s), CO_OK);
        expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    }
    CO_EXPECT_INT(co_variable_strategy(ctx, co_variable(ctx, co_float(ctx, 1), NULL)) == s,
                  row->is->is_current);
    for (int i = 0; i < 2; ++i) {
        CO_EXPECT_CODE(co_experimental_set_strategy(ctx, NULL), CO_OK);
        expect_default_mode(ctx);
    }
    co_experimental_set_strategy(ctx, s);
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, co_default_strategy(ctx)), CO_OK);
    expect_default_mode(ctx);
}

CONFORM(one_strategy_after_the_other_is_set, "SET-2 SET-13")
{
    co_strategy *other = suite_other(ctx);

    co_experimental_set_strategy(ctx, s);
    expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    co_experimental_set_strategy(ctx, other);
    expect_mode(ctx, other, true, true);
    co_experimental_set_strategy(ctx, s);
    expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    co_experimental_set_strategy(ctx, NULL);
    expect_default_mode(ctx);
    CO_EXPECT_OK(ctx);
}

CONFORM(no_strategy_is_set_inside_a_scope, "SET-5 SET-10 SET-14 AMB-1")
{
    CO_SCOPE(ctx, s) {
        CO_EXPECT_CODE(co_experimental_set_strategy(ctx, s), CO_RUNTIME_ERROR);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "scope");
        co_experimental_set_strategy(ctx, NULL);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
        co_experimental_set_strategy(ctx, suite_other(ctx));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
        expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    }
    co_experimental_set_strategy(ctx, s);
    CO_SCOPE(ctx, s) {
        co_experimental_set_strategy(ctx, NULL);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, NULL);
        expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    }
    co_experimental_set_strategy(ctx, NULL);
}

CONFORM(with_a_strategy_set_others_are_refused, "SET-8 SET-11")
{
    co_strategy *other = suite_other(ctx);

    CO_DEVICE(ctx, "/cpu:0")
        co_experimental_set_strategy(ctx, s);
    CO_EXPECT_OK(ctx);
    CO_SCOPE(ctx, s)
        expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    co_reduce(ctx, other, CO_REDUCE_SUM, co_scalar_float(ctx, 1), NULL, 0);
    EXPECT_OUTCOME(ctx, row->is->mixing);
    co_scope scope = co_scope_begin(ctx, other);
    EXPECT_OUTCOME(ctx, row->is->mixing);
    if (scope.id != 0)
        co_scope_end(ctx, &scope);
    co_experimental_set_strategy(ctx, NULL);
}

CONFORM(what_is_no_strategy_cannot_be_set, "SET-12 GEN-ERR-1")
{
    co_value *number = co_int(ctx, 1);

    co_experimental_set_strategy(ctx, s);
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, (co_strategy *)(void *)number), CO_TYPE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, NULL);
    expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    co_experimental_set_strategy(ctx, NULL);
}

/* Another thread, with a context of its own. */
typedef struct guest {
    co_context  *ctx;
    co_strategy *other;
} guest;

static void *
be_guest(void *arg)
{
    guest *g = arg;

    expect_default_mode(g->ctx);
    CO_EXPECT_NULL(co_variable_strategy(g->ctx, co_variable(g->ctx, co_float(g->ctx, 1), NULL)));
    CO_SCOPE(g->ctx, g->other)
        expect_mode(g->ctx, g->other, true, true);
    co_experimental_set_strategy(g->ctx, g->other);
    expect_mode(g->ctx, g->other, true, true);
    co_experimental_set_strategy(g->ctx, NULL);
    CO_EXPECT_OK(g->ctx);
    return NULL;
}

CONFORM(a_new_context_begins_in_default_mode, "CTX-6 SET-7 THR-1 THR-3 C-CTX-1")
{
    guest     g = { co_open_beside(ctx), suite_other(ctx) };
    pthread_t thread;

    CO_SCOPE(ctx, s) {
        CO_REQUIRE(pthread_create(&thread, NULL, be_guest, &g) == 0);
        pthread_join(thread, NULL);
        expect_mode(ctx, s, row->is->is_current, row->is->is_current);
    }
    CO_EXPECT_CODE(co_close(g.ctx), CO_OK);
}

CONFORM(operations_in_a_scope_stay_on_the_callers_device, "SCOPE-10")
{
    char before[CO_DEVICE_NAME_MAX];

    snprintf(before, sizeof(before), "%s", co_current_device(ctx));
    CO_SCOPE(ctx, s) {
        co_value *x = co_add(ctx, co_scalar_float(ctx, 1), co_int(ctx, 1));

        CO_EXPECT_STR(co_value_device(ctx, x), before);
        CO_EXPECT_STR(co_current_device(ctx), before);
    }
    CO_EXPECT_STR(co_current_device(ctx), before);
}

CONFORM(a_strategy_has_a_size, "S-PROP-1 S-PROP-2 MW-2 MW-8 DEF-1 MIR-INIT-1 MIR-INIT-4 OD-PROP-1")
{
    CO_EXPECT_STR(co_strategy_name(ctx, s), row->is->name);
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, s), row->n);
    CO_EXPECT_INT(co_num_local_replicas(ctx, s), row->local);
    CO_EXPECT_INT(co_num_workers(ctx, s), row->workers);
    CO_EXPECT_INT(co_worker_id(ctx, s) * row->local, first);
}

/* A device of this process, as the cluster calls it, where there is one. */
#define EXPECT_HERE(ctx, s, row, name) expect_here(TEST_AT, (ctx), (s), (row), (name))
static void
expect_here(const char *file, int line, co_context *ctx, co_strategy *s, const suite_row *row,
            const char *name)
{
    char begin[CO_DEVICE_NAME_MAX];

    snprintf(begin, sizeof(begin), "%s/replica:0/task:%d/device:", row->job, co_worker_id(ctx, s));
    test_contains(file, line, "a device name", name, begin);
}

STEP(device_of_step)
{
    co_value *x = co_add(ctx, co_scalar_float(ctx, 1), co_int(ctx, 1));

    CO_EXPECT_STR(co_value_device(ctx, x), co_current_device(ctx));
    CO_EXPECT_CONTAINS(co_current_device(ctx), user);
    return x;
}

CONFORM(every_device_name_has_job_and_task, "MW-16 MW-6 MW-7")
{
    co_value    *x = co_scalar_float(ctx, 1), *v, *r, *element;
    char         name[CO_DEVICE_NAME_MAX], text[CO_DEVICE_NAME_MAX];
    co_dataset  *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 24, 1), 24, false);
    co_iterator *it;

    v = suite_variable(ctx, s, 1, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
    EXPECT_HERE(ctx, s, row, co_value_device(ctx, x));
    EXPECT_HERE(ctx, s, row, co_current_device(ctx));
    EXPECT_HERE(ctx, s, row, co_value_device(ctx, v));
    CO_EXPECT_CODE(co_device_resolve(ctx, "/cpu:7", name), CO_OK);
    EXPECT_HERE(ctx, s, row, name);
    CO_DEVICE(ctx, name) /* that does not exist */
        CO_EXPECT_STR(co_current_device(ctx), name);
    snprintf(text, sizeof(text), "/task:%d/cpu:7", co_worker_id(ctx, s));
    CO_EXPECT_CODE(co_device_resolve(ctx, text, text), CO_OK);
    CO_EXPECT_STR(text, name);
    CO_EXPECT_CODE(co_device_resolve(ctx, "/job:localhost/cpu:7", text), CO_OK);
    CO_EXPECT_STR(text, name);
    for (size_t i = 0; i < co_num_devices(ctx); ++i) {
        co_device_info info = CO_DEVICE_INFO_INIT;

        CO_EXPECT_CODE(co_get_device_info(ctx, i, &info), CO_OK);
        EXPECT_HERE(ctx, s, row, info.name);
        CO_DEVICE(ctx, info.name)
            CO_EXPECT_STR(co_value_device(ctx, co_scalar_float(ctx, 1)), info.name);
    }
    CO_SCOPE(ctx, s) {
        EXPECT_HERE(ctx, s, row, co_current_device(ctx));
        EXPECT_HERE(ctx, s, row, co_value_device(ctx, co_scalar_float(ctx, 1)));
    }
    snprintf(text, sizeof(text), "%s/replica:0/task:%d", row->job, co_worker_id(ctx, s));
    r = suite_step(ctx, s, device_of_step, text);
    it = co_iterate(ctx, co_distribute_dataset(ctx, s, data, NULL));
    element = co_next(ctx, it);
    for (int i = 0; i < row->local; ++i) {
        EXPECT_HERE(ctx, s, row, co_value_device(ctx, suite_local(ctx, s, r, i)));
        EXPECT_HERE(ctx, s, row, co_value_device(ctx, suite_local(ctx, s, v, i)));
        EXPECT_HERE(ctx, s, row, co_value_device(ctx, suite_local(ctx, s, element, i)));
    }
    CO_EXPECT_OK(ctx);
}
