/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: lifetimes and blocks, opening and closing, devices, threads, hooks for memory and log,
 * statistics, settings. */
#include "hooks.h"
#include "test.h"

#include <pthread.h>

static int64_t
live(co_context *ctx)
{
    co_memory_stats stats = CO_MEMORY_STATS_INIT;

    co_get_memory_stats(ctx, &stats);
    return stats.live_values;
}

CO_TEST(a_block_ends_what_was_made_in_it, "")
{
    int64_t before = live(ctx);

    co_block_begin(ctx);
    co_int(ctx, 1);
    co_block_begin(ctx);
    co_list(ctx, (co_value *const[]){ co_int(ctx, 2), co_int(ctx, 3) }, 2);
    CO_EXPECT_INT(live(ctx), before + 4);
    co_block_end(ctx);
    CO_EXPECT_INT(live(ctx), before + 1);
    co_block_end(ctx);
    CO_EXPECT_INT(live(ctx), before);
    co_int(ctx, 4); /* outside any block: until the context closes */
    CO_EXPECT_INT(live(ctx), before + 1);
}

CO_TEST(what_a_structure_holds_lives_as_long_as_it, "")
{
    co_value *list = NULL;
    int64_t   before = live(ctx);

    CO_BLOCK(ctx) {
        co_value *items[2] = { co_int(ctx, 7), co_scalar_float(ctx, 8) };

        list = co_escape(ctx, co_list(ctx, items, 2));
    }
    CO_EXPECT_INT(live(ctx), before + 3);
    CO_EXPECT_INT(co_item_int(ctx, co_at(ctx, list, 0)), 7);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, list, 1)), 8, 0);
}

CO_TEST(keep_and_release_are_counted, "")
{
    co_value *x = NULL;
    int64_t   before = live(ctx);

    CO_BLOCK(ctx) {
        x = co_scalar_float(ctx, 3);
        co_keep(ctx, x);
        co_keep(ctx, x);
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, x), 3, 0);
    co_release(ctx, x);
    CO_EXPECT_CLOSE(co_item_float(ctx, x), 3, 0);
    CO_EXPECT_INT(live(ctx), before + 1);
    co_release(ctx, x);
    CO_EXPECT_INT(live(ctx), before);
    /* Released inside its block, it lives to the end of the block. */
    CO_BLOCK(ctx) {
        x = co_int(ctx, 1);
        co_keep(ctx, x);
        co_release(ctx, x);
        CO_EXPECT_INT(co_item_int(ctx, x), 1);
    }
    CO_EXPECT_INT(live(ctx), before);
}

CO_TEST(escape_hands_a_value_one_block_out, "")
{
    int64_t before = live(ctx);

    CO_BLOCK(ctx) {
        co_value *x = NULL, *y = NULL;

        CO_BLOCK(ctx) {
            CO_BLOCK(ctx) {
                co_int(ctx, 0);
                x = co_escape(ctx, co_int(ctx, 1));
                y = co_escape(ctx, co_int(ctx, 2));
                co_int(ctx, 3);
            }
            CO_EXPECT_INT(live(ctx), before + 2);
            CO_EXPECT_INT(co_item_int(ctx, x) + co_item_int(ctx, y), 3);
            co_escape(ctx, y);
        }
        CO_EXPECT_INT(live(ctx), before + 1);
        CO_EXPECT_INT(co_item_int(ctx, y), 2);
    }
    CO_EXPECT_INT(live(ctx), before);
    CO_EXPECT_INT(co_item_int(ctx, co_escape(ctx, co_int(ctx, 5))),
                  5); /* without a block: no change */
}

/* Every begin finds its end, with errors in between, and closing frees what is still open. */
CO_TEST(blocks_and_errors_mix, "GEN-ERR-1")
{
    int64_t before = live(ctx);

    CO_BLOCK(ctx) {
        co_int(ctx, 1);
        co_fail(ctx, CO_VALUE_ERROR, "in a block");
        CO_BLOCK(ctx) {
            CO_EXPECT_NULL(co_int(ctx, 2));
            CO_DEVICE(ctx, "/gpu:0") {
                CO_EXPECT_NULL(co_int(ctx, 3));
            }
            co_tape_begin(ctx);
        }
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "in a block");
        CO_EXPECT_INT(live(ctx), before + 1);
        CO_EXPECT_CONTAINS(co_current_device(ctx), "CPU:0");
        co_int(ctx, 4);
    }
    CO_EXPECT_INT(live(ctx), before);
    co_block_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "co_block_begin");
    co_block_begin(ctx); /* left open */
    co_int(ctx, 5);
    co_block_begin(ctx);
    co_device_begin(ctx, "/cpu:0");
    co_tape_begin(ctx);
}

