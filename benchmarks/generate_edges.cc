// Prints a random graph to standard output, for measuring the importer.
//
//   generate_edges EDGES ENTITIES RELATIONS [SEED] > edges.tsv
//
// Lines are `n0000123<TAB>r4<TAB>n0098765`. The first edges name every entity once, so graphs of
// different sizes have the same entities; the rest are drawn with a skew, as in real graphs (the
// most frequent tenth of the entities takes a third of the ends). Equal arguments give equal bytes.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "services/common/random.h"

namespace {

// A permutation of [0, count): frequent entities do not have neighbouring names.
uint64_t Scatter(uint64_t i, uint64_t count) {
  // A prime that divides no count below it.
  return i * 2'147'483'647 % count;
}

int Run(uint64_t num_edges, uint64_t num_entities, uint64_t num_relations, uint64_t seed) {
  weft::RandomStream random(seed, weft::RandomUse::kTest);
  std::string buffer;
  const auto draw = [&] {
    const double u = random.Uniform() + random.Uniform() * 0x1.0p-24;
    return Scatter(
        static_cast<uint64_t>(u * std::sqrt(u) * static_cast<double>(num_entities)) % num_entities,
        num_entities);
  };
  for (uint64_t i = 0; i < num_edges; ++i) {
    const bool first_round = 2 * i + 1 < num_entities;
    const uint64_t lhs = first_round ? Scatter(2 * i, num_entities) : draw();
    const uint64_t rhs = first_round ? Scatter(2 * i + 1, num_entities) : draw();
    const auto relation = static_cast<uint64_t>(random.Below(static_cast<uint32_t>(num_relations)));
    char line[96];
    const int size = std::snprintf(
        line, sizeof line, "n%07llu\tr%llu\tn%07llu\n", static_cast<unsigned long long>(lhs),
        static_cast<unsigned long long>(relation), static_cast<unsigned long long>(rhs));
    buffer.append(line, static_cast<size_t>(size));
    if (buffer.size() > (size_t{1} << 16) || i + 1 == num_edges) {
      if (std::fwrite(buffer.data(), 1, buffer.size(), stdout) != buffer.size()) return 1;
      buffer.clear();
    }
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(stderr, "usage: generate_edges EDGES ENTITIES RELATIONS [SEED] > edges.tsv\n");
    return 2;
  }
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  if (number(2) < 1 || number(3) < 1) {
    std::fprintf(stderr, "generate_edges: there must be entities and relations\n");
    return 2;
  }
  return Run(number(1), number(2), number(3), argc > 4 ? number(4) : 1);
}
