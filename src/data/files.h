/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of the pieces of files, for datasets that are made from them. */
#ifndef COI_DATA_FILES_H
#define COI_DATA_FILES_H

#include <cohort/files.h>

#include "data/dataset.h"
#include "io/frame.h"

/* A new reference; NULL with an error. */
co_dataset *coi_files_new(co_context *ctx, const coi_framing *framing, const coi_frame_sizes *sizes,
                          const char *const *files, size_t num_files,
                          const co_file_options *options);
/* Where an iterator of such a dataset is, right after it gave something: the file, and the number
 * of the next record of it. */
const char *coi_files_at(const co_iterator *iterator, int64_t *record);

#endif
