/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution through oneDNN: the cache of primitives, one per shape and kind, and the spreading of
 * a batch over our workers. Nothing here depends on a version of oneDNN; see onednn_api.h.
 */
#include "ops/kernels/onednn/onednn.h"
#include "ops/kernels/onednn/onednn_api.h"

#include <string.h>

/* Primitives kept; beyond that the one unused longest goes. */
#define MAX_ENTRIES 256

typedef struct entry {
    coi_conv2d_kind kind;
    coi_conv2d      g;    /* of one chunk */
    coi_dnn_conv   *conv; /* NULL: oneDNN has no good kernel for this */
    int             users;
    uint64_t        used_at;
    struct entry   *next;
} entry;

/* What the runtime keeps. */
typedef struct cache {
    coi_dnn        *dnn; /* NULL: oneDNN cannot be used in this runtime */
    pthread_mutex_t lock;
    entry          *entries;
    int             num_entries;
    uint64_t        clock;
    bool            has_warned;
} cache;

static void
entry_free(coi_runtime *runtime, entry *e)
{
    if (e->conv != NULL)
        coi_dnn_conv_destroy(e->conv);
    coi_free(&runtime->memory, e, sizeof(*e));
}

static void
cache_close(coi_runtime *runtime, void *state)
{
    cache *c = state;

    while (c->entries != NULL) {
        entry *e = c->entries;

        c->entries = e->next;
        entry_free(runtime, e);
    }
    if (c->dnn != NULL)
        coi_dnn_close(c->dnn);
    pthread_mutex_destroy(&c->lock);
    coi_free(&runtime->memory, c, sizeof(*c));
}

/* The runtime's cache, made at first need; NULL without memory. */
static cache *
cache_of(coi_runtime *runtime)
{
    cache *c;

    pthread_mutex_lock(&runtime->lock);
    c = runtime->kernel_state;
    if (c == NULL) {
        c = coi_calloc(&runtime->memory, sizeof(*c));
        if (c != NULL) {
            pthread_mutex_init(&c->lock, NULL);
            if (!coi_dnn_keeps_to(runtime->isa))
                coi_log_line(
                    &runtime->log, CO_LOG_INFO,
                    "convolution: oneDNN would not keep to instruction set %s; own kernels are used",
                    coi_isa_name(runtime->isa));
            else if (!coi_dnn_open(&runtime->memory, &c->dnn))
                coi_log_line(&runtime->log, CO_LOG_WARNING,
                             "convolution: oneDNN has no CPU engine; own kernels are used");
            runtime->kernel_state = c;
            runtime->kernel_state_close = cache_close;
        }
    }
    pthread_mutex_unlock(&runtime->lock);
    return c;
}

/* A primitive, or none where oneDNN would fall to its reference kernels, which are slower than
 * anything here. */
static coi_dnn_conv *
create_conv(coi_runtime *runtime, cache *c, coi_conv2d_kind kind, const coi_conv2d *g)
{
    static const char *const names[3] = { "conv2d", "conv2d_backprop_input",
                                          "conv2d_backprop_filter" };
    coi_dnn_conv            *conv = NULL;
    const char              *kernel = "none";
    int                      saved = coi_dnn_enter(c->dnn);

    if (coi_dnn_conv_create(c->dnn, kind, g, &conv))
        kernel = coi_dnn_conv_kernel(conv);
    if (conv == NULL || strstr(kernel, "ref") != NULL || strstr(kernel, "simple") != NULL) {
        coi_log_line(
            &runtime->log, c->has_warned ? CO_LOG_DEBUG : CO_LOG_WARNING,
            "%s [%lld,%lld,%lld,%lld] with [%lld,%lld,%lld,%lld]: oneDNN has no optimised kernel "
            "(it offers: %s); own kernels are used",
            names[kind], (long long)g->n, (long long)g->h, (long long)g->w, (long long)g->c,
            (long long)g->kh, (long long)g->kw, (long long)g->ic, (long long)g->oc, kernel);
        c->has_warned = true;
        if (conv != NULL)
            coi_dnn_conv_destroy(conv);
        conv = NULL;
    }
    coi_dnn_leave(c->dnn, saved);
    return conv;
}

/* Make room for one more; entries in use stay. */
static void
evict(coi_runtime *runtime, cache *c)
{
    entry **oldest = NULL;

    for (entry **at = &c->entries; *at != NULL; at = &(*at)->next)
        if ((*at)->users == 0 && (oldest == NULL || (*at)->used_at < (*oldest)->used_at))
            oldest = at;
    if (oldest != NULL) {
        entry *e = *oldest;

        *oldest = e->next;
        --c->num_entries;
        entry_free(runtime, e);
    }
}

