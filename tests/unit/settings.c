/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from text and environment: what is taken, what is refused, and what is said then. */
#include "base/settings.h"
#include "test.h"

#include <unistd.h>

/* Each case has a process of its own, so nobody else misses these. */
static void
forget_environment(void)
{
    char **entry = environ;

    while (*entry != NULL) {
        char   name[100];
        size_t length = strcspn(*entry, "=");

        if (strncmp(*entry, "COHORT_", 7) != 0 || length >= sizeof(name)) {
            ++entry;
            continue;
        }
        memcpy(name, *entry, length);
        name[length] = '\0';
        unsetenv(name); /* the next entry moves here */
    }
}

/* The value and source of one setting, as co_settings_visit tells them. */
typedef struct wanted {
    const char *name;
    char        value[80];
    char        source[20];
    int         seen;
} wanted;

static void
look(const char *name, const char *value, const char *source, const char *help, void *user)
{
    wanted *w = user;

    CO_EXPECT_TRUE(help != NULL && help[0] != '\0');
    if (strcmp(w->name, name) == 0) {
        snprintf(w->value, sizeof(w->value), "%s", value);
        snprintf(w->source, sizeof(w->source), "%s", source);
        ++w->seen;
    }
}

static void
expect_setting(const coi_settings *settings, const char *name, const char *value,
               const char *source)
{
    wanted w = { name, "", "", 0 };

    coi_settings_visit(settings, look, &w);
    CO_EXPECT_INT(w.seen, 1);
    CO_EXPECT_STR(w.value, value);
    CO_EXPECT_STR(w.source, source);
}

CO_TEST_BARE(without_text_and_environment_all_are_defaults, "")
{
    coi_settings settings;

    forget_environment();
    CO_EXPECT_CODE(coi_settings_load(&settings, NULL, NULL, NULL), CO_OK);
    CO_EXPECT_INT(settings.log, CO_LOG_ERROR);
    CO_EXPECT_INT(settings.cpus, 1);
    CO_EXPECT_INT(settings.threads, 0);
    CO_EXPECT_STR(settings.devices, "");
    CO_EXPECT_STR(settings.isa, "auto");
    CO_EXPECT_INT(settings.spin_us, 20);
    CO_EXPECT_INT(settings.deadline_ms, 60000);
    CO_EXPECT_TRUE(settings.seed == 0);
    CO_EXPECT_TRUE(settings.pin);
    expect_setting(&settings, "cpus", "1", "default");
    expect_setting(&settings, "pin", "yes", "default");
    expect_setting(&settings, "devices", "", "default");
}

CO_TEST_BARE(good_texts_are_taken, "")
{
    static const struct {
        const char *text;
        const char *name;
        const char *value;
    } cases[] = {
        { "cpus=4", "cpus", "4" },
        { "cpus=256", "cpus", "256" },
        { "cpus=4,cpus=2", "cpus", "2" },
        { "  cpus=3 ;; ,,\t\n", "cpus", "3" },
        { "CPUS=3", "cpus", "3" },
        { "log=info,cpus=2", "log", "info" },
        { "log=OFF", "log", "off" },
        { "log=Debug;seed=1", "log", "debug" },
        { "threads=4096", "threads", "4096" },
        { "threads=0", "threads", "0" },
        { "devices=GPU:2", "devices", "GPU:2" },
        { "devices=gpu:2+TPU:4", "devices", "gpu:2+TPU:4" },
        { "devices=", "devices", "" },
        { "isa=base", "isa", "base" },
        { "isa=V3", "isa", "v3" },
        { "convolution=own", "convolution", "own" },
        { "convolution=oneDNN", "convolution", "onednn" },
        { "gemm=Transposed", "gemm", "transposed" },
        { "gemm=auto", "gemm", "auto" },
        { "spin_us=0", "spin_us", "0" },
        { "spin_us=10000", "spin_us", "10000" },
        { "deadline_ms=86400000", "deadline_ms", "86400000" },
        { "seed=18446744073709551615", "seed", "18446744073709551615" },
        { "pin=no", "pin", "no" },
        { "pin=on", "pin", "yes" },
        { "pin=0", "pin", "no" },
        { "pin=TRUE", "pin", "yes" },
    };

    forget_environment();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        coi_settings  settings;
        co_error_info err;

        coi_error_reset(&err);
        if (!CO_EXPECT_CODE(coi_settings_load(&settings, cases[i].text, &err, NULL), CO_OK))
            CO_FAIL("'%s': %s", cases[i].text, err.message);
        expect_setting(&settings, cases[i].name, cases[i].value, "program");
    }
}

