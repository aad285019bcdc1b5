/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context and the runtime that contexts share. See include/cohort/context.h for what it means
 * to users.
 */
#ifndef COI_CONTEXT_CONTEXT_H
#define COI_CONTEXT_CONTEXT_H

#include <cohort/context.h>
#include <cohort/observe.h>
#include <cohort/strategy.h>

#include <stddef.h>

#include "value/kind.h"
#include "value/variable_handle.h"

/*
 * Folders below keep their own state in a context: space that is zero in a new context, and whose
 * type only its owner knows (docs/decisions/context-extensions.md). In a runtime the owner keeps
 * objects.
 */
typedef enum coi_extension {
    COI_EXTENSION_DATA,
    COI_EXTENSION_STRATEGY,
    COI_NUM_EXTENSIONS
} coi_extension;
#define COI_EXTENSION_BYTES   64
#define COI_EXTENSION_OBJECTS 2

#define COI_MAX_OBSERVERS 8
/* A slot for an observer (ops/engine/observe.c). */
struct co_observer {
    _Atomic(co_observe_fn) fn; /* NULL: it is not called, or not any more */
    void                  *user;
    atomic_int             busy;     /* threads that are inside fn, or about to read it */
    bool                   is_taken; /* until co_unobserve has seen that no thread is inside */
};
/* A thread that is inside an observer; on its stack. */
struct coi_observing {
    struct coi_observing *next;
    pthread_t             thread;
};

typedef struct coi_runtime {
    atomic_uint     refs;       /* contexts that users opened, tensors on loan */
    atomic_uint     num_opened; /* contexts that users opened */
    coi_memory      memory;
    coi_log         log;
    coi_settings    settings;
    coi_topology    topology;
    coi_waiting     waiting;
    coi_devices    *devices;
    coi_isa         isa;
    coi_cell_store  store;
    pthread_mutex_t lock;                                                  /* of what follows */
    void           *extensions[COI_NUM_EXTENSIONS][COI_EXTENSION_OBJECTS]; /* references, or NULL */
    atomic_ullong   next_epoch;                                            /* tapes */
    atomic_ullong   next_serial; /* for objects that need a unique number: strategies, variables */
    atomic_uint     said_once;   /* log lines that are written once, a bit each */
    pid_t           pid;         /* of the process that opened it: a forked child may only close */
    co_error_info   failure; /* why it could not start: the permanent error of all its contexts */
    atomic_ullong   next_start;
    atomic_bool     observed; /* there are observers: the fast check of every start */
    struct co_observer    observers[COI_MAX_OBSERVERS];
    coi_lock              observing_lock; /* of the next */
    struct coi_observing *observing;      /* threads whose starts are the observers' own */
    /* What kernels keep between calls (primitives of oneDNN), made at first need under `lock`. */
    void *kernel_state;
    void (*kernel_state_close)(struct coi_runtime *runtime, void *state);
} coi_runtime;

/* Which strategy is current, and as what. The default mode has one
 * replica, and -1 for update_id. */
typedef struct coi_mode {
    co_strategy     *strategy;      /* NULL: the default strategy */
    bool             cross;         /* cross-replica context */
    int              replica;       /* id in the sync group, in replica context */
    int              local_replica; /* which component of a per-replica value */
    int              num_replicas;
    int              num_local; /* replicas of this process, in a step */
    int              update_id; /* component that an update function acts on; -1 outside one */
    struct coi_step *step;      /* the run, opaque here; NULL outside run */
    bool             is_direct; /* a run that calls its step as code outside would (OneDevice) */
} coi_mode;

/* All entries that must be left in reverse order are on one stack (SCOPE-9). */
typedef enum coi_entry_kind {
    COI_ENTRY_SCOPE,        /* strategy scope that changed the mode */
    COI_ENTRY_SCOPE_NESTED, /* scope of the current strategy again, or of the default: no change */
    COI_ENTRY_SET,          /* experimental_set_strategy */
    COI_ENTRY_MERGE,
    COI_ENTRY_UPDATE,
    COI_ENTRY_CREATOR,
    COI_ENTRY_DEVICE,
    COI_ENTRY_COLOCATE,
    COI_ENTRY_GRAPH,     /* a graph is current */
    COI_ENTRY_CONTROL,   /* what is added to a graph comes after other calls */
    COI_ENTRY_INIT_SCOPE /* outside the functions that are being captured */
} coi_entry_kind;

