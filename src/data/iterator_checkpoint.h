/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: an iterator as bytes, and an iterator made from them. One function of each kind, its
 * slot `checkpoint`, goes both ways: it names its fields in order, and each call writes the field
 * or reads it, checked. All numbers are little-endian:
 *
 *     "COHPOS", 0, version | CRC-32C of what follows | examples of the last step, dropped rows |
 *     stage: mark of the pipeline, own fields | its input: mark, own fields | ... |
 *     what datasets of the tree share among their iterators: mark, own fields | ...
 *
 * Whatever the bytes are, reading them is safe: a stage may be destroyed after any of its fields.
 * Functions give false with an error in ctx.
 */
#ifndef COI_DATA_ITERATOR_CHECKPOINT_H
#define COI_DATA_ITERATOR_CHECKPOINT_H

#include "data/dataset.h"

#define COI_MOST_COUNTED (INT64_MAX / 2) /* that counts of elements can be added to */

/* What a dataset keeps for its iterators, and a restored iterator until it is first asked. */
struct coi_shared {
    coi_shared *next;
    co_dataset *dataset; /* a reference */
    int64_t     passes;  /* of a shuffle: how many have begun */
    void       *store;   /* of a cache: all its elements; a reference once it was read */
};

typedef struct coi_prefetcher coi_prefetcher;

struct coi_iterator_checkpoint {
    bool           saves;
    const char    *stage;       /* at work, for messages */
    unsigned char *bytes;       /* saving: what there is so far; else what is to be read */
    size_t         n, capacity; /* restoring: read so far, and all */
    /* Saving: what the iterator itself has not told its datasets, in the order of the walk.
     * Restoring: the place for the next. */
    const coi_shared *untold;
    coi_shared      **end;
    coi_prefetcher   *paused; /* threads that wait until all is saved: one moment for all */
    void            **stores; /* of caches, so far, borrowed: each is in the bytes once */
    size_t            num_stores, stores_capacity;
};

bool coi_checkpoint_number(co_context *ctx, coi_iterator_checkpoint *p, int64_t *number,
                           int64_t least, int64_t most);
bool coi_checkpoint_flag(co_context *ctx, coi_iterator_checkpoint *p, bool *flag);
/* Any bytes, whose number both sides know. */
bool coi_checkpoint_bytes(co_context *ctx, coi_iterator_checkpoint *p, void *bytes, size_t n);
/* An element of `like`: references; all of them are read or none. */
bool coi_checkpoint_leaves(co_context *ctx, coi_iterator_checkpoint *p, const co_dataset *like,
                           co_value **leaves);
/* A dataset that is an element of the spec (window.c); a reference. */
bool coi_checkpoint_window(co_context *ctx, coi_iterator_checkpoint *p, const co_value *spec,
                           co_value **leaf);
/* A tensor or host number of any kind; a reference. */
bool coi_checkpoint_value(co_context *ctx, coi_iterator_checkpoint *p, co_value **value);
/* Elements of `like`, at most `most`. */
bool coi_checkpoint_assembly(co_context *ctx, coi_iterator_checkpoint *p, const co_dataset *like,
                             int64_t most, coi_batch_assembly *pieces);
/* An element of the input that is being cut: `at` of its `rows` rows are gone; no rows, no
 * element. */
bool coi_checkpoint_cut(co_context *ctx, coi_iterator_checkpoint *p, const co_iterator *iterator,
                        co_value **element, int64_t *rows, int64_t *at);
/* An iterator and its input. */
bool coi_checkpoint_iterator(co_context *ctx, coi_iterator_checkpoint *p, co_iterator *iterator);
/* What the datasets of a tree share among their iterators, those that no iterator of the checkpoint
 * has reached included. */
bool coi_checkpoint_shared(co_context *ctx, coi_iterator_checkpoint *p, co_dataset *dataset);
/* A slot for iterators that have nothing but what coi_stage_iterator has. */
bool coi_checkpoint_stage(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p);
/* CO_INVALID_ARGUMENT: what the bytes say of the stage cannot be. Returns false. */
bool coi_checkpoint_wrong(co_context *ctx, const coi_iterator_checkpoint *p, const char *what);

#endif
