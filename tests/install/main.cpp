/* SPDX-License-Identifier: Apache-2.0 */
/* The program of main.c, in C++. */
#include <cohort/cohort.h>
#include <iostream>

int
main()
{
    co_context *ctx = co_open(nullptr);
    co_value   *sum = co_add(ctx, co_scalar_float(ctx, 1.5f), co_scalar_float(ctx, 2.0f));

    std::cout << co_version() << ' ' << co_item_float(ctx, sum) << '\n';
    return static_cast<int>(co_close(ctx));
}
