/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses by name, with options, weights of classes and a mask; and why a loss under a strategy
 * divides by the examples of the step: two replicas of three and two examples have shares that add
 * up to the loss of the five.
 */
#include <cohort/cohort.h>
#include <stdio.h>

enum { EXAMPLES = 5, CLASSES = 3 };

static const float scores[EXAMPLES][CLASSES] = {
    { 2, 0, 1 }, { 0, 3, 0 }, { 1, 1, 1 }, { 0, 0, 2 }, { 4, 1, 0 }
};
static const int32_t labels[EXAMPLES] = { 0, 1, 2, 2, 1 };

static co_value *
share(co_context *ctx, co_value *args, void *user)
{
    return co_loss_call(ctx, user, co_at(ctx, args, 0), co_at(ctx, args, 1), NULL);
}

/* The shares of two replicas, and their sum. */
static void
print_shares(co_context *ctx, const char *what, co_loss *loss, co_value *y, co_value *logits)
{
    co_strategy *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL);
    co_dataset  *all = co_dataset_from_tensor_slices(ctx, co_args(ctx, y, logits));
    co_dataset  *batches = co_distribute_dataset(ctx, strategy,
                                                 co_dataset_batch(ctx, all, EXAMPLES, false), NULL);
    co_value *shares = co_run(ctx, strategy, share, co_next(ctx, co_iterate(ctx, batches)), loss);
    co_value *local = co_local_results(ctx, strategy, shares);
    co_value *sum = co_reduce(ctx, strategy, CO_REDUCE_SUM, shares, NULL, 0);

    printf("%s: %.4f + %.4f = %.4f\n", what, co_item_float(ctx, co_at(ctx, local, 0)),
           co_item_float(ctx, co_at(ctx, local, 1)), co_item_float(ctx, sum));
}

int
main(void)
{
    co_context     *ctx = co_open("cpus=2");
    co_value       *y = co_tensor(ctx, CO_INT32, CO_SHAPE(EXAMPLES), labels);
    co_value       *logits = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(EXAMPLES, CLASSES), scores);
    co_loss_options options = CO_LOSS_OPTIONS_INIT;
    co_loss        *loss;
    co_value       *weights;

    options.from_logits = true;
    loss = co_loss_named(ctx, "sparse_categorical_crossentropy", &options);
    printf("loss of five examples: %.4f\n",
           co_item_float(ctx, co_loss_call(ctx, loss, y, logits, NULL)));

    weights = co_class_sample_weight(ctx, y, (int64_t[]){ 2 }, (double[]){ 4 }, 1);
    printf("class 2 counts four times: %.4f\n",
           co_item_float(ctx, co_loss_call(ctx, loss, y, logits, weights)));

    print_shares(ctx, "over the step", loss, y, logits);
    options.mean_over = CO_MEAN_OVER_REPLICA; /* as Keras */
    loss = co_loss_named(ctx, "sparse_categorical_crossentropy", &options);
    print_shares(ctx, "over each replica", loss, y, logits);

    y = co_tensor(ctx, CO_INT32, CO_SHAPE(EXAMPLES), (int32_t[]){ 0, 1, 3, 2, 1 });
    co_loss_call(ctx, loss, y, logits, NULL);
    printf("%s: %s\n", co_error(ctx)->call, co_error(ctx)->message);
    co_clear(ctx);
    return co_close(ctx);
}
