// The engine's messages: each is checked, carried out and answered, whatever its bytes are.
#pragma once

#include <string>
#include <vector>

#include "device.hpp"
#include "exchange.hpp"
#include "kernloom/settings.hpp"
#include "launch.hpp"
#include "programs.hpp"
#include "tensors.hpp"

namespace kernloom::host {

// Memory shared with the engine.
struct Window {
    unsigned char *data = nullptr;
    std::uint64_t bytes = 0;
};

// The response of one addressee.
struct Reply {
    Outcome outcome;
    std::vector<kl_sample> samples;
    std::uint64_t virtual_ps = 0;
};

class FrontEnd {
  public:
    FrontEnd(const kl_platform &platform, kl_node node, const char *settings);

    // Carries out one message; returns all its responses, which live until the next call.
    const std::vector<unsigned char> &request(const void *message, std::size_t bytes,
                                              Window window);

    void receive(const kl_delivery &delivery) {
        exchange_.receive(delivery);
    }
    void timer(std::uint64_t token) {
        exchange_.timer(token);
    }

    const Tensors &tensors() const {
        return tensors_;
    }
    const Programs &programs() const {
        return programs_;
    }

  private:
    // What a request is for.
    struct Addressed {
        std::vector<kl_node> parts;
        bool listed = false; // by the message's own list
        bool exist = true;   // all of them
    };

    bool read_addressees(const kl_header &header, Reader &reader, Addressed &addressed) const;
    std::vector<Reply> execute(const kl_header &header, Reader &reader, const Addressed &addressed);
    Reply execute_once(const kl_header &header, Reader &reader, const Addressed &addressed);

    // Requests to the device as a whole.
    Outcome allocate(Reader &reader, const Addressed &addressed);
    Outcome place(Reader &reader, const Addressed &addressed, std::vector<Answer> &answers);
    Outcome release(Reader &reader);
    Outcome load(Reader &reader);
    Outcome transfer(std::uint16_t kind, Reader &reader);
    Outcome fill(Reader &reader);
    Reply launch(Reader &reader, const Addressed &addressed);
    Outcome document(Reader &reader);

    // Requests to PEs.
    std::vector<Reply> place_each(Reader &reader, const Addressed &addressed);
    std::vector<Reply> access_each(std::uint16_t kind, Reader &reader, const Addressed &addressed);
    std::vector<Reply> map_each(Reader &reader, const Addressed &addressed);
    std::vector<Reply> unmap_each(Reader &reader, const Addressed &addressed);
    std::vector<Reply> probe_each(Reader &reader, const Addressed &addressed);
    void add_nearest(Outcome &outcome, std::uint64_t address) const;
    Outcome check_mappings(const std::vector<kl_mapping> &mappings) const;
    Outcome check_window(std::uint64_t offset, std::uint64_t bytes) const;

    void respond_with(const kl_header &header, kl_node responder, const Reply &reply);

    const kl_platform &platform_;
    Exchange exchange_;
    Tensors tensors_;
    Device device_;
    Programs programs_;
    Launcher launcher_;
    std::uint32_t policy_;
    std::uint64_t unit_;
    Window window_;
    std::vector<unsigned char> responses_;
    std::string document_; // the last one that was made
};

} // namespace kernloom::host
