/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The account of what observers are told (account.h) agrees with what happened where everything
 * goes through the executor, and does not where something is made to go round it: a write into a
 * variable, a rendezvous, a random counter. The conformance suite runs with the same account.
 */
#include "account.h"
#include "engine_support.h"
#include "strategy/rendezvous.h"
#include "variable/variable.h"

static account books;

typedef struct model {
    co_value     *w, *b;
    co_optimizer *optimizer;
} model;

static co_value *
train(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *x = co_at(ctx, args, 0), *y;

    co_tape_begin(ctx);
    y = co_add(ctx, co_mul(ctx, x, m->w), m->b);
    co_minimize(ctx, m->optimizer, co_reduce_mean(ctx, co_square(ctx, y), CO_ALL_AXES, false));
    return co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), 0, 1);
}

static co_strategy *
work(co_context *ctx, model *m)
{
    co_mirrored_options options = CO_MIRRORED_OPTIONS_INIT;
    co_strategy        *s;

    options.num_replicas = 2;
    s = co_mirrored_strategy(ctx, NULL, 0, &options);
    CO_SCOPE(ctx, s) {
        m->w = co_variable(ctx, co_scalar_float(ctx, 2), NULL);
        m->b = co_variable(ctx, co_scalar_float(ctx, 1), NULL);
    }
    m->optimizer = co_adam(ctx, NULL);
    for (int i = 0; i < 3; ++i)
        co_run(ctx, s, train, co_args(ctx, co_scalar_float(ctx, 3)), m);
    co_assign_add(ctx, m->w, co_float(ctx, 1));
    CO_EXPECT_OK(ctx);
    return s;
}

CO_TEST(what_goes_through_the_executor_is_accounted_for, "")
{
    model        m;
    co_strategy *s;
    uint64_t     before = ctx->random_counter;

    CO_REQUIRE(account_begin(&books, ctx));
    s = work(ctx, &m);
    co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1);
    CO_EXPECT_MORE(books.num_writes, 10);
    CO_EXPECT_INT(books.collectives, 6);
    CO_EXPECT_INT(books.draws, 7);
    CO_EXPECT_MORE(ctx->random_counter, before);
    CO_EXPECT_INT(account_end(&books, ctx, s), 0);
}

CO_TEST(a_write_that_goes_round_the_executor_is_found, "")
{
    model        m;
    co_strategy *s;
    co_value    *other, *component;

    CO_REQUIRE(account_begin(&books, ctx));
    s = work(ctx, &m);
    component = m.w->u.variable->components[1];
    other = co_scalar_float(ctx, 99);
    coi_ref(other);
    coi_plain_lock(component);
    coi_plain_unlock(ctx, component, other);
    CO_EXPECT_INT(account_end(&books, ctx, s), 1);
}

static co_value *
go_round(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    if (coi_rendezvous(ctx, COI_RENDEZVOUS_ALL_REDUCE, NULL, NULL, NULL))
        coi_rendezvous_leave(ctx);
    return co_none(ctx);
}

CO_TEST(a_rendezvous_that_goes_round_the_executor_is_found, "")
{
    model        m;
    co_strategy *s;

    CO_REQUIRE(account_begin(&books, ctx));
    s = work(ctx, &m);
    co_run(ctx, s, go_round, co_no_args(ctx), NULL);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(account_end(&books, ctx, s), 1);
}

/* The counter of a context is no public matter, so the conformance suite does not compare it. */
static bool
draws_agree(const co_context *ctx, uint64_t before)
{
    return ctx->random_counter - before == (uint64_t)books.draws;
}

CO_TEST(a_counter_that_moves_by_itself_is_found, "")
{
    uint64_t before = ctx->random_counter;

    CO_REQUIRE(account_begin(&books, ctx));
    co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1);
    co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1);
    CO_EXPECT_INT(books.draws, 2);
    CO_EXPECT_TRUE(draws_agree(ctx, before));
    ++ctx->random_counter;
    CO_EXPECT_FALSE(draws_agree(ctx, before));
    CO_EXPECT_INT(account_end(&books, ctx, NULL), 0);
}
