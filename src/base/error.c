/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error codes and the filling of error records. Messages are made safe here, once, for every
 * reader: one line of valid UTF-8, whatever bytes a caller quoted, cut with "..." when it does not
 * fit.
 */
#include "base/error.h"

#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct code_entry {
    const char *name;
    const char *kind;
    co_code     canonical;
} code_entry;

/* Row of a code of TensorFlow's set: its canonical code is itself. */
#define CANONICAL(code, kind) [code] = { #code, kind, code }

static const code_entry codes[] = {
    CANONICAL(CO_OK, ""),
    CANONICAL(CO_CANCELLED, ""),
    CANONICAL(CO_UNKNOWN, ""),
    CANONICAL(CO_INVALID_ARGUMENT, "E_INVALID"),
    CANONICAL(CO_DEADLINE_EXCEEDED, "E_DEADLINE"),
    CANONICAL(CO_NOT_FOUND, "E_NOTFOUND"),
    CANONICAL(CO_ALREADY_EXISTS, ""),
    CANONICAL(CO_PERMISSION_DENIED, ""),
    CANONICAL(CO_RESOURCE_EXHAUSTED, ""),
    CANONICAL(CO_FAILED_PRECONDITION, "E_PRECOND"),
    CANONICAL(CO_ABORTED, ""),
    CANONICAL(CO_OUT_OF_RANGE, "E_OOR"),
    CANONICAL(CO_UNIMPLEMENTED, "E_NOTIMPL"),
    CANONICAL(CO_INTERNAL, ""),
    CANONICAL(CO_UNAVAILABLE, "E_UNAVAIL"),
    CANONICAL(CO_DATA_LOSS, "E_DATALOSS"),
    CANONICAL(CO_UNAUTHENTICATED, ""),
    [CO_RUNTIME_ERROR] = { "CO_RUNTIME_ERROR", "E_RUNTIME", CO_FAILED_PRECONDITION },
    [CO_VALUE_ERROR] = { "CO_VALUE_ERROR", "E_VALUE", CO_INVALID_ARGUMENT },
    [CO_TYPE_ERROR] = { "CO_TYPE_ERROR", "E_TYPE", CO_INVALID_ARGUMENT },
    [CO_ASSERTION_ERROR] = { "CO_ASSERTION_ERROR", "E_ASSERT", CO_FAILED_PRECONDITION },
    [CO_STOP_ITERATION] = { "CO_STOP_ITERATION", "E_STOP", CO_OUT_OF_RANGE },
};

/*
 * Numbers that are not codes are CO_UNKNOWN: they come from enums of newer callers, or from
 * garbage.
 */
static const code_entry *
entry_of(co_code code)
{
    size_t i = (size_t)code;

    if (i >= sizeof(codes) / sizeof(codes[0]) || codes[i].name == NULL)
        i = CO_UNKNOWN;
    return &codes[i];
}

const char *
co_code_name(co_code code)
{
    return entry_of(code)->name;
}

const char *
co_code_kind(co_code code)
{
    return entry_of(code)->kind;
}

co_code
co_code_canonical(co_code code)
{
    return entry_of(code)->canonical;
}

co_code
coi_error_va(co_error_info *err, co_code code, const char *format, va_list args)
{
    int saved_errno = errno;

    if (code == CO_OK)
        code = CO_INTERNAL; /* a failure without a code is a bug of the library; never lose the
                               failure */
    if (err != NULL && err->code == CO_OK) {
        err->code = code;
        coi_text_line_va(err->message, sizeof(err->message), format, args);
    }
    errno = saved_errno;
    return code;
}

co_code
coi_error(co_error_info *err, co_code code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    code = coi_error_va(err, code, format, args);
    va_end(args);
    return code;
}
