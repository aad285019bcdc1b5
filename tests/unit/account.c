/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The account of what observers are told (account.h) agrees with what happened where everything
 * goes through the executor, and does not where something is made to go round it: a write into a
 * variable, a rendezvous, a random counter, memory for a tensor, a message. The conformance suite
 * runs with the same account.
 */
#include "account.h"
#include "engine_support.h"
#include "strategy/rendezvous.h"
#include "variable/variable.h"
#include "workers_support.h"

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

    CO_REQUIRE(account_begin(&books, ctx));
    s = work(ctx, &m);
    co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1);
    co_dropout(ctx, co_exp(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(5, 20))), 0.5);
    CO_EXPECT_MORE(books.num_writes, 10);
    CO_EXPECT_INT(books.collectives, 6);
    CO_EXPECT_INT(books.draws, 8);
    CO_EXPECT_MORE(books.blocks, 0);
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

CO_TEST(a_counter_that_moves_by_itself_is_found, "")
{
    CO_REQUIRE(account_begin(&books, ctx));
    co_random_normal(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1);
    co_set_seed(ctx, 7);
    co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(3), 0, 1);
    CO_EXPECT_INT(books.draws, 2);
    ++ctx->random_counter;
    CO_EXPECT_INT(account_end(&books, ctx, NULL), 1);
}

static co_value *
move_counter(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), 0, 1);
    ctx->random_counter += ctx->mode.local_replica == 1;
    return co_random_uniform(ctx, CO_FLOAT32, CO_SHAPE(2), 0, 1);
}

CO_TEST(a_counter_of_a_replica_that_moves_by_itself_is_found, "")
{
    model        m;
    co_strategy *s;

    CO_REQUIRE(account_begin(&books, ctx));
    s = work(ctx, &m);
    co_run(ctx, s, move_counter, co_no_args(ctx), NULL);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(account_end(&books, ctx, s), 1);
}

/* Without a pool: what is small enough is in the cell of its tensor. */
CO_TEST(a_tensor_that_is_made_outside_an_entry_is_found, "")
{
    int64_t   dims[1] = { 100 };
    co_value *made;

    CO_REQUIRE(account_begin(&books, ctx));
    co_add(ctx, co_ones(ctx, CO_FLOAT32, dims, 1), co_float(ctx, 1));
    made = coi_give(ctx, coi_tensor_new(&ctx->heap, ctx->device, CO_FLOAT32, dims, 1, 100,
                                        coi_err(ctx)));
    CO_EXPECT_NOT_NULL(made);
    CO_EXPECT_INT(account_end(&books, ctx, NULL), 1);
}

static co_value *
widen(co_context *ctx, co_value *element, void *user)
{
    (void)user;
    return co_mul(ctx, co_cast(ctx, element, CO_FLOAT32), co_ones(ctx, CO_FLOAT32, CO_SHAPE(50)));
}

/* Elements in batches, on this thread and on threads that prefetch, saved and restored. */
CO_TEST(elements_of_datasets_are_accounted_for, "")
{
    co_dataset  *dataset;
    co_iterator *iterator, *again;
    co_value    *saved;

    CO_REQUIRE(account_begin(&books, ctx));
    dataset = co_dataset_map(ctx, co_dataset_range(ctx, 0, 40, 1), widen, NULL,
                             co_spec(ctx, CO_FLOAT32, CO_SHAPE(50)));
    dataset = co_dataset_prefetch(ctx, co_dataset_batch(ctx, dataset, 4, false), 2);
    iterator = co_iterate(ctx, co_dataset_batch(ctx, dataset, 2, false));
    co_next(ctx, iterator);
    saved = co_iterator_save(ctx, iterator);
    again = co_iterator_restore(ctx, co_dataset_batch(ctx, dataset, 2, false), saved);
    for (int i = 0; i < 4; ++i)
        CO_EXPECT_INT(co_value_num_elements(ctx, co_next(ctx, i % 2 == 0 ? iterator : again)), 400);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_MORE(books.blocks, 40);
    CO_EXPECT_INT(account_end(&books, ctx, NULL), 0);
}

