/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unit test harness: registration, one process per case, verdicts, the rules log. The verdict
 * of a case is kept in memory shared with its process, not in its exit status, so a body that ends
 * the process early cannot pass.
 *
 * Under an MPI launcher all cases run in the one process that the launcher knows, because MPI
 * starts only once in it; every rank runs the same cases in the same order, and rank 0 alone writes
 * counts and rules.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_S = TEST_SANITIZED ? 240 : 60, REASON_BYTES = 200 };

typedef enum verdict { VERDICT_FAIL, VERDICT_PASS, VERDICT_SKIP } verdict;

/* What a case reports while it runs. */
typedef struct report {
    atomic_int  num_expectations;
    atomic_int  num_failures;
    atomic_bool is_finished;
    atomic_bool is_skipped;
    char        reason[REASON_BYTES];
} report;

/* Memory of the contexts the harness opens: counted, so that what a context did not give back is
 * seen. */
typedef struct ledger {
    co_allocator hooks;
    atomic_llong bytes;
    atomic_llong blocks;
    atomic_llong countdown; /* allocations until one fails; below 0: none does */
    atomic_bool  has_failed;
} ledger;

typedef struct choices {
    bool   list, is_verbose, in_process;
    int    rank; /* under an MPI launcher; 0 outside one */
    char  *row;
    char **parts;
    int    num_parts;
} choices;

static test_case  *first_case;
static test_case **last_case = &first_case;
static report     *current; /* of the case that runs */
static const char *row_settings;
static jmp_buf    *way_out; /* from a body that runs in this process */

void
test_register(test_case *added)
{
    *last_case = added;
    last_case = &added->next;
}