CO_TEST(the_first_error_stays_until_it_is_cleared, "GEN-ERR-1")
{
    const co_error_info *error = co_error(ctx);
    int                  line;

    CO_EXPECT_TRUE(co_ok(ctx));
    CO_EXPECT_CODE(error->code, CO_OK);
    CO_EXPECT_NULL(co_matmul(ctx, co_int(ctx, 1), co_int(ctx, 2)));
    line = __LINE__ - 1;
    CO_EXPECT_FALSE(co_ok(ctx));
    CO_EXPECT_CODE(error->code, CO_INVALID_ARGUMENT);
    CO_EXPECT_STR(error->call, "matmul");
    CO_EXPECT_CONTAINS(error->file, "contexts.c");
    CO_EXPECT_INT(error->line, line);
    CO_EXPECT_INT(error->rank, -1);
    CO_EXPECT_INT(error->replica, -1);
    CO_EXPECT_NULL(strchr(error->message, '\n'));
    CO_EXPECT_NULL(co_int(ctx, 1)); /* nothing is done meanwhile */
    CO_EXPECT_CODE(co_fail(ctx, CO_ABORTED, "later"), CO_INVALID_ARGUMENT);
    CO_EXPECT_STR(error->call, "matmul");
    CO_EXPECT_PTR(co_error(ctx), error);
    co_clear(ctx);
    CO_EXPECT_TRUE(co_ok(ctx));
    CO_EXPECT_STR(error->message, "");
    CO_EXPECT_NOT_NULL(co_int(ctx, 1));
}

CO_TEST(a_wrapper_passes_its_own_site, "")
{
    (co_neg)(co_site(ctx, "wrapper.f90", 12), NULL);
    CO_EXPECT_STR(co_error(ctx)->file, "wrapper.f90");
    CO_EXPECT_INT(co_error(ctx)->line, 12);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (x) of neg is NULL");
    CO_EXPECT_NULL(co_site(NULL, "x", 1));
}

static void
count_delete(void *payload)
{
    ++*(int *)payload;
}

CO_TEST(user_code_fails_with_code_message_and_payload, "C-FN-2 GEN-ERR-2")
{
    int deletes = 0;

    CO_EXPECT_CODE(co_fail(ctx, CO_STOP_ITERATION, "at %d of %s", 3, "all"), CO_STOP_ITERATION);
    CO_EXPECT_STR(co_error(ctx)->message, "at 3 of all");
    CO_EXPECT_ERROR(ctx, CO_STOP_ITERATION, NULL);
    CO_EXPECT_CODE(co_fail_with(ctx, CO_VALUE_ERROR, &deletes, count_delete, "with %s", "payload"),
                   CO_VALUE_ERROR);
    CO_EXPECT_PTR(co_error(ctx)->payload, &deletes);
    CO_EXPECT_INT(deletes, 0);
    /* A second one is not taken, and goes at once. */
    CO_EXPECT_CODE(co_fail_with(ctx, CO_TYPE_ERROR, &deletes, count_delete, "second"),
                   CO_VALUE_ERROR);
    CO_EXPECT_INT(deletes, 1);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "with payload");
    CO_EXPECT_INT(deletes, 2);
    CO_EXPECT_CODE(co_fail_with(ctx, CO_VALUE_ERROR, &deletes, NULL, "no deleter"), CO_VALUE_ERROR);
    CO_EXPECT_CODE(co_fail_with(ctx, CO_TYPE_ERROR, &deletes, NULL, "second"), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no deleter");
    CO_EXPECT_CODE(co_fail_with(ctx, CO_VALUE_ERROR, NULL, count_delete, "no payload"),
                   CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "no payload");
    CO_EXPECT_CODE(co_fail_with(NULL, CO_VALUE_ERROR, &deletes, count_delete, "no context"),
                   CO_INVALID_ARGUMENT);
    CO_EXPECT_INT(deletes, 3);
}

static void
clear_again(void *payload)
{
    co_context *ctx = payload;

    co_clear(ctx);
    CO_EXPECT_NOT_NULL(co_int(ctx, 1) == NULL ? ctx : payload);
}

CO_TEST(a_deleter_may_use_the_context, "")
{
    co_fail_with(ctx, CO_VALUE_ERROR, ctx, clear_again, "payload");
    co_clear(ctx);
    CO_EXPECT_TRUE(co_ok(ctx));
}

