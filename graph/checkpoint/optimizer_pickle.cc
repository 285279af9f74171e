#include "graph/checkpoint/optimizer_pickle.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/checkpoint/pickle_reader.h"
#include "graph/checkpoint/pickle_writer.h"
#include "graph/checkpoint/zip_archive.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kMaxPickleBytes = int64_t{64} << 20;
constexpr char kPickleMember[] = "/data.pkl";
// A torch.save file of before 1.6 starts with the pickle of this number.
constexpr std::string_view kOldTorchMagic =
    "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

std::span<const char> AsBytes(std::span<const float> floats) {
  return {reinterpret_cast<const char*>(floats.data()), floats.size_bytes()};
}

// The pickle of `state`; storage keys count the tensors in the order in which they appear.
std::string Pickle(const OptimizerState& state) {
  const bool async = state.kind == OptimizerKind::kAsyncAdagrad;
  PickleWriter w;
  w.Dict();
  if (state.parameters.empty()) return w.Finish();

  int64_t storage = 0;
  w.String("state");
  w.Dict();
  for (size_t i = 0; i < state.parameters.size(); ++i) {
    w.Int(static_cast<int64_t>(i));
    w.Dict();
    if (async) {
      w.String("step");
      w.Tensor(absl::StrCat(storage++), {});
      w.SetItem();
    }
    w.String("sum");
    w.Tensor(absl::StrCat(storage++), state.parameters[i].shape);
    w.SetItem();
    w.SetItem();
  }
  w.SetItem();

  w.String("param_groups");
  w.List();
  w.Dict();
  const auto set = [&w](const char* key, auto write) {
    w.String(key);
    write();
    w.SetItem();
  };
  set("lr", [&] { w.Float(state.lr); });
  set("lr_decay", [&] { w.Int(0); });
  if (async) set("eps", [&] { w.Float(1e-10); });
  set("weight_decay", [&] { w.Int(0); });
  if (async) {
    set("initial_accumulator_value", [&] { w.Int(0); });
    set("foreach", [&] { w.None(); });
    set("maximize", [&] { w.Bool(false); });
  }
  set("params", [&] {
    w.List();
    for (size_t i = 0; i < state.parameters.size(); ++i) {
      w.Int(static_cast<int64_t>(i));
      w.Append();
    }
  });
  w.Append();
  w.SetItem();
  return w.Finish();
}

absl::Status Malformed(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("optimizer state: ", what));
}

}  // namespace

absl::StatusOr<int64_t> WriteOptimizerState(const OptimizerState& state, RandomAccessSink* sink) {
  WEFT_CHECK(state.kind == OptimizerKind::kAsyncAdagrad || state.parameters.size() == 1);
  const std::string pickle = Pickle(state);
  const auto steps = static_cast<float>(state.steps);
  std::vector<ZipMember> members = {{"archive/data.pkl", pickle}};
  const auto add_storage = [&members](std::span<const float> floats) {
    members.push_back({absl::StrCat("archive/data/", members.size() - 1), AsBytes(floats)});
  };
  for (const OptimizerState::Parameter& parameter : state.parameters) {
    if (state.kind == OptimizerKind::kAsyncAdagrad) add_storage({&steps, 1});
    add_storage(parameter.sum);
  }
  constexpr std::string_view kVersion = "3\n";
  members.push_back({"archive/version", kVersion});
  return WriteZip(members, sink);
}

struct OptimizerStateReader::Impl {
  explicit Impl(ZipReader reader) : zip(std::move(reader)) {}

  ZipReader zip;
  std::string folder;  // in the archive: "archive"
  std::vector<Parameter> parameters;
  std::vector<PickledTensor> sums;
  PickleDocument document;  // owns the keys in `sums`

  absl::Status FindFolder() {
    for (const std::string& name : zip.Names()) {
      if (absl::EndsWith(name, kPickleMember) && std::ranges::count(name, '/') == 1) {
        folder = name.substr(0, name.size() - (sizeof(kPickleMember) - 1));
        return absl::OkStatus();
      }
    }
    return Malformed("is no torch.save archive (it has no data.pkl)");
  }

  absl::Status Parse() {
    WEFT_RETURN_IF_ERROR(FindFolder());
    const std::string name = absl::StrCat(folder, kPickleMember);
    WEFT_ASSIGN_OR_RETURN(const int64_t size, zip.Size(name));
    if (size > kMaxPickleBytes) return Malformed(absl::StrCat("data.pkl has ", size, " bytes"));
    std::string bytes(static_cast<size_t>(size), '\0');
    WEFT_RETURN_IF_ERROR(zip.Read(name, bytes));
    WEFT_ASSIGN_OR_RETURN(document, ParsePickle(bytes));
    return Interpret(document.root());
  }

