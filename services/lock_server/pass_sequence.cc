#include "services/lock_server/pass_sequence.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

std::string List(const std::vector<std::string>& paths) {
  return absl::StrCat("[", absl::StrJoin(paths, ", "), "]");
}

}  // namespace

PassPosition NextPass(const PassPosition& position, int num_edge_paths) {
  PassPosition next = position;
  ++next.pass;
  if (++next.edge_chunk < next.num_edge_chunks) return next;
  next.edge_chunk = 0;
  if (++next.edge_path < num_edge_paths) return next;
  next.edge_path = 0;
  ++next.epoch;
  return next;
}

PassPosition PositionOfVersion(int64_t version, int num_edge_paths, int num_edge_chunks) {
  PassPosition position;
  position.pass = version;
  position.num_edge_chunks = num_edge_chunks;
  position.edge_chunk = static_cast<int>(version % num_edge_chunks);
  position.edge_path = static_cast<int>(version / num_edge_chunks % num_edge_paths);
  position.epoch = static_cast<int>(version / num_edge_chunks / num_edge_paths);
  return position;
}

absl::StatusOr<PassPosition> MapPosition(const PassPosition& position, bool begun,
                                         const std::vector<std::string>& old_paths,
                                         const std::vector<std::string>& new_paths,
                                         int num_edge_chunks) {
  PassPosition mapped = position;
  mapped.num_edge_chunks = num_edge_chunks;
  const auto path = static_cast<size_t>(position.edge_path);
  const int chunk = position.edge_chunk;
  if (position.num_edge_chunks == num_edge_chunks && old_paths == new_paths) return mapped;

  // Paths of which something is done in this epoch have to stay what and where they are.
  const size_t fixed = path + (chunk > 0 || begun ? 1 : 0);
  const bool same = fixed <= new_paths.size() &&
                    std::equal(old_paths.begin(), old_paths.begin() + static_cast<long>(fixed),
                               new_paths.begin());
  if (!same) {
    return absl::FailedPreconditionError(absl::StrCat(
        "edge_paths: the run is in epoch ", position.epoch + 1, ", at ", old_paths[path],
        ", so the first ", fixed, " of ", List(old_paths), " cannot change before the epoch ends; ",
        "the configuration has ", List(new_paths)));
  }
  if (path == new_paths.size()) {  // all that the new list has is done
    mapped.edge_path = 0;
    ++mapped.epoch;
  }
  const int64_t scaled = int64_t{chunk} * num_edge_chunks;
  if (begun ? position.num_edge_chunks != num_edge_chunks
            : scaled % position.num_edge_chunks != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "num_edge_chunks: the run is ", begun ? "within" : "before", " chunk ", chunk + 1, " of ",
        position.num_edge_chunks, " of ", old_paths[path], ", a place that does not exist with ",
        num_edge_chunks, " chunks; continue with ", position.num_edge_chunks,
        begun ? "" : " or a multiple of it"));
  }
  mapped.edge_chunk = static_cast<int>(scaled / position.num_edge_chunks);
  return mapped;
}

}  // namespace weft
