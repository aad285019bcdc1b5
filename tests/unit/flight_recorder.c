/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder: what it keeps of rendezvous that went well, that wait and that failed, and
 * how it is shown. */
#include "engine_support.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_SEEN 128

/* What a visitor saw, with copies of the texts. */
typedef struct seen {
    int              n;
    co_flight_record records[MAX_SEEN];
    char             what[MAX_SEEN][128], file[MAX_SEEN][64], missing[MAX_SEEN][200];
} seen;

static void
see(const co_flight_record *record, void *user)
{
    seen *s = user;
    int   i = s->n;

    if (s->n == MAX_SEEN)
        return;
    s->records[s->n++] = *record;
    snprintf(s->what[i], sizeof(s->what[i]), "%s", record->what);
    snprintf(s->file[i], sizeof(s->file[i]), "%s", record->file);
    snprintf(s->missing[i], sizeof(s->missing[i]), "%s", record->missing);
}

static void
look(co_context *ctx, co_strategy *strategy, seen *s)
{
    s->n = 0;
    CO_EXPECT_CODE(co_flight_visit(ctx, strategy, see, s), CO_OK);
}

static co_value *
merge_args(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)ctx;
    (void)strategy;
    (void)user;
    return args;
}

static co_value *
meet_thrice(co_context *ctx, co_value *args, void *user)
{
    co_value *x = co_ones(ctx, CO_FLOAT32, CO_SHAPE(2, 3));
    co_value *pair[2] = { co_scalar_float(ctx, 1), x };

    (void)user;
    co_all_reduce(ctx, CO_REDUCE_SUM, co_list(ctx, pair, 2));
    co_merge_call(ctx, merge_args, args, NULL);
    return co_all_gather(ctx, x, 0);
}

CO_TEST_WITH(rendezvous_are_recorded_in_order, "", "cpus=2")
{
    static const char *const kinds[] = { "all_reduce", "merge_call", "all_gather" };
    static const char *const whats[] = { "float32 [] and 1 more", "host integer", "float32 [2,3]" };
    co_strategy             *m = test_mirrored(ctx, 3, -1);
    seen                     s;

    look(ctx, m, &s);
    CO_EXPECT_INT(s.n, 0);
    for (int run = 0; run < 2; ++run)
        co_run(ctx, m, meet_thrice, co_args(ctx, co_int(ctx, 1)), NULL);
    look(ctx, m, &s);
    CO_REQUIRE(s.n == 6);
    for (int i = 0; i < s.n; ++i) {
        const co_flight_record *r = &s.records[i];

        CO_EXPECT_INT(r->struct_size, sizeof(*r));
        CO_EXPECT_INT(r->number, i + 1);
        CO_EXPECT_INT(r->epoch, i / 3 + 1);
        CO_EXPECT_INT(r->sequence, i % 3 + 1);
        CO_EXPECT_FALSE(r->between_ranks);
        CO_EXPECT_STR(r->kind, kinds[i % 3]);
        CO_EXPECT_STR(s.what[i], whats[i % 3]);
        CO_EXPECT_CONTAINS(s.file[i], "flight_recorder.c");
        CO_EXPECT_MORE(r->line, 0);
        CO_EXPECT_INT(r->expected, 3);
        CO_EXPECT_INT(r->arrived, 3);
        CO_EXPECT_STR(s.missing[i], "");
        CO_EXPECT_FALSE(r->is_waiting);
        CO_EXPECT_CODE(r->outcome, CO_OK);
        CO_EXPECT_TRUE(r->start_us >= 0 && r->duration_us >= 0 && r->duration_us < 60000000);
        CO_EXPECT_TRUE(i == 0 || r->start_us >= s.records[i - 1].start_us);
    }
}

static co_value *
meet_often(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    for (int i = 0; i < *(int *)user; ++i)
        CO_BLOCK(ctx)
            co_all_reduce(ctx, CO_REDUCE_SUM, co_zeros(ctx, CO_INT32, CO_SHAPE(1, 2, 3, 4, 5, 6)));
    return NULL;
}

CO_TEST_WITH(the_last_64_are_kept, "", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    int          times = 100;
    seen         s;

    co_run(ctx, m, meet_often, co_no_args(ctx), &times);
    look(ctx, m, &s);
    CO_REQUIRE(s.n == 64);
    CO_EXPECT_INT(s.records[0].number, 37);
    CO_EXPECT_INT(s.records[63].number, 100);
    CO_EXPECT_INT(s.records[63].sequence, 100);
    CO_EXPECT_STR(s.what[63], "int32 [1,2,3,4,...]");
}

