/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: a callback of the user, or standard error, behind a level. This is the only place where
 * the library prints. The default level is error: nothing is logged while all goes well.
 */
#ifndef COI_BASE_LOG_H
#define COI_BASE_LOG_H

#include <cohort/context.h>
#include <pthread.h>

typedef struct coi_log {
    co_log_level    level;
    co_log_fn       fn;
    void           *user;
    pthread_mutex_t lock; /* one line at a time */
} coi_log;

void coi_log_init(coi_log *log, co_log_fn fn, void *user);
void coi_log_destroy(coi_log *log);
/* One line, cut at 2000 bytes. log may be NULL. */
void coi_log_line(coi_log *log, co_log_level level, const char *format, ...) CO_PRINTF(3, 4);
#define coi_log_on(log, lvl) ((log) != NULL && (lvl) <= (log)->level)

#endif
