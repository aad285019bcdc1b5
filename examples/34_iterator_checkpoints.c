/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop and continue: a checkpoint of an iterator is written to a file, and another runtime, perhaps
 * on another day, reads the remaining elements. They are shuffled; the shuffle continues with the
 * content of its buffer.
 */
#include <cohort/cohort.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static co_dataset *
input(co_context *ctx)
{
    co_dataset *numbers = co_dataset_range(ctx, 0, 12, 1);

    return co_dataset_batch(ctx, co_dataset_shuffle(ctx, numbers, 6, 42, true), 4, false);
}

static void
print(co_context *ctx, const char *what, co_value *batch)
{
    char text[100];

    co_format(ctx, batch, text, sizeof(text));
    printf("%s %s\n", what, text);
}

/* Both days have the position in a record file. */
static co_code
first_day(const char *path)
{
    co_context       *ctx = co_open(NULL);
    co_iterator      *iterator = co_iterate(ctx, input(ctx));
    co_record_writer *writer = co_record_writer_open(ctx, path, NULL);

    print(ctx, "first day: ", co_next(ctx, iterator));
    co_record_write_value(ctx, writer, co_iterator_save(ctx, iterator));
    co_record_writer_close(ctx, writer);
    while (co_next(ctx, iterator) != NULL) /* what is read after saving is read again */
        ;
    return co_close(ctx);
}

static co_code
second_day(const char *path)
{
    co_context *ctx = co_open(NULL);
    co_value   *saved = co_next(ctx, co_iterate(ctx, co_dataset_tfrecord(ctx, &path, 1, NULL)));

    CO_EACH(ctx, batch, co_iterator_restore(ctx, input(ctx), saved)) {
        print(ctx, "second day:", batch);
    }
    return co_close(ctx);
}

int
main(void)
{
    char    path[] = "/tmp/cohort-example-XXXXXX";
    int     file = mkstemp(path);
    co_code code = file >= 0 ? first_day(path) : CO_PERMISSION_DENIED;

    if (code == CO_OK)
        code = second_day(path);
    close(file);
    remove(path);
    return (int)code;
}
