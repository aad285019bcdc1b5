/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mistakes with the life of handles and contexts, in every build: what was never kept is released,
 * a context is closed twice or used after that, a step uses the context that called run, a handle
 * is used after its block. Each is an error with the line of the mistake, never a crash.
 */
#include "hooks.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

/* The error of the call on the line before. */
#define EXPECT_ERROR_BEFORE(ctx, code, part)                                                       \
    do {                                                                                           \
        CO_EXPECT_INT(co_error(ctx)->line, __LINE__ - 1);                                          \
        CO_EXPECT_ERROR(ctx, code, part);                                                          \
    } while (0)

static int64_t
live_values(co_context *ctx)
{
    co_memory_stats stats = CO_MEMORY_STATS_INIT;

    co_get_memory_stats(ctx, &stats);
    return stats.live_values;
}

/* --- release without keep --- */

CO_TEST(a_value_that_was_never_kept_is_not_released, "")
{
    int64_t before = live_values(ctx);

    CO_BLOCK(ctx) {
        co_value *x = co_scalar_float(ctx, 2);

        co_release(ctx, x);
        EXPECT_ERROR_BEFORE(ctx, CO_RUNTIME_ERROR, "of release is a value that is not kept");
        CO_EXPECT_CLOSE(co_item_float(ctx, x), 2, 0); /* its block still owns it */
        co_keep(ctx, x);
        co_release(ctx, x);
        CO_EXPECT_OK(ctx);
        co_release(ctx, x);
        EXPECT_ERROR_BEFORE(ctx, CO_RUNTIME_ERROR, "once for each co_keep");
        CO_EXPECT_CLOSE(co_item_float(ctx, x), 2, 0);
    }
    CO_EXPECT_INT(live_values(ctx), before);
}

CO_TEST(other_handles_that_were_never_kept_are_not_released, "")
{
    co_dataset   *dataset = co_dataset_range(ctx, 0, 5, 1);
    co_iterator  *iterator = co_iterate(ctx, dataset);
    co_strategy  *strategy = co_one_device_strategy(ctx, "/cpu:0");
    co_optimizer *optimizer = co_sgd(ctx, NULL);

    co_release(ctx, dataset);
    EXPECT_ERROR_BEFORE(ctx, CO_RUNTIME_ERROR, "a dataset that is not kept");
    co_release(ctx, iterator);
    EXPECT_ERROR_BEFORE(ctx, CO_RUNTIME_ERROR, "an iterator that is not kept");
    co_release(ctx, strategy);
    EXPECT_ERROR_BEFORE(ctx, CO_RUNTIME_ERROR, "a strategy that is not kept");
    co_release(ctx, optimizer);
    EXPECT_ERROR_BEFORE(ctx, CO_RUNTIME_ERROR, "an optimizer that is not kept");
    CO_EXPECT_INT(co_item_int(ctx, co_next(ctx, iterator)), 0);
    CO_EXPECT_INT(co_num_replicas_in_sync(ctx, strategy), 1);
}

/* Lists and tapes hold references too; they are not the user's to give back. */
CO_TEST(what_a_list_and_a_tape_hold_is_not_released, "")
{
    CO_BLOCK(ctx) {
        co_value *x = co_scalar_float(ctx, 2), *list;

        co_tape_begin(ctx);
        co_watch(ctx, x);
        co_mul(ctx, x, x);
        list = co_list(ctx, &x, 1);
        for (int i = 0; i < 20; ++i)
            co_release(ctx, x);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "not kept");
        CO_EXPECT_CLOSE(co_item_float(ctx, co_neg(ctx, co_at(ctx, list, 0))), -2, 0);
    }
}

CO_TEST(many_handles_are_kept_many_times_each, "")
{
    enum { HANDLES = 1000, TIMES = 3 };
    static co_value *kept[HANDLES];
    int64_t          before = live_values(ctx);

    CO_BLOCK(ctx) {
        for (int i = 0; i < HANDLES; ++i)
            kept[i] = co_int(ctx, i);
        for (int k = 0; k < TIMES; ++k)
            for (int i = 0; i < HANDLES; ++i)
                co_keep(ctx, kept[i]);
    }
    CO_EXPECT_INT(live_values(ctx), before + HANDLES);
    for (int k = 0; k < TIMES; ++k)
        for (int i = 0; i < HANDLES; ++i) {
            int at = (i * 7 + k) % HANDLES; /* in another order than they were kept in */

            CO_EXPECT_INT(co_item_int(ctx, kept[at]), at);
            co_release(ctx, kept[at]);
        }
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(live_values(ctx), before);
}

