/* SPDX-License-Identifier: Apache-2.0 */
/* Sorted tables of strings, see sstable.h. Nothing of the file is believed. */
#include "io/sstable.h"

#include "base/wire.h"
#include "io/crc32c.h"
#include "io/tensor_file.h"

#include <string.h>

#define MAGIC         UINT64_C(0xdb4775248b80fb57)
#define TRAILER_BYTES 5 /* type and checksum behind a block */
#define MAX_KEY       ((size_t)64 << 10)
/* Bytes of keys for each byte of the table: a hostile one could repeat a long key for three bytes
 * each time. */
#define MAX_EXPANSION 100

typedef struct table {
    coi_memory          *memory;
    const char          *path;
    const unsigned char *bytes;
    size_t               nbytes;
    coi_sstable_fn       fn;
    void                *user;
    char                *key; /* of the last entry; MAX_KEY bytes */
    size_t               key_nbytes;
    bool                 has_key;
    size_t               expanded;  /* bytes of all keys */
    size_t               block_end; /* where the next block may begin */
    co_error_info       *err;
} table;

static uint32_t
get32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

bool
coi_is_sstable_foot(const unsigned char foot[COI_SSTABLE_FOOT])
{
    return (get32(foot + 40) | (uint64_t)get32(foot + 44) << 32) == MAGIC;
}

static bool
damaged(const table *t, size_t offset, const char *what)
{
    coi_error(t->err, CO_DATA_LOSS, "'%s', byte %zu: %s", t->path, offset, what);
    return false;
}

/* The block of a handle, without its trailer. */
static bool
find_block(const table *t, coi_wire *handle, coi_wire *out)
{
    size_t   at = (size_t)(handle->at - t->bytes);
    uint64_t offset, n;
    uint32_t stored, seen;

    if (!coi_wire_varint(handle, &offset) || !coi_wire_varint(handle, &n) || offset > t->nbytes ||
        n > t->nbytes - offset || t->nbytes - offset - n < TRAILER_BYTES)
        return damaged(t, at, "the place of a block is not inside the file");
    out->at = t->bytes + offset;
    out->end = out->at + n;
    stored = get32(out->end + 1);
    seen = coi_crc32c_mask(coi_crc32c(out->at, (size_t)n + 1));
    if (stored != seen) {
        coi_error(t->err, CO_DATA_LOSS,
                  "'%s', byte %llu: the checksum of a block is wrong: stored 0x%08x, found 0x%08x",
                  t->path, (unsigned long long)offset, (unsigned)stored, (unsigned)seen);
        return false;
    }
    if (out->end[0] != 0) {
        coi_error(t->err, CO_UNIMPLEMENTED,
                  "'%s', byte %llu: a block is compressed (type %d, 1 is snappy); tables are read "
                  "that are not compressed, which are those that TensorFlow writes",
                  t->path, (unsigned long long)offset, out->end[0]);
        return false;
    }
    return true;
}

typedef bool (*entry_fn)(table *t, const char *key, size_t key_nbytes, coi_wire value);

/* The key of an entry: `shared` bytes of the key before, and its own. */
static bool
take_key(table *t, char *key, size_t *key_nbytes, uint64_t shared, const unsigned char *own,
         uint64_t num_own)
{
    size_t at = (size_t)(own - t->bytes);

    if (shared > *key_nbytes || num_own > MAX_KEY - shared)
        return damaged(t, at,
                       "a key shares more with the one before than that has, or is too long");
    t->expanded += (size_t)(shared + num_own);
    if (t->expanded / MAX_EXPANSION > t->nbytes)
        return damaged(t, at, "the keys together are a hundred times as long as the table");
    if (num_own > 0)
        memcpy(key + shared, own, (size_t)num_own);
    *key_nbytes = (size_t)(shared + num_own);
    return true;
}

