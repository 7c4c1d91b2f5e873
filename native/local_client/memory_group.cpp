#include "local_client/memory_group.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/handle.hpp"

namespace ucxstore::local_client {
namespace {

// What version 1 shows where there is no limit is somewhat less than the largest number.
constexpr unsigned long long kNoLimit = 1ull << 60;

std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    std::istringstream stream{std::string(text)};
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

bool is_listed(const std::string& name, const std::string& list) {
    return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

// A group of memory: where version 1 has that controller, it is there, and not in version 2.
struct Group {
    bool is_first_version = false;
    std::string path;
};

Group group_of(std::string_view cgroup) {
    Group group;
    for (const std::string& line : lines_of(cgroup)) {  // hierarchy:controllers:path
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) {
            continue;
        }
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (is_listed("memory", controllers)) {
            return {true, line.substr(second + 1)};
        }
        if (controllers.empty()) {
            group.path = line.substr(second + 1);
        }
    }
    return group;
}

struct Mount {
    std::string root;  // the group that is seen at `point`
    std::string point;
};

std::optional<Mount> mount_of(const Group& group, std::string_view mounts) {
    for (const std::string& line : lines_of(mounts)) {
        // ID, parent, device, root, point, options, other fields, "-", type, source, options
        std::istringstream words(line);
        std::vector<std::string> fields;
        for (std::string word; words >> word;) {
            fields.push_back(word);
        }
        std::size_t dash = 6;
        while (dash < fields.size() && fields[dash] != "-") {
            ++dash;
        }
        if (dash + 3 >= fields.size()) {
            continue;
        }
        const std::string& type = fields[dash + 1];
        const bool is_it = group.is_first_version
                               ? type == "cgroup" && is_listed("memory", fields[dash + 3])
                               : type == "cgroup2";
        if (is_it) {
            return Mount{fields[3], fields[4]};
        }
    }
    return std::nullopt;
}

bool is_limit(const std::optional<std::string>& text) {
    return text && text->substr(0, 3) != "max" &&
           std::strtoull(text->c_str(), nullptr, 10) < kNoLimit;
}

std::optional<std::string> read_file(const std::string& path) {
    const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) {
        return std::nullopt;
    }
    std::string text;
    char part[4096];
    for (ssize_t got; (got = ::read(file.get(), part, sizeof(part))) > 0;) {
        text.append(part, static_cast<std::size_t>(got));
    }
    return text;
}

}  // namespace

std::string memory_group(std::string_view cgroup) {
    const Group group = group_of(cgroup);
    return (group.is_first_version ? "1:" : "2:") + group.path;
}

bool has_memory_limit(std::string_view cgroup, std::string_view mounts, const ReadFile& read) {
    const Group group = group_of(cgroup);
    if (group.path.empty()) {
        return false;  // there are no groups
    }
    const auto mount = mount_of(group, mounts);
    if (!mount) {
        return true;  // for all that is known
    }
    std::string below = group.path;
    const std::string root = mount->root == "/" ? "" : mount->root;
    if (below.starts_with(root)) {
        below.erase(0, root.size());
    }
    while (true) {
        while (below.ends_with('/')) {
            below.pop_back();
        }
        const std::string folder = mount->point + below + "/memory.";
        if (group.is_first_version
                ? is_limit(read(folder + "limit_in_bytes"))
                : is_limit(read(folder + "max")) || is_limit(read(folder + "high"))) {
            return true;
        }
        if (below.empty()) {
            return false;
        }
        const std::size_t slash = below.rfind('/');
        below.erase(slash == std::string::npos ? 0 : slash);
    }
}

bool can_leave_memory(int socket) {
    const auto own = read_file("/proc/self/cgroup");
    if (!own) {
        return true;
    }
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0) {
        const auto its = read_file("/proc/" + std::to_string(peer.pid) + "/cgroup");
        if (its && memory_group(*its) == memory_group(*own)) {
            return true;
        }
    }
    return !has_memory_limit(*own, read_file("/proc/self/mountinfo").value_or(""), read_file);
}

}  // namespace ucxstore::local_client
