/* SPDX-License-Identifier: Apache-2.0 */
/* A program of somebody who has installed the library: two numbers, one sum. Built by
 * scripts/check-install. */
#include <cohort/cohort.h>
#include <stdio.h>

int
main(void)
{
    co_context *ctx = co_open(NULL);
    co_value   *sum = co_add(ctx, co_scalar_float(ctx, 1.5f), co_scalar_float(ctx, 2.0f));

    printf("%s %g\n", co_version(), co_item_float(ctx, sum));
    return (int)co_close(ctx);
}
