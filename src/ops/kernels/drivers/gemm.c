/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a GEMM is cut: packing, tiles, slabs of k. The arithmetic is in
 * ops/kernels/simd/simd_gemm.c. Every decision here is a function of shape and strides.
 */
#include "ops/kernels/gemm.h"

#include "config.h"
#include "ops/engine/parallel.h"
#include "ops/kernels/kernel_selection.h"

#include <string.h>

extern const coi_gemm_kernels coi_gemm_f32_base, coi_gemm_f64_base;
#if COI_HAVE_ISA_V3
extern const coi_gemm_kernels coi_gemm_f32_v3, coi_gemm_f64_v3;
#endif
#if COI_HAVE_ISA_V4
extern const coi_gemm_kernels coi_gemm_f32_v4, coi_gemm_f64_v4;
#endif

static const coi_gemm_kernels *const all_kernels[COI_NUM_ISAS][2] = {
    [COI_ISA_BASE] = { &coi_gemm_f32_base, &coi_gemm_f64_base },
#if COI_HAVE_ISA_V3
    [COI_ISA_V3] = { &coi_gemm_f32_v3, &coi_gemm_f64_v3 },
#endif
#if COI_HAVE_ISA_V4
    [COI_ISA_V4] = { &coi_gemm_f32_v4, &coi_gemm_f64_v4 },
#endif
};

/* Packed parts take at most about this many elements, so that they stay in the L2 cache. A GEMM
 * with a larger K is computed in slabs. */
#define MAX_PACKED ((int64_t)1 << 17)
/* Panels of A that are packed together: they share cache lines where the columns of A are
 * contiguous. */
#define PACKED_PANELS 8
/* Multiply-adds of a tile that a team shares, about 10 us; up to so many tiles are made smaller for
 * that. */
#define SHARED_TILE ((int64_t)1 << 19)
#define MOST_SHARED 8

const coi_gemm_kernels *
coi_gemm_kernels_of(coi_isa isa, co_dtype dtype)
{
    return all_kernels[isa][dtype == CO_FLOAT64];
}

static int64_t
round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* The extent of nearly equal parts of `total`, each at most `limit`, in steps of `step`. One part
 * has no border that must lie at a step. */
static int64_t
even_part(int64_t total, int64_t limit, int64_t step)
{
    int64_t parts = (total + limit - 1) / limit;

    return parts < 2 ? total : round_up((total + parts - 1) / parts, step);
}

void
coi_gemm_plan_init(coi_gemm_plan *plan, const coi_gemm_kernels *kernels, coi_packing packing,
                   const coi_gemm *g)
{
    /* Field by field: clearing the whole plan first takes a tenth of a small GEMM. */
    plan->g = *g;
    plan->asked = *g;
    plan->transposed = coi_select_transposed_gemm(kernels, packing, g);
    if (plan->transposed) {
        plan->g.m = g->n;
        plan->g.n = g->m;
        plan->g.a = g->b;
        plan->g.a_row = g->b_col;
        plan->g.a_col = g->b_row;
        plan->g.b = g->a;
        plan->g.b_row = g->a_col;
        plan->g.b_col = g->a_row;
        plan->g.c_row = g->m;
    }
    coi_select_packing(kernels, packing, &plan->g, &plan->pack_a, &plan->pack_b);
    plan->pack_on_the_fly = plan->pack_b && !plan->pack_a &&
                            coi_select_on_the_fly_packing(kernels, &plan->g);
    if (plan->pack_on_the_fly)
        plan->pack_b = false;
    coi_gemm_plan_cut(plan, kernels);
}

void
coi_gemm_plan_cut(coi_gemm_plan *plan, const coi_gemm_kernels *kernels)
{
    const coi_gemm *g = &plan->g;
    int64_t         per_k = 0, rows, columns;

    if (plan->pack_a)
        per_k += round_up(g->m, kernels->mr);
    if (plan->pack_b)
        per_k += round_up(g->n, kernels->nr);
    plan->slab = g->k;
    if (per_k > 0 && g->k > MAX_PACKED / per_k) {
        plan->slab = MAX_PACKED / per_k / COI_GEMM_KC * COI_GEMM_KC;
        if (plan->slab < COI_GEMM_KC)
            plan->slab = g->k < COI_GEMM_KC ? g->k : COI_GEMM_KC;
    }
    coi_select_tile(kernels, g, plan->pack_on_the_fly, &rows, &columns);
    plan->tile_m = even_part(g->m, rows, kernels->mr);
    plan->tile_n = even_part(g->n, columns, kernels->nr);
}

