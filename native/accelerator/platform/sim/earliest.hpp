// The number with the least key, of numbers whose keys change often.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace kernloom {

// A tournament: each inner node holds the winner of its two children. A change is carried up only
// as far as it decides a match, which is not far for a key that is not among the least.
class Earliest {
  public:
    static constexpr double NO_KEY = std::numeric_limits<double>::infinity();

    // The winner; its key is NO_KEY if nobody has one.
    uint32_t number() const {
        return winners_[1];
    }

    double key() const {
        return keys_[winners_[1]];
    }

    void grow(uint32_t count) {
        if (count <= size_) {
            return;
        }
        while (size_ < count) {
            size_ *= 2;
        }
        keys_.resize(size_, NO_KEY);
        winners_.resize(2 * size_);
        for (uint32_t number = 0; number < size_; number++) {
            winners_[size_ + number] = number;
        }
        for (uint32_t node = size_ - 1; node > 0; node--) {
            winners_[node] = decide(node);
        }
    }

    void set(uint32_t number, double key) {
        keys_[number] = key;
        for (uint32_t node = (size_ + number) / 2; node > 0; node /= 2) {
            const uint32_t before = winners_[node];
            const uint32_t winner = decide(node);
            winners_[node] = winner;
            if (before != number && winner != number) {
                return;
            }
        }
    }

  private:
    // Of equal keys the lower number wins.
    uint32_t decide(uint32_t node) const {
        const uint32_t left = winners_[2 * node];
        const uint32_t right = winners_[2 * node + 1];
        return keys_[right] < keys_[left] ? right : left;
    }

    uint32_t size_ = 2; // a power of two
    std::vector<double> keys_ = {NO_KEY, NO_KEY};
    std::vector<uint32_t> winners_ = {0, 0, 0, 1}; // the root is 1, the leaves come last
};

} // namespace kernloom
