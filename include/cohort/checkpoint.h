/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: the state of a training program in a folder, by names.
 *
 *     co_checkpoint *checkpoint = co_checkpoint_open(ctx, "runs/digits", NULL);
 *     int64_t        step = 0;
 *
 *     co_checkpoint_add(ctx, checkpoint, "model", model);
 *     co_checkpoint_add_optimizer(ctx, checkpoint, "optimizer", adam, model);
 *     co_checkpoint_add_iterator(ctx, checkpoint, "input", dataset, &input);
 *     co_checkpoint_add_counter(ctx, checkpoint, "step", &step);
 *
 *     co_checkpoint_restore(ctx, checkpoint, NULL);        goes on where the last run stopped
 *     while (step < 10000) {
 *         ... a step ...
 *         if (++step % 100 == 0)
 *             co_checkpoint_save(ctx, checkpoint, step, NULL);
 *     }
 *     co_checkpoint_close(ctx, checkpoint);                waits for what is being written
 *
 * A program that is killed at any moment and started again ends with the bits of one that was not:
 * variables, slots of optimizers, iterators and random numbers go on where they were.
 *
 * What is saved does not depend on the strategy: it can be restored under another one, with another
 * number of replicas or processes. With the same number of logical replicas nothing is lost;
 * otherwise values that each replica has of its own (sums that are synchronised on read, random
 * numbers) are added up or begin anew, and iterators of distributed datasets cannot go on
 * (co_checkpoint_report says so).
 *
 * A checkpoint is one file in the safetensors format, which other programs read, with a checksum
 * for each tensor. It is written beside its final name, brought to the disk, and renamed, so that a
 * name in the folder always stands for a whole checkpoint; the one before is deleted only after
 * that. Saving takes references to the values of this moment, and a thread writes them while steps
 * go on.
 */
#ifndef COHORT_CHECKPOINT_H
#define COHORT_CHECKPOINT_H

#include <cohort/dataset.h>
#include <cohort/metrics.h>
#include <cohort/train.h>

#include <math.h>

CO_EXTERN_C_BEGIN

typedef struct co_checkpoint co_checkpoint;

/** Which values are better, for keep_best. */
typedef enum co_better { CO_BETTER_SMALLER = 0, CO_BETTER_LARGER } co_better;

typedef struct co_checkpoint_options {
    size_t    struct_size;
    int       keep_last; /* how many of the last checkpoints stay; 0: all */
    int       keep_best; /* how many of those with the best value stay besides; 0: none */
    co_better better;
    bool      waits;     /* co_checkpoint_save returns when the checkpoint is on the disk */
    bool      is_partial; /* restoring names that the checkpoint lacks, or has with another dtype or
                             shape, is no error: the report has them */
    bool      is_reader;  /* it does not save, and does not lock the folder: an evaluator's */
} co_checkpoint_options;
#define CO_CHECKPOINT_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(co_checkpoint_options), 5, 0, CO_BETTER_SMALLER, false, false, false                \
    }

/**
 * The checkpoints of a folder, which is made if it is not there. NULL options mean the
 * initialiser's. The folder is locked against other programs until the checkpoint is closed or its
 * context ends. The strategy that is current here is that of the program: of several processes the
 * first alone writes, and only it locks the folder, which all of them read.
 *
 * Scope:    collective over the processes of the strategy in whose scope ctx is: an error of one
 *           is an error of all.
 * Context:  cross-replica, or default mode; CO_RUNTIME_ERROR in a step or a captured function.
 * Blocks:   while the index of the folder is read.
 * Returns:  a checkpoint of ctx's block, or NULL with CO_PERMISSION_DENIED (the folder),
 *           CO_FAILED_PRECONDITION (another program writes there, which the message names),
 *           CO_NOT_FOUND (is_reader, and there is no folder), CO_VALUE_ERROR (options).
 */
CO_API co_checkpoint *co_checkpoint_open(co_context *ctx, const char *folder,
                                         const co_checkpoint_options *options);

/*
 * What is saved and restored, by name. Names of parts of a whole are put together with '/':
 * "model/dense/kernel", "optimizer/model/dense/kernel/m". A name that is there already is
 * CO_ALREADY_EXISTS. The checkpoint keeps what it is given until it is closed.
 */

/** The variables among the leaves of a structure (your model, a generator): dicts give the names of
 * their keys, lists and tuples numbers. Other leaves, and variables of strings, are CO_TYPE_ERROR. */
CO_API co_code co_checkpoint_add(co_context *ctx, co_checkpoint *checkpoint, const char *name,
                                 co_value *variables);
/** The state of an optimizer (co_optimizer_state), with slots for the variables of a list or tuple,
 * which are made when it is restored. Slots are called after their variables, "optimizer/w/m". */
CO_API co_code co_checkpoint_add_optimizer(co_context *ctx, co_checkpoint *checkpoint,
                                           const char *name, co_optimizer *optimizer,
                                           co_value *variables);
/** The state of a metric. */
CO_API co_code co_checkpoint_add_metric(co_context *ctx, co_checkpoint *checkpoint,
                                        const char *name, co_metric *metric);
/** An iterator of a dataset, at a place of yours. Restoring puts a new iterator there, which lives
 * as long as the checkpoint, or until the next one is restored. */
CO_API co_code co_checkpoint_add_iterator(co_context *ctx, co_checkpoint *checkpoint,
                                          const char *name, co_dataset *dataset,
                                          co_iterator **iterator);
