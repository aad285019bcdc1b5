/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applying gradients. In a step every replica updates its own component with the same summed
 * gradient, so components stay equal without further communication. Slots are made at the first
 * update of a component.
 */
#include "train/optimizer.h"

#include "context/tape.h"
#include "ops/engine/gradient.h"
#include "ops/engine/parallel.h"
#include "variable/variable.h"

#include <cohort/ops.h>

#include <string.h>

/* The slots of one component. */
typedef struct coi_slot_entry {
    co_value *component; /* a reference: the key stays what it is */
    co_value *slots[COI_MAX_SLOTS];
    int       num_slots;
} coi_slot_entry;

static void
destroy_entry(coi_heap *heap, coi_slot_entry *entry)
{
    for (int i = 0; i < entry->num_slots; ++i)
        coi_unref(heap, entry->slots[i]);
    coi_unref(heap, entry->component);
    coi_free(heap->store->memory, entry, sizeof(*entry));
}

static void
destroy(coi_heap *heap, void *object)
{
    co_optimizer *optimizer = object;

    for (size_t i = 0; i < optimizer->capacity; ++i)
        if (optimizer->table[i] != NULL)
            destroy_entry(heap, optimizer->table[i]);
    coi_free(heap->store->memory, optimizer->table,
             optimizer->capacity * sizeof(*optimizer->table));
    coi_object_free(heap, optimizer, sizeof(*optimizer));
}

const coi_class coi_optimizer_class = { "optimizer", destroy, NULL };

co_optimizer *
coi_optimizer_new(co_context *ctx, const coi_optimizer_rule *rule)
{
    co_optimizer *optimizer = coi_object_new(&ctx->heap, &coi_optimizer_class, sizeof(*optimizer));

    if (optimizer == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an optimizer");
        return NULL;
    }
    optimizer->rule = rule;
    optimizer->runtime = ctx->runtime;
    coi_lock_init(&optimizer->lock);
    return coi_own(ctx, optimizer);
}

static coi_slot_entry *
new_entry(co_context *ctx, co_optimizer *optimizer, co_value *component)
{
    const coi_variable *variable = component->u.variable;
    coi_slot_entry     *entry = coi_calloc(&ctx->runtime->memory, sizeof(*entry));

    if (entry == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the slots of '%s'", variable->name);
        return NULL;
    }
    coi_ref(component);
    entry->component = component;
    for (int i = 0; i < optimizer->rule->num_slots(optimizer); ++i) {
        co_value *zeros = co_zeros(ctx, (co_dtype)variable->dtype, variable->shape.dims,
                                   (size_t)variable->shape.ndim);

        if (zeros == NULL) {
            destroy_entry(&ctx->heap, entry);
            return NULL;
        }
        coi_ref(zeros);
        entry->slots[entry->num_slots++] = zeros;
    }
    return entry;
}

/* Where a component's entry is in a table of a power of two with some free places, or would be. */
static coi_slot_entry **
place_of(coi_slot_entry **table, size_t capacity, const co_value *component)
{
    uint64_t hash = (uint64_t)(uintptr_t)component * UINT64_C(0x9E3779B97F4A7C15);
    size_t   at = (size_t)(hash >> 32) & (capacity - 1);

    while (table[at] != NULL && table[at]->component != component)
        at = (at + 1) & (capacity - 1);
    return &table[at];
}

/* The entry of a component in the table, whose lock is held; NULL: none yet. */
static coi_slot_entry *
look_up(const co_optimizer *optimizer, const co_value *component)
{
    return optimizer->capacity > 0 ? *place_of(optimizer->table, optimizer->capacity, component)
                                   : NULL;
}

