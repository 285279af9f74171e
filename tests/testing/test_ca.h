// A CA and a certificate for each role, in a folder, as scripts/make_test_ca makes them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "services/common/rpc/tls_files.h"
#include "tests/testing/run_program.h"

namespace weft::testing {

class TestCa {
 public:
  explicit TestCa(std::string folder) : folder_(std::move(folder)) { Renew(); }

  // New certificates of the same CA. `days` < 0: they expired yesterday.
  void Renew(int days = 30) const {
    const char* const source = std::getenv("WEFT_SOURCE_DIR");  // set by ctest
    const ProgramResult made =
        RunProgram({std::string(source == nullptr ? "." : source) + "/scripts/make_test_ca",
                    folder_, "--days", std::to_string(days)});
    EXPECT_EQ(made.exit_code, 0) << made.out << made.err;
  }

  // `name`: a role, or "cluster" for all of them.
  TlsFiles Files(const std::string& name) const {
    return {File(name + ".crt"), File(name + ".key"), File("ca.crt")};
  }
  std::vector<std::string> Flags(const std::string& name) const {
    const TlsFiles files = Files(name);
    return {"--tls-cert", files.certificate, "--tls-key", files.key, "--tls-ca", files.ca};
  }
  std::string File(const std::string& name) const { return folder_ + "/" + name; }

 private:
  const std::string folder_;
};

}  // namespace weft::testing
