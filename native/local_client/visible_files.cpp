#include "local_client/visible_files.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <utility>
#include <variant>

#include "base/steps.hpp"
#include "client/reply.hpp"
#include "files/mapped_file.hpp"
#include "files/value_file.hpp"
#include "local_client/file_reader.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::local_client {
namespace {

using What = VisibleFiles::Finding::What;

// Whether the key's value is a file: a server has scratch spaces elsewhere.
bool is_in_directory(std::string_view key) {
    return !protocol::key_fault(key) && !protocol::shelf_of(key) && !files::is_our_own(key);
}

bool is_in_memory(const files::DirectoryRoot& root) {
    struct statfs about{};
    return fstatfs(root.descriptor(), &about) == 0 &&
           (about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC);
}

What what_of(files::DirectoryRoot::Sight::What sight) {
    switch (sight) {
        case files::DirectoryRoot::Sight::What::file:
            return What::value;
        case files::DirectoryRoot::Sight::What::nothing:
            return What::answer;
        case files::DirectoryRoot::Sight::What::later:
            return What::later;
        default:
            return What::unknown;
    }
}

}  // namespace

VisibleFiles::VisibleFiles(const base::Fd& life, const base::Fd& page, base::Fd root)
    : life_(life), page_(page), root_(std::move(root)), in_memory_(is_in_memory(root_)) {}

VisibleFiles::Finding VisibleFiles::find(const protocol::GetItem& wanted, const client::Item& item,
                                         Wait wait) const {
    Finding finding;
    if (!is_in_directory(wanted.key)) {
        return finding;
    }
    base::step();
    auto sight = root_.look(wanted.key, in_memory_ ? Wait::for_disk : wait);
    base::step();
    finding.what = what_of(sight.what);
    protocol::ReplyHeader& header = finding.header;
    header.status = protocol::Status::missing;
    if (finding.what != What::value) {
        return finding;
    }
    header.status = protocol::Status::ok;
    header.value_size = static_cast<std::uint64_t>(sight.about.st_size);
    header.version = files::version_of(sight.about);
    auto selected = protocol::select(wanted, header.value_size, header.version);
    if (const auto* refusal = std::get_if<protocol::Refusal>(&selected)) {
        finding.what = What::answer;
        header.status = refusal->status;
        header.value_size = refusal->value_size;
        header.version = refusal->version;
        return finding;
    }
    finding.wanted = std::move(std::get<protocol::Selected>(selected));
    finding.file = std::move(sight.file);
    const std::uint64_t size = finding.wanted.size;
    const std::uint64_t most = item.memory ? item.memory->size() : protocol::kMaxValueBytes;
    if (size > most || (item.exact && size != most) || !FileReader::suits(finding.wanted)) {
        finding.what = What::unknown;
    }
    return finding;
}

What VisibleFiles::answer(const std::string& peer, client::Operation& operation,
                          std::uint32_t number, std::uint64_t& room) const {
    client::Item& item = operation.items[number];
    if (room == 0) {
        return is_in_directory(item.key) ? What::later : What::unknown;
    }
    Finding finding = find(operation.gets[number], item, Wait::never);
    if (finding.what == What::value) {
        const std::uint64_t size = finding.wanted.size;
        if (size > room) {
            return What::later;
        }
        room -= size;
        if (!item.memory) {
            item.owned = memory::allocate_region(size);
        }
        FileReader reader(finding.file, finding.wanted, item,
                          operation.large ? memory::Write::past_caches : memory::Write::cached,
                          in_memory_ ? Wait::for_disk : Wait::never);
        const auto outcome = reader.read(0, size);
        base::step();
        if (outcome != FileReader::Outcome::read) {
            item.owned.reset();
            return outcome == FileReader::Outcome::later ? What::later : What::unknown;
        }
    }
    if (finding.what == What::value || finding.what == What::answer) {
        note(peer, operation, number, finding);
        return What::answer;
    }
    return finding.what;
}

void VisibleFiles::note(const std::string& peer, client::Operation& operation, std::uint32_t number,
                        Finding& finding) const {
    finding.header.item = number;
    client::note_reply(peer, operation, finding.header, {});
    if (finding.what == What::value) {
        client::Item& item = operation.items[number];
        item.size = item.received = finding.wanted.size;
        item.version = finding.header.version;
        page_.count(finding.wanted.size);
    }
}

std::optional<std::uint64_t> VisibleFiles::copy(std::string_view key,
                                                const client::Link::MakeRoom& make_room) const {
    client::Item item;
    protocol::GetItem wanted;
    wanted.key = key;
    Finding finding = find(wanted, item, Wait::never);
    const std::uint64_t size = finding.wanted.size;
    if (finding.what != What::value || size > kMostAtOnce) {
        return std::nullopt;
    }
    std::byte* const out = make_room(size);
    if (out == nullptr) {
        return std::nullopt;
    }
    item.memory.emplace(out, protocol::Layout::contiguous(size));
    FileReader reader(finding.file, finding.wanted, item, memory::Write::cached,
                      in_memory_ ? Wait::for_disk : Wait::never);
    if (reader.read(0, size) != FileReader::Outcome::read) {
        return std::nullopt;
    }
    page_.count(size);
    return size;
}

std::shared_ptr<memory::Region> VisibleFiles::map(std::string_view key, Wait wait) const {
    protocol::GetItem wanted;
    wanted.key = key;
    const Finding finding = find(wanted, client::Item{}, wait);
    if (finding.what != What::value) {
        return nullptr;
    }
    auto value = files::map_file(finding.file, finding.wanted.size);
    if (value != nullptr) {
        page_.count(finding.wanted.size);
    }
    return value;
}

}  // namespace ucxstore::local_client
