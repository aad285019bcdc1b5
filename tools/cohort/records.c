/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cohort records`: TFRecord files listed, verified, counted, printed and written. Every record
 * that is read is verified; the records before damage are counted and printed, then the damage is
 * told, and the exit status is 1.
 */
#include "command.h"

#include <cohort/cohort.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BAR_FROM  ((int64_t)64 << 20) /* bytes of a file that is worth a progress bar */
#define BAR_WIDTH 30

typedef enum print_format { PRINT_TEXT, PRINT_HEX, PRINT_EXAMPLE } print_format;

typedef struct request {
    co_context  *ctx;
    int          compression; /* co_compression, or -1: by the name of the file */
    print_format format;      /* --hex, --example */
    bool         bar;         /* --progress: also for small files and without a terminal */
    int          num_files;
} request;

/* What was seen of a file. */
typedef struct tally {
    int64_t num_records, nbytes;
    size_t  smallest, largest;
} tally;

static co_file_options
options_of(const request *r, const char *path)
{
    co_file_options options = CO_FILE_OPTIONS_INIT;
    const char     *dot = strrchr(path, '.');

    if (r->compression >= 0)
        options.compression = (co_compression)r->compression;
    else if (dot != NULL && strcmp(dot, ".gz") == 0)
        options.compression = CO_COMPRESSION_GZIP;
    else if (dot != NULL && strcmp(dot, ".zlib") == 0)
        options.compression = CO_COMPRESSION_ZLIB;
    return options;
}

/* --- progress --- */

typedef struct progress {
    bool            is_shown;
    int64_t         total; /* bytes of the file; 0: not known how far we are */
    int64_t         next;  /* when to show it again */
    struct timespec began;
} progress;

static progress
begin_progress(const request *r, const char *path, const co_file_options *options)
{
    struct stat about;
    progress    p = { false, 0, 0, { 0, 0 } };

    if (stat(path, &about) != 0)
        return p;
    p.is_shown = r->bar || (about.st_size >= BAR_FROM && isatty(STDERR_FILENO));
    if (options->compression == CO_COMPRESSION_NONE)
        p.total = about.st_size;
    clock_gettime(CLOCK_MONOTONIC, &p.began);
    return p;
}

static void
show_progress(progress *p, const tally *seen)
{
    int64_t         done = seen->nbytes + 16 * seen->num_records;
    struct timespec now;
    double          seconds, share;
    char            bar[BAR_WIDTH + 1];

    if (!p->is_shown || done < p->next)
        return;
    p->next = done + (p->total > 0 ? p->total / 100 : (int64_t)8 << 20) + 1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    seconds = (double)(now.tv_sec - p->began.tv_sec) +
              1e-9 * (double)(now.tv_nsec - p->began.tv_nsec);
    share = p->total > 0 ? (double)done / (double)p->total : 0;
    for (int i = 0; i < BAR_WIDTH; ++i)
        bar[i] = i < (int)(share * BAR_WIDTH) ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    if (p->total > 0)
        fprintf(stderr, "\r[%s] %3.0f %%", bar, 100 * share);
    fprintf(stderr, "%s  %lld records  %.0f MB/s ", p->total > 0 ? "" : "\r",
            (long long)seen->num_records, seconds > 0 ? (double)done / 1e6 / seconds : 0.0);
    fflush(stderr);
}

static void
end_progress(const progress *p)
{
    if (p->is_shown)
        fprintf(stderr, "\r%*s\r", BAR_WIDTH + 50, "");
}

/* --- reading --- */

static void
print_text(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        unsigned char c = (unsigned char)bytes[i];

        if (c == '\\')
            printf("\\\\");
        else if (c >= 0x20 && c < 0x7f)
            putchar(c);
        else
            printf("\\x%02x", c);
    }
    putchar('\n');
}

static void
print_hex(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; ++i)
        printf("%02x", (unsigned char)bytes[i]);
    putchar('\n');
}

/* A line for each feature. */
static void
print_example(co_context *ctx, co_value *record)
{
    co_value *map = co_example_decode(ctx, record);
    char      text[400];

    if (map == NULL) {
        printf("no tf.Example\n");
        co_clear(ctx);
        return;
    }
    putchar('\n');
    for (size_t i = 0; i < co_num_items(ctx, map); ++i) {
        co_format(ctx, co_at(ctx, map, i), text, sizeof(text));
        printf("    %s: %s\n", co_key(ctx, map, i), text);
    }
}

static void
print_record(const request *r, int64_t number, co_value *record, const char *bytes, size_t n)
{
    printf("%lld: ", (long long)number);
    if (r->format == PRINT_EXAMPLE)
        print_example(r->ctx, record);
    else
        (r->format == PRINT_HEX ? print_hex : print_text)(bytes, n);
}

/* Read all of a file; false after telling what is wrong with it. */
static bool
read_file(const request *r, const char *path, bool print, tally *seen)
{
    co_context     *ctx = r->ctx;
    co_file_options options = options_of(r, path);
    progress        p = begin_progress(r, path, &options);
    co_iterator    *it;
    bool            good;

    *seen = (tally){ 0, 0, 0, 0 };
    co_block_begin(ctx);
    it = co_iterate(ctx, co_dataset_tfrecord(ctx, &path, 1, &options));
    CO_EACH(ctx, record, it) {
        size_t      n;
        const char *bytes = co_string_at(ctx, record, 0, &n);

        if (print)
            print_record(r, seen->num_records, record, bytes, n);
        seen->smallest = seen->num_records == 0 || n < seen->smallest ? n : seen->smallest;
        seen->largest = n > seen->largest ? n : seen->largest;
        seen->nbytes += (int64_t)n;
        ++seen->num_records;
        show_progress(&p, seen);
    }
    end_progress(&p);
    good = co_ok(ctx);
    if (!good) {
        fflush(stdout);
        fprintf(stderr, "cohort records: %s\n", co_error(ctx)->message);
        co_clear(ctx);
    }
    co_block_end(ctx);
    return good;
}

static bool
list_file(const request *r, const char *path)
{
    tally seen;
    bool  good = read_file(r, path, false, &seen);

    if (!good && seen.num_records == 0) /* there may be no such file: the error has said all */
        return false;
    printf("%10lld records  %14lld bytes  %zu to %zu  %s%s\n", (long long)seen.num_records,
           (long long)seen.nbytes, seen.smallest, seen.largest, path,
           good ? "" : "  before damage");
    return good;
}

/* Readers take a file that ends inside the header of a record for ended; who verifies it wants to
 * know. */
static bool
is_whole(const request *r, const char *path, const tally *seen)
{
    int64_t     end = seen->nbytes + 16 * seen->num_records;
    struct stat about;

    if (options_of(r, path).compression != CO_COMPRESSION_NONE || stat(path, &about) != 0 ||
        !S_ISREG(about.st_mode) || about.st_size <= end)
        return true;
    fprintf(stderr,
            "cohort records: '%s', record %lld at offset %lld: the file ends after %lld of the 12 "
            "bytes of its header\n",
            path, (long long)seen->num_records, (long long)end, (long long)(about.st_size - end));
    return false;
}

static bool
verify_file(const request *r, const char *path)
{
    tally       seen;
    struct stat about;
    bool        good = read_file(r, path, false, &seen) && is_whole(r, path, &seen);

    printf("%s: %s\n", path,
           good                                                ? "good"
           : stat(path, &about) == 0 && S_ISDIR(about.st_mode) ? "is a directory"
           : access(path, R_OK) != 0                           ? "cannot be read"
                                                               : "damaged");
    return good;
}

static bool
count_file(const request *r, const char *path)
{
    tally seen;
    bool  good = read_file(r, path, false, &seen);

    if (r->num_files > 1)
        printf("%10lld  %s\n", (long long)seen.num_records, path);
    else
        printf("%lld\n", (long long)seen.num_records);
    return good;
}

static bool
print_file(const request *r, const char *path)
{
    tally seen;

    return read_file(r, path, true, &seen);
}

/* --- writing --- */

/* A record for each line of the standard input. */
static bool
write_file(const request *r, const char *path)
{
    co_context       *ctx = r->ctx;
    co_file_options   options = options_of(r, path);
    co_record_writer *writer = co_record_writer_open(ctx, path, &options);
    char             *line = NULL;
    size_t            capacity = 0;
    ssize_t           n;
    bool              good;

    while (co_ok(ctx) && (n = getline(&line, &capacity, stdin)) >= 0) {
        if (n > 0 && line[n - 1] == '\n')
            --n;
        co_record_write(ctx, writer, line, (size_t)n);
    }
    free(line);
    co_record_writer_close(ctx, writer);
    good = co_ok(ctx) && !ferror(stdin);
    if (!good)
        fprintf(stderr, "cohort records: %s\n",
                co_ok(ctx) ? "the standard input cannot be read" : co_error(ctx)->message);
    co_clear(ctx);
    return good;
}

/* --- the command --- */

static const struct action {
    const char *name;
    bool (*run)(const request *r, const char *path);
} actions[] = {
    { "list", list_file },   { "verify", verify_file }, { "count", count_file },
    { "print", print_file }, { "write", write_file },
};

static int
usage(FILE *out)
{
    fprintf(
        out,
        "usage: cohort records list|verify|count|print|write [OPTION...] FILE...\n\n"
        "  list      records, bytes, and the sizes of the smallest and the largest record\n"
        "  verify    check that all checksums are right and that no file is truncated\n"
        "  count     the number of records of each file\n"
        "  print     the records; --hex as hex digits, --example as tf.Example\n"
        "  write     make the file, with a record for each line of the standard input\n\n"
        "  --plain, --gzip, --zlib   the compression; by default taken from the name (.gz, .zlib)\n"
        "  --progress                a progress bar, even for small files\n"
        "  --help                    this text\n"
        "  --                        the rest are files, even if a name begins with -\n\n"
        "Exit status: 0 on success, 1 if a file cannot be read or is damaged, 2 for wrong arguments.\n");
    return out == stdout ? 0 : 2;
}

static bool
asks_for_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

static int
refuse_option(const char *action, const char *text, const char *why)
{
    fprintf(stderr, "cohort records %s: argument '%s' %s; see cohort records --help\n", action,
            text, why);
    return 2;
}

/* 0, or the status after an option that is not known or does nothing for the action. */
static int
take_option(const struct action *action, request *r, const char *text)
{
    static const struct {
        const char  *text;
        int          compression;
        print_format format;
        bool         bar;
    } known[] = {
        { "--plain", CO_COMPRESSION_NONE, PRINT_TEXT, false },
        { "--gzip", CO_COMPRESSION_GZIP, PRINT_TEXT, false },
        { "--zlib", CO_COMPRESSION_ZLIB, PRINT_TEXT, false },
        { "--hex", -1, PRINT_HEX, false },
        { "--example", -1, PRINT_EXAMPLE, false },
        { "--progress", -1, PRINT_TEXT, true },
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i)
        if (strcmp(known[i].text, text) == 0) {
            if (known[i].format != PRINT_TEXT && action->run != print_file)
                return refuse_option(action->name, text, "is for print alone");
            if (known[i].bar && action->run == write_file)
                return refuse_option(action->name, text, "is for actions that read");
            r->compression = known[i].compression >= 0 ? known[i].compression : r->compression;
            r->format = known[i].format != PRINT_TEXT ? known[i].format : r->format;
            r->bar = r->bar || known[i].bar;
            return 0;
        }
    return refuse_option(action->name, text, "is unknown");
}

static int
run_action(const struct action *action, int argc, char **argv)
{
    request r = { NULL, -1, PRINT_TEXT, false, 0 };
    int     status = 0;
    bool    only_files = false;

    for (int i = 0; i < argc && status == 0; ++i) { /* files are moved to the front */
        if (only_files || argv[i][0] != '-')
            argv[r.num_files++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            only_files = true;
        else if (asks_for_help(argv[i]))
            return usage(stdout);
        else
            status = take_option(action, &r, argv[i]);
    }
    if (status != 0)
        return status;
    if (r.num_files == 0 || (action->run == write_file && r.num_files > 1)) {
        fprintf(stderr, "cohort records %s: %s\n\n", action->name,
                r.num_files == 0 ? "no file is named" : "one file is written at a time");
        return usage(stderr);
    }
    r.ctx = co_open("log=off");
    if (!co_ok(r.ctx)) {
        fprintf(stderr, "cohort records: %s\n", co_error(r.ctx)->message);
        co_close(r.ctx);
        return 1;
    }
    for (int i = 0; i < r.num_files; ++i)
        if (!action->run(&r, argv[i]))
            status = 1;
    return co_close(r.ctx) == CO_OK ? status : 1;
}

int
records_command(int argc, char **argv)
{
    for (size_t i = 0; argc > 0 && i < sizeof(actions) / sizeof(actions[0]); ++i)
        if (strcmp(actions[i].name, argv[0]) == 0)
            return run_action(&actions[i], argc - 1, argv + 1);
    if (argc > 0 && asks_for_help(argv[0]))
        return usage(stdout);
    if (argc > 0)
        fprintf(stderr, "cohort records: there is no action '%s'\n\n", argv[0]);
    return usage(stderr);
}
