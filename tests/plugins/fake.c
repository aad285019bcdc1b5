/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins that the loader is given in tests: a good one, and some that were built for another
 * library. */
#include "collective/collective.h"

static co_code
fake_open(const coi_group_options *options, coi_group **out, co_error_info *err)
{
    (void)options;
    (void)out;
    err->code =
        CO_DATA_LOSS; /* so that the test knows that it was asked; nothing else makes this code */
    return CO_DATA_LOSS;
}

extern const coi_transport coi_transport_plugin;

__attribute__((visibility("default"))) const coi_transport coi_transport_plugin = {
    .abi = COI_TRANSPORT_ABI + FAKE_ABI,
    .handshake_size = sizeof(coi_handshake) + FAKE_HELLO,
    .group_size = sizeof(coi_group) + FAKE_GROUP,
    .name = "fake",
    .open = fake_open,
};