CO_TEST_WITH(one_replica_meets_nobody, "", "cpus=2")
{
    co_strategy *one = co_one_device_strategy(ctx, NULL);
    int          times = 3;
    seen         s;

    co_run(ctx, one, meet_often, co_no_args(ctx), &times);
    look(ctx, one, &s);
    CO_EXPECT_INT(s.n, 0);
    CO_EXPECT_INT(co_flight_format(ctx, one, NULL, 0), 0);
}

/* --- failures --- */

typedef enum misstep { OTHER_CALL, OTHER_SHAPE, RETURNS, FAILS, MERGE_FAILS } misstep;

static co_value *
failing_merge(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    (void)strategy;
    (void)args;
    (void)user;
    return co_fail(ctx, CO_DATA_LOSS, "no merge"), NULL;
}

static co_value *
stumble(co_context *ctx, co_value *args, void *user)
{
    misstep how = *(misstep *)user;
    bool    odd = co_replica_id(ctx) == 1;

    co_all_reduce(ctx, CO_REDUCE_SUM, co_scalar_float(ctx, 1));
    if (how == MERGE_FAILS)
        return co_merge_call(ctx, failing_merge, args, NULL);
    if (odd && how == RETURNS)
        return NULL;
    if (odd && how == FAILS)
        return co_fail(ctx, CO_ABORTED, "replica 1 will not"), NULL;
    if (odd && how == OTHER_CALL)
        return co_all_gather(ctx, co_zeros(ctx, CO_FLOAT32, CO_SHAPE(4)), 0);
    return co_all_reduce(ctx, CO_REDUCE_SUM,
                         co_zeros(ctx, CO_FLOAT32, CO_SHAPE(odd && how == OTHER_SHAPE ? 5 : 4)));
}

CO_TEST_WITH(failures_name_both_sides_and_are_recorded, "S-RUN-8 RC-AR-3 RC-MERGE-5 GEN-ERR-1",
             "cpus=2")
{
    static const struct {
        co_code     code;
        const char *parts[4];
        int         arrived; /* 0: it depends on who was first */
    } expected[] = {
        { CO_RUNTIME_ERROR,
          { "replica 0 is in all_reduce of float32 [4], rendezvous 2 of run 1, at",
            "replica 1 is in all_gather of float32 [4], rendezvous 2 of run 1, at",
            "flight_recorder.c:", "same calls in the same order" },
          2 },
        { CO_INVALID_ARGUMENT, { "[4] on replica 0", "[5] on replica 1", "", "" }, 2 },
        { CO_RUNTIME_ERROR,
          { "replica 1 has returned from the step",
            "replica 0 waits in all_reduce of float32 [4], rendezvous 2 of run 1, at",
            "flight_recorder.c:", "make the same calls" },
          1 },
        { CO_ABORTED, { "replica 1 will not", "", "", "" }, 0 },
        { CO_DATA_LOSS, { "no merge", "", "", "" }, 2 },
    };

    for (int how = OTHER_CALL; how <= MERGE_FAILS; ++how) {
        co_strategy *m = test_mirrored(ctx, 2, -1);
        seen         s;
        int          last;

        CO_EXPECT_NULL(co_run(ctx, m, stumble, co_no_args(ctx), &how));
        for (int i = 0; i < 4; ++i)
            CO_EXPECT_CONTAINS(co_error(ctx)->message, expected[how].parts[i]);
        look(ctx, m, &s); /* while the context has its error */
        CO_EXPECT_ERROR(ctx, expected[how].code, NULL);
        last = s.n - 1;
        CO_REQUIRE(last >= 0);
        CO_EXPECT_CODE(s.records[0].outcome, CO_OK);
        if (expected[how].arrived == 0)
            continue;
        CO_EXPECT_INT(s.n, 2);
        CO_EXPECT_CODE(s.records[last].outcome, expected[how].code);
        CO_EXPECT_INT(s.records[last].arrived, expected[how].arrived);
        CO_EXPECT_STR(s.missing[last], expected[how].arrived == 1 ? "replica 1" : "");
        CO_EXPECT_FALSE(s.records[last].is_waiting);
        co_run(ctx, m, meet_thrice, co_no_args(ctx), NULL);
        CO_EXPECT_OK(ctx);
    }
}

