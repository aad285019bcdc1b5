/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchange of tensors with other libraries by DLPack (the ABI of version 0.8, struct
 * DLManagedTensor, which NumPy, PyTorch, TensorFlow, JAX and CuPy read and write). The structs are
 * declared as void so that this header needs no other.
 */
#ifndef COHORT_DLPACK_H
#define COHORT_DLPACK_H

#include <cohort/value.h>

CO_EXTERN_C_BEGIN

/**
 * Take over a DLManagedTensor. Its memory is used in place where it is aligned to its elements,
 * compact and row-major (bools: 0 or 1), and must not change while the tensor lives; it is copied
 * otherwise. Its deleter is called once: when an in-place tensor dies, from any thread, or at once
 * if the memory was copied or this call failed. Errors: CO_INVALID_ARGUMENT for a device that is
 * not the host, a dtype or shape that is not ours.
 */
CO_API co_value *co_from_dlpack(co_context *ctx, void *dl_managed_tensor);
/**
 * A DLManagedTensor over the same memory, which is read-only. The receiver calls its deleter, from
 * any thread; until then the tensor lives, and the runtime with it, even when all contexts are
 * closed. Errors: CO_TYPE_ERROR for what is not a tensor of numbers.
 */
CO_API void *co_to_dlpack(co_context *ctx, co_value *tensor);

CO_EXTERN_C_END

#endif
