/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of logical replicas. A strategy is a placement, a table that says for each logical
 * replica which worker and which device hosts it, plus a few policies. Default, OneDevice, Mirrored
 * and MultiWorker are different tables for the same engine.
 *
 *     scope.c       which strategy is current: scopes, set-strategy, queries
 *     placement.c   which replica lives where, its share of a batch; the built-in strategies
 *     own.c         strategies of the user's, and their hooks
 *     run.c         crews: the threads and contexts that run a step
 *     rendezvous.c     where replicas of a step meet: sequence, kind, site, agreement
 *     all_reduce.c  all_reduce and all_gather inside a step
 *     collective_gradient.c gradients through them
 *     communication.c  how values travel: options of strategies and calls
 *     merge.c       merge_call
 *     flight_recorder.c    the flight recorder: the last meetings
 *     group.c       merging and selecting values (DV-GROUP, DV-SEL)
 *     reduce.c      reduce, local results, gather across replicas
 *     variables.c   mirrored and sync-on-read variables
 *     creators.c    making variables: creators, initial values, placing
 *     slot_variables.c  variables that go with another one
 *     input.c       distributed datasets
 *     numpy.c       datasets of arrays in memory, by the current strategy
 *     steps.c       several steps on one iterator
 *     reduce_to.c reduce_to, broadcast_to: values on places
 *     update.c      update, update_non_slot, colocation
 *     workers.c     between processes: epochs, hellos, meetings, ends
 *     logical_devices.c     logical devices, which only other hardware has
 *     topology.c    TPU topologies
 */
#ifndef COI_STRATEGY_STRATEGY_H
#define COI_STRATEGY_STRATEGY_H

#include <cohort/dataset.h>
#include <cohort/custom_strategy.h>

#include "collective/collective.h"
#include "ops/engine/execute.h"
#include "strategy/flight_recorder.h"

extern const coi_class coi_strategy_class;

#define COI_MAX_LOCAL_REPLICAS 256
#define COI_MAX_WORKERS        4096

/* What differs between strategies besides the placement. */
typedef struct coi_policy {
    const char *name;       /* "MirroredStrategy" */
    bool        is_default; /* changes no mode */
    bool wraps_values;      /* variables are distributed and arguments unwrapped; false: one device,
                          plain      values */
    bool                          workers; /* several processes */
    const co_strategy_definition *hooks;   /* of an own strategy; NULL for others */
} coi_policy;

/* Which replica lives where: what every constructor fills, and coi_strategy_make turns into a
 * strategy. */
typedef struct coi_placement {
    int        num_replicas; /* of all workers */
    int        worker, num_workers;
    const int *workers; /* of each replica, in order; NULL: spread evenly */
    const coi_device_name
                  *devices; /* of this worker; spread evenly and in order over its replicas */
    size_t         num_devices;
    const int64_t *weights; /* of all replicas; NULL: equal */
    size_t         num_weights;
    int            deadline_ms;
} coi_placement;

struct co_strategy {
    coi_object        object;
    const coi_policy *policy;
    coi_runtime      *runtime;
    uint64_t          serial;       /* names it in messages */
    int               num_replicas; /* in sync, of all workers */
    int  num_local; /* of this process: replicas [first_local, first_local + num_local) */
    int  first_local;
    int  worker, num_workers;
    int *first;                       /* rank r hosts replicas [first[r], first[r + 1]) */
    coi_device_name         *devices; /* of the local replicas */
    int64_t                 *weights; /* of all replicas, without a common factor; NULL: equal */
    struct coi_custom_table *own;     /* what an own strategy keeps; NULL for others */
    int                      deadline_ms; /* 0: none */
    coi_group               *group;       /* of the workers; NULL without */
    bool                     is_v1;       /* of the v1 flavour, which lacks some calls (S-V1-1) */
    coi_comm_options         comm;        /* between workers, where a call does not say otherwise */
    co_cross_device_ops      cross_device_ops; /* as asked for */

