/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: writing entries, and showing them to a visitor, as text, in the log and in a
 * file. Times are taken from the counter of the processor where there is one, because the clock
 * costs as much as the rest of an entry; they become microseconds when entries are read.
 */
#include "strategy/flight_recorder.h"

#include "base/text.h"
#include "strategy/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NUM_SLOTS    64
#define LINES_LOGGED 8
#define SITE_BYTES   40
#define TEXT_BYTES   48
#define NUM_SEEN     256 /* the number of replicas whose arrivals are recorded */
#define LINE_BYTES   640
#define ALL_CAME     (-1)

/* An entry as it is filled and read. */
typedef struct entry {
    uint64_t head; /* first: the number of the entry, and whether it is whole; see HEAD */
    uint64_t end;  /* ticks; 0: it waits */
    int32_t  outcome, arrived;
    uint64_t came[NUM_SEEN / 64];
    /* What stays as it was begun. */
    uint64_t epoch, sequence, start;
    int32_t  kind, expected, line;
    uint32_t round;
    uint64_t step;             /* the address of a step, which lives as long as the strategy */
    char     what[TEXT_BYTES]; /* a summary, or, of ranks, words */
    char     site[SITE_BYTES]; /* the end of the path */
} entry;

#define NUM_WORDS     (sizeof(entry) / sizeof(uint64_t))
#define WORD_OF(name) (offsetof(entry, name) / sizeof(uint64_t))
_Static_assert(sizeof(entry) % sizeof(uint64_t) == 0, "an entry is a number of words");
_Static_assert(sizeof(coi_summary) <= TEXT_BYTES, "a summary fits where words do");
_Static_assert(COI_MAX_LOCAL_REPLICAS <= NUM_SEEN, "every replica is remembered");

/*
 * The head of a slot: the number of its entry, how often that was updated, and whether it is
 * being written. Writers take the slot by setting the last bit; readers try again where it
 * was set, or where the head has changed while they read.
 */
#define HEAD(number)    ((uint64_t)(number) << 8)
#define NUMBER_OF(head) ((head) >> 8)
#define WRITING         UINT64_C(1)
#define UPDATES         UINT64_C(0xfe)
#define TRIES           1000 /* then the writer does not exist: this is a forked child */

typedef struct slot {
    _Alignas(64) _Atomic uint64_t words[NUM_WORDS];
} slot;

struct coi_recorder {
    atomic_ullong last; /* number of the youngest entry */
    atomic_bool   trouble;
    uint64_t      began_ticks, began_ns;
    slot          slots[NUM_SLOTS];
};

static inline uint64_t
ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return coi_now_ns();
#endif
}

/* Nanoseconds in a number of ticks, by how many there were since the recorder began. */
static double
ns_per_tick(const coi_recorder *recorder)
{
    uint64_t gone = ticks() - recorder->began_ticks;

    return gone > 0 ? (double)(coi_now_ns() - recorder->began_ns) / (double)gone : 1;
}

coi_recorder *
coi_recorder_new(coi_memory *memory)
{
    coi_recorder *recorder = coi_calloc(memory, sizeof(*recorder));

    if (recorder != NULL) {
        recorder->began_ticks = ticks();
        recorder->began_ns = coi_now_ns();
    }
    return recorder;
}

void
coi_recorder_free(coi_memory *memory, coi_recorder *recorder)
{
    coi_free(memory, recorder, sizeof(*recorder));
}

/* --- what is brought --- */

void
coi_summarise(const co_value *value, coi_summary *out)
{
    coi_shape shape;
    co_dtype  dtype;

    *out = (coi_summary){ .num_leaves = 0 };
    if (value == NULL)
        return;
    if (coi_is_structure(value)) {
        out->num_leaves = (uint32_t)coi_count_leaves(value);
        while (coi_is_structure(value) && value->u.items.n > 0)
            value = value->u.items.items[0];
    } else {
        out->num_leaves = 1;
    }
    out->kind = value->kind;
    if (coi_kind_of(value)->describe != NULL) {
        coi_kind_of(value)->describe(value, &shape, &dtype);
        out->dtype = (uint8_t)dtype;
        out->ndim = (int8_t)shape.ndim;
    }
    for (int d = 0; d < out->ndim && d < 4; ++d)
        out->dims[d] = shape.dims[d];
}

