/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks and lines of the log that belong to a program: tf.debugging.assert, check_numerics, tf.print.
 * Without capturing they run at once. A captured function holds them as calls: they run in every call
 * of it, at their place among the other calls, where an `if` of yours would run while capturing only.
 *
 * A check that fails ends the call of the function: the calls before it have happened, those after
 * it do not. `message` begins the text of the error, and is copied; NULL: none. The first 200 bytes
 * are kept.
 *
 * Rules: FN-10.
 */
#ifndef COHORT_RUNTIME_CHECKS_H
#define COHORT_RUNTIME_CHECKS_H

#include <cohort/value.h>

CO_EXTERN_C_BEGIN

/**
 * Every element of `condition`, a tensor of bool or a bool, must be true. CO_INVALID_ARGUMENT
 * otherwise.
 * Rules: FN-10.
 */
CO_API co_code co_assert(co_context *ctx, co_value *condition, const char *message);
/** x == y, x < y or x > y must hold for all elements, which are broadcast. Errors as co_assert. */
CO_API co_code co_assert_equal(co_context *ctx, co_value *x, co_value *y, const char *message);
CO_API co_code co_assert_less(co_context *ctx, co_value *x, co_value *y, const char *message);
CO_API co_code co_assert_greater(co_context *ctx, co_value *x, co_value *y, const char *message);

/**
 * x itself, a floating tensor that must hold neither NaN nor an infinity: CO_INVALID_ARGUMENT
 * otherwise.
 * Rules: FN-10.
 */
CO_API co_value *co_check_numerics(co_context *ctx, co_value *x, const char *message);

/**
 * x itself, whose shape must fit `dims`, in which -1 is any dimension: CO_INVALID_ARGUMENT otherwise.
 * While a function is captured the result is known to have these dimensions: what tf.ensure_shape is
 * to the documents.
 * Rules: FN-10.
 */
CO_API co_value *co_ensure_shape(co_context *ctx, co_value *x, const int64_t *dims, int ndim);

/** A line of the log (CO_LOG_INFO) with `text` and a value, as co_format writes it. */
CO_API co_code co_print(co_context *ctx, const char *text, co_value *value);

CO_EXTERN_C_END

#endif
