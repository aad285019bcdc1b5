/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets and iterators as the library sees them. A dataset is an immutable node of a pipeline;
 * its kind is a const table of functions. To add a source or a transformation: one file with its
 * table and its public function.
 *
 *     take -> batch -> slices        the dataset that the user holds, its input, the input's input
 *      |        |         |
 *      it ----> it -----> it         iterators mirror the chain and hold that of their input
 *
 * Elements are passed flat, as an array with one reference per leaf; only co_next packs them into
 * the structure of the spec. All data is on the host's CPU:0 until distribution places it.
 */
#ifndef COI_DATA_DATASET_H
#define COI_DATA_DATASET_H

#include <cohort/dataset.h>

#include "base/text.h"
#include "context/context.h"

typedef struct coi_dataset_ops         coi_dataset_ops;
typedef struct coi_iterator_checkpoint coi_iterator_checkpoint; /* data/iterator_checkpoint.h */
typedef struct coi_shared              coi_shared;

/* Longer chains are rejected, so that code can recurse over them; larger trees are rejected, so
 * that a traversal ends: one branch may be in another many times. */
#define COI_MAX_PIPELINE 500
#define COI_MAX_STEPS    100000

#define COI_STAGE_NAME 64

struct co_dataset {
    coi_object             object;
    const coi_dataset_ops *ops;
    size_t                 num_inputs; /* 0: a source */
    co_dataset           **inputs;     /* references */
    co_dataset            *input_room[1];
    co_value
        *spec; /* structure of one element, CO_KIND_SPEC (distributed: one per replica) as leaves */
    co_value   **specs; /* its leaves, borrowed */
    size_t       num_leaves;
    int64_t      cardinality;
    int64_t      batch_size; /* of the last batch step; CO_UNKNOWN_BATCH_SIZE */
    co_autoshard autoshard;
    int          depth;    /* longest way to a source */
    int64_t      steps;    /* of the whole tree, shared branches counted each time */
    uint64_t     mark;     /* of the kind's own arguments, for checkpoints */
    uint64_t     serial;   /* later ones have larger numbers, as do programs */
    bool         is_added; /* by distribution: the user did not ask for this stage */
    char         own_name[COI_STAGE_NAME]; /* "map 'decode'"; empty: that of its kind */
};

/* How a dataset was distributed, and what it was before. */
typedef struct coi_layout {
    co_dataset      *origin; /* NULL: a function made the datasets of workers */
    co_input_context input;
    const int64_t   *weights; /* of all replicas; NULL: equal */
} coi_layout;

/*
 * A request to stop making an element: every pull tests it. The event of a waiting thread is
 * signalled.
 */
typedef struct coi_cancel {
    atomic_bool is_set;
    coi_lock    lock; /* of what follows */
    coi_event  *watched;
    /* Of the thread that makes elements: how many were made under it, and the stage that dropped
     * some because of it. */
    uint64_t    made;
    const char *not_checkpointable_by;
} coi_cancel;

/* What datasets keep in a context; zero in a new one. */
typedef struct coi_data_state {
    coi_cancel     *cancel;    /* of the element being made, or NULL */
    const uint64_t *works_for; /* of a thread that prefetches: for which iterators, ended by 0; or
                                  NULL */
} coi_data_state;
_Static_assert(sizeof(coi_data_state) <= COI_EXTENSION_BYTES,
               "the state of datasets fits the room that a context has for it");

static inline coi_data_state *
coi_data_state_of(const co_context *ctx)
{
    return (coi_data_state *)(void *)ctx->extensions[COI_EXTENSION_DATA];
}

/* What a stage has done, in every iterator of the pipeline; the table of them (stats.c). */
typedef struct coi_counts {
    const co_dataset *dataset; /* borrowed from the iterator that the table was made for */
    int               depth;
    atomic_llong      elements, bytes, working_ns, waiting_ns;
} coi_counts;

typedef struct coi_stats {
    coi_object object;
    size_t     n;
    coi_counts stages[];
} coi_stats;

