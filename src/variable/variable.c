/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ordinary variables, and the public calls that any variable's policy answers.
 */
#include "variable/variable.h"

#include <cohort/ops.h>

#include <stdio.h>
#include <string.h>

typedef struct plain {
    coi_variable    base;
    coi_lock        lock;
    co_value       *value; /* a tensor; a reference */
    coi_device_name device;
    char            device_text[CO_DEVICE_NAME_MAX];
} plain;

static plain *
plain_of(co_value *variable)
{
    return (plain *)(void *)variable->u.variable;
}

bool
coi_variable_init(co_context *ctx, coi_variable *variable, const coi_variable_ops *ops,
                  const coi_variable_spec *spec, const co_value *initial)
{
    variable->ops = ops;
    variable->dtype = initial->dtype;
    variable->trainable = spec->trainable;
    variable->synchronization = (uint8_t)spec->synchronization;
    variable->aggregation = (uint8_t)spec->aggregation;
    variable->shape.ndim = initial->ndim;
    for (int i = 0; i < initial->ndim; ++i)
        variable->shape.dims[i] = initial->u.tensor.dims[i];
    variable->made_at = ctx->site;
    variable->name_size = strlen(spec->name) + 1;
    variable->name = coi_strndup(&ctx->runtime->memory, spec->name, variable->name_size - 1);
    if (variable->name != NULL) {
        if (spec->strategy != NULL)
            coi_ref(spec->strategy);
        variable->strategy = spec->strategy;
        return true;
    }
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the name of a variable");
    return false;
}

void
coi_variable_clear(coi_heap *heap, coi_variable *variable)
{
    coi_unref(heap, variable->strategy);
    coi_free(heap->store->memory, variable->name, variable->name_size);
}

static void
plain_destroy(coi_heap *heap, coi_variable *variable)
{
    plain *p = (plain *)(void *)variable;

    coi_unref(heap, p->value);
    coi_variable_clear(heap, variable);
    coi_free(heap->store->memory, p, sizeof(*p));
}

static co_value *
plain_read(co_context *ctx, co_value *variable)
{
    plain    *p = plain_of(variable);
    co_value *value;

    (void)ctx;
    coi_lock_take(&p->lock);
    value = p->value;
    coi_ref(value);
    coi_lock_give(&p->lock);
    return value;
}

co_value *
coi_plain_take(co_value *variable)
{
    plain    *p = plain_of(variable);
    co_value *value;

    coi_lock_take(&p->lock);
    value = p->value;
    p->value = NULL;
    return value;
}

void
coi_plain_put(co_value *variable, co_value *tensor)
{
    plain *p = plain_of(variable);

    p->value = tensor;
    coi_lock_give(&p->lock);
}

static void
describe(const coi_variable *variable, char *out, size_t capacity)
{
    if (variable->made_at.file != NULL)
        snprintf(out, capacity, "'%s' (made at %s:%d)", variable->name, variable->made_at.file,
                 variable->made_at.line);
    else
        snprintf(out, capacity, "'%s'", variable->name);
}

co_value *
coi_assignable(co_context *ctx, const coi_variable *variable, co_value *value)
{
    co_value *tensor = coi_as_tensor(ctx, value,
                                     value->kind >= CO_KIND_INT && value->kind <= CO_KIND_STRING
                                         ? (co_dtype)variable->dtype
                                         : CO_DTYPE_NONE);
    char      who[200], mine[COI_SHAPE_TEXT], its[COI_SHAPE_TEXT];
    bool      same;

    if (tensor == NULL) {
        if (ctx->error.code == CO_INVALID_ARGUMENT)
            ctx->error.code =
                CO_VALUE; /* a number that does not fit the variable is a wrong value to assign */
        return NULL;
    }
    same = tensor->ndim == variable->shape.ndim;
    for (int i = 0; same && i < tensor->ndim; ++i)
        same = tensor->u.tensor.dims[i] == variable->shape.dims[i];
    if (same && tensor->dtype == variable->dtype)
        return tensor;
    describe(variable, who, sizeof(who));
    coi_fail(ctx, CO_VALUE, "variable %s is %s %s and cannot be assigned %s %s", who,
             co_dtype_name((co_dtype)variable->dtype),
             coi_shape_text(variable->shape.dims, variable->shape.ndim, mine),
             co_dtype_name((co_dtype)tensor->dtype),
             coi_shape_text(tensor->u.tensor.dims, tensor->ndim, its));
    coi_unref(&ctx->heap, tensor);
    return NULL;
}

