/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributed datasets: what the replicas of this worker read, as one per-replica value for each
 * step. Splitting and sharding are datasets of data/; here every local replica takes the next piece
 * of the worker's dataset, replicas without one get an empty element, and the workers agree on when
 * to end (DS-PART, DS-ITER, MW-13).
 */
#include "ops/engine/call_recording.h"
#include "strategy/distributed_input.h"

#include <cohort/dataset.h>

#include "data/prefetcher.h"
#include "data/iterator_checkpoint.h"
#include "strategy/workers.h"

#include <stdio.h>
#include <string.h>

typedef struct input_dataset {
    co_dataset   base;     /* inputs: one for the worker, or one per local replica */
    co_strategy *strategy; /* a reference */
    co_dataset  *origin;   /* what was distributed, a reference; NULL: a function made the inputs */
    bool         plain;    /* one replica in all: elements are not wrapped */
    bool         partial;  /* a replica without data gets an empty element (DS-PART-1) */
    bool         fetch;    /* components go to the replica's device; else they stay on the host */
} input_dataset;

/* Elements prefetched from a source are placed for one replica, or (-1) for all of them in turn. */
typedef struct placing {
    const co_iterator *iterator;
    int64_t            replica;
} placing;

typedef struct input_iterator {
    co_iterator   base;
    co_iterator **sources;  /* one per input */
    co_value    **parts;    /* of the step being made: num_leaves per local replica, NULL: none */
    co_device   **devices;  /* of the local replicas; NULL until the first step */
    placing      *placings; /* one per input */
    int64_t      *numbers;  /* one per worker */
    bool          ended;
} input_iterator;

static int
num_local(const co_iterator *iterator)
{
    return ((const input_dataset *)iterator->dataset)->strategy->num_local;
}

/* --- life --- */

static void
input_destroy(coi_heap *heap, co_dataset *dataset)
{
    coi_unref(heap, ((input_dataset *)dataset)->origin);
    coi_unref(heap, ((input_dataset *)dataset)->strategy);
}

/* One block with the arrays of an iterator, in their order. */
static size_t
room_size(const co_iterator *iterator, size_t *num_parts)
{
    const co_strategy *strategy = ((const input_dataset *)iterator->dataset)->strategy;
    size_t             local = (size_t)strategy->num_local;

    *num_parts = local * iterator->dataset->num_leaves;
    return (iterator->dataset->num_inputs + *num_parts + local) * sizeof(void *) +
           iterator->dataset->num_inputs * sizeof(placing) +
           (size_t)strategy->num_workers * sizeof(int64_t);
}

static bool place_prefetcher(co_context *ctx, void *user, int64_t index, co_value **part);

static co_code
input_open(co_context *ctx, co_iterator *iterator)
{
    input_iterator *self = (input_iterator *)iterator;
    size_t          num_sources = iterator->dataset->num_inputs;
    size_t          num_parts, nbytes = room_size(iterator, &num_parts);

    self->sources = coi_small_alloc(&ctx->heap, nbytes);
    if (self->sources == NULL)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for an iterator (distributed)");
    memset(self->sources, 0, nbytes);
    self->parts = (co_value **)(void *)(self->sources + num_sources);
    self->devices = (co_device **)(void *)(self->parts + num_parts);
    self->placings = (placing *)(void *)(self->devices + num_local(iterator));
    self->numbers = (int64_t *)(void *)(self->placings + num_sources);
    for (size_t i = 0; i < num_sources; ++i) {
        self->sources[i] = coi_iterator_new(ctx, iterator->dataset->inputs[i], iterator->stats);
        if (self->sources[i] == NULL)
            return ctx->error.code;
        self->placings[i] = (placing){ iterator, num_sources > 1 ? (int64_t)i : -1 };
        coi_prefetch_place(self->sources[i], place_prefetcher, &self->placings[i]);
    }
    return CO_OK;
}

