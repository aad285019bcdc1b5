/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training program that is stopped in the middle and started again. The second run goes on where
 * the checkpoint was taken, with shuffled input, random numbers and the slots of Adam, and ends
 * with the bits of a run that was not stopped.
 */
#include <cohort/cohort.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, COLUMNS = 8 };

typedef struct program {
    co_value     *model;
    co_optimizer *adam;
    co_metric    *mean;
} program;

static co_value *
step_fn(co_context *ctx, co_value *args, void *user)
{
    program  *p = user;
    co_value *x = co_dropout(ctx, co_at(ctx, args, 0), 0.1), *losses;

    co_tape_begin(ctx);
    losses = co_square(ctx, co_sub(ctx, co_matvec(ctx, x, co_get(ctx, p->model, "w"), false),
                                   co_float(ctx, 1)));
    co_minimize(ctx, p->adam, co_average_loss(ctx, losses));
    co_metric_update(ctx, p->mean, losses, NULL, NULL);
    return NULL;
}

static co_dataset *
make_dataset(co_context *ctx)
{
    float       data[ROWS * COLUMNS];
    co_dataset *dataset;

    for (int i = 0; i < ROWS * COLUMNS; ++i)
        data[i] = (float)(i * 37 % 64) / 64;
    dataset = co_dataset_from_tensor_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(ROWS, COLUMNS),
                                                           data));
    dataset = co_dataset_shuffle(ctx, dataset, ROWS, 1, true);
    return co_dataset_batch(ctx, co_dataset_repeat(ctx, dataset, -1), 10, false);
}

/* Train up to `last` steps, from what is in the folder; `weights` are those at the end. */
static int
run(const char *folder, int64_t last, float weights[COLUMNS])
{
    co_context         *ctx = co_open(NULL);
    co_variable_options named = CO_VARIABLE_OPTIONS_INIT;
    co_dataset         *dataset = make_dataset(ctx);
    co_iterator        *input = co_iterate(ctx, dataset);
    co_value           *w, *model;
    co_optimizer       *adam = co_adam(ctx, NULL);
    co_metric          *mean = co_metric_new(ctx, CO_METRIC_MEAN, NULL);
    program             p;

    named.name = "w";
    w = co_variable(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(COLUMNS)), &named);
    model = co_dict(ctx, (const char *[]){ "w" }, &w, 1);
    p = (program){ model, adam, mean };
    co_set_seed(ctx, 7);

    co_checkpoint *checkpoint = co_checkpoint_open(ctx, folder, NULL);
    int64_t        step = 0;

    co_checkpoint_add(ctx, checkpoint, "model", model); /* a dict, list or tuple of variables */
    co_checkpoint_add_optimizer(ctx, checkpoint, "adam", adam, co_trainable_variables(ctx, model));
    co_checkpoint_add_metric(ctx, checkpoint, "mean", mean);
    co_checkpoint_add_iterator(ctx, checkpoint, "input", dataset, &input);
    co_checkpoint_add_counter(ctx, checkpoint, "step", &step);

    co_checkpoint_restore(ctx, checkpoint, NULL); /* an empty folder is no error */
    printf("from step %lld", (long long)step);
    while (co_ok(ctx) && step < last) {
        CO_BLOCK(ctx) {
            step_fn(ctx, co_args(ctx, co_next(ctx, input)), &p);
        }
        if (++step % 10 == 0)
            co_checkpoint_save(ctx, checkpoint, step, NULL);
    }
    co_checkpoint_close(ctx, checkpoint); /* waits for what is being written */

    co_value_copy_data(ctx, co_variable_read(ctx, w), CO_FLOAT32, weights, COLUMNS);
    printf(" to %lld: mean loss %.4f\n", (long long)step,
           co_item_float(ctx, co_metric_result(ctx, mean)));
    return co_close(ctx) == CO_OK ? 0 : 1;
}

static void
remove_files(const char *folder)
{
    static const char *const names[] = { "step-10.safetensors", "step-20.safetensors",
                                         "step-30.safetensors", "index", "lock" };
    char                     path[200];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        remove(path);
    }
    remove(folder);
}

int
main(void)
{
    char  folders[2][40] = { "/tmp/cohort-49-XXXXXX", "/tmp/cohort-49-XXXXXX" };
    float whole[COLUMNS], stopped[COLUMNS], resumed[COLUMNS];
    int   failed;

    if (mkdtemp(folders[0]) == NULL || mkdtemp(folders[1]) == NULL)
        return 1;
    failed = run(folders[0], 30, whole);
    failed += run(folders[1], 24, stopped); /* ends after four steps that no checkpoint has */
    failed += run(folders[1], 30, resumed);
    printf("%s\n", memcmp(whole, resumed, sizeof(whole)) == 0 ? "the same bits" : "other bits");
    for (int i = 0; i < 2; ++i)
        remove_files(folders[i]);
    return failed;
}
