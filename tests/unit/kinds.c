/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of values by table. The library has a row for every kind; and a composite kind that only
 * this file knows, a pair of tensors that stands for their sum, goes through everything that the
 * library does with values: nothing else had to be written for it than its row.
 */
#include "engine_support.h"

#include <cohort/extended.h>

#include "context/context.h"
#include "ops/engine/gradient.h"

#define PAIR COI_PRIVATE_KINDS

/* --- the kind: all of it --- */

static co_value *
pair_sum(co_context *ctx, co_value *pair)
{
    return co_add(ctx, pair->u.components[0], pair->u.components[1]);
}

static co_value *
pair_as_tensor(co_context *ctx, co_value *pair, co_dtype dtype)
{
    co_value *sum = pair_sum(ctx, pair);

    (void)dtype;
    if (sum != NULL)
        coi_ref(sum);
    return sum;
}

static int64_t
pair_rows(const co_value *pair)
{
    return coi_rows_of(pair->u.components[0]);
}

static const coi_composite pair_components = {
    .type_name = "Pair",
    .n = 3,
    .components = { { "low", COI_CONCAT_SCALED, false },
                    { "high", COI_CONCAT, false },
                    { "note", COI_TAKE_FIRST, true } },
    .sum_alone = "nobody has thought about more",
    .by_operators = pair_sum,
};

static const coi_kind_ops pair_kind = {
    .name = "pair",
    .a_name = "a pair",
    .composite = &pair_components,
    .destroy = coi_composite_destroy,
    .print = coi_composite_print,
    .type = coi_composite_type,
    .as_tensor = pair_as_tensor,
    .rows = pair_rows,
};

/* Before a context is open, as the table wants it. */
__attribute__((constructor)) static void
add_pairs(void)
{
    coi_kind_add(PAIR, &pair_kind);
}

static co_value *
noted_pair(co_context *ctx, co_value *low, co_value *high, co_value *note)
{
    co_value *components[] = { low, high, note };

    if (low == NULL || high == NULL)
        return NULL;
    return coi_give(ctx, coi_composite_new(&ctx->heap, PAIR, components, coi_err(ctx)));
}

static co_value *
make_pair(co_context *ctx, co_value *low, co_value *high)
{
    return noted_pair(ctx, low, high, NULL);
}

/* A pair of vectors of two numbers: low, low + 1 and high, high + 1. */
static co_value *
pair_of(co_context *ctx, float low, float high)
{
    float lows[] = { low, low + 1 }, highs[] = { high, high + 1 };

    return make_pair(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), lows),
                     co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2), highs));
}

static void
expect_text(co_context *ctx, co_value *value, const char *text)
{
    char out[400];

    co_format(ctx, value, out, sizeof(out));
    CO_EXPECT_STR(out, text);
}

/* --- the table --- */

CO_TEST(every_kind_has_a_row, "")
{
    for (int kind = CO_KIND_TENSOR; kind < CO_NUM_KINDS; ++kind) {
        const coi_kind_ops *row = coi_kinds[kind];

        CO_REQUIRE(row != NULL);
        CO_EXPECT_TRUE(row->name != NULL && row->a_name != NULL && row->print != NULL);
        CO_EXPECT_STR(co_kind_name((co_kind)kind), row->name);
        CO_EXPECT_STR(coi_a_kind(kind), row->a_name);
        CO_EXPECT_TRUE(!row->is_host || (row->host_dtype != NULL && row->becomes != NULL));
        CO_EXPECT_TRUE(!row->is_distributed || (row->items != NULL && row->replicas != NULL));
        CO_EXPECT_TRUE(row->composite == NULL ||
                       (row->composite->n <= COI_MAX_COMPONENTS && row->destroy != NULL));
    }
    CO_EXPECT_STR(co_kind_name((co_kind)(PAIR + 1)), "invalid kind");
    CO_EXPECT_STR(coi_a_kind(-1), "a value of no kind");
    CO_EXPECT_INT(coi_kinds[CO_KIND_TENSOR]->is_host, false);
    coi_kind_add(CO_KIND_TENSOR, &pair_kind); /* not a private one */
    coi_kind_add(COI_NUM_KINDS, &pair_kind);
    CO_EXPECT_STR(co_kind_name(CO_KIND_TENSOR), "tensor");
}

/* --- a leaf --- */

