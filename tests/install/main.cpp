/* SPDX-License-Identifier: Apache-2.0 */
/* What main.c prints, in C++: by a step on two replicas, and with every macro that stands for a
 * statement or for arguments. */
#include <cohort/cohort.h>
#include <iostream>

static co_value *
count(co_context *ctx, co_creation *next, co_value *initial, const co_variable_options *options,
      void *user)
{
    ++*static_cast<int *>(user);
    return co_creator_next(ctx, next, initial, options);
}

/* How often it is called shows that macros evaluate their arguments once. */
static int64_t
one(int *calls)
{
    ++*calls;
    return 1;
}

int
main()
{
    static const char *const devices[] = { "/cpu:0", "/cpu:1" };
    co_context              *ctx = co_open("cpus=2");
    co_mirrored_options      options = CO_MIRRORED_OPTIONS_INIT;
    co_strategy             *both = co_mirrored_strategy(ctx, devices, 2, &options);
    co_value                *w = nullptr;
    int                      created = 0, calls = 0;
    double                   sum = 0;

    CO_SCOPE(ctx, both)
        CO_CREATOR(ctx, count, &created)
            w = co_variable(ctx, co_float(ctx, 1.75), nullptr);
    co_fn step = [](co_context *replica, co_value *args, void *user) {
        co_value *x = co_cast(replica, co_at(replica, args, 0), CO_FLOAT32);

        return co_mul(replica, co_mul(replica, x, co_at(replica, args, 1)),
                      static_cast<co_value *>(user));
    };
    CO_DEVICE(ctx, devices[1]) {
        co_value *ones = co_ones(ctx, CO_FLOAT32, CO_SHAPE(one(&calls), 1));

        CO_EACH(ctx, x, co_iterate(ctx, co_dataset_range(ctx, 0, 2, 1))) {
            CO_BLOCK(ctx) {
                co_value *r = co_run(ctx, both, step, co_args(ctx, x, ones), w);

                sum += co_item_float(ctx, co_reduce(ctx, both, CO_REDUCE_SUM, r, CO_AXES(0, -1)));
            }
        }
    }
    if (created != 1 || calls != 1)
        return 1;
    std::cout << co_version() << ' ' << sum << '\n';
    return static_cast<int>(co_close(ctx));
}
