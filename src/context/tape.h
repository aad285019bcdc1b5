/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape's records. A context has one log of what was computed while any tape was open; a tape is
 * an interval of it. What an inner tape's backward pass computes is appended to the same log, which
 * gives gradients of gradients for free.
 *
 * A node is a watched value or an output of a record. A value made by a record carries its node
 * (tape_epoch, tape_node); watched variables and foreign tensors are found in a small hash table.
 */
#ifndef COI_CONTEXT_TAPE_H
#define COI_CONTEXT_TAPE_H

#include "context/context.h"

struct coi_op; /* ops/engine/op.h */

#define COI_NO_NODE UINT32_MAX

/*
 * How attributes are kept by a record: what every operator begins with. Those that own something
 * have a function that copies it and one that gives it back; NULL: their bytes are all of them. The
 * copy returns false without memory.
 */
typedef struct coi_attrs_rule {
    size_t size;
    bool (*copy)(coi_heap *heap, void *to, const void *from);
    void (*destroy)(coi_heap *heap, void *attrs);
} coi_attrs_rule;

typedef struct coi_record {
    const struct coi_op *op;
    uint32_t values; /* num_in inputs, then num_out outputs, in log->values and log->nodes */
    uint32_t attrs;  /* offset in log->attrs */
    uint16_t num_in, num_out;
} coi_record;

typedef struct coi_tape {
    uint32_t first_record;
    bool     persistent;
    size_t   depth; /* blocks that were open when it began; it ends with the innermost of them */
    /* Its numbers in programs; 0: none. By the first a replayed call finds it: a session may make
     * calls in another order, and what ends a tape with its block is no call. By the second what
     * captures the calls knows it. */
    uint32_t replayed, captured;
} coi_tape;

typedef struct coi_tape_log {
    uint64_t    epoch;
    coi_tape   *tapes;
    size_t      num_tapes, cap_tapes;
    coi_record *records;
    size_t      num_records, cap_records;
    co_value  **values; /* references, except to inputs that are outputs of earlier records */
    uint32_t   *nodes;  /* of each of values */
    size_t      num_values, cap_values, cap_nodes;
    char       *attrs;
    size_t      num_attrs, cap_attrs;
    uint32_t    num_nodes;
    void      **watched_keys;   /* open addressing; a co_value (tensor) or coi_variable */
    co_value  **watched_values; /* references: what the key belongs to, in order of watching */
    uint32_t   *watched_nodes;
    size_t      num_watched, cap_watched, cap_watched_keys, cap_watched_nodes;
    uint32_t   *watched_table; /* position + 1 in the three arrays above */
    size_t      cap_table;
    char  *scratch; /* what a backward pass needs, kept for the next one; NULL while one has it */
    size_t cap_scratch;
} coi_tape_log;

/* Open a tape, even while there is an error, so that every end finds its begin. */
void coi_tape_begin(co_context *ctx, bool persistent);
/* Watch the leaves of a value; false with an error. */
bool coi_tape_watch(co_context *ctx, co_value *value);
/* The node of a watched variable or tensor, COI_NO_NODE if it is not watched. */
uint32_t coi_tape_watched(const coi_tape_log *log, const void *key);
/* The node of a variable that is used: a trainable one is watched by that. */
uint32_t coi_tape_variable(co_context *ctx, co_value *variable);
/* The node of an operand, COI_NO_NODE if nothing watches it. `source` is what the user gave,
 * `tensor` what it became. */
static inline uint32_t
coi_tape_node(co_context *ctx, co_value *source, const co_value *tensor)
{
    const coi_tape_log *log = ctx->tapes;

    if (source->kind ==
        CO_KIND_VARIABLE) /* before its tensor, which something on this tape may have made */
        return coi_tape_variable(ctx, source);
    if (tensor->tape_epoch == log->epoch)
        return tensor->tape_node;
    return log->num_watched > 0 ? coi_tape_watched(log, tensor) : COI_NO_NODE;
}
/*
 * Whether what a backward pass computes is recorded in its turn. Then it matters that the tensors
 * it finds in records lead to their nodes; the tensor of a variable, which is everybody's, does
 * not, and a view of its own takes its place.
 */
static inline bool
coi_tape_is_differentiated(const coi_tape_log *log)
{
    return log->num_tapes > 1 || log->tapes[0].persistent;
}
/* Let a fresh view or copy stand for the node of what it was made from. */
static inline void
coi_tape_mark(const coi_tape_log *log, co_value *copy, uint32_t node)
{
    if (node == COI_NO_NODE)
        return;
    copy->tape_epoch = log->epoch;
    copy->tape_node = node;
    copy->flags |= COI_FLAG_COPY;
}
/* The trainable variables that the open tapes have seen, in order of first use, which is the same
 * on every replica: how many. The first `capacity` go to out, borrowed from the tape. */
size_t coi_tape_trainable(const co_context *ctx, co_value **out, size_t capacity);
/* Append a record; nodes of inputs as given. Marks the outputs. False (with an error) without
 * memory. */
bool coi_tape_record(co_context *ctx, const struct coi_op *op, const void *attrs, size_t attrs_size,
                     co_value *const *in, const uint32_t *in_nodes, int num_in,
                     co_value *const *out, int num_out);
#define COI_NO_TAPE SIZE_MAX
/* The place of the tape that a call of ctx is about: the innermost, or that of ctx->tape_number;
 * COI_NO_TAPE: it is not open. */
size_t coi_tape_place(const co_context *ctx);
/* The call that ends a tape is over, however it went: the tape that it is about goes unless it is
 * persistent. */
void coi_tape_spend(co_context *ctx);
/* Drop one tape; the log is emptied with the last. */
void coi_tape_drop(co_context *ctx, size_t place);
/* Drop tapes down to `num_tapes`; the log is emptied with the last. */
void coi_tapes_unwind(co_context *ctx, size_t num_tapes);
/* Drop the tapes that were begun in blocks beyond the first `depth`. */
void coi_tapes_leave(co_context *ctx, size_t depth);
void coi_tape_log_free(co_context *ctx);

#endif
