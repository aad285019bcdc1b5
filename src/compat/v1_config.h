/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configs of sessions: serialized tf.ConfigProto messages.
 */
#ifndef COI_COMPAT_V1_CONFIG_H
#define COI_COMPAT_V1_CONFIG_H

#include <cohort/v1.h>

/* A copy of a config, none for NULL and none: a host string of the block, or NULL with an error
 * where it is no message. */
co_value *coi_config_copy(co_context *ctx, co_value *config, int position);

#endif
