/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restoring. First everything is found, compared and read, with its checksum; then everything is
 * put in its place. So a checkpoint that does not fit, or is damaged, changes nothing.
 */
#include "checkpoint/checkpoint.h"

#include "io/tensor_file.h"
#include "ops/engine/call_recording.h"
#include "strategy/strategy.h"

#include <stdio.h>
#include <string.h>

#define MOST_LOOKS 10 /* of a reader, while the writer deletes what it is about to read */

/* --- the report --- */

void
coi_report_clear(coi_memory *memory, coi_report *report)
{
    for (size_t i = 0; i < report->n; ++i)
        coi_free(memory, report->at[i].text, report->at[i].nbytes);
    coi_free(memory, report->at, report->capacity * sizeof(*report->at));
    *report = (coi_report){ NULL, 0, 0 };
}

/* Whether a tensor is that of an iterator of this name, on any process. */
static bool
is_of(const char *tensor, const char *iterator, size_t n)
{
    static const char worker[] = ".worker-";

    return strncmp(tensor, iterator, n) == 0 &&
           (tensor[n] == '\0' || strncmp(tensor + n, worker, sizeof(worker) - 1) == 0);
}

static bool
note(co_context *ctx, co_checkpoint *checkpoint, coi_fate fate, const char *text)
{
    coi_memory *memory = &ctx->runtime->memory;
    coi_report *report = &checkpoint->report;
    size_t      n = strlen(text);
    char       *copy = coi_strndup(memory, text, n);

    if (copy != NULL && coi_grow(memory, (void **)&report->at, &report->capacity, report->n + 1,
                                 sizeof(*report->at))) {
        report->at[report->n++] = (coi_fated){ copy, n + 1, fate };
        return true;
    }
    coi_free(memory, copy, n + 1);
    coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to report what a checkpoint has");
    return false;
}

bool
coi_report_differs(co_context *ctx, co_checkpoint *checkpoint, const char *name, const char *text)
{
    coi_memory *memory = &ctx->runtime->memory;
    coi_report *report = &checkpoint->report;

    for (size_t i = 0; i < report->n; ++i)
        if (report->at[i].fate == COI_RESTORED && is_of(report->at[i].text, name, strlen(name))) {
            coi_free(memory, report->at[i].text, report->at[i].nbytes);
            report->at[i--] = report->at[--report->n];
        }
    return note(ctx, checkpoint, COI_DIFFERENT, text);
}

static co_value *
texts_of(co_context *ctx, const co_checkpoint *checkpoint, coi_fate fate)
{
    const coi_report *report = &checkpoint->report;
    size_t            nbytes = (report->n + 1) * sizeof(co_value *), n = 0;
    co_value        **texts = coi_small_alloc(&ctx->heap, nbytes), *list;

    if (texts == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a report");
        return NULL;
    }
    for (size_t i = 0; i < report->n; ++i)
        if (report->at[i].fate == fate)
            texts[n++] = co_string(ctx, report->at[i].text);
    list = co_list(ctx, texts, n);
    coi_small_free(&ctx->heap, texts, nbytes);
    return list;
}

co_value *
co_checkpoint_report(co_context *ctx, const co_checkpoint *checkpoint)
{
    static const char *const keys[COI_NUM_FATES] = { "restored", "missing", "unused", "different" };
    co_value                *lists[COI_NUM_FATES];

    COI_ENTER(ctx, "checkpoint_report", NULL);
    if (!coi_check_checkpoint(ctx, checkpoint))
        return NULL;
    for (int i = 0; i < COI_NUM_FATES; ++i)
        lists[i] = texts_of(ctx, checkpoint, (coi_fate)i);
    return co_dict(ctx, keys, lists, COI_NUM_FATES);
}

/* --- comparing --- */

typedef struct restoring {
    co_checkpoint   *checkpoint;
    coi_tensor_file *file;
    coi_places       places;
    char            *path;
    size_t           path_bytes;
    bool             is_ours; /* every tensor has a checksum */
} restoring;

static bool
fits(const coi_place *place, const coi_tensor_entry *entry)
{
    if (entry->info.dtype != place->dtype ||
        (entry->type->stored != COI_STORED_PLAIN && entry->type->stored != COI_STORED_BOOL))
        return false;
    if (place->is_bytes)
        return entry->info.ndim == 1;
    return entry->info.ndim == place->ndim &&
           (place->ndim == 0 ||
            memcmp(entry->info.dims, place->dims, (size_t)place->ndim * sizeof(*place->dims)) == 0);
}

