/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets: lazy descriptions of input, made from a source and transformations, iterated any number
 * of times; and their distribution over the replicas of a strategy.
 *
 *     co_dataset  *ds = co_dataset_batch(ctx, co_dataset_range(ctx, 0, 10, 1), 4, false);
 *     co_iterator *it = co_iterate(ctx, co_distribute_dataset(ctx, strategy, ds, NULL));
 *     CO_EACH(ctx, x, it) {
 *         ...
 *     }
 *
 * A dataset is immutable and may be iterated from several contexts at once; making one reads
 * nothing. An iterator is a position: one thread at a time, any context of the runtime. Both are
 * handles of the block they were made in, as values are, and keep alive what they need. Elements
 * are values of the block in which co_next is called.
 *
 * Every call that takes a dataset records CO_VALUE_ERROR when it is NULL and CO_TYPE_ERROR when the
 * handle is something else; transformations also refuse a distributed dataset with CO_TYPE_ERROR.
 * Rules: DS-*.
 */
#ifndef COHORT_DATASET_H
#define COHORT_DATASET_H

#include <cohort/strategy.h>

CO_EXTERN_C_BEGIN

#define CO_INFINITE            (-1)
#define CO_UNKNOWN_CARDINALITY (-2)
#define CO_UNKNOWN_BATCH_SIZE  (-1)

/*
 * Functions over elements. They are called by co_next, on its thread and context, or by a thread
 * that prefetches (below) on a context of that thread. They run in default mode, in their own
 * block, with the host's first CPU as the current device. `user` must live as long as the dataset
 * and its iterators. An iterator calls the functions of one stage one at a time, except
 * where a stage says that there are several calls at a time; two iterators of one dataset are two
 * callers. Elements come as they are in the spec: one tensor, or a structure of tensors. When a
 * function records an error, co_next fails with it: the code stays, the message begins with the
 * stage and the element ("map of element 3: ..."), and the next call goes on with the element after
 * it. A function must not use the iterator that calls it: CO_RUNTIME_ERROR. The batch size is
 * unknown after a function that makes elements.
 *
 * `spec` describes what a function returns, with specs as leaves (co_spec, co_value_spec), -1 for
 * dimensions that vary; NULL: it is that of the input. Host values are converted to it (integers to
 * every number, floats to floating ones, bools and strings to themselves). Anything else is refused
 * when it comes: CO_TYPE_ERROR for another structure or dtype, CO_INVALID_ARGUMENT for a shape, or
 * for a number that the dtype cannot hold.
 *
 * Prefetching. Three things make elements before they are asked for, on threads of the iterator
 * ("co-input"): co_dataset_prefetch, parallel calls of map and interleave, and distributed datasets
 * whose elements cost something (functions, files), as far as per_replica_buffer_size says.
 * Functions of stages before it then run beside the thread that calls co_next, so what both use
 * through `user` needs a lock of its own. It is not visible in the data: same elements, same order,
 * errors at their place. One exception: a shuffle with reshuffle_each_iteration counts its passes
 * as they begin, so where several readers of one such dataset prefetch at once (two branches of a
 * zip, two iterators), or one is released before its end, which pass comes next is a matter of
 * timing; a shuffle for each reader is not. Random numbers of the context (co_random_*) have a
 * stream of their own on each thread. Nothing is read before the first next; at most the buffer is
 * filled; a thread without work sleeps. Releasing the iterator ends its threads and waits for the
 * one call or read that each is in, no more. Where the system has no thread to give, elements are
 * made by co_next. An iterator that prefetches and was kept (co_keep) is released before the last
 * context is closed; it keeps the runtime until then.
 */

/** Returns an element made from one. */
typedef co_value *(*co_element_fn)(co_context *ctx, co_value *element, void *user);
/** Whether an element is wanted. */
typedef bool (*co_predicate_fn)(co_context *ctx, co_value *element, void *user);

/** A fold: gets (state, element) as a tuple of two and returns the new state. */
typedef co_value *(*co_fold_fn)(co_context *ctx, co_value *args, void *user);
/** Returns the dataset that stands for an element. */
typedef co_dataset *(*co_inner_fn)(co_context *ctx, co_value *element, void *user);
/** Returns element `index`, counted from 0 by each iterator; NULL without an error at the end. An
 * iterator that was restored (co_iterator_restore) begins with the index it had come to, so the
 * element should depend on the index alone. */
typedef co_value *(*co_generator_fn)(co_context *ctx, int64_t index, void *user);

/* Sources. */

/** int64 scalars start, start + step, ... before stop. CO_INVALID_ARGUMENT for a step of 0. */
CO_API co_dataset *co_dataset_range(co_context *ctx, int64_t start, int64_t stop, int64_t step);
/**
 * One element per index of dimension 0 of every leaf. Leaves are what converts to a tensor; a list
 * is one leaf. Elements share the memory of the leaves. CO_VALUE_ERROR if a leaf is a scalar or the
 * leaves disagree on dimension 0.
 */
CO_API co_dataset *co_dataset_from_tensor_slices(co_context *ctx, co_value *structure);
/** One element: the structure itself. */
CO_API co_dataset *co_dataset_from_tensors(co_context *ctx, co_value *structure);

/**
 * What a function makes: fn is called with 0, 1, 2, ... by each iterator, until it returns NULL
 * without an error, and may be called from any thread that iterates. spec describes the elements;
 * see "Functions over elements" above. CO_TYPE_ERROR if fn is NULL or spec is no spec.
 */
