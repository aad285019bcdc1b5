/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How loops over elements are written: a macro makes one function from an expression. Shared by
 * ops/kernels/simd and ops/kernels/generic.
 */
#ifndef COI_OPS_KERNELS_DEFINE_LOOPS_H
#define COI_OPS_KERNELS_DEFINE_LOOPS_H

#include "ops/kernels/loops.h"

/* p is the operand in the expression. */
#define COI_CAST_LOOP(name, from, to, expression)                                                  \
    static void name(void *restrict out, const void *restrict in, int64_t n)                       \
    {                                                                                              \
        const from *restrict x = in;                                                               \
        to *restrict z = out;                                                                      \
                                                                                                   \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            from p = x[i];                                                                         \
                                                                                                   \
            z[i] = (to)(expression);                                                               \
        }                                                                                          \
    }
#define COI_UNARY_LOOP(name, type, expression) COI_CAST_LOOP(name, type, type, expression)
/* A bool as result. */
#define COI_TEST_LOOP(name, type, expression) COI_CAST_LOOP(name, type, uint8_t, expression)

/* p and q are the operands in the expression. */
#define COI_BINARY_LOOP(name, type, result, expression)                                            \
    static void name(void *restrict out, const void *restrict a, const void *restrict b,           \
                     int64_t n, coi_pairing pairing)                                               \
    {                                                                                              \
        const type *restrict x = a;                                                                \
        const type *restrict y = b;                                                                \
        result *restrict z = out;                                                                  \
                                                                                                   \
        if (pairing == COI_PAIR_BOTH) {                                                            \
            for (int64_t i = 0; i < n; ++i) {                                                      \
                type p = x[i], q = y[i];                                                           \
                                                                                                   \
                z[i] = (result)(expression);                                                       \
            }                                                                                      \
        } else if (pairing == COI_PAIR_ONE_Y) {                                                    \
            type q = *y;                                                                           \
                                                                                                   \
            for (int64_t i = 0; i < n; ++i) {                                                      \
                type p = x[i];                                                                     \
                                                                                                   \
                z[i] = (result)(expression);                                                       \
            }                                                                                      \
        } else {                                                                                   \
            type p = *x;                                                                           \
                                                                                                   \
            for (int64_t i = 0; i < n; ++i) {                                                      \
                type q = y[i];                                                                     \
                                                                                                   \
                z[i] = (result)(expression);                                                       \
            }                                                                                      \
        }                                                                                          \
    }

#endif
