// Operation: one call of a caller, as items that are requested together and complete together.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/event_fd.hpp"
#include "base/handle.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"
#include "client/item_memory.hpp"
#include "memory/new_pages.hpp"
#include "memory/region.hpp"
#include "memory/result_memory.hpp"
#include "protocol/wire.hpp"

namespace ucxstore::client {

class Operation;

// Completed operations on their way to an event loop, which waits for fd().
class CompletionQueue {
  public:
    int fd() const { return fd_.get(); }
    // There will be one more, for which push() then needs no memory; or there will not.
    void expect();
    void expect_no_more();
    void push(std::uint64_t id);
    std::vector<std::uint64_t> drain();
    // Notes that nobody will drain it any more.
    void abandon() { abandoned_ = true; }
    bool abandoned() const { return abandoned_; }

  private:
    const base::EventFd fd_;
    std::atomic<bool> abandoned_ = false;
    base::Mutex mutex_;
    std::vector<std::uint64_t> ids_ GUARDED_BY(mutex_);
    std::size_t expected_ GUARDED_BY(mutex_) = 0;  // and not drained
};

struct Item {
    std::string key;  // for messages, and for a value's header

    // A reply's bytes go to `memory`, or, where the caller gave none, to memory of our own.
    // A value's bytes come from `memory`.
    std::optional<Memory> memory;
    std::shared_ptr<memory::Region> owned;
    bool exact = false;  // whether a reply must fill `memory`

    protocol::Status status = protocol::Status::ok;
    bool done = false;
    bool elsewhere = false;  // whether other threads read its value now: it takes no reply then
    std::uint64_t value_size = 0;
    // The version that the value must have: the requested one, or that of the first reply.
    std::uint64_t version = protocol::kAnyVersion;
    std::uint64_t size = protocol::kAnySize;  // of the reply, once known
    std::uint64_t received = 0;               // of the reply
    protocol::Segments segments;              // of the reply
    std::uint64_t next = 0;                   // where the next segment of a value begins
};

// A request message, ready to be sent.
struct Outgoing {
    protocol::RequestHeader header;
    std::string body;
};

class Operation : public std::enable_shared_from_this<Operation> {
  public:
    Operation(std::vector<Item> items, double timeout_s, std::shared_ptr<CompletionQueue> queue);
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    ~Operation();

    const std::uint64_t id;
    std::vector<Item> items;
    std::vector<protocol::GetItem> gets;  // what is wanted of each item; nothing where it is no get
    std::vector<Outgoing> requests;  // of other operations; of a get only what must be requested
    enum class Kind { get, set, set_if_absent, call };
    Kind kind = Kind::call;
    // Whether its caller only reads what it gets without memory of its own, and soon lets go of it:
    // then that may be the server's own memory.
    bool borrows = false;
    // The text of the recipe that the server is to decode what it gets by; "" for values as they
    // are stored.
    std::string recipe;
    // The value of the only item of a set, in a sealed file (shared/sealed.hpp): where the link
    // takes files, it may go in place of the item's memory.
    base::Fd file;
    bool went_as_file = false;
    // What the memory of its items is a part of, where values may be mapped there.
    std::shared_ptr<memory::ResultMemory> result;
    bool sends_values() const { return kind == Kind::set || kind == Kind::set_if_absent; }
    bool removes = false;  // keys, or all of a prefix
    // Called before its caller knows that it is complete, unless it has failed; on any thread.
    std::function<void(const Operation&)> on_success;

    // The rest of this block runs on the progress thread.

    // Renews the deadline, as some of its bytes have come or gone.
    void moved(base::TimePoint now) { deadline_ = now + timeout_; }
    // The same, unless it has moved since.
    void moved_at_least(base::TimePoint then) { deadline_ = std::max(deadline_, then + timeout_); }
    base::TimePoint deadline() const { return deadline_; }
    // Whether it has values to send, and none of them has begun to be sent.
    bool waits_to_be_sent() const;
    // The key of an item that is not done, and a colon.
    std::string waiting_for() const;
    // What to say where that has passed.
    std::string late_text() const;
    // The time since it was made.
    base::Clock::duration age(base::TimePoint now) const { return now - made_; }
    // The bytes of the caller's memory, for all items together.
    std::uint64_t memory_bytes() const;
    // The same, and the bytes of values read without an output buffer.
    std::uint64_t bytes() const;

    // One item is finished; true when that was the last.
    bool item_done(Item& item);
    // Keeps the failure, if it is the first; its text is these, one after the other. Where there
    // is no memory for that, it is that.
    void fail(base::ErrorKind kind, std::initializer_list<std::string_view> text) noexcept;
    void fail(base::ErrorKind kind, std::string_view text) noexcept { fail(kind, {text}); }
    void fail(const base::Error& error) noexcept;
    // The same, of what was thrown.
    void fail(const std::exception& error, std::initializer_list<std::string_view> before) noexcept;
    bool failed() const { return error_.has_value(); }

    // What reads or writes the caller's memory right now: operations of UCX, and other threads.
    std::uint64_t active = 0;
    // About a core's share of the last cache. Where more than this is read, the first bytes are in
    // no cache any more when the last have come, so all are written past the caches.
    static constexpr std::uint64_t kLargeBytes = 8ull << 20;
    // Whether its items have more memory than that.
    bool large = false;
    // Of its memory, if it is large: for the thread that copies to it.
    memory::NewPages new_pages;
    // Its values that have begun to be sent, and are not answered yet.
    std::uint64_t unanswered = 0;
    // Whether its connection takes replies for it: see Conversation.
    bool registered = false;

    // Gives it back to the caller; needs no memory. To be called when `active` is 0; `leaked` where
    // the memory was not given back in time: the caller gets the failure, and the memory is never
    // freed.
    void complete(bool leaked = false);

    // Any thread.
    bool done() const;
    // Whether a thread waits for it, and not an event loop.
    bool for_a_thread() const { return queue_ == nullptr; }
    // Whether it is for an event loop that will see it complete.
    bool will_be_drained() const { return queue_ != nullptr && !queue_->abandoned(); }
    bool wait_for(std::chrono::milliseconds time);
    // Once done. Throws the failure. That of a change says whether the server may have made it.
    void check() const;
    bool leaked() const {
        const base::Lock lock(mutex_);
        return leaked_;
    }

  private:
    // Whether the server may have made the change that it was asked for, although there is no
    // reply.
    bool may_have_changed() const;

    const base::TimePoint made_ = base::Clock::now();
    const base::Clock::duration timeout_;
    const std::shared_ptr<CompletionQueue> queue_;
    base::TimePoint deadline_;
    std::size_t remaining_;
    std::optional<base::Error> error_;

    mutable base::Mutex mutex_;
    base::Condition completed_;
    bool done_ GUARDED_BY(mutex_) = false;
    bool leaked_ GUARDED_BY(mutex_) = false;
};

}  // namespace ucxstore::client
