/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serialized configs: whatever the bytes are, they are refused with CO_INVALID_ARGUMENT, or the
 * copy is a message that is not changed by doing the same again. A strategy that wants nothing
 * gives the same bytes back, and nobody changes those he is given.
 */
#include <cohort/v1.h>
#include "fuzz.h"

static bool
same(co_context *ctx, co_value *a, co_value *b)
{
    size_t      n = 0, m = 0;
    const char *x = co_string_at(ctx, a, 0, &n), *y = co_string_at(ctx, b, 0, &m);

    return n == m && memcmp(x, y, n) == 0;
}

/* One way of changing a config. */
static co_value *
update(co_context *ctx, co_strategy *strategy, const co_config_cluster *cluster, co_value *config)
{
    return strategy != NULL ? co_update_config_proto(ctx, strategy, config)
                            : co_config_for_cluster(ctx, config, cluster);
}

static void
try_update(co_context *ctx, co_strategy *strategy, const co_config_cluster *cluster,
           co_value *config, bool wants_nothing)
{
    co_value *copy = update(ctx, strategy, cluster, config);

    if (copy == NULL) {
        FUZZ_REQUIRE(co_error(ctx)->code == CO_INVALID_ARGUMENT);
        co_clear(ctx);
        return;
    }
    FUZZ_REQUIRE(!wants_nothing || same(ctx, copy, config));
    FUZZ_REQUIRE(same(ctx, update(ctx, strategy, cluster, copy), copy));
    FUZZ_REQUIRE(co_ok(ctx));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static co_context  *ctx;
    static co_strategy *one, *mirrored;
    co_config_cluster   cluster = CO_CONFIG_CLUSTER_INIT;

    if (ctx == NULL) { /* for all inputs, and until the process ends */
        ctx = co_open("cpus=2");
        one = co_v1_one_device_strategy(ctx, "/cpu:0");
        mirrored = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
        FUZZ_REQUIRE(co_ok(ctx));
    }
    cluster.task_type = "worker";
    cluster.collective_nccl = size % 2 == 1;
    CO_BLOCK(ctx) {
        co_value   *config = co_bytes(ctx, data, size);
        const char *bytes;
        size_t      n;

        try_update(ctx, one, NULL, config, true);
        try_update(ctx, mirrored, NULL, config, false);
        try_update(ctx, NULL, &cluster, config, false);
        bytes = co_string_at(ctx, config, 0, &n);
        FUZZ_REQUIRE(n == size && memcmp(bytes, data, n) == 0);
    }
    return 0;
}