/* Replica 1 looks while replica 0 waits for it; user: what it saw, and the strategy. */
typedef struct looking {
    co_strategy *strategy;
    seen         s, in_merge;
    char         text[300];
} looking;

static co_value *
merge_looks(co_context *ctx, co_strategy *strategy, co_value *args, void *user)
{
    looking *l = user;

    (void)args;
    look(ctx, strategy, &l->in_merge);
    co_flight_format(ctx, strategy, l->text, sizeof(l->text));
    return NULL;
}

static co_value *
look_then_meet(co_context *ctx, co_value *args, void *user)
{
    looking *l = user;

    for (int i = 0; co_replica_id(ctx) == 1 && i < 5000; ++i) {
        look(ctx, l->strategy, &l->s);
        if (l->s.n == 1 && l->s.records[0].arrived == 2)
            break;
        test_rest_ms(1);
    }
    return co_merge_call(ctx, merge_looks, args, user);
}

CO_TEST_WITH(who_looks_sees_who_waits_for_whom, "", "cpus=2")
{
    static looking l;

    l.strategy = test_mirrored(ctx, 3, -1);
    co_run(ctx, l.strategy, look_then_meet, co_no_args(ctx), &l);
    CO_REQUIRE(l.s.n == 1 && l.in_merge.n == 1);
    CO_EXPECT_TRUE(l.s.records[0].is_waiting);
    CO_EXPECT_INT(l.s.records[0].arrived, 2);
    CO_EXPECT_INT(l.s.records[0].expected, 3);
    CO_EXPECT_STR(l.s.missing[0], "replica 1");
    CO_EXPECT_STR(l.s.records[0].kind, "merge_call");
    CO_EXPECT_TRUE(l.in_merge.records[0].is_waiting); /* for its function */
    CO_EXPECT_INT(l.in_merge.records[0].arrived, 3);
    CO_EXPECT_STR(l.in_merge.missing[0], "");
    CO_EXPECT_CONTAINS(l.text, "1: run 1, rendezvous 1: merge_call at ");
    CO_EXPECT_CONTAINS(l.text, "; 3 of 3 replicas; waiting; at ");
}

/* Many are missing: the list of their names is cut. And a call without a place in the sources. */
static co_value *
first_alone(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    (void)user;
    if (co_replica_id(ctx) > 0)
        return NULL;
    co_site(ctx, NULL, 0);
    return (co_all_reduce)(ctx, CO_REDUCE_SUM, (co_scalar_float)(ctx, 1));
}

CO_TEST_WITH(long_lists_of_names_are_cut, "RC-MERGE-5", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 40, -1);
    seen         s;

    CO_EXPECT_NULL(co_run(ctx, m, first_alone, co_no_args(ctx), NULL));
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR,
                    "has returned from the step, but replica 0 waits in all_reduce");
    look(ctx, m, &s);
    CO_REQUIRE(s.n == 1);
    CO_EXPECT_INT(s.records[0].arrived, 1);
    CO_EXPECT_CONTAINS(s.missing[0], "replica 1, replica 2, ");
    CO_EXPECT_CONTAINS(s.missing[0], ", ...");
    CO_EXPECT_STR(s.file[0], "");
}

/* user: a variable that is summed when it is assigned to. */
static co_value *
assign_and_merge(co_context *ctx, co_value *args, void *user)
{
    (void)args;
    co_assign_add(ctx, user, co_scalar_float(ctx, 1));
    co_merge_call(ctx, merge_args, co_args(ctx, user), NULL);
    return co_merge_call(ctx, merge_args, co_no_args(ctx), NULL);
}

CO_TEST_WITH(assignments_are_rendezvous_too, "", "cpus=2")
{
    static const char *const kinds[] = { "variable assignment", "merge_call", "merge_call" };
    static const char *const whats[] = { "float32 []", "variable float32 []", "" };
    co_strategy             *m = test_mirrored(ctx, 2, -1);
    co_variable_options      options = CO_VARIABLE_OPTIONS_INIT;
    co_value                *v = NULL;
    seen                     s;

    options.aggregation = CO_AGGREGATION_SUM;
    CO_SCOPE(ctx, m)
        v = co_variable(ctx, co_float(ctx, 0), &options);
    co_run(ctx, m, assign_and_merge, co_no_args(ctx), v);
    CO_EXPECT_OK(ctx);
    look(ctx, m, &s);
    CO_REQUIRE(s.n == 3);
    for (int i = 0; i < 3; ++i) {
        CO_EXPECT_STR(s.records[i].kind, kinds[i]);
        CO_EXPECT_STR(s.what[i], whats[i]);
        CO_EXPECT_CODE(s.records[i].outcome, CO_OK);
    }
}

