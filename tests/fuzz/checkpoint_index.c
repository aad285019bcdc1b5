/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexes of folders of checkpoints: bytes that are none are refused, and others are what the index
 * is written as again. The checksum at the end is made right here, or nothing would come past it.
 */
#include "checkpoint/checkpoint_index.h"
#include "fuzz.h"
#include "io/crc32c.h"

enum { FOOT = 16 }; /* "crc32c 8c1dfa03\n" */

static void
parse(coi_memory *memory, const char *text, size_t n)
{
    coi_checkpoint_index  index = { memory, NULL, 0, 0 };
    co_checkpoint_options options = CO_CHECKPOINT_OPTIONS_INIT;
    co_error_info         err = { .code = CO_OK };
    size_t                again_bytes = 0;
    char                 *again;

    if (coi_index_parse(&index, text, n, &err) != CO_OK) {
        FUZZ_REQUIRE(err.code == CO_DATA_LOSS && index.n == 0 && index.at == NULL);
        return;
    }
    again = coi_index_text(&index, &again_bytes);
    FUZZ_REQUIRE(again != NULL && again_bytes <= coi_index_room(&index));
    coi_free(memory, again, coi_index_room(&index));
    options.keep_last = 1;
    options.keep_best = 1;
    for (size_t i = 0; i < index.n; ++i)
        FUZZ_REQUIRE(coi_index_find(&index, index.at[i].step) == &index.at[i]);
    while (coi_index_surplus(&index, &options, -1) != NULL)
        coi_index_remove(&index, coi_index_surplus(&index, &options, -1)->step);
    FUZZ_REQUIRE(index.n <= 2);
    coi_index_free(&index);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    coi_memory memory;
    char      *text = malloc(size + FOOT + 1);

    FUZZ_REQUIRE(text != NULL);
    coi_memory_init(&memory, NULL);
    if (size > 0)
        memcpy(text, data, size);
    parse(&memory, text, size);
    snprintf(text + size, FOOT + 1, "crc32c %08lx\n", (unsigned long)coi_crc32c(text, size));
    parse(&memory, text, size + FOOT);
    free(text);
    return 0;
}
