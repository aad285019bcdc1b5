/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce, local results, gather and values from a function: what is done with per-replica values
 * outside a step. Sections 6.3 to 6.6 of the specification.
 */
#include "strategy/cross_replica_reduce.h"

#include "base/text.h"
#include "ops/engine/call_recording.h"
#include "strategy/comm_options.h"
#include "strategy/distributed_variables.h"
#include "strategy/regroup.h"
#include "strategy/strategy_hooks.h"
#include "strategy/workers.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

co_dtype
coi_mean_dtype(co_dtype dtype)
{
    if (!coi_dtypes[dtype].integer)
        return dtype;
    return coi_dtypes[dtype].size <= 2 ? CO_FLOAT32 : CO_FLOAT64;
}

co_code
co_reduce_op_from_aggregation(co_context *ctx, co_aggregation aggregation, co_reduce_op *out)
{
    COI_ENTER_CODE(ctx, "reduce_op_from_aggregation");
    if (out == NULL)
        return coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument 3 (out) of reduce_op_from_aggregation is NULL; say where the operation goes");
    if (aggregation != CO_AGGREGATION_SUM && aggregation != CO_AGGREGATION_MEAN)
        return coi_fail(ctx, CO_VALUE_ERROR,
                        "aggregation %d combines nothing; only CO_AGGREGATION_SUM (%d) and "
                        "CO_AGGREGATION_MEAN (%d) are operations of reduce",
                        (int)aggregation, CO_AGGREGATION_SUM, CO_AGGREGATION_MEAN);
    *out = aggregation == CO_AGGREGATION_SUM ? CO_REDUCE_SUM : CO_REDUCE_MEAN;
    return CO_OK;
}

co_code
co_reduce_op_from_name(co_context *ctx, const char *name, co_reduce_op *out)
{
    static const char *const names[] = { "SUM", "MEAN" };

    COI_ENTER_CODE(ctx, "reduce_op_from_name");
    if (name == NULL || out == NULL)
        return coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument %d (%s) of reduce_op_from_name is NULL; give a name and where the "
            "operation goes",
            name == NULL ? 2 : 3, name == NULL ? "name" : "out");
    for (size_t k = 0; k < 2; ++k)
        if (coi_text_same(name, strlen(name), names[k])) {
            *out = (co_reduce_op)k;
            return CO_OK;
        }
    return coi_fail(ctx, CO_VALUE_ERROR,
                    "'%s' is not a reduce operation; the names are SUM and MEAN", name);
}

/* --- across replicas --- */

/* Parts of one leaf fit each other (S-REDUCE-12, S-REDUCE-19). */
static bool
parts_agree(co_context *ctx, co_value *const *parts, int n, int first)
{
    const co_value *a = parts[0];
    char            left[COI_SHAPE_TEXT], right[COI_SHAPE_TEXT];

    if (!coi_check_reducible(ctx, a))
        return false;
    for (int i = 1; i < n; ++i) {
        const co_value *b = parts[i];

        if (a->dtype != b->dtype) {
            coi_fail(ctx, CO_INVALID_ARGUMENT,
                     "dtype is %s on replica %d and %s on replica %d; make them alike with co_cast",
                     co_dtype_name((co_dtype)a->dtype), first, co_dtype_name((co_dtype)b->dtype),
                     first + i);
            return false;
        }
        if (!coi_same_shape(a, b)) {
            coi_fail(
                ctx, CO_INVALID_ARGUMENT,
                "shape is %s on replica %d and %s on replica %d; what is combined over replicas must have one shape",
                coi_shape_text(a->u.tensor.dims, a->ndim, left), first,
                coi_shape_text(b->u.tensor.dims, b->ndim, right), first + i);
            return false;
        }
    }
    return true;
}

typedef struct shares {
    const coi_reduction *job;
    int                  n;
} shares;

static void
reduce_chunk(void *arg, int64_t chunk)
{
    const shares *s = arg;

    coi_reduce_share(s->job, (int)chunk, s->n);
}

static bool
reduce_all(co_context *ctx, co_strategy *strategy, const coi_reduction *job)
{
    shares s = { job, job->num_elements > (1 << 16) ? 16 : 1 };

    if (strategy->group == NULL) {
        coi_team_run(ctx->device->team, s.n, reduce_chunk, &s);
        return true;
    }
    return coi_group_all_reduce(strategy->group, job, 1, strategy->first,
                                coi_comm_options_of(ctx, strategy), coi_err(ctx)) == CO_OK;
}

/* The data of a component for the host to read. */
static const void *
part_on_host(co_context *ctx, co_value *part)
{
    if (!coi_is_on_host(part))
        coi_count_named_fallback(part->u.tensor.device, "reduce", coi_tensor_nbytes(part));
    return coi_host_data(ctx, part);
}

typedef struct reduce_job {
    co_strategy        *strategy;
    coi_rendezvous_kind kind;
    co_reduce_op        op;
    co_value *const    *parts;
    co_value           *result;
} reduce_job;

