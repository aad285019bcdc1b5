/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing, blocks and ownership. A context owns a stack of references; a block is a mark on it.
 */
#include "context/context.h"

#include "context/tape.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Undo coi_runtime_open from the point it reached. */
static void
runtime_free(coi_runtime *runtime)
{
    coi_memory memory;

    if (runtime->kernel_state != NULL)
        runtime->kernel_state_close(runtime, runtime->kernel_state);
    if (runtime->devices != NULL)
        coi_devices_destroy(runtime->devices);
    coi_topology_destroy(&runtime->topology, &runtime->memory);
    coi_cell_store_destroy(&runtime->store);
    pthread_mutex_destroy(&runtime->lock);
    coi_log_destroy(&runtime->log);
    memory.hooks = runtime->memory.hooks;
    memory.hooks.free(memory.hooks.user, runtime, sizeof(*runtime));
}

/* Everything in order; what fails leaves its error in err and the runtime closable. */
static void
runtime_start(coi_runtime *runtime, const char *settings, co_error_info *err)
{
    if (coi_settings_load(&runtime->settings, settings, err, &runtime->log) != CO_OK)
        return;
    runtime->log.level = runtime->settings.log;
    if (coi_topology_init(&runtime->topology, &runtime->memory, err) != CO_OK)
        return;
    runtime->waiting.num_cores = runtime->topology.quota;
    runtime->waiting.spin_us = runtime->settings.spin_us;
    if (coi_isa_choose(runtime->settings.isa, &runtime->isa, err) != CO_OK)
        return;
    coi_devices_create(&runtime->memory, &runtime->settings, &runtime->topology, &runtime->waiting,
                       &runtime->log, &runtime->devices, err);
}

static coi_runtime *
runtime_open(const co_options *options, co_error_info *err)
{
    coi_memory   memory;
    coi_runtime *runtime;

    coi_memory_init(&memory, options->allocator);
    runtime = memory.hooks.alloc(memory.hooks.user, sizeof(*runtime), COI_ALIGNMENT);
    if (runtime == NULL)
        return NULL;
    memset(runtime, 0, sizeof(*runtime));
    coi_memory_init(&runtime->memory, options->allocator);
    coi_log_init(&runtime->log, options->log, options->log_user);
    pthread_mutex_init(&runtime->lock, NULL);
    atomic_init(&runtime->refs, 0);
    atomic_init(&runtime->next_epoch, 1);
    atomic_init(&runtime->next_serial, 1);
    runtime->pid = getpid();
    coi_cell_store_init(&runtime->store, &runtime->memory);
    runtime_start(runtime, options->settings, err);
    return runtime;
}

static void
start_mode(co_context *ctx)
{
    static const coi_device_name none = { .replica = -1, .task = -1, .index = -1 };

    ctx->mode = (coi_mode){ .num_replicas = 1, .update_id = -1 };
    ctx->device_id = none;
    coi_device_complete(&ctx->device_id, NULL);
    ctx->device = ctx->runtime->devices != NULL ? coi_devices_at(ctx->runtime->devices, 0) : NULL;
    ctx->step_examples = -1;
    ctx->rank = -1;
    ctx->seed = ctx->runtime->settings.seed;
}

co_context *
coi_context_new(coi_runtime *runtime)
{
    co_context *ctx = coi_calloc(&runtime->memory, sizeof(*ctx));

    if (ctx == NULL)
        return NULL;
    coi_error_reset(&ctx->error);
    ctx->runtime = runtime;
    coi_heap_init(&ctx->heap, &runtime->store);
    start_mode(ctx);
    ctx->reference_kernels = runtime->settings.reference_kernels;
    ctx->next_entry = 1;
    return ctx;
}

void
coi_context_free(co_context *ctx)
{
    coi_runtime *runtime = ctx->runtime;
    coi_memory  *memory = &runtime->memory;

    coi_blocks_unwind(ctx, 0);
    coi_tape_log_free(ctx);
    while (ctx->num_owned > 0)
        coi_unref(&ctx->heap, ctx->owned[--ctx->num_owned]);
    co_clear(ctx);
    coi_heap_destroy(&ctx->heap);
    coi_free(memory, ctx->owned, ctx->cap_owned * sizeof(*ctx->owned));
    coi_free(memory, ctx->blocks, ctx->cap_blocks * sizeof(*ctx->blocks));
    coi_free(memory, ctx->entries, ctx->cap_entries * sizeof(*ctx->entries));
    coi_free(memory, ctx, sizeof(*ctx));
}

