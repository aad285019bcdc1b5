/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of one rank, for the registry in transport.c. */
#ifndef COI_COLLECTIVE_SELF_SELF_H
#define COI_COLLECTIVE_SELF_SELF_H

#include "collective/collective.h"

extern const coi_transport coi_self_transport;

#endif
