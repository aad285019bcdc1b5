/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the demo share: the data, and what is shown on the terminal while training. */
#ifndef COHORT_DEMO_H
#define COHORT_DEMO_H

#include <cohort/cohort.h>

enum { PIXELS = 64, CLASSES = 10 };

/*
 * digits.c: images as [n, 64] floats from 0 to 1 and labels as [n] integers, for training and for
 * testing.
 */
typedef struct digits {
    co_value *train_images, *train_labels;
    co_value *test_images, *test_labels;
} digits;

/* Every fifth image is for testing. On failure the error is in ctx. */
void load_digits(co_context *ctx, const char *path, digits *out);

/*
 * show.c: progress and a curve. All of it does nothing where `quiet` is set: only one process
 * speaks.
 */
typedef struct show {
    bool   quiet;
    bool   rewrite; /* one line that rewrites itself, for terminals; else a line for each epoch */
    bool   utf8;    /* braille characters; else ASCII */
    float *losses;  /* one for each step */
    size_t num_losses, cap_losses;
    int    epoch, num_epochs;
    double epoch_loss; /* of the last whole epoch */
} show;

void show_begin(show *s, bool quiet, bool rewrite, int num_epochs);
void show_loss(show *s, double loss);
void show_epoch(show *s, double loss);
/* Draw the curve of all steps, on a logarithmic scale. */
void show_curve(const show *s);
void show_end(show *s);

#endif
