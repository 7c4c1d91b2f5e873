#include "cache/blocks.hpp"

#include <algorithm>
#include <utility>

#include "base/status.hpp"

namespace ucxstore::cache {
namespace {

// An address without memory, which offsets in a PiecedRegion count from.
std::byte* nowhere() { return reinterpret_cast<std::byte*>(std::uintptr_t{4096}); }

// For a layout of more runs than this, every block is wanted.
constexpr std::uint64_t kMostRuns = 64 * 1024;

std::vector<protocol::Span> spans_of(const protocol::Selection& wanted, std::uint64_t size) {
    std::vector<protocol::Span> spans;
    if (const auto* ranges = std::get_if<std::vector<protocol::Range>>(&wanted)) {
        for (const protocol::Range& range : *ranges) {
            spans.push_back(protocol::resolve(range, size));
        }
        if (ranges->empty()) {
            spans.push_back({0, size});
        }
        return spans;
    }
    const auto& box = std::get<protocol::Layout>(wanted);
    if (!box.fits(size)) {
        return spans;
    }
    if (box.run_count() > kMostRuns) {
        return {{0, size}};
    }
    std::vector<ucp_dt_iov_t> pieces;
    box.pieces(nowhere(), 0, box.size(), pieces);
    for (const ucp_dt_iov_t& piece : pieces) {
        const auto begin = static_cast<std::byte*>(piece.buffer) - nowhere();
        spans.push_back({static_cast<std::uint64_t>(begin), piece.length});
    }
    return spans;
}

}  // namespace

std::vector<Run> blocks_of(const protocol::Selection& wanted, std::uint64_t size,
                           std::uint64_t block) {
    std::vector<Run> runs;
    for (const protocol::Span& span : spans_of(wanted, size)) {
        if (span.length > 0) {
            const std::uint64_t first = span.begin / block;
            runs.push_back({first, (span.begin + span.length - 1) / block - first + 1});
        }
    }
    std::ranges::sort(runs, {}, &Run::first);
    std::vector<Run> joined;
    for (const Run& run : runs) {
        if (joined.empty() || joined.back().first + joined.back().count < run.first) {
            joined.push_back(run);
        } else {
            Run& last = joined.back();
            last.count = std::max(last.first + last.count, run.first + run.count) - last.first;
        }
    }
    return joined;
}

PiecedRegion::PiecedRegion(const ObjectInfo& info, std::vector<Part> parts)
    : size_(info.size), parts_(std::move(parts)) {
    std::ranges::sort(parts_, {}, &Part::begin);
    set_version(info.version);
}

std::byte* PiecedRegion::data() const { return nowhere(); }

const PiecedRegion::Part& PiecedRegion::at(std::uint64_t offset) const {
    auto part = std::ranges::upper_bound(parts_, offset, {}, &Part::begin);
    while (part != parts_.begin()) {
        --part;
        if (offset - part->begin < part->bytes->size()) {
            return *part;
        }
    }
    throw base::Error(base::ErrorKind::storage, "a block of the value is missing");
}

std::shared_ptr<const memory::Region> PiecedRegion::locate(
    std::vector<ucp_dt_iov_t>& pieces) const {
    std::vector<ucp_dt_iov_t> located;
    for (const ucp_dt_iov_t& piece : pieces) {
        auto begin = static_cast<std::uint64_t>(static_cast<std::byte*>(piece.buffer) - nowhere());
        const std::uint64_t end = begin + piece.length;
        while (begin < end) {
            const Part& part = at(begin);
            const std::uint64_t skip = begin - part.begin;
            const std::uint64_t length = std::min(end - begin, part.bytes->size() - skip);
            located.push_back({part.bytes->data() + skip, length});
            begin += length;
        }
    }
    pieces.swap(located);
    return nullptr;
}

}  // namespace ucxstore::cache