const char *
coi_summary_text(const coi_summary *summary, char out[COI_SUMMARY_TEXT])
{
    const char *kind = summary->kind == CO_KIND_TENSOR ? "" : co_kind_name((co_kind)summary->kind);
    size_t      at;

    if (summary->num_leaves == 0) {
        out[0] = '\0';
        return out;
    }
    if (summary->dtype == CO_DTYPE_NONE)
        at = (size_t)snprintf(out, COI_SUMMARY_TEXT, "%s", kind);
    else
        at = (size_t)snprintf(out, COI_SUMMARY_TEXT, "%s%s%s [", kind, kind[0] != '\0' ? " " : "",
                              co_dtype_name((co_dtype)summary->dtype));
    for (int d = 0; d < summary->ndim && d < 4; ++d)
        at += (size_t)snprintf(out + at, COI_SUMMARY_TEXT - at, "%s%lld", d > 0 ? "," : "",
                               (long long)summary->dims[d]);
    if (summary->dtype != CO_DTYPE_NONE)
        at += (size_t)snprintf(out + at, COI_SUMMARY_TEXT - at, "%s]",
                               summary->ndim > 4 ? ",..." : "");
    if (summary->num_leaves > 1)
        snprintf(out + at, COI_SUMMARY_TEXT - at, " and %u more", summary->num_leaves - 1);
    return out;
}

/* --- writing --- */

/* Words [first, end) of an entry. Release: a reader that sees one of them sees that the number was
 * taken away before. */
static void
put_words(slot *to, const entry *from, size_t first, size_t end)
{
    uint64_t words[NUM_WORDS];

    memcpy(words, from, sizeof(words));
    for (size_t i = first; i < end; ++i)
        atomic_store_explicit(&to->words[i], words[i], memory_order_release);
}

static slot *
slot_of(coi_recorder *recorder, uint64_t number)
{
    return &recorder->slots[number % NUM_SLOTS];
}

/*
 * Take the slot for writing: for a new entry, unless a younger one is there, or to update the entry
 * of that number. `head` gets what the slot is given back with. A writer that holds it stores
 * a few words, so there is nothing to wait for but the processor.
 */
static bool
take_slot(slot *to, uint64_t number, bool is_new, uint64_t *head)
{
    uint64_t now = atomic_load_explicit(&to->words[0], memory_order_acquire);

    for (int i = 0; i < TRIES; ++i) {
        if (is_new ? NUMBER_OF(now) > number : NUMBER_OF(now) != number)
            return false;
        *head = HEAD(number) | (is_new ? 0 : (now + 2) & UPDATES);
        if ((now & WRITING) == 0 &&
            atomic_compare_exchange_weak_explicit(&to->words[0], &now, *head | WRITING,
                                                  memory_order_acq_rel, memory_order_acquire))
            return true;
        if ((now & WRITING) != 0) {
            sched_yield();
            now = atomic_load_explicit(&to->words[0], memory_order_acquire);
        }
    }
    return false;
}

uint64_t
coi_flight_begin(coi_recorder *recorder, const coi_flight *flight)
{
    uint64_t number = atomic_fetch_add_explicit(&recorder->last, 1, memory_order_relaxed) + 1;
    entry    e = { .outcome = CO_OK };
    slot    *to = slot_of(recorder, number);

    e.epoch = flight->epoch;
    e.sequence = flight->sequence;
    e.start = ticks();
    e.kind = flight->kind;
    e.expected = flight->expected;
    e.step = (uint64_t)(uintptr_t)flight->step;
    e.round = flight->round;
    if (flight->text != NULL)
        coi_text_line(e.what, sizeof(e.what), "%s", flight->text);
    else
        memcpy(e.what, flight->summary, sizeof(*flight->summary));
    if (flight->site.file != NULL) { /* a copy: bindings may free it after the call */
        size_t length = strlen(flight->site.file);
        size_t cut = length < SITE_BYTES ? 0 : length - SITE_BYTES + 1;

        memcpy(e.site, flight->site.file + cut, length - cut);
        e.line = flight->site.line;
    }
    if (take_slot(to, number, true, &e.head)) {
        put_words(to, &e, 1, NUM_WORDS);
        atomic_store_explicit(&to->words[0], e.head, memory_order_release);
    }
    return number;
}

