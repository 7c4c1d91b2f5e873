// A remote storage whose calls are carried out by the test, when it will.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "cache/cached_source.hpp"
#include "loopback.hpp"

namespace ucxstore::test {

inline std::shared_ptr<Region> region(const Bytes& bytes) {
    auto made = allocate_region(bytes.size());
    std::ranges::copy(bytes, made->data());
    return made;
}
inline std::shared_ptr<Region> region(const std::string& text) { return region(to_bytes(text)); }

inline std::string text_of(const CachedSource::Value& value) {
    return value == nullptr
               ? "none"
               : std::string(reinterpret_cast<const char*>(value->data()), value->size());
}

constexpr std::uint64_t kBlock = 64 << 10;

// What came of a fetch.
struct Fetched {
    std::optional<Outcome<CachedSource::Value>> outcome;
    std::string text() const {
        if (!outcome) {
            return "not yet";
        }
        return outcome->failure.empty() ? text_of(outcome->value) : "failed: " + outcome->failure;
    }
};

// What a call changes: whoever carries it out has it asked for until its end.
inline CachedSource::Names changed_by(const Call& call) {
    if (const auto* put = std::get_if<PutCall>(&call)) {
        return {{put->key}, {}};
    }
    if (const auto* remove = std::get_if<RemoveCall>(&call)) {
        return {remove->keys, {}};
    }
    if (const auto* removal = std::get_if<RemovePrefixCall>(&call)) {
        return {{}, {removal->prefix}};
    }
    return {};
}

class RemoteTest : public testing::Test {
  protected:
    explicit RemoteTest(
        std::shared_ptr<CachedSource> remote = std::make_shared<CachedSource>(1 << 20, kBlock))
        : remote_(std::move(remote)) {}

    std::shared_ptr<Fetched> fetch(const std::string& key) {
        auto fetched = std::make_shared<Fetched>();
        remote_->fetch(key, {}, [fetched](auto outcome) { fetched->outcome = std::move(outcome); });
        return fetched;
    }
    // Whether it was written; nullopt before that is known.
    std::shared_ptr<std::optional<bool>> write(const std::string& key, const std::string& text) {
        auto written = std::make_shared<std::optional<bool>>();
        remote_->write(key, region(text), false,
                       [written](auto outcome) { *written = outcome.value; });
        return written;
    }
    // The only call since; its ticket.
    template <typename Kind>
    Calls::Ticket taken() {
        const auto calls = remote_->calls().take();
        EXPECT_EQ(calls.size(), 1u);
        const auto& [ticket, call] = calls.at(0);
        EXPECT_TRUE(std::holds_alternative<Kind>(call));
        changed_[ticket] = changed_by(call);
        remote_->begin_asking(changed_[ticket]);
        return ticket;
    }
    bool nothing_asked() { return remote_->calls().take().empty(); }
    void answer(Calls::Ticket ticket, CallResult result) { may_be_kept(ticket, std::move(result)); }
    // Whether whoever told it may keep it.
    bool may_be_kept(Calls::Ticket ticket, CallResult result) {
        const bool kept = remote_->calls().answer(ticket, std::move(result)).value();
        remote_->end_asking(changed_[ticket]);
        return kept;
    }

    const std::shared_ptr<CachedSource> remote_;
    std::map<Calls::Ticket, CachedSource::Names> changed_;
};

}  // namespace ucxstore::test