    _Atomic(struct coi_replica_threads *)
             spare_threads; /* an idle one, taken and given back without the lock */
    coi_lock lock;          /* of what follows */
    struct coi_replica_threads *idle_threads; /* idle ones besides the spare */
    atomic_bool                 unusable;     /* for good; why was written before */
    char                        why[600];
    atomic_ullong               epoch;    /* runs, and collectives of workers outside one */
    coi_recorder               *recorder; /* NULL with one replica */

    /* Between workers: of who has the turn (workers.c). */
    atomic_bool      turn_taken;
    coi_event        turn_given;
    struct coi_step *turn_step;  /* the run that has it, or NULL; under lock */
    atomic_ullong    turn_ticks; /* moves with every meeting of workers */
    uint64_t         sequence;   /* of the collective in the epoch */
    uint64_t         delivered;  /* the last of them whose data has arrived */
    uint64_t         flight;     /* entry of the collective */
};

/* "MirroredStrategy #3 (2 replicas)" for messages. */
#define COI_STRATEGY_TEXT COI_OBJECT_TEXT
const char *coi_strategy_text(const co_strategy *strategy, char out[COI_STRATEGY_TEXT]);

/* S-RUN-4, DEF-18: a scope or run of this strategy may begin: none is current, or it is, in
 * cross-replica context. Records CO_RUNTIME_ERROR otherwise. */
bool coi_check_enter(co_context *ctx, co_strategy *strategy);
/* S-REDUCE-2: default mode, or cross-replica context of this strategy; steps and merge functions of
 * the default strategy are neither. Records CO_RUNTIME_ERROR otherwise. */
bool coi_check_cross(co_context *ctx, co_strategy *strategy);
/* Usable, alive, argument `position` of the current call. */
bool coi_check_strategy(co_context *ctx, co_strategy *strategy, int position);
/* The same for calls that the v1 flavour lacks: CO_UNIMPLEMENTED there (S-V1-1). */
bool coi_check_v2(co_context *ctx, co_strategy *strategy);

/* --- placement.c --- */

/* Whether a strategy of ours has this name. */
bool coi_is_builtin(const char *name);
/* The default strategy of a flavour, which the runtime keeps. */
co_strategy *coi_default_strategy(co_context *ctx, bool is_v1);
/* A reference, or NULL with an error: CO_VALUE_ERROR for a placement that cannot be. */
co_strategy *coi_strategy_make(co_context *ctx, const coi_policy *policy,
                               const coi_placement *where);
/* Devices of this process: given, none twice, or else found (MIR-INIT-1). How many; 0 with an
 * error. */
size_t coi_choose_devices(co_context *ctx, const char *const *devices, size_t n,
                          coi_device_name out[COI_MAX_LOCAL_REPLICAS]);
/* Whether n replicas can be spread over so many places; 0 stands for one each. */
bool coi_check_replicas(co_context *ctx, int num_replicas, size_t num_places, const char *place,
                        size_t num_processes);
/* Puts the setting where options leave it to that. */
bool coi_check_deadline(co_context *ctx, int *deadline_ms);
/* The group of the processes that were started together. NULL with an error. */
coi_group *coi_open_group(co_context *ctx, const char *transport, const void *communicator,
                          int deadline_ms);
/* Make the strategy of such a group, on whose placement all ranks must agree. Takes the group over,
 * also when it fails. */
co_strategy *coi_strategy_join(co_context *ctx, const coi_policy *policy,
                               const coi_placement *where, coi_group *group);

/* --- own.c --- */

typedef enum coi_hook { COI_HOOK_RUN, COI_HOOK_VARIABLE, COI_HOOK_REDUCE } coi_hook;
/* Hooks that run on a context, innermost first: inside one, the call that it stands around goes to
 * the engine. */
typedef struct coi_hook_call {
    struct coi_hook_call *outer;
    const co_strategy    *strategy;
    coi_hook              hook;
    const char           *call;
    co_site_info          site;
    size_t                entries, blocks, floor; /* what the hook may not leave */
    const co_creation    *creation;               /* COI_HOOK_VARIABLE: how far that had come */
} coi_hook_call;

/* The hook of a strategy that runs on ctx; NULL: none does. */
const coi_hook_call *coi_hook_of(const co_context *ctx, const co_strategy *strategy, coi_hook hook);

