/* SPDX-License-Identifier: Apache-2.0 */
/* The table of limits between kernels, and the choices by it. See choice.h. */
#include "ops/choice.h"

#include "context/context.h"

#include <stdint.h>
#include <string.h>

/*
 * Who convolves: the first row that fits kind (coi_conv2d_kind), channels and multiply-adds. Below some hundred thousand multiply-adds
 * making a primitive of oneDNN for every new shape costs more than it gives.
 *
 * By instruction set: the rows were measured for v3 (Zen 4, AVX2). v4 is NOT measured, for want of a processor with AVX-512: it follows the rows
 * of v3 by rule, not by rows of its own. The baseline has no row: oneDNN's kernels need more than it.
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
 * The limits below are of shape and dtype; the instruction set comes in by `nr`, the columns of its micro-kernel's tile. Measured for v3; v4 and
 * the baseline have the same.
 */

/* Up to this many channels patches are made channel by channel. */
enum { TURNED_CHANNELS = 1 };

/* Up to this many rows of A, B is used too seldom to be worth packing. */
enum { FEW_ROWS = 24 };
/* Operands of at most this many elements stay in the first-level cache whatever their strides. */
enum { FEW_ELEMENTS = 4096 };
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

void
coi_choose_packing(int nr, const coi_gemm *g, bool *pack_a, bool *pack_b)
{
    *pack_a = g->a_col != 1 && g->n > FEW_PANELS * nr && g->m * g->k > FEW_ELEMENTS;
    *pack_b = g->b_col != 1 || (g->m > FEW_ROWS && g->n > nr && g->n * g->k > FEW_ELEMENTS);
}