CO_TEST(failing_wrongly_is_an_error_too, "")
{
    CO_EXPECT_CODE(co_fail(ctx, CO_OK, "no error"), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "CO_OK");
    CO_EXPECT_CODE(co_fail_with(ctx, CO_OK, NULL, NULL, "no error"), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "CO_OK");
    CO_EXPECT_CODE((co_fail)(ctx, CO_TYPE_ERROR, NULL), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "format");
    CO_EXPECT_CODE(co_fail(ctx, (co_code)999, "odd"), CO_UNKNOWN);
    CO_EXPECT_ERROR(ctx, CO_UNKNOWN, "odd");
    CO_EXPECT_CODE(co_fail(NULL, CO_VALUE_ERROR, "nobody"), CO_INVALID_ARGUMENT);
    CO_EXPECT_FALSE(co_ok(NULL));
    CO_EXPECT_CODE(co_error(NULL)->code, CO_INVALID_ARGUMENT);
    co_clear(NULL);
}

/* A message of any length, with any bytes, is one line of text. */
CO_TEST(messages_are_cut_and_made_safe, "")
{
    char large[3000];

    memset(large, 'm', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    co_fail(ctx, CO_VALUE_ERROR, "%s", large);
    CO_EXPECT_INT(strlen(co_error(ctx)->message), sizeof(co_error(ctx)->message) - 1);
    co_clear(ctx);
    co_fail(ctx, CO_VALUE_ERROR, "two\nlines\x01");
    CO_EXPECT_STR(co_error(ctx)->message, "two lines?");
    co_clear(ctx);
}

CO_TEST(devices_are_named_through_the_context, "DEV-2 DEV-3 DEV-6 C-CTX-1")
{
    char name[CO_DEVICE_NAME_MAX];

    CO_EXPECT_CODE(co_device_resolve(ctx, "", name), CO_OK);
    CO_EXPECT_STR(name, "/job:localhost/replica:0/task:0/device:CPU:0");
    CO_EXPECT_CODE(co_device_resolve(ctx, NULL, name), CO_OK);
    CO_EXPECT_STR(name, co_current_device(ctx));
    CO_DEVICE(ctx, "/job:worker/task:3/gpu:1") {
        CO_EXPECT_STR(co_current_device(ctx), "/job:worker/replica:0/task:3/device:GPU:1");
        co_device_resolve(ctx, "", name);
        CO_EXPECT_STR(name, "/job:worker/replica:0/task:3/device:GPU:1");
        co_device_resolve(ctx, "/cpu:*", name); /* the wildcard counts as missing */
        CO_EXPECT_CONTAINS(name, "/job:worker/replica:0/task:3/device:CPU:");
        CO_DEVICE(ctx, "/task:1") {
            CO_EXPECT_STR(co_current_device(ctx), "/job:worker/replica:0/task:1/device:GPU:1");
        }
        CO_EXPECT_STR(co_current_device(ctx), "/job:worker/replica:0/task:3/device:GPU:1");
    }
    CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:0");
    CO_EXPECT_CODE(co_device_resolve(ctx, "/foo:0", name), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "foo");
    CO_EXPECT_CODE(co_device_resolve(ctx, "/device:foo:0", name), CO_ASSERTION_ERROR);
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR, "foo");
    CO_EXPECT_CODE(co_device_resolve(ctx, "/cpu:0", NULL), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (out)");
}

/* Operators without operands ask for the device too. */
CO_TEST(nothing_is_made_on_a_device_that_is_not_there, "DEV-5")
{
    co_device_begin(ctx, "/job:worker/replica:0/task:3/device:CPU:0");
    CO_EXPECT_NULL(co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "/job:worker/replica:0/task:3/device:CPU:0");
    CO_EXPECT_NULL(co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(2), 0, 1));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "/job:worker");
    co_device_end(ctx);
    CO_EXPECT_NOT_NULL(co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2)));
}

CO_TEST(a_device_that_is_not_there_fails_at_first_use, "DEV-5")
{
    co_value *x = co_scalar_float(ctx, 1);

    CO_DEVICE(ctx, "/gpu:7") {
        CO_EXPECT_TRUE(co_ok(ctx));
        CO_EXPECT_NULL(co_add(ctx, x, x));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "GPU:7");
        CO_EXPECT_NULL(co_scalar_float(ctx, 1));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "CPU:0"); /* what there is */
        CO_EXPECT_CODE(co_declare_devices(ctx, "GPU", 8), CO_OK);
        CO_EXPECT_CONTAINS(co_value_device(ctx, co_add(ctx, x, x)), "GPU:7"); /* now there is one */
    }
    CO_EXPECT_NULL(co_copy_to(ctx, x, "/gpu:8"));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "GPU:8");
    CO_EXPECT_CONTAINS(co_value_device(ctx, co_copy_to(ctx, x, "/gpu:2")), "GPU:2");
    CO_EXPECT_PTR(co_copy_to(ctx, co_none(ctx), "/gpu:2"), NULL);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "none");
}

