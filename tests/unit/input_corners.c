/* SPDX-License-Identifier: Apache-2.0 */
/* Corners of distributed input: replicas whose datasets differ, empty elements of every shape,
 * wrong arguments, want of memory. */
#include "data/dataset.h"
#include "data_support.h"
#include "scarce.h"

static co_strategy *
two(co_context *ctx)
{
    return co_mirrored_strategy(ctx, NULL, 0, NULL);
}

/* Datasets of one element each, by replica; NULL for none at all. */
typedef struct each_replica {
    co_dataset *datasets[2];
} each_replica;

static co_dataset *
of_replica(co_context *ctx, const co_input_context *input, void *user)
{
    (void)ctx;
    return ((const each_replica *)user)->datasets[input->input_pipeline_id];
}

static co_dataset *
from_both(co_context *ctx, co_strategy *s, co_dataset *a, co_dataset *b)
{
    each_replica     both = { { a, b } };
    co_input_options options = CO_INPUT_OPTIONS_INIT;

    options.per_replica = true;
    return co_distribute_datasets_from_function(ctx, s, of_replica, &both, &options);
}

/* (int64 of some shape, float32 [4], a scalar, a string) once or never. */
static co_dataset *
mixture(co_context *ctx, const int64_t *dims, int ndim, int64_t count)
{
    static const char *const text[] = { "x" };
    co_value                *all = co_args(ctx, co_ones(ctx, CO_INT64, dims, ndim),
                                           co_ones(ctx, CO_FLOAT32, CO_SHAPE(4)), co_scalar_float(ctx, 7),
                                           co_tensor(ctx, CO_STRING, NULL, 0, text));

    return co_dataset_take(ctx, co_dataset_from_tensors(ctx, all), count);
}

CO_TEST_WITH(a_replica_without_data_gets_empty_elements_of_every_shape, "DS-PART-2 IO-4", "cpus=2")
{
    static const struct {
        int64_t     dims[2][2];
        int         ndim[2];
        const char *elements;
    } cases[] = {
        { { { 2 }, { 3 } }, { 1, 1 }, "({[1,1],[]},{[1,1,1,1],[]},{7,0},{'x',''})" },
        { { { 2 }, { 1, 2 } }, { 1, 2 }, "({[1,1],[]},{[1,1,1,1],[]},{7,0},{'x',''})" },
        { { { 1, 2 }, { 1, 3 } }, { 2, 2 }, "({[[1,1]],[[]]},{[1,1,1,1],[]},{7,0},{'x',''})" },
    };
    co_strategy *s = two(ctx);
    char         text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        co_dataset *ds = from_both(ctx, s, mixture(ctx, cases[i].dims[0], cases[i].ndim[0], 1),
                                   mixture(ctx, cases[i].dims[1], cases[i].ndim[1], 0));

        CO_EXPECT_STR(data_elements(ctx, ds, 9, text), cases[i].elements);
    }
}

CO_TEST_WITH(datasets_of_replicas_must_be_alike, "IO-4 DS-FN-4", "cpus=2")
{
    co_strategy *s = two(ctx);
    co_dataset  *ints = data_pipeline(ctx, "range(4).batch(2)");
    co_dataset  *pair = co_dataset_from_tensors(ctx, co_args(ctx, co_int(ctx, 1), co_int(ctx, 2)));
    co_dataset  *floats = co_dataset_from_tensors(ctx, co_ones(ctx, CO_FLOAT32, CO_SHAPE(2)));

    CO_EXPECT_NULL(from_both(ctx, s, ints, floats));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "the dataset of replica 1 has float32 in component 0");
    CO_EXPECT_NULL(from_both(ctx, s, ints, pair));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, NULL);
    CO_EXPECT_NULL(from_both(ctx, s, ints, NULL));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "returned NULL");
    CO_EXPECT_NULL(from_both(ctx, s, ints, co_distribute_dataset(ctx, s, ints, NULL)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "not a plain dataset");
    CO_EXPECT_INT(co_cardinality(ctx, from_both(ctx, s, co_dataset_repeat(ctx, ints, -1), ints)),
                  CO_UNKNOWN_CARDINALITY);
    CO_EXPECT_INT(co_cardinality(ctx, from_both(ctx, s, co_dataset_repeat(ctx, ints, -1),
                                                co_dataset_repeat(ctx, ints, -1))),
                  CO_INFINITE);
}