typedef struct coi_entry {
    coi_entry_kind  kind;
    uint64_t        id; /* of the token */
    co_strategy    *strategy;
    coi_mode        saved_mode; /* restored when the entry is left */
    co_device      *saved_device;
    bool            changes_device;
    coi_device_name saved_name;
    void (*fn)(void);                          /* of creators, in the type of their owner */
    void *user;                                /* of creators, and of undo */
    void (*undo)(co_context *ctx, void *user); /* when it is left; NULL: nothing more */
    bool         is_statement;                 /* of a macro; those alone have the next two */
    size_t       num_blocks;                   /* that were open when it was entered */
    co_site_info site;
} coi_entry;

typedef struct coi_block {
    size_t       num_owned; /* owned objects when it began */
    uint64_t     id;        /* of a macro's token; 0: of co_block_begin */
    co_site_info site;      /* of a macro */
} coi_block;

struct coi_tape_log; /* context/tape.h */

/* Why an entry does not simply run its kernel. The runtime has one reason more: observers. */
enum {
    COI_SPECIAL_REFERENCE = 1, /* plain kernels alone */
    COI_SPECIAL_LOG = 2,       /* a line of the log for each kernel */
    COI_SPECIAL_CAPTURE = 4,   /* a function is captured: entries that act on a resource must not
                                * run */
    COI_SPECIAL_RECORD = 8     /* kernels are shown to ctx->kernel_recorder */
};

/* An observer used the context that it observes: where, and during which call of which replica. */
typedef struct coi_misuse {
    co_site_info site; /* file NULL: there was none */
    const char  *call;
    int          replica;
} coi_misuse;

struct co_context {
    co_site_info  site; /* first: co_site() of the public header writes here */
    co_error_info error;
    void (*payload_deleter)(void *payload);
    const char *call; /* the public call being made, for error records */
    atomic_ullong
        progress; /* operators applied: shows other threads that this context is not stuck */
    coi_runtime *runtime; /* NULL: closed */
    coi_heap     heap;

    coi_object **owned; /* what blocks own, oldest first */
    size_t       num_owned, cap_owned;
    coi_block   *blocks;
    size_t       num_blocks, cap_blocks;
    size_t       unmarked_blocks; /* begun without memory for their mark */
    size_t       unbegun_tapes;   /* the same */
    uint32_t     tape_number; /* of the tape that the replayed call is about; 0: the innermost */
    size_t       unpushed_devices, unpushed_colocations;
    size_t       block_floor; /* blocks of the caller: what a step or merge function may not end */

    coi_mode        mode;
    coi_entry      *entries;
    size_t          num_entries, cap_entries;
    uint64_t        next_entry;
    co_device      *device; /* current; NULL: named but not there */
    coi_device_name device_id;
    char            device_text[CO_DEVICE_NAME_MAX]; /* of one that does not exist */

    bool                 recording;    /* a tape is open: the fast check of dispatch */
    bool                 infers_types; /* operators of specs give specs; see coi_infer_gradient */
    struct coi_tape_log *tapes;

