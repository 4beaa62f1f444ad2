// Records that are reused, addressed by number; a record stays where it is while others are added.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace kernloom {

template <typename T> class Slots {
  public:
    uint32_t acquire() {
        if (free_.empty()) {
            if (count_ == blocks_.size() * BLOCK) {
                blocks_.push_back(std::make_unique<T[]>(BLOCK));
            }
            return count_++;
        }
        const uint32_t slot = free_.back();
        free_.pop_back();
        return slot;
    }

    void release(uint32_t slot) {
        free_.push_back(slot);
    }

    T &operator[](uint32_t slot) {
        return blocks_[slot / BLOCK][slot % BLOCK];
    }

    const T &operator[](uint32_t slot) const {
        return blocks_[slot / BLOCK][slot % BLOCK];
    }

    // Every slot that was ever used is below this.
    uint32_t bound() const {
        return count_;
    }

  private:
    static constexpr uint32_t BLOCK = 256;
    std::vector<std::unique_ptr<T[]>> blocks_;
    std::vector<uint32_t> free_;
    uint32_t count_ = 0;
};

} // namespace kernloom
