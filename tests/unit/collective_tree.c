/* SPDX-License-Identifier: Apache-2.0 */
/* The fixed tree: its bits for every operation, dtype, size, cut and placement. */
#include "collective/reduction_tree.h"
#include "collective_support.h"
#include "test.h"

#define LONGEST 1100 /* elements: more than a block of float16 */

static const int64_t lengths[] = { 0, 1, 2, 7, 16, 17, 31, 64, 65, 127, 257, 521, LONGEST };
enum { NUM_LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

/* Room for a result, with a border that must stay as it was. */
typedef struct result {
    _Alignas(64) unsigned char data[LONGEST * 8 + 64];
} result;

static void
clear(result *r)
{
    memset(r->data, 0xA5, sizeof(r->data));
}

static void
expect_border(const result *r, size_t nbytes)
{
    for (size_t i = nbytes; i < nbytes + 64 && i < sizeof(r->data); ++i)
        if (r->data[i] != 0xA5)
            CO_FAIL("byte %zu behind %zu was written", i, nbytes);
}

static void
reduce_all_lengths(co_reduce_op op, co_dtype dtype, int num_replicas, void **parts)
{
    static result out;

    for (int k = 0; k < NUM_LENGTHS; ++k)
        for (int shares = 1; shares <= 5; shares += 2) {
            coi_reduction job = {
                op, dtype, lengths[k], num_replicas, (const void *const *)parts, out.data
            };

            clear(&out);
            for (int s = 0; s < shares; ++s)
                coi_reduce_share(&job, s, shares);
            CO_EXPECT_TRUE(expect_elements(&job, out.data, 0, lengths[k], "shares"));
            expect_border(&out, (size_t)lengths[k] * co_dtype_size(dtype));
        }
}

CO_TEST_BARE(sums_follow_the_tree_for_every_dtype_and_operation, "")
{
    static const int replicas[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 40 };
    void            *parts[MAX_PARTS];

    for (int d = 0; d < NUM_NUMERIC; ++d) {
        make_parts(numeric[d], MAX_PARTS, LONGEST, parts);
        for (size_t k = 0; k < sizeof(replicas) / sizeof(replicas[0]); ++k)
            for (int op = 0; op < NUM_OPS; ++op)
                reduce_all_lengths((co_reduce_op)op, numeric[d], replicas[k], parts);
        free_parts(MAX_PARTS, parts);
    }
}

/* Results that no cache holds are written past it: wherever they begin, for one part and for a
 * tree, with and without division. */
CO_TEST_BARE(large_results_have_the_same_bits, "RC-AR-5")
{
    enum { N = (24 << 18) + 37 }; /* float32: just over what counts as large */
    static const int replicas[] = { 1, 2, 3 };
    void            *parts[3], *room = aligned_alloc(64, (N * 4 + 191) / 64 * 64);

    CO_REQUIRE(room != NULL);
    make_parts(CO_FLOAT32, 3, N, parts);
    for (int k = 0; k < 3; ++k)
        for (int off = 0; off <= 4; off += 4) {
            coi_reduction job = { k == 1 ? CO_REDUCE_SUM : CO_REDUCE_MEAN,
                                  CO_FLOAT32,
                                  N,
                                  replicas[k],
                                  (const void *const *)parts,
                                  (char *)room + off };

            memset(room, 0xA5, N * 4 + 128);
            for (int s = 0; s < 3; ++s)
                coi_reduce_share(&job, s, 3);
            CO_EXPECT_TRUE(expect_elements(&job, job.out, 0, N, "large"));
            CO_EXPECT_INT(((unsigned char *)job.out)[N * 4], 0xA5);
        }
    free_parts(3, parts);
    free(room);
}

/* Ranks host [first[r], first[r+1]): every subtree reduced where it is hosted whole, then the
 * top. */
static void
reduce_placed(const coi_reduction *job, const int *first, int num_ranks)
{
    static unsigned char room[MAX_PARTS][LONGEST * 8];
    static result        out;
    coi_subtree          subtrees[MAX_PARTS];
    int                  n = 0;

    for (int r = 0; r < num_ranks; ++r) {
        int more = coi_tree_cut(job->num_replicas, first[r], first[r + 1], &subtrees[n]);

        CO_EXPECT_INT(coi_tree_cut(job->num_replicas, first[r], first[r + 1], NULL), more);
        for (int i = n; i < n + more; ++i) {
            coi_reduce_parts(job, 0, subtrees[i].lo, subtrees[i].hi, 0, job->num_elements, room[i]);
            subtrees[i].data = room[i];
        }
        n += more;
    }
    clear(&out);
    coi_reduce_top(job, subtrees, job->num_elements, out.data);
    CO_EXPECT_TRUE(expect_elements(job, out.data, 0, job->num_elements, "placed"));
    expect_border(&out, (size_t)job->num_elements * co_dtype_size(job->dtype));
}

CO_TEST_BARE(bits_do_not_depend_on_the_placement, "")
{
    void *parts[9];

    make_parts(CO_FLOAT32, 9, 130, parts);
    for (int n = 1; n <= 9; ++n)
        for (int a = 0; a <= n; ++a)
            for (int b = a; b <= n; ++b)
                for (int c = b; c <= n; ++c)
                    for (int op = 0; op < NUM_OPS; ++op) {
                        coi_reduction job = { (co_reduce_op)op,           CO_FLOAT32, 130, n,
                                              (const void *const *)parts, NULL };

                        reduce_placed(&job, (const int[]){ 0, a, b, c, n }, 4);
                    }
    free_parts(9, parts);
}

CO_TEST_BARE(a_hosted_interval_is_cut_into_maximal_subtrees, "")
{
    coi_subtree s[COI_MAX_SUBTREES];

    CO_EXPECT_INT(coi_tree_cut(8, 0, 8, s), 1);
    CO_EXPECT_INT(coi_tree_cut(8, 4, 8, s), 1);
    CO_EXPECT_INT(coi_tree_cut(8, 3, 3, s), 0);
    CO_EXPECT_INT(coi_tree_cut(7, 1, 6, s), 3); /* 1, [2,4), [4,6) */
    CO_EXPECT_INT(s[0].lo, 1);
    CO_EXPECT_INT(s[0].hi, 2);
    CO_EXPECT_INT(s[1].lo, 2);
    CO_EXPECT_INT(s[1].hi, 4);
    CO_EXPECT_INT(s[2].lo, 4);
    CO_EXPECT_INT(s[2].hi, 6);
    CO_EXPECT_INT(coi_tree_cut(7, 4, 7, s), 1); /* the right child of the root */
    /* The worst case of the largest tree there can be. */
    CO_EXPECT_LESS(coi_tree_cut(INT32_MAX, 1, INT32_MAX - 1, s), COI_MAX_SUBTREES + 1);
}

CO_TEST_BARE(a_subtree_is_reduced_from_any_element_on, "")
{
    static result out;
    void         *parts[5];

    make_parts(CO_INT32, 5, 600, parts);
    for (int64_t begin = 0; begin < 600; begin += 97)
        for (int64_t end = begin; end <= 600; end += 101) {
            coi_reduction job = {
                CO_REDUCE_SUM, CO_INT32, 600, 5, (const void *const *)parts, NULL
            };

            clear(&out);
            coi_reduce_parts(&job, 0, 0, 5, begin, end, out.data);
            CO_EXPECT_TRUE(expect_elements(&job, out.data, begin, end, "subtree"));
            expect_border(&out, (size_t)(end - begin) * 4);
        }
    free_parts(5, parts);
}

CO_TEST_BARE(shares_cover_every_element_once_and_are_cut_at_cache_lines, "")
{
    for (int d = 0; d < NUM_NUMERIC; ++d)
        for (int64_t n = 0; n < 300; n += 7)
            for (int shares = 1; shares <= 9; ++shares) {
                int64_t begin, end, at = 0;
                int64_t line = 64 / (int64_t)co_dtype_size(numeric[d]);

                for (int s = 0; s < shares; ++s, at = end) {
                    coi_share_range(numeric[d], n, s, shares, &begin, &end);
                    CO_EXPECT_INT(begin, at);
                    CO_EXPECT_TRUE(end >= begin && (end == n || end % line == 0));
                }
                CO_EXPECT_INT(at, n);
            }
}

/* Every half against numbers that round, overflow and vanish: the conversions of the kernels are
 * their own. */
CO_TEST_BARE(sixteen_bit_floats_are_rounded_at_every_node, "")
{
    static const float others[] = { 0.0f,  -0.0f,    1.0f,   -1.0f,    6.1e-5f,
                                    3e-8f, 65504.0f, -31.7f, INFINITY, NAN };
    static uint16_t    all[65536], other[65536], out[65536];
    const void        *parts[] = { all, other };
    const co_dtype     dtypes[] = { CO_FLOAT16, CO_BFLOAT16 };

    for (int i = 0; i < 65536; ++i)
        all[i] = (uint16_t)i;
    for (int d = 0; d < 2; ++d)
        for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); ++k)
            for (int op = 0; op < NUM_OPS; ++op) {
                coi_reduction job = { (co_reduce_op)op, dtypes[d], 65536, 2, parts, out };

                for (int i = 0; i < 65536; ++i)
                    other[i] = (uint16_t)from_float(dtypes[d], others[k]);
                coi_reduce_share(&job, 0, 1);
                CO_EXPECT_TRUE(expect_elements(&job, out, 0, 65536, "all of 16 bits"));
            }
}

