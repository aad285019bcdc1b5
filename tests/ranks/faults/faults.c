/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An MPI that fails and lies, and a peer that sends nonsense. The program stands between the
 * plug-in and MPI by the profiling interface: it defines MPI_Test and others, which the plug-in
 * then finds here, and passes calls on to PMPI_Test. Two ranks open a group, exchange words and
 * data and close it again and again; each time something else goes wrong on rank 0. What must hold:
 * whoever is hit gets an error with words, the other one ends too, in time, and nothing crashes.
 * Memory is leaked where MPI still has it, and nowhere else: the program knows which messages are
 * under way and which blocks are alive. Prints what does not hold; 0 is good.
 */
#include "collective/handshake.h"
#include "hooks.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEADLINE_MS 3000
#define BIG         (64 << 10)
#define MAX_COMMS   160
#define MAX_ENTRIES 4096

static int num_failures, rank;

#define EXPECT(e)                                                                                  \
    do {                                                                                           \
        if (!(e)) {                                                                                \
            printf("%s:%d: rank %d, %s %d: %s does not hold\n", __FILE__, __LINE__, rank,          \
                   fault.call, fault.nth, #e);                                                     \
            ++num_failures;                                                                        \
        }                                                                                          \
    } while (0)

/* --- what goes wrong --- */

static struct {
    const char *call; /* the MPI call that fails, */
    int         nth;  /* the how-manieth time, */
    int         left;
    bool        has_fired;
    bool        is_stuck;     /* no message ever ends */
    bool        is_forked;    /* getpid gives another number */
    bool        is_final;     /* MPI says that it was finalised, */
    bool        is_fresh;     /* or never started */
    bool        is_elsewhere; /* this thread is not the main one */
    bool        is_inter;
    bool        is_nowhere; /* the system does not say which machine this is */
    const char *version;    /* of another MPI */
} fault = { .call = "" };

static int
failing(const char *call)
{
    if (strcmp(fault.call, call) != 0 || --fault.left != 0)
        return 0;
    fault.has_fired = true;
    return 1;
}

/* --- what MPI has, and what the library --- */

/* A message under way: MPI has the data until a test has said that it is done, whatever else was
 * said. */
typedef struct message {
    const MPI_Request
               *at; /* many may have the same value: MPI has one for all that are done at once */
    MPI_Request request;
    uintptr_t   data;
    size_t      nbytes;
    int         round;
} message;

/* A block of memory. Those that the library leaks are found from here, so that they are not leaks
 * to a sanitizer. */
typedef struct block {
    void  *data;
    size_t nbytes;
} block;

static message messages[MAX_ENTRIES];
static block   blocks[MAX_ENTRIES];
static int     num_messages, num_blocks, rounds;

static int
note_start(int rc, const MPI_Request *request, const void *data, size_t nbytes)
{
    if (rc == MPI_SUCCESS && num_messages < MAX_ENTRIES)
        messages[num_messages++] = (message){ request, *request, (uintptr_t)data, nbytes, rounds };
    EXPECT(num_messages < MAX_ENTRIES);
    return rc;
}

static void
note_end(const MPI_Request *at, MPI_Request request)
{
    for (int i = 0; i < num_messages; ++i)
        if (messages[i].at == at && messages[i].request == request) {
            messages[i] = messages[--num_messages];
            return;
        }
}

/* What a message is to a test of it. */
static const char *
kind_of(const MPI_Request *at)
{
    for (int i = 0; i < num_messages; ++i)
        if (messages[i].at == at && messages[i].request == *at)
            return messages[i].nbytes == BIG                     ? "MPI_Test of data"
                   : messages[i].nbytes == sizeof(coi_handshake) ? "MPI_Test of a word"
                                                                 : "MPI_Test of a letter";
    return "MPI_Test of nothing";
}

/* Are messages of this round under way? */
static bool
is_under_way(void)
{
    bool any = false;

    for (int i = 0; i < num_messages; ++i)
        any = any || messages[i].round == rounds;
    return any;
}

static void *
note_alloc(size_t nbytes, size_t alignment, void *user)
{
    void *data = test_hooks_alloc(nbytes, alignment, user);

    EXPECT(num_blocks < MAX_ENTRIES);
    if (data != NULL && num_blocks < MAX_ENTRIES)
        blocks[num_blocks++] = (block){ data, nbytes };
    return data;
}

static void
note_free(void *data, size_t nbytes, void *user)
{
    uintptr_t from = (uintptr_t)data;

    for (int i = 0; i < num_messages; ++i) /* MPI would write to memory that is not ours */
        EXPECT(messages[i].data >= from + nbytes || messages[i].data + messages[i].nbytes <= from);
    for (int i = num_blocks - 1; i >= 0; --i)
        if (blocks[i].data == data) {
            blocks[i] = blocks[--num_blocks];
            break;
        }
    test_hooks_free(data, nbytes, user);
}

/* How the words of this rank are changed on their way: the n-th, by a function. */
typedef void (*tamper_fn)(coi_handshake *handshake, int *nbytes);
static tamper_fn tamper;
static int       tamper_at, words_sent;

int
MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
          MPI_Request *request)
{
    static coi_handshake changed[64];
    static int           next;
    coi_handshake       *copy = &changed[next % 64];

    if (failing("MPI_Isend"))
        return MPI_ERR_OTHER;
    if (count == (int)sizeof(*copy) && ++words_sent == tamper_at && tamper != NULL) {
        ++next;
        memcpy(copy, data, sizeof(*copy));
        tamper(copy, &count);
        data = copy;
    }
    return note_start(PMPI_Isend(data, count, type, to, tag, comm, request), request, data,
                      (size_t)count);
}