    uint64_t random_counter;
    uint8_t  special; /* bits of COI_SPECIAL_...: the reasons why the start of an entry takes the
                         slow path */
    int      depth;   /* entries that are being executed (ops/engine/execute.h) */
    uint64_t seed;    /* not beside the counter: one load of both would wait for its last store */
    const co_error_info *lent; /* not NULL while a step or an observer runs that must not use it */
    co_site_info         lent_site; /* what it had before: the call of run or of the operator, */
    co_code              lent_code; /* and that of its error */
    int                  num_functions; /* of the user that run in it: it cannot be closed now */
    coi_misuse           misuse;        /* of it by an observer; not an error yet */
    /* Its starts are not shown: it works for an observer (a replica of its run, a worker of its
     * dataset), or holds the locks of variables. */
    bool  unobserved;
    bool  is_opened;       /* by the user, who closes it; not the context of a replica */
    bool  failure_is_seen; /* the runtime could not be opened, and the user has cleared that once */
    int   rank;            /* of the process; -1 outside a group */
    void *user;
    const struct coi_type_recorder *type_recorder; /* ops/engine/op.h; NULL: nobody records */
    struct coi_capture             *capture; /* of a function, under way; NULL: calls are made */
    struct coi_kernel_recorder *kernel_recorder; /* ops/engine/kernel_recording.h; see special */
    const co_value *run_args; /* of a replica in a step: what run was given, for all replicas */
    /* While a step is captured: what is being captured around it (function/function.h), or NULL. */
    const struct coi_outer_capture *outer_capture;
    bool in_graph; /* it adds to a graph, and device names lack their job (OD1-3) */
    _Alignas(max_align_t) unsigned char extensions[COI_NUM_EXTENSIONS][COI_EXTENSION_BYTES];
#ifdef COI_DEBUG
    atomic_ullong busy_thread; /* who is inside a call */
    atomic_ullong only_thread; /* the only thread that may use it, during a step; 0: any thread */
    int           busy_depth;
    atomic_bool   intruded; /* another thread tried meanwhile */
#endif
};

/* context_error.c. Record an error with the current call and site, unless there is one; returns
 * code. */
COI_RARE co_code coi_fail(co_context *ctx, co_code code, const char *format, ...) CO_PRINTF(3, 4);
/* Copy an error record of another context (a replica's, unchanged: GEN-ERR-2), with its
 * payload. */
COI_RARE void coi_take_error(co_context *ctx, co_context *from);
/* An error record to fill for the functions of folders above; recording completes it with call and
 * site. */
static inline co_error_info *
coi_err(co_context *ctx)
{
    return &ctx->error;
}
/* Reference kernels only, or those of the instruction set. */
static inline void
coi_use_reference(co_context *ctx, bool reference)
{
    ctx->special = (uint8_t)((ctx->special & ~COI_SPECIAL_REFERENCE) |
                             (reference ? COI_SPECIAL_REFERENCE : 0));
}
/* In a runtime that could not start every context has that error. */
COI_RARE void coi_repeat_failure(co_context *ctx);
/* Whether this is the process that opened the runtime, and not a fork of it (CO_RUNTIME_ERROR). */
bool coi_check_owner_process(co_context *ctx);
/* After such a function failed: add call, site, rank, replica. Returns the code. */
COI_RARE co_code coi_failed(co_context *ctx);

/* Other threads may read the count. They add to it only while this context's thread waits for them
 * (coi_fused_run). */
static inline void
coi_tick(co_context *ctx)
{
    unsigned long long so_far = atomic_load_explicit(&ctx->progress, memory_order_relaxed);

    atomic_store_explicit(&ctx->progress, so_far + 1, memory_order_relaxed);
}

/*
 * Whether calls may change the context: it was opened, is not closed, and no run is under way on
 * it. A context that is closed or lent to a run also has an error, so calls that do nothing while
 * there is one need not ask.
 */
static inline bool
coi_is_usable(const co_context *ctx)
{
    return ctx != NULL && ctx->runtime != NULL && ctx->lent == NULL;
}
/* The result of a call that returns a code, on a context that it cannot use. */
static inline co_code
coi_refusal_code(const co_context *ctx)
{
    return ctx != NULL && ctx->error.code != CO_OK ? ctx->error.code : CO_INVALID_ARGUMENT;
}
/*
 * Copy a call site that was just written, member by member: a copy of the whole would be one load
 * over two stores that are still under way, and wait for both.
 */
static inline void
coi_copy_site(co_site_info *to, const co_site_info *from)
{
    to->file = from->file;
    to->line = from->line;
}
/*
 * Functions of the user run for ctx, with contexts of their own (the steps of a run) or none (an
 * observer). Until coi_take_back, calls on ctx do nothing; coi_take_back finds that one was made by
 * the call site that it left, and records the error that ctx was lent with.
 *
 * The error of an observer waits (ctx->misuse): were it one at once, a replica would stop in the
 * middle of a step that the others finish, and mirrored variables would differ. It becomes one when
 * the user asks for the error of the context, and is that of the caller of run after a step.
 */
