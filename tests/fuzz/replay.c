/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a fuzz target with every file of the folders it is given: the part of libFuzzer that a test
 * needs, with any compiler. */
#include "fuzz.h"

#include <dirent.h>

#define MAX_BYTES (1 << 20)

static bool
replay_file(const char *path)
{
    FILE    *file = fopen(path, "rb");
    uint8_t *bytes = malloc(MAX_BYTES), *exact;
    size_t   n;

    if (file == NULL || bytes == NULL) {
        fprintf(stderr, "cannot read %s\n", path);
        return false;
    }
    n = fread(bytes, 1, MAX_BYTES, file);
    fclose(file);
    exact = malloc(n > 0 ? n : 1); /* so that a sanitizer sees who reads past the end */
    memcpy(exact, bytes, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    free(bytes);
    return true;
}

static long
replay_folder(const char *folder)
{
    DIR           *dir = opendir(folder);
    struct dirent *entry;
    long           count = 0;

    if (dir == NULL) {
        fprintf(stderr, "cannot open %s\n", folder);
        return -1;
    }
    while (count >= 0 && (entry = readdir(dir)) != NULL) {
        char path[4096];

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        count = replay_file(path) ? count + 1 : -1;
    }
    closedir(dir);
    return count;
}

int
main(int argc, char **argv)
{
    long count = 0;

    for (int i = 1; i < argc; ++i) {
        long more = replay_folder(argv[i]);

        if (more < 0)
            return 1;
        count += more;
    }
    printf("%ld inputs\n", count);
    return count > 0 ? 0 : 1; /* a corpus that is not there proves nothing */
}
