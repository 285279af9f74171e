#include "services/param_server/param_snapshot.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/param_server/byte_codec.h"
#include "services/param_server/layout_codec.h"

namespace weft {
namespace {

constexpr std::string_view kMagic = "WPS1";
constexpr size_t kRangeHeader = 3 * sizeof(uint64_t);
constexpr size_t kPiece = size_t{1} << 20;

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

int64_t FloatsOf(const SharedTensor& tensor, const RowRange& range) {
  return std::min(tensor.RowOffset(range.first + range.count), tensor.size) -
         tensor.RowOffset(range.first);
}

std::string Header(const ParamSnapshot& s) {
  std::string header(kMagic);
  PutString(s.run_id, &header);
  PutNumber(s.generation, &header);
  PutNumber(static_cast<uint64_t>(s.first_open_pass), &header);
  PutNumber(static_cast<uint64_t>(s.steps), &header);
  PutLayout(s.layout, &header);
  PutNumber(s.ranges.size(), &header);
  return header;
}

absl::StatusOr<RowRange> ReadRange(const SharedLayout& layout, ByteReader* reader) {
  WEFT_ASSIGN_OR_RETURN(const uint64_t tensor, reader->Number());
  WEFT_ASSIGN_OR_RETURN(const uint64_t first, reader->Number());
  WEFT_ASSIGN_OR_RETURN(const uint64_t count, reader->Number());
  if (tensor >= layout.num_tensors()) return absl::DataLossError("a snapshot of unknown tensors");
  const auto rows = static_cast<uint64_t>(layout.tensor(static_cast<uint32_t>(tensor)).rows);
  if (first >= rows || count == 0 || count > rows - first) {
    return absl::DataLossError("a snapshot of rows that its tensor has not");
  }
  return RowRange{static_cast<uint32_t>(tensor), static_cast<int64_t>(first),
                  static_cast<int64_t>(count)};
}

}  // namespace

absl::Status ParamSnapshot::Encode(Sink sink) const {
  const std::unique_ptr<XXH3_state_t, FreeHash> hash(XXH3_createState());
  XXH3_64bits_reset(hash.get());
  auto put = [&](std::string_view bytes) {
    XXH3_64bits_update(hash.get(), bytes.data(), bytes.size());
    return sink(bytes);
  };
  WEFT_RETURN_IF_ERROR(put(Header(*this)));
  const char* from = reinterpret_cast<const char*>(values.data());
  for (const RowRange& range : ranges) {
    std::string header;
    PutNumber(range.tensor, &header);
    PutNumber(static_cast<uint64_t>(range.first), &header);
    PutNumber(static_cast<uint64_t>(range.count), &header);
    WEFT_RETURN_IF_ERROR(put(header));
    size_t left = static_cast<size_t>(FloatsOf(layout.tensor(range.tensor), range)) * sizeof(float);
    while (left > 0) {
      const size_t n = std::min(left, kPiece);
      WEFT_RETURN_IF_ERROR(put({from, n}));
      from += n;
      left -= n;
    }
  }
  std::string sum;
  PutNumber(XXH3_64bits_digest(hash.get()), &sum);
  return sink(sum);
}

uint64_t ParamSnapshot::EncodedBytes() const {
  return Header(*this).size() + ranges.size() * kRangeHeader +
         static_cast<uint64_t>(values.size()) * sizeof(float) + sizeof(uint64_t);
}

absl::StatusOr<ParamSnapshot> ParamSnapshot::Decode(std::string_view bytes) {
  if (bytes.size() < kMagic.size() + sizeof(uint64_t) || !bytes.starts_with(kMagic)) {
    return absl::DataLossError("not a snapshot of shared parameters");
  }
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  ByteReader sum(bytes.substr(body.size()));
  WEFT_ASSIGN_OR_RETURN(const uint64_t stored, sum.Number());
  if (stored != XXH3_64bits(body.data(), body.size())) {
    return absl::DataLossError("a snapshot of shared parameters: checksum mismatch");
  }
  ByteReader reader(body.substr(kMagic.size()));
  ParamSnapshot s;
  WEFT_ASSIGN_OR_RETURN(s.run_id, reader.String());
  WEFT_ASSIGN_OR_RETURN(s.generation, reader.Number());
  WEFT_ASSIGN_OR_RETURN(const uint64_t pass, reader.Number());
  WEFT_ASSIGN_OR_RETURN(const uint64_t steps, reader.Number());
  s.first_open_pass = static_cast<int64_t>(pass);
  s.steps = static_cast<int64_t>(steps);
  absl::StatusOr<SharedLayout> layout = ReadLayout(&reader);
  if (!layout.ok()) return absl::DataLossError(layout.status().message());
  s.layout = *std::move(layout);
  WEFT_ASSIGN_OR_RETURN(const uint64_t num_ranges, reader.Number());
  s.values = FloatBlock(1, static_cast<int64_t>(reader.left() / sizeof(float)));
  int64_t floats = 0;
  for (uint64_t i = 0; i < num_ranges; ++i) {
    WEFT_ASSIGN_OR_RETURN(const RowRange range, ReadRange(s.layout, &reader));
    const int64_t n = FloatsOf(s.layout.tensor(range.tensor), range);
    WEFT_ASSIGN_OR_RETURN(const std::string_view raw,
                          reader.Bytes(static_cast<uint64_t>(n) * sizeof(float)));
    std::memcpy(s.values.data() + floats, raw.data(), raw.size());
    floats += n;
    s.ranges.push_back(range);
  }
  if (reader.left() != 0) return absl::DataLossError("a snapshot with bytes after its end");
  return s;
}

SnapshotRestore::SnapshotRestore(RowTable* table)
    : table_(table), filled_(static_cast<size_t>(table->num_rows())) {}

absl::Status SnapshotRestore::Add(const ParamSnapshot& snapshot) {
  if (snapshot.layout.hash() != table_->layout().hash()) {
    return absl::FailedPreconditionError("the snapshot's parameters are not those of this run");
  }
  const float* from = snapshot.values.data();
  for (const RowRange& range : snapshot.ranges) {
    const SharedTensor& tensor = snapshot.layout.tensor(range.tensor);
    for (int64_t row = range.first; row < range.first + range.count; ++row) {
      const int64_t floats = tensor.RowFloats(row);
      if (const int64_t index = table_->Find(range.tensor, row); index >= 0) {
        std::copy_n(from, floats, table_->values(index).data());
        filled_[static_cast<size_t>(index)] = true;
      }
      from += floats;
    }
  }
  steps_ = std::max(steps_, snapshot.steps);
  return absl::OkStatus();
}

absl::Status SnapshotRestore::Finish() const {
  const auto missing = std::ranges::find(filled_, false);
  if (missing == filled_.end()) return absl::OkStatus();
  const RowTable::Name name = table_->NameOf(missing - filled_.begin());
  return absl::DataLossError(absl::StrCat("no snapshot has row ", name.row, " of ",
                                          table_->layout().tensor(name.tensor).name));
}

}  // namespace weft
