/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard: every num-th element, or every num-th run of `block` elements. A hint stands where
 * distribution will put the numbers; it cannot be iterated itself.
 */
#include "data/iterator_checkpoint.h"

typedef struct shard_dataset {
    co_dataset base;
    int64_t    num, index, block;
    bool       all_served; /* no shard may be empty (DS-SHARD-5) */
} shard_dataset;

typedef struct shard_iterator {
    co_iterator base;
    bool        begun;
    int64_t     given;  /* of the current block */
    int64_t     passed; /* of the gap before the next */
} shard_iterator;

/* Whether every shard has an element, where it must: `num` elements are looked for. */
COI_RARE static bool
shard_check(co_context *ctx, const co_dataset *dataset)
{
    const shard_dataset *shard = (const shard_dataset *)dataset;
    co_iterator         *look;
    int64_t              found;

    if (!shard->all_served)
        return true;
    look = coi_iterator_new(ctx, dataset->inputs[0], NULL);
    found = look != NULL ? coi_iterator_skip(ctx, look, shard->num) : COI_ERROR;
    coi_unref(&ctx->heap, look);
    if (found >= 0 && found < shard->num)
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "there %s %lld file%s, fewer than the %lld workers that share "
                 "them; " COI_OTHER_POLICIES ", or use more files",
                 found == 1 ? "is" : "are", (long long)found, found == 1 ? "" : "s",
                 (long long)shard->num);
    return found >= shard->num;
}

/* Elements before the next block of ours. */
static int64_t
gap_of(const co_iterator *iterator)
{
    const shard_dataset *shard = (const shard_dataset *)iterator->dataset;

    return (((const shard_iterator *)iterator)->begun ? shard->num - 1 : shard->index) *
           shard->block;
}

/* As skip does: an element that fails is one of them, one that was not asked for is not. */
static int
pass_gap(co_context *ctx, co_iterator *iterator)
{
    shard_iterator *self = (shard_iterator *)iterator;
    int64_t         gap = gap_of(iterator);

    while (self->passed < gap) {
        int64_t step = iterator->input->dataset->ops->skip != NULL ? gap - self->passed : 1;
        int64_t got = coi_iterator_skip(ctx, iterator->input, step);

        self->passed += got >= 0 ? got : !coi_was_cancelled(ctx);
        if (got < step)
            return got < 0 ? COI_ERROR : COI_END;
    }
    return COI_ELEMENT;
}

/* Elements between ours are passed over before ours is needed, never after: the input is read no
 * further than that. */
static int
shard_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    const shard_dataset *shard = (const shard_dataset *)iterator->dataset;
    shard_iterator      *self = (shard_iterator *)iterator;
    int                  got;

    if (!self->begun && !shard_check(ctx, iterator->dataset))
        return COI_ERROR;
    if (!self->begun || self->given == shard->block) {
        got = pass_gap(ctx, iterator);
        if (got != COI_ELEMENT)
            return got;
        self->begun = true;
        self->given = self->passed = 0;
    }
    got = coi_iterator_next(ctx, iterator->input, leaves);
    self->given += got > 0;
    return got;
}

COI_RARE static bool
shard_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    shard_iterator *self = (shard_iterator *)iterator;

    return coi_checkpoint_flag(ctx, p, &self->begun) &&
           coi_checkpoint_number(ctx, p, &self->given, 0,
                                 ((const shard_dataset *)iterator->dataset)->block) &&
           coi_checkpoint_number(ctx, p, &self->passed, 0, gap_of(iterator));
}

COI_RARE static co_dataset *
shard_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    const shard_dataset *self = (const shard_dataset *)dataset;
    co_dataset          *made = coi_shard_new(ctx, inputs[0], self->num, self->index, self->block);

    if (made != NULL)
        ((shard_dataset *)made)->all_served = self->all_served;
    return made;
}

static const coi_dataset_ops shard_ops = {
    .name = "shard",
    .dataset_size = sizeof(shard_dataset),
    .iterator_size = sizeof(shard_iterator),
    .next = shard_next,
    .with_inputs = shard_with_inputs,
    .tracks = COI_REMADE,
    .check = shard_check,
    .keeps = true,
    .checkpoint = shard_checkpoint,
    .shows = " #1 of #0>2, #2 at a time;",
    .numbers = offsetof(shard_dataset, num),
};

