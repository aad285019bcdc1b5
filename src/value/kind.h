/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What distinguishes one kind of value from another: a row of functions and properties for each.
 * Code that treats kinds differently calls a slot of the row or reads a property; it does not list
 * kinds. A row is defined in the folder that owns the kind, since some slots need what that folder
 * has: host values and structures convert where a context is, indexed slices where operators are.
 * docs/decisions/kinds-by-table.md.
 */
#ifndef COI_VALUE_KIND_H
#define COI_VALUE_KIND_H

#include "value/value.h"

/* Values in order, borrowed. NULL: there are none. */
typedef struct coi_values {
    co_value *const *items;
    size_t           n;
} coi_values;

/* The text that co_format makes (format.c). */
typedef struct coi_printer {
    coi_heap *heap; /* of the caller */
    char     *out;
    size_t    capacity;
    size_t    length; /* needed so far */
} coi_printer;

/* --- composite values: one leaf that is made of several tensors --- */

/* What becomes of a component where the values of several replicas become one. */
typedef enum coi_combining {
    COI_CONCAT,        /* concatenated along dimension 0, in the order of replicas */
    COI_CONCAT_SCALED, /* the same; a mean divides it by the number of replicas */
    COI_TAKE_FIRST     /* the same on all replicas: that of the first */
} coi_combining;

typedef struct coi_component {
    const char   *name; /* "values" */
    coi_combining combining;
    bool          optional; /* may be NULL */
} coi_component;

/* The components of a kind, in their order, and what the code that all composite kinds share must
 * know besides. */
typedef struct coi_composite {
    const char   *type_name; /* "IndexedSlices", for co_format */
    size_t        n;
    coi_component components[COI_MAX_COMPONENTS];
    /* Replicas combine these values by SUM and MEAN alone. This is why, for the message. */
    const char *sum_alone;
    /* The conversion by operators, so that gradients pass: a value of the block. NULL: gradients
     * end at the conversion by as_tensor. */
    co_value *(*by_operators)(co_context *ctx, co_value *value);
    /* Whether the gradient that is given for target i, of the same kind, is one of that target, so
     * that its first component is that of the target's. NULL: always. */
    bool (*check_gradient)(co_context *ctx, size_t i, const co_value *given,
                           const co_value *target);
} coi_composite;

typedef struct coi_kind_ops {
    const char *name;   /* "tensor" */
    const char *a_name; /* "a tensor", for sentences */

    bool     is_host;         /* a number or string of the host: takes its dtype from others */
    bool     is_sequence;     /* a list or tuple: an ordered structure without keys */
    bool     has_sorted_keys; /* a structure whose items are in the order of their keys */
    bool     is_distributed;  /* a value for each local replica: per-replica and mirrored */
    bool     is_mirrored;     /* distributed, and all are equal */
    bool     is_variable;     /* its contents change; u.variable */
    co_dtype stored;          /* numbers of the host: how `u` has them; NONE: it is none */
    /* Not NULL: a composite value. Its slots are those of composite_value.c unless it has better
     * ones. */
    const coi_composite *composite;

    /* Give back what the value holds besides its cell. NULL: nothing. */
    void (*destroy)(coi_heap *heap, co_value *value);
    /* Called first, when the last reference goes; false: somebody took another one meanwhile. NULL:
     * nobody can. */
    bool (*may_die)(coi_heap *heap, co_value *value);
    void (*print)(coi_printer *out, const co_value *value);
    /* The dtype and shape, known without a conversion. NULL: convert, then ask. */
    void (*describe)(const co_value *value, coi_shape *shape, co_dtype *dtype);
    /* Its type: a reference, or NULL with an error. NULL: the spec of what describe or host_dtype
     * says. Not for structures, which have those of their leaves. */
    co_value *(*type)(coi_heap *heap, co_value *value, co_error_info *err);
    /* The tensor that it is where ctx runs: a reference, or NULL with an error. NULL: it is none.
     */
    co_value *(*as_tensor)(co_context *ctx, co_value *value, co_dtype dtype);
    /* The dtype that a host value, or a list of nothing else, has alone (C-VAL-4). NULL: none. */
    co_dtype (*host_dtype)(const co_value *value);
    /* Whether a host value converts to a dtype at all. NULL: it is none. */
    bool (*becomes)(co_dtype dtype);
    /* The name of the device that ctx sees it on; "" with an error. NULL: it lives on none. */
    const char *(*device)(co_context *ctx, co_value *value);
    /* Its items as co_num_items and co_at have them. NULL: it has none. */
    coi_values (*items)(const co_value *value);
    /* Its part for each local replica; *equal: they are known to be equal. NULL, or no items: it is
     * one for all replicas. */
    coi_values (*replicas)(const co_value *value, bool *equal);
    /* Whether two values of this kind, of two replicas, are one (DV-GROUP). NULL: only where they
     * are one handle. */
    bool (*same)(const co_value *a, const co_value *b);
    /* The value whose parts these values of replicas are (DV-GROUP-5): a reference; NULL if they
     * are not. */
    co_value *(*whole)(coi_heap *heap, co_value *const *parts, size_t n);
    /* The strings that it holds, *n of them; one that is no element of a tensor is put in `room`.
     * NULL, or a NULL result: it holds none. */
    const coi_text *(*texts)(const co_value *value, coi_text *room, int64_t *n);
    /* Examples in it, where its first dimension counts them; -1: it has no rows. NULL: -1. */
    int64_t (*rows)(const co_value *value);

    /* Datasets and iterators, which u.object holds. The spec of one element, borrowed. NULL: it is
     * neither. */
    co_value *(*element_spec)(const co_value *value);
    /* Begin to read it: an iterator of ctx's block, or NULL with an error. */
    co_value *(*iterate)(co_context *ctx, co_value *value);
    /* The next element, of ctx's block; NULL at the end, and with an error. NULL: iterate first. */
    co_value *(*next)(co_context *ctx, co_value *value);
    /* What stands for it in the function that made it while it was captured, borrowed. NULL, or a
     * NULL result: it is itself. */
    co_value *(*symbol)(const co_value *value);
    /* What a function that is being captured gets for it as an argument, apart from the same one
     * that the function knows by other ways. `symbol` stands for it in the program. A value of
     * ctx's block, or NULL with an error. */
    co_value *(*as_argument)(co_context *ctx, co_value *value, co_value *symbol);
    /* Whether the dataset `other` is one of those that it was made of. NULL: it is made of none. */
    bool (*is_made_of)(const co_value *value, const co_value *other);
    /* Whether datasets that two captures of one function use are the same one, or were made by the
     * captures in the same way, as far as can be seen. Captures have the serial numbers of their
     * programs: what is older was made outside. NULL: its values are the same by identity. */
    bool (*is_made_alike)(const co_value *a, uint64_t capture, const co_value *b,
                          uint64_t other_capture);
} coi_kind_ops;

