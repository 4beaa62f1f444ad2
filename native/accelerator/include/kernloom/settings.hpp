// Settings of a device: lines `key=value`.
#pragma once

#include <cstdint>
#include <string_view>

namespace kernloom {

class Settings {
  public:
    // The text must outlive this.
    explicit Settings(const char *text) : text_(text ? text : "") {
    }

    // Empty if the key is missing.
    std::string_view text(std::string_view key) const {
        for (std::size_t at = 0; at < text_.size();) {
            std::size_t end = text_.find('\n', at);
            if (end == std::string_view::npos)
                end = text_.size();
            const std::string_view line = text_.substr(at, end - at);
            if (line.size() > key.size() && line[key.size()] == '=' && line.starts_with(key))
                return line.substr(key.size() + 1);
            at = end + 1;
        }
        return {};
    }

    // `otherwise` if the key is missing or its value is no number.
    std::uint64_t number(std::string_view key, std::uint64_t otherwise) const {
        const std::string_view digits = text(key);
        std::uint64_t value = 0;
        for (const char digit : digits) {
            if (digit < '0' || digit > '9' || value > (~0ull - 9) / 10)
                return otherwise;
            value = value * 10 + static_cast<std::uint64_t>(digit - '0');
        }
        return digits.empty() ? otherwise : value;
    }

  private:
    std::string_view text_;
};

// Virtual time after which an answer is no longer waited for: target.options.timeout_ns.
inline std::uint64_t answer_timeout_ps(const Settings &settings) {
    constexpr std::uint64_t most = 1'000'000'000'000; // 1,000 s
    const std::uint64_t ns = settings.number("timeout_ns", most);
    return (ns < most ? ns : most) * 1000;
}

} // namespace kernloom
