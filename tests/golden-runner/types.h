/* SPDX-License-Identifier: Apache-2.0 */
/* The mode --types: what the rules of operators say of types with unknowns (types.c). */
#ifndef GOLDEN_TYPES_H
#define GOLDEN_TYPES_H

#include "ops.h"

/* A fault put into every inferred type, to prove that the checks find it. */
typedef enum golden_fault {
    GOLDEN_NO_FAULT = 0,
    GOLDEN_FORGETS,      /* a known dimension is said to be unknown */
    GOLDEN_FORGETS_RANK, /* a known rank is said to be unknown */
    GOLDEN_INVENTS,      /* an unknown dimension is said to be that of the case */
    GOLDEN_LIES,         /* a known dimension is another one */
    GOLDEN_LIES_DTYPE,   /* the dtype is another one */
    GOLDEN_REFUSES       /* an error that the case does not have */
} golden_fault;
extern const char *const golden_fault_names[]; /* in this order, NULL behind the last */

void golden_run_types(golden_case *c);

#endif
