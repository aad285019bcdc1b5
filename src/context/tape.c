/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording on the tape; see tape.h for the picture. The backward pass is in ops/engine/gradient.c,
 * which knows operators.
 */
#include "context/tape.h"

#include <string.h>

static bool
no_memory(co_context *ctx)
{
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradient tape");
    return false;
}

static bool
grow(co_context *ctx, void *array, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity || coi_grow(&ctx->runtime->memory, array, capacity, need, size))
        return true;
    return no_memory(ctx);
}

void
coi_tape_begin(co_context *ctx, bool persistent)
{
    coi_tape_log *log = ctx->tapes;

    if (log == NULL) {
        log = ctx->tapes = coi_calloc(&ctx->runtime->memory, sizeof(*log));
        if (log == NULL)
            no_memory(ctx);
    }
    if (log == NULL ||
        !grow(ctx, &log->tapes, &log->cap_tapes, log->num_tapes + 1, sizeof(*log->tapes))) {
        ++ctx->unbegun_tapes;
        return;
    }
    if (log->num_tapes == 0)
        log->epoch = atomic_fetch_add(&ctx->runtime->next_epoch, 1);
    log->tapes[log->num_tapes++] = (coi_tape){ .first_record = (uint32_t)log->num_records,
                                               .persistent = persistent,
                                               .depth = ctx->num_blocks,
                                               .replayed = ctx->tape_number };
    ctx->recording = true;
}

size_t
coi_tape_place(const co_context *ctx)
{
    const coi_tape_log *log = ctx->tapes;
    size_t              i = log != NULL ? log->num_tapes : 0;

    while (i > 0 && ctx->tape_number != 0 && log->tapes[i - 1].replayed != ctx->tape_number)
        --i;
    return i > 0 ? i - 1 : COI_NO_TAPE;
}

void
coi_tape_spend(co_context *ctx)
{
    size_t place = coi_tape_place(ctx);

    if (ctx->unbegun_tapes > 0)
        --ctx->unbegun_tapes;
    else if (place != COI_NO_TAPE && !ctx->tapes->tapes[place].persistent)
        coi_tape_drop(ctx, place);
}

/* The log has its outputs; what else a record uses it holds itself. */
static inline bool
is_held(const coi_tape_log *log, const co_value *input)
{
    return input->tape_epoch != log->epoch || (input->flags & COI_FLAG_COPY) != 0;
}

static const coi_attrs_rule *
rule_of(const struct coi_op *op)
{
    return (const coi_attrs_rule *)(const void *)op;
}

/* Drop the values of a record, youngest first, so that an output outlives the records that used
 * it. */
static void
drop_record(coi_heap *heap, const coi_tape_log *log, const coi_record *record)
{
    co_value *const *in = &log->values[record->values], *const *out = in + record->num_in;

    if (rule_of(record->op)->destroy != NULL)
        rule_of(record->op)->destroy(heap, log->attrs + record->attrs);
    for (int i = record->num_out; i > 0; --i)
        coi_unref(heap, out[i - 1]);
    for (int i = record->num_in; i > 0; --i)
        if (is_held(log, in[i - 1]))
            coi_unref(heap, in[i - 1]);
}

/* Empty the log; its room stays for the next tape. */
static void
reset(co_context *ctx)
{
    coi_tape_log *log = ctx->tapes;

    while (log->num_records > 0)
        drop_record(&ctx->heap, log, &log->records[--log->num_records]);
    for (size_t i = log->num_watched; i > 0; --i)
        coi_unref(&ctx->heap, log->watched_values[i - 1]);
    if (log->num_watched > 0)
        memset(log->watched_table, 0, log->cap_table * sizeof(*log->watched_table));
    log->num_values = log->num_attrs = log->num_watched = 0;
    log->num_nodes = 0;
    ctx->recording = false;
}

void
coi_tapes_unwind(co_context *ctx, size_t num_tapes)
{
    coi_tape_log *log = ctx->tapes;

    if (log == NULL || log->num_tapes <= num_tapes)
        return;
    log->num_tapes = num_tapes;
    if (num_tapes == 0)
        reset(ctx);
}

void
coi_tape_drop(co_context *ctx, size_t place)
{
    coi_tape_log *log = ctx->tapes;

    memmove(&log->tapes[place], &log->tapes[place + 1],
            (log->num_tapes - place - 1) * sizeof(*log->tapes));
    if (--log->num_tapes == 0)
        reset(ctx);
}

