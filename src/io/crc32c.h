/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli), the checksum of TFRecord files. */
#ifndef COI_IO_CRC32C_H
#define COI_IO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t coi_crc32c(const void *bytes, size_t nbytes);
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