/* The words of an entry that change: its end, its outcome, the arrivals. Entries that are not there
 * any more are left alone. */
static void
put_state(coi_recorder *recorder, uint64_t number, entry *e)
{
    slot *to = number != 0 ? slot_of(recorder, number) : NULL; /* alone nothing is recorded */

    if (to == NULL || !take_slot(to, number, false, &e->head))
        return;
    put_words(to, e, WORD_OF(end), WORD_OF(epoch));
    atomic_store_explicit(&to->words[0], e->head, memory_order_release);
}

void
coi_flight_met(coi_recorder *recorder, uint64_t number)
{
    entry e = { .outcome = CO_OK, .arrived = ALL_CAME };

    put_state(recorder, number, &e);
}

void
coi_flight_end(coi_recorder *recorder, uint64_t number, co_code outcome)
{
    entry e = { .outcome = outcome, .arrived = ALL_CAME };

    e.end = ticks();
    put_state(recorder, number, &e);
}

void
coi_flight_cut(coi_recorder *recorder, uint64_t number, co_code outcome, int n, coi_came_fn came,
               const void *arg)
{
    entry e = { .outcome = outcome };

    e.end = ticks();
    for (int i = 0; i < n; ++i)
        if (came(arg, i)) {
            ++e.arrived;
            if (i < NUM_SEEN)
                e.came[i / 64] |= UINT64_C(1) << i % 64;
        }
    put_state(recorder, number, &e);
}

void
coi_flight_trouble(coi_recorder *recorder)
{
    if (recorder != NULL)
        atomic_store(&recorder->trouble, true);
}

bool
coi_flight_take_trouble(coi_recorder *recorder)
{
    return recorder != NULL && atomic_exchange(&recorder->trouble, false);
}

/* --- looking --- */

/* The entry of this number as it is at one moment; false where it is not there, or not yet. */
static bool
read_entry(coi_recorder *recorder, uint64_t number, entry *out)
{
    slot    *from = slot_of(recorder, number);
    uint64_t words[NUM_WORDS];

    for (int i = 0; i < TRIES; ++i) {
        for (size_t k = 0; k < NUM_WORDS; ++k)
            words[k] = atomic_load_explicit(&from->words[k], memory_order_acquire);
        if (NUMBER_OF(words[0]) != number)
            return false;
        if ((words[0] & WRITING) == 0 &&
            atomic_load_explicit(&from->words[0], memory_order_acquire) == words[0]) {
            memcpy(out, words, sizeof(words));
            return true;
        }
        sched_yield();
    }
    return false;
}

/* The replicas that have come to a rendezvous that waits. */
static void
look_who_came(entry *e)
{
    const coi_step *step = (const coi_step *)(uintptr_t)e->step;

    if (e->end != 0 || e->arrived == ALL_CAME || step == NULL || coi_round(step) != e->round)
        return;
    for (int i = 0; i < e->expected; ++i)
        if (atomic_load(&step->slots[i].arrived)) {
            ++e->arrived;
            e->came[i / 64] |= UINT64_C(1) << i % 64;
        }
}

/* "replica 1, replica 3" */
static void
list_missing(const entry *e, int first, char *out, size_t capacity)
{
    const char *who = e->step != 0 ? "replica" : "rank";
    size_t      at = 0;

    out[0] = '\0';
    for (int i = 0; i < e->expected && i < NUM_SEEN; ++i)
        if ((e->came[i / 64] >> i % 64 & 1) == 0) {
            if (at + 24 > capacity) {
                memcpy(out + at, ", ...", 6);
                return;
            }
            at += (size_t)snprintf(out + at, capacity - at, "%s%s %d", at > 0 ? ", " : "", who,
                                   first + i);
        }
}

co_code
co_flight_visit(co_context *ctx, const co_strategy *strategy, co_flight_fn fn, void *user)
{
    co_strategy *held = (co_strategy *)(uintptr_t)strategy; /* counted, else as it is */
    size_t       floor;

    COI_ENTER_ALWAYS(ctx, "flight_visit", CO_INVALID_ARGUMENT); /* it is read after failures */
    if (fn == NULL)
        return coi_fail(ctx, CO_TYPE_ERROR,
                        "argument 3 (fn) of flight_visit is NULL; give a function");
    if (!coi_check_object(ctx, strategy, &coi_strategy_class, 2, "strategy"))
        return ctx->error.code;
    coi_ref(held); /* the visitor may release it */
    floor = coi_function_begin(ctx);
    coi_flight_visit(held, 1, fn, user);
    coi_function_end(ctx, floor);
    coi_unref(&ctx->heap, held);
    return CO_OK;
}

