/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every public call of error.h, context.h, device.h, value.h, dlpack.h, gradient.h, ops.h and
 * variable.h on a NULL context and on one that has an error: nothing is made, nothing crashes, the
 * first error stays. Those of ops.h are made by scripts/make-op-calls; of the others
 * tests/scripts/every_call.sh checks that none is missing here.
 */
#include "test.h"

static int empty_handed, calls;

/* One call that must give nothing. */
#define NOTHING(call) (++calls, empty_handed += (call) ? 0 : 1)
#define DOES(call)    (++calls, ++empty_handed, (void)(call))

static co_value *
leaf_fn(co_context *ctx, co_value *leaf, void *user)
{
    (void)ctx;
    (void)user;
    test_fail(TEST_AT, "a function was called");
    return leaf;
}

static void
ignore_setting(const char *name, const char *value, const char *source, const char *help,
               void *user)
{
    (void)user;
    (void)name;
    (void)value;
    (void)source;
    (void)help;
}

static void
ignore_fact(const char *name, const char *text, void *user)
{
    (void)user;
    (void)name;
    (void)text;
}

/* What the calls below are given: good arguments, made before. */
typedef struct goods {
    co_value *x, *i, *list, *map, *tuple, *slices, *string, *variable;
} goods;

static goods
make_goods(co_context *ctx)
{
    static const char *const keys[] = { "a" };
    goods                    g;
    co_value                *index = co_tensor(ctx, CO_INT64, CO_SHAPE(1), (const int64_t[]){ 0 });

    g.x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(1, 1), (const float[]){ 2 });
    g.i = co_int(ctx, 1);
    g.list = co_list(ctx, &g.x, 1);
    g.map = co_dict(ctx, keys, &g.x, 1);
    g.tuple = co_named_tuple(ctx, "T", keys, &g.x, 1);
    g.slices = co_slices(ctx, g.x, index, NULL);
    g.string = co_string(ctx, "s");
    g.variable = co_variable(ctx, g.x, NULL);
    return g;
}

static void
call_contexts(co_context *ctx, const goods *g)
{
    char           name[CO_DEVICE_NAME_MAX];
    co_device_info info = CO_DEVICE_INFO_INIT;
    co_statement   statement;

    NOTHING(co_ok(ctx));
    NOTHING(co_error(ctx)->code == CO_OK);
    NOTHING(co_fail(ctx, CO_VALUE_ERROR, "again") == CO_OK);
    NOTHING(co_fail_with(ctx, CO_VALUE_ERROR, NULL, NULL, "again") == CO_OK);
    DOES((co_block_begin(ctx), 0));
    DOES((co_block_end(ctx), 0));
    DOES((statement = co_statement_block(ctx), co_statement_again(ctx, &statement), 0));
    DOES((co_statement_end(&statement), co_statement_end(&statement), co_statement_end(NULL), 0));
    DOES((statement = co_statement_device(ctx, "/cpu:0"), co_statement_end(&statement), 0));
    DOES((co_keep(ctx, g->x), 0));
    NOTHING(co_escape(ctx, g->x));
    DOES((co_settings_visit(ctx, ignore_setting, NULL), 0));
    DOES((co_settings_visit(ctx, NULL, NULL), 0));
    NOTHING(co_device_resolve(ctx, "/cpu:0", name) == CO_OK);
    DOES((co_device_begin(ctx, "/cpu:0"), 0));
    DOES((co_device_end(ctx), 0));
    DOES(co_current_device(ctx));
    DOES(co_num_devices(ctx));
    NOTHING(co_get_device_info(ctx, 0, &info) == CO_OK);
    NOTHING(co_declare_devices(ctx, "GPU", 1) == CO_OK);
    DOES((co_fallbacks_visit(ctx, NULL, NULL), 0));
    DOES((co_set_user(ctx, NULL), 0));
    NOTHING(co_user(ctx));
    DOES((co_get_memory_stats(ctx, NULL), 0));
}

