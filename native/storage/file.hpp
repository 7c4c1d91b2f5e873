// Values on their way into files, which have no name until they are whole.
#pragma once

#include "base/handle.hpp"
#include "files/directory_root.hpp"
#include "files/writers.hpp"
#include "storage/committer.hpp"
#include "storage/storage.hpp"
#include "threads/reclaimer.hpp"

namespace ucxstore::storage {

// What a directory storage has for its files.
struct Files {
    const files::DirectoryRoot& root;
    const files::Writers& writers;
    threads::Reclaimer& reclaimer;  // frees the files that are replaced
    Committer& committer;
};

// Writes a value into the file `key`.
std::unique_ptr<Incoming> receive_file(const Files& files, const std::string& key,
                                       std::uint64_t size);

}  // namespace ucxstore::storage