/* --- text, file, log --- */

CO_TEST_WITH(the_text_is_cut_to_the_room_there_is, "", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    char         text[1000], little[20];
    size_t       n;

    co_run(ctx, m, meet_thrice, co_args(ctx, co_int(ctx, 1)), NULL);
    n = co_flight_format(ctx, m, text, sizeof(text));
    CO_EXPECT_INT(strlen(text), n);
    CO_EXPECT_CONTAINS(text, "1: run 1, rendezvous 1: all_reduce of float32 [] and 1 more at ");
    CO_EXPECT_CONTAINS(text, "2: run 1, rendezvous 2: merge_call of host integer at ");
    CO_EXPECT_CONTAINS(text, "; 2 of 2 replicas; CO_OK; at ");
    CO_EXPECT_INT(text[n - 1], '\n');
    /* Times are measured more exactly from call to call, so one may gain or lose a digit. */
    CO_EXPECT_CLOSE(co_flight_format(ctx, m, little, sizeof(little)), n, 6);
    CO_EXPECT_INT(strlen(little), sizeof(little) - 1);
    CO_EXPECT_TRUE(strncmp(little, text, sizeof(little) - 1) == 0);
    CO_EXPECT_CLOSE(co_flight_format(ctx, m, NULL, 0), n, 6);
    CO_EXPECT_INT(co_flight_format(ctx, m, NULL, 5), 0);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (out)");
    CO_EXPECT_INT(co_flight_format(ctx, NULL, little, sizeof(little)), 0);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (strategy)");
    CO_EXPECT_CODE(co_flight_visit(ctx, m, NULL, NULL), CO_TYPE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (fn)");
    CO_EXPECT_CODE(co_flight_visit(ctx, NULL, see, NULL), CO_INVALID_ARGUMENT);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "argument 2 (strategy)");
    CO_EXPECT_CODE(co_flight_visit(NULL, m, see, NULL), CO_INVALID_ARGUMENT);
}

static size_t
read_file(const char *path, char *out, size_t capacity)
{
    FILE  *f = fopen(path, "r");
    size_t n = f != NULL ? fread(out, 1, capacity - 1, f) : 0;

    out[n] = '\0';
    if (f != NULL)
        fclose(f);
    return n;
}

