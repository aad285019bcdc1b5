/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_hot.
 */
#include "ops/kernels/gather.h"

#include "ops/engine/op.h"
#include "ops/kernels/strided_copy.h"

#include <string.h>

co_code
coi_one_hot_run(coi_call *call)
{
    const coi_one_hot_attrs *attrs = call->attrs;
    co_value                *out = call->out[0];
    size_t                   size = coi_dtypes[out->dtype].size;
    int64_t    axis = attrs->axis < 0 ? attrs->axis + out->ndim : attrs->axis, inner = 1;
    coi_scalar on_value = coi_one_hot_on(attrs);
    char       on[8], off[8];

    coi_scalar_store(&on_value, (co_dtype)out->dtype, on);
    coi_scalar_store(&attrs->off_value, (co_dtype)out->dtype, off);
    coi_fill_elements(out->u.tensor.data, out->u.tensor.num_elements, off, size);
    for (int64_t d = axis + 1; d < out->ndim; ++d)
        inner *= out->u.tensor.dims[d];
    for (int64_t i = 0; i < call->in[0]->u.tensor.num_elements; ++i) {
        int64_t index = coi_index_at(call->in[0], i);

        if (index >= 0 && index < attrs->depth) /* others leave a row of off_value */
            memcpy(COI_OUT(call, 0, char) +
                       (size_t)((i / inner * attrs->depth + index) * inner + i % inner) * size,
                   on, size);
    }
    return CO_OK;
}
