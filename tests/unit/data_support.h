/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the data tests share: pipelines and their elements as text, in the notation of the
 * specification, so that its examples can stand in tables.
 *
 *     data_pipeline(ctx, "range(10).batch(4).repeat(2)")
 *     data_elements(ctx, dataset, 40, text)    ->  "[0,1,2,3] [4,5,6,7] [8,9]"
 *
 * A per-replica value is {[0,1],[2,3]}, a tuple (a,b), a map (x:a,y:b), a scalar 3, a spec
 * int64[-1,3].
 */
#ifndef COHORT_DATA_SUPPORT_H
#define COHORT_DATA_SUPPORT_H

#include "test.h"

#include <stdarg.h>

#define DATA_TEXT 4000

#if defined(__SANITIZE_ADDRESS__)
#define DATA_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DATA_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef DATA_ADDRESS_SANITIZER
#define DATA_ADDRESS_SANITIZER 0
#endif

typedef struct data_out {
    char  *text;
    size_t at;
} data_out;

static inline void
data_put(data_out *out, const char *format, ...)
{
    va_list args;
    int     length;

    va_start(args, format);
    length = vsnprintf(out->text + out->at, DATA_TEXT - out->at, format, args);
    va_end(args);
    out->at += (size_t)length;
    if (out->at >= DATA_TEXT)
        out->at = DATA_TEXT - 1;
}

static inline void
data_put_number(co_context *ctx, co_value *value, int64_t i, data_out *out)
{
    co_dtype dtype = co_value_dtype(ctx, value);
    int64_t  n = co_value_num_elements(ctx, value);

    if (dtype == CO_STRING) {
        data_put(out, "'%s'", co_string_at(ctx, value, i, NULL));
    } else if (co_dtype_is_floating(dtype)) {
        double *all = malloc((size_t)n * sizeof(*all));

        co_value_copy_data(ctx, value, CO_FLOAT64, all, n);
        data_put(out, "%g", all[i]);
        free(all);
    } else {
        int64_t *all = malloc((size_t)n * sizeof(*all));

        co_value_copy_data(ctx, value, CO_INT64, all, n);
        data_put(out, "%lld", (long long)all[i]);
        free(all);
    }
}

static inline void
data_put_tensor(co_context *ctx, co_value *value, int axis, int64_t offset, data_out *out)
{
    int64_t inner = 1;

    if (axis == co_value_ndim(ctx, value)) {
        data_put_number(ctx, value, offset, out);
        return;
    }
    for (int i = axis + 1; i < co_value_ndim(ctx, value); ++i)
        inner *= co_value_dim(ctx, value, i);
    data_put(out, "[");
    for (int64_t i = 0; i < co_value_dim(ctx, value, axis); ++i) {
        data_put(out, i > 0 ? "," : "");
        data_put_tensor(ctx, value, axis + 1, offset + i * inner, out);
    }
    data_put(out, "]");
}

static inline void
data_put_spec(co_context *ctx, co_value *spec, data_out *out)
{
    data_put(out, "%s[", co_dtype_name(co_value_dtype(ctx, spec)));
    for (int i = 0; i < co_value_ndim(ctx, spec); ++i)
        data_put(out, "%s%lld", i > 0 ? "," : "", (long long)co_value_dim(ctx, spec, i));
    data_put(out, "]");
}

static inline void
data_put_value(co_context *ctx, co_value *value, data_out *out)
{
    co_kind kind = co_value_kind(value);
    bool    bundle = kind == CO_KIND_PER_REPLICA;

    if (kind == CO_KIND_TENSOR) {
        data_put_tensor(ctx, value, 0, 0, out);
    } else if (kind == CO_KIND_SPEC) {
        data_put_spec(ctx, value, out);
    } else {
        data_put(out, bundle ? "{" : "(");
        for (size_t i = 0; i < co_num_items(ctx, value); ++i) {
            data_put(out, i > 0 ? "," : "");
            if (kind == CO_KIND_DICT)
                data_put(out, "%s:", co_key(ctx, value, i));
            data_put_value(ctx, co_at(ctx, value, i), out);
        }
        data_put(out, bundle ? "}" : ")");
    }
}

static inline const char *
data_text(co_context *ctx, co_value *value, char *text)
{
    data_out out = { text, 0 };

    text[0] = '\0';
    data_put_value(ctx, value, &out);
    return text;
}

/* The rest of an iterator, at most `max` elements; "..." if there are more. */
static inline const char *
data_rest(co_context *ctx, co_iterator *iterator, int max, char *text)
{
    data_out  out = { text, 0 };
    co_value *element;
    int       count = 0;

    text[0] = '\0';
    for (bool more = true; more;)
        CO_BLOCK(ctx) {
            element = co_next(ctx, iterator);
            more = element != NULL && count++ < max;
            if (element != NULL)
                data_put(&out, out.at > 0 ? " " : "");
            if (more)
                data_put_value(ctx, element, &out);
            else if (element != NULL)
                data_put(&out, "...");
        }
    return text;
}

