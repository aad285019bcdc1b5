/* SPDX-License-Identifier: Apache-2.0 */
#include "peers.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 }; /* of the C interface to BLAS */

static int (*dnnl_sgemm)(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                         float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                         float beta, float *c, int64_t ldc);
static void (*cblas_sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                           float alpha, const float *a, int lda, const float *b, int ldb,
                           float beta, float *c, int ldc);

/* dlsym gives a pointer to data; the standard has no cast from there to a function. */
static bool
find(void *library, const char *name, void *function)
{
    void *symbol = library != NULL ? dlsym(library, name) : NULL;

    if (symbol != NULL)
        memcpy(function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static void
multiply_dnnl(const bench_product *p)
{
    dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k, 1, p->a,
               p->transpose_a ? p->m : p->k, p->b, p->transpose_b ? p->k : p->n, 0, p->c, p->n);
}

static void
multiply_blas(const bench_product *p)
{
    cblas_sgemm(ROW_MAJOR, p->transpose_a ? TRANSPOSED : PLAIN, p->transpose_b ? TRANSPOSED : PLAIN,
                p->m, p->n, p->k, 1, p->a, p->transpose_a ? p->m : p->k, p->b,
                p->transpose_b ? p->k : p->n, 0, p->c, p->n);
}

static void
set_threads(void *library, const char *name, int threads)
{
    void (*set)(int);

    if (find(library, name, (void *)&set))
        set(threads);
}

const bench_peer *
bench_peers(int threads, size_t *n)
{
    static bench_peer peers[2];
    void             *dnnl = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    void             *blas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);

    *n = 0;
    set_threads(dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL), "omp_set_num_threads", threads);
    set_threads(blas, "openblas_set_num_threads", threads);
    if (find(dnnl, "dnnl_sgemm", (void *)&dnnl_sgemm))
        peers[(*n)++] = (bench_peer){ "dnnl_sgemm", multiply_dnnl };
    if (find(blas, "cblas_sgemm", (void *)&cblas_sgemm))
        peers[(*n)++] = (bench_peer){ "OpenBLAS", multiply_blas };
    if (*n < 2)
        fprintf(stderr,
                "cohort-bench: %s not there to compare with; `scripts/install-packages bench` "
                "installs both\n",
                *n == 0                              ? "oneDNN and OpenBLAS are"
                : peers[0].multiply == multiply_dnnl ? "OpenBLAS is"
                                                     : "oneDNN is");
    return peers;
}
