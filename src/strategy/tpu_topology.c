/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TPU topologies (TOPO-*): a mesh, the coordinates of the devices of every task, and their
 * serialized form. What replicas make of them, device assignments, is not here.
 */
#include <cohort/tpu.h>

#include "base/wire.h"
#include "context/context.h"

#include <stdio.h>
#include <string.h>

#define MAX_RANK   4
#define MAX_PLACES (INT64_C(1) << 24)

struct co_topology {
    coi_object object;
    int        rank;
    int64_t    mesh[MAX_RANK];
    int64_t    num_tasks, num_devices; /* of each task */
    co_value  *coordinates;            /* int32 [tasks, devices, rank]: a reference */
};

static void
destroy_topology(coi_heap *heap, void *object)
{
    co_topology *topology = object;

    coi_unref(heap, topology->coordinates);
    coi_object_free(heap, topology, sizeof(*topology));
}

static const coi_class topology_class = { "topology", destroy_topology, NULL };

static bool
check_topology(co_context *ctx, const co_topology *topology)
{
    return coi_check_object(ctx, topology, &topology_class, 2, "topology");
}

/* A tensor that `fill` writes. */
typedef struct filling {
    co_dtype       dtype;
    const int64_t *dims;
    int            ndim;
    void (*fill)(void *data, const void *from);
    const void *from;
} filling;

static co_value *
make_filled(co_context *ctx, void *arg)
{
    const filling *f = arg;
    co_device     *device = coi_current_host(ctx); /* where all of them are read */
    int64_t        count = 1;
    co_value      *made;

    for (int i = 0; i < f->ndim; ++i)
        count *= f->dims[i];
    made = device != NULL
               ? coi_tensor_new(&ctx->heap, device, f->dtype, f->dims, f->ndim, count, coi_err(ctx))
               : NULL;
    if (made != NULL && count > 0)
        f->fill(coi_data_on_host(made), f->from);
    return made;
}

/* A value of the block; NULL with an error. */
static co_value *
new_tensor(co_context *ctx, filling f)
{
    return coi_give(ctx, coi_make_tensor(ctx, make_filled, &f));
}

/* --- making --- */

/* TOPO-1. */
static bool
check_mesh(co_context *ctx, const int64_t *mesh, int rank)
{
    int64_t places = 1;

    if (mesh == NULL || rank < 3 || rank > MAX_RANK) {
        coi_fail(ctx, CO_VALUE_ERROR, "mesh_shape of %s has %d dimension%s; it must have 3 or 4",
                 ctx->call, mesh != NULL ? rank : 0, COI_S(mesh != NULL ? rank : 0));
        return false;
    }
    for (int i = 0; i < rank; ++i) {
        if (mesh[i] < 1 || mesh[i] > MAX_PLACES / places) {
            coi_fail(ctx, CO_VALUE_ERROR,
                     "dimension %d of mesh_shape of %s is %lld; dimensions are at least 1, and "
                     "the mesh has at most %lld places",
                     i, ctx->call, (long long)mesh[i], (long long)MAX_PLACES);
            return false;
        }
        places *= mesh[i];
    }
    return true;
}

static bool
is_inside(const int64_t *mesh, int rank, const int32_t *at)
{
    for (int i = 0; i < rank; ++i)
        if (at[i] < 0 || at[i] >= mesh[i])
            return false;
    return true;
}

/* TOPO-2; a mesh that was checked. */
static bool
check_coordinates(co_context *ctx, const int64_t *mesh, int rank, const co_value *coordinates)
{
    const int64_t *dims = coordinates->u.tensor.dims;
    const int32_t *at = coi_data_on_host(coordinates);

    if (coordinates->dtype != CO_INT32 || coordinates->ndim != 3 || dims[2] != rank ||
        dims[0] > INT32_MAX || dims[1] > INT32_MAX) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "device_coordinates of %s are %s of %d dimension%s; they must be int32 [tasks, "
                 "devices, %d]",
                 ctx->call, co_dtype_name((co_dtype)coordinates->dtype), coordinates->ndim,
                 COI_S(coordinates->ndim), rank);
        return false;
    }
    for (int64_t i = 0; i < dims[0] * dims[1]; ++i)
        if (!is_inside(mesh, rank, at + i * rank)) {
            coi_fail(ctx, CO_VALUE_ERROR,
                     "device %lld of task %lld of device_coordinates of %s is outside the mesh",
                     (long long)(i % dims[1]), (long long)(i / dims[1]), ctx->call);
            return false;
        }
    return true;
}

