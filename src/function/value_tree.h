/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as trees: structures, per-replica and mirrored values and composite values are inner
 * nodes, everything else is a leaf.
 */
#ifndef COI_FUNCTION_VALUE_TREE_H
#define COI_FUNCTION_VALUE_TREE_H

#include "context/context.h"

/* Its items or components, borrowed; entries may be NULL in a composite value. A leaf has none. */
coi_values coi_tree_items(const co_value *value);
bool       coi_is_rare_tree(const co_value *value); /* called only by the next */
static inline bool
coi_is_tree(const co_value *value)
{
    return value->kind != CO_KIND_TENSOR && value->kind != CO_KIND_SYMBOLIC &&
           (coi_is_structure(value) || coi_is_rare_tree(value));
}

/* The identity of a variable, dataset, iterator or captured function: the first three are what a
 * call of a program may exchange for another one. As the argument of a function that is being
 * captured it has one of its own. NULL of other values. */
const void *coi_resource_of(const co_value *value);

/* Whether two nodes are alike: kind, number of items, keys. */
bool coi_is_same_node(const co_value *a, const co_value *b);
/* A node of this kind with other items, as many: a value of the block, or NULL with an error. */
co_value *coi_tree_with_items(co_context *ctx, const co_value *like, co_value *const *items,
                              size_t n);

/* The same tree with other leaves: what fn returns for each. NULL of fn is an error. A value of the
 * block, the same one where no leaf changes, or NULL with an error. */
typedef co_value *(*coi_tree_fn)(co_context *ctx, co_value *leaf, void *arg);
co_value *coi_tree_map(co_context *ctx, co_value *value, coi_tree_fn fn, void *arg);

/* Call fn with every leaf, in order, until it returns false; whether all returned true. */
typedef bool (*coi_leaf_test)(const co_value *leaf, void *arg);
bool coi_tree_all(const co_value *value, coi_leaf_test fn, void *arg);

/* Walk two trees at once: fn gets each leaf of `pattern` and what stands in its place, until it
 * returns false. False also where the inner nodes differ: kind, number of items, keys. */
typedef bool (*coi_pair_test)(co_value *leaf, co_value *value, void *arg);
bool coi_tree_pair(co_value *pattern, co_value *value, coi_pair_test fn, void *arg);

#endif
