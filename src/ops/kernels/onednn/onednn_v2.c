/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onednn_api.h for oneDNN 2.x: operation descriptors, memory descriptors as plain structs,
 * dilations that begin at 0.
 */
#include "ops/kernels/onednn/onednn_api.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>

#if DNNL_VERSION_MAJOR != 2
#error "onednn_v2.c is for oneDNN 2.x"
#endif

struct coi_dnn {
    coi_memory   *memory;
    dnnl_engine_t engine;
    int (*omp_get)(void); /* NULL where oneDNN has no OpenMP */
    void (*omp_set)(int);
};

/* What one running thread needs; kept and handed out again. */
typedef struct slot {
    dnnl_stream_t stream;
    dnnl_memory_t x, y, filter, scratch;
    struct slot  *next;
} slot;

/* A filter in both layouts; kept and handed out again. */
struct coi_dnn_filter {
    dnnl_memory_t   packed, plain;
    coi_dnn_filter *next;
};

struct coi_dnn_conv {
    coi_dnn           *dnn;
    coi_conv2d_kind    kind;
    dnnl_primitive_t   primitive;
    dnnl_primitive_t   reorder; /* plain to packed, or for the filter's gradient packed to plain */
    dnnl_memory_desc_t x, y, filter, plain, scratch;
    const char        *kernel;
    pthread_mutex_t    lock; /* of what is kept */
    slot              *slots;
    coi_dnn_filter    *filters;
    dnnl_primitive_desc_t desc; /* owns the text of kernel */
};

/* The library's OpenMP, whichever it is, is found by name: linking against one could bring in a
 * second. */
static void
find_openmp(coi_dnn *dnn)
{
    const dnnl_version_t *version = dnnl_version();

    if (version == NULL || version->cpu_runtime != DNNL_RUNTIME_OMP)
        return;
    *(void **)&dnn->omp_get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&dnn->omp_set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (dnn->omp_get == NULL || dnn->omp_set == NULL)
        dnn->omp_get = NULL;
}

bool
coi_dnn_open(coi_memory *memory, coi_dnn **out)
{
    coi_dnn *dnn = coi_calloc(memory, sizeof(*dnn));

    if (dnn == NULL)
        return false;
    dnn->memory = memory;
    find_openmp(dnn);
    if (dnnl_engine_create(&dnn->engine, dnnl_cpu, 0) != dnnl_success) {
        coi_free(memory, dnn, sizeof(*dnn));
        return false;
    }
    *out = dnn;
    return true;
}

void
coi_dnn_close(coi_dnn *dnn)
{
    dnnl_engine_destroy(dnn->engine);
    coi_free(dnn->memory, dnn, sizeof(*dnn));
}

