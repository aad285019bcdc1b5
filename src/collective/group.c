/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-gather and broadcast over any transport, and what they share with the all-reduce
 * (all_reduce.c).
 */
#include "collective/group.h"
#include "collective/reduction_tree.h"

#include <string.h>

#define SMALL_BROADCAST (64u << 10)

co_code
coi_group_scratch(coi_group *group, size_t nbytes, co_error_info *err)
{
    void *grown;

    if (nbytes <= group->scratch_nbytes)
        return CO_OK;
    grown = coi_alloc(group->memory, nbytes);
    if (grown == NULL) {
        coi_error(err, CO_RESOURCE_EXHAUSTED,
                  "no memory for the scratch of a collective (%zu bytes)", nbytes);
        coi_group_break(group, CO_RESOURCE_EXHAUSTED, err);
        return CO_RESOURCE_EXHAUSTED;
    }
    coi_free(group->memory, group->scratch, group->scratch_nbytes);
    group->scratch = grown;
    group->scratch_nbytes = nbytes;
    return CO_OK;
}

co_code
coi_group_transfer(coi_group *group, const coi_list *sends, const coi_list *receives,
                   coi_moment deadline, co_error_info *err)
{
    if (sends->count == 0 && receives->count == 0)
        return CO_OK;
    return group->transport->transfer(group, sends->items, sends->count, receives->items,
                                      receives->count, coi_left_ms(deadline), err);
}

/* Two lists of at most one transfer per rank, in the scratch. */
static co_code
make_lists(coi_group *group, coi_list *sends, coi_list *receives, co_error_info *err)
{
    size_t  nbytes = coi_rounded((size_t)group->size * sizeof(coi_transfer));
    co_code rc = coi_group_check(group, err);

    if (rc == CO_OK)
        rc = coi_group_scratch(group, 2 * nbytes, err);
    if (rc != CO_OK)
        return rc;
    *sends = (coi_list){ group->scratch, 0 };
    *receives = (coi_list){ (void *)((unsigned char *)group->scratch + nbytes), 0 };
    return CO_OK;
}

co_code
coi_group_all_gather(coi_group *group, const void *mine, const size_t *nbytes, void *all,
                     int timeout_ms, co_error_info *err)
{
    unsigned char *place = all;
    coi_moment     deadline = coi_deadline(timeout_ms);
    coi_list       sends, receives;
    co_code        rc = make_lists(group, &sends, &receives, err);

    if (rc != CO_OK)
        return rc;
    for (int r = 0; r < group->size; ++r) {
        if (r != group->rank)
            coi_list_add(&receives, r, place, nbytes[r]);
        else if (place != mine && nbytes[r] > 0)
            memcpy(place, mine, nbytes[r]);
        place += nbytes[r];
    }
    for (int k = 1; k < group->size; ++k)
        coi_list_add(&sends, coi_peer_after(group, k), mine, nbytes[group->rank]);
    return coi_group_transfer(group, &sends, &receives, deadline, err);
}

/*
 * The root gives every rank a share, and the ranks give theirs to all: no rank sends the data more
 * than twice.
 */
static co_code
broadcast_shares(coi_group *group, unsigned char *data, size_t nbytes, int root,
                 coi_moment deadline, coi_list *sends, coi_list *receives, co_error_info *err)
{
    int64_t begin, end, mine, mine_end;
    co_code rc;

    coi_share_range(CO_UINT8, (int64_t)nbytes, group->rank, group->size, &mine, &mine_end);
    for (int r = 0; r < group->size && group->rank == root; ++r) {
        coi_share_range(CO_UINT8, (int64_t)nbytes, r, group->size, &begin, &end);
        if (r != root)
            coi_list_add(sends, r, data + begin, (size_t)(end - begin));
    }
    if (group->rank != root)
        coi_list_add(receives, root, data + mine, (size_t)(mine_end - mine));
    rc = coi_group_transfer(group, sends, receives, deadline, err);
    if (rc != CO_OK)
        return rc;

    sends->count = receives->count = 0;
    for (int k = 1; k < group->size; ++k) {
        int to = coi_peer_after(group, k), from = coi_peer_before(group, k);

        coi_share_range(CO_UINT8, (int64_t)nbytes, from, group->size, &begin, &end);
        if (to != root)
            coi_list_add(sends, to, data + mine, (size_t)(mine_end - mine));
        if (group->rank != root)
            coi_list_add(receives, from, data + begin, (size_t)(end - begin));
    }
    return coi_group_transfer(group, sends, receives, deadline, err);
}

co_code
coi_group_broadcast(coi_group *group, void *data, size_t nbytes, int root, int timeout_ms,
                    co_error_info *err)
{
    coi_moment deadline = coi_deadline(timeout_ms);
    coi_list   sends, receives;
    co_code    rc = make_lists(group, &sends, &receives, err);

    if (rc != CO_OK)
        return rc;
    if (group->size > 2 && nbytes > SMALL_BROADCAST)
        return broadcast_shares(group, data, nbytes, root, deadline, &sends, &receives, err);
    for (int k = 1; k < group->size && group->rank == root; ++k)
        coi_list_add(&sends, coi_peer_after(group, k), data, nbytes);
    if (group->rank != root)
        coi_list_add(&receives, root, data, nbytes);
    return coi_group_transfer(group, &sends, &receives, deadline, err);
}
