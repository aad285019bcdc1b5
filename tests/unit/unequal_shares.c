/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replicas with unequal shares: the rule by which batches are cut, that every row is used once, and
 * that means and training are those of one device.
 */
#include "data/dataset.h"
#include "data_support.h"
#include "line_support.h"

#include <limits.h>

#define MAX_REPLICAS 6
#define MAX_ROWS     64

typedef struct shares {
    int     n;
    int64_t weights[MAX_REPLICAS];
} shares;

static const shares many[] = {
    { 2, { 1, 1 } },
    { 2, { 3, 1 } },
    { 2, { 1, 9 } },
    { 3, { 1, 2, 3 } },
    { 3, { 100, 1, 100 } },
    { 4, { 1, 1, 1, 2 } },
    { 6, { 5, 1, 4, 2, 3, 1 } },
    { 2, { INT_MAX - 1, 1 } },
};
#define NUM_SHARES (sizeof(many) / sizeof(many[0]))

static co_strategy *
mirrored(co_context *ctx, int n, const int64_t *weights)
{
    static const char *const names[] = { "/cpu:0", "/cpu:1" };
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;

    options.num_replicas = n;
    options.weights = weights;
    options.num_weights = weights != NULL ? (size_t)n : 0;
    return co_mirrored_strategy(ctx, names, 2, &options);
}

CO_TEST_WITH(batches_are_cut_by_weights, "DS-SPLIT-1 DS-SPLIT-2 DS-DIST-1 DS-DIST-8", "cpus=2")
{
    static const struct {
        const char *pipeline;
        shares      by;
        const char *elements;
    } cases[] = {
        { "range(10).batch(4)", { 2, { 3, 1 } }, "{[0,1,2],[3]} {[4,5,6],[7]} {[8,9],[]}" },
        { "range(10).batch(4)", { 2, { 1, 3 } }, "{[0],[1,2,3]} {[4],[5,6,7]} {[8],[9]}" },
        { "range(3).batch(1)", { 2, { 1, 100 } }, "{[0],[]} {[1],[]} {[2],[]}" },
        { "range(7).batch(7)", { 3, { 1, 2, 4 } }, "{[0],[1,2],[3,4,5,6]}" },
        { "range(9).batch(8)", { 3, { 2, 1, 1 } }, "{[0,1,2,3],[4,5],[6,7]} {[8],[],[]}" },
        { "range(9).batch(8).OFF", { 3, { 2, 1, 1 } }, "{[0,1,2,3],[4,5],[6,7]} {[8],[],[]}" },
        { "range(5).batch(4).repeat(2)",
          { 2, { 3, 1 } },
          "{[0,1,2],[3]} {[4],[]} {[0,1,2],[3]} {[4],[]}" },
        { "range(5).batch(4).repeat(2).OFF",
          { 2, { 3, 1 } },
          "{[0,1,2],[3]} {[4,0,1],[2]} {[3,4],[]}" },
        { "range(8).batch_drop(4)", { 2, { 3, 1 } }, "{[0,1,2],[3]} {[4,5,6],[7]}" },
        { "range(0).batch(4)", { 2, { 3, 1 } }, "" },
    };
    char text[DATA_TEXT];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
        CO_BLOCK(ctx) {
            co_strategy *s = mirrored(ctx, cases[i].by.n, cases[i].by.weights);
            co_dataset  *ds = co_distribute_dataset(ctx, s, data_pipeline(ctx, cases[i].pipeline),
                                                    NULL);

            CO_EXPECT_STR(data_elements(ctx, ds, 40, text), cases[i].elements);
        }
}

/* The rule, written another way: the smallest number of rows that is not below the exact share of
 * those before. */
static int64_t
end_of(int64_t rows, const shares *by, int upto)
{
    int64_t part = 0, whole = 0, end = 0;

    for (int i = 0; i < by->n; ++i) {
        part += i < upto ? by->weights[i] : 0;
        whole += by->weights[i];
    }
    while (end * whole < rows * part)
        ++end;
    return end;
}

