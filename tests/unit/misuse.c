/* SPDX-License-Identifier: Apache-2.0 */
/* Handles where they do not belong: those of another runtime or another strategy, and all of them
 * in a forked child. */
#include "engine_support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#endif
#endif
#ifndef THREAD_SANITIZED
#define THREAD_SANITIZED 0
#endif

static co_value *
first_of(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_at(ctx, args, 0);
}

static co_value *
merge_first(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    return first_of(ctx, args, user);
}

static co_value *
sum_ones(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

static void
expect_usable(co_context *ctx, co_strategy *strategy)
{
    co_value *parts = co_local_results(ctx, strategy,
                                       co_run(ctx, strategy, sum_ones, co_no_args(ctx), NULL));

    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, parts, 0)),
                    co_num_replicas_in_sync(ctx, strategy), 0);
    CO_EXPECT_OK(ctx);
}

/* --- another runtime --- */

#define EXPECT_FOREIGN(call)                                                                       \
    do {                                                                                           \
        (void)(call);                                                                              \
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "of another runtime");                                \
    } while (0)

CO_TEST_WITH(values_of_another_runtime_are_refused, "C-ARG-1 GEN-ERR-1", "cpus=2")
{
    co_context  *other = co_open("cpus=2");
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *its = co_scalar_float(other, 1), *number = co_int(other, 1);
    co_value    *its_variable = co_variable(other, its, NULL), *v = NULL;

    CO_SCOPE(ctx, m)
        v = co_variable(ctx, co_float(ctx, 3), NULL);
    EXPECT_FOREIGN(co_add(ctx, its, co_int(ctx, 1)));
    EXPECT_FOREIGN(co_add(ctx, co_scalar_float(ctx, 1), number));
    EXPECT_FOREIGN(co_add(ctx, its_variable, co_int(ctx, 1)));
    EXPECT_FOREIGN(co_args(ctx, its));
    EXPECT_FOREIGN(co_variable_read(ctx, its_variable));
    EXPECT_FOREIGN(co_assign(ctx, its_variable, co_float(ctx, 1)));
    EXPECT_FOREIGN(co_assign(ctx, v, its));
    EXPECT_FOREIGN(co_variable(ctx, its, NULL));
    EXPECT_FOREIGN(co_item_float(ctx, its));
    EXPECT_FOREIGN(co_escape(ctx, its));
    EXPECT_FOREIGN(co_reduce(ctx, m, CO_REDUCE_SUM, its, NULL, 0));
    EXPECT_FOREIGN(co_local_results(ctx, m, its));
    EXPECT_FOREIGN(co_run(ctx, m, first_of, co_args(other, its), NULL));
    EXPECT_FOREIGN(co_merge_call(ctx, merge_first, co_args(other, its), NULL));
    EXPECT_FOREIGN(co_all_reduce(ctx, CO_REDUCE_SUM, its));
    EXPECT_FOREIGN(co_all_gather(ctx, its, 0));
    EXPECT_FOREIGN(co_dataset_from_tensors(ctx, its));
    co_keep(ctx, its);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "another runtime");
    co_release(ctx, its);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "another runtime");
    CO_EXPECT_CLOSE(co_item_float(other, its), 1, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 3, 0);
    expect_usable(ctx, m);
    CO_EXPECT_CODE(co_close(other), CO_OK);
}