/* A position in a dataset: the head of every kind's own struct, which open finds zeroed. */
struct co_iterator {
    coi_object   object;
    co_dataset  *dataset; /* a reference */
    co_iterator *input;   /* of the first input; opened before ops->open is called */
    bool         stacks;  /* ops->rows may be called */
    coi_cancel   cancel;  /* of what the user iterates over */
    coi_stats   *stats;   /* a reference; NULL: it is not counted */
    coi_counts  *counts;  /* its own, or NULL */
    int64_t      step_examples;
    int64_t      dropped_rows;
    coi_shared  *untold; /* restored: what datasets are told when it is first asked */
    coi_lock     turn;   /* contexts that replay one graph or function take elements in turn */
    const co_context *_Atomic turn_of;          /* the one that has it; NULL: none */
    bool                      needs_initialize; /* of a graph: its operation has not run yet */
};

/* captured_input.c. Wait for the turn of an iterator that programs use: false with an error in a
 * function that the iterator itself calls. */
bool coi_turn_take(co_context *ctx, co_iterator *iterator);
void coi_turn_give(co_iterator *iterator);
/* co_get_next in turn. */
co_value *coi_next_in_turn(co_context *ctx, co_iterator *iterator);

/* What a kind does with examples, as far as that is known without reading. with_inputs then works
 * over other elements too. */
typedef enum coi_tracks {
    COI_LOST,         /* it cannot be told */
    COI_KEPT,         /* one element for one, in order */
    COI_KEPT_BY_FLAG, /* the same if the flag is set; otherwise in any order */
    COI_REMADE,       /* what with_inputs makes over numbers of examples tells */
    COI_REMADE_ONCE,  /* the same; in another order each time if the flag is set */
    COI_REMADE_ROWS,  /* the same; it cuts rows, so elements must be batches */
    COI_BATCHED,      /* as batch does: numbers[0] of them; flag: the remainder is dropped */
    COI_ALIGNED       /* inputs go side by side; flag: the second has the examples, not the first */
} coi_tracks;

/* What a step gave: a negative number is an error, which is in ctx. */
enum { COI_ERROR = -1, COI_END = 0, COI_ELEMENT = 1 };

struct coi_dataset_ops {
    const char *name;          /* "batch": for messages */
    size_t      dataset_size;  /* of the kind's struct, which begins with a co_dataset */
    size_t      iterator_size; /* the same for iterators */
    bool        distributed;   /* only to be iterated and looked at */
    bool        transparent;   /* iterating it is iterating its input */
    bool costs;      /* an element costs more than handing it to another thread: functions, files */
    bool prefetches; /* has threads of its own for what is before it */
    bool keeps;      /* breaking off an element drops nothing: the checkpoint has what was pulled */
    /* Sharding by files does not look past it: TensorFlow's does not know the kind, and an unknown
     * step is an error (DS-SHARD-4). */
    bool hides_files;
    bool promises; /* it speaks of the whole: left out of what is sharded (DS-SHARD-16) */

    /* Required, unless transparent. One element: fills one reference per leaf. Nothing is filled at
     * the end or on errors. */
    int (*next)(co_context *ctx, co_iterator *iterator, co_value **leaves);
    /* While a function is captured, or a graph built: an element that exists now, a reference, or
     * NULL: taking it is a call, or there is an error. NULL: it is a call. */
    co_value *(*next_now)(co_context *ctx, co_iterator *iterator);

