/* SPDX-License-Identifier: Apache-2.0 */
/* TPU topologies: meshes, coordinates, names, bytes. TOPO-*. */
#include <cohort/tpu.h>
#include "test.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const int64_t mesh3[] = { 2, 2, 2 };

/* Two tasks with two devices each, in half of the mesh. */
static co_value *
half(co_context *ctx)
{
    static const int32_t at[] = { 0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1 };

    return co_tensor(ctx, CO_INT32, CO_SHAPE(2, 2, 3), at);
}

static const char *
text(co_context *ctx, co_value *string)
{
    return co_string_at(ctx, string, 0, NULL);
}

CO_TEST(topologies_describe_a_mesh, "TOPO-1 TOPO-2")
{
    static const int64_t missing[] = { 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1 };
    co_topology         *t = co_topology_make(ctx, mesh3, 3, half(ctx));
    co_value            *value = co_topology_missing_devices(ctx, t);

    CO_EXPECT_INT(co_topology_mesh_rank(ctx, t), 3);
    CO_EXPECT_INT(co_topology_num_tasks(ctx, t), 2);
    CO_EXPECT_INT(co_topology_num_tpus_per_task(ctx, t), 2);
    CO_EXPECT_INT(co_value_dim(ctx, value, 0), 4);
    CO_EXPECT_INT(co_value_dim(ctx, value, 1), 3);
    CO_EXPECT_BYTES(co_value_data(ctx, value), missing, sizeof(missing));
    value = co_topology_mesh_shape(ctx, t);
    CO_EXPECT_INT(co_value_dtype(ctx, value), CO_INT32);
    CO_EXPECT_INT(((const int32_t *)co_value_data(ctx, value))[2], 2);
    CO_EXPECT_INT(co_value_num_elements(ctx, co_topology_device_coordinates(ctx, t)), 12);
}

CO_TEST(devices_have_names, "TOPO-3")
{
    static const int64_t at[] = { 1, 1, 1 }, nowhere[] = { 0, 1, 0 }, outside[] = { 2, 0, 0 };
    co_topology         *t = co_topology_make(ctx, mesh3, 3, half(ctx));
    int                  task = 9, ordinal = 9;

    CO_EXPECT_CODE(co_topology_find(ctx, t, at, &task, &ordinal), CO_OK);
    CO_EXPECT_INT(task, 1);
    CO_EXPECT_INT(ordinal, 1);
    CO_EXPECT_STR(text(ctx, co_topology_tpu_device(ctx, t, NULL, task, ordinal)),
                  "/task:1/device:TPU:1");
    CO_EXPECT_STR(text(ctx, co_topology_tpu_device(ctx, t, "worker", 0, 1)),
                  "/job:worker/task:0/device:TPU:1");
    CO_EXPECT_STR(text(ctx, co_topology_host_device(ctx, t, "worker", 1)),
                  "/job:worker/task:1/device:CPU:0");
    CO_EXPECT_STR(text(ctx, co_topology_host_device(ctx, t, NULL, 0)), "/task:0/device:CPU:0");
    CO_EXPECT_CODE(co_topology_find(ctx, t, nowhere, &task, &ordinal), CO_VALUE_ERROR);
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "missing");
    CO_EXPECT_CODE(co_topology_find(ctx, t, outside, &task, &ordinal), CO_VALUE_ERROR);
    co_clear(ctx);
    CO_EXPECT_INT(task, 1); /* as it was */
    CO_EXPECT_CODE(co_topology_find(ctx, t, NULL, &task, &ordinal), CO_VALUE_ERROR);
    co_clear(ctx);
    CO_EXPECT_CODE(co_topology_find(ctx, t, at, NULL, &ordinal), CO_VALUE_ERROR);
    co_clear(ctx);
    CO_EXPECT_CODE(co_topology_find(ctx, t, at, &task, NULL), CO_VALUE_ERROR);
    co_clear(ctx);
    for (int i = 0; i < 4; ++i) {
        static const int wrong[][2] = { { -1, 0 }, { 2, 0 }, { 0, -1 }, { 0, 2 } };

        CO_EXPECT_NULL(co_topology_tpu_device(ctx, t, NULL, wrong[i][0], wrong[i][1]));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "2 tasks of 2 devices");
    }
    CO_EXPECT_NULL(co_topology_host_device(ctx, t, NULL, 2));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "tasks");
}

