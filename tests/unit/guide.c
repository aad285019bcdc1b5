/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of code in docs/c-api.md, as programs: tests/scripts/documents.sh compares the two, so
 * a piece that no longer compiles or no longer does what the guide says is found.
 */
#include "test.h"

#include <unistd.h>

static int64_t
live_values(co_context *ctx)
{
    co_memory_stats stats = { .struct_size = sizeof(stats) };

    co_get_memory_stats(ctx, &stats);
    return stats.live_values;
}

CO_TEST(values_live_as_long_as_their_block, "")
{
    int64_t   before = live_values(ctx);
    co_value *x = co_scalar_float(ctx, 2);
    co_value *kept, *sum = NULL;

    CO_BLOCK(ctx) {
        co_value *y = co_square(ctx, x); /* gone after the block */
        co_value *z = co_add(ctx, y, x);

        sum = co_escape(ctx, z); /* lives in the block around this one */
        kept = y;
        co_keep(ctx, kept); /* lives until co_release */
    }
    CO_EXPECT_CLOSE(co_item_float(ctx, sum), 6, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, kept), 4, 0);
    co_release(ctx, kept);
    CO_EXPECT_INT(live_values(ctx), before + 2);
}

CO_TEST(the_first_error_stays, "")
{
    co_value *a = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3));
    co_value *b = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 4));

    co_value *y = co_relu(ctx, co_add(ctx, co_matmul(ctx, a, b), b));
    if (!co_ok(ctx)) {
        const co_error_info *error = co_error(ctx);

        fprintf(stderr, "%s:%d: %s: %s\n", error->file, error->line, error->call, error->message);
        co_clear(ctx);
    }
    CO_EXPECT_TRUE(y == NULL);
}

static co_value *
checked_step(co_context *ctx, co_value *args, void *user)
{
    const int *limit = user;
    int64_t    n = co_value_dim(ctx, co_at(ctx, args, 0), 0);

    if (n > *limit)
        return co_fail(ctx, CO_OUT_OF_RANGE, "%lld rows; at most %d", (long long)n, *limit), NULL;
    return co_int(ctx, n);
}

CO_TEST(user_code_fails_with_its_own_message, "GEN-ERR-2")
{
    int       limit = 3;
    co_value *rows = co_ones(ctx, CO_FLOAT32, CO_SHAPE(4, 1));

    co_run(ctx, co_default_strategy(ctx), checked_step, co_args(ctx, rows), &limit);
    CO_EXPECT_ERROR(ctx, CO_OUT_OF_RANGE, "4 rows; at most 3");
}

CO_TEST(values_are_made_from_c_arrays, "")
{
    static const float data[] = { 1, 2, 3, 4, 5, 6 };

    co_value *t = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 3), data); /* a copy, [2, 3] */
    co_value *s = co_scalar_int64(ctx, 7); /* a tensor without dimensions */
    co_value *n = co_int(ctx, 7);          /* a host number, no tensor */
    co_value *d = co_dict(ctx, (const char *const[]){ "x", "n" }, (co_value *const[]){ t, n }, 2);

    const float *elements = co_value_data(ctx, t); /* row-major, for reading */
    double       sum = 0;
    for (int64_t i = 0; i < co_value_num_elements(ctx, t); ++i)
        sum += elements[i];
    CO_EXPECT_CLOSE(sum, 21, 0);
    CO_EXPECT_INT(co_item_int(ctx, s), 7);
    CO_EXPECT_INT(co_item_int(ctx, co_get(ctx, d, "n")), 7);
}

CO_TEST(operators_convert_what_they_are_given, "C-VAL-4")
{
    co_value *x = co_range(ctx, co_int(ctx, 0), co_int(ctx, 6), co_int(ctx, 1), CO_FLOAT32);
    co_value *m = co_reshape(ctx, x, CO_SHAPE(2, -1));              /* [2, 3] */
    co_value *y = co_mul(ctx, m, co_int(ctx, 2));                   /* 2 becomes a float32 */
    co_value *r = co_reduce_mean(ctx, y, CO_AXES(0), false);        /* [3] */
    co_value *s = co_reduce_sum(ctx, y, CO_ALL_AXES, false);        /* a scalar */
    co_value *w = co_op_call(ctx, "square", co_args(ctx, r), NULL); /* by name */

    CO_EXPECT_CLOSE(co_item_float(ctx, s), 30, 0);
    CO_EXPECT_INT(co_value_dim(ctx, w, 0), 3);
}

