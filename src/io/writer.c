/* SPDX-License-Identifier: Apache-2.0 */
/* Writing record files. Small records are gathered and written together; the file is the caller's
 * to close. */
#include <cohort/files.h>

#include "context/context.h"
#include "io/frame.h"
#include "io/options.h"
#include "io/source.h"

#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define GATHER ((size_t)256 << 10)

struct co_record_writer {
    coi_object    object;
    coi_runtime  *runtime; /* outlives what its contexts made */
    int           fd;      /* -1: closed */
    char         *path;
    size_t        path_bytes;
    coi_deflater *deflater; /* NULL: plain */
    char         *gathered; /* GATHER bytes */
    size_t        used;
    int64_t       num_records;
    co_error_info failure; /* the first: nothing is written after it */
};

/* To the file, as it is. */
static co_code
write_out(void *user, const void *bytes, size_t n, co_error_info *err)
{
    const co_record_writer *writer = user;

    return coi_write_all(writer->fd, writer->path, bytes, n, err);
}

static co_code
write_through(co_record_writer *writer, const void *bytes, size_t n, bool finish)
{
#if COI_HAVE_ZLIB
    if (writer->deflater != NULL)
        return coi_deflater_write(writer->deflater, bytes, n, finish, write_out, writer,
                                  &writer->failure);
#endif
    (void)finish;
    return write_out(writer, bytes, n, &writer->failure);
}

static co_code
flush(co_record_writer *writer, bool finish)
{
    size_t n = writer->used;

    writer->used = 0;
    if (writer->failure.code == CO_OK && (n > 0 || finish))
        write_through(writer, writer->gathered, n, finish);
    return writer->failure.code;
}

static co_code
append(co_record_writer *writer, const void *bytes, size_t n)
{
    if (n > GATHER - writer->used && flush(writer, false) != CO_OK)
        return writer->failure.code;
    if (n > GATHER)
        return write_through(writer, bytes, n, false);
    if (n > 0)
        memcpy(writer->gathered + writer->used, bytes, n);
    writer->used += n;
    return CO_OK;
}

/* The last of the file; the code of the first failure. */
static co_code
finish(co_record_writer *writer)
{
    int fd = writer->fd;

    if (fd < 0)
        return CO_OK;
    flush(writer, writer->deflater != NULL);
    writer->fd = -1;
    if (close(fd) != 0 && errno != EINTR)
        coi_system_error(&writer->failure, "close", writer->path, errno);
    return writer->failure.code;
}

static void
destroy_writer(coi_heap *heap, void *object)
{
    co_record_writer *writer = object;
    coi_memory       *memory = &writer->runtime->memory;

    if (writer->fd >= 0 && finish(writer) != CO_OK)
        coi_log_line(&writer->runtime->log, CO_LOG_ERROR, "a record file is not complete: %s",
                     writer->failure.message);
#if COI_HAVE_ZLIB
    coi_deflater_close(writer->deflater);
#endif
    coi_free(memory, writer->gathered, GATHER);
    coi_free(memory, writer->path, writer->path_bytes);
    coi_object_free(heap, writer, sizeof(*writer));
}

static const coi_class writer_class = { "record writer", destroy_writer, NULL };

static co_code
open_deflater(co_record_writer *writer, co_compression compression, co_error_info *err)
{
    if (compression == CO_COMPRESSION_NONE)
        return CO_OK;
#if COI_HAVE_ZLIB
    return coi_deflater_open(&writer->runtime->memory,
                             compression == CO_COMPRESSION_GZIP ? COI_STREAM_GZIP : COI_STREAM_ZLIB,
                             &writer->deflater, err);
#else
    return coi_error(err, CO_UNIMPLEMENTED,
                     "'%s' is to be compressed, and this library was built without zlib; build it "
                     "with zlib or write it plain",
                     writer->path);
#endif
}

