/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditions: one of several bodies runs. What chooses is a predicate, an index or a tuple of
 * predicates; the rest is the same.
 */
#include "function/control_flow.h"
#include "function/value_tree.h"

#include <cohort/ops.h>

#include "base/text.h"

#include <stdio.h>

typedef enum selector_kind { SELECT_PREDICATE, SELECT_INDEX, SELECT_FIRST_TRUE } selector_kind;

/* One call: what chooses, and the branches. */
typedef struct choice {
    selector_kind kind;
    co_value     *selector;
    bool          exclusive;
    size_t        num_branches;
} choice;

/* --- choosing --- */

static bool
select_by_predicate(co_context *ctx, const choice *c, size_t *out)
{
    bool truth;

    if (!coi_read_predicate(ctx, c->selector, "the predicate", &truth))
        return false;
    *out = truth ? 0 : 1;
    return true;
}

static bool
check_index(co_context *ctx, const co_value *index)
{
    char text[200];
    bool is_integer = (index->kind == CO_KIND_TENSOR || coi_is_type(index)) &&
                      (index->dtype == CO_INT32 || index->dtype == CO_INT64);

    if (is_integer && index->ndim <= 0)
        return true;
    coi_format(&ctx->heap, index, text, sizeof(text));
    coi_fail(ctx, is_integer ? CO_INVALID_ARGUMENT : CO_TYPE_ERROR,
             "the index of the branches is %s; it must be a tensor of int32 or int64 without "
             "dimensions%s",
             text, coi_is_host(index) ? " (a switch in C does the same for a host number)" : "");
    return false;
}

static bool
select_by_index(co_context *ctx, const choice *c, size_t *out)
{
    const void *data;
    int64_t     i;

    if (!check_index(ctx, c->selector) || (data = coi_host_data(ctx, c->selector)) == NULL)
        return false;
    i = c->selector->dtype == CO_INT32 ? *(const int32_t *)data : *(const int64_t *)data;
    *out = i >= 0 && i < (int64_t)c->num_branches ? (size_t)i : c->num_branches - 1;
    return true;
}

static const char *
predicate_name(size_t i, char out[40])
{
    snprintf(out, 40, "predicate %zu", i);
    return out;
}

static bool
select_first_true(co_context *ctx, const choice *c, size_t *out)
{
    const coi_values predicates = coi_tree_items(c->selector);
    size_t           first = predicates.n, others = 0;
    char             name[40];

    for (size_t i = 0; i < predicates.n; ++i) {
        bool truth;

        if (!coi_read_predicate(ctx, predicates.items[i], predicate_name(i, name), &truth))
            return false;
        if (truth && first < predicates.n)
            ++others;
        else if (truth)
            first = i;
    }
    *out = first;
    if (others > 0 && c->exclusive)
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "predicate %zu is true, and so are %zu others; with `exclusive` at most one may be",
            first, others);
    else if (first == c->num_branches)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "none of the %zu predicates is true; give one branch more, as the default",
                 predicates.n);
    return ctx->error.code == CO_OK;
}

typedef bool (*select_fn)(co_context *ctx, const choice *c, size_t *out);

static const select_fn selectors[] = {
    [SELECT_PREDICATE] = select_by_predicate,
    [SELECT_INDEX] = select_by_index,
    [SELECT_FIRST_TRUE] = select_first_true,
};

/* --- in captured functions --- */

static co_value *replay_branch(co_context *ctx, const void *attrs, co_value *const *in, int num_in);

const coi_op coi_op_branch = {
    COI_WITH_BODIES("branch",
                    "Runs one of several captured bodies; co_cond, co_switch_case, co_case.",
                    replay_branch),
};

static co_value *
refuse_results(co_context *ctx, size_t i, co_value *first, co_value *other)
{
    char one[300], two[300];

    coi_format(&ctx->heap, first, one, sizeof(one));
    coi_format(&ctx->heap, other, two, sizeof(two));
    coi_fail(
        ctx, CO_TYPE_ERROR,
        "branch 0 returns %s, and branch %zu returns %s; structures and dtypes must be the same "
        "(co_cast converts)",
        one, i, two);
    return NULL;
}

/* The type of what any of the branches returns. */
static co_value *
joined_results(co_context *ctx, const coi_bodies *bodies)
{
    co_value *joined = coi_types_of_args(ctx, bodies->programs[0]->result);

    for (size_t i = 1; joined != NULL && i < bodies->num_programs; ++i) {
        co_value *types = coi_types_of_args(ctx, bodies->programs[i]->result);
        co_value *both = types != NULL ? coi_join_types(ctx, joined, types) : NULL;

        if (both == NULL && ctx->error.code == CO_OK)
            return refuse_results(ctx, i, joined, types);
        joined = both;
    }
    return joined;
}

static co_value *
record_branch(co_context *ctx, coi_bodies *bodies, co_value *const *in, int num_in)
{
    return coi_bodies_record(ctx, &coi_op_branch, bodies, in, num_in, joined_results(ctx, bodies));
}

static co_value *
replay_branch(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    coi_bodies   *bodies = ((const coi_bodies_attrs *)attrs)->bodies;
    choice        c = { (selector_kind)bodies->kind, in[0], bodies->flag, bodies->num_programs };
    coi_flow_body body;
    size_t        i;

    if (coi_is_capturing(ctx))
        return record_branch(ctx, bodies, in, num_in);
    if (!selectors[c.kind](ctx, &c, &i))
        return NULL;
    body = coi_bodies_at(bodies, i, in, num_in);
    return coi_body_run(ctx, &body, in[1]);
}

