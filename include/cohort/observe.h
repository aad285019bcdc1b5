/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching what runs. Everything that computes tensors or changes state is an entry of the operator
 * table and starts in one place: kernels of operators, reads and assignments of variables, updates
 * of optimizers, collectives, the next element of an iterator, tensors of the user's data, copies
 * between devices. An observer is called before and after each start. Profilers, traces and tests
 * are attached here. Without an observer a start costs the test of one flag.
 *
 *     static void
 *     count(const co_observation *seen, void *user)
 *     {
 *         if (seen->phase == CO_OBSERVE_END)
 *             atomic_fetch_add((atomic_long *)user, 1);
 *     }
 *
 *     co_observer *observer = co_observe(ctx, count, &starts);
 *     ...
 *     co_unobserve(ctx, observer);
 *
 * An observer sees all contexts of the runtime, the replicas of a step included, and is called on
 * the thread that runs the entry: from several threads at once if several replicas run. An entry
 * that consists of others (an assignment to a mirrored variable, a composite operator) shows its
 * parts; an entry with a `depth` above 0 runs inside another entry. Entries that run while locks of
 * variables are held are not shown, so an observer may read any variable.
 *
 * An observer may use the library on its own contexts, each by one thread at a time. No observer of
 * the runtime sees the entries that it starts: those on a thread that is inside an observer, and
 * those of the replicas of a run and the workers of a dataset that began there.
 *
 *     static void
 *     watch(const co_observation *seen, void *user)
 *     {
 *         watcher *w = user;
 *
 *         if (seen->phase != CO_OBSERVE_END || (seen->writes & CO_RESOURCE_VARIABLE) == 0)
 *             return;
 *         pthread_mutex_lock(&w->lock);
 *         CO_BLOCK(w->own)
 *             w->sum += co_item_float(w->own, co_variable_read(w->own, w->variable));
 *         pthread_mutex_unlock(&w->lock);
 *     }
 *
 *     w.own = co_open_beside(ctx);
 *     co_observer *observer = co_observe(ctx, watch, &w);
 *
 * An observer must not use the context that it observes: calls on it do nothing, and its co_error
 * says so. The observed entry and the calls after it continue, because in a step the other replicas
 * continue too. The misuse becomes an error, CO_RUNTIME_ERROR with the line of the observer, at the
 * next co_ok, co_error or co_close of the observed context; misuse in a replica becomes an error of
 * the context that called run. If a call has failed, its error is kept instead.
 */
#ifndef COHORT_OBSERVE_H
#define COHORT_OBSERVE_H

#include <cohort/error.h>
#include <cohort/value.h>

CO_EXTERN_C_BEGIN

/** What an entry acts on besides its operands; bits of co_op_info and co_observation. */
typedef enum co_resource {
    CO_RESOURCE_NONE = 0,
    CO_RESOURCE_VARIABLE = 1, /* the tensor that a variable holds */
    CO_RESOURCE_RANDOM = 2,   /* the counter of a random generator */
    CO_RESOURCE_ITERATOR = 4, /* how far an iterator has come */
    CO_RESOURCE_REPLICAS = 8, /* the other replicas of a step: a rendezvous */
    CO_RESOURCE_WORKERS = 16  /* the other processes: messages */
} co_resource;

typedef enum co_observe_phase { CO_OBSERVE_BEGIN = 0, CO_OBSERVE_END = 1 } co_observe_phase;

/** A tensor as an observer sees it. */
typedef struct co_observed_tensor {
    co_dtype       dtype;
    int            ndim;
    const int64_t *dims; /* ndim of them */
    size_t         nbytes;
    const char    *device; /* where it is */
} co_observed_tensor;

/** One start. All pointers are lent for the duration of the call. Fields are only ever appended. */
typedef struct co_observation {
    size_t           struct_size;
    co_observe_phase phase;
    uint64_t         id;      /* the same for the begin and the end of a start, unique in the runtime */
    const char      *op;      /* the entry of the table: "matmul", "assign_variable" */
    const char      *call;    /* the public call that is being made: "minimize" */
    const char      *file;    /* its line; NULL when not known */
    int              line;
    const char      *device;  /* canonical name; NULL where none is chosen */
    const char      *kernel;  /* "v3" (AVX2), "reference", "view", "composite", a backend; NULL: none */
    int              replica; /* in the sync group; -1 outside a step */
    int              depth;   /* entries of this context that this one runs inside */
    unsigned         reads, writes; /* bits of co_resource */
    /** All tensors; only the first 16 if there is no memory to describe more. At the begin, outputs
     * of kernels have shapes but no data, and effects have no outputs yet. */
    size_t                    num_inputs, num_outputs;
    const co_observed_tensor *inputs, *outputs;
    /** Which variables or iterators, as handles that identify them and are not to be released. */
    size_t             num_resources;
    const void *const *resources;
    size_t             nbytes; /* of all inputs and outputs together */
    int64_t            ns;     /* at the end: how long it took */
    co_code            code;   /* at the end: how it ended */
    const void        *context; /* that started it; the handle must not be used */
} co_observation;

typedef void (*co_observe_fn)(const co_observation *seen, void *user);
typedef struct co_observer co_observer;

/**
 * Begin to observe the runtime of ctx.
 *
 * Scope:    all contexts of the runtime, those that are opened later included.
 * Context:  any.
 * Blocks:   no.
 * Returns:  the observer, which lives until co_unobserve or the end of the runtime; NULL with
 *           CO_INVALID_ARGUMENT (no function) or CO_RESOURCE_EXHAUSTED (there are 8 already).
 */
CO_API co_observer *co_observe(co_context *ctx, co_observe_fn fn, void *user);
/**
 * Stop. When it returns, the function is no longer called and no call of it is running.
 *
 * Scope:    all contexts of the runtime.
 * Context:  any, outside the function itself.
 * Blocks:   while other threads are inside the function; CO_DEADLINE_EXCEEDED after five seconds,
 *           which happens if the function itself calls this. The function is then no longer called,
 *           and calling this again waits again.
 * Returns:  CO_OK, or CO_INVALID_ARGUMENT if it is not an observer of this runtime.
 */
CO_API co_code co_unobserve(co_context *ctx, co_observer *observer);

CO_EXTERN_C_END

#endif
