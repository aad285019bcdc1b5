/* SPDX-License-Identifier: Apache-2.0 */
/* tpu: topologies, made and read. Device assignments and logical devices are missing. */
#include <cohort/tpu.h>
#include "families.h"

#include <string.h>

#define MAX_RANK 8

/* From the mesh and the coordinates of the case. */
static co_topology *
make_topology(golden_case *c)
{
    json_t   *list = json_object_get(c->attrs, "mesh_shape");
    co_value *coordinates = golden_read_value(c, c->ctx,
                                              json_object_get(c->inputs, "device_coordinates"));
    int64_t   mesh[MAX_RANK];
    size_t    rank = json_array_size(list);

    for (size_t i = 0; i < rank && i < MAX_RANK; ++i)
        mesh[i] = json_integer_value(json_array_get(list, i));
    return coordinates != NULL && rank <= MAX_RANK
               ? co_topology_make(c->ctx, mesh, (int)rank, coordinates)
               : NULL;
}

static json_t *
name_of(golden_case *c, co_value *name)
{
    return json_string(name != NULL ? co_string_at(c->ctx, name, 0, NULL) : "");
}

/* The places and jobs that the recording asked for. */
static json_t *
write_names(golden_case *c, co_topology *topology)
{
    json_t *names = json_array(), *asked;
    size_t  i, k;

    json_array_foreach(json_object_get(c->outputs, "names"), i, asked)
    {
        json_t     *place = json_object_get(asked, "coordinates");
        const char *job = json_string_value(json_object_get(asked, "job"));
        int64_t     at[MAX_RANK] = { 0 };
        int         task = -1, ordinal = -1;
        co_value   *tpu, *host;

        for (k = 0; k < json_array_size(place) && k < MAX_RANK; ++k)
            at[k] = json_integer_value(json_array_get(place, k));
        co_topology_find(c->ctx, topology, at, &task, &ordinal);
        tpu = co_topology_tpu_device(c->ctx, topology, job, task, ordinal);
        host = co_topology_host_device(c->ctx, topology, job, task);
        json_array_append_new(names, json_pack("{s:O,s:i,s:i,s:O,s:o,s:o}", "coordinates", place,
                                               "task", task, "tpu_ordinal", ordinal, "job",
                                               json_object_get(asked, "job"), "tpu_device",
                                               name_of(c, tpu), "host_device", name_of(c, host)));
    }
    return names;
}

static void
put_topology(golden_case *c, co_topology *topology)
{
    co_context *ctx = c->ctx;
    json_t     *mesh;

    if (topology == NULL)
        return;
    mesh = golden_write_value(ctx, co_topology_mesh_shape(ctx, topology));
    golden_put(c, "mesh_shape", json_incref(json_object_get(mesh, "data")));
    json_decref(mesh);
    golden_put(c, "mesh_rank", json_integer(co_topology_mesh_rank(ctx, topology)));
    golden_put(c, "num_tasks", json_integer(co_topology_num_tasks(ctx, topology)));
    golden_put(c, "num_tpus_per_task", json_integer(co_topology_num_tpus_per_task(ctx, topology)));
    golden_put_value(c, "device_coordinates", co_topology_device_coordinates(ctx, topology));
    golden_put_value(c, "missing_devices", co_topology_missing_devices(ctx, topology));
    golden_put(c, "names", write_names(c, topology));
    golden_put(c, "serialized_hex", golden_write_hex(ctx, co_topology_serialized(ctx, topology)));
    /* The same bytes, taken apart (config). */
    golden_put(c, "fields", json_incref(json_object_get(c->outputs, "fields")));
}

void
golden_run_topology(golden_case *c)
{
    put_topology(c, make_topology(c));
}

static void
run_serialized(golden_case *c)
{
    put_topology(c, co_topology_parse(c->ctx, golden_read_hex(c, c->inputs, "serialized_hex")));
}

void
golden_run_tpu(golden_case *c)
{
    static const golden_action actions[] = {
        { "topology", golden_run_topology },
        { "topology_missing", golden_run_topology },
        { "topology_serialized", run_serialized },
    };
    char group[80];

    golden_group(c->id, group, sizeof(group));
    if (strncmp(group, "topology", 8) == 0)
        golden_run_group(c, actions, sizeof(actions) / sizeof(actions[0]));
    else
        golden_missing(c, "TPU device assignments and logical devices");
}
