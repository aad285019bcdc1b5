/* SPDX-License-Identifier: Apache-2.0 */
/* Device names: every example of DEV-1 to DEV-8, their neighbours, and input meant to hurt. */
#include "device/device.h"
#include "test.h"

#define HOME "/job:localhost/replica:0/task:0"

typedef struct good_name {
    const char *text;
    const char *canonical;
} good_name;

/* The canonical text of a name, missing parts from `current` (NULL: none) and then from DEV-2. */
static co_code
resolve(const char *text, const char *current, char *out, co_error_info *err)
{
    coi_device_name name;
    coi_device_name defaults;
    co_code         rc = coi_device_parse(text, &name, err);

    if (rc != CO_OK)
        return rc;
    if (current != NULL)
        CO_REQUIRE(coi_device_parse(current, &defaults, NULL) == CO_OK);
    coi_device_complete(&name, current != NULL ? &defaults : NULL);
    coi_device_format(&name, out);
    return CO_OK;
}

static void
expect_good(const good_name *cases, size_t count, const char *current)
{
    for (size_t i = 0; i < count; ++i) {
        char          out[CO_DEVICE_NAME_MAX] = "";
        co_error_info err;

        coi_error_reset(&err);
        if (!CO_EXPECT_CODE(resolve(cases[i].text, current, out, &err), CO_OK))
            CO_FAIL("'%s': %s", cases[i].text, err.message);
        if (!CO_EXPECT_STR(out, cases[i].canonical))
            CO_FAIL("'%s'", cases[i].text);
    }
}

CO_TEST_BARE(names_become_canonical, "DEV-1 DEV-2 DEV-6 DEV-8")
{
    static const good_name cases[] = {
        { NULL, HOME "/device:CPU:0" },
        { "", HOME "/device:CPU:0" },
        { "/", HOME "/device:CPU:0" },
        { "///", HOME "/device:CPU:0" },
        /* short forms */
        { "/cpu:0", HOME "/device:CPU:0" },
        { "cpu:0", HOME "/device:CPU:0" },
        { "CPU:0", HOME "/device:CPU:0" },
        { "/device:CPU:0", HOME "/device:CPU:0" },
        { "device:CPU:0", HOME "/device:CPU:0" },
        { "/gpu:0", HOME "/device:GPU:0" },
        { "gpu:1", HOME "/device:GPU:1" },
        { "/Gpu:1", HOME "/device:GPU:1" },
        { "/tpu:2", HOME "/device:TPU:2" },
        { "/tPu:2", HOME "/device:TPU:2" },
        { "/cpu", HOME "/device:CPU:0" },
        { "gpu", HOME "/device:GPU:0" },
        { "/custom:3", HOME "/device:CUSTOM:3" },
        { "/EPU:1", HOME "/device:EPU:1" },
        /* the /device: form */
        { "/device:cpu:1", HOME "/device:CPU:1" },
        { "/device:gpu:1", HOME "/device:GPU:1" },
        { "/device:Gpu:1", HOME "/device:GPU:1" },
        { "/device:FOO:2", HOME "/device:FOO:2" },
        { "/device:XLA_CPU:0", HOME "/device:XLA_CPU:0" },
        { "/device:TPU:11", HOME "/device:TPU:11" },
        /* some parts */
        { "/job:worker/task:1/cpu:0", "/job:worker/replica:0/task:1/device:CPU:0" },
        { "/replica:3/cpu:0", "/job:localhost/replica:3/task:0/device:CPU:0" },
        { "/task:1", "/job:localhost/replica:0/task:1/device:CPU:0" },
        { "/job:ps", "/job:ps/replica:0/task:0/device:CPU:0" },
        { "/job:w/replica:1/task:2/device:GPU:3", "/job:w/replica:1/task:2/device:GPU:3" },
        { HOME "/device:CPU:1", HOME "/device:CPU:1" },
        /* wildcards */
        { "/cpu:*", HOME "/device:CPU:0" },
        { "/device:GPU:*", HOME "/device:GPU:0" },
        { "/job:w/device:CPU:*", "/job:w/replica:0/task:0/device:CPU:0" },
        /* any order, the last counts */
        { "/cpu:1/task:2/replica:3/job:w", "/job:w/replica:3/task:2/device:CPU:1" },
        { "/job:a/job:b", "/job:b/replica:0/task:0/device:CPU:0" },
        { "/task:1/task:2/task:3", "/job:localhost/replica:0/task:3/device:CPU:0" },
        { "/cpu:0/gpu:1", HOME "/device:GPU:1" },
        { "/gpu:1/cpu", HOME "/device:CPU:0" },
        { "/gpu:1/device:TPU:*", HOME "/device:TPU:0" },
        /* slashes and zeros that mean nothing */
        { "/cpu:0/", HOME "/device:CPU:0" },
        { "//job:w//cpu:007", "/job:w/replica:0/task:0/device:CPU:7" },
        /* at the limit */
        { "/cpu:2147483647", HOME "/device:CPU:2147483647" },
        { "/job:abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk",
          "/job:abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk/replica:0/task:0"
          "/device:CPU:0" },
        { "/device:ABCDEFGHIJKLMNOPQRSTUVWXYZABCDE:1",
          HOME "/device:ABCDEFGHIJKLMNOPQRSTUVWXYZABCDE:1" },
    };

    expect_good(cases, sizeof(cases) / sizeof(cases[0]), NULL);
}