static bool
reduce_tensors(co_context *ctx, void *arg)
{
    reduce_job      *r = arg;
    co_strategy     *strategy = r->strategy;
    co_reduce_op     op = r->op;
    co_value *const *parts = r->parts;
    const void      *data[COI_MAX_LOCAL_REPLICAS];
    const co_value  *like = parts[0];
    char             text[COI_SHAPE_TEXT + 32], shape[COI_SHAPE_TEXT];
    bool             is_here = true;
    co_value        *out;
    coi_reduction    job;

    if (!parts_agree(ctx, parts, strategy->num_local, strategy->first_local) ||
        coi_current_device(ctx) == NULL)
        return false;
    snprintf(text, sizeof(text), "%s %s", co_dtype_name((co_dtype)like->dtype),
             coi_shape_text(like->u.tensor.dims, like->ndim, shape));
    if (!coi_workers_handshake(ctx, strategy, r->kind,
                               coi_sign_tensor(coi_sign(COI_SIGNATURE, (uint64_t)op), like, -1),
                               text, 0, NULL))
        return false;
    /* Sums over replicas are the host's work. */
    for (int i = 0; is_here && i < strategy->num_local; ++i)
        is_here = is_here && (data[i] = part_on_host(ctx, parts[i])) != NULL;
    out = is_here ? coi_tensor_new(&ctx->heap, ctx->device->host, (co_dtype)like->dtype,
                                   like->u.tensor.dims, like->ndim, like->u.tensor.num_elements,
                                   coi_err(ctx))
                  : NULL;
    if (out == NULL) {
        coi_workers_done(ctx, strategy, false);
        return false;
    }
    job = (coi_reduction){
        op,   (co_dtype)like->dtype, like->u.tensor.num_elements, strategy->num_replicas,
        data, coi_data_on_host(out)
    };
    if (!coi_workers_done(ctx, strategy, reduce_all(ctx, strategy, &job))) {
        coi_workers_hold(strategy, out);
        coi_unref(&ctx->heap, out);
        return false;
    }
    out = coi_place_tensor(ctx, out, ctx->device);
    if (out == NULL)
        return coi_give(ctx, NULL);
    if (op == CO_REDUCE_MEAN && coi_dtypes[like->dtype].integer) {
        co_value *sum = coi_own(ctx, out);

        out = co_div(ctx, co_cast(ctx, sum, coi_mean_dtype((co_dtype)like->dtype)),
                     co_int(ctx, strategy->num_replicas));
        if (out != NULL)
            coi_ref(out);
    }
    r->result = out;
    return out != NULL;
}

const coi_op coi_op_cross_replica_reduce = { COI_EFFECT(
    "cross_replica_reduce", "Combines the tensors of all replicas outside a step; co_reduce.",
    coi_body_effect, CO_RESOURCE_WORKERS, CO_RESOURCE_WORKERS) };

co_value *
coi_reduce_tensors(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind kind,
                   co_reduce_op op, co_value *const *parts)
{
    reduce_job r = { strategy, kind, op, parts, NULL };
    coi_effect shown = {
        .in = parts, .num_in = (size_t)strategy->num_local, .out = &r.result, .num_out = 1
    };

    return coi_execute_body(ctx, &coi_op_cross_replica_reduce, shown, reduce_tensors, &r) ? r.result
                                                                                          : NULL;
}

/* --- the leaves of reduce --- */

static void
drop_parts(co_context *ctx, co_value **parts, int n)
{
    while (n > 0)
        coi_unref(&ctx->heap, parts[--n]);
}

/* The tensors of a leaf's components, as references in parts. */
static bool
component_tensors(co_context *ctx, co_value *const *components, int n, co_value **parts)
{
    for (int i = 0; i < n; ++i) {
        parts[i] = coi_as_tensor(ctx, components[i], CO_DTYPE_NONE);
        if (parts[i] == NULL) {
            drop_parts(ctx, parts, i);
            return false;
        }
    }
    return true;
}

/* The components of a leaf, one for each local replica. */
typedef struct component_list {
    co_value *const *items;    /* NULL: the leaf is plain, the same on every replica */
    bool             mirrored; /* they are known to be equal */
    co_value        *room[COI_MAX_LOCAL_REPLICAS];
} component_list;

/*
 * With several processes no leaf is plain: one that all replicas of this process hold may be
 * another elsewhere, and where a process has one replica alone any result of a step comes back
 * unwrapped (DV-GROUP-8). So every replica here holds it, and all processes combine, whatever the
 * leaf looks like in each.
 */
static bool
find_components(co_context *ctx, const co_strategy *strategy, co_value *value, component_list *out)
{
    bool       mirrored = false;
    coi_values all = coi_replicas_of(value, &mirrored);

    if (all.items != NULL && coi_is_variable(value) &&
        !coi_check_owner(ctx, value->u.variable, strategy))
        return false;
    if (all.items == NULL && strategy->num_workers > 1) {
        for (all.n = 0; all.n < (size_t)strategy->num_local; ++all.n)
            out->room[all.n] = value;
        all.items = out->room;
    }
    if (all.items != NULL && (int)all.n != strategy->num_local) {
        char text[COI_STRATEGY_TEXT];

        coi_fail(
            ctx, CO_VALUE_ERROR,
            "a value of %zu component%s is given to %s, which has %d replica%s here; use values that this "
            "strategy made",
            all.n, COI_S(all.n), coi_strategy_text(strategy, text), strategy->num_local,
            COI_S(strategy->num_local));
        return false;
    }
    out->items = all.items;
    out->mirrored = mirrored;
    return true;
}

