/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two JSON trees: what was seen and what is expected. Tensors are compared with the tolerance of
 * their dtype, errors by kind, everything else exactly. The first difference is reported with its
 * path.
 */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_MAX_LENGTH 200

/* How far results may be apart: relative to the expected value plus absolute. The relative parts
 * are those that hold between TensorFlow's own execution modes (README of the data); the absolute
 * ones allow for sums that cancel. */
typedef struct tolerance {
    const char *dtype;
    double      relative;
    double      absolute;
} tolerance;
static const tolerance tolerances[] = {
    { "float64", 1e-12, 1e-14 },
    { "float32", 1e-5, 1e-6 },
    { "float16", 1e-3, 1e-3 },
    { "bfloat16", 1e-2, 1e-2 },
};

static const tolerance *
find_tolerance(const char *dtype)
{
    for (size_t i = 0; i < sizeof(tolerances) / sizeof(tolerances[0]); ++i)
        if (strcmp(tolerances[i].dtype, dtype) == 0)
            return &tolerances[i];
    return NULL;
}

/* JSON in one short line, for messages. */
static void
format_json(const json_t *json, char *out, size_t capacity)
{
    const int most = 160;
    char     *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);

    snprintf(out, capacity, "%.*s%s", most, text != NULL ? text : "?",
             text != NULL && strlen(text) > (size_t)most ? "..." : "");
    free(text);
}

static bool
differ(const golden_compare *how, const char *path, const json_t *seen, const json_t *expected)
{
    char a[180], b[180];

    format_json(seen, a, sizeof(a));
    format_json(expected, b, sizeof(b));
    golden_fail(how->c, "%s is %s, expected %s", path, a, b);
    return false;
}

/* A number of the recording: plain or "nan", "inf", "-inf". */
static bool
number_of(const json_t *json, double *out)
{
    const char *text = json_string_value(json);

    if (json_is_number(json))
        *out = json_number_value(json);
    else if (json_is_boolean(json))
        *out = json_is_true(json) ? 1.0 : 0.0;
    else if (text != NULL && strcmp(text, "nan") == 0)
        *out = (double)NAN;
    else if (text != NULL && strcmp(text, "inf") == 0)
        *out = (double)INFINITY;
    else if (text != NULL && strcmp(text, "-inf") == 0)
        *out = -(double)INFINITY;
    else
        return false;
    return true;
}

static bool
is_near(const golden_compare *how, const tolerance *limit, double seen, double expected)
{
    if (isnan(expected))
        return isnan(seen);
    if (isinf(expected) || isinf(seen))
        return seen == expected;
    if (expected == 0.0 && seen == 0.0 && how->signed_zeros)
        return signbit(seen) == signbit(expected);
    return fabs(seen - expected) <= limit->relative * fabs(expected) + limit->absolute;
}

/* One element of a tensor. Integers, bools and strings agree exactly. */
static bool
same_element(const golden_compare *how, const tolerance *limit, const json_t *seen,
             const json_t *expected)
{
    double a, b;

    if (limit != NULL)
        return number_of(seen, &a) && number_of(expected, &b) && is_near(how, limit, a, b);
    if (json_is_boolean(expected))
        return json_integer_value(seen) == (json_is_true(expected) ? 1 : 0);
    return json_equal(seen, expected) == 1;
}

