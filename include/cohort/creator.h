/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variable creators: functions of yours that stand between co_variable and what it makes, to look
 * at, change or replace variables as code that you did not write makes them.
 *
 *     static co_value *freeze(co_context *ctx, co_creation *next, co_value *initial,
 *                             const co_variable_options *options, void *user)
 *     {
 *         co_variable_options mine = *options;
 *
 *         mine.struct_size = sizeof(mine);
 *         mine.trainable = CO_TRAINABLE_NO;
 *         return co_creator_next(ctx, next, initial, &mine);
 *     }
 *     ...
 *     CO_CREATOR(ctx, freeze, NULL)
 *         build_model(ctx);
 */
#ifndef COHORT_CREATOR_H
#define COHORT_CREATOR_H

#include <cohort/strategy.h>
#include <cohort/variable.h>

CO_EXTERN_C_BEGIN

/** What is left to do of making one variable. Lives until the creator that was given it returns. */
typedef struct co_creation co_creation;

/**
 * Makes a variable, as a rule by calling co_creator_next, once, with the arguments that it was
 * given or with others. `initial` is a tensor, a spec for a variable without a value, or NULL where
 * options->initializer will make it. Returns a variable; fails by recording an error in ctx, which
 * co_variable then passes on unchanged.
 */
typedef co_value *(*co_creator_fn)(co_context *ctx, co_creation *next, co_value *initial,
                                   const co_variable_options *options, void *user);

/**
 * Call `fn` for every variable that this context makes until co_creator_end.
 * Creators nest: the one entered last is called first, and its co_creator_next calls the one
 * before. A creator entered inside a strategy's scope (or in a step, by each replica) is called
 * once per variable, before the strategy places it; one entered outside is called once per
 * component, after that: with the component's name ("w/replica_1"), co_creator_owner being the
 * strategy. Steps of this context find its creators too, called for all replicas by the first.
 *
 * Returns:  a token with id 0 and an error in ctx if it failed: CO_TYPE_ERROR (fn is NULL),
 *           CO_RESOURCE_EXHAUSTED.
 * Rules: VAR-CREATOR-1, SCOPE-9, SET-11.
 */
CO_API co_scope co_creator_begin(co_context *ctx, co_creator_fn fn, void *user);
/** Leave; creators and scopes are left in the reverse order of entering, otherwise CO_RUNTIME_ERROR
 * and nothing changes. A token of co_scope_begin is CO_RUNTIME_ERROR too: co_scope_end ends it. */
CO_API co_code co_creator_end(co_context *ctx, co_scope *scope);
/** A creator's scope as a statement; its body may be left in any way, as that of CO_SCOPE. */
#define CO_CREATOR(ctx, fn, user) CO_STATEMENT_IF(co_statement_creator(ctx, fn, user))
/** For CO_CREATOR. */
CO_API co_statement co_statement_creator(co_context *ctx, co_creator_fn fn, void *user);

/**
 * Make the variable by the next creator, or by the strategy, or, if none is left, as an ordinary
 * variable.
 *
 * Scope:    collective over processes if co_variable is.
 * Context:  the one in which the creator was called; CO_RUNTIME_ERROR if another strategy is
 *           current.
 * Blocks:   as co_variable.
 * Returns:  what co_variable returns.
 * Rules: SCOPE-13.
 */
CO_API co_value *co_creator_next(co_context *ctx, co_creation *next, co_value *initial,
                                 const co_variable_options *options);
/** The strategy that has placed the variable, of which a component is being made; NULL before
 * that. */
CO_API co_strategy *co_creator_owner(co_context *ctx, const co_creation *next);

CO_EXTERN_C_END

#endif