bool
coi_check_reducible(co_context *ctx, const co_value *tensor)
{
    if (coi_can_reduce(CO_REDUCE_SUM, (co_dtype)tensor->dtype))
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "%s values cannot be reduced over replicas; cast bools to an integer dtype, or gather "
             "them",
             co_dtype_name((co_dtype)tensor->dtype));
    return false;
}

static co_value *
reduce_composites(co_context *ctx, co_strategy *strategy, co_reduce_op op,
                  co_value *const *components)
{
    if (!coi_check_composite_op(ctx, components[0], op))
        return NULL;
    for (int k = 1; k < strategy->num_local; ++k)
        if (components[k]->kind != components[0]->kind) {
            coi_fail(
                ctx, CO_ASSERTION_ERROR,
                "replica %d has %s where others have %s; make all of them alike, or dense with "
                "co_to_tensor",
                k, coi_a_kind(components[k]->kind), coi_a_kind(components[0]->kind));
            return NULL;
        }
    return coi_combine_composites(ctx, strategy, COI_RENDEZVOUS_REDUCE, op, components);
}

/* Host zero, or a tensor: S-REDUCE-13. */
static co_value *
reduce_plain(co_context *ctx, co_reduce_op op, co_value *leaf)
{
    bool zero = (leaf->kind == CO_KIND_INT && leaf->u.i == 0) ||
                (leaf->kind == CO_KIND_FLOAT && leaf->u.f == 0);

    if (op == CO_REDUCE_MEAN || op == CO_REDUCE_MIN || op == CO_REDUCE_MAX || zero)
        return coi_own_ref(ctx, leaf);
    coi_fail(
        ctx, CO_VALUE_ERROR,
        "the sum of %s that is the same on every replica is not defined; make it per replica in a step, or "
        "multiply by the number of replicas",
        coi_a_kind(leaf->kind));
    return NULL;
}

typedef struct reducing {
    co_strategy *strategy;
    co_reduce_op op;
} reducing;

static co_value *
reduce_leaf(co_context *ctx, co_value *leaf, void *user)
{
    const reducing *r = user;
    co_strategy    *strategy = r->strategy;
    component_list  of;
    co_value       *parts[COI_MAX_LOCAL_REPLICAS], *result;

    if (!find_components(ctx, strategy, leaf, &of))
        return NULL;
    if (strategy->num_replicas == 1)
        return coi_own_ref(ctx, of.items != NULL ? of.items[0] : leaf);
    if (of.items == NULL)
        return reduce_plain(ctx, r->op, leaf);
    if (of.mirrored) {
        if (r->op != CO_REDUCE_SUM && r->op != CO_REDUCE_PROD) /* of equals */
            return coi_own_ref(ctx, of.items[0]);
        coi_fail(ctx, CO_ASSERTION_ERROR,
                 "the %s of a mirrored value counts one value %d times; use MEAN, or read it",
                 r->op == CO_REDUCE_SUM ? "sum" : "product", strategy->num_replicas);
        return NULL;
    }
    if (coi_is_composite(of.items[0]))
        return reduce_composites(ctx, strategy, r->op, of.items);
    if (!component_tensors(ctx, of.items, strategy->num_local, parts))
        return NULL;
    result = coi_reduce_tensors(ctx, strategy, COI_RENDEZVOUS_REDUCE, r->op, parts);
    drop_parts(ctx, parts, strategy->num_local);
    return coi_give(ctx, result);
}

co_value *
coi_reduce_leaf(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *leaf)
{
    reducing r = { strategy, op };

    return reduce_leaf(ctx, leaf, &r);
}

/* --- with an axis --- */

/* S-REDUCE-11, S-REDUCE-19. */
static bool
check_axes(co_context *ctx, const co_value *tensor, const int *axes, size_t num_axes)
{
    bool seen[CO_MAX_DIMS] = { false };

    if (!coi_can_reduce(CO_REDUCE_SUM, (co_dtype)tensor->dtype)) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "%s values cannot be reduced along an axis; cast bools to an integer dtype",
                 co_dtype_name((co_dtype)tensor->dtype));
        return false;
    }
    for (size_t i = 0; i < num_axes; ++i) {
        int axis = axes[i] < 0 ? axes[i] + tensor->ndim : axes[i];

        if (axis < 0 || axis >= tensor->ndim) {
            coi_fail(
                ctx, CO_VALUE_ERROR,
                "axis %d is outside the rank of the value, which is %d; give one from -rank to rank - 1",
                axes[i], tensor->ndim);
            return false;
        }
        if (seen[axis]) {
            coi_fail(ctx, CO_INVALID_ARGUMENT, "axis %d is given twice; name every axis once",
                     axes[i]);
            return false;
        }
        seen[axis] = true;
    }
    return true;
}

/* Elements along the axes. */
static int64_t
count_along(const co_value *tensor, const int *axes, size_t num_axes)
{
    int64_t count = 1;

    for (size_t i = 0; i < num_axes; ++i)
        count *= tensor->u.tensor.dims[axes[i] < 0 ? axes[i] + tensor->ndim : axes[i]];
    return count;
}

