/* SPDX-License-Identifier: Apache-2.0 */
/* The table of limits between kernels, and the kernel selection by it. See kernel_selection.h. */
#include "ops/kernels/kernel_selection.h"

#include "context/context.h"
#include "ops/kernels/conv2d_pooled_grad.h"

#include <stdint.h>
#include <string.h>

/*
 * oneDNN or our own kernel: the first row decides that fits instruction set, kind
 * (coi_conv2d_kind), channels, filters and multiply-adds. Below some hundred thousand multiply-adds
 * a oneDNN primitive for every new shape costs more than it saves. The rows of AVX2 (x86-64-v3)
 * were measured on Zen 4 without AVX-512. Those of AVX-512 (x86-64-v4) were measured on Zen 4 with
 * it, the first one on Emerald Rapids. The baseline has no row: oneDNN's kernels need more than
 * that.
 */
typedef struct row {
    uint8_t isa, kind;
    bool    by_onednn;
    int32_t channels, places; /* of the filter, at most */
    int32_t filters;          /* at least */
    bool    dense;            /* strides and dilations of 1 alone */
    int64_t work;             /* at least */
} row;

#define ANY INT32_MAX

static const row rows[] = {
    { COI_ISA_V3, COI_CONV2D, true, ANY, ANY, 0, false, 1 << 18 },
    { COI_ISA_V3, COI_CONV2D_INPUT, false, 1, ANY, 0, false, 0 },
    { COI_ISA_V3, COI_CONV2D_INPUT, true, ANY, ANY, 0, false, 1 << 18 },
    { COI_ISA_V3, COI_CONV2D_FILTER, false, 1, ANY, 0, false, 0 },
    { COI_ISA_V3, COI_CONV2D_FILTER, true, 31, ANY, 0, false, 1 << 18 },
    { COI_ISA_V4, COI_CONV2D, false, 1, 25, 16, true, 0 },
    { COI_ISA_V4, COI_CONV2D, true, ANY, ANY, 0, false, 1 << 18 },
    { COI_ISA_V4, COI_CONV2D_INPUT, false, 3, ANY, 0, false, 0 },
    { COI_ISA_V4, COI_CONV2D_INPUT, true, ANY, ANY, 0, false, 1 << 18 },
    { COI_ISA_V4, COI_CONV2D_FILTER, true, ANY, ANY, 0, false, 1 << 18 },
};

/* Up to this many channels im2col is transposed: a patch is a column. */
enum { TRANSPOSED_CHANNELS = 1 };

/* Limits of GEMM by instruction set, measured on the machines of the rows above, AVX-512 on Emerald
 * Rapids too. The baseline has the limits of AVX2. */
typedef struct product_limits {
    /* Operands of at most this many elements are read in place. With 16 lanes the loop is bound by
     * arithmetic also when it reads from the L2 cache, with 8 only when it reads from L1. */
    int64_t few_elements;
    /* The cost of a panel of one vector, in quarters of a panel of two. It is half where the
     * processor multiplies one vector at once. Where it multiplies two, such a panel loads more
     * than it multiplies. */
    int half_panel;
    /* Up to this many rows one tile packs its panels of B on the fly. AVX-512 reads a panel in half
     * the time, so the trip of a packed panel through the L2 cache weighs more. */
    int on_the_fly_rows;
    /* Columns of a tile for small K. AVX-512 writes C as fast as its cache lines arrive, and whole
     * rows touch each page once. */
    int small_k_columns;
} product_limits;

/* A tile's part of A (one block of K) stays in the L2 cache. Tiles of more rows have half the
 * columns, so that the number of tiles stays. */
enum { TILE_ROWS = 72, TILE_COLUMNS = 128 };

static const product_limits limits[COI_NUM_ISAS] = {
    [COI_ISA_BASE] = { 4096, 3, TILE_ROWS, TILE_COLUMNS },
    [COI_ISA_V3] = { 4096, 3, TILE_ROWS, TILE_COLUMNS },
    [COI_ISA_V4] = { 1 << 18, 2, 2 * TILE_ROWS, 4 * TILE_COLUMNS },
};

/* Up to this many rows of A, B is read too seldom to pay for packing. */
enum { FEW_ROWS = 24 };
/* From this K on, transposing the result costs less than vectors with empty lanes. */
enum { TRANSPOSED_DEPTH = 8 };
/* The cost of transposing an element of A, in lanes of multiply-adds. */
enum { TRANSPOSING_LANES = 4 };
/* Packing A pays from more panels of B than this. */
enum { FEW_PANELS = 4 };

static bool
is_dense(const coi_conv2d *g)
{
    return g->sh == 1 && g->sw == 1 && g->dh == 1 && g->dw == 1;
}

/* oneDNN 2.6 adds elements that do not exist where a filter is larger than its image
 * (brgconv:avx512_core, 8 x 8 over 7 x 7 with 64 filters). */
