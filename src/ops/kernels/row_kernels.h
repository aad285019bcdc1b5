/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels over rows of `dim` elements, written as vectors: of layer norm, and of cross entropy with
 * labels that are probabilities.
 */
#ifndef COI_OPS_KERNELS_ROW_KERNELS_H
#define COI_OPS_KERNELS_ROW_KERNELS_H

#include "config.h"
#include "value/value.h"

/* What layer norm keeps of a row: the mean, rounded; what it lost in rounding; and 1 /
 * sqrt(variance + epsilon). */
enum { COI_NORM_STATISTICS = 3 };

typedef struct coi_row_kernels {
    /* y = gamma (x - mean) / sqrt(variance + epsilon) + beta, and the statistics of each row. */
    void (*norm)(const void *x, const void *gamma, const void *beta, void *y, void *statistics,
                 int64_t num_rows, int64_t dim, double epsilon);
    /* The gradient of x from that of y, g; those of gamma and beta, summed over the rows. */
    void (*norm_grad)(const void *x, const void *gamma, const void *g, const void *statistics,
                      void *dx, void *dgamma, void *dbeta, int64_t num_rows, int64_t dim);
    /* sum(labels (log - (x - max))) of each row, in the place of its log. */
    void (*losses)(const void *labels, const void *x, const void *max, void *losses,
                   int64_t num_rows, int64_t dim);
    /* y -= g labels, with one g for a row. */
    void (*take_labels)(const void *labels, const void *g, void *y, int64_t num_rows, int64_t dim);
} coi_row_kernels;

extern const coi_row_kernels coi_rows_f64_once, coi_rows_f32_base, coi_rows_f32_v3;

/* CO_FLOAT32 or CO_FLOAT64. */
static inline const coi_row_kernels *
coi_row_kernels_of(coi_isa isa, co_dtype dtype)
{
    if (dtype == CO_FLOAT64)
        return &coi_rows_f64_once;
#if COI_HAVE_ISA_V3
    if (isa >= COI_ISA_V3)
        return &coi_rows_f32_v3;
#endif
    (void)isa;
    return &coi_rows_f32_base;
}

#endif
