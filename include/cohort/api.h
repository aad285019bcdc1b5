/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every other header needs: the export macro, the version, and call sites.
 *
 * A call site is the file and line of the user's call. The macros of sites.h store it in the
 * context on the way into the library, so an error can say where it began. The real functions are
 * called when a name is put in parentheses, `(co_add)(ctx, x, y)`; a wrapper calls co_site() itself
 * first.
 */
#ifndef COHORT_API_H
#define COHORT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define CO_EXTERN_C_BEGIN extern "C" {
#define CO_EXTERN_C_END   }
#else
#define CO_EXTERN_C_BEGIN
#define CO_EXTERN_C_END
#endif

#if defined(__GNUC__)
#define CO_API             __attribute__((visibility("default")))
#define CO_PRINTF(at, arg) __attribute__((format(printf, at, arg)))
#else
#define CO_API
#define CO_PRINTF(at, arg)
#endif

#define CO_VERSION_MAJOR 0
#define CO_VERSION_MINOR 1
#define CO_VERSION_PATCH 0
#define CO_VERSION       "0.1.0"

CO_EXTERN_C_BEGIN

/** What a thread works in: see context.h. */
typedef struct co_context co_context;
/** The one data handle: see value.h. */
typedef struct co_value co_value;
/** A device: see device.h. */
typedef struct co_device co_device;
/** Where replicas run and how their results combine: see strategy.h. */
typedef struct co_strategy co_strategy;
/** A description of input: see dataset.h. */
typedef struct co_dataset co_dataset;
/** A position in input: see dataset.h. */
typedef struct co_iterator co_iterator;
/** An update rule with its state: see train.h. */
typedef struct co_optimizer co_optimizer;
/** A learning rate as a function of the step: see schedule.h. */
typedef struct co_schedule co_schedule;

/** The user's call site; the first member of every context, so that storing it costs two moves. */
typedef struct co_site_info {
    const char *file;
    int         line;
} co_site_info;

/** Remember `file` and `line` as the site of the next call on `ctx`; returns ctx. NULL is
 * allowed. */
static inline co_context *
co_site(co_context *ctx, const char *file, int line)
{
    if (ctx != NULL) {
        co_site_info *site = (co_site_info *)(void *)ctx;

        site->file = file;
        site->line = line;
    }
    return ctx;
}
#define CO_HERE(ctx) co_site((ctx), __FILE__, __LINE__)

/*
 * The statement macros (CO_BLOCK, CO_EACH, CO_SCOPE, CO_CREATOR, CO_DEVICE) close what they open
 * however their body is left. They run their body in two loops, so that `break` reaches the end of
 * the outer one in plain C11. For `goto` and `return` they use the cleanup attribute where the
 * compiler has it; define COHORT_NO_CLEANUP before including to do without. Then what was left open
 * is closed by the end of a block, statement, step or function around it, which says so in the log.
 */
#define CO_CLEANUP(function)
#if defined(__has_attribute) && !defined(COHORT_NO_CLEANUP)
#if __has_attribute(cleanup)
#undef CO_CLEANUP
#define CO_CLEANUP(function) __attribute__((cleanup(function)))
#endif
#endif
/* The body runs if `runs` is true of `statement`, the token that `begin` gives. */
#define CO_STATEMENT_(statement, open, once, begin, runs)                                          \
    for (co_statement statement CO_CLEANUP(co_statement_leave) = begin,                              \
                                *open = (runs) ? &statement : NULL;                                \
         (open) != NULL; co_statement_end(open), (open) = NULL)                                    \
        for (int once = 1; once; (once) = 0)
/* CO_STATEMENT always runs its body, and the compiler knows that; CO_STATEMENT_IF runs it
 * only if the statement could begin. */
#define CO_STATEMENT(begin)                                                                        \
    CO_STATEMENT_(CO_NAME_HERE(co_statement_), CO_NAME_HERE(co_open_), CO_NAME_HERE(co_once_),     \
                  begin, true)
#define CO_STATEMENT_IF(begin)                                                                     \
    CO_STATEMENT_(CO_NAME_HERE(co_statement_), CO_NAME_HERE(co_open_), CO_NAME_HERE(co_once_),     \
                  begin, CO_NAME_HERE(co_statement_).id != 0)

/* A name of its own for the variable of a statement macro on each line, so that statements nest
 * without shadowing. */
#define CO_NAME_(name, line)  name##line
#define CO_NAME_AT(name, line) CO_NAME_(name, line)
#define CO_NAME_HERE(name)     CO_NAME_AT(name, __LINE__)

/** What a statement macro has open. For those macros alone. */
typedef struct co_statement {
    co_context *ctx;
    uint64_t    id; /* 0: nothing */
} co_statement;
/** Close it, and what is still open inside it; nothing where that was done before. */
CO_API void co_statement_end(co_statement *statement);
/* The same as the compiler's last word, when it is closed already as a rule. */
static inline void
co_statement_leave(co_statement *statement)
{
    if (statement->id != 0)
        co_statement_end(statement);
}

/** The version of the library that is loaded, "0.1.0"; compare with CO_VERSION of the headers. */
CO_API const char *co_version(void);

CO_EXTERN_C_END

#endif