CO_API co_dataset *co_dataset_from_generator(co_context *ctx, co_generator_fn fn, void *user,
                                             co_value *spec);

/**
 * co_dataset_from_tensor_slices of arrays of the caller. This call copies them: later changes of
 * borrowed memory have no effect. Leaves are tensors, or lists of tensors, which are stacked first.
 * The result is an ordinary dataset, to be batched and distributed.
 *
 * Context:  default mode, or cross-replica context of this strategy; CO_RUNTIME_ERROR otherwise.
 * Returns:  a dataset, or NULL with CO_VALUE_ERROR if a leaf is a scalar or a bare number, or the
 *           leaves disagree on dimension 0.
 * Rules: NP-*.
 */
CO_API co_dataset *co_make_numpy_dataset(co_context *ctx, co_strategy *strategy, co_value *arrays);

/* Transformations. The input stays usable. */

/** fn of every element, in order. CO_TYPE_ERROR if fn is NULL or spec is no spec. */
CO_API co_dataset *co_dataset_map(co_context *ctx, co_dataset *input, co_element_fn fn, void *user,
                                  co_value *spec);
typedef struct co_map_options {
    size_t struct_size;
    /* calls of fn at a time, each on a thread of its own: 0 to 256, -1: one on each core. 0: by
     * co_next, as co_dataset_map */
    int    num_parallel_calls;
    bool   deterministic;      /* elements in the order of the input; false: as they are ready */
} co_map_options;
#define CO_MAP_OPTIONS_INIT                                                                        \
    {                                                                                              \
        sizeof(co_map_options), -1, true                                                           \
    }
/**
 * co_dataset_map with several calls of fn at a time, on several threads. Up to twice as many
 * elements as there are calls are prefetched. An error comes in place of its element. NULL
 * options are the initialiser's. CO_INVALID_ARGUMENT for a number of calls out of range.
 */
CO_API co_dataset *co_dataset_parallel_map(co_context *ctx, co_dataset *input, co_element_fn fn,
                                           void *user, co_value *spec,
                                           const co_map_options *options);
/** The elements of which fn says true. The cardinality is not known. */
CO_API co_dataset *co_dataset_filter(co_context *ctx, co_dataset *input, co_predicate_fn fn,
                                     void *user);
/** The elements before the first of which fn says false. */
CO_API co_dataset *co_dataset_take_while(co_context *ctx, co_dataset *input, co_predicate_fn fn,
                                         void *user);

/**
 * `size` consecutive elements as one, with a new dimension 0. The last may be shorter unless
 * drop_remainder. Consecutive slices of one source are batched without copying. CO_INVALID_ARGUMENT
 * for a size below 1, and from co_next when the elements of a batch differ in shape.
 *
 * When an element cannot be made, co_next fails in place of its batch: the elements before it in
 * that batch are lost, and the next batch begins with the element after it. In batches of 2,
 * the elements 1, 2, wrong, 4, 5 give (1, 2), the error, (4, 5); 1, wrong, 3, 4 give the error and
 * (3, 4). The same holds for co_dataset_padded_batch.
 * Rules: DS-ITER-8.
 */
CO_API co_dataset *co_dataset_batch(co_context *ctx, co_dataset *input, int64_t size,
                                    bool drop_remainder);
/**
 * New batches: the rows of the input's elements, in order, in pieces of sizes[0], sizes[1], ... and
 * from sizes[0] again. The last piece may be shorter unless drop_remainder is set.
 * CO_VALUE_ERROR for elements that are scalars, CO_INVALID_ARGUMENT for negative sizes or none
 * above 0.
 *
 * All components of an element must have the same number of rows: CO_INVALID_ARGUMENT from co_next
 * for one whose components differ. Where sizes are all the same and drop_remainder is false, the
 * rows of the spec tell whether there will be a shorter piece, so there a spec whose components
 * differ is refused at once, with CO_VALUE_ERROR. TensorFlow does so too.
 */
CO_API co_dataset *co_dataset_rebatch(co_context *ctx, co_dataset *input, const int64_t *sizes,
                                      size_t num_sizes, bool drop_remainder);
/** The input repeated `count` times; negative: forever. An input without elements ends at once. */
CO_API co_dataset *co_dataset_repeat(co_context *ctx, co_dataset *input, int64_t count);
/** The first `count` elements; a negative count takes all. */
CO_API co_dataset *co_dataset_take(co_context *ctx, co_dataset *input, int64_t count);

/**
 * A map with a memory: fn gets (state, element) and returns a tuple of the new state and the
 * output, which spec describes. Every iterator begins with `initial`. CO_TYPE_ERROR if fn returns
 * anything else.
 */
CO_API co_dataset *co_dataset_scan(co_context *ctx, co_dataset *input, co_value *initial,
                                   co_fold_fn fn, void *user, co_value *spec);
/** All but the first `count` elements; a negative count skips all. */
CO_API co_dataset *co_dataset_skip(co_context *ctx, co_dataset *input, int64_t count);
/**
 * Tuples of one element of each input; ends with the shortest. CO_VALUE_ERROR without inputs. The
 * batch size is that of the inputs if they agree.
 */
CO_API co_dataset *co_dataset_zip(co_context *ctx, co_dataset *const *inputs, size_t num_inputs);
/**
 * Tuples of a number (int64, from start) and the element. CO_INVALID_ARGUMENT if numbers would go
 * beyond 2^63 - 2: at once if it is known how many elements there are, else from co_next.
 */
