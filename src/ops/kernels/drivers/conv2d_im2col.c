/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution by im2col and GEMM: the patch under each output pixel becomes a row of kh * kw * c
 * numbers ("patches"), a few output rows at a time, and then
 *
 *     y = patches w
 *     dw = patches^T dy, summed over pixels
 *     patches = dy w^T, added back into dx
 *
 * With one channel, forward and for dw, a patch is a column instead: such columns are made by
 * copying lines.
 *
 * Images of a chunk are done one after the other on one thread. 1 x 1 filters with stride 1 need no
 * im2col: the input is the matrix of patches.
 */
#include "ops/kernels/kernel_selection.h"
#include "ops/kernels/conv2d.h"
#include "ops/kernels/gemm.h"

#include <string.h>

/* Elements of one block of patches: half of an L2 cache. */
#define BLOCK_ELEMENTS ((int64_t)1 << 16)

typedef struct job {
    coi_conv2d_kind         kind;
    const coi_conv2d       *g;
    coi_conv2d_cut          cut;
    const coi_gemm_kernels *kernels;
    co_device              *device;
    size_t                  size;  /* of an element */
    int64_t                 depth; /* kh * kw * c */
    int64_t                 rows;  /* output rows in a block */
    bool                    is_direct;
    bool                    is_transposed; /* patches are columns */
    const coi_epilogue     *epilogue;
    const char             *a, *b;
    char                   *out; /* for the filter: partial sums, one after the other */
    atomic_bool             no_memory;
} job;

static bool
is_direct(const coi_conv2d *g)
{
    return g->kh == 1 && g->kw == 1 && g->sh == 1 && g->sw == 1 && g->top == 0 && g->bottom == 0 &&
           g->left == 0 && g->right == 0;
}

/* One row of a patch: kw pixels of image row `row` (NULL: outside the image) from column ix on. */
static void
gather_row(const job *j, const char *row, int64_t ix, char *to)
{
    const coi_conv2d *g = j->g;
    size_t            pixel = (size_t)g->c * j->size;

    if (row == NULL) {
        memset(to, 0, (size_t)g->kw * pixel);
        return;
    }
    if (g->dw == 1 && ix >= 0 && ix + g->kw <= g->w) {
        memcpy(to, row + (size_t)ix * pixel, (size_t)g->kw * pixel);
        return;
    }
    for (int64_t kx = 0; kx < g->kw; ++kx, ix += g->dw, to += pixel) {
        if (ix >= 0 && ix < g->w)
            memcpy(to, row + (size_t)ix * pixel, pixel);
        else
            memset(to, 0, pixel);
    }
}

/* im2col of output rows [first, last) of an image. */
static void
gather(const job *j, const char *image, int64_t first, int64_t last, char *patches)
{
    const coi_conv2d *g = j->g;
    size_t            line = (size_t)(g->w * g->c) * j->size;
    size_t            patch_row = (size_t)(g->kw * g->c) * j->size;

    for (int64_t oy = first; oy < last; ++oy)
        for (int64_t ox = 0; ox < g->ow; ++ox)
            for (int64_t ky = 0; ky < g->kh; ++ky, patches += patch_row) {
                int64_t iy = oy * g->sh - g->top + ky * g->dh;

                gather_row(j, iy < 0 || iy >= g->h ? NULL : image + (size_t)iy * line,
                           ox * g->sw - g->left, patches);
            }
}

/*
 * Transposed im2col, for images and filters with one channel: a row of the matrix belongs to one
 * element of the filter and runs along the output pixels, which are neighbours in the image too.
 * The image comes with its padding, so that none of them is outside. Copies of whole vectors go
 * over what the next line of patches begins with; both buffers have room for one more.
 */
enum { COPIED = 8 };

coi_padded
coi_conv2d_padded(const coi_conv2d *g, int64_t out_rows)
{
    return (coi_padded){ (g->w + g->left + g->right) * g->c,
                         (out_rows - 1) * g->sh + (g->kh - 1) * g->dh + 1 };
}

