/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A word that a process keeps and its forked children do not: it is zero in them. Reading it costs
 * what any other word costs, so that every call can tell whether it is made in the process that
 * opened the runtime.
 */
#ifndef COI_BASE_OWNER_PROCESS_H
#define COI_BASE_OWNER_PROCESS_H

#include <stdint.h>

/* A word with this value, or NULL where the system has no such memory. */
uint32_t *coi_owner_word_new(uint32_t value);
/* NULL is allowed. */
void coi_owner_word_free(uint32_t *word);

#endif
