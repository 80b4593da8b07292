/// \file
/// What an open file is made of.
#pragma once

#include "posix.hpp"

#include <memory>

#include "validate.hpp"
#include "weig.hpp"

namespace weig {

struct File::State {
    Descriptor descriptor; ///< kept for check_unmodified
    Identity identity;
    Mode mode;
    Header header;
    std::shared_ptr<const Memory> memory; ///< the whole file
    Records records;

    const std::byte *file() const noexcept { return memory->bytes().data(); }
    const Record &record(std::size_t index) const {
        if (index >= records.all.size())
            throw std::out_of_range("no record has that index");
        return records.all[index];
    }
};

} // namespace weig
