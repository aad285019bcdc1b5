/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire format of protocol buffers, field by field: enough to iterate over messages that are
 * edited or read in part. Nothing is copied, and nothing is read past the end, whatever the bytes
 * are.
 */
#ifndef COI_BASE_WIRE_H
#define COI_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COI_WIRE_VARINT = 0,
    COI_WIRE_FIXED64 = 1,
    COI_WIRE_BYTES = 2,
    COI_WIRE_BEGIN_GROUP = 3,
    COI_WIRE_END_GROUP = 4,
    COI_WIRE_FIXED32 = 5
};

#define COI_WIRE_MAX_FIELD ((UINT64_C(1) << 29) - 1)
#define COI_WIRE_HEAD_MAX  20 /* bytes of a tag and a length or varint, at most */

/* What is left of a message. */
typedef struct coi_wire {
    const unsigned char *at, *end;
} coi_wire;

typedef struct coi_wire_field {
    uint64_t number;
    unsigned type;
    uint64_t value;   /* of a varint */
    coi_wire content; /* of bytes */
} coi_wire_field;

bool coi_wire_varint(coi_wire *wire, uint64_t *out);
/* The next field, groups as a whole. False if it is truncated, or of an unknown kind. */
bool coi_wire_next(coi_wire *wire, coi_wire_field *field);

/* Bytes being written, into a buffer whose size the caller has computed. */
typedef struct coi_wire_out {
    unsigned char *data;
    size_t         n;
} coi_wire_out;

void coi_wire_put_varint(coi_wire_out *out, uint64_t value);
void coi_wire_put_bytes(coi_wire_out *out, const void *from, size_t n);
static inline void
coi_wire_put_tag(coi_wire_out *out, unsigned number, unsigned type)
{
    coi_wire_put_varint(out, (uint64_t)number << 3 | type);
}

#endif
