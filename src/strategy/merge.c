/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge_call: all replicas stop, replica 0's function runs once in cross-replica context with the
 * merged arguments, and every replica gets its part of the result. It runs on the thread that
 * called run, in the context that called run.
 */
#include "function/function.h"
#include "function/value_tree.h"
#include "strategy/regroup.h"
#include "strategy/rendezvous.h"

#include <string.h>

typedef struct merging {
    co_merge_fn fn;
    void       *user;
} merging;

/* The arguments of the first n slots, merged: a reference. */
static co_value *
merged_args(co_context *ctx, coi_step *step, int n)
{
    co_value *values[COI_MAX_LOCAL_REPLICAS];

    for (int i = 0; i < n; ++i)
        values[i] = step->slots[i].value;
    return coi_regroup(ctx, step->strategy, values, n, CO_KIND_PER_REPLICA, false);
}

/* Enter cross-replica context in the parent (DEF-15). */
static bool
enter_merge(co_context *parent, coi_step *step)
{
    co_strategy *strategy = step->strategy;

    if (coi_push(parent, COI_ENTRY_MERGE, strategy) == NULL)
        return false;
    parent->mode.strategy = coi_current(strategy);
    parent->mode.cross = true;
    parent->mode.num_replicas = strategy->num_replicas;
    parent->mode.update_id = -1;
    parent->mode.step = step;
    return true;
}

/* Hand the parts of the result to the first n slots. */
static bool
spread_result(co_context *parent, coi_step *step, int n, co_value *result)
{
    for (int i = 0; i < n; ++i) {
        co_value *part = step->strategy->policy->wraps_values
                             ? coi_select_all(parent, step->strategy, result, i)
                             : result;

        if (part == NULL)
            return false;
        if (!step->strategy->policy->wraps_values)
            coi_ref(part);
        step->slots[i].result = part;
    }
    return true;
}

static void
drop_results(co_context *parent, coi_step *step, int n)
{
    for (int i = 0; i < n; ++i) {
        coi_unref(&parent->heap, step->slots[i].result);
        step->slots[i].result = NULL;
    }
}

/* What came back from a function of the user: none for NULL, a live value, or NULL with an
 * error. */
static co_value *
checked_result(co_context *ctx, co_value *result)
{
    if (ctx->error.code != CO_OK)
        return NULL;
    if (result == NULL)
        return co_none(ctx);
    return coi_check_result(ctx, result, "merge_call", "merge function") ? result : NULL;
}

/* On replica 0 alone, for the first n replicas, which wait to leave: all entries and blocks that
 * body leaves open are closed here. */
static void
merge_here(co_context *ctx, int n, coi_merge_body body, void *arg)
{
    coi_step   *step = ctx->mode.step;
    co_context *parent = step->parent;
    size_t entries = parent->num_entries, blocks = parent->num_blocks, floor = parent->block_floor;
    co_site_info site;
    const char  *call = parent->call;
    co_value    *args, *result;
    bool         ok = false;

    coi_take_back(parent);
    site = parent->site;
    co_block_begin(parent);
    parent->site = ctx->site;
    parent->call = ctx->call;
    parent->block_floor = parent->num_blocks;
    args = merged_args(parent, step, n);
    if (args != NULL && (args = coi_own(parent, args)) != NULL && enter_merge(parent, step)) {
        result = body(parent, step->strategy, args, arg);
        coi_pop_to(parent, entries);
        result = checked_result(parent, result);
        ok = result != NULL && spread_result(parent, step, n, result);
    }
    parent->block_floor = floor;
    coi_blocks_unwind(parent, blocks);
    if (!ok) {
        drop_results(parent, step, n);
        coi_take_error(ctx, parent);
        co_clear(parent);
        coi_break(step, ctx);
    }
    parent->site = site; /* what run finds later is found at its own line */
    parent->call = call;
    coi_lend(parent, &coi_lent_to_step);
}

typedef struct merge_job {
    coi_rendezvous_kind kind;
    co_value           *args;
    coi_close_fn        check;
    coi_merge_body      body;
    void               *arg;
    co_value           *result;
} merge_job;

static bool
merge(co_context *ctx, void *arg)
{
    merge_job           *m = arg;
    coi_rendezvous_slot *slot;
    bool                 ok;

    if (!coi_rendezvous(ctx, m->kind, m->args, m->arg, m->check))
        return false;
    if (ctx->mode.local_replica == 0)
        merge_here(ctx, ctx->mode.step->n, m->body, m->arg);
    /* The others wait here for as long as it takes: the function runs on the thread to which an
     * error would go. */
    ok = coi_rendezvous_leave(ctx);
    slot = coi_my_slot(ctx);
    m->result = slot->result;
    slot->result = NULL;
    if (ok)
        return true;
    coi_unref(&ctx->heap, m->result); /* the merge went well, and a replica has failed since */
    m->result = NULL;
    return false;
}