CO_API co_dataset *co_dataset_enumerate(co_context *ctx, co_dataset *input, int64_t start);
/**
 * All elements of the first, then all of the second. CO_TYPE_ERROR unless structures and dtypes
 * agree; dimensions that differ are unknown in the spec.
 */
CO_API co_dataset *co_dataset_concatenate(co_context *ctx, co_dataset *first, co_dataset *second);
typedef struct co_padded_batch_options {
    size_t    struct_size;
    co_value *shapes; /* specs like those of an element; -1: the longest of each batch; NULL: the
                         longest of each batch in all dimensions */
    co_value *values; /* the padding: one scalar, or one for each component; NULL: zeros and empty
                         strings */
    bool      drop_remainder; /* a shorter last batch is dropped */
} co_padded_batch_options;
#define CO_PADDED_BATCH_OPTIONS_INIT { sizeof(co_padded_batch_options), NULL, NULL, false }
/**
 * `size` consecutive elements as one, filled up at the end of their dimensions to a common shape.
 * NULL options mean the initialiser. CO_INVALID_ARGUMENT for a size below 1, or a number in values
 * that the dtype cannot hold; CO_TYPE_ERROR for shapes or values that do not fit the element; from
 * co_next CO_DATA_LOSS when an element is larger than its shape.
 */
CO_API co_dataset *co_dataset_padded_batch(co_context *ctx, co_dataset *input, int64_t size,
                                           const co_padded_batch_options *options);
/** Every element once: those that came before are left out. Keeps all that it gave. */
CO_API co_dataset *co_dataset_unique(co_context *ctx, co_dataset *input);
/**
 * The rows of every element, one by one. CO_VALUE_ERROR for elements that are scalars, or whose
 * spec has other numbers of rows in other components; CO_INVALID_ARGUMENT from co_next when rows
 * differ.
 */
CO_API co_dataset *co_dataset_unbatch(co_context *ctx, co_dataset *input);
/**
 * Elements in random order: each is drawn from the next buffer_size that were not given yet, so a
 * buffer as large as the input shuffles it wholly. The order depends on seed, buffer size and pass
 * alone, on every machine (docs/decisions/shuffle.md). With reshuffle_each_iteration every iterator
 * and every round of a repeat is a pass of its own, in the order in which they begin (see
 * "Prefetching" above); otherwise all are alike. A buffer_size of CO_UNKNOWN_CARDINALITY holds the
 * whole input. CO_INVALID_ARGUMENT for other buffers below 1 or above 2^32 - 1, and for all of an
 * endless input.
 */
CO_API co_dataset *co_dataset_shuffle(co_context *ctx, co_dataset *input, int64_t buffer_size,
                                      int64_t seed, bool reshuffle_each_iteration);
/**
 * The elements of all datasets that fn makes of the elements, one dataset after the other. spec
 * describes their elements. CO_TYPE_ERROR from co_next if fn returns no dataset, or one of other
 * elements.
 */
CO_API co_dataset *co_dataset_flat_map(co_context *ctx, co_dataset *input, co_inner_fn fn,
                                       void *user, co_value *spec);
typedef struct co_flat_map_options {
    size_t struct_size;
    bool   opens_files; /* elements are names of files that fn reads: the policies FILE and AUTO
                         * divide the names among workers, as in co_interleave_options */
} co_flat_map_options;
#define CO_FLAT_MAP_OPTIONS_INIT { sizeof(co_flat_map_options), false }
/** The same with options; NULL means the initialiser. */
CO_API co_dataset *co_dataset_flat_map_with(co_context *ctx, co_dataset *input, co_inner_fn fn,
                                            void *user, co_value *spec,
                                            const co_flat_map_options *options);
typedef struct co_window_options {
    size_t  struct_size;
    int64_t shift;          /* elements from the begin of one window to the next; 0: size */
    int64_t stride;         /* elements from one element of a window to the next */
    bool    drop_remainder; /* shorter windows at the end are dropped */
} co_window_options;
#define CO_WINDOW_OPTIONS_INIT { sizeof(co_window_options), 0, 1, false }
/**
 * Elements that are datasets: windows of `size` elements of the input. With a shift other than the
 * size, windows overlap or leave elements out. Of elements with components, each component is a
 * dataset. They stay in memory; elements between windows are skipped. Such elements can be
 * passed on, chosen, shuffled and given to functions; co_dataset_flat_map makes tensors of them:
 *
 *     pairs(ctx, window, user)
 *     {
 *         return co_dataset_batch(ctx, co_value_dataset(ctx, window), 2, true);
 *     }
 *     ...
 *     co_window_options each = CO_WINDOW_OPTIONS_INIT;
 *
 *     each.shift = 1;
 *     each.drop_remainder = true;
 *     windows = co_dataset_window(ctx, input, 2, &each);
 *     co_dataset_flat_map(ctx, windows, pairs, NULL, spec_of_pairs);
 *
 * CO_INVALID_ARGUMENT for numbers below 1 or above 2^31 - 1. Stages that work on tensors refuse
 * such an input with CO_TYPE_ERROR.
 */
CO_API co_dataset *co_dataset_window(co_context *ctx, co_dataset *input, int64_t size,
                                     const co_window_options *options);
