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
        uint32_t size = static_cast<uint32_t>(keys_.size());
        if (count <= size) {
            return;
        }
        while (size < count) {
            size *= 2;
        }
        keys_.resize(size, NO_KEY);
        winners_.resize(size);
        for (uint32_t node = size - 1; node > 0; node--) {
            winners_[node] = decide(node);
        }
    }

    void set(uint32_t number, double key) {
        keys_[number] = key;
        for (uint32_t node = (number + static_cast<uint32_t>(keys_.size())) / 2; node > 0;
             node /= 2) {
            const uint32_t before = winners_[node];
            const uint32_t winner = decide(node);
            winners_[node] = winner;
            if (before != number && winner != number) {
                return;
            }
        }
    }

  private:
    uint32_t player(uint32_t node) const {
        const uint32_t size = static_cast<uint32_t>(keys_.size());
        return node < size ? winners_[node] : node - size;
    }

    // Of equal keys the lower number wins.
    uint32_t decide(uint32_t node) const {
        const uint32_t left = player(2 * node);
        const uint32_t right = player(2 * node + 1);
        return keys_[right] < keys_[left] ? right : left;
    }

    std::vector<double> keys_ = {NO_KEY, NO_KEY};
    std::vector<uint32_t> winners_ = {0, 0};
};

} // namespace kernloom
