// Reads what is wanted of a value from its file, straight to where it is wanted.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/operation.hpp"
#include "files/directory_root.hpp"
#include "memory/copier.hpp"
#include "memory/new_pages.hpp"
#include "protocol/selecting.hpp"

namespace ucxstore::local_client {

// By read(), and not through a mapping: whoever cuts a file that is mapped ends its readers by
// SIGBUS. What `wanted` and `item` refer to must outlive it. On one thread; others may read other
// bytes with readers of their own.
class FileReader {
  public:
    using Wait = files::DirectoryRoot::Wait;
    enum class Outcome {
        read,
        later,   // it would have had to wait for the disk, and was not to
        failed,  // the file is shorter than it was, or cannot be read
    };

    // Into the item's memory, or that of our own which it has.
    FileReader(const base::Fd& file, const protocol::Selected& wanted, const client::Item& item,
               memory::Write how, Wait wait);

    // Reads bytes [begin, begin + length) of what is wanted. Throws std::bad_alloc.
    Outcome read(std::uint64_t begin, std::uint64_t length);

    // Whether the file has what is wanted in large runs, or in the order in which it is wanted.
    // Else to read it takes a call for each of many short runs.
    static bool suits(const protocol::Selected& wanted);

  private:
    // These return false where outcome_ is another than `read`.
    bool read_run(std::uint64_t offset, std::uint64_t at, std::uint64_t length);
    bool read_spans(std::uint64_t begin, std::uint64_t length);
    bool read_runs(std::uint64_t begin, std::uint64_t length);
    bool read_listed(std::uint64_t at, std::uint64_t length, std::span<const ucp_dt_iov_t> runs);
    bool fetch(std::uint64_t offset, std::span<ucp_dt_iov_t> pieces);
    void list_target(std::uint64_t at, std::uint64_t length);
    std::byte* buffer();

    const int file_;
    const protocol::Selected& wanted_;
    const client::Item& item_;
    const memory::Write how_;
    const Wait wait_;
    const bool straight_;  // into the target, and not by way of a small buffer
    memory::NewPages new_pages_;
    Outcome outcome_ = Outcome::read;
    std::vector<ucp_dt_iov_t> target_;
    std::unique_ptr<std::byte[]> buffer_;
};

}  // namespace ucxstore::local_client
