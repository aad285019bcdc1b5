/* SPDX-License-Identifier: Apache-2.0 */
/* Running steps: arguments, results, failures, and replicas that do not come to a rendezvous. */
#include <cohort/v1.h>
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const two[] = { "/cpu:0", "/cpu:1" };

static co_strategy *
mirrored(co_context *ctx, int n)
{
    co_mirrored_options options = CO_MIRRORED_OPTIONS_INIT;

    options.num_replicas = n;
    return co_mirrored_strategy(ctx, two, n == 1 ? 1 : 2, &options);
}

static double
now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static co_value *
see_replica(co_context *ctx, co_value *args, void *user)
{
    co_strategy *strategy = user;

    (void)args;
    CO_EXPECT_PTR(co_get_strategy(ctx), strategy);
    CO_EXPECT_TRUE(co_has_strategy(ctx));
    CO_EXPECT_FALSE(co_in_cross_replica_context(ctx));
    CO_EXPECT_PTR(co_get_replica_context(ctx), ctx);
    CO_EXPECT_INT(co_replicas(ctx), 4);
    CO_EXPECT_STR(co_current_device(ctx), co_replica_id(ctx) < 2
                                              ? "/job:localhost/replica:0/task:0/device:CPU:0"
                                              : "/job:localhost/replica:0/task:0/device:CPU:1");
    return co_replica_id_tensor(ctx);
}

CO_TEST_WITH(a_step_runs_once_per_replica_on_its_device,
             "S-RUN-1 S-RUN-13 RC-1 RC-2 RC-3 MIR-RUN-1 CTX-2 CTX-5", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 4);
    co_value    *ids = co_run(ctx, m, see_replica, co_no_args(ctx), m);

    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(co_value_kind(ids), CO_KIND_PER_REPLICA);
    for (size_t i = 0; i < 4; ++i) {
        CO_EXPECT_INT(co_value_dtype(ctx, co_at(ctx, ids, i)), CO_INT32);
        CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, ids, i)), i);
    }
    CO_EXPECT_FALSE(co_has_strategy(ctx));
}

static co_value *
identity(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_at(ctx, args, 0);
}

