/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mode --function: what a case computes is computed inside captured functions. Every case runs
 * twice, each time in a context of its own: without capturing, and captured. Both runs must give
 * what was recorded, and the results of their calls must have the same bits.
 *
 * Families hand the calls that compute to golden_in_function and to the calls below it for
 * iterators. In the other modes these make the calls, and no more. What has no meaning inside a
 * function is said with golden_no_meaning, or hands nothing over: such cases are counted apart.
 */
#ifndef GOLDEN_CAPTURED_H
#define GOLDEN_CAPTURED_H

#include "golden.h"

/* A run of a case in the mode begins, captured or not; or the mode is over. `lies`: the bits that
 * the run is said to have are wrong, which must be found. */
void golden_begin_run(bool captures, bool lies);
void golden_end_run(co_context *ctx);

/* What the calls of a run gave: their number, and a sum over the bits of their results that does
 * not depend on their order. */
typedef struct golden_run_record {
    long     calls;
    uint64_t bits;
    char     no_meaning[100]; /* empty: all had one */
} golden_run_record;
golden_run_record golden_run_so_far(void);

/* Call fn, or capture it and call what was captured. */
co_value *golden_in_function(co_context *ctx, co_fn fn, co_value *args, void *user);
/* co_run of fn; the run is inside the function. */
co_value *golden_run_in_function(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args,
                                 void *user);
/* The other way round: a function inside the step, in the context of a replica. */
co_value *golden_function_in_step(co_context *ctx, co_fn fn, co_value *args, void *user);
/* co_next, co_get_next and co_get_next_as_optional: one function takes every element. */
co_value *golden_next(co_context *ctx, co_iterator *it);
co_value *golden_get_next(co_context *ctx, co_iterator *it);
co_value *golden_next_as_optional(co_context *ctx, co_iterator *it);
/* Why a part of the case is not captured. */
void golden_no_meaning(const char *why);
bool golden_captures(void);

#endif