bool
coi_conv2d_may_pad(const coi_conv2d *g)
{
    coi_padded p = coi_conv2d_padded(g, g->oh);
    int64_t    image = g->h * g->w * g->c;

    return image < INT64_MAX / 8 && /* of an empty batch */
           (p.rows < 1 || p.pitch <= (4 * image + BLOCK_ELEMENTS) / p.rows);
}

void
coi_conv2d_pad_rows(const coi_conv2d *g, const float *image, int64_t first, const coi_padded *p,
                    float *to)
{
    for (int64_t i = 0; i < p->rows; ++i, to += p->pitch) {
        int64_t iy = first * g->sh - g->top + i, line = g->w * g->c;

        memset(to, 0, (size_t)p->pitch * sizeof(*to));
        if (iy >= 0 && iy < g->h)
            memcpy(to + g->left * g->c, image + iy * line, (size_t)line * sizeof(*to));
    }
}

static void
gather_transposed(const job *j, const float *image, int64_t first, int64_t last, float *to)
{
    const coi_conv2d *g = j->g;
    coi_padded        p = coi_conv2d_padded(g, last - first);
    float            *from = to + j->depth * (last - first) * g->ow + COPIED;
    int64_t           step = g->sw * g->c;

    coi_conv2d_pad_rows(g, image, first, &p, from);
    for (int64_t at = 0; at < j->depth; ++at) {
        int64_t      ky = at / g->c / g->kw, kx = at / g->c % g->kw;
        const float *line = from + ky * g->dh * p.pitch + kx * g->dw * g->c + at % g->c;

        for (int64_t oy = first; oy < last; ++oy, to += g->ow, line += g->sh * p.pitch)
            if (step == 1)
                for (int64_t ox = 0; ox < g->ow; ox += COPIED)
                    memcpy(to + ox, line + ox, COPIED * sizeof(*to));
            else
                for (int64_t ox = 0; ox < g->ow; ++ox)
                    to[ox] = line[ox * step];
    }
}

/* Elements of one block of patches and of the padded image that it is copied from. */
static int64_t
patch_elements(const job *j)
{
    coi_padded p = coi_conv2d_padded(j->g, j->rows);

    return j->is_direct ? 0
                        : j->rows * j->g->ow * j->depth +
                              (j->is_transposed ? p.pitch * p.rows + 2 * COPIED : 0);
}

/* Four at a time, all read before any is written, so that the compiler makes a vector of them. */
#define ADD_ELEMENTS(name, type)                                                                   \
    static void name(type *to, const type *from, int64_t n)                                        \
    {                                                                                              \
        int64_t i = 0;                                                                             \
                                                                                                   \
        for (; i + 4 <= n; i += 4) {                                                               \
            type a = to[i] + from[i], b = to[i + 1] + from[i + 1];                                 \
            type c = to[i + 2] + from[i + 2], d = to[i + 3] + from[i + 3];                         \
                                                                                                   \
            to[i] = a;                                                                             \
            to[i + 1] = b;                                                                         \
            to[i + 2] = c;                                                                         \
            to[i + 3] = d;                                                                         \
        }                                                                                          \
        for (; i < n; ++i)                                                                         \
            to[i] += from[i];                                                                      \
    }
ADD_ELEMENTS(add_floats, float)
ADD_ELEMENTS(add_doubles, double)

static void
add_elements(const job *j, char *to, const char *from, int64_t n)
{
    if (j->size == sizeof(double))
        add_doubles((double *)(void *)to, (const double *)(const void *)from, n);
    else
        add_floats((float *)(void *)to, (const float *)(const void *)from, n);
}

/* One row of a patch into kw pixels of an image row, from column ix on; those outside are left
 * out. Without dilation the pixels are neighbours. */
static void
scatter_row(const job *j, char *row, int64_t ix, const char *from)
{
    const coi_conv2d *g = j->g;
    size_t            pixel = (size_t)g->c * j->size;

    if (g->dw == 1) {
        int64_t first = ix < 0 ? -ix : 0, last = ix + g->kw > g->w ? g->w - ix : g->kw;

        if (first < last)
            add_elements(j, row + (size_t)(ix + first) * pixel, from + (size_t)first * pixel,
                         (last - first) * g->c);
        return;
    }
    for (int64_t kx = 0; kx < g->kw; ++kx, ix += g->dw, from += pixel)
        if (ix >= 0 && ix < g->w)
            add_elements(j, row + (size_t)ix * pixel, from, g->c);
}

