#include "client/array.hpp"

#include <string>
#include <utility>

#include "base/status.hpp"
#include "memory/copier.hpp"
#include "protocol/wire.hpp"

namespace ucxstore::client {

Array Array::strided(std::byte* base, std::span<const std::int64_t> shape,
                     std::span<const std::int64_t> strides, std::uint64_t itemsize) {
    base::require(shape.size() == strides.size(), "shape and strides of different lengths");
    Array array{base, {}, itemsize};
    array.dims.reserve(shape.size());
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        base::require(shape[axis] >= 0, "a negative length in a shape");
        array.dims.push_back({static_cast<std::uint64_t>(shape[axis]), strides[axis]});
    }
    return array;
}

Array Array::stored_chunk(std::span<const std::int64_t> shape, std::uint64_t itemsize) {
    Array chunk{nullptr, std::vector<protocol::Dim>(shape.size()), itemsize};
    auto stride = static_cast<std::int64_t>(itemsize);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        chunk.dims[axis] = {static_cast<std::uint64_t>(shape[axis]), stride};
        stride *= shape[axis];
    }
    return chunk;
}

protocol::Layout Array::box(std::span<const std::int64_t> start,
                            std::span<const std::int64_t> count) const {
    std::int64_t offset = 0;
    std::vector<protocol::Dim> box(dims.size());
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
        const auto length = static_cast<std::int64_t>(dims[axis].count);
        if (start[axis] < 0 || count[axis] < 1 || start[axis] > length ||
            count[axis] > length - start[axis]) {
            throw base::Error(base::ErrorKind::argument,
                              "a box outside its array, on axis " + std::to_string(axis));
        }
        offset += start[axis] * dims[axis].stride;
        box[axis] = {static_cast<std::uint64_t>(count[axis]), dims[axis].stride};
    }
    return protocol::Layout::strided(offset, itemsize, box);
}

namespace {

// Where its boxes begin, and the axes of each.
struct Boxes {
    std::vector<std::int64_t> offsets;
    std::vector<protocol::Dim> dims;
};

Boxes boxes_of(const StridedPart& part) {
    base::require(part.counts.size() == part.strides.size(),
                  "counts and strides of different lengths");
    Boxes boxes{{part.first}, {}};
    std::uint64_t size = part.run;
    bool countable = true;
    for (std::size_t axis = 0; axis < part.counts.size(); ++axis) {
        boxes.dims.push_back({part.counts[axis], part.strides[axis]});
        countable = countable && !__builtin_mul_overflow(size, part.counts[axis], &size);
    }
    if (part.offsets) {
        boxes.offsets.assign(part.offsets->begin(), part.offsets->end());
        for (std::int64_t& offset : boxes.offsets) {
            countable = countable && !__builtin_add_overflow(offset, part.first, &offset);
        }
        countable = countable && !__builtin_mul_overflow(size, part.offsets->size(), &size);
    }
    base::require(countable, "a part larger than any memory");
    return boxes;
}

}  // namespace

protocol::Layout part_of_memory(const StridedPart& part) {
    Boxes boxes = boxes_of(part);
    return protocol::Layout::gathered(std::move(boxes.offsets), part.run, boxes.dims);
}

protocol::Layout part_of_value(const StridedPart& part) {
    Boxes boxes = boxes_of(part);
    if (const char* fault = protocol::box_fault(boxes.offsets, part.run, boxes.dims)) {
        throw base::Error(base::ErrorKind::argument, fault);
    }
    return protocol::Layout::gathered(std::move(boxes.offsets), part.run, boxes.dims);
}

void place(std::span<const std::byte> values, const Memory& target) {
    base::require(values.size() == target.size(), "values that are not of their place's size");
    std::vector<ucp_dt_iov_t> pieces;
    target.pieces(0, target.size(), pieces);
    memory::Copier(pieces).scatter(0, values.data(), target.size(), memory::Write::past_caches);
}

}  // namespace ucxstore::client
