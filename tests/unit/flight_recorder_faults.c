/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder where things go wrong: files that cannot be opened, written or closed,
 * entries that are overwritten while they wait, more ranks than it remembers, and somebody who
 * looks while entries are written.
 */
#include "base/memory.h"
#include "rank_support.h"
#include "strategy/flight_recorder.h"
#include "strategy/rendezvous_kind.h"
#include "strategy/strategy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- a system that fails --- */

typedef enum failing { NOTHING, OPEN, WRITE, SHORT_WRITE, CLOSE, WRITE_AND_CLOSE } failing;

/* What fails for the files of these tests, and with which errno; the number of calls that fail
 * first. */
static struct {
    failing what;
    int     error, times;
    int     fd; /* of the file */
} fault;

int
open(const char *path, int flags, ...)
{
    va_list args;
    mode_t  mode;

    va_start(args, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (strstr(path, "cohort-flight") == NULL)
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fault.what == OPEN) {
        errno = fault.error;
        return -1;
    }
    return fault.fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t
write(int fd, const void *data, size_t nbytes)
{
    bool ours = fault.what != NOTHING && fd == fault.fd;

    if (ours && (fault.what == WRITE || fault.what == WRITE_AND_CLOSE) && fault.times-- > 0) {
        errno = fault.error;
        return fault.error != 0 ? -1 : 0;
    }
    return syscall(SYS_write, fd, data,
                   ours && fault.what == SHORT_WRITE && nbytes > 7 ? 7 : nbytes);
}

int
close(int fd)
{
    bool fails = (fault.what == CLOSE || fault.what == WRITE_AND_CLOSE) && fd == fault.fd;
    int  rc = (int)syscall(SYS_close, fd);

    if (!fails)
        return rc;
    errno = EIO;
    return -1;
}

static co_value *
meet_often(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    for (int i = 0; i < *(int *)user; ++i)
        CO_BLOCK(ctx)
            co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    return NULL;
}

static size_t
read_whole(const char *path, char *out, size_t capacity)
{
    FILE  *f = fopen(path, "r");
    size_t n = f != NULL ? fread(out, 1, capacity - 1, f) : 0;

    out[n] = '\0';
    if (f != NULL)
        fclose(f);
    return n;
}

CO_TEST_WITH(a_system_that_fails_leaves_no_file_and_one_that_dawdles_a_whole_one, "", "cpus=2")
{
    static const struct {
        failing     what;
        int         error, times;
        co_code     code;
        const char *part;
    } cases[] = {
        { SHORT_WRITE, 0, 0, CO_OK, "" },
        { WRITE, EINTR, 3, CO_OK, "" },
        { OPEN, EACCES, 1, CO_PERMISSION_DENIED, "Permission denied" },
        { OPEN, EPERM, 1, CO_PERMISSION_DENIED, "Operation not permitted" },
        { OPEN, ENOENT, 1, CO_NOT_FOUND, "No such file or directory" },
        { OPEN, EMFILE, 1, CO_UNAVAILABLE, "Too many open files" },
        { WRITE, 0, 1, CO_UNAVAILABLE, "No space left on device" }, /* nothing written is no room */
        { WRITE, EIO, 1, CO_UNAVAILABLE, "Input/output error" },
        { CLOSE, EIO, 1, CO_UNAVAILABLE, "Input/output error" },
        { WRITE_AND_CLOSE, ENOSPC, 1, CO_UNAVAILABLE, "No space left on device" }, /* the first */
    };
    co_strategy *m = test_mirrored(ctx, 2, -1);
    int          times = 5;
    char         folder[] = "/tmp/cohort-flight-XXXXXX", path[80], text[4000];

    CO_REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/flight", folder);
    co_run(ctx, m, meet_often, co_no_args(ctx), &times);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        fault.what = cases[i].what;
        fault.error = cases[i].error;
        fault.times = cases[i].times;
        errno = 1234;
        CO_EXPECT_CODE(co_flight_save(ctx, m, path), cases[i].code);
        CO_EXPECT_INT(errno, 1234); /* a good guest */
        fault.what = NOTHING;
        if (cases[i].code == CO_OK) {
            CO_EXPECT_MORE(read_whole(path, text, sizeof(text)), 300);
            CO_EXPECT_CONTAINS(text, "\n5: run 1, rendezvous 5: all_reduce of float32 [] at ");
            CO_EXPECT_INT(unlink(path), 0);
        } else {
            CO_EXPECT_ERROR(ctx, cases[i].code, cases[i].part);
        }
    }
    CO_EXPECT_INT(rmdir(folder), 0); /* nothing is left there */
}

