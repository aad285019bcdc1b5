/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handle an error. The context keeps the first error, and until it is cleared calls do nothing. So
 * a whole expression needs one check, where the programmer wants it.
 */
#include <cohort/cohort.h>
#include <stdio.h>

int
main(void)
{
    co_context *ctx = co_open(NULL);
    co_value   *a = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3));
    co_value   *b = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 4));
    co_value   *sum = co_reduce_sum(ctx, co_square(ctx, co_matmul(ctx, a, b)), CO_ALL_AXES, false);

    if (!co_ok(ctx)) {
        const co_error_info *error = co_error(ctx);

        printf("%s in %s at line %d\n", co_code_name(error->code), error->call, error->line);
        printf("sum is %s\n", sum == NULL ? "NULL" : "a value");
        co_clear(ctx); /* calls work again */
    }
    sum = co_reduce_sum(ctx, co_matmul(ctx, a, co_transpose(ctx, a, NULL, 0)), CO_ALL_AXES, false);
    printf("a times its transpose sums to %g\n", co_item_float(ctx, sum));
    return co_close(ctx);
}
