/* SPDX-License-Identifier: Apache-2.0 */
/* The registry: which devices there are, their cores, and what is said of one that is not there. */
#include "device/device.h"
#include "hooks.h"
#include "test.h"

enum { MAX_CORES = 8 };

typedef struct rig {
    test_hooks   hooks;
    coi_memory   memory;
    coi_log      log;
    coi_waiting  waiting;
    coi_topology topology;
    int          cores[MAX_CORES];
    coi_devices *devices;
} rig;

/* A registry on a machine with cores 10, 11, 12, ... */
static co_code
try_set_up(rig *r, int num_cores, const char *text, long long fail_at, co_error_info *err)
{
    coi_settings settings;

    test_hooks_init(&r->hooks, fail_at);
    coi_memory_init(&r->memory, &r->hooks.allocator);
    coi_log_init(&r->log, NULL, NULL);
    coi_waiting_init(&r->waiting, num_cores, 20);
    for (int i = 0; i < MAX_CORES; ++i)
        r->cores[i] = 10 + i;
    r->topology = (coi_topology){ num_cores, r->cores, num_cores };
    r->devices = NULL;
    CO_REQUIRE(coi_settings_load(&settings, text, NULL, NULL) == CO_OK);
    return coi_devices_create(&r->memory, &settings, &r->topology, &r->waiting, &r->log,
                              &r->devices, err);
}

static void
set_up(rig *r, int num_cores, const char *text)
{
    CO_REQUIRE(try_set_up(r, num_cores, text, 0, NULL) == CO_OK);
}

static void
tear_down(rig *r)
{
    coi_devices_destroy(r->devices);
    coi_log_destroy(&r->log);
    CO_EXPECT_INT(r->hooks.blocks, 0);
}

static co_code
find(rig *r, const char *text, co_device **out, co_error_info *err)
{
    coi_device_name name;

    CO_REQUIRE(coi_device_parse(text, &name, NULL) == CO_OK);
    coi_device_complete(&name, NULL);
    return coi_devices_find(r->devices, &name, out, err);
}

CO_TEST_BARE(devices_share_the_cores, "")
{
    static const struct {
        int         num_cores;
        const char *settings;
        int         threads[5]; /* of CPU:0, CPU:1, ...; 0 ends the list */
        int         first[5];   /* core of each */
    } cases[] = {
        { 1, "cpus=1", { 1 }, { 10 } },
        { 4, "cpus=1", { 4 }, { 10 } },
        { 4, "cpus=2", { 2, 2 }, { 10, 12 } },
        { 8, "cpus=3", { 2, 3, 3 }, { 10, 12, 15 } },
        { 2, "cpus=4", { 1, 1, 1, 1 }, { 10, 10, 11, 11 } },
        { 1, "cpus=3", { 1, 1, 1 }, { 10, 10, 10 } },
        { 4, "cpus=2,threads=2", { 1, 1 }, { 10, 11 } },
        { 2, "cpus=2,threads=6", { 3, 3 }, { 10, 11 } }, /* cores 10 11 10, 11 10 11 */
        { 4, "cpus=1,threads=1", { 1 }, { 10 } },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        rig    r;
        size_t count = 0;

        set_up(&r, cases[i].num_cores, cases[i].settings);
        for (; count < 5 && cases[i].threads[count] != 0; ++count) {
            co_device *device = coi_devices_at(r.devices, count);

            CO_REQUIRE(device != NULL);
            CO_EXPECT_INT(device->num_threads, cases[i].threads[count]);
            CO_EXPECT_INT(coi_team_size(device->team), cases[i].threads[count]);
            CO_EXPECT_INT(device->cores[0], cases[i].first[count]);
            for (int k = 0; k < device->num_threads; ++k)
                CO_EXPECT_TRUE(device->cores[k] >= 10 &&
                               device->cores[k] < 10 + cases[i].num_cores);
        }
        CO_EXPECT_INT(coi_devices_count(r.devices), count);
        CO_EXPECT_NULL(coi_devices_at(r.devices, count));
        tear_down(&r);
    }
}

