/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives. Two levels, cut where the failure modes differ:
 *
 *   - Replicas of one process are threads. Their rendezvous is in the engine (strategy/), which
 * then has every part at hand and lets each thread reduce a share: coi_reduce_share below.
 *   - Processes are ranks of a coi_group. One thread of each process, the one that called run,
 *     speaks for it. A group has a transport: `self` (one rank, a real component), `mpi` (its own
 *     shared object, loaded when asked for) or `threads` (ranks as threads; local/ranks.h).
 *
 * Every sum over replicas follows one binary tree over logical replica ids: the node [lo, hi)
 * splits at lo + the largest power of two below hi - lo. Its shape depends on the number of
 * replicas alone, so the bits do not depend on which rank, device or thread hosts whom. (That a
 * result is a NaN does not depend on it either; which of its bit patterns, may.) A rank reduces the
 * maximal subtrees that it hosts whole, sends those, and every rank finishes a share of the
 * elements: the bytes of a ring, the order of a tree.
 */
#ifndef COI_COLLECTIVE_COLLECTIVE_H
#define COI_COLLECTIVE_COLLECTIVE_H

#include <cohort/strategy.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "value/value.h"

/* --- reduction in the fixed order (reduction_tree.c, reduce_kernels.c) --- */

typedef struct coi_reduction {
    co_reduce_op       op;    /* MEAN divides floats at the root; integers are only summed */
    co_dtype           dtype; /* not bool, not string: coi_can_reduce */
    int64_t            num_elements;
    int                num_replicas; /* of the whole group */
    const void *const *parts;        /* by replica id, for the ids that are here */
    void              *out;          /* may not overlap parts */
} coi_reduction;

bool coi_can_reduce(co_reduce_op op, co_dtype dtype);
/*
 * Reduce share `share` of `num_shares` of the elements, all replicas being here. Shares are cut at
 * cache lines; the result does not depend on the cut. float16 and bfloat16 are added in float32 and
 * rounded at every node. Integers wrap. MIN and MAX give NaN if any part is NaN.
 */
void coi_reduce_share(const coi_reduction *job, int share, int num_shares);
/* --- groups of processes --- */

typedef enum coi_handshake_kind {
    COI_HANDSHAKE_NONE = 0,
    COI_HANDSHAKE_COLLECTIVE = 1, /* the sender is at a collective */
    COI_HANDSHAKE_RUN_END = 2,    /* the sender ended its run of this epoch */
    COI_HANDSHAKE_FAILED = 3,     /* the sender failed: code and text say why */
    COI_HANDSHAKE_OPEN = 4,       /* between transports: the first handshake of a rank */
    COI_HANDSHAKE_CLOSED = 5 /* between transports: the last one; exchange gives it as FAILED */
} coi_handshake_kind;

/*
 * What a rank sends to all others before data flows, or when it ends or fails a run. Fixed size,
 * plain bytes, same ABI on all ranks.
 */
typedef struct coi_handshake {
    uint32_t kind;      /* coi_handshake_kind */
    uint32_t what;      /* coi_rendezvous_kind of the engine: all_reduce, merge_call, reduce, ... */
    uint64_t epoch;     /* counts runs and cross-replica collectives; never UINT64_MAX */
    uint64_t sequence;  /* of the collective inside the epoch */
    uint64_t signature; /* hash of structure, dtypes and shapes: must agree */
    int64_t  number;   /* a number for the others: examples of the step, has-data flags, sizes; of a
                        * failure: the first sequence whose data the sender has no part in */
    int32_t code;      /* of a failure */
    int32_t replica;   /* that failed, or -1 */
    char    site[80];  /* "step.c:41" */
    char    text[216]; /* the message, or a description of the arguments: "float32 [2,3]" */
} coi_handshake;

typedef struct coi_group coi_group;

typedef struct coi_transfer {
    int    peer;
    void  *data;
    size_t nbytes;
} coi_transfer;

typedef struct coi_group_options {
    const void
        *communicator; /* mpi: MPI_Comm by address, NULL: the world. threads: a coi_thread_rank. */
    coi_memory  *memory;
    coi_log     *log;         /* may be NULL */
    coi_waiting *waiting;     /* may be NULL: no spinning */
    int          deadline_ms; /* how long opening waits for the other ranks; 0: forever */
} coi_group_options;