/* A context that the user opened holds its runtime; those of replicas live inside a strategy and do not. */
static co_context *
open_context(coi_runtime *runtime)
{
    co_context *ctx = coi_context_new(runtime);

    if (ctx != NULL)
        atomic_fetch_add(&runtime->refs, 1);
    return ctx;
}

/* The last context takes the runtime with it. */
static void
release_runtime(coi_runtime *runtime)
{
    coi_heap heap;

    if (atomic_fetch_sub(&runtime->refs, 1) != 1)
        return;
    coi_heap_init(&heap, &runtime->store);
    coi_unref(&heap, runtime->default_strategy);
    coi_heap_destroy(&heap);
    runtime_free(runtime);
}

co_context *
co_open_with(const co_options *options)
{
    co_options    all = CO_OPTIONS_INIT;
    co_error_info err;
    coi_runtime  *runtime;
    co_context   *ctx;

    coi_error_reset(&err);
    if (options != NULL)
        memcpy(&all, options,
               options->struct_size < sizeof(all) ? options->struct_size : sizeof(all));
    runtime = runtime_open(&all, &err);
    if (runtime == NULL)
        return NULL;
    ctx = open_context(runtime);
    if (ctx == NULL) {
        runtime_free(runtime);
        return NULL;
    }
    if (err.code != CO_OK) {
        ctx->call = "open";
        coi_fail(ctx, err.code, "%s", err.message);
    }
    return ctx;
}

co_context *
co_open(const char *settings)
{
    co_options options = CO_OPTIONS_INIT;

    options.settings = settings;
    return co_open_with(&options);
}

co_context *
co_open_beside(co_context *ctx)
{
    return ctx != NULL ? open_context(ctx->runtime) : NULL;
}

/* "step.c:41: matmul: message (replica 1) [CO_INVALID_ARGUMENT]" */
static void
report(co_context *ctx)
{
    const co_error_info *err = &ctx->error;
    char                 where[300] = "", replica[32] = "", rank[32] = "";

    if (err->file != NULL)
        snprintf(where, sizeof(where), "%s:%d: ", err->file, err->line);
    if (err->replica >= 0)
        snprintf(replica, sizeof(replica), " (replica %d)", err->replica);
    if (err->rank >= 0)
        snprintf(rank, sizeof(rank), " (rank %d)", err->rank);
    coi_log_line(&ctx->runtime->log, CO_LOG_ERROR, "%s%s: %s%s%s [%s]", where, err->call,
                 err->message, replica, rank, co_code_name(err->code));
}

co_code
co_close(co_context *ctx)
{
    coi_runtime *runtime;
    co_code      code;

    if (ctx == NULL)
        return CO_OK;
    runtime = ctx->runtime;
    code = ctx->error.code;
    if (code != CO_OK)
        report(ctx);
    coi_context_free(ctx);
    release_runtime(runtime);
    return code;
}

void *
coi_own(co_context *ctx, void *object)
{
    if (ctx->num_owned == ctx->cap_owned &&
        !coi_grow(&ctx->runtime->memory, (void **)&ctx->owned, &ctx->cap_owned, ctx->num_owned + 1,
                  sizeof(*ctx->owned))) {
        coi_unref(&ctx->heap, object);
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to own one more handle (%zu are alive)",
                 ctx->num_owned);
        return NULL;
    }
    ctx->owned[ctx->num_owned++] = object;
    return object;
}

co_value *
coi_give(co_context *ctx, co_value *value)
{
    if (value == NULL) {
        coi_failed(ctx);
        return NULL;
    }
    return coi_own(ctx, value);
}