CO_TEST_BARE(missing_parts_come_from_the_current_device_first, "DEV-3 DEV-6")
{
    static const good_name on_cpu1[] = {
        { "", HOME "/device:CPU:1" },
        { NULL, HOME "/device:CPU:1" },
        { "/cpu:0", HOME "/device:CPU:0" },
        { "/cpu:*", HOME "/device:CPU:1" }, /* a wildcard counts as missing */
        { "/task:1", "/job:localhost/replica:0/task:1/device:CPU:1" },
        { "/gpu:0", HOME "/device:GPU:0" },
    };
    static const good_name on_worker[] = {
        { "", "/job:worker/replica:1/task:2/device:GPU:3" },
        { "/cpu:0", "/job:worker/replica:1/task:2/device:CPU:0" },
        { "/job:ps/task:0", "/job:ps/replica:1/task:0/device:GPU:3" },
    };
    static const good_name on_partial[] = {
        { "", "/job:worker/replica:0/task:0/device:CPU:0" },
        { "/gpu:1", "/job:worker/replica:0/task:0/device:GPU:1" },
    };

    expect_good(on_cpu1, sizeof(on_cpu1) / sizeof(on_cpu1[0]), "cpu:1");
    expect_good(on_worker, sizeof(on_worker) / sizeof(on_worker[0]),
                "/job:worker/replica:1/task:2/device:GPU:3");
    expect_good(on_partial, sizeof(on_partial) / sizeof(on_partial[0]), "/job:worker");
}

typedef struct bad_name {
    const char *text;
    co_code     code;
    const char *message;
} bad_name;

