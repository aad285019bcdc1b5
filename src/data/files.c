/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets whose elements are pieces of files: records, lines. What is a piece is the business of a
 * framing (io/frame.h); this file opens one file after another, reads, and makes string tensors.
 *
 * A batch is read straight to where it stays. One buffer holds the texts of the tensor and behind
 * them the bytes of the file as they are; texts point at the records among them, and the byte
 * behind a record, which was part of its checksum or the end of its line, becomes the zero that
 * ends a text:
 *
 *     | text 0 | text 1 | ... | head, data, 0 oot | head, data, 0 oot | ...
 *
 * So a record is copied once, by the system. What was read too much goes back to the source.
 */
#include "data/files.h"
#include "data/iterator_checkpoint.h"

#include <cohort/files.h>
#include <string.h>

#include "io/options.h"
#include "io/source.h"

#define MAX_ROWS ((int64_t)1 << 16) /* of one stack: its texts are made room for beforehand */
#define PIECE                                                                                      \
    ((size_t)256 << 10) /* read at a time, so that checksums are made of what is in the cache */

typedef struct file_dataset {
    co_dataset         base;
    const coi_framing *framing;
    coi_frame_sizes    sizes;
    co_file_options    options;
    const char       **names; /* one block: the pointers, then the texts */
    size_t             num_names, names_bytes;
    size_t             all_names; /* before files were shared out */
    int                num_shares;
} file_dataset;

typedef struct file_iterator {
    co_iterator base;
    coi_source  source;
    bool        is_open;
    size_t      file;    /* the present one, or the next to open */
    int64_t     record;  /* of the file: the next one */
    int64_t     offset;  /* where it begins */
    size_t      average; /* bytes of a record lately, with all that belongs to it */
    size_t      latest;  /* the same of the last one */
    bool        varies;  /* they are not all alike */
} file_iterator;

/* A batch while it is read. */
typedef struct arena {
    coi_buffer *buffer;
    int64_t     rows, max_rows;
    size_t      room, filled, used; /* bytes behind the texts */
} arena;

static const file_dataset *
files_of(const co_iterator *iterator)
{
    return (const file_dataset *)iterator->dataset;
}

static coi_text *
arena_texts(const arena *a)
{
    return a->buffer->data;
}

static char *
arena_bytes(const arena *a)
{
    return (char *)a->buffer->data + (size_t)a->max_rows * sizeof(coi_text);
}

/* Room for `room` bytes of the file; what is there moves. */
static bool
arena_grow(co_context *ctx, co_device *device, arena *a, size_t room)
{
    /* A zero byte behind the last record, and behind each where the file has no byte to spare. */
    size_t head = (size_t)a->max_rows * (sizeof(coi_text) + 1);
    arena  larger = *a;

    larger.buffer = room <= PTRDIFF_MAX - head ? coi_buffer_alloc(device, head + room, coi_err(ctx))
                                               : NULL;
    if (larger.buffer == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu bytes of records", room);
        return false;
    }
    larger.room = room;
    if (a->buffer != NULL) {
        for (int64_t i = 0; i < a->rows; ++i) {
            coi_text text = arena_texts(a)[i];

            text.data = arena_bytes(&larger) + (text.data - arena_bytes(a));
            arena_texts(&larger)[i] = text;
        }
        memcpy(arena_bytes(&larger), arena_bytes(a), a->filled);
        coi_buffer_unref(a->buffer);
    }
    *a = larger;
    return true;
}

/* Complete an error of the present file. */
static int
file_error(co_context *ctx, const file_iterator *self, const co_error_info *err, size_t used)
{
    const file_dataset *files = files_of(&self->base);
    long long           at = (long long)self->offset + (long long)used;

    coi_fail(ctx, err->code, "%s: file %zu of %zu, '%s', record %lld at offset %lld: %s",
             files->base.own_name[0] != '\0' ? files->base.own_name : files->framing->name,
             self->file, files->num_names, files->names[self->file], (long long)self->record, at,
             err->message);
    return COI_ERROR;
}

