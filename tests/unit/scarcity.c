/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Want of memory to the block (scarce.h): values, structures, tapes, variables and steps with each
 * request of small blocks refused once, with lists of handles that cannot grow, and with stacks of
 * scopes and blocks that cannot.
 */
#include "context/context.h"
#include "engine_support.h"
#include "scarce.h"

/* --- what is done with little memory --- */

typedef struct ready {
    co_strategy *two, *one;
    co_value    *mean, *first, *on_read, *plain, *rows, *row, *slices, *parts;
} ready;

static ready kept;

static co_value *
variable_of(co_context *ctx, co_strategy *s, co_synchronization sync, co_aggregation aggregation)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;
    co_value           *v = NULL;

    options.synchronization = sync;
    options.aggregation = aggregation;
    CO_SCOPE(ctx, s)
        v = co_variable(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3)), &options);
    return v;
}

static void *
get_ready(co_context *ctx)
{
    static const int64_t index[] = { 1 };
    co_value            *parts[2];

    kept.two = test_mirrored(ctx, 2, -1);
    kept.one = co_one_device_strategy(ctx, "/cpu:0");
    kept.mean = variable_of(ctx, kept.two, CO_SYNC_AUTO, CO_AGGREGATION_MEAN);
    kept.first = variable_of(ctx, kept.two, CO_SYNC_AUTO, CO_AGGREGATION_ONLY_FIRST_REPLICA);
    kept.on_read = variable_of(ctx, kept.two, CO_SYNC_ON_READ, CO_AGGREGATION_SUM);
    kept.plain = co_variable(ctx, co_float(ctx, 3), NULL);
    kept.rows = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3));
    kept.row = co_ones(ctx, CO_FLOAT32, CO_SHAPE(3));
    kept.slices = co_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 3)),
                            co_tensor(ctx, CO_INT64, CO_SHAPE(1), index), NULL);
    for (int i = 0; i < 2; ++i)
        parts[i] = co_fill(ctx, CO_SHAPE(2, 3), co_scalar_float(ctx, (float)i + 1));
    kept.parts = co_per_replica_value(ctx, parts, 2);
    return &kept;
}

static bool
make_values(co_context *ctx, void *prepared)
{
    static const char *const words[] = { "one", "two" };
    static uint8_t           flags[] = { 1, 0, 1 };

    (void)prepared;
    return co_int(ctx, 1) && co_float(ctx, 1) && co_bool(ctx, true) && co_none(ctx) &&
           co_string(ctx, "text") && co_scalar_bool(ctx, true) &&
           co_tensor(ctx, CO_STRING, CO_SHAPE(2), words) &&
           co_tensor_borrow(ctx, CO_BOOL, CO_SHAPE(3), flags, NULL, NULL) &&
           co_spec(ctx, CO_FLOAT32, NULL, 0) && co_slices_values(ctx, kept.slices) &&
           co_slices(ctx, co_slices_values(ctx, kept.slices), co_slices_indices(ctx, kept.slices),
                     NULL);
}

static co_value *
nothing(co_context *ctx, co_value *leaf, void *user)
{
    (void)ctx;
    (void)leaf;
    (void)user;
    return NULL;
}

static bool
make_structures(co_context *ctx, void *prepared)
{
    static const char *const keys[] = { "b", "a" };
    ready                   *r = prepared;
    co_value                *pair[2] = { r->rows, r->parts }, *map, *tuple;

    map = co_dict(ctx, keys, pair, 2);
    tuple = co_named_tuple(ctx, "Pair", keys, pair, 2);
    return map && tuple && co_list(ctx, pair, 2) && co_mirrored_value(ctx, pair, 2) &&
           co_at(ctx, map, 0) && co_pack(ctx, map, co_flatten(ctx, tuple)) &&
           co_map_structure(ctx, map, nothing, NULL) && co_value_spec(ctx, map) &&
           co_value_spec(ctx, r->on_read);
}

