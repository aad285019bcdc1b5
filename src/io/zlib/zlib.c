/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of zlib: streams that are decompressed or compressed piece by piece, in memory that
 * the library counts. */
#include "io/source.h"

#include <string.h>
#include <zlib.h>

#define CHUNK ((size_t)64 << 10)

struct coi_inflater {
    z_stream          stream;
    coi_memory       *memory;
    coi_stream_format format;
    bool              has_ended; /* a member of the stream, at a place where another may begin */
    bool              is_begun;  /* something of the present member was there */
    unsigned char     input[CHUNK];
};

struct coi_deflater {
    z_stream      stream;
    coi_memory   *memory;
    unsigned char output[CHUNK];
};

/* zlib does not tell the size when it frees, so it stands before the block. */
static voidpf
take_memory(voidpf memory, uInt items, uInt size)
{
    size_t nbytes = (size_t)items * size + COI_ALIGNMENT;
    char  *block = coi_alloc(memory, nbytes);

    if (block == NULL)
        return Z_NULL;
    memcpy(block, &nbytes, sizeof(nbytes));
    return block + COI_ALIGNMENT;
}

static void
give_memory(voidpf memory, voidpf address)
{
    char  *block = (char *)address - COI_ALIGNMENT;
    size_t nbytes;

    memcpy(&nbytes, block, sizeof(nbytes));
    coi_free(memory, block, nbytes);
}

static void
set_memory(z_stream *stream, coi_memory *memory)
{
    stream->zalloc = take_memory;
    stream->zfree = give_memory;
    stream->opaque = memory;
}

static int
window_bits(coi_stream_format format)
{
    static const int bits[] = {
        [COI_STREAM_GZIP] = 15 + 16, [COI_STREAM_ZLIB] = 15, [COI_STREAM_RAW] = -15
    };

    return bits[format];
}

uint32_t
coi_crc32(uint32_t crc, const void *bytes, size_t nbytes)
{
    return (uint32_t)crc32_z(crc, bytes, nbytes);
}

co_code
coi_inflater_open(coi_memory *memory, coi_stream_format format, coi_inflater **out,
                  co_error_info *err)
{
    coi_inflater *inflater = coi_calloc(memory, sizeof(*inflater));

    if (inflater != NULL) {
        inflater->memory = memory;
        inflater->format = format;
        set_memory(&inflater->stream, memory);
        if (inflateInit2(&inflater->stream, window_bits(format)) == Z_OK) {
            *out = inflater;
            return CO_OK;
        }
    }
    coi_free(memory, inflater, sizeof(*inflater));
    return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to decompress");
}

void
coi_inflater_close(coi_inflater *inflater)
{
    if (inflater == NULL)
        return;
    inflateEnd(&inflater->stream);
    coi_free(inflater->memory, inflater, sizeof(*inflater));
}

static co_code
damaged(const coi_inflater *inflater, int status, co_error_info *err)
{
    static const char *const names[] = { "GZIP", "ZLIB", "deflate" };

    if (status == Z_MEM_ERROR)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to decompress");
    if (status == Z_BUF_ERROR)
        return coi_error(err, CO_DATA_LOSS, "the %s stream is cut off before its end",
                         names[inflater->format]);
    return coi_error(err, CO_DATA_LOSS,
                     "not a %s stream, or a damaged one: %s; check the compression option",
                     names[inflater->format],
                     inflater->stream.msg != NULL ? inflater->stream.msg : "wrong data");
}

/* More of what is compressed, when there is none; whether there is any. */
static bool
refill_input(coi_inflater *inflater, coi_refill_fn refill, void *user, co_error_info *err)
{
    z_stream *stream = &inflater->stream;
    int64_t   n;

    if (stream->avail_in > 0)
        return true;
    n = refill(user, inflater->input, CHUNK, err);
    if (n <= 0)
        return false;
    stream->next_in = inflater->input;
    stream->avail_in = (uInt)n;
    return true;
}

co_code
coi_inflater_read(coi_inflater *inflater, void *bytes, size_t n, size_t *got, bool *at_end,
                  coi_refill_fn refill, void *user, co_error_info *err)
{
    z_stream *stream = &inflater->stream;
    size_t    done = 0;
    int       status = Z_OK;

    *got = 0;
    while (done < n) {
        uInt room = n - done < CHUNK * 1024 ? (uInt)(n - done) : (uInt)(CHUNK * 1024);

        if (!refill_input(inflater, refill, user, err)) {
            if (err->code == CO_OK && inflater->is_begun)
                damaged(inflater, Z_BUF_ERROR, err);
            *at_end = err->code == CO_OK;
            break;
        }
        if (inflater->has_ended) { /* the members of a gzip file follow each other */
            inflateReset(stream);
            inflater->has_ended = false;
        }
        inflater->is_begun = true;
        stream->next_out = (Bytef *)bytes + done;
        stream->avail_out = room;
        status = inflate(stream, Z_NO_FLUSH);
        done += room - stream->avail_out;
        if (status == Z_STREAM_END) {
            inflater->has_ended = true;
            inflater->is_begun = false;
            if (inflater->format == COI_STREAM_GZIP)
                continue;
            *at_end = true;
            break;
        }
        if (status != Z_OK && status != Z_BUF_ERROR) {
            damaged(inflater, status, err);
            break;
        }
    }
    *got = done;
    return err->code;
}

co_code
coi_deflater_open(coi_memory *memory, coi_stream_format format, coi_deflater **out,
                  co_error_info *err)
{
    coi_deflater *deflater = coi_calloc(memory, sizeof(*deflater));

    if (deflater != NULL) {
        deflater->memory = memory;
        set_memory(&deflater->stream, memory);
        if (deflateInit2(&deflater->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits(format),
                         8, Z_DEFAULT_STRATEGY) == Z_OK) {
            *out = deflater;
            return CO_OK;
        }
    }
    coi_free(memory, deflater, sizeof(*deflater));
    return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to compress");
}

void
coi_deflater_close(coi_deflater *deflater)
{
    if (deflater == NULL)
        return;
    deflateEnd(&deflater->stream);
    coi_free(deflater->memory, deflater, sizeof(*deflater));
}

co_code
coi_deflater_write(coi_deflater *deflater, const void *bytes, size_t n, bool finish,
                   coi_sink_fn sink, void *user, co_error_info *err)
{
    z_stream *stream = &deflater->stream;
    size_t    left = n;
    int       status;

    stream->next_in = (Bytef *)(uintptr_t)bytes; /* which zlib does not write to */
    stream->avail_in = 0;
    do {
        if (stream->avail_in == 0) {
            stream->avail_in = left < CHUNK * 1024 ? (uInt)left : (uInt)(CHUNK * 1024);
            left -= stream->avail_in;
        }
        stream->next_out = deflater->output;
        stream->avail_out = (uInt)CHUNK;
        status = deflate(stream, finish && left == 0 ? Z_FINISH : Z_NO_FLUSH);
        if (status == Z_STREAM_ERROR)
            return coi_error(err, CO_INTERNAL, "zlib refused to compress (%d)", status);
        if (stream->avail_out < CHUNK &&
            sink(user, deflater->output, CHUNK - stream->avail_out, err) != CO_OK)
            return err->code;
    } while (left > 0 || stream->avail_in > 0 || stream->avail_out == 0 ||
             (finish && status != Z_STREAM_END));
    return CO_OK;
}
