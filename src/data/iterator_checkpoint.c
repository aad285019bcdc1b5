/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving and restoring iterators: the format, the public calls, and the functions that stages call
 * for their fields. The fields of a stage are in its own file.
 * docs/decisions/iterator-checkpoints.md says what was chosen and why.
 */
#include "data/prefetcher.h"
#include "data/iterator_checkpoint.h"

#include "io/crc32c.h"
#include "ops/engine/execute.h"

#include <string.h>

#define MAGIC     "COHPOS\0\2" /* the last byte is the version */
#define HEAD_SIZE 12           /* with the checksum */

bool
coi_checkpoint_wrong(co_context *ctx, const coi_iterator_checkpoint *p, const char *what)
{
    coi_fail(
        ctx, CO_INVALID_ARGUMENT,
        "the checkpoint does not fit the stage %s: %s; give what co_iterator_save returned for "
        "an iterator of the same pipeline",
        p->stage, what);
    return false;
}

bool
coi_checkpoint_bytes(co_context *ctx, coi_iterator_checkpoint *p, void *bytes, size_t n)
{
    if (!p->saves && n > p->capacity - p->n)
        return coi_checkpoint_wrong(ctx, p, "it ends too early");
    if (p->saves &&
        !coi_grow(&ctx->runtime->memory, (void **)&p->bytes, &p->capacity, p->n + n, 1)) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a checkpoint of %zu bytes", p->n + n);
        return false;
    }
    if (n > 0)
        memcpy(p->saves ? p->bytes + p->n : bytes, p->saves ? bytes : p->bytes + p->n, n);
    p->n += n;
    return true;
}

bool
coi_checkpoint_number(co_context *ctx, coi_iterator_checkpoint *p, int64_t *number, int64_t least,
                      int64_t most)
{
    unsigned char bytes[8];
    uint64_t      word = (uint64_t)*number;

    for (int i = 0; i < 8; ++i)
        bytes[i] = (unsigned char)(word >> 8 * i);
    if (!coi_checkpoint_bytes(ctx, p, bytes, sizeof(bytes)))
        return false;
    word = 0;
    for (int i = 0; i < 8; ++i)
        word |= (uint64_t)bytes[i] << 8 * i;
    if ((int64_t)word < least || (int64_t)word > most)
        return coi_checkpoint_wrong(ctx, p, "a number is out of its range");
    if (!p->saves) /* what is saved may be in use elsewhere */
        *number = (int64_t)word;
    return true;
}

bool
coi_checkpoint_flag(co_context *ctx, coi_iterator_checkpoint *p, bool *flag)
{
    unsigned char byte = *flag;

    if (!coi_checkpoint_bytes(ctx, p, &byte, 1))
        return false;
    if (!p->saves)
        *flag = byte != 0;
    return true;
}

/* --- values --- */

static bool
save_data(co_context *ctx, coi_iterator_checkpoint *p, const co_value *tensor)
{
    const coi_text *texts = coi_data_on_host(tensor);

    if (tensor->dtype != CO_STRING)
        return coi_checkpoint_bytes(ctx, p, coi_data_on_host(tensor), coi_tensor_nbytes(tensor));
    for (int64_t i = 0; i < tensor->u.tensor.num_elements; ++i) {
        int64_t length = (int64_t)texts[i].nbytes;

        if (!coi_checkpoint_number(ctx, p, &length, 0, length) ||
            !coi_checkpoint_bytes(ctx, p, (char *)(uintptr_t)texts[i].data, texts[i].nbytes))
            return false;
    }
    return true;
}

/* Texts where they are, among the bytes. */
static bool
find_texts(co_context *ctx, coi_iterator_checkpoint *p, coi_text *texts, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        int64_t length = 0;

        if (!coi_checkpoint_number(ctx, p, &length, 0, (int64_t)p->capacity))
            return false;
        if ((size_t)length > p->capacity - p->n)
            return coi_checkpoint_wrong(ctx, p, "it ends too early");
        texts[i] = (coi_text){ (const char *)p->bytes + p->n, (size_t)length };
        p->n += (size_t)length;
    }
    return true;
}

/* A tensor of that shape, whose n elements are all present: a length alone never decides how much
 * is allocated. */
