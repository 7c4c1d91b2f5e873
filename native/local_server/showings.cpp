#include "local_server/showings.hpp"

#include <algorithm>
#include <utility>

#include "base/status.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::local_server {

namespace {

// Of a larger value than this, a part is sent where the client does not see it: to copy all of it
// to where it would would keep other clients waiting.
constexpr std::uint64_t kCopiedForPart = 8ull << 20;

// How many tables of pins a client may have: those of what it was shown and has forgotten count
// until it lets go of them, as each takes descriptors. Then values are sent.
constexpr long kMostTables = 4 * static_cast<long>(local::kMaxSpaces);

// How soon it is looked again for those that the client has let go of, if it has kept them.
constexpr auto kLookEvery = std::chrono::seconds(1);

}  // namespace

// The tables hold `keeps_`.
bool Showings::may_have_more_tables() {
    const auto are_few = [this] { return keeps_.use_count() <= kMostTables; };
    if (are_few()) {
        return true;
    }
    const base::TimePoint now = base::Clock::now();
    if (now < look_again_) {
        return false;
    }
    storages_.forget_gone();
    if (are_few()) {
        return true;
    }
    look_again_ = now + kLookEvery;
    return false;
}

// The value where clients see it; nullptr for nowhere.
std::shared_ptr<const memory::Region> Showings::shelved(const sessions::PendingGet& get) const {
    const std::uint64_t bytes = get.value()->size();
    const bool may_copy = bytes <= kCopiedForPart || get.size() >= bytes / 2;
    const bool of_source = storages_.source != nullptr && !protocol::shelf_of(get.key());
    return of_source ? storages_.source->show(get.key(), get.value(), may_copy) : get.value();
}

std::shared_ptr<const memory::Region> Showings::show(const sessions::PendingGet& get,
                                                     const OnDrop& on_drop,
                                                     std::vector<stream::OutMessage>& messages) {
    auto value = shelved(get);
    const auto shelf = value == nullptr ? nullptr : shared::Shelf::of(*value);
    if (shelf == nullptr || !may_have_more_tables()) {
        return nullptr;
    }
    // A client that asks for a key in a scratch space knows its name, which is the secret of those
    // who may see it.
    const auto name = protocol::shelf_of(get.key());
    Showing* found = nullptr;
    try {
        found = name ? &space(shelf, *name, on_drop, messages) : &main(shelf);
    } catch (const base::Error&) {  // for want of room for another table
        return nullptr;
    }
    Showing& showing = *found;
    const auto before = static_cast<std::ptrdiff_t>(messages.size());
    try {
        if (showing.show(*value, messages)) {
            shelf->count_shown();
            return value;
        }
    } catch (const base::Error&) {  // for want of descriptors: the client has not got all
        messages.erase(messages.begin() + before, messages.end());
        if (!name) {
            main_.reset();
        }
    }
    if (name) {  // it has ended meanwhile, perhaps before it was watched
        forget(std::prev(spaces_.end()), messages);
    }
    return nullptr;
}

Showing& Showings::main(const std::shared_ptr<shared::Shelf>& shelf) {
    if (main_ == nullptr) {
        main_ = std::make_unique<Showing>(shelf, life_, keeps_, make_holder_(), seen_by_);
    }
    return *main_;
}

// It is the last of the list from then on.
Showing& Showings::space(const std::shared_ptr<shared::Shelf>& shelf, std::string_view name,
                         const OnDrop& on_drop, std::vector<stream::OutMessage>& messages) {
    const auto found = std::ranges::find_if(
        spaces_, [&](const Space& one) { return one.showing->space() == name; });
    if (found != spaces_.end() && found->showing->shelf() == shelf) {
        spaces_.splice(spaces_.end(), spaces_, found);
        return *spaces_.back().showing;
    }
    if (found != spaces_.end()) {  // one of the same name has ended
        forget(found, messages);
    }
    if (spaces_.size() >= local::kMaxSpaces) {
        forget_one(messages);
    }
    const std::uint64_t number = ++last_number_;
    Space one{
        std::make_unique<Showing>(shelf, life_, keeps_, make_holder_(), seen_by_, number,
                                  std::string(name)),
        shelf->watch_drops([on_drop, number](std::uint32_t arena) { on_drop(number, arena); })};
    spaces_.push_back(std::move(one));
    return *spaces_.back().showing;
}

// The one where the client has read least since the last look; of several, the one that was asked
// for longest ago.
void Showings::forget_one(std::vector<stream::OutMessage>& messages) {
    auto least = spaces_.begin();
    std::uint64_t fewest = ~std::uint64_t{0};
    for (auto one = spaces_.begin(); one != spaces_.end(); ++one) {
        const std::uint64_t seen = one->showing->seen();
        const std::uint64_t since = seen - std::exchange(one->seen, seen);
        if (since < fewest) {
            fewest = since;
            least = one;
        }
    }
    forget(least, messages);
}

void Showings::forget(Spaces::iterator space, std::vector<stream::OutMessage>& messages) {
    const local::ShelfHeader header{space->showing->number()};
    messages.push_back({.kind = stream::FrameKind::ended,
                        .header = {reinterpret_cast<const char*>(&header), sizeof(header)}});
    spaces_.erase(space);
}

void Showings::drop(std::uint64_t shelf, std::uint32_t arena,
                    std::vector<stream::OutMessage>& messages) {
    Showing* showing = shelf == local::kMainShelf ? main_.get() : nullptr;
    if (shelf != local::kMainShelf) {
        const auto found = std::ranges::find_if(
            spaces_, [&](const Space& one) { return one.showing->number() == shelf; });
        if (found == spaces_.end()) {
            return;
        }
        if (arena == shared::Shelf::kAllArenas) {
            return forget(found, messages);
        }
        showing = found->showing.get();
    }
    if (showing != nullptr && showing->forget(arena)) {
        const local::ArenaHeader header{arena, shelf, 0};
        messages.push_back({.kind = stream::FrameKind::dropped,
                            .header = {reinterpret_cast<const char*>(&header), sizeof(header)}});
    }
}

std::uint64_t Showings::seen() const {
    std::uint64_t sum = main_ == nullptr ? 0 : main_->seen();
    for (const Space& one : spaces_) {
        sum += one.showing->seen();
    }
    return sum;
}

bool Showings::pinned() const {
    return (main_ != nullptr && main_->pinned()) ||
           std::ranges::any_of(spaces_, [](const Space& one) { return one.showing->pinned(); });
}

void Showings::sweep_soon() {
    if (main_ != nullptr) {
        main_->shelf()->sweep_soon();
    }
    for (const Space& one : spaces_) {
        one.showing->shelf()->sweep_soon();
    }
}

void Showings::close() {
    main_.reset();
    spaces_.clear();
    keeps_.reset();
}

}  // namespace ucxstore::local_server
