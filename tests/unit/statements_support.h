/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to leave the statement macros, for programs with the cleanup attribute and without it. */
#ifndef COHORT_TEST_STATEMENTS_SUPPORT_H
#define COHORT_TEST_STATEMENTS_SUPPORT_H

#include "test.h"

typedef enum leaving { LEAVE_BREAK, LEAVE_GOTO, LEAVE_RETURN } leaving;

static inline int64_t
live_values(co_context *ctx)
{
    co_memory_stats stats = CO_MEMORY_STATS_INIT;

    co_get_memory_stats(ctx, &stats);
    return stats.live_values;
}

static inline co_value *
pass_on(co_context *ctx, co_creation *next, co_value *initial, const co_variable_options *options,
        void *user)
{
    ++*(int *)user;
    return co_creator_next(ctx, next, initial, options);
}

/* Leave by the way that was asked for: part of the bodies below. */
#define LEAVE(how)                                                                                 \
    if ((how) == LEAVE_BREAK)                                                                      \
        break;                                                                                     \
    if ((how) == LEAVE_GOTO)                                                                       \
        goto out;                                                                                  \
    return

static inline void
leave_block(co_context *ctx, leaving how)
{
    CO_BLOCK(ctx) {
        co_int(ctx, 1);
        LEAVE(how);
    }
out:
    return;
}

static inline void
leave_each(co_context *ctx, leaving how)
{
    CO_EACH(ctx, x, co_iterate(ctx, co_dataset_range(ctx, 0, 5, 1))) {
        if (co_item_int(ctx, x) == 0)
            continue;
        CO_EXPECT_INT(co_item_int(ctx, x), 1);
        LEAVE(how);
    }
out:
    return;
}

static inline void
leave_scope(co_context *ctx, leaving how)
{
    CO_SCOPE(ctx, co_one_device_strategy(ctx, "/cpu:0")) {
        CO_EXPECT_TRUE(co_has_strategy(ctx));
        LEAVE(how);
    }
out:
    return;
}

static inline void
leave_device(co_context *ctx, leaving how)
{
    CO_DEVICE(ctx, "/cpu:1") {
        CO_EXPECT_CONTAINS(co_current_device(ctx), "CPU:1");
        LEAVE(how);
    }
out:
    return;
}

static int creations; /* that the creator below has seen */

static inline void
leave_creator(co_context *ctx, leaving how)
{
    CO_CREATOR(ctx, pass_on, &creations) {
        LEAVE(how);
    }
out:
    return;
}

static inline void
leave_all(co_context *ctx, leaving how)
{
    CO_BLOCK(ctx) {
        CO_SCOPE(ctx, co_one_device_strategy(ctx, "/cpu:0"))
            CO_DEVICE(ctx, "/cpu:1")
                CO_EACH(ctx, x, co_iterate(ctx, co_dataset_range(ctx, 0, 5, 1))) {
                    co_neg(ctx, x);
                    LEAVE(how);
                }
    }
out:
    return;
}

static void (*const leave_statement[])(co_context *ctx, leaving how) = {
    leave_block, leave_each, leave_scope, leave_device, leave_creator, leave_all,
};
enum { NUM_STATEMENTS = sizeof(leave_statement) / sizeof(leave_statement[0]) };

static inline void
expect_default_mode(co_context *ctx)
{
    int seen = creations;

    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_CONTAINS(co_current_device(ctx), "CPU:0");
    CO_BLOCK(ctx)
        co_variable(ctx, co_float(ctx, 1), NULL);
    CO_EXPECT_INT(creations, seen); /* no creator is there */
}

/* Lines of the log that tell of a statement that was left. */
typedef struct told {
    int  lines;
    char last[400];
} told;

static inline void
count_left(co_log_level level, const char *line, void *user)
{
    told *t = user;

    if (level != CO_LOG_WARNING || strstr(line, "closed with what is around it") == NULL)
        return;
    ++t->lines;
    snprintf(t->last, sizeof(t->last), "%s", line);
}

static inline co_context *
open_with_log(told *t)
{
    co_options options = CO_OPTIONS_INIT;

    *t = (told){ 0, "" };
    options.settings = "cpus=2, log=warning";
    options.log = count_left;
    options.log_user = t;
    return co_open_with(&options);
}

/* Every statement, left by each of these ways, closes at once what it has opened: nothing is left
 * for what is around it. */
static inline void
expect_closed_at_once(leaving first, leaving last)
{
    told        t;
    co_context *own = open_with_log(&t);

    for (int i = 0; i < NUM_STATEMENTS; ++i)
        for (int how = (int)first; how <= (int)last; ++how) {
            int64_t before = live_values(own);

            CO_BLOCK(own) { /* for iterators and strategies */
                leave_statement[i](own, (leaving)how);
                expect_default_mode(own);
                if (leave_statement[i] == leave_block)
                    CO_EXPECT_INT(live_values(own), before);
            }
            CO_EXPECT_INT(live_values(own), before);
            CO_EXPECT_OK(own);
        }
    CO_EXPECT_CODE(co_close(own), CO_OK);
    CO_EXPECT_INT(t.lines, 0);
}

#endif