static void
input_close(coi_heap *heap, co_iterator *iterator)
{
    input_iterator *self = (input_iterator *)iterator;
    size_t          num_parts, nbytes = room_size(iterator, &num_parts);

    if (self->sources == NULL)
        return;
    coi_leaves_release(heap, self->parts, num_parts);
    for (size_t i = 0; i < iterator->dataset->num_inputs; ++i)
        coi_unref(heap, self->sources[i]);
    coi_small_free(heap, self->sources, nbytes);
}

/* --- one step --- */

bool
coi_check_input_mode(co_context *ctx, const co_strategy *strategy)
{
    char own[COI_STRATEGY_TEXT], current[COI_STRATEGY_TEXT];

    if (ctx->mode.strategy == NULL)
        return true;
    if (ctx->mode.strategy != strategy) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "mixing strategies: an iterator of %s is asked for its next element while %s is "
                 "current; "
                 "leave that scope first",
                 coi_strategy_text(strategy, own), coi_strategy_text(ctx->mode.strategy, current));
        return false;
    }
    if (!ctx->mode.cross) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "the next element of a distributed dataset is taken outside the step: call co_next "
            "before "
            "co_run and pass the element in its arguments");
        return false;
    }
    return true;
}

static void
drop_parts(co_context *ctx, co_iterator *iterator)
{
    size_t n = (size_t)num_local(iterator) * iterator->dataset->num_leaves;

    coi_leaves_release(&ctx->heap, ((input_iterator *)iterator)->parts, n);
}

/* Whether a replica already has its part of a step that was cancelled before the others had theirs.
 */
static bool
has_part(const co_iterator *iterator, size_t replica)
{
    size_t num_leaves = iterator->dataset->num_leaves;

    return num_leaves > 0 &&
           ((const input_iterator *)iterator)->parts[replica * num_leaves] != NULL;
}

/* Let every replica, in order, take its element. Returns how many got one; *rows is the number of
 * rows of all. */
static int
fetch(co_context *ctx, co_iterator *iterator, int64_t *rows)
{
    input_iterator *self = (input_iterator *)iterator;
    size_t          num_leaves = iterator->dataset->num_leaves;
    int             served = 0;

    *rows = 0;
    for (int r = 0; r < num_local(iterator); ++r) {
        co_iterator *source = self->sources[iterator->dataset->num_inputs > 1 ? r : 0];
        co_value   **part = self->parts + (size_t)r * num_leaves;
        int          got = has_part(iterator, (size_t)r) ? COI_ELEMENT
                                                         : coi_iterator_next(ctx, source, part);

        if (got < 0)
            return COI_ERROR;
        if (got == COI_END)
            continue;
        ++served;
        *rows += coi_leaves_rows(part, num_leaves);
    }
    return served;
}

/*
 * Tell the other workers how many rows this one has (-1: no element), or that it failed so that
 * none waits for it, and learn theirs. Returns the rows of the whole step, -1 when no worker has
 * an element, -2 with an error.
 */
static int64_t
agree(co_context *ctx, co_iterator *iterator, int served, int64_t rows)
{
    input_iterator *self = (input_iterator *)iterator;
    co_strategy    *strategy = ((input_dataset *)iterator->dataset)->strategy;
    bool            ok = served >= 0;
    int64_t         total = -1;

    if (strategy->num_workers == 1)
        return served < 0 ? -2 : served == 0 ? -1 : rows;
    if (ok)
        ok = coi_workers_agree(ctx, strategy, COI_RENDEZVOUS_INPUT, iterator->dataset->num_leaves,
                               "the next element of a distributed dataset", served > 0 ? rows : -1,
                               self->numbers);
    else
        coi_workers_abort(ctx, strategy);
    for (int w = 0; ok && w < strategy->num_workers; ++w)
        if (self->numbers[w] >= 0)
            total = (total < 0 ? 0 : total) + self->numbers[w];
    return ok ? total : -2;
}