CO_TEST(a_pair_is_one_leaf, "GEN-NEST-2")
{
    co_value *pair = pair_of(ctx, 1, 5), *x = co_int(ctx, 3);
    co_value *list = co_list(ctx, (co_value *[]){ x, co_args(ctx, pair, x) }, 2), *flat, *packed;

    CO_EXPECT_INT(co_value_kind(pair), PAIR);
    CO_EXPECT_STR(co_kind_name(co_value_kind(pair)), "pair");
    flat = co_flatten(ctx, list);
    CO_EXPECT_INT(co_num_items(ctx, flat), 3);
    CO_EXPECT_PTR(co_at(ctx, flat, 1), pair);
    packed = co_pack(ctx, list, co_args(ctx, pair, pair, x));
    CO_EXPECT_PTR(co_at(ctx, packed, 0), pair);
    CO_EXPECT_PTR(co_at(ctx, co_at(ctx, packed, 1), 0), pair);
    CO_EXPECT_INT(co_assert_same_structure(ctx, list, packed), CO_OK);
    CO_EXPECT_INT(co_num_items(ctx, pair), 0);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "is a pair, which has no items");
}

CO_TEST(a_pair_has_a_text_and_a_type, "")
{
    co_value *pair = pair_of(ctx, 1, 5), *note = co_scalar_int32(ctx, 7), *type;

    expect_text(ctx, pair, "Pair(low=[1.0, 2.0], high=[5.0, 6.0])");
    expect_text(ctx, noted_pair(ctx, note, note, note), "Pair(low=7, high=7, note=7)");
    type = co_value_spec(ctx, co_args(ctx, pair, note));
    CO_EXPECT_INT(co_value_kind(co_at(ctx, type, 0)), PAIR);
    expect_text(ctx, type,
                "(Pair(low=TensorSpec([2], float32), high=TensorSpec([2], float32)), "
                "TensorSpec([], int32))");
    type = co_value_spec(ctx, co_per_replica_value(ctx, (co_value *[]){ pair, pair }, 2));
    CO_EXPECT_INT(co_value_kind(co_at(ctx, type, 1)), PAIR);
    CO_EXPECT_NULL(co_to_tensor(ctx, co_at(ctx, type, 1), CO_DTYPE_NONE));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "the type of a pair does not convert to a tensor");
    CO_EXPECT_NULL(co_mul(ctx, co_at(ctx, type, 1), co_int(ctx, 2)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "the type of a pair");
}

CO_TEST(a_pair_lives_as_long_as_it_is_kept, "")
{
    co_value *pair, *low;

    co_block_begin(ctx);
    low = co_ones(ctx, CO_FLOAT32, CO_SHAPE(100));
    pair = make_pair(ctx, low, low);
    co_keep(ctx, pair);
    co_block_end(ctx); /* the block's hold on the components goes, the pair's stays */
    CO_EXPECT_INT(co_item_int(ctx, co_reduce_sum(ctx, pair, NULL, 0, false)), 200);
    co_release(ctx, pair);
}

static bool
pairs_in_little_memory(co_context *ctx)
{
    co_value *pair = pair_of(ctx, 1, 5), *parts[] = { pair, pair };
    co_value *type = co_value_spec(ctx, co_per_replica_value(ctx, parts, 2));
    co_value *sum = pair != NULL ? coi_add_gradients(ctx, pair, pair) : NULL;

    return type != NULL && sum != NULL && co_to_tensor(ctx, sum, CO_DTYPE_NONE) != NULL;
}

CO_TEST_BARE(pairs_without_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, pairs_in_little_memory);
}

/* --- as a tensor --- */

CO_TEST(a_pair_converts_to_a_tensor, "")
{
    co_value *pair = pair_of(ctx, 1, 5), *low, *high, *product;

    CO_EXPECT_INT(coi_rows_of(pair), 2);
    CO_EXPECT_INT(co_value_ndim(ctx, pair), 1);
    CO_EXPECT_INT(co_value_dtype(ctx, pair), CO_FLOAT32);
    expect_text(ctx, co_to_tensor(ctx, pair, CO_DTYPE_NONE), "[6.0, 8.0]");
    expect_text(ctx, co_mul(ctx, pair, co_int(ctx, 2)), "[12.0, 16.0]");
    expect_text(ctx, co_to_tensor(ctx, co_list(ctx, (co_value *[]){ pair, pair }, 2), CO_FLOAT32),
                "[[6.0, 8.0], [6.0, 8.0]]");
    co_value_device(ctx, pair);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "is a pair, which lives on no device");
    /* By operators while a tape is open: gradients pass to the components. */
    low = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2));
    high = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2));
    co_tape_begin(ctx);
    co_watch(ctx, co_args(ctx, low, high));
    product = co_mul(ctx, make_pair(ctx, low, high), co_to_tensor(ctx, pair, CO_DTYPE_NONE));
    expect_text(ctx, product, "[12.0, 16.0]");
    expect_text(ctx, co_gradient(ctx, product, co_args(ctx, low, high)),
                "([6.0, 8.0], [6.0, 8.0])");
}

