/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing, blocks and ownership. A context owns a stack of references; a block is a
 * mark on it.
 */
#include "base/text.h"
#include "context/context.h"

#include "context/tape.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The counters of memory, from a place that goes to one that stays. */
static void
move_memory(coi_memory *to, coi_memory *from)
{
    coi_memory_init(to, &from->hooks);
    atomic_store(&to->bytes_in_use, atomic_load(&from->bytes_in_use));
    atomic_store(&to->peak_bytes, atomic_load(&from->peak_bytes));
    atomic_store(&to->num_allocations, atomic_load(&from->num_allocations));
}

/* Undo runtime_open from the point it reached. */
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
    move_memory(&memory, &runtime->memory);
    coi_free(&memory, runtime, sizeof(*runtime));
}

/* Everything in order; what fails leaves the runtime closable. */
static co_code
runtime_start(coi_runtime *runtime, const char *settings, co_error_info *err)
{
    if (coi_settings_load(&runtime->settings, settings, err, &runtime->log) != CO_OK)
        return err->code;
    runtime->log.level = runtime->settings.log;
    if (coi_topology_init(&runtime->topology, &runtime->memory, err) != CO_OK)
        return err->code;
    coi_waiting_init(&runtime->waiting, runtime->topology.quota, runtime->settings.spin_us);
    if (coi_isa_choose(runtime->settings.isa, &runtime->isa, err) != CO_OK)
        return err->code;
    return coi_devices_create(&runtime->memory, &runtime->settings, &runtime->topology,
                              &runtime->waiting, &runtime->log, &runtime->devices, err);
}

static coi_runtime *
runtime_new(const co_options *options)
{
    coi_memory   memory;
    coi_runtime *runtime;

    coi_memory_init(&memory, options->allocator);
    runtime = coi_calloc(&memory, sizeof(*runtime));
    if (runtime == NULL)
        return NULL;
    move_memory(&runtime->memory, &memory);
    coi_log_init(&runtime->log, options->log, options->log_user);
    pthread_mutex_init(&runtime->lock, NULL);
    coi_lock_init(&runtime->observing_lock);
    atomic_init(&runtime->refs, 0);
    atomic_init(&runtime->num_opened, 0);
    atomic_init(&runtime->next_epoch, 1);
    atomic_init(&runtime->next_serial, 1);
    runtime->pid = getpid();
    coi_error_reset(&runtime->failure);
    coi_cell_store_init(&runtime->store, &runtime->memory);
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
    ctx->rank = -1;
    ctx->seed = ctx->runtime->settings.seed;
}

co_context *
coi_context_new(coi_runtime *runtime)
{
    co_context *ctx = coi_context_take();

    if (ctx == NULL)
        return NULL;
    coi_error_reset(&ctx->error);
    ctx->runtime = runtime;
    coi_heap_init(&ctx->heap, &runtime->store);
    start_mode(ctx);
    ctx->special = (uint8_t)((runtime->settings.reference_kernels ? COI_SPECIAL_REFERENCE : 0) |
                             (coi_log_on(&runtime->log, CO_LOG_DEBUG) ? COI_SPECIAL_LOG : 0));
    /* A token of one context is none of another's. */
    ctx->next_entry = (uint64_t)atomic_fetch_add(&runtime->next_serial, 1) << 32 | 1;
    coi_repeat_failure(ctx);
    return ctx;
}

/* All that the context has entered or owns. */
static void
let_go(co_context *ctx)
{
    coi_pop_to(ctx, 0);
    coi_blocks_unwind(ctx, 0);
    coi_tape_log_free(ctx);
    while (ctx->num_owned > 0)
        coi_unref(&ctx->heap, ctx->owned[--ctx->num_owned]);
}

/* The permanent record of a closed context: every later call finds this error. */
static void
expire(co_context *ctx)
{
    co_site_info site = ctx->site;
    bool         is_opened = ctx->is_opened;

    memset(ctx, 0, sizeof(*ctx));
    coi_error_reset(&ctx->error);
    if (!is_opened)
        coi_error(
            &ctx->error, CO_RUNTIME_ERROR,
            "this context was given to a step, and its strategy is gone; use the context that "
            "called run");
    else if (site.file != NULL)
        coi_error(&ctx->error, CO_RUNTIME_ERROR,
                  "the context was closed before, by co_close at %s:%d; open another with co_open",
                  site.file, site.line);
    else
        coi_error(&ctx->error, CO_RUNTIME_ERROR,
                  "the context was closed before, by co_close; open another with co_open");
    ctx->error.call = "close";
}

