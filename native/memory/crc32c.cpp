#include "memory/crc32c.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define UCXSTORE_CRC_TARGET [[gnu::target("sse4.2,crc32")]]
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define UCXSTORE_CRC_TARGET [[gnu::target("+crc")]]
#endif

namespace ucxstore::memory {
namespace {

// Bits are reflected: the highest power of x is bit 0.
constexpr std::uint32_t kPolynomial = 0x82F63B78;
constexpr std::uint32_t kOne = 1u << 31;

constexpr std::uint32_t times_x(std::uint32_t a) {
    return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0);
}

constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
    std::uint32_t sum = 0;
    for (std::uint32_t bit = kOne; bit != 0; bit >>= 1, b = times_x(b)) {
        sum ^= (a & bit) != 0 ? b : 0;
    }
    return sum;
}

// x to the powers 8, 16, 32...: what shifts a checksum by 1, 2, 4... bytes.
constexpr auto kShifts = [] {
    std::array<std::uint32_t, 64> shifts{};
    std::uint32_t shift = kOne;
    for (int i = 0; i < 8; ++i) {
        shift = times_x(shift);
    }
    for (std::uint32_t& one : shifts) {
        one = shift;
        shift = product(shift, shift);
    }
    return shifts;
}();

// What shifts a checksum by so many bytes: the checksum of the same bytes with as many zeros
// behind, but for the inversions at both ends, which cancel out where two checksums are joined.
constexpr std::uint32_t shift_by(std::uint64_t bytes) {
    std::uint32_t shift = kOne;
    for (int i = 0; bytes != 0; ++i, bytes >>= 1) {
        if ((bytes & 1) != 0) {
            shift = product(shift, kShifts[i]);
        }
    }
    return shift;
}

using Table = std::array<std::uint32_t, 256>;

// Tables of eight bytes at once: [i] is for the byte that i others follow.
constexpr auto kTables = [] {
    std::array<Table, 8> tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int i = 0; i < 8; ++i) {
            crc = times_x(crc);
        }
        tables[0][byte] = crc;
    }
    for (std::size_t i = 1; i < tables.size(); ++i) {
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t crc = tables[i - 1][byte];
            tables[i][byte] = (crc >> 8) ^ tables[0][crc & 0xFF];
        }
    }
    return tables;
}();

std::uint64_t load(const std::byte* bytes) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof(word));
    return word;
}

// Both extend a checksum without the inversions at its ends.
std::uint32_t extend_by_table(std::uint32_t crc, const std::byte* bytes, std::size_t length) {
    for (; length >= 8; length -= 8, bytes += 8) {
        const std::uint64_t word = load(bytes) ^ crc;
        crc = 0;
        for (std::size_t i = 0; i < 8; ++i) {
            crc ^= kTables[7 - i][(word >> (8 * i)) & 0xFF];
        }
    }
    for (; length > 0; --length, ++bytes) {
        crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint8_t>(*bytes)) & 0xFF];
    }
    return crc;
}

#ifdef UCXSTORE_CRC_TARGET

// Shifts checksums by one number of bytes, in four steps.
class Shift {
  public:
    explicit Shift(std::uint64_t bytes) {
        const std::uint32_t shift = shift_by(bytes);
        for (std::uint32_t i = 0; i < 4; ++i) {
            for (std::uint32_t byte = 0; byte < 256; ++byte) {
                tables_[i][byte] = product(shift, byte << (8 * i));
            }
        }
    }
    std::uint32_t operator()(std::uint32_t crc) const {
        return tables_[0][crc & 0xFF] ^ tables_[1][(crc >> 8) & 0xFF] ^
               tables_[2][(crc >> 16) & 0xFF] ^ tables_[3][crc >> 24];
    }

  private:
    std::array<Table, 4> tables_;
};

#if defined(__x86_64__)

UCXSTORE_CRC_TARGET inline std::uint64_t step(std::uint64_t crc, const std::byte* bytes) {
    return _mm_crc32_u64(crc, load(bytes));
}
UCXSTORE_CRC_TARGET inline std::uint64_t step_byte(std::uint64_t crc, std::byte byte) {
    return _mm_crc32_u8(static_cast<std::uint32_t>(crc), static_cast<std::uint8_t>(byte));
}
bool has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }

#else

UCXSTORE_CRC_TARGET inline std::uint64_t step(std::uint64_t crc, const std::byte* bytes) {
    return __crc32cd(static_cast<std::uint32_t>(crc), load(bytes));
}
UCXSTORE_CRC_TARGET inline std::uint64_t step_byte(std::uint64_t crc, std::byte byte) {
    return __crc32cb(static_cast<std::uint32_t>(crc), static_cast<std::uint8_t>(byte));
}
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

#endif

// The instruction takes three cycles, and one can begin in each: so three stretches are summed at
// once, and joined. `stretch` is a multiple of 8.
UCXSTORE_CRC_TARGET void three_at_once(std::uint64_t& crc, const std::byte*& bytes,
                                       std::size_t& length, std::size_t stretch,
                                       const Shift& shift) {
    while (length >= 3 * stretch) {
        std::uint64_t second = 0;
        std::uint64_t third = 0;
        for (const std::byte* const end = bytes + stretch; bytes < end; bytes += 8) {
            crc = step(crc, bytes);
            second = step(second, bytes + stretch);
            third = step(third, bytes + 2 * stretch);
        }
        crc = shift(static_cast<std::uint32_t>(crc)) ^ second;
        crc = shift(static_cast<std::uint32_t>(crc)) ^ third;
        bytes += 2 * stretch;
        length -= 3 * stretch;
    }
}