/**
 * The dataset that a value of kind CO_KIND_DATASET holds, as a handle of ctx's block. For the spec
 * of such a value, as co_element_spec gives it, an empty dataset of such elements. CO_TYPE_ERROR
 * for anything else.
 */
CO_API co_dataset *co_value_dataset(co_context *ctx, co_value *value);
/**
 * A dataset as a value: an argument of a captured function (function.h), or what co_for_each loops
 * over. A function is captured once for datasets whose elements have the same types. In the function
 * co_value_dataset gives the dataset of the first call; co_iterate and co_for_each on it read the one
 * that each call brings. If the function makes another dataset of it (co_dataset_map, ...), it is
 * captured for each dataset.
 */
CO_API co_value *co_dataset_value(co_context *ctx, co_dataset *dataset);
typedef struct co_interleave_options {
    size_t struct_size;
    int    cycle_length; /* datasets read at a time, in turn: 1 to 65536 */
    int    block_length; /* elements of one before the next has its turn: 1 or more */
    bool   opens_files;  /* elements are names of files that fn reads: the policies FILE and AUTO
                          * divide the names among workers; CO_INVALID_ARGUMENT from co_next if
                          * there are fewer names than workers */
    /* datasets that are prefetched, each by a thread of its own: 0 to 256, -1: one on each core.
     * From 2 on, as many more are opened before it is their turn, if their elements come from
     * memory (names of files) and not from functions or files. fn itself is called by one at a
     * time; where it fails before its turn, it is called again then */
    int    num_parallel_calls;
    /* the same elements in the same order as without threads; false: a dataset that has an element
     * ready goes before one that has not */
    bool   deterministic;
} co_interleave_options;
#define CO_INTERLEAVE_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(co_interleave_options), 4, 1, false, 0, true                                        \
    }
/** co_dataset_flat_map that takes elements of several datasets alternately. NULL options are the
 * initialiser's. CO_INVALID_ARGUMENT for lengths out of range. */
CO_API co_dataset *co_dataset_interleave(co_context *ctx, co_dataset *input, co_inner_fn fn,
                                         void *user, co_value *spec,
                                         const co_interleave_options *options);
/** Returns a dataset made from one. */
typedef co_dataset *(*co_apply_fn)(co_context *ctx, co_dataset *input, void *user);
/** What fn makes of the input, now: parts of a pipeline as functions. CO_TYPE_ERROR if it is no
 * dataset. */
CO_API co_dataset *co_dataset_apply(co_context *ctx, co_dataset *input, co_apply_fn fn, void *user);
#define CO_STAGE_NAME_MAX 32
/**
 * Give the stage that made `dataset` a name of its own, and return the dataset: "map 'decode'" in
 * errors, statistics and co_dataset_explain, where there are several maps. Of up to 31 bytes, ""
 * takes it away; CO_INVALID_ARGUMENT for more. Before the dataset is iterated over or built upon.
 * Names are not part of checkpoints. Of a distributed dataset it is the name of the whole,
 * "distributed 'train'"; the stages in it keep theirs.
 *
 *     images = co_dataset_set_name(ctx, co_dataset_map(ctx, files, decode, NULL, spec), "decode");
 */
CO_API co_dataset *co_dataset_set_name(co_context *ctx, co_dataset *dataset, const char *name);
/**
 * The same elements with the cardinality that the caller knows. CO_FAILED_PRECONDITION from co_next
 * when there are more or fewer, once; then the end. If several workers divide the files or the
 * elements (FILE, DATA), the stage is not applied, because the number is that of the whole.
 * Rules: DS-SHARD-16.
 */
CO_API co_dataset *co_dataset_assert_cardinality(co_context *ctx, co_dataset *input,
                                                 int64_t cardinality);
/**
 * The elements kept in memory: the first iterator that comes to the end has read the input for all
 * later ones, of every context. One that is left before, or has an error, keeps nothing.
 */
CO_API co_dataset *co_dataset_cache(co_context *ctx, co_dataset *input);
/**
 * The same elements, of which up to buffer_size (-1: as many as are useful; at most 65536) are made
 * before they are asked for, by a thread of the iterator: see "Prefetching" above. Nothing
 * changes with a size of 0, and where elements are only cut from memory (a range, slices), which
 * costs less than handing them over. CO_INVALID_ARGUMENT below -1.
 */
CO_API co_dataset *co_dataset_prefetch(co_context *ctx, co_dataset *input, int64_t buffer_size);

/** In place of the numbers of a shard: CO_AUTOSHARD_HINT fills them in.
 * Rules: DS-SHARD-9. */
#define CO_SHARD_HINT (-1)
/** Elements index, index + num_shards, ...; CO_INVALID_ARGUMENT unless 0 <= index < num_shards. */
CO_API co_dataset *co_dataset_shard(co_context *ctx, co_dataset *input, int64_t num_shards,
                                    int64_t index);