static void
close_file(file_iterator *self)
{
    if (self->is_open)
        coi_source_close(&self->source);
    self->is_open = false;
    ++self->file;
}

/* How many bytes the next n records may have. */
static size_t
estimate(const file_iterator *self, int64_t n)
{
    size_t bytes = (self->average > 0 ? self->average : self->latest) * (size_t)n;

    return self->varies ? bytes + bytes / 16 : bytes;
}

/* Whether the file is long enough, as far as can be seen, to ask for so many bytes at once. */
static bool
may_have(const file_iterator *self, size_t nbytes)
{
    const coi_source *source = &self->source;

    return source->inflater == NULL && source->is_regular &&
           (int64_t)(nbytes - (source->end - source->begin)) <= source->size - source->offset;
}

/*
 * Read so that `need` bytes are there from `used` on, or the file is at its end, and more when more
 * records are wanted. A length that is not to be trusted does not make us ask for memory that the
 * file cannot fill. 0 at the end, -1 with an error of the file in err, or of memory in ctx.
 */
static int64_t
arena_read(co_context *ctx, co_device *device, file_iterator *self, arena *a, size_t need,
           co_error_info *err)
{
    size_t  have = a->filled - a->used, want = need, room, n;
    int64_t left = a->max_rows - a->rows;
    int64_t got;

    if (left > 1 && estimate(self, left) > want)
        want = estimate(self, left);
    if (want > ((size_t)1 << 20) && want > 2 * a->room && !may_have(self, want - have))
        want = 2 * have + ((size_t)1 << 20);
    room = a->used + want;
    if (room > a->room && !arena_grow(ctx, device, a, room > 2 * a->room ? room : 2 * a->room))
        return COI_ERROR;
    n = want - have;
    if (n > 2 * PIECE && need - have < n)
        n = need - have > PIECE ? need - have : PIECE;
    got = coi_source_read(&self->source, arena_bytes(a) + a->filled, n, err);
    a->filled += got > 0 ? (size_t)got : 0;
    return got;
}

/* Take every carriage return out of a line, as TensorFlow does; returns what is left. */
static size_t
drop_returns(char *data, size_t nbytes)
{
    char  *to = nbytes > 0 ? memchr(data, '\r', nbytes) : NULL;
    size_t left = to != NULL ? (size_t)(to - data) : nbytes;

    for (size_t i = left; i < nbytes; ++i)
        if (data[i] != '\r')
            data[left++] = data[i];
    return left;
}

static void
arena_take(file_iterator *self, arena *a, const coi_frame *frame, const coi_framing *framing)
{
    char  *data = arena_bytes(a) + a->used + frame->begin;
    size_t nbytes = framing->drops_returns ? drop_returns(data, frame->nbytes) : frame->nbytes;

    if (framing->is_terminated)
        data[nbytes] = '\0';
    arena_texts(a)[a->rows++] = (coi_text){ data, nbytes };
    a->used += frame->consumed;
    self->varies = self->varies || (self->latest != 0 && self->latest != frame->consumed);
    self->latest = frame->consumed;
}

/* Where records follow each other without a byte between them, make room for their zeros. */
static void
spread(arena *a)
{
    for (int64_t i = a->rows; i-- > 0;) {
        coi_text *text = &arena_texts(a)[i];
        char     *data = arena_bytes(a) + (text->data - arena_bytes(a)) + i;

        memmove(data, text->data, text->nbytes);
        data[text->nbytes] = '\0';
        text->data = data;
    }
}

/* Fill the arena with records of the present file. False with an error; what comes before damage is
 * taken first. */