CO_TEST_WITH(arguments_are_checked, "S-RUN-2 S-RUN-3 GEN-ERR-1", "cpus=2")
{
    co_strategy   *m = mirrored(ctx, 2);
    co_run_options options = CO_RUN_OPTIONS_INIT;

    CO_EXPECT_NULL(co_run(ctx, m, identity, NULL, NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "NULL");
    CO_EXPECT_NULL(co_run(ctx, m, identity, co_string(ctx, "x"), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "host string");
    CO_EXPECT_NULL(co_run(ctx, m, identity, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "tensor");
    CO_EXPECT_NULL(co_run(ctx, m, NULL, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "fn");
    options.kwargs = co_int(ctx, 1);
    CO_EXPECT_NULL(co_run_with(ctx, m, identity, co_no_args(ctx), NULL, &options));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "kwargs");
    options.struct_size = 0;
    CO_EXPECT_NULL(co_run_with(ctx, m, identity, co_no_args(ctx), NULL, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 6 (options) of run has struct_size 0");
    CO_EXPECT_NULL(co_run(ctx, NULL, identity, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
    CO_EXPECT_NULL(
        co_run(ctx, (co_strategy *)(void *)co_int(ctx, 1), identity, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "strategy");
}

/* The last argument of a step, a map of keyword arguments. */
static co_value *
get_more(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_get(ctx, co_at(ctx, args, co_num_items(ctx, args) - 1), "more");
}

CO_TEST_WITH(keyword_arguments_are_checked_and_split, "S-RUN-2 S-RUN-5 C-ARG-1", "cpus=2")
{
    static const char *const key[] = { "more" };
    co_context              *other = co_open(NULL);
    co_strategy             *m = mirrored(ctx, 2);
    co_run_options           options = CO_RUN_OPTIONS_INIT;
    co_value                *three[3], *bundle, *map, *deeper;

    for (int i = 0; i < 3; ++i)
        three[i] = co_int(ctx, i);
    bundle = co_per_replica_value(ctx, three, 2);
    options.kwargs = co_dict(ctx, key, &bundle, 1);
    CO_EXPECT_PTR(co_at(ctx, co_run_with(ctx, m, get_more, co_no_args(ctx), NULL, &options), 1),
                  three[1]);
    bundle = co_per_replica_value(ctx, three, 3); /* not as many as there are replicas */
    options.kwargs = co_dict(ctx, key, &bundle, 1);
    CO_EXPECT_NULL(co_run_with(ctx, m, get_more, co_no_args(ctx), NULL, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "3 components");
    options.kwargs = co_dict(other, key, (co_value *[]){ co_int(other, 1) }, 1);
    CO_EXPECT_NULL(co_run_with(ctx, m, get_more, co_no_args(ctx), NULL, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "another runtime");
    CO_EXPECT_CODE(co_close(other), CO_OK);
    /* As deep as a value can be, it is no item of the tuple that a step is given. */
    map = co_dict(ctx, key, &three[0], 1);
    while ((deeper = co_dict(ctx, key, &map, 1)) != NULL)
        map = deeper;
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deep");
    options.kwargs = map;
    CO_EXPECT_NULL(co_run_with(ctx, m, get_more, co_no_args(ctx), NULL, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "deep");
}

static co_value *
count_args(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_int(ctx, (int64_t)co_num_items(ctx, args));
}

CO_TEST_WITH(for_each_replica_anything_is_an_argument, "S-RUN-2", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *pair[2] = { co_int(ctx, 1), co_int(ctx, 2) };
    co_value    *args[] = { NULL, pair[0], co_list(ctx, pair, 2), co_tuple(ctx, pair, 2) };
    int          counts[] = { 0, 1, 2, 2 };

    for (int i = 0; i < 4; ++i)
        CO_EXPECT_INT(co_item_int(ctx, co_call_for_each_replica(ctx, m, count_args, args[i], NULL)),
                      counts[i]);
}

static co_value *
run_again(co_context *ctx, co_value *args, void *user)
{
    co_run(ctx, user, identity, args, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    co_reduce(ctx, user, CO_REDUCE_SUM, co_float(ctx, 1), NULL, 0);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "replica context");
    return NULL;
}

CO_TEST_WITH(run_needs_cross_replica_context, "S-RUN-4 S-REDUCE-2", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);

    co_run(ctx, m, run_again, co_args(ctx, co_int(ctx, 1)), m);
    CO_EXPECT_OK(ctx);
    CO_SCOPE(ctx, m) {
        CO_EXPECT_INT(
            co_item_int(ctx, co_run(ctx, m, identity, co_args(ctx, co_int(ctx, 5)), NULL)), 5);
    }
}

static co_value *
take_parts(co_context *ctx, co_value *args, void *user)
{
    co_value *inner = co_get(ctx, co_at(ctx, args, 1), "b");

    CO_EXPECT_PTR(co_at(ctx, args, 2), user); /* a plain leaf is the same handle everywhere */
    return co_args(ctx, co_at(ctx, args, 0), co_at(ctx, inner, 0));
}

CO_TEST_WITH(bundles_in_arguments_are_replaced_by_components,
             "S-RUN-5 S-RUN-6 S-RUN-14 DV-SEL-1 DV-GROUP-2", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *parts[] = { co_scalar_float(ctx, 1), co_scalar_float(ctx, 2) };
    co_value    *bundle = co_per_replica_value(ctx, parts, 2), *shared = co_scalar_float(ctx, 9);
    co_value    *list = co_list(ctx, &bundle, 1), *result;
    const char  *key = "b";

    result = co_run(ctx, m, take_parts, co_args(ctx, bundle, co_dict(ctx, &key, &list, 1), shared),
                    shared);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(co_value_kind(result), CO_KIND_TUPLE);
    for (size_t k = 0; k < 2; ++k)
        for (size_t i = 0; i < 2; ++i)
            CO_EXPECT_PTR(co_at(ctx, co_at(ctx, result, k), i), parts[i]);
    CO_EXPECT_PTR(co_run(ctx, m, identity, co_args(ctx, shared), NULL), shared);
}

/* What replicas return, and what comes of it. */
static co_value *
return_something(co_context *ctx, co_value *args, void *user)
{
    int       what = *(int *)user, id = co_replica_id(ctx);
    co_value *one = co_int(ctx, 1);

    (void)args;
    switch (what) {
    case 0: return co_int(ctx, 6);
    case 1: return co_float(ctx, 6); /* made separately: not the same (AMB-13) */
    case 2: return co_string(ctx, "z");
    case 3: return NULL;
    case 4: return co_list(ctx, (co_value *[]){ one, one }, id == 0 ? 1 : 2);
    case 5: return id == 0 ? co_list(ctx, &one, 1) : co_tuple(ctx, &one, 1);
    case 6: return co_dict(ctx, (const char *[]){ id == 0 ? "a" : "b" }, &one, 1);
    case 7: return id == 0 ? co_none(ctx) : co_scalar_float(ctx, 1);
    case 9: return co_string(ctx, id == 0 ? "ab" : "a");
    case 10: return co_string(ctx, id == 0 ? "ab" : "aa");
    case 11: return co_bool(ctx, id == 0);
    case 12: return co_named_tuple(ctx, id == 0 ? "One" : "Two", (const char *[]){ "x" }, &one, 1);
    case 13: return id == 0 ? one : co_list(ctx, &one, 1);
    case 14: return co_list(ctx, (co_value *[]){ one, id == 0 ? one : co_list(ctx, &one, 1) }, 2);
    default:
        return co_named_tuple(ctx, "Pair", (const char *[]){ "x", "y" },
                              (co_value *[]){ one, co_replica_id_tensor(ctx) }, 2);
    }
}

static co_value *
run_what(co_context *ctx, co_strategy *m, int what)
{
    return co_run(ctx, m, return_something, co_no_args(ctx), &what);
}

CO_TEST_WITH(
    results_are_merged_leaf_by_leaf,
    "S-RUN-10 DV-1 DV-2 DV-GROUP-1 DV-GROUP-2 DV-GROUP-3 DV-GROUP-4 DV-GROUP-7 DV-GROUP-9 C-FN-1 AMB-10 AMB-13",
    "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *pair;

    CO_EXPECT_INT(co_item_int(ctx, run_what(ctx, m, 0)), 6);
    CO_EXPECT_INT(co_value_kind(run_what(ctx, m, 1)), CO_KIND_PER_REPLICA);
    CO_EXPECT_INT(co_value_kind(run_what(ctx, m, 2)), CO_KIND_STRING);
    CO_EXPECT_INT(co_value_kind(run_what(ctx, m, 3)), CO_KIND_NONE);
    CO_EXPECT_NULL(run_what(ctx, m, 4));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "list of 1 against list of 2");
    CO_EXPECT_NULL(run_what(ctx, m, 5));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "list against tuple");
    CO_EXPECT_NULL(run_what(ctx, m, 6));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "key 'a' against key 'b'");
    CO_EXPECT_INT(co_value_kind(run_what(ctx, m, 7)), CO_KIND_PER_REPLICA);
    pair = run_what(ctx, m, 8);
    CO_EXPECT_INT(co_value_kind(pair), CO_KIND_NAMED_TUPLE);
    CO_EXPECT_STR(co_named_tuple_name(ctx, pair), "Pair");
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, pair, "x")), 1);
    CO_EXPECT_INT(co_value_kind(co_get(ctx, pair, "y")), CO_KIND_PER_REPLICA);
    for (int what = 9; what <= 11; ++what) /* strings and bools are the same if all of them is */
        CO_EXPECT_INT(co_value_kind(run_what(ctx, m, what)), CO_KIND_PER_REPLICA);
    CO_EXPECT_NULL(run_what(ctx, m, 12));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "named tuple 'One' against 'Two'");
    CO_EXPECT_NULL(run_what(ctx, m, 13));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR,
                    "different structures at the top: host integer against list");
    CO_EXPECT_NULL(run_what(ctx, m, 14));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR,
                    "different structures at [1]: host integer against list");
}

/* Steps return components of variables, not each its own: only all of one variable, in order, are
 * that variable. */
typedef struct variables {
    co_value *of_two, *of_three;
    int       what;
} variables;

static co_value *
return_components(co_context *ctx, co_value *args, void *user)
{
    const variables *v = user;
    int              id = co_replica_id(ctx);

    (void)args;
    if (v->what == 0)
        return co_at(ctx, args, (size_t)id); /* in order */
    if (v->what == 1)
        return co_at(ctx, args, (size_t)(1 - id));
    return co_at(ctx, args, (size_t)id + 2); /* of a variable with three */
}

CO_TEST_WITH(all_components_in_order_are_their_variable, "DV-GROUP-5", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2), *other = mirrored(ctx, 3);
    variables    v = { NULL, NULL, 0 };
    co_value    *args[5], *r;

    CO_SCOPE(ctx, m)
        v.of_two = co_variable(ctx, co_float(ctx, 1), NULL);
    CO_SCOPE(ctx, other)
        v.of_three = co_variable(ctx, co_float(ctx, 2), NULL);
    for (size_t i = 0; i < 5; ++i)
        args[i] = co_at(ctx,
                        co_local_results(ctx, i < 2 ? m : other, i < 2 ? v.of_two : v.of_three),
                        i < 2 ? i : i - 2);
    r = co_run(ctx, m, return_components, co_tuple(ctx, args, 5), &v);
    CO_EXPECT_PTR(r, v.of_two);
    for (v.what = 1; v.what < 3; ++v.what) {
        r = co_run(ctx, m, return_components, co_tuple(ctx, args, 5), &v);
        CO_EXPECT_INT(co_value_kind(r), CO_KIND_PER_REPLICA);
        CO_EXPECT_PTR(co_at(ctx, r, 0), args[v.what == 1 ? 1 : 2]);
    }
    CO_EXPECT_OK(ctx);
}