/* col2im: add patches into the image. */
static void
scatter(const job *j, char *image, int64_t first, int64_t last, const char *patches)
{
    const coi_conv2d *g = j->g;
    size_t            line = (size_t)(g->w * g->c) * j->size;
    size_t            patch_row = (size_t)(g->kw * g->c) * j->size;

    for (int64_t oy = first; oy < last; ++oy)
        for (int64_t ox = 0; ox < g->ow; ++ox)
            for (int64_t ky = 0; ky < g->kh; ++ky, patches += patch_row) {
                int64_t iy = oy * g->sh - g->top + ky * g->dh;

                if (iy >= 0 && iy < g->h)
                    scatter_row(j, image + (size_t)iy * line, ox * g->sw - g->left, patches);
            }
}

/* The GEMM for `pixels` output pixels; patches, y (or dy) and the place of the result are given. */
static coi_gemm
product(const job *j, int64_t pixels, void *patches, const char *w, char *y, void *dw,
        bool accumulate)
{
    int64_t  k = j->depth, oc = j->g->oc;
    coi_gemm forward = { .m = pixels,
                         .n = oc,
                         .k = k,
                         .a = patches,
                         .a_row = j->is_transposed ? 1 : k,
                         .a_col = j->is_transposed ? pixels : 1,
                         .b = w,
                         .b_row = oc,
                         .b_col = 1,
                         .c = y,
                         .c_row = oc,
                         .epilogue = j->epilogue };
    coi_gemm input = { .m = pixels,
                       .n = k,
                       .k = oc,
                       .a = y,
                       .a_row = oc,
                       .a_col = 1,
                       .b = w,
                       .b_row = 1,
                       .b_col = oc,
                       .c = patches,
                       .c_row = k };
    coi_gemm filter = { .m = k,
                        .n = oc,
                        .k = pixels,
                        .a = patches,
                        .a_row = j->is_transposed ? pixels : 1,
                        .a_col = j->is_transposed ? 1 : k,
                        .b = y,
                        .b_row = oc,
                        .b_col = 1,
                        .c = dw,
                        .c_row = oc,
                        .accumulate = accumulate };

    return j->kind == COI_CONV2D ? forward : j->kind == COI_CONV2D_INPUT ? input : filter;
}

static size_t
product_scratch(const job *j, int64_t pixels)
{
    coi_gemm      g = product(j, pixels, NULL, NULL, NULL, NULL, false);
    coi_gemm_plan plan;

    coi_gemm_plan_init(&plan, j->kernels, COI_PACK_BY_SHAPE, &g);
    return coi_gemm_scratch(&plan, j->kernels);
}

static void
run_product(const job *j, const coi_gemm *g, void *scratch)
{
    coi_gemm_plan plan;

    coi_gemm_plan_init(&plan, j->kernels, COI_PACK_BY_SHAPE, g);
    coi_gemm_run(&plan, j->kernels, scratch);
}

/* Rows [first, last) of one image. x is the image in input or output, y likewise. */
static void
run_block(const job *j, char *x, char *y, const char *w, char *dw, bool accumulate, int64_t first,
          int64_t last, char *patches, void *scratch)
{
    const coi_conv2d *g = j->g;
    int64_t           pixels = (last - first) * g->ow;
    coi_gemm          p;

    y += (size_t)(first * g->ow * g->oc) * j->size;
    if (j->is_direct)
        patches = x + (size_t)(first * g->w * g->c) * j->size;
    else if (j->is_transposed)
        gather_transposed(j, (const float *)x, first, last, (float *)patches);
    else if (j->kind != COI_CONV2D_INPUT)
        gather(j, x, first, last, patches);
    p = product(j, pixels, patches, w, y, dw, accumulate);
    run_product(j, &p, scratch);
    if (!j->is_direct && j->kind == COI_CONV2D_INPUT)
        scatter(j, x, first, last, patches);
}