static co_device *
device_of(co_context *ctx, co_iterator *iterator, int replica)
{
    const input_dataset *input = (const input_dataset *)iterator->dataset;
    input_iterator      *self = (input_iterator *)iterator;

    if (self->devices[replica] != NULL)
        return self->devices[replica];
    if (!input->fetch) {
        self->devices[replica] = coi_data_device(ctx);
    } else if (coi_devices_find(ctx->runtime->devices, &input->strategy->devices[replica],
                                &self->devices[replica], coi_err(ctx)) != CO_OK) {
        self->devices[replica] = NULL;
        coi_failed(ctx);
    }
    return self->devices[replica];
}

/* Move what a replica got to its device. */
static bool
place(co_context *ctx, co_device *device, co_value **part, size_t num_leaves)
{
    for (size_t i = 0; i < num_leaves; ++i) {
        co_value *here;

        if (part[i]->u.tensor.device == device)
            continue;
        here = coi_copy_tensor(ctx, part[i], device);
        if (here == NULL) {
            coi_failed(ctx);
            return false;
        }
        coi_unref(&ctx->heap, part[i]);
        part[i] = here;
    }
    return true;
}

/*
 * On the thread that prefetches (DS-PREF-1): the replica that will take the element has its device
 * known since the first step. Where several share a source and one failed before, another takes it,
 * and moves it once more.
 */
static bool
place_prefetcher(co_context *ctx, void *user, int64_t index, co_value **part)
{
    const placing     *to = user;
    const co_iterator *iterator = to->iterator;
    int64_t            replica = to->replica < 0 ? index % num_local(iterator) : to->replica;

    return place(ctx, ((const input_iterator *)iterator)->devices[replica], part,
                 iterator->dataset->num_leaves);
}

/* The devices of all local replicas, before anything is read. */
static bool
find_devices(co_context *ctx, co_iterator *iterator)
{
    for (int r = 0; r < num_local(iterator); ++r)
        if (device_of(ctx, iterator, r) == NULL)
            return false;
    return true;
}

/* The element of a replica without data (DS-PART-2): unknown dimensions become 0, else dimension 0;
 * a scalar is zero. */