/* --- entries --- */

typedef struct seen {
    int      n, odd;
    uint64_t first, last;
    bool     is_waiting, between_ranks;
    int      arrived, expected;
    char     kind[40], missing[200];
} seen;

/* Keeps the last record, and checks that it is whole. */
static void
see(const co_flight_record *record, void *user)
{
    seen *s = user;

    s->odd += record->number <= s->last || record->line <= 0 ||
              strcmp(record->what, "float32 []") != 0 || strstr(record->file, ".c") == NULL;
    s->first = s->n++ == 0 ? record->number : s->first;
    s->last = record->number;
    s->is_waiting = record->is_waiting;
    s->between_ranks = record->between_ranks;
    s->arrived = record->arrived;
    s->expected = record->expected;
    snprintf(s->kind, sizeof(s->kind), "%s", record->kind);
    snprintf(s->missing, sizeof(s->missing), "%s", record->missing);
}

static co_value *
merge_meets_often(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)args;
    return co_run(ctx, strategy, meet_often, co_no_args(ctx), user);
}

static co_value *
merge_in_step(co_context *ctx, co_value *args, void *user)
{
    return co_merge_call(ctx, merge_meets_often, args, user);
}

/* The entry of the outer rendezvous is overwritten by those of its function: what it would say of
 * its end is said of nobody else. */
CO_TEST_WITH(a_rendezvous_may_outlive_its_entry, "", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    int          times = 100;
    seen         s = { 0 };

    co_run(ctx, m, merge_in_step, co_args(ctx, co_scalar_float(ctx, 1)), &times);
    CO_EXPECT_OK(ctx);
    CO_EXPECT_CODE(co_flight_visit(ctx, m, see, &s), CO_OK);
    CO_EXPECT_INT(s.n, 64);
    CO_EXPECT_INT(s.last, 101);
    CO_EXPECT_INT(s.odd, 0);
    CO_EXPECT_STR(s.kind, "all_reduce");
    CO_EXPECT_INT(s.arrived, 2);
}

static bool
is_even(const void *arg, int i)
{
    return i % 2 == 0 || (arg != NULL && i < *(const int *)arg);
}

/* As of a job with more ranks than have a place: those that have are named. */
CO_TEST_BARE(of_many_ranks_the_first_are_remembered, "")
{
    static co_strategy fake;
    const int          most = 256;
    co_site_info       here = { __FILE__, __LINE__ };
    coi_flight         flight = {
                .kind = COI_RENDEZVOUS_REDUCE, .expected = 300, .text = "float32 []", .site = here
    };
    coi_memory memory;
    uint64_t   number;
    seen       s = { 0 };

    coi_memory_init(&memory, NULL);
    fake.recorder = coi_recorder_new(&memory);
    CO_REQUIRE(fake.recorder != NULL);
    number = coi_flight_begin(fake.recorder, &flight);
    coi_flight_cut(fake.recorder, number, CO_DEADLINE_EXCEEDED, 300, is_even, NULL);
    coi_flight_visit(&fake, 1, see, &s);
    CO_EXPECT_INT(s.n, 1);
    CO_EXPECT_TRUE(s.between_ranks);
    CO_EXPECT_INT(s.arrived, 150);
    CO_EXPECT_INT(s.expected, 300);
    CO_EXPECT_CONTAINS(s.missing, "rank 1, rank 3, rank 5, ");
    number = coi_flight_begin(fake.recorder, &flight);
    coi_flight_cut(fake.recorder, number, CO_DEADLINE_EXCEEDED, 300, is_even, &most);
    coi_flight_visit(&fake, number, see, &s);
    CO_EXPECT_INT(s.arrived, 256 + 22);
    CO_EXPECT_STR(s.missing, ""); /* they are none of those that are remembered */
    coi_recorder_free(&memory, fake.recorder);
    CO_EXPECT_STR(coi_rendezvous_name((coi_rendezvous_kind)99), "unknown call");
    CO_EXPECT_STR(coi_rendezvous_name(COI_RENDEZVOUS_GATHER), "gather");
}