CO_TEST_WITH(strategies_and_input_of_another_runtime_are_refused, "C-ARG-1 GEN-ERR-1", "cpus=2")
{
    co_context   *other = co_open("cpus=2");
    co_strategy  *its = test_mirrored(other, 2, -1), *m = test_mirrored(ctx, 2, -1);
    co_dataset   *numbers = co_dataset_range(other, 0, 8, 1);
    co_iterator  *at = co_iterate(other, numbers);
    co_optimizer *sgd = co_sgd(other, NULL);
    co_value     *none = NULL;

    EXPECT_FOREIGN(co_run(ctx, its, first_of, co_no_args(ctx), NULL));
    EXPECT_FOREIGN(co_scope_begin(ctx, its).id);
    EXPECT_FOREIGN(co_experimental_set_strategy(ctx, its));
    EXPECT_FOREIGN(co_experimental_set_strategy(ctx, co_default_strategy(other)));
    EXPECT_FOREIGN(co_reduce(ctx, its, CO_REDUCE_SUM, co_int(ctx, 1), NULL, 0));
    EXPECT_FOREIGN(co_distribute_dataset(ctx, m, numbers, NULL));
    EXPECT_FOREIGN(co_distribute_dataset(ctx, its, co_dataset_range(ctx, 0, 8, 1), NULL));
    EXPECT_FOREIGN(co_dataset_batch(ctx, numbers, 2, false));
    EXPECT_FOREIGN(co_iterate(ctx, numbers));
    EXPECT_FOREIGN(co_next(ctx, at));
    EXPECT_FOREIGN(co_apply_gradients(ctx, sgd, co_list(ctx, &none, 0), co_list(ctx, &none, 0)));
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    expect_usable(other, its);
    CO_EXPECT_CODE(co_close(other), CO_OK);
}

static co_value *
return_foreign(co_context *ctx, co_value *args, void *user)
{
    (void)ctx;
    (void)args;
    return user;
}

CO_TEST_WITH(a_step_that_returns_a_value_of_another_runtime_fails, "GEN-ERR-1", "cpus=2")
{
    co_context  *other = co_open(NULL);
    co_strategy *m = test_mirrored(ctx, 2, -1);

    EXPECT_FOREIGN(co_run(ctx, m, return_foreign, co_no_args(ctx), co_int(other, 1)));
    expect_usable(ctx, m);
    CO_EXPECT_CODE(co_close(other), CO_OK);
}

/* --- fork --- */

/* What a child of this process says of `body`: whether it was right, within ten seconds. */
static bool
in_child(bool (*body)(co_context *ctx, void *with), co_context *ctx, void *with)
{
    int   status = -1;
    pid_t child = fork();

    if (child == 0) {
        sigset_t none;

        sigemptyset(&none);
        pthread_sigmask(SIG_SETMASK, &none, NULL); /* threads of the library hold all back */
        alarm(10);                                 /* who hangs is ended, and found */
        test_end_child(body(ctx, with));
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static bool
refused(co_context *ctx)
{
    bool right = co_error(ctx)->code == CO_RUNTIME_ERROR &&
                 strstr(co_error(ctx)->message, "forked from process") != NULL &&
                 strstr(co_error(ctx)->message, "co_open") != NULL;

    co_clear(ctx);
    return right;
}

/* with: values, strategies and input that the parent made. */
typedef struct made {
    co_strategy *mirrored, *one;
    co_value    *tensor, *variable;
    co_dataset  *dataset;
    co_iterator *iterator;
} made;

static bool
use_all(co_context *ctx, void *with)
{
    made *m = with;
    bool  right = co_open_beside(ctx) == NULL && refused(ctx);

    right = right && co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1000)) == NULL && refused(ctx);
    right = right && co_get_strategy(ctx) == co_default_strategy(ctx);
    co_block_begin(ctx);
    co_block_end(ctx);
    right = right && co_run(ctx, m->mirrored, sum_ones, m->tensor, NULL) == NULL && refused(ctx);
    right = right && co_run(ctx, m->one, sum_ones, co_no_args(ctx), NULL) == NULL && refused(ctx);
    right = right && co_scope_begin(ctx, m->mirrored).id == 0 && refused(ctx);
    right = right && co_reduce(ctx, m->mirrored, CO_REDUCE_SUM, m->tensor, NULL, 0) == NULL &&
            refused(ctx);
    right = right && co_add(ctx, m->tensor, m->tensor) == NULL && refused(ctx);
    right = right && co_add(ctx, co_scalar_float(ctx, 1), m->tensor) == NULL && refused(ctx);
    right = right && co_args(ctx, m->tensor) == NULL && refused(ctx);
    right = right && co_assign(ctx, m->variable, m->tensor) == NULL && refused(ctx);
    right = right && co_next(ctx, m->iterator) == NULL && refused(ctx);
    right = right && co_iterate(ctx, m->dataset) == NULL && refused(ctx);
    co_keep(ctx, m->tensor);
    right = right && refused(ctx);
    return co_close(ctx) == CO_OK && right;
}