CO_TEST(pairs_of_gradients_are_concatenated, "")
{
    co_value *sum = coi_add_gradients(ctx, pair_of(ctx, 1, 5), pair_of(ctx, 3, 7));
    co_value *note = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2));

    CO_EXPECT_INT(co_value_kind(sum), PAIR);
    expect_text(ctx, sum, "Pair(low=[1.0, 2.0, 3.0, 4.0], high=[5.0, 6.0, 7.0, 8.0])");
    sum = coi_add_gradients(ctx, pair_of(ctx, 1, 5), note); /* of two kinds: dense */
    expect_text(ctx, sum, "[7.0, 9.0]");
    sum = coi_add_gradients(ctx, noted_pair(ctx, note, note, co_scalar_int32(ctx, 1)),
                            make_pair(ctx, note, note));
    CO_EXPECT_PTR(co_at(ctx, co_list(ctx, &sum, 1), 0), sum);
    expect_text(ctx, sum, "Pair(low=[1.0, 1.0, 1.0, 1.0], high=[1.0, 1.0, 1.0, 1.0], note=1)");
}

/* --- replicas --- */

static co_value *
pair_of_replica(co_context *ctx, const co_value_context *replica, void *user)
{
    (void)user;
    return pair_of(ctx, (float)replica->replica_id_in_sync_group, 10);
}

/* Gives back the pair that it got, one of its own, one that all have, and what it converts to. */
static co_value *
use_pair(co_context *ctx, co_value *args, void *user)
{
    co_value *mine = co_at(ctx, args, 0);

    CO_EXPECT_INT(co_value_kind(mine), PAIR); /* selected: DV-SEL */
    return co_args(ctx, mine, pair_of(ctx, 100, 200), user,
                   co_reduce_sum(ctx, mine, NULL, 0, false));
}

CO_TEST_WITH(pairs_pass_through_a_step, "DV-SEL-1 DV-GROUP-1", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *spread = co_distribute_values_from_function(ctx, s, pair_of_replica, NULL);
    co_value    *shared = pair_of(ctx, 0, 0), *result, *parts;

    CO_EXPECT_INT(co_value_kind(spread), CO_KIND_PER_REPLICA);
    expect_text(ctx, spread,
                "PerReplica:{\n  0: Pair(low=[0.0, 1.0], high=[10.0, 11.0])"
                "\n  1: Pair(low=[1.0, 2.0], high=[10.0, 11.0])\n}");
    result = co_run(ctx, s, use_pair, co_args(ctx, spread), shared);
    CO_REQUIRE(result != NULL);
    parts = co_local_results(ctx, s, co_at(ctx, result, 0));
    CO_EXPECT_PTR(co_at(ctx, parts, 1), co_at(ctx, co_local_results(ctx, s, spread), 1));
    CO_EXPECT_INT(co_value_kind(co_at(ctx, result, 1)), CO_KIND_PER_REPLICA);
    CO_EXPECT_PTR(co_at(ctx, result, 2), shared); /* one handle on all replicas: itself */
    expect_text(ctx, co_at(ctx, result, 3), "PerReplica:{\n  0: 22.0\n  1: 24.0\n}");
}

CO_TEST_WITH(pairs_of_replicas_are_reduced_by_concatenation, "S-REDUCE-20", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *spread = co_distribute_values_from_function(ctx, s, pair_of_replica, NULL), *mixed;

    expect_text(ctx, co_reduce(ctx, s, CO_REDUCE_SUM, spread, NULL, 0),
                "Pair(low=[0.0, 1.0, 1.0, 2.0], high=[10.0, 11.0, 10.0, 11.0])");
    expect_text(ctx, co_reduce(ctx, s, CO_REDUCE_MEAN, spread, NULL, 0),
                "Pair(low=[0.0, 0.5, 0.5, 1.0], high=[10.0, 11.0, 10.0, 11.0])");
    CO_EXPECT_NULL(co_reduce(ctx, s, CO_REDUCE_MAX, spread, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED,
                    "a pair can be combined by SUM and MEAN only: nobody has thought about more");
    CO_EXPECT_NULL(co_gather_replicas(ctx, s, spread, 0));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "is a pair, which cannot be gathered");
    mixed = co_per_replica_value(ctx, (co_value *[]){ pair_of(ctx, 1, 2), co_int(ctx, 1) }, 2);
    CO_EXPECT_NULL(co_reduce(ctx, s, CO_REDUCE_SUM, mixed, NULL, 0));
    CO_EXPECT_ERROR(ctx, CO_ASSERTION_ERROR,
                    "replica 1 has a host integer where others have a pair");
}

