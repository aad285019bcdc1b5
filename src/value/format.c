/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text for people. Tensors print as nested brackets, cut in the middle when long; bundles as
 * DV-FMT-1 says: kind, then one line per component. The text is valid UTF-8 and does not depend on
 * the locale of the host.
 */
#include "base/text.h"
#include "value/value.h"
#include "value/variable_handle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG      100 /* a tensor of more elements is cut */
#define TEXT_SHOW 60  /* bytes of a string that are shown */

typedef struct writer {
    char  *out;
    size_t capacity;
    size_t length; /* needed so far */
} writer;

static void put(writer *w, const char *format, ...) CO_PRINTF(2, 3);

static void
put(writer *w, const char *format, ...)
{
    va_list args;
    int     n;
    size_t  room = w->length < w->capacity ? w->capacity - w->length : 0;

    va_start(args, format);
    n = vsnprintf(room > 0 ? w->out + w->length : NULL, room, format, args);
    va_end(args);
    if (n > 0)
        w->length += (size_t)n;
}

static void
put_text(writer *w, const char *text, size_t nbytes)
{
    size_t i = 0, length;

    put(w, "\"");
    for (; i < nbytes && i < TEXT_SHOW; i += length) {
        unsigned char c = (unsigned char)text[i];

        length = coi_utf8_length(text + i);
        if (length == 0 || c < 0x20 || c == 0x7F) {
            length = 1;
            put(w, "\\x%02x", c);
        } else if (c == '"' || c == '\\') {
            put(w, "\\%c", c);
        } else {
            put(w, "%.*s", (int)length, text + i);
        }
    }
    put(w, i < nbytes ? "...\"" : "\"");
}

/* The point of the host's locale, which may be any bytes, as a point. */
static void
make_point(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; ++from)
        if (coi_ascii_digit(*from) || coi_ascii_letter(*from) || *from == '-' || *from == '+')
            *to++ = *from;
        else if (to == text || to[-1] != '.')
            *to++ = '.';
    *to = '\0';
}

/* The shortest text of six to `most` digits that reads back as the same number. */
static void
put_real(writer *w, double value, int most)
{
    char text[40];

    if (value != value) {
        put(w, "nan"); /* without the sign that some C libraries show */
        return;
    }
    for (int digits = 6; digits <= most; ++digits) {
        double back;

        snprintf(text, sizeof(text), "%.*g", digits, value);
        back = strtod(text, NULL);
        if (back == value || (most == 9 && (float)back == (float)value))
            break;
    }
    make_point(text);
    put(w, "%s", text);
    if (strpbrk(text, ".en") == NULL)
        put(w, ".0");
}

static void
put_element(writer *w, const co_value *tensor, int64_t i)
{
    co_dtype    dtype = (co_dtype)tensor->dtype;
    const char *at = (const char *)tensor->u.tensor.data + (size_t)i * coi_dtypes[dtype].size;
    int64_t     whole;
    double      real;

    if (dtype == CO_STRING) {
        const coi_text *text = (const coi_text *)tensor->u.tensor.data + i;

        put_text(w, text->data, text->nbytes);
    } else if (dtype == CO_BOOL) {
        put(w, *(const uint8_t *)at != 0 ? "true" : "false");
    } else if (coi_dtypes[dtype].floating) {
        coi_convert(dtype, at, CO_FLOAT64, &real, 1);
        put_real(w, real, dtype == CO_FLOAT64 ? 17 : dtype == CO_FLOAT32 ? 9 : 6);
    } else {
        coi_convert(dtype, at, CO_INT64, &whole, 1);
        if (dtype == CO_UINT64)
            put(w, "%" PRIu64, (uint64_t)whole);
        else
            put(w, "%" PRId64, whole);
    }
}

/* Elements kept at each end of a dimension of a long tensor: fewer where dimensions multiply
 * them. */
static int64_t
edge_of(const co_value *tensor)
{
    return tensor->ndim <= 4 ? 3 : tensor->ndim == 5 ? 2 : 1;
}

/* Dimension `axis` of the block that begins at element `offset` and holds `count` elements. */
static void
put_block(writer *w, const co_value *tensor, int axis, int64_t offset, int64_t count)
{
    int64_t n, each, edge = edge_of(tensor);

    if (axis == tensor->ndim) {
        put_element(w, tensor, offset);
        return;
    }
    n = tensor->u.tensor.dims[axis];
    each = count / n;
    put(w, "[");
    for (int64_t i = 0; i < n; ++i) {
        if (i == edge && n > 2 * edge && tensor->u.tensor.num_elements > LONG) {
            put(w, ", ...");
            i = n - edge;
        }
        put(w, i > 0 ? ", " : "");
        put_block(w, tensor, axis + 1, offset + i * each, each);
    }
    put(w, "]");
}

