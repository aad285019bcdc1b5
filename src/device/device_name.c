/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device names, rules DEV-1 to DEV-8. A name is a list of parts between slashes; empty parts mean
 * nothing, the last of several equal parts counts.
 *
 *     job:NAME  replica:N  task:N  device:TYPE:N  device:TYPE:*  TYPE  TYPE:N  TYPE:*
 *
 * The last three are the short form, for registered types only, in any case. Where the rules are
 * silent this reader is stricter than the reference: signs, blanks and underscores in numbers,
 * empty jobs, and bytes that are not letters, digits, '_', '-' or '.' are CO_VALUE_ERROR.
 */
#include "base/text.h"
#include "device/device.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/*
 * The types that have a short form. Others exist, by declaration, and are written /device:TYPE:N.
 */
static const char *const short_types[] = { "CPU", "GPU", "TPU", "CUSTOM", "EPU" };

/* A piece of the name being read. */
typedef struct piece {
    const char *text;
    size_t      length;
} piece;

/* What is being read, for messages. */
typedef struct reader {
    const char      *whole;
    piece            part;
    coi_device_name *name;
    co_error_info   *err;
} reader;

/* For "%.*s%s", as COI_CUT. */
#define SHOWN(length, text) (length) > 80 ? 80 : (int)(length), (text), (length) > 80 ? "..." : ""

static co_code
refuse(reader *r, co_code code, const char *reason)
{
    return coi_error(r->err, code, "device name '%.*s%s', part '%.*s%s': %s", COI_CUT(80, r->whole),
                     SHOWN(r->part.length, r->part.text), reason);
}

static bool
is_word(piece p, const char *word)
{
    return strlen(word) == p.length && memcmp(p.text, word, p.length) == 0;
}

/* Letters, digits and '_', '-', '.' only? */
static bool
is_plain(piece p)
{
    for (size_t i = 0; i < p.length; ++i)
        if (!coi_ascii_letter(p.text[i]) && !coi_ascii_digit(p.text[i]) &&
            strchr("_-.", p.text[i]) == NULL)
            return false;
    return p.length > 0;
}

static co_code
read_number(reader *r, piece p, int *out)
{
    uint64_t number;

    if (!coi_text_number(p.text, p.length, INT_MAX, &number))
        return refuse(r, CO_VALUE_ERROR, "expected a whole number from 0 to 2147483647");
    *out = (int)number;
    return CO_OK;
}

/* An index; the wildcard counts as missing (DEV-6). */
static co_code
read_index(reader *r, piece p)
{
    if (is_word(p, "*")) {
        r->name->index = -1;
        return CO_OK;
    }
    return read_number(r, p, &r->name->index);
}

static co_code
read_job(reader *r, piece p)
{
    if (!is_plain(p) || p.length >= sizeof(r->name->job))
        return refuse(r, CO_VALUE_ERROR,
                      "expected a job of 1 to 63 letters, digits, '_', '-' or '.'");
    memcpy(r->name->job, p.text, p.length);
    r->name->job[p.length] = '\0';
    return CO_OK;
}

static void
store_type(reader *r, piece p)
{
    for (size_t i = 0; i < p.length; ++i)
        r->name->type[i] = coi_ascii_upper(p.text[i]);
    r->name->type[p.length] = '\0';
}

/* The type of the /device: form (DEV-1, DEV-4). */
static co_code
read_long_type(reader *r, piece p)
{
    bool is_lower = false;

    if (!is_plain(p) || !coi_ascii_letter(p.text[0]) || p.length >= sizeof(r->name->type))
        return refuse(r, CO_VALUE_ERROR,
                      "expected a type of 1 to 31 letters, digits, '_', '-' or '.', such as GPU");
    for (size_t i = 0; i < p.length; ++i)
        is_lower = is_lower || coi_ascii_upper(p.text[i]) != p.text[i];
    if (is_lower && !coi_text_same(p.text, p.length, "CPU") &&
        !coi_text_same(p.text, p.length, "GPU"))
        return refuse(r, CO_ASSERTION_ERROR,
                      "a type other than cpu and gpu must be in capitals here, such as TPU");
    store_type(r, p);
    return CO_OK;
}

