/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions: which entries are right. Entries have alternatives (other kinds of errors, another
 * result, fewer captures than recorded), so they are not compared as trees.
 */
#include "functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- values --- */

static bool
is_zeros(const json_t *tensor)
{
    size_t  i;
    json_t *item;

    json_array_foreach(json_object_get(tensor, "data"), i, item)
    {
        if (!json_is_number(item) || json_number_value(item) != 0.0)
            return false;
    }
    return golden_is_tensor(tensor);
}

/* The tensor that a host value becomes; NULL: it is none. */
static json_t *
tensor_of_host(json_t *host)
{
    static const char *const dtypes[][2] = {
        { "int", "int32" }, { "float", "float32" }, { "bool", "bool" }, { "str", "string" }
    };

    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); ++i) {
        json_t *value = json_object_get(host, dtypes[i][0]);

        if (value == NULL)
            continue;
        value = json_is_boolean(value) ? json_integer(json_is_true(value)) : json_incref(value);
        return json_pack("{s:s, s:[], s:[o]}", "dtype", dtypes[i][1], "shape", "data", value);
    }
    return NULL;
}

/* One tensor for the components of a mirrored value that are equal; NULL: they are not. */
static json_t *
one_of_mirrored(json_t *parts)
{
    for (size_t i = 1; i < json_array_size(parts); ++i)
        if (!json_equal(json_array_get(parts, 0), json_array_get(parts, i)))
            return NULL;
    return json_incref(json_array_get(parts, 0));
}

static json_t *align(json_t *seen, json_t *expected, bool zeros);

static json_t *
align_list(json_t *seen, json_t *expected, bool zeros)
{
    json_t *list = json_array();
    size_t  i;
    json_t *item;

    json_array_foreach(seen, i, item)
    {
        json_array_append_new(list, align(item, json_array_get(expected, i), zeros));
    }
    return list;
}

static json_t *
align_object(json_t *seen, json_t *expected, bool zeros)
{
    json_t     *object = json_object();
    const char *key;
    json_t     *item;

    json_object_foreach(seen, key, item)
    {
        json_object_set_new(object, key, align(item, json_object_get(expected, key), zeros));
    }
    return object;
}

/* An optional is a tuple of no or one value. */
static json_t *
optional_of(json_t *tuple)
{
    if (json_array_size(tuple) == 0)
        return json_pack("{s:n}", "optional");
    return json_pack("{s:{s:O}}", "optional", "value", json_array_get(tuple, 0));
}

static json_t *
align_with_tensor(json_t *seen, json_t *expected, bool zeros)
{
    json_t *one;

    if ((one = tensor_of_host(seen)) != NULL)
        return one;
    if (json_is_array(json_object_get(seen, "mirrored")) &&
        (one = one_of_mirrored(json_object_get(seen, "mirrored"))) != NULL)
        return one;
    if (zeros && json_is_null(seen) && is_zeros(expected))
        return json_incref(expected);
    return json_incref(seen);
}

/* What was seen in the form of what is expected, where both are right: a new reference. */
static json_t *
align(json_t *seen, json_t *expected, bool zeros)
{
    json_t *mirrored = json_object_get(seen, "mirrored"), *made, *result;

    if (golden_is_tensor(expected))
        return align_with_tensor(seen, expected, zeros);
    if (zeros && json_is_null(expected) && is_zeros(seen))
        return json_null();
    if (json_object_get(expected, "per_replica") != NULL && mirrored != NULL) {
        made = json_pack("{s:O}", "per_replica", mirrored);
        result = align_object(made, expected, zeros);
        json_decref(made);
        return result;
    }
    if (json_object_get(expected, "optional") != NULL && json_object_get(seen, "tuple") != NULL)
        return optional_of(json_object_get(seen, "tuple"));
    if (json_is_array(seen) && json_is_array(expected))
        return align_list(seen, expected, zeros);
    if (json_is_object(seen) && json_is_object(expected) && !golden_is_tensor(seen))
        return align_object(seen, expected, zeros);
    return json_incref(seen);
}