/* Every row once, in order, each replica's piece where the rule puts it; examples counted. */
static void
expect_exact(co_context *ctx, const shares *by, int64_t size, int64_t batch, bool off)
{
    co_strategy *s = mirrored(ctx, by->n, by->weights);
    co_dataset  *ds = co_dataset_batch(ctx, co_dataset_range(ctx, 0, size, 1), batch, false);
    co_iterator *it;
    int64_t      row = 0, ids[MAX_ROWS];

    if (off)
        ds = co_dataset_with_autoshard(ctx, ds, CO_AUTOSHARD_OFF);
    it = co_iterate(ctx, co_distribute_dataset(ctx, s, ds, NULL));
    CO_EACH(ctx, element, it) {
        int64_t rows = size - row < batch ? size - row : batch, begin = row;

        for (int i = 0; i < by->n; ++i) {
            co_value *part = co_at(ctx, element, (size_t)i);
            int64_t   n = co_value_dim(ctx, part, 0), left = begin + rows - row;
            int64_t   share = end_of(off ? batch : rows, by, i + 1) -
                            end_of(off ? batch : rows, by, i);

            CO_EXPECT_INT(n, share < left ? share : left);
            co_value_copy_data(ctx, part, CO_INT64, ids, MAX_ROWS);
            for (int64_t k = 0; k < n; ++k)
                if (ids[k] != row++)
                    CO_FAIL("row %lld is where %lld should be", (long long)ids[k],
                            (long long)row - 1);
        }
        CO_EXPECT_INT(row - begin, rows);
        CO_EXPECT_INT(co_iterator_step_examples(ctx, it), rows);
    }
    CO_EXPECT_INT(row, size);
}

CO_TEST_WITH(every_row_is_read_once, "DS-SPLIT-4 DS-SPLIT-7 DS-SPLIT-9 DS-PART-2 DS-PART-3",
             "cpus=2")
{
    for (size_t i = 1; i + 1 < NUM_SHARES; ++i) /* the first are equal: below */
        for (int64_t size = 0; size <= 40; ++size)
            for (int64_t batch = 1; batch <= 9; ++batch)
                for (int off = 0; off < 2; ++off)
                    CO_BLOCK(ctx) {
                        expect_exact(ctx, &many[i], size, batch, off == 1);
                    }
}

CO_TEST_WITH(equal_weights_are_no_weights, "DS-SPLIT-1 DS-SPLIT-2 DS-SPLIT-3", "cpus=2")
{
    static const char *const pipelines[] = { "range(10).batch(4)", "range(7).batch(7).OFF",
                                             "range(9).batch(8)", "range(12).batch_drop(6)" };
    static const int64_t     weights[] = { 7, 7, 7 };
    char                     a[DATA_TEXT], b[DATA_TEXT];

    for (size_t i = 0; i < 4; ++i)
        for (int n = 2; n <= 3; ++n) {
            co_strategy *plain = mirrored(ctx, n, NULL), *equal = mirrored(ctx, n, weights);
            co_dataset  *ds = data_pipeline(ctx, pipelines[i]);
            co_dataset  *x = co_distribute_dataset(ctx, plain, ds, NULL);
            co_dataset  *y = co_distribute_dataset(ctx, equal, ds, NULL);

            CO_EXPECT_STR(data_elements(ctx, y, 40, a), data_elements(ctx, x, 40, b));
            CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, y), a),
                          data_text(ctx, co_element_spec(ctx, x), b));
            CO_EXPECT_INT(co_replica_weight(ctx, equal, 1), 1);
        }
}

CO_TEST_WITH(weights_are_a_ratio, "", "cpus=2")
{
    static const int64_t large[] = { 6000000, 9000000 };
    co_strategy         *s = mirrored(ctx, 2, large);

    CO_EXPECT_INT(co_replica_weight(ctx, s, 0), 2);
    CO_EXPECT_INT(co_replica_weight(ctx, s, 1), 3);
}

CO_TEST_WITH(specs_with_weights_leave_the_batch_open, "DS-SPEC-2 DS-PART-1", "cpus=2")
{
    static const int64_t weights[] = { 3, 1 };
    co_dataset          *ds = co_distribute_dataset(ctx, mirrored(ctx, 2, weights),
                                                    data_pipeline(ctx, "range(6).batch_drop(4)"), NULL);
    char                 text[DATA_TEXT];

    CO_EXPECT_STR(data_text(ctx, co_element_spec(ctx, ds), text), "{int64[-1],int64[-1]}");
    CO_EXPECT_STR(data_elements(ctx, ds, 9, text), "{[0,1,2],[3]}");
}

/* --- what is refused --- */