void
coi_tapes_leave(co_context *ctx, size_t depth)
{
    const coi_tape_log *log = ctx->tapes;

    while (log->num_tapes > 0 && log->tapes[log->num_tapes - 1].depth > depth)
        coi_tapes_unwind(ctx, log->num_tapes - 1);
}

void
coi_tape_log_free(co_context *ctx)
{
    coi_tape_log *log = ctx->tapes;
    coi_memory   *memory = &ctx->runtime->memory;

    if (log == NULL)
        return;
    reset(ctx);
    coi_free(memory, log->tapes, log->cap_tapes * sizeof(*log->tapes));
    coi_free(memory, log->records, log->cap_records * sizeof(*log->records));
    coi_free(memory, log->values, log->cap_values * sizeof(*log->values));
    coi_free(memory, log->nodes, log->cap_nodes * sizeof(*log->nodes));
    coi_free(memory, log->attrs, log->cap_attrs);
    coi_free(memory, log->watched_keys, log->cap_watched_keys * sizeof(*log->watched_keys));
    coi_free(memory, log->watched_values, log->cap_watched * sizeof(*log->watched_values));
    coi_free(memory, log->watched_nodes, log->cap_watched_nodes * sizeof(*log->watched_nodes));
    coi_free(memory, log->watched_table, log->cap_table * sizeof(*log->watched_table));
    coi_free(memory, log->scratch, log->cap_scratch);
    coi_free(memory, log, sizeof(*log));
    ctx->tapes = NULL;
}

static size_t
slot_of(const coi_tape_log *log, const void *key)
{
    uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15);
    size_t   slot = (size_t)(hash >> 20) & (log->cap_table - 1);

    while (log->watched_table[slot] != 0 && log->watched_keys[log->watched_table[slot] - 1] != key)
        slot = (slot + 1) & (log->cap_table - 1);
    return slot;
}

uint32_t
coi_tape_watched(const coi_tape_log *log, const void *key)
{
    size_t slot;

    if (log->num_watched == 0)
        return COI_NO_NODE;
    slot = slot_of(log, key);
    return log->watched_table[slot] != 0 ? log->watched_nodes[log->watched_table[slot] - 1]
                                         : COI_NO_NODE;
}

/* Keep the table at most half full; capacity is a power of two. */
static bool
grow_table(co_context *ctx)
{
    coi_tape_log *log = ctx->tapes;
    size_t        capacity = log->cap_table > 0 ? log->cap_table * 2 : 64;
    uint32_t     *table;

    if (log->num_watched * 2 < log->cap_table)
        return true;
    table = coi_calloc(&ctx->runtime->memory, capacity * sizeof(*table));
    if (table == NULL)
        return no_memory(ctx);
    coi_free(&ctx->runtime->memory, log->watched_table, log->cap_table * sizeof(*table));
    log->watched_table = table;
    log->cap_table = capacity;
    for (size_t i = 0; i < log->num_watched; ++i)
        table[slot_of(log, log->watched_keys[i])] = (uint32_t)i + 1;
    return true;
}

/* The node of a key, which is watched from now on. */
static uint32_t
watch(co_context *ctx, void *key, co_value *value)
{
    coi_tape_log *log = ctx->tapes;
    uint32_t      node = coi_tape_watched(log, key);
    size_t        n = log->num_watched + 1;

    if (node != COI_NO_NODE)
        return node;
    if (!grow_table(ctx) ||
        !grow(ctx, &log->watched_keys, &log->cap_watched_keys, n, sizeof(*log->watched_keys)) ||
        !grow(ctx, &log->watched_values, &log->cap_watched, n, sizeof(*log->watched_values)) ||
        !grow(ctx, &log->watched_nodes, &log->cap_watched_nodes, n, sizeof(*log->watched_nodes)))
        return COI_NO_NODE;
    coi_ref(value);
    log->watched_table[slot_of(log, key)] = (uint32_t)n;
    log->watched_keys[n - 1] = key;
    log->watched_values[n - 1] = value;
    log->watched_nodes[n - 1] = log->num_nodes;
    log->num_watched = n;
    return log->num_nodes++;
}

uint32_t
coi_tape_variable(co_context *ctx, co_value *variable)
{
    if (variable->u.variable->trainable)
        return watch(ctx, variable->u.variable, variable);
    return coi_tape_watched(ctx->tapes, variable->u.variable);
}

