// Decoder: what decodes stored values. The server's is Python's, which has the codecs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "memory/region.hpp"

namespace ucxstore::cache {

// Bytes of a stored value in one piece of memory, which the owner has.
struct StoredChunk {
    std::span<const std::byte> bytes;
    std::shared_ptr<const memory::Region> owner;
};

// How the chunks of an array are decoded, once that was understood. Any thread.
class Recipe {
  public:
    Recipe() = default;
    Recipe(const Recipe&) = delete;
    Recipe& operator=(const Recipe&) = delete;
    virtual ~Recipe() = default;
    // What the text is named by: the digest in the names of decoded values.
    virtual const std::string& digest() const = 0;
    // The bytes of a decoded chunk: exactly so many, whatever is stored.
    virtual std::uint64_t bytes() const = 0;
    // Decodes a stored chunk into memory of that size. Throws std::exception where it is broken.
    virtual void decode(const StoredChunk& stored,
                        const std::shared_ptr<memory::Region>& out) const = 0;
};

class Decoder {
  public:
    Decoder() = default;
    Decoder(const Decoder&) = delete;
    Decoder& operator=(const Decoder&) = delete;
    virtual ~Decoder() = default;
    // Reads a recipe, which a client has sent. Throws std::exception where it cannot be decoded by.
    virtual std::shared_ptr<const Recipe> prepare(const std::string& text) = 0;
};

}  // namespace ucxstore::cache