/* Blocks must end even when there is an error, so their marks may not need memory twice: begin grows, end shrinks. */
void
co_block_begin(co_context *ctx)
{
    if (ctx == NULL)
        return;
    if (ctx->num_blocks == ctx->cap_blocks &&
        !coi_grow(&ctx->runtime->memory, (void **)&ctx->blocks, &ctx->cap_blocks,
                  ctx->num_blocks + 1, sizeof(*ctx->blocks))) {
        /* The block is counted all the same, so that its end finds its begin. */
        ++ctx->unmarked_blocks;
        ctx->call = "block_begin";
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for block %zu", ctx->num_blocks + 1);
        return;
    }
    ctx->blocks[ctx->num_blocks++] = (coi_block){ ctx->num_owned,
                                                  ctx->tapes != NULL ? ctx->tapes->num_tapes : 0 };
}

static void
end_block(co_context *ctx)
{
    coi_block block = ctx->blocks[--ctx->num_blocks];

    if (ctx->recording)
        coi_tapes_unwind(ctx, block.num_tapes);
    /* Youngest first, so that what was made from another goes before it. */
    while (ctx->num_owned > block.num_owned)
        coi_unref(&ctx->heap, ctx->owned[--ctx->num_owned]);
}

void
co_block_end(co_context *ctx)
{
    if (ctx == NULL)
        return;
    if (ctx->unmarked_blocks > 0) {
        --ctx->unmarked_blocks;
        return;
    }
    if (ctx->num_blocks == 0) {
        ctx->call = "block_end";
        coi_fail(ctx, CO_RUNTIME, "there is no open block to end");
        return;
    }
    end_block(ctx);
}

void
coi_blocks_unwind(co_context *ctx, size_t depth)
{
    ctx->unmarked_blocks = 0;
    while (ctx->num_blocks > depth)
        end_block(ctx);
}

static bool
is_alive(co_context *ctx, const void *handle)
{
    if (((const coi_object *)handle)->magic == COI_MAGIC_LIVE)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (handle) is not a live handle of this library");
    return false;
}

void
co_keep(co_context *ctx, const void *handle)
{
    if (ctx == NULL || handle == NULL)
        return;
    ctx->call = "keep";
    if (is_alive(ctx, handle))
        coi_ref((void *)(uintptr_t)handle);
}

void
co_release(co_context *ctx, const void *handle)
{
    if (ctx == NULL || handle == NULL)
        return;
    ctx->call = "release";
    if (is_alive(ctx, handle))
        coi_unref(&ctx->heap, (void *)(uintptr_t)handle);
}

co_value *
co_escape(co_context *ctx, co_value *value)
{
    COI_ENTER(ctx, "escape", NULL);
    if (!coi_check_value(ctx, value, 2, "value"))
        return NULL;
    if (ctx->num_blocks == 0)
        return value; /* it lives until the context closes anyway */
    coi_ref(value);
    if (coi_own(ctx, value) == NULL)
        return NULL;
    /* The new reference goes to the bottom of the block and the block begins above it. */
    {
        coi_block  *block = &ctx->blocks[ctx->num_blocks - 1];
        coi_object *first = ctx->owned[block->num_owned];

        ctx->owned[block->num_owned] = ctx->owned[ctx->num_owned - 1];
        ctx->owned[ctx->num_owned - 1] = first;
        ++block->num_owned;
    }
    return value;
}

void
co_set_user(co_context *ctx, void *user)
{
    if (ctx != NULL)
        ctx->user = user;
}

void *
co_user(const co_context *ctx)
{
    return ctx != NULL ? ctx->user : NULL;
}

void
co_get_memory_stats(const co_context *ctx, co_memory_stats *stats)
{
    co_memory_stats all = { sizeof(all), 0, 0, 0, 0 };

    if (stats == NULL)
        return;
    if (ctx != NULL) {
        coi_memory *memory = &ctx->runtime->memory;

        all.bytes_in_use = atomic_load(&memory->bytes_in_use);
        all.peak_bytes = atomic_load(&memory->peak_bytes);
        all.system_allocations = atomic_load(&memory->num_allocations);
        all.live_values = coi_cell_store_live(&ctx->runtime->store);
    }
    if (stats->struct_size < sizeof(all))
        all.struct_size = stats->struct_size;
    memcpy(stats, &all, all.struct_size);
}

void
co_settings_visit(const co_context *ctx, co_setting_fn fn, void *user)
{
    if (ctx != NULL && fn != NULL)
        coi_settings_visit(&ctx->runtime->settings, fn, user);
}