static bool
arena_fill(co_context *ctx, co_device *device, file_iterator *self, arena *a)
{
    const file_dataset *files = files_of(&self->base);
    bool                is_last = false;
    co_error_info       err = { .code = CO_OK }; /* a kilobyte: not for each record */

    while (a->rows < a->max_rows) {
        coi_frame frame = { 0, 0, 0, 0 };
        coi_found found = files->framing->find(&files->sizes, arena_bytes(a) + a->used,
                                               a->filled - a->used, is_last, self->record + a->rows,
                                               &frame, &err);

        if (found == COI_FOUND_RECORD)
            arena_take(self, a, &frame, files->framing);
        else if (found == COI_FOUND_MORE)
            is_last = arena_read(ctx, device, self, a, frame.need, &err) == 0;
        if (ctx->error.code != CO_OK)
            return false;
        if (found == COI_FOUND_END || (err.code != CO_OK && a->rows > 0))
            break; /* damage is found again when these records are gone */
        if (err.code != CO_OK) {
            file_error(ctx, self, &err, a->used);
            return false;
        }
    }
    return true;
}

/* Hand on what was read as a tensor; gives the rest back to the source. */
static int64_t
arena_finish(co_context *ctx, co_device *device, file_iterator *self, arena *a, int ndim,
             co_value **leaves)
{
    co_error_info err = { .code = CO_OK };

    if (a->rows > 0 && coi_source_unread(&self->source, arena_bytes(a) + a->used,
                                         a->filled - a->used, &err) != CO_OK) {
        file_error(ctx, self, &err, a->used);
        return COI_ERROR;
    }
    if (a->rows == 0)
        return COI_END;
    if (!files_of(&self->base)->framing->is_terminated)
        spread(a);
    leaves[0] = coi_tensor_over(&ctx->heap, device, CO_STRING, &a->rows, ndim, a->rows, a->buffer,
                                a->buffer->data, coi_err(ctx));
    a->buffer = NULL; /* the tensor's now */
    if (leaves[0] == NULL) {
        coi_failed(ctx);
        return COI_ERROR;
    }
    self->record += a->rows;
    self->offset += (int64_t)a->used;
    self->average = self->average == 0 ? a->used / (size_t)a->rows + 1
                                       : (self->average + a->used / (size_t)a->rows + 1) / 2;
    if (!self->varies)
        self->average = self->latest;
    return a->rows;
}

/* Up to max records of the present file; 0 at its end. */
static int64_t
read_records(co_context *ctx, file_iterator *self, int64_t max, int ndim, co_value **leaves)
{
    co_device *device = coi_data_device(ctx);
    arena      a = { .max_rows = max < MAX_ROWS ? max : MAX_ROWS };
    size_t     room = max > 1 ? estimate(self, a.max_rows) : self->latest;
    int64_t    got = COI_ERROR;

    if (device != NULL && arena_grow(ctx, device, &a, room > 64 ? room : 64) &&
        arena_fill(ctx, device, self, &a))
        got = arena_finish(ctx, device, self, &a, ndim, leaves);
    if (a.buffer != NULL)
        coi_buffer_unref(a.buffer);
    return got;
}

/* A body that is no multiple is found before its first record, where the size of the file tells. */
static co_code
check_body(const file_dataset *files, const coi_source *source, co_error_info *err)
{
    const coi_frame_sizes *s = &files->sizes;
    int64_t                body = source->size - (int64_t)s->header - (int64_t)s->footer;

    if (s->record == 0 || source->inflater != NULL || !source->is_regular ||
        (body >= 0 && body % (int64_t)s->record == 0))
        return CO_OK;
    return coi_error(
        err, CO_INVALID_ARGUMENT,
        "its %lld byte%s without a header of %zu and a footer of %zu are not a multiple of "
        "the record size, %zu",
        (long long)source->size, COI_S(source->size), s->header, s->footer, s->record);
}

static int
open_file(co_context *ctx, file_iterator *self)
{
    const file_dataset *files = files_of(&self->base);
    co_error_info       err = { .code = CO_OK };

    self->record = self->offset = 0;
    if (coi_source_open(&self->source, &ctx->runtime->memory, files->names[self->file],
                        files->options.compression, files->options.buffer_bytes, &err) == CO_OK) {
        self->is_open = true;
        if (check_body(files, &self->source, &err) == CO_OK)
            return COI_ELEMENT;
    }
    return file_error(ctx, self, &err, 0);
}

