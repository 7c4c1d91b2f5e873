// An arena of a server of this host, as a client sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/handle.hpp"
#include "base/status.hpp"
#include "local/file_mapping.hpp"

namespace ucxstore::local_client {

class SeenArena {
  public:
    // `bytes`: all of the file. It is kept open only if pages are to be mapped from it, too. Throws
    // Error(protocol).
    SeenArena(base::Fd file, std::uint64_t bytes, std::uint64_t limit, bool stays_open)
        : memory_(file, local::FileMapping::Access::read, limit), bytes_(bytes) {
        if (bytes != memory_.size()) {
            throw base::Error(base::ErrorKind::protocol,
                              "an arena that is not as large as it should be");
        }
        if (stays_open) {
            file_ = std::move(file);
        }
    }

    const std::byte* data() const { return memory_.data(); }
    std::uint64_t size() const { return bytes_; }
    // -1 if it is not open.
    int file() const { return file_.get(); }

  private:
    const local::FileMapping memory_;
    const std::uint64_t bytes_;
    base::Fd file_;
};

}  // namespace ucxstore::local_client
