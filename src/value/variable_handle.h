/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a variable is to the folders above it: a handle whose policy answers. The policies are in
 * variable/ (ordinary) and strategy/ (mirrored, sync on read).
 */
#ifndef COI_VALUE_VARIABLE_HANDLE_H
#define COI_VALUE_VARIABLE_HANDLE_H

#include "value/kind.h"

typedef struct coi_variable_ops {
    const char *name; /* "Variable", "MirroredVariable", "SyncOnReadVariable" */
    /* The value as ctx reads it: a new reference, NULL with an error in ctx. */
    co_value *(*read)(co_context *ctx, co_value *variable);
    /* verb: a coi_verb. A new reference to what the caller sees, or NULL with an error. */
    co_value *(*assign)(co_context *ctx, co_value *variable, int verb, co_value *value);
    /* The device ctx sees it on. */
    const char *(*device)(co_context *ctx, co_value *variable);
    void (*destroy)(coi_heap *heap, coi_variable *variable);
    /* The tensor that it has now, to look at: a new reference, NULL where it has none or several.
     */
    co_value *(*peek)(const co_value *variable);
    /* The type of what assign gives ctx, for captured functions: a value of the block, NULL with an
     * error. NULL: the type of the variable. */
    co_value *(*assigned)(co_context *ctx, co_value *variable, int verb);
} coi_variable_ops;

struct coi_variable {
    const coi_variable_ops *ops;
    co_strategy            *strategy; /* owner, a reference; NULL: none */
    uint8_t                 dtype;
    bool                    trainable;
    uint8_t                 synchronization, aggregation;
    coi_shape               shape;
    char                   *name;
    size_t                  name_size; /* of its block */
    co_site_info            made_at;
    _Atomic(co_value *)
               container;      /* distributed variable that this is a component of; no reference */
    size_t     num_components; /* 1 for ordinary ones */
    co_value **components;     /* distributed: ordinary variables, one per local replica */
};

/*
 * cell.c: a component does not keep its container alive, and any thread may release that. The way
 * from a component to its container gives a reference, or NULL if there is no container (any more).
 */
co_value *coi_container_of(coi_heap *heap, const co_value *component);
/* Let a variable be a component; false: it is one of another already. */
bool coi_container_join(coi_heap *heap, co_value *container, co_value *component);
/* A snapshot, which may be out of date. */
static inline bool
coi_is_component(const coi_variable *variable)
{
    return atomic_load_explicit(&variable->container, memory_order_relaxed) != NULL;
}

/*
 * While a function is captured, a variable that is its argument has another handle there: the
 * function may know the variable by other ways too, and only what it does with its argument is done
 * with the variable that a later call brings. This is the variable that every handle is of.
 */
static inline co_value *
coi_variable_itself(co_value *value)
{
    return (value->flags & COI_FLAG_ARGUMENT) != 0 ? value->u.argument : value;
}

/* Whether a value is a variable with a component for each replica. */
static inline bool
coi_is_distributed_variable(const co_value *value)
{
    return coi_is_variable(value) && value->u.variable->components != NULL;
}

#endif
