/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cohort: the tf.distribute system in C. This header includes all others; in reading order:
 *
 *   error.h     codes, the first error of a context
 *   context.h   opening, blocks, lifetime, log, settings
 *   device.h    names, logical CPUs, declared devices
 *   value.h     tensors, host values, structures, per-replica values
 *   ops.h       operators and their table
 *   gradient.h  the tape
 *   observe.h   watching what runs: profilers, traces, tests
 *   variable.h  variables under a strategy
 *   communication.h  communication options of collectives
 *   strategy.h  scope, run, reduce, replicas
 *   function.h  captured functions: recorded once, replayed
 *   control_flow.h  conditions and loops that depend on tensors
 *   runtime_checks.h  assertions and lines of the log in captured functions
 *   generator.h  random generators with a state of their own
 *   creator.h   functions of yours between co_variable and what it makes
 *   extended.h  what the documents call strategy.extended
 *   custom_strategy.h    your own strategy
 *   flight_recorder.h  the flight recorder: where replicas and processes waited for each other
 *   dataset.h   datasets, distribution, iteration
 *   files.h     record, text and array files, tf.Example
 *   losses.h    losses, and means over the examples of a step
 *   metrics.h   metrics: numbers about the examples seen so far
 *   schedule.h  learning rates by the number of updates
 *   train.h     optimizers
 *   checkpoint.h  the state of a training program in a folder
 *   tensor_files.h  safetensors, .npz weights, TensorFlow's checkpoints
 *   dlpack.h    exchange with other libraries
 *   aliases.h   the documents' experimental and older names
 *
 * Programs that need them include three more: v1.h, the v1 flavour of strategies and its iterators,
 * tpu.h, the TPU calls of the documents, and backend.h, the interface of device backends.
 *
 * All calls have one order of arguments: context, object, name or operation, inputs, function and
 * user, arrays with their lengths, numbers, options, outputs. Options are structs that begin with
 * struct_size and have an initialiser; NULL stands for the initialiser.
 *
 * "Rules:" at the end of a comment names the rules of the specification that the call follows;
 * tests name the same rules. The specification is docs/spec/distribute.md, installed as
 * share/doc/cohort/spec/distribute.md. "*" stands for all rules whose names begin like this.
 */
#ifndef COHORT_COHORT_H
#define COHORT_COHORT_H

#include <cohort/aliases.h>
#include <cohort/api.h>
#include <cohort/communication.h>
#include <cohort/checkpoint.h>
#include <cohort/context.h>
#include <cohort/control_flow.h>
#include <cohort/creator.h>
#include <cohort/dataset.h>
#include <cohort/device.h>
#include <cohort/dlpack.h>
#include <cohort/custom_strategy.h>
#include <cohort/error.h>
#include <cohort/extended.h>
#include <cohort/files.h>
#include <cohort/function.h>
#include <cohort/generator.h>
#include <cohort/gradient.h>
#include <cohort/losses.h>
#include <cohort/metrics.h>
#include <cohort/observe.h>
#include <cohort/ops.h>
#include <cohort/flight_recorder.h>
#include <cohort/runtime_checks.h>
#include <cohort/schedule.h>
#include <cohort/strategy.h>
#include <cohort/tensor_files.h>
#include <cohort/train.h>
#include <cohort/value.h>
#include <cohort/variable.h>
#include <cohort/sites.h>

#endif
