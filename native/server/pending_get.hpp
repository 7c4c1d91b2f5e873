// A get that waits or is being sent: a key until its turn comes, then a pinned value in segments.
// No I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/region.hpp"
#include "protocol/selecting.hpp"
#include "protocol/wire.hpp"

namespace ucxstore {

// The item of a request that a reply is to.
struct ItemId {
    std::uint64_t request;
    std::uint32_t item;

    bool operator==(const ItemId&) const = default;
};

struct HashItemId {
    std::size_t operator()(const ItemId& id) const {
        return std::hash<std::uint64_t>()(id.request * 0x9E3779B97F4A7C15ull + id.item);
    }
};

class PendingGet {
  public:
    PendingGet(const ItemId& id, wire::GetItem wanted, bool send_bytes = false)
        : id_(id), wanted_(std::move(wanted)), send_bytes_(send_bytes) {}

    const ItemId& id() const { return id_; }
    const std::string& key() const { return wanted_.key; }
    const wire::Selection& selection() const { return wanted_.selection; }
    // Whether the bytes are wanted, even where the client could see them.
    bool send_bytes() const { return send_bytes_; }

    // Pins the value (nullptr: the key has none) and finds what is wanted of it. To be called once.
    // nullopt where that can be sent.
    std::optional<wire::Refusal> open(std::shared_ptr<const Region> value);

    // What follows is for an open get.
    const std::shared_ptr<const Region>& value() const { return value_; }
    // The bytes of it that are wanted.
    std::uint64_t size() const { return selected_.size; }
    // The next segment: its memory, as pieces of the value, or copied into `packed` where that is
    // cheaper, and then without pieces; and its header, but for the token. Throws Error(storage)
    // where bytes are missing.
    wire::ReplyHeader next(std::vector<ucp_dt_iov_t>& pieces, std::string& packed);
    // Whether next() has been called for all of it. There is one segment at least, if an empty one.
    bool done() const { return sent_ >= selected_.size; }

  private:
    ItemId id_;
    wire::GetItem wanted_;
    bool send_bytes_;
    std::shared_ptr<const Region> value_;
    wire::Selected selected_;
    std::uint64_t sent_ = 0;
};

}  // namespace ucxstore
