/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configure the sessions of TensorFlow for a strategy: update_config_proto of the v1 interface, on
 * the bytes of a tf.ConfigProto. The config that is given stays as it is, and fields that the
 * library knows nothing of survive.
 */
#include <cohort/cohort.h>
#include <cohort/v1.h>
#include <stdio.h>

static void
show(co_context *ctx, const char *what, co_value *config)
{
    size_t      n = 0;
    const char *bytes = co_string_at(ctx, config, 0, &n);

    printf("%-11s", what);
    for (size_t i = 0; i < n; ++i)
        printf(" %02x", (unsigned)(unsigned char)bytes[i]);
    printf("\n");
}

int
main(void)
{
    static const char given[] = { 0x38, 0x01,               /* field 7, allow_soft_placement */
                                  (char)0xc8, 0x3e, 0x07 }; /* field 1001, of a later release */
    co_context       *ctx = co_open("cpus=2");
    co_value         *config_proto = co_bytes(ctx, given, sizeof(given));
    co_config_cluster cluster = CO_CONFIG_CLUSTER_INIT;

    show(ctx, "given", config_proto);
    show(ctx, "one device",
         co_update_config_proto(ctx, co_v1_one_device_strategy(ctx, "/cpu:0"), config_proto));
    show(ctx, "mirrored", /* field 15, isolate_session_state */
         co_update_config_proto(ctx, co_v1_mirrored_strategy(ctx, NULL, 0, NULL), config_proto));
    cluster.task_type = "evaluator"; /* it has filters for its own devices, and no leader */
    show(ctx, "evaluator", co_config_for_cluster(ctx, config_proto, &cluster));
    show(ctx, "still", config_proto);
    return co_close(ctx);
}
