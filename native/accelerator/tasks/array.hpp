// An array that grows, for plain data. Large ones grow by moving pages, not bytes, and only the
// part in use takes memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "pages.hpp"

namespace kernloom::tasks {

template <class T> class Array {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  public:
    Array() = default;
    Array(const Array &other) {
        append(other.data_, other.size_);
    }
    Array(Array &&other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
          capacity_(std::exchange(other.capacity_, 0)) {
    }
    Array &operator=(Array other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
        return *this;
    }
    ~Array() {
        free();
    }

    std::size_t size() const {
        return size_;
    }
    bool empty() const {
        return size_ == 0;
    }
    // Of the elements in use.
    std::uint64_t bytes() const {
        return size_ * sizeof(T);
    }
    T *data() {
        return data_;
    }
    const T *data() const {
        return data_;
    }
    T &operator[](std::size_t place) {
        return data_[place];
    }
    const T &operator[](std::size_t place) const {
        return data_[place];
    }
    T *begin() {
        return data_;
    }
    T *end() {
        return data_ + size_;
    }
    const T *begin() const {
        return data_;
    }
    const T *end() const {
        return data_ + size_;
    }
    T &back() {
        return data_[size_ - 1];
    }
    const T &back() const {
        return data_[size_ - 1];
    }

    void push_back(const T &element) {
        *add(1) = element;
    }
    void pop_back() {
        size_--;
    }
    void append(const T *elements, std::size_t count) {
        if (count)
            std::memcpy(static_cast<void *>(add(count)), elements, count * sizeof(T));
    }
    // Room for more elements at the end, to be filled in by the caller.
    T *add(std::size_t count) {
        if (count > capacity_ - size_)
            grow(size_ + count);
        T *first = data_ + size_;
        size_ += count;
        return first;
    }
    // New elements are zero bytes.
    void resize(std::size_t size) {
        if (size > size_) {
            const std::size_t more = size - size_;
            std::memset(static_cast<void *>(add(more)), 0, more * sizeof(T));
        }
        truncate(size);
    }
    void reserve(std::size_t capacity) {
        if (capacity > capacity_)
            set_capacity(capacity);
    }
    // Drops elements at the end.
    void truncate(std::size_t size) {
        size_ = size;
    }
    // Keeps the memory.
    void clear() {
        size_ = 0;
    }

  private:
    static constexpr std::size_t LARGE = HUGE_PAGE / 2;

    __attribute__((noinline)) void grow(std::size_t least) {
        const std::size_t twice = capacity_ ? 2 * capacity_ : 16;
        set_capacity(least > twice ? least : twice);
    }

    static bool is_large(std::size_t capacity) {
        return capacity * sizeof(T) >= LARGE;
    }
    static std::size_t page_bytes(std::size_t capacity) {
        return (capacity * sizeof(T) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    }

    void set_capacity(std::size_t capacity) {
        if (capacity > PTRDIFF_MAX / sizeof(T))
            throw std::bad_alloc();
        void *data = nullptr;
        if (!is_large(capacity)) {
            data = std::realloc(static_cast<void *>(data_), capacity * sizeof(T));
        } else {
            const bool was_large = data_ && is_large(capacity_);
            data = grow_pages(was_large ? data_ : nullptr, was_large ? page_bytes(capacity_) : 0,
                              page_bytes(capacity));
            if (data)
                capacity = page_bytes(capacity) / sizeof(T);
            if (data && data_ && !was_large) {
                std::memcpy(data, static_cast<const void *>(data_), size_ * sizeof(T));
                std::free(data_);
            }
        }
        if (!data)
            throw std::bad_alloc();
        data_ = static_cast<T *>(data);
        capacity_ = capacity;
    }

    void free() {
        if (data_ && is_large(capacity_))
            free_pages(data_, page_bytes(capacity_));
        else
            std::free(data_);
    }

    T *data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

} // namespace kernloom::tasks
