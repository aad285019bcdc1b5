/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass. Records are in the order of execution, so iterating from the last to the first
 * visits every operator after all users of its result. Only records on a path from a source
 * are visited; a gradient is dropped as soon as it has been used. Steps run in a block of their
 * own, so memory does not grow with the depth.
 */
#include <cohort/gradient.h>

#include "ops/engine/call_recording.h"
#include "ops/engine/composite_values.h"
#include "ops/engine/gradient.h"
#include "ops/engine/op.h"
#include "ops/engine/type_rules.h"

#include <string.h>

#define FEW 8

/* One pass: a gradient and two flags for each node that existed at its start. */
typedef struct backward_pass {
    co_context   *ctx;
    coi_tape_log *log;
    uint32_t      num_nodes;
    co_value    **grads; /* references */
    co_value    **whole; /* of sources with a fused user, whose part is not in grads; references */
    bool         *leads; /* a source is this node or behind it */
    bool         *source;
    size_t        nbytes;
    char         *room; /* of the four, from the log */
    size_t        cap_room;
    size_t        first, end; /* records */
    bool          has_whole;
} backward_pass;

static bool
pass_open(backward_pass *w, co_context *ctx, size_t place)
{
    size_t n = ctx->tapes->num_nodes;

    w->ctx = ctx;
    w->log = ctx->tapes;
    w->num_nodes = (uint32_t)n;
    w->nbytes = n * (sizeof(*w->grads) + sizeof(*w->whole) + 2 * sizeof(bool)) + 1;
    w->room = ctx->tapes->scratch;
    w->cap_room = ctx->tapes->cap_scratch;
    ctx->tapes->scratch = NULL; /* this pass has it */
    ctx->tapes->cap_scratch = 0;
    if (!coi_grow(&ctx->runtime->memory, (void **)&w->room, &w->cap_room, w->nbytes, 1)) {
        coi_free(&ctx->runtime->memory, w->room, w->cap_room);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradients of %zu values", n);
        return false;
    }
    memset(w->room, 0, w->nbytes);
    w->grads = (co_value **)(void *)w->room;
    w->whole = w->grads + n;
    w->leads = (bool *)(w->whole + n);
    w->source = w->leads + n;
    w->first = ctx->tapes->tapes[place].first_record;
    w->end = ctx->tapes->num_records;
    w->has_whole = false;
    return true;
}

static void
pass_close(backward_pass *w)
{
    coi_tape_log *log = w->log;
    coi_memory   *memory = &w->ctx->runtime->memory;

    for (uint32_t i = 0; i < w->num_nodes; ++i)
        coi_unref(&w->ctx->heap, w->grads[i]);
    for (uint32_t i = 0; w->has_whole && i < w->num_nodes; ++i)
        coi_unref(&w->ctx->heap, w->whole[i]);
    coi_free(memory, log->scratch, log->cap_scratch); /* of a pass inside this one */
    log->scratch = w->room;
    log->cap_scratch = w->cap_room;
}

/* The node of a target or source; a per-replica value stands for this replica's component. */
static uint32_t
node_of(const backward_pass *w, co_value *value)
{
    const co_context *ctx = w->ctx;

    uint32_t node = COI_NO_NODE;

    if (coi_in_replica(ctx))
        value = coi_select(value, ctx->mode.local_replica);
    if (coi_is_variable(value))
        node = coi_tape_watched(w->log, value->u.variable);
    else if (value->kind == CO_KIND_TENSOR || value->kind == CO_KIND_SYMBOLIC)
        node = value->tape_epoch == w->log->epoch ? value->tape_node
                                                  : coi_tape_watched(w->log, value);
    return node < w->num_nodes
               ? node
               : COI_NO_NODE; /* values that the pass itself made have no gradient in it */
}

/* Mark what lies on a path from a source. */
static void
find_paths(backward_pass *w)
{
    for (size_t r = w->first; r < w->end; ++r) {
        const coi_record *record = &w->log->records[r];
        const uint32_t   *nodes = &w->log->nodes[record->values];
        bool              leads = false;

        for (int i = 0; i < record->num_in; ++i)
            leads = leads || (nodes[i] != COI_NO_NODE && w->leads[nodes[i]]);
        for (int i = 0; leads && i < record->num_out; ++i)
            w->leads[nodes[record->num_in + i]] = true;
    }
}