    /* Optional. NULL means what stands beside it. */
    co_code (*open)(co_context *ctx, co_iterator *iterator); /* nothing to prepare */
    void (*close)(coi_heap *heap, co_iterator *iterator);    /* nothing to give back */
    void (*destroy)(coi_heap *heap, co_dataset *dataset);    /* the same for the dataset */
    /*
     * Up to max (> 0) elements as one stack with a new dimension 0; returns how many. Fewer than
     * max are no sign of the end. With an input, this serves only when the input stacks as well.
     */
    int64_t (*rows)(co_context *ctx, co_iterator *iterator, int64_t max,
                    co_value **leaves); /* never stacks */
    /* Skip n elements without making them; returns how many there were, or COI_ERROR. */
    int64_t (*skip)(co_context *ctx, co_iterator *iterator, int64_t n); /* next, and drop */
    /* The same transformation of other inputs, as a new reference. */
    co_dataset *(*with_inputs)(co_context *ctx, co_dataset *dataset,
                               co_dataset *const *inputs); /* cannot be sharded by rewriting */
    /* Readers of files, or of names of files: the same with files index, index + num, ... */
    co_dataset *(*shard_files)(co_context *ctx, co_dataset *dataset, int num,
                               int index); /* reads no files */
    /* Shard hints: the shard it stands for, of `input`. */
    co_dataset *(*fill_hint)(co_context *ctx, co_dataset *input, int num,
                             int index); /* is no hint */
    /* Stages: how many elements there are. */
    int64_t (*count)(const co_dataset *dataset); /* as many as of the first input */
    /* What must hold before any element is made (DS-SHARD-15); false with an error. */
    bool (*check)(co_context *ctx, const co_dataset *dataset); /* nothing */
    /* Save or restore what its iterator has beside its input; false with an error. */
    bool (*checkpoint)(co_context *ctx, co_iterator *iterator,
                       coi_iterator_checkpoint *p); /* cannot be saved */
    /*
     * Save or restore what the dataset keeps for all its iterators, in `shared`: fetch fills it
     * from the dataset, share gives it to the dataset. False with an error; share cannot fail.
     */
    bool (*shared_checkpoint)(co_context *ctx, co_dataset *dataset, coi_iterator_checkpoint *p,
                              coi_shared *shared);                /* nothing is shared */
    void (*fetch)(co_dataset *dataset, coi_shared *shared);       /* with the former */
    void (*share)(co_dataset *dataset, const coi_shared *shared); /* with the former */

    /*
     * For explanations (explain.c): its arguments, behind its name. #0 to #9 are int64_t that lie
     * at `numbers` in its struct; from ?k, !k, >k, <k or ~k to the semicolon comes what is said if
     * number k is above 0, is 0, above 1, below 0 or not.
     */
    const char *shows;                                       /* nothing */
    uint16_t    numbers;                                     /* offset */
    void (*show)(const co_dataset *dataset, coi_prose *out); /* what is no number: nothing */
    /* Readers of files: how many there are; CO_UNKNOWN_CARDINALITY. */
    int64_t (*num_files)(const co_dataset *dataset); /* none */
    uint8_t tracks; /* a coi_tracks: what becomes of them (trace.c) */
    /* Distributed datasets. */
    coi_layout (*layout)(const co_dataset *dataset); /* it is not distributed */
};

/*
 * A stage: a transformation that is its function, its numbers and its inputs, so that making and
 * remaking it is the same for all. Its iterator begins with a coi_stage_iterator.
 */
typedef struct coi_stage_args {
    int64_t numbers[4];
    int64_t calls; /* at a time; no part of what makes the stage the same one: machines differ */
    int64_t flag;  /* 0 or 1 */
    union {
        co_element_fn   element;
        co_predicate_fn predicate;
        co_fold_fn      fold;
        co_inner_fn     inner;
        co_generator_fn generator;
    } fn;
    void *user;
} coi_stage_args;

typedef struct coi_stage {
    co_dataset     base;
    coi_stage_args args;
} coi_stage;

#define COI_STAGE_NUMBERS offsetof(coi_stage, args.numbers) /* four, calls, flag */

typedef struct coi_stage_iterator {
    co_iterator base;
    int64_t     index;   /* of the next element of the input */
    co_value  **element; /* room for one element of the input */
    bool        ended;
} coi_stage_iterator;

extern const coi_class coi_dataset_class, coi_iterator_class;

/* --- making (dataset.c) --- */

/*
 * A dataset with one reference; the kind's own members are zero. Takes over the reference `spec`,
 * also when it fails; a NULL spec means that making it failed, with the error in ctx. Policy comes
 * from the first input. NULL with the error in ctx.
 */