CO_TEST_WITH(operands_come_to_the_device_of_the_call, "", "cpus=2, devices=GPU:1")
{
    co_value *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(40), (const float[40]){ 2, 3 });

    CO_DEVICE(ctx, "/gpu:0") {
        co_value *y = co_mul(ctx, x, co_int(ctx, 2));

        CO_EXPECT_CONTAINS(co_value_device(ctx, y), "GPU:0");
        CO_EXPECT_CLOSE(((const float *)co_value_data(ctx, y))[1], 6, 0);
        CO_EXPECT_CONTAINS(co_value_device(ctx, co_reshape(ctx, x, CO_SHAPE(8, 5))), "GPU:0");
    }
    CO_EXPECT_CONTAINS(co_value_device(ctx, x), "CPU:0");
    CO_EXPECT_PTR(co_value_data(ctx, co_copy_to(ctx, x, "cpu:1")),
                  co_value_data(ctx, x)); /* both on the host */
}

CO_TEST(device_blocks_end_in_order, "")
{
    co_device_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "innermost");
    co_device_begin(ctx, "/nonsense:x");
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    co_device_end(ctx); /* of the begin that failed */
    CO_EXPECT_OK(ctx);
    co_device_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "innermost");
}

CO_TEST_WITH(scopes_are_left_before_the_device_around_them, "SCOPE-9 SET-11", "cpus=2")
{
    co_strategy *one = co_one_device_strategy(ctx, "/cpu:1");
    co_scope     scope;

    co_device_begin(ctx, "/cpu:1");
    scope = co_scope_begin(ctx, one);
    co_device_end(ctx);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "reverse order");
    CO_EXPECT_CODE(co_scope_end(ctx, &scope), CO_OK);
    co_device_end(ctx);
    /* A device that had no name changed nothing, and gives nothing back from under a strategy that
     * was set. */
    co_device_begin(ctx, "/nonsense:x");
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    co_experimental_set_strategy(ctx, one);
    co_device_end(ctx);
    CO_EXPECT_PTR(co_get_strategy(ctx), one);
    CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:0");
    CO_EXPECT_CODE(co_experimental_set_strategy(ctx, NULL), CO_OK);
    CO_EXPECT_OK(ctx);
}

