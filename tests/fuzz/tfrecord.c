/* SPDX-License-Identifier: Apache-2.0 */
/* TFRecord files: alone, in batches, in small windows, and as GZIP and ZLIB. Lines and fixed-length
 * records take the same bytes. */
#include "files.h"

static void
put_masked(uint8_t *at, const uint8_t *bytes, size_t n)
{
    uint32_t crc = co_crc32c_masked(bytes, n);

    for (int i = 0; i < 4; ++i)
        at[i] = (uint8_t)(crc >> 8 * i);
}

/* Checksums keep a fuzzer out, so it is given right ones: of every length, and of all data that is
 * there. */
static void
mend(uint8_t *bytes, size_t n)
{
    while (n >= 12) {
        uint64_t length = 0;

        for (int i = 0; i < 8; ++i)
            length |= (uint64_t)bytes[i] << 8 * i;
        put_masked(bytes + 8, bytes, 8);
        if (length > n - 12 || n - 12 - length < 4)
            return;
        put_masked(bytes + 12 + length, bytes + 12, (size_t)length);
        bytes += length + 16;
        n -= (size_t)length + 16;
    }
}

/* Read as records, and as lines or fixed-length records, plain and compressed. */
static void
read_as(co_context *ctx, const char *const *files, co_compression compression, int how)
{
    co_file_options options = CO_FILE_OPTIONS_INIT;
    co_dataset     *dataset;

    options.compression = compression;
    options.buffer_bytes = (size_t)(how & 15);
    dataset = co_dataset_tfrecord(ctx, files, 2, &options);
    if ((how & 16) != 0)
        dataset = co_dataset_batch(ctx, dataset, 1 + how / 32, false);
    fuzz_drain(ctx, dataset, CO_DATA_LOSS, CO_UNIMPLEMENTED);
    if (compression != CO_COMPRESSION_NONE) /* which damage there is has been seen */
        return;
    dataset = (how & 32) ? co_dataset_text_lines(ctx, files, 1, &options)
                         : co_dataset_fixed_length_records(ctx, files, 1, 1 + how / 8,
                                                           &(co_fixed_length_options){
                                                               sizeof(co_fixed_length_options),
                                                               &options, how % 5, how % 3 });
    fuzz_drain(ctx, co_dataset_batch(ctx, dataset, 3, false), CO_INVALID_ARGUMENT, CO_OK);
}

/* The first byte says how; the others are the file. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    co_context *ctx = fuzz_context();
    const char *files[2];
    int         how = size > 0 ? data[0] : 0;
    size_t      n = size - (size > 0);
    uint8_t    *copy = malloc(n + 1);

    if (n > 0)
        memcpy(copy, data + 1, n);
    if ((how & 64) != 0)
        mend(copy, n);
    files[0] = files[1] = fuzz_file(copy, n);
    free(copy);
    CO_BLOCK(ctx)
        for (int c = CO_COMPRESSION_NONE; c <= CO_COMPRESSION_ZLIB; ++c)
            read_as(ctx, files, (co_compression)c, how);
    return 0;
}