typedef enum co_autoshard {
    CO_AUTOSHARD_OFF = -1,   /* every worker reads everything */
    CO_AUTOSHARD_AUTO = 0,   /* FILE where that is possible, else DATA */
    /* whole files go to workers; CO_NOT_FOUND for other sources, and for scan, take_while and
     * unique, behind which it does not search for files, as in TensorFlow */
    CO_AUTOSHARD_FILE = 1,
    CO_AUTOSHARD_DATA = 2,   /* every worker runs the pipeline and takes its slices in turn */
    CO_AUTOSHARD_HINT = 3,   /* the shard step with CO_SHARD_HINT is filled in */
    CO_AUTOSHARD_REPLICA = 4 /* ours: as DATA, but slice k of each batch goes to replica k, so that
                              * a run gives the same bits on any number of workers */
} co_autoshard;
/**
 * How distribution shards this dataset over workers. The last setting counts. It also decides how
 * batches are split over replicas, even with one worker, as in TensorFlow. DATA and REPLICA split
 * each batch evenly: 28 rows for two replicas into 14 and 14. OFF, FILE and HINT split the stream
 * of rows by the batch size: if batches have 64 rows, a last batch of 28 rows is split into 28 and
 * 0. AUTO is FILE for files and DATA for memory, so it splits the same rows in two ways. REPLICA
 * always splits them in the same way. co_dataset_explain says which splitter is used.
 * Rules: DS-SHARD-*, DS-SPLIT-3.
 */
CO_API co_dataset *co_dataset_with_autoshard(co_context *ctx, co_dataset *input,
                                             co_autoshard policy);

/* Looking. */

/** The number of elements, CO_INFINITE or CO_UNKNOWN_CARDINALITY; for a distributed dataset, the
 * number of the dataset that was distributed.
 * Rules: DS-DIST-4. */
CO_API int64_t co_cardinality(co_context *ctx, const co_dataset *dataset);
/** The structure of one element, specs as leaves; distributed: per-replica specs.
 * Rules: DS-SPEC-*. */
CO_API co_value *co_element_spec(co_context *ctx, co_dataset *dataset);
/** Rows of one element: of the last batch step, or dimension 0; CO_UNKNOWN_BATCH_SIZE. */
CO_API int64_t co_dataset_batch_size(co_context *ctx, const co_dataset *dataset);

/*
 * Distributing.
 *
 * Unequal shares. Replicas of a strategy with weights get their share of every batch: of m rows,
 * replicas 0 to k together get the first ceil(m * (weights 0 to k) / (all weights)), so every row
 * is read once and nobody's piece is a whole row away from the exact share. Where pieces are cut
 * from the stream of rows (policies OFF, FILE and HINT), they are so cut from the batch size, and a
 * replica's piece has that size in every step. With DATA each slice has the weight of its reader.
 * Equal weights have no effect. With weights the batch dimension of element specs is unknown.
 *
 * What counts rows stays right: MEAN of co_reduce with an axis, co_average_loss,
 * co_iterator_step_examples. What counts replicas does not weigh: MEAN without an axis, of
 * co_all_reduce and of variables, and co_per_replica_batch_size. Datasets from a function are not
 * split; they use co_replica_weight.
 * Rules: DS-SPLIT-1 to DS-SPLIT-3.
 */

/** tf.distribute.InputReplicationMode: how often a dataset function is called. */
typedef enum co_input_replication_mode {
    CO_INPUT_PER_WORKER = 0,
    CO_INPUT_PER_REPLICA = 1
} co_input_replication_mode;

typedef struct co_input_options {
    size_t struct_size;
    bool   fetch_to_device; /* elements go to the replica's device; false: they stay on the host */
    bool   per_replica;     /* one dataset per replica: CO_INPUT_PER_REPLICA, else per worker */
    bool   place_dataset_on_device; /* with per_replica and without fetch_to_device only */
    /* elements prefetched for each replica, on its device, where they cost something (functions,
     * files); 0: none. It does not change the data: see "Prefetching" */
    int    per_replica_buffer_size;
} co_input_options;
#define CO_INPUT_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(co_input_options), true, false, false, 1                                            \
    }

/**
 * Split every global batch over the replicas, and shard over workers by the dataset's policy. The
 * result can be iterated and inspected, but not transformed. The default strategy returns the same
 * dataset.
 *
 * Context:  any.
 * Returns:  a dataset of ctx's block, or NULL with CO_VALUE_ERROR (elements are not batched and
 *           there are several replicas; options that exclude each other), CO_UNIMPLEMENTED
 *           (per_replica), CO_NOT_FOUND (policy FILE without files).
 * Rules: DS-SPLIT-*, DS-SHARD-*, DEF-3.
 */
CO_API co_dataset *co_distribute_dataset(co_context *ctx, co_strategy *strategy,
                                         co_dataset *dataset, const co_input_options *options);

/** Describes its input pipeline to a dataset function; lives during the call. You may make one too
 * (co_dataset_for_worker): its three fields will not change. */
typedef struct co_input_context {
    int num_input_pipelines;
    int input_pipeline_id;
    int num_replicas_in_sync;
} co_input_context;
/** global / num_replicas_in_sync; CO_VALUE_ERROR, which names both, if there is a remainder. It
 * does not consider unequal shares.
 * Rules: IC-2. */
CO_API int64_t co_per_replica_batch_size(co_context *ctx, const co_input_context *input,
                                         int64_t global);
/** Text for people: the id and the total. Returns the length, as co_format does.
 * Rules: IC-3. */
CO_API size_t co_input_context_format(co_context *ctx, const co_input_context *input, char *out,
                                      size_t capacity);
typedef co_dataset *(*co_dataset_fn)(co_context *ctx, const co_input_context *input, void *user);
/**
 * Call fn once per worker, now, in the caller's context with the host as the current device. No
 * splitting, no sharding: at every step each replica takes the next element of its worker's
 * dataset. With options->per_replica fn is called once per replica, and each replica reads only its
 * own dataset. CO_TYPE_ERROR if fn is NULL or does not return a dataset.
 * Rules: DS-FN-*, IO-4.
 */
