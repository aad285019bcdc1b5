/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32, the checksum of zip archives: zlib's where it is there, else our own. */
#ifndef COI_IO_CRC32_H
#define COI_IO_CRC32_H

#include "io/source.h"

#include "config.h"

/* Of bytes that follow those of `crc` (0 at first), by tables. */
uint32_t coi_crc32_plain(uint32_t crc, const void *bytes, size_t nbytes);

static inline uint32_t
coi_zip_crc32(uint32_t crc, const void *bytes, size_t nbytes)
{
#if COI_HAVE_ZLIB
    return coi_crc32(crc, bytes, nbytes);
#else
    return coi_crc32_plain(crc, bytes, nbytes);
#endif
}

#endif