CO_TEST_WITH(wrong_arguments_of_input_are_refused, "C-ARG-1 DS-DIST-5", "cpus=2")
{
    co_strategy     *s = two(ctx);
    co_dataset      *ds = data_pipeline(ctx, "range(4).batch(2)");
    co_input_options options = CO_INPUT_OPTIONS_INIT;
    each_replica     one = { { ds, ds } };

    options.struct_size = 1;
    CO_EXPECT_NULL(co_distribute_dataset(ctx, s, ds, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size 1");
    CO_EXPECT_NULL(co_distribute_datasets_from_function(ctx, s, of_replica, &one, &options));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size 1");
    CO_EXPECT_NULL(co_distribute_datasets_from_function(ctx, NULL, of_replica, &one, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (strategy)");
    CO_EXPECT_NULL(co_dataset_auto_shard(NULL, ds, 1, 0));
    CO_EXPECT_CODE(co_batch_sizes_for_worker(NULL, 1, 1, 1, 0, NULL), CO_INVALID_ARGUMENT);
    CO_EXPECT_NULL(co_dataset_auto_shard(ctx, ds, 2, 2));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "pipeline 2 of 2");
}

/* --- want of memory --- */

typedef struct ready {
    co_strategy *s, *weighted, *gpus;
    co_dataset  *plain, *off, *split, *both, *far;
} ready;

static void *
get_ready(co_context *ctx)
{
    static ready         r;
    static const int64_t weights[] = { 3, 1 };
    const char          *gpus[] = { "/gpu:0", "/gpu:1" };
    const char          *cpus[] = { "/cpu:0", "/cpu:1" };
    co_mirrored_options  options = CO_MIRRORED_OPTIONS_INIT;

    options.weights = weights;
    options.num_weights = 2;
    r.s = co_mirrored_strategy(ctx, cpus, 2, NULL);
    r.weighted = co_mirrored_strategy(ctx, cpus, 2, &options);
    r.gpus = co_mirrored_strategy(ctx, gpus, 2, NULL);
    r.plain = data_pipeline(ctx, "range(6).batch(3)");
    r.off = data_pipeline(ctx, "range(6).batch(3).OFF");
    r.split = co_distribute_dataset(ctx, r.weighted, r.plain, NULL);
    r.both = from_both(ctx, r.s, mixture(ctx, (const int64_t[]){ 2 }, 1, 1),
                       mixture(ctx, (const int64_t[]){ 3 }, 1, 0));
    r.far = co_distribute_dataset(ctx, r.gpus, r.plain, NULL);
    return &r;
}

static bool
make_in_scarcity(co_context *ctx, void *prepared)
{
    ready *r = prepared;

    co_distribute_dataset(ctx, r->s, r->plain, NULL);
    return co_ok(ctx);
}

static bool
weigh_in_scarcity(co_context *ctx, void *prepared)
{
    ready *r = prepared;

    co_distribute_dataset(ctx, r->weighted, r->plain, NULL);
    co_distribute_dataset(ctx, r->weighted, r->off, NULL);
    return co_ok(ctx);
}

static bool
call_in_scarcity(co_context *ctx, void *prepared)
{
    ready *r = prepared;

    from_both(ctx, r->s, r->plain, r->off);
    return co_ok(ctx);
}

static bool
iterate_in_scarcity(co_context *ctx, void *prepared)
{
    ready *r = prepared;

    return co_next(ctx, co_iterate(ctx, r->split)) != NULL;
}

static bool
fill_in_scarcity(co_context *ctx, void *prepared)
{
    ready *r = prepared;

    return co_next(ctx, co_iterate(ctx, r->both)) != NULL;
}

static bool
move_in_scarcity(co_context *ctx, void *prepared)
{
    ready *r = prepared;

    return co_next(ctx, co_iterate(ctx, r->far)) != NULL;
}

CO_TEST_BARE(input_survives_want_of_any_block, "GEN-ERR-1")
{
    static bool (*const bodies[])(co_context *, void *) = {
        make_in_scarcity,    weigh_in_scarcity, call_in_scarcity,
        iterate_in_scarcity, fill_in_scarcity,  move_in_scarcity,
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); ++i)
        scarce_try("cpus=2, devices=GPU:2", get_ready, bodies[i], 24);
}
