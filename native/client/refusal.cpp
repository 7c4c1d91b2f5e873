#include "client/refusal.hpp"

namespace ucxstore {

using wire::Status;

Error refusal(const std::string& peer, const Item& item, const wire::ReplyHeader& header,
              std::string_view text) {
    const std::string about = peer + ": '" + item.key + "' ";
    const std::string size = std::to_string(header.value_size) + " bytes";
    switch (header.status) {
        case Status::invalid_key:
            return {ErrorKind::invalid_key, about + std::string(text)};
        case Status::read_only:
            return {ErrorKind::read_only,
                    peer + " serves read-only: '" + item.key + "' was not changed"};
        case Status::denied:
            return {ErrorKind::denied, about + std::string(text)};
        case Status::too_large:
            return {ErrorKind::value_too_large, about + "has " + size + ", more than the " +
                                                    std::to_string(item.memory->size()) +
                                                    " that it is read into"};
        case Status::wrong_size:
            return {ErrorKind::chunk_size,
                    about + "has " + size + ", which is not the size of its chunk"};
        case Status::bad_range:
            return {ErrorKind::argument,
                    about + "has " + size + ", and bytes outside them were requested"};
        case Status::busy:
            return {ErrorKind::storage, about + "was refused: the server is busy"};
        case Status::altered:
            return {ErrorKind::integrity, about +
                                              "was changed on its way to the server: the message "
                                              "does not fit its checksum or its tag"};
        case Status::ended:
            return {ErrorKind::scratch_ended, about + "is gone: " + std::string(text)};
        case Status::evicted:
            return {ErrorKind::evicted, about + "was evicted: " + std::string(text)};
        case Status::unknown:
            return {ErrorKind::unknown_outcome,
                    about + "may have its old value or the new one: " + std::string(text)};
        default:
            return {ErrorKind::storage, about + "failed at the server: " + std::string(text)};
    }
}

}  // namespace ucxstore
