/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are made while a function is captured, and are no part of it. */
#include "function/control_flow.h"
#include "function/graph.h"

uint64_t
coi_init_scope_push(co_context *ctx)
{
    const coi_capture *around = coi_graph_around(ctx);
    co_graph          *graph = around != NULL ? around->graph : NULL;
    uint64_t           id = coi_capture_push(ctx, COI_ENTRY_INIT_SCOPE, graph);

    if (id == 0 || graph == NULL)
        return id;
    graph->capture->after = NULL; /* control dependencies do not hold inside */
    if (ctx->mode.step != NULL)
        ctx->mode = (coi_mode){ .num_replicas = 1, .update_id = -1 }; /* a graph has no steps */
    return id;
}

static co_value *
call(co_context *ctx, co_fn fn, co_value *args, void *user)
{
    size_t    entries = ctx->num_entries, blocks = ctx->num_blocks, floor;
    co_value *result;

    co_block_begin(ctx);
    floor = coi_function_begin(ctx);
    result = ctx->error.code == CO_OK ? fn(ctx, args, user) : NULL;
    coi_function_end(ctx, floor);
    coi_pop_to(ctx, entries);
    if (ctx->error.code == CO_OK && result == NULL)
        result = co_none(ctx);
    else if (ctx->error.code != CO_OK || !coi_check_result(ctx, result, "init_scope", "function"))
        result = NULL;
    if (result != NULL)
        coi_ref(result);
    coi_blocks_unwind(ctx, blocks);
    return result != NULL ? coi_own(ctx, result) : NULL;
}

co_value *
co_init_scope(co_context *ctx, co_fn fn, co_value *args, void *user)
{
    size_t       entries = ctx != NULL ? ctx->num_entries : 0;
    co_site_info site;
    co_value    *result;

    COI_ENTER(ctx, "init_scope", NULL);
    if (!coi_check_body(ctx, fn, 2, "fn") ||
        (args = coi_check_args(ctx, args, 3, "args", true)) == NULL)
        return NULL;
    site = ctx->site;
    if (coi_init_scope_push(ctx) == 0)
        return NULL;
    result = call(ctx, fn, args, user);
    coi_pop_to(ctx, entries);
    if (ctx->error.code == CO_OK)
        coi_copy_site(&ctx->site, &site);
    return result;
}
