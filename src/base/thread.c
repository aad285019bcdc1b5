/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread of the library. It starts with every signal blocked, so that handlers of the host run
 * on the host's threads, and has its name and its cores before it does anything else. Only the
 * thread that started it binds it, then and later: two that did would have to agree on the order.
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
    coi_lock      unbound;  /* taken until it has its cores */
    bool          is_bound; /* else it has the inherited affinity */
    bool          is_batch; /* set by the library; an inherited policy is the owner's choice */
    cpu_set_t     home;
};

static void *
thread_main(void *arg)
{
    coi_thread *thread = arg;

    (void)pthread_setname_np(pthread_self(), thread->name);
    coi_lock_take(&thread->unbound);
    coi_lock_give(&thread->unbound);
    thread->fn(thread->arg);
    return NULL;
}

/* Cores beyond what a set holds are left out: binding is best effort. */
static void
set_home(coi_thread *thread, const int *cores, int num_cores)
{
    CPU_ZERO(&thread->home);
    for (int i = 0; cores != NULL && i < num_cores; ++i)
        if (cores[i] >= 0 && cores[i] < CPU_SETSIZE)
            CPU_SET((size_t)cores[i], &thread->home);
    thread->is_bound = CPU_COUNT(&thread->home) > 0;
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

static void
bind(coi_thread *thread, const cpu_set_t *cores)
{
    (void)pthread_setaffinity_np(thread->handle, sizeof(*cores), cores);
}

co_code
coi_thread_start(coi_memory *memory, const char *name, const int *cores, int num_cores,
                 size_t stack_bytes, coi_thread_fn fn, void *arg, coi_thread **out,
                 co_error_info *err)
{
    coi_thread *thread = coi_calloc(memory, sizeof(*thread));
    int         rc;

    if (thread == NULL)
        return coi_error(err, CO_RESOURCE_EXHAUSTED, "no memory for the record of thread '%s'",
                         name);
    set_home(thread, cores, num_cores);
    thread->pid = getpid();
    thread->fn = fn;
    thread->arg = arg;
    coi_text_line(thread->name, sizeof(thread->name), "%.15s", name);
    coi_lock_init(&thread->unbound);
    coi_lock_take(&thread->unbound);
    rc = thread_create(thread, stack_bytes);
    if (rc != 0) {
        coi_free(memory, thread, sizeof(*thread));
        return coi_error(
            err, CO_RESOURCE_EXHAUSTED,
            "the system started no thread '%s' (error %d); limits: ulimit -u, pids.max, memory",
            name, rc);
    }
    if (thread->is_bound)
        bind(thread, &thread->home);
    coi_lock_give(&thread->unbound);
    *out = thread;
    return CO_OK;
}

/*
 * Batch threads do not preempt the thread that wakes them: that thread runs until it waits, and
 * then the batch thread has all it needs. A program that runs with another policy (chrt) keeps it.
 */
static void
set_batch(coi_thread *thread, bool is_batch)
{
    struct sched_param param;
    int                policy;

    if (is_batch == thread->is_batch ||
        pthread_getschedparam(thread->handle, &policy, &param) != 0 ||
        policy != (is_batch ? SCHED_OTHER : SCHED_BATCH))
        return;
    (void)pthread_setschedparam(thread->handle, is_batch ? SCHED_BATCH : SCHED_OTHER, &param);
    thread->is_batch = is_batch;
}

void
coi_thread_return_to_core(coi_thread *thread)
{
    if (thread->is_bound) {
        set_batch(thread, false);
        bind(thread, &thread->home);
    }
}

void
coi_thread_wake_at(coi_thread *thread, coi_event *event, int core)
{
    cpu_set_t cores;

    if (!thread->is_bound || core < 0 || core >= CPU_SETSIZE) {
        coi_event_signal(event);
        return;
    }
    CPU_ZERO(&cores);
    CPU_SET((size_t)core, &cores);
    set_batch(thread, true);
    bind(thread, &cores);
    coi_event_signal(event);
    CPU_OR(&cores, &cores, &thread->home);
    bind(thread, &cores);
}

void
coi_thread_wake_on_core(coi_thread *thread, coi_event *event)
{
    coi_thread_return_to_core(thread);
    coi_event_signal(event);
}

void
coi_thread_settle(coi_thread *thread, const int *cores, int num_cores)
{
    if (thread->pid != getpid())
        return; /* it is the parent's */
    set_home(thread, cores, num_cores);
    coi_thread_return_to_core(thread);
}

void
coi_thread_join(coi_memory *memory, coi_thread *thread)
{
    if (thread == NULL)
        return;
    if (thread->pid == getpid())
        pthread_join(thread->handle, NULL);
    coi_free(memory, thread, sizeof(*thread));
}

bool
coi_thread_is_own(const coi_thread *thread)
{
    return thread != NULL && pthread_equal(thread->handle, pthread_self());
}

void
coi_thread_leave(coi_memory *memory, coi_thread *thread)
{
    pthread_detach(thread->handle);
    coi_free(memory, thread, sizeof(*thread));
}