CO_API co_dataset *co_distribute_datasets_from_function(co_context *ctx, co_strategy *strategy,
                                                        co_dataset_fn fn, void *user,
                                                        const co_input_options *options);

/* The parts that distribution is made of, for looking at what a worker will read. */

/**
 * What worker input_pipeline_id reads of a dataset distributed over num_replicas_in_sync replicas:
 * sharded and split; its replicas take the elements in turn. CO_VALUE_ERROR if the replicas cannot
 * be divided evenly among the pipelines.
 */
CO_API co_dataset *co_dataset_for_worker(co_context *ctx, co_dataset *dataset,
                                         const co_input_context *input);
/** The share of worker `index` by the dataset's policy, without splitting batches. */
CO_API co_dataset *co_dataset_auto_shard(co_context *ctx, co_dataset *dataset, int num_workers,
                                         int index);
/** The cycle of piece sizes of a worker: num_workers * replicas_per_worker numbers.
 * Rules: DS-SPLIT-2. */
CO_API co_code co_batch_sizes_for_worker(co_context *ctx, int64_t global_batch_size,
                                         int num_workers, int replicas_per_worker, int worker,
                                         int64_t *sizes);

/*
 * Explaining: what a pipeline is, who reads what of it when it is distributed, and why. Nothing is
 * read, no function is called, and nothing is logged. (Distributing over several workers logs the
 * decision in one line, CO_LOG_INFO; over one worker, nothing.)
 */

/**
 * The pipeline as a tree for people, from the stage that gives the elements down to the sources:
 * arguments of each stage, how much it prefetches, and how many elements it gives. Of a distributed
 * dataset, the decisions come first: how it is divided among workers and why, how batches are
 * split over replicas, and (in the tree) what distribution added where:
 *
 *     worker 1 of 2, replicas 2 to 3 of 4
 *     sharding: AUTO becomes DATA, because the source range reads no files: every worker runs the whole pipeline, ...
 *     splitting: CEIL, because AUTO becomes DATA (...): each batch is cut for 4 replicas, 10 rows into 3, 3, 3, 1
 *     shard 1 of 2 -> 20 elements (added by distribution)
 *       split -> 40 elements (added by distribution)
 *         batch of 10 -> 10 elements
 *           range from 0, step 1 -> 100 elements
 *
 * input: NULL; or, for a dataset that is not distributed, the worker of a distribution to explain
 * it for, as in co_dataset_for_worker. Up to 1000 stages are shown; a stage that is in the pipeline
 * twice is shown twice; datasets that functions make are not shown. Lines are cut at 400 bytes;
 * control characters in names of files become '?'.
 *
 * Returns:  the length of the text, as co_format does; 0 with CO_INVALID_ARGUMENT (a distributed
 *           dataset has its workers: input must be NULL), or with the errors of
 *           co_dataset_for_worker, which are those of distributing it so.
 */
CO_API size_t co_dataset_explain(co_context *ctx, const co_dataset *dataset,
                                 const co_input_context *input, char *out, size_t capacity);

/** Where an example goes; see co_dataset_explain_example. */
typedef struct co_example_place {
    size_t  struct_size;
    int     worker;
    int     replica; /* of those of all workers */
    int64_t step;    /* counted from 0: with the step-th element after the first of co_next */
    int64_t row;     /* of what the replica gets; 0 where that is the example alone */
} co_example_place;
#define CO_EXAMPLE_PLACE_INIT                                                                      \
    {                                                                                              \
        sizeof(co_example_place), 0, 0, 0, 0                                                       \
    }
/**
 * Who gets example number `example`, at which step, in which row:
 *
 *     for (size_t i = 0; i < 3 && co_dataset_explain_example(ctx, ds, NULL, 17, i, &place); ++i)
 *
 * Examples are the elements of the source (numbers of a range, slices, records), counted from 0;
 * through concatenate those of the second follow those of the first, of a zip those of the first
 * input are counted. Where the source does not know its length (files, generators, a filter), they
 * are counted at the co_dataset_assert_cardinality behind it. An example may come several times
 * (repeat; every worker under the policy OFF): `occurrence` counts from 0, step by step and in a
 * step as the batch has them. dataset and input are those of co_dataset_explain; NULL for a plain
 * dataset: one worker with one replica.
 *
 * The pipeline is followed with numbers in place of data, so nothing is read and no function is
 * called: map and scan are trusted to keep examples, and the rows of batches, where they are. An
 * order that a shuffle takes from its seed alone (no reshuffle_each_iteration) is followed too.
 *
 * Returns:  whether it comes so often, *place filled. false without an error: it does not (it is
 *           skipped, dropped with a remainder, not taken).
 *           CO_OUT_OF_RANGE         there is no such example
 *           CO_FAILED_PRECONDITION  nobody can tell without reading; the message names the stage
 *                                   and says why: functions that choose or make elements (filter,
 *                                   flat_map, interleave, ...), windows, unique, a shuffle that
 *                                   reshuffles, calls in parallel that are not deterministic,
 *                                   sources of unknown length, whole files for workers (FILE),
 *                                   datasets from a function, examples that are split themselves
 *                                   because nothing batches them
 *           CO_RESOURCE_EXHAUSTED   it was not found in 3 million examples that are made one by one,
 *                                   67 million in batches of hundreds, or batches are of more than
 *                                   16 million. That is with one stage behind the source; with n of
 *                                   them, maps not counted, these are divided by 1 + n / 2 (without
 *                                   its remainder). The message has the numbers of this pipeline.
 *                                   Each call starts again from the begin
 *           and the errors of distributing the dataset so.
 */
