/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing safetensors files, byte for byte as the Python package does: tensors in the order of its
 * dtypes from the last to the first, then by name; a header without blanks, padded with some to a
 * multiple of 8.
 */
#include "io/tensor_file.h"

#include "base/text.h"
#include "io/crc32c.h"
#include "io/file_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRITE_PIECE ((uint64_t)1 << 20)

/* The order of the package: larger elements, which sort first, have larger ranks. */
static const struct {
    const char *name;
    int         rank;
} dtypes[CO_NUM_DTYPES] = {
    [CO_BOOL] = { "BOOL", 1 },     [CO_UINT8] = { "U8", 2 },     [CO_INT8] = { "I8", 3 },
    [CO_INT16] = { "I16", 4 },     [CO_UINT16] = { "U16", 5 },   [CO_FLOAT16] = { "F16", 6 },
    [CO_BFLOAT16] = { "BF16", 7 }, [CO_INT32] = { "I32", 8 },    [CO_UINT32] = { "U32", 9 },
    [CO_FLOAT32] = { "F32", 10 },  [CO_FLOAT64] = { "F64", 11 }, [CO_INT64] = { "I64", 12 },
    [CO_UINT64] = { "U64", 13 },
};

static int
compare_names(const void *a, const void *b)
{
    const coi_tensor_source *x = a, *y = b;
    size_t least = x->name_nbytes < y->name_nbytes ? x->name_nbytes : y->name_nbytes;
    int    order = memcmp(x->name, y->name, least);

    return order != 0 ? order
                      : (x->name_nbytes > y->name_nbytes) - (x->name_nbytes < y->name_nbytes);
}

static int
compare_sources(const void *a, const void *b)
{
    const coi_tensor_source *x = a, *y = b;
    int                      order = dtypes[y->dtype].rank - dtypes[x->dtype].rank;

    return order != 0 ? order : compare_names(a, b);
}

/* The header as it grows: first it is measured (writer NULL), then written. */
typedef struct header {
    coi_file_writer *writer;
    uint64_t         nbytes;
    co_error_info   *err;
} header;

static void
put(header *h, const void *bytes, size_t n)
{
    h->nbytes += n;
    if (h->writer != NULL && h->err->code == CO_OK)
        coi_file_writer_put(h->writer, bytes, n, h->err);
}

static void
put_word(header *h, const char *word)
{
    put(h, word, strlen(word));
}

static void
put_number(header *h, uint64_t number)
{
    char text[24];

    put(h, text, (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)number));
}

/* Escapes alone that JSON demands, the short ones where there is one. */
static void
put_string(header *h, const char *text, size_t n)
{
    static const char codes[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    size_t            plain = 0; /* where what is not written yet begins */

    put_word(h, "\"");
    for (size_t i = 0; i < n; ++i) {
        const char *code = text[i] != '\0' ? strchr(codes, text[i]) : NULL;
        char        escape[8];

        if (code == NULL && (unsigned char)text[i] >= 0x20)
            continue;
        put(h, text + plain, i - plain);
        plain = i + 1;
        if (code != NULL)
            snprintf(escape, sizeof(escape), "\\%c", letters[code - codes]);
        else
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned char)text[i]);
        put_word(h, escape);
    }
    put(h, text + plain, n - plain);
    put_word(h, "\"");
}

static void
put_metadata(header *h, const coi_metadata *metadata, size_t n)
{
    put_word(h, "\"__metadata__\":{");
    for (size_t i = 0; i < n; ++i) {
        put_word(h, i > 0 ? "," : "");
        put_string(h, metadata[i].key, metadata[i].key_nbytes);
        put_word(h, ":");
        put_string(h, metadata[i].value, metadata[i].value_nbytes);
    }
    put_word(h, "}");
}

static void
put_tensor(header *h, const coi_tensor_source *source)
{
    put_string(h, source->name, source->name_nbytes);
    put_word(h, ":{\"dtype\":\"");
    put_word(h, dtypes[source->dtype].name);
    put_word(h, "\",\"shape\":[");
    for (int d = 0; d < source->ndim; ++d) {
        put_word(h, d > 0 ? "," : "");
        put_number(h, (uint64_t)source->dims[d]);
    }
    put_word(h, "],\"data_offsets\":[");
    put_number(h, source->offset);
    put_word(h, ",");
    put_number(h, source->offset + source->nbytes);
    put_word(h, "]}");
}

static void
put_header(header *h, const coi_tensor_source *sources, size_t n, const coi_metadata *metadata,
           size_t num_metadata, bool has_metadata)
{
    put_word(h, "{");
    if (has_metadata)
        put_metadata(h, metadata, num_metadata);
    for (size_t i = 0; i < n; ++i) {
        put_word(h, i > 0 || has_metadata ? "," : "");
        put_tensor(h, &sources[i]);
    }
    put_word(h, "}");
    while (h->nbytes % 8 != 0)
        put_word(h, " ");
}

