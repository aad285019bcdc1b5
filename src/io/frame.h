/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a record begins and ends in the bytes of a file. A framing looks at what was read so far
 * and says: here is a record, or I need more bytes, or the file is at its end, or it is damaged. It
 * keeps no state, so it can be called again.
 */
#ifndef COI_IO_FRAME_H
#define COI_IO_FRAME_H

#include "base/error.h"

#define COI_RECORD_HEAD 12 /* of a TFRecord: length and its checksum */
#define COI_RECORD_FOOT 4  /* checksum of the data */

typedef enum coi_found {
    COI_FOUND_ERROR = -1, /* in the error record */
    COI_FOUND_END,
    COI_FOUND_RECORD,
    COI_FOUND_MORE /* nothing yet: `need` bytes in all may do */
} coi_found;

typedef struct coi_frame {
    size_t begin, nbytes; /* the record */
    size_t consumed;      /* with all that belongs to it */
    size_t need;
} coi_frame;

typedef struct coi_frame_sizes { /* of fixed-length records */
    size_t record, header, footer;
    char   delimiter; /* of CSV, whose header is in rows: one or none */
} coi_frame_sizes;

typedef struct coi_framing {
    const char *name;
    bool        is_terminated; /* the byte behind a record may be overwritten when it was found */
    bool        drops_returns; /* carriage returns are no part of a record */
    /* `n` bytes from the beginning of record `number` on; is_last: the file ends with them. */
    coi_found (*find)(const coi_frame_sizes *sizes, const char *bytes, size_t n, bool is_last,
                      int64_t number, coi_frame *out, co_error_info *err);
} coi_framing;

extern const coi_framing coi_tfrecord_framing, coi_line_framing, coi_fixed_framing, coi_csv_framing;

/* The 12 bytes before and the 4 bytes behind the data of a TFRecord. */
void coi_record_head(size_t nbytes, uint8_t head[COI_RECORD_HEAD]);
void coi_record_foot(const void *data, size_t nbytes, uint8_t foot[COI_RECORD_FOOT]);

#endif
