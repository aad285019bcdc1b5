/* SPDX-License-Identifier: Apache-2.0 */
/* See checkpoint_index.h. */
#include "checkpoint/checkpoint_index.h"

#include "base/text.h"
#include "io/crc32c.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HEAD      "cohort checkpoints 1\n"
#define LINE      160 /* no line is longer */
#define PREFIX    "step-"
#define EXTENSION ".safetensors"

void
coi_index_free(coi_checkpoint_index *index)
{
    coi_free(index->memory, index->at, index->capacity * sizeof(*index->at));
    index->at = NULL;
    index->n = index->capacity = 0;
}

/* Where a number is, or would be. */
static size_t
place_of(const coi_checkpoint_index *index, int64_t step)
{
    size_t at = index->n;

    while (at > 0 && index->at[at - 1].step >= step)
        --at;
    return at;
}

bool
coi_index_put(coi_checkpoint_index *index, const coi_saved *saved)
{
    size_t at = place_of(index, saved->step);

    if (at == index->n || index->at[at].step != saved->step) {
        if (!coi_grow(index->memory, (void **)&index->at, &index->capacity, index->n + 1,
                      sizeof(*index->at)))
            return false;
        memmove(index->at + at + 1, index->at + at, (index->n - at) * sizeof(*index->at));
        ++index->n;
    }
    index->at[at] = *saved;
    return true;
}

void
coi_index_remove(coi_checkpoint_index *index, int64_t step)
{
    size_t at = place_of(index, step);

    if (at == index->n || index->at[at].step != step)
        return;
    --index->n;
    memmove(index->at + at, index->at + at + 1, (index->n - at) * sizeof(*index->at));
}

const coi_saved *
coi_index_find(const coi_checkpoint_index *index, int64_t step)
{
    size_t at = place_of(index, step);

    return at < index->n && index->at[at].step == step ? &index->at[at] : NULL;
}

static bool
is_better(co_better better, double a, double b)
{
    return better == CO_BETTER_LARGER ? a > b : a < b;
}

const coi_saved *
coi_index_best(const coi_checkpoint_index *index, co_better better)
{
    const coi_saved *best = NULL;

    for (size_t i = 0; i < index->n; ++i)
        if (!isnan(index->at[i].value) &&
            (best == NULL || !is_better(better, best->value, index->at[i].value)))
            best = &index->at[i];
    return best;
}

/* Among so many best: so many others at most are better, or as good and later. */
static bool
is_among_best(const coi_checkpoint_index *index, size_t at, int most, co_better better)
{
    const coi_saved *saved = &index->at[at];
    int              num_better = 0;

    if (isnan(saved->value))
        return false;
    for (size_t i = 0; i < index->n; ++i) {
        const coi_saved *other = &index->at[i];

        num_better += i != at && (is_better(better, other->value, saved->value) ||
                                  (other->value == saved->value && i > at));
    }
    return num_better < most;
}

const coi_saved *
coi_index_surplus(const coi_checkpoint_index *index, const co_checkpoint_options *options,
                  int64_t newest)
{
    size_t last = (size_t)options->keep_last;

    if (last == 0)
        return NULL;
    for (size_t i = 0; i + last < index->n; ++i)
        if (index->at[i].step != newest &&
            !is_among_best(index, i, options->keep_best, options->better))
            return &index->at[i];
    return NULL;
}

/* --- text --- */

size_t
coi_index_room(const coi_checkpoint_index *index)
{
    return (index->n + 2) * LINE;
}

char *
coi_index_text(const coi_checkpoint_index *index, size_t *n)
{
    size_t    capacity = coi_index_room(index);
    char     *text = coi_alloc(index->memory, capacity);
    coi_prose out = { text, capacity, 0 };

    if (text == NULL)
        return NULL;
    coi_put(&out, HEAD);
    for (size_t i = 0; i < index->n; ++i) {
        const coi_saved *saved = &index->at[i];
        uint64_t         bits;

        coi_put(&out, "step %" PRId64 " bytes %" PRIu64, saved->step, saved->nbytes);
        memcpy(&bits, &saved->value, sizeof(bits));
        if (!isnan(saved->value))
            coi_put(&out, " value %016" PRIx64, bits);
        coi_put(&out, "\n");
    }
    coi_put(&out, "crc32c %08" PRIx32 "\n", coi_crc32c(text, out.at));
    *n = out.at;
    return text;
}

