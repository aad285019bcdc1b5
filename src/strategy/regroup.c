/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging the values of replicas into one (DV-GROUP) and selecting a replica's part again (DV-SEL).
 */
#include "strategy/regroup.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define PATH_SIZE 200

/* A merge under way; path names the place in messages. */
typedef struct merge {
    co_context *ctx;
    int         n;
    co_kind     kind;
    bool        always;
    int         first; /* id of the first value's replica, for messages */
    char        path[PATH_SIZE];
} merge;

static co_value *merge_values(merge *m, co_value *const *values);

static bool
same_leaf(const co_value *a, const co_value *b)
{
    const coi_kind_ops *row = coi_kind_of(a);

    return a == b || (a->kind == b->kind && row->same != NULL && row->same(a, b));
}

/* The value whose parts these are (DV-GROUP-5): a reference; NULL if they are not. */
static co_value *
whole_of(coi_heap *heap, co_value *const *values, int n)
{
    const coi_kind_ops *row = coi_kind_of(values[0]);

    return row->whole != NULL ? row->whole(heap, values, (size_t)n) : NULL;
}

static co_value *
merge_leaves(merge *m, co_value *const *values)
{
    co_value *per_replica, *whole;
    bool      same = !m->always;

    if (m->n == 1 && (whole = whole_of(&m->ctx->heap, values, 1)) != NULL)
        return whole;
    for (int i = 1; i < m->n && same; ++i)
        same = same_leaf(values[0], values[i]);
    if (same) {
        coi_ref(values[0]);
        return values[0];
    }
    if ((whole = whole_of(&m->ctx->heap, values, m->n)) != NULL)
        return whole;
    per_replica = coi_per_replica_new(&m->ctx->heap, m->kind, (size_t)m->n, coi_err(m->ctx));
    for (int i = 0; i < m->n && per_replica != NULL; ++i) {
        coi_ref(values[i]);
        per_replica->u.per_replica.items[i] = values[i];
    }
    return per_replica;
}

static void
part(merge *m, int i, const char *a, const char *b)
{
    coi_error(
        coi_err(m->ctx), CO_ASSERTION_ERROR,
        "replicas %d and %d have different structures at %s: %s against %s; all replicas must give the same structure",
        m->first, m->first + i, m->path[0] != '\0' ? m->path : "the top", a, b);
}

/* All containers are of one kind, length and set of keys. */
static bool
containers_agree(merge *m, co_value *const *values)
{
    const co_value *a = values[0];
    char            left[80], right[80];

    for (int i = 1; i < m->n; ++i) {
        const co_value *b = values[i];

        if (a->kind != b->kind) {
            part(m, i, co_kind_name((co_kind)a->kind), co_kind_name((co_kind)b->kind));
            return false;
        }
        if (a->u.items.n != b->u.items.n) {
            snprintf(left, sizeof(left), "%s of %zu", co_kind_name((co_kind)a->kind), a->u.items.n);
            snprintf(right, sizeof(right), "%s of %zu", co_kind_name((co_kind)b->kind),
                     b->u.items.n);
            part(m, i, left, right);
            return false;
        }
        if (a->u.items.type_name != NULL &&
            strcmp(a->u.items.type_name, b->u.items.type_name) != 0) {
            coi_text_line(left, sizeof(left), "named tuple '%s'", a->u.items.type_name);
            coi_text_line(right, sizeof(right), "'%s'", b->u.items.type_name);
            part(m, i, left, right);
            return false;
        }
        for (size_t k = 0; a->u.items.keys != NULL && k < a->u.items.n; ++k)
            if (strcmp(a->u.items.keys[k + 1], b->u.items.keys[k + 1]) != 0) {
                coi_text_line(left, sizeof(left), "key '%s'", a->u.items.keys[k + 1]);
                coi_text_line(right, sizeof(right), "key '%s'", b->u.items.keys[k + 1]);
                part(m, i, left, right);
                return false;
            }
    }
    return true;
}

static co_value *
merge_items(merge *m, co_value *const *values)
{
    coi_heap *heap = &m->ctx->heap;
    size_t    length = strlen(m->path), nbytes = (size_t)m->n * sizeof(co_value *);
    co_value *merged, **column;

    if (!containers_agree(m, values))
        return NULL;
    merged = coi_structure_like(heap, values[0], coi_err(m->ctx));
    column = merged != NULL ? coi_small_alloc(heap, nbytes) : NULL;
    if (column == NULL) {
        coi_unref(heap, merged);
        coi_error(coi_err(m->ctx), CO_RESOURCE_EXHAUSTED, "no memory to merge %d values", m->n);
        return NULL;
    }
    for (size_t k = 0; k < merged->u.items.n; ++k) {
        coi_step_into(m->path, PATH_SIZE, merged, k);
        for (int i = 0; i < m->n; ++i)
            column[i] = values[i]->u.items.items[k];
        merged->u.items.items[k] = merge_values(m, column);
        m->path[length] = '\0';
        if (merged->u.items.items[k] == NULL)
            break;
    }
    coi_small_free(heap, column, nbytes);
    if (m->ctx->error.code != CO_OK || coi_structure_seal(merged, coi_err(m->ctx)) != CO_OK) {
        coi_unref(heap, merged);
        return NULL;
    }
    return merged;
}

