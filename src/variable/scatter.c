/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changing rows of a variable by indexed slices. Slices are applied in their order, so an index
 * that comes twice counts twice (the last one wins in scatter_update). Everything is checked before
 * the first row changes.
 */
#include "variable/variable.h"

#include <string.h>

/* z op= x for n elements. Integers wrap; a division by zero was refused before. */
typedef void (*row_fn)(int verb, void *acc, const void *with, int64_t n);

#define EACH(expression)                                                                           \
    for (int64_t i = 0; i < n; ++i)                                                                \
        z[i] = (expression);                                                                       \
    break
#define ROW(name, type, wrap, divide)                                                              \
    static void name(int verb, void *acc, const void *with, int64_t n)                             \
    {                                                                                              \
        type       *z = acc;                                                                       \
        const type *x = with;                                                                      \
                                                                                                   \
        switch (verb) {                                                                            \
        case COI_SCATTER_SUB: EACH((type)((wrap)z[i] - (wrap)x[i]));                               \
        case COI_SCATTER_MUL: EACH((type)((wrap)z[i] * (wrap)x[i]));                               \
        case COI_SCATTER_DIV: EACH(divide(z[i], x[i]));                                            \
        case COI_SCATTER_MIN: EACH(x[i] < z[i] ? x[i] : z[i]);                                     \
        default: EACH(x[i] > z[i] ? x[i] : z[i]);                                                  \
        }                                                                                          \
    }
#define QUOTIENT(z, x)        ((z) / (x))
#define SIGNED_QUOTIENT(z, x) ((x) == -1 ? (int64_t)(0 - (uint64_t)(z)) : (z) / (x))
ROW(row_f32, float, float, QUOTIENT)
ROW(row_f64, double, double, QUOTIENT)
ROW(row_i64, int64_t, uint64_t, SIGNED_QUOTIENT)
ROW(row_u64, uint64_t, uint64_t, QUOTIENT)

/* The dtype to compute in, which holds every value of a dtype: few loops serve them all. */
static co_dtype
wide_dtype(co_dtype dtype)
{
    if (coi_dtypes[dtype].floating)
        return dtype == CO_FLOAT64 ? CO_FLOAT64 : CO_FLOAT32;
    return coi_dtypes[dtype].is_signed ? CO_INT64 : CO_UINT64;
}

#define PIECE 128

static void
apply_row(int verb, co_dtype dtype, char *row, const char *with, int64_t n)
{
    static const row_fn rows[CO_NUM_DTYPES] = {
        [CO_FLOAT32] = row_f32, [CO_FLOAT64] = row_f64, [CO_INT64] = row_i64, [CO_UINT64] = row_u64
    };
    co_dtype wide = wide_dtype(dtype);
    size_t   size = coi_dtypes[dtype].size;
    uint64_t z[PIECE], x[PIECE];

    if (verb == COI_SCATTER_UPDATE) {
        memcpy(row, with, (size_t)n * size);
    } else if (verb == COI_SCATTER_ADD) {
        coi_add_elements(dtype, row, with, n);
    } else if (wide == dtype) {
        rows[dtype](verb, row, with, n);
    } else {
        for (int64_t done = 0, k; done < n;
             done += k, row += (size_t)k * size, with += (size_t)k * size) {
            k = n - done < PIECE ? n - done : PIECE;
            coi_convert(dtype, row, wide, z, k);
            coi_convert(dtype, with, wide, x, k);
            rows[wide](verb, z, x, k);
            coi_convert(wide, z, dtype, row, k);
        }
    }
}

static int64_t
index_at(const co_value *indices, int64_t i)
{
    return indices->dtype == CO_INT32 ? ((const int32_t *)coi_data_on_host(indices))[i]
                                      : ((const int64_t *)coi_data_on_host(indices))[i];
}

/* Elements of a row. */
static int64_t
row_length(const coi_shape *shape)
{
    int64_t length = 1;

    for (int d = 1; d < shape->ndim; ++d)
        length *= shape->dims[d];
    return length;
}

/* Shape and dtype of the values against the variable. */
static bool
check_values(co_context *ctx, const coi_variable *variable, const co_value *values)
{
    char who[COI_VARIABLE_TEXT], mine[COI_SHAPE_TEXT], its[COI_SHAPE_TEXT];
    bool fits = variable->shape.ndim > 0 && values->ndim == variable->shape.ndim &&
                values->dtype == variable->dtype;

    for (int d = 1; fits && d < values->ndim; ++d)
        fits = values->u.tensor.dims[d] == variable->shape.dims[d];
    if (!fits)
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "variable %s is %s %s and %s is given values of %s %s; they must have its dtype and, "
            "beyond the first dimension, its shape",
            coi_variable_text(ctx, variable, who), co_dtype_name((co_dtype)variable->dtype),
            coi_shape_text(variable->shape.dims, variable->shape.ndim, mine), ctx->call,
            co_dtype_name((co_dtype)values->dtype),
            coi_shape_text(values->u.tensor.dims, values->ndim, its));
    return fits;
}

