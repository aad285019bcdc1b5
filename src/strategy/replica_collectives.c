/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_reduce and all_gather inside a step. Replicas bring tensors to a rendezvous; the last to
 * arrive checks that they match and allocates the results, and each replica then reduces a share of
 * the elements in the fixed order of the tree. Inputs are never written to; the replicas' results
 * share one immutable buffer.
 */
#include <cohort/ops.h>

#include "context/tape.h"
#include "base/text.h"
#include "ops/engine/call_recording.h"
#include "ops/engine/composite_values.h"
#include "strategy/comm_options.h"
#include "strategy/cross_replica_reduce.h"
#include "strategy/rendezvous.h"
#include "strategy/workers.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define SMALL_BYTES                                                                                \
    16384 /* below this the last replica does all: a second rendezvous costs more than the work */

/* What one replica brings and takes away. */
typedef struct job {
    /* What other replicas look at is one cache line. */
    _Alignas(64) co_reduce_op op;
    int        axis;
    co_value  *value;
    co_value **leaves; /* of it; results replace them */
    co_value **in;     /* tensors and composite values; references */
    co_value **out;    /* results shared by the replicas: a reference of this replica's own each */
    size_t     n;
    bool       gather;
    bool       shared_work; /* every replica has to reduce its share, */
    bool       has_shared;  /* and this one did */
    bool       is_prepared; /* it was started before the rendezvous that completes it, by all */

    co_communication_options options; /* advice of the call */
    /* Of one that was started: */
    unsigned    at;   /* in the posts of the slots */
    struct job *next; /* that this replica started after it */
} job;

/* The jobs of all replicas: those that they brought to a rendezvous, or posted before it. */
typedef struct meeting {
    coi_step *step;
    int       at; /* in the posts of the slots; -1: at the rendezvous */
} meeting;

static job *
job_of(const meeting *m, int replica)
{
    const coi_rendezvous_slot *slot = &m->step->slots[replica];

    return m->at < 0 ? slot->detail : slot->posts[m->at];
}

static bool
is_concatenated(const job *mine, size_t k)
{
    return mine->gather || coi_is_composite(mine->in[k]);
}

/* --- what replicas must agree on --- */

static bool
leaf_agrees(co_context *ctx, const meeting *m, size_t k, int replica)
{
    const job      *mine = job_of(m, 0), *other = job_of(m, replica);
    const co_value *a = mine->in[k], *b = other->in[k];
    char            left[COI_SHAPE_TEXT], right[COI_SHAPE_TEXT];
    int             first = m->step->strategy->first_local;

    if (a->kind != b->kind) {
        coi_fail(
            ctx, CO_ASSERTION_ERROR,
            "leaf %zu is %s on replica %d and %s on replica %d; all replicas must bring the same kinds, make them alike with co_to_tensor",
            k, coi_a_kind(a->kind), first, coi_a_kind(b->kind), first + replica);
        return false;
    }
    if (a->dtype != b->dtype) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "leaf %zu is %s on replica %d and %s on replica %d; dtypes must be equal", k,
                 co_dtype_name((co_dtype)a->dtype), first, co_dtype_name((co_dtype)b->dtype),
                 first + replica);
        return false;
    }
    if (!is_concatenated(mine, k) && !coi_same_shape(a, b)) {
        coi_fail(ctx, CO_INVALID_ARGUMENT,
                 "leaf %zu has shape %s on replica %d and %s on replica %d; shapes must be equal",
                 k, coi_shape_text(a->u.tensor.dims, a->ndim, left), first,
                 coi_shape_text(b->u.tensor.dims, b->ndim, right), first + replica);
        return false;
    }
    return true;
}

static bool
all_agree(co_context *ctx, const meeting *m)
{
    const job *mine = job_of(m, 0);

    for (int i = 1; i < m->step->n; ++i) {
        const job *other = job_of(m, i);

        if (coi_same_structure(mine->value, other->value, CO_ASSERTION_ERROR, coi_err(ctx)) !=
            CO_OK) {
            coi_failed(ctx);
            return false;
        }
        if (other->op != mine->op || other->axis != mine->axis) {
            int first = m->step->strategy->first_local;

            coi_fail(
                ctx, CO_RUNTIME_ERROR,
                "replica %d asks for %s %d and replica %d for %s %d; all replicas must ask for the same",
                first, mine->gather ? "axis" : "operation",
                mine->gather ? mine->axis : (int)mine->op, first + i,
                mine->gather ? "axis" : "operation", mine->gather ? other->axis : (int)other->op);
            return false;
        }
        for (size_t k = 0; k < mine->n; ++k)
            if (!leaf_agrees(ctx, m, k, i))
                return false;
    }
    return true;
}