CO_TEST_BARE(a_quota_lowers_the_number_of_threads, "")
{
    rig          r;
    coi_settings settings;

    set_up(&r, 8, "cpus=1");
    tear_down(&r);
    r.topology.quota = 3;
    coi_log_init(&r.log, NULL, NULL);
    CO_REQUIRE(coi_settings_load(&settings, "cpus=1,pin=no", NULL, NULL) == CO_OK);
    CO_REQUIRE(coi_devices_create(&r.memory, &settings, &r.topology, &r.waiting, &r.log, &r.devices,
                                  NULL) == CO_OK);
    CO_EXPECT_INT(coi_devices_at(r.devices, 0)->num_threads, 3);
    CO_EXPECT_NULL(coi_devices_at(r.devices, 0)->cores); /* pin=no */
    tear_down(&r);
}

CO_TEST_BARE(settings_make_devices_of_any_type, "DEV-1")
{
    rig            r;
    co_device_info info = CO_DEVICE_INFO_INIT;

    set_up(&r, 4, "cpus=2,devices=gpu:2+TPU:1+GPU:1");
    CO_EXPECT_INT(coi_devices_count(r.devices), 6);
    coi_device_fill_info(coi_devices_at(r.devices, 0), &info);
    CO_EXPECT_STR(info.name, "/job:localhost/replica:0/task:0/device:CPU:0");
    CO_EXPECT_STR(info.type, "CPU");
    CO_EXPECT_STR(info.backend, "cpu");
    CO_EXPECT_FALSE(info.host_backed);
    coi_device_fill_info(coi_devices_at(r.devices, 3), &info);
    CO_EXPECT_STR(info.name, "/job:localhost/replica:0/task:0/device:GPU:1");
    CO_EXPECT_INT(info.index, 1);
    CO_EXPECT_INT(info.num_threads, 2);
    CO_EXPECT_TRUE(info.host_backed);
    coi_device_fill_info(coi_devices_at(r.devices, 5), &info);
    CO_EXPECT_STR(info.name, "/job:localhost/replica:0/task:0/device:GPU:2");
    CO_EXPECT_PTR(coi_devices_of_type(r.devices, "GPU", 2), coi_devices_at(r.devices, 5));
    CO_EXPECT_PTR(coi_devices_of_type(r.devices, "TPU", 0), coi_devices_at(r.devices, 4));
    CO_EXPECT_NULL(coi_devices_of_type(r.devices, "GPU", 3));
    CO_EXPECT_NULL(coi_devices_of_type(r.devices, "NPU", 0));
    tear_down(&r);
}

CO_TEST_BARE(a_device_is_found_by_all_parts_of_its_name, "DEV-5")
{
    rig           r;
    co_device    *device = NULL;
    co_error_info err;

    set_up(&r, 2, "cpus=2,devices=GPU:1");
    CO_EXPECT_CODE(find(&r, "/cpu:1", &device, NULL), CO_OK);
    CO_EXPECT_PTR(device, coi_devices_at(r.devices, 1));
    CO_EXPECT_CODE(find(&r, "", &device, NULL), CO_OK);
    CO_EXPECT_PTR(device, coi_devices_at(r.devices, 0));
    coi_error_reset(&err);
    CO_EXPECT_CODE(find(&r, "/gpu:1", &device, &err), CO_INVALID_ARGUMENT);
    CO_EXPECT_CONTAINS(err.message, "no device /job:localhost/replica:0/task:0/device:GPU:1");
    CO_EXPECT_CONTAINS(err.message, "there are CPU:0 to CPU:1, GPU:0 of");
    CO_EXPECT_CODE(find(&r, "/job:worker/cpu:0", &device, NULL), CO_INVALID_ARGUMENT);
    CO_EXPECT_CODE(find(&r, "/task:1", &device, NULL), CO_INVALID_ARGUMENT);
    CO_EXPECT_CODE(find(&r, "/replica:1", &device, NULL), CO_INVALID_ARGUMENT);
    CO_EXPECT_CODE(find(&r, "/device:FOO:0", &device, NULL), CO_INVALID_ARGUMENT);
    tear_down(&r);
}

