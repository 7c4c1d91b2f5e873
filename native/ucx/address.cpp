#include "ucx/address.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/status.hpp"

namespace ucxstore::ucx {
namespace {

// The first byte: the version of the format, and flags (version 1) or UCX's release (version 2).
constexpr unsigned kVersion1 = 0;
constexpr unsigned kVersion2 = 1;
constexpr unsigned kHalf = 0x0f;
constexpr unsigned kHalfBits = 4;

constexpr unsigned kHasName = 1;
constexpr unsigned kHasWorker = 2;
constexpr unsigned kHasClient = 4;

constexpr unsigned kNothing = 0xff;  // in place of the first device

constexpr unsigned kLast = 0x80;
constexpr unsigned kNoTransports = 0x80;  // of a device
constexpr unsigned kDeviceIndex = 0x7f;
constexpr unsigned kPaths = 0x40;
constexpr unsigned kSystemDevice = 0x20;
constexpr unsigned kDeviceLength = 0x1f;
constexpr unsigned kEndpoints = 0x40;
constexpr unsigned kInterfaceLength = 0x3f;

// What UCX has room for.
constexpr std::size_t kMostTransports = 128;
constexpr unsigned kMostDomains = 64;

// A device's index has two flags more where the release is before 1.19. The release is the last
// device of version 1, by its number modulo 16.
constexpr unsigned kLegacy = 0x60;

[[noreturn]] void refuse(const std::string& what) {
    throw base::Error(base::ErrorKind::connect, "the peer's UCX address is malformed: " + what);
}

class AddressReader {
  public:
    explicit AddressReader(std::string_view packed) : rest_(packed) {}

    std::string_view bytes(std::size_t size) {
        if (size > rest_.size()) {
            refuse("it ends too early");
        }
        const std::string_view taken = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return taken;
    }
    template <typename Number>
    Number number() {
        Number found;
        std::memcpy(&found, bytes(sizeof(found)).data(), sizeof(found));
        return found;
    }
    unsigned byte() { return number<std::uint8_t>(); }
    // A byte's `mask`; in version 2, another byte follows where all of that is set.
    unsigned extended(unsigned first, unsigned mask, unsigned version) {
        const unsigned value = first & mask;
        return version == kVersion2 && value == mask ? byte() : value;
    }
    bool at_end() const { return rest_.empty(); }
    unsigned next() const { return rest_.empty() ? 0 : static_cast<std::uint8_t>(rest_[0]); }