bool
coi_dnn_keeps_to(coi_isa isa)
{
    unsigned effective = (unsigned)dnnl_get_effective_cpu_isa();
    bool     has_avx2 = (effective & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2;
    bool     has_avx512 = (effective & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;

    return isa == COI_ISA_V4 ? has_avx512 : isa == COI_ISA_V3 ? has_avx2 && !has_avx512 : false;
}

int
coi_dnn_enter(const coi_dnn *dnn)
{
    int saved = dnn->omp_get == NULL ? 1 : dnn->omp_get();

    if (saved != 1)
        dnn->omp_set(1);
    return saved;
}

void
coi_dnn_leave(const coi_dnn *dnn, int saved)
{
    if (saved != 1)
        dnn->omp_set(saved);
}

/* The primitive descriptor of a kind; the backward ones need a forward one as a hint. */
static bool
describe(coi_dnn_conv *conv, const coi_conv2d *g, const_dnnl_primitive_attr_t attr)
{
    dnnl_dims_t             strides = { g->sh, g->sw }, dilations = { g->dh - 1, g->dw - 1 };
    dnnl_dims_t             before = { g->top, g->left }, after = { g->bottom, g->right };
    dnnl_dims_t             filter_dims = { g->oc, g->c, g->kh, g->kw };
    dnnl_convolution_desc_t op, back;
    dnnl_primitive_desc_t   forward = NULL;
    dnnl_memory_desc_t      any;
    dnnl_engine_t           engine = conv->dnn->engine;
    dnnl_status_t           rc;

    if (dnnl_memory_desc_init_by_tag(&any, 4, filter_dims, dnnl_f32, dnnl_format_tag_any) !=
        dnnl_success)
        return false;
    rc = dnnl_dilated_convolution_forward_desc_init(&op, dnnl_forward_training,
                                                    dnnl_convolution_direct, &conv->x, &any, NULL,
                                                    &conv->y, strides, dilations, before, after);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(&forward, &op, attr, engine, NULL);
    if (rc != dnnl_success)
        return false;
    if (conv->kind == COI_CONV2D) {
        conv->desc = forward;
        return true;
    }
    rc = conv->kind == COI_CONV2D_INPUT
             ? dnnl_dilated_convolution_backward_data_desc_init(&back, dnnl_convolution_direct,
                                                                &conv->x, &any, &conv->y, strides,
                                                                dilations, before, after)
             : dnnl_dilated_convolution_backward_weights_desc_init(&back, dnnl_convolution_direct,
                                                                   &conv->x, &any, NULL, &conv->y,
                                                                   strides, dilations, before,
                                                                   after);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(&conv->desc, &back, attr, engine, forward);
    dnnl_primitive_desc_destroy(forward);
    return rc == dnnl_success;
}

static bool
make_reorder(coi_dnn_conv *conv)
{
    bool                      is_gradient = conv->kind == COI_CONV2D_FILTER;
    const dnnl_memory_desc_t *from = is_gradient ? &conv->filter : &conv->plain;
    const dnnl_memory_desc_t *to = is_gradient ? &conv->plain : &conv->filter;
    dnnl_primitive_desc_t     desc;
    dnnl_engine_t             engine = conv->dnn->engine;
    dnnl_status_t             rc;

    if (dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL) != dnnl_success)
        return false;
    rc = dnnl_primitive_create(&conv->reorder, desc);
    dnnl_primitive_desc_destroy(desc);
    return rc == dnnl_success;
}

static bool
fill_conv(coi_dnn_conv *conv, const coi_conv2d *g)
{
    dnnl_dims_t           x = { g->n, g->c, g->h, g->w }, y = { g->n, g->oc, g->oh, g->ow };
    dnnl_dims_t           filter = { g->oc, g->c, g->kh, g->kw };
    dnnl_primitive_attr_t attr;
    bool                  ok;

    if (dnnl_memory_desc_init_by_tag(&conv->x, 4, x, dnnl_f32, dnnl_nhwc) != dnnl_success ||
        dnnl_memory_desc_init_by_tag(&conv->y, 4, y, dnnl_f32, dnnl_nhwc) != dnnl_success ||
        dnnl_memory_desc_init_by_tag(&conv->plain, 4, filter, dnnl_f32, dnnl_hwio) != dnnl_success)
        return false;
    if (dnnl_primitive_attr_create(&attr) != dnnl_success)
        return false;
    ok = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
         describe(conv, g, attr);
    dnnl_primitive_attr_destroy(attr);
    if (!ok)
        return false;
    conv->filter = *dnnl_primitive_desc_query_md(
        conv->desc,
        conv->kind == COI_CONV2D_FILTER ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    conv->scratch = *dnnl_primitive_desc_query_md(conv->desc, dnnl_query_scratchpad_md, 0);
    if (dnnl_primitive_desc_query(conv->desc, dnnl_query_impl_info_str, 0, &conv->kernel) !=
        dnnl_success)
        return false;
    return dnnl_primitive_create(&conv->primitive, conv->desc) == dnnl_success &&
           make_reorder(conv);
}

bool
coi_dnn_conv_create(coi_dnn *dnn, coi_conv2d_kind kind, const coi_conv2d *g, coi_dnn_conv **out)
{
    coi_dnn_conv *conv = coi_calloc(dnn->memory, sizeof(*conv));

    if (conv == NULL)
        return false;
    conv->dnn = dnn;
    conv->kind = kind;
    pthread_mutex_init(&conv->lock, NULL);
    if (!fill_conv(conv, g)) {
        coi_dnn_conv_destroy(conv);
        return false;
    }
    *out = conv;
    return true;
}

static void
slot_free(coi_dnn_conv *conv, slot *s)
{
    dnnl_memory_t memories[4] = { s->x, s->y, s->filter, s->scratch };

    for (int i = 0; i < 4; ++i)
        if (memories[i] != NULL)
            dnnl_memory_destroy(memories[i]);
    if (s->stream != NULL)
        dnnl_stream_destroy(s->stream);
    coi_free(conv->dnn->memory, s, sizeof(*s));
}

static void
filter_free(coi_dnn_conv *conv, coi_dnn_filter *filter)
{
    if (filter->packed != NULL)
        dnnl_memory_destroy(filter->packed);
    if (filter->plain != NULL)
        dnnl_memory_destroy(filter->plain);
    coi_free(conv->dnn->memory, filter, sizeof(*filter));
}

void
coi_dnn_conv_destroy(coi_dnn_conv *conv)
{
    while (conv->filters != NULL) {
        coi_dnn_filter *filter = conv->filters;

        conv->filters = filter->next;
        filter_free(conv, filter);
    }
    while (conv->slots != NULL) {
        slot *s = conv->slots;

        conv->slots = s->next;
        slot_free(conv, s);
    }
    if (conv->reorder != NULL)
        dnnl_primitive_destroy(conv->reorder);
    if (conv->primitive != NULL)
        dnnl_primitive_destroy(conv->primitive);
    if (conv->desc != NULL)
        dnnl_primitive_desc_destroy(conv->desc);
    pthread_mutex_destroy(&conv->lock);
    coi_free(conv->dnn->memory, conv, sizeof(*conv));
}

const char *
coi_dnn_conv_kernel(const coi_dnn_conv *conv)
{
    return conv->kernel;
}

size_t
coi_dnn_filter_bytes(const coi_dnn_conv *conv)
{
    return dnnl_memory_desc_get_size(&conv->filter);
}

size_t
coi_dnn_scratch_bytes(const coi_dnn_conv *conv)
{
    return dnnl_memory_desc_get_size(&conv->scratch);
}

bool
coi_dnn_same_filter(const coi_dnn_conv *a, const coi_dnn_conv *b)
{
    return dnnl_memory_desc_equal(&a->filter, &b->filter) != 0;
}

/* Give a slot its memories; data comes later. */
static slot *
slot_new(coi_dnn_conv *conv)
{
    dnnl_engine_t engine = conv->dnn->engine;
    slot         *s = coi_calloc(conv->dnn->memory, sizeof(*s));

    if (s == NULL)
        return NULL;
    if (dnnl_stream_create(&s->stream, engine, dnnl_stream_default_flags) == dnnl_success &&
        dnnl_memory_create(&s->x, &conv->x, engine, DNNL_MEMORY_NONE) == dnnl_success &&
        dnnl_memory_create(&s->y, &conv->y, engine, DNNL_MEMORY_NONE) == dnnl_success &&
        dnnl_memory_create(&s->filter, &conv->filter, engine, DNNL_MEMORY_NONE) == dnnl_success &&
        dnnl_memory_create(&s->scratch, &conv->scratch, engine, DNNL_MEMORY_NONE) == dnnl_success)
        return s;
    slot_free(conv, s);
    return NULL;
}

static slot *
slot_take(coi_dnn_conv *conv)
{
    slot *s;

    pthread_mutex_lock(&conv->lock);
    s = conv->slots;
    if (s != NULL)
        conv->slots = s->next;
    pthread_mutex_unlock(&conv->lock);
    return s != NULL ? s : slot_new(conv);
}

static void
slot_give(coi_dnn_conv *conv, slot *s)
{
    pthread_mutex_lock(&conv->lock);
    s->next = conv->slots;
    conv->slots = s;
    pthread_mutex_unlock(&conv->lock);
}

static coi_dnn_filter *
filter_take(coi_dnn_conv *conv)
{
    dnnl_engine_t   engine = conv->dnn->engine;
    coi_dnn_filter *filter;

    pthread_mutex_lock(&conv->lock);
    filter = conv->filters;
    if (filter != NULL)
        conv->filters = filter->next;
    pthread_mutex_unlock(&conv->lock);
    if (filter != NULL)
        return filter;
    filter = coi_calloc(conv->dnn->memory, sizeof(*filter));
    if (filter == NULL)
        return NULL;
    if (dnnl_memory_create(&filter->packed, &conv->filter, engine, DNNL_MEMORY_NONE) ==
            dnnl_success &&
        dnnl_memory_create(&filter->plain, &conv->plain, engine, DNNL_MEMORY_NONE) == dnnl_success)
        return filter;
    filter_free(conv, filter);
    return NULL;
}

void
coi_dnn_filter_release(coi_dnn_conv *conv, coi_dnn_filter *filter)
{
    pthread_mutex_lock(&conv->lock);
    filter->next = conv->filters;
    conv->filters = filter;
    pthread_mutex_unlock(&conv->lock);
}

/* A filter of which one half is about to be written from the other. */
static coi_dnn_filter *
reorder_filter(coi_dnn_conv *conv, void *packed, void *plain)
{
    bool            is_gradient = conv->kind == COI_CONV2D_FILTER;
    coi_dnn_filter *filter = filter_take(conv);
    slot           *s = slot_take(conv);
    bool            ok = filter != NULL && s != NULL &&
              dnnl_memory_set_data_handle(filter->packed, packed) == dnnl_success &&
              dnnl_memory_set_data_handle(filter->plain, plain) == dnnl_success;

    if (ok) {
        dnnl_exec_arg_t args[2] = {
            { DNNL_ARG_FROM, is_gradient ? filter->packed : filter->plain },
            { DNNL_ARG_TO, is_gradient ? filter->plain : filter->packed },
        };

        ok = dnnl_primitive_execute(conv->reorder, s->stream, 2, args) == dnnl_success &&
             dnnl_stream_wait(s->stream) == dnnl_success;
    }
    if (s != NULL)
        slot_give(conv, s);
    if (!ok && filter != NULL) {
        coi_dnn_filter_release(conv, filter);
        filter = NULL;
    }
    return filter;
}

bool
coi_dnn_pack_filter(coi_dnn_conv *conv, const void *plain, void *packed, coi_dnn_filter **out)
{
    *out = reorder_filter(conv, packed, (void *)(uintptr_t)plain);
    return *out != NULL;
}

bool
coi_dnn_unpack_filter(coi_dnn_conv *conv, void *packed, void *plain)
{
    coi_dnn_filter *filter = reorder_filter(conv, packed, plain);

    if (filter != NULL)
        coi_dnn_filter_release(conv, filter);
    return filter != NULL;
}

bool
coi_dnn_run(coi_dnn_conv *conv, void *x, coi_dnn_filter *filter, void *packed, void *y,
            void *scratch)
{
    static const int names[3][3] = {
        [COI_CONV2D] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST },
        [COI_CONV2D_INPUT] = { DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST },
        [COI_CONV2D_FILTER] = { DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST },
    };
    const int *name = names[conv->kind];
    slot      *s = slot_take(conv);
    bool       ok;

    if (s == NULL)
        return false;
    ok = dnnl_memory_set_data_handle(s->x, x) == dnnl_success &&
         dnnl_memory_set_data_handle(s->y, y) == dnnl_success &&
         dnnl_memory_set_data_handle(s->scratch, scratch) == dnnl_success &&
         (filter != NULL || dnnl_memory_set_data_handle(s->filter, packed) == dnnl_success);
    if (ok) {
        dnnl_exec_arg_t args[4] = { { name[0], s->x },
                                    { name[1], filter != NULL ? filter->packed : s->filter },
                                    { name[2], s->y },
                                    { DNNL_ARG_SCRATCHPAD, s->scratch } };

        ok = dnnl_primitive_execute(conv->primitive, s->stream, 4, args) == dnnl_success &&
             dnnl_stream_wait(s->stream) == dnnl_success;
    }
    slot_give(conv, s);
    return ok;
}
