// The number with the least key, of numbers whose keys change often.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace kernloom {

// A tournament: each inner node holds the winner of its two children. A change is carried up only
// as far as it decides a match, which is not far for a key that is not among the least.
class Earliest {
  public:
    static constexpr double NO_KEY = std::numeric_limits<double>::infinity();

    // Of equal keys the lower number wins. Keys are not negative, so that they are ordered like
    // their bits, and comparisons need no branches.
    struct Player {
        uint64_t bits;
        uint64_t number;

        Player(double key, uint32_t number) : bits(std::bit_cast<uint64_t>(key)), number(number) {
        }

        double key() const {
            return std::bit_cast<double>(bits);
        }

        bool beats(const Player &other) const {
            return order() < other.order();
        }

      private:
        unsigned __int128 order() const {
            return static_cast<unsigned __int128>(bits) << 64 | number;
        }
    };

    // The winner; its key is NO_KEY if nobody has one.
    uint32_t number() const {
        return static_cast<uint32_t>(nodes_[1].number);
    }

    double key() const {
        return nodes_[1].key();
    }

    void grow(uint32_t count) {
        if (count <= size_) {
            return;
        }
        const std::vector<Player> before(nodes_.begin() + size_, nodes_.end());
        while (size_ < count) {
            size_ *= 2;
        }
        nodes_.assign(2 * size_, Player(NO_KEY, 0));
        for (uint32_t number = 0; number < size_; number++) {
            nodes_[size_ + number] =
                number < before.size() ? before[number] : Player(NO_KEY, number);
        }
        for (size_t node = size_ - 1; node > 0; node--) {
            nodes_[node] = winner(nodes_[2 * node], nodes_[2 * node + 1]);
        }
    }

    void set(uint32_t number, double key) {
        size_t node = size_ + number;
        Player player(key, number);
        if (nodes_[node].bits == player.bits) {
            return;
        }
        nodes_[node] = player;
        for (; node > 1; node /= 2) {
            player = winner(player, nodes_[node ^ 1]);
            Player &parent = nodes_[node / 2];
            const bool matters = (parent.number == number) | (player.number == number);
            parent = player;
            if (!matters) {
                return;
            }
        }
    }

  private:
    static Player winner(const Player &a, const Player &b) {
        const bool second = b.beats(a);
        Player result = a;
        result.bits = second ? b.bits : a.bits;
        result.number = second ? b.number : a.number;
        return result;
    }

    uint32_t size_ = 2; // a power of two
    // The root is 1, the leaves come last.
    std::vector<Player> nodes_ = {{NO_KEY, 0}, {NO_KEY, 0}, {NO_KEY, 0}, {NO_KEY, 1}};
};

} // namespace kernloom