/* Put an entry in; the table is at most half full, so that looking takes a step or two. */
static bool
put_entry(co_optimizer *optimizer, coi_slot_entry *entry)
{
    coi_memory *memory = &optimizer->runtime->memory;

    if (2 * (optimizer->num_entries + 1) > optimizer->capacity) {
        size_t           capacity = optimizer->capacity > 0 ? 2 * optimizer->capacity : 16;
        coi_slot_entry **table = coi_calloc(memory, capacity * sizeof(*table));

        if (table == NULL)
            return false;
        for (size_t i = 0; i < optimizer->capacity; ++i)
            if (optimizer->table[i] != NULL)
                *place_of(table, capacity, optimizer->table[i]->component) = optimizer->table[i];
        coi_free(memory, optimizer->table, optimizer->capacity * sizeof(*table));
        optimizer->table = table;
        optimizer->capacity = capacity;
    }
    *place_of(optimizer->table, optimizer->capacity, entry->component) = entry;
    ++optimizer->num_entries;
    return true;
}

/* The entry of a component. Entries never move, and who updates the component holds its lock, so
 * that of the optimizer guards the table alone. */
static coi_slot_entry *
find_entry(co_context *ctx, co_optimizer *optimizer, co_value *component)
{
    coi_slot_entry *entry, *theirs;

    coi_lock_take(&optimizer->lock);
    entry = look_up(optimizer, component);
    coi_lock_give(&optimizer->lock);
    if (entry != NULL || (entry = new_entry(ctx, optimizer, component)) == NULL)
        return entry;
    coi_lock_take(&optimizer->lock);
    theirs = look_up(optimizer, component);
    if (theirs != NULL) { /* another thread was faster */
        coi_lock_give(&optimizer->lock);
        destroy_entry(&ctx->heap, entry);
        return theirs;
    }
    if (!put_entry(optimizer, entry))
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the slots of '%s'",
                 component->u.variable->name);
    coi_lock_give(&optimizer->lock);
    if (ctx->error.code != CO_OK) {
        destroy_entry(&ctx->heap, entry);
        return NULL;
    }
    return entry;
}

/* Elements of a chunk; updates are element by element, so that chunks change no bit. */
enum { CHUNK = COI_PARALLEL_ELEMENTS };

typedef struct update_job {
    const co_optimizer *optimizer;
    const coi_update   *whole;
    int                 num_slots;
} update_job;

static void
update_chunk(void *arg, int64_t chunk)
{
    const update_job *job = arg;
    coi_update        part = *job->whole;
    size_t            at = (size_t)(chunk * CHUNK) * coi_dtypes[part.dtype].size;

    part.n = part.n - chunk * CHUNK < CHUNK ? part.n - chunk * CHUNK : CHUNK;
    part.old = (const char *)part.old + at;
    part.value = (char *)part.value + at;
    part.gradient = (const char *)part.gradient + at;
    for (int i = 0; i < job->num_slots; ++i)
        part.slots[i] = (char *)part.slots[i] + at;
    job->optimizer->rule->update(job->optimizer, &part);
}

/* On the workers of the device that the variable is on, where that is worth it. */
static void
run_update(const co_device *device, const co_optimizer *optimizer, const coi_update *update,
           int num_slots)
{
    update_job job = { optimizer, update, num_slots };

    if (update->n <= CHUNK)
        optimizer->rule->update(optimizer, update);
    else
        coi_team_run(device->team, (update->n + CHUNK - 1) / CHUNK, update_chunk, &job);
}

/* Update one ordinary variable with a dense gradient. */
static bool
update_component(co_context *ctx, co_optimizer *optimizer, co_value *component, co_value *gradient,
                 int64_t step)
{
    coi_slot_entry *entry = find_entry(ctx, optimizer, component);
    co_value       *old, *fresh = NULL;
    coi_update      update;

    if (entry == NULL)
        return false;
    old = *coi_plain_lock(component);
    if (old == NULL)
        coi_fail_uninitialized(ctx, component->u.variable);
    else if (coi_is_private(old))
        fresh = old;
    else if ((fresh = coi_tensor_new(&ctx->heap, old->u.tensor.device, (co_dtype)old->dtype,
                                     old->u.tensor.dims, old->ndim, old->u.tensor.num_elements,
                                     coi_err(ctx))) == NULL)
        coi_failed(ctx);
    if (fresh == NULL) {
        coi_plain_unlock(ctx, component, NULL);
        return false;
    }
    update = (coi_update){ .dtype = (co_dtype)old->dtype,
                           .n = old->u.tensor.num_elements,
                           .old = old->u.tensor.data,
                           .value = fresh->u.tensor.data,
                           .gradient = gradient->u.tensor.data,
                           .step = step };
    for (int i = 0; i < entry->num_slots; ++i)
        update.slots[i] = entry->slots[i]->u.tensor.data;
    run_update(old->u.tensor.device, optimizer, &update, entry->num_slots);
    coi_plain_unlock(ctx, component, fresh != old ? fresh : NULL);
    return true;
}