co_value *
coi_add_gradients(co_context *ctx, co_value *a, co_value *b)
{
    if (coi_is_composite(a) && a->kind == b->kind)
        return coi_concat_composites(ctx, (co_value *[]){ a, b }, 2, "gradient");
    return co_add(ctx, coi_densify(ctx, a), coi_densify(ctx, b));
}

/* Add a gradient (a value of the current block) to a sum, NULL at first. */
static bool
add_to(const backward_pass *w, co_value **sum, co_value *grad)
{
    co_context *ctx = w->ctx;
    co_value   *old = *sum;

    if (old != NULL) {
        grad = coi_add_gradients(ctx, old, grad);
        if (grad == NULL)
            return false;
    }
    coi_ref(grad);
    coi_unref(&ctx->heap, old);
    *sum = grad;
    return true;
}

/* Add a gradient to a node. */
static bool
accumulate(backward_pass *w, uint32_t node, co_value *grad)
{
    return add_to(w, &w->grads[node], grad) &&
           (w->whole[node] == NULL || add_to(w, &w->whole[node], grad));
}

/* Add a gradient to what the user gets for a node, but not to what flows on through it. */
static bool
accumulate_aside(backward_pass *w, uint32_t node, co_value *grad)
{
    if (w->whole[node] == NULL && w->grads[node] != NULL) {
        coi_ref(w->grads[node]);
        w->whole[node] = w->grads[node];
    }
    w->has_whole = true;
    return add_to(w, &w->whole[node], grad);
}

/* The gradients that flow into the outputs of a record; dense, because operators take tensors. */
static bool
take_upstream(backward_pass *w, const coi_record *record, co_value **upstream, bool *any)
{
    const uint32_t *nodes = &w->log->nodes[record->values + record->num_in];

    *any = false;
    for (int i = 0; i < record->num_out; ++i) {
        upstream[i] = w->grads[nodes[i]];
        if (upstream[i] == NULL)
            continue;
        *any = true;
        upstream[i] = coi_densify(w->ctx, upstream[i]);
        if (upstream[i] == NULL)
            return false;
    }
    return true;
}

/* Whether what flows in is dropped when the step is done. */
static bool
owns_upstream(const backward_pass *w, const coi_record *record)
{
    const uint32_t *nodes = &w->log->nodes[record->values + record->num_in];
    bool            owns = true;

    for (int i = 0; i < record->num_out; ++i)
        owns = owns && !w->source[nodes[i]];
    return owns;
}

static void
drop_upstream(backward_pass *w, const coi_record *record)
{
    const uint32_t *nodes = &w->log->nodes[record->values + record->num_in];

    for (int i = 0; i < record->num_out; ++i) {
        uint32_t node = nodes[i];

        if (!w->source[node]) {
            coi_unref(&w->ctx->heap, w->grads[node]);
            w->grads[node] = NULL;
        }
    }
}

/* What the gradient of a record is called with. Values and attributes are copied to `held` and
 * `attrs`, because the arrays of the log may move while it is computed. */
static coi_grad
grad_of(const backward_pass *w, const coi_record *record, co_value **held, char *attrs,
        co_value *const *upstream, co_value **grads, const bool *needed)
{
    memcpy(held, w->log->values + record->values,
           ((size_t)record->num_in + record->num_out) * sizeof(*held));
    if (record->op->attrs_rule.size > 0) /* a log without attributes has no array of them */
        memcpy(attrs, w->log->attrs + record->attrs, record->op->attrs_rule.size);
    return (coi_grad){ .ctx = w->ctx,
                       .op = record->op,
                       .attrs = attrs,
                       .in = held,
                       .num_in = record->num_in,
                       .out = held + record->num_in,
                       .num_out = record->num_out,
                       .upstream = upstream,
                       .owns_upstream = owns_upstream(w, record),
                       .needed = needed,
                       .grads = grads };
}

/* Which inputs want a gradient, of which there is none yet; whether any does. */
static bool
find_needed(const backward_pass *w, const coi_record *record, co_value **grads, bool *needed)
{
    bool wanted = false;

    for (int i = 0; i < record->num_in; ++i) {
        uint32_t node = w->log->nodes[record->values + (size_t)i];

        grads[i] = NULL;
        needed[i] = node != COI_NO_NODE && w->leads[node];
        wanted = wanted || needed[i];
    }
    return wanted;
}