/* old + tensor or old - tensor on the variable's device, without the tape: a reference. */
static co_value *
combine(co_context *ctx, plain *p, int verb, co_value *tensor)
{
    size_t    entries = ctx->num_entries;
    bool      recording = ctx->recording;
    co_value *sum = NULL;

    if (coi_push(ctx, COI_ENTRY_DEVICE, NULL) == NULL)
        return NULL;
    coi_enter_device(ctx, &p->device);
    ctx->recording = false;
    co_block_begin(ctx);
    sum = verb == COI_ASSIGN_ADD ? co_add(ctx, p->value, tensor) : co_sub(ctx, p->value, tensor);
    if (sum != NULL)
        coi_ref(sum);
    co_block_end(ctx);
    ctx->recording = recording;
    while (ctx->num_entries > entries)
        coi_pop(ctx);
    return sum;
}

/* The tensor on the variable's own device: a reference. */
static co_value *
on_device(co_context *ctx, plain *p, co_value *tensor)
{
    co_device *device;
    co_value  *moved;

    if (coi_devices_find(ctx->runtime->devices, &p->device, &device, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    if (tensor->u.tensor.device == device) {
        coi_ref(tensor);
        return tensor;
    }
    moved = coi_tensor_to(&ctx->heap, tensor, device, coi_err(ctx));
    if (moved == NULL)
        coi_failed(ctx);
    return moved;
}

/* All locks are taken in the order given, which is that of replicas everywhere. */
bool
coi_plain_update(co_context *ctx, co_value *const *variables, size_t n, int verb,
                 co_value *const *tensors, co_value **fresh)
{
    size_t made = 0;

    for (size_t i = 0; i < n; ++i)
        coi_lock_take(&plain_of(variables[i])->lock);
    while (made < n) {
        plain *p = plain_of(variables[made]);

        fresh[made] = verb == COI_ASSIGN ? on_device(ctx, p, tensors[made])
                                         : combine(ctx, p, verb, tensors[made]);
        if (fresh[made] == NULL)
            break;
        ++made;
    }
    for (size_t i = 0; i < n; ++i) {
        plain    *p = plain_of(variables[i]);
        co_value *old = NULL;

        if (made == n) {
            old = p->value;
            p->value = fresh[i];
            coi_ref(fresh[i]);
        }
        coi_lock_give(&p->lock);
        coi_unref(&ctx->heap, old);
    }
    if (made == n)
        return true;
    while (made > 0) {
        coi_unref(&ctx->heap, fresh[--made]);
        fresh[made] = NULL;
    }
    return false;
}

static co_value *
plain_assign(co_context *ctx, co_value *variable, int verb, co_value *value)
{
    co_value *tensor = coi_assignable(ctx, variable->u.variable, value), *fresh = NULL;

    if (tensor == NULL)
        return NULL;
    coi_plain_update(ctx, &variable, 1, verb, &tensor, &fresh);
    coi_unref(&ctx->heap, tensor);
    return fresh;
}

static const char *
plain_device(co_context *ctx, co_value *variable)
{
    (void)ctx;
    return plain_of(variable)->device_text;
}

static const coi_variable_ops plain_ops = { "Variable", plain_read, plain_assign, plain_device,
                                            plain_destroy };

co_value *
coi_plain_variable(co_context *ctx, const coi_variable_spec *spec, const coi_device_name *device,
                   co_value *initial)
{
    plain    *p = coi_calloc(&ctx->runtime->memory, sizeof(*p));
    co_value *variable;

    if (p == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for variable '%s'", spec->name);
        return NULL;
    }
    coi_lock_init(&p->lock);
    p->device = *device;
    coi_device_format(device, p->device_text);
    if (!coi_variable_init(ctx, &p->base, &plain_ops, spec, initial) ||
        (p->value = on_device(ctx, p, initial)) == NULL) {
        plain_destroy(&ctx->heap, &p->base);
        return NULL;
    }
    variable = coi_value_new(&ctx->heap, CO_KIND_VARIABLE);
    if (variable == NULL) {
        plain_destroy(&ctx->heap, &p->base);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for variable '%s'", spec->name);
        return NULL;
    }
    variable->u.variable = &p->base;
    return variable;
}

bool
coi_check_variable(co_context *ctx, co_value *value, int position)
{
    return coi_check_kind(ctx, value, CO_KIND_VARIABLE, position, "variable");
}

static co_value *
assign(co_context *ctx, co_value *variable, co_value *value, int verb)
{
    co_value *seen;

    if (!coi_check_variable(ctx, variable, 2) || !coi_check_value(ctx, value, 3, "value"))
        return NULL;
    seen = variable->u.variable->ops->assign(ctx, variable, verb, value);
    return seen != NULL ? coi_own(ctx, seen) : NULL;
}

co_value *
co_assign(co_context *ctx, co_value *variable, co_value *value)
{
    COI_ENTER(ctx, "assign", NULL);
    return assign(ctx, variable, value, COI_ASSIGN);
}

co_value *
co_assign_add(co_context *ctx, co_value *variable, co_value *value)
{
    COI_ENTER(ctx, "assign_add", NULL);
    return assign(ctx, variable, value, COI_ASSIGN_ADD);
}

co_value *
co_assign_sub(co_context *ctx, co_value *variable, co_value *value)
{
    COI_ENTER(ctx, "assign_sub", NULL);
    return assign(ctx, variable, value, COI_ASSIGN_SUB);
}

co_value *
co_read(co_context *ctx, co_value *variable)
{
    COI_ENTER(ctx, "read", NULL);
    if (!coi_check_variable(ctx, variable, 2))
        return NULL;
    return co_identity(ctx, variable); /* an operator, so that the tape sees the read */
}

const char *
co_variable_name(co_context *ctx, co_value *variable)
{
    COI_ENTER(ctx, "variable_name", "");
    return coi_check_variable(ctx, variable, 2) ? variable->u.variable->name : "";
}

bool
co_variable_trainable(co_context *ctx, co_value *variable)
{
    COI_ENTER(ctx, "variable_trainable", false);
    return coi_check_variable(ctx, variable, 2) && variable->u.variable->trainable;
}

co_synchronization
co_variable_synchronization(co_context *ctx, co_value *variable)
{
    COI_ENTER(ctx, "variable_synchronization", CO_SYNC_AUTO);
    return coi_check_variable(ctx, variable, 2)
               ? (co_synchronization)variable->u.variable->synchronization
               : CO_SYNC_AUTO;
}

co_aggregation
co_variable_aggregation(co_context *ctx, co_value *variable)
{
    COI_ENTER(ctx, "variable_aggregation", CO_AGGREGATION_NONE);
    return coi_check_variable(ctx, variable, 2) ? (co_aggregation)variable->u.variable->aggregation
                                                : CO_AGGREGATION_NONE;
}

co_strategy *
co_variable_strategy(co_context *ctx, co_value *variable)
{
    COI_ENTER(ctx, "variable_strategy", NULL);
    return coi_check_variable(ctx, variable, 2) ? variable->u.variable->strategy : NULL;
}
