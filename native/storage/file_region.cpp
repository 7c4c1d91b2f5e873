#include "storage/file_region.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/status.hpp"
#include "files/value_file.hpp"

namespace ucxstore::storage {
namespace {

// Up to this size a value is read when it is found: it is sent in one message, mostly, and its
// descriptor can be closed.
constexpr std::uint64_t kSmall = 32 << 10;

// To read so many bytes that nobody wants costs as much as another call.
constexpr std::uint64_t kGap = 4 << 10;

// Of a buffer for short runs.
constexpr std::uint64_t kBuffer = 64 << 10;

std::uint64_t offset_of(const ucp_dt_iov_t& run) {
    return static_cast<std::uint64_t>(static_cast<std::byte*>(run.buffer) - file_origin());
}

void read_all(const base::Fd& file, std::uint64_t offset, std::span<std::byte> out,
              const std::string& key) {
    while (!out.empty()) {
        const ssize_t got = pread(file.get(), out.data(), out.size(), static_cast<off_t>(offset));
        if (got == 0) {
            throw base::Error(base::ErrorKind::storage,
                              "'" + key + "' was cut short while it was read");
        }
        if (got < 0) {
            if (errno != EINTR) {
                base::throw_errno("reading '" + key + "'");
            }
            continue;
        }
        offset += static_cast<std::uint64_t>(got);
        out = out.subspan(static_cast<std::size_t>(got));
    }
}

class FileRegion : public memory::Region {
  public:
    FileRegion(base::Fd file, std::uint64_t size, std::string key)
        : file_(std::move(file)), size_(size), key_(std::move(key)) {}

    std::byte* data() const override { return file_origin(); }
    std::uint64_t size() const override { return size_; }
    bool pieced() const override { return true; }
    std::uint64_t most_at_once() const override { return kReadAtOnce; }

    // One piece of memory for all of them, in their order.
    std::shared_ptr<const memory::Region> locate(std::vector<ucp_dt_iov_t>& pieces) const override {
        std::uint64_t bytes = 0;
        for (const ucp_dt_iov_t& piece : pieces) {
            bytes += piece.length;
        }
        auto memory = memory::allocate_region(bytes);
        read(pieces, memory->data());
        pieces.assign(1, {memory->data(), bytes});
        return memory;
    }

    bool unread() const override { return true; }
    void read(std::span<const ucp_dt_iov_t> pieces, std::byte* target) const override {
        while (!pieces.empty()) {
            const std::size_t count = together(pieces);
            target = read_together(pieces.first(count), target);
            pieces = pieces.subspan(count);
        }
    }

  private:
    // How many of these runs one call should read.
    static std::size_t together(std::span<const ucp_dt_iov_t> runs) {
        const std::uint64_t begin = offset_of(runs[0]);
        std::uint64_t end = begin + runs[0].length;
        std::size_t count = 1;
        while (count < runs.size()) {
            const std::uint64_t next = offset_of(runs[count]);
            const std::uint64_t next_end = next + runs[count].length;
            if (next < end || next > end + kGap || next_end > begin + kBuffer) {
                break;
            }
            end = next_end;
            ++count;
        }
        return count;
    }

    // Returns the end of what it has filled.
    std::byte* read_together(std::span<const ucp_dt_iov_t> runs, std::byte* out) const {
        const std::uint64_t begin = offset_of(runs.front());
        if (runs.size() == 1) {
            read_all(file_, begin, {out, runs[0].length}, key_);
            return out + runs[0].length;
        }
        std::array<std::byte, kBuffer> buffer;
        const std::uint64_t end = offset_of(runs.back()) + runs.back().length;
        read_all(file_, begin, {buffer.data(), end - begin}, key_);
        for (const ucp_dt_iov_t& run : runs) {
            std::memcpy(out, buffer.data() + (offset_of(run) - begin), run.length);
            out += run.length;
        }
        return out;
    }

    const base::Fd file_;
    const std::uint64_t size_;
    const std::string key_;
};

}  // namespace

// Offsets in the file count from an address that is never touched.
std::byte* file_origin() { return reinterpret_cast<std::byte*>(std::uintptr_t{1} << 48); }

std::shared_ptr<memory::Region> file_region(base::Fd file, std::uint64_t size,
                                            const std::string& key) {
    return std::make_shared<FileRegion>(std::move(file), size, key);
}

std::shared_ptr<const memory::Region> read_file(base::Fd file, const std::string& key) {
    struct stat about{};
    if (fstat(file.get(), &about) != 0) {
        base::throw_errno("looking at '" + key + "'");
    }
    const auto size = static_cast<std::uint64_t>(about.st_size);
    std::shared_ptr<memory::Region> region;
    if (size <= kSmall) {
        region = memory::allocate_region(size);
        read_all(file, 0, {region->data(), size}, key);
    } else {
        region = file_region(std::move(file), size, key);
    }
    region->set_version(files::version_of(about));
    if (files::is_recent(about)) {
        region->doubt_version();
    }
    return region;
}

}  // namespace ucxstore::storage
