/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of operators. The files of ops/kernels/simd are compiled once per instruction
 * set, with COI_ISA as the suffix of their one public name, a const table; callers pick the table
 * of the runtime's instruction set.
 *
 * Loops are plain C that the compiler vectorises. How a sum is cut depends on its length alone.
 * Where a table has NULL, the table `rare` of ops/kernels/generic/generic_loops.c has the loop:
 * dtypes that few models train in are compiled once, for size.
 */
#ifndef COI_OPS_KERNELS_LOOPS_H
#define COI_OPS_KERNELS_LOOPS_H

#include <cohort/value.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"

#define COI_LOOP_JOIN(name, isa) name##_##isa
#define COI_LOOP_NAME(name, isa) COI_LOOP_JOIN(name, isa)
#define COI_LOOP_TABLE(name)     COI_LOOP_NAME(name, COI_ISA)
#define COI_LOOP_EXTERN(type)    extern const type type##_base, type##_v3, type##_v4, type##_rare
/* The tables by coi_isa, for an array of pointers. */
#if COI_HAVE_ISA_V3 && COI_HAVE_ISA_V4
#define COI_LOOP_ISAS(type)                                                                        \
    {                                                                                              \
        &type##_base, &type##_v3, &type##_v4                                                       \
    }
#elif COI_HAVE_ISA_V3
#define COI_LOOP_ISAS(type)                                                                        \
    {                                                                                              \
        &type##_base, &type##_v3, &type##_v3                                                       \
    }
#else
#define COI_LOOP_ISAS(type)                                                                        \
    {                                                                                              \
        &type##_base, &type##_base, &type##_base                                                   \
    }
#endif

/* What loops compute in. Other dtypes come to them converted, block by block
 * (ops/kernels/compute_type.h). */
typedef enum coi_compute_type {
    COI_F32,
    COI_F64,
    COI_I32,
    COI_I64,
    COI_U64,
    COI_NUM_COMPUTE_TYPES
} coi_compute_type;

/* One operand. From is_nan on, the result is bool. */
typedef void (*coi_unary_fn)(void *out, const void *x, int64_t n);
typedef enum coi_unary_kind {
    COI_NEG,
    COI_SQUARE,
    COI_SQRT,
    COI_EXP,
    COI_LOG,
    COI_TANH,
    COI_SIGMOID,
    COI_RELU,
    COI_ABS,
    COI_SIGN,
    COI_RSQRT,
    COI_RECIPROCAL,
    COI_LOG1P,
    COI_EXPM1,
    COI_SIN,
    COI_COS,
    COI_TAN,
    COI_FLOOR,
    COI_CEIL,
    COI_ROUND,
    COI_ERF,
    COI_RELU6,
    COI_ELU,
    COI_SELU,
    COI_SOFTPLUS,
    COI_SOFTSIGN,
    COI_SILU,
    COI_LOG_SIGMOID,
    COI_GELU,
    COI_GELU_TANH,
    COI_ISNAN,
    COI_ISINF,
    COI_ISFINITE,
    COI_LOGICAL_NOT,
    COI_NUM_UNARY
} coi_unary_kind;
typedef struct coi_unary_loops {
    coi_unary_fn at[COI_NUM_UNARY][COI_NUM_COMPUTE_TYPES];
} coi_unary_loops;
COI_LOOP_EXTERN(coi_unary_loops);

/* Two operands, of which one may be a single element. */
typedef enum coi_pairing { COI_PAIR_BOTH, COI_PAIR_ONE_Y, COI_PAIR_ONE_X } coi_pairing;
typedef void (*coi_binary_fn)(void *out, const void *x, const void *y, int64_t n,
                              coi_pairing pairing);
typedef enum coi_binary_kind {
    COI_ADD,
    COI_SUB,
    COI_MUL,
    COI_DIV, /* of integers: double */
    COI_MAXIMUM,
    COI_MINIMUM,
    COI_FLOORDIV,
    COI_MOD,
    COI_POW,
    COI_SQUARED_DIFFERENCE,
    COI_LEAKY_RELU, /* of p with slope q below zero */
    COI_RELU_GRAD,
    COI_TANH_GRAD,
    COI_SIGMOID_GRAD,
    COI_RELU6_GRAD,
    COI_ELU_GRAD,
    COI_SELU_GRAD,
    COI_GELU_TANH_GRAD, /* p is the operand of the forward step here */
    COI_WHERE_FLOWING,  /* p is what a backward step gives */
    COI_EQUAL,          /* from here on the result is bool */
    COI_LESS,
    COI_LESS_EQUAL,
    COI_LOGICAL_AND,
    COI_LOGICAL_OR,
    COI_LOGICAL_XOR,
    COI_NUM_BINARY
} coi_binary_kind;
typedef struct coi_binary_loops {
    coi_binary_fn at[COI_NUM_BINARY][COI_NUM_COMPUTE_TYPES];
} coi_binary_loops;
COI_LOOP_EXTERN(coi_binary_loops);

/*
 * Reductions fold elements into wide accumulators of 8 bytes: double for floating dtypes, int64_t
 * and uint64_t for integers; sums of integers of either sign are taken as uint64_t, where they
 * wrap. `rows` folds row i (n elements beginning at x + i * stride) into acc[i]; `columns` folds
 * num_rows rows, element j of each into acc[j].
 */
typedef union coi_wide {
    double   f;
    int64_t  i;
    uint64_t u;
} coi_wide;
typedef struct coi_fold {
    void (*rows)(coi_wide *acc, const void *x, int64_t num_rows, int64_t stride, int64_t n);
    void (*columns)(coi_wide *acc, const void *x, int64_t num_rows, int64_t stride, int64_t n);
} coi_fold;
#define COI_FOLD_WIDTH 256 /* at most so many accumulators at once */
typedef enum coi_fold_kind {
    COI_FOLD_SUM,
    COI_FOLD_MAX,
    COI_FOLD_MIN,
    COI_FOLD_PROD,
    COI_NUM_FOLDS
} coi_fold_kind;
typedef struct coi_fold_loops {
    coi_fold at[COI_NUM_FOLDS][CO_NUM_DTYPES];
} coi_fold_loops;
COI_LOOP_EXTERN(coi_fold_loops);

/* Conversions that are worth a loop of their own; NULL entries: coi_convert. */
typedef struct coi_cast_loops {
    coi_unary_fn at[CO_NUM_DTYPES][CO_NUM_DTYPES]; /* from, to */
} coi_cast_loops;
COI_LOOP_EXTERN(coi_cast_loops);

/*
 * Where the functions of math.h cut their arguments off; NaN passes. In memory, not in the loops:
 * gcc makes one instruction of a comparison and a choice only where both have the very same
 * operand, which a constant is not.
 */
typedef struct coi_argument_limits {
    float exp_low, exp_high, tanh_high, gelu_high;
} coi_argument_limits;
extern const coi_argument_limits coi_limits;

#endif
