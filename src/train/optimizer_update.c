/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update of ordinary variables: one start of an entry for all that a replica updates at a time.
 * A variable and its slots are locked in this order while they are updated, and no two variables at
 * the same time, so that nobody waits in a circle.
 *
 * One pass over the memory does all there is to do: a part of a variable that fits into the cache
 * is clipped, decayed, updated and averaged before the next one. Every step of it is element by
 * element, so that neither parts nor chunks change a bit.
 */
#include "train/optimizer.h"

#include "ops/engine/parallel.h"
#include "variable/variable.h"

#include <math.h>
#include <string.h>

/* Elements of a chunk, which a thread takes, and of a part of it. */
enum { CHUNK = COI_PARALLEL_ELEMENTS, PART = 1024 };

/* The memory of an item, on the host. */
typedef struct update_job {
    const coi_update_step *step;
    const coi_update_item *item;
    coi_isa                isa;
    co_dtype               dtype;
    int64_t                n;
    const void            *old, *gradient, *powers;
    void                  *value, *slots[COI_ALL_SLOTS];
    double                 ema_momentum;
} update_job;

static const coi_updates *
kernels_of(coi_isa isa)
{
    static const coi_updates *const kernels[COI_NUM_ISAS] = COI_LOOP_ISAS(coi_updates);

    return kernels[isa];
}

static bool
is_clipped(const coi_update_item *item)
{
    return item->factor != 1 || !isinf(item->limit);
}

static void
run_rule(const update_job *job, const coi_update_arrays *arrays, int64_t n)
{
    const co_optimizer       *optimizer = job->step->optimizer;
    const coi_optimizer_rule *rule = optimizer->rule;
    const double             *numbers = job->step->numbers[job->dtype == CO_FLOAT64];

    if (rule->update != NULL)
        rule->update(optimizer->options, numbers, arrays, job->dtype, n);
    else
        kernels_of(job->isa)->update[rule->kind(optimizer->options)][job->dtype == CO_FLOAT64](
            numbers, arrays, n);
}

/* Elements `at` to at + n of a variable that has a gradient. */
static void
apply_rule(const update_job *job, int64_t at, int64_t n)
{
    const bool         is_double = job->dtype == CO_FLOAT64;
    const coi_updates *kernels = kernels_of(job->isa);
    const size_t       offset = (size_t)at * coi_dtypes[job->dtype].size;
    coi_update_arrays  arrays = { .old = (const char *)job->old + offset,
                                  .gradient = (const char *)job->gradient + offset,
                                  .powers = job->powers != NULL ? (const char *)job->powers + offset
                                                                : NULL,
                                  .value = (char *)job->value + offset };
    double             clipped[PART];

    for (int i = 0; i < job->step->optimizer->num_rule_slots; ++i)
        arrays.slots[i] = (char *)job->slots[i] + offset;
    if (is_clipped(job->item)) {
        kernels->clip[is_double](arrays.gradient, clipped, job->item->factor, job->item->limit, n);
        arrays.gradient = clipped;
    }
    if (job->item->decays && job->step->keep != 1) {
        kernels->decay[is_double](arrays.old, arrays.value, job->step->keep, n);
        arrays.old = arrays.value;
    }
    run_rule(job, &arrays, n);
}

static void
update_part(const update_job *job, int64_t at, int64_t n)
{
    const co_optimizer *optimizer = job->step->optimizer;
    const size_t        size = coi_dtypes[job->dtype].size, offset = (size_t)at * size;
    char               *value = (char *)job->value + offset, *average;

    if (job->gradient != NULL)
        apply_rule(job, at, n);
    else if (job->old != job->value)
        memcpy(value, (const char *)job->old + offset, (size_t)n * size);
    if (optimizer->average < 0)
        return;
    average = (char *)job->slots[optimizer->average] + offset;
    kernels_of(job->isa)->average[job->dtype == CO_FLOAT64](value, average, job->ema_momentum, n);
    if (job->step->overwrites)
        memcpy(value, average, (size_t)n * size);
}

/* Whether more than the rule runs over the elements. */
static bool
has_parts(const update_job *job)
{
    return job->gradient == NULL || is_clipped(job->item) || job->step->optimizer->average >= 0 ||
           (job->item->decays && job->step->keep != 1);
}

static void
update_chunk(void *arg, int64_t chunk)
{
    const update_job *job = arg;
    int64_t           at = chunk * CHUNK, end = at + CHUNK < job->n ? at + CHUNK : job->n;

    if (!has_parts(job)) {
        apply_rule(job, at, end - at);
        return;
    }
    for (; at < end; at += PART)
        update_part(job, at, end - at < PART ? end - at : PART);
}

