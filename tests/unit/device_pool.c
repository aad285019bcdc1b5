/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers and the pool they come from. */
#include "base/sanitize.h"
#include "device/device.h"
#include "hooks.h"
#include "test.h"

/* A registry with two CPUs and what it borrows. */
typedef struct rig {
    test_hooks   hooks;
    coi_memory   memory;
    coi_log      log;
    coi_waiting  waiting;
    coi_topology topology;
    int          cores[2];
    coi_devices *devices;
    co_device   *cpu;
    co_device   *other;
} rig;

static void
set_up(rig *r)
{
    coi_settings settings;

    test_hooks_init(&r->hooks, 0);
    coi_memory_init(&r->memory, &r->hooks.allocator);
    coi_log_init(&r->log, NULL, NULL);
    coi_waiting_init(&r->waiting, 2, 20);
    r->cores[0] = 0;
    r->cores[1] = 1;
    r->topology = (coi_topology){ 2, r->cores, 2 };
    CO_REQUIRE(coi_settings_load(&settings, "cpus=2,threads=2,pin=no", NULL, NULL) == CO_OK);
    CO_REQUIRE(coi_devices_create(&r->memory, &settings, &r->topology, &r->waiting, &r->log,
                                  &r->devices, NULL) == CO_OK);
    r->cpu = coi_devices_at(r->devices, 0);
    r->other = coi_devices_at(r->devices, 1);
}

static void
tear_down(rig *r)
{
    coi_devices_destroy(r->devices);
    coi_log_destroy(&r->log);
    CO_EXPECT_INT(r->hooks.blocks, 0);
    CO_EXPECT_INT(r->memory.bytes_in_use, 0);
}

static co_device_info
info_of(co_device *device)
{
    co_device_info info = CO_DEVICE_INFO_INIT;

    coi_device_fill_info(device, &info);
    return info;
}

static void
expect_class(size_t nbytes)
{
    size_t block = coi_pool_block_bytes(nbytes);

    if (block < nbytes || block > nbytes + (nbytes / 8 > 63 ? nbytes / 8 : 63) ||
        block % COI_ALIGNMENT != 0 || coi_pool_block_bytes(block) != block)
        CO_FAIL("a request of %zu bytes is served by %zu", nbytes, block);
}

CO_TEST_BARE(a_block_is_at_most_an_eighth_larger_than_asked_for, "")
{
    size_t before = 0;

    for (size_t nbytes = 1; nbytes <= 70000; ++nbytes) {
        expect_class(nbytes);
        CO_REQUIRE(coi_pool_block_bytes(nbytes) >= before);
        before = coi_pool_block_bytes(nbytes);
    }
    for (int shift = 16; shift <= 46; ++shift)
        for (int delta = -2; delta <= 2; ++delta)
            if (shift < 46 || delta <= 0)
                expect_class(((size_t)1 << shift) + (size_t)delta);
    CO_EXPECT_INT(coi_pool_block_bytes(0), 64);
    CO_EXPECT_INT(coi_pool_block_bytes(513), 576);
    CO_EXPECT_INT(coi_pool_block_bytes(1025), 1152);
    CO_EXPECT_INT(coi_pool_block_bytes(((size_t)1 << 46) + 1), 0);
    CO_EXPECT_INT(coi_pool_block_bytes(SIZE_MAX), 0);
}

CO_TEST_BARE(buffers_are_aligned_usable_and_counted, "")
{
    static const size_t sizes[] = { 0, 1, 64, 65, 1000, 4096, 100000, 3 << 20 };
    rig                 r;
    coi_buffer         *buffers[8];
    co_device_info      info;
    int64_t             total = 0;

    set_up(&r);
    for (size_t i = 0; i < 8; ++i) {
        buffers[i] = coi_buffer_alloc(r.cpu, sizes[i], NULL);
        CO_REQUIRE(buffers[i] != NULL);
        CO_EXPECT_INT((uintptr_t)buffers[i]->data % COI_ALIGNMENT, 0);
        CO_EXPECT_INT(buffers[i]->nbytes, sizes[i]);
        CO_EXPECT_INT(buffers[i]->refs, 1);
        CO_EXPECT_PTR(buffers[i]->device, r.cpu);
        memset(buffers[i]->data, (int)i, sizes[i]);
        total += (int64_t)sizes[i];
    }
    info = info_of(r.cpu);
    CO_EXPECT_INT(info.bytes_in_use, total);
    CO_EXPECT_INT(info.peak_bytes, total);
    CO_EXPECT_INT(info.allocations, 8);
    CO_EXPECT_INT(info.pool_misses, 8);
    CO_EXPECT_TRUE(info.bytes_reserved >= total);
    for (size_t i = 0; i < 8; ++i) {
        for (size_t k = 0; k < sizes[i]; ++k)
            CO_REQUIRE(((unsigned char *)buffers[i]->data)[k] == i);
        coi_buffer_unref(buffers[i]);
    }
    CO_EXPECT_INT(info_of(r.cpu).bytes_in_use, 0);
    CO_EXPECT_INT(info_of(r.cpu).peak_bytes, total);
    CO_EXPECT_INT(info_of(r.cpu).bytes_reserved, info.bytes_reserved);
    tear_down(&r);
}

