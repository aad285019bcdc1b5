/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that misbehave: what they leave open or end too often, what they release, return, recurse
 * into, and where they stick. */
#include "engine_support.h"

#include <pthread.h>
#include <stdatomic.h>

static co_value *
six(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 6));
}

/* The strategy still works, and the context is in default mode without an error. */
static void
expect_usable(co_context *ctx, co_strategy *strategy)
{
    CO_EXPECT_OK(ctx);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_FALSE(co_in_cross_replica_context(ctx));
    co_value *r = co_run(ctx, strategy, six, co_no_args(ctx), NULL);
    int       n = co_num_replicas_in_sync(ctx, strategy);

    if (n > 1)
        r = co_at(ctx, r, (size_t)n - 1);
    CO_EXPECT_CLOSE(co_item_float(ctx, r), 6 * n, 0);
    CO_EXPECT_OK(ctx);
}

/* --- what is left open or ended too often --- */

static co_value *
leave_open(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_block_begin(ctx);
    co_block_begin(ctx);
    co_device_begin(ctx, "/cpu:1");
    co_scope_begin(ctx, co_default_strategy(ctx));
    co_clear(ctx); /* in a step of a strategy that is refused */
    co_tape_begin(ctx);
    co_watch(ctx, co_scalar_float(ctx, 1));
    (void)user;
    return co_int(ctx, 1);
}

static co_value *
merge_leaves_open(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    co_block_begin(ctx);
    co_scope_begin(ctx, strategy);
    co_device_begin(ctx, "/cpu:1");
    co_tape_begin(ctx);
    (void)args;
    (void)user;
    return co_int(ctx, 1);
}

static co_value *
step_with_open_merge(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_leaves_open, args, user);
}

CO_TEST_WITH(what_a_step_leaves_open_is_left_for_it, "S-RUN-13 CTX-5 GEN-ERR-1", "cpus=2")
{
    for (int n = 1; n <= 3; ++n) {
        co_strategy *m = test_mirrored(ctx, n, -1);

        CO_EXPECT_INT(co_item_int(ctx, co_run(ctx, m, leave_open, co_no_args(ctx), NULL)), 1);
        CO_EXPECT_INT(co_item_int(ctx, co_run(ctx, m, step_with_open_merge, co_no_args(ctx), NULL)),
                      1);
        CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:0");
        expect_usable(ctx, m);
    }
}

static co_value *
end_too_much(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    co_block_end(ctx);
    return co_at(ctx, args, 0);
}

static co_value *
merge_ends_too_much(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    return end_too_much(ctx, args, user);
}

static co_value *
step_whose_merge_ends_too_much(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_ends_too_much, args, user);
}

CO_TEST_WITH(a_step_cannot_end_blocks_of_its_caller, "GEN-ERR-1", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1), *one = co_one_device_strategy(ctx, NULL);

    CO_BLOCK(ctx) {
        co_value *mine = co_scalar_float(ctx, 7);

        CO_EXPECT_NULL(co_run(ctx, m, end_too_much, co_args(ctx, mine), NULL));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open block");
        CO_EXPECT_NULL(co_run(ctx, one, end_too_much, co_args(ctx, mine), NULL));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open block");
        CO_EXPECT_NULL(co_run(ctx, m, step_whose_merge_ends_too_much, co_args(ctx, mine), NULL));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "no open block");
        CO_EXPECT_CLOSE(co_item_float(ctx, mine), 7, 0);
    }
    expect_usable(ctx, m);
}

/* --- what is returned --- */

static co_value *
return_dead(co_context *ctx, co_value *args, void *user)
{
    co_value *dead = NULL;

    (void)args;
    CO_BLOCK(ctx)
        dead = co_scalar_float(ctx, 1);
    if (*(int *)user == 1)
        return (co_value *)(void *)co_get_strategy(ctx); /* no value at all */
    return dead;
}

