/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data collectives over any transport. An all-reduce works through the elements in chunks, so that
 * its scratch is bounded, and each chunk in two rounds:
 *
 *   1. Every rank reduces the maximal subtrees that it hosts whole and sends to each rank that
 *      rank's share of their elements.
 *   2. Every rank finishes the tree for its share and sends the result to all.
 *
 * Few elements are worth a round more than bytes: then everybody sends everything and finishes
 * everything, which gives the same bits. The arrays and buffers of a call lie in the scratch of the
 * group, which only grows.
 */
#include "collective/collective.h"
#include "collective/hello.h"
#include "collective/tree.h"

#include <string.h>

enum {
    CHUNK_BYTES = 8 << 20,
    SMALL_BYTES = 4 << 10,         /* one round up to here, */
    SMALL_BYTES_OF_TWO = 64 << 10, /* for two ranks up to here: it sends them no more bytes */
    SMALL_BROADCAST = 64 << 10
};

static size_t
rounded(size_t nbytes)
{
    return (nbytes + COI_ALIGNMENT - 1) / COI_ALIGNMENT * COI_ALIGNMENT;
}

/*
 * At least nbytes of scratch. Without memory we cannot take part any more, and the peers are on
 * their way.
 */
static co_code
need_scratch(coi_group *group, size_t nbytes, co_error_info *err)
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

/* Transfers that are being listed. */
typedef struct list {
    coi_transfer *items;
    size_t        count;
} list;

static void
add(list *to, int peer, const void *data, size_t nbytes)
{
    if (nbytes > 0)
        to->items[to->count++] = (coi_transfer){ peer, (void *)(uintptr_t)data, nbytes };
}

static co_code
run_transfers(coi_group *group, const list *sends, const list *receives, coi_moment deadline,
              co_error_info *err)
{
    if (sends->count == 0 && receives->count == 0)
        return CO_OK;
    return group->transport->transfer(group, sends->items, sends->count, receives->items,
                                      receives->count, coi_left_ms(deadline), err);
}

/*
 * The k-th peer to send to and to receive from: everybody begins elsewhere, so that nobody meets
 * all at once.
 */
static int
peer_after(const coi_group *group, int k)
{
    return (int)(((int64_t)group->rank + k) % group->size);
}

static int
peer_before(const coi_group *group, int k)
{
    return (int)(((int64_t)group->rank - k + group->size) % group->size);
}

typedef struct all_reduce {
    coi_group           *group;
    const coi_reduction *job;
    const int           *first;
    size_t               size;     /* of an element */
    int64_t              chunk;    /* elements in a chunk */
    bool                 is_whole; /* one round: the share of everybody is everything */
    int                  num_subtrees;
    coi_subtree         *subtrees; /* of all ranks, from left to right */
    int                 *start;    /* rank r has subtrees start[r] .. start[r+1] - 1 */
    list                 sends, receives;
    unsigned char       *own; /* a chunk of each subtree of this rank, */
    size_t               own_stride;
    unsigned char       *theirs; /* and this rank's share of the others' */
    size_t               their_stride;
} all_reduce;

/* The share of a rank, in elements from the beginning of a chunk of n elements. */
static void
share_of(const all_reduce *a, int64_t n, int rank, int64_t *begin, int64_t *end)
{
    if (a->is_whole) {
        *begin = 0;
        *end = n;
    } else {
        coi_share_range(a->job->dtype, n, rank, a->group->size, begin, end);
    }
}