CO_TEST_WITH(a_forked_child_may_only_close, "", "cpus=2")
{
    made m = { .mirrored = test_mirrored(ctx, 2, -1), .one = co_one_device_strategy(ctx, NULL) };

    m.tensor = co_scalar_float(ctx, 1);
    CO_SCOPE(ctx, m.mirrored)
        m.variable = co_variable(ctx, co_float(ctx, 3), NULL);
    m.dataset = co_dataset_range(ctx, 0, 4, 1);
    m.iterator = co_iterate(ctx, m.dataset);
    expect_usable(ctx, m.mirrored);
    CO_EXPECT_TRUE(in_child(use_all, ctx, &m));
    expect_usable(ctx, m.mirrored);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_add(ctx, m.tensor, m.variable)), 4, 0);
    CO_EXPECT_NOT_NULL(co_next(ctx, m.iterator));
}

static bool
open_own(co_context *ctx, void *with)
{
    co_context  *own = co_open("cpus=2");
    co_strategy *m = test_mirrored(own, 2, -1);
    co_value    *sum = co_reduce(own, m, CO_REDUCE_SUM,
                                 co_run(own, m, sum_ones, co_no_args(own), NULL), NULL, 0);
    bool         right = co_item_float(own, sum) == 4;

    (void)ctx;
    (void)with;
    return co_close(own) == CO_OK && right;
}

CO_TEST_WITH(a_forked_child_opens_a_runtime_of_its_own, "", "cpus=2")
{
    if (THREAD_SANITIZED)
        CO_SKIP("the thread sanitizer starts no threads in a forked child");
    expect_usable(ctx, test_mirrored(ctx, 2, -1));
    CO_EXPECT_TRUE(in_child(open_own, ctx, NULL));
}

static bool
meet(co_context *ctx, void *with)
{
    (void)with;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1)) == NULL && refused(ctx);
}

/* user: whether the child was right. */
static co_value *
fork_in_step(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    if (co_replica_id(ctx) == 1)
        *(bool *)user = in_child(meet, ctx, NULL);
    return sum_ones(ctx, args, user);
}

CO_TEST_WITH(a_child_forked_by_a_step_waits_for_nobody, "", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 3, 0); /* no deadline would end its wait */
    bool         right = false;
    co_value    *sums = co_run(ctx, m, fork_in_step, co_no_args(ctx), &right);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, sums, 2)), 3, 0);
    CO_EXPECT_TRUE(right);
    expect_usable(ctx, m);
}

/* --- another strategy --- */

static co_value *
id_of(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_scalar_float(ctx, (float)co_replica_id(ctx));
}

static co_value *
read_user(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_variable_read(ctx, user);
}

static co_value *
run_user(co_context *ctx, co_value *args, void *user)
{
    return co_run(ctx, user, id_of, args, NULL);
}

static co_value *
merge_in_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    return co_merge_call(ctx, merge_first, args, user);
}

static co_value *
step_with_merge_in_merge(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return co_merge_call(ctx, merge_in_merge, co_args(ctx, co_int(ctx, 1)), user);
}

