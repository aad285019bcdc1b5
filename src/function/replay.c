/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a program: its calls, one after the other, through the executor that runs them without
 * capturing. So results have the same bits, tapes record the same operators, and errors are the
 * same.
 */
#include "function/function.h"
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
    /* One call, outside a run: the values are the caller's, and a graph may get more of them
     * meanwhile. NULL: a run. */
    coi_run_values *single;
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

/* Whether all replicas gave one value. A session may have been fed another for one of them. */
static bool
is_one_value(const replay *r, coi_values components)
{
    uint64_t first = coi_first_slot(r->program, components.items[0]);

    if (first == UINT64_MAX || !r->is_one[first] || r->slots[first] == NULL)
        return false;
    for (size_t i = 1; i < components.n; ++i) {
        uint64_t slot = coi_first_slot(r->program, components.items[i]);

        if (slot != UINT64_MAX && r->slots[slot] != r->slots[first])
            return false;
    }
    return true;
}

/* Where all replicas gave one value, that value; NULL with an error. */
static co_value *
ungroup(const replay *r, const co_value *pattern, co_value *value)
{
    coi_values patterns = coi_tree_items(pattern), from = coi_tree_items(value);
    size_t     nbytes = (from.n + 1) * sizeof(co_value *);
    co_value **items;
    bool       is_same = true;

    if (coi_is_distributed(pattern))
        return is_one_value(r, patterns)
                   ? coi_own_ref(r->ctx, r->slots[coi_first_slot(r->program, pattern)])
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

    if (slot == UINT64_MAX)
        return true;
    if (r->single != NULL) {
        if (r->single->is_one != NULL)
            r->single->is_one[slot] = r->single->has_one = true;
        return true;
    }
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
    replay    r = { ctx, program, slots_new(ctx, program), NULL, NULL, NULL };
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

/* Host values are part of the program, so a call has to give what it gave while capturing. */
static bool
check_host_leaf(co_value *leaf, co_value *value, void *arg)
{
    co_context *ctx = arg;
    char        was[80], is[80];

    if (!coi_kind_of(leaf)->is_host || !coi_kind_of(value)->is_host ||
        coi_same_host_value(leaf, value) || ctx->error.code != CO_OK)
        return true;
    coi_format(&ctx->heap, leaf, was, sizeof(was));
    coi_format(&ctx->heap, value, is, sizeof(is));
    coi_fail(
        ctx, CO_RUNTIME_ERROR,
        "%s gives %s where it gave %s while capturing, which is part of the captured function; "
        "let it give a tensor, or the same number on all replicas",
        ctx->call, is, was);
    return true;
}

static bool
run_call(replay *r, const coi_program_step *step, co_value *const *in)
{
    co_value *result;

    if (step->op->replay == NULL)
        return apply_operator(r, step, in);
    result = step->op->replay(r->ctx, step->attrs, in, step->num_in);
    if (result == NULL || r->ctx->error.code != CO_OK)
        return false;
    if (step->result->kind != CO_KIND_SYMBOLIC)
        coi_tree_pair(step->result, result, check_host_leaf, r->ctx);
    return r->ctx->error.code == CO_OK && bind(r, step->result, result);
}

static bool
start_call(replay *r, const coi_program_step *step, co_value *const *in)
{
    return step->op->start(r->ctx, step->attrs, in, step->num_in);
}

/* Give a step its operands. */
static bool
run_step(replay *r, const coi_program_step *step,
         bool (*run)(replay *r, const coi_program_step *step, co_value *const *in))
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
    ok = ok && run(r, step, in);
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
        return run_step(r, step, run_call);
    if (coi_push(ctx, COI_ENTRY_DEVICE, NULL) == NULL)
        return false;
    coi_enter_device(ctx, step->device);
    ok = run_step(r, step, run_call);
    coi_pop_to(ctx, entries);
    return ok;
}

static replay
replay_of_values(co_context *ctx, const coi_program *program, coi_run_values *values)
{
    return (replay){
        ctx,   program, values->slots, values->examples, values->has_one ? values->is_one : NULL,
        values
    };
}

