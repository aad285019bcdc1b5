/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors. One convention for the whole library: the context keeps the first error, and while it is
 * there calls on that context do nothing and return NULL, 0 or the code. So an expression, a step
 * or a whole program is checked where the programmer wants. Closing things (the end of a block or
 * scope, release, close) always works.
 *
 *     co_value *y = co_relu(ctx, co_add(ctx, co_matmul(ctx, x, w), b));
 *     if (!co_ok(ctx)) {
 *         fprintf(stderr, "%s\n", co_error(ctx)->message);
 *         co_clear(ctx);
 *     }
 */
#ifndef COHORT_ERROR_H
#define COHORT_ERROR_H

#include <cohort/api.h>

CO_EXTERN_C_BEGIN

/**
 * What went wrong. The first group has the numbers of TensorFlow's canonical codes; the second has
 * the Python error kinds of the strategy API, which the canonical set cannot tell apart.
 */
typedef enum co_code {
    CO_OK = 0,
    CO_CANCELLED = 1,
    CO_UNKNOWN = 2,
    /* E_INVALID: a tensor operation rejects a shape, dtype, axis, index */
    CO_INVALID_ARGUMENT = 3,
    CO_DEADLINE_EXCEEDED = 4, /* E_DEADLINE */
    CO_NOT_FOUND = 5,         /* E_NOTFOUND */
    CO_ALREADY_EXISTS = 6,
    CO_PERMISSION_DENIED = 7,
    CO_RESOURCE_EXHAUSTED = 8,
    CO_FAILED_PRECONDITION = 9, /* E_PRECOND */
    CO_ABORTED = 10,
    CO_OUT_OF_RANGE = 11,  /* E_OOR */
    CO_UNIMPLEMENTED = 12, /* E_NOTIMPL: this strategy, or this build, does not offer it */
    CO_INTERNAL = 13,
    CO_UNAVAILABLE = 14, /* E_UNAVAIL */
    CO_DATA_LOSS = 15,   /* E_DATALOSS */
    CO_UNAUTHENTICATED = 16,

    CO_RUNTIME_ERROR = 32,   /* E_RUNTIME: wrong context or nesting */
    CO_VALUE_ERROR = 33,     /* E_VALUE: argument value not acceptable */
    CO_TYPE_ERROR = 34,      /* E_TYPE: argument of the wrong kind */
    CO_ASSERTION_ERROR = 36, /* E_ASSERT: a precondition of the caller does not hold */
    CO_STOP_ITERATION = 37,  /* E_STOP: end of input, as an error */

    CO_CODE_IS_INT = -1 /* no code: makes the type signed, so that main can return a code */
} co_code;

/** The name of a code, "CO_VALUE_ERROR"; "CO_UNKNOWN" for a number that is none. */
CO_API const char *co_code_name(co_code code);
/** The kind of the specification, "E_VALUE"; "" for codes that have none. */
CO_API const char *co_code_kind(co_code code);
/** TensorFlow's canonical code nearest to `code`: CO_VALUE_ERROR and CO_TYPE_ERROR become
 * CO_INVALID_ARGUMENT, ... */
CO_API co_code co_code_canonical(co_code code);

/** The record of one error. Fixed size, so that reporting "out of memory" needs no memory. */
typedef struct co_error_info {
    co_code     code;
    int         rank;          /* who saw it; -1 outside a group of processes */
    int         replica;       /* -1 outside a replica */
    const char *call;          /* "matmul", "reduce" */
    const char *file;          /* the user's call site; NULL when not known */
    int         line;
    char        message[1000]; /* one line, always terminated, cut short rather than allocated */
    void       *payload;       /* what co_fail_with carried, or NULL */
} co_error_info;

/** True while `ctx` is not NULL and has no error. */
CO_API bool co_ok(const co_context *ctx);
/** The first error of `ctx`; its code is CO_OK when there is none. Never NULL. Lives as long as
 * ctx. */
CO_API const co_error_info *co_error(const co_context *ctx);
/** Forget the error, so that calls work again. That of a runtime that could not be opened stays. */
CO_API void co_clear(co_context *ctx);
/**
 * Fail, from user code: in a step, a merge function, a dataset function. The record comes unchanged
 * to the context that called run. Does nothing if ctx has an error already. Returns code, so that
 * `return co_fail(...), NULL;` reads well. CO_OK as code is itself an error (CO_VALUE_ERROR).
 */
CO_API co_code co_fail(co_context *ctx, co_code code, const char *format, ...) CO_PRINTF(3, 4);
/** The same with an object of the caller; `deleter` is called when the record dies (also if not
 * taken). */
CO_API co_code co_fail_with(co_context *ctx, co_code code, void *payload,
                            void (*deleter)(void *payload), const char *format, ...)
    CO_PRINTF(5, 6);

CO_EXTERN_C_END

#endif
