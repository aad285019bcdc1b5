/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention and its gradient, one query of one head after the other, in double.
 */
#include "ops/kernels/attention.h"
#include "ops/kernels/ref/ref.h"

#include <math.h>
#include <string.h>

static void
add(co_value *x, int64_t i, double value)
{
    coi_ref_put(x, i, coi_ref_get(x, i) + value);
}

/* Where a row of a head begins; rows and channels are those of its tensor. */
static int64_t
row_at(const coi_attention_view *v, int64_t head, int64_t row, int64_t rows, int64_t channels)
{
    return ((head / v->heads * rows + row) * v->heads + head % v->heads) * channels;
}

/* The sum of the products of n elements of x from i on, and of y from k on. */
static double
dot(const co_value *x, int64_t i, const co_value *y, int64_t k, int64_t n)
{
    double sum = 0;

    for (int64_t c = 0; c < n; ++c)
        sum += coi_ref_get(x, i + c) * coi_ref_get(y, k + c);
    return sum;
}

/* The probabilities of one query, p[num_keys]: 0 for keys that it does not see. */
static void
weigh(const coi_call *call, const coi_attention_view *v, int64_t head, int64_t query, double *p)
{
    int64_t num_seen = coi_attention_seen(v, query + 1);
    int64_t q = row_at(v, head, query, v->num_queries, v->depth);
    double  max = -INFINITY, sum = 0;

    memset(p, 0, (size_t)v->num_keys * sizeof(*p));
    for (int64_t key = 0; key < num_seen; ++key) {
        p[key] = v->scale * dot(call->in[0], q, call->in[1],
                                row_at(v, head, key, v->num_keys, v->depth), v->depth);
        max = p[key] > max ? p[key] : max;
    }
    for (int64_t key = 0; key < num_seen; ++key)
        sum += p[key] = exp(p[key] - max);
    for (int64_t key = 0; key < num_seen; ++key)
        p[key] /= sum;
}

static void
attend(coi_call *call, const coi_attention_view *v, int64_t head, int64_t query, double *p)
{
    int64_t out = row_at(v, head, query, v->num_queries, v->width);

    weigh(call, v, head, query, p);
    for (int64_t c = 0; c < v->width; ++c) {
        double sum = 0;

        for (int64_t key = 0; key < coi_attention_seen(v, query + 1); ++key)
            sum += p[key] *
                   coi_ref_get(call->in[2], row_at(v, head, key, v->num_keys, v->width) + c);
        coi_ref_put(call->out[0], out + c, sum);
    }
}

/* What one query gives to the gradients. */
static void
attend_back(coi_call *call, const coi_attention_view *v, int64_t head, int64_t query, double *p)
{
    const co_value *g = call->in[3];
    int64_t         num_seen = coi_attention_seen(v, query + 1);
    int64_t         at = row_at(v, head, query, v->num_queries, v->width);
    int64_t         q = row_at(v, head, query, v->num_queries, v->depth);
    double          mean = 0;

    weigh(call, v, head, query, p);
    for (int64_t key = 0; key < num_seen; ++key)
        mean += p[key] *
                dot(g, at, call->in[2], row_at(v, head, key, v->num_keys, v->width), v->width);
    for (int64_t key = 0; key < num_seen; ++key) {
        int64_t k = row_at(v, head, key, v->num_keys, v->depth);
        int64_t values = row_at(v, head, key, v->num_keys, v->width);
        double  slope = v->scale * p[key] * (dot(g, at, call->in[2], values, v->width) - mean);

        for (int64_t c = 0; c < v->depth; ++c) {
            add(call->out[0], q + c, slope * coi_ref_get(call->in[1], k + c));
            add(call->out[1], k + c, slope * coi_ref_get(call->in[0], q + c));
        }
        for (int64_t c = 0; c < v->width; ++c)
            add(call->out[2], values + c, p[key] * coi_ref_get(g, at + c));
    }
}

co_code
coi_ref_attention(coi_call *call)
{
    coi_attention_view v;
    coi_buffer        *p;

    if (coi_attention_is_empty(call))
        return CO_OK;
    coi_attention_view_of(call->in, call->attrs, &v);
    p = coi_buffer_alloc(call->device, (size_t)(v.num_keys + 1) * sizeof(double),
                         coi_err(call->ctx));
    if (p == NULL)
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                        "attention: no memory for the probabilities of %lld keys",
                        (long long)v.num_keys);
    for (int i = 0; i < call->num_out; ++i)
        memset(call->out[i]->u.tensor.data, 0,
               (size_t)call->out[i]->u.tensor.num_elements * coi_dtypes[call->out[i]->dtype].size);
    for (int64_t head = 0; head < v.items * v.heads; ++head)
        for (int64_t query = 0; query < v.num_queries; ++query)
            (call->num_in == 3 ? attend : attend_back)(call, &v, head, query, p->data);
    coi_buffer_unref(p);
    return CO_OK;
}