static bool
is_larger_than_image(const coi_conv2d *g)
{
    return (g->kh - 1) * g->dh + 1 > g->h || (g->kw - 1) * g->dw + 1 > g->w;
}

bool
coi_select_onednn(const coi_runtime *runtime, coi_conv2d_kind kind, co_dtype dtype,
                  const coi_conv2d *g)
{
    const char *whose = runtime->settings.convolution;

    if (dtype != CO_FLOAT32 || runtime->isa == COI_ISA_BASE || strcmp(whose, "own") == 0 ||
        is_larger_than_image(g))
        return false;
    if (strcmp(whose, "onednn") == 0)
        return true;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
        if (rows[i].isa == runtime->isa && rows[i].kind == kind && g->c <= rows[i].channels &&
            g->kh * g->kw <= rows[i].places && g->oc >= rows[i].filters &&
            (!rows[i].dense || is_dense(g)) && coi_conv2d_work(g) >= rows[i].work)
            return rows[i].by_onednn;
    return false;
}

bool
coi_select_pooled_grad(coi_isa isa, co_dtype dtype, const coi_conv2d *g)
{
    int64_t most = COI_POOLED_MOST * COI_POOLED_RUN;

    return isa != COI_ISA_BASE && dtype == CO_FLOAT32 && coi_conv2d_groups(g) == 1 &&
           g->oc % COI_POOLED_LANES == 0 && g->dh == 1 && g->dw == 1 && g->kh <= most &&
           g->kw <= most && g->c <= most && coi_pooled_runs(g) * g->kh <= COI_POOLED_MOST &&
           coi_conv2d_may_pad(g);
}

bool
coi_select_transposed(coi_conv2d_kind kind, co_dtype dtype, const coi_conv2d *g)
{
    /* A strided forward pass has few patches, but would copy the whole image. */
    return (kind == COI_CONV2D_FILTER || (kind == COI_CONV2D && is_dense(g))) &&
           dtype == CO_FLOAT32 && g->c <= TRANSPOSED_CHANNELS && coi_conv2d_may_pad(g);
}

/* What a row of C costs, in lanes of multiply-adds. */
static int64_t
lanes_of(const coi_gemm_kernels *kernels, int64_t columns)
{
    int64_t nr = kernels->nr, left = columns & (nr - 1);
    int     half = limits[kernels->isa].half_panel;

    return columns - left + (left == 0 ? 0 : left <= nr / 2 ? nr / 4 * half : nr);
}

bool
coi_select_transposed_gemm(const coi_gemm_kernels *kernels, coi_packing asked, const coi_gemm *g)
{
    if (!g->may_transpose || g->accumulate || g->k == 0)
        return false;
    if (asked != COI_PACK_BY_SHAPE)
        return asked == COI_PACK_TRANSPOSED;
    return g->n < 2 * kernels->nr && g->k >= TRANSPOSED_DEPTH &&
           g->n * lanes_of(kernels, g->m) + (g->a_row == 1 ? 0 : TRANSPOSING_LANES * g->m) <
               g->m * lanes_of(kernels, g->n);
}

void
coi_select_packing(const coi_gemm_kernels *kernels, coi_packing asked, const coi_gemm *g,
                   bool *pack_a, bool *pack_b)
{
    int64_t few = limits[kernels->isa].few_elements;
    bool    by_shape = asked == COI_PACK_BY_SHAPE || asked == COI_PACK_TRANSPOSED;
    bool    both = asked == COI_PACK_BOTH;

    *pack_a = by_shape ? g->a_col != 1 && g->m > FEW_ROWS && g->n > FEW_PANELS * kernels->nr &&
                             g->m * g->k > few
                       : both || asked == COI_PACK_A;
    *pack_b = g->b_col != 1 || /* the kernel reads rows */
              (by_shape ? g->m > FEW_ROWS && g->n > kernels->nr && g->k > COI_GEMM_SMALL_K &&
                              g->n * g->k > few
                        : both || asked == COI_PACK_B);
}

bool
coi_select_on_the_fly_packing(const coi_gemm_kernels *kernels, const coi_gemm *g)
{
    return g->m <= (g->k > COI_GEMM_SMALL_K ? limits[kernels->isa].on_the_fly_rows : TILE_ROWS);
}

void
coi_select_tile(const coi_gemm_kernels *kernels, const coi_gemm *g, bool on_the_fly, int64_t *m,
                int64_t *n)
{
    bool taller = on_the_fly && g->m > TILE_ROWS, small_k = g->k <= COI_GEMM_SMALL_K && !on_the_fly;

    *m = taller ? limits[kernels->isa].on_the_fly_rows : TILE_ROWS;
    *n = taller ? TILE_COLUMNS / 2 : small_k ? limits[kernels->isa].small_k_columns : TILE_COLUMNS;
}
