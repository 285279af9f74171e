#include "graph/checkpoint/pickle_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr size_t kMaxValues = 8'000'000;
constexpr size_t kMaxDimensions = 8;

// The opcodes of pickle protocol 2 that data needs (Python's pickletools lists them all).
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kBinFloat = 'G',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
};

// What a value of kind kInternal stands for, in `integer`; never left in a result.
enum Internal : int64_t { kOrderedDictType, kFloatStorageType, kRebuildTensor, kStorage };

struct KnownGlobal {
  std::string_view module;
  std::string_view name;
  Internal meaning;
};
constexpr KnownGlobal kGlobals[] = {
    {"collections", "OrderedDict", kOrderedDictType},
    {"torch", "FloatStorage", kFloatStorageType},
    {"torch._utils", "_rebuild_tensor_v2", kRebuildTensor},
};

std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) {
    if (c >= ' ' && c <= '~') {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(c));
    }
  }
  return out;
}

}  // namespace

class PickleMachine {
 public:
  using Kind = PickleValue::Kind;

  explicit PickleMachine(std::string_view bytes) {
    document_.bytes_.assign(bytes.begin(), bytes.end());
    left_ = std::string_view(document_.bytes_.data(), document_.bytes_.size());
  }

  absl::StatusOr<PickleDocument> Run() {
    while (true) {
      at_ = document_.bytes_.size() - left_.size();
      if (left_.empty()) return Bad("ends too early");
      const auto opcode = static_cast<Opcode>(Number<uint8_t>());
      if (opcode == kStop) break;
      WEFT_RETURN_IF_ERROR(Step(opcode));
      if (document_.values_.size() > kMaxValues) return Bad("has too many values");
    }
    if (stack_.size() != 1 || !marks_.empty()) return Bad("does not leave one value");
    if (stack_[0]->kind == Kind::kInternal) return Bad("leaves no data");
    if (!left_.empty()) return Bad("goes on after its end");
    document_.root_ = stack_[0];
    return std::move(document_);
  }

