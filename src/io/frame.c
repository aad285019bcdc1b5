/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The framings: TFRecord, lines, records of one length. A TFRecord in a file:
 *
 *     | length, 8 bytes, little endian | its masked CRC-32C, 4 | data | its masked CRC-32C, 4 |
 */
#include "io/frame.h"

#include "io/crc32c.h"

#include <string.h>

static uint32_t
get32(const char *bytes)
{
    const uint8_t *at = (const uint8_t *)bytes;

    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void
put32(uint8_t *at, uint32_t word)
{
    for (int i = 0; i < 4; ++i)
        at[i] = (uint8_t)(word >> 8 * i);
}

void
coi_record_head(size_t nbytes, uint8_t head[COI_RECORD_HEAD])
{
    put32(head, (uint32_t)nbytes);
    put32(head + 4, (uint32_t)((uint64_t)nbytes >> 32));
    put32(head + 8, coi_crc32c_mask(coi_crc32c(head, 8)));
}

void
coi_record_foot(const void *data, size_t nbytes, uint8_t foot[COI_RECORD_FOOT])
{
    put32(foot, coi_crc32c_mask(coi_crc32c(data, nbytes)));
}

static coi_found
more(coi_frame *out, size_t need)
{
    out->need = need;
    return COI_FOUND_MORE;
}

/* A file that ends inside a header ends there, without an error (GEN-ERR-5). */
static coi_found
find_tfrecord(const coi_frame_sizes *sizes, const char *bytes, size_t n, bool is_last,
              int64_t number, coi_frame *out, co_error_info *err)
{
    uint64_t length;

    (void)sizes;
    if (n < COI_RECORD_HEAD)
        return is_last ? COI_FOUND_END : more(out, COI_RECORD_HEAD);
    length = get32(bytes) | (uint64_t)get32(bytes + 4) << 32;
    if (coi_crc32c_mask(coi_crc32c(bytes, 8)) != get32(bytes + 8)) {
        coi_error(err, CO_DATA_LOSS, "the checksum of the length is wrong%s",
                  number == 0 ? "; is this a TFRecord file, and the compression right?" : "");
        return COI_FOUND_ERROR;
    }
    if (length > PTRDIFF_MAX - COI_RECORD_HEAD - COI_RECORD_FOOT ||
        (is_last && n < length + COI_RECORD_HEAD + COI_RECORD_FOOT)) {
        coi_error(err, CO_DATA_LOSS,
                  "the record is cut off: of its %llu byte%s and 4 of checksum, %zu are there",
                  (unsigned long long)length, COI_S(length), n - COI_RECORD_HEAD);
        return COI_FOUND_ERROR;
    }
    if (n < length + COI_RECORD_HEAD + COI_RECORD_FOOT)
        return more(out, (size_t)length + COI_RECORD_HEAD + COI_RECORD_FOOT);
    *out = (coi_frame){ COI_RECORD_HEAD, (size_t)length,
                        (size_t)length + COI_RECORD_HEAD + COI_RECORD_FOOT, 0 };
    if (coi_crc32c_mask(coi_crc32c(bytes + COI_RECORD_HEAD, out->nbytes)) !=
        get32(bytes + COI_RECORD_HEAD + out->nbytes)) {
        coi_error(err, CO_DATA_LOSS, "the checksum of its %zu byte%s of data is wrong", out->nbytes,
                  COI_S(out->nbytes));
        return COI_FOUND_ERROR;
    }
    return COI_FOUND_RECORD;
}

const coi_framing coi_tfrecord_framing = { "tfrecord", true, false, find_tfrecord };

/* Where the end of a line is not in sight, twice as much is looked at next time. */
static coi_found
more_text(coi_frame *out, size_t n)
{
    return more(out, n + (n > 256 ? n : 256));
}

/* The line up to `end`, or to the end of the file if that is NULL. */
static coi_found
take_line(const char *bytes, size_t n, const char *end, coi_frame *out)
{
    size_t length = end != NULL ? (size_t)(end - bytes) : n;

    *out = (coi_frame){ 0, length, length + (end != NULL), 0 };
    return COI_FOUND_RECORD;
}

/* The last line, if no line feed ends it, is one only if it has more than carriage returns. */
static bool
is_empty(const char *bytes, size_t n)
{
    size_t i = 0;

    while (i < n && bytes[i] == '\r')
        ++i;
    return i == n;
}

static coi_found
find_line(const coi_frame_sizes *sizes, const char *bytes, size_t n, bool is_last, int64_t number,
          coi_frame *out, co_error_info *err)
{
    const char *end = n > 0 ? memchr(bytes, '\n', n) : NULL;

    (void)sizes, (void)number, (void)err;
    if (end == NULL && !is_last)
        return more_text(out, n);
    return end == NULL && is_empty(bytes, n) ? COI_FOUND_END : take_line(bytes, n, end, out);
}

const coi_framing coi_line_framing = { "text_lines", true, true, find_line };

static coi_found
find_fixed(const coi_frame_sizes *sizes, const char *bytes, size_t n, bool is_last, int64_t number,
           coi_frame *out, co_error_info *err)
{
    size_t header = number == 0 ? sizes->header : 0;

    (void)bytes;
    if (n >= header + sizes->record + sizes->footer) {
        *out = (coi_frame){ header, sizes->record, header + sizes->record, 0 };
        return COI_FOUND_RECORD;
    }
    if (!is_last)
        return more(out, header + sizes->record + sizes->footer);
    if (n == header + sizes->footer)
        return COI_FOUND_END;
    coi_error(
        err, CO_INVALID_ARGUMENT,
        "%zu byte%s %s left, which is not a record of %zu with a header of %zu and a footer of "
        "%zu",
        n, COI_S(n), n == 1 ? "is" : "are", sizes->record, header, sizes->footer);
    return COI_FOUND_ERROR;
}

const coi_framing coi_fixed_framing = { "fixed_length_records", false, false, find_fixed };

/* Whether a field may end before `at`: there is a delimiter, the end of a line or of all. */
static bool
ends_field(const char *at, const char *end, char delimiter)
{
    if (at < end && *at == '\r')
        ++at;
    else if (at < end && *at == delimiter)
        return true;
    return at == end || *at == '\n';
}

/*
 * The end of a row: a line feed outside quotes, which are opened at the beginning of a field and
 * nowhere else. Where they prove wrong lines later, closed before something else or never, the row
 * ends with the line that opened them: a stray quote costs no other row. NULL: not in sight.
 */
static const char *
row_end(const char *row, size_t n, char delimiter, bool is_last)
{
    const char *end = row + n, *at = row, *opened = NULL, *line, *stop, *quote;

    for (;;) {
        line = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        stop = line != NULL ? line : end;
        while (at < stop && (quote = memchr(at, '"', (size_t)(stop - at))) != NULL) {
            at = quote + 1;
            if (opened == NULL) {
                if (quote == row || quote[-1] == delimiter)
                    opened = quote;
            } else if (at < end && *at == '"') {
                ++at;
            } else {
                opened = ends_field(at, end, delimiter)
                             ? NULL
                             : memchr(opened, '\n', (size_t)(quote - opened));
                if (opened != NULL)
                    return opened;
            }
        }
        if (line == NULL || opened == NULL)
            break;
        at = line + 1;
    }
    if (line == NULL && opened != NULL && is_last)
        line = memchr(opened, '\n', (size_t)(end - opened));
    return line;
}

/* Rows of CSV; the first `header` rows of a file are passed over. What is wrong in a row is found
 * when it is cut into fields. */
static coi_found
find_row(const coi_frame_sizes *sizes, const char *bytes, size_t n, bool is_last, int64_t number,
         coi_frame *out, co_error_info *err)
{
    size_t header = number == 0 ? sizes->header : 0, skipped = 0;

    (void)err;
    for (;; --header) {
        const char *end = row_end(bytes + skipped, n - skipped, sizes->delimiter, is_last);

        if (end == NULL && !is_last)
            return more_text(out, n);
        if (n == skipped)
            return COI_FOUND_END;
        take_line(bytes + skipped, n - skipped, end, out);
        if (out->nbytes > 0 && bytes[skipped + out->nbytes - 1] == '\r')
            --out->nbytes;
        if (header == 0)
            break;
        skipped += out->consumed;
    }
    out->begin += skipped;
    out->consumed += skipped;
    return COI_FOUND_RECORD;
}

const coi_framing coi_csv_framing = { "csv", true, false, find_row };
