/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder of a strategy: a ring of the last rendezvous. The first replica to arrive
 * claims an entry and fills it, the last one adds the result. A writer holds an entry for a few
 * stores and waits for nothing else; a reader that finds a concurrent write reads again, so that it
 * shows a consistent entry.
 */
#ifndef COI_STRATEGY_FLIGHT_RECORDER_H
#define COI_STRATEGY_FLIGHT_RECORDER_H

#include <cohort/flight_recorder.h>

#include "context/context.h"

/* Shape and dtype of a replica's value at a rendezvous: its first leaf, and the number of leaves.
 */
typedef struct coi_summary {
    uint8_t  kind; /* co_kind; of nothing where num_leaves is 0 */
    uint8_t  dtype;
    int8_t   ndim;
    uint32_t num_leaves;
    int64_t  dims[4]; /* the first */
} coi_summary;
void coi_summarise(const co_value *value, coi_summary *out);
/* "float32 [2,3] and 4 more"; returns out. */
#define COI_SUMMARY_TEXT 128
const char *coi_summary_text(const coi_summary *summary, char out[COI_SUMMARY_TEXT]);

struct coi_step;

/* What is known when an entry begins. */
typedef struct coi_flight {
    uint64_t           epoch, sequence;
    int                kind; /* coi_rendezvous_kind */
    int                expected;
    co_site_info       site;
    struct coi_step   *step;    /* of replicas, to see which have come; NULL: ranks */
    unsigned           round;   /* of the step, while it waits */
    const coi_summary *summary; /* or, of ranks, */
    const char        *text;
} coi_flight;

typedef struct coi_recorder coi_recorder;
coi_recorder               *coi_recorder_new(coi_memory *memory);
/* NULL is allowed. */
void coi_recorder_free(coi_memory *memory, coi_recorder *recorder);

/* The number of the new entry. */
uint64_t coi_flight_begin(coi_recorder *recorder, const coi_flight *flight);
/* All have arrived, and the rendezvous continues: data, or the function of a merge. */
void coi_flight_met(coi_recorder *recorder, uint64_t number);
/* It ended, and all came. Numbers of entries that are not in the ring any more are ignored. */
void coi_flight_end(coi_recorder *recorder, uint64_t number, co_code outcome);
/* It ended before all came: `came` says which of n did. */
typedef bool (*coi_came_fn)(const void *arg, int i);
void coi_flight_cut(coi_recorder *recorder, uint64_t number, co_code outcome, int n,
                    coi_came_fn came, const void *arg);

/* A rendezvous ended the run: it is to be reported (once). */
void coi_flight_trouble(coi_recorder *recorder);
bool coi_flight_take_trouble(coi_recorder *recorder);
/* co_flight_visit, from entry `since` on. */
void coi_flight_visit(const co_strategy *strategy, uint64_t since, co_flight_fn fn, void *user);
/* The last entries to the log, and all to the file of the settings. */
void coi_flight_report(const co_strategy *strategy);

#endif
