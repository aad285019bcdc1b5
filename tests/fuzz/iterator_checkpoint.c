/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Positions of iterators: the first byte chooses a pipeline, the others are what follows the
 * checksum, which is made right here, or nothing would come past it. Such bytes are refused with
 * CO_INVALID_ARGUMENT, or give an iterator whose own position is restored again and gives the same
 * elements. If the first byte is 128 or more, the dataset was read to its end before: its iterators
 * must be safe to read, but what a cache or a shuffle of it gives need not be what those of another
 * dataset give.
 */
#include "files.h"

enum { HEAD = 12, MOST_BYTES = 1 << 16, ELEMENTS = 12, PIPELINES = 18, DRAINED = 128 };

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

static co_value *
twice(co_context *ctx, co_value *x, void *user)
{
    (void)user;
    return co_add(ctx, x, x);
}

static co_dataset *
whole_window(co_context *ctx, co_value *window, void *user)
{
    (void)user;
    return co_value_dataset(ctx, window);
}

/* Two iterators of one cache, whose elements are in the position once, and shuffles that are not
 * asked again. */
static co_dataset *
rounds(co_context *ctx, co_dataset *range)
{
    co_dataset *drawn = co_dataset_take(ctx, co_dataset_shuffle(ctx, range, 5, 1, true), 6);
    co_dataset *kept = co_dataset_cache(ctx, range), *parts[] = { kept, drawn, kept };
    co_dataset *zip = co_dataset_zip(ctx, parts, 3);

    return co_dataset_repeat(ctx, co_dataset_shuffle(ctx, zip, 8, 2, true), 2);
}

/* Stages that work ahead, or hold datasets or files. */
static co_dataset *
busy_pipeline(co_context *ctx, int which, co_dataset *range)
{
    static const char     csv[] = "1,one\n2,two\n3,\"th\nree\"\n4,\n5,five\n";
    const co_csv_column   columns[] = { { CO_INT64, NULL }, { CO_STRING, co_string(ctx, "") } };
    co_interleave_options two = CO_INTERLEAVE_OPTIONS_INIT;
    co_map_options        calls = CO_MAP_OPTIONS_INIT;
    co_dataset           *windows = co_dataset_window(
                  ctx, range, 3, &(co_window_options){ sizeof(co_window_options), 2, 1, false });
    const char *file = fuzz_file((const uint8_t *)csv, sizeof(csv) - 1);

    two.num_parallel_calls = calls.num_parallel_calls = 2;
    two.cycle_length = 3;
    two.block_length = 2;
    switch (which) {
    case 9: return co_dataset_prefetch(ctx, co_dataset_map(ctx, range, twice, NULL, NULL), 2);
    case 10: return co_dataset_parallel_map(ctx, range, twice, NULL, NULL, &calls);
    case 11:
        return co_dataset_flat_map(ctx, co_dataset_shuffle(ctx, windows, 2, 1, false), whole_window,
                                   NULL, co_spec(ctx, CO_INT64, NULL, 0));
    case 12: return co_dataset_interleave(ctx, range, inner, NULL, NULL, &two);
    case 13: return co_dataset_csv(ctx, &file, 1, columns, 2, NULL);
    case 14: return co_dataset_text_lines(ctx, &file, 1, NULL);
    case 16: return rounds(ctx, range);
    case 17:
        range = co_dataset_shard(ctx, co_dataset_map(ctx, range, twice, NULL, NULL), 3, 1);
        return co_dataset_padded_batch(ctx, co_dataset_batch(ctx, range, 2, false), 2, NULL);
    default: return co_dataset_cache(ctx, range);
    }
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
    case 8:
        return co_dataset_for_worker(ctx,
                                     co_dataset_with_autoshard(ctx, batches, CO_AUTOSHARD_DATA),
                                     &(co_input_context){ 2, 1, 4 });
    default: return busy_pipeline(ctx, which, range);
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

static void
try_position(co_context *ctx, int first, co_value *position)
{
    int          which = first % DRAINED % PIPELINES;
    co_dataset  *dataset = pipeline(ctx, which);
    co_iterator *iterator;

    if (first >= DRAINED)
        fuzz_drain(ctx, dataset, CO_OK, CO_OK);
    iterator = co_iterator_restore(ctx, dataset, position);
    if (iterator == NULL) {
        co_code code = co_error(ctx)->code;

        FUZZ_REQUIRE(code == CO_INVALID_ARGUMENT || code == CO_VALUE_ERROR || code == CO_DATA_LOSS);
    } else if (first >= DRAINED) {
        for (int i = 0; i < ELEMENTS; ++i) {
            co_next(ctx, iterator);
            co_clear(ctx);
        }
    } else {
        co_value *again = co_iterator_save(ctx, iterator);

        FUZZ_REQUIRE(again != NULL);
        compare(ctx, iterator, co_iterator_restore(ctx, pipeline(ctx, which), again));
    }
    co_clear(ctx);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static co_context   *ctx;
    static unsigned char bytes[MOST_BYTES] = "COHPOS\0\2";
    uint32_t             checksum;

    if (ctx == NULL)
        ctx = co_open("log=off");
    if (size == 0 || size - 1 > MOST_BYTES - HEAD)
        return 0;
    memcpy(bytes + HEAD, data + 1, size - 1);
    checksum = co_crc32c(bytes + HEAD, size - 1);
    for (int i = 0; i < 4; ++i)
        bytes[HEAD - 4 + i] = (unsigned char)(checksum >> 8 * i);
    CO_BLOCK(ctx)
        try_position(ctx, data[0], co_bytes(ctx, bytes, HEAD + size - 1));
    return 0;
}
