// The address of a UCX worker, as UCX packs it (ucp/wireup/address.c, versions 1 and 2 of it). UCX
// believes what it is given: it reads as far as an address says, and aborts at what it does not
// know. So an address of a peer's is read here before UCX has it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ucx/network.hpp"

namespace ucxstore::ucx {

struct WorkerAddress {
    // A transport of the worker's, and how it is reached. The texts are bytes of the address.
    struct Transport {
        std::uint16_t name;  // a checksum of its name: see transport_name()
        std::string_view device;
        std::string_view interface;
    };

    std::uint64_t worker = 0;  // drawn at random
    std::vector<Transport> transports;

    // Reads all of `packed`, which must outlive what is returned. Throws Error(connect) that says
    // what is wrong with it.
    static WorkerAddress read(std::string_view packed);

    // Where the worker's TCP transport listens, but for the loopback.
    std::vector<End> ends() const;
    // The hosts of these.
    std::vector<Host> hosts() const;
};

// WorkerAddress::ends() of this address; none where it cannot be read, such as one of a later UCX.
std::vector<End> tcp_ends(std::string_view packed);

// The checksum that stands for the name of a transport.
std::uint16_t transport_name(std::string_view name);

// Throws Error(connect) where `theirs` is not what a worker like the one of the address `ours`
// has. Where that itself cannot be read, as with a later UCX or UCX_UNIFIED_MODE, only its first
// byte, the version, is compared.
void check_address(const std::string& ours, const std::string& theirs);

}  // namespace ucxstore::ucx
