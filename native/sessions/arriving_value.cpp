#include "sessions/arriving_value.hpp"

#include <algorithm>

#include "base/ensure.hpp"
#include "memory/crc32c.hpp"

namespace ucxstore::sessions {
namespace {

// What the list of segments takes for one, about.
constexpr std::uint64_t kEntryInList = 64;

}  // namespace

bool ArrivingValue::add(const protocol::ValueHeader& header) {
    return segments_.add(header.total, header.segment, header.offset, header.length);
}

bool ArrivingValue::charge_list(Account& account) {
    const std::uint64_t bytes = segments_.beyond() * kEntryInList;
    if (bytes > list_.amount()) {
        auto more = account.hold(sessions::Held::request_bytes, 2 * bytes);
        if (!more) {
            return false;
        }
        list_ = std::move(*more);
    }
    return true;
}

bool ArrivingValue::count(std::uint64_t bytes) {
    counted_ += bytes;
    base::ensure(counted_ <= total(), "a segment is counted once");
    return counted_ == total();
}

void ArrivingValue::receive_into(std::shared_ptr<storage::Storage> storage) {
    storage_ = std::move(storage);
    incoming_ = storage_->receive(key_, total());
}

void ArrivingValue::receive_into(cache::CachedSource& source) { region_ = source.receive(total()); }

std::byte* ArrivingValue::memory_at(std::uint64_t offset, std::uint64_t length) {
    base::ensure(offset <= total() && length <= total() - offset,
                 "a segment is inside of its value");
    std::byte* const memory = region_ != nullptr ? region_->data() : incoming_->data();
    return memory == nullptr ? nullptr : memory + offset;
}

void ArrivingValue::write(std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (std::byte* const memory = memory_at(offset, bytes.size()); memory != nullptr) {
        std::ranges::copy(bytes, memory);
    } else {
        incoming_->write(offset, bytes);
    }
}

std::uint32_t ArrivingValue::checksum(std::uint64_t offset, std::uint64_t length) {
    const memory::Region* const region = region_ != nullptr ? region_.get() : incoming_->region();
    if (region != nullptr) {
        return region->checksum(offset, length);  // which keeps it for those who read the value
    }
    return memory::crc32c(std::span<const std::byte>(memory_at(offset, length), length));
}

bool ArrivingValue::hold(const protocol::ValueHeader& header, const Bytes& bytes,
                         Account& account) {
    base::ensure(waits_for_room(), "only what waits is held");
    auto charge = account.hold(sessions::Held::request_bytes, sizeof(Held) + bytes.data.size());
    if (!charge) {
        return false;
    }
    const auto* const data = reinterpret_cast<const char*>(bytes.data.data());
    held_.push_back(
        {header, bytes.parcel, {data, bytes.data.size()}, bytes.sum, std::move(*charge)});
    return true;
}

void ArrivingValue::stop_waiting() {
    drop_held();
    waits_ = nullptr;
}

void ArrivingValue::drop_held() {
    for (const Held& one : held_) {
        if (one.parcel != nullptr) {
            waits_->drop(one.parcel);
        }
    }
    held_.clear();
}

void ArrivingValue::drop_refused() {
    if (refused_ && transfers_ == 0) {
        incoming_.reset();
        region_.reset();
        room_.reset();
    }
}

bool ArrivingValue::commit() {
    const bool written = incoming_->commit(if_absent_);
    incoming_.reset();
    return written;
}

}  // namespace ucxstore::sessions