/* x with its order reversed: -x, or for integers -1 - x, which no integer overflows and no
 * unsigned one leaves. */
static co_value *
upside_down(co_context *ctx, co_value *x)
{
    co_value *zero, *one;

    if (x == NULL || coi_dtypes[x->dtype].floating)
        return co_neg(ctx, x);
    zero = co_zeros(ctx, (co_dtype)x->dtype, NULL, 0);
    one = co_ones(ctx, (co_dtype)x->dtype, NULL, 0);
    return co_sub(ctx, co_sub(ctx, zero, one), x);
}

typedef struct row_job {
    co_value *moved, *product;
    int       num_moved;
} row_job;

/* The axes come first and become rows, which are multiplied as the parts of replicas are; where
 * there are none, ones. A value of the block. */
static co_value *
product_of_rows(co_context *ctx, co_value *moved, int num_moved)
{
    const int64_t *dims = moved->u.tensor.dims;
    int64_t        rows = 1, row = 1;
    coi_reduction  job = { .op = CO_REDUCE_PROD, .dtype = (co_dtype)moved->dtype };
    size_t         row_bytes;
    const char    *data;
    const void   **parts;
    co_value      *out;

    for (int d = 0; d < moved->ndim; ++d)
        *(d < num_moved ? &rows : &row) *= dims[d];
    if (rows == 0 || row == 0)
        return co_ones(ctx, job.dtype, dims + num_moved, moved->ndim - num_moved);
    parts = rows <= INT_MAX ? coi_small_alloc(&ctx->heap, (size_t)rows * sizeof(*parts)) : NULL;
    if (parts == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to multiply %lld rows", (long long)rows);
        return NULL;
    }
    data = coi_host_data(ctx, moved);
    out = data != NULL
              ? coi_tensor_new(&ctx->heap, moved->u.tensor.device->host, job.dtype,
                               dims + num_moved, moved->ndim - num_moved, row, coi_err(ctx))
              : NULL;
    if (out != NULL) {
        row_bytes = (size_t)row * coi_dtypes[job.dtype].size;
        for (int64_t i = 0; i < rows; ++i)
            parts[i] = data + (size_t)i * row_bytes;
        job.num_elements = row;
        job.num_replicas = (int)rows;
        job.parts = parts;
        job.out = coi_data_on_host(out);
        coi_reduce_share(&job, 0, 1);
    }
    coi_small_free(&ctx->heap, parts, (size_t)rows * sizeof(*parts));
    return coi_give(ctx, coi_place_tensor(ctx, out, moved->u.tensor.device));
}

static bool
multiply(co_context *ctx, void *arg)
{
    row_job *r = arg;

    r->product = product_of_rows(ctx, r->moved, r->num_moved);
    return r->product != NULL;
}

const coi_op coi_op_multiply_rows = { COI_EFFECT(
    "multiply_rows", "Multiplies along axes, in the order of replicas; co_reduce with axes.",
    coi_body_effect, 0, 0) };

static co_value *
multiply_rows(co_context *ctx, co_value *moved, int num_moved)
{
    row_job r = { moved, NULL, num_moved };

    coi_execute_body(ctx, &coi_op_multiply_rows,
                     (coi_effect){ .in = &r.moved, .num_in = 1, .out = &r.product, .num_out = 1 },
                     multiply, &r);
    return r.product;
}

static co_value *
local_product(co_context *ctx, co_value *tensor, const int *axes, size_t num_axes)
{
    int       order[CO_MAX_DIMS], n = 0, num_moved;
    bool      reduced[CO_MAX_DIMS] = { false };
    co_value *moved;

    for (size_t i = 0; i < num_axes; ++i)
        reduced[axes[i] < 0 ? axes[i] + tensor->ndim : axes[i]] = true;
    for (int d = 0; d < tensor->ndim; ++d)
        if (reduced[d])
            order[n++] = d;
    num_moved = n;
    for (int d = 0; d < tensor->ndim; ++d)
        if (!reduced[d])
            order[n++] = d;
    moved = co_transpose(ctx, tensor, order, (size_t)n);
    return moved != NULL ? multiply_rows(ctx, moved, num_moved) : NULL;
}

/* One replica alone reduces along the axes. */
static co_value *
local_sum(co_context *ctx, co_value *tensor, co_reduce_op op, const int *axes, size_t num_axes)
{
    if (op == CO_REDUCE_MAX)
        return co_reduce_max(ctx, tensor, axes, num_axes, false);
    if (op == CO_REDUCE_MIN)
        return upside_down(ctx,
                           co_reduce_max(ctx, upside_down(ctx, tensor), axes, num_axes, false));
    if (op == CO_REDUCE_PROD)
        return local_product(ctx, tensor, axes, num_axes);
    return co_reduce_sum(ctx, tensor, axes, num_axes, false);
}

/* sum / count in the dtype that a mean has. */
static co_value *
divide(co_context *ctx, co_value *sum, int64_t count)
{
    co_dtype dtype = coi_mean_dtype((co_dtype)sum->dtype);

    return co_div(ctx, co_cast(ctx, sum, dtype), co_cast(ctx, co_scalar_int64(ctx, count), dtype));
}