static co_value *
load_data(co_context *ctx, coi_iterator_checkpoint *p, co_dtype dtype, const int64_t *dims,
          int ndim)
{
    co_device *device = coi_data_device(ctx);
    size_t     size = dtype == CO_STRING ? sizeof(coi_text) : coi_dtypes[dtype].size;
    size_t     each = dtype == CO_STRING ? sizeof(int64_t) : size, nbytes;
    int64_t    n;
    co_value  *made = NULL;
    coi_text  *texts;

    if (device == NULL)
        return NULL;
    if (coi_shape_check(dims, (size_t)ndim, size, &n, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    if ((size_t)n > (p->capacity - p->n) / each) {
        coi_checkpoint_wrong(ctx, p, "it ends too early");
        return NULL;
    }
    nbytes = (size_t)(n > 0 ? n : 1) * sizeof(*texts);
    if (dtype != CO_STRING) {
        made = coi_tensor_new(&ctx->heap, device, dtype, dims, ndim, n, coi_err(ctx));
        if (made != NULL)
            coi_checkpoint_bytes(ctx, p, coi_data_on_host(made), (size_t)n * size);
        for (int64_t i = 0; made != NULL && dtype == CO_BOOL && i < n; ++i)
            ((unsigned char *)coi_data_on_host(made))[i] &= 1; /* nothing else is a bool */
    } else if ((texts = coi_small_alloc(&ctx->heap, nbytes)) != NULL) {
        if (find_texts(ctx, p, texts, n))
            made = coi_tensor_strings(&ctx->heap, device, dims, ndim, n, texts, coi_err(ctx));
        coi_small_free(&ctx->heap, texts, nbytes);
    } else {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %lld strings of a checkpoint",
                 (long long)n);
    }
    if (made == NULL)
        coi_failed(ctx);
    return made;
}

static bool
load_value(co_context *ctx, coi_iterator_checkpoint *p, const unsigned char head[3],
           co_value **value)
{
    int64_t   dims[CO_MAX_DIMS], number = 0;
    co_value *made;

    if (head[0] == CO_KIND_TENSOR) {
        if (head[1] <= CO_DTYPE_NONE || head[1] >= CO_NUM_DTYPES || head[2] > CO_MAX_DIMS)
            return coi_checkpoint_wrong(ctx, p, "a tensor has a dtype or a rank that there is not");
        for (int i = 0; i < head[2]; ++i) {
            dims[i] = 0;
            if (!coi_checkpoint_number(ctx, p, &dims[i], 0, INT64_MAX))
                return false;
        }
        made = load_data(ctx, p, (co_dtype)head[1], dims, head[2]);
    } else {
        if (head[0] != CO_KIND_INT && head[0] != CO_KIND_FLOAT && head[0] != CO_KIND_BOOL)
            return coi_checkpoint_wrong(ctx, p, "a value is of a kind that cannot be saved");
        if (!coi_checkpoint_number(ctx, p, &number, head[0] == CO_KIND_BOOL ? 0 : INT64_MIN,
                                   head[0] == CO_KIND_BOOL ? 1 : INT64_MAX))
            return false;
        made = coi_value_new(&ctx->heap, (co_kind)head[0]);
        if (made == NULL)
            coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a value of a checkpoint");
        else if (head[0] == CO_KIND_BOOL)
            made->u.b = number != 0;
        else
            memcpy(&made->u, &number, sizeof(number)); /* an integer, or the bits of a double */
    }
    *value = made;
    return made != NULL;
}

static bool
save_value(co_context *ctx, coi_iterator_checkpoint *p, co_value *value)
{
    unsigned char head[3] = { value->kind, value->dtype, (unsigned char)value->ndim };
    int64_t       number = 0;

    if (value->kind == CO_KIND_BOOL)
        number = value->u.b;
    else
        memcpy(&number, &value->u, sizeof(number));
    if (!coi_checkpoint_bytes(ctx, p, head, sizeof(head)))
        return false;
    if (value->kind != CO_KIND_TENSOR)
        return coi_checkpoint_number(ctx, p, &number, INT64_MIN, INT64_MAX);
    for (int i = 0; i < value->ndim; ++i)
        if (!coi_checkpoint_number(ctx, p, &value->u.tensor.dims[i], 0, INT64_MAX))
            return false;
    return save_data(ctx, p, value);
}

bool
coi_checkpoint_value(co_context *ctx, coi_iterator_checkpoint *p, co_value **value)
{
    unsigned char head[3];

    if (!p->saves)
        return coi_checkpoint_bytes(ctx, p, head, sizeof(head)) && load_value(ctx, p, head, value);
    if ((*value)->kind == CO_KIND_TENSOR || coi_kind_of(*value)->stored != CO_DTYPE_NONE)
        return save_value(ctx, p, *value);
    coi_fail(ctx, CO_UNIMPLEMENTED,
             "the stage %s holds %s, which cannot be saved; tensors and host numbers can", p->stage,
             coi_a_kind((*value)->kind));
    return false;
}

bool
coi_checkpoint_leaves(co_context *ctx, coi_iterator_checkpoint *p, const co_dataset *like,
                      co_value **leaves)
{
    for (size_t i = 0; i < like->num_leaves; ++i) {
        const co_value *spec = like->specs[i];
        bool            is_dataset = coi_is_dataset_spec(spec);
        bool            ok = is_dataset ? coi_checkpoint_window(ctx, p, spec, &leaves[i])
                                        : coi_checkpoint_value(ctx, p, &leaves[i]);

        if (ok && !is_dataset &&
            (leaves[i]->kind != CO_KIND_TENSOR || !coi_spec_within(leaves[i], spec))) {
            ok = coi_checkpoint_wrong(ctx, p, "an element is of another dtype or shape");
            ++i;
        }
        if (!ok) {
            if (!p->saves)
                coi_leaves_release(&ctx->heap, leaves, i);
            return false;
        }
    }
    return true;
}

bool
coi_checkpoint_assembly(co_context *ctx, coi_iterator_checkpoint *p, const co_dataset *like,
                        int64_t most, coi_batch_assembly *pieces)
{
    int64_t count = (int64_t)pieces->count;

    if (!coi_checkpoint_number(ctx, p, &count, 0, most))
        return false;
    for (size_t i = 0; i < (size_t)count; ++i) {
        co_value **room = p->saves ? pieces->leaves + i * pieces->num_leaves
                                   : coi_assembly_room(ctx, pieces);

        if (room == NULL || !coi_checkpoint_leaves(ctx, p, like, room))
            return false;
        if (!p->saves) /* a store of a cache may be saved by others at the same time */
            ++pieces->count;
    }
    return true;
}

bool
coi_checkpoint_cut(co_context *ctx, coi_iterator_checkpoint *p, const co_iterator *iterator,
                   co_value **element, int64_t *rows, int64_t *at)
{
    const co_dataset *input = iterator->dataset->inputs[0];
    int64_t           begin = *at;
    bool              is_cut = *rows > 0;

    if (!coi_checkpoint_flag(ctx, p, &is_cut))
        return false;
    if (!is_cut)
        return true;
    if (!coi_checkpoint_number(ctx, p, &begin, 0, INT64_MAX) ||
        !coi_checkpoint_leaves(ctx, p, input, element))
        return false;
    if (p->saves)
        return true;
    *rows = coi_agreed_rows(ctx, element, input->num_leaves);
    if (*rows >= begin && *rows > 0) {
        *at = begin;
        return true;
    }
    coi_leaves_release(&ctx->heap, element, input->num_leaves);
    *rows = 0;
    return ctx->error.code == CO_OK &&
           coi_checkpoint_wrong(ctx, p, "an element has fewer rows than are gone of it");
}

/* --- stages --- */

static void
mix(uint64_t *mark, int64_t number)
{
    *mark = (*mark ^ (uint64_t)number) * 0x100000001b3u;
    *mark ^= *mark >> 29;
}

/* The signature of a stage: its kind, its numbers, its elements. Functions cannot be compared. */
static uint64_t
mark_of(const co_dataset *dataset)
{
    uint64_t mark = dataset->mark;

    for (const char *at = dataset->ops->name; *at != '\0'; ++at)
        mix(&mark, *at);
    mix(&mark, dataset->cardinality);
    mix(&mark, dataset->batch_size);
    mix(&mark, (int64_t)dataset->num_inputs);
    for (size_t i = 0; i < dataset->num_leaves; ++i) {
        const co_value *spec = coi_part_of(dataset->specs[i], 0);

        mix(&mark, spec->dtype);
        mix(&mark, spec->ndim);
        for (int d = 0; d < spec->ndim; ++d)
            mix(&mark, spec->u.tensor.dims[d]);
    }
    return mark;
}

void
coi_dataset_mark(co_dataset *dataset, int64_t number)
{
    mix(&dataset->mark, number);
}

/* Whether a mark is among the bytes, that which was read last included. */
static bool
has_mark(const coi_iterator_checkpoint *p, uint64_t mark)
{
    unsigned char bytes[8];

    for (int i = 0; i < 8; ++i)
        bytes[i] = (unsigned char)(mark >> 8 * i);
    for (size_t at = p->n - sizeof(bytes); p->capacity - at >= sizeof(bytes); ++at)
        if (memcmp(p->bytes + at, bytes, sizeof(bytes)) == 0)
            return true;
    return false;
}

/* Lengths and batch sizes go from stage to stage, so marks differ behind the one that is another:
 * the first of them, from the source. */
static bool
blame(co_context *ctx, coi_iterator_checkpoint *p, const co_iterator *iterator)
{
    while (iterator != NULL && (iterator = iterator->input) != NULL)
        if (!has_mark(p, mark_of(iterator->dataset)))
            p->stage = coi_stage_name(iterator->dataset);
    return coi_checkpoint_wrong(ctx, p, "it was saved at another one, or with other arguments");
}

/* A stage begins: it is the one that was saved there. */
static bool
checkpoint_mark(co_context *ctx, coi_iterator_checkpoint *p, const co_dataset *dataset,
                const co_iterator *iterator)
{
    int64_t mark = (int64_t)mark_of(dataset), found = mark;

    p->stage = coi_stage_name(dataset);
    if (!coi_checkpoint_number(ctx, p, &found, INT64_MIN, INT64_MAX))
        return false;
    return found == mark || blame(ctx, p, iterator);
}

bool
coi_checkpoint_iterator(co_context *ctx, coi_iterator_checkpoint *p, co_iterator *iterator)
{
    const co_dataset *dataset = iterator->dataset;

    if (!checkpoint_mark(ctx, p, dataset, iterator))
        return false;
    if (dataset->ops->checkpoint == NULL) { /* those of v1.h */
        coi_fail(
            ctx, CO_UNIMPLEMENTED,
            "the checkpoint of an %s cannot be saved; use co_iterate with co_distribute_dataset "
            "or co_distribute_datasets_from_function in its place",
            p->stage);
        return false;
    }
    if (!dataset->ops->checkpoint(ctx, iterator, p))
        return false;
    return iterator->input == NULL || coi_checkpoint_iterator(ctx, p, iterator->input);
}

bool
coi_checkpoint_stage(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    coi_stage_iterator *self = (coi_stage_iterator *)iterator;

    return coi_checkpoint_number(ctx, p, &self->index, 0, COI_MOST_COUNTED) &&
           coi_checkpoint_flag(ctx, p, &self->ended);
}

/* --- what iterators of a dataset share --- */

void
coi_shared_end(coi_heap *heap, coi_shared **all, bool tells)
{
    while (*all != NULL) {
        coi_shared *one = *all;

        *all = one->next;
        if (tells)
            one->dataset->ops->share(one->dataset, one);
        coi_unref(heap, one->store);
        coi_unref(heap, one->dataset);
        coi_small_free(heap, one, sizeof(*one));
    }
}

/* What an iterator that was not asked since it was restored has for its datasets comes in the order
 * in which it was read. */
static bool
save_shared(co_context *ctx, coi_iterator_checkpoint *p, co_dataset *dataset)
{
    coi_shared shared = { .dataset = dataset };

    if (p->untold != NULL && p->untold->dataset == dataset) {
        shared = *p->untold;
        p->untold = p->untold->next;
    } else {
        dataset->ops->fetch(dataset, &shared);
    }
    return dataset->ops->shared_checkpoint(ctx, dataset, p, &shared);
}

static bool
load_shared(co_context *ctx, coi_iterator_checkpoint *p, co_dataset *dataset)
{
    coi_shared *shared = coi_small_alloc(&ctx->heap, sizeof(*shared));

    if (shared == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a checkpoint");
        return false;
    }
    coi_ref(dataset);
    *shared = (coi_shared){ .dataset = dataset };
    *p->end = shared;
    p->end = &shared->next;
    return dataset->ops->shared_checkpoint(ctx, dataset, p, shared);
}

bool
coi_checkpoint_shared(co_context *ctx, coi_iterator_checkpoint *p, co_dataset *dataset)
{
    for (size_t i = 0; i < dataset->num_inputs; ++i)
        if (!coi_checkpoint_shared(ctx, p, dataset->inputs[i]))
            return false;
    if (dataset->ops->shared_checkpoint == NULL)
        return true;
    return checkpoint_mark(ctx, p, dataset, NULL) &&
           (p->saves ? save_shared(ctx, p, dataset) : load_shared(ctx, p, dataset));
}

/* --- the public calls --- */

static bool
checkpoint_whole(co_context *ctx, coi_iterator_checkpoint *p, co_iterator *iterator)
{
    p->stage = coi_stage_name(iterator->dataset);
    return coi_checkpoint_number(ctx, p, &iterator->step_examples, -1, INT64_MAX) &&
           coi_checkpoint_number(ctx, p, &iterator->dropped_rows, 0, COI_MOST_COUNTED) &&
           coi_checkpoint_iterator(ctx, p, iterator) &&
           coi_checkpoint_shared(ctx, p, iterator->dataset);
}

static void
put_checksum(const unsigned char *bytes, size_t n, unsigned char out[4])
{
    uint32_t sum = coi_crc32c(bytes + HEAD_SIZE, n - HEAD_SIZE);

    for (int i = 0; i < 4; ++i)
        out[i] = (unsigned char)(sum >> 8 * i);
}

typedef struct saving {
    const void  *resource;
    co_iterator *iterator;
    co_value    *made;
} saving;

static bool
save(co_context *ctx, void *arg)
{
    saving                 *s = arg;
    coi_iterator_checkpoint p = { .saves = true,
                                  .stage = coi_stage_name(s->iterator->dataset),
                                  .untold = s->iterator->untold };
    unsigned char           head[HEAD_SIZE] = MAGIC;
    bool                    ok;

    ok = coi_checkpoint_bytes(ctx, &p, head, HEAD_SIZE) && checkpoint_whole(ctx, &p, s->iterator);
    coi_prefetcher_resume(p.paused);
    if (ok) {
        put_checksum(p.bytes, p.n, p.bytes + HEAD_SIZE - 4);
        s->made = co_bytes(ctx, p.bytes, p.n);
    }
    coi_free(&ctx->runtime->memory, p.bytes, p.capacity);
    coi_free(&ctx->runtime->memory, p.stores, p.stores_capacity * sizeof(*p.stores));
    return s->made != NULL;
}

const coi_op coi_op_iterator_save = {
    COI_EFFECT("iterator_save", "Saves a checkpoint of an iterator; co_iterator_save.",
               coi_body_effect, CO_RESOURCE_ITERATOR, 0)
};

co_value *
co_iterator_save(co_context *ctx, co_iterator *iterator)
{
    saving s = { iterator, iterator, NULL };

    COI_ENTER(ctx, "iterator_save", NULL);
    if (!coi_check_object(ctx, iterator, &coi_iterator_class, 2, "iterator"))
        return NULL;
    if (coi_has_exclusive_ref(iterator) || coi_in_replica(ctx)) {
        coi_fail(
            ctx, CO_RUNTIME_ERROR,
            "a checkpoint is saved between two elements: neither in a step of replicas nor by a "
            "function of the pipeline; call it where co_next is called");
        return NULL;
    }
    if (iterator->cancel.not_checkpointable_by != NULL) {
        coi_fail(ctx, CO_FAILED_PRECONDITION,
                 "the iterator was cancelled while the stage %s made an element, and what it had "
                 "gathered for it is gone; save before it is cancelled, or cancel it between two "
                 "elements",
                 iterator->cancel.not_checkpointable_by);
        return NULL;
    }
    coi_execute_body(ctx, &coi_op_iterator_save,
                     (coi_effect){ .resources = &s.resource, .num_resources = 1 }, save, &s);
    return s.made;
}

/* Whether these are the bytes of a checkpoint, whole. */
static bool
check_bytes(co_context *ctx, const unsigned char *bytes, size_t n)
{
    unsigned char sum[4];

    if (n < HEAD_SIZE || memcmp(bytes, MAGIC, HEAD_SIZE - 5) != 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (checkpoint) holds %zu bytes that are not a checkpoint; give what "
                 "co_iterator_save returned",
                 n);
        return false;
    }
    if (bytes[HEAD_SIZE - 5] != MAGIC[HEAD_SIZE - 5]) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (checkpoint) is of version %d, and this library reads version %d; "
                 "restore it with the library that saved it",
                 bytes[HEAD_SIZE - 5], MAGIC[HEAD_SIZE - 5]);
        return false;
    }
    put_checksum(bytes, n, sum);
    if (memcmp(sum, bytes + HEAD_SIZE - 4, 4) == 0)
        return true;
    coi_fail(
        ctx, CO_DATA_LOSS,
        "argument 3 (checkpoint): the checksum of its %zu bytes is wrong; they were changed or cut "
        "off after they were saved",
        n);
    return false;
}

