/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of values and what can be done with them without a context: cells, references,
 * tensors, structures. Functions here fill the error record they are given; a NULL result means it
 * was filled.
 *
 * A cell is 128 bytes, two cache lines, and never moves. Small tensors keep their data in the cell:
 *
 *     | class | refs magic | kind dtype ndim flags tape | device buffer data count | dims, data |
 *
 * dims takes ndim of eight words, and the words behind it hold the elements when they fit. So a
 * scalar has room for 64 bytes, a vector for 56, and making one touches no allocator.
 */
#ifndef COI_VALUE_VALUE_H
#define COI_VALUE_VALUE_H

#include <cohort/value.h>

#include "device/device.h"

struct coi_heap;

#define COI_OBJECT_TEXT 96
/* What every handle that a block can own begins with. */
typedef struct coi_class {
    const char *name; /* "value", "strategy", ... for messages */
    void (*destroy)(struct coi_heap *heap, void *object);
    /* What it is for messages that know no more of it than that it is an object; NULL: its name.
     * Returns out. */
    const char *(*describe)(const void *object, char out[COI_OBJECT_TEXT]);
} coi_class;

/*
 * What a live object has as its magic: a number of its runtime, which is odd, or, for one that was
 * made in a forked child, 1. So one comparison tells objects that died, those of other runtimes,
 * and whether this is the process that opened the runtime: in a child the number is 0.
 */
#define COI_MAGIC_DEAD   0xDEADC040u
#define COI_MAGIC_FORKED 1u

typedef struct coi_object {
    const coi_class *cls;
    atomic_uint      refs;
    uint32_t         magic;
} coi_object;

extern const coi_class coi_value_class;

/* Policies of a variable; implemented in variable/ and strategy/. */
typedef struct coi_variable coi_variable;

enum {
    COI_FLAG_INLINE = 1, /* tensor data is in the cell */
    COI_FLAG_COPY = 2, /* stands on the tape for a variable or a tensor elsewhere (coi_tape_mark) */
    COI_FLAG_RECORDED = 4, /* made by a kernel while kernels were recorded (kernel_recording.h) */
    COI_FLAG_META = 8      /* a meta tensor */
};

#define COI_INLINE_ITEMS   8
#define COI_MAX_COMPONENTS 8 /* of a composite value */

/* Flags of other leaves than tensors. */
enum {
    COI_FLAG_ARGUMENT = 32, /* variables: an argument handle (variable_handle.h) */
    COI_FLAG_BORROWED = 64  /* functions: u.object is no reference (function/function.h) */
};

typedef struct coi_items { /* lists, tuples, named tuples, maps */
    size_t     n;
    co_value **items;
    const char      *
        *keys; /* maps, named tuples: one block: its size, n pointers at keys[1], the texts */
    char     *type_name; /* named tuples; points into that block */
    co_value *room[COI_INLINE_ITEMS];
} coi_items;

typedef struct coi_per_replica { /* per-replica and mirrored */
    size_t     n;
    co_value **items;
    int64_t    step_examples; /* of the whole step on all replicas; -1: not known */
    co_value  *room[COI_INLINE_ITEMS];
} coi_per_replica;

/* step_examples in a captured function: those of the value that stands there when it is called. */
#define COI_EXAMPLES_LATER (-2)

