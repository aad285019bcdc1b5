/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules: learning rates as functions of how many updates an optimizer has applied. An optimizer
 * takes one in co_optimizer_options; its rate is read when an update runs, in captured functions
 * too.
 *
 *     co_optimizer_options common = CO_OPTIMIZER_OPTIONS_INIT;
 *
 *     common.schedule = co_exponential_decay(ctx, 0.1, 1000, 0.9, false);
 *     co_optimizer_configure(ctx, optimizer, &common);
 *
 * The formulas are those of Keras, computed in double without functions of the C library, so that
 * all processes have the same rate to the last bit. Schedules never change, and any thread may use
 * one. Makers return a schedule of the current block, or NULL with CO_VALUE_ERROR (rates that are
 * not finite, a number of steps that is not above 0).
 */
#ifndef COHORT_SCHEDULE_H
#define COHORT_SCHEDULE_H

#include <cohort/value.h>

CO_EXTERN_C_BEGIN

/** initial decay_rate^(step / decay_steps); staircase: the quotient is rounded down. */
CO_API co_schedule *co_exponential_decay(co_context *ctx, double initial_learning_rate,
                                         int64_t decay_steps, double decay_rate, bool staircase);
/** initial / (1 + decay_rate step / decay_steps); staircase: the quotient is rounded down. */
CO_API co_schedule *co_inverse_time_decay(co_context *ctx, double initial_learning_rate,
                                          int64_t decay_steps, double decay_rate, bool staircase);

typedef struct co_polynomial_decay_options {
    size_t struct_size;
    double end_learning_rate;
    double power;
    bool   cycle; /* begin again over as many times decay_steps as have passed; else stay */
} co_polynomial_decay_options;
#define CO_POLYNOMIAL_DECAY_OPTIONS_INIT                                                           \
    {                                                                                              \
        sizeof(co_polynomial_decay_options), 0.0001, 1.0, false                                    \
    }
/** (initial - end) (1 - step / decay_steps)^power + end. NULL: the initialiser's. */
CO_API co_schedule *co_polynomial_decay(co_context *ctx, double initial_learning_rate,
                                        int64_t                            decay_steps,
                                        const co_polynomial_decay_options *options);

typedef struct co_cosine_decay_options {
    size_t  struct_size;
    double  alpha; /* the share of the rate that is left at the end */
    /* Above 0: so many steps from initial_learning_rate to warmup_target, from which it decays. */
    int64_t warmup_steps;
    double  warmup_target;
} co_cosine_decay_options;
#define CO_COSINE_DECAY_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(co_cosine_decay_options), 0.0, 0, 0.0                                               \
    }
/** Half a cosine from the rate to alpha times the rate, over decay_steps after the warm-up. NULL:
 * the initialiser's. */
CO_API co_schedule *co_cosine_decay(co_context *ctx, double initial_learning_rate,
                                    int64_t decay_steps, const co_cosine_decay_options *options);

typedef struct co_cosine_decay_restarts_options {
    size_t struct_size;
    double t_mul; /* each period is so many times as long as the one before; at least 1 */
    double m_mul; /* and begins with so many times its rate */
    double alpha;
} co_cosine_decay_restarts_options;
#define CO_COSINE_DECAY_RESTARTS_OPTIONS_INIT                                                      \
    {                                                                                              \
        sizeof(co_cosine_decay_restarts_options), 2.0, 1.0, 0.0                                    \
    }
/** Cosine decays one after the other; the first takes first_decay_steps. NULL: the initialiser's. */
CO_API co_schedule *
co_cosine_decay_restarts(co_context *ctx, double initial_learning_rate, int64_t first_decay_steps,
                         const co_cosine_decay_restarts_options *options);

/** values[i] up to step boundaries[i] and with it, then the next one. Boundaries rise, and there is
 * one value more than boundaries: CO_VALUE_ERROR otherwise. */
CO_API co_schedule *co_piecewise_constant_decay(co_context *ctx, const int64_t *boundaries,
                                                size_t num_boundaries, const double *values,
                                                size_t num_values);

/** A line from initial_learning_rate to the first rate of `then` in warmup_steps, and then `then`
 * from its beginning on. */
CO_API co_schedule *co_warmup(co_context *ctx, co_schedule *then, double initial_learning_rate,
                              int64_t warmup_steps);

/**
 * A schedule of your own. The function is called with the number of updates before the one whose
 * rate it returns, from 0 on; by replicas at the same time and by several calls for one step, so
 * its result depends on the step alone. `user` must live as long as the schedule does.
 */
typedef double (*co_schedule_fn)(int64_t step, void *user);
CO_API co_schedule *co_custom_schedule(co_context *ctx, co_schedule_fn fn, void *user);

/** The rate after `step` updates. 0 with CO_VALUE_ERROR: the step is negative. */
CO_API double co_schedule_value(co_context *ctx, const co_schedule *schedule, int64_t step);

CO_EXTERN_C_END

#endif
