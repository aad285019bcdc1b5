/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epilogues of most layers, a bias alone and a bias with relu, in one pass over rows of
 * float. Each element takes the operations of add and relu, so the bits are theirs.
 */
#include "ops/kernels/epilogue.h"
#include "ops/kernels/simd/vector.h"

/* Rows at a time, which stay in the L1 cache while vector after vector of their columns is
 * taken: the bias of a vector is loaded once for all of them. */
enum { ROWS = 64 };

/* max(0, x) gives x where x is NaN or -0; adding 0 turns -0 into 0. */
COI_INLINE vec_f32
finished(vec_f32 x, vec_f32 bias, bool is_relu)
{
    vec_f32 sum = add_f32(x, bias);

    return is_relu ? add_f32(max_f32(zero_f32(), sum), zero_f32()) : sum;
}

COI_INLINE void
epilogue_block(float *c, int64_t stride, int64_t rows, const float *bias, int64_t columns,
               bool is_relu)
{
    for (int64_t j = 0; j < columns; j += LANES_f32) {
        vec_f32 b = load_f32(bias + j);

        for (int64_t i = 0; i < rows; ++i)
            store_f32(c + i * stride + j, finished(load_f32(c + i * stride + j), b, is_relu));
    }
}

#define DEFINE_EPILOGUE(name, is_relu)                                                             \
    void COI_PER_ISA(name)(void *c, int64_t stride, int64_t rows, const void *bias,                \
                           int64_t columns)                                                        \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i += ROWS)                                                   \
            epilogue_block((float *)c + i * stride, stride, rows - i < ROWS ? rows - i : ROWS,     \
                           bias, columns, is_relu);                                                \
    }
DEFINE_EPILOGUE(coi_epilogue_bias, false)
DEFINE_EPILOGUE(coi_epilogue_relu, true)