struct co_value {
    coi_object object;
    uint8_t    kind; /* co_kind */
    uint8_t    dtype;
    int8_t     ndim;    /* -1: unknown rank (specs) */
    uint8_t    flags;   /* leaves: COI_FLAG_...; structures and per-replica values: depth of
                           nesting */
    uint32_t tape_node; /* written once, by the context that made the value, before others see it */
    union {
        uint64_t tape_epoch;              /* tensors: the same */
        struct {                          /* structures and per-replica values */
            uint32_t weight;              /* values inside, each counted at every occurrence */
            bool     holds_tensors_alone; /* structures: every leaf is a tensor */
        };
    };
    union {
        struct {
            co_device  *device;
            coi_buffer *buffer; /* NULL: data is in the cell */
            void       *data;
            int64_t     num_elements;
            int64_t     dims[CO_MAX_DIMS]; /* ndim of them; see above for the rest */
        } tensor;                          /* and spec: dims alone */
        struct {
            uint64_t program; /* whose value it is: its serial number */
            uint64_t slot;    /* which of its values */
            void    *unused;
            int64_t  num_elements; /* as of specs: -1 */
            int64_t  dims[CO_MAX_DIMS];
        } symbol; /* symbolic tensors: dims where specs have them */
        int64_t i;
        double  f;
        bool    b;
        struct {
            char  *data; /* zero-terminated */
            size_t nbytes;
        } string;
        coi_items       items;
        coi_per_replica per_replica;
        struct {
            coi_variable *variable;
            co_value     *argument; /* of an argument handle (variable_handle.h): the variable */
        };
        void     *object;                         /* datasets and their specs: a reference */
        co_value *components[COI_MAX_COMPONENTS]; /* composite values: as their row says */
        struct {
            co_value *values, *indices, *dense_shape;
        } slices; /* the components of indexed slices */
    } u;
};

_Static_assert(offsetof(struct co_value, u.symbol.dims) == offsetof(struct co_value, u.tensor.dims),
               "rules read the dimensions of tensors, specs and symbolic tensors alike");

/* An element of a string tensor. The bytes follow in the same buffer. */
typedef struct coi_text {
    const char *data; /* zero-terminated */
    size_t      nbytes;
} coi_text;

/*
 * Where cells and small blocks come from (heap.c). Free blocks of one size are kept in batches:
 * each context has two of every size, without a lock, over a store that the contexts of a runtime
 * share.
 */
#define COI_SMALL_CLASSES 11 /* 64, 128, ... 65536 bytes */
#define COI_CELL_CLASS                                                                             \
    COI_SMALL_CLASSES /* cells are a size of their own: their memory is nothing else, ever */
#define COI_NUM_SIZES (COI_SMALL_CLASSES + 1)

/* Dead cells that wait before they are used again: see heap.c. A power of two. */
#ifndef COI_DEAD_CELLS
#define COI_DEAD_CELLS 64
#endif

/* A block that is free. What it was keeps its bytes 8 to 16, where an object has its magic. */
typedef struct coi_free_block {
    struct coi_free_block *next; /* in its batch */
    uint64_t               remains;
    struct coi_free_block *next_batch; /* the first of a batch in the store alone has these two */
    size_t                 count;
} coi_free_block;

typedef struct coi_batch {
    coi_free_block *first;
    size_t          count;
} coi_batch;

/* Which objects co_keep has references to (keeps.c). */
typedef struct coi_kept {
    void        *object; /* NULL: a free place of the table */
    size_t       count;
    uint64_t     order; /* of the first keep among those of the runtime */
    co_site_info site;  /* of the first keep; no file: not known */
} coi_kept;

typedef struct coi_keeps {
    coi_lock  lock;
    coi_kept *entries; /* open addressing */
    size_t    num_objects, capacity;
    uint64_t  num_keeps; /* so far */
} coi_keeps;

typedef struct coi_cell_store {
    coi_memory      *memory;
    coi_lock         lock;
    coi_free_block  *batches[COI_NUM_SIZES];
    struct coi_slab *slabs;
    struct coi_heap *heaps;     /* of the open contexts */
    coi_lock         weak_lock; /* between components and their containers */
    uint32_t        *magic;     /* the magic of live objects; 0 in a forked child */
    uint32_t         own_magic; /* where the system offers no word that is wiped */
    int64_t   past_live; /* what the closed ones made and did not free, or freed for others */
    coi_keeps keeps;
} coi_cell_store;

