#include "client/refusal.hpp"

#include "protocol/keys.hpp"

namespace ucxstore::client {

base::Error refusal(const std::string& peer, const Item& item, const protocol::ReplyHeader& header,
                    std::string_view text) {
    const auto decoded = protocol::decoded_name(item.key);
    const std::string key = decoded ? std::string(decoded->key) : item.key;
    const std::string about = peer + ": '" + key + "' ";
    const std::string size = std::to_string(header.value_size) + " bytes";
    switch (header.status) {
        case protocol::Status::invalid_key:
            return {base::ErrorKind::invalid_key, about + std::string(text)};
        case protocol::Status::read_only:
            return {base::ErrorKind::read_only,
                    peer + " serves read-only: '" + key + "' was not changed"};
        case protocol::Status::denied:
            return {base::ErrorKind::denied, about + std::string(text)};
        case protocol::Status::too_large:
            return {base::ErrorKind::value_too_large, about + "has " + size + ", more than the " +
                                                          std::to_string(item.memory->size()) +
                                                          " that it is read into"};
        case protocol::Status::wrong_size:
            return {base::ErrorKind::chunk_size,
                    about + "has " + size + ", which is not the size of its chunk"};
        case protocol::Status::bad_range:
            return {base::ErrorKind::argument,
                    about + "has " + size + ", and bytes outside them were requested"};
        case protocol::Status::busy:
            return {base::ErrorKind::storage, about + "was refused: the server is busy"};
        case protocol::Status::altered:
            return {base::ErrorKind::integrity,
                    about +
                        "was changed on its way to the server: the message "
                        "does not fit its checksum or its tag"};
        case protocol::Status::ended:
            return {base::ErrorKind::scratch_ended, about + "is gone: " + std::string(text)};
        case protocol::Status::evicted:
            return {base::ErrorKind::evicted, about + "was evicted: " + std::string(text)};
        case protocol::Status::undecoded:
            return {base::ErrorKind::undecoded,
                    about + "is not decoded by the server: " + std::string(text)};
        case protocol::Status::unknown:
            return {base::ErrorKind::unknown_outcome,
                    about + "may have its old value or the new one: " + std::string(text)};
        default:
            return {base::ErrorKind::storage, about + "failed at the server: " + std::string(text)};
    }
}

}  // namespace ucxstore::client