static co_value *
empty_leaf(co_context *ctx, co_device *device, const co_value *spec)
{
    int64_t   dims[CO_MAX_DIMS];
    int64_t   count = spec->ndim == 0 ? 1 : 0;
    bool      unknown = false;
    co_value *leaf;

    for (int i = 0; i < spec->ndim; ++i) {
        dims[i] = spec->u.tensor.dims[i] < 0 ? 0 : spec->u.tensor.dims[i];
        unknown = unknown || spec->u.tensor.dims[i] < 0;
    }
    if (spec->ndim != 0 && !unknown)
        dims[0] = 0;
    leaf = coi_tensor_new(&ctx->heap, device, (co_dtype)spec->dtype, dims,
                          spec->ndim < 0 ? 1 : spec->ndim, count, coi_err(ctx));
    if (leaf == NULL)
        coi_failed(ctx);
    else if (count == 1 && spec->dtype != CO_STRING &&
             coi_tensor_clear(leaf, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        coi_unref(&ctx->heap, leaf);
        return NULL;
    }
    return leaf;
}

static bool
fill_empty(co_context *ctx, co_iterator *iterator, co_device *device, int replica, co_value **part)
{
    const co_dataset *dataset = iterator->dataset;

    for (size_t i = 0; i < dataset->num_leaves; ++i) {
        const co_value *spec = coi_part_of(dataset->specs[i], (size_t)replica);

        part[i] = empty_leaf(ctx, device, spec);
        if (part[i] == NULL)
            return false;
    }
    return true;
}

/* Every replica's part where it belongs. */
static bool
complete(co_context *ctx, co_iterator *iterator)
{
    size_t num_leaves = iterator->dataset->num_leaves;

    for (int r = 0; r < num_local(iterator); ++r) {
        co_value **part = ((input_iterator *)iterator)->parts + (size_t)r * num_leaves;
        co_device *device = ((input_iterator *)iterator)->devices[r];

        if (part[0] == NULL ? !fill_empty(ctx, iterator, device, r, part)
                            : !place(ctx, device, part, num_leaves))
            return false;
    }
    return true;
}

/* Make the parts the leaves of the element; the parts are used up. */
static bool
wrap(co_context *ctx, co_iterator *iterator, int64_t rows, co_value **leaves)
{
    const input_dataset *input = (const input_dataset *)iterator->dataset;
    co_value           **parts = ((input_iterator *)iterator)->parts;
    size_t               num_leaves = input->base.num_leaves, local = (size_t)num_local(iterator);

    for (size_t i = 0; i < num_leaves; ++i) {
        if (input->plain) {
            leaves[i] = parts[i];
            parts[i] = NULL;
            continue;
        }
        leaves[i] = coi_per_replica_new(&ctx->heap, CO_KIND_PER_REPLICA, local, coi_err(ctx));
        if (leaves[i] == NULL) {
            coi_failed(ctx);
            coi_leaves_release(&ctx->heap, leaves, i);
            return false;
        }
        leaves[i]->u.per_replica.step_examples = rows;
        for (size_t r = 0; r < local; ++r) {
            leaves[i]->u.per_replica.items[r] = parts[r * num_leaves + i];
            parts[r * num_leaves + i] = NULL;
        }
    }
    return true;
}

/* DS-PART-4, DS-PART-5: the rows of a step that cannot serve every replica are counted, reported
 * and dropped. */
static void
drop_step(co_context *ctx, co_iterator *iterator, int served, int64_t rows)
{
    iterator->dropped_rows += rows;
    coi_log_line(
        &ctx->runtime->log, CO_LOG_INFO,
        "a distributed dataset ends and %lld row%s %s dropped: its last step could serve %d of %d "
        "replicas, and elements of static shape are not filled up",
        (long long)rows, COI_S(rows), rows == 1 ? "is" : "are", served, num_local(iterator));
}

/* After a cancellation, what some replicas have got is part of the checkpoint. Of several workers
 * the others drop theirs, so there the step is lost for all. */
static bool
keep_parts(co_context *ctx, co_iterator *iterator)
{
    if (!coi_was_cancelled(ctx))
        return false;
    if (((input_dataset *)iterator->dataset)->strategy->num_workers == 1)
        return true;
    coi_mark_not_checkpointable(ctx, iterator);
    return false;
}

static int
input_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const input_dataset *input = (const input_dataset *)iterator->dataset;
    input_iterator      *self = (input_iterator *)iterator;
    int64_t              rows = 0, total;
    int                  served;
    bool                 made;

    if (!coi_check_input_mode(ctx, input->strategy))
        return COI_ERROR;
    if (self->ended)
        return COI_END;
    served = find_devices(ctx, iterator) ? fetch(ctx, iterator, &rows) : COI_ERROR;
    total = agree(ctx, iterator, served, rows);
    if (total >= 0 && served < num_local(iterator) && !input->partial) {
        drop_step(ctx, iterator, served, rows);
        total = -1;
    }
    if (total < 0) {
        if (!keep_parts(ctx, iterator))
            drop_parts(ctx, iterator);
        self->ended = total == -1;
        return self->ended ? COI_END : COI_ERROR;
    }
    made = complete(ctx, iterator) && wrap(ctx, iterator, total, leaves);
    drop_parts(ctx, iterator);
    if (!made)
        return COI_ERROR;
    iterator->step_examples = total;
    return COI_ELEMENT;
}

static bool
part_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p, size_t replica)
{
    const co_dataset *dataset = iterator->dataset;
    const co_dataset *source = dataset->inputs[dataset->num_inputs > 1 ? replica : 0];
    co_value        **part = ((input_iterator *)iterator)->parts + replica * dataset->num_leaves;
    bool              is_there = has_part(iterator, replica);

    return coi_checkpoint_flag(ctx, p, &is_there) &&
           (!is_there || coi_checkpoint_leaves(ctx, p, source, part));
}