/* A topology of the block; the coordinates are a value of it. NULL with an error. */
static co_topology *
make(co_context *ctx, const int64_t *mesh, int rank, co_value *coordinates)
{
    co_topology *topology;

    if (!check_mesh(ctx, mesh, rank) || (coordinates = coi_host_value(ctx, coordinates)) == NULL ||
        !check_coordinates(ctx, mesh, rank, coordinates))
        return NULL;
    topology = coi_object_new(&ctx->heap, &topology_class, sizeof(*topology));
    if (topology == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a topology");
        return NULL;
    }
    topology->rank = rank;
    memcpy(topology->mesh, mesh, (size_t)rank * sizeof(*mesh));
    topology->num_tasks = coordinates->u.tensor.dims[0];
    topology->num_devices = coordinates->u.tensor.dims[1];
    coi_ref(coordinates);
    topology->coordinates = coordinates;
    return coi_own(ctx, topology);
}

co_topology *
co_topology_make(co_context *ctx, const int64_t *mesh_shape, int mesh_rank,
                 co_value *device_coordinates)
{
    COI_ENTER(ctx, "topology_make", NULL);
    if (!coi_check_kind(ctx, device_coordinates, CO_KIND_TENSOR, 4, "device_coordinates"))
        return NULL;
    return make(ctx, mesh_shape, mesh_rank, device_coordinates);
}

/* --- the serialized form --- */

enum { MESH_SHAPE = 1, NUM_TASKS = 2, NUM_DEVICES = 3, COORDINATES = 4 };

/* Numbers of a repeated field, packed or one by one; those past `max` are counted only. */
typedef struct numbers {
    int32_t *at;
    size_t   n, max;
} numbers;

static void
take_number(numbers *list, uint64_t value)
{
    if (list->n < list->max)
        list->at[list->n] = (int32_t)value;
    ++list->n;
}

static bool
take_numbers(numbers *list, coi_wire_field *field)
{
    uint64_t value;

    if (field->type == COI_WIRE_VARINT)
        take_number(list, field->value);
    while (field->type == COI_WIRE_BYTES && field->content.at < field->content.end) {
        if (!coi_wire_varint(&field->content, &value))
            return false;
        take_number(list, value);
    }
    return true;
}

/* All of a message; what is not known is passed over. */
static bool
read_message(coi_wire wire, numbers *mesh, int32_t counts[2], numbers *coordinates)
{
    coi_wire_field field;

    while (wire.at < wire.end) {
        if (!coi_wire_next(&wire, &field))
            return false;
        if (field.number == MESH_SHAPE && !take_numbers(mesh, &field))
            return false;
        if (field.number == COORDINATES && !take_numbers(coordinates, &field))
            return false;
        if ((field.number == NUM_TASKS || field.number == NUM_DEVICES) &&
            field.type == COI_WIRE_VARINT)
            counts[field.number - NUM_TASKS] = (int32_t)field.value;
    }
    return true;
}

/* Once more, now that there is room for the coordinates. */
typedef struct rereading {
    coi_wire wire;
    size_t   n;
} rereading;

static void
fill_coordinates(void *data, const void *from)
{
    const rereading *r = from;
    int32_t          counts[2];
    numbers          mesh = { NULL, 0, 0 }, list = { data, 0, r->n };

    read_message(r->wire, &mesh, counts, &list);
}

co_topology *
co_topology_parse(co_context *ctx, co_value *serialized)
{
    int32_t              sizes[MAX_RANK + 1] = { 0 }, counts[2] = { 0, 0 };
    int64_t              dims[MAX_RANK + 1], shape[3];
    numbers              mesh = { sizes, 0, MAX_RANK + 1 }, list = { NULL, 0, 0 };
    const unsigned char *bytes;
    coi_wire             wire;
    co_value            *coordinates;

    COI_ENTER(ctx, "topology_parse", NULL);
    if (!coi_check_kind(ctx, serialized, CO_KIND_STRING, 2, "serialized"))
        return NULL;
    bytes = (const unsigned char *)serialized->u.string.data;
    wire = (coi_wire){ bytes, bytes + serialized->u.string.nbytes };
    if (!read_message(wire, &mesh, counts, &list)) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 2 (serialized) of topology_parse is not a message: a field "
                 "is cut off or unreadable");
        return NULL;
    }
    for (size_t i = 0; i < MAX_RANK + 1; ++i)
        dims[i] = sizes[i];
    if (!check_mesh(ctx, dims, (int)mesh.n))
        return NULL;
    if (counts[0] < 0 || counts[1] < 0 ||
        (uint64_t)counts[0] * (uint64_t)counts[1] * mesh.n != list.n) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "argument 2 (serialized) of topology_parse has %d task%s of %d device%s and %zu "
                 "numbers as coordinates; %zu are needed for each device",
                 counts[0], COI_S(counts[0]), counts[1], COI_S(counts[1]), list.n, mesh.n);
        return NULL;
    }
    shape[0] = counts[0];
    shape[1] = counts[1];
    shape[2] = (int64_t)mesh.n;
    coordinates = new_tensor(ctx, (filling){ CO_INT32, shape, 3, fill_coordinates,
                                             &(rereading){ wire, list.n } });
    return coordinates != NULL ? make(ctx, dims, (int)mesh.n, coordinates) : NULL;
}

