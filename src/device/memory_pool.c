/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory pool of a device. Blocks come in size classes, eight to a doubling, so that a block is
 * at most an eighth larger than what was asked for (or 63 bytes); a free block waits in the list of
 * its class for the next tensor of that size. A repeated step finds every block it needs and
 * allocates nothing.
 *
 *     class     0    1    2  ...  7    8    9 ... 15   16 ...
 *     bytes    64  128  192     512  576  640   1024  1152      then 8 steps to 2048, 4096, ...
 *
 * What is free stays here, with one exception: big blocks (1 MiB and more) that nobody used for a
 * while. The pool's clock counts requests and ticks every 65536; a big block that saw two ticks in
 * its list goes back to the allocator. So a shape that a program has left behind is not paid for
 * ever, and a loop of fewer than 65536 requests per round never loses a block it uses. When the
 * allocator has nothing left, all free blocks of all devices are given back and it is asked once
 * more.
 *
 * A block is free as soon as nobody refers to it, even while commands that use it pend in the queue
 * of the device: whatever the next owner does with it goes to the same queue, behind them. The
 * backend gets memory back in the same order.
 *
 * Headers (coi_buffer) are cut from slabs and never returned before the pool ends; a header stays
 * with its block. With the address sanitizer a free block is poisoned, and of a block in use what
 * lies behind the bytes asked for.
 */
#include "base/sanitize.h"
#include "device/device.h"

enum {
    MIN_SHIFT = 6,   /* the first eight classes are steps of 64 bytes */
    STEPS_SHIFT = 3, /* eight steps to a doubling */
    STEPS = 1 << STEPS_SHIFT,
    MAX_SHIFT = 46, /* blocks up to 64 TiB */
    NUM_CLASSES = (MAX_SHIFT - MIN_SHIFT - STEPS_SHIFT + 1) * STEPS,
    BIG_CLASS = (20 - MIN_SHIFT - STEPS_SHIFT + 1) * STEPS - 1, /* 1 MiB */
    NEIGHBOURS = 1, /* larger classes to look at before the allocator is asked */
    HEADERS_PER_SLAB = 63,
    TICK_REQUESTS = 1 << 16,
};

typedef struct slab {
    struct slab *next;
    _Alignas(64) coi_buffer headers[HEADERS_PER_SLAB];
} slab;

struct coi_pool {
    coi_lock    lock;
    co_device  *device;
    slab       *slabs;
    coi_buffer *free_headers;
    int64_t     bytes_in_use;
    int64_t     peak_bytes;
    int64_t     bytes_reserved;
    int64_t     requests;
    int64_t     misses;
    coi_buffer *free_blocks[NUM_CLASSES];
};

_Static_assert(sizeof(coi_buffer) <= 64, "a header is one cache line");

/*
 * The class of a request of at least one byte: number of the step of 64 bytes, then eight steps per
 * doubling.
 */
static uint32_t
class_of(size_t nbytes)
{
    uint64_t last = (uint64_t)(nbytes - 1) >> MIN_SHIFT; /* 64-byte units before the last one */
    int      top;

    if (last < STEPS)
        return (uint32_t)last;
    top = 63 - __builtin_clzll(last);
    return (uint32_t)((top - STEPS_SHIFT) * STEPS + (int)(last >> (top - STEPS_SHIFT)));
}

static size_t
class_bytes(uint32_t size_class)
{
    uint32_t doubling = size_class / STEPS;
    size_t   units = size_class % STEPS + 1;

    if (doubling == 0)
        return units << MIN_SHIFT;
    return (units + STEPS) << (MIN_SHIFT + doubling - 1);
}

size_t
coi_pool_block_bytes(size_t nbytes)
{
    if (nbytes == 0)
        nbytes = 1;
    if (nbytes > (size_t)1 << MAX_SHIFT)
        return 0;
    return class_bytes(class_of(nbytes));
}

static uint32_t
clock_of(const coi_pool *pool)
{
    return (uint32_t)(pool->requests / TICK_REQUESTS);
}

/* With the lock held: a header, from the last slab. NULL when a slab is needed. */
static coi_buffer *
pop_header(coi_pool *pool)
{
    coi_buffer *header = pool->free_headers;

    if (header != NULL)
        pool->free_headers = header->next_free;
    return header;
}

/*
 * A header in the list has no data: that is how one in use is told from a free one when the pool
 * ends.
 */
static void
push_header(coi_pool *pool, coi_buffer *header)
{
    header->data = NULL;
    header->next_free = pool->free_headers;
    pool->free_headers = header;
}