extern const co_error_info coi_lent_to_step, coi_lent_to_observer;
static inline void
coi_lend(co_context *ctx, const co_error_info *to)
{
    coi_copy_site(&ctx->lent_site, &ctx->site);
    ctx->lent_code = ctx->error.code;
    ctx->site.file = NULL; /* until a call is made on it */
    ctx->error.code = CO_RUNTIME_ERROR;
    ctx->lent = to;
}
COI_RARE void coi_fail_lent(co_context          *ctx,
                            const co_error_info *to); /* called only by coi_take_back */
/* The step of `from` has ended. */
void coi_pass_misuse(co_context *from, co_context *to);
/* Outside a step, the error that waits becomes one, unless there is another. */
void coi_admit_misuse(co_context *ctx);
static inline void
coi_take_back(co_context *ctx)
{
    const co_error_info *to = ctx->lent;

    ctx->lent = NULL;
    ctx->error.code = ctx->lent_code;
    if (ctx->site.file != NULL)
        coi_fail_lent(ctx, to);
    coi_copy_site(&ctx->site, &ctx->lent_site);
}

/* Around the call of a function of the user that is given ctx: it may not close it, nor end blocks
 * of its caller. What begin returns is given to end. */
static inline size_t
coi_function_begin(co_context *ctx)
{
    size_t floor = ctx->block_floor;

    ++ctx->num_functions;
    ctx->block_floor = ctx->num_blocks;
    return floor;
}
static inline void
coi_function_end(co_context *ctx, size_t floor)
{
    --ctx->num_functions;
    ctx->block_floor = floor;
}

/*
 * Every public call begins with one of these. Nothing happens on a NULL context or one that was
 * closed, and in debug builds none while another thread is in a call on it, which that thread then
 * finds as an error of its own.
 */
#ifdef COI_DEBUG
bool coi_enter(co_context *ctx);
void coi_leave(co_context **guard);
/* Whether another thread is inside a call on ctx. */
bool coi_is_intruder(const co_context *ctx);
/* A step begins or ends on this thread: in between, no other thread may use ctx. */
void coi_bind(co_context *ctx, bool bound);
#define COI_GUARD(ctx, result)                                                                     \
    co_context *coi_guard_ __attribute__((cleanup(coi_leave), unused)) = (ctx);                    \
    if (!coi_enter(ctx))                                                                           \
    return result
#define COI_GUARD_OK(ctx, result) COI_GUARD(ctx, result)
#else
#define COI_GUARD(ctx, result)                                                                     \
    if (!coi_is_usable(ctx))                                                                       \
    return result
/* The same before a test for errors. */
#define COI_GUARD_OK(ctx, result)                                                                  \
    if ((ctx) == NULL)                                                                             \
    return result
static inline void
coi_bind(co_context *ctx, bool bound)
{
    (void)ctx;
    (void)bound;
}
#endif
/* Calls that work: nothing while there is an error. */
#define COI_ENTER(ctx, name, result)                                                               \
    COI_GUARD_OK(ctx, result);                                                                     \
    if ((ctx)->error.code != CO_OK)                                                                \
        return result;                                                                             \
    coi_tick(ctx);                                                                                 \
    (ctx)->call = (name)
/* The same for calls that return a code. */
#define COI_ENTER_CODE(ctx, name)                                                                  \
    COI_GUARD_OK(ctx, coi_refusal_code(ctx));                                                      \
    if ((ctx)->error.code != CO_OK)                                                                \
        return (ctx)->error.code;                                                                  \
    coi_tick(ctx);                                                                                 \
    (ctx)->call = (name)
/* Opening and closing, which are done while there is an error too; its record keeps the call that
 * it came from. */
#define COI_ENTER_ALWAYS(ctx, name, result)                                                        \
    COI_GUARD(ctx, result);                                                                        \
    (ctx)->call = (name)

/* context.c */
bool coi_make_room_to_own(co_context *ctx, void *object); /* called by own alone */
/* Give a reference to the innermost block; returns the object, or NULL (reference dropped) without
 * memory. */