CO_TEST_WITH(weights_that_cannot_be_are_refused, "C-ARG-1", "cpus=2")
{
    static const struct {
        int64_t     weights[3];
        size_t      num;
        const char *part;
    } cases[] = {
        { { 1, 2, 3 },
          2,
          "num_weights is 2 with weights that are given; there must be one for each of 3" },
        { { 1, 2, 3 }, 4, "num_weights is 4" },
        { { 1, 2, 3 }, 0, "num_weights is 0" },
        { { 0, 2, 3 }, 3, "the weight of replica 0 is 0; weights are at least 1" },
        { { 1, -2, 3 }, 3, "the weight of replica 1 is -2" },
        { { 1, INT64_MIN, 3 }, 3, "the weight of replica 1" },
        { { 1, 1, INT64_MAX }, 3, "the weight of replica 2 is 9223372036854775807" },
        { { 1 << 30, 1 << 30, 1 }, 3, "add up to at most 2147483647 (so far 1073741824)" },
    };
    co_mirrored_options              options = CO_MIRRORED_OPTIONS_INIT;
    co_multi_worker_mirrored_options workers = CO_MULTI_WORKER_MIRRORED_OPTIONS_INIT;

    options.num_replicas = workers.num_replicas = 3;
    workers.transport = "self";
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        options.weights = workers.weights = cases[i].weights;
        options.num_weights = workers.num_weights = cases[i].num;
        CO_EXPECT_NULL(co_mirrored_strategy(ctx, NULL, 0, &options));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, cases[i].part);
        CO_EXPECT_NULL(co_multi_worker_mirrored_strategy(ctx, &workers));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, cases[i].part);
    }
    options.weights = NULL;
    CO_EXPECT_NULL(co_mirrored_strategy(ctx, NULL, 0, &options));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "num_weights is 3 with weights that are NULL");
    options.weights = (const int64_t[]){ INT_MAX - 2, 1, 1 };
    CO_EXPECT_NOT_NULL(co_mirrored_strategy(ctx, NULL, 0, &options));
}

CO_TEST_WITH(scalars_are_not_split_by_weights, "DS-DIST-7", "cpus=2")
{
    static const int64_t weights[] = { 3, 1 };
    co_strategy         *s = mirrored(ctx, 2, weights);

    CO_EXPECT_NULL(co_distribute_dataset(ctx, s, data_pipeline(ctx, "range(4)"), NULL));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "not batched");
}

/* --- several workers, seen from one --- */

/* What worker w's replica j got in each step: adds to rows seen and to the count of each
 * replica. */
static void
read_worker(co_context *ctx, co_dataset *ds, const co_input_context *input, const int64_t *weights,
            int seen[MAX_ROWS], int64_t counts[MAX_REPLICAS])
{
    int         each = input->num_replicas_in_sync / input->num_input_pipelines, at = 0;
    int64_t     ids[MAX_ROWS];
    co_dataset *mine = coi_dataset_give(ctx, coi_dataset_for_worker(ctx, ds, input, weights));

    CO_EACH(ctx, piece, co_iterate(ctx, mine)) {
        int64_t n = co_value_dim(ctx, piece, 0);

        counts[input->input_pipeline_id * each + at++ % each] += n;
        co_value_copy_data(ctx, piece, CO_INT64, ids, MAX_ROWS);
        for (int64_t k = 0; k < n; ++k)
            ++seen[ids[k]];
    }
}

CO_TEST(workers_share_batches_by_weights, "DS-SHARD-6 DS-SHARD-8 DS-SHARD-9 MW-11")
{
    static const char *const pipelines[] = { "range(48).batch(12).DATA",
                                             "range(48).batch(12).REPLICA",
                                             "range(48).shard().batch(12).HINT",
                                             "range(48).batch(12).OFF" };
    static const int64_t     weights[] = { 3, 1, 2, 4, 1, 1 };

    for (size_t p = 0; p < 4; ++p)
        for (int num = 1; num <= 3; ++num) {
            int     seen[MAX_ROWS] = { 0 };
            int64_t counts[MAX_REPLICAS] = { 0 };

            for (int w = 0; w < num; ++w) {
                co_input_context input = { num, w, 6 };

                read_worker(ctx, data_pipeline(ctx, pipelines[p]), &input, weights, seen, counts);
            }
            for (int i = 0; i < 48; ++i)
                CO_EXPECT_INT(seen[i], p == 3 ? num : 1);
            for (int i = 0; p < 2 && i < 6;
                 ++i) /* 4 batches of 12, which is the sum of the weights */
                CO_EXPECT_INT(counts[i], 4 * weights[i]);
        }
}

