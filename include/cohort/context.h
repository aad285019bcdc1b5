/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context: the first argument of every call, as lua_State is in Lua. It is what a thread works
 * in: the current device, the block that owns what is made, the first error, the gradient tape, and
 * the stack of modes (strategy, replica, update, creators). A program opens one; `co_run` gives
 * every replica its own.
 *
 * Lifetime. What is made through a context belongs to its innermost open block and dies when that
 * block ends; made outside any block it lives until the context is closed. co_keep makes a handle
 * live on, co_release gives that back, co_escape hands a value to the block around the current one.
 *
 *     for (int i = 0; i < steps; ++i)
 *         CO_BLOCK(ctx) {
 *             co_value *y = co_mul(ctx, x, w);      // gone after this iteration
 *         }
 *
 * Threads. A context is used by one thread at a time; different contexts are independent. A value
 * may be used from any context of the same runtime while it lives. Debug builds report a context
 * used by two threads at once.
 *
 * Mistakes. Every build reports a release without its keep, a context that is used after co_close,
 * and the context that called co_run if it is used inside the step. It reports a handle that is used
 * after its death until at least 64 more values have died in the context; debug builds wait longer.
 * The memory of a handle is freed with its runtime: using such a handle in another runtime, after
 * the last co_close, cannot be reported.
 */
#ifndef COHORT_CONTEXT_H
#define COHORT_CONTEXT_H

#include <cohort/error.h>

CO_EXTERN_C_BEGIN

typedef enum co_log_level {
    CO_LOG_OFF = 0,
    CO_LOG_ERROR = 1,
    CO_LOG_WARNING = 2,
    CO_LOG_INFO = 3,
    CO_LOG_DEBUG = 4
} co_log_level;

/** Receives log lines (no newline at the end). Called from any thread of the library, one at a
 * time. */
typedef void (*co_log_fn)(co_log_level level, const char *line, void *user);

/**
 * Memory for the library's own use. `nbytes` is at least 1; realloc is not needed. As everywhere,
 * `user` comes last. The library copies the struct, and it stays as it is: whatever more may be
 * asked of an allocator one day has its own struct.
 */
typedef struct co_allocator {
    void *(*alloc)(size_t nbytes, size_t alignment, void *user); /* NULL when there is none */
    void (*free)(void *memory, size_t nbytes, void *user);
    void *user;
} co_allocator;

/** Options of co_open_with. Start from CO_OPTIONS_INIT; fields are only ever appended. */
typedef struct co_options {
    size_t              struct_size;
    const char         *settings; /* "cpus=4, log=info": see co_settings_visit; NULL for none */
    co_log_fn           log;      /* NULL: lines go to standard error */
    void               *log_user;
    const co_allocator *allocator; /* NULL: the C library's */
} co_options;
#define CO_OPTIONS_INIT                                                                            \
    {                                                                                              \
        sizeof(co_options), NULL, NULL, NULL, NULL                                                 \
    }

/**
 * Open a runtime and a first context in it.
 *
 * `settings` is text, "cpus=4, devices=GPU:2, log=info", or NULL. A setting is looked for there,
 * then in the environment (COHORT_CPUS, ...), then takes its default; `cohort info` lists them all.
 *
 * Returns a context, which carries an error if a setting was wrong (check with co_ok; close it all
 * the same), or NULL when there is no memory even for that. Every call accepts a NULL context and
 * does nothing.
 */
CO_API co_context *co_open(const char *settings);
/** The same, with a log callback and an allocator. */
CO_API co_context *co_open_with(const co_options *options);
/** Another context of the same runtime, in default mode, for another thread. NULL without memory,
 * and in a fork (CO_RUNTIME_ERROR). `other` may be in use by another thread: nothing is written
 * to it, not even the place of this call. */