static inline void *
coi_own(co_context *ctx, void *object)
{
    if (ctx->num_owned == ctx->cap_owned && !coi_make_room_to_own(ctx, object))
        return NULL;
    ctx->owned[ctx->num_owned++] = object;
    return object;
}
/* The same for a handle that stays with its owner: the block gets a reference of its own. */
static inline void *
coi_own_ref(co_context *ctx, void *object)
{
    coi_ref(object);
    return coi_own(ctx, object);
}
/* coi_own for a value that may be NULL because its maker failed: completes the error record. */
co_value *coi_give(co_context *ctx, co_value *value);
/* co_none inside the call that ctx is in, whose name stays: a value of the block, or NULL with an
 * error (value_constructors.c). */
co_value *coi_none(co_context *ctx);
/* A runtime is reference-counted; the last reference closes it. Thread-safe. */
void coi_runtime_hold(coi_runtime *runtime);
void coi_runtime_release(coi_runtime *runtime);
/* A context of the same runtime for a replica, which does not hold it; NULL without memory. */
co_context *coi_context_new(coi_runtime *runtime);
/* Afterwards the context is closed: every call on it is an error. */
void coi_context_free(co_context *ctx);
/* A block, to be completed by the caller: its id is 0; NULL with an error without memory. */
bool coi_make_room_for_block(co_context *ctx); /* called only by coi_push_block */
static inline coi_block *
coi_push_block(co_context *ctx)
{
    coi_block *block;

    if (ctx->num_blocks == ctx->cap_blocks && !coi_make_room_for_block(ctx))
        return NULL;
    block = &ctx->blocks[ctx->num_blocks++];
    block->num_owned = ctx->num_owned;
    block->id = 0;
    return block;
}
/* End the innermost block. */
void coi_pop_block(co_context *ctx);
/* The innermost block as if it had ended and begun again. */
void coi_empty_block(co_context *ctx);
/* Drop all that the blocks of ctx own, down to `depth` blocks. */
void coi_blocks_unwind(co_context *ctx, size_t depth);

/* Whether there are observers, to whom entries of the operator table are shown. */
static inline bool
coi_is_observed(const co_context *ctx)
{
    return atomic_load_explicit(&ctx->runtime->observed, memory_order_relaxed);
}

/* Whether a step of run is being executed here, by a replica. */
static inline bool
coi_in_replica(const co_context *ctx)
{
    return ctx->mode.step != NULL && !ctx->mode.cross;
}

/* context_pool.c: memory for a context, of zeros, and back again; NULL without memory. */
co_context *coi_context_take(void);
void        coi_context_give(co_context *ctx);

/* check.c: arguments of public calls. Each records the error (naming argument `position` and what
 * would be right). */
/* "a" or "an", before the name of the class. */
const char *coi_article(const coi_class *cls);
/* Say why a handle that is not NULL cannot be used as an object of the class: fork, another
 * runtime, or dead (code). */
void coi_refuse_handle(co_context *ctx, const void *handle, const coi_class *cls, co_code code,
                       const char *name);
bool coi_check_value(co_context *ctx, const co_value *value, int position,
                     const char *name); /* not NULL, alive */
/* What a function of the user, "step" or "merge function", returned to a call is a live value. */
bool coi_check_result(co_context *ctx, const co_value *result, const char *call, const char *of);
bool coi_check_kind(co_context *ctx, const co_value *value, co_kind kind, int position,
                    const char *name);
/* CO_TYPE_ERROR: a value is read that has no elements, because a function is being captured, or
 * was. */
COI_RARE void coi_fail_symbolic(co_context *ctx, const co_value *value);
bool coi_check_object(co_context *ctx, const void *object, const coi_class *cls, int position,
                      const char *name);
/* A dtype and a shape that a tensor can have; *count gets the elements. */
bool coi_check_shape(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim,
                     int64_t *count);
/* A struct of options that begins with its size, over the defaults in `all` of `size` bytes. NULL
 * is allowed. */
bool coi_take_options(co_context *ctx, void *all, size_t size, const void *options, int position);

/*
 * ops/engine/transfer_ops.c: the functions of value/value.h that copy between devices, as entries
 * of the operator table. All but src/value call these. Results are references, or NULL with an
 * error that coi_failed or coi_give completes.
 */
