/* SPDX-License-Identifier: Apache-2.0 */
/* What the formats of tensor files have in common, see tensor_file.h. */
#include "io/tensor_file.h"

#include "base/text.h"
#include "io/crc32c.h"
#include "io/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- errors --- */

co_code
coi_tensor_file_damaged(const coi_tensor_file *file, co_error_info *err, const char *format, ...)
{
    char    text[600];
    va_list args;

    va_start(args, format);
    coi_text_line_va(text, sizeof(text), format, args);
    va_end(args);
    return coi_error(err, CO_DATA_LOSS, "'%s': %s", file->path, text);
}

co_code
coi_tensor_file_no_memory(const coi_tensor_file *file, co_error_info *err)
{
    return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for the list of tensors of '%s'",
                     file->path);
}

/* --- reading bytes --- */

co_code
coi_open_regular(const char *path, int *fd, uint64_t *nbytes, co_error_info *err)
{
    struct stat about;
    co_code     rc = CO_OK;

    do /* a pipe without a writer must not hold us */
        *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0)
        return coi_system_error(err, "open", path, errno);
    if (fstat(*fd, &about) != 0)
        rc = coi_system_error(err, "look at", path, errno);
    else if (S_ISDIR(about.st_mode))
        rc = coi_system_error(err, "read", path, EISDIR);
    else if (!S_ISREG(about.st_mode))
        rc = coi_error(err, CO_INVALID_ARGUMENT,
                       "cannot read '%s': tensors are read from regular files alone", path);
    if (rc != CO_OK) {
        close(*fd);
        *fd = -1;
        return rc;
    }
    *nbytes = (uint64_t)about.st_size;
    return CO_OK;
}