/* --- results --- */

/* Give every replica a reference of its own to a result (one of which is there already). */
static void
share_out(const meeting *m, size_t k, co_value *value)
{
    for (int i = 0; i < m->step->n; ++i) {
        if (i > 0)
            coi_ref(value);
        job_of(m, i)->out[k] = value;
    }
}

static coi_reduction
reduction_of(const meeting *m, size_t k, const void **parts)
{
    const job *mine = job_of(m, 0);

    for (int i = 0; i < m->step->n; ++i)
        parts[i] = coi_data_on_host(job_of(m, i)->in[k]);
    return (coi_reduction){ mine->op,
                            (co_dtype)mine->in[k]->dtype,
                            mine->in[k]->u.tensor.num_elements,
                            m->step->strategy->num_replicas,
                            parts,
                            coi_data_on_host(mine->out[k]) };
}

/* Leaf k of all replicas of all workers, concatenated: a value of ctx's block. */
static co_value *
concat_leaf(co_context *ctx, const meeting *m, size_t k)
{
    const job *mine = job_of(m, 0);
    co_value  *items[COI_MAX_LOCAL_REPLICAS], *here;

    for (int i = 0; i < m->step->n; ++i)
        items[i] = job_of(m, i)->in[k];
    if (coi_is_composite(items[0]))
        return coi_combine_composites(ctx, m->step->strategy, COI_RENDEZVOUS_ALL_GATHER, mine->op,
                                      items);
    here = co_concat(ctx, co_list(ctx, items, (size_t)m->step->n), mine->axis);
    if (here == NULL || m->step->strategy->group == NULL)
        return here;
    return coi_workers_concat(ctx, m->step->strategy, COI_RENDEZVOUS_ALL_GATHER, here, mine->axis);
}

/* Leaves that are concatenated: made whole by one replica. */
static bool
make_concatenated(co_context *ctx, const meeting *m, size_t k)
{
    bool      recording = ctx->recording, ok;
    co_value *whole;

    ctx->recording = false; /* the tape sees the collective, not what it is made of */
    co_block_begin(ctx);
    whole = concat_leaf(ctx, m, k);
    ok = whole != NULL;
    if (ok) {
        coi_ref(whole);
        share_out(m, k, whole);
    }
    co_block_end(ctx);
    ctx->recording = recording;
    return ok;
}

/* Allocate the sum of a leaf; compute it now if it is small. */
static bool
make_sum(co_context *ctx, const meeting *m, size_t k, const void **parts)
{
    const co_value *like = job_of(m, 0)->in[k];
    co_value       *out = coi_tensor_new(&ctx->heap, like->u.tensor.device, (co_dtype)like->dtype,
                                         like->u.tensor.dims, like->ndim, like->u.tensor.num_elements,
                                         coi_err(ctx));

    if (out == NULL) {
        coi_failed(ctx);
        return false;
    }
    share_out(m, k, out);
    if (m->step->strategy->group != NULL)
        return true; /* replica 0 does it, on the thread that may call the transport */
    if (coi_tensor_nbytes(like) <= SMALL_BYTES ||
        coi_cross_device_ops(m->step->strategy) == CO_CROSS_DEVICE_REDUCE_TO_ONE) {
        coi_reduction reduction = reduction_of(m, k, parts);

        coi_reduce_share(&reduction, 0, 1);
    } else {
        for (int i = 0; i < m->step->n; ++i)
            job_of(m, i)->shared_work = true;
    }
    return true;
}

/* Check, allocate, compute small leaves: one replica for all. */
static bool
prepare(co_context *ctx, const meeting *m)
{
    const job  *mine = job_of(m, 0);
    const void *parts[COI_MAX_LOCAL_REPLICAS];
    bool        ok = true;

    if (!all_agree(ctx, m))
        return false;
    for (size_t k = 0; k < mine->n && ok; ++k) {
        if (!is_concatenated(mine, k))
            ok = make_sum(ctx, m, k, parts);
        else if (m->step->strategy->group == NULL)
            ok = make_concatenated(ctx, m, k);
    }
    return ok;
}

/* This replica's share of every large leaf. */
static void
reduce_my_share(co_context *ctx, const meeting *m)
{
    job        *mine = job_of(m, ctx->mode.local_replica);
    const void *parts[COI_MAX_LOCAL_REPLICAS];

    if (mine->has_shared)
        return;
    for (size_t k = 0; k < mine->n; ++k)
        if (!is_concatenated(mine, k) && coi_tensor_nbytes(mine->in[k]) > SMALL_BYTES) {
            coi_reduction reduction = reduction_of(m, k, parts);

            coi_reduce_share(&reduction, ctx->mode.local_replica, m->step->n);
        }
    mine->has_shared = true;
}