constexpr std::size_t kLong = 4096;
constexpr std::size_t kShort = 256;

const Shift kByLong(kLong);
const Shift kByShort(kShort);

UCXSTORE_CRC_TARGET std::uint32_t extend_by_instruction(std::uint32_t before,
                                                        const std::byte* bytes,
                                                        std::size_t length) {
    std::uint64_t crc = before;
    if (length >= 3 * kShort) {
        three_at_once(crc, bytes, length, kLong, kByLong);
        three_at_once(crc, bytes, length, kShort, kByShort);
    }
    for (; length >= 8; length -= 8, bytes += 8) {
        crc = step(crc, bytes);
    }
    for (; length > 0; --length, ++bytes) {
        crc = step_byte(crc, *bytes);
    }
    return static_cast<std::uint32_t>(crc);
}

#else

bool has_instruction() { return false; }
std::uint32_t extend_by_instruction(std::uint32_t crc, const std::byte* bytes, std::size_t length) {
    return extend_by_table(crc, bytes, length);
}

#endif

const bool kHasInstruction = has_instruction();

#if defined(__x86_64__)

// x to this power, as a factor of carry-less products: reflected in 64 bits.
constexpr std::int64_t power_of_x(int exponent) {
    std::uint32_t power = kOne;
    for (int i = 0; i < exponent; ++i) {
        power = times_x(power);
    }
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(power) << 32);
}

// Newer processors multiply polynomials in vectors, and read far ahead meanwhile. By that (Gopal et
// al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009) text
// is folded onto what follows it, which leaves its checksum as it is, until little is left.
constexpr std::size_t kFolded = 256;
constexpr std::size_t kLeastFolded = 4 * kFolded;

[[gnu::target("avx512f,vpclmulqdq")]] void fold(std::uint32_t& crc, const std::byte*& bytes,
                                                std::size_t& length) {
    constexpr std::size_t kVector = sizeof(__m512i);
    constexpr int kBits = 8 * kFolded;
    constexpr std::size_t kSums = kFolded / kVector;
    __m512i sums[kSums];  // NOLINT(modernize-avoid-c-arrays): std::array drops its alignment
    for (std::size_t i = 0; i < kSums; ++i) {
        sums[i] = _mm512_loadu_si512(bytes + i * kVector);
    }
    sums[0] =
        _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
    constexpr std::int64_t low = power_of_x(kBits + 63);
    constexpr std::int64_t high = power_of_x(kBits - 1);
    const __m512i factors = _mm512_set_epi64(high, low, high, low, high, low, high, low);
    bytes += kFolded;
    length -= kFolded;
    for (; length >= kFolded; bytes += kFolded, length -= kFolded) {
        for (std::size_t i = 0; i < kSums; ++i) {
            constexpr int kXorOfThree = 0x96;
            sums[i] =
                _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sums[i], factors, 0x00),
                                          _mm512_clmulepi64_epi128(sums[i], factors, 0x11),
                                          _mm512_loadu_si512(bytes + i * kVector), kXorOfThree);
        }
    }
    std::array<std::byte, kFolded> left;
    for (std::size_t i = 0; i < kSums; ++i) {
        _mm512_storeu_si512(left.data() + i * kVector, sums[i]);
    }
    crc = extend_by_instruction(0, left.data(), left.size());
}

const bool kFolds = kHasInstruction && __builtin_cpu_supports("avx512f") != 0 &&
                    __builtin_cpu_supports("vpclmulqdq") != 0;

#else

constexpr bool kFolds = false;
constexpr std::size_t kLeastFolded = 0;
void fold(std::uint32_t&, const std::byte*&, std::size_t&) {}

#endif

std::uint32_t extend_without_folding(std::uint32_t crc, const std::byte* bytes,
                                     std::size_t length) {
    return kHasInstruction ? extend_by_instruction(crc, bytes, length)
                           : extend_by_table(crc, bytes, length);
}

std::uint32_t extend(std::uint32_t crc, std::span<const std::byte> text) {
    const std::byte* bytes = text.data();
    std::size_t length = text.size();
    if (kFolds && length >= kLeastFolded) {
        fold(crc, bytes, length);
    }
    return extend_without_folding(crc, bytes, length);
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
    return ~extend(~before, bytes);
}

std::uint32_t crc32c(std::span<const ucp_dt_iov_t> pieces) {
    std::uint32_t crc = 0;
    for (const ucp_dt_iov_t& piece : pieces) {
        crc = crc32c({static_cast<const std::byte*>(piece.buffer), piece.length}, crc);
    }
    return crc;
}

std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, std::uint32_t before) {
    return ~extend_without_folding(~before, bytes.data(), bytes.size());
}

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before) {
    return ~extend_by_table(~before, bytes.data(), bytes.size());
}

std::uint32_t join_crc32c(std::uint32_t first, std::uint32_t second, std::uint64_t second_length) {
    return first == 0 ? second : product(shift_by(second_length), first) ^ second;
}

void RunningSum::add(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (offset == next_) {
        in_order_ = crc32c(bytes, in_order_);
        next_ += bytes.size();
    } else {
        others_ ^= join_crc32c(crc32c(bytes), 0, total_ - offset - bytes.size());
    }
}

}  // namespace ucxstore::memory
