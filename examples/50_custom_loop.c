/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A custom training loop, whole: a loss, metrics, a learning rate with a schedule, validation and
 * checkpoints, on two replicas, with captured steps. The program is stopped after 40 steps and
 * started again; docs/custom-loop.md goes through it.
 */
#include <cohort/cohort.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLASSES = 3, TRAIN_ROWS = 150, TEST_ROWS = 35, BATCH = 16, EVERY = 20, LAST = 80 };

typedef struct program {
    co_strategy  *strategy;
    co_value     *kernel, *bias;
    co_loss      *loss;
    co_optimizer *optimizer;
    co_metric    *train_loss, *test_accuracy;
} program;

/* --- the steps: what one replica does with its part of a batch --- */

static co_value *
logits_of(co_context *ctx, const program *p, co_value *x)
{
    return co_dense(ctx, x, p->kernel, p->bias, CO_ACTIVATION_NONE);
}

static co_value *
train_step(co_context *ctx, co_value *args, void *user)
{
    program  *p = user;
    co_value *x = co_at(ctx, args, 0), *y = co_at(ctx, args, 1), *logits;

    co_tape_begin(ctx);
    logits = logits_of(ctx, p, x);
    co_minimize(ctx, p->optimizer, co_loss_call(ctx, p->loss, y, logits, NULL));
    co_metric_update(ctx, p->train_loss, y, logits, NULL);
    return NULL;
}

static co_value *
test_step(co_context *ctx, co_value *args, void *user)
{
    program  *p = user;
    co_value *x = co_at(ctx, args, 0), *y = co_at(ctx, args, 1);

    co_metric_update(ctx, p->test_accuracy, y, logits_of(ctx, p, x), NULL);
    return NULL;
}

/* --- what they need --- */

static co_value *
make_variable(co_context *ctx, const char *name, co_value *initial)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.name = name;
    return co_variable(ctx, initial, &options);
}

static void
make_program(co_context *ctx, program *p)
{
    co_optimizer_options common = CO_OPTIMIZER_OPTIONS_INIT;
    co_loss_options      loss = CO_LOSS_OPTIONS_INIT;
    co_metric_options    metric = CO_METRIC_OPTIONS_INIT;

    CO_SCOPE(ctx, p->strategy) {
        p->kernel = make_variable(ctx, "kernel", co_zeros(ctx, CO_FLOAT32, CO_SHAPE(2, CLASSES)));
        p->bias = make_variable(ctx, "bias", co_zeros(ctx, CO_FLOAT32, CO_SHAPE(CLASSES)));

        loss.from_logits = true;
        p->loss = co_loss_new(ctx, CO_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY, &loss);

        common.schedule = co_warmup(ctx, co_cosine_decay(ctx, 0.05, LAST, NULL), 0, 20);
        p->optimizer = co_adam(ctx, NULL);
        co_optimizer_configure(ctx, p->optimizer, &common);

        metric.from_logits = true;
        p->train_loss = co_metric_new(ctx, CO_METRIC_SPARSE_CATEGORICAL_CROSSENTROPY, &metric);
        p->test_accuracy = co_metric_new(ctx, CO_METRIC_SPARSE_CATEGORICAL_ACCURACY, NULL);
    }
}

/* Points around the corners of a triangle, and their classes. */
static co_dataset *
points(co_context *ctx, int rows, unsigned seed)
{
    static const float corners[CLASSES][2] = { { -1, -1 }, { 1, -1 }, { 0, 1 } };
    float              x[TRAIN_ROWS][2];
    int32_t            y[TRAIN_ROWS];

    for (int i = 0; i < rows; ++i) {
        y[i] = i % CLASSES;
        for (int j = 0; j < 2; ++j) {
            seed = seed * 1664525u + 1013904223u;
            x[i][j] = corners[y[i]][j] + (float)(seed >> 24) / 96 - 1.33F;
        }
    }
    return co_dataset_from_tensor_slices(
        ctx, co_args(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(rows, 2), x),
                     co_tensor(ctx, CO_INT32, CO_SHAPE(rows), y)));
}

static co_dataset *
distribute(co_context *ctx, const program *p, co_dataset *dataset)
{
    dataset = co_dataset_batch(ctx, dataset, BATCH, false);
    dataset = co_dataset_with_autoshard(ctx, dataset, CO_AUTOSHARD_REPLICA);
    return co_distribute_dataset(ctx, p->strategy, dataset, NULL);
}

