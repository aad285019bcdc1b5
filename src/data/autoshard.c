/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one worker reads: sharding by policy (DS-SHARD) and splitting for the replicas (DS-SPLIT).
 * Policies are a table; sharding by files and filling in hints rewrite the pipeline from its source
 * up.
 */
#include "data/dataset.h"

/* --- the option --- */

static co_dataset *options_with_inputs(co_context *ctx, co_dataset *dataset,
                                       co_dataset *const *inputs);

/* By co_autoshard, from CO_AUTOSHARD_OFF on. */
static const char *const policy_names[] = { "OFF", "AUTO", "FILE", "DATA", "HINT", "REPLICA" };

const char *
coi_policy_name(co_autoshard policy)
{
    return policy_names[policy - CO_AUTOSHARD_OFF];
}

static const coi_dataset_ops options_ops = {
    .name = "options",
    .dataset_size = sizeof(co_dataset),
    .transparent = true,
    .with_inputs = options_with_inputs,
    .tracks = COI_KEPT,
};

static co_dataset *
options_new(co_context *ctx, co_dataset *input, co_autoshard policy)
{
    co_dataset *dataset;

    coi_ref(input->spec);
    dataset = coi_dataset_new(ctx, &options_ops, &input, 1, input->spec, input->cardinality);
    if (dataset == NULL)
        return NULL;
    dataset->batch_size = input->batch_size;
    dataset->autoshard = policy;
    return dataset;
}

static co_dataset *
options_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    return options_new(ctx, inputs[0], dataset->autoshard);
}

