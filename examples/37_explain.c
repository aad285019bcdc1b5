/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why does worker 1 see what it sees? The example prints the pipeline that the worker reads, the
 * sharding decision, and for single examples the worker, replica, step and row that get them. No
 * cluster is needed.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static void
print_places(co_context *ctx, co_dataset *dataset, const co_input_context *input, int64_t example)
{
    co_example_place place = CO_EXAMPLE_PLACE_INIT;

    printf("example %lld:", (long long)example);
    for (size_t i = 0; co_dataset_explain_example(ctx, dataset, input, example, i, &place); ++i)
        printf("%s worker %d, replica %d, step %lld, row %lld", i > 0 ? ";" : "", place.worker,
               place.replica, (long long)place.step, (long long)place.row);
    printf("\n");
}

int
main(void)
{
    co_context      *ctx = co_open(NULL);
    co_input_context input = { 2, 1, 4 }; /* two workers, the second, four replicas in all */
    co_dataset      *data = co_dataset_shuffle(ctx, co_dataset_range(ctx, 0, 25, 1), 8, 42, false);
    co_dataset      *batches = co_dataset_repeat(ctx, co_dataset_batch(ctx, data, 10, false), 2);
    char             text[2000];

    co_dataset_explain(ctx, batches, &input, text, sizeof(text));
    printf("%s\n", text);
    for (int64_t example = 0; example < 25; example += 8)
        print_places(ctx, batches, &input, example);

    /* Every worker reads everything. */
    batches = co_dataset_with_autoshard(ctx, co_dataset_batch(ctx, data, 10, true),
                                        CO_AUTOSHARD_OFF);
    co_dataset_explain(ctx, batches, &input, text, sizeof(text));
    printf("\n%s\n", text);
    print_places(ctx, batches, &input, 8);
    return co_close(ctx);
}