co_dataset *coi_dataset_new(co_context *ctx, const coi_dataset_ops *ops, co_dataset *const *inputs,
                            size_t num_inputs, co_value *spec, int64_t cardinality);
/* What a stage is called in messages. */
static inline const char *
coi_stage_name(const co_dataset *dataset)
{
    return dataset->own_name[0] != '\0' ? dataset->own_name : dataset->ops->name;
}
/* A dataset that was made in place of another is called the same; NULL stays NULL. */
co_dataset *coi_dataset_rename(co_dataset *made, const co_dataset *like);
/* Add an argument of the kind to the signature of a dataset: checkpoints of other datasets are
 * rejected. */
void coi_dataset_mark(co_dataset *dataset, int64_t number);
/* For public calls: a reference goes to the block; NULL stays NULL. */
co_dataset *coi_dataset_give(co_context *ctx, co_dataset *dataset);
/* Argument checks. The second also refuses distributed datasets. */
bool coi_check_dataset(co_context *ctx, const co_dataset *dataset, int position, const char *name);
bool coi_check_input(co_context *ctx, const co_dataset *input, int position, const char *name);
/* Where pipelines keep their data: the host's first CPU. NULL with an error. */
co_device *coi_data_device(co_context *ctx);
/* See co_dataset_batch_size. */
int64_t coi_dataset_rows(const co_dataset *dataset);

/* --- stages (stage.c) --- */

/* As coi_dataset_new; the batch size is that of the first input. */
co_dataset *coi_stage_new(co_context *ctx, const coi_dataset_ops *ops, co_dataset *const *inputs,
                          size_t num_inputs, co_value *spec, const coi_stage_args *args);
/* The same with the spec of its only input, given to the block. */
co_dataset *coi_stage_like(co_context *ctx, const coi_dataset_ops *ops, co_dataset *input,
                           const coi_stage_args *args);
/* The same with a spec, NULL: that of the input; the batch size is not known after a function. */
co_dataset *coi_stage_mapped(co_context *ctx, const coi_dataset_ops *ops, co_dataset *input,
                             co_value *spec, const coi_stage_args *args);
/* Slots of their tables: rewriting never changes what elements look like. */
co_dataset *coi_stage_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs);
/* The same with another spec, which is taken over. */
co_dataset *coi_stage_remake(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs,
                             co_value *spec);
co_code     coi_stage_open(co_context *ctx, co_iterator *iterator);
void        coi_stage_close(coi_heap *heap, co_iterator *iterator);
int64_t     coi_count_unknown(const co_dataset *dataset);
static inline const coi_stage_args *
coi_args_of(const co_iterator *iterator)
{
    return &((const coi_stage *)iterator->dataset)->args;
}
/* The next element of the input, into `element`. Counts it. */
int coi_stage_pull(co_context *ctx, co_iterator *iterator);
/* All checks of a dataset and what is before it. */
bool coi_dataset_check(co_context *ctx, const co_dataset *dataset);

/* --- functions of the user (user_callback.c) --- */

/* What is put back after a call: see coi_user_callback_begin. */
typedef struct coi_user_callback {
    size_t      entries, blocks, floor;
    const char *call;
    uint64_t    began_ns;
} coi_user_callback;
/*
 * A function of the user runs in default mode with the host as its device, in a block of its own;
 * what it leaves open is left. begin gives false with an error; end is called either way.
 */
bool coi_user_callback_begin(co_context *ctx, coi_user_callback *callback);
void coi_user_callback_end(co_context *ctx, const coi_user_callback *callback,
                           const co_iterator *iterator);
/* The element that the iterator pulled, as a handle of the block; the leaves are dropped. */
co_value *coi_user_callback_element(co_context *ctx, co_iterator *iterator);
/* What a function returned as leaves of the dataset's spec, new references; false with an error. */
bool coi_user_callback_result(co_context *ctx, const co_dataset *dataset, co_value *result,
                              co_value **leaves);