/* A step with twenty shapes, repeated: the first round fills the pool, the others ask nobody. */
CO_TEST_BARE(a_repeated_step_takes_nothing_from_the_allocator, "")
{
    rig       r;
    long long requests = 0;

    set_up(&r);
    for (int round = 0; round < 50; ++round) {
        coi_buffer *buffers[20];

        for (size_t i = 0; i < 20; ++i) {
            buffers[i] = coi_buffer_alloc(r.cpu, i * i * 997, NULL);
            CO_REQUIRE(buffers[i] != NULL);
            if (i % 3 == 2) {
                coi_buffer_unref(buffers[i - 1]);
                buffers[i - 1] = NULL;
            }
        }
        for (size_t i = 0; i < 20; ++i)
            if (buffers[i] != NULL)
                coi_buffer_unref(buffers[i]);
        if (round == 1)
            requests = r.hooks.requests;
    }
    CO_EXPECT_INT(r.hooks.requests, requests);
    CO_EXPECT_INT(info_of(r.cpu).allocations, 1000);
    tear_down(&r);
}

CO_TEST_BARE(a_free_block_one_class_up_serves_too, "")
{
    rig         r;
    coi_buffer *buffer;

    set_up(&r);
    buffer = coi_buffer_alloc(r.cpu, 1152, NULL); /* classes: 1024, 1152, 1280 */
    coi_buffer_unref(buffer);
    buffer = coi_buffer_alloc(r.cpu, 1000, NULL);
    CO_EXPECT_INT(info_of(r.cpu).pool_misses, 1);
    CO_EXPECT_INT(buffer->nbytes, 1000);
    CO_EXPECT_INT(info_of(r.cpu).bytes_in_use, 1000);
    coi_buffer_unref(buffer);
    buffer = coi_buffer_alloc(r.cpu, 960, NULL); /* two classes down: not */
    CO_EXPECT_INT(info_of(r.cpu).pool_misses, 2);
    coi_buffer_unref(buffer);
    tear_down(&r);
}

CO_TEST_BARE(a_buffer_lives_as_long_as_somebody_refers_to_it, "")
{
    rig         r;
    coi_buffer *buffer;

    set_up(&r);
    buffer = coi_buffer_alloc(r.cpu, 100, NULL);
    coi_buffer_ref(buffer);
    coi_buffer_ref(buffer);
    coi_buffer_unref(buffer);
    coi_buffer_unref(buffer);
    CO_EXPECT_INT(info_of(r.cpu).bytes_in_use, 100);
    memset(buffer->data, 1, 100);
    coi_buffer_unref(buffer);
    CO_EXPECT_INT(info_of(r.cpu).bytes_in_use, 0);
    tear_down(&r);
}

static void
count_call(void *user)
{
    ++*(int *)user;
}

CO_TEST_BARE(the_deleter_of_foreign_memory_runs_once_at_the_end, "")
{
    rig         r;
    char        memory[16];
    int         calls = 0;
    coi_buffer *buffer;

    set_up(&r);
    buffer = coi_buffer_foreign(r.cpu, memory, sizeof(memory), count_call, &calls);
    CO_REQUIRE(buffer != NULL);
    CO_EXPECT_PTR(buffer->data, memory);
    CO_EXPECT_INT(buffer->nbytes, 16);
    CO_EXPECT_INT(info_of(r.cpu).bytes_in_use, 0); /* it is not ours */
    coi_buffer_ref(buffer);
    coi_buffer_unref(buffer);
    CO_EXPECT_INT(calls, 0);
    coi_buffer_unref(buffer);
    CO_EXPECT_INT(calls, 1);
    buffer = coi_buffer_foreign(r.cpu, NULL, 0, NULL, NULL);
    CO_REQUIRE(buffer != NULL);
    coi_buffer_unref(buffer);
    tear_down(&r);
    CO_EXPECT_INT(calls, 1);
}