/* Sums of all replicas along the axes, then over replicas; MEAN divides by all elements
 * (S-REDUCE-6, S-REDUCE-7). */
static co_value *
reduce_axes(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *const *tensors,
            const int *axes, size_t num_axes)
{
    co_value    *sums[COI_MAX_LOCAL_REPLICAS], *total;
    co_reduce_op inner = op == CO_REDUCE_MEAN ? CO_REDUCE_SUM : op;
    int64_t      count = 0;

    sums[0] = NULL; /* there is one, which compilers cannot see */
    for (int i = 0; i < strategy->num_local; ++i) {
        if (!check_axes(ctx, tensors[i], axes, num_axes))
            return NULL;
        count += count_along(tensors[i], axes, num_axes);
        sums[i] = local_sum(ctx, tensors[i], inner, axes, num_axes);
        if (sums[i] == NULL)
            return NULL;
    }
    if (strategy->num_replicas == 1) {
        total = sums[0];
    } else {
        total = coi_give(ctx,
                         coi_reduce_tensors(ctx, strategy, COI_RENDEZVOUS_REDUCE, inner, sums));
        if (total == NULL)
            return NULL;
    }
    if (op != CO_REDUCE_MEAN)
        return total;
    if (!coi_workers_add(ctx, strategy, COI_RENDEZVOUS_REDUCE, "counts of a mean", &count))
        return NULL;
    return divide(ctx, total, count);
}

static co_value *
reduce_along(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
             const int *axes, size_t num_axes)
{
    component_list of;
    co_value      *tensors[COI_MAX_LOCAL_REPLICAS], *result;

    if (!find_components(ctx, strategy, value, &of))
        return NULL;
    if (coi_is_structure(value)) {
        coi_fail(ctx, CO_TYPE_ERROR, "%s is reduced along an axis; reduce its leaves one by one",
                 coi_a_kind(value->kind));
        return NULL;
    }
    if (value->kind == CO_KIND_NONE) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "none is reduced along an axis; only tensors and numbers have axes");
        return NULL;
    }
    if (of.items == NULL) { /* held by every replica alike (S-REDUCE-14) */
        for (int i = 0; i < strategy->num_local; ++i)
            of.room[i] = value;
        of.items = of.room;
    }
    if (!component_tensors(ctx, of.items, strategy->num_local, tensors))
        return NULL;
    result = reduce_axes(ctx, strategy, op, tensors, axes, num_axes);
    drop_parts(ctx, tensors, strategy->num_local);
    return result;
}

/* Strategies that do not wrap values: no axis, no change (OD-REDUCE-1); an axis is reduced on the
 * strategy's device. */
static co_value *
reduce_one(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
           const int *axes, size_t num_axes)
{
    co_value *result;
    size_t    entries = ctx->num_entries;

    if (axes == NULL)
        return coi_own_ref(ctx, value);
    if (coi_push(ctx, COI_ENTRY_DEVICE, NULL) == NULL)
        return NULL;
    if (strategy->policy->has_devices)
        coi_enter_device(ctx, &strategy->devices[0]);
    result = reduce_along(ctx, strategy, op, value, axes, num_axes);
    coi_pop_to(ctx, entries);
    return result;
}

co_value *
coi_reduce(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
           const int *axes, size_t num_axes)
{
    reducing r = { strategy, op };

    if (!strategy->policy->wraps_values)
        return reduce_one(ctx, strategy, op, value, axes, num_axes);
    if (axes != NULL)
        return reduce_along(ctx, strategy, op, value, axes, num_axes);
    return coi_map_leaves(ctx, value, reduce_leaf, &r);
}

/* --- while a function is captured --- */

typedef struct reduce_attrs {
    co_strategy *strategy; /* a reference in a program */
    co_reduce_op op;
    bool         has_axes;
    size_t       num_axes;
    int          axes[CO_MAX_DIMS];
} reduce_attrs;

static bool
hold_strategy(coi_heap *heap, void *to, const void *from)
{
    (void)heap;
    (void)to;
    coi_ref(((const reduce_attrs *)from)->strategy);
    return true;
}

static void
drop_strategy(coi_heap *heap, void *attrs)
{
    coi_unref(heap, ((reduce_attrs *)attrs)->strategy);
}

static bool
same_reduction(co_context *ctx, const void *a, const void *b)
{
    const reduce_attrs *first = a, *second = b;

    (void)ctx;
    return first->strategy == second->strategy && first->op == second->op &&
           first->has_axes == second->has_axes && first->num_axes == second->num_axes &&
           memcmp(first->axes, second->axes, sizeof(first->axes)) == 0;
}

static co_value *
replay_reduce(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const reduce_attrs *given = attrs;

    (void)num_in;
    return co_reduce(ctx, given->strategy, given->op, in[0], given->has_axes ? given->axes : NULL,
                     given->num_axes);
}

const coi_op coi_op_reduce_captured = {
    COI_RECORDED("reduce_captured", "Combines the values of all replicas; co_reduce.",
                 replay_reduce, CO_RESOURCE_WORKERS, CO_RESOURCE_WORKERS),
    .attrs_rule = { COI_ATTRS_SIZE(reduce_attrs), hold_strategy, drop_strategy },
    .same_attrs = same_reduction,
};

