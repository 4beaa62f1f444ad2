#include "replay.hpp"

#include <algorithm>

#include "region_bytes.hpp"

namespace kernloom::control {

void Replay::begin(std::uint32_t unit, std::uint64_t jobs) {
    unit_ = unit;
    jobs_ = jobs;
    completed_ = 0;
    left_ = 0;
    sent_.clear();
    ranges_.clear();
    before_.clear();
    after_.clear();
}

Replay::Content Replay::read() const {
    Content content;
    for (const Range &range : ranges_) {
        std::vector<unsigned char> bytes;
        auto visit = [&](std::uint64_t begin, std::uint64_t end) {
            const kl_rows rows = {1, end - begin, end - begin, end - begin};
            const std::size_t at = bytes.size();
            kl_fault fault{};
            bytes.resize(at + (end - begin));
            platform_.load(platform_.self, sent_.front().pe, bytes.data() + at, begin, &rows,
                           &fault);
            return true;
        };
        tasks::each_row(range.view, 0, range.view.begin, visit);
        content.push_back(std::move(bytes));
    }
    return content;
}

void Replay::write(const Content &content) const {
    for (std::size_t i = 0; i < ranges_.size(); i++) {
        const unsigned char *from = content[i].data();
        auto visit = [&](std::uint64_t begin, std::uint64_t end) {
            const kl_rows rows = {1, end - begin, end - begin, end - begin};
            kl_fault fault{};
            platform_.store(platform_.self, sent_.front().pe, begin, from, &rows, &fault);
            from += end - begin;
            return true;
        };
        tasks::each_row(ranges_[i].view, 0, ranges_[i].view.begin, visit);
    }
}

void Replay::dispatched(kl_node pe, const std::vector<unsigned char> &message,
                        const std::function<std::vector<Range>()> &ranges) {
    sent_.push_back({pe, message});
    if (sent_.size() > 1)
        return;
    ranges_ = ranges();
    before_ = read();
}

void Replay::completed() {
    if (++completed_ == jobs_)
        after_ = read();
}

void Replay::run(End end) {
    end_ = std::move(end);
    result_ = {};
    result_.jobs = jobs_;
    saved_ = read();
    write(before_);
    left_ = sent_.size();
    for (Sent &one : sent_) {
        const std::uint64_t request = ++requests_;
        std::memcpy(one.message.data() + offsetof(kl_header, request), &request, sizeof request);
        platform_.send(platform_.self, node_, one.pe, one.message.data(), one.message.size(), 0);
    }
}

void Replay::answered(const kl_delivery &delivery) {
    std::uint64_t request = 0;
    Outcome outcome;
    if (delivery.damaged || !read_response(delivery, request, outcome))
        outcome = Outcome::failure(KL_STATUS_DAMAGED, "the control program received a damaged "
                                                      "message of a PE");
    else if (request <= requests_ - sent_.size() || request > requests_)
        return; // of another replay, or of a launch
    if (result_.outcome.ok())
        result_.outcome = std::move(outcome);
    if (--left_ == 0)
        finish();
}

void Replay::finish() {
    compare(read());
    write(saved_);
    saved_.clear();
    end_(result_);
}

void Replay::compare(const Content &found) {
    result_.equal = true;
    result_.regions = ranges_.size();
    for (std::size_t i = 0; i < ranges_.size(); i++) {
        const std::vector<unsigned char> &expected = after_[i];
        result_.bytes += expected.size();
        const auto [a, b] = std::mismatch(expected.begin(), expected.end(), found[i].begin());
        if (a == expected.end() || !result_.equal)
            continue;
        result_.equal = false;
        result_.tensor = ranges_[i].tensor;
        result_.before = *a;
        result_.after = *b;
        auto place = static_cast<std::uint64_t>(a - expected.begin());
        auto visit = [&](std::uint64_t begin, std::uint64_t end) {
            if (place < end - begin) {
                result_.byte = begin + place - ranges_[i].address;
                return false;
            }
            place -= end - begin;
            return true;
        };
        tasks::each_row(ranges_[i].view, 0, ranges_[i].view.begin, visit);
    }
}

} // namespace kernloom::control
