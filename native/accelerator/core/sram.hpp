// The SRAM of a PE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kernloom::core {

// Each byte of memory whose content a kernel must not rely on: numbers are NaN or -1.
constexpr int UNDEFINED = 0xFF;

class Sram {
  public:
    explicit Sram(std::uint64_t bytes);
    ~Sram();
    Sram(const Sram &) = delete;
    Sram &operator=(const Sram &) = delete;

    // Memory of the running task, with undefined content; null if there is too little left.
    void *allocate(std::uint64_t bytes);

    // Memory outside the SRAM, for a task that has failed already and goes on.
    void *substitute(std::uint64_t bytes);

    // The task has ended: all of it is free again.
    void clear();

    // Whether a range is in memory that the task has allocated; and where in the SRAM it is.
    bool contains(const void *at, std::uint64_t bytes, std::uint64_t &offset) const;

    unsigned char *data() {
        return open();
    }
    std::uint64_t bytes() const {
        return bytes_;
    }
    std::uint64_t used() const {
        return used_;
    }

  private:
    struct Mapped {
        void *at;
        std::size_t bytes;
    };

    unsigned char *open();

    std::uint64_t bytes_;
    std::uint64_t used_ = 0;
    unsigned char *data_ = nullptr; // between guards; reserved at the first use
    Mapped region_{};
    std::vector<Mapped> substitutes_;
};

} // namespace kernloom::core