static void
put_numbers(coi_wire_out *out, coi_wire_out *packed, unsigned number)
{
    coi_wire_put_tag(out, number, COI_WIRE_BYTES);
    coi_wire_put_varint(out, packed->n);
    coi_wire_put_bytes(out, packed->data, packed->n);
}

static void
put_count(coi_wire_out *out, unsigned number, int64_t count)
{
    if (count == 0) /* the default is not written */
        return;
    coi_wire_put_tag(out, number, COI_WIRE_VARINT);
    coi_wire_put_varint(out, (uint64_t)count);
}

co_value *
co_topology_serialized(co_context *ctx, co_topology *topology)
{
    const int32_t *at;
    size_t         n, room;
    coi_wire_out   out = { NULL, 0 }, packed = { NULL, 0 };
    co_value      *made;

    COI_ENTER(ctx, "topology_serialized", NULL);
    if (!check_topology(ctx, topology))
        return NULL;
    at = coi_data_on_host(topology->coordinates);
    n = (size_t)topology->coordinates->u.tensor.num_elements;
    /* A number below 2^24 takes four bytes; every one is written twice, packed and in its place. */
    room = 8 * COI_WIRE_HEAD_MAX + 2 * 4 * (n + MAX_RANK);
    out.data = coi_small_alloc(&ctx->heap, room);
    if (out.data == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for %zu coordinates", n);
        return NULL;
    }
    packed.data = out.data + room / 2;
    for (int i = 0; i < topology->rank; ++i)
        coi_wire_put_varint(&packed, (uint64_t)topology->mesh[i]);
    put_numbers(&out, &packed, MESH_SHAPE);
    put_count(&out, NUM_TASKS, topology->num_tasks);
    put_count(&out, NUM_DEVICES, topology->num_devices);
    packed.n = 0;
    for (size_t i = 0; i < n; ++i)
        coi_wire_put_varint(&packed, (uint64_t)at[i]);
    if (n > 0)
        put_numbers(&out, &packed, COORDINATES);
    made = co_bytes(ctx, out.data, out.n);
    coi_small_free(&ctx->heap, out.data, room);
    return made;
}

/* --- looking --- */

static int
number(co_context *ctx, const co_topology *topology, const char *call, int which)
{
    COI_ENTER(ctx, call, 0);
    if (!check_topology(ctx, topology))
        return 0;
    return which == 0   ? topology->rank
           : which == 1 ? (int)topology->num_tasks
                        : (int)topology->num_devices;
}

int
co_topology_mesh_rank(co_context *ctx, const co_topology *topology)
{
    return number(ctx, topology, "topology_mesh_rank", 0);
}

int
co_topology_num_tasks(co_context *ctx, const co_topology *topology)
{
    return number(ctx, topology, "topology_num_tasks", 1);
}

int
co_topology_num_tpus_per_task(co_context *ctx, const co_topology *topology)
{
    return number(ctx, topology, "topology_num_tpus_per_task", 2);
}

co_value *
co_topology_mesh_shape(co_context *ctx, co_topology *topology)
{
    int32_t sizes[MAX_RANK];
    int64_t rank;

    COI_ENTER(ctx, "topology_mesh_shape", NULL);
    if (!check_topology(ctx, topology))
        return NULL;
    rank = topology->rank;
    for (int i = 0; i < topology->rank; ++i)
        sizes[i] = (int32_t)topology->mesh[i];
    return co_tensor(ctx, CO_INT32, &rank, 1, sizes);
}

co_value *
co_topology_device_coordinates(co_context *ctx, co_topology *topology)
{
    COI_ENTER(ctx, "topology_device_coordinates", NULL);
    return check_topology(ctx, topology) ? coi_own_ref(ctx, topology->coordinates) : NULL;
}

static int64_t
num_places(const co_topology *topology)
{
    int64_t places = 1;

    for (int i = 0; i < topology->rank; ++i)
        places *= topology->mesh[i];
    return places;
}

/* The number of a place in row-major order. */
static int64_t
place_of(const co_topology *topology, const int32_t *at)
{
    int64_t place = 0;

    for (int i = 0; i < topology->rank; ++i)
        place = place * topology->mesh[i] + at[i];
    return place;
}

