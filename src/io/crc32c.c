/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C: with the instructions of SSE 4.2 or of ARM where the processor has them, by table
 * elsewhere; the same binary does both. Bit i of a checksum is the coefficient of x^(31-i);
 * appending a zero byte multiplies by x^8.
 *
 * The instruction takes three cycles and a new one can begin in each, so three stretches of the
 * data are summed side by side and joined: crc(abc) = crc(a) x^2n + crc(b) x^n + crc(c), n the bits
 * of a stretch, by carry-less multiplication. docs/decisions/files.md has what that gives, and why
 * the library does not ask ISA-L.
 */
#include "io/crc32c.h"

#include <cohort/files.h>
#include <string.h>

/* One nibble at a time: 64 bytes of table, and no speed to lose where hardware helps. */
static uint32_t
extend_plain(uint32_t crc, const void *bytes, size_t nbytes)
{
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const uint8_t *at = bytes;

    crc = ~crc;
    for (size_t i = 0; i < nbytes; ++i) {
        crc ^= at[i];
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return ~crc;
}

uint32_t
coi_crc32c_plain(const void *bytes, size_t nbytes)
{
    return extend_plain(0, bytes, nbytes);
}

#if defined(__x86_64__)

#include <immintrin.h>

#define HAS_INSTRUCTIONS() (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
#define WITH_INSTRUCTIONS  __attribute__((target("sse4.2,pclmul")))

WITH_INSTRUCTIONS static inline uint64_t
add_word(uint64_t crc, const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return _mm_crc32_u64(crc, word);
}

WITH_INSTRUCTIONS static inline uint64_t
add_byte(uint64_t crc, uint8_t byte)
{
    return _mm_crc32_u8((uint32_t)crc, byte);
}

/* crc times x^k, where factor is x^(k-33): multiplying reflected numbers and reducing 64 bits give
 * the rest. */
WITH_INSTRUCTIONS static inline uint64_t
shift(uint64_t crc, uint32_t factor)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc),
                                           _mm_cvtsi32_si128((int)factor), 0);

    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* Lengths of a stretch, with x^(8n-33) and x^(16n-33). 336: records of 1 kB. */
static const struct stretch {
    size_t   nbytes;
    uint32_t once, twice;
} stretches[] = {
    { 2048, 0xa51b6135, 0x82f89c77 },
    { 336, 0xa60ce07b, 0xcec3662e },
    { 64, 0x9e4addf8, 0x0d3b6092 },
};

WITH_INSTRUCTIONS static uint64_t
add_stretches(uint64_t crc, const uint8_t **bytes, size_t *nbytes)
{
    for (size_t i = 0; i < sizeof(stretches) / sizeof(stretches[0]); ++i) {
        const struct stretch *s = &stretches[i];

        while (*nbytes >= 3 * s->nbytes) {
            const uint8_t *at = *bytes;
            uint64_t       second = 0, third = 0;

            for (const uint8_t *end = at + s->nbytes; at < end; at += 8) {
                crc = add_word(crc, at);
                second = add_word(second, at + s->nbytes);
                third = add_word(third, at + 2 * s->nbytes);
            }
            crc = shift(crc, s->twice) ^ shift(second, s->once) ^ third;
            *bytes += 3 * s->nbytes;
            *nbytes -= 3 * s->nbytes;
        }
    }
    return crc;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#define HAS_INSTRUCTIONS() ((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0)
#define WITH_INSTRUCTIONS  __attribute__((target("+crc")))

WITH_INSTRUCTIONS static inline uint64_t
add_word(uint64_t crc, const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return __builtin_aarch64_crc32cx((uint32_t)crc, word);
}

WITH_INSTRUCTIONS static inline uint64_t
add_byte(uint64_t crc, uint8_t byte)
{
    return __builtin_aarch64_crc32cb((uint32_t)crc, byte);
}

static inline uint64_t
add_stretches(uint64_t crc, const uint8_t **bytes, size_t *nbytes)
{
    (void)bytes, (void)nbytes;
    return crc;
}

#endif

#ifdef HAS_INSTRUCTIONS
WITH_INSTRUCTIONS static uint32_t
extend_fast(uint32_t before, const uint8_t *at, size_t nbytes)
{
    uint64_t crc = add_stretches(~before, &at, &nbytes);

    for (; nbytes >= 8; nbytes -= 8, at += 8)
        crc = add_word(crc, at);
    for (; nbytes > 0; --nbytes, ++at)
        crc = add_byte(crc, *at);
    return ~(uint32_t)crc;
}
#endif

uint32_t
coi_crc32c_extend(uint32_t crc, const void *bytes, size_t nbytes)
{
#ifdef HAS_INSTRUCTIONS
    if (HAS_INSTRUCTIONS())
        return extend_fast(crc, bytes, nbytes);
#endif
    return extend_plain(crc, bytes, nbytes);
}

uint32_t
coi_crc32c(const void *bytes, size_t nbytes)
{
    return coi_crc32c_extend(0, bytes, nbytes);
}

/* The product of two reflected polynomials modulo that of the checksum. */
static uint32_t
multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (; a != 0; a <<= 1) {
        if ((a & 0x80000000u) != 0)
            product ^= b;
        b = (b & 1) != 0 ? b >> 1 ^ 0x82f63b78u : b >> 1;
    }
    return product;
}

uint32_t
coi_crc32c_join(uint32_t first, uint32_t second, uint64_t second_nbytes)
{
    uint32_t shift = 0x80000000u, power = 0x00800000u; /* x^0 and x^8 */

    for (; second_nbytes > 0; second_nbytes >>= 1) {
        if ((second_nbytes & 1) != 0)
            shift = multiply(shift, power);
        power = multiply(power, power);
    }
    return multiply(first, shift) ^ second;
}

uint32_t
co_crc32c(const void *bytes, size_t nbytes)
{
    return bytes != NULL ? coi_crc32c(bytes, nbytes) : 0;
}

uint32_t
co_crc32c_masked(const void *bytes, size_t nbytes)
{
    return coi_crc32c_mask(co_crc32c(bytes, nbytes));
}