static co_value *
merge_returns_no_value(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)ctx;
    (void)args;
    (void)user;
    return (co_value *)(void *)strategy;
}

static co_value *
step_whose_merge_returns_no_value(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_returns_no_value, args, user);
}

CO_TEST_WITH(a_step_that_returns_no_live_value_fails, "GEN-ERR-1", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);

    for (int what = 0; what < 2; ++what) {
        CO_EXPECT_NULL(co_run(ctx, m, return_dead, co_no_args(ctx), &what));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "what the step returned is not a live");
    }
    CO_EXPECT_NULL(co_run(ctx, m, step_whose_merge_returns_no_value, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "what the merge function returned");
    CO_EXPECT_NULL(co_merge_call(ctx, merge_returns_no_value, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "what the merge function returned");
    expect_usable(ctx, m);
}

/* --- what is used when it should not be --- */

static co_value *
keep_context(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    if (co_replica_id(ctx) == 1)
        *(co_context **)user = ctx;
    return NULL;
}

CO_TEST_WITH(a_replica_context_ends_with_its_run, "RC-1 RC-2", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_context  *kept = NULL;

    co_run(ctx, m, keep_context, co_no_args(ctx), (void *)&kept);
    CO_REQUIRE(kept != NULL);
    CO_EXPECT_INT(co_replica_id(kept), 1); /* may still be read */
    CO_EXPECT_NULL(co_all_reduce(kept, CO_REDUCE_SUM, co_float(ctx, 1)));
    CO_EXPECT_CONTAINS(co_error(kept)->message, "a step that has ended");
    CO_EXPECT_CODE(co_error(kept)->code, CO_RUNTIME_ERROR);
    co_clear(kept); /* who insists is alone */
    CO_EXPECT_CLOSE(co_item_float(kept, co_all_reduce(kept, CO_REDUCE_SUM, co_float(kept, 2))), 2,
                    0);
    co_block_begin(kept);
    expect_usable(ctx, m);
}

static co_value *
use_outer(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    if (co_replica_id(ctx) == 0)
        co_add(user, co_int(ctx, 1), co_int(ctx, 2));
    return NULL;
}

CO_TEST_WITH(debug_builds_find_the_outer_context_in_a_step, "", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1), *one = co_one_device_strategy(ctx, NULL);

    co_run(ctx, m, use_outer, co_no_args(ctx), ctx);
    if (co_ok(ctx))
        CO_SKIP("only debug builds look");
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "used inside the step");
    co_run(ctx, one, use_outer, co_no_args(ctx), ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "used inside the step");
    expect_usable(ctx, m);
}

static co_value *
release_strategy(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    if (co_replica_id(ctx) == 0)
        co_release(ctx, user);
    co_all_reduce(ctx, CO_REDUCE_SUM, co_float(ctx, 1));
    return co_int(ctx, co_num_replicas_in_sync(ctx, user));
}

CO_TEST_WITH(a_strategy_released_by_its_step_lives_to_the_end_of_the_run, "THR-4", "cpus=2")
{
    for (int n = 1; n <= 2; ++n) {
        co_strategy *m = NULL;

        CO_BLOCK(ctx) {
            m = test_mirrored(ctx, n, -1);
            co_keep(ctx, m);
        }
        CO_EXPECT_INT(co_item_int(ctx, co_run(ctx, m, release_strategy, co_no_args(ctx), m)), n);
    }
}

