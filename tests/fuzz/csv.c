/* SPDX-License-Identifier: Apache-2.0 */
/* CSV: rows one by one and in batches, by several descriptions. The first byte says how; the others
 * are the file. */
#include "files.h"

static void
read_rows(co_context *ctx, const char *file, int how)
{
    const co_csv_column columns[] = { { CO_FLOAT64, NULL },
                                      { CO_STRING, co_string(ctx, "none") },
                                      { CO_INT32, co_int(ctx, 7) },
                                      { CO_FLOAT32, NULL } };
    co_csv_options      options = CO_CSV_OPTIONS_INIT;
    size_t              n = 1 + (size_t)how % 4;

    options.header = (how & 4) != 0;
    options.delimiter = (how & 8) ? ';' : ',';
    options.na_value = (how & 16) ? "NA" : NULL;
    for (int64_t batch = 0; batch < 3; ++batch) {
        co_dataset *dataset = co_dataset_csv(ctx, &file, 1, columns + ((how & 32) ? 4 - n : 0), n,
                                             &options);

        if (batch > 0)
            dataset = co_dataset_batch(ctx, dataset, batch + how / 64, false);
        fuzz_drain(ctx, dataset, CO_INVALID_ARGUMENT, CO_OK);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    co_context *ctx = fuzz_context();
    const char *file = fuzz_file(data + (size > 0), size - (size > 0));

    CO_BLOCK(ctx)
        read_rows(ctx, file, size > 0 ? data[0] : 0);
    return 0;
}
