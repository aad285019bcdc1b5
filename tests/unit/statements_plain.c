/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statement macros in plain C11, without the cleanup attribute. `break` closes at once. What
 * `goto` and `return` leave open is closed by the end of what is around it, and the log says so.
 */
#define COHORT_NO_CLEANUP
#include "statements_support.h"

CO_TEST_BARE(break_closes_at_once_in_plain_c, "SCOPE-9")
{
    expect_closed_at_once(LEAVE_BREAK, LEAVE_BREAK);
}

/* What each way around ends: a statement, or an explicit block. */
static void
around_block(co_context *ctx, int i, leaving how)
{
    CO_BLOCK(ctx)
        leave_statement[i](ctx, how);
}

static void
around_begin(co_context *ctx, int i, leaving how)
{
    co_block_begin(ctx);
    leave_statement[i](ctx, how);
    co_block_end(ctx);
}

static void
around_device(co_context *ctx, int i, leaving how)
{
    CO_DEVICE(ctx, "/cpu:0")
        leave_statement[i](ctx, how);
}

static void
around_each(co_context *ctx, int i, leaving how)
{
    int rounds = 0;

    CO_EACH(ctx, x, co_iterate(ctx, co_dataset_range(ctx, 0, 3, 1))) {
        leave_statement[i](ctx, how);
        CO_EXPECT_INT(co_item_int(ctx, x), rounds++);
        CO_EXPECT_OK(ctx);
    }
    CO_EXPECT_INT(rounds, 3);
}

typedef struct asked {
    int     i;
    leaving how;
} asked;

static co_value *
around_step(co_context *ctx, co_value *args, void *user)
{
    const asked *a = user;

    leave_statement[a->i](ctx, a->how);
    return args;
}

static bool
needs_scope(int i)
{
    return leave_statement[i] == leave_scope || leave_statement[i] == leave_all;
}

static void
around_run(co_context *ctx, int i, leaving how)
{
    asked a = { i, how };

    if (needs_scope(i))
        return; /* no other strategy's can be entered in a step */
    CO_EXPECT_NOT_NULL(
        co_run(ctx, co_one_device_strategy(ctx, "/cpu:0"), around_step, co_no_args(ctx), &a));
}

static co_value *
around_element(co_context *ctx, co_value *x, void *user)
{
    const asked *a = user;

    leave_statement[a->i](ctx, a->how);
    return x;
}

static void
around_function(co_context *ctx, int i, leaving how)
{
    asked       a = { i, how };
    co_dataset *numbers = co_dataset_range(ctx, 0, 3, 1);

    CO_EXPECT_NOT_NULL(
        co_next(ctx, co_iterate(ctx, co_dataset_map(ctx, numbers, around_element, &a,
                                                    co_spec(ctx, CO_INT64, NULL, 0)))));
}

static void (*const around[])(co_context *ctx, int i, leaving how) = {
    around_block, around_begin, around_device, around_each, around_run, around_function,
};

CO_TEST_BARE(the_end_of_what_is_around_closes_what_was_left, "SCOPE-9")
{
    told        t;
    co_context *own = open_with_log(&t);

    for (int k = 0; k < (int)(sizeof(around) / sizeof(around[0])); ++k)
        for (int i = 0; i < NUM_STATEMENTS; ++i)
            for (int how = LEAVE_GOTO; how <= LEAVE_RETURN; ++how)
                CO_BLOCK(own) {
                    int64_t before = live_values(own);
                    int     lines = t.lines;

                    CO_BLOCK(own) {
                        around[k](own, i, (leaving)how);
                        if (!needs_scope(i) || around[k] != around_run)
                            CO_EXPECT_MORE(t.lines, lines);
                        expect_default_mode(own);
                    }
                    CO_EXPECT_OK(own);
                    CO_EXPECT_INT(live_values(own), before);
                }
    CO_EXPECT_CODE(co_close(own), CO_OK);
}

CO_TEST_BARE(the_log_says_where_the_statement_is, "")
{
    told        t;
    co_context *own = open_with_log(&t);

    CO_BLOCK(own)
        leave_scope(own, LEAVE_RETURN);
    CO_EXPECT_INT(t.lines, 1);
    CO_EXPECT_CONTAINS(t.last, "statements_support.h:");
    CO_EXPECT_CONTAINS(t.last, "CO_SCOPE was left by goto or return without its end; it is closed "
                               "with what is around it");
    CO_BLOCK(own)
        leave_all(own, LEAVE_GOTO); /* a block, a scope, a device and a loop */
    CO_EXPECT_INT(t.lines, 5);
    leave_block(own, LEAVE_RETURN); /* nothing is around it but the context */
    CO_EXPECT_INT(t.lines, 5);
    CO_EXPECT_CODE(co_close(own), CO_OK);
    CO_EXPECT_INT(t.lines, 6);
    CO_EXPECT_CONTAINS(t.last, "CO_BLOCK or CO_EACH was left");
}

/* An explicit exit says which scope it means: it closes no other. */
CO_TEST(an_explicit_exit_out_of_order_changes_nothing, "SCOPE-9 SCOPE-14")
{
    co_strategy *s = co_one_device_strategy(ctx, "/cpu:0");
    co_scope     outer;

    CO_BLOCK(ctx) {
        outer = co_scope_begin(ctx, s);
        CO_BLOCK(ctx) {
            CO_SCOPE(ctx, s)
                goto out;
out:
            CO_EXPECT_CODE(co_scope_end(ctx, &outer), CO_RUNTIME_ERROR);
            CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "not the innermost");
            CO_EXPECT_TRUE(co_has_strategy(ctx) && outer.id != 0);
        } /* closes the scope that was left */
        CO_EXPECT_CODE(co_scope_end(ctx, &outer), CO_OK);
        CO_EXPECT_FALSE(co_has_strategy(ctx));
    }
}

/* Neither does the end of a statement close an explicit scope that it is not told of. */
CO_TEST(a_scope_that_was_entered_inside_a_statement_must_be_left_there, "SCOPE-9 SCOPE-14")
{
    co_strategy *s = co_one_device_strategy(ctx, "/cpu:0");
    co_scope     inner = { 0 };

    CO_BLOCK(ctx) {
        CO_SCOPE(ctx, s)
            inner = co_scope_begin(ctx, s);
        CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "reverse order");
        CO_EXPECT_TRUE(co_has_strategy(ctx));
        CO_EXPECT_CODE(co_scope_end(ctx, &inner), CO_OK);
        CO_EXPECT_TRUE(co_has_strategy(ctx));
    } /* closes that of the statement */
    CO_EXPECT_FALSE(co_has_strategy(ctx));
    CO_EXPECT_OK(ctx);
}