CO_TEST_WITH(variables_and_scopes_keep_their_strategy_alive, "THR-4 VAR-NEW-7", "cpus=2")
{
    co_value *v = NULL;
    co_scope  scope = { 0 };

    CO_BLOCK(ctx) {
        co_strategy *m = test_mirrored(ctx, 2, -1);

        CO_SCOPE(ctx, m)
            v = co_variable(ctx, co_float(ctx, 3), NULL);
        v = co_escape(ctx, v);
    }
    co_assign_add(ctx, v, co_float(ctx, 1));
    CO_EXPECT_CLOSE(co_item_float(ctx, v), 4, 0);
    CO_EXPECT_STR(co_strategy_name(ctx, co_variable_strategy(ctx, v)), "MirroredStrategy");
    CO_BLOCK(ctx)
        co_experimental_set_strategy(ctx, test_mirrored(ctx, 2, -1));
    CO_EXPECT_STR(co_strategy_name(ctx, co_get_strategy(ctx)), "MirroredStrategy");
    co_experimental_set_strategy(ctx, NULL);
    CO_BLOCK(ctx)
        scope = co_scope_begin(ctx, co_one_device_strategy(ctx, NULL));
    CO_EXPECT_STR(co_strategy_name(ctx, co_get_strategy(ctx)), "OneDeviceStrategy");
    CO_EXPECT_CODE(co_scope_end(ctx, &scope), CO_OK);
    /* Left open for good: closing the context leaves it. */
    CO_BLOCK(ctx)
        co_scope_begin(ctx, co_one_device_strategy(ctx, NULL));
}

CO_TEST_WITH(scopes_are_left_in_the_context_that_entered_them, "SCOPE-9 C-CTX-1", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    co_context  *other = co_open_beside(ctx);
    co_scope     mine = co_scope_begin(ctx, m), its = co_scope_begin(other, m);

    CO_EXPECT_CODE(co_scope_end(other, &mine), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(other, CO_RUNTIME_ERROR, "is not open in this context");
    CO_EXPECT_TRUE(co_has_strategy(other));
    CO_EXPECT_CODE(co_scope_end(other, &its), CO_OK);
    CO_EXPECT_CODE(co_scope_end(ctx, &mine), CO_OK);
    CO_EXPECT_CODE(co_scope_end(ctx, &mine), CO_RUNTIME_ERROR);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "not open");
    CO_EXPECT_CODE(co_close(other), CO_OK);
}

/* --- recursion --- */

static co_value *merge_runs_again(co_context *ctx, co_strategy *strategy, co_value *args,
                                  void *user);

static co_value *
go_deeper(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_runs_again, args, user);
}

/* user: how deep. */
static co_value *
merge_runs_again(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    int      *left = user;
    co_value *sum = NULL;

    (void)args;
    if (--*left > 0)
        return co_run(ctx, strategy, go_deeper, co_no_args(ctx), user);
    CO_SCOPE(ctx, strategy)
        sum = co_reduce(ctx, strategy, CO_REDUCE_SUM,
                        co_run(ctx, strategy, six, co_no_args(ctx), NULL), NULL, 0);
    return sum;
}

CO_TEST_WITH(runs_nest_through_merge_functions, "SCOPE-8 RC-MERGE-4", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 3, -1);
    int          depth = 5;

    CO_EXPECT_CLOSE(co_item_float(ctx, co_run(ctx, m, go_deeper, co_no_args(ctx), &depth)), 54, 0);
    expect_usable(ctx, m);
}

/* --- failures --- */

typedef struct counting {
    atomic_int made, deleted, begun;
} counting;

static void
count_delete(void *payload)
{
    atomic_fetch_add(&((counting *)payload)->deleted, 1);
}

static co_value *
all_fail(co_context *ctx, co_value *args, void *user)
{
    counting *c = user;

    (void)args;
    atomic_fetch_add(&c->made, 1);
    co_fail_with(ctx, CO_DATA_LOSS, c, count_delete, "replica %d lost it", co_replica_id(ctx));
    return NULL;
}

CO_TEST_WITH(payloads_of_all_failures_are_deleted_once, "S-RUN-8 C-FN-2", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 5, -1);
    counting     c = { 0 };

    for (int i = 0; i < 50; ++i) {
        CO_EXPECT_NULL(co_run(ctx, m, all_fail, co_no_args(ctx), &c));
        CO_EXPECT_PTR(co_error(ctx)->payload, &c);
        CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "lost it");
        CO_EXPECT_INT(c.deleted, c.made);
    }
}

