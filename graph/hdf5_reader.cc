#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/hdf5_file.h"
#include "graph/hdf5_handle.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {

using hdf5::Handle;
using hdf5::LastError;

namespace {

constexpr int kMaxGroupDepth = 16;  // hard links may form cycles

struct OpenDataset {
  Handle dataset;
  Handle type;
  std::vector<hsize_t> shape;
};

std::string ShapeText(const std::vector<hsize_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

struct Listing {
  std::vector<std::pair<std::string, H5O_type_t>> children;
};

herr_t AddChild(hid_t group, const char* name, const H5L_info_t* link, void* data) {
  if (link->type != H5L_TYPE_HARD) return 0;  // a link out of the file is not ours
  H5O_info_t info;
  if (H5Oget_info_by_name2(group, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0) return -1;
  static_cast<Listing*>(data)->children.emplace_back(name, info.type);
  return 0;
}

}  // namespace

struct Hdf5Reader::Impl {
  std::string path;
  Handle file;

  std::string Name(absl::string_view what) const { return absl::StrCat(path, ": ", what); }
  absl::Status Damaged(absl::string_view what) const {
    return LastError(absl::StatusCode::kDataLoss, Name(what));
  }

  // H5Lexists wants every group on the way to exist.
  bool Exists(const std::string& name) const {
    hdf5::Quiet();
    for (size_t at = name.find('/', 1);; at = name.find('/', at + 1)) {
      const std::string part = name.substr(0, at);
      if (H5Lexists(file.get(), part.c_str(), H5P_DEFAULT) <= 0) return false;
      if (at == std::string::npos) return true;
    }
  }

  absl::StatusOr<OpenDataset> OpenNamed(const std::string& name) const {
    if (!Exists(name)) {
      return absl::NotFoundError(Name(absl::StrCat("has no data set ", name)));
    }
    OpenDataset open;
    open.dataset = Handle(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    if (!open.dataset.ok()) return Damaged(absl::StrCat("cannot open data set ", name));
    open.type = Handle(H5Dget_type(open.dataset.get()), H5Tclose);
    const Handle space(H5Dget_space(open.dataset.get()), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (!open.type.ok() || rank < 0) return Damaged(absl::StrCat("damaged data set ", name));
    open.shape.resize(static_cast<size_t>(rank));
    H5Sget_simple_extent_dims(space.get(), open.shape.data(), nullptr);
    return open;
  }

  absl::Status CheckNumeric(const OpenDataset& open, const std::string& name,
                            bool integers_only) const {
    const H5T_class_t type = H5Tget_class(open.type.get());
    if (type == H5T_INTEGER || (type == H5T_FLOAT && !integers_only)) return absl::OkStatus();
    return absl::InvalidArgumentError(Name(absl::StrCat("data set ", name, " does not hold ",
                                                        integers_only ? "integers" : "numbers")));
  }

  // Reads `count` rows from `begin` as `memory_type` into `out`.
  absl::Status ReadSlab(const OpenDataset& open, const std::string& name, int64_t begin,
                        int64_t count, hid_t memory_type, void* out) const {
    const std::vector<hsize_t>& shape = open.shape;
    const int64_t rows = shape.empty() ? 1 : static_cast<int64_t>(shape[0]);
    if (begin < 0 || count < 0 || begin > rows || count > rows - begin) {
      return absl::InvalidArgumentError(Name(absl::StrCat(
          "data set ", name, " has ", rows, " rows; wanted ", begin, " to ", begin + count)));
    }
    if (count == 0 || std::ranges::find(shape, hsize_t{0}) != shape.end()) return absl::OkStatus();
    Handle file_space(H5Dget_space(open.dataset.get()), H5Sclose);
    Handle memory_space;
    if (shape.empty()) {
      memory_space = Handle(H5Screate(H5S_SCALAR), H5Sclose);
    } else {
      std::vector<hsize_t> start(shape.size(), 0);
      std::vector<hsize_t> extent = shape;
      start[0] = static_cast<hsize_t>(begin);
      extent[0] = static_cast<hsize_t>(count);
      H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(),
                          nullptr);
      memory_space = Handle(
          H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), H5Sclose);
    }
    if (H5Dread(open.dataset.get(), memory_type, memory_space.get(), file_space.get(), H5P_DEFAULT,
                out) < 0) {
      return Damaged(absl::StrCat("cannot read data set ", name));
    }
    return absl::OkStatus();
  }

  absl::Status ReadVector(const std::string& name, int64_t begin, int64_t count, bool integers_only,
                          hid_t memory_type, void* out) const {
    WEFT_ASSIGN_OR_RETURN(const OpenDataset open, OpenNamed(name));
    WEFT_RETURN_IF_ERROR(CheckNumeric(open, name, integers_only));
    WEFT_RETURN_IF_ERROR(CheckRank(open, name));
    return ReadSlab(open, name, begin, count, memory_type, out);
  }

  absl::Status CheckRank(const OpenDataset& open, const std::string& name) const {
    if (open.shape.size() == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(Name(absl::StrCat(
        "data set ", name, " has shape ", ShapeText(open.shape), ", needs one dimension")));
  }

  absl::Status ListInto(const std::string& group_name, int depth,
                        std::vector<std::string>* out) const {
    if (depth > kMaxGroupDepth) {
      return absl::DataLossError(Name(absl::StrCat("groups nest too deeply at ", group_name)));
    }
    const Handle group(H5Gopen2(file.get(), group_name.c_str(), H5P_DEFAULT), H5Gclose);
    if (!group.ok()) return Damaged(absl::StrCat("cannot open group ", group_name));
    const Handle properties(H5Gget_create_plist(group.get()), H5Pclose);
    unsigned order = 0;
    H5Pget_link_creation_order(properties.get(), &order);
    const H5_index_t index =
        (order & H5P_CRT_ORDER_TRACKED) != 0 ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
    Listing listing;
    if (H5Literate(group.get(), index, H5_ITER_INC, nullptr, AddChild, &listing) < 0) {
      return Damaged(absl::StrCat("cannot list group ", group_name));
    }
    for (const auto& [child, type] : listing.children) {
      const std::string full = absl::StrCat(group_name, "/", child);
      if (type == H5O_TYPE_DATASET) out->push_back(full);
      if (type == H5O_TYPE_GROUP) WEFT_RETURN_IF_ERROR(ListInto(full, depth + 1, out));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Handle> OpenAttribute(const std::string& object, const std::string& name) const {
    hdf5::Quiet();
    const std::string what = absl::StrCat("attribute ", name, " of ", object);
    if (object != "/" && !Exists(object)) {
      return absl::NotFoundError(Name(absl::StrCat("has no ", what)));
    }
    const htri_t there = H5Aexists_by_name(file.get(), object.c_str(), name.c_str(), H5P_DEFAULT);
    if (there < 0) return Damaged(absl::StrCat("cannot look up ", what));
    if (there == 0) return absl::NotFoundError(Name(absl::StrCat("has no ", what)));
    Handle attribute(
        H5Aopen_by_name(file.get(), object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
        H5Aclose);
    if (!attribute.ok()) return Damaged(absl::StrCat("cannot open ", what));
    const Handle space(H5Aget_space(attribute.get()), H5Sclose);
    if (H5Sget_simple_extent_npoints(space.get()) != 1) {
      return absl::InvalidArgumentError(Name(absl::StrCat(what, " is not one value")));
    }
    return attribute;
  }
};

absl::StatusOr<Hdf5Reader> Hdf5Reader::Open(const std::string& path) {
  hdf5::Quiet();
  // HDF5 answers a missing file with a stack of messages; the system says it better.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  close(fd);
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  const Handle access = hdf5::FileAccess();
  impl->file = Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!impl->file.ok()) return impl->Damaged("not a whole HDF5 file");
  return Hdf5Reader(std::move(impl));
}

Hdf5Reader::Hdf5Reader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Hdf5Reader::~Hdf5Reader() = default;
Hdf5Reader::Hdf5Reader(Hdf5Reader&&) noexcept = default;
Hdf5Reader& Hdf5Reader::operator=(Hdf5Reader&&) noexcept = default;

const std::string& Hdf5Reader::path() const { return impl_->path; }

int64_t Hdf5Reader::size() const {
  hdf5::Quiet();
  hsize_t size = 0;
  H5Fget_filesize(impl_->file.get(), &size);
  return static_cast<int64_t>(size);
}

bool Hdf5Reader::HasDataset(const std::string& name) const {
  if (!impl_->Exists(name)) return false;
  H5O_info_t info;
  return H5Oget_info_by_name2(impl_->file.get(), name.c_str(), &info, H5O_INFO_BASIC,
                              H5P_DEFAULT) >= 0 &&
         info.type == H5O_TYPE_DATASET;
}

absl::StatusOr<std::vector<std::string>> Hdf5Reader::ListDatasets(const std::string& prefix) const {
  std::vector<std::string> names;
  if (!impl_->Exists(prefix)) return names;
  WEFT_RETURN_IF_ERROR(impl_->ListInto(prefix, 0, &names));
  return names;
}

absl::StatusOr<std::vector<int64_t>> Hdf5Reader::Shape(const std::string& dataset) const {
  WEFT_ASSIGN_OR_RETURN(const OpenDataset open, impl_->OpenNamed(dataset));
  std::vector<int64_t> shape;
  hsize_t elements = 1;
  for (const hsize_t extent : open.shape) {
    if (extent != 0 && elements > hsize_t{std::numeric_limits<int64_t>::max()} / extent) {
      return absl::DataLossError(impl_->Name(
          absl::StrCat("data set ", dataset, " has the impossible shape ", ShapeText(open.shape))));
    }
    elements *= extent;
    shape.push_back(static_cast<int64_t>(extent));
  }
  return shape;
}

absl::Status Hdf5Reader::Read(const std::string& dataset, int64_t begin,
                              std::span<int64_t> out) const {
  return impl_->ReadVector(dataset, begin, static_cast<int64_t>(out.size()),
                           /*integers_only=*/true, H5T_NATIVE_INT64, out.data());
}

absl::Status Hdf5Reader::Read(const std::string& dataset, int64_t begin,
                              std::span<float> out) const {
  return impl_->ReadVector(dataset, begin, static_cast<int64_t>(out.size()),
                           /*integers_only=*/false, H5T_NATIVE_FLOAT, out.data());
}

absl::Status Hdf5Reader::ReadRows(const std::string& dataset, int64_t begin, int64_t count,
                                  std::span<float> out) const {
  WEFT_ASSIGN_OR_RETURN(const OpenDataset open, impl_->OpenNamed(dataset));
  WEFT_RETURN_IF_ERROR(impl_->CheckNumeric(open, dataset, /*integers_only=*/false));
  hsize_t row_size = 1;
  for (size_t i = 1; i < open.shape.size(); ++i) row_size *= open.shape[i];
  if (row_size * static_cast<hsize_t>(count) != out.size()) {
    return absl::InvalidArgumentError(
        impl_->Name(absl::StrCat("data set ", dataset, " has shape ", ShapeText(open.shape), "; ",
                                 count, " rows of it do not make ", out.size(), " numbers")));
  }
  return impl_->ReadSlab(open, dataset, begin, count, H5T_NATIVE_FLOAT, out.data());
}

absl::Status Hdf5Reader::ReadOpaque(const std::string& dataset, int64_t begin,
                                    std::span<char> out) const {
  WEFT_ASSIGN_OR_RETURN(const OpenDataset open, impl_->OpenNamed(dataset));
  if (H5Tget_class(open.type.get()) != H5T_OPAQUE || H5Tget_size(open.type.get()) != 1) {
    return absl::InvalidArgumentError(
        impl_->Name(absl::StrCat("data set ", dataset, " does not hold opaque bytes")));
  }
  WEFT_RETURN_IF_ERROR(impl_->CheckRank(open, dataset));
  return impl_->ReadSlab(open, dataset, begin, static_cast<int64_t>(out.size()), open.type.get(),
                         out.data());
}

absl::StatusOr<std::string> Hdf5Reader::ReadOpaque(const std::string& dataset) const {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Shape(dataset));
  if (shape.size() != 1 || shape[0] > size()) {
    return absl::DataLossError(
        impl_->Name(absl::StrCat("data set ", dataset, " has an impossible size: damaged file")));
  }
  std::string bytes(static_cast<size_t>(shape[0]), '\0');
  WEFT_RETURN_IF_ERROR(ReadOpaque(dataset, 0, std::span<char>(bytes)));
  return bytes;
}

absl::StatusOr<int64_t> Hdf5Reader::IntAttribute(const std::string& object,
                                                 const std::string& name) const {
  WEFT_ASSIGN_OR_RETURN(const Handle attribute, impl_->OpenAttribute(object, name));
  const Handle type(H5Aget_type(attribute.get()), H5Tclose);
  if (H5Tget_class(type.get()) != H5T_INTEGER) {
    return absl::InvalidArgumentError(
        impl_->Name(absl::StrCat("attribute ", name, " of ", object, " is not an integer")));
  }
  int64_t value = 0;
  if (H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0) {
    return impl_->Damaged(absl::StrCat("cannot read attribute ", name, " of ", object));
  }
  return value;
}

absl::StatusOr<std::string> Hdf5Reader::StringAttribute(const std::string& object,
                                                        const std::string& name) const {
  WEFT_ASSIGN_OR_RETURN(const Handle attribute, impl_->OpenAttribute(object, name));
  const Handle type(H5Aget_type(attribute.get()), H5Tclose);
  if (H5Tget_class(type.get()) != H5T_STRING) {
    return absl::InvalidArgumentError(
        impl_->Name(absl::StrCat("attribute ", name, " of ", object, " is not a string")));
  }
  auto damaged = [&] {
    return impl_->Damaged(absl::StrCat("cannot read attribute ", name, " of ", object));
  };
  if (H5Tis_variable_str(type.get()) > 0) {
    char* text = nullptr;
    if (H5Aread(attribute.get(), type.get(), &text) < 0 || text == nullptr) return damaged();
    std::string value = text;
    H5free_memory(text);
    return value;
  }
  std::string value(H5Tget_size(type.get()), '\0');
  if (H5Aread(attribute.get(), type.get(), value.data()) < 0) return damaged();
  value.resize(std::min(value.size(), value.find('\0')));
  return value;
}

}  // namespace weft
