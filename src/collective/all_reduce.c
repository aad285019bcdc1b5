/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce over any transport. The elements of all jobs are worked through in runs, so that the
 * scratch is bounded: a run is a chunk of a large job, or several small jobs packed one after
 * another, each from a cache line on. A run takes two rounds:
 *
 *   1. Every rank reduces the maximal subtrees that it hosts whole and sends to each rank that
 *      rank's share of their bytes.
 *   2. Every rank finishes the tree for its share and sends the result to all.
 *
 * A short run is worth a round more than bytes: then everybody sends everything and finishes
 * everything, which gives the same bits. The arrays and buffers of a run lie in the scratch of the
 * group, which only grows.
 */
#include "collective/group.h"
#include "collective/reduction_tree.h"

#include <string.h>

enum {
    CHUNK_BYTES = 8 << 20,
    PACKED_BYTES = 64 << 10,       /* jobs up to here are packed, */
    MAX_SEGMENTS = 64,             /* so many of them at once */
    SMALL_BYTES = 4 << 10,         /* one round up to here, */
    SMALL_BYTES_OF_TWO = 64 << 10, /* for two ranks up to here: it sends them no more bytes */
};

/* Elements of a job in a run. */
typedef struct segment {
    const coi_reduction *job;
    int64_t              first, count;
    size_t               size;   /* of an element */
    size_t               offset; /* from the beginning of the run */
} segment;

typedef struct run {
    coi_group *group;
    const int *first; /* rank r hosts replicas first[r] .. first[r+1] - 1 */
    int        num_replicas;
    segment    segments[MAX_SEGMENTS];
    int        num_segments;
    size_t     nbytes;

    bool           in_ring;   /* two rounds always */
    bool           is_whole;  /* one round: every rank's share is all elements */
    bool           is_packed; /* several segments: parts and results are copied */
    int            num_subtrees;
    coi_subtree   *subtrees; /* of all ranks, from left to right */
    coi_subtree   *view;     /* the same, from the byte on that is being reduced */
    int           *start;    /* rank r has subtrees start[r] .. start[r+1] - 1 */
    coi_list       sends, receives;
    unsigned char *own; /* every subtree of this rank, */
    size_t         own_stride;
    unsigned char *theirs; /* this rank's share of the others', */
    size_t         their_stride;
    unsigned char *out; /* and the result: packed, or where the job wants it */
} run;

static size_t
segment_bytes(const segment *s)
{
    return (size_t)s->count * s->size;
}

static unsigned char *
segment_out(const segment *s)
{
    return (unsigned char *)s->job->out + (size_t)s->first * s->size;
}

/* The bytes of a rank's share: cut at cache lines, so never inside an element. */
static void
share_of(const run *a, int rank, size_t *begin, size_t *end)
{
    int64_t first = 0, last = (int64_t)a->nbytes;

    if (!a->is_whole)
        coi_share_range(CO_UINT8, (int64_t)a->nbytes, rank, a->group->size, &first, &last);
    *begin = (size_t)first;
    *end = (size_t)last;
}

/* A piece of the scratch. */
static void *
carve(const run *a, size_t *at, size_t nbytes)
{
    void *piece = (unsigned char *)a->group->scratch + *at;

    *at += coi_rounded(nbytes);
    return piece;
}