static bool
each_entry(table *t, coi_wire block, char *key, entry_fn fn)
{
    size_t   begin = (size_t)(block.at - t->bytes), key_nbytes = 0;
    uint64_t num_restarts, shared, own, num_value;

    if (block.end - block.at < 4)
        return damaged(t, begin, "a block is too short");
    num_restarts = get32(block.end - 4);
    if (num_restarts > ((size_t)(block.end - block.at) - 4) / 4)
        return damaged(t, begin, "a block has no room for its restarts");
    block.end -= 4 + 4 * num_restarts;
    while (block.at < block.end) {
        size_t   at = (size_t)(block.at - t->bytes);
        coi_wire value;

        if (!coi_wire_varint(&block, &shared) || !coi_wire_varint(&block, &own) ||
            !coi_wire_varint(&block, &num_value) || own > (uint64_t)(block.end - block.at) ||
            num_value > (uint64_t)(block.end - block.at) - own)
            return damaged(t, at, "an entry does not fit into its block");
        if (!take_key(t, key, &key_nbytes, shared, block.at, own))
            return false;
        value.at = block.at + own;
        value.end = value.at + num_value;
        if (!fn(t, key, key_nbytes, value))
            return false;
        block.at = value.end;
    }
    return true;
}

/* Of a data block. */
static bool
pass_entry(table *t, const char *key, size_t key_nbytes, coi_wire value)
{
    size_t least = key_nbytes < t->key_nbytes ? key_nbytes : t->key_nbytes;
    int    order = least > 0 ? memcmp(t->key, key, least) : 0;

    if (t->has_key && (order > 0 || (order == 0 && t->key_nbytes >= key_nbytes)))
        return damaged(t, (size_t)(value.at - t->bytes), "the keys are not sorted");
    if (key_nbytes > 0)
        memcpy(t->key, key, key_nbytes);
    t->key_nbytes = key_nbytes;
    t->has_key = true;
    return t->fn(t->user, key, key_nbytes, value.at, (size_t)(value.end - value.at), t->err);
}

/* Of the index: a data block, which begins behind the one before, so that none is read twice. */
static bool
read_block(table *t, const char *key, size_t key_nbytes, coi_wire handle)
{
    size_t   at = (size_t)(handle.at - t->bytes);
    coi_wire block;
    char    *room;
    bool     good;

    (void)key, (void)key_nbytes;
    if (!find_block(t, &handle, &block))
        return false;
    if ((size_t)(block.at - t->bytes) < t->block_end)
        return damaged(t, at, "blocks overlap, or are not in order");
    t->block_end = (size_t)(block.end - t->bytes) + TRAILER_BYTES;
    room = coi_alloc(t->memory, MAX_KEY);
    if (room == NULL) {
        coi_error(t->err, CO_RESOURCE_EXHAUSTED, "no memory to read '%s'", t->path);
        return false;
    }
    good = each_entry(t, block, room, pass_entry);
    coi_free(t->memory, room, MAX_KEY);
    return good;
}

co_code
coi_sstable_read(coi_memory *memory, const char *path, const unsigned char *bytes, size_t nbytes,
                 coi_sstable_fn fn, void *user, co_error_info *err)
{
    table    t = { .memory = memory, .path = path, .bytes = bytes, .nbytes = nbytes };
    coi_wire foot, index;
    uint64_t unused;
    char    *keys;

    t.fn = fn;
    t.user = user;
    t.err = err;
    if (nbytes < COI_SSTABLE_FOOT)
        return coi_error(err, CO_DATA_LOSS,
                         "'%s' has %zu byte%s; an index has %d at least, its foot", path, nbytes,
                         COI_S(nbytes), COI_SSTABLE_FOOT);
    foot.at = bytes + nbytes - COI_SSTABLE_FOOT;
    foot.end = foot.at + 40;
    if (!coi_is_sstable_foot(foot.at))
        return coi_error(err, CO_DATA_LOSS,
                         "'%s' does not end as an index does: its last 8 bytes are not the magic "
                         "number; it is cut off, or no tensor bundle",
                         path);
    if (!coi_wire_varint(&foot, &unused) || !coi_wire_varint(&foot, &unused)) {
        damaged(&t, nbytes - COI_SSTABLE_FOOT, "the place of the metaindex cannot be read");
        return err->code;
    }
    if (!find_block(&t, &foot, &index))
        return err->code;
    keys = coi_alloc(memory, 2 * MAX_KEY); /* of the index, and the last one seen */
    if (keys == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to read '%s'", path);
    t.key = keys + MAX_KEY;
    each_entry(&t, index, keys, read_block);
    coi_free(memory, keys, 2 * MAX_KEY);
    return err->code;
}
