/* SPDX-License-Identifier: Apache-2.0 */
/* A component leads to its variable as long as that lives, whoever releases it meanwhile. */
#include "engine_support.h"

#include <pthread.h>
#include <stdatomic.h>

#define ROUNDS 300

/* What a thread with a context of its own looks at. */
typedef struct looking {
    co_context       *ctx;
    co_strategy      *strategy;
    co_value         *component;
    pthread_barrier_t start, end;
    atomic_int        alive, gone;
} looking;

static void *
look(void *arg)
{
    looking *l = arg;

    for (int i = 0; i < ROUNDS; ++i) {
        pthread_barrier_wait(&l->start);
        for (int k = 0; k < 20; ++k)
            CO_BLOCK(l->ctx) {
                co_value *found = co_value_container(l->ctx, l->strategy, l->component);

                atomic_fetch_add(found == l->component ? &l->gone : &l->alive, 1);
                CO_EXPECT_STR(co_variable_name(l->ctx, found), "w");
                CO_EXPECT_CLOSE(co_item_float(l->ctx, co_variable_read(l->ctx, found)), 2, 0);
            }
        pthread_barrier_wait(&l->end);
    }
    CO_EXPECT_OK(l->ctx);
    return NULL;
}

CO_TEST_WITH(a_container_is_released_while_another_thread_asks_for_it, "EXT-VC-1", "cpus=2")
{
    co_strategy        *s = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    looking             l = { .ctx = co_open_beside(ctx), .strategy = s };
    pthread_t           thread;

    options.name = "w";
    pthread_barrier_init(&l.start, NULL, 2);
    pthread_barrier_init(&l.end, NULL, 2);
    CO_REQUIRE(pthread_create(&thread, NULL, look, &l) == 0);
    for (int i = 0; i < ROUNDS; ++i) {
        CO_BLOCK(ctx) {
            co_value *v = NULL;

            CO_SCOPE(ctx, s)
                v = co_variable(ctx, co_float(ctx, 2), &options);
            l.component = co_at(ctx, co_local_results(ctx, s, v), 0);
            co_keep(ctx, l.component);
            pthread_barrier_wait(&l.start);
        } /* its last reference but for those of the other thread */
        pthread_barrier_wait(&l.end);
        CO_EXPECT_TRUE(co_value_container(ctx, s, l.component) == l.component);
        co_release(ctx, l.component);
    }
    pthread_join(thread, NULL);
    CO_EXPECT_INT(l.alive + l.gone, 20 * ROUNDS);
    CO_EXPECT_CODE(co_close(l.ctx), CO_OK);
    pthread_barrier_destroy(&l.start);
    pthread_barrier_destroy(&l.end);
}

/* A creator outside the scope that gives the components of one variable to another. */
static co_value *
give_again(co_context *ctx, co_creation *next, co_value *initial,
           const co_variable_options *options, void *user)
{
    (void)next;
    (void)initial;
    (void)options;
    return co_at(ctx, user, 0);
}

CO_TEST_WITH(a_component_is_part_of_one_variable, "VAR-CREATOR-1", "cpus=2")
{
    co_strategy *s = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *v = NULL, *parts;

    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_float(ctx, 2), NULL);
    parts = co_local_results(ctx, s, v);
    CO_CREATOR(ctx, give_again, parts) {
        CO_SCOPE(ctx, s)
            CO_EXPECT_NULL(co_variable(ctx, co_float(ctx, 1), NULL));
    }
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "part of no other");
    CO_EXPECT_TRUE(co_value_container(ctx, s, co_at(ctx, parts, 1)) == v);
}