static void put_value(writer *w, const co_value *value);

static void
put_tensor(writer *w, const co_value *tensor)
{
    if (!tensor->u.tensor.device->backend->host_memory)
        put(w, "<on %s>", tensor->u.tensor.device->name);
    else if (tensor->u.tensor.num_elements == 0)
        put(w, "[]");
    else
        put_block(w, tensor, 0, 0, tensor->u.tensor.num_elements);
}

static void
put_items(writer *w, const co_value *value)
{
    static const char *const open[] = { "[", "(", "(", "{" }, *const close[] = { "]", ")", ")",
                                                                                 "}" };
    int    which = value->kind - CO_KIND_LIST;
    size_t n = value->u.items.n;

    if (value->kind == CO_KIND_NAMED_TUPLE)
        put(w, "%s", value->u.items.type_name != NULL ? value->u.items.type_name : "");
    put(w, "%s", open[which]);
    for (size_t i = 0; i < n; ++i) {
        put(w, i > 0 ? ", " : "");
        if (value->kind == CO_KIND_DICT)
            put(w, "'%s': ", value->u.items.keys[i + 1]);
        else if (value->kind == CO_KIND_NAMED_TUPLE)
            put(w, "%s=", value->u.items.keys[i + 1]);
        put_value(w, value->u.items.items[i]);
    }
    put(w, value->kind == CO_KIND_TUPLE && n == 1 ? ",%s" : "%s", close[which]);
}

/* DV-FMT-1: the kind, then one line for each component. */
static void
put_components(writer *w, const char *kind, co_value *const *components, size_t n)
{
    put(w, "%s:{", kind);
    for (size_t i = 0; i < n; ++i) {
        put(w, "\n  %zu: ", i);
        put_value(w, components[i]);
    }
    put(w, "\n}");
}

static void
put_variable(writer *w, const co_value *value)
{
    const coi_variable *variable = value->u.variable;
    char                text[COI_SHAPE_TEXT];

    if (variable->components != NULL)
        put_components(w, variable->ops->name, variable->components, variable->num_components);
    else
        put(w, "<%s '%s' shape=%s dtype=%s>", variable->ops->name, variable->name,
            coi_shape_text(variable->shape.dims, variable->shape.ndim, text),
            co_dtype_name((co_dtype)variable->dtype));
}

static void
put_value(writer *w, const co_value *value)
{
    char text[COI_SHAPE_TEXT];

    if (value == NULL || !(value->object.magic % 2 == 1 && value->object.cls == &coi_value_class)) {
        put(w, value == NULL ? "NULL" : "<not a live value>");
        return;
    }
    switch (value->kind) {
    case CO_KIND_TENSOR: put_tensor(w, value); break;
    case CO_KIND_INT: put(w, "%" PRId64, value->u.i); break;
    case CO_KIND_FLOAT: put_real(w, value->u.f, 17); break;
    case CO_KIND_BOOL: put(w, value->u.b ? "true" : "false"); break;
    case CO_KIND_STRING: put_text(w, value->u.string.data, value->u.string.nbytes); break;
    case CO_KIND_NONE: put(w, "none"); break;
    case CO_KIND_VARIABLE: put_variable(w, value); break;
    case CO_KIND_PER_REPLICA:
    case CO_KIND_MIRRORED:
        put_components(w, value->kind == CO_KIND_PER_REPLICA ? "PerReplica" : "Mirrored",
                       value->u.per_replica.items, value->u.per_replica.n);
        break;
    case CO_KIND_SLICES:
        put(w, "IndexedSlices(values=");
        put_value(w, value->u.slices.values);
        put(w, ", indices=");
        put_value(w, value->u.slices.indices);
        if (value->u.slices.dense_shape != NULL) {
            put(w, ", dense_shape=");
            put_value(w, value->u.slices.dense_shape);
        }
        put(w, ")");
        break;
    case CO_KIND_DATASET: put(w, "Dataset"); break;
    case CO_KIND_SPEC:
        if (coi_is_dataset_spec(value)) {
            put(w, "DatasetSpec");
            break;
        }
        put(w, "TensorSpec(%s, %s)", coi_shape_text(value->u.tensor.dims, value->ndim, text),
            co_dtype_name((co_dtype)value->dtype));
        break;
    default: put_items(w, value); break;
    }
}

size_t
coi_format(const co_value *value, char *out, size_t capacity)
{
    writer w = { out, capacity, 0 };

    if (capacity > 0)
        out[0] = '\0';
    put_value(&w, value);
    return w.length;
}