CO_TEST_BARE(impossible_sizes_give_null, "")
{
    rig r;

    set_up(&r);
    CO_EXPECT_NULL(coi_buffer_alloc(r.cpu, SIZE_MAX, NULL));
    CO_EXPECT_NULL(coi_buffer_alloc(r.cpu, (size_t)PTRDIFF_MAX, NULL));
    CO_EXPECT_NULL(coi_buffer_alloc(r.cpu, ((size_t)1 << 46) + 1, NULL));
    r.hooks.limit = 1 << 20;
    CO_EXPECT_NULL(coi_buffer_alloc(r.cpu, 2 << 20, NULL));
    CO_EXPECT_INT(info_of(r.cpu).bytes_in_use, 0);
    tear_down(&r);
}

CO_TEST_BARE(free_memory_of_other_devices_is_used_before_giving_up, "")
{
    rig         r;
    coi_buffer *buffer;
    coi_buffer *small;

    set_up(&r);
    buffer = coi_buffer_alloc(r.other, 6 << 20, NULL);
    small = coi_buffer_alloc(r.other, 100, NULL);
    coi_buffer_unref(buffer);
    r.hooks.limit = 9 << 20;
    buffer = coi_buffer_alloc(r.cpu, 5 << 20, NULL);
    CO_EXPECT_NOT_NULL(buffer);
    CO_EXPECT_LESS(info_of(r.other).bytes_reserved, 1 << 20);
    memset(small->data, 1, 100); /* what is in use stays */
    coi_buffer_unref(small);
    if (buffer != NULL)
        coi_buffer_unref(buffer);
    tear_down(&r);
}

CO_TEST_BARE(trimming_gives_all_free_blocks_back, "")
{
    rig         r;
    coi_buffer *kept;
    coi_buffer *buffer;

    set_up(&r);
    kept = coi_buffer_alloc(r.cpu, 1000, NULL);
    for (size_t i = 1; i < 30; ++i) {
        buffer = coi_buffer_alloc(r.cpu, i * 3000, NULL);
        CO_REQUIRE(buffer != NULL);
        coi_buffer_unref(buffer);
    }
    CO_EXPECT_MORE(info_of(r.cpu).bytes_reserved, 60000);
    coi_devices_trim(r.devices);
    CO_EXPECT_INT(info_of(r.cpu).bytes_reserved, coi_pool_block_bytes(1000));
    coi_buffer_unref(kept);
    tear_down(&r);
}

/*
 * A program that left big tensors behind gets their memory back without asking; what it uses stays.
 */
CO_TEST_BARE(big_blocks_that_nobody_uses_are_not_held_for_ever, "")
{
    rig         r;
    coi_buffer *once;

    set_up(&r);
    once = coi_buffer_alloc(r.cpu, 8 << 20, NULL);
    coi_buffer_unref(once);
    for (int i = 0; i < 4 << 16; ++i) {
        coi_buffer *big = i % 50000 == 0 ? coi_buffer_alloc(r.cpu, 2 << 20, NULL) : NULL;
        coi_buffer *small = coi_buffer_alloc(r.cpu, 100, NULL);

        if (big != NULL)
            coi_buffer_unref(big);
        coi_buffer_unref(small);
    }
    CO_EXPECT_LESS(info_of(r.cpu).bytes_reserved, 3 << 20);
    CO_EXPECT_MORE(info_of(r.cpu).bytes_reserved, 2 << 20);
    CO_EXPECT_INT(info_of(r.cpu).pool_misses, 3);
    tear_down(&r);
}

CO_TEST_BARE(each_allocation_of_a_pool_may_fail, "")
{
    rig r;

    set_up(&r);
    for (int n = 0; n < 200; ++n) {
        coi_buffer *buffer;
        coi_buffer *foreign;
        int         calls = 0;

        coi_devices_trim(r.devices);
        r.hooks.fail_at = n % 3 == 2 ? 0 : r.hooks.requests + 1 + n % 3;
        buffer = coi_buffer_alloc(r.cpu, 5000, NULL);
        foreign = coi_buffer_foreign(r.other, &calls, sizeof(calls), count_call, &calls);
        r.hooks.fail_at = 0;
        CO_EXPECT_TRUE(buffer != NULL || n % 3 != 2);
        if (buffer != NULL)
            coi_buffer_unref(buffer);
        CO_EXPECT_INT(calls, 0);
        if (foreign != NULL)
            coi_buffer_unref(foreign);
        CO_EXPECT_INT(calls, foreign != NULL);
        CO_EXPECT_INT(info_of(r.cpu).bytes_in_use, 0);
    }
    tear_down(&r);
}

