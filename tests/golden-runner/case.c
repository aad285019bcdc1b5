/* SPDX-License-Identifier: Apache-2.0 */
/* One case: what is expected of it, running it in a fresh context, and the verdict. */
#include "captured.h"
#include "types.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void
golden_fail(golden_case *c, const char *format, ...)
{
    va_list args;

    if (c->is_failed)
        return;
    c->is_failed = true;
    va_start(args, format);
    vsnprintf(c->reason, sizeof(c->reason), format, args);
    va_end(args);
}

void
golden_missing(golden_case *c, const char *what)
{
    golden_fail(c, "the library does not offer %s yet", what);
}

bool
golden_take_error(golden_case *c, co_context *ctx)
{
    const co_error_info *error = co_error(ctx);

    if (error->code == CO_OK)
        return false;
    if (c->code == CO_OK) {
        c->code = error->code;
        snprintf(c->message, sizeof(c->message), "%s: %.500s", error->call ? error->call : "?",
                 error->message);
    }
    co_clear(ctx);
    return true;
}

void
golden_put(golden_case *c, const char *key, json_t *value)
{
    if (json_object_set_new(c->seen, key, value ? value : json_null()) != 0)
        golden_fail(c, "out of memory for output '%s'", key);
}

void
golden_put_value(golden_case *c, const char *key, co_value *value)
{
    golden_put(c, key, golden_write_value(c->ctx, value));
}

const char *
golden_string(golden_case *c, json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    if (text == NULL) {
        golden_fail(c, "field '%s' of the case is not a string", key);
        return "";
    }
    return text;
}

int64_t
golden_int(golden_case *c, json_t *object, const char *key, int64_t fallback)
{
    json_t *field = json_object_get(object, key);

    if (!json_is_integer(field)) {
        golden_fail(c, "field '%s' of the case is not an integer", key);
        return fallback;
    }
    return json_integer_value(field);
}

void
golden_group(const char *id, char *out, size_t capacity)
{
    const char *slash = strrchr(id, '/');
    size_t      n = slash != NULL ? (size_t)(slash - id) : strlen(id);

    if (strncmp(id, "error.", 6) == 0 && n >= 6) {
        id += 6;
        n -= 6;
    }
    if (n >= capacity)
        n = capacity - 1;
    memcpy(out, id, n);
    out[n] = '\0';
}

void
golden_run_group(golden_case *c, const golden_action *table, size_t n)
{
    char group[80];

    golden_group(c->id, group, sizeof(group));
    for (size_t i = 0; i < n; ++i) {
        if (strcmp(table[i].name, group) == 0) {
            table[i].run(c);
            return;
        }
    }
    golden_fail(c, "group '%s' is not known to the runner", group);
}

/* A field of the case or of its `expect` is absent, null or an object; anything else is
 * malformed. */
static bool
is_object_field(golden_case *c, json_t *object, const char *key)
{
    json_t *field = json_object_get(object, key);

    if (field == NULL || json_is_null(field) || json_is_object(field))
        return true;
    golden_fail(c, "field '%s' of the case is not an object", key);
    return false;
}

/* Fill the expected side from the recording, with `expect` on top. False with a reason when the
 * case is malformed. */
static bool
read_expectations(golden_case *c, json_t *empty)
{
    static const char *const objects[] = { "attrs", "inputs", "outputs", "error", "expect" };
    json_t                  *expect;

    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); ++i)
        if (!is_object_field(c, c->json, objects[i]))
            return false;
    c->attrs = json_object_get(c->json, "attrs");
    c->inputs = json_object_get(c->json, "inputs");
    c->outputs = json_object_get(c->json, "outputs");
    c->error = json_object_get(c->json, "error");
    expect = json_object_get(c->json, "expect");
    if (!is_object_field(c, expect, "outputs") || !is_object_field(c, expect, "error"))
        return false;
    if (expect != NULL && json_object_get(expect, "outputs") != NULL)
        c->outputs = json_object_get(expect, "outputs");
    if (expect != NULL && json_object_get(expect, "error") != NULL)
        c->error = json_object_get(expect, "error");
    if (!json_is_object(c->attrs))
        c->attrs = empty;
    if (!json_is_object(c->inputs))
        c->inputs = empty;
    if (!json_is_object(c->outputs))
        c->outputs = empty;
    if (json_is_null(c->error))
        c->error = NULL;
    if (c->error != NULL && json_string_value(json_object_get(c->error, "kind")) == NULL) {
        golden_fail(c, "the expected error has no kind");
        return false;
    }
    return true;
}

/* Whether an error is of the kind that is expected. Where the data comes from Keras, E_VALUE and
 * E_INVALID are equally right. */
static bool
is_right_kind(const golden_case *c, const char *seen, const char *expected)
{
    static const char *const of_keras[] = { "losses", "metrics", "layers", "fit" };

    if (strcmp(seen, expected) == 0)
        return true;
    for (size_t i = 0; i < sizeof(of_keras) / sizeof(of_keras[0]); ++i)
        if (strcmp(c->family, of_keras[i]) == 0)
            return (strcmp(seen, "E_VALUE") == 0 || strcmp(seen, "E_INVALID") == 0) &&
                   (strcmp(expected, "E_VALUE") == 0 || strcmp(expected, "E_INVALID") == 0);
    return false;
}

/* Errors first: an unexpected one explains everything that is missing after it. Where none is
 * expected there must be something to compare: a recording that broke off looks like a case that
 * wants nothing, and would pass for ever. */
