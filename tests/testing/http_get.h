// GET over HTTP, as a scraper or a probe does it.
#pragma once

#include <string>

namespace weft::testing {

struct HttpAnswer {
  int code = 0;  // 0: nobody answered
  std::string content_type;
  std::string body;
};

// `address`: IPv4 and port. `method`: what is asked instead of GET.
HttpAnswer HttpGet(const std::string& address, const std::string& path,
                   const std::string& method = "GET");

}  // namespace weft::testing
