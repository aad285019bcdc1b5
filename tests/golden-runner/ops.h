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

/* The parts of a case (family_ops.c): its operator, its inputs in the order of the operator, its
 * attributes, and names for the results. */
bool      golden_find_operator(const char *name, co_op_info *info);
bool      golden_read_inputs(golden_case *c, const co_op_info *info, golden_operands *in);
co_value *golden_read_attrs(golden_case *c, const golden_operands *in);
void      golden_name_outputs(golden_case *c, co_value *result, golden_operands *out);

/* composite and second_order: true if `op` is one of them, whatever came of it. */
bool golden_run_program(golden_case *c, const char *op);

#endif
