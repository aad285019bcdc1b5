/* SPDX-License-Identifier: Apache-2.0 */
/* Formatting of one-line messages and reading of numbers and words; see text.h. */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

size_t
coi_utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t               length = s[0] < 0x80   ? 1
                                  : s[0] < 0xC2 ? 0
                                  : s[0] < 0xE0 ? 2
                                  : s[0] < 0xF0 ? 3
                                  : s[0] < 0xF5 ? 4
                                                : 0;
    unsigned char        low = 0x80;
    unsigned char        high = 0xBF;

    if (s[0] == 0xE0)
        low = 0xA0;
    else if (s[0] == 0xED)
        high = 0x9F;
    else if (s[0] == 0xF0)
        low = 0x90;
    else if (s[0] == 0xF4)
        high = 0x8F;
    if (length > 1 && (s[1] < low || s[1] > high))
        return 0;
    for (size_t i = 2; i < length; ++i)
        if (s[i] < 0x80 || s[i] > 0xBF)
            return 0;
    return length;
}

/* Replace in place what would break a line or its encoding. */
static void
make_safe(char *text)
{
    unsigned char *s = (unsigned char *)text;

    while (*s != '\0') {
        size_t length = coi_utf8_length((const char *)s);

        if (length == 0 || *s == 0x7F || (*s < 0x20 && *s != '\n' && *s != '\t'))
            *s = '?';
        else if (*s < 0x20)
            *s = ' ';
        s += length == 0 ? 1 : length;
    }
}

/* The end of a text that was cut: drop the sequence the cut went through and say "...". */
static size_t
mark_cut(char *out, size_t capacity)
{
    size_t at = capacity - 4;

    while (at > 0 && ((unsigned char)out[at] & 0xC0) == 0x80)
        --at;
    memcpy(out + at, "...", 4);
    return at + 3;
}

/* What vsnprintf left behind becomes a line; wanted is what it returned. */
static size_t
finish_line(char *out, size_t capacity, int wanted)
{
    size_t length = wanted > 0 ? (size_t)wanted : 0;

    if (wanted < 0)
        length = (size_t)snprintf(out, capacity, "%s", "(message could not be formatted)");
    if (length >= capacity)
        length = mark_cut(out, capacity);
    make_safe(out);
    return length;
}

size_t
coi_text_line_va(char *out, size_t capacity, const char *format, va_list args)
{
    return finish_line(out, capacity, vsnprintf(out, capacity, format, args));
}

size_t
coi_text_line(char *out, size_t capacity, const char *format, ...)
{
    va_list args;
    int     wanted;

    va_start(args, format);
    wanted = vsnprintf(out, capacity, format, args);
    va_end(args);
    return finish_line(out, capacity, wanted);
}

void
coi_put(coi_prose *out, const char *format, ...)
{
    bool    fits = out->at < out->capacity;
    va_list args;
    int     length;

    va_start(args, format);
    length = vsnprintf(fits ? out->text + out->at : NULL, fits ? out->capacity - out->at : 0,
                       format, args);
    va_end(args);
    out->at += length > 0 ? (size_t)length : 0;
}

void
coi_put_end(coi_prose *out)
{
    if (out->at >= out->capacity)
        out->at = mark_cut(out->text, out->capacity);
}

const char *
coi_path_end(const char *path, size_t most)
{
    size_t      length = strlen(path);
    const char *end = path + (length > most ? length - most : 0), *folder = strchr(end, '/');

    return end != path && folder != NULL && folder[1] != '\0' ? folder + 1 : end;
}

bool
coi_text_number(const char *text, size_t length, uint64_t max, uint64_t *out)
{
    uint64_t number = 0;

    if (length == 0)
        return false;
    for (size_t i = 0; i < length; ++i) {
        uint64_t digit = (uint64_t)(text[i] - '0');

        if (!coi_ascii_digit(text[i]) || number > max / 10)
            return false;
        number *= 10;
        if (digit > max - number)
            return false;
        number += digit;
    }
    *out = number;
    return true;
}

bool
coi_text_same(const char *text, size_t length, const char *word)
{
    for (size_t i = 0; i < length; ++i)
        if (word[i] == '\0' || coi_ascii_upper(text[i]) != coi_ascii_upper(word[i]))
            return false;
    return word[length] == '\0';
}