CO_API bool co_dataset_explain_example(co_context *ctx, const co_dataset *dataset,
                                       const co_input_context *input, int64_t example,
                                       size_t occurrence, co_example_place *place);

/* Iterating. */

/** An iterator at the beginning, for plain and distributed datasets alike. Reads nothing yet. */
CO_API co_iterator *co_iterate(co_context *ctx, co_dataset *dataset);
/**
 * The next element, as a value of ctx's block; NULL without an error at the end, again and again.
 * An error of the pipeline surfaces unchanged, and iteration may go on after it.
 *
 * Of a distributed dataset: per-replica leaves with one component per local replica, on its device;
 * plain leaves when there is one replica in all.
 *
 * Scope:    collective over processes for a distributed dataset: all workers end at the same step.
 * Context:  any for a plain dataset. Distributed: default mode or cross-replica context of its
 *           strategy; CO_VALUE_ERROR in a replica (pass the element to run instead),
 *           CO_RUNTIME_ERROR under another strategy.
 * Blocks:   while files are read and functions run, and until the other processes have arrived.
 * Returns:  the element; NULL without an error at the end; or NULL with CO_CANCELLED
 *           (co_iterator_cancel) or the error of the pipeline: that of a function, those of
 *           files.h, CO_INVALID_ARGUMENT or CO_TYPE_ERROR for elements that do not fit a stage.
 * Rules: DS-ITER-*, MW-13.
 */
CO_API co_value *co_next(co_context *ctx, co_iterator *iterator);
/**
 * A loop over what is left of an iterator (evaluated once), with a block of its own for each
 * element:
 *
 *     CO_EACH(ctx, x, co_iterate(ctx, dataset)) {
 *         co_run(ctx, strategy, step, co_args(ctx, x), NULL);
 *     }
 *
 * It ends after the last element, or with an error in ctx. `break` ends it before, and the element
 * with its block; the body may be left in any way, as that of CO_BLOCK.
 */
#define CO_EACH(ctx, element, iterator)                                                            \
    for (co_iterator * CO_NAME_HERE(co_at_) = (iterator),                                          \
                       **CO_NAME_HERE(co_go_) = &CO_NAME_HERE(co_at_);                             \
         CO_NAME_HERE(co_go_) != NULL; CO_NAME_HERE(co_go_) = NULL)                                \
        for (co_statement CO_NAME_HERE(co_statement_)                                              \
                 CO_CLEANUP(co_statement_leave) = co_statement_block(ctx);                           \
             CO_NAME_HERE(co_statement_).id != 0;                                                  \
             co_statement_end(&CO_NAME_HERE(co_statement_)))                                       \
            for (co_value *element = co_next(ctx, CO_NAME_HERE(co_at_)); (element) != NULL;        \
                 co_statement_again(ctx, &CO_NAME_HERE(co_statement_)),                            \
                           (element) = co_next(ctx, CO_NAME_HERE(co_at_)))
/** co_next, but the end is the error CO_OUT_OF_RANGE. */
CO_API co_value *co_get_next(co_context *ctx, co_iterator *iterator);
/** co_next, but the result is an optional, which is empty at the end. */
CO_API co_value *co_get_next_as_optional(co_context *ctx, co_iterator *iterator);
/**
 * An iterator as a value, as co_dataset_value is one: a captured function reads the iterator that
 * each call brings, and keeps the one that it was captured with. co_value_iterator gives the iterator of a value, as a handle of ctx's block;
 * CO_TYPE_ERROR for anything else.
 */
CO_API co_value    *co_iterator_value(co_context *ctx, co_iterator *iterator);
CO_API co_iterator *co_value_iterator(co_context *ctx, co_value *value);
/** Whether an optional (a tuple of one item or none) holds a value. */
CO_API bool co_optional_has_value(co_context *ctx, const co_value *optional);
/**
 * The same as a bool scalar, which a captured function can compute with: there co_optional_has_value
 * is CO_TYPE_ERROR, because its answer differs between calls.
 * Rules: DS-ITER-3, FN-13.
 */
CO_API co_value *co_optional_has_value_tensor(co_context *ctx, co_value *optional);
/** The value of an optional; CO_INVALID_ARGUMENT if it is empty. */
CO_API co_value *co_optional_get_value(co_context *ctx, co_value *optional);

/**
 * fn(... fn(fn(initial, first), second) ..., last), for distributed datasets too.
 *
 * Scope:    collective over processes for a distributed dataset.
 * Context:  that of co_next.
 * Blocks:   until the dataset ends, as co_next does for each element.
 * Returns:  the last state, or NULL with the error of fn or of co_next.
 * Rules: DS-ITER-9.
 */
CO_API co_value *co_dataset_reduce(co_context *ctx, co_dataset *dataset, co_value *initial,
                                   co_fold_fn fn, void *user);

