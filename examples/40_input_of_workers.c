/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See what each of several workers reads, without a cluster: what the text of
 * experimental_distribute_dataset says of sharding (documents 002 and 003). Files go to workers
 * whole, and there must be one for each; other sources are read by all workers, each takes its
 * share of the elements; with sharding off every worker sees everything, and still splits its
 * batches.
 */
#include <cohort/cohort.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NUM_FILES = 3 };

/* What the replicas of every worker take, in turn; or why the first of them does not. */
static void
show_workers(co_context *ctx, const char *what, co_dataset *dataset, int workers, int replicas)
{
    printf("%s:\n", what);
    for (int w = 0; w < workers && co_ok(ctx); ++w) {
        co_input_context input = { workers, w, replicas };
        co_dataset      *share = co_dataset_for_worker(ctx, dataset, &input);

        printf("  worker %d of %d:", w, workers);
        CO_EACH(ctx, x, co_iterate(ctx, share)) {
            char text[100];

            co_format(ctx, x, text, sizeof(text));
            printf(" %s", text);
        }
        if (!co_ok(ctx))
            printf(" %s: %s", co_code_name(co_error(ctx)->code), co_error(ctx)->message);
        printf("\n");
    }
    co_clear(ctx);
}

/* Two lines in each file: "a1", "a2", then "b1", "b2", ... */
static bool
write_files(const char *folder, char names[NUM_FILES][80])
{
    for (int f = 0; f < NUM_FILES; ++f) {
        FILE *file;

        snprintf(names[f], sizeof(names[f]), "%.60s/%c.txt", folder, 'a' + f);
        file = fopen(names[f], "w");
        if (file == NULL)
            return false;
        fprintf(file, "%c1\n%c2\n", 'a' + f, 'a' + f);
        fclose(file);
    }
    return true;
}

int
main(void)
{
    co_context *ctx = co_open(NULL);
    char        folder[] = "/tmp/cohort-example-XXXXXX", names[NUM_FILES][80];
    const char *files[NUM_FILES] = { names[0], names[1], names[2] };
    co_dataset *lines, *numbers;

    if (mkdtemp(folder) == NULL || chdir(folder) != 0 || !write_files(".", names))
        return 1;
    lines = co_dataset_batch(ctx, co_dataset_text_lines(ctx, files, NUM_FILES, NULL), 2, false);
    numbers = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 4, false);

    show_workers(ctx, "files, two workers of a replica each", lines, 2, 2);
    show_workers(ctx, "fewer files than workers", lines, 4, 4);
    show_workers(ctx, "a range, two workers of two replicas each", numbers, 2, 4);
    show_workers(ctx, "the same without sharding",
                 co_dataset_with_autoshard(ctx, numbers, CO_AUTOSHARD_OFF), 2, 4);

    for (int f = 0; f < NUM_FILES; ++f)
        unlink(names[f]);
    rmdir(folder);
    return co_close(ctx);
}
