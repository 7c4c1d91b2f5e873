#include "sessions/walk.hpp"

#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>

#include "base/status.hpp"
#include "protocol/wire.hpp"

namespace ucxstore {
namespace {

// The bytes of names that are listed at a time. A directory is read once for each list, so a large
// one is read seldom.
constexpr std::size_t kListedBytes = 1 << 20;

bool is_over(TimePoint until) { return until != TimePoint::max() && Clock::now() >= until; }

}  // namespace

Walk::Walk(std::shared_ptr<Storage> storage, StorageCall call, std::shared_ptr<Brake> brake,
           Pace pace, CatchUp catch_up, MandateRef mandate)
    : storage_(std::move(storage)),
      call_(std::move(call)),
      brake_(std::move(brake)),
      pace_(std::move(pace)),
      catch_up_(std::move(catch_up)),
      mandate_(std::move(mandate)) {}

std::optional<CallResult> Walk::step(TimePoint until) {
    brake_->check();
    check(mandate_);
    auto result = std::visit([&](const auto& call) { return go_on(call, until); }, call_);
    if (!removed_.empty()) {
        storage_->removed(std::exchange(removed_, {}));
    }
    return result;
}

void Walk::rest() {
    if (next_ < page_.names.size()) {
        page_.cursor = page_.names[next_];
    }
    page_.names = {};
    page_.sizes = {};
    next_ = 0;
}

const std::string* Walk::next_key(const std::string& prefix, std::size_t max_bytes) {
    while (next_ == page_.names.size()) {
        if (begun_ && page_.cursor.empty()) {
            return nullptr;
        }
        page_ = storage_->list(prefix, false, page_.cursor, max_bytes, pace_);
        note_unreadable();
        begun_ = true;
        next_ = 0;
    }
    ++keys_;
    return &page_.names[next_++];
}

void Walk::remove(const std::string& key) {
    storage_->remove(key, [this](bool surely) {
        if (surely && catch_up_) {
            catch_up_();
        }
        auto held = brake_->hold();
        check(mandate_);
        return held;
    });
    if (storage_->removing_waits()) {
        removed_.push_back(key);
    }
}

void Walk::note_unreadable() {
    for (std::string& folder : page_.unreadable) {
        if (unreadable_bytes_ + folder.size() <= wire::kPageBytes) {
            unreadable_bytes_ += folder.size();
            unreadable_.insert(std::move(folder));
        }
    }
}

std::optional<CallResult> Walk::go_on(const StatCall& call, TimePoint until) {
    while (keys_ < call.keys.size()) {
        sizes_.push_back(storage_->size(call.keys[keys_++]).value_or(wire::kAnySize));
        if (is_over(until)) {
            return std::nullopt;
        }
    }
    return std::move(sizes_);
}

std::optional<CallResult> Walk::go_on(const RemoveCall& call, TimePoint until) {
    while (keys_ < call.keys.size()) {
        remove(call.keys[keys_++]);
        if (is_over(until)) {
            return std::nullopt;
        }
    }
    return Missing{};
}

std::optional<CallResult> Walk::go_on(const RemovePrefixCall& call, TimePoint until) {
    while (const std::string* key = next_key(call.prefix, kListedBytes)) {
        remove(*key);
        if (is_over(until)) {
            return std::nullopt;
        }
    }
    if (!unreadable_.empty()) {
        throw Error(ErrorKind::storage, "opening the folder '" + *unreadable_.begin() +
                                            "', whose keys stay: " + std::strerror(EACCES));
    }
    return Removed{keys_};
}

std::optional<CallResult> Walk::go_on(const MeasureCall& call, TimePoint until) {
    // Whether there is any key, the first one tells.
    while (const std::string* key =
               next_key(call.prefix, call.any && unreadable_.empty() ? 1 : kListedBytes)) {
        const auto bytes =
            page_.sizes.empty() ? storage_->size(*key) : std::optional(page_.sizes[next_ - 1]);
        if (bytes) {
            ++sum_.keys;
            sum_.bytes += *bytes;
            if (call.any) {
                break;
            }
        }
        if (is_over(until)) {
            return std::nullopt;
        }
    }
    sum_.unreadable.assign(unreadable_.begin(), unreadable_.end());
    return std::move(sum_);
}

std::optional<CallResult> Walk::go_on(const ListCall& call, TimePoint) {
    return storage_->list(call.prefix, call.delimited, call.cursor, call.max_bytes, pace_);
}

Answer answer_at_once(std::shared_ptr<Storage> storage, StorageCall call) {
    try {
        Walk walk(std::move(storage), std::move(call), std::make_shared<Brake>());
        return answer_of(*walk.step(TimePoint::max()));
    } catch (const std::exception& error) {
        return {status_of(error), error.what()};
    }
}

}  // namespace ucxstore