co_code
coi_pread_exactly(int fd, const char *path, uint64_t offset, void *bytes, size_t n,
                  co_error_info *err)
{
    char *at = bytes;

    while (n > 0) {
        ssize_t got = pread(fd, at, n < (size_t)1 << 30 ? n : (size_t)1 << 30, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return coi_system_error(err, "read", path, errno);
        if (got == 0)
            return coi_error(err, CO_DATA_LOSS,
                             "'%s' has shrunk while it was read: it ends before byte %llu, and %zu "
                             "more were expected",
                             path, (unsigned long long)offset, n);
        at += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return CO_OK;
}

co_code
coi_read_file(coi_memory *memory, const char *path, uint64_t limit, char **bytes, size_t *nbytes,
              co_error_info *err)
{
    uint64_t n;
    int      fd;
    co_code  rc = coi_open_regular(path, &fd, &n, err);

    if (rc != CO_OK)
        return rc;
    *bytes = n <= limit ? coi_alloc(memory, (size_t)n) : NULL;
    if (n > limit)
        rc = coi_error(err, CO_DATA_LOSS, "'%s' has %llu bytes; %llu is the most it can have", path,
                       (unsigned long long)n, (unsigned long long)limit);
    else if (*bytes == NULL)
        rc = coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for the %llu bytes of '%s'",
                       (unsigned long long)n, path);
    else
        rc = coi_pread_exactly(fd, path, 0, *bytes, (size_t)n, err);
    close(fd);
    if (rc != CO_OK) {
        coi_free(memory, *bytes, (size_t)n);
        *bytes = NULL;
        return rc;
    }
    *nbytes = (size_t)n;
    return CO_OK;
}

/*
 * In parts: a part is large enough that another thread is worth it, and small parts of it are read
 * and summed in turn, while they are in the cache. The parts depend on the length alone.
 */
#define PART_BYTES  ((uint64_t)4 << 20)
#define PIECE_BYTES ((uint64_t)256 << 10)
#define MAX_PARTS   256

typedef struct parts {
    const coi_extent *extent;
    uint64_t          first, nbytes, part;
    char             *out;
    bool              sums;
    uint32_t          crc[MAX_PARTS];
    atomic_bool       failed;
    coi_lock          lock; /* of the next */
    co_error_info    *err;
} parts;

static uint64_t
part_length(const parts *p, int64_t i)
{
    uint64_t begin = (uint64_t)i * p->part;

    return p->nbytes - begin < p->part ? p->nbytes - begin : p->part;
}

static void
read_part(void *arg, int64_t i)
{
    parts        *p = arg;
    uint64_t      begin = (uint64_t)i * p->part, n = part_length(p, i);
    uint64_t      piece = p->sums ? PIECE_BYTES : n;
    co_error_info err = { .code = CO_OK };

    p->crc[i] = 0;
    for (uint64_t done = 0; done < n && !atomic_load(&p->failed); done += piece) {
        size_t length = (size_t)(n - done < piece ? n - done : piece);
        char  *to = p->out + begin + done;

        if (coi_pread_exactly(p->extent->fd, p->extent->path,
                              p->extent->offset + p->first + begin + done, to, length,
                              &err) != CO_OK) {
            atomic_store(&p->failed, true);
            coi_lock_take(&p->lock);
            coi_error(p->err, err.code, "%s", err.message);
            coi_lock_give(&p->lock);
            return;
        }
        if (p->sums)
            p->crc[i] = coi_crc32c_extend(p->crc[i], to, length);
    }
}

co_code
coi_read_extent(const coi_extent *extent, uint64_t first, void *out, uint64_t nbytes,
                coi_team *team, uint32_t *crc, co_error_info *err)
{
    parts   p = { .extent = extent, .first = first, .nbytes = nbytes, .part = PART_BYTES };
    int64_t n;

    p.out = out;
    p.sums = crc != NULL;
    p.err = err;
    if (nbytes / MAX_PARTS >= p.part)
        p.part = (nbytes / MAX_PARTS + PART_BYTES) / PART_BYTES * PART_BYTES;
    n = (int64_t)((nbytes + p.part - 1) / p.part);
    if (n > 1 && team != NULL)
        coi_team_run(team, n, read_part, &p);
    else
        for (int64_t i = 0; i < n; ++i)
            read_part(&p, i);
    if (err->code != CO_OK)
        return err->code;
    for (int64_t i = 0; crc != NULL && i < n; ++i)
        *crc = i == 0 ? p.crc[0] : coi_crc32c_join(*crc, p.crc[i], part_length(&p, i));
    if (crc != NULL && n == 0)
        *crc = 0;
    return CO_OK;
}

/* --- elements --- */

/* float16 holds every value of both: a shift for E5M2, which has the same exponents; E4M3 has no
 * infinity, and its NaN is all ones. */
static uint16_t
half_of_e4m3(uint8_t bits)
{
    uint16_t sign = (uint16_t)((bits & 0x80) << 8);
    unsigned exponent = bits >> 3 & 15, fraction = bits & 7;

    if ((bits & 0x7f) == 0x7f)
        return sign | 0x7e00;
    if (exponent == 0) { /* fraction * 2^-9 */
        if (fraction == 0)
            return sign;
        for (exponent = 1; (fraction & 8) == 0; --exponent)
            fraction <<= 1; /* the exponent of float16 goes further down */
        return (uint16_t)(sign | (unsigned)((int)exponent + 8) << 10 | (fraction & 7) << 7);
    }
    return (uint16_t)(sign | (exponent + 8) << 10 | fraction << 7);
}

void
coi_decode_stored(coi_stored stored, const void *from, void *to, int64_t n)
{
    const uint8_t *bytes = from;
    uint16_t      *halves = to;
    uint8_t       *bools = to;

    for (int64_t i = 0; stored == COI_STORED_BOOL && i < n; ++i)
        bools[i] = bytes[i] != 0;
    for (int64_t i = 0; stored == COI_STORED_FLOAT8_E4M3 && i < n; ++i)
        halves[i] = half_of_e4m3(bytes[i]);
    for (int64_t i = 0; stored == COI_STORED_FLOAT8_E5M2 && i < n; ++i)
        halves[i] = (uint16_t)(bytes[i] << 8);
}

/* --- the list --- */

coi_tensor_entry *
coi_tensor_file_add(coi_tensor_file *file, co_error_info *err)
{
    void *entries = file->entries;

    if (!coi_grow(file->memory, &entries, &file->cap_entries, file->num_entries + 1,
                  sizeof(*file->entries))) {
        coi_tensor_file_no_memory(file, err);
        return NULL;
    }
    file->entries = entries;
    file->entries[file->num_entries] = (coi_tensor_entry){ .order = file->num_entries };
    return &file->entries[file->num_entries++];
}

bool
coi_tensor_file_add_number(coi_tensor_file *file, int64_t number, co_error_info *err)
{
    void *numbers = file->numbers;

    if (!coi_grow(file->memory, &numbers, &file->cap_numbers, file->num_numbers + 1,
                  sizeof(*file->numbers))) {
        coi_tensor_file_no_memory(file, err);
        return false;
    }
    file->numbers = numbers;
    file->numbers[file->num_numbers++] = number;
    return true;
}

static int
compare_texts(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    size_t least = a_nbytes < b_nbytes ? a_nbytes : b_nbytes;
    int    order = least > 0 ? memcmp(a, b, least) : 0;

    return order != 0 ? order : (a_nbytes > b_nbytes) - (a_nbytes < b_nbytes);
}

/* Those that are listed first, then by name, then as the file has them. */
static int
by_name(const void *a, const void *b)
{
    const coi_tensor_entry *x = a, *y = b;
    int                     order = x->is_part - y->is_part;

    if (order == 0)
        order = compare_texts(x->info.name, x->info.name_nbytes, y->info.name, y->info.name_nbytes);
    return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

static int
pointers_by_name(const void *a, const void *b)
{
    return by_name(*(coi_tensor_entry *const *)a, *(coi_tensor_entry *const *)b);
}

/* Of entries of one name, the last alone. */
static void
keep_last_of_each(coi_tensor_file *file)
{
    size_t kept = 0;

    for (size_t i = 0; i < file->num_entries; ++i) {
        const coi_tensor_entry *e = &file->entries[i], *next = e + 1;

        if (i + 1 < file->num_entries && e->is_part == next->is_part &&
            compare_texts(e->info.name, e->info.name_nbytes, next->info.name,
                          next->info.name_nbytes) == 0)
            continue;
        file->entries[kept++] = *e;
    }
    file->num_entries = kept;
}

co_code
coi_tensor_file_finish(coi_tensor_file *file, int (*compare)(const void *, const void *),
                       co_error_info   *err)
{
    static const int64_t none = 0;
    const int64_t       *numbers = file->numbers != NULL ? file->numbers : &none;
    size_t               listed = 0;

    if (file->num_entries > 1)
        qsort(file->entries, file->num_entries, sizeof(*file->entries), by_name);
    keep_last_of_each(file);
    while (listed < file->num_entries && !file->entries[listed].is_part)
        ++listed;
    if (compare != NULL && listed > 1)
        qsort(file->entries, listed, sizeof(*file->entries), compare);
    file->info.num_entries = listed;
    file->by_name = coi_alloc(file->memory, listed * sizeof(*file->by_name));
    if (file->by_name == NULL)
        return coi_tensor_file_no_memory(file, err);
    for (size_t i = 0; i < file->num_entries; ++i) {
        coi_tensor_entry *e = &file->entries[i];

        e->info.dims = numbers + e->dims_at;
        e->info.slices = e->info.num_slices > 0 ? numbers + e->slices_at : NULL;
        if (i < listed)
            file->by_name[i] = e;
    }
    if (listed > 1)
        qsort(file->by_name, listed, sizeof(coi_tensor_entry *), pointers_by_name);
    return CO_OK;
}

const coi_tensor_entry *
coi_tensor_file_entry(const coi_tensor_file *file, const char *name, size_t name_nbytes)
{
    size_t low = 0, high = file->info.num_entries;

    while (low < high) {
        size_t                  middle = low + (high - low) / 2;
        const coi_tensor_entry *e = file->by_name[middle];
        int order = compare_texts(e->info.name, e->info.name_nbytes, name, name_nbytes);

        if (order == 0)
            return e;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* --- opening --- */

void
coi_tensor_file_close(coi_tensor_file *file)
{
    coi_memory *memory;

    if (file == NULL)
        return;
    memory = file->memory;
    if (file->state != NULL)
        file->format->close(file);
    if (file->fd >= 0)
        close(file->fd);
    coi_free(memory, file->by_name, file->info.num_entries * sizeof(*file->by_name));
    coi_free(memory, file->entries, file->cap_entries * sizeof(*file->entries));
    coi_free(memory, file->numbers, file->cap_numbers * sizeof(*file->numbers));
    coi_free(memory, file->metadata, file->cap_metadata * sizeof(*file->metadata));
    coi_free(memory, file->path, file->path_nbytes + 1);
    coi_free(memory, file, sizeof(*file));
}

co_code
coi_tensor_file_open_as(coi_memory *memory, const char *path, const coi_tensor_format *format,
                        coi_tensor_file **out, co_error_info *err)
{
    coi_tensor_file *file = coi_calloc(memory, sizeof(*file));
    co_code          rc;

    if (file != NULL) {
        file->memory = memory;
        file->fd = -1;
        file->format = format;
        file->info.format = format->name;
        file->info.num_shards = 1;
        file->path_nbytes = strlen(path);
        file->path = coi_strndup(memory, path, file->path_nbytes);
    }
    if (file == NULL || file->path == NULL) {
        coi_free(memory, file, sizeof(*file));
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to open '%s'", path);
    }
    rc = format->open(file, err);
    if (rc != CO_OK) {
        coi_tensor_file_close(file);
        return rc;
    }
    *out = file;
    return CO_OK;
}

/* Whether a file begins as safetensors do: a length that fits, and an object. */
static bool
begins_as_safetensors(const unsigned char *first, size_t n, uint64_t nbytes)
{
    uint64_t header = 0;

    for (int i = 7; n >= 9 && i >= 0; --i)
        header = header << 8 | first[i];
    return n >= 9 && header <= COI_SAFETENSORS_MAX_HEADER && header <= nbytes - 8 &&
           strchr("{ \n\r\t", first[8]) != NULL && first[8] != '\0';
}

static bool
ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);

    return n >= m && strcmp(path + n - m, end) == 0;
}

/* The format of a regular file, by its first and last bytes. Damage is for the format to tell, so
 * what is no other is safetensors, or an index, if its name says so. */
static co_code
find_format(const char *path, const coi_tensor_format **out, co_error_info *err)
{
    unsigned char first[16], foot[COI_SSTABLE_FOOT];
    uint64_t      nbytes = 0;
    size_t        n;
    int           fd;
    co_code       rc = coi_open_regular(path, &fd, &nbytes, err);

    if (rc != CO_OK)
        return rc;
    n = nbytes < sizeof(first) ? (size_t)nbytes : sizeof(first);
    rc = coi_pread_exactly(fd, path, 0, first, n, err);
    *out = ends_with(path, ".index") ? &coi_tensor_bundle_format : &coi_safetensors_format;
    if (rc == CO_OK && begins_as_safetensors(first, n, nbytes))
        *out = &coi_safetensors_format;
    else if (rc == CO_OK && n >= 4 &&
             (memcmp(first, "PK\3\4", 4) == 0 || memcmp(first, "PK\5\6", 4) == 0))
        *out = &coi_npz_format;
    else if (rc == CO_OK && nbytes >= sizeof(foot)) {
        rc = coi_pread_exactly(fd, path, nbytes - sizeof(foot), foot, sizeof(foot), err);
        if (rc == CO_OK && coi_is_sstable_foot(foot))
            *out = &coi_tensor_bundle_format;
    }
    close(fd);
    return rc;
}

static char *
join(coi_memory *memory, const char *path, const char *between, const char *end)
{
    size_t n = strlen(path) + strlen(between) + strlen(end);
    char  *out = coi_alloc(memory, n + 1);

    if (out != NULL)
        snprintf(out, n + 1, "%s%s%s", path, between, end);
    return out;
}

char *
coi_join_path(coi_memory *memory, const char *folder, const char *name)
{
    return name[0] == '/' ? coi_strndup(memory, name, strlen(name))
                          : join(memory, folder, "/", name);
}

/* The latest bundle of a folder, which a text file names. */
static co_code
open_latest(coi_memory *memory, const char *folder, coi_tensor_file **out, co_error_info *err)
{
    coi_checkpoint_state state;
    char                *prefix;
    co_code              rc = coi_checkpoint_state_read(&state, memory, folder, err);

    if (rc != CO_OK)
        return rc;
    prefix = coi_join_path(memory, folder, state.latest);
    coi_checkpoint_state_free(&state);
    if (prefix == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to open '%s'", folder);
    rc = coi_tensor_file_open_as(memory, prefix, &coi_tensor_bundle_format, out, err);
    coi_free(memory, prefix, strlen(prefix) + 1);
    return rc;
}

/* The prefix of a bundle, which may be named by its index. */
static co_code
open_bundle(coi_memory *memory, const char *path, coi_tensor_file **out, co_error_info *err)
{
    size_t  n = strlen(path);
    char   *prefix;
    co_code rc;

    if (!ends_with(path, ".index"))
        return coi_error(err, CO_INVALID_ARGUMENT,
                         "'%s' is the index of a tensor bundle, whose name must end with .index, "
                         "or its data cannot be found",
                         path);
    prefix = coi_strndup(memory, path, n - strlen(".index"));
    if (prefix == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to open '%s'", path);
    rc = coi_tensor_file_open_as(memory, prefix, &coi_tensor_bundle_format, out, err);
    coi_free(memory, prefix, n - strlen(".index") + 1);
    return rc;
}

/* There is no such file: a bundle, or nothing. */
static co_code
open_prefix(coi_memory *memory, const char *path, coi_tensor_file **out, co_error_info *err)
{
    char       *index = join(memory, path, ".index", "");
    struct stat about;
    bool        is_bundle = index != NULL && stat(index, &about) == 0;

    if (index == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to open '%s'", path);
    coi_free(memory, index, strlen(index) + 1);
    if (!is_bundle)
        return coi_error(err, CO_NOT_FOUND,
                         "there is no file '%s', and no tensor bundle of that prefix ('%s.index')",
                         path, path);
    return coi_tensor_file_open_as(memory, path, &coi_tensor_bundle_format, out, err);
}

co_code
coi_tensor_file_open(coi_memory *memory, const char *path, coi_tensor_file **out,
                     co_error_info *err)
{
    const coi_tensor_format *format = NULL;
    struct stat              about;
    co_code                  rc;

    if (stat(path, &about) != 0)
        return errno == ENOENT ? open_prefix(memory, path, out, err)
                               : coi_system_error(err, "look at", path, errno);
    if (S_ISDIR(about.st_mode))
        return open_latest(memory, path, out, err);
    rc = find_format(path, &format, err);
    if (rc != CO_OK)
        return rc;
    return format == &coi_tensor_bundle_format
               ? open_bundle(memory, path, out, err)
               : coi_tensor_file_open_as(memory, path, format, out, err);
}
