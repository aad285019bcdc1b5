/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread of the library. It starts with every signal blocked, so that handlers of the host run
 * on the host's threads, and binds and names itself before it does anything else.
 */
#include "base/text.h"
#include "base/threads.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_STACK_BYTES ((size_t)1 << 20)

struct coi_thread {
    pthread_t     handle;
    pid_t         pid; /* of the process it lives in: a forked child has only the memory */
    coi_thread_fn fn;
    void         *arg;
    char          name[16];
    size_t        mask_bytes;
    size_t        nbytes;
    cpu_set_t    *mask; /* behind the struct; NULL: the inherited one */
};

static void *
thread_main(void *arg)
{
    coi_thread *thread = arg;

    (void)pthread_setname_np(pthread_self(), thread->name);
    if (thread->mask != NULL)
        (void)sched_setaffinity(0, thread->mask_bytes, thread->mask);
    thread->fn(thread->arg);
    return NULL;
}

/* The struct and, behind it, the mask of its cores. */
static coi_thread *
thread_alloc(coi_memory *memory, const int *cores, int num_cores)
{
    size_t      mask_bytes = 0;
    size_t      nbytes = sizeof(coi_thread);
    int         highest = -1;
    coi_thread *thread;

    for (int i = 0; cores != NULL && i < num_cores; ++i)
        highest = cores[i] > highest ? cores[i] : highest;
    if (highest >= 0)
        mask_bytes = CPU_ALLOC_SIZE((size_t)highest + 1);
    nbytes = (nbytes + 63) / 64 * 64 + mask_bytes;
    thread = coi_calloc(memory, nbytes);
    if (thread == NULL)
        return NULL;
    thread->nbytes = nbytes;
    thread->mask_bytes = mask_bytes;
    if (mask_bytes > 0) {
        thread->mask = (cpu_set_t *)(void *)((char *)thread + (nbytes - mask_bytes));
        for (int i = 0; i < num_cores; ++i)
            if (cores[i] >= 0)
                CPU_SET_S((size_t)cores[i], mask_bytes, thread->mask);
    }
    return thread;
}

static size_t
stack_size(size_t wanted)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    long   least = sysconf(_SC_THREAD_STACK_MIN);

    if (wanted == 0)
        wanted = DEFAULT_STACK_BYTES;
    if (least > 0 && wanted < (size_t)least)
        wanted = (size_t)least;
    return (wanted + page - 1) / page * page;
}

/*
 * Create the thread with all signals blocked; a stack too small for the host's static data gets the
 * default size.
 */
static int
thread_create(coi_thread *thread, size_t stack_bytes)
{
    pthread_attr_t attributes;
    sigset_t       all;
    sigset_t       before;
    int            rc = pthread_attr_init(&attributes);

    if (rc != 0)
        return rc;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_attr_setstacksize(&attributes, stack_size(stack_bytes));
    if (rc == 0)
        rc = pthread_create(&thread->handle, &attributes, thread_main, thread);
    if (rc == EINVAL)
        rc = pthread_create(&thread->handle, NULL, thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return rc;
}

co_code
coi_thread_start(coi_memory *memory, const char *name, const int *cores, int num_cores,
                 size_t stack_bytes, coi_thread_fn fn, void *arg, coi_thread **out,
                 co_error_info *err)
{
    coi_thread *thread = thread_alloc(memory, cores, num_cores);
    int         rc;

    if (thread == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for the record of thread '%s'",
                         name);
    thread->pid = getpid();
    thread->fn = fn;
    thread->arg = arg;
    coi_text_line(thread->name, sizeof(thread->name), "%.15s", name);
    rc = thread_create(thread, stack_bytes);
    if (rc != 0) {
        coi_free(memory, thread, thread->nbytes);
        return coi_error(
            err, CO_RESOURCE_EXHAUSTED,
            "the system started no thread '%s' (error %d); limits: ulimit -u, pids.max, memory",
            name, rc);
    }
    *out = thread;
    return CO_OK;
}

void
coi_thread_join(coi_memory *memory, coi_thread *thread)
{
    if (thread == NULL)
        return;
    if (thread->pid == getpid())
        pthread_join(thread->handle, NULL);
    coi_free(memory, thread, thread->nbytes);
}