CO_TEST_WITH(devices_are_listed_and_declared, "", "cpus=2")
{
    co_device_info info = CO_DEVICE_INFO_INIT;
    size_t         n = co_num_devices(ctx);

    CO_EXPECT_INT(n, 2);
    CO_EXPECT_CODE(co_get_device_info(ctx, 1, &info), CO_OK);
    CO_EXPECT_STR(info.name, "/job:localhost/replica:0/task:0/device:CPU:1");
    CO_EXPECT_STR(info.type, "CPU");
    CO_EXPECT_INT(info.index, 1);
    CO_EXPECT_FALSE(info.host_backed);
    CO_EXPECT_CODE(co_declare_devices(ctx, "TPU", 2), CO_OK);
    CO_EXPECT_INT(co_num_devices(ctx), 4);
    CO_EXPECT_CODE(co_get_device_info(ctx, 3, &info), CO_OK);
    CO_EXPECT_TRUE(info.host_backed);
    CO_EXPECT_CODE(co_get_device_info(ctx, 4, &info), CO_OUT_OF_RANGE);
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "there are 4");
    CO_EXPECT_CODE(co_get_device_info(ctx, 0, NULL), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 3 (info)");
    info.struct_size = 0;
    CO_EXPECT_CODE(co_get_device_info(ctx, 0, &info), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "CO_DEVICE_INFO_INIT");
    CO_EXPECT_CODE(co_declare_devices(ctx, NULL, 1), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (type)");
    CO_EXPECT_FALSE(co_declare_devices(ctx, "GPU", -1) == CO_OK);
    CO_EXPECT_ERROR(ctx, co_error(ctx)->code, "-1");
    CO_EXPECT_FALSE(co_declare_devices(ctx, "G P U", 1) == CO_OK);
    CO_EXPECT_ERROR(ctx, co_error(ctx)->code, NULL);
    CO_EXPECT_INT(co_num_devices(ctx), 4);
    CO_EXPECT_INT(co_num_devices(NULL), 0);
}

/* An old program knows fewer fields: what it has is filled, what it has not is left alone. */
CO_TEST(structs_of_older_callers_are_filled_as_far_as_they_go, "")
{
    struct {
        co_device_info info;
        char           behind;
    } old = { CO_DEVICE_INFO_INIT, '#' };
    co_memory_stats stats = { .struct_size = offsetof(co_memory_stats, peak_bytes),
                              .peak_bytes = -5 };

    old.info.struct_size = offsetof(co_device_info, index);
    old.info.index = -77;
    CO_EXPECT_CODE(co_get_device_info(ctx, 0, &old.info), CO_OK);
    CO_EXPECT_STR(old.info.type, "CPU");
    CO_EXPECT_INT(old.info.index, -77);
    CO_EXPECT_INT(old.info.struct_size, offsetof(co_device_info, index));
    old.info.struct_size = sizeof(old) + 1000; /* a newer one */
    CO_EXPECT_CODE(co_get_device_info(ctx, 0, &old.info), CO_OK);
    CO_EXPECT_INT(old.info.index, 0);
    CO_EXPECT_INT(old.behind, '#');
    co_get_memory_stats(ctx, &stats);
    CO_EXPECT_MORE(stats.bytes_in_use, 0);
    CO_EXPECT_INT(stats.peak_bytes, -5);
    co_get_memory_stats(ctx, NULL);
    co_get_memory_stats(NULL, &stats); /* of nothing */
    CO_EXPECT_INT(stats.bytes_in_use, 0);
    CO_EXPECT_INT(stats.peak_bytes, -5);
}

/* --- opening and closing --- */

typedef struct log_book {
    int          lines;
    co_log_level level;
    char         last[400];
} log_book;

static void
write_book(co_log_level level, const char *line, void *user)
{
    log_book *book = user;

    ++book->lines;
    book->level = level;
    snprintf(book->last, sizeof(book->last), "%s", line);
}

CO_TEST_BARE(closing_reports_an_error_that_nobody_cleared, "")
{
    log_book    book = { 0 };
    co_options  options = CO_OPTIONS_INIT;
    co_context *own;

    options.log = write_book;
    options.log_user = &book;
    own = co_open_with(&options);
    co_fail(own, CO_DATA_LOSS, "lost it");
    CO_EXPECT_INT(book.lines, 0);
    CO_EXPECT_CODE(co_close(own), CO_DATA_LOSS);
    CO_EXPECT_INT(book.lines, 1);
    CO_EXPECT_INT(book.level, CO_LOG_ERROR);
    CO_EXPECT_CONTAINS(book.last, "contexts.c:");
    CO_EXPECT_CONTAINS(book.last, "lost it");
    CO_EXPECT_CONTAINS(book.last, "[CO_DATA_LOSS]");
    CO_EXPECT_CODE(co_close(NULL), CO_OK);
}

static co_value *
fail_on_1(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    if (co_replica_id(ctx) == 1)
        co_fail(ctx, CO_ABORTED, "will not");
    return NULL;
}

CO_TEST_BARE(closing_reports_who_saw_the_error, "GEN-ERR-3")
{
    static const char *const two[] = { "/cpu:0", "/cpu:1" };
    log_book                 book = { 0 };
    co_options               options = CO_OPTIONS_INIT;
    co_context              *own;

    options.settings = "cpus=2";
    options.log = write_book;
    options.log_user = &book;
    own = co_open_with(&options);
    co_run(own, co_mirrored_strategy(own, two, 2, NULL), fail_on_1, co_no_args(own), NULL);
    CO_EXPECT_CODE(co_close(own), CO_ABORTED);
    CO_EXPECT_CONTAINS(book.last, "will not (replica 1) [CO_ABORTED]");
}

CO_TEST_BARE(wrong_settings_are_an_error_of_the_context, "")
{
    static const char *const wrong[] = { "cpus=0",      "cpus=x",  "nonsense=1",
                                         "devices=GPU", "isa=z80", "cpus",
                                         "log=loud",    "=",       "cpus=99999999999999999999" };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        log_book    book = { 0 };
        co_options  options = CO_OPTIONS_INIT;
        co_context *own, *other;
        co_code     code;

        options.log = write_book;
        options.log_user = &book;
        options.settings = wrong[i];
        own = co_open_with(&options);
        CO_REQUIRE(own != NULL);
        CO_EXPECT_FALSE(co_ok(own));
        CO_EXPECT_STR(co_error(own)->call, "open");
        code = co_error(own)->code;
        /* Such a context has no device to work on: its error stays, and nothing crashes. */
        co_clear(own);
        CO_EXPECT_FALSE(co_ok(own));
        CO_EXPECT_NULL(co_error(own)->file); /* not where it was cleared */
        CO_EXPECT_NULL(co_add(own, co_int(own, 1), co_int(own, 2)));
        CO_EXPECT_NULL(co_copy_to(own, co_scalar_float(own, 1), "/cpu:0"));
        CO_EXPECT_CODE(co_declare_devices(own, "GPU", 1), code);
        CO_EXPECT_INT(co_num_devices(own), 0);
        CO_DEVICE(own, "/gpu:1") {
            CO_EXPECT_NULL(co_zeros(own, CO_FLOAT32, NULL, 0));
        }
        CO_BLOCK(own) {
            CO_EXPECT_NULL(co_variable(own, co_int(own, 1), NULL));
        }
        CO_EXPECT_NULL(co_one_device_strategy(own, "/cpu:0"));
        other = co_open_beside(own);
        CO_EXPECT_FALSE(co_ok(other));
        CO_EXPECT_CODE(co_close(other), code);
        CO_EXPECT_CODE(co_close(own), code);
        CO_EXPECT_INT(book.lines, 1); /* the one of who has not cleared it */
    }
}

