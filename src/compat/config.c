/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update_config_proto of the v1 interface (S-CFG-*, MW-12): a few fields of a serialized tf.ConfigProto are set. The message is
 * edited as it lies there, field by field, so that what we know nothing of survives, byte for byte, and no library for protocol
 * buffers is needed for five fields (docs/decisions/config-bytes.md). Values of other fields are not looked at.
 */
#include <cohort/v1.h>

#include "strategy/strategy.h"

#include <stdio.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, BEGIN_GROUP = 3, END_GROUP = 4, FIXED32 = 5 };

#define MAX_FIELD  ((UINT64_C(1) << 29) - 1)
#define MAX_GROUPS 100 /* inside each other, as parsers of protocol buffers allow */
#define EDIT_ROOM  20  /* at most so many bytes for the tag and the length of one edit */

/* --- reading --- */

typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

/* The head of a field. */
typedef struct field {
    uint64_t number;
    unsigned wire;
    cursor   content; /* of BYTES */
} field;

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

static bool
skip_bytes(cursor *c, uint64_t length)
{
    if (length > (uint64_t)(c->end - c->at))
        return false;
    c->at += length;
    return true;
}

/* Pass over a field whose tag is read. False if it is cut off, or of a kind that there is not. */
static bool
skip_content(cursor *c, field *f)
{
    uint64_t length;

    switch (f->wire) {
    case VARINT: return read_varint(c, &length);
    case FIXED64: return skip_bytes(c, 8);
    case FIXED32: return skip_bytes(c, 4);
    case BYTES:
        if (!read_varint(c, &length))
            return false;
        f->content.at = c->at;
        f->content.end = c->at + (length <= (uint64_t)(c->end - c->at) ? length : 0);
        return skip_bytes(c, length);
    default: return false;
    }
}

static bool
read_tag(cursor *c, field *f)
{
    uint64_t tag;

    if (!read_varint(c, &tag))
        return false;
    f->number = tag >> 3;
    f->wire = (unsigned)(tag & 7);
    return f->number >= 1 && f->number <= MAX_FIELD;
}

/* The next field, groups as a whole. */
static bool
read_field(cursor *c, field *f)
{
    uint64_t open[MAX_GROUPS];
    int      depth = 0;
    field    inner;

    if (!read_tag(c, f))
        return false;
    if (f->wire != BEGIN_GROUP)
        return skip_content(c, f);
    open[depth++] = f->number;
    while (depth > 0) {
        if (!read_tag(c, &inner))
            return false;
        if (inner.wire == END_GROUP) {
            if (inner.number != open[--depth])
                return false;
        } else if (inner.wire == BEGIN_GROUP) {
            if (depth == MAX_GROUPS)
                return false;
            open[depth++] = inner.number;
        } else if (!skip_content(c, &inner)) {
            return false;
        }
    }
    return true;
}

/* --- editing --- */

/* What becomes of one field: all there is of it is replaced. */
typedef struct edit {
    unsigned    number;
    unsigned    wire; /* fields of this number and another wire type are unknown ones: kept */
    const char *text; /* BYTES: the new value; NULL: none */
    const struct edit *inside; /* BYTES: the message that is there is edited by these instead */
} edit;                        /* lists end with number 0 and are in the order of numbers */

/* Bytes being written, in room that was reckoned before. */
typedef struct buffer {
    unsigned char *data;
    size_t         n, room;
} buffer;