/* The outer context has an error of its own when the step has failed: the payload of the step is
 * nobody's. */
typedef struct outer_fails {
    co_context *outer;
    counting    c;
    bool        has_deleter;
} outer_fails;

static co_value *
fail_outside_and_inside(co_context *ctx, co_value *args, void *user)
{
    outer_fails *o = user;

    (void)args;
    if (co_replica_id(ctx) != 0)
        return NULL;
    co_fail(o->outer, CO_DATA_LOSS, "outside"); /* debug builds say what is wrong with that */
    atomic_fetch_add(&o->c.made, 1);
    co_fail_with(ctx, CO_ABORTED, &o->c, o->has_deleter ? count_delete : NULL, "inside");
    return NULL;
}

CO_TEST_WITH(the_first_error_is_the_callers_own, "GEN-ERR-2 C-FN-2", "cpus=2")
{
    for (int n = 1; n <= 3; ++n)
        for (int deletes = 0; deletes < 2; ++deletes) {
            outer_fails o = { .outer = ctx, .has_deleter = deletes };

            CO_EXPECT_NULL(co_run(ctx, test_mirrored(ctx, n, -1), fail_outside_and_inside,
                                  co_no_args(ctx), &o));
            CO_EXPECT_TRUE(co_error(ctx)->code == CO_DATA_LOSS ||
                           co_error(ctx)->code == CO_RUNTIME_ERROR);
            CO_EXPECT_NULL(co_error(ctx)->payload);
            co_clear(ctx);
            CO_EXPECT_INT(o.c.deleted, deletes ? o.c.made : 0);
        }
}

static co_value *
merge_fails(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)args;
    co_block_begin(ctx);
    co_scope_begin(ctx, strategy);
    co_device_begin(ctx, "/cpu:1");
    atomic_fetch_add(&((counting *)user)->made, 1);
    co_fail_with(ctx, CO_DATA_LOSS, user, count_delete, "no merge");
    return NULL;
}

static co_value *
step_whose_merge_fails(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_fails, args, user);
}

CO_TEST_WITH(a_merge_function_may_fail_with_anything_open, "RC-MERGE-7 GEN-ERR-1 GEN-ERR-2",
             "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 3, -1);
    counting     c = { 0 };

    CO_EXPECT_NULL(co_run(ctx, m, step_whose_merge_fails, co_no_args(ctx), &c));
    CO_EXPECT_PTR(co_error(ctx)->payload, &c);
    CO_EXPECT_INT(c.deleted, 0);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "no merge");
    CO_EXPECT_INT(c.deleted, 1);
    CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:0");
    expect_usable(ctx, m);
}

static co_value *
first_fails(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    atomic_fetch_add(&((counting *)user)->begun, 1);
    if (co_replica_id(ctx) == 1)
        co_fail(ctx, CO_ABORTED, "replica 1 will not");
    return NULL;
}

CO_TEST_WITH(in_turn_nobody_begins_after_a_failure, "S-RUN-7 S-RUN-8", "cpus=2")
{
    co_strategy   *m = test_mirrored(ctx, 5, -1);
    co_run_options options = CO_RUN_OPTIONS_INIT;

    options.in_turn = true;
    for (int i = 0; i < 20; ++i) {
        counting c = { 0 };

        CO_EXPECT_NULL(co_run_with(ctx, m, first_fails, co_no_args(ctx), &c, &options));
        CO_EXPECT_ERROR(ctx, CO_ABORTED, "replica 1 will not");
        CO_EXPECT_INT(c.begun, 2);
    }
    expect_usable(ctx, m);
}