static bool
check_indices(co_context *ctx, const coi_variable *variable, const co_value *indices)
{
    char who[COI_VARIABLE_TEXT];

    for (int64_t i = 0; i < indices->u.tensor.num_elements; ++i) {
        int64_t index = index_at(indices, i);

        if (index >= 0 && index < variable->shape.dims[0])
            continue;
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "indices[%lld] of the slices is %lld; it must be in [0, %lld), the rows of variable %s",
            (long long)i, (long long)index, (long long)variable->shape.dims[0],
            coi_variable_text(ctx, variable, who));
        return false;
    }
    return true;
}

static bool
has_zero(const co_value *values)
{
    size_t      size = coi_dtypes[values->dtype].size;
    const char *at = coi_data_on_host(values);

    for (int64_t i = 0; i < values->u.tensor.num_elements; ++i, at += size)
        if (memcmp(at, &(uint64_t){ 0 }, size) == 0)
            return true;
    return false;
}

bool
coi_check_slices(co_context *ctx, const coi_variable *variable, int verb, const co_value *slices)
{
    const coi_dtype_info *dtype = &coi_dtypes[variable->dtype];
    const co_value       *indices, *values;
    char                  who[COI_VARIABLE_TEXT];

    if (slices->kind != CO_KIND_SLICES) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "%s of variable %s is given %s; it takes indexed slices, made with co_slices",
                 ctx->call, coi_variable_text(ctx, variable, who), coi_a_kind(slices->kind));
        return false;
    }
    if (verb != COI_SCATTER_UPDATE && !dtype->integer && !dtype->floating) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "variable %s is %s, and %s is for numbers; use co_scatter_update",
                 coi_variable_text(ctx, variable, who), dtype->name, ctx->call);
        return false;
    }
    if (!check_values(ctx, variable, slices->u.slices.values) ||
        (indices = coi_host_value(ctx, slices->u.slices.indices)) == NULL ||
        !check_indices(ctx, variable, indices) ||
        (values = coi_host_value(ctx, slices->u.slices.values)) == NULL)
        return false;
    if (verb == COI_SCATTER_DIV && dtype->integer && has_zero(values)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "scatter_div of variable %s divides integers by 0",
                 coi_variable_text(ctx, variable, who));
        return false;
    }
    return true;
}

/* Texts lie behind each other in one buffer, so a tensor with other texts is made anew: a
 * reference. */
static co_value *
update_texts(co_context *ctx, const co_value *old, const co_value *slices)
{
    const co_value *values = slices->u.slices.values, *indices = slices->u.slices.indices;
    size_t          nbytes = coi_tensor_nbytes(old);
    int64_t         n = indices->u.tensor.num_elements;
    size_t          row = n > 0 ? coi_tensor_nbytes(values) / (size_t)n : 0;
    char           *texts = coi_small_alloc(&ctx->heap, nbytes + 1);
    co_value       *fresh;

    if (texts == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu bytes of texts", nbytes);
        return NULL;
    }
    if (nbytes > 0)
        memcpy(texts, coi_data_on_host(old), nbytes);
    for (int64_t i = 0; i < n; ++i)
        memcpy(texts + (size_t)index_at(indices, i) * row,
               (const char *)coi_data_on_host(values) + (size_t)i * row, row);
    fresh = coi_tensor_strings(&ctx->heap, old->u.tensor.device, old->u.tensor.dims, old->ndim,
                               old->u.tensor.num_elements, (const coi_text *)(void *)texts,
                               coi_err(ctx));
    coi_small_free(&ctx->heap, texts, nbytes + 1);
    return fresh;
}

/* The tensor to work on, on the host: the old one if nothing else refers to it, else a copy. A
 * reference. */
static co_value *
target_of(co_context *ctx, co_value *old, const co_value *slices)
{
    co_device *host = old->u.tensor.device->host;
    co_value  *fresh;

    if (old->dtype == CO_STRING)
        return update_texts(ctx, old, slices);
    if (!coi_is_on_host(old)) {
        coi_count_named_fallback(old->u.tensor.device, "scatter", 2 * coi_tensor_nbytes(old));
        return coi_bring_tensor_to_host(ctx, old);
    }
    if (coi_is_private(old)) {
        coi_ref(old);
        return old;
    }
    fresh = coi_tensor_new(&ctx->heap, host, (co_dtype)old->dtype, old->u.tensor.dims, old->ndim,
                           old->u.tensor.num_elements, coi_err(ctx));
    if (fresh != NULL && coi_tensor_nbytes(old) > 0)
        memcpy(coi_data_on_host(fresh), coi_data_on_host(old), coi_tensor_nbytes(old));
    return fresh;
}

