/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface to oneDNN. It hides the differences between versions: onednn_v2.c implements it for
 * 2.x, and 3.x needs one more file. The functions return false where oneDNN refused.
 *
 * A convolution is a primitive for one shape. Activations are NHWC; oneDNN selects the layout of
 * the filter. coi_dnn_pack_filter converts HWIO to it, and coi_dnn_unpack_filter converts it back.
 */
#ifndef COI_OPS_KERNELS_ONEDNN_ONEDNN_API_H
#define COI_OPS_KERNELS_ONEDNN_ONEDNN_API_H

#include "ops/kernels/conv2d.h"

typedef struct coi_dnn        coi_dnn;
typedef struct coi_dnn_conv   coi_dnn_conv;
typedef struct coi_dnn_filter coi_dnn_filter;

bool coi_dnn_open(coi_memory *memory, coi_dnn **out);
void coi_dnn_close(coi_dnn *dnn);
/* Does oneDNN use the same instruction set as our kernels? */
bool coi_dnn_keeps_to(coi_isa isa);

/*
 * oneDNN brings OpenMP, whose number of threads is a setting of each thread. Between these two
 * calls the calling thread has one; the second restores what the first returned. Everything below
 * is called between them.
 */
int  coi_dnn_enter(const coi_dnn *dnn);
void coi_dnn_leave(const coi_dnn *dnn, int saved);

bool coi_dnn_conv_create(coi_dnn *dnn, coi_conv2d_kind kind, const coi_conv2d *g,
                         coi_dnn_conv **out);
void coi_dnn_conv_destroy(coi_dnn_conv *conv);
/* oneDNN's name of the kernel: "jit:avx2". */
const char *coi_dnn_conv_kernel(const coi_dnn_conv *conv);
size_t      coi_dnn_filter_bytes(const coi_dnn_conv *conv);
size_t      coi_dnn_scratch_bytes(const coi_dnn_conv *conv);
bool        coi_dnn_same_filter(const coi_dnn_conv *a, const coi_dnn_conv *b);

/* A filter in the convolution's layout at `packed`, filled from HWIO at `plain`; for the threads of
 * one call. */
bool coi_dnn_pack_filter(coi_dnn_conv *conv, const void *plain, void *packed, coi_dnn_filter **out);
void coi_dnn_filter_release(coi_dnn_conv *conv, coi_dnn_filter *filter);
bool coi_dnn_unpack_filter(coi_dnn_conv *conv, void *packed, void *plain);

/* Run. x and y are the activations on the input and output side; a filter is read from `filter`, or
 * its gradient written to `packed`. Threads may run one convolution at the same time, each with its
 * own scratch. */
bool coi_dnn_run(coi_dnn_conv *conv, void *x, coi_dnn_filter *filter, void *packed, void *y,
                 void *scratch);

#endif
