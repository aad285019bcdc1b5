/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the golden runner, the files of a folder, and the totals. */
#include "types.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILES  256
#define EXIT_USAGE 2

typedef struct file_list {
    char  *names[MAX_FILES]; /* without ".json" */
    size_t n;
} file_list;

typedef struct totals {
    golden_count sum;
    bool         is_broken; /* a file or folder could not be read */
} totals;

static const char usage[] =
    "usage: golden [OPTION...] [DIR] [FAMILY...]\n"
    "\n"
    "Runs the recorded cases of a folder through the library and compares the results.\n"
    "DIR is a folder of the format that tests/golden/README.md describes; without one,\n"
    "$COHORT_GOLDEN or the tests/golden that the runner was built beside. Without FAMILY every\n"
    "*.json file of the folder is run.\n"
    "\n"
    "  --function          compute in captured functions too, and compare the bits (families ops,\n"
    "                      reduce, variables, datasets, distribute_input, optimizers, train);\n"
    "                      what has no meaning in a function is counted apart\n"
    "  --device TYPE:I     on devices of that type instead of CPUs, the I-th of them current\n"
    "  --filter SUBSTRING  only cases whose FAMILY/ID contains it\n"
    "  --types             check type inference with unknown dimensions (family ops)\n"
    "  --fault NAME        with --types: put a fault into every type, which the checks must find:\n"
    "                      forgets, forgets-rank, invents, lies, lies-dtype, refuses; with\n"
    "                      --function any of them changes bits\n"
    "  --verbose           also name the cases that pass\n"
    "  --help              this text\n"
    "\n"
    "Exit status: 0 if no case failed, 1 if one did, 2 if something could not be read.\n";

/* Families in the order of the data's README; others follow by name. */
static size_t
family_position(const char *name)
{
    for (size_t i = 0; i < golden_num_families; ++i)
        if (strcmp(golden_families[i].name, name) == 0)
            return i;
    return golden_num_families;
}

static int
compare_names(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    size_t      i = family_position(x), j = family_position(y);

    if (i != j)
        return i < j ? -1 : 1;
    return strcmp(x, y);
}