static void
judge(golden_case *c)
{
    const golden_compare how = { c, strcmp(c->family, "ops") == 0,
                                 strcmp(c->family, "reduce") == 0 };
    const char *kind = c->error ? json_string_value(json_object_get(c->error, "kind")) : "";
    const char *key;
    json_t     *expected;

    if (c->is_failed)
        return;
    if (c->code != CO_OK && c->error == NULL) {
        golden_fail(c, "failed with %s (%s)", co_code_name(c->code), c->message);
        return;
    }
    if (c->code == CO_OK && c->error != NULL) {
        golden_fail(c, "succeeded, expected an error of kind %s", kind);
        return;
    }
    if (c->code != CO_OK && !is_right_kind(c, co_code_kind(c->code), kind)) {
        golden_fail(c, "failed with %s (%s), expected kind %s", co_code_name(c->code), c->message,
                    kind);
        return;
    }
    if (c->error == NULL && json_object_size(c->outputs) == 0) {
        golden_fail(c, "nothing is compared: the case expects no error and has no outputs");
        return;
    }
    json_object_foreach(c->outputs, key, expected)
    {
        json_t *seen = json_object_get(c->seen, key);

        if (seen == NULL) {
            golden_fail(c, "output '%s' was not produced", key);
            return;
        }
        if (!golden_same(&how, key, seen, expected))
            return;
    }
}

static void
discard_log(co_log_level level, const char *line, void *user)
{
    (void)user;
    (void)level;
    (void)line;
}

static char device_type[32] = "CPU";
static char device_names[4][64] = { "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3" };
static int  current_index;

void
golden_use_device(const char *type, int index)
{
    snprintf(device_type, sizeof(device_type), "%s", type);
    current_index = index;
    for (int i = 0; i < 4; ++i)
        snprintf(device_names[i], sizeof(device_names[i]), "/device:%s:%d", device_type, i);
}

const char *
golden_device(int i)
{
    return device_names[i];
}

const char *
golden_recorded_device(const char *text)
{
    static char made[600];
    char        part[64];
    const char *at;

    snprintf(part, sizeof(part), "/device:%s:", device_type);
    at = strstr(text, part);
    if (at == NULL)
        return text;
    snprintf(made, sizeof(made), "%.*s/device:CPU:%s", (int)(at - text), text, at + strlen(part));
    return made;
}

static const char *
settings_for_devices(char *out, size_t capacity)
{
    if (strcmp(device_type, "CPU") == 0)
        return "cpus=4";
    snprintf(out, capacity, "cpus=4, devices=%s:4", device_type);
    return out;
}

/* Whether a case can be run at all: false with a reason. */
static bool
check_case(golden_case *c, const golden_family *how, const char *family)
{
    if (c->seen == NULL || c->ctx == NULL)
        golden_fail(c, "out of memory before the case began");
    else if (!co_ok(c->ctx))
        golden_fail(c, "cannot open a context: %.400s", co_error(c->ctx)->message);
    else if (c->id == NULL)
        golden_fail(c, "the case has no id");
    else if (how == NULL)
        golden_fail(c, "family '%s' is not known to the runner", family);
    else if (c->types != NULL && strcmp(family, "ops") != 0)
        golden_fail(c, "--types is about the family ops");
    return !c->is_failed;
}

/* One run of a case in a context of its own. False: failed, with c->reason. */
static bool
run_once(golden_case *c, const char *family)
{
    const golden_family *how = golden_family_find(family);
    json_t              *empty = json_object();
    co_options           opening = CO_OPTIONS_INIT;
    char                 settings[64];

    opening.settings = settings_for_devices(settings, sizeof(settings));
    opening.log = discard_log;
    c->id = json_string_value(json_object_get(c->json, "id"));
    c->seen = json_object();
    c->ctx = co_open_with(&opening);
    if (check_case(c, how, family) && read_expectations(c, empty) && c->types != NULL)
        golden_run_types(c);
    else if (!c->is_failed) {
        if (strcmp(device_type, "CPU") != 0)
            co_device_begin(c->ctx, golden_device(current_index));
        how->run(c);
        golden_take_error(c, c->ctx);
        judge(c);
    }
    golden_end_run(c->ctx);
    co_close(c->ctx);
    json_decref(c->seen);
    json_decref(empty);
    return !c->is_failed;
}

/* --function: without capturing and captured, and the bits of both. */
static void
run_twice(golden_case *c, const char *family, golden_verdict *out)
{
    golden_case       eager = *c;
    golden_run_record first, second;

    golden_begin_run(false, false);
    if (!run_once(&eager, family)) {
        golden_fail(c, "without capturing: %.500s", eager.reason);
        return;
    }
    first = golden_run_so_far();
    golden_begin_run(true, c->fault != 0);
    run_once(c, family);
    second = golden_run_so_far();
    if (second.calls == 0)
        snprintf(out->apart, sizeof(out->apart), "nothing is computed");
    else if (second.no_meaning[0] != '\0')
        snprintf(out->apart, sizeof(out->apart), "%s", second.no_meaning);
    if (out->apart[0] == '\0' && (first.calls != second.calls || first.bits != second.bits))
        golden_fail(c, "captured, the results of %ld calls have other bits than without capturing",
                    second.calls);
}

void
golden_case_run(const char *family, const char *folder, json_t *json, const golden_options *options,
                golden_verdict *out)
{
    golden_case c = { .family = family,
                      .folder = folder,
                      .json = json,
                      .fault = options->fault,
                      .types = options->is_types ? &out->types : NULL };

    if (options->is_function)
        run_twice(&c, family, out);
    else
        run_once(&c, family);
    out->is_passed = !c.is_failed;
    snprintf(out->reason, sizeof(out->reason), "%s", c.is_failed ? c.reason : "");
}
