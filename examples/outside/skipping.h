/* SPDX-License-Identifier: Apache-2.0 */
/* A strategy of our own, as a library of ours would offer it. */
#ifndef SKIPPING_H
#define SKIPPING_H

#include <cohort/cohort.h>

/**
 * Replicas on CPU 0, 1, 1 that take 2, 1 and 1 of every four rows. All but the first rest in every
 * other step: they take part with no rows, so collectives stay complete and averages stay right.
 */
co_strategy *skipping_strategy(co_context *ctx);
/** How many steps it has run so far. */
long skipping_steps(co_context *ctx, co_strategy *strategy);

#endif