/* The short form: index or no index. */
static co_code
read_short(reader *r, const piece *fields, size_t num_fields)
{
    for (size_t i = 0; i < sizeof(short_types) / sizeof(short_types[0]); ++i)
        if (num_fields <= 2 && coi_text_same(fields[0].text, fields[0].length, short_types[i])) {
            store_type(r, fields[0]);
            r->name->index = -1;
            return num_fields == 2 ? read_index(r, fields[1]) : CO_OK;
        }
    return refuse(r, CO_VALUE_ERROR,
                  "unknown; there are job:NAME, replica:N, task:N, device:TYPE:N, cpu:N, gpu:N");
}

static co_code
read_part(reader *r)
{
    piece  fields[4];
    size_t num_fields = 0;
    size_t from = 0;

    /* A fourth field says only that there are too many. */
    for (size_t i = 0; i <= r->part.length && num_fields < 4; ++i)
        if (i == r->part.length || r->part.text[i] == ':') {
            fields[num_fields++] = (piece){ r->part.text + from, i - from };
            from = i + 1;
        }
    if (num_fields == 2 && is_word(fields[0], "job"))
        return read_job(r, fields[1]);
    if (num_fields == 2 && is_word(fields[0], "replica"))
        return read_number(r, fields[1], &r->name->replica);
    if (num_fields == 2 && is_word(fields[0], "task"))
        return read_number(r, fields[1], &r->name->task);
    if (num_fields == 3 && is_word(fields[0], "device")) {
        co_code rc = read_long_type(r, fields[1]);

        return rc == CO_OK ? read_index(r, fields[2]) : rc;
    }
    if (is_word(fields[0], "device") && num_fields < 3)
        return refuse(r, CO_VALUE_ERROR, "a type and an index are needed, such as device:CPU:0");
    return read_short(r, fields, num_fields);
}

co_code
coi_device_parse(const char *text, coi_device_name *out, co_error_info *err)
{
    coi_device_name name = { "", -1, -1, "", -1 };
    reader          r = { text != NULL ? text : "", { NULL, 0 }, &name, err };

    for (const char *at = r.whole; *at != '\0'; at += r.part.length) {
        co_code rc;

        at += *at == '/';
        r.part = (piece){ at, strcspn(at, "/") };
        rc = r.part.length > 0 ? read_part(&r) : CO_OK;
        if (rc != CO_OK)
            return rc;
    }
    *out = name;
    return CO_OK;
}

static void
fill(coi_device_name *name, const coi_device_name *from)
{
    if (name->job[0] == '\0')
        memcpy(name->job, from->job, sizeof(name->job));
    if (name->replica < 0)
        name->replica = from->replica;
    if (name->task < 0)
        name->task = from->task;
    if (name->type[0] == '\0')
        memcpy(name->type, from->type, sizeof(name->type));
    if (name->index < 0)
        name->index = from->index;
}

void
coi_device_complete(coi_device_name *name, const coi_device_name *defaults)
{
    static const coi_device_name constants = { "localhost", 0, 0, "CPU", 0 };

    if (defaults != NULL)
        fill(name, defaults);
    fill(name, &constants);
}

void
coi_device_format(const coi_device_name *name, char *out)
{
    char  *at = out;
    size_t left = CO_DEVICE_NAME_MAX;

    /* All parts at their longest fit: 5+63, 9+10, 6+10, 8+31, 1+10 and the zero are 154 bytes. */
#define ADD(...)                                                                                   \
    do {                                                                                           \
        int added_ = snprintf(at, left, __VA_ARGS__);                                              \
        at += added_;                                                                              \
        left -= (size_t)added_;                                                                    \
    } while (0)
    *out = '\0';
    if (name->job[0] != '\0')
        ADD("/job:%s", name->job);
    if (name->replica >= 0)
        ADD("/replica:%d", name->replica);
    if (name->task >= 0)
        ADD("/task:%d", name->task);
    if (name->type[0] != '\0')
        ADD("/device:%s", name->type);
    if (name->type[0] != '\0' && name->index >= 0)
        ADD(":%d", name->index);
    else if (name->type[0] != '\0')
        ADD(":*");
#undef ADD
}

void
coi_device_host(const coi_device_name *name, coi_device_name *out)
{
    if (out != name)
        *out = *name;
    memcpy(out->type, "CPU", sizeof("CPU"));
    out->index = 0;
}

bool
coi_device_name_equal(const coi_device_name *a, const coi_device_name *b)
{
    return a->index == b->index && a->task == b->task && a->replica == b->replica &&
           strcmp(a->type, b->type) == 0 && strcmp(a->job, b->job) == 0;
}
