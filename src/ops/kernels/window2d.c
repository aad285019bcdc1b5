/* SPDX-License-Identifier: Apache-2.0 */
/* What the attributes of convolution and pooling say of their windows. */
#include "ops/kernels/window2d.h"

co_code
coi_read_pair(coi_call *call, const char *name, const coi_ints *ints, int64_t *h, int64_t *w)
{
    const int64_t *at = ints->at + (ints->n == 4);

    *h = *w = 1;
    if (ints->n < 0)
        return CO_OK;
    if (ints->n == 4 && (at[-1] != 1 || at[2] != 1))
        return coi_invalid(call, "%s[%d] is %lld; for batch and channels it must be 1", name,
                           at[-1] != 1 ? 0 : 3, (long long)at[at[-1] != 1 ? -1 : 2]);
    if (ints->n != 1 && ints->n != 2 && ints->n != 4)
        return coi_invalid(call,
                           "%s has %d number%s; give 1, or 2, for height and width, or 1, h, w, 1",
                           name, (int)ints->n, COI_S(ints->n));
    *h = at[0];
    *w = at[ints->n > 1];
    if (*h < 1 || *w < 1 || *h >= COI_WINDOW_LIMIT || *w >= COI_WINDOW_LIMIT)
        return coi_invalid(call, "%s are %lld and %lld; both must be between 1 and 2^31", name,
                           (long long)*h, (long long)*w);
    return CO_OK;
}

co_code
coi_check_fit(coi_call *call, int64_t oh, int64_t ow, int64_t kh, int64_t kw, int64_t h, int64_t w)
{
    if (oh >= 0 && ow >= 0)
        return CO_OK;
    return coi_invalid(
        call, "a window of %lld x %lld is too large for %lld x %lld; make it smaller, or pad x",
        (long long)kh, (long long)kw, (long long)h, (long long)w);
}

void
coi_warn_no_window(const coi_call *call, int64_t kh, int64_t kw, int64_t h, int64_t w)
{
    if (call->in[0]->u.tensor.num_elements > 0)
        coi_log_line(
            &call->ctx->runtime->log, CO_LOG_WARNING,
            "%s: no window of %lld x %lld fits in %lld x %lld, so the result is empty; use a "
            "smaller window, or the padding SAME",
            call->op->name, (long long)kh, (long long)kw, (long long)h, (long long)w);
}
