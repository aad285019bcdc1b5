/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A captured step. The signature comes from the element_spec of a distributed dataset, so the step
 * is captured once for each replica, and the short last batch replays the same program. The line
 * that runs the step differs from the usual one in two words.
 */
#include <cohort/cohort.h>
#include <stdio.h>

typedef struct model {
    co_value     *w;
    co_optimizer *optimizer;
    int           calls; /* of step itself */
} model;

/* Fits y = w x to y = 3 x. */
static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *x = co_at(ctx, args, 0), *loss;

    ++m->calls;
    co_tape_begin(ctx);
    loss = co_average_loss(ctx, co_square(ctx, co_sub(ctx, co_mul(ctx, x, m->w),
                                                      co_mul(ctx, x, co_int(ctx, 3)))));
    co_minimize(ctx, m->optimizer, loss);
    return loss;
}

static co_function *
capture(co_context *ctx, co_dataset *dataset, model *m)
{
    co_function_options options = CO_FUNCTION_OPTIONS_INIT;

    options.name = "step";
    options.signature = co_args(ctx, co_element_spec(ctx, dataset));
    return co_function_of(ctx, step, m, &options);
}

int
main(void)
{
    static const float data[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    co_context        *ctx = co_open("cpus=2");
    co_strategy       *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL); /* all CPUs */
    co_sgd_options     sgd = CO_SGD_OPTIONS_INIT;
    model              m = { NULL, NULL, 0 };
    co_dataset        *dataset;
    co_function       *f;

    CO_SCOPE(ctx, strategy) {
        m.w = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
        m.optimizer = co_sgd(ctx, &sgd);
    }
    dataset = co_dataset_from_tensor_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(10), data));
    dataset = co_distribute_dataset(ctx, strategy, co_dataset_batch(ctx, dataset, 4, false), NULL);
    f = capture(ctx, dataset, &m);
    CO_EACH(ctx, batch, co_iterate(ctx, dataset)) {
        co_value *losses = co_run(ctx, strategy, co_captured, co_args(ctx, batch), f);

        printf("loss %.4f\n",
               co_item_float(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM, losses, NULL, 0)));
    }
    printf("w = %.4f after 3 steps on 2 replicas; step itself was called %d times\n",
           co_item_float(ctx, m.w), m.calls);
    return co_close(ctx);
}