static const char *
type_text(const char *dtype, const int64_t *dims, int ndim, bool is_bytes, char *out,
          size_t capacity)
{
    size_t n = (size_t)snprintf(out, capacity, "%s [", dtype);

    for (int i = 0; !is_bytes && i < ndim && n < capacity; ++i)
        n += (size_t)snprintf(out + n, capacity - n, "%s%lld", i > 0 ? ", " : "",
                              (long long)dims[i]);
    if (n < capacity)
        snprintf(out + n, capacity - n, "%s]", is_bytes ? "any" : "");
    return out;
}

static bool
note_difference(co_context *ctx, const restoring *r, const coi_place *place,
                const coi_tensor_entry *entry)
{
    char mine[200], theirs[200], text[800];

    snprintf(text, sizeof(text), "%.300s: %s in the program, %s in the checkpoint", place->name,
             type_text(co_dtype_name(place->dtype), place->dims, place->ndim, place->is_bytes, mine,
                       sizeof(mine)),
             type_text(entry->info.dtype_name, entry->info.dims, entry->info.ndim, false, theirs,
                       sizeof(theirs)));
    return note(ctx, r->checkpoint, COI_DIFFERENT, text);
}

/* Of how many processes the checkpoint has an iterator. */
static int
count_workers(const restoring *r, const coi_place *place)
{
    int n = 0;

    for (size_t i = 0; i < r->file->info.num_entries; ++i)
        n += is_of(r->file->entries[i].info.name, place->name, place->base);
    return n;
}

static bool
note_workers(co_context *ctx, const restoring *r, const coi_place *place)
{
    char text[600];
    int  theirs = count_workers(r, place);

    snprintf(text, sizeof(text),
             "%.*s: the iterator of %d process%s in the program, of %d in the checkpoint",
             (int)place->base, place->name, place->workers, place->workers == 1 ? "" : "es",
             theirs);
    return note(ctx, r->checkpoint, COI_DIFFERENT, text);
}

/* Iterators have shares of the input, which are those of so many processes. */
static bool
has_other_workers(const restoring *r, const coi_place *place)
{
    int theirs = place->workers > 0 ? count_workers(r, place) : 0;

    return theirs > 0 && theirs != place->workers;
}

/* The tensor of a place; NULL: there is none that fits. */
static const coi_tensor_entry *
fitting_entry(const restoring *r, const coi_place *place)
{
    const coi_tensor_entry *entry = coi_tensor_file_entry(r->file, place->name,
                                                          strlen(place->name));

    return entry != NULL && fits(place, entry) && !has_other_workers(r, place) ? entry : NULL;
}

/* What is to be read of a place; NULL: nothing, as is noted. */
static const coi_tensor_entry *
find_entry(co_context *ctx, const restoring *r, const coi_place *place)
{
    const coi_tensor_entry *entry = coi_tensor_file_entry(r->file, place->name,
                                                          strlen(place->name));
    bool                    fitting = fitting_entry(r, place) != NULL;

    if (!fitting && !place->is_optional) {
        if (has_other_workers(r, place))
            note_workers(ctx, r, place);
        else if (entry == NULL)
            note(ctx, r->checkpoint, COI_MISSING, place->name);
        else
            note_difference(ctx, r, place, entry);
    }
    return fitting && note(ctx, r->checkpoint, COI_RESTORED, place->name) ? entry : NULL;
}

static bool
is_place(const restoring *r, const char *name)
{
    for (size_t i = 0; i < r->places.n; ++i)
        if (strcmp(r->places.at[i].name, name) == 0 ||
            (r->places.at[i].workers > 0 &&
             is_of(name, r->places.at[i].name, r->places.at[i].base)))
            return true;
    return false;
}

static void
note_unused(co_context *ctx, const restoring *r)
{
    for (size_t i = 0; ctx->error.code == CO_OK && i < r->file->info.num_entries; ++i)
        if (!is_place(r, r->file->entries[i].info.name))
            note(ctx, r->checkpoint, COI_UNUSED, r->file->entries[i].info.name);
}