/* Complete an error with the stage and its element before the current one. COI_ERROR. */
int coi_user_callback_error(co_context *ctx, const co_iterator *iterator);
/* Whether a function returned a dataset without an error; CO_TYPE_ERROR. */
bool coi_check_inner(co_context *ctx, const co_dataset *dataset);
/* Arguments: a function, a structure of specs. */
bool coi_check_fn(co_context *ctx, bool is_there, int position, const char *what);
bool coi_check_spec(co_context *ctx, co_value *spec, int position);

/* --- specs (spec.c): new references, NULL with the error in ctx --- */

/* The spec itself, as a new reference. */
static inline co_value *
coi_spec_of(co_dataset *dataset)
{
    coi_ref(dataset->spec);
    return dataset->spec;
}
/* What elements of both are: dimensions that differ are unknown. `code`, naming `other`, if
 * structures or dtypes differ. */
co_value *coi_spec_join(co_context *ctx, co_value *first, const co_dataset *other, co_code code,
                        const char *name);
/* Whether every element of the spec `inner` is one of `outer`. */
bool coi_spec_within(const co_value *inner, const co_value *outer);
/* A leaf as a tensor on the host; host values become `dtype`. NULL with an error. */
co_value *coi_data_tensor(co_context *ctx, co_value *leaf, co_dtype dtype);

/* Whether elements are tensors, and not datasets; CO_TYPE_ERROR. */
bool      coi_check_tensors(co_context *ctx, const co_dataset *dataset);
co_value *coi_spec_new(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim);
typedef co_value *(*coi_spec_fn)(co_context *ctx, const co_value *spec, const void *arg);
/* The structure with fn applied to every leaf. */
co_value *coi_spec_map(co_context *ctx, co_value *structure, coi_spec_fn fn, const void *arg);
/* Of those: every dimension unknown; a new dimension 0 of *arg (int64_t, -1: unknown) rows. */
co_value *coi_spec_unknown_dims(co_context *ctx, const co_value *spec, const void *arg);
co_value *coi_spec_batch(co_context *ctx, const co_value *spec, const void *arg);
int64_t   coi_batch_cardinality(int64_t n, int64_t size, bool drop_remainder);
/* rebatch.c: the rows that the spec says every element has, or -1; -2 if components differ, with an
 * error unless ctx is NULL. */
int64_t coi_spec_rows(co_context *ctx, const co_dataset *input);
/* All leaves with dimension 0 divided by `parts`; where that does not divide, it is unknown. 0:
 * unequal parts. */
co_value *coi_spec_split(co_context *ctx, co_value *structure, int64_t parts);
/* "component 2" or, of a single leaf, "elements": for messages. */
const char *coi_component_name(const co_dataset *dataset, size_t leaf, char out[32]);

/* --- transformations that others build on: new references; inputs were checked --- */

co_dataset *coi_range_new(co_context *ctx, int64_t start, int64_t step, int64_t count);
co_dataset *coi_batch_new(co_context *ctx, co_dataset *input, int64_t size, bool drop_remainder);
co_dataset *coi_take_new(co_context *ctx, co_dataset *input, int64_t count);

/* Of every num * block elements those at [index * block, (index + 1) * block); the product is an
 * int64_t. */
co_dataset *coi_shard_new(co_context *ctx, co_dataset *input, int64_t num, int64_t index,
                          int64_t block);
/* Names of files: the same in runs of one, CO_INVALID_ARGUMENT from the first next if a shard would
 * be empty. */
co_dataset *coi_shard_names(co_context *ctx, co_dataset *names, int num, int index);
extern const coi_dataset_ops coi_shuffle_ops; /* sharding by files looks through it (DS-SHARD-3) */
/* Every element cut into n slices by the CEIL rule (DS-SPLIT-1), or by weights: parts[k] is the sum
 * of those of slices 0 to k. */
co_dataset *coi_split_new(co_context *ctx, co_dataset *input, int n, const int64_t *parts);
/*
 * Where a share ends: of `rows` rows, the first ceil(rows * part / whole) belong to the first
 * replicas, which together have `part` of `whole`. So every row has an owner, and each share is
 * less than a row away from the exact one. whole is an int.
 */