#define COI_TRANSPORT_ABI 2
typedef struct coi_transport {
    uint32_t    abi;
    uint32_t    handshake_size; /* sizeof(coi_handshake), */
    uint32_t    group_size;     /* sizeof(coi_group): more of the ABI, for plug-ins */
    const char *name;
    /* Collective. On failure nothing is left. */
    co_code (*open)(const coi_group_options *options, coi_group **out, co_error_info *err);
    /*
     * Tells the peers, which then get a COI_HANDSHAKE_FAILED from exchange. Waits for theirs a few
     * seconds at most. False if some did not answer and memory of the group is still in the hands
     * of the transport: it is leaked, because giving it back could let another write or read there.
     */
    bool (*close)(coi_group *group);
    /*
     * Send `mine` (COI_HANDSHAKE_COLLECTIVE), receive the handshake of every rank (mine included)
     * in all[size]. Handshakes of earlier epochs are skipped, whatever they say. A peer that is
     * elsewhere is given as it is, and given again next time: a collective or the end of a run of a
     * later epoch, COI_HANDSHAKE_RUN_END of this epoch. Returns early, with what came
     * (COI_HANDSHAKE_NONE for the others), when a peer says COI_HANDSHAKE_FAILED in this epoch or
     * has left the group (then CO_OK and the caller looks at all[]), and never later than
     * timeout_ms (< 0: forever): CO_DEADLINE_EXCEEDED naming the ranks that are missing. A peer
     * whose process is found gone: CO_UNAVAILABLE, and the group is broken. Texts in all[] are
     * terminated and kinds are one of the first four.
     *
     * A failure that is to reach a peer in a later epoch must carry that epoch.
     */
    co_code (*exchange)(coi_group *group, const coi_handshake *mine, coi_handshake *all,
                        int timeout_ms, co_error_info *err);
    /*
     * Send and receive; returns when all is done. Transfers between two ranks match in order. 0
     * bytes are allowed. A peer that fails in the epoch of the last exchange or vanishes: its own
     * error or CO_UNAVAILABLE, naming it; a peer that does not move: CO_DEADLINE_EXCEEDED. The
     * group is then broken, and if it is `holding`, the transport may still write to what this
     * call was to receive: the caller lets it live on. (What is read needs no care, because the
     * memory of the group is not given back to the system any more.)
     */
    co_code (*transfer)(coi_group *group, const coi_transfer *sends, size_t num_sends,
                        const coi_transfer *receives, size_t num_receives, int timeout_ms,
                        co_error_info *err);
    /*
     * Tell all ranks without waiting: COI_HANDSHAKE_RUN_END or COI_HANDSHAKE_FAILED. Works in a
     * broken group too.
     */
    void (*notify)(coi_group *group, const coi_handshake *handshake);
} coi_transport;

/* All calls are made by one thread at a time. */
struct coi_group {
    const coi_transport *transport;
    int                  rank, size;
    bool         broken;   /* a transfer was cut off, a peer is gone: only notify and close work */
    bool         holding;  /* see transfer */
    co_code      cause;    /* why it is broken, */
    char         why[200]; /* in words */
    coi_memory  *memory;
    coi_log     *log;
    coi_waiting *waiting;
    void        *scratch; /* of group.c; kept, so that a step asks for no memory */
    size_t       scratch_nbytes;
};

/* "self", "mpi" or "threads"; loads the transport's shared object where it is one. CO_VALUE_ERROR
 * for another name, CO_UNIMPLEMENTED naming what to install or build. */
co_code coi_group_open(const char *transport, const coi_group_options *options, coi_group **out,
                       co_error_info *err);
/* NULL is allowed. False: see close. */
bool coi_group_close(coi_group *group);
/* True if this process was started by an MPI launcher, or MPI runs in it already. */
bool coi_mpi_launched(void);

/*
 * --- data collectives on top of a transport (group.c); the handshakes were exchanged before ---
 *
 * They fail as transfer does, or with CO_RESOURCE_EXHAUSTED. In either case the group is broken,
 * because the peers are left in the middle: the caller notifies them of its failure, which ends
 * their wait.
 */

/* Communication options: the same on all ranks. They never change the bits of a result. */
typedef struct coi_comm_options {
    size_t bytes_per_pack; /* CO-4; 0: all in one pack */
    int    timeout_ms;     /* < 0: forever */
    bool   in_ring;        /* two rounds even for short data */
} coi_comm_options;
/*
 * CO-4: the end of the pack that begins with job `from`. Jobs are taken in order until the pack
 * holds more than bytes_per_pack bytes.
 */
size_t coi_pack_end(const coi_reduction *jobs, size_t num_jobs, size_t from, size_t bytes_per_pack);
/*
 * Reduce over all replicas of all ranks; rank r hosts replicas [first[r], first[r+1]). parts of a
 * job holds this rank's parts (by local index), out the full result on every rank. Several jobs
 * are sent together, pack by pack; all have as many replicas, first[size], and they are the same in
 * the same order on every rank.
 */
co_code coi_group_all_reduce(coi_group *group, const coi_reduction *jobs, size_t num_jobs,
                             const int *first, const coi_comm_options *how, co_error_info *err);
/*
 * Rank r contributes nbytes[r] bytes; `all` receives them in rank order. `mine` may be their place
 * in `all`.
 */
co_code coi_group_all_gather(coi_group *group, const void *mine, const size_t *nbytes, void *all,
                             int timeout_ms, co_error_info *err);
co_code coi_group_broadcast(coi_group *group, void *data, size_t nbytes, int root, int timeout_ms,
                            co_error_info *err);

#endif