/* Count, size and lay out what the run needs. */
static co_code
plan(run *a, co_error_info *err)
{
    coi_group *group = a->group;
    size_t     size = (size_t)group->size, longest, begin, end, at = 0, num_own = 0;
    co_code    rc;

    a->is_packed = a->num_segments > 1;
    a->is_whole = !a->in_ring &&
                  a->nbytes <= (size_t)(group->size == 2 ? SMALL_BYTES_OF_TWO : SMALL_BYTES);
    a->num_subtrees = 0;
    for (int r = 0; r < group->size; ++r) {
        int n = coi_tree_cut(a->num_replicas, a->first[r], a->first[r + 1], NULL);

        a->num_subtrees += n;
        num_own = r == group->rank ? (size_t)n : num_own;
    }
    share_of(a, 0, &begin, &end); /* the first share is the longest */
    a->their_stride = coi_rounded(end - begin);
    a->own_stride = coi_rounded(a->nbytes);
    /* Either round has at most this many transfers in one direction. */
    longest = (num_own > 1 ? num_own : 1) * size;
    longest = longest > (size_t)a->num_subtrees ? longest : (size_t)a->num_subtrees;

    rc = coi_group_scratch(group,
                           2 * coi_rounded((size_t)a->num_subtrees * sizeof(coi_subtree)) +
                               coi_rounded((size + 1) * sizeof(int)) +
                               2 * coi_rounded(longest * sizeof(coi_transfer)) +
                               (num_own + 1) * a->own_stride +
                               ((size_t)a->num_subtrees - num_own) * a->their_stride,
                           err);
    if (rc != CO_OK)
        return rc;
    a->subtrees = carve(a, &at, (size_t)a->num_subtrees * sizeof(coi_subtree));
    a->view = carve(a, &at, (size_t)a->num_subtrees * sizeof(coi_subtree));
    a->start = carve(a, &at, (size + 1) * sizeof(int));
    a->sends.items = carve(a, &at, longest * sizeof(coi_transfer));
    a->receives.items = carve(a, &at, longest * sizeof(coi_transfer));
    a->own = carve(a, &at, num_own * a->own_stride);
    a->theirs = carve(a, &at, ((size_t)a->num_subtrees - num_own) * a->their_stride);
    a->out = a->is_packed ? carve(a, &at, a->own_stride) : segment_out(&a->segments[0]);

    a->start[0] = 0;
    for (int r = 0; r < group->size; ++r)
        a->start[r + 1] = a->start[r] + coi_tree_cut(a->num_replicas, a->first[r], a->first[r + 1],
                                                     &a->subtrees[a->start[r]]);
    return CO_OK;
}

/* The subtrees of this rank: sums in the scratch, and parts where they are unless they are
 * packed. */
static void
reduce_own(run *a)
{
    int            rank = a->group->rank, base = a->first[rank];
    unsigned char *to = a->own;

    for (int i = a->start[rank]; i < a->start[rank + 1]; ++i, to += a->own_stride) {
        coi_subtree   *subtree = &a->subtrees[i];
        const segment *only = &a->segments[0];

        subtree->data = to;
        if (!a->is_packed && subtree->hi - subtree->lo == 1) {
            subtree->data = (const unsigned char *)only->job->parts[subtree->lo - base] +
                            (size_t)only->first * only->size;
            continue;
        }
        for (int k = 0; k < a->num_segments; ++k) {
            const segment *s = &a->segments[k];

            coi_reduce_parts(s->job, base, subtree->lo, subtree->hi, s->first, s->first + s->count,
                             to + s->offset);
        }
    }
}

/* The first round: my subtrees' shares to their ranks, theirs of my share to me. */
static co_code
scatter(run *a, coi_moment deadline, co_error_info *err)
{
    coi_group     *group = a->group;
    unsigned char *to = a->theirs;
    size_t         begin, end;

    a->sends.count = a->receives.count = 0;
    for (int k = 1; k < group->size; ++k) {
        int peer = coi_peer_after(group, k);

        share_of(a, peer, &begin, &end);
        for (int i = a->start[group->rank]; i < a->start[group->rank + 1]; ++i)
            coi_list_add(&a->sends, peer, (const unsigned char *)a->subtrees[i].data + begin,
                         end - begin);
    }
    share_of(a, group->rank, &begin, &end);
    for (int k = 1; k < group->size; ++k) {
        int peer = coi_peer_before(group, k);

        for (int i = a->start[peer]; i < a->start[peer + 1]; ++i, to += a->their_stride) {
            a->subtrees[i].data = to;
            coi_list_add(&a->receives, peer, to, end - begin);
        }
    }
    /* From here on, all subtrees are read from my share on. */
    for (int i = a->start[group->rank]; i < a->start[group->rank + 1]; ++i)
        a->subtrees[i].data = (const unsigned char *)a->subtrees[i].data + begin;
    return coi_group_transfer(group, &a->sends, &a->receives, deadline, err);
}

/* The top of the tree, for the segments or parts of segments in my share. */
static void
finish(run *a)
{
    size_t begin, end;

    share_of(a, a->group->rank, &begin, &end);
    for (int k = 0; k < a->num_segments; ++k) {
        const segment *s = &a->segments[k];
        size_t         from = s->offset > begin ? s->offset : begin;
        size_t         to = s->offset + segment_bytes(s) < end ? s->offset + segment_bytes(s) : end;

        if (from >= to)
            continue;
        for (int i = 0; i < a->num_subtrees; ++i) {
            a->view[i] = a->subtrees[i];
            a->view[i].data = (const unsigned char *)a->subtrees[i].data + (from - begin);
        }
        coi_reduce_top(s->job, a->view, (int64_t)((to - from) / s->size), a->out + from);
    }
}

