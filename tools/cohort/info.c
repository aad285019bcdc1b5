/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cohort info`: what this copy of the library is and what it finds here, as aligned text or as one
 * JSON object.
 */
#include "command.h"

#include <cohort/cohort.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* --- text --- */

static void
print_fact(const char *name, const char *text, void *user)
{
    (void)user;
    if (strcmp(name, "version") != 0) /* it is in the title */
        printf("  %-18s%s\n", name, text);
}

static void
print_setting(const char *name, const char *value, const char *source, const char *help, void *user)
{
    (void)user;
    printf("  %-18s%-9s %-12s %s\n", name, value[0] != '\0' ? value : "-", source, help);
}

static void
print_devices(co_context *ctx)
{
    for (size_t i = 0; i < co_num_devices(ctx); ++i) {
        co_device_info info = CO_DEVICE_INFO_INIT;

        if (co_get_device_info(ctx, i, &info) != CO_OK)
            return;
        printf("  %s  %s, %d thread%s%s\n", info.name, info.backend, info.num_threads,
               info.num_threads == 1 ? "" : "s", info.host_backed ? ", host-backed" : "");
    }
}

static void
print_text(co_context *ctx)
{
    printf("cohort %s\n\nbuild\n", co_version());
    co_build_visit(print_fact, NULL);
    printf("\ndevices\n");
    print_devices(ctx);
    printf("\nsettings            value     from         meaning\n");
    co_settings_visit(ctx, print_setting, NULL);
}

/* --- JSON --- */

static void
put_string(const char *text)
{
    putchar('"');
    for (; *text != '\0'; ++text) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

/* A key; the first of its object (*is_first) has no comma before it. */
static void
put_key(bool *is_first, const char *name)
{
    printf(*is_first ? "\n    " : ",\n    ");
    *is_first = false;
    put_string(name);
    printf(": ");
}

static void
put_fact(const char *name, const char *text, void *user)
{
    put_key(user, name);
    put_string(text);
}

static void
put_setting(const char *name, const char *value, const char *source, const char *help, void *user)
{
    put_key(user, name);
    printf("{\"value\": ");
    put_string(value);
    printf(", \"from\": ");
    put_string(source);
    printf(", \"help\": ");
    put_string(help);
    putchar('}');
}

static void
put_devices(co_context *ctx)
{
    for (size_t i = 0; i < co_num_devices(ctx); ++i) {
        co_device_info info = CO_DEVICE_INFO_INIT;

        if (co_get_device_info(ctx, i, &info) != CO_OK)
            return;
        printf("%s\n    {\"name\": ", i > 0 ? "," : "");
        put_string(info.name);
        printf(", \"backend\": ");
        put_string(info.backend);
        printf(", \"threads\": %d, \"host_backed\": %s}", info.num_threads,
               info.host_backed ? "true" : "false");
    }
}

static void
print_json(co_context *ctx)
{
    bool is_first = true;

    printf("{\n  \"version\": ");
    put_string(co_version());
    printf(",\n  \"build\": {");
    co_build_visit(put_fact, &is_first);
    printf("\n  },\n  \"devices\": [");
    put_devices(ctx);
    printf("\n  ],\n  \"settings\": {");
    is_first = true;
    co_settings_visit(ctx, put_setting, &is_first);
    printf("\n  }\n}\n");
}

int
info_command(int argc, char **argv)
{
    bool        as_json = false;
    co_context *ctx;

    for (int i = 0; i < argc; ++i) {
        if (strcmp(argv[i], "--json") != 0)
            return refuse_argument("info", argv[i]);
        as_json = true;
    }
    ctx = co_open(NULL);
    if (ctx == NULL) {
        fprintf(stderr, "cohort info: no memory\n");
        return 1;
    }
    if (!co_ok(ctx)) {
        fprintf(stderr, "cohort info: %s\n", co_error(ctx)->message);
        co_clear(ctx);
        co_close(ctx);
        return 1;
    }
    if (as_json)
        print_json(ctx);
    else
        print_text(ctx);
    return co_close(ctx) == CO_OK ? 0 : 1;
}