static bool
convert(co_context *ctx, void *prepared)
{
    ready    *r = prepared;
    co_value *numbers[2] = { co_int(ctx, 1), co_float(ctx, 2) }, *tensors[2] = { r->rows, r->rows };

    return co_to_tensor(ctx, numbers[0], CO_DTYPE_NONE) &&
           co_to_tensor(ctx, co_string(ctx, "x"), CO_DTYPE_NONE) &&
           co_to_tensor(ctx, co_list(ctx, numbers, 2), CO_DTYPE_NONE) &&
           co_to_tensor(ctx, co_list(ctx, tensors, 2), CO_DTYPE_NONE) &&
           co_to_tensor(ctx, r->plain, CO_DTYPE_NONE);
}

static bool
record(co_context *ctx, void *prepared)
{
    ready    *r = prepared;
    co_value *x = co_add(ctx, r->rows, r->rows), *y, *all, *g;

    co_tape_begin(ctx);
    co_watch(ctx, x);
    y = co_mul(ctx, co_mul(ctx, x, r->plain), x);
    all = co_watched_variables(ctx);
    g = co_gradient(ctx, y, co_args(ctx, x, r->plain));
    return all != NULL && g != NULL;
}

static bool
assign(co_context *ctx, void *prepared)
{
    ready *r = prepared;

    return co_assign(ctx, r->mean, r->rows) && co_assign_add(ctx, r->mean, r->parts) &&
           co_scatter_add(ctx, r->first, r->slices) && co_assign(ctx, r->on_read, r->rows) &&
           co_variable_save(ctx, r->on_read) && co_variable_save(ctx, r->mean) &&
           co_variable_restore(ctx, r->mean, r->rows) == CO_OK &&
           co_variable_restore(ctx, r->on_read, r->rows) == CO_OK &&
           co_variable_handle(ctx, r->plain);
}

static bool
make_variables(co_context *ctx, void *prepared)
{
    ready *r = prepared;

    return variable_of(ctx, r->two, CO_SYNC_AUTO, CO_AGGREGATION_NONE) &&
           variable_of(ctx, r->two, CO_SYNC_ON_READ, CO_AGGREGATION_MEAN) &&
           variable_of(ctx, r->one, CO_SYNC_AUTO, CO_AGGREGATION_NONE);
}

static co_value *
results(co_context *ctx, co_value *args, void *user)
{
    static const char *const keys[] = { "id", "none", "same" };
    co_value                *items[3] = { co_replica_id_tensor(ctx), co_none(ctx), user };

    (void)args;
    return co_dict(ctx, keys, items, 3);
}

static co_value *
merge_results(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    (void)user;
    return co_args(ctx, args, co_none(ctx));
}

static co_value *
merge_in_step(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_results, results(ctx, args, user), user);
}

static bool
run(co_context *ctx, void *prepared)
{
    static const char *const keys[] = { "more" };
    ready                   *r = prepared;
    co_run_options           options = CO_RUN_OPTIONS_INIT;

    options.kwargs = co_dict(ctx, keys, &r->parts, 1);
    return co_run_with(ctx, r->two, results, co_args(ctx, r->parts), r->plain, &options) &&
           co_run(ctx, r->two, merge_in_step, co_no_args(ctx), r->plain) &&
           co_run(ctx, r->one, merge_in_step, co_no_args(ctx), r->plain) &&
           co_merge_call(ctx, merge_results, co_args(ctx, r->plain), NULL);
}

static co_value *
add_one(co_context *ctx, co_value *variable, co_value *args, void *user)
{
    (void)user;
    return co_assign_add(ctx, variable, co_at(ctx, args, 0));
}

static bool
reduce(co_context *ctx, void *prepared)
{
    ready    *r = prepared;
    co_value *list = co_list(ctx, &r->parts, 1);

    return co_reduce(ctx, r->two, CO_REDUCE_MEAN, list, NULL, 0) &&
           co_reduce(ctx, r->two, CO_REDUCE_SUM, r->parts, CO_AXES(0)) &&
           co_local_results(ctx, r->two, list) && co_gather_replicas(ctx, r->two, r->parts, 1) &&
           co_update(ctx, r->two, r->mean, add_one, co_args(ctx, r->parts), NULL, NULL) &&
           co_reduce_to(ctx, r->two, CO_REDUCE_SUM, r->parts, r->mean);
}

