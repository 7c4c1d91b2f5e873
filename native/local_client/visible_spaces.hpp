// What a client sees of the scratch spaces of a server of its host: each has a shelf of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "local/frames.hpp"
#include "local_client/slot.hpp"
#include "local_client/visible.hpp"
#include "stream/stream_socket.hpp"

namespace ucxstore::local_client {

// What is seen of a shelf once this message has come; `before` is what was seen, nullptr for
// nothing. `tell_held` as in HeldValues. Throws Error(protocol) where it is no such message.
std::shared_ptr<const Visible> renewed(const std::shared_ptr<const Visible>& before,
                                       stream::InMessage& message, std::function<void()> tell_held);

class VisibleSpaces {
  public:
    // Any thread. What is seen of the space that a key is in; nullptr for nothing.
    std::shared_ptr<const Visible> of(std::string_view key) const;
    // Whether what this process has pinned in any of them was taken back.
    bool lost() const;

    // What follows is for one thread.

    // Whether a message is about a scratch space; then see() takes it. That throws Error(protocol).
    static bool is_for_space(const stream::InMessage& message);
    void see(stream::InMessage& message, std::function<void()> tell_held);
    // Needs no memory.
    void clear();

  private:
    using All = std::map<std::string, std::shared_ptr<const Visible>, std::less<>>;  // by name

    const std::shared_ptr<const All> none_ = std::make_shared<const All>();
    Slot<const All> all_{none_};
    std::map<std::uint64_t, std::string> names_;  // by the numbers of their shelves
};

}  // namespace ucxstore::local_client