static bool
make_room(co_context *ctx, size_t room, buffer *out)
{
    *out = (buffer){ coi_small_alloc(&ctx->heap, room > 0 ? room : 1), 0, room > 0 ? room : 1 };
    if (out->data == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a message of %zu bytes", room);
    return out->data != NULL;
}

static void
free_room(co_context *ctx, buffer *b)
{
    if (b->data != NULL)
        coi_small_free(&ctx->heap, b->data, b->room);
}

static void
put_varint(buffer *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        out->data[out->n++] = (unsigned char)(value | 0x80);
    out->data[out->n++] = (unsigned char)value;
}

static void
put_bytes(buffer *out, const void *from, size_t n)
{
    if (n > 0)
        memcpy(out->data + out->n, from, n);
    out->n += n;
}

/* Bytes that a list of edits may add to a message. */
static size_t
edits_room(const edit *list)
{
    size_t room = 0;

    for (; list->number != 0; ++list)
        room += EDIT_ROOM + (list->text != NULL ? strlen(list->text) : 0) +
                (list->inside != NULL ? edits_room(list->inside) : 0);
    return room;
}

static bool apply(co_context *ctx, const edit *list, cursor message, const char *where,
                  buffer *out);

/* A message inside the message, edited. What is there several times is merged by putting it one after the other. */
static bool
put_message(co_context *ctx, const edit *e, cursor message, buffer *out)
{
    buffer joined, edited = { NULL, 0, 0 };
    field  f;
    char   where[40];
    bool   ok;

    if (!make_room(ctx, (size_t)(message.end - message.at), &joined))
        return false;
    while (message.at < message.end && read_field(&message, &f))
        if (f.number == e->number && f.wire == BYTES)
            put_bytes(&joined, f.content.at, (size_t)(f.content.end - f.content.at));
    snprintf(where, sizeof(where), " inside field %u", e->number);
    ok = apply(ctx, e->inside, (cursor){ joined.data, joined.data + joined.n }, where, &edited);
    if (ok) {
        put_varint(out, edited.n);
        put_bytes(out, edited.data, edited.n);
    }
    free_room(ctx, &edited);
    free_room(ctx, &joined);
    return ok;
}

static bool
put_edit(co_context *ctx, const edit *e, cursor message, buffer *out)
{
    if (e->wire == BYTES && e->text == NULL && e->inside == NULL)
        return true; /* nothing there is the default */
    put_varint(out, (uint64_t)e->number << 3 | e->wire);
    if (e->inside != NULL)
        return put_message(ctx, e, message, out);
    put_varint(out, e->wire == VARINT ? 1 : strlen(e->text));
    if (e->wire == BYTES)
        put_bytes(out, e->text, strlen(e->text));
    return true;
}

static bool
is_replaced(const edit *list, const field *f)
{
    while (list->number != 0 && (list->number != f->number || list->wire != f->wire))
        ++list;
    return list->number != 0;
}

/* The message with its edits, each before the first field of a higher number, in a buffer of its own. False with an error, and
 * nothing to free. */
static bool
apply(co_context *ctx, const edit *list, cursor message, const char *where, buffer *out)
{
    const edit *next = list;
    cursor      c = message;
    bool        ok = make_room(ctx, (size_t)(message.end - message.at) + edits_room(list), out);

    while (ok && (c.at < c.end || next->number != 0)) {
        const unsigned char *begin = c.at;
        field                f = { .number = MAX_FIELD + 1 };

        if (c.at < c.end && !read_field(&c, &f)) {
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "config of %s is no serialized message: the field at byte %zu of %zu%s is cut "
                     "off or unreadable",
                     ctx->call, (size_t)(begin - message.at), (size_t)(message.end - message.at),
                     where);
            ok = false;
        }
        for (; ok && next->number != 0 && next->number <= f.number; ++next)
            ok = put_edit(ctx, next, message, out);
        if (ok && !is_replaced(list, &f))
            put_bytes(out, begin, (size_t)(c.at - begin));
    }
    if (!ok) {
        free_room(ctx, out);
        *out = (buffer){ NULL, 0, 0 };
    }
    return ok;
}