typedef struct coi_heap {
    const uint32_t *magic; /* of the store */
    coi_cell_store *store;
    coi_batch       loaded[COI_NUM_SIZES]; /* works on these; cells first */
    coi_batch       spare[COI_NUM_SIZES];  /* empty or full */
    atomic_llong live; /* values made here minus values that died here; other threads may read it */
    struct coi_heap *next, *previous;
    void  *dead_cells[COI_DEAD_CELLS]; /* a ring of cells that died here; NULL: none yet */
    size_t next_dead; /* where the next goes, modulo the length: how many died here */
    /* Other objects; in debug builds cells too. */
    coi_free_block *oldest_dead, *youngest_dead;
    size_t          num_dead;
} coi_heap;

void coi_cell_store_init(coi_cell_store *store, coi_memory *memory);
void coi_cell_store_destroy(coi_cell_store *store);
/* Values alive in all contexts. */
int64_t coi_cell_store_live(coi_cell_store *store);
void    coi_heap_init(coi_heap *heap, coi_cell_store *store);
void    coi_heap_destroy(coi_heap *heap);
/* Blocks for arrays of any length; up to 64 KiB they are cached. NULL without memory. */
void *coi_small_alloc(coi_heap *heap, size_t nbytes);
void  coi_small_free(coi_heap *heap, void *block, size_t nbytes);
/*
 * Memory for an object with one reference, zero behind its head; NULL without memory. Given back by
 * coi_object_free, from its destroy function. What died waits for a while before its memory is used
 * again, so that stale handles are found.
 */
void     *coi_object_new(coi_heap *heap, const coi_class *cls, size_t nbytes);
void      coi_object_free(coi_heap *heap, void *object, size_t nbytes);
co_value *coi_cell_new(
    coi_heap *heap); /* when the loaded batch has none; called by value_new alone */
void coi_cell_free(coi_heap *heap, co_value *cell);

static inline void
coi_count_live(coi_heap *heap, int by)
{
    long long live = atomic_load_explicit(&heap->live, memory_order_relaxed);

    atomic_store_explicit(&heap->live, live + by, memory_order_relaxed);
}
/* Whether a value was ever made or freed here. */
static inline bool
coi_heap_was_used(const coi_heap *heap)
{
    return atomic_load_explicit(&heap->live, memory_order_relaxed) != 0 || heap->next_dead != 0;
}
static inline void
coi_object_init(const coi_heap *heap, coi_object *object, const coi_class *cls)
{
    object->cls = cls;
    atomic_init(&object->refs, 1);
    object->magic = *heap->magic | COI_MAGIC_FORKED;
}
/* A value with one reference; its union is not set. NULL without memory. */
static inline co_value *
coi_value_new(coi_heap *heap, co_kind kind)
{
    coi_batch *cells = &heap->loaded[COI_CELL_CLASS];
    co_value  *value = (co_value *)(void *)cells->first;

    if (value != NULL) {
        cells->first = cells->first->next;
        --cells->count;
    } else if ((value = coi_cell_new(heap)) == NULL) {
        return NULL;
    }
    coi_count_live(heap, 1);
    coi_object_init(heap, &value->object, &coi_value_class);
    value->kind = (uint8_t)kind;
    value->dtype = CO_DTYPE_NONE;
    value->ndim = 0;
    value->flags = 0;
    value->tape_node = 0;
    value->tape_epoch = 0;
    return value;
}

static inline void
coi_ref(void *object)
{
    atomic_fetch_add_explicit(&((coi_object *)object)->refs, 1, memory_order_relaxed);
}
/* NULL is allowed. */
static inline void
coi_unref(coi_heap *heap, void *handle)
{
    coi_object *object = (coi_object *)handle;

    if (object == NULL)
        return;
    /* A sole owner needs no atomic operation: no other thread can take a reference any more. */
    if (atomic_load_explicit(&object->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) == 1)
        object->cls->destroy(heap, object);
}
/*
 * A reference of which an object has one at a time: false where somebody has it. Whoever works on
 * an object alone and keeps it alive meanwhile pays for one locked operation instead of two. It
 * counts for so much that references of others do not reach it, nor threads that are refused.
 */
