/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ordinary variables: a slot on one device that holds an immutable tensor. Assigning puts another tensor in; reading hands out the
 * one that is there, so a read costs no copy and never changes afterwards. Each operation is atomic.
 */
#ifndef COI_VARIABLE_VARIABLE_H
#define COI_VARIABLE_VARIABLE_H

#include <cohort/variable.h>

#include "context/context.h"

enum { COI_ASSIGN = 0, COI_ASSIGN_ADD = 1, COI_ASSIGN_SUB = 2 };

/* What is common to all variables of one call of co_variable. */
typedef struct coi_variable_spec {
    const char        *name;
    bool               trainable;
    co_synchronization synchronization;
    co_aggregation     aggregation;
    co_strategy       *strategy;
} coi_variable_spec;

/* Fill the common part; the name is copied. False (with an error) without memory. */
bool coi_variable_init(co_context *ctx, coi_variable *variable, const coi_variable_ops *ops,
                       const coi_variable_spec *spec, const co_value *initial);
void coi_variable_clear(coi_heap *heap, coi_variable *variable);
/* An ordinary variable on `device` holding `initial` (a tensor): a reference, or NULL with an error. */
co_value *coi_plain_variable(co_context *ctx, const coi_variable_spec *spec,
                             const coi_device_name *device, co_value *initial);
/* The value of a tensor or number for assignment: of the variable's dtype and shape (CO_VALUE otherwise, VAR-MIR-7, VAR-MIR-11). A
 * reference. */
co_value *coi_assignable(co_context *ctx, const coi_variable *variable, co_value *value);
/* Put tensors of the right dtype and shape into n ordinary variables, or into none of them. verb as above; `fresh` receives
 * references to the new values. False with an error. */
bool coi_plain_update(co_context *ctx, co_value *const *variables, size_t n, int verb,
                      co_value *const *tensors, co_value **fresh);
/* The slot of an ordinary variable for in-place work by optimizers: takes the tensor out (a reference), coi_plain_put gives one back.
 * The lock is held between the two. */
co_value *coi_plain_take(co_value *variable);
void      coi_plain_put(co_value *variable, co_value *tensor);

/* Checks that `value` is a variable, argument `position`. */
bool coi_check_variable(co_context *ctx, co_value *value, int position);

#endif