co_dataset *
co_dataset_with_autoshard(co_context *ctx, co_dataset *input, co_autoshard policy)
{
    COI_ENTER(ctx, "dataset_with_autoshard", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    if (policy < CO_AUTOSHARD_OFF || policy > CO_AUTOSHARD_REPLICA) {
        coi_fail(
            ctx, CO_TYPE_ERROR,
            "argument 3 (policy) is %d; it is one of CO_AUTOSHARD_OFF, AUTO, FILE, DATA, HINT, "
            "REPLICA",
            (int)policy);
        return NULL;
    }
    return coi_dataset_give(ctx, options_new(ctx, input, policy));
}

/* --- rewriting pipelines --- */

/* One dataset rewritten: a new reference, or NULL without an error to rewrite its inputs. */
typedef co_dataset *(*rewrite_fn)(co_context *ctx, co_dataset *dataset, int num, int index);

static co_dataset *rewrite(co_context *ctx, co_dataset *dataset, rewrite_fn fn, int num, int index);

/* Rewritten inputs, as references; false if one failed, and then none is held. */
static bool
rewrite_inputs(co_context *ctx, co_dataset *dataset, rewrite_fn fn, int num, int index,
               co_dataset **inputs)
{
    for (size_t i = 0; i < dataset->num_inputs; ++i) {
        inputs[i] = rewrite(ctx, dataset->inputs[i], fn, num, index);
        if (inputs[i] == NULL) {
            while (i > 0)
                coi_unref(&ctx->heap, inputs[--i]);
            return false;
        }
    }
    return true;
}

/* The dataset again if none of its inputs changed. */
static co_dataset *
rebuild(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    bool changed = false;

    for (size_t i = 0; i < dataset->num_inputs; ++i)
        changed = changed || inputs[i] != dataset->inputs[i];
    if (!changed) {
        coi_ref(dataset);
        return dataset;
    }
    if (dataset->ops->with_inputs != NULL)
        return coi_dataset_rename(dataset->ops->with_inputs(ctx, dataset, inputs), dataset);
    coi_fail(ctx, CO_NOT_FOUND,
             "a pipeline with %s cannot be sharded at its source; " COI_OTHER_POLICIES,
             dataset->ops->name);
    return NULL;
}

static co_dataset *
rewrite(co_context *ctx, co_dataset *dataset, rewrite_fn fn, int num, int index)
{
    size_t      nbytes = (dataset->num_inputs > 0 ? dataset->num_inputs : 1) * sizeof(co_dataset *);
    co_dataset *made = fn(ctx, dataset, num, index);
    co_dataset **inputs;

    if (made != NULL || ctx->error.code != CO_OK)
        return made;
    inputs = coi_small_alloc(&ctx->heap, nbytes);
    if (inputs == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to shard a pipeline");
        return NULL;
    }
    if (rewrite_inputs(ctx, dataset, fn, num, index, inputs)) {
        made = rebuild(ctx, dataset, inputs);
        for (size_t i = 0; i < dataset->num_inputs; ++i)
            coi_unref(&ctx->heap, inputs[i]);
    }
    coi_small_free(&ctx->heap, inputs, nbytes);
    return made;
}

/* What distribution puts into a pipeline. */
static co_dataset *
added(co_dataset *dataset)
{
    if (dataset != NULL)
        dataset->is_added = true;
    return dataset;
}

/* Why sharding by files is impossible: the reason of the dataset that prevents it. */
static void
put_obstacle(coi_prose *out, const co_dataset *dataset)
{
    if (dataset->ops->hides_files)
        coi_put(out, "sharding by files does not look past %s", coi_stage_name(dataset));
    else
        coi_put(out, "the source %s reads no files", coi_stage_name(dataset));
}

/* Every source must read files, with no stage behind it that hides them (DS-SHARD-2,
 * DS-SHARD-4). */
static co_dataset *
shard_source(co_context *ctx, co_dataset *dataset, int num, int index)
{
    char      why[COI_STAGE_NAME + 60];
    coi_prose out = { why, sizeof(why), 0 };

    if (dataset->ops->shard_files != NULL)
        return coi_dataset_rename(dataset->ops->shard_files(ctx, dataset, num, index), dataset);
    if (dataset->num_inputs > 0 && !dataset->ops->hides_files)
        return NULL;
    put_obstacle(&out, dataset);
    coi_fail(ctx, CO_NOT_FOUND,
             "%s, so files cannot be spread over %d workers; " COI_OTHER_POLICIES, why, num);
    return NULL;
}

/* The hint nearest to the end of the pipeline is filled in. */
static co_dataset *
fill_hint(co_context *ctx, co_dataset *dataset, int num, int index)
{
    if (dataset->ops->fill_hint != NULL)
        return added(dataset->ops->fill_hint(ctx, dataset->inputs[0], num, index));
    if (dataset->num_inputs == 0)
        coi_ref(dataset);
    return dataset->num_inputs == 0 ? dataset : NULL;
}

/* What was promised of the whole does not hold of a part (DS-SHARD-16). */
static co_dataset *
leave_out_promise(co_context *ctx, co_dataset *dataset, int num, int index)
{
    return dataset->ops->promises ? rewrite(ctx, dataset->inputs[0], leave_out_promise, num, index)
                                  : NULL;
}

/* --- policies --- */

static co_dataset *
share_all(co_context *ctx, co_dataset *dataset, const co_input_context *input)
{
    (void)ctx, (void)input;
    coi_ref(dataset);
    return dataset;
}

static co_dataset *
share_files(co_context *ctx, co_dataset *dataset, const co_input_context *input)
{
    if (input->num_input_pipelines == 1)
        return share_all(ctx, dataset, input);
    return rewrite(ctx, dataset, shard_source, input->num_input_pipelines,
                   input->input_pipeline_id);
}

static co_dataset *
share_blocks(co_context *ctx, co_dataset *dataset, const co_input_context *input, int block)
{
    if (input->num_input_pipelines == 1)
        return share_all(ctx, dataset, input);
    return added(
        coi_shard_new(ctx, dataset, input->num_input_pipelines, input->input_pipeline_id, block));
}

static co_dataset *
share_elements(co_context *ctx, co_dataset *dataset, const co_input_context *input)
{
    return share_blocks(ctx, dataset, input, 1);
}

/* Slice k is read by replica k, whichever worker hosts it: what the replicas compute does not
 * depend on the workers. */
static co_dataset *
share_by_replica(co_context *ctx, co_dataset *dataset, const co_input_context *input)
{
    return share_blocks(ctx, dataset, input,
                        input->num_replicas_in_sync / input->num_input_pipelines);
}

static co_dataset *
share_hinted(co_context *ctx, co_dataset *dataset, const co_input_context *input)
{
    return rewrite(ctx, dataset, fill_hint, input->num_input_pipelines, input->input_pipeline_id);
}

typedef struct policy {
    co_dataset *(*share)(co_context *ctx, co_dataset *dataset, const co_input_context *input);
    /* Slices are shared, not batches: the CEIL splitter (DS-SPLIT-3, DS-SHARD-6). */
    bool        after_split;
    bool        in_order;       /* slice k is that of replica k */
    bool        keeps_promises; /* assert_cardinality is not left out */
    const char *meaning;        /* with several workers */
} policy;

static const policy policies[] = {
    /* by co_autoshard; AUTO becomes one of the others */
    [CO_AUTOSHARD_FILE] = { share_files, false, false, false, "whole files go to workers in turn" },
    [CO_AUTOSHARD_DATA] = { share_elements, true, false, false,
                            "every worker runs the whole pipeline, slices of batches go to workers "
                            "in turn" },
    [CO_AUTOSHARD_HINT] = { share_hinted, false, false, true,
                            "the shard with CO_SHARD_HINT is filled in" },
    [CO_AUTOSHARD_REPLICA] = { share_by_replica, true, true, true,
                               "every worker runs the whole pipeline, slice k goes to replica k" },
};
static const policy policy_off = { share_all, false, false, true, "every worker reads everything" };

static const policy *
policy_of(co_autoshard chosen)
{
    return chosen == CO_AUTOSHARD_OFF ? &policy_off : &policies[chosen];
}

/* A source that reads no files, or a stage that hides them; or NULL. */
static const co_dataset *
without_files(const co_dataset *dataset)
{
    const co_dataset *found = NULL;

    if (dataset->ops->hides_files)
        return dataset;
    if (dataset->num_inputs == 0 || dataset->ops->shard_files != NULL)
        return dataset->ops->shard_files != NULL ? NULL : dataset;
    for (size_t i = 0; found == NULL && i < dataset->num_inputs; ++i)
        found = without_files(dataset->inputs[i]);
    return found;
}

co_autoshard
coi_decide(const co_dataset *dataset)
{
    if (dataset->autoshard != CO_AUTOSHARD_AUTO)
        return dataset->autoshard;
    return without_files(dataset) == NULL ? CO_AUTOSHARD_FILE : CO_AUTOSHARD_DATA;
}

/* What is sharded: a reference. */
static co_dataset *
without_promises(co_context *ctx, co_dataset *dataset, const co_input_context *input)
{
    if (input->num_input_pipelines == 1 || policy_of(coi_decide(dataset))->keeps_promises)
        return share_all(ctx, dataset, input);
    return rewrite(ctx, dataset, leave_out_promise, input->num_input_pipelines,
                   input->input_pipeline_id);
}

/* --- saying so --- */

/* How many files all readers have together; CO_UNKNOWN_CARDINALITY. */
static int64_t
count_files(const co_dataset *dataset)
{
    int64_t sum = 0;

    if (dataset->ops->num_files != NULL)
        return dataset->ops->num_files(dataset);
    for (size_t i = 0; i < dataset->num_inputs; ++i) {
        int64_t n = count_files(dataset->inputs[i]);

        if (n < 0 || __builtin_add_overflow(sum, n, &sum))
            return n < 0 ? n : CO_UNKNOWN_CARDINALITY;
    }
    return sum;
}

bool
coi_has_hint(const co_dataset *dataset)
{
    bool found = dataset->ops->fill_hint != NULL;

    for (size_t i = 0; !found && i < dataset->num_inputs; ++i)
        found = coi_has_hint(dataset->inputs[i]);
    return found;
}

/* What AUTO looks at. */
static void
put_source(coi_prose *out, const co_dataset *dataset)
{
    const co_dataset *source = without_files(dataset);

    if (source != NULL)
        put_obstacle(out, source);
    else
        coi_put(out, "the input is read from files");
}

void
coi_put_decision(coi_prose *out, const co_dataset *dataset, int num)
{
    co_autoshard chosen = coi_decide(dataset);
    int64_t      num_files = count_files(dataset);

    if (num == 1) {
        coi_put(out, "none, because there is one worker");
        return;
    }
    coi_put(out, "%s%s", dataset->autoshard == CO_AUTOSHARD_AUTO ? "AUTO becomes " : "",
            coi_policy_name(chosen));
    if (dataset->autoshard != CO_AUTOSHARD_AUTO) {
        coi_put(out, ", as asked for");
    } else {
        coi_put(out, ", because ");
        put_source(out, dataset);
    }
    coi_put(out, ": %s",
            chosen == CO_AUTOSHARD_HINT && !coi_has_hint(dataset)
                ? "no shard has CO_SHARD_HINT, so every worker reads everything"
                : policy_of(chosen)->meaning);
    if (chosen == CO_AUTOSHARD_FILE && num_files >= 0)
        coi_put(out, "; %lld file%s for %d workers%s", (long long)num_files, COI_S(num_files), num,
                num_files < num ? ", too few: co_next will fail" : "");
}

void
coi_log_decision(co_context *ctx, const co_dataset *dataset, const co_input_context *input)
{
    coi_log  *log = &ctx->runtime->log;
    char      text[700];
    coi_prose out = { text, sizeof(text), 0 };
    int       num = input->num_input_pipelines;

    if (num == 1)
        return;
    if (dataset->autoshard == CO_AUTOSHARD_AUTO && coi_decide(dataset) == CO_AUTOSHARD_DATA)
        coi_log_line(
            log, CO_LOG_WARNING,
            "distributing a dataset without files to share: policy AUTO becomes DATA, so each of %d "
            "workers runs the whole pipeline and keeps its share; set CO_AUTOSHARD_DATA to agree",
            num);
    if (!coi_log_on(log, CO_LOG_INFO))
        return;
    coi_put_decision(&out, dataset, num);
    coi_put_end(&out);
    coi_log_line(log, CO_LOG_INFO,
                 "input of worker %d of %d: sharding %s (co_dataset_explain shows the pipeline)",
                 input->input_pipeline_id, num, text);
}

/* --- splitting --- */

/* Entry i of the list that worker 0 uses (DS-SPLIT-2). */
static int64_t
schedule_at(int64_t batch_size, int64_t n, int64_t i)
{
    return batch_size / n + (i % n < batch_size % n);
}

/* How many slices or pieces a splitter has, and what it reads of them: room for one number each. */
typedef struct splitting {
    const co_input_context *input;
    const policy           *chosen;
    const int64_t          *weights; /* of all replicas; NULL: equal */
    int64_t                 batch_size;
    int64_t                *numbers; /* one per replica, of the heap */
} splitting;

/* The replica that reads slice i. Without sharing after the split, a worker's own replicas take its
 * slices in turn. */
static int
reader_of(const splitting *s, int i)
{
    int num = s->input->num_input_pipelines, each = s->input->num_replicas_in_sync / num;

    if (s->chosen->in_order)
        return i;
    return s->chosen->after_split ? i % num * each + i / num
                                  : s->input->input_pipeline_id * each + i % each;
}

/* A batch of 0 rows has no schedule that makes progress, so it is cut like one of unknown size. */
static bool
is_sliced(const splitting *s)
{
    return s->chosen->after_split || s->batch_size <= 0;
}

/* Every batch cut into n slices. */
static co_dataset *
slices(co_context *ctx, co_dataset *dataset, const splitting *s)
{
    int     n = s->input->num_replicas_in_sync;
    int64_t sum = 0;

    if (s->weights == NULL)
        return coi_split_new(ctx, dataset, n, NULL);
    for (int i = 0; i < n; ++i)
        s->numbers[i] = sum += s->weights[reader_of(s, i)];
    return coi_split_new(ctx, dataset, n, s->numbers);
}

/* The row stream cut by a cycle: of all replicas, from the first of this worker on (DS-SPLIT-2). */
static co_dataset *
schedule(co_context *ctx, co_dataset *dataset, const splitting *s)
{
    int64_t n = s->input->num_replicas_in_sync, each = n / s->input->num_input_pipelines;
    int64_t first = each * s->input->input_pipeline_id;

    for (int64_t i = 0; i < n; ++i)
        s->numbers[i] = schedule_at(s->batch_size, n, first + i);
    return coi_rebatch_new(ctx, dataset, s->numbers, (size_t)n, false, n);
}

/*
 * With weights a replica's piece has the same size in every step, so the cycle is that of this
 * worker's replicas alone. A worker without rows would never come to its end; all workers find that
 * out, so that none waits for one that failed.
 */
static co_dataset *
weighted_schedule(co_context *ctx, co_dataset *dataset, const splitting *s)
{
    int     n = s->input->num_replicas_in_sync, each = n / s->input->num_input_pipelines;
    int64_t whole = 0, part = 0, end = 0, rows = 0; /* rows: of the worker so far */

    for (int i = 0; i < n; ++i)
        whole += s->weights[i];
    for (int i = 0; i < n; ++i) {
        int64_t begin = end;

        part += s->weights[i];
        end = coi_share_end(s->batch_size, part, whole);
        rows = (i % each == 0 ? 0 : rows) + end - begin;
        if (i / each == s->input->input_pipeline_id)
            s->numbers[i % each] = end - begin;
        if (i % each == each - 1 && rows == 0) {
            coi_fail(ctx, CO_VALUE_ERROR,
                     "batches of %lld row%s leave none for worker %d of %d by the weights of its "
                     "replicas; make batches larger or weights more alike",
                     (long long)s->batch_size, COI_S(s->batch_size), i / each,
                     s->input->num_input_pipelines);
            return NULL;
        }
    }
    return coi_rebatch_new(ctx, dataset, s->numbers, (size_t)each, false, 0);
}

static co_dataset *
split(co_context *ctx, co_dataset *dataset, const co_input_context *input, const policy *chosen,
      const int64_t *weights)
{
    splitting   s = { input, chosen, weights, coi_dataset_rows(dataset), NULL };
    size_t      nbytes = (size_t)input->num_replicas_in_sync * sizeof(*s.numbers);
    co_dataset *made;

    if (input->num_replicas_in_sync == 1) { /* DS-SPLIT-6 */
        coi_ref(dataset);
        return dataset;
    }
    s.numbers = coi_small_alloc(&ctx->heap, nbytes);
    if (s.numbers == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for the piece sizes of %d replicas",
                 input->num_replicas_in_sync);
        return NULL;
    }
    made = is_sliced(&s)     ? slices(ctx, dataset, &s)
           : weights != NULL ? weighted_schedule(ctx, dataset, &s)
                             : schedule(ctx, dataset, &s);
    coi_small_free(&ctx->heap, s.numbers, nbytes);
    return added(made);
}