static void
drop_results(co_context *ctx, const meeting *m)
{
    for (int i = 0; i < m->step->n; ++i) {
        job *mine = job_of(m, i);

        for (size_t k = 0; k < mine->n; ++k) {
            coi_unref(&ctx->heap, mine->out[k]);
            mine->out[k] = NULL;
        }
        mine->is_prepared = mine->shared_work = mine->has_shared = false;
    }
}

/*
 * --- collectives that are started before all replicas have come ---
 *
 * A replica posts what it brings and goes on; it waits for nobody. The last to post prepares the
 * results, and each replica reduces its share after the kernel that it is at, or at the
 * rendezvous, which completes what is left. So all errors, waits and deadlines are those of the
 * rendezvous, and replicas that do not start early (they have no plan) meet those that do.
 */

/* Whether the work at this rendezvous was begun. What was begun with a replica that dropped its
 * part since, and brings another one now, is dropped too. */
static bool
is_begun(co_context *ctx, const meeting *m)
{
    coi_step   *step = m->step;
    coi_posted *posted = &step->posted[step->slots[0].sequence % COI_MOST_STARTED];
    int         num_prepared = 0;
    bool        is_left = false;

    /* For another one to come. Mostly nothing was posted, and a line that nobody writes to stays in
     * all caches. */
    if (atomic_load_explicit(&posted->num, memory_order_relaxed) != 0) {
        atomic_store_explicit(&posted->num, 0, memory_order_relaxed);
        atomic_store_explicit(&posted->is_open, false, memory_order_relaxed);
    }
    for (int i = 0; i < step->n; ++i) {
        const job *mine = job_of(m, i);

        num_prepared += mine->is_prepared;
        is_left = is_left || (mine->shared_work && !mine->has_shared);
    }
    if (num_prepared < step->n) {
        if (num_prepared > 0)
            drop_results(ctx, m);
        return false;
    }
    for (int i = 0; i < step->n; ++i)
        job_of(m, i)->shared_work = is_left;
    return true;
}

/* The last replica to arrive. */
static bool
close_meeting(co_context *ctx, coi_step *step, void *arg)
{
    meeting m = { step, -1 };

    (void)arg;
    return is_begun(ctx, &m) || prepare(ctx, &m);
}

/* The last replica to post. What goes wrong here goes wrong at the rendezvous, which tells. */
static void
open_posted(co_context *ctx, const meeting *m)
{
    if (!prepare(ctx, m)) {
        coi_error_reset(&ctx->error);
        drop_results(ctx, m);
        return;
    }
    for (int i = 0; i < m->step->n; ++i)
        job_of(m, i)->is_prepared = true;
    atomic_store_explicit(&m->step->posted[m->at].is_open, true, memory_order_release);
}

/*
 * Read what others have posted: whether that is allowed. Who drops what it posted sets the flag,
 * then waits for those that read; these count themselves, then look for the flag.
 */
static bool
read_begin(coi_step *step)
{
    atomic_fetch_add(&step->sharing, 1);
    return !atomic_load(&step->is_dropped);
}

static void
read_end(coi_step *step)
{
    atomic_fetch_sub(&step->sharing, 1);
}

/* The first of its posts of which this replica has not done its share, and all others wait for it;
 * NULL: there is none. */
static const job *
find_open(const coi_step *step, const job *mine)
{
    for (; mine != NULL; mine = mine->next)
        if (atomic_load_explicit(&step->posted[mine->at].is_open, memory_order_acquire) &&
            mine->shared_work && !mine->has_shared)
            return mine;
    return NULL;
}

/* Do this replica's shares of what all have posted. */
static void
go_on_sharing(co_context *ctx)
{
    coi_step  *step = ctx->mode.step;
    const job *mine = find_open(step, coi_my_slot(ctx)->started);

    for (; mine != NULL; mine = find_open(step, mine->next)) {
        if (read_begin(step))
            reduce_my_share(ctx, &(meeting){ step, (int)mine->at });
        read_end(step);
    }
}

static void
post(co_context *ctx, job *mine)
{
    coi_step            *step = ctx->mode.step;
    coi_rendezvous_slot *slot = coi_my_slot(ctx);
    job                **last = (job **)&slot->started;

    mine->at = (unsigned)((slot->sequence + ++slot->num_started) % COI_MOST_STARTED);
    while (*last != NULL)
        last = &(*last)->next;
    *last = mine;
    slot->posts[mine->at] = mine;
    if (read_begin(step) && atomic_fetch_add(&step->posted[mine->at].num, 1) + 1 == step->n)
        open_posted(ctx, &(meeting){ step, (int)mine->at });
    read_end(step);
    go_on_sharing(ctx);
}

