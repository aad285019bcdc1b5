/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of settings, and how they are looked up: text, environment, default. The same function
 * parses a value wherever it came from, so wrong values are rejected alike, and the message names
 * the origin.
 */
#include "base/settings.h"

#include "base/text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX       "COHORT_"
#define MAX_WARNINGS 8 /* lines about unknown variables */

typedef struct setting setting;

struct setting {
    const char *name;
    const char *initial; /* the default, as text */
    size_t      offset;  /* of the field in coi_settings */
    bool (*parse)(const setting *s, const char *text, size_t length, void *field);
    void (*show)(const setting *s, const void *field, char *out, size_t capacity);
    const char *expected; /* the allowed values, for messages */
    uint64_t    min;
    uint64_t    max;
    const char *help;
};

enum { CHOICE_MAX = 16 }; /* bytes of a choice with its zero */

/* Where a value was found. */
typedef struct origin {
    const char *source; /* as co_settings_visit reports it */
    const char *phrase; /* as a message says it */
} origin;

static const origin from_default = { "default", "its default" };
static const origin from_environment = { "environment", "from the environment, " PREFIX };
static const origin from_program = { "program", "given to open" };

static bool
parse_int(const setting *s, const char *text, size_t length, void *field)
{
    uint64_t number;

    if (!coi_text_number(text, length, s->max, &number) || number < s->min)
        return false;
    *(int *)field = (int)number;
    return true;
}

static void
show_int(const setting *s, const void *field, char *out, size_t capacity)
{
    (void)s;
    snprintf(out, capacity, "%d", *(const int *)field);
}

static bool
parse_u64(const setting *s, const char *text, size_t length, void *field)
{
    return coi_text_number(text, length, s->max, field);
}

static void
show_u64(const setting *s, const void *field, char *out, size_t capacity)
{
    (void)s;
    snprintf(out, capacity, "%llu", (unsigned long long)*(const uint64_t *)field);
}

static bool
parse_bool(const setting *s, const char *text, size_t length, void *field)
{
    static const char *const words[] = { "no", "yes", "off", "on", "false", "true", "0", "1" };

    (void)s;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i)
        if (coi_text_same(text, length, words[i])) {
            *(bool *)field = i % 2 == 1;
            return true;
        }
    return false;
}

static void
show_bool(const setting *s, const void *field, char *out, size_t capacity)
{
    (void)s;
    snprintf(out, capacity, "%s", *(const bool *)field ? "yes" : "no");
}

/*
 * Choice k of the values that a setting expects ("auto, own or onednn"); messages and the parser
 * use the same text. False: there is none.
 */
static bool
choice_at(const setting *s, int k, char out[CHOICE_MAX])
{
    const char *at = s->expected;

    for (; *at != '\0'; at += strncmp(at, "or ", 3) == 0 ? 3 : 0) {
        size_t length = strcspn(at, ", ");

        if (k-- == 0) {
            snprintf(out, CHOICE_MAX, "%.*s", (int)length, at);
            return true;
        }
        at += length;
        at += strspn(at, ", ");
    }
    return false;
}

static bool
find_choice(const setting *s, const char *text, size_t length, int *k, char out[CHOICE_MAX])
{
    for (*k = 0; choice_at(s, *k, out); ++*k)
        if (coi_text_same(text, length, out))
            return true;
    return false;
}

/* An enumeration whose members are the choices, in their order. */
static bool
parse_choice(const setting *s, const char *text, size_t length, void *field)
{
    char word[CHOICE_MAX];
    int  k;

    if (!find_choice(s, text, length, &k, word))
        return false;
    memcpy(field, &k, sizeof(k));
    return true;
}

static void
show_choice(const setting *s, const void *field, char *out, size_t capacity)
{
    char word[CHOICE_MAX] = "";
    int  k;

    memcpy(&k, field, sizeof(k));
    choice_at(s, k, word);
    snprintf(out, capacity, "%s", word);
}