/* Errors cleared inside a broken step do not mend it, and nobody waits. */
static co_value *
insist(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    for (int i = 0; i < 5; ++i) {
        co_all_reduce(ctx, CO_REDUCE_SUM,
                      co_zeros(ctx, CO_FLOAT32, CO_SHAPE(1 + co_replica_id(ctx))));
        co_clear(ctx);
    }
    return NULL;
}

CO_TEST_WITH(a_broken_step_stays_broken, "S-RUN-8 RC-AR-4", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 3, -1);

    for (int i = 0; i < 50; ++i) {
        double begin = test_now_ms();

        CO_EXPECT_NULL(co_run(ctx, m, insist, co_no_args(ctx), NULL));
        CO_EXPECT_LESS(test_now_ms() - begin, 1000);
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "[1] on replica 0");
    }
    expect_usable(ctx, m);
}

/* --- stuck --- */

typedef struct sticking {
    atomic_bool begun, go_on;
    int         where; /* 0: before a rendezvous; 1: at the end; 2: while another fails */
} sticking;

static co_value *
stick(co_context *ctx, co_value *args, void *user)
{
    sticking *s = user;

    (void)args;
    if (co_replica_id(ctx) == 1) {
        atomic_store(&s->begun, true);
        while (!atomic_load(&s->go_on))
            test_rest_ms(1);
    } else {
        while (!atomic_load(&s->begun))
            test_rest_ms(1);
        if (s->where == 2)
            co_fail(ctx, CO_DATA_LOSS, "replica 0 fails");
    }
    if (s->where == 0)
        co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    return NULL;
}

/* The thread that is left behind holds the runtime, so what it keeps cannot be counted: the context
 * is opened here. */
CO_TEST_BARE(a_replica_that_never_comes_back_is_left_behind, "")
{
    static sticking          s[3];
    static const char *const parts[] = { "replica 1 has executed nothing for 50 ms",
                                         "replica 1 has not returned from the step",
                                         "replica 0 fails" };
    static const co_code     codes[] = { CO_DEADLINE_EXCEEDED, CO_DEADLINE_EXCEEDED, CO_DATA_LOSS };

    ctx = co_open("cpus=2");
    for (int where = 0; where < 3; ++where) {
        co_strategy *m = test_mirrored(ctx, 2, 50);
        double       begin = test_now_ms();

        s[where].where = where;
        CO_EXPECT_NULL(co_run(ctx, m, stick, co_no_args(ctx), &s[where]));
        CO_EXPECT_LESS(test_now_ms() - begin, 5000);
        CO_EXPECT_ERROR(ctx, codes[where], parts[where]);
        CO_EXPECT_NULL(co_run(ctx, m, stick, co_no_args(ctx), &s[where]));
        CO_EXPECT_ERROR(ctx, CO_UNAVAILABLE, /* the whole reason, not a part of it */
                        where < 2 ? "deadline_ms; make a new one" : "fails; make a new one");
        expect_usable(ctx, test_mirrored(ctx, 2, -1));
    }
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    for (int where = 0; where < 3; ++where)
        atomic_store(&s[where].go_on, true);
    test_rest_ms(50); /* they come back, into memory that is still theirs */
}

/* Two runs of one strategy, both with a replica that never comes back. */
typedef struct stuck_run {
    co_context        *ctx;
    co_strategy       *strategy;
    pthread_barrier_t *together;
    sticking           s;
} stuck_run;

static void *
run_stuck(void *arg)
{
    stuck_run *r = arg;

    pthread_barrier_wait(r->together);
    CO_EXPECT_NULL(co_run(r->ctx, r->strategy, stick, co_no_args(r->ctx), &r->s));
    CO_EXPECT_ERROR(r->ctx, CO_DEADLINE_EXCEEDED, "has not returned from the step");
    return NULL;
}