/* On the workers of the device that the variable is on, where that is worth it. */
static void
run_update(const co_device *device, update_job *job)
{
    if (job->n <= CHUNK)
        update_chunk(job, 0);
    else
        coi_team_run(device->team, (job->n + CHUNK - 1) / CHUNK, update_chunk, job);
}

static co_value *
tensor_like(co_context *ctx, const co_value *tensor)
{
    co_value *fresh = coi_tensor_new(&ctx->heap, tensor->u.tensor.device, (co_dtype)tensor->dtype,
                                     tensor->u.tensor.dims, tensor->ndim,
                                     tensor->u.tensor.num_elements, coi_err(ctx));

    if (fresh == NULL)
        coi_failed(ctx);
    return fresh;
}

/* Take the lock of slot k of an item, which gets its first value if it has none yet: where its
 * tensor is. NULL with an error, and without the lock. */
static co_value **
lock_slot(co_context *ctx, const update_job *job, int k)
{
    co_value  *slot = job->item->slots[k];
    co_value **place = coi_plain_lock(slot);

    if (*place != NULL)
        return place;
    coi_plain_unlock(ctx, slot, NULL);
    return coi_plain_fill(ctx, slot, job->step->optimizer->slots[k].initial, NULL)
               ? coi_plain_lock(slot)
               : NULL;
}

/*
 * Slot k of an item locked and its memory in *data, which nobody else sees: where somebody has read
 * it, a copy takes the place of its tensor. Where its device has memory of its own, *data is a copy
 * of the block, for close_slot to put back. False with an error, and without the lock.
 */
static bool
open_slot(co_context *ctx, const update_job *job, int k, void **data)
{
    co_value  *slot = job->item->slots[k];
    co_value **place = lock_slot(ctx, job, k), *old, *host;

    if (place == NULL)
        return false;
    old = *place;
    host = coi_host_value(ctx, old);
    if (host == NULL) {
        coi_plain_unlock(ctx, slot, NULL);
        return false;
    }
    if (!coi_is_private(old)) {
        co_value *copy = tensor_like(ctx, old);

        if (copy == NULL) {
            coi_plain_unlock(ctx, slot, NULL);
            return false;
        }
        if (coi_is_on_host(copy)) {
            coi_download(ctx, old, coi_data_on_host(copy)); /* on the host */
            host = copy;
        }
        *place = copy;
        coi_unref(&ctx->heap, old);
    }
    *data = coi_data_on_host(host);
    return true;
}

/* Give a slot back, with what is in its data. */
static void
close_slot(co_context *ctx, co_value *slot, const void *data)
{
    co_value *tensor = *coi_plain_locked(slot);

    if (!coi_is_on_host(tensor))
        coi_upload(ctx, tensor, data);
    coi_plain_unlock(ctx, slot, NULL);
}

/* The slots that an update changes: an item without a gradient has its average moved alone. The
 * accumulator is none of them. */
static bool
uses_slot(const update_job *job, int k)
{
    const co_optimizer *optimizer = job->step->optimizer;

    return k == optimizer->average || (k < optimizer->num_rule_slots && job->gradient != NULL);
}

/* The update of a variable that is locked. */
static bool
update_locked(co_context *ctx, update_job *job, const co_device *device)
{
    const int n = job->step->optimizer->num_slots;
    int       opened = 0;

    while (opened < n &&
           (!uses_slot(job, opened) || open_slot(ctx, job, opened, &job->slots[opened])))
        ++opened;
    if (opened == n)
        run_update(device, job);
    while (opened-- > 0)
        if (uses_slot(job, opened))
            close_slot(ctx, job->item->slots[opened], job->slots[opened]);
    return coi_failed(ctx) == CO_OK;
}

/* Bytes that the host copied for the update of a variable whose device has memory of its own. */
static void
count_copies(const co_value *tensor, int num_slots)
{
    if (!coi_is_on_host(tensor))
        coi_count_named_fallback(tensor->u.tensor.device, "optimizer update",
                                 (3 + 2 * (size_t)num_slots) * coi_tensor_nbytes(tensor));
}

/* Where the operands of a job are on the host; copies are of the block. */
static bool
find_operands(co_context *ctx, update_job *job, co_value *old, co_value *fresh)
{
    const coi_update_item *item = job->item;
    co_value              *from = coi_host_value(ctx, old), *with = NULL, *powers = NULL;

    if (item->gradient != NULL)
        with = coi_host_value(ctx, item->gradient);
    if (item->powers != NULL)
        powers = coi_host_value(ctx, item->powers);
    if (from == NULL || (item->gradient != NULL && with == NULL) ||
        (item->powers != NULL && powers == NULL))
        return false;
    job->isa = ctx->runtime->isa;
    job->dtype = (co_dtype)old->dtype;
    job->n = old->u.tensor.num_elements;
    job->old = coi_data_on_host(from);
    job->value = coi_data_on_host(coi_is_on_host(fresh) ? fresh : from);
    job->gradient = with != NULL ? coi_data_on_host(with) : NULL;
    job->powers = powers != NULL ? coi_data_on_host(powers) : NULL;
    return true;
}

