/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of programs.
 *
 *     checkpoint.c           opening, adding, closing
 *     checkpoint_places.c    what was added, as named tensors: places
 *     checkpoint_save.c      places to a file, on a thread
 *     checkpoint_restore.c   a file to places
 *     checkpoint_agree.c     errors of one process, on all of them
 *     checkpoint_folder.c    the files of a folder, and which of them stay
 *     checkpoint_index.c     the index of a folder, as text
 *
 * A state is what the user added: a structure of variables, an optimizer, an iterator. A place is
 * one tensor of it, with its name. Places are listed anew each time, because optimizers and metrics
 * get variables as they go.
 */
#ifndef COI_CHECKPOINT_CHECKPOINT_H
#define COI_CHECKPOINT_CHECKPOINT_H

#include <cohort/checkpoint.h>

#include "base/threads.h"
#include "checkpoint/checkpoint_index.h"
#include "context/context.h"
#include "io/file_writer.h"

typedef struct coi_state coi_state;

/* --- checkpoint_places.c --- */

/* A tensor of a checkpoint. */
typedef struct coi_place {
    char     *name; /* of the memory of the list */
    size_t    name_bytes;
    co_value *variable;    /* it is the value of this variable, a reference; NULL: another's */
    bool      is_parts;    /* of the components on all replicas, one behind the other */
    bool      is_bytes;    /* of any length: uint8 */
    bool      is_optional; /* a checkpoint without it is as good */
    int       workers;     /* it is an iterator's: of so many processes; 0: it is none */
    size_t    base;        /* of an iterator's: the length of the name without the process */
    co_dtype  dtype;       /* else: the type it has to have */
    int       ndim;
    int64_t   dims[CO_MAX_DIMS];
    co_value *tensor; /* a reference: saving, what it holds; restoring, what was read. NULL: none */
} coi_place;

typedef struct coi_places {
    coi_memory *memory;
    coi_place  *at;
    size_t      n, capacity;
} coi_places;

void coi_places_free(coi_heap *heap, coi_places *places);

struct coi_tensor_file;

typedef struct coi_state_kind {
    /* Before saving: what can fail on this process alone, into state->taken. NULL: nothing can. */
    bool (*take)(co_context *ctx, coi_state *state);
    /* Look what a file has, before places are listed to restore it; NULL: no need. */
    bool (*meet)(co_context *ctx, coi_state *state, const struct coi_tensor_file *file);
    /* Put the places of a state in the list, with their tensors if `saves`. False with an error. */
    bool (*list)(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state, bool saves,
                 coi_places *places);
    /* Find errors of what was read before anything changes, and prepare; NULL: there are none. */
    bool (*prepare)(co_context *ctx, co_checkpoint *checkpoint, coi_state *state, coi_place *places,
                    size_t n);
    /* What was read takes its place. False with an error. */
    bool (*put)(co_context *ctx, const co_checkpoint *checkpoint, coi_state *state,
                coi_place *places, size_t n);
} coi_state_kind;

extern const coi_state_kind coi_saved_variables, coi_saved_optimizer, coi_saved_metric,
    coi_saved_iterator, coi_saved_counter, coi_saved_user, coi_saved_random;

struct coi_state {
    coi_state            *next;
    const coi_state_kind *kind;
    char                 *name;
    size_t                name_bytes;
    size_t                first, end; /* its places in the list at work */
    co_value             *variables;  /* a structure; a reference */
    co_optimizer         *optimizer;  /* references */
    co_metric            *metric;
    co_dataset           *dataset;
    co_iterator         **iterator;         /* the user's place */
    co_iterator       *prepared, *restored; /* what is to be put there, and what was; references */
    int64_t           *counter;             /* the user's */
    co_checkpoint_user user;
    co_value          *taken; /* what is saved of it, bytes; a reference, while it is listed */
};

/* What the processes do not need each other for, before coi_places_list with `saves`. */
bool coi_states_take(co_context *ctx, co_checkpoint *checkpoint);
/* All places of a checkpoint. False with an error. */
bool coi_places_list(co_context *ctx, co_checkpoint *checkpoint, bool saves, coi_places *places);

/* --- checkpoint_agree.c: of several processes each calls these; of one they do nothing --- */

/* The error of the first process that has one, CO_OK if none has. The own error stays. False: the
 * processes did not come together, with an error. */
