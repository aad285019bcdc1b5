/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of a folder of checkpoints: which there are, and what decides how long they stay. It is
 * a text file, written anew with every checkpoint:
 *
 *     cohort checkpoints 1
 *     step 100 bytes 33554432 value 3fd0000000000000
 *     step 200 bytes 33554432
 *     crc32c 8c1dfa03
 *
 * A value is the bits of a double. Names of files are made of the numbers, so that an index cannot
 * name a file elsewhere. The checkpoints themselves are complete without it: where it is missing or
 * damaged, it is made again from the names in the folder.
 */
#ifndef COI_CHECKPOINT_CHECKPOINT_INDEX_H
#define COI_CHECKPOINT_CHECKPOINT_INDEX_H

#include <cohort/checkpoint.h>

#include "base/error.h"
#include "base/memory.h"

/* A checkpoint of the folder. */
typedef struct coi_saved {
    int64_t  step;
    uint64_t nbytes;
    double   value; /* NaN: it has none */
} coi_saved;

typedef struct coi_checkpoint_index {
    coi_memory *memory;
    coi_saved  *at; /* by step, ascending */
    size_t      n, capacity;
} coi_checkpoint_index;

void coi_index_free(coi_checkpoint_index *index);
/* Put a checkpoint in, in the place of the one with its number. False without memory. */
bool coi_index_put(coi_checkpoint_index *index, const coi_saved *saved);
void coi_index_remove(coi_checkpoint_index *index, int64_t step);
/* The one with this number; NULL: there is none. */
const coi_saved *coi_index_find(const coi_checkpoint_index *index, int64_t step);
/* The one with the best value; the later of two that are equal. NULL: none has a value. */
const coi_saved *coi_index_best(const coi_checkpoint_index *index, co_better better);
/* The first one that is neither among the keep_last last nor among the keep_best best, nor
 * `newest`, which was just written; NULL: all stay. */
const coi_saved *coi_index_surplus(const coi_checkpoint_index  *index,
                                   const co_checkpoint_options *options, int64_t newest);

/* Any bytes: CO_DATA_LOSS, naming the line, for what is no index. The index is empty then. */
co_code coi_index_parse(coi_checkpoint_index *index, const char *text, size_t n,
                        co_error_info *err);
/* The text, of *n bytes; the caller frees coi_index_room of them. NULL without memory. */
char  *coi_index_text(const coi_checkpoint_index *index, size_t *n);
size_t coi_index_room(const coi_checkpoint_index *index);

/* The number in the name of a checkpoint's file, "step-100.safetensors"; -1: it is none. */
int64_t coi_step_of_name(const char *name);
/* The name of the file of a checkpoint; out has room for COI_CHECKPOINT_NAME. */
#define COI_CHECKPOINT_NAME 48
void coi_name_of_step(int64_t step, char *out);

#endif