_Static_assert(sizeof(co_log_level) == sizeof(int) && sizeof(coi_packing) == sizeof(int),
               "choices are numbers");

/* A choice as text, in a field of s->max bytes. */
static bool
parse_word(const setting *s, const char *text, size_t length, void *field)
{
    char word[CHOICE_MAX];
    int  k;

    if (!find_choice(s, text, length, &k, word))
        return false;
    snprintf(field, (size_t)s->max, "%s", word);
    return true;
}

/* A text field of s->max bytes with its zero. */
static bool
parse_text(const setting *s, const char *text, size_t length, void *field)
{
    if (length >= s->max)
        return false;
    memcpy(field, text, length);
    ((char *)field)[length] = '\0';
    return true;
}

static bool
parse_devices(const setting *s, const char *text, size_t length, void *field)
{
    char        type[COI_DEVICE_TYPE_MAX];
    int         count;
    const char *rest = field;

    if (!parse_text(s, text, length, field))
        return false;
    while (coi_device_list_next(&rest, type, &count))
        ;
    return *rest == '\0' && (length == 0 || text[length - 1] != '+');
}

static void
show_text(const setting *s, const void *field, char *out, size_t capacity)
{
    (void)s;
    snprintf(out, capacity, "%s", (const char *)field);
}

#define FIELD(name) offsetof(coi_settings, name)

static const setting table[] = {
    { "log", "error", FIELD(log), parse_choice, show_choice, "off, error, warning, info or debug",
      0, 0, "lowest severity that is logged" },
    { "cpus", "1", FIELD(cpus), parse_int, show_int, NULL, 1, 256,
      "number of logical CPU devices; they share the cores" },
    { "threads", "0", FIELD(threads), parse_int, show_int, NULL, 0, 4096,
      "total number of threads of all devices; 0: one for each core that the process may use" },
    { "devices", "", FIELD(devices), parse_devices, show_text,
      "up to 63 characters such as GPU:2+TPU:4, each count from 1 to 256", 0, 64,
      "further devices, such as GPU:2+TPU:4; a type without a backend uses host memory" },
    { "backends", "", FIELD(backends), parse_text, show_text, "up to 511 characters", 0, 512,
      "shared libraries with device backends, separated by colons" },
    { "isa", "auto", FIELD(isa), parse_word, show_text, "auto, base, v3 or v4", 0, 16,
      "highest instruction set of the kernels; v3 is AVX2, v4 is AVX-512" },
    { "spin_us", "20", FIELD(spin_us), parse_int, show_int, NULL, 0, 10000,
      "microseconds a waiting thread spins before it sleeps" },
    { "deadline_ms", "60000", FIELD(deadline_ms), parse_int, show_int, NULL, 0, 86400000,
      "milliseconds to wait for a replica or a process; 0: no limit" },
    { "seed", "0", FIELD(seed), parse_u64, show_u64, NULL, 0, UINT64_MAX,
      "seed of random numbers" },
    { "pin", "yes", FIELD(pin), parse_bool, show_bool, "yes or no", 0, 0,
      "bind worker threads to the cores of their device" },
    { "reference_kernels", "no", FIELD(reference_kernels), parse_bool, show_bool, "yes or no", 0, 0,
      "run the slow reference kernels, for comparison" },
    { "check_functions", "no", FIELD(check_functions), parse_bool, show_bool, "yes or no", 0, 0,
      "capture every function again in each call and compare, to find what it depends on" },
    { "convolution", "auto", FIELD(convolution), parse_word, show_text, "auto, own or onednn", 0, 8,
      "kernels of convolutions; auto selects them by shape" },
    { "gemm", "auto", FIELD(gemm), parse_choice, show_choice,
      "auto, plain, a, b, both or transposed", 0, 0,
      "operands that a GEMM packs, or the transposed GEMM; auto selects by shape" },
    { "flight_file", "", FIELD(flight_file), parse_text, show_text, "up to 255 characters", 0, 256,
      "file that the flight recorder is written to when a rendezvous fails" },
};

