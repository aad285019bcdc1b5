/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops over the rows of tensors: map, folds, scans, and loops with a state. One loop serves all:
 * it takes the rows apart, calls the body for each, and stacks what is kept. The table says what
 * each kind keeps and how its body is called.
 */
#include "function/control_flow.h"
#include "function/value_tree.h"

#include <cohort/ops.h>

#include "base/text.h"

#include <string.h>

typedef enum row_loop_kind { ROWS_MAP, ROWS_FOLD, ROWS_SCAN, ROWS_EACH } row_loop_kind;

typedef struct row_loop_row {
    const char *body;      /* for messages */
    bool        has_state; /* what the body returns goes into the next round */
    bool        stacks;    /* the result is what the body returned for all rows */
} row_loop_row;

static const row_loop_row kinds[] = {
    [ROWS_MAP] = { "function of map_fn", false, true },
    [ROWS_FOLD] = { "function of a fold", true, false },
    [ROWS_SCAN] = { "function of scan", true, true },
    [ROWS_EACH] = { "function of for_each", true, false },
};

/* One loop. */
typedef struct row_loop {
    row_loop_kind kind;
    bool          reverse;
    coi_flow_body body;
    co_value     *state; /* none: of map, and where the first row is the state */
} row_loop;

static co_value *
no_memory(co_context *ctx, size_t n, const char *what)
{
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu %s", n, what);
    return NULL;
}

/* The arguments of the body; NULL with an error. */
static co_value *
body_args(co_context *ctx, row_loop_kind kind, co_value *state, co_value *element)
{
    if (kind == ROWS_MAP)
        return co_tuple(ctx, &element, 1);
    return kind == ROWS_EACH ? coi_for_each_args(ctx, element, state)
                             : co_tuple(ctx, (co_value *[]){ state, element }, 2);
}

co_value *
coi_for_each_args(co_context *ctx, co_value *element, co_value *state)
{
    size_t     n = state->u.items.n + 1, nbytes = n * sizeof(co_value *);
    co_value **items = coi_small_alloc(&ctx->heap, nbytes), *args;

    if (items == NULL)
        return no_memory(ctx, n, "arguments");
    items[0] = element;
    memcpy(items + 1, state->u.items.items, (n - 1) * sizeof(*items));
    args = co_tuple(ctx, items, n);
    coi_small_free(&ctx->heap, items, nbytes);
    return args;
}

/* --- rows --- */

/* Tensors as leaves: variables are read, per-replica values give this replica's component. */
static co_value *
elem_leaf(co_context *ctx, co_value *leaf, void *user)
{
    (void)user;
    return leaf->kind == CO_KIND_TENSOR || leaf->kind == CO_KIND_SYMBOLIC ? leaf
                                                                          : co_identity(ctx, leaf);
}

static co_value *
check_elems(co_context *ctx, co_value *elems)
{
    if (!coi_check_value(ctx, elems, 2, "elems"))
        return NULL;
    return coi_is_structure(elems) ? coi_map_leaves(ctx, elems, elem_leaf, NULL)
                                   : elem_leaf(ctx, elems, NULL);
}

/* How many rows there are: -1 if no tensor knows; false with an error. */
static bool
count_rows(co_context *ctx, co_value *const *leaves, size_t n, int64_t *out)
{
    const char *call = ctx->call;

    *out = -1;
    if (n == 0)
        coi_fail(ctx, CO_VALUE_ERROR, "elems of %s holds no tensor; it takes one or more", call);
    for (size_t i = 0; i < n && ctx->error.code == CO_OK; ++i) {
        int64_t dim = leaves[i]->ndim > 0 ? leaves[i]->u.tensor.dims[0] : -1;

        if (leaves[i]->ndim == 0)
            coi_fail(ctx, CO_VALUE_ERROR, "tensor %zu of elems of %s has no dimension, so no rows",
                     i, call);
        else if (dim >= 0 && *out >= 0 && dim != *out)
            coi_fail(ctx, CO_VALUE_ERROR,
                     "tensor %zu of elems of %s has %lld rows, and one before it %lld; they must "
                     "have equally many",
                     i, call, (long long)dim, (long long)*out);
        else if (dim >= 0)
            *out = dim;
    }
    return ctx->error.code == CO_OK;
}

/* The leaves of a structure, and room for as many; given back with free_leaves. */
typedef struct leaf_array {
    co_value **leaves, **room;
    size_t     n, nbytes;
} leaf_array;