/* Memory first: a file is emptied only when it can be written. */
static co_code
open_writer(co_record_writer *writer, coi_memory *memory, const char *path,
            co_compression compression, co_error_info *err)
{
    co_code rc;

    writer->path_bytes = strlen(path) + 1;
    writer->path = coi_strndup(memory, path, writer->path_bytes - 1);
    writer->gathered = coi_alloc(memory, GATHER);
    if (writer->path == NULL || writer->gathered == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to write to '%s'", path);
    rc = open_deflater(writer, compression, err);
    if (rc != CO_OK)
        return rc;
    do
        writer->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    while (writer->fd < 0 && errno == EINTR);
    return writer->fd >= 0 ? CO_OK : coi_system_error(err, "write to", path, errno);
}

co_record_writer *
co_record_writer_open(co_context *ctx, const char *path, const co_file_options *options)
{
    co_file_options   all = CO_FILE_OPTIONS_INIT;
    co_record_writer *writer;

    COI_ENTER(ctx, "record_writer_open", NULL);
    if (!coi_check_path(ctx, path, 2) || !coi_take_file_options(ctx, &all, options, 3))
        return NULL;
    writer = coi_object_new(&ctx->heap, &writer_class, sizeof(*writer));
    if (writer == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a record writer");
        return NULL;
    }
    writer->runtime = ctx->runtime;
    writer->fd = -1;
    if (open_writer(writer, &ctx->runtime->memory, path, all.compression, coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        coi_unref(&ctx->heap, writer);
        return NULL;
    }
    return coi_own(ctx, writer);
}

static bool
check_writer(co_context *ctx, co_record_writer *writer)
{
    return coi_check_object(ctx, writer, &writer_class, 2, "writer");
}

/* What went wrong with the file, as the error of this call. */
static co_code
tell(co_context *ctx, const co_record_writer *writer)
{
    if (writer->failure.code == CO_OK)
        return CO_OK;
    return coi_fail(ctx, writer->failure.code, "record %lld: %s", (long long)writer->num_records,
                    writer->failure.message);
}

static co_code
write_record(co_context *ctx, co_record_writer *writer, const void *bytes, size_t nbytes)
{
    uint8_t head[COI_RECORD_HEAD], foot[COI_RECORD_FOOT];

    if (writer->fd < 0)
        return coi_fail(ctx, CO_FAILED_PRECONDITION,
                        "the writer of '%s' was closed; open another to write more", writer->path);
    coi_record_head(nbytes, head);
    coi_record_foot(bytes, nbytes, foot);
    if (append(writer, head, sizeof(head)) == CO_OK && append(writer, bytes, nbytes) == CO_OK)
        append(writer, foot, sizeof(foot));
    if (writer->failure.code != CO_OK)
        return tell(ctx, writer);
    ++writer->num_records;
    return CO_OK;
}

co_code
co_record_write(co_context *ctx, co_record_writer *writer, const void *bytes, size_t nbytes)
{
    COI_ENTER_CODE(ctx, "record_write");
    if (!check_writer(ctx, writer))
        return ctx->error.code;
    if (bytes == NULL && nbytes > 0)
        return coi_fail(ctx, CO_INVALID_ARGUMENT,
                        "argument 3 (bytes) is NULL; a record of %zu byte%s is to be written",
                        nbytes, COI_S(nbytes));
    return write_record(ctx, writer, bytes, nbytes);
}

co_code
co_record_write_value(co_context *ctx, co_record_writer *writer, co_value *strings)
{
    const coi_text *texts;
    int64_t         n = 1;
    coi_text        alone;

    COI_ENTER_CODE(ctx, "record_write_value");
    if (!check_writer(ctx, writer) || !coi_check_value(ctx, strings, 3, "strings"))
        return ctx->error.code;
    texts = coi_texts_of(strings, &alone, &n);
    if (texts == NULL)
        return coi_fail(ctx, CO_TYPE_ERROR,
                        "argument 3 (strings) is %s; it must be a string or a tensor of strings",
                        coi_a_kind(strings->kind));
    for (int64_t i = 0; i < n && ctx->error.code == CO_OK; ++i)
        write_record(ctx, writer, texts[i].data, texts[i].nbytes);
    return ctx->error.code;
}

co_code
co_record_writer_flush(co_context *ctx, co_record_writer *writer)
{
    COI_ENTER_CODE(ctx, "record_writer_flush");
    if (!check_writer(ctx, writer))
        return ctx->error.code;
    if (writer->fd >= 0)
        flush(writer, false);
    return tell(ctx, writer);
}

co_code
co_record_writer_close(co_context *ctx, co_record_writer *writer)
{
    COI_ENTER_CODE(ctx, "record_writer_close");
    if (!check_writer(ctx, writer))
        return ctx->error.code;
    if (writer->fd < 0)
        return CO_OK;
    finish(writer);
    return tell(ctx, writer);
}
