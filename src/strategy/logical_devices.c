/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the documents have for TPUs on strategies of other devices. Logical devices: no strategy has
 * them but those of TPUs (S-LOGICAL-1). The answer does not depend on the arguments, so they are
 * not looked at. RunOptions: ignored (S-RUN-9).
 */
#include <cohort/tpu.h>

#include "strategy/strategy.h"

static co_value *
not_here(co_context *ctx, co_strategy *strategy, const char *call)
{
    char text[COI_STRATEGY_TEXT];

    COI_ENTER(ctx, call, NULL);
    if (coi_check_strategy(ctx, strategy, 2))
        coi_fail(ctx, CO_UNIMPLEMENTED,
                 "%s has no logical devices: a TPU strategy alone has; leave the annotation out, "
                 "it never changes a value",
                 coi_strategy_text(strategy, text));
    return NULL;
}

co_value *
co_assign_to_logical_device(co_context *ctx, co_strategy *strategy, co_value *tensor,
                            int logical_device_id)
{
    (void)tensor;
    (void)logical_device_id;
    return not_here(ctx, strategy, "assign_to_logical_device");
}

co_value *
co_split_to_logical_devices(co_context *ctx, co_strategy *strategy, co_value *tensor,
                            const int64_t *partition_dimensions, size_t num_dimensions)
{
    (void)tensor;
    (void)partition_dimensions;
    (void)num_dimensions;
    return not_here(ctx, strategy, "split_to_logical_devices");
}

co_value *
co_replicate_to_logical_devices(co_context *ctx, co_strategy *strategy, co_value *tensor)
{
    (void)tensor;
    return not_here(ctx, strategy, "replicate_to_logical_devices");
}

co_value *
co_tpu_run(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user,
           const co_tpu_run_options *options)
{
    co_tpu_run_options all = CO_TPU_RUN_OPTIONS_INIT;

    COI_ENTER(ctx, "tpu_run", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 6))
        return NULL;
    return co_run_with(ctx, strategy, fn, args, user, all.run);
}
