/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal side of the demo: a line of progress, and a curve in braille dots or in ASCII. */
#include "demo.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAR = 30, WIDTH = 60, HEIGHT = 7, DOTS_X = 2, DOTS_Y = 4 };

void
show_begin(show *s, bool quiet, bool rewrite, int num_epochs)
{
    memset(s, 0, sizeof(*s));
    setlocale(LC_CTYPE, ""); /* not numbers: they stay with a point */
    s->quiet = quiet;
    s->rewrite = rewrite;
    s->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    s->num_epochs = num_epochs;
}

void
show_loss(show *s, double loss)
{
    if (s->num_losses == s->cap_losses) {
        size_t cap = s->cap_losses > 0 ? 2 * s->cap_losses : 256;
        float *more = realloc(s->losses, cap * sizeof(*more));

        if (more == NULL)
            return; /* the curve ends early, no more */
        s->losses = more;
        s->cap_losses = cap;
    }
    s->losses[s->num_losses++] = (float)loss;
}

static void
print_bar(const show *s)
{
    int full = s->epoch * BAR / s->num_epochs;

    printf("\r  ");
    for (int i = 0; i < BAR; ++i) {
        const char *cell = i < full ? (s->utf8 ? "\xE2\x96\x88" : "#")
                                    : (s->utf8 ? "\xE2\x96\x91" : ".");

        fputs(cell, stdout);
    }
    printf("  epoch %2d of %d, loss %.4f", s->epoch, s->num_epochs, s->epoch_loss);
    if (s->epoch == s->num_epochs)
        printf("\n");
}

void
show_epoch(show *s, double loss)
{
    ++s->epoch;
    s->epoch_loss = loss;
    if (s->quiet)
        return;
    if (s->rewrite)
        print_bar(s);
    else
        printf("  epoch %2d of %d, loss %.4f\n", s->epoch, s->num_epochs, loss);
    fflush(stdout);
}

/*
 * The mean of the logarithms of the losses around column x of `columns`, over about an epoch, which
 * evens out the batches.
 */
static double
column_level(const show *s, size_t x, size_t columns)
{
    size_t half = s->num_losses / (size_t)s->num_epochs / 2;
    size_t at = x * (s->num_losses - 1) / (columns - 1);
    size_t begin = at > half ? at - half : 0;
    size_t end = at + half < s->num_losses ? at + half + 1 : s->num_losses;
    double sum = 0;

    for (size_t i = begin; i < end; ++i)
        sum += log10(s->losses[i] > 1e-6F ? (double)s->losses[i] : 1e-6);
    return sum / (double)(end - begin);
}

/* A braille character: eight dots in two columns, as the Unicode standard numbers them. */
static void
put_braille(unsigned dots)
{
    unsigned code = 0x2800 + dots;

    putchar((int)(0xE0 | code >> 12));
    putchar((int)(0x80 | (code >> 6 & 0x3F)));
    putchar((int)(0x80 | (code & 0x3F)));
}

/* The picture, HEIGHT x WIDTH characters of dots. */
typedef struct picture {
    unsigned char cells[HEIGHT][WIDTH];
} picture;

static void
set_dot(picture *p, size_t x, size_t y)
{
    static const unsigned char dots[DOTS_Y][DOTS_X] = {
        { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 }
    };

    p->cells[y / DOTS_Y][x / DOTS_X] |= dots[y % DOTS_Y][x % DOTS_X];
}

/*
 * A line through levels[columns], which lie between low and high: dots, and dots between two that
 * are far apart.
 */
static void
draw_line(picture *p, const double *levels, size_t columns, double low, double high)
{
    double range = high > low ? high - low : 1;
    size_t before = 0;

    for (size_t x = 0; x < columns; ++x) {
        size_t y = (size_t)lround((high - levels[x]) / range * (HEIGHT * DOTS_Y - 1));

        set_dot(p, x, y);
        for (size_t between = before + 1; x > 0 && between < y; ++between)
            set_dot(p, x, between);
        before = y;
    }
}

static void
print_picture(const show *s, const picture *p, double low, double high)
{
    for (int row = 0; row < HEIGHT; ++row) {
        if (row == 0 || row == HEIGHT - 1)
            printf("  %7.4f ", pow(10, row == 0 ? high : low));
        else
            printf("  %7s ", row == HEIGHT / 2 ? "loss" : "");
        for (int column = 0; column < WIDTH; ++column)
            if (s->utf8)
                put_braille(p->cells[row][column]);
            else
                putchar(p->cells[row][column] != 0 ? '*' : ' ');
        printf("\n");
    }
    printf("  %7s step 1%*zu\n", "", WIDTH - 6, s->num_losses);
}

void
show_curve(const show *s)
{
    picture p = { { { 0 } } };
    double  levels[WIDTH * DOTS_X], low = INFINITY, high = -INFINITY;

    if (s->quiet || s->num_losses == 0)
        return;
    for (size_t x = 0; x < WIDTH * DOTS_X; ++x) {
        levels[x] = column_level(s, x, WIDTH * DOTS_X);
        low = fmin(low, levels[x]);
        high = fmax(high, levels[x]);
    }
    draw_line(&p, levels, WIDTH * DOTS_X, low, high);
    print_picture(s, &p, low, high);
}

void
show_end(show *s)
{
    free(s->losses);
    memset(s, 0, sizeof(*s));
}