static inline int64_t
coi_share_end(int64_t rows, int64_t part, int64_t whole)
{
    return rows / whole * part + (rows % whole * part + whole - 1) / whole;
}
/*
 * The row stream cut by a cycle of sizes (DS-SPLIT-2, DS-SPLIT-9). parts: what the splitter makes
 * of an element, as coi_spec_split has it; COI_SIZES_OF_USER: see co_dataset_rebatch.
 */
#define COI_SIZES_OF_USER (-1)
co_dataset *coi_rebatch_new(co_context *ctx, co_dataset *input, const int64_t *sizes,
                            size_t num_sizes, bool drop_remainder, int64_t parts);
/* See co_dataset_for_worker; `input` was checked by coi_check_pipelines. weights of all replicas;
 * NULL: equal. */
co_dataset *coi_dataset_for_worker(co_context *ctx, co_dataset *dataset,
                                   const co_input_context *input, const int64_t *weights);
/* The policy in force, never AUTO; why, as a text; the same in the log, for several workers
 * (DS-SHARD-7). */
co_autoshard coi_decide(const co_dataset *dataset);
const char  *coi_policy_name(co_autoshard policy);
/* The fix if files cannot be sharded over workers. */
#define COI_OTHER_POLICIES                                                                         \
    "use the policy CO_AUTOSHARD_REPLICA or CO_AUTOSHARD_DATA, by which every worker reads "       \
    "everything and keeps its part, or CO_AUTOSHARD_OFF"
void coi_put_decision(coi_prose *out, const co_dataset *dataset, int num);
void coi_log_decision(co_context *ctx, const co_dataset *dataset, const co_input_context *input);
/* How batches are split over replicas, as a text. */
void coi_put_splitting(coi_prose *out, const co_dataset *dataset, const co_input_context *input,
                       const int64_t *weights);
/* explain.c: whom a dataset is distributed over; plain ones by `input`, NULL: one worker with one
 * replica. False with an error. */
bool coi_check_layout(co_context *ctx, const co_dataset *dataset, const co_input_context *input,
                      coi_layout *layout);
/*
 * What a worker reads of the numbers of examples that stand for a dataset, as a new reference.
 * Where slices are shared, what all workers read: the stream before it is shared.
 */
co_dataset *coi_traced_stream(co_context *ctx, co_dataset *dataset, co_dataset *numbers,
                              const co_input_context *input, const int64_t *weights);
bool        coi_shares_slices(const co_dataset *dataset);
/* The replica that gets piece i of a step of such a stream. */
int coi_reader_of(const co_dataset *dataset, const co_input_context *input, int i);
/* Whether a shard waits for its numbers. */
bool coi_has_hint(const co_dataset *dataset);
/* DS-SHARD-11, DS-SPLIT-5. */
bool coi_check_pipelines(co_context *ctx, const co_input_context *input);

/* --- iterating (iterator.c) --- */

/* iterator_checkpoint.c: give datasets what restoring has for them, if `tells`, and drop it. */
void coi_shared_end(coi_heap *heap, coi_shared **all, bool tells);
/* NULL with the error in ctx. stats: those of the iterator that opens it, or NULL. */
co_iterator *coi_iterator_new(co_context *ctx, co_dataset *dataset, coi_stats *stats);
/* The same for what the user iterates over: it has statistics. */
co_iterator *coi_iterator_whole(co_context *ctx, co_dataset *dataset);
/* stats.c. A table of zeros; the row of a dataset, or NULL. */
coi_stats  *coi_stats_new(co_context *ctx, const co_dataset *dataset);
coi_counts *coi_stats_find(coi_stats *stats, const co_dataset *dataset);
/* Whether there is room for a text, argument `position`; CO_VALUE_ERROR. */
bool coi_check_room(co_context *ctx, const char *out, size_t capacity, int position);
/* A struct of the caller, which begins with its size: CO_INVALID_ARGUMENT if it has none; as much
 * as it knows is filled. */
bool coi_check_record(co_context *ctx, const void *record, int position, const char *name,
                      const char *init);