CO_TEST_BARE(declared_devices_are_numbered_on, "DEV-5")
{
    rig        r;
    co_device *device = NULL;
    co_device *first;

    set_up(&r, 2, "cpus=1");
    first = coi_devices_at(r.devices, 0);
    CO_EXPECT_CODE(coi_devices_declare(r.devices, "FOO", 2, NULL), CO_OK);
    CO_EXPECT_CODE(coi_devices_declare(r.devices, "FOO", 1, NULL), CO_OK);
    CO_EXPECT_CODE(coi_devices_declare(r.devices, "CPU", 1, NULL), CO_OK);
    CO_EXPECT_CODE(find(&r, "/device:FOO:2", &device, NULL), CO_OK);
    CO_EXPECT_TRUE(device->host_backed);
    CO_EXPECT_CODE(find(&r, "/cpu:1", &device, NULL), CO_OK);
    CO_EXPECT_FALSE(device->host_backed);
    CO_EXPECT_PTR(coi_devices_at(r.devices, 0), first);
    tear_down(&r);
}

CO_TEST_BARE(bad_declarations_are_refused_whole, "")
{
    static const char *const types[] = { NULL,   "",          "gpu",
                                         "2GPU", "_GPU",      "GPU:1",
                                         "G U",  "G\xc3\x9c", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF" };
    static const int         counts[] = { 0, -1, 257, INT32_MAX, INT32_MIN };
    rig                      r;
    co_error_info            err;

    set_up(&r, 2, "cpus=1");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
        coi_error_reset(&err);
        CO_EXPECT_CODE(coi_devices_declare(r.devices, types[i], 1, &err), CO_VALUE_ERROR);
        CO_EXPECT_CONTAINS(err.message, "device type '");
    }
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        coi_error_reset(&err);
        CO_EXPECT_CODE(coi_devices_declare(r.devices, "GPU", counts[i], &err), CO_VALUE_ERROR);
        CO_EXPECT_CONTAINS(err.message, "expected a count from 1 to 256");
    }
    for (int i = 0; i < 3; ++i)
        CO_EXPECT_CODE(coi_devices_declare(r.devices, "GPU", 256, NULL), CO_OK);
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_devices_declare(r.devices, "GPU", 256, &err), CO_RESOURCE_EXHAUSTED);
    CO_EXPECT_CONTAINS(err.message, "make 1025; a runtime has at most 1024");
    CO_EXPECT_INT(coi_devices_count(r.devices), 769);
    CO_EXPECT_CODE(coi_devices_declare(r.devices, "GPU", 255, NULL), CO_OK);
    tear_down(&r);
}

/* A list of many types does not run over the message. */
CO_TEST_BARE(the_list_of_devices_is_cut_when_it_is_long, "")
{
    rig           r;
    co_device    *device;
    co_error_info err;

    set_up(&r, 2, "cpus=1");
    for (int i = 0; i < 60; ++i) {
        char type[32];

        snprintf(type, sizeof(type), "TYPE_WITH_A_LONG_NAME_%d", i);
        CO_REQUIRE(coi_devices_declare(r.devices, type, 2, NULL) == CO_OK);
    }
    coi_error_reset(&err);
    CO_EXPECT_CODE(find(&r, "/gpu:0", &device, &err), CO_INVALID_ARGUMENT);
    CO_EXPECT_CONTAINS(err.message, "there are CPU:0, TYPE_WITH_A_LONG_NAME_0:0 to");
    CO_EXPECT_CONTAINS(err.message, "... of /job:localhost");
    tear_down(&r);
}

CO_TEST_BARE(each_allocation_of_the_registry_may_fail, "")
{
    bool done = false;

    for (long long n = 1; !done; ++n) {
        rig           r;
        co_error_info err;
        co_code       rc;

        CO_REQUIRE(n < 100);
        coi_error_reset(&err);
        rc = try_set_up(&r, 4, "cpus=3,devices=GPU:2", n, &err);
        done = rc == CO_OK;
        if (!done) {
            CO_EXPECT_CODE(rc, CO_RESOURCE_EXHAUSTED);
            CO_EXPECT_CODE(err.code, CO_RESOURCE_EXHAUSTED);
            CO_EXPECT_NULL(r.devices);
        }
        tear_down(&r);
    }
}

