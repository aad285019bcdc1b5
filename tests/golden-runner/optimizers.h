/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers as the recording names them. */
#ifndef GOLDEN_OPTIMIZERS_H
#define GOLDEN_OPTIMIZERS_H

#include "golden.h"

/* The optimizer of a name, "AdamW", with Keras' arguments by name (NULL: none); NULL with a reason,
 * or with an error in c->ctx. */
co_optimizer *golden_optimizer(golden_case *c, const char *name, json_t *hyper);

#endif
