/* SPDX-License-Identifier: Apache-2.0 */
/* What the data collectives share: scratch of the group, lists of transfers, the order of peers. */
#ifndef COI_COLLECTIVE_GROUP_H
#define COI_COLLECTIVE_GROUP_H

#include "collective/handshake.h"

static inline size_t
coi_rounded(size_t nbytes)
{
    return (nbytes + COI_ALIGNMENT - 1) / COI_ALIGNMENT * COI_ALIGNMENT;
}

/*
 * At least nbytes of scratch; its content is lost. Without memory this rank cannot take part any
 * more while its peers wait for it: the group is broken.
 */
co_code coi_group_scratch(coi_group *group, size_t nbytes, co_error_info *err);

/* Transfers that are being listed, in an array with enough room. */
typedef struct coi_list {
    coi_transfer *items;
    size_t        count;
} coi_list;

/* Nothing for 0 bytes. */
static inline void
coi_list_add(coi_list *to, int peer, const void *data, size_t nbytes)
{
    if (nbytes > 0)
        to->items[to->count++] = (coi_transfer){ peer, (void *)(uintptr_t)data, nbytes };
}

co_code coi_group_transfer(coi_group *group, const coi_list *sends, const coi_list *receives,
                           coi_moment deadline, co_error_info *err);

/*
 * The k-th peer to send to and to receive from: each rank begins with another one, so that no
 * rank receives from all at once.
 */
static inline int
coi_peer_after(const coi_group *group, int k)
{
    return (int)(((int64_t)group->rank + k) % group->size);
}

static inline int
coi_peer_before(const coi_group *group, int k)
{
    return (int)(((int64_t)group->rank - k + group->size) % group->size);
}

#endif
