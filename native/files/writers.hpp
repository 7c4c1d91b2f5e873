// Who may write to a directory, and one change of a key at a time: locks of the kernel, which end
// with the process that has them.
#pragma once

#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/handle.hpp"
#include "base/mutex.hpp"
#include "files/directory_root.hpp"

namespace ucxstore::files {

// The lock of a directory whose inode cannot be locked for all hosts, and what else is kept there:
// ucxstore/server/identity.py.
inline constexpr const char* kOwnFolder = ".ucxstore";

// Called from any thread.
class Writers {
  public:
    enum class Mode {
        none,     // nobody writes here
        alone,    // no other server may write to the directory
        several,  // others may that say so, too
    };
    static Mode parse(std::string_view text);
    // So long a change waits for another one, and a server for another one that ends.
    static constexpr std::chrono::seconds kPatience{5};

    // Throws Error(storage) where another server has the directory, or it cannot be locked.
    Writers(const std::string& path, Mode mode, base::Clock::duration patience = kPatience);
    Writers(const Writers&) = delete;
    Writers& operator=(const Writers&) = delete;
    ~Writers();

    Mode mode() const { return mode_; }
    bool several() const { return mode_ == Mode::several; }

    // Leaves the directory to others, once no change is under way: later ones fail. Where one is
    // stuck, the directory is kept.
    void leave(base::Clock::duration patience = kPatience);

    // A lock of a key, until it goes.
    class Lock {
      public:
        Lock() = default;
        Lock(Lock&&) = default;
        Lock& operator=(Lock&&) = delete;
        ~Lock();

      private:
        friend class Writers;
        std::unique_lock<base::TimedMutex> here_;  // against other threads
        base::Fd there_;                           // against other processes
    };
    // Waits until `until` for the lock of a key in the directory `parent`. Throws Error(storage).
    Lock lock(const std::string& key, const base::Fd& parent, base::TimePoint until) const;

  private:
    void claim_directory(const std::string& path, base::TimePoint until);
    void claim_file(const std::string& path, base::TimePoint until);
    void give_up_claim();

    const Mode mode_;
    base::Fd claim_;  // has the claim
    base::Fd file_;   // the lock file, where directories cannot be locked
    mutable std::array<base::TimedMutex, 256> here_;
    bool left_ = false;  // written with all of these
};

// Locks a file that is not finished, for as long as somebody has it open. False where somebody else
// has: then its writer lives.
bool lock_unfinished(int file);

}  // namespace ucxstore::files
