/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ordinary variables: a slot on one device that holds an immutable tensor. Assigning puts another
 * tensor in; reading hands out the one that is there, so a read costs no copy and never changes
 * afterwards. Each operation is atomic.
 */
#ifndef COI_VARIABLE_VARIABLE_H
#define COI_VARIABLE_VARIABLE_H

#include <cohort/variable.h>

#include "ops/engine/execute.h"

/* What an assignment does. From COI_SCATTER_UPDATE on the value is indexed slices. */
typedef enum coi_verb {
    COI_ASSIGN = 0,
    COI_ASSIGN_ADD,
    COI_ASSIGN_SUB,
    COI_SCATTER_UPDATE,
    COI_SCATTER_ADD,
    COI_SCATTER_SUB,
    COI_SCATTER_MUL,
    COI_SCATTER_DIV,
    COI_SCATTER_MIN,
    COI_SCATTER_MAX
} coi_verb;

/* What is common to all variables of one call of co_variable. */
typedef struct coi_variable_spec {
    const char        *name;
    bool               trainable;
    co_synchronization synchronization;
    co_aggregation     aggregation;
    co_strategy       *strategy;
    co_site_info       made_at;
} coi_variable_spec;

/* Fill the common part; the name is copied. False (with an error) without memory. */
bool coi_variable_init(co_context *ctx, coi_variable *variable, const coi_variable_ops *ops,
                       const coi_variable_spec *spec, co_dtype dtype, const int64_t *dims,
                       int ndim);
void coi_variable_clear(coi_heap *heap, coi_variable *variable);
/* An ordinary variable on `device` holding `initial`, a tensor, or nothing yet where that is a
 * spec: a reference, or NULL with an error. */
co_value *coi_plain_variable(co_context *ctx, const coi_variable_spec *spec,
                             const coi_device_name *device, co_value *initial);
/* The value of a tensor or number for assignment: of the variable's dtype and shape (CO_VALUE_ERROR
 * otherwise, VAR-MIR-7, VAR-MIR-11). A reference. */
co_value *coi_assignable(co_context *ctx, const coi_variable *variable, co_value *value);
/* Put tensors of the right dtype and shape into n ordinary variables, or into none of them. verb as
 * above; `fresh` receives references to the new values. False with an error. */
bool coi_plain_update(co_context *ctx, co_value *const *variables, size_t n, int verb,
                      co_value *const *tensors, co_value **fresh);
/* Where an ordinary variable keeps its tensor (NULL: it has none yet), locked until
 * coi_plain_unlock, which puts another there (a reference) or, with NULL, leaves the one that is.
 */
co_value **coi_plain_lock(co_value *variable);
co_value **coi_plain_locked(
    co_value *variable); /* the same for a caller that has the lock already */
void coi_plain_unlock(co_context *ctx, co_value *variable, co_value *tensor);

/* What the entries assign_variable, scatter_add_variable and their like work on: n ordinary
 * variables, all of which change or none. */
typedef struct coi_assignment {
    coi_effect       effect;
    co_value *const *variables;
    size_t           n;
    int              verb;
    co_value *const *values; /* tensors or slices */
    co_value       **fresh;  /* receives references */
} coi_assignment;
/* Run such an entry. False with an error. */
bool coi_execute_assignment(co_context *ctx, const coi_op *op, coi_assignment *assignment);
/* Whether an ordinary variable has a value. */
bool coi_plain_has_value(co_value *variable);
/* A first value for an ordinary variable that has none yet, on its device: `number` everywhere, or
 * a tensor of its dtype and shape that is not NULL. Others stay as they are. False with an error.
 */
bool coi_plain_fill(co_context *ctx, co_value *variable, double number, co_value *tensor);
/* Where an ordinary variable lives. */
const coi_device_name *coi_plain_device(co_value *variable);

/* scatter.c */
/* Whether slices can be applied to the rows of a variable: kind, dtype, shape, indices
 * (CO_TYPE_ERROR, CO_INVALID_ARGUMENT). */
bool coi_check_slices(co_context *ctx, const coi_variable *variable, int verb,
                      const co_value *slices);
/* Apply checked slices to n ordinary variables, or to none of them; `fresh` receives references to
 * the new values. False with an error. */
bool coi_plain_scatter(co_context *ctx, co_value *const *variables, size_t n, int verb,
                       co_value *const *slices, co_value **fresh);

/* A variable in a message: name, where it was made, its strategy and the current one; never its
 * contents. Returns out. */
#define COI_VARIABLE_TEXT 480
const char *coi_variable_text(const co_context *ctx, const coi_variable *variable,
                              char out[COI_VARIABLE_TEXT]);
/* CO_FAILED_PRECONDITION: it has no value yet. */
void coi_fail_uninitialized(co_context *ctx, const coi_variable *variable);

/* Checks that `value` is a variable, argument `position`. */
bool coi_check_variable(co_context *ctx, const co_value *value, int position);

#endif