#define MOST_SHARES 16 /* in a text */

/* The splitter by its name in the specification, and why it is this one (DS-SPLIT-3). */
static void
put_splitter(coi_prose *out, const co_dataset *dataset, const splitting *s)
{
    const char *name = coi_policy_name(coi_decide(dataset));

    coi_put(out, "%s, because ", is_sliced(s) ? "CEIL" : "SCHEDULE");
    if (is_sliced(s) && !s->chosen->after_split) {
        coi_put(out, "the batch size is not known");
    } else if (dataset->autoshard != CO_AUTOSHARD_AUTO) {
        coi_put(out, "the policy is %s", name);
    } else {
        coi_put(out, "AUTO becomes %s (", name);
        put_source(out, dataset);
        coi_put(out, ")");
    }
}

void
coi_put_splitting(coi_prose *out, const co_dataset *dataset, const co_input_context *input,
                  const int64_t *weights)
{
    splitting s = { input, policy_of(coi_decide(dataset)), weights, coi_dataset_rows(dataset),
                    NULL };
    int       n = input->num_replicas_in_sync;
    int64_t whole = 0, part = 0, begin, end = 0, each = s.batch_size / n + (s.batch_size % n != 0);

    if (n == 1) {
        coi_put(out, "none, because there is one replica");
        return;
    }
    put_splitter(out, dataset, &s);
    coi_put(out, ": %s cut for %d replicas%s",
            is_sliced(&s) ? "each batch is" : "the rows of all batches are", n,
            weights != NULL ? " by weights" : "");
    for (int i = 0; weights != NULL && i < n; ++i)
        whole += weights[i];
    for (int i = 0; s.batch_size > 0 && i < n && i <= MOST_SHARES; ++i) {
        begin = end;
        if (weights != NULL)
            end = coi_share_end(s.batch_size, part += weights[is_sliced(&s) ? reader_of(&s, i) : i],
                                whole);
        else if (is_sliced(&s))
            end = s.batch_size - begin < each ? s.batch_size : begin + each;
        else
            end = begin + schedule_at(s.batch_size, n, i);
        if (i == 0)
            coi_put(out, ", %lld row%s into", (long long)s.batch_size, COI_S(s.batch_size));
        if (i < MOST_SHARES)
            coi_put(out, "%s%lld", i > 0 ? ", " : " ", (long long)(end - begin));
        else
            coi_put(out, ", ...");
    }
    if (!is_sliced(&s) && weights == NULL)
        coi_put(out,
                "; a short last batch fills the first replicas (CO_AUTOSHARD_REPLICA cuts each "
                "batch evenly)");
}