void
coi_forget_posted(coi_step *step)
{
    if (!atomic_load_explicit(&step->is_dropped, memory_order_relaxed))
        return; /* all were completed, which leaves nothing */
    atomic_store_explicit(&step->is_dropped, false, memory_order_relaxed);
    for (int i = 0; i < COI_MOST_STARTED; ++i) {
        atomic_store_explicit(&step->posted[i].num, 0, memory_order_relaxed);
        atomic_store_explicit(&step->posted[i].is_open, false, memory_order_relaxed);
    }
}

/* --- between workers: replica 0 acts for the process --- */

/* A hash of what the ranks must agree on, and a text for it. */
static uint64_t
signature_of(const job *mine, char *text, size_t capacity)
{
    uint64_t  hash = coi_sign(COI_SIGNATURE, (uint64_t)mine->op);
    coi_prose list = { text, capacity, 0 };

    text[0] = '\0';
    for (size_t k = 0; k < mine->n; ++k) {
        const co_value *leaf = mine->in[k];
        char            shape[COI_SHAPE_TEXT] = "";
        bool            dense = !is_concatenated(mine, k);

        hash = coi_sign(hash, leaf->kind);
        hash = dense ? coi_sign_tensor(hash, leaf, -1) : coi_sign(hash, leaf->dtype);
        if (list.at < capacity) /* there may be many more */
            coi_put(&list, "%s%s %s", k > 0 ? ", " : "", co_dtype_name((co_dtype)leaf->dtype),
                    coi_is_composite(leaf)
                        ? coi_kind_of(leaf)->name
                        : coi_shape_text(leaf->u.tensor.dims, leaf->ndim, shape));
    }
    coi_put_end(&list);
    return hash;
}

/* The dense leaves, all in one call: small ones are sent together. */
static bool
sum_between_workers(co_context *ctx, const meeting *m)
{
    co_strategy   *strategy = m->step->strategy;
    const job     *mine = job_of(m, 0);
    size_t         local = (size_t)m->step->n, n = 0;
    size_t         nbytes = mine->n * (sizeof(coi_reduction) + local * sizeof(void *));
    coi_reduction *jobs = coi_small_alloc(&ctx->heap, nbytes);
    const void   **parts;
    bool           ok;

    if (jobs == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu sums between workers", mine->n);
        return false;
    }
    parts = (const void **)(jobs + mine->n);
    for (size_t k = 0; k < mine->n; ++k)
        if (!is_concatenated(mine, k)) {
            jobs[n] = reduction_of(m, k, parts + n * local);
            ++n;
        }
    ok = coi_group_all_reduce(strategy->group, jobs, n, strategy->first,
                              coi_comm_options_of(ctx, strategy), coi_err(ctx)) == CO_OK;
    coi_small_free(&ctx->heap, jobs, nbytes);
    if (ok)
        return true;
    for (size_t k = 0; k < mine->n; ++k)
        if (!is_concatenated(mine, k))
            coi_workers_hold(strategy, mine->out[k]);
    return false;
}

/* How many leaves there are and of which kinds, as a number below zero: what of a structure other
 * ranks can compare (RC-AR-4). */
static int64_t
outline_of(const job *mine)
{
    uint64_t hash = mine->n;

    for (size_t k = 0; k < mine->n; ++k)
        hash = hash * 31 + mine->in[k]->kind;
    return -1 - (int64_t)(hash >> 1);
}

static bool
reduce_between_workers(co_context *ctx)
{
    coi_step  *step = ctx->mode.step;
    meeting    m = { step, -1 };
    const job *mine = job_of(&m, 0);
    char       text[200];
    uint64_t   signature = signature_of(mine, text, sizeof(text));

    if (!coi_workers_handshake(ctx, step->strategy,
                               mine->gather ? COI_RENDEZVOUS_ALL_GATHER : COI_RENDEZVOUS_ALL_REDUCE,
                               signature, text, outline_of(mine), NULL) ||
        !coi_workers_done(ctx, step->strategy, sum_between_workers(ctx, &m)))
        return false;
    for (size_t k = 0; k < mine->n; ++k)
        if (is_concatenated(mine, k) && !make_concatenated(ctx, &m, k))
            return false;
    return true;
}

