// Committer: put values under their keys once their bytes are on the medium, away from the threads
// that serve.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/fair_queue.hpp"
#include "files/directory_root.hpp"
#include "storage/durability.hpp"

namespace ucxstore::storage {

// Called from any thread. Values that come while others are flushed are flushed together. Origins
// and sessions take turns (fair_queue.hpp).
class Committer {
  public:
    // A value in a file that has no key yet.
    class Change {
      public:
        virtual ~Change() = default;
        virtual std::uint64_t bytes() const = 0;
        // The directory whose entries it changes.
        virtual std::string directory() const = 0;
        // Has the kernel begin to write its bytes.
        virtual void start() noexcept = 0;
        // Returns once they are on the medium. Throws Error(storage).
        virtual void flush() = 0;
        // Gives it its key: a reader sees it from now on. Throws Error(storage).
        virtual void name() = 0;
    };
    // `failure` is "" for none. It keeps the change alive, and the root.
    using Done = std::function<void(std::string failure)>;

    // `root` must outlive it.
    Committer(const files::DirectoryRoot& root, Durability durability, bool never_here = false);
    Committer(const Committer&) = delete;
    Committer& operator=(const Committer&) = delete;
    ~Committer();

    Durability durability() const;
    // Makes the change on another thread, and calls `done` there; or here, where very many wait,
    // unless it is `never_here`.
    void add(Change& change, Done done, const base::Whose& whose = {});
    // Makes the change here.
    void make(Change& change);
    // The entries of these directories were removed: returns once that is on the medium, where that
    // is wanted. Throws Error(storage).
    void removed_from(std::set<std::string> directories);

  private:
    struct State;
    const std::shared_ptr<State> state_;  // threads hold it, too
};

}  // namespace ucxstore::storage
