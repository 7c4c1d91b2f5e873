// Memory into which a program computes a value, in a file of its own: a server of the host can take
// the file over, in place of a copy of the value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/handle.hpp"
#include "base/mutex.hpp"
#include "client/link.hpp"
#include "memory/region.hpp"

namespace ucxstore::local_client {

// The memory stays where it is, and keeps its bytes, for as long as this lives: arrays refer to it.
// But from some moment on what is written there is this process's own, and not in the file. Any
// thread.
class Allocation : public memory::Region {
  public:
    // All zeros; each page is there, so that no later write fails for want of memory. Throws
    // Error(memory), Error(resource).
    Allocation(std::string_view key, std::uint64_t size);
    Allocation(const Allocation&) = delete;
    Allocation& operator=(const Allocation&) = delete;
    ~Allocation() override;
    // nullptr where there is no memory for it: then any other does.
    static std::shared_ptr<Allocation> make(std::string_view key, std::uint64_t size);

    std::byte* data() const override { return data_; }
    std::uint64_t size() const override { return size_; }
    const std::string& key() const { return key_; }

    // Ends the writing to the file, and returns a descriptor of it for a server; the same file each
    // time. None where somebody else may still write to it, such as a forked child that has it
    // mapped: then the value is what is in the memory.
    base::Fd seal();
    // Has the only value of a set, which is in this memory, go as the file where the link takes
    // files. Throws Error(argument) where it is another value.
    void send_by(const client::Link& link, client::Operation& set);
    // The file is not needed any more: to be called when the value is in its store, or dropped, and
    // in a forked child, which is not to write where its parent does. Does not wait.
    void let_go();

  private:
    bool part() REQUIRES(mutex_);

    const std::string key_;
    const std::uint64_t size_;
    const std::uint64_t bytes_;  // of the file
    std::byte* data_ = nullptr;
    base::Mutex mutex_;
    base::Fd file_ GUARDED_BY(mutex_);      // until it is sealed, or not needed
    base::Fd readable_ GUARDED_BY(mutex_);  // since it is sealed
    bool parted_ GUARDED_BY(mutex_) = false;
};

}  // namespace ucxstore::local_client
