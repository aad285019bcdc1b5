/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution: kernel selection, the cut over images, partial sums. Kernels: oneDNN
 * (ops/kernels/onednn) for large float32 convolutions where it is built in, im2col and GEMM
 * (conv2d_im2col.c) otherwise, sums over channels for groups (conv2d_groups.c).
 */
#include "ops/kernels/conv2d.h"

#include "config.h"
#include "ops/engine/op.h"
#include "ops/engine/parallel.h"
#include "ops/kernels/kernel_selection.h"
#if COI_HAVE_ONEDNN
#include "ops/kernels/onednn/onednn.h"
#endif

#include <string.h>

coi_conv2d_cut
coi_conv2d_cut_of(coi_conv2d_kind kind, const coi_conv2d *g)
{
    int64_t        enough = COI_PARALLEL_IMAGES, weights = g->kh * g->kw * g->ic * g->oc;
    int64_t        per_image = coi_conv2d_work(g) / (g->n > 0 ? g->n : 1);
    int64_t        max_chunks = kind == COI_CONV2D_FILTER ? 16 : 64;
    coi_conv2d_cut cut;

    if (kind == COI_CONV2D_FILTER && weights > 512)
        enough = weights < 4096 ? weights * 4096 : COI_PARALLEL_FILTER;
    cut.images = per_image >= enough ? 1 : enough / (per_image > 0 ? per_image : 1);
    if (cut.images * max_chunks < g->n)
        cut.images = (g->n + max_chunks - 1) / max_chunks;
    if (cut.images > g->n)
        cut.images = g->n;
    cut.chunks = cut.images > 0 ? (g->n + cut.images - 1) / cut.images : 0;
    return cut;
}

typedef struct partials {
    const char *from;
    char       *to;
    int64_t     chunks, count;
    bool        is_double;
} partials;

enum { SUM_CHUNK = 16384 };

static void
sum_chunk(void *arg, int64_t chunk)
{
    const partials *p = arg;
    int64_t         first = chunk * SUM_CHUNK, last = first + SUM_CHUNK;

    if (last > p->count)
        last = p->count;
    if (p->is_double) {
        const double *from = (const double *)p->from;
        double       *to = (double *)p->to;

        if (to != from)
            memcpy(to + first, from + first, (size_t)(last - first) * sizeof(*to));
        for (int64_t part = 1; part < p->chunks; ++part)
            for (int64_t i = first; i < last; ++i)
                to[i] += from[part * p->count + i];
    } else {
        const float *from = (const float *)p->from;
        float       *to = (float *)p->to;

        if (to != from)
            memcpy(to + first, from + first, (size_t)(last - first) * sizeof(*to));
        for (int64_t part = 1; part < p->chunks; ++part)
            for (int64_t i = first; i < last; ++i)
                to[i] += from[part * p->count + i];
    }
}

void
coi_conv2d_sum_partials(coi_call *call, co_dtype dtype, const void *sums, int64_t chunks,
                        int64_t count, void *out)
{
    partials p = { sums, out, chunks, count, dtype == CO_FLOAT64 };

    coi_parallel(call, (count + SUM_CHUNK - 1) / SUM_CHUNK, sum_chunk, &p);
}

static coi_conv2d_kind
kind_of(const coi_call *call)
{
    return (coi_conv2d_kind)call->op->kind;
}

/* Whether a bias comes behind, and with it an activation. */
static bool
has_epilogue(const coi_call *call)
{
    return call->num_in > COI_BIAS;
}
static int32_t
activation_of(const coi_call *call)
{
    return ((const coi_conv2d_attrs *)call->attrs)->activation;
}

co_code
coi_conv2d_ref(coi_call *call)
{
    coi_conv2d_kind kind = kind_of(call);
    coi_conv2d      g;
    co_code         rc = coi_conv2d_read(call, kind, &g);

    if (rc == CO_OK)
        coi_ref_conv2d(kind, (co_dtype)call->out[0]->dtype, &g, call->in[0]->u.tensor.data,
                       call->in[1]->u.tensor.data, call->out[0]->u.tensor.data);
    return rc == CO_OK && has_epilogue(call) ? coi_ref_epilogue(call, activation_of(call)) : rc;
}

/* The epilogue, if there is one, for all of the output. */
static co_code
epilogue_all(const coi_call *call, const coi_conv2d *g, const coi_epilogue *epilogue)
{
    if (epilogue != NULL)
        coi_epilogue_rows(epilogue, call->out[0]->u.tensor.data, g->oc, g->n * g->oh * g->ow, 0,
                          g->oc);
    return CO_OK;
}

/* For COHORT_LOG=debug: the selected kernel, after the line of the operator. */
static void
say(const coi_call *call, const char *who)
{
    if ((call->ctx->special & COI_SPECIAL_LOG) != 0)
        coi_log_line(&call->ctx->runtime->log, CO_LOG_DEBUG, "%s: by %s", call->op->name, who);
}

co_code
coi_conv2d_run(coi_call *call)
{
    coi_conv2d_kind kind = kind_of(call);
    coi_epilogue    room, *epilogue = has_epilogue(call) ? &room : NULL;
    co_dtype        dtype = (co_dtype)call->out[0]->dtype;
    const void     *a = call->in[0]->u.tensor.data, *b = call->in[1]->u.tensor.data;
    void           *out = call->out[0]->u.tensor.data;
    coi_conv2d      g;
    co_code         rc = coi_conv2d_read(call, kind, &g);

    if (rc != CO_OK)
        return rc;
    if (epilogue != NULL)
        coi_epilogue_of(call, activation_of(call), epilogue);
    if (coi_conv2d_work(&g) == 0) {
        memset(out, 0, coi_tensor_nbytes(call->out[0]));
        return epilogue_all(call, &g, epilogue);
    }
    if (coi_conv2d_groups(&g) > 1) {
        say(call, "own sums over the places of the filter");
        coi_conv2d_groups_run(call, kind, dtype, &g, a, b, out);
        return epilogue_all(call, &g, epilogue);
    }
#if COI_HAVE_ONEDNN
    if (coi_select_onednn(call->ctx->runtime, kind, dtype, &g)) {
        bool done;

        rc = coi_onednn_conv2d(call, kind, &g, a, b, out, epilogue, &done);
        if (rc != CO_OK || done)
            return rc;
    }
#endif
    say(call, "own im2col and GEMM");
    return coi_conv2d_gemm(call, kind, dtype, &g, a, b, out, epilogue);
}
