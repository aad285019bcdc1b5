/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The geometry of a convolution, NHWC with a filter of HWIO, and the kernels that its three
 * operators choose from. The three are one bilinear map and its two transposes, so each is the
 * gradient of the others:
 *
 *     conv2d(x, w) = y        backprop_input(w, dy) = dx        backprop_filter(x, dy) = dw
 */
#ifndef COI_OPS_KERNELS_CONV2D_H
#define COI_OPS_KERNELS_CONV2D_H

#include "ops/kernels/epilogue.h"
#include "ops/engine/op.h"

typedef struct coi_conv2d_attrs {
    coi_ints strides, dilations; /* height, width; not given: 1, 1 */
    int32_t  padding;            /* co_padding */
    coi_ints explicit_paddings;  /* top, bottom, left, right; or that with a pair for N before and
                                    one for C behind */
    coi_ints sizes;              /* backprop: the shape of the result */
    int32_t  activation;         /* conv2d_bias: co_activation */
} coi_conv2d_attrs;

typedef struct coi_conv2d {
    int64_t n, h, w, c;     /* input */
    int64_t kh, kw, ic, oc; /* filter; c / ic groups */
    int64_t oh, ow;         /* output */
    int64_t sh, sw, dh, dw; /* strides, dilations */
    int64_t top, bottom, left, right;
} coi_conv2d;

static inline int64_t
coi_conv2d_groups(const coi_conv2d *g)
{
    return g->c / g->ic;
}
/* Multiply-adds of any of the three. */
static inline int64_t
coi_conv2d_work(const coi_conv2d *g)
{
    return g->n * g->oh * g->ow * g->kh * g->kw * g->ic * g->oc;
}

/* The three operators. A kernel takes two inputs in the order of its operator and writes all of the
 * output. */
typedef enum coi_conv2d_kind {
    COI_CONV2D = 0,
    COI_CONV2D_INPUT,
    COI_CONV2D_FILTER
} coi_conv2d_kind;

/* The geometry for input and filter of these four dimensions each, which may be unknown, and the
 * attributes of the call; the shape of the output follows. */
co_code coi_conv2d_geometry(coi_call *call, const int64_t *x, const int64_t *w, coi_conv2d *g);
/* The geometry of a call of an operator of this kind, from its first two operands and its
 * attributes. */
co_code coi_conv2d_read(coi_call *call, coi_conv2d_kind kind, coi_conv2d *g);
/* The same with other names for the attribute `sizes` and the second operand, in errors. */
co_code coi_conv2d_read_named(coi_call *call, coi_conv2d_kind kind, const char *sizes,
                              const char *result, coi_conv2d *g);

/* The kernels of the three operators, and of conv2d_bias. */
co_code coi_conv2d_run(coi_call *call);
co_code coi_conv2d_ref(coi_call *call);

/* Plain loops, float32 and float64, any groups. */
void coi_ref_conv2d(coi_conv2d_kind kind, co_dtype dtype, const coi_conv2d *g, const void *a,
                    const void *b, void *out);

/* Any number of groups, float32 and float64; the bits of the plain loops. The convolution has work
 * to do. */
void coi_conv2d_groups_run(coi_call *call, coi_conv2d_kind kind, co_dtype dtype,
                           const coi_conv2d *g, const void *a, const void *b, void *out);

/*
 * How a kernel spreads a convolution over the batch: chunks of `images` images. A function of the
 * shape alone. The filter's gradient has a partial sum per chunk, added in order of chunks at the
 * end.
 */
typedef struct coi_conv2d_cut {
    int64_t images, chunks;
} coi_conv2d_cut;
coi_conv2d_cut coi_conv2d_cut_of(coi_conv2d_kind kind, const coi_conv2d *g);
static inline int64_t
coi_conv2d_chunk_images(const coi_conv2d *g, const coi_conv2d_cut *cut, int64_t chunk)
{
    int64_t left = g->n - chunk * cut->images;

    return left < cut->images ? left : cut->images;
}
/* out[i] = sum over chunks of sums[chunk * count + i], in order, on the call's workers. */
void coi_conv2d_sum_partials(coi_call *call, co_dtype dtype, const void *sums, int64_t chunks,
                             int64_t count, void *out);

/* An image with its padding: `rows` rows of `pitch` elements, for so many rows of the output. */
typedef struct coi_padded {
    int64_t pitch, rows;
} coi_padded;
coi_padded coi_conv2d_padded(const coi_conv2d *g, int64_t out_rows);
/* Whether such a copy is not much larger than the image. Paddings may be billions, as strides may,
 * and their product more than there are addresses. */
bool coi_conv2d_may_pad(const coi_conv2d *g);
/* The image rows under output rows from `first` on. */
void coi_conv2d_pad_rows(const coi_conv2d *g, const float *image, int64_t first,
                         const coi_padded *p, float *to);

/* im2col and GEMM; float32 and float64, one group. Only the forward convolution has an epilogue. */
co_code coi_conv2d_gemm(coi_call *call, coi_conv2d_kind kind, co_dtype dtype, const coi_conv2d *g,
                        const void *a, const void *b, void *out, const coi_epilogue *epilogue);

#endif
