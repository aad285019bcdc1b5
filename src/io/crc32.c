/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32 without zlib. Eight bytes at a time by eight tables, which are made for each call that is
 * worth it: that takes a few microseconds, and no state is shared.
 */
#include "io/crc32.h"

#define POLYNOMIAL 0xedb88320u
#define WORTH      ((size_t)16 << 10)

static uint32_t
add_byte(uint32_t crc, uint8_t byte)
{
    crc ^= byte;
    for (int k = 0; k < 8; ++k)
        crc = (crc & 1) != 0 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
    return crc;
}

static uint32_t
get32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t
add_words(uint32_t crc, const uint8_t *at, size_t num_words)
{
    uint32_t table[8][256];

    for (unsigned i = 0; i < 256; ++i)
        table[0][i] = add_byte(i, 0);
    for (int t = 1; t < 8; ++t)
        for (unsigned i = 0; i < 256; ++i)
            table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
    for (; num_words > 0; --num_words, at += 8) {
        uint32_t low = crc ^ get32(at), high = get32(at + 4);

        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
              table[4][low >> 24] ^ table[3][high & 255] ^ table[2][high >> 8 & 255] ^
              table[1][high >> 16 & 255] ^ table[0][high >> 24];
    }
    return crc;
}

uint32_t
coi_crc32_plain(uint32_t crc, const void *bytes, size_t nbytes)
{
    const uint8_t *at = bytes;

    crc = ~crc;
    if (nbytes >= WORTH) {
        crc = add_words(crc, at, nbytes / 8);
        at += nbytes / 8 * 8;
        nbytes %= 8;
    }
    for (; nbytes > 0; --nbytes, ++at)
        crc = add_byte(crc, *at);
    return ~crc;
}