static void
call_makers(co_context *ctx, const goods *g)
{
    static const char *const keys[] = { "a" };
    static const void *const bytes[] = { "b" };
    static float             memory[1];

    NOTHING(co_int(ctx, 1));
    NOTHING(co_float(ctx, 1));
    NOTHING(co_bool(ctx, true));
    NOTHING(co_string(ctx, "s"));
    NOTHING(co_bytes(ctx, "s", 1));
    NOTHING(co_none(ctx));
    NOTHING(co_tensor(ctx, CO_FLOAT32, NULL, 0, memory));
    NOTHING(co_scalar_float(ctx, 1));
    NOTHING(co_scalar_double(ctx, 1));
    NOTHING(co_scalar_int32(ctx, 1));
    NOTHING(co_scalar_int64(ctx, 1));
    NOTHING(co_scalar_bool(ctx, true));
    NOTHING(co_tensor_bytes(ctx, NULL, 0, bytes, NULL));
    NOTHING(co_tensor_borrow(ctx, CO_FLOAT32, NULL, 0, memory, NULL, NULL));
    NOTHING(co_to_tensor(ctx, g->i, CO_DTYPE_NONE));
    NOTHING(co_copy_to(ctx, g->x, "/cpu:0"));
    NOTHING(co_slices(ctx, g->x, g->x, NULL));
    NOTHING(co_slices_values(ctx, g->slices));
    NOTHING(co_slices_indices(ctx, g->slices));
    NOTHING(co_slices_dense_shape(ctx, g->slices));
    NOTHING(co_spec(ctx, CO_FLOAT32, NULL, 0));
    NOTHING(co_value_spec(ctx, g->x));
    NOTHING(co_list(ctx, &g->x, 1));
    NOTHING(co_tuple(ctx, &g->x, 1));
    NOTHING(co_named_tuple(ctx, "T", keys, &g->x, 1));
    NOTHING(co_dict(ctx, keys, &g->x, 1));
    NOTHING(co_no_args(ctx));
    NOTHING(co_per_replica_value(ctx, &g->x, 1));
    NOTHING(co_mirrored_value(ctx, &g->x, 1));
    NOTHING(co_to_dlpack(ctx, g->x));
    NOTHING(co_from_dlpack(ctx, NULL));
}

static void
call_lookers(co_context *ctx, const goods *g)
{
    float  out[1];
    size_t n;

    NOTHING(co_value_dtype(ctx, g->x) != CO_DTYPE_NONE);
    NOTHING(co_value_ndim(ctx, g->x));
    NOTHING(co_value_dim(ctx, g->x, 0));
    NOTHING(co_value_num_elements(ctx, g->x));
    NOTHING(co_value_data(ctx, g->x));
    NOTHING(co_string_at(ctx, g->string, 0, &n));
    NOTHING(co_item_int(ctx, g->x));
    NOTHING(!isnan(co_item_float(ctx, g->x)));
    NOTHING(co_value_copy_data(ctx, g->x, CO_FLOAT32, out, 1) == CO_OK);
    NOTHING(co_value_device(ctx, g->x)[0] != '\0');
    NOTHING(co_num_items(ctx, g->list));
    NOTHING(co_at(ctx, g->list, 0));
    NOTHING(co_get(ctx, g->map, "a"));
    NOTHING(co_key(ctx, g->map, 0));
    NOTHING(co_named_tuple_name(ctx, g->tuple));
    NOTHING(co_flatten(ctx, g->list));
    NOTHING(co_pack(ctx, g->list, g->list));
    NOTHING(co_map_structure(ctx, g->list, leaf_fn, NULL));
    NOTHING(co_assert_same_structure(ctx, g->list, g->list) == CO_OK);
    DOES(co_format(ctx, g->x, NULL, 0));
}

static void
call_gradients(co_context *ctx, const goods *g)
{
    co_gradient_options options = CO_GRADIENT_OPTIONS_INIT;

    DOES((co_tape_begin(ctx), 0));
    DOES((co_tape_begin_persistent(ctx), 0));
    DOES((co_watch(ctx, g->x), 0));
    NOTHING(co_watched_variables(ctx));
    NOTHING(co_gradient_with(ctx, g->x, g->x, &options));
    DOES((co_tape_end(ctx), 0));
    NOTHING(co_gradient(ctx, g->x, g->x));
    NOTHING(co_variable(ctx, g->x, NULL));
    NOTHING(co_assign(ctx, g->variable, g->x));
    NOTHING(co_assign_add(ctx, g->variable, g->x));
    NOTHING(co_assign_sub(ctx, g->variable, g->x));
    NOTHING(co_scatter_update(ctx, g->variable, g->slices));
    NOTHING(co_scatter_add(ctx, g->variable, g->slices));
    NOTHING(co_scatter_sub(ctx, g->variable, g->slices));
    NOTHING(co_scatter_mul(ctx, g->variable, g->slices));
    NOTHING(co_scatter_div(ctx, g->variable, g->slices));
    NOTHING(co_scatter_min(ctx, g->variable, g->slices));
    NOTHING(co_scatter_max(ctx, g->variable, g->slices));
    NOTHING(co_variable_read(ctx, g->variable));
    NOTHING(co_variable_name(ctx, g->variable)[0] != '\0');
    NOTHING(co_variable_trainable(ctx, g->variable));
    NOTHING(co_variable_synchronization(ctx, g->variable));
    NOTHING(co_variable_aggregation(ctx, g->variable));
    NOTHING(co_variable_strategy(ctx, g->variable));
    NOTHING(co_variable_is_initialized(ctx, g->variable));
    NOTHING(co_variable_handle(ctx, g->variable));
    NOTHING(co_variable_save(ctx, g->variable));
    NOTHING(co_variable_restore(ctx, g->variable, g->x) == CO_OK);
    NOTHING(co_trainable_variables(ctx, g->list));
}

#include "op_calls.h"