#define COI_EXCLUSIVE (1u << 20)
static inline bool
coi_ref_exclusive(void *handle)
{
    atomic_uint *refs = &((coi_object *)handle)->refs;

    if (atomic_fetch_add_explicit(refs, COI_EXCLUSIVE, memory_order_acquire) < COI_EXCLUSIVE)
        return true;
    atomic_fetch_sub_explicit(refs, COI_EXCLUSIVE, memory_order_relaxed);
    return false;
}
static inline void
coi_unref_exclusive(coi_heap *heap, void *handle)
{
    coi_object *object = (coi_object *)handle;

    if (atomic_fetch_sub_explicit(&object->refs, COI_EXCLUSIVE, memory_order_acq_rel) ==
        COI_EXCLUSIVE)
        object->cls->destroy(heap, object);
}
static inline bool
coi_has_exclusive_ref(const void *handle)
{
    return atomic_load_explicit(&((const coi_object *)handle)->refs, memory_order_relaxed) >=
           COI_EXCLUSIVE;
}
static inline bool
coi_sole_owner(const void *handle)
{
    return atomic_load_explicit(&((const coi_object *)handle)->refs, memory_order_acquire) == 1;
}

/* Whether a handle is an object of the class, alive as far as can be seen, of this runtime and
 * process. */
static inline bool
coi_is_live_object(const coi_heap *heap, const void *handle, const coi_class *cls)
{
    const coi_object *object = (const coi_object *)handle;

    return object->magic == *heap->magic && object->cls == cls;
}
static inline bool
coi_is_live(const coi_heap *heap, const co_value *value)
{
    return coi_is_live_object(heap, value, &coi_value_class);
}
/* Whether this is a child of the process that opened the runtime: it has the memory, and none of
 * the threads. */
static inline bool
coi_is_forked(const coi_heap *heap)
{
    return *heap->magic == 0;
}

/* keeps.c: references of the user. Thread-safe. */
/* Take a reference for co_keep, which was called at `site`; false without memory. */
bool coi_keep(coi_heap *heap, void *object, const co_site_info *site);
/* Give one back; false, and nothing changes, if co_keep has none. */
bool coi_release(coi_heap *heap, void *object);
/* How many objects are kept, and the one that is kept for longest. */
size_t coi_keeps_count(coi_heap *heap, coi_kept *oldest);
/* Give all back, youngest first: nobody else will. */
void coi_keeps_release(coi_heap *heap);
void coi_keeps_destroy(coi_keeps *keeps, coi_memory *memory);

/* kind.c: "a tensor", "indexed slices", for sentences. */
const char *coi_a_kind(int kind);

/* dtype.c */
typedef struct coi_dtype_info {
    const char *name;
    uint8_t     size;
    bool        floating, integer, is_signed;
} coi_dtype_info;
extern const coi_dtype_info coi_dtypes[CO_NUM_DTYPES];
/* The smallest and the largest int64 that an integer dtype, or bool, holds. */
void coi_integer_limits(co_dtype dtype, int64_t *low, int64_t *high);
#define COI_DTYPE_BIT(dtype) (1u << (dtype))
float    coi_half_to_float(uint16_t half);
uint16_t coi_float_to_half(float value);
float    coi_bfloat_to_float(uint16_t bits);
uint16_t coi_float_to_bfloat(float value);
/* Convert n elements; neither dtype is string. Floats to integers truncate and saturate as the C
 * cast of TensorFlow does. */
void coi_convert(co_dtype from, const void *src, co_dtype to, void *dst, int64_t n);
/* The first of n elements that `to` cannot hold, n if it holds all: integers that are too large or
 * too small, and NaN. Floats and bools hold everything. */
int64_t coi_first_misfit(co_dtype from, const void *src, co_dtype to, int64_t n);

/* shape.c */
typedef struct coi_shape {
    int     ndim;
    int64_t dims[CO_MAX_DIMS];
} coi_shape;
/* Elements of a shape; CO_INVALID_ARGUMENT if negative, more than CO_MAX_DIMS, or elements *
 * element_size overflows. */
