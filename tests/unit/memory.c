/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator hooks and what is counted of them. */
#include "base/memory.h"
#include "hooks.h"
#include "test.h"

CO_TEST_BARE(blocks_are_aligned_and_counted, "")
{
    coi_memory memory;
    char      *block;
    char      *zeros;

    coi_memory_init(&memory, NULL);
    block = coi_alloc(&memory, 100);
    zeros = coi_calloc(&memory, 1000);
    CO_REQUIRE(block != NULL && zeros != NULL);
    CO_EXPECT_INT((uintptr_t)block % COI_ALIGNMENT, 0);
    CO_EXPECT_INT((uintptr_t)zeros % COI_ALIGNMENT, 0);
    for (size_t i = 0; i < 1000; ++i)
        CO_REQUIRE(zeros[i] == 0);
    CO_EXPECT_INT(memory.bytes_in_use, 1100);
    coi_free(&memory, block, 100);
    CO_EXPECT_INT(memory.bytes_in_use, 1000);
    CO_EXPECT_INT(memory.peak_bytes, 1100);
    CO_EXPECT_INT(memory.num_allocations, 2);
    coi_free(&memory, zeros, 1000);
    coi_free(&memory, NULL, 77);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

CO_TEST_BARE(no_bytes_are_served_as_one, "")
{
    test_hooks hooks;
    coi_memory memory;
    void      *block;

    test_hooks_init(&hooks, 0);
    coi_memory_init(&memory, &hooks.allocator);
    block = coi_alloc(&memory, 0);
    CO_EXPECT_NOT_NULL(block);
    CO_EXPECT_INT(hooks.bytes, 1);
    coi_free(&memory, block, 0);
    block = coi_calloc(&memory, 0);
    CO_EXPECT_NOT_NULL(block);
    coi_free(&memory, block, 0);
    CO_EXPECT_INT(hooks.bytes, 0);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

/* Pages of address space the process has. */
static long
address_pages(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long  pages = 0;

    CO_REQUIRE(file != NULL && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return pages;
}

/*
 * Around the size from which blocks are mapped by themselves: usable to the last byte, and gone
 * after.
 */
CO_TEST_BARE(big_blocks_are_usable_and_go_back_to_the_system, "")
{
    static const size_t sizes[] = { (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 5000001, 33 << 20 };
    coi_memory          memory;
    long                before = 0;

    coi_memory_init(&memory, NULL);
    for (int round = 0; round < 100; ++round) { /* 5 GiB in all: not kept */
        char *block[5];

        if (round == 20)
            before = address_pages();
        for (size_t i = 0; i < 5; ++i) {
            block[i] = coi_alloc(&memory, sizes[i]);
            CO_REQUIRE(block[i] != NULL);
            CO_REQUIRE((uintptr_t)block[i] % COI_ALIGNMENT == 0);
            block[i][0] = 1;
            block[i][sizes[i] / 2] = 2;
            block[i][sizes[i] - 1] = 3;
        }
        for (size_t i = 0; i < 5; ++i)
            coi_free(&memory, block[i], sizes[i]);
    }
    CO_EXPECT_INT(memory.bytes_in_use, 0);
    CO_EXPECT_INT(memory.num_allocations, 500);
    CO_EXPECT_LESS(address_pages() - before, 100000);
    CO_EXPECT_NULL(coi_alloc(&memory, (size_t)1 << 50));
}

CO_TEST_BARE(impossible_sizes_are_refused_without_asking, "")
{
    test_hooks hooks;
    coi_memory memory;

    test_hooks_init(&hooks, 0);
    coi_memory_init(&memory, &hooks.allocator);
    CO_EXPECT_NULL(coi_alloc(&memory, SIZE_MAX));
    CO_EXPECT_NULL(coi_alloc(&memory, PTRDIFF_MAX));
    CO_EXPECT_NULL(coi_calloc(&memory, SIZE_MAX - 1));
    CO_EXPECT_NULL(coi_strndup(&memory, "x", SIZE_MAX));
    CO_EXPECT_INT(hooks.requests, 0);
}

static char odd_block[256];

static void *
odd_alloc(size_t nbytes, size_t alignment, void *user)
{
    (void)nbytes;
    (void)alignment;
    ++*(int *)user;
    return odd_block + 1;
}

static void
odd_free(void *memory, size_t nbytes, void *user)
{
    (void)memory;
    (void)nbytes;
    --*(int *)user;
}

CO_TEST_BARE(an_allocator_that_does_not_align_is_given_its_block_back, "")
{
    int          alive = 0;
    co_allocator odd = { odd_alloc, odd_free, &alive };
    coi_memory   memory;

    coi_memory_init(&memory, &odd);
    CO_EXPECT_NULL(coi_alloc(&memory, 16));
    CO_EXPECT_INT(alive, 0);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

CO_TEST_BARE(strings_are_copied_with_a_zero, "")
{
    coi_memory memory;
    char      *copy;

    coi_memory_init(&memory, NULL);
    copy = coi_strndup(&memory, "cohort", 3);
    CO_EXPECT_STR(copy, "coh");
    coi_free(&memory, copy, 4);
    copy = coi_strndup(&memory, NULL, 0);
    CO_EXPECT_STR(copy, "");
    coi_free(&memory, copy, 1);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

CO_TEST_BARE(arrays_grow_and_keep_what_they_hold, "")
{
    coi_memory memory;
    int       *array = NULL;
    size_t     capacity = 0;

    coi_memory_init(&memory, NULL);
    for (int i = 0; i < 10000; ++i) {
        CO_REQUIRE(coi_grow(&memory, (void **)&array, &capacity, (size_t)i + 1, sizeof(array[0])));
        array[i] = i;
    }
    for (int i = 0; i < 10000; ++i)
        CO_REQUIRE(array[i] == i);
    CO_EXPECT_LESS(memory.num_allocations, 20); /* it doubles */
    CO_EXPECT_FALSE(coi_grow(&memory, (void **)&array, &capacity, SIZE_MAX / 2, sizeof(array[0])));
    CO_EXPECT_FALSE(coi_grow(&memory, (void **)&array, &capacity, SIZE_MAX, 1));
    CO_EXPECT_INT(array[9999], 9999);
    coi_free(&memory, array, capacity * sizeof(array[0]));
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

CO_TEST_BARE(an_array_that_cannot_grow_is_unchanged, "")
{
    test_hooks hooks;
    coi_memory memory;
    int       *array = NULL;
    size_t     capacity = 0;

    test_hooks_init(&hooks, 2);
    coi_memory_init(&memory, &hooks.allocator);
    CO_REQUIRE(coi_grow(&memory, (void **)&array, &capacity, 1, sizeof(array[0])));
    array[0] = 7;
    CO_EXPECT_FALSE(coi_grow(&memory, (void **)&array, &capacity, 1000, sizeof(array[0])));
    CO_EXPECT_INT(array[0], 7);
    CO_EXPECT_INT(capacity, 8);
    coi_free(&memory, array, capacity * sizeof(array[0]));
    CO_EXPECT_INT(hooks.blocks, 0);
}

CO_TEST_BARE(kept_memory_is_not_given_back, "")
{
    test_hooks hooks;
    coi_memory memory;
    void      *block;

    test_hooks_init(&hooks, 0);
    coi_memory_init(&memory, &hooks.allocator);
    block = coi_alloc(&memory, 100);
    CO_REQUIRE(block != NULL);
    coi_memory_keep(&memory);
    coi_free(&memory, block, 100);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
    CO_EXPECT_INT(hooks.blocks, 1);
    memset(block, 1, 100); /* still there */
    test_hooks_free(block, 100, &hooks);
}
