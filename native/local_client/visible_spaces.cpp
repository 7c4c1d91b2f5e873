#include "local_client/visible_spaces.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::local_client {

namespace {

// The largest arena that a server may have.
constexpr std::uint64_t kMaxArenaBytes = protocol::kMaxValueBytes;

// A quarter of the descriptors that this process may have. What lies in others is copied.
std::size_t most_open_arenas() {
    rlimit limit{};
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 4 : 0;
}

// The number of the shelf that a message of these is about.
std::uint64_t shelf_of(const stream::InMessage& message) {
    const bool of_arena =
        message.kind == stream::FrameKind::arena || message.kind == stream::FrameKind::dropped;
    const std::size_t at = of_arena ? offsetof(local::ArenaHeader, shelf) : 0;
    std::uint64_t shelf = 0;
    if (message.header.size() < at + sizeof(shelf)) {
        throw base::Error(base::ErrorKind::protocol, "what no server sends");
    }
    std::memcpy(&shelf, message.header.data() + at, sizeof(shelf));
    return shelf;
}

}  // namespace

std::shared_ptr<const Visible> renewed(const std::shared_ptr<const Visible>& before,
                                       stream::InMessage& message,
                                       std::function<void()> tell_held) {
    auto visible =
        before == nullptr ? std::make_shared<Visible>() : std::make_shared<Visible>(*before);
    const auto arena =
        protocol::read_header<local::ArenaHeader>(message.header.data(), message.header.size());
    const auto number = arena ? static_cast<std::uint32_t>(arena->number) : 0;
    const bool has_descriptor = message.descriptors.size() == 1;
    if (message.kind == stream::FrameKind::dropped && arena) {
        visible->arenas.erase(number);
    } else if (message.kind == stream::FrameKind::pins && message.descriptors.size() == 4) {
        visible->life = std::make_shared<shared::LifeWatch>(message.descriptors[0]);
        visible->pins = std::make_shared<shared::Pins>(shared::PinTable::Descriptors{
            std::move(message.descriptors[1]), std::move(message.descriptors[2])});
        visible->held = std::make_shared<HeldValues>(
            visible->pins, std::make_shared<shared::ReaderLimitView>(message.descriptors[3]),
            std::move(tell_held));
    } else if (message.kind == stream::FrameKind::index && has_descriptor) {
        visible->index = std::make_shared<shared::IndexReader>(message.descriptors[0]);
    } else if (message.kind == stream::FrameKind::arena && has_descriptor && arena) {
        const bool stays_open = visible->arenas.size() < most_open_arenas();
        visible->arenas[number] = std::make_shared<SeenArena>(
            std::move(message.descriptors[0]), arena->bytes, kMaxArenaBytes, stays_open);
    } else {
        throw base::Error(base::ErrorKind::protocol, "what no server sends");
    }
    return visible;
}

std::shared_ptr<const Visible> VisibleSpaces::of(std::string_view key) const {
    const auto name = protocol::shelf_of(key);
    if (!name) {
        return nullptr;
    }
    const auto all = all_.load();
    const auto found = all->find(*name);
    return found == all->end() ? nullptr : found->second;
}

bool VisibleSpaces::lost() const {
    return std::ranges::any_of(*all_.load(), [](const auto& one) {
        return one.second->pins != nullptr && one.second->pins->lost();
    });
}

bool VisibleSpaces::is_for_space(const stream::InMessage& message) {
    return shelf_of(message) != local::kMainShelf;
}

void VisibleSpaces::see(stream::InMessage& message, std::function<void()> tell_held) {
    const std::uint64_t shelf = shelf_of(message);
    auto all = std::make_shared<All>(*all_.load());
    if (message.kind == stream::FrameKind::pins) {
        std::string name = message.header.substr(sizeof(local::ShelfHeader));
        // One that was forgotten is shown anew, by another number.
        if (!protocol::is_shelf_name(name) || names_.contains(shelf) || all->contains(name) ||
            all->size() >= local::kMaxSpaces) {
            throw base::Error(base::ErrorKind::protocol,
                              "a scratch space that was not to be shown");
        }
        (*all)[name] = renewed(nullptr, message, std::move(tell_held));
        names_.emplace(shelf, std::move(name));
    } else if (message.kind == stream::FrameKind::ended) {
        const auto found = names_.find(shelf);
        if (found == names_.end()) {
            return;  // it was not shown in the end
        }
        all->erase(found->second);
        names_.erase(found);
    } else {
        const auto found = names_.find(shelf);
        if (found == names_.end()) {
            throw base::Error(base::ErrorKind::protocol, "a part of what was not shown");
        }
        auto& visible = (*all)[found->second];
        visible = renewed(visible, message, std::move(tell_held));
    }
    all_.store(std::move(all));
}

void VisibleSpaces::clear() {
    all_.store(none_);
    names_.clear();
}

}  // namespace ucxstore::local_client