CO_API co_context *co_open_beside(co_context *other);
/**
 * Close a context and the objects that it owns. The last one closes the runtime: its threads are
 * joined, its devices are destroyed. In a forked child nothing is freed until the child exits.
 *
 * CO_RUNTIME_ERROR, and nothing is closed, in a function that a call on ctx has called, because
 * that call still uses the context.
 *
 * A closed context remains a context with an error that says so: calls on it do nothing. A context
 * opened later reuses its handle after at least 64 others were closed. The 2 KiB of each context
 * come from the C library, not from the allocator of co_options, and are kept for later contexts.
 *
 * Scope:    collective over processes if it closes the last handle of a strategy of several
 *           processes.
 * Context:  any, even with an error; not inside a step.
 * Blocks:   until the threads of the runtime have ended; up to 5 seconds for a process that no
 *           longer answers.
 * Returns:  CO_OK, or the code of an error that was never cleared, after reporting it in the log;
 *           CO_RUNTIME_ERROR for a context that is already closed.
 */
CO_API co_code co_close(co_context *ctx);

/** Open a block. Every begin needs its end. */
CO_API void co_block_begin(co_context *ctx);
/**
 * End the innermost block: what was made in it dies, a tape opened in it is dropped.
 *
 * Scope:    this context.
 * Context:  any, even with an error.
 * Blocks:   if a prefetching iterator dies: until each of its threads has finished its current call
 *           or read. If a strategy dies: until its threads have ended, and with several processes
 *           like co_close.
 * Returns:  nothing; CO_RUNTIME_ERROR without an open block, and in a function that a call on ctx
 *           has called, which does not end the blocks of its caller.
 */
CO_API void co_block_end(co_context *ctx);
/**
 * A block as a statement. It ends however its body is left: at its end, by `continue`, `break`,
 * `goto` or `return` (see COHORT_NO_CLEANUP for compilers where the last two need a block around
 * it). What it made is gone then, also what is returned from inside: co_escape or co_keep that. A
 * `break` or `continue` in its body leaves the block, not a loop around it.
 */
#define CO_BLOCK(ctx) CO_STATEMENT(co_statement_block(ctx))
/** For the macros: begin a block, and end it and begin the next one. */
CO_API co_statement co_statement_block(co_context *ctx);
CO_API void         co_statement_again(co_context *ctx, co_statement *statement);

/** Keep a handle (value, strategy, dataset, iterator, optimizer) alive after its block, until
 * co_release. Closing the last context of the runtime releases it too, and logs a warning. NULL is
 * an error. */
CO_API void co_keep(co_context *ctx, const void *handle);
/**
 * Release a kept handle, once for each co_keep, in any context of the runtime. A handle that a
 * block still owns stays alive until the block ends. NULL is allowed.
 *
 * Scope:    this process.
 * Context:  any, even with an error.
 * Blocks:   if the handle dies, as co_block_end does.
 * Returns:  nothing; without a matching co_keep it records CO_RUNTIME_ERROR, and nothing changes.
 */
CO_API void co_release(co_context *ctx, const void *handle);
/** Hand a value made in the current block to the block around it; returns value. */
CO_API co_value *co_escape(co_context *ctx, co_value *value);

/** Whatever the caller wants to find again through the context (a binding's object, say). */
CO_API void  co_set_user(co_context *ctx, void *user);
CO_API void *co_user(const co_context *ctx);

/** Memory of the runtime as the library sees it. */
typedef struct co_memory_stats {
    size_t  struct_size;
    int64_t bytes_in_use; /* held by the library now, pools included */
    int64_t peak_bytes;
    int64_t system_allocations; /* how often the allocator was asked so far */
    int64_t live_values;        /* handles alive in all contexts */
} co_memory_stats;
#define CO_MEMORY_STATS_INIT                                                                       \
    {                                                                                              \
        sizeof(co_memory_stats), 0, 0, 0, 0                                                        \
    }
/** Fill as many bytes of `stats` as its struct_size says; zeros for a NULL context. */
CO_API void co_get_memory_stats(const co_context *ctx, co_memory_stats *stats);

/** Called for every setting: its name, text value, where it came from and its line of help. */
typedef void (*co_setting_fn)(const char *name, const char *value, const char *source,
                              const char *help, void *user);
/** Visit all settings of the runtime, in the order of their table. */
CO_API void co_settings_visit(const co_context *ctx, co_setting_fn fn, void *user);
/** Called for every build fact: "oneDNN" "2.6.3", "compiler" "gcc 12.2", ... */
typedef void (*co_fact_fn)(const char *name, const char *text, void *user);
CO_API void co_build_visit(co_fact_fn fn, void *user);

CO_EXTERN_C_END

#endif
