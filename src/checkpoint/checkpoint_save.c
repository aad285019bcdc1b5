/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving. The calling thread takes references to tensors, which never change: a variable that is
 * updated meanwhile gets another one. So the picture is consistent and costs nothing, and a thread
 * of its own computes the checksums, writes the file, and brings it to the disk. Its file has
 * another name until it is whole.
 */
#include "checkpoint/checkpoint.h"

#include "base/text.h"
#include "io/crc32c.h"
#include "io/file_writer.h"
#include "io/tensor_file.h"
#include "ops/engine/call_recording.h"
#include "strategy/strategy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define NICE 10 /* of the thread that writes: steps come first */

/* A checkpoint on its way to the disk. */
struct coi_save_job {
    co_checkpoint     *checkpoint;
    coi_thread        *thread; /* NULL: it was written by the caller */
    coi_heap          *heap;   /* of whoever writes */
    co_context        *ctx;    /* of the thread */
    coi_places         places;
    coi_tensor_source *sources;
    coi_metadata      *metadata;
    char              *texts; /* of the metadata */
    size_t             texts_bytes, used;
    size_t             num_metadata;
    coi_saved          saved;
    char               note[200];
    co_error_info      err;
};

/* --- on the thread that writes --- */

#define MOST_TEXT 400 /* a pair of metadata, but for the name of a tensor */

static void
add_metadata(coi_save_job *job, const char *key, const char *value)
{
    coi_metadata *pair = &job->metadata[job->num_metadata++];
    size_t        key_bytes = strlen(key), value_bytes = strlen(value);
    char         *at = job->texts + job->used;

    memcpy(at, key, key_bytes + 1);
    memcpy(at + key_bytes + 1, value, value_bytes + 1);
    *pair = (coi_metadata){ at, at + key_bytes + 1, key_bytes, value_bytes };
    job->used += key_bytes + value_bytes + 2;
}

static void
add_number(coi_save_job *job, const char *key, int64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, number);
    add_metadata(job, key, text);
}

/* "crc32c.NAME" for every tensor: data comes after the metadata, so it is read twice. */
static void
add_checksum(coi_save_job *job, const coi_tensor_source *source, char *room)
{
    char text[12];

    snprintf(text, sizeof(text), "%08" PRIx32, coi_crc32c(source->data, (size_t)source->nbytes));
    memcpy(room, COI_CHECKSUM_OF, sizeof(COI_CHECKSUM_OF) - 1);
    memcpy(room + sizeof(COI_CHECKSUM_OF) - 1, source->name, source->name_nbytes + 1);
    add_metadata(job, room, text);
}

static bool
describe(coi_save_job *job)
{
    coi_memory *memory = job->places.memory;
    size_t      longest = 0, all = 10 * MOST_TEXT;
    char       *room;

    for (size_t i = 0; i < job->places.n; ++i) {
        size_t n = job->sources[i].name_nbytes;

        longest = n > longest ? n : longest;
        all += n + MOST_TEXT;
    }
    job->texts = coi_alloc(memory, all);
    job->texts_bytes = all;
    job->metadata = coi_alloc(memory, (job->places.n + 8) * sizeof(*job->metadata));
    room = coi_alloc(memory, longest + MOST_TEXT);
    if (job->texts != NULL && job->metadata != NULL && room != NULL) {
        const co_strategy *strategy = job->checkpoint->strategy;

        add_metadata(job, "cohort.checkpoint", "1");
        add_number(job, "cohort.step", job->saved.step);
        add_number(job, "cohort.replicas", strategy != NULL ? strategy->num_replicas : 1);
        if (job->note[0] != '\0')
            add_metadata(job, "cohort.note", job->note);
        for (size_t i = 0; i < job->places.n; ++i)
            add_checksum(job, &job->sources[i], room);
    } else {
        coi_error(&job->err, CO_RESOURCE_EXHAUSTED, "no memory to write a checkpoint");
    }
    coi_free(memory, room, longest + MOST_TEXT);
    return job->err.code == CO_OK;
}

