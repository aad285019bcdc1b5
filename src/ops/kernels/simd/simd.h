/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What files of this folder share. They are compiled once per instruction set; COI_PER_ISA(name)
 * gives each copy its own symbols (name_base, name_v3, name_v4).
 */
#ifndef COI_OPS_KERNELS_SIMD_SIMD_H
#define COI_OPS_KERNELS_SIMD_SIMD_H

#include <stdint.h>

#define COI_PASTE_(a, b)  a##_##b
#define COI_PASTE(a, b)   COI_PASTE_(a, b)
#define COI_PER_ISA(name) COI_PASTE(name, COI_ISA)

#define COI_INLINE static inline __attribute__((always_inline))

/* Code that is worth having once: with the conversions of halves inlined into each of them, loops
 * would be five times the size. */
#ifdef __clang__
#define COI_NOINLINE __attribute__((noinline))
#else
#define COI_NOINLINE __attribute__((noinline, noclone))
#endif

/* gcc keeps small arrays in registers only where loops over them are unrolled early, which it must
 * be told. */
#if defined(__clang__)
#define COI_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define COI_UNROLL _Pragma("GCC unroll 16")
#else
#define COI_UNROLL _Pragma("unroll")
#endif

/* Promises of the loop that follows: no iteration reads or writes what another writes. */
#ifdef __clang__
#define COI_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define COI_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Prefetch the line `bytes` behind p. It may lie outside of the object of p, so the address is
 * computed as a number. */
COI_INLINE void
coi_prefetch(const void *p, int64_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)bytes));
}
COI_INLINE void
coi_prefetch_to_write(void *p, int64_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)bytes), 1);
}

#endif
