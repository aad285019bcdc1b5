/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .npy files: six bytes of magic, a version, the length of a head, and the head, which is a Python
 * dict as text:
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *
 * What is in it is read with care and nothing is evaluated. Archives of arrays are in npz.c.
 */
#include <cohort/files.h>

#include "io/npy.h"
#include "io/options.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the head --- */

typedef struct text { /* of the head, as it is read */
    const char *at, *end;
} text;

static void
skip_blanks(text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t'))
        ++t->at;
}

/* Whether `word` comes next; if so, it is passed over. */
static bool
eat(text *t, const char *word)
{
    size_t n = strlen(word);

    skip_blanks(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

/* 'f4' or "f4". */
static bool
eat_string(text *t, char *out, size_t capacity)
{
    const char *begin;
    char        quote;

    skip_blanks(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return false;
    quote = *t->at++;
    begin = t->at;
    while (t->at < t->end && *t->at != quote)
        ++t->at;
    if (t->at == t->end || (size_t)(t->at - begin) >= capacity)
        return false;
    memcpy(out, begin, (size_t)(t->at - begin));
    out[t->at - begin] = '\0';
    ++t->at;
    return true;
}

static bool
eat_number(text *t, int64_t *out)
{
    const char *begin;

    skip_blanks(t);
    begin = t->at;
    for (*out = 0; t->at < t->end && *t->at >= '0' && *t->at <= '9'; ++t->at) {
        if (*out > (INT64_MAX - 9) / 10)
            return false;
        *out = *out * 10 + (*t->at - '0');
    }
    (void)eat(t, "L"); /* Python 2 wrote 3L */
    return t->at > begin;
}

/* () or (3,) or (2, 3). */
static bool
eat_shape(text *t, coi_npy_head *head)
{
    if (!eat(t, "("))
        return false;
    for (head->ndim = 0; !eat(t, ")"); ++head->ndim) {
        if (head->ndim == CO_MAX_DIMS || !eat_number(t, &head->dims[head->ndim]))
            return false;
        if (!eat(t, ",")) {
            ++head->ndim;
            return eat(t, ")");
        }
    }
    return true;
}

static bool
eat_bool(text *t, bool *out)
{
    *out = eat(t, "True");
    return *out || eat(t, "False");
}

static co_dtype
dtype_of(const char *descr, bool *is_swapped)
{
    static const struct {
        const char *descr;
        co_dtype    dtype;
    } known[] = {
        { "b1", CO_BOOL },   { "i1", CO_INT8 },    { "i2", CO_INT16 },   { "i4", CO_INT32 },
        { "i8", CO_INT64 },  { "u1", CO_UINT8 },   { "u2", CO_UINT16 },  { "u4", CO_UINT32 },
        { "u8", CO_UINT64 }, { "f2", CO_FLOAT16 }, { "f4", CO_FLOAT32 }, { "f8", CO_FLOAT64 },
    };
    const uint16_t one = 1;
    bool           is_little = *(const uint8_t *)&one == 1;

    *is_swapped = descr[0] == (is_little ? '>' : '<');
    if (strchr("<>|=", descr[0]) == NULL || descr[0] == '\0')
        return CO_DTYPE_NONE;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i)
        if (strcmp(known[i].descr, descr + 1) == 0)
            return known[i].dtype;
    return CO_DTYPE_NONE;
}

/* The three keys, each once, in any order. */
static co_code
parse_head(text t, coi_npy_head *head, co_error_info *err)
{
    char     key[16], descr[64] = "";
    unsigned seen = 0;
    bool     good = eat(&t, "{");

    while (good && !eat(&t, "}")) {
        good = eat_string(&t, key, sizeof(key)) && eat(&t, ":");
        if (good && strcmp(key, "descr") == 0) {
            good = eat_string(&t, descr, sizeof(descr));
            seen |= 1;
        } else if (good && strcmp(key, "fortran_order") == 0) {
            good = eat_bool(&t, &head->is_fortran);
            seen |= 2;
        } else if (good && strcmp(key, "shape") == 0) {
            good = eat_shape(&t, head);
            seen |= 4;
        } else {
            good = false;
        }
        good = good && (eat(&t, ",") || (t.at < t.end && *t.at == '}'));
    }
    if (!good || seen != 7)
        return coi_error(
            err, CO_VALUE_ERROR,
            "the head of the array cannot be understood; arrays of records and of more "
            "than %d dimensions are not supported",
            CO_MAX_DIMS);
    head->dtype = dtype_of(descr, &head->is_swapped);
    if (head->dtype == CO_DTYPE_NONE)
        return coi_error(err, CO_VALUE_ERROR,
                         "an array of '%s' has no dtype here; there are b1, i1 to i8, u1 to u8, f2 "
                         "to f8",
                         descr);
    if (coi_shape_check(head->dims, (size_t)head->ndim, coi_dtypes[head->dtype].size,
                        &head->num_elements, NULL) != CO_OK)
        return coi_error(err, CO_VALUE_ERROR, "the shape of the array is larger than memory");
    return CO_OK;
}

static bool
read_exactly(const coi_npy_input *input, void *bytes, size_t n, co_error_info *err)
{
    int64_t got = input->read(input->user, bytes, n, err);

    if (got >= 0 && (size_t)got < n)
        coi_error(err, CO_VALUE_ERROR, "the array is cut off: %lld of %zu bytes are there",
                  (long long)got, n);
    return got >= 0 && (size_t)got == n;
}

co_code
coi_npy_head_read(const coi_npy_input *input, coi_npy_head *head, co_error_info *err)
{
    uint8_t first[12];
    char    few[1024], *room = few;
    size_t  n, prefix;
    co_code rc;

    *head = (coi_npy_head){ 0 };
    if (!read_exactly(input, first, 10, err))
        return err->code;
    if (memcmp(first, "\x93NUMPY", 6) != 0)
        return coi_error(err, CO_VALUE_ERROR,
                         "not an array of NumPy: the first bytes are not its magic");
    prefix = first[6] == 1 ? 10 : 12;
    if (first[6] < 1 || first[6] > 3)
        return coi_error(err, CO_VALUE_ERROR, "version %d of the array format; 1 to 3 are known",
                         first[6]);
    if (prefix == 12 && !read_exactly(input, first + 10, 2, err))
        return err->code;
    n = (size_t)first[8] | (size_t)first[9] << 8;
    if (prefix == 12)
        n |= (size_t)first[10] << 16 | (size_t)first[11] << 24;
    if (n > sizeof(few))
        return coi_error(err, CO_VALUE_ERROR,
                         "the head of the array has %zu bytes; at most %zu are read", n,
                         sizeof(few));
    if (!read_exactly(input, room, n, err))
        return err->code;
    rc = parse_head((text){ room, room + n }, head, err);
    head->data_offset = (int64_t)(prefix + n);
    return rc;
}

/* --- the data --- */

static void
swap_bytes(uint8_t *at, int64_t n, size_t size)
{
    for (int64_t i = 0; i < n; ++i, at += size)
        for (size_t k = 0; k < size / 2; ++k) {
            uint8_t byte = at[k];

            at[k] = at[size - 1 - k];
            at[size - 1 - k] = byte;
        }
}

/* From Fortran order, where the first dimension moves fastest, to C order. */
static void
reorder(const coi_npy_head *head, const uint8_t *from, uint8_t *to)
{
    size_t  size = coi_dtypes[head->dtype].size;
    int64_t index[CO_MAX_DIMS] = { 0 }, stride[CO_MAX_DIMS], at = 0;

    for (int d = 0; d < head->ndim; ++d)
        stride[d] = d == 0 ? 1 : stride[d - 1] * head->dims[d - 1];
    for (int64_t i = 0; i < head->num_elements; ++i) {
        memcpy(to + (size_t)i * size, from + (size_t)at * size, size);
        for (int d = head->ndim - 1; d >= 0; --d) {
            at += stride[d];
            if (++index[d] < head->dims[d])
                break;
            at -= stride[d] * head->dims[d];
            index[d] = 0;
        }
    }
}

static co_value *
new_array(co_context *ctx, const coi_npy_head *head, co_error_info *err)
{
    co_device *device = coi_current_host(ctx);

    return device != NULL ? coi_tensor_new(&ctx->heap, device, head->dtype, head->dims, head->ndim,
                                           head->num_elements, err)
                          : NULL;
}

static co_value *
read_array(co_context *ctx, const coi_npy_input *input, const coi_npy_head *head,
           co_error_info *err)
{
    size_t    size = coi_dtypes[head->dtype].size, nbytes = (size_t)head->num_elements * size;
    co_value *array, *ordered;
    uint8_t  *data;

    if ((int64_t)nbytes > input->size - head->data_offset) { /* before memory is asked for */
        coi_error(err, CO_VALUE_ERROR, "the array is cut off: %lld of %zu bytes are there",
                  (long long)(input->size - head->data_offset), nbytes);
        return NULL;
    }
    array = new_array(ctx, head, err);
    if (array == NULL)
        return NULL;
    data = coi_data_on_host(array);
    if (!read_exactly(input, data, nbytes, err)) {
        coi_unref(&ctx->heap, array);
        return NULL;
    }
    if (head->is_swapped)
        swap_bytes(data, head->num_elements, size);
    for (size_t i = 0; head->dtype == CO_BOOL && i < nbytes; ++i)
        data[i] = data[i] != 0;
    /* of an empty array the other dimensions may be any: they are not multiplied */
    if (!head->is_fortran || head->ndim < 2 || head->num_elements == 0)
        return array;
    ordered = new_array(ctx, head, err);
    if (ordered != NULL)
        reorder(head, data, coi_data_on_host(ordered));
    coi_unref(&ctx->heap, array);
    return ordered;
}

typedef struct reading {
    const coi_npy_input *input;
    const coi_npy_head  *head;
    co_error_info       *err;
} reading;

static co_value *
read_body(co_context *ctx, void *arg)
{
    const reading *r = arg;

    return read_array(ctx, r->input, r->head, r->err);
}

co_value *
coi_npy_data_read(co_context *ctx, const coi_npy_input *input, const coi_npy_head *head,
                  co_error_info *err)
{
    reading r = { input, head, err };

    return coi_make_tensor(ctx, read_body, &r);
}

/* --- files --- */

typedef struct mapping {
    coi_memory *memory;
    void       *at;
    size_t      nbytes;
} mapping;

static void
unmap(void *user)
{
    mapping *m = user;

    munmap(m->at, m->nbytes);
    coi_free(m->memory, m, sizeof(*m));
}

/* A tensor over the file. NULL without an error where it has to be copied after all. */
static co_value *
map_array(co_context *ctx, const coi_source *source, const coi_npy_head *head, co_error_info *err)
{
    size_t      size = coi_dtypes[head->dtype].size, nbytes = (size_t)head->num_elements * size;
    co_device  *device = coi_current_host(ctx);
    coi_buffer *buffer = NULL;
    mapping    *m;
    void       *data;

    if (device == NULL || !source->is_regular || head->is_swapped || head->dtype == CO_BOOL ||
        (head->is_fortran && head->ndim > 1) || nbytes == 0 ||
        head->data_offset % (int64_t)size != 0 ||
        (int64_t)nbytes > source->size - head->data_offset)
        return NULL;
    m = coi_calloc(&ctx->runtime->memory, sizeof(*m));
    if (m == NULL) {
        coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to map the array");
        return NULL;
    }
    m->memory = &ctx->runtime->memory;
    m->nbytes = (size_t)head->data_offset + nbytes;
    m->at = mmap(NULL, m->nbytes, PROT_READ, MAP_PRIVATE, source->fd, 0);
    if (m->at == MAP_FAILED) {
        coi_free(m->memory, m, sizeof(*m));
        return NULL;
    }
    data = (char *)m->at + head->data_offset;
    buffer = coi_buffer_foreign(device, data, nbytes, unmap, m);
    if (buffer == NULL) {
        unmap(m);
        coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory to map the array");
        return NULL;
    }
    return coi_tensor_over(&ctx->heap, device, head->dtype, head->dims, head->ndim,
                           head->num_elements, buffer, data, err);
}

static int64_t
read_source(void *user, void *bytes, size_t n, co_error_info *err)
{
    int64_t got = coi_source_read(user, bytes, n, err);

    if (got < 0)
        coi_npy_unreadable(err);
    return got;
}

co_value *
co_load_npy(co_context *ctx, const char *path, const co_array_options *options)
{
    co_array_options all = CO_ARRAY_OPTIONS_INIT;
    co_error_info    err = { .code = CO_OK };
    coi_npy_input    input;
    coi_npy_head     head;
    coi_source       source;
    co_value        *array = NULL;

    COI_ENTER(ctx, "load_npy", NULL);
    if (!coi_check_path(ctx, path, 2) || !coi_take_options(ctx, &all, sizeof(all), options, 3) ||
        coi_current_device(ctx) == NULL)
        return NULL;
    if (coi_source_open(&source, &ctx->runtime->memory, path, CO_COMPRESSION_NONE, 4096,
                        coi_err(ctx)) != CO_OK) {
        coi_failed(ctx);
        return NULL;
    }
    input = (coi_npy_input){ read_source, &source, source.is_regular ? source.size : INT64_MAX };
    if (coi_npy_head_read(&input, &head, &err) == CO_OK) {
        array = all.map ? map_array(ctx, &source, &head, &err) : NULL;
        if (array == NULL && err.code == CO_OK)
            array = coi_npy_data_read(ctx, &input, &head, &err);
    }
    coi_source_close(&source);
    if (array == NULL) {
        coi_fail(ctx, err.code, "'%s': %s", path, err.message);
        return NULL;
    }
    return coi_place_here(ctx, coi_own(ctx, array));
}