static void
run_chunk(void *arg, int64_t chunk)
{
    job              *j = arg;
    const coi_conv2d *g = j->g;
    size_t            image_x = (size_t)(g->h * g->w * g->c) * j->size;
    size_t            image_y = (size_t)(g->oh * g->ow * g->oc) * j->size;
    size_t            patch_bytes = (size_t)patch_elements(j) * j->size;
    size_t            whole = product_scratch(j, j->rows * g->ow);
    size_t            rest = product_scratch(j, g->oh % j->rows * g->ow);
    int64_t           first = chunk * j->cut.images;
    int64_t           last = first + coi_conv2d_chunk_images(g, &j->cut, chunk);
    coi_buffer       *buffer;
    char             *scratch;

    patch_bytes = (patch_bytes + COI_ALIGNMENT - 1) / COI_ALIGNMENT * COI_ALIGNMENT;
    buffer = coi_buffer_alloc(j->device, patch_bytes + (whole > rest ? whole : rest), NULL);
    if (buffer == NULL) {
        atomic_store(&j->no_memory, true);
        return;
    }
    scratch = (char *)buffer->data + patch_bytes;
    for (int64_t n = first; n < last; ++n) {
        /* Which of the three is written follows from the kind; the others are only read. */
        char       *x = j->kind == COI_CONV2D_INPUT ? j->out : (char *)(uintptr_t)j->a;
        char       *y = j->kind == COI_CONV2D ? j->out : (char *)(uintptr_t)j->b;
        const char *w = j->kind == COI_CONV2D ? j->b : j->a;
        char       *dw = j->out + (size_t)(chunk * j->depth * g->oc) * j->size;

        x += (size_t)n * image_x;
        y += (size_t)n * image_y;
        if (j->kind == COI_CONV2D_INPUT && !j->is_direct)
            memset(x, 0, image_x);
        for (int64_t row = 0; row < g->oh; row += j->rows)
            run_block(j, x, y, w, dw, n > first || row > 0, row,
                      row + j->rows < g->oh ? row + j->rows : g->oh, buffer->data, scratch);
    }
    coi_buffer_unref(buffer);
}

co_code
coi_conv2d_gemm(coi_call *call, coi_conv2d_kind kind, co_dtype dtype, const coi_conv2d *g,
                const void *a, const void *b, void *out, const coi_epilogue *epilogue)
{
    job         j = { .kind = kind,
                      .g = g,
                      .cut = coi_conv2d_cut_of(kind, g),
                      .kernels = coi_gemm_kernels_of(call->ctx->runtime->isa, dtype),
                      .device = call->device,
                      .size = coi_dtypes[dtype].size,
                      .depth = g->kh * g->kw * g->c,
                      .is_direct = is_direct(g),
                      .is_transposed = !is_direct(g) && coi_select_transposed(kind, dtype, g),
                      .epilogue = epilogue,
                      .a = a,
                      .b = b,
                      .out = out };
    int64_t     count = j.depth * g->oc;
    coi_buffer *sums = NULL;

    j.rows = BLOCK_ELEMENTS / (g->ow * j.depth);
    j.rows = j.rows < 1 ? 1 : j.rows > g->oh ? g->oh : j.rows;
    if (kind == COI_CONV2D_FILTER && j.cut.chunks > 1) {
        sums = coi_buffer_alloc(call->device, (size_t)(j.cut.chunks * count) * j.size,
                                coi_err(call->ctx));
        if (sums == NULL)
            atomic_store(&j.no_memory, true);
        else
            j.out = sums->data;
    }
    if (!atomic_load(&j.no_memory))
        coi_parallel(call, j.cut.chunks, run_chunk, &j);
    if (sums != NULL) {
        coi_conv2d_sum_partials(call, dtype, sums->data, j.cut.chunks, count, out);
        coi_buffer_unref(sums);
    }
    if (atomic_load(&j.no_memory))
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                        "%s: no memory for patches of %lld numbers or %lld partial sums",
                        call->op->name, (long long)j.depth, (long long)j.cut.chunks);
    return CO_OK;
}
