#include "protocol/keys.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <system_error>

namespace ucxstore::protocol {
namespace {

constexpr std::array<std::string_view, 5> kMetadata{"zarr.json", ".zarray", ".zgroup", ".zattrs",
                                                    ".zmetadata"};

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

bool is_reserved(std::string_view path) {
    return path.starts_with(kReservedFolder) ||
           path == kReservedFolder.substr(0, kReservedFolder.size() - 1);
}

bool segment_is_fine(std::string_view segment) {
    return !segment.empty() && segment != "." && segment != "..";
}

// One in decimal, as it is written in only one way; nullopt for anything else.
std::optional<std::uint64_t> number(std::string_view text) {
    std::uint64_t found = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found);
    const bool is_whole = error == std::errc() && end == text.data() + text.size();
    return is_whole && std::to_string(found) == text ? std::optional(found) : std::nullopt;
}

}  // namespace

std::optional<std::string_view> space_of(std::string_view key) {
    if (!key.starts_with(kScratchFolder)) {
        return std::nullopt;
    }
    key.remove_prefix(kScratchFolder.size());
    return key.substr(0, key.find('/'));
}

std::string_view folder_of_space(std::string_view key) {
    const auto name = space_of(key);
    return name ? key.substr(0, kScratchFolder.size() + name->size() + 1) : std::string_view();
}

bool is_space_name(std::string_view name) {
    if (name.ends_with(kReadOnce)) {
        name.remove_suffix(kReadOnce.size());
    }
    return name.size() == kSpaceNameBytes && std::ranges::all_of(name, [](char one) {
               return (one >= '0' && one <= '9') || (one >= 'a' && one <= 'f');
           });
}

bool is_decoded(std::string_view key) { return key.starts_with(kDecodedFolder); }

std::optional<DecodedName> decoded_name(std::string_view key) {
    if (!is_decoded(key)) {
        return std::nullopt;
    }
    key.remove_prefix(kDecodedFolder.size());
    const std::size_t first = key.find('/');
    const std::size_t second = first == std::string_view::npos ? first : key.find('/', first + 1);
    if (first != kDigestBytes || second == std::string_view::npos) {
        return std::nullopt;
    }
    DecodedName name{key.substr(0, first), {}, key.substr(second + 1)};
    const std::string_view bytes = key.substr(first + 1, second - first - 1);
    if (bytes == "all") {
        return name;
    }
    const std::size_t dash = bytes.find('-');
    const auto begin =
        dash == std::string_view::npos ? std::nullopt : number(bytes.substr(0, dash));
    const auto end = begin ? number(bytes.substr(dash + 1)) : std::nullopt;
    if (!end || *begin > *end) {
        return std::nullopt;
    }
    name.bytes = {false, *begin, *end};
    return name;
}

std::optional<std::string_view> shelf_of(std::string_view key) {
    return is_decoded(key) ? std::optional(kDecodedShelf) : space_of(key);
}

bool is_shelf_name(std::string_view name) { return name == kDecodedShelf || is_space_name(name); }

bool is_read_once(std::string_view key) {
    const auto name = space_of(key);
    return name && name->ends_with(kReadOnce) && !is_metadata(key);
}

bool is_metadata(std::string_view key) {
    return std::ranges::find(kMetadata, key.substr(key.rfind('/') + 1)) != kMetadata.end();
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
    if (is_reserved(key)) {
        return "is reserved for the servers themselves";
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

}  // namespace ucxstore::protocol