/* Of this worker: every one saves and restores its own. */
static bool
input_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    input_iterator *self = (input_iterator *)iterator;
    bool            ok = coi_checkpoint_flag(ctx, p, &self->ended);

    for (size_t r = 0; ok && r < (size_t)num_local(iterator); ++r)
        ok = part_checkpoint(ctx, iterator, p, r);
    for (size_t i = 0; ok && i < iterator->dataset->num_inputs; ++i)
        ok = coi_checkpoint_iterator(ctx, p, self->sources[i]);
    return ok;
}

static coi_layout
input_layout(const co_dataset *dataset)
{
    const input_dataset *self = (const input_dataset *)dataset;

    return (coi_layout){ self->origin, coi_input_context_of(self->strategy),
                         self->strategy->weights };
}

static const coi_dataset_ops input_ops = {
    .name = "distributed",
    .dataset_size = sizeof(input_dataset),
    .iterator_size = sizeof(input_iterator),
    .distributed = true,
    .next = input_next,
    .keeps = true,
    .checkpoint = input_checkpoint,
    .open = input_open,
    .close = input_close,
    .destroy = input_destroy,
    .layout = input_layout,
};

/* --- specs --- */

typedef struct spec_args {
    int  local;         /* copies per leaf */
    bool unknown_batch; /* W > 1 and finite (DS-SPEC-2, MW-11) */
} spec_args;

static co_value *
per_replica_spec(co_context *ctx, const co_value *spec, const void *arg)
{
    const spec_args *args = arg;
    int64_t          dims[CO_MAX_DIMS];
    co_value        *one, *per_replica;

    for (int i = 0; i < spec->ndim; ++i)
        dims[i] = i == 0 && args->unknown_batch ? -1 : spec->u.tensor.dims[i];
    one = coi_spec_new(ctx, (co_dtype)spec->dtype, dims, spec->ndim);
    if (one == NULL)
        return NULL;
    per_replica = coi_per_replica_new(&ctx->heap, CO_KIND_PER_REPLICA, (size_t)args->local,
                                      coi_err(ctx));
    if (per_replica == NULL)
        coi_failed(ctx);
    for (int i = 0; per_replica != NULL && i < args->local; ++i) {
        coi_ref(one);
        per_replica->u.per_replica.items[i] = one;
    }
    coi_unref(&ctx->heap, one);
    return per_replica;
}

/* DS-PART-1: whether some shape of the per-replica spec is not static. */
static bool
has_unknown_shape(const co_dataset *dataset)
{
    for (size_t i = 0; i < dataset->num_leaves; ++i) {
        const co_value *spec = coi_part_of(dataset->specs[i], 0);

        if (spec->ndim < 0)
            return true;
        for (int d = 0; d < spec->ndim; ++d)
            if (spec->u.tensor.dims[d] < 0)
                return true;
    }
    return false;
}

/* The spec that holds for every dataset of a worker; structures and dtypes must agree. */
static co_value *
join_specs(co_context *ctx, co_dataset *const *inputs, size_t n)
{
    co_value *joined = coi_spec_of(inputs[0]);

    for (size_t i = 1; joined != NULL && i < n; ++i) {
        char      name[60];
        co_value *first = joined;

        snprintf(name, sizeof(name), "the dataset of replica %zu", i);
        joined = coi_spec_join(ctx, first, inputs[i], CO_VALUE_ERROR, name);
        coi_unref(&ctx->heap, first);
    }
    return joined;
}

/* The spec of the elements that replicas of this worker see together. A reference. */
static co_value *
distributed_spec(co_context *ctx, const co_strategy *strategy, co_dataset *const *inputs, size_t n,
                 bool finite)
{
    spec_args args = { strategy->num_local, strategy->num_workers > 1 && finite };
    co_value *joined = join_specs(ctx, inputs, n);
    co_value *spec = joined;

    if (joined != NULL && (strategy->num_local > 1 || strategy->num_workers > 1)) {
        spec = coi_spec_map(ctx, joined, per_replica_spec, &args);
        coi_unref(&ctx->heap, joined);
    }
    return spec;
}

