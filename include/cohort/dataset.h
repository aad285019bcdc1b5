/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets: lazy descriptions of input, made from a source and transformations, iterated any number of
 * times; and their distribution over the replicas of a strategy (rules DS-*).
 *
 *     co_dataset  *ds = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 4, false);
 *     co_iterator *it = co_iterate(ctx, co_distribute_dataset(ctx, strategy, ds, NULL));
 *     for (co_value *x; (x = co_next(ctx, it)) != NULL;)
 *         ...
 */
#ifndef COHORT_DATASET_H
#define COHORT_DATASET_H

#include <cohort/strategy.h>

CO_EXTERN_C_BEGIN

#define CO_INFINITE (-1)
#define CO_UNKNOWN_CARDINALITY (-2)

/* Sources. */

/** int64 scalars start, start + step, ... before stop. */
CO_API co_dataset *co_dataset_range(co_context *ctx, int64_t start, int64_t stop, int64_t step);
/** One element per index of dimension 0 of every leaf; the leaves agree on it (CO_VALUE otherwise). */
CO_API co_dataset *co_dataset_from_tensor_slices(co_context *ctx, co_value *structure);
/** One element: the structure itself. */
CO_API co_dataset *co_dataset_from_tensors(co_context *ctx, co_value *structure);

/* Transformations. The input stays usable. */

CO_API co_dataset *co_dataset_batch(co_context *ctx, co_dataset *input, int64_t size, bool drop_remainder);
/** -1 repeats for ever. */
CO_API co_dataset *co_dataset_repeat(co_context *ctx, co_dataset *input, int64_t count);
/** -1 takes all. */
CO_API co_dataset *co_dataset_take(co_context *ctx, co_dataset *input, int64_t count);

typedef enum co_autoshard {
    CO_AUTOSHARD_OFF = -1,
    CO_AUTOSHARD_AUTO = 0,
    CO_AUTOSHARD_FILE = 1,
    CO_AUTOSHARD_DATA = 2,
    CO_AUTOSHARD_HINT = 3
} co_autoshard;
/** How distribution shards this dataset over workers (DS-SHARD-*). */
CO_API co_dataset *co_dataset_with_autoshard(co_context *ctx, co_dataset *input, co_autoshard policy);

/* Looking. */

/** The number of elements, CO_INFINITE or CO_UNKNOWN_CARDINALITY. */
CO_API int64_t co_cardinality(co_context *ctx, co_dataset *dataset);
/** The structure of one element, specs as leaves; per-replica specs for a distributed dataset. */
CO_API co_value *co_element_spec(co_context *ctx, co_dataset *dataset);

/* Distributing. */

typedef struct co_input_options {
    size_t struct_size;
    bool   fetch_to_device;        /* elements go to the replica's device ahead of use */
    bool   per_replica;            /* InputReplicationMode.PER_REPLICA */
    bool   place_dataset_on_device;
    int    per_replica_buffer_size;
} co_input_options;
#define CO_INPUT_OPTIONS_INIT { sizeof(co_input_options), true, false, false, 1 }

/** Split every global batch over the replicas (DS-SPLIT-*, DS-PART-*). No further transformations. */
CO_API co_dataset *co_distribute_dataset(co_context *ctx, co_strategy *strategy, co_dataset *dataset,
                                         const co_input_options *options);

/** What a dataset function learns of its input pipeline. */
typedef struct co_input_context {
    int num_input_pipelines;
    int input_pipeline_id;
    int num_replicas_in_sync;
} co_input_context;
/** global / n; CO_VALUE naming both if n does not divide it. */
CO_API int64_t co_per_replica_batch_size(co_context *ctx, const co_input_context *input, int64_t global);
typedef co_dataset *(*co_dataset_fn)(co_context *ctx, const co_input_context *input, void *user);
/** Call fn once per worker; every replica takes the next element of its worker's dataset (DS-FN-*). */
CO_API co_dataset *co_distribute_datasets_from_function(co_context *ctx, co_strategy *strategy,
                                                        co_dataset_fn fn, void *user,
                                                        const co_input_options *options);

/* Iterating. */

/** An iterator at the beginning, for plain and distributed datasets alike. */
CO_API co_iterator *co_iterate(co_context *ctx, co_dataset *dataset);
/** The next element, as a value of ctx's block; NULL without an error at the end, again and again. */
CO_API co_value *co_next(co_context *ctx, co_iterator *iterator);
CO_API co_value *co_iterator_element_spec(co_context *ctx, co_iterator *iterator);
/** Rows that were dropped because not every replica could be served (DS-PART-4, DS-PART-5). */
CO_API int64_t co_iterator_dropped_rows(co_context *ctx, co_iterator *iterator);
/** Examples of the last element on all replicas of all workers; -1 before the first. */
CO_API int64_t co_iterator_step_examples(co_context *ctx, co_iterator *iterator);

CO_EXTERN_C_END

#endif