/* A leaf, or its first component where it has several that are combined; NULL: they are not. */
static co_value *
first_combined(const co_strategy *strategy, co_value *leaf)
{
    bool       mirrored = false;
    coi_values all = coi_replicas_of(leaf, &mirrored);

    if (strategy->num_replicas == 1 || mirrored ||
        (all.items == NULL && strategy->num_workers == 1))
        return NULL;
    return all.items != NULL ? all.items[0] : leaf;
}

/* The type of a leaf as a tensor. */
static co_value *
tensor_type(co_context *ctx, co_value *leaf)
{
    return coi_host_dtype(leaf) != CO_DTYPE_NONE ? coi_spec(ctx, coi_host_dtype(leaf), NULL, 0)
                                                 : coi_fresh_type(ctx, leaf);
}

co_value *
coi_combined_type(co_context *ctx, co_value *composite)
{
    const coi_composite *row = coi_kind_of(composite)->composite;
    co_value            *components[COI_MAX_COMPONENTS] = { NULL };

    for (size_t i = 0; i < row->n; ++i) {
        if (composite->u.components[i] == NULL)
            continue;
        components[i] = coi_fresh_type(ctx, composite->u.components[i]);
        if (components[i] == NULL)
            return NULL;
        if (row->components[i].combining != COI_TAKE_FIRST && components[i]->ndim > 0)
            components[i]->u.tensor.dims[0] = -1;
    }
    return coi_give(ctx, coi_composite_like(&ctx->heap, composite, components, coi_err(ctx)));
}

co_value *
coi_reduced_type(co_context *ctx, const co_strategy *strategy, co_reduce_op op, co_value *leaf)
{
    coi_values all = coi_replicas_of(leaf, NULL);
    co_value  *first = first_combined(strategy, leaf), *type;

    if (first == NULL)
        return all.items != NULL ? all.items[0] : leaf;
    if (coi_is_composite(first))
        return coi_combined_type(ctx, first);
    type = tensor_type(ctx, first);
    if (type != NULL && type->kind == CO_KIND_SPEC && op == CO_REDUCE_MEAN)
        type->dtype = (uint8_t)coi_mean_dtype((co_dtype)type->dtype);
    return type;
}

static co_value *
reduced_leaf(co_context *ctx, co_value *leaf, void *user)
{
    const reducing *r = user;
    co_value       *type = coi_reduced_type(ctx, r->strategy, r->op, leaf);

    return type != NULL ? coi_own_ref(ctx, type) : NULL;
}

/* The type of a leaf that is reduced along axes. */
static co_value *
axes_type(co_context *ctx, co_reduce_op op, co_value *value, const int *axes, size_t num_axes)
{
    coi_values all = coi_replicas_of(value, NULL);
    bool       reduced[CO_MAX_DIMS] = { false };
    co_value  *type;
    int        n = 0;

    if (coi_is_structure(value) || value->kind == CO_KIND_NONE) {
        coi_fail(ctx, CO_TYPE_ERROR, "%s is reduced along an axis; reduce its leaves one by one",
                 coi_a_kind(value->kind));
        return NULL;
    }
    type = tensor_type(ctx, all.items != NULL ? all.items[0] : value);
    if (type == NULL || type->kind != CO_KIND_SPEC)
        return type;
    if (type->ndim >= 0 && !check_axes(ctx, type, axes, num_axes))
        return NULL;
    for (size_t i = 0; type->ndim >= 0 && i < num_axes; ++i)
        reduced[axes[i] < 0 ? axes[i] + type->ndim : axes[i]] = true;
    for (int d = 0; d < type->ndim; ++d)
        if (!reduced[d])
            type->u.tensor.dims[n++] = type->u.tensor.dims[d];
    type->ndim = (int8_t)(type->ndim < 0 ? -1 : n);
    if (op == CO_REDUCE_MEAN)
        type->dtype = (uint8_t)coi_mean_dtype((co_dtype)type->dtype);
    return type;
}

/* Along axes of the only replica: by operators, which tapes see, where the number of elements is
 * known. NULL without an error: it is not, or another operation is asked for. */
static co_value *
capture_alone(co_context *ctx, co_reduce_op op, co_value *value, const int *axes, size_t num_axes)
{
    coi_values all = coi_replicas_of(value, NULL);
    co_value  *tensor, *sum;

    if (!ctx->recording || op > CO_REDUCE_MEAN || coi_is_structure(value))
        return NULL;
    tensor = co_to_tensor(ctx, all.items != NULL ? all.items[0] : value, CO_DTYPE_NONE);
    if (tensor == NULL || tensor->ndim < 0 || !check_axes(ctx, tensor, axes, num_axes))
        return NULL;
    for (size_t i = 0; op == CO_REDUCE_MEAN && i < num_axes; ++i)
        if (tensor->u.tensor.dims[axes[i] < 0 ? axes[i] + tensor->ndim : axes[i]] < 0)
            return NULL;
    sum = co_reduce_sum(ctx, tensor, axes, num_axes, false);
    if (sum == NULL || op == CO_REDUCE_SUM)
        return sum;
    return divide(ctx, sum, count_along(tensor, axes, num_axes));
}

