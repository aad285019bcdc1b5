/* SPDX-License-Identifier: Apache-2.0 */
/* A strict reader of JSON, see json.h. The core needs no library for it. */
#include "io/json.h"

#include "base/text.h"

#include <string.h>

bool
coi_json_fail(coi_json *json, const char *expected)
{
    int next = json->at < json->end ? (unsigned char)*json->at : -1;

    if (next < 0)
        coi_error(json->err, CO_DATA_LOSS, "byte %zu of the header: expected %s, and it ends there",
                  (size_t)(json->at - json->begin), expected);
    else if (next >= 0x20 && next < 0x7f)
        coi_error(json->err, CO_DATA_LOSS, "byte %zu of the header: expected %s, found '%c'",
                  (size_t)(json->at - json->begin), expected, next);
    else
        coi_error(json->err, CO_DATA_LOSS, "byte %zu of the header: expected %s, found byte 0x%02x",
                  (size_t)(json->at - json->begin), expected, (unsigned)next);
    return false;
}

bool
coi_json_init(coi_json *json, char *bytes, size_t nbytes, co_error_info *err)
{
    *json = (coi_json){ bytes, bytes, bytes + nbytes, 0, err };
    while (json->at < json->end) {
        unsigned char first = (unsigned char)*json->at;
        size_t        n = 1;
        char          few[5] = { 0 };

        if (first >= 0x80) { /* a sequence at the end may be cut off */
            memcpy(few, json->at,
                   (size_t)(json->end - json->at) < 4 ? (size_t)(json->end - json->at) : 4);
            n = coi_utf8_length(few);
        }
        if (n == 0)
            return coi_json_fail(json, "UTF-8");
        json->at += n;
    }
    json->at = bytes;
    return true;
}

static void
skip_blanks(coi_json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        ++json->at;
}

/* The next character that is not blank; 0 at the end. */
static char
peek(coi_json *json)
{
    skip_blanks(json);
    return json->at < json->end ? *json->at : '\0';
}

static bool
eat(coi_json *json, char c)
{
    if (peek(json) != c || json->at == json->end)
        return false;
    ++json->at;
    return true;
}

static bool
eat_word(coi_json *json, const char *word)
{
    size_t n = strlen(word);

    skip_blanks(json);
    if ((size_t)(json->end - json->at) < n || memcmp(json->at, word, n) != 0)
        return false;
    json->at += n;
    return true;
}

/* --- objects and arrays --- */

static bool
begin(coi_json *json, char opening, const char *expected)
{
    if (!coi_json_ok(json))
        return false;
    if (!eat(json, opening))
        return coi_json_fail(json, expected);
    if (++json->depth > COI_JSON_DEPTH)
        return coi_json_fail(json, "fewer than 128 arrays and objects inside each other");
    return true;
}

bool
coi_json_begin_object(coi_json *json)
{
    return begin(json, '{', "an object");
}

bool
coi_json_begin_array(coi_json *json)
{
    return begin(json, '[', "an array");
}

/* Whether there is another item; the closing bracket is passed. */
static bool
next(coi_json *json, size_t *count, char closing, const char *expected)
{
    if (!coi_json_ok(json))
        return false;
    if (eat(json, closing)) {
        --json->depth;
        return false;
    }
    if (*count > 0 && !eat(json, ','))
        return coi_json_fail(json, expected);
    ++*count;
    return true;
}

bool
coi_json_next_item(coi_json *json, size_t *count)
{
    return next(json, count, ']', "',' or ']'");
}

bool
coi_json_next_key(coi_json *json, size_t *count, coi_json_text *key)
{
    if (!next(json, count, '}', "',' or '}'") || !coi_json_string(json, key))
        return false;
    return eat(json, ':') || coi_json_fail(json, "':'");
}

/* --- strings --- */

/* Four hexadecimal digits. */
static bool
eat_hex(coi_json *json, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; ++i, ++json->at) {
        char c = json->at < json->end ? *json->at : '\0';

        if (c >= '0' && c <= '9')
            *out = *out << 4 | (unsigned)(c - '0');
        else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
            *out = *out << 4 | (unsigned)((c | 0x20) - 'a' + 10);
        else
            return coi_json_fail(json, "four hexadecimal digits");
    }
    return true;
}

/* A character as UTF-8, which is shorter than its escape. */
static char *
put_utf8(char *to, unsigned c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *to++ = (char)(0xe0 | c >> 12);
        } else {
            *to++ = (char)(0xf0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        }
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (c & 0x3f));
    return to;
}

