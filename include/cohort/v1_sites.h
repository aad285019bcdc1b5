/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites, made by scripts/make-sites: each macro notes the caller's file and line in the context and
 * calls the function of the same name. Define COHORT_NO_SITES before including to do without.
 */
#ifndef COHORT_V1_SITES_H
#define COHORT_V1_SITES_H

#include <cohort/api.h>

#if !defined(COHORT_NO_SITES) && !defined(COI_BUILDING_LIBRARY)
#define co_between_graph(ctx, ...) co_between_graph(CO_HERE(ctx), __VA_ARGS__)
#define co_call_for_each_replica(ctx, ...) co_call_for_each_replica(CO_HERE(ctx), __VA_ARGS__)
#define co_config_for_cluster(ctx, ...) co_config_for_cluster(CO_HERE(ctx), __VA_ARGS__)
#define co_experimental_run(ctx, ...) co_experimental_run(CO_HERE(ctx), __VA_ARGS__)
#define co_input_callable(ctx, ...) co_input_callable(CO_HERE(ctx), __VA_ARGS__)
#define co_iterator_initialize(ctx, ...) co_iterator_initialize(CO_HERE(ctx), __VA_ARGS__)
#define co_iterator_output_classes(ctx, ...) co_iterator_output_classes(CO_HERE(ctx), __VA_ARGS__)
#define co_iterator_output_shapes(ctx, ...) co_iterator_output_shapes(CO_HERE(ctx), __VA_ARGS__)
#define co_iterator_output_types(ctx, ...) co_iterator_output_types(CO_HERE(ctx), __VA_ARGS__)
#define co_last_step_outputs(ctx, ...) co_last_step_outputs(CO_HERE(ctx), __VA_ARGS__)
#define co_make_dataset_iterator(ctx, ...) co_make_dataset_iterator(CO_HERE(ctx), __VA_ARGS__)
#define co_make_initializable_iterator(ctx, ...) co_make_initializable_iterator(CO_HERE(ctx), __VA_ARGS__)
#define co_make_input_fn_iterator(ctx, ...) co_make_input_fn_iterator(CO_HERE(ctx), __VA_ARGS__)
#define co_non_tensor_outputs(ctx, ...) co_non_tensor_outputs(CO_HERE(ctx), __VA_ARGS__)
#define co_read_var(ctx, ...) co_read_var(CO_HERE(ctx), __VA_ARGS__)
#define co_run_steps_on_iterator(ctx, ...) co_run_steps_on_iterator(CO_HERE(ctx), __VA_ARGS__)
#define co_set_last_step_output(ctx, ...) co_set_last_step_output(CO_HERE(ctx), __VA_ARGS__)
#define co_set_non_tensor_output(ctx, ...) co_set_non_tensor_output(CO_HERE(ctx), __VA_ARGS__)
#define co_should_init(ctx, ...) co_should_init(CO_HERE(ctx), __VA_ARGS__)
#define co_strategy_has_member(ctx, ...) co_strategy_has_member(CO_HERE(ctx), __VA_ARGS__)
#define co_update_config_proto(ctx, ...) co_update_config_proto(CO_HERE(ctx), __VA_ARGS__)
#define co_v1_default_strategy(ctx) co_v1_default_strategy(CO_HERE(ctx))
#define co_v1_disable_eager_execution(ctx) co_v1_disable_eager_execution(CO_HERE(ctx))
#define co_v1_enable_eager_execution(ctx) co_v1_enable_eager_execution(CO_HERE(ctx))
#define co_v1_get_strategy(ctx) co_v1_get_strategy(CO_HERE(ctx))
#define co_v1_mirrored_strategy(ctx, ...) co_v1_mirrored_strategy(CO_HERE(ctx), __VA_ARGS__)
#define co_v1_multi_worker_mirrored_strategy(ctx, ...) co_v1_multi_worker_mirrored_strategy(CO_HERE(ctx), __VA_ARGS__)
#define co_v1_one_device_strategy(ctx, ...) co_v1_one_device_strategy(CO_HERE(ctx), __VA_ARGS__)
#endif

#endif