static bool
is_directory(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* All *.json files of a folder. False with a message. */
static bool
list_files(const char *folder, file_list *files)
{
    DIR           *dir = opendir(folder);
    struct dirent *entry;

    if (dir == NULL) {
        fprintf(stderr, "golden: cannot open folder '%s': %s\n", folder, strerror(errno));
        return false;
    }
    while ((entry = readdir(dir)) != NULL && files->n < MAX_FILES) {
        size_t length = strlen(entry->d_name);

        if (length <= 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        files->names[files->n] = strndup(entry->d_name, length - 5);
        if (files->names[files->n] != NULL)
            ++files->n;
    }
    closedir(dir);
    if (files->n == 0) {
        fprintf(stderr, "golden: folder '%s' holds no *.json file\n", folder);
        return false;
    }
    qsort(files->names, files->n, sizeof(files->names[0]), compare_names);
    return true;
}

/* A file that cannot be used is one failure under the name it was asked for. */
static void
report_broken(totals *all, const char *name)
{
    all->is_broken = true;
    ++all->sum.failed;
    printf("%s: 0 passed, 1 failed\n", name);
}

/*
 * jansson has no integers of 2^63 and more, which are elements of uint64. They become the int64 of
 * the same bits, which is also what write.c makes of an element. A copy, which the caller frees.
 */
static char *
wrap_large_integers(const char *at, size_t nbytes)
{
    char *out = malloc(2 * nbytes + 1), *to = out;
    bool  in_string = false;

    while (out != NULL && *at != '\0') {
        bool               is_number = !in_string && (*at == '-' || (*at >= '0' && *at <= '9'));
        const char        *begin = at;
        unsigned long long number;

        if (!is_number) {
            if (*at == '"')
                in_string = !in_string;
            if (in_string && *at == '\\' && at[1] != '\0')
                *to++ = *at++;
            *to++ = *at++;
            continue;
        }
        at += strspn(at, "+-.0123456789eE");
        errno = 0;
        number = strtoull(begin, NULL, 10);
        if (strspn(begin, "0123456789") == (size_t)(at - begin) && errno == 0 && number > INT64_MAX)
            to += sprintf(to, "%lld", (long long)number);
        else
            to = (char *)memcpy(to, begin, (size_t)(at - begin)) + (at - begin);
    }
    if (out != NULL)
        *to = '\0';
    return out;
}

/* All of a file; the caller frees. NULL if it cannot be read, or is not what it was. */
static char *
read_text(const char *path, size_t nbytes)
{
    FILE *file = fopen(path, "rb");
    char *bytes = malloc(nbytes + 1), *text = NULL;

    if (file != NULL && bytes != NULL && fread(bytes, 1, nbytes, file) == nbytes) {
        bytes[nbytes] = '\0';
        text = wrap_large_integers(bytes, nbytes);
    }
    free(bytes);
    if (file != NULL)
        fclose(file);
    return text;
}

static json_t *
load_file(const char *path)
{
    json_error_t error;
    json_t      *root;
    struct stat  info;
    char        *text;

    if (stat(path, &info) != 0) {
        fprintf(stderr, "golden: cannot read '%s': %s\n", path, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(info.st_mode)) {
        fprintf(stderr, "golden: '%s' is not a file\n", path);
        return NULL;
    }
    text = read_text(path, (size_t)info.st_size);
    root = text != NULL ? json_loads(text, JSON_ALLOW_NUL, &error) : NULL;
    free(text);
    if (text == NULL) {
        fprintf(stderr, "golden: cannot read '%s': %s\n", path, strerror(errno));
        return NULL;
    }
    if (root == NULL) {
        fprintf(stderr, "golden: '%s' is not JSON: line %d, column %d: %s\n", path, error.line,
                error.column, error.text);
        return NULL;
    }
    if (!json_is_object(root) || !json_is_string(json_object_get(root, "family")) ||
        !json_is_array(json_object_get(root, "cases"))) {
        fprintf(stderr,
                "golden: '%s' is not golden data: it must be an object with a string 'family' "
                "and a list 'cases'\n",
                path);
        json_decref(root);
        return NULL;
    }
    return root;
}

static void
print_types(const golden_types_count *n)
{
    printf(
        "types: %ld combinations of unknown dimensions, %ld of unknown ranks; %ld shapes that fit "
        "them, %ld dimensions that had to be known\n",
        n->combinations, n->unknown_ranks, n->samples, n->dimensions);
    printf("types: %ld cases expect an error, %ld are programs of several operators\n", n->errors,
           n->programs);
}

static void
run_file(totals *all, const char *folder, const char *name, const golden_options *options)
{
    char         path[4096];
    golden_count count = { .passed = 0 };
    const char  *family;
    json_t      *root;

    if (snprintf(path, sizeof(path), "%s/%s.json", folder, name) >= (int)sizeof(path)) {
        fprintf(stderr, "golden: the path of '%s' is too long\n", name);
        report_broken(all, name);
        return;
    }
    root = load_file(path);
    if (root == NULL) {
        report_broken(all, name);
        return;
    }
    family = json_string_value(json_object_get(root, "family"));
    golden_run_cases(family, folder, json_object_get(root, "cases"), options, &count);
    printf("%s: %ld passed, %ld failed\n", family, count.passed, count.failed);
    if (options->is_types)
        print_types(&count.types);
    for (size_t i = 0; i < GOLDEN_MAX_APART && count.apart[i].n > 0; ++i)
        printf("%s: %ld apart: %s\n", family, count.apart[i].n, count.apart[i].why);
    fflush(stdout);
    all->sum.passed += count.passed;
    all->sum.failed += count.failed;
    json_decref(root);
}

/* The first argument is a folder, unless it can only be meant as a family. */
static bool
is_folder_argument(const char *text)
{
    return strchr(text, '/') != NULL || is_directory(text) ||
           family_position(text) == golden_num_families;
}

static const char *
default_folder(void)
{
    const char *folder = getenv("COHORT_GOLDEN");

    return folder != NULL && folder[0] != '\0' ? folder : GOLDEN_DEFAULT_FOLDER;
}

static bool
take_device(const char *text)
{
    char type[32];
    int  index, end = 0;

    if (sscanf(text, "%31[A-Z0-9_]:%d%n", type, &index, &end) != 2 || text[end] != '\0' ||
        index < 0 || index > 3)
        return false;
    golden_use_device(type, index);
    return true;
}

static bool
read_fault(const char *name, int *out)
{
    for (int i = 0; golden_fault_names[i] != NULL; ++i)
        if (strcmp(golden_fault_names[i], name) == 0) {
            *out = i;
            return true;
        }
    return false;
}

/* False: the program is over, with *status. */
static bool
read_options(int argc, char **argv, golden_options *options, int *status)
{
    static const struct option known[] = {
        { "function", no_argument, NULL, 'f' },     { "device", required_argument, NULL, 'd' },
        { "filter", required_argument, NULL, 's' }, { "types", no_argument, NULL, 't' },
        { "fault", required_argument, NULL, 'x' },  { "verbose", no_argument, NULL, 'v' },
        { "help", no_argument, NULL, 'h' },         { NULL, 0, NULL, 0 },
    };
    int found;

    while ((found = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (found) {
        case 'f': options->is_function = true; break;
        case 'd':
            if (take_device(optarg))
                break;
            fprintf(
                stderr,
                "golden: --device %s: expected a type and an index from 0 to 3, such as TEST:0\n",
                optarg);
            *status = EXIT_USAGE;
            return false;
        case 's': options->filter = optarg; break;
        case 't': options->is_types = true; break;
        case 'x':
            if (!read_fault(optarg, &options->fault)) {
                fprintf(stderr, "golden: there is no fault '%s'; try --help\n", optarg);
                *status = EXIT_USAGE;
                return false;
            }
            break;
        case 'v': options->is_verbose = true; break;
        case 'h':
            fputs(usage, stdout);
            *status = EXIT_SUCCESS;
            return false;
        default:
            fputs("golden: try --help\n", stderr);
            *status = EXIT_USAGE;
            return false;
        }
    }
    return true;
}

int
main(int argc, char **argv)
{
    golden_options options = { .filter = NULL };
    totals         all = { .is_broken = false };
    file_list      files = { .n = 0 };
    const char    *folder;
    int            status = EXIT_SUCCESS;

    if (!read_options(argc, argv, &options, &status))
        return status;
    folder = optind < argc && is_folder_argument(argv[optind]) ? argv[optind++] : default_folder();
    if (!is_directory(folder)) {
        fprintf(stderr, "golden: folder '%s' does not exist\n", folder);
        return EXIT_USAGE;
    }
    if (optind == argc && !list_files(folder, &files))
        return EXIT_USAGE;
    for (; optind < argc; ++optind)
        run_file(&all, folder, argv[optind], &options);
    for (size_t i = 0; i < files.n; ++i) {
        run_file(&all, folder, files.names[i], &options);
        free(files.names[i]);
    }
    printf("total: %ld passed, %ld failed\n", all.sum.passed, all.sum.failed);
    if (all.is_broken)
        return EXIT_USAGE;
    if (all.sum.passed + all.sum.failed == 0) {
        fputs("golden: no case was run\n", stderr);
        return EXIT_USAGE;
    }
    return all.sum.failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
