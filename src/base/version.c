/* SPDX-License-Identifier: Apache-2.0 */
/* What this copy of the library is: its version and the facts of its build. */
#include "config.h"

#include <cohort/context.h>

#if COI_HAVE_ISA_V4
#define INSTRUCTION_SETS "base v3 v4"
#elif COI_HAVE_ISA_V3
#define INSTRUCTION_SETS "base v3"
#else
#define INSTRUCTION_SETS "base"
#endif

typedef struct build_fact {
    const char *name;
    const char *text;
} build_fact;

/* A library that was left out is a fact too. */
#define LIBRARY(title, name)                                                                       \
    {                                                                                              \
        title, COI_HAVE_##name ? COI_##name##_VERSION : "no"                                       \
    }

static const build_fact facts[] = {
    { "version", CO_VERSION },
    { "compiler", COI_BUILD_COMPILER },
    { "build", COI_BUILD_TYPE },
    { "target", COI_BUILD_TARGET },
    { "instruction sets", INSTRUCTION_SETS },
    LIBRARY("oneDNN", ONEDNN),
    LIBRARY("MPI", MPI),
    LIBRARY("zlib", ZLIB),
    { "options", COI_BUILD_OPTIONS },
};

const char *
co_version(void)
{
    return CO_VERSION;
}

void
co_build_visit(co_fact_fn fn, void *user)
{
    if (fn == NULL)
        return;
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); ++i)
        fn(facts[i].name, facts[i].text, user);
}