CO_TEST(a_tape_gives_gradients, "")
{
    co_value *w = co_variable(ctx, co_scalar_float(ctx, 3), NULL);
    co_value *x = co_scalar_float(ctx, 5);

    co_tape_begin(ctx);
    co_watch(ctx, x); /* trainable variables are watched by being used */
    co_value *y = co_mul(ctx, co_square(ctx, w), x);
    co_value *g = co_gradient(ctx, y, co_args(ctx, w, x)); /* the tape is used up */

    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, g, 0)), 30, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, co_at(ctx, g, 1)), 9, 0);
}

static co_value *
count_replicas(co_context *ctx, co_value *args, void *user)
{
    co_value *counter = user;

    (void)args;
    return co_assign_add(ctx, counter, co_scalar_float(ctx, 1)); /* summed over replicas first */
}

CO_TEST_WITH(a_variable_has_the_policy_of_its_strategy, "VAR-MIR-3", "cpus=2")
{
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *counter = NULL;

    CO_SCOPE(ctx, strategy) {
        co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

        options.name = "counter";
        options.aggregation = CO_AGGREGATION_SUM;
        options.trainable = CO_TRAINABLE_NO;
        counter = co_variable(ctx, co_scalar_float(ctx, 0), &options);
    }
    co_run(ctx, strategy, count_replicas, co_no_args(ctx), counter);
    CO_EXPECT_CLOSE(co_item_float(ctx, counter), 2, 0);
}

static co_value *
share_of(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)user;
    return co_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, args, 0), NULL, 0);
}

static co_value *
merging_step(co_context *ctx, co_value *args, void *user)
{
    co_value *mine = co_replica_id_tensor(ctx);

    (void)args;
    (void)user;
    return co_merge_call(ctx, share_of, co_args(ctx, mine), NULL); /* once for all replicas */
}

CO_TEST_WITH(replicas_merge, "RC-MERGE-2", "cpus=2")
{
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_value    *sum = co_run(ctx, strategy, merging_step, co_no_args(ctx), NULL);

    CO_EXPECT_INT(co_item_int(ctx, sum), 1);
}

static co_value *
sum_step(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_reduce_sum(ctx, co_at(ctx, args, 0), CO_ALL_AXES, false);
}

CO_TEST_WITH(batches_are_split_over_replicas, "DS-SPLIT-1", "cpus=2")
{
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    int64_t      total = 0;

    co_dataset *data = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 4, false);
    co_dataset *mine = co_dataset_with_autoshard(ctx, data, CO_AUTOSHARD_REPLICA);
    co_dataset *input = co_distribute_dataset(ctx, strategy, mine, NULL);

    CO_EACH(ctx, x, co_iterate(ctx, input)) {
        co_value *sums = co_run(ctx, strategy, sum_step, co_args(ctx, x), NULL);

        total += co_item_int(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM, sums, NULL, 0));
    }
    CO_EXPECT_INT(total, 45);
}

CO_TEST(examples_are_written_to_a_file_and_read_again, "")
{
    char    path[] = "/tmp/cohort-guide-XXXXXX";
    int     made = mkstemp(path);
    int64_t rows = 0;

    CO_REQUIRE(made >= 0);
    static const char *const keys[] = { "image", "label" };
    co_record_writer        *writer = co_record_writer_open(ctx, path, NULL);

    for (int i = 0; i < 10; ++i)
        CO_BLOCK(ctx) {
            co_value *items[] = { co_fill(ctx, CO_SHAPE(4), co_float(ctx, i)), co_int(ctx, i) };
            co_value *example = co_example_encode(ctx, co_dict(ctx, keys, items, 2));

            co_record_write_value(ctx, writer, example);
        }
    co_record_writer_close(ctx, writer);

    static const int64_t    four[] = { 4 };
    static const co_feature features[] = {
        { "image", CO_FEATURE_FIXED, CO_FLOAT32, four, 1, NULL },
        { "label", CO_FEATURE_FIXED, CO_INT64, NULL, 0, NULL },
    };
    const char *files[] = { path };
    co_dataset *records = co_dataset_tfrecord(ctx, files, 1, NULL);

    CO_EACH(ctx, batch, co_iterate(ctx, co_dataset_batch(ctx, records, 4, false))) {
        co_value *parsed = co_parse_example(ctx, batch, features, 2);

        rows += co_value_dim(ctx, co_get(ctx, parsed, "image"), 0); /* 4, 4, 2 */
    }
    CO_EXPECT_INT(rows, 10);
    close(made);
    unlink(path);
}
