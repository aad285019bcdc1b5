/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: one table with name, default as text, parser and a line of help. A setting is looked
 * for in the text given to co_open ("cpus=4, log=info"; separators are commas, semicolons or
 * blanks, the last of several counts), then in the environment (COHORT_ and the name in capitals;
 * empty means not set, and programs that run with raised privileges read none), then takes its
 * default. Unknown names in the text are errors that list the known ones; unknown COHORT_ variables
 * in the environment are warnings.
 */
#ifndef COI_BASE_SETTINGS_H
#define COI_BASE_SETTINGS_H

#include "base/error.h"
#include "base/log.h"

#define COI_MAX_SETTINGS 16

/* Which operands a GEMM packs, or whether it is computed transposed (ops/kernels/gemm.h). */
typedef enum coi_packing {
    COI_PACK_BY_SHAPE,
    COI_PACK_NONE,
    COI_PACK_A,
    COI_PACK_B,
    COI_PACK_BOTH,
    COI_PACK_TRANSPOSED
} coi_packing;

typedef struct coi_settings {
    co_log_level log;         /* log=error|warning|info|debug|off */
    int          cpus;        /* cpus=1: logical CPU devices */
    int          threads;     /* threads=0: of all devices together; 0: one for each usable core */
    char         devices[64]; /* devices=: further host-backed devices, "GPU:2+TPU:4" */
    char         isa[16];     /* isa=auto: highest instruction set, base|v3|v4 */
    int          spin_us;     /* spin_us=20: how long a waiting thread spins before it sleeps */
    int      deadline_ms; /* deadline_ms=60000: how long to wait for a replica or peer; 0 forever */
    uint64_t seed;        /* seed=0: of the random numbers */
    bool     pin;         /* pin=yes: bind workers to their device's cores */
    bool     check_functions;   /* check_functions=no: capture functions again in every call */
    bool     reference_kernels; /* reference_kernels=no: only reference kernels, for comparison */
    char     convolution[8];    /* convolution=auto: by shape, or all by "own" or "onednn" */
    coi_packing gemm;           /* gemm=auto: packing of GEMM operands, by shape or fixed */
    char        backends[512];  /* backends=: shared objects with device backends, "a.so:b.so" */
    char flight_file[256]; /* flight_file=: where the flight recorder is saved after a failure */
    const char
        *source[COI_MAX_SETTINGS]; /* by table position: "default", "environment", "program" */
} coi_settings;

/*
 * Fill all settings, or none and say which value was wrong. Sets the level of log (may be NULL)
 * before it warns.
 */
co_code coi_settings_load(coi_settings *settings, const char *text, co_error_info *err,
                          coi_log *log);
void    coi_settings_visit(const coi_settings *settings, co_setting_fn fn, void *user);

#define COI_DEVICE_TYPE_MAX  32  /* bytes of a device type with its zero */
#define COI_MAX_DEVICE_COUNT 256 /* devices of one type, by one setting or declaration */
/*
 * Read one "TYPE:count" from a list such as "GPU:2+TPU:4" and move on behind it. The type is stored
 * in capitals. False at the end of the list (then **list is 0) and before what cannot be read.
 */
bool coi_device_list_next(const char **list, char type[COI_DEVICE_TYPE_MAX], int *count);

#endif
