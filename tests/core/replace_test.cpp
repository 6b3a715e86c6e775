// Replacing files and folders whole, killed at every system call on the way.
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <map>
#include <set>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

// A folder of three files, one in a sub-folder, that all hold the same version.
void fill_version(const fs::path& folder, const std::string& version) {
  fs::create_directories(folder / "sub");
  for (const char* name : {"a", "b", "sub/c"}) {
    File file = File::create(folder / name);
    file.write(version);
    file.write(" of ");
    file.write(name);
  }
}

void write_version(const fs::path& path, const std::string& version) {
  write_folder_atomically(path, [&](const fs::path& temporary) { fill_version(temporary, version); });
}

// The version that the folder holds as a whole; "mixed" when it does not, "none" when there is no folder.
std::string version_of(const fs::path& path) {
  if (!fs::exists(path)) return "none";
  std::set<std::string> versions;
  for (const char* name : {"a", "b", "sub/c"}) {
    if (!fs::exists(path / name)) return "mixed";
    const std::string text = read_text(path / name), end = std::string(" of ") + name;
    if (!text.ends_with(end)) return "mixed";
    versions.insert(text.substr(0, text.size() - end.size()));
  }
  const auto entries = std::distance(fs::directory_iterator(path), fs::directory_iterator());
  return versions.size() == 1 && entries == 3 ? *versions.begin() : "mixed";
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

enum class Swap { as_the_system_can, refused };  // refused: as on a file system without RENAME_EXCHANGE

// Runs body in a child and kills it as it enters its nth system call. True: it ended before; no value: no tracing here.
std::optional<bool> kill_at(int nth, Swap swap, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    try {
      body();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) return {};
  for (int calls = 0; ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) == 0;) {
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      return true;
    }
    user_regs_struct registers;
    ::ptrace(PTRACE_GETREGS, child, nullptr, &registers);
    if (long(registers.rax) != -ENOSYS) continue;  // on its way out of the call
    if (swap == Swap::refused && registers.orig_rax == SYS_renameat2) {
      registers.orig_rax = ~0ull;  // no such call
      ::ptrace(PTRACE_SETREGS, child, nullptr, &registers);
    }
    if (++calls == nth) break;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return false;
}

void survives_a_kill_at_every_call(Swap swap, bool may_be_aside) {
  int killed = 0;
  std::map<std::string, int> found;
  for (int nth = 1;; ++nth) {
    const TemporaryFolder folder;
    write_version(folder / "out", "old");
    const auto ended = kill_at(nth, swap, [&] { write_version(folder / "out", "new"); });
    if (!ended) GTEST_SKIP() << "tracing a child is not allowed here";
    const std::string before = version_of(folder / "out");
    ++found[before];
    EXPECT_TRUE(before == "old" || before == "new" || (may_be_aside && before == "none"))
        << nth << ": " << before;
    for (const std::string& name : names_in(folder.path()))
      EXPECT_TRUE(name == "out" || is_leftover(name)) << name;
    if (nth % 2 == 0) {  // either way back to order
      clean_leftovers(folder.path());
      const std::string after = version_of(folder / "out");
      EXPECT_TRUE(after == "old" || after == "new") << nth << ": " << after;
      EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"out"});
    }
    write_version(folder / "out", "next");
    EXPECT_EQ(version_of(folder / "out"), "next");
    EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"out"});
    if (*ended) break;
    ++killed;
  }
  std::printf("killed at each of %d system calls: found the old %d times, the new %d, the old aside %d\n",
              killed, found["old"], found["new"], found["none"]);
  std::fflush(stdout);  // before the next fork copies it
  EXPECT_GT(killed, 20);
  EXPECT_GT(found["old"], 1);
  EXPECT_GT(found["new"], 1);
  EXPECT_EQ(found["none"] > 0, may_be_aside);
}

TEST(WriteFolderAtomically, SurvivesAKillAtEverySystemCall) {
  survives_a_kill_at_every_call(Swap::as_the_system_can, false);
}