static co_value *
reduce_pair(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_all_reduce(ctx, CO_REDUCE_MEAN, co_at(ctx, args, 0));
}

static co_value *
gather_pair(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_all_gather(ctx, co_at(ctx, args, 0), 0);
}

CO_TEST_WITH(pairs_are_reduced_inside_a_step, "RC-AR-11", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *spread = co_distribute_values_from_function(ctx, s, pair_of_replica, NULL), *parts;

    parts = co_local_results(ctx, s, co_run(ctx, s, reduce_pair, co_args(ctx, spread), NULL));
    CO_REQUIRE(parts != NULL);
    for (size_t i = 0; i < 2; ++i)
        expect_text(ctx, co_at(ctx, parts, i),
                    "Pair(low=[0.0, 0.5, 0.5, 1.0], high=[10.0, 11.0, 10.0, 11.0])");
    CO_EXPECT_NULL(co_run(ctx, s, gather_pair, co_args(ctx, spread), NULL));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "a pair cannot be gathered");
}

static void
expect_on(const co_value *composite, size_t n, const char *device)
{
    for (size_t i = 0; i < n; ++i)
        CO_EXPECT_CONTAINS(composite->u.components[i]->u.tensor.device->name, device);
}

CO_TEST_WITH(pairs_go_to_devices_by_component, "EXT-RT-1", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *spread = co_distribute_values_from_function(ctx, s, pair_of_replica, NULL);
    co_value    *there, *everywhere = NULL;

    there = co_reduce_to(ctx, s, CO_REDUCE_SUM, spread, co_string(ctx, "/cpu:1"));
    CO_REQUIRE(there != NULL);
    CO_EXPECT_INT(co_value_kind(there), PAIR);
    expect_on(there, 2, "CPU:1");
    CO_SCOPE(ctx, s)
        everywhere = co_variable(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1)), NULL);
    there = co_reduce_to(ctx, s, CO_REDUCE_SUM, spread, everywhere);
    CO_REQUIRE(there != NULL);
    CO_EXPECT_INT(co_value_kind(there), CO_KIND_MIRRORED);
    expect_on(co_at(ctx, there, 0), 2, "CPU:0");
    expect_on(co_at(ctx, there, 1), 2, "CPU:1");
    CO_EXPECT_NULL(co_reduce_to(ctx, s, CO_REDUCE_SUM, spread, spread));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "pair is not a destination");
}

CO_TEST_WITH(slices_go_to_devices_by_component, "EXT-RT-1", "cpus=2")
{
    co_strategy *s = test_mirrored(ctx, 2, -1);
    co_value    *slices = co_slices(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(1, 2)),
                                    co_zeros(ctx, CO_INT64, CO_SHAPE(1)), NULL);
    co_value    *spread = co_per_replica_value(ctx, (co_value *[]){ slices, slices }, 2), *there;

    there = co_reduce_to(ctx, s, CO_REDUCE_SUM, spread, co_string(ctx, "/cpu:1"));
    CO_REQUIRE(there != NULL);
    CO_EXPECT_INT(co_value_kind(there), CO_KIND_SLICES);
    expect_on(there, 2, "CPU:1");
    expect_text(ctx, there, "IndexedSlices(values=[[1.0, 1.0], [1.0, 1.0]], indices=[0, 0])");
}

/* --- the input --- */

CO_TEST(a_pair_is_a_tensor_in_a_dataset, "")
{
    co_dataset *dataset = co_dataset_from_tensors(ctx, pair_of(ctx, 1, 5));

    expect_text(ctx, co_element_spec(ctx, dataset), "TensorSpec([2], float32)");
    expect_text(ctx, co_next(ctx, co_iterate(ctx, dataset)), "[6.0, 8.0]");
}