co_value *coi_copy_tensor(co_context *ctx, co_value *tensor, co_device *device);
co_value *coi_place_tensor(co_context *ctx, co_value *made, co_device *device);
co_value *coi_bring_tensor_to_host(co_context *ctx, co_value *tensor);
co_code   coi_download(co_context *ctx, const co_value *tensor, void *out);
co_code   coi_upload(co_context *ctx, co_value *tensor, const void *data);
/* A tensor or a composite on another device; what lives on none is itself. */
co_value *coi_copy_value(co_context *ctx, co_value *value, co_device *device);
/* What fn makes, a reference or NULL with an error, is shown as the result of an entry: of data
 * that is not the library's, and of items. */
typedef co_value *(*coi_make_fn)(co_context *ctx, void *arg);
co_value *coi_make_tensor(co_context *ctx, coi_make_fn fn, void *arg);
co_value *coi_stack_values(co_context *ctx, coi_values items, coi_make_fn fn, void *arg);

/* value_constructors.c: co_spec as a part of the call that is being made. */
co_value *coi_spec(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim);

/* convert.c */
/*
 * The tensor that a value is where ctx runs, as a new reference: variables are read, per-replica
 * values give the component of this replica, host values become tensors of `dtype` (NONE: C-VAL-4).
 * DV-USE-1 to DV-USE-3. NULL with an error.
 */
co_value *coi_as_tensor(co_context *ctx, co_value *value, co_dtype dtype);
/* The host is about to read a tensor, or made one of numbers of its own: for whoever records the
 * kernels of ctx (ops/engine/apply.c). */
bool coi_show_host_read(co_context *ctx, const co_value *tensor);
void coi_show_host_made(co_context *ctx, co_value *tensor);
/* Not, with an error, while kernels are recorded whose results it depends on. */
static inline bool
coi_may_read(co_context *ctx, const co_value *tensor)
{
    return (ctx->special & COI_SPECIAL_RECORD) == 0 || coi_show_host_read(ctx, tensor);
}
static inline void
coi_note_host_made(co_context *ctx, co_value *tensor)
{
    if ((ctx->special & COI_SPECIAL_RECORD) != 0 && tensor != NULL)
        coi_show_host_made(ctx, tensor);
}
/*
 * A tensor whose data the host can read: this one, or, where its device has memory of its own, a
 * copy that the block owns. NULL with an error. All code except the kernels of the CPU backend
 * reads data this way.
 */
co_value *coi_copy_to_host(co_context *ctx, co_value *tensor); /* called only by the next two */
static inline co_value *
coi_host_value(co_context *ctx, co_value *tensor)
{
    if (!coi_may_read(ctx, tensor))
        return NULL;
    return coi_is_on_host(tensor) ? tensor : coi_copy_to_host(ctx, tensor);
}
/* Its data. */
static inline const void *
coi_host_data(co_context *ctx, co_value *tensor)
{
    co_value *host = coi_host_value(ctx, tensor);

    return host != NULL ? coi_data_on_host(host) : NULL;
}
/* A tensor of the block on the host, all zeros, for the host to fill; NULL with an error. */
co_value *coi_host_zeros(co_context *ctx, co_dtype dtype, const int64_t *dims, int ndim);
/* A value of the block on the current device. NULL is passed on. */
co_value *coi_place_here(co_context *ctx, co_value *tensor);
/* Where the host computes for the current device; NULL with an error if there is no such device. */
co_device *coi_current_host(co_context *ctx);
/* The default dtype of a host value, or of a list of host values (C-VAL-4); CO_DTYPE_NONE for
 * values that have a dtype. */
co_dtype coi_host_dtype(const co_value *value);
/* The dtype that host values of both kinds become together; `a` where there is none. */
co_dtype coi_wider_dtype(co_dtype a, co_dtype b);
/* Any leaf, without conversion: the component of this replica of a per-replica value, else the
 * value itself. Borrowed. DV-SEL-1. */
co_value *coi_select(co_value *value, int local_replica);

/* kinds_host.c: a host number as an element of dtype; false with an error if it does not fit. */
bool coi_put_host(co_context *ctx, const co_value *value, co_dtype dtype, void *out);
/* kinds_distributed.c: the component of a distributed value that the context sees, borrowed; NULL
 * with DV-USE-1's error. */
co_value *coi_component_here(co_context *ctx, co_value *value);

/* structures.c */
/*
 * Put references to items[order[i]] (NULL: items[i]) in the places of a new structure or
 * per-replica value and give it to the block; NULL with an error, and the structure gone, if one of
 * them is no value
 * ("item 2 of list is NULL").
 */
