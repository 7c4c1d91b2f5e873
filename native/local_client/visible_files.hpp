// What a client sees of the directory of a server of its host: the files themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "client/link.hpp"
#include "client/operation.hpp"
#include "files/directory_root.hpp"
#include "protocol/selecting.hpp"
#include "shared/life.hpp"
#include "shared/session_page.hpp"

namespace ucxstore::local_client {

// Never changes. Any thread.
class VisibleFiles {
  public:
    using Wait = files::DirectoryRoot::Wait;

    // What a caller's own thread reads for one operation at the most: it may be an event loop's.
    // The rest is read by other threads.
    static constexpr std::uint64_t kMostAtOnce = 1 << 20;
    // The same where it holds Python's lock.
    static constexpr std::uint64_t kMostWithLock = 64 << 10;

    // Of what a server sends. Throws Error(protocol).
    VisibleFiles(const base::Fd& life, const base::Fd& page, base::Fd root);

    // Whether the server lets its files be seen: it lives, and has not ended the session.
    bool usable() const { return !life_.over() && !page_.ended(); }

    // What a server would answer to a get. A value is still to be read.
    struct Finding {
        enum class What {
            answer,   // the header is all of it
            value,    // and `wanted` of the file
            unknown,  // the server must be asked
            later,    // it would have to wait for the disk, and was not to
        };
        What what = What::unknown;
        protocol::ReplyHeader header{};
        protocol::Selected wanted = {};
        base::Fd file = {};
    };
    Finding find(const protocol::GetItem& wanted, const client::Item& item, Wait wait) const;

    // Answers a get of this item in the way of a server, without waiting for the disk, if what is
    // wanted of the value has no more than `room` bytes, which it takes of that. `unknown` and
    // `later`: nothing was noted, and another thread may find out. Throws Error(memory).
    Finding::What answer(const std::string& peer, client::Operation& operation,
                         std::uint32_t number, std::uint64_t& room) const;

    // Notes what was found, and read where it is a value, in its item; to be called once.
    void note(const std::string& peer, client::Operation& operation, std::uint32_t number,
              Finding& finding) const;

    // Reads a whole value to memory that it asks for, in the same way. nullopt where that cannot
    // be, or the value has no room.
    std::optional<std::uint64_t> copy(std::string_view key,
                                      const client::Link::MakeRoom& make_room) const;

    // A whole value as a mapping of its file (files/mapped_file.hpp). nullptr where there is none,
    // or the disk would have to be waited for against `wait`.
    std::shared_ptr<memory::Region> map(std::string_view key, Wait wait) const;

  private:
    const shared::LifeWatch life_;
    const shared::SessionWatch page_;
    const files::DirectoryRoot root_;
    const bool in_memory_;  // there is no disk to wait for
};

}  // namespace ucxstore::local_client
