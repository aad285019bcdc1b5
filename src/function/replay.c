/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a program: its calls, one after the other, through the executor that runs them without
 * capturing. So results have the same bits, tapes record the same operators, and errors are the
 * same.
 */
#include "function/plan.h"
#include "function/value_tree.h"

#include "ops/engine/gradient.h"

#include <string.h>

/* One run. */
typedef struct replay {
    co_context        *ctx;
    const coi_program *program;
    co_value         **slots; /* references; NULL: not made yet, or dropped */
    /* By the slot of their first component: the examples of per-replica values; NULL: the program
     * has none. */
    int64_t *examples;
    /* By the same slot: all replicas gave one value, which is grouped as itself (DV-GROUP-4). NULL:
     * there was none so far. */
    bool *is_one;
    bool  is_single; /* one call, outside a run: the slots are the caller's, who has no is_one, and
                      * a graph may get more of them meanwhile */
} replay;

/* --- values of the run in the place of symbolic tensors --- */

static co_value *
value_of_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    const replay *r = arg;

    (void)ctx;
    return leaf->kind == CO_KIND_SYMBOLIC && leaf->u.symbol.program == r->program->serial
               ? r->slots[leaf->u.symbol.slot]
               : leaf;
}

/* Give per-replica values the examples of this run; with symbolic tensors in their place they are
 * new. */
static void
put_examples(const replay *r, const co_value *pattern, co_value *value)
{
    coi_values patterns = coi_tree_items(pattern), items = coi_tree_items(value);
    uint64_t   slot;

    if (coi_is_per_replica(pattern) && pattern->u.per_replica.step_examples == COI_EXAMPLES_LATER &&
        (slot = coi_first_slot(r->program, pattern)) != UINT64_MAX)
        value->u.per_replica.step_examples = r->examples[slot];
    for (size_t i = 0; i < patterns.n; ++i) /* a symbolic tensor may stand for a structure */
        if (patterns.items[i] != NULL && patterns.items[i] != items.items[i])
            put_examples(r, patterns.items[i], items.items[i]);
}