typedef struct sharer {
    co_context *ctx;
    co_value   *x;
    int         released;
} sharer;

enum { KEEPS = 2000, THREADS = 4 };

static void *
release_until_refused(void *arg)
{
    sharer *s = arg;

    while (co_ok(s->ctx)) {
        co_release(s->ctx, s->x);
        s->released += co_ok(s->ctx);
    }
    return NULL;
}

/* Kept KEEPS times, a value is released as often, whoever releases it. */
CO_TEST(threads_release_what_was_kept_and_no_more, "")
{
    co_value *x = co_scalar_float(ctx, 1);
    sharer    s[THREADS] = { { NULL, NULL, 0 } };
    pthread_t threads[THREADS];
    int       released = 0;

    for (int i = 0; i < KEEPS; ++i)
        co_keep(ctx, x);
    for (int i = 0; i < THREADS; ++i) {
        s[i] = (sharer){ co_open_beside(ctx), x, 0 };
        CO_REQUIRE(pthread_create(&threads[i], NULL, release_until_refused, &s[i]) == 0);
    }
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
        released += s[i].released;
        CO_EXPECT_ERROR(s[i].ctx, CO_RUNTIME_ERROR, "not kept");
        CO_EXPECT_CODE(co_close(s[i].ctx), CO_OK);
    }
    CO_EXPECT_INT(released, KEEPS);
    CO_EXPECT_CLOSE(co_item_float(ctx, x), 1, 0);
}

/* --- keep without release --- */

typedef struct log_book {
    int  lines;
    char last[400];
} log_book;

static void
write_book(co_log_level level, const char *line, void *user)
{
    log_book *book = user;

    CO_EXPECT_INT(level, CO_LOG_WARNING);
    ++book->lines;
    snprintf(book->last, sizeof(book->last), "%s", line);
}

static co_context *
open_with_book(test_hooks *hooks, log_book *book)
{
    co_options  options = CO_OPTIONS_INIT;
    co_context *own;

    test_hooks_init(hooks, 0);
    book->lines = 0;
    options.settings = "cpus=2, log=warning";
    options.allocator = &hooks->allocator;
    options.log = write_book;
    options.log_user = book;
    own = co_open_with(&options);
    book->lines = 0; /* opening warns of variables of the environment that are no settings */
    return own;
}

static co_value *
no_result(co_context *ctx, co_value *args, void *user)
{
    (void)ctx, (void)args, (void)user;
    return NULL;
}

/* Its threads wait for the next step when the runtime goes. */
CO_TEST_BARE(a_strategy_that_is_kept_for_ever_is_named_and_goes_with_the_runtime, "")
{
    test_hooks   hooks;
    log_book     book;
    co_context  *own = open_with_book(&hooks, &book), *beside = co_open_beside(own);
    co_strategy *s = NULL;
    int          line = 0;
    char         place[80];

    CO_BLOCK(own) {
        s = co_mirrored_strategy(own, NULL, 0, NULL);
        co_keep(own, s), line = __LINE__;
        co_keep(own, s);
    }
    co_run(own, s, no_result, co_no_args(own), NULL);
    CO_EXPECT_CODE(co_close(own), CO_OK);
    CO_EXPECT_INT(book.lines, 0); /* it can still be released */
    co_run(beside, s, no_result, co_no_args(beside), NULL);
    CO_EXPECT_CODE(co_close(beside), CO_OK);
    CO_EXPECT_INT(book.lines, 1);
    snprintf(place, sizeof(place), "(the first: strategy, kept at %s:%d)", __FILE__, line);
    CO_EXPECT_CONTAINS(book.last, "1 handle is still kept when the last context closes");
    CO_EXPECT_CONTAINS(book.last, strrchr(place, '/') != NULL ? strrchr(place, '/') : place);
    CO_EXPECT_CONTAINS(book.last, "co_close releases it; call co_release once for each co_keep");
    CO_EXPECT_INT(atomic_load(&hooks.blocks), 0);
}

