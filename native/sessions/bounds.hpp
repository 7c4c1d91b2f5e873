// What a client may do: what its grant opens (ucxstore/base/grants.py), or everything without one.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ucxstore::sessions {

// What a client may do besides what it may do to values. By the numbers of ucxstore/base/grants.py.
enum class Role : std::uint8_t {
    client,  // nothing
    op,      // an operator: operates the server, and opens no values
    owner,   // operates the server, too
};

// The faults are texts that follow on a key, for a reply; nullopt where there is none.
class Bounds {
  public:
    using Fault = std::optional<std::string>;
    // The server's own clock: an end is a point in time, and not a length.
    using WallClock = std::chrono::system_clock;

    // All of an owner.
    Bounds() = default;
    // `prefix` ends in "/", or is "" for all keys. `expires` is in seconds since 1970.
    Bounds(std::string prefix, bool read_only, std::optional<std::int64_t> expires,
           Role role = Role::client);

    // Why the client may not read what a key has, or list or measure what a prefix has.
    Fault read_fault(std::string_view key) const { return narrow_ ? find_fault(key) : Fault(); }
    // Why it may not change it.
    Fault write_fault(std::string_view key) const {
        return narrow_ ? find_write_fault(key) : Fault();
    }
    // Why it may do nothing any more.
    Fault expiry_fault() const;
    // Why it may not read the server's counters, which tell of all clients.
    Fault stats_fault() const { return role_ == Role::op ? expiry_fault() : read_fault(""); }
    // Why it may not operate the server.
    Fault operate_fault() const;
    // Whether it may be let see memory, or a directory, where all values of a folder lie: what was
    // shown cannot be taken back at the end, and what else lies there cannot be hidden.
    bool may_see(std::string_view folder) const {
        return !narrow_ || (!expires_ && role_ != Role::op && folder.starts_with(prefix_));
    }
    // How long until so much after the end; 0 from then on. nullopt for ever.
    std::optional<WallClock::duration> left(WallClock::duration after) const;

  private:
    Fault find_fault(std::string_view key) const;
    Fault find_write_fault(std::string_view key) const;
    std::string text() const;

    std::string prefix_;
    bool read_only_ = false;
    std::optional<WallClock::time_point> expires_;
    Role role_ = Role::owner;
    bool narrow_ = false;  // whether any of these four forbids any value
};

// A client whose session is to begin: its name for messages, what it may do, and its origin
// (places.hpp).
struct Admitted {
    // NOLINTBEGIN(google-explicit-constructor): a name alone is of a client that may do everything
    Admitted(std::string name) : peer(std::move(name)) {}
    Admitted(const char* name) : peer(name) {}
    // NOLINTEND(google-explicit-constructor)
    Admitted(std::string name, Bounds allowed, std::string from = {})
        : peer(std::move(name)), bounds(std::move(allowed)), origin(std::move(from)) {}

    std::string peer;
    Bounds bounds;
    std::string origin;
};

}  // namespace ucxstore::sessions