void
coi_flight_visit(const co_strategy *strategy, uint64_t since, co_flight_fn fn, void *user)
{
    coi_recorder *recorder = strategy->recorder;
    uint64_t      last, now = ticks();
    double        ns;

    if (recorder == NULL)
        return;
    last = atomic_load_explicit(&recorder->last, memory_order_acquire);
    ns = ns_per_tick(recorder);
    if (last > NUM_SLOTS && since < last - NUM_SLOTS + 1)
        since = last - NUM_SLOTS + 1;
    for (uint64_t number = since; number <= last; ++number) {
        co_flight_record record = { .struct_size = sizeof(record), .number = number };
        char             missing[160] = "", what[COI_SUMMARY_TEXT];
        entry            e;

        if (!read_entry(recorder, number, &e))
            continue;
        look_who_came(&e);
        if (e.arrived != ALL_CAME && e.arrived < e.expected)
            list_missing(&e, e.step != 0 ? strategy->first_local : 0, missing, sizeof(missing));
        record.epoch = e.epoch;
        record.sequence = e.sequence;
        record.between_ranks = e.step == 0;
        record.kind = coi_rendezvous_name((coi_rendezvous_kind)e.kind);
        if (e.step != 0) {
            coi_summary summary;

            memcpy(&summary, e.what, sizeof(summary));
            record.what = coi_summary_text(&summary, what);
        } else {
            record.what = e.what;
        }
        record.file = e.site;
        record.line = e.line;
        record.expected = e.expected;
        record.arrived = e.arrived == ALL_CAME ? e.expected : e.arrived;
        record.missing = missing;
        record.is_waiting = e.end == 0;
        record.outcome = (co_code)e.outcome;
        record.start_us = (int64_t)((double)(e.start - recorder->began_ticks) * ns / 1e3);
        record.duration_us = (int64_t)((double)((e.end != 0 ? e.end : now) - e.start) * ns / 1e3);
        fn(&record, user);
    }
}

static size_t
format_record(const co_flight_record *r, char out[LINE_BYTES])
{
    char site[SITE_BYTES + 24] = "";

    if (r->file[0] != '\0')
        snprintf(site, sizeof(site), " at %s:%d", r->file, r->line);
    return coi_text_line(
        out, LINE_BYTES,
        "%llu: run %llu, rendezvous %llu: %s%s%s%s; %d of %d %s%s%s; %s; at %lld us, %s %lld us",
        (unsigned long long)r->number, (unsigned long long)r->epoch,
        (unsigned long long)r->sequence, r->kind, r->what[0] != '\0' ? " of " : "", r->what, site,
        r->arrived, r->expected, r->between_ranks ? "ranks" : "replicas",
        r->missing[0] != '\0' ? ", without " : "", r->missing,
        r->is_waiting ? "waiting" : co_code_name(r->outcome), (long long)r->start_us,
        r->is_waiting ? "for" : "took", (long long)r->duration_us);
}

/* --- text, log, file --- */

typedef struct text {
    char  *out;
    size_t capacity, length;
} text;

static void
add_line(const co_flight_record *record, void *user)
{
    text  *t = user;
    char   line[LINE_BYTES + 1];
    size_t n = format_record(record, line);

    line[n++] = '\n';
    for (size_t i = 0; i < n; ++i, ++t->length)
        if (t->length + 1 < t->capacity)
            t->out[t->length] = line[i];
}

size_t
co_flight_format(co_context *ctx, const co_strategy *strategy, char *out, size_t capacity)
{
    text t = { out, capacity, 0 };

    COI_ENTER_ALWAYS(ctx, "flight_format", 0);
    if (out == NULL && capacity > 0) {
        coi_fail(ctx, CO_TYPE_ERROR,
                 "argument 3 (out) of flight_format is NULL, and capacity is %zu; give 0 to learn "
                 "how many bytes are needed",
                 capacity);
        return 0;
    }
    if (!coi_check_object(ctx, strategy, &coi_strategy_class, 2, "strategy"))
        return 0;
    coi_flight_visit(strategy, 1, add_line, &t);
    if (capacity > 0)
        out[t.length < capacity ? t.length : capacity - 1] = '\0';
    return t.length;
}

