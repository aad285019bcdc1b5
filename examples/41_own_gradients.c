/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between gradients and their update. Two replicas compute their gradients themselves. One step
 * passes them unchanged to co_apply_gradients, which sums them over replicas; the other clips their
 * sum, so it sums first and sets skip_aggregation. The slot of the optimizer is a variable, which
 * can be read.
 */
#include <cohort/cohort.h>
#include <stdio.h>

typedef struct model {
    co_value     *w;
    co_optimizer *optimizer;
} model;

/* The loss of replica id is (1 + id) w: its gradient is 1 + id. */
static co_value *
gradients(co_context *ctx, const model *m)
{
    co_value *loss;

    co_tape_begin(ctx);
    loss = co_mul(ctx, m->w, co_float(ctx, 1 + co_replica_id(ctx)));
    return co_gradient(ctx, loss, co_args(ctx, m->w));
}

static co_value *
plain_step(co_context *ctx, co_value *args, void *user)
{
    model *m = user;

    (void)args;
    co_apply_gradients(ctx, m->optimizer, gradients(ctx, m), co_args(ctx, m->w));
    return NULL;
}

static co_value *
clipping_step(co_context *ctx, co_value *args, void *user)
{
    co_apply_gradients_options options = CO_APPLY_GRADIENTS_OPTIONS_INIT;
    model                     *m = user;
    co_value                  *sum = co_all_reduce(ctx, CO_REDUCE_SUM, gradients(ctx, m));
    co_value                  *clipped = co_clip_by_global_norm(ctx, sum, 1);

    (void)args;
    options.skip_aggregation = true; /* they are summed */
    co_apply_gradients_with(ctx, m->optimizer, co_args(ctx, co_at(ctx, clipped, 0)),
                            co_args(ctx, m->w), &options);
    return NULL;
}

static void
show(co_context *ctx, const char *what, const model *m)
{
    co_value *momentum = co_optimizer_slot(ctx, m->optimizer, "momentum", m->w);

    printf("%s: %s = %g, %s = %g\n", what, co_variable_name(ctx, m->w), co_item_float(ctx, m->w),
           co_variable_name(ctx, momentum), co_item_float(ctx, momentum));
}

int
main(void)
{
    co_context         *ctx = co_open("cpus=2");
    co_strategy        *strategy = co_mirrored_strategy(ctx, NULL, 0, NULL); /* all CPUs */
    co_variable_options named = CO_VARIABLE_OPTIONS_INIT;
    co_sgd_options      sgd = CO_SGD_OPTIONS_INIT;
    model               m = { NULL, NULL };

    named.name = "w";
    sgd.learning_rate = 0.5;
    sgd.momentum = 0.5;
    CO_SCOPE(ctx, strategy) {
        m.w = co_variable(ctx, co_scalar_float(ctx, 10), &named);
        m.optimizer = co_sgd(ctx, &sgd);
    }
    show(ctx, "before", &m);
    co_run(ctx, strategy, plain_step, co_no_args(ctx), &m);
    show(ctx, "summed", &m); /* 10 - 0.5 (1 + 2) */
    co_run(ctx, strategy, clipping_step, co_no_args(ctx), &m);
    show(ctx, "clipped", &m); /* the momentum halves, and the gradient of 3 becomes 1 */
    return co_close(ctx);
}
