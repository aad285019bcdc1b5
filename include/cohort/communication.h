/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communication options of collectives: tf.distribute.experimental.CommunicationOptions and the
 * cross-device operations of a mirrored strategy. All of it is advice. Results never depend on
 * it, to the last bit; only the time they take and how long to wait for a worker do.
 *
 *     co_communication_options options = CO_COMMUNICATION_OPTIONS_INIT;
 *     options.bytes_per_pack = 50 << 20;
 *     options.timeout_seconds = 120;
 *     sum = co_all_reduce_with(ctx, CO_REDUCE_SUM, gradients, &options);
 *
 * Options are given to a strategy, for all of its collectives, or to one call; fields of a call
 * that are not the default override those of the strategy.
 * Rules: CO-1 to CO-4.
 */
#ifndef COHORT_COMMUNICATION_H
#define COHORT_COMMUNICATION_H

#include <cohort/context.h>

CO_EXTERN_C_BEGIN

typedef enum co_communication {
    CO_COMMUNICATION_AUTO = 0, /* one round for what is short, two for the rest */
    CO_COMMUNICATION_RING =
        1, /* always two rounds, in which no worker sends more than twice the bytes */
    /* accepted for programs that name it; the same as AUTO: there is no such library here */
    CO_COMMUNICATION_NCCL = 2
} co_communication;
/** AUTO, RING or NCCL by name, in any letter case; CO_VALUE_ERROR for every other name. */
CO_API co_code co_communication_from_name(co_context *ctx, const char *name, co_communication *out);

/** timeout_seconds: none is given, the deadline_ms of the strategy counts. */
#define CO_TIMEOUT_OF_STRATEGY (-1.0)

typedef struct co_communication_options {
    size_t struct_size;
    /* workers exchange values in packs, in order; a pack is complete when it exceeds this size.
     * 0: one pack */
    int64_t bytes_per_pack;
    /* how long a collective waits for other workers, then CO_DEADLINE_EXCEEDED; 0: forever. It has
     * no effect without workers */
    double timeout_seconds;
    co_communication implementation;
} co_communication_options;
#define CO_COMMUNICATION_OPTIONS_INIT                                                              \
    {                                                                                              \
        sizeof(co_communication_options), 0, CO_TIMEOUT_OF_STRATEGY, CO_COMMUNICATION_AUTO         \
    }

/** The algorithm that combines the values of a mirrored strategy.
 * Rules: MIR-CDO-1. */
typedef enum co_cross_device_ops {
    CO_CROSS_DEVICE_AUTO =
        0, /* RING where all devices are CPUs, NCCL where all are GPUs, else REDUCE_TO_ONE */
    CO_CROSS_DEVICE_REDUCE_TO_ONE = 1, /* the last replica to arrive does all of the work */
    CO_CROSS_DEVICE_HIERARCHICAL_COPY = 2, /* each replica does a share of the work */
    /* both act as HIERARCHICAL_COPY, because devices of a machine share their memory here */
    CO_CROSS_DEVICE_NCCL = 3,
    CO_CROSS_DEVICE_RING = 4
} co_cross_device_ops;

CO_EXTERN_C_END

#endif
