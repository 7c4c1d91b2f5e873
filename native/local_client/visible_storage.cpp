#include "local_client/visible_storage.hpp"

#include <utility>

#include "base/status.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::local_client {

using What = VisibleFiles::Finding::What;

namespace {

// The bytes that the caller's thread reads from files.
std::uint64_t room_at_once(const client::Operation& operation) {
    const std::uint64_t bytes = operation.memory_bytes();
    return bytes > VisibleFiles::kMostAtOnce     ? 0
           : bytes > VisibleFiles::kMostWithLock ? VisibleFiles::kMostAtOnce
                                                 : VisibleFiles::kMostWithLock;
}

}  // namespace

std::shared_ptr<const Visible> VisibleStorage::memory_with(std::string_view key) const {
    auto visible = protocol::shelf_of(key) ? spaces_.of(key) : memory_.load();
    return visible != nullptr && visible->usable() ? visible : nullptr;
}

std::shared_ptr<const VisibleFiles> VisibleStorage::usable_files() const {
    auto files = files_.load();
    return files != nullptr && files->usable() ? files : nullptr;
}

std::optional<std::uint64_t> VisibleStorage::copy(std::string_view key,
                                                  const client::Link::MakeRoom& make_room) const {
    if (const auto visible = memory_with(key)) {
        if (const auto size = visible->copy(key, make_room)) {
            return size;
        }
    }
    const auto files = usable_files();
    return files != nullptr ? files->copy(key, make_room) : std::nullopt;
}

std::shared_ptr<memory::Region> VisibleStorage::hold(std::string_view key) const {
    const auto visible = memory_with(key);
    return visible == nullptr ? nullptr : visible->hold(key);
}

std::shared_ptr<memory::Region> VisibleStorage::map_file(std::string_view key,
                                                         files::DirectoryRoot::Wait wait) const {
    const auto files = usable_files();
    return files == nullptr ? nullptr : files->map(key, wait);
}

VisibleStorage::Unanswered VisibleStorage::answer(const std::string& peer,
                                                  client::Operation& operation) const {
    Unanswered rest;
    rest.files = usable_files();
    std::shared_ptr<const Visible> visible;
    std::uint64_t room = room_at_once(operation);
    for (std::uint32_t i = 0; i < operation.items.size(); ++i) {
        const std::string& key = operation.gets[i].key;
        if (i == 0 || protocol::shelf_of(key) != protocol::shelf_of(operation.gets[i - 1].key)) {
            visible = memory_with(key);
        }
        // Only the server knows whether a value that is read once was read, by this client or
        // others.
        const bool answered = visible != nullptr && !protocol::is_read_once(key) &&
                              visible->answer(peer, operation, i);
        auto what = answered ? What::answer : What::unknown;
        if (what == What::unknown && rest.files != nullptr) {
            what = rest.files->answer(peer, operation, i, room);
        }
        if (what == What::later) {
            rest.later.push_back(i);
        } else if (what == What::unknown) {
            rest.unknown.push_back(i);
        } else {
            operation.item_done(operation.items[i]);
        }
    }
    return rest;
}

bool VisibleStorage::answer_shown(const std::string& peer, client::Operation& operation,
                                  std::uint32_t item) const {
    const auto visible = memory_with(operation.gets[item].key);
    return visible != nullptr && visible->answer(peer, operation, item, true);
}

bool VisibleStorage::lost_pins() const {
    const auto visible = memory_.load();
    return spaces_.lost() ||
           (visible != nullptr && visible->pins != nullptr && visible->pins->lost());
}

void VisibleStorage::take(stream::InMessage& message, std::function<void()> tell_held) {
    if (message.kind == stream::FrameKind::root) {
        if (message.descriptors.size() != 3) {
            throw base::Error(base::ErrorKind::protocol, "a directory without its descriptors");
        }
        files_.store(std::make_shared<VisibleFiles>(message.descriptors[0], message.descriptors[1],
                                                    std::move(message.descriptors[2])));
    } else if (VisibleSpaces::is_for_space(message)) {
        spaces_.see(message, std::move(tell_held));
    } else {
        memory_.store(renewed(memory_.load(), message, std::move(tell_held)));
    }
}

void VisibleStorage::clear() {
    memory_.store(nullptr);
    spaces_.clear();
    files_.store(nullptr);
}

}  // namespace ucxstore::local_client
