// Messages of a stream that are encrypted: each header and each body is a text of its own
// (protocol/sealing.hpp). They are sealed as they go and opened as they come, in pieces that stay
// in a cache between the socket and the memory where the body lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/copier.hpp"
#include "protocol/sealing.hpp"
#include "stream/frames.hpp"

namespace ucxstore::stream {

// On its way out.
class SealedMessage {
  public:
    // Takes the next number of `sealer`. The body is `pieces`, and their memory stays until
    // forget_body(); or `body`, if there are none.
    SealedMessage(protocol::Sealer& sealer, FrameKind kind, std::string header,
                  std::vector<ucp_dt_iov_t> pieces, std::string body);
    SealedMessage(const SealedMessage&) = delete;
    SealedMessage& operator=(const SealedMessage&) = delete;

    // Replaces `out` by what is to be sent next. Not at the end.
    void next(std::vector<std::byte>& out);
    bool is_at_end() const;
    // Copies what is still to be sealed: the body's memory is not used any more. Throws
    // std::bad_alloc.
    void forget_body();

  private:
    void seal(std::span<std::byte> target);

    std::string head_;  // the frame and the sealed header, until they are sent
    std::string own_;   // the body, where it is in no pieces, or these were forgotten
    std::vector<ucp_dt_iov_t> pieces_;
    memory::Copier copier_;
    std::unique_ptr<protocol::SealedData> data_;  // nullptr where there is no body
    std::uint64_t at_ = 0;  // bytes of the body that are sealed, and of its tag
};

// A body on its way in.
class OpenedBody {
  public:
    OpenedBody(protocol::Opener& opener, const protocol::Opener::Data& data);
    OpenedBody(const OpenedBody&) = delete;
    OpenedBody& operator=(const OpenedBody&) = delete;

    std::uint64_t bytes() const { return data_->bytes(); }
    // Where the bytes go that come from now on: pieces of as many bytes as there are, or none for
    // nowhere.
    void place(std::vector<ucp_dt_iov_t> pieces);
    // Opens the next bytes into the pieces, and may write to the memory that they have come in.
    void take(std::span<std::byte> sealed);
    // Once all has come: false where it is not what was sent. Then the pieces are zeros.
    bool end();

  private:
    void open(std::uint64_t offset, std::span<std::byte> data);

    std::vector<ucp_dt_iov_t> pieces_;
    memory::Copier copier_{{}};
    std::unique_ptr<protocol::OpenedData> data_;
};

}  // namespace ucxstore::stream