static inline const char *
data_elements(co_context *ctx, co_dataset *dataset, int max, char *text)
{
    return data_rest(ctx, co_iterate(ctx, dataset), max, text);
}

static inline co_value *
data_double(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_mul(ctx, x, co_int(ctx, 2));
}

static inline bool
data_even(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_item_int(ctx, x) % 2 == 0;
}

static inline bool
data_below5(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_item_int(ctx, x) < 5;
}

/* Stages that work on one input, functions included: double, even, below5. NULL: there is no
 * such. */
static inline co_dataset *
data_stage(co_context *ctx, co_dataset *input, const char *name, const long long *args)
{
    if (strcmp(name, "skip") == 0)
        return co_dataset_skip(ctx, input, args[0]);
    if (strcmp(name, "enumerate") == 0)
        return co_dataset_enumerate(ctx, input, args[0]);
    if (strcmp(name, "cache") == 0)
        return co_dataset_cache(ctx, input);
    if (strcmp(name, "prefetch") == 0)
        return co_dataset_prefetch(ctx, input, args[0]);
    if (strcmp(name, "double") == 0)
        return co_dataset_map(ctx, input, data_double, NULL, NULL);
    if (strcmp(name, "even") == 0)
        return co_dataset_filter(ctx, input, data_even, NULL);
    if (strcmp(name, "below5") == 0)
        return co_dataset_take_while(ctx, input, data_below5, NULL);
    return NULL;
}

/* One step of a pipeline: its name and up to three numbers. */
static inline co_dataset *
data_step(co_context *ctx, co_dataset *input, const char *name, const long long *args, int n)
{
    static const struct {
        const char  *name;
        co_autoshard policy;
    } policies[] = { { "OFF", CO_AUTOSHARD_OFF },   { "AUTO", CO_AUTOSHARD_AUTO },
                     { "FILE", CO_AUTOSHARD_FILE }, { "DATA", CO_AUTOSHARD_DATA },
                     { "HINT", CO_AUTOSHARD_HINT }, { "REPLICA", CO_AUTOSHARD_REPLICA } };
    int64_t     sizes[3] = { args[0], args[1], args[2] };
    co_dataset *stage = data_stage(ctx, input, name, args);

    if (stage != NULL || !co_ok(ctx))
        return stage;
    if (strcmp(name, "range") == 0)
        return co_dataset_range(ctx, n > 1 ? args[0] : 0, n > 1 ? args[1] : args[0],
                                n > 2 ? args[2] : 1);
    if (strcmp(name, "batch") == 0)
        return co_dataset_batch(ctx, input, args[0], false);
    if (strcmp(name, "batch_drop") == 0)
        return co_dataset_batch(ctx, input, args[0], true);
    if (strcmp(name, "rebatch") == 0)
        return co_dataset_rebatch(ctx, input, sizes, (size_t)n, false);
    if (strcmp(name, "rebatch_drop") == 0)
        return co_dataset_rebatch(ctx, input, sizes, (size_t)n, true);
    if (strcmp(name, "repeat") == 0)
        return co_dataset_repeat(ctx, input, n > 0 ? args[0] : -1);
    if (strcmp(name, "take") == 0)
        return co_dataset_take(ctx, input, args[0]);
    if (strcmp(name, "shard") == 0)
        return co_dataset_shard(ctx, input, n > 0 ? args[0] : CO_SHARD_HINT,
                                n > 0 ? args[1] : CO_SHARD_HINT);
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); ++i)
        if (strcmp(name, policies[i].name) == 0)
            return co_dataset_with_autoshard(ctx, input, policies[i].policy);
    test_fail(TEST_AT, "no pipeline step '%s'", name);
    test_end();
}

/* "range(10).batch(4).OFF": steps joined by dots, numbers in parentheses. */
static inline co_dataset *
data_pipeline(co_context *ctx, const char *text)
{
    co_dataset *dataset = NULL;

    while (*text != '\0') {
        char      name[32];
        long long args[3] = { 0, 0, 0 };
        int       n = 0;
        size_t    length = strcspn(text, ".(");

        snprintf(name, sizeof(name), "%.*s", (int)length, text);
        text += length;
        if (*text == '(') {
            ++text;
            while (*text != ')') {
                char *end;

                args[n++] = strtoll(text, &end, 10);
                text = *end == ',' ? end + 1 : end;
            }
            ++text;
        }
        text += *text == '.';
        dataset = data_step(ctx, dataset, name, args, n);
    }
    return dataset;
}

#endif
