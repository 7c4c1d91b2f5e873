// Memory in which a client's values come to a server of its host: the client writes, and the server
// copies to where they stay.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/handle.hpp"
#include "local/file_mapping.hpp"
#include "shared/extents.hpp"

namespace ucxstore::local_client {

// On one thread.
class Upload {
  public:
    // Throws Error(memory), Error(resource).
    Upload();

    // For the server: it maps it for reading.
    int descriptor() const { return file_.get(); }
    std::byte* data() const { return memory_->data(); }

    // Room for so many bytes; nullopt where there is none until some is given back.
    std::optional<std::uint64_t> take(std::uint64_t bytes);
    // Throws Error(protocol) for room that was not taken.
    void give(std::uint64_t place, std::uint64_t bytes);

  private:
    base::Fd file_;
    std::optional<local::FileMapping> memory_;
    std::optional<shared::Extents> pages_;
    std::map<std::uint64_t, std::uint64_t> taken_;  // pages by their first
};

}  // namespace ucxstore::local_client
