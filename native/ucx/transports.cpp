#include "ucx/transports.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace ucxstore::ucx {
namespace {

// UCX's names for transports of shared memory: what may be used, by itself and among others, and
// the others.
constexpr std::array<const char*, 4> kWithPosixAmong = {"posix", "mm", "sm", "shm"};
constexpr std::array<const char*, 4> kOthers = {"sysv", "cma", "knem", "xpmem"};

// All but these, as UCX takes it.
constexpr std::string_view kWithout = "posix,sysv,cma,knem,xpmem";
constexpr std::string_view kWithPosix = "sysv,cma,knem,xpmem";

std::vector<std::string> names_in(const std::string& list) {
    std::vector<std::string> names;
    std::size_t begin = 0;
    while (begin <= list.size()) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        names.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return names;
}

// Without what UCX lets stand around it: a backslash ("as it is"), and what it is for.
std::string_view bare(std::string_view name) {
    name = name.substr(std::min(name.find_first_not_of(" \\"), name.size()));
    return name.substr(0, name.find_first_of(" :"));
}

// UCX takes patterns.
bool names_any(const std::string& name, std::span<const char* const> transports) {
    const std::string pattern(bare(name));
    return std::ranges::any_of(transports, [&](const char* transport) {
        return fnmatch(pattern.c_str(), transport, 0) == 0;
    });
}

bool has_posix(const std::string& name) { return names_any(name, kWithPosixAmong); }
bool is_shared(const std::string& name) { return has_posix(name) || names_any(name, kOthers); }
bool is_all(const std::string& name) { return bare(name) == "all" || bare(name) == "*"; }

std::string joined(const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) {
        list += (list.empty() ? "" : ",") + name;
    }
    return list;
}

}  // namespace

std::string transports(const std::optional<std::string>& wanted, SharedMemory memory) {
    const bool shares = memory == SharedMemory::on;
    const std::string_view excluded = shares ? kWithPosix : kWithout;
    const std::string list = wanted.value_or("all");
    const bool excludes = list.starts_with('^');
    std::vector<std::string> names = names_in(excludes ? list.substr(1) : list);
    if (!excludes && std::ranges::any_of(names, is_all)) {
        return "^" + std::string(excluded);
    }
    const bool names_posix = std::ranges::any_of(names, has_posix);
    std::erase_if(names, is_shared);
    if (excludes) {
        // Whoever excludes it, by whatever name, gets none.
        names.emplace_back(names_posix ? kWithout : excluded);
        return "^" + joined(names);
    }
    if (shares && names_posix) {
        names.emplace_back("posix");
    }
    const auto is_other = [](const std::string& name) { return bare(name) != "self"; };
    if (std::ranges::none_of(names, is_other)) {
        throw base::Error(
            base::ErrorKind::argument,
            "UCX option TLS=" + list +
                ": UCX's shared memory is used where both sides ask for it (local=\"ucx\" "
                "at the client, ucx_shared_memory at the server), and then of POSIX's kind");
    }
    return joined(names);
}

}  // namespace ucxstore::ucx