/* Count, size and lay out what a call needs. */
static co_code
plan(all_reduce *a, co_error_info *err)
{
    coi_group *group = a->group;
    size_t     nbytes = (size_t)a->job->num_elements * a->size, at, longest;
    size_t     small = group->size == 2 ? SMALL_BYTES_OF_TWO : SMALL_BYTES;
    int        own = 0;
    int64_t    begin, end;
    co_code    rc;

    a->is_whole = nbytes <= small;
    a->chunk = CHUNK_BYTES / (int64_t)a->size;
    if (a->chunk > a->job->num_elements)
        a->chunk = a->job->num_elements;
    for (int r = 0; r < group->size; ++r) {
        int n = coi_tree_cut(a->job->num_replicas, a->first[r], a->first[r + 1], NULL);

        a->num_subtrees += n;
        own = r == group->rank ? n : own;
    }
    share_of(a, a->chunk, 0, &begin, &end); /* the first share is the longest */
    a->their_stride = rounded((size_t)(end - begin) * a->size);
    a->own_stride = rounded((size_t)a->chunk * a->size);

    /* Either round has at most this many transfers in one direction. */
    longest = (size_t)(own > 1 ? own : 1) * (size_t)group->size;
    if (longest < (size_t)a->num_subtrees)
        longest = (size_t)a->num_subtrees;
    at = rounded((size_t)a->num_subtrees * sizeof(coi_subtree)) +
         rounded(((size_t)group->size + 1) * sizeof(int)) +
         2 * rounded(longest * sizeof(coi_transfer));
    rc = need_scratch(
        group, at + (size_t)own * a->own_stride + (size_t)(a->num_subtrees - own) * a->their_stride,
        err);
    if (rc != CO_OK)
        return rc;
    at = 0;
    a->subtrees = (void *)((unsigned char *)group->scratch + at);
    at += rounded((size_t)a->num_subtrees * sizeof(coi_subtree));
    a->start = (void *)((unsigned char *)group->scratch + at);
    at += rounded(((size_t)group->size + 1) * sizeof(int));
    a->sends.items = (void *)((unsigned char *)group->scratch + at);
    at += rounded(longest * sizeof(coi_transfer));
    a->receives.items = (void *)((unsigned char *)group->scratch + at);
    at += rounded(longest * sizeof(coi_transfer));
    a->own = (unsigned char *)group->scratch + at;
    a->theirs = a->own + (size_t)own * a->own_stride;

    a->start[0] = 0;
    for (int r = 0; r < group->size; ++r)
        a->start[r + 1] = a->start[r] + coi_tree_cut(a->job->num_replicas, a->first[r],
                                                     a->first[r + 1], &a->subtrees[a->start[r]]);
    return CO_OK;
}

/*
 * Point the subtrees of this rank at elements [first, last): parts where they are, sums in the
 * scratch.
 */
static void
reduce_own(all_reduce *a, int64_t first, int64_t last)
{
    int            rank = a->group->rank, base = a->first[rank];
    unsigned char *to = a->own;

    for (int i = a->start[rank]; i < a->start[rank + 1]; ++i) {
        coi_subtree *subtree = &a->subtrees[i];

        if (subtree->hi - subtree->lo == 1) {
            subtree->data = (const unsigned char *)a->job->parts[subtree->lo - base] +
                            (size_t)first * a->size;
            continue;
        }
        coi_reduce_parts(a->job, base, subtree->lo, subtree->hi, first, last, to);
        subtree->data = to;
        to += a->own_stride;
    }
}

/* The first round: my subtrees' shares to their ranks, theirs of my share to me. */
static co_code
scatter(all_reduce *a, int64_t n, coi_moment deadline, co_error_info *err)
{
    coi_group     *group = a->group;
    unsigned char *to = a->theirs;
    int64_t        begin, end;

    a->sends.count = a->receives.count = 0;
    for (int k = 1; k < group->size; ++k) {
        int peer = peer_after(group, k);

        share_of(a, n, peer, &begin, &end);
        for (int i = a->start[group->rank]; i < a->start[group->rank + 1]; ++i)
            add(&a->sends, peer,
                (const unsigned char *)a->subtrees[i].data + (size_t)begin * a->size,
                (size_t)(end - begin) * a->size);
    }
    share_of(a, n, group->rank, &begin, &end);
    for (int k = 1; k < group->size; ++k) {
        int peer = peer_before(group, k);

        for (int i = a->start[peer]; i < a->start[peer + 1]; ++i, to += a->their_stride) {
            a->subtrees[i].data = to;
            add(&a->receives, peer, to, (size_t)(end - begin) * a->size);
        }
    }
    /* My own subtrees are read from my share on. */
    for (int i = a->start[group->rank]; i < a->start[group->rank + 1]; ++i)
        a->subtrees[i].data = (const unsigned char *)a->subtrees[i].data + (size_t)begin * a->size;
    return run_transfers(group, &a->sends, &a->receives, deadline, err);
}

/* The second round: finished shares to all. `out` is the chunk. */
static co_code
gather(all_reduce *a, unsigned char *out, int64_t n, coi_moment deadline, co_error_info *err)
{
    coi_group *group = a->group;
    int64_t    begin, end;

    a->sends.count = a->receives.count = 0;
    share_of(a, n, group->rank, &begin, &end);
    for (int k = 1; k < group->size; ++k)
        add(&a->sends, peer_after(group, k), out + (size_t)begin * a->size,
            (size_t)(end - begin) * a->size);
    for (int k = 1; k < group->size; ++k) {
        int peer = peer_before(group, k);

        share_of(a, n, peer, &begin, &end);
        add(&a->receives, peer, out + (size_t)begin * a->size, (size_t)(end - begin) * a->size);
    }
    return run_transfers(group, &a->sends, &a->receives, deadline, err);
}

