/* SPDX-License-Identifier: Apache-2.0 */
/* Zip archives with an .npy in each member, as npz.c reads them for co_load_npz and for tensor
 * files. */
#ifndef COI_IO_NPZ_H
#define COI_IO_NPZ_H

#include "io/npy.h"

#define COI_NPZ_NAME 512 /* bytes of a name and its end */

typedef struct coi_npz_member {
    char     name[COI_NPZ_NAME];
    unsigned method, flags;
    uint32_t crc;
    /* as the file says; coi_npz_next gives none that lies outside of it */
    uint64_t packed, size, offset;
} coi_npz_member;

typedef struct coi_npz_archive {
    coi_memory *memory;
    coi_source  source;
    int64_t     directory, num_members;
} coi_npz_archive;

/* Errors are CO_VALUE_ERROR, want of memory and a missing or unreadable file aside. The source is
 * the caller's to close after success. */
co_code coi_npz_open(coi_npz_archive *a, coi_memory *memory, const char *path, co_error_info *err);
/* The entry of the directory at *at, which moves to the next. */
co_code coi_npz_next(coi_npz_archive *a, int64_t *at, coi_npz_member *m, co_error_info *err);
/* What the head of an array says. */
co_code coi_npz_head(coi_npz_archive *a, const coi_npz_member *m, coi_npy_head *head,
                     co_error_info *err);
/* The array, checksum verified: a new reference, or NULL with the error in err. */
co_value *coi_npz_read(co_context *ctx, coi_npz_archive *a, const coi_npz_member *m,
                       co_error_info *err);
/* "x.npy" is the array x. */
void coi_npz_cut_suffix(char *name);

#endif
