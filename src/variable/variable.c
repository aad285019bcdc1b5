/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ordinary variables, and the public calls that any variable's policy answers.
 */
#include "base/text.h"
#include "ops/engine/call_recording.h"
#include "ops/engine/kernel_recording.h"
#include "variable/variable.h"

#include <cohort/ops.h>

#include <stdio.h>
#include <string.h>

typedef struct plain {
    coi_variable    base;
    coi_lock        lock;
    co_value       *value; /* a tensor; a reference */
    coi_device_name device;
    co_device      *home;                            /* of that name; NULL: there was none */
    char            device_text[CO_DEVICE_NAME_MAX]; /* where there was none */
} plain;

static plain *
plain_of(const co_value *variable)
{
    return (plain *)(void *)variable->u.variable;
}

bool
coi_variable_init(co_context *ctx, coi_variable *variable, const coi_variable_ops *ops,
                  const coi_variable_spec *spec, co_dtype dtype, const int64_t *dims, int ndim)
{
    variable->ops = ops;
    variable->dtype = (uint8_t)dtype;
    variable->trainable = spec->trainable;
    variable->synchronization = (uint8_t)spec->synchronization;
    variable->aggregation = (uint8_t)spec->aggregation;
    variable->shape.ndim = ndim;
    for (int i = 0; i < ndim; ++i)
        variable->shape.dims[i] = dims[i];
    variable->made_at = spec->made_at;
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

/* Its tensor, or NULL: a reference. For texts about it, which do not count as reads. */
static co_value *
plain_peek(const co_value *variable)
{
    plain    *p = (plain *)(void *)variable->u.variable;
    co_value *value;

    coi_lock_take(&p->lock);
    value = p->value;
    if (value != NULL)
        coi_ref(value);
    coi_lock_give(&p->lock);
    return value;
}

typedef struct reading {
    coi_effect effect;
    co_value  *variable, *value;
} reading;

static co_code
read_effect(co_context *ctx, coi_effect *effect)
{
    reading *r = (reading *)(void *)effect;

    r->value = plain_peek(r->variable);
    if (r->value == NULL)
        coi_fail_uninitialized(ctx, r->variable->u.variable);
    return ctx->error.code;
}

const coi_op coi_op_read_variable = {
    COI_EFFECT("read_variable",
               "Reads the tensor of a variable; co_variable_read, or use as an operand.",
               read_effect, CO_RESOURCE_VARIABLE, 0),
    .is_recordable = true,
};

static co_value *
plain_read(co_context *ctx, co_value *variable)
{
    const void *resource = variable;
    reading     r;

    r.variable = variable;
    r.effect = (coi_effect){
        .resources = &resource, .num_resources = 1, .out = &r.value, .num_out = 1
    };
    r.value = NULL;
    coi_execute(ctx, &coi_op_read_variable, &r.effect);
    return r.value != NULL && coi_records_kernels(ctx) ? coi_recorded_read(ctx, variable, r.value)
                                                       : r.value;
}

co_value **
coi_plain_lock(co_value *variable)
{
    plain *p = plain_of(variable);

    coi_lock_take(&p->lock);
    return &p->value;
}

co_value **
coi_plain_locked(co_value *variable)
{
    return &plain_of(variable)->value;
}

void
coi_plain_unlock(co_context *ctx, co_value *variable, co_value *tensor)
{
    plain    *p = plain_of(variable);
    co_value *old = NULL;

    if (tensor != NULL) {
        old = p->value;
        p->value = tensor;
    }
    coi_lock_give(&p->lock);
    coi_unref(&ctx->heap, old);
}

static const char *
owner_text(const co_strategy *strategy, char out[COI_OBJECT_TEXT])
{
    const coi_object *object = (const coi_object *)(const void *)strategy;

    return object != NULL ? object->cls->describe(object, out) : "the default strategy";
}

const char *
coi_variable_text(const co_context *ctx, const coi_variable *variable, char out[COI_VARIABLE_TEXT])
{
    char        mine[COI_OBJECT_TEXT], current[COI_OBJECT_TEXT], place[160] = "made";
    const char *file = variable->made_at.file;

    if (file != NULL)
        snprintf(place, sizeof(place), "made at %s:%d", coi_path_end(file, 120),
                 variable->made_at.line);
    snprintf(out, COI_VARIABLE_TEXT, "'%.*s%s' (%s under %s; now %s %s)",
             COI_CUT(100, variable->name), place, owner_text(variable->strategy, mine),
             coi_in_replica(ctx) ? "in a step of" : "under",
             owner_text(ctx->mode.strategy, current));
    return out;
}

void
coi_fail_uninitialized(co_context *ctx, const coi_variable *variable)
{
    char who[COI_VARIABLE_TEXT];

    coi_fail(ctx, CO_FAILED_PRECONDITION,
             "variable %s has no value yet; give it one with co_assign before it is used",
             coi_variable_text(ctx, variable, who));
}

/* Whether a tensor, or a type in which dimensions may be unknown, fits a variable. */
static bool
check_fits(co_context *ctx, const coi_variable *variable, const co_value *tensor)
{
    char who[COI_VARIABLE_TEXT], mine[COI_SHAPE_TEXT], its[COI_SHAPE_TEXT];
    bool fits = tensor->ndim < 0 || tensor->ndim == variable->shape.ndim;

    for (int i = 0; fits && i < tensor->ndim; ++i)
        fits = tensor->u.tensor.dims[i] < 0 || tensor->u.tensor.dims[i] == variable->shape.dims[i];
    if (fits && tensor->dtype == variable->dtype)
        return true;
    coi_fail(ctx, CO_VALUE_ERROR,
             "variable %s is %s %s and cannot be assigned %s %s; use co_cast or co_reshape",
             coi_variable_text(ctx, variable, who), co_dtype_name((co_dtype)variable->dtype),
             coi_shape_text(variable->shape.dims, variable->shape.ndim, mine),
             co_dtype_name((co_dtype)tensor->dtype),
             coi_shape_text(tensor->u.tensor.dims, tensor->ndim, its));
    return false;
}

co_value *
coi_assignable(co_context *ctx, const coi_variable *variable, co_value *value)
{
    co_value *tensor = coi_as_tensor(
        ctx, value, coi_is_host(value) ? (co_dtype)variable->dtype : CO_DTYPE_NONE);
    char who[COI_VARIABLE_TEXT];

    if (tensor == NULL) {
        if (ctx->error.code == CO_INVALID_ARGUMENT) { /* a number that does not fit the variable */
            char why[300];

            coi_text_line(why, sizeof(why), "%s", ctx->error.message);
            co_clear(ctx);
            coi_fail(ctx, CO_VALUE_ERROR, "variable %s cannot be assigned this: %s",
                     coi_variable_text(ctx, variable, who), why);
        }
        return NULL;
    }
    if (check_fits(ctx, variable, tensor))
        return tensor;
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

    if (p->value == NULL) {
        coi_fail_uninitialized(ctx, &p->base);
        return NULL;
    }
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
    coi_pop_to(ctx, entries);
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
    moved = coi_copy_tensor(ctx, tensor, device);
    if (moved == NULL)
        coi_failed(ctx);
    return moved;
}

/* The first of several threads gives the value; what is there stays. */
static co_code
initialize_effect(co_context *ctx, coi_effect *effect)
{
    const coi_assignment *a = (const coi_assignment *)(const void *)effect;
    plain                *p = plain_of(a->variables[0]);
    co_value             *mine = on_device(ctx, p, a->values[0]);

    if (mine == NULL)
        return ctx->error.code;
    coi_lock_take(&p->lock);
    if (p->value == NULL) {
        p->value = mine;
        mine = NULL;
    }
    coi_lock_give(&p->lock);
    coi_unref(&ctx->heap, mine);
    return CO_OK;
}

const coi_op coi_op_initialize_variable = {
    COI_EFFECT("initialize_variable", "Gives an optimizer slot its first value.", initialize_effect,
               CO_RESOURCE_VARIABLE, CO_RESOURCE_VARIABLE)
};

bool
coi_plain_fill(co_context *ctx, co_value *variable, double number, co_value *tensor)
{
    plain         *p = plain_of(variable);
    co_value      *now = plain_peek(variable), *none = NULL;
    coi_assignment assignment = {
        .variables = &variable, .n = 1, .verb = COI_ASSIGN, .values = &tensor, .fresh = &none
    };
    bool ok;

    coi_unref(&ctx->heap, now);
    if (now != NULL)
        return true;
    co_block_begin(ctx);
    if (tensor == NULL && number == 0)
        tensor = co_zeros(ctx, (co_dtype)p->base.dtype, p->base.shape.dims, p->base.shape.ndim);
    else if (tensor == NULL)
        tensor = co_fill(ctx, p->base.shape.dims, p->base.shape.ndim,
                         co_cast(ctx, co_scalar_double(ctx, number), (co_dtype)p->base.dtype));
    ok = tensor != NULL && coi_execute_assignment(ctx, &coi_op_initialize_variable, &assignment);
    co_block_end(ctx);
    return ok;
}

bool
coi_plain_has_value(co_value *variable)
{
    plain *p = plain_of(variable);
    bool   has;

    coi_lock_take(&p->lock);
    has = p->value != NULL;
    coi_lock_give(&p->lock);
    return has;
}

const coi_device_name *
coi_plain_device(co_value *variable)
{
    return &plain_of(variable)->device;
}

/* All locks are taken in the order given, which is that of replicas everywhere. */
static co_code
assign_effect(co_context *ctx, coi_effect *effect)
{
    const coi_assignment *a = (const coi_assignment *)(const void *)effect;
    size_t                made = 0;

    for (size_t i = 0; i < a->n; ++i)
        coi_lock_take(&plain_of(a->variables[i])->lock);
    while (made < a->n) {
        plain    *p = plain_of(a->variables[made]);
        co_value *tensor = a->values[made];

        a->fresh[made] = a->verb == COI_ASSIGN ? on_device(ctx, p, tensor)
                                               : combine(ctx, p, a->verb, tensor);
        if (a->fresh[made] == NULL)
            break;
        ++made;
    }
    for (size_t i = 0; i < a->n; ++i) {
        if (made == a->n)
            coi_ref(a->fresh[i]);
        coi_plain_unlock(ctx, a->variables[i], made == a->n ? a->fresh[i] : NULL);
    }
    if (made == a->n)
        return CO_OK;
    while (made > 0) {
        coi_unref(&ctx->heap, a->fresh[--made]);
        a->fresh[made] = NULL;
    }
    return ctx->error.code;
}

const coi_op coi_op_assign_variable = { COI_EFFECT("assign_variable",
                                                   "Assigns a tensor to a variable; co_assign.",
                                                   assign_effect, 0, CO_RESOURCE_VARIABLE),
                                        .holds_locks = true };
const coi_op coi_op_assign_add_variable = {
    COI_EFFECT("assign_add_variable", "Adds a tensor to a variable; co_assign_add.", assign_effect,
               CO_RESOURCE_VARIABLE, CO_RESOURCE_VARIABLE),
    .holds_locks = true
};
const coi_op coi_op_assign_sub_variable = {
    COI_EFFECT("assign_sub_variable", "Subtracts a tensor from a variable; co_assign_sub.",
               assign_effect, CO_RESOURCE_VARIABLE, CO_RESOURCE_VARIABLE),
    .holds_locks = true
};

bool
coi_execute_assignment(co_context *ctx, const coi_op *op, coi_assignment *assignment)
{
    assignment->effect = (coi_effect){
        .resources = (const void *const *)(const void *)assignment->variables,
        .num_resources = assignment->n,
        .in = assignment->values,
        .num_in = assignment->n,
        .out = assignment->fresh,
        .num_out = assignment->n
    };
    return coi_execute(ctx, op, &assignment->effect) == CO_OK;
}

bool
coi_plain_update(co_context *ctx, co_value *const *variables, size_t n, int verb,
                 co_value *const *tensors, co_value **fresh)
{
    static const coi_op *const ops[] = { [COI_ASSIGN] = &coi_op_assign_variable,
                                         [COI_ASSIGN_ADD] = &coi_op_assign_add_variable,
                                         [COI_ASSIGN_SUB] = &coi_op_assign_sub_variable };
    coi_assignment             assignment = {
                    .variables = variables, .n = n, .verb = verb, .values = tensors, .fresh = fresh
    };

    for (size_t i = 0; i < n; ++i)
        fresh[i] = NULL;
    return coi_execute_assignment(ctx, ops[verb], &assignment);
}

/* The component of a per-replica value that this context means; outside replicas a mirrored one
 * gives its first. */
static co_value *
slices_here(const co_context *ctx, co_value *value)
{
    int i = ctx->mode.update_id >= 0          ? ctx->mode.update_id
            : coi_in_replica(ctx)             ? ctx->mode.local_replica
            : coi_kind_of(value)->is_mirrored ? 0
                                              : -1;

    return coi_select(value, i);
}

static co_value *
plain_assign(co_context *ctx, co_value *variable, int verb, co_value *value)
{
    co_value *tensor, *fresh = NULL;

    if (verb >= COI_SCATTER_UPDATE) {
        value = slices_here(ctx, value);
        if (coi_check_slices(ctx, variable->u.variable, verb, value))
            coi_plain_scatter(ctx, &variable, 1, verb, &value, &fresh);
        return fresh;
    }
    tensor = coi_assignable(ctx, variable->u.variable, value);
    if (tensor == NULL)
        return NULL;
    coi_plain_update(ctx, &variable, 1, verb, &tensor, &fresh);
    coi_unref(&ctx->heap, tensor);
    return fresh;
}

static const char *
plain_device(co_context *ctx, co_value *variable)
{
    const plain *p = plain_of(variable);

    (void)ctx;
    return p->home != NULL ? p->home->name : p->device_text;
}

static const coi_variable_ops plain_ops = { "Variable",    plain_read, plain_assign, plain_device,
                                            plain_destroy, plain_peek, NULL };

co_value *
coi_plain_variable(co_context *ctx, const coi_variable_spec *spec, const coi_device_name *device,
                   co_value *initial)
{
    plain    *p = coi_calloc(&ctx->runtime->memory, sizeof(*p));
    co_value *variable, *first;

    if (p == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for variable '%s'", spec->name);
        return NULL;
    }
    coi_lock_init(&p->lock);
    p->device = *device;
    if (coi_devices_find(ctx->runtime->devices, device, &p->home, NULL) != CO_OK)
        coi_devices_format(ctx->runtime->devices, device, p->device_text);
    if (!coi_variable_init(ctx, &p->base, &plain_ops, spec, (co_dtype)initial->dtype,
                           initial->u.tensor.dims, initial->ndim)) {
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
    if (initial->kind == CO_KIND_SPEC)
        return variable;
    if (!coi_plain_update(ctx, &variable, 1, COI_ASSIGN, &initial, &first)) {
        coi_unref(&ctx->heap, variable);
        return NULL;
    }
    coi_unref(&ctx->heap, first);
    return variable;
}

bool
coi_check_variable(co_context *ctx, const co_value *value, int position)
{
    return coi_check_kind(ctx, value, CO_KIND_VARIABLE, position, "variable");
}

typedef struct assign_attrs {
    int verb;
} assign_attrs;

static co_value *assign_or_record(co_context *ctx, co_value *variable, co_value *value, int verb);

static co_value *
replay_assign(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    (void)num_in;
    return assign_or_record(ctx, in[0], in[1], ((const assign_attrs *)attrs)->verb);
}

const coi_op coi_op_assign = {
    COI_RECORDED("assign", "Changes a variable; co_assign, co_scatter_add and their like.",
                 replay_assign, CO_RESOURCE_VARIABLE, CO_RESOURCE_VARIABLE),
    .attrs_rule.size = COI_ATTRS_SIZE(assign_attrs),
    .is_plan_call = true,
};

/* What is known to be wrong is so while capturing, before anything that follows. */
static bool
may_fit(co_context *ctx, co_value *variable, co_value *value)
{
    if (coi_is_variable(value))
        value = coi_fresh_type(ctx, value);
    return value != NULL && ((value->kind != CO_KIND_TENSOR && !coi_is_type(value)) ||
                             check_fits(ctx, variable->u.variable, value));
}

static co_value *
capture_assign(co_context *ctx, co_value *variable, co_value *value, int verb)
{
    const coi_variable_ops *ops = variable->u.variable->ops;
    co_value               *type = ops->assigned != NULL ? ops->assigned(ctx, variable, verb)
                                                         : coi_fresh_type(ctx, variable);
    co_value               *seen;

    if (verb < COI_SCATTER_UPDATE && !may_fit(ctx, variable, value))
        return NULL;
    seen = coi_record_call(ctx, &coi_op_assign, &(assign_attrs){ verb },
                           (co_value *[]){ variable, value }, 2, type);
    if (seen != NULL && ctx->recording && coi_is_type(seen))
        coi_tape_mark(ctx->tapes, seen, coi_tape_variable(ctx, variable));
    return seen;
}

/* Whether somebody but the variable and the caller has a tensor. */
static bool
is_known_elsewhere(const co_value *tensor)
{
    return atomic_load_explicit(&tensor->object.refs, memory_order_relaxed) > 2;
}

/* What an assignment gives is a read of the variable: gradients lead to it, and not to the tensor
 * that was assigned, which may be watched later. Takes over the reference, and gives one. */
static co_value *
as_read(co_context *ctx, co_value *variable, co_value *seen)
{
    co_value *view;

    if (seen == NULL || seen->kind != CO_KIND_TENSOR ||
        (!ctx->recording && !is_known_elsewhere(seen)))
        return seen;
    view = coi_tensor_view(&ctx->heap, seen, seen->u.tensor.dims, seen->ndim,
                           seen->u.tensor.num_elements, 0, coi_err(ctx));
    if (view == NULL)
        coi_failed(ctx);
    else if (ctx->recording)
        coi_tape_mark(ctx->tapes, view, coi_tape_variable(ctx, variable));
    coi_unref(&ctx->heap, seen);
    return view;
}

static co_value *
assign_or_record(co_context *ctx, co_value *variable, co_value *value, int verb)
{
    co_value *seen;

    if (coi_is_capturing(ctx))
        return capture_assign(ctx, variable, value, verb);
    seen = variable->u.variable->ops->assign(ctx, variable, verb, value);
    seen = as_read(ctx, variable, seen);
    return seen != NULL ? coi_own(ctx, seen) : NULL;
}

static co_value *
assign(co_context *ctx, co_value *variable, co_value *value, int verb)
{
    return coi_check_variable(ctx, variable, 2) &&
                   coi_check_value(ctx, value, 3, verb < COI_SCATTER_UPDATE ? "value" : "slices")
               ? assign_or_record(ctx, variable, value, verb)
               : NULL;
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

#define SCATTER(name, verb)                                                                        \
    co_value *co_##name(co_context *ctx, co_value *variable, co_value *slices)                     \
    {                                                                                              \
        COI_ENTER(ctx, #name, NULL);                                                               \
        return assign(ctx, variable, slices, verb);                                                \
    }
SCATTER(scatter_update, COI_SCATTER_UPDATE)
SCATTER(scatter_add, COI_SCATTER_ADD)
SCATTER(scatter_sub, COI_SCATTER_SUB)
SCATTER(scatter_mul, COI_SCATTER_MUL)
SCATTER(scatter_div, COI_SCATTER_DIV)
SCATTER(scatter_min, COI_SCATTER_MIN)
SCATTER(scatter_max, COI_SCATTER_MAX)

co_value *
co_variable_read(co_context *ctx, co_value *variable)
{
    COI_ENTER(ctx, "variable_read", NULL);
    if (!coi_check_variable(ctx, variable, 2))
        return NULL;
    return co_identity(ctx, variable); /* an operator, so that the tape sees the read */
}

const char *
co_variable_name(co_context *ctx, const co_value *variable)
{
    COI_ENTER(ctx, "variable_name", "");
    return coi_check_variable(ctx, variable, 2) ? variable->u.variable->name : "";
}

bool
co_variable_trainable(co_context *ctx, const co_value *variable)
{
    COI_ENTER(ctx, "variable_trainable", false);
    return coi_check_variable(ctx, variable, 2) && variable->u.variable->trainable;
}

co_synchronization
co_variable_synchronization(co_context *ctx, const co_value *variable)
{
    COI_ENTER(ctx, "variable_synchronization", CO_SYNC_AUTO);
    return coi_check_variable(ctx, variable, 2)
               ? (co_synchronization)variable->u.variable->synchronization
               : CO_SYNC_AUTO;
}

co_aggregation
co_variable_aggregation(co_context *ctx, const co_value *variable)
{
    COI_ENTER(ctx, "variable_aggregation", CO_AGGREGATION_NONE);
    return coi_check_variable(ctx, variable, 2) ? (co_aggregation)variable->u.variable->aggregation
                                                : CO_AGGREGATION_NONE;
}

co_strategy *
co_variable_strategy(co_context *ctx, const co_value *variable)
{
    COI_ENTER(ctx, "variable_strategy", NULL);
    return coi_check_variable(ctx, variable, 2) ? variable->u.variable->strategy : NULL;
}

co_value *
co_trainable_variables(co_context *ctx, co_value *structure)
{
    co_value **some, *list;
    size_t     count, n = 0, nbytes;

    COI_ENTER(ctx, "trainable_variables", NULL);
    if (!coi_check_value(ctx, structure, 2, "structure"))
        return NULL;
    count = coi_count_leaves(structure);
    nbytes = (count + 1) * sizeof(*some);
    some = coi_small_alloc(&ctx->heap, nbytes);
    if (some == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a list of %zu variables", count);
        return NULL;
    }
    coi_collect_leaves(structure, some);
    for (size_t i = 0; i < count; ++i)
        if (coi_is_variable(some[i]) && some[i]->u.variable->trainable)
            some[n++] = some[i];
    list = co_list(ctx, some, n);
    coi_small_free(&ctx->heap, some, nbytes);
    return list;
}
