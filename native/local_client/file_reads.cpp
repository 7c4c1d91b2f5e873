#include "local_client/file_reads.hpp"

#include <algorithm>

#include "local_client/file_reader.hpp"

namespace ucxstore::local_client {
namespace {

using What = VisibleFiles::Finding::What;

// Of a value that several threads read. Few enough bytes that a read that is not wanted any more
// ends soon.
constexpr std::uint64_t kSegmentBytes = 2 << 20;

}  // namespace

FileReads::FileReads(std::shared_ptr<const VisibleFiles> files,
                     std::shared_ptr<client::Operation> operation,
                     const std::vector<std::uint32_t>& items)
    : files_(std::move(files)), operation_(std::move(operation)), parts_(items.size()) {
    for (std::size_t i = 0; i < items.size(); ++i) {
        parts_[i].item = items[i];
        operation_->items[items[i]].elsewhere = true;
    }
}

void FileReads::start(const std::shared_ptr<threads::WorkerPool>& pool,
                      std::function<void()> on_end) {
    pool_ = pool;
    on_end_ = std::move(on_end);
    left_ = 1 + parts_.size();  // with this call
    std::size_t posted = 0;
    try {
        for (Part& part : parts_) {
            pool_->post([self = shared_from_this(), &part] {
                self->find(part);
                self->end_task();
            });
            ++posted;
        }
    } catch (const std::exception&) {  // the server is asked for the others
        left_ -= parts_.size() - posted;
    }
    end_task();
}

void FileReads::end_task() {
    ++moves_;
    if (--left_ == 0) {
        std::exchange(on_end_, nullptr)();
    }
}

bool FileReads::moved() {
    const std::uint64_t moves = moves_;
    return std::exchange(moves_seen_, moves) != moves;
}

void FileReads::find(Part& part) {
    if (stopped_) {
        return;
    }
    try {
        client::Item& item = operation_->items[part.item];
        part.finding =
            files_->find(operation_->gets[part.item], item, VisibleFiles::Wait::for_disk);
        if (part.finding.what != What::value) {
            return;
        }
        if (!item.memory) {
            item.owned = memory::allocate_region(part.finding.wanted.size);
        }
        const std::uint64_t segments = std::max<std::uint64_t>(
            (part.finding.wanted.size + kSegmentBytes - 1) / kSegmentBytes, 1);
        part.left = segments;
        for (std::uint64_t number = segments; number-- > 1;) {
            // Before other values: few files are open at once.
            ++left_;
            try {
                pool_->post_first([self = shared_from_this(), &part, number] {
                    self->read(part, number * kSegmentBytes);
                    self->end_task();
                });
            } catch (...) {
                --left_;
                throw;
            }
        }
        read(part, 0);
    } catch (const base::Error& error) {
        part.error = error;
    } catch (const std::bad_alloc&) {
        part.failed = true;
    }
}

void FileReads::read(Part& part, std::uint64_t begin) {
    if (!stopped_ && !part.failed) {
        const protocol::Selected& wanted = part.finding.wanted;
        const bool large = operation_->large || wanted.size >= client::Operation::kLargeBytes;
        try {
            FileReader reader(part.finding.file, wanted, operation_->items[part.item],
                              large ? memory::Write::past_caches : memory::Write::cached,
                              FileReader::Wait::for_disk);
            const std::uint64_t length = std::min(kSegmentBytes, wanted.size - begin);
            if (reader.read(begin, length) != FileReader::Outcome::read) {
                part.failed = true;
            }
        } catch (const std::bad_alloc&) {
            part.failed = true;
        }
    }
    if (--part.left == 0) {
        part.finding.file.reset();
    }
}

FileReads::Noted FileReads::note(const std::string& peer) {
    Noted noted;
    for (Part& part : parts_) {
        operation_->items[part.item].elsewhere = false;
    }
    for (Part& part : parts_) {
        if (part.error) {
            throw *part.error;
        }
        const bool known = part.finding.what == What::answer || part.finding.what == What::value;
        if (known && !part.failed) {
            files_->note(peer, *operation_, part.item, part.finding);
            noted.done.push_back(part.item);
        } else {
            operation_->items[part.item].owned.reset();
            noted.unknown.push_back(part.item);
        }
    }
    return noted;
}

}  // namespace ucxstore::local_client