CO_TEST_WITH(with_one_replica_results_are_unwrapped, "DV-GROUP-8 MIR-INIT-4 OD-RUN-1 OD-RUN-3",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx, 1), *one = co_one_device_strategy(ctx, "/cpu:0");
    co_value    *x = co_scalar_float(ctx, 1), *bundle = co_per_replica_value(ctx, &x, 1);

    CO_EXPECT_INT(co_value_kind(run_what(ctx, m, 1)), CO_KIND_FLOAT);
    CO_EXPECT_PTR(co_run(ctx, m, identity, co_args(ctx, bundle), NULL), x);
    CO_EXPECT_PTR(co_run(ctx, one, identity, co_args(ctx, bundle), NULL),
                  bundle); /* not unwrapped */
}

/* --- failures --- */

typedef struct payload {
    int deleted;
} payload;

static void
delete_payload(void *p)
{
    ++((payload *)p)->deleted;
}

static co_value *
fail_on_one(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    if (co_replica_id(ctx) == 1)
        return co_fail_with(ctx, CO_DATA_LOSS, user, delete_payload, "the disk is full of %s",
                            "holes"),
               NULL;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

CO_TEST_WITH(the_failure_of_one_replica_ends_the_step_unchanged,
             "S-RUN-8 GEN-ERR-2 C-FN-2 RC-MERGE-7", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 4);
    payload      p = { 0 };

    CO_EXPECT_NULL(co_run(ctx, m, fail_on_one, co_no_args(ctx), &p));
    CO_EXPECT_CODE(co_error(ctx)->code, CO_DATA_LOSS);
    CO_EXPECT_STR(co_error(ctx)->message, "the disk is full of holes");
    CO_EXPECT_INT(co_error(ctx)->replica, 1);
    CO_EXPECT_PTR(co_error(ctx)->payload, &p);
    CO_EXPECT_INT(p.deleted, 0);
    co_clear(ctx);
    CO_EXPECT_INT(p.deleted, 1);
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_INT(co_item_int(ctx, run_what(ctx, m, 0)), 6); /* the strategy goes on */
}