CO_TEST(topologies_are_written_and_read, "TOPO-2 DA-1")
{
    static const char bytes[] =
        "\x0a\x03\x02\x02\x02\x10\x02\x18\x02\x22\x0c\0\0\0\0\0\1\1\1\0\1\1\1",
                      unpacked[] = "\x22\x03\0\0\1\x08\x01\x08\x01\x08\x02\x10\x01\x18\x01\x38\x07";
    co_topology *t = co_topology_make(ctx, mesh3, 3, half(ctx));
    co_value    *out = co_topology_serialized(ctx, t);
    size_t       n = 0;
    int64_t      at[] = { 0, 0, 1 };
    int          task, ordinal;

    CO_EXPECT_BYTES(co_string_at(ctx, out, 0, &n), bytes, sizeof(bytes) - 1);
    CO_EXPECT_INT(n, sizeof(bytes) - 1);
    t = co_topology_parse(ctx, out);
    out = co_topology_serialized(ctx, t);
    CO_EXPECT_BYTES(co_string_at(ctx, out, 0, &n), bytes, sizeof(bytes) - 1);
    /* Numbers one by one, in another order, and a field that is not known. */
    t = co_topology_parse(ctx, co_bytes(ctx, unpacked, sizeof(unpacked) - 1));
    CO_EXPECT_CODE(co_topology_find(ctx, t, at, &task, &ordinal), CO_OK);
    CO_EXPECT_INT(co_value_dim(ctx, co_topology_missing_devices(ctx, t), 0), 1);
    /* Nobody has a device: counts of 0 are not written. */
    t = co_topology_make(ctx, mesh3, 3, co_tensor(ctx, CO_INT32, CO_SHAPE(0, 0, 3), ""));
    out = co_topology_serialized(ctx, t);
    CO_EXPECT_BYTES(co_string_at(ctx, out, 0, &n), bytes, 5);
    CO_EXPECT_INT(n, 5);
    t = co_topology_parse(ctx, out);
    CO_EXPECT_INT(co_value_dim(ctx, co_topology_missing_devices(ctx, t), 0), 8);
    CO_EXPECT_CODE(co_topology_find(ctx, t, at, &task, &ordinal), CO_VALUE_ERROR);
    co_clear(ctx);
}

CO_TEST(meshes_and_coordinates_are_checked, "TOPO-1 TOPO-2")
{
    static const struct {
        int64_t     mesh[5];
        int         rank;
        const char *part;
    } wrong[] = {
        { { 2, 2 }, 2, "3 or 4" },
        { { 2, 2, 1, 1, 2 }, 5, "3 or 4" },
        { { 2, 0, 2 }, 3, "dimension 1" },
        { { 2, 2, -1, 2 }, 4, "dimension 2" },
        { { INT64_MAX, INT64_MAX, 1 }, 3, "dimension 0" },
        { { 4096, 4096, 2 }, 3, "at most" },
        { { 2, 2, 1, 2 }, 4, "int32 [tasks, devices, 4]" },
        { { 1, 1, 1 }, 3, "outside the mesh" },
    };
    static const int32_t below[] = { 0, -1, 0 };
    co_value            *doubles = co_zeros(ctx, CO_FLOAT64, CO_SHAPE(1, 1, 3));

    for (size_t i = 0; i < LENGTH(wrong); ++i) {
        CO_EXPECT_NULL(co_topology_make(ctx, wrong[i].mesh, wrong[i].rank, half(ctx)));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, wrong[i].part);
    }
    CO_EXPECT_NULL(co_topology_make(ctx, NULL, 3, half(ctx)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "mesh_shape");
    CO_EXPECT_NULL(co_topology_make(ctx, mesh3, 3, doubles));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "float64");
    CO_EXPECT_NULL(co_topology_make(ctx, mesh3, 3, co_zeros(ctx, CO_INT32, CO_SHAPE(3))));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "1 dimension;");
    CO_EXPECT_NULL(
        co_topology_make(ctx, mesh3, 3, co_tensor(ctx, CO_INT32, CO_SHAPE(1, 1, 3), below)));
    CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "device 0 of task 0");
    CO_EXPECT_NULL(co_topology_make(ctx, mesh3, 3, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "device_coordinates");
    CO_EXPECT_NULL(co_topology_parse(ctx, co_int(ctx, 1)));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "serialized");
    CO_EXPECT_INT(co_topology_mesh_rank(ctx, NULL), 0);
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "topology");
}

