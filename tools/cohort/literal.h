/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values written as text, for tables of operator calls: "[[1, 2], [3.5]]", "true", "VALID".
 * Attributes are written "axis=1 keepdims=true". The text is our own, so nothing here says what is
 * wrong with it; a value that cannot be read is a string.
 */
#ifndef COHORT_LITERAL_H
#define COHORT_LITERAL_H

#include <cohort/cohort.h>
#include <stdlib.h>
#include <string.h>

enum { LITERAL_MOST = 32 }; /* items of a list, and attributes */

static inline const char *
literal_skip(const char *at)
{
    return at + strspn(at, " ");
}

/* A number or a word, which ends at one of `stops`. */
static inline co_value *
literal_word(co_context *ctx, const char **text, const char *stops)
{
    size_t n = strcspn(*text, stops);
    char   word[64];
    char  *end;
    double real;

    n = n < sizeof(word) ? n : sizeof(word) - 1;
    memcpy(word, *text, n);
    word[n] = '\0';
    *text += n;
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)
        return co_bool(ctx, word[0] == 't');
    real = strtod(word, &end);
    if (end == word || *end != '\0')
        return co_string(ctx, word);
    return strpbrk(word, ".en") != NULL ? co_float(ctx, real)
                                        : co_int(ctx, strtoll(word, NULL, 10));
}

static inline co_value *
literal_value(co_context *ctx, const char **text, const char *stops)
{
    co_value *items[LITERAL_MOST];
    size_t    n = 0;

    if (**text != '[')
        return literal_word(ctx, text, stops);
    *text = literal_skip(*text + 1);
    while (**text != ']' && **text != '\0' && n < LITERAL_MOST) {
        items[n++] = literal_value(ctx, text, " ,]");
        *text = literal_skip(*text);
        *text = literal_skip(**text == ',' ? *text + 1 : *text);
    }
    *text += **text == ']';
    return co_list(ctx, items, n);
}

/* "axis=1 keepdims=true" as the dict that co_op_call takes; NULL for none. */
static inline co_value *
literal_attrs(co_context *ctx, const char *text)
{
    char        names[LITERAL_MOST][32];
    const char *keys[LITERAL_MOST];
    co_value   *items[LITERAL_MOST];
    size_t      n = 0;

    for (text = literal_skip(text); *text != '\0' && n < LITERAL_MOST; text = literal_skip(text)) {
        size_t length = strcspn(text, "=");

        if (length >= sizeof(names[0]) || text[length] == '\0')
            break;
        memcpy(names[n], text, length);
        names[n][length] = '\0';
        keys[n] = names[n];
        text += length + 1;
        items[n++] = literal_value(ctx, &text, " ");
    }
    return n > 0 ? co_dict(ctx, keys, items, n) : NULL;
}

#endif
