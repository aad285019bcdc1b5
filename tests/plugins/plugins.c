/* SPDX-License-Identifier: Apache-2.0 */
/* Where plug-ins are looked for, which are refused, and how a host that runs MPI is found. */
#include "collective/collective.h"
#include "config.h"
#include "test.h"

#include <limits.h>
#include <unistd.h>

/* What the MPI of this host says. */
static int mpi_code, is_initialized, is_finalized;

int MPI_Initialized(int *flag);
int MPI_Finalized(int *flag);

int
MPI_Initialized(int *flag)
{
    *flag = is_initialized;
    return mpi_code;
}

int
MPI_Finalized(int *flag)
{
    *flag = is_finalized;
    return mpi_code;
}

static void
expect_launched(int code, int initialized, int finalized, bool expected)
{
    mpi_code = code;
    is_initialized = initialized;
    is_finalized = finalized;
    CO_EXPECT_INT(coi_mpi_launched(), expected);
}

CO_TEST_BARE(a_host_that_runs_mpi_is_found_by_asking_it, "MW-1")
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK",
                                             "PMIX_RANK" };

    for (int i = 0; i < 4; ++i)
        unsetenv(variables[i]);
    expect_launched(0, 1, 0, true);
    expect_launched(0, 0, 0, false);
    expect_launched(0, 1, 1, false); /* it has run, and cannot any more */
    expect_launched(1, 1, 0, false); /* it does not know */
}

/* --- the loader --- */

/* The folder of the fakes, which is the parent of the one this program is in. */
static const char *
in_folder(const char *name)
{
    static char text[16][PATH_MAX + 32];
    static int  next;
    char       *out = text[next++ % 16], *slash;
    ssize_t     n = readlink("/proc/self/exe", out, PATH_MAX);

    CO_REQUIRE(n > 0 && n < PATH_MAX);
    out[n] = '\0';
    for (int i = 0; i < 2; ++i) {
        slash = strrchr(out, '/');
        CO_REQUIRE(slash != NULL);
        *slash = '\0';
    }
    snprintf(out + strlen(out), 32, "/%s", name);
    return out;
}

/* Open "mpi" with the plug-in path (NULL: none). */
static void
expect_open(const char *path, co_code code, const char *why)
{
    coi_memory    memory;
    coi_group    *group = NULL;
    co_error_info err;

    coi_memory_init(&memory, NULL);
    coi_error_reset(&err);
    if (path != NULL)
        setenv("COHORT_PLUGIN_PATH", path, 1);
    else
        unsetenv("COHORT_PLUGIN_PATH");
    CO_EXPECT_CODE(coi_group_open("mpi", &(coi_group_options){ .memory = &memory }, &group, &err),
                   code);
    CO_EXPECT_CONTAINS(err.message, why);
    CO_EXPECT_NULL(group);
}

/* The same where no plug-in is; a library that was built without one says so instead. */
static void
expect_missing(const char *path, const char *why)
{
    expect_open(path, CO_UNIMPLEMENTED,
                COI_HAVE_MPI ? why : "was built without it; install an MPI");
}

CO_TEST_BARE(plug_ins_are_looked_for_in_order, "")
{
    char        long_name[PATH_MAX + 100];
    const char *here = in_folder("bin/cohort"), *lib = in_folder("lib"), *good = in_folder("good");

    unlink(here);
    unlink(lib);
    setenv("COHORT_MPI_LIBRARY", "", 1); /* empty: as if it were not there */
    expect_open(good, CO_DATA_LOSS, "");
    expect_missing(NULL, "libcohort_mpi.so was not found in ");
    expect_missing("", "libcohort_mpi.so was not found");
    expect_missing("/nowhere", "libcohort_mpi.so was not found in /nowhere, ");
    expect_missing("/nowhere", in_folder("bin/cohort"));
    expect_missing("/nowhere", COI_PLUGIN_DIR ", nor in the search path of the program");
    expect_missing(
        "/nowhere",
        "let COHORT_PLUGIN_PATH name its folder (lib/cohort where the library is installed) or "
        "COHORT_MPI_LIBRARY the file");
    /* Beside the program, */
    CO_REQUIRE(symlink(good, here) == 0);
    expect_open(NULL, CO_DATA_LOSS, "");
    unlink(here);
    /* and in lib/cohort beside the folder of the program. */
    CO_REQUIRE(symlink(in_folder("."), lib) == 0);
    {
        const char *sub = in_folder("cohort");

        unlink(sub);
        CO_REQUIRE(symlink(good, sub) == 0);
        expect_open(NULL, CO_DATA_LOSS, "");
        unlink(sub);
    }
    unlink(lib);
    /* A name that is too long is not there. */
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    setenv("COHORT_MPI_LIBRARY", long_name, 1);
    expect_open(good, CO_UNIMPLEMENTED, "was not found");
}

CO_TEST_BARE(plug_ins_that_do_not_load_or_fit_are_named, "")
{
    const char *here = in_folder("bin/cohort");

    unlink(here);
    unsetenv("COHORT_MPI_LIBRARY");
    expect_open(in_folder("abi"), CO_UNIMPLEMENTED, "built for another version of this library");
    expect_open(in_folder("hello"), CO_UNIMPLEMENTED, "built for another version");
    expect_open(in_folder("group"), CO_UNIMPLEMENTED, "built for another version");
    expect_open(in_folder("text"), CO_UNIMPLEMENTED, "its plug-in does not load: ");
    /* Two of them: the first is named. */
    CO_REQUIRE(symlink(in_folder("text"), here) == 0);
    expect_open(in_folder("text"), CO_UNIMPLEMENTED, "/text/libcohort_mpi.so");
    unlink(here);
}