static bool
check_shares(co_context *ctx, const co_dataset *dataset)
{
    const file_dataset *files = (const file_dataset *)dataset;

    if (files->num_shares == 1 || files->all_names >= (size_t)files->num_shares)
        return true;
    coi_fail(ctx, CO_INVALID_ARGUMENT,
             "%s reads %zu file%s, fewer than the %d workers that share them; " COI_OTHER_POLICIES
             ", or use more files",
             files->framing->name, files->all_names, files->all_names == 1 ? "" : "s",
             files->num_shares);
    return false;
}

/* After an error the next file is read, so that the iteration can continue to its end. */
static int64_t
files_pull(co_context *ctx, co_iterator *iterator, int64_t max, int ndim, co_value **leaves)
{
    const file_dataset *files = files_of(iterator);
    file_iterator      *self = (file_iterator *)iterator;

    if (!check_shares(ctx, iterator->dataset))
        return COI_ERROR;
    while (self->file < files->num_names) {
        uint64_t began_ns = coi_now_ns();
        int64_t  got = self->is_open ? COI_ELEMENT : open_file(ctx, self);

        if (got == COI_ELEMENT)
            got = read_records(ctx, self, max, ndim, leaves);
        coi_count_time(iterator->counts, false, began_ns);
        if (got > 0)
            return got;
        close_file(self);
        if (got < 0)
            return got;
    }
    return COI_END;
}

static int
files_next(co_context *ctx, co_iterator *iterator, co_value **leaves)
{
    return (int)files_pull(ctx, iterator, 1, 0, leaves);
}

static int64_t
files_rows(co_context *ctx, co_iterator *iterator, int64_t max, co_value **leaves)
{
    return files_pull(ctx, iterator, max, 1, leaves);
}

/* Bring the file that was opened to `offset`: at once where it is plain, else by reading what is
 * before. */
static bool
files_seek(co_context *ctx, file_iterator *self, int64_t offset)
{
    coi_source   *source = &self->source;
    co_error_info err = { .code = CO_OK };
    char          room[4096];
    int64_t       left = offset, got = 1;

    if (source->inflater == NULL && source->is_regular) {
        coi_source_seek(source, offset);
        left = offset <= source->size ? 0 : offset;
        got = 0;
    }
    while (left > 0 && got > 0) {
        size_t n = left < (int64_t)sizeof(room) ? (size_t)left : sizeof(room);

        got = coi_source_read(source, room, n, &err);
        left -= got > 0 ? got : 0;
    }
    if (left == 0)
        return true;
    if (err.code == CO_OK)
        coi_error(&err, CO_DATA_LOSS, "it ends before the checkpoint at %lld", (long long)offset);
    file_error(ctx, self, &err, 0);
    return false;
}

static bool
files_checkpoint(co_context *ctx, co_iterator *iterator, coi_iterator_checkpoint *p)
{
    file_iterator *self = (file_iterator *)iterator;
    bool           is_open = self->is_open;
    int64_t        file = (int64_t)self->file;
    int64_t        record = is_open ? self->record : 0, offset = is_open ? self->offset : 0;

    if (!coi_checkpoint_number(ctx, p, &file, 0, (int64_t)files_of(iterator)->num_names) ||
        !coi_checkpoint_number(ctx, p, &record, 0, COI_MOST_COUNTED) ||
        !coi_checkpoint_number(ctx, p, &offset, 0, COI_MOST_COUNTED) ||
        !coi_checkpoint_flag(ctx, p, &is_open))
        return false;
    if (p->saves)
        return true;
    self->file = (size_t)file;
    if (!is_open)
        return true;
    if (self->file == files_of(iterator)->num_names)
        return coi_checkpoint_wrong(ctx, p, "there is no such file");
    if (open_file(ctx, self) != COI_ELEMENT || !files_seek(ctx, self, offset))
        return false;
    self->record = record;
    self->offset = offset;
    return true;
}

static void
files_close(coi_heap *heap, co_iterator *iterator)
{
    (void)heap;
    close_file((file_iterator *)iterator);
}

