#include "tests/testing/http_get.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft::testing {

HttpAnswer HttpGet(const std::string& address, const std::string& path, const std::string& method) {
  HttpAnswer answer;
  const size_t colon = address.rfind(':');
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  if (inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) != 1) return answer;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string text;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    const std::string request =
        absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: ", address, "\r\n\r\n");
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(request.size())) {
      char buffer[1 << 16];
      for (ssize_t n = 0; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) {
        text.append(buffer, static_cast<size_t>(n));
      }
    }
  }
  close(fd);
  const size_t head_end = text.find("\r\n\r\n");
  if (head_end == std::string::npos) return answer;
  const std::vector<std::string> head =
      absl::StrSplit(text.substr(0, head_end), absl::ByString("\r\n"));
  const std::vector<std::string> status = absl::StrSplit(head.front(), ' ');
  if (status.size() > 1) answer.code = std::atoi(status[1].c_str());
  for (const std::string& line : head) {
    constexpr char kType[] = "Content-Type: ";
    if (absl::StartsWith(line, kType)) answer.content_type = line.substr(sizeof kType - 1);
  }
  answer.body = text.substr(head_end + 4);
  return answer;
}

}  // namespace weft::testing