void
coi_context_free(co_context *ctx)
{
    coi_memory *memory = &ctx->runtime->memory;

    let_go(ctx);
    co_clear(ctx);
    coi_heap_destroy(&ctx->heap);
    coi_free(memory, ctx->owned, ctx->cap_owned * sizeof(*ctx->owned));
    coi_free(memory, ctx->blocks, ctx->cap_blocks * sizeof(*ctx->blocks));
    coi_free(memory, ctx->entries, ctx->cap_entries * sizeof(*ctx->entries));
    expire(ctx);
    coi_context_give(ctx);
}

void
coi_runtime_hold(coi_runtime *runtime)
{
    atomic_fetch_add(&runtime->refs, 1);
}

/* A context that the user opened holds its runtime; those of replicas live inside a strategy and do
 * not. */
static co_context *
open_context(coi_runtime *runtime)
{
    co_context *ctx = coi_context_new(runtime);

    if (ctx != NULL) {
        ctx->is_opened = true;
        atomic_fetch_add(&runtime->num_opened, 1);
        coi_runtime_hold(runtime);
    }
    return ctx;
}

void
coi_runtime_release(coi_runtime *runtime)
{
    coi_heap heap;

    if (atomic_fetch_sub(&runtime->refs, 1) != 1)
        return;
    coi_heap_init(&heap, &runtime->store);
    for (int i = 0; i < COI_NUM_EXTENSIONS; ++i)
        for (int k = 0; k < COI_EXTENSION_OBJECTS; ++k)
            coi_unref(&heap, runtime->extensions[i][k]);
    coi_heap_destroy(&heap);
    runtime_free(runtime);
}

/* The caller's options over the defaults. Unusable options are an error of the runtime being
 * opened. */
static co_code
take_open_options(co_options *all, const co_options *options, co_error_info *err)
{
    const co_allocator *allocator;

    if (options == NULL)
        return CO_OK;
    if (options->struct_size < sizeof(options->struct_size))
        return coi_error(err, CO_INVALID_ARGUMENT,
                         "argument 1 (options) of open_with has struct_size %zu; begin with "
                         "CO_OPTIONS_INIT",
                         options->struct_size);
    memcpy(all, options, options->struct_size < sizeof(*all) ? options->struct_size : sizeof(*all));
    allocator = all->allocator;
    if (allocator != NULL && (allocator->alloc == NULL || allocator->free == NULL)) {
        all->allocator = NULL;
        return coi_error(err, CO_INVALID_ARGUMENT,
                         "the allocator of argument 1 (options) of open_with has no %s; give both "
                         "functions",
                         allocator->alloc == NULL ? "alloc" : "free");
    }
    return CO_OK;
}

co_context *
co_open_with(const co_options *options)
{
    co_options    all = CO_OPTIONS_INIT;
    co_error_info err;
    coi_runtime  *runtime;
    co_context   *ctx;

    coi_error_reset(&err);
    take_open_options(&all, options, &err);
    runtime = runtime_new(&all);
    if (runtime == NULL)
        return NULL;
    if (err.code == CO_OK)
        runtime_start(runtime, all.settings, &err);
    runtime->failure = err;
    ctx = open_context(runtime);
    if (ctx == NULL)
        runtime_free(runtime);
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
    if (ctx == NULL || ctx->runtime == NULL)
        return NULL;
    if (coi_is_forked(&ctx->heap)) { /* only then is ctx touched: it may be another thread's */
        ctx->call = "open_beside";
        coi_check_owner_process(ctx);
        return NULL;
    }
    return open_context(ctx->runtime);
}

/* "step.c:41: matmul: message (replica 1) [CO_INVALID_ARGUMENT]" */
static void
report(co_context *ctx)
{
    const co_error_info *err = &ctx->error;
    char                 where[300] = "", replica[32] = "", rank[32] = "";

    if (err->file != NULL)
        snprintf(where, sizeof(where), "%s:%d: ", coi_path_end(err->file, 250), err->line);
    if (err->replica >= 0)
        snprintf(replica, sizeof(replica), " (replica %d)", err->replica);
    if (err->rank >= 0)
        snprintf(rank, sizeof(rank), " (rank %d)", err->rank);
    coi_log_line(&ctx->runtime->log, CO_LOG_ERROR, "%s%s: %s%s%s [%s]", where, err->call,
                 err->message, replica, rank, co_code_name(err->code));
}

