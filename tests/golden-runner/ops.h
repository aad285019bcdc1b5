/* SPDX-License-Identifier: Apache-2.0 */
/* What family_ops.c and ops_programs.c share. */
#ifndef GOLDEN_OPS_H
#define GOLDEN_OPS_H

#include "golden.h"

#define GOLDEN_MAX_OPERANDS 16

/* Values with the names they have in the case. */
typedef struct golden_operands {
    size_t    n;
    char      names[GOLDEN_MAX_OPERANDS][32];
    co_value *values[GOLDEN_MAX_OPERANDS];
} golden_operands;

typedef co_value *(*golden_operator_fn)(golden_case *c, const golden_operands *in, void *user);
/* Run `call` under a tape when the case has gradients, and compare outputs and gradients. */
void golden_run_differentiated(golden_case *c, const golden_operands *in, golden_operator_fn call,
                               void *user);
void golden_put_outputs(golden_case *c, const golden_operands *out);

/* composite and second_order: true if `op` is one of them, whatever came of it. */
bool golden_run_program(golden_case *c, const char *op);

#endif
