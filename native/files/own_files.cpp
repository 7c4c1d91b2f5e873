#include "files/own_files.hpp"

#include <fcntl.h>

#include <exception>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "base/status.hpp"

namespace ucxstore::files {
namespace {

std::string new_run() {
    std::random_device random;
    return std::to_string(random()) + std::to_string(random());
}

}  // namespace

OwnFiles::OwnFiles(const std::string& directory, std::string suffix)
    : path_(directory),
      suffix_(std::move(suffix)),
      run_(new_run()),
      fd_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!fd_) {
        base::throw_errno("opening " + directory);
    }
    remove_all();
}

std::string OwnFiles::name_of(std::uint64_t number) const {
    return run_ + "-" + std::to_string(number) + suffix_;
}

base::Fd OwnFiles::create(std::uint64_t number) const {
    return base::Fd(openat(fd_.get(), name_of(number).c_str(),
                           O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
}

base::Fd OwnFiles::open(std::uint64_t number) const {
    return base::Fd(openat(fd_.get(), name_of(number).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
}

void OwnFiles::remove(std::uint64_t number, threads::Reclaimer* reclaimer) const noexcept try {
    if (getpid() != owner_) {
        return;
    }
    const std::string name = name_of(number);
    base::Fd removed = reclaimer == nullptr ? base::Fd() : threads::open_to_reclaim(fd_, name);
    unlinkat(fd_.get(), name.c_str(), 0);
    if (removed) {
        reclaimer->reclaim(std::move(removed));
    }
} catch (const std::exception&) {  // no memory: it stays until the directory is emptied
}

void OwnFiles::remove_all() const {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
        if (entry.path().filename().string().ends_with(suffix_)) {
            std::filesystem::remove(entry.path(), error);
        }
    }
    if (error) {
        throw base::Error(base::ErrorKind::storage, "emptying " + path_ + ": " + error.message());
    }
}

}  // namespace ucxstore::files