/* Somebody looks all the time: what is seen of rendezvous that are written meanwhile is whole. */
typedef struct rendezvous_thread {
    co_context  *ctx;
    co_strategy *strategy;
    atomic_bool  done;
} rendezvous_thread;

static void *
go_on(void *arg)
{
    rendezvous_thread *t = arg;
    co_context        *ctx = co_open_beside(t->ctx);
    int                times = TEST_SANITIZED ? 300 : 3000;

    for (int i = 0; i < 5; ++i)
        co_run(ctx, t->strategy, meet_often, co_no_args(ctx), &times);
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    atomic_store(&t->done, true);
    return NULL;
}

CO_TEST_WITH(who_looks_meanwhile_sees_whole_entries, "", "cpus=2")
{
    rendezvous_thread t = { ctx, test_mirrored(ctx, 2, -1), false };
    pthread_t         threads[2];
    int64_t           looks = 0;

    for (int i = 0; i < 2; ++i)
        CO_REQUIRE(pthread_create(&threads[i], NULL, go_on, &t) == 0);
    while (!atomic_load(&t.done)) {
        seen s = { 0 };

        co_flight_visit(ctx, t.strategy, see, &s);
        CO_EXPECT_INT(s.odd, 0);
        CO_EXPECT_TRUE(s.n <= 64 && (s.n == 0 || s.last - s.first < 64));
        ++looks;
    }
    for (int i = 0; i < 2; ++i)
        pthread_join(threads[i], NULL);
    CO_EXPECT_MORE(looks, 10);
}

/* --- ranks that wait --- */

static void *
look_until_waiting(void *arg)
{
    rendezvous_thread *t = arg;
    co_context        *ctx = co_open_beside(t->ctx);
    seen               s = { 0 };

    for (int i = 0; i < 5000 && !(s.is_waiting && s.between_ranks); ++i) {
        s = (seen){ 0 };
        coi_flight_visit(t->strategy, 2, see, &s); /* after that of its making */
        test_rest_ms(1);
    }
    CO_EXPECT_TRUE(s.is_waiting && s.between_ranks);
    CO_EXPECT_INT(s.expected, 2);
    CO_EXPECT_STR(s.kind, "reduce");
    atomic_store((atomic_bool *)co_user(t->ctx), true); /* rank 1 comes now */
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
    return NULL;
}

static void
wait_and_be_seen(co_context *ctx, co_strategy *s, int rank, void *user)
{
    rendezvous_thread t = { ctx, s, false };
    pthread_t         thread;
    co_value         *sum;

    co_set_user(ctx, user);
    if (rank == 0)
        CO_REQUIRE(pthread_create(&thread, NULL, look_until_waiting, &t) == 0);
    while (rank == 1 && !atomic_load((atomic_bool *)user))
        test_rest_ms(1);
    sum = co_reduce(ctx, s, CO_REDUCE_SUM, co_scalar_float(ctx, 2), NULL, 0);
    CO_EXPECT_CLOSE(co_item_float(ctx, sum), 4, 0);
    if (rank == 0)
        pthread_join(thread, NULL);
}

CO_TEST_BARE(a_rank_that_waits_is_seen_to_wait, "")
{
    atomic_bool go = false;

    test_on_ranks(2, 2, 20000, NULL, wait_and_be_seen, &go);
    CO_EXPECT_TRUE(go);
}
