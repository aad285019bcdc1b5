/* SPDX-License-Identifier: Apache-2.0 */
/* The program `cohort`: a table of commands and help for it. */
#include "command.h"

#include <cohort/cohort.h>
#include <stdio.h>
#include <string.h>

static int help_command(int argc, char **argv);
static int version_command(int argc, char **argv);

static const command commands[] = {
    { "checkpoint", "ACTION FILE...", "files of tensors: show, diff, convert", checkpoint_command },
    { "info", "[--json]", "version, build, libraries, devices and settings", info_command },
    { "ops", "[NAME... | --markdown]", "the operators and their arguments", ops_command },
    { "records", "ACTION FILE...", "TFRecord files: list, verify, count, print, write",
      records_command },
    { "version", "", "the version of the library", version_command },
    { "help", "", "this text", help_command },
};

enum { NUM_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void
print_usage(FILE *out)
{
    fprintf(out, "usage: cohort COMMAND [ARGUMENTS]\n\n");
    for (size_t i = 0; i < NUM_COMMANDS; ++i) {
        char line[40];

        snprintf(line, sizeof(line), "%s %s", commands[i].name, commands[i].arguments);
        fprintf(out, "  %-28s%s\n", line, commands[i].help);
    }
}

static int
help_command(int argc, char **argv)
{
    if (argc > 0)
        return refuse_argument("help", argv[0]);
    printf("cohort %s: distribution strategies for training programs in C\n\n", co_version());
    print_usage(stdout);
    return 0;
}

static int
version_command(int argc, char **argv)
{
    if (argc > 0)
        return refuse_argument("version", argv[0]);
    printf("cohort %s\n", co_version());
    return 0;
}

int
refuse_argument(const char *command_name, const char *argument)
{
    fprintf(stderr, "cohort %s: argument '%s' is unknown; see cohort help\n", command_name,
            argument);
    return 2;
}

static const command *
find_command(const char *name)
{
    static const char *const words[][2] = { { "-h", "help" },
                                            { "--help", "help" },
                                            { "--version", "version" } };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i)
        if (strcmp(name, words[i][0]) == 0)
            name = words[i][1];
    for (size_t i = 0; i < NUM_COMMANDS; ++i)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

int
main(int argc, char **argv)
{
    const command *chosen;
    int            status;

    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    chosen = find_command(argv[1]);
    if (chosen == NULL) {
        fprintf(stderr, "cohort: there is no command '%s'\n\n", argv[1]);
        print_usage(stderr);
        return 2;
    }
    status = chosen->run(argc - 2, argv + 2);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("cohort: writing");
        return 1;
    }
    return status;
}