/* Only contexts that the user opened may be closed, and not while they are in use. */
static bool
may_close(co_context *ctx)
{
    if (ctx->runtime == NULL || ctx->lent != NULL) /* the error is there */
        return false;
    if (!ctx->is_opened) {
        ctx->call = "close";
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "a replica's context is closed by its strategy, not by the step that runs in it");
        return false;
    }
#ifdef COI_DEBUG
    /* The thread that is inside a call finds that another one was here. */
    if (coi_is_intruder(ctx)) {
        atomic_store(&ctx->intruded, true);
        return false;
    }
#endif
    if (ctx->num_functions > 0) {
        ctx->call = "close";
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "the context is in use by the call that this function was called from; close it "
                 "after that has returned");
        return false;
    }
    return true;
}

/*
 * With the last context goes the last chance to release what is kept. Its owner forgot it; the
 * threads of a strategy must not outlive the runtime.
 */
static void
release_kept(co_context *ctx)
{
    coi_kept oldest;
    size_t   n = coi_keeps_count(&ctx->heap, &oldest);
    char     where[300] = "";

    if (n == 0)
        return;
    if (oldest.site.file != NULL)
        snprintf(where, sizeof(where), ", kept at %s:%d", coi_path_end(oldest.site.file, 250),
                 oldest.site.line);
    coi_log_line(&ctx->runtime->log, CO_LOG_WARNING,
                 "%zu handle%s still kept when the last context closes (the first: %s%s); co_close "
                 "releases %s; call co_release once for each co_keep",
                 n, n == 1 ? " is" : "s are", ((const coi_object *)oldest.object)->cls->name, where,
                 n == 1 ? "it" : "them");
    coi_keeps_release(&ctx->heap);
}

co_code
co_close(co_context *ctx)
{
    coi_runtime *runtime;
    co_code      code;

    if (ctx == NULL)
        return CO_OK;
    if (!may_close(ctx))
        return CO_RUNTIME_ERROR;
    runtime = ctx->runtime;
    code = ctx->error.code;
    /* A forked child frees nothing: its memory is a copy, parts of which may be locked forever. */
    if (coi_is_forked(&ctx->heap))
        return code;
    let_go(ctx);
    coi_admit_misuse(ctx);
    if (atomic_fetch_sub(&runtime->num_opened, 1) == 1)
        release_kept(ctx);
    code = ctx->error.code;
    if (code != CO_OK && !ctx->failure_is_seen)
        report(ctx);
    coi_context_free(ctx);
    coi_runtime_release(runtime);
    return code;
}

bool
coi_make_room_to_own(co_context *ctx, void *object)
{
    if (coi_grow(&ctx->runtime->memory, (void **)&ctx->owned, &ctx->cap_owned, ctx->num_owned + 1,
                 sizeof(*ctx->owned)))
        return true;
    coi_unref(&ctx->heap, object);
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to own one more handle (%zu are alive)",
             ctx->num_owned);
    return false;
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

static void
no_memory_for_block(co_context *ctx)
{
    ctx->call = "block_begin";
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for block %zu", ctx->num_blocks + 1);
}

/*
 * Blocks begin and end even while there is an error, so that every end finds its begin. Many calls
 * contain blocks, and errors name the call: a block names itself only where it fails.
 */
void
co_block_begin(co_context *ctx)
{
    COI_GUARD(ctx, );
    if (ctx->unmarked_blocks > 0)
        no_memory_for_block(ctx);
    if (ctx->unmarked_blocks > 0 || coi_push_block(ctx) == NULL)
        ++ctx->unmarked_blocks;
}

bool
coi_make_room_for_block(co_context *ctx)
{
    if (coi_grow(&ctx->runtime->memory, (void **)&ctx->blocks, &ctx->cap_blocks,
                 ctx->num_blocks + 1, sizeof(*ctx->blocks)))
        return true;
    no_memory_for_block(ctx);
    return false;
}

/* Release what the block at `at`, the innermost one or the last that was, owns. */
static inline void
release_block(co_context *ctx, size_t at)
{
    size_t num_owned = ctx->blocks[at].num_owned;

    if (coi_is_forked(&ctx->heap)) { /* the locks needed to free may be held forever */
        ctx->num_owned = num_owned;
        return;
    }
    if (ctx->tapes != NULL)
        coi_tapes_leave(ctx, at);
    /* Youngest first, so that a value is released before the values it was made from. */
    while (ctx->num_owned > num_owned)
        coi_unref(&ctx->heap, ctx->owned[--ctx->num_owned]);
}