static co_value *
merge_values(merge *m, co_value *const *values)
{
    bool structure = false;

    for (int i = 0; i < m->n; ++i)
        structure = structure || coi_is_structure(values[i]);
    if (!structure)
        return merge_leaves(m, values);
    for (int i = 1; i < m->n; ++i)
        if (coi_is_structure(values[i]) != coi_is_structure(values[0])) {
            part(m, i, co_kind_name((co_kind)values[0]->kind),
                 co_kind_name((co_kind)values[i]->kind));
            return NULL;
        }
    return merge_items(m, values);
}

bool
coi_has_component(const co_value *value)
{
    if (coi_holds_tensors_alone(value))
        return false;
    if (coi_is_variable(value))
        return coi_is_component(value->u.variable);
    for (size_t i = 0; coi_is_structure(value) && i < value->u.items.n; ++i)
        if (coi_has_component(value->u.items.items[i]))
            return true;
    return false;
}

static co_value *
group(co_context *ctx, const co_strategy *strategy, co_value *const *values, int n, co_kind kind,
      bool always)
{
    merge     m = { ctx, n, kind, always, strategy->first_local, "" };
    co_value *merged = merge_values(&m, values);

    if (merged == NULL)
        coi_failed(ctx);
    return merged;
}

co_value *
coi_regroup(co_context *ctx, const co_strategy *strategy, co_value *const *values, int n,
            co_kind kind, bool always)
{
    /* The only replica gave all components of a variable, so it gave the variable (DV-GROUP-10). */
    if (n == 1 && !always && !coi_has_component(values[0])) {
        coi_ref(values[0]);
        return values[0];
    }
    return group(ctx, strategy, values, n, kind, always);
}

static bool
has_per_replica(const co_value *value)
{
    if (coi_holds_tensors_alone(value))
        return false;
    if (!coi_is_structure(value))
        return coi_is_distributed(value);
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (has_per_replica(value->u.items.items[i]))
            return true;
    return false;
}

/* A per-replica value has a component for each local replica. */
static bool
fits(co_context *ctx, const co_strategy *strategy, const co_value *value)
{
    char text[COI_STRATEGY_TEXT];

    if (!coi_is_distributed(value) || (int)value->u.per_replica.n == strategy->num_local)
        return true;
    coi_fail(
        ctx, CO_VALUE_ERROR,
        "%s of %zu component%s is given to %s, which has %d replica%s here; make it with this "
        "strategy (co_distribute_dataset, co_distribute_values_from_function), or run a step for "
        "each of its parts: co_local_results",
        coi_a_kind(value->kind), value->u.per_replica.n, COI_S(value->u.per_replica.n),
        coi_strategy_text(strategy, text), strategy->num_local, COI_S(strategy->num_local));
    return false;
}

bool
coi_check_parts(co_context *ctx, const co_strategy *strategy, const co_value *value)
{
    if (coi_holds_tensors_alone(value))
        return true;
    if (!coi_is_structure(value))
        return value->kind != CO_KIND_PER_REPLICA ||
               (int)value->u.per_replica.n <= strategy->num_local || fits(ctx, strategy, value);
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (!coi_check_parts(ctx, strategy, value->u.items.items[i]))
            return false;
    return true;
}

static co_value *
select_from(co_context *ctx, const co_strategy *strategy, co_value *value, int replica)
{
    co_value *copy;

    if (!coi_is_structure(value) || !has_per_replica(value)) {
        if (!fits(ctx, strategy, value))
            return NULL;
        value = coi_select(value, replica);
        coi_ref(value);
        return value;
    }
    copy = coi_structure_like(&ctx->heap, value, coi_err(ctx));
    for (size_t i = 0; copy != NULL && i < copy->u.items.n; ++i) {
        copy->u.items.items[i] = select_from(ctx, strategy, value->u.items.items[i], replica);
        if (copy->u.items.items[i] == NULL) {
            coi_unref(&ctx->heap, copy);
            return NULL;
        }
    }
    if (copy != NULL)
        coi_structure_seal(copy, coi_err(ctx)); /* no deeper than what its parts are taken from */
    return copy;
}

bool
coi_check_per_replica(co_context *ctx, const co_strategy *strategy, const co_value *value)
{
    if (!coi_is_structure(value))
        return fits(ctx, strategy, value);
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (!coi_check_per_replica(ctx, strategy, value->u.items.items[i]))
            return false;
    return true;
}

co_value *
coi_select_all(co_context *ctx, const co_strategy *strategy, co_value *structure, int local_replica)
{
    co_value *selected = select_from(ctx, strategy, structure, local_replica);

    if (selected == NULL)
        coi_failed(ctx);
    return selected;
}

coi_examples
coi_find_examples(const co_value *value, int local_replica)
{
    coi_examples found = { -1, -1 };

    if (coi_is_per_replica(value) && (size_t)local_replica < value->u.per_replica.n) {
        found.of_step = value->u.per_replica.step_examples;
        if (found.of_step == COI_EXAMPLES_LATER)
            found.of_step = -1;
        found.of_replica = coi_rows_of(value->u.per_replica.items[local_replica]);
    }
    for (size_t i = 0; coi_is_structure(value) && i < value->u.items.n && found.of_step < 0; ++i)
        found = coi_find_examples(value->u.items.items[i], local_replica);
    return found;
}
