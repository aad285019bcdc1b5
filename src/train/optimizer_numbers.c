/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changes with the updates of an optimizer and is no variable: how many there were, the
 * learning rate, the loss scale. Every local replica has numbers of its own; all replicas make the
 * same updates, so they are equal where all have arrived.
 */
#include "train/optimizer.h"

#include "ops/engine/call_recording.h"
#include "strategy/rendezvous.h"

#include <cohort/ops.h>

#include <math.h>

/* Whose numbers ctx works with: which of them, and the strategy they belong to. */
static int
place_of(const co_context *ctx, uint64_t *strategy)
{
    const bool updates = ctx->mode.update_id >= 0 && ctx->mode.strategy != NULL;

    if (coi_in_replica(ctx) && !updates) {
        *strategy = ctx->mode.step->strategy->serial;
        return ctx->mode.local_replica;
    }
    *strategy = updates ? ctx->mode.strategy->serial : 0;
    return updates && ctx->mode.update_id < COI_MAX_LOCAL_REPLICAS ? ctx->mode.update_id : 0;
}

/* When another strategy takes over, no step is running, and all replicas continue from those that
 * have come farthest. With the lock. */
static void
take_over(co_optimizer *optimizer, uint64_t strategy)
{
    coi_numbers *all = optimizer->numbers, farthest = all[0];

    if (optimizer->numbers_of == strategy)
        return;
    for (int i = 1; i < COI_MAX_LOCAL_REPLICAS; ++i)
        if (all[i].iterations > farthest.iterations)
            farthest = all[i];
    for (int i = 0; i < COI_MAX_LOCAL_REPLICAS; ++i)
        all[i] = farthest;
    optimizer->numbers_of = strategy;
}

coi_numbers
coi_numbers_get(co_context *ctx, co_optimizer *optimizer)
{
    uint64_t    strategy;
    int         i = place_of(ctx, &strategy);
    coi_numbers numbers;

    coi_lock_take(&optimizer->lock);
    take_over(optimizer, strategy);
    numbers = optimizer->numbers[i];
    coi_lock_give(&optimizer->lock);
    return numbers;
}

void
coi_numbers_set(co_context *ctx, co_optimizer *optimizer, const coi_numbers *numbers)
{
    uint64_t strategy;
    int      i = place_of(ctx, &strategy);

    coi_lock_take(&optimizer->lock);
    take_over(optimizer, strategy);
    optimizer->numbers[i] = *numbers;
    for (i = 0; strategy == 0 && i < COI_MAX_LOCAL_REPLICAS; ++i)
        optimizer->numbers[i] = *numbers;
    coi_lock_give(&optimizer->lock);
}

double
coi_learning_rate(const co_optimizer *optimizer, const coi_numbers *numbers)
{
    return optimizer->common.schedule != NULL
               ? coi_schedule_rate(optimizer->common.schedule, numbers->iterations)
               : numbers->learning_rate;
}

/* What is read outside of steps without taking over from a strategy that may be in a step. */
static coi_numbers
peek(co_context *ctx, const co_optimizer *optimizer)
{
    co_optimizer *changeable = (co_optimizer *)(uintptr_t)optimizer;
    coi_numbers   numbers;

    if (coi_in_replica(ctx))
        return coi_numbers_get(ctx, changeable);
    coi_lock_take(&changeable->lock);
    numbers = changeable->numbers[0];
    coi_lock_give(&changeable->lock);
    return numbers;
}

bool
coi_may_set(co_context *ctx)
{
    if (!coi_is_capturing(ctx))
        return true;
    coi_fail(ctx, CO_UNIMPLEMENTED,
             "%s cannot be captured in a function; call it before the function is called",
             ctx->call);
    return false;
}

int64_t
co_optimizer_iterations(co_context *ctx, const co_optimizer *optimizer)
{
    COI_ENTER(ctx, "optimizer_iterations", 0);
    return coi_check_optimizer(ctx, optimizer) && coi_check_host_state(ctx, "the number of updates")
               ? peek(ctx, optimizer).iterations
               : 0;
}

co_code
co_optimizer_set_iterations(co_context *ctx, co_optimizer *optimizer, int64_t iterations)
{
    coi_numbers numbers;

    COI_ENTER_CODE(ctx, "optimizer_set_iterations");
    if (!coi_check_optimizer(ctx, optimizer) || !coi_may_set(ctx))
        return ctx->error.code;
    if (iterations < 0)
        return coi_fail(ctx, CO_VALUE_ERROR, "iterations is %lld; it must not be negative",
                        (long long)iterations);
    numbers = coi_numbers_get(ctx, optimizer);
    numbers.iterations = iterations;
    coi_numbers_set(ctx, optimizer, &numbers);
    return CO_OK;
}