/* One for each replica. */
typedef struct own_payload {
    pthread_t caller;
    int       deleted, elsewhere;
} own_payload;

static void
delete_own_payload(void *p)
{
    own_payload *own = p;

    ++own->deleted;
    own->elsewhere += !pthread_equal(pthread_self(), own->caller);
}

typedef struct failing {
    own_payload all[4];
    atomic_int  begun;
} failing;

/* Once all have begun: where one has failed, others do not begin. */
static co_value *
fail_on_all(co_context *ctx, co_value *args, void *user)
{
    failing     *f = user;
    own_payload *all = f->all;

    (void)args;
    atomic_fetch_add(&f->begun, 1);
    while (atomic_load(&f->begun) < 4)
        sched_yield();
    co_fail_with(ctx, CO_DATA_LOSS, &all[co_replica_id(ctx)], delete_own_payload, "lost");
    return NULL;
}

CO_TEST_WITH(payloads_are_deleted_on_the_thread_that_called_run, "S-RUN-8", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 4);
    failing      f = { .begun = 0 };

    for (int i = 0; i < 4; ++i)
        f.all[i] = (own_payload){ pthread_self(), 0, 0 };
    CO_EXPECT_NULL(co_run(ctx, m, fail_on_all, co_no_args(ctx), &f));
    co_clear(ctx);
    for (int i = 0; i < 4; ++i) {
        CO_EXPECT_INT(f.all[i].deleted, 1);
        CO_EXPECT_INT(f.all[i].elsewhere, 0);
    }
}