 private:
  absl::Status Bad(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat("pickle ", what, " (byte ", at_, ")"));
  }
  absl::Status Short() const { return Bad("ends within an opcode"); }

  // The next bytes as a little-endian number; what is missing is 0 and makes `short_`.
  template <typename T>
  T Number() {
    T value{};
    if (left_.size() < sizeof(T)) {
      short_ = true;
      left_ = {};
      return value;
    }
    std::memcpy(&value, left_.data(), sizeof(T));
    left_.remove_prefix(sizeof(T));
    return value;
  }
  std::string_view Bytes(size_t count) {
    if (left_.size() < count) {
      short_ = true;
      left_ = {};
      return {};
    }
    const std::string_view bytes = left_.substr(0, count);
    left_.remove_prefix(count);
    return bytes;
  }

  PickleValue* Make(Kind kind) {
    PickleValue& value = document_.values_.emplace_back();
    value.kind = kind;
    return &value;
  }
  absl::Status PushInt(Kind kind, int64_t integer) {
    if (short_) return Short();
    stack_.push_back(Make(kind));
    stack_.back()->integer = integer;
    return absl::OkStatus();
  }
  absl::Status PushEmpty(Kind kind) {
    stack_.push_back(Make(kind));
    return absl::OkStatus();
  }

  // Values above the last mark belong to it.
  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }
  bool Has(size_t count) const { return stack_.size() >= Floor() + count; }
  // Takes the values from `begin` off the stack.
  std::vector<const PickleValue*> Take(size_t begin) {
    const auto first = stack_.begin() + static_cast<ptrdiff_t>(begin);
    std::vector<const PickleValue*> taken(first, stack_.end());
    stack_.resize(begin);
    return taken;
  }

  absl::Status Step(Opcode opcode) {
    switch (opcode) {
      case kProto:
        return Protocol();
      case kMark:
        marks_.push_back(stack_.size());
        return absl::OkStatus();
      case kNone:
        return PushEmpty(Kind::kNone);
      case kNewTrue:
        return PushInt(Kind::kBool, 1);
      case kNewFalse:
        return PushInt(Kind::kBool, 0);
      case kBinInt:
        return PushInt(Kind::kInt, Number<int32_t>());
      case kBinInt1:
        return PushInt(Kind::kInt, Number<uint8_t>());
      case kBinInt2:
        return PushInt(Kind::kInt, Number<uint16_t>());
      case kLong1:
        return Long();
      case kBinFloat:
        return Float();
      case kBinUnicode:
        return Unicode();
      case kEmptyDict:
        return PushEmpty(Kind::kDict);
      case kEmptyList:
        return PushEmpty(Kind::kList);
      case kEmptyTuple:
        return PushEmpty(Kind::kTuple);
      case kTuple:
        if (marks_.empty()) return Bad("lacks a mark");
        return Tuple(stack_.size() - PopMark());
      case kTuple1:
        return Tuple(1);
      case kTuple2:
        return Tuple(2);
      case kTuple3:
        return Tuple(3);
      case kAppend:
        return AddItems(Kind::kList, 1);
      case kSetItem:
        return AddItems(Kind::kDict, 2);
      case kAppends:
        if (marks_.empty()) return Bad("lacks a mark");
        return AddItems(Kind::kList, stack_.size() - PopMark());
      case kSetItems:
        if (marks_.empty()) return Bad("lacks a mark");
        return AddItems(Kind::kDict, stack_.size() - PopMark());
      case kBinPut:
        return Put(Number<uint8_t>());
      case kLongBinPut:
        return Put(Number<uint32_t>());
      case kBinGet:
        return Get(Number<uint8_t>());
      case kLongBinGet:
        return Get(Number<uint32_t>());
      case kGlobal:
        return Global();
      case kBinPersId:
        return PersistentId();
      case kReduce:
        return Reduce();
      case kStop:
        break;
    }
    return Bad(absl::StrFormat("has opcode 0x%02x, which data does not need",
                               static_cast<unsigned>(opcode)));
  }

  absl::Status Protocol() {
    const auto version = Number<uint8_t>();
    if (short_) return Short();
    if (version != 2) return Bad(absl::StrCat("has protocol ", version, ", needs 2"));
    return absl::OkStatus();
  }

  absl::Status Long() {
    const std::string_view bytes = Bytes(Number<uint8_t>());
    if (short_) return Short();
    if (bytes.size() > sizeof(int64_t)) return Bad("has an integer beyond 64 bits");
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    }
    if (!bytes.empty() && bytes.size() < sizeof(value) && (bytes.back() & 0x80) != 0) {
      value |= ~uint64_t{0} << (8 * bytes.size());  // the sign
    }
    return PushInt(Kind::kInt, static_cast<int64_t>(value));
  }

  absl::Status Float() {
    const std::string_view bytes = Bytes(sizeof(double));
    if (short_) return Short();
    uint64_t bits = 0;  // big-endian
    for (const char c : bytes) bits = (bits << 8) | static_cast<uint8_t>(c);
    stack_.push_back(Make(Kind::kFloat));
    stack_.back()->number = std::bit_cast<double>(bits);
    return absl::OkStatus();
  }

  absl::Status Unicode() {
    const std::string_view text = Bytes(Number<uint32_t>());
    if (short_) return Short();
    stack_.push_back(Make(Kind::kString));
    stack_.back()->text = text;
    return absl::OkStatus();
  }

  size_t PopMark() {
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  absl::Status Tuple(size_t count) {
    if (!Has(count)) return Bad("takes from an empty stack");
    std::vector<const PickleValue*> items = Take(stack_.size() - count);
    stack_.push_back(Make(Kind::kTuple));
    stack_.back()->items = std::move(items);
    return absl::OkStatus();
  }

  // Adds the topmost `count` values to the container below them.
  absl::Status AddItems(Kind container, size_t count) {
    if (!Has(count + 1)) return Bad("takes from an empty stack");
    if (container == Kind::kDict && count % 2 != 0) return Bad("has a key without a value");
    const std::vector<const PickleValue*> items = Take(stack_.size() - count);
    PickleValue* target = stack_.back();
    if (target->kind != container) return Bad("adds items to what does not hold them");
    target->items.insert(target->items.end(), items.begin(), items.end());
    return absl::OkStatus();
  }

  absl::Status Put(uint32_t index) {
    if (short_) return Short();
    if (!Has(1)) return Bad("takes from an empty stack");
    memo_[index] = stack_.back();
    return absl::OkStatus();
  }

  absl::Status Get(uint32_t index) {
    if (short_) return Short();
    const auto found = memo_.find(index);
    if (found == memo_.end()) return Bad("refers to a value that it has not stored");
    stack_.push_back(found->second);
    return absl::OkStatus();
  }

  absl::Status Global() {
    std::string_view names[2];
    for (std::string_view& name : names) {
      const size_t end = left_.find('\n');
      if (end == std::string_view::npos) return Short();
      name = Bytes(end);
      Bytes(1);
    }
    for (const KnownGlobal& known : kGlobals) {
      if (known.module == names[0] && known.name == names[1]) {
        return PushInt(Kind::kInternal, known.meaning);
      }
    }
    return Bad(absl::StrCat("wants ", Printable(names[0]), ".", Printable(names[1]),
                            ", which is not among what an optimizer's state needs"));
  }

  static bool Is(const PickleValue* value, Internal meaning) {
    return value->kind == Kind::kInternal && value->integer == meaning;
  }

  // A storage: ('storage', torch.FloatStorage, key, device, number of floats).
  absl::Status PersistentId() {
    if (!Has(1)) return Bad("takes from an empty stack");
    const PickleValue* id = stack_.back();
    stack_.pop_back();
    const auto& items = id->items;
    if (id->kind != Kind::kTuple || items.size() != 5 || items[0]->kind != Kind::kString ||
        items[0]->text != "storage" || !Is(items[1], kFloatStorageType) ||
        items[2]->kind != Kind::kString || items[3]->kind != Kind::kString ||
        items[4]->kind != Kind::kInt || items[4]->integer < 0) {
      return Bad("refers to something that is no storage of floats");
    }
    PickleValue* storage = Make(Kind::kInternal);
    storage->integer = kStorage;
    storage->text = items[2]->text;
    storage->items = {items[4]};
    stack_.push_back(storage);
    return absl::OkStatus();
  }

  absl::Status Reduce() {
    if (!Has(2)) return Bad("takes from an empty stack");
    const PickleValue* arguments = stack_.back();
    stack_.pop_back();
    const PickleValue* function = stack_.back();
    stack_.pop_back();
    if (arguments->kind != Kind::kTuple) return Bad("calls without a tuple of arguments");
    if (Is(function, kOrderedDictType)) {
      if (!arguments->items.empty()) return Bad("fills an OrderedDict by calling it");
      return PushEmpty(Kind::kDict);
    }
    if (Is(function, kRebuildTensor)) return RebuildTensor(arguments->items);
    return Bad("calls what cannot be called");
  }

  // (storage, offset, shape, strides, requires_grad, backward_hooks).
  absl::Status RebuildTensor(const std::vector<const PickleValue*>& arguments) {
    if (arguments.size() < 4 || !Is(arguments[0], kStorage)) return Bad("has a malformed tensor");
    PickledTensor tensor;
    tensor.storage = arguments[0]->text;
    tensor.storage_size = arguments[0]->items[0]->integer;
    std::vector<int64_t> strides;
    if (arguments[1]->kind != Kind::kInt || !Integers(*arguments[2], &tensor.shape) ||
        !Integers(*arguments[3], &strides) || strides.size() != tensor.shape.size()) {
      return Bad("has a malformed tensor");
    }
    tensor.offset = arguments[1]->integer;
    int64_t size = 1;
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      const int64_t extent = tensor.shape[i];
      if (extent < 0 || (extent > 0 && size > std::numeric_limits<int64_t>::max() / extent)) {
        return Bad("has a tensor of an impossible shape");
      }
      if (strides[i] != size && extent > 1 && size > 0) return Bad("has a tensor with gaps");
      size *= extent;
    }
    if (tensor.offset < 0 || tensor.offset > tensor.storage_size ||
        size > tensor.storage_size - tensor.offset) {
      return Bad("has a tensor beyond its storage");
    }
    document_.tensors_.push_back(std::move(tensor));
    return PushInt(Kind::kTensor, static_cast<int64_t>(document_.tensors_.size()) - 1);
  }

  static bool Integers(const PickleValue& tuple, std::vector<int64_t>* out) {
    if (tuple.kind != Kind::kTuple || tuple.items.size() > kMaxDimensions) return false;
    for (const PickleValue* item : tuple.items) {
      if (item->kind != Kind::kInt) return false;
      out->push_back(item->integer);
    }
    return true;
  }

  PickleDocument document_;
  std::string_view left_;  // what is still to be read
  size_t at_ = 0;          // where the current opcode stands
  bool short_ = false;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  absl::flat_hash_map<uint32_t, PickleValue*> memo_;
};

int64_t PickledTensor::size() const {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return size;
}

const PickleValue* PickleValue::Find(std::string_view key) const {
  if (kind != Kind::kDict) return nullptr;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i]->kind == Kind::kString && items[i]->text == key) return items[i + 1];
  }
  return nullptr;
}

absl::StatusOr<PickleDocument> ParsePickle(std::string_view bytes) {
  return PickleMachine(bytes).Run();
}

}  // namespace weft