/* One line for all, whatever they are; an iterator with a thread holds the runtime itself. */
CO_TEST_BARE(everything_that_is_kept_for_ever_goes_with_the_runtime, "")
{
    test_hooks   hooks;
    log_book     book;
    co_context  *own = open_with_book(&hooks, &book);
    co_value    *big = co_zeros(own, CO_FLOAT32, CO_SHAPE(5000)), *list = co_list(own, &big, 1);
    co_dataset  *dataset = co_dataset_prefetch(own, co_dataset_range(own, 0, 100, 1), 4);
    co_iterator *iterator = co_iterate(own, dataset);

    co_next(own, iterator);
    CO_EXPECT_OK(own);
    co_keep(own, list);
    co_keep(own, big);
    co_keep(own, co_variable(own, big, NULL));
    co_keep(own, iterator);
    co_keep(own, dataset);
    co_keep(own, co_sgd(own, NULL));
    co_keep(own, co_int(own, 1));
    co_release(own, big);
    CO_EXPECT_CODE(co_close(own), CO_OK);
    CO_EXPECT_INT(book.lines, 1);
    CO_EXPECT_CONTAINS(book.last, "6 handles are still kept");
    CO_EXPECT_CONTAINS(book.last, "(the first: value, kept at ");
    CO_EXPECT_CONTAINS(book.last, "co_close releases them");
    CO_EXPECT_INT(atomic_load(&hooks.blocks), 0);
}

/* --- closed contexts --- */

CO_TEST_BARE(a_context_that_is_closed_twice_is_an_error, "")
{
    co_context *own = co_open("log=off");

    CO_EXPECT_CODE(co_close(own), CO_OK);
    CO_EXPECT_CODE(co_close(own), CO_RUNTIME_ERROR);
    CO_EXPECT_INT(co_error(own)->line, __LINE__ - 1);
    CO_EXPECT_CONTAINS(co_error(own)->message, "the context was closed before, by co_close at ");
    CO_EXPECT_CONTAINS(co_error(own)->message, "lifetimes.c:");
    CO_EXPECT_CODE(co_close(own), CO_RUNTIME_ERROR);
}

/* Functions of the user that close the context that they are given, which is the caller's. */
static co_value *
close_it(co_context *ctx)
{
    co_close(ctx);
    return co_ok(ctx) ? co_int(ctx, 1) : NULL;
}
static co_value *
closing_map(co_context *ctx, co_value *x, void *user)
{
    (void)x, (void)user;
    return close_it(ctx);
}
static co_value *
closing_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy, (void)args, (void)user;
    return close_it(ctx);
}
static co_value *
step_with_closing_merge(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, closing_merge, args, user);
}
static co_value *
closing_update(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)variable, (void)args, (void)user;
    return close_it(ctx);
}
static co_value *
closing_initializer(co_context *ctx, void *user)
{
    (void)user;
    return close_it(ctx);
}
static co_value *
closing_creator(co_context *ctx, co_creation *next, co_value *initial,
                const co_variable_options *options, void *user)
{
    (void)next, (void)initial, (void)options, (void)user;
    return close_it(ctx);
}
static co_value *
closing_value_fn(co_context *ctx, const co_value_context *replica, void *user)
{
    (void)replica, (void)user;
    return close_it(ctx);
}
static co_dataset *
closing_dataset_fn(co_context *ctx, const co_input_context *input, void *user)
{
    (void)input;
    close_it(ctx);
    return user;
}
static co_value *
closing_generator(co_context *ctx, int64_t index, void *user)
{
    (void)index, (void)user;
    return close_it(ctx);
}

static void
closing_visitor(const char *name, const char *value, const char *source, const char *help,
                void *user)
{
    (void)name, (void)value, (void)source, (void)help;
    close_it(user);
}