static co_value *
leave_early(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    if (co_replica_id(ctx) == *(int *)user)
        return NULL;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

CO_TEST_WITH(a_replica_that_returns_without_the_collective_is_found_at_once, "RC-MERGE-5 RC-AR-3",
             "cpus=2")
{
    co_strategy *m = mirrored(ctx, 3);

    for (int who = 0; who < 3; ++who) {
        double begin = now_ms();

        CO_EXPECT_NULL(co_run(ctx, m, leave_early, co_no_args(ctx), &who));
        CO_EXPECT_LESS(now_ms() - begin, 5000); /* at once: the deadline is a minute */
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "has returned from the step");
        CO_EXPECT_INT(co_item_int(ctx, run_what(ctx, m, 0)), 6);
    }
}

static co_value *
different_calls(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_zeros(ctx, CO_FLOAT32, (int64_t[]){ 2, co_replica_id(ctx) + 1 }, 2);

    (void)args;
    if (*(int *)user == 0)
        return co_replica_id(ctx) == 0 ? co_all_reduce(ctx, CO_REDUCE_SUM, x)
                                       : co_all_gather(ctx, x, 1);
    if (*(int *)user == 1)
        return co_all_reduce(ctx, CO_REDUCE_SUM, x);
    if (*(int *)user == 2)
        return co_all_reduce(ctx, CO_REDUCE_SUM,
                             co_replica_id(ctx) == 0 ? co_scalar_float(ctx, 1)
                                                     : co_scalar_double(ctx, 1));
    return co_all_reduce(ctx, CO_REDUCE_SUM,
                         co_replica_id(ctx) == 0 ? co_list(ctx, &x, 1) : co_tuple(ctx, &x, 1));
}

CO_TEST_WITH(replicas_that_disagree_are_told_both_sides, "RC-AR-4 GEN-ERR-3", "cpus=2")
{
    static const struct {
        co_code     code;
        const char *part;
    } expected[] = { { CO_RUNTIME_ERROR, "all_gather" },
                     { CO_INVALID_ARGUMENT, "[2,1] on replica 0 and [2,2] on replica 1" },
                     { CO_INVALID_ARGUMENT, "float32 on replica 0 and float64 on replica 1" },
                     { CO_ASSERTION_ERROR, "list against tuple" } };
    co_strategy *m = mirrored(ctx, 2);

    for (int what = 0; what < 4; ++what) {
        double begin = now_ms();

        CO_EXPECT_NULL(co_run(ctx, m, different_calls, co_no_args(ctx), &what));
        CO_EXPECT_LESS(now_ms() - begin, 5000); /* at once: the deadline is a minute */
        CO_EXPECT_ERROR(ctx, expected[what].code, expected[what].part);
    }
    CO_EXPECT_INT(co_item_int(ctx, run_what(ctx, m, 0)), 6); /* later collectives are not broken */
}

/* Replica 1 executes nothing until replica 0 has been told so; user: whether it has. */
static co_value *
sleep_on_one(co_context *ctx, co_value *args, void *user)
{
    struct timespec rest = { 0, 1000000 };
    co_value       *sum;

    (void)args;
    while (co_replica_id(ctx) == 1 && !atomic_load((atomic_bool *)user))
        nanosleep(&rest, NULL);
    sum = co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    atomic_store((atomic_bool *)user, true);
    return sum;
}

CO_TEST_WITH(a_replica_that_executes_nothing_is_reported_as_stuck, "", "cpus=2")
{
    co_mirrored_options options = CO_MIRRORED_OPTIONS_INIT;
    co_strategy        *m;
    atomic_bool         told = false;

    options.deadline_ms = 50;
    m = co_mirrored_strategy(ctx, two, 2, &options);
    CO_EXPECT_NULL(co_run(ctx, m, sleep_on_one, co_no_args(ctx), &told));
    CO_EXPECT_ERROR(ctx, CO_DEADLINE_EXCEEDED, "replica 1 has executed nothing for 50 ms");
    /* It came back within the grace, so the strategy is still good. */
    CO_EXPECT_INT(co_item_int(ctx, run_what(ctx, m, 0)), 6);
}

/* --- order --- */

typedef struct diary {
    pthread_mutex_t lock;
    char            text[200];
} diary;

static void
note(diary *d, const char *what, int id)
{
    size_t at;

    pthread_mutex_lock(&d->lock);
    at = strlen(d->text);
    snprintf(d->text + at, sizeof(d->text) - at, "%s%d ", what, id);
    pthread_mutex_unlock(&d->lock);
}

