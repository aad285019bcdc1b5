/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases in child processes. A child runs cases in order and reports each over a pipe; if it dies or
 * stalls, the case it was at has failed, and another child goes on behind it. The parent never
 * opens the library, so that forking is safe.
 */
#include "golden.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE_TIMEOUT_MS 60000

/* What a child writes per case; small enough for one atomic write. */
typedef struct report {
    size_t         index;
    golden_verdict verdict;
} report;

typedef struct run {
    const char           *family;
    const char           *folder;
    json_t               *cases;
    const golden_options *options;
    golden_count         *count;
} run;

static const char *
case_id(const run *r, size_t index)
{
    const char *id = json_string_value(json_object_get(json_array_get(r->cases, index), "id"));

    return id != NULL ? id : "(no id)";
}

static bool
is_selected(const run *r, size_t index)
{
    char name[300];

    if (r->options->filter == NULL)
        return true;
    snprintf(name, sizeof(name), "%s/%s", r->family, case_id(r, index));
    return strstr(name, r->options->filter) != NULL;
}

static void
add_types(golden_types_count *sum, const golden_types_count *more)
{
    sum->combinations += more->combinations;
    sum->unknown_ranks += more->unknown_ranks;
    sum->samples += more->samples;
    sum->dimensions += more->dimensions;
    sum->errors += more->errors;
    sum->programs += more->programs;
}

static void
count_apart(golden_count *count, const char *why)
{
    size_t i = 0;

    while (i + 1 < GOLDEN_MAX_APART && count->apart[i].n > 0 &&
           strcmp(count->apart[i].why, why) != 0)
        ++i;
    snprintf(count->apart[i].why, sizeof(count->apart[i].why), "%s", why);
    ++count->apart[i].n;
}

static void
print_verdict(const run *r, size_t index, const golden_verdict *verdict)
{
    add_types(&r->count->types, &verdict->types);
    if (verdict->is_passed && verdict->apart[0] != '\0') {
        count_apart(r->count, verdict->apart);
        if (r->options->is_verbose)
            printf("%s/%s: apart: %s\n", r->family, case_id(r, index), verdict->apart);
        return;
    }
    if (verdict->is_passed) {
        ++r->count->passed;
        if (r->options->is_verbose)
            printf("%s/%s: passed\n", r->family, case_id(r, index));
        return;
    }
    ++r->count->failed;
    printf("%s/%s: %s\n", r->family, case_id(r, index), verdict->reason);
}

static bool
write_all(int fd, const void *data, size_t nbytes)
{
    const char *at = data;

    while (nbytes > 0) {
        ssize_t n = write(fd, at, nbytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        nbytes -= (size_t)n;
    }
    return true;
}

/* The life of a child: cases from `first` on. */
static _Noreturn void
run_child(const run *r, size_t first, int fd)
{
    size_t n = json_array_size(r->cases);

    for (size_t i = first; i < n; ++i) {
        report line;

        if (!is_selected(r, i))
            continue;
        memset(&line, 0, sizeof(line));
        line.index = i;
        golden_case_run(r->family, r->folder, json_array_get(r->cases, i), r->options,
                        &line.verdict);
        for (char *at = line.verdict.reason; *at != '\0'; ++at)
            if (*at == '\n')
                *at = ' ';
        if (!write_all(fd, &line, sizeof(line)))
            _exit(3);
    }
    close(fd);
    exit(0); /* not _exit: sanitizers report leaks on the way out */
}

/* Read one report; 0 at the end of the pipe, -1 when the child said nothing for too long. */
static int
read_report(int fd, report *line)
{
    char  *at = (char *)line;
    size_t missing = sizeof(*line);

    while (missing > 0) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        int           ready = poll(&wait, 1, CASE_TIMEOUT_MS);
        ssize_t       n;

        if (ready < 0 && errno == EINTR)
            continue;
        if (ready == 0)
            return -1;
        n = read(fd, at, missing);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        at += n;
        missing -= (size_t)n;
    }
    return 1;
}

/* Why a child ended early; empty when it did not. */
static void
describe_end(int status, bool is_stalled, char *out, size_t capacity)
{
    if (is_stalled)
        snprintf(out, capacity, "no result after %d s: it was ended", CASE_TIMEOUT_MS / 1000);
    else if (WIFSIGNALED(status))
        snprintf(out, capacity, "crashed: %s", strsignal(WTERMSIG(status)));
    else if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        snprintf(out, capacity, "ended the process with status %d", WEXITSTATUS(status));
    else
        out[0] = '\0';
}

static size_t
next_selected(const run *r, size_t from)
{
    size_t n = json_array_size(r->cases);

    while (from < n && !is_selected(r, from))
        ++from;
    return from;
}

/* One child from `first` on. Returns the case to go on with. */
static size_t
run_chunk(const run *r, size_t first)
{
    size_t         n = json_array_size(r->cases);
    size_t         next = first;
    int            ends[2], status = 0, got;
    report         line;
    pid_t          child;
    golden_verdict early = { .is_passed = false };

    fflush(NULL);
    if (pipe(ends) != 0 || (child = fork()) < 0) {
        snprintf(early.reason, sizeof(early.reason), "no process for it: %s", strerror(errno));
        print_verdict(r, first, &early);
        return next_selected(r, first + 1);
    }
    if (child == 0) {
        close(ends[0]);
        run_child(r, first, ends[1]);
    }
    close(ends[1]);
    while ((got = read_report(ends[0], &line)) > 0) {
        print_verdict(r, line.index, &line.verdict);
        next = next_selected(r, line.index + 1);
    }
    close(ends[0]);
    if (got < 0)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    describe_end(status, got < 0, early.reason, sizeof(early.reason));
    if (next < n) { /* it did not come to the end: the case it was at is the one that ended it */
        if (early.reason[0] == '\0')
            snprintf(early.reason, sizeof(early.reason), "ended the process");
        print_verdict(r, next, &early);
        return next_selected(r, next + 1);
    }
    if (early.reason[0] != '\0') { /* all cases reported, and then it failed: a leak, say */
        ++r->count->failed;
        printf("%s: after the last case: %s\n", r->family, early.reason);
    }
    return n;
}

void
golden_run_cases(const char *family, const char *folder, json_t *cases,
                 const golden_options *options, golden_count *count)
{
    const run r = { family, folder, cases, options, count };
    size_t    n = json_array_size(cases);
    size_t    at = next_selected(&r, 0);

    while (at < n)
        at = run_chunk(&r, at);
}
