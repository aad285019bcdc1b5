/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz targets: tests/fuzz/NAME.c is fed bytes that may be anything and looks whether what it knows
 * to be true still is.
 *
 *     scripts/fuzz config 600
 *     build/release/tests/fuzz_config tests/fuzz/corpus/config
 *
 * The first is ten minutes with libFuzzer and sanitizers, beginning with the corpus; the second
 * takes every input of the corpus once, and is a test like others.
 *
 * Inputs that found something stay in the corpus.
 */
#ifndef COHORT_FUZZ_H
#define COHORT_FUZZ_H

#include <cohort/cohort.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What libFuzzer and replay.c call. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must be true of every input; where it is not, the input is kept by the fuzzer. */
#define FUZZ_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
