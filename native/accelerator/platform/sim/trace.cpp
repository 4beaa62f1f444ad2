#include "trace.hpp"

#include <algorithm>
#include <numeric>

namespace kernloom {

namespace {

std::string quoted(std::string_view text) {
    static constexpr char HEX[] = "0123456789abcdef";
    std::string result = "\"";
    for (const char character : text) {
        const auto code = static_cast<unsigned char>(character);
        if (character == '"' || character == '\\') {
            result += '\\';
            result += character;
        } else if (code < 0x20 || code >= 0x7f) { // names are ASCII; anything else is shown as such
            result += "\\u00";
            result += HEX[code >> 4];
            result += HEX[code & 15];
        } else {
            result += character;
        }
    }
    return result + '"';
}

void append_number(std::string &text, uint64_t value) {
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = static_cast<char>('0' + value % 10);
        value /= 10;
    } while (value > 0);
    text.append(digits + at, sizeof digits - at);
}

// Picoseconds as microseconds.
void append_time(std::string &text, uint64_t picoseconds) {
    append_number(text, picoseconds / 1000000);
    char digits[7] = {'.'};
    uint64_t fraction = picoseconds % 1000000;
    for (int i = 6; i > 0; i--) {
        digits[i] = static_cast<char>('0' + fraction % 10);
        fraction /= 10;
    }
    text.append(digits, sizeof digits);
}

void append_metadata(std::string &text, const char *what, uint32_t pid, uint32_t tid,
                     const std::string &name) {
    text += "{\"ph\":\"M\",\"name\":\"";
    text += what;
    text += "\",\"pid\":";
    append_number(text, pid);
    text += ",\"tid\":";
    append_number(text, tid);
    text += ",\"args\":{\"name\":";
    text += quoted(name);
    text += "}},\n";
}

} // namespace

uint32_t Trace::add_process(std::string name) {
    processes_.push_back(std::move(name));
    return static_cast<uint32_t>(processes_.size() - 1);
}

uint32_t Trace::add_track(uint32_t process, std::string name) {
    tracks_.push_back({process, std::move(name)});
    return static_cast<uint32_t>(tracks_.size() - 1);
}

uint32_t Trace::name(std::string_view text) {
    const auto [at, added] =
        numbers_.try_emplace(std::string(text), static_cast<uint32_t>(names_.size()));
    if (added) {
        names_.push_back(quoted(text));
    }
    return at->second;
}

// Slices of a thread must nest; where those of a track overlap, further threads show them.
const std::string &Trace::json() {
    std::vector<uint32_t> order(slices_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
        const Slice &x = slices_[a];
        const Slice &y = slices_[b];
        if (x.track != y.track) {
            return x.track < y.track;
        }
        return x.begin != y.begin ? x.begin < y.begin : x.end > y.end;
    });
    text_.clear();
    text_.reserve(slices_.size() * 100 + tracks_.size() * 120 + 200);
    text_ += "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    for (uint32_t i = 0; i < processes_.size(); i++) {
        append_metadata(text_, "process_name", i + 1, 0, processes_[i]);
    }
    uint32_t threads = 0;
    std::vector<std::vector<uint64_t>> lanes; // ends of the slices that are open, outermost first
    for (size_t i = 0; i < order.size();) {
        const uint32_t track = slices_[order[i]].track;
        const uint32_t pid = tracks_[track].process + 1;
        lanes.clear();
        for (; i < order.size() && slices_[order[i]].track == track; i++) {
            const Slice &slice = slices_[order[i]];
            size_t lane = 0;
            for (; lane < lanes.size(); lane++) {
                std::vector<uint64_t> &open = lanes[lane];
                while (!open.empty() && open.back() <= slice.begin) {
                    open.pop_back();
                }
                if (open.empty() || open.back() >= slice.end) {
                    break;
                }
            }
            if (lane == lanes.size()) {
                lanes.emplace_back();
                append_metadata(text_, "thread_name", pid,
                                threads + static_cast<uint32_t>(lane) + 1, tracks_[track].name);
            }
            lanes[lane].push_back(slice.end);
            text_ += "{\"ph\":\"X\",\"pid\":";
            append_number(text_, pid);
            text_ += ",\"tid\":";
            append_number(text_, threads + lane + 1);
            text_ += ",\"ts\":";
            append_time(text_, slice.begin);
            text_ += ",\"dur\":";
            append_time(text_, slice.end - slice.begin);
            text_ += ",\"name\":";
            text_ += names_[slice.name];
            if (slice.bytes > 0) {
                text_ += ",\"args\":{\"bytes\":";
                append_number(text_, slice.bytes);
                text_ += '}';
            }
            text_ += "},\n";
        }
        threads += static_cast<uint32_t>(lanes.size());
    }
    if (text_.size() >= 2 && text_[text_.size() - 2] == ',') {
        text_.erase(text_.size() - 2, 1);
    }
    text_ += "]}\n";
    return text_;
}

} // namespace kernloom