/* Every slab of headers refused in turn, while buffers are alive. */
CO_TEST_BARE(a_pool_without_memory_for_headers_gives_null, "")
{
    rig         r;
    coi_buffer *buffers[200];
    size_t      count = 0;

    set_up(&r);
    while (count < 150) {
        buffers[count] = coi_buffer_alloc(r.cpu, 64, NULL);
        CO_REQUIRE(buffers[count] != NULL);
        ++count;
    }
    r.hooks.limit = r.hooks.bytes + 64 * 64; /* room for blocks, none for a slab */
    while (count < 200) {
        buffers[count] = coi_buffer_alloc(r.cpu, 64, NULL);
        if (buffers[count] == NULL)
            break;
        ++count;
    }
    CO_EXPECT_INT(count, 189); /* three slabs of 63 */
    CO_EXPECT_NULL(coi_buffer_foreign(r.cpu, &count, sizeof(count), count_call, NULL));
    CO_EXPECT_INT(info_of(r.cpu).bytes_in_use, 64 * 189);
    while (count > 0)
        coi_buffer_unref(buffers[--count]);
    tear_down(&r);
}

/* Blocks go from one thread to the other and come back through the pool. */
typedef struct exchange {
    rig                  *r;
    _Atomic(coi_buffer *) slot[64];
} exchange;

static void *
make_buffers(void *arg)
{
    exchange *x = arg;

    for (size_t i = 0; i < 20000; ++i) {
        coi_buffer *buffer = coi_buffer_alloc(x->r->cpu, 64 + i % 5 * 500, NULL);
        coi_buffer *old;

        if (buffer == NULL)
            continue;
        memset(buffer->data, (int)i, buffer->nbytes);
        old = atomic_exchange(&x->slot[i % 64], buffer);
        if (old != NULL)
            coi_buffer_unref(old);
    }
    return NULL;
}

CO_TEST_BARE(threads_share_a_pool, "")
{
    rig       r;
    exchange  x;
    pthread_t threads[3];

    set_up(&r);
    x.r = &r;
    for (size_t i = 0; i < 64; ++i)
        atomic_init(&x.slot[i], NULL);
    for (size_t i = 0; i < 3; ++i)
        CO_REQUIRE(pthread_create(&threads[i], NULL, make_buffers, &x) == 0);
    for (size_t i = 0; i < 3; ++i)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < 64; ++i) {
        CO_REQUIRE(x.slot[i] != NULL);
        coi_buffer_unref(x.slot[i]);
    }
    CO_EXPECT_INT(info_of(r.cpu).bytes_in_use, 0);
    CO_EXPECT_INT(info_of(r.cpu).allocations, 60000);
    tear_down(&r);
}

static void
note_line(co_log_level level, const char *line, void *user)
{
    (void)level;
    snprintf(user, 200, "%s", line);
}

CO_TEST_BARE(tensors_alive_at_the_end_are_reported_and_their_memory_goes, "")
{
    rig         r;
    char        line[200] = "";
    coi_buffer *buffer;

    set_up(&r);
    r.log.fn = note_line;
    r.log.user = line;
    buffer = coi_buffer_alloc(r.cpu, 5000, NULL);
    CO_REQUIRE(buffer != NULL);
    CO_REQUIRE(coi_buffer_foreign(r.cpu, line, sizeof(line), NULL, NULL) != NULL);
    coi_buffer_unref(coi_buffer_alloc(r.cpu, 70000, NULL)); /* free ones go once, not twice */
    tear_down(&r);
    CO_EXPECT_CONTAINS(line, "device:CPU:0 ends with 5000 bytes of tensors alive");
}

CO_TEST_BARE(stale_use_and_overrun_are_poisoned, "")
{
#if COI_ASAN
    rig         r;
    coi_buffer *buffer;
    char       *data;

    set_up(&r);
    buffer = coi_buffer_alloc(r.cpu, 100, NULL);
    data = buffer->data;
    CO_EXPECT_FALSE(__asan_address_is_poisoned(data + 99));
    CO_EXPECT_TRUE(__asan_address_is_poisoned(data + 104));
    coi_buffer_unref(buffer);
    CO_EXPECT_TRUE(__asan_address_is_poisoned(data));
    buffer = coi_buffer_alloc(r.cpu, 120, NULL);
    CO_EXPECT_PTR(buffer->data, data);
    CO_EXPECT_FALSE(__asan_address_is_poisoned(data + 119));
    CO_EXPECT_TRUE(__asan_address_is_poisoned(data + 120));
    coi_buffer_unref(buffer);
    tear_down(&r);
#else
    CO_SKIP("not built with the address sanitizer");
#endif
}