static bool
all_reduce_workers(co_context *ctx)
{
    if (ctx->mode.local_replica == 0) {
        coi_step        *step = ctx->mode.step;
        coi_comm_options comm;

        coi_comm_options_begin(ctx, step->strategy, &job_of(&(meeting){ step, -1 }, 0)->options,
                               &comm);
        if (!reduce_between_workers(ctx))
            coi_break(step, ctx);
        coi_comm_options_end(ctx);
    }
    return coi_rendezvous_leave(ctx);
}

/* --- what one replica does --- */

/* Sums over replicas are the host's work: a reference to the tensor there, for that to it, which
 * stands for it on the tape. */
static co_value *
bring_to_host(co_context *ctx, co_value *leaf, co_value *tensor)
{
    co_value *host;

    if (coi_is_on_host(tensor))
        return tensor;
    host = coi_bring_tensor_to_host(ctx, tensor);
    if (host == NULL)
        coi_failed(ctx);
    else if (ctx->recording)
        coi_tape_mark(ctx->tapes, host, coi_tape_node(ctx, leaf, tensor));
    coi_count_named_fallback(tensor->u.tensor.device, "all_reduce", 2 * coi_tensor_nbytes(tensor));
    coi_unref(&ctx->heap, tensor);
    return host;
}

/* A leaf as the rendezvous wants it: a tensor or a composite value; a reference. */
static co_value *
bring_leaf(co_context *ctx, co_value *leaf, const job *mine)
{
    co_value *tensor;

    if (leaf->kind == CO_KIND_NONE) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "a leaf of the value is none; only tensors and numbers can be combined");
        return NULL;
    }
    if (coi_is_composite(leaf)) {
        if (mine->gather) {
            coi_fail(ctx, CO_UNIMPLEMENTED,
                     "%s cannot be gathered; make them dense with co_to_tensor",
                     coi_a_kind(leaf->kind));
            return NULL;
        }
        if (!coi_check_composite_op(ctx, leaf, mine->op))
            return NULL;
        coi_ref(leaf);
        return leaf;
    }
    tensor = coi_as_tensor(ctx, leaf, CO_DTYPE_NONE);
    if (tensor == NULL)
        return NULL;
    if (mine->gather || ctx->mode.num_replicas == 1)
        return tensor;
    if (!coi_check_reducible(ctx, tensor)) {
        coi_unref(&ctx->heap, tensor);
        return NULL;
    }
    return bring_to_host(ctx, leaf, tensor);
}

/* A shared result as this replica's own: on its device, a mean of integers as a float. A value of
 * the block. */
static co_value *
take_away(co_context *ctx, const job *mine, size_t k)
{
    co_value *shared = mine->out[k], *own;
    co_dtype  mean = coi_mean_dtype((co_dtype)shared->dtype);

    if (coi_is_composite(shared)) /* a handle of its own, as tensors have */
        return coi_composite_give(ctx, shared, shared->u.components);
    if (coi_current_device(ctx) == NULL)
        return NULL;
    if (shared->u.tensor.device == ctx->device && !ctx->device->host_memory)
        own = coi_tensor_view(&ctx->heap, shared, shared->u.tensor.dims, shared->ndim,
                              shared->u.tensor.num_elements, 0, coi_err(ctx));
    else
        own = coi_copy_tensor(ctx, shared, ctx->device);
    own = coi_give(ctx, own);
    if (own == NULL)
        return NULL;
    if (mine->gather || mine->op != CO_REDUCE_MEAN || mean == (co_dtype)shared->dtype)
        return own;
    {
        bool recording = ctx->recording;

        ctx->recording = false;
        own = co_div(ctx, co_cast(ctx, own, mean), co_int(ctx, ctx->mode.num_replicas));
        ctx->recording = recording;
    }
    return own;
}

/* With one replica a value comes back as it is, numbers as tensors. */
static co_value *
alone(co_context *ctx, co_value *value, const job *mine)
{
    if (coi_is_structure(value)) {
        co_value *copy = coi_structure_like(&ctx->heap, value, coi_err(ctx));

        for (size_t i = 0; copy != NULL && i < copy->u.items.n; ++i) {
            copy->u.items.items[i] = alone(ctx, value->u.items.items[i], mine);
            if (copy->u.items.items[i] == NULL) {
                coi_unref(&ctx->heap, copy);
                return NULL;
            }
        }
        if (copy != NULL)
            coi_structure_seal(copy, coi_err(ctx));
        return copy;
    }
    return bring_leaf(ctx, value, mine);
}

/* How a tape is told: the operation, or the axis. */
static bool
record(co_context *ctx, const job *mine, co_value *leaf, size_t k, co_value *result)
{
    int axis = mine->axis < 0 ? mine->axis + result->ndim : mine->axis;

    return coi_record_collective(ctx, mine->gather, mine->gather ? axis : (int32_t)mine->op, leaf,
                                 mine->in[k], result);
}