/* How many of n elements are in the shard. */
COI_RARE static int64_t
shard_cardinality(int64_t n, int64_t num, int64_t index, int64_t block)
{
    int64_t rest = n % (num * block) - index * block;

    if (n < 0)
        return n;
    rest = rest < 0 ? 0 : rest < block ? rest : block;
    return n / (num * block) * block + rest;
}

COI_RARE co_dataset *
coi_shard_new(co_context *ctx, co_dataset *input, int64_t num, int64_t index, int64_t block)
{
    co_dataset    *dataset;
    shard_dataset *self;

    coi_ref(input->spec);
    dataset = coi_dataset_new(ctx, &shard_ops, &input, 1, input->spec,
                              shard_cardinality(input->cardinality, num, index, block));
    if (dataset == NULL)
        return NULL;
    dataset->batch_size = input->batch_size;
    self = (shard_dataset *)dataset;
    self->num = num;
    self->index = index;
    self->block = block;
    coi_dataset_mark(dataset, num);
    coi_dataset_mark(dataset, index);
    coi_dataset_mark(dataset, block);
    return dataset;
}

COI_RARE co_dataset *
coi_shard_names(co_context *ctx, co_dataset *names, int num, int index)
{
    co_dataset *dataset = coi_shard_new(ctx, names, num, index, 1);

    if (dataset == NULL)
        return NULL;
    ((shard_dataset *)dataset)->all_served = true;
    dataset->is_added = true;
    return dataset;
}

/* --- hints --- */

COI_RARE static co_code
hint_open(co_context *ctx, co_iterator *iterator)
{
    (void)iterator;
    return coi_fail(
        ctx, CO_FAILED_PRECONDITION,
        "a shard with CO_SHARD_HINT can only be iterated after distribution under the policy "
        "CO_AUTOSHARD_HINT has filled it in; set that policy or give numbers");
}

COI_RARE static int
hint_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    (void)leaves;
    hint_open(ctx, iterator);
    return COI_ERROR;
}

COI_RARE static co_dataset *
hint_fill(co_context *ctx, co_dataset *input, int num, int index)
{
    return coi_shard_new(ctx, input, num, index, 1);
}

static co_dataset *hint_with_inputs(co_context *ctx, co_dataset *dataset,
                                    co_dataset *const *inputs);

static const coi_dataset_ops hint_ops = {
    .name = "shard",
    .dataset_size = sizeof(co_dataset),
    .iterator_size = sizeof(co_iterator),
    .next = hint_next,
    .open = hint_open,
    .with_inputs = hint_with_inputs,
    .tracks = COI_REMADE,
    .fill_hint = hint_fill,
    .shows = " by CO_SHARD_HINT",
};

COI_RARE static co_dataset *
hint_new(co_context *ctx, co_dataset *input)
{
    co_dataset *dataset;

    coi_ref(input->spec);
    /* Whatever the numbers will be: a shard of nothing is empty, one of an endless dataset is
     * endless. */
    dataset = coi_dataset_new(ctx, &hint_ops, &input, 1, input->spec,
                              input->cardinality > 0 ? CO_UNKNOWN_CARDINALITY : input->cardinality);
    if (dataset != NULL)
        dataset->batch_size = input->batch_size;
    return dataset;
}

COI_RARE static co_dataset *
hint_with_inputs(co_context *ctx, co_dataset *dataset, co_dataset *const *inputs)
{
    (void)dataset;
    return hint_new(ctx, inputs[0]);
}

COI_RARE co_dataset *
co_dataset_shard(co_context *ctx, co_dataset *input, int64_t num_shards, int64_t index)
{
    COI_ENTER(ctx, "dataset_shard", NULL);
    if (!coi_check_input(ctx, input, 2, "input"))
        return NULL;
    if (num_shards == CO_SHARD_HINT)
        return coi_dataset_give(ctx, hint_new(ctx, input));
    if (num_shards < 1) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 3 (num_shards) is %lld; it must be 1 or more",
                 (long long)num_shards);
        return NULL;
    }
    if (index < 0 || index >= num_shards) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 4 (index) is %lld; with %lld shard%s it is 0 to %lld", (long long)index,
                 (long long)num_shards, COI_S(num_shards), (long long)num_shards - 1);
        return NULL;
    }
    return coi_dataset_give(ctx, coi_shard_new(ctx, input, num_shards, index, 1));
}
