/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update of one ordinary variable. While it runs it holds the locks of the variable and of its
 * slots, in this order.
 */
#include "train/optimizer.h"

#include "ops/engine/parallel.h"
#include "variable/variable.h"

#include <string.h>

/* Elements of a chunk; updates are element by element, so that chunks change no bit. */
enum { CHUNK = COI_PARALLEL_ELEMENTS };

typedef struct update_job {
    const coi_optimizer_rule *rule;
    const void               *hyperparameters;
    const coi_update         *whole;
    int                       num_slots;
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
    job->rule->update(job->hyperparameters, &part);
}

/* On the workers of the device that the variable is on, where that is worth it. */
static void
run_update(const co_device *device, const update_job *job)
{
    update_job copy = *job;

    if (job->whole->n <= CHUNK)
        job->rule->update(job->hyperparameters, job->whole);
    else
        coi_team_run(device->team, (job->whole->n + CHUNK - 1) / CHUNK, update_chunk, &copy);
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

/* Take the lock of a slot, which gets zeros if it has nothing yet: where its tensor is. NULL with
 * an error, and without the lock. */
static co_value **
lock_slot(co_context *ctx, co_value *slot)
{
    co_value **place = coi_plain_lock(slot);

    if (*place != NULL)
        return place;
    coi_plain_unlock(ctx, slot, NULL);
    return coi_plain_zero(ctx, slot) ? coi_plain_lock(slot) : NULL;
}

/*
 * A slot locked and its memory in *data, which nobody else sees: where somebody has read it, a copy
 * takes the place of its tensor. Where its device has memory of its own, *data is a copy of the
 * block, for close_slot to put back. False with an error, and without the lock.
 */
static bool
open_slot(co_context *ctx, co_value *slot, void **data)
{
    co_value **place = lock_slot(ctx, slot), *old, *host;

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

/* The update of a variable that is locked. */
static bool
update_locked(co_context *ctx, update_job *job, coi_update *update, co_value *const *slots,
              const co_device *device)
{
    int opened = 0;

    while (opened < job->num_slots && open_slot(ctx, slots[opened], &update->slots[opened]))
        ++opened;
    if (opened == job->num_slots)
        run_update(device, job);
    while (opened-- > 0)
        close_slot(ctx, slots[opened], update->slots[opened]);
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

typedef struct updating {
    coi_effect                 effect;
    const void                *resources[1 + COI_MAX_SLOTS];
    const coi_optimizer_rule  *rule;
    const coi_hyperparameters *hyperparameters;
    co_value                  *variable, *gradient;
    co_value *const           *slots;
    int                        num_slots;
} updating;

co_code
coi_update_effect(co_context *ctx, coi_effect *effect)
{
    const updating *u = (const updating *)(const void *)effect;
    co_value       *old = *coi_plain_lock(u->variable), *fresh = NULL, *from, *with;
    coi_update      update;
    update_job      job = { u->rule, u->hyperparameters->bytes, &update, u->num_slots };
    bool            ok;

    if (old == NULL)
        coi_fail_uninitialized(ctx, u->variable->u.variable);
    else
        fresh = coi_is_private(old) ? old : tensor_like(ctx, old);
    if (fresh == NULL) {
        coi_plain_unlock(ctx, u->variable, NULL);
        return ctx->error.code;
    }
    co_block_begin(ctx); /* owns what is copied to the host */
    from = coi_host_value(ctx, old);
    with = coi_host_value(ctx, u->gradient);
    ok = from != NULL && with != NULL;
    if (ok)
        update = (coi_update){ .isa = ctx->runtime->isa,
                               .dtype = (co_dtype)old->dtype,
                               .n = old->u.tensor.num_elements,
                               .old = coi_data_on_host(from),
                               .value = coi_data_on_host(coi_is_on_host(fresh) ? fresh : from),
                               .gradient = coi_data_on_host(with) };
    ok = ok && update_locked(ctx, &job, &update, u->slots, old->u.tensor.device->host);
    if (ok && !coi_is_on_host(fresh)) {
        ok = coi_upload(ctx, fresh, update.value) == CO_OK;
        count_copies(fresh, u->num_slots);
        coi_failed(ctx);
    }
    co_block_end(ctx);
    coi_plain_unlock(ctx, u->variable, ok && fresh != old ? fresh : NULL);
    if (!ok && fresh != old)
        coi_unref(&ctx->heap, fresh);
    return ctx->error.code;
}

bool
coi_update_variable(co_context *ctx, const coi_optimizer_rule *rule,
                    const coi_hyperparameters *hyperparameters, co_value *variable,
                    co_value *const *slots, int num_slots, co_value *gradient)
{
    updating u;

    /* With observers every slot has a value before anything is locked: they are told of it, and may
     * read the variable. */
    for (int i = 0; coi_is_observed(ctx) && i < num_slots; ++i)
        if (!coi_plain_zero(ctx, slots[i]))
            return false;
    u.resources[0] = variable;
    for (int i = 0; i < num_slots; ++i)
        u.resources[1 + i] = slots[i];
    u.rule = rule;
    u.hyperparameters = hyperparameters;
    u.variable = variable;
    u.gradient = gradient;
    u.slots = slots;
    u.num_slots = num_slots;
    u.effect = (coi_effect){ .resources = u.resources,
                             .num_resources = 1 + (size_t)num_slots,
                             .in = &u.gradient,
                             .num_in = 1 };
    return coi_execute(ctx, rule->op, &u.effect) == CO_OK;
}