static bool
take_leaves(co_context *ctx, co_value *structure, leaf_array *a)
{
    a->n = coi_count_leaves(structure);
    a->nbytes = 2 * (a->n + 1) * sizeof(co_value *);
    a->leaves = coi_small_alloc(&ctx->heap, a->nbytes);
    if (a->leaves == NULL)
        return no_memory(ctx, a->n, "tensors") != NULL;
    a->room = a->leaves + a->n + 1;
    coi_collect_leaves(structure, a->leaves);
    return true;
}

static void
free_leaves(co_context *ctx, const leaf_array *a)
{
    coi_small_free(&ctx->heap, a->leaves, a->nbytes);
}

static co_value *
pack(co_context *ctx, const co_value *like, co_value *const *leaves)
{
    return coi_give(ctx, coi_pack(&ctx->heap, like, leaves, coi_err(ctx)));
}

/* --- results --- */

/* What the body returned in all rounds, in the order of the rows: references. */
typedef struct kept_results {
    co_value **values;
    size_t     n, nbytes;
} kept_results;

static bool
keep_begin(co_context *ctx, kept_results *kept, int64_t num_rows, bool is_needed)
{
    *kept = (kept_results){ NULL, is_needed ? (size_t)num_rows : 0, 0 };
    kept->nbytes = (kept->n + 1) * sizeof(*kept->values);
    kept->values = coi_small_alloc(&ctx->heap, kept->nbytes);
    if (kept->values == NULL)
        return no_memory(ctx, kept->n, "results") != NULL;
    memset(kept->values, 0, kept->nbytes);
    return true;
}

static void
keep_end(co_context *ctx, kept_results *kept)
{
    for (size_t i = 0; i < kept->n; ++i)
        coi_unref(&ctx->heap, kept->values[i]);
    coi_small_free(&ctx->heap, kept->values, kept->nbytes);
}

/* Leaf k of all results, stacked. */
static co_value *
stack_leaf(co_context *ctx, const kept_results *kept, size_t k, leaf_array *scratch,
           co_value **parts)
{
    co_value *xs;

    for (size_t i = 0; i < kept->n; ++i) {
        coi_collect_leaves(kept->values[i], scratch->leaves);
        parts[i] = scratch->leaves[k];
    }
    if (parts[0]->kind == CO_KIND_NONE)
        return parts[0];
    xs = co_tuple(ctx, parts, kept->n);
    return xs != NULL ? co_stack(ctx, xs, 0) : NULL;
}

static co_value *
stack_results(co_context *ctx, const kept_results *kept)
{
    size_t     nbytes = (kept->n + 1) * sizeof(co_value *);
    co_value **parts = coi_small_alloc(&ctx->heap, nbytes), *stacked = NULL;
    leaf_array a;
    bool       ok = true;

    if (parts == NULL)
        return no_memory(ctx, kept->n, "results");
    if (take_leaves(ctx, kept->values[0], &a)) {
        for (size_t k = 0; ok && k < a.n; ++k)
            ok = (a.room[k] = stack_leaf(ctx, kept, k, &a, parts)) != NULL;
        if (ok)
            stacked = pack(ctx, kept->values[0], a.room);
        free_leaves(ctx, &a);
    }
    coi_small_free(&ctx->heap, parts, nbytes);
    return stacked;
}

/* --- types --- */

static co_value *
row_type(co_context *ctx, co_value *leaf, void *user)
{
    (void)user;
    return leaf->ndim < 0
               ? coi_spec(ctx, (co_dtype)leaf->dtype, NULL, -1)
               : coi_spec(ctx, (co_dtype)leaf->dtype, leaf->u.tensor.dims + 1, leaf->ndim - 1);
}

/* The type of one row of tensors. */
static co_value *
element_types(co_context *ctx, co_value *elems)
{
    return coi_is_structure(elems) ? coi_map_leaves(ctx, elems, row_type, NULL)
                                   : row_type(ctx, elems, NULL);
}

