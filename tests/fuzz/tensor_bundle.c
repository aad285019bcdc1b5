/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor bundles: the first two bytes are the length of the index, which follows, and the rest is
 * the data of its one file. Checksums of blocks are set right first, or random bytes would never
 * come further than those; the first byte of the input chooses whether.
 */
#include "tensor_files.h"

static void
put(const char *prefix, const char *end, const uint8_t *bytes, size_t n)
{
    char  path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s%s", prefix, end);
    file = fopen(path, "wb");
    FUZZ_REQUIRE(file != NULL && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

static bool
varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;

        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static void
set_checksum(uint8_t *bytes, size_t n, uint64_t offset, uint64_t nbytes)
{
    uint32_t crc;

    if (offset > n || nbytes > n - offset || n - offset - nbytes < 5)
        return;
    crc = co_crc32c_masked(bytes + offset, nbytes + 1);
    for (int i = 0; i < 4; ++i)
        bytes[offset + nbytes + 1 + (size_t)i] = (uint8_t)(crc >> 8 * i);
}

/* Of the blocks that the index names, where they can be found, and then of the index. */
static void
set_checksums(uint8_t *bytes, size_t n)
{
    const uint8_t *at = bytes + n - 48, *end = bytes + n - 8, *block_end;
    uint64_t       skip, offset, nbytes, shared, own, value;

    if (n < 48 || !varint(&at, end, &skip) || !varint(&at, end, &skip) ||
        !varint(&at, end, &offset) || !varint(&at, end, &nbytes) || offset > n ||
        nbytes > n - offset || nbytes < 4)
        return;
    at = bytes + offset;
    block_end = at + nbytes - 4;
    while (at < block_end && varint(&at, block_end, &shared) && varint(&at, block_end, &own) &&
           varint(&at, block_end, &value) && own <= (uint64_t)(block_end - at)) {
        uint64_t block, block_nbytes;

        at += own;
        if (!varint(&at, block_end, &block) || !varint(&at, block_end, &block_nbytes))
            break;
        set_checksum(bytes, n, block, block_nbytes);
    }
    set_checksum(bytes, n, offset, nbytes);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char prefix[96];
    co_context *ctx = fuzz_context();
    size_t      n;
    uint8_t    *index;

    if (size < 3)
        return 0;
    if (prefix[0] == '\0') {
        char folder[64];

        snprintf(folder, sizeof(folder), "/dev/shm/fuzz-bundle-XXXXXX");
        FUZZ_REQUIRE(mkdtemp(folder) != NULL);
        snprintf(prefix, sizeof(prefix), "%s/b", folder);
    }
    n = (size_t)data[1] | (size_t)data[2] << 8;
    n = n < size - 3 ? n : size - 3;
    index = malloc(n + 1);
    FUZZ_REQUIRE(index != NULL);
    memcpy(index, data + 3, n);
    if ((data[0] & 1) != 0)
        set_checksums(index, n);
    put(prefix, ".index", index, n);
    put(prefix, ".data-00000-of-00001", data + 3 + n, size - 3 - n);
    free(index);
    CO_BLOCK(ctx)
        fuzz_read_tensor_file(ctx, prefix, false);
    return 0;
}
