/* SPDX-License-Identifier: Apache-2.0 */
/* update_config_proto: what strategies set in a serialized message, and bytes that are none.
 * S-CFG-*, MW-12. */
#include <cohort/v1.h>
#include "test.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Field 1 (bytes), 7 (a flag), 16 (a message), 1001 (unknown): the flag goes between 7 and 16. */
CO_TEST_WITH(config_protos_are_copied_and_marked, "S-CFG-1 S-CFG-2 S-V1-2", "cpus=2")
{
    static const char in[] = "\x0a\x02zz\x38\x01\x82\x01\x02\x38\x01\xc8\x3e\x07",
                      out[] = "\x0a\x02zz\x38\x01\x78\x01\x82\x01\x02\x38\x01\xc8\x3e\x07",
                      off[] = "\x78\x00\x7d"
                              "abcd",
                      on[] = "\x78\x01";
    static const struct {
        const char *bytes;
        size_t      n;
    } wrong[] = { { "\x80", 1 },
                  { "\x0a\x05zz", 4 },
                  { "\x39zz", 3 },
                  { "\x0b", 1 },
                  { "\x08", 1 },
                  { "\x0a", 1 },
                  { "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11 } };
    co_strategy *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL),
                *one = co_v1_one_device_strategy(ctx, NULL);
    co_value *config = co_bytes(ctx, in, sizeof(in) - 1), *r;
    size_t    n;

    r = co_update_config_proto(ctx, m, config);
    CO_EXPECT_BYTES(co_string_at(ctx, r, 0, &n), out, sizeof(out) - 1);
    CO_EXPECT_INT(n, sizeof(out) - 1);
    CO_EXPECT_BYTES(co_string_at(ctx, config, 0, &n), in, sizeof(in) - 1); /* unchanged */
    r = co_update_config_proto(ctx, one, config);
    CO_EXPECT_TRUE(r != config); /* a copy */
    CO_EXPECT_BYTES(co_string_at(ctx, r, 0, &n), in, sizeof(in) - 1);
    r = co_update_config_proto(ctx, co_default_strategy(ctx), config);
    CO_EXPECT_BYTES(co_string_at(ctx, r, 0, &n), in, sizeof(in) - 1);
    r = co_update_config_proto(ctx, m, co_bytes(ctx, off, 2)); /* set to false before */
    CO_EXPECT_BYTES(co_string_at(ctx, r, 0, &n), on, 2);
    CO_EXPECT_INT(n, 2);
    r = co_update_config_proto(ctx, m, co_string(ctx, ""));
    CO_EXPECT_BYTES(co_string_at(ctx, r, 0, &n), on, 2);
    r = co_update_config_proto(ctx, m,
                               co_bytes(ctx, off + 2, 5)); /* field 15 as four bytes: unknown */
    CO_EXPECT_BYTES(co_string_at(ctx, r, 0, &n),
                    "\x78\x01\x7d"
                    "abcd",
                    7);
    CO_EXPECT_INT(co_value_kind(co_update_config_proto(ctx, m, NULL)), CO_KIND_NONE);
    CO_EXPECT_INT(co_value_kind(co_update_config_proto(ctx, one, co_none(ctx))), CO_KIND_NONE);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        CO_EXPECT_NULL(co_update_config_proto(ctx, i % 2 == 0 ? m : one,
                                              co_bytes(ctx, wrong[i].bytes, wrong[i].n)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "config");
    }
    CO_EXPECT_NULL(co_update_config_proto(ctx, m, co_int(ctx, 1)));
    CO_EXPECT_FALSE(co_ok(ctx));
    co_clear(ctx);
    CO_EXPECT_NULL(co_update_config_proto(ctx, NULL, config));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "strategy");
}

/* A message in hexadecimal, "78 01". */
static co_value *
message(co_context *ctx, const char *hex)
{
    char   bytes[400];
    size_t n = 0;
    int    used;

    for (unsigned byte; n < sizeof(bytes) && sscanf(hex, " %2x%n", &byte, &used) == 1; hex += used)
        bytes[n++] = (char)byte;
    return co_bytes(ctx, bytes, n);
}

static const char *
hex_of(co_context *ctx, co_value *config, char out[1000])
{
    size_t      n = 0;
    const char *bytes = co_string_at(ctx, config, 0, &n);

    out[0] = '\0';
    for (size_t i = 0; i < n; ++i)
        snprintf(out + 2 * i, 3, "%02x", (unsigned)(unsigned char)bytes[i]);
    return out;
}

#define SCOPED                                                                                     \
    "5219521778018201120a10436f6c6c656374697665526564756365" /* CollectiveReduce alone             \
                                                              */