static void
call_operators(co_context *ctx, const goods *g)
{
    call_every_operator(ctx, g);
    DOES((co_set_seed(ctx, 1), 0));
    NOTHING(co_op_call(ctx, "neg", g->list, NULL));
    NOTHING(co_op_infer(ctx, "neg", g->list, NULL));
}

static void
call_all(co_context *ctx, const goods *g)
{
    calls = empty_handed = 0;
    call_contexts(ctx, g);
    call_makers(ctx, g);
    call_lookers(ctx, g);
    call_gradients(ctx, g);
    call_operators(ctx, g);
    CO_EXPECT_INT(empty_handed, calls);
    CO_EXPECT_MORE(calls, 120);
}

CO_TEST(a_null_context_does_nothing, "")
{
    goods           g = make_goods(ctx);
    co_memory_stats before = CO_MEMORY_STATS_INIT, after = before;

    CO_EXPECT_OK(ctx);
    co_get_memory_stats(ctx, &before);
    call_all(NULL, &g);
    co_clear(NULL);
    co_release(NULL, g.x);
    CO_EXPECT_NULL(co_open_beside(NULL));
    CO_EXPECT_CODE(co_close(NULL), CO_OK);
    co_get_memory_stats(ctx, &after);
    CO_EXPECT_INT(after.live_values, before.live_values);
    CO_EXPECT_OK(ctx);
}

/* The same on a context that was closed, in the memory where it was. */
CO_TEST(a_closed_context_does_nothing, "")
{
    goods           g = make_goods(ctx);
    co_context     *closed = co_open_beside(ctx);
    co_memory_stats before = CO_MEMORY_STATS_INIT, after = before;

    CO_EXPECT_CODE(co_close(closed), CO_OK);
    co_get_memory_stats(ctx, &before);
    call_all(closed, &g);
    co_clear(closed);
    co_release(closed, g.x);
    CO_EXPECT_NULL(co_open_beside(closed));
    CO_EXPECT_CODE(co_close(closed), CO_RUNTIME_ERROR);
    CO_EXPECT_CONTAINS(co_error(closed)->message, "closed before");
    co_get_memory_stats(ctx, &after);
    CO_EXPECT_INT(after.live_values, before.live_values);
    CO_EXPECT_OK(ctx);
}

CO_TEST(an_error_stops_everything_but_closing, "GEN-ERR-1")
{
    goods           g = make_goods(ctx);
    co_memory_stats before = CO_MEMORY_STATS_INIT, after = before;

    co_keep(ctx, g.string);
    co_get_memory_stats(ctx, &before);
    co_fail(ctx, CO_CANCELLED, "the first one");
    call_all(ctx, &g);
    co_release(ctx, g.string); /* closing works */
    co_get_memory_stats(ctx, &after);
    CO_EXPECT_INT(after.live_values, before.live_values);
    CO_EXPECT_STR(co_error(ctx)->call, "fail");
    CO_EXPECT_ERROR(ctx, CO_CANCELLED, "the first one");
    /* The same calls work again, to prove that they could have. */
    CO_EXPECT_NOT_NULL(co_add(ctx, g.x, g.x));
    co_tape_end(
        ctx); /* of the two that were begun above, one is left; the persistent one was ended */
    CO_EXPECT_TRUE(co_ok(ctx) || co_error(ctx)->code == CO_RUNTIME_ERROR);
    co_clear(ctx);
}

/* Calls without a context. */
CO_TEST_BARE(calls_without_a_context_take_anything, "")
{
    co_op_info info = CO_OP_INFO_INIT;

    CO_EXPECT_STR(co_code_name((co_code)-5), "CO_UNKNOWN");
    CO_EXPECT_STR(co_code_kind((co_code)-5), "");
    CO_EXPECT_CODE(co_code_canonical((co_code)-5), CO_UNKNOWN);
    CO_EXPECT_STR(co_dtype_name((co_dtype)-5), "invalid");
    CO_EXPECT_INT(co_dtype_from_name(NULL), CO_DTYPE_NONE);
    CO_EXPECT_INT(co_dtype_size((co_dtype)99), 0);
    CO_EXPECT_FALSE(co_dtype_is_floating((co_dtype)99));
    CO_EXPECT_FALSE(co_dtype_is_integer((co_dtype)99));
    CO_EXPECT_INT(co_value_kind(NULL), CO_KIND_NULL);
    CO_EXPECT_STR(co_kind_name((co_kind)99), "invalid kind");
    CO_EXPECT_FALSE(co_op_describe(co_num_ops(), &info));
    CO_EXPECT_FALSE(co_op_describe(SIZE_MAX, &info));
    CO_EXPECT_FALSE(co_op_describe(0, NULL));
    CO_EXPECT_MORE(co_num_ops(), 30);
    co_build_visit(ignore_fact, NULL);
    co_build_visit(NULL, NULL);
    CO_EXPECT_MORE(strlen(co_version()), 0);
    CO_EXPECT_CODE(co_close(co_open("log=off")), CO_OK);
    CO_EXPECT_CODE(co_close(co_open_with(NULL)), CO_OK);
}