bool coi_checkpoint_verdict(co_context *ctx, const co_checkpoint *checkpoint, const char *text,
                            co_code *code);
/* After a verdict that is an error: who has none gets it. Returns false. */
bool coi_checkpoint_spread(co_context *ctx, const co_checkpoint *checkpoint, const char *text);
/* Both: whether no process has an error; else all have one. `text` says what they are doing. */
bool coi_checkpoint_agree(co_context *ctx, const co_checkpoint *checkpoint, const char *text);
/* *number becomes that of the first process. The own error stays. */
bool coi_checkpoint_first(co_context *ctx, const co_checkpoint *checkpoint, const char *text,
                          int64_t *number);

/* --- checkpoint_folder.c --- */

typedef struct coi_checkpoint_folder {
    coi_memory           *memory;
    coi_log              *log;
    char                 *path;
    size_t                path_bytes;
    int                   lock;     /* of the file `lock`; -1: it does not write */
    bool                  is_other; /* the first process writes, and this is another one */
    co_checkpoint_options options;
    coi_checkpoint_index  index;
} coi_checkpoint_folder;

co_code coi_folder_open(coi_checkpoint_folder *folder, const char *path, co_error_info *err);
void    coi_folder_close(coi_checkpoint_folder *folder);
/* Look again at what is there: for readers, whose folder others change. */
co_code coi_folder_look(coi_checkpoint_folder *folder, co_error_info *err);
/* The path of a file of the folder; the caller frees *nbytes. NULL without memory. */
char *coi_folder_path(const coi_checkpoint_folder *folder, const char *name, size_t *nbytes);
/* Begin a file of the folder, in the place of a regular one or none: a pipe would hold the writer.
 */
co_code coi_folder_begin(coi_checkpoint_folder *folder, const char *path, coi_file_writer *writer,
                         co_error_info *err);
/* A checkpoint has its final name: put it in the index, and delete those that are too many. */
co_code coi_folder_add(coi_checkpoint_folder *folder, const coi_saved *saved, co_error_info *err);

/* --- checkpoint_save.c --- */

typedef struct coi_save_job coi_save_job;
#define COI_CHECKSUM_OF "crc32c." /* begins the key of metadata for a tensor */
/* Wait for the checkpoint that is being written; what went wrong is in checkpoint->failure. */
void coi_save_join(co_checkpoint *checkpoint);

/* --- checkpoint_restore.c --- */

/* What became of the names at the last restore. */
typedef enum coi_fate {
    COI_RESTORED,
    COI_MISSING,
    COI_UNUSED,
    COI_DIFFERENT,
    COI_NUM_FATES
} coi_fate;
typedef struct coi_fated {
    char    *text;
    size_t   nbytes;
    coi_fate fate;
} coi_fated;
typedef struct coi_report {
    coi_fated *at;
    size_t     n, capacity;
} coi_report;
void coi_report_clear(coi_memory *memory, coi_report *report);
/* What was noted as restored is not: `text` says why. */
bool coi_report_differs(co_context *ctx, co_checkpoint *checkpoint, const char *name,
                        const char *text);

/* --- checkpoint.c --- */

struct co_checkpoint {
    coi_object            object;
    coi_runtime          *runtime;
    co_strategy          *strategy; /* a reference; NULL: none */
    coi_checkpoint_folder folder;
    bool                  is_closed;
    coi_state            *states, **last_state;
    coi_save_job         *job; /* that is being written, or has been; NULL: none */
    size_t                job_places;
    co_error_info         failure; /* of one that could not be written, and nobody was told yet */
    int64_t               failed_step;
    int64_t               restored; /* -1: none */
    coi_report            report;
};

/* Whether argument 2 is an open checkpoint, and ctx is where it can be used. */
bool coi_check_checkpoint(co_context *ctx, const co_checkpoint *checkpoint);
/* Whether anything was added. */
bool coi_check_states(co_context *ctx, const co_checkpoint *checkpoint);
/* How many processes the program has, and which this one is. */
int coi_checkpoint_workers(const co_checkpoint *checkpoint);
int coi_checkpoint_worker(const co_checkpoint *checkpoint);
/* Tell of a checkpoint that was not written: CO_OK, or its error in ctx. */
co_code coi_tell_failure(co_context *ctx, co_checkpoint *checkpoint);

#endif