CO_TEST_BARE(bad_names_are_refused_by_kind, "DEV-4 DEV-8")
{
    static const bad_name cases[] = {
        /* unknown components */
        { "foo", CO_VALUE_ERROR, "device name 'foo', part 'foo': unknown" },
        { "/foo:0", CO_VALUE_ERROR, "part 'foo:0': unknown" },
        { "/cpu:0/foo", CO_VALUE_ERROR, "device name '/cpu:0/foo', part 'foo'" },
        { "/npu:0", CO_VALUE_ERROR, "part 'npu:0'" },
        { "/Job:w", CO_VALUE_ERROR, "part 'Job:w'" },
        { "/job", CO_VALUE_ERROR, "part 'job'" },
        { "/task", CO_VALUE_ERROR, "part 'task'" },
        { "/job:a:b", CO_VALUE_ERROR, "part 'job:a:b'" },
        { "/cpu:0:0", CO_VALUE_ERROR, "part 'cpu:0:0'" },
        { "/cpus:0", CO_VALUE_ERROR, "part 'cpus:0'" },
        { "/cp:0", CO_VALUE_ERROR, "part 'cp:0'" },
        { ":", CO_VALUE_ERROR, "part ':'" },
        { ":0", CO_VALUE_ERROR, "part ':0'" },
        { "::::::", CO_VALUE_ERROR, "part '::::::'" },
        { " ", CO_VALUE_ERROR, "part ' '" },
        { "/cpu :0", CO_VALUE_ERROR, "part 'cpu :0'" },
        { "*", CO_VALUE_ERROR, "part '*'" },
        /* lower case in the /device: form */
        { "/device:foo:2", CO_ASSERTION_ERROR, "must be in capitals" },
        { "/device:tpu:0", CO_ASSERTION_ERROR, "must be in capitals" },
        { "/device:Foo:2", CO_ASSERTION_ERROR, "must be in capitals" },
        { "/device:cpus:0", CO_ASSERTION_ERROR, "must be in capitals" },
        /* no index, no type */
        { "/device:CPU", CO_VALUE_ERROR, "such as device:CPU:0" },
        { "/device", CO_VALUE_ERROR, "such as device:CPU:0" },
        { "/device:", CO_VALUE_ERROR, "such as device:CPU:0" },
        { "/device::", CO_VALUE_ERROR, "expected a type" },
        { "/device::0", CO_VALUE_ERROR, "expected a type" },
        { "/device:*:0", CO_VALUE_ERROR, "expected a type" },
        { "/device:0:0", CO_VALUE_ERROR, "expected a type" },
        { "/device:G U:0", CO_VALUE_ERROR, "expected a type" },
        { "/device:CPU:0:0", CO_VALUE_ERROR, "unknown" },
        { "/device:ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF:1", CO_VALUE_ERROR, "1 to 31" },
        { "/device:G\xc3\x9c:1", CO_VALUE_ERROR, "expected a type" },
        /* numbers */
        { "/cpu:x", CO_VALUE_ERROR, "expected a whole number from 0 to 2147483647" },
        { "/cpu:", CO_VALUE_ERROR, "expected a whole number" },
        { "/cpu:-1", CO_VALUE_ERROR, "expected a whole number" },
        { "/cpu:+1", CO_VALUE_ERROR, "expected a whole number" },
        { "/cpu: 1", CO_VALUE_ERROR, "expected a whole number" },
        { "/cpu:1 ", CO_VALUE_ERROR, "expected a whole number" },
        { "/cpu:1_0", CO_VALUE_ERROR, "expected a whole number" },
        { "/cpu:0x1", CO_VALUE_ERROR, "expected a whole number" },
        { "/cpu:1.0", CO_VALUE_ERROR, "expected a whole number" },
        { "/cpu:**", CO_VALUE_ERROR, "expected a whole number" },
        { "/cpu:2147483648", CO_VALUE_ERROR, "expected a whole number" },
        { "/cpu:99999999999999999999999", CO_VALUE_ERROR, "expected a whole number" },
        { "/device:CPU:x", CO_VALUE_ERROR, "expected a whole number" },
        { "/device:CPU:", CO_VALUE_ERROR, "expected a whole number" },
        { "/task:x", CO_VALUE_ERROR, "expected a whole number" },
        { "/task:", CO_VALUE_ERROR, "expected a whole number" },
        { "/task:*", CO_VALUE_ERROR, "expected a whole number" },
        { "/replica:one", CO_VALUE_ERROR, "expected a whole number" },
        { "/replica:4294967296", CO_VALUE_ERROR, "expected a whole number" },
        /* jobs */
        { "/job:", CO_VALUE_ERROR, "expected a job" },
        { "/job:a b", CO_VALUE_ERROR, "expected a job" },
        { "/job:a\nb", CO_VALUE_ERROR, "part 'job:a b'" },
        { "/job:gr\xc3\xbcn", CO_VALUE_ERROR, "part 'job:gr\xc3\xbcn'" },
        { "/job:\xff\xfe", CO_VALUE_ERROR, "part 'job:?" },
        { "/job:abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl", CO_VALUE_ERROR,
          "1 to 63" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        coi_device_name name = { "kept", 7, 8, "KEPT", 9 };
        co_error_info   err;

        coi_error_reset(&err);
        if (!CO_EXPECT_CODE(coi_device_parse(cases[i].text, &name, &err), cases[i].code))
            CO_FAIL("'%s'", cases[i].text);
        CO_EXPECT_CONTAINS(err.message, cases[i].message);
        CO_EXPECT_STR(name.job, "kept"); /* written on success only */
        CO_EXPECT_INT(name.index, 9);
    }
}

CO_TEST_BARE(a_name_of_any_length_is_read_in_one_pass, "DEV-4")
{
    size_t          length = 4000000;
    char           *text = malloc(length + 1);
    coi_device_name name;
    co_error_info   err;

    CO_REQUIRE(text != NULL);
    text[length] = '\0';
    memset(text, 'a', length);
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_device_parse(text, &name, &err), CO_VALUE_ERROR);
    CO_EXPECT_LESS(strlen(err.message), 400);
    memset(text, ':', length);
    CO_EXPECT_CODE(coi_device_parse(text, &name, NULL), CO_VALUE_ERROR);
    memset(text, '/', length);
    CO_EXPECT_CODE(coi_device_parse(text, &name, NULL), CO_OK);
    for (size_t i = 0; i < length; i += 4)
        memcpy(text + i, "/cpu", 4);
    CO_EXPECT_CODE(coi_device_parse(text, &name, NULL), CO_OK);
    CO_EXPECT_STR(name.type, "CPU");
    free(text);
}