static void
write_file(coi_save_job *job, const char *path)
{
    coi_file_writer writer;

    if (coi_folder_begin(&job->checkpoint->folder, path, &writer, &job->err) != CO_OK)
        return;
    if (coi_safetensors_write(&writer, job->sources, job->places.n, job->metadata,
                              job->num_metadata, true, &job->err) == CO_OK)
        coi_file_writer_commit(&writer, true, &job->err);
    job->saved.nbytes = writer.nbytes;
    coi_file_writer_end(&writer, job->err.code != CO_OK);
}

static void
write_checkpoint(coi_save_job *job)
{
    coi_checkpoint_folder *folder = &job->checkpoint->folder;
    char                   name[COI_CHECKPOINT_NAME], *path;
    size_t                 nbytes;

    coi_name_of_step(job->saved.step, name);
    path = coi_folder_path(folder, name, &nbytes);
    if (path == NULL)
        coi_error(&job->err, CO_RESOURCE_EXHAUSTED, "no memory to write a checkpoint");
    else if (describe(job))
        write_file(job, path);
    coi_free(job->places.memory, path, nbytes);
    if (job->err.code == CO_OK)
        coi_folder_add(folder, &job->saved, &job->err);
    coi_places_free(job->heap, &job->places); /* memory of the values, before anybody waits */
}

static void
writer_main(void *arg)
{
    coi_save_job *job = arg;

    setpriority(PRIO_PROCESS, 0, NICE); /* of this thread; a wish */
    write_checkpoint(job);
}

/* --- on the calling thread --- */

static void
free_job(coi_heap *heap, coi_save_job *job, size_t n)
{
    coi_memory *memory = job->places.memory;

    coi_places_free(heap, &job->places);
    coi_free(memory, job->sources, (n + 1) * sizeof(*job->sources));
    coi_free(memory, job->metadata, (n + 8) * sizeof(*job->metadata));
    coi_free(memory, job->texts, job->texts_bytes);
    coi_free(memory, job, sizeof(*job));
}

void
coi_save_join(co_checkpoint *checkpoint)
{
    coi_save_job *job = checkpoint->job;

    if (job == NULL)
        return;
    coi_thread_join(&checkpoint->runtime->memory, job->thread); /* before it, job is the thread's */
    if (job->ctx != NULL)
        coi_context_free(job->ctx);
    if (job->err.code != CO_OK && checkpoint->failure.code == CO_OK) {
        checkpoint->failure = job->err;
        checkpoint->failed_step = job->saved.step;
    }
    checkpoint->job = NULL;
    free_job(NULL, job, checkpoint->job_places);
}

co_code
coi_tell_failure(co_context *ctx, co_checkpoint *checkpoint)
{
    co_error_info failure = checkpoint->failure;

    if (failure.code == CO_OK)
        return CO_OK;
    coi_error_reset(&checkpoint->failure);
    return coi_fail(ctx, failure.code,
                    "checkpoint %lld was not written, those before it are as they were: %s",
                    (long long)checkpoint->failed_step, failure.message);
}

/* What is written: bytes of the host that stay as long as the places. */
static bool
make_sources(co_context *ctx, coi_save_job *job)
{
    job->sources = coi_calloc(job->places.memory, (job->places.n + 1) * sizeof(*job->sources));
    if (job->sources == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to write a checkpoint");
        return false;
    }
    for (size_t i = 0; i < job->places.n; ++i) {
        coi_place *place = &job->places.at[i];
        co_value  *host = coi_host_value(ctx, place->tensor);

        if (host == NULL)
            return false;
        if (host != place->tensor) { /* a copy, of the block */
            coi_ref(host);
            coi_unref(&ctx->heap, place->tensor);
            place->tensor = host;
        }
        job->sources[i] = (coi_tensor_source){ .name = place->name,
                                               .name_nbytes = strlen(place->name),
                                               .dtype = (co_dtype)host->dtype,
                                               .ndim = host->ndim,
                                               .dims = host->u.tensor.dims,
                                               .data = coi_data_on_host(host),
                                               .nbytes = coi_tensor_nbytes(host) };
    }
    return true;
}

