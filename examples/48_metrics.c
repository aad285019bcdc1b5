/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of a step that runs on two replicas, whose parts of the batches differ in length: the
 * results are those of all examples. One of the metrics is the program's own.
 */
#include <cohort/cohort.h>
#include <math.h>
#include <stdio.h>

enum { EXAMPLES = 7, CLASSES = 3, BATCH = 4 };

static const int64_t labels[EXAMPLES] = { 0, 1, 2, 1, 0, 2, 2 };
static const float   scores[EXAMPLES][CLASSES] = { { 0.8F, 0.1F, 0.1F }, { 0.2F, 0.7F, 0.1F },
                                                   { 0.3F, 0.4F, 0.3F }, { 0.1F, 0.8F, 0.1F },
                                                   { 0.4F, 0.5F, 0.1F }, { 0.1F, 0.2F, 0.7F },
                                                   { 0.2F, 0.2F, 0.6F } };

/* The root of the mean square of all scores: what a batch adds, and the value of the sums. */
static co_value *
add_squares(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_at(ctx, args, 1);

    (void)user;
    return co_args(ctx, co_reduce_sum(ctx, co_square(ctx, x), CO_ALL_AXES, false), co_size(ctx, x));
}

static co_value *
root_of_mean(co_context *ctx, co_value *state, void *user)
{
    (void)user;
    return co_sqrt(ctx, co_div(ctx, co_get(ctx, state, "sum"), co_get(ctx, state, "count")));
}

enum { ACCURACY, LOSS, MATRIX, OWN, NUM_METRICS };

static co_metric *
make_own(co_context *ctx)
{
    static const co_metric_variable variables[] = { { "sum", CO_FLOAT64, NULL, 0, 0 },
                                                    { "count", CO_FLOAT64, NULL, 0, 0 } };
    co_metric_rule                  rule = CO_METRIC_RULE_INIT;

    rule.name = "root_mean_square";
    rule.variables = variables;
    rule.num_variables = 2;
    rule.update = add_squares;
    rule.result = root_of_mean;
    return co_metric_of(ctx, &rule, NULL, NULL);
}

static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    co_metric **metrics = user;
    co_value   *batch = co_at(ctx, args, 0);
    co_value   *y = co_get(ctx, batch, "label"), *p = co_get(ctx, batch, "scores");

    co_metric_update(ctx, metrics[ACCURACY], y, p, NULL);
    co_metric_update(ctx, metrics[LOSS], y, p, NULL);
    co_metric_update(ctx, metrics[MATRIX], y, co_argmax(ctx, p, -1, CO_INT64), NULL);
    co_metric_update(ctx, metrics[OWN], y, p, NULL);
    return NULL;
}

static co_dataset *
make_data(co_context *ctx)
{
    static const char *const keys[] = { "label", "scores" };

    co_value *columns[] = { co_tensor(ctx, CO_INT64, CO_SHAPE(EXAMPLES), labels),
                            co_tensor(ctx, CO_FLOAT32, CO_SHAPE(EXAMPLES, CLASSES), scores) };

    return co_dataset_batch(ctx, co_dataset_from_tensor_slices(ctx, co_dict(ctx, keys, columns, 2)),
                            BATCH, false);
}

int
main(void)
{
    co_context       *ctx = co_open("cpus=2");
    co_strategy      *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL); /* all CPUs */
    co_metric_options options = CO_METRIC_OPTIONS_INIT;
    co_metric        *metrics[NUM_METRICS] = { NULL };
    co_iterator      *it;
    co_value         *element, *state;
    char              text[200];

    options.num_classes = CLASSES;
    CO_SCOPE(ctx, strategy) {
        metrics[ACCURACY] = co_metric_named(ctx, "sparse_categorical_accuracy", NULL);
        metrics[LOSS] = co_metric_new(ctx, CO_METRIC_SPARSE_CATEGORICAL_CROSSENTROPY, NULL);
        metrics[MATRIX] = co_metric_new(ctx, CO_METRIC_MEAN_IOU, &options);
        metrics[OWN] = make_own(ctx);
    }
    it = co_iterate(ctx, co_distribute_dataset(ctx, strategy, make_data(ctx), NULL));
    while ((element = co_next(ctx, it)) != NULL)
        co_run(ctx, strategy, step, co_args(ctx, element), metrics);
    for (int i = 0; i < NUM_METRICS && co_ok(ctx); ++i)
        printf("%s: %.4f\n", co_metric_name(ctx, metrics[i]),
               co_item_float(ctx, co_metric_result(ctx, metrics[i])));
    state = co_metric_save(ctx, metrics[ACCURACY]); /* what a checkpoint keeps */
    co_format(ctx, state, text, sizeof(text));
    printf("state: %s\n", text);
    co_metric_reset(ctx, metrics[ACCURACY]);
    printf("after reset: %.4f\n", co_item_float(ctx, co_metric_result(ctx, metrics[ACCURACY])));
    return co_close(ctx);
}