TEST(WriteFolderAtomically, SurvivesAKillAtEverySystemCallWhereFoldersCannotBeSwapped) {
  survives_a_kill_at_every_call(Swap::refused, true);
}

TEST(WriteFolderAtomically, KeepsTheOldFolderWhenAnyWriteFails) {
  const TemporaryFolder folder;
  write_version(folder / "out", "old");
  int failed = 0;
  for (int nth = 1;; ++nth) {
    inject_write_fault(nth, nth % 2 ? ENOSPC : EIO);
    try {
      write_version(folder / "out", "new");
      break;
    } catch (const Error& error) {
      EXPECT_EQ(int(error.kind()), int(ErrorKind::io));
      EXPECT_THAT(error.what(), testing::HasSubstr(".tmp-out/"));
      EXPECT_EQ(version_of(folder / "out"), "old");
      EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"out"});
      ++failed;
    }
  }
  inject_write_fault(0, 0);
  EXPECT_EQ(failed, 9);
  EXPECT_EQ(version_of(folder / "out"), "new");
}

TEST(WriteFolderAtomically, PassesOnWhatFillThrows) {
  const TemporaryFolder folder;
  EXPECT_THROW(write_folder_atomically(folder / "out", [](const fs::path&) { throw 5; }), int);
  expect_error(ErrorKind::io, {"nowhere"}, [&] {
    write_folder_atomically(folder / "out", [](const fs::path& temporary) {
      fs::copy_file(temporary / "nowhere", temporary / "b");
    });
  });
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(WriteFolderAtomically, MakesTheFoldersAboveAndTakesATrailingSlash) {
  const TemporaryFolder folder;
  write_version(folder / "x" / "y" / "", "first");
  EXPECT_EQ(version_of(folder / "x" / "y"), "first");
}

TEST(WriteFolderAtomically, FollowsALinkToAnotherPlace) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "disk");
  write_version(folder / "disk" / "real", "old");
  fs::create_directory_symlink(folder / "disk" / "real", folder / "out");
  write_version(folder / "out", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "out"));
  EXPECT_EQ(version_of(folder / "disk" / "real"), "new");
}

TEST(WriteTextAtomically, ReplacesTheWholeTextOrNothing) {
  const TemporaryFolder folder;
  write_text_atomically(folder / "a.json", "old and long");
  inject_write_fault(1, ENOSPC);
  expect_error(ErrorKind::io, {"a.json", "No space left", "3 bytes wanted"},
               [&] { write_text_atomically(folder / "a.json", "new"); });
  EXPECT_EQ(read_text(folder / "a.json"), "old and long");
  write_text_atomically(folder / "a.json", "new");
  EXPECT_EQ(read_text(folder / "a.json"), "new");
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"a.json"});
  for (int nth = 1;; ++nth) {
    write_text_atomically(folder / "a.json", "new");
    const auto ended =
        kill_at(nth, Swap::as_the_system_can, [&] { write_text_atomically(folder / "a.json", "newest"); });
    if (!ended) GTEST_SKIP() << "tracing a child is not allowed here";
    const std::string text = read_text(folder / "a.json");
    EXPECT_TRUE(text == "new" || text == "newest") << text;
    if (*ended) break;
  }
}

TEST(CleanLeftovers, TellsItsOwnNamesFromOthers) {
  EXPECT_TRUE(is_leftover("x/.tmp-out"));
  EXPECT_TRUE(is_leftover(".old-out"));
  EXPECT_FALSE(is_leftover("x/.tmp-out/a"));
  EXPECT_FALSE(is_leftover("tmp-out"));
  const TemporaryFolder folder;
  write_version(folder / ".old-gone", "old");
  write_version(folder / ".hidden", "mine");
  clean_leftovers(folder.path());
  EXPECT_EQ(version_of(folder / "gone"), "old");
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"gone", ".hidden"}));
  clean_leftovers(folder / "not there");  // nothing there, nothing left
}

}  // namespace
}  // namespace slideway