static size_t
aligned_bytes(int64_t elements, const coi_gemm_kernels *kernels)
{
    return (size_t)round_up(elements * (int64_t)kernels->element_size, COI_ALIGNMENT);
}

static size_t
packed_a_bytes(const coi_gemm_plan *plan, const coi_gemm_kernels *kernels)
{
    return aligned_bytes(plan->pack_a ? round_up(plan->g.m, kernels->mr) * plan->slab : 0, kernels);
}

static size_t
packed_b_bytes(const coi_gemm_plan *plan, const coi_gemm_kernels *kernels)
{
    return aligned_bytes(plan->pack_b ? round_up(plan->g.n, kernels->nr) * plan->slab : 0, kernels);
}

size_t
coi_gemm_scratch(const coi_gemm_plan *plan, const coi_gemm_kernels *kernels)
{
    return packed_a_bytes(plan, kernels) + packed_b_bytes(plan, kernels) +
           aligned_bytes(plan->transposed ? plan->g.m * plan->g.n : 0, kernels);
}

/* What a chunk function is given. */
typedef struct job {
    const coi_gemm_plan    *plan;
    const coi_gemm_kernels *kernels;
    int64_t rows_a, packs_a; /* chunks of packing: so many rows of A each, then panels of B */
    int64_t rows, columns;   /* chunks of computing: tiles */
    bool    by_columns;      /* tiles are numbered column after column */
} job;

static void
pack_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;

    int64_t i0 = chunk * j->rows_a, m = j->plan->g.m;

    if (chunk < j->packs_a)
        j->kernels->pack_a(j->plan, i0, m - i0 < j->rows_a ? m : i0 + j->rows_a);
    else
        j->kernels->pack_b(j->plan, chunk - j->packs_a);
}

/* What follows the sums of rows [i0, i1) and columns [j0, j1) of C. */
static void
epilogue_tile(const coi_gemm *g, const coi_gemm_kernels *kernels, int64_t i0, int64_t i1,
              int64_t j0, int64_t j1)
{
    int64_t first = i0 * g->c_row + j0;

    if (g->epilogue != NULL)
        coi_epilogue_rows(g->epilogue, (char *)g->c + (size_t)first * kernels->element_size,
                          g->c_row, i1 - i0, j0, j1 - j0);
    if (g->chain != NULL)
        coi_fused_rows(g->chain, g->at + first, g->c_row, i1 - i0, j1 - j0);
}

/* Transpose rows [i0, i1) and columns [j0, j1) of the computed C into that of the caller. */
static void
transpose_tile(const coi_gemm_plan *plan, const coi_gemm_kernels *kernels, int64_t i0, int64_t i1,
               int64_t j0, int64_t j1)
{
    const coi_gemm *g = &plan->g, *asked = &plan->asked;
    size_t          size = kernels->element_size;

    kernels->transpose((const char *)g->c + (size_t)(i0 * g->c_row + j0) * size, g->c_row, i1 - i0,
                       j1 - j0, (char *)asked->c + (size_t)(j0 * asked->c_row + i0) * size,
                       asked->c_row);
}

static void
tile_chunk(void *arg, int64_t chunk)
{
    const job           *j = arg;
    const coi_gemm_plan *plan = j->plan;
    int64_t              row = j->by_columns ? chunk % j->rows : chunk / j->columns;
    int64_t              column = j->by_columns ? chunk / j->rows : chunk % j->columns;
    int64_t              i0 = row * plan->tile_m, j0 = column * plan->tile_n;
    int64_t              i1 = i0 + plan->tile_m < plan->g.m ? i0 + plan->tile_m : plan->g.m;
    int64_t              j1 = j0 + plan->tile_n < plan->g.n ? j0 + plan->tile_n : plan->g.n;

    j->kernels->tile(plan, i0, i1, j0, j1);
    if (plan->k1 < plan->g.k)
        return;
    if (plan->transposed)
        transpose_tile(plan, j->kernels, i0, i1, j0, j1);
    epilogue_tile(&plan->asked, j->kernels, plan->transposed ? j0 : i0, plan->transposed ? j1 : i1,
                  plan->transposed ? i0 : j0, plan->transposed ? i1 : j1);
}