/* A copy of a config with edits; NULL and none give none. */
static co_value *
edited_copy(co_context *ctx, co_value *config, int position, const edit *list)
{
    const unsigned char *bytes;
    buffer               out;
    co_value            *copy;

    if (config == NULL)
        return co_none(ctx);
    if (!coi_check_value(ctx, config, position, "config"))
        return NULL;
    if (config->kind == CO_KIND_NONE)
        return co_none(ctx);
    if (!coi_check_kind(ctx, config, CO_KIND_STRING, position, "config"))
        return NULL;
    bytes = (const unsigned char *)config->u.string.data;
    if (!apply(ctx, list, (cursor){ bytes, bytes + config->u.string.nbytes }, "", &out))
        return NULL;
    copy = co_bytes(ctx, out.data, out.n);
    free_room(ctx, &out);
    return copy;
}

/* --- what strategies want --- */

/* MW-12. The filters and the leader are of a task. */
static co_value *
cluster_copy(co_context *ctx, co_value *config, int position, const co_config_cluster *cluster)
{
    static const edit enable_op[] = { { 1, BYTES, "CollectiveReduce", NULL }, { 0 } };
    static const edit rewrite[] = { { 15, VARINT, NULL, NULL },
                                    { 16, BYTES, NULL, enable_op },
                                    { 0 } };
    static const edit graph[] = { { 10, BYTES, NULL, rewrite }, { 0 } };

    bool        leads = cluster->task_type == NULL || strcmp(cluster->task_type, "evaluator") != 0;
    const char *leader = cluster->has_chief ? "/job:chief/replica:0/task:0"
                                            : "/job:worker/replica:0/task:0";
    char        filter[64];
    edit        experimental[3] = { { 0 } }, all[4] = { { 0 } };
    int         n = 0, inside = 0;

    if (cluster->task_type != NULL) {
        snprintf(filter, sizeof(filter), "/job:%s/task:%d", cluster->task_type,
                 cluster->task_index);
        all[n++] = (edit){ 4, BYTES, filter, NULL };
        experimental[inside++] = (edit){ 1, BYTES, leads ? leader : NULL, NULL };
    }
    if (cluster->collective_nccl)
        experimental[inside++] = (edit){ 7, VARINT, NULL, NULL };
    all[n++] = (edit){ 10, BYTES, NULL, graph };
    if (inside > 0)
        all[n++] = (edit){ 16, BYTES, NULL, experimental };
    return edited_copy(ctx, config, position, all);
}

co_value *
co_update_config_proto(co_context *ctx, co_strategy *strategy, co_value *config)
{
    static const edit nothing[] = { { 0 } };
    static const edit isolate[] = { { 15, VARINT, NULL, NULL }, { 0 } };

    COI_ENTER(ctx, "update_config_proto", NULL);
    if (!coi_check_strategy(ctx, strategy, 2))
        return NULL;
    if (strategy->policy->workers) {
        co_config_cluster cluster = CO_CONFIG_CLUSTER_INIT;

        cluster.task_type = strategy->num_workers > 1 ? "worker" : NULL;
        cluster.task_index = strategy->worker;
        return cluster_copy(ctx, config, 3, &cluster);
    }
    return edited_copy(ctx, config, 3, strategy->policy->bundles ? isolate : nothing);
}

co_value *
co_config_for_cluster(co_context *ctx, co_value *config, const co_config_cluster *cluster)
{
    static const char *const types[] = { "chief", "worker", "ps", "evaluator" };

    co_config_cluster all = CO_CONFIG_CLUSTER_INIT;
    bool              known = false;

    COI_ENTER(ctx, "config_for_cluster", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), cluster, 3))
        return NULL;
    for (size_t i = 0; all.task_type != NULL && i < sizeof(types) / sizeof(types[0]); ++i)
        known = known || strcmp(types[i], all.task_type) == 0;
    if (all.task_type != NULL && (!known || all.task_index < 0)) {
        coi_fail(
            ctx, CO_VALUE,
            "task '%.40s' %d of argument 3 (cluster) of config_for_cluster; the type is chief, "
            "worker, ps, evaluator or NULL, the index at least 0",
            all.task_type, all.task_index);
        return NULL;
    }
    return cluster_copy(ctx, config, 2, &all);
}
