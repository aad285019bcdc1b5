/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text for people. Tensors print as nested brackets, cut in the middle when long; per-replica
 * values as DV-FMT-1 says: kind, then one line per component. The text is valid UTF-8 and does not
 * depend on the locale of the host.
 */
#include "base/text.h"
#include "value/kind.h"
#include "value/variable_handle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG      100 /* a tensor of more elements is cut */
#define TEXT_SHOW 60  /* bytes of a string that are shown */

void
coi_print(coi_printer *out, const char *format, ...)
{
    va_list args;
    int     n;
    size_t  room = out->length < out->capacity ? out->capacity - out->length : 0;

    va_start(args, format);
    n = vsnprintf(room > 0 ? out->out + out->length : NULL, room, format, args);
    va_end(args);
    if (n > 0)
        out->length += (size_t)n;
}

void
coi_print_text(coi_printer *out, const char *text, size_t nbytes)
{
    size_t i = 0, length;

    coi_print(out, "\"");
    for (; i < nbytes && i < TEXT_SHOW; i += length) {
        unsigned char c = (unsigned char)text[i];

        length = coi_utf8_length(text + i);
        if (length == 0 || c < 0x20 || c == 0x7F) {
            length = 1;
            coi_print(out, "\\x%02x", c);
        } else if (c == '"' || c == '\\') {
            coi_print(out, "\\%c", c);
        } else {
            coi_print(out, "%.*s", (int)length, text + i);
        }
    }
    coi_print(out, i < nbytes ? "...\"" : "\"");
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

void
coi_print_real(coi_printer *out, double value, int most)
{
    char text[40];

    if (value != value) {
        coi_print(out, "nan"); /* without the sign that some C libraries show */
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
    coi_print(out, "%s", text);
    if (strpbrk(text, ".en") == NULL)
        coi_print(out, ".0");
}

static void
put_element(coi_printer *out, const co_value *tensor, int64_t i)
{
    co_dtype    dtype = (co_dtype)tensor->dtype;
    const char *at = (const char *)coi_data_on_host(tensor) + (size_t)i * coi_dtypes[dtype].size;
    int64_t     whole;
    double      real;

    if (dtype == CO_STRING) {
        const coi_text *text = (const coi_text *)coi_data_on_host(tensor) + i;

        coi_print_text(out, text->data, text->nbytes);
    } else if (dtype == CO_BOOL) {
        coi_print(out, *(const uint8_t *)at != 0 ? "true" : "false");
    } else if (coi_dtypes[dtype].floating) {
        coi_convert(dtype, at, CO_FLOAT64, &real, 1);
        coi_print_real(out, real, dtype == CO_FLOAT64 ? 17 : dtype == CO_FLOAT32 ? 9 : 6);
    } else {
        coi_convert(dtype, at, CO_INT64, &whole, 1);
        if (dtype == CO_UINT64)
            coi_print(out, "%" PRIu64, (uint64_t)whole);
        else
            coi_print(out, "%" PRId64, whole);
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
put_block(coi_printer *out, const co_value *tensor, int axis, int64_t offset, int64_t count)
{
    int64_t n, each, edge = edge_of(tensor);

    if (axis == tensor->ndim) {
        put_element(out, tensor, offset);
        return;
    }
    n = tensor->u.tensor.dims[axis];
    each = count / n;
    coi_print(out, "[");
    for (int64_t i = 0; i < n; ++i) {
        if (i == edge && n > 2 * edge && tensor->u.tensor.num_elements > LONG) {
            coi_print(out, ", ...");
            i = n - edge;
        }
        coi_print(out, i > 0 ? ", " : "");
        put_block(out, tensor, axis + 1, offset + i * each, each);
    }
    coi_print(out, "]");
}

static void put_elements(coi_printer *out, const co_value *tensor);

/* From a copy on the host, under a header on the stack. */
static void
put_device_elements(coi_printer *out, const co_value *tensor)
{
    co_device    *device = tensor->u.tensor.device;
    size_t        nbytes = coi_tensor_nbytes(tensor);
    void         *data = coi_alloc(device->memory, nbytes);
    co_value      copy = { .dtype = tensor->dtype, .ndim = tensor->ndim };
    co_error_info why; /* of a device that fails; its text says where the tensor is */

    coi_error_reset(&why);
    if (data == NULL || coi_tensor_download(tensor, data, &why) != CO_OK) {
        coi_print(out, "<on %s>", device->name);
    } else {
        copy.u.tensor = tensor->u.tensor;
        copy.u.tensor.device = device->host;
        copy.u.tensor.data = data;
        put_elements(out, &copy);
    }
    if (data != NULL)
        coi_free(device->memory, data, nbytes);
}

/* Brackets alone, whatever the shape, when there are no elements. */
static void
put_elements(coi_printer *out, const co_value *tensor)
{
    if (!coi_is_on_host(tensor))
        put_device_elements(out, tensor);
    else if (tensor->u.tensor.num_elements == 0)
        coi_print(out, "[]");
    else
        put_block(out, tensor, 0, 0, tensor->u.tensor.num_elements);
}

/* One without elements says what it is: brackets do not. */
void
coi_print_tensor(coi_printer *out, const co_value *tensor)
{
    char text[COI_SHAPE_TEXT];

    put_elements(out, tensor);
    if (tensor->u.tensor.num_elements == 0)
        coi_print(out, " shape=%s dtype=%s",
                  coi_shape_text(tensor->u.tensor.dims, tensor->ndim, text),
                  co_dtype_name((co_dtype)tensor->dtype));
}

void
coi_print_components(coi_printer *out, const char *kind, coi_values components)
{
    coi_print(out, "%s:{", kind);
    for (size_t i = 0; i < components.n; ++i) {
        coi_print(out, "\n  %zu: ", i);
        coi_print_value(out, components.items[i]);
    }
    coi_print(out, "\n}");
}

void
coi_print_variable(coi_printer *out, const co_value *value)
{
    const coi_variable *variable = value->u.variable;
    char                text[COI_SHAPE_TEXT];
    co_value           *now;

    if (variable->components != NULL) {
        coi_print_components(out, variable->ops->name,
                             (coi_values){ variable->components, variable->num_components });
        return;
    }
    coi_print(out, "<%s '%s' shape=%s dtype=%s", variable->ops->name, variable->name,
              coi_shape_text(variable->shape.dims, variable->shape.ndim, text),
              co_dtype_name((co_dtype)variable->dtype));
    now = variable->ops->peek != NULL ? variable->ops->peek(value) : NULL;
    if (now != NULL) {
        coi_print(out, " value=");
        put_elements(out, now);
        coi_unref(out->heap, now);
    } else {
        coi_print(out, ", no value yet");
    }
    coi_print(out, ">");
}

void
coi_print_spec(coi_printer *out, const co_value *spec)
{
    char text[COI_SHAPE_TEXT];

    if (coi_is_dataset_spec(spec))
        coi_print(out, "DatasetSpec");
    else
        coi_print(out, "TensorSpec(%s, %s)", coi_shape_text(spec->u.tensor.dims, spec->ndim, text),
                  co_dtype_name((co_dtype)spec->dtype));
}

void
coi_print_value(coi_printer *out, const co_value *value)
{
    if (value == NULL)
        coi_print(out, "NULL");
    else if (value->object.magic % 2 == 1 && value->object.cls == &coi_value_class)
        coi_kind_of(value)->print(out, value);
    else
        coi_print(out, "<not a live value>");
}

void
coi_format_element(const co_value *tensor, int64_t i, char *out, size_t capacity)
{
    coi_printer w = { NULL, out, capacity, 0 };

    put_element(&w, tensor, i);
}

size_t
coi_format(coi_heap *heap, const co_value *value, char *out, size_t capacity)
{
    coi_printer printer = { heap, out, capacity, 0 };

    if (capacity > 0)
        out[0] = '\0';
    coi_print_value(&printer, value);
    return printer.length;
}