static void
run_chunks(coi_team *team, int64_t n, int64_t work_ns, coi_chunk_fn fn, void *arg)
{
    if (team != NULL && n > 1) {
        coi_team_run_for(team, n, work_ns, fn, arg);
        return;
    }
    for (int64_t chunk = 0; chunk < n; ++chunk)
        fn(arg, chunk);
}

static int64_t
parts_of(int64_t total, int64_t part)
{
    return (total + part - 1) / part;
}

/*
 * Tiles for a team where the selected ones are few: an even number, so that two threads have the
 * same to do. Columns are cut first, since panels of them are all alike, and so are the parts of
 * threads then.
 */
static void
cut_for_team(coi_gemm_plan *plan, const coi_gemm_kernels *kernels, job *j)
{
    const coi_gemm *g = &plan->g;
    int64_t         tiles = j->rows * j->columns, wanted = g->m * g->n * g->k / SHARED_TILE;

    wanted = wanted < 2 ? 2 : wanted > MOST_SHARED ? MOST_SHARED : wanted;
    if (tiles >= MOST_SHARED || (tiles >= wanted && tiles % 2 == 0))
        return;
    if (tiles >= wanted)
        wanted = tiles + 1;
    j->by_columns = true;
    plan->tile_n = even_part(g->n, parts_of(g->n, parts_of(wanted, j->rows)), kernels->nr);
    j->columns = parts_of(g->n, plan->tile_n);
    if (j->rows * j->columns >= wanted || plan->pack_on_the_fly)
        return;
    plan->tile_m = even_part(g->m, parts_of(g->m, parts_of(wanted, j->columns)), kernels->mr);
    j->rows = parts_of(g->m, plan->tile_m);
}

void
coi_gemm_run_on(coi_gemm_plan *plan, const coi_gemm_kernels *kernels, void *scratch, coi_team *team)
{
    const coi_gemm *g = &plan->g;
    int64_t         panels_b = plan->pack_b ? (g->n + kernels->nr - 1) / kernels->nr : 0;
    job             j = { plan, kernels, PACKED_PANELS * kernels->mr, 0, 0, 0, false };

    if (g->m == 0 || g->n == 0)
        return;
    if (g->k == 0 && !g->accumulate) /* never transposed */
        for (int64_t i = 0; i < g->m; ++i)
            memset((char *)g->c + (size_t)(i * g->c_row) * kernels->element_size, 0,
                   (size_t)g->n * kernels->element_size);
    if (g->k == 0)
        epilogue_tile(g, kernels, 0, g->m, 0, g->n);
    j.packs_a = plan->pack_a ? (g->m + j.rows_a - 1) / j.rows_a : 0;
    j.rows = parts_of(g->m, plan->tile_m);
    j.columns = parts_of(g->n, plan->tile_n);
    if (team != NULL && coi_team_size(team) > 1)
        cut_for_team(plan, kernels, &j);
    plan->packed_a = scratch;
    plan->packed_b = scratch == NULL ? NULL : (char *)scratch + packed_a_bytes(plan, kernels);
    if (plan->transposed)
        plan->g.c = (char *)plan->packed_b + packed_b_bytes(plan, kernels);
    for (plan->k0 = 0; plan->k0 < g->k; plan->k0 = plan->k1) {
        int64_t depth;

        plan->k1 = g->k - plan->k0 > plan->slab ? plan->k0 + plan->slab : g->k;
        depth = plan->k1 - plan->k0;
        run_chunks(team, j.packs_a + panels_b, (g->m + g->n) * depth, pack_chunk, &j);
        run_chunks(team, j.rows * j.columns, g->m * g->n * depth / COI_PRODUCTS_PER_NS, tile_chunk,
                   &j);
    }
}

void
coi_gemm_run(coi_gemm_plan *plan, const coi_gemm_kernels *kernels, void *scratch)
{
    coi_gemm_run_on(plan, kernels, scratch, NULL);
}