/* The entry of a shape, in use until entry_release. NULL without memory. */
static entry *
entry_of(coi_runtime *runtime, cache *c, coi_conv2d_kind kind, const coi_conv2d *g)
{
    entry *e;

    pthread_mutex_lock(&c->lock);
    for (e = c->entries; e != NULL; e = e->next)
        if (e->kind == kind && memcmp(&e->g, g, sizeof(*g)) == 0)
            break;
    if (e == NULL) {
        if (c->num_entries >= MAX_ENTRIES)
            evict(runtime, c);
        e = coi_calloc(&runtime->memory, sizeof(*e));
        if (e != NULL) {
            e->kind = kind;
            e->g = *g;
            e->conv = create_conv(runtime, c, kind, g);
            e->next = c->entries;
            c->entries = e;
            ++c->num_entries;
        }
    }
    if (e != NULL) {
        ++e->users;
        e->used_at = ++c->clock;
    }
    pthread_mutex_unlock(&c->lock);
    return e;
}

static void
entry_release(cache *c, entry *e)
{
    if (e == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    --e->users;
    pthread_mutex_unlock(&c->lock);
}

/* One call. All chunks have `images` images but the last, which may have fewer and then has a
 * primitive of its own. */
typedef struct job {
    coi_conv2d_kind   kind;
    const coi_conv2d *g;
    coi_conv2d_cut    cut;
    coi_dnn          *dnn;
    co_device        *device;
    entry *entries[2]; /* of whole chunks, and of a smaller last one (NULL: there is none) */
    coi_dnn_filter     *filters[2];
    coi_buffer         *packed;       /* the filters, or the partial gradients of all chunks */
    size_t              filter_bytes; /* room for one of them */
    const char         *x, *y;
    char               *out;
    const coi_epilogue *epilogue;
    bool                unpack_each; /* partial gradients differ in layout: bring each to HWIO */
    atomic_bool         has_failed;
} job;

static void
run_chunk(void *arg, int64_t chunk)
{
    job              *j = arg;
    const coi_conv2d *g = j->g;
    int               which = j->entries[1] != NULL && chunk == j->cut.chunks - 1;
    coi_dnn_conv     *conv = j->entries[which]->conv;
    size_t            scratch_bytes = coi_dnn_scratch_bytes(conv);
    coi_buffer       *scratch = NULL;
    char             *part = (char *)j->packed->data;
    float            *x, *y;
    int               saved;
    bool              ok;

    if (scratch_bytes > 0) {
        scratch = coi_buffer_alloc(j->device, scratch_bytes, NULL);
        if (scratch == NULL) {
            atomic_store(&j->has_failed, true);
            return;
        }
    }
    x = (float *)(uintptr_t)(j->kind == COI_CONV2D_INPUT ? j->out : j->x);
    y = (float *)(uintptr_t)(j->kind == COI_CONV2D ? j->out : j->y);
    x += chunk * j->cut.images * g->h * g->w * g->c;
    y += chunk * j->cut.images * g->oh * g->ow * g->oc;
    part += (size_t)chunk * j->filter_bytes;
    saved = coi_dnn_enter(j->dnn);
    ok = coi_dnn_run(conv, x, j->filters[which], part, y, scratch == NULL ? NULL : scratch->data);
    if (ok && j->unpack_each) {
        coi_buffer *plain = coi_buffer_alloc(j->device, j->filter_bytes, NULL);
        size_t      nbytes = (size_t)(g->kh * g->kw * g->ic * g->oc) * sizeof(float);

        ok = plain != NULL && coi_dnn_unpack_filter(conv, part, plain->data);
        if (ok)
            memcpy(part, plain->data, nbytes);
        if (plain != NULL)
            coi_buffer_unref(plain);
    }
    coi_dnn_leave(j->dnn, saved);
    if (!ok)
        atomic_store(&j->has_failed, true);
    else if (j->epilogue != NULL)
        coi_epilogue_rows(j->epilogue, y, g->oc,
                          coi_conv2d_chunk_images(g, &j->cut, chunk) * g->oh * g->ow, 0, g->oc);
    if (scratch != NULL)
        coi_buffer_unref(scratch);
}

/* Filters in oneDNN's layouts, for both sizes of chunk. */
static bool
pack_filters(job *j, const void *plain)
{
    int  saved = coi_dnn_enter(j->dnn);
    bool ok = true;

    for (int i = 0; ok && i < 2 && j->entries[i] != NULL; ++i)
        ok = coi_dnn_pack_filter(j->entries[i]->conv, plain,
                                 (char *)j->packed->data + (size_t)i * j->filter_bytes,
                                 &j->filters[i]);
    coi_dnn_leave(j->dnn, saved);
    return ok;
}

static void
release_filters(job *j)
{
    for (int i = 0; i < 2; ++i)
        if (j->filters[i] != NULL)
            coi_dnn_filter_release(j->entries[i]->conv, j->filters[i]);
}

/* The gradient of the filter: a partial sum per chunk, added in order in oneDNN's layout, then
 * brought to HWIO. */
static bool
sum_gradients(coi_call *call, job *j, void *out)
{
    int64_t count = (int64_t)(j->filter_bytes / sizeof(float));
    int     saved;
    bool    ok;

    coi_conv2d_sum_partials(call, CO_FLOAT32, j->packed->data, j->cut.chunks, count,
                            j->packed->data);
    if (j->unpack_each) {
        memcpy(out, j->packed->data, coi_tensor_nbytes(call->out[0]));
        return true;
    }
    saved = coi_dnn_enter(j->dnn);
    ok = coi_dnn_unpack_filter(j->entries[0]->conv, j->packed->data, out);
    coi_dnn_leave(j->dnn, saved);
    return ok;
}

/* With primitives for all chunks in hand. */
static co_code
run(coi_call *call, job *j, const void *filter, void *out)
{
    bool   is_gradient = j->kind == COI_CONV2D_FILTER;
    size_t plain = (size_t)(j->g->kh * j->g->kw * j->g->ic * j->g->oc) * sizeof(float);
    bool   ok;

    j->filter_bytes = plain;
    for (int i = 0; i < 2 && j->entries[i] != NULL; ++i)
        if (coi_dnn_filter_bytes(j->entries[i]->conv) > j->filter_bytes)
            j->filter_bytes = coi_dnn_filter_bytes(j->entries[i]->conv);
    j->filter_bytes = (j->filter_bytes + COI_ALIGNMENT - 1) / COI_ALIGNMENT * COI_ALIGNMENT;
    j->unpack_each = is_gradient && j->entries[1] != NULL &&
                     !coi_dnn_same_filter(j->entries[0]->conv, j->entries[1]->conv);
    j->packed = coi_buffer_alloc(call->device,
                                 j->filter_bytes * (size_t)(is_gradient ? j->cut.chunks : 2),
                                 coi_err(call->ctx));
    if (j->packed == NULL)
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED, "%s: no memory for a filter of %zu bytes",
                        call->op->name, j->filter_bytes);
    ok = is_gradient || pack_filters(j, filter);
    if (ok)
        coi_parallel(call, j->cut.chunks, run_chunk, j);
    ok = ok && !atomic_load(&j->has_failed) && (!is_gradient || sum_gradients(call, j, out));
    release_filters(j);
    coi_buffer_unref(j->packed);
    if (!ok)
        return coi_fail(call->ctx, CO_RESOURCE_EXHAUSTED,
                        "%s: oneDNN failed, most likely for lack of memory", call->op->name);
    return CO_OK;
}

