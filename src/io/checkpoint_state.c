/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorFlow's text file `checkpoint`, which names the checkpoints of a folder:
 *
 *     model_checkpoint_path: "m-2"
 *     all_model_checkpoint_paths: "m-1"
 *     all_model_checkpoint_paths: "m-2"
 *     all_model_checkpoint_timestamps: 1700000000.5
 *
 * It is the text form of a protocol buffer; of that, fields with a string or a number are read.
 */
#include "io/tensor_file.h"

#include "base/text.h"

#include <string.h>

#define MAX_BYTES ((uint64_t)16 << 20)

typedef struct reader {
    char *begin, *at, *end;
} reader;

static void
skip_blanks(reader *r)
{
    while (r->at < r->end && (strchr(" \t\r\n,;", *r->at) != NULL && *r->at != '\0'))
        ++r->at;
    if (r->at < r->end && *r->at == '#') {
        while (r->at < r->end && *r->at != '\n')
            ++r->at;
        skip_blanks(r);
    }
}

/* Up to three octal digits. */
static char
octal(reader *r)
{
    unsigned value = 0;

    for (int i = 0; i < 3 && r->at < r->end && *r->at >= '0' && *r->at <= '7'; ++i)
        value = value * 8 + (unsigned)(*r->at++ - '0');
    return (char)value;
}

/* What follows a backslash; escapes that paths do not have are taken as they are. */
static char
escape(reader *r)
{
    static const char names[] = "nrt\"'\\", values[] = "\n\r\t\"'\\";
    const char       *found;
    char              c = *r->at;

    if (c >= '0' && c <= '7')
        return octal(r);
    ++r->at;
    found = c != '\0' ? strchr(names, c) : NULL;
    return found != NULL ? values[found - names] : c;
}

/* A string in quotes, decoded in place; NULL if it is none. */
static char *
eat_string(reader *r)
{
    char quote = r->at < r->end ? *r->at : '\0', *text, *to;

    if (quote != '"' && quote != '\'')
        return NULL;
    text = to = ++r->at;
    while (r->at < r->end && *r->at != quote && *r->at != '\n') {
        char c = *r->at++;

        if (c == '\\' && r->at < r->end)
            c = escape(r);
        if (c == '\0') /* in no path */
            return NULL;
        *to++ = c;
    }
    if (r->at == r->end || *r->at != quote)
        return NULL;
    ++r->at;
    *to = '\0';
    return text;
}

static bool
is_word(char c)
{
    return coi_ascii_letter(c) || coi_ascii_digit(c) || c == '_' || c == '.' || c == '-' ||
           c == '+';
}

static size_t
eat_word(reader *r)
{
    char *first = r->at;

    while (r->at < r->end && is_word(*r->at))
        ++r->at;
    return (size_t)(r->at - first);
}

static bool
add_path(coi_checkpoint_state *state, const char *path)
{
    void *paths = state->paths;
    bool  fits = coi_grow(state->memory, &paths, &state->cap_paths, state->num_paths + 1,
                          sizeof(*state->paths));

    state->paths = paths;
    if (fits)
        state->paths[state->num_paths++] = path;
    return fits;
}

/* One field; false if it cannot be understood. */
static bool
read_field(reader *r, coi_checkpoint_state *state, bool *has_memory)
{
    const char *name = r->at;
    size_t      n = eat_word(r);
    char       *text;

    skip_blanks(r);
    if (n == 0 || r->at == r->end || *r->at++ != ':')
        return false;
    skip_blanks(r);
    text = eat_string(r);
    if (text == NULL)
        return eat_word(r) > 0;
    if (coi_text_same(name, n, "model_checkpoint_path"))
        state->latest = text;
    else if (coi_text_same(name, n, "all_model_checkpoint_paths"))
        *has_memory = add_path(state, text);
    return true;
}

co_code
coi_checkpoint_state_read(coi_checkpoint_state *state, coi_memory *memory, const char *folder,
                          co_error_info *err)
{
    char   *path = coi_join_path(memory, folder, "checkpoint");
    reader  r;
    bool    good = true, has_memory = path != NULL;
    co_code rc = CO_OK;

    *state = (coi_checkpoint_state){ .memory = memory };
    if (path != NULL)
        rc = coi_read_file(memory, path, MAX_BYTES, &state->bytes, &state->nbytes, err);
    if (rc == CO_NOT_FOUND && err != NULL) {
        coi_error_reset(err);
        coi_error(
            err, CO_NOT_FOUND,
            "there is no file '%s', by which a folder names TensorFlow's checkpoints; name one "
            "of the files of tensors in the folder",
            path);
    }
    if (path != NULL && rc == CO_OK) {
        r = (reader){ state->bytes, state->bytes, state->bytes + state->nbytes };
        for (skip_blanks(&r); good && has_memory && r.at < r.end; skip_blanks(&r))
            good = read_field(&r, state, &has_memory);
        if (!good)
            rc = coi_error(err, CO_DATA_LOSS,
                           "'%s', byte %zu: expected a field, as model_checkpoint_path: \"name\"",
                           path, (size_t)(r.at - r.begin));
        else if (state->latest == NULL || state->latest[0] == '\0')
            rc = coi_error(err, CO_DATA_LOSS, "'%s' has no model_checkpoint_path", path);
    }
    if (!has_memory)
        rc = coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to read the checkpoints of '%s'",
                       folder);
    if (path != NULL)
        coi_free(memory, path, strlen(path) + 1);
    if (rc != CO_OK)
        coi_checkpoint_state_free(state);
    return rc;
}

void
coi_checkpoint_state_free(coi_checkpoint_state *state)
{
    coi_free(state->memory, state->bytes, state->nbytes);
    coi_free(state->memory, state->paths, state->cap_paths * sizeof(*state->paths));
    state->bytes = NULL;
    state->paths = NULL;
    state->cap_paths = 0;
}