/* Where all replicas gave one value, that value; NULL with an error. */
static co_value *
ungroup(const replay *r, const co_value *pattern, co_value *value)
{
    coi_values patterns = coi_tree_items(pattern), from = coi_tree_items(value);
    size_t     nbytes = (from.n + 1) * sizeof(co_value *);
    co_value **items;
    bool       is_same = true;
    uint64_t   slot;

    if (coi_is_distributed(pattern))
        return (slot = coi_first_slot(r->program, pattern)) != UINT64_MAX && r->is_one[slot]
                   ? coi_own_ref(r->ctx, r->slots[slot])
                   : value;
    if (!coi_is_structure(pattern))
        return value;
    if ((items = coi_small_alloc(&r->ctx->heap, nbytes)) == NULL) {
        coi_fail(r->ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu items", from.n);
        return NULL;
    }
    for (size_t i = 0; value != NULL && i < from.n; ++i) {
        items[i] = ungroup(r, patterns.items[i], from.items[i]);
        is_same = is_same && items[i] == from.items[i];
        if (items[i] == NULL)
            value = NULL;
    }
    if (value != NULL && !is_same)
        value = coi_tree_with_items(r->ctx, value, items, from.n);
    coi_small_free(&r->ctx->heap, items, nbytes);
    return value;
}

static co_value *
value_or_none(co_context *ctx, co_value *leaf, void *arg)
{
    co_value *value = value_of_leaf(ctx, leaf, arg);

    return value != NULL ? value : co_none(ctx);
}

static co_value *
value_of(replay *r, co_value *pattern, coi_tree_fn leaf)
{
    co_value *value = coi_tree_map(r->ctx, pattern, leaf, r);

    if (r->examples != NULL && value != NULL && coi_is_tree(pattern))
        put_examples(r, pattern, value);
    if (r->is_one != NULL && value != NULL && coi_is_tree(pattern))
        value = ungroup(r, pattern, value);
    return value;
}

static bool
bind_leaf(co_value *leaf, co_value *value, void *arg)
{
    replay    *r = arg;
    co_value **slot;

    if (leaf->kind != CO_KIND_SYMBOLIC)
        return true;
    /* A gradient through a branch is slices or not as the branch has it. */
    if (value->kind == CO_KIND_SLICES && (value = coi_densify(r->ctx, value)) == NULL)
        return true; /* the error is in ctx */
    slot = &r->slots[leaf->u.symbol.slot];
    coi_ref(value);
    coi_unref(&r->ctx->heap, *slot);
    *slot = value;
    return true;
}

static bool
note_one(replay *r, const co_value *pattern)
{
    uint64_t slot = coi_first_slot(r->program, pattern);
    size_t   nbytes;

    if (slot == UINT64_MAX || r->is_single)
        return true;
    nbytes = r->program->num_slots + 1;
    if (r->is_one == NULL) {
        if ((r->is_one = coi_small_alloc(&r->ctx->heap, nbytes)) == NULL) {
            coi_fail(r->ctx, CO_RESOURCE_EXHAUSTED,
                     "no memory for the values of a captured function");
            return false;
        }
        memset(r->is_one, 0, nbytes);
    }
    r->is_one[slot] = true;
    return true;
}

/* Replicas that give one value, which is grouped as itself (DV-GROUP-4): each of them gave it. */
static bool
bind_alike(co_value *pattern, co_value *value, void *arg)
{
    coi_values items = coi_tree_items(pattern);
    bool       ok = true;

    if (!coi_is_distributed(pattern) || coi_is_distributed(value))
        return false;
    for (size_t i = 0; ok && i < items.n; ++i)
        ok = coi_tree_pair(items.items[i], value, bind_leaf, arg);
    return ok && note_one(arg, pattern);
}

/* Structures are the same; what differs below them may be the values of replicas. */
static bool
bind_loosely(co_value *pattern, co_value *value, void *arg)
{
    coi_values a = coi_tree_items(pattern), b = coi_tree_items(value);
    bool       ok = true;

    if (coi_tree_pair(pattern, value, bind_leaf, arg) || bind_alike(pattern, value, arg))
        return true;
    if (!coi_is_structure(pattern) || !coi_is_same_node(pattern, value))
        return false;
    for (size_t i = 0; ok && i < a.n; ++i)
        ok = bind_loosely(a.items[i], b.items[i], arg);
    return ok;
}

static void
take_examples(replay *r, const co_value *pattern, const co_value *value)
{
    coi_values patterns = coi_tree_items(pattern), items = coi_tree_items(value);
    uint64_t   slot;

    if (coi_is_per_replica(pattern) && (slot = coi_first_slot(r->program, pattern)) != UINT64_MAX)
        r->examples[slot] = value->u.per_replica.step_examples;
    for (size_t i = 0; i < patterns.n; ++i)
        if (patterns.items[i] != NULL)
            take_examples(r, patterns.items[i], items.items[i]);
}

/* Let symbolic tensors in `pattern` stand for what is at their places in a value. */
static bool
bind(replay *r, co_value *pattern, co_value *value)
{
    if (coi_tree_pair(pattern, value, bind_leaf, r)) {
        if (r->examples != NULL && coi_is_tree(pattern))
            take_examples(r, pattern, value);
        return r->ctx->error.code == CO_OK;
    }
    if (bind_loosely(pattern, value, r))
        return true;
    coi_fail(r->ctx, CO_RUNTIME_ERROR,
             "a call gave %s where the function was captured with %s; the calls that it makes may "
             "not change",
             coi_a_kind(value->kind), coi_a_kind(pattern->kind));
    return false;
}

static co_value *
type_of_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    co_value *value = value_of_leaf(ctx, leaf, arg);

    return value != NULL ? value : coi_fresh_type(ctx, leaf);
}

