/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses averaged over the examples that a step really has, on all replicas.
 */
#include <cohort/ops.h>
#include <cohort/train.h>

#include "ops/engine/call_recording.h"
#include "strategy/strategy_state.h"

/*
 * Examples of the whole step: known from the input, or counted together now. Where the input has
 * another number of examples than there are losses, dividing by its number would be silently wrong,
 * and one replica cannot know what the others see.
 */
static int64_t
step_examples(co_context *ctx, const co_value *losses)
{
    coi_examples input = coi_examples_of(ctx);
    int64_t      mine = losses->u.tensor.dims[0];
    co_value    *all;

    if (ctx->mode.num_replicas == 1)
        return mine;
    if (input.of_step >= 0 && input.of_replica >= 0 && input.of_replica != mine) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "average_loss is given %lld loss%s, but the input has %lld example%s on this "
                 "replica; give one loss per example (co_reduce_mean over the other axes), or say "
                 "before how many losses all replicas have together: co_set_step_examples",
                 (long long)mine, COI_ES(mine), (long long)input.of_replica,
                 COI_S(input.of_replica));
        return 0;
    }
    if (input.of_step >= 0)
        return input.of_step;
    all = co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_int64(ctx, mine));
    return all != NULL ? co_item_int(ctx, all) : 0;
}

/* While a function is captured the examples are not known: each call of it counts its own. The tape
 * of types sees the steps that it has with one replica. */
static co_value *
replay_average(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)attrs;
    (void)num_in;
    return co_average_loss(ctx, in[0]);
}

/* Its divisor is a number of the host, and so is what it checks. */
static void
examples_key(co_context *ctx, coi_plan_key *key)
{
    coi_examples examples = coi_examples_of(ctx);

    if (ctx->mode.num_replicas > 1)
        *key = (coi_plan_key){ { examples.of_step, examples.of_replica } };
}

const coi_op coi_op_average_loss = {
    COI_RECORDED("average_loss", "The mean of losses over the examples of a step; co_average_loss.",
                 replay_average, CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS,
                 CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS),
    .is_planned = true,
    .plan_key = examples_key,
};

static co_value *
capture_average(co_context *ctx, co_value *losses)
{
    const struct coi_type_recorder *recorder = ctx->type_recorder;
    co_value                       *type;

    ctx->type_recorder = NULL;
    type = co_div(ctx, co_reduce_sum(ctx, losses, CO_ALL_AXES, false), co_float(ctx, 1));
    ctx->type_recorder = recorder;
    return coi_record_call(ctx, &coi_op_average_loss, NULL, &losses, 1, type);
}

co_value *
co_average_loss(co_context *ctx, co_value *per_example_loss)
{
    co_value *losses;
    int64_t   examples;

    COI_ENTER(ctx, "average_loss", NULL);
    if (!coi_check_value(ctx, per_example_loss, 2, "per_example_loss"))
        return NULL;
    if (coi_is_capturing(ctx))
        return capture_average(ctx, per_example_loss);
    losses = coi_as_tensor(ctx, per_example_loss, CO_DTYPE_NONE);
    if (losses == NULL || (losses = coi_own(ctx, losses)) == NULL)
        return NULL;
    if (!coi_dtypes[losses->dtype].floating) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "losses are %s; they must be of a floating dtype",
                 co_dtype_name((co_dtype)losses->dtype));
        return NULL;
    }
    if (losses->ndim == 0) { /* with one replica a mean would be accepted, with several it would be
                                a mean of means */
        coi_fail(ctx, CO_VALUE_ERROR,
                 "average_loss is given a scalar, whose examples cannot be counted; give one loss "
                 "per example, which it averages itself");
        return NULL;
    }
    if (ctx->mode.cross) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "average_loss is called in cross-replica context; call it in the step");
        return NULL;
    }
    examples = step_examples(ctx, losses);
    if (ctx->error.code != CO_OK)
        return NULL;
    return co_div(ctx, co_reduce_sum(ctx, losses, CO_ALL_AXES, false),
                  co_float(ctx, examples > 0 ? (double)examples : 1.0));
}
