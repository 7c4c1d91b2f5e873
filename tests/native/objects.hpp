// What a cache is in front of: objects in memory, and a thread that answers for them.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "cache/cached_source.hpp"
#include "remote_fixture.hpp"

namespace ucxstore::test {

class Objects {
  public:
    explicit Objects(std::shared_ptr<CachedSource> source) : source_(std::move(source)) {
        thread_ = std::thread([this] { run(); });
    }
    ~Objects() {
        stop_ = true;
        source_->calls().wake();
        thread_.join();
        source_->close("the end");
    }

    void set(const std::string& key, Bytes value) {
        const std::lock_guard lock(mutex_);
        ++etag_;
        objects_[key] = {std::move(value), std::to_string(etag_)};
    }
    std::optional<Bytes> get(const std::string& key) {
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(key);
        return found == objects_.end() ? std::nullopt : std::optional(found->second.value);
    }
    int fetched(const std::string& key) {
        const std::lock_guard lock(mutex_);
        return fetched_[key];
    }

    std::atomic<int> heads = 0;

  private:
    struct One {
        Bytes value;
        std::string etag;
    };

    void run() {
        while (!stop_) {
            pollfd entry{source_->calls().fd(), POLLIN, 0};
            poll(&entry, 1, 1000);
            for (auto& [ticket, call] : source_->calls().take()) {
                const auto changed = changed_by(call);
                source_->begin_asking(changed);
                source_->calls().answer(ticket,
                                        std::visit([this](auto& one) { return act(one); }, call));
                source_->end_asking(changed);
            }
        }
    }

    CallResult act(const GetCall& call) {
        const std::lock_guard lock(mutex_);
        ++fetched_[call.key];
        const auto found = objects_.find(call.key);
        if (found == objects_.end()) {
            return Missing{};
        }
        const auto& [value, etag] = found->second;
        if (!call.if_match.empty() && call.if_match != etag) {
            return Changed{};
        }
        const std::size_t end =
            call.end == 0 ? value.size() : std::min<std::size_t>(call.end, value.size());
        const auto at = [&](std::size_t offset) {
            return value.begin() + static_cast<std::ptrdiff_t>(offset);
        };
        return SourceObject{region(Bytes(at(call.begin), at(end))), etag, value.size()};
    }
    CallResult act(const HeadCall& call) {
        const std::lock_guard lock(mutex_);
        ++heads;
        const auto found = objects_.find(call.key);
        if (found == objects_.end()) {
            return Missing{};
        }
        return SourceObject{nullptr, found->second.etag, found->second.value.size()};
    }
    CallResult act(const PutCall& call) {
        const std::lock_guard lock(mutex_);
        if (call.if_absent && objects_.contains(call.key)) {
            return Stored{false, ""};
        }
        const Bytes value(call.value->data(), call.value->data() + call.value->size());
        objects_[call.key] = {value, std::to_string(++etag_)};
        return Stored{true, std::to_string(etag_)};
    }
    CallResult act(const RemoveCall& call) {
        const std::lock_guard lock(mutex_);
        for (const std::string& key : call.keys) {
            objects_.erase(key);
        }
        return Missing{};
    }
    CallResult act(const RemovePrefixCall& call) {
        const std::lock_guard lock(mutex_);
        return Removed{std::erase_if(
            objects_, [&](const auto& one) { return one.first.starts_with(call.prefix); })};
    }
    template <typename Other>
    CallResult act(const Other&) {
        return Failure{"not here"};
    }

    const std::shared_ptr<CachedSource> source_;
    std::mutex mutex_;
    std::map<std::string, One> objects_;
    std::map<std::string, int> fetched_;
    int etag_ = 0;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

}  // namespace ucxstore::test
