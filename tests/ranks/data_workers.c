/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributed datasets over processes: every worker reads its share, all end at the same step, one
 * that fails is heard by all. The same bodies run with 1, 2 and 4 processes; what a worker alone
 * reads is proven in tests/unit/data_worker.c.
 */
#include "data_support.h"

#define MAX_WORKERS 8
#define MAX_PIECES  64

/* `each` replicas per process. */
static co_strategy *
workers(co_context *ctx, int each)
{
    co_multi_worker_mirrored_options options = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;
    co_strategy                     *alone = co_multi_worker_mirrored_strategy(ctx, NULL);

    options.num_replicas = each * co_num_workers(ctx, alone);
    return co_multi_worker_mirrored_strategy(ctx, &options);
}

/* What all workers will read, by looking at each one's dataset. */
typedef struct plan {
    char texts[MAX_WORKERS][MAX_PIECES][200];
    int  rows[MAX_WORKERS][MAX_PIECES];
    int  count[MAX_WORKERS];
} plan;

static void
make_plan(co_context *ctx, co_dataset *dataset, int num_workers, int replicas, plan *out)
{
    memset(out, 0, sizeof(*out));
    for (int w = 0; w < num_workers; ++w)
        CO_BLOCK(ctx) {
            co_input_context input = { num_workers, w, replicas };
            co_iterator     *it = co_iterate(ctx, co_dataset_for_worker(ctx, dataset, &input));
            char             text[DATA_TEXT];

            for (co_value *piece; (piece = co_next(ctx, it)) != NULL; ++out->count[w]) {
                snprintf(out->texts[w][out->count[w]], 200, "%.199s", data_text(ctx, piece, text));
                out->rows[w][out->count[w]] = (int)co_value_dim(ctx, piece, 0);
            }
        }
}

/* The number of steps until every worker is out. */
static int
steps_of(const plan *will, int num_workers, int each)
{
    int steps = 0;

    for (int w = 0; w < num_workers; ++w)
        if ((will->count[w] + each - 1) / each > steps)
            steps = (will->count[w] + each - 1) / each;
    return steps;
}

static void
expect_step(co_context *ctx, co_value *element, const plan *will, int worker, int each, int step,
            bool plain)
{
    char text[DATA_TEXT];

    for (int r = 0; r < each; ++r) {
        int         at = step * each + r;
        const char *expected = at < will->count[worker] ? will->texts[worker][at] : "[]";

        CO_EXPECT_STR(data_text(ctx, plain ? element : co_at(ctx, element, (size_t)r), text),
                      expected);
    }
}

CO_TEST(workers_read_their_share_and_end_together,
        "DS-SHARD-6 DS-SHARD-8 DS-SHARD-14 DS-SPLIT-2 DS-SPLIT-7 DS-PART-2 DS-PART-3 MW-11 MW-13")
{
    static const char *const pipelines[] = {
        "range(10).batch(4)",         "range(14).batch(7).DATA", "range(3).batch(8)",
        "range(0).batch(2)",          "range(9).batch(3)",       "range(9).batch(3).OFF",
        "range(14).batch(7).OFF",     "range(12).batch_drop(6)", "range(5).batch(4).repeat(2)",
        "range(13).batch(5).REPLICA",
    };
    static plan will;

    for (int each = 1; each <= 2; ++each) {
        co_strategy *strategy = workers(ctx, each);
        int          num = co_num_workers(ctx, strategy), me = co_worker_id(ctx, strategy);
        bool         plain = num * each == 1;

        for (size_t i = 0; i < sizeof(pipelines) / sizeof(pipelines[0]); ++i) {
            co_dataset  *dataset = data_pipeline(ctx, pipelines[i]);
            co_iterator *it = co_iterate(ctx, co_distribute_dataset(ctx, strategy, dataset, NULL));
            int          steps;

            make_plan(ctx, dataset, num, num * each, &will);
            steps = steps_of(&will, num, each);
            for (int step = 0; step < steps; ++step) {
                co_value *element = co_next(ctx, it);
                int64_t   rows = 0;

                CO_REQUIRE(element != NULL);
                expect_step(ctx, element, &will, me, each, step, plain);
                for (int w = 0; w < num; ++w)
                    for (int at = step * each; at < (step + 1) * each && at < will.count[w]; ++at)
                        rows += will.rows[w][at];
                CO_EXPECT_INT(co_iterator_step_examples(ctx, it), rows);
            }
            CO_EXPECT_NULL(co_next(ctx, it));
            CO_EXPECT_NULL(co_next(ctx, it));
            if (!CO_EXPECT_OK(ctx))
                CO_FAIL("at %s with %d replicas on each of %d workers", pipelines[i], each, num);
        }
    }
}

static co_dataset *
growing(co_context *ctx, const co_input_context *input, void *user)
{
    *(co_input_context *)user = *input;
    return co_dataset_batch(ctx, co_dataset_range(ctx, 0, 2 * (input->input_pipeline_id + 1), 1), 2,
                            false);
}