int
MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
          MPI_Request *request)
{
    if (failing("MPI_Irecv"))
        return MPI_ERR_OTHER;
    return note_start(PMPI_Irecv(data, count, type, from, tag, comm, request), request, data,
                      (size_t)count);
}

/* A duplicate that one rank gives up is never done on the others, and MPI makes no other after it:
 * that fails by itself. */
static MPI_Request *duplicating;

int
MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    MPI_Request before = *request;
    const char *kind = request == duplicating ? "MPI_Test of MPI_Comm_idup" : kind_of(request);
    int         rc;

    if (failing(kind) || (request != duplicating && failing("MPI_Test")))
        return MPI_ERR_OTHER;
    if (fault.is_stuck) {
        *flag = 0;
        return MPI_SUCCESS;
    }
    rc = PMPI_Test(request, flag, status);
    if (*request != before)
        note_end(request, before);
    return rc;
}

int
MPI_Comm_idup(MPI_Comm comm, MPI_Comm *out, MPI_Request *request)
{
    duplicating = request;
    if (failing("MPI_Comm_idup"))
        return MPI_ERR_OTHER;
    return note_start(PMPI_Comm_idup(comm, out, request), request, out, sizeof(*out));
}

int
MPI_Cancel(MPI_Request *request)
{
    return failing("MPI_Cancel") ? MPI_ERR_OTHER : PMPI_Cancel(request);
}

int
MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count)
{
    return failing("MPI_Get_count") ? MPI_ERR_OTHER : PMPI_Get_count(status, type, count);
}

int
MPI_Error_string(int code, char *text, int *length)
{
    return failing("MPI_Error_string") ? MPI_ERR_OTHER : PMPI_Error_string(code, text, length);
}

int
MPI_Get_processor_name(char *name, int *length)
{
    return failing("MPI_Get_processor_name") ? MPI_ERR_OTHER
                                             : PMPI_Get_processor_name(name, length);
}

int
MPI_Get_library_version(char *text, int *length)
{
    if (failing("MPI_Get_library_version"))
        return MPI_ERR_OTHER;
    if (fault.version == NULL)
        return PMPI_Get_library_version(text, length);
    *length = sprintf(text, "%s", fault.version);
    return MPI_SUCCESS;
}

int
MPI_Initialized(int *flag)
{
    *flag = !fault.is_fresh;
    return MPI_SUCCESS;
}

int
MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc;
    (void)argv;
    *provided = required;
    return failing("MPI_Init_thread") ? MPI_ERR_OTHER : MPI_SUCCESS; /* it runs already */
}

int
MPI_Finalized(int *flag)
{
    if (!fault.is_final)
        return PMPI_Finalized(flag);
    *flag = 1;
    return MPI_SUCCESS;
}

int
MPI_Query_thread(int *level)
{
    *level = fault.is_elsewhere ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED;
    return MPI_SUCCESS;
}

int
MPI_Is_thread_main(int *flag)
{
    *flag = 0;
    return MPI_SUCCESS;
}

int
MPI_Comm_test_inter(MPI_Comm comm, int *flag)
{
    *flag = fault.is_inter;
    return fault.is_inter ? MPI_SUCCESS : PMPI_Comm_test_inter(comm, flag);
}