CO_TEST_BARE(two_runs_of_a_strategy_may_be_left_behind, "THR-2")
{
    static stuck_run  runs[2];
    pthread_t         threads[2];
    pthread_barrier_t together;
    co_strategy      *m;

    ctx = co_open("cpus=2, log=off");
    m = test_mirrored(ctx, 2, 500);
    pthread_barrier_init(&together, NULL, 2);
    for (int i = 0; i < 2; ++i) {
        runs[i].ctx = co_open_beside(ctx);
        runs[i].strategy = m;
        runs[i].together = &together;
        runs[i].s.where = 1;
        CO_REQUIRE(pthread_create(&threads[i], NULL, run_stuck, &runs[i]) == 0);
    }
    for (int i = 0; i < 2; ++i)
        pthread_join(threads[i], NULL);
    CO_EXPECT_NULL(co_run(ctx, m, stick, co_no_args(ctx), &runs[0].s));
    CO_EXPECT_ERROR(ctx, CO_UNAVAILABLE, "make a new one");
    for (int i = 0; i < 2; ++i)
        atomic_store(&runs[i].s.go_on, true);
    test_rest_ms(50);
    for (int i = 0; i < 2; ++i)
        CO_EXPECT_CODE(co_close(runs[i].ctx), CO_OK);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
}

/* user: whether the first has been told that the others do nothing. */
static co_value *
most_are_late(co_context *ctx, co_value *args, void *user)
{
    co_value *sum;

    (void)args;
    while (co_replica_id(ctx) > 0 && !atomic_load((atomic_bool *)user))
        test_rest_ms(1);
    sum = co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    atomic_store((atomic_bool *)user, true);
    return sum;
}

CO_TEST_WITH(many_that_are_stuck_are_named_as_far_as_there_is_room, "", "cpus=2")
{
    atomic_bool told = false;

    CO_EXPECT_NULL(co_run(ctx, test_mirrored(ctx, 40, 120), most_are_late, co_no_args(ctx), &told));
    CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED,
                    "replica 0 waits in all_reduce of float32 [], rendezvous 1 of run 1, at");
}

/* user: whether the second has been told that the first does nothing. */
static co_value *
first_makes_nothing(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    if (co_replica_id(ctx) == 1) {
        co_variable(ctx, co_float(ctx, 1), NULL);
        atomic_store((atomic_bool *)user, true);
    }
    while (!atomic_load((atomic_bool *)user))
        test_rest_ms(1);
    return NULL;
}

CO_TEST_WITH(who_waits_for_a_variable_says_for_whom, "VAR-RUN-1", "cpus=2")
{
    atomic_bool said = false;

    CO_EXPECT_NULL(
        co_run(ctx, test_mirrored(ctx, 2, 120), first_makes_nothing, co_no_args(ctx), &said));
    CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED,
                    "replica 1 waits in variable creation, for replica 0, which has executed");
}

/* --- functions of merge_call, and turns, that take long --- */

/* A deadline that a sound run meets on a machine that stands still for a quarter of a second now
 * and then. */
#define BUSY_MS 1000

typedef enum dawdle { SLEEPS, WORKS, RUNS } dawdle;

static co_value *
work_on(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    for (int i = 0; i < 70; ++i) { /* longer than the deadline, and never nothing for as long */
        co_add(ctx, co_int(ctx, 1), co_int(ctx, 1));
        test_rest_ms(20);
    }
    return NULL;
}

static atomic_int told; /* log lines that say who is waited for */

static co_value *
merge_dawdles(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    dawdle how = *(dawdle *)user;

    if (how == SLEEPS)
        for (int i = 0; i < 20 * BUSY_MS && atomic_load(&told) == 0; ++i)
            test_rest_ms(1);
    else if (how == WORKS)
        work_on(ctx, args, NULL);
    else
        co_run(ctx, strategy, work_on, co_no_args(ctx), NULL);
    return NULL;
}

static co_value *
step_whose_merge_dawdles(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_dawdles, args, user);
}

static void
listen(co_log_level level, const char *line, void *user)
{
    (void)user;
    (void)level;
    if (strstr(line, "for replica 0, which is at work for all and has executed nothing") != NULL)
        atomic_fetch_add(&told, 1);
}