/* The call that called the function still works in the context. */
CO_TEST_WITH(a_function_cannot_close_the_context_of_its_caller, "", "cpus=2")
{
    co_strategy        *s = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset         *range = co_dataset_range(ctx, 0, 3, 1);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL, *none = co_no_args(ctx);
    const char         *part = "in use by the call that this function was called from";

    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_float(ctx, 1), NULL);
    co_next(ctx, co_iterate(ctx, co_dataset_map(ctx, range, closing_map, NULL, NULL)));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    co_next(ctx, co_iterate(ctx, co_dataset_from_generator(ctx, closing_generator, NULL,
                                                           co_value_spec(ctx, co_int(ctx, 1)))));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    co_dataset_reduce(ctx, range, co_int(ctx, 0), closing_map, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    co_distribute_datasets_from_function(ctx, s, closing_dataset_fn, range, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    co_distribute_datasets_from_function(ctx, co_default_strategy(ctx), closing_dataset_fn, range,
                                         NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    co_distribute_values_from_function(ctx, s, closing_value_fn, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    co_map_structure(ctx, co_int(ctx, 1), closing_map, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    co_run(ctx, s, step_with_closing_merge, none, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    co_merge_call(ctx, closing_merge, none, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    co_update(ctx, s, v, closing_update, none, NULL, NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    options.initializer = closing_initializer;
    co_variable(ctx, NULL, &options);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    CO_CREATOR(ctx, closing_creator, NULL)
        co_variable(ctx, co_float(ctx, 1), NULL);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
    co_settings_visit(ctx, closing_visitor, ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, part);
}

static co_value *
ending_value_fn(co_context *ctx, const co_value_context *replica, void *user)
{
    (void)user;
    co_block_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "there is no open block to end");
    return co_scalar_float(ctx, (float)replica->replica_id);
}
static co_value *
ending_leaf_fn(co_context *ctx, co_value *leaf, void *user)
{
    (void)user;
    co_block_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "there is no open block to end");
    return co_neg(ctx, leaf);
}
static co_value *
ending_update(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)args, (void)user;
    co_block_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "there is no open block to end");
    return co_variable_read(ctx, variable);
}

/* What the function made before, and what the call was given, is in the block of the caller. */
CO_TEST_WITH(a_function_cannot_end_the_blocks_of_its_caller, "", "cpus=2")
{
    co_strategy *s = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *v = NULL, *made;

    for (int i = 0; i < 3; ++i)
        co_block_begin(ctx);
    made = co_distribute_values_from_function(ctx, s, ending_value_fn, NULL);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, made, 0)), 0, 0);
    made = co_map_structure(ctx, co_args(ctx, co_int(ctx, 1), co_int(ctx, 2)), ending_leaf_fn,
                            NULL);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, made, 0)), -1);
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_float(ctx, 1), NULL);
    made = co_update(ctx, s, v, ending_update, co_no_args(ctx), NULL, NULL);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, made, 0)), 1, 0);
    for (int i = 0; i < 3; ++i)
        co_block_end(ctx);
    CO_EXPECT_OK(ctx);
}

CO_TEST(a_closed_context_stays_closed_beside_an_open_one, "")
{
    co_context *other = co_open_beside(ctx);
    co_value   *x = co_scalar_float(ctx, 2);

    CO_EXPECT_CODE(co_close(other), CO_OK);
    CO_EXPECT_NULL(co_neg(other, x));
    CO_EXPECT_FALSE(co_ok(other));
    CO_EXPECT_INT(co_error(other)->line, __LINE__ - 2);
    CO_EXPECT_CODE(co_error(other)->code, CO_RUNTIME_ERROR);
    co_clear(other);
    CO_EXPECT_FALSE(co_ok(other));
    CO_EXPECT_NULL(co_open_beside(other));
    CO_EXPECT_CLOSE(co_item_float(ctx, co_neg(ctx, x)), -2, 0);
}

/* A replica's context is gone with its strategy. */
static co_value *
take_context(co_context *ctx, co_value *args, void *user)
{
    *(co_context **)user = ctx;
    return args;
}

CO_TEST(the_context_of_a_step_is_refused_when_its_strategy_is_gone, "RC-1")
{
    co_context *inner = NULL;

    CO_BLOCK(ctx) {
        co_strategy *s = co_one_device_strategy(ctx, "/cpu:0");

        co_run(ctx, s, take_context, co_no_args(ctx), &inner);
        CO_EXPECT_NULL(co_int(inner, 1));
        CO_EXPECT_CONTAINS(co_error(inner)->message, "given to a step that has ended");
    }
    CO_EXPECT_NULL(co_int(inner, 1));
    CO_EXPECT_CONTAINS(co_error(inner)->message, "given to a step, and its strategy is gone");
    CO_EXPECT_CODE(co_close(inner), CO_RUNTIME_ERROR);
    CO_EXPECT_OK(ctx);
}