double
co_optimizer_learning_rate(co_context *ctx, const co_optimizer *optimizer)
{
    coi_numbers numbers;

    COI_ENTER(ctx, "optimizer_learning_rate", 0);
    if (!coi_check_optimizer(ctx, optimizer) || !coi_check_host_state(ctx, "the learning rate"))
        return 0;
    numbers = peek(ctx, optimizer);
    return coi_learning_rate(optimizer, &numbers);
}

co_code
co_optimizer_set_learning_rate(co_context *ctx, co_optimizer *optimizer, double learning_rate)
{
    coi_numbers numbers;

    COI_ENTER_CODE(ctx, "optimizer_set_learning_rate");
    if (!coi_check_optimizer(ctx, optimizer) || !coi_may_set(ctx))
        return ctx->error.code;
    if (optimizer->common.schedule != NULL)
        return coi_fail(ctx, CO_FAILED_PRECONDITION,
                        "the learning rate of %s is that of a schedule; co_custom_schedule makes "
                        "one of a function of yours",
                        optimizer->name);
    if (!isfinite(learning_rate))
        return coi_fail(ctx, CO_VALUE_ERROR, "learning_rate is %g; it must be finite",
                        learning_rate);
    numbers = coi_numbers_get(ctx, optimizer);
    numbers.learning_rate = learning_rate;
    coi_numbers_set(ctx, optimizer, &numbers);
    return CO_OK;
}

/* --- the loss scale --- */

double
co_optimizer_loss_scale(co_context *ctx, const co_optimizer *optimizer)
{
    COI_ENTER(ctx, "optimizer_loss_scale", 0);
    if (!coi_check_optimizer(ctx, optimizer) || !coi_check_host_state(ctx, "the loss scale"))
        return 0;
    return optimizer->common.loss_scale > 0 ? peek(ctx, optimizer).loss_scale : 1;
}

typedef struct scale_attrs {
    co_optimizer *optimizer; /* a reference in a program */
    co_dtype      dtype;
} scale_attrs;

static bool
hold_optimizer(coi_heap *heap, void *to, const void *from)
{
    (void)heap;
    (void)to;
    coi_ref(((const scale_attrs *)from)->optimizer);
    return true;
}

static void
drop_optimizer(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((scale_attrs *)attrs)->optimizer);
}

static bool
same_scale(co_context *ctx, const void *a, const void *b)
{
    const scale_attrs *first = a, *second = b;

    (void)ctx;
    return first->optimizer == second->optimizer && first->dtype == second->dtype;
}

/* The scale as a tensor: a value of the block. */
static co_value *
scale_now(co_context *ctx, co_optimizer *optimizer, co_dtype dtype)
{
    double scale = coi_numbers_get(ctx, optimizer).loss_scale;
    float  single = (float)scale;

    return co_tensor(ctx, dtype, NULL, 0,
                     dtype == CO_FLOAT64 ? (const void *)&scale : (const void *)&single);
}

static co_value *
replay_scale(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const scale_attrs *given = attrs;

    (void)in;
    (void)num_in;
    return scale_now(ctx, given->optimizer, given->dtype);
}

const coi_op coi_op_loss_scale = {
    COI_RECORDED("loss_scale", "Reads the loss scale of an optimizer; co_scale_loss.", replay_scale,
                 CO_RESOURCE_VARIABLE, 0),
    .attrs_rule = { COI_ATTRS_SIZE(scale_attrs), hold_optimizer, drop_optimizer },
    .same_attrs = same_scale,
};

co_value *
coi_scale_loss(co_context *ctx, co_optimizer *optimizer, co_value *loss)
{
    co_dtype  dtype = co_value_dtype(ctx, loss);
    co_value *scale;

    if (dtype == CO_FLOAT16 || dtype == CO_BFLOAT16)
        loss = co_cast(ctx, loss, dtype = CO_FLOAT32);
    if (loss == NULL)
        return NULL;
    dtype = dtype == CO_FLOAT64 ? CO_FLOAT64 : CO_FLOAT32;
    if (coi_is_capturing(ctx))
        scale = coi_record_call(ctx, &coi_op_loss_scale, &(scale_attrs){ optimizer, dtype }, NULL,
                                0, co_spec(ctx, dtype, NULL, 0));
    else
        scale = scale_now(ctx, optimizer, dtype);
    return scale != NULL ? co_mul(ctx, loss, scale) : NULL;
}

co_value *
co_scale_loss(co_context *ctx, co_optimizer *optimizer, co_value *loss)
{
    COI_ENTER(ctx, "scale_loss", NULL);
    if (!coi_check_optimizer(ctx, optimizer) || !coi_check_value(ctx, loss, 3, "loss"))
        return NULL;
    return optimizer->common.loss_scale > 0 ? coi_scale_loss(ctx, optimizer, loss)
                                            : coi_own_ref(ctx, loss);
}
