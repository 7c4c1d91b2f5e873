// Storage: the interface to where a server's values are. All progress threads call it at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/handle.hpp"
#include "base/region.hpp"

namespace ucxstore {

namespace shared {
class Shelf;
}

// A value on its way in. Destroyed without commit() it leaves no trace.
class Incoming {
  public:
    virtual ~Incoming() = default;
    // The memory for all of it; nullptr where it has none, and its bytes go through write().
    virtual std::byte* data() { return nullptr; }
    // Copies bytes of it that begin at `offset`; each comes once. A failure shows in commit().
    virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
        std::ranges::copy(bytes, data() + offset);
    }
    // Puts the whole value under its key: a reader sees the old value or this one. With `if_absent`
    // only if the key has none; returns false if it has.
    virtual bool commit(bool if_absent) = 0;
};

struct Measure {
    std::uint64_t keys = 0;
    std::uint64_t bytes = 0;
};

struct Page {
    std::vector<std::string> names;
    std::string cursor;  // where the next page begins; "" for the last page
};

// Keys have passed wire::key_fault() before they come here. A failure is Error(storage).
class Storage {
  public:
    virtual ~Storage() = default;
    // The value, pinned; nullptr where the key has none.
    virtual std::shared_ptr<const Region> find(const std::string& key) = 0;
    virtual std::optional<std::uint64_t> size(const std::string& key) = 0;
    // Memory for a value of `size` bytes that is to be put under `key`.
    virtual std::unique_ptr<Incoming> receive(const std::string& key, std::uint64_t size) = 0;
    // A value of `size` bytes that has come in a file (shared/sealed.hpp), and is only to be
    // committed; nullptr where this storage does not keep it there.
    virtual std::unique_ptr<Incoming> adopt(const std::string&, std::uint64_t, Fd) {
        return nullptr;
    }
    // Does nothing for a missing key.
    virtual void remove(const std::string& key) = 0;
    // Removes every key that begins with `prefix`, which is "" or ends in "/". Returns how many.
    virtual std::uint64_t remove_prefix(const std::string& prefix) = 0;
    // Counts the same keys, and the bytes of their values; `any`: stops at the first.
    virtual Measure measure(const std::string& prefix, bool any) = 0;
    // Names from `cursor` on ("": from the start), at most `max_bytes` of them, but at least one:
    // keys that begin with `prefix`; `delimited`: what follows it up to the next "/", each once.
    virtual Page list(const std::string& prefix, bool delimited, const std::string& cursor,
                      std::size_t max_bytes) = 0;
    // Where its values are kept for other processes to see; nullptr for nowhere.
    virtual std::shared_ptr<shared::Shelf> shelf() const { return nullptr; }
    // The directory that its values are files of, for other processes to look in; -1 for none.
    virtual int root() const { return -1; }
};

}  // namespace ucxstore