/** A number of yours. */
CO_API co_code co_checkpoint_add_counter(co_context *ctx, co_checkpoint *checkpoint,
                                         const char *name, int64_t *counter);

/** State that only you know: `save` gives a host string of bytes, and `restore` gets it. They must not
 * use the checkpoint. Of several processes all are asked for it, the bytes of the first are saved,
 * and all get them. */
typedef struct co_checkpoint_user {
    co_value *(*save)(co_context *ctx, void *user);
    co_code (*restore)(co_context *ctx, co_value *saved, void *user);
    void *user;
} co_checkpoint_user;
CO_API co_code co_checkpoint_add_user(co_context *ctx, co_checkpoint *checkpoint, const char *name,
                                      const co_checkpoint_user *state);

typedef struct co_checkpoint_save_options {
    size_t      struct_size;
    double      value; /* for keep_best; NaN: this checkpoint has none */
    const char *note;  /* a line of text, which `cohort checkpoint show` prints; NULL: none */
} co_checkpoint_save_options;
#define CO_CHECKPOINT_SAVE_OPTIONS_INIT { sizeof(co_checkpoint_save_options), NAN, NULL }

/**
 * Save all that was added, and the state of the random numbers of ctx, as checkpoint number `step`.
 * The values are those of this moment. A checkpoint of the same number is replaced. Checkpoints
 * that keep_last and keep_best do not keep are deleted when this one is on the disk; this one stays.
 * If the folder has larger numbers, of a run that went further, there is a warning: the last one is
 * the one with the largest number.
 *
 * Scope:    collective over the processes of the strategy in whose scope ctx is.
 * Context:  cross-replica, or default mode; CO_RUNTIME_ERROR in a step or a captured function.
 * Blocks:   while the checkpoint before this one is still being written; until the disk has all of
 *           it with co_checkpoint_options.waits.
 * Returns:  CO_OK, or, on all processes, an error of this checkpoint or of the one before, which was
 *           written meanwhile: CO_RESOURCE_EXHAUSTED (the disk is full), CO_PERMISSION_DENIED,
 *           CO_FAILED_PRECONDITION (nothing was added; averages stand in place of weights), ... The
 *           checkpoints that were in the folder are still there.
 */
CO_API co_code co_checkpoint_save(co_context *ctx, co_checkpoint *checkpoint, int64_t step,
                                  const co_checkpoint_save_options *options);
/**
 * Wait until all that was saved is on the disk.
 *
 * Scope:    collective over the processes of the strategy in whose scope it was opened.
 * Context:  cross-replica, or default mode; CO_RUNTIME_ERROR in a step or a captured function.
 * Blocks:   until it is written.
 * Returns:  CO_OK, or why it is not, on all processes.
 */
CO_API co_code co_checkpoint_wait(co_context *ctx, co_checkpoint *checkpoint);

/** Which checkpoint; or the number of one. */
#define CO_CHECKPOINT_LAST (-1)
#define CO_CHECKPOINT_BEST (-2)

typedef struct co_checkpoint_restore_options {
    size_t  struct_size;
    int64_t step; /* the last one that is whole, CO_CHECKPOINT_BEST, or a number */
} co_checkpoint_restore_options;
#define CO_CHECKPOINT_RESTORE_OPTIONS_INIT                                                         \
    {                                                                                              \
        sizeof(co_checkpoint_restore_options), CO_CHECKPOINT_LAST                                  \
    }

/**
 * Put a checkpoint back into all that was added. An empty folder is no error, and nothing changes.
 * All of the checkpoint is read and compared with the program before anything changes. A damaged
 * one is skipped for the one before it, with a warning, if the last one was asked for. What one
 * process cannot read, none restores. What is added later is not restored, and is warned of.
 *
 * Scope:    collective over the processes of the strategy in whose scope ctx is: all read, side by
 *           side, the checkpoint that the first one chooses.
 * Context:  cross-replica, or default mode; CO_RUNTIME_ERROR in a step or a captured function.
 * Blocks:   while the file is read, and as co_checkpoint_wait.
 * Returns:  CO_OK, or CO_NOT_FOUND (no checkpoint of this number), CO_DATA_LOSS (it is damaged, and
 *           there is none before it), CO_VALUE_ERROR: without is_partial, a name that only the
 *           program has, or another dtype or shape. co_checkpoint_report has all of them.
 */
CO_API co_code co_checkpoint_restore(co_context *ctx, co_checkpoint *checkpoint,
                                     const co_checkpoint_restore_options *options);
/** The number of the checkpoint that was restored last; -1: none was. */
CO_API int64_t co_checkpoint_restored(co_context *ctx, const co_checkpoint *checkpoint);
/** What the last restore did with each name: a dict of lists of strings, "restored", "missing" (in the
 * program alone), "unused" (in the checkpoint alone), "different" (dtype or shape, both said). */
CO_API co_value *co_checkpoint_report(co_context *ctx, const co_checkpoint *checkpoint);
/** The numbers of the checkpoints in the folder, in order: a tensor of int64. */
CO_API co_value *co_checkpoint_steps(co_context *ctx, co_checkpoint *checkpoint);

/** Wait, and give the folder free. Later calls are CO_FAILED_PRECONDITION. Closing twice is allowed.
 * No process waits for another here, so of several processes the first alone has the error of what
 * could not be written; call co_checkpoint_wait before, and all have it. */
CO_API co_code co_checkpoint_close(co_context *ctx, co_checkpoint *checkpoint);

CO_EXTERN_C_END

#endif