static co_value *
capture_reduce(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
               const int *axes, size_t num_axes)
{
    reducing     r = { strategy, op };
    reduce_attrs attrs = { .strategy = strategy, .op = op, .has_axes = axes != NULL };
    co_value    *type;

    if (axes == NULL && (!strategy->policy->wraps_values || strategy->num_replicas == 1))
        return coi_reduce(ctx, strategy, op, value, NULL, 0);
    if (axes != NULL && strategy->num_replicas == 1) {
        co_value *done = capture_alone(ctx, op, value, axes, num_axes);

        if (done != NULL || ctx->error.code != CO_OK)
            return done;
    }
    if (num_axes > CO_MAX_DIMS) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "%zu axes are given; a tensor has at most %d", num_axes,
                 CO_MAX_DIMS);
        return NULL;
    }
    attrs.num_axes = num_axes;
    if (num_axes > 0)
        memcpy(attrs.axes, axes, num_axes * sizeof(*axes));
    type = axes != NULL ? axes_type(ctx, op, value, axes, num_axes)
                        : coi_map_leaves(ctx, value, reduced_leaf, &r);
    ctx->call = "reduce";
    return coi_record_call(ctx, &coi_op_reduce_captured, &attrs, &value, 1, type);
}

co_value *
co_reduce(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value, const int *axes,
          size_t num_axes)
{
    COI_ENTER(ctx, "reduce", NULL);
    if (!coi_check_strategy(ctx, strategy, 2))
        return NULL;
    if ((unsigned)op > CO_REDUCE_PROD) {
        coi_fail(
            ctx, axes == NULL ? CO_ASSERTION_ERROR : CO_TYPE_ERROR,
            "argument 3 (op) of reduce is %d, which is not a reduce operation; give one from CO_REDUCE_SUM (0) to CO_REDUCE_PROD (4)",
            (int)op);
        return NULL;
    }
    if (!coi_check_value(ctx, value, 4, "value") || !coi_check_cross(ctx, strategy))
        return NULL;
    if (axes == NULL && num_axes > 0) {
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument 5 (axes) of reduce is NULL with %zu ax%s; give CO_AXES(...), or NULL and 0",
            num_axes, COI_XES(num_axes));
        return NULL;
    }
    if (coi_is_hooked(ctx, strategy, COI_HOOK_REDUCE)) {
        const co_strategy_definition *hooks = strategy->policy->hooks;
        coi_hook_call                 call;

        coi_hook_begin(ctx, strategy, COI_HOOK_REDUCE, &call);
        return coi_hook_end(ctx, &call,
                            hooks->reduce(ctx, strategy, op, value, axes, num_axes, hooks->data));
    }
    return coi_is_capturing(ctx) ? capture_reduce(ctx, strategy, op, value, axes, num_axes)
                                 : coi_reduce(ctx, strategy, op, value, axes, num_axes);
}

/* --- local results --- */

typedef struct picking {
    co_strategy *strategy;
    int          replica;
} picking;

static co_value *
pick_leaf(co_context *ctx, co_value *leaf, void *user)
{
    const picking *p = user;

    if (!coi_is_distributed_variable(leaf))
        return coi_own_ref(ctx, coi_select(leaf, p->replica));
    if (!coi_check_owner(ctx, leaf->u.variable, p->strategy))
        return NULL;
    return coi_own_ref(ctx, leaf->u.variable->components[p->replica]);
}

co_value *
co_local_results(co_context *ctx, co_strategy *strategy, co_value *value)
{
    co_value *results[COI_MAX_LOCAL_REPLICAS];
    int       n;

    COI_ENTER(ctx, "local_results", NULL);
    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_value(ctx, value, 3, "value"))
        return NULL;
    /* A container is spread over replicas even when it is empty (S-LOCAL-3); a plain leaf is
     * not. */
    if (!strategy->policy->wraps_values)
        return co_tuple(ctx, &value, 1);
    n = coi_replicas_of(value, NULL).items != NULL || coi_is_structure(value) ? strategy->num_local
                                                                              : 1;
    if (!coi_check_per_replica(ctx, strategy, value))
        return NULL;
    for (int i = 0; i < n; ++i) {
        picking p = { strategy, i };

        results[i] = coi_map_leaves(ctx, value, pick_leaf, &p);
        if (results[i] == NULL)
            return NULL;
    }
    return co_tuple(ctx, results, (size_t)n);
}

/* Composite values, plain or per replica, are gathered nowhere (S-GATHER-6). */
static bool
check_dense(co_context *ctx, co_value *value)
{
    coi_values parts = coi_replicas_of(value, NULL);

    for (size_t i = 0; i < parts.n; ++i)
        if (!check_dense(ctx, parts.items[i]))
            return false;
    if (!coi_is_composite(value))
        return true;
    coi_fail(ctx, CO_UNIMPLEMENTED,
             "argument 3 (value) of gather_replicas is %s, which cannot be gathered; make it "
             "dense with co_to_tensor, or use co_reduce",
             coi_a_kind(value->kind));
    return false;
}

static co_value *
replay_gather(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const reduce_attrs *given = attrs;

    (void)num_in;
    return co_gather_replicas(ctx, given->strategy, in[0], given->axes[0]);
}