static co_value *
merge_note(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    (void)args;
    note(user, "m", 0);
    return co_none(ctx);
}

static co_value *
write_diary(co_context *ctx, co_value *args, void *user)
{
    note(user, "a", co_replica_id(ctx));
    co_merge_call(ctx, merge_note, args, user);
    note(user, "b", co_replica_id(ctx));
    co_merge_call(ctx, merge_note, args, user);
    note(user, "c", co_replica_id(ctx));
    return NULL;
}

CO_TEST_WITH(replicas_can_take_turns, "S-RUN-7 RC-MERGE-6 S-RUN-9", "cpus=2")
{
    co_strategy   *m = mirrored(ctx, 3);
    co_run_options options = CO_RUN_OPTIONS_INIT;
    diary          d = { PTHREAD_MUTEX_INITIALIZER, "" };

    options.in_turn = true;
    for (int round = 0; round < 20; ++round) {
        d.text[0] = '\0';
        co_run_with(ctx, m, write_diary, co_no_args(ctx), &d, &options);
        CO_EXPECT_STR(d.text, "a0 a1 a2 m0 b0 b1 b2 m0 c0 c1 c2 ");
    }
    CO_EXPECT_OK(ctx);
}

static co_value *
wait_for_each_other(co_context *ctx, co_value *args, void *user)
{
    _Atomic int *here = user;

    (void)args;
    ++*here;
    for (double begin = now_ms(); *here < co_replicas(ctx) && now_ms() - begin < 5000;)
        ;
    return co_bool(ctx, *here == co_replicas(ctx));
}

CO_TEST_WITH(replicas_run_at_the_same_time, "S-RUN-7", "cpus=2")
{
    _Atomic int here = 0;

    CO_EXPECT_INT(co_item_int(ctx, co_cast(ctx,
                                           co_run(ctx, mirrored(ctx, 2), wait_for_each_other,
                                                  co_no_args(ctx), (void *)&here),
                                           CO_INT32)),
                  1);
}

/* --- merge_call --- */

static co_value *
sum_in_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    CO_EXPECT_TRUE(co_in_cross_replica_context(ctx));
    CO_EXPECT_NULL(co_get_replica_context(ctx));
    return co_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);
}

static co_value *
step_of_the_document(co_context *ctx, co_value *args, void *user)
{
    co_value *v = co_scalar_float(ctx, 3.0f + (float)co_replica_id(ctx));

    (void)args;
    return co_add(ctx, co_merge_call(ctx, sum_in_merge, co_args(ctx, v), user), v);
}

CO_TEST_WITH(merge_call_sees_all_replicas, "RC-MERGE-1 RC-MERGE-2 RC-MERGE-3 RC-MERGE-4", "cpus=2")
{
    co_value *r = co_run(ctx, mirrored(ctx, 2), step_of_the_document, co_no_args(ctx), NULL);

    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, r, 0)), 10, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, r, 1)), 11, 0);
    CO_SCOPE(ctx, co_one_device_strategy(ctx, "/cpu:0")) {
        CO_EXPECT_NULL(co_merge_call(ctx, sum_in_merge, co_no_args(ctx), NULL));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "cross-replica");
        CO_EXPECT_NULL(co_all_reduce(ctx, CO_REDUCE_SUM, co_float(ctx, 1)));
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "cross-replica");
    }
}

static co_value *
merge_in_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    return co_merge_call(ctx, sum_in_merge, args, user);
}

static co_value *
nested_merge(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_in_merge, args, user);
}

CO_TEST_WITH(merge_calls_do_not_nest, "RC-MERGE-6 RC-MERGE-7", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);

    CO_EXPECT_NULL(co_run(ctx, m, nested_merge, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "cross-replica");
    CO_EXPECT_INT(co_item_int(ctx, run_what(ctx, m, 0)), 6);
}

/* --- several threads --- */

typedef struct hammer {
    co_context  *ctx;
    co_strategy *strategy;
} hammer;

static co_value *
sum_ids(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_cast(ctx, co_replica_id_tensor(ctx), CO_FLOAT32));
}

