/* SPDX-License-Identifier: Apache-2.0 */
/* See captured.h. */
#include "captured.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A child process runs one case at a time; replicas of the case are threads. */
static struct {
    bool              is_on, captures;
    co_function      *next, *optional; /* kept */
    pthread_mutex_t   lock;            /* of what follows */
    golden_run_record record;
} run = { .lock = PTHREAD_MUTEX_INITIALIZER };

void
golden_begin_run(bool captures, bool lies)
{
    run.is_on = true;
    run.captures = captures;
    run.next = run.optional = NULL;
    memset(&run.record, 0, sizeof(run.record));
    run.record.bits = lies;
}

void
golden_end_run(co_context *ctx)
{
    if (run.next != NULL)
        co_release(ctx, run.next);
    if (run.optional != NULL)
        co_release(ctx, run.optional);
    run.next = run.optional = NULL;
    run.is_on = run.captures = false;
}

golden_run_record
golden_run_so_far(void)
{
    return run.record;
}

bool
golden_captures(void)
{
    return run.is_on && run.captures;
}

void
golden_no_meaning(const char *why)
{
    pthread_mutex_lock(&run.lock);
    if (run.is_on && run.record.no_meaning[0] == '\0')
        snprintf(run.record.no_meaning, sizeof(run.record.no_meaning), "%s", why);
    pthread_mutex_unlock(&run.lock);
}

/* --- bits --- */

static uint64_t
hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < n; ++i)
        hash = (hash ^ at[i]) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

static uint64_t
hash_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text));
}

static uint64_t
hash_tensor(co_context *ctx, uint64_t hash, co_value *tensor)
{
    co_dtype    dtype = co_value_dtype(ctx, tensor);
    int         ndim = co_value_ndim(ctx, tensor);
    int64_t     n = co_value_num_elements(ctx, tensor);
    const void *data;
    char        text[2000];

    hash = hash_text(hash, co_dtype_name(dtype));
    for (int i = 0; i < ndim; ++i) {
        int64_t dim = co_value_dim(ctx, tensor, i);

        hash = hash_bytes(hash, &dim, sizeof(dim));
    }
    if (dtype == CO_STRING) {
        co_format(ctx, tensor, text, sizeof(text));
        return hash_text(hash, text);
    }
    data = n > 0 ? co_value_data(ctx, tensor) : NULL;
    return data != NULL ? hash_bytes(hash, data, (size_t)n * co_dtype_size(dtype)) : hash;
}

static uint64_t
hash_value(co_context *ctx, uint64_t hash, co_value *value)
{
    co_kind kind = co_value_kind(value);
    char    text[300];
    size_t  n;

    switch (kind) {
    case CO_KIND_TENSOR: return hash_tensor(ctx, hash, value);
    case CO_KIND_SLICES:
        hash = hash_tensor(ctx, hash, co_slices_values(ctx, value));
        return hash_tensor(ctx, hash, co_slices_indices(ctx, value));
    case CO_KIND_LIST:
    case CO_KIND_TUPLE:
    case CO_KIND_NAMED_TUPLE:
    case CO_KIND_DICT:
    case CO_KIND_PER_REPLICA:
    case CO_KIND_MIRRORED: break;
    case CO_KIND_VARIABLE: return hash_text(hash, "variable");
    default: co_format(ctx, value, text, sizeof(text)); return hash_text(hash, text);
    }
    hash = hash_text(hash, co_kind_name(kind));
    n = co_num_items(ctx, value);
    for (size_t i = 0; i < n; ++i)
        hash = hash_value(ctx, hash, co_at(ctx, value, i));
    return hash;
}

/* Note the result of a call; where there is an error the kinds of errors are compared, not bits. */
static co_value *
note(co_context *ctx, co_value *result)
{
    uint64_t hash = 0xcbf29ce484222325u;

    if (!run.is_on)
        return result;
    if (result != NULL && co_ok(ctx))
        hash = hash_value(ctx, hash, result);
    pthread_mutex_lock(&run.lock);
    ++run.record.calls;
    run.record.bits += hash;
    pthread_mutex_unlock(&run.lock);
    return result;
}