CO_TEST_BARE(a_nan_in_any_part_is_in_the_minimum_and_the_maximum, "")
{
    float a[] = { NAN, 1, 1, -0.0f }, b[] = { 1, NAN, 2, 0.0f }, c[] = { 2, 2, NAN, 1 }, out[4];
    const void   *parts[] = { a, b, c };
    coi_reduction job = { CO_REDUCE_MIN, CO_FLOAT32, 4, 3, parts, out };

    coi_reduce_share(&job, 0, 1);
    CO_EXPECT_TRUE(isnan(out[0]) && isnan(out[1]) && isnan(out[2]) && out[3] == 0);
    job.op = CO_REDUCE_MAX;
    coi_reduce_share(&job, 0, 1);
    CO_EXPECT_TRUE(isnan(out[0]) && isnan(out[1]) && isnan(out[2]) && out[3] == 1);
}

CO_TEST_BARE(integers_wrap, "")
{
    int8_t        a[] = { 127, -128, 100 }, b[] = { 1, -1, 3 }, out[3];
    const void   *parts[] = { a, b };
    coi_reduction job = { CO_REDUCE_SUM, CO_INT8, 3, 2, parts, out };

    coi_reduce_share(&job, 0, 1);
    CO_EXPECT_INT(out[0], -128);
    CO_EXPECT_INT(out[1], 127);
    job.op = CO_REDUCE_PROD;
    coi_reduce_share(&job, 0, 1);
    CO_EXPECT_INT(out[2], (int8_t)44);
    job.op = CO_REDUCE_MEAN; /* integers are only summed */
    coi_reduce_share(&job, 0, 1);
    CO_EXPECT_INT(out[2], 103);
}

CO_TEST_BARE(bool_and_string_cannot_be_reduced, "")
{
    for (int d = 0; d < CO_NUM_DTYPES; ++d)
        CO_EXPECT_INT(coi_can_reduce(CO_REDUCE_SUM, (co_dtype)d),
                      co_dtype_is_integer((co_dtype)d) || co_dtype_is_floating((co_dtype)d));
    CO_EXPECT_FALSE(coi_can_reduce((co_reduce_op)NUM_OPS, CO_FLOAT32));
    CO_EXPECT_FALSE(coi_can_reduce(CO_REDUCE_SUM, (co_dtype)99));
}