/* --- making --- */

/* DS-PREF-1, DS-SHARD-12: what costs something is prefetched, so many elements for each replica
 * that reads. */
static bool
prefetch_input(co_context *ctx, co_dataset *dataset, int64_t depth)
{
    for (size_t i = 0; depth > 0 && i < dataset->num_inputs; ++i) {
        co_dataset *input = dataset->inputs[i], *prefetched;

        if (!coi_dataset_costs(input))
            continue;
        prefetched = coi_prefetch_new(ctx, input, depth);
        if (prefetched == NULL)
            return false;
        prefetched->is_added = true;
        dataset->inputs[i] = prefetched;
        coi_unref(&ctx->heap, input);
    }
    return true;
}

/* The distributed dataset over the inputs of this worker, given to the block. */
static co_dataset *
distribute(co_context *ctx, co_strategy *strategy, co_dataset *const *inputs, size_t n,
           int64_t cardinality, const co_input_options *options)
{
    bool           finite = cardinality != CO_INFINITE;
    co_value      *spec = coi_check_tensors(ctx, inputs[0])
                              ? distributed_spec(ctx, strategy, inputs, n, finite)
                              : NULL;
    co_dataset    *dataset = coi_dataset_new(ctx, &input_ops, inputs, n, spec, cardinality);
    input_dataset *self = (input_dataset *)dataset;

    if (dataset == NULL)
        return NULL;
    coi_ref(strategy);
    self->strategy = strategy;
    coi_dataset_mark(dataset, strategy->num_workers);
    coi_dataset_mark(dataset, strategy->worker);
    coi_dataset_mark(dataset, strategy->num_local);
    self->plain = strategy->num_local == 1 && strategy->num_workers == 1;
    self->partial = strategy->num_workers > 1 || (finite && has_unknown_shape(dataset));
    self->fetch = options->fetch_to_device || options->place_dataset_on_device;
    if (!prefetch_input(ctx, dataset,
                        (int64_t)options->per_replica_buffer_size *
                            (n > 1 ? 1 : strategy->num_local))) {
        coi_unref(&ctx->heap, dataset);
        return NULL;
    }
    return coi_dataset_give(ctx, dataset);
}

/* IO-3, and numbers out of range. */
static bool
check_options(co_context *ctx, const co_input_options *options)
{
    if (options->place_dataset_on_device && !options->per_replica) {
        coi_fail(
            ctx, CO_VALUE_ERROR,
            "place_dataset_on_device needs per_replica, which is not set; set both or neither");
        return false;
    }
    if (options->place_dataset_on_device && options->fetch_to_device) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "place_dataset_on_device excludes fetch_to_device; set the latter to false");
        return false;
    }
    if (options->per_replica_buffer_size < 0) {
        coi_fail(ctx, CO_VALUE_ERROR, "per_replica_buffer_size is %d; it must be 0 or more",
                 options->per_replica_buffer_size);
        return false;
    }
    return true;
}

co_input_context
coi_input_context_of(const co_strategy *strategy)
{
    return (co_input_context){ strategy->num_workers, strategy->worker, strategy->num_replicas };
}

/* Batches are cut for as many replicas on every worker. */
static bool
check_even(co_context *ctx, const co_strategy *strategy)
{
    const int *first = strategy->first;

    for (int r = 1; r < strategy->num_workers; ++r)
        if (first[r + 1] - first[r] != first[1]) {
            coi_fail(
                ctx, CO_VALUE_ERROR,
                "worker 0 of %s has %d replica%s and worker %d has %d, and distribute_dataset "
                "gives every worker as many; place replicas evenly, or give each worker its own "
                "data with co_distribute_datasets_from_function",
                strategy->policy->name, first[1], COI_S(first[1]), r, first[r + 1] - first[r]);
            return false;
        }
    return true;
}