/* Like golden_same without a verdict; the reason goes to `why`, if it is not NULL. */
static bool
is_same(const char *path, json_t *seen, json_t *expected, bool zeros, char *why)
{
    golden_case          trial = { .family = "functions" };
    const golden_compare how = { &trial, false, false };
    json_t              *aligned = align(seen, expected, zeros);
    bool                 same = golden_same(&how, path, aligned, expected);

    json_decref(aligned);
    if (why != NULL)
        snprintf(why, GOLDEN_REASON_MAX, "%s", trial.reason);
    return same;
}

/* --- gradients --- */

static bool
contains_action(json_t *json, const char *const *names)
{
    const char *key, *name = json_string_value(json_object_get(json, "do"));
    size_t      i;
    json_t     *item;

    for (i = 0; name != NULL && names[i] != NULL; ++i)
        if (strcmp(names[i], name) == 0)
            return true;
    json_array_foreach(json, i, item)
    {
        if (contains_action(item, names))
            return true;
    }
    json_object_foreach(json, key, item)
    {
        if (contains_action(item, names))
            return true;
    }
    return false;
}

/* Whether a function call or a branch lies between a target and a source somewhere: then zeros and
 * "not connected" are equally right (FN-14). */
static bool
has_indirect_gradient(json_t *json)
{
    static const char *const between[] = { "call",   "cond", "switch_case", "case",  "while",
                                           "map_fn", "scan", "foldl",       "foldr", NULL };
    const char              *key, *name = json_string_value(json_object_get(json, "do"));
    size_t                   i;
    json_t                  *item;

    if (name != NULL && strcmp(name, "tape") == 0 &&
        contains_action(json_object_get(json, "body"), between))
        return true;
    json_array_foreach(json, i, item)
    {
        if (has_indirect_gradient(item))
            return true;
    }
    json_object_foreach(json, key, item)
    {
        if (has_indirect_gradient(item))
            return true;
    }
    return false;
}

/* --- entries --- */

static bool
is_listed(json_t *kinds, const char *kind)
{
    size_t  i;
    json_t *item;

    json_array_foreach(kinds, i, item)
    {
        if (strcmp(json_string_value(item), kind) == 0)
            return true;
    }
    return false;
}

static bool
is_right_error(json_t *expected, const char *kind)
{
    json_t     *error = json_object_get(expected, "error");
    const char *wanted = json_string_value(json_object_get(error, "kind"));

    if (is_listed(json_object_get(expected, "or_error"), kind))
        return true;
    if (!json_is_object(error))
        return false;
    return json_is_true(json_object_get(error, "quirk")) ||
           (wanted != NULL && strcmp(wanted, kind) == 0) ||
           is_listed(json_object_get(error, "also"), kind);
}

static void
judge_error(golden_case *c, const char *path, json_t *seen, json_t *expected)
{
    json_t     *error = json_object_get(seen, "error");
    json_t     *wanted = json_object_get(expected, "error");
    const char *kind = json_string_value(json_object_get(error, "kind"));
    const char *message = json_string_value(json_object_get(error, "message"));

    if (kind != NULL && is_right_error(expected, kind))
        return;
    if (json_is_object(wanted))
        golden_fail(c, "%s failed with %s (%s), expected kind %s", path, kind ? kind : "?",
                    message ? message : "?", json_string_value(json_object_get(wanted, "kind")));
    else
        golden_fail(c, "%s failed with %s (%s)", path, kind ? kind : "?", message ? message : "?");
}