/* The bytes of one string. */
static const char *
text_of(co_context *ctx, const co_value *value, size_t *nbytes)
{
    coi_text        alone;
    int64_t         n;
    const coi_text *text = coi_texts_of(value, &alone, &n);

    if (text != NULL && value->ndim == 0) {
        *nbytes = text->nbytes;
        return text->data;
    }
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument 3 (checkpoint) is %s; it must be one string, as co_iterator_save returns it",
             coi_a_kind(value->kind));
    return NULL;
}

typedef struct restoring {
    coi_iterator_checkpoint p;
    const void             *resource;
    co_iterator            *iterator;
} restoring;

static bool
restore(co_context *ctx, void *arg)
{
    restoring *r = arg;

    r->p.n = HEAD_SIZE;
    r->p.end = &r->iterator->untold;
    if (checkpoint_whole(ctx, &r->p, r->iterator) && r->p.n != r->p.capacity)
        coi_checkpoint_wrong(ctx, &r->p, "it has more bytes than the pipeline has stages for");
    coi_free(&ctx->runtime->memory, r->p.stores, r->p.stores_capacity * sizeof(*r->p.stores));
    return ctx->error.code == CO_OK;
}

const coi_op coi_op_iterator_restore = {
    COI_EFFECT("iterator_restore", "Restores an iterator from a checkpoint; co_iterator_restore.",
               coi_body_effect, 0, CO_RESOURCE_ITERATOR)
};

