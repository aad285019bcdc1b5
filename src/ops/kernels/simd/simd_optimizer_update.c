/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An optimizer's update of one variable, in one pass over its memory. No multiply-adds are fused,
 * so every instruction set gives the same bits. The formulas are in ops/kernels/optimizer_update.h,
 * the loops in optimizer_update_body.h, which is read once for each dtype.
 */
#include "ops/kernels/optimizer_update.h"
#include "ops/kernels/simd/simd.h"

#include "base/plain_math.h"

#include <math.h>

#define T         f32
#define REAL      float
#define ROOT      sqrtf
#define MAGNITUDE fabsf
#include "ops/kernels/simd/optimizer_update_body.h"
#undef T
#undef REAL
#undef ROOT
#undef MAGNITUDE

#define T         f64
#define REAL      double
#define ROOT      sqrt
#define MAGNITUDE fabs
#include "ops/kernels/simd/optimizer_update_body.h"

#define BOTH(name)                                                                                 \
    {                                                                                              \
        name##_f32, name##_f64                                                                     \
    }

const coi_updates COI_PER_ISA(coi_updates) = {
    .update = { [COI_SGD_PLAIN] = BOTH(sgd_plain),
                [COI_SGD_MOMENTUM] = BOTH(sgd_momentum),
                [COI_SGD_NESTEROV] = BOTH(sgd_nesterov),
                [COI_ADAM] = BOTH(adam),
                [COI_ADAM_AMSGRAD] = BOTH(adam_amsgrad),
                [COI_RMSPROP] = BOTH(rmsprop),
                [COI_RMSPROP_MOMENTUM] = BOTH(rmsprop_momentum),
                [COI_RMSPROP_CENTERED] = BOTH(rmsprop_centered),
                [COI_RMSPROP_CENTERED_MOMENTUM] = BOTH(rmsprop_centered_momentum),
                [COI_ADAGRAD] = BOTH(adagrad),
                [COI_ADADELTA] = BOTH(adadelta),
                [COI_ADAMAX] = BOTH(adamax),
                [COI_NADAM] = BOTH(nadam),
                [COI_LION] = BOTH(lion),
                [COI_FTRL_ROOT] = BOTH(ftrl_root),
                [COI_FTRL] = BOTH(ftrl) },
    .clip = BOTH(clip),
    .decay = BOTH(decay),
    .average = BOTH(average),
    .is_finite = BOTH(is_finite),
};