/* With the lock held: a header, making a slab if need be. */
static coi_buffer *
need_header(coi_pool *pool)
{
    slab *more;

    if (pool->free_headers != NULL)
        return pop_header(pool);
    more = coi_calloc(pool->device->memory, sizeof(*more));
    if (more == NULL)
        return NULL;
    more->next = pool->slabs;
    pool->slabs = more;
    for (size_t i = HEADERS_PER_SLAB; i > 0; --i)
        push_header(pool, &more->headers[i - 1]);
    return pop_header(pool);
}

static void
free_block_memory(coi_pool *pool, coi_buffer *block)
{
    size_t nbytes = class_bytes(block->size_class);

    coi_unpoison(block->data, nbytes);
    coi_device_free(pool->device, coi_backend_buffer(block), nbytes);
}

/* With the lock held: move the blocks that were idle for `ticks` from a list to the chain `out`. */
static coi_buffer *
take_idle(coi_buffer **list, uint32_t now, uint32_t ticks, coi_buffer *out)
{
    while (*list != NULL) {
        coi_buffer *block = *list;

        if (now - block->idle_since >= ticks) {
            *list = block->next_free;
            block->next_free = out;
            out = block;
        } else {
            list = &block->next_free;
        }
    }
    return out;
}

/*
 * Give blocks from class `first` on that are idle for `ticks` back to the allocator, outside the
 * lock.
 */
static void
release_idle(coi_pool *pool, uint32_t first, uint32_t ticks)
{
    coi_buffer *idle = NULL;
    coi_buffer *next;
    uint32_t    now;

    coi_lock_take(&pool->lock);
    now = clock_of(pool);
    for (uint32_t i = first; i < NUM_CLASSES; ++i)
        idle = take_idle(&pool->free_blocks[i], now, ticks, idle);
    for (coi_buffer *block = idle; block != NULL; block = block->next_free)
        pool->bytes_reserved -= (int64_t)class_bytes(block->size_class);
    coi_lock_give(&pool->lock);

    for (coi_buffer *block = idle; block != NULL; block = block->next_free)
        free_block_memory(pool, block);

    coi_lock_take(&pool->lock);
    for (; idle != NULL; idle = next) {
        next = idle->next_free;
        push_header(pool, idle);
    }
    coi_lock_give(&pool->lock);
}

void
coi_pool_trim(coi_pool *pool)
{
    release_idle(pool, 0, 0);
}

/* With the lock held: a free block of the class or of a neighbour not much larger. */
static coi_buffer *
pop_block(coi_pool *pool, uint32_t size_class)
{
    for (uint32_t i = size_class; i <= size_class + NEIGHBOURS && i < NUM_CLASSES; ++i) {
        coi_buffer *block = pool->free_blocks[i];

        if (block != NULL) {
            pool->free_blocks[i] = block->next_free;
            return block;
        }
    }
    return NULL;
}

static void
count_in_use(coi_pool *pool, size_t nbytes)
{
    pool->bytes_in_use += (int64_t)nbytes;
    if (pool->bytes_in_use > pool->peak_bytes)
        pool->peak_bytes = pool->bytes_in_use;
}

/* The reason of a backend that failed, unless it is lack of memory, which the caller reports. */
static void
report_failure(co_device *device, const co_error_info *why, co_error_info *err)
{
    if (why->code == CO_RESOURCE_EXHAUSTED)
        return;
    if (err != NULL)
        coi_error(err, why->code, "%s", why->message);
    else
        coi_log_line(device->log, CO_LOG_ERROR, "%s: %s", device->name, why->message);
}

/* Allocate from the backend; if it has no memory, free the unused blocks of all devices and try
 * once more. */
static co_backend_buffer *
new_memory(co_device *device, size_t nbytes, co_error_info *err)
{
    co_backend_buffer *made = NULL;
    co_error_info      why;

    coi_error_reset(&why);
    if (coi_device_alloc(device, nbytes, &made, &why) == CO_OK)
        return made;
    coi_devices_trim(device->owner);
    coi_device_settle(device); /* what is freed in queue order is free */
    coi_error_reset(&why);
    made = NULL;
    if (coi_device_alloc(device, nbytes, &made, &why) == CO_OK)
        return made;
    report_failure(device, &why, err);
    return NULL;
}

/* A block from the allocator. The lock is not held while the allocator works. */
static coi_buffer *
new_block(coi_pool *pool, uint32_t size_class, size_t nbytes, co_error_info *err)
{
    size_t             block_bytes = class_bytes(size_class);
    co_backend_buffer *memory = new_memory(pool->device, block_bytes, err);
    coi_buffer        *block;

    if (memory == NULL)
        return NULL;
    coi_lock_take(&pool->lock);
    block = need_header(pool);
    if (block != NULL) {
        pool->misses += 1;
        pool->bytes_reserved += (int64_t)block_bytes;
        count_in_use(pool, nbytes);
    }
    coi_lock_give(&pool->lock);
    if (block == NULL) {
        coi_device_free(pool->device, memory, block_bytes);
        return NULL;
    }
    block->size_class = size_class;
    block->device = pool->device;
    block->data = pool->device->backend->buffer->address(memory);
    block->user = memory;
    coi_poison(block->data, block_bytes);
    return block;
}