pid_t
getpid(void)
{
    return (pid_t)syscall(SYS_getpid) + fault.is_forked;
}

int
open(const char *path, int flags, ...)
{
    va_list args;
    mode_t  mode = 0;

    if ((flags & O_CREAT) != 0) {
        va_start(args, flags);
        mode = (mode_t)va_arg(args, int);
        va_end(args);
    }
    if (fault.is_nowhere && strstr(path, "boot_id") != NULL)
        return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* --- what the ranks do --- */

static MPI_Comm comms[MAX_COMMS];
static int      next_comm;

typedef struct outcome {
    co_code       rc;
    co_error_info err;
    bool          was_open;
} outcome;

static co_code
exchange(coi_group *group, uint64_t epoch, outcome *o)
{
    coi_handshake mine = {
        .kind = COI_HANDSHAKE_COLLECTIVE, .epoch = epoch, .sequence = 1, .replica = -1
    };
    coi_handshake all[2];
    co_code       rc = group->transport->exchange(group, &mine, all, DEADLINE_MS, &o->err);

    for (int r = 0; r < group->size && rc == CO_OK; ++r)
        if (all[r].kind == COI_HANDSHAKE_FAILED)
            rc = coi_handshake_error(&all[r], r, &o->err);
    return rc;
}

static co_code
swap(coi_group *group, outcome *o)
{
    static char  data[BIG], back[BIG];
    coi_transfer send = { 1 - rank, data, BIG }, receive = { 1 - rank, back, BIG };

    return group->transport->transfer(group, &send, 1, &receive, 1, DEADLINE_MS, &o->err);
}

static void
notify(coi_group *group, coi_handshake_kind kind, const outcome *o)
{
    coi_handshake word = {
        .kind = (uint32_t)kind, .epoch = 3, .code = (int32_t)o->rc, .replica = -1
    };

    snprintf(word.text, sizeof(word.text), "%.100s", o->err.message);
    word.epoch = 1;
    group->transport->notify(group, &word);
    word.epoch = 2;
    group->transport->notify(group, &word);
}

/*
 * Open, exchange, swap, exchange, swap, close, with a communicator and memory of its own: what went
 * wrong on another stays there. The allocation number fail_at fails; 0: none.
 */
static outcome
go_round(long long fail_at, coi_waiting *waiting, void (*in_the_middle)(coi_group *group))
{
    test_hooks        hooks;
    coi_memory        memory;
    coi_group_options options = { .communicator = &comms[next_comm++ % MAX_COMMS],
                                  .memory = &memory,
                                  .waiting = waiting,
                                  .deadline_ms = DEADLINE_MS };
    outcome           o;
    coi_group        *group = NULL;

    ++rounds;
    test_hooks_init(&hooks, fail_at);
    hooks.allocator.alloc = note_alloc;
    hooks.allocator.free = note_free;
    coi_memory_init(&memory, &hooks.allocator);
    coi_error_reset(&o.err);
    o.rc = coi_group_open("mpi", &options, &group, &o.err);
    o.was_open = o.rc == CO_OK;
    if (o.was_open) {
        for (uint64_t epoch = 1; epoch <= 2 && o.rc == CO_OK; ++epoch) {
            o.rc = exchange(group, epoch, &o);
            if (o.rc == CO_OK)
                o.rc = swap(group, &o);
            if (o.rc == CO_OK && epoch == 1 && in_the_middle != NULL)
                in_the_middle(group);
        }
        notify(group, o.rc == CO_OK ? COI_HANDSHAKE_RUN_END : COI_HANDSHAKE_FAILED, &o);
        EXPECT(coi_group_close(group) || is_under_way());
    }
    EXPECT((o.rc == CO_OK) == (o.err.code == CO_OK));
    EXPECT(o.rc == CO_OK || o.err.message[0] != '\0');
    EXPECT((hooks.blocks != 0) == is_under_way()); /* leaked is what MPI has not let go of */
    PMPI_Barrier(MPI_COMM_WORLD);
    return o;
}

static coi_waiting waiting;

/* Whether the fault of the call was met at all, by either rank. */
static bool
try_fault(const char *call, int nth, bool on_both)
{
    int     fired, any = 0;
    outcome o;

    fault.call = rank == 0 || on_both ? call : "";
    fault.nth = fault.left = nth;
    fault.has_fired = false;
    duplicating = NULL;
    o = go_round(0, nth % 2 == 0 ? &waiting : NULL, NULL);
    fired = fault.has_fired;
    fault.call = "";
    PMPI_Allreduce(&fired, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    EXPECT(any || o.rc == CO_OK);
    return any != 0;
}

static void
fail_calls(void)
{
    static const struct {
        const char *call;
        int         most;
        bool        on_both; /* what all ranks must take part in */
    } calls[] = { { "MPI_Comm_idup", 4, true },
                  { "MPI_Irecv", 12, false },
                  { "MPI_Isend", 12, false },
                  { "MPI_Test", 12, false },
                  { "MPI_Test of data", 3, false },
                  { "MPI_Test of a word", 3, false },
                  { "MPI_Get_count", 8, false },
                  { "MPI_Cancel", 2, false },
                  { "MPI_Get_processor_name", 1, false },
                  { "MPI_Get_library_version", 1, true } };

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i)
        for (int nth = 1; nth <= calls[i].most; ++nth)
            if (!try_fault(calls[i].call, nth, calls[i].on_both)) {
                EXPECT(nth > 1); /* else nothing was tested */
                break;
            }
}

/* --- lies --- */

static void
expect_refused(co_code code, const char *part)
{
    outcome o = go_round(0, &waiting, NULL);

    EXPECT(o.rc == code);
    EXPECT(strstr(o.err.message, part) != NULL);
}

static void
refuse_to_open(void)
{
    fault.version = "Other MPI 1.0";
    expect_refused(CO_FAILED_PRECONDITION, "this process runs Other MPI 1.0");
    fault.version = NULL;
    fault.is_final = true;
    expect_refused(CO_FAILED_PRECONDITION, "MPI_Finalize was called in this process");
    fault.is_final = false;
    fault.is_inter = true;
    expect_refused(CO_VALUE_ERROR, "inter-communicator");
    fault.is_inter = false;
    fault.is_elsewhere = true;
    expect_refused(CO_FAILED_PRECONDITION, "from the main thread alone");
    fault.is_elsewhere = false;
    fault.is_fresh = true;
    fault.call = "MPI_Init_thread";
    fault.nth = fault.left = 1;
    expect_refused(CO_UNAVAILABLE, "MPI_Init_thread failed");
    fault.call = "";
    EXPECT(go_round(0, &waiting, NULL).rc == CO_OK); /* as the one who started MPI */
    fault.is_fresh = false;
    fault.is_nowhere = true; /* without a machine, peers are not watched; all else works */
    EXPECT(go_round(0, &waiting, NULL).rc == CO_OK);
    fault.is_nowhere = false;
}

static void
refuse_to_speak(coi_group *group)
{
    coi_handshake word = { .kind = COI_HANDSHAKE_RUN_END };
    outcome       o;

    coi_error_reset(&o.err);
    fault.is_forked = true;
    EXPECT(exchange(group, 2, &o) == CO_FAILED_PRECONDITION);
    EXPECT(strstr(o.err.message, "was forked from rank") != NULL);
    group->transport->notify(group, &word); /* says nothing */
    fault.is_forked = false;
    coi_error_reset(&o.err);
    fault.is_final = true;
    EXPECT(exchange(group, 2, &o) == CO_FAILED_PRECONDITION);
    EXPECT(strstr(o.err.message, "MPI_Finalize was called while") != NULL);
    EXPECT(swap(group, &o) == CO_FAILED_PRECONDITION);
    fault.is_final = false;
}

/* Nothing leaves this rank: announcements do not wait, an exchange does as long as it may. */
static void
stick(coi_group *group)
{
    static const coi_handshake_kind kinds[] = { COI_HANDSHAKE_RUN_END, COI_HANDSHAKE_RUN_END,
                                                COI_HANDSHAKE_FAILED, COI_HANDSHAKE_RUN_END };
    coi_handshake                   word = { .replica = -1, .epoch = 1 }, all[2];
    co_error_info                   err;

    if (rank != 0)
        return;
    fault.is_stuck = true;
    for (int i = 0; i < 12; ++i) {
        word.kind = (uint32_t)kinds[i < 8 ? 0 : i - 8];
        word.code = word.kind == COI_HANDSHAKE_FAILED ? CO_DATA_LOSS : CO_OK;
        group->transport->notify(group, &word);
    }
    word = (coi_handshake){
        .kind = COI_HANDSHAKE_COLLECTIVE, .epoch = 1, .sequence = 2, .replica = -1
    };
    coi_error_reset(&err);
    EXPECT(group->transport->exchange(group, &word, all, 100, &err) == CO_DEADLINE_EXCEEDED);
    EXPECT(strstr(err.message, "no peer took the last 8 messages within 100 ms") != NULL);
    fault.is_stuck = false;
}

static void
close_stuck(coi_group *group)
{
    (void)group;
    fault.is_stuck = rank == 0; /* until the end: not even close gets an answer */
}

/* --- a hostile peer --- */

static void
be_short(coi_handshake *handshake, int *nbytes)
{
    (void)handshake;
    *nbytes -= 8;
}

static void
be_another_version(coi_handshake *handshake, int *nbytes)
{
    (void)nbytes;
    snprintf(handshake->site, sizeof(handshake->site), "99.9");
}

static void
be_another_abi(coi_handshake *handshake, int *nbytes)
{
    (void)nbytes;
    ++handshake->what;
}

static void
fail(coi_handshake *handshake, int *nbytes)
{
    (void)nbytes;
    handshake->kind = COI_HANDSHAKE_FAILED;
    handshake->code = CO_DATA_LOSS;
    snprintf(handshake->text, sizeof(handshake->text), "made up");
}

static void
open_again(coi_handshake *handshake, int *nbytes)
{
    (void)nbytes;
    handshake->kind = COI_HANDSHAKE_OPEN;
}

static void
be_nobody(coi_handshake *handshake, int *nbytes)
{
    (void)nbytes;
    handshake->number = -5; /* no process */
}

static void
be_too_many(coi_handshake *handshake, int *nbytes)
{
    (void)nbytes;
    handshake->number = INT64_C(1) << 40;
}

static void
be_far(coi_handshake *handshake, int *nbytes)
{
    (void)nbytes;
    handshake->signature ^= 2; /* another machine */
}

static void
be_hostile(void)
{
    static const struct {
        tamper_fn   how;
        int         at; /* which word: 1 opens, 2 is the first exchange */
        co_code     code;
        const char *part;
    } cases[] = { { be_short, 1, CO_FAILED_PRECONDITION, "bytes, ours" },
                  { be_another_version, 1, CO_FAILED_PRECONDITION, "version 99.9 of the library" },
                  { be_another_abi, 1, CO_FAILED_PRECONDITION, "all ranks must run the same" },
                  { fail, 1, CO_DATA_LOSS, "made up" },
                  { be_nobody, 1, CO_OK, "" },
                  { be_too_many, 1, CO_OK, "" },
                  { be_far, 1, CO_OK, "" },
                  { be_short, 2, CO_FAILED_PRECONDITION, "bytes, ours" },
                  { open_again, 2, CO_INTERNAL, "none that this version knows" },
                  { fail, 2, CO_DATA_LOSS, "made up" } };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        outcome o;

        fault.nth = (int)i; /* for messages */
        tamper = rank == 1 ? cases[i].how : NULL;
        tamper_at = cases[i].at;
        words_sent = 0;
        o = go_round(0, &waiting, NULL);
        tamper = NULL;
        if (rank == 0) {
            EXPECT(o.rc == cases[i].code);
            EXPECT(strstr(o.err.message, cases[i].part) != NULL);
        } else {
            EXPECT(cases[i].code != CO_OK || o.rc == CO_OK);
        }
    }
}

