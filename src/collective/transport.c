/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry of transports, and the loading of those that live in a shared object of their own.
 * What a transport's open leaves to us are the common fields of the group.
 */
#include "collective/collective.h"
#include "collective/local/ranks.h"
#include "collective/self/self.h"

#include "base/plugin.h"
#include "base/text.h"
#include "config.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* What a plug-in exports. */
#define PLUGIN_SYMBOL "coi_transport_plugin"

typedef struct entry {
    const char          *name;
    const coi_transport *table;    /* NULL: in a plug-in */
    const char          *library;  /* its file */
    const char          *variable; /* of the environment: names the file */
    bool                 is_built; /* with this library */
    const char          *missing;  /* what to do when it is not built */
} entry;

static const entry entries[] = {
    { "self", &coi_self_transport, NULL, NULL, true, NULL },
    { "threads", &coi_threads_transport, NULL, NULL, true, NULL },
    { "mpi", NULL, "libcohort_mpi.so", "COHORT_MPI_LIBRARY", COI_HAVE_MPI,
      "install an MPI (Open MPI or MPICH) and build the library with it (COHORT_MPI=ON)" },
};
#define NUM_ENTRIES (sizeof(entries) / sizeof(entries[0]))

/* Where it was looked for, and how to point to it. */
static co_code
say_missing(const coi_plugin_search *s, const entry *wanted, const char *file, co_error_info *err)
{
    if (s->why[0] != '\0')
        return coi_error(err, CO_UNIMPLEMENTED, "transport '%s': its plug-in does not load: %s",
                         wanted->name, s->why);
    if (file != NULL)
        return coi_error(err, CO_UNIMPLEMENTED,
                         "transport '%s': %.*s%s was not found, which %s names; let it name the %s "
                         "of this library, or leave it out",
                         wanted->name, COI_CUT(300, file), wanted->variable, wanted->library);
    if (!wanted->is_built)
        return coi_error(
            err, CO_UNIMPLEMENTED,
            "transport '%s': this library was built without it; %s, or use the transport 'self'",
            wanted->name, wanted->missing);
    return coi_error(
        err, CO_UNIMPLEMENTED,
        "transport '%s': %s was not found in %s, nor in the search path of the program; "
        "let COHORT_PLUGIN_PATH name its folder (lib/" COI_PLUGIN_SUBDIR
        " where the library is installed) or %s the file",
        wanted->name, wanted->library, s->tried, wanted->variable);
}

static co_code
load(const entry *wanted, const coi_transport **out, co_error_info *err)
{
    const char          *file = coi_plugin_variable(wanted->variable);
    const coi_transport *table;
    coi_plugin_search    s;

    if (!coi_plugin_load(&s, wanted->library, file))
        return say_missing(&s, wanted, file, err);
    table = dlsym(s.handle, PLUGIN_SYMBOL);
    dlclose(s.handle);
    if (table == NULL)
        return coi_error(err, CO_UNIMPLEMENTED,
                         "transport '%s': %s is not a plug-in of this library", wanted->name,
                         s.path);
    if (table->abi != COI_TRANSPORT_ABI || table->handshake_size != sizeof(coi_handshake) ||
        table->group_size != sizeof(coi_group))
        return coi_error(
            err, CO_UNIMPLEMENTED,
            "transport '%s': %s was built for another version of this library (ABI %u, expected %d); build both together",
            wanted->name, s.path, (unsigned)table->abi, COI_TRANSPORT_ABI);
    *out = table;
    return CO_OK;
}

co_code
coi_group_open(const char *transport, const coi_group_options *options, coi_group **out,
               co_error_info *err)
{
    const coi_transport *table = NULL;
    coi_group           *group = NULL;
    co_code              rc;

    for (size_t i = 0; i < NUM_ENTRIES && table == NULL; ++i) {
        if (strcmp(entries[i].name, transport) != 0)
            continue;
        table = entries[i].table;
        rc = table == NULL ? load(&entries[i], &table, err) : CO_OK;
        if (rc != CO_OK)
            return rc;
    }
    if (table == NULL)
        return coi_error(err, CO_VALUE_ERROR,
                         "there is no transport '%s': there are 'mpi' and 'self'", transport);
    rc = table->open(options, &group, err);
    if (rc != CO_OK)
        return rc;
    group->transport = table;
    group->memory = options->memory;
    group->log = options->log;
    group->waiting = options->waiting;
    coi_log_line(options->log, CO_LOG_INFO, "transport %s: rank %d of %d", table->name, group->rank,
                 group->size);
    *out = group;
    return CO_OK;
}

bool
coi_group_close(coi_group *group)
{
    bool is_holding;

    if (group == NULL)
        return true;
    is_holding = group->holding;
    if (!is_holding) /* else the transport may still write there */
        coi_free(group->memory, group->scratch, group->scratch_nbytes);
    return group->transport->close(group) && !is_holding;
}

bool
coi_mpi_launched(void)
{
    /* Open MPI; MPICH and its kin, Slurm with PMI; launchers with PMIx. */
    static const char *const variables[] = { "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
                                             "PMIX_RANK" };
    static const char *const questions[] = { "MPI_Initialized", "MPI_Finalized" };
    int                      answers[2] = { 0, 0 };

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); ++i)
        if (getenv(variables[i]) != NULL)
            return true;
    /*
     * The host may run MPI without our knowing its headers; these two have the same form in every
     * MPI.
     */
    for (size_t i = 0; i < 2; ++i) {
        void *symbol = dlsym(RTLD_DEFAULT, questions[i]);
        int (*ask)(int *);

        memcpy(&ask, &symbol, sizeof(ask));
        if (symbol == NULL || ask(&answers[i]) != 0)
            return false;
    }
    return answers[0] != 0 && answers[1] == 0;
}
