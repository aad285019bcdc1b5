/* SPDX-License-Identifier: Apache-2.0 */
/* Files for tests: in a folder of the test's own, which goes when the test's process ends. */
#ifndef COHORT_FILES_SUPPORT_H
#define COHORT_FILES_SUPPORT_H

#include "data_support.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_PATH 300

static char files_folder[FILES_PATH / 2];

static inline void
files_clean(void)
{
    DIR           *folder = opendir(files_folder);
    struct dirent *entry;
    char           path[2 * FILES_PATH];

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", files_folder, entry->d_name);
        unlink(path);
    }
    if (folder != NULL)
        closedir(folder);
    rmdir(files_folder);
}

/* The path of a file of this test; `out` has FILES_PATH bytes. */
static inline const char *
files_path(const char *name, char *out)
{
    const char *base = getenv("TMPDIR");

    if (files_folder[0] == '\0') {
        snprintf(files_folder, sizeof(files_folder), "%.80s/cohort-files-XXXXXX",
                 base != NULL ? base : "/tmp");
        CO_REQUIRE(mkdtemp(files_folder) != NULL);
    }
    snprintf(out, FILES_PATH, "%s/%s", files_folder, name);
    return out;
}

static inline void
files_write(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");

    CO_REQUIRE(file != NULL && fwrite(bytes, 1, n, file) == n);
    CO_REQUIRE(fclose(file) == 0);
}

/* All of a file; the caller frees. */
static inline char *
files_read(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *bytes;

    CO_REQUIRE(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *n = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(*n + 1);
    CO_REQUIRE(fread(bytes, 1, *n, file) == *n);
    fclose(file);
    return bytes;
}

/* A file of the recorded data. */
static inline const char *
files_golden(const char *name, char *out)
{
    const char *root = getenv("COHORT_SOURCE_DIR");

    snprintf(out, FILES_PATH, "%.190s/tests/golden/records/%.80s", root != NULL ? root : ".", name);
    return out;
}

/* The options of a compression. */
static inline co_file_options
files_options(co_compression compression)
{
    co_file_options options = CO_FILE_OPTIONS_INIT;

    options.compression = compression;
    return options;
}

static inline bool
files_has_zlib(void)
{
    co_context     *ctx = co_open("log=off");
    co_file_options options = files_options(CO_COMPRESSION_GZIP);
    bool            has_it = co_record_writer_open(ctx, "/dev/null", &options) != NULL;

    co_clear(ctx);
    co_close(ctx);
    return has_it;
}

/* Record i of a test: n bytes that depend on both. */
static inline void
files_fill(unsigned char *bytes, size_t n, size_t i)
{
    for (size_t k = 0; k < n; ++k)
        bytes[k] = (unsigned char)(k * 31 + i * 7 + n);
}

#endif