#define WORKER_1 "22122f6a6f623a776f726b65722f7461736b3a31"  /* a filter for /job:worker/task:1 */
#define LED_BY_0 "82011e0a1c2f6a6f623a776f726b65722f7265706c6963613a302f7461736b3a30"

CO_TEST(a_cluster_is_written_into_the_config, "MW-12 S-CFG-1 S-CFG-2")
{
    static const struct {
        const char *type;
        int         index;
        bool        chief, nccl;
        const char *in, *out;
    } cases[] = {
        { NULL, 0, false, false, "", SCOPED },
        { NULL, 0, false, true, "",
          SCOPED "82010"
                 "23801" },
        { "worker", 1, false, false, "", WORKER_1 SCOPED LED_BY_0 },
        { "worker", 1, false, false, "22072f6a6f623a7073", WORKER_1 SCOPED LED_BY_0 },
        { "worker", 1, false, true, "8201023801",
          WORKER_1 SCOPED
          "8201200a1c2f6a6f623a776f726b65722f7265706c6963613a302f7461736b3a303801" },
        { "chief", 0, true, false, "",
          "22112f6a6f623a63686965662f7461736b3a30" SCOPED
          "82011d0a1b2f6a6f623a63686965662f7265706c6963613a302f7461736b3a30" },
        { "evaluator", 0, true, false, "",
          "22152f6a6f623a6576616c7561746f722f7461736b3a30" SCOPED "820100" },
        /* Operators that were enabled before are not any more; other options stay. */
        { NULL, 0, false, false, "520d520b78018201060a01410a0142", SCOPED },
        { NULL, 0, false, false, "5204520218 02",
          "521b5219180278018201120a10436f6c6c656374697665526564756365" },
        /* Two occurrences of a message are one message. */
        { NULL, 0, false, false, "52040801100152045202 1802",
          "521f080110015219180278018201120a10436f6c6c656374697665526564756365" },
        /* A field of the right number and another wire type is an unknown one. */
        { NULL, 0, false, false, "5007", SCOPED "5007" },
        /* Groups, one in the other, before and after. */
        { NULL, 0, false, false, "0b13 0801 14 0c a33e 0a0161 a43e",
          "0b1308011"
          "40c" SCOPED "a33e0a0161a43e" },
    };
    char expected[1000], text[1000];

    for (size_t i = 0; i < LENGTH(cases); ++i) {
        co_config_cluster cluster = CO_CONFIG_CLUSTER_INIT;
        co_value         *in = message(ctx, cases[i].in), *out;
        char              before[1000];

        hex_of(ctx, in, before);
        cluster.task_type = cases[i].type;
        cluster.task_index = cases[i].index;
        cluster.has_chief = cases[i].chief;
        cluster.collective_nccl = cases[i].nccl;
        out = co_config_for_cluster(ctx, in, &cluster);
        CO_EXPECT_STR(hex_of(ctx, out, text), hex_of(ctx, message(ctx, cases[i].out), expected));
        CO_EXPECT_STR(hex_of(ctx, in, text), before); /* unchanged */
    }
    CO_EXPECT_INT(co_value_kind(co_config_for_cluster(ctx, NULL, NULL)), CO_KIND_NONE);
    CO_EXPECT_STR(hex_of(ctx, co_config_for_cluster(ctx, message(ctx, ""), NULL), text), SCOPED);
}

/* Alone, a strategy of processes has no cluster. */
CO_TEST(strategies_of_processes_write_their_task, "MW-12 S-CFG-2")
{
    co_strategy *s = co_v1_multi_worker_mirrored_strategy(ctx, NULL);
    char         text[1000];

    CO_EXPECT_STR(hex_of(ctx, co_update_config_proto(ctx, s, message(ctx, "")), text), SCOPED);
    CO_EXPECT_INT(co_value_kind(co_update_config_proto(ctx, s, NULL)), CO_KIND_NONE);
}

CO_TEST(clusters_are_checked, "MW-5 MW-12")
{
    static const struct {
        const char *type;
        int         index;
    } wrong[] = { { "boss", 0 }, { "", 0 }, { "worker", -1 }, { "workers", 1 } };
    co_config_cluster cluster = CO_CONFIG_CLUSTER_INIT;

    for (size_t i = 0; i < LENGTH(wrong); ++i) {
        cluster.task_type = wrong[i].type;
        cluster.task_index = wrong[i].index;
        CO_EXPECT_NULL(co_config_for_cluster(ctx, message(ctx, ""), &cluster));
        CO_EXPECT_ERROR(ctx, CO_VALUE_ERROR, "cluster");
    }
    cluster = (co_config_cluster)CO_CONFIG_CLUSTER_INIT;
    CO_EXPECT_NULL(co_config_for_cluster(ctx, co_scalar_float(ctx, 1), &cluster));
    CO_EXPECT_ERROR(ctx, CO_TYPE_ERROR, "argument 2 (config)");
    cluster.struct_size = 1;
    CO_EXPECT_NULL(co_config_for_cluster(ctx, message(ctx, ""), &cluster));
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "struct_size");
}

