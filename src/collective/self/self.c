/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport of a group of one rank: every call is answered at once. It is what
 * MultiWorkerMirroredStrategy uses without a launcher, so that the same program runs, and is
 * tested, in one process.
 */
#include "collective/self/self.h"

#include "collective/handshake.h"

#include <string.h>

static co_code
self_open(const coi_group_options *options, coi_group **out, co_error_info *err)
{
    coi_group *group = coi_calloc(options->memory, sizeof(*group));

    if (group == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED,
                         "no memory for a group of one rank (%zu bytes)", sizeof(*group));
    group->size = 1;
    *out = group;
    return CO_OK;
}

static bool
self_close(coi_group *group)
{
    coi_free(group->memory, group, sizeof(*group));
    return true;
}

static co_code
self_exchange(coi_group *group, const coi_handshake *mine, coi_handshake *all, int timeout_ms,
              co_error_info *err)
{
    (void)group;
    (void)timeout_ms;
    (void)err;
    all[0] = *mine;
    return CO_OK;
}

/* A rank may send to itself: the i-th send goes to the i-th receive. */
static co_code
self_transfer(coi_group *group, const coi_transfer *sends, size_t num_sends,
              const coi_transfer *receives, size_t num_receives, int timeout_ms, co_error_info *err)
{
    (void)timeout_ms;
    for (size_t i = 0; i < num_sends || i < num_receives; ++i) {
        const coi_transfer *send = i < num_sends ? &sends[i] : NULL;
        const coi_transfer *receive = i < num_receives ? &receives[i] : NULL;

        if (send == NULL || receive == NULL || send->peer != 0 || receive->peer != 0 ||
            send->nbytes != receive->nbytes) {
            coi_error(err, CO_INTERNAL,
                      "transfer %zu of a group of one rank: send and receive do not match", i);
            coi_group_break(group, CO_INTERNAL, err);
            return CO_INTERNAL;
        }
        if (send->nbytes > 0)
            memmove(receive->data, send->data, send->nbytes);
    }
    return CO_OK;
}

static void
self_notify(coi_group *group, const coi_handshake *handshake)
{
    (void)group;
    (void)handshake;
}

const coi_transport coi_self_transport = {
    .abi = COI_TRANSPORT_ABI,
    .handshake_size = sizeof(coi_handshake),
    .group_size = sizeof(coi_group),
    .name = "self",
    .open = self_open,
    .close = self_close,
    .exchange = self_exchange,
    .transfer = self_transfer,
    .notify = self_notify,
};