void
test_fail(const char *file, int line, const char *format, ...)
{
    char    text[1400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    atomic_fetch_add(&current->num_failures, 1);
    fprintf(stderr, "%s:%d: %s\n", file, line, text);
}

/* Count an expectation; true when it held and nothing is to be said. */
static bool
holds(bool condition)
{
    atomic_fetch_add(&current->num_expectations, 1);
    return condition;
}

bool
test_true(const char *file, int line, const char *text, bool actual, bool expected)
{
    if (holds(actual == expected))
        return true;
    test_fail(file, line, "%s is %s", text, actual ? "true" : "false");
    return false;
}

bool
test_int(const char *file, int line, const char *text, intmax_t actual, intmax_t expected)
{
    if (holds(actual == expected))
        return true;
    test_fail(file, line, "%s is %jd, expected %jd", text, actual, expected);
    return false;
}

bool
test_compare(const char *file, int line, const char *text, double actual, const char *relation,
             double limit)
{
    if (holds(relation[0] == '<' ? actual < limit : actual > limit))
        return true;
    test_fail(file, line, "%s is %.17g, expected %s %.17g", text, actual, relation, limit);
    return false;
}

bool
test_close(const char *file, int line, const char *text, double actual, double expected,
           double tolerance)
{
    bool is_close;

    if (isnan(expected) || isnan(actual))
        is_close = isnan(expected) && isnan(actual);
    else if (isinf(expected) || isinf(actual))
        is_close = isinf(expected) && isinf(actual) && signbit(expected) == signbit(actual);
    else
        is_close = fabs(actual - expected) <= tolerance;
    if (holds(is_close))
        return true;
    test_fail(file, line, "%s is %.17g, expected %.17g within %g", text, actual, expected,
              tolerance);
    return false;
}

/* A text in quotes, or NULL, for a message. */
static const char *
quoted(const char *text, char *out, size_t size)
{
    if (text == NULL)
        return "NULL";
    snprintf(out, size, "\"%s\"", text);
    return out;
}

bool
test_str(const char *file, int line, const char *text, const char *actual, const char *expected)
{
    char a[600], b[600];

    if (holds(actual == expected ||
              (actual != NULL && expected != NULL && strcmp(actual, expected) == 0)))
        return true;
    test_fail(file, line, "%s is %s, expected %s", text, quoted(actual, a, sizeof(a)),
              quoted(expected, b, sizeof(b)));
    return false;
}

bool
test_contains(const char *file, int line, const char *text, const char *actual, const char *part)
{
    char a[600], b[600];

    if (holds(actual != NULL && strstr(actual, part) != NULL))
        return true;
    test_fail(file, line, "%s is %s, which does not contain %s", text, quoted(actual, a, sizeof(a)),
              quoted(part, b, sizeof(b)));
    return false;
}

bool
test_pointer(const char *file, int line, const char *text, const void *actual, const void *expected)
{
    if (holds(actual == expected))
        return true;
    if (expected == NULL)
        test_fail(file, line, "%s is %p, expected NULL", text, actual);
    else
        test_fail(file, line, "%s is %p, expected %p", text, actual, expected);
    return false;
}

bool
test_bytes(const char *file, int line, const char *text, const void *actual, const void *expected,
           size_t nbytes)
{
    const unsigned char *a = actual, *b = expected;
    size_t               i = 0;

    if (!holds(nbytes == 0 || (a != NULL && b != NULL))) {
        test_fail(file, line, "%s is %p, expected %zu bytes as at %p", text, actual, nbytes,
                  expected);
        return false;
    }
    while (i < nbytes && a[i] == b[i])
        ++i;
    if (i == nbytes)
        return true;
    test_fail(file, line, "byte %zu of %zu of %s is 0x%02x, expected 0x%02x", i, nbytes, text, a[i],
              b[i]);
    return false;
}

bool
test_code(const char *file, int line, const char *text, co_code actual, co_code expected)
{
    if (holds(actual == expected))
        return true;
    test_fail(file, line, "%s is %s, expected %s", text, co_code_name(actual),
              co_code_name(expected));
    return false;
}

bool
test_error(const char *file, int line, co_context *ctx, co_code code, const char *part)
{
    co_error_info info = *co_error(ctx);
    bool          is_right;

    co_clear(ctx);
    is_right = info.code == code && (part == NULL || strstr(info.message, part) != NULL);
    if (holds(is_right))
        return true;
    if (info.code != code)
        test_fail(file, line, "the context has %s (\"%s\"), expected %s", co_code_name(info.code),
                  info.message, co_code_name(code));
    else
        test_fail(file, line, "the message \"%s\" does not contain \"%s\"", info.message, part);
    return false;
}

bool
test_ok(const char *file, int line, co_context *ctx)
{
    co_error_info info = *co_error(ctx);

    if (holds(co_ok(ctx)))
        return true;
    test_fail(file, line, "the context has %s from %s at %s:%d: %s", co_code_name(info.code),
              info.call != NULL ? info.call : "?", info.file != NULL ? info.file : "?", info.line,
              info.message);
    co_clear(ctx);
    return false;
}

void
test_end(void)
{
    atomic_store(&current->is_finished, true);
    if (way_out != NULL)
        longjmp(*way_out, 1);
    fflush(NULL);
    _exit(1);
}

void
test_end_child(bool is_right)
{
#ifdef TEST_COVERAGE
    exit(is_right ? 0 : 1); /* what it did is counted on the way out */
#else
    _exit(
        is_right
            ? 0
            : 1); /* leaks are looked for on that way too, and a fork leaks what it may not touch */
#endif
}

void
test_count_as_skipped(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(current->reason, sizeof(current->reason), format, args);
    va_end(args);
    atomic_store(&current->is_skipped, true);
}

void
test_skip(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(current->reason, sizeof(current->reason), format, args);
    va_end(args);
    atomic_store(&current->is_skipped, true);
    atomic_store(&current->is_finished, true);
    if (way_out != NULL)
        longjmp(*way_out, 1);
    fflush(NULL);
    _exit(0);
}

static void *
ledger_alloc(size_t nbytes, size_t alignment, void *user)
{
    ledger *book = user;
    size_t  rounded = (nbytes + alignment - 1) / alignment * alignment;
    void   *memory;

    if (atomic_load(&book->countdown) >= 0 && atomic_fetch_sub(&book->countdown, 1) == 0) {
        atomic_store(&book->has_failed, true);
        return NULL;
    }
    memory = aligned_alloc(alignment, rounded);
    if (memory != NULL) {
        atomic_fetch_add(&book->bytes, (long long)nbytes);
        atomic_fetch_add(&book->blocks, 1);
    }
    return memory;
}

static void
ledger_free(void *memory, size_t nbytes, void *user)
{
    ledger *book = user;

    atomic_fetch_sub(&book->bytes, (long long)nbytes);
    atomic_fetch_sub(&book->blocks, 1);
    free(memory);
}

/* Open a context whose memory is entered in `book`. */
static co_context *
open_counted(ledger *book, const char *settings)
{
    co_options options = CO_OPTIONS_INIT;

    book->hooks = (co_allocator){ ledger_alloc, ledger_free, book };
    options.settings = settings;
    options.allocator = &book->hooks;
    return co_open_with(&options);
}

static void
expect_settled(const char *file, int line, const ledger *book, const char *when)
{
    long long blocks = atomic_load(&book->blocks), bytes = atomic_load(&book->bytes);

    if (!holds(blocks == 0 && bytes == 0))
        test_fail(file, line, "%lld blocks with %lld bytes were not given back %s", blocks, bytes,
                  when);
}

void
test_each_allocation(const char *file, int line, const char *settings,
                     bool (*body)(co_context *ctx))
{
    enum { MAX_ALLOCATIONS = 100000 };

    for (long long n = 0; n < MAX_ALLOCATIONS; ++n) {
        ledger      book = { .countdown = -1 };
        co_context *ctx;
        bool        is_done;
        co_code     code;
        char        when[64];

        atomic_store(&book.countdown, n);
        ctx = open_counted(&book, settings);
        is_done = body(ctx);
        code = ctx != NULL ? co_error(ctx)->code : CO_RESOURCE_EXHAUSTED;
        co_clear(ctx);
        co_close(ctx);
        snprintf(when, sizeof(when), "when allocation %lld failed", n);
        expect_settled(file, line, &book, when);
        if (!atomic_load(&book.has_failed)) {
            if (!holds(is_done && code == CO_OK))
                test_fail(file, line, "with all memory: done is %d, the code %s", is_done,
                          co_code_name(code));
            return;
        }
        /* Work that goes on without the memory it asked for, a cache say, may succeed. */
        if (!holds(is_done ? code == CO_OK : code == CO_RESOURCE_EXHAUSTED))
            test_fail(file, line, "%s: done is %d, the code %s, expected CO_RESOURCE_EXHAUSTED",
                      when, is_done, co_code_name(code));
    }
    test_fail(file, line, "still failing after %d allocations", MAX_ALLOCATIONS);
}

/* The case itself, in its own process. */
static void
run_body(const test_case *test)
{
    ledger      book = { .countdown = -1 };
    co_context *ctx = NULL;
    int         num_own;

    if (!test->is_bare) {
        ctx = open_counted(&book, test->settings != NULL ? test->settings : row_settings);
        if (ctx == NULL) {
            test_fail(test->name, 0, "co_open gave NULL");
            test_end();
        }
        test_ok(test->name, 0, ctx);
    }
    num_own = atomic_load(&current->num_expectations);
    test->body(ctx);
    if (atomic_load(&current->num_expectations) == num_own)
        test_fail(test->name, 0, "nothing was expected, so nothing was proven");
    if (!test->is_bare) {
        test_ok(test->name, 0, ctx);
        test_code(test->name, 0, "co_close(ctx)", co_close(ctx), CO_OK);
        expect_settled(test->name, 0, &book, "by co_close");
    }
    atomic_store(&current->is_finished, true);
}

static int
timeout_seconds(void)
{
    const char *text = getenv("COHORT_TEST_TIMEOUT");
    int         seconds = text != NULL ? atoi(text) : 0;

    return seconds > 0 ? seconds : TIMEOUT_S;
}

/* Wait for a child; false when it was ended because its time was over. SIGCHLD is blocked. */
static bool
wait_for(pid_t pid, int *status)
{
    struct timespec limit = { timeout_seconds(), 0 };
    sigset_t        set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (;;) {
        if (waitpid(pid, status, WNOHANG) == pid)
            return true;
        if (sigtimedwait(&set, NULL, &limit) < 0 && errno == EAGAIN)
            break;
    }
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    waitpid(pid, status, 0);
    return false;
}

/* What the child does: its output goes to `output`, and nothing of it outlives the parent. */
static void
be_child(const test_case *test, int output)
{
    sigset_t none;
    int      null = open("/dev/null", O_RDONLY);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    run_body(test);
    /* exit, not _exit: leak checks and line counts are made on the way out. */
    exit(atomic_load(&current->num_failures) == 0 ? 0 : 1);
}

static void
print_output(int output)
{
    char    buffer[4096];
    ssize_t got;

    lseek(output, 0, SEEK_SET);
    while ((got = read(output, buffer, sizeof(buffer))) > 0)
        fwrite(buffer, 1, (size_t)got, stdout);
}

/* Judge what a case left behind; `why` says why it failed beyond its expectations. */
static verdict
judge(bool in_time, int status, char *why, size_t size)
{
    why[0] = '\0';
    if (!in_time)
        snprintf(why, size, "ended after %d s without a result", timeout_seconds());
    else if (WIFSIGNALED(status))
        snprintf(why, size, "ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (!atomic_load(&current->is_finished))
        snprintf(why, size, "the process ended inside the body with status %d",
                 WEXITSTATUS(status));
    else if (WEXITSTATUS(status) != 0 && atomic_load(&current->num_failures) == 0)
        snprintf(why, size, "the process ended with status %d", WEXITSTATUS(status));
    if (why[0] != '\0' || atomic_load(&current->num_failures) > 0)
        return VERDICT_FAIL;
    return atomic_load(&current->is_skipped) ? VERDICT_SKIP : VERDICT_PASS;
}

/* Say how a case ended, with the rank where there are several. */
static void
announce(const test_case *test, verdict result, const char *why, const choices *chosen)
{
    static const char *const words[] = { "FAIL", "pass", "skip" };
    const char              *reason = result == VERDICT_SKIP ? current->reason : why;

    if (result == VERDICT_PASS && !chosen->is_verbose)
        return;
    if (result == VERDICT_SKIP && chosen->rank > 0)
        return;
    printf("%s %s%s%s", words[result], test->name, reason[0] != '\0' ? ": " : "", reason);
    if (chosen->rank > 0)
        printf(" (rank %d)", chosen->rank);
    printf("\n");
}

static verdict
run_in_process(const test_case *test, const choices *chosen)
{
    char    why[REASON_BYTES];
    jmp_buf here;
    verdict result;

    memset(current, 0, sizeof(*current));
    way_out = &here;
    if (setjmp(here) == 0)
        run_body(test);
    way_out = NULL;
    result = judge(true, 0, why, sizeof(why));
    announce(test, result, why, chosen);
    return result;
}

static verdict
run_in_child(const test_case *test, const choices *chosen)
{
    char    why[REASON_BYTES];
    int     output = memfd_create("output", MFD_CLOEXEC), status = 0;
    verdict result;
    pid_t   pid;
    bool    in_time;

    memset(current, 0, sizeof(*current));
    fflush(NULL);
    pid = output >= 0 ? fork() : -1;
    if (pid == 0)
        be_child(test, output);
    if (pid < 0) {
        printf("FAIL %s: no process for it: %s\n", test->name, strerror(errno));
        return VERDICT_FAIL;
    }
    in_time = wait_for(pid, &status);
    kill(-pid, SIGKILL); /* processes the case left behind */
    result = judge(in_time, status, why, sizeof(why));
    announce(test, result, why, chosen);
    if (result == VERDICT_FAIL || chosen->is_verbose)
        print_output(output);
    close(output);
    return result;
}

/* One line for each rule the case carries. A skipped case proves nothing and says nothing. */
static void
log_rules(const char *program, const test_case *test, verdict result)
{
    const char *path = getenv("COHORT_RULES_LOG");
    const char *rule = test->rules;
    FILE       *file;

    if (path == NULL || result == VERDICT_SKIP || rule[0] == '\0')
        return;
    file = fopen(path, "a");
    if (file == NULL) {
        printf("cannot write rules to %s: %s\n", path, strerror(errno));
        return;
    }
    /* A buffer larger than all lines of a case makes them one write: programs share the file. */
    setvbuf(file, NULL, _IOFBF, 1 << 16);
    while (*rule != '\0') {
        size_t length = strcspn(rule, " ");

        if (length > 0)
            fprintf(file, "%.*s\t%s/%s\t%s\n", (int)length, rule, program, test->name,
                    result == VERDICT_PASS ? "pass" : "fail");
        rule += length + strspn(rule + length, " ");
    }
    fclose(file);
}

/* A file for scripts/run-tests, which names the program by its entry in ctest; NULL when nobody
 * asked. */
static FILE *
open_for_runner(const char *suffix, const char *mode)
{
    const char *folder = getenv("COHORT_COUNTS_DIR"), *name = getenv("COHORT_TEST_NAME");
    char        path[PATH_MAX];

    if (folder == NULL || name == NULL)
        return NULL;
    snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
    return fopen(path, mode);
}

static void
write_skipped(const char *program, const test_case *test)
{
    FILE *file = open_for_runner(".skipped", "a");

    if (file == NULL)
        return;
    fprintf(file, "%s/%s: %s\n", program, test->name, current->reason);
    fclose(file);
}

static void
write_counts(const int counts[3])
{
    FILE *file = open_for_runner("", "w");

    if (file == NULL)
        return;
    fprintf(file, "%d %d %d\n", counts[VERDICT_PASS], counts[VERDICT_FAIL], counts[VERDICT_SKIP]);
    fclose(file);
}

static bool
is_chosen(const test_case *test, const choices *chosen)
{
    for (int i = 0; i < chosen->num_parts; ++i)
        if (strstr(test->name, chosen->parts[i]) != NULL)
            return true;
    return chosen->num_parts == 0;
}

/* The rank an MPI launcher (Open MPI, MPICH and its kin, Slurm) gave this process, or -1. */
static int
launched_rank(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
        if (getenv(names[i]) != NULL)
            return atoi(getenv(names[i]));
    return -1;
}

static bool
parse(int argc, char **argv, choices *out)
{
    int i, rank = launched_rank();

    if (rank >= 0) {
        out->in_process = true;
        out->rank = rank;
    }
    for (i = 1; i < argc && argv[i][0] == '-'; ++i) {
        if (strcmp(argv[i], "--list") == 0)
            out->list = true;
        else if (strcmp(argv[i], "--verbose") == 0)
            out->is_verbose = true;
        else if (strcmp(argv[i], "--no-fork") == 0)
            out->in_process = true;
        else if (strcmp(argv[i], "--row") == 0 && i + 1 < argc && test_take_row != NULL)
            out->row = argv[++i];
        else
            return false;
    }
    out->parts = argv + i;
    out->num_parts = argc - i;
    return true;
}

int
main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    char        program[200];
    choices     chosen = { 0 };
    int         counts[3] = { 0 };
    sigset_t    set;

    snprintf(program, sizeof(program), "%s", slash != NULL ? slash + 1 : argv[0]);
    if (!parse(argc, argv, &chosen)) {
        fprintf(stderr, "usage: %s [--list] [--verbose] [--no-fork]%s [NAME-PART...]\n", program,
                test_take_row != NULL ? " [--row NAME]" : "");
        return 2;
    }
    if (chosen.row != NULL) {
        if (!test_take_row(chosen.row, &row_settings))
            return 2;
        snprintf(program + strlen(program), sizeof(program) - strlen(program), ".%s", chosen.row);
    }
    current = mmap(NULL, sizeof(*current), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                   0);
    if (current == MAP_FAILED) {
        fprintf(stderr, "%s: no memory for the report\n", program);
        return 2;
    }
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);

    for (const test_case *test = first_case; test != NULL; test = test->next) {
        verdict result;

        if (!is_chosen(test, &chosen))
            continue;
        if (chosen.list) {
            printf("%s\t%s\n", test->name, test->rules);
            continue;
        }
        result = chosen.in_process ? run_in_process(test, &chosen) : run_in_child(test, &chosen);
        ++counts[result];
        if (chosen.rank == 0)
            log_rules(program, test, result);
        if (chosen.rank == 0 && result == VERDICT_SKIP)
            write_skipped(program, test);
    }
    if (chosen.list)
        return 0;
    if (chosen.rank > 0)
        return counts[VERDICT_FAIL] == 0 ? 0 : 1;
    write_counts(counts);
    printf("%d passed, %d failed", counts[VERDICT_PASS], counts[VERDICT_FAIL]);
    if (counts[VERDICT_SKIP] > 0)
        printf(", %d skipped", counts[VERDICT_SKIP]);
    printf("\n");
    return counts[VERDICT_FAIL] == 0 && counts[VERDICT_PASS] + counts[VERDICT_SKIP] > 0 ? 0 : 1;
}
