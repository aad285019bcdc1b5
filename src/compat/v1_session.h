/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of sessions.
 */
#ifndef COI_COMPAT_V1_SESSION_H
#define COI_COMPAT_V1_SESSION_H

#include "compat/v1_graph.h"

/* Slots of a graph, in the order in which they were named; few. */
typedef struct coi_slot_list {
    uint64_t *slots;
    size_t    n, cap;
} coi_slot_list;

/* False with an error without memory. One that is there is not added again. */
bool coi_slot_list_add(co_context *ctx, coi_slot_list *slots, uint64_t slot);
bool coi_slot_list_has(const coi_slot_list *slots, uint64_t slot);
void coi_slot_list_free(co_context *ctx, coi_slot_list *slots);

/* The steps of a graph that some fetches need, with some feeds, in the order in which they run. */
typedef struct coi_session_plan {
    coi_object        object;
    coi_memory       *memory;
    coi_slot_list     fetched, fed; /* which it is for */
    uint64_t          version;      /* of the graph */
    coi_program_step *steps;        /* copies; what they point to is the graph's, their attributes
                                     * of runs aside */
    size_t    num_steps, cap_steps;
    uint32_t *dropped; /* slots, by the last step that uses them */
    size_t    num_slots;
    bool      has_examples;
} coi_session_plan;

#define COI_MAX_PLANS 64

struct co_session {
    coi_object        object;
    co_graph         *graph;  /* references */
    co_value         *config; /* a string, or none */
    atomic_bool       is_closed;
    atomic_ullong     num_runs;
    coi_lock          lock;                 /* of what follows */
    coi_session_plan *plans[COI_MAX_PLANS]; /* references; oldest first */
    size_t            num_plans;
};

/* v1_session_plan.c. The plan for these, made where there is none: a reference, or NULL with an
 * error. */
coi_session_plan *coi_session_plan_for(co_context *ctx, co_session *session, coi_slot_list *fetched,
                                       coi_slot_list *fed);

#endif