co_code coi_shape_check(const int64_t *dims, size_t ndim, size_t element_size,
                        int64_t *num_elements, co_error_info *err);
/* "[2,3]"; returns out. */
#define COI_SHAPE_TEXT 200
const char *coi_shape_text(const int64_t *dims, int ndim, char out[COI_SHAPE_TEXT]);
static inline bool
coi_same_shape(const co_value *a, const co_value *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; ++i)
        if (a->u.tensor.dims[i] != b->u.tensor.dims[i])
            return false;
    return true;
}

/* tensor.c */
/* Uninitialised; strings get empty texts. dims were checked (coi_shape_check). */
co_value *coi_tensor_new(coi_heap *heap, co_device *device, co_dtype dtype, const int64_t *dims,
                         int ndim, int64_t num_elements, co_error_info *err);
/* A tensor whose data, at `data`, is in a buffer. Takes over the reference to it, also when it
 * fails. */
co_value *coi_tensor_over(coi_heap *heap, co_device *device, co_dtype dtype, const int64_t *dims,
                          int ndim, int64_t num_elements, coi_buffer *buffer, void *data,
                          co_error_info *err);
/* A new header over the data of `base`, beginning at element `offset`, with another shape. */
co_value *coi_tensor_view(coi_heap *heap, co_value *base, const int64_t *dims, int ndim,
                          int64_t num_elements, int64_t offset, co_error_info *err);
/* The tensor has one owner and nothing shares its data: it may be written in place. */
bool coi_is_private(const co_value *tensor);
/*
 * A meta tensor: a tensor without data, of which nothing but its type can be read. It stands for
 * the results of kernels that are recorded and not run (ops/engine/kernel_recording.h).
 */
co_value *coi_meta_tensor(coi_heap *heap, co_device *device, co_dtype dtype, const int64_t *dims,
                          int ndim, int64_t num_elements, co_error_info *err);
static inline bool
coi_is_meta(const co_value *tensor)
{
    return (tensor->flags & COI_FLAG_META) != 0;
}
/*
 * For all code that reads or writes the data of a tensor, except the kernels of the CPU backend.
 * The data of a tensor is in the memory of its device, strings always in that of the host.
 */
static inline bool
coi_is_on_host(const co_value *tensor)
{
    return tensor->u.tensor.device->host_memory || tensor->dtype == CO_STRING;
}
/* The data of a tensor that is known to be on the host. Debug builds check it. */
static inline void *
coi_data_on_host(const co_value *tensor)
{
#ifdef COI_DEBUG
    if (!coi_is_on_host(tensor))
        return NULL;
#endif
    return tensor->u.tensor.data;
}
/* A reference to a tensor that is on the host: this one, or a copy of it there. */
co_value *coi_tensor_on_host(coi_heap *heap, co_value *tensor, co_error_info *err);
/* All of its bytes, from or to the host. */
co_code coi_tensor_download(const co_value *tensor, void *dst, co_error_info *err);
co_code coi_tensor_upload(co_value *tensor, const void *src, co_error_info *err);
co_code coi_tensor_clear(co_value *tensor, co_error_info *err); /* zeros */
/* A tensor that was made on the host, NULL if that failed, where it belongs: takes over the
 * reference. */
co_value *coi_tensor_place(coi_heap *heap, co_value *made, co_device *device, co_error_info *err);
/* The same data on another device: shared where both have host memory, else copied. */
co_value *coi_tensor_to(coi_heap *heap, co_value *tensor, co_device *device, co_error_info *err);
co_value *coi_tensor_strings(coi_heap *heap, co_device *device, const int64_t *dims, int ndim,
                             int64_t num_elements, const coi_text *texts, co_error_info *err);
static inline size_t
coi_tensor_nbytes(const co_value *tensor)
{
    size_t size = tensor->dtype == CO_STRING ? sizeof(coi_text) : coi_dtypes[tensor->dtype].size;

    return (size_t)tensor->u.tensor.num_elements * size;
}