/* Slices on the host. */
static void
apply(const coi_variable *variable, int verb, co_value *target, const co_value *slices)
{
    co_dtype dtype = (co_dtype)target->dtype;
    int64_t  length = row_length(&variable->shape),
            n = slices->u.slices.indices->u.tensor.num_elements;
    size_t      row = (size_t)length * coi_dtypes[dtype].size;
    const char *values = coi_data_on_host(slices->u.slices.values);
    char       *rows = coi_data_on_host(target);

    if (dtype == CO_STRING || row == 0)
        return;
    for (int64_t i = 0; i < n; ++i)
        apply_row(verb, dtype, rows + (size_t)index_at(slices->u.slices.indices, i) * row,
                  values + (size_t)i * row, length);
}

/* Slices whose values and indices the host can read: these, or a value of the block. */
static co_value *
slices_on_host(co_context *ctx, co_value *slices)
{
    co_value *values = slices->u.slices.values, *indices = slices->u.slices.indices;

    if (coi_is_on_host(values) && coi_is_on_host(indices))
        return slices;
    values = coi_host_value(ctx, values);
    indices = coi_host_value(ctx, indices);
    return co_slices(ctx, values, indices, NULL);
}

/*
 * With the lock of the variable held: its new value, a reference. What is written to in place stays
 * as it is until all variables can be.
 */
static co_value *
scatter_one(co_context *ctx, const co_value *variable, int verb, co_value *old, co_value *slices)
{
    co_value *target;

    if (old == NULL) {
        coi_fail_uninitialized(ctx, variable->u.variable);
        return NULL;
    }
    slices = slices_on_host(ctx, slices);
    target = slices != NULL ? target_of(ctx, old, slices) : NULL;
    if (target == NULL || target == old)
        return target;
    apply(variable->u.variable, verb, target, slices);
    return coi_place_tensor(ctx, target, old->u.tensor.device);
}

/* All locks are taken in the order given, which is that of replicas everywhere. */
static co_code
scatter_effect(co_context *ctx, coi_effect *effect)
{
    const coi_assignment *a = (const coi_assignment *)(const void *)effect;
    size_t                made = 0;
    bool                  ok = true;

    for (size_t i = 0; i < a->n; ++i) {
        co_value **slot = coi_plain_lock(a->variables[i]);

        if (!ok)
            continue;
        a->fresh[i] = scatter_one(ctx, a->variables[i], a->verb, *slot, a->values[i]);
        ok = a->fresh[i] != NULL;
        made += ok;
    }
    for (size_t i = 0; i < a->n; ++i) {
        if (ok) {
            if (a->fresh[i] == *coi_plain_locked(a->variables[i])) /* in place: on the host */
                apply(a->variables[i]->u.variable, a->verb, a->fresh[i],
                      slices_on_host(ctx, a->values[i]));
            coi_ref(a->fresh[i]);
            coi_plain_unlock(ctx, a->variables[i], a->fresh[i]);
            continue;
        }
        coi_plain_unlock(ctx, a->variables[i], NULL);
        if (i < made) {
            coi_unref(&ctx->heap, a->fresh[i]);
            a->fresh[i] = NULL;
        }
    }
    return ok ? CO_OK : coi_failed(ctx);
}

#define SCATTER(what, doc_)                                                                        \
    const coi_op coi_op_scatter_##what##_variable = {                                              \
        COI_EFFECT("scatter_" #what "_variable", doc_ "; co_scatter_" #what ".", scatter_effect,   \
                   CO_RESOURCE_VARIABLE, CO_RESOURCE_VARIABLE),                                    \
        .holds_locks = true                                                                        \
    };
SCATTER(update, "Replaces rows of a variable by slices")
SCATTER(add, "Adds slices to rows of a variable")
SCATTER(sub, "Subtracts slices from rows of a variable")
SCATTER(mul, "Multiplies rows of a variable by slices")
SCATTER(div, "Divides rows of a variable by slices")
SCATTER(min, "Replaces rows of a variable by their minimum with slices")
SCATTER(max, "Replaces rows of a variable by their maximum with slices")

bool
coi_plain_scatter(co_context *ctx, co_value *const *variables, size_t n, int verb,
                  co_value *const *slices, co_value **fresh)
{
    static const coi_op *const ops[] = { [COI_SCATTER_UPDATE] = &coi_op_scatter_update_variable,
                                         [COI_SCATTER_ADD] = &coi_op_scatter_add_variable,
                                         [COI_SCATTER_SUB] = &coi_op_scatter_sub_variable,
                                         [COI_SCATTER_MUL] = &coi_op_scatter_mul_variable,
                                         [COI_SCATTER_DIV] = &coi_op_scatter_div_variable,
                                         [COI_SCATTER_MIN] = &coi_op_scatter_min_variable,
                                         [COI_SCATTER_MAX] = &coi_op_scatter_max_variable };
    coi_assignment             assignment = {
                    .variables = variables, .n = n, .verb = verb, .values = slices, .fresh = fresh
    };

    for (size_t i = 0; i < n; ++i)
        fresh[i] = NULL;
    return coi_execute_assignment(ctx, ops[verb], &assignment);
}
