/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses. What one loss is, its names, options and formula, is one coi_loss_rule; everything else
 * is common:
 *
 *     loss_functions.c    the table of rules and their formulas
 *     loss_options.c      making a loss, options, names
 *     loss_call.c         casts, ranks, mask, weights, reduction
 *     average_loss.c      means over the examples of a step
 *     class_weights.c     sample weights from weights of classes
 *
 * To add one: its kind in include/cohort/losses.h, its formula and its row in loss_functions.c, a
 * row in tests/unit/losses.c.
 */
#ifndef COI_TRAIN_LOSS_H
#define COI_TRAIN_LOSS_H

#include <cohort/losses.h>

#include "context/context.h"

#define COI_EPSILON   1e-7 /* of Keras */
#define COI_LOSS_NAME 128

/* Options that not every loss has: a bit each. */
enum {
    COI_LOSS_FROM_LOGITS = 1,
    COI_LOSS_LABEL_SMOOTHING = 2,
    COI_LOSS_AXIS = 4,
    COI_LOSS_DELTA = 8,
    COI_LOSS_ALPHA = 16,
    COI_LOSS_GAMMA = 32,
    COI_LOSS_CLASS_BALANCING = 64,
    COI_LOSS_IGNORE_CLASS = 128
};

/* Values of the examples, and which of them are valid by the loss itself; NULL: all. */
typedef struct coi_loss_values {
    co_value *values;
    co_value *mask;
} coi_loss_values;

/* What the shapes of y_true and y_pred must be to each other. */
typedef enum coi_loss_shapes {
    COI_LOSS_BROADCAST,
    COI_LOSS_EQUAL,
    COI_LOSS_IDS, /* y_true has ids: its integers stay, and its shape is that of y_pred but for the
                   * classes */
    COI_LOSS_ANY  /* the function of the user decides */
} coi_loss_shapes;

typedef struct coi_loss_rule {
    const char     *class_name, *function_name;
    const char     *name; /* of an instance; NULL: function_name */
    const char     *aliases[2];
    unsigned        options; /* bits of those it has */
    coi_loss_shapes shapes;
    /* The formula, of two tensors (or symbolic ones) of the dtype of the loss, of ranks that match
     * and shapes that fit; ids may be int64. */
    co_value *(*values)(co_context *ctx, const co_loss_options *options, co_value *y_true,
                        co_value *y_pred);
} coi_loss_rule;

/* By co_loss_kind; the last is that of co_loss_of. */
extern const coi_loss_rule coi_loss_rules[CO_LOSS_OWN + 1];

struct co_loss {
    coi_object           object;
    const coi_loss_rule *rule;
    co_loss_options      options; /* options.name is `name` */
    co_loss_fn           fn;
    void                *user;
    char                 name[COI_LOSS_NAME];
};

extern const coi_class coi_loss_class;

/* --- loss_functions.c --- */

/* The formula of the sparse cross entropy, which has a mask of its own. */
void coi_loss_of_ids(co_context *ctx, const co_loss_options *options, co_value *y_true,
                     co_value *y_pred, coi_loss_values *out);

/* --- loss_call.c --- */

/* The tensor, or symbolic tensor, that a value is where ctx runs, of a dtype; CO_DTYPE_NONE: of its
 * own. A rank that is not known, or an operand that has none, is an error that names it. */
co_value *coi_loss_operand(co_context *ctx, co_value *value, co_dtype dtype, const char *name);
/* Its last dimension; -1: not known. */
int64_t coi_last_dim(const co_value *x);
/* The last dimension put in, or taken out. */
co_value *coi_add_last_dim(co_context *ctx, co_value *x);
co_value *coi_drop_last_dim(co_context *ctx, co_value *x);
static inline bool
coi_is_given(const co_value *value)
{
    return value != NULL && value->kind != CO_KIND_NONE;
}

/* --- average_loss.c --- */

/*
 * This replica's share of the mean of values, a tensor or a symbolic one: their sum over the number
 * of those of the step. They count by rows, or each for itself.
 */
co_value *coi_average(co_context *ctx, co_value *values, bool by_value);

#endif