/* kind.c. The rows by kind; kinds from COI_PRIVATE_KINDS on belong to tests. */
#define COI_PRIVATE_KINDS 24
#define COI_NUM_KINDS     32
extern const coi_kind_ops *coi_kinds[COI_NUM_KINDS];
/* Enter the row of a private kind, while no context is open. */
void coi_kind_add(int kind, const coi_kind_ops *ops);

static inline const coi_kind_ops *
coi_kind_of(const co_value *value)
{
    return coi_kinds[value->kind];
}
static inline bool
coi_is_host(const co_value *value)
{
    return coi_kind_of(value)->is_host;
}
static inline bool
coi_is_sequence(const co_value *value)
{
    return coi_kind_of(value)->is_sequence;
}
static inline bool
coi_is_distributed(const co_value *value)
{
    return coi_kind_of(value)->is_distributed;
}
/* One that has another part for each replica. */
static inline bool
coi_is_per_replica(const co_value *value)
{
    return coi_is_distributed(value) && !coi_kind_of(value)->is_mirrored;
}
static inline bool
coi_is_composite(const co_value *value)
{
    return coi_kind_of(value)->composite != NULL;
}
static inline bool
coi_is_variable(const co_value *value)
{
    return coi_kind_of(value)->is_variable;
}
/* Its items, or none. */
coi_values coi_items_of(const co_value *value);
/* Its part for each local replica, or none; equal may be NULL. */
coi_values coi_replicas_of(const co_value *value, bool *equal);
/* The part of a distributed value for local replica i; every other value is itself. */
static inline const co_value *
coi_part_of(const co_value *value, size_t i)
{
    return coi_is_distributed(value) ? value->u.per_replica.items[i] : value;
}
/* The strings of a value, as its slot gives them. */
const coi_text *coi_texts_of(const co_value *value, coi_text *room, int64_t *n);
/* Rows of a leaf; -1: it has none. */
int64_t coi_rows_of(const co_value *value);
/* The type of a leaf: a reference, or NULL with an error. */
co_value *coi_type_of(coi_heap *heap, co_value *leaf, co_error_info *err);

/* composite_value.c. Components that a value does not have are NULL. */
/* A value of a composite kind; references to the components are taken. */
co_value *coi_composite_new(coi_heap *heap, int kind, co_value *const *components,
                            co_error_info *err);
/* The same kind with other components. */
co_value *coi_composite_like(coi_heap *heap, const co_value *like, co_value *const *components,
                             co_error_info *err);
/* Whether the components are tensors, and not those of a type. */
bool coi_composite_is_whole(const co_value *value);
/* The slots that rows of composite kinds have. */
void      coi_composite_destroy(coi_heap *heap, co_value *value);
void      coi_composite_print(coi_printer *out, const co_value *value);
co_value *coi_composite_type(coi_heap *heap, co_value *value, co_error_info *err);
/* Whether a tensor, or a composite of tensors, is on the device; every other value is on any. */
bool coi_is_on(const co_value *value, const co_device *device);
/* The spec of a dtype and shape; ndim -1: of unknown rank. (kinds_leaf.c) */
co_value *coi_tensor_spec(coi_heap *heap, co_dtype dtype, const int64_t *dims, int ndim,
                          co_error_info *err);

/* format.c: what slots print with. */
void coi_print(coi_printer *out, const char *format, ...) CO_PRINTF(2, 3);
void coi_print_value(coi_printer *out, const co_value *value);
/* Quoted, and cut when long. */
void coi_print_text(coi_printer *out, const char *text, size_t nbytes);
/* The shortest text of six to `most` digits that reads back as the same number. */
void coi_print_real(coi_printer *out, double value, int most);
void coi_print_tensor(coi_printer *out, const co_value *tensor);
void coi_print_variable(coi_printer *out, const co_value *variable);
void coi_print_spec(coi_printer *out, const co_value *spec);
/* DV-FMT-1: the name of the kind, then one line for each component. */
void coi_print_components(coi_printer *out, const char *kind, coi_values components);

#endif