static bool
fits(co_context *ctx, const coi_variable *variable, const co_value *gradient)
{
    char mine[COI_SHAPE_TEXT], its[COI_SHAPE_TEXT];
    bool same = gradient->dtype == variable->dtype && gradient->ndim == variable->shape.ndim;

    for (int i = 0; same && i < gradient->ndim; ++i)
        same = gradient->u.tensor.dims[i] == variable->shape.dims[i];
    if (!same)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "the gradient of '%s' is %s %s; the variable is %s %s",
                 variable->name, co_dtype_name((co_dtype)gradient->dtype),
                 coi_shape_text(gradient->u.tensor.dims, gradient->ndim, its),
                 co_dtype_name((co_dtype)variable->dtype),
                 coi_shape_text(variable->shape.dims, variable->shape.ndim, mine));
    return same;
}

/* A gradient that fits its variable, dense: a value of the block. */
static co_value *
fitting_gradient(co_context *ctx, const coi_variable *variable, co_value *gradient)
{
    gradient = coi_densify(ctx, gradient);
    if (gradient != NULL && gradient->kind != CO_KIND_TENSOR)
        gradient = co_to_tensor(ctx, gradient, (co_dtype)variable->dtype);
    return gradient != NULL && fits(ctx, variable, gradient) ? gradient : NULL;
}

/* What can be said of a pair before anything changes. */
static bool
check_pair(co_context *ctx, const coi_variable *variable, const co_value *gradient)
{
    char who[COI_VARIABLE_TEXT];

    if (ctx->mode.strategy != NULL && variable->strategy != ctx->mode.strategy &&
        (variable->components != NULL || ctx->mode.num_replicas > 1)) {
        if (variable->strategy != NULL)
            return coi_check_owner(ctx, variable, ctx->mode.strategy);
        coi_fail(ctx, CO_VALUE_ERROR,
                 "variable %s was made outside the scope of the strategy, and each of %d replicas "
                 "would update it; make it inside",
                 coi_variable_text(ctx, variable, who), ctx->mode.num_replicas);
        return false;
    }
    if (variable->dtype != CO_FLOAT32 && variable->dtype != CO_FLOAT64) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "variable '%s' is %s; optimizers update float32 and float64", variable->name,
                 co_dtype_name((co_dtype)variable->dtype));
        return false;
    }
    return gradient->kind != CO_KIND_TENSOR || fits(ctx, variable, gradient);
}

/* One variable in this context: the replica's component, or all of them outside a step. */
static bool
update_variable(co_context *ctx, co_optimizer *optimizer, co_value *value, co_value *gradient,
                int64_t step)
{
    const coi_variable *variable = value->u.variable;

    if (variable->components == NULL) {
        gradient = fitting_gradient(ctx, variable, gradient);
        return gradient != NULL && update_component(ctx, optimizer, value, gradient, step);
    }
    if (ctx->mode.step != NULL && !ctx->mode.cross && ctx->mode.strategy == variable->strategy) {
        gradient = fitting_gradient(ctx, variable, coi_select(gradient, ctx->mode.local_replica));
        return gradient != NULL &&
               update_component(ctx, optimizer, variable->components[ctx->mode.local_replica],
                                gradient, step);
    }
    for (size_t i = 0; i < variable->num_components; ++i) {
        co_value *mine = fitting_gradient(ctx, variable, coi_select(gradient, (int)i));

        if (mine == NULL || !update_component(ctx, optimizer, variable->components[i], mine, step))
            return false;
    }
    return true;
}

static bool
applies_alone(const co_context *ctx)
{
    return ctx->mode.step != NULL && !ctx->mode.cross;
}

/* Which step a replica, or who is outside of steps, makes next. The replicas of a strategy make the
 * same steps; where another begins, nobody is in a step, and all go on from the last. */
