/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads digits.csv: one image a line, 64 numbers from 0 to 16 and the digit, separated by commas.
 */
#include "demo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IMAGES = 4096, TEST_EVERY = 5 };

/* Images and labels of one of the two sets, while they are read. */
typedef struct set {
    float   images[MAX_IMAGES][PIXELS];
    int32_t labels[MAX_IMAGES];
    int64_t n;
} set;

/* One number up to `limit` and the separator behind it; -1 if there is none. */
static long
read_number(char **at, long limit, char separator)
{
    char *end;
    long  number = strtol(*at, &end, 10);

    if (end == *at || *end != separator || number < 0 || number > limit)
        return -1;
    *at = end + 1;
    return number;
}

static bool
read_image(char *line, set *to)
{
    long label;

    for (int p = 0; p < PIXELS; ++p) {
        long grey = read_number(&line, 16, ',');

        if (grey < 0)
            return false;
        to->images[to->n][p] = (float)grey / 16;
    }
    label = read_number(&line, CLASSES - 1, '\n');
    to->labels[to->n++] = (int32_t)label;
    return label >= 0;
}

static void
read_file(co_context *ctx, const char *path, FILE *file, set *train, set *test)
{
    char line[512];

    for (int i = 0; fgets(line, sizeof(line), file) != NULL; ++i) {
        if (i == MAX_IMAGES) {
            co_fail(ctx, CO_OUT_OF_RANGE, "%s has more than %d lines", path, MAX_IMAGES);
            return;
        }
        if (!read_image(line, i % TEST_EVERY == 0 ? test : train)) {
            co_fail(ctx, CO_DATA_LOSS, "line %d of %s is not 64 numbers from 0 to 16 and a digit",
                    i + 1, path);
            return;
        }
    }
}

void
load_digits(co_context *ctx, const char *path, digits *out)
{
    set  *sets = calloc(2, sizeof(*sets));
    FILE *file = fopen(path, "r");

    if (sets == NULL)
        co_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %d images", MAX_IMAGES);
    else if (file == NULL)
        co_fail(ctx, CO_NOT_FOUND, "%s: %s", path, strerror(errno));
    else
        read_file(ctx, path, file, &sets[0], &sets[1]);
    if (co_ok(ctx)) {
        const set *train = &sets[0], *test = &sets[1];

        out->train_images = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(train->n, PIXELS), train->images);
        out->train_labels = co_tensor(ctx, CO_INT32, CO_SHAPE(train->n), train->labels);
        out->test_images = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(test->n, PIXELS), test->images);
        out->test_labels = co_tensor(ctx, CO_INT32, CO_SHAPE(test->n), test->labels);
    }
    if (file != NULL)
        fclose(file);
    free(sets);
}
