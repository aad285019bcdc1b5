/* SPDX-License-Identifier: Apache-2.0 */
/* See compute_type.h. A compute type holds every value of the dtypes that it serves, so only the
 * conversion back can lose bits. */
#include "ops/kernels/compute_type.h"

const coi_compute_type_entry coi_compute_types[CO_NUM_DTYPES] = {
    [CO_BOOL] = { COI_I32, CO_INT32 },       [CO_INT8] = { COI_I32, CO_INT32 },
    [CO_INT16] = { COI_I32, CO_INT32 },      [CO_INT32] = { COI_I32, CO_INT32 },
    [CO_INT64] = { COI_I64, CO_INT64 },      [CO_UINT8] = { COI_I32, CO_INT32 },
    [CO_UINT16] = { COI_I32, CO_INT32 },     [CO_UINT32] = { COI_I64, CO_INT64 },
    [CO_UINT64] = { COI_U64, CO_UINT64 },    [CO_FLOAT16] = { COI_F32, CO_FLOAT32 },
    [CO_BFLOAT16] = { COI_F32, CO_FLOAT32 }, [CO_FLOAT32] = { COI_F32, CO_FLOAT32 },
    [CO_FLOAT64] = { COI_F64, CO_FLOAT64 },
};