/* DS-DIST-7. */
static bool
check_batched(co_context *ctx, const co_dataset *dataset, int n)
{
    char name[32];

    for (size_t i = 0; n > 1 && i < dataset->num_leaves; ++i)
        if (dataset->specs[i]->ndim == 0) {
            coi_fail(ctx, CO_VALUE_ERROR,
                     "the dataset is not batched: its %s %s scalars, which cannot be split over %d "
                     "replicas; call "
                     "co_dataset_batch first",
                     coi_component_name(dataset, i, name),
                     coi_is_structure(dataset->spec) ? "gives" : "are", n);
            return false;
        }
    return true;
}

bool
coi_check_pipelines(co_context *ctx, const co_input_context *input)
{
    int num = input->num_input_pipelines, index = input->input_pipeline_id;
    int n = input->num_replicas_in_sync;

    if (num < 1 || index < 0 || index >= num) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "pipeline %d of %d; the id is at least 0 and below the number", index, num);
        return false;
    }
    if (n < 1 || n % num != 0) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "%d replicas cannot be spread evenly over %d input pipelines; make the number of "
                 "replicas a multiple",
                 n, num);
        return false;
    }
    return true;
}

co_dataset *
coi_dataset_for_worker(co_context *ctx, co_dataset *dataset, const co_input_context *input,
                       const int64_t *weights)
{
    const policy *chosen = policy_of(coi_decide(dataset));
    co_dataset   *whole, *first, *second;

    if (!check_batched(ctx, dataset, input->num_replicas_in_sync) ||
        (whole = without_promises(ctx, dataset, input)) == NULL)
        return NULL;
    first = chosen->after_split ? split(ctx, whole, input, chosen, weights)
                                : chosen->share(ctx, whole, input);
    coi_unref(&ctx->heap, whole);
    if (first == NULL)
        return NULL;
    second = chosen->after_split ? chosen->share(ctx, first, input)
                                 : split(ctx, first, input, chosen, weights);
    coi_unref(&ctx->heap, first);
    return second;
}