static co_function *
capture(co_context *ctx, co_fn fn, program *p, co_dataset *dataset)
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;

    options.signature = co_element_spec(ctx, dataset); /* one program for short batches, too */
    return co_function_of(ctx, fn, p, &options);
}

/* --- the loop --- */

static double
validate(co_context *ctx, const program *p, co_function *test, co_dataset *dataset)
{
    co_metric_reset(ctx, p->test_accuracy);
    CO_EACH(ctx, batch, co_iterate(ctx, dataset)) {
        co_run(ctx, p->strategy, co_captured, batch, test);
    }
    return co_item_float(ctx, co_metric_result(ctx, p->test_accuracy));
}

static void
report(co_context *ctx, const program *p, int64_t step, double accuracy)
{
    printf("step %lld: learning rate %.4f, loss %.3f, accuracy %.3f\n", (long long)step,
           co_optimizer_learning_rate(ctx, p->optimizer),
           co_item_float(ctx, co_metric_result(ctx, p->train_loss)), accuracy);
}

/* Train up to step `last`, from what is in the folder. */
static co_code
run(const char *folder, int64_t last)
{
    co_context  *ctx = co_open("cpus=2");
    program      p = { .strategy = co_mirrored_strategy(ctx, NULL, 0, NULL) }; /* all CPUs */
    co_dataset  *train_data, *test_data;
    co_iterator *input;
    co_function *train, *test;
    int64_t      step = 0;

    make_program(ctx, &p);
    train_data = co_dataset_shuffle(ctx, points(ctx, TRAIN_ROWS, 1), TRAIN_ROWS, 1, true);
    train_data = distribute(ctx, &p, co_dataset_repeat(ctx, train_data, -1));
    test_data = distribute(ctx, &p, points(ctx, TEST_ROWS, 2));
    input = co_iterate(ctx, train_data);
    train = capture(ctx, train_step, &p, train_data);
    test = capture(ctx, test_step, &p, test_data);

    co_checkpoint_options      keep = CO_CHECKPOINT_OPTIONS_INIT;
    co_checkpoint_save_options save = CO_CHECKPOINT_SAVE_OPTIONS_INIT;
    co_checkpoint             *checkpoint;
    co_value                  *model = co_args(ctx, p.kernel, p.bias);

    keep.keep_last = 1;
    keep.keep_best = 1;
    keep.better = CO_BETTER_LARGER; /* the accuracy */
    checkpoint = co_checkpoint_open(ctx, folder, &keep);
    co_checkpoint_add(ctx, checkpoint, "model", model);
    co_checkpoint_add_optimizer(ctx, checkpoint, "optimizer", p.optimizer, model);
    co_checkpoint_add_metric(ctx, checkpoint, "train_loss", p.train_loss);
    co_checkpoint_add_iterator(ctx, checkpoint, "input", train_data, &input);
    co_checkpoint_add_counter(ctx, checkpoint, "step", &step);
    co_checkpoint_restore(ctx, checkpoint, NULL); /* an empty folder is no error */
    printf("from step %lld\n", (long long)step);

    while (co_ok(ctx) && step < last) {
        CO_BLOCK(ctx) {
            co_run(ctx, p.strategy, co_captured, co_next(ctx, input), train);
        }
        if (++step % EVERY == 0) {
            save.value = validate(ctx, &p, test, test_data);
            report(ctx, &p, step, save.value);
            co_metric_reset(ctx, p.train_loss);
            co_checkpoint_save(ctx, checkpoint, step, &save);
        }
    }
    co_checkpoint_close(ctx, checkpoint); /* waits for what is being written */
    return co_close(ctx);
}

static void
remove_files(const char *folder)
{
    char path[200];

    for (int step = EVERY; step <= LAST; step += EVERY) {
        snprintf(path, sizeof(path), "%s/step-%d.safetensors", folder, step);
        remove(path);
    }
    snprintf(path, sizeof(path), "%s/index", folder);
    remove(path);
    snprintf(path, sizeof(path), "%s/lock", folder);
    remove(path);
    remove(folder);
}

int
main(void)
{
    char folder[] = "/tmp/cohort-50-XXXXXX";
    bool ok;

    if (mkdtemp(folder) == NULL)
        return 1;
    ok = run(folder, LAST / 2) == CO_OK && run(folder, LAST) == CO_OK;
    remove_files(folder);
    return ok ? 0 : 1;
}
