/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What graphs and sessions share.
 */
#ifndef COI_COMPAT_V1_GRAPH_H
#define COI_COMPAT_V1_GRAPH_H

#include <cohort/v1.h>

#include "function/graph.h"

/* Whether ctx adds to a graph; CO_RUNTIME_ERROR where it does not. */
bool coi_check_in_graph(co_context *ctx);
/* Whether a tensor or symbolic tensor has a shape that fits a type, which may have unknowns;
 * CO_VALUE_ERROR where it does not. `what` names it. */
bool coi_check_fits(co_context *ctx, const co_value *type, const co_value *value, const char *what);

#endif