/* A declaration that fails half way leaves no device behind. */
CO_TEST_BARE(a_declaration_is_all_or_nothing, "")
{
    rig r;

    set_up(&r, 2, "cpus=1");
    for (long long n = 1; n <= 12; ++n) {
        r.hooks.fail_at = r.hooks.requests + n;
        CO_EXPECT_CODE(coi_devices_declare(r.devices, "GPU", 4, NULL), CO_RESOURCE_EXHAUSTED);
        CO_EXPECT_INT(coi_devices_count(r.devices), 1);
    }
    r.hooks.fail_at = 0;
    CO_EXPECT_CODE(coi_devices_declare(r.devices, "GPU", 4, NULL), CO_OK);
    CO_EXPECT_INT(coi_devices_count(r.devices), 5);
    tear_down(&r);
}

static void *
declare_some(void *arg)
{
    for (int i = 0; i < 20; ++i) {
        coi_device_name name = { "localhost", 0, 0, "GPU", i };
        co_device      *device;

        coi_devices_declare(arg, "GPU", 2, NULL);
        if (coi_devices_find(arg, &name, &device, NULL) != CO_OK)
            return arg;
    }
    return NULL;
}

CO_TEST_BARE(devices_may_be_declared_and_found_by_several_threads, "")
{
    rig       r;
    pthread_t threads[3];

    set_up(&r, 2, "cpus=1");
    for (size_t i = 0; i < 3; ++i)
        CO_REQUIRE(pthread_create(&threads[i], NULL, declare_some, r.devices) == 0);
    for (size_t i = 0; i < 3; ++i) {
        void *result = &r;

        pthread_join(threads[i], &result);
        CO_EXPECT_NULL(result);
    }
    CO_EXPECT_INT(coi_devices_count(r.devices), 121);
    for (size_t i = 0; i < 120; ++i)
        CO_EXPECT_INT(coi_devices_of_type(r.devices, "GPU", i)->id.index, i);
    tear_down(&r);
}

CO_TEST_BARE(copies_of_host_memory_are_plain, "")
{
    rig           r;
    co_error_info err = { .code = CO_OK };
    co_device    *cpu;
    coi_buffer   *one, *two;
    char          to[8] = "";

    set_up(&r, 2, "cpus=1");
    cpu = coi_devices_at(r.devices, 0);
    one = coi_buffer_alloc(cpu, 16, NULL);
    two = coi_buffer_alloc(cpu, 16, NULL);
    CO_EXPECT_INT(coi_device_upload(cpu, one, 8, "cohort!", 8, &err), CO_OK);
    CO_EXPECT_INT(coi_device_copy(cpu, two, 0, cpu, one, 8, 8, &err), CO_OK);
    CO_EXPECT_INT(coi_device_fill(cpu, two, 0, 'C', 1, &err), CO_OK);
    CO_EXPECT_INT(coi_device_download(cpu, to, two, 0, 8, &err), CO_OK);
    CO_EXPECT_STR(to, "Cohort!");
    CO_EXPECT_INT(coi_device_upload(cpu, one, 0, NULL, 0, &err), CO_OK);
    CO_EXPECT_INT(coi_device_download(cpu, NULL, one, 0, 0, &err), CO_OK);
    CO_EXPECT_INT(coi_device_synchronize(cpu, &err), CO_OK);
    coi_buffer_unref(one);
    coi_buffer_unref(two);
    tear_down(&r);
}

static int num_uploads, num_downloads, num_waits, num_frees;

static co_code
count_upload(co_backend_queue *queue, co_backend_buffer *dst, size_t offset, const void *src,
             size_t nbytes, co_error_info *err)
{
    ++num_uploads;
    return coi_cpu_backend.queue->upload(queue, dst, offset, src, nbytes, err);
}

static co_code
count_download(co_backend_queue *queue, void *dst, co_backend_buffer *src, size_t offset,
               size_t nbytes, co_error_info *err)
{
    ++num_downloads;
    return coi_cpu_backend.queue->download(queue, dst, src, offset, nbytes, err);
}

static co_code
count_synchronize(co_backend_queue *queue, co_error_info *err)
{
    (void)queue, (void)err;
    ++num_waits;
    return CO_OK;
}

static void
count_free(co_backend_device *device, co_backend_buffer *buffer, size_t nbytes)
{
    CO_EXPECT_TRUE(num_waits > 0); /* nothing may pend */
    ++num_frees;
    coi_cpu_backend.buffer->free(device, buffer, nbytes);
}

