/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device names, and the texts of settings that make devices. The first byte says which: even, two
 * names that end at a zero or the first line end; odd, settings for co_open; 3 of 4, one of them as
 * a variable of the environment. Whatever the bytes are:
 *
 * - a name is refused with the code and the text of the rules, the same by every call that takes
 *   one, or its canonical form is that of itself, whatever device is current; and merged with
 *   another, each part comes from the one that has it;
 * - settings are refused with CO_VALUE_ERROR, or those that were understood, given again, are
 * understood to be the same;
 * - nothing stays behind.
 */
#include "fuzz.h"

#define TEXT_MAX 4096

/* One line that can be shown: it holds no control characters. */
static void
expect_line(const char *line)
{
    for (; *line != '\0'; ++line)
        FUZZ_REQUIRE((unsigned char)*line >= 0x20 && *line != 0x7f);
}

/* And names what it is about. */
static void
expect_error(co_context *ctx, const char *about)
{
    FUZZ_REQUIRE(strstr(co_error(ctx)->message, about) != NULL);
    expect_line(co_error(ctx)->message);
    co_clear(ctx);
}

/* --- names --- */

/* The code of the rules, or what the name becomes. */
static co_code
resolve(co_context *ctx, const char *name, char *out)
{
    co_code code = co_device_resolve(ctx, name, out);

    FUZZ_REQUIRE(co_error(ctx)->code == code);
    FUZZ_REQUIRE(code == CO_OK || code == CO_VALUE_ERROR || code == CO_ASSERTION_ERROR);
    if (code != CO_OK)
        expect_error(ctx, code == CO_ASSERTION_ERROR ? "must be in capitals" : "device name '");
    return code;
}