bool
coi_program_run_step(co_context *ctx, const coi_program *program, const coi_program_step *step,
                     coi_run_values *values)
{
    replay r = replay_of_values(ctx, program, values);

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

/* What a step made and no slot holds. A block of its own would end a tape that it began. */
static void
drop_owned(co_context *ctx, size_t num_owned)
{
    while (ctx->num_owned > num_owned)
        coi_unref(&ctx->heap, ctx->owned[--ctx->num_owned]);
}

static bool
make_call_only(replay *r, const coi_program_step *step)
{
    co_context *ctx = r->ctx;
    size_t      num_owned = ctx->num_owned;

    coi_copy_site(&ctx->site, &step->site);
    ctx->call = step->call;
    if (!run_step_on_device(r, step))
        return false;
    drop_owned(ctx, num_owned);
    return true;
}

static bool
make_call(replay *r, const coi_program_step *step)
{
    if (!make_call_only(r, step))
        return false;
    drop_slots(r, step);
    return true;
}

static bool
make_calls(replay *r, size_t first, size_t end)
{
    bool ok = true;

    for (size_t i = first; ok && i < end; ++i)
        ok = make_call(r, &r->program->steps[i]);
    return ok;
}

/* A call of a plan. What it uses last stays: kernels after it may use it too. */
static bool
make_call_of_plan(void *arg, size_t step)
{
    replay *r = arg;

    return make_call_only(r, &r->program->steps[step]);
}

/* Begin a call after the region whose plan is running. */
static bool
start_call_of_plan(void *arg, size_t step)
{
    replay *r = arg;
    size_t  num_owned = r->ctx->num_owned;
    bool    ok = run_step(r, &r->program->steps[step], start_call);

    drop_owned(r->ctx, num_owned);
    return ok;
}

/* Make the steps of a region that come before its others: how many were made. An error is
 * forgotten, and none was made: the calls in their order tell of it. */
static size_t
make_ahead(replay *r, const coi_region *region)
{
    bool ok = coi_can_run_plans(r->ctx);

    for (size_t i = 0; ok && i < region->ahead.n; ++i)
        ok = make_call_only(r, &r->program->steps[region->ahead.at[i]]);
    if (!ok)
        coi_error_reset(&r->ctx->error);
    return ok ? region->ahead.n : 0;
}

/* The calls of a region, without the first of those that were made ahead. */
static bool
make_rest(replay *r, const coi_region *region, size_t num_made)
{
    bool ok = true;

    for (size_t i = region->first, k = 0; ok && i < region->end; ++i) {
        const coi_program_step *step = &r->program->steps[i];

        if (k < num_made && region->ahead.at[k] == i) {
            drop_slots(r, step);
            ++k;
        } else {
            ok = make_call(r, step);
        }
    }
    return ok;
}

/* The calls of a region for a recording: those that are planned are made, with meta tensors. */
static void
record_calls(replay *dry, const coi_region *region, coi_plan_recording *recording)
{
    const coi_region_call *call = region->calls, *end = call + region->num_calls;
    size_t                 ahead = 0;
    bool                   ok = true;

    for (size_t i = region->first; ok && i < region->end; ++i) {
        const coi_program_step *step = &dry->program->steps[i];

        coi_plan_record_step(recording, i);
        if (ahead < region->ahead.n && region->ahead.at[ahead] == i) {
            drop_slots(dry, step);
            ++ahead;
        } else if (call == end || call->step != i) {
            ok = make_call(dry, step);
        } else if ((ok = coi_plan_record_call(recording, region, call++, dry->slots))) {
            drop_slots(dry, step);
        }
    }
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
        record_calls(&dry, region, recording);
    is_planned = coi_region_end(ctx, r->program, region, dry.slots, r->slots, recording);
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

/* By a plan, where there is one or can be one: whether it was run, or failed with an error. */
static bool
run_plan(replay *r, coi_region *region)
{
    coi_plan_recording *recording = NULL;
    coi_plan_caller     caller = { make_call_of_plan, start_call_of_plan, r };

    return coi_region_run(r->ctx, r->program, region, r->slots, &caller, &recording) ||
           (recording != NULL && record_region(r, region, recording) &&
            coi_region_run(r->ctx, r->program, region, r->slots, &caller, NULL));
}

static bool run_regions(replay *r, coi_region *regions, size_t n, size_t first, size_t end);

/* A region that has no plan, or takes steps made ahead of it: it may have parts with plans. */
static __attribute__((noinline)) bool
run_in_parts(replay *r, coi_region *region)
{
    coi_region_parts *parts = atomic_load_explicit(&region->parts, memory_order_acquire);
    size_t            num_ahead = 0;

    if (parts == NULL && region->ahead.n > 0) {
        num_ahead = make_ahead(r, region);
        if (num_ahead > 0 && run_plan(r, region))
            return r->ctx->error.code == CO_OK;
        parts = atomic_load_explicit(&region->parts, memory_order_acquire);
    }
    return parts != NULL ? run_regions(r, parts->at, parts->n, region->first, region->end)
                         : make_rest(r, region, num_ahead);
}

/* A region: by a plan, or by parts with plans of their own, or its calls. */
static inline bool
run_region(replay *r, coi_region *region)
{
    if (region->ahead.n == 0 && !coi_is_cut(region) && run_plan(r, region))
        return r->ctx->error.code == CO_OK;
    return run_in_parts(r, region);
}

/* The steps from `first` on, with the regions among them. */
static bool
run_regions(replay *r, coi_region *regions, size_t n, size_t first, size_t end)
{
    for (size_t i = 0; i < n; ++i) {
        if (!make_calls(r, first, regions[i].first) || !run_region(r, &regions[i]))
            return false;
        first = regions[i].end;
    }
    return make_calls(r, first, end);
}

co_value *
coi_program_value(co_context *ctx, const coi_program *program, coi_run_values *values,
                  co_value *pattern)
{
    replay r = replay_of_values(ctx, program, values);

    return value_of(&r, pattern, value_or_none);
}

static bool
run_steps(replay *r, const bool *is_needed)
{
    const coi_program *program = r->program;

    return is_needed != NULL
               ? make_some_calls(r, is_needed)
               : run_regions(r, program->regions, program->num_regions, 0, program->num_steps);
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
    result = value_of(r, pattern, is_needed == NULL ? value_of_leaf : value_or_none);
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
    replay       r = { ctx, program, slots_new(ctx, program), NULL, NULL, NULL };
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
