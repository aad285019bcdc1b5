/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands of the program `cohort` have in common. A new command is a file with its
 * function and a line in main.c.
 */
#ifndef COHORT_TOOL_COMMAND_H
#define COHORT_TOOL_COMMAND_H

/*
 * A command gets the arguments behind its name and returns the exit status: 0, 1 for failure, 2 for
 * wrong use.
 */
typedef int (*command_fn)(int argc, char **argv);

typedef struct command {
    const char *name;
    const char *arguments; /* as help shows them */
    const char *help;      /* one line */
    command_fn  run;
} command;

int checkpoint_command(int argc, char **argv);
int info_command(int argc, char **argv);
int ops_command(int argc, char **argv);
int records_command(int argc, char **argv);

/* Report an argument that the command does not take; returns the exit status for wrong use. */
int refuse_argument(const char *command_name, const char *argument);

#endif