static bool
watch_leaf(co_context *ctx, co_value *leaf)
{
    if (coi_is_variable(leaf))
        return watch(ctx, leaf->u.variable, leaf) != COI_NO_NODE;
    leaf = coi_in_replica(ctx) ? coi_select(leaf, ctx->mode.local_replica) : leaf;
    if (leaf->kind != CO_KIND_TENSOR && leaf->kind != CO_KIND_SYMBOLIC) {
        coi_fail(ctx, CO_TYPE_ERROR, "%s cannot be watched; watch a tensor or a variable",
                 coi_a_kind(leaf->kind));
        return false;
    }
    if (!coi_dtypes[leaf->dtype].floating) {
        coi_log_line(&ctx->runtime->log, CO_LOG_WARNING,
                     "a watched tensor of dtype %s has no gradient",
                     co_dtype_name((co_dtype)leaf->dtype));
        return true;
    }
    if (leaf->tape_epoch == ctx->tapes->epoch)
        return true; /* an intermediate result has its node already */
    return watch(ctx, leaf, leaf) != COI_NO_NODE;
}

bool
coi_tape_watch(co_context *ctx, co_value *value)
{
    if (!coi_is_structure(value))
        return watch_leaf(ctx, value);
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (!coi_tape_watch(ctx, value->u.items.items[i]))
            return false;
    return true;
}

/* Offsets are 32 bits wide: a larger tape fails as if there were no memory. */
static bool
make_room(co_context *ctx, size_t num_values, size_t num_attrs)
{
    coi_tape_log *log = ctx->tapes;

    if (num_values >= COI_NO_NODE || num_attrs >= COI_NO_NODE)
        return no_memory(ctx);
    return grow(ctx, &log->records, &log->cap_records, log->num_records + 1,
                sizeof(*log->records)) &&
           grow(ctx, &log->values, &log->cap_values, num_values, sizeof(*log->values)) &&
           grow(ctx, &log->nodes, &log->cap_nodes, num_values, sizeof(*log->nodes)) &&
           grow(ctx, &log->attrs, &log->cap_attrs, num_attrs, 1);
}

bool
coi_tape_record(co_context *ctx, const struct coi_op *op, const void *attrs, size_t attrs_size,
                co_value *const *in, const uint32_t *in_nodes, int num_in, co_value *const *out,
                int num_out)
{
    coi_tape_log *log = ctx->tapes;
    size_t        at = log->num_values, end = at + (size_t)num_in + (size_t)num_out;
    size_t        attrs_at = (log->num_attrs + 15) & ~(size_t)15;

    if ((log->num_records == log->cap_records || end > log->cap_nodes || attrs_size > 0) &&
        !make_room(ctx, end, attrs_at + attrs_size))
        return false;
    log->records[log->num_records++] = (coi_record){ op, (uint32_t)at, (uint32_t)attrs_at,
                                                     (uint16_t)num_in, (uint16_t)num_out };
    if (attrs_size > 0) {
        memcpy(log->attrs + attrs_at, attrs, attrs_size);
        if (rule_of(op)->copy != NULL &&
            !rule_of(op)->copy(&ctx->heap, log->attrs + attrs_at, attrs)) {
            --log->num_records;
            coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the attributes of a record");
            return false;
        }
        log->num_attrs = attrs_at + attrs_size;
    }
    for (int i = 0; i < num_in; ++i, ++at) {
        if (is_held(log, in[i]))
            coi_ref(in[i]);
        log->values[at] = in[i];
        log->nodes[at] = in_nodes[i];
    }
    for (int i = 0; i < num_out; ++i, ++at) {
        coi_ref(out[i]);
        out[i]->tape_epoch = log->epoch;
        out[i]->tape_node = log->num_nodes;
        log->values[at] = out[i];
        log->nodes[at] = log->num_nodes++;
    }
    log->num_values = end;
    return true;
}

size_t
coi_tape_trainable(const co_context *ctx, co_value **out, size_t capacity)
{
    const coi_tape_log *log = ctx->tapes;
    size_t              n = 0;

    for (size_t i = 0; log != NULL && i < log->num_watched; ++i) {
        co_value *value = log->watched_values[i];

        if (value->kind != CO_KIND_VARIABLE || !value->u.variable->trainable)
            continue;
        if (n < capacity)
            out[n] = value;
        ++n;
    }
    return n;
}
