/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and examples of operators, for `cohort ops`. Internal operators have none. */
#ifndef COHORT_EXAMPLE_H
#define COHORT_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>

/* The shapes that an operator takes and gives, in words; NULL if nobody wrote them down. */
const char *example_shapes(const char *name);
/* "add([1, 2], [3, 4]) = [4, 6]", done now. False, after saying why, if there is no such example or
 * it fails. */
bool example_text(const char *name, char *out, size_t capacity);

#endif