static co_value *
stacked_type(co_context *ctx, co_value *leaf, void *num_rows)
{
    int64_t dims[CO_MAX_DIMS];

    if (!coi_is_type(leaf) && leaf->kind != CO_KIND_TENSOR)
        return leaf;
    if (leaf->ndim < 0)
        return coi_spec(ctx, (co_dtype)leaf->dtype, NULL, -1);
    if (leaf->ndim == CO_MAX_DIMS) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "the results have %d dimensions; stacked, they would have more "
                 "than a tensor can have",
                 leaf->ndim);
        return NULL;
    }
    dims[0] = *(const int64_t *)num_rows;
    for (int i = 0; i < leaf->ndim; ++i)
        dims[i + 1] = leaf->u.tensor.dims[i];
    return coi_spec(ctx, (co_dtype)leaf->dtype, dims, leaf->ndim + 1);
}

/* No rows: an unknown dimension of the result is 0 as well. */
static co_value *
empty_tensor(co_context *ctx, co_value *leaf, void *user)
{
    int64_t dims[CO_MAX_DIMS] = { 0 };
    int     ndim = leaf->ndim;

    (void)user;
    if (!coi_is_type(leaf))
        return leaf;
    for (int i = 0; i < ndim; ++i)
        dims[i] = leaf->u.tensor.dims[i] >= 0 ? leaf->u.tensor.dims[i] : 0;
    return co_zeros(ctx, (co_dtype)leaf->dtype, dims, ndim >= 0 ? ndim : 1);
}

/* What the body is captured with: the types of its arguments. `*state` is the type of the state. */
static co_value *
types_of_body(co_context *ctx, const row_loop *l, co_value *elems, co_value **state)
{
    co_value *element = element_types(ctx, elems);

    if (element == NULL)
        return NULL;
    *state = l->state->kind == CO_KIND_NONE && l->kind != ROWS_EACH
                 ? element
                 : coi_types_of_args(ctx, l->state);
    return *state != NULL ? body_args(ctx, l->kind, *state, element) : NULL;
}

/* What the body returned as a state: a tuple also where it is a list. */
static co_value *
next_state(co_context *ctx, row_loop_kind kind, co_value *next)
{
    return kind == ROWS_EACH ? coi_round_tuple(ctx, next) : next;
}

/* The type of the result, by what the program of the body returns. */
static co_value *
result_types(co_context *ctx, row_loop_kind kind, const coi_program *program, co_value *state,
             int64_t num_rows)
{
    co_value *one;

    if (kinds[kind].has_state) {
        co_value *next = next_state(ctx, kind, program->result);

        if (next == NULL || !coi_check_round(ctx, kinds[kind].body, state, next))
            return NULL;
    }
    one = kinds[kind].has_state ? state : program->result;
    return kinds[kind].stacks ? coi_tree_map(ctx, one, stacked_type, &num_rows)
                              : coi_types_of_args(ctx, one);
}

/* The result without rows. A function is captured to know what it would return. */
static co_value *
result_of_none(co_context *ctx, const row_loop *l, co_value *elems)
{
    co_value    *state, *outside, *result;
    coi_program *program = (coi_program *)(uintptr_t)l->body.program;
    co_value    *types = types_of_body(ctx, l, elems, &state);

    if (types == NULL)
        return NULL;
    if (kinds[l->kind].has_state && l->state->kind == CO_KIND_NONE) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "elems has no rows, and there is no initializer; give one of them");
        return NULL;
    }
    if (!kinds[l->kind].stacks)
        return l->state;
    if (program != NULL)
        coi_ref(program);
    else if ((program = coi_body_capture(ctx, &l->body, types, &outside)) == NULL)
        return NULL;
    result = result_types(ctx, l->kind, program, state, 0);
    coi_unref(&ctx->heap, program);
    return result != NULL ? coi_tree_map(ctx, result, empty_tensor, NULL) : NULL;
}

/* --- rounds --- */

/* One call of the body: a reference, or NULL with an error. */
static co_value *
one_round(co_context *ctx, const row_loop *l, co_value *types, co_value *state, co_value *element)
{
    co_value *args, *next = NULL;

    co_block_begin(ctx);
    args = ctx->error.code == CO_OK ? body_args(ctx, l->kind, state, element) : NULL;
    if (args != NULL)
        next = next_state(ctx, l->kind, coi_body_run(ctx, &l->body, args));
    if (next != NULL && types != NULL && !coi_check_round(ctx, kinds[l->kind].body, types, next))
        next = NULL;
    if (next != NULL)
        coi_ref(next);
    co_block_end(ctx);
    return next;
}

