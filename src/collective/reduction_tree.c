/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixed tree over logical replica ids, evaluated block by block: a block of every inner node is
 * made, used and overwritten while it is in the first-level cache, so memory sees each part once
 * and the result once.
 *
 *          [0,7)              Node [lo,hi) splits at lo + the largest power of two below hi - lo;
 *         /     \             a node of one replica is its part.
 *      [0,4)    [4,7)
 *      /  \      /  \         Scratch: the left child is made in the block of its parent, the right
 *   [0,2)[2,4)[4,6) 6         one in the block of its level, so 31 levels need 31 blocks.
 */
#include "collective/reduction_tree.h"

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    BLOCK_BYTES = 1024,      /* of an inner node; 8 parts of 64 MiB run 25% faster than with 4096 */
    LONG_BLOCK_BYTES = 8192, /* without inner nodes, only what MEAN reads again must stay near */
    MAX_LEVELS = 31,         /* ids are ints */
    LINE_BYTES = 64,
    STREAM_BYTES = 24 << 20 /* a result from here on does not stay in a cache */
};

/* Where the leaves are: parts by replica id, or subtrees from left to right. */
typedef struct source {
    const void *const *parts; /* of replica `first` and those that follow; NULL: subtrees */
    int                first;
    const coi_subtree *subtrees;
} source;

typedef struct traversal {
    source                    from;
    const coi_reduce_kernels *kernels;
    co_reduce_op              op;
    size_t                    start; /* bytes from the beginning of every leaf to this block */
    int64_t                   count; /* elements in this block */
    unsigned char (*scratch)[BLOCK_BYTES];
} traversal;

static int
split(int lo, int hi)
{
    unsigned width = (unsigned)(hi - lo), half = 1;

    while (half * 2 < width)
        half *= 2;
    return lo + (int)half;
}

/* The data of node [lo, hi) if it is a leaf, else NULL. Leaves are visited from left to right. */
static const void *
leaf(source *from, int lo, int hi)
{
    if (from->parts != NULL)
        return hi - lo == 1 ? from->parts[lo - from->first] : NULL;
    if (from->subtrees->lo != lo || from->subtrees->hi != hi)
        return NULL;
    return (from->subtrees++)->data;
}

/* Has node [lo, hi) more than two leaves, and so nodes between them and itself? */
static bool
has_inner_nodes(const source *from, int lo, int hi)
{
    if (from->parts != NULL)
        return hi - lo > 2;
    return from->subtrees[0].hi != hi && from->subtrees[1].hi != hi;
}

/* The block of node [lo, hi): made in `out`, unless it is a leaf, which is where it is. */
static const void *
node_block(traversal *w, int lo, int hi, int level, void *out)
{
    const void *left, *right, *data = leaf(&w->from, lo, hi);
    int         middle;

    if (data != NULL)
        return (const unsigned char *)data + w->start;
    middle = split(lo, hi);
    left = node_block(w, lo, middle, level + 1, out);
    right = node_block(w, middle, hi, level + 1, w->scratch[level]);
    coi_reduce_node(w->kernels, w->op, out, left, right, w->count);
    return out;
}

/*
 * A copy that leaves the caches as they are: the lines of dst are not read before they are
 * overwritten, which saves a quarter of the traffic of a sum. Both are aligned to a line.
 */