/* --- no memory, on both ranks alike --- */

static void
run_out_of_memory(void)
{
    bool is_done = false;

    for (long long n = 1; n < 40 && !is_done; ++n) {
        outcome o;

        fault.nth = (int)n;
        o = go_round(n, &waiting, NULL);
        is_done = o.rc == CO_OK;
        EXPECT(is_done || o.rc == CO_RESOURCE_EXHAUSTED);
        EXPECT(!is_under_way());
    }
    EXPECT(is_done);
}

int
main(void)
{
    int level, total = 0;

    PMPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < MAX_COMMS; ++i)
        PMPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    coi_waiting_init(&waiting, 2, 0);
    coi_waiting_begin(&waiting);
    EXPECT(go_round(0, &waiting, NULL).rc == CO_OK);
    EXPECT(go_round(0, NULL, refuse_to_speak).rc == CO_OK);
    run_out_of_memory();
    be_hostile();
    refuse_to_open();
    fail_calls();
    go_round(0, &waiting, stick);
    go_round(0, &waiting, close_stuck);
    fault.is_stuck = false;
    try_fault("MPI_Test of MPI_Comm_idup", 1, false); /* the last: nothing can be opened after it */
    PMPI_Allreduce(&num_failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d failures\n", total);
    fflush(stdout);
    PMPI_Finalize();
    return total != 0;
}
