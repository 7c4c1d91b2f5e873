#include "client/reply.hpp"

#include "base/status.hpp"
#include "client/refusal.hpp"

namespace ucxstore::client {

namespace {

void check_version(Item& item, std::uint64_t version) {
    if (version == protocol::kAnyVersion ||
        (item.version != protocol::kAnyVersion && item.version != version)) {
        throw base::Error(base::ErrorKind::protocol, "a reply of another value than was meant");
    }
    item.version = version;
}

}  // namespace

bool note_reply(const std::string& peer, Operation& operation, const protocol::ReplyHeader& header,
                std::string_view text) {
    if (header.item >= operation.items.size() || operation.items[header.item].done ||
        operation.items[header.item].elsewhere) {
        throw base::Error(base::ErrorKind::protocol, "a reply to no request of ours");
    }
    Item& item = operation.items[header.item];
    // A value may turn out to be unreadable while it is sent.
    const bool failed_later =
        header.status == protocol::Status::storage && operation.kind == Operation::Kind::get;
    if (header.status != protocol::Status::ok && item.size != protocol::kAnySize && !failed_later) {
        throw base::Error(base::ErrorKind::protocol, "a second reply to one request");
    }
    item.status = header.status;
    item.value_size = header.value_size;
    using Kind = Operation::Kind;
    switch (header.status) {
        case protocol::Status::ok:
            return !operation.sends_values();  // a reply to those has no bytes
        case protocol::Status::missing:
            if (operation.kind != Kind::get) {
                throw base::Error(base::ErrorKind::protocol, "'missing' for what is no get");
            }
            break;
        case protocol::Status::changed:
            if (item.version == protocol::kAnyVersion || item.version == header.version) {
                throw base::Error(base::ErrorKind::protocol, "'changed' for what is not");
            }
            item.version = header.version;
            break;
        case protocol::Status::kept:
            if (operation.kind != Kind::set_if_absent) {
                throw base::Error(base::ErrorKind::protocol, "'kept' for what is no set-if-absent");
            }
            break;
        default:
            if (header.status == protocol::Status::too_large && !item.memory) {
                throw base::Error(base::ErrorKind::protocol,
                                  "'too large' for what may have any size");
            }
            operation.fail(refusal(peer, item, header, text));
    }
    return false;
}

void note_segment(Operation& operation, const protocol::ReplyHeader& header, std::size_t size) {
    Item& item = operation.items[header.item];
    const std::uint64_t room = item.memory ? item.memory->size() : protocol::kMaxValueBytes;
    const bool fits = item.exact ? header.reply_size == room : header.reply_size <= room;
    if (!fits || header.length != size ||
        !item.segments.add(header.reply_size, header.segment, header.offset, header.length)) {
        throw base::Error(base::ErrorKind::protocol, "a reply that does not fit its request");
    }
    if (operation.kind == Operation::Kind::get) {
        check_version(item, header.version);
    }
    item.size = header.reply_size;
    if (!item.memory && item.owned == nullptr) {
        item.owned = memory::allocate_region(header.reply_size);
    }
}

std::vector<ucp_dt_iov_t> pieces_of(const Item& item, const protocol::ReplyHeader& header) {
    if (!item.memory) {
        return {{item.owned->data() + header.offset, header.length}};
    }
    std::vector<ucp_dt_iov_t> pieces;
    item.memory->pieces(header.offset, header.length, pieces);
    return pieces;
}

}  // namespace ucxstore::client