/* True: as recorded. False: another way that is right too, or wrong. */
static bool
judge_result(golden_case *c, const char *path, json_t *seen, json_t *expected)
{
    json_t *result = json_object_get(seen, "result");
    json_t *wanted = json_object_get(expected, "result");
    json_t *other = json_object_get(expected, "or_result");
    bool    zeros = has_indirect_gradient(json_object_get(c->attrs, "steps"));
    char    why[GOLDEN_REASON_MAX];

    if (json_is_object(json_object_get(seen, "error"))) {
        judge_error(c, path, seen, expected);
        return json_is_object(json_object_get(expected, "error"));
    }
    if (other != NULL && is_same(path, result, other, zeros, NULL))
        return false;
    if (json_is_object(json_object_get(expected, "error"))) {
        golden_fail(c, "%s succeeded, expected an error of kind %s", path,
                    json_string_value(json_object_get(json_object_get(expected, "error"), "kind")));
        return false;
    }
    if (json_is_array(wanted)) {
        golden_judge_entries(c, path, result, wanted);
        return true;
    }
    if (!is_same(path, result, wanted, zeros, why))
        golden_fail(c, "%s", why);
    return true;
}

/* Functions of datasets run on the host: where the case runs on other devices, they are captured
 * there too, which the recording, on one CPU, does not know. */
static bool
captures_are_recorded(void)
{
    return strstr(golden_device(0), "cpu") != NULL || strstr(golden_device(0), "CPU") != NULL;
}

/* Recorded counts are upper bounds (FN-2). True: there were fewer captures than recorded. */
static bool
judge_traces(golden_case *c, const char *path, json_t *seen, json_t *expected)
{
    json_t     *counts = json_object_get(seen, "traces"), *item;
    const char *key;
    bool        is_fewer = false;

    json_object_foreach(json_object_get(expected, "traces"), key, item)
    {
        json_int_t n = json_integer_value(json_object_get(counts, key));

        if (n > json_integer_value(item) && captures_are_recorded())
            golden_fail(c, "%s: '%s' was captured %lld times, expected at most %lld", path, key,
                        (long long)n, (long long)json_integer_value(item));
        if (n < json_integer_value(item))
            is_fewer = true;
    }
    return is_fewer;
}

/* The first note that is equal is taken away. */
static bool
take_note(json_t *notes, json_t *expected)
{
    size_t  i;
    json_t *item;

    json_array_foreach(notes, i, item)
    {
        if (is_same("note", item, expected, false, NULL)) {
            json_array_remove(notes, i);
            return true;
        }
    }
    return false;
}

/* Notes as a multiset. Where there were fewer captures, some of them are missing. */
static void
judge_notes(golden_case *c, const char *path, json_t *seen, json_t *expected, bool is_fewer)
{
    json_t *notes = json_copy(json_object_get(seen, "notes"));
    json_t *wanted = json_object_get(expected, "notes"), *item;
    size_t  i, missing = 0;
    char   *text;

    json_array_foreach(wanted, i, item)
    {
        if (!take_note(notes, item))
            ++missing;
    }
    if ((json_array_size(notes) > 0 && captures_are_recorded()) || (missing > 0 && !is_fewer)) {
        text = json_dumps(notes, JSON_COMPACT);
        golden_fail(c, "%s: of %zu notes %zu are missing, and these are not expected: %.300s", path,
                    json_array_size(wanted), missing, text != NULL ? text : "?");
        free(text);
    }
    json_decref(notes);
}

static void
judge_entry(golden_case *c, const char *path, json_t *seen, json_t *expected)
{
    bool is_fewer;

    if (json_is_true(json_object_get(expected, "info")))
        return;
    is_fewer = judge_traces(c, path, seen, expected);
    if (judge_result(c, path, seen, expected) && json_object_get(expected, "traces_info") == NULL)
        judge_notes(c, path, seen, expected, is_fewer);
}

void
golden_judge_entries(golden_case *c, const char *path, json_t *seen, json_t *expected)
{
    size_t  i;
    json_t *item;

    if (!json_is_array(seen) || json_array_size(seen) != json_array_size(expected)) {
        golden_fail(c, "%s has %zu entries, expected %zu", path, json_array_size(seen),
                    json_array_size(expected));
        return;
    }
    json_array_foreach(expected, i, item)
    {
        char inner[200];

        snprintf(inner, sizeof(inner), "%s[%zu]", path, i);
        judge_entry(c, inner, json_array_get(seen, i), item);
        if (c->is_failed)
            return;
    }
}