static void
stream(void *dst, const void *src, size_t nbytes)
{
    size_t at = 0;

#if defined(__SSE2__)
    for (; at + LINE_BYTES <= nbytes; at += LINE_BYTES) {
        const __m128i *from = (const __m128i *)(const void *)((const char *)src + at);
        __m128i       *to = (__m128i *)(void *)((char *)dst + at);
        __m128i        a = _mm_load_si128(from), b = _mm_load_si128(from + 1);
        __m128i        c = _mm_load_si128(from + 2), d = _mm_load_si128(from + 3);

        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
    _mm_sfence(); /* such stores are ordered by nothing else */
#endif
    memcpy((char *)dst + at, (const char *)src + at, nbytes - at);
}

/* What reduce does with the blocks it makes. */
typedef struct ending {
    bool divides; /* by the number of replicas, if it is a mean */
    bool streams; /* past the caches */
} ending;

/* Elements [begin, end) of node [lo, hi) into out[0 ..]. */
static void
reduce(const coi_reduction *job, const source *from, int lo, int hi, int64_t begin, int64_t end,
       void *out, ending how)
{
    const coi_reduce_kernels          *kernels = &coi_reduce_table[job->dtype];
    _Alignas(LINE_BYTES) unsigned char scratch[MAX_LEVELS][BLOCK_BYTES];
    _Alignas(LINE_BYTES) unsigned char staged[LONG_BLOCK_BYTES];
    unsigned char                     *to = out;
    traversal w = { .kernels = kernels, .op = job->op, .scratch = scratch };
    int64_t per_block = (int64_t)((has_inner_nodes(from, lo, hi) ? BLOCK_BYTES : LONG_BLOCK_BYTES) /
                                  kernels->size);

    for (; begin < end; begin += w.count) {
        unsigned char *block = how.streams ? staged : to;
        const void    *made;
        size_t         nbytes;

        w.from = *from;
        w.start = (size_t)begin * kernels->size;
        w.count = end - begin < per_block ? end - begin : per_block;
        nbytes = (size_t)w.count * kernels->size;
        made = node_block(&w, lo, hi, 0, block);
        if (made != block)
            memcpy(block, made, nbytes);
        if (how.divides)
            coi_reduce_finish(job, block, w.count);
        if (how.streams)
            stream(to, staged, nbytes);
        to += nbytes;
    }
}

void
coi_reduce_finish(const coi_reduction *job, void *data, int64_t num_elements)
{
    const coi_reduce_kernels *kernels = &coi_reduce_table[job->dtype];

    if (job->op == CO_REDUCE_MEAN && kernels->mean != NULL && job->num_replicas > 1)
        coi_reduce_mean(kernels, data, num_elements, job->num_replicas);
}

void
coi_reduce_parts(const coi_reduction *job, int first, int lo, int hi, int64_t begin, int64_t end,
                 void *out)
{
    reduce(job, &(source){ .parts = job->parts, .first = first }, lo, hi, begin, end, out,
           (ending){ .divides = false });
}

void
coi_reduce_top(const coi_reduction *job, const coi_subtree *subtrees, int64_t num_elements,
               void *out)
{
    reduce(job, &(source){ .subtrees = subtrees }, 0, job->num_replicas, 0, num_elements, out,
           (ending){ .divides = true });
}

void
coi_reduce_share(const coi_reduction *job, int share, int num_shares)
{
    size_t  size = coi_reduce_table[job->dtype].size;
    int64_t begin, end;
    ending  how = { .divides = true,
                    .streams = (size_t)job->num_elements * size >= STREAM_BYTES &&
                               (uintptr_t)job->out % LINE_BYTES == 0 };

    coi_share_range(job->dtype, job->num_elements, share, num_shares, &begin, &end);
    reduce(job, &(source){ .parts = job->parts }, 0, job->num_replicas, begin, end,
           (unsigned char *)job->out + (size_t)begin * size, how);
}

bool
coi_can_reduce(co_reduce_op op, co_dtype dtype)
{
    return (unsigned)dtype < CO_NUM_DTYPES && (unsigned)op <= CO_REDUCE_PROD &&
           coi_reduce_table[dtype].size > 0;
}

void
coi_share_range(co_dtype dtype, int64_t num_elements, int share, int num_shares, int64_t *begin,
                int64_t *end)
{
    int64_t per_line = LINE_BYTES / (int64_t)coi_reduce_table[dtype].size;
    int64_t lines = num_elements / per_line + (num_elements % per_line != 0);
    int64_t each = lines / num_shares, more = lines % num_shares;
    /* The first shares have one more. */
    int64_t first = each * share + (share < more ? share : more);
    int64_t last = first + each + (share < more);

    *begin = first * per_line < num_elements ? first * per_line : num_elements;
    *end = last * per_line < num_elements ? last * per_line : num_elements;
}

/* Cut the node [node_lo, node_hi) into pieces of [lo, hi); n is how many there are already. */
static int
cut(int node_lo, int node_hi, int lo, int hi, coi_subtree *out, int n)
{
    int middle;

    if (node_hi <= lo || hi <= node_lo)
        return n;
    if (lo <= node_lo && node_hi <= hi) {
        if (out != NULL)
            out[n] = (coi_subtree){ node_lo, node_hi, NULL };
        return n + 1;
    }
    middle = split(node_lo, node_hi);
    n = cut(node_lo, middle, lo, hi, out, n);
    return cut(middle, node_hi, lo, hi, out, n);
}

int
coi_tree_cut(int num_replicas, int lo, int hi, coi_subtree *out)
{
    return lo < hi ? cut(0, num_replicas, lo, hi, out, 0) : 0;
}