static void
files_destroy(coi_heap *heap, co_dataset *dataset)
{
    file_dataset *self = (file_dataset *)dataset;

    coi_small_free(heap, self->names, self->names_bytes);
}

static co_dataset *files_shard(co_context *ctx, co_dataset *dataset, int num, int index);

static int64_t
files_count(const co_dataset *dataset)
{
    return (int64_t)((const file_dataset *)dataset)->num_names;
}

static void
files_show(const co_dataset *dataset, coi_prose *out)
{
    const file_dataset *self = (const file_dataset *)dataset;

    coi_put(out, " (%s): %zu", self->framing->name, self->num_names);
    if (self->num_shares > 1)
        coi_put(out, " of %zu", self->all_names);
    if (self->num_names > 0)
        coi_put(out, ", the first '%s%s'", strlen(self->names[0]) > 100 ? ".../" : "",
                coi_path_end(self->names[0], 100));
}

static const coi_dataset_ops files_ops = {
    .name = "files",
    .costs = true,
    .dataset_size = sizeof(file_dataset),
    .iterator_size = sizeof(file_iterator),
    .next = files_next,
    .rows = files_rows,
    .close = files_close,
    .destroy = files_destroy,
    .shard_files = files_shard,
    .check = check_shares,
    .checkpoint = files_checkpoint,
    .show = files_show,
    .num_files = files_count,
};

/* Copy every step-th name from `first` on. */
static bool
copy_names(co_context *ctx, file_dataset *self, const char *const *names, size_t n, size_t first,
           size_t step)
{
    size_t nbytes = 0, count = 0;
    char  *at;

    for (size_t i = first; i < n; i += step, ++count)
        nbytes += sizeof(*names) + strlen(names[i]) + 1;
    self->names_bytes = nbytes > 0 ? nbytes : 1;
    self->names = coi_small_alloc(&ctx->heap, self->names_bytes);
    if (self->names == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu names of files", count);
        return false;
    }
    at = (char *)(self->names + count);
    for (size_t i = first; i < n; i += step) {
        size_t length = strlen(names[i]) + 1;

        self->names[self->num_names++] = memcpy(at, names[i], length);
        at += length;
    }
    return true;
}

static co_dataset *
files_new(co_context *ctx, const file_dataset *like, const char *const *names, size_t n,
          size_t first, size_t step)
{
    co_dataset   *dataset = coi_dataset_new(ctx, &files_ops, NULL, 0,
                                            coi_spec_new(ctx, CO_STRING, NULL, 0),
                                            CO_UNKNOWN_CARDINALITY);
    file_dataset *self = (file_dataset *)dataset;

    if (dataset == NULL)
        return NULL;
    self->framing = like->framing;
    self->sizes = like->sizes;
    self->options = like->options;
    self->all_names = n;
    self->num_shares = (int)step;
    coi_dataset_mark(dataset, (int64_t)first);
    coi_dataset_mark(dataset, (int64_t)step);
    coi_dataset_mark(dataset, (int64_t)n);
    coi_dataset_mark(dataset, (int64_t)like->sizes.record);
    for (const char *at = like->framing->name; *at != '\0'; ++at)
        coi_dataset_mark(dataset, *at);
    if (copy_names(ctx, self, names, n, first, step))
        return dataset;
    coi_unref(&ctx->heap, dataset);
    return NULL;
}

/* Sharding a shard divides its own files. */
static co_dataset *
files_shard(co_context *ctx, co_dataset *dataset, int num, int index)
{
    const file_dataset *self = (const file_dataset *)dataset;
    co_dataset         *share = files_new(ctx, self, self->names, self->num_names, (size_t)index,
                                          (size_t)num);

    if (share == NULL)
        return NULL;
    share->autoshard = dataset->autoshard;
    share->is_added = true;
    return share;
}