co_dataset *
co_distribute_dataset(co_context *ctx, co_strategy *strategy, co_dataset *dataset,
                      const co_input_options *options)
{
    co_input_options all = CO_INPUT_OPTIONS_INIT;
    co_input_context input;
    co_dataset      *mine, *made;

    COI_ENTER(ctx, "distribute_dataset", NULL);
    if (!coi_check_strategy(ctx, strategy, 2) || !coi_check_dataset(ctx, dataset, 3, "dataset"))
        return NULL;
    if (!strategy->policy->distributes_input) /* DEF-3 */
        return dataset;
    if (!coi_take_options(ctx, &all, sizeof(all), options, 4))
        return NULL;
    if (all.per_replica) {
        coi_fail(ctx, CO_UNIMPLEMENTED,
                 "per_replica datasets come from a function; call "
                 "co_distribute_datasets_from_function");
        return NULL;
    }
    input = coi_input_context_of(strategy);
    if (!coi_check_input(ctx, dataset, 3, "dataset") || !check_options(ctx, &all) ||
        !check_even(ctx, strategy) || !coi_check_pipelines(ctx, &input))
        return NULL;
    mine = coi_dataset_for_worker(ctx, dataset, &input, strategy->weights);
    if (mine == NULL)
        return NULL;
    made = distribute(ctx, strategy, &mine, 1, dataset->cardinality, &all);
    coi_unref(&ctx->heap, mine);
    if (made == NULL)
        return NULL;
    coi_ref(dataset);
    ((input_dataset *)made)->origin = dataset;
    /* Observed: of pieces by the SCHEDULE a graph does not take a step that some replicas have no
     * rows for. */
    if (coi_in_graph(ctx) && strategy->num_workers == 1 && strategy->num_local > 1 &&
        !coi_shares_slices(dataset) && coi_dataset_rows(dataset) > 0)
        ((input_dataset *)made)->partial = false;
    coi_log_decision(ctx, dataset, &input);
    return made;
}

/* --- from a function --- */

typedef struct maker {
    co_dataset_fn fn;
    void         *user;
} maker;

/* What the function gave, as a reference; CO_TYPE_ERROR if it is no dataset (DS-FN-4). */
static co_dataset *
check_result(co_context *ctx, co_dataset *dataset)
{
    if (ctx->error.code != CO_OK)
        return NULL;
    ctx->call = "distribute_datasets_from_function";
    if (!coi_check_inner(ctx, dataset))
        return NULL;
    coi_ref(dataset);
    return dataset;
}

co_dataset *
coi_call_dataset_fn(co_context *ctx, const co_strategy *strategy, co_dataset_fn fn, void *user,
                    const co_input_context *input)
{
    size_t          depth = ctx->num_entries, floor;
    coi_device_name host;
    co_dataset     *dataset;

    if (coi_push(ctx, COI_ENTRY_DEVICE, NULL) == NULL)
        return NULL;
    if (strategy->policy->has_devices) {
        coi_device_host(&strategy->devices[0], &host);
        coi_enter_device(ctx, &host);
    }
    floor = coi_function_begin(ctx);
    dataset = fn(ctx, input, user);
    coi_function_end(ctx, floor);
    coi_pop_to(ctx, depth);
    return dataset;
}

static co_dataset *
call_maker(co_context *ctx, const co_strategy *strategy, const maker *make,
           const co_input_context *input)
{
    return check_result(ctx, coi_call_dataset_fn(ctx, strategy, make->fn, make->user, input));
}

