/* SPDX-License-Identifier: Apache-2.0 */
/* Cores and quotas, against the machine and against file systems made up for the purpose. */
#include "base/topology.h"
#include "hooks.h"
#include "test.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fake_root {
    char path[200];
} fake_root;

static void
make_root(fake_root *root)
{
    const char *folder = getenv("TMPDIR");

    snprintf(root->path, sizeof(root->path), "%s/cohort-root-XXXXXX",
             folder != NULL ? folder : "/tmp");
    CO_REQUIRE(mkdtemp(root->path) != NULL);
}

static void
write_file(const fake_root *root, const char *path, const char *text)
{
    char  whole[600];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s%s", root->path, path);
    for (char *at = strchr(whole + strlen(root->path) + 1, '/'); at != NULL;
         at = strchr(at + 1, '/')) {
        *at = '\0';
        CO_REQUIRE(mkdir(whole, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
    file = fopen(whole, "w");
    CO_REQUIRE(file != NULL);
    fputs(text, file);
    fclose(file);
}

static void
remove_root(const fake_root *root)
{
    char command[300];

    snprintf(command, sizeof(command), "rm -rf '%s'", root->path);
    CO_EXPECT_INT(system(command), 0);
}

#define V2 "/sys/fs/cgroup"
#define V1 "/sys/fs/cgroup/cpu"

CO_TEST_BARE(without_cgroup_there_is_no_limit, "")
{
    fake_root root;

    make_root(&root);
    CO_EXPECT_INT(coi_topology_quota(root.path), INT_MAX);
    write_file(&root, "/proc/self/cgroup", "0::/\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), INT_MAX);
    CO_EXPECT_INT(coi_topology_quota("/nowhere"), INT_MAX);
    remove_root(&root);
}

CO_TEST_BARE(version_2_quotas_are_read_and_rounded_up, "")
{
    static const struct {
        const char *text;
        int         cores;
    } cases[] = {
        { "200000 100000\n", 2 },
        { "150000 100000\n", 2 },
        { "1000 100000\n", 1 },
        { "100001 100000\n", 2 },
        { "max 100000\n", INT_MAX },
        { "", INT_MAX },
        { "junk\n", INT_MAX },
        { "100000\n", INT_MAX },
        { "100000 0\n", INT_MAX },
        { "-5 100000\n", INT_MAX },
        { "9223372036854775807 1\n", INT_MAX },
    };
    fake_root root;

    make_root(&root);
    write_file(&root, "/proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        write_file(&root, V2 "/cpu.max", cases[i].text);
        CO_EXPECT_INT(coi_topology_quota(root.path), cases[i].cores);
    }
    remove_root(&root);
}

CO_TEST_BARE(the_smallest_limit_on_the_way_up_counts, "")
{
    fake_root root;

    make_root(&root);
    write_file(&root, "/proc/self/cgroup", "0::/user.slice/job/step\n");
    write_file(&root, V2 "/user.slice/job/step/cpu.max", "max 100000\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), INT_MAX);
    write_file(&root, V2 "/user.slice/cpu.max", "300000 100000\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), 3);
    write_file(&root, V2 "/user.slice/job/cpu.max", "800000 100000\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), 3);
    write_file(&root, V2 "/user.slice/job/step/cpu.max", "100000 50000\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), 2);
    remove_root(&root);
}

/* Inside a container the path of the host is told, but the mount shows our group as its root. */
CO_TEST_BARE(a_path_that_is_not_mounted_leaves_the_mount_itself, "")
{
    fake_root root;

    make_root(&root);
    write_file(&root, "/proc/self/cgroup", "4:cpu,cpuacct:/docker/0123456789\n");
    write_file(&root, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
    write_file(&root, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), 4);
    write_file(&root, "/proc/self/cgroup", "0::/../../outside\n");
    write_file(&root, V2 "/cpu.max", "100000 100000\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), 1);
    remove_root(&root);
}

CO_TEST_BARE(version_1_quotas_are_read_beside_version_2, "")
{
    fake_root root;

    make_root(&root);
    write_file(&root, "/proc/self/cgroup",
               "9:name=systemd:/a\n3:cpuset:/a\n2:cpuacct:/a\n1:cpu:/a/b\n0::/a\n");
    write_file(&root, V1 "/a/b/cpu.cfs_quota_us", "-1\n");
    write_file(&root, V1 "/a/b/cpu.cfs_period_us", "100000\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), INT_MAX);
    write_file(&root, V1 "/a/cpu.cfs_quota_us", "250000\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), INT_MAX); /* no period beside it */
    write_file(&root, V1 "/a/cpu.cfs_period_us", "100000\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), 3);
    write_file(&root, "/sys/fs/cgroup/unified/a/cpu.max", "200000 100000\n");
    CO_EXPECT_INT(coi_topology_quota(root.path), 2);
    remove_root(&root);
}

CO_TEST_BARE(damaged_cgroup_files_mean_no_limit, "")
{
    static const char *const cases[] = { "\n\n\n",        "0",           "0:", "0::", "::", ":::",
                                         "0::relative\n", "a:b:c:d:/e\n" };
    fake_root                root;
    char                    *text = malloc(20000);

    CO_REQUIRE(text != NULL);
    make_root(&root);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        write_file(&root, "/proc/self/cgroup", cases[i]);
        CO_EXPECT_INT(coi_topology_quota(root.path), INT_MAX);
    }
    memset(text, '/', 19999);
    memcpy(text, "0::", 3);
    text[19999] = '\0';
    write_file(&root, "/proc/self/cgroup", text);
    CO_EXPECT_INT(coi_topology_quota(root.path), INT_MAX);
    free(text);
    remove_root(&root);
}

static void
place_core(const fake_root *root, int core, int package, int cache, int id)
{
    static const char *const facts[] = { "topology/physical_package_id", "cache/index3/id",
                                         "topology/core_id" };
    int                      numbers[] = { package, cache, id };

    for (size_t i = 0; i < 3; ++i) {
        char path[200];
        char text[20];

        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/%s", core, facts[i]);
        snprintf(text, sizeof(text), "%d\n", numbers[i]);
        write_file(root, path, text);
    }
}

/* Two packages of two cores with two threads each, numbered as Linux does: first threads first. */
CO_TEST_BARE(cores_are_sorted_by_locality, "")
{
    static const int sorted[] = { 0, 4, 2, 6, 1, 5, 3, 7 };
    int              cores[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    fake_root        root;
    coi_memory       memory;

    make_root(&root);
    for (int i = 0; i < 8; ++i)
        place_core(&root, i, i % 2, i % 2, i % 4 / 2);
    coi_memory_init(&memory, NULL);
    CO_EXPECT_CODE(coi_topology_sort(&memory, root.path, cores, 8, NULL), CO_OK);
    CO_EXPECT_BYTES(cores, sorted, sizeof(sorted));
    /* Cores that share a last-level cache stay together within a package. */
    for (int i = 0; i < 8; ++i)
        place_core(&root, i, 0, i % 2, i);
    CO_EXPECT_CODE(coi_topology_sort(&memory, root.path, cores, 8, NULL), CO_OK);
    CO_EXPECT_BYTES(cores, ((int[]){ 0, 2, 4, 6, 1, 3, 5, 7 }), sizeof(cores));
    /* Without sysfs the numbers decide. */
    CO_EXPECT_CODE(coi_topology_sort(&memory, "/nowhere", cores, 8, NULL), CO_OK);
    CO_EXPECT_BYTES(cores, ((int[]){ 0, 1, 2, 3, 4, 5, 6, 7 }), sizeof(cores));
    CO_EXPECT_INT(memory.bytes_in_use, 0);
    remove_root(&root);
}

/* Machines have more processors than a cpu_set_t of the C library holds. */
CO_TEST_BARE(large_masks_are_read_whole, "")
{
    static const int set[] = { 3, 1023, 1024, 5000, 65535 };
    size_t           nbytes = CPU_ALLOC_SIZE(65536);
    cpu_set_t       *mask = calloc(1, nbytes);
    fake_root        root;
    coi_memory       memory;
    coi_topology     topology;

    CO_REQUIRE(mask != NULL);
    make_root(&root);
    coi_memory_init(&memory, NULL);
    for (size_t i = 0; i < 5; ++i)
        CPU_SET_S((size_t)set[i], nbytes, mask);
    place_core(&root, 3, 1, 0, 0); /* the other package: last */
    write_file(&root, "/proc/self/cgroup", "0::/\n");
    write_file(&root, V2 "/cpu.max", "250000 100000\n");
    CO_REQUIRE(coi_topology_from_mask(&topology, &memory, root.path, mask, nbytes, NULL) == CO_OK);
    CO_EXPECT_INT(topology.num_cores, 5);
    CO_EXPECT_BYTES(topology.cores, ((int[]){ 1023, 1024, 5000, 65535, 3 }), sizeof(set));
    CO_EXPECT_INT(topology.quota, 3);
    CO_EXPECT_INT(coi_topology_usable(&topology), 3);
    coi_topology_destroy(&topology, &memory);
    /* No mask, or an empty one: a sandbox that forbids the call leaves one core. */
    memset(mask, 0, nbytes);
    CO_REQUIRE(coi_topology_from_mask(&topology, &memory, "", mask, nbytes, NULL) == CO_OK);
    CO_EXPECT_INT(topology.num_cores, 1);
    CO_EXPECT_INT(topology.quota, 1);
    coi_topology_destroy(&topology, &memory);
    CO_REQUIRE(coi_topology_from_mask(&topology, &memory, "", NULL, 0, NULL) == CO_OK);
    CO_EXPECT_INT(topology.num_cores, 1);
    CO_EXPECT_INT(topology.cores[0], 0);
    coi_topology_destroy(&topology, &memory);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
    free(mask);
    remove_root(&root);
}

CO_TEST_BARE(the_cores_are_those_of_the_inherited_affinity, "")
{
    cpu_set_t    mask;
    coi_memory   memory;
    coi_topology topology;
    int          highest = 0;

    coi_memory_init(&memory, NULL);
    CO_REQUIRE(sched_getaffinity(0, sizeof(mask), &mask) == 0);
    CO_REQUIRE(coi_topology_init(&topology, &memory, NULL) == CO_OK);
    CO_EXPECT_INT(topology.num_cores, CPU_COUNT(&mask));
    for (int i = 0; i < topology.num_cores; ++i) {
        CO_EXPECT_TRUE(CPU_ISSET((size_t)topology.cores[i], &mask));
        highest = topology.cores[i] > highest ? topology.cores[i] : highest;
    }
    CO_EXPECT_TRUE(topology.quota >= 1 && topology.quota <= topology.num_cores);
    CO_EXPECT_INT(coi_topology_usable(&topology), topology.quota);
    coi_topology_destroy(&topology, &memory);

    CPU_ZERO(&mask);
    CPU_SET((size_t)highest, &mask);
    CO_REQUIRE(sched_setaffinity(0, sizeof(mask), &mask) == 0);
    CO_REQUIRE(coi_topology_init(&topology, &memory, NULL) == CO_OK);
    CO_EXPECT_INT(topology.num_cores, 1);
    CO_EXPECT_INT(topology.cores[0], highest);
    CO_EXPECT_INT(topology.quota, 1);
    coi_topology_destroy(&topology, &memory);
    CO_EXPECT_INT(memory.bytes_in_use, 0);
}

/* Three cores at least, so that sorting takes part. */
CO_TEST_BARE(each_allocation_of_the_topology_may_fail, "")
{
    cpu_set_t mask;
    bool      done = false;

    CPU_ZERO(&mask);
    for (size_t i = 0; i < 3; ++i)
        CPU_SET(i, &mask);
    for (long long n = 1; !done; ++n) {
        test_hooks    hooks;
        coi_memory    memory;
        coi_topology  topology;
        co_error_info err;
        co_code       rc;

        CO_REQUIRE(n < 20);
        coi_error_reset(&err);
        test_hooks_init(&hooks, n);
        coi_memory_init(&memory, &hooks.allocator);
        rc = coi_topology_from_mask(&topology, &memory, "", &mask, sizeof(mask), &err);
        done = rc == CO_OK;
        if (done)
            coi_topology_destroy(&topology, &memory);
        else
            CO_EXPECT_CODE(err.code, CO_RESOURCE_EXHAUSTED);
        CO_EXPECT_INT(n, hooks.requests + done);
        CO_EXPECT_INT(hooks.blocks, 0);
    }
}

CO_TEST_BARE(each_allocation_of_reading_the_affinity_may_fail, "")
{
    bool done = false;

    for (long long n = 1; !done; ++n) {
        test_hooks    hooks;
        coi_memory    memory;
        coi_topology  topology;
        co_error_info err;
        co_code       rc;

        CO_REQUIRE(n < 20);
        coi_error_reset(&err);
        test_hooks_init(&hooks, n);
        coi_memory_init(&memory, &hooks.allocator);
        rc = coi_topology_init(&topology, &memory, &err);
        done = hooks.requests < n;
        if (rc == CO_OK) {
            CO_EXPECT_MORE(topology.num_cores, 0);
            coi_topology_destroy(&topology, &memory);
        } else {
            CO_EXPECT_CODE(rc, CO_RESOURCE_EXHAUSTED);
            CO_EXPECT_CODE(err.code, CO_RESOURCE_EXHAUSTED);
        }
        CO_EXPECT_INT(hooks.blocks, 0);
    }
}