/* What is still to be read of a text. */
typedef struct reader {
    const char *at, *end;
} reader;

static bool
take_word(reader *r, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

static bool
take_number(reader *r, uint64_t most, uint64_t *out)
{
    size_t n = 0;

    while (r->at + n < r->end && coi_ascii_digit(r->at[n]))
        ++n;
    if (!coi_text_number(r->at, n, most, out))
        return false;
    r->at += n;
    return true;
}

/* So many hexadecimal digits. */
static bool
take_bits(reader *r, int digits, uint64_t *out)
{
    static const char all[] = "0123456789abcdef";

    *out = 0;
    for (int i = 0; i < digits; ++i, ++r->at) {
        const char *digit = r->at < r->end ? memchr(all, *r->at, 16) : NULL;

        if (digit == NULL)
            return false;
        *out = *out << 4 | (uint64_t)(digit - all);
    }
    return true;
}

static bool
take_saved(reader *r, coi_saved *saved)
{
    uint64_t step, bits;

    saved->value = (double)NAN;
    if (!take_word(r, "step ") || !take_number(r, INT64_MAX, &step) || !take_word(r, " bytes ") ||
        !take_number(r, INT64_MAX, &saved->nbytes))
        return false;
    saved->step = (int64_t)step;
    if (take_word(r, " value ")) {
        if (!take_bits(r, 16, &bits))
            return false;
        memcpy(&saved->value, &bits, sizeof(bits));
    }
    return take_word(r, "\n");
}

static co_code
no_index(coi_checkpoint_index *index, size_t line, const char *what, co_error_info *err)
{
    coi_index_free(index);
    return coi_error(err, CO_DATA_LOSS, "line %zu of the index of checkpoints %s", line, what);
}

co_code
coi_index_parse(coi_checkpoint_index *index, const char *text, size_t n, co_error_info *err)
{
    reader   r = { text, text + n };
    size_t   line = 1, covered;
    uint64_t crc;

    index->n = 0;
    if (!take_word(&r, HEAD))
        return no_index(index, line, "is not 'cohort checkpoints 1'", err);
    for (;;) {
        coi_saved saved;

        covered = (size_t)(r.at - text);
        ++line;
        if (take_word(&r, "crc32c "))
            break;
        if (!take_saved(&r, &saved))
            return no_index(index, line, "cannot be read", err);
        if (index->n > 0 && saved.step <= index->at[index->n - 1].step)
            return no_index(index, line, "is not in the order of steps", err);
        if (!coi_index_put(index, &saved)) {
            coi_index_free(index);
            return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for an index of checkpoints");
        }
    }
    if (!take_bits(&r, 8, &crc) || !take_word(&r, "\n") || r.at != r.end)
        return no_index(index, line, "is not a checksum and the end", err);
    if (crc != coi_crc32c(text, covered))
        return no_index(index, line, "has a checksum that is not that of the lines before", err);
    return CO_OK;
}

/* --- names of files --- */

void
coi_name_of_step(int64_t step, char *out)
{
    snprintf(out, COI_CHECKPOINT_NAME, PREFIX "%" PRId64 EXTENSION, step);
}

int64_t
coi_step_of_name(const char *name)
{
    char     again[COI_CHECKPOINT_NAME];
    uint64_t step;
    reader   r = { name, name + strlen(name) };

    if (!take_word(&r, PREFIX) || !take_number(&r, INT64_MAX, &step))
        return -1;
    coi_name_of_step((int64_t)step, again); /* no zeros before it: one name for each */
    return strcmp(name, again) == 0 ? (int64_t)step : -1;
}