/* Add the gradients of a record to the nodes of its inputs. */
static bool
spread(backward_pass *w, const coi_record *record, co_value *const *grads, const bool *needed)
{
    bool ok = true;

    for (size_t i = 0; ok && i < record->num_in; ++i)
        if (needed[i] && grads[i] != NULL)
            ok = accumulate(w, w->log->nodes[record->values + i], grads[i]);
    return ok;
}

/* Call the gradient of one record. */
static bool
call_gradient(backward_pass *w, const coi_record *record, co_value *const *upstream,
              co_value **grads, const bool *needed)
{
    co_context       *ctx = w->ctx;
    _Alignas(16) char attrs[COI_MAX_ATTRS];
    co_value         *values[FEW + COI_MAX_OUTPUTS], **held = values;
    size_t            n = (size_t)record->num_in + record->num_out;
    coi_grad          grad;
    bool              ok;

    if (n > FEW + COI_MAX_OUTPUTS &&
        (held = coi_small_alloc(&ctx->heap, n * sizeof(*held))) == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradient of %s", record->op->name);
        return false;
    }
    grad = grad_of(w, record, held, attrs, upstream, grads, needed);
    ok = (ctx->infers_types ? coi_infer_gradient(&grad) : record->op->grad(&grad)) == CO_OK &&
         ctx->error.code == CO_OK;
    if (held != values)
        coi_small_free(&ctx->heap, held, n * sizeof(*held));
    return ok;
}

