/* SPDX-License-Identifier: Apache-2.0 */
/* Iterating over and writing the fields of serialized messages. */
#include "base/wire.h"

#include <string.h>

#define MAX_GROUPS 100 /* inside each other, as parsers of protocol buffers allow */

bool
coi_wire_varint(coi_wire *wire, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; wire->at < wire->end && shift < 64; shift += 7) {
        unsigned char byte = *wire->at++;

        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool
skip_bytes(coi_wire *wire, uint64_t n)
{
    if (n > (uint64_t)(wire->end - wire->at))
        return false;
    wire->at += n;
    return true;
}

/* Skip a field whose tag has been read. */
static bool
skip_content(coi_wire *wire, coi_wire_field *field)
{
    uint64_t n;

    switch (field->type) {
    case COI_WIRE_VARINT: return coi_wire_varint(wire, &field->value);
    case COI_WIRE_FIXED64: return skip_bytes(wire, 8);
    case COI_WIRE_FIXED32: return skip_bytes(wire, 4);
    case COI_WIRE_BYTES:
        if (!coi_wire_varint(wire, &n))
            return false;
        field->content.at = wire->at;
        if (!skip_bytes(wire, n))
            return false;
        field->content.end = wire->at;
        return true;
    default: return false;
    }
}

static bool
read_tag(coi_wire *wire, coi_wire_field *field)
{
    uint64_t tag;

    if (!coi_wire_varint(wire, &tag))
        return false;
    field->number = tag >> 3;
    field->type = (unsigned)(tag & 7);
    return field->number >= 1 && field->number <= COI_WIRE_MAX_FIELD;
}

bool
coi_wire_next(coi_wire *wire, coi_wire_field *field)
{
    uint64_t       open[MAX_GROUPS];
    int            depth = 0;
    coi_wire_field inner;

    if (!read_tag(wire, field))
        return false;
    if (field->type != COI_WIRE_BEGIN_GROUP)
        return skip_content(wire, field);
    open[depth++] = field->number;
    while (depth > 0) {
        if (!read_tag(wire, &inner))
            return false;
        if (inner.type == COI_WIRE_END_GROUP) {
            if (inner.number != open[--depth])
                return false;
        } else if (inner.type == COI_WIRE_BEGIN_GROUP) {
            if (depth == MAX_GROUPS)
                return false;
            open[depth++] = inner.number;
        } else if (!skip_content(wire, &inner)) {
            return false;
        }
    }
    return true;
}

void
coi_wire_put_varint(coi_wire_out *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        out->data[out->n++] = (unsigned char)(value | 0x80);
    out->data[out->n++] = (unsigned char)value;
}

void
coi_wire_put_bytes(coi_wire_out *out, const void *from, size_t n)
{
    if (n > 0)
        memcpy(out->data + out->n, from, n);
    out->n += n;
}