enum { NUM_SETTINGS = sizeof(table) / sizeof(table[0]) };
_Static_assert(NUM_SETTINGS <= COI_MAX_SETTINGS,
               "coi_settings.source has a place for every setting");

/* Variables with our prefix that are read elsewhere. */
static const char *const other_variables[] = { "PLUGIN_PATH", "MPI_LIBRARY" };

bool
coi_device_list_next(const char **list, char type[COI_DEVICE_TYPE_MAX], int *count)
{
    const char *at = *list;
    size_t      length = 0;
    uint64_t    number = 0;

    if (!coi_ascii_letter(*at))
        return false;
    for (; coi_ascii_letter(*at) || coi_ascii_digit(*at) || *at == '_'; ++at) {
        if (length == COI_DEVICE_TYPE_MAX - 1)
            return false;
        type[length++] = coi_ascii_upper(*at);
    }
    type[length] = '\0';
    if (*at++ != ':')
        return false;
    length = 0;
    while (coi_ascii_digit(at[length]))
        ++length;
    if (!coi_text_number(at, length, COI_MAX_DEVICE_COUNT, &number) || number == 0)
        return false;
    at += length;
    if (*at != '\0' && *at != '+')
        return false;
    *count = (int)number;
    *list = at + (*at == '+');
    return true;
}

static co_code
refuse(const setting *s, const origin *from, const char *text, size_t length, co_error_info *err)
{
    char   variable[40] = "";
    char   expected[200];
    size_t i;
    int    shown = length > 60 ? 60 : (int)length;

    if (from == &from_environment) {
        for (i = 0; s->name[i] != '\0' && i < sizeof(variable) - 1; ++i)
            variable[i] = coi_ascii_upper(s->name[i]);
        variable[i] = '\0';
    }
    if (s->expected != NULL)
        coi_text_line(expected, sizeof(expected), "%s", s->expected);
    else
        snprintf(expected, sizeof(expected), "a whole number from %llu to %llu",
                 (unsigned long long)s->min, (unsigned long long)s->max);
    return coi_error(err, CO_VALUE_ERROR, "setting %s='%.*s%s' (%s%s): expected %s", s->name, shown,
                     text, length > 60 ? "..." : "", from->phrase, variable, expected);
}

static co_code
apply(coi_settings *settings, size_t i, const origin *from, const char *text, size_t length,
      co_error_info *err)
{
    const setting *s = &table[i];

    if (!s->parse(s, text, length, (char *)settings + s->offset))
        return refuse(s, from, text, length, err);
    settings->source[i] = from->source;
    return CO_OK;
}

/* The position of a name in the table, NUM_SETTINGS if it is unknown. */
static size_t
find(const char *name, size_t length)
{
    size_t i = 0;

    while (i < NUM_SETTINGS && !coi_text_same(name, length, table[i].name))
        ++i;
    return i;
}

static co_code
refuse_name(const char *name, size_t length, co_error_info *err)
{
    char      known[600] = "";
    coi_prose list = { known, sizeof(known), 0 };

    for (size_t i = 0; i < NUM_SETTINGS; ++i)
        coi_put(&list, "%s%s", i == 0 ? "" : ", ", table[i].name);
    coi_put_end(&list);
    return coi_error(err, CO_VALUE_ERROR, "unknown setting '%.*s%s' (given to open): there are %s",
                     length > 60 ? 60 : (int)length, name, length > 60 ? "..." : "", known);
}

