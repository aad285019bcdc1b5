/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cgroup's limit of processor time, in cores. Both hierarchies can be there at once, a limit
 * can stand at any level, and inside a container the path that the kernel tells may not exist below
 * the mount; so every level from our group to the root is read, and missing levels are skipped.
 */
#include "base/topology.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const v1_mounts[] = { "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct",
                                         "/sys/fs/cgroup/cpuacct,cpu" };
static const char *const v2_mounts[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };

/* Read the beginning of a file as text; false if there is none. */
static bool
read_text(const char *path, char *text, size_t capacity)
{
    int    file = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;

    if (file < 0)
        return false;
    while (length < capacity - 1) {
        ssize_t got = read(file, text + length, capacity - 1 - length);

        if (got <= 0)
            break;
        length += (size_t)got;
    }
    close(file);
    text[length] = '\0';
    return length > 0;
}

static bool
read_file_of(const char *group, const char *file, char *text, size_t capacity)
{
    char path[PATH_MAX];
    int  length = snprintf(path, sizeof(path), "%s/%s", group, file);

    return length > 0 && (size_t)length < sizeof(path) && read_text(path, text, capacity);
}

static int
cores_of(long long quota_us, long long period_us)
{
    long long cores;

    if (quota_us <= 0 || period_us <= 0)
        return INT_MAX;
    cores = quota_us / period_us + (quota_us % period_us != 0);
    return cores < INT_MAX ? (int)cores : INT_MAX;
}

/* cpu.max: "100000 50000", or "max 100000" without a limit. */
static int
v2_limit(const char *group)
{
    char      text[80];
    char     *end = text;
    long long quota_us;

    if (!read_file_of(group, "cpu.max", text, sizeof(text)))
        return INT_MAX;
    quota_us = strtoll(text, &end, 10);
    return end == text ? INT_MAX : cores_of(quota_us, strtoll(end, NULL, 10));
}

/* cpu.cfs_quota_us: -1 without a limit. */
static int
v1_limit(const char *group)
{
    char      text[40];
    long long quota_us;

    if (!read_file_of(group, "cpu.cfs_quota_us", text, sizeof(text)))
        return INT_MAX;
    quota_us = strtoll(text, NULL, 10);
    if (!read_file_of(group, "cpu.cfs_period_us", text, sizeof(text)))
        return INT_MAX;
    return cores_of(quota_us, strtoll(text, NULL, 10));
}

/* The smallest limit of `path` below `mount` and of all groups around it. */
static int
smallest_limit(const char *root, const char *mount, const char *path,
               int (*limit)(const char *group))
{
    char   group[PATH_MAX];
    size_t mount_length = strlen(root) + strlen(mount);
    int    length = snprintf(group, sizeof(group), "%s%s%s", root, mount, path);
    int    least = INT_MAX;

    if (length < 0 || (size_t)length >= sizeof(group))
        return INT_MAX;
    for (;;) {
        int   here = limit(group);
        char *slash;

        least = here < least ? here : least;
        if (strlen(group) <= mount_length)
            return least;
        slash = strrchr(group, '/');
        if (slash == NULL || (size_t)(slash - group) < mount_length)
            return least;
        *slash = '\0';
    }
}

static bool
has_word(const char *list, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/*
 * One line of /proc/self/cgroup, "number:controllers:path"; version 2 has number 0 and no
 * controllers.
 */
static int
limit_of_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    int   least = INT_MAX;

    if (path == NULL || path[1] != '/')
        return INT_MAX;
    *controllers++ = '\0';
    *path++ = '\0';
    /* A group outside of what is mounted here: only the mount itself can be asked. */
    if (strstr(path, "/..") != NULL)
        *path = '\0';
    if (*controllers == '\0')
        for (size_t i = 0; i < sizeof(v2_mounts) / sizeof(v2_mounts[0]); ++i) {
            int here = smallest_limit(root, v2_mounts[i], path, v2_limit);

            least = here < least ? here : least;
        }
    else if (has_word(controllers, "cpu"))
        for (size_t i = 0; i < sizeof(v1_mounts) / sizeof(v1_mounts[0]); ++i) {
            int here = smallest_limit(root, v1_mounts[i], path, v1_limit);

            least = here < least ? here : least;
        }
    return least;
}

int
coi_topology_quota(const char *root)
{
    char  path[PATH_MAX];
    char  text[8192];
    char *rest = NULL;
    int   length = snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    int   least = INT_MAX;

    if (length < 0 || (size_t)length >= sizeof(path) || !read_text(path, text, sizeof(text)))
        return INT_MAX;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        int here = limit_of_line(root, line);

        least = here < least ? here : least;
    }
    return least;
}
