/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets and iterators in captured functions: the calls that a program holds in their place. An
 * iterator is an operand of these calls, so that each call of a function may bring another one.
 */
#ifndef COI_DATA_CAPTURED_INPUT_H
#define COI_DATA_CAPTURED_INPUT_H

#include "data/dataset.h"
#include "ops/engine/call_recording.h"

/* A dataset or iterator as a value: of the block, or NULL with an error. */
co_value *coi_dataset_value(co_context *ctx, co_dataset *dataset);
co_value *coi_iterator_value(co_context *ctx, co_iterator *iterator);

/* While ctx captures a function. A reference, or NULL with an error: an iterator that stands for
 * the one that each call of the function makes. */
co_iterator *coi_capture_iterate(co_context *ctx, co_dataset *dataset);
/* The slots as_argument of datasets and iterators. */
co_value *coi_dataset_argument(co_context *ctx, co_value *value, co_value *symbol);
co_value *coi_iterator_argument(co_context *ctx, co_value *value, co_value *symbol);
/* The symbolic value of an iterator that stands for one of each call; NULL of others. */
co_value *coi_iterator_symbol(const co_iterator *iterator);
/* The same for what is read: values of the block. */
co_value *coi_capture_next(co_context *ctx, co_iterator *iterator);
co_value *coi_capture_optional(co_context *ctx, co_iterator *iterator);
co_value *coi_capture_has_value(co_context *ctx, co_value *optional);
co_value *coi_capture_get_value(co_context *ctx, co_value *optional);
/* The next element of an iterator that is a symbolic value, and has elements of this spec. */
co_value *coi_record_next(co_context *ctx, co_value *iterator, co_value *spec);

#endif
