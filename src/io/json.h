/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as RFC 8259 has it, read in order from memory that may hold anything. Strings are decoded in
 * place: the buffer is written to, and keeps them. Nothing is allocated.
 *
 * Each function passes the white space before what it reads. After an error, which is CO_DATA_LOSS
 * and names the byte, every function returns false.
 */
#ifndef COI_IO_JSON_H
#define COI_IO_JSON_H

#include "base/error.h"

#define COI_JSON_DEPTH 127 /* of arrays and objects inside each other, as serde_json allows */

typedef struct coi_json {
    char          *begin, *at, *end;
    int            depth;
    co_error_info *err;
} coi_json;

typedef struct coi_json_text { /* in the buffer; a zero byte follows */
    char  *data;
    size_t nbytes;
} coi_json_text;

/* All of it has to be UTF-8. */
bool coi_json_init(coi_json *json, char *bytes, size_t nbytes, co_error_info *err);
/* "expected X" at this place; returns false. */
bool coi_json_fail(coi_json *json, const char *expected);

/* Objects and arrays: begin, then next until it is false, which is their end or an error. `count`
 * is 0 at first. */
bool coi_json_begin_object(coi_json *json);
bool coi_json_next_key(coi_json *json, size_t *count, coi_json_text *key);
bool coi_json_begin_array(coi_json *json);
bool coi_json_next_item(coi_json *json, size_t *count);

bool coi_json_string(coi_json *json, coi_json_text *out);
/* A whole number without sign, fraction and exponent, less than 2^64. */
bool coi_json_uint(coi_json *json, uint64_t *out);
/* Whether null comes next, which is passed. */
bool coi_json_null(coi_json *json);
/* Any value. */
bool coi_json_skip(coi_json *json);
/* White space alone is left. */
bool coi_json_end(coi_json *json);

static inline bool
coi_json_ok(const coi_json *json)
{
    return json->err->code == CO_OK;
}

#endif
