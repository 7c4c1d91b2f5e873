#include "sessions/walk.hpp"

#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>

#include "base/status.hpp"
#include "protocol/wire.hpp"

namespace ucxstore::sessions {
namespace {

// The bytes of names that are listed at a time. A directory is read once for each list, so a large
// one is read seldom.
constexpr std::size_t kListedBytes = 1 << 20;

bool is_over(base::TimePoint until) {
    return until != base::TimePoint::max() && base::Clock::now() >= until;
}

}  // namespace

Walk::Walk(std::shared_ptr<storage::Storage> storage, cache::StorageCall call,
           std::shared_ptr<Brake> brake, storage::Pace pace, CatchUp catch_up,
           base::MandateRef mandate)
    : storage_(std::move(storage)),
      call_(std::move(call)),
      brake_(std::move(brake)),
      pace_(std::move(pace)),
      catch_up_(std::move(catch_up)),
      mandate_(std::move(mandate)) {}

std::optional<cache::CallResult> Walk::step(base::TimePoint until) {
    brake_->check();
    base::check(mandate_);
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
        base::check(mandate_);
        return held;
    });
    if (storage_->removing_waits()) {
        removed_.push_back(key);
    }
}

void Walk::note_unreadable() {
    for (std::string& folder : page_.unreadable) {
        if (unreadable_bytes_ + folder.size() <= protocol::kPageBytes) {
            unreadable_bytes_ += folder.size();
            unreadable_.insert(std::move(folder));
        }
    }
}

std::optional<cache::CallResult> Walk::go_on(const cache::StatCall& call, base::TimePoint until) {
    while (keys_ < call.keys.size()) {
        sizes_.push_back(storage_->size(call.keys[keys_++]).value_or(protocol::kAnySize));
        if (is_over(until)) {
            return std::nullopt;
        }
    }
    return std::move(sizes_);
}

std::optional<cache::CallResult> Walk::go_on(const cache::RemoveCall& call, base::TimePoint until) {
    while (keys_ < call.keys.size()) {
        remove(call.keys[keys_++]);
        if (is_over(until)) {
            return std::nullopt;
        }
    }
    return cache::Missing{};
}

std::optional<cache::CallResult> Walk::go_on(const cache::RemovePrefixCall& call,
                                             base::TimePoint until) {
    while (const std::string* key = next_key(call.prefix, kListedBytes)) {
        remove(*key);
        if (is_over(until)) {
            return std::nullopt;
        }
    }
    if (!unreadable_.empty()) {
        throw base::Error(base::ErrorKind::storage,
                          "opening the folder '" + *unreadable_.begin() +
                              "', whose keys stay: " + std::strerror(EACCES));
    }
    return cache::Removed{keys_};
}

std::optional<cache::CallResult> Walk::go_on(const cache::MeasureCall& call,
                                             base::TimePoint until) {
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

std::optional<cache::CallResult> Walk::go_on(const cache::ListCall& call, base::TimePoint) {
    return storage_->list(call.prefix, call.delimited, call.cursor, call.max_bytes, pace_);
}

Answer answer_at_once(std::shared_ptr<storage::Storage> storage, cache::StorageCall call) {
    try {
        Walk walk(std::move(storage), std::move(call), std::make_shared<Brake>());
        return answer_of(*walk.step(base::TimePoint::max()));
    } catch (const std::exception& error) {
        return {status_of(error), error.what()};
    }
}

}  // namespace ucxstore::sessions
