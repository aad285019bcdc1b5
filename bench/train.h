/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that trains one model under one strategy. `cohort-bench train` starts one for each
 * figure, and so does scripts/bench-peers, which starts scripts of bench/peers besides: all of them
 * speak the same protocol.
 *
 * The process takes one step and writes "first LOSS". It then reads lines from its standard input
 * and answers each with a line:
 *
 *     time SECONDS   rates R...    steps per second of short rounds, for about that long
 *     steps N        losses L...   the losses of the next N steps
 *     end            memory M [L]  the most memory it ever had, in MiB, and of it the library; then
 *                                  it ends
 *
 * The end of its input is the same as "end".
 */
#ifndef COHORT_BENCH_TRAIN_H
#define COHORT_BENCH_TRAIN_H

#include "train_models.h"

typedef struct train_strategy {
    const char *name; /* "mirrored2" */
    int         cpus;
    int         processes;
    co_strategy *(*make)(co_context *ctx); /* NULL: the step is called without a strategy */
} train_strategy;

enum { TRAIN_NUM_STRATEGIES = 4 };
extern const train_strategy train_strategies[TRAIN_NUM_STRATEGIES];

/* What such a process does: "gpt-mirrored2-eager", "mlp-none-function". */
typedef struct train_task {
    const train_model    *model;
    const train_strategy *strategy;
    bool                  function; /* the step is a captured function */
} train_task;

const train_strategy *train_find_strategy(const char *name);

#endif