CO_TEST_BARE(bad_texts_are_refused_with_value_and_limit, "")
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        { "cpus=abc", "setting cpus='abc' (given to open): expected a whole number from 1 to 256" },
        { "convolution=mine",
          "setting convolution='mine' (given to open): expected auto, own or onednn" },
        { "gemm=c",
          "setting gemm='c' (given to open): expected auto, plain, a, b, both or transposed" },
        { "cpus=0", "setting cpus='0'" },
        { "cpus=257", "setting cpus='257'" },
        { "cpus=-1", "setting cpus='-1'" },
        { "cpus=", "setting cpus=''" },
        { "cpus=1.5", "expected a whole number from 1 to 256" },
        { "cpus=99999999999999999999", "expected a whole number from 1 to 256" },
        { "cpus", "setting cpus (given to open) has no value: write cpus=1" },
        { "cpus = 4", "setting cpus (given to open) has no value" },
        { "cpus=4=5", "setting cpus='4=5'" },
        { "=4", "unknown setting ''" },
        { "cpux=4", "unknown setting 'cpux' (given to open): there are log, cpus, threads," },
        { "cpu=4", "unknown setting 'cpu'" },
        { "cpuss=4", "unknown setting 'cpuss'" },
        { "threads=4097", "from 0 to 4096" },
        { "log=loud", "expected off, error, warning, info or debug" },
        { "isa=v5", "expected auto, base, v3 or v4" },
        { "spin_us=10001", "from 0 to 10000" },
        { "deadline_ms=86400001", "from 0 to 86400000" },
        { "seed=18446744073709551616", "from 0 to 18446744073709551615" },
        { "seed=-1", "setting seed='-1'" },
        { "pin=maybe", "expected yes or no" },
        { "devices=GPU", "such as GPU:2+TPU:4" },
        { "devices=GPU:", "such as GPU:2+TPU:4" },
        { "devices=GPU:0", "such as GPU:2+TPU:4" },
        { "devices=GPU:257", "such as GPU:2+TPU:4" },
        { "devices=GPU:2+", "such as GPU:2+TPU:4" },
        { "devices=+GPU:2", "such as GPU:2+TPU:4" },
        { "devices=GPU:2++TPU:1", "such as GPU:2+TPU:4" },
        { "devices=2:GPU", "such as GPU:2+TPU:4" },
        { "devices=GPU:2x", "such as GPU:2+TPU:4" },
        { "devices=G\xc3\x9c:2", "such as GPU:2+TPU:4" },
        { "devices=ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF:1", "such as GPU:2+TPU:4" },
        { "devices=A:1+A:1+A:1+A:1+A:1+A:1+A:1+A:1+A:1+A:1+A:1+A:1+A:1+A:1+A:1+A:1+A:1",
          "up to 63 characters" },
    };

    forget_environment();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        coi_settings  settings;
        co_error_info err;

        memset(&settings, 0x5a, sizeof(settings));
        coi_error_reset(&err);
        CO_EXPECT_CODE(coi_settings_load(&settings, cases[i].text, &err, NULL), CO_VALUE_ERROR);
        CO_EXPECT_CONTAINS(err.message, cases[i].message);
        CO_EXPECT_INT(settings.cpus, 0x5a5a5a5a); /* all or nothing */
    }
}

CO_TEST_BARE(a_value_of_any_length_gives_a_short_message, "")
{
    size_t        length = 1000000;
    char         *text = malloc(length + 1);
    coi_settings  settings;
    co_error_info err;

    CO_REQUIRE(text != NULL);
    forget_environment();
    memset(text, '7', length);
    memcpy(text, "cpus=", 5);
    text[length] = '\0';
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_settings_load(&settings, text, &err, NULL), CO_VALUE_ERROR);
    CO_EXPECT_CONTAINS(err.message, "777...' (given to open): expected a whole number");
    memset(text, 'z', length);
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_settings_load(&settings, text, &err, NULL), CO_VALUE_ERROR);
    CO_EXPECT_CONTAINS(err.message, "zzz...' (given to open): there are log");
    free(text);
}