/* All leaves are here: come to the rendezvous, reduce, take the results away. */
static bool
meet_and_reduce(co_context *ctx, void *arg)
{
    job      *mine = arg;
    coi_step *step = ctx->mode.step;
    bool      ok;

    ok = coi_rendezvous(ctx, mine->gather ? COI_RENDEZVOUS_ALL_GATHER : COI_RENDEZVOUS_ALL_REDUCE,
                        mine->value, mine, close_meeting);
    if (ok && step->strategy->group != NULL) {
        ok = all_reduce_workers(ctx);
    } else if (ok && mine->shared_work) {
        reduce_my_share(ctx, &(meeting){ step, -1 });
        ok = coi_rendezvous_leave(ctx);
    }
    for (size_t k = 0; ok && k < mine->n; ++k) {
        co_value *result = take_away(ctx, mine, k);

        ok = result != NULL && record(ctx, mine, mine->leaves[k], k, result);
        mine->leaves[k] = result;
    }
    return ok;
}

static size_t
leaf_bytes(const job *mine)
{
    return (3 * mine->n + 1) * sizeof(co_value *);
}

static void
job_close(co_context *ctx, job *mine)
{
    for (size_t k = 0; mine->leaves != NULL && k < mine->n; ++k) {
        coi_unref(&ctx->heap, mine->in[k]);
        coi_unref(&ctx->heap, mine->out[k]);
    }
    if (mine->leaves != NULL)
        coi_small_free(&ctx->heap, mine->leaves, leaf_bytes(mine));
    mine->leaves = NULL;
}

/* Bring a value. To be closed on failure too. */
static bool
job_open(co_context *ctx, job *mine, co_value *value)
{
    size_t brought = 0;

    mine->value = value;
    mine->n = coi_count_leaves(value);
    mine->leaves = coi_small_alloc(&ctx->heap, leaf_bytes(mine));
    if (mine->leaves == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu leaves", mine->n);
        return false;
    }
    mine->in = mine->leaves + mine->n;
    mine->out = mine->in + mine->n;
    memset(mine->in, 0, 2 * mine->n * sizeof(*mine->in));
    coi_collect_leaves(value, mine->leaves);
    while (brought < mine->n &&
           (mine->in[brought] = bring_leaf(ctx, mine->leaves[brought], mine)) != NULL)
        ++brought;
    return brought == mine->n;
}

static co_value *
reduce_and_pack(co_context *ctx, job *mine)
{
    coi_effect shown = { .in = mine->in, .num_in = mine->n, .out = mine->out, .num_out = mine->n };

    if (!coi_execute_body(ctx, mine->gather ? &coi_op_all_gather : &coi_op_all_reduce, shown,
                          meet_and_reduce, mine))
        return NULL;
    return coi_give(ctx, coi_pack(&ctx->heap, mine->value, mine->leaves, coi_err(ctx)));
}

/* --- what this replica has started --- */

static void
free_started(co_context *ctx, job *mine)
{
    job_close(ctx, mine);
    coi_unref(&ctx->heap, mine->value);
    coi_small_free(&ctx->heap, mine, sizeof(*mine));
}

void
coi_drop_started(co_context *ctx)
{
    coi_step            *step = ctx->mode.step;
    coi_rendezvous_slot *slot = coi_my_slot(ctx);
    job                 *mine = slot->started, *next;

    if (mine == NULL)
        return;
    atomic_store(&step->is_dropped, true);
    while (atomic_load(&step->sharing) > 0)
        sched_yield();
    slot->started = NULL;
    slot->num_started = 0;
    for (; mine != NULL; mine = next) {
        next = mine->next;
        free_started(ctx, mine);
    }
}

/* Whether a value has these leaves, from *at on. */
static bool
has_leaves(const co_value *value, const job *mine, size_t *at)
{
    if (!coi_is_structure(value))
        return *at < mine->n && mine->leaves[(*at)++] == value;
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (!has_leaves(value->u.items.items[i], mine, at))
            return false;
    return true;
}

/* Whether a call is the one that this replica started first. */
static bool
is_started(const job *started, const job *mine, const co_value *value)
{
    size_t at = 0;

    return started != NULL && started->op == mine->op && !mine->gather &&
           has_leaves(value, started, &at) && at == started->n;
}

/* What was started cannot be read any more by others once all have left; on failure it may be. */
static co_value *
complete_started(co_context *ctx)
{
    coi_rendezvous_slot *slot = coi_my_slot(ctx);
    job                 *mine = slot->started;
    co_value            *result = reduce_and_pack(ctx, mine);

    if (result == NULL) {
        coi_drop_started(ctx);
        return NULL;
    }
    slot->started = mine->next;
    --slot->num_started;
    free_started(ctx, mine);
    return result;
}