CO_TEST_BARE(optional_slots_of_a_backend_have_fallbacks, "")
{
    co_backend_queue_table  queue = *coi_cpu_backend.queue;
    co_backend_buffer_table buffer = *coi_cpu_backend.buffer;
    co_backend              far = coi_cpu_backend;
    rig                     r;
    co_error_info           err = { .code = CO_OK };
    co_device              *gpus[2];
    coi_buffer             *one, *two;
    char                    to[8] = "";

    queue.upload = count_upload;
    queue.download = count_download;
    queue.synchronize = count_synchronize;
    queue.copy = NULL;
    queue.fill = NULL;
    queue.free = NULL;
    buffer.free = count_free;
    far.host_memory = false;
    far.queue = &queue;
    far.buffer = &buffer;
    far.event = NULL;
    num_uploads = num_downloads = num_waits = num_frees = 0;
    set_up(&r, 2, "devices=GPU:2");
    for (size_t i = 0; i < 2; ++i) {
        gpus[i] = coi_devices_of_type(r.devices, "GPU", i);
        gpus[i]->backend = &far;
        gpus[i]->cpu_kernels = false;
        gpus[i]->host_memory = false;
    }
    one = coi_buffer_alloc(gpus[0], 5000, NULL);
    two = coi_buffer_alloc(gpus[1], 5000, NULL);
    CO_EXPECT_INT(coi_device_fill(gpus[0], one, 1, 'x', 4999, &err), CO_OK);
    CO_EXPECT_INT(num_uploads, 2); /* of 4096 bytes each */
    CO_EXPECT_INT(coi_device_upload(gpus[0], one, 4992, "cohort!", 8, &err), CO_OK);
    CO_EXPECT_INT(coi_device_copy(gpus[1], two, 0, gpus[0], one, 4992, 8, &err), CO_OK);
    CO_EXPECT_INT(num_downloads, 1); /* by way of the host, which waited for the bytes */
    CO_EXPECT_INT(num_waits, 1);
    CO_EXPECT_INT(num_uploads, 4);
    CO_EXPECT_INT(coi_device_download(gpus[1], to, two, 0, 8, &err), CO_OK);
    CO_EXPECT_STR(to, "cohort!");
    CO_EXPECT_INT(num_waits, 2);
    coi_buffer_unref(one);
    coi_buffer_unref(two);
    coi_devices_trim(r.devices);
    CO_EXPECT_INT(num_frees, 2);
    for (size_t i = 0; i < 2; ++i) {
        gpus[i]->backend = &coi_cpu_backend;
        gpus[i]->cpu_kernels = true;
        gpus[i]->host_memory = true;
    }
    tear_down(&r);
}

/* What a shared object may hold. */
CO_TEST_BARE(a_backend_that_is_not_whole_is_refused_with_the_reason, "")
{
    co_backend_registry_table registry = *coi_cpu_backend.registry;
    co_backend_device_table   device = *coi_cpu_backend.device;
    co_backend_queue_table    queue = *coi_cpu_backend.queue;
    co_backend_event_table    event = *coi_cpu_backend.event;
    co_backend                good = coi_cpu_backend, bad[10];
    static const char *const  reasons[10] = {
         "abi",      "struct_size", "name",   "type",  "type",
         "registry", "device",      "buffer", "queue", "event"
    };

    registry.open = NULL;
    device.alloc = NULL;
    queue.synchronize = NULL;
    event.wait = NULL;
    for (size_t i = 0; i < 10; ++i)
        bad[i] = good;
    bad[0].abi += 1;
    bad[1].struct_size -= 1;
    bad[2].name = "";
    bad[3].device_type = NULL;
    bad[4].device_type = "gpu";
    bad[5].registry = &registry;
    bad[6].device = &device;
    bad[7].buffer = NULL;
    bad[8].queue = &queue;
    bad[9].event = &event;
    CO_EXPECT_INT(coi_backend_check(&good, "good.so", NULL), CO_OK);
    for (size_t i = 0; i < 10; ++i) {
        co_error_info err = { .code = CO_OK };

        CO_EXPECT_TRUE(coi_backend_check(&bad[i], "bad.so", &err) != CO_OK);
        CO_EXPECT_CONTAINS(err.message, "bad.so");
        CO_EXPECT_CONTAINS(err.message, reasons[i]);
    }
}
