// Storage: the interface to where a server's values are. All progress threads call it at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/counters.hpp"
#include "base/handle.hpp"
#include "base/mandate.hpp"
#include "base/mutex.hpp"
#include "memory/region.hpp"

namespace ucxstore::shared {
class Shelf;
}

namespace ucxstore::storage {

class Quota;

// Whether the client still waits for a change; called on the thread that makes it, just before.
// `surely`: look also at what has come from the client, and was not read so far.
using Wanted = std::function<bool(bool surely)>;

// The same of a removal: throws where nobody wants it. What it returns is kept until the key is
// removed, and nobody stops wanting it meanwhile.
using Consent = std::function<std::unique_lock<base::Mutex>(bool surely)>;

// A value on its way in. Destroyed without commit() it leaves no trace.
class Incoming {
  public:
    virtual ~Incoming() = default;
    // To be called before bytes of it are written, for as many: memory is taken as they come, and
    // not as they were announced. Throws Error(storage) where there is none left.
    virtual void expect(std::uint64_t) {}
    // The memory for all of it; nullptr where it has none, and its bytes go through write().
    virtual std::byte* data() { return nullptr; }
    // The region that this memory is, and that the value will be; nullptr for none.
    virtual const memory::Region* region() const { return nullptr; }
    // Copies bytes of it that begin at `offset`; each comes once. A failure shows in commit().
    virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
        std::ranges::copy(bytes, data() + offset);
    }
    // Puts the whole value under its key: a reader sees the old value or this one. With `if_absent`
    // only if the key has none; returns false if it has.
    virtual bool commit(bool if_absent) = 0;
    // Whether that waits, for a disk or for other servers. Then commit_later() does the same on
    // another thread, unless nobody wants it any more, or the mandate does not allow it any more,
    // and calls `done` there, which keeps this alive; `failure` is "" for none.
    virtual bool waits() const { return false; }
    using Done = std::function<void(bool written, std::string failure)>;
    virtual void commit_later(bool, Wanted, Done, base::MandateRef) {}
};

struct Page {
    std::vector<std::string> names;
    std::string cursor;                     // where the next page begins; "" for the last page
    std::vector<std::uint64_t> sizes = {};  // of their values, where the storage has them at hand
    // Folders that the server's user may not open: the names below them are not in the listing.
    std::vector<std::string> unreadable = {};
};

// Runs now and then while a call takes long. What it throws ends the call.
using Pace = std::function<void()>;

// Keys have passed protocol::key_fault() before they come here. A failure is Error(storage).
class Storage : public std::enable_shared_from_this<Storage> {
  public:
    virtual ~Storage() = default;
    // The value, pinned; nullptr where the key has none.
    virtual std::shared_ptr<const memory::Region> find(const std::string& key) = 0;
    virtual std::optional<std::uint64_t> size(const std::string& key) = 0;
    // Memory for a value of `size` bytes that is to be put under `key`.
    virtual std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size) = 0;
    // A value of `size` bytes that has come in a file (shared/sealed.hpp), and is only to be
    // committed; nullptr where this storage does not keep it there.
    virtual std::unique_ptr<Incoming> adopt(const std::string&, std::uint64_t, base::Fd&&) {
        return nullptr;
    }
    // Does nothing for a missing key.
    virtual void remove(const std::string& key, const Consent& consent = {}) = 0;
    // A client has read the whole value of this version; it is freed where that is how this
    // storage's values end.
    virtual void was_read(const std::string&, std::uint64_t) {}
    // To be called once keys were removed, before anybody is told so: returns once that is on the
    // medium, where that is wanted. Throws Error(storage).
    virtual void removed(const std::vector<std::string>&) {}
    // Whether that or remove() waits, for a disk or for other servers, and so is for no progress
    // thread.
    virtual bool removing_waits() const { return false; }
    // Names from `cursor` on ("": from the start), at most `max_bytes` of them, but at least one:
    // keys that begin with `prefix`; `delimited`: what follows it up to the next "/", each once.
    // The unreadable folders count among them. It may take long, and so is for no progress thread;
    // the memory that it takes is bounded.
    virtual Page list(const std::string& prefix, bool delimited, const std::string& cursor,
                      std::size_t max_bytes, const Pace& pace = {}) = 0;
    // Its values, and the memory that they take; all 0 where they are not in memory.
    virtual base::MemoryCounts memory() const { return {}; }
    // Where its values are kept for other processes to see; nullptr for nowhere.
    virtual std::shared_ptr<shared::Shelf> shelf() const { return nullptr; }
    // The directory that its values are files of, for other processes to look in; -1 for none.
    virtual int root() const { return -1; }
    // The limit of the memory that it has its values in; nullptr for none.
    virtual std::shared_ptr<Quota> memory_limit() const { return nullptr; }
};

}  // namespace ucxstore::storage