typedef struct file {
    int fd;
    int error; /* errno of the first failure */
} file;

static void
write_bytes(file *f, const char *bytes, size_t n)
{
    while (n > 0 && f->error == 0) {
        ssize_t written = write(f->fd, bytes, n);

        if (written > 0) {
            bytes += written;
            n -= (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            f->error = written == 0 ? ENOSPC : errno;
        }
    }
}

static void
write_record(const co_flight_record *record, void *user)
{
    char   line[LINE_BYTES + 1];
    size_t n = format_record(record, line);

    line[n++] = '\n';
    write_bytes(user, line, n);
}

/* 0, or errno. Under a name of its own first, so that no reader finds half a file. */
static int
save(const co_strategy *strategy, const char *path)
{
    char partial[640], head[COI_STRATEGY_TEXT + 80], who[COI_STRATEGY_TEXT];
    int  n = snprintf(partial, sizeof(partial), "%s.%ld.partial", path, (long)getpid());
    file f = { .error = 0 };

    if ((size_t)n >= sizeof(partial))
        return ENAMETOOLONG;
    f.fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f.fd < 0)
        return errno;
    n = snprintf(head, sizeof(head), "%s, rank %d of %d, process %ld\n",
                 coi_strategy_text(strategy, who), strategy->worker, strategy->num_workers,
                 (long)getpid());
    write_bytes(&f, head, (size_t)n);
    coi_flight_visit(strategy, 1, write_record, &f);
    if (close(f.fd) != 0 && f.error == 0)
        f.error = errno;
    if (f.error == 0 && rename(partial, path) != 0)
        f.error = errno;
    if (f.error != 0)
        unlink(partial);
    return f.error;
}

co_code
co_flight_save(co_context *ctx, const co_strategy *strategy, const char *path)
{
    int  saved_errno = errno, error;
    char why[80];

    COI_ENTER_ALWAYS(ctx, "flight_save", CO_INVALID_ARGUMENT);
    if (path == NULL)
        return coi_fail(ctx, CO_TYPE_ERROR,
                        "argument 3 (path) of flight_save is NULL; name a file");
    if (!coi_check_object(ctx, strategy, &coi_strategy_class, 2, "strategy"))
        return ctx->error.code;
    error = save(strategy, path);
    errno = saved_errno;
    if (error == 0)
        return CO_OK;
    return coi_fail(
        ctx,
        error == ENOENT || error == ENOTDIR ? CO_NOT_FOUND
        : error == EACCES || error == EPERM ? CO_PERMISSION_DENIED
                                            : CO_UNAVAILABLE,
        "the flight recorder cannot be written to '%.*s%s': %s; name a file in a directory that exists "
        "and may be written to",
        COI_CUT(300, path), strerror_r(error, why, sizeof(why)));
}

static void
log_record(const co_flight_record *record, void *user)
{
    char line[LINE_BYTES];

    format_record(record, line);
    coi_log_line(user, CO_LOG_INFO, "flight recorder: %s", line);
}

void
coi_flight_report(const co_strategy *strategy)
{
    coi_runtime *runtime = strategy->runtime;
    const char  *path = runtime->settings.flight_file;
    uint64_t     last = atomic_load(&strategy->recorder->last);
    char         name[320], why[80];
    int          saved_errno = errno, error;

    if (coi_log_on(&runtime->log, CO_LOG_INFO))
        coi_flight_visit(strategy, last > LINES_LOGGED ? last - LINES_LOGGED + 1 : 1, log_record,
                         &runtime->log);
    if (path[0] == '\0')
        return;
    if (strategy->num_workers > 1)
        snprintf(name, sizeof(name), "%s.rank%d", path, strategy->worker);
    else
        snprintf(name, sizeof(name), "%s", path);
    error = save(strategy, name);
    if (error != 0)
        coi_log_line(&runtime->log, CO_LOG_ERROR,
                     "the flight recorder cannot be written to '%s' (setting flight_file): %s",
                     name, strerror_r(error, why, sizeof(why)));
    errno = saved_errno;
}