/* Write the coordinates of the places that are not marked; returns how many there are. */
static int64_t
list_missing(const co_topology *topology, const unsigned char *taken, int64_t *out)
{
    int64_t missing = 0;

    for (int64_t place = 0, places = num_places(topology); place < places; ++place) {
        int64_t rest = place;

        if (taken[place])
            continue;
        for (int i = topology->rank - 1; out != NULL && i >= 0; --i) {
            out[missing * topology->rank + i] = rest % topology->mesh[i];
            rest /= topology->mesh[i];
        }
        ++missing;
    }
    return missing;
}

typedef struct places {
    const co_topology   *topology;
    const unsigned char *taken;
} places;

static void
fill_missing(void *data, const void *from)
{
    const places *p = from;

    list_missing(p->topology, p->taken, data);
}

co_value *
co_topology_missing_devices(co_context *ctx, co_topology *topology)
{
    const int32_t *at;
    unsigned char *taken;
    int64_t        dims[2];
    co_value      *missing;

    COI_ENTER(ctx, "topology_missing_devices", NULL);
    if (!check_topology(ctx, topology))
        return NULL;
    taken = coi_small_alloc(&ctx->heap, (size_t)num_places(topology));
    if (taken == NULL) {
        coi_fail(ctx, CO_RESOURCE_EXHAUSTED, "no memory for a mesh of %lld places",
                 (long long)num_places(topology));
        return NULL;
    }
    memset(taken, 0, (size_t)num_places(topology));
    at = coi_data_on_host(topology->coordinates);
    for (int64_t i = 0; i < topology->num_tasks * topology->num_devices; ++i)
        taken[place_of(topology, at + i * topology->rank)] = 1;
    dims[0] = list_missing(topology, taken, NULL);
    dims[1] = topology->rank;
    missing = new_tensor(ctx, (filling){ CO_INT64, dims, 2, fill_missing,
                                         &(places){ topology, taken } });
    coi_small_free(&ctx->heap, taken, (size_t)num_places(topology));
    return missing;
}

co_code
co_topology_find(co_context *ctx, const co_topology *topology, const int64_t *coordinates,
                 int *task, int *tpu_ordinal)
{
    const int32_t *at;
    int64_t        found = -1;

    COI_ENTER_CODE(ctx, "topology_find");
    if (!check_topology(ctx, topology))
        return ctx->error.code;
    if (coordinates == NULL || task == NULL || tpu_ordinal == NULL)
        return coi_fail(ctx, CO_VALUE_ERROR,
                        "coordinates, task or tpu_ordinal of topology_find is NULL");
    at = coi_data_on_host(topology->coordinates);
    for (int64_t i = 0; i < topology->num_tasks * topology->num_devices; ++i) {
        bool same = true;

        for (int k = 0; k < topology->rank && same; ++k)
            same = at[i * topology->rank + k] == coordinates[k];
        if (same)
            found = i;
    }
    if (found < 0)
        return coi_fail(ctx, CO_VALUE_ERROR,
                        "there is no device at argument 3 (coordinates) of topology_find: the "
                        "place is missing or outside the mesh");
    *task = (int)(found / topology->num_devices);
    *tpu_ordinal = (int)(found % topology->num_devices);
    return CO_OK;
}

/* "/job:J/task:t/device:TYPE:i" (TOPO-3). */
static co_value *
device_name(co_context *ctx, co_topology *topology, int task, const char *type, int index,
            const char *job)
{
    char text[CO_DEVICE_NAME_MAX + 40];

    if (!check_topology(ctx, topology))
        return NULL;
    if (task < 0 || task >= topology->num_tasks || index < 0 ||
        index >= (strcmp(type, "TPU") == 0 ? topology->num_devices : 1)) {
        coi_fail(ctx, CO_VALUE_ERROR,
                 "task %d, device %d of %s; there %s %lld task%s of %lld device%s", task, index,
                 ctx->call, topology->num_tasks == 1 ? "is" : "are", (long long)topology->num_tasks,
                 COI_S(topology->num_tasks), (long long)topology->num_devices,
                 COI_S(topology->num_devices));
        return NULL;
    }
    snprintf(text, sizeof(text), "%s%.100s/task:%d/device:%s:%d", job != NULL ? "/job:" : "",
             job != NULL ? job : "", task, type, index);
    return co_string(ctx, text);
}

co_value *
co_topology_tpu_device(co_context *ctx, co_topology *topology, const char *job, int task,
                       int tpu_ordinal)
{
    COI_ENTER(ctx, "topology_tpu_device", NULL);
    return device_name(ctx, topology, task, "TPU", tpu_ordinal, job);
}

co_value *
co_topology_host_device(co_context *ctx, co_topology *topology, const char *job, int task)
{
    COI_ENTER(ctx, "topology_host_device", NULL);
    return device_name(ctx, topology, task, "CPU", 0, job);
}