CO_TEST(pieces_of_a_worker_have_the_same_sizes_in_every_step, "DS-SPLIT-2 DS-SPLIT-3")
{
    static const int64_t weights[] = { 3, 1, 2, 4, 1, 1 };
    static const struct {
        const char *pipeline;
        const char *elements;
    } cases[] = {
        { "range(15).batch(12).OFF", "[0,1] [2,3,4,5] [6,7] [8,9,10,11] [12,13] [14]" },
        /* A size that is not known: every batch is cut for the worker's own replicas, again and
           again. */
        { "range(9).batch(9).rebatch(9).OFF", "[0] [1,2] [3] [4,5] [6] [7,8]" },
    };
    co_input_context input = { 3, 1, 6 };
    char             text[DATA_TEXT];

    for (size_t i = 0; i < 2; ++i) {
        co_dataset *ds = data_pipeline(ctx, cases[i].pipeline);

        ds = coi_dataset_give(ctx, coi_dataset_for_worker(ctx, ds, &input, weights));
        CO_EXPECT_STR(data_elements(ctx, ds, 40, text), cases[i].elements);
    }
}

CO_TEST(a_worker_without_rows_is_refused_on_all, "DS-SPLIT-2")
{
    static const int64_t weights[] = { 10, 1 };

    for (int w = 0; w < 2; ++w) {
        co_input_context input = { 2, w, 2 };

        CO_EXPECT_NULL(coi_dataset_for_worker(ctx, data_pipeline(ctx, "range(9).batch(1).OFF"),
                                              &input, weights));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "batches of 1 row leave none for worker 1 of 2");
    }
}

/* --- means and training --- */

static co_value *
pass(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_cast(ctx, co_at(ctx, args, 0), CO_FLOAT64);
}

CO_TEST_WITH(means_count_rows, "S-REDUCE-7 DS-PART-2", "cpus=2")
{
    for (size_t i = 0; i < NUM_SHARES; ++i)
        for (int64_t size = 1; size <= 13; ++size)
            CO_BLOCK(ctx) {
                co_strategy *s = mirrored(ctx, many[i].n, many[i].weights);
                co_dataset  *ds = co_dataset_batch(ctx, co_dataset_range(ctx, 0, size, 1), size,
                                                   false);

                CO_EACH(ctx, x, co_iterate(ctx, co_distribute_dataset(ctx, s, ds, NULL))) {
                    co_value *r = co_run(ctx, s, pass, co_args(ctx, x), NULL);

                    CO_EXPECT_CLOSE(co_item_float(ctx,
                                                  co_reduce(ctx, s, CO_REDUCE_MEAN, r, CO_AXES(0))),
                                    (double)(size - 1) / 2, 0);
                }
            }
}

CO_TEST_WITH(training_with_weights_is_training_on_one_device, "S-RUN-5 DS-PART-2", "cpus=2")
{
    float one[3], some[3];

    line_train(ctx, co_one_device_strategy(ctx, "/cpu:0"), CO_AUTOSHARD_AUTO, one);
    CO_EXPECT_MORE(one[1], 0.1);
    for (size_t i = 0; i < NUM_SHARES; ++i)
        CO_BLOCK(ctx) {
            line_train(ctx, mirrored(ctx, many[i].n, many[i].weights), CO_AUTOSHARD_AUTO, some);
            for (int k = 0; k < 3;
                 ++k) /* sums of seven float32 numbers in another order, 80 steps */
                CO_EXPECT_CLOSE(some[k], one[k], 2e-6);
        }
}

/* --- want of memory --- */

static bool
distribute(co_context *ctx)
{
    static const int64_t weights[] = { 3, 1, 2 };
    char                 text[DATA_TEXT];
    co_strategy         *s = mirrored(ctx, 3, weights);
    co_dataset          *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 9, 1), 5, false);
    co_dataset          *off = co_dataset_with_autoshard(ctx, data, CO_AUTOSHARD_OFF);

    data_elements(ctx, co_distribute_dataset(ctx, s, data, NULL), 9, text);
    data_elements(ctx, co_distribute_dataset(ctx, s, off, NULL), 9, text);
    return co_ok(ctx);
}

CO_TEST_BARE(shares_survive_want_of_memory, "")
{
    CO_EXPECT_SURVIVES_NO_MEMORY("cpus=2", distribute);
}