/* It is on the thread that called run, so the log is told at once, and the caller when it comes
 * back. */
CO_TEST_BARE(a_merge_function_that_does_nothing_is_reported, "RC-MERGE-7")
{
    co_options   options = CO_OPTIONS_INIT;
    dawdle       how = SLEEPS;
    co_strategy *m;

    options.settings = "cpus=2";
    options.log = listen;
    ctx = co_open_with(&options);
    m = test_mirrored(ctx, 3, BUSY_MS);
    CO_EXPECT_NULL(co_run(ctx, m, step_whose_merge_dawdles, co_no_args(ctx), &how));
    CO_EXPECT_CONTAINS(co_error(ctx)->message, "waits in merge_call, rendezvous 1 of run 1, at");
    CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED, "for replica 0, which is at work for all");
    CO_EXPECT_INT(told, 1);
    expect_usable(ctx, m);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
}

CO_TEST_WITH(a_merge_function_that_moves_is_waited_for, "RC-MERGE-2 SCOPE-8", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 3, BUSY_MS);

    for (int how = WORKS; how <= RUNS; ++how) {
        co_run(ctx, m, step_whose_merge_dawdles, co_no_args(ctx), &how);
        expect_usable(ctx, m);
    }
}

static co_value *
second_works_on(co_context *ctx, co_value *args, void *user)
{
    return co_replica_id(ctx) == 1 ? work_on(ctx, args, user) : NULL;
}

CO_TEST_WITH(a_replica_that_moves_is_waited_for, "S-RUN-1", "cpus=2")
{
    CO_EXPECT_NOT_NULL(
        co_run(ctx, test_mirrored(ctx, 2, BUSY_MS), second_works_on, co_no_args(ctx), NULL));
}

static co_value *
first_sleeps(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    if (co_replica_id(ctx) == 0)
        test_rest_ms(2 * BUSY_MS);
    return NULL;
}

CO_TEST_WITH(a_turn_that_is_not_passed_is_reported, "S-RUN-7", "cpus=2")
{
    co_run_options options = CO_RUN_OPTIONS_INIT;
    co_strategy   *m = test_mirrored(ctx, 3, BUSY_MS);

    options.in_turn = true;
    CO_EXPECT_NULL(co_run_with(ctx, m, first_sleeps, co_no_args(ctx), NULL, &options));
    CO_EXPECT_ERROR(
        ctx, CO_DEADLINE_EXCEEDED,
        "waits for the token (in_turn), and replica 0 has executed nothing for 1000 ms");
    expect_usable(ctx, m);
}

/* --- many --- */

CO_TEST_WITH(many_replicas_meet, "S-RUN-1 RC-AR-1", "cpus=2")
{
    static const int counts[] = { 17, 64, 256 };

    for (size_t i = 0; i < 3; ++i)
        CO_BLOCK(ctx)
            expect_usable(ctx, test_mirrored(ctx, counts[i], -1));
}

CO_TEST_WITH(strategies_come_and_go, "THR-4", "cpus=2")
{
    for (int i = 0; i < 100; ++i)
        CO_BLOCK(ctx)
            expect_usable(ctx, test_mirrored(ctx, 2 + i % 3, -1));
}

/* A step that does one of many things at random, the same on all replicas or not. */
typedef struct chaos {
    uint32_t     seed;
    co_strategy *strategy;
    co_value    *variable;
} chaos;

static uint32_t
draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static co_value *
merge_sum(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    return co_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);
}

