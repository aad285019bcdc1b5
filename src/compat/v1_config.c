/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update_config_proto of the v1 interface (S-CFG-*, MW-12): a few fields of a serialized
 * tf.ConfigProto are set. The message is edited in place, field by field, so that unknown fields
 * survive, byte for byte, and no protocol buffer library is needed for five fields
 * (docs/decisions/config-bytes.md). Values of other fields are not looked at.
 */
#include "compat/v1_config.h"

#include "base/text.h"
#include "base/wire.h"
#include "strategy/strategy.h"

#include <stdio.h>
#include <string.h>

/* What becomes of one field: all there is of it is replaced. */
typedef struct edit {
    unsigned    number;
    unsigned    type; /* fields of this number and another wire type are unknown ones: kept */
    const char *text; /* bytes: the new value; NULL: none */
    const struct edit *inside; /* bytes: the message that is there is edited by these instead */
} edit;                        /* lists end with number 0 and are in the order of numbers */

/* A message being written, and how much room there is for it. */
typedef struct buffer {
    coi_wire_out out;
    size_t       room;
} buffer;

static bool
make_room(co_context *ctx, size_t room, buffer *b)
{
    *b = (buffer){ .room = room > 0 ? room : 1 };
    b->out.data = coi_small_alloc(&ctx->heap, b->room);
    if (b->out.data == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a message of %zu bytes", room);
    return b->out.data != NULL;
}

static void
free_room(co_context *ctx, buffer *b)
{
    if (b->out.data != NULL)
        coi_small_free(&ctx->heap, b->out.data, b->room);
}

/* Bytes that a list of edits may add to a message. */
static size_t
edits_room(const edit *list)
{
    size_t room = 0;

    for (; list->number != 0; ++list)
        room += COI_WIRE_HEAD_MAX + (list->text != NULL ? strlen(list->text) : 0) +
                (list->inside != NULL ? edits_room(list->inside) : 0);
    return room;
}

static bool apply(co_context *ctx, const edit *list, coi_wire message, const char *where,
                  buffer *edited);

/* A message inside the message, edited. What is there several times is merged by putting it one
 * after the other. */
static bool
put_message(co_context *ctx, const edit *e, coi_wire message, coi_wire_out *out)
{
    buffer         joined, edited = { .room = 0 };
    coi_wire_field f;
    char           where[40];
    bool           ok;

    if (!make_room(ctx, (size_t)(message.end - message.at), &joined))
        return false;
    while (message.at < message.end && coi_wire_next(&message, &f))
        if (f.number == e->number && f.type == COI_WIRE_BYTES)
            coi_wire_put_bytes(&joined.out, f.content.at, (size_t)(f.content.end - f.content.at));
    snprintf(where, sizeof(where), " inside field %u", e->number);
    ok = apply(ctx, e->inside, (coi_wire){ joined.out.data, joined.out.data + joined.out.n }, where,
               &edited);
    if (ok) {
        coi_wire_put_varint(out, edited.out.n);
        coi_wire_put_bytes(out, edited.out.data, edited.out.n);
    }
    free_room(ctx, &edited);
    free_room(ctx, &joined);
    return ok;
}

static bool
put_edit(co_context *ctx, const edit *e, coi_wire message, coi_wire_out *out)
{
    if (e->type == COI_WIRE_BYTES && e->text == NULL && e->inside == NULL)
        return true; /* nothing there is the default */
    coi_wire_put_tag(out, e->number, e->type);
    if (e->inside != NULL)
        return put_message(ctx, e, message, out);
    coi_wire_put_varint(out, e->type == COI_WIRE_VARINT ? 1 : strlen(e->text));
    if (e->type == COI_WIRE_BYTES)
        coi_wire_put_bytes(out, e->text, strlen(e->text));
    return true;
}

static bool
is_replaced(const edit *list, const coi_wire_field *f)
{
    while (list->number != 0 && (list->number != f->number || list->type != f->type))
        ++list;
    return list->number != 0;
}

/* The message with its edits, each before the first field of a higher number, in a buffer of its
 * own. False with an error, and nothing to free. */
static bool
apply(co_context *ctx, const edit *list, coi_wire message, const char *where, buffer *edited)
{
    const edit *next = list;
    coi_wire    rest = message;
    size_t      nbytes = (size_t)(message.end - message.at);
    bool        ok = make_room(ctx, nbytes + edits_room(list), edited);

    while (ok && (rest.at < rest.end || next->number != 0)) {
        const unsigned char *begin = rest.at;
        coi_wire_field       f = { .number = COI_WIRE_MAX_FIELD + 1 };

        if (rest.at < rest.end && !coi_wire_next(&rest, &f)) {
            coi_fail(
                ctx, CO_INVALID_ARGUMENT,
                "config of %s is not a serialized message: the field at byte %zu of %zu%s is cut "
                "off or unreadable",
                ctx->call, (size_t)(begin - message.at), nbytes, where);
            ok = false;
        }
        for (; ok && next->number != 0 && next->number <= f.number; ++next)
            ok = put_edit(ctx, next, message, &edited->out);
        if (ok && !is_replaced(list, &f))
            coi_wire_put_bytes(&edited->out, begin, (size_t)(rest.at - begin));
    }
    if (!ok) {
        free_room(ctx, edited);
        *edited = (buffer){ .room = 0 };
    }
    return ok;
}

/* A copy of a config with edits; NULL and none give none. */
static co_value *
edited_copy(co_context *ctx, co_value *config, int position, const edit *list)
{
    const unsigned char *bytes;
    buffer               edited;
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
    if (!apply(ctx, list, (coi_wire){ bytes, bytes + config->u.string.nbytes }, "", &edited))
        return NULL;
    copy = co_bytes(ctx, edited.out.data, edited.out.n);
    free_room(ctx, &edited);
    return copy;
}

/* --- what strategies want --- */

/* MW-12. The filters and the leader are of a task. */
static co_value *
cluster_copy(co_context *ctx, co_value *config, int position, const co_config_cluster *cluster)
{
    static const edit enable_op[] = { { 1, COI_WIRE_BYTES, "CollectiveReduce", NULL }, { 0 } };
    static const edit rewrite[] = { { 15, COI_WIRE_VARINT, NULL, NULL },
                                    { 16, COI_WIRE_BYTES, NULL, enable_op },
                                    { 0 } };
    static const edit graph[] = { { 10, COI_WIRE_BYTES, NULL, rewrite }, { 0 } };

    bool        leads = cluster->task_type == NULL || strcmp(cluster->task_type, "evaluator") != 0;
    const char *leader = cluster->has_chief ? "/job:chief/replica:0/task:0"
                                            : "/job:worker/replica:0/task:0";
    char        filter[64];
    edit        experimental[3] = { { 0 } }, all[4] = { { 0 } };
    int         n = 0, inside = 0;

    if (cluster->task_type != NULL) {
        snprintf(filter, sizeof(filter), "/job:%s/task:%d", cluster->task_type,
                 cluster->task_index);
        all[n++] = (edit){ 4, COI_WIRE_BYTES, filter, NULL };
        experimental[inside++] = (edit){ 1, COI_WIRE_BYTES, leads ? leader : NULL, NULL };
    }
    if (cluster->collective_nccl)
        experimental[inside++] = (edit){ 7, COI_WIRE_VARINT, NULL, NULL };
    all[n++] = (edit){ 10, COI_WIRE_BYTES, NULL, graph };
    if (inside > 0)
        all[n++] = (edit){ 16, COI_WIRE_BYTES, NULL, experimental };
    return edited_copy(ctx, config, position, all);
}

static const edit nothing[] = { { 0 } };

co_value *
coi_config_copy(co_context *ctx, co_value *config, int position)
{
    return edited_copy(ctx, config, position, nothing);
}

co_value *
co_update_config_proto(co_context *ctx, co_strategy *strategy, co_value *config)
{
    static const edit isolate[] = { { 15, COI_WIRE_VARINT, NULL, NULL }, { 0 } };

    COI_ENTER(ctx, "update_config_proto", NULL);
    if (!coi_check_strategy(ctx, strategy, 2))
        return NULL;
    if (strategy->policy->workers) {
        co_config_cluster cluster = CO_CONFIG_CLUSTER_INIT;

        cluster.task_type = strategy->num_workers > 1 ? "worker" : NULL;
        cluster.task_index = strategy->worker;
        return cluster_copy(ctx, config, 3, &cluster);
    }
    return edited_copy(ctx, config, 3, strategy->policy->wraps_values ? isolate : nothing);
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
            ctx, CO_VALUE_ERROR,
            "task '%.*s%s' %d of argument 3 (cluster) of config_for_cluster; the type is chief, "
            "worker, ps, evaluator or NULL, the index at least 0",
            COI_CUT(40, all.task_type), all.task_index);
        return NULL;
    }
    return cluster_copy(ctx, config, 2, &all);
}
