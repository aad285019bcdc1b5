/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Positions of iterators: the first byte chooses a pipeline, the others are what follows the checksum, which is made right here, or
 * nothing would come past it. Such bytes are refused with CO_INVALID_ARGUMENT, or give an iterator whose own position is restored
 * again and gives the same elements.
 */
#include "fuzz.h"

enum { HEAD = 12, MOST_BYTES = 1 << 16, ELEMENTS = 12 };

static co_value *
sum(co_context *ctx, co_value *args, void *user)
{
    co_value *next = co_add(ctx, co_at(ctx, args, 0), co_at(ctx, args, 1));

    (void)user;
    return co_tuple(ctx, (co_value *[]){ next, next }, 2);
}

static co_dataset *
inner(co_context *ctx, co_value *x, void *user)
{
    int64_t start = co_item_int(ctx, x) % 1000;

    (void)user;
    return co_dataset_range(ctx, start, start + 5, 1);
}

static co_dataset *
pipeline(co_context *ctx, int which)
{
    int64_t     sizes[] = { 2, 0, 5 };
    co_dataset *range = co_dataset_range(ctx, 0, 20, 1), *both[] = { range, range };
    co_dataset *batches = co_dataset_batch(ctx, range, 3, false);
    co_value   *words = co_tensor(ctx, CO_STRING, CO_SHAPE(4),
                                  (const char *[]){ "one", "", "three", "four" });

    switch (which) {
    case 0: return co_dataset_repeat(ctx, co_dataset_shuffle(ctx, range, 5, 1, true), 2);
    case 1: return co_dataset_rebatch(ctx, batches, sizes, 3, false);
    case 2: return co_dataset_unbatch(ctx, batches);
    case 3: return co_dataset_scan(ctx, range, co_scalar_int64(ctx, 0), sum, NULL, NULL);
    case 4: return co_dataset_interleave(ctx, range, inner, NULL, NULL, NULL);
    case 5: return co_dataset_concatenate(ctx, co_dataset_cache(ctx, range), range);
    case 6:
        return co_dataset_unique(
            ctx, co_dataset_shuffle(ctx, co_dataset_from_tensor_slices(ctx, words), 3, 1, false));
    case 7: return co_dataset_zip(ctx, both, 2);
    default:
        return co_dataset_for_worker(ctx,
                                     co_dataset_with_autoshard(ctx, batches, CO_AUTOSHARD_DATA),
                                     &(co_input_context){ 2, 1, 4 });
    }
}

/* The elements of two iterators are the same, or fail alike. */
static void
compare(co_context *ctx, co_iterator *a, co_iterator *b)
{
    char left[4000], right[4000];

    for (int i = 0; i < ELEMENTS; ++i) {
        co_value *x = co_next(ctx, a), *y;
        co_code   code = co_error(ctx)->code;

        co_clear(ctx);
        y = co_next(ctx, b);
        FUZZ_REQUIRE(co_error(ctx)->code == code && (x == NULL) == (y == NULL));
        co_clear(ctx);
        if (x == NULL)
            continue;
        co_format(ctx, x, left, sizeof(left));
        co_format(ctx, y, right, sizeof(right));
        FUZZ_REQUIRE(strcmp(left, right) == 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static co_context   *ctx;
    static unsigned char bytes[MOST_BYTES] = "COHPOS\0\1";
    uint32_t             checksum;

    if (ctx == NULL)
        ctx = co_open("log=off");
    if (size == 0 || size - 1 > MOST_BYTES - HEAD)
        return 0;
    memcpy(bytes + HEAD, data + 1, size - 1);
    checksum = co_crc32c(bytes + HEAD, size - 1);
    for (int i = 0; i < 4; ++i)
        bytes[HEAD - 4 + i] = (unsigned char)(checksum >> 8 * i);
    CO_BLOCK(ctx) {
        co_dataset  *dataset = pipeline(ctx, data[0] % 9);
        co_iterator *iterator = co_iterator_restore(ctx, dataset,
                                                    co_bytes(ctx, bytes, HEAD + size - 1));

        if (iterator == NULL) {
            FUZZ_REQUIRE(co_error(ctx)->code == CO_INVALID_ARGUMENT ||
                         co_error(ctx)->code == CO_VALUE);
            co_clear(ctx);
        } else {
            co_value *again = co_iterator_save(ctx, iterator);

            FUZZ_REQUIRE(again != NULL);
            compare(ctx, iterator, co_iterator_restore(ctx, pipeline(ctx, data[0] % 9), again));
            co_clear(ctx);
        }
    }
    return 0;
}
