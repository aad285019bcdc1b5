/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operation of a rendezvous of replicas or workers.
 */
#ifndef COI_STRATEGY_RENDEZVOUS_KIND_H
#define COI_STRATEGY_RENDEZVOUS_KIND_H

typedef enum coi_rendezvous_kind {
    COI_RENDEZVOUS_NONE = 0,
    COI_RENDEZVOUS_MERGE,
    COI_RENDEZVOUS_ALL_REDUCE,
    COI_RENDEZVOUS_ALL_GATHER,
    COI_RENDEZVOUS_ASSIGN,
    COI_RENDEZVOUS_UPDATE,
    COI_RENDEZVOUS_VARIABLE,
    COI_RENDEZVOUS_REDUCE, /* between workers, outside a step */
    COI_RENDEZVOUS_GATHER,
    COI_RENDEZVOUS_READ,
    COI_RENDEZVOUS_INPUT,
    COI_RENDEZVOUS_BROADCAST,
    COI_RENDEZVOUS_STRATEGY,
    COI_RENDEZVOUS_CHECKPOINT
} coi_rendezvous_kind;
const char *coi_rendezvous_name(coi_rendezvous_kind kind);

#endif