/* IO-4: one pipeline per replica. */
static co_dataset *
distribute_per_replica(co_context *ctx, co_strategy *strategy, const maker *make,
                       const co_input_options *options)
{
    int          n = strategy->num_local, made = 0;
    size_t       nbytes = (size_t)n * sizeof(co_dataset *);
    co_dataset **inputs = coi_small_alloc(&ctx->heap, nbytes);
    co_dataset  *dataset = NULL;
    bool         infinite = true;

    if (inputs == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the datasets of %d replicas", n);
        return NULL;
    }
    for (; made < n; ++made) {
        co_input_context input = { n, made, n };

        inputs[made] = call_maker(ctx, strategy, make, &input);
        if (inputs[made] == NULL)
            break;
        infinite = infinite && inputs[made]->cardinality == CO_INFINITE;
    }
    if (made == n)
        dataset = distribute(ctx, strategy, inputs, (size_t)n,
                             infinite ? CO_INFINITE : CO_UNKNOWN_CARDINALITY, options);
    while (made > 0)
        coi_unref(&ctx->heap, inputs[--made]);
    coi_small_free(&ctx->heap, inputs, nbytes);
    return dataset;
}

/* The dataset of this worker as it is: neither split nor sharded. */
static co_dataset *
distribute_unsplit(co_context *ctx, co_strategy *strategy, co_dataset *mine,
                   const co_input_options *options)
{
    return distribute(ctx, strategy, &mine, 1,
                      mine->cardinality == CO_INFINITE ? CO_INFINITE : CO_UNKNOWN_CARDINALITY,
                      options);
}

static co_dataset *
distribute_per_worker(co_context *ctx, co_strategy *strategy, const maker *make,
                      const co_input_options *options)
{
    co_input_context input = coi_input_context_of(strategy);
    co_dataset      *mine = call_maker(ctx, strategy, make, &input);
    co_dataset      *dataset;

    if (mine == NULL)
        return NULL;
    dataset = distribute_unsplit(ctx, strategy, mine, options);
    coi_unref(&ctx->heap, mine);
    return dataset;
}

co_strategy *
coi_dataset_strategy(const co_dataset *dataset)
{
    while (dataset->ops->transparent)
        dataset = dataset->inputs[0];
    return dataset->ops == &input_ops ? ((const input_dataset *)dataset)->strategy : NULL;
}

co_dataset *
coi_distribute_whole_steps(co_context *ctx, co_strategy *strategy, co_dataset *mine)
{
    co_input_options options = CO_INPUT_OPTIONS_INIT;
    co_dataset      *dataset = distribute_unsplit(ctx, strategy, mine, &options);

    if (dataset != NULL)
        ((input_dataset *)dataset)->partial = strategy->num_workers > 1;
    return dataset;
}

co_dataset *
co_distribute_datasets_from_function(co_context *ctx, co_strategy *strategy, co_dataset_fn fn,
                                     void *user, const co_input_options *options)
{
    maker            make = { fn, user };
    co_input_options all = CO_INPUT_OPTIONS_INIT;
    co_dataset      *made;

    COI_ENTER(ctx, "distribute_datasets_from_function", NULL);
    if (!coi_check_strategy(ctx, strategy, 2))
        return NULL;
    if (fn == NULL) {
        coi_fail(
            ctx, CO_TYPE_ERROR,
            "argument 3 (fn) of distribute_datasets_from_function is NULL; give a function that "
            "returns a dataset");
        return NULL;
    }
    if (!strategy->policy->distributes_input) { /* DEF-4 */
        co_input_context alone = { 1, 0, 1 };
        size_t           floor = coi_function_begin(ctx);
        co_dataset      *dataset = fn(ctx, &alone, user);

        coi_function_end(ctx, floor);
        return coi_dataset_give(ctx, check_result(ctx, dataset));
    }
    if (!coi_take_options(ctx, &all, sizeof(all), options, 5))
        return NULL;
    if (all.per_replica && (!strategy->policy->wraps_values || strategy->policy->workers)) {
        coi_fail(ctx, CO_UNIMPLEMENTED, "%s has no per_replica input; use one dataset per worker",
                 strategy->policy->name);
        return NULL;
    }
    if (!check_options(ctx, &all))
        return NULL;
    coi_ref(strategy); /* the function may release it */
    made = all.per_replica ? distribute_per_replica(ctx, strategy, &make, &all)
                           : distribute_per_worker(ctx, strategy, &make, &all);
    coi_unref(&ctx->heap, strategy);
    return made;
}
