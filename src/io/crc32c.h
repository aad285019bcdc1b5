/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli), the checksum of TFRecord files and tensor bundles. */
#ifndef COI_IO_CRC32C_H
#define COI_IO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t coi_crc32c(const void *bytes, size_t nbytes);
/* Of bytes that follow those of `crc` (0 at first). */
uint32_t coi_crc32c_extend(uint32_t crc, const void *bytes, size_t nbytes);
/* Of bytes whose first part has the one checksum, and the other, of so many bytes, the second. */
uint32_t coi_crc32c_join(uint32_t first, uint32_t second, uint64_t second_nbytes);
/* The same without the processor's help: what others compare with, and what runs where it has
 * none. */
uint32_t coi_crc32c_plain(const void *bytes, size_t nbytes);

/* A file that holds checksums of checksums would be weak; so they are stored like this. */
static inline uint32_t
coi_crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

#endif