CO_TEST_WITH(the_text_is_saved_whole_or_not_at_all, "", "cpus=2")
{
    co_strategy *m = test_mirrored(ctx, 2, -1);
    char         folder[] = "/tmp/cohort-recorder-XXXXXX", path[80], text[2000], longer[800];

    CO_REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/flight", folder);
    co_run(ctx, m, meet_thrice, co_args(ctx, co_int(ctx, 1)), NULL);
    CO_EXPECT_CODE(co_flight_save(ctx, m, path), CO_OK);
    CO_EXPECT_MORE(read_file(path, text, sizeof(text)), 100);
    CO_EXPECT_CONTAINS(text, "MirroredStrategy #");
    CO_EXPECT_CONTAINS(text, "rank 0 of 1");
    CO_EXPECT_CONTAINS(text, "3: run 1, rendezvous 3: all_gather of float32 [2,3] at ");
    CO_EXPECT_CODE(co_flight_save(ctx, m, folder), CO_UNAVAILABLE); /* a folder is in the way */
    CO_EXPECT_ERROR(ctx, CO_UNAVAILABLE, "cannot be written to");
    unlink(path);
    CO_EXPECT_INT(rmdir(folder), 0); /* nothing else was left there */
    CO_EXPECT_CODE(co_flight_save(ctx, m, path), CO_NOT_FOUND);
    CO_EXPECT_ERROR(ctx, CO_NOT_FOUND, path);
    CO_EXPECT_CODE(co_flight_save(ctx, m, "/proc/cohort-cannot-write-here"), CO_NOT_FOUND);
    co_clear(ctx);
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    CO_EXPECT_CODE(co_flight_save(ctx, m, longer), CO_UNAVAILABLE);
    co_clear(ctx);
    CO_EXPECT_CODE(co_flight_save(ctx, m, "/dev/full/x"), CO_NOT_FOUND);
    co_clear(ctx);
    CO_EXPECT_CODE(co_flight_save(ctx, m, NULL), CO_TYPE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 3 (path)");
    CO_EXPECT_CODE(co_flight_save(ctx, NULL, path), CO_INVALID_ARGUMENT);
    co_clear(ctx);
}

CO_TEST_WITH(a_file_without_room_is_left_as_it_was, "", "cpus=2")
{
    co_strategy  *m = test_mirrored(ctx, 2, -1);
    char          folder[] = "/tmp/cohort-recorder-XXXXXX", path[80], text[2000], again[2000];
    struct rlimit little = { 60, RLIM_INFINITY };

    CO_REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/flight", folder);
    co_run(ctx, m, meet_thrice, co_args(ctx, co_int(ctx, 1)), NULL);
    CO_EXPECT_CODE(co_flight_save(ctx, m, path), CO_OK);
    read_file(path, text, sizeof(text));
    signal(SIGXFSZ, SIG_IGN);
    CO_REQUIRE(setrlimit(RLIMIT_FSIZE, &little) == 0);
    CO_EXPECT_CODE(co_flight_save(ctx, m, path), CO_UNAVAILABLE);
    little.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &little);
    CO_EXPECT_ERROR(ctx, CO_UNAVAILABLE, "cannot be written to");
    read_file(path, again, sizeof(again));
    CO_EXPECT_STR(again, text);
    unlink(path);
    CO_EXPECT_INT(rmdir(folder), 0);
}

typedef struct heard {
    atomic_int flights, errors;
    char       last_error[600];
} heard;

static void
hear(co_log_level level, const char *line, void *user)
{
    heard *h = user;

    if (strstr(line, "flight recorder: ") != NULL && level == CO_LOG_INFO)
        atomic_fetch_add(&h->flights, 1);
    if (level == CO_LOG_ERROR) {
        atomic_fetch_add(&h->errors, 1);
        snprintf(h->last_error, sizeof(h->last_error), "%s", line);
    }
}

static co_context *
open_heard(heard *h, const char *settings)
{
    co_options options = CO_OPTIONS_INIT;

    options.settings = settings;
    options.log = hear;
    options.log_user = h;
    return co_open_with(&options);
}

CO_TEST_BARE(failures_of_rendezvous_are_logged_and_saved, "")
{
    char    folder[] = "/tmp/cohort-recorder-XXXXXX", path[80], settings[160], text[20000];
    misstep how = OTHER_CALL, fails = FAILS;
    int     times = 100; /* more than are kept */
    heard   h = { 0 };

    CO_REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/flight", folder);
    snprintf(settings, sizeof(settings), "cpus=2, log=info, flight_file=%s", path);
    ctx = open_heard(&h, settings);
    co_strategy *m = test_mirrored(ctx, 2, -1);

    co_run(ctx, m, stumble, co_no_args(ctx),
           &fails); /* an error of the user is no failure of a rendezvous */
    CO_EXPECT_ERROR(ctx, CO_ABORTED, NULL);
    CO_EXPECT_INT(h.flights, 0);
    CO_EXPECT_INT(access(path, F_OK), -1);
    co_run(ctx, m, meet_often, co_no_args(ctx), &times);
    co_run(ctx, m, stumble, co_no_args(ctx), &how);
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "disagree");
    CO_EXPECT_INT(h.flights, 8); /* the last ones */
    CO_EXPECT_MORE(read_file(path, text, sizeof(text)), 100);
    CO_EXPECT_CONTAINS(text, "2 of 2 replicas; CO_RUNTIME_ERROR; at ");
    unlink(path);
    CO_EXPECT_INT(rmdir(folder), 0);
    co_run(ctx, m, stumble, co_no_args(ctx), &how); /* the folder is gone: said, and no more */
    CO_EXPECT_ERROR(ctx, CO_RUNTIME_ERROR, "disagree");
    CO_EXPECT_INT(h.errors, 1);
    CO_EXPECT_CONTAINS(h.last_error, "flight_file");
    CO_EXPECT_CODE(co_close(ctx), CO_OK);
}
