#include "storage/spilling.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "files/own_files.hpp"
#include "storage/file_region.hpp"
#include "storage/file_writer.hpp"
#include "storage/quota.hpp"
#include "threads/reclaimer.hpp"

namespace ucxstore::storage {
namespace {

constexpr const char* kSuffix = ".ucxstore-spilled";

// Smaller values stay: what is kept of a file takes about as much.
constexpr std::uint64_t kLeastSpilled = 4096;

}  // namespace

// Values that are in use may outlive the storage, and so this is shared with them.
struct Spilling::Folder {
    Folder(const std::string& directory, std::string refusal_hint)
        : files(directory, kSuffix), hint(std::move(refusal_hint)) {}

    [[noreturn]] void refuse(std::uint64_t size, int error) const {
        throw NoRoomError("no room for " + std::to_string(size) +
                          " bytes: memory is full, and so they were to go to " + files.directory() +
                          ": " + std::generic_category().message(error) + hint);
    }

    files::OwnFiles files;
    const std::string hint;
    threads::Reclaimer reclaimer;
    std::atomic<std::uint64_t> values = 0;
    std::atomic<std::uint64_t> bytes = 0;
};

// A value in a file, which goes with it. It is read by who may wait for the disk.
class Spilling::SpilledValue : public memory::Region {
  public:
    // Throws NoRoomError where the file cannot be made.
    SpilledValue(std::shared_ptr<Folder> folder, std::string key, std::uint64_t size)
        : folder_(std::move(folder)),
          key_(std::move(key)),
          size_(size),
          number_(folder_->files.new_number()),
          file_(folder_->files.create(number_)) {
        if (!file_) {
            folder_->refuse(size_, errno);
        }
    }
    SpilledValue(const SpilledValue&) = delete;
    SpilledValue& operator=(const SpilledValue&) = delete;
    ~SpilledValue() override {
        if (whole_) {
            --folder_->values;
            folder_->bytes -= size_;
        }
        file_.reset();
        folder_->files.remove(number_, &folder_->reclaimer);
    }

    std::byte* data() const override { return file_origin(); }
    std::uint64_t size() const override { return size_; }
    bool pieced() const override { return true; }
    std::uint64_t most_at_once() const override { return kReadAtOnce; }
    bool unread() const override { return true; }
    bool waits() const override { return true; }
    std::shared_ptr<const memory::Region> locate(std::vector<ucp_dt_iov_t>& pieces) const override {
        return in_file()->locate(pieces);
    }
    void read(std::span<const ucp_dt_iov_t> pieces, std::byte* target) const override {
        in_file()->read(pieces, target);
    }

    // The file, until close().
    const base::Fd& file() const { return file_; }
    // After the last byte was written, with that failure or 0. Throws NoRoomError where it is not
    // whole: some file systems say so only now.
    void close(int failure) {
        if (::close(file_.release()) != 0 && failure == 0) {
            failure = errno;
        }
        if (failure != 0) {
            folder_->refuse(size_, failure);
        }
        whole_ = true;
        ++folder_->values;
        folder_->bytes += size_;
    }

  private:
    // Opened for each read: there may be more of them than a process may have descriptors.
    std::shared_ptr<memory::Region> in_file() const {
        base::Fd file = folder_->files.open(number_);
        if (!file) {
            base::throw_errno("reading '" + key_ + "' in " + folder_->files.directory());
        }
        return file_region(std::move(file), size_, key_);
    }

    const std::shared_ptr<Folder> folder_;
    const std::string key_;
    const std::uint64_t size_;
    const std::uint64_t number_;
    base::Fd file_;
    bool whole_ = false;
};

class Spilling::ArrivingFile : public Incoming {
  public:
    ArrivingFile(const std::shared_ptr<Folder>& folder, const std::string& key, std::uint64_t size,
                 Put put)
        : put_(std::move(put)),
          value_(std::make_shared<SpilledValue>(folder, key, size)),
          writer_(value_->file(), size, folder->reclaimer) {}

    void write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept override {
        writer_.write(offset, bytes);
    }
    bool commit(bool if_absent) override {
        value_->close(writer_.finish());
        return put_(value_, if_absent);
    }

  private:
    const Put put_;
    const std::shared_ptr<SpilledValue> value_;
    FileWriter writer_;
};

Spilling::Spilling(const std::string& directory, std::string hint)
    : folder_(std::make_shared<Folder>(directory, std::move(hint))) {}

bool Spilling::takes(const std::string&, std::uint64_t size) const { return size >= kLeastSpilled; }

std::shared_ptr<memory::Region> Spilling::stand_in(const std::string& key,
                                                   const memory::Region& value) {
    auto spilled = std::make_shared<SpilledValue>(folder_, key, value.size());
    FileWriter writer(spilled->file(), value.size(), folder_->reclaimer);
    writer.write(0, {value.data(), value.size()});
    spilled->close(writer.finish());
    spilled->set_version(value.version());
    return spilled;
}

std::unique_ptr<Incoming> Spilling::receive(const std::string& key, std::uint64_t size, Put put) {
    return std::make_unique<ArrivingFile>(folder_, key, size, std::move(put));
}

void Spilling::leave() noexcept try {
    folder_->files.remove_all();
} catch (const std::exception&) {  // they are removed by the next one
}

void Spilling::count(base::MemoryCounts& counts) const {
    counts.spilled = folder_->values;
    counts.spilled_bytes = folder_->bytes;
}

}  // namespace ucxstore::storage