CO_TEST_BARE(the_environment_counts_where_the_program_says_nothing, "")
{
    coi_settings settings;

    forget_environment();
    setenv("COHORT_CPUS", "3", 1);
    setenv("COHORT_LOG", "debug", 1);
    setenv("COHORT_THREADS", "", 1); /* empty is not set */
    CO_EXPECT_CODE(coi_settings_load(&settings, "log=off", NULL, NULL), CO_OK);
    expect_setting(&settings, "cpus", "3", "environment");
    expect_setting(&settings, "log", "off", "program");
    expect_setting(&settings, "threads", "0", "default");
}

CO_TEST_BARE(a_wrong_variable_is_named, "")
{
    coi_settings  settings;
    co_error_info err;

    forget_environment();
    setenv("COHORT_CPUS", "abc", 1);
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_settings_load(&settings, NULL, &err, NULL), CO_VALUE_ERROR);
    CO_EXPECT_STR(err.message, "setting cpus='abc' (from the environment, COHORT_CPUS): expected a "
                               "whole number from 1 to 256");
    /* A program that sets it itself does not care. */
    CO_EXPECT_CODE(coi_settings_load(&settings, "cpus=2", NULL, NULL), CO_OK);
    setenv("COHORT_CPUS", "2 ", 1);
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_settings_load(&settings, NULL, &err, NULL), CO_VALUE_ERROR);
    setenv("COHORT_CPUS", "\033[2J\n7", 1);
    coi_error_reset(&err);
    CO_EXPECT_CODE(coi_settings_load(&settings, NULL, &err, NULL), CO_VALUE_ERROR);
    CO_EXPECT_CONTAINS(err.message, "setting cpus='?[2J 7'");
}

typedef struct warnings {
    int  lines;
    char last[200];
} warnings;

static void
hear(co_log_level level, const char *line, void *user)
{
    warnings *w = user;

    CO_EXPECT_INT(level, CO_LOG_WARNING);
    ++w->lines;
    snprintf(w->last, sizeof(w->last), "%s", line);
}

CO_TEST_BARE(unknown_variables_are_warned_of, "")
{
    warnings     w = { 0, "" };
    coi_settings settings;
    coi_log      log;
    char         variable[40];

    forget_environment();
    coi_log_init(&log, hear, &w);
    setenv("COHORT_PLUGIN_PATH", "known elsewhere", 1);
    setenv("COHORT_CPUS", "2", 1);
    CO_EXPECT_CODE(coi_settings_load(&settings, "log=warning", NULL, &log), CO_OK);
    CO_EXPECT_INT(log.level, CO_LOG_WARNING);
    CO_EXPECT_INT(w.lines, 0);
    setenv("COHORT_CPU", "3", 1);
    CO_EXPECT_CODE(coi_settings_load(&settings, "log=warning", NULL, &log), CO_OK);
    CO_EXPECT_INT(w.lines, 1);
    CO_EXPECT_STR(w.last, "environment variable COHORT_CPU is not a setting of this version");
    CO_EXPECT_CODE(coi_settings_load(&settings, "log=error", NULL, &log), CO_OK);
    CO_EXPECT_INT(w.lines, 1);
    for (int i = 0; i < 100; ++i) {
        snprintf(variable, sizeof(variable), "COHORT_JUNK_%d", i);
        setenv(variable, "1", 1);
    }
    CO_EXPECT_CODE(coi_settings_load(&settings, "log=warning", NULL, &log), CO_OK);
    CO_EXPECT_LESS(w.lines, 12); /* a hostile environment does not flood the log */
    coi_log_destroy(&log);
}

CO_TEST_BARE(a_list_of_devices_is_read_one_by_one, "")
{
    const char *list = "gpu:2+TPU:256";
    char        type[COI_DEVICE_TYPE_MAX];
    int         count;

    CO_REQUIRE(coi_device_list_next(&list, type, &count));
    CO_EXPECT_STR(type, "GPU");
    CO_EXPECT_INT(count, 2);
    CO_REQUIRE(coi_device_list_next(&list, type, &count));
    CO_EXPECT_STR(type, "TPU");
    CO_EXPECT_INT(count, 256);
    CO_EXPECT_FALSE(coi_device_list_next(&list, type, &count));
    CO_EXPECT_INT(*list, 0);
}
