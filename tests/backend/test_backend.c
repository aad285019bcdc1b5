/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device backend that catches mistakes of the library, device type TEST. It uses the public
 * header alone, and so is an example of a backend too.
 *
 * Memory: a buffer is a memfd that is mapped twice. Tensors carry the address of a mapping without
 * access; only commands of the queue know the other one. A host that touches the data of a tensor
 * faults, and the handler below says at which address and in which functions. Addresses are never
 * used again, so that memory that was freed faults as well.
 *
 * Queue: a thread that runs commands in order, after random delays (environment TEST_BACKEND_SEED,
 * TEST_BACKEND_DELAY_US). Who does not wait for it reads what is not there yet.
 *
 * Kernels: float32 of about thirty operators, plain loops; operands of other dtypes are declined.
 */
#include <cohort/backend.h>

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NUM_DEVICES  8
#define REGION_BYTES ((size_t)1 << 38)
#define MAX_TENSORS  12
#define MAX_ATTRS    8
#define MAX_DIMS     CO_MAX_DIMS
#define FAULT_STATUS 86

struct co_backend_device {
    const co_backend_host *host;
    int                    index;
};

struct co_backend_buffer {
    char  *address; /* of tensors: no access */
    char  *alias;   /* of commands */
    size_t nbytes;  /* mapped */
};

/* --- memory --- */

static struct {
    pthread_mutex_t lock;
    char           *begin; /* addresses of all buffers are in here */
    size_t          used;
} region = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct sigaction previous;

/* The function at an address, from the symbol table of its file, which has those that are not
 * exported too; "" where it is not known. */
