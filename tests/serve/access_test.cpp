#include "serve/access.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

TEST(Access, IsOpenWithoutKeys) {
  EXPECT_TRUE(Access().open());
}

TEST(Access, KnowsAKeyByBearerAndByBasic) {
  Access access;
  access.add_key("secret", {.name = "team"});
  EXPECT_FALSE(access.open());
  EXPECT_EQ(access.find("Bearer secret")->name, "team");
  EXPECT_EQ(access.find("bearer  secret")->name, "team");
  EXPECT_EQ(access.find("Basic YW55OnNlY3JldA==")->name, "team");  // any:secret
  for (const char* wrong :
       {"", "secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secret2", "Basic !!!!", "Basic YQ=="})
    EXPECT_EQ(access.find(wrong), nullptr) << wrong;
}

TEST(Access, HoldsAKeyToItsAdapters) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "keys.json";
  write_text_atomically(file, R"([{"key": "a", "adapters": ["x", "legal/*"], "base": false},
                                  {"key": "b", "admin": true, "name": "boss"}])");
  Access access;
  access.add_file(file);
  const AccessKey& a = *access.find("Bearer a");
  EXPECT_TRUE(a.may_use("x"));
  EXPECT_TRUE(a.may_use("legal/1"));
  EXPECT_FALSE(a.may_use("xy"));
  EXPECT_FALSE(a.may_use("legal"));
  EXPECT_FALSE(a.base);
  EXPECT_FALSE(a.admin);
  EXPECT_TRUE(access.find("Bearer b")->may_use("anything"));
  EXPECT_TRUE(access.has_admin());
}

TEST(Access, RefusesAKeyFileThatSaysSomethingElse) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "keys.json";
  const auto refused = [&](const char* text, const char* why) {
    write_text_atomically(file, text);
    expect_error(ErrorKind::invalid_input, {why}, [&] { Access().add_file(file); });
  };
  refused("{}", "an array");
  refused(R"([{"name": "x"}])", "key is missing");
  refused(R"([{"key": ""}])", "key should be");
  refused(R"([{"key": "a", "adapter": []}])", "no field adapter");
  refused(R"([{"key": "a", "adapters": "x"}])", "list of names");
  refused(R"([{"key": "a"}, {"key": "a"}])", "twice");
}

}  // namespace
}  // namespace slideway