static bool
check_names(co_context *ctx, const char *const *files, size_t num_files)
{
    if (files == NULL && num_files > 0) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "argument 2 (files) is NULL; give the names of %zu file%s", num_files,
                 COI_S(num_files));
        return false;
    }
    for (size_t i = 0; i < num_files; ++i)
        if (files[i] == NULL || files[i][0] == '\0') {
            coi_fail(ctx, CO_INVALID_ARGUMENT, "argument 2 (files): name %zu of %zu is %s", i,
                     num_files, files[i] == NULL ? "NULL" : "empty");
            return false;
        }
    return true;
}

co_dataset *
coi_files_new(co_context *ctx, const coi_framing *framing, const coi_frame_sizes *sizes,
              const char *const *files, size_t num_files, const co_file_options *options)
{
    file_dataset like = { .framing = framing, .sizes = *sizes, .options = *options };

    return check_names(ctx, files, num_files) ? files_new(ctx, &like, files, num_files, 0, 1)
                                              : NULL;
}

const char *
coi_files_at(const co_iterator *iterator, int64_t *record)
{
    const file_iterator *self = (const file_iterator *)iterator;

    *record = self->record;
    return self->file < files_of(iterator)->num_names ? files_of(iterator)->names[self->file] : "";
}

/* What the public calls share. */
static co_dataset *
make_files(co_context *ctx, const coi_framing *framing, coi_frame_sizes sizes,
           const char *const *files, size_t num_files, const co_file_options *options, int position)
{
    co_file_options all = CO_FILE_OPTIONS_INIT;

    if (!coi_take_file_options(ctx, &all, options, position))
        return NULL;
    return coi_dataset_give(ctx, coi_files_new(ctx, framing, &sizes, files, num_files, &all));
}

co_dataset *
co_dataset_tfrecord(co_context *ctx, const char *const *files, size_t num_files,
                    const co_file_options *options)
{
    COI_ENTER(ctx, "dataset_tfrecord", NULL);
    return make_files(ctx, &coi_tfrecord_framing, (coi_frame_sizes){ 0 }, files, num_files, options,
                      4);
}

co_dataset *
co_dataset_text_lines(co_context *ctx, const char *const *files, size_t num_files,
                      const co_file_options *options)
{
    COI_ENTER(ctx, "dataset_text_lines", NULL);
    return make_files(ctx, &coi_line_framing, (coi_frame_sizes){ 0 }, files, num_files, options, 4);
}

co_dataset *
co_dataset_fixed_length_records(co_context *ctx, const char *const *files, size_t num_files,
                                int64_t record_bytes, const co_fixed_length_options *options)
{
    static const int64_t    most = PTRDIFF_MAX / 4; /* all three are added up */
    co_fixed_length_options all = CO_FIXED_LENGTH_OPTIONS_INIT;
    int64_t                 header_bytes, footer_bytes;
    coi_frame_sizes         sizes = { 0 };

    COI_ENTER(ctx, "dataset_fixed_length_records", NULL);
    if (!coi_take_options(ctx, &all, sizeof(all), options, 5))
        return NULL;
    header_bytes = all.header_bytes;
    footer_bytes = all.footer_bytes;
    if (record_bytes < 1 || record_bytes > most) {
        coi_fail(ctx, CO_INVALID_ARGUMENT, "records of %lld byte%s; one has 1 to %lld",
                 (long long)record_bytes, COI_S(record_bytes), (long long)most);
        return NULL;
    }
    if (header_bytes < 0 || footer_bytes < 0 || header_bytes > most || footer_bytes > most) {
        bool is_header = header_bytes < 0 || header_bytes > most;

        coi_fail(ctx, CO_INVALID_ARGUMENT, "a %s of %lld byte%s; it has 0 to %lld",
                 is_header ? "header" : "footer",
                 (long long)(is_header ? header_bytes : footer_bytes),
                 COI_S(is_header ? header_bytes : footer_bytes), (long long)most);
        return NULL;
    }
    sizes = (coi_frame_sizes){ (size_t)record_bytes, (size_t)header_bytes, (size_t)footer_bytes,
                               0 };
    return make_files(ctx, &coi_fixed_framing, sizes, files, num_files, all.file, 5);
}