/* Text of a header has to be UTF-8. */
static bool
is_utf8(const char *text, size_t n)
{
    while (n > 0) {
        char   few[5] = { 0 };
        size_t length = 1;

        if ((unsigned char)text[0] >= 0x80) {
            memcpy(few, text, n < 4 ? n : 4);
            length = coi_utf8_length(few);
        }
        if (length == 0)
            return false;
        text += length;
        n -= length;
    }
    return true;
}

static co_code
check_texts(const coi_tensor_source *sources, size_t n, const coi_metadata *metadata,
            size_t num_metadata, co_error_info *err)
{
    for (size_t i = 0; i < n; ++i) {
        const coi_tensor_source *s = &sources[i];

        if (dtypes[s->dtype].name == NULL)
            return coi_error(err, CO_TYPE_ERROR,
                             "tensor '%.100s' is of %s, which safetensors files do not have",
                             s->name, co_dtype_name(s->dtype));
        if (!is_utf8(s->name, s->name_nbytes))
            return coi_error(err, CO_INVALID_ARGUMENT,
                             "the name '%.100s' is not UTF-8, which names in safetensors files are",
                             s->name);
        if (s->name_nbytes == strlen("__metadata__") &&
            memcmp(s->name, "__metadata__", s->name_nbytes) == 0)
            return coi_error(err, CO_INVALID_ARGUMENT,
                             "a tensor is called __metadata__, which safetensors files use for "
                             "metadata; give it another name");
    }
    for (size_t i = 0; i < num_metadata; ++i)
        if (!is_utf8(metadata[i].key, metadata[i].key_nbytes) ||
            !is_utf8(metadata[i].value, metadata[i].value_nbytes))
            return coi_error(err, CO_INVALID_ARGUMENT,
                             "metadata '%.100s' is not UTF-8, which texts in safetensors files are",
                             metadata[i].key);
    return CO_OK;
}

/* Sorted by name, equal names are neighbours. */
static co_code
check_twice(coi_tensor_source *sources, size_t n, co_error_info *err)
{
    if (n > 1)
        qsort(sources, n, sizeof(*sources), compare_names);
    for (size_t i = 1; i < n; ++i)
        if (compare_names(&sources[i - 1], &sources[i]) == 0)
            return coi_error(err, CO_INVALID_ARGUMENT, "the name '%.100s' comes twice",
                             sources[i].name);
    return CO_OK;
}

/* In pieces that are still in the cache when they are written. */
static co_code
put_data(coi_file_writer *writer, coi_tensor_source *source, co_error_info *err)
{
    const char *bytes = source->data;

    source->crc = 0;
    for (uint64_t done = 0; done < source->nbytes; done += WRITE_PIECE) {
        size_t n = (size_t)(source->nbytes - done < WRITE_PIECE ? source->nbytes - done
                                                                : WRITE_PIECE);

        source->crc = coi_crc32c_extend(source->crc, bytes + done, n);
        if (coi_file_writer_put(writer, bytes + done, n, err) != CO_OK)
            return err->code;
    }
    return CO_OK;
}

co_code
coi_safetensors_write(coi_file_writer *writer, coi_tensor_source *sources, size_t n,
                      const coi_metadata *metadata, size_t num_metadata, bool has_metadata,
                      co_error_info *err)
{
    header   h = { NULL, 0, err };
    uint64_t offset = 0;
    uint8_t  length[8];

    if (check_texts(sources, n, metadata, num_metadata, err) != CO_OK)
        return err->code;
    if (check_twice(sources, n, err) != CO_OK)
        return err->code;
    if (n > 1)
        qsort(sources, n, sizeof(*sources), compare_sources);
    for (size_t i = 0; i < n; ++i) {
        sources[i].offset = offset;
        offset += sources[i].nbytes;
    }
    put_header(&h, sources, n, metadata, num_metadata, has_metadata);
    if (h.nbytes > COI_SAFETENSORS_MAX_HEADER)
        return coi_error(err, CO_INVALID_ARGUMENT,
                         "the header has %llu bytes; readers take at most %u. Write the tensors "
                         "to several files",
                         (unsigned long long)h.nbytes, COI_SAFETENSORS_MAX_HEADER);
    for (int i = 0; i < 8; ++i)
        length[i] = (uint8_t)(h.nbytes >> 8 * i);
    h = (header){ writer, 0, err };
    if (coi_file_writer_put(writer, length, 8, err) != CO_OK)
        return err->code;
    put_header(&h, sources, n, metadata, num_metadata, has_metadata);
    for (size_t i = 0; i < n && err->code == CO_OK; ++i)
        put_data(writer, &sources[i], err);
    return err->code;
}
