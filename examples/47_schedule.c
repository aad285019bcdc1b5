/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A learning rate that warms up and then decays, with clipped gradients, weight decay for kernels
 * alone, and averages of the weights for the evaluation. The step is captured: it reads the rate
 * when it runs.
 */
#include <cohort/cohort.h>
#include <stdio.h>

typedef struct model {
    co_value     *kernel, *bias;
    co_optimizer *optimizer;
} model;

/* Fits y = kernel x + bias to y = 3 x + 1. */
static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    model    *m = user;
    co_value *x = co_at(ctx, args, 0), *y, *target, *loss;

    co_tape_begin(ctx);
    y = co_add(ctx, co_mul(ctx, x, m->kernel), m->bias);
    target = co_add(ctx, co_mul(ctx, x, co_int(ctx, 3)), co_int(ctx, 1));
    loss = co_average_loss(ctx, co_square(ctx, co_sub(ctx, y, target)));
    co_minimize(ctx, m->optimizer, loss);
    return loss;
}

static co_optimizer *
make_optimizer(co_context *ctx)
{
    co_optimizer_options common = CO_OPTIMIZER_OPTIONS_INIT;
    co_sgd_options       sgd = CO_SGD_OPTIONS_INIT;
    co_optimizer        *optimizer;

    sgd.momentum = 0.5;
    optimizer = co_sgd(ctx, &sgd);
    common.schedule = co_warmup(ctx, co_exponential_decay(ctx, 0.2, 4, 0.5, false), 0.05, 3);
    common.clip_global_norm = 2;
    common.weight_decay = 0.001;
    common.exclude_names = (const char *[]){ "bias" };
    common.num_exclude_names = 1;
    common.use_ema = true;
    common.ema_momentum = 0.5;
    co_optimizer_configure(ctx, optimizer, &common);
    return optimizer;
}

static co_value *
make_weight(co_context *ctx, const char *name)
{
    co_variable_options options = CO_VARIABLE_OPTIONS_INIT;

    options.name = name;
    return co_variable(ctx, co_scalar_float(ctx, 0), &options);
}

static void
print_weights(co_context *ctx, const model *m, const char *what)
{
    printf("%s: kernel %.4f, bias %.4f\n", what, co_item_float(ctx, m->kernel),
           co_item_float(ctx, m->bias));
}

int
main(void)
{
    static const float data[] = { -1, 1, -0.5, 0.5 };
    co_context        *ctx = co_open("cpus=2");
    co_strategy       *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL); /* all CPUs */
    model              m;
    co_dataset        *dataset;
    co_function       *f;

    CO_SCOPE(ctx, strategy) {
        m.kernel = make_weight(ctx, "kernel");
        m.bias = make_weight(ctx, "bias");
        m.optimizer = make_optimizer(ctx);
    }
    dataset = co_dataset_from_tensor_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(4), data));
    dataset = co_dataset_repeat(ctx, co_dataset_batch(ctx, dataset, 4, false), 8);
    f = co_function_of(ctx, step, &m, NULL);
    CO_EACH(ctx, batch, co_iterate(ctx, co_distribute_dataset(ctx, strategy, dataset, NULL))) {
        double    rate = co_optimizer_learning_rate(ctx, m.optimizer);
        co_value *losses = co_run(ctx, strategy, co_captured, co_args(ctx, batch), f);

        printf("update %d: rate %.4f, loss %.4f\n", (int)co_optimizer_iterations(ctx, m.optimizer),
               rate, co_item_float(ctx, co_reduce(ctx, strategy, CO_REDUCE_SUM, losses, NULL, 0)));
    }
    print_weights(ctx, &m, "weights");
    co_optimizer_swap_averages(ctx, m.optimizer);
    print_weights(ctx, &m, "averages");
    co_optimizer_swap_averages(ctx, m.optimizer);
    print_weights(ctx, &m, "weights again");
    return co_close(ctx);
}
