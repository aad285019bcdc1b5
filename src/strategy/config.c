/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update_config_proto of the v1 interface (S-CFG-*): one flag of a serialized tf.ConfigProto is set
 * for mirrored strategies. The message is edited field by field as it lies there, so that fields we
 * know nothing of survive, and no library for protocol buffers is needed for one bit. What
 * strategies of several processes set (MW-12) is not here.
 */
#include <cohort/extended.h>

#include "strategy/strategy.h"

#include <string.h>

enum { ISOLATE_SESSION_STATE = 15, VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
static const unsigned char isolate[] = { ISOLATE_SESSION_STATE << 3 | VARINT, 1 };

/* A position in a message. */
typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static bool
read_varint(cursor *c, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; c->at < c->end && shift < 64; shift += 7) {
        unsigned char byte = *c->at++;

        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* Pass over one field; false if it is cut off or of a kind that messages of today do not have. */
static bool
skip_field(cursor *c, uint64_t *number)
{
    uint64_t tag, length = 0;

    if (!read_varint(c, &tag))
        return false;
    *number = tag >> 3;
    switch (tag & 7) {
    case VARINT: return read_varint(c, &length);
    case FIXED64: length = 8; break;
    case FIXED32: length = 4; break;
    case BYTES:
        if (!read_varint(c, &length))
            return false;
        break;
    default: return false;
    }
    if (length > (uint64_t)(c->end - c->at))
        return false;
    c->at += length;
    return true;
}

/* The message with the flag set, in the order of field numbers; `out` has room for the flag
 * besides. Its length, or SIZE_MAX. */
static size_t
set_isolated(cursor c, unsigned char *out)
{
    unsigned char *to = out;
    bool           written = false;
    uint64_t       number;

    while (c.at < c.end) {
        const unsigned char *field = c.at;

        if (!skip_field(&c, &number))
            return SIZE_MAX;
        if (number == ISOLATE_SESSION_STATE)
            continue;
        if (number > ISOLATE_SESSION_STATE && !written) {
            memcpy(to, isolate, sizeof(isolate));
            to += sizeof(isolate);
            written = true;
        }
        memcpy(to, field, (size_t)(c.at - field));
        to += c.at - field;
    }
    if (!written) {
        memcpy(to, isolate, sizeof(isolate));
        to += sizeof(isolate);
    }
    return (size_t)(to - out);
}

static co_value *
isolated_copy(co_context *ctx, const co_value *config)
{
    const unsigned char *bytes = (const unsigned char *)config->u.string.data;
    size_t               room = config->u.string.nbytes + sizeof(isolate), length;
    unsigned char       *out = coi_small_alloc(&ctx->heap, room);
    co_value            *made = NULL;

    if (out == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a message of %zu bytes", room);
        return NULL;
    }
    length = set_isolated((cursor){ bytes, bytes + config->u.string.nbytes }, out);
    if (length == SIZE_MAX)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (config) of update_config_proto is no serialized message: a "
                 "field is cut off or unreadable");
    else
        made = co_bytes(ctx, out, length);
    coi_small_free(&ctx->heap, out, room);
    return made;
}

co_value *
co_update_config_proto(co_context *ctx, co_strategy *strategy, co_value *config)
{
    char text[COI_STRATEGY_TEXT];

    COI_ENTER(ctx, "update_config_proto", NULL);
    if (!coi_check_strategy(ctx, strategy, 2))
        return NULL;
    if (config == NULL || config->kind == CO_KIND_NONE)
        return co_none(ctx);
    if (!coi_check_kind(ctx, config, CO_KIND_STRING, 3, "config"))
        return NULL;
    if (strategy->policy->workers) {
        coi_fail(ctx, CO_NOT_IMPLEMENTED,
                 "update_config_proto of %s is not offered: what several processes need is not "
                 "set by it here",
                 coi_strategy_text(strategy, text));
        return NULL;
    }
    if (strategy->policy->bundles)
        return isolated_copy(ctx, config);
    return co_bytes(ctx, config->u.string.data, config->u.string.nbytes);
}
