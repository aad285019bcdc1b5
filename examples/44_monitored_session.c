/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph mode: a training loop as tf.compat.v1.train.MonitoredSession runs it. The graph is built
 * first and made final; then a session initializes what is not initialized yet, runs steps until
 * the input ends or a number of steps is reached, and calls a hook after each.
 */
#include <cohort/cohort.h>
#include <cohort/v1.h>
#include <stdio.h>

typedef struct model {
    co_value     *w;
    co_optimizer *optimizer;
} model;

/* Fits y = w x to y = 3 x. The update is an operation: it is returned, or it would never run. */
static co_value *
step(co_context *ctx, co_value *args, void *user)
{
    const model *m = user;
    co_value    *x = co_at(ctx, args, 0), *loss;

    co_tape_begin(ctx);
    loss = co_average_loss(ctx, co_square(ctx, co_sub(ctx, co_mul(ctx, x, m->w),
                                                      co_mul(ctx, x, co_float(ctx, 3)))));
    co_minimize(ctx, m->optimizer, loss);
    return co_args(ctx, loss, co_last_operation(ctx));
}

/* A session that knows when to stop. */
typedef struct monitored {
    co_session *session;
    co_value   *global_step; /* the operation that counts, after the update */
    int64_t     last_step;
    bool        should_stop;
    void (*after_run)(co_context *ctx, int64_t step, co_value *result);
} monitored;

static void
open_monitored(co_context *ctx, monitored *m, co_value *is_ready, co_value *init)
{
    co_value *ready;

    co_graph_finalize(ctx, co_get_default_graph(ctx));
    m->session = co_session_open(ctx, NULL, NULL);
    ready = co_session_run(ctx, m->session, is_ready, NULL, 0);
    printf("ready: %s\n", co_item_int(ctx, ready) != 0 ? "yes" : "no");
    if (co_item_int(ctx, ready) == 0)
        co_session_run(ctx, m->session, init, NULL, 0);
}

/* One step, and what the fetches gave to the hook. */
static void
run_monitored(co_context *ctx, monitored *m, co_value *fetches)
{
    co_value *both = co_session_run(ctx, m->session, co_args(ctx, fetches, m->global_step), NULL,
                                    0);
    int64_t   step_number;

    if (both == NULL) {
        printf("%s\n", co_code_name(co_error(ctx)->code));
        if (co_error(ctx)->code == CO_OUT_OF_RANGE) /* the end of the input is no failure */
            co_clear(ctx);
        m->should_stop = true;
        return;
    }
    step_number = co_item_int(ctx, co_at(ctx, both, 1));
    m->after_run(ctx, step_number, co_at(ctx, both, 0));
    m->should_stop = step_number >= m->last_step;
}

static void
print_loss(co_context *ctx, int64_t step_number, co_value *loss)
{
    printf("step %d: loss %.4f\n", (int)step_number, co_item_float(ctx, loss));
}

int
main(void)
{
    static const float data[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    co_context        *ctx = co_open("cpus=2");
    co_sgd_options     sgd = CO_SGD_OPTIONS_INIT;
    model              m = { NULL, NULL };
    monitored          session = { .last_step = 100, .after_run = print_loss };
    co_strategy       *strategy;
    co_dataset        *dataset;
    co_iterator       *iterator;
    co_value          *count, *results, *loss, *init;

    co_v1_disable_eager_execution(ctx);
    strategy = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    sgd.learning_rate = 0.01;
    m.optimizer = co_sgd(ctx, &sgd);
    count = co_variable(ctx, co_scalar_int64(ctx, 0), NULL);
    CO_SCOPE(ctx, strategy)
        m.w = co_variable(ctx, co_scalar_float(ctx, 0), NULL);
    dataset = co_dataset_from_tensor_slices(ctx, co_tensor(ctx, CO_FLOAT32, CO_SHAPE(10), data));
    iterator = co_make_dataset_iterator(ctx, strategy, co_dataset_batch(ctx, dataset, 4, false));

    results = co_experimental_run(ctx, strategy, step, iterator, &m);
    loss = co_v1_reduce(ctx, strategy, CO_REDUCE_SUM, co_at(ctx, results, 0));
    CO_CONTROL_DEPENDENCIES(ctx, co_at(ctx, results, 1))
    session.global_step = co_assign_add(ctx, count, co_int(ctx, 1));
    init = co_args(ctx, co_global_variables_initializer(ctx),
                   co_iterator_initialize(ctx, iterator));

    open_monitored(ctx, &session, co_is_variable_initialized(ctx, m.w), init);
    while (!session.should_stop)
        CO_BLOCK(ctx)
            run_monitored(ctx, &session, loss);
    printf("w: %.4f\n", co_item_float(ctx, co_session_run(ctx, session.session, m.w, NULL, 0)));
    co_session_close(ctx, session.session);
    return co_close(ctx);
}