/* What a name cannot hold makes it wrong. */
static bool
is_hopeless(const char *name)
{
    static const char known[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "_-.:*/";

    return name[strspn(name, known)] != '\0';
}

/* The same but for the index? */
static bool
same_place(const char *a, const char *b)
{
    size_t n = (size_t)(strrchr(a, ':') - a), m = (size_t)(strrchr(b, ':') - b);

    return n == m && memcmp(a, b, n) == 0;
}

static void
try_merging(co_context *ctx, const char *outer, const char *whole, const char *name,
            const char *alone)
{
    static char both[2 * TEXT_MAX + 2];
    char        merged[CO_DEVICE_NAME_MAX], joined[CO_DEVICE_NAME_MAX], same[CO_DEVICE_NAME_MAX];

    CO_DEVICE(ctx, outer) {
        FUZZ_REQUIRE(strcmp(co_current_device(ctx), whole) == 0);
        FUZZ_REQUIRE(resolve(ctx, "", same) == CO_OK && strcmp(same, whole) == 0);
        FUZZ_REQUIRE(resolve(ctx, alone, same) == CO_OK && strcmp(same, alone) == 0);
        FUZZ_REQUIRE(resolve(ctx, name, merged) == CO_OK);
    }
    snprintf(both, sizeof(both), "%s/%s", whole, name);
    FUZZ_REQUIRE(resolve(ctx, both, joined) == CO_OK);
    /* An index that is a star, or not there: the other name's counts, which the one text does not
     * know any more. */
    FUZZ_REQUIRE(same_place(merged, joined));
    FUZZ_REQUIRE(strcmp(merged, joined) == 0 ||
                 (strcmp(strrchr(joined, ':'), ":0") == 0 &&
                  strcmp(strrchr(merged, ':'), strrchr(whole, ':')) == 0));
}

/* A strategy with the name: made of every good one, and a variable of it is there or says that the
 * device is not. */
static void
try_strategy(co_context *ctx, const char *name, co_code code, const char *canonical)
{
    co_strategy *one = co_one_device_strategy(ctx, name);

    FUZZ_REQUIRE((one != NULL) == (code == CO_OK) && co_error(ctx)->code == code);
    if (one == NULL) {
        expect_error(ctx, "device name '");
        return;
    }
    CO_SCOPE(ctx, one) {
        co_value *v = co_variable(ctx, co_float(ctx, 1.0), NULL);

        FUZZ_REQUIRE(v != NULL ? strcmp(co_value_device(ctx, v), canonical) == 0
                               : co_error(ctx)->code == CO_INVALID_ARGUMENT);
    }
    if (!co_ok(ctx))
        expect_error(ctx, "there is no device /job:");
}

static void
try_mirrored(co_context *ctx, const char *a, const char *b)
{
    const char  *names[] = { a, b };
    co_strategy *mirrored = co_mirrored_strategy(ctx, names, 2, NULL);
    co_code      code = co_error(ctx)->code;

    FUZZ_REQUIRE((mirrored != NULL) == (code == CO_OK));
    FUZZ_REQUIRE(mirrored == NULL || co_num_replicas_in_sync(ctx, mirrored) == 2);
    FUZZ_REQUIRE(code == CO_OK || code == CO_VALUE_ERROR || code == CO_ASSERTION_ERROR ||
                 code == CO_RUNTIME_ERROR);
    if (mirrored == NULL)
        expect_error(ctx, "device");
}

static void
try_names(co_context *ctx, const char *a, const char *b)
{
    char    first[CO_DEVICE_NAME_MAX], second[CO_DEVICE_NAME_MAX], again[CO_DEVICE_NAME_MAX];
    co_code code = resolve(ctx, a, first), other = resolve(ctx, b, second);

    FUZZ_REQUIRE(code != CO_OK || !is_hopeless(a));
    if (code == CO_OK)
        FUZZ_REQUIRE(resolve(ctx, first, again) == CO_OK && strcmp(again, first) == 0);
    if (code == CO_OK && other == CO_OK)
        try_merging(ctx, a, first, b, second);
    if (code != CO_OK) {
        CO_DEVICE(ctx, a)
            FUZZ_REQUIRE(co_error(ctx)->code == code);
        expect_error(ctx, "device name '");
    }
    try_strategy(ctx, a, code, first);
    try_mirrored(ctx, a, b);
    FUZZ_REQUIRE(strcmp(co_current_device(ctx), "/job:localhost/replica:0/task:0/device:CPU:0") ==
                 0);
}

/* --- settings --- */

typedef struct text {
    char   bytes[TEXT_MAX];
    size_t length;
} text;

/* Values, and as text that gives them again; those that a program cannot write are empty. */
static void
collect(const char *name, const char *value, const char *source, const char *help, void *user)
{
    text *t = user;
    int   n = snprintf(t->bytes + t->length, sizeof(t->bytes) - t->length, "%s=%s,", name,
                     strpbrk(value, ",; \t\r\n") != NULL ? "" : value);

    FUZZ_REQUIRE(n > 0 && source != NULL && help != NULL);
    t->length += (size_t)n;
    FUZZ_REQUIRE(t->length < sizeof(t->bytes));
}

static void
read_log(co_log_level level, const char *line, void *user)
{
    (void)user;
    FUZZ_REQUIRE(level > CO_LOG_OFF);
    expect_line(line);
}

/* An error of opening stays: there is nothing that such a context could do. */
static co_code
open_and_collect(const char *settings, text *out)
{
    co_options  options = CO_OPTIONS_INIT;
    co_context *ctx;
    co_code     code;

    options.settings = settings;
    options.log = read_log;
    ctx = co_open_with(&options);
    code = co_error(ctx)->code;

    FUZZ_REQUIRE(ctx != NULL);
    out->length = 0;
    out->bytes[0] = '\0';
    if (code != CO_OK)
        expect_error(ctx, "setting");
    else
        co_settings_visit(ctx, collect, out);
    for (size_t i = 0; i < co_num_devices(ctx); ++i) {
        co_device_info info = CO_DEVICE_INFO_INIT;
        char           again[CO_DEVICE_NAME_MAX];

        FUZZ_REQUIRE(co_get_device_info(ctx, i, &info) == CO_OK);
        FUZZ_REQUIRE(resolve(ctx, info.name, again) == CO_OK && strcmp(info.name, again) == 0);
    }
    FUZZ_REQUIRE(co_close(ctx) == code);
    return code;
}

static void
try_settings(const char *settings)
{
    static text first, second;
    co_code     code = open_and_collect(settings, &first);

    /* More devices than a runtime holds are refused when they are made. */
    FUZZ_REQUIRE(code == CO_OK || code == CO_VALUE_ERROR || code == CO_RESOURCE_EXHAUSTED);
    if (code != CO_OK)
        return;
    FUZZ_REQUIRE(open_and_collect(first.bytes, &second) == CO_OK);
    FUZZ_REQUIRE(strcmp(first.bytes, second.bytes) == 0);
}

/* "NAME=value": a variable that begins with our prefix. */
static void
try_environment(char *both)
{
    char   variable[64];
    size_t n = strcspn(both, "=");

    if (n == 0 || n > 40 || both[n] == '\0')
        return;
    snprintf(variable, sizeof(variable), "COHORT_%.*s", (int)n, both);
    FUZZ_REQUIRE(setenv(variable, both + n + 1, 1) == 0);
    try_settings("cpus=1");
    FUZZ_REQUIRE(unsetenv(variable) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static co_context *ctx;
    static char        first[TEXT_MAX + 1];
    char              *second;
    co_memory_stats    before = CO_MEMORY_STATS_INIT, after = CO_MEMORY_STATS_INIT;

    if (size == 0 || size > TEXT_MAX)
        return 0;
    memcpy(first, data + 1, size - 1);
    first[size - 1] = '\0';
    if (data[0] % 2 == 1) {
        if (data[0] % 4 == 3)
            try_environment(first);
        else
            try_settings(first);
        return 0;
    }
    if (ctx == NULL) { /* for all names, and until the process ends */
        ctx = co_open("cpus=2, devices=GPU:1, threads=1");
        FUZZ_REQUIRE(co_ok(ctx));
    }
    second = strchr(first, '\n');
    if (second != NULL)
        *second++ = '\0';
    co_get_memory_stats(ctx, &before);
    CO_BLOCK(ctx)
        try_names(ctx, first, second != NULL ? second : "");
    FUZZ_REQUIRE(co_ok(ctx));
    co_get_memory_stats(ctx, &after);
    FUZZ_REQUIRE(after.live_values == before.live_values);
    return 0;
}
