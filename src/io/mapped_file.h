/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file mapped into memory that the host process can read without fear: where the file would
 * shrink under it, it gets a copy first. docs/decisions/tensor-files.md says what is guaranteed.
 */
#ifndef COI_IO_MAPPED_FILE_H
#define COI_IO_MAPPED_FILE_H

#include "base/error.h"
#include "base/memory.h"

typedef struct coi_mapped_file coi_mapped_file;

/*
 * Map a regular file, of which `fd` is open for reading and stays the caller's. NULL where that is
 * not safe, `*why` says why: it is no error, the file is to be read.
 */
coi_mapped_file *coi_mapped_file_new(coi_memory *memory, int fd, uint64_t nbytes, const char **why);
const char      *coi_mapped_file_data(const coi_mapped_file *mapped);
/* References, of any thread. The last one ends the mapping. */
void coi_mapped_file_ref(coi_mapped_file *mapped);
void coi_mapped_file_unref(coi_mapped_file *mapped);

#endif