static co_value *
combine(co_context *ctx, job *mine, co_value *value)
{
    co_value *result;

    if (is_started(coi_my_slot(ctx)->started, mine, value))
        return complete_started(ctx);
    result = job_open(ctx, mine, value) ? reduce_and_pack(ctx, mine) : NULL;
    job_close(ctx, mine);
    return result;
}

/* --- while a function is captured --- */

typedef struct collective_attrs {
    bool                     gather;
    co_reduce_op             op;
    int                      axis;
    co_communication_options options;
} collective_attrs;

static co_value *
replay_collective(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const collective_attrs *given = attrs;

    (void)num_in;
    return given->gather ? co_all_gather_with(ctx, in[0], given->axis, &given->options)
                         : co_all_reduce_with(ctx, given->op, in[0], &given->options);
}

/* Whether all leaves are tensors for the host to sum: nothing is to be brought or converted. */
static bool
is_plain(const co_value *value)
{
    if (!coi_is_structure(value))
        return value->kind == CO_KIND_TENSOR && coi_is_on_host(value) &&
               coi_can_reduce(CO_REDUCE_SUM, (co_dtype)value->dtype);
    for (size_t i = 0; i < value->u.items.n; ++i)
        if (!is_plain(value->u.items.items[i]))
            return false;
    return true;
}

/* Post the value of a call that comes later. Between workers nothing is sent meanwhile (see
 * docs/decisions/gradient-buckets.md). Where there is no memory, the call will tell. */
static bool
start_collective(co_context *ctx, const void *attrs, co_value *const *in, int num_in)
{
    const collective_attrs *given = attrs;
    job                    *mine;

    (void)num_in;
    if (given->gather || !coi_in_replica(ctx) || ctx->mode.step->n == 1 ||
        ctx->mode.step->strategy->group != NULL ||
        coi_my_slot(ctx)->num_started == COI_MOST_STARTED || !is_plain(in[0]))
        return false;
    mine = coi_small_alloc(&ctx->heap, sizeof(*mine));
    if (mine == NULL)
        return false;
    *mine = (job){ .op = given->op, .options = given->options };
    coi_ref(in[0]);
    if (job_open(ctx, mine, in[0])) {
        post(ctx, mine);
        return true;
    }
    coi_error_reset(&ctx->error);
    free_started(ctx, mine);
    return false;
}

static bool
same_collective(co_context *ctx, const void *a, const void *b)
{
    const collective_attrs *first = a, *second = b;

    (void)ctx;
    return first->gather == second->gather && first->op == second->op &&
           first->axis == second->axis &&
           coi_is_same_communication(&first->options, &second->options);
}

const coi_op coi_op_collective = {
    COI_RECORDED("collective", "A collective of replicas; co_all_reduce, co_all_gather.",
                 replay_collective, CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS,
                 CO_RESOURCE_REPLICAS | CO_RESOURCE_WORKERS),
    .attrs_rule.size = COI_ATTRS_SIZE(collective_attrs),
    .same_attrs = same_collective,
    .is_plan_call = true,
    .start = start_collective,
    .go_on = go_on_sharing,
};

/* Rows of other replicas are added along an axis. */
static void
extend(co_value *spec, int axis)
{
    axis += axis < 0 ? spec->ndim : 0;
    if (axis >= 0 && axis < spec->ndim)
        spec->u.tensor.dims[axis] = -1;
}

static co_value *
result_type(co_context *ctx, co_value *leaf, void *arg)
{
    const job *mine = arg;
    co_value  *spec;

    if (coi_is_composite(leaf))
        return ctx->mode.num_replicas > 1 ? coi_combined_type(ctx, leaf) : leaf;
    if (coi_host_dtype(leaf) != CO_DTYPE_NONE)
        spec = coi_spec(ctx, coi_host_dtype(leaf), NULL, 0);
    else
        spec = coi_fresh_type(ctx, coi_select(leaf, ctx->mode.local_replica));
    if (spec == NULL || spec->kind != CO_KIND_SPEC || ctx->mode.num_replicas == 1)
        return spec;
    if (mine->gather)
        extend(spec, mine->axis);
    else if (mine->op == CO_REDUCE_MEAN)
        spec->dtype = (uint8_t)coi_mean_dtype((co_dtype)spec->dtype);
    return spec;
}

