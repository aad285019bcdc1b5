/* SPDX-License-Identifier: Apache-2.0 */
/* What the targets that read files share: a file in memory, a context for all inputs, and errors of
 * known codes. */
#ifndef COHORT_FUZZ_FILES_H
#define COHORT_FUZZ_FILES_H

#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#define FUZZ_MAX_ELEMENTS 100000

/* A file that holds the bytes; in memory, so that millions of inputs do not wear out a disk. */
static inline const char *
fuzz_file(const uint8_t *bytes, size_t nbytes)
{
    static char name[64];
    static int  file = -1;

    if (file < 0) {
        file = memfd_create("fuzz", 0);
        snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
    }
    FUZZ_REQUIRE(file >= 0 && ftruncate(file, 0) == 0);
    FUZZ_REQUIRE(pwrite(file, bytes, nbytes, 0) == (ssize_t)nbytes);
    return name;
}

static inline co_context *
fuzz_context(void)
{
    static co_context *ctx;

    if (ctx == NULL)
        ctx = co_open("log=off");
    FUZZ_REQUIRE(co_ok(ctx));
    return ctx;
}

/* The error that the context may have is one of two codes; it is cleared. */
static inline void
fuzz_clear(co_context *ctx, co_code one, co_code other)
{
    co_code code = co_error(ctx)->code;

    if (code != CO_OK && code != one && code != other) {
        fprintf(stderr, "%s: %s\n", co_code_name(code), co_error(ctx)->message);
        abort();
    }
    co_clear(ctx);
}

/* Ask for all elements and for those behind each error, which come to an end. */
static inline void
fuzz_drain(co_context *ctx, co_dataset *dataset, co_code one, co_code other)
{
    co_iterator *it = co_iterate(ctx, dataset);
    bool         more = true;

    for (int i = 0; more && i < FUZZ_MAX_ELEMENTS; ++i)
        CO_BLOCK(ctx) {
            more = co_next(ctx, it) != NULL || !co_ok(ctx);
            fuzz_clear(ctx, one, other);
        }
    FUZZ_REQUIRE(!more);
}

#endif