static const char *
function_at(const void *address)
{
    const ElfW(Ehdr) * file;
    const ElfW(Shdr) * sections;
    const char *best = "";
    ElfW(Addr) at, best_value = 0;
    struct stat size;
    Dl_info     info;
    int         fd;

    if (dladdr(address, &info) == 0 || (fd = open(info.dli_fname, O_RDONLY | O_CLOEXEC)) < 0)
        return "";
    file = fstat(fd, &size) == 0 ? mmap(NULL, (size_t)size.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                                 : MAP_FAILED;
    close(fd);
    if ((const void *)file == MAP_FAILED)
        return "";
    at = (ElfW(Addr))((const char *)address - (const char *)info.dli_fbase);
    sections = (const void *)((const char *)file + file->e_shoff);
    for (int i = 0; i < file->e_shnum; ++i) {
        const char *names = (const char *)file + sections[sections[i].sh_link].sh_offset;
        const ElfW(Sym) *symbols = (const void *)((const char *)file + sections[i].sh_offset);

        for (size_t k = 0;
             sections[i].sh_type == SHT_SYMTAB && k < sections[i].sh_size / sizeof(*symbols); ++k)
            if ((symbols[k].st_info & 0xf) == STT_FUNC && symbols[k].st_value <= at &&
                symbols[k].st_value > best_value) {
                best_value = symbols[k].st_value;
                best = names + symbols[k].st_name;
            }
    }
    return best; /* the file stays mapped: the process ends */
}

/* The functions on the stack, from the one that faulted on. */
static void
say_functions(void *const *frames, int n)
{
    char   text[600];
    size_t at = (size_t)snprintf(text, sizeof(text), "TEST backend: it was in");

    for (int i = 2; i < n && at < sizeof(text) - 80; ++i) /* after this handler and its frame */
        at += (size_t)snprintf(text + at, sizeof(text) - at, " %.60s", function_at(frames[i]));
    text[at++] = '\n';
    if (write(STDERR_FILENO, text, at) < 0)
        _exit(FAULT_STATUS + 1);
}

static void
on_fault(int signal_number, siginfo_t *info, void *context)
{
    const char *at = info->si_addr;
    void       *frames[64];
    char        text[300];
    int         num_frames, n;

    (void)context;
    if (region.begin == NULL || at < region.begin || at >= region.begin + REGION_BYTES) {
        sigaction(signal_number, &previous, NULL); /* not ours: it faults again, for them */
        return;
    }
    num_frames = backtrace(frames, 64);
    n = snprintf(text, sizeof(text), "TEST backend: the host touches device memory at %p\n",
                 (const void *)at);
    if (write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(FAULT_STATUS + 1);
    say_functions(frames, num_frames);
    _exit(FAULT_STATUS);
}

static void
catch_faults(void)
{
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    void            *unused[2];

    backtrace(unused, 2); /* loads what it needs now, and not in the handler */
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous);
}

/* Addresses for nbytes, without access; NULL when there are no more. */
static char *
take_addresses(size_t nbytes)
{
    char *at = NULL;

    pthread_mutex_lock(&region.lock);
    if (region.begin == NULL) {
        void *begin = mmap(NULL, REGION_BYTES, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        region.begin = begin != MAP_FAILED ? begin : NULL;
        if (region.begin != NULL)
            catch_faults();
    }
    if (region.begin != NULL && REGION_BYTES - region.used >= nbytes) {
        at = region.begin + region.used;
        region.used += nbytes;
    }
    pthread_mutex_unlock(&region.lock);
    return at;
}

static co_code
test_alloc(co_backend_device *device, size_t nbytes, co_backend_buffer **out, co_error_info *err)
{
    co_backend_buffer *buffer = malloc(sizeof(*buffer));
    size_t             page = (size_t)sysconf(_SC_PAGESIZE);
    size_t             mapped = (nbytes + page - 1) / page * page;
    int                fd = memfd_create("cohort-test-backend", MFD_CLOEXEC);
    void              *alias = MAP_FAILED, *address = MAP_FAILED;

    if (buffer != NULL && fd >= 0 && ftruncate(fd, (off_t)mapped) == 0) {
        char *place = take_addresses(mapped);

        alias = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (place != NULL)
            address = mmap(place, mapped, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0);
    }
    if (fd >= 0)
        close(fd);
    if (alias == MAP_FAILED || address == MAP_FAILED) {
        if (alias != MAP_FAILED)
            munmap(alias, mapped);
        free(buffer);
        return co_backend_error(err, CO_RESOURCE_EXHAUSTED, "TEST:%d has no memory for %zu bytes",
                                device->index, nbytes);
    }
    memset(alias, 0xA5, mapped); /* nobody may count on zeros */
    *buffer = (co_backend_buffer){ address, alias, mapped };
    *out = buffer;
    return CO_OK;
}

static void *
test_address(co_backend_buffer *buffer)
{
    return buffer->address;
}

static void
free_buffer(co_backend_buffer *buffer)
{
    munmap(buffer->alias, buffer->nbytes);
    mmap(buffer->address, buffer->nbytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    free(buffer);
}

static void
test_free(co_backend_device *device, co_backend_buffer *buffer, size_t nbytes)
{
    (void)device, (void)nbytes;
    free_buffer(buffer);
}

/* --- the queue --- */

struct co_backend_event {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    int             refs; /* of the library, and of commands that record it or wait */
    bool            has_happened;
};

/* A tensor and an attribute, as a command keeps them. */
typedef struct tensor {
    char    *data;
    int      ndim;
    int64_t  num_elements;
    int64_t  dims[MAX_DIMS];
    co_dtype dtype;
} tensor;

typedef struct attr {
    char    name[24];
    int64_t i;
    double  f;
    int     num_ints;
    int64_t ints[MAX_DIMS];
} attr;

typedef struct command command;
struct command {
    command *next;
    void (*run)(command *self);
    /* copies */
    char       *dst;
    const char *src;
    size_t      nbytes;
    int         byte;
    void       *staged; /* freed with it */
    /* others */
    co_backend_buffer *buffer;
    co_backend_event  *event;
    /* kernels */
    tensor in[MAX_TENSORS], out;
    size_t num_in;
    attr   attrs[MAX_ATTRS];
    size_t num_attrs;
    float (*unary)(float);
    float (*binary)(float, float);
    double scale; /* of a reduction, or what fills */
};

struct co_backend_queue {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    pthread_t       thread;
    command        *first, **end;
    uint64_t        given, done;
    bool            stops;
    uint64_t        random;
    unsigned        delay_us;
};

static void
delay(co_backend_queue *queue)
{
    uint64_t x = queue->random;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    queue->random = x;
    if (x % 8 == 0 && queue->delay_us > 0)
        nanosleep(&(struct timespec){ 0, (long)(x / 8 % queue->delay_us) * 1000 }, NULL);
}

static void *
serve(void *arg)
{
    co_backend_queue *queue = arg;

    pthread_mutex_lock(&queue->lock);
    for (;;) {
        command *next = queue->first;

        if (next == NULL) {
            if (queue->stops)
                break;
            pthread_cond_wait(&queue->changed, &queue->lock);
            continue;
        }
        queue->first = next->next;
        if (queue->first == NULL)
            queue->end = &queue->first;
        pthread_mutex_unlock(&queue->lock);
        delay(queue);
        next->run(next);
        free(next->staged);
        free(next);
        pthread_mutex_lock(&queue->lock);
        ++queue->done;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static uint64_t
number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static co_code
test_open_queue(co_backend_device *device, co_backend_queue **out, co_error_info *err)
{
    co_backend_queue *queue = calloc(1, sizeof(*queue));
    sigset_t          all, before;
    int               failed;

    if (queue == NULL)
        return co_backend_error(err, CO_RESOURCE_EXHAUSTED, "TEST:%d: no memory for its queue",
                                device->index);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    queue->end = &queue->first;
    queue->random = (number_of("TEST_BACKEND_SEED", 1) + 1) * 0x9E3779B97F4A7C15u +
                    (uint64_t)device->index;
    queue->delay_us = (unsigned)number_of("TEST_BACKEND_DELAY_US", 60);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&queue->thread, NULL, serve, queue);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        free(queue);
        return co_backend_error(err, CO_RESOURCE_EXHAUSTED, "TEST:%d: no thread for its queue",
                                device->index);
    }
    *out = queue;
    return CO_OK;
}

static void
test_close_queue(co_backend_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->stops = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->changed);
    free(queue);
}

static command *
new_command(void (*run)(command *self))
{
    command *made = calloc(1, sizeof(*made));

    if (made != NULL)
        made->run = run;
    return made;
}

static co_code
no_memory(co_error_info *err)
{
    return co_backend_error(err, CO_RESOURCE_EXHAUSTED, "no memory for a command");
}

static co_code
give(co_backend_queue *queue, command *given, co_error_info *err)
{
    if (given == NULL)
        return no_memory(err);
    pthread_mutex_lock(&queue->lock);
    *queue->end = given;
    queue->end = &given->next;
    ++queue->given;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return CO_OK;
}

static co_code
test_synchronize(co_backend_queue *queue, co_error_info *err)
{
    uint64_t given;

    (void)err;
    pthread_mutex_lock(&queue->lock);
    given = queue->given;
    while (queue->done < given)
        pthread_cond_wait(&queue->changed, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
    return CO_OK;
}

static void
run_copy(command *self)
{
    memmove(self->dst, self->src, self->nbytes);
}

static co_code
give_copy(co_backend_queue *queue, void *dst, const void *src, size_t nbytes, void *staged,
          co_error_info *err)
{
    command *copy = new_command(run_copy);

    if (copy == NULL) {
        free(staged);
        return no_memory(err);
    }
    copy->dst = dst;
    copy->src = src;
    copy->nbytes = nbytes;
    copy->staged = staged;
    return give(queue, copy, err);
}

static co_code
test_upload(co_backend_queue *queue, co_backend_buffer *dst, size_t offset, const void *src,
            size_t nbytes, co_error_info *err)
{
    void *staged = malloc(nbytes);

    if (staged == NULL)
        return no_memory(err);
    memcpy(staged, src, nbytes);
    return give_copy(queue, dst->alias + offset, staged, nbytes, staged, err);
}

static co_code
test_download(co_backend_queue *queue, void *dst, co_backend_buffer *src, size_t offset,
              size_t nbytes, co_error_info *err)
{
    return give_copy(queue, dst, src->alias + offset, nbytes, NULL, err);
}

static co_code
test_copy(co_backend_queue *queue, co_backend_buffer *dst, size_t dst_offset,
          co_backend_buffer *src, size_t src_offset, size_t nbytes, co_error_info *err)
{
    return give_copy(queue, dst->alias + dst_offset, src->alias + src_offset, nbytes, NULL, err);
}

static void
run_fill(command *self)
{
    memset(self->dst, self->byte, self->nbytes);
}

static co_code
test_fill(co_backend_queue *queue, co_backend_buffer *dst, size_t offset, int byte, size_t nbytes,
          co_error_info *err)
{
    command *fill = new_command(run_fill);

    if (fill == NULL)
        return no_memory(err);
    fill->dst = dst->alias + offset;
    fill->byte = byte;
    fill->nbytes = nbytes;
    return give(queue, fill, err);
}

static void
run_free(command *self)
{
    free_buffer(self->buffer);
}

static void
test_free_in_order(co_backend_queue *queue, co_backend_buffer *buffer, size_t nbytes)
{
    command *release = new_command(run_free);

    (void)nbytes;
    if (release == NULL) { /* without memory, wait instead */
        test_synchronize(queue, NULL);
        free_buffer(buffer);
        return;
    }
    release->buffer = buffer;
    give(queue, release, NULL);
}

/* --- events --- */

static co_code
test_open_event(co_backend_device *device, co_backend_event **out, co_error_info *err)
{
    co_backend_event *event = calloc(1, sizeof(*event));

    (void)device;
    if (event == NULL)
        return no_memory(err);
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    event->refs = 1;
    *out = event;
    return CO_OK;
}

static void
test_close_event(co_backend_event *event)
{
    int left;

    pthread_mutex_lock(&event->lock);
    left = --event->refs;
    pthread_mutex_unlock(&event->lock);
    if (left > 0)
        return;
    pthread_mutex_destroy(&event->lock);
    pthread_cond_destroy(&event->changed);
    free(event);
}

static void
run_record(command *self)
{
    pthread_mutex_lock(&self->event->lock);
    self->event->has_happened = true;
    pthread_cond_broadcast(&self->event->changed);
    pthread_mutex_unlock(&self->event->lock);
    test_close_event(self->event);
}

static void
run_wait(command *self)
{
    pthread_mutex_lock(&self->event->lock);
    while (!self->event->has_happened)
        pthread_cond_wait(&self->event->changed, &self->event->lock);
    pthread_mutex_unlock(&self->event->lock);
    test_close_event(self->event);
}

static co_code
give_event(co_backend_queue *queue, co_backend_event *event, void (*run)(command *self),
           co_error_info *err)
{
    command *made = new_command(run);

    if (made == NULL)
        return no_memory(err);
    pthread_mutex_lock(&event->lock);
    ++event->refs;
    pthread_mutex_unlock(&event->lock);
    made->event = event;
    return give(queue, made, err);
}

static co_code
test_record(co_backend_queue *queue, co_backend_event *event, co_error_info *err)
{
    return give_event(queue, event, run_record, err);
}

static co_code
test_wait(co_backend_queue *queue, co_backend_event *event, co_error_info *err)
{
    return give_event(queue, event, run_wait, err);
}

/* --- kernels --- */

static tensor
keep_tensor(const co_backend_tensor *given)
{
    tensor kept = { .data = given->buffer->alias + given->offset,
                    .ndim = given->ndim,
                    .num_elements = given->num_elements,
                    .dtype = given->dtype };

    memcpy(kept.dims, given->dims, (size_t)given->ndim * sizeof(kept.dims[0]));
    return kept;
}

static const attr *
attr_of(const command *self, const char *name)
{
    static const attr none = { .num_ints = -1 };

    for (size_t i = 0; i < self->num_attrs; ++i)
        if (strcmp(self->attrs[i].name, name) == 0)
            return &self->attrs[i];
    return &none;
}

/* A command with what it needs of the call; NULL when that is not to be had. */
static command *
keep_call(const co_backend_call *call, void (*run)(command *self))
{
    command *made;

    if (call->num_in > MAX_TENSORS || call->num_out != 1 || call->num_attrs > MAX_ATTRS)
        return NULL;
    made = new_command(run);
    if (made == NULL)
        return NULL;
    made->num_in = call->num_in;
    for (size_t i = 0; i < call->num_in; ++i)
        made->in[i] = keep_tensor(&call->in[i]);
    made->out = keep_tensor(&call->out[0]);
    made->num_attrs = call->num_attrs;
    for (size_t i = 0; i < call->num_attrs; ++i) {
        const co_backend_attr *from = &call->attrs[i];
        attr                  *to = &made->attrs[i];

        snprintf(to->name, sizeof(to->name), "%s", from->name);
        to->i = from->i;
        to->f = from->f;
        to->num_ints = from->ints != NULL ? (int)from->num_ints : -1;
        if (from->num_ints > MAX_DIMS) {
            free(made);
            return NULL;
        }
        for (size_t d = 0; d < from->num_ints; ++d)
            to->ints[d] = from->ints[d];
    }
    return made;
}

static bool
are_floats(const co_backend_call *call)
{
    bool floats = call->out[0].dtype == CO_FLOAT32;

    for (size_t i = 0; i < call->num_in; ++i)
        floats = floats && call->in[i].dtype == CO_FLOAT32;
    return floats;
}

/* Element `at` of the result in the shape of one that is broadcast to it. */
static int64_t
broadcast_index(const tensor *out, const tensor *x, int64_t at)
{
    int64_t index = 0, stride = 1;

    for (int d = out->ndim - 1; d >= 0; --d) {
        int e = d - (out->ndim - x->ndim);

        if (e >= 0) {
            index += x->dims[e] > 1 ? at % out->dims[d] * stride : 0;
            stride *= x->dims[e];
        }
        at /= out->dims[d];
    }
    return index;
}

static void
run_unary(command *self)
{
    const float *x = (const float *)(void *)self->in[0].data;
    float       *z = (float *)(void *)self->out.data;

    for (int64_t i = 0; i < self->out.num_elements; ++i)
        z[i] = self->unary(x[i]);
}

static void
run_binary(command *self)
{
    const float *x = (const float *)(void *)self->in[0].data;
    const float *y = (const float *)(void *)self->in[1].data;
    float       *z = (float *)(void *)self->out.data;

    for (int64_t i = 0; i < self->out.num_elements; ++i)
        z[i] = self->binary(x[broadcast_index(&self->out, &self->in[0], i)],
                            y[broadcast_index(&self->out, &self->in[1], i)]);
}

static void
run_broadcast(command *self)
{
    const float *x = (const float *)(void *)self->in[0].data;
    float       *z = (float *)(void *)self->out.data;

    for (int64_t i = 0; i < self->out.num_elements; ++i)
        z[i] = x[broadcast_index(&self->out, &self->in[0], i)];
}

static void
run_matmul(command *self)
{
    const tensor *a = &self->in[0], *b = &self->in[1];
    bool          ta = attr_of(self, "transpose_a")->i != 0, tb = attr_of(self, "transpose_b")->i;
    int64_t       m = self->out.dims[0], n = self->out.dims[1], k = a->dims[ta ? 0 : 1];
    const float  *x = (const float *)(void *)a->data, *y = (const float *)(void *)b->data;
    float        *z = (float *)(void *)self->out.data;

    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0;

            for (int64_t p = 0; p < k; ++p)
                sum += x[ta ? p * m + i : i * k + p] * y[tb ? j * k + p : p * n + j];
            z[i * n + j] = sum;
        }
}

/* Sums over axes, times a scale. */
static void
run_reduce(command *self)
{
    const tensor *x = &self->in[0];
    const attr   *axis = attr_of(self, "axis");
    const float  *from = (const float *)(void *)x->data;
    float        *z = (float *)(void *)self->out.data;
    double       *sums = calloc((size_t)self->out.num_elements + 1, sizeof(*sums));
    bool          reduced[MAX_DIMS];
    int64_t       count = 1;

    for (int d = 0; d < x->ndim; ++d)
        reduced[d] = axis->num_ints < 0;
    for (int i = 0; i < axis->num_ints; ++i)
        reduced[axis->ints[i] < 0 ? axis->ints[i] + x->ndim : axis->ints[i]] = true;
    for (int d = 0; d < x->ndim; ++d)
        count *= reduced[d] ? x->dims[d] : 1;
    for (int64_t i = 0; sums != NULL && i < x->num_elements; ++i) {
        int64_t rest = i, to = 0, stride = 1;

        for (int d = x->ndim - 1; d >= 0; --d) {
            to += reduced[d] ? 0 : rest % x->dims[d] * stride;
            stride *= reduced[d] ? 1 : x->dims[d];
            rest /= x->dims[d];
        }
        sums[to] += from[i];
    }
    for (int64_t i = 0; sums != NULL && i < self->out.num_elements; ++i)
        z[i] = (float)(self->scale == 0 ? sums[i] : sums[i] / (double)count);
    free(sums);
}

static void
run_softmax(command *self)
{
    const tensor *x = &self->in[0];
    int64_t       axis = attr_of(self, "axis")->i, inner = 1, n;
    const float  *from = (const float *)(void *)x->data;
    float        *z = (float *)(void *)self->out.data;

    axis += axis < 0 ? x->ndim : 0;
    n = x->dims[axis];
    for (int d = (int)axis + 1; d < x->ndim; ++d)
        inner *= x->dims[d];
    for (int64_t row = 0; row < x->num_elements / (n > 0 ? n : 1); ++row) {
        int64_t begin = row / inner * n * inner + row % inner;
        float   largest = -INFINITY, sum = 0;

        for (int64_t i = 0; i < n; ++i)
            largest = fmaxf(largest, from[begin + i * inner]);
        for (int64_t i = 0; i < n; ++i)
            sum += z[begin + i * inner] = expf(from[begin + i * inner] - largest);
        for (int64_t i = 0; i < n; ++i)
            z[begin + i * inner] /= sum;
    }
}

static void
run_transpose(command *self)
{
    const tensor *x = &self->in[0];
    const attr   *perm = attr_of(self, "perm");
    const float  *from = (const float *)(void *)x->data;
    float        *z = (float *)(void *)self->out.data;
    int64_t       strides[MAX_DIMS], stride = 1;

    for (int d = x->ndim - 1; d >= 0; --d) {
        strides[d] = stride;
        stride *= x->dims[d];
    }
    for (int64_t i = 0; i < self->out.num_elements; ++i) {
        int64_t rest = i, at = 0;

        for (int d = x->ndim - 1; d >= 0; --d) {
            int64_t source = perm->num_ints < 0 ? x->ndim - 1 - d : perm->ints[d];

            source += source < 0 ? x->ndim : 0;
            at += rest % self->out.dims[d] * strides[source];
            rest /= self->out.dims[d];
        }
        z[i] = from[at];
    }
}

static void
run_slice(command *self)
{
    const tensor *x = &self->in[0];
    const attr   *begin = attr_of(self, "begin");
    const float  *from = (const float *)(void *)x->data;
    float        *z = (float *)(void *)self->out.data;

    for (int64_t i = 0; i < self->out.num_elements; ++i) {
        int64_t rest = i, at = 0, stride = 1;

        for (int d = x->ndim - 1; d >= 0; --d) {
            at += (begin->ints[d] + rest % self->out.dims[d]) * stride;
            stride *= x->dims[d];
            rest /= self->out.dims[d];
        }
        z[i] = from[at];
    }
}

static void
run_concat(command *self)
{
    int64_t axis = attr_of(self, "axis")->i, inner = 1, outer = 1;
    char   *to = self->out.data;

    axis += axis < 0 ? self->out.ndim : 0;
    for (int d = 0; d < self->out.ndim; ++d)
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : self->out.dims[d];
    for (int64_t row = 0; row < outer; ++row)
        for (size_t i = 0; i < self->num_in; ++i) {
            size_t nbytes = (size_t)(self->in[i].dims[axis] * inner) * sizeof(float);

            memcpy(to, self->in[i].data + (size_t)row * nbytes, nbytes);
            to += nbytes;
        }
}

static void
run_fill_floats(command *self)
{
    float *z = (float *)(void *)self->out.data;

    for (int64_t i = 0; i < self->out.num_elements; ++i)
        z[i] = (float)self->scale;
}

static void
run_cast(command *self)
{
    float *z = (float *)(void *)self->out.data;

    for (int64_t i = 0; i < self->out.num_elements; ++i)
        switch (self->in[0].dtype) {
        case CO_FLOAT64: z[i] = (float)((const double *)(void *)self->in[0].data)[i]; break;
        case CO_INT32: z[i] = (float)((const int32_t *)(void *)self->in[0].data)[i]; break;
        case CO_INT64: z[i] = (float)((const int64_t *)(void *)self->in[0].data)[i]; break;
        case CO_FLOAT32: z[i] = ((const float *)(void *)self->in[0].data)[i]; break;
        default: z[i] = ((const uint8_t *)(void *)self->in[0].data)[i] != 0; break;
        }
}

static float
do_add(float x, float y)
{
    return x + y;
}
static float
do_sub(float x, float y)
{
    return x - y;
}
static float
do_mul(float x, float y)
{
    return x * y;
}
static float
do_div(float x, float y)
{
    return x / y;
}
static float
do_maximum(float x, float y)
{
    return x > y || isnan(x) ? x : y;
}
static float
do_minimum(float x, float y)
{
    return x < y || isnan(x) ? x : y;
}
static float
do_relu_grad(float x, float g)
{
    return x > 0 ? g : 0;
}
static float
do_neg(float x)
{
    return -x;
}
static float
do_square(float x)
{
    return x * x;
}
static float
do_relu(float x)
{
    return x > 0 || isnan(x) ? x : 0;
}
static float
do_sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

typedef struct kernel {
    const char *op;
    void (*run)(command *self);
    float (*unary)(float);
    float (*binary)(float, float);
    double scale;
} kernel;

static const kernel kernels[] = {
    { "add", run_binary, NULL, do_add, 0 },
    { "sub", run_binary, NULL, do_sub, 0 },
    { "mul", run_binary, NULL, do_mul, 0 },
    { "div", run_binary, NULL, do_div, 0 },
    { "maximum", run_binary, NULL, do_maximum, 0 },
    { "minimum", run_binary, NULL, do_minimum, 0 },
    { "relu_grad", run_binary, NULL, do_relu_grad, 0 },
    { "neg", run_unary, do_neg, NULL, 0 },
    { "exp", run_unary, expf, NULL, 0 },
    { "log", run_unary, logf, NULL, 0 },
    { "sqrt", run_unary, sqrtf, NULL, 0 },
    { "square", run_unary, do_square, NULL, 0 },
    { "tanh", run_unary, tanhf, NULL, 0 },
    { "relu", run_unary, do_relu, NULL, 0 },
    { "sigmoid", run_unary, do_sigmoid, NULL, 0 },
    { "matmul", run_matmul, NULL, NULL, 0 },
    { "reduce_sum", run_reduce, NULL, NULL, 0 },
    { "reduce_mean", run_reduce, NULL, NULL, 1 },
    { "softmax", run_softmax, NULL, NULL, 0 },
    { "transpose", run_transpose, NULL, NULL, 0 },
    { "slice", run_slice, NULL, NULL, 0 },
    { "concat", run_concat, NULL, NULL, 0 },
    { "broadcast_to", run_broadcast, NULL, NULL, 0 },
    { "cast", run_cast, NULL, NULL, 0 },
    { "zeros", run_fill_floats, NULL, NULL, 0 },
    { "ones", run_fill_floats, NULL, NULL, 1 },
    { "fill", run_fill_floats, NULL, NULL, 0 },
};

static bool
takes(const kernel *k, const co_backend_call *call)
{
    if (k->run == run_cast)
        return call->out[0].dtype == CO_FLOAT32 &&
               (call->in[0].dtype == CO_FLOAT64 || call->in[0].dtype == CO_INT32 ||
                call->in[0].dtype == CO_INT64 || call->in[0].dtype == CO_FLOAT32 ||
                call->in[0].dtype == CO_BOOL);
    if (k->run == run_matmul && (call->in[0].ndim != 2 || call->in[1].ndim != 2))
        return false;
    return are_floats(call);
}

/* The launch of every kernel. */
static co_code
launch(co_backend_queue *queue, const co_backend_call *call, co_error_info *err)
{
    const kernel *k = kernels;
    command      *made;

    while (strcmp(k->op, call->op) != 0)
        ++k;
    if (!takes(k, call))
        return CO_UNIMPLEMENTED;
    made = keep_call(call, k->run);
    if (made == NULL)
        return CO_UNIMPLEMENTED;
    made->unary = k->unary;
    made->binary = k->binary;
    made->scale = strcmp(k->op, "fill") == 0 ? attr_of(made, "value")->f : k->scale;
    return give(queue, made, err);
}

static co_backend_kernel
test_kernel(co_backend_device *device, const char *op)
{
    (void)device;
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); ++i)
        if (strcmp(kernels[i].op, op) == 0)
            return launch;
    return NULL;
}

