/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorted tables of strings, as LevelDB and TensorFlow write them: blocks of entries whose keys
 * leave out what they share with the key before, each block with a checksum; an index of the
 * blocks; and a foot of 48 bytes.
 *
 *     block: | shared, own, value length | rest of the key | value | ... | restarts | number |
 *            | type | masked crc32c of block and type |
 *     foot:  | handle of the metaindex | handle of the index | zeros | magic |
 *
 * Only tables of blocks that are not compressed are read; TensorFlow writes no others.
 */
#ifndef COI_IO_SSTABLE_H
#define COI_IO_SSTABLE_H

#include "base/error.h"
#include "base/memory.h"

/* An entry, whose bytes are good until the function returns. It returns false to end the reading,
 * with an error in err. */
typedef bool (*coi_sstable_fn)(void *user, const char *key, size_t key_nbytes,
                               const unsigned char *value, size_t value_nbytes, co_error_info *err);

/* Every entry of a table, in order. Keys are different and sorted. CO_DATA_LOSS for damage,
 * CO_UNIMPLEMENTED for compressed blocks. `path` is for messages. */
co_code coi_sstable_read(coi_memory *memory, const char *path, const unsigned char *bytes,
                         size_t nbytes, coi_sstable_fn fn, void *user, co_error_info *err);

#endif
