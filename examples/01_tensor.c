/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Place a tensor. A context is the first argument of every call and owns the values made with it.
 * The setting cpus=2 divides the CPU into two logical devices; an operator runs on the current
 * device, and its result lives there.
 */
#include <cohort/cohort.h>
#include <stdio.h>

static void
show(co_context *ctx, const char *name, co_value *value)
{
    char text[200];

    co_format(ctx, value, text, sizeof(text));
    printf("%s = %s\n    on %s\n", name, text, co_value_device(ctx, value));
}

int
main(void)
{
    static const float numbers[] = { 1, 2, 3, 4, 5, 6 };

    co_context *ctx = co_open("cpus=2");
    co_value   *x = co_tensor(ctx, CO_FLOAT32, CO_SHAPE(2, 3), numbers);
    co_value   *y = NULL;

    CO_DEVICE(ctx, "/cpu:1") {
        y = co_mul(ctx, x, co_int(ctx, 10)); /* the host number takes the dtype of x */
    }
    show(ctx, "x", x);
    show(ctx, "y", y);
    return co_close(ctx); /* 0, or the code of the first error, which it reports */
}