co_value *coi_fill_items(co_context *ctx, co_value *made, co_value **places, co_value *const *items,
                         size_t n, const size_t *order, const char *what);

/* co_map_structure of a value that was checked, under the name of the call that is being made. */
co_value *coi_map_leaves(co_context *ctx, co_value *structure, co_leaf_fn fn, void *user);

/* current_device.c */
/* A device name as ctx sees it. */
const char *coi_device_text_here(const co_context *ctx, const char *name);
/* The canonical name of the current device. */
const char *coi_current_device_name(co_context *ctx);
/* The current device, or NULL with an error that lists the devices there are (DEV-5). */
co_device *coi_current_device(co_context *ctx);
co_code    coi_resolve_name(co_context *ctx, const char *text, coi_device_name *out);
/* co_device_begin; false if there was no memory for its entry. */
bool coi_begin_device(co_context *ctx, const char *name);
/* Make a device current permanently; a caller that wants to restore the old one saves it. */
void coi_set_device(co_context *ctx, const coi_device_name *id);

/* modes.c */
/* Whether an entry makes its strategy current, and so keeps it alive. */
static inline bool
coi_holds_strategy(const coi_entry *entry)
{
    return entry->kind == COI_ENTRY_SCOPE || entry->kind == COI_ENTRY_SET;
}
/* Push an entry that saves mode and device; NULL (with an error) without memory. The caller then
 * changes ctx->mode. */
bool coi_make_room_to_push(co_context *ctx); /* called by coi_push alone */
static inline coi_entry *
coi_push(co_context *ctx, coi_entry_kind kind, co_strategy *strategy)
{
    coi_entry *entry;

    if (ctx->num_entries == ctx->cap_entries && !coi_make_room_to_push(ctx))
        return NULL;
    entry = &ctx->entries[ctx->num_entries++];
    entry->kind = kind;
    entry->id = ctx->next_entry++;
    entry->strategy = strategy;
    if (coi_holds_strategy(entry))
        coi_ref(strategy);
    entry->saved_mode = ctx->mode;
    entry->saved_device = ctx->device;
    entry->user = NULL;
    entry->undo = NULL;
    /* Names are long and most entries leave the device alone: only those that change it save it. */
    entry->changes_device = false;
    entry->is_statement = false;
    return entry;
}
/* Pop the top entry and restore. */
static inline void
coi_pop(co_context *ctx)
{
    const coi_entry *entry = &ctx->entries[--ctx->num_entries];

    if (entry->undo != NULL)
        entry->undo(ctx, entry->user);
    ctx->mode = entry->saved_mode;
    if (entry->changes_device) {
        ctx->device = entry->saved_device;
        ctx->device_id = entry->saved_name;
    }
    if (coi_holds_strategy(entry))
        coi_unref(&ctx->heap, entry->strategy);
}
/* Take the entry at `at`, counted from 1, out from under those above it: the device goes back, what
 * they changed stays. */
void coi_take_out(co_context *ctx, size_t at);
/* The error of leaving something that is not innermost (SCOPE-9). */
co_code coi_fail_not_innermost(co_context *ctx);
/* Leave what was entered since there were `entries`. */
void coi_pop_to(co_context *ctx, size_t entries);
/* Make a device current until the top entry is popped. */
void coi_enter_device(co_context *ctx, const coi_device_name *id);

/* statements.c */
/* The token of a macro for the entry that was just pushed; 0 if none was. */
static inline co_statement
coi_entry_statement(co_context *ctx, uint64_t id)
{
    if (id != 0) {
        coi_entry *entry = &ctx->entries[ctx->num_entries - 1];

        entry->is_statement = true;
        entry->num_blocks = ctx->num_blocks;
        coi_copy_site(&entry->site, &ctx->site);
    }
    return (co_statement){ ctx, id };
}
/* End the block at `at`, counted from 1, with what statements have left open inside it. */
void coi_end_block(co_context *ctx, size_t at);
/* The innermost block, or the entry at `at`, is closed by what is around it: a line in the log. */
void coi_say_left_block(co_context *ctx);
void coi_say_left_entry(co_context *ctx, size_t at);

#endif