static co_value *
element_at(co_context *ctx, const co_value *elems, leaf_array *rows, int64_t i)
{
    for (size_t k = 0; k < rows->n; ++k)
        rows->room[k] = rows->leaves[k]->u.items.items[i];
    return pack(ctx, elems, rows->room);
}

/* Calls for all rows; `rows` are tuples in the place of the leaves of elems. The last state is a
 * reference. */
static co_value *
run_rounds(co_context *ctx, const row_loop *l, co_value *elems, leaf_array *rows, int64_t num_rows,
           kept_results *kept)
{
    bool      begins_with_row = kinds[l->kind].has_state && l->state->kind == CO_KIND_NONE;
    co_value *state = l->state, *types = NULL; /* of the state, or of the first result */

    if (kinds[l->kind].has_state && !begins_with_row &&
        (types = coi_types_of_args(ctx, state)) == NULL)
        return NULL;
    coi_ref(state);
    for (int64_t i = 0; state != NULL && i < num_rows; ++i) {
        int64_t   at = l->reverse ? num_rows - 1 - i : i;
        co_value *element = element_at(ctx, elems, rows, at), *next = NULL;

        if (element != NULL && i == 0 && begins_with_row) {
            coi_ref(element);
            next = element;
        } else if (element != NULL) {
            next = one_round(ctx, l, types, state, element);
        }
        coi_unref(&ctx->heap, state);
        state = next;
        if (types == NULL && next != NULL)
            types = coi_types_of_args(ctx, next);
        if (next != NULL && kept->n > 0) {
            coi_ref(next);
            kept->values[at] = next;
        }
    }
    return state;
}

static co_value *
run_unstacked(co_context *ctx, const row_loop *l, co_value *elems, leaf_array *rows,
              int64_t num_rows)
{
    kept_results kept;
    co_value    *state, *result = NULL;

    if (!keep_begin(ctx, &kept, num_rows, kinds[l->kind].stacks))
        return NULL;
    state = run_rounds(ctx, l, elems, rows, num_rows, &kept);
    if (state != NULL && (state = coi_own(ctx, state)) != NULL && ctx->error.code == CO_OK)
        result = kinds[l->kind].stacks ? stack_results(ctx, &kept) : state;
    keep_end(ctx, &kept);
    return result;
}

static co_value *
run_rows(co_context *ctx, const row_loop *l, co_value *elems)
{
    leaf_array a;
    int64_t    num_rows;
    co_value  *result = NULL;
    bool       ok;

    if (!take_leaves(ctx, elems, &a))
        return NULL;
    ok = count_rows(ctx, a.leaves, a.n, &num_rows);
    for (size_t k = 0; ok && num_rows > 0 && k < a.n; ++k)
        ok = (a.leaves[k] = co_unstack(ctx, a.leaves[k], 0)) != NULL;
    if (ok)
        result = num_rows > 0 ? run_unstacked(ctx, l, elems, &a, num_rows)
                              : result_of_none(ctx, l, elems);
    free_leaves(ctx, &a);
    return result;
}

/* --- in captured functions --- */

static co_value *replay_rows(co_context *ctx, const void *attrs, co_value *const *in, int num_in);

const coi_op coi_op_row_loop = {
    COI_WITH_BODIES("row_loop",
                    "Runs a captured body for each row of tensors; co_map_fn, co_scan, co_foldl, "
                    "co_foldr, co_for_each.",
                    replay_rows),
};

static co_value *
record_rows(co_context *ctx, coi_bodies *bodies, co_value *const *in, int num_in)
{
    row_loop   l = { (row_loop_kind)bodies->kind, bodies->flag, { .fn = NULL }, in[1] };
    leaf_array a;
    int64_t    num_rows;
    co_value  *state;
    bool       ok;

    if (!take_leaves(ctx, in[0], &a))
        return NULL;
    ok = count_rows(ctx, a.leaves, a.n, &num_rows);
    free_leaves(ctx, &a);
    return ok && types_of_body(ctx, &l, in[0], &state) != NULL
               ? coi_bodies_record(ctx, &coi_op_row_loop, bodies, in, num_in,
                                   result_types(ctx, l.kind, bodies->programs[0], state, num_rows))
               : NULL;
}

static co_value *
replay_rows(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    coi_bodies *bodies = ((const coi_bodies_attrs *)attrs)->bodies;
    row_loop l = { (row_loop_kind)bodies->kind, bodies->flag, coi_bodies_at(bodies, 0, in, num_in),
                   in[1] };

    return coi_is_capturing(ctx) ? record_rows(ctx, bodies, in, num_in) : run_rows(ctx, &l, in[0]);
}