/* Whether a call goes to a hook of the strategy (NULL: none) and not to the engine. */
bool coi_hook_wanted(const co_context *ctx, const co_strategy *strategy, coi_hook hook);
static inline bool
coi_is_hooked(const co_context *ctx, const co_strategy *strategy, coi_hook hook)
{
    return strategy != NULL && strategy->policy->hooks != NULL &&
           coi_hook_wanted(ctx, strategy, hook);
}
/* Before and after a hook: what it left open is left, and its result checked. Returns a value of
 * the caller's block; NULL with an error. */
void      coi_hook_begin(co_context *ctx, const co_strategy *strategy, coi_hook hook,
                         coi_hook_call *call);
co_value *coi_hook_end(co_context *ctx, coi_hook_call *call, co_value *result);
/* Where component i of a variable of the strategy lives. False with an error of the hook, or a name
 * that is none. */
bool coi_variable_device(co_context *ctx, co_strategy *strategy, int i, const char *name,
                         coi_device_name *out);
/* What an own strategy keeps goes with it. */
void coi_custom_free(co_strategy *strategy);

/* --- run.c --- */

/* What a replica brings to a meeting. One cache line of its own first, so that arrivals do not
 * fight. */
typedef enum coi_rendezvous_kind {
    COI_RENDEZVOUS_NONE = 0,
    COI_RENDEZVOUS_MERGE,
    COI_RENDEZVOUS_ALL_REDUCE,
    COI_RENDEZVOUS_ALL_GATHER,
    COI_RENDEZVOUS_ASSIGN,
    COI_RENDEZVOUS_UPDATE,
    COI_RENDEZVOUS_VARIABLE,
    COI_RENDEZVOUS_REDUCE, /* between workers, outside a step */
    COI_RENDEZVOUS_GATHER,
    COI_RENDEZVOUS_READ,
    COI_RENDEZVOUS_INPUT,
    COI_RENDEZVOUS_BROADCAST,
    COI_RENDEZVOUS_STRATEGY
} coi_rendezvous_kind;
const char *coi_rendezvous_name(coi_rendezvous_kind kind);

typedef struct coi_rendezvous_slot {
    _Alignas(64) coi_rendezvous_kind kind;
    uint64_t     sequence;
    co_site_info site;
    co_value    *value;  /* what it brings: borrowed, alive while it waits */
    coi_summary  what;   /* for who looks after it has gone */
    void        *detail; /* of the kind of meeting; on the stack of who waits */
    co_value    *result; /* what it takes away: a reference */
    atomic_bool  arrived, finished;
} coi_rendezvous_slot;

/* One run of a function on all local replicas. */
typedef struct coi_step {
    co_strategy                *strategy;
    struct coi_replica_threads *threads;
    co_context          *parent; /* the context that called run, and that merge functions get */
    int                  n;      /* local replicas */
    coi_rendezvous_slot *slots;
    co_fn                fn;
    void                *user;
    co_value            *args, *kwargs;
    bool                 in_turn;
    int                  rank;           /* of the process, for errors */
    uint64_t             random_counter; /* of the parent when the step began */
    uint64_t             epoch;          /* which run this is */
    coi_lock             inner_lock;     /* of inner */
    _Atomic(struct coi_step *) inner;    /* a run inside the merge function under way, or NULL */
    /* How many are at the current barrier, how many barriers were complete, and whether the step is
     * broken: one word, so that nobody can leave a barrier as broken while another completes it. */
    _Alignas(64) _Atomic(uint64_t) barrier;
    atomic_int    finished; /* replicas that returned */
    atomic_uint   opened;   /* round of the meeting that has an entry in the recorder, and 1 */
    atomic_bool   is_open;  /* that entry has not ended */
    atomic_ullong flight;   /* its number */
    coi_event     gate;     /* barriers and breaks */
    coi_event     turn;     /* in_turn: whose */
    atomic_int    whose;
    coi_lock      error_lock;
    co_error_info error; /* the first failure */
    void (*payload_deleter)(void *payload);
} coi_step;

#define COI_BROKEN    (UINT64_C(1) << 63)
#define COI_ARRIVED   0xfffu /* more than COI_MAX_LOCAL_REPLICAS */
#define COI_ONE_ROUND (UINT64_C(1) << 12)