static void *
hammer_it(void *arg)
{
    hammer     *h = arg;
    co_context *mine = co_open_beside(h->ctx);

    for (int i = 0; i < 100; ++i)
        CO_BLOCK(mine) {
            co_value *r = co_run(mine, h->strategy, sum_ids, co_no_args(mine), NULL);

            CO_EXPECT_CLOSE(co_item_float(mine, co_at(mine, r, 0)), 3, 0);
        }
    CO_EXPECT_CODE(co_close(mine), CO_OK);
    return NULL;
}

CO_TEST_WITH(a_strategy_serves_several_threads, "THR-2 RC-AR-12", "cpus=2")
{
    hammer    h = { ctx, mirrored(ctx, 3) };
    pthread_t threads[3];

    for (int i = 0; i < 3; ++i)
        CO_REQUIRE(pthread_create(&threads[i], NULL, hammer_it, &h) == 0);
    for (int i = 0; i < 3; ++i)
        pthread_join(threads[i], NULL);
}

CO_TEST_WITH(a_missing_device_is_an_error_at_first_use, "DEV-5 OD-INIT-1 OD-INIT-2 AMB-5", "cpus=2")
{
    co_strategy *one = co_one_device_strategy(ctx, "/gpu:7");
    co_strategy *here = co_one_device_strategy(ctx, NULL);

    CO_EXPECT_OK(ctx);
    CO_SCOPE(ctx, one) {
        CO_EXPECT_NULL(co_variable(ctx, co_float(ctx, 1), NULL));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "CPU:1");
    }
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, here), 1);
    CO_EXPECT_NULL(co_one_device_strategy(ctx, "/foo:0"));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "foo");
}

/* user: whether replicas use their devices. */
static co_value *
use_device(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    return *(bool *)user ? co_scalar_float(ctx, 1) : co_int(ctx, co_replica_id(ctx));
}

CO_TEST_WITH(a_replica_whose_device_is_missing_runs_until_it_uses_it, "DEV-5", "cpus=2")
{
    static const char *const names[] = { "/cpu:0", "/gpu:7" };
    co_strategy             *m = co_mirrored_strategy(ctx, names, 2, NULL);
    bool                     uses = false;

    CO_EXPECT_INT(
        co_item_int(ctx, co_at(ctx, co_run(ctx, m, use_device, co_no_args(ctx), &uses), 1)), 1);
    uses = true;
    CO_EXPECT_NULL(co_run(ctx, m, use_device, co_no_args(ctx), &uses));
    CO_EXPECT_INT(co_error(ctx)->replica, 1);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "GPU:7");
}

static co_value *
count_cores(co_context *ctx, co_value *args, void *user)
{
    cpu_set_t cores;

    (void)args;
    (void)user;
    CPU_ZERO(&cores);
    sched_getaffinity(0, sizeof(cores), &cores);
    return co_int(ctx, CPU_COUNT(&cores));
}

/* The threads of replicas stay on the cores of their devices, or where the process is. */
CO_TEST_BARE(replicas_are_pinned_or_not, "MIR-RUN-1")
{
    static const char *const settings[] = { "cpus=2, pin=yes", "cpus=2, pin=no" };
    cpu_set_t                all;

    CPU_ZERO(&all);
    CO_REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
    for (int i = 0; i < 2; ++i) {
        co_device_info info = CO_DEVICE_INFO_INIT;
        co_value      *counts;
        int            expected;

        ctx = co_open(settings[i]);
        co_get_device_info(ctx, 1, &info);
        expected = i == 0 ? info.num_threads : CPU_COUNT(&all);
        counts = co_run(ctx, mirrored(ctx, 2), count_cores, co_no_args(ctx), NULL);
        if (co_value_kind(counts) == CO_KIND_PER_REPLICA) /* not where all have the same number */
            counts = co_at(ctx, counts, 1);
        CO_EXPECT_INT(co_item_int(ctx, counts), expected);
        CO_EXPECT_CODE(co_close(ctx), CO_OK);
    }
}

/* Exit code 0: the child got the error it should. */
static void
run_in_child(co_context *ctx, co_strategy *m)
{
    bool right = co_run(ctx, m, identity, co_args(ctx, co_int(ctx, 1)), NULL) == NULL &&
                 co_error(ctx)->code == CO_RUNTIME_ERROR &&
                 strstr(co_error(ctx)->message, "forked from") != NULL;

    test_end_child(right);
}