static bool
same_tensor(const golden_compare *how, const char *path, const json_t *seen, const json_t *expected)
{
    json_t          *list = json_object_get(seen, "data");
    json_t          *wanted = json_object_get(expected, "data");
    const char      *dtype = json_string_value(json_object_get(expected, "dtype"));
    json_t          *own = json_object_get(how->c->json, "tolerance");
    const tolerance  of_case = { dtype, 0, json_number_value(own) };
    const tolerance *limit;

    if (dtype == NULL || !json_is_array(wanted)) {
        golden_fail(how->c, "%s: the expected tensor is malformed", path);
        return false;
    }
    if (!json_equal(json_object_get(seen, "dtype"), json_object_get(expected, "dtype")) ||
        !json_equal(json_object_get(seen, "shape"), json_object_get(expected, "shape")))
        return differ(how, path, seen, expected);
    if (json_array_size(list) != json_array_size(wanted))
        return differ(how, path, seen, expected);
    limit = find_tolerance(dtype);
    if (limit != NULL && json_is_number(own))
        limit = &of_case; /* the recording took a part of it in float32 */
    for (size_t i = 0; i < json_array_size(wanted); ++i) {
        json_t *a = json_array_get(list, i), *b = json_array_get(wanted, i);
        char    text[2][180];

        if (same_element(how, limit, a, b))
            continue;
        format_json(a, text[0], sizeof(text[0]));
        format_json(b, text[1], sizeof(text[1]));
        if (limit != NULL)
            golden_fail(how->c, "%s[%zu] is %s, expected %s (%s, tolerance %g relative + %g)", path,
                        i, text[0], text[1], dtype, limit->relative, limit->absolute);
        else
            golden_fail(how->c, "%s[%zu] is %s, expected %s (%s, exact)", path, i, text[0], text[1],
                        dtype);
        return false;
    }
    return true;
}

/* A host number is expected: a scalar tensor of that value is also right (S-REDUCE-25). */
static bool
same_number(const golden_compare *how, const char *path, const json_t *seen, const json_t *expected)
{
    static const tolerance exact = { "", 0.0, 0.0 };
    const tolerance       *limit = &exact;
    const json_t          *element = seen;
    double                 a, b;

    if (golden_is_tensor(seen)) {
        const char *dtype = json_string_value(json_object_get(seen, "dtype"));
        json_t     *list = json_object_get(seen, "data");

        if (json_array_size(json_object_get(seen, "shape")) != 0 || json_array_size(list) != 1)
            return differ(how, path, seen, expected);
        element = json_array_get(list, 0);
        if (dtype != NULL && find_tolerance(dtype) != NULL)
            limit = find_tolerance(dtype);
    }
    if (json_is_integer(expected) && json_is_integer(element)) {
        if (json_integer_value(element) != json_integer_value(expected))
            return differ(how, path, seen, expected);
        return true;
    }
    if (json_is_boolean(element) != json_is_boolean(expected) && !golden_is_tensor(seen))
        return differ(how, path, seen, expected);
    if (!number_of(element, &a) || !number_of(expected, &b) || json_is_string(element) ||
        !is_near(how, limit, a, b))
        return differ(how, path, seen, expected);
    return true;
}

/* The scalar tensor that a host number becomes is expected: the host number itself, handed back
 * unchanged, has the same value (S-REDUCE-24, S-REDUCE-25). */
static bool
is_unchanged_number(const golden_compare *how, const json_t *seen, const json_t *expected)
{
    const char *dtype = json_string_value(json_object_get(expected, "dtype"));

    return how->host_numbers && json_is_number(seen) && dtype != NULL &&
           strcmp(dtype, json_is_integer(seen) ? "int32" : "float32") == 0 &&
           json_array_size(json_object_get(expected, "shape")) == 0 &&
           json_array_size(json_object_get(expected, "data")) == 1;
}

/* Class names that mean the same in C (C-KIND-1). */
static const char *
canonical_class(const char *name)
{
    static const char *const same[][2] = {
        { "EagerTensor", "tensor" },    { "Tensor", "tensor" }, { "int", "tensor" },
        { "float", "tensor" },          { "bool", "tensor" },   { "str", "tensor" },
        { "SymbolicTensor", "tensor" },
    };

    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); ++i)
        if (strcmp(same[i][0], name) == 0)
            return same[i][1];
    return name;
}

static bool
same_string(const golden_compare *how, const char *path, const json_t *seen, const json_t *expected)
{
    const char *last = strrchr(path, '.');
    const char *key = last != NULL ? last + 1 : path;

    if (strcmp(key, "class") == 0 && json_is_string(seen)) {
        if (strcmp(canonical_class(json_string_value(seen)),
                   canonical_class(json_string_value(expected))) == 0)
            return true;
        return differ(how, path, seen, expected);
    }
    if (json_is_string(seen) &&
        strcmp(golden_recorded_device(json_string_value(seen)), json_string_value(expected)) == 0)
        return true;
    return json_equal(seen, expected) == 1 ? true : differ(how, path, seen, expected);
}