co_iterator *
co_iterator_restore(co_context *ctx, co_dataset *dataset, co_value *checkpoint)
{
    restoring   r = { .p.saves = false };
    const char *bytes;

    COI_ENTER(ctx, "iterator_restore", NULL);
    if (!coi_check_dataset(ctx, dataset, 2, "dataset"))
        return NULL;
    if (checkpoint == NULL) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 3 (checkpoint) of iterator_restore is NULL; give what co_iterator_save "
                 "returned");
        return NULL;
    }
    if (!coi_check_value(ctx, checkpoint, 3, "checkpoint"))
        return NULL;
    bytes = text_of(ctx, checkpoint, &r.p.capacity);
    if (bytes == NULL || !check_bytes(ctx, (const unsigned char *)bytes, r.p.capacity))
        return NULL;
    r.resource = r.iterator = coi_iterator_whole(ctx, dataset);
    if (r.iterator == NULL)
        return NULL;
    r.p.bytes = (unsigned char *)(uintptr_t)bytes; /* which are only read */
    if (coi_execute_body(ctx, &coi_op_iterator_restore,
                         (coi_effect){ .resources = &r.resource, .num_resources = 1 }, restore, &r))
        return coi_own(ctx, r.iterator);
    coi_unref(&ctx->heap, r.iterator);
    return NULL;
}