static int64_t
next_step(co_context *ctx, co_optimizer *optimizer)
{
    uint64_t who = applies_alone(ctx) ? ctx->mode.strategy->serial : 0;
    int64_t  last = 0, *steps = optimizer->steps;

    coi_lock_take(&optimizer->lock);
    if (who != optimizer->steps_of) {
        for (int i = 0; i < COI_MAX_LOCAL_REPLICAS; ++i)
            last = steps[i] > last ? steps[i] : last;
        for (int i = 0; i < COI_MAX_LOCAL_REPLICAS; ++i)
            steps[i] = last;
        optimizer->steps_of = who;
    }
    last = steps[who != 0 ? ctx->mode.local_replica : 0];
    coi_lock_give(&optimizer->lock);
    return last + 1;
}

/* Every replica applies; the update is counted once. */
static void
count_update(co_context *ctx, co_optimizer *optimizer, int64_t step)
{
    int seat = applies_alone(ctx) ? ctx->mode.local_replica : 0;

    if (seat == 0)
        atomic_fetch_add(&optimizer->iterations, 1);
    if (step > 0) {
        coi_lock_take(&optimizer->lock);
        optimizer->steps[seat] = step;
        coi_lock_give(&optimizer->lock);
    }
}

static co_code
apply(co_context *ctx, co_optimizer *optimizer, co_value *const *gradients,
      co_value *const *variables, size_t n)
{
    bool    recording = ctx->recording;
    size_t  some = 0;
    int64_t step;

    for (size_t i = 0; i < n; ++i) {
        if (gradients[i]->kind == CO_KIND_NONE)
            continue;
        ++some;
        if (!check_pair(ctx, variables[i]->u.variable, gradients[i]))
            return ctx->error.code;
    }
    if (some == 0 && n > 0)
        return coi_fail(
            ctx, CO_VALUE_ERROR,
            "no gradient: the loss does not depend on any of %zu variable%s, '%s' the first", n,
            COI_S(n), variables[0]->u.variable->name);
    ctx->recording = false;
    step = optimizer->rule->counts_steps ? next_step(ctx, optimizer) : 0;
    for (size_t i = 0; i < n; ++i) {
        bool ok;

        if (gradients[i]->kind == CO_KIND_NONE)
            continue;
        co_block_begin(ctx);
        ok = update_variable(ctx, optimizer, variables[i], gradients[i], step);
        co_block_end(ctx);
        if (!ok)
            break;
    }
    ctx->recording = recording;
    if (ctx->error.code == CO_OK)
        count_update(ctx, optimizer, step);
    return ctx->error.code;
}

static bool
check_optimizer(co_context *ctx, const co_optimizer *optimizer)
{
    return coi_check_object(ctx, optimizer, &coi_optimizer_class, 2, "optimizer");
}

co_code
co_apply_gradients(co_context *ctx, co_optimizer *optimizer, co_value *gradients,
                   co_value *variables)
{
    COI_ENTER_CODE(ctx, "apply_gradients");
    if (!check_optimizer(ctx, optimizer) || !coi_check_value(ctx, gradients, 3, "gradients") ||
        !coi_check_value(ctx, variables, 4, "variables"))
        return ctx->error.code;
    if (!coi_is_structure(gradients) || !coi_is_structure(variables) ||
        gradients->u.items.n != variables->u.items.n)
        return coi_fail(ctx, CO_VALUE_ERROR,
                        "gradients is %s of %zu and variables %s of %zu; they must be two lists of "
                        "one length",
                        coi_a_kind(gradients->kind),
                        coi_is_structure(gradients) ? gradients->u.items.n : 1,
                        coi_a_kind(variables->kind),
                        coi_is_structure(variables) ? variables->u.items.n : 1);
    for (size_t i = 0; i < variables->u.items.n; ++i)
        if (variables->u.items.items[i]->kind != CO_KIND_VARIABLE)
            return coi_fail(ctx, CO_TYPE_ERROR, "item %zu of variables is %s, not a variable", i,
                            coi_a_kind(variables->u.items.items[i]->kind));
    return apply(ctx, optimizer, gradients->u.items.items, variables->u.items.items,
                 variables->u.items.n);
}