static bool
same_error(const golden_compare *how, const char *path, const json_t *seen, const json_t *expected)
{
    const char *kind = json_string_value(json_object_get(seen, "kind"));
    const char *wanted = json_string_value(json_object_get(expected, "kind"));

    if (kind != NULL && wanted != NULL && strcmp(kind, wanted) == 0)
        return true;
    golden_fail(how->c, "%s is %s (%s), expected kind %s", path, kind ? kind : "no error",
                kind ? json_string_value(json_object_get(seen, "message")) : "it succeeded",
                wanted ? wanted : "?");
    return false;
}

static bool
same_object(const golden_compare *how, const char *path, json_t *seen, json_t *expected)
{
    char        inner[PATH_MAX_LENGTH];
    const char *key;
    json_t     *item;

    if (!json_is_object(seen) || golden_is_tensor(seen))
        return differ(how, path, seen, expected);
    item = json_object_get(seen, "error");
    if (json_is_object(item) && json_object_get(expected, "error") == NULL) {
        golden_fail(how->c, "%s failed with %s (%s)", path,
                    json_string_value(json_object_get(item, "kind")),
                    json_string_value(json_object_get(item, "message")));
        return false;
    }
    json_object_foreach(expected, key, item)
    {
        json_t *found = json_object_get(seen, key);

        snprintf(inner, sizeof(inner), "%s.%s", path, key);
        if (strcmp(key, "error") == 0 && json_is_object(item)) {
            if (!same_error(how, inner, found, item))
                return false;
            continue;
        }
        if (found == NULL) {
            golden_fail(how->c, "%s was not produced", inner);
            return false;
        }
        if (!golden_same(how, inner, found, item))
            return false;
    }
    return true;
}

static bool
same_array(const golden_compare *how, const char *path, json_t *seen, json_t *expected)
{
    char    inner[PATH_MAX_LENGTH];
    size_t  i;
    json_t *item;

    if (!json_is_array(seen))
        return differ(how, path, seen, expected);
    if (json_array_size(seen) != json_array_size(expected)) {
        golden_fail(how->c, "%s has %zu entries, expected %zu", path, json_array_size(seen),
                    json_array_size(expected));
        return false;
    }
    json_array_foreach(expected, i, item)
    {
        snprintf(inner, sizeof(inner), "%s[%zu]", path, i);
        if (!golden_same(how, inner, json_array_get(seen, i), item))
            return false;
    }
    return true;
}

/* Structures have the same keys on both sides: a map with one more item is another map. */
static bool
same_structure_size(json_t *seen, json_t *expected)
{
    static const char *const keyed[] = { "dict", "named_tuple" };

    for (size_t i = 0; i < sizeof(keyed) / sizeof(keyed[0]); ++i) {
        json_t *a = json_object_get(seen, keyed[i]), *b = json_object_get(expected, keyed[i]);

        if (json_is_object(a) && json_is_object(b) && json_object_size(a) != json_object_size(b))
            return false;
    }
    return true;
}

bool
golden_same(const golden_compare *how, const char *path, json_t *seen, json_t *expected)
{
    if (golden_is_tensor(expected)) {
        if (is_unchanged_number(how, seen, expected))
            return same_number(how, path, expected, seen);
        if (!golden_is_tensor(seen))
            return differ(how, path, seen, expected);
        return same_tensor(how, path, seen, expected);
    }
    if (json_is_object(expected)) {
        if (!same_structure_size(seen, expected))
            return differ(how, path, seen, expected);
        return same_object(how, path, seen, expected);
    }
    if (json_is_array(expected))
        return same_array(how, path, seen, expected);
    if (json_is_number(expected) || json_is_boolean(expected))
        return same_number(how, path, seen, expected);
    if (json_is_string(expected))
        return same_string(how, path, seen, expected);
    return json_is_null(seen) ? true : differ(how, path, seen, expected);
}
