/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchange of tensors with other libraries by DLPack (the ABI of version 0.8, struct DLManagedTensor,
 * which NumPy, PyTorch, TensorFlow, JAX and CuPy read and write). The structs are declared as void so that
 * this header needs no other.
 */
#ifndef COHORT_DLPACK_H
#define COHORT_DLPACK_H

#include <cohort/value.h>

CO_EXTERN_C_BEGIN

/**
 * Take over a DLManagedTensor. Its memory is used in place where it is aligned, compact and row-major, and
 * copied otherwise; its deleter is called when the tensor dies, or at once if this call fails.
 * Errors: CO_INVALID_ARGUMENT for a device that is not the host, a dtype or shape that is not ours.
 */
CO_API co_value *co_from_dlpack(co_context *ctx, void *dl_managed_tensor);
/** A DLManagedTensor over the same memory; the receiver calls its deleter. The memory is read-only. */
CO_API void *co_to_dlpack(co_context *ctx, co_value *tensor);

CO_EXTERN_C_END

#endif
