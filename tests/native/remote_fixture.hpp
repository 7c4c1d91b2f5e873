// A remote storage whose calls are carried out by the test, when it will.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
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
        EXPECT_TRUE(std::holds_alternative<Kind>(calls.at(0).second));
        return calls.at(0).first;
    }
    bool nothing_asked() { return remote_->calls().take().empty(); }
    void answer(Calls::Ticket ticket, CallResult result) {
        EXPECT_NE(remote_->calls().answer(ticket, std::move(result)), std::nullopt);
    }
    // Whether whoever told it may keep it.
    bool may_be_kept(Calls::Ticket ticket, CallResult result) {
        return remote_->calls().answer(ticket, std::move(result)).value();
    }

    const std::shared_ptr<CachedSource> remote_;
};

}  // namespace ucxstore::test