CO_TEST_WITH(what_another_strategy_made_is_refused_or_fits,
             "S-RUN-4 S-RUN-5 VAR-NEW-8 RC-MERGE-1 RC-MERGE-6 SCOPE-7 GEN-ERR-1 GEN-ERR-3",
             "cpus=2")
{
    co_strategy *two = test_mirrored(ctx, 2, -1), *three = test_mirrored(ctx, 3, -1),
                *one = co_one_device_strategy(ctx, NULL), *same = test_mirrored(ctx, 2, -1);
    co_value   *pair = co_run(ctx, two, id_of, co_no_args(ctx), NULL), *v = NULL;
    co_dataset *parts = co_distribute_dataset(
        ctx, two, co_dataset_batch(ctx, co_dataset_range(ctx, 0, 8, 1), 4, false), NULL);
    co_value *batch = co_next(ctx, co_iterate(ctx, parts));

    CO_SCOPE(ctx, two)
        v = co_variable(ctx, co_float(ctx, 3), NULL);
    /* Values of as many replicas are values; those of more or fewer are a mistake. */
    CO_EXPECT_CLOSE(co_item_float(ctx, co_reduce(ctx, same, CO_REDUCE_SUM, pair, NULL, 0)), 1, 0);
    co_run(ctx, same, first_of, co_args(ctx, batch), NULL);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_NULL(co_run(ctx, three, first_of, co_args(ctx, pair), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "2 components");
    CO_EXPECT_NULL(co_run(ctx, three, first_of, co_args(ctx, batch), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "2 components");
    CO_EXPECT_NULL(co_reduce(ctx, three, CO_REDUCE_SUM, pair, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    /* Variables belong to their strategy. */
    CO_EXPECT_NULL(co_run(ctx, same, read_user, co_no_args(ctx), v));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "MirroredStrategy #");
    CO_SCOPE(ctx, one) {
        CO_EXPECT_NULL(co_assign(ctx, v, co_float(ctx, 1)));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "OneDeviceStrategy #");
    }
    /* Recursion: into itself, into another, merge in merge. */
    CO_EXPECT_NULL(co_run(ctx, two, run_user, co_no_args(ctx), two));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "needs cross-replica context");
    CO_EXPECT_NULL(co_run(ctx, two, run_user, co_no_args(ctx), three));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing strategies");
    CO_EXPECT_NULL(co_run(ctx, one, run_user, co_no_args(ctx), one));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "needs cross-replica context");
    CO_EXPECT_NULL(co_run(ctx, two, run_user, co_no_args(ctx), co_default_strategy(ctx)));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "mixing strategies");
    CO_EXPECT_NULL(co_run(ctx, two, step_with_merge_in_merge, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "cross-replica context");
    expect_usable(ctx, two);
    expect_usable(ctx, three);
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 3, 0);
}

/* --- results that differ --- */

static co_value *
differ(co_context *ctx, co_value *args, void *user)
{
    bool      odd = co_replica_id(ctx) == 1;
    co_value *x = co_scalar_float(ctx, 1), *pair[2] = { x, x };

    (void)args;
    switch (*(int *)user) {
    case 0: return odd ? co_list(ctx, pair, 2) : co_list(ctx, pair, 1);
    case 1: return odd ? x : co_list(ctx, pair, 1);
    case 2: return odd ? co_tuple(ctx, pair, 2) : co_list(ctx, pair, 2);
    case 3: return odd ? co_scalar_int32(ctx, 1) : x; /* another dtype */
    default: return odd ? NULL : x;                   /* nothing */
    }
}

CO_TEST_WITH(results_that_differ_are_found_where_they_matter, "S-RUN-6 DV-GROUP-1 S-REDUCE-12",
             "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);

    for (int how = 0; how < 3; ++how) {
        CO_EXPECT_NULL(co_run(ctx, m, differ, co_no_args(ctx), &how));
        CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "replicas 0 and 1 have different structures");
    }
    for (int how = 3; how < 5; ++how) {
        co_value *both = co_run(ctx, m, differ, co_no_args(ctx), &how);

        CO_EXPECT_OK(ctx); /* they may be looked at one by one, and not be added */
        CO_EXPECT_INT(co_num_items(ctx, co_local_results(ctx, m, both)), 2);
        CO_EXPECT_NULL(co_reduce(ctx, m, CO_REDUCE_SUM, both, NULL, 0));
        CO_EXPECT_FALSE(co_ok(ctx));
        co_clear(ctx);
    }
    expect_usable(ctx, m);
}

/* user: a bundle of another size. */
static co_value *
merge_returns_user(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)ctx;
    (void)strategy;
    (void)args;
    return user;
}

static co_value *
step_whose_merge_returns_user(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_returns_user, args, user);
}

/* As deep as can be, with another leaf on each replica; user: how deep. */
static co_value *
return_deep(co_context *ctx, co_value *args, void *user)
{
    co_value *deep = id_of(ctx, args, NULL);

    for (int i = 0; i < *(int *)user; ++i)
        deep = co_list(ctx, &deep, 1);
    return deep;
}