/* Bytes that are no message are refused wherever they are looked at, and said where. */
CO_TEST(broken_messages_are_refused, "S-CFG-1")
{
    static const struct {
        const char *hex, *part;
    } wrong[] = {
        { "08", "byte 0 of 1" },                 /* a varint without bytes */
        { "0880", "byte 0" },                    /* one that goes on */
        { "0801 09 0102", "byte 2 of 5" },       /* eight bytes, cut off */
        { "0d 010203", "byte 0" },               /* four bytes, cut off */
        { "0a", "byte 0" },                      /* no length */
        { "0a ffffffffffffffffff01", "byte 0" }, /* a length of 2^64 - 1 */
        { "0a 7f 00", "byte 0" },                /* longer than what is left */
        { "00 01", "byte 0" },                   /* field 0 */
        { "80808080 10 00", "byte 0" },          /* field 2^29 */
        { "0e", "byte 0" },                      /* wire types that there are not */
        { "0f 00", "byte 0" },
        { "0c", "byte 0" },       /* the end of a group that never began */
        { "0b", "byte 0" },       /* a group that never ends */
        { "0b 14", "byte 0" },    /* the end of another */
        { "0b 08 0c", "byte 0" }, /* a field of it, cut off */
        { "0b 0b 0e 0c 0c", "byte 0" },
        { "0801 52 02 08 01 52 01 08", "inside field 10" }, /* a message in the message */
        { "52 03 52 01 08", "inside field 10" },
        { "52 06 52 04 82 01 01 08", "inside field 16" },
    };
    co_strategy *s = co_v1_multi_worker_mirrored_strategy(ctx, NULL);
    char         groups[2 * 102 + 1] = "";

    for (size_t i = 0; i < LENGTH(wrong); ++i) {
        CO_EXPECT_NULL(co_update_config_proto(ctx, s, message(ctx, wrong[i].hex)));
        CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, wrong[i].part);
    }
    for (int i = 0; i < 101; ++i)
        memcpy(groups + 2 * i, "0b", 3);
    CO_EXPECT_NULL(co_update_config_proto(ctx, s, message(ctx, groups))); /* too deep */
    CO_EXPECT_ERROR(ctx, CO_INVALID_ARGUMENT, "byte 0");
}

/* Every message cut off at every place, and every byte of it changed: an error, or a copy that is a
 * message itself. */
CO_TEST_WITH(damaged_messages_are_refused_or_copied, "S-CFG-1", "cpus=2")
{
    static const char good[] = "\x0a\x02zz\x22\x04/job\x38\x01\x52\x06\x52\x04\x18\x02\x78\x02"
                               "\x7b\x08\x01\x7c\x82\x01\x02\x38\x01\xc8\x3e\x07";
    size_t            n = sizeof(good) - 1;
    co_config_cluster cluster = CO_CONFIG_CLUSTER_INIT;
    co_strategy      *m = co_v1_mirrored_strategy(ctx, NULL, 0, NULL);
    int               refused = 0;

    cluster.task_type = "worker";
    for (size_t at = 0; at <= n; ++at)
        for (int change = 0; change <= 256; ++change)
            CO_BLOCK(ctx) {
                char      bytes[sizeof(good)];
                co_value *copy, *again;

                memcpy(bytes, good, n);
                if (change < 256 && at < n)
                    bytes[at] = (char)change;
                copy = co_config_for_cluster(ctx, co_bytes(ctx, bytes, change < 256 ? n : at),
                                             &cluster);
                again = copy != NULL ? co_update_config_proto(ctx, m, copy) : NULL;
                if (copy == NULL) {
                    ++refused;
                    CO_EXPECT_CODE(co_error(ctx)->code, CO_INVALID_ARGUMENT);
                    co_clear(ctx);
                } else {
                    CO_EXPECT_NOT_NULL(again);
                }
            }
    CO_EXPECT_MORE(refused, 100);
}

static bool
in_little_memory(co_context *ctx)
{
    char              big[3000];
    co_config_cluster cluster = CO_CONFIG_CLUSTER_INIT;

    memset(big, 0, sizeof(big)); /* field 10 with field 100 of 2990 zeros */
    memcpy(big, "\x52\xb5\x17\xa2\x06\xb1\x17", 7);
    cluster.task_type = "worker";
    return co_config_for_cluster(ctx, co_bytes(ctx, big, 7 + 2993), &cluster) != NULL;
}

CO_TEST_BARE(configs_survive_want_of_memory, "S-CFG-1 MW-12")
{
    CO_EXPECT_SURVIVES_NO_MEMORY(NULL, in_little_memory);
}