/* The pool of contexts does not grow with every one that is opened. */
CO_TEST(contexts_are_used_again_but_not_soon, "")
{
    co_context *closed = co_open_beside(ctx), *seen = NULL;
    int         rounds = 0;

    co_close(closed);
    while (rounds < 1000 && seen != closed) {
        seen = co_open_beside(ctx);
        co_close(seen);
        ++rounds;
    }
    CO_EXPECT_MORE(rounds, 60);
    CO_EXPECT_LESS(rounds, 200);
}

/* --- the context that called run --- */

typedef struct outer {
    co_context *ctx;
    int         line;
    bool        is_merging;
    co_value *(*use)(struct outer *o);
} outer;

static co_value *
use_operator(outer *o)
{
    o->line = __LINE__ + 1;
    return co_scalar_float(o->ctx, 1);
}

static co_value *
use_block(outer *o)
{
    o->line = __LINE__ + 1;
    co_block_begin(o->ctx);
    return NULL;
}

static co_value *
use_clear(outer *o)
{
    o->line = __LINE__ + 1;
    co_clear(o->ctx);
    return NULL;
}

static co_value *
use_close(outer *o)
{
    o->line = __LINE__ + 1;
    CO_EXPECT_CODE(co_close(o->ctx), CO_RUNTIME_ERROR);
    return NULL;
}

static co_value *
merge_nothing(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    (void)user;
    return co_at(ctx, args, 0);
}

static co_value *
use_outer(co_context *ctx, co_value *args, void *user)
{
    outer *o = user;

    if (co_replica_id(ctx) == 0) {
        CO_EXPECT_NULL(o->use(o));
        CO_EXPECT_FALSE(co_ok(o->ctx));
        CO_EXPECT_CONTAINS(co_error(o->ctx)->message, "used inside the step");
    }
    if (o->is_merging)
        co_merge_call(ctx, merge_nothing, co_args(ctx, co_int(ctx, 1)), NULL);
    return args;
}

static void
expect_found(co_context *ctx, co_strategy *s, outer o)
{
    CO_EXPECT_NULL(co_run(ctx, s, use_outer, co_no_args(ctx), &o));
    CO_EXPECT_INT(co_error(ctx)->line, o.line);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR,
                    "the context that called run is used inside the step; use the context that the "
                    "step is given");
}

CO_TEST_WITH(the_context_that_called_run_is_refused_in_the_step, "RC-1", "cpus=2")
{
    static co_value *(*const uses[])(outer *) = { use_operator, use_block, use_clear, use_close };
    co_strategy *all[] = { co_default_strategy(ctx), co_one_device_strategy(ctx, "/cpu:1"),
                           co_mirrored_strategy(ctx, NULL, 0, NULL) };

    for (int i = 0; i < 3; ++i)
        for (int k = 0; k < 4; ++k)
            expect_found(ctx, all[i], (outer){ ctx, 0, false, uses[k] });
    for (int i = 0; i < 3; ++i)
        expect_found(ctx, all[i], (outer){ ctx, 0, true, use_operator });
    CO_EXPECT_CLOSE(co_item_float(ctx, co_scalar_float(ctx, 3)), 3, 0);
}

/* What goes wrong because of it is not what is reported. */
static co_value *
compute_with_outer(co_context *ctx, co_value *args, void *user)
{
    outer *o = user;

    (void)args;
    o->line = __LINE__ + 1;
    return co_neg(ctx, co_scalar_float(o->ctx, 1));
}

CO_TEST(the_first_mistake_of_the_step_is_reported, "RC-1")
{
    outer o = { ctx, 0, false, NULL };

    CO_EXPECT_NULL(co_run(ctx, co_default_strategy(ctx), compute_with_outer, co_no_args(ctx), &o));
    CO_EXPECT_INT(co_error(ctx)->line, o.line);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "used inside the step");
}