/* The current barrier of a step; only to be compared. */
static inline unsigned
coi_round_of(uint64_t barrier)
{
    return (unsigned)(barrier / COI_ONE_ROUND);
}
static inline unsigned
coi_round(const coi_step *step)
{
    return coi_round_of(atomic_load(&step->barrier));
}

/* What the last to arrive does before the others go on; false breaks the step (with an error in
 * ctx). */
typedef bool (*coi_close_fn)(co_context *ctx, coi_step *step, void *arg);

/*
 * --- rendezvous.c ---
 * Come to a meeting: fill the seat of this replica, wait for all, check that all came to the same
 * one, let the last run `close` (may be NULL; its arg is NULL, what it needs is in the seats'
 * details). False: the step is broken and ctx has the error.
 */
bool coi_rendezvous(co_context *ctx, coi_rendezvous_kind kind, co_value *value, void *detail,
                    coi_close_fn close);
/*
 * Leave a meeting together: who shares work or details with the others after coi_rendezvous calls
 * this before it gives them up, on success and on failure, even if the step broke meanwhile. False:
 * it did, and ctx has the error.
 */
bool coi_rendezvous_leave(co_context *ctx);
/* The context of a local replica of a step (run.c). */
co_context *coi_replica_context(coi_step *step, int local_replica);
/* End the step for all replicas with the error of ctx. */
void coi_break(coi_step *step, co_context *ctx);
static inline bool
coi_is_broken(const coi_step *step)
{
    return (atomic_load_explicit(&step->barrier, memory_order_acquire) & COI_BROKEN) != 0;
}
/* A replica has returned: those who wait for it learn so. */
void coi_replica_finished(co_context *ctx);
/* Take the step's error into ctx, if it has none of its own; the payload stays with the step. */
void coi_take_step_error(co_context *ctx, coi_step *step);
/* How often replicas, the merge function and runs inside it called into the library: unchanged
 * means that nothing moves. */
uint64_t coi_step_progress(coi_step *step);
/* Break the step because replicas that have not returned execute nothing. */
void coi_report_unfinished(coi_step *step);
static inline coi_rendezvous_slot *
coi_my_slot(co_context *ctx)
{
    return &ctx->mode.step->slots[ctx->mode.local_replica];
}
void coi_wait_turn(co_context *ctx);
/*
 * Wait for other replicas of a running step. They are on their way, so it pays to spin until a
 * thread that slept has had time to wake (some 20 us, and as much again for each that it wakes):
 * sleeping meanwhile would add a wake of our own.
 */
static inline bool
coi_wait_replicas(coi_event *event, unsigned seen, coi_waiting *waiting, int timeout_ms)
{
    return coi_event_wait_spinning(event, seen, waiting, 5 * waiting->spin_us, timeout_ms);
}
/* Idle crews go with their strategy (run.c). */
void coi_replica_threads_free(co_strategy *strategy);

/* --- merge.c --- */

/* What runs once for all replicas, in the parent's context; returns a value of its block. */
typedef co_value *(*coi_merge_body)(co_context *parent, co_strategy *strategy, co_value *args,
                                    void *arg);
/* Meet, let replica 0 run `body` (with its own arg), take away this replica's part: a reference.
 * `check` (may be NULL) compares the args of the replicas, which are the details of their seats. */
co_value *coi_merge(co_context *ctx, coi_rendezvous_kind kind, co_value *args, coi_close_fn check,
                    coi_merge_body body, void *arg);

/* --- group.c --- */

/* Merge the values of n local replicas by DV-GROUP; a reference. `kind` is that of bundles; always:
 * wrap equal leaves too. NULL with an error (CO_ASSERTION_ERROR where structures differ). */
co_value *coi_regroup(co_context *ctx, const co_strategy *strategy, co_value *const *values, int n,
                      co_kind kind, bool always);
/* The structure with bundles replaced by their component; a reference, the same handle if there are
 * none. CO_VALUE_ERROR for a bundle that has not a component for each local replica. */
co_value *coi_select_all(co_context *ctx, const co_strategy *strategy, co_value *structure,
                         int local_replica);
