/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hooks of custom strategies (custom_strategy.c).
 */
#ifndef COI_STRATEGY_STRATEGY_HOOKS_H
#define COI_STRATEGY_STRATEGY_HOOKS_H

#include <cohort/creator.h>

#include "strategy/strategy.h"

typedef enum coi_hook { COI_HOOK_RUN, COI_HOOK_VARIABLE, COI_HOOK_REDUCE } coi_hook;
/* Hooks that run on a context, innermost first: inside a hook, the call that it wraps goes to the
 * engine. */
typedef struct coi_hook_call {
    struct coi_hook_call *outer;
    const co_strategy    *strategy;
    coi_hook              hook;
    const char           *call;
    co_site_info          site;
    size_t                entries, blocks, floor; /* entries that the hook must not leave */
    const co_creation    *creation;               /* COI_HOOK_VARIABLE: the state of the creation */
} coi_hook_call;

/* The hook of a strategy that runs on ctx; NULL: none does. */
const coi_hook_call *coi_hook_of(const co_context *ctx, const co_strategy *strategy, coi_hook hook);

/* Whether a call goes to a hook of the strategy (NULL: none) and not to the engine. */
bool coi_hook_wanted(const co_context *ctx, const co_strategy *strategy, coi_hook hook);
static inline bool
coi_is_hooked(const co_context *ctx, const co_strategy *strategy, coi_hook hook)
{
    return strategy != NULL && strategy->policy->hooks != NULL &&
           coi_hook_wanted(ctx, strategy, hook);
}
/* Before and after a hook: what it left open is left, and its result checked. Returns a value of
 * the caller's block; NULL with an error. */
void      coi_hook_begin(co_context *ctx, const co_strategy *strategy, coi_hook hook,
                         coi_hook_call *call);
co_value *coi_hook_end(co_context *ctx, coi_hook_call *call, co_value *result);
/* Where component i of a variable of the strategy lives. False with an error of the hook, or for an
 * invalid name. */
bool coi_variable_device(co_context *ctx, co_strategy *strategy, int i, const char *name,
                         coi_device_name *out);
/* Free what a custom strategy keeps. */
void coi_custom_free(co_strategy *strategy);

#endif