CO_TEST_BARE(options_are_checked, "")
{
    static const co_allocator half = { test_hooks_alloc, NULL, NULL },
                              other_half = { NULL, test_hooks_free, NULL };
    co_options  options = { 0 };
    co_context *own = co_open_with(&options);

    CO_EXPECT_CODE(co_error(own)->code, CO_INVALID_ARGUMENT);
    CO_EXPECT_CONTAINS(co_error(own)->message, "CO_OPTIONS_INIT");
    options.struct_size = sizeof(options);
    options.log = write_book;
    options.log_user = &(log_book){ 0 };
    CO_EXPECT_CODE(co_close(own), CO_INVALID_ARGUMENT);
    options.allocator = &half;
    own = co_open_with(&options);
    CO_EXPECT_CODE(co_error(own)->code, CO_INVALID_ARGUMENT);
    CO_EXPECT_CONTAINS(co_error(own)->message, "no free");
    CO_EXPECT_CODE(co_close(own), CO_INVALID_ARGUMENT);
    options.allocator = &other_half;
    own = co_open_with(&options);
    CO_EXPECT_CONTAINS(co_error(own)->message, "no alloc");
    CO_EXPECT_CODE(co_close(own), CO_INVALID_ARGUMENT);
    own = co_open_with(NULL);
    CO_EXPECT_TRUE(co_ok(own));
    CO_EXPECT_CODE(co_close(own), CO_OK);
    /* An old program's options end earlier. */
    options = (co_options){ offsetof(co_options, allocator), "cpus=2", NULL, NULL, &half };
    own = co_open_with(&options);
    CO_EXPECT_TRUE(co_ok(own));
    CO_EXPECT_INT(co_num_devices(own), 2);
    CO_EXPECT_CODE(co_close(own), CO_OK);
}

CO_TEST_BARE(all_memory_comes_from_the_allocator_and_goes_back, "")
{
    test_hooks      hooks;
    co_options      options = CO_OPTIONS_INIT;
    co_context     *own;
    co_memory_stats stats = CO_MEMORY_STATS_INIT;

    test_hooks_init(&hooks, 0);
    options.allocator = &hooks.allocator;
    own = co_open_with(&options);
    co_get_memory_stats(own, &stats);
    CO_EXPECT_INT(stats.bytes_in_use, hooks.bytes);
    CO_BLOCK(own) {
        co_zeros(own, CO_FLOAT32, CO_SHAPE(1000));
        co_string(own, "text");
    }
    co_get_memory_stats(own, &stats);
    CO_EXPECT_INT(stats.bytes_in_use, hooks.bytes);
    CO_EXPECT_INT(stats.system_allocations, hooks.requests);
    CO_EXPECT_MORE(stats.peak_bytes, 4000);
    CO_EXPECT_CODE(co_close(own), CO_OK);
    CO_EXPECT_INT(hooks.blocks, 0);
    CO_EXPECT_INT(hooks.bytes, 0);
}

static void *
no_memory(size_t nbytes, size_t alignment, void *user)
{
    (void)user;
    (void)nbytes;
    (void)alignment;
    return NULL;
}

static void *
crooked_alloc(size_t nbytes, size_t alignment, void *user)
{
    char *block = malloc(nbytes + alignment + 1);

    (void)user;
    return block != NULL ? block + (alignment + 1 - (uintptr_t)block % alignment) : NULL;
}

static void
crooked_free(void *memory, size_t nbytes, void *user)
{
    (void)user;
    (void)memory;
    (void)nbytes; /* where the block began is lost; it is small and there is one */
}

CO_TEST_BARE(an_allocator_without_memory_gives_no_context, "")
{
    static const co_allocator none = { no_memory, crooked_free, NULL };
    static const co_allocator crooked = { crooked_alloc, crooked_free, NULL };
    co_options                options = CO_OPTIONS_INIT;

    options.allocator = &none;
    CO_EXPECT_NULL(co_open_with(&options));
    if (!TEST_SANITIZED) { /* its blocks leak */
        options.allocator = &crooked;
        CO_EXPECT_NULL(co_open_with(&options)); /* memory that is not aligned is none */
    }
}

CO_TEST(users_find_their_pointer_again, "")
{
    int mine;

    CO_EXPECT_NULL(co_user(ctx));
    co_set_user(ctx, &mine);
    CO_EXPECT_PTR(co_user(ctx), &mine);
    co_set_user(NULL, &mine);
    CO_EXPECT_NULL(co_user(NULL));
}