  private:
    std::string_view rest_;
};

// What a transport can do, and how fast. UCX computes with it.
void read_attributes(AddressReader& reader, unsigned version) {
    if (version == kVersion2) {
        reader.bytes(8);
        return;
    }
    const auto overhead = reader.number<float>();
    const auto bandwidth = reader.number<float>();
    const auto latency = reader.number<float>();
    reader.number<std::uint32_t>();
    if (!std::isfinite(overhead) || !std::isfinite(latency) || !std::isfinite(bandwidth) ||
        overhead < 0 || latency < 0 || bandwidth == 0) {
        refuse("its speeds are not numbers");
    }
}

void read_header(AddressReader& reader, unsigned& version, WorkerAddress& address) {
    const unsigned first = reader.byte();
    version = first & kHalf;
    if (version != kVersion1 && version != kVersion2) {
        refuse("it is of an unknown version");
    }
    const unsigned flags = version == kVersion1 ? first >> kHalfBits : reader.byte();
    // In version 1 it is there whatever the flags say.
    if (version == kVersion1 || (flags & kHasWorker) != 0) {
        address.worker = reader.number<std::uint64_t>();
    }
    if ((flags & kHasClient) != 0) {
        reader.number<std::uint64_t>();
    }
    if ((flags & kHasName) != 0) {
        reader.bytes(reader.byte());
    }
}

// Whether it was the last of the device's.
bool read_transport(AddressReader& reader, unsigned version, std::string_view device,
                    WorkerAddress& address) {
    if (address.transports.size() == kMostTransports) {
        refuse("it has too many transports");
    }
    const auto name = reader.number<std::uint16_t>();
    read_attributes(reader, version);
    const unsigned flags = reader.byte();
    if ((flags & kEndpoints) != 0) {
        refuse("it is of an endpoint");
    }
    const unsigned length = reader.extended(flags, kInterfaceLength, version);
    address.transports.push_back({name, device, reader.bytes(length)});
    return (flags & kLast) != 0;
}

// Whether it was the last one.
bool read_device(AddressReader& reader, unsigned version, unsigned& greatest,
                 WorkerAddress& address) {
    const unsigned first = reader.byte();
    const bool has_transports = (first & kNoTransports) == 0;
    const unsigned index = reader.extended(first, kDeviceIndex, version);
    const unsigned flags = reader.byte();
    const bool is_last = (flags & kLast) != 0;
    const unsigned length = reader.extended(flags, kDeviceLength, version);
    if ((flags & kPaths) != 0 && reader.byte() == 0) {
        refuse("a device of it has no path");
    }
    if ((flags & kSystemDevice) != 0) {
        reader.byte();
    }
    const std::string_view device = reader.bytes(length);
    if (has_transports) {
        greatest = std::max(greatest, index);
        while (!read_transport(reader, version, device, address)) {
        }
    } else if (is_last && version == kVersion1 && (index & kHalf) <= (18 & kHalf)) {
        greatest &= ~kLegacy;
    }
    return is_last;
}

bool has_tcp_device(std::string_view device) {
    // Flags (1: the loopback), the family, and an address, or what tells hosts and their network
    // namespaces apart.
    if (device.size() < 2 || static_cast<unsigned char>(device[0]) > 1) {
        return false;
    }
    const auto family = static_cast<unsigned char>(device[1]);
    const std::size_t size = device[0] == 1 ? 16 : (family == AF_INET ? 4 : 16);
    return (family == AF_INET || family == AF_INET6) && device.size() == 2 + size;
}

constexpr std::size_t kPort = 2;
constexpr std::size_t kSegment = 8;

void check_transport(const WorkerAddress::Transport& ours, const WorkerAddress::Transport& theirs) {
    if (ours.name == transport_name("tcp")) {
        if (!has_tcp_device(theirs.device) || theirs.interface.size() != kPort) {
            refuse("it has no address of a TCP socket where there should be one");
        }
    } else if (ours.name == transport_name("posix")) {
        if (theirs.device.size() < kSegment || theirs.interface.size() < kSegment) {
            refuse("it has no segment of shared memory where there should be one");
        }
    }
}

}  // namespace

std::vector<End> tcp_ends(std::string_view packed) {
    try {
        return WorkerAddress::read(packed).ends();
    } catch (const base::Error&) {
        return {};
    }
}

std::uint16_t transport_name(std::string_view name) {
    unsigned crc = 0xffff;
    for (const char letter : name) {
        crc ^= static_cast<unsigned char>(letter);
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x8408u : 0u);
        }
    }
    return static_cast<std::uint16_t>(~crc);
}

WorkerAddress WorkerAddress::read(std::string_view packed) {
    WorkerAddress address;
    AddressReader reader(packed);
    unsigned version = 0;
    read_header(reader, version, address);
    if (reader.next() == kNothing) {
        refuse("it has no transports");
    }
    unsigned greatest = 0;
    while (!read_device(reader, version, greatest, address)) {
    }
    if (!reader.at_end()) {
        refuse("it goes on behind its end");
    }
    if (address.transports.empty()) {
        refuse("it has no transports");
    }
    if (greatest >= kMostDomains) {
        refuse("it has a device of an impossible number");
    }
    return address;
}

std::vector<End> WorkerAddress::ends() const {
    std::vector<End> found;
    for (const Transport& one : transports) {
        if (one.name == transport_name("tcp") && has_tcp_device(one.device) && one.device[0] == 0 &&
            one.interface.size() == kPort) {
            if (const auto host = Host::of(one.device.substr(2))) {
                std::uint16_t port = 0;
                std::memcpy(&port, one.interface.data(), kPort);
                found.push_back({*host, ntohs(port)});
            }
        }
    }
    return found;
}

std::vector<Host> WorkerAddress::hosts() const {
    std::vector<Host> found;
    for (const End& end : ends()) {
        found.push_back(end.host);
    }
    return found;
}

void check_address(const std::string& ours, const std::string& theirs) {
    if (theirs.size() < 2 || theirs[0] != ours[0]) {
        throw base::Error(
            base::ErrorKind::connect,
            "the peer's UCX address is malformed, or of a UCX too different from this one");
    }
    WorkerAddress own;
    try {
        own = WorkerAddress::read(ours);
    } catch (const base::Error&) {
        return;
    }
    const WorkerAddress peer = WorkerAddress::read(theirs);
    if (peer.worker == own.worker) {
        refuse("it is this process's own");
    }
    for (const auto& transport : peer.transports) {
        const auto same =
            std::ranges::find(own.transports, transport.name, &WorkerAddress::Transport::name);
        if (same != own.transports.end()) {
            check_transport(*same, transport);
        }
    }
}

}  // namespace ucxstore::ucx