const coi_op coi_op_merge_call = {
    COI_EFFECT("merge_call",
               "Calls a function once for all replicas, in cross-replica context; co_merge_call.",
               coi_body_effect, CO_RESOURCE_REPLICAS, CO_RESOURCE_REPLICAS)
};

co_value *
coi_merge(co_context *ctx, coi_rendezvous_kind kind, co_value *args, coi_close_fn check,
          coi_merge_body body, void *arg)
{
    merge_job m = { kind, args, check, body, arg, NULL };

    return coi_execute_body(
               ctx, &coi_op_merge_call,
               (coi_effect){ .in = &args, .num_in = 1, .out = &m.result, .num_out = 1 }, merge, &m)
               ? m.result
               : NULL;
}

co_value *
coi_merge_first(co_context *ctx, co_value *args, coi_merge_body body, void *arg)
{
    coi_rendezvous_slot *slot = coi_my_slot(ctx);
    co_value            *result;

    if (coi_is_broken(ctx->mode.step)) {
        coi_take_step_error(ctx, ctx->mode.step);
        return NULL;
    }
    slot->value = args;
    merge_here(ctx, 1, body, arg);
    result = slot->result;
    slot->result = NULL;
    return result;
}

static co_value *
call_user(co_context *parent, co_strategy *strategy, co_value *args, void *arg)
{
    const merging *m = arg;
    co_value      *result;
    size_t         floor = coi_function_begin(parent);

    result = m->fn(parent, strategy, args, m->user);
    coi_function_end(parent, floor);
    return result;
}

typedef struct default_merge {
    merging   call;
    co_value *args, *result;
} default_merge;

static bool
merge_at_once(co_context *ctx, void *arg)
{
    default_merge *d = arg;
    size_t         entries = ctx->num_entries;
    co_value      *result;

    if (coi_push(ctx, COI_ENTRY_MERGE, NULL) == NULL)
        return false;
    ctx->mode.cross = true;
    result = call_user(ctx, co_default_strategy(ctx), d->args, &d->call);
    coi_pop_to(ctx, entries);
    d->result = checked_result(ctx, result);
    return d->result != NULL;
}

/* The default replica context, outside any run: call at once (DEF-15). */
static co_value *
merge_default(co_context *ctx, const merging *call, co_value *args)
{
    default_merge d = { *call, args, NULL };

    coi_execute_body(ctx, &coi_op_merge_call,
                     (coi_effect){ .in = &d.args, .num_in = 1, .out = &d.result, .num_out = 1 },
                     merge_at_once, &d);
    return d.result;
}

/* --- while a function is captured --- */

typedef struct merge_attrs {
    co_function *merge; /* a reference in a program */
} merge_attrs;

static bool
hold_merge(coi_heap *heap, void *to, const void *from)
{
    (void)heap;
    (void)to;
    coi_ref(((const merge_attrs *)from)->merge);
    return true;
}

static void
drop_merge(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((merge_attrs *)attrs)->merge);
}

/* A merge function as one of a single argument. */
typedef struct merge_closure {
    coi_object  object;
    co_merge_fn fn;
    void       *user;
} merge_closure;

static void
destroy_closure(coi_heap *heap, void *object)
{
    coi_object_free(heap, object, sizeof(merge_closure));
}

static const coi_class closure_class = { "merge function", destroy_closure, NULL };

static co_value *
call_closure(co_context *ctx, co_value *args, void *closure)
{
    const merge_closure *c = closure;

    return c->fn(ctx, co_get_strategy(ctx), args->u.items.items[0], c->user);
}

/* A value of the block, or NULL with an error. */
static co_function *
function_of_merge(co_context *ctx, co_merge_fn fn, void *user)
{
    merge_closure *closure = coi_object_new(&ctx->heap, &closure_class, sizeof(*closure));
    co_function   *function;

    if (closure == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to capture a merge function");
        return NULL;
    }
    closure->fn = fn;
    closure->user = user;
    function = coi_function_of_closure(ctx, call_closure, closure, "merge function");
    coi_unref(&ctx->heap, closure);
    return function;
}

static co_value *
call_captured(co_context *ctx, co_strategy *strategy, co_value *args, void *merge)
{
    (void)strategy;
    return co_call(ctx, merge, co_args(ctx, args));
}

static co_value *
replay_merge(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)num_in;
    return co_merge_call(ctx, call_captured, in[0], ((const merge_attrs *)attrs)->merge);
}