/* user: an optimizer. */
static co_value *
apply_in_step(co_context *ctx, co_value *args, void *user)
{
    co_apply_gradients(ctx, user, co_list(ctx, &kept.rows, 1), co_list(ctx, &kept.mean, 1));
    return co_sync_batch_norm_train(ctx, co_at(ctx, args, 0), kept.row, kept.row, kept.row,
                                    kept.row, NULL);
}

static bool
train(co_context *ctx, void *prepared)
{
    ready         *r = prepared;
    co_sgd_options options = CO_SGD_OPTIONS_INIT;
    co_optimizer  *sgd;

    options.momentum = 0.5;
    sgd = co_sgd(ctx, &options);
    co_apply_gradients(ctx, sgd, co_list(ctx, &r->parts, 1), co_list(ctx, &r->mean, 1));
    return co_run(ctx, r->two, apply_in_step, co_args(ctx, r->parts), sgd) &&
           co_optimizer_slot(ctx, sgd, "momentum", r->plain) &&
           co_optimizer_slot(ctx, sgd, "momentum", r->first) && co_optimizer_slot_names(ctx, sgd);
}

static bool (*const bodies[])(co_context *ctx, void *prepared) = {
    make_values, make_structures, convert, record, assign, make_variables, run, reduce, train
};

CO_TEST_BARE(each_small_block_may_be_the_last, "GEN-ERR-1")
{
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); ++i)
        scarce_try("cpus=2", get_ready, bodies[i], TEST_SANITIZED ? 6 : 24);
}

/* --- lists and stacks that are full --- */

static co_context *
open_hooked(test_hooks *hooks)
{
    co_options options = CO_OPTIONS_INIT;

    test_hooks_init(hooks, 0);
    options.settings = "cpus=2";
    options.allocator = &hooks->allocator;
    return co_open_with(&options);
}

static void
close_hooked(co_context *ctx, test_hooks *hooks)
{
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    CO_EXPECT_INT(atomic_load(&hooks->blocks), 0);
}

/* With room for so many more handles, and not for another. */
static void
try_handles(bool (*body)(co_context *ctx, void *prepared), size_t room)
{
    test_hooks  hooks;
    co_context *ctx = open_hooked(&hooks);
    void       *prepared = get_ready(ctx);

    CO_BLOCK(ctx)
        CO_EXPECT_TRUE(body(ctx, prepared)); /* so that it needs nothing else */
    CO_BLOCK(ctx) {
        while (ctx->num_owned + room < ctx->cap_owned)
            co_int(ctx, 0);
        hooks.limit = atomic_load(&hooks.bytes);
        if (!body(ctx, prepared))
            CO_EXPECT_CODE(co_error(ctx)->code, CO_RESOURCE_EXHAUSTED);
        hooks.limit = INT64_MAX / 2;
        co_clear(ctx);
    }
    CO_EXPECT_TRUE(body(ctx, prepared));
    close_hooked(ctx, &hooks);
}

CO_TEST_BARE(each_handle_may_be_the_last, "GEN-ERR-1")
{
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); ++i)
        for (size_t room = 0; room < (TEST_SANITIZED ? 5 : 30); ++room)
            try_handles(bodies[i], room);
}

static bool
enter_scope(co_context *ctx, ready *r)
{
    co_scope scope = co_scope_begin(ctx, r->two);

    return scope.id != 0 && co_scope_end(ctx, &scope) == CO_OK;
}

static bool
set_strategy(co_context *ctx, ready *r)
{
    return co_experimental_set_strategy(ctx, r->two) == CO_OK &&
           co_experimental_set_strategy(ctx, NULL) == CO_OK;
}

static bool
merge_alone(co_context *ctx, ready *r)
{
    return co_merge_call(ctx, merge_results, co_args(ctx, r->plain), NULL) != NULL;
}