static bool
step_back(backward_pass *w, const coi_record *record)
{
    co_value *upstream[COI_MAX_OUTPUTS], *few[FEW], **grads = few;
    bool      few_needed[FEW], *needed = few_needed, any, ok;
    size_t    n = record->num_in, room = n * (sizeof(*grads) + sizeof(*needed));

    if (record->op->grad == NULL && !w->ctx->infers_types)
        return true;
    if (!take_upstream(w, record, upstream, &any))
        return false;
    if (!any)
        return true;
    if (n > FEW) {
        grads = coi_small_alloc(&w->ctx->heap, room);
        if (grads == NULL) {
            coi_fail(w->ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradients of %zu inputs", n);
            return false;
        }
        needed = (bool *)(grads + n);
    }
    ok = !find_needed(w, record, grads, needed) ||
         (call_gradient(w, record, upstream, grads, needed) && spread(w, record, grads, needed));
    if (grads != few)
        coi_small_free(&w->ctx->heap, grads, room);
    drop_upstream(w, record);
    return ok;
}

/* Which record before r produced a node: the nodes of results grow from record to record. w->end if
 * none of this tape did. */
static size_t
find_producer(const backward_pass *w, size_t r, uint32_t node)
{
    const coi_tape_log *log = w->log;
    size_t              low = w->first, high = r;

    while (low < high) {
        size_t            mid = low + (high - low) / 2;
        const coi_record *record = &log->records[mid];
        uint32_t          first = log->nodes[record->values + record->num_in];

        if (node >= first && node - first < record->num_out)
            return mid;
        if (node < first)
            high = mid;
        else
            low = mid + 1;
    }
    return w->end;
}

/* One of two records that take a step together; they have few values. */
typedef struct partner {
    _Alignas(16) char attrs[COI_MAX_ATTRS];
    co_value *values[FEW + COI_MAX_OUTPUTS], *grads[FEW];
    bool      needed[FEW];
} partner;

/*
 * The step of a record and of the one that produced its input, where the operator of the former
 * knows how. Both operators, their shapes and attributes decide this, and neither other users of
 * the input nor what is asked for: the bits of a gradient depend on neither. What the pair gives
 * goes to the inputs of the producer. What comes from other users takes the step of the producer.
 */
static bool
pair_back(backward_pass *w, size_t r, bool *done)
{
    const coi_record user = w->log->records[r];
    uint32_t         node = w->log->nodes[user.values];
    size_t           p = node != COI_NO_NODE ? find_producer(w, r, node) : w->end;
    coi_record       producer;
    co_value        *upstream[COI_MAX_OUTPUTS];
    partner          ours, theirs;
    coi_grad         grad, before;
    bool             any, ok;

    *done = false;
    if (p == w->end || w->log->records[p].op != user.op->fused_producer)
        return true;
    producer = w->log->records[p];
    if (!take_upstream(w, &user, upstream, &any))
        return false;
    if (!any || !find_needed(w, &producer, theirs.grads, theirs.needed))
        return true;
    before = grad_of(w, &producer, theirs.values, theirs.attrs, NULL, theirs.grads, theirs.needed);
    ours.grads[0] = NULL;
    ours.needed[0] = w->source[node];
    grad = grad_of(w, &user, ours.values, ours.attrs, upstream, ours.grads, ours.needed);
    ok = user.op->fused_grad(&grad, &before, done) == CO_OK &&
         spread(w, &producer, theirs.grads, theirs.needed) &&
         (ours.grads[0] == NULL || accumulate_aside(w, node, ours.grads[0]));
    if (*done)
        drop_upstream(w, &user);
    return ok;
}

static bool
step_through(backward_pass *w)
{
    for (size_t r = w->end; r > w->first; --r) {
        coi_record record = w->log->records[r - 1];
        bool       ok = true, done = false;

        co_block_begin(w->ctx);
        if (record.op->fused_producer != NULL)
            ok = pair_back(w, r - 1, &done);
        if (ok && !done)
            ok = step_back(w, &record);
        co_block_end(w->ctx);
        if (!ok)
            return false;
    }
    return true;
}

static void
refuse_seed(co_context *ctx, size_t i, const co_value *grad, const co_value *target)
{
    char given[COI_SHAPE_TEXT], wanted[COI_SHAPE_TEXT];

    coi_fail(ctx, CO_INVALID_ARGUMENT, "output gradient %zu is %s %s; its target is %s %s", i,
             co_dtype_name((co_dtype)grad->dtype),
             coi_shape_text(grad->u.tensor.dims, grad->ndim, given),
             co_dtype_name((co_dtype)target->dtype),
             coi_shape_text(target->u.tensor.dims, target->ndim, wanted));
}

/* The tensor that a value is here, or its type while a function is captured: a reference. */
static co_value *
tensor_here(co_context *ctx, co_value *value)
{
    if (coi_is_capturing(ctx) && coi_is_variable(value))
        value = coi_fresh_type(ctx, value);
    if (value == NULL || !coi_is_type(value))
        return value != NULL ? coi_as_tensor(ctx, value, CO_DTYPE_NONE) : NULL;
    coi_ref(value);
    return value;
}

/* What begins at a target: ones, or what the user gave. */
static co_value *
seed_of(co_context *ctx, co_value *target, co_value *given)
{
    co_dtype dtype = (co_dtype)target->dtype;

    if (given == NULL || given->kind == CO_KIND_NONE)
        return coi_is_type(target) ? co_ones_like(ctx, target)
                                   : co_ones(ctx, dtype, target->u.tensor.dims, target->ndim);
    return coi_is_type(given) ? given : coi_give(ctx, coi_as_tensor(ctx, given, dtype));
}

static bool
may_be_seed(const co_value *grad, const co_value *target)
{
    bool same = grad->dtype == target->dtype && coi_dims_fit(grad->ndim, target->ndim);

    for (int i = 0; same && i < grad->ndim && i < target->ndim; ++i)
        same = coi_dims_fit(grad->u.tensor.dims[i], target->u.tensor.dims[i]);
    return same;
}

/* Begin at the targets. */
static bool
seed(backward_pass *w, co_value **targets, size_t n, co_value **given)
{
    co_context *ctx = w->ctx;

    for (size_t i = 0; i < n; ++i) {
        uint32_t  node = node_of(w, targets[i]);
        co_value *tensor, *grad;

        if (node == COI_NO_NODE || !w->leads[node])
            continue;
        tensor = tensor_here(ctx, targets[i]);
        if (tensor == NULL)
            return false;
        grad = seed_of(ctx, tensor, given != NULL ? given[i] : NULL);
        if (grad != NULL && !may_be_seed(grad, tensor))
            refuse_seed(ctx, i, grad, tensor);
        coi_unref(&ctx->heap, tensor);
        if (ctx->error.code != CO_OK || !accumulate(w, node, grad))
            return false;
    }
    return true;
}

static co_value *
zeros_for(co_context *ctx, co_value *source)
{
    co_value *tensor = tensor_here(ctx, source), *zeros;

    if (tensor == NULL)
        return NULL;
    zeros = coi_is_type(tensor)
                ? co_zeros_like(ctx, tensor)
                : co_zeros(ctx, (co_dtype)tensor->dtype, tensor->u.tensor.dims, tensor->ndim);
    coi_unref(&ctx->heap, tensor);
    return zeros;
}

/* Replace sources by their gradients, in place, as values of the user's block. */
static bool
collect(backward_pass *w, co_value **sources, size_t n, bool zero)
{
    co_context *ctx = w->ctx;

    for (size_t i = 0; i < n; ++i) {
        uint32_t  node = node_of(w, sources[i]);
        co_value *grad = node != COI_NO_NODE ? w->grads[node] : NULL;

        if (node != COI_NO_NODE && w->whole[node] != NULL)
            grad = w->whole[node];
        if (grad != NULL) {
            coi_ref(grad);
            grad = coi_own(ctx, grad);
        } else {
            grad = zero ? zeros_for(ctx, sources[i]) : co_none(ctx);
        }
        if (grad == NULL)
            return false;
        sources[i] = grad;
    }
    return true;
}

/* Composite targets stand for their first component, which is what was computed, and so do those
 * that are given for them. */
static void
take_values(co_context *ctx, co_value **targets, size_t n, co_value **given)
{
    for (size_t i = 0; i < n && ctx->error.code == CO_OK; ++i) {
        co_value            *target = targets[i];
        const coi_composite *composite = coi_kind_of(target)->composite;

        if (composite == NULL)
            continue;
        targets[i] = target->u.components[0];
        if (given != NULL && given[i]->kind == target->kind && coi_composite_is_whole(given[i]) &&
            (composite->check_gradient == NULL ||
             composite->check_gradient(ctx, i, given[i], target)))
            given[i] = given[i]->u.components[0];
    }
}

/* The leaves of a structure in an array of the heap. */
static co_value **
leaves_of(co_context *ctx, co_value *structure, size_t *n)
{
    co_value **leaves;

    *n = coi_count_leaves(structure);
    leaves = coi_small_alloc(&ctx->heap, (*n + 1) * sizeof(*leaves));
    if (leaves != NULL)
        coi_collect_leaves(structure, leaves);
    else
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu leaves", *n);
    return leaves;
}

static void
free_leaves(co_context *ctx, co_value **leaves, size_t n)
{
    if (leaves != NULL)
        coi_small_free(&ctx->heap, leaves, (n + 1) * sizeof(*leaves));
}

static bool
compute(backward_pass *w, co_value **targets, size_t num_targets, co_value **given,
        co_value **sources, size_t num_sources, bool zero)
{
    for (size_t i = 0; i < num_sources; ++i) {
        uint32_t node = node_of(w, sources[i]);

        if (node != COI_NO_NODE)
            w->leads[node] = w->source[node] = true;
    }
    find_paths(w);
    return seed(w, targets, num_targets, given) && step_through(w) &&
           collect(w, sources, num_sources, zero);
}

/* A tape stops recording before its backward pass, unless it is persistent; the log stays until the
 * pass is done. */
static void
hide(coi_tape_log *log, size_t place)
{
    --log->num_tapes;
    memmove(&log->tapes[place], &log->tapes[place + 1],
            (log->num_tapes - place) * sizeof(*log->tapes));
}

/* With as many tapes as there were. */
static void
show(coi_tape_log *log, size_t place, const coi_tape *tape)
{
    memmove(&log->tapes[place + 1], &log->tapes[place],
            (log->num_tapes - place - 1) * sizeof(*log->tapes));
    log->tapes[place] = *tape;
}

co_code
coi_gradients(co_context *ctx, co_value **targets, size_t num_targets, co_value **given,
              co_value **sources, size_t num_sources, bool zero)
{
    coi_tape_log *log = ctx->tapes;
    size_t        depth = log->num_tapes, place = coi_tape_place(ctx);
    coi_tape      tape = log->tapes[place];
    backward_pass w;

    if (pass_open(&w, ctx, place)) {
        if (!tape.persistent) {
            hide(log, place);
            ctx->recording = log->num_tapes > 0;
        }
        compute(&w, targets, num_targets, given, sources, num_sources, zero);
        pass_close(&w);
        log->num_tapes = depth;
        if (!tape.persistent)
            show(log, place, &tape);
        ctx->recording = true;
    }
    coi_tape_spend(ctx);
    return ctx->error.code;
}

static co_value *
gradient(co_context *ctx, co_value *targets, co_value *sources, const co_gradient_options *options)
{
    size_t     num_targets, num_sources, num_given = 0;
    co_value **to = leaves_of(ctx, targets, &num_targets);
    co_value **from = leaves_of(ctx, sources, &num_sources);
    co_value **given = NULL, *result = NULL;

    if (options->output_gradients != NULL && ctx->error.code == CO_OK) {
        if (coi_same_structure(targets, options->output_gradients, CO_VALUE_ERROR, coi_err(ctx)) ==
            CO_OK)
            given = leaves_of(ctx, options->output_gradients, &num_given);
        else
            coi_failed(ctx);
    }
    if (to != NULL && ctx->error.code == CO_OK)
        take_values(ctx, to, num_targets, given);
    if (ctx->error.code != CO_OK)
        coi_tape_spend(ctx);
    else if (coi_gradients(ctx, to, num_targets, given, from, num_sources,
                           options->unconnected_zero) == CO_OK)
        result = coi_give(ctx, coi_pack(&ctx->heap, sources, from, coi_err(ctx)));
    free_leaves(ctx, to, num_targets);
    free_leaves(ctx, from, num_sources);
    free_leaves(ctx, given, num_given);
    return result;
}

typedef struct gradient_attrs {
    bool has_output_gradients, unconnected_zero;
} gradient_attrs;

static co_value *
replay_gradient(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const gradient_attrs *given = attrs;
    co_gradient_options   options = CO_GRADIENT_OPTIONS_INIT;

    (void)num_in;
    options.output_gradients = given->has_output_gradients ? in[2] : NULL;
    options.unconnected_zero = given->unconnected_zero;
    return co_gradient_with(ctx, in[0], in[1], &options);
}

const coi_op coi_op_gradient = {
    COI_RECORDED("gradient", "The gradients of targets for sources; co_gradient.", replay_gradient,
                 0, 0),
    .attrs_rule.size = COI_ATTRS_SIZE(gradient_attrs),
    .is_planned = true,
    .takes_tape = true,
};

/* While a function is captured: the backward pass over types says which gradients there are and
 * which are slices; the function holds the call. */
co_value *
coi_capture_gradient(co_context *ctx, co_value *targets, co_value *sources,
                     const co_gradient_options *options)
{
    gradient_attrs attrs = { options->output_gradients != NULL, options->unconnected_zero };
    co_value      *in[3] = { coi_own_symbols(ctx, targets), coi_own_symbols(ctx, sources), NULL };
    co_value      *types;
    const struct coi_type_recorder *recorder = ctx->type_recorder;
    co_gradient_options             own = *options;

    if (attrs.has_output_gradients)
        own.output_gradients = in[2] = coi_own_symbols(ctx, options->output_gradients);
    if (ctx->error.code != CO_OK) {
        coi_tape_spend(ctx);
        return NULL;
    }
    /* A branch that does not run, or a loop without rounds, gives none where zeros are meant. */
    attrs.unconnected_zero = attrs.unconnected_zero || coi_tape_has_calls(ctx);
    coi_capture_tape(ctx, coi_tape_place(ctx));
    ctx->type_recorder = NULL;
    types = gradient(ctx, in[0], in[1], &own);
    ctx->type_recorder = recorder;
    return coi_record_call(ctx, &coi_op_gradient, &attrs, in, attrs.has_output_gradients ? 3 : 2,
                           types);
}

static bool
check(co_context *ctx, co_value *targets, co_value *sources, const co_gradient_options *options)
{
    if (ctx->error.code != CO_OK || !coi_check_value(ctx, targets, 2, "targets") ||
        !coi_check_value(ctx, sources, 3, "sources") ||
        (options->output_gradients != NULL &&
         !coi_check_value(ctx, options->output_gradients, 4, "options->output_gradients")))
        return false;
    if (!ctx->recording || coi_tape_place(ctx) == COI_NO_TAPE)
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "there is no open tape; call co_tape_begin before computing the targets");
    return ctx->error.code == CO_OK;
}

co_value *
co_gradient_with(co_context *ctx, co_value *targets, co_value *sources,
                 const co_gradient_options *options)
{
    co_gradient_options all = CO_GRADIENT_OPTIONS_INIT;
    co_value           *result;

    COI_ENTER_ALWAYS(ctx, "gradient", NULL);
    if (coi_take_options(ctx, &all, sizeof(all), options, 4) &&
        check(ctx, targets, sources, &all)) {
        result = coi_is_capturing(ctx) ? coi_capture_gradient(ctx, targets, sources, &all)
                                       : gradient(ctx, targets, sources, &all);
    } else {
        result = NULL;
        coi_tape_spend(ctx); /* the call ends its tape also when it fails */
    }
    return result;
}

co_value *
co_gradient(co_context *ctx, co_value *targets, co_value *sources)
{
    return co_gradient_with(ctx, targets, sources, NULL);
}