co_code
coi_onednn_conv2d(coi_call *call, coi_conv2d_kind kind, const coi_conv2d *g, const void *a,
                  const void *b, void *out, const coi_epilogue *epilogue, bool *done)
{
    coi_runtime *runtime = call->ctx->runtime;
    coi_conv2d   of_chunk = *g;
    co_code      rc = CO_OK;
    cache       *c;
    int64_t      rest;
    job j = { .kind = kind, .g = g, .device = call->device, .out = out, .epilogue = epilogue };

    *done = false;
    c = cache_of(runtime);
    if (c == NULL || c->dnn == NULL)
        return CO_OK;
    j.dnn = c->dnn;
    j.cut = coi_conv2d_cut_of(kind, g);
    j.x = kind == COI_CONV2D_INPUT ? NULL : a;
    j.y = kind == COI_CONV2D ? NULL : b;
    of_chunk.n = j.cut.images;
    j.entries[0] = entry_of(runtime, c, kind, &of_chunk);
    rest = g->n - (j.cut.chunks - 1) * j.cut.images;
    if (rest < j.cut.images) {
        of_chunk.n = rest;
        j.entries[1] = entry_of(runtime, c, kind, &of_chunk);
    }
    if (j.entries[0] != NULL && j.entries[0]->conv != NULL &&
        (rest == j.cut.images || (j.entries[1] != NULL && j.entries[1]->conv != NULL))) {
        *done = true;
        if ((call->ctx->special & COI_SPECIAL_LOG) != 0)
            coi_log_line(&runtime->log, CO_LOG_DEBUG, "%s: by oneDNN, kernel %s", call->op->name,
                         coi_dnn_conv_kernel(j.entries[0]->conv));
        rc = run(call, &j, kind == COI_CONV2D ? b : a, out);
    }
    entry_release(c, j.entries[0]);
    entry_release(c, j.entries[1]);
    return rc;
}