/* The second round: finished shares to all. */
static co_code
gather(run *a, coi_moment deadline, co_error_info *err)
{
    coi_group *group = a->group;
    size_t     begin, end;

    a->sends.count = a->receives.count = 0;
    share_of(a, group->rank, &begin, &end);
    for (int k = 1; k < group->size; ++k)
        coi_list_add(&a->sends, coi_peer_after(group, k), a->out + begin, end - begin);
    for (int k = 1; k < group->size; ++k) {
        int peer = coi_peer_before(group, k);

        share_of(a, peer, &begin, &end);
        coi_list_add(&a->receives, peer, a->out + begin, end - begin);
    }
    return coi_group_transfer(group, &a->sends, &a->receives, deadline, err);
}

/* Run the collected jobs, and start again. */
static co_code
flush(run *a, coi_moment deadline, co_error_info *err)
{
    co_code rc;

    if (a->num_segments == 0)
        return CO_OK;
    rc = plan(a, err);
    if (rc == CO_OK) {
        reduce_own(a);
        rc = scatter(a, deadline, err);
    }
    if (rc == CO_OK) {
        finish(a);
        if (!a->is_whole)
            rc = gather(a, deadline, err);
    }
    for (int k = 0; k < a->num_segments && a->is_packed && rc == CO_OK; ++k)
        memcpy(segment_out(&a->segments[k]), a->out + a->segments[k].offset,
               segment_bytes(&a->segments[k]));
    a->num_segments = 0;
    a->nbytes = 0;
    return rc;
}

static void
append(run *a, const coi_reduction *job, int64_t first, int64_t count)
{
    segment *s = &a->segments[a->num_segments++];

    *s = (segment){ job, first, count, coi_reduce_table[job->dtype].size, coi_rounded(a->nbytes) };
    a->nbytes = s->offset + segment_bytes(s);
}

static co_code
reduce_large(run *a, const coi_reduction *job, coi_moment deadline, co_error_info *err)
{
    int64_t chunk = CHUNK_BYTES / (int64_t)coi_reduce_table[job->dtype].size;
    co_code rc = flush(a, deadline, err);

    for (int64_t at = 0; at < job->num_elements && rc == CO_OK; at += chunk) {
        append(a, job, at, job->num_elements - at < chunk ? job->num_elements - at : chunk);
        rc = flush(a, deadline, err);
    }
    return rc;
}

static size_t
job_bytes(const coi_reduction *job)
{
    return (size_t)job->num_elements * coi_reduce_table[job->dtype].size;
}

static co_code
reduce_pack(run *a, const coi_reduction *jobs, size_t num_jobs, coi_moment deadline,
            co_error_info *err)
{
    co_code rc = CO_OK;

    for (size_t i = 0; i < num_jobs && rc == CO_OK; ++i) {
        size_t nbytes = job_bytes(&jobs[i]);

        if (nbytes == 0)
            continue;
        if (a->group->size == 1) {
            coi_reduce_share(&jobs[i], 0, 1);
            continue;
        }
        if (nbytes > PACKED_BYTES) {
            rc = reduce_large(a, &jobs[i], deadline, err);
            continue;
        }
        if (a->num_segments == MAX_SEGMENTS)
            rc = flush(a, deadline, err);
        append(a, &jobs[i], 0, jobs[i].num_elements);
    }
    return rc == CO_OK ? flush(a, deadline, err) : rc;
}

size_t
coi_pack_end(const coi_reduction *jobs, size_t num_jobs, size_t from, size_t bytes_per_pack)
{
    size_t nbytes = 0;

    if (bytes_per_pack == 0)
        return num_jobs;
    while (from < num_jobs && nbytes <= bytes_per_pack)
        nbytes += job_bytes(&jobs[from++]);
    return from;
}

co_code
coi_group_all_reduce(coi_group *group, const coi_reduction *jobs, size_t num_jobs, const int *first,
                     const coi_comm_options *how, co_error_info *err)
{
    coi_moment deadline = coi_deadline(how->timeout_ms);
    run        a = {
               .group = group, .first = first, .num_replicas = first[group->size], .in_ring = how->in_ring
    };
    co_code rc = coi_group_check(group, err);

    for (size_t from = 0, end; from < num_jobs && rc == CO_OK; from = end) {
        end = coi_pack_end(jobs, num_jobs, from, how->bytes_per_pack);
        rc = reduce_pack(&a, &jobs[from], end - from, deadline, err);
    }
    return rc;
}
