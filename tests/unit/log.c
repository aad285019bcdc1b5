/* SPDX-License-Identifier: Apache-2.0 */
/* Where log lines go, and that logging harms nobody. */
#include "base/log.h"
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

typedef struct heard {
    coi_log     *log;
    int          lines;
    co_log_level level;
    char         last[2100];
} heard;

static void
listen(co_log_level level, const char *line, void *user)
{
    heard *h = user;

    ++h->lines;
    h->level = level;
    snprintf(h->last, sizeof(h->last), "%s", line);
    if (h->log != NULL)
        coi_log_line(h->log, CO_LOG_ERROR, "said while listening");
}

CO_TEST_BARE(only_lines_up_to_the_level_are_heard, "")
{
    heard   h = { 0 };
    coi_log log;

    coi_log_init(&log, listen, &h);
    errno = 44;
    coi_log_line(&log, CO_LOG_WARNING, "not heard: the default level is error");
    CO_EXPECT_INT(h.lines, 0);
    coi_log_line(&log, CO_LOG_ERROR, "number %d", 5);
    CO_EXPECT_INT(h.lines, 1);
    CO_EXPECT_STR(h.last, "number 5");
    log.level = CO_LOG_DEBUG;
    for (int level = CO_LOG_OFF - 1; level <= CO_LOG_DEBUG + 1; ++level)
        coi_log_line(&log, (co_log_level)level, "level %d", level);
    CO_EXPECT_INT(h.lines, 5); /* the four levels there are */
    CO_EXPECT_INT(h.level, CO_LOG_DEBUG);
    log.level = CO_LOG_OFF;
    coi_log_line(&log, CO_LOG_ERROR, "off");
    CO_EXPECT_INT(h.lines, 5);
    coi_log_line(NULL, CO_LOG_ERROR, "no log");
    CO_EXPECT_INT(errno, 44);
    coi_log_destroy(&log);
}

CO_TEST_BARE(a_line_is_one_line_of_at_most_2000_bytes, "")
{
    heard   h = { 0 };
    coi_log log;
    char    text[5000];

    memset(text, '\n', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    coi_log_init(&log, listen, &h);
    coi_log_line(&log, CO_LOG_ERROR, "%s", text);
    CO_EXPECT_INT(strlen(h.last), 1999);
    CO_EXPECT_NULL(strchr(h.last, '\n'));
    coi_log_destroy(&log);
}

CO_TEST_BARE(a_callback_may_cause_log_lines, "")
{
    coi_log log;
    heard   h = { 0 };

    h.log = &log;
    coi_log_init(&log, listen, &h);
    coi_log_line(&log, CO_LOG_ERROR, "outer");
    CO_EXPECT_INT(h.lines, 1); /* the inner one is dropped rather than waited for */
    coi_log_line(&log, CO_LOG_ERROR, "outer");
    CO_EXPECT_INT(h.lines, 2);
    coi_log_destroy(&log);
}

/* What standard error receives while `line` is logged, with a pipe in its place. */
static void
log_to_pipe(const char *line, bool close_reader, char *out, size_t capacity)
{
    int     saved = dup(STDERR_FILENO);
    int     ends[2];
    coi_log log;
    ssize_t got = 0;

    CO_REQUIRE(saved >= 0 && pipe(ends) == 0);
    if (close_reader)
        close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    coi_log_init(&log, NULL, NULL);
    coi_log_line(&log, CO_LOG_ERROR, "%s", line);
    coi_log_destroy(&log);
    dup2(saved, STDERR_FILENO);
    close(saved);
    if (!close_reader) {
        got = read(ends[0], out, capacity - 1);
        close(ends[0]);
    }
    out[got > 0 ? got : 0] = '\0';
}

CO_TEST_BARE(without_a_callback_lines_go_to_standard_error, "")
{
    char seen[200];

    log_to_pipe("the\ndisk is full", false, seen, sizeof(seen));
    CO_EXPECT_STR(seen, "cohort: error: the disk is full\n");
}

/* SIGPIPE with its default action would end the process. */
CO_TEST_BARE(a_closed_standard_error_does_not_end_the_host, "")
{
    char     seen[8];
    sigset_t pending;

    signal(SIGPIPE, SIG_DFL);
    log_to_pipe("nobody reads this", true, seen, sizeof(seen));
    sigpending(&pending);
    CO_EXPECT_INT(sigismember(&pending, SIGPIPE), 0);
    pthread_sigmask(SIG_BLOCK, NULL, &pending);
    CO_EXPECT_INT(sigismember(&pending, SIGPIPE), 0);
}

static void *
log_often(void *arg)
{
    for (int i = 0; i < 500; ++i)
        coi_log_line(arg, CO_LOG_ERROR, "line %d", i);
    return NULL;
}

/*
 * The callback counts without atomics: the thread sanitizer proves that lines come one at a time.
 */
CO_TEST_BARE(lines_come_one_at_a_time, "")
{
    heard     h = { 0 };
    coi_log   log;
    pthread_t threads[4];

    coi_log_init(&log, listen, &h);
    for (size_t i = 0; i < 4; ++i)
        CO_REQUIRE(pthread_create(&threads[i], NULL, log_often, &log) == 0);
    for (size_t i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    CO_EXPECT_INT(h.lines, 2000);
    coi_log_destroy(&log);
}