coi_buffer *
coi_buffer_alloc(co_device *device, size_t nbytes, co_error_info *err)
{
    coi_pool   *pool = device->pool;
    uint32_t    size_class = class_of(nbytes > 0 ? nbytes : 1);
    coi_buffer *block;
    bool        tick;

    if (nbytes > (size_t)1 << MAX_SHIFT)
        return NULL;
    coi_lock_take(&pool->lock);
    tick = ++pool->requests % TICK_REQUESTS == 0;
    block = pop_block(pool, size_class);
    if (block != NULL)
        count_in_use(pool, nbytes);
    coi_lock_give(&pool->lock);
    if (tick)
        release_idle(pool, BIG_CLASS, 2);
    if (block == NULL)
        block = new_block(pool, size_class, nbytes, err);
    if (block == NULL)
        return NULL;
    block->nbytes = nbytes;
    block->deleter = NULL;
    atomic_store_explicit(&block->refs, 1, memory_order_relaxed);
    coi_unpoison(block->data, nbytes);
    return block;
}

coi_buffer *
coi_buffer_foreign(co_device *device, void *data, size_t nbytes, void (*deleter)(void *user),
                   void *user)
{
    coi_pool   *pool = device->pool;
    coi_buffer *header;

    coi_lock_take(&pool->lock);
    header = need_header(pool);
    coi_lock_give(&pool->lock);
    if (header == NULL)
        return NULL;
    header->size_class = COI_BUFFER_FOREIGN;
    header->device = device;
    header->data = data;
    header->nbytes = nbytes;
    header->deleter = deleter;
    header->user = user;
    atomic_store_explicit(&header->refs, 1, memory_order_relaxed);
    return header;
}

static void
free_foreign(coi_buffer *header)
{
    coi_pool *pool = header->device->pool;

    if (header->deleter != NULL)
        header->deleter(header->user);
    coi_lock_take(&pool->lock);
    push_header(pool, header);
    coi_lock_give(&pool->lock);
}

void
coi_buffer_free(coi_buffer *buffer)
{
    coi_pool *pool = buffer->device->pool;

    if (buffer->size_class == COI_BUFFER_FOREIGN) {
        free_foreign(buffer);
        return;
    }
    coi_poison(buffer->data, class_bytes(buffer->size_class));
    coi_lock_take(&pool->lock);
    pool->bytes_in_use -= (int64_t)buffer->nbytes;
    buffer->idle_since = clock_of(pool);
    buffer->next_free = pool->free_blocks[buffer->size_class];
    pool->free_blocks[buffer->size_class] = buffer;
    coi_lock_give(&pool->lock);
}

co_code
coi_pool_create(co_device *device, coi_pool **out, co_error_info *err)
{
    coi_pool *pool = coi_calloc(device->memory, sizeof(*pool));

    if (pool == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for the pool of %s", device->name);
    coi_lock_init(&pool->lock);
    pool->device = device;
    *out = pool;
    return CO_OK;
}

/*
 * Memory of blocks that are still in use is found through the headers: every header is in some
 * slab.
 */
static void
release_leaked(coi_pool *pool)
{
    for (slab *s = pool->slabs; s != NULL; s = s->next)
        for (size_t i = 0; i < HEADERS_PER_SLAB; ++i) {
            coi_buffer *header = &s->headers[i];

            if (header->data != NULL && header->size_class != COI_BUFFER_FOREIGN)
                free_block_memory(pool, header);
        }
}

int64_t
coi_pool_destroy(coi_pool *pool)
{
    int64_t leaked;
    slab   *next;

    if (pool == NULL)
        return 0;
    leaked = pool->bytes_in_use;
    coi_pool_trim(pool);
    if (leaked != 0 || pool->bytes_reserved != 0)
        release_leaked(pool);
    for (slab *s = pool->slabs; s != NULL; s = next) {
        next = s->next;
        coi_free(pool->device->memory, s, sizeof(*s));
    }
    coi_free(pool->device->memory, pool, sizeof(*pool));
    return leaked;
}

void
coi_pool_fill_info(coi_pool *pool, co_device_info *info)
{
    coi_lock_take(&pool->lock);
    info->bytes_in_use = pool->bytes_in_use;
    info->peak_bytes = pool->peak_bytes;
    info->bytes_reserved = pool->bytes_reserved;
    info->allocations = pool->requests;
    info->pool_misses = pool->misses;
    coi_lock_give(&pool->lock);
}
