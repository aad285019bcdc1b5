/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Specs of elements: how a transformation changes dtype and shape. Data is not looked at.
 */
#include "data/dataset.h"

#include <stdio.h>
#include <string.h>

co_value *
coi_spec_new(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim)
{
    co_value *spec;

    if (dtype == CO_DTYPE_NONE && ndim >= 0) { /* of a dataset; of any rank, nothing is known */
        coi_fail(
            ctx, CO_TYPE_ERROR,
            "elements that are datasets cannot be batched, joined or distributed; make tensors "
            "of them first, with co_dataset_flat_map");
        return NULL;
    }
    spec = coi_tensor_spec(&ctx->heap, dtype, dims, ndim, coi_err(ctx));
    if (spec == NULL)
        coi_failed(ctx);
    return spec;
}

/* Replace every leaf in the array by a new reference, or none of them. */
static bool
map_all(co_context *ctx, co_value **leaves, size_t n, coi_spec_fn fn, const void *arg)
{
    for (size_t i = 0; i < n; ++i) {
        leaves[i] = fn(ctx, leaves[i], arg);
        if (leaves[i] == NULL) {
            coi_leaves_release(&ctx->heap, leaves, i);
            return false;
        }
    }
    return true;
}

co_value *
coi_spec_map(co_context *ctx, co_value *structure, coi_spec_fn fn, const void *arg)
{
    size_t     n = coi_count_leaves(structure);
    size_t     nbytes = (n > 0 ? n : 1) * sizeof(co_value *);
    co_value **leaves = coi_small_alloc(&ctx->heap, nbytes);
    co_value  *mapped = NULL;

    if (leaves == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the specs of %zu components", n);
        return NULL;
    }
    coi_collect_leaves(structure, leaves);
    if (map_all(ctx, leaves, n, fn, arg)) {
        mapped = coi_pack(&ctx->heap, structure, leaves, coi_err(ctx));
        if (mapped == NULL)
            coi_failed(ctx);
        coi_leaves_release(&ctx->heap, leaves, n);
    }
    coi_small_free(&ctx->heap, leaves, nbytes);
    return mapped;
}

co_value *
coi_spec_unknown_dims(co_context *ctx, const co_value *spec, const void *arg)
{
    int64_t dims[CO_MAX_DIMS];

    (void)arg;
    for (int i = 0; i < spec->ndim; ++i)
        dims[i] = -1;
    return coi_spec_new(ctx, (co_dtype)spec->dtype, dims, spec->ndim);
}

static co_value *
split_leaf(co_context *ctx, const co_value *spec, const void *arg)
{
    int64_t parts = *(const int64_t *)arg;
    int64_t dims[CO_MAX_DIMS];

    for (int i = 0; i < spec->ndim; ++i)
        dims[i] = spec->u.tensor.dims[i];
    if (spec->ndim > 0)
        dims[0] = parts > 0 && dims[0] >= 0 && dims[0] % parts == 0 ? dims[0] / parts : -1;
    return coi_spec_new(ctx, (co_dtype)spec->dtype, dims, spec->ndim);
}

co_value *
coi_spec_split(co_context *ctx, co_value *structure, int64_t parts)
{
    return coi_spec_map(ctx, structure, split_leaf, &parts);
}

bool
coi_check_tensors(co_context *ctx, const co_dataset *dataset)
{
    for (size_t i = 0; i < dataset->num_leaves; ++i)
        if (coi_is_dataset_spec(dataset->specs[i])) {
            coi_spec_new(ctx, CO_DTYPE_NONE, NULL, 0); /* which says so */
            return false;
        }
    return true;
}

const char *
coi_component_name(const co_dataset *dataset, size_t leaf, char out[32])
{
    if (coi_is_structure(dataset->spec))
        snprintf(out, 32, "component %zu", leaf);
    else
        snprintf(out, 32, "elements");
    return out;
}

/* --- two specs --- */

typedef struct join_args {
    const co_dataset *other;
    co_code           code;
    const char       *name;
    size_t            leaf; /* how many were joined so far */
} join_args;

static co_value *
join_leaf(co_context *ctx, const co_value *spec, const void *arg)
{
    join_args      *args = *(join_args *const *)arg;
    size_t          leaf = args->leaf++;
    const co_value *other = args->other->specs[leaf];
    int64_t         dims[CO_MAX_DIMS];

    if (other->dtype != spec->dtype) {
        coi_fail(ctx, args->code,
                 "%s has %s in component %zu, the first has %s; all of them must give the same",
                 args->name, co_dtype_name((co_dtype)other->dtype), leaf,
                 co_dtype_name((co_dtype)spec->dtype));
        return NULL;
    }
    for (int i = 0; i < spec->ndim; ++i)
        dims[i] = spec->ndim == other->ndim && spec->u.tensor.dims[i] == other->u.tensor.dims[i]
                      ? spec->u.tensor.dims[i]
                      : -1;
    return coi_spec_new(ctx, (co_dtype)spec->dtype, dims,
                        spec->ndim == other->ndim ? spec->ndim : -1);
}

co_value *
coi_spec_join(co_context *ctx, co_value *first, const co_dataset *other, co_code code,
              const char *name)
{
    join_args  args = { other, code, name, 0 };
    join_args *pointer = &args;

    if (coi_same_structure(first, other->spec, code, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    return coi_spec_map(ctx, first, join_leaf, &pointer);
}

bool
coi_spec_within(const co_value *inner, const co_value *outer)
{
    if (inner->dtype != outer->dtype || (outer->ndim >= 0 && inner->ndim != outer->ndim))
        return false;
    for (int i = 0; i < outer->ndim; ++i)
        if (outer->u.tensor.dims[i] >= 0 && inner->u.tensor.dims[i] != outer->u.tensor.dims[i])
            return false;
    return true;
}