typedef struct setting_book {
    int  count;
    char cpus[16], source[16];
} setting_book;

static void
write_setting(const char *name, const char *value, const char *source, const char *help, void *user)
{
    setting_book *book = user;

    ++book->count;
    CO_EXPECT_MORE(strlen(help), 10);
    if (strcmp(name, "cpus") == 0) {
        snprintf(book->cpus, sizeof(book->cpus), "%s", value);
        snprintf(book->source, sizeof(book->source), "%s", source);
    }
}

CO_TEST_WITH(settings_can_be_looked_at, "", "cpus=3")
{
    setting_book book = { 0 };

    co_settings_visit(ctx, write_setting, &book);
    CO_EXPECT_STR(book.cpus, "3");
    CO_EXPECT_STR(book.source, "program");
    CO_EXPECT_MORE(book.count, 8);
    co_settings_visit(ctx, NULL, NULL);
    co_settings_visit(NULL, write_setting, &book);
}

/* --- several contexts --- */

typedef struct worker {
    co_context *ctx;
    co_value   *shared;
    double      sum;
} worker;

static void *
work(void *arg)
{
    worker *w = arg;

    for (int i = 0; i < 300; ++i)
        CO_BLOCK(w->ctx) {
            co_value *y = co_mul(w->ctx, w->shared, co_float(w->ctx, i));

            co_list(w->ctx, (co_value *const[]){ y, w->shared }, 2);
            w->sum += co_item_float(w->ctx, y);
        }
    return NULL;
}

/* Values may be used from any context of the runtime while they live; nothing else is shared. */
CO_TEST(contexts_beside_each_other_work_at_the_same_time, "C-CTX-1 CTX-1 CTX-6 THR-1")
{
    enum { N = 4 };
    worker    workers[N];
    pthread_t threads[N];
    co_value *shared = co_scalar_double(ctx, 2);
    int64_t   before;

    CO_DEVICE(ctx, "/cpu:0") {
        for (int i = 0; i < N; ++i) {
            workers[i] = (worker){ co_open_beside(ctx), shared, 0 };
            CO_REQUIRE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
        }
        work(&(worker){ ctx, shared, 0 });
    }
    for (int i = 0; i < N; ++i)
        pthread_join(threads[i], NULL);
    before = live(ctx);
    for (int i = 0; i < N; ++i) {
        CO_EXPECT_CLOSE(workers[i].sum, 2.0 * 299 * 300 / 2, 0);
        CO_EXPECT_CODE(co_close(workers[i].ctx), CO_OK);
    }
    CO_EXPECT_INT(live(ctx), before);
}

static void *
look_around(void *arg)
{
    co_context *own = co_open_beside(arg);

    CO_EXPECT_FALSE(co_has_strategy(own));
    CO_EXPECT_FALSE(co_in_cross_replica_context(own));
    CO_EXPECT_CONTAINS(co_current_device(own), "CPU:0");
    CO_EXPECT_NULL(co_gradient(own, co_int(own, 1), co_int(own, 1)));
    CO_EXPECT_ERROR(own, CO_RUNTIME_ERROR, "no open tape");
    CO_EXPECT_CODE(co_close(own), CO_OK);
    return NULL;
}

CO_TEST_WITH(a_new_context_starts_in_default_mode, "C-CTX-1 CTX-6", "cpus=2")
{
    co_strategy *strategy = co_one_device_strategy(ctx, "/cpu:1");
    pthread_t    thread;

    CO_SCOPE(ctx, strategy) {
        CO_DEVICE(ctx, "/cpu:1") {
            co_tape_begin(ctx);
            CO_REQUIRE(pthread_create(&thread, NULL, look_around, ctx) == 0);
            pthread_join(thread, NULL);
            CO_EXPECT_TRUE(co_has_strategy(ctx));
            CO_EXPECT_CONTAINS(co_current_device(ctx), "CPU:1");
            co_tape_end(ctx);
        }
    }
}

/* The runtime lives as long as one context of it, whichever was first. */
CO_TEST_BARE(contexts_close_in_any_order, "")
{
    co_context *first = co_open("cpus=2"), *second = co_open_beside(first);
    co_context *third = co_open_beside(second);
    co_value   *x;

    CO_EXPECT_CODE(co_close(first), CO_OK);
    x = co_add(second, co_int(second, 1), co_int(second, 2));
    CO_EXPECT_INT(co_item_int(third, x), 3);
    co_keep(third, x);
    CO_EXPECT_CODE(co_close(second), CO_OK);
    CO_EXPECT_INT(co_item_int(third, x), 3); /* kept beyond its context */
    co_release(third, x);
    CO_EXPECT_INT(live(third), 0);
    CO_EXPECT_CODE(co_close(third), CO_OK);
    CO_EXPECT_NULL(co_open_beside(NULL));
}

