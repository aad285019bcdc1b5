/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling error records. Folders above `context` do not know contexts: the caller passes the record
 * to fill. The function that decides what went wrong writes the message; callers pass the code on
 * unchanged.
 */
#ifndef COI_BASE_ERROR_H
#define COI_BASE_ERROR_H

#include <cohort/error.h>
#include <stdarg.h>

/* Ends of nouns that agree with a number: "%zu row%s", n, COI_S(n). */
#define COI_S(n)    ((n) == 1 ? "" : "s")
#define COI_ES(n)   ((n) == 1 ? "" : "es")     /* loss */
#define COI_IES(n)  ((n) == 1 ? "y" : "ies")   /* entry */
#define COI_XES(n)  ((n) == 1 ? "is" : "es")   /* axis */
#define COI_ICES(n) ((n) == 1 ? "ex" : "ices") /* index */

/* Functions that are called on the way to an error alone, or for people to read. The compiler moves
 * such ways out of the functions that have them, to pages that a program may never load. */
#define COI_RARE __attribute__((cold))

/* Fill `err` (may be NULL) if it has no error yet; returns code. */
COI_RARE co_code coi_error(co_error_info *err, co_code code, const char *format, ...)
    CO_PRINTF(3, 4);
co_code coi_error_va(co_error_info *err, co_code code, const char *format, va_list args)
    CO_PRINTF(3, 0);
/* A record without an error. */
static inline void
coi_error_reset(co_error_info *err)
{
    err->code = CO_OK;
    err->rank = -1;
    err->replica = -1;
    err->call = NULL;
    err->file = NULL;
    err->line = 0;
    err->message[0] = '\0';
    err->payload = NULL;
}

#endif
