/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unique: every element once, the first time it comes. Elements are compared by dtype, shape and
 * bytes; all that were given stay in memory, in a table of open addresses.
 */
#include "data/iterator_checkpoint.h"

#include <string.h>

typedef struct unique_iterator {
    coi_stage_iterator base;
    coi_batch_assembly seen;
    uint32_t          *slots;     /* 1 + the number of an element in seen; 0: free */
    size_t             num_slots; /* a power of two, more than twice the elements; 0: none yet */
} unique_iterator;

static co_code
unique_open(co_context *ctx, co_iterator *iterator)
{
    (void)ctx;
    ((unique_iterator *)iterator)->seen.num_leaves = iterator->dataset->num_leaves;
    return CO_OK;
}

static void
unique_close(coi_heap *heap, co_iterator *iterator)
{
    unique_iterator *self = (unique_iterator *)iterator;

    coi_assembly_free(heap, &self->seen);
    coi_small_free(heap, self->slots, self->num_slots * sizeof(*self->slots));
}

static uint64_t
hash_bytes(uint64_t hash, const void *data, size_t nbytes)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < nbytes; ++i) /* FNV-1a */
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t
hash_element(co_value *const *leaves, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n; ++i) {
        const co_value *leaf = leaves[i];

        hash = hash_bytes(hash, leaf->u.tensor.dims, (size_t)leaf->ndim * sizeof(int64_t));
        if (leaf->dtype != CO_STRING) {
            hash = hash_bytes(hash, coi_data_on_host(leaf), coi_tensor_nbytes(leaf));
            continue;
        }
        for (int64_t k = 0; k < leaf->u.tensor.num_elements; ++k) {
            const coi_text *text = (const coi_text *)coi_data_on_host(leaf) + k;

            hash = hash_bytes(hash, text->data, text->nbytes);
        }
    }
    return hash ^ hash >> 32;
}

static bool
same_leaf(const co_value *a, const co_value *b)
{
    if (a->ndim != b->ndim ||
        memcmp(a->u.tensor.dims, b->u.tensor.dims, (size_t)a->ndim * sizeof(int64_t)) != 0)
        return false;
    if (a->u.tensor.num_elements == 0)
        return true;
    if (a->dtype != CO_STRING)
        return memcmp(coi_data_on_host(a), coi_data_on_host(b), coi_tensor_nbytes(a)) == 0;
    for (int64_t k = 0; k < a->u.tensor.num_elements; ++k) {
        const coi_text *x = (const coi_text *)coi_data_on_host(a) + k;
        const coi_text *y = (const coi_text *)coi_data_on_host(b) + k;

        if (x->nbytes != y->nbytes || memcmp(x->data, y->data, x->nbytes) != 0)
            return false;
    }
    return true;
}

/* The slot of an element: taken if it was seen before. */
static uint32_t *
find(const unique_iterator *self, co_value *const *leaves)
{
    size_t n = self->seen.num_leaves, at = (size_t)hash_element(leaves, n);

    for (;; ++at) {
        uint32_t *slot = &self->slots[at & (self->num_slots - 1)];
        bool      same = *slot != 0;

        for (size_t i = 0; same && i < n; ++i)
            same = same_leaf(self->seen.leaves[(*slot - 1) * n + i], leaves[i]);
        if (*slot == 0 || same)
            return slot;
    }
}

/* Keep the table less than half full. */
static bool
make_slots(co_context *ctx, unique_iterator *self)
{
    unique_iterator larger = *self;

    if (self->seen.count * 2 < self->num_slots)
        return true;
    larger.num_slots = self->num_slots > 0 ? 2 * self->num_slots : 16;
    larger.slots = self->seen.count < UINT32_MAX
                       ? coi_small_alloc(&ctx->heap, larger.num_slots * sizeof(*larger.slots))
                       : NULL;
    if (larger.slots == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for more than %zu elements of unique",
                 self->seen.count);
        return false;
    }
    memset(larger.slots, 0, larger.num_slots * sizeof(*larger.slots));
    for (size_t i = 0; i < self->seen.count; ++i)
        *find(&larger, self->seen.leaves + i * self->seen.num_leaves) = (uint32_t)i + 1;
    coi_small_free(&ctx->heap, self->slots, self->num_slots * sizeof(*self->slots));
    self->slots = larger.slots;
    self->num_slots = larger.num_slots;
    return true;
}

static int
unique_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    unique_iterator *self = (unique_iterator *)iterator;
    size_t           n = self->seen.num_leaves;

    for (;;) {
        co_value **room = coi_assembly_room(ctx, &self->seen);
        uint32_t  *slot;
        int        got = room != NULL && make_slots(ctx, self)
                             ? coi_iterator_next(ctx, iterator->input, room)
                             : COI_ERROR;

        if (got != COI_ELEMENT)
            return got;
        slot = find(self, room);
        if (*slot != 0) {
            coi_leaves_release(&ctx->heap, room, n);
            continue;
        }
        *slot = (uint32_t)++self->seen.count;
        for (size_t i = 0; i < n; ++i) {
            coi_ref(room[i]);
            leaves[i] = room[i];
        }
        return COI_ELEMENT;
    }
}

/* What was seen; the table is made from it. */
static bool
unique_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    unique_iterator   *self = (unique_iterator *)iterator;
    coi_batch_assembly seen = { .num_leaves = self->seen.num_leaves };
    bool               ok;

    if (p->saves)
        return coi_checkpoint_assembly(ctx, p, iterator->dataset, UINT32_MAX, &self->seen);
    ok = coi_checkpoint_assembly(ctx, p, iterator->dataset, UINT32_MAX, &seen);
    while (ok && self->seen.count < seen.count) {
        co_value **room = coi_assembly_room(ctx, &self->seen);
        co_value **from = seen.leaves + self->seen.count * seen.num_leaves;

        ok = room != NULL && make_slots(ctx, self);
        for (size_t i = 0; ok && i < seen.num_leaves; ++i) {
            coi_ref(from[i]);
            room[i] = from[i];
        }
        if (ok)
            *find(self, from) = (uint32_t)++self->seen.count;
    }
    coi_assembly_free(&ctx->heap, &seen);
    return ok;
}

static const coi_dataset_ops unique_ops = {
    .name = "unique",
    .dataset_size = sizeof(coi_stage),
    .iterator_size = sizeof(unique_iterator),
    .hides_files = true,
    .next = unique_next,
    .keeps = true,
    .checkpoint = unique_checkpoint,
    .open = unique_open,
    .close = unique_close,
    .with_inputs = coi_stage_with_inputs,
    .count = coi_count_unknown,
};

co_dataset *
co_dataset_unique(co_context *ctx, co_dataset *input)
{
    COI_ENTER(ctx, "dataset_unique", NULL);
    if (!coi_check_input(ctx, input, 2, "input") || !coi_check_tensors(ctx, input))
        return NULL;
    return coi_stage_like(ctx, &unique_ops, input, &(coi_stage_args){ .flag = false });
}
