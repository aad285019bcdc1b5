/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributed datasets: what other files and the v1 interface need of them.
 */
#ifndef COI_STRATEGY_DISTRIBUTED_INPUT_H
#define COI_STRATEGY_DISTRIBUTED_INPUT_H

#include <cohort/dataset.h>

#include "strategy/strategy.h"

/* DS-ITER-4: who may ask for the next element. CO_VALUE_ERROR in a replica, CO_RUNTIME_ERROR under
 * another strategy. */
bool coi_check_input_mode(co_context *ctx, const co_strategy *strategy);
/* What a dataset function of this worker learns. */
co_input_context coi_input_context_of(const co_strategy *strategy);
/* Call a dataset function with the host of the worker as the current device (DS-FN-1, DS-FN-3). Its
 * result is not checked. */
co_dataset *coi_call_dataset_fn(co_context *ctx, const co_strategy *strategy, co_dataset_fn fn,
                                void *user, const co_input_context *input);
/* The dataset of this worker, neither split nor sharded, where a step that cannot serve every
 * replica is the end (ITER1-FN-4). Several workers stay in step instead. A dataset of the block. */
co_dataset *coi_distribute_whole_steps(co_context *ctx, co_strategy *strategy, co_dataset *mine);
/* numpy_dataset.c. co_make_numpy_dataset, in graph mode with a session or without (NP-6). */
co_dataset *coi_make_numpy_dataset(co_context *ctx, co_strategy *strategy, co_value *arrays,
                                   bool has_session);
/* The strategy that a dataset is distributed by; NULL: it is not. Borrowed. */
co_strategy *coi_dataset_strategy(const co_dataset *dataset);

#endif
