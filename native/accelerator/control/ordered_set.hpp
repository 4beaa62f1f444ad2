// A set of numbers below a bound, whose least one is found at once: bits, and above them bits that
// say which words have any.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace kernloom::control {

class OrderedSet {
  public:
    // Empties the set, for numbers below a bound.
    void reset(std::uint32_t bound) {
        levels_ = 0;
        std::size_t words = 0;
        for (std::uint64_t size = bound; levels_ == 0 || size > 1;) {
            size = (size + 63) / 64;
            begin_[levels_++] = words;
            words += size ? size : 1;
        }
        size_ = 0;
        words_.assign(words, 0);
    }

    bool empty() const {
        return words_.empty() || words_.back() == 0;
    }

    std::uint32_t size() const {
        return size_;
    }

    void insert(std::uint32_t number) {
        size_ += !has(number);
        for (unsigned level = 0; level < levels_; level++) {
            std::uint64_t &word = words_[begin_[level] + number / 64];
            const bool had = word != 0;
            word |= std::uint64_t{1} << number % 64;
            if (had)
                return;
            number /= 64;
        }
    }

    void erase(std::uint32_t number) {
        size_ -= has(number);
        for (unsigned level = 0; level < levels_; level++) {
            std::uint64_t &word = words_[begin_[level] + number / 64];
            word &= ~(std::uint64_t{1} << number % 64);
            if (word)
                return;
            number /= 64;
        }
    }

    // The least number; the set is not empty.
    std::uint32_t first() const {
        std::uint32_t place = 0;
        for (unsigned level = levels_; level-- > 0;)
            place = place * 64 +
                    static_cast<std::uint32_t>(std::countr_zero(words_[begin_[level] + place]));
        return place;
    }

    // Calls visit(number) -> bool for the numbers in order, until it returns false.
    template <class Visit> void each(Visit visit) const {
        for (std::size_t i = 0; levels_ && i < (levels_ > 1 ? begin_[1] : words_.size()); i++)
            for (std::uint64_t word = words_[i]; word; word &= word - 1)
                if (!visit(static_cast<std::uint32_t>(
                        i * 64 + static_cast<unsigned>(std::countr_zero(word)))))
                    return;
    }

    std::uint64_t bytes() const {
        return words_.size() * sizeof words_[0];
    }

  private:
    bool has(std::uint32_t number) const {
        return words_[number / 64] >> number % 64 & 1;
    }

    std::vector<std::uint64_t> words_;
    std::uint32_t size_ = 0;
    std::size_t begin_[7] = {};
    unsigned levels_ = 0;
};

} // namespace kernloom::control
