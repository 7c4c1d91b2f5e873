#include "local_client/map_value.hpp"

namespace ucxstore::local_client {

ValuePart whole_pages(const Wanting& wanting, std::uint64_t page) {
    const auto [source, target, size, room] = wanting;
    if (source % page != target % page) {
        return {};
    }
    const std::uint64_t begin = (page - source % page) % page;
    if (begin >= size) {
        return {};
    }
    const std::uint64_t pages = (size - begin) / page;
    const std::uint64_t rest = (size - begin) % page;
    const bool one_more = rest > 0 && page - rest <= room;
    return {begin, (pages + (one_more ? 1 : 0)) * page};
}

}  // namespace ucxstore::local_client