/* --- numbers of examples (trace.c) --- */

bool
coi_shares_slices(const co_dataset *dataset)
{
    return policy_of(coi_decide(dataset))->after_split;
}

int
coi_reader_of(const co_dataset *dataset, const co_input_context *input, int i)
{
    splitting s = { .input = input, .chosen = policy_of(coi_decide(dataset)) };

    return reader_of(&s, i);
}

/* The batch size is that of the dataset, whatever the numbers know of theirs: it decides how they
 * are split. */
co_dataset *
coi_traced_stream(co_context *ctx, co_dataset *dataset, co_dataset *numbers,
                  const co_input_context *input, const int64_t *weights)
{
    const policy *chosen = policy_of(coi_decide(dataset));
    co_dataset   *mine, *sized, *made = NULL;

    if (!check_batched(ctx, dataset, input->num_replicas_in_sync))
        return NULL;
    mine = (chosen->after_split ? share_all : chosen->share)(ctx, numbers, input);
    if (mine == NULL)
        return NULL;
    sized = coi_dataset_new(ctx, &options_ops, &mine, 1,
                            coi_spec_map(ctx, mine->spec, coi_spec_unknown_dims, NULL),
                            mine->cardinality);
    coi_unref(&ctx->heap, mine);
    if (sized != NULL) {
        sized->batch_size = coi_dataset_rows(dataset);
        made = split(ctx, sized, input, chosen, weights);
        coi_unref(&ctx->heap, sized);
    }
    return made;
}