/* --- calls --- */

static co_value *
call(co_context *ctx, co_fn fn, co_value *args, void *user)
{
    co_function *function;

    if (!golden_captures())
        return fn(ctx, args, user);
    function = co_function_of(ctx, fn, user, NULL);
    return function != NULL ? co_call(ctx, function, args) : NULL;
}

co_value *
golden_in_function(co_context *ctx, co_fn fn, co_value *args, void *user)
{
    return note(ctx, call(ctx, fn, args, user));
}

co_value *
golden_function_in_step(co_context *ctx, co_fn fn, co_value *args, void *user)
{
    return note(ctx, call(ctx, fn, args, user));
}

typedef struct step {
    co_strategy *strategy;
    co_fn        fn;
    void        *user;
} step;

static co_value *
run_step(co_context *ctx, co_value *args, void *user)
{
    const step *s = user;

    return co_run(ctx, s->strategy, s->fn, args, s->user);
}

co_value *
golden_run_in_function(co_context *ctx, co_strategy *strategy, co_fn fn, co_value *args, void *user)
{
    step s = { strategy, fn, user };

    return golden_in_function(ctx, run_step, args, &s);
}

/* --- iterators --- */

static co_value *
take_next(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_get_next(ctx, co_value_iterator(ctx, co_at(ctx, args, 0)));
}

static co_value *
take_optional(co_context *ctx, co_value *args, void *user)
{
    (void)user;
    return co_get_next_as_optional(ctx, co_value_iterator(ctx, co_at(ctx, args, 0)));
}

/* Elements with datasets in them are no tensors, so that no function can take them. */
static bool
holds_datasets(co_context *ctx, co_value *spec)
{
    co_kind kind = co_value_kind(spec);
    size_t  n;

    if (kind == CO_KIND_SPEC)
        return co_value_dtype(ctx, spec) == CO_DTYPE_NONE;
    n = kind == CO_KIND_NONE ? 0 : co_num_items(ctx, spec);
    for (size_t i = 0; i < n; ++i)
        if (holds_datasets(ctx, co_at(ctx, spec, i)))
            return true;
    return false;
}

static bool
is_taken_by_function(co_context *ctx, co_iterator *it)
{
    if (!golden_captures() || it == NULL || !co_ok(ctx))
        return false;
    if (!holds_datasets(ctx, co_iterator_element_spec(ctx, it)))
        return true;
    golden_no_meaning("elements that are datasets");
    return false;
}

static co_value *
take(co_context *ctx, co_iterator *it, co_fn fn, co_function **function)
{
    if (*function == NULL) {
        *function = co_function_of(ctx, fn, NULL, NULL);
        if (*function == NULL)
            return NULL;
        co_keep(ctx, *function);
    }
    return co_call(ctx, *function, co_args(ctx, co_iterator_value(ctx, it)));
}

co_value *
golden_get_next(co_context *ctx, co_iterator *it)
{
    return note(ctx, is_taken_by_function(ctx, it) ? take(ctx, it, take_next, &run.next)
                                                   : co_get_next(ctx, it));
}

/* In a function the end of input is an error, which is the end here. */
co_value *
golden_next(co_context *ctx, co_iterator *it)
{
    co_value *element;

    if (!is_taken_by_function(ctx, it))
        return note(ctx, co_next(ctx, it));
    element = take(ctx, it, take_next, &run.next);
    if (co_error(ctx)->code == CO_OUT_OF_RANGE &&
        strstr(co_error(ctx)->message, "end of input") != NULL)
        co_clear(ctx);
    return note(ctx, element);
}

co_value *
golden_next_as_optional(co_context *ctx, co_iterator *it)
{
    return note(ctx, is_taken_by_function(ctx, it) ? take(ctx, it, take_optional, &run.optional)
                                                   : co_get_next_as_optional(ctx, it));
}
