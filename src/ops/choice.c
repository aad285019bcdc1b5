/* SPDX-License-Identifier: Apache-2.0 */
/* The table of limits between kernels, and the choices by it. See choice.h. */
#include "ops/choice.h"

#include "context/context.h"

#include <stdint.h>
#include <string.h>

/*
 * Who convolves: the first row that fits kind (coi_conv2d_kind), channels and multiply-adds. Below
 * some hundred thousand multiply-adds making a primitive of oneDNN for every new shape costs more
 * than it gives.
 *
 * By instruction set: the rows were measured for v3 (Zen 4, AVX2). v4 is NOT measured, for want of
 * a processor with AVX-512: it follows the rows of v3 by rule, not by rows of its own. The baseline
 * has no row: oneDNN's kernels need more than it.
 */
typedef struct row {
    uint8_t kind;
    bool    by_onednn;
    int32_t channels; /* at most */
    int64_t work;     /* at least */
} row;

#define ANY INT32_MAX

static const row rows[] = {
    { COI_CONV2D, true, ANY, 1 << 18 },       { COI_CONV2D_INPUT, false, 1, 0 },
    { COI_CONV2D_INPUT, true, ANY, 1 << 18 }, { COI_CONV2D_FILTER, false, 1, 0 },
    { COI_CONV2D_FILTER, true, 31, 1 << 18 }, { COI_CONV2D_FILTER, false, ANY, 0 },
};

/*
 * The limits below are of shape and dtype; the instruction set comes in by `nr`, the columns of its
 * micro-kernel's tile. Measured for v3; v4 and the baseline have the same.
 */

/* Up to this many channels patches are made channel by channel. */
enum { TURNED_CHANNELS = 1 };

/* Up to this many rows of A, B is used too seldom to be worth packing. */
enum { FEW_ROWS = 24 };
/* Up to this depth filling C takes longer than reading B in place. */
enum { FEW_DEPTHS = 16 };
/* Operands of at most this many elements stay in the first-level cache whatever their strides. */
enum { FEW_ELEMENTS = 4096 };
/* From this depth on, turning the result costs less than vectors that are not filled. */
enum { TURNED_DEPTH = 8 };
/* Turning an element of A, in lanes of multiply-adds. */
enum { TURNING_LANES = 4 };
/* So many panels of B use a packed A before that pays. */
enum { FEW_PANELS = 4 };

bool
coi_choose_onednn(const coi_runtime *runtime, coi_conv2d_kind kind, co_dtype dtype,
                  const coi_conv2d *g)
{
    const char *whose = runtime->settings.convolution;

    if (dtype != CO_FLOAT32 || runtime->isa == COI_ISA_BASE || strcmp(whose, "own") == 0)
        return false;
    if (strcmp(whose, "onednn") == 0)
        return true;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
        if (rows[i].kind == kind && g->c <= rows[i].channels && coi_conv2d_work(g) >= rows[i].work)
            return rows[i].by_onednn;
    return false;
}

bool
coi_choose_turned(coi_conv2d_kind kind, co_dtype dtype, const coi_conv2d *g)
{
    return kind == COI_CONV2D_FILTER && dtype == CO_FLOAT32 && g->c <= TURNED_CHANNELS;
}

/* What a row of C costs, in lanes of multiply-adds: a panel of one vector takes as long as one and
 * a half, because it loads more. */
static int64_t
lanes_of(int64_t columns, int nr)
{
    int64_t left = columns & (nr - 1);

    return columns - left + (left == 0 ? 0 : left <= nr / 2 ? nr * 3 / 4 : nr);
}

bool
coi_choose_turned_product(int nr, coi_packing asked, const coi_gemm *g)
{
    if (!g->turnable || g->accumulate || g->k == 0)
        return false;
    if (asked != COI_PACK_BY_SHAPE)
        return asked == COI_PACK_TURNED;
    return g->n < 2 * nr && g->k >= TURNED_DEPTH &&
           g->n * lanes_of(g->m, nr) + (g->a_row == 1 ? 0 : TURNING_LANES * g->m) <
               g->m * lanes_of(g->n, nr);
}

void
coi_choose_packing(int nr, coi_packing asked, const coi_gemm *g, bool *pack_a, bool *pack_b)
{
    bool by_shape = asked == COI_PACK_BY_SHAPE || asked == COI_PACK_TURNED;
    bool both = asked == COI_PACK_BOTH;

    *pack_a = by_shape ? g->a_col != 1 && g->m > FEW_ROWS && g->n > FEW_PANELS * nr &&
                             g->m * g->k > FEW_ELEMENTS
                       : both || asked == COI_PACK_A;
    *pack_b = g->b_col != 1 || /* the kernel reads rows */
              (by_shape
                   ? g->m > FEW_ROWS && g->n > nr && g->k > FEW_DEPTHS && g->n * g->k > FEW_ELEMENTS
                   : both || asked == COI_PACK_B);
}