/* The tape of types sees what is computed from the result. */
static bool
record_result(co_context *ctx, const job *mine, co_value *leaf, co_value *result)
{
    int axis = mine->axis < 0 ? mine->axis + result->ndim : mine->axis;

    if (!ctx->recording || coi_is_composite(leaf) || !coi_is_type(result))
        return true;
    return coi_record_collective(ctx, mine->gather, mine->gather ? axis : (int32_t)mine->op, leaf,
                                 leaf, result);
}

static co_value *
capture_collective(co_context *ctx, job *mine, co_value *value)
{
    collective_attrs attrs = { mine->gather, mine->op, mine->axis, mine->options };
    co_value        *type = co_map_structure(ctx, value, result_type, mine), *result;
    size_t           n = coi_count_leaves(value), nbytes = (2 * n + 1) * sizeof(co_value *);
    co_value       **leaves = coi_small_alloc(&ctx->heap, nbytes);

    if (leaves == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a collective of %zu value%s", n,
                 COI_S(n));
        return NULL;
    }
    result = coi_record_call(ctx, &coi_op_collective, &attrs, &value, 1, type);
    if (result != NULL) {
        coi_collect_leaves(value, leaves);
        coi_collect_leaves(result, leaves + n);
    }
    for (size_t k = 0; k < n && ctx->error.code == CO_OK; ++k)
        record_result(ctx, mine, leaves[k], leaves[n + k]);
    coi_small_free(&ctx->heap, leaves, nbytes);
    return ctx->error.code == CO_OK ? result : NULL;
}

static co_value *
collective(co_context *ctx, job *mine, co_value *value)
{
    if (!coi_check_value(ctx, value, 3, "value"))
        return NULL;
    if (ctx->mode.cross) {
        coi_fail(ctx, CO_RUNTIME_ERROR,
                 "%s is called in cross-replica context; call it inside a step, or use %s here",
                 ctx->call, mine->gather ? "co_gather_replicas" : "co_reduce");
        return NULL;
    }
    if (coi_is_capturing(ctx))
        return capture_collective(ctx, mine, value);
    if (ctx->mode.num_replicas == 1)
        return coi_give(ctx, alone(ctx, value, mine));
    return combine(ctx, mine, value);
}

co_value *
co_all_reduce_with(co_context *ctx, co_reduce_op op, co_value *value,
                   const co_communication_options *options)
{
    job mine = { .op = op };

    COI_ENTER(ctx, "all_reduce", NULL);
    if (!coi_take_communication(ctx, &mine.options, options, 4))
        return NULL;
    if ((unsigned)op > CO_REDUCE_PROD) {
        coi_fail(
            ctx, CO_TYPE_ERROR,
            "argument 2 (op) of all_reduce is %d, which is not a reduce operation; give one from CO_REDUCE_SUM (0) to CO_REDUCE_PROD (4)",
            (int)op);
        return NULL;
    }
    return collective(ctx, &mine, value);
}

co_value *
co_all_reduce(co_context *ctx, co_reduce_op op, co_value *value)
{
    return co_all_reduce_with(ctx, op, value, NULL);
}

/* RC-AG-1, RC-AG-2: rank at least 1, axis within it. */
static bool
check_axis(co_context *ctx, co_value *value, int axis)
{
    co_value *tensor;
    bool      ok = true;

    if (coi_is_structure(value)) {
        for (size_t i = 0; ok && i < value->u.items.n; ++i)
            ok = check_axis(ctx, value->u.items.items[i], axis);
        return ok;
    }
    if (coi_is_composite(value) || value->kind == CO_KIND_NONE)
        return true; /* refused with the right kind later */
    tensor = coi_as_tensor(ctx, value, CO_DTYPE_NONE);
    if (tensor == NULL)
        return false;
    if (axis < -tensor->ndim || axis >= tensor->ndim) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "axis %d of a value of rank %d; all_gather needs rank >= 1 and an axis within it",
                 axis, tensor->ndim);
        ok = false;
    }
    coi_unref(&ctx->heap, tensor);
    return ok;
}

co_value *
co_all_gather_with(co_context *ctx, co_value *value, int axis,
                   const co_communication_options *options)
{
    job mine = { .gather = true, .axis = axis };

    COI_ENTER(ctx, "all_gather", NULL);
    if (!coi_take_communication(ctx, &mine.options, options, 4) ||
        !coi_check_value(ctx, value, 2, "value"))
        return NULL;
    if (!ctx->mode.cross && ctx->mode.num_replicas > 1 && !coi_is_capturing(ctx) &&
        !check_axis(ctx, value, axis))
        return NULL;
    return collective(ctx, &mine, value);
}

co_value *
co_all_gather(co_context *ctx, co_value *value, int axis)
{
    return co_all_gather_with(ctx, value, axis, NULL);
}
