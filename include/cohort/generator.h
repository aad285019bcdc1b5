/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random generators with a state of their own: what tf.random.Generator is to the documents.
 *
 *     co_value *g = co_generator(ctx, 17);
 *     co_value *noise = co_generator_normal(ctx, g, CO_FLOAT32, CO_SHAPE(2, 3), NULL);
 *
 * A generator is a variable of three int64: how many draws were made, zero, and the key. So
 * captured functions use it as they use variables, it is saved as they are, and co_variable_read
 * gives its state. Draws with the same key and number are the same, in captured functions and
 * outside.
 *
 * Made in the scope of a strategy it has a state in each replica; replicas draw different numbers.
 */
#ifndef COHORT_GENERATOR_H
#define COHORT_GENERATOR_H

#include <cohort/ops.h>
#include <cohort/variable.h>

CO_EXTERN_C_BEGIN

/** A generator that begins with this seed: a variable that is not trainable. */
CO_API co_value *co_generator(co_context *ctx, int64_t seed);
/** Begin again, with this seed. */
CO_API co_code co_generator_reset(co_context *ctx, co_value *generator, int64_t seed);
/**
 * Numbers as co_random_uniform and co_random_normal give them, of this generator, whose state
 * advances. NULL options mean the initialiser.
 *
 * Scope, Context, Blocks: as co_assign_add of a variable.
 * Returns:  a value of ctx's block, or NULL with CO_TYPE_ERROR if generator is none, and the errors
 *           of co_random_uniform and co_assign_add.
 */
CO_API co_value *co_generator_uniform(co_context *ctx, co_value *generator, co_dtype dtype,
                                      const int64_t *dims, int ndim,
                                      const co_random_uniform_options *options);
CO_API co_value *co_generator_normal(co_context *ctx, co_value *generator, co_dtype dtype,
                                     const int64_t *dims, int ndim,
                                     const co_random_normal_options *options);
/** A tuple of `count` new generators, whose keys are drawn from this one, which advances. */
CO_API co_value *co_generator_split(co_context *ctx, co_value *generator, int count);

CO_EXTERN_C_END

#endif
