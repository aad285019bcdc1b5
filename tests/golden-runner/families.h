/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that run one case of a family; each is in the file family_NAME.c. */
#ifndef GOLDEN_FAMILIES_H
#define GOLDEN_FAMILIES_H

#include <cohort/v1.h>

#include "golden.h"

void golden_run_context(golden_case *c);
void golden_run_reduce(golden_case *c);
void golden_run_variables(golden_case *c);
void golden_run_distribute_input(golden_case *c);
void golden_run_datasets(golden_case *c);
void golden_run_ops(golden_case *c);
void golden_run_v1(golden_case *c);
void golden_run_numpy_dataset(golden_case *c);
void golden_run_config(golden_case *c);
void golden_run_records(golden_case *c);
void golden_run_tpu(golden_case *c);
/* A topology of the case, described: also a group of config. */
void golden_run_topology(golden_case *c);
void golden_run_seeds(golden_case *c);
void golden_run_functions(golden_case *c);
void golden_run_losses(golden_case *c);
void golden_run_metrics(golden_case *c);
void golden_run_checkpoints(golden_case *c);
void golden_run_optimizers(golden_case *c);
void golden_run_train(golden_case *c);

/* Whether the case is one of deferred-graph mode. */
bool golden_is_graph(golden_case *c);
/* A session of a new graph, which is current until co_graph_end. */
co_session *golden_begin_graph(golden_case *c);
/* golden_write_elements, by a session where there is one. */
json_t *golden_session_elements(co_context *ctx, co_session *session, co_dataset *dataset);

#endif