static co_value **
slots_new(co_context *ctx, const coi_program *program)
{
    size_t     nbytes = (program->num_slots + 1) * sizeof(co_value *);
    co_value **slots = coi_small_alloc(&ctx->heap, nbytes);

    if (slots == NULL)
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the values of a captured function");
    else
        memset(slots, 0, nbytes);
    return slots;
}

static co_value **
slots_copy(const replay *r)
{
    co_value **copy = slots_new(r->ctx, r->program);

    for (uint32_t i = 0; copy != NULL && i < r->program->num_slots; ++i)
        if ((copy[i] = r->slots[i]) != NULL)
            coi_ref(copy[i]);
    return copy;
}

static void
slots_free(co_context *ctx, const coi_program *program, co_value **slots)
{
    for (uint32_t i = program->num_slots; i > 0; --i)
        coi_unref(&ctx->heap, slots[i - 1]);
    coi_small_free(&ctx->heap, slots, (program->num_slots + 1) * sizeof(co_value *));
}

static void
replay_end(const replay *r)
{
    slots_free(r->ctx, r->program, r->slots);
    if (r->is_one != NULL)
        coi_small_free(&r->ctx->heap, r->is_one, r->program->num_slots + 1);
}

co_value *
coi_program_result_type(co_context *ctx, const coi_program *program, co_value *args)
{
    replay    r = { ctx, program, slots_new(ctx, program), NULL, NULL, false };
    co_value *type = NULL;

    if (r.slots == NULL)
        return NULL;
    if (bind(&r, program->args, args))
        type = coi_tree_map(ctx, program->result, type_of_leaf, &r);
    replay_end(&r);
    return type;
}

/* --- steps --- */

static bool
apply_operator(replay *r, const coi_program_step *step, co_value *const *in)
{
    co_context   *ctx = r->ctx;
    const coi_op *op = step->op;
    co_value     *outs[COI_MAX_OUTPUTS], *result;

    if (op->composite != NULL) {
        result = coi_apply_composite(ctx, op, in, step->num_in, step->attrs);
        return result != NULL && bind(r, step->result, result);
    }
    if (op->num_outputs == 1 && op->training == NULL) {
        result = coi_apply(ctx, op, in, step->num_in, step->attrs);
        return result != NULL && bind_leaf(step->result, result, r);
    }
    if (coi_apply_many(ctx, op, in, step->num_in, step->attrs, outs) != CO_OK)
        return false;
    for (size_t i = 0; i < op->num_outputs; ++i)
        bind_leaf(op->num_outputs == 1 ? step->result : step->result->u.items.items[i], outs[i], r);
    return true;
}

static bool
run_call(replay *r, const coi_program_step *step, co_value *const *in)
{
    co_value *result;

    if (step->op->replay == NULL)
        return apply_operator(r, step, in);
    result = step->op->replay(r->ctx, step->attrs, in, step->num_in);
    return result != NULL && r->ctx->error.code == CO_OK && bind(r, step->result, result);
}

static bool
run_step(replay *r, const coi_program_step *step)
{
    co_value   *few[COI_INLINE_ITEMS], **in = few;
    size_t      nbytes = (size_t)step->num_in * sizeof(*in);
    uint32_t    tape = r->ctx->tape_number;
    coi_tree_fn leaf = step->op->want_operands != NULL ? value_or_none : value_of_leaf;
    bool        ok = true;

    if (step->num_in > COI_INLINE_ITEMS && (in = coi_small_alloc(&r->ctx->heap, nbytes)) == NULL) {
        coi_fail(r->ctx, CO_RESOURCE_EXHAUSTED, "no memory for %d operands", step->num_in);
        return false;
    }
    for (int i = 0; ok && i < step->num_in; ++i) {
        in[i] = step->is_plain ? leaf(r->ctx, step->in[i], r) : value_of(r, step->in[i], leaf);
        ok = in[i] != NULL;
    }
    if (!ok && r->ctx->error.code == CO_OK)
        coi_fail(r->ctx, CO_INTERNAL, "%s is run before what it needs", step->call);
    r->ctx->tape_number = step->tape;
    ok = ok && run_call(r, step, in);
    r->ctx->tape_number = tape;
    if (in != few)
        coi_small_free(&r->ctx->heap, in, nbytes);
    return ok;
}

