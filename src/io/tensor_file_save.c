/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tensor_files.h that write: a dict of values as tensors on the host, then a file that
 * is complete or not there. */
#include "io/tensor_file.h"

#include "io/file_writer.h"
#include "io/options.h"

#include <string.h>

typedef struct saving {
    coi_tensor_source *sources;
    size_t             n;
    coi_metadata      *metadata;
    size_t             num_metadata;
    size_t             room; /* of both, one block */
} saving;

/* A value as a tensor of the host, of the block; NULL with an error. */
static co_value *
host_tensor(co_context *ctx, const char *name, co_value *value)
{
    co_value *tensor = coi_as_tensor(ctx, value, CO_DTYPE_NONE);

    if (tensor == NULL || (tensor = coi_own(ctx, tensor)) == NULL)
        return NULL;
    if (tensor->kind != CO_KIND_TENSOR) {
        coi_fail_symbolic(ctx, tensor);
        return NULL;
    }
    if (tensor->dtype != CO_STRING)
        return coi_host_value(ctx, tensor);
    coi_fail(ctx, CO_TYPE_ERROR,
             "argument 3 (tensors): '%.100s' is a tensor of strings, which these files do not have",
             name);
    return NULL;
}

static bool
take_tensors(co_context *ctx, co_value *tensors, saving *s)
{
    for (size_t i = 0; i < s->n; ++i) {
        const char *name = co_key(ctx, tensors, i);
        co_value   *tensor = host_tensor(ctx, name, co_at(ctx, tensors, i));

        if (tensor == NULL)
            return false;
        s->sources[i] = (coi_tensor_source){
            .name = name,
            .name_nbytes = strlen(name),
            .dtype = (co_dtype)tensor->dtype,
            .ndim = tensor->ndim,
            .dims = tensor->u.tensor.dims,
            .data = coi_data_on_host(tensor),
            .nbytes = coi_tensor_nbytes(tensor),
        };
    }
    return true;
}

static bool
take_metadata(co_context *ctx, co_value *metadata, saving *s)
{
    for (size_t i = 0; i < s->num_metadata; ++i) {
        co_value     *text = co_at(ctx, metadata, i);
        coi_metadata *m = &s->metadata[i];

        m->key = co_key(ctx, metadata, i);
        m->key_nbytes = strlen(m->key);
        if (text == NULL || text->kind != CO_KIND_STRING) {
            coi_fail(ctx, CO_TYPE_ERROR,
                     "argument 4 (metadata): '%.100s' is %s; metadata are strings", m->key,
                     text != NULL ? coi_a_kind(text->kind) : "NULL");
            return false;
        }
        m->value = co_string_at(ctx, text, 0, &m->value_nbytes);
    }
    return true;
}

static bool
check_dict(co_context *ctx, co_value *value, int position, const char *name)
{
    return coi_check_value(ctx, value, position, name) &&
           coi_check_kind(ctx, value, CO_KIND_DICT, position, name);
}

typedef co_code (*write_fn)(coi_file_writer *writer, saving *s, bool has_metadata,
                            co_error_info *err);

static co_code
write_safetensors(coi_file_writer *writer, saving *s, bool has_metadata, co_error_info *err)
{
    return coi_safetensors_write(writer, s->sources, s->n, s->metadata, s->num_metadata,
                                 has_metadata, err);
}

static co_code
write_npz(coi_file_writer *writer, saving *s, bool has_metadata, co_error_info *err)
{
    (void)has_metadata;
    return coi_npz_write(writer, s->sources, s->n, err);
}

/* A temporary file that gets its name when it is complete. */
static co_code
write_file(co_context *ctx, const char *path, const co_tensor_write_options *options, saving *s,
           bool has_metadata, write_fn fn)
{
    co_error_info   err = { .code = CO_OK };
    coi_file_writer writer;

    if (coi_file_writer_begin(&writer, &ctx->runtime->memory, path, options->replace, &err) ==
        CO_OK) {
        if (fn(&writer, s, has_metadata, &err) == CO_OK)
            coi_file_writer_commit(&writer, options->sync, &err);
        coi_file_writer_end(&writer, err.code != CO_OK);
    }
    return err.code == CO_OK ? CO_OK : coi_fail(ctx, err.code, "%s", err.message);
}

static co_code
save(co_context *ctx, const char *path, co_value *tensors, co_value *metadata,
     const co_tensor_write_options *options, int position, write_fn fn)
{
    co_tensor_write_options all = CO_TENSOR_WRITE_OPTIONS_INIT;
    saving                  s = { .n = 0 };

    if (!coi_check_path(ctx, path, 2) || !check_dict(ctx, tensors, 3, "tensors") ||
        (metadata != NULL && !check_dict(ctx, metadata, 4, "metadata")) ||
        !coi_take_options(ctx, &all, sizeof(all), options, position))
        return ctx->error.code;
    s.n = co_num_items(ctx, tensors);
    s.num_metadata = metadata != NULL ? co_num_items(ctx, metadata) : 0;
    s.room = (s.n + 1) * sizeof(*s.sources) + s.num_metadata * sizeof(*s.metadata);
    s.sources = coi_small_alloc(&ctx->heap, s.room);
    if (s.sources == NULL)
        return coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to write %zu tensors", s.n);
    s.metadata = (coi_metadata *)(void *)(s.sources + s.n + 1);
    if (coi_push_block(ctx) != NULL) { /* copies of tensors of other devices go at its end */
        if (take_tensors(ctx, tensors, &s) && take_metadata(ctx, metadata, &s))
            write_file(ctx, path, &all, &s, metadata != NULL, fn);
        coi_pop_block(ctx);
    }
    coi_small_free(&ctx->heap, s.sources, s.room);
    return ctx->error.code;
}

co_code
co_save_safetensors(co_context *ctx, const char *path, co_value *tensors, co_value *metadata,
                    const co_tensor_write_options *options)
{
    COI_ENTER_CODE(ctx, "save_safetensors");
    return save(ctx, path, tensors, metadata, options, 5, write_safetensors);
}

co_code
co_save_npz(co_context *ctx, const char *path, co_value *tensors,
            const co_tensor_write_options *options)
{
    COI_ENTER_CODE(ctx, "save_npz");
    return save(ctx, path, tensors, NULL, options, 4, write_npz);
}
