/* SPDX-License-Identifier: Apache-2.0 */
/* A page that the system wipes when the process forks (Linux 4.14). It does not come from the
 * allocator, because everything else in the page is wiped too. */
#include "base/owner_process.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t
page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

uint32_t *
coi_owner_word_new(uint32_t value)
{
#ifdef MADV_WIPEONFORK
    void *page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);

    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, page_bytes(), MADV_WIPEONFORK) != 0) {
        munmap(page, page_bytes());
        return NULL;
    }
    *(uint32_t *)page = value;
    return page;
#else
    (void)value;
    return NULL;
#endif
}

void
coi_owner_word_free(uint32_t *word)
{
    if (word != NULL)
        munmap(word, page_bytes());
}