void
coi_pop_block(co_context *ctx)
{
    release_block(ctx, --ctx->num_blocks);
}

void
coi_empty_block(co_context *ctx)
{
    release_block(ctx, ctx->num_blocks - 1);
}

void
co_block_end(co_context *ctx)
{
    size_t at;

    COI_GUARD(ctx, );
    if (ctx->unmarked_blocks > 0) {
        --ctx->unmarked_blocks;
        return;
    }
    /* Blocks of macros above it were left by goto or return: they end with it. */
    at = ctx->num_blocks;
    while (at > ctx->block_floor && ctx->blocks[at - 1].id != 0)
        --at;
    if (at > ctx->block_floor) {
        coi_end_block(ctx, at);
        return;
    }
    ctx->call = "block_end";
    coi_fail(ctx, CO_RUNTIME_ERROR,
             "there is no open block to end; call co_block_begin first, in the same function");
}

void
coi_blocks_unwind(co_context *ctx, size_t depth)
{
    ctx->unmarked_blocks = 0;
    while (ctx->num_blocks > depth) {
        if (ctx->blocks[ctx->num_blocks - 1].id != 0)
            coi_say_left_block(ctx);
        coi_pop_block(ctx);
    }
}

static bool
check_handle(co_context *ctx, const void *handle)
{
    const coi_object *object = handle;

    if (object != NULL && object->magic == *ctx->heap.magic)
        return true;
    if (object == NULL)
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (handle) of %s is NULL", ctx->call);
    else if (coi_check_owner_process(ctx))
        coi_fail(
            ctx, CO_INVALID_ARGUMENT,
            "argument 2 (handle) of %s is not a live handle of this runtime: its block has ended, it was "
            "released, or it is another runtime's; call co_%s before that",
            ctx->call, ctx->call);
    return false;
}

void
co_keep(co_context *ctx, const void *handle)
{
    COI_ENTER(ctx, "keep", );
    if (check_handle(ctx, handle) && !coi_keep(&ctx->heap, (void *)(uintptr_t)handle, &ctx->site))
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to keep one more handle");
}

void
co_release(co_context *ctx, const void *handle)
{
    const coi_class *cls;

    COI_ENTER_ALWAYS(ctx, "release", );
    if (handle == NULL || !check_handle(ctx, handle) ||
        coi_release(&ctx->heap, (void *)(uintptr_t)handle))
        return;
    cls = ((const coi_object *)handle)->cls;
    coi_fail(ctx, CO_RUNTIME_ERROR,
             "argument 2 (handle) of release is %s %s that is not kept, or not any more; call "
             "co_release once for each co_keep, and leave to its block what was never kept",
             coi_article(cls), cls->name);
}

co_value *
co_escape(co_context *ctx, co_value *value)
{
    coi_block  *block;
    coi_object *first;

    COI_ENTER(ctx, "escape", NULL);
    if (!coi_check_value(ctx, value, 2, "value"))
        return NULL;
    if (ctx->num_blocks <= ctx->block_floor)
        return value; /* it lives until the context closes, or the function that it is lent to ends
                       */
    coi_ref(value);
    if (coi_own(ctx, value) == NULL)
        return NULL;
    /* The new reference goes to the bottom of the block and the block begins above it. */
    block = &ctx->blocks[ctx->num_blocks - 1];
    first = ctx->owned[block->num_owned];
    ctx->owned[block->num_owned++] = &value->object;
    ctx->owned[ctx->num_owned - 1] = first;
    return value;
}

void
co_set_user(co_context *ctx, void *user)
{
    if (coi_is_usable(ctx))
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
    co_memory_stats all = CO_MEMORY_STATS_INIT;

    if (stats == NULL)
        return;
    if (ctx != NULL && ctx->runtime != NULL) {
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
    co_context *visited = (co_context *)(uintptr_t)ctx; /* the visitor may not close it */
    size_t      floor;

    if (ctx == NULL || ctx->runtime == NULL || fn == NULL)
        return;
    floor = coi_function_begin(visited);
    coi_settings_visit(&ctx->runtime->settings, fn, user);
    coi_function_end(visited, floor);
}
