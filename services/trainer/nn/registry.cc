#include "services/trainer/nn/registry.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/trainer/nn/builtins.h"

namespace weft::nn {
namespace {

template <typename Definition>
using ByName = std::map<std::string, Definition, std::less<>>;

template <typename Definition>
absl::Status Add(absl::string_view kind, bool complete, Definition definition,
                 ByName<Definition>* registry) {
  if (definition.name.empty() || !complete) {
    return absl::InvalidArgumentError(absl::StrCat(
        kind, " '", definition.name, "': a name and all functions without a default are needed"));
  }
  std::string name = definition.name;
  if (!registry->try_emplace(name, std::move(definition)).second) {
    return absl::AlreadyExistsError(absl::StrCat(kind, " '", name, "' is registered already"));
  }
  return absl::OkStatus();
}

template <typename Definition>
const Definition* Find(const ByName<Definition>& registry, std::string_view name) {
  const auto found = registry.find(name);
  return found == registry.end() ? nullptr : &found->second;
}

class Registries {
 public:
  // Made on first use, so that a registration in a global's initializer finds the built-in ones.
  static Registries& Get() {
    static Registries registries;
    return registries;
  }

  ByName<OperatorDefinition> operators;
  ByName<OperatorDefinition> dynamic_operators;
  ByName<ComparatorDefinition> comparators;
  ByName<LossDefinition> losses;

 private:
  Registries() {
    for (OperatorDefinition& d : BuiltinOperators(/*dynamic=*/false)) {
      WEFT_CHECK(Add("operator", true, std::move(d), &operators).ok());
    }
    for (OperatorDefinition& d : BuiltinOperators(/*dynamic=*/true)) {
      WEFT_CHECK(Add("operator", true, std::move(d), &dynamic_operators).ok());
    }
    for (ComparatorDefinition& d : BuiltinComparators()) {
      WEFT_CHECK(Add("comparator", true, std::move(d), &comparators).ok());
    }
    for (LossDefinition& d : BuiltinLosses()) {
      WEFT_CHECK(Add("loss", true, std::move(d), &losses).ok());
    }
  }
};

}  // namespace

absl::Status RegisterOperator(OperatorDefinition definition) {
  const bool complete = definition.parameters && definition.forward;
  return Add("operator", complete, std::move(definition), &Registries::Get().operators);
}

absl::Status RegisterDynamicOperator(OperatorDefinition definition) {
  const bool complete = definition.parameters && definition.forward;
  return Add("operator for dynamic relations", complete, std::move(definition),
             &Registries::Get().dynamic_operators);
}

absl::Status RegisterComparator(ComparatorDefinition definition) {
  const bool complete = static_cast<bool>(definition.score);
  return Add("comparator", complete, std::move(definition), &Registries::Get().comparators);
}

absl::Status RegisterLoss(LossDefinition definition) {
  const bool complete = static_cast<bool>(definition.forward);
  return Add("loss", complete, std::move(definition), &Registries::Get().losses);
}

const OperatorDefinition* FindOperator(std::string_view name, bool dynamic) {
  return Find(dynamic ? Registries::Get().dynamic_operators : Registries::Get().operators, name);
}

const ComparatorDefinition* FindComparator(std::string_view name) {
  return Find(Registries::Get().comparators, name);
}

const LossDefinition* FindLoss(std::string_view name) {
  return Find(Registries::Get().losses, name);
}

RegisteredNames AllRegisteredNames() {
  const Registries& all = Registries::Get();
  RegisteredNames names;
  std::set<std::string> operators;
  for (const auto& [name, _] : all.operators) operators.insert(name);
  for (const auto& [name, _] : all.dynamic_operators) operators.insert(name);
  names.operators.assign(operators.begin(), operators.end());
  for (const auto& [name, _] : all.comparators) names.comparators.push_back(name);
  for (const auto& [name, _] : all.losses) names.losses.push_back(name);
  return names;
}

}  // namespace weft::nn
