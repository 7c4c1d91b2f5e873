#include "local_server/showing.hpp"

#include <utility>

#include "base/status.hpp"

namespace ucxstore::local_server {
namespace {

stream::OutMessage with_descriptor(stream::FrameKind kind, base::Fd descriptor,
                                   std::string header) {
    stream::OutMessage message{.kind = kind, .header = std::move(header)};
    message.descriptors.push_back(std::move(descriptor));
    return message;
}

}  // namespace

Showing::Showing(std::shared_ptr<shared::Shelf> shelf, int life, std::shared_ptr<const void> keeps,
                 std::shared_ptr<shared::Holder> holder,
                 std::shared_ptr<base::SeenByClient> seen_by, std::uint64_t number,
                 std::string space)
    : shelf_(std::move(shelf)),
      life_(life),
      keeps_(std::move(keeps)),
      holder_(std::move(holder)),
      seen_by_(std::move(seen_by)),
      number_(number),
      space_(std::move(space)) {}

Showing::~Showing() {
    if (pins_ != nullptr) {
        pins_->end();
        seen_by_->drop(pins_.get());
        shelf_->sweep_soon();  // its reader has gone, mostly
    }
}

bool Showing::pinned() const { return pins_ != nullptr && shelf_->pins_any(*pins_); }

bool Showing::show(const memory::Region& value, std::vector<stream::OutMessage>& messages) {
    const auto number = shelf_->arena_with(value);
    if (!number) {
        return false;
    }
    if (pins_ == nullptr) {
        auto pins = shelf_->add_reader(keeps_, holder_);
        auto [table, lifeline] = pins->take_descriptors();
        messages.push_back(with_descriptor(stream::FrameKind::pins, stream::copy_of(life_),
                                           stream::raw(local::ShelfHeader{number_}) + space_));
        messages.back().descriptors.push_back(std::move(table));
        messages.back().descriptors.push_back(std::move(lifeline));
        messages.back().descriptors.push_back(shelf_->reader_limit());
        seen_by_->add(pins);
        pins_ = std::move(pins);
    }
    if (generation_ != shelf_->generation()) {
        auto [descriptor, generation] = shelf_->index();
        messages.push_back(with_descriptor(stream::FrameKind::index, std::move(descriptor),
                                           stream::raw(local::ShelfHeader{number_})));
        generation_ = generation;
    }
    if (!arenas_.contains(*number)) {
        auto [descriptor, bytes] = shelf_->arena(*number);  // it is there, as the value is
        messages.push_back(
            with_descriptor(stream::FrameKind::arena, std::move(descriptor),
                            stream::raw(local::ArenaHeader{*number, number_, bytes})));
        arenas_.insert(*number);
    }
    return true;
}

}  // namespace ucxstore::local_server