static bool
same_merge(co_context *ctx, const void *a, const void *b)
{
    return coi_check_same_function(ctx, ((const merge_attrs *)a)->merge,
                                   ((const merge_attrs *)b)->merge);
}

const coi_op coi_op_merge_captured = {
    COI_RECORDED("merge_captured",
                 "Calls a captured merge function for all replicas; "
                 "co_merge_call.",
                 replay_merge, CO_RESOURCE_REPLICAS, CO_RESOURCE_REPLICAS),
    .attrs_rule = { COI_ATTRS_SIZE(merge_attrs), hold_merge, drop_merge },
    .same_attrs = same_merge,
};

/* An argument that run gave to all replicas is one value for all of them (DV-GROUP-4). */
static co_value *
common_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    (void)arg;
    return coi_is_common_argument(ctx, leaf) ? coi_fresh_type(ctx, leaf) : leaf;
}

/* What this replica alone has becomes a type of its own. */
static co_value *
own_leaf(co_context *ctx, co_value *leaf, void *arg)
{
    (void)arg;
    return leaf->kind == CO_KIND_SPEC ? leaf : coi_types_of_args(ctx, leaf);
}

/* What the merge function gets: the other replicas are taken to bring what this one brings. */
co_value *
coi_merged_types(co_context *ctx, co_value *args)
{
    const coi_step *step = ctx->mode.step;
    co_value       *types[COI_MAX_LOCAL_REPLICAS];

    if (step == NULL)
        return args;
    args = coi_tree_map(ctx, args, common_leaf, NULL);
    if (args == NULL)
        return NULL;
    for (int i = 0; i < step->n; ++i)
        if ((types[i] = coi_tree_map(ctx, args, own_leaf, NULL)) == NULL)
            return NULL;
    return coi_give(ctx,
                    coi_regroup(ctx, step->strategy, types, step->n, CO_KIND_PER_REPLICA, false));
}

/* The type of what this replica gets back; the function is captured in cross-replica context. */
static co_value *
merge_type(co_context *ctx, co_function *merge, co_value *args)
{
    size_t       entries = ctx->num_entries;
    co_strategy *strategy = ctx->mode.step != NULL ? ctx->mode.step->strategy : NULL;
    int          replica = ctx->mode.local_replica;
    co_value    *types = coi_merged_types(ctx, args), *result = NULL;
    coi_program *program;

    if (types == NULL || coi_push(ctx, COI_ENTRY_MERGE, NULL) == NULL)
        return NULL;
    ctx->mode.cross = true;
    types = co_args(ctx, types);
    program = types != NULL ? coi_function_program(ctx, merge, types) : NULL;
    coi_pop_to(ctx, entries);
    if (program != NULL)
        result = coi_program_result_type(ctx, program, types);
    coi_unref(&ctx->heap, program);
    if (result != NULL && strategy != NULL && strategy->policy->wraps_values)
        result = coi_give(ctx, coi_select_all(ctx, strategy, result, replica));
    return result;
}

static co_value *
capture_merge(co_context *ctx, co_merge_fn fn, co_value *args, void *user)
{
    merge_attrs attrs = { NULL };
    co_value   *type;

    if (ctx->mode.num_replicas > 1 && coi_is_nested_call(ctx)) { /* RC-MERGE-8 */
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "merge_call is called by a captured function inside another one, or under a "
                 "condition or loop; call it in the step itself");
        return NULL;
    }
    attrs.merge = function_of_merge(ctx, fn, user);
    if (attrs.merge == NULL)
        return NULL;
    type = merge_type(ctx, attrs.merge, args);
    coi_function_outlives(ctx, attrs.merge, user);
    return coi_record_call(ctx, &coi_op_merge_captured, &attrs, &args, 1, type);
}

co_value *
co_merge_call(co_context *ctx, co_merge_fn fn, co_value *args, void *user)
{
    merging   m = { fn, user };
    co_value *result;

    COI_ENTER(ctx, "merge_call", NULL);
    if (fn == NULL) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 2 (fn) of merge_call is NULL; it must be a function");
        return NULL;
    }
    if (!coi_check_value(ctx, args, 3, "args"))
        return NULL;
    if (ctx->mode.cross) {
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "merge_call is called in cross-replica context; it needs to be inside a step given to run");
        return NULL;
    }
    if (coi_is_capturing(ctx))
        return capture_merge(ctx, fn, args, user);
    if (ctx->mode.step == NULL)
        return merge_default(ctx, &m, args);
    result = coi_merge(ctx, COI_RENDEZVOUS_MERGE, args, NULL, call_user, &m);
    return result != NULL ? coi_own(ctx, result) : NULL;
}