CO_TEST(live_values_are_counted_over_all_contexts, "")
{
    co_context *other = co_open_beside(ctx);
    int64_t     before = live(ctx);
    co_value   *x = co_int(other, 1);

    CO_EXPECT_INT(live(ctx), before + 1);
    co_keep(ctx, x);
    co_close(other);
    CO_EXPECT_INT(live(ctx), before + 1);
    co_release(ctx, x); /* made there, freed here */
    CO_EXPECT_INT(live(ctx), before);
}

/* --- nothing from the system in steady state --- */

static int64_t
allocations(co_context *ctx)
{
    co_memory_stats stats = CO_MEMORY_STATS_INIT;

    co_get_memory_stats(ctx, &stats);
    return stats.system_allocations;
}

/* Structures, strings and tensors of many sizes, a tape and a gradient: one step of anything. */
static void
any_step(co_context *ctx, int i)
{
    co_value *x = co_ones(ctx, CO_FLOAT32, (const int64_t[]){ 1 + i % 300 }, 1), *y = x;
    co_value *items[40];
    char      text[3000];

    memset(text, 'x', sizeof(text));
    co_bytes(ctx, text, (size_t)(i * 37) % sizeof(text));
    co_tape_begin(ctx);
    co_watch(ctx, x);
    for (int k = 0; k < 400; ++k)
        y = co_mul(ctx, y, x);
    co_gradient(ctx, y, x);
    for (int k = 0; k < 40; ++k)
        items[k] = y;
    co_flatten(ctx, co_list(ctx, items, (size_t)(i % 40)));
}

CO_TEST(a_step_that_repeats_asks_the_system_for_nothing, "")
{
    int64_t before = 0;

#ifdef COI_DEBUG
    CO_SKIP("debug builds keep dead values for a while");
#endif
    if (TEST_SANITIZED)
        CO_SKIP("in sanitized builds every value is an allocation");
    for (int i = 0; i < 900; ++i) {
        if (i == 300)
            before = allocations(ctx);
        CO_BLOCK(ctx) {
            any_step(ctx, i % 300);
        }
    }
    CO_EXPECT_INT(allocations(ctx) - before, 0);
}

typedef struct pipe_ends {
    co_context     *maker, *user;
    pthread_mutex_t lock;
    pthread_cond_t  change;
    co_value       *slot;
    int             rounds;
} pipe_ends;

static void *
make_values(void *arg)
{
    pipe_ends *p = arg;

    for (int i = 0; i < p->rounds; ++i) {
        co_value *list = NULL;

        CO_BLOCK(p->maker) {
            co_value *items[20];

            for (int k = 0; k < 20; ++k)
                items[k] = co_add(p->maker, co_int(p->maker, i), co_int(p->maker, k));
            list = co_list(p->maker, items, 20);
            co_keep(p->maker, list);
        }
        pthread_mutex_lock(&p->lock);
        while (p->slot != NULL)
            pthread_cond_wait(&p->change, &p->lock);
        p->slot = list;
        pthread_cond_broadcast(&p->change);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

static void
use_values(pipe_ends *p, int rounds)
{
    for (int i = 0; i < rounds; ++i) {
        co_value *list;

        pthread_mutex_lock(&p->lock);
        while (p->slot == NULL)
            pthread_cond_wait(&p->change, &p->lock);
        list = p->slot;
        p->slot = NULL;
        pthread_cond_broadcast(&p->change);
        pthread_mutex_unlock(&p->lock);
        co_release(p->user, list);
    }
}

/* One context makes what another frees: cells and blocks find their way back. */
CO_TEST(values_that_die_elsewhere_cost_nothing_either, "")
{
    pipe_ends p = { NULL, ctx, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 3000 };
    pthread_t thread;
    int64_t   before;

#ifdef COI_DEBUG
    CO_SKIP("debug builds keep dead values for a while");
#endif
    if (TEST_SANITIZED)
        CO_SKIP("in sanitized builds every value is an allocation");
    p.maker = co_open_beside(ctx);
    CO_REQUIRE(pthread_create(&thread, NULL, make_values, &p) == 0);
    use_values(&p, 1000);
    before = allocations(ctx);
    use_values(&p, 2000);
    CO_EXPECT_INT(allocations(ctx) - before, 0);
    pthread_join(thread, NULL);
    co_close(p.maker);
    CO_EXPECT_INT(live(ctx), 0);
}

CO_TEST_BARE(build_facts_can_be_looked_at, "")
{
    co_build_visit(NULL, NULL);
    CO_EXPECT_STR(co_version(), CO_VERSION);
}
