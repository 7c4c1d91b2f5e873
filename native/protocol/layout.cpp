#include "protocol/layout.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ucxstore::protocol {
namespace {

// A run whose length the compiler knows is one load and one store. The processor has many of these
// under way at once, which helps where each run lies on a cache line of its own.
template <std::size_t run>
std::byte* pack_runs(const std::byte* source, const Dim& dim, std::byte* target) {
    for (std::uint64_t i = 0; i < dim.count; ++i, source += dim.stride, target += run) {
        std::memcpy(target, source, run);
    }
    return target;
}

std::byte* pack_runs(const std::byte* source, std::uint64_t run, const Dim& dim,
                     std::byte* target) {
    switch (run) {
        case 1:
            return pack_runs<1>(source, dim, target);
        case 2:
            return pack_runs<2>(source, dim, target);
        case 4:
            return pack_runs<4>(source, dim, target);
        case 8:
            return pack_runs<8>(source, dim, target);
        case 16:
            return pack_runs<16>(source, dim, target);
        default:
            break;
    }
    for (std::uint64_t i = 0; i < dim.count; ++i, source += dim.stride, target += run) {
        std::memcpy(target, source, run);
    }
    return target;
}

std::byte* pack_box(const std::byte* source, std::uint64_t run, std::span<const Dim> dims,
                    std::byte* target) {
    if (dims.size() < 2) {
        return pack_runs(source, run, dims.empty() ? Dim{1, 0} : dims[0], target);
    }
    for (std::uint64_t i = 0; i < dims[0].count; ++i, source += dims[0].stride) {
        target = pack_box(source, run, dims.subspan(1), target);
    }
    return target;
}

}  // namespace

Layout Layout::contiguous(std::uint64_t size, std::int64_t offset) {
    Layout layout;
    layout.offset_ = offset;
    layout.run_ = size;
    layout.size_ = size;
    return layout;
}

Layout Layout::strided(std::int64_t offset, std::uint64_t itemsize, std::span<const Dim> dims) {
    Layout layout = contiguous(itemsize, offset);
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
        layout.size_ *= dim->count;
        if (dim->count == 1) {
            continue;
        }
        if (layout.dims_.empty() && dim->stride == static_cast<std::int64_t>(layout.run_)) {
            layout.run_ *= dim->count;
            continue;
        }
        // dims_ is built innermost first here, and turned round at the end.
        if (!layout.dims_.empty()) {
            Dim& inner = layout.dims_.back();
            if (dim->stride == inner.stride * static_cast<std::int64_t>(inner.count)) {
                inner.count *= dim->count;
                continue;
            }
        }
        layout.dims_.push_back(*dim);
    }
    std::reverse(layout.dims_.begin(), layout.dims_.end());
    if (layout.size_ == 0) {
        return contiguous(0, offset);
    }
    return layout;
}

Layout Layout::gathered(std::vector<std::int64_t> offsets, std::uint64_t itemsize,
                        std::span<const Dim> dims) {
    if (offsets.size() < 2) {
        return offsets.empty() ? contiguous(0) : strided(offsets[0], itemsize, dims);
    }
    Layout layout = strided(0, itemsize, dims);
    if (layout.size_ > 0) {
        layout.size_ *= offsets.size();
        layout.offsets_ = std::move(offsets);
    }
    return layout;
}

bool Layout::fits(std::uint64_t extent) const {
    if (size_ == 0) {
        return true;
    }
    if (run_ > extent) {
        return false;
    }
    std::uint64_t room = extent - run_;  // for the offset, in the end
    for (const Dim& dim : dims_) {
        if (dim.count == 0 || dim.stride < 0) {
            return false;
        }
        const auto stride = static_cast<std::uint64_t>(dim.stride);
        const std::uint64_t steps = dim.count - 1;
        if (stride != 0 && steps > room / stride) {
            return false;
        }
        room -= steps * stride;
    }
    const auto lies_inside = [room](std::int64_t offset) {
        return offset >= 0 && static_cast<std::uint64_t>(offset) <= room;
    };
    return offsets_.empty() ? lies_inside(offset_) : std::ranges::all_of(offsets_, lies_inside);
}

void Layout::pieces(std::byte* base, std::uint64_t begin, std::uint64_t length,
                    std::vector<ucp_dt_iov_t>& out) const {
    if (length == 0) {
        return;
    }
    if (dims_.empty() && offsets_.empty()) {
        out.push_back({base + offset_ + static_cast<std::int64_t>(begin), length});
        return;
    }
    // The position of the run that holds `begin`, and the box that it is in.
    std::vector<std::uint64_t> position(dims_.size());
    std::uint64_t box = begin / run_;
    std::int64_t at = 0;
    for (std::size_t axis = dims_.size(); axis-- > 0;) {
        position[axis] = box % dims_[axis].count;
        box /= dims_[axis].count;
        at += static_cast<std::int64_t>(position[axis]) * dims_[axis].stride;
    }
    at += offsets_.empty() ? offset_ : offsets_[box];
    std::uint64_t skip = begin % run_;
    const std::size_t first = out.size();
    out.reserve(first + (skip + length + run_ - 1) / run_);
    while (true) {
        const std::uint64_t size = std::min(run_ - skip, length);
        std::byte* const start = base + at + static_cast<std::int64_t>(skip);
        if (out.size() > first &&
            static_cast<std::byte*>(out.back().buffer) + out.back().length == start) {
            out.back().length += size;
        } else {
            out.push_back({start, size});
        }
        skip = 0;
        length -= size;
        if (length == 0) {
            return;
        }
        bool within = false;  // the same box
        for (std::size_t axis = dims_.size(); axis-- > 0 && !within;) {
            at += dims_[axis].stride;
            within = ++position[axis] < dims_[axis].count;
            if (!within) {
                at -= static_cast<std::int64_t>(dims_[axis].count) * dims_[axis].stride;
                position[axis] = 0;
            }
        }
        if (!within) {  // `at` is at the start of its box again
            ++box;
            at += offsets_[box] - offsets_[box - 1];
        }
    }
}

void Layout::pack(const std::byte* base, std::byte* target) const {
    if (size_ == 0) {
        return;
    }
    if (offsets_.empty()) {
        pack_box(base + offset_, run_, dims_, target);
    }
    for (const std::int64_t offset : offsets_) {
        target = pack_box(base + offset, run_, dims_, target);
    }
}

void scatter(const std::byte* source, std::uint64_t length, std::span<const ucp_dt_iov_t> pieces) {
    for (const ucp_dt_iov_t& piece : pieces) {
        const std::uint64_t size = std::min<std::uint64_t>(piece.length, length);
        std::memcpy(piece.buffer, source, size);
        source += size;
        length -= size;
        if (length == 0) {
            return;
        }
    }
}

}  // namespace ucxstore::protocol
