#include "memory/copier.hpp"

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace ucxstore::memory {
namespace {

#ifdef __SSE2__

constexpr std::size_t kLine = 64;

// Whole lines go past the caches; what is left at either end is written as usual.
void copy_past_caches(std::byte* target, const std::byte* source, std::size_t length) {
    const std::size_t head = std::min(-reinterpret_cast<std::uintptr_t>(target) % kLine, length);
    std::memcpy(target, source, head);
    target += head;
    source += head;
    length -= head;
    for (; length >= kLine; length -= kLine, target += kLine, source += kLine) {
        const auto* const from = reinterpret_cast<const __m128i*>(source);
        auto* const to = reinterpret_cast<__m128i*>(target);
        const __m128i first = _mm_loadu_si128(from);
        const __m128i second = _mm_loadu_si128(from + 1);
        const __m128i third = _mm_loadu_si128(from + 2);
        const __m128i fourth = _mm_loadu_si128(from + 3);
        _mm_stream_si128(to, first);
        _mm_stream_si128(to + 1, second);
        _mm_stream_si128(to + 2, third);
        _mm_stream_si128(to + 3, fourth);
    }
    std::memcpy(target, source, length);
}

// Such writes are not ordered with others, so they end before the message is completed.
void settle() { _mm_sfence(); }

#else

void copy_past_caches(std::byte* target, const std::byte* source, std::size_t length) {
    std::memcpy(target, source, length);
}

void settle() {}

#endif

// How many pieces ahead are prefetched: short ones lie on cache lines of their own.
constexpr std::size_t kAhead = 16;

void copy(std::byte* target, const std::byte* source, std::size_t length, Write how) {
    if (how == Write::past_caches) {
        copy_past_caches(target, source, length);
    } else {
        std::memcpy(target, source, length);
    }
}

}  // namespace

Copier::Copier(std::span<const ucp_dt_iov_t> pieces) : pieces_(pieces) {
    for (const ucp_dt_iov_t& piece : pieces) {
        size_ += piece.length;
    }
}

std::span<std::byte> Copier::at(std::uint64_t offset) {
    if (offset < begin_) {
        piece_ = 0;
        begin_ = 0;
    }
    while (offset >= begin_ + pieces_[piece_].length) {
        begin_ += pieces_[piece_].length;
        ++piece_;
    }
    const std::span<std::byte> piece(static_cast<std::byte*>(pieces_[piece_].buffer),
                                     pieces_[piece_].length);
    return piece.subspan(offset - begin_);
}

void Copier::scatter(std::uint64_t offset, const std::byte* source, std::uint64_t length,
                     Write how) {
    length = std::min(length, size_ - std::min(offset, size_));
    while (length > 0) {
        const std::span<std::byte> target = at(offset);
        const std::uint64_t part = std::min<std::uint64_t>(length, target.size());
        copy(target.data(), source, part, how);
        offset += part;
        source += part;
        length -= part;
    }
    if (how == Write::past_caches) {
        settle();
    }
}

void Copier::gather(std::uint64_t offset, std::byte* target, std::uint64_t length, Write how) {
    while (length > 0) {
        const std::span<std::byte> source = at(offset);
        if (piece_ + kAhead < pieces_.size()) {
            __builtin_prefetch(pieces_[piece_ + kAhead].buffer);
        }
        const std::uint64_t part = std::min<std::uint64_t>(length, source.size());
        copy(target, source.data(), part, how);
        offset += part;
        target += part;
        length -= part;
    }
    if (how == Write::past_caches) {
        settle();
    }
}

}  // namespace ucxstore::memory