static co_value *
capture_rows(co_context *ctx, const row_loop *l, co_value *elems)
{
    coi_bodies *bodies = coi_bodies_new(ctx, 1);
    co_value   *in[3] = { elems, l->state, NULL }, *state, *outside;
    co_value   *types = bodies != NULL ? types_of_body(ctx, l, elems, &state) : NULL;

    if (types == NULL || !coi_bodies_add(ctx, bodies, &l->body, types, &outside) ||
        (in[2] = co_tuple(ctx, &outside, 1)) == NULL)
        return NULL;
    bodies->kind = (uint8_t)l->kind;
    bodies->flag = l->reverse;
    return record_rows(ctx, bodies, in, 3);
}

/* Counting rows first gives the errors of elems before the body is captured. */
static bool
check_rows(co_context *ctx, co_value *elems)
{
    leaf_array a;
    int64_t    num_rows;
    bool       ok;

    if (!take_leaves(ctx, elems, &a))
        return false;
    ok = count_rows(ctx, a.leaves, a.n, &num_rows);
    free_leaves(ctx, &a);
    return ok;
}

/* --- public calls --- */

static co_value *
loop_over(co_context *ctx, row_loop *l, co_value *elems)
{
    const char *call = ctx->call;

    l->body.name = kinds[l->kind].body;
    elems = check_elems(ctx, elems);
    if (elems != NULL && l->state != NULL)
        l->state = coi_tensors_of(ctx, l->state);
    else if (elems != NULL)
        l->state = co_none(ctx);
    ctx->call = call;
    if (elems == NULL || l->state == NULL || !check_rows(ctx, elems))
        return NULL;
    return coi_is_capturing(ctx) ? capture_rows(ctx, l, elems) : run_rows(ctx, l, elems);
}

co_value *
co_map_fn(co_context *ctx, co_value *elems, co_fn fn, void *user)
{
    row_loop l = { ROWS_MAP, false, { .fn = fn, .user = user }, NULL };

    COI_ENTER(ctx, "map_fn", NULL);
    return coi_check_body(ctx, fn, 3, "fn") ? loop_over(ctx, &l, elems) : NULL;
}

/* A fold or scan; the name of the call is in ctx. */
static co_value *
fold(co_context *ctx, row_loop_kind kind, co_value *elems, co_value *initializer, co_fn fn,
     void *user, bool reverse)
{
    row_loop l = { kind, reverse, { .fn = fn, .user = user }, initializer };

    if ((initializer != NULL && !coi_check_value(ctx, initializer, 3, "initializer")) ||
        !coi_check_body(ctx, fn, 4, "fn"))
        return NULL;
    return loop_over(ctx, &l, elems);
}

co_value *
co_foldl(co_context *ctx, co_value *elems, co_value *initializer, co_fn fn, void *user)
{
    COI_ENTER(ctx, "foldl", NULL);
    return fold(ctx, ROWS_FOLD, elems, initializer, fn, user, false);
}

co_value *
co_foldr(co_context *ctx, co_value *elems, co_value *initializer, co_fn fn, void *user)
{
    COI_ENTER(ctx, "foldr", NULL);
    return fold(ctx, ROWS_FOLD, elems, initializer, fn, user, true);
}

co_value *
co_scan(co_context *ctx, co_value *elems, co_value *initializer, co_fn fn, void *user, bool reverse)
{
    COI_ENTER(ctx, "scan", NULL);
    return fold(ctx, ROWS_SCAN, elems, initializer, fn, user, reverse);
}

co_value *
co_for_each(co_context *ctx, co_value *elems, co_value *state, co_fn fn, void *user)
{
    row_loop l = { ROWS_EACH, false, { .fn = fn, .user = user }, NULL };

    COI_ENTER(ctx, "for_each", NULL);
    l.state = coi_check_args(ctx, state, 3, "state", false);
    if (l.state == NULL || !coi_check_body(ctx, fn, 4, "fn") ||
        !coi_check_value(ctx, elems, 2, "elems"))
        return NULL;
    return coi_kind_of(elems)->element_spec != NULL
               ? coi_for_each_element(ctx, elems, l.state, fn, user)
               : loop_over(ctx, &l, elems);
}
