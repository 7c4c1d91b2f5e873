#include "protocol/wire.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/status.hpp"

namespace ucxstore::protocol {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the wire format is little-endian and is written as it lies in memory");

constexpr std::uint8_t kRanges = 0;
constexpr std::uint8_t kBox = 1;
constexpr std::uint8_t kGathered = 2;

// numpy's own limit on the number of axes.
constexpr std::size_t kMaxDims = 64;

void put_u16(std::string& out, std::uint16_t number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void put_u32(std::string& out, std::uint32_t number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void put_box(std::string& out, const Layout& box) {
    if (box.offsets().empty()) {
        put_u8(out, kBox);
        put_u64(out, static_cast<std::uint64_t>(box.offset()));
    } else {
        put_u8(out, kGathered);
        put_u32(out, static_cast<std::uint32_t>(box.offsets().size()));
        out.append(reinterpret_cast<const char*>(box.offsets().data()),
                   box.offsets().size() * sizeof(std::int64_t));
    }
    put_u64(out, box.run());
    put_u8(out, static_cast<std::uint8_t>(box.dims().size()));
    for (const Dim& dim : box.dims()) {
        put_u64(out, dim.count);
        put_u64(out, static_cast<std::uint64_t>(dim.stride));
    }
}

void put_ranges(std::string& out, const std::vector<Range>& ranges) {
    put_u8(out, kRanges);
    put_u16(out, static_cast<std::uint16_t>(ranges.size()));
    for (const Range& range : ranges) {
        put_u8(out, static_cast<std::uint8_t>(range.kind));
        put_u64(out, range.a);
        put_u64(out, range.b);
    }
}

[[noreturn]] void broken(const char* what) {
    throw base::Error(base::ErrorKind::protocol, std::string("malformed message: ") + what);
}

}  // namespace

Span resolve(const Range& range, std::uint64_t size) {
    switch (range.kind) {
        case Range::Kind::range: {
            const std::uint64_t begin = std::min(range.a, size);
            return {begin, std::max(std::min(range.b, size), begin) - begin};
        }
        case Range::Kind::offset: {
            const std::uint64_t begin = std::min(range.a, size);
            return {begin, size - begin};
        }
        case Range::Kind::suffix: {
            const std::uint64_t length = std::min(range.a, size);
            return {size - length, length};
        }
    }
    return {0, 0};
}

bool Segments::add(std::uint64_t total, std::uint64_t segment, std::uint64_t offset,
                   std::uint64_t length) {
    if (!begun()) {
        if (total > kMaxValueBytes || segment < kMinSegmentBytes ||
            total / segment >= kMaxSegments) {
            return false;
        }
        total_ = total;
        segment_ = segment;
        count_ = std::max<std::uint64_t>(1, total / segment + (total % segment > 0 ? 1 : 0));
    }
    const std::uint64_t index = offset / segment_;
    return total == total_ && segment == segment_ && offset % segment_ == 0 && index < count_ &&
           length == std::min(segment_, total_ - offset) && is_new(index);
}

// Notes that a segment has come; false where it had come before.
bool Segments::is_new(std::uint64_t index) {
    if (index != in_order_) {
        return index > in_order_ && beyond_.insert(index).second;
    }
    ++in_order_;
    while (!beyond_.empty() && beyond_.erase(in_order_) > 0) {
        ++in_order_;
    }
    return true;
}

void put_u8(std::string& out, std::uint8_t number) { out.push_back(static_cast<char>(number)); }

void put_u64(std::string& out, std::uint64_t number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void put_string(std::string& out, std::string_view text) {
    put_u16(out, static_cast<std::uint16_t>(text.size()));
    out.append(text);
}

std::uint64_t segment_bytes(std::uint64_t pieces, std::uint64_t smallest) {
    std::uint64_t bytes = kSegmentBytes;
    while (pieces > kSegmentPieces && bytes > kMinSegmentBytes &&
           bytes / smallest > kSegmentPieces) {
        bytes /= 2;
    }
    return bytes;
}

const char* box_fault(std::span<const std::int64_t> offsets, std::uint64_t run,
                      std::span<const Dim> dims) {
    if (offsets.size() > kMaxOffsets) {
        return "more boxes than a request takes";
    }
    if (dims.size() > kMaxDims) {
        return "a box of too many axes";
    }
    if (std::ranges::any_of(offsets, [](std::int64_t offset) { return offset < 0; })) {
        return "a box that begins before its value";
    }
    std::uint64_t size = run;
    bool countable = !(run >> 62);
    for (const Dim& dim : dims) {
        std::int64_t reach = 0;
        countable = countable && dim.stride >= 0 &&
                    !__builtin_mul_overflow(size, dim.count, &size) && !(size >> 62) &&
                    !__builtin_mul_overflow(dim.stride, dim.count, &reach);
    }
    countable = countable && !__builtin_mul_overflow(size, offsets.size(), &size) && !(size >> 62);
    return countable ? nullptr : "a box larger than any memory";
}

void put_get_item(std::string& out, const GetItem& item) {
    put_string(out, item.key);
    put_u64(out, item.limit);
    put_u64(out, item.segment);
    put_u64(out, item.expected);
    put_u64(out, item.version);
    if (const auto* box = std::get_if<Layout>(&item.selection)) {
        put_box(out, *box);
    } else {
        put_ranges(out, std::get<std::vector<Range>>(item.selection));
    }
}

std::span<const std::byte> Reader::take(std::size_t size) {
    if (size > bytes_.size()) {
        broken("it ends too early");
    }
    const auto taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
}

std::uint8_t Reader::u8() { return static_cast<std::uint8_t>(take(1)[0]); }

std::uint16_t Reader::u16() {
    std::uint16_t number;
    std::memcpy(&number, take(sizeof(number)).data(), sizeof(number));
    return number;
}

std::uint32_t Reader::u32() {
    std::uint32_t number;
    std::memcpy(&number, take(sizeof(number)).data(), sizeof(number));
    return number;
}

std::uint64_t Reader::u64() {
    std::uint64_t number;
    std::memcpy(&number, take(sizeof(number)).data(), sizeof(number));
    return number;
}

std::string Reader::string() {
    const auto text = take(u16());
    return {reinterpret_cast<const char*>(text.data()), text.size()};
}

GetItem Reader::get_item() {
    GetItem item;
    item.key = string();
    item.limit = u64();
    item.segment = u64();
    if (item.segment < kMinSegmentBytes) {
        broken("segments too small");
    }
    item.expected = u64();
    item.version = u64();
    switch (u8()) {
        case kRanges:
            item.selection = ranges();
            return item;
        case kBox:
            item.selection = box({static_cast<std::int64_t>(u64())});
            return item;
        case kGathered:
            item.selection = box(offsets());
            return item;
        default:
            broken("an unknown kind of selection");
    }
}

std::vector<Range> Reader::ranges() {
    std::vector<Range> ranges(u16());
    for (Range& range : ranges) {
        const std::uint8_t kind = u8();
        if (kind < 1 || kind > 3) {
            broken("an unknown kind of byte range");
        }
        range = {static_cast<Range::Kind>(kind), u64(), 0};
        range.b = u64();
    }
    return ranges;
}

std::vector<std::int64_t> Reader::offsets() {
    const std::uint32_t count = u32();
    if (count == 0 || count > kMaxOffsets) {
        broken("no boxes, or too many");
    }
    const auto bytes = take(count * sizeof(std::int64_t));
    std::vector<std::int64_t> offsets(count);
    std::memcpy(offsets.data(), bytes.data(), bytes.size());
    return offsets;
}

Layout Reader::box(std::vector<std::int64_t> offsets) {
    const std::uint64_t run = u64();
    std::vector<Dim> dims(u8());
    for (Dim& dim : dims) {
        dim.count = u64();
        dim.stride = static_cast<std::int64_t>(u64());
    }
    if (const char* fault = box_fault(offsets, run, dims)) {
        broken(fault);
    }
    return Layout::gathered(std::move(offsets), run, dims);
}

ListQuery Reader::list_query() {
    ListQuery query;
    query.prefix = string();
    query.delimited = u8() != 0;
    query.cursor = string();
    return query;
}

}  // namespace ucxstore::protocol
