/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph of objects that tf.train.Checkpoint saves under _CHECKPOINTABLE_OBJECT_GRAPH: which
 * object is a child of which under what name, and which tensor belongs to it. A protocol buffer,
 * TrackableObjectGraph, as a structure of lists and dicts.
 */
#include "io/tensor_file.h"

#include "base/wire.h"

#include <string.h>

#define MAX_NUMBER ((uint64_t)1 << 31) /* of a node */

static const char damaged[] = "the object graph cannot be understood: it is no message, or its "
                              "names or numbers are none";

/* Fields of a message: `number` is that of the protocol. */
typedef struct field {
    unsigned    number;
    const char *key;
    bool        is_number;
} field;

static const field attribute_fields[] = { { 1, "name", false },
                                          { 2, "full_name", false },
                                          { 3, "checkpoint_key", false } };
static const field slot_fields[] = { { 1, "original_variable_node", true },
                                     { 2, "slot_name", false },
                                     { 3, "slot_variable_node", true } };

/* Messages of one number inside another, in order. */
static bool
next_message(co_context *ctx, coi_wire *wire, unsigned number, coi_wire *out)
{
    coi_wire_field f;

    while (wire->at < wire->end && ctx->error.code == CO_OK) {
        if (!coi_wire_next(wire, &f)) {
            coi_fail(ctx, CO_DATA_LOSS, "%s", damaged);
            return false;
        }
        if (f.number == number && f.type == COI_WIRE_BYTES) {
            *out = f.content;
            return true;
        }
    }
    return false;
}

static size_t
count_messages(co_context *ctx, coi_wire wire, unsigned number)
{
    coi_wire unused;
    size_t   n = 0;

    while (next_message(ctx, &wire, number, &unused))
        ++n;
    return n;
}

/* A field of a message: a number or a string; absent ones are 0 and "". */
static co_value *
read_field(co_context *ctx, coi_wire wire, const field *which)
{
    coi_wire_field f;
    uint64_t       number = 0;
    coi_wire       text = { NULL, NULL };

    while (wire.at < wire.end) {
        if (!coi_wire_next(&wire, &f)) {
            coi_fail(ctx, CO_DATA_LOSS, "%s", damaged);
            return NULL;
        }
        if (f.number == which->number && which->is_number && f.type == COI_WIRE_VARINT)
            number = f.value;
        if (f.number == which->number && !which->is_number && f.type == COI_WIRE_BYTES)
            text = f.content;
    }
    if (number >= MAX_NUMBER) {
        coi_fail(ctx, CO_DATA_LOSS, "%s", damaged);
        return NULL;
    }
    return which->is_number ? co_int(ctx, (int64_t)number)
                            : co_bytes(ctx, text.at != NULL ? (const char *)text.at : "",
                                       (size_t)(text.end - text.at));
}

/* A list of dicts, of the messages of one number. */
static co_value *
read_dicts(co_context *ctx, coi_wire node, unsigned number, const field *fields, size_t num_fields)
{
    size_t     n = count_messages(ctx, node, number), done = 0, nbytes = n * sizeof(co_value *);
    co_value **items = coi_small_alloc(&ctx->heap, nbytes > 0 ? nbytes : 1), *list = NULL;
    coi_wire   message;

    if (items == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu parts of the object graph", n);
        return NULL;
    }
    while (done < n && next_message(ctx, &node, number, &message)) {
        const char *keys[3];
        co_value   *values[3];

        for (size_t i = 0; i < num_fields; ++i) {
            keys[i] = fields[i].key;
            values[i] = read_field(ctx, message, &fields[i]);
        }
        items[done++] = co_dict(ctx, keys, values, num_fields);
    }
    if (ctx->error.code == CO_OK)
        list = co_list(ctx, items, n);
    coi_small_free(&ctx->heap, items, nbytes > 0 ? nbytes : 1);
    return list;
}

/* A dict of names to numbers of nodes. */
static co_value *
read_children(co_context *ctx, coi_wire node)
{
    static const field node_id = { 1, "", true }, local_name = { 2, "", false };
    size_t             n = count_messages(ctx, node, 1), done = 0;
    size_t             nbytes = n * (sizeof(char *) + sizeof(co_value *));
    co_value         **items = coi_small_alloc(&ctx->heap, nbytes > 0 ? nbytes : 1), *dict = NULL;
    const char       **names;
    coi_wire           message;

    if (items == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu children of an object", n);
        return NULL;
    }
    names = (const char **)(items + n);
    while (done < n && next_message(ctx, &node, 1, &message)) {
        co_value *name = read_field(ctx, message, &local_name);
        size_t    length = 0;

        names[done] = co_string_at(ctx, name, 0, &length);
        if (ctx->error.code == CO_OK && memchr(names[done], '\0', length) != NULL)
            coi_fail(ctx, CO_DATA_LOSS, "%s", damaged);
        items[done++] = read_field(ctx, message, &node_id);
    }
    if (ctx->error.code == CO_OK)
        dict = co_dict(ctx, names, items, n);
    coi_small_free(&ctx->heap, items, nbytes > 0 ? nbytes : 1);
    return dict;
}

/* TrackableObject: what it has of the three. */
static co_value *
read_node(co_context *ctx, coi_wire node)
{
    const char *keys[3];
    co_value   *values[3];
    size_t      n = 0;

    if (count_messages(ctx, node, 1) > 0) {
        keys[n] = "children";
        values[n++] = read_children(ctx, node);
    }
    if (count_messages(ctx, node, 2) > 0) {
        keys[n] = "attributes";
        values[n++] = read_dicts(ctx, node, 2, attribute_fields, 3);
    }
    if (count_messages(ctx, node, 3) > 0) {
        keys[n] = "slots";
        values[n++] = read_dicts(ctx, node, 3, slot_fields, 3);
    }
    return ctx->error.code == CO_OK ? co_dict(ctx, keys, values, n) : NULL;
}

co_value *
coi_object_graph(co_context *ctx, const void *bytes, size_t nbytes)
{
    coi_wire   graph = { bytes, (const unsigned char *)bytes + nbytes }, message;
    size_t     n = count_messages(ctx, graph, 1), done = 0, room = n * sizeof(co_value *);
    co_value **nodes = coi_small_alloc(&ctx->heap, room > 0 ? room : 1), *list = NULL;

    if (nodes == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu nodes of the object graph", n);
        return NULL;
    }
    while (done < n && next_message(ctx, &graph, 1, &message))
        nodes[done++] = read_node(ctx, message);
    if (ctx->error.code == CO_OK)
        list = co_list(ctx, nodes, n);
    coi_small_free(&ctx->heap, nodes, room > 0 ? room : 1);
    return list;
}
