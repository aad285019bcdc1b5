/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tools for composite operators: axes, tables and small values. How they
 * run is in apply.c.
 */
#ifndef COI_OPS_ENGINE_COMPOSITE_H
#define COI_OPS_ENGINE_COMPOSITE_H

#include "ops/engine/op.h"

/* Shapes that a part of an operator is computed in: everything before an axis, the axis, and
 * everything behind it. */
typedef struct coi_split_shape {
    int64_t outer, n, inner;
} coi_split_shape;
coi_split_shape coi_split_at(const co_value *x, int axis);
/* x as [outer, n, inner]. */
co_value *coi_as_three(co_context *ctx, co_value *x, const coi_split_shape *shape);
/* x as it is but with n elements along an axis: back from [outer, n, inner]. */
co_value *coi_from_three(co_context *ctx, co_value *three, const co_value *like, int axis,
                         int64_t n);

static inline int
coi_axis_of(int64_t axis, int ndim)
{
    return (int)(axis < 0 ? axis + ndim : axis);
}
/* Whether the length of a type along an axis is known. */
bool coi_knows_axis(const co_value *x, int64_t axis);
/* Axes as an operator's attribute, as the two arguments that public reductions take. */
typedef struct coi_axes {
    int        at[CO_MAX_DIMS];
    const int *axes; /* NULL: all */
    size_t     n;
} coi_axes;
void coi_axes_of(const coi_ints *axis, coi_axes *out);

/* x in the opposite order: -x of floats, the complement of integers and bools. */
co_value *coi_reversed_order(co_context *ctx, co_value *x);
/* x / y, and 0 where y is 0. */
co_value *coi_div_no_nan(co_context *ctx, co_value *x, co_value *y);
/* A number as a scalar attribute: a whole one as an integer, which tensors of any dtype take. */
coi_scalar coi_scalar_of(double number);
co_value  *coi_scalar_value(co_context *ctx, const coi_scalar *scalar);
/* The shape of x as a vector: int32, as TensorFlow has it, unless a dimension needs more. */
co_value *coi_shape_tensor(co_context *ctx, const co_value *x);
/* The same where dimensions may be unknown: then an operator finds it. */
co_value *coi_shape_of(co_context *ctx, co_value *x);
/* Room for the parts of a tuple, NULL with an error; and the tuple of them, which gives the room
 * back. */
co_value **coi_parts(co_context *ctx, const char *op, size_t n);
co_value  *coi_tuple_of_parts(co_context *ctx, co_value **parts, size_t n);
void       coi_free_parts(co_context *ctx, co_value **parts, size_t n);

/* A composite operator: name, documentation, names of inputs; more fields may
 * follow. */
#define COI_COMPOSITE(name_, doc_, ...) COI_COMPOSED_TUPLE(1, name_, doc_, __VA_ARGS__)
/* The same with a tuple of n results. */
#define COI_COMPOSED_TUPLE(n_, name_, doc_, ...)                                                   \
    .name = name_, .doc = doc_, .inputs = { __VA_ARGS__ },                                         \
    .num_inputs = sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *), .num_outputs = n_

#endif