/* That check alone, over a structure. */
bool coi_check_per_replica(co_context *ctx, const co_strategy *strategy, const co_value *structure);
/* For strategies that do not select: no per-replica value has more components than there are local
 * replicas, because the others would be for nobody. */
bool coi_check_parts(co_context *ctx, const co_strategy *strategy, const co_value *structure);
/* What the first bundle of a structure that knows them says. */
coi_examples coi_find_examples(const co_value *structure, int local_replica);

/* --- reduce.c --- */

/* Reduce one leaf from the local components (tensors of one dtype and shape; n of them) over all
 * replicas of all workers. A reference on the device of ctx. */
co_value *coi_reduce_tensors(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind kind,
                             co_reduce_op op, co_value *const *parts);
/* co_reduce without its checks and hooks: a value of the block. */
co_value *coi_reduce(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *value,
                     const int *axes, size_t num_axes);
/* One leaf of reduce without an axis: a value of the block. */
co_value *coi_reduce_leaf(co_context *ctx, co_strategy *strategy, co_reduce_op op, co_value *leaf);
/* Tell the tape that `result` is `leaf` (as a tensor: `in`) of all replicas, combined by the
 * operation `how` or gathered along the axis `how`. */
bool coi_record_collective(co_context *ctx, bool gather, int32_t how, co_value *leaf, co_value *in,
                           co_value *result);
extern const coi_op coi_op_all_reduce, coi_op_all_gather; /* collective_gradient.c */
/* S-REDUCE-19: bools and strings are not. */
bool coi_check_reducible(co_context *ctx, const co_value *tensor);
/* composite_reduce.c */
/* Composite values are concatenated, which is a sum: CO_UNIMPLEMENTED for MIN, MAX and PROD. */
bool coi_check_composite_op(co_context *ctx, const co_value *value, co_reduce_op op);
/* The values of the local replicas, of one composite kind, and those of all workers as one: a value
 * of the block. */
co_value *coi_combine_composites(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind kind,
                                 co_reduce_op op, co_value *const *values);
/* S-REDUCE-8: the dtype of a mean. */
co_dtype coi_mean_dtype(co_dtype dtype);

/* --- variables.c --- */

struct coi_variable_spec;
/* The container of n components, from which it has name, dtype, shape and trainable flag: a
 * reference. */
co_value *coi_distributed_variable(co_context *ctx, const struct coi_variable_spec *spec,
                                   co_value *const *components, size_t n);
/*
 * slot_variables.c: a variable that goes with another, as the momentum of an optimizer does: of its
 * dtype, shape, strategy and number of components, each beside one of its own. Not trainable, and
 * without a value yet. No replicas meet to make it. A reference, or NULL with an error.
 */
co_value *coi_slot_variable(co_context *ctx, co_value *variable, const char *name);
/* VAR-NEW-8: a variable is not used under another strategy. CO_RUNTIME_ERROR naming both. */
bool coi_check_owner(co_context *ctx, const coi_variable *variable, const co_strategy *used_by);

/* What ranks must agree on, as a number: begin with COI_SIGNATURE, and add what it is made of. */
#define COI_SIGNATURE UINT64_C(14695981039346656037)
static inline uint64_t
coi_sign(uint64_t signature, uint64_t word)
{
    return (signature ^ word) * UINT64_C(1099511628211);
}
/* dtype and shape of a tensor; of the length along axis `but` (-1: none) only that it is there. */
static inline uint64_t
coi_sign_tensor(uint64_t signature, const co_value *tensor, int but)
{
    signature = coi_sign(signature, tensor->dtype);
    for (int d = 0; d < tensor->ndim; ++d)
        signature = coi_sign(signature, d == but ? 0 : (uint64_t)tensor->u.tensor.dims[d] + 1);
    return signature;
}

/* --- input.c --- */

/* DS-ITER-4: who may ask for the next element. CO_VALUE_ERROR in a replica, CO_RUNTIME_ERROR under
 * another strategy. */