static co_code
apply_text(coi_settings *settings, const char *text, co_error_info *err)
{
    static const char separators[] = ",; \t\r\n";

    for (const char *at = text + strspn(text, separators); *at != '\0';
         at += strspn(at, separators)) {
        size_t  length = strcspn(at, separators);
        size_t  name_length = strcspn(at, "=,; \t\r\n");
        size_t  i = find(at, name_length);
        co_code rc;

        if (i == NUM_SETTINGS)
            return refuse_name(at, name_length, err);
        if (name_length == length)
            return coi_error(err, CO_VALUE_ERROR,
                             "setting %s (given to open) has no value: write %s=%s", table[i].name,
                             table[i].name, table[i].initial);
        rc = apply(settings, i, &from_program, at + name_length + 1, length - name_length - 1, err);
        if (rc != CO_OK)
            return rc;
        at += length;
    }
    return CO_OK;
}

/* The value of a setting's variable, NULL when it is not set or empty. */
static const char *
environment_value(const setting *s)
{
    char        variable[40] = PREFIX;
    size_t      at = sizeof(PREFIX) - 1;
    const char *value;

    for (size_t i = 0; s->name[i] != '\0' && at < sizeof(variable) - 1; ++i)
        variable[at++] = coi_ascii_upper(s->name[i]);
    variable[at] = '\0';
    value = secure_getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/*
 * Settings the program gave are not looked for, so that a program can defend itself against its
 * environment.
 */
static co_code
apply_environment(coi_settings *settings, co_error_info *err)
{
    for (size_t i = 0; i < NUM_SETTINGS; ++i) {
        const char *value = NULL;
        co_code     rc = CO_OK;

        if (settings->source[i] != from_program.source)
            value = environment_value(&table[i]);
        if (value != NULL)
            rc = apply(settings, i, &from_environment, value, strlen(value), err);
        if (rc != CO_OK)
            return rc;
    }
    return CO_OK;
}

static bool
known_variable(const char *name, size_t length)
{
    if (find(name, length) < NUM_SETTINGS)
        return true;
    for (size_t i = 0; i < sizeof(other_variables) / sizeof(other_variables[0]); ++i)
        if (coi_text_same(name, length, other_variables[i]))
            return true;
    return false;
}

static void
warn_of_unknown(coi_log *log)
{
    int warnings = 0;

    if (!coi_log_on(log, CO_LOG_WARNING) || environ == NULL)
        return;
    for (char **entry = environ; *entry != NULL && warnings < MAX_WARNINGS; ++entry) {
        const char *name = *entry + sizeof(PREFIX) - 1;
        size_t      length;

        if (strncmp(*entry, PREFIX, sizeof(PREFIX) - 1) != 0)
            continue;
        length = strcspn(name, "=");
        if (known_variable(name, length))
            continue;
        coi_log_line(log, CO_LOG_WARNING,
                     "environment variable " PREFIX "%.*s is not a setting of this version",
                     length > 60 ? 60 : (int)length, name);
        ++warnings;
    }
}

co_code
coi_settings_load(coi_settings *settings, const char *text, co_error_info *err, coi_log *log)
{
    coi_settings loaded;
    co_code      rc = CO_OK;

    memset(&loaded, 0, sizeof(loaded));
    for (size_t i = 0; i < NUM_SETTINGS && rc == CO_OK; ++i)
        rc = apply(&loaded, i, &from_default, table[i].initial, strlen(table[i].initial), err);
    if (rc == CO_OK && text != NULL)
        rc = apply_text(&loaded, text, err);
    if (rc == CO_OK)
        rc = apply_environment(&loaded, err);
    if (rc != CO_OK)
        return rc;
    *settings = loaded;
    if (log != NULL)
        log->level = loaded.log;
    warn_of_unknown(log);
    return CO_OK;
}

void
coi_settings_visit(const coi_settings *settings, co_setting_fn fn, void *user)
{
    for (size_t i = 0; fn != NULL && i < NUM_SETTINGS; ++i) {
        char value[256];

        table[i].show(&table[i], (const char *)settings + table[i].offset, value, sizeof(value));
        fn(table[i].name, value, settings->source[i], table[i].help, user);
    }
}