/* What is made of bytes of others: strings, lists, slices, examples. */
CO_TEST(tensors_of_other_data_are_accounted_for, "")
{
    static const void *const words[] = { "a word", "another" };
    static const char *const keys[] = { "floats", "words" };
    float                    numbers[100] = { 1, 2, 3 };
    int64_t                  at[1] = { 3 }, dense[2] = { 9, 100 };
    co_value                *x, *strings, *items[2];

    CO_REQUIRE(account_begin(&books, ctx));
    x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(100), numbers);
    strings = co_tensor(ctx, CO_STRING, CO_SHAPE(2), words);
    items[0] = items[1] = x;
    co_to_tensor(ctx, co_list(ctx, items, 2), CO_DTYPE_NONE);
    co_neg(ctx, co_slices(ctx, co_reshape(ctx, x, CO_SHAPE(1, 100)),
                          co_tensor(ctx, CO_INT64, CO_SHAPE(1), at),
                          co_tensor(ctx, CO_INT64, CO_SHAPE(2), dense)));
    co_concat(ctx, co_list(ctx, (co_value *[]){ strings, strings }, 2), 0);
    co_to_tensor(ctx, co_string(ctx, "a text"), CO_STRING);
    items[1] = strings;
    co_example_decode(ctx, co_example_encode(ctx, co_dict(ctx, keys, items, 2)));
    CO_EXPECT_OK(ctx);
    CO_EXPECT_MORE(books.blocks, 8);
    CO_EXPECT_INT(account_end(&books, ctx, NULL), 0);
}

/* A copy in memory of devices that the host cannot read. */
CO_TEST_WITH(a_copy_between_devices_outside_an_entry_is_found, "", "devices=TEST:2")
{
    for (int goes_round = 0; goes_round < 2; ++goes_round) {
        co_value *x = NULL;
        float     out = 0;

        CO_REQUIRE(account_begin(&books, ctx));
        CO_DEVICE(ctx, "/device:TEST:0")
            x = co_scalar_float(ctx, 3);
        CO_DEVICE(ctx, "/device:TEST:1")
            CO_EXPECT_CLOSE(co_item_float(ctx, co_add(ctx, x, co_float(ctx, 1))), 4, 0);
        CO_EXPECT_MORE(books.copies, 3);
        if (goes_round)
            CO_EXPECT_INT(coi_tensor_download(x, &out, coi_err(ctx)), CO_OK);
        CO_EXPECT_INT(account_end(&books, ctx, NULL), goes_round);
    }
}

static co_value *
train_one(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
}

/* A message between two workers, of an entry of the table or round it. */
static void
send(co_context *ctx, int rank, const co_multi_worker_mirrored_options *options, void *user)
{
    bool         goes_round = *(bool *)user;
    co_strategy *s = co_multi_worker_mirrored_strategy(ctx, options);
    co_value    *one, *sum;
    size_t       nbytes[2] = { 1, 1 };
    char         all[2], mine = 'x';

    CO_REQUIRE(s != NULL && (rank != 0 || account_begin(&books, ctx)));
    if (rank == 0)
        account_watch(&books, s);
    one = co_run(ctx, s, train_one, co_no_args(ctx), NULL);
    sum = co_reduce(ctx, s, CO_REDUCE_SUM, one, NULL, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, sum), 16, 0);
    if (goes_round)
        CO_EXPECT_INT(coi_group_all_gather(s->group, &mine, nbytes, all, -1, coi_err(ctx)), CO_OK);
    if (rank == 0) {
        CO_EXPECT_MORE(books.messages, 3);
        CO_EXPECT_INT(account_end(&books, ctx, s), goes_round);
    }
}

CO_TEST(messages_of_entries_are_accounted_for, "")
{
    test_workers(2, send, &(bool){ false });
}

CO_TEST(a_message_that_goes_round_the_executor_is_found, "")
{
    test_workers(2, send, &(bool){ true });
}
