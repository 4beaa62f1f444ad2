// Memory of large arrays: huge pages where the system has them, and growth without copying.
#pragma once

#include <cstddef>

namespace kernloom::tasks {

constexpr std::size_t HUGE_PAGE = std::size_t{2} << 20;

// More memory for what is at `old`, which may move; all sizes are multiples of HUGE_PAGE. Null and
// 0 bytes: new memory. Null if there is none; `old` is as it was then.
void *grow_pages(void *old, std::size_t old_bytes, std::size_t bytes);
void free_pages(void *pages, std::size_t bytes);

} // namespace kernloom::tasks