/* Without is_partial nothing may be missing or different. */
static bool
check_report(co_context *ctx, const restoring *r)
{
    const coi_report *report = &r->checkpoint->report;
    const coi_fated  *first = NULL;
    size_t            n = 0;

    if (r->checkpoint->folder.options.is_partial || ctx->error.code != CO_OK)
        return ctx->error.code == CO_OK;
    for (size_t i = 0; i < report->n; ++i)
        if (report->at[i].fate == COI_MISSING || report->at[i].fate == COI_DIFFERENT) {
            first = first != NULL ? first : &report->at[i];
            ++n;
        }
    if (n == 0)
        return true;
    coi_fail(
        ctx, CO_VALUE_ERROR,
        "'%s' does not fit the program in %zu tensor%s, and nothing was restored; the first is "
        "%s%s; co_checkpoint_report has all of them, and is_partial restores the others",
        r->path, n, COI_S(n), first->text,
        first->fate == COI_MISSING ? ", which the checkpoint does not have" : "");
    return false;
}

/* --- reading --- */

static co_code
check_sum(const restoring *r, const coi_place *place, uint32_t crc, co_error_info *err)
{
    size_t prefix = sizeof(COI_CHECKSUM_OF) - 1;
    char   seen[12];

    snprintf(seen, sizeof(seen), "%08lx", (unsigned long)crc);
    for (size_t i = 0; i < r->file->num_metadata; ++i) {
        const coi_metadata *pair = &r->file->metadata[i];

        if (strncmp(pair->key, COI_CHECKSUM_OF, prefix) == 0 &&
            strcmp(pair->key + prefix, place->name) == 0)
            return strcmp(pair->value, seen) == 0
                       ? CO_OK
                       : coi_error(err, CO_DATA_LOSS,
                                   "'%s': tensor '%.200s' has the checksum %s, and %.20s was "
                                   "written: it is damaged",
                                   r->path, place->name, seen, pair->value);
    }
    return r->is_ours ? coi_error(err, CO_DATA_LOSS,
                                  "'%s': tensor '%.200s' has no checksum: the file is damaged",
                                  r->path, place->name)
                      : CO_OK;
}

static bool
read_place(co_context *ctx, restoring *r, coi_place *place, const coi_tensor_entry *entry)
{
    coi_extent extent;
    uint32_t   crc = 0;
    co_device *host = ctx->device->host != NULL ? (co_device *)(uintptr_t)ctx->device->host
                                                : ctx->device;
    int64_t    n = 1;

    for (int i = 0; i < entry->info.ndim; ++i)
        n *= entry->info.dims[i];
    place->tensor = coi_tensor_new(&ctx->heap, host, entry->info.dtype, entry->info.dims,
                                   entry->info.ndim, n, coi_err(ctx));
    if (place->tensor != NULL &&
        r->file->format->locate(r->file, entry, &extent, coi_err(ctx)) == CO_OK &&
        coi_read_extent(&extent, 0, coi_data_on_host(place->tensor), extent.nbytes, host->team,
                        &crc, coi_err(ctx)) == CO_OK &&
        check_sum(r, place, crc, coi_err(ctx)) == CO_OK && entry->type->stored != COI_STORED_PLAIN)
        coi_decode_stored(entry->type->stored, coi_data_on_host(place->tensor),
                          coi_data_on_host(place->tensor), n);
    return coi_failed(ctx) == CO_OK;
}

static bool
read_places(co_context *ctx, restoring *r)
{
    bool ok = true;

    for (size_t i = 0; ok && i < r->places.n; ++i) {
        coi_place              *place = &r->places.at[i];
        const coi_tensor_entry *entry = fitting_entry(r, place);

        if (entry != NULL)
            ok = read_place(ctx, r, place, entry);
    }
    return ok;
}

static bool
prepare_places(co_context *ctx, restoring *r)
{
    bool ok = true;

    for (coi_state *s = r->checkpoint->states; ok && s != NULL; s = s->next)
        ok = s->kind->prepare == NULL ||
             s->kind->prepare(ctx, r->checkpoint, s, r->places.at + s->first, s->end - s->first);
    return ok;
}

static bool
put_places(co_context *ctx, restoring *r)
{
    bool ok = true;

    for (coi_state *s = r->checkpoint->states; ok && s != NULL; s = s->next)
        ok = s->kind->put(ctx, r->checkpoint, s, r->places.at + s->first, s->end - s->first);
    return ok;
}