co_code
coi_group_all_reduce(coi_group *group, const coi_reduction *job, const int *first, int timeout_ms,
                     co_error_info *err)
{
    all_reduce a = {
        .group = group, .job = job, .first = first, .size = coi_reduce_table[job->dtype].size
    };
    coi_moment deadline = coi_deadline(timeout_ms);
    co_code    rc = coi_group_check(group, err);

    if (rc != CO_OK || job->num_elements == 0)
        return rc;
    if (group->size == 1) {
        coi_reduce_share(job, 0, 1);
        return CO_OK;
    }
    rc = plan(&a, err);
    for (int64_t at = 0; at < job->num_elements && rc == CO_OK; at += a.chunk) {
        int64_t        n = job->num_elements - at < a.chunk ? job->num_elements - at : a.chunk;
        unsigned char *out = (unsigned char *)job->out + (size_t)at * a.size;
        int64_t        begin, end;

        reduce_own(&a, at, at + n);
        rc = scatter(&a, n, deadline, err);
        if (rc != CO_OK)
            break;
        share_of(&a, n, group->rank, &begin, &end);
        coi_reduce_top(job, a.subtrees, end - begin, out + (size_t)begin * a.size);
        if (!a.is_whole)
            rc = gather(&a, out, n, deadline, err);
    }
    return rc;
}

/* Two lists of at most one transfer per rank, in the scratch. */
static co_code
make_lists(coi_group *group, list *sends, list *receives, co_error_info *err)
{
    size_t  nbytes = rounded((size_t)group->size * sizeof(coi_transfer));
    co_code rc = coi_group_check(group, err);

    if (rc == CO_OK)
        rc = need_scratch(group, 2 * nbytes, err);
    if (rc != CO_OK)
        return rc;
    *sends = (list){ group->scratch, 0 };
    *receives = (list){ (void *)((unsigned char *)group->scratch + nbytes), 0 };
    return CO_OK;
}

co_code
coi_group_all_gather(coi_group *group, const void *mine, const size_t *nbytes, void *all,
                     int timeout_ms, co_error_info *err)
{
    unsigned char *place = all;
    coi_moment     deadline = coi_deadline(timeout_ms);
    list           sends, receives;
    co_code        rc = make_lists(group, &sends, &receives, err);

    if (rc != CO_OK)
        return rc;
    for (int r = 0; r < group->size; ++r) {
        if (r != group->rank)
            add(&receives, r, place, nbytes[r]);
        else if (place != mine && nbytes[r] > 0)
            memcpy(place, mine, nbytes[r]);
        place += nbytes[r];
    }
    for (int k = 1; k < group->size; ++k)
        add(&sends, peer_after(group, k), mine, nbytes[group->rank]);
    return run_transfers(group, &sends, &receives, deadline, err);
}

/*
 * The root gives every rank a share, and the ranks give theirs to all: no rank sends the data more
 * than twice.
 */
static co_code
broadcast_shares(coi_group *group, unsigned char *data, size_t nbytes, int root,
                 coi_moment deadline, list *sends, list *receives, co_error_info *err)
{
    int64_t begin, end, mine, mine_end;
    co_code rc;

    coi_share_range(CO_UINT8, (int64_t)nbytes, group->rank, group->size, &mine, &mine_end);
    for (int r = 0; r < group->size && group->rank == root; ++r) {
        coi_share_range(CO_UINT8, (int64_t)nbytes, r, group->size, &begin, &end);
        if (r != root)
            add(sends, r, data + begin, (size_t)(end - begin));
    }
    if (group->rank != root)
        add(receives, root, data + mine, (size_t)(mine_end - mine));
    rc = run_transfers(group, sends, receives, deadline, err);
    if (rc != CO_OK)
        return rc;

    sends->count = receives->count = 0;
    for (int k = 1; k < group->size; ++k) {
        int to = peer_after(group, k), from = peer_before(group, k);

        coi_share_range(CO_UINT8, (int64_t)nbytes, from, group->size, &begin, &end);
        if (to != root)
            add(sends, to, data + mine, (size_t)(mine_end - mine));
        if (group->rank != root)
            add(receives, from, data + begin, (size_t)(end - begin));
    }
    return run_transfers(group, sends, receives, deadline, err);
}

co_code
coi_group_broadcast(coi_group *group, void *data, size_t nbytes, int root, int timeout_ms,
                    co_error_info *err)
{
    coi_moment deadline = coi_deadline(timeout_ms);
    list       sends, receives;
    co_code    rc = make_lists(group, &sends, &receives, err);

    if (rc != CO_OK)
        return rc;
    if (group->size > 2 && nbytes > SMALL_BROADCAST)
        return broadcast_shares(group, data, nbytes, root, deadline, &sends, &receives, err);
    for (int k = 1; k < group->size && group->rank == root; ++k)
        add(&sends, peer_after(group, k), data, nbytes);
    if (group->rank != root)
        add(&receives, root, data, nbytes);
    return run_transfers(group, &sends, &receives, deadline, err);
}
