/* SPDX-License-Identifier: Apache-2.0 */
/* One log line at a time, to the user's callback or to standard error. */
#include "base/log.h"

#include "base/text.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2000

static const char *const level_names[] = { "off", "error", "warning", "info", "debug" };

void
coi_log_init(coi_log *log, co_log_fn fn, void *user)
{
    pthread_mutexattr_t attributes;

    log->level = CO_LOG_ERROR;
    log->fn = fn;
    log->user = user;
    /* Error checking: a callback that makes the library log again must not wait for itself. */
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&log->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void
coi_log_destroy(coi_log *log)
{
    pthread_mutex_destroy(&log->lock);
}

/*
 * Write to standard error. A closed pipe must not end the host: SIGPIPE is blocked on this thread,
 * and the signal that our write caused is removed from the queue.
 */
static void
write_quietly(const char *line, size_t length)
{
    static const struct timespec no_time = { 0, 0 };
    sigset_t                     pipe_set;
    sigset_t                     old_set;
    sigset_t                     pending;
    bool                         was_pending;
    bool                         broken = false;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending = sigismember(&pending, SIGPIPE) == 1;
    if (pthread_sigmask(SIG_BLOCK, &pipe_set, &old_set) != 0)
        return;
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, line, length);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            broken = written < 0 && errno == EPIPE;
            break;
        }
        line += written;
        length -= (size_t)written;
    }
    if (broken && !was_pending)
        while (sigtimedwait(&pipe_set, NULL, &no_time) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &old_set, NULL);
}

static void
write_line(co_log_level level, const char *text)
{
    char   line[LINE_MAX_BYTES + 32];
    size_t length = coi_text_line(line, sizeof(line) - 1, "cohort: %s: %s", level_names[level],
                                  text);

    line[length] = '\n';
    write_quietly(line, length + 1);
}

void
coi_log_line(coi_log *log, co_log_level level, const char *format, ...)
{
    char    text[LINE_MAX_BYTES];
    int     saved_errno = errno;
    va_list args;

    if (!coi_log_on(log, level) || level < CO_LOG_ERROR || level > CO_LOG_DEBUG)
        return;
    va_start(args, format);
    coi_text_line_va(text, sizeof(text), format, args);
    va_end(args);
    if (pthread_mutex_lock(&log->lock) == 0) {
        if (log->fn != NULL)
            log->fn(level, text, log->user);
        else
            write_line(level, text);
        pthread_mutex_unlock(&log->lock);
    }
    errno = saved_errno;
}
