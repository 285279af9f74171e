#include "tests/chaos/fault_proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace weft::testing {
namespace {

// Blocking sockets of both ends of a connection through a proxy.
class ProxiedConnection {
 public:
  ProxiedConnection() {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Address(0);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    proxy.SetTarget(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
    Connect();
  }
  ~ProxiedConnection() {
    for (const int fd : {caller, target, listener_}) close(fd);
  }

  void Connect() {
    const std::string address = proxy.address();
    const sockaddr_in to =
        Address(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    caller = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(caller, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    target = accept(listener_, nullptr, nullptr);
  }

  static std::string Receive(int fd, size_t bytes) {
    std::string text(bytes, '\0');
    const ssize_t count = recv(fd, text.data(), bytes, MSG_WAITALL);
    text.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return text;
  }
  static bool Readable(int fd, int milliseconds) {
    pollfd polled = {fd, POLLIN, 0};
    return poll(&polled, 1, milliseconds) == 1;
  }

  FaultProxy proxy;
  int caller = -1;
  int target = -1;

 private:
  static sockaddr_in Address(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  int listener_ = -1;
};

TEST(FaultProxyTest, PassesOnBothWaysAndWhatWasHeldUpByAStall) {
  ProxiedConnection c;
  const std::string large(300'000, 'x');
  ASSERT_EQ(send(c.caller, "ping", 4, 0), 4);
  EXPECT_EQ(c.Receive(c.target, 4), "ping");

  c.proxy.Stall(true);
  ASSERT_EQ(send(c.target, "pong", 4, 0), 4);
  EXPECT_FALSE(c.Readable(c.caller, 100));
  c.proxy.Stall(false);
  EXPECT_EQ(c.Receive(c.caller, 4), "pong");

  ASSERT_EQ(send(c.caller, large.data(), large.size(), 0), static_cast<ssize_t>(large.size()));
  EXPECT_TRUE(c.Receive(c.target, large.size()) == large);
}

TEST(FaultProxyTest, ACutEndsConnectionsAndTakesNewOnes) {
  ProxiedConnection c;
  ASSERT_EQ(send(c.caller, "a", 1, 0), 1);
  ASSERT_EQ(c.Receive(c.target, 1), "a");

  c.proxy.Cut();

  EXPECT_EQ(c.Receive(c.caller, 1), "");
  EXPECT_EQ(c.Receive(c.target, 1), "");
  close(c.caller);
  close(c.target);
  c.Connect();
  ASSERT_EQ(send(c.caller, "b", 1, 0), 1);
  EXPECT_EQ(c.Receive(c.target, 1), "b");
  EXPECT_EQ(c.proxy.connections(), 2);
}

}  // namespace
}  // namespace weft::testing