static co_value *
do_anything(co_context *ctx, co_value *args, void *user)
{
    const chaos *c = user;
    uint32_t     plan = c->seed, mine = c->seed ^ (uint32_t)(co_replica_id(ctx) * 77777);

    (void)args;
    for (int i = 0; i < 6; ++i) {
        uint32_t what = draw(&plan) % 5, odd = draw(&mine) % 64;
        int64_t  n = draw(&plan) % 3 == 0 ? 9000 : 3;

        if (odd == 0)
            return NULL; /* early */
        if (odd == 1)
            return co_fail(ctx, CO_ABORTED, "bad luck"), NULL;
        if (odd == 2)
            n = 4; /* another shape */
        if (odd == 3)
            what = 1; /* perhaps another call */
        CO_BLOCK(ctx) {
            co_value *x = co_ones(ctx, CO_FLOAT32, &n, 1);

            if (what == 0)
                co_all_reduce(ctx, CO_REDUCE_SUM, x);
            else if (what == 1)
                co_merge_call(ctx, merge_sum, co_args(ctx, x), NULL);
            else if (what == 2)
                co_assign_add(ctx, c->variable, co_scalar_float(ctx, 1));
            else if (what == 3)
                co_all_gather(ctx, x, 0);
            else
                co_mul(ctx, x, x);
        }
    }
    return co_replica_id_tensor(ctx);
}

typedef struct chaos_thread {
    co_context  *ctx;
    co_strategy *strategy;
    co_value    *variable;
    uint32_t     seed;
    int          rounds, good, bad;
} chaos_thread;

static void *
make_chaos(void *arg)
{
    chaos_thread *t = arg;
    co_context   *ctx = co_open_beside(t->ctx);

    for (int i = 0; i < t->rounds; ++i)
        CO_BLOCK(ctx) {
            chaos          c = { t->seed * 1000003u + (uint32_t)i, t->strategy, t->variable };
            co_run_options options = CO_RUN_OPTIONS_INIT;

            options.in_turn = i % 7 == 0;
            co_run_with(ctx, t->strategy, do_anything, co_no_args(ctx), &c, &options);
            if (co_ok(ctx))
                ++t->good;
            else
                ++t->bad;
            co_clear(ctx);
        }
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return NULL;
}

CO_TEST_WITH(thousands_of_random_steps_end, "THR-2 S-RUN-8 RC-MERGE-5", "cpus=2")
{
    co_strategy        *m = test_mirrored(ctx, 3, 20000);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;
    chaos_thread        threads[3];
    pthread_t           ids[3];
    int                 good = 0, bad = 0;

    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, m)
        v = co_variable(ctx, co_float(ctx, 0), &options);
    for (int i = 0; i < 3; ++i) {
        threads[i] = (chaos_thread){ .ctx = ctx,
                                     .strategy = m,
                                     .variable = v,
                                     .seed = (uint32_t)i + 1,
                                     .rounds = TEST_SANITIZED ? 300 : 1500 };
        CO_REQUIRE(pthread_create(&ids[i], NULL, make_chaos, &threads[i]) == 0);
    }
    for (int i = 0; i < 3; ++i) {
        pthread_join(ids[i], NULL);
        good += threads[i].good;
        bad += threads[i].bad;
    }
    CO_EXPECT_MORE(good, 100);
    CO_EXPECT_MORE(bad, 100);
    expect_usable(ctx, m);
}

static co_value *
enter_and_return(co_context *ctx, co_value *args, void *user)
{
    co_block_begin(ctx);
    co_scope_begin(ctx, user);
    co_device_begin(ctx, "/cpu:1");
    return co_at(ctx, args, 0);
}

/* In cross-replica context of the other strategy there is no step to finish. */
CO_TEST_WITH(a_default_step_may_leave_the_scope_of_another_strategy_open, "SCOPE-9", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *x = co_float(ctx, 3), *y;

    y = co_run(ctx, co_default_strategy(ctx), enter_and_return, co_args(ctx, x), s);
    CO_EXPECT_CLOSE(co_item_float(ctx, y), 3, 0);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_CONTAINS(co_current_device(ctx), "CPU:0");
    CO_EXPECT_OK(ctx);
}