/* Every prefix of a topology, and every byte of it changed: CO_VALUE_ERROR, or a topology. */
CO_TEST(damaged_topologies_are_refused_or_read, "TOPO-2")
{
    char   good[64], changed[64];
    size_t n = 0;
    int    refused = 0;

    memcpy(good,
           co_string_at(
               ctx, co_topology_serialized(ctx, co_topology_make(ctx, mesh3, 3, half(ctx))), 0, &n),
           23);
    CO_REQUIRE(n == 23);
    for (size_t at = 0; at < n; ++at)
        for (int change = 0; change <= 256; ++change)
            CO_BLOCK(ctx) {
                co_topology *t;

                memcpy(changed, good, n);
                if (change < 256)
                    changed[at] = (char)change;
                t = co_topology_parse(ctx, co_bytes(ctx, changed, change < 256 ? n : at));
                if (t == NULL) {
                    ++refused;
                    CO_EXPECT_CODE(co_error(ctx)->code, CO_VALUE_ERROR);
                    co_clear(ctx);
                } else {
                    CO_EXPECT_NOT_NULL(co_topology_serialized(ctx, t));
                }
            }
    CO_EXPECT_MORE(refused, 1000);
}

static void
call_all(co_context *ctx, co_topology *t, co_value *x)
{
    int task, ordinal;

    CO_EXPECT_NULL(co_topology_make(ctx, mesh3, 3, x));
    CO_EXPECT_NULL(co_topology_parse(ctx, x));
    CO_EXPECT_NULL(co_topology_serialized(ctx, t));
    CO_EXPECT_INT(co_topology_mesh_rank(ctx, t), 0);
    CO_EXPECT_INT(co_topology_num_tasks(ctx, t), 0);
    CO_EXPECT_INT(co_topology_num_tpus_per_task(ctx, t), 0);
    CO_EXPECT_NULL(co_topology_mesh_shape(ctx, t));
    CO_EXPECT_NULL(co_topology_device_coordinates(ctx, t));
    CO_EXPECT_NULL(co_topology_missing_devices(ctx, t));
    CO_EXPECT_TRUE(co_topology_find(ctx, t, mesh3, &task, &ordinal) != CO_OK);
    CO_EXPECT_NULL(co_topology_tpu_device(ctx, t, NULL, 0, 0));
    CO_EXPECT_NULL(co_topology_host_device(ctx, t, NULL, 0));
}

CO_TEST(nothing_happens_without_a_topology, "")
{
    co_value    *x = half(ctx);
    co_topology *t = co_topology_make(ctx, mesh3, 3, x);

    call_all(NULL, t, x);
    co_fail(ctx, CO_DATA_LOSS, "the first error");
    call_all(ctx, t, x);
    CO_EXPECT_ERROR(ctx, CO_DATA_LOSS, "the first error");
    CO_EXPECT_NULL(co_topology_serialized(ctx, (co_topology *)(void *)x));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_NULL(co_topology_mesh_shape(ctx, NULL));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "topology");
    CO_EXPECT_NULL(co_topology_device_coordinates(ctx, NULL));
    co_clear(ctx);
    CO_EXPECT_NULL(co_topology_missing_devices(ctx, NULL));
    co_clear(ctx);
    CO_EXPECT_NULL(co_topology_host_device(ctx, NULL, NULL, 0));
    co_clear(ctx);
    CO_EXPECT_CODE(co_topology_find(ctx, NULL, mesh3, NULL, NULL), CO_INVALID_ARGUMENT);
    co_clear(ctx);
    CO_DEVICE(ctx, "/gpu:7") { /* results go to the current device */
        CO_EXPECT_NULL(co_topology_missing_devices(ctx, t));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "GPU:7");
    }
}

static bool
in_little_memory(co_context *ctx)
{
    static const int64_t big[] = { 64, 64, 2 };
    co_value            *at = co_zeros(ctx, CO_INT32, CO_SHAPE(16, 64, 3));
    co_topology         *t = co_topology_make(ctx, big, 3, at);

    t = co_topology_parse(ctx, co_topology_serialized(ctx, t));
    return co_topology_missing_devices(ctx, t) != NULL;
}

CO_TEST_BARE(topologies_survive_want_of_memory, "TOPO-2")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, in_little_memory);
}