static bool
merge_together(co_context *ctx, ready *r)
{
    return co_run(ctx, r->one, merge_in_step, co_no_args(ctx), r->plain) != NULL;
}

static bool
update(co_context *ctx, ready *r)
{
    return co_update(ctx, r->two, r->mean, add_one, co_args(ctx, r->rows), NULL, NULL) != NULL;
}

static bool
colocate(co_context *ctx, ready *r)
{
    co_colocate_begin(ctx, co_default_strategy(ctx), r->plain);
    co_colocate_end(ctx);
    return co_ok(ctx);
}

static co_value *
create(co_context *ctx, co_creation *next, co_value *initial, const co_variable_options *options,
       void *user)
{
    (void)user;
    return co_creator_next(ctx, next, initial, options);
}

static bool
enter_creator(co_context *ctx, ready *r)
{
    co_scope scope = co_creator_begin(ctx, create, r);

    return scope.id != 0 && co_creator_end(ctx, &scope) == CO_OK;
}

static bool
make_in_scope(co_context *ctx, ready *r)
{
    return co_variable(ctx, co_float(ctx, 1), NULL) != NULL && r != NULL;
}

/* No room for another scope, device, update or merge function: said so, and nothing is left
 * open. */
CO_TEST_BARE(no_stack_has_room_for_another_entry, "GEN-ERR-1 SCOPE-9")
{
    static bool (*const calls[])(co_context * ctx, ready * r) = { enter_scope,   set_strategy,
                                                                  merge_alone,   merge_together,
                                                                  update,        colocate,
                                                                  enter_creator, make_in_scope };

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i) {
        test_hooks hooks;
        ready     *r;
        bool       done;

        ctx = open_hooked(&hooks);
        r = get_ready(ctx);
        co_device_begin(ctx, "/cpu:1"); /* there is a stack */
        CO_EXPECT_TRUE(calls[i](ctx, r));
        while (ctx->num_entries < ctx->cap_entries)
            co_device_begin(ctx, "/cpu:1");
        hooks.limit = atomic_load(&hooks.bytes);
        done = calls[i](ctx, r);
        CO_EXPECT_TRUE(done || co_error(ctx)->code == CO_RESOURCE_EXHAUSTED);
        CO_EXPECT_TRUE(!done || calls[i] == make_in_scope); /* which enters nothing here */
        hooks.limit = INT64_MAX / 2;
        co_clear(ctx);
        CO_EXPECT_FALSE(co_has_strategy(ctx));
        CO_EXPECT_FALSE(co_in_cross_replica_context(ctx));
        CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:1");
        CO_EXPECT_TRUE(calls[i](ctx, r));
        close_hooked(ctx, &hooks);
    }
}

/* Blocks and devices that there was no memory for are ended like others. */
CO_TEST_BARE(blocks_and_devices_without_memory_nest, "GEN-ERR-1")
{
    test_hooks hooks;
    size_t     blocks;

    ctx = open_hooked(&hooks);
    co_block_begin(ctx);
    co_device_begin(ctx, "/cpu:1");
    while (ctx->num_blocks < ctx->cap_blocks)
        co_block_begin(ctx);
    while (ctx->num_entries < ctx->cap_entries)
        co_device_begin(ctx, "/cpu:1");
    blocks = ctx->num_blocks;
    hooks.limit = atomic_load(&hooks.bytes);
    for (int i = 0; i < 3; ++i) {
        co_block_begin(ctx);
        co_device_begin(ctx, "/cpu:0");
        CO_EXPECT_ERROR(ctx, CO_RESOURCE_EXHAUSTED, NULL);
    }
    hooks.limit = INT64_MAX / 2;
    for (int i = 0; i < 3; ++i) {
        co_device_end(ctx);
        co_block_end(ctx);
    }
    CO_EXPECT_OK(ctx);
    CO_EXPECT_INT(ctx->num_blocks, blocks);
    CO_EXPECT_STR(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:1");
    close_hooked(ctx, &hooks);
}