/*
 * Checkpoints of iterators: where an iterator is, as bytes that can be kept in a file.
 *
 *     checkpoint = co_iterator_save(ctx, iterator);
 *     ...                                              another day, another process:
 *     iterator = co_iterator_restore(ctx, the_same_dataset, checkpoint);
 *
 * The checkpoint has what every stage needs to go on: numbers of elements, offsets in files, the
 * elements in shuffle buffers and the state of their random numbers, what a cache or unique has
 * kept. Nothing is read again, but a compressed file, which is decompressed up to its offset.
 * Functions are not in it: a generator is asked for the elements that follow by their index, and
 * the functions of flat_map and interleave are called again for the datasets that are being read.
 */

/**
 * A checkpoint behind the last element that was given: a host string of bytes, of ctx's block. The
 * iterator goes on as before. The size is that of the elements that stages hold. Of a distributed
 * dataset it is this worker's; every worker saves its own.
 *
 * Scope:    this process.
 * Context:  that of co_next; CO_RUNTIME_ERROR in a replica, or in a function of the pipeline
 *           itself.
 * Blocks:   until threads that prefetch have finished their current element.
 * Returns:  a string, or NULL with CO_UNIMPLEMENTED: the state of a scan holds what is no tensor
 *           or number, or is built in another way than its initial value (keep such a state as
 *           tensors); or it is an iterator of v1.h, which has none. CO_FAILED_PRECONDITION: it was
 *           cancelled in the middle of an element, and elements that a stage had gathered for it
 *           are gone (see co_iterator_cancel); the message names the stage.
 */
CO_API co_value *co_iterator_save(co_context *ctx, co_iterator *iterator);
/**
 * A new iterator of `dataset`, which gives what the one that was saved had still to give. The
 * dataset is built as that one was, in this process or another: kinds of stages, their numbers,
 * specs, workers and replicas are compared, functions, tensors and names of files are not.
 * checkpoint is a string, or a tensor of one. Other iterators stay as they are; when the iterator
 * is first asked, rounds of every shuffle of the pipeline that reshuffles are counted on from the
 * checkpoint, and a dataset whose cache is empty takes that of a checkpoint that has all of it. (A
 * shuffle that only a function of the pipeline knows counts on if a dataset with it is being read
 * by flat_map or interleave when the checkpoint is saved.)
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while a compressed file is read up to its offset.
 * Returns:  an iterator of ctx's block, or NULL, and nothing has changed:
 *           CO_INVALID_ARGUMENT  the bytes are not a checkpoint, or of another pipeline or version;
 *                                the message names the stage
 *           CO_DATA_LOSS         the bytes were changed or cut off; or a file is shorter than it
 *                                was
 *           CO_NOT_FOUND         the file that is being read is not there any more, and other
 *                                errors of opening it
 *           CO_TYPE_ERROR        checkpoint is not a string
 */
CO_API co_iterator *co_iterator_restore(co_context *ctx, co_dataset *dataset, co_value *checkpoint);

/** What a stage of an iterator has done so far. */
typedef struct co_stage_stats {
    size_t      struct_size;
    /* "map", or as co_dataset_set_name made it; lives as long as the iterator */
    const char *name;
    int         depth;      /* 0: the stage that gives the elements; 1: its inputs, and so on */
    int64_t     elements;   /* that it gave to the stage after it */
    int64_t     bytes;      /* in them */
    /* in functions of the user and in reading files, of all its threads together */
    int64_t     working_ns;
    /* for prefetched elements that were not there yet: the loop was faster */
    int64_t     waiting_ns;
    int64_t     dropped_rows; /* of the first stage: co_iterator_dropped_rows */
} co_stage_stats;
#define CO_STAGE_STATS_INIT                                                                        \
    {                                                                                              \
        sizeof(co_stage_stats), NULL, 0, 0, 0, 0, 0, 0                                             \
    }
/**
 * Stage number `stage`, from the end of the pipeline to its sources, 64 of them at most; false if
 * there is none of that number, or with an error. A dataset that is in the pipeline twice is one
 * stage; datasets that functions make are not counted.
 *
 *     for (size_t i = 0; co_iterator_stats(ctx, iterator, i, &stats); ++i) ...
 */
CO_API bool co_iterator_stats(co_context *ctx, const co_iterator *iterator, size_t stage,
                              co_stage_stats *stats);
/** All of them as a table for people. Returns the length, as co_format does. */
CO_API size_t co_iterator_stats_format(co_context *ctx, const co_iterator *iterator, char *out,
                                       size_t capacity);
/**
 * Let every call that asks this iterator for an element fail with CO_CANCELLED from now on, also
 * one that is waiting; a function or a read that is at work comes to its end first. Any thread may
 * call it, on a context of its own, while the iterator lives.
 *
 * A program that is told to stop may cancel and then save: what stages have gathered for an element
 * that is broken off is part of the checkpoint, and is given after restoring. Two kinds of stages
 * drop it: co_dataset_rebatch, and steps of distributed datasets that several workers make
 * together. co_iterator_save rejects an iterator that was cancelled there; it never loses
 * elements. If that matters, save before cancelling, or cancel between two elements.
 */
CO_API co_code   co_iterator_cancel(co_context *ctx, co_iterator *iterator);
CO_API co_value *co_iterator_element_spec(co_context *ctx, co_iterator *iterator);
/** Rows that were dropped because not every replica could be served.
 * Rules: DS-PART-4, DS-PART-5. */
CO_API int64_t co_iterator_dropped_rows(co_context *ctx, const co_iterator *iterator);
/** Examples of the last element on all replicas of all workers; -1 before the first. */
CO_API int64_t co_iterator_step_examples(co_context *ctx, const co_iterator *iterator);

CO_EXTERN_C_END

#endif