CO_TEST_BARE(the_host_of_a_device_is_cpu_0_of_its_task, "DEV-7")
{
    static const good_name cases[] = {
        { "/job:worker/replica:1/task:2/device:GPU:3",
          "/job:worker/replica:1/task:2/device:CPU:0" },
        { "/cpu:3", HOME "/device:CPU:0" },
        { "/device:SOMETHING_LONG:3", HOME "/device:CPU:0" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        coi_device_name name;
        coi_device_name host;
        char            out[CO_DEVICE_NAME_MAX];

        CO_REQUIRE(coi_device_parse(cases[i].text, &name, NULL) == CO_OK);
        coi_device_complete(&name, NULL);
        coi_device_host(&name, &host);
        coi_device_format(&host, out);
        CO_EXPECT_STR(out, cases[i].canonical);
        coi_device_host(&name, &name);
        CO_EXPECT_TRUE(coi_device_name_equal(&name, &host));
    }
}

/* In deferred-graph mode the job part is left out: the text of a name has the parts it has. */
CO_TEST_BARE(missing_parts_are_not_written, "DEV-2")
{
    coi_device_name name;
    char            out[CO_DEVICE_NAME_MAX];

    CO_REQUIRE(coi_device_parse("/replica:0/task:0/device:CPU:0", &name, NULL) == CO_OK);
    coi_device_format(&name, out);
    CO_EXPECT_STR(out, "/replica:0/task:0/device:CPU:0");
    CO_REQUIRE(coi_device_parse("/gpu:*", &name, NULL) == CO_OK);
    coi_device_format(&name, out);
    CO_EXPECT_STR(out, "/device:GPU:*");
    CO_REQUIRE(coi_device_parse("", &name, NULL) == CO_OK);
    coi_device_format(&name, out);
    CO_EXPECT_STR(out, "");
}

CO_TEST_BARE(the_longest_name_fits, "DEV-2")
{
    coi_device_name name;
    char            out[CO_DEVICE_NAME_MAX];

    memset(&name, 'J', sizeof(name));
    name.job[sizeof(name.job) - 1] = '\0';
    name.type[sizeof(name.type) - 1] = '\0';
    name.replica = name.task = name.index = 2147483647;
    coi_device_format(&name, out);
    CO_EXPECT_INT(strlen(out), 153);
}

/*
 * Pieces of names thrown together: no crash, the two codes of the rules, and what is read is
 * written alike.
 */
CO_TEST_BARE(random_names_are_refused_or_written_as_read, "DEV-1 DEV-4 DEV-8")
{
    static const char *const pieces[] = {
        "/",   ":",   "job",  "replica", "task", "device", "cpu",    "GPU",
        "TPU", "foo", "FOO",  "*",       "0",    "7",      "-",      "2147483647",
        "_",   " ",   "\xc3", "\x01",    "/job", "/cpu",   "/task:", "/device:"
    };
    uint64_t state = 1;
    int      num_good = 0;

    for (int round = 0; round < 100000; ++round) {
        char            text[128] = "";
        char            again[CO_DEVICE_NAME_MAX];
        coi_device_name name;
        coi_device_name second;
        co_error_info   err;
        co_code         rc;

        for (int i = 0; i < 1 + round % 8; ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            strcat(text, pieces[(state >> 33) % (sizeof(pieces) / sizeof(pieces[0]))]);
        }
        coi_error_reset(&err);
        rc = coi_device_parse(text, &name, &err);
        if (rc != CO_OK) {
            CO_REQUIRE(rc == CO_VALUE_ERROR || rc == CO_ASSERTION_ERROR);
            CO_REQUIRE(err.code == rc && strncmp(err.message, "device name '", 13) == 0);
            continue;
        }
        ++num_good;
        coi_device_complete(&name, NULL);
        coi_device_format(&name, again);
        CO_REQUIRE(coi_device_parse(again, &second, NULL) == CO_OK);
        CO_REQUIRE(coi_device_name_equal(&name, &second));
    }
    CO_EXPECT_MORE(num_good, 1000);
}
