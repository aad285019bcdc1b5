/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Take a gradient. A tape records what is computed from watched values. Tapes nest: the outer tape
 * also records the gradient that the inner tape computes, which gives the second derivative.
 */
#include <cohort/cohort.h>
#include <stdio.h>

int
main(void)
{
    co_context *ctx = co_open(NULL);
    co_value   *x = co_scalar_float(ctx, 3);
    co_value   *y, *first, *second;

    co_tape_begin(ctx); /* for the second derivative */
    co_watch(ctx, x);
    co_tape_begin(ctx); /* for the first */
    co_watch(ctx, x);
    y = co_mul(ctx, x, co_square(ctx, x));
    first = co_gradient(ctx, y, x);
    second = co_gradient(ctx, first, x);

    printf("x^3 at 3: %g\n", co_item_float(ctx, y));
    printf("3 x^2:    %g\n", co_item_float(ctx, first));
    printf("6 x:      %g\n", co_item_float(ctx, second));
    return co_close(ctx);
}
