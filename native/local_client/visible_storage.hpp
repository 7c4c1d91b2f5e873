// What a client sees of a server of its host: values in its memory and its scratch spaces, and its
// files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/link.hpp"
#include "local_client/slot.hpp"
#include "local_client/visible.hpp"
#include "local_client/visible_files.hpp"
#include "local_client/visible_spaces.hpp"
#include "stream/stream_socket.hpp"

namespace ucxstore::local_client {

class VisibleStorage {
  public:
    // These from any thread. A value as Link::see(), Link::hold() and Link::map_file() give it.
    std::optional<std::uint64_t> copy(std::string_view key,
                                      const client::Link::MakeRoom& make_room) const;
    std::shared_ptr<memory::Region> hold(std::string_view key) const;
    std::shared_ptr<memory::Region> map_file(std::string_view key,
                                             files::DirectoryRoot::Wait wait) const;

    // The items of a get that have no answer yet.
    struct Unanswered {
        std::vector<std::uint32_t> unknown;         // the server must be asked
        std::vector<std::uint32_t> later;           // other threads can read these from `files`
        std::shared_ptr<const VisibleFiles> files;  // nullptr where there are none

        bool empty() const { return unknown.empty() && later.empty(); }
    };
    // Answers the items of a get that can be seen, as Visible::answer() and VisibleFiles::answer().
    Unanswered answer(const std::string& peer, client::Operation& operation) const;
    // The same of one item, which the server says is to be seen in memory.
    bool answer_shown(const std::string& peer, client::Operation& operation,
                      std::uint32_t item) const;
    // Whether what this process has pinned was taken back.
    bool lost_pins() const;

    // These on one thread.
    // Takes a message about what is to be seen. `tell_held` as in HeldValues. Throws
    // Error(protocol) where it is no such message.
    void take(stream::InMessage& message, std::function<void()> tell_held);
    // Nothing is to be seen any more. Needs no memory.
    void clear();

  private:
    // nullptr where there is nothing to be seen.
    std::shared_ptr<const Visible> memory_with(std::string_view key) const;
    std::shared_ptr<const VisibleFiles> usable_files() const;

    Slot<const Visible> memory_;  // but for scratch spaces
    VisibleSpaces spaces_;
    Slot<const VisibleFiles> files_;
};

}  // namespace ucxstore::local_client