  absl::Status Interpret(const PickleValue& root) {
    using Kind = PickleValue::Kind;
    if (root.kind != Kind::kDict) return Malformed("is no dictionary");
    if (root.items.empty()) return absl::OkStatus();  // no parameters
    const PickleValue* state = root.Find("state");
    const PickleValue* groups = root.Find("param_groups");
    if (state == nullptr || state->kind != Kind::kDict || groups == nullptr ||
        groups->kind != Kind::kList) {
      return Malformed("lacks 'state' or 'param_groups'");
    }
    std::map<int64_t, const PickleValue*> by_id;
    for (size_t i = 0; i + 1 < state->items.size(); i += 2) {
      if (state->items[i]->kind != Kind::kInt ||
          !by_id.emplace(state->items[i]->integer, state->items[i + 1]).second) {
        return Malformed("has a bad key in 'state'");
      }
    }
    std::set<int64_t> seen;
    for (const PickleValue* group : groups->items) {
      const PickleValue* ids = group->Find("params");
      if (ids == nullptr || ids->kind != Kind::kList)
        return Malformed("has a group of no 'params'");
      for (const PickleValue* id : ids->items) {
        if (id->kind != Kind::kInt || !by_id.contains(id->integer) ||
            !seen.insert(id->integer).second) {
          return Malformed("has a bad id in 'params'");
        }
        WEFT_RETURN_IF_ERROR(AddParameter(*by_id[id->integer]));
      }
    }
    if (seen.size() != by_id.size()) return Malformed("has state of no parameter");
    return absl::OkStatus();
  }

  absl::Status AddParameter(const PickleValue& entry) {
    using Kind = PickleValue::Kind;
    const PickleValue* sum = entry.Find("sum");
    if (sum == nullptr || sum->kind != Kind::kTensor) return Malformed("has no tensor 'sum'");
    const PickledTensor& tensor = document.tensor(*sum);
    WEFT_ASSIGN_OR_RETURN(const int64_t bytes, zip.Size(StorageName(tensor)));
    if (bytes / static_cast<int64_t>(sizeof(float)) != tensor.storage_size ||
        bytes % static_cast<int64_t>(sizeof(float)) != 0) {
      return Malformed(absl::StrCat(StorageName(tensor), " has ", bytes, " bytes, needs ",
                                    tensor.storage_size, " floats"));
    }
    Parameter& parameter = parameters.emplace_back();
    parameter.shape = tensor.shape;
    sums.push_back(tensor);
    const PickleValue* step = entry.Find("step");
    if (step == nullptr) return absl::OkStatus();
    if (step->kind == Kind::kInt) {
      parameter.steps = step->integer;
    } else if (step->kind == Kind::kTensor && document.tensor(*step).size() == 1) {
      float value = 0;
      WEFT_RETURN_IF_ERROR(ReadTensor(document.tensor(*step), {&value, 1}));
      // 2^63 and NaN are no numbers of steps.
      parameter.steps = value >= 0 && value < 0x1p63f ? std::llround(value) : -1;
    } else {
      return Malformed("has a 'step' that is no number");
    }
    return parameter.steps >= 0 ? absl::OkStatus() : Malformed("has a negative 'step'");
  }

  std::string StorageName(const PickledTensor& tensor) const {
    return absl::StrCat(folder, "/data/",
                        absl::string_view(tensor.storage.data(), tensor.storage.size()));
  }

  absl::Status ReadTensor(const PickledTensor& tensor, std::span<float> out) const {
    const std::string name = StorageName(tensor);
    const std::span<char> bytes(reinterpret_cast<char*>(out.data()), out.size_bytes());
    if (tensor.offset == 0) return zip.Read(name, bytes);
    // A view into a shared storage, as torch saves a slice.
    WEFT_ASSIGN_OR_RETURN(const int64_t size, zip.Size(name));
    if (size / static_cast<int64_t>(sizeof(float)) < tensor.storage_size) {
      return Malformed(absl::StrCat(name, " is too short"));
    }
    std::vector<float> whole(static_cast<size_t>(tensor.storage_size));
    WEFT_RETURN_IF_ERROR(
        zip.Read(name, {reinterpret_cast<char*>(whole.data()), whole.size() * sizeof(float)}));
    std::copy_n(whole.begin() + tensor.offset, out.size(), out.begin());
    return absl::OkStatus();
  }
};

OptimizerStateReader::OptimizerStateReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OptimizerStateReader::~OptimizerStateReader() = default;
OptimizerStateReader::OptimizerStateReader(OptimizerStateReader&&) noexcept = default;
OptimizerStateReader& OptimizerStateReader::operator=(OptimizerStateReader&&) noexcept = default;

absl::StatusOr<OptimizerStateReader> OptimizerStateReader::Open(const RandomAccessSource* source) {
  std::string start(static_cast<size_t>(std::min<int64_t>(source->size(), kOldTorchMagic.size())),
                    '\0');
  WEFT_RETURN_IF_ERROR(source->Read(0, start));
  if (start == kOldTorchMagic) {
    return Malformed(
        "was saved by a torch older than 1.6; load it with a newer one and save it again");
  }
  absl::StatusOr<ZipReader> zip = ZipReader::Open(source);
  if (!zip.ok()) return Annotate(zip.status(), "optimizer state");
  auto impl = std::make_unique<Impl>(*std::move(zip));
  WEFT_RETURN_IF_ERROR(impl->Parse());
  return OptimizerStateReader(std::move(impl));
}

const std::vector<OptimizerStateReader::Parameter>& OptimizerStateReader::parameters() const {
  return impl_->parameters;
}

absl::Status OptimizerStateReader::ReadSum(size_t parameter, std::span<float> out) const {
  const PickledTensor& tensor = impl_->sums[parameter];
  WEFT_CHECK(static_cast<int64_t>(out.size()) == tensor.size());
  WEFT_RETURN_IF_ERROR(impl_->ReadTensor(tensor, out));
  // Infinity is a sum that squares have overflowed: its value stands still. NaN is none.
  const auto bad = std::ranges::find_if(out, [](float sum) { return !(sum >= 0); });
  if (bad == out.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("optimizer state: sum ", bad - out.begin(),
                                          " of parameter ", parameter, " is ", *bad));
}

}  // namespace weft