/* --- the registry --- */

static co_code
test_count(const co_backend *backend, int *count, co_error_info *err)
{
    (void)backend, (void)err;
    *count = NUM_DEVICES;
    return CO_OK;
}

static co_code
test_open(const co_backend *backend, const co_backend_host *host, int index,
          co_backend_device **out, co_error_info *err)
{
    co_backend_device *device = calloc(1, sizeof(*device));

    if (device == NULL)
        return co_backend_error(err, CO_RESOURCE_EXHAUSTED, "no memory for %s:%d",
                                backend->device_type, index);
    device->host = host;
    device->index = index;
    *out = device;
    return CO_OK;
}

static void
test_close(co_backend_device *device)
{
    free(device);
}

static const co_backend_registry_table registry_table = { .count = test_count, .open = test_open };
static const co_backend_device_table   device_table = {
      .close = test_close, .alloc = test_alloc, .open_queue = test_open_queue, .kernel = test_kernel
};
static const co_backend_buffer_table buffer_table = { .address = test_address, .free = test_free };
static const co_backend_queue_table  queue_table = { .close = test_close_queue,
                                                     .upload = test_upload,
                                                     .download = test_download,
                                                     .synchronize = test_synchronize,
                                                     .copy = test_copy,
                                                     .fill = test_fill,
                                                     .free = test_free_in_order };
static const co_backend_event_table  event_table = {
     .open = test_open_event, .close = test_close_event, .record = test_record, .wait = test_wait
};

extern const co_backend            co_backend_plugin;
CO_BACKEND_EXPORT const co_backend co_backend_plugin = {
    .abi = CO_BACKEND_ABI,
    .struct_size = sizeof(co_backend),
    .name = "test",
    .device_type = "TEST",
    .host_memory = false,
    .registry = &registry_table,
    .device = &device_table,
    .buffer = &buffer_table,
    .queue = &queue_table,
    .event = &event_table,
};
