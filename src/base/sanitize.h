/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sanitizer this is built with (COI_ASAN, COI_TSAN, or COI_SANITIZED for either: 0 or 1), and
 * how memory is poisoned for it.
 */
#ifndef COI_BASE_SANITIZE_H
#define COI_BASE_SANITIZE_H

#if defined(__SANITIZE_ADDRESS__)
#define COI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COI_ASAN 1
#endif
#endif
#ifndef COI_ASAN
#define COI_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__)
#define COI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COI_TSAN 1
#endif
#endif
#ifndef COI_TSAN
#define COI_TSAN 0
#endif

#if COI_ASAN || COI_TSAN
#define COI_SANITIZED 1
#else
#define COI_SANITIZED 0
#endif

/* From here on, use of these bytes is reported (poison) or allowed (unpoison). */
#if COI_ASAN
#include <sanitizer/asan_interface.h>
#define coi_poison(at, nbytes)   __asan_poison_memory_region((at), (nbytes))
#define coi_unpoison(at, nbytes) __asan_unpoison_memory_region((at), (nbytes))
#else
#define coi_poison(at, nbytes)   ((void)(at), (void)(nbytes))
#define coi_unpoison(at, nbytes) ((void)(at), (void)(nbytes))
#endif

#endif