static co_value *
capture_branches(co_context *ctx, const choice *c, const coi_flow_body *branches, co_value *args)
{
    coi_bodies *bodies = coi_bodies_new(ctx, c->num_branches);
    size_t      nbytes = c->num_branches * sizeof(co_value *);
    co_value   *types = coi_types_of_args(ctx, args), **outside;
    co_value   *in[3] = { c->selector, args, NULL };
    bool        ok = bodies != NULL && types != NULL;

    if (!ok)
        return NULL;
    outside = coi_small_alloc(&ctx->heap, nbytes);
    if (outside == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu branches", c->num_branches);
        return NULL;
    }
    bodies->kind = (uint8_t)c->kind;
    bodies->flag = c->exclusive;
    for (size_t i = 0; ok && i < c->num_branches; ++i)
        ok = coi_bodies_add(ctx, bodies, &branches[i], types, &outside[i]);
    if (ok)
        in[2] = co_tuple(ctx, outside, c->num_branches);
    coi_small_free(&ctx->heap, outside, nbytes);
    return in[2] != NULL ? record_branch(ctx, bodies, in, 3) : NULL;
}

/* --- public calls --- */

static co_value *
run_choice(co_context *ctx, const choice *c, const coi_flow_body *branches, co_value *args)
{
    size_t i;

    /* A predicate on the host is known while capturing too: it is a branch of the C program. */
    if (coi_is_capturing(ctx) && c->selector->kind != CO_KIND_BOOL)
        return capture_branches(ctx, c, branches, args);
    return selectors[c->kind](ctx, c, &i) ? coi_body_run(ctx, &branches[i], args) : NULL;
}

/* Branches of the user as bodies. */
static co_value *
choose(co_context *ctx, const choice *c, const co_fn *fns, co_value *args, void *user)
{
    size_t         nbytes = c->num_branches * sizeof(coi_flow_body);
    coi_flow_body *branches = coi_small_alloc(&ctx->heap, nbytes);
    co_value      *result;

    if (branches == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu branches", c->num_branches);
        return NULL;
    }
    for (size_t i = 0; i < c->num_branches; ++i)
        branches[i] = (coi_flow_body){ .fn = fns[i],
                                       .user = user,
                                       .name = "branch of a condition" };
    result = run_choice(ctx, c, branches, args);
    coi_small_free(&ctx->heap, branches, nbytes);
    return result;
}

co_value *
co_cond(co_context *ctx, co_value *predicate, co_fn true_fn, co_fn false_fn, co_value *args,
        void *user)
{
    choice c = { SELECT_PREDICATE, predicate, false, 2 };

    COI_ENTER(ctx, "cond", NULL);
    if (!coi_check_value(ctx, predicate, 2, "predicate") ||
        !coi_check_body(ctx, true_fn, 3, "true_fn") ||
        !coi_check_body(ctx, false_fn, 4, "false_fn") ||
        (args = coi_check_args(ctx, args, 5, "args", true)) == NULL ||
        !coi_check_predicate(ctx, predicate, "the predicate"))
        return NULL;
    return choose(ctx, &c, (const co_fn[]){ true_fn, false_fn }, args, user);
}

static bool
check_branches(co_context *ctx, const co_fn *branches, size_t num_branches)
{
    if (branches == NULL || num_branches == 0) {
        coi_fail(ctx, CO_VALUE_ERROR, "%s has no branches; give one or more", ctx->call);
        return false;
    }
    for (size_t i = 0; i < num_branches; ++i)
        if (branches[i] == NULL) {
            coi_fail(ctx, CO_TYPE_ERROR, "branch %zu of %s is NULL; it must be a function", i,
                     ctx->call);
            return false;
        }
    return true;
}

co_value *
co_switch_case(co_context *ctx, co_value *index, const co_fn *branches, size_t num_branches,
               co_value *args, void *user)
{
    choice c = { SELECT_INDEX, index, false, num_branches };

    COI_ENTER(ctx, "switch_case", NULL);
    if (!coi_check_value(ctx, index, 2, "index") || !check_branches(ctx, branches, num_branches) ||
        (args = coi_check_args(ctx, args, 5, "args", true)) == NULL)
        return NULL;
    if (coi_is_variable(index) && (c.selector = co_identity(ctx, index)) == NULL)
        return NULL;
    return check_index(ctx, c.selector) ? choose(ctx, &c, branches, args, user) : NULL;
}

static bool
check_predicates(co_context *ctx, const co_value *predicates, size_t num_branches)
{
    coi_values items = coi_tree_items(predicates);
    char       name[40];

    if (num_branches != items.n && num_branches != items.n + 1) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "%zu branch%s for %zu predicate%s; give one for each, or one more as the default",
                 num_branches, num_branches == 1 ? "" : "es", items.n, COI_S(items.n));
        return false;
    }
    for (size_t i = 0; i < items.n; ++i)
        if (!coi_check_predicate(ctx, items.items[i], predicate_name(i, name)))
            return false;
    return true;
}

co_value *
co_case(co_context *ctx, co_value *predicates, const co_fn *branches, size_t num_branches,
        co_value *args, void *user, bool exclusive)
{
    choice c = { SELECT_FIRST_TRUE, NULL, exclusive, num_branches };

    COI_ENTER(ctx, "case", NULL);
    c.selector = coi_check_args(ctx, predicates, 2, "predicates", false);
    if (c.selector == NULL || !check_branches(ctx, branches, num_branches) ||
        !check_predicates(ctx, c.selector, num_branches) ||
        (args = coi_check_args(ctx, args, 5, "args", true)) == NULL)
        return NULL;
    return choose(ctx, &c, branches, args, user);
}