/* --- the public calls --- */

co_dataset *
co_dataset_for_worker(co_context *ctx, co_dataset *dataset, const co_input_context *input)
{
    co_dataset *mine;

    COI_ENTER(ctx, "dataset_for_worker", NULL);
    if (!coi_check_input(ctx, dataset, 2, "dataset"))
        return NULL;
    if (input == NULL) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 3 (input) is NULL; give the input context of the worker");
        return NULL;
    }
    if (!coi_check_pipelines(ctx, input))
        return NULL;
    mine = coi_dataset_for_worker(ctx, dataset, input, NULL);
    if (mine != NULL)
        coi_log_decision(ctx, dataset, input);
    return coi_dataset_give(ctx, mine);
}

co_dataset *
co_dataset_auto_shard(co_context *ctx, co_dataset *dataset, int num_workers, int index)
{
    co_input_context input = { num_workers, index, num_workers };
    co_dataset      *whole, *mine;

    COI_ENTER(ctx, "dataset_auto_shard", NULL);
    if (!coi_check_input(ctx, dataset, 2, "dataset") || !coi_check_pipelines(ctx, &input) ||
        (whole = without_promises(ctx, dataset, &input)) == NULL)
        return NULL;
    mine = policy_of(coi_decide(dataset))->share(ctx, whole, &input);
    coi_unref(&ctx->heap, whole);
    if (mine != NULL)
        coi_log_decision(ctx, dataset, &input);
    return coi_dataset_give(ctx, mine);
}

co_code
co_batch_sizes_for_worker(co_context *ctx, int64_t global_batch_size, int num_workers,
                          int replicas_per_worker, int worker, int64_t *sizes)
{
    int64_t          n = (int64_t)num_workers * replicas_per_worker;
    co_input_context input = { num_workers, worker, num_workers };

    COI_ENTER_CODE(ctx, "batch_sizes_for_worker");
    if (!coi_check_pipelines(ctx, &input))
        return ctx->error.code;
    if (replicas_per_worker < 1)
        return coi_fail(ctx, CO_VALUE_ERROR,
                        "argument 4 (replicas_per_worker) is %d; it must be 1 or more",
                        replicas_per_worker);
    if (global_batch_size < 0)
        return coi_fail(ctx, CO_VALUE_ERROR,
                        "argument 2 (global_batch_size) is %lld; it must be 0 or more",
                        (long long)global_batch_size);
    if (sizes == NULL)
        return coi_fail(ctx, CO_VALUE_ERROR,
                        "argument 6 (sizes) is NULL; it needs room for %lld numbers", (long long)n);
    for (int64_t i = 0; i < n; ++i)
        sizes[i] = schedule_at(global_batch_size, n, (int64_t)worker * replicas_per_worker + i);
    return CO_OK;
}