/* Whether this library wrote the file, and not another program. */
static bool
is_ours(const coi_tensor_file *file)
{
    for (size_t i = 0; i < file->num_metadata; ++i)
        if (strcmp(file->metadata[i].key, "cohort.checkpoint") == 0)
            return true;
    return false;
}

static bool
open_step(co_context *ctx, restoring *r, int64_t step)
{
    const coi_checkpoint_folder *folder = &r->checkpoint->folder;
    char                         name[COI_CHECKPOINT_NAME];

    coi_name_of_step(step, name);
    r->path = coi_folder_path(folder, name, &r->path_bytes);
    if (r->path == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to restore a checkpoint");
        return false;
    }
    if (coi_tensor_file_open_as(folder->memory, r->path, &coi_safetensors_format, &r->file,
                                coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return false;
    }
    r->is_ours = is_ours(r->file);
    return true;
}

/* The places of the program, and what the file has for each. */
static bool
compare(co_context *ctx, restoring *r)
{
    for (coi_state *s = r->checkpoint->states; s != NULL; s = s->next)
        if (s->kind->meet != NULL && !s->kind->meet(ctx, s, r->file))
            return false;
    if (!coi_places_list(ctx, r->checkpoint, false, &r->places))
        return false;
    for (size_t i = 0; ctx->error.code == CO_OK && i < r->places.n; ++i)
        find_entry(ctx, r, &r->places.at[i]);
    note_unused(ctx, r);
    return check_report(ctx, r);
}

/* All that is done before anything changes. False with an error of this process. */
static bool
read_step(co_context *ctx, restoring *r, int64_t step)
{
    bool ok = open_step(ctx, r, step) && compare(ctx, r);

    ctx->call = "checkpoint_restore"; /* errors from here on are its own */
    ok = ok && read_places(ctx, r) && prepare_places(ctx, r);
    return coi_failed(ctx) == CO_OK && ok;
}

/* One checkpoint. False with an error: *code is CO_OK if all processes know it; else it is that of
 * the first that failed, and nothing has changed. */
static bool
restore_step(co_context *ctx, co_checkpoint *checkpoint, int64_t step, co_code *code)
{
    coi_memory *memory = &ctx->runtime->memory;
    restoring   r = { .checkpoint = checkpoint, .places = { .memory = memory } };
    bool        ok;

    coi_report_clear(memory, &checkpoint->report);
    co_block_begin(ctx);
    read_step(ctx, &r, step);
    ok = coi_checkpoint_verdict(ctx, checkpoint, "reading", code);
    if (!ok) {
        *code = CO_OK;
    } else if (*code != CO_OK) {
        ok = false;
    } else {
        put_places(ctx, &r);
        coi_failed(ctx);
        ok = coi_checkpoint_agree(ctx, checkpoint, "restoring");
    }
    coi_tensor_file_close(r.file);
    coi_free(memory, r.path, r.path_bytes);
    coi_places_free(&ctx->heap, &r.places);
    co_block_end(ctx);
    if (ok)
        checkpoint->restored = step;
    return ok;
}

/* --- choosing: all processes restore what the first one chooses --- */

/* The number of the one that was asked for, as this process has it; -1: there is none. */
static int64_t
choose_here(const co_checkpoint *checkpoint, int64_t asked)
{
    const coi_checkpoint_index *index = &checkpoint->folder.index;
    const coi_saved            *saved = NULL;

    if (asked == CO_CHECKPOINT_LAST)
        saved = index->n > 0 ? &index->at[index->n - 1] : NULL;
    else if (asked == CO_CHECKPOINT_BEST)
        saved = coi_index_best(index, checkpoint->folder.options.better);
    else
        saved = coi_index_find(index, asked);
    return saved != NULL ? saved->step : -1;
}

/* The one before a damaged one. */
static int64_t
before_here(const co_checkpoint *checkpoint, int64_t step)
{
    const coi_checkpoint_index *index = &checkpoint->folder.index;
    int64_t                     before = -1;

    for (size_t i = 0; i < index->n && index->at[i].step < step; ++i)
        before = index->at[i].step;
    return before;
}

/* The first one's number; -1: there is none, or there is an error. */
static int64_t
first_says(co_context *ctx, co_checkpoint *checkpoint, int64_t step)
{
    return coi_checkpoint_first(ctx, checkpoint, "choosing", &step) ? step : -1;
}

static co_code
fail_not_found(co_context *ctx, const co_checkpoint *checkpoint, int64_t asked)
{
    const coi_checkpoint_index *index = &checkpoint->folder.index;

    if (asked < 0)
        return CO_OK; /* nothing was saved so far */
    return coi_fail(ctx, CO_NOT_FOUND,
                    "there is no checkpoint %lld in '%s'; there are %zu, %lld to %lld",
                    (long long)asked, checkpoint->folder.path, index->n,
                    (long long)(index->n > 0 ? index->at[0].step : -1),
                    (long long)(index->n > 0 ? index->at[index->n - 1].step : -1));
}

/* What comes after a checkpoint that could not be restored, with `code`; -1: nothing. A damaged one
 * is skipped where the last one was asked for. A reader looks again: the writer may have deleted
 * the file meanwhile. */
static int64_t
choose_next(co_context *ctx, co_checkpoint *checkpoint, int64_t asked, int64_t step, co_code code,
            int attempt)
{
    int64_t       next = -1;
    co_error_info err;

    if (code == CO_DATA_LOSS && asked == CO_CHECKPOINT_LAST) {
        next = first_says(ctx, checkpoint, before_here(checkpoint, step));
        if (next >= 0)
            coi_log_line(&ctx->runtime->log, CO_LOG_WARNING,
                         "checkpoint %lld is skipped for %lld: %s", (long long)step,
                         (long long)next,
                         ctx->error.code != CO_OK ? ctx->error.message
                                                  : "another process says why");
    } else if (code == CO_NOT_FOUND && asked < 0 && checkpoint->folder.options.is_reader &&
               coi_checkpoint_workers(checkpoint) == 1 && attempt < MOST_LOOKS &&
               coi_folder_look(&checkpoint->folder, &err) == CO_OK) {
        next = choose_here(checkpoint, asked);
    }
    return next;
}

static co_code
restore(co_context *ctx, co_checkpoint *checkpoint, int64_t asked)
{
    int64_t step = first_says(ctx, checkpoint, choose_here(checkpoint, asked));
    co_code code;

    if (step < 0)
        return ctx->error.code == CO_OK ? fail_not_found(ctx, checkpoint, asked) : ctx->error.code;
    for (int attempt = 0; !restore_step(ctx, checkpoint, step, &code) && code != CO_OK; ++attempt) {
        int64_t next = choose_next(ctx, checkpoint, asked, step, code, attempt);

        if (next < 0) {
            coi_checkpoint_spread(ctx, checkpoint, "reading");
            break;
        }
        coi_error_reset(&ctx->error);
        step = next;
    }
    return ctx->error.code;
}

co_code
co_checkpoint_restore(co_context *ctx, co_checkpoint *checkpoint,
                      const co_checkpoint_restore_options *options)
{
    co_checkpoint_restore_options all = CO_CHECKPOINT_RESTORE_OPTIONS_INIT;
    char                          text[48];

    COI_ENTER_CODE(ctx, "checkpoint_restore");
    if (!coi_check_checkpoint(ctx, checkpoint) ||
        !coi_take_options(ctx, &all, sizeof(all), options, 3))
        return ctx->error.code;
    if (all.step < CO_CHECKPOINT_BEST)
        return coi_fail(
            ctx, CO_VALUE_ERROR,
            "options->step is %lld; give CO_CHECKPOINT_LAST, CO_CHECKPOINT_BEST, or the "
            "number of a checkpoint",
            (long long)all.step);
    if (!coi_check_states(ctx, checkpoint))
        return ctx->error.code;
    coi_save_join(checkpoint);
    if (coi_tell_failure(ctx, checkpoint) == CO_OK && checkpoint->folder.lock < 0 &&
        coi_folder_look(&checkpoint->folder, coi_err(ctx)) != CO_OK)
        coi_failed(ctx);
    snprintf(text, sizeof(text), "restoring number %lld", (long long)all.step);
    if (coi_checkpoint_agree(ctx, checkpoint, text))
        restore(ctx, checkpoint, all.step);
    ctx->call = "checkpoint_restore";
    return ctx->error.code;
}
