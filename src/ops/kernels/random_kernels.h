/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers: attributes and kernels. */
#ifndef COI_OPS_KERNELS_RANDOM_KERNELS_H
#define COI_OPS_KERNELS_RANDOM_KERNELS_H

#include "ops/engine/op.h"

/* Of both distributions; the first two of the numbers that describe one have two names. */
typedef struct coi_random_attrs {
    coi_ints shape;
    uint8_t  dtype;
    union {
        double low, mean;
    };
    union {
        double high, stddev;
    };
    coi_ints seed;    /* two numbers: of a drawn call the seed, and the number of the call */
    int64_t  replica; /* of a drawn call */
    int64_t  op_seed; /* before it is drawn: COI_NO_INT, or the seed of a stream of its own */
} coi_random_attrs;

/* The kind of an operator with a kernel. */
typedef enum coi_random_kind { COI_RANDOM_DRAWN, COI_RANDOM_STATELESS } coi_random_kind;

co_code coi_random_uniform_run(coi_call *call);
co_code coi_random_normal_run(coi_call *call);

#endif
