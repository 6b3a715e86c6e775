// Bytes on a real socket: what a client may send, and what it gets.
#include "serve/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace slideway {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Sends what counts down, and says when it was destroyed.
class Countdown final : public LaterReply {
 public:
  Countdown(int from, std::function<void()> wake, std::atomic<int>& ended)
      : left_(from), wake_(std::move(wake)), ended_(ended) {
    wake_();
  }
  ~Countdown() override { ++ended_; }
  State advance(HttpReply& reply) override {
    if (left_ < 0) return State::waiting;  // for ever
    reply.body = std::to_string(left_) + ";";
    wake_();
    return left_-- == 0 ? State::done : State::streaming;
  }

 private:
  int left_;
  std::function<void()> wake_;
  std::atomic<int>& ended_;
};

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() { server_.start(); }

  static HttpOptions options() {
    return {
        .port = 0, .max_header_bytes = 4096, .max_body_bytes = 1000, .read_timeout = 1, .access_log = false};
  }

  HttpReply handle(const HttpRequest& request) {
    HttpReply reply;
    if (request.path == "/echo") reply.body = request.method + request.query + ":" + request.body;
    if (request.path == "/count") reply.later = std::make_unique<Countdown>(3, request.wake, ended_);
    if (request.path == "/never") reply.later = std::make_unique<Countdown>(-1, request.wake, ended_);
    return reply;
  }

  int connect() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(server_.port())};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  // All that comes until the server closes.
  static std::string read_all(int fd) {
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) out.append(buffer, std::size_t(n));
    ::close(fd);
    return out;
  }
  std::string talk(const std::string& text) const {
    const int fd = connect();
    EXPECT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), ssize_t(text.size()));
    return read_all(fd);
  }

  std::atomic<int> ended_{0};
  HttpServer server_{
      options(),
      {.refuse =
           [](const HttpRequest& request) {
             return HttpReply{.status = request.path == "/refused" ? 401 : 0, .body = "no"};
           },
       .handle = [this](const HttpRequest& request) { return handle(request); },
       .error = [](int status, const std::string& why) { return HttpReply{.status = status, .body = why}; }}};
};

TEST_F(HttpServerTest, AnswersRequestsOneAfterAnother) {
  const std::string out = talk(
      "POST /echo?a=b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nX-Request-Id: mine\r\n\r\nabc"
      "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(out, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(out, HasSubstr("X-Request-Id: mine\r\n"));
  EXPECT_THAT(out, HasSubstr("POSTa=b:abcHTTP/1.1 200 OK"));
  EXPECT_THAT(out, testing::EndsWith("\r\n\r\nGET:"));
}

TEST_F(HttpServerTest, TakesABodyInChunks) {
  EXPECT_THAT(talk("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                   "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
              testing::EndsWith("POST:abc"));
}

TEST_F(HttpServerTest, StreamsInChunksToTheEnd) {
  EXPECT_THAT(talk("GET /count HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              testing::EndsWith("Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                                "2\r\n3;\r\n2\r\n2;\r\n2\r\n1;\r\n2\r\n0;\r\n0\r\n\r\n"));
  EXPECT_EQ(ended_, 1);
}

TEST_F(HttpServerTest, RefusesWhatIsTooLargeOrNoHttp) {
  EXPECT_THAT(talk("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(talk("GET / HTTP/1.1\r\nX: " + std::string(5000, 'a') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(talk("POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(talk("POST /echo HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
}

TEST_F(HttpServerTest, RefusesBeforeTheBodyIsSent) {
  EXPECT_THAT(talk("POST /refused HTTP/1.1\r\nContent-Length: 900\r\n\r\n"), StartsWith("HTTP/1.1 401 "));
}

TEST_F(HttpServerTest, ClosesAConnectionThatSendsNoWholeHeader) {
  EXPECT_EQ(talk("GET / HT"), "");  // returns when the read timeout has closed it
}

TEST_F(HttpServerTest, EndsTheReplyOfAClientThatLeaves) {
  const int fd = connect();
  const std::string text = "GET /never HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), ssize_t(text.size()));
  ::usleep(50'000);
  EXPECT_EQ(ended_, 0);
  ::close(fd);
  for (int i = 0; i < 500 && ended_ == 0; ++i) ::usleep(10'000);
  EXPECT_EQ(ended_, 1);
}

TEST_F(HttpServerTest, DrainsWhatIsUnderWayAndClosesWhatIsIdle) {
  const int idle = connect();
  const std::string text = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_EQ(::send(idle, text.data(), text.size(), MSG_NOSIGNAL), ssize_t(text.size()));
  ::usleep(50'000);
  server_.drain();
  EXPECT_THAT(read_all(idle), testing::EndsWith("GET:"));
  server_.wait();
  EXPECT_EQ(server_.connections(), 0u);
}

}  // namespace
}  // namespace slideway