CO_TEST_WITH(a_forked_child_is_refused_and_the_parent_goes_on, "", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    int          status = -1;
    pid_t        child;

    CO_EXPECT_INT(co_item_int(ctx, run_what(ctx, m, 0)), 6);
    child = fork();
    CO_REQUIRE(child >= 0);
    if (child == 0)
        run_in_child(ctx, m);
    CO_REQUIRE(waitpid(child, &status, 0) == child);
    CO_EXPECT_INT(status, 0);
    CO_EXPECT_INT(co_item_int(ctx, run_what(ctx, m, 0)), 6);
}

static co_value *
escape_in_vain(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    co_escape(ctx, co_scalar_float(ctx, 1));
    return NULL;
}

/* There is no block around a step's own. */
CO_TEST_WITH(what_escapes_from_a_step_dies_with_it, "", "cpus=2")
{
    co_strategy    *strategy = mirrored(ctx, 2);
    co_memory_stats before = CO_MEMORY_STATS_INIT, after = CO_MEMORY_STATS_INIT;

    for (int i = 0; i < 100; ++i) {
        CO_BLOCK(ctx) {
            co_run(ctx, strategy, escape_in_vain, co_no_args(ctx), NULL);
        }
        co_get_memory_stats(ctx, i == 0 ? &before : &after);
    }
    CO_EXPECT_INT(after.live_values, before.live_values);
}

static co_value *
keep_quiet(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    (void)args;
    (void)user;
    return co_none(ctx);
}

/* Lists of different lengths: results that cannot be merged. */
static co_value *
part_after_a_merge(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    co_merge_call(ctx, keep_quiet, args, NULL);
    return co_replica_id(ctx) == 0 ? co_list(ctx, NULL, 0) : co_none(ctx);
}

CO_TEST_WITH(what_run_finds_after_a_merge_is_at_the_line_of_run, "DV-GROUP-1", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    int          line = __LINE__ + 2;

    CO_EXPECT_NULL(co_run(ctx, m, part_after_a_merge, co_no_args(ctx), NULL));
    CO_EXPECT_INT(co_error(ctx)->line, line);
    CO_EXPECT_STR(co_error(ctx)->call, "run");
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, NULL);
}

/* --- where replicas run --- */

enum { NUM_CORES_SEEN = 2 };

static co_value *
note_core(co_context *ctx, co_value *args, void *user)
{
    int *cores = user;

    cores[co_replica_id(ctx)] = sched_getcpu();
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_at(ctx, args, 0));
}

/* The caller's place is its own affair: replica 1 gets out of its way, on whichever core of the two
 * it is bound to. */
CO_TEST_WITH(a_replica_does_not_live_on_the_core_of_the_caller, "", "cpus=2")
{
    co_strategy *m = mirrored(ctx, 2);
    co_value    *one = co_args(ctx, co_scalar_float(ctx, 1));
    cpu_set_t    mine;

    CO_REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
    if (CPU_COUNT(&mine) != NUM_CORES_SEEN)
        CO_SKIP("needs two cores");
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        int       cores[NUM_CORES_SEEN] = { -1, -1 }, apart = 0;
        cpu_set_t only;

        if (!CPU_ISSET((size_t)core, &mine))
            continue;
        CPU_ZERO(&only);
        CPU_SET((size_t)core, &only);
        CO_REQUIRE(sched_setaffinity(0, sizeof(only), &only) == 0);
        for (int i = 0; i < 50; ++i) {
            co_run(ctx, m, note_core, one, cores);
            apart += cores[0] == core && cores[1] != core;
        }
        CO_EXPECT_OK(ctx);
        CO_EXPECT_MORE(apart, 0); /* not always: on a busy machine a step may follow a rest */
    }
    CO_REQUIRE(sched_setaffinity(0, sizeof(mine), &mine) == 0);
}

/* Rests of every length between steps: the threads sleep, wake here and there, and every sum is
 * right. */
CO_TEST_WITH(steps_after_rests_are_steps, "S-RUN-1", "cpus=2")
{
    static const int rests_us[] = { 0, 10, 30, 100, 600, 2000, 5000 };
    co_strategy     *m = mirrored(ctx, 4);
    co_value        *one = co_args(ctx, co_scalar_float(ctx, 1));

    for (size_t i = 0; i < 140; ++i)
        CO_BLOCK(ctx) {
            int       cores[4];
            co_value *sums;

            usleep((useconds_t)rests_us[i % (sizeof(rests_us) / sizeof(rests_us[0]))]);
            sums = co_run(ctx, m, note_core, one, cores);
            CO_EXPECT_INT(co_item_float(ctx, co_at(ctx, sums, 3)), 4);
        }
    CO_EXPECT_OK(ctx);
}