CO_TEST(a_worker_that_is_out_gives_empty_batches_until_all_are,
        "MW-11 MW-13 DS-FN-1 DS-FN-2 DS-PART-3")
{
    co_strategy     *strategy = workers(ctx, 1);
    int              num = co_num_workers(ctx, strategy), me = co_worker_id(ctx, strategy);
    co_input_context seen = { 0, 0, 0 };
    co_iterator *it = co_iterate(ctx, co_distribute_datasets_from_function(ctx, strategy, growing,
                                                                           &seen, NULL));
    char         text[DATA_TEXT], expected[80];

    CO_EXPECT_INT(seen.num_input_pipelines, num);
    CO_EXPECT_INT(seen.input_pipeline_id, me);
    CO_EXPECT_INT(seen.num_replicas_in_sync, num);
    for (int step = 0; step < num; ++step) {
        snprintf(expected, sizeof(expected),
                 num == 1     ? "[%d,%d]"
                 : step <= me ? "{[%d,%d]}"
                              : "{[]}",
                 2 * step, 2 * step + 1);
        CO_EXPECT_STR(data_text(ctx, co_next(ctx, it), text), expected);
        CO_EXPECT_INT(co_iterator_step_examples(ctx, it), 2 * (num - step));
    }
    CO_EXPECT_NULL(co_next(ctx, it));
    CO_EXPECT_OK(ctx);
}

CO_TEST(specs_of_finite_datasets_have_an_unknown_batch_dimension, "MW-11 DS-SPEC-1 DS-SPEC-2")
{
    co_strategy *strategy = workers(ctx, 1);
    int          num = co_num_workers(ctx, strategy);
    co_dataset  *finite = data_pipeline(ctx, "range(16).batch_drop(8)");
    co_dataset  *infinite = data_pipeline(ctx, "range(16).repeat.batch_drop(8)");
    char         text[DATA_TEXT], expected[80];

    finite = co_distribute_dataset(ctx, strategy, finite, NULL);
    infinite = co_distribute_dataset(ctx, strategy, infinite, NULL);
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, finite), text),
                  num == 1 ? "int64[8]" : "{int64[-1]}");
    snprintf(expected, sizeof(expected), num == 1 ? "int64[8]" : "{int64[%d]}", 8 / num);
    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, infinite), text), expected);
    CO_EXPECT_INT(co_cardinality(ctx, finite), 2);
}

CO_TEST(the_policy_replica_gives_every_replica_the_same_on_any_number_of_workers, "")
{
    co_strategy *strategy = NULL;
    co_iterator *mine, *all;
    int          each, first;
    char         text[DATA_TEXT], expected[DATA_TEXT];

    each = 4 / co_num_workers(ctx, workers(ctx, 1)); /* 4 replicas in all, wherever they are */
    strategy = workers(ctx, each);
    first = co_worker_id(ctx, strategy) * each;
    mine = co_iterate(ctx, co_distribute_dataset(ctx, strategy,
                                                 data_pipeline(ctx, "range(13).batch(7).REPLICA"),
                                                 NULL));
    all = co_iterate(ctx, co_dataset_for_worker(ctx, data_pipeline(ctx, "range(13).batch(7)"),
                                                &(co_input_context){ 1, 0, 4 }));
    for (int step = 0; step < 2; ++step) {
        co_value *element = co_next(ctx, mine);

        for (int k = 0; k < 4; ++k) {
            data_text(ctx, co_next(ctx, all), expected);
            if (k >= first && k < first + each)
                CO_EXPECT_STR(data_text(ctx, co_at(ctx, element, (size_t)(k - first)), text),
                              expected);
        }
    }
    CO_EXPECT_NULL(co_next(ctx, mine));
}

static co_dataset *
failing_on_last(co_context *ctx, const co_input_context *input, void *user)
{
    bool last = input->input_pipeline_id == input->num_input_pipelines - 1;
    /* The second batch of batches is ragged on the last worker alone. */
    co_dataset *batches = co_dataset_batch(ctx, co_dataset_range(ctx, 0, last ? 7 : 8, 1), 2,
                                           false);

    (void)user;
    return co_dataset_repeat(ctx, co_dataset_batch(ctx, batches, 2, false), 2);
}

CO_TEST(a_pipeline_that_fails_on_one_worker_is_heard_on_all, "DS-ITER-8")
{
    co_strategy *strategy = workers(ctx, 1);
    co_iterator *it = co_iterate(
        ctx, co_distribute_datasets_from_function(ctx, strategy, failing_on_last, NULL, NULL));

    for (int round = 0; round < 2; ++round) {
        CO_EXPECT_NOT_NULL(co_next(ctx, it));
        CO_EXPECT_OK(ctx);
        CO_EXPECT_NULL(co_next(ctx, it));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "cannot batch");
    }
}

CO_TEST(there_is_one_dataset_per_worker, "MW-15")
{
    co_input_options options = CO_INPUT_OPTIONS_INIT;
    co_input_context seen;

    options.per_replica = true;
    CO_EXPECT_NULL(
        co_distribute_datasets_from_function(ctx, workers(ctx, 1), growing, &seen, &options));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "per_replica");
    CO_EXPECT_NULL(co_distribute_dataset(ctx, workers(ctx, 1),
                                         data_pipeline(ctx, "range(4).batch(2)"), &options));
    CO_EXPECT_ERROR(ctx, CO_UNIMPLEMENTED, "per_replica");
}
