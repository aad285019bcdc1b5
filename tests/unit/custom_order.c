/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which creators and the hook of an own strategy come to a variable. */
#include "engine_support.h"

#include <string.h>

/* One letter for each call, in order; "i", "s" and "o" for creators in a step, in the scope and
 * outside, "h" for the hook. */
typedef struct order {
    char   calls[32];
    size_t n;
} order;

typedef struct named {
    order *order;
    char   name;
} named;

static void
note(order *o, char name)
{
    if (o->n + 1 < sizeof(o->calls))
        o->calls[o->n++] = name;
}

static co_value *
creator(co_context *ctx, co_creation *next, co_value *initial, const co_variable_options *options,
        void *user)
{
    const named *self = user;

    note(self->order, self->name);
    return co_creator_next(ctx, next, co_add(ctx, initial, co_float(ctx, 1)), options);
}

static co_value *
hook(co_context *ctx, co_strategy *strategy, co_value *initial, const co_variable_options *options,
     void *data)
{
    (void)strategy;
    note(data, 'h');
    return co_variable(ctx, co_mul(ctx, initial, co_float(ctx, 10)), options);
}

static co_strategy *
hooked(co_context *ctx, order *o)
{
    static const char *const two[] = { "/cpu:0", "/cpu:1" };
    co_strategy_definition   mine = CO_STRATEGY_DEFINITION_INIT;
    co_placement             places = CO_PLACEMENT_INIT;

    places.num_replicas = 2;
    places.devices = two;
    mine.name = "Hooked";
    mine.placement = &places;
    mine.variable = hook;
    mine.data = o;
    return co_define_strategy(ctx, &mine);
}

/* 1, then + 1 and + 1 in the scope, times 10, and each component + 1; the second begins with the
 * value of the first. */
CO_TEST_WITH(the_hook_comes_after_creators_of_the_scope, "VAR-CREATOR-1 SCOPE-2", "cpus=2")
{
    order        o = { .n = 0 };
    named        outer = { &o, 'o' }, inner = { &o, 's' }, last = { &o, 't' };
    co_strategy *s = hooked(ctx, &o);
    co_value    *v = NULL;

    CO_CREATOR(ctx, creator, &outer) {
        CO_SCOPE(ctx, s) {
            CO_CREATOR(ctx, creator, &inner)
                CO_CREATOR(ctx, creator, &last)
                    v = co_variable(ctx, co_scalar_float(ctx, 1), NULL);
        }
    }
    CO_EXPECT_STR(o.calls, "tshoo");
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, co_local_results(ctx, s, v), 0)), 31, 0);
    CO_EXPECT_OK(ctx);
}

static co_value *
make_in_step(co_context *ctx, co_value *args, void *user)
{
    named own = { user, 'i' };
    order quiet = { .n = 0 };

    (void)args;
    if (co_replica_id(ctx) != 0)
        own.order = &quiet; /* the other replica calls at the same time */
    CO_CREATOR(ctx, creator, &own)
        co_variable(ctx, co_scalar_float(ctx, 1), NULL);
    CO_EXPECT_STR(quiet.calls, co_replica_id(ctx) != 0 ? "i" : "");
    return NULL;
}

CO_TEST_WITH(in_a_step_the_hook_is_called_once_for_all_replicas, "VAR-CREATOR-1 VAR-RUN-1",
             "cpus=2")
{
    order        o = { .n = 0 };
    named        outer = { &o, 'o' }, inner = { &o, 's' };
    co_strategy *s = hooked(ctx, &o);

    CO_CREATOR(ctx, creator, &outer) {
        CO_SCOPE(ctx, s) {
            CO_CREATOR(ctx, creator, &inner)
                co_run(ctx, s, make_in_step, co_no_args(ctx), &o);
        }
    }
    CO_EXPECT_STR(o.calls, "ishoo");
    CO_EXPECT_OK(ctx);
}