/* From the tensor of a locked variable to `fresh`, which may be the same. */
static bool
update_tensor(co_context *ctx, const coi_update_step *step, const coi_update_item *item,
              co_value *old, co_value *fresh)
{
    update_job job = { .step = step,
                       .item = item,
                       .ema_momentum = item->is_average_new ? 0 : step->ema_momentum };
    bool       ok;

    co_block_begin(ctx); /* owns what is copied to the host */
    ok = find_operands(ctx, &job, old, fresh) &&
         update_locked(ctx, &job, old->u.tensor.device->host);
    if (ok && !coi_is_on_host(fresh)) {
        ok = coi_upload(ctx, fresh, job.value) == CO_OK;
        count_copies(fresh, step->optimizer->num_slots);
        coi_failed(ctx);
    }
    co_block_end(ctx);
    return ok;
}

static bool
update_item(co_context *ctx, const coi_update_step *step, const coi_update_item *item)
{
    co_value *old = *coi_plain_lock(item->variable), *fresh = NULL;
    bool      ok;

    if (old == NULL)
        coi_fail_uninitialized(ctx, item->variable->u.variable);
    else
        fresh = coi_is_private(old) ? old : tensor_like(ctx, old);
    ok = fresh != NULL && update_tensor(ctx, step, item, old, fresh);
    coi_plain_unlock(ctx, item->variable, ok && fresh != old ? fresh : NULL);
    if (!ok && fresh != NULL && fresh != old)
        coi_unref(&ctx->heap, fresh);
    return ok;
}

typedef struct updating {
    coi_effect             effect;
    const coi_update_step *step;
    const coi_update_item *items;
    size_t                 n;
} updating;

co_code
coi_update_effect(co_context *ctx, coi_effect *effect)
{
    const updating *u = (const updating *)(const void *)effect;

    for (size_t i = 0; i < u->n; ++i)
        if (!update_item(ctx, u->step, &u->items[i]))
            break;
    return ctx->error.code;
}

/* Resources and gradients of an update as observers are shown them. They may read what they are
 * shown, so every slot has a value before anything is locked. */
static bool
describe(co_context *ctx, updating *u, const void **resources, co_value **gradients)
{
    const co_optimizer *optimizer = u->step->optimizer;
    size_t              num_resources = 0, num_in = 0;

    for (size_t i = 0; i < u->n; ++i) {
        const coi_update_item *item = &u->items[i];

        resources[num_resources++] = item->variable;
        if (item->gradient != NULL)
            gradients[num_in++] = item->gradient;
        for (int k = 0; k < optimizer->num_slots; ++k) {
            if (k == optimizer->accumulator)
                continue;
            if (!coi_plain_fill(ctx, item->slots[k], optimizer->slots[k].initial, NULL))
                return false;
            resources[num_resources++] = item->slots[k];
        }
    }
    u->effect = (coi_effect){
        .resources = resources, .num_resources = num_resources, .in = gradients, .num_in = num_in
    };
    return true;
}

bool
coi_update_variables(co_context *ctx, const coi_update_step *step, coi_update_item *items, size_t n)
{
    updating     u = { .step = step, .items = items, .n = n };
    const size_t nbytes = n * (2 + COI_ALL_SLOTS) * sizeof(void *);
    const int    average = step->optimizer->average;
    const void **shown;
    bool         ok;

    for (size_t i = 0; average >= 0 && i < n; ++i)
        items[i].is_average_new = !coi_plain_has_value(items[i].slots[average]);
    if (!coi_is_observed(ctx))
        return coi_execute(ctx, step->optimizer->rule->op, &u.effect) == CO_OK;
    shown = coi_small_alloc(&ctx->heap, nbytes);
    if (shown == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to show an update of %zu variables", n);
        return false;
    }
    ok = describe(ctx, &u, shown, (co_value **)(void *)(shown + n * (1 + COI_ALL_SLOTS))) &&
         coi_execute(ctx, step->optimizer->rule->op, &u.effect) == CO_OK;
    coi_small_free(&ctx->heap, shown, nbytes);
    return ok;
}

bool
coi_is_all_finite(co_context *ctx, co_value *tensor)
{
    co_value *host = coi_host_value(ctx, tensor);

    return host == NULL ||
           kernels_of(ctx->runtime->isa)
               ->is_finite[tensor->dtype == CO_FLOAT64](coi_data_on_host(host),
                                                        tensor->u.tensor.num_elements);
}