/* On the device that the function chose for it. */
static bool
run_step_on_device(replay *r, const coi_program_step *step)
{
    co_context *ctx = r->ctx;
    size_t      entries = ctx->num_entries;
    bool        ok;

    if (step->device == NULL)
        return run_step(r, step);
    if (coi_push(ctx, COI_ENTRY_DEVICE, NULL) == NULL)
        return false;
    coi_enter_device(ctx, step->device);
    ok = run_step(r, step);
    coi_pop_to(ctx, entries);
    return ok;
}

bool
coi_program_run_step(co_context *ctx, const coi_program *program, const coi_program_step *step,
                     co_value **slots, int64_t *examples)
{
    replay r = { ctx, program, slots, examples, NULL, true };

    coi_copy_site(&ctx->site, &step->site);
    ctx->call = step->call;
    return run_step_on_device(&r, step);
}

/* What no call after this one uses. */
static void
drop_slots(replay *r, const coi_program_step *step)
{
    for (uint32_t k = 0; k < step->num_dropped; ++k) {
        co_value **slot = &r->slots[r->program->dropped[step->first_dropped + k]];

        coi_unref(&r->ctx->heap, *slot);
        *slot = NULL;
    }
}

static bool
make_call(replay *r, const coi_program_step *step)
{
    co_context *ctx = r->ctx;
    size_t      num_owned = ctx->num_owned;

    coi_copy_site(&ctx->site, &step->site);
    ctx->call = step->call;
    if (!run_step_on_device(r, step))
        return false;
    /* What the step made and no slot holds. A block of its own would end a tape that it began. */
    while (ctx->num_owned > num_owned)
        coi_unref(&ctx->heap, ctx->owned[--ctx->num_owned]);
    drop_slots(r, step);
    return true;
}

/* The calls from `first` on; recorded, if there is a recording. */
static bool
make_calls(replay *r, size_t first, size_t end, coi_plan_recording *recording)
{
    bool ok = true;

    for (size_t i = first; ok && i < end; ++i) {
        if (recording != NULL)
            coi_plan_record_step(recording, i);
        ok = make_call(r, &r->program->steps[i]);
    }
    return ok;
}

/* The calls that are needed, one by one. */
static bool
make_some_calls(replay *r, const bool *is_needed)
{
    bool ok = true;

    for (size_t i = 0; ok && i < r->program->num_steps; ++i) {
        if (is_needed[i])
            ok = make_call(r, &r->program->steps[i]);
        else
            drop_slots(r, &r->program->steps[i]);
    }
    return ok;
}

/* Record the kernels of a region, of which nothing runs: whether there is a plan more. Where it
 * fails, it leaves nothing behind, and the calls tell of their errors themselves. */
static bool
record_region(const replay *r, coi_region *region, coi_plan_recording *recording)
{
    co_context *ctx = r->ctx;
    uint64_t    random_counter = ctx->random_counter;
    size_t      unbegun_tapes = ctx->unbegun_tapes;
    replay      dry = *r;
    bool        is_planned;

    co_block_begin(ctx); /* it ends the tapes of calls that did not come to their end */
    dry.slots = slots_copy(r);
    if (dry.slots != NULL)
        make_calls(&dry, region->first, region->end, recording);
    is_planned = coi_region_end(ctx, region, dry.slots, recording);
    if (dry.slots != NULL)
        slots_free(ctx, r->program, dry.slots);
    if (dry.is_one != r->is_one)
        coi_small_free(&ctx->heap, dry.is_one, r->program->num_slots + 1);
    co_block_end(ctx);
    coi_error_reset(&ctx->error);
    ctx->random_counter = random_counter;
    ctx->unbegun_tapes = unbegun_tapes;
    return is_planned;
}

