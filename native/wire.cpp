#include "wire.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "status.hpp"

namespace ucxstore::wire {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the wire format is little-endian and is written as it lies in memory");

constexpr std::uint8_t kRanges = 0;
constexpr std::uint8_t kBox = 1;

// numpy's own limit on the number of axes.
constexpr std::size_t kMaxDims = 64;

void put_u16(std::string& out, std::uint16_t number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

[[noreturn]] void broken(const char* what) {
    throw Error(ErrorKind::protocol, std::string("malformed message: ") + what);
}

bool is_utf8(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        const std::size_t length = lead < 0x80   ? 1
                                   : lead < 0xC2 ? 0
                                   : lead < 0xE0 ? 2
                                   : lead < 0xF0 ? 3
                                   : lead < 0xF5 ? 4
                                                 : 0;
        if (length == 0 || i + length > text.size()) {
            return false;
        }
        for (std::size_t k = 1; k < length; ++k) {
            const auto byte = static_cast<unsigned char>(text[i + k]);
            // The first continuation byte excludes overlong forms, surrogates, and beyond U+10FFFF.
            const unsigned char low = k > 1          ? 0x80
                                      : lead == 0xE0 ? 0xA0
                                      : lead == 0xF0 ? 0x90
                                                     : 0x80;
            const unsigned char high = k > 1          ? 0xBF
                                       : lead == 0xED ? 0x9F
                                       : lead == 0xF4 ? 0x8F
                                                      : 0xBF;
            if (byte < low || byte > high) {
                return false;
            }
        }
        i += length;
    }
    return true;
}

bool segment_is_fine(std::string_view segment) {
    return !segment.empty() && segment != "." && segment != "..";
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
        seen_.resize(std::max<std::uint64_t>(1, (total + segment - 1) / segment));
    }
    const std::uint64_t index = offset / segment_;
    if (total != total_ || segment != segment_ || offset % segment_ != 0 || index >= seen_.size() ||
        length != std::min(segment_, total_ - offset) || seen_[index]) {
        return false;
    }
    seen_[index] = true;
    return true;
}

std::optional<std::string> key_fault(std::string_view key) {
    if (key.empty()) {
        return "is empty";
    }
    if (key.size() > kMaxKeyBytes) {
        return "is longer than " + std::to_string(kMaxKeyBytes) + " bytes";
    }
    if (key.find('\0') != std::string_view::npos) {
        return "has a NUL in it";
    }
    if (!is_utf8(key)) {
        return "is not UTF-8";
    }
    while (true) {
        const std::size_t slash = key.find('/');
        if (!segment_is_fine(key.substr(0, slash))) {
            return "has an empty, '.' or '..' part";
        }
        if (slash == std::string_view::npos) {
            return std::nullopt;
        }
        key.remove_prefix(slash + 1);
    }
}

std::optional<std::string> prefix_fault(std::string_view prefix, bool whole) {
    if (prefix.empty()) {
        return std::nullopt;
    }
    if (whole && !prefix.ends_with('/')) {
        return "does not end in '/'";
    }
    if (prefix.size() > kMaxKeyBytes || prefix.find('\0') != std::string_view::npos) {
        return "can begin no key";
    }
    if (!is_utf8(prefix)) {
        return "is not UTF-8";
    }
    const std::size_t slash = prefix.rfind('/');
    return slash == std::string_view::npos ? std::nullopt : key_fault(prefix.substr(0, slash));
}

void put_u8(std::string& out, std::uint8_t number) { out.push_back(static_cast<char>(number)); }

void put_u64(std::string& out, std::uint64_t number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void put_string(std::string& out, std::string_view text) {
    put_u16(out, static_cast<std::uint16_t>(text.size()));
    out.append(text);
}

std::uint64_t segment_bytes(const Layout& layout) {
    std::uint64_t bytes = kSegmentBytes;
    while (bytes > kMinSegmentBytes && !layout.dims().empty() &&
           bytes / layout.run() > kSegmentPieces) {
        bytes /= 2;
    }
    return bytes;
}

void put_get_item(std::string& out, const GetItem& item) {
    put_string(out, item.key);
    put_u64(out, item.limit);
    put_u64(out, item.segment);
    put_u64(out, item.expected);
    if (const auto* box = std::get_if<Layout>(&item.selection)) {
        put_u8(out, kBox);
        put_u64(out, static_cast<std::uint64_t>(box->offset()));
        put_u64(out, box->run());
        put_u8(out, static_cast<std::uint8_t>(box->dims().size()));
        for (const Dim& dim : box->dims()) {
            put_u64(out, dim.count);
            put_u64(out, static_cast<std::uint64_t>(dim.stride));
        }
        return;
    }
    const auto& ranges = std::get<std::vector<Range>>(item.selection);
    put_u8(out, kRanges);
    put_u16(out, static_cast<std::uint16_t>(ranges.size()));
    for (const Range& range : ranges) {
        put_u8(out, static_cast<std::uint8_t>(range.kind));
        put_u64(out, range.a);
        put_u64(out, range.b);
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
    switch (u8()) {
        case kRanges: {
            std::vector<Range> ranges(u16());
            for (Range& range : ranges) {
                const std::uint8_t kind = u8();
                if (kind < 1 || kind > 3) {
                    broken("an unknown kind of byte range");
                }
                range = {static_cast<Range::Kind>(kind), u64(), 0};
                range.b = u64();
            }
            item.selection = std::move(ranges);
            return item;
        }
        case kBox: {
            const auto offset = static_cast<std::int64_t>(u64());
            const std::uint64_t run = u64();
            if (offset < 0 || run >> 62) {
                broken("a box larger than any memory");
            }
            std::vector<Dim> dims(u8());
            if (dims.size() > kMaxDims) {
                broken("a box of too many axes");
            }
            // The bytes of a box must be countable, whatever a peer makes up.
            std::uint64_t size = run;
            for (Dim& dim : dims) {
                dim.count = u64();
                dim.stride = static_cast<std::int64_t>(u64());
                std::int64_t reach = 0;
                if (dim.stride < 0 || __builtin_mul_overflow(size, dim.count, &size) ||
                    size >> 62 || __builtin_mul_overflow(dim.stride, dim.count, &reach)) {
                    broken("a box larger than any memory");
                }
            }
            item.selection = Layout::strided(offset, run, dims);
            return item;
        }
        default:
            broken("an unknown kind of selection");
    }
}

ListQuery Reader::list_query() {
    ListQuery query;
    query.prefix = string();
    query.delimited = u8() != 0;
    query.cursor = string();
    return query;
}

}  // namespace ucxstore::wire