bool coi_check_input_mode(co_context *ctx, const co_strategy *strategy);
/* What a dataset function of this worker learns. */
co_input_context coi_input_context_of(const co_strategy *strategy);
/* Call a dataset function with the host of the worker as the current device (DS-FN-1, DS-FN-3):
 * what it returned, not looked at. */
co_dataset *coi_call_dataset_fn(co_context *ctx, const co_strategy *strategy, co_dataset_fn fn,
                                void *user, const co_input_context *input);
/* The dataset of this worker, neither split nor sharded, where a step that cannot serve every
 * replica is the end (ITER1-FN-4). Several workers stay in step instead. A dataset of the block. */
co_dataset *coi_distribute_whole_steps(co_context *ctx, co_strategy *strategy, co_dataset *mine);

/* --- workers.c: between processes. All do nothing without a group. --- */

/*
 * The runs of a strategy, and its collectives outside a run, are one after the other, from
 * whichever threads they come. Take the turn for a run and begin its epoch; false with
 * CO_DEADLINE_EXCEEDED where who has it executes nothing for the deadline.
 */
bool coi_workers_begin(co_context *ctx, co_strategy *strategy, coi_step *step);
/* Tell the others that the run ended, or failed with the error of ctx, and give the turn. */
void coi_workers_end(co_context *ctx, co_strategy *strategy);
/*
 * Say hello at a collective and check that all ranks are at the same one; `numbers` (may be NULL,
 * one per rank) receives each rank's `number`. False with an error in ctx that names rank, place
 * and both sides. True: data may flow, and coi_workers_done must follow.
 */
bool coi_workers_handshake(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what,
                           uint64_t signature, const char *text, int64_t number, int64_t *numbers);
/* A collective that is its handshakes alone: the number of each worker, on all of them. */
bool coi_workers_agree(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what,
                       uint64_t signature, const char *text, int64_t number, int64_t *numbers);
/* The same of one number: *number becomes the sum of those of all workers. */
bool coi_workers_add(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what,
                     const char *text, int64_t *number);
/* The collective is over, or failed with the error of ctx, which this completes. Returns ok. */
bool coi_workers_done(co_context *ctx, co_strategy *strategy, bool ok);
/* Outside a run: this rank fails instead of coming to the next collective, with the error of
 * ctx. */
void coi_workers_abort(co_context *ctx, co_strategy *strategy);
/* How long to wait for a peer, as the transports want it. */
static inline int
coi_timeout(const co_strategy *strategy)
{
    return strategy->deadline_ms > 0 ? strategy->deadline_ms : -1;
}
/* --- communication.c --- */

/* Options as given to a call or a strategy: CO_VALUE_ERROR for fields out of range (CO-1). `all`
 * receives them. */
bool coi_take_communication(co_context *ctx, co_communication_options *all,
                            const co_communication_options *options, int position);
/* The fields of options that are not the default, over what there is (CO-2). */
void coi_comm_options_set(coi_comm_options *comm, const co_communication_options *options);
/* For the call that is made on ctx, until it ends with ctx->travel = NULL; `travel` lives as
 * long. */
void coi_comm_options_begin(co_context *ctx, const co_strategy *strategy,
                            const co_communication_options *options, coi_comm_options *comm);
/* Of the call, or else of the strategy. */
static inline const coi_comm_options *
coi_comm_options_of(const co_context *ctx, const co_strategy *strategy)
{
    return ctx->comm != NULL ? ctx->comm : &strategy->comm;
}
/* The algorithm: as asked for, or by the types of the devices (MIR-CDO-1). */
co_cross_device_ops coi_cross_device_ops(const co_strategy *strategy);

/* The tensors of all workers, concatenated along axis: a value of ctx's block. Dimensions other
 * than axis agree. */
co_value *coi_workers_concat(co_context *ctx, co_strategy *strategy, coi_rendezvous_kind what,
                             co_value *tensor, int axis);
/* After a collective failed: let a value live on that the transport may still write to. */
void coi_workers_hold(const co_strategy *strategy, co_value *value);
/* The value of worker 0, on all workers (MW-9): a value of ctx's block. All bring the same shape
 * and dtype. */
co_value *coi_workers_broadcast(co_context *ctx, co_strategy *strategy, co_value *tensor);

#endif