/* A region: by a plan where there is one or can be one, else its calls. */
static bool
run_region(replay *r, coi_region *region)
{
    coi_plan_recording *recording = NULL;

    if (coi_region_run(r->ctx, r->program, region, r->slots, &recording) ||
        (recording != NULL && record_region(r, region, recording) &&
         coi_region_run(r->ctx, r->program, region, r->slots, NULL)))
        return r->ctx->error.code == CO_OK;
    return make_calls(r, region->first, region->end, NULL);
}

co_value *
coi_program_value(co_context *ctx, const coi_program *program, co_value **slots, int64_t *examples,
                  co_value *pattern)
{
    replay    r = { ctx, program, slots, examples, NULL, true };
    co_value *value = coi_tree_map(ctx, pattern, value_or_none, &r);

    if (examples != NULL && value != NULL && coi_is_tree(pattern))
        put_examples(&r, pattern, value);
    return value;
}

static bool
run_steps(replay *r, const bool *is_needed)
{
    const coi_program *program = r->program;
    size_t             at = 0;

    if (is_needed != NULL)
        return make_some_calls(r, is_needed);
    for (size_t i = 0; i < program->num_regions; ++i) {
        coi_region *region = &program->regions[i];

        if (!make_calls(r, at, region->first, NULL) || !run_region(r, region))
            return false;
        at = region->end;
    }
    return make_calls(r, at, program->num_steps, NULL);
}

/* A reference to the result; of a single tensor that of its slot. */
static co_value *
take_result(replay *r, const bool *is_needed)
{
    co_value *pattern = r->program->result, *result, **slot;

    if (is_needed == NULL && pattern->kind == CO_KIND_SYMBOLIC &&
        pattern->u.symbol.program == r->program->serial) {
        slot = &r->slots[pattern->u.symbol.slot];
        result = *slot;
        *slot = NULL;
        return result;
    }
    result = is_needed == NULL
                 ? value_of(r, pattern, value_of_leaf)
                 : coi_program_value(r->ctx, r->program, r->slots, r->examples, pattern);
    if (result != NULL)
        coi_ref(result);
    return result;
}

co_value *
coi_program_replay(co_context *ctx, const coi_program *program, co_value *args)
{
    return coi_program_replay_part(ctx, program, args, NULL);
}

co_value *
coi_program_replay_part(co_context *ctx, const coi_program *program, co_value *args,
                        const bool *is_needed)
{
    size_t       example_bytes = (program->num_slots + 1) * sizeof(int64_t);
    replay       r = { ctx, program, slots_new(ctx, program), NULL, NULL, false };
    co_site_info site = ctx->site;
    size_t       unbegun_tapes = ctx->unbegun_tapes;
    co_value    *result = NULL;

    if (r.slots != NULL && program->has_examples &&
        (r.examples = coi_small_alloc(&ctx->heap, example_bytes)) == NULL) {
        slots_free(ctx, program, r.slots);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the values of a captured function");
        return NULL;
    }
    if (r.slots == NULL)
        return NULL;
    for (uint32_t i = 0; r.examples != NULL && i < program->num_slots; ++i)
        r.examples[i] = -1;
    co_block_begin(ctx);
    coi_program_put_constants(program, r.slots);
    if (ctx->error.code == CO_OK && bind(&r, program->args, args) && run_steps(&r, is_needed))
        result = take_result(&r, is_needed);
    replay_end(&r);
    if (r.examples != NULL)
        coi_small_free(&ctx->heap, r.examples, example_bytes);
    co_block_end(ctx);
    ctx->unbegun_tapes = unbegun_tapes; /* of tapes that are over with the block */
    coi_copy_site(&ctx->site, &site);
    return result != NULL ? coi_own(ctx, result) : NULL;
}