CO_TEST_WITH(results_that_cannot_be_merged_or_split_are_refused, "RC-MERGE-4 DV-GROUP-1", "cpus=2")
{
    co_strategy *two = test_mirrored(ctx, 2, -1), *three = test_mirrored(ctx, 3, -1);
    co_value    *pair = co_run(ctx, two, id_of, co_no_args(ctx), NULL);
    int          deepest = 0;

    CO_EXPECT_NULL(co_run(ctx, three, step_whose_merge_returns_user, co_no_args(ctx), pair));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "2 components");
    while (co_run(ctx, two, return_deep, co_no_args(ctx), &deepest) != NULL && deepest < 1000)
        ++deepest;
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deep");
    CO_EXPECT_LESS(deepest, 1000);
    expect_usable(ctx, two);
    expect_usable(ctx, three);
}

/* --- released by a step --- */

typedef struct owned {
    co_value *variable, *argument;
} owned;

static co_value *
release_owned(co_context *ctx, co_value *args, void *user)
{
    owned *o = user;

    if (co_replica_id(ctx) == 0) {
        co_release(ctx, o->variable);
        co_release(ctx, o->argument);
    }
    co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    return co_at(ctx, args, 0); /* the arguments hold it until the step has ended */
}

CO_TEST_WITH(a_step_may_release_variables_and_arguments, "THR-4", "cpus=2")
{
    for (int n = 1; n <= 3; ++n) {
        co_strategy *m = test_mirrored(ctx, n, -1);
        owned        o = { NULL, NULL };
        co_value    *args = NULL, *r;

        CO_BLOCK(ctx) {
            CO_SCOPE(ctx, m)
                o.variable = co_variable(ctx, co_float(ctx, 3), NULL);
            o.argument = co_scalar_float(ctx, 5);
            co_keep(ctx, o.variable);
            co_keep(ctx, o.argument);
            args = co_escape(ctx, co_args(ctx, o.argument));
        }
        r = co_at(ctx, co_local_results(ctx, m, co_run(ctx, m, release_owned, args, &o)), 0);
        CO_EXPECT_CLOSE(co_item_float(ctx, r), 5, 0);
        expect_usable(ctx, m);
    }
}

/* --- too much --- */

CO_TEST_WITH(there_are_limits_to_replicas_and_depth, "S-RUN-5 GEN-NEST-1", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_value    *deep = co_scalar_float(ctx, 1);

    CO_EXPECT_NULL(test_mirrored(ctx, 257, -1));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "256");
    while (co_ok(ctx)) {
        co_value *deeper = co_list(ctx, &deep, 1);

        if (deeper == NULL)
            break;
        deep = deeper;
    }
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deep");
    CO_EXPECT_NULL(co_args(ctx, deep));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deep");
    CO_EXPECT_NOT_NULL(co_run(ctx, m, first_of, deep, NULL));
    CO_EXPECT_NOT_NULL(co_local_results(ctx, m, co_run(ctx, m, first_of, deep, NULL)));
    CO_EXPECT_OK(ctx);
    expect_usable(ctx, m);
}

/* --- the context of another replica --- */

typedef struct shared_context {
    _Atomic(co_context *) of_first;
    atomic_bool           used;
} shared_context;

static co_value *
use_context_of_first(co_context *ctx, co_value *args, void *user)
{
    shared_context *s = user;

    (void)args;
    if (co_replica_id(ctx) == 0) {
        atomic_store(&s->of_first, ctx);
        while (!atomic_load(&s->used))
            test_rest_ms(1);
        co_add(ctx, co_int(ctx, 1), co_int(ctx, 1));
    } else {
        co_context *first;

        while ((first = atomic_load(&s->of_first)) == NULL)
            test_rest_ms(1);
        co_block_begin(first);
        co_block_end(first);
        atomic_store(&s->used, true);
    }
    return NULL;
}

CO_TEST_WITH(debug_builds_find_the_context_of_another_replica, "RC-1 C-CTX-1", "cpus=2")
{
    co_strategy   *m = test_mirrored(ctx, 2, -1);
    shared_context s = { NULL, false };

    if (THREAD_SANITIZED)
        CO_SKIP("two threads on one context are a race where nobody looks");
    co_run(ctx, m, use_context_of_first, co_no_args(ctx), &s);
    if (co_ok(ctx))
        CO_SKIP("only debug builds look");
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "used by another thread");
    expect_usable(ctx, m);
}