void coi_fill_record(void *record, const void *all, size_t size);
/* Bytes of a component of an element, whatever it is. */
int64_t coi_leaf_bytes(const co_value *leaf);
/* Time since then was spent working or waiting. NULL counts nothing. */
void coi_count_time(coi_counts *counts, bool waited, uint64_t began_ns);
void coi_cancel_init(coi_cancel *cancel);
/* From now on it is cancelled; threads that wait under it wake. Any thread. */
void coi_cancel_set(coi_cancel *cancel);
/* Have the event signalled by that, until it is NULL again. A cancel of NULL is none. */
void coi_cancel_watch(coi_cancel *cancel, coi_event *event);
static inline bool
coi_is_cancelled(const coi_cancel *cancel)
{
    return cancel != NULL && atomic_load_explicit(&cancel->is_set, memory_order_relaxed);
}
/* CO_CANCELLED in ctx. COI_ERROR. */
int coi_cancelled(co_context *ctx);
/* Whether the error in ctx is that one: what was pulled must not be dropped. */
bool coi_was_cancelled(const co_context *ctx);
/* It was dropped, by a stage of the iterator: the iterator cannot be saved any more. */
void    coi_mark_not_checkpointable(co_context *ctx, const co_iterator *iterator);
int     coi_iterator_next(co_context *ctx, co_iterator *iterator, co_value **leaves);
int64_t coi_iterator_rows(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves);
/* CO_RUNTIME_ERROR: a function of a pipeline asks the iterator that it makes an element for. */
void    coi_refuse_own(co_context *ctx);
int64_t coi_iterator_skip(co_context *ctx, co_iterator *iterator, int64_t n);
/* Put the input of `iterator` back to its beginning. */
co_code coi_iterator_restart_input(co_context *ctx, co_iterator *iterator);
/* Drop n references and clear them. */
void coi_leaves_release(coi_heap *heap, co_value **leaves, size_t n);
/* Rows of an element: dimension 0 of the first leaf that has one; a scalar is one row. */
int64_t coi_leaves_rows(co_value *const *leaves, size_t n);

/* --- pieces of a batch (batch_assembly.c) --- */

/* References to elements, or stacks of them, that will become one. An iterator keeps its own. */
typedef struct coi_batch_assembly {
    co_value **leaves;          /* num_leaves per piece */
    size_t     count, capacity; /* capacity in references */
    size_t     num_leaves;
} coi_batch_assembly;
/* Room for one more piece, which counts when it is filled and count incremented. NULL: error. */
co_value **coi_assembly_room(co_context *ctx, coi_batch_assembly *pieces);
void       coi_assembly_clear(coi_heap *heap, coi_batch_assembly *pieces);
void       coi_assembly_free(coi_heap *heap, coi_batch_assembly *pieces);
/*
 * Join at least one piece to one element and drop the pieces; a lone stack is handed on as it is.
 * `stacked`: pieces have a dimension 0 to be joined along; otherwise each is a row.
 * CO_INVALID_ARGUMENT if shapes differ.
 */
co_code coi_assembly_join(co_context *ctx, coi_batch_assembly *pieces, bool stacked,
                          co_value **leaves);
/* Up to `size` more rows of the input, in stacks if it stacks; returns how many, or COI_ERROR. */
int64_t coi_assembly_collect(co_context *ctx, coi_batch_assembly *pieces, co_iterator *input,
                             bool stacks, int64_t size);
/* The same up to `size` together with what was collected before a cancellation; on other errors
 * nothing is left. A stage whose pieces these are. */
int64_t coi_assembly_complete(co_context *ctx, coi_batch_assembly *pieces,
                              const co_iterator *iterator, bool stacks, int64_t size);
/* Rows of an element, on which its components must agree; -1 with an error. */
int64_t coi_agreed_rows(co_context *ctx, co_value *const *leaves, size_t n);
/* Row k of a tensor, without dimension 0, and rows [begin, begin + count); both share its
 * memory. */
co_value *coi_row_at(co_context *ctx, co_value *tensor, int64_t k);
co_value *coi_row_view(co_context *ctx, co_value *tensor, int64_t begin, int64_t count);

#endif