const coi_op coi_op_gather_captured = {
    COI_RECORDED("gather_captured", "Concatenates the values of all replicas; co_gather_replicas.",
                 replay_gather, CO_RESOURCE_WORKERS, CO_RESOURCE_WORKERS),
    .attrs_rule = { COI_ATTRS_SIZE(reduce_attrs), hold_strategy, drop_strategy },
    .same_attrs = same_reduction,
};

static bool
check_gather_axis(co_context *ctx, int ndim, int axis)
{
    if (axis >= -ndim && axis < ndim)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "axis %d of components of rank %d; gathering needs rank >= 1 and an axis within it",
             axis, ndim);
    return false;
}

/* The rows of all replicas, where each of them is known. */
static int64_t
gathered_dim(const co_strategy *strategy, coi_values parts, int axis)
{
    int64_t total = 0;

    for (size_t i = 0; i < parts.n; ++i) {
        const co_value *part = parts.items[i];
        bool            has_dims = part->kind == CO_KIND_TENSOR || coi_is_type(part);

        if (strategy->num_workers > 1 || !has_dims || part->ndim <= axis ||
            part->u.tensor.dims[axis] < 0)
            return -1;
        total += part->u.tensor.dims[axis];
    }
    return total;
}

static co_value *
capture_gather(co_context *ctx, co_strategy *strategy, co_value *value, coi_values parts, int axis)
{
    reduce_attrs attrs = { .strategy = strategy, .axes = { axis } };
    co_value    *type = tensor_type(ctx, parts.items[0]);
    int          from_start;

    if (type != NULL && type->kind == CO_KIND_SPEC && type->ndim >= 0) {
        if (!check_gather_axis(ctx, type->ndim, axis))
            return NULL;
        from_start = axis < 0 ? axis + type->ndim : axis;
        type->u.tensor.dims[from_start] = gathered_dim(strategy, parts, from_start);
    }
    return coi_record_call(ctx, &coi_op_gather_captured, &attrs, &value, 1, type);
}

co_value *
co_gather_replicas(co_context *ctx, co_strategy *strategy, co_value *value, int axis)
{
    component_list of;
    co_value      *parts[COI_MAX_LOCAL_REPLICAS], *whole;

    COI_ENTER(ctx, "gather_replicas", NULL);
    if (!coi_check_v2(ctx, strategy) || !coi_check_value(ctx, value, 3, "value"))
        return NULL;
    if (!coi_check_cross(ctx, strategy) || !check_dense(ctx, value))
        return NULL;
    if (!strategy->policy->wraps_values)
        return coi_own_ref(ctx, value);
    if (!find_components(ctx, strategy, value, &of))
        return NULL;
    if (of.items == NULL || strategy->num_replicas == 1)
        return coi_own_ref(ctx, of.items != NULL ? of.items[0] : value);
    if (coi_is_capturing(ctx))
        return capture_gather(ctx, strategy, value,
                              (coi_values){ of.items, (size_t)strategy->num_local }, axis);
    if (!component_tensors(ctx, of.items, strategy->num_local, parts))
        return NULL;
    if (!check_gather_axis(ctx, parts[0]->ndim, axis)) {
        whole = NULL;
    } else {
        whole = co_concat(ctx, co_list(ctx, parts, (size_t)strategy->num_local), axis);
        if (whole != NULL && strategy->group != NULL)
            whole = coi_workers_concat(ctx, strategy, COI_RENDEZVOUS_GATHER, whole, axis);
    }
    drop_parts(ctx, parts, strategy->num_local);
    return whole;
}

co_value *
co_distribute_values_from_function(co_context *ctx, co_strategy *strategy, co_value_fn fn,
                                   void *user)
{
    co_value *values[COI_MAX_LOCAL_REPLICAS], *made = NULL;

    COI_ENTER(ctx, "distribute_values_from_function", NULL);
    if (!coi_check_v2(ctx, strategy))
        return NULL;
    if (fn == NULL) {
        coi_fail(
            ctx, CO_TYPE_ERROR,
            "argument 3 (fn) of distribute_values_from_function is NULL; it must be a function");
        return NULL;
    }
    coi_ref(strategy); /* the function may release it */
    for (int i = 0; i < strategy->num_local && ctx->error.code == CO_OK; ++i) {
        co_value_context replica = { .replica_id_in_sync_group = strategy->first_local + i,
                                     .num_replicas_in_sync = strategy->num_replicas };
        size_t           floor = coi_function_begin(ctx);

        values[i] = fn(ctx, &replica, user);
        coi_function_end(ctx, floor);
        if (values[i] == NULL && ctx->error.code == CO_OK)
            values[i] = co_none(ctx);
        if (ctx->error.code == CO_OK)
            coi_check_result(ctx, values[i], "distribute_values_from_function", "value function");
    }
    if (ctx->error.code == CO_OK)
        made = strategy->policy->wraps_values
                   ? coi_give(ctx, coi_regroup(ctx, strategy, values, strategy->num_local,
                                               CO_KIND_PER_REPLICA, true))
                   : values[0];
    coi_unref(&ctx->heap, strategy);
    return made;
}
