/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text that the library shows to people, and untrusted text that it reads: one-line messages of
 * valid UTF-8, whole numbers with limits, ASCII case. Nothing here depends on the locale.
 */
#ifndef COI_BASE_TEXT_H
#define COI_BASE_TEXT_H

#include <cohort/api.h>
#include <stdarg.h>
#include <string.h>

/*
 * Format into out: one line, no control characters, valid UTF-8 (bytes that are not become '?'),
 * "..." at the end when it was cut. capacity is at least 4. Returns the length.
 */
size_t coi_text_line(char *out, size_t capacity, const char *format, ...) CO_PRINTF(3, 4);
size_t coi_text_line_va(char *out, size_t capacity, const char *format, va_list args)
    CO_PRINTF(3, 0);

/* Text that grows: what does not fit is counted, not kept. The text ends with a zero byte if there
 * is room for one. */
typedef struct coi_prose {
    char  *text;
    size_t capacity, at; /* at: the length that all of it would have */
} coi_prose;
void coi_put(coi_prose *out, const char *format, ...) CO_PRINTF(2, 3);
/* The text is complete: one that was cut ends with "...". The capacity is at least 4. */
void coi_put_end(coi_prose *out);

/* For "%.*s%s": at most that many bytes of a text, and "..." if there are more. */
#define COI_CUT(most, text) (int)(most), (text), strlen(text) > (most) ? "..." : ""

/* The end of a path that says most: at most that many bytes, from a folder on where there is one.
 */
const char *coi_path_end(const char *path, size_t most);

/*
 * Length of the valid UTF-8 sequence at text, 0 when there is none. The text ends with a zero byte,
 * which ends every sequence in time. Overlong forms and surrogates count as invalid.
 */
size_t coi_utf8_length(const char *text);

/* Decimal digits and nothing else, at most max. */
bool coi_text_number(const char *text, size_t length, uint64_t max, uint64_t *out);

static inline char
coi_ascii_upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static inline bool
coi_ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool
coi_ascii_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Does text[0..length) equal `word`, ASCII case aside? */
bool coi_text_same(const char *text, size_t length, const char *word);

#endif