/* structure.c */
static inline bool
coi_is_structure(const co_value *value)
{
    return value->kind >= CO_KIND_LIST && value->kind <= CO_KIND_DICT;
}
/* A tensor, or a structure of tensors: nothing in it has parts, changes, or is of the host. False
 * of a structure that is not sealed yet. */
static inline bool
coi_holds_tensors_alone(const co_value *value)
{
    return value->kind == CO_KIND_TENSOR || (coi_is_structure(value) && value->holds_tensors_alone);
}
/* A type in the place of a tensor: a spec, or a symbolic tensor. */
static inline bool
coi_is_type(const co_value *value)
{
    return value->kind == CO_KIND_SPEC || value->kind == CO_KIND_SYMBOLIC;
}
/* The spec of elements that are datasets: a scalar without a dtype, which holds an empty one. (Of
 * any rank: nothing is known.) */
static inline bool
coi_is_dataset_spec(const co_value *value)
{
    return value->kind == CO_KIND_SPEC && value->dtype == CO_DTYPE_NONE && value->ndim == 0;
}
/* A structure of kind with n NULL items to be filled with references; keys are copied, in the order
 * of `order` (NULL: as they are). */
co_value *coi_structure_new(coi_heap *heap, co_kind kind, size_t n, const char *const *keys,
                            const char *type_name, const size_t *order, co_error_info *err);
/* The same container as `like` (kind, keys, type name) with n NULL items. */
co_value *coi_structure_like(coi_heap *heap, const co_value *like, co_error_info *err);
/*
 * To be called when the items of a structure or per-replica value are set. Limits the depth of
 * nesting and the time of an iteration, since one list may be in another many times
 * (CO_VALUE_ERROR).
 */
co_code coi_structure_seal(co_value *structure, co_error_info *err);
/* The positions of keys in sorted order; CO_INVALID_ARGUMENT for a key that is NULL, CO_VALUE_ERROR
 * for one that comes twice. */
co_code coi_sort_keys(const char *const *keys, size_t n, size_t *order, co_error_info *err);
/* The position of a key of a map or named tuple; SIZE_MAX if there is none. */
size_t coi_find_key(const co_value *structure, const char *key);
size_t coi_count_leaves(const co_value *structure);
/* Leaves in order, not references; `out` has room for coi_count_leaves. */
void coi_collect_leaves(co_value *structure, co_value **out);
/* Extend a path by item i: "[2]" or "['key']". One that is full ends with "...". */
void coi_step_into(char *path, size_t capacity, const co_value *structure, size_t i);
/* The structure of like with leaves (references are taken) in place. */
co_value *coi_pack(coi_heap *heap, const co_value *like, co_value *const *leaves,
                   co_error_info *err);
/* `code` naming the path where they differ, or CO_OK. */
co_code coi_same_structure(const co_value *a, const co_value *b, co_code code, co_error_info *err);
/* Give back items, and their room where it is not in the cell. */
void coi_items_free(coi_heap *heap, co_value **items, size_t n, co_value **room);
/* A per-replica value of n NULL items. */
co_value *coi_per_replica_new(coi_heap *heap, co_kind kind, size_t n, co_error_info *err);

/* indexed_slices.c */
/* Element i of integer indices. */
int64_t coi_index_at(const co_value *indices, int64_t i);
/* Indexed slices as a tensor: rows with one index are added, in order. */
co_value *coi_slices_dense(coi_heap *heap, const co_value *slices, co_error_info *err);
/* acc += x for n elements of a dtype of numbers; integers wrap. */
void coi_add_elements(co_dtype dtype, void *acc, const void *x, int64_t n);

/* format.c: see co_format. */
size_t coi_format(coi_heap *heap, const co_value *value, char *out, size_t capacity);
/* One element of a tensor in host memory. */
void coi_format_element(const co_value *tensor, int64_t i, char *out, size_t capacity);

#endif