/* In the background if there is a thread to be had, else here. */
static void
start(co_context *ctx, co_checkpoint *checkpoint, coi_save_job *job)
{
    coi_runtime  *runtime = ctx->runtime;
    co_error_info err;

    coi_error_reset(&err);
    if (!checkpoint->folder.options.waits && (job->ctx = coi_context_new(runtime)) != NULL) {
        job->heap = &job->ctx->heap;
        if (coi_thread_start(&runtime->memory, "co-checkpoint", NULL, 0, 0, writer_main, job,
                             &job->thread, &err) == CO_OK)
            return;
        coi_context_free(job->ctx);
        job->ctx = NULL;
    }
    job->heap = &ctx->heap;
    write_checkpoint(job);
    coi_save_join(checkpoint);
}

/* As many whole characters as there is room for. */
static void
take_note(coi_save_job *job, const char *note)
{
    size_t n = 0, length;

    while (note[n] != '\0' && (length = coi_utf8_length(note + n)) > 0 &&
           n + length < sizeof(job->note))
        n += length;
    memcpy(job->note, note, n);
    job->note[n] = '\0';
}

static coi_save_job *
new_job(co_context *ctx, co_checkpoint *checkpoint, int64_t step,
        const co_checkpoint_save_options *options)
{
    coi_save_job *job = coi_calloc(&ctx->runtime->memory, sizeof(*job));

    if (job == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory to write a checkpoint");
        return NULL;
    }
    job->checkpoint = checkpoint;
    job->places.memory = &ctx->runtime->memory;
    job->saved = (coi_saved){ step, 0, options->value };
    if (options->note != NULL)
        take_note(job, options->note);
    coi_error_reset(&job->err);
    return job;
}

/* Take the picture, and have it written by the first process. Errors are those of this process. */
static void
save(co_context *ctx, co_checkpoint *checkpoint, coi_save_job *job)
{
    bool ok;

    co_block_begin(ctx);
    ok = coi_places_list(ctx, checkpoint, true, &job->places);
    ctx->call = "checkpoint_save"; /* errors from here on are its own */
    ok = ok && make_sources(ctx, job);
    co_block_end(ctx);
    checkpoint->job_places = job->places.n;
    if (ok && coi_checkpoint_worker(checkpoint) == 0) {
        checkpoint->job = job;
        start(ctx, checkpoint, job);
    } else {
        free_job(&ctx->heap, job, job->places.n);
    }
}

co_code
co_checkpoint_save(co_context *ctx, co_checkpoint *checkpoint, int64_t step,
                   const co_checkpoint_save_options *options)
{
    co_checkpoint_save_options all = CO_CHECKPOINT_SAVE_OPTIONS_INIT;
    coi_save_job              *job;
    char                       text[48];

    COI_ENTER_CODE(ctx, "checkpoint_save");
    if (!coi_check_checkpoint(ctx, checkpoint) ||
        !coi_take_options(ctx, &all, sizeof(all), options, 4))
        return ctx->error.code;
    if (step < 0)
        return coi_fail(ctx, CO_VALUE_ERROR, "step is %lld; it must not be negative",
                        (long long)step);
    if (checkpoint->folder.options.is_reader)
        return coi_fail(ctx, CO_FAILED_PRECONDITION,
                        "the checkpoint was opened with is_reader; open one without it to save");
    if (!coi_check_states(ctx, checkpoint))
        return ctx->error.code;
    coi_save_join(checkpoint);
    snprintf(text, sizeof(text), "saving number %lld", (long long)step);
    job = new_job(ctx, checkpoint, step, &all);
    if (job != NULL)
        coi_states_take(ctx, checkpoint);
    if (coi_checkpoint_agree(ctx, checkpoint, text)) {
        save(ctx, checkpoint, job);
        if (ctx->error.code == CO_OK)
            coi_tell_failure(ctx, checkpoint);
        coi_checkpoint_agree(ctx, checkpoint, text);
    } else if (job != NULL) {
        free_job(&ctx->heap, job, 0);
    }
    ctx->call = "checkpoint_save";
    return ctx->error.code;
}

co_code
co_checkpoint_wait(co_context *ctx, co_checkpoint *checkpoint)
{
    COI_ENTER_CODE(ctx, "checkpoint_wait");
    if (!coi_check_checkpoint(ctx, checkpoint))
        return ctx->error.code;
    coi_save_join(checkpoint);
    coi_tell_failure(ctx, checkpoint);
    coi_checkpoint_agree(ctx, checkpoint, "waiting for the disk");
    return ctx->error.code;
}
