#include "exchange.hpp"

namespace kernloom::host {

Exchange::Exchange(const kl_platform &platform, kl_node node, std::uint64_t timeout_ps)
    : platform_(platform), node_(node), timeout_ps_(timeout_ps),
      watchdog_(platform, node, WATCHDOG) {
}

void Exchange::begin() {
    answers_.clear();
    transfers_.clear();
    missing_ = 0;
    first_request_ = requests_ + 1;
}

void Exchange::send(kl_node to, std::uint64_t request, std::uint32_t kind, Packet &packet,
                    std::uint64_t bulk) {
    Answer answer;
    answer.from = to;
    answer.kind = kind;
    answer.request = request;
    answers_.push_back(std::move(answer));
    missing_++;
    const auto &bytes = packet.finish();
    platform_.send(platform_.self, node_, to, bytes.data(), bytes.size(), bulk);
}

void Exchange::send_transfer(kl_node to, std::uint16_t kind, std::uint64_t address,
                             unsigned char *data, std::uint64_t bytes, std::uint64_t bulk) {
    const std::uint64_t request = next_request();
    transfers_.push_back({data, bytes});
    Packet packet(kind, request);
    // Both have the same fields.
    kl_memory_write message{};
    message.address = address;
    message.offset = reinterpret_cast<std::uintptr_t>(&transfers_.back());
    message.bytes = bytes;
    packet.add(message);
    send(to, request, kind, packet, kind == KL_KIND_MEMORY_WRITE ? bulk : 0);
}

const std::vector<Answer> &Exchange::wait(std::uint64_t timeouts) {
    constexpr std::uint64_t most = 1'000'000'000'000'000'000;
    const std::uint64_t delay_ps = timeouts > most / timeout_ps_ ? most : timeouts * timeout_ps_;
    over_ = false;
    if (missing_)
        watchdog_.start(delay_ps);
    while (missing_ && !over_)
        if (!platform_.run(platform_.self))
            break;
    watchdog_.stop();
    if (missing_)
        give_up(timeouts, delay_ps);
    return answers_;
}

void Exchange::give_up(std::uint64_t timeouts, std::uint64_t delay_ps) {
    const std::string limit =
        timeouts == 1 ? ANSWER_TIMEOUT_KEY
                      : text_of("%llu times %s", (unsigned long long)timeouts, ANSWER_TIMEOUT_KEY);
    for (Answer &answer : answers_)
        if (!answer.arrived)
            answer.outcome = no_answer(
                platform_,
                text_of("%s did not answer %s (request %llu)", name_of(answer.from).c_str(),
                        name_of_kind(answer.kind), (unsigned long long)answer.request),
                delay_ps, limit);
    missing_ = 0;
    for (HostTransfer &transfer : transfers_)
        transfer.data = nullptr;
    if (!transfers_.empty())
        given_up_.push_back(std::move(transfers_));
    transfers_.clear();
}

void Exchange::submit(std::uint64_t delay_ps) {
    const std::uint64_t begin = now();
    tell_idle(KL_IDLE_SUBMIT);
    spending_ = true;
    platform_.after(platform_.self, node_, delay_ps, SPENT);
    while (spending_ && platform_.run(platform_.self)) {
    }
    spending_ = false;
    tell_idle(KL_IDLE_NO_WORK);
    platform_.trace(platform_.self, node_, "submit", begin, now());
    const kl_stretch stretch = {begin, now(), node_, KL_STRETCH_SUBMIT, 0, "tasks"};
    platform_.path(platform_.self, &stretch, 1);
}

// No PE has anything to do.
void Exchange::tell_idle(std::uint32_t why) {
    for (std::uint32_t type = 0; type < KL_CORE_TYPES; type++)
        platform_.waiting(platform_.self, type, why);
}

// The request of this round that a delivery answers.
Answer *Exchange::expected(const kl_delivery &delivery, std::uint64_t request) {
    const auto fits = [&](const Answer &answer) {
        return !answer.arrived && same_node(answer.from, delivery.from);
    };
    if (request) {
        // Those of a round are numbered one after the other.
        const std::uint64_t place = request - first_request_;
        return place < answers_.size() && fits(answers_[place]) ? &answers_[place] : nullptr;
    }
    // A damaged request is answered without its number.
    for (Answer &answer : answers_)
        if (fits(answer))
            return &answer;
    return nullptr;
}

void Exchange::receive(const kl_delivery &delivery) {
    std::uint64_t request = 0;
    Outcome outcome;
    if (delivery.damaged || !read_response(delivery, request, outcome)) {
        outcome =
            Outcome::failure(KL_STATUS_DAMAGED, text_of("the host received a damaged message of %s",
                                                        name_of(delivery.from).c_str()));
        request = 0;
    }
    // Answers to earlier rounds come too late.
    if (request && request < first_request_)
        return;
    Answer *answer = expected(delivery, request);
    if (!answer)
        return;
    answer->arrived = true;
    answer->at_ps = now();
    answer->outcome = std::move(outcome);
    if (--missing_ == 0)
        platform_.stop(platform_.self);
}

void Exchange::timer(std::uint64_t token) {
    if (token == WATCHDOG && watchdog_.fired())
        over_ = true;
    else if (token == SPENT && spending_)
        spending_ = false;
    else
        return;
    platform_.stop(platform_.self);
}

} // namespace kernloom::host