/* The trainable variables that the tape has seen, in order of first use: the same on every
 * replica. */
static size_t
seen_variables(const coi_tape_log *log, co_value **out)
{
    size_t n = 0;

    for (size_t i = 0; i < log->num_watched; ++i)
        if (log->watched_values[i]->kind == CO_KIND_VARIABLE &&
            log->watched_values[i]->u.variable->trainable)
            out[n++] = log->watched_values[i];
    return n;
}

/* Gradients in `grads` summed over replicas: values of the block. Those that are none stay. */
static bool
sum_over_replicas(co_context *ctx, co_value **grads, size_t n)
{
    co_value **some, *sums;
    size_t     count = 0, nbytes = (n + 1) * sizeof(*some);

    if (ctx->mode.num_replicas == 1)
        return true;
    some = coi_small_alloc(&ctx->heap, nbytes);
    if (some == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu gradients", n);
        return false;
    }
    for (size_t i = 0; i < n; ++i)
        if (grads[i]->kind != CO_KIND_NONE)
            some[count++] = grads[i];
    sums = co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, some, count));
    coi_small_free(&ctx->heap, some, nbytes);
    if (sums == NULL)
        return false;
    count = 0;
    for (size_t i = 0; i < n; ++i)
        if (grads[i]->kind != CO_KIND_NONE)
            grads[i] = sums->u.items.items[count++];
    return true;
}

static co_code
minimize(co_context *ctx, co_optimizer *optimizer, co_value *loss)
{
    coi_tape_log *log = ctx->tapes;
    size_t        nbytes = (2 * log->num_watched + 1) * sizeof(co_value *), n;
    co_value    **variables = coi_small_alloc(&ctx->heap, nbytes), **grads;
    const char   *call = ctx->call;

    if (variables == NULL) {
        coi_tape_spend(ctx);
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the gradients of the tape");
    }
    n = seen_variables(log, variables);
    grads = variables + n;
    memcpy(grads, variables, n * sizeof(*grads));
    co_block_begin(ctx);
    ctx->call = call;
    for (size_t i = 0; i < n; ++i)
        coi_ref(variables[i]); /* the tape that holds them goes */
    if (n == 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "the tape has seen no trainable variable; compute the loss from one between "
                 "co_tape_begin and co_minimize");
        coi_tape_spend(ctx);
    } else if (coi_gradients(ctx, &loss, 1, NULL, grads, n, false) == CO_OK &&
               sum_over_replicas(ctx, grads, n)) {
        ctx->call = call;
        apply(ctx, optimizer, grads, variables, n);
    }
    for (size_t i = 0; i < n; ++i)
        coi_unref(&ctx->heap, variables[i]);
    co_block_end(ctx);
    coi_small_free(&ctx->heap, variables, nbytes);
    return ctx->error.code;
}

static bool
may_minimize(co_context *ctx, co_optimizer *optimizer, co_value *loss)
{
    if (ctx->error.code != CO_OK || !check_optimizer(ctx, optimizer) ||
        !coi_check_value(ctx, loss, 3, "loss"))
        return false;
    if (ctx->mode.cross)
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "minimize is called in cross-replica context; call it in the step");
    else if (!ctx->recording)
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "there is no open tape; call co_tape_begin before computing the loss");
    return ctx->error.code == CO_OK;
}

co_code
co_minimize(co_context *ctx, co_optimizer *optimizer, co_value *loss)
{
    COI_ENTER_ALWAYS(ctx, "minimize", CO_INVALID_ARGUMENT);
    if (may_minimize(ctx, optimizer, loss))
        return minimize(ctx, optimizer, loss);
    coi_tape_spend(ctx); /* the call ends its tape also when it fails */
    return ctx->error.code;
}

int64_t
co_optimizer_iterations(co_context *ctx, co_optimizer *optimizer)
{
    COI_ENTER(ctx, "optimizer_iterations", 0);
    return coi_check_object(ctx, optimizer, &coi_optimizer_class, 2, "optimizer")
               ? atomic_load(&optimizer->iterations)
               : 0;
}
