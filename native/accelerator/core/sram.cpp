#include "sram.hpp"

#include <sys/mman.h>

#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

namespace kernloom::core {

namespace {

constexpr std::uint64_t ALIGNMENT = 64;
constexpr std::size_t PAGE = 4096;
// An access far outside the SRAM is a crash, not a change of other memory.
constexpr std::size_t GUARD = 1 << 20;

std::size_t rounded(std::size_t bytes, std::size_t to) {
    return (bytes + to - 1) / to * to;
}

} // namespace

Sram::Sram(std::uint64_t bytes) : bytes_(bytes) {
}

Sram::~Sram() {
    clear();
    if (region_.at) {
        ASAN_UNPOISON_MEMORY_REGION(region_.at, region_.bytes);
        munmap(region_.at, region_.bytes);
    }
}

unsigned char *Sram::open() {
    if (data_)
        return data_;
    const std::size_t pages = rounded(bytes_, PAGE);
    void *at = mmap(nullptr, pages + 2 * GUARD, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return nullptr;
    region_ = {at, pages + 2 * GUARD};
    unsigned char *first = static_cast<unsigned char *>(at) + GUARD;
    if (mprotect(first, pages, PROT_READ | PROT_WRITE) != 0)
        return nullptr;
    // The end of the SRAM is at the guard.
    data_ = first + (pages - rounded(bytes_, ALIGNMENT));
    ASAN_POISON_MEMORY_REGION(first, pages);
    return data_;
}

void *Sram::allocate(std::uint64_t bytes) {
    if (bytes > bytes_ - used_ || !open())
        return nullptr;
    unsigned char *at = data_ + used_;
    ASAN_UNPOISON_MEMORY_REGION(at, bytes);
    std::memset(at, UNDEFINED, bytes);
    const std::uint64_t taken = bytes ? rounded(bytes, ALIGNMENT) : ALIGNMENT;
    used_ = taken > bytes_ - used_ ? bytes_ : used_ + taken;
    return at;
}

void *Sram::substitute(std::uint64_t bytes) {
    const std::size_t pages = rounded(bytes < PAGE ? PAGE : bytes, PAGE);
    void *at = bytes > (1ull << 46) ? MAP_FAILED
                                    : mmap(nullptr, pages, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return data();
    substitutes_.push_back({at, pages});
    return at;
}

void Sram::clear() {
    for (const Mapped &one : substitutes_)
        munmap(one.at, one.bytes);
    substitutes_.clear();
    if (data_)
        ASAN_POISON_MEMORY_REGION(data_, bytes_);
    used_ = 0;
}

bool Sram::contains(const void *at, std::uint64_t bytes, std::uint64_t &offset) const {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    const auto start = reinterpret_cast<std::uintptr_t>(data_);
    offset = address - start;
    return data_ && address >= start && offset <= used_ && bytes <= used_ - offset;
}

} // namespace kernloom::core
