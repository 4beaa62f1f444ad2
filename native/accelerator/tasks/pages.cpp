#include "pages.hpp"

#include <sys/mman.h>

#include <cstdint>

namespace kernloom::tasks {

namespace {

// Addresses that begin with a huge page. Memory is taken when it is first used.
char *reserve(std::size_t bytes) {
    const std::size_t whole = bytes + HUGE_PAGE;
    void *const found = mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED)
        return nullptr;
    char *const first = static_cast<char *>(found);
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(first) % HUGE_PAGE;
    if (before)
        munmap(first, before);
    munmap(first + before + bytes, HUGE_PAGE - before);
    return first + before;
}

} // namespace

void *grow_pages(void *old, std::size_t old_bytes, std::size_t bytes) {
    char *const found = reserve(bytes);
    if (!found)
        return nullptr;
    if (old && mremap(old, old_bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, found) == MAP_FAILED) {
        munmap(found, bytes);
        return nullptr;
    }
#ifdef MADV_HUGEPAGE
    // Where it is not possible, small pages do as well.
    madvise(found, bytes, MADV_HUGEPAGE);
#endif
    return found;
}

void free_pages(void *pages, std::size_t bytes) {
    munmap(pages, bytes);
}

} // namespace kernloom::tasks