/* What follows "\u". Characters beyond 16 bits are two escapes. */
static bool
eat_unicode(coi_json *json, char **to)
{
    unsigned c, low;

    if (!eat_hex(json, &c))
        return false;
    if (c >= 0xdc00 && c <= 0xdfff)
        return coi_json_fail(json, "the first half of a surrogate pair before its second");
    if (c >= 0xd800 && c <= 0xdbff) {
        if (json->end - json->at < 2 || json->at[0] != '\\' || json->at[1] != 'u')
            return coi_json_fail(json, "the second half of a surrogate pair");
        json->at += 2;
        if (!eat_hex(json, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return coi_json_fail(json, "the second half of a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    *to = put_utf8(*to, c);
    return true;
}

/* What follows a backslash. */
static bool
eat_escape(coi_json *json, char **to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char              c = json->at < json->end ? *json->at : '\0';
    const char       *found = c != '\0' ? strchr(names, c) : NULL;

    if (found != NULL) {
        *(*to)++ = values[found - names];
        ++json->at;
        return true;
    }
    if (c != 'u')
        return coi_json_fail(json, "an escape of JSON");
    ++json->at;
    return eat_unicode(json, to);
}

bool
coi_json_string(coi_json *json, coi_json_text *out)
{
    char *to;

    if (!coi_json_ok(json))
        return false;
    if (!eat(json, '"'))
        return coi_json_fail(json, "a string");
    out->data = to = json->at;
    while (json->at < json->end && *json->at != '"') {
        if ((unsigned char)*json->at < 0x20)
            return coi_json_fail(json, "no control character in a string");
        if (*json->at == '\\') {
            ++json->at;
            if (!eat_escape(json, &to))
                return false;
        } else {
            *to++ = *json->at++;
        }
    }
    if (json->at == json->end)
        return coi_json_fail(json, "the end of a string");
    ++json->at;
    out->nbytes = (size_t)(to - out->data);
    *to = '\0'; /* at the closing quote, or before it */
    return true;
}

/* --- other values --- */

static bool
is_digit(const coi_json *json)
{
    return json->at < json->end && coi_ascii_digit(*json->at);
}

bool
coi_json_uint(coi_json *json, uint64_t *out)
{
    static const char expected[] = "a whole number from 0 to 2^64 - 1";
    const char       *first;

    if (!coi_json_ok(json))
        return false;
    skip_blanks(json);
    first = json->at;
    for (*out = 0; is_digit(json); ++json->at) {
        unsigned digit = (unsigned)(*json->at - '0');

        if (*out > (UINT64_MAX - digit) / 10)
            return coi_json_fail(json, expected);
        *out = *out * 10 + digit;
    }
    if (json->at == first || (*first == '0' && json->at - first > 1) ||
        (json->at < json->end && strchr(".eE", *json->at) != NULL && *json->at != '\0'))
        return coi_json_fail(json, expected);
    return true;
}

bool
coi_json_null(coi_json *json)
{
    return coi_json_ok(json) && eat_word(json, "null");
}

/* Digits; at least one. */
static bool
skip_digits(coi_json *json)
{
    if (!is_digit(json))
        return coi_json_fail(json, "a digit");
    while (is_digit(json))
        ++json->at;
    return true;
}

static bool
skip_number(coi_json *json)
{
    (void)eat(json, '-');
    if (json->at < json->end && *json->at == '0')
        ++json->at;
    else if (!skip_digits(json))
        return false;
    if (json->at < json->end && *json->at == '.') {
        ++json->at;
        if (!skip_digits(json))
            return false;
    }
    if (json->at < json->end && (*json->at | 0x20) == 'e') {
        ++json->at;
        if (json->at < json->end && (*json->at == '+' || *json->at == '-'))
            ++json->at;
        return skip_digits(json);
    }
    return true;
}

static bool
skip_scalar(coi_json *json)
{
    coi_json_text text;
    char          c = peek(json);

    if (c == '"')
        return coi_json_string(json, &text);
    if (c == '-' || coi_ascii_digit(c))
        return skip_number(json);
    return eat_word(json, "true") || eat_word(json, "false") || eat_word(json, "null") ||
           coi_json_fail(json, "a value");
}

bool
coi_json_skip(coi_json *json)
{
    size_t        count[COI_JSON_DEPTH + 1]; /* of items so far, in what is open */
    bool          is_object[COI_JSON_DEPTH + 1];
    coi_json_text key;
    int           depth = 0;

    while (coi_json_ok(json)) {
        char c = peek(json);

        if (c == '{' || c == '[') {
            if (!begin(json, c, "a value"))
                return false;
            count[depth] = 0;
            is_object[depth++] = c == '{';
        } else if (!skip_scalar(json)) {
            return false;
        }
        while (depth > 0 &&
               !(is_object[depth - 1] ? coi_json_next_key(json, &count[depth - 1], &key)
                                      : coi_json_next_item(json, &count[depth - 1]))) {
            if (!coi_json_ok(json))
                return false;
            --depth;
        }
        if (depth == 0)
            return true;
    }
    return false;
}

bool
coi_json_end(coi_json *json)
{
    if (!coi_json_ok(json))
        return false;
    skip_blanks(json);
    return json->at == json->end || coi_json_fail(json, "nothing more");
}
