// Where a server's values live. Called from every progress thread of the server at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/region.hpp"

namespace ucxstore {

// A value on its way in. Destroyed without commit() it leaves no trace.
class Incoming {
  public:
    virtual ~Incoming() = default;
    virtual std::byte* data() = 0;
    // This part is about to be filled: a chance to bring its pages in at once.
    virtual void prepare(std::uint64_t, std::uint64_t) {}
    // Puts the whole value under its key, at once: a reader sees the old one or this one. With
    // `if_absent` only where the key has none; false where it has.
    virtual bool commit(bool if_absent) = 0;
};

struct Measure {
    std::uint64_t keys = 0;
    std::uint64_t bytes = 0;
};

struct Page {
    std::vector<std::string> names;
    std::string cursor;  // where the next page begins; "" where this was the last
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
    // A missing key is fine.
    virtual void remove(const std::string& key) = 0;
    // Everything whose key begins with `prefix`, which is "" or ends in "/". How many keys.
    virtual std::uint64_t remove_prefix(const std::string& prefix) = 0;
    // The same set, measured; `any`: stop at the first.
    virtual Measure measure(const std::string& prefix, bool any) = 0;
    // Names from `cursor` on ("": from the start), `max_bytes` of them at the most (but one at
    // least): whole keys that begin with `prefix`; `delimited`: the parts right under it, once
    // each.
    virtual Page list(const std::string& prefix, bool delimited, const std::string& cursor,
                      std::size_t max_bytes) = 0;
};

}  // namespace ucxstore
