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
    size_t used = sizeof digits;
    while (used > 0 && (digits[used - 1] == '0' || digits[used - 1] == '.')) {
        used--;
    }
    text.append(digits, used);
}

void append_event(std::string &text, char phase, uint32_t pid, uint32_t tid, uint64_t time) {
    text += "{\"ph\":\"";
    text += phase;
    text += "\",\"pid\":";
    append_number(text, pid);
    text += ",\"tid\":";
    append_number(text, tid);
    text += ",\"ts\":";
    append_time(text, time);
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

void Trace::begin_launch() {
    if (before_launches_) {
        slices_.resize(before_launches_->slices);
        flows_.resize(before_launches_->flows);
        counts_.resize(before_launches_->counts);
    } else {
        before_launches_ = {slices_.size(), flows_.size(), counts_.size()};
    }
}

const std::string &Trace::json() {
    text_.clear();
    text_.reserve(slices_.size() * 100 + flows_.size() * 160 + counts_.size() * 100 +
                  tracks_.size() * 120 + 200);
    text_ += "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    for (uint32_t i = 0; i < processes_.size(); i++) {
        append_metadata(text_, "process_name", i + 1, 0, processes_[i]);
    }
    write_slices();
    write_flows();
    write_counts();
    if (text_.size() >= 2 && text_[text_.size() - 2] == ',') {
        text_.erase(text_.size() - 2, 1);
    }
    text_ += "]}\n";
    return text_;
}

// Arrows are between slices on the first threads of their tracks.
void Trace::write_flows() {
    uint64_t id = 0;
    for (const Flow &flow : flows_) {
        id++;
        if (threads_[flow.from] == 0 || threads_[flow.to] == 0) {
            continue;
        }
        for (const bool begins : {true, false}) {
            const uint32_t track = begins ? flow.from : flow.to;
            append_event(text_, begins ? 's' : 'f', tracks_[track].process + 1, threads_[track],
                         begins ? flow.from_time : flow.to_time);
            text_ += begins ? ",\"id\":" : ",\"bp\":\"e\",\"id\":";
            append_number(text_, id);
            text_ += ",\"cat\":\"task\",\"name\":\"dependency\"},\n";
        }
    }
}

void Trace::write_counts() {
    for (const Count &count : counts_) {
        append_event(text_, 'C', count.process + 1, 0, count.time);
        text_ += ",\"name\":";
        text_ += names_[count.name];
        text_ += ",\"args\":{\"value\":";
        append_number(text_, count.value);
        text_ += "}},\n";
    }
}

// Slices of a thread must nest; where those of a track overlap, further threads show them.
void Trace::write_slices() {
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
    threads_.assign(tracks_.size(), 0);
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
            append_event(text_, 'X', pid, threads + static_cast<uint32_t>(lane) + 1, slice.begin);
            text_ += ",\"dur\":";
            append_time(text_, slice.end - slice.begin);
            text_ += ",\"name\":";
            text_ += names_[slice.name];
            if (slice.bytes == NAMED_TASK) {
                text_ += ",\"args\":{\"task\":";
                text_ += names_[slice.name];
                text_ += '}';
            } else if (slice.bytes > 0) {
                text_ += ",\"args\":{\"bytes\":";
                append_number(text_, slice.bytes);
                text_ += '}';
            }
            text_ += "},\n";
        }
        threads_[track] = threads + 1;
        threads += static_cast<uint32_t>(lanes.size());
    }
}

} // namespace kernloom
